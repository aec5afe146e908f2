"""One episode of a policy under a prompt: where it went, what it did, and what that earned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hilp import tasks, trees
from hilp.data.extras import Extras, RewardFunction, apply_reward
from hilp.evaluation.rollouts import begin, over
from hilp.policy.policy import FoundationPolicy
from hilp.tasks import rendering
from hilp.trees import Tree


@dataclass(frozen=True)
class Walk:
    """One episode of t steps."""

    path: np.ndarray  # [t + 1, obs]: the task's observations
    actions: np.ndarray  # [t, act]
    beside: dict[str, np.ndarray]  # columns beside the observations after each step [t, ...]
    share: float  # of its goal that was reached; 1: all of it, or it has none; between 0 and 1 where goals have parts
    first_seen: Tree  # [1, ...]: the start, as the policy sees it
    last_seen: Tree  # [1, ...]: the end


def walk(
    policy: FoundationPolicy,
    world: tasks.Task,
    prompt: Any,
    start: np.ndarray | None,
    goal: np.ndarray | str | None,
    steps: int,
    seed: int,
) -> Walk:
    """One episode under a prompt; it ends at the goal, where one is given."""
    begin(prompt)
    running = world.episodes(np.random.default_rng(seed), 1, start=start, goal=goal)
    first_seen = trees.over(np.array, rendering.policy_observations(running))
    path = [running.observations[0].copy()]
    actions: list[np.ndarray] = []
    beside: dict[str, list[np.ndarray]] = {name: [] for name in world.extra_columns}
    for _ in range(steps):
        if (goal is not None and running.reached()[0]) or over(running)[0]:
            break
        action = policy.act(rendering.policy_observations(running), prompt)
        running.step(action)
        actions.append(np.array(action[0]))
        path.append(running.observations[0].copy())
        for name, column in beside.items():
            column.append(running.extra(name)[0])
    columns = {name: np.stack(column) for name, column in beside.items() if column}
    share = 1.0 if goal is None else float(running.reached()[0])
    if goal is not None and isinstance(running, tasks.PartialSuccess):
        share = float(running.success_fractions()[0])
    did = np.stack(actions) if actions else np.zeros((0, world.action_dim), np.float32)
    return Walk(np.stack(path), did, columns, share, first_seen, rendering.policy_observations(running))


def earned(world: tasks.Task, reward: RewardFunction, walked: Walk) -> np.ndarray:
    """What each step of an episode earned: float64 [t]."""
    extras = Extras({}, walked.beside, world.name)
    found = apply_reward(reward, walked.path[:-1], walked.actions, walked.path[1:], extras)
    return np.asarray(found, np.float64)
