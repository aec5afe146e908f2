"""Outside: says, once, when a policy is asked about states far outside its data.

The range is that of the states that the policy keeps, so one without a bank says nothing. Columns that networks do not
see, and angles, cannot be outside.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np

from hilp import trees
from hilp.data.dataset import Parts
from hilp.data.transforms import ObservationTransform
from hilp.policy.bank import Bank
from hilp.trees import Tree

FAR = 1.0  # ranges of a column beyond its smallest and largest value
STILL = 0.1  # the same for a column of one value, in units of that value, or of 1 where it is smaller


class Outside:
    """The range that observations and goals are held against."""

    def __init__(self, bank: Bank, parts: Parts, transform: ObservationTransform | None):
        self._told: set[str] = set()
        self._names = [(name, int(np.prod(shape))) for name, shape in parts]
        kept = [trees.named(tree, "observations") for tree in (bank.observations, bank.next_observations)]
        self._limits: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._ranges: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for name, column in kept[0].items():
            if not len(column) or column.dtype == np.uint8:
                continue
            both = (column, kept[1][name])
            low = np.min([np.min(rows, axis=0) for rows in both], axis=0)
            high = np.max([np.max(rows, axis=0) for rows in both], axis=0)
            still = STILL * np.maximum(1.0, np.abs(low))
            margin = np.where(high > low, FAR * (high - low), still).astype(np.float32)
            if transform is not None:
                free = [c for c in range(transform.width) if c not in transform.columns or c in dict(transform.angles)]
                margin[free] = np.inf
            self._ranges[name], self._limits[name] = (low, high), (low - margin, high + margin)

    def warn(self, what: str, observations: Tree) -> None:
        """Warn of a batch that leaves the range, the first time that one of this kind does."""
        if what in self._told or not self._limits:
            return
        columns = trees.named(observations, "observations") if isinstance(observations, Mapping) else None
        for name, (low, high) in self._limits.items():
            rows = observations if columns is None else columns[name]
            if not ((rows < low).any() or (rows > high).any()):
                continue
            self._told.add(what)
            row, *column = np.argwhere((rows < low) | (rows > high))[0]
            least, most = (float(limit[tuple(column)]) for limit in self._ranges[name])
            warnings.warn(
                f"this {what} is far outside the data behind the policy ({self._name(name, column)} is "
                f"{float(rows[(row, *column)]):.4g}, the data has {least:.4g} to {most:.4g}): do not expect it to know "
                "what to do there",
                stacklevel=4,
            )
            return

    def _name(self, part: str, column: list[int]) -> str:
        """What to call a column: by its part, or by its number."""
        place = int(column[0]) if len(column) == 1 else -1
        if "/" in part:
            return f"'{part.partition('/')[2]}'" + (f" column {place}" if place >= 0 else "")
        for name, size in self._names:
            if place < size:
                return name if size == 1 else f"{name}[{place}]"
            place -= size
        return f"column {int(column[0])}"
