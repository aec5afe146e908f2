"""Tables: named columns from a dict, an .npz or an HDF5 file, and how they become rows of a data set."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hilp import trees
from hilp.data import subprocess_reader
from hilp.data.columns import NUMBERS, Column, open_npz
from hilp.data.source import Block, Kind, Source, rows_text, select
from hilp.errors import HilpError, nearest, reason, require_utf8, some

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
ZIP_MAGIC = b"PK\x03\x04"
MOST_LEVELS = 8  # of dicts inside a dict of arrays
UNUSABLE = {"c": "complex numbers", "M": "points in time", "m": "spans of time"}  # which kinds of values no row can be
CLOSE = 1e-4  # next_observations may differ from the row after by this much (absolute or relative): stored precision


@dataclass(frozen=True)
class Table:
    """Columns by name."""

    name: str
    kind: str  # of what it is read from: arrays, npz, hdf5, csv, parquet
    columns: Mapping[str, Column]
    others: Sequence[str] = ()  # what else is there, but is no array of numbers
    disk_bytes: int = 0
    identity: str | None = None
    where: Callable[[np.ndarray], str] = rows_text  # where its rows are, for messages

    def __getitem__(self, name: str) -> Column:
        if name not in self.columns:
            has = nearest(name, self.columns) if self.columns else "there are none"
            raise HilpError(f"{self.name}: there is no array '{name}': {has}")
        return self.columns[name]


def magic(path: Path) -> str | None:
    """npz or hdf5, by the first bytes of a file."""
    try:
        with open(path, "rb") as file:
            for start in (0, 512, 1024, 2048):  # HDF5 allows a block of the user's own before it
                file.seek(start)
                if file.read(8) == HDF5_MAGIC:
                    return "hdf5"
            file.seek(0)
            return "npz" if file.read(4) == ZIP_MAGIC else None
    except OSError as error:
        raise HilpError(f"{path} cannot be read: {error.strerror or error}") from error


def identity_of(paths: Iterable[Path]) -> str:
    """Changes when one of the files does."""
    digest = hashlib.sha256()
    for path in paths:
        status = path.stat()
        digest.update(os.fsencode(os.path.abspath(path)) + f" {status.st_size} {status.st_mtime_ns};".encode())
    return digest.hexdigest()


def open_table(source: Mapping[str, Any] | Path) -> Table:
    """The columns of a dict of arrays, an .npz file or an HDF5 file."""
    if isinstance(source, Mapping):
        arrays: dict[str, np.ndarray] = {}
        for name, array in _arrays(source):
            if name in arrays:  # 1 and "1", or "a/b" and a dict "a" with "b" in it
                raise HilpError(f"arrays: two arrays have the name '{name}': rename one of them")
            arrays[name] = array
        return Table("arrays", "arrays", arrays)
    kind = magic(source)
    if kind is None:
        raise HilpError(f"{source} is neither an .npz nor an HDF5 file, by its first bytes")
    size, identity = source.stat().st_size, identity_of([source])
    if kind == "npz":
        return Table(str(source), "npz", open_npz(source), (), size, identity)
    columns, others = subprocess_reader.open_hdf5(source)
    return Table(str(source), "hdf5", columns, others, size, identity)


def _arrays(source: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of a dict; those of dicts inside it by their path, as in a file: "observations/camera"."""
    for key, value in source.items():
        name = f"{above}{key}"
        require_utf8(name, "arrays: the name")
        if any(unicodedata.category(letter) in ("Cc", "Zl", "Zp") for letter in name):
            raise HilpError(f"arrays: the name {name!a} has line breaks or control characters: rename it")
        if isinstance(value, Mapping):
            if above.count("/") >= MOST_LEVELS:
                raise HilpError(
                    f"arrays: {above.partition('/')[0]} are dicts inside dicts without end: give arrays by name"
                )
            yield from _arrays(value, f"{name}/")
        else:
            yield name, _array(name, value)


def _array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except Exception as error:  # np.asarray runs the value's own code
        raise HilpError(f"arrays: {name} are ragged or not numbers ({reason(error)}): give one 2-D array") from error
    if _masked(value):
        raise HilpError(f"arrays: {name} are a masked array: fill in or leave out what is masked")
    if array.dtype.hasobject:
        raise HilpError(f"arrays: {name} are ragged or not numbers (dtype object): give one 2-D array")
    if array.dtype.kind in UNUSABLE:
        raise HilpError(
            f"arrays: {name} are {UNUSABLE[array.dtype.kind]} ({array.dtype}): turn them into plain numbers"
        )
    return array


def _masked(value: Any, levels: int = MOST_LEVELS) -> bool:
    """Whether a masked array is in there, also as a row of a list: np.asarray forgets what is masked."""
    if isinstance(value, list | tuple) and levels:
        return any(_masked(item, levels - 1) for item in value)
    return isinstance(value, np.ma.MaskedArray)


PICTURE = "pixels"  # what observations that are nothing but a picture are called
CHANNELS = (1, 3, 4, 6, 9, 12)  # of pictures, and of stacks of them


def is_picture(column: Column) -> bool:
    """Whether a column has a picture in each row: bytes [height, width, channels]."""
    return column.dtype == np.uint8 and len(column.shape) == 4


def channels_first(shape: tuple[int, ...]) -> bool:
    """Whether pictures of this shape are [channels, height, width], as PyTorch has them."""
    if len(shape) != 3 or shape[0] not in CHANNELS or shape[2] in CHANNELS:
        return False
    return min(shape[1:]) > shape[0]


class Part:
    """One or more columns side by side, as float32 rows; `keep` names the numbers of a row that are wanted."""

    def __init__(
        self,
        table: Table,
        what: str,
        names: Sequence[str],
        flatten: bool = False,
        keep: Sequence[int] | None = None,
        single: bool = False,
    ):
        """single: a column of one number a row may stand alone, as the user named it for this."""
        self.columns = [table[name] for name in names]
        self.rows = min((column.shape[:1] or (0,))[0] for column in self.columns)
        self.images = False
        self._keep = keep
        self._widths: list[int] = []
        for name, column in zip(names, self.columns, strict=True):
            where = f"{table.name}: {what}" + (f" ('{name}')" if name != what else "")
            shape = column.shape
            if column.dtype.kind not in NUMBERS:
                raise HilpError(f"{where} are not numbers (dtype {column.dtype}): give one 2-D array")
            if len(shape) > 2 and not flatten:
                raise HilpError(
                    f"{where} are {'images' if column.dtype == np.uint8 else 'arrays'} of {shape[1:]} in each row: "
                    f"pass flatten=True to lay each out as {int(np.prod(shape[1:]))} numbers, or encode them first"
                )
            if len(shape) == 1 and len(names) == 1 and what == "actions" and column.dtype.kind in "iu":
                raise HilpError(
                    f"{where} are whole numbers, one a row: hilp needs continuous actions, not discrete ones"
                )
            if len(shape) < (1 if len(names) > 1 or single else 2):
                raise HilpError(
                    f"{where} are {shape}, but must be 2-D, [rows, columns]: put each row's numbers side by side"
                )
            if shape[0] != self.rows:
                raise HilpError(f"{where} have {shape[0]} rows, but another of {some(names)} has {self.rows}")
            if 0 in shape[1:]:
                raise HilpError(f"{where} are {shape}: there are no numbers in a row")
            self.images |= len(shape) > 2 and column.dtype == np.uint8
            self._widths.append(int(np.prod(shape[1:])))
        self.images &= all(column.dtype == np.uint8 for column in self.columns)
        width = sum(self._widths)
        if keep is not None and width <= max(keep):
            raise HilpError(f"{table.name}: {what} have {width} numbers a row, too few to keep number {max(keep)}")
        # Flattened images stay bytes, a quarter of the memory; everything else is float32.
        self.kind = Kind((width if keep is None else len(keep),), np.dtype(np.uint8 if self.images else np.float32))

    def read(self, start: int, stop: int) -> np.ndarray:
        pieces = [c[start:stop].reshape(-1, width) for c, width in zip(self.columns, self._widths, strict=True)]
        with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold becomes infinite and is reported
            rows = np.concatenate(pieces, axis=1, dtype=self.kind.dtype, casting="unsafe")
        return rows if self._keep is None else np.ascontiguousarray(rows[:, self._keep])


class NamedParts:
    """A named tree of columns: bytes stay bytes and keep their shape, everything else is float32 vectors.

    But pictures whose channels come first become [height, width, channels].
    """

    def __init__(self, table: Table, what: str, columns: Mapping[str, Column] | None = None):
        """columns: those that are its parts, by name; without them the columns `what/...`."""
        self.columns = dict(trees.unnamed(table.columns, what) if columns is None else columns)
        self.rows = min((column.shape[:1] or (0,))[0] for column in self.columns.values())
        self.kind: dict[str, Kind] = {}
        self._turned: set[str] = set()  # pictures whose channels come first
        for name, column in self.columns.items():
            where = f"{table.name}: {what} ('{name}')"
            if column.dtype.kind not in NUMBERS:
                raise HilpError(f"{where} are not numbers (dtype {column.dtype}): give arrays of numbers")
            if column.shape[:1] != (self.rows,):
                raise HilpError(f"{where} are {column.shape}, but another part has {self.rows} rows")
            if 0 in column.shape[1:]:
                raise HilpError(f"{where} are {column.shape}: there are no numbers in a row")
            dtype = np.dtype(np.uint8 if column.dtype == np.uint8 else np.float32)
            shape = column.shape[1:] or (1,)
            if dtype == np.uint8 and channels_first(shape):
                self._turned.add(name)
                shape = (*shape[1:], shape[0])
            self.kind[name] = Kind(shape, dtype)

    def read(self, start: int, stop: int) -> dict[str, np.ndarray]:
        found = {}
        for name, column in self.columns.items():
            with np.errstate(over="ignore", invalid="ignore"):
                rows = column[start:stop].astype(self.kind[name].dtype, copy=False)
            rows = np.moveaxis(rows, 1, -1) if name in self._turned else rows
            found[name] = rows.reshape(-1, *self.kind[name].shape)
        return found


def parts_of(
    table: Table,
    what: str,
    names: Sequence[str] | None,
    flatten: bool = False,
    single: bool = False,
    keep: Sequence[int] | None = None,
) -> Part | NamedParts:
    """One array of these columns, or where there are pictures among them a tree; without names that of `what/...`."""
    if names is not None and not flatten and any(is_picture(table[name]) for name in names):
        called = {name: PICTURE if len(names) == 1 and "/" not in name else name.rpartition("/")[2] for name in names}
        if len(set(called.values())) < len(names):
            raise HilpError(f"{table.name}: two parts of {what} have one name: give each a name of its own")
        return NamedParts(table, what, {called[name]: table[name] for name in names})
    if names is not None:
        return Part(table, what, names, flatten, keep, single)
    if flatten:
        raise HilpError(f"{table.name}: {what} are named parts, which keep their shapes: leave out flatten")
    return NamedParts(table, what)


def lay_out(
    table: Table,
    format: str,
    lengths: np.ndarray,
    observations: Part | NamedParts,
    actions: Part,
    following: Part | NamedParts | None = None,
    extras: Mapping[str, Column] | None = None,
    endings: Mapping[str, int] | None = None,
    notes: Sequence[str] = (),
) -> Source:
    """Rows of a data set from the columns of a table with `lengths` observations in each episode.

    Three layouts: an action a row; one action fewer than observations in each episode; or, with the observations
    `following` each row, rows that are whole transitions, to which each episode's final state is added.
    """
    columns = dict(extras or {})
    total = observations.rows
    whole = following is not None
    if following is not None and (following.rows, following.kind) != (total, observations.kind):
        raise HilpError(
            f"{table.name}: with next_observations every row is a transition, but there are {total} observations of "
            f"{_numbers(observations)} numbers and {following.rows} next_observations of {_numbers(following)}"
        )
    short = not whole and actions.rows == total - len(lengths) and len(lengths) > 0
    if actions.rows != total and not short:
        raise HilpError(
            f"{table.name}: {total} observations but {actions.rows} actions in {len(lengths)} episodes: give an action "
            "a row" + ("" if whole else ", or one fewer per episode")
        )
    per_step = {name for name, column in columns.items() if short and column.shape[:1] == (actions.rows,)}
    for name, column in columns.items():
        if column.shape[:1] != (total,) and name not in per_step:
            raise HilpError(
                f"{table.name}: extra column '{name}' is {column.shape}, but there are {total} observations: drop "
                "or fix it"
            )
    out_lengths = lengths + 1 if whole else lengths
    last_rows = np.cumsum(out_lengths) - 1
    last_inputs = np.cumsum(lengths) - 1

    def before(row: int) -> int:
        """Rows of the table's gapped columns that come before an output row."""
        return row - int(np.searchsorted(last_rows, row))

    def spread(values: np.ndarray, used: np.ndarray, fill: np.ndarray | None = None) -> np.ndarray:
        """Values in the used rows; zeros, or these, in the last rows of episodes."""
        out = np.zeros((len(used), *values.shape[1:]), values.dtype)
        out[used] = values
        if fill is not None:
            out[~used] = fill
        return out

    def read(start: int, stop: int) -> Block:
        if not whole and not short:
            found = {name: _native(column[start:stop]) for name, column in columns.items()}
            return Block(observations.read(start, stop), actions.read(start, stop), found)
        used = np.ones(stop - start, bool)
        low, high = np.searchsorted(last_rows, [start, stop])
        used[last_rows[low:high] - start] = False
        first, beyond = before(start), before(stop)
        if short:
            found = {
                name: spread(_native(column[first:beyond]), used) if name in per_step else _native(column[start:stop])
                for name, column in columns.items()
            }
            return Block(observations.read(start, stop), spread(actions.read(first, beyond), used), found)
        assert following is not None
        # A final state belongs to the input row before it, which may lie before this block.
        low_input = first - (0 if used[0] else 1)
        final = last_inputs[low:high] - low_input
        states = observations.read(first, min(beyond + 1, total))
        after = following.read(low_input, beyond)
        trees.over(
            lambda now, then: _require_consecutive(now, then[first - low_input :], first, last_inputs, table.name),
            states,
            after,
        )
        found = {}
        for name, column in columns.items():
            values = _native(column[low_input:beyond])
            found[name] = spread(values[first - low_input :], used, values[final])
        whole_rows = trees.over(lambda now, then: spread(now[: beyond - first], used, then[final]), states, after)
        return Block(whole_rows, spread(actions.read(first, beyond), used), found)

    def where(rows: np.ndarray) -> str:
        """A final state stands in the row of the transition that led to it."""
        final = np.isin(rows, last_rows)
        return table.where(rows - np.searchsorted(last_rows, rows) - final)

    return Source(
        name=table.name,
        format=format,
        lengths=out_lengths,
        observation=observations.kind,
        action=Kind(actions.kind.shape, np.dtype(np.float32)),
        extras={name: Kind(column.shape[1:], column.dtype.newbyteorder("=")) for name, column in columns.items()},
        read=read,
        where=where if whole else table.where,
        disk_bytes=table.disk_bytes,
        identity=table.identity,
        endings=dict(endings or {}),
        notes=tuple(notes),
    )


def _numbers(observations: Part | NamedParts) -> int:
    return sum(int(np.prod(kind.shape)) for kind in trees.named(observations.kind, "observations").values())


def _native(values: np.ndarray) -> np.ndarray:
    """In this machine's byte order."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _require_consecutive(states: np.ndarray, after: np.ndarray, first: int, last_inputs: np.ndarray, name: str) -> None:
    inner = np.ones(len(after), bool)
    low, high = np.searchsorted(last_inputs, [first, first + len(after)])
    inner[last_inputs[low:high] - first] = False
    rows = np.flatnonzero(inner)
    close = np.isclose(after[rows], states[rows + 1], rtol=CLOSE, atol=CLOSE, equal_nan=True)
    broken = first + rows[~close.all(axis=tuple(range(1, close.ndim)))]
    if len(broken):
        raise HilpError(
            f"{name}: next_observations of rows {some(broken, 5)} are not the observations of the row after, inside "
            "an episode: check where episodes end"
        )


def flags(table: Table, name: str, rows: int) -> np.ndarray | None:
    """A column of yes and no, one a row; None where there is no such column."""
    if name not in table.columns:
        return None
    column = table[name]
    if column.shape not in ((rows,), (rows, 1)):
        raise HilpError(f"{table.name}: {rows} observations but {name} {column.shape}: give one a row")
    values = column[:]
    if values.dtype.kind not in NUMBERS or not np.isfinite(values).all():
        raise HilpError(f"{table.name}: {name} must be yes or no, one a row, not {values.dtype} or NaN")
    return np.asarray(values.reshape(rows) != 0)


def endings(last_rows: np.ndarray, terminals: np.ndarray, timeouts: np.ndarray) -> dict[str, int]:
    """How many episodes end at a terminal, at a timeout, at both, and at neither (cut)."""
    terminal, timeout = terminals[last_rows], timeouts[last_rows]
    return {
        "terminal": int(np.sum(terminal & ~timeout)),
        "timeout": int(np.sum(timeout & ~terminal)),
        "both": int(np.sum(terminal & timeout)),
        "cut": int(np.sum(~terminal & ~timeout)),
    }


def left_out(names: Sequence[str]) -> list[str]:
    """A note about what a file holds beside rows."""
    if not names:
        return []
    return [f"left out (no number per row): {some(sorted(names))}"]


def without_short(source: Source) -> Source:
    """The source without episodes of one row, which have no transition."""
    short = np.flatnonzero(source.lengths < 2)
    if not len(short):
        return source
    note = f"left out {len(short)} episodes of a single row (no transition): numbers {some(short, 5)}"
    return select(source, np.flatnonzero(source.lengths >= 2), note)
