"""Evaluation: a policy, prompts and a task in; one row of results a prompt out. Knows nothing about methods."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp import tasks
from hilp.errors import HilpError, require_count, require_seed, some
from hilp.evaluation import goals
from hilp.evaluation.rollouts import (
    Outcome,
    Rollout,
    reward_prompt,
    rollout_goals,
    rollout_return,
    rollout_reward,
    rollout_target,
    rule_of,
)
from hilp.evaluation.rows import Row, finite
from hilp.evaluation.setup import TARGET, require_fit, require_reward, reward_function, task_for_policy, task_of
from hilp.policy import hierarchy, planning
from hilp.policy.agent import has_graph
from hilp.policy.policy import FoundationPolicy
from hilp.policy.prompts import Prompt
from hilp.versions import versions

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset

TRAINING_EPISODES = 50  # of an evaluation while training
SEARCH = 2  # beside a seed: the stream that the starts of a search are drawn from


def evaluate(
    policy: FoundationPolicy,
    task: str | tasks.Task,
    *,
    plan: int | str | Sequence[int | str] | None = None,
    goal: str | None = None,
    goal_dims: Sequence[int] | None = None,
    smooth: float | None = None,
    rewards: str | Iterable[str] | None = None,
    prompt: Prompt | None = None,
    rule: str = "auto",
    intercept: bool = False,
    data: Dataset | None = None,
    adapt: int = 0,
    episodes: int = 50,
    seed: int = 0,
    command: str | None = None,
) -> list[Row]:
    """Roll out goal prompts (one row a plan) and named reward prompts (one row each) in a task.

    plan: by default 0, 1, 3, "auto" and "graph" where the policy can plan, 0 where it only knows goals, nothing in a
    task without goals. goal: one for all episodes, as `hilp.evaluation.goals` reads it ("task3", "row:12", "x=3,y=4"),
    instead of those of the task; rows are of the policy's own states. goal_dims, smooth: see
    `FoundationPolicy.goal`; what counts as reached is the task's affair. rewards: names of the task's rewards; by
    default all of a task that has no goals. "target" is that of being at one far place, which mazes have. prompt:
    evaluate this one, a trained hierarchy say, under `rewards` (by default "target" where there is one) instead of
    making one for each. rule, intercept, data: see `FoundationPolicy.reward`. adapt: search around each reward's prompt
    with so many episodes first (`FoundationPolicy.adapt`), from a start of its own. All plans face the same starts and
    goals.
    """
    found = evaluate_with_rollouts(
        policy,
        task,
        plan=plan,
        goal=goal,
        goal_dims=goal_dims,
        smooth=smooth,
        rewards=rewards,
        prompt=prompt,
        rule=rule,
        intercept=intercept,
        data=data,
        adapt=adapt,
        episodes=episodes,
        seed=seed,
        command=command,
    )
    return [row for row, _ in found]


def evaluate_with_rollouts(
    policy: FoundationPolicy,
    task: str | tasks.Task,
    *,
    plan: int | str | Sequence[int | str] | None = None,
    goal: str | None = None,
    goal_dims: Sequence[int] | None = None,
    smooth: float | None = None,
    rewards: str | Iterable[str] | None = None,
    prompt: Prompt | None = None,
    rule: str = "auto",
    intercept: bool = False,
    data: Dataset | None = None,
    adapt: int = 0,
    episodes: int = 50,
    seed: int = 0,
    command: str | None = None,
) -> list[tuple[Row, Rollout]]:
    """`evaluate`, and beside each row the episodes behind it."""
    world = task_for_policy(policy, task_of(policy, task) if isinstance(task, str) else task)
    require_fit("this policy", policy.spec, world)
    episodes, seed, adapt = require_count("episodes", episodes), require_seed(seed), require_count("adapt", adapt, 0)
    if prompt is None and policy.skill_dim == 0:
        prompt = policy.skill()  # it was trained for one task, and takes no other
    if plan is None:
        plan = default_plans(policy) if world.has_goals and prompt is None else ()
    if rewards is None:
        rewards = default_rewards(world, prompt is not None)
    plans = [plan] if isinstance(plan, int | str) else list(plan)
    rewards = [rewards] if isinstance(rewards, str) else list(rewards)
    for name in rewards:
        require_reward(world, name)  # a wrong name is told before the first rollout
    if plans and not world.has_goals:
        raise HilpError(f"task {world.name} has no goals: prompt with its rewards, {some(list(world.rewards))}")
    if adapt and not rewards:
        raise HilpError("adapt changes prompts of rewards, and none is asked for: name some, rewards=...")
    if goal is not None and not plans:
        raise HilpError(f"the goal '{goal}' changes nothing without a plan: ask for one, e.g. plan=0")
    if (goal_dims is not None or smooth is not None) and not plans:
        raise HilpError(
            "goal_dims and smooth are of goals, and change nothing without a plan: ask for one, e.g. plan=0"
        )
    asked = None if goal is None else goals.find(goal, policy, world, seed=seed)
    about = describe(policy, world.name, seed, command)
    found: list[tuple[Row, Rollout]] = []
    for depth in plans:
        outcome, kept = rollout_goals(policy, world, depth, episodes, seed, asked, goal_dims, smooth)
        to: dict[str, Any] = {} if goal is None else {"goal": goal}
        to |= {} if goal_dims is None else {"goal_dims": [int(column) for column in goal_dims]}
        to |= {} if smooth is None else {"smooth": smooth}
        found.append((_row({**about, "prompt": "goal", "plan": depth, **to, **outcome}), kept))
    about |= (
        {} if (high := getattr(prompt, "high", None)) is None else {"hierarchy": hierarchy.high_level_summary(high)}
    )
    made: dict[str, Any] = {"rule": rule, "intercept": intercept, "data": data, "prompt": prompt}
    for name in rewards:
        searched: Outcome = {}
        if adapt:
            usual = prompt or reward_prompt(policy, data, reward_function(world, name), rule, intercept)
            made["prompt"], searched = _adapted(policy, world, name, usual, adapt, seed)
        if name in world.rewards:
            outcome, kept = rollout_return(policy, world, name, episodes, seed, **made)
        elif name in world.potentials:
            outcome, kept = rollout_reward(policy, world, name, episodes, seed, **made)
        else:
            outcome, kept = rollout_target(policy, world, episodes, seed, **made)
        found.append((_row({**about, "prompt": "reward", "reward": name, **outcome, **searched}), kept))
    return found


def _adapted(
    policy: FoundationPolicy, world: tasks.Task, name: str, prompt: Any, episodes: int, seed: int
) -> tuple[Prompt, Outcome]:
    """A prompt that was moved by what a few episodes earned, and what its row says of the prompt that it was.

    A seed of their own lets these episodes begin elsewhere than those that are counted.
    """
    own = int(np.random.default_rng([seed, SEARCH]).integers(2**31))
    search = policy.adapt(prompt, world, episodes=episodes, seed=own, reward=name)
    about = {"rule": rule_of(policy, prompt), "r2": finite(getattr(prompt, "r2", None))}
    return search.prompt, {**about, "adapted": episodes, "search": list(search.earned)}


def _row(values: dict[str, Any]) -> Row:
    return values  # type: ignore[return-value]  # built from parts, checked when it is written


def evaluate_in_training(
    policy: FoundationPolicy, world: tasks.Task, seed: int, episodes: int = TRAINING_EPISODES
) -> dict[str, float]:
    """What a policy in training reaches: some goals, and with the paper's plan where it can plan."""
    world = task_for_policy(policy, world)
    plans: dict[str, int] = {"success": 0}
    if policy.has_rule("goal_direction") and len(policy.bank):
        plans["success_plan"] = planning.RECURSIONS
    return {name: rollout_goals(policy, world, plan, episodes, seed)[0]["score"] for name, plan in plans.items()}


def describe(policy: FoundationPolicy, task: str, seed: int, command: str | None) -> dict[str, Any]:
    """What a row says about where it comes from."""
    return {
        "task": task,
        "method": policy.method,
        "config": policy.settings,
        "policy": policy.fingerprint,
        "train_seed": policy.provenance.seed,
        "train_steps": policy.provenance.steps,
        "data": policy.provenance.data,
        "data_fingerprint": policy.provenance.data_fingerprint,
        "checkpoint": "last",  # rows never mix the last policy of a run with the best one seen on the way
        "evaluation_seed": int(seed),  # JSON has no numbers of numpy
        "command": command or " ".join(sys.argv),
        "versions": versions(),
    }


def default_plans(policy: FoundationPolicy) -> tuple[int | str, ...]:
    """The plans to evaluate where nobody asked for others: as many as the policy has rules for."""
    if not policy.has_rule("goal_direction"):
        return (0,)
    return (0, 1, 3, "auto", "graph") if has_graph(policy) else (0, 1, 3, "auto")


def default_rewards(world: tasks.Task, given: bool) -> tuple[str, ...]:
    """The rewards to evaluate where nobody asked for others; `given`: a prompt that was made for some reward."""
    if given and hasattr(world, "at_target"):
        return (TARGET,)
    return () if world.has_goals and not given else tuple(world.rewards)
