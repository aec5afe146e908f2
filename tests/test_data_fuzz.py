"""Damaged files of every format: an error of one line or a data set, never a traceback, a crash or a hang.

Where the format has checksums a flipped bit is always caught: in native folders as an error; in .npz files as an error,
or it was in bytes that mean nothing (time stamps of the archive) and the data is the same.
"""

from __future__ import annotations

import itertools
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hilp
from data_samples import d4rl_arrays, ogbench_arrays, outcome, walk, write_exorl, write_hdf5, write_minari
from hilp.data import subprocess_reader
from hilp.data.audit import inspect
from hilp.errors import HilpError

LENGTHS = (7, 3, 5)
FORMATS = ("d4rl", "d4rl-gzip", "hdf5", "minari", "ogbench", "ogbench-deflated", "exorl", "native")
MANY, FEW = 1000, 80  # cases of a format
PATIENCE = 3.0  # seconds that the HDF5 library may take in these tests


def pristine(format: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[Path], dict]:
    """A data set, the files it consists of, and the options to read it with."""
    if format.startswith("d4rl"):
        how = {"compression": "gzip", "chunks": True, "shuffle": True} if format == "d4rl-gzip" else {}
        path = write_hdf5(folder / "walks.hdf5", d4rl_arrays(LENGTHS), **how)
        return path, [path], {}
    if format == "hdf5":
        path = write_hdf5(folder / "walks.hdf5", walk(LENGTHS), chunks=True, fletcher32=True)
        return path, [path], {}
    if format == "minari":
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
        write_minari("walks-v0", LENGTHS, parts=True)
        data = folder / "walks-v0" / "data"
        return data, sorted(data.iterdir()), {"observation_keys": ["position"]}
    if format.startswith("ogbench"):
        save = np.savez_compressed if format == "ogbench-deflated" else np.savez
        save(folder / "walks.npz", **ogbench_arrays(LENGTHS))
        return folder / "walks.npz", [folder / "walks.npz"], {}
    if format == "exorl":
        path = write_exorl(folder / "rnd", LENGTHS)
        return path, sorted((path / "buffer").iterdir()), {}
    path = hilp.load({**walk(LENGTHS), "rewards": np.arange(sum(LENGTHS))}).save(folder / "native")
    return path, sorted(path.iterdir()), {"verify": True}


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut, or some bits flipped, or bytes overwritten, or a part missing in the middle."""
    out = bytearray(content)
    kind = rng.integers(5)
    if kind == 0:
        return bytes(out[: rng.integers(len(out))])
    if kind == 1:
        start = int(rng.integers(len(out)))
        del out[start : start + int(rng.integers(1, 200))]
        return bytes(out)
    for _ in range((1, 8, 3)[kind - 2]):
        place = int(rng.integers(len(out)))
        if kind == 4:
            patch = (b"\xff" * 8, b"\0" * 8, bytes(rng.integers(0, 256, 4, np.uint8)))[int(rng.integers(3))]
            out[place : place + len(patch)] = patch
        else:
            out[place] ^= 1 << int(rng.integers(8))
    return bytes(out[: len(content)])


def flipped(content: bytes, rng: np.random.Generator) -> bytes:
    """One bit flipped."""
    out = bytearray(content)
    out[int(rng.integers(len(out)))] ^= 1 << int(rng.integers(8))
    return bytes(out)


def cases(
    format: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    damage: Callable[[bytes, np.random.Generator], bytes],
    look: Callable[[Path, dict, int], None],
) -> None:
    """Damage one file at a time and look at the whole; each look must be over soon."""
    monkeypatch.setattr(subprocess_reader, "STALL_SECONDS", PATIENCE)
    path, files, options = pristine(format, folder, monkeypatch)
    contents = [file.read_bytes() for file in files]
    for number in range(count):
        rng = np.random.default_rng([FORMATS.index(format), number])
        which = int(rng.integers(len(files)))
        broken = damage(contents[which], rng)
        files[which].write_bytes(broken)
        began = time.process_time()  # of this process: a busy machine is no hang, and the child has its own limit
        try:
            look(path, options, number)
        except BaseException as error:
            kept = shutil.copy(files[which], folder.parent / f"{format}-{number}-{files[which].name}")
            error.add_note(f"case {number} of {format}: {kept}")
            raise
        assert time.process_time() - began < 10, f"case {number} of {format} takes for ever"
        files[which].write_bytes(contents[which])


def look_at_anything(path: Path, options: dict, number: int) -> None:
    outcome(path, **options)
    if number % 4 == 0:
        options = {name: value for name, value in options.items() if name != "verify"}
        try:
            report = inspect(path, **options)
        except HilpError:
            return
        assert report.trainable == (not report.errors)


def always_an_error(path: Path, options: dict, number: int) -> None:
    assert isinstance(outcome(path, **options), HilpError)


def an_error_or_the_same(pristine_data: hilp.Dataset) -> Callable[[Path, dict, int], None]:
    def look(path: Path, options: dict, number: int) -> None:
        data = outcome(path, **options)
        if isinstance(data, hilp.Dataset):
            assert data.fingerprint == pristine_data.fingerprint
            assert data.extras.keys() == pristine_data.extras.keys()
            for name, column in data.extras.items():
                np.testing.assert_array_equal(column, pristine_data.extras[name])

    return look


@pytest.mark.parametrize("format", FORMATS)
def test_damaged_files(tmp_path, monkeypatch, format):
    cases(format, tmp_path, monkeypatch, FEW, damaged, look_at_anything)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_many_damaged_files(tmp_path, monkeypatch, format):
    cases(format, tmp_path, monkeypatch, MANY, damaged, look_at_anything)


@pytest.mark.parametrize("count", [2 * FEW, pytest.param(5 * MANY, marks=pytest.mark.slow)])
def test_a_flipped_bit_of_a_native_folder_is_always_caught(tmp_path, monkeypatch, count):
    cases("native", tmp_path, monkeypatch, count, flipped, always_an_error)


@pytest.mark.parametrize("count", [FEW, pytest.param(2 * MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("format", ["ogbench", "ogbench-deflated", "exorl"])
def test_a_flipped_bit_of_an_npz_never_changes_the_data(tmp_path, monkeypatch, format, count):
    (tmp_path / "whole").mkdir()
    path, _, options = pristine(format, tmp_path / "whole", monkeypatch)
    (tmp_path / "damaged").mkdir()
    look = an_error_or_the_same(hilp.load(path, **options))
    cases(format, tmp_path / "damaged", monkeypatch, count, flipped, look)


# ---- tables of anything ----------------------------------------------------------------------------------------------
#
# Small tables with whatever may stand in a cell, written as CSV, Parquet, .npz or a dict. What is loaded must be what a
# plain reading of the cells says; all else is one line. A case has a share of the time and the memory of a process.

CELLS = (
    "1",
    "-2.5",
    "1e3",
    "",
    "nan",
    "inf",
    "3_9",
    "0x10",
    "1,5",
    " 7 ",
    "true",
    "١",
    "2024-01-01",
    "x",
    "\0",
    "1e999",
    '"',
    "9" * 400,
)
IDS = ("a", "a\0", "b", "", "1", "01", "1.0", "nan", str(2**53), str(2**53 + 1), str(2**64 - 1), "-0", "é", "e\u0301")
NUMBERS = (0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 0.5, float("nan"), float("inf"), 1e300, None)
TABLES, FEW_TABLES = 10_000, 150
MOST_SECONDS, MOST_BYTES = 30.0, 2 << 30


def random_log(rng: np.random.Generator, path: Path) -> tuple[dict[str, list], Path | dict]:
    """The cells of a table (x, u and run), and where they were written."""
    rows, odd = int(rng.integers(0, 9)), float(rng.choice([0.0, 0.05, 0.5]))

    def column(usual: Callable[[int], object], strange: tuple) -> list:
        return [strange[rng.integers(len(strange))] if rng.random() < odd else usual(n) for n in range(rows)]

    kind = str(rng.choice(["csv", "parquet", "npz", "dict"]))
    if kind == "csv":
        cells = {"run": column(lambda n: "ab"[n > rows // 2], IDS)}
        cells |= {name: column(lambda n: str(n / 10), CELLS) for name in ("x", "u")}
        lines = [",".join(cells), *(",".join(row) for row in zip(*cells.values(), strict=True))]
        if rng.random() < 0.1 and rows:
            lines[int(rng.integers(len(lines)))] += ",9"
        (path / "log.csv").write_text("\n".join(lines), newline="")
        return cells, path / "log.csv"
    names = bool(rng.integers(2))
    cells = {"run": column(lambda n: "ab"[n > rows // 2], IDS) if names else column(lambda n: n // 3, NUMBERS[:8])}
    cells |= {name: column(lambda n: n / 10, NUMBERS) for name in ("x", "u")}
    if kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        x = [[value] * int(1 + (rng.random() < odd)) for value in cells["x"]] if rng.random() < 0.3 else cells["x"]
        try:
            table = pa.table({"run": cells["run"], "x": x, "u": cells["u"]})
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):  # no type of Arrow's holds these
            return cells, {}
        pq.write_table(table, path / "log.parquet", write_statistics=bool(rng.integers(2)))
        cells["x"] = x
        return cells, path / "log.parquet"
    if kind == "npz":
        try:
            arrays = {name: np.array(values) for name, values in cells.items()}
            np.savez(path / "log.npz", **{n: a for n, a in arrays.items() if not a.dtype.hasobject})
        except (OverflowError, ValueError):
            return cells, {}
        cells = {n: a.tolist() for n, a in arrays.items()}  # as numpy has them
        return cells, path / "log.npz"
    return cells, cells


def runs_of(ids: list) -> list[int]:
    starts = [n for n in range(len(ids)) if n == 0 or ids[n] != ids[n - 1]]
    return [b - a for a, b in itertools.pairwise([*starts, len(ids)])]


def same_numbers(found: np.ndarray, cells: list) -> bool:
    def plain(cell: object) -> float:
        if isinstance(cell, str):
            word = cell.strip().lower()
            return {"true": 1.0, "": np.nan}.get(word) if word in ("true", "") else float(word)
        return np.nan if cell is None else float(cell)

    with np.errstate(over="ignore"):
        return np.array_equal(found, np.array([plain(cell) for cell in cells]).astype(np.float32), equal_nan=True)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("count", [FEW_TABLES, pytest.param(TABLES, marks=pytest.mark.slow)])
def test_tables_of_anything_are_read_as_they_are_or_refused(tmp_path, count):
    columns = {"observations": ["x"], "actions": ["u"], "episode_ids": "run"}
    loaded, before = 0, peak()
    for number in range(count):
        cells, source = random_log(np.random.default_rng([99, number]), tmp_path)
        began = time.monotonic()
        data = outcome(source, columns=columns)
        assert time.monotonic() - began < MOST_SECONDS, number
        if isinstance(data, hilp.Dataset):
            loaded += 1
            ids = (
                [str(one).strip() for one in cells["run"]]
                if isinstance(source, Path) and source.suffix == ".csv"
                else cells["run"]
            )
            assert data.lengths.tolist() == runs_of(ids), (number, cells)
            assert same_numbers(data.observations[:, 0], np.ravel(cells["x"]).tolist()), (number, cells)
    assert loaded > count // 20  # the others are no vacuous truth
    assert peak() - before < MOST_BYTES  # other tests of this process may have taken more
