"""What would be read wrongly without a word, and what would take for ever: one line about each instead."""

from __future__ import annotations

import collections
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hilp
from data_samples import LENGTHS, walk
from hilp.data.audit import inspect
from hilp.data.convert import convert
from hilp.data.dataset import Dataset
from hilp.data.source import gather, of_dataset
from hilp.errors import HilpError

ROWS = sum(LENGTHS)
LOG = {"observations": ["x"], "actions": ["u"], "episode_ids": "run"}


def table(ids: Any, **columns: Any) -> pa.Table:
    return pa.table({"run": ids, "x": np.arange(len(ids), dtype=float), "u": np.zeros(len(ids)), **columns})


# ---- Parquet ---------------------------------------------------------------------------------------------------------


def ragged(sizes: list[int]) -> pa.Array:
    numbers = iter(range(sum(sizes)))
    return pa.array([[float(next(numbers)) for _ in range(size)] for size in sizes])


@pytest.mark.parametrize("sizes", [[2, 1, 3, 2], [2, 2, 3, 1], [2, 0, 4, 2]])
def test_ragged_vectors_whose_numbers_add_up_are_refused(sizes: list[int], tmp_path: Path) -> None:
    pq.write_table(pa.table({"s": ragged(sizes), "u": [0.0] * 4}), tmp_path / "log.parquet")
    with pytest.raises(HilpError, match=r"the rows of 's' are not all of 2 numbers"):
        hilp.load(tmp_path / "log.parquet", columns={"observations": "s", "actions": ["u"]})


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize(
    ("low", "kind"), [(2**53, pa.int64()), (-(2**62), pa.int64()), (2**63 - 2, pa.uint64()), (2**64 - 8, pa.uint64())]
)
def test_large_ids_stay_apart(low: int, kind: Any, statistics: bool, tmp_path: Path) -> None:
    ids = pa.array([low + n for n in range(4) for _ in range(5)], kind)
    pq.write_table(table(ids, big=ids), tmp_path / "log.parquet", write_statistics=statistics)
    data = hilp.load(tmp_path / "log.parquet", columns=LOG)
    assert data.lengths.tolist() == [5] * 4
    if statistics:
        assert [int(number) for number in data.extras["big"]] == ids.to_pylist()
    assert np.sign(np.float64(data.extras["big"][0])) == np.sign(low)


def test_ids_that_are_missing_are_refused(tmp_path: Path) -> None:
    pq.write_table(table(pa.array([1, 1, None, 2, 2])), tmp_path / "log.parquet", write_statistics=False)
    with pytest.raises(HilpError, match="'run' has no number in 1 rows"):
        hilp.load(tmp_path / "log.parquet", columns=LOG)


@pytest.mark.parametrize("kind", ["parquet", "csv", "arrays"])
def test_names_that_numpy_would_cut_are_refused(kind: str, tmp_path: Path) -> None:
    ids, path = ["a"] * 3 + ["a\0"] * 3, tmp_path / f"log.{kind}"
    if kind == "arrays":
        source: Any = {"observations": np.zeros((6, 1)), "actions": np.zeros((6, 1)), "episode_ids": ids}
    elif kind == "parquet":
        pq.write_table(table(ids), path)
    else:
        path.write_text("run,x,u\n" + "".join(f"{word},{n},0\n" for n, word in enumerate(ids)))
    with pytest.raises(HilpError, match="null character"):
        hilp.load(source) if kind == "arrays" else hilp.load(path, columns=LOG)


def test_lists_of_whole_numbers_are_not_rounded() -> None:
    ids = [2**63] * 3 + [2**63 + 1] * 3 + [-1] * 3  # no type of numpy's but float64 holds all of these
    with pytest.raises(HilpError, match="episode_ids are whole numbers that do not fit in one type of 64 bits"):
        hilp.load({"observations": np.zeros((9, 1)), "actions": np.zeros((9, 1)), "episode_ids": ids})


# ---- LeRobot ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [[3], [2, 2], [], False, "2", [2.0], [-2], {}])
def test_a_shape_that_is_false_is_refused(shape: Any, tmp_path: Path) -> None:
    rows = {"observation.state": ragged([2] * 6), "action": ragged([2] * 6), "episode_index": [0] * 3 + [1] * 3}
    (tmp_path / "data" / "chunk-000").mkdir(parents=True)
    (tmp_path / "meta").mkdir()
    pq.write_table(pa.table({**rows, "timestamp": np.arange(6.0)}), tmp_path / "data" / "chunk-000" / "a.parquet")
    features = {name: {"dtype": "float32", "shape": [2]} for name in ("observation.state", "action")}

    def load() -> hilp.Dataset:
        info = {"codebase_version": "v2.1", "features": features}
        (tmp_path / "meta" / "info.json").write_text(json.dumps(info))
        return hilp.load(tmp_path, rescale_actions=True)

    assert load().observations.shape == (6, 2)
    features["observation.state"]["shape"] = shape
    with pytest.raises(
        HilpError, match=r"says that 'observation.state' has the shape .*, but its rows are of 2 numbers"
    ):
        load()


# ---- CSV -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["3_9", "1_000.5", "1e1_0"])
def test_underscores_are_no_part_of_a_number(text: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(f"x,u\n1,0\n{text},0\n3,0\n")
    with pytest.raises(HilpError, match=f"line 3: column 'x' holds '{text}', which is not a number"):
        hilp.load(tmp_path / "log.csv", columns={"observations": ["x"], "actions": ["u"]})


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (["0", "0.1", "2024-01-01T00:00:01"], "has dates without a time zone in line 4 and in line 2 numbers"),
        (["", "2024-01-01T00:00:00", "3"], "has numbers in line 4 and in line 3 dates without a time zone"),
        (
            ["2024-01-01T00:00:00Z", "2024-01-01T00:00:01", ""],
            "without a time zone in line 3 and in line 2 dates with a",
        ),
    ],
)
def test_times_of_two_clocks_are_refused(times: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("t,x,u\n" + "".join(f"{text},1,0\n" for text in times))
    with pytest.raises(HilpError, match=message):
        hilp.load(tmp_path / "log.csv", columns={"observations": ["x"], "actions": ["u"], "time": "t"})


# ---- arrays ----------------------------------------------------------------------------------------------------------

MASKED = np.ma.masked_greater(walk()["observations"], 100.0)


def test_masked_rows_of_any_sequence_are_refused() -> None:
    with pytest.raises(HilpError, match="observations are a masked array"):
        hilp.load({**walk(), "observations": collections.deque(MASKED)})


@pytest.mark.parametrize("what", ["observations", "extra"])
@pytest.mark.parametrize("array", [MASKED, MASKED.data.astype("datetime64[s]")], ids=["masked", "dates"])
def test_a_data_set_built_by_hand_is_refused_everywhere(array: np.ndarray, what: str, tmp_path: Path) -> None:
    arrays = walk()
    seen, extras = (array, {}) if what == "observations" else (arrays["observations"], {"camera": array})
    data = Dataset(seen, arrays["actions"], arrays["episode_lengths"], extras)
    uses = (hilp.load, inspect, lambda one: hilp.load(one, episodes=2), lambda one: one.save(tmp_path / "saved"))
    for use in (*uses, lambda one: convert(one, tmp_path / "converted")):
        with pytest.raises(HilpError, match=r"a masked array|hilp needs plain numbers"):
            use(data)
    assert not list(tmp_path.iterdir())


# ---- what would take for ever ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["log.csv", "logs/log.csv", "a.npz", "a.hdf5", "exorl/buffer/a.npz", "so/meta/info.json"]
)
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "so" / "data").mkdir(parents=True)
    os.mkfifo(path)
    for source in {path, tmp_path / Path(name).parts[0]}:
        with pytest.raises(HilpError):
            hilp.load(source, columns={"observations": ["x"], "actions": ["u"]})
    for format in ("csv", "parquet", "npz", "hdf5", "ogbench", "groups"):
        with pytest.raises(HilpError, match="is a pipe or a device, not a file"):
            hilp.load(path, format)


def test_rows_that_were_never_written_are_refused(tmp_path: Path) -> None:
    """HDF5 gives a fill value for chunks that are not in the file: a billion rows of them, in a file of kilobytes."""
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        for name, width in (("observations", (3,)), ("actions", (2,)), ("terminals", ())):
            rows = file.create_dataset(name, (10**9, *width), "f4", chunks=(10**5, *width))
            rows[: 10**5] = 0.5
    with pytest.raises(HilpError, match=r"claims to be \(1000000000.*\), but 100% of it was never written"):
        hilp.load(tmp_path / "log.hdf5")


def test_data_that_no_memory_holds_is_refused_before_it_is_read() -> None:
    arrays = walk()
    source = of_dataset(hilp.load(arrays))
    lengths = np.array([10**13], np.int64)
    with pytest.raises(HilpError, match="GiB of memory: convert it to a native folder"):
        gather(replace(source, lengths=lengths))


@pytest.mark.parametrize("kind", ["npz", "parquet", "csv", "folder"])
def test_thousands_of_other_columns_are_left_out(kind: str, tmp_path: Path) -> None:
    others = {f"c{number}": np.arange(6.0) for number in range(3000)}
    path, log = tmp_path / f"log.{kind}", {"time": np.arange(6.0), **others}
    if kind == "npz":
        arrays = {"observations": np.ones((6, 1)), "actions": np.zeros((6, 1)), "episode_lengths": [6]}
        np.savez(path, **arrays, **log)
    else:
        path.mkdir() if kind == "folder" else None
        rows = {"run": [0] * 6, "x": np.arange(6.0), "u": np.zeros(6), **log}
        for file in (path / "a.parquet", path / "b.parquet") if kind == "folder" else [path]:
            if kind == "csv":
                pd.DataFrame(rows).to_csv(file, index=False)
            else:
                pq.write_table(pa.table(rows), file)
    options = {} if kind == "npz" else {"columns": LOG}
    data = hilp.load(path, **options)
    assert set(data.extras) == {"time"} and any("other columns, which are many" in note for note in data.notes)
    assert set(hilp.load(path, extras=["c7", "c2999"], **options).extras) == {"c7", "c2999"}
