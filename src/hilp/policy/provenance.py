"""Provenance: what a policy says about where it comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hilp.policy import planning

LOOKS_RIGHT: dict[str, Callable[[Any], bool]] = {  # pages and tables show these, and folders come from strangers
    **dict.fromkeys(("data", "data_fingerprint", "task"), lambda value: isinstance(value, str)),
    **dict.fromkeys(("steps", "seed"), lambda value: type(value) is int and value >= 0),
    "first_observation": lambda value: (
        isinstance(value, list) and all(type(number) in (int, float) for number in value)
    ),
    "moving": lambda value: type(value) in (int, float) and value >= 0,
    "plan": lambda value: value in planning.NAMED or (type(value) is int and value >= 0),
    "versions": lambda value: isinstance(value, dict) and all(isinstance(text, str) for text in value.values()),
}


@dataclass(frozen=True)
class Provenance:
    """The data and the training behind a policy's weights; empty where nobody said."""

    data: str | None = None  # name of the data set
    data_fingerprint: str | None = None
    task: str | None = None  # that the data was collected in
    first_observation: list[float] | None = None  # of the data: some goals look like it
    steps: int | None = None  # updates
    seed: int | None = None
    moving: float | None = None  # change of latent distances in the last part of training, relative to their mean
    plan: int | str | None = None  # that held-out data advises for goals
    versions: dict[str, str] = field(default_factory=dict)  # of the software that trained it

    @staticmethod
    def from_json(origin: dict[str, Any]) -> Provenance:
        """From what a policy's folder says; keys of a later hilp are passed over, a ValueError where a value is odd."""
        for key, value in origin.items():
            if key in LOOKS_RIGHT and value is not None and not LOOKS_RIGHT[key](value):
                raise ValueError(f"'{key}' of its origin is not what it should be")
        return Provenance(**{key: value for key, value in origin.items() if key in LOOKS_RIGHT})

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in dataclasses.asdict(self).items() if value not in (None, {})}
