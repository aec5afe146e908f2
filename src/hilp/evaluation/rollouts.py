"""Evaluation: a policy, prompts and a task in; one row of results a prompt out. Knows nothing about methods.

A row is plain JSON and says what made it: command, config, seeds, versions, and every episode's outcome.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp import tasks
from hilp.data.extras import Extras, RewardFunction, apply_reward
from hilp.errors import HilpError, nearest
from hilp.evaluation import stats
from hilp.policy import planning, prompts
from hilp.policy.policy import FoundationPolicy
from hilp.versions import versions

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset

REWARD_STEPS = 300  # length of an episode under a reward prompt
LOOK_EPISODES = 50  # of a look at a policy in training
Row = dict[str, Any]


def task_of(policy: FoundationPolicy, name: str) -> Any:
    """A task in the form that it has on the policy's data."""
    world = tasks.make(name)
    first = policy.provenance.first_observation
    return world if first is None or len(first) != world.observation_dim else world.for_data(np.asarray(first))


def evaluate(
    policy: FoundationPolicy,
    task: str | tasks.Task,
    *,
    plan: int | str | Sequence[int | str] | None = None,
    rewards: str | Iterable[str] | None = None,
    rule: str = "skill",
    intercept: bool = False,
    data: Dataset | None = None,
    episodes: int = 50,
    seed: int = 0,
    command: str | None = None,
    paths: dict[str, Any] | None = None,
) -> list[Row]:
    """Roll out goal prompts (one row a plan) and named reward prompts (one row each) in a task.

    plan: by default 0, 1, 3 and "auto" where the policy can plan, 0 where it only knows goals, nothing in a task
    without goals. rewards: names of the task's rewards; by default all of a task that has no goals. rule, intercept,
    data: see `FoundationPolicy.reward`. All plans face the same starts and goals. Where a dict is given as `paths`, the
    rollouts are put there for pictures.
    """
    world = task_of(policy, task) if isinstance(task, str) else task
    require_fit("this policy", policy.spec.observation_dim, policy.spec.action_dim, world)
    if episodes < 1:
        raise HilpError(f"episodes must be at least 1, not {episodes}")
    if plan is None:
        plan = usual_plans(policy) if world.has_goals else ()
    if rewards is None:
        rewards = () if world.has_goals else world.rewards
    plans = [plan] if isinstance(plan, int | str) else list(plan)
    rewards = [rewards] if isinstance(rewards, str) else list(rewards)
    for name in rewards:
        require_reward(world, name)  # a wrong name is told before the first rollout
    if plans and not world.has_goals:
        raise HilpError(f"task {world.name} has no goals: prompt with its rewards, {', '.join(world.rewards)}")
    about = describe(policy, world, seed, command)
    rows = []
    for depth in plans:
        outcome, kept = rollout_goals(policy, world, depth, episodes, seed)
        rows.append({**about, "prompt": "goal", "plan": depth, **outcome})
        if paths is not None:
            paths[f"plan {depth}"] = kept
    for name in rewards:
        if name in world.rewards:
            outcome, kept = rollout_return(policy, world, name, episodes, seed, rule, intercept, data)
        else:
            outcome, kept = rollout_reward(policy, world, name, episodes, seed, rule, intercept, data)
        rows.append({**about, "prompt": "reward", "reward": name, **outcome})
        if paths is not None:
            paths[f"reward {name}"] = kept
    return rows


def describe(policy: FoundationPolicy, world: tasks.Task, seed: int, command: str | None) -> Row:
    """What a row says about where it comes from."""
    return {
        "task": world.name,
        "method": policy.method,
        "config": policy.settings,
        "policy": policy.fingerprint,
        "train_seed": policy.provenance.seed,
        "train_steps": policy.provenance.steps,
        "data": policy.provenance.data,
        "data_fingerprint": policy.provenance.data_fingerprint,
        "checkpoint": "last",  # rows never mix the last policy of a run with the best one seen on the way
        "evaluation_seed": seed,
        "command": command or " ".join(sys.argv),
        "versions": versions(),
    }


def rollout_goals(
    policy: FoundationPolicy, world: tasks.Task, plan: int | str, episodes: int, seed: int
) -> tuple[Row, dict[str, Any]]:
    """Goal-reaching episodes side by side; an episode ends when its goal is reached.

    A method without a goal rule gets the skill of the reward of being at the goal.
    """
    running = world.episodes(np.random.default_rng(seed), episodes)
    if plan == 0 and not policy.has_rule("direct") and not policy.has_rule("aim"):
        prompt: Any = prompts.goals_by_reward(policy, world.near, running.goals)
    else:
        prompt = policy.goal(running.goals, plan=plan)
    goals = running.goals.copy()
    path = [running.observations.copy()]
    reached = running.reached()
    lengths = np.where(reached, 0, world.max_steps)
    for step in range(world.max_steps):
        if reached.all():
            break
        z = prompt(running.observations, active=~reached)
        actions = policy.act(running.observations, z)
        actions[reached] = 0.0
        running.step(actions)
        now = running.reached() & ~reached
        lengths[now] = step + 1
        reached |= now
        path.append(running.observations.copy())
    success = reached.astype(float)
    low, high = stats.wilson(int(reached.sum()), episodes)
    row = {
        "metric": "success",
        "score": float(success.mean()),
        "interval": [low, high],
        "episodes": episodes,
        "outcomes": success.tolist(),
        "lengths": lengths.tolist(),
        "mean_length_of_successes": float(lengths[reached].mean()) if reached.any() else None,
        **({"radius": prompt.radius} if plan == "auto" else {}),
    }
    return row, {"observations": np.stack(path), "lengths": lengths, "goals": goals, "reached": reached}


def look(policy: FoundationPolicy, world: tasks.Task, seed: int, episodes: int = LOOK_EPISODES) -> dict[str, float]:
    """A quick look at a policy in training: how many goals it reaches, and with the paper's plan where it can plan."""
    plans: dict[str, int] = {"success": 0}
    if policy.has_rule("direct") and len(policy.bank):
        plans["success_plan"] = planning.RECURSIONS
    return {name: rollout_goals(policy, world, plan, episodes, seed)[0]["score"] for name, plan in plans.items()}


def _reward_prompt(
    policy: FoundationPolicy, data: Dataset | None, reward: RewardFunction, rule: str, intercept: bool
) -> prompts.Prompt:
    """The policy's prompt for a reward, without a warning about a bad fit: rows carry R^2."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return policy.reward(data, reward, rule=rule, intercept=intercept)


def rollout_reward(
    policy: FoundationPolicy,
    world: tasks.Task,
    name: str,
    episodes: int,
    seed: int,
    rule: str = "skill",
    intercept: bool = False,
    data: Dataset | None = None,
    steps: int = REWARD_STEPS,
) -> tuple[Row, dict[str, Any]]:
    """Episodes under the reward f(s') - f(s) of a potential f of the task: the share of the possible gain realised."""
    f = world.potentials[name]
    prompt = _reward_prompt(policy, data, reward_function(world, name), rule, intercept)
    running = world.episodes(np.random.default_rng(seed), episodes)
    path = [running.observations.copy()]
    for _ in range(steps):
        running.step(policy.act(running.observations, prompt))
        path.append(running.observations.copy())
    start = f(path[0])
    possible = world.potential_max(name) - start
    gain = f(path[-1]) - start
    row = {
        "metric": "share of the possible gain",
        "score": float(gain.sum() / possible.sum()),
        "r2": getattr(prompt, "r2", None),
        "episodes": episodes,
        "outcomes": gain.tolist(),
        "possible": possible.tolist(),
        "steps": steps,
    }
    lengths = np.full(episodes, steps)
    no_goals = np.full_like(path[0], np.nan)
    reached = gain >= 0.5 * possible
    return row, {"observations": np.stack(path), "lengths": lengths, "goals": no_goals, "reached": reached}


def rollout_return(
    policy: FoundationPolicy,
    world: tasks.Task,
    name: str,
    episodes: int,
    seed: int,
    rule: str = "skill",
    intercept: bool = False,
    data: Dataset | None = None,
) -> tuple[Row, dict[str, Any]]:
    """Episodes under a reward of being somewhere: the return, and beside it what a random and the best policy earn."""
    prompt = _reward_prompt(policy, data, world.rewards[name], rule, intercept)
    returns, path, physics = run_returns(policy, world, name, prompt, episodes, seed)
    best = world.best_return(name, path[0], world.max_steps)
    _, low, high = stats.stratified_bootstrap([returns], statistic="mean", seed=seed)
    row = {
        "metric": "return",
        "score": float(returns.mean()),
        "interval": [low, high],
        "rule": prompt.kind,
        "intercept": intercept,
        "r2": getattr(prompt, "r2", None),
        "best_possible": None if best is None else float(best.mean()),
        "episodes": episodes,
        "outcomes": returns.tolist(),
        "steps": world.max_steps,
    }
    lengths = np.full(episodes, world.max_steps)
    no_goals = np.full_like(path[0], np.nan)
    reached = np.zeros(episodes, bool) if best is None else returns >= 0.5 * best
    kept = {"observations": path, "lengths": lengths, "goals": no_goals, "reached": reached}
    return row, kept if physics is None else {**kept, "physics": physics}


def random_return(world: tasks.Task, name: str, episodes: int, seed: int) -> np.ndarray:
    """What uniformly random actions earn under a reward, from the same starts as the episodes of this seed."""
    return run_returns(None, world, name, None, episodes, seed)[0]


def run_returns(
    policy: FoundationPolicy | None, world: tasks.Task, name: str, prompt: Any, episodes: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Returns [n], observations [steps + 1, n, obs] and, where there are, physics [steps, n, p] of whole episodes.

    Without a policy, actions are random.
    """
    running = world.episodes(np.random.default_rng(seed), episodes)
    chance = np.random.default_rng([seed, 1])
    returns = np.zeros(episodes)
    path = [running.observations.copy()]
    states: list[np.ndarray] = []
    for _ in range(world.max_steps):
        if policy is None:
            actions = chance.uniform(-1, 1, (episodes, world.action_dim))
        else:
            actions = policy.act(running.observations, prompt)
        running.step(actions)
        beside = {column: running.extra(column) for column in world.extra_columns}
        extras = Extras({}, beside, world.name)
        returns += apply_reward(world.rewards[name], path[-1], actions, running.observations, extras)
        path.append(running.observations.copy())
        states += [beside["physics"]] if "physics" in beside else []
    return returns, np.stack(path), np.stack(states) if states else None


def rollout_once(
    policy: FoundationPolicy,
    world: tasks.Task,
    prompt: Any,
    start: np.ndarray | None,
    goal: np.ndarray | None,
    steps: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray | None, bool]:
    """One episode under a prompt: observations, physics if any, and whether it reached its goal (True: has none)."""
    running = world.episodes(np.random.default_rng(seed), 1, start=start, goal=goal)
    path = [running.observations[0].copy()]
    physics = []
    for _ in range(steps):
        if goal is not None and running.reached()[0]:
            break
        running.step(policy.act(running.observations, prompt))
        path.append(running.observations[0].copy())
        physics += [running.extra("physics")[0]] if "physics" in world.extra_columns else []
    return np.stack(path), np.stack(physics) if physics else None, goal is None or bool(running.reached()[0])


def path_return(
    policy: FoundationPolicy, world: tasks.Task, name: str, prompt: Any, path: np.ndarray, physics: np.ndarray | None
) -> float:
    """What one episode [t + 1, obs] earned under a reward of its task."""
    extras = Extras({}, {} if physics is None else {"physics": physics}, world.name)
    actions = policy.act(path[:-1], prompt)
    return float(apply_reward(world.rewards[name], path[:-1], actions, path[1:], extras).sum())


def usual_plans(policy: FoundationPolicy) -> tuple[int | str, ...]:
    """The plans to evaluate where nobody asked for others: as many as the policy has rules for."""
    return (0, 1, 3, "auto") if policy.has_rule("direct") else (0,)


def require_reward(world: tasks.Task, name: str) -> None:
    """Raise unless a task has a reward of this name."""
    known = {**world.potentials, **world.rewards}
    if name not in known:
        raise HilpError(f"task {world.name} has no reward '{name}': {nearest(name, known)}")


def reward_function(world: tasks.Task, name: str) -> RewardFunction:
    """A task's reward of this name, as a function of (s, a, s') or (s, a, s', extras)."""
    require_reward(world, name)
    if name in world.rewards:
        return world.rewards[name]
    f = world.potentials[name]
    return lambda s, a, s2: f(s2) - f(s)


def aggregate(
    rows: list[Row], by: Sequence[str] = ("task", "method", "prompt", "plan", "reward", "metric")
) -> list[Row]:
    """Scores over seeds: mean, std, and IQM with a seeded 95% bootstrap interval, stratified by task."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in by), []).append(row)
    table = []
    for key, members in groups.items():
        scores = [row["score"] for row in members]
        mean, std = stats.mean_std(scores)
        strata: dict[str, list[float]] = {}
        for row in members:
            strata.setdefault(row["task"], []).append(row["score"])
        iqm, low, high = stats.stratified_bootstrap(list(strata.values()))
        named = {name: value for name, value in zip(by, key, strict=True) if value is not None}
        table.append({**named, "runs": len(members), "mean": mean, "std": std, "iqm": iqm, "interval": [low, high]})
    return table


def best_look(metrics: str | os.PathLike[str]) -> Row | None:
    """The best evaluation seen while training, and when; told beside the last policy's score, never instead of it."""
    looks = [row for row in read_rows(metrics) if "success" in row] if Path(metrics).is_file() else []
    if not looks:
        return None
    best = max(looks, key=lambda row: row["success"])
    return {"step": best.get("look_step", best["step"]), "success": best["success"]}


def curve(metrics: str | os.PathLike[str]) -> list[Row]:
    """The looks of a run in their order; a metrics row carries the latest one."""
    looks = {row["look_step"]: row for row in read_rows(metrics) if "look_step" in row}
    return [
        {"step": step, **{name: row[name] for name in ("success", "success_plan") if name in row}}
        for step, row in sorted(looks.items())
    ]


def append_rows(path: str | os.PathLike[str], rows: list[Row]) -> None:
    """Add rows to a JSONL file."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    except OSError as error:
        raise HilpError(f"cannot write {path}: {error.strerror or error}") from error


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """Rows of a JSONL file."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError as error:
        raise HilpError(f"cannot read {path}: {error.strerror or error}") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise HilpError(f"{path} line {number} is not JSON: {error}") from error
    return rows


def require_fit(what: str, observation_dim: int, action_dim: int, world: tasks.Task) -> None:
    """Raise unless a policy or a data set has the observations and actions of a task."""
    if (observation_dim, action_dim) != (world.observation_dim, world.action_dim):
        raise HilpError(
            f"{what} has {observation_dim} observation and {action_dim} action numbers, task {world.name} has "
            f"{world.observation_dim} and {world.action_dim}: choose the task it comes from"
        )
