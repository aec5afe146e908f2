"""What policies see of a task: its observations as they are, or pictures of them.

A task that is seen as pictures keeps its plain observations (states): its physics, rewards, goals and plans are about
them. Beside them it has `sees`, the parts that a policy's observation is made of, and its episodes have `seen` and
`seen_goals`. Where pictures are a function of the state it also has `see(states)`, and where the state can be told from
a picture, `read(pictures)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError
from hilp.spec import Spec
from hilp.trees import Tree

SUFFIX = "-pixels"  # behind the name of a task that is seen as pictures


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
