"""The bank: the sample of data that a policy keeps, so that plans and reward prompts need no data set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hilp.data.dataset import Dataset


@dataclass(frozen=True)
class Bank:
    """The artifact's sample of the data: midpoints for plans, transitions for reward prompts. In the user's units."""

    observations: np.ndarray  # [n, obs]
    actions: np.ndarray  # [n, act]
    next_observations: np.ndarray  # [n, obs]
    next_physics: np.ndarray | None = None  # [n, p]: the simulator's state at s', where the data has it, for rewards

    @staticmethod
    def draw(data: Dataset, count: int, seed: int) -> Bank:
        """At most `count` transitions, drawn without replacement."""
        return Bank.at(data, Bank.rows(data, count, seed))

    @staticmethod
    def rows(data: Dataset, count: int, seed: int) -> np.ndarray:
        """The rows of s of at most `count` transitions, drawn without replacement."""
        chosen = np.random.default_rng(seed).choice(data.transitions, min(count, data.transitions), replace=False)
        return data.transition_rows[np.sort(chosen)]

    @staticmethod
    def at(data: Dataset, rows: np.ndarray) -> Bank:
        """The transitions that start in these rows."""
        actions = np.asarray(data.actions[rows], np.float32)
        if data.action_scaling is not None:
            actions = data.action_scaling.raw(actions)
        observations = np.asarray(data.observations[rows], np.float32)
        following = np.asarray(data.observations[rows + 1], np.float32)
        physics = np.asarray(data.extras["physics"][rows + 1], np.float32) if "physics" in data.extras else None
        return Bank(observations, actions, following, physics)

    def subsample(self, count: int, seed: int) -> Bank:
        """At most `count` of them, drawn without replacement."""
        if len(self) <= count:
            return self
        rows = np.sort(np.random.default_rng(seed).choice(len(self), count, replace=False))
        physics = None if self.next_physics is None else self.next_physics[rows]
        return Bank(self.observations[rows], self.actions[rows], self.next_observations[rows], physics)

    def __len__(self) -> int:
        return len(self.observations)
