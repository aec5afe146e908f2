"""The prompt of a spec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hilp.errors import HilpError
from hilp.policy.combining import SumPrompt, ThenPrompt, condition_of
from hilp.prompts import specs


def prompt(policy: Any, spec: Any, data: Any = None) -> Any:
    """The prompt of a spec for a policy. data: whose transitions a reward is fitted on."""
    make = MAKERS.get(getattr(spec, "kind", ""))
    if make is None:
        raise HilpError(f"a prompt is made of a spec such as Goal(...), not of {spec!r:.60}")
    return make(policy, spec, data)


def _goal(policy: Any, spec: specs.Goal, data: Any) -> Any:
    if spec.goal is None or isinstance(spec.goal, str):
        named = "without a goal" if spec.goal is None else f"to '{spec.goal}'"
        raise HilpError(f"a goal prompt {named} needs its task: give the numbers of an observation")
    return policy.goal(spec.goal, **spec.goal_options())


def _follow(policy: Any, spec: specs.Follow, data: Any) -> Any:
    if spec.trajectory is None or isinstance(spec.trajectory, str):
        raise HilpError("a follow prompt needs the rows of its demonstration, not the name of a file")
    return policy.follow(spec.trajectory, spec.window)


def _sum(policy: Any, spec: specs.Sum, data: Any) -> Any:
    return SumPrompt(tuple((weight, prompt(policy, part, data)) for weight, part in spec.parts))


def _then(policy: Any, spec: specs.Then, data: Any) -> Any:
    first, second = (prompt(policy, part, data) for part in (spec.first, spec.second))
    return ThenPrompt(first, second, condition_of(first, spec.until))


MAKERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "goal": _goal,
    "reward": lambda policy, spec, data: policy.reward(data, spec.reward, **spec.reward_options()),
    "skill": lambda policy, spec, data: policy.skill(spec.z, spec.seed),
    "prior": lambda policy, spec, data: policy.prior(spec.k, spec.seed),
    "follow": _follow,
    "prefer": lambda policy, spec, data: policy.prefer(spec.pairs),
    "saved": lambda policy, spec, data: policy.load_prompt(spec.path),
    "sum": _sum,
    "then": _then,
}
