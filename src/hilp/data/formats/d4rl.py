"""D4RL's HDF5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hilp.data import tables
from hilp.data.columns import block_rows
from hilp.data.measures import StepSizes, jumps
from hilp.data.source import MOST_BLOCK_ROWS, Source, without_short
from hilp.data.tables import Part, Table, lay_out, open_table, vectors
from hilp.errors import HilpError, nearest

KITCHEN_COLUMNS = (60, 30)  # numbers in a row of a D4RL Kitchen file, and how many of them are not the goal
ANTMAZE_PLACE = (0, 1)  # columns of an AntMaze observation that say where the ant is


def read(
    source: Mapping[str, Any] | Path,
    *,
    convention: Literal["antmaze", "kitchen"] | None = None,
    detect_jumps: bool = False,
    flatten: bool = False,
    extras: Sequence[str] | None = None,
) -> Source:
    """D4RL's HDF5 (or a dict or .npz of the same arrays): rows in order, an episode ends at a terminal or a timeout.

    Consecutive rows of an episode are consecutive states, so the last row of each is its final state. `detect_jumps`
    also cuts where observations jump, for files with wrong or no timeouts. Conventions: "antmaze" cuts at timeouts and
    never at terminals (they mean "at the goal", and the walk goes on), or at jumps of the place where there are no
    timeouts; "kitchen" keeps the first 30 of 60 numbers, the others being the goal. Rewards, flags and infos become
    extras.
    """
    table = open_table(source)
    width = (table["observations"].shape[1:] or (0,))[0]
    _require_convention(convention, table.name, width)
    keep = range(KITCHEN_COLUMNS[1]) if convention == "kitchen" else None
    observations = vectors(table, "observations", ["observations"], flatten, keep)
    actions = vectors(table, "actions", ["actions"])
    rows = observations.rows
    flags = {name: tables.flags(table, name, rows) for name in ("terminals", "timeouts")}
    notes = _hints(table, width, flags["terminals"], convention)
    jumping = ANTMAZE_PLACE if convention == "antmaze" else None
    if convention == "antmaze":
        flags["terminals"] = None  # they mean "at the goal", and the walk goes on
        detect_jumps = detect_jumps or flags["timeouts"] is None
    if not detect_jumps and flags["terminals"] is None and flags["timeouts"] is None:
        raise HilpError(
            f"{table.name}: nothing says where episodes end (no terminals, no timeouts): pass detect_jumps=True to cut "
            "where observations jump, or use format='hdf5' with columns"
        )
    terminals, timeouts = (np.zeros(rows, bool) if flag is None else flag for flag in flags.values())
    ends = terminals | timeouts
    if detect_jumps:
        found = _jumps_of(observations, jumping, table.name)
        notes.append(
            f"cut at {len(found)} jumps of the observations, {np.sum(~ends[found])} of them not flagged in the file"
        )
        ends[found] = True
    ends[-1:] = True
    last = np.flatnonzero(ends)
    lengths = np.diff(last, prepend=-1).astype(np.int64)
    kept, odd = tables.extra_columns(table, ("observations", "actions", "next_observations"), (rows,), extras)
    laid_out = lay_out(table, "d4rl", lengths, observations, actions, None, kept, None, [*notes, *odd])
    return replace(without_short(laid_out), endings=tables.endings(last[lengths >= 2], terminals, timeouts))


def _require_convention(convention: str | None, name: str, width: int) -> None:
    if convention not in (None, "antmaze", "kitchen"):
        raise HilpError(f"unknown convention '{convention}': {nearest(str(convention), ('antmaze', 'kitchen'))}")
    if convention == "kitchen" and width != KITCHEN_COLUMNS[0]:
        raise HilpError(f"{name}: Kitchen files have rows of {KITCHEN_COLUMNS[0]} numbers, this one has {width}")


def _jumps_of(observations: Part, columns: Sequence[int] | None, name: str) -> np.ndarray:
    if columns is not None and observations.kind.shape[0] <= max(columns):
        raise HilpError(
            f"{name}: observations of {observations.kind.shape[0]} numbers have no place in columns {columns}"
        )
    steps = StepSizes(columns)
    block = min(block_rows((1, *observations.kind.shape), np.dtype(np.float32)), MOST_BLOCK_ROWS)
    for start in range(0, observations.rows, block):
        steps.add(observations.read(start, min(start + block, observations.rows)))
    return jumps(steps.sizes)


def _hints(table: Table, width: int, terminals: np.ndarray | None, convention: str | None) -> list[str]:
    """What the file looks like, for a person to decide on."""
    hints = []
    if convention is None and terminals is not None and np.any(terminals[1:] & terminals[:-1]):
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
