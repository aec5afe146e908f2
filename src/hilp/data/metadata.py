"""What is known of a data set beside its rows, whether these are in memory or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from hilp.data.transforms import ActionScaling, ObservationTransform

Parts = tuple[tuple[str, tuple[int, ...]], ...]  # named parts of a row, side by side: name, shape


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """Where data comes from and what was done to it; a Dataset and a Source have these fields."""

    name: str = "arrays"
    task: str | None = None  # the task it was collected in, where hilp collected it
    format: str = "arrays"  # the reader that took it
    endings: Mapping[str, int] = field(default_factory=dict)  # how many episodes end in which way, where the data says
    notes: tuple[str, ...] = ()  # what the reader decided or left out, one line each
    observation_parts: Parts = ()
    action_parts: Parts = ()  # where columns of a log make up an action
    action_scaling: ActionScaling | None = None  # where actions were rescaled
    stride: int | None = None  # rows of the log that one step spans; None where nobody said, as 1 but free to be chosen
    stride_actions: str = "mean"  # how the commands of a stride became one: mean or sum
    frames: int = 1  # of a picture and those before it that networks see at once
    transform: ObservationTransform | None = None  # of observations, where networks do not see them as they are

    def metadata(self) -> dict[str, Any]:
        """These fields, to be handed on."""
        return {known.name: getattr(self, known.name) for known in fields(Metadata)}
