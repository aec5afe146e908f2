"""Angles that wrap: columns that jump by one period where they go on.

An angle of period P stays within a range of P, moves by less than a quarter of P a step, and where it wraps it moves by
nearly P. Nothing else is taken for one: who knows better names the column with its period.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hilp.data.source import Source

PERIODS = (2.0 * math.pi, 360.0)
SMALL, WHOLE = 0.25, 1.01  # shares of a period: of a step, and of a wrap or the range at most
REACH = 0.9  # of a period: the range of an angle that wraps
ODD = 0.1  # steps that are neither small nor wraps, for each wrap, that noise may make


class Wrapped(NamedTuple):
    """A column that wraps."""

    column: int
    period: float
    wraps: int


class Wraps:
    """Counts steps inside episodes by their size, from blocks of rows in order."""

    def __init__(self, source: Source, width: int):
        self._last_rows = source.stops - 1
        self._before: np.ndarray | None = None
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)
        edges = (SMALL, 1.0 - SMALL, WHOLE)
        self._edges = [share * period for period in PERIODS for share in edges]
        self.above = np.zeros((len(self._edges), width), np.int64)  # steps beyond each edge

    def add(self, first: int, rows: np.ndarray) -> None:
        """Rows from `first` on."""
        at = first
        if self._before is not None:
            rows, at = np.concatenate([self._before, rows]), first - 1
        self._before = np.array(rows[-1:])
        with np.errstate(invalid="ignore", over="ignore"):
            finite = np.isfinite(rows)
            self.low = np.minimum(self.low, np.where(finite, rows, np.inf).min(axis=0))
            self.high = np.maximum(self.high, np.where(finite, rows, -np.inf).max(axis=0))
            steps = np.abs(np.diff(rows, axis=0))
            low, high = np.searchsorted(self._last_rows, [at, at + len(steps)])
            steps[self._last_rows[low:high] - at] = 0.0
            for number, edge in enumerate(self._edges):  # a step that is not finite is no step
                self.above[number] += ((steps > edge) & (steps < np.inf)).sum(axis=0)

    def found(self) -> list[Wrapped]:
        """The columns that wrap, after all blocks."""
        wrapped = []
        for number, period in enumerate(PERIODS):
            moving, wrapping, beyond = self.above[3 * number : 3 * number + 3]
            wraps = wrapping - beyond
            odd = moving - wraps
            with np.errstate(invalid="ignore"):
                reach = (self.high - self.low) / period
            fits = (wraps > 0) & (odd <= ODD * wraps) & (reach >= REACH) & (reach <= WHOLE)
            wrapped += [Wrapped(int(column), period, int(wraps[column])) for column in np.flatnonzero(fits)]
        return sorted(wrapped)
