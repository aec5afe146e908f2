"""Prompts as data: frozen specs that go to JSON and back. Rows, command lines and saved prompts speak them.

`policy.prompt(spec)` makes the prompt of a spec. Names that only a task knows (a goal "task3", a reward "run") are
resolved by whoever has the task, before that.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, get_args

from hilp.errors import (
    HilpError,
    is_count,
    is_number,
    is_one_of,
    nearest,
    require_count,
    require_seed,
    require_switch,
    some,
)

PLANS = ("auto", "graph", "midpoints")  # plans with a name; the others are numbers of midpoint recursions
MOST_RECURSIONS = 12
BEST = 50  # latents that are averaged into a subgoal
Rule = Literal["auto", "skill", "goal", "graph", "segments"]  # how a reward becomes a prompt
REWARD_DISCOUNT = 0.99  # a step, of rewards that are planned on the graph


@dataclass(frozen=True, kw_only=True)
class GoalOptions:
    """How a goal is reached."""

    plan: int | str = "auto"
    """way to the goal: 0 (straight), recursions of midpoints, midpoints, graph, or auto: as the data shows, straight
    where a policy has nothing to plan with"""
    best: int = BEST
    """latents that are averaged into a subgoal"""
    radius: float | None = None
    """latent steps within which a subgoal is not divided further (default: a share of the horizon of phi)"""
    goal_dims: tuple[int | str, ...] | None = None
    """columns of the goal that count, if not all do: x,y is a place, whatever the posture"""
    smooth: float | Literal["auto"] = "auto"
    """take the agent to be where it was on average over about so many steps, for bodies that walk and noisy sensors;
    1: where it is; auto: as the data asks"""


@dataclass(frozen=True, kw_only=True)
class RewardOptions:
    """How a reward is followed."""

    rule: str = "auto"
    """find a skill, go to the state of highest reward, plan on the graph, do as the best-paid segments did, or auto"""
    intercept: bool = False
    """fit a constant too, so that adding one to the reward changes nothing"""
    discount: float = REWARD_DISCOUNT
    """a step, of rewards that are planned on the graph"""
    samples: int = 10_000
    """transitions whose rewards are looked at"""
    seed: int = 0
    """of the choice of these transitions"""


KINDS: dict[str, type[Any]] = {}  # of specs, by the kind that JSON says


class Spec:
    """What all specs share. Fields are checked as CHECKS says, and plain then, whatever numpy had them in."""

    kind: ClassVar[str]  # of JSON: the name of the class

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__name__.lower()
        KINDS[cls.kind] = cls

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # every spec is a dataclass
            value = getattr(self, field.name)
            if field.name in CHECKS and not (value is None and field.default is None):
                object.__setattr__(self, field.name, CHECKS[field.name](value))

    def options(self) -> dict[str, Any]:
        """Of goals and rewards: the options by name, as `policy.goal` and `policy.reward` take them."""
        own = dataclasses.fields(self)  # type: ignore[arg-type]
        return {field.name: getattr(self, field.name) for field in own if field.kw_only}

    def to_json(self) -> dict[str, Any]:
        """As plain values; fields that have their default are left out, but for the plan, which rows are about."""
        found: dict[str, Any] = {"kind": self.kind}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value, usual = getattr(self, field.name), field.default
            is_usual = type(value) is type(usual) and value == usual  # arrays are never compared: no default is one
            if field.name == "plan" or not is_usual:
                found[field.name] = _plain(value)
        return found


@dataclass(frozen=True)
class Goal(GoalOptions, Spec):
    """Reach a goal: numbers, or a text that a task or a file resolves. Without one: the goals of the task."""

    goal: Any = None


@dataclass(frozen=True)
class Reward(RewardOptions, Spec):
    """Maximise a reward: a formula, or a name that the task resolves."""

    reward: str | None = None


@dataclass(frozen=True)
class Skill(Spec):
    """Follow one latent direction: numbers, or a random one."""

    z: tuple[float, ...] | None = None
    seed: int = 0


@dataclass(frozen=True)
class Prior(Spec):
    """Follow skills that the prior draws, a new one every k steps."""

    k: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Follow(Spec):
    """Follow a demonstration: rows of numbers."""

    trajectory: Any = None
    window: int | None = None


@dataclass(frozen=True)
class Prefer(Spec):
    """The skill that explains preferences: pairs (better, worse)."""

    pairs: Any = ()


@dataclass(frozen=True)
class Saved(Spec):
    """A prompt from a file."""

    path: str = ""


@dataclass(frozen=True)
class Sum(Spec):
    """The weighted sum of prompts: pairs (weight, spec)."""

    parts: tuple[tuple[float, Spec], ...] = ()


@dataclass(frozen=True)
class Then(Spec):
    """One prompt until its end, then another. `until`: steps, a formula, or 'reached' (the first one's own end)."""

    first: Any = ""  # a spec: there is no default
    second: Any = ""
    until: int | str | None = None


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


def _must(said: str, fits: Callable[[Any], bool], plain: Callable[[Any], Any] = lambda value: value) -> Any:
    """A check of a field that gives its value as plain numbers and texts."""

    def check(value: Any) -> Any:
        if not fits(value):
            raise HilpError(f"{said}, not {value!r:.60}")
        return plain(value)

    return check


def _is_plan(plan: Any) -> bool:
    return int(plan) in range(MOST_RECURSIONS + 1) if is_count(plan) else is_one_of(plan, PLANS)


def _columns(goal_dims: Any) -> tuple[int | str, ...]:
    """Columns of goals by number or name; one text holds several, as on the command line: "x,y"."""
    if isinstance(goal_dims, str):
        names = [name.strip() for name in goal_dims.split(",")]
        return tuple(int(name) if name.isdecimal() else name for name in names)
    try:
        found = tuple(int(one) if is_count(one) else one for one in goal_dims)
    except TypeError:
        found = (goal_dims,)
    if not found or not all(isinstance(one, str) or is_count(one) for one in found):
        raise HilpError(f"goal_dims are numbers or names of columns, such as (0, 1) or 'x,y', not {goal_dims!r:.60}")
    return found


def _direction(z: Any) -> tuple[float, ...]:
    try:
        return tuple(float(number) for number in z)
    except (TypeError, ValueError) as error:
        raise HilpError(f"the z of a skill is a row of numbers, not {z!r:.60}") from error


def _weighed(parts: Any) -> tuple[tuple[float, Spec], ...]:
    try:
        pairs = tuple((weight, CHECKS["first"](part)) for weight, part in parts)
    except (TypeError, ValueError) as error:
        raise HilpError(f"a sum is made of pairs (weight, prompt), not of {parts!r:.60}") from error
    if not pairs or not all(is_number(weight) for weight, _ in pairs):
        raise HilpError("a sum has at least one prompt, each with a finite weight")
    return tuple((float(weight), part) for weight, part in pairs)


CHECKS: dict[str, Callable[[Any], Any]] = {  # of fields, by name; None needs none where it is the default
    "plan": _must(
        f"plan is a number of recursions from 0 to {MOST_RECURSIONS} or one of {some(PLANS)}",
        _is_plan,
        lambda plan: plan if isinstance(plan, str) else int(plan),
    ),
    "radius": _must("radius is a number of latent steps above 0", partial(is_number, above=0.0), float),
    "smooth": _must(
        "smooth is a number of steps from 1 on that the mean goes back, or 'auto'",
        lambda it: it == "auto" if isinstance(it, str) else is_number(it) and it >= 1.0,
        lambda it: it if isinstance(it, str) else float(it),
    ),
    "goal_dims": _columns,
    "rule": _must(
        f"the rule of a reward is one of {some(get_args(Rule))}", lambda rule: is_one_of(rule, get_args(Rule))
    ),
    "discount": _must(
        "the discount of a reward lies between 0 and 1", lambda it: is_number(it, above=0.0) and it < 1.0, float
    ),
    "reward": _must("the reward of a spec is a name or a formula", lambda reward: isinstance(reward, str)),
    "intercept": partial(require_switch, "intercept"),
    "z": _direction,
    "seed": require_seed,
    **{name: partial(require_count, name) for name in ("best", "samples", "k", "window")},
    "path": str,
    "parts": _weighed,
    **dict.fromkeys(("first", "second"), _must("a part of a prompt is a prompt", lambda it: isinstance(it, Spec))),
    "until": lambda until: until if isinstance(until, str) else require_count("until", until),
}


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
