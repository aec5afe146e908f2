"""What stands between recorded rows and the networks: a transform of observations, and a scaling of actions.

Files, goals, banks and rewards keep rows as they are recorded. Training applies the transform, and so does the policy,
which is saved with it.
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
class ObservationTransform:
    """Of observations of `width` numbers: columns that are columns, in order, an angle as its sine and its cosine."""

    width: int
    columns: tuple[int, ...]
    angles: tuple[tuple[int, float], ...] = ()  # column, period; all of them columns

    @cached_property
    def size(self) -> int:
        """Numbers that networks see."""
        return len(self.columns) + len(self.angles)

    @cached_property
    def places(self) -> tuple[np.ndarray, ...]:
        """Columns that pass as they are and where they go; angles, where their sines go, their unit in radians."""
        turning = dict(self.angles)
        wide = [2 if column in turning else 1 for column in self.columns]
        begin = np.cumsum([0, *wide])[:-1]
        plain = [n for n, column in enumerate(self.columns) if column not in turning]
        turned = [n for n, column in enumerate(self.columns) if column in turning]
        columns = np.array(self.columns, np.int64)
        radians = np.array([2.0 * math.pi / turning[self.columns[n]] for n in turned])
        return columns[plain], begin[plain], columns[turned], begin[turned], radians

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """One observation or a batch, as the networks see it."""
        plain, into, turned, sines, radians = self.places
        found = np.empty((*rows.shape[:-1], self.size), np.float32)
        found[..., into] = rows[..., plain]
        angles = np.asarray(rows[..., turned], np.float64) * radians
        found[..., sines], found[..., sines + 1] = np.sin(angles), np.cos(angles)
        return found

    def of(self, rows: Any) -> TransformedRows:
        """All rows of a data set, transformed when they are read."""
        return TransformedRows(rows, self)

    def to_json(self) -> dict[str, Any]:
        return {
            "width": self.width,
            "columns": list(self.columns),
            "angles": [[c, period] for c, period in self.angles],
        }

    @staticmethod
    def from_json(values: Any) -> ObservationTransform:
        """From plain values; a ValueError where they describe no transform."""
        if not isinstance(values, Mapping) or set(values) != {"width", "columns", "angles"}:
            raise ValueError("a transform of observations has a width, columns and angles")
        width, columns, angles = (values[key] for key in ("width", "columns", "angles"))
        turning = {column: float(period) for column, period in angles}
        if not columns or not all(type(number) is int and number >= 0 for number in (width, *columns, *turning)):
            raise ValueError("the columns of a transform are whole numbers")
        if list(columns) != sorted(set(columns)) or max(columns) >= width or not turning.keys() <= set(columns):
            raise ValueError("a transform names columns that are not there, or twice")
        if len(turning) != len(angles) or not all(0.0 < period < math.inf for period in turning.values()):
            raise ValueError("the periods of a transform's angles are numbers above 0")
        return ObservationTransform(width, tuple(columns), tuple(sorted(turning.items())))

    @property
    def text(self) -> str:
        """The same text for equal views, to be hashed."""
        return json.dumps(self.to_json(), sort_keys=True)


class TransformedRows:
    """Rows that may lie in a file, through a transform: what `trees`, samplers and numpy ask of an array of rows."""

    dtype = np.dtype(np.float32)
    ndim = 2

    def __init__(self, rows: Any, transform: ObservationTransform):
        self._rows, self._transform = rows, transform
        self.shape = (len(rows), transform.size)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        return self._transform(np.asarray(self._rows[index]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = np.empty(self.shape, np.float32)
        for first in range(0, len(self), BLOCK):
            found[first : first + BLOCK] = self[first : first + BLOCK]
        return found if dtype is None else found.astype(dtype, copy=False)


@dataclass(frozen=True, eq=False)
class ActionScaling:
    """raw action = center + half_range * action, column by column."""

    center: np.ndarray  # [act] float32
    half_range: np.ndarray  # [act] float32

    @staticmethod
    def of_range(low: np.ndarray, high: np.ndarray) -> ActionScaling:
        """Maps the range of each column to [-1, 1]; a column of one value is only shifted."""
        center = ((high + low) / 2).astype(np.float32)
        return ActionScaling(center, np.where(high > low, (high - low) / 2, 1.0).astype(np.float32))

    def scaled(self, raw: np.ndarray) -> np.ndarray:
        """Raw actions, mapped for training."""
        return np.clip((raw - self.center) / self.half_range, -1.0, 1.0).astype(np.float32)

    def raw(self, actions: np.ndarray) -> np.ndarray:
        """Actions of training in the user's units."""
        return self.center + self.half_range * actions

    def after(self, earlier: ActionScaling | None) -> ActionScaling:
        """Both in one, where the actions had been scaled before."""
        if earlier is None:
            return self
        return ActionScaling(earlier.center + earlier.half_range * self.center, earlier.half_range * self.half_range)
