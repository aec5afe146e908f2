"""What is wrong with this data, said so that a person can fix it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hilp.data import sources
from hilp.data.dataset import Dataset
from hilp.data.sources import Source
from hilp.errors import HilpError

ACTION_TOLERANCE = 1e-4  # of [-1, 1], for simulators that return 1.0000001


def some(values: Sequence[int] | np.ndarray, limit: int = 5) -> str:
    """The first few of a list of numbers, and how many more there are."""
    shown = ", ".join(str(int(v)) for v in values[:limit])
    return shown + (f" and {len(values) - limit} more" if len(values) > limit else "")


class Health:
    """Looks at blocks of rows and remembers what would make training impossible or meaningless."""

    def __init__(self, source: Source):
        self.source = source
        self.bad_observations: list[np.ndarray] = []  # rows that hold a NaN or an infinity
        self.bad_actions: list[np.ndarray] = []
        width = source.action.shape[0]
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)  # of finite actions that are used
        self._last_rows = source.stops - 1

    def look(self, first: int, block: sources.Block) -> np.ndarray:
        """Take in a block; returns the actions in it that are used."""
        used = self.used(first, len(block.actions))
        actions = block.actions[used]
        finite = np.isfinite(actions)
        self.bad_actions.append(first + np.flatnonzero(used)[~finite.all(axis=1)])
        self.bad_observations.append(first + np.flatnonzero(~np.isfinite(block.observations).all(axis=1)))
        if len(actions):
            self.low = np.minimum(self.low, np.where(finite, actions, np.inf).min(axis=0))
            self.high = np.maximum(self.high, np.where(finite, actions, -np.inf).max(axis=0))
        return actions

    def used(self, first: int, count: int) -> np.ndarray:
        """Which of these rows have a next row in their episode."""
        used = np.ones(count, bool)
        used[self.last_rows(first, count)] = False
        return used

    def last_rows(self, first: int, count: int) -> np.ndarray:
        """Which of these rows are the last of an episode, counted from `first`."""
        low, high = np.searchsorted(self._last_rows, [first, first + count])
        return np.asarray(self._last_rows[low:high] - first)

    def problems(self, rescale: bool = False) -> list[str]:
        """A line about each thing that makes training impossible, after all blocks; `rescale`: actions will be."""
        found = []
        for name, parts in (("observations", self.bad_observations), ("actions", self.bad_actions)):
            rows = np.concatenate([np.zeros(0, np.int64), *parts])
            if len(rows):
                found.append(f"NaN or infinite {name} in rows {some(rows)}: remove or repair these rows")
        outside = (self.low < -1.0 - ACTION_TOLERANCE) | (self.high > 1.0 + ACTION_TOLERANCE)
        if outside.any() and not rescale:
            worst = int(np.argmax(np.maximum(-self.low, self.high)))
            found.append(
                f"actions leave [-1, 1] (column {worst} spans {self.low[worst]:.4g} to {self.high[worst]:.4g}): scale "
                "them yourself, or let rescale_actions=True / --rescale-actions map each column's range to [-1, 1]"
            )
        return found


def structural_problems(source: Source) -> list[str]:
    """What is wrong with episodes and shapes, before any row is read."""
    if source.rows == 0 or source.episodes == 0:
        return ["there are no episodes"]
    found = []
    short = np.flatnonzero(source.lengths < 2)
    if len(short):
        found.append(
            f"episodes {some(short)} have fewer than two rows, so no transition: remove them "
            "(an episode of T steps is T + 1 observations)"
        )
    for name, kind in (("observations", source.observation), ("actions", source.action)):
        if len(kind.shape) != 1 or kind.shape[0] == 0:
            found.append(f"{name} have rows of shape {kind.shape}: each row must be one or more numbers")
    return found


def examine(source: Source) -> Health:
    """Go through all rows."""
    health = Health(source)
    for first, block in source.blocks():
        health.look(first, block)
    return health


def require_trainable(data: Dataset, rescale: bool = False) -> Health:
    """Raise one clear line about the first thing that makes training impossible; `rescale`: actions will be."""
    source = sources.of_dataset(data)
    if not source.rows == data.rows == len(data.actions):
        raise HilpError(
            f"{data.name}: {data.rows} observations, {len(data.actions)} actions and episodes of {source.rows} rows in "
            "all do not fit together: build data sets with hilp.load"
        )
    for problem in structural_problems(source):
        raise HilpError(f"{data.name}: {problem}")
    health = examine(source)
    for problem in health.problems(rescale):
        raise HilpError(f"{data.name}: {problem}")
    return health
