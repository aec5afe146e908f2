"""What `inspect` says of how actions move observations: commands of positions, and what no column shows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hilp
from hilp.cli import main
from hilp.commands.data import _targets
from hilp.data.audit import AuditReport, inspect
from hilp.data.measures import position_commands


def servo(kind: str, rows: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """A point that is sent from place to place by targets or by speeds; columns: place, speed or noise, last action."""
    random = np.random.default_rng(0)
    place, speed, last, goal = np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2)
    seen, acted = [], []
    for row in range(rows):
        goal = random.uniform(-1, 1, 2) if row % 25 == 0 else goal
        way = np.clip(goal - place, -0.1, 0.1)
        action = place + way + random.normal(0, 0.01, 2) if kind == "position" else way
        seen.append([*place, *(random.normal(size=2) if kind == "position" else speed), *last])
        acted.append(action)
        speed = 0.3 * (action - place) if kind == "position" else 0.3 * speed + 0.7 * action
        place, last = place + speed, action
    return np.array(seen), np.array(acted)


def test_targets_are_told_from_speeds_and_from_records_of_actions():
    seen, acted = servo("position")
    assert position_commands(seen, acted) == {0: 0, 1: 1}
    assert position_commands(seen[:, ::-1], 3.0 * acted + 1.0) == {0: 5, 1: 4}, "whatever the order, scale and offset"
    assert position_commands(seen[:, 2:], acted) == {}, "the column that repeats the last action is no place"
    assert position_commands(*servo("velocity")) == {}, "a speed that follows the command is no place"


def test_rows_that_say_nothing_have_no_targets():
    random = np.random.default_rng(0)
    assert position_commands(random.normal(size=(500, 3)), random.normal(size=(500, 2))) == {}
    assert position_commands(np.zeros((2, 3)), np.zeros((2, 2))) == {}
    assert position_commands(np.full((50, 3), np.nan), np.zeros((50, 2))) == {}
    assert position_commands(np.zeros((50, 3)), np.zeros((50, 2))) == {}


def log_of(seen: np.ndarray, acted: np.ndarray, **columns: np.ndarray) -> dict:
    return {"observations": seen, "actions": acted, "episode_lengths": [len(seen) // 4] * 4, **columns}


def warnings_of(report: AuditReport, what: str) -> list[str]:
    return [str(warning) for warning in report.warnings if what in warning.what]


def test_inspect_names_position_commands() -> None:
    seen, acted = servo("position")
    report = inspect(log_of(seen[:, :2], np.clip(acted, -1, 1)))
    assert report.targets == {"0": "0", "1": "1"} and "0 -> 0, 1 -> 1" in _targets(report.targets)
    assert inspect(log_of(*servo("velocity"))).targets == {}


def test_inspect_says_what_no_column_explains() -> None:
    seen, acted = servo("velocity")
    whole = inspect(log_of(seen, acted))
    assert whole.explained > 0.9 and not warnings_of(whole, "explain little")
    hidden = np.random.default_rng(1).normal(size=(len(seen), 3)).cumsum(axis=0)  # moved by what no column shows
    (warning,) = warnings_of(inspect(log_of(hidden, acted)), "explain little of what changes from row to row")
    assert "0% in all" in warning and "an object" in warning
    one = inspect(log_of(np.concatenate([seen, hidden[:, :1]], axis=1), acted))
    (warning,) = warnings_of(one, "what changes in 1 column")
    assert "6 0%" in warning


def test_a_wrap_is_no_change_that_needs_explaining() -> None:
    turn = np.arange(2000) * 0.3
    seen = np.stack([(turn + np.pi) % (2 * np.pi) - np.pi, np.sin(turn)], axis=1)
    report = inspect(log_of(seen, np.random.default_rng(0).uniform(-1, 1, (2000, 1))))
    assert not warnings_of(report, "explain little")


def test_pretrain_turns_angles_that_wrap_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    turn = np.concatenate([random.uniform(0, 6) + np.cumsum(random.uniform(0, 0.5, 60)) for _ in range(10)])
    yaw, u = (turn + np.pi) % (2 * np.pi) - np.pi, random.uniform(-1, 1, 600)
    rows = [f"{n // 60},{y},{x},{a}" for n, (y, x, a) in enumerate(zip(yaw, np.cos(turn), u, strict=True))]
    (tmp_path / "log.csv").write_text("\n".join(["run,yaw,x,u", *rows]) + "\n")
    sizes = ["dim=4", "hidden=8,8", "actor_hidden=8,8", "batch=8"]
    words = ["pretrain", "--data", str(tmp_path / "log.csv"), "--steps", "2", "--columns", "observations=yaw,x"]
    words += ["actions=u", "episode_ids=run", "--set", *sizes]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    assert "sine and cosine of yaw, an angle of period 6.28319, as it wraps" in capsys.readouterr().err
    policy = hilp.FoundationPolicy.load(tmp_path / "run")
    assert dict(policy.transform.angles) == {0: pytest.approx(2 * np.pi)}
    assert json.loads((tmp_path / "run" / "reading.json").read_text())["angles"] == "auto"
    assert main([*words, "--out", str(tmp_path / "plain"), "--angles", "none"]) == 0
    assert "are cut" not in capsys.readouterr().err, "what wraps leaps, but not by chance"
    transform = hilp.FoundationPolicy.load(tmp_path / "plain").transform
    assert transform is not None and not transform.angles, "said, so that nothing turns them later"
