"""Evaluation: a policy, prompts and a task in; one row of results a prompt out. Knows nothing about methods."""

import sys
import warnings
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from hilp import tasks
from hilp.data.dataset import Dataset, require_dataset
from hilp.errors import HilpError, require_count, require_name, require_seed, require_switch, some
from hilp.evaluation import behaviour, rollouts
from hilp.evaluation.rollouts import Rollout, rollout_goals, rollout_reward
from hilp.evaluation.rows import Row
from hilp.evaluation.setup import TARGET, acting_task, resolve_goal, reward_function, reward_of, task_for_policy
from hilp.policy import listening
from hilp.policy.policy import FoundationPolicy, require_policy
from hilp.prompts import midpoints
from hilp.prompts.agent import has_graph, has_ways
from hilp.prompts.base import SumPrompt, ThenPrompt
from hilp.prompts.specs import Goal, Reward, Spec, Sum, Then
from hilp.tasks.base import with_workers
from hilp.versions import versions

TRAINING_EPISODES = 50  # of an evaluation while training
SEARCH_STREAM = 2  # together with a seed: the random stream that the starts of a search are drawn from


def evaluate(
    policy: FoundationPolicy,
    task: str | tasks.Task,
    prompts: Any = None,
    *,
    plan: int | str | Sequence[int | str] | None = None,
    rewards: str | Iterable[str] | None = None,
    **options: Any,
) -> list[Row]:
    """Roll out prompts in a task: one row a prompt, in their order; all goal prompts face the same starts and goals.

    prompts: specs, `[Goal(plan="auto"), Goal("task3"), Reward("run", rule="graph")]`, with goals as
    `hilp.evaluation.setup` reads them, or without one those of the task; or one prompt or several of another kind (a
    trained hierarchy, `Skill(...)`, `Saved(...)`, `Sum(...)`), which are scored under `rewards`. Without `prompts`:
    `Goal(plan=p)` for each `plan` (default: `default_plans`, where the task has goals) and `Reward(name)` for each of
    `rewards` (default: all, in a task without goals). "target" is the reward of being at one far place, in tasks that
    have one. options: of `evaluate_with_rollouts`.
    """
    return [row for row, _ in evaluate_with_rollouts(policy, task, prompts, plan=plan, rewards=rewards, **options)]


def evaluate_with_rollouts(
    policy: FoundationPolicy,
    task: str | tasks.Task,
    prompts: Any = None,
    *,
    plan: int | str | Sequence[int | str] | None = None,
    rewards: str | Iterable[str] | None = None,
    data: Dataset | None = None,
    adapt: int = 0,
    episodes: int = 50,
    seed: int = 0,
    command: str | None = None,
    random: bool = False,
    workers: int | None = None,
) -> list[tuple[Row, Rollout]]:
    """`evaluate`, with the episodes behind each row.

    data: whose transitions rewards are fitted on (default: those kept in the policy). adapt: search around each
    reward's prompt with so many episodes first (`hilp.adapt`), from starts of their own. episodes, seed: of
    each prompt, and of their starts and goals. command: that made the rows. random: also say what random actions score.
    workers: processes that step episodes of Gymnasium and OGBench (default: this one alone), or threads that step those
    of other simulators; rows are the same for any number.
    """
    require_policy(policy)
    random = require_switch("random", random)
    if data is not None:
        require_dataset(data)
    if command is not None:
        require_name("command", command)
    world = acting_task(policy, task)
    episodes, seed, adapt = require_count("episodes", episodes), require_seed(seed), require_count("adapt", adapt, 0)
    workers = None if workers is None else require_count("workers", workers)
    jobs = _jobs(policy, world, _chosen(policy, world, prompts, plan, rewards), rewards, data, seed)
    if adapt and all(isinstance(one, Goal) for one, _, _ in jobs):
        raise HilpError("adapt changes prompts of rewards, and there is none: name some, rewards=...")
    about = describe(policy, world.name, seed, command)
    found: list[tuple[Row, Rollout]] = []
    by_chance: dict[str, Row] = {}  # what random actions score, by goal or reward
    with with_workers(world, workers) as world:
        for one, made, target in jobs:
            row = {**about, **({"spec": one.to_json()} if isinstance(one, Spec) else {})}
            if isinstance(one, Goal):
                outcome, rollout = rollout_goals(policy, world, one, episodes, seed, made)
                row |= {"prompt": "goal", "plan": one.plan, **outcome}
            else:
                with warnings.catch_warnings():  # of a bad fit of a reward: rows have its R^2
                    warnings.simplefilter("ignore")
                    prompt = make_prompt(policy, one, world, data, seed) if isinstance(one, Reward) else made
                outcome, rollout = _under_reward(policy, world, target, prompt, episodes, seed, adapt)
                row |= outcome
            row["behaviour"] = behaviour.behaviour(policy, rollout)
            if random:
                key = target or str(one.goal)
                if key not in by_chance:
                    by_chance[key] = rollouts.random_score(world, row, made if isinstance(one, Goal) else None)
                row |= by_chance[key]
            found.append((row, rollout))
    return found


def _under_reward(
    policy: FoundationPolicy, world: tasks.Task, name: str, prompt: Any, episodes: int, seed: int, adapt: int
) -> tuple[Row, Rollout]:
    """What a row says of a prompt under a reward; of the prompt as it was before a search moved it."""
    row = {"hierarchy": prompt.high.settings()} if hasattr(prompt, "high") else {}
    rule = str(prompt.kind) if policy.skill_dim else "none"
    r2 = getattr(prompt, "r2", None)
    fit: Row = {"rule": rule, "r2": r2 if r2 is not None and np.isfinite(r2) else None}  # JSON has no NaN
    if adapt:  # a seed of their own lets these episodes begin elsewhere than those that are counted
        own = int(np.random.default_rng([seed, SEARCH_STREAM]).integers(2**31))
        search = rollouts.adapt(policy, prompt, world, episodes=adapt, seed=own, reward=name)
        prompt, fit = search.prompt, {**fit, "adapted": adapt, "search": list(search.earned)}
    outcome, rollout = rollout_reward(policy, world, name, prompt, episodes, seed)
    return {**row, "prompt": "reward", "reward": name, **outcome, **fit}, rollout


def default_prompts(policy: FoundationPolicy, world: tasks.Task, plan: Any = None, rewards: Any = None) -> list[Any]:
    """A goal prompt a plan and a prompt a reward; a policy that was trained for one task acts as it does."""
    plans = [] if plan is None else _listed("plans", plan)
    if policy.skill_dim == 0:
        return [*(Goal(plan=one) for one in plans), policy.skill()]
    if plan is None and world.has_goals:
        plans = default_plans(policy)
    usual = [] if world.has_goals else list(world.rewards)
    names = usual if rewards is None else _listed("rewards", rewards)
    return [*(Goal(plan=one) for one in plans), *(Reward(name) for name in names)]


def default_plans(policy: FoundationPolicy) -> list[int | str]:
    """The plans that are evaluated by default: as many as the policy has rules for."""
    if not policy.has_rule("goal_direction"):
        return [0, "auto"] if has_ways(policy) else [0]
    return [0, 1, 3, "auto", *(["graph"] if has_graph(policy) else [])]


def _listed(what: str, value: Any) -> list[Any]:
    if isinstance(value, Integral | str | Spec) or callable(value):
        return [value]
    try:
        return list(value)
    except TypeError:
        raise HilpError(f"{what} are one or a list of them, not {value!r:.60}") from None


def _chosen(policy: FoundationPolicy, world: tasks.Task, prompts: Any, plan: Any, rewards: Any) -> list[Any]:
    if prompts is not None and plan is not None:
        raise HilpError("plan is short for prompts=[Goal(plan=...)]: give one of the two")
    chosen = default_prompts(policy, world, plan, rewards) if prompts is None else _listed("prompts", prompts)
    for one in chosen:
        if not isinstance(one, Spec) and not (callable(one) and hasattr(one, "kind")):
            raise HilpError(f"prompts are specs such as Goal(plan='auto') or prompts of this policy, not {one!r:.60}")
    if prompts is not None and rewards and all(isinstance(one, Goal | Reward) for one in chosen):
        raise HilpError("rewards score prompts of other kinds, and there is none: add Reward(...) to the prompts")
    return chosen


def _jobs(
    policy: FoundationPolicy, world: tasks.Task, chosen: list[Any], rewards: Any, data: Dataset | None, seed: int
) -> list[tuple[Any, Any, str]]:
    """Each goal spec with the goal that it names, each other prompt as it is made with the reward that scores it.

    Prompts of rewards are made later: their fit takes time. A prompt that does not go with the task is an error here,
    before the first rollout.
    """
    usual = [TARGET] if hasattr(world, "at_target") else list(world.rewards)
    names = usual if rewards is None else _listed("rewards", rewards)
    found: list[tuple[Any, Any, str]] = []
    for one in chosen:
        if isinstance(one, Goal):
            if not world.has_goals:
                raise HilpError(f"task {world.name} has no goals: prompt with its rewards, {some(list(world.rewards))}")
            found.append((*resolve_goal(one, policy, world, seed=seed), ""))
            continue
        scored_by = [str(one.reward)] if isinstance(one, Reward) else names
        for name in scored_by:
            reward_function(world, name)  # says which there are
        made = None if isinstance(one, Reward) else make_prompt(policy, one, world, data, seed)
        found += [(one, made, name) for name in scored_by]
    if not found:
        raise HilpError("nothing to evaluate: give at least one prompt, plan or reward")
    return found


def make_prompt(
    policy: FoundationPolicy, one: Any, world: tasks.Task | None = None, data: Dataset | None = None, seed: int = 0
) -> Any:
    """The prompt of a spec, or a prompt as it is; goals, columns and rewards in prompts may have names of the task."""
    if isinstance(one, Sum):
        return SumPrompt(tuple((weight, make_prompt(policy, part, world, data, seed)) for weight, part in one.parts))
    if isinstance(one, Then):
        first, second = (make_prompt(policy, part, world, data, seed) for part in (one.first, one.second))
        return ThenPrompt(first, second, one.until, {} if world is None else dict(world.columns))
    if isinstance(one, Goal) and one.goal is not None:
        spec, goal = resolve_goal(one, policy, world, seed=seed)
        return policy.goal(goal.observation, **spec.options())
    if isinstance(one, Reward) and one.reward is not None:
        return policy.reward(data, reward_of(one.reward, policy, world, data), **one.options())
    return policy.prompt(one, data) if isinstance(one, Spec) else one


def describe(policy: FoundationPolicy, task: str, seed: int, command: str | None) -> dict[str, Any]:
    """What a row says about where it comes from."""
    listens = listening.listening(policy)
    return {
        "task": task,
        "method": policy.method,
        "config": policy.settings,
        "policy": policy.fingerprint,
        **({} if listens is None else {"listening": listens}),
        "train_seed": policy.provenance.seed,
        "train_steps": policy.provenance.steps,
        "data": policy.provenance.data,
        "data_fingerprint": policy.provenance.data_fingerprint,
        "checkpoint": "last",  # rows never mix the last policy of a run with the best one seen on the way
        "evaluation_seed": int(seed),  # JSON has no numbers of numpy
        "command": command or " ".join(sys.argv),
        "versions": versions(),
    }


def evaluate_in_training(
    policy: FoundationPolicy, world: tasks.Task, seed: int, episodes: int = TRAINING_EPISODES
) -> dict[str, float]:
    """What a policy in training reaches: some goals, and with the paper's plan where it can plan."""
    world = task_for_policy(policy, world)
    plans = {"success": Goal(plan=0)}
    if policy.has_rule("goal_direction") and len(policy.bank):
        plans["success_plan"] = Goal(plan=midpoints.RECURSIONS)
    return {name: rollout_goals(policy, world, goal, episodes, seed)[0]["score"] for name, goal in plans.items()}
