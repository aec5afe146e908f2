"""Provenance: what a policy says about where it comes from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Provenance:
    """The data and the training behind a policy's weights; empty where nobody said."""

    data: str | None = None  # name of the data set
    data_fingerprint: str | None = None
    task: str | None = None  # that the data was collected in
    first_observation: list[float] | None = None  # of the data: some goals look like it
    steps: int | None = None  # updates
    seed: int | None = None
    versions: dict[str, str] = field(default_factory=dict)  # of the software that trained it

    @staticmethod
    def from_json(origin: dict[str, Any]) -> Provenance:
        """From what a policy's folder says; keys of a later hilp are passed over."""
        known = {f.name for f in dataclasses.fields(Provenance)}
        return Provenance(**{key: value for key, value in origin.items() if key in known})

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in dataclasses.asdict(self).items() if value not in (None, {})}
