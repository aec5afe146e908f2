"""Tasks: what `evaluate`, `diagnose` and `collect` know about the world. Each file knows one family.

A task is any object with the attributes of `Task`. Nothing outside this folder tests a task's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hilp.errors import HilpError, nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Episodes(Protocol):
    """n episodes running side by side."""

    observations: np.ndarray  # [n, obs_dim] float32: now
    goals: np.ndarray  # [n, obs_dim] float32: what a goal prompt is given

    def step(self, actions: np.ndarray) -> None: ...

    def reached(self) -> np.ndarray: ...  # bool [n]: at the goal now


@dataclass(frozen=True)
class Finite:
    """A finite restriction of a task on which every distance is exact."""

    observations: np.ndarray  # [n, obs_dim] float32
    successors: np.ndarray  # [n, actions] int32: the row that each motion leads to
    steps: np.ndarray  # [n, n] int16: fewest steps from row to column, -1 where there is no way


class Task(Protocol):
    """What every task offers. `finite` may return None, `potentials` may be empty."""

    name: str
    max_steps: int
    observation_dim: int
    action_dim: int
    potentials: Mapping[str, Callable[[np.ndarray], np.ndarray]]

    def episodes(
        self, rng: np.random.Generator, n: int, start: np.ndarray | None = None, goal: np.ndarray | None = None
    ) -> Episodes: ...  # random starts and goals, unless an observation of one is given

    def potential_max(self, name: str) -> float: ...

    def finite(self) -> Finite | None: ...

    def draw(self, ax: Axes) -> None: ...

    def place(self, observations: np.ndarray) -> np.ndarray: ...  # [n, 2]: where to draw an observation


def names() -> list[str]:
    """The tasks that can be made by name."""
    from hilp.tasks import maze

    return sorted(maze.MAZES)


def make(name: str) -> Any:
    """The task of this name; a maze may also be given as its map or as the path of a file that holds one."""
    from hilp.tasks import maze

    if name in maze.MAZES or maze.looks_like_map(name):
        return maze.make(name)
    raise HilpError(f"unknown task '{name}': {nearest(name, names())}")
