"""Named arrays: a dict, an .npz or an HDF5 file; OGBench's .npz and D4RL's HDF5 among them."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hilp import trees
from hilp.data import tables
from hilp.data.columns import Column, block_rows
from hilp.data.dataset import columns_of
from hilp.data.measures import StepSizes, jumps
from hilp.data.source import MOST_BLOCK_ROWS, Source, with_numbers, without_short
from hilp.data.tables import Table, extra_columns, lay_out, named_parts, open_table, parts_of, vectors
from hilp.data.transforms import Parts
from hilp.errors import HilpError, nearest, printable, require_known, some
from hilp.trees import Tree

PARTS = ("observations", "actions", "next_observations")
TREES = ("observations", "next_observations")
STRUCTURE = ("episode_lengths", "episode_ends", "episode_ids", "terminals")  # columns that say where episodes end
KNOWN = (*PARTS, *STRUCTURE, "timeouts")
MISSPELT = 0.85  # how alike a name and a known one are, from which it is taken for a slip
KITCHEN_COLUMNS = (60, 30)  # numbers in a row of a D4RL Kitchen file, and how many of them are not the goal
ANTMAZE_PLACE = (0, 1)  # columns of an AntMaze observation that say where the ant is

Arrays = Mapping[str, Any] | Path  # what holds named arrays
Columns = Mapping[str, str | Sequence[str]]  # which of them are what
Chosen = Columns | None
Names = Sequence[str] | None  # of the extra columns to keep; None: all


def read(
    source: Arrays, *, columns: Chosen = None, flatten: bool = False, drop_short: bool = False, extras: Names = None
) -> Source:
    """Named arrays: a dict, an .npz or an HDF5 file.

    `observations` [rows, d] and `actions`, with one of: `episode_lengths` (rows of each episode), `episode_ends` (the
    row number after each episode's last), `episode_ids` (a number or name a row, the same within an episode),
    `terminals` (true on each episode's last row; `timeouts` end an episode, too). Actions have a row per
    observation (the last of each episode is ignored) or one fewer per episode. With `next_observations` every row is a
    whole transition instead, and the final state of each episode is added. Any other array with a row per observation
    becomes a named extra column. Observations may be a named tree: a dict of arrays, or `observations/NAME` in a file.

    `columns` says what these arrays are called in the source, {"observations": ["qpos", "qvel"], "actions": "ctrl"}:
    several are put side by side. Rows of bytes [height, width, channels] stay pictures, in a named tree (`pixels` where
    there is nothing else); `flatten` lays them out as plain numbers; `drop_short` leaves out episodes of one row.
    """
    return of_table(open_table(source), columns, flatten, drop_short, extras)


def read_ogbench(
    source: Arrays, *, split: Literal["train", "val"] | None = None, flatten: bool = False, extras: Names = None
) -> Source:
    """OGBench's .npz: `terminals` is 1 on each episode's last row. `split` picks the file or its "-val" sibling."""
    if split not in (None, "train", "val"):
        raise HilpError(f"split is 'train' or 'val', not '{split}'")
    if split is not None:
        if isinstance(source, Mapping):
            raise HilpError("split picks one of two files, and this is a dict")
        source = source.with_name(source.stem.removesuffix("-val") + ("-val" if split == "val" else "") + source.suffix)
        if not source.is_file():
            raise HilpError(f"there is no file {source}")
    found = read(source, flatten=flatten, extras=extras)
    return replace(without_short(found), format="ogbench", endings={})


def read_d4rl(
    source: Arrays,
    *,
    convention: Literal["antmaze", "kitchen"] | None = None,
    detect_jumps: bool = False,
    flatten: bool = False,
    extras: Names = None,
) -> Source:
    """D4RL's HDF5 (or a dict or .npz of the same arrays): rows in order, an episode ends at a terminal or a timeout.

    Consecutive rows of an episode are consecutive states, so the last row of each is its final state. `detect_jumps`
    also cuts where observations jump, for files with wrong or no timeouts. Conventions: "antmaze" cuts at timeouts and
    never at terminals (they mean "at the goal", and the walk goes on), or at jumps of the place where there are no
    timeouts; "kitchen" keeps the first 30 of 60 numbers, the others being the goal. Rewards, flags and infos become
    extras.
    """
    table = open_table(source)
    rows, width = (*table["observations"].shape, 0, 0)[:2]
    if convention is not None:
        require_known(str(convention), ["antmaze", "kitchen"], f"unknown convention '{convention}'")
    if convention == "kitchen" and width != KITCHEN_COLUMNS[0]:
        raise HilpError(f"{table.name}: Kitchen files have rows of {KITCHEN_COLUMNS[0]} numbers, this one has {width}")
    terminals, timeouts = (tables.flags(table, name, rows) for name in ("terminals", "timeouts"))
    notes = _hints(table, width, terminals, convention)
    moving: Sequence[int] | None = range(KITCHEN_COLUMNS[1]) if convention == "kitchen" else None
    if convention == "antmaze":
        terminals, moving = np.zeros(rows, bool), ANTMAZE_PLACE
        detect_jumps = detect_jumps or "timeouts" not in table.columns
    if not detect_jumps and not {"terminals", "timeouts"} & table.columns.keys():
        raise HilpError(
            f"{table.name}: nothing says where episodes end (no terminals, no timeouts): pass detect_jumps=True to cut "
            "where observations jump, or use format='hdf5' with columns"
        )
    ends = terminals | timeouts
    if detect_jumps:
        jumped = _jumps_of(vectors(table, "observations", ["observations"], flatten), moving, table.name)
        unflagged = np.sum(~ends[jumped])
        notes.append(f"cut at {len(jumped)} jumps of the observations, {unflagged} of them not flagged in the file")
        ends[jumped] = True
    ends[-1:] = True
    last = np.flatnonzero(ends)
    lengths = np.diff(last, prepend=-1).astype(np.int64)
    used = dict(table.columns)
    used.pop("next_observations", None)
    found = of_table(replace(table, kind="d4rl", columns=used), None, flatten, True, extras, lengths)
    ended = tables.endings(last[lengths >= 2], terminals, timeouts)
    found = replace(found, endings=ended, notes=(*notes, *found.notes))
    return with_numbers(found, range(KITCHEN_COLUMNS[1])) if convention == "kitchen" else found


def _jumps_of(observations: Column, columns: Sequence[int] | None, name: str) -> np.ndarray:
    rows, width = observations.shape
    moving = list(range(width) if columns is None else columns)
    if moving and width <= max(moving):
        raise HilpError(f"{name}: observations of {width} numbers have no place in columns {columns}")
    steps = StepSizes()
    block = min(block_rows(observations.shape, np.dtype(np.float32)), MOST_BLOCK_ROWS)
    for start in range(0, rows, block):
        steps.add(observations[start : start + block][:, moving])
    return jumps(steps.sizes)


def _hints(table: Table, width: int, terminals: np.ndarray, convention: str | None) -> list[str]:
    """What the file looks like, for a person to decide on."""
    hints = []
    if convention is None and np.any(terminals[1:] & terminals[:-1]):
        hints.append(
            "terminals are true in rows that follow each other, as in AntMaze files, where they mean 'at the goal' and "
            "the walk goes on: if this is one, pass convention='antmaze'"
        )
    if convention is None and width == KITCHEN_COLUMNS[0]:
        hints.append(
            "observations have 60 numbers, as in Kitchen files, where the last 30 are the goal: if this is one, pass "
            "convention='kitchen'"
        )
    if "next_observations" in table.columns:
        hints.append("next_observations are not used: the row after is the next observation")
    return hints


def of_table(
    table: Table,
    columns: Chosen = None,
    flatten: bool = False,
    drop_short: bool = False,
    extras: Names = None,
    lengths: np.ndarray | None = None,
    otherwise: str | None = None,
) -> Source:
    """The rows of a table's columns, of which `columns` says what they are: what every format with names ends in.

    lengths: rows of each episode, where no column is to say it; otherwise: the note where none does, and all is one.
    """
    chosen: Columns = expanded({} if columns is None else columns, table.columns)
    table, parts = _renamed(table, chosen, KNOWN if lengths is None else PARTS)
    observations, following = (_tree(table, parts, what, chosen, flatten) for what in TREES)
    if observations is None or "actions" not in parts:
        raise _missing(table, "observations" if observations is None else "actions", chosen)
    actions = vectors(table, "actions", parts["actions"], single=_is_list(chosen, "actions"))
    rows = next(iter(trees.named(observations, "").values())).shape[0]
    spent = set().union(*parts.values())
    spent |= {name for name in table.columns if name.partition("/")[0] in {*TREES} - parts.keys()}
    kept, notes = extra_columns(table, spent, (rows, actions.shape[0]), extras)
    endings: dict[str, int] = {}
    if lengths is None:
        lengths, endings, said = _episode_lengths(table, parts, rows, otherwise)
        notes = [*said, *notes]
    found = lay_out(table, lengths, columns_of(observations, actions, kept), following)
    seen = () if isinstance(observations, Mapping) else _described(table, chosen, "observations")
    acted = _described(table, chosen, "actions")
    found = replace(found, endings=endings, notes=tuple(notes), observation_parts=seen, action_parts=acted)
    return without_short(found) if drop_short else found


def _tree(table: Table, parts: Mapping[str, list[str]], what: str, columns: Columns, flatten: bool) -> Tree | None:
    """Observations, or those that follow: the arrays named for them, else the tree `what/...`, if there is one."""
    if what in parts:
        return parts_of(table, what, parts[what], flatten, _is_list(columns, what))
    inside = {} if what in table.columns else trees.unnamed(table.columns, what)
    if inside and flatten:
        raise HilpError(f"{table.name}: {what} are named parts, which keep their shapes: leave out flatten")
    return named_parts(table, what, inside) if inside else None


def _missing(table: Table, key: str, columns: Columns) -> HilpError:
    way = f" (say which it is with columns={{'{key}': ...}} / --columns {key}=...)"
    there = some(sorted(table.columns)) + ("" if columns else way)
    return HilpError(f"{table.name}: there is no '{key}' array among: {there if table.columns else 'nothing'}")


def _described(table: Table, columns: Columns, what: str) -> Parts:
    return tuple((name, table.columns[name].shape[1:]) for name in listed(columns, what))


def _is_list(columns: Columns, what: str) -> bool:
    """Of a list of columns that the user names, one number a row is enough."""
    return not isinstance(columns.get(what, ""), str)


def natural(name: str) -> list[tuple[int, str]]:
    """Sorts run_2 before run_10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def listed(columns: Chosen, what: str) -> list[str]:
    """The columns that the user names for something."""
    names: Any = (columns or {}).get(what, [])
    return list(names) if isinstance(names, list | tuple) else [names]


def expanded(columns: Any, known: Collection[str]) -> Any:
    """The same with the columns that patterns such as q_* stand for, in their own order; * alone is the rest."""
    if not isinstance(columns, Mapping):
        return columns  # told where columns are read
    found = dict(columns)
    for is_rest in (False, True):
        taken = {*KNOWN, *(name for what in found for name in listed(found, what) if isinstance(name, str))}
        for what in columns:
            before = listed(found, what)
            names = [one for name in before for one in _fitting(name, known, taken, is_rest)]
            found[what] = found[what] if names == before else names
    return found


def _fitting(name: Any, known: Collection[str], taken: Collection[str], is_rest: bool) -> list[Any]:
    """The columns that a name stands for, of those that nothing names; itself where there are none."""
    if not isinstance(name, str) or "*" not in name or name in known or (name == "*") != is_rest:
        return [name]
    fits = re.compile(".*".join(map(re.escape, name.split("*"))), re.DOTALL).fullmatch
    return [one for one in known if fits(one) and one not in taken] or [name]


def named_for(columns: Chosen, what: str) -> str:
    """The one column of this meaning: as the user says, else by its own name."""
    return next(iter(listed(columns, what)), what)


def _renamed(table: Table, columns: Columns, known: Sequence[str]) -> tuple[Table, dict[str, list[str]]]:
    """The table, and which of its columns are what: by their own names, or as the user says."""
    if not isinstance(columns, Mapping):
        raise HilpError("columns is a mapping of what to which array, {'observations': 'state', ...}")
    purpose = _purposes(table, columns)
    parts = {name: [name] for name in known if name in table.columns and name not in purpose}
    renamed = dict(table.columns)
    for what in columns:
        names = listed(columns, what)
        if purpose.get(what, what) != what:
            problem = f"takes '{what}' for {purpose[what]} and calls {names[0]} '{what}'"
            raise HilpError(f"{table.name}: columns {problem}: choose another name")
        if what in known:
            parts[what] = names
        elif len(names) > 1:
            raise HilpError(f"{table.name}: only observations and actions can have several arrays, not '{what}'")
        elif what not in KNOWN and what in table.columns and names != [what]:
            problem = f"calls {names[0]} '{what}', but there is an array '{what}' already"
            raise HilpError(f"{table.name}: columns {problem}: choose another name")
        else:
            renamed[what] = renamed.pop(names[0])
    return replace(table, columns=renamed), parts


def _purposes(table: Table, columns: Columns) -> dict[str, str]:
    """What each array was chosen for, which is one thing only: maps that repeat could be read in two ways."""
    purpose: dict[str, str] = {}
    for what in columns:
        names = listed(columns, what)
        meant = nearest(what, KNOWN, MISSPELT)
        if what not in KNOWN and what not in table.columns and meant.startswith("did you"):
            raise HilpError(f"{table.name}: columns names '{printable(str(what))}', which means nothing: {meant}")
        if not isinstance(what, str) or not names or not all(isinstance(name, str) for name in names):
            meant = printable(str(what))
            raise HilpError(f"{table.name}: columns must name an array, or a list of arrays, for {meant}")
        for name in names:
            if name not in table.columns:
                # Episodes of a log may be called by words, which are columns only once they are named for this.
                words = table.others if what == "episode_ids" and table.kind in ("csv", "parquet") else ()
                close = nearest(name, [*table.columns, *words])
                raise HilpError(f"{table.name}: there is no array '{name}' for {what}: {close}")
            if name in purpose:
                both = what if purpose[name] == what else f"{purpose[name]} and {what}"
                raise HilpError(f"{table.name}: columns names the array '{name}' twice, for {both}: name each once")
            purpose[name] = what
    return purpose


def _episode_lengths(
    table: Table, parts: Mapping[str, list[str]], rows: int, otherwise: str | None
) -> tuple[np.ndarray, dict[str, int], list[str]]:
    """Rows of each episode, how many end in which way, and a note where nothing says it."""
    found = [key for key in STRUCTURE if key in parts] or list({"timeouts"} & parts.keys())
    if not found and otherwise is not None:
        return np.array([rows], np.int64)[: rows > 0], {}, [otherwise]
    if len(found) != 1:
        problem = "nothing says where episodes end" if not found else f"there are both {' and '.join(found)}"
        raise HilpError(f"{table.name}: {problem}: give exactly one of {', '.join(STRUCTURE)}")
    (key,) = found
    if key in ("terminals", "timeouts"):
        return *_lengths_by_flags(table, parts, rows), []
    column = table[parts[key][0]]
    if len(column.shape) != 1:
        raise HilpError(f"{table.name}: {key} must be a flat array, not {column.shape}")
    if key == "episode_ids":
        return _lengths_by_id(column[:], rows, table.name), {}, []
    return _lengths_by_number(column[:], key, rows, table.name), {}, []


def _lengths_by_flags(table: Table, parts: Mapping[str, list[str]], rows: int) -> tuple[np.ndarray, dict[str, int]]:
    names = [parts.get(what, [""])[0] for what in ("terminals", "timeouts")]
    terminals, timeouts = (tables.flags(table, name, rows) for name in names)
    ends = np.flatnonzero(terminals | timeouts)
    if not rows or not len(ends) or ends[-1] != rows - 1:
        raise HilpError(f"{table.name}: the last row is not terminal, so the last episode has no end: mark or cut it")
    ended = tables.endings(ends, terminals, timeouts) if "timeouts" in parts else {}
    return np.diff(ends, prepend=-1).astype(np.int64), ended


def _lengths_by_number(values: np.ndarray, key: str, rows: int, name: str) -> np.ndarray:
    """Of episode_lengths, or of episode_ends."""
    if values.dtype.kind not in "iuf" or not np.array_equal(values, np.floor(values)) or np.any(np.abs(values) > 2**62):
        raise HilpError(f"{name}: {key} must be whole numbers, not {values.dtype}")
    values = values.astype(np.int64)
    lengths = np.diff(values, prepend=0) if key == "episode_ends" else values
    if len(lengths) == 0 or lengths.min() < 1:
        raise HilpError(f"{name}: {key} hold an empty episode: lengths must be positive, ends must increase")
    total = int(lengths.sum(dtype=object))
    if total != rows:
        raise HilpError(f"{name}: {key} end at row {total} but there are {rows} observations")
    return lengths


def _lengths_by_id(ids: np.ndarray, rows: int, name: str) -> np.ndarray:
    if ids.dtype.kind in tables.UNUSABLE:
        raise HilpError(f"{name}: episode_ids are {ids.dtype}: turn them into plain numbers or names")
    if len(ids) != rows:
        raise HilpError(f"{name}: {rows} observations but {len(ids)} episode_ids: give one a row")
    starts = np.flatnonzero(np.concatenate([np.ones(min(rows, 1), bool), ids[1:] != ids[:-1]]))
    if len(np.unique(ids[starts])) != len(starts):
        seen, counts = np.unique(ids[starts], return_counts=True)
        apart = seen[np.argmax(counts)]
        raise HilpError(f"{name}: the rows of episode '{apart}' are not together: sort the rows by episode_ids")
    return np.diff(starts, append=rows).astype(np.int64)
