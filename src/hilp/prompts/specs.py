"""Prompts as data: frozen specs that go to JSON and back. Rows, command lines and saved prompts speak them.

`policy.prompt(spec)` makes the prompt of a spec. Names that only a task knows (a goal "task3", a reward "run") are
resolved by whoever has the task, before that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Literal, get_args

from hilp.errors import HilpError, is_number, nearest, require_count, require_seed, some

PLANS = ("auto", "graph", "midpoints")  # plans with a name; the others are numbers of midpoint recursions
MOST_RECURSIONS = 12
BEST = 50  # latents that are averaged into a subgoal
Rule = Literal["auto", "skill", "goal", "graph"]  # how a reward becomes a prompt
REWARD_DISCOUNT = 0.99  # a step, of rewards that are planned on the graph


@dataclass(frozen=True, kw_only=True)
class GoalOptions:
    """How a goal is reached."""

    plan: int | str = 0
    """midpoint recursions of the goal prompt, or auto, graph, midpoints"""
    best: int = BEST
    """latents that are averaged into a subgoal"""
    radius: float | None = None
    """latent steps within which a subgoal is not divided further (default: a share of the horizon of phi)"""
    goal_dims: tuple[int | str, ...] | None = None
    """columns of the goal that count, if not all do: x,y is a place, whatever the posture"""
    smooth: float | None = None
    """take the agent to be where it was on average over about so many steps, for bodies that walk and noisy sensors"""

    def __post_init__(self) -> None:
        if self.radius is not None and not is_number(self.radius, above=0.0):
            raise HilpError(f"radius is a number of latent steps above 0, not {self.radius!r:.60}")
        if self.smooth is not None and not (is_number(self.smooth) and self.smooth >= 1.0):
            raise HilpError(f"smooth is a number of steps from 1 on that the mean goes back, not {self.smooth!r:.60}")
        radius, smooth = (None if number is None else float(number) for number in (self.radius, self.smooth))
        dims = None if self.goal_dims is None else _columns(self.goal_dims)
        best = require_count("best", self.best)
        _set(self, plan=require_plan(self.plan), best=best, radius=radius, smooth=smooth, goal_dims=dims)

    def goal_options(self) -> dict[str, Any]:
        """The options by name, as `policy.goal` takes them."""
        return _values(self, GoalOptions)


@dataclass(frozen=True, kw_only=True)
class RewardOptions:
    """How a reward is followed."""

    rule: str = "auto"
    """find a skill, make the state of highest reward the goal, plan on the graph, or auto: skill, else graph"""
    intercept: bool = False
    """fit a constant too, so that adding one to the reward changes nothing"""
    discount: float = REWARD_DISCOUNT
    """a step, of rewards that are planned on the graph"""
    samples: int = 10_000
    """transitions whose rewards are looked at"""
    seed: int = 0
    """of the choice of these transitions"""

    def __post_init__(self) -> None:
        if self.rule not in get_args(Rule):
            raise HilpError(f"the rule of a reward is one of {some(get_args(Rule))}, not '{self.rule}'")
        if not is_number(self.discount, above=0.0) or not self.discount < 1.0:
            raise HilpError(f"the discount of a reward lies between 0 and 1, not at {self.discount!r:.60}")
        samples = require_count("samples", self.samples)
        _set(self, discount=float(self.discount), samples=samples, seed=require_seed(self.seed))

    def reward_options(self) -> dict[str, Any]:
        """The options by name, as `policy.reward` takes them."""
        return _values(self, RewardOptions)


class Spec:
    """What all specs share."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """As plain values; fields that have their default are left out."""
        found: dict[str, Any] = {"kind": self.kind}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # every spec is a dataclass
            value, usual = getattr(self, field.name), field.default
            if type(value) is not type(usual) or value != usual:  # arrays are never compared: no default is one
                found[field.name] = _plain(value)
        return found


@dataclass(frozen=True)
class Goal(GoalOptions, Spec):
    """Reach a goal: numbers, or a text that a task or a file resolves. Without one: the goals of the task."""

    kind = "goal"
    goal: Any = None


@dataclass(frozen=True)
class Reward(RewardOptions, Spec):
    """Maximise a reward: a formula, or a name that the task resolves."""

    kind = "reward"
    reward: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reward is not None and not isinstance(self.reward, str):
            raise HilpError(f"the reward of a spec is a name or a formula, not {self.reward!r:.60}")


@dataclass(frozen=True)
class Skill(Spec):
    """Follow one latent direction: numbers, or a random one."""

    kind = "skill"
    z: tuple[float, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        try:
            z = None if self.z is None else tuple(float(number) for number in self.z)
        except (TypeError, ValueError) as error:
            raise HilpError(f"the z of a skill is a row of numbers, not {self.z!r:.60}") from error
        _set(self, z=z, seed=require_seed(self.seed))


@dataclass(frozen=True)
class Prior(Spec):
    """Follow skills that the prior draws, a new one every k steps."""

    kind = "prior"
    k: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _set(self, k=None if self.k is None else require_count("k", self.k), seed=require_seed(self.seed))


@dataclass(frozen=True)
class Follow(Spec):
    """Follow a demonstration: rows of numbers."""

    kind = "follow"
    trajectory: Any = None
    window: int | None = None

    def __post_init__(self) -> None:
        _set(self, window=None if self.window is None else require_count("window", self.window))


@dataclass(frozen=True)
class Prefer(Spec):
    """The skill that explains preferences: pairs (better, worse)."""

    kind = "prefer"
    pairs: Any = ()


@dataclass(frozen=True)
class Saved(Spec):
    """A prompt from a file."""

    kind = "saved"
    path: str = ""

    def __post_init__(self) -> None:
        _set(self, path=str(self.path))


@dataclass(frozen=True)
class Sum(Spec):
    """The weighted sum of prompts: pairs (weight, spec)."""

    kind = "sum"
    parts: tuple[tuple[float, Spec], ...] = ()

    def __post_init__(self) -> None:
        try:
            pairs = tuple((weight, _require_spec(part)) for weight, part in self.parts)
        except (TypeError, ValueError) as error:
            raise HilpError(f"a sum is made of pairs (weight, prompt), not of {self.parts!r:.60}") from error
        if not pairs or not all(is_number(weight) for weight, _ in pairs):
            raise HilpError("a sum has at least one prompt, each with a finite weight")
        _set(self, parts=tuple((float(weight), part) for weight, part in pairs))


@dataclass(frozen=True)
class Then(Spec):
    """One prompt until its end, then another. `until`: steps, a formula, or 'reached' (the first one's own end)."""

    kind = "then"
    first: Spec | None = None
    second: Spec | None = None
    until: int | str | None = None

    def __post_init__(self) -> None:
        _require_spec(self.first), _require_spec(self.second)
        if self.until is not None and not isinstance(self.until, str):
            _set(self, until=require_count("until", self.until))


KINDS: dict[str, type[Any]] = {one.kind: one for one in (Goal, Reward, Skill, Prior, Follow, Prefer, Saved, Sum, Then)}


def from_json(described: Any) -> Any:
    """The spec behind plain values; a HilpError where they are none."""
    if not isinstance(described, Mapping) or not isinstance(described.get("kind"), str):
        raise HilpError(f"a prompt is a dict with a 'kind', one of {some(list(KINDS))}, not {described!r:.60}")
    kind, values = described["kind"], {key: value for key, value in described.items() if key != "kind"}
    if kind not in KINDS:
        raise HilpError(f"there is no prompt of the kind '{kind}': {nearest(kind, KINDS)}")
    fields = [field.name for field in dataclasses.fields(KINDS[kind])]
    for name in values:
        if name not in fields:
            raise HilpError(f"a {kind} prompt has no '{name}': {nearest(str(name), fields)}")
    try:
        return KINDS[kind](**{name: _read(value) for name, value in values.items()})
    except (TypeError, ValueError) as error:
        raise HilpError(f"a {kind} prompt cannot be made of {dict(described)!r:.200}: {error}") from error


def require_plan(plan: Any) -> int | str:
    """A plan of goals, checked."""
    if isinstance(plan, str) and plan in PLANS:
        return plan
    if isinstance(plan, bool) or not isinstance(plan, Integral) or int(plan) not in range(MOST_RECURSIONS + 1):
        raise HilpError(
            f"plan is a number of recursions from 0 to {MOST_RECURSIONS} or one of {some(PLANS)}, not {plan!r:.60}"
        )
    return int(plan)


def _columns(goal_dims: Any) -> tuple[int | str, ...]:
    """Columns of goals by number or name; one text holds several, as on the command line: "x,y"."""
    if isinstance(goal_dims, str):
        names = [name.strip() for name in goal_dims.split(",")]
        return tuple(int(name) if name.isdecimal() else name for name in names)
    try:
        found = tuple(int(one) if isinstance(one, Integral) else one for one in goal_dims)
    except TypeError:
        found = (goal_dims,)
    if not found or not all(isinstance(one, int | str) for one in found):
        raise HilpError(f"goal_dims are numbers or names of columns, such as (0, 1) or 'x,y', not {goal_dims!r:.60}")
    return found


def _set(spec: Any, **values: Any) -> None:
    """Give fields of a frozen spec their checked values: plain ones, whatever numpy had them in."""
    for name, value in values.items():
        object.__setattr__(spec, name, value)


def _values(options: Any, kind: type[Any]) -> dict[str, Any]:
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(kind)}


def _require_spec(part: Any) -> Spec:
    if not isinstance(part, Spec):
        raise HilpError(f"a part of a prompt is a prompt, not {part!r:.60}")
    return part


def _plain(value: Any) -> Any:
    """A value of a spec as JSON has it."""
    if isinstance(value, Spec):
        return value.to_json()
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if hasattr(value, "tolist"):
        return value.tolist()
    return [_plain(part) for part in value] if isinstance(value, tuple | list) else value


def _read(value: Any) -> Any:
    """The same backwards: lists become tuples, dicts with a kind become specs."""
    if isinstance(value, Mapping):
        return from_json(value) if "kind" in value else {name: _read(part) for name, part in value.items()}
    return tuple(_read(part) for part in value) if isinstance(value, list | tuple) else value
