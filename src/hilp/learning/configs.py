"""Configs, frozen dataclasses of hyper-parameters whose types say which values make sense, and stages of training."""

import builtins
import dataclasses
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from jax import Array

from hilp.errors import HilpError, is_count, is_number, nearest

Info = dict[str, Array]  # scalar metrics of one update
AUTO = "auto"
LARGEST = 2**31 - 1  # of a whole number: sizes beyond it are typing errors
ONE_WHOLE = "shares of one whole"  # fields with this note sum to at most 1
LATER = {"later": True}  # options added to methods that were in use: at their default they change no fingerprint

Count = Annotated[int, "at least 1"]
OfEight = Annotated[int, "at least 1", "a multiple of 8"]
Sizes = Annotated[tuple[int, ...], "sizes of at least 1"]
TwoSizes = Annotated[tuple[int, int], "two sizes of at least 1"]
NonNegative = Annotated[float, "at least 0"]
AutoNonNegative = Annotated[float, "at least 0", AUTO]
Positive = Annotated[float, "above 0"]
Fraction = Annotated[float, "between 0 and 1"]
AutoFraction = Annotated[float, "between 0 and 1", AUTO]  # or "auto", until training finds the one that fits its data
AutoCount = Annotated[int, "at least 1", AUTO]
AutoSwitch = Annotated[bool, AUTO]
UpTo = Annotated[int, "at least 0"]
Share = Annotated[float, "from 0 to 1"]
GoalShare = Annotated[float, "from 0 to 1", ONE_WHOLE]
Ema = Annotated[float, "above 0, at most 1"]

RULES: dict[str, Callable[[Any], bool]] = {
    "at least 1": lambda v: v >= 1,
    "a multiple of 8": lambda v: v % 8 == 0,
    "at least 0": lambda v: v >= 0,
    "above 0": lambda v: v > 0,
    "between 0 and 1": lambda v: 0 < v < 1,
    "from 0 to 1": lambda v: 0 <= v <= 1,
    "above 0, at most 1": lambda v: 0 < v <= 1,
    "sizes of at least 1": lambda v: len(v) > 0 and min(v) >= 1,
    "two sizes of at least 1": lambda v: len(v) == 2 and min(v) >= 1,
}

Head = Literal["gaussian", "flow"]  # of actors: see hilp.learning.actors
Encoder = Literal["paper", "light", "none"]  # of a half of the paper; for two CPU cores; bytes as plain numbers
Augment = Literal["rows", "apart", "none"]  # random shifts: the same for all images of a row, or each its own


class Stage(NamedTuple):
    """A part of training, with a sampler and an update of its own; the state goes on from one to the next.

    A column is a function of (cfg, state, observations), batch x dim, that is computed once for all rows of the data
    when the stage begins, and again when it is resumed: so it may depend only on what the stage does not train. The
    stage's sampler draws rows of it by name, as of any other column.
    """

    sample: Callable[..., Any]
    update: Callable[..., tuple[Any, Info]]
    until: int | None = None  # the update that it ends before; None: the end of the run
    columns: Mapping[str, Callable[..., Array]] = {}


@dataclasses.dataclass(frozen=True)
class BaseConfig:
    """What the configs of all methods have in common. Values that make no sense are one line."""

    encoder: Encoder = "paper"  # of images: the paper's, a light one, or none (bytes as numbers)
    augment: Augment = "rows"  # random shifts of images, in half of the batches
    normalize: bool = False  # shift and scale observations by the data's mean and standard deviation

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _plain(getattr(self, field.name)))
        check(self)
        shares = {name: getattr(self, name) for name, (_, notes) in _kinds(type(self)).items() if ONE_WHOLE in notes}
        if sum(shares.values()) > 1.0:
            keys, values = " and ".join(f"'{name}'" for name in shares), " + ".join(map(str, shares.values()))
            raise HilpError(f"config keys {keys} are {ONE_WHOLE}: together at most 1, not {values}")


@dataclasses.dataclass(frozen=True)
class ActorConfig(BaseConfig):
    """Of an actor in the goal-conditioned half; the defaults are the paper's table."""

    actor_hidden: Sizes = (512, 512, 512)  # layers of the policy; the paper has (256, 256) on AntMaze-large
    batch: Count = 1024  # transitions per update
    lr: NonNegative = 3e-4  # Adam, every network


@dataclasses.dataclass(frozen=True)
class TrunkConfig(ActorConfig):
    """Of an actor and of networks that it learns from."""

    hidden: Sizes = (512, 512, 512)  # layers of values, critics and features


@dataclasses.dataclass(frozen=True)
class SuccessorConfig(BaseConfig):
    """Of TD3 in the zero-shot half; the defaults are the paper's table."""

    preprocess_hidden: TwoSizes = (1024, 512)  # layers that (s, a), (s, z) and s go through apart
    hidden: Count = 1024  # layer after them
    batch: Count = 1024  # transitions per update
    lr: NonNegative = 1e-4  # Adam, critics and actor
    discount: Fraction = 0.98  # of what critics foretell: rewards, cumulants or the successor measure
    tau: Share = 0.01  # EMA of their targets
    noise: NonNegative = 0.2  # TD3's smoothing of actions
    noise_clip: NonNegative = 0.3  # the noise is cut here
    # Of staying with the data's actions, for logs that show few others ("auto": where near states act alike); not in
    # the paper.
    bc_weight: AutoNonNegative = dataclasses.field(default=0.0, metadata=LATER)
    augment: Augment = "apart"  # random shifts of images: of s, s' and goals each their own


@dataclasses.dataclass(frozen=True)
class ChunkConfig(BaseConfig):
    """Of an actor that answers several actions at once; not in the paper, whose actors answer one."""

    # Actions answered at once; "auto": as many as the data's stay alike, where they say where a body shall be.
    chunk: AutoCount = dataclasses.field(default=1, metadata=LATER)
    play: UpTo = dataclasses.field(default=0, metadata=LATER)  # of them played before asking anew; 0: all

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chunk != AUTO and self.play > self.chunk:
            raise HilpError(f"config key 'play' is at most 'chunk' ({self.chunk}), not {self.play}")


def played(config: Any) -> dict[str, int]:
    """What an export says of its chunks: how many actions it answers at once, and how many of them are played."""
    chunk = getattr(config, "chunk", 1)
    return {"chunk": chunk, "play": getattr(config, "play", 0) or chunk}


def values(config: Any) -> dict[str, Any]:
    """What runs, policies and rows hold of a config; LATER options are left out at their default."""
    own = ((field, getattr(config, field.name)) for field in dataclasses.fields(config))
    return {field.name: value for field, value in own if field.metadata != LATER or value != field.default}


Kind = tuple[Any, tuple[str, ...]]  # a type, and the notes that it was annotated with


def _kinds(config: type) -> dict[str, Kind]:
    hints = typing.get_type_hints(config, include_extras=True)
    plain = typing.get_type_hints(config)
    return {name: (plain[name], getattr(hint, "__metadata__", ())) for name, hint in hints.items()}


def _plain(value: Any) -> Any:
    """A value without numpy's types, which JSON does not have; programs are kept by config, so lists are tuples."""
    value = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def check(config: Any) -> None:
    """Raise where a value of a config makes no sense."""
    for name, kind in _kinds(type(config)).items():
        _check(name, getattr(config, name), *kind)


def _check(name: str, value: Any, kind: Any, notes: tuple[str, ...]) -> None:
    if AUTO in notes and isinstance(value, str) and value == AUTO:
        return
    if not _fits(value, kind):
        wanted = getattr(kind, "__name__", str(kind))
        raise HilpError(f"config key '{name}' needs a value of type {wanted}, not {value!r:.60}")
    for rule in notes:
        if rule in RULES and not RULES[rule](value):
            raise HilpError(f"config key '{name}' must be {rule}, not {value}")
    for number in value if isinstance(value, tuple | list) else (value,):
        if isinstance(number, int) and abs(number) > LARGEST:
            raise HilpError(f"config key '{name}' must be at most {LARGEST:,}")
    if typing.get_origin(kind) is Literal:
        _parse(name, value, kind)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a field's type: "4" is no number, 1.5 no count, and an infinite number no size."""
    match typing.get_origin(kind) or kind:
        case builtins.bool:
            return isinstance(value, bool | np.bool_)
        case builtins.int:
            return is_count(value)
        case builtins.float:
            return is_number(value)
        case builtins.tuple:
            return isinstance(value, tuple | list) and all(_fits(one, int) for one in value)
    return isinstance(value, str) if typing.get_origin(kind) is Literal else True


def to_fit(config: Any) -> list[str]:
    """The keys of a config that are still to be fitted to data."""
    kinds = _kinds(type(config)).items()
    return [name for name, (_, notes) in kinds if AUTO in notes and getattr(config, name) == AUTO]


def known(config: Any, values: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """Of the values that a run holds of its config (`values`) those of these keys; LATER options at their default."""
    left_out = {field.name: field.default for field in dataclasses.fields(config) if field.metadata == LATER}
    found = {**(left_out if values else {}), **values}
    return {key: found[key] for key in keys if key in found}


def reference_values(config: Any, *more: str, **phi: object) -> dict[str, object]:
    """Config values of a V(s, g) to compare the distances of a phi with: phi's sizes, goals and discount."""
    same = ("batch", "goal_discount", "goal_random", "encoder", "normalize", *more)
    phi |= {"discount": config.phi_discount, "tau": config.phi_tau}
    return {name: getattr(config, name) for name in same} | phi


def changed(config: Any, changes: dict[str, Any]) -> Any:
    """A copy of a frozen config with some values changed; text is parsed by the field's type."""
    kinds = _kinds(type(config))
    parsed = {}
    for key, value in changes.items():
        if key not in kinds:
            raise HilpError(f"unknown config key '{key}': {nearest(key, kinds)}")
        kind, notes = kinds[key]
        parsed[key] = value if AUTO in notes and value == AUTO else _parse(key, value, kind)
    return dataclasses.replace(config, **parsed)  # all at once: some values make sense only together


def _parse(key: str, value: Any, kind: Any) -> Any:
    """`value` as the type of a config field, from text (command line) or JSON."""
    if typing.get_origin(kind) is Literal:
        options = typing.get_args(kind)
        if value not in options:
            raise HilpError(f"config key '{key}' cannot be '{value}': {nearest(str(value), map(str, options))}")
        return value
    try:
        if typing.get_origin(kind) is tuple:
            parts = value.replace("x", ",").strip("()[]").split(",") if isinstance(value, str) else value
            return tuple(_parse(key, part, typing.get_args(kind)[0]) for part in parts if part != "")
        return _READERS.get(kind, kind)(value)
    except (LookupError, TypeError, ValueError, OverflowError):
        wanted = getattr(kind, "__name__", str(kind))
        raise HilpError(f"config key '{key}' needs a value of type {wanted}, not '{value}'") from None


def _whole(value: Any) -> int:
    number = float(value)
    if number != int(number):
        raise ValueError
    return int(number)


_READERS: dict[Any, Callable[[Any], Any]] = {
    bool: lambda value: {"true": True, "1": True, "false": False, "0": False}[str(value).lower()],
    int: _whole,
}
