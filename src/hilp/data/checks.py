"""What is wrong with this data, in words that help to fix it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hilp import trees
from hilp.data.columns import NUMBERS
from hilp.data.dataset import Dataset
from hilp.data.source import Block, Source, of_dataset, rows_text
from hilp.errors import HilpError, some

ACTION_TOLERANCE = 1e-4  # of [-1, 1], for simulators that return 1.0000001


class HealthCheck:
    """Looks at blocks of rows and remembers what would make training impossible or meaningless."""

    def __init__(self, source: Source):
        self.source = source
        self.bad_observations: list[np.ndarray] = []  # rows that hold a NaN or an infinity
        self.bad_actions: list[np.ndarray] = []
        width = source.action.shape[0]
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)  # of finite actions that are used

    def add(self, first: int, block: Block) -> np.ndarray:
        """Take in a block; returns the actions in it that are used: their rows have a next one in their episode."""
        used = np.delete(np.arange(len(block.actions)), self.source.last_rows(first, len(block.actions)))
        actions = block.actions[used]
        finite = np.isfinite(actions)
        self.bad_actions.append(first + used[~finite.all(axis=1)])
        self.bad_observations.append(first + np.flatnonzero(~finite_rows(block.observations)))
        if len(actions):
            self.low = np.minimum(self.low, np.where(finite, actions, np.inf).min(axis=0))
            self.high = np.maximum(self.high, np.where(finite, actions, -np.inf).max(axis=0))
        return actions

    def problems(self, rescale: bool = False) -> list[str]:
        """A line about each thing that makes training impossible, after all blocks; `rescale`: actions will be."""
        found = []
        for name, parts in (("observations", self.bad_observations), ("actions", self.bad_actions)):
            rows = np.concatenate([np.zeros(0, np.int64), *parts])
            if len(rows):
                found.append(
                    f"NaN or infinite {name} in {self.source.where(rows)}: remove or repair these rows, or split "
                    "episodes there with split='nan' / --split nan"
                )
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
            f"episodes {some(short, 5)} have fewer than two rows, so no transition: remove them "
            "(an episode of T steps is T + 1 observations)"
        )
    kinds = {**trees.named(source.observation, "observations"), "actions": source.action}
    if len(kinds) == 1:
        found.append("observations have no parts: name at least one array")
    for name, kind in kinds.items():
        tree = name.startswith("observations/")  # whose parts may be images
        if 0 in kind.shape or not kind.shape or (len(kind.shape) > 1 and not tree):
            found.append(f"{name} have rows of shape {kind.shape}: each row must be one or more numbers")
        elif kind.dtype.kind not in NUMBERS:
            found.append(f"{name} are {kind.dtype}: hilp needs plain numbers")
    return found


def examine(source: Source) -> HealthCheck:
    """Go through all rows."""
    health = HealthCheck(source)
    for first, block in source.blocks():
        health.add(first, block)
    return health


def require_trainable(data: Dataset) -> None:
    """Raise one clear line about the first thing that makes training impossible. Data that `load` made was checked."""
    if not data.is_checked:
        examine_dataset(data)


def examine_dataset(
    data: Dataset, rescale: bool = False, where: Callable[[np.ndarray], str] = rows_text
) -> HealthCheck:
    """Go through all rows and raise at the first thing that makes training impossible; `rescale`: actions will be.

    where: says where rows are in what the data was read from.
    """
    columns = {**trees.named(data.observations, "observations"), "actions": data.actions}
    for name, column in columns.items():
        if isinstance(column, np.ma.MaskedArray):
            raise HilpError(f"{data.name}: {name} are a masked array: fill in or leave out what is masked")
    source = replace(of_dataset(data), where=where)
    sizes = {len(column) for column in columns.values()}
    if sizes != {source.rows}:
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


def finite_rows(observations: trees.Tree) -> np.ndarray:
    """Rows of which every number is finite."""
    found = np.ones(trees.rows(observations), bool)
    for column in trees.named(observations, "observations").values():
        if column.dtype.kind == "f":  # bytes and whole numbers are always finite
            found &= np.isfinite(column).all(axis=tuple(range(1, column.ndim)))
    return found
