"""What is known of a data set besides its rows, whether these are in memory or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

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
    stride: int | None = None  # rows of the log that one step spans; None: 1, and free to be chosen
    stride_actions: str = "mean"  # how the commands of a stride became one: mean or sum
    frames: int = 1  # of a picture and those before it that networks see at once
    transform: ObservationTransform | None = None  # of observations, where networks do not see them as they are

    def metadata(self) -> dict[str, Any]:
        """These fields, to be handed on."""
        return {known.name: getattr(self, known.name) for known in fields(Metadata)}

    def to_json(self) -> dict[str, Any]:
        """As plain values, for dataset.json."""
        scaling = self.action_scaling
        return {
            "name": self.name,
            "task": self.task,
            "read_as": self.format,
            "endings": dict(self.endings),
            "notes": list(self.notes),
            "observation_parts": [[name, list(shape)] for name, shape in self.observation_parts],
            "action_parts": [[name, list(shape)] for name, shape in self.action_parts],
            "action_center": None if scaling is None else scaling.center.tolist(),
            "action_half_range": None if scaling is None else scaling.half_range.tolist(),
            "stride": self.stride,
            "stride_actions": self.stride_actions,
            "frames": self.frames,
            "transform": None if self.transform is None else self.transform.to_json(),
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Metadata:
        """From plain values; a ValueError, TypeError or KeyError where they are none of this."""
        center, half_range = (
            None if values[key] is None else np.asarray(values[key], np.float32)
            for key in ("action_center", "action_half_range")
        )
        return Metadata(
            name=values["name"],
            task=values["task"],
            format="native",
            endings=values["endings"],
            notes=tuple(values["notes"]),
            observation_parts=_parts(values["observation_parts"]),
            action_parts=_parts(values["action_parts"]),
            action_scaling=None if center is None or half_range is None else ActionScaling(center, half_range),
            stride=None if values["stride"] is None else max(1, int(values["stride"])),
            stride_actions=str(values["stride_actions"]),
            frames=max(1, int(values["frames"])),
            transform=None if values["transform"] is None else ObservationTransform.from_json(values["transform"]),
        )


def _parts(values: Any) -> Parts:
    return tuple((str(name), tuple(map(int, shape))) for name, shape in values)
