"""Logs as people keep them: CSV by pandas, Parquet by pyarrow, HDF5 with a group an episode, LeRobot's folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hilp
from hilp.cli import main
from hilp.data import audit, columns, convert, parquet, subprocess_reader
from hilp.errors import HilpError

COLUMNS = {"observations": ["x", "y"], "actions": ["u"], "episode_ids": "run", "time": "t"}
LENGTHS = [7, 12, 5]


def frame(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = sum(LENGTHS)
    return pd.DataFrame(
        {
            "run": np.repeat(["a", "b, or c", 'the "last"'], LENGTHS),
            "t": np.concatenate([np.arange(n) * 0.1 for n in LENGTHS]),
            "x": rng.normal(size=rows),
            "y": rng.normal(size=rows) * 1e-7,
            "u": rng.uniform(-1, 1, rows),
            "load": rng.integers(0, 9, rows),
            "note": ["fine"] * rows,
        }
    )


def same(data: hilp.Dataset, log: pd.DataFrame, lengths: list[int] = LENGTHS) -> None:
    """Every number is the one that was written."""
    np.testing.assert_array_equal(data.observations, log[["x", "y"]].to_numpy(np.float32))
    np.testing.assert_array_equal(data.actions, log[["u"]].to_numpy(np.float32))
    np.testing.assert_array_equal(data.extras["time"], log["t"])
    np.testing.assert_array_equal(data.extras["load"], log["load"])
    assert data.lengths.tolist() == lengths and "note" not in data.extras
    assert [name for name, _ in data.observation_parts] == ["x", "y"]


WRITERS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "plain.csv": lambda log, path: log.to_csv(path, index=False),
    "numbered.csv": lambda log, path: log.to_csv(path),  # with a column of row numbers that has no name
    "semicolons.csv": lambda log, path: log.to_csv(path, index=False, sep=";"),
    "quoted.csv": lambda log, path: log.to_csv(
        path, index=False, quoting=1, lineterminator="\r\n", encoding="utf-8-sig"
    ),
    "tabs.log": lambda log, path: log.to_csv(path, index=False, sep="\t"),
    "plain.parquet": lambda log, path: log.to_parquet(path),
    "groups.pq": lambda log, path: pq.write_table(pa.Table.from_pandas(log), path, row_group_size=5),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_log_is_read_back_exactly(name: str, tmp_path: Path) -> None:
    WRITERS[name](frame(), tmp_path / name)
    data = hilp.load(tmp_path / name, columns=COLUMNS)
    same(data, frame())
    assert data.format == ("csv" if name.endswith((".csv", ".log")) else "parquet")
    assert (
        hilp.load(convert.convert(tmp_path / name, tmp_path / "out", columns=COLUMNS)).fingerprint == data.fingerprint
    )


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_of_a_folder_is_an_episode_where_nothing_names_them(ending: str, tmp_path: Path) -> None:
    log = frame()
    for number, (_, rows) in enumerate(log.groupby("run", sort=False)):
        WRITERS[f"plain.{ending}"](rows.drop(columns="run"), tmp_path / f"run_{2 + 4 * number}.{ending}")  # 2, 6, 10
    data = hilp.load(tmp_path, columns={k: v for k, v in COLUMNS.items() if k != "episode_ids"})
    same(data, log)
    assert "nothing names episodes, so each file is one" in data.notes


def test_names_of_episodes_may_return_in_the_next_file(tmp_path: Path) -> None:
    for number in range(2):
        frame(number).to_csv(tmp_path / f"day{number}.csv", index=False)
    same(hilp.load(tmp_path, columns=COLUMNS), pd.concat([frame(0), frame(1)]), LENGTHS * 2)


def test_one_file_without_episodes_is_one(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "log.csv", index=False)
    data = hilp.load(tmp_path / "log.csv", columns={"observations": ["x"], "actions": ["u"]})
    assert data.lengths.tolist() == [24] and "nothing names episodes, so the file is one" in data.notes


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_missing_values_are_nan_and_named_by_their_place(ending: str, tmp_path: Path) -> None:
    log = frame()
    log.loc[[9, 10], "x"] = np.nan
    path = tmp_path / f"log.{ending}"
    WRITERS[f"plain.{ending}"](log, path)
    where = "lines 11, 12" if ending == "csv" else "rows 9, 10"  # line 1 names the columns
    with pytest.raises(HilpError, match=rf"log.{ending}: NaN or infinite observations in {where}: .*--split nan"):
        hilp.load(path, columns=COLUMNS)
    data = hilp.load(path, columns=COLUMNS, split="nan")
    assert data.lengths.tolist() == [7, 2, 8, 5] and f"2 rows with NaN or infinities ({where})" in data.notes[-1]


def test_a_place_in_a_folder_names_its_file(tmp_path: Path) -> None:
    for number in range(3):
        log = frame(number)
        log.loc[3, "u"] = np.inf if number == 1 else 0.0
        log.to_csv(tmp_path / f"log{number}.csv", index=False)
    with pytest.raises(HilpError, match=r"infinite actions in lines 5 of log1.csv:"):
        hilp.load(tmp_path, columns=COLUMNS)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_times_may_be_dates(ending: str, tmp_path: Path) -> None:
    log = frame()
    log["t"] = pd.Timestamp("2026-03-01T12:00:00") + pd.to_timedelta(log["t"], unit="s")
    WRITERS[f"plain.{ending}"](log, tmp_path / f"log.{ending}")
    data = hilp.load(tmp_path / f"log.{ending}", columns=COLUMNS, split="gap")
    np.testing.assert_allclose(np.diff(data.extras["time"][:7]), 0.1, atol=1e-6)
    assert data.lengths.tolist() == LENGTHS


TEXT = "run,x,u\n1,0.5,0\n1,0.25,0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run,x,u\n1,0.5,0\n1,0.5\n", r"log.csv, line 3: 2 fields, but line 1 names 3"),
        ("run,x,u\n1,0.5,0\n\n1,half,0\n", r"log.csv, line 4: column 'x' holds 'half', which is not a number"),
        ("run;x;u\n1;0,5;0\n1;0,5;0\n", r"line 2: column 'x' holds '0,5', which is not a number: write decimal points"),
        ("1,0.5,0\n1,0.25,0\n", r"line 1: the columns have no names, only numbers"),
        ("run,x,x,u\n1,0,0,0\n", r"line 1: two columns are called 'x'"),
        ("run,x,u\n1,0.5,0\n,0.5,0\n", r"line 3: 'run' does not say which episode"),
        ("run,x,u\n1,0.5,0\n2,0.5,0\n1,0.5,0\n", r"log.csv: the rows of episode '1' are not together"),
        ('run,x,u\n1,"0.5,0\n1,2,3\n', r"log.csv, line \d: .*: repair this line"),
        ("run,x,v\n1,0.5,0\n1,0.5,0\n", r"log.csv: there is no array 'u' for actions"),
        ("run,x,u\n", r"there are no episodes|no rows"),
        ("\n\n", r"not a file hilp can read"),
        (TEXT.replace("0.25", "0.2\0"), r"log.csv"),
    ],
)  # fmt: skip
def test_a_fault_in_a_csv_file_is_one_line_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(HilpError, match=message) as error:
        hilp.load(tmp_path / "log.csv", columns={"observations": ["x"], "actions": ["u"], "episode_ids": "run"})
    assert "\n" not in str(error.value)


def test_what_is_not_utf8_is_said(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes("größe,u\n1,2\n".encode("latin-1"))
    with pytest.raises(HilpError, match="not written in UTF-8"):
        hilp.load(tmp_path / "log.csv", format="csv", columns={"observations": ["x"], "actions": ["u"]})


def test_without_columns_the_way_is_shown(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(HilpError, match=r"among: load, t, u, x, y .*columns=.* / --columns observations="):
        hilp.load(tmp_path / "log.csv")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_of_words_is_offered_for_episodes(kind: str, tmp_path: Path) -> None:
    log = frame().assign(trial="a")
    path = tmp_path / f"log.{kind}"
    log.to_csv(path, index=False) if kind == "csv" else log.to_parquet(path)
    with pytest.raises(HilpError, match="there is no array 'trail' for episode_ids: did you mean 'trial'"):
        hilp.load(path, columns={**COLUMNS, "episode_ids": "trail"})
    with pytest.raises(HilpError, match=r"there is no array 'trail' for actions: (?!.*'trial')"):
        hilp.load(path, columns={**COLUMNS, "actions": "trail"})


def test_files_of_a_folder_must_agree(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "a.csv", index=False)
    frame().drop(columns="y").to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(HilpError, match=r"b.csv: there is no array 'y' for observations"):
        hilp.load(tmp_path, columns=COLUMNS)


numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(
    rows=st.lists(st.tuples(st.sampled_from(["run 1", 'a"b', "c,d", "ü"]), numbers, numbers), min_size=2, max_size=30)
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_pandas_writes_is_what_is_read(rows: list[tuple[str, float, float]], tmp_path: Path) -> None:
    log = pd.DataFrame(sorted(rows, key=lambda row: row[0]), columns=["run", "x", "u"])
    log.to_csv(tmp_path / "log.csv", index=False)
    log.to_parquet(tmp_path / "log.parquet")
    columns = {"observations": ["x"], "actions": ["u"], "episode_ids": "run"}
    for path in (tmp_path / "log.csv", tmp_path / "log.parquet"):
        report = audit.inspect(path, columns=columns, rescale_actions=True)
        counts = log.groupby("run", sort=False).size()
        assert report.episodes == len(counts) and report.lengths["longest"] == counts.max()
        source = hilp.data.load.open_source(path, columns=columns)
        block = source.read(0, source.rows)
        np.testing.assert_array_equal(block["observations"][:, 0], log["x"].to_numpy(np.float32))
        np.testing.assert_array_equal(block["actions"][:, 0], log["u"].to_numpy(np.float32))


def test_large_files_need_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "IN_MEMORY", 1000)
    monkeypatch.setattr(hilp.data.formats.logs, "CHUNK", 5)
    for ending in ("csv", "parquet"):
        WRITERS[f"plain.{ending}"](frame(), tmp_path / f"log.{ending}")
        same(hilp.load(tmp_path / f"log.{ending}", columns=COLUMNS), frame())


def test_batches_of_a_parquet_file_fit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BATCH", 4)
    log = frame()
    pq.write_table(pa.Table.from_pandas(log), tmp_path / "log.parquet", row_group_size=5)
    file = parquet.Parquet(str(tmp_path / "log.parquet"), "run")
    for start, stop in [(0, 3), (2, 9), (9, 17), (1, 4), (0, 24), (20, 24), (5, 5)]:
        for name in ("x", "run", "load"):
            np.testing.assert_array_equal(file.columns[name][start:stop], log[name].to_numpy()[start:stop])


# ---- HDF5 with a group an episode ------------------------------------------------------------------------------------


def robomimic(path: Path, final: bool = True) -> dict[str, list[np.ndarray]]:
    """A file as robomimic writes it; what is in it."""
    rng = np.random.default_rng(0)
    told: dict[str, list[np.ndarray]] = {"states": [], "actions": []}
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"], data.attrs["env_args"] = sum(LENGTHS), json.dumps({"env_name": "Lift"})
        for number, steps in enumerate(LENGTHS * 4):  # demo_10 comes after demo_9
            demo = data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = steps
            eef, grip = rng.normal(size=(steps + 1, 3)), rng.normal(size=(steps + 1, 2))
            demo["actions"] = actions = rng.uniform(-1, 1, (steps, 4))
            demo["states"], demo["rewards"] = rng.normal(size=(steps, 9)), np.zeros(steps)
            for group, rows in (("obs", slice(None, -1)), ("next_obs", slice(1, None)))[: 1 + final]:
                demo[f"{group}/robot0_eef_pos"], demo[f"{group}/robot0_gripper_qpos"] = eef[rows], grip[rows]
                demo[f"{group}/agentview_image"] = np.zeros((steps, 8, 8, 3), np.uint8)
            told["states"].append(np.concatenate([eef, grip], axis=1)[: steps + final])
            told["actions"].append(actions)
        file["mask/train"] = np.array([b"demo_0", b"demo_2"])
    return told


def test_robomimic_files_are_read_back_exactly(tmp_path: Path) -> None:
    told = robomimic(tmp_path / "lift.hdf5")
    data = hilp.load(tmp_path / "lift.hdf5")
    assert data.format == "groups" and data.lengths.tolist() == [steps + 1 for steps in LENGTHS * 4]
    np.testing.assert_array_equal(data.observations, np.concatenate(told["states"]).astype(np.float32))
    acted = data.actions[data.transition_rows]
    np.testing.assert_array_equal(acted, np.concatenate(told["actions"]).astype(np.float32))
    assert data.observation_parts == (("robot0_eef_pos", (3,)), ("robot0_gripper_qpos", (2,)))
    assert "images are left out: agentview_image" in data.notes
    assert set(data.extras) == {"states", "rewards"}


def test_parts_of_the_observation_are_chosen_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = robomimic(tmp_path / "lift.hdf5", final=False)
    path = str(tmp_path / "lift.hdf5")
    data = hilp.load(path, columns={"observations": ["robot0_gripper_qpos"]})
    assert data.lengths.tolist() == LENGTHS * 4
    np.testing.assert_array_equal(data.observations, np.concatenate(told["states"])[:, 3:].astype(np.float32))
    with pytest.raises(HilpError, match=r"demo_0: there is no array 'robot0_ef_pos' .*did you mean 'robot0_eef_pos'"):
        hilp.load(path, columns={"observations": ["robot0_ef_pos"]})
    seen = hilp.load(path, columns={"observations": ["agentview_image", "robot0_eef_pos"]})
    assert {name: part.shape[1:] for name, part in seen.observations.items()} == {
        "agentview_image": (8, 8, 3),
        "robot0_eef_pos": (3,),
    }
    assert not seen.observation_parts
    assert main(["data", "inspect", path, "--columns", "observations=robot0_eef_pos", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["observation_dim"] == 3


def test_faults_in_a_group_name_it(tmp_path: Path) -> None:
    robomimic(tmp_path / "lift.hdf5", final=False)
    with h5py.File(tmp_path / "lift.hdf5", "a") as file:
        file["data/demo_10/obs/robot0_eef_pos"][2] = np.nan
    with pytest.raises(HilpError, match="in rows 2 of demo_10:"):
        hilp.load(tmp_path / "lift.hdf5")
    subprocess_reader.let_go()  # the process that reads HDF5 keeps the file open
    with h5py.File(tmp_path / "lift.hdf5", "a") as file:
        del file["data/demo_4/actions"]
        file["data/demo_4/actions"] = np.zeros((3, 4))
    with pytest.raises(HilpError, match=r"demo_4: 12 observations but 3 actions"):
        hilp.load(tmp_path / "lift.hdf5")


@pytest.mark.parametrize("where", ["data/demo_3", "data/demo_3/obs/robot0_eef_pos"])
def test_links_to_other_files_are_refused(where: str, tmp_path: Path) -> None:
    robomimic(tmp_path / "lift.hdf5")
    robomimic(tmp_path / "secret.hdf5")
    with h5py.File(tmp_path / "lift.hdf5", "a") as file:
        del file[where]
        file[where] = h5py.ExternalLink("secret.hdf5", where)
    with pytest.raises(HilpError, match="is a link or lies in other files"):
        hilp.load(tmp_path / "lift.hdf5")


# ---- LeRobot ---------------------------------------------------------------------------------------------------------


def lerobot(folder: Path, version: str) -> pd.DataFrame:
    """A folder as LeRobot lays it out, written with pyarrow; its rows."""
    rng = np.random.default_rng(1)
    rows, steps = sum(LENGTHS), np.concatenate([np.arange(n) for n in LENGTHS])
    vectors = pa.list_(pa.float32()) if version < "v3" else pa.list_(pa.float32(), 6)
    state, action = rng.normal(size=(rows, 6)).astype(np.float32), rng.uniform(-1, 1, (rows, 6)).astype(np.float32)
    table = pa.table(
        {
            "observation.state": pa.array(list(state), vectors),
            "action": pa.array(list(action), vectors),
            "timestamp": pa.array((steps / 30).astype(np.float32)),
            "frame_index": pa.array(steps),
            "episode_index": pa.array(np.repeat(np.arange(3), LENGTHS)),
            "index": pa.array(np.arange(rows)),
            "task_index": pa.array(np.zeros(rows, np.int64)),
            "next.reward": pa.array(rng.normal(size=rows).astype(np.float32)),
        }
    )
    (folder / "data" / "chunk-000").mkdir(parents=True)
    (folder / "meta").mkdir()
    starts = np.cumsum([0, *LENGTHS])
    if version < "v3":
        for number, steps_of in enumerate(LENGTHS):
            piece = table.slice(starts[number], steps_of)
            pq.write_table(piece, folder / "data" / "chunk-000" / f"episode_{number:06d}.parquet")
        lines = [{"episode_index": n, "tasks": ["push"], "length": steps_of} for n, steps_of in enumerate(LENGTHS)]
        (folder / "meta" / "episodes.jsonl").write_text("\n".join(map(json.dumps, lines)))
    else:
        pq.write_table(table.slice(0, starts[2]), folder / "data" / "chunk-000" / "file-000.parquet")
        pq.write_table(table.slice(starts[2]), folder / "data" / "chunk-000" / "file-001.parquet")
        (folder / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
        episodes = pa.table({"episode_index": [0, 1, 2], "length": LENGTHS, "data/file_index": [0, 0, 1]})
        pq.write_table(episodes, folder / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    vector = {"dtype": "float32", "shape": [6], "names": [f"joint_{n}" for n in range(6)]}
    video = {"dtype": "video", "shape": [480, 640, 3], "names": ["height", "width", "channels"]}
    number = {"dtype": "int64", "shape": [1], "names": None}
    features = {"observation.state": vector, "action": vector, "observation.images.top": video,
                **dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), number)}  # fmt: skip
    info = {"codebase_version": version, "robot_type": "so100", "fps": 30, "total_episodes": 3, "total_frames": rows,
            "chunks_size": 1000, "splits": {"train": "0:3"}, "features": features}  # fmt: skip
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    return pd.DataFrame({"state": list(state), "action": list(action), "reward": table["next.reward"].to_numpy()})


@pytest.mark.parametrize("version", ["v2.0", "v2.1", "v3.0"])
def test_lerobot_folders_are_read_back_exactly(version: str, tmp_path: Path) -> None:
    told = lerobot(tmp_path / "so100", version)
    data = hilp.load(tmp_path / "so100")
    assert data.format == "lerobot" and data.lengths.tolist() == LENGTHS
    np.testing.assert_array_equal(data.observations, np.stack(told["state"]))
    np.testing.assert_array_equal(data.actions, np.stack(told["action"]))
    np.testing.assert_array_equal(data.extras["next.reward"], told["reward"])
    np.testing.assert_allclose(data.extras["time"][:7], np.arange(7) / 30, rtol=1e-6)
    assert set(data.extras) == {"time", "next.reward"} and data.observation_parts == (("observation.state", (6,)),)
    assert "videos and images are left out: observation.images.top" in data.notes


def test_an_empty_list_of_lerobot_columns_means_the_usual_ones(tmp_path: Path) -> None:
    lerobot(tmp_path / "so100", "v2.1")
    data = hilp.load(tmp_path / "so100", columns={"observations": [], "actions": (), "time": []})
    assert data.fingerprint == hilp.load(tmp_path / "so100").fingerprint and "time" in data.extras
    with pytest.raises(HilpError, match="must name an array, or a list of arrays, for speed"):
        hilp.load(tmp_path / "so100", columns={"speed": []})


def test_faults_in_a_lerobot_folder_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "so100"
    lerobot(folder, "v2.1")
    with pytest.raises(HilpError, match=r"no feature 'state' for observations: name one of observation.state, action"):
        hilp.load(folder, columns={"observations": ["state"]})
    with pytest.raises(HilpError, match=r"'observation.images.top' is a video, which hilp does not read"):
        hilp.load(folder, columns={"observations": ["observation.images.top"]})
    (folder / "data" / "chunk-000" / "episode_000001.parquet").unlink()
    with pytest.raises(HilpError, match=r"says 3 episodes, but the files hold 2: download it again"):
        hilp.load(folder)
    info = json.loads((folder / "meta" / "info.json").read_text())
    (folder / "meta" / "info.json").write_text(json.dumps(info | {"codebase_version": "v1.6"}))
    with pytest.raises(HilpError, match=r"of version 'v1.6': hilp reads v2 and v3"):
        hilp.load(folder)


def test_vectors_of_different_lengths_are_told(tmp_path: Path) -> None:
    table = pa.table({"s": pa.array([[1.0, 2.0], [3.0]]), "u": [0.0, 0.0]})
    pq.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(HilpError, match=r"log.parquet cannot be read: the rows of 's' are not all of 2 numbers"):
        hilp.load(tmp_path / "log.parquet", columns={"observations": "s", "actions": ["u"]})


# ---- the shell, an installation without pyarrow, and damage ----------------------------------------------------------


def test_a_csv_log_from_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame().to_csv(tmp_path / "log.csv", index=False)
    columns = ["--columns", "observations=x,y", "actions=u", "episode_ids=run", "time=t"]
    assert main(["data", "inspect", str(tmp_path / "log.csv"), *columns, "--split", "nan,gap"]) == 0
    assert "can be trained on" in capsys.readouterr().out
    assert main(["data", "convert", str(tmp_path / "log.csv"), str(tmp_path / "out"), *columns]) == 0
    same(hilp.load(tmp_path / "out"), frame())
    assert main(["data", "inspect", str(tmp_path / "log.csv"), "--columns", "observations=z", "actions=u"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_csv_needs_no_other_library(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "log.csv", index=False)
    frame().to_parquet(tmp_path / "log.parquet")
    script = (
        "import sys; sys.modules |= dict.fromkeys(('pandas', 'h5py'))\n"
        "import hilp\n"
        f"print(hilp.load('log.csv', columns={COLUMNS!r}).rows)\n"
        f"hilp.load('log.parquet', columns={COLUMNS!r})"
    )
    (tmp_path / "pyarrow.py").write_text("raise ImportError(name='pyarrow')")  # as where it is not installed
    known = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=known, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == "24"
    assert done.stderr.strip().splitlines()[-1].endswith("needs pyarrow: pip install 'hilp[formats]'")


@pytest.mark.parametrize("name", ["plain.csv", "groups.pq"])
@given(at=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255), cut=st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_is_read_or_told_in_one_line(name: str, at: float, byte: int, cut: bool, tmp_path: Path) -> None:
    WRITERS[name](frame(), tmp_path / name)
    content = bytearray((tmp_path / name).read_bytes())
    place = int(at * len(content))
    content[place] = byte
    (tmp_path / name).write_bytes(content[:place] if cut else content)
    said = str(tmp_path)
    try:
        hilp.load(tmp_path / name, columns=COLUMNS)
    except HilpError as error:
        said = str(error)
    assert "\n" not in said and str(tmp_path) in said


def test_columns_by_pattern(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{n // 5},{n % 5},{n},{n + 0.5},{n + 0.25},0.1,0.2,0.3,7" for n in range(10)]
    path.write_text("\n".join(["run,t,q_x,q_y,yaw,u_x,u_y,q*,load", *rows]) + "\n")
    ids = {"episode_ids": "run", "time": "t"}
    found = hilp.load(path, columns={"observations": ["yaw", "q_*"], "actions": ["u_*"], **ids})
    assert found.observations[1].tolist() == [1.25, 1.0, 1.5] and found.action_dim == 2
    assert [name for name, _ in found.observation_parts] == ["yaw", "q_x", "q_y"]
    rest = hilp.load(path, columns={"observations": "*", "actions": ["u_*"], **ids})
    assert [name for name, _ in rest.observation_parts] == ["q_x", "q_y", "yaw", "q*", "load"]
    exact = hilp.load(path, columns={"observations": ["q*"], "actions": ["u_x"], **ids})
    assert exact.observation_dim == 1, "a column that is called so is meant"
    with pytest.raises(HilpError, match=r"no array 'z_\*' for observations"):
        hilp.load(path, columns={"observations": ["z_*"], "actions": ["u_*"], **ids})


def test_one_column_of_a_log_may_be_named_without_a_list(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "log.csv", index=False)
    named = {"observations": "x", "actions": "u", "episode_ids": "run"}
    one = hilp.load(tmp_path / "log.csv", columns=named)
    listed = hilp.load(tmp_path / "log.csv", columns={**named, "observations": ["x"], "actions": ["u"]})
    assert one.observations.shape == (sum(LENGTHS), 1) == one.actions.shape
    np.testing.assert_array_equal(one.observations, listed.observations)
    assert one.observation_parts == listed.observation_parts


@pytest.mark.parametrize(("wrong", "right"), [("episode_id", "episode_ids"), ("observation", "observations")])
def test_a_slip_in_what_columns_are_is_told(tmp_path: Path, wrong: str, right: str) -> None:
    frame().assign(run=np.repeat([0, 1, 2], LENGTHS)).to_csv(tmp_path / "log.csv", index=False)
    named = {"observations": ["x"], "actions": ["u"], "episode_ids": "run"}
    named[wrong] = named.pop(right)
    with pytest.raises(HilpError, match=f"names '{wrong}', which means nothing: did you mean '{right}'"):
        hilp.load(tmp_path / "log.csv", columns=named)
    named["cargo"] = "load"  # any other name is a column of one's own
    named[right] = named.pop(wrong)
    assert "cargo" in hilp.load(tmp_path / "log.csv", columns=named).extras
