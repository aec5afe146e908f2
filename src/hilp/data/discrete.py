"""Discrete actions: which columns hold them, and how they are stored, as small whole numbers.

A type says what numbers mean, values do not: a column of whole-number type counts choices where it has few values, one
of floats never does unasked. What the user says goes before both.
"""

from dataclasses import replace

import numpy as np

from hilp.data.source import Kind, Rows, Source, mapped
from hilp.errors import HilpError, is_count, some

MOST_TOLD = 64  # choices that a column of whole numbers counts unasked: more values are counts, ticks or degrees
MOST = 1 << 16  # choices that can be asked for
AUTO, NONE = "auto", "none"

Wanted = int | str | None  # how many choices, "auto": as many as the data shows, "none": numbers; None: by the type


def require_wanted(value: object) -> Wanted:
    """What a user may say about discrete actions."""
    if value is None or (isinstance(value, str) and value in (AUTO, NONE)):
        return value
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not is_count(number) or not 2 <= int(number) <= MOST:  # type: ignore[call-overload]
        raise HilpError(
            f"discrete_actions is how many there are (2 to {MOST:,}), '{AUTO}' (as many as the data shows) or "
            f"'{NONE}', not {value!r:.60}"
        )
    return int(number)  # type: ignore[call-overload]


def settle(source: Source, wanted: Wanted) -> Source:
    """The source with its actions as choices where they are discrete, else as float32."""
    if source.choices and wanted in (None, AUTO):
        wanted = source.choices  # as its file says
    if source.choices == wanted and source.action.dtype.kind == "u":
        return source
    single, whole = source.action.shape == (1,), source.action.dtype.kind in "biu"
    if wanted == NONE or (wanted is None and not (single and whole)):
        return _as_numbers(source)
    if not single:
        raise HilpError(
            f"{source.name}: a discrete action is one whole number, these have {source.action.shape[0]} numbers: "
            "number their combinations, or leave out discrete_actions / --discrete-actions"
        )
    choices, told = wanted, ""
    if not isinstance(choices, int):
        low, high = _range(source)
        if wanted is None and not 0 <= low <= high < MOST_TOLD:
            return _as_numbers(source)
        choices = max(2, min(MOST, int(high) + 1) if high >= 0 else 2)
        told = f"actions are whole numbers, {low:.0f} to {high:.0f}: taken as {choices} discrete ones"
        told += "; discrete_actions / --discrete-actions says how many there are, or none" if wanted is None else ""
    if source.action_scaling is not None:
        raise HilpError(f"{source.name}: its actions were rescaled, so they are not discrete: read the file again")
    kind = Kind((1,), np.min_scalar_type(choices - 1))
    notes = (*source.notes, told) if told else source.notes

    def read(start: int, stop: int) -> Rows:
        block = source.read(start, stop)
        return {**block, "actions": _chosen(source, start, block["actions"], choices).astype(kind.dtype)}

    columns = {**source.columns, "actions": kind}
    return replace(source, read=read, columns=columns, choices=choices, notes=notes)


def _as_numbers(source: Source) -> Source:
    """Actions as float32, whatever they were."""
    if source.action.dtype == np.float32:
        return source
    columns = {**source.columns, "actions": Kind(source.action.shape, np.dtype(np.float32))}
    return mapped(
        source,
        lambda block: {**block, "actions": block["actions"].astype(np.float32)},
        columns=columns,
        choices=0,
    )


def _range(source: Source) -> tuple[float, float]:
    """The smallest and the largest action that is used."""
    low, high = np.inf, -np.inf
    for first, block in source.blocks():
        used = np.delete(block["actions"], source.last_rows(first, len(block["actions"])))
        if np.isfinite(used).any():
            low, high = min(low, float(np.nanmin(used))), max(high, float(np.nanmax(used)))
    return low, high


def _chosen(source: Source, first: int, actions: np.ndarray, choices: int) -> np.ndarray:
    """Actions that are choices; those of last rows, which are never used, are 0 where they are none."""
    with np.errstate(invalid="ignore"):
        good = (actions >= 0) & (actions < choices) & (actions == np.round(actions))
    bad = np.setdiff1d(np.flatnonzero(~good[:, 0]), source.last_rows(first, len(actions)))
    if len(bad):
        values = some(sorted({f"{float(value):g}" for value in actions[bad, 0]}), 3)
        raise HilpError(
            f"{source.name}: actions are {values} in {source.where(first + bad)}: {choices} discrete actions are whole "
            f"numbers from 0 to {choices - 1}"
        )
    return np.where(good, actions, 0)
