"""Named arrays: a dict, an .npz or an HDF5 file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hilp.data import tables
from hilp.data.columns import NUMBERS
from hilp.data.metadata import Parts
from hilp.data.source import Source, chain, choose_extras
from hilp.data.tables import Part, Table, identity_of, lay_out, left_out, open_table, parts_of, without_short
from hilp.errors import HilpError, nearest, some

PARTS = ("observations", "actions", "next_observations")
STRUCTURE = ("episode_lengths", "episode_ends", "episode_ids", "terminals")  # columns that say where episodes end
KNOWN = (*PARTS, *STRUCTURE, "timeouts")

Columns = Mapping[str, str | Sequence[str]]


def read(
    source: Mapping[str, Any] | Path,
    *,
    columns: Columns | None = None,
    flatten: bool = False,
    drop_short: bool = False,
    extras: Sequence[str] | None = None,
) -> Source:
    """Named arrays: a dict, an .npz or an HDF5 file.

    `observations` [rows, d] and `actions`, with one of: `episode_lengths` (rows of each episode), `episode_ends` (the
    row number after each episode's last), `episode_ids` (a number or name a row, the same within an episode),
    `terminals` (true on each episode's last row; `timeouts` beside them end an episode too). Actions have a row per
    observation (the last of each episode is ignored) or one fewer per episode. With `next_observations` every row is a
    whole transition instead, and the final state of each episode is added. Any other array with a row per observation
    becomes a named extra column. Observations may be a named tree: a dict of arrays, or `observations/NAME` in a file.

    `columns` says what these arrays are called in the source, {"observations": ["qpos", "qvel"], "actions": "ctrl"}:
    several are put side by side. Rows of bytes [height, width, channels] stay pictures, in a named tree (`pixels` where
    there is nothing else); `flatten` lays them out as plain numbers; `drop_short` leaves out episodes of one row.
    """
    return of_table(open_table(source), columns, flatten, drop_short, extras)


def of_table(
    table: Table,
    columns: Columns | None = None,
    flatten: bool = False,
    drop_short: bool = False,
    extras: Sequence[str] | None = None,
    otherwise: str | None = None,
) -> Source:
    """The rows of a table's columns; `otherwise`: the note where nothing says where episodes end, and all is one."""
    renamed, parts = _renamed(table, columns)
    trees = {
        key: [name for name in renamed.columns if name.startswith(f"{key}/")]
        for key in ("observations", "next_observations")
        if key not in parts
    }
    for key in ("observations", "actions"):
        if key not in parts and not trees.get(key):
            way = f" (say which it is with columns={{'{key}': ...}} / --columns {key}=...)"
            raise HilpError(
                f"{table.name}: there is no '{key}' array among: {some(sorted(table.columns)) or 'nothing'}"
                + ("" if columns or not table.columns else way)
            )
    listed = {what for what, names in (columns or {}).items() if not isinstance(names, str)}
    observations = parts_of(
        renamed, "observations", parts.get("observations"), flatten, single="observations" in listed
    )
    actions = Part(renamed, "actions", parts["actions"], single="actions" in listed)
    following = None
    if "next_observations" in parts or trees["next_observations"]:
        following = parts_of(
            renamed, "next_observations", parts.get("next_observations"), flatten, "next_observations" in listed
        )
    notes: list[str] = []
    endings: dict[str, int] = {}
    if otherwise is not None and not any(key in parts for key in (*STRUCTURE, "timeouts")):
        lengths = np.array([observations.rows] * bool(observations.rows), np.int64)
        notes.append(otherwise)
    else:
        lengths, endings = _episode_lengths(renamed, parts, observations.rows)
    spent = {name for names in (*parts.values(), *trees.values()) for name in names}
    others = {name: column for name, column in renamed.columns.items() if name not in spent}
    if table.kind != "arrays":  # a file is as it is; a dict can be given without what does not fit
        fits = {observations.rows, actions.rows}
        odd = [n for n, c in others.items() if c.shape[:1] not in {(r,) for r in fits} or c.dtype.kind not in NUMBERS]
        others = {name: column for name, column in others.items() if name not in odd}
        notes += left_out([*odd, *table.others])
    for name, column in others.items():
        if column.dtype.kind not in NUMBERS:
            raise HilpError(f"{table.name}: extra column '{name}' is not numbers ({column.dtype}): drop it")
    kept = {name: others[name] for name in choose_extras(others, extras, table.name)}
    found = lay_out(renamed, table.kind, lengths, observations, actions, following, kept, endings, notes)
    if columns and "observations" in columns and isinstance(observations, Part):
        found = replace(found, observation_parts=_shapes(renamed, parts["observations"]))
    if columns and "actions" in columns:
        found = replace(found, action_parts=_shapes(renamed, parts["actions"]))
    return without_short(found) if drop_short else found


def _shapes(table: Table, names: Sequence[str]) -> Parts:
    return tuple({name: table.columns[name].shape[1:] for name in names}.items())


def of_tables(
    tables: Sequence[Table],
    source: Path,
    files: Sequence[Path],
    columns: Columns | None,
    drop_short: bool,
    extras: Sequence[str] | None,
) -> Source:
    """One log in several files with the same columns; without a column that tells episodes, a file is one."""
    kind = tables[0].kind
    unknown = [name for name in columns or {} if not listed(columns, name)]
    if unknown:
        raise HilpError(f"{source}: columns names nothing for {unknown[0]}")
    if len(tables) > 1 and extras is None:  # those that all of them have
        taken = {name for what in columns or {} for name in listed(columns, what)} - {named_for(columns, "time")}
        shared = set.intersection(*(set(table.columns) for table in tables)) - taken - set(KNOWN)
        extras = [
            "time" if name == named_for(columns, "time") else name for name in tables[0].columns if name in shared
        ]
    note = f"nothing names episodes, so {'each file is' if source.is_dir() else 'the file is'} one"
    sources = [of_table(table, columns, False, drop_short, extras, note) for table in tables]
    whole = chain(sources, str(source), [file.name for file in files])
    return replace(
        whole,
        format=kind,
        disk_bytes=sum(file.stat().st_size for file in files),
        identity=identity_of(files),
    )


def log_files(source: Path, endings: Sequence[str]) -> list[Path]:
    """The file, or those of a folder in the order of their names, in which numbers count as such."""
    source = source.absolute()  # rows may be read as they are needed, wherever this process then is
    if not source.is_dir():
        return [source]
    found = [file for file in source.iterdir() if file.suffix.lower() in endings and not file.name.startswith(".")]
    if not found:
        raise HilpError(f"{source} has no files that end in {' or '.join(endings)}")
    return sorted(found, key=lambda file: natural(file.name))


def natural(name: str) -> list[tuple[int, str]]:
    """Sorts run_2 before run_10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def listed(columns: Columns | None, what: str) -> list[str]:
    """The columns that the user names for something."""
    names = (columns or {}).get(what, [])
    return [names] if isinstance(names, str) else list(names)


def named_for(columns: Columns | None, what: str) -> str:
    """The one column of this meaning: as the user says, else by its own name."""
    return next(iter(listed(columns, what)), what)


def _renamed(table: Table, columns: Columns | None) -> tuple[Table, dict[str, list[str]]]:
    """The table, and which of its columns are what: by their own names, or as the user says."""
    chosen = {} if columns is None else _chosen(table, columns)
    taken = {name for names in chosen.values() for name in names}
    parts = {name: [name] for name in KNOWN if name in table.columns and name not in taken}
    renamed = dict(table.columns)
    for what, names in chosen.items():
        if what in KNOWN:
            parts[what] = names
        elif len(names) == 1:
            renamed[what] = renamed.pop(names[0])
        else:
            raise HilpError(f"{table.name}: only observations and actions can have several arrays, not '{what}'")
    return replace(table, columns=renamed), parts


def _chosen(table: Table, columns: Columns) -> dict[str, list[str]]:
    """What the user says, with each array in one place only: maps that chain or repeat could be read in two ways."""
    if not isinstance(columns, Mapping):
        raise HilpError("columns is a mapping of what to which array, {'observations': 'state', ...}")
    chosen: dict[str, list[str]] = {}
    user: dict[str, str] = {}  # array -> what it was chosen for
    for what, names in columns.items():
        found: list[Any] = list(names) if isinstance(names, list | tuple) else [names]
        if not isinstance(what, str) or not found or not all(isinstance(name, str) for name in found):
            raise HilpError(f"{table.name}: columns must name an array, or a list of arrays, for {what}")
        for name in found:
            if name not in table.columns:
                # Episodes of a log may be called by words, which are columns only once they are named for this.
                words = table.others if what == "episode_ids" and table.kind in ("csv", "parquet") else ()
                close = nearest(name, [*table.columns, *words])
                raise HilpError(f"{table.name}: there is no array '{name}' for {what}: {close}")
            if name in user:
                both = what if user[name] == what else f"{user[name]} and {what}"
                raise HilpError(f"{table.name}: columns names the array '{name}' twice, for {both}: name each once")
            user[name] = what
        chosen[what] = found
    for what, names in chosen.items():
        if user.get(what, what) != what:
            raise HilpError(
                f"{table.name}: columns takes '{what}' for {user[what]} and calls {names[0]} '{what}': choose another "
                "name"
            )
        if what not in KNOWN and what in table.columns and names != [what]:
            raise HilpError(
                f"{table.name}: columns calls {names[0]} '{what}', but there is an array '{what}' already: choose "
                "another name"
            )
    return chosen


def _episode_lengths(table: Table, parts: Mapping[str, list[str]], rows: int) -> tuple[np.ndarray, dict[str, int]]:
    """Rows of each episode, and how many end in which way."""
    given = [key for key in STRUCTURE if key in parts]
    if not given and "timeouts" in parts:
        given = ["timeouts"]
    if len(given) != 1:
        problem = "nothing says where episodes end" if not given else f"both {' and '.join(given)} are given"
        raise HilpError(f"{table.name}: {problem}: give exactly one of {', '.join(STRUCTURE)}")
    key, name = given[0], parts[given[0]][0]
    if key in ("terminals", "timeouts"):
        named = {what: tables.flags(table, parts[what][0], rows) for what in ("terminals", "timeouts") if what in parts}
        terminals, timeouts = (
            np.zeros(rows, bool) if (f := named.get(w)) is None else f for w in ("terminals", "timeouts")
        )
        ends = np.flatnonzero(terminals | timeouts)
        if not rows or not len(ends) or ends[-1] != rows - 1:
            raise HilpError(
                f"{table.name}: the last row is not terminal, so the last episode has no end: mark it or cut it"
            )
        return np.diff(ends, prepend=-1).astype(np.int64), tables.endings(
            ends, terminals, timeouts
        ) if "timeouts" in parts else {}
    column = table[name]
    if len(column.shape) != 1:
        raise HilpError(f"{table.name}: {key} must be a flat array, not {column.shape}")
    values = column[:]
    if key == "episode_ids":
        if values.dtype.kind in tables.UNUSABLE:
            raise HilpError(f"{table.name}: episode_ids are {values.dtype}: turn them into plain numbers or names")
        return _lengths_by_id(values, rows, table.name), {}
    if values.dtype.kind not in "iuf" or not np.array_equal(values, np.floor(values)) or np.any(np.abs(values) > 2**62):
        raise HilpError(f"{table.name}: {key} must be whole numbers, not {values.dtype}")
    values = values.astype(np.int64)
    if key == "episode_ends":
        values = np.diff(values, prepend=0)
    if len(values) == 0 or values.min() < 1:
        raise HilpError(f"{table.name}: {key} hold an empty episode: lengths must be positive, ends must increase")
    total = int(values.sum(dtype=object))
    if total != rows:
        raise HilpError(f"{table.name}: {key} end at row {total} but there are {rows} observations")
    return values, {}


def _lengths_by_id(ids: np.ndarray, rows: int, name: str) -> np.ndarray:
    if len(ids) != rows:
        raise HilpError(f"{name}: {rows} observations but {len(ids)} episode_ids: give one a row")
    starts = np.flatnonzero(np.concatenate([np.ones(min(rows, 1), bool), ids[1:] != ids[:-1]]))
    if len(np.unique(ids[starts])) != len(starts):
        seen, counts = np.unique(ids[starts], return_counts=True)
        raise HilpError(
            f"{name}: the rows of episode '{seen[np.argmax(counts)]}' are not together: sort the rows by episode_ids"
        )
    return np.diff(starts, append=rows).astype(np.int64)
