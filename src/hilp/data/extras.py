"""Rewards and the columns that they may ask for beside the observations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hilp.data.dataset import Dataset
from hilp.errors import HilpError, nearest

RewardFunction = Callable[..., np.ndarray]  # of (s, a, s'), or of (s, a, s', Extras)


@dataclass(frozen=True)
class Extras:
    """Named columns beside the observations of some transitions, for rewards that need more than the observation."""

    at_s: Mapping[str, np.ndarray]
    at_next: Mapping[str, np.ndarray]
    owner: str  # whose columns they are, for the error

    @staticmethod
    def of(data: Dataset, rows: np.ndarray) -> Extras:
        """The columns of a data set at the transitions that start in these rows; nothing is read before it is asked."""
        return Extras(_Rows(data.extras, rows), _Rows(data.extras, rows + 1), data.name)

    def before(self, name: str) -> np.ndarray:
        """A column at s."""
        return self._column(self.at_s, name)

    def after(self, name: str) -> np.ndarray:
        """A column at s'."""
        return self._column(self.at_next, name)

    def _column(self, columns: Mapping[str, np.ndarray], name: str) -> np.ndarray:
        if name not in columns:
            has = nearest(name, columns) if columns else "it has none"
            raise HilpError(f"this reward needs the extra column '{name}', which {self.owner} does not have: {has}")
        return columns[name]


class _Rows(Mapping[str, np.ndarray]):
    """Some rows of columns that may lie in a file."""

    def __init__(self, columns: Mapping[str, np.ndarray], rows: np.ndarray):
        self._columns, self._rows = columns, rows

    def __getitem__(self, name: str) -> np.ndarray:
        return np.asarray(self._columns[name][self._rows])

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def apply_reward(function: RewardFunction, before: Any, actions: np.ndarray, after: Any, extras: Extras) -> np.ndarray:
    """The reward of transitions; extras go to functions that ask for them."""
    return function(before, actions, after, extras) if _takes_extras(function) else function(before, actions, after)


def _takes_extras(function: RewardFunction) -> bool:
    """Whether a reward function has a fourth parameter without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) > 3
