"""What policies see of a task: its observations as they are, or pictures of them.

A task that is seen as pictures keeps its plain observations (states): its physics, rewards, goals and plans are about
them. Beside them it has `sees`, the parts that a policy's observation is made of, and its episodes have `seen` and
`seen_goals`. Where pictures are a function of the state it also has `see(states)`, and where the state can be told from
a picture, `read(pictures)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError
from hilp.spec import Spec
from hilp.trees import Tree

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset

SUFFIX = "-pixels"  # behind the name of a task that is seen as pictures
VISUAL = "visual-"  # before it, where papers call it so


def spec_of(world: Any) -> Spec:
    """The sizes of what policies see and do in a task."""
    parts = getattr(world, "sees", ())
    if not parts:
        return Spec(world.observation_dim, world.action_dim)
    kinds = {name: np.empty((1, *shape), kind) for name, shape, kind in parts}
    return Spec.of(kinds, world.action_dim)


def seen(running: Any) -> Tree:
    """What policies see of episodes now."""
    return getattr(running, "seen", running.observations)


def seen_goals(running: Any) -> Tree:
    """The goals of episodes, as policies see them."""
    return getattr(running, "seen_goals", running.goals)


def see(world: Any, states: np.ndarray) -> Tree:
    """States of a task (a batch, or one) as policies see them."""
    if not getattr(world, "sees", ()):
        return states
    if not hasattr(world, "see"):
        raise HilpError(f"{world.name} cannot show a state that it is not in: give a picture")
    states = np.asarray(states, np.float64)
    if states.shape[-1:] != (world.observation_dim,) or not np.isfinite(states).all():
        raise HilpError(f"a state of {world.name} has {world.observation_dim} finite numbers, not {states.tolist()}")
    single = states.ndim == 1
    pictures = world.see(np.atleast_2d(states))
    return trees.over(lambda rows: rows[0], pictures) if single else pictures


def readable(world: Any) -> bool:
    """Whether states can be told from what policies see."""
    return not getattr(world, "sees", ()) or hasattr(world, "read")


def read(world: Any, observations: Tree) -> np.ndarray:
    """States (a batch, or one) behind what policies see; states stay as they are."""
    if not isinstance(observations, Mapping):
        return np.asarray(observations)
    if not hasattr(world, "read"):
        raise HilpError(f"{world.name} cannot tell a state from its picture")
    parts = {name: shape for name, shape, _ in world.sees}
    single = any(np.shape(observations[name]) == shape for name, shape in parts.items())
    batch = trees.over(lambda part: np.asarray(part)[None], observations) if single else observations
    found = np.asarray(world.read(batch))
    return found[0] if single else found


def require_state(world: Any, value: Any, what: str) -> None:
    """Raise where a start or a goal is a picture, and only states tell whether an episode is there."""
    if isinstance(value, Mapping):
        raise HilpError(
            f"whether an episode of {world.name} is at its {what} is told by states, which a picture does not show: "
            "name one of its own goals, give columns, or a row of data that has the states beside its pictures"
        )


def for_data(world: Any, data: Dataset) -> Any:
    """A task as it is evaluated on data: some goals look like the first state, which films have beside them."""
    if not isinstance(data.observations, Mapping):
        return world.for_data(np.asarray(data.observations[0]))
    states = data.extras.get(str(getattr(world, "state_column", "")))
    return world if states is None else world.for_data(np.asarray(states[0]))


def drawn(
    draw: Callable[[np.ndarray], np.ndarray],
    states: np.ndarray,
    shape: tuple[int, ...],
    progress: Callable[[int], None] | None = None,
    block: int = 100,
) -> np.ndarray:
    """Pictures uint8 [n, *shape] of many states [n, ...], a block at a time; `progress` is told how many are done."""
    pictures = np.empty((len(states), *shape), np.uint8)
    for first in range(0, len(states), block):
        pictures[first : first + block] = draw(np.asarray(states[first : first + block]))
        if progress:
            progress(min(first + block, len(states)))
    return pictures


class SeenEpisodes:
    """n episodes running side by side on states, and what policies see of each; pictures are drawn when asked for."""

    def __init__(self, world: Any, plain: Any) -> None:
        self._world, self._plain = world, plain
        self._states: np.ndarray | None = None  # that were drawn last
        self._seen: dict[str, np.ndarray] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    @property
    def seen(self) -> dict[str, np.ndarray]:
        """Pictures of all episodes; those that have not moved since, as one that is over, are not drawn again."""
        now = self._plain.observations
        if self._states is None:
            self._seen = self._world.see(now)
        elif len(moved := np.flatnonzero((now != self._states).any(axis=1))):
            new = self._world.see(now[moved])
            self._seen = {name: part.copy() for name, part in self._seen.items()}  # others may still hold the last
            for name, part in new.items():
                self._seen[name][moved] = part
        self._states = now.copy()
        return self._seen

    @cached_property
    def seen_goals(self) -> dict[str, np.ndarray]:
        """Pictures of the goals; episodes often share one."""
        states, which = np.unique(self._plain.goals, axis=0, return_inverse=True)
        return {name: part[which.reshape(-1)] for name, part in self._world.see(states).items()}
