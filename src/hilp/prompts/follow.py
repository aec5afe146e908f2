"""A demonstration as a prompt: follow a trajectory, a little ahead of where the agent is on it.

Where the method has directions, an agent is placed on the path by latent distance and heads for a state ahead of that
place: the farthest one that is still within a trusted distance, so that a slow demonstration is followed faster than it
was shown, and a corner is not cut. Its place never goes back, and is looked for only a little ahead, so a path that
crosses itself is walked in its order. Without distances (methods whose skill is the goal) time is all there is: the
skill of a step is that of the state so many rows later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError, require_count
from hilp.prompts.agent import Agent
from hilp.prompts.base import Packed, Prompt
from hilp.prompts.memory import AgentMemory
from hilp.prompts.midpoints import trust_radius
from hilp.prompts.specs import Follow
from hilp.trees import Tree

WINDOW = 10  # rows ahead, where a method has no distances to choose by
LOOKED = 3  # windows ahead in which the agent's place is looked for


@dataclass(frozen=True)
class FollowPrompt(Prompt):
    """Follow a demonstration."""

    policy: Agent
    trajectory: Tree  # [rows, obs], or named parts of that
    window: int | None  # rows ahead to head for; None: as far as directions are trusted
    latents: np.ndarray = field(repr=False)  # phi of each row, or the skill that each row stands for as a goal
    places: AgentMemory = field(repr=False, compare=False)  # row: where on the demonstration an agent is

    kind = "follow"

    @property
    def spec(self) -> Follow:  # the rows themselves are saved as arrays
        return Follow(window=self.window)

    @property
    def progress(self) -> np.ndarray:
        """[n]: the share of the demonstration that each agent of the last call has behind it."""
        return self.places["row"] / max(1, len(self.latents) - 1)

    def __call__(self, observations: Any, active: np.ndarray | None = None) -> np.ndarray:
        batch = self.policy.check(observations)
        self.places.begin(len(batch))
        if not self.policy.has_rule("goal_direction"):
            return self.latents[self._ahead_by_time()]
        here = self.policy.rule("encode", batch)
        target = np.array(here)
        for agent in np.arange(len(here)) if active is None else np.flatnonzero(active):
            target[agent] = self.latents[self._ahead_by_distance(int(agent), here[agent])]
        return self.policy.goal_direction(here, target)

    def _ahead_by_time(self) -> np.ndarray:
        """The rows to head for, a window ahead of ones that move on by one a step."""
        last, row = len(self.latents) - 1, self.places["row"]
        self.places["row"] = np.minimum(row + 1, last)
        return np.minimum(row + (self.window or WINDOW), last)

    def _ahead_by_distance(self, agent: int, here: np.ndarray) -> int:
        """The row to head for of an agent at a latent [D]; its place on the demonstration moves on."""
        first, last = int(self.places["row"][agent]), len(self.latents) - 1
        # An episode may begin anywhere on the path; later the place is near the one before.
        end = min(last, first + LOOKED * (self.window or WINDOW)) if self.places["begun"][agent] else last
        apart = np.asarray(self.policy.distance(here[None], self.latents[first : end + 1]))
        at = int(np.argmin(apart))
        self.places["row"][agent], self.places["begun"][agent] = first + at, True
        if self.window is not None:
            return min(last, first + at + self.window)
        beyond = np.flatnonzero(apart[at:] > trust_radius(self.policy.discount))
        trusted = at + (int(beyond[0]) - 1 if len(beyond) else len(apart) - 1 - at)
        return min(last, first + max(trusted, at + 1))

    def reached(self, observations: Any) -> np.ndarray:
        """bool [n]: agents whose place is the last row."""
        count = len(self.policy.check(observations))
        row = self.places["row"]
        return np.zeros(count, bool) if len(row) != count else row >= len(self.latents) - 1

    def memories(self) -> Iterable[Any]:
        return (self.places,)

    def packed(self) -> Packed:
        return trees.named(self.trajectory, "trajectory"), self.note()


def follow(policy: Agent, trajectory: Any, window: int | None) -> FollowPrompt:
    """Follow a trajectory of observations [rows, obs]."""
    by_direction = policy.has_rule("goal_direction")
    if not by_direction:
        policy.require_rule("goal_skill", "has no goal rule, so it cannot follow a trajectory")
    elif window is None:
        policy.require_rule("discount", "does not say how far its distances reach: say a window")
    window = None if window is None else require_count("window", window)
    rows = policy.check(trajectory)
    if rows.single or len(rows) < 2:
        raise HilpError("a demonstration has at least two observations, one a row")
    latents = policy.encode(rows) if by_direction else policy.goal_skill(rows)
    return FollowPrompt(policy, trees.over(np.array, rows.tree), window, latents, AgentMemory(row=0, begun=False))
