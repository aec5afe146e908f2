"""View: which columns of an observation the networks see, and which of them are angles.

Rows stay as they are recorded, in files, goals, banks and rewards; a view stands between them and the networks, in
training as in the policy, which takes it along.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

BLOCK = 1 << 16  # rows that are turned at a time


@dataclass(frozen=True)
class View:
    """Of observations of `width` numbers: columns that are seen, in order, an angle as its sine and its cosine."""

    width: int
    seen: tuple[int, ...]
    angles: tuple[tuple[int, float], ...] = ()  # column, period; all of them seen

    @cached_property
    def size(self) -> int:
        """Numbers that networks see."""
        return len(self.seen) + len(self.angles)

    @cached_property
    def places(self) -> tuple[np.ndarray, ...]:
        """Columns that pass as they are and where they go; angles, where their sines go, their unit in radians."""
        turning = dict(self.angles)
        wide = [2 if column in turning else 1 for column in self.seen]
        begin = np.cumsum([0, *wide])[:-1]
        plain = [n for n, column in enumerate(self.seen) if column not in turning]
        turned = [n for n, column in enumerate(self.seen) if column in turning]
        columns = np.array(self.seen, np.int64)
        radians = np.array([2.0 * math.pi / turning[self.seen[n]] for n in turned])
        return columns[plain], begin[plain], columns[turned], begin[turned], radians

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """One observation or a batch, as the networks see it."""
        plain, into, turned, sines, radians = self.places
        found = np.empty((*rows.shape[:-1], self.size), np.float32)
        found[..., into] = rows[..., plain]
        angles = np.asarray(rows[..., turned], np.float64) * radians
        found[..., sines], found[..., sines + 1] = np.sin(angles), np.cos(angles)
        return found

    def of(self, rows: Any) -> Viewed:
        """All rows of a data set, turned as they are asked for."""
        return Viewed(rows, self)

    def to_json(self) -> dict[str, Any]:
        return {"width": self.width, "seen": list(self.seen), "angles": [[c, period] for c, period in self.angles]}

    @staticmethod
    def from_json(described: Any) -> View:
        """From plain values; a ValueError where they describe no view."""
        if not isinstance(described, Mapping) or set(described) != {"width", "seen", "angles"}:
            raise ValueError("a view has a width, columns that are seen, and angles")
        width, seen, angles = (described[key] for key in ("width", "seen", "angles"))
        numbers = [width, *seen, *(column for column, _ in angles)]
        if not all(type(number) is int and number >= 0 for number in numbers) or not seen:
            raise ValueError("the columns of a view are whole numbers")
        turning = {column: float(period) for column, period in angles}
        if list(seen) != sorted(set(seen)) or max(seen) >= width or not turning.keys() <= set(seen):
            raise ValueError("a view names columns that are not there, or twice")
        if len(turning) != len(angles) or not all(0.0 < period < math.inf for period in turning.values()):
            raise ValueError("the periods of a view's angles are numbers above 0")
        return View(width, tuple(seen), tuple(sorted(turning.items())))

    @property
    def text(self) -> str:
        """The same text for equal views, to be hashed."""
        return json.dumps(self.to_json(), sort_keys=True)


class Viewed:
    """Rows that may lie in a file, through a view: what `trees`, samplers and numpy ask of an array of rows."""

    dtype = np.dtype(np.float32)
    ndim = 2

    def __init__(self, rows: Any, view: View):
        self._rows, self._view = rows, view
        self.shape = (len(rows), view.size)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        return self._view(np.asarray(self._rows[index]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = np.empty(self.shape, np.float32)
        for first in range(0, len(self), BLOCK):
            found[first : first + BLOCK] = self[first : first + BLOCK]
        return found if dtype is None else found.astype(dtype, copy=False)
