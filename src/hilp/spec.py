"""Spec: what a method has to know of the data to build its networks."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hilp.errors import HilpError, some


@dataclass(frozen=True)
class Spec:
    """The sizes of one row."""

    observation_dim: int  # numbers of an observation, those of all parts where it has some
    action_dim: int  # numbers of an action; of discrete actions one, and for networks as many as there are choices
    parts: tuple[tuple[str, tuple[int, ...], str], ...] = ()  # name, shape, dtype ("float32", "uint8"); () for a vector
    choices: int = 0  # of discrete actions how many there are, 0 to choices - 1; 0: actions are continuous
    history: int = 1  # rows of the log that one vector stacks, oldest first: its own and those before it

    @staticmethod
    def of(observations: Any, action_dim: int, choices: int = 0) -> "Spec":
        """Of observations as they are: one array of rows, or named ones."""
        if not isinstance(observations, Mapping):
            return Spec(int(observations.shape[1]), action_dim, choices=choices)
        kinds = {name: "uint8" if part.dtype.name == "uint8" else "float32" for name, part in observations.items()}
        parts = tuple((name, tuple(observations[name].shape[1:]), kinds[name]) for name in sorted(kinds))
        return Spec(_numbers(parts), action_dim, parts, choices)

    @property
    def of_networks(self) -> "Spec":
        """With actions as networks have them: a discrete one is a number for each choice."""
        return replace(self, action_dim=self.choices) if self.choices else self

    @property
    def of_row(self) -> "Spec":
        """Of one row of the log, of those that an observation stacks."""
        return replace(self, observation_dim=self.observation_dim // self.history, history=1)

    def newest(self, observations: Any) -> Any:
        """What rewards, formulas and pictures read of observations: the last row of those that are stacked."""
        return observations if self.history == 1 else observations[..., -self.of_row.observation_dim :]

    @property
    def actions(self) -> str:
        """What an action is, in words."""
        return f"{self.choices} discrete actions" if self.choices else f"{self.action_dim} action numbers"

    def require_continuous(self, what: str, instead: str) -> None:
        """Raise where actions are discrete, for what has no form for them."""
        if self.choices:
            raise HilpError(f"{what} has no form for discrete actions, and this data has {self.choices}: {instead}")

    @property
    def pictures(self) -> dict[str, tuple[int, int, int]]:
        """The parts of an observation that are pictures, in their order in a row: height, width and channels."""
        kept = [(n, shape) for n, shape, kind in self.parts if kind == "uint8" and len(shape) == 3]
        return {name: (shape[0], shape[1], shape[2]) for name, shape in kept}

    def require(self, what: str, wanted: "Spec", whose: str, remedy: str) -> None:
        """Raise unless something of this spec has the observations and actions of something else."""
        if self.parts != wanted.parts:
            own, its = (some([f"{n} {kind} {shape}" for n, shape, kind in one.parts]) for one in (self, wanted))
            has = f"observations by name ({own})" if own else "plain vectors"
            raise HilpError(f"{what} has {has}, {whose} has {its or 'plain vectors'}: {remedy}")
        if (self.observation_dim, self.actions) != (wanted.observation_dim, wanted.actions):
            theirs = wanted.action_dim if not (self.choices or wanted.choices) else wanted.actions
            raise HilpError(
                f"{what} has {self.observation_dim} observation and {self.actions}, {whose} has "
                f"{wanted.observation_dim} and {theirs}: {remedy}"
            )

    def to_json(self) -> dict[str, Any]:
        """As plain values; without parts where there are none."""
        plain = {"observation_dim": self.observation_dim, "action_dim": self.action_dim}
        plain |= {"choices": self.choices} if self.choices else {}
        plain |= {"history": self.history} if self.history > 1 else {}
        return {**plain, **({"parts": [[n, list(shape), kind] for n, shape, kind in self.parts]} if self.parts else {})}

    @staticmethod
    def from_json(described: Mapping[str, Any]) -> "Spec":
        """From plain values; a TypeError or ValueError where they describe no data."""
        parts = tuple((n, tuple(shape), kind) for n, shape, kind in described.get("parts", ()))
        spec = Spec(**{**described, "parts": parts})
        sizes = (spec.observation_dim, spec.action_dim, *(size for _, shape, _ in parts for size in shape))
        if not all(type(size) is int and size >= 1 for size in sizes):
            raise ValueError("a size is not a whole number above 0")
        if type(spec.choices) is not int or spec.choices < 0 or (spec.choices and spec.action_dim != 1):
            raise ValueError("a discrete action is one number, of a whole number of choices")
        if type(spec.history) is not int or spec.history < 1 or spec.observation_dim % spec.history:
            raise ValueError("an observation is no whole number of rows")
        if not all(isinstance(name, str) and kind in ("float32", "uint8") for name, _, kind in parts):
            raise ValueError("a part of an observation is neither float32 nor uint8")
        if parts and spec.observation_dim != _numbers(parts):
            raise ValueError("the parts of an observation are not as large as the whole")
        return spec


def _numbers(parts: Iterable[tuple[str, tuple[int, ...], str]]) -> int:
    return sum(math.prod(shape) for _, shape, _ in parts)
