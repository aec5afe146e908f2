"""Tables: named columns from a dict, an .npz or an HDF5 file, and how they become rows of a data set."""

import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hilp import trees
from hilp.data import subprocess_reader
from hilp.data.columns import NUMBERS, Column, Computed, open_npz
from hilp.data.dataset import extras_of
from hilp.data.source import Kind, Rows, Source, Where, choose_extras, rows_text, with_files
from hilp.errors import HilpError, require_known, require_regular, require_utf8, some
from hilp.storage import told
from hilp.trees import Tree

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
MAGIC = {b"PK\x03\x04": "npz", b"PAR1": "parquet"}  # by the first bytes of a file
MOST_LEVELS = 8  # of dicts inside a dict of arrays
UNUSABLE = {"c": "complex numbers", "M": "points in time", "m": "spans of time"}  # which kinds of values no row can be
PICTURE = "pixels"  # what observations that are nothing but a picture are called
CHANNELS = (1, 3, 4, 6, 9, 12)  # of pictures, and of stacks of them
TIME = "time"  # the extra column that says when a row was recorded
MOST_EXTRAS = 1000  # columns besides observations and actions that are read where nobody asked for them
CLOSE = 1e-4  # next_observations may differ from the row after by this much (absolute or relative): stored precision


@dataclass(frozen=True)
class Table:
    """Columns by name."""

    name: str
    kind: str  # the format of what it is read from
    columns: Mapping[str, Column]
    others: Sequence[str] = ()  # what else is there, but is no array of numbers
    files: Sequence[Path] = ()  # that it is read from, where it has files of its own
    where: Where = rows_text

    def __getitem__(self, name: str) -> Column:
        require_known(name, self.columns, f"{self.name}: there is no array '{name}'")
        return self.columns[name]


def magic(path: Path) -> str | None:
    """npz, hdf5 or parquet, by the first bytes of a file."""
    require_regular(path)
    with told(f"{path} cannot be read"), open(path, "rb") as file:
        for start in (0, 512, 1024, 2048):  # HDF5 allows a block of the user's own before it
            file.seek(start)
            if file.read(8) == HDF5_MAGIC:
                return "hdf5"
        file.seek(0)
        return MAGIC.get(file.read(4))


def open_table(source: Mapping[str, Any] | Path) -> Table:
    """The columns of a dict of arrays, an .npz file or an HDF5 file."""
    if isinstance(source, Mapping):
        arrays: dict[str, np.ndarray] = {}
        _add_arrays(arrays, source, "")
        return Table("arrays", "arrays", arrays)
    kind = magic(source)
    if kind == "npz":
        return Table(str(source), kind, open_npz(source), files=[source])
    if kind == "hdf5":
        return Table(str(source), kind, *subprocess_reader.open_columns(source), [source])
    raise HilpError(f"{source} is neither an .npz nor an HDF5 file, by its first bytes")


def _add_arrays(found: dict[str, np.ndarray], source: Mapping[str, Any], above: str) -> None:
    """The arrays of a dict; those of dicts inside it by their path, as in a file: "observations/camera"."""
    for key, value in source.items():
        name = f"{above}{key}"
        require_utf8(name, "arrays: the name")
        if any(unicodedata.category(letter) in ("Cc", "Zl", "Zp") for letter in name):
            raise HilpError(f"arrays: the name {name!a} has line breaks or control characters: rename it")
        if isinstance(value, Mapping):
            if above.count("/") >= MOST_LEVELS:
                top = above.partition("/")[0]
                raise HilpError(f"arrays: {top} are dicts inside dicts without end: give arrays by name")
            _add_arrays(found, value, f"{name}/")
        elif name in found:  # 1 and "1", or "a/b" and a dict "a" with "b" in it
            raise HilpError(f"arrays: two arrays have the name '{name}': rename one of them")
        else:
            found[name] = _array(name, value)


def _array(name: str, value: Any) -> np.ndarray:
    # np.asarray runs the value's own code, which may raise anything.
    with told(f"arrays: {name} are ragged or not numbers", Exception, ": give one 2-D array"):
        array = np.asarray(value)
    if _masked(value):
        raise HilpError(f"arrays: {name} are a masked array: fill in or leave out what is masked")
    if array.dtype.hasobject:
        raise HilpError(f"arrays: {name} are ragged or not numbers (dtype object): give one 2-D array")
    if not isinstance(value, np.ndarray) and (lost := _lost(array, value)):
        raise HilpError(f"arrays: {name} {lost}")
    if unusable := UNUSABLE.get(array.dtype.kind):
        raise HilpError(f"arrays: {name} are {unusable} ({array.dtype}): turn them into plain numbers")
    return array


def _masked(value: Any, levels: int = MOST_LEVELS) -> bool:
    """Whether a masked array is in there, also as a row of a list: np.asarray forgets what is masked."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and levels:
        return any(_masked(item, levels - 1) for item in value)
    return isinstance(value, np.ma.MaskedArray)


def _lost(array: np.ndarray, value: Any) -> str | None:
    """What np.asarray made of flat values but should not have: names cut short, whole numbers that were rounded."""
    if array.ndim != 1:
        return None
    if array.dtype.kind in "US" and any(not isinstance(word, str | bytes) for word in value):
        return "are names and numbers in one array: give one of them"
    if array.dtype.kind in "US" and any(
        len(word) != len(kept) for word, kept in zip(value, array.tolist(), strict=True)
    ):
        return "are names that end in a null character: rename them"
    large = array.dtype.kind == "f" and np.flatnonzero(np.abs(array) >= 2**53)
    if large is not False and any(int(array[at]) != value[at] for at in large if isinstance(value[at], int)):
        return "are whole numbers that do not fit in one type of 64 bits: give an array of one"
    return None


def channels_first(shape: tuple[int, ...]) -> bool:
    """Whether pictures of this shape are [channels, height, width], as PyTorch has them."""
    return len(shape) == 3 and shape[0] in CHANNELS and shape[2] not in CHANNELS and min(shape[1:]) > shape[0]


def vectors(table: Table, what: str, names: Sequence[str], flatten: bool = False, single: bool = False) -> Column:
    """One or more columns side by side, as float32 rows; flattened images stay bytes, a quarter of the memory.

    single: a column of one number a row may stand alone, as the user named it for this.
    """

    def problem(column: Column) -> str | None:
        """Why its rows are no vectors."""
        shape, alone = column.shape, len(names) == 1 and not single
        if len(shape) > 2 and not flatten:
            return (
                f"are {'images' if column.dtype == np.uint8 else 'arrays'} of {shape[1:]} in each row: pass "
                f"flatten=True to lay each out as {int(np.prod(shape[1:]))} numbers, or encode them first"
            )
        if len(shape) < (2 if alone and not discrete else 1):
            return f"are {shape}, but must be 2-D, [rows, columns]: put each row's numbers side by side"
        return None

    columns = {name: table[name] for name in names}
    # Whole numbers, one a row, may be discrete actions: they keep their type, by which `discrete.settle` knows them.
    numbers = sum(int(np.prod(column.shape[1:])) for column in columns.values())
    discrete = what == "actions" and numbers == 1 and columns[names[0]].dtype.kind in "biu"
    rows = _require_rows(f"{table.name}: {what}", columns, problem)
    widths = {name: int(np.prod(column.shape[1:])) for name, column in columns.items()}
    images = any(len(c.shape) > 2 for c in columns.values()) and all(c.dtype == np.uint8 for c in columns.values())
    dtype = np.dtype(np.int64 if discrete else np.uint8 if images else np.float32)

    def read(start: int, stop: int) -> np.ndarray:
        pieces = [column[start:stop].reshape(-1, widths[name]) for name, column in columns.items()]
        with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold becomes infinite and is reported
            return np.concatenate(pieces, axis=1, dtype=dtype, casting="unsafe")

    return Computed((rows, sum(widths.values())), dtype, read)


def named_parts(table: Table, what: str, columns: Mapping[str, Column]) -> dict[str, Column]:
    """A named tree of columns: bytes stay bytes and keep their shape, everything else is float32 vectors.

    But pictures whose channels come first become [height, width, channels].
    """
    _require_rows(f"{table.name}: {what}", columns, lambda column: None)
    return {name: _part(column) for name, column in columns.items()}


def _part(column: Column) -> Column:
    dtype = np.dtype(np.uint8 if column.dtype == np.uint8 else np.float32)
    shape = column.shape[1:] or (1,)
    turned = dtype == np.uint8 and channels_first(shape)
    if turned:
        shape = (*shape[1:], shape[0])

    def read(start: int, stop: int) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            rows = column[start:stop].astype(dtype, copy=False)
        return (np.moveaxis(rows, 1, -1) if turned else rows).reshape(-1, *shape)

    return Computed((column.shape[0], *shape), dtype, read)


def _require_rows(whose: str, columns: Mapping[str, Column], other: Callable[[Column], str | None]) -> int:
    """How many rows of numbers all of these have; other: what else is wrong with one."""
    rows = min((*column.shape, 0)[0] for column in columns.values())
    for name, column in columns.items():
        problem = other(column)
        if column.dtype.kind not in NUMBERS:
            problem = f"are not numbers (dtype {column.dtype}): give one 2-D array"
        elif problem is None and column.shape[:1] != (rows,):
            problem = f"are {column.shape}, but another part has {rows} rows"
        elif problem is None and 0 in column.shape[1:]:
            problem = f"are {column.shape}: there are no numbers in a row"
        if problem is not None:
            own = "" if whose.endswith(f": {name}") else f" ('{name}')"
            raise HilpError(f"{whose}{own} {problem}")
    return rows


def parts_of(table: Table, what: str, names: Sequence[str], flatten: bool, single: bool) -> Tree:
    """One array of these columns, or where there are pictures among them a tree."""
    # A picture is a row of bytes [height, width, channels].
    if flatten or not any(table[name].dtype == np.uint8 and len(table[name].shape) == 4 for name in names):
        return vectors(table, what, names, flatten, single)
    called = [PICTURE if len(names) == 1 and "/" not in name else name.rpartition("/")[2] for name in names]
    if len(set(called)) < len(names):
        raise HilpError(f"{table.name}: two parts of {what} have one name: give each a name of its own")
    return named_parts(table, what, {short: table[name] for short, name in zip(called, names, strict=True)})


def extra_columns(
    table: Table, spent: Collection[str], rows: Collection[int], wanted: Sequence[str] | None
) -> tuple[dict[str, Column], list[str]]:
    """The columns that become extras (all, or those that are wanted), and a note about what cannot be one."""
    strict = table.kind == "arrays"  # a file is as it is; of a dict the user can leave out what does not fit
    fits: dict[str, Column] = {}
    odd, free = list(table.others), [name for name in table.columns if name not in spent]
    many = many_extras(free) if wanted is None and not strict else []
    for name in free if not many else {*free} & {TIME}:
        column = table[name]
        if strict and column.dtype.kind not in NUMBERS:
            raise HilpError(f"{table.name}: extra column '{name}' is not numbers ({column.dtype}): drop it")
        if strict or (column.dtype.kind in NUMBERS and column.shape[:1] and column.shape[0] in rows):
            fits[name] = column
        else:
            odd.append(name)
    return {name: fits[name] for name in choose_extras(fits, wanted, table.name)}, [*many, *left_out(odd)]


def many_extras(names: Collection[str]) -> list[str]:
    """A note where there are too many columns to read all of them for nothing."""
    say_which = "name those to keep with extras=[...] / --option extras=[...]"
    return [f"left out {len(names):,} other columns, which are many: {say_which}"] * (len(names) > MOST_EXTRAS)


def lay_out(table: Table, lengths: np.ndarray, columns: dict[str, Column], following: Tree | None) -> Source:
    """Rows of a data set from its columns (see `columns_of`) with `lengths` observations in each episode.

    Three layouts: an action a row; one action fewer than observations in each episode; or, with the observations
    `following` each row, rows that are whole transitions, to which each episode's final state is added.
    """
    after = {} if following is None else trees.named(following, "observations")
    whole = following is not None
    _require_layout(table.name, len(lengths), columns, after)
    rows = next(iter(columns.values())).shape[0]
    kinds = {name: Kind(column.shape[1:], column.dtype.newbyteorder("=")) for name, column in columns.items()}
    if kinds["actions"].dtype.kind != "i":
        kinds["actions"] = Kind(kinds["actions"].shape, np.dtype(np.float32))
    ends = np.cumsum(lengths + whole) - 1  # each episode's last row, as it will be
    for name, column in columns.items():
        final = column if whole and name != "actions" else None
        if name in after:
            final = _consecutive(column, after[name], np.cumsum(lengths) - 1, table.name)
        if whole or column.shape[0] != rows:
            columns[name] = _with_final_rows(column, ends, final)

    def read(start: int, stop: int) -> Rows:
        return {name: column[start:stop].astype(kinds[name].dtype, copy=False) for name, column in columns.items()}

    def where(rows: np.ndarray) -> str:
        """A final state stands in the row of the transition that led to it."""
        return table.where(rows - np.searchsorted(ends, rows) - np.isin(rows, ends))

    here = where if whole else table.where
    found = Source(name=table.name, format=table.kind, lengths=lengths + whole, columns=kinds, read=read, where=here)
    return with_files(found, table.files) if table.files else found


def _require_layout(name: str, episodes: int, columns: Mapping[str, Column], after: Mapping[str, Column]) -> None:
    """Columns fit together in one of the three layouts; after: what follows observations, empty where nothing does."""
    total, acts = next(iter(columns.values())).shape[0], columns["actions"].shape[0]
    here, there = (trees.over(lambda column: f"{column.dtype} {column.shape}", part) for part in (columns, after))
    for part in here if after else ():
        if part.startswith("observations") and here[part] != there.get(part):
            raise HilpError(
                f"{name}: with next_observations every row is a transition, but {part} are {here[part]} and what "
                f"follows them is {there.get(part, 'nothing')}: give as many of the same kind"
            )
    if acts != total and (after or acts != total - episodes):
        raise HilpError(
            f"{name}: {total} observations but {acts} actions in {episodes} episodes: give an action a row"
            + ("" if after else ", or one fewer per episode")
        )
    for extra, column in extras_of(columns).items():
        if column.shape[:1] not in ((total,), (acts,)):
            problem = f"is {column.shape}, but there are {total} observations: drop or fix it"
            raise HilpError(f"{name}: extra column '{extra}' {problem}")


def _with_final_rows(steps: Column, ends: np.ndarray, final: Column | None = None) -> Column:
    """What has a row a step, with one row more at the end of each episode (`ends`).

    This row is zero, or that of `final` at the last step of the episode.
    """

    def read(start: int, stop: int) -> np.ndarray:
        low, high = np.searchsorted(ends, [start, stop])
        first, beyond = start - int(low), stop - int(high)
        at = ends[low:high] - start - np.arange(high - low)  # in the rows of steps, where the others go
        if final is None:
            return np.insert(steps[first:beyond], at, 0, axis=0)
        # A final row belongs to the step before it, which may lie before this block.
        begin = first - int(high > low and ends[low] == start)
        after = final[begin:beyond]
        rows = after[first - begin :] if final is steps else steps[first:beyond]
        return np.insert(rows, at, after[at - 1 + first - begin], axis=0)

    return Computed((steps.shape[0] + len(ends), *steps.shape[1:]), steps.dtype, read)


def _consecutive(observations: Column, following: Column, lasts: np.ndarray, name: str) -> Column:
    """What follows each row, which inside an episode must be the row after; lasts: the last row of each."""

    def read(start: int, stop: int) -> np.ndarray:
        after, now = following[start:stop], observations[start : stop + 1]
        rows = np.setdiff1d(np.arange(start, stop), lasts)
        close = np.isclose(after[rows - start], now[rows - start + 1], rtol=CLOSE, atol=CLOSE, equal_nan=True)
        broken = rows[~close.all(axis=tuple(range(1, close.ndim)))]
        if len(broken):
            raise HilpError(
                f"{name}: next_observations of rows {some(broken, 5)} are not the observations of the row after, "
                "inside an episode: check where episodes end"
            )
        return after

    return Computed(following.shape, following.dtype, read)


def flags(table: Table, name: str, rows: int) -> np.ndarray:
    """A column of yes and no, one a row; never yes where there is no such column."""
    if name not in table.columns:
        return np.zeros(rows, bool)
    column = table[name]
    if column.shape not in ((rows,), (rows, 1)):
        raise HilpError(f"{table.name}: {rows} observations but {name} {column.shape}: give one a row")
    values = column[:]
    if values.dtype.kind not in NUMBERS or not np.isfinite(values).all():
        raise HilpError(f"{table.name}: {name} must be yes or no, one a row, not {values.dtype} or NaN")
    return np.asarray(values.reshape(rows) != 0)


def endings(last_rows: np.ndarray | slice, terminals: np.ndarray, timeouts: np.ndarray) -> dict[str, int]:
    """How many episodes end at a terminal, at a timeout, at both, and at neither (cut)."""
    codes = terminals[last_rows] + 2 * timeouts[last_rows]
    counts = np.bincount(codes, minlength=4).tolist()
    return {"terminal": counts[1], "timeout": counts[2], "both": counts[3], "cut": counts[0]}


def left_out(names: Sequence[str]) -> list[str]:
    """A note about what a file holds besides rows."""
    return [f"left out (no number per row): {some(sorted(names))}"] if names else []
