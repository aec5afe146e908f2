"""Reward prompts on the graph of the data: head for what is worth most, anew at every step; stay where staying pays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np

from hilp.errors import HilpError
from hilp.policy import graph_rewards, planning
from hilp.policy.combining import Combinable, Packed
from hilp.policy.graph_planner import GraphPlanner
from hilp.policy.graph_rewards import Plan
from hilp.trees import Tree


class OnGraph(Protocol):
    """What these prompts ask of a policy."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def planner(self) -> GraphPlanner: ...
    def encode(self, observation: Any) -> np.ndarray: ...
    def goal_direction(self, here: np.ndarray, there: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class GraphRewardPrompt(Combinable):
    """Maximise a reward by way of the graph. `r2` says how well the model of the reward on landmarks explains it."""

    policy: OnGraph
    planned: Plan = field(repr=False)
    best: int = planning.BEST

    kind = "graph"

    @property
    def fingerprint(self) -> str:
        return self.policy.fingerprint

    @property
    def r2(self) -> float:
        return self.planned.r2

    def __call__(self, observations: Tree, active: np.ndarray | None = None) -> np.ndarray:
        """Skills for a batch; rows that are not `active` get that of standing still."""
        given = observations if isinstance(observations, Mapping) else np.atleast_2d(observations)
        here = self.policy.encode(given)
        target = np.array(here)
        rows = np.arange(len(here)) if active is None else np.flatnonzero(active)
        target[rows] = graph_rewards.subgoals(self.policy.planner, self.planned, here[rows], self.best)
        return self.policy.goal_direction(here, target)

    def reset(self, rows: Any = None) -> None:
        """Nothing is remembered."""

    def expected(self, observation: Any) -> float:
        """The discounted return that the plan expects from an observation on."""
        near, shares = self.policy.planner.shares(np.atleast_2d(self.policy.encode(observation)))
        return float(np.sum(self.planned.values[near] * shares))

    def packed(self) -> Packed:
        values = asdict(self.planned)
        arrays = {name: values.pop(name) for name in ARRAYS}
        note = {"kind": self.kind, "fingerprint": self.fingerprint, "best": self.best, **values}
        return arrays, note


ARRAYS = ("state_reward", "potential", "values")


def loaded(policy: OnGraph, arrays: Mapping[str, np.ndarray], note: Mapping[str, Any]) -> GraphRewardPrompt:
    """A prompt that was saved; a ValueError where it does not fit the policy's graph."""
    columns = {name: np.asarray(arrays[name], np.float64) for name in ARRAYS}
    if any(
        column.shape != (len(policy.planner.graph),) or not np.isfinite(column).all() for column in columns.values()
    ):
        raise ValueError("its values are not one a landmark")
    plan = Plan(**columns, discount=float(note["discount"]), r2=float(note["r2"]), model=note["model"])
    return GraphRewardPrompt(policy, plan, int(note["best"]))


def reward(
    policy: OnGraph, before: np.ndarray, after: np.ndarray, rewards: np.ndarray, discount: float
) -> GraphRewardPrompt:
    """From labelled transitions, as latents of s and s'."""
    if not 0.0 < discount < 1.0:
        raise HilpError(f"the discount of a reward lies between 0 and 1, not at {discount}")
    if len(rewards) < 2:
        raise HilpError("a reward on the graph needs at least two labelled transitions")
    return GraphRewardPrompt(policy, graph_rewards.plan(policy.planner, before, after, rewards, discount))
