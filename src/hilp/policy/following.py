"""A demonstration as a prompt: follow a trajectory, a little ahead of where the agent is on it.

Where the method has directions, an agent is placed on the path by latent distance and heads for a state ahead of that
place: the farthest one that is still within a trusted distance, so that a slow demonstration is followed faster than it
was shown, and a corner is not cut. Its place never goes back, and is looked for only a little ahead, so a path that
crosses itself is walked in its order. Without distances (methods whose skill is the goal) time is all there is: the
skill of a step is that of the state so many rows later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError, require_count
from hilp.policy import planning
from hilp.policy.agent import Promptable
from hilp.policy.combining import Combinable, Packed
from hilp.trees import Tree

WINDOW = 10  # rows ahead, where a method has no distances to choose by
LOOKED = 3  # windows ahead in which the agent's place is looked for


@dataclass(frozen=True)
class FollowPrompt(Combinable):
    """Follow a demonstration."""

    policy: Promptable
    trajectory: Tree  # [rows, obs], or named parts of that
    window: int | None  # rows ahead to head for; None: as far as directions are trusted
    latents: np.ndarray = field(repr=False)  # phi of each row, or the skill that each row stands for as a goal
    places: Places = field(repr=False, compare=False)

    kind = "follow"

    @property
    def fingerprint(self) -> str:
        return self.policy.fingerprint

    @property
    def progress(self) -> np.ndarray:
        """[n]: the share of the demonstration that each agent of the last call has behind it."""
        return self.places.row / max(1, len(self.latents) - 1)

    def __call__(self, observations: Tree, active: np.ndarray | None = None) -> np.ndarray:
        batch = self.policy.batched(observations)[0]
        if not self.policy.has_rule("goal_direction"):
            ahead = self.places.by_time(trees.rows(batch), self.window or WINDOW, len(self.latents))
            return self.latents[ahead]
        here = self.policy.encode(batch)
        rows = np.arange(len(here)) if active is None else np.flatnonzero(active)
        target = np.array(here)
        target[rows] = self.latents[self.places.by_distance(self, here, rows)]
        return self.policy.goal_direction(here, target)

    def reached(self, observations: Tree) -> np.ndarray:
        """bool [n]: agents whose place is the last row."""
        count = trees.rows(self.policy.batched(observations)[0])
        return np.zeros(count, bool) if len(self.places.row) != count else self.places.row >= len(self.latents) - 1

    def reset(self, rows: Any = None) -> None:
        self.places.reset(rows)

    def packed(self) -> Packed:
        note = {"kind": self.kind, "fingerprint": self.fingerprint, "window": self.window}
        return trees.named(self.trajectory, "trajectory"), note


class Places:
    """Where on the demonstration each agent of a batch is."""

    def __init__(self) -> None:
        self.reset()

    def reset(self, rows: Any = None) -> None:
        """New episodes begin, of all agents or of those in these rows."""
        if rows is None:
            self.row, self.begun = np.zeros(0, int), np.zeros(0, bool)
        elif len(self.row):
            self.row[rows], self.begun[rows] = 0, False

    def _begin(self, agents: int) -> None:
        if len(self.row) != agents:
            self.row, self.begun = np.zeros(agents, int), np.zeros(agents, bool)

    def by_time(self, agents: int, window: int, rows: int) -> np.ndarray:
        """The row to head for, `window` ahead of one that moves on by one a step."""
        self._begin(agents)
        ahead = np.minimum(self.row + window, rows - 1)
        self.row = np.minimum(self.row + 1, rows - 1)
        return ahead

    def by_distance(self, prompt: FollowPrompt, here: np.ndarray, agents: np.ndarray) -> np.ndarray:
        """The same for these agents at latents [n, D], by where they are."""
        self._begin(len(here))
        policy, latents = prompt.policy, prompt.latents
        last = len(latents) - 1
        radius = planning.trust_radius(policy.discount)
        ahead = np.zeros(len(agents), int)
        for number, agent in enumerate(agents):
            first = int(self.row[agent])
            # An episode may begin anywhere on the path; later the place is near the one before.
            end = last if not self.begun[agent] else min(last, first + LOOKED * (prompt.window or WINDOW))
            apart = np.asarray(policy.distance(here[agent][None], latents[first : end + 1]))
            at = int(np.argmin(apart))
            self.row[agent], self.begun[agent] = first + at, True
            if prompt.window is not None:
                ahead[number] = min(last, first + at + prompt.window)
                continue
            beyond = np.flatnonzero(apart[at:] > radius)
            trusted = at + (int(beyond[0]) - 1 if len(beyond) else len(apart) - 1 - at)
            ahead[number] = min(last, first + max(trusted, at + 1))
        return ahead


def follow(policy: Promptable, trajectory: Any, window: int | None) -> FollowPrompt:
    """Follow a trajectory of observations [rows, obs]."""
    by_direction = policy.has_rule("goal_direction")
    if not by_direction:
        policy.require_rule("goal_skill", "has no goal rule, so it cannot follow a trajectory")
    elif window is None:
        policy.require_rule("discount", "does not say how far its distances reach: say a window")
    window = None if window is None else require_count("window", window)
    rows, single = policy.batched(trajectory)
    if single or trees.rows(rows) < 2:
        raise HilpError("a demonstration has at least two observations, one a row")
    rows = trees.over(np.array, rows)
    latents = policy.encode(rows) if by_direction else policy.goal_skill(rows)
    return FollowPrompt(policy, rows, window, latents, Places())


def revive(policy: Promptable, arrays: Mapping[str, np.ndarray], note: Mapping[str, Any]) -> FollowPrompt:
    """From what was saved."""
    return follow(policy, trees.unnamed(arrays, "trajectory"), note["window"])
