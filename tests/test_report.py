"""The report: a page that reads a run's folder, from rows that anybody may have written, and runs nothing."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import storage
from hilp.cli import main
from hilp.evaluation import evaluate, rollouts, trajectories
from hilp.evaluation import rows as files
from hilp.policy.artifact import Provenance
from hilp.report import page
from hilp.storage import lines
from hilp.tasks.maze import MAZES, Maze

SECTIONS = [
    "Results",
    "Trajectories",
    "Known before acting",
    "What phi has learned",
    "Whether the actor listens",
    "Training",
    "Where this comes from",
]


def titles(page: str) -> list[str]:
    return [title for title in re.findall(r"<h2>(.*?)</h2>", page) if title != "Contents"]


def images(page: str) -> list[bytes]:
    return [base64.b64decode(data) for data in re.findall(r'src="data:image/png;base64,([^"]+)"', page)]


@pytest.fixture(scope="module")
def reported(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was evaluated twice and then reported by the command line."""
    run = Path(shutil.copytree(tiny_run, tmp_path_factory.mktemp("reported") / "run"))
    for episodes in ("3", "4"):
        words = ["--plan", "0", "auto", "--rewards", "right", "--episodes", episodes, "--json"]
        assert main(["evaluate", str(run), *words]) == 0
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert main(["report", str(run)]) == 0
    assert said.getvalue() == f"{run / 'report.html'}\n"
    return run


def test_the_report_has_every_section_and_picture(reported: Path, tiny: hilp.FoundationPolicy) -> None:
    page = (reported / "report.html").read_text()
    assert titles(page) == SECTIONS
    pictures = images(page)
    calibrated = "by a way that the data shows" in page  # where two of the goals were reached
    # goals, rewards; their trajectories; fields, scatter, latents; listening, losses
    assert len(pictures) == 9 + calibrated
    assert all(picture.startswith(b"\x89PNG") and len(picture) > 2_000 for picture in pictures)
    assert len(set(pictures)) == len(pictures)
    for text in (tiny.fingerprint, "goal, plan 0", "goal, plan auto", "reward, right", "Rank correlation"):
        assert text in page
    assert not re.search(r"(src|href)=\"(?!data:|#)", page), "one file, nothing from outside"
    assert "<script" not in page


def test_evaluating_again_replaces_what_the_report_shows(reported: Path) -> None:
    assert len(files.read_rows(reported / "rows.jsonl")) == 6
    page = (reported / "report.html").read_text()
    assert page.count("goal, plan 0") == page.count("reward, right") == 1
    assert re.search(r"goal, plan 0</td>.*?<td class=\"number\">4</td>", page), "the later one, of four episodes"


def row_of(policy: str, **changes: Any) -> dict[str, Any]:
    row = {
        "task": "maze-medium", "method": "hilp", "policy": policy, "prompt": "goal", "plan": 0, "metric": "success",
        "score": 0.5, "interval": [0.1, 0.9], "episodes": 2, "outcomes": [1.0, 0.0], "lengths": [3, 15],
        "command": "hilp evaluate", "evaluation_seed": 0, "versions": {"jax": "1"},
    }  # fmt: skip
    return {name: value for name, value in {**row, **changes}.items() if value is not ...}


def test_rows_of_another_policy_are_not_shown(tiny: hilp.FoundationPolicy, run_copy: Path) -> None:
    lines.append(run_copy / "rows.jsonl", [row_of("f" * 32)])
    (run_copy / "metrics.jsonl").unlink()
    text = page.write(run_copy, run_copy / "page.html").read_text()
    assert titles(text) == ["What phi has learned", *SECTIONS[-3::2]]


def test_each_task_has_its_own_results(tiny: hilp.FoundationPolicy, change: Any) -> None:
    rows = [row for task in ("maze-medium", "maze-large") for row in hilp.evaluate(tiny, task, plan=0, episodes=2)]
    text = page.build(change(tiny, provenance=Provenance()), rows, [], None)
    assert titles(text) == ["Results in maze-medium", "Results in maze-large", *SECTIONS[-3::2]]


def test_a_policy_outside_of_a_run_keeps_its_report(tiny: hilp.FoundationPolicy, change: Any, tmp_path: Path) -> None:
    folder = change(tiny, provenance=Provenance(data="<b>mine</b>")).save(tmp_path / "mine")
    assert page.write(folder) == folder / "report.html"
    text = (folder / "report.html").read_text()
    assert titles(text) == SECTIONS[-3::2]
    assert "&lt;b&gt;mine" in text and "<b>mine" not in text
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


# ---- it only reads ---------------------------------------------------------------------------------------------------


def test_the_report_runs_no_episode(reported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is the same with every way to act or to evaluate taken away."""
    for name in ("rollout_goals", "rollout_reward", "run_returns"):
        monkeypatch.setattr(rollouts, name, None)
    monkeypatch.setattr(evaluate, "evaluate_with_rollouts", None)
    monkeypatch.setattr(hilp.FoundationPolicy, "act", None)
    again = page.write(reported, tmp_path / "again.html")
    assert again.read_text() == (reported / "report.html").read_text()


def test_trajectories_are_those_of_the_evaluation(reported: Path, tiny: hilp.FoundationPolicy) -> None:
    kept = {entry.title: entry.rollout for entry in trajectories.read(reported / "trajectories.safetensors")}
    assert list(kept) == ["plan 0", "plan auto", "reward right"]
    rows = files.latest(files.read_rows(reported / "rows.jsonl"))
    for row, rollout in zip(rows, kept.values(), strict=True):
        assert rollout.reached.shape == (4,) and not rollout.columns
        if row["prompt"] == "goal":
            assert rollout.reached.tolist() == [bool(x) for x in row["outcomes"]]
            assert rollout.lengths.tolist() == row["lengths"]
    ((_, fresh),) = evaluate.evaluate_with_rollouts(tiny, "maze-medium", plan=0, episodes=4)
    np.testing.assert_array_equal(kept["plan 0"].goals, fresh.goals)
    np.testing.assert_array_equal(kept["plan 0"].episode(1)[0], fresh.episode(1)[0])


def test_a_page_says_how_to_get_trajectories(tiny: hilp.FoundationPolicy, run_copy: Path) -> None:
    lines.append(run_copy / "rows.jsonl", [row_of(tiny.fingerprint)])
    text = page.write(run_copy).read_text()
    assert titles(text)[:2] == ["Results", "Trajectories"]
    assert "keeps no trajectories of 1 of these prompts: evaluate them again with hilp evaluate" in text


def hall() -> Maze:
    return Maze("hall", MAZES["maze-medium"][0], max_steps=15)


def rolled(count: int = 20, width: int = 2, steps: int = 9, plan: int = 0) -> tuple[Any, rollouts.Rollout]:
    path = np.random.default_rng(plan).normal(size=(steps + 1, count, width)).astype(np.float32)
    lengths, reached = np.arange(count) % (steps + 1), np.arange(count) % 2 == 0
    return row_of("p", plan=plan, task="hall"), rollouts.Rollout(
        path, lengths, path[-1], reached, columns={"physics": path[:-1]}
    )


def test_kept_trajectories_stay_small_and_are_replaced_by_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run" / "trajectories.safetensors"
    trajectories.save(path, [rolled(plan=0), rolled(plan=1)])
    trajectories.save(path, [rolled(5, plan=0)])
    one, zero = trajectories.read(path)
    assert (one.name, len(one.rollout.lengths)) == (1, 12) and (zero.name, len(zero.rollout.lengths)) == (0, 5)
    assert zero.rollout.observations.shape[0] == 5, "no longer than the longest of them"
    row, rollout = rolled(count=14, width=10_000)  # 0.4 MB an episode
    assert 1 < len(trajectories.first_episodes(row, rollout).rollout.lengths) < 12
    row, rollout = rolled(count=3, width=100_000)
    assert len(trajectories.first_episodes(row, rollout).rollout.lengths) == 1
    monkeypatch.setattr(trajectories, "MOST_PROMPTS", 3)
    trajectories.save(path, [rolled(1, plan=plan) for plan in range(5)])
    assert [entry.name for entry in trajectories.read(path)] == [2, 3, 4]


def test_evaluations_at_the_same_time_keep_each_others_trajectories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "trajectories.safetensors", trajectories.read
    trajectories.save(path, [rolled(plan=0)])

    def slowly(path: Path) -> list[trajectories.SavedRollout]:
        found = real(path)
        time.sleep(0.2)
        return found

    monkeypatch.setattr(trajectories, "read", slowly)
    with storage.locked(tmp_path, "training"), ThreadPoolExecutor() as pool:  # training goes on meanwhile
        list(pool.map(lambda plan: trajectories.save(path, [rolled(plan=plan)]), (1, 2)))
    assert sorted(entry.name for entry in real(path)) == [0, 1, 2]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_damaged_file_of_trajectories(
    tiny: hilp.FoundationPolicy, run_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines.append(run_copy / "rows.jsonl", [row_of(tiny.fingerprint)])
    path = run_copy / "trajectories.safetensors"
    for content in (b"", b"x" * 100):
        path.write_bytes(content)
        with pytest.raises(hilp.HilpError, match=r"trajectories\.safetensors"):
            page.write(run_copy)
    row, rollout = rolled()
    odd = rollouts.Rollout(rollout.observations, rollout.lengths + 100, rollout.goals, rollout.reached)
    trajectories.save(path, [(row, odd)])
    with pytest.raises(hilp.HilpError, match="does not hold the trajectories"):
        page.write(run_copy)
    capsys.readouterr()
    trajectories.save(path, [rolled()])  # what is damaged is made anew
    assert capsys.readouterr().err == f"hilp: note: {path} is damaged: the trajectories in it are dropped\n"
    assert len(trajectories.read(path)) == 1


# ---- rows that anybody may have written ------------------------------------------------------------------------------

EVIL = "<script>alert(1)</script>$\\frac{$\ud800\x00\u202e"


ODD: list[dict[str, Any]] = [
    {"task": EVIL, "method": EVIL, "command": EVIL, "versions": {EVIL: EVIL}},
    {"prompt": "reward", "reward": EVIL, "metric": "return", "score": -1e12, "interval": [-1e12, 1e12]},
    {"prompt": "reward", "reward": EVIL, "metric": "share of the possible gain", "possible": [0.0, 0.0]},
    {"prompt": "reward", "reward": "r" * 9_000, "metric": "share of the possible gain", "possible": [-1.0, 1.0]},
    {"prompt": "reward", "reward": "up", "metric": "share of the possible gain", "outcomes": ...},
    {"prompt": "reward", "reward": "up", "metric": EVIL, "score": 1e-300},
    *(
        {"prompt": "reward", "reward": "up", "metric": "share of the possible gain", "possible": [tiny, tiny]}
        | {"outcomes": outcomes}
        for tiny, outcomes in ((1e-300, [1e12, 1e12]), (1e-300, [1e12, -1e12]), (5e-324, [1.0, 0.0]), (1e-290, [1, 1]))
    ),
    {"metric": "return", "score": 1e12, "interval": [0, 1e12], "plan": 2**62},
    {"interval": ..., "command": ..., "versions": ..., "evaluation_seed": ..., "outcomes": ..., "lengths": ...},
]


def test_a_page_of_odd_rows(tiny: hilp.FoundationPolicy, run_copy: Path) -> None:
    """Each in a task of its own, so that each has its own table and pictures; the last in the policy's task."""
    tasks = [f"task {i}" for i in range(len(ODD) - 1)] + ["maze-medium"]
    rows = [row_of(tiny.fingerprint, **{"task": task, **odd}) for task, odd in zip(tasks, ODD, strict=True)]
    lines.append(run_copy / "rows.jsonl", rows)
    (run_copy / "metrics.jsonl").write_text('{"step": 1, "phi_loss": NaN}\n{"step": 2, "phi_loss": 1e300}\n')
    assert main(["report", str(run_copy)]) == 0
    text = (run_copy / "report.html").read_bytes().decode()
    assert "<script" not in text and "\x00" not in text and len([t for t in titles(text) if "Results" in t]) == len(ODD)


def training(metrics: list[dict[str, Any]]) -> Any:
    """The section about training, where there is one."""
    return next(iter(page._training(metrics)), None)


def test_a_held_out_actor_loss_is_not_said_to_be_better_when_it_is_lower() -> None:
    told = training([{"step": 1, "actor_loss": 1.0, "validation_actor_loss": 2.0, "phi_loss": 1.0}])
    assert "lower is not better" in told.text
    assert training([{"step": 1, "actor_loss": 1.0, "validation_phi_loss": 2.0}]).text == ""


def test_a_page_of_odd_losses() -> None:
    assert training([]) is None and training([{"step": 1, "success": 0.5, "validation_phi_loss": 1.0}]) is None
    values = (1e308, -1e308, float("inf"), float("nan"), 1e-320)
    huge = training([{"step": i, "phi_loss": value} for i, value in enumerate(values)])
    assert len(huge.figures) == 1 and huge.text == ""
    many = training([{"step": 1, **{f"x{i}_loss": 1.0 for i in range(1_030)}}])
    assert len(many.figures) == 1 and "1,006 more losses" in many.text


@pytest.mark.parametrize("line", [{"evaluation_step": float("nan"), "success": 0.5}, {"success": float("nan")}])
def test_odd_metrics_are_told_before_the_first_rollout(
    run_copy: Path, line: dict[str, float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_copy / "metrics.jsonl").write_text(json.dumps({"step": 1, **line}) + "\n")
    monkeypatch.setattr(evaluate, "rollout_goals", lambda *_: pytest.fail("it rolls out"))
    assert main(["evaluate", str(run_copy), "--plan", "0", "--episodes", "2"]) == 2
    assert f"metrics.jsonl line 1: '{next(iter(line))}' must be" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "line", "says"),
    [
        ("rows.jsonl", {"score": "high"}, "rows.jsonl line 1: 'score' must be a number"),
        ("rows.jsonl", {"score": 10**400}, "rows.jsonl line 1: 'score' must be a number"),
        ("rows.jsonl", {"interval": [2, 1]}, "rows.jsonl line 1: 'interval' must be two numbers"),
        ("rows.jsonl", {"task": ...}, "rows.jsonl line 1 is not an evaluation row: it has no 'task'"),
        ("metrics.jsonl", {"step": 1, "phi_loss": {}}, "metrics.jsonl line 1: 'phi_loss' must be a number"),
    ],
)
def test_one_line_about_a_crafted_folder(
    tiny: hilp.FoundationPolicy,
    run_copy: Path,
    name: str,
    line: dict[str, Any],
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (run_copy / name).write_text(json.dumps(row_of(tiny.fingerprint, **line) if "step" not in line else line) + "\n")
    assert main(["report", str(run_copy)]) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1
    assert not (run_copy / "report.html").exists()
