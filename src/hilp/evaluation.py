"""Evaluation: a policy, prompts and a task in; one row of results a prompt out. Knows nothing about methods.

A row is plain JSON and says what made it: command, config, seeds, versions, and every episode's outcome.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hilp import stats, tasks
from hilp.errors import HilpError, nearest
from hilp.policy import FoundationPolicy
from hilp.versions import versions

REWARD_STEPS = 300  # length of an episode under a reward prompt
Row = dict[str, Any]


def evaluate(
    policy: FoundationPolicy,
    task: str | tasks.Task,
    *,
    plan: int | str | Sequence[int | str] = (0, 1, 3, "auto"),
    rewards: str | Iterable[str] = (),
    episodes: int = 50,
    seed: int = 0,
    command: str | None = None,
    paths: dict[str, Any] | None = None,
) -> list[Row]:
    """Roll out goal prompts (one row a plan) and named reward prompts (one row each) in a task.

    All plans face the same starts and goals. Where a dict is given as `paths`, the rollouts are put there for pictures.
    """
    world = tasks.make(task) if isinstance(task, str) else task
    require_fit("this policy", policy.spec.observation_dim, policy.spec.action_dim, world)
    if episodes < 1:
        raise HilpError(f"episodes must be at least 1, not {episodes}")
    plans = [plan] if isinstance(plan, int | str) else list(plan)
    rewards = [rewards] if isinstance(rewards, str) else list(rewards)
    for name in rewards:
        potential(world, name)  # a wrong name is told before the first rollout
    about = describe(policy, world, seed, command)
    rows = []
    for depth in plans:
        outcome, kept = rollout_goals(policy, world, depth, episodes, seed)
        rows.append({**about, "prompt": "goal", "plan": depth, **outcome})
        if paths is not None:
            paths[f"plan {depth}"] = kept
    for name in rewards:
        outcome, kept = rollout_reward(policy, world, name, episodes, seed)
        rows.append({**about, "prompt": "reward", "reward": name, **outcome})
        if paths is not None:
            paths[f"reward {name}"] = kept
    return rows


def describe(policy: FoundationPolicy, world: tasks.Task, seed: int, command: str | None) -> Row:
    """What a row says about where it comes from."""
    return {
        "task": world.name,
        "method": policy.method,
        "config": json.loads(json.dumps(dataclasses.asdict(policy.config))),
        "policy": policy.fingerprint,
        "train_seed": policy.origin.get("seed"),
        "train_steps": policy.origin.get("steps"),
        "data": policy.origin.get("data"),
        "data_fingerprint": policy.origin.get("data_fingerprint"),
        "checkpoint": "last",  # rows never mix the last policy of a run with the best one seen on the way
        "evaluation_seed": seed,
        "command": command or " ".join(sys.argv),
        "versions": versions(),
    }


def rollout_goals(
    policy: FoundationPolicy, world: tasks.Task, plan: int | str, episodes: int, seed: int
) -> tuple[Row, dict[str, Any]]:
    """Goal-reaching episodes side by side; an episode ends when its goal is reached."""
    running = world.episodes(np.random.default_rng(seed), episodes)
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
    }
    return row, {"observations": np.stack(path), "lengths": lengths, "goals": goals, "reached": reached}


def rollout_reward(
    policy: FoundationPolicy, world: tasks.Task, name: str, episodes: int, seed: int, steps: int = REWARD_STEPS
) -> tuple[Row, dict[str, Any]]:
    """Episodes under the reward f(s') - f(s) of a potential f of the task: the share of the possible gain realised."""
    f = potential(world, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the row carries R^2
        prompt = policy.reward(function=lambda s, a, s2: f(s2) - f(s))
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
        "r2": prompt.r2,
        "episodes": episodes,
        "outcomes": gain.tolist(),
        "possible": possible.tolist(),
        "steps": steps,
    }
    lengths = np.full(episodes, steps)
    no_goals = np.full_like(path[0], np.nan)
    reached = gain >= 0.5 * possible
    return row, {"observations": np.stack(path), "lengths": lengths, "goals": no_goals, "reached": reached}


def rollout_once(
    policy: FoundationPolicy,
    world: tasks.Task,
    prompt: Any,
    start: np.ndarray | None,
    goal: np.ndarray | None,
    steps: int,
    seed: int,
) -> tuple[np.ndarray, bool]:
    """One episode under a prompt: its observations, and whether it reached the goal (True where there is none)."""
    running = world.episodes(np.random.default_rng(seed), 1, start=start, goal=goal)
    path = [running.observations[0].copy()]
    for _ in range(steps):
        if goal is not None and running.reached()[0]:
            break
        running.step(policy.act(running.observations, prompt))
        path.append(running.observations[0].copy())
    return np.stack(path), goal is None or bool(running.reached()[0])


def potential(world: tasks.Task, name: str) -> Any:
    if name not in world.potentials:
        raise HilpError(f"task {world.name} has no reward '{name}': {nearest(name, world.potentials)}")
    return world.potentials[name]


def aggregate(rows: list[Row], by: Sequence[str] = ("task", "method", "prompt", "plan", "reward")) -> list[Row]:
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
    return {"step": best["step"], "success": best["success"]}


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
