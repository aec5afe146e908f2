"""A task as a policy acts in it, whether the two fit, and the rewards of a task by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hilp import tasks
from hilp.data import rewards
from hilp.data.dataset import Dataset
from hilp.data.rewards import RewardFunction
from hilp.errors import HilpError, nearest, some
from hilp.policy.policy import FoundationPolicy
from hilp.prompts import formulas
from hilp.prompts import reward as reward_prompts
from hilp.spec import Spec
from hilp.tasks import rendering

TARGET = "target"  # the reward of being at the one far place that some tasks have, or of their subtasks


def reward_names(world: tasks.Task) -> list[str]:
    """The rewards that a task has a name for."""
    target = {TARGET} if hasattr(world, "at_target") else set()
    return sorted({*world.potentials, *world.rewards, *target})


def reward_shift(world: Any, name: str, shift: float | None = None, ends: bool = False) -> dict[str, Any]:
    """How a task's reward is learnt from, by default that of a far place as in the paper's AntMaze.

    There every step costs 1, and the episode ends at the place.
    """
    far = name == TARGET and bool(getattr(world, "target_ends", True))
    return {"shift": (-1.0 if far else 0.0) if shift is None else shift, "ends": ends or far}


def reward_function(world: Any, name: str) -> RewardFunction:
    """A task's reward of this name, as a function of (s, a, s') or (s, a, s', extras); an error where it has none."""
    if name not in reward_names(world):
        raise HilpError(f"task {world.name} has no reward '{name}': {nearest(name, reward_names(world))}")
    if name in world.rewards:
        return world.rewards[name]
    if name not in world.potentials:
        return world.at_target
    potential = world.potentials[name]
    return lambda s, a, s2: potential(s2) - potential(s)


def reward_of(text: str, policy: FoundationPolicy, world: Any | None) -> Any:
    """The reward that a text names or is the formula of; over parts, images among them, the policy reads it itself."""
    columns = {} if world is None else dict(world.columns)
    parts = [*columns, *dict(policy.observation_parts), *(name for name, _, _ in policy.spec.parts)]
    named = named_reward(text, parts, world)
    if named is not None or policy.spec.parts:
        return named or text
    return formulas.reward(text, policy.observation_parts, policy.spec.observation_dim, policy.spec.action_dim, columns)


def named_reward(text: str, parts: Iterable[str], world: Any | None) -> RewardFunction | None:
    """The reward of a task that a text names; None where it is a formula over these parts of an observation."""
    known = world is not None and text in reward_names(world)
    if not known and (text in parts or not text.isidentifier()):
        return None
    if world is None:
        raise HilpError(f"'{text}' is a name: name the task whose reward it is with --task, or give a formula")
    try:
        return reward_function(world, text)
    except HilpError as error:  # says which names there are
        column = next(iter(world.columns), "observation[0]")
        raise HilpError(f"{error}; or give a formula, e.g. '{column} - before({column})'") from None


def label(data: Dataset, reward: str | None, shift: float | None = None, ends: bool = False) -> Dataset:
    """The data with rewards: those of its task or of a formula, or its own."""
    if reward is None:
        return rewards.label(data, shift=shift or 0.0, ends=ends)
    spec = Spec.of(data.observations, data.action_dim)
    world = None if data.task is None else tasks.make_recorded(data.task)
    if world is not None:
        fits = not spec.parts or rendering.policy_spec(world).parts == spec.parts
        world = rendering.for_data(world, data) if fits else None
    names = [*dict(data.observation_parts), *(name for name, _, _ in spec.parts)]
    function = named_reward(reward, names, world) or reward_prompts.formula(spec, data.observation_parts, reward)
    return rewards.label(data, function, **reward_shift(world, reward, shift, ends))


def task_of(policy: FoundationPolicy, name: str | None = None) -> Any:
    """A task, by default the one that the policy's data names, in the form that it has on that data."""
    recorded = policy.provenance.task
    if name is None and recorded is None:
        raise HilpError(
            "this policy's data does not say which task it comes from: name one with --task, or measure the policy on "
            "episodes with `hilp evaluate RUN --data FILE`"
        )
    world = tasks.make_recorded(str(recorded)) if name is None else tasks.make(name)
    first = policy.provenance.first_observation
    return world if first is None or len(first) != world.observation_dim else world.for_data(np.asarray(first))


def task_if_known(policy: FoundationPolicy, name: str | None) -> Any | None:
    """The task of this name, or of the policy's data, as the policy acts in it; None where neither is known."""
    if not (name or policy.provenance.task):
        return None
    if name is not None or not policy.spec.parts:
        return task_for_policy(policy, task_of(policy, name))
    try:
        world = task_for_policy(policy, task_of(policy))
    except HilpError:  # it can be prompted without one
        return None
    return world if rendering.policy_spec(world).parts == policy.spec.parts else None  # data may see more than a task


def acting_task(policy: FoundationPolicy, task: str | tasks.Task) -> Any:
    """A task, by name or as it is, in the form that a policy acts in; the two must fit."""
    world = task_for_policy(policy, task_of(policy, task) if isinstance(task, str) else task)
    require_fit("this policy", policy.spec, world)
    return world


def task_for_policy(policy: FoundationPolicy, world: tasks.Task) -> Any:
    """The task as a policy acts in it, where the task has forms of its own for that.

    Tasks act in [-1, 1], logs of a robot may be in the robot's own units; and goals may look like states of the
    policy's data.
    """
    if hasattr(world, "for_states") and not policy.spec.parts and policy.spec.observation_dim == world.observation_dim:
        world = world.for_states(policy.bank.observations)
    if not hasattr(world, "with_own_units"):
        return world
    preparation = policy.preparation
    beyond = (np.abs(preparation.action_center) + preparation.action_half_range > 1 + 1e-3).any()
    return world.with_own_units(True) if beyond else world


def require_fit(what: str, spec: Spec, world: tasks.Task) -> None:
    """Raise unless a policy or a data set has the observations and actions of a task."""
    wanted = rendering.policy_spec(world)
    if spec.parts != wanted.parts:
        names, its = ([f"{name} {kind} {shape}" for name, shape, kind in one.parts] for one in (spec, wanted))
        has = f"observations by name ({some(names)})" if names else "plain vectors"
        raise HilpError(
            f"{what} has {has}, task {world.name} has {some(its) if its else 'plain vectors'}: use it without a task"
        )
    if (spec.observation_dim, spec.action_dim) != (wanted.observation_dim, wanted.action_dim):
        raise HilpError(
            f"{what} has {spec.observation_dim} observation and {spec.action_dim} action numbers, task {world.name} "
            f"has {wanted.observation_dim} and {wanted.action_dim}: choose the task it comes from"
        )
