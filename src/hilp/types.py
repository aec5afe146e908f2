"""The small types that pass between rooms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jax import Array

Info = dict[str, Array]  # scalar metrics of one update


@dataclass(frozen=True)
class Spec:
    """What a method has to know of the data to build its networks."""

    observation_dim: int
    action_dim: int


class Batch(NamedTuple):
    """Transitions with a hindsight goal each, gathered from the data set."""

    observation: Array  # batch x obs
    action: Array  # batch x act
    next_observation: Array  # batch x obs
    goal: Array  # batch x obs
    reached: Array  # batch, bool: the goal IS the observation, by row number, never by distance
