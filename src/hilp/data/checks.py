"""What is wrong with this data, said so that a person can fix it."""

from __future__ import annotations

import numpy as np

from hilp.data.dataset import Dataset
from hilp.errors import HilpError

BLOCK_ROWS = 1 << 16
ACTION_TOLERANCE = 1e-4  # of [-1, 1], for simulators that return 1.0000001


def some(values: np.ndarray, limit: int = 5) -> str:
    """The first few of a list of numbers, and how many more there are."""
    shown = ", ".join(str(int(v)) for v in values[:limit])
    return shown + (f" and {len(values) - limit} more" if len(values) > limit else "")


def not_finite_rows(array: np.ndarray) -> np.ndarray:
    """Rows that hold a NaN or an infinity, found block by block so that mapped files need no memory."""
    found = [np.zeros(0, np.int64)]
    for start in range(0, len(array), BLOCK_ROWS):
        block = np.asarray(array[start : start + BLOCK_ROWS])
        found.append(start + np.flatnonzero(~np.isfinite(block.reshape(len(block), -1)).all(axis=1)))
    return np.concatenate(found)


def require_trainable(data: Dataset) -> None:
    """Raise one clear line about the first thing that makes training impossible or meaningless."""
    if data.rows == 0 or data.episodes == 0:
        raise HilpError(f"{data.name}: there are no episodes")
    short = np.flatnonzero(data.lengths < 2)
    if len(short):
        raise HilpError(
            f"{data.name}: episodes {some(short)} have fewer than two rows, so no transition: remove them "
            "(an episode of T steps is T + 1 observations)"
        )
    for name, array in (("observations", data.observations), ("actions", data.actions)):
        rows = not_finite_rows(array)
        if name == "actions":
            rows = rows[np.isin(rows, data.transition_rows)]
        if len(rows):
            raise HilpError(f"{data.name}: NaN or infinite {name} in rows {some(rows)}: remove or repair these rows")
    low, high = action_range(data)
    if low.min() < -1.0 - ACTION_TOLERANCE or high.max() > 1.0 + ACTION_TOLERANCE:
        worst = int(np.argmax(np.maximum(-low, high)))
        raise HilpError(
            f"{data.name}: actions leave [-1, 1] (column {worst} spans {low[worst]:.4g} to {high[worst]:.4g}): scale them "
            "yourself, or let rescale_actions=True / --rescale-actions map each column's range to [-1, 1]"
        )


def action_range(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest used value of each action column."""
    used = np.asarray(data.actions)[data.transition_rows]
    return used.min(axis=0), used.max(axis=0)
