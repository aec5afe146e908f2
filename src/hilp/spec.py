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
    """Bank with a hindsight goal each, gathered from the data set."""

    observation: Array  # batch x obs
    action: Array  # batch x act
    next_observation: Array  # batch x obs
    goal: Array  # batch x obs
    reached: Array  # batch, bool: the goal IS the observation, by row number, never by distance
    arrived: Array  # batch, bool: the goal IS the next observation, by row number
    actor_goal: Array | None = None  # batch x obs: a second goal, where value and actor learn from different ones
    steps_ahead: Array | None = None  # batch, int: steps to the goal in the same episode, -1 where it lies elsewhere
    later: Array | None = None  # batch x obs: the observation that n-step targets look from
    later_steps: Array | None = None  # batch, int: how many steps after the observation that is
    latent: Array | None = None  # batch x dim: phi(observation), where phi is trained already and kept for all rows
    next_latent: Array | None = None  # batch x dim
