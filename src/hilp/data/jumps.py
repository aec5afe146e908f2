"""Where observations jump: the marks of a reset that nobody flagged.

The size of a step is the mean over columns of |change| / (the column's usual |change|), each at most MOST, so that one
sensor's spike is no jump but a reset, which moves everything, is. A step is a jump when it is far larger than the
typical step and than nearly all steps. Resets are found where episodes are longer than about twenty rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MOST = 50.0  # a column's share in a step size, in units of its usual change
TYPICAL, UPPER = 10.0, 3.0  # a jump exceeds this many medians, and this many 95th percentiles, of the step sizes


class StepSizes:
    """The size of the step from each row to the next, from blocks of rows in order."""

    def __init__(self, columns: Sequence[int] | None = None):
        self._columns = None if columns is None else list(columns)
        self._sizes: list[np.ndarray] = []
        self._before: np.ndarray | None = None
        self._usual: np.ndarray | None = None  # measured on the first block that moves

    def add(self, observations: np.ndarray) -> None:
        rows = observations if self._columns is None else observations[:, self._columns]
        rows = np.asarray(rows, np.float32)
        if self._before is not None:
            rows = np.concatenate([self._before, rows])
        self._before = rows[-1:].copy()
        with np.errstate(invalid="ignore", over="ignore"):
            change = np.abs(np.diff(rows, axis=0))
            change[~np.isfinite(change)] = 0.0
            if self._usual is None and change.any():
                self._usual = np.median(change, axis=0)
            moving = np.zeros(rows.shape[1], bool) if self._usual is None else self._usual > 0
            if self._usual is None or not moving.any():  # nothing moves by itself, so nothing tells a jump apart
                self._sizes.append(np.zeros(len(change), np.float32))
                return
            relative = np.minimum(change[:, moving] / self._usual[moving], MOST)
        self._sizes.append(relative.mean(axis=1, dtype=np.float32))

    @property
    def sizes(self) -> np.ndarray:
        """[rows - 1]: entry i is the step from row i to row i + 1."""
        return np.concatenate([np.zeros(0, np.float32), *self._sizes])


def jumps(sizes: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
    """Rows i whose step to i + 1 is a jump; only steps marked in `among` are looked at."""
    steps = np.arange(len(sizes)) if among is None else np.flatnonzero(among)
    if not len(steps):
        return steps
    chosen = sizes[steps]
    median, upper = np.quantile(chosen, [0.5, 0.95])
    return np.asarray(steps[chosen > max(TYPICAL * median, UPPER * upper)])
