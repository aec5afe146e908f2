"""Prompts of the exported runtime, over numpy alone: what a policy is asked to do. Written into its one file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hilp.errors import HilpError
from hilp.policy.graph import Graph
from hilp.policy.graph_planner import PathInfo
from hilp.policy.graph_rewards import Plan, subgoals
from hilp.policy.latent_ema import LatentEma


class Prompt:
    """What a policy is asked to do."""

    def __init__(self, policy: Any):
        self.policy = policy

    def act(self, observations: list[np.ndarray]) -> np.ndarray:
        raise NotImplementedError

    def reset(self) -> None:
        """New episodes begin."""

    def for_each(self, values: np.ndarray, observations: list[np.ndarray]) -> np.ndarray:
        """One row an observation, of one for all or one for each."""
        count = len(observations[0])
        if len(values) not in (1, count):
            raise HilpError(f"this prompt is for {len(values)} observations at a time, not {count}")
        return np.broadcast_to(values, (count, values.shape[1]))


class Skill(Prompt):
    """One skill for all, or one for each row."""

    def __init__(self, policy: Any, z: np.ndarray):
        super().__init__(policy)
        self.z = z

    def act(self, observations: list[np.ndarray]) -> np.ndarray:
        return self.policy.act_on(observations, self.for_each(self.z, observations))


class Goal(Prompt):
    """The direction to a goal, or to a midpoint on the way there, anew at every step. At the goal itself it is zero."""

    def __init__(
        self, policy: Any, latent: np.ndarray, plan: int | str, best: int, radius: float, smooth: LatentEma | None
    ):
        super().__init__(policy)
        self.latent, self.plan, self.best, self.radius, self.smooth = latent, plan, best, radius, smooth

    def reset(self) -> None:
        if self.smooth is not None:
            self.smooth.reset()

    def act(self, observations: list[np.ndarray]) -> np.ndarray:
        target, rules = self.for_each(self.latent, observations), self.policy.rules
        if self.plan == 0 and self.smooth is None:
            return rules["act_towards"](*observations, target)
        here = rules["encode"](*observations)
        if self.smooth is not None:
            here = self.smooth(here)
        if self.plan == 0:
            return rules["act_between"](*observations, here, target)
        midpoints = self.policy.midpoints
        if len(here) == 1:
            target = midpoints.subgoal(here[0], target[0], self.plan, self.best, self.radius)[None]
        else:
            target = midpoints.subgoals(here, target, self.plan, self.best, self.radius)
        return rules["act_between"](*observations, here, target)


class GraphGoal(Prompt):
    """The way to a goal on the graph of the data, anew at every step. `reset()` where episodes begin."""

    def __init__(self, policy: Any, latent: np.ndarray, best: int, radius: float | None, smooth: LatentEma | None):
        """radius: of midpoints, for agents to whose goals the data shows no way; without one, they follow guesses."""
        super().__init__(policy)
        self.latent, self.best, self.radius, self.smooth = latent, best, radius, smooth
        self.to_goals, self.stuck = policy.planner.to_goals(latent), policy.planner.stuck()

    def reset(self) -> None:
        self.stuck.reset()
        if self.smooth is not None:
            self.smooth.reset()

    def act(self, observations: list[np.ndarray]) -> np.ndarray:
        goals, steps = (self.for_each(values, observations) for values in (self.latent, self.to_goals))
        here = self.policy.rules["encode"](*observations)
        if self.smooth is not None:
            here = self.smooth(here)
        rows = np.arange(len(here))
        target = self.policy.planner.targets(here, goals, steps, self.best, self.stuck, rows, self.radius)
        return self.policy.rules["act_between"](*observations, here, target)

    def path_info(self, observation: Any) -> PathInfo:
        """What the graph says about the way from one observation to one goal: path, steps, support, reachable."""
        here = self.policy.encode(observation)
        if here.ndim != 1 or len(self.latent) != 1:
            raise HilpError("an path_info is from one observation to one goal")
        found: PathInfo = self.policy.planner.path_info(here, self.latent[0], self.to_goals[0])
        return found


class GraphReward(Prompt):
    """Heads for what a reward is worth most, as hilp planned it on the graph of the data, anew at every step."""

    def __init__(self, policy: Any, planned: Plan, best: int):
        super().__init__(policy)
        self.planned, self.best = planned, best

    def act(self, observations: list[np.ndarray]) -> np.ndarray:
        here = self.policy.rules["encode"](*observations)
        target = subgoals(self.policy.planner, self.planned, here, self.best)
        return self.policy.rules["act_between"](*observations, here, target)


def by_sweeps(graph: Graph, prices: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Shortest ways, as hilp.policy.shortest finds them: all landmarks at once look one edge ahead, until none gains.

    The same sums in the same order as Dijkstra's, so the same numbers; some tenths of a second for a goal.
    """
    found = np.array(last)
    leaving, first = np.unique(graph.origin, return_index=True)  # edges lie in the order of where they begin
    for steps in found if len(leaving) else ():  # a goal at a time: its sweeps stay in cache
        while True:
            ahead = np.minimum.reduceat(steps[graph.target] + prices, first)
            if not (ahead < steps[leaving]).any():
                break
            steps[leaving] = np.minimum(steps[leaving], ahead)
    return found


class Held(Prompt):
    """Skills that are chosen anew every so many steps. `reset()` where episodes begin."""

    def __init__(self, policy: Any, choose: Callable[..., np.ndarray], steps: int, seed: int = 0):
        super().__init__(policy)
        self.choose, self.steps, self.seed = choose, steps, seed
        self.z = np.zeros((0, policy.skill_dim), np.float32)
        self.reset()

    def reset(self) -> None:
        self.left, self.rng = 0, np.random.default_rng(self.seed)

    def act(self, observations: list[np.ndarray]) -> np.ndarray:
        if self.left and len(self.z) != len(observations[0]):
            raise HilpError(f"this prompt is in the middle of {len(self.z)} episodes: call its reset() when they begin")
        if not self.left:
            self.z, self.left = self.choose(observations, self.rng), self.steps
        self.left -= 1
        return self.policy.act_on(observations, self.z)
