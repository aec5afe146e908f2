"""Repair: episodes split at missing numbers and gaps, angles that wrap, columns that say nothing, states far away."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hilp
from hilp.cli import main
from hilp.commands.common import Reading
from hilp.data import audit, checks, convert
from hilp.data.dataset import Dataset
from hilp.data.transforms import ObservationTransform
from hilp.errors import HilpError, nearest
from hilp.evaluation import setup

COLUMNS = {"observations": ["base", "elbow", "grip"], "actions": ["u1", "u2"], "episode_ids": "run", "time": "t"}
TINY = hilp.HILP(dim=4, hidden=(16, 16), actor_hidden=(16, 16), batch=32, normalize=True)


def arm(runs: int = 12, steps: int = 80, period: float = 360.0, seed: int = 0) -> dict[str, np.ndarray]:
    """A log of an arm whose base wraps at half a period, with a gripper that nobody moves."""
    rng = np.random.default_rng(seed)
    base = np.cumsum(rng.uniform(-0.02, 0.05, (runs, steps)), axis=1) * period + rng.uniform(0, period, (runs, 1))
    log = {
        "run": np.repeat(np.arange(runs), steps),
        "t": np.tile(np.arange(steps) * 0.1, runs),
        "base": ((base + period / 2) % period - period / 2).reshape(-1),
        "elbow": np.cumsum(rng.normal(0, 0.1, (runs, steps)), axis=1).reshape(-1),
        "grip": np.full(runs * steps, 7.0),
    }
    return log | {name: rng.uniform(-1, 1, runs * steps) for name in ("u1", "u2")}


# ---- splitting -------------------------------------------------------------------------------------------------------


def test_episodes_are_split_where_numbers_are_missing() -> None:
    log = arm(runs=2, steps=10)
    log["elbow"][[3, 4]] = np.nan  # rows 3 and 4 are lost
    log["base"][8] = np.inf  # leaves row 9 alone
    log["u1"][14] = np.nan  # row 14 still is where 13 led to
    log["u2"][19] = np.nan  # the action of a last row is never used
    data = hilp.load(log, columns=COLUMNS, split="nan")
    assert data.lengths.tolist() == [3, 3, 5, 5]
    rows = [0, 1, 2, 5, 6, 7, *range(10, 15), *range(15, 20)]
    for number, name in enumerate(("base", "elbow", "grip")):
        np.testing.assert_array_equal(data.observations[:, number], log[name][rows].astype(np.float32))
    assert data.actions[10, 0] == 0.0 and data.actions[15, 1] == 0.0 and np.isfinite(data.actions).all()
    (note,) = data.notes
    assert note.startswith("split 2 episodes into 4 at 4 rows with NaN or infinities (rows 3, 4, 8, 14)")
    assert note.endswith("left out 1 piece of a single row")


def test_without_a_split_the_rows_are_named_and_the_way_out() -> None:
    log = arm(runs=2, steps=10)
    log["elbow"][[3, 14]] = np.nan
    with pytest.raises(HilpError, match=r"NaN or infinite observations in rows 3, 14: .*split='nan' / --split nan"):
        hilp.load(log, columns=COLUMNS)


def test_rows_in_messages_are_those_of_the_source_whatever_was_left_out_before() -> None:
    log = arm(runs=3, steps=10)
    log["run"][:1] = 99  # an episode of a single row comes first, and is left out
    log["base"][25] = np.nan
    with pytest.raises(HilpError, match="in rows 25:"):
        hilp.load(log, columns=COLUMNS, drop_short=True)


def test_rows_of_whole_transitions_are_those_of_the_file() -> None:
    states = np.arange(12, dtype=np.float64).reshape(6, 2)
    table = {
        "observations": states[[0, 1, 3, 4]],
        "next_observations": states[[1, 2, 4, 5]].copy(),
        "actions": np.zeros((4, 1)),
        "episode_lengths": [2, 2],
    }
    table["next_observations"][3] = np.nan  # a final state, in the row of its transition
    with pytest.raises(HilpError, match="in rows 3:"):
        hilp.load(table)


def test_episodes_are_split_at_gaps_in_time() -> None:
    log = arm(runs=2, steps=20)
    log["t"][5:20] += 3.0  # a pause after row 4
    log["t"][32:] -= 40.0  # the clock was set back after row 31
    data = hilp.load(log, columns=COLUMNS, split=("gap",))
    assert data.lengths.tolist() == [5, 15, 12, 8]
    assert "2 gaps in time (after rows 4, 31; a step is usually 0.1, in a gap more than 0.15" in data.notes[0]
    assert hilp.load(arm(), columns=COLUMNS, split="nan,gap").episodes == 12


def test_jitter_of_the_clock_is_no_gap() -> None:
    log = arm(runs=3, steps=200)
    log["t"] = log["t"] + np.random.default_rng(0).uniform(0, 0.05, len(log["t"]))
    assert hilp.load(log, columns=COLUMNS, split="gap").episodes == 3


def test_the_time_is_only_kept_when_it_is_wanted() -> None:
    log = arm() | {"load": np.zeros(960)}
    log["t"][5:] += 3.0
    assert set(hilp.load(log, columns=COLUMNS, split="gap").extras) == {"time", "load"}
    data = hilp.load(log, columns=COLUMNS, split="gap", extras=["load"])
    assert set(data.extras) == {"load"} and data.episodes == 13


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "hole"}, r"split takes nan and gap, not 'hole'"),
        ({"drop": "all"}, r"drop takes constant and duplicate"),
        ({"split": "gap", "columns": {k: v for k, v in COLUMNS.items() if k != "time"}}, "needs a time column"),
        ({"angles": "bse"}, "no observation column 'bse' to be an angle: did you mean 'base'"),
        ({"angles": "elbow"}, r"'elbow' does not wrap.*--angles elbow=360"),
        ({"angles": {"elbow": -1}}, "angles takes columns with their period"),
        ({"angles": "elbow=round"}, "angles takes columns with their period"),
    ],
)
def test_what_cannot_be_repaired_is_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HilpError, match=message):
        hilp.load(arm(), **{"columns": COLUMNS, **options})


def test_nothing_left_is_said() -> None:
    log = arm(runs=1, steps=4)
    log["base"][[0, 2]] = np.nan
    with pytest.raises(HilpError, match="nothing is left: split 1 episode into 0 at 2 rows"):
        hilp.load(log, columns=COLUMNS, split="nan")


@given(st.lists(st.lists(st.sampled_from("oanx"), min_size=1, max_size=9), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_a_split_keeps_every_usable_transition_and_no_other(episodes: list[list[str]]) -> None:
    """o: a good row; a: its action is missing; n: its observation is missing; x: time jumps after it."""
    marks = [mark for episode in episodes for mark in episode]
    ids = np.repeat(np.arange(len(episodes)), [len(episode) for episode in episodes])
    rows = np.arange(len(marks), dtype=np.float64)
    time = np.cumsum([0.0, *(50.0 if mark == "x" else 1.0 for mark in marks[:-1])])
    missing, unmoved = np.array([m == "n" for m in marks]), np.array([m == "a" for m in marks])
    log = {"x": np.where(missing, np.nan, rows), "u": np.where(unmoved, np.nan, 0.0), "run": ids, "time": time}
    # Enough ordinary steps in front that the jumps are the exception.
    ahead = {"x": np.zeros(1000), "u": np.zeros(1000), "run": np.full(1000, -1), "time": np.arange(1000.0)}
    log = {name: np.concatenate([ahead[name], log[name]]) for name in log}
    columns = {"observations": ["x"], "actions": ["u"], "episode_ids": "run"}
    data = hilp.load(log, columns=columns, split=("nan", "gap"))
    wanted = [
        (at, at + 1)
        for at in range(len(marks) - 1)
        if ids[at] == ids[at + 1] and marks[at] == "o" and marks[at + 1] != "n"
    ]
    at = data.transition_rows[data.transition_rows >= 1000]
    found = [(int(data.observations[row, 0]), int(data.observations[row + 1, 0])) for row in at]
    assert found == wanted


# ---- angles and columns ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("period", [360.0, 2 * math.pi])
def test_wrapped_angles_are_recognised(period: float) -> None:
    report = audit.inspect(arm(period=period), columns=COLUMNS)
    (warning,) = [w for w in report.warnings if "as angles that wrap" in w.what]
    assert warning.where.startswith("base: ") and "--angles base" in warning.do
    data = hilp.load(arm(period=period), columns=COLUMNS, angles="auto")
    assert data.transform == ObservationTransform(3, (0, 1, 2), ((0, period),))
    quiet = audit.inspect(arm(period=period), columns=COLUMNS, angles="base", drop="constant")
    assert not any("angles" in w.what or "never change" in w.what for w in quiet.warnings)


def test_a_wrap_is_told_once_and_a_reset_beside_it_is_still_found() -> None:
    report = audit.inspect(arm(), columns=COLUMNS)
    assert report.jumps == 0 and not any("unmarked reset" in w.what for w in report.warnings)
    log = arm(runs=4, steps=240)
    inside = 240 + 100
    log["elbow"][inside:480] += 500.0
    log["base"][inside:480] = (log["base"][inside:480] + 270.0) % 360.0 - 180.0
    report = audit.inspect(log, columns=COLUMNS)
    assert report.jumps == 1
    assert [w.where for w in report.warnings if "unmarked reset" in w.what] == [f"after rows {inside - 1}"]
    assert any("as angles that wrap" in w.what for w in report.warnings)


def test_actions_are_called_by_the_columns_of_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = arm()
    log["u2"] = np.where(log["u2"] > 0, 1.0, -1.0)
    report = audit.inspect(log, columns=COLUMNS)
    assert [column.name for column in report.actions] == ["u1", "u2"]
    assert [w.where for w in report.warnings if "smallest or largest" in w.what] == ["column u2: 100%"]
    folder = hilp.load(log, columns=COLUMNS).save(tmp_path / "arm")
    assert [column.name for column in audit.inspect(folder).actions] == ["u1", "u2"]
    together = np.stack([log.pop("u1"), log.pop("u2")], axis=1)
    report = audit.inspect({**log, "u": together}, columns={**COLUMNS, "actions": "u"})
    assert [column.name for column in report.actions] == ["u[0]", "u[1]"]


def test_convert_says_what_it_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = arm()
    log["elbow"][100] = np.nan
    np.savez(tmp_path / "arm.npz", **log)
    words = [f"{key}={name if isinstance(name, str) else ','.join(name)}" for key, name in COLUMNS.items()]
    asked = ["data", "convert", str(tmp_path / "arm.npz"), str(tmp_path / "out"), "--columns", *words]
    asked += ["--split", "nan", "--angles", "auto", "--drop", "constant"]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert "note: split 12 episodes into 13 at 1 row with NaN or infinities" in said
    assert "note: networks do not see 1 constant column: grip" in said
    assert "note: networks see the sine and cosine of base, an angle of period 360" in said
    assert main([*asked, "--overwrite", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["notes"]) == 3


FEW = ["--steps", "5", "--set", "hidden=16,16", "actor_hidden=16,16", "batch=32", "phi_discount=0.97"]


def test_other_logs_are_read_as_the_runs_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seed in (("arm.npz", 0), ("other.npz", 1)):
        np.savez(tmp_path / name, **arm(seed=seed))
    words = [f"{key}={name if isinstance(name, str) else ','.join(name)}" for key, name in COLUMNS.items()]
    run, other = str(tmp_path / "run"), str(tmp_path / "other.npz")
    assert main(["pretrain", "--data", str(tmp_path / "arm.npz"), "--out", run, "--columns", *words, *FEW]) == 0
    assert "columns" in json.loads((tmp_path / "run" / "reading.json").read_text())
    capsys.readouterr()
    for folder in (run, str(tmp_path / "run" / "policy")):
        assert main(["evaluate", folder, "--data", other, "--plan", "0", "--json"]) == 0
        said = capsys.readouterr()
        assert "is read as the run's own data: --columns observations=base,elbow,grip" in said.err
    by_flags = ["evaluate", run, "--data", other, "--plan", "0", "--json", "--columns", *words]
    assert main(by_flags) == 0
    again = capsys.readouterr()
    assert "own data" not in again.err
    assert json.loads(again.out)["held_out"] == json.loads(said.out)["held_out"]
    native = hilp.load(arm(seed=1), columns=COLUMNS).save(tmp_path / "native")
    assert main(["evaluate", run, "--data", str(native), "--plan", "0", "--json"]) == 0  # needs no columns
    assert "own data" not in capsys.readouterr().err
    (tmp_path / "run" / "reading.json").write_text("[]")
    assert main(["evaluate", run, "--data", other]) == 2
    assert "reading.json is damaged" in capsys.readouterr().err


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_what_is_no_angle_is_taken_for_none(seed: int) -> None:
    rng = np.random.default_rng(seed)
    log = arm(seed=seed)
    log["base"] = rng.choice([rng.uniform(-180, 180, 960), np.cumsum(rng.normal(0, 5, 960)), rng.normal(0, 3, 960)])
    assert hilp.load(log, columns=COLUMNS, angles="auto").transform == ObservationTransform(3, (0, 1, 2))


def test_a_view_gives_sine_and_cosine_and_leaves_out() -> None:
    transform = ObservationTransform(4, (0, 2, 3), ((2, 360.0),))
    np.testing.assert_allclose(transform(np.array([5.0, 9.0, 90.0, 7.0])), [5.0, 1.0, 0.0, 7.0], atol=1e-7)
    np.testing.assert_allclose(
        transform(np.array([[5.0, 9.0, -180.0, 7.0]])), transform(np.array([[5.0, 1.0, 180.0, 7.0]])), atol=1e-6
    )
    assert ObservationTransform.from_json(json.loads(transform.text)) == transform


def test_angles_that_shall_stay_as_they_are_stay(tmp_path):
    """Said once, when data is read; kept with it."""
    left = hilp.load(arm(), columns=COLUMNS, angles="none")
    assert checks.with_angles(left) is left and checks.with_angles(hilp.load(arm(), columns=COLUMNS)).transform.angles
    left.save(tmp_path / "kept")
    kept = hilp.load(tmp_path / "kept")
    assert checks.with_angles(kept) is kept and np.array_equal(kept.network_inputs[:5], left.observations[:5])
    pictures = {"observations": {"camera": np.zeros((20, 4, 4, 3), np.uint8)}, "actions": np.zeros((20, 1))}
    assert hilp.load({**pictures, "terminals": np.arange(20) == 19}, angles="none").transform is None


@pytest.mark.parametrize("described", [None, {}, {"width": 2, "columns": [2], "angles": []},
    {"width": 2, "columns": [0], "angles": [[1, 360]]}, {"width": 2, "columns": [1, 0], "angles": []},
    {"width": 2, "columns": [0], "angles": [[0, 0.0]]}, {"width": 2, "columns": [0.0], "angles": []},
    {"width": 2, "columns": [], "angles": []}, {"width": 2, "columns": [0], "angles": [[0, math.nan]]}])  # fmt: skip
def test_a_damaged_view_is_refused(described: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        ObservationTransform.from_json(described)


def test_constant_and_duplicated_columns_are_dropped_when_asked() -> None:
    log = arm() | {"elbow2": arm()["elbow"]}
    columns = {**COLUMNS, "observations": ["elbow", "grip", "elbow2", "base"]}
    data = hilp.load(log, columns=columns, drop=("constant", "duplicate"))
    assert data.transform == ObservationTransform(4, (0, 3)) and data.observations.shape[1] == 4
    assert data.notes == (
        "networks do not see 1 constant column: grip",
        "networks do not see 1 duplicated column: elbow2",
    )
    assert hilp.load(log, columns=columns).transform is None
    with pytest.raises(HilpError, match="every observation column is constant"):
        hilp.load(log, columns={**COLUMNS, "observations": ["grip"]}, drop="constant")


def test_repairs_go_with_the_folder(tmp_path: Path) -> None:
    data = hilp.load(arm(), columns=COLUMNS, angles="auto", drop="constant")
    folder = data.save(tmp_path / "saved")
    converted = convert.convert(arm(), tmp_path / "converted", columns=COLUMNS, angles="auto", drop="constant")
    for path in (folder, converted):
        opened = hilp.load(path)
        assert opened.transform == data.transform and opened.fingerprint == data.fingerprint
        assert isinstance(opened.observations, np.memmap)
    assert data.fingerprint != hilp.load(arm(), columns=COLUMNS).fingerprint
    more = hilp.load(folder, angles={"elbow": 7.0})  # beside what the folder has already
    assert more.transform == ObservationTransform(3, (0, 1), ((0, 360.0), (1, 7.0))) and isinstance(
        more.observations, np.memmap
    )


# ---- the policy ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data() -> Dataset:
    return hilp.load(arm(), columns=COLUMNS, angles="auto", drop="constant")


@pytest.fixture(scope="module")
def policy(data: Dataset) -> hilp.FoundationPolicy:
    return hilp.pretrain(TINY, data, steps=20)


def test_a_policy_takes_raw_observations_and_knows_what_to_do_with_them(
    policy: hilp.FoundationPolicy, data: Dataset, tmp_path: Path
) -> None:
    go = policy.goal([170.0, 0.1, 7.0])
    at_the_wrap = policy.act([180.0, 0.2, 7.0], go)
    np.testing.assert_allclose(policy.act([-180.0, 0.2, 7.0], go), at_the_wrap, atol=1e-5)
    np.testing.assert_array_equal(policy.act([180.0, 0.2, -3.0], go), at_the_wrap)  # the gripper is not seen
    named = policy.act({"base": 180.0, "elbow": 0.2, "grip": 7.0}, go)
    np.testing.assert_array_equal(named, at_the_wrap)
    assert np.abs(policy.act([90.0, 0.2, 7.0], go) - at_the_wrap).max() > 1e-4
    assert policy.spec.observation_dim == 3 and policy.bank.observations.shape[1] == 3
    again = hilp.FoundationPolicy.load(policy.save(tmp_path / "policy"))
    np.testing.assert_array_equal(again.act([180.0, 0.2, 7.0], again.goal([170.0, 0.1, 7.0])), at_the_wrap)
    assert again.fingerprint == policy.fingerprint
    reward = policy.reward(data, lambda s, a, s2: np.cos(np.radians(s2[:, 0])) - np.cos(np.radians(s[:, 0])))
    assert np.isfinite(policy.act([0.0, 0.0, 7.0], reward)).all()


def test_a_goal_is_named_by_the_columns_of_the_log(policy: hilp.FoundationPolicy) -> None:
    whole = setup.find_goal("elbow=0.1,base=170,grip=7", policy).observation
    np.testing.assert_array_equal(whole, np.array([170.0, 0.1, 7.0], np.float32))
    seen = setup.find_goal("elbow=0.1,base=170", policy).observation  # no network sees the gripper
    np.testing.assert_array_equal(seen[:2], whole[:2])
    at = [180.0, 0.2, 7.0]
    np.testing.assert_array_equal(policy.act(at, policy.goal(seen)), policy.act(at, policy.goal(whole)))
    with pytest.raises(HilpError, match="a goal of this policy also needs elbow"):
        setup.find_goal("base=170", policy)
    with pytest.raises(HilpError, match="this policy has no column 'bace': did you mean 'base'"):
        setup.find_goal("bace=170", policy)


def test_streamed_data_is_seen_the_same_way(policy: hilp.FoundationPolicy, data: Dataset) -> None:
    streamed = hilp.pretrain(TINY, data, steps=20, device_budget=0)
    observations = data.observations[:50]
    np.testing.assert_allclose(streamed.encode(observations), policy.encode(observations), rtol=1e-3, atol=1e-3)


def test_networks_see_what_the_view_says(data: Dataset) -> None:
    """Training through a transform is training on the viewed numbers."""
    viewed = hilp.load({"observations": data.transform(data.observations), "actions": data.actions,
                        "episode_lengths": data.lengths})  # fmt: skip
    one, other = hilp.pretrain(TINY, data, steps=5), hilp.pretrain(TINY, viewed, steps=5)
    observations = data.observations[:20]
    np.testing.assert_array_equal(one.encode(observations), other.encode(data.transform(observations)))


def test_states_far_outside_the_data_are_warned_of_once(data: Dataset) -> None:
    policy = hilp.pretrain(TINY, data, steps=1)
    with pytest.warns(UserWarning, match=r"this goal is far outside the data .*\(elbow is 900, the data has -"):
        go = policy.goal([0.0, 900.0, 7.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.goal([0.0, 901.0, 7.0])
        policy.act([720.0, 0.0, 99.0], go)  # an angle, and a column that nobody sees
        policy.act([[0.0, 0.0, 7.0]], go)
    with pytest.warns(UserWarning, match="this observation is far outside"):
        policy.act([0.0, -900.0, 7.0], go)


# ---- the shell -------------------------------------------------------------------------------------------------------


def test_the_shell_takes_columns_and_repairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = arm()
    log["elbow"][[30, 31]] = np.nan
    np.savez(tmp_path / "log.npz", **log)
    columns = ["--columns", "observations=base,elbow,grip", "actions=u1,u2", "episode_ids=run", "time=t"]
    path = str(tmp_path / "log.npz")
    assert main(["data", "inspect", path, *columns, "--json"]) == 1
    assert "in rows 30, 31:" in capsys.readouterr().out
    repairs = ["--split", "nan,gap", "--angles", "base", "--drop", "constant,duplicate"]
    assert main(["data", "inspect", path, *columns, *repairs, "--json"]) == 0
    assert any("split 12 episodes into 13" in note for note in json.loads(capsys.readouterr().out)["notes"])
    assert main(["pretrain", "--data", path, *columns, *repairs, "--out", str(tmp_path / "run"), *FEW]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--data", "held-out", "--json"]) == 0  # held out with its repairs
    policy = hilp.FoundationPolicy.load(tmp_path / "run")
    assert policy.preparation.transform == ObservationTransform(3, (0, 1), ((0, 360.0),))


def test_flags_of_reading_are_told_as_they_were_typed() -> None:
    reading = Reading(columns=("observations=base,elbow", "time=t"), split="nan,gap", rescale_actions=True)
    assert " ".join(reading.words()) == ("--columns observations=base,elbow time=t --split nan,gap --rescale-actions")
    assert reading.options() == {"columns": {"observations": ["base", "elbow"], "time": "t"}, "split": "nan,gap"}


def test_convert_warns_of_what_training_will_refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = arm()
    log["u2"] *= 30
    np.savez(tmp_path / "log.npz", **log)
    command = ["data", "convert", str(tmp_path / "log.npz"), str(tmp_path / "out"), "--columns",
               "observations=base,elbow", "actions=u1,u2", "episode_ids=run"]  # fmt: skip
    assert main(command) == 0
    said = capsys.readouterr().err
    assert "log.npz: training will refuse this data: actions leave [-1, 1] (column 1 spans" in said
    assert "--rescale-actions" in said and said.startswith("hilp: warning: ") and said.count("\n") == 1
    assert main([*command, "--rescale-actions", "--overwrite"]) == 0
    assert capsys.readouterr().err == ""


def test_lists_of_names_are_short() -> None:
    assert nearest("zzz", [f"column{n:03}" for n in range(400)]).endswith("column009 and 390 more")
    with pytest.raises(HilpError) as error:
        hilp.load({f"sensor{n}": np.zeros(3) for n in range(400)})
    assert "and 390 more" in str(error.value) and len(str(error.value)) < 300
