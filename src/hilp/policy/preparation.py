"""Preparation: what happens to observations before the networks and to actions after them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hilp import trees
from hilp.data.dataset import Dataset
from hilp.data.transforms import ObservationTransform, one_hot
from hilp.learning.sampling import normalised
from hilp.spec import Spec
from hilp.trees import Tree

ARRAYS = ("mean", "scale", "action_center", "action_half_range")


@dataclass(frozen=True)
class Preparation:
    """What happens to observations before the networks and to actions after them; part of the artifact.

    Of observations with named parts, `mean` and `scale` hold those parts that are numbers; bytes are left as they are.
    Where networks do not see observations as they are, `transform` comes before `mean` and `scale`.
    """

    mean: Tree  # [obs], or by name
    scale: Tree  # as mean
    action_center: np.ndarray  # [act]
    action_half_range: np.ndarray  # [act]
    stride: int = 1  # rows of the user's log that a step of training spans; it acts at every row all the same
    transform: ObservationTransform | None = None
    choices: int = 0  # of discrete actions
    history: int = 1  # rows that an observation stacks, each of which `transform` is of

    @cached_property
    def view(self) -> ObservationTransform | None:
        """The transform of whole observations."""
        return None if self.transform is None else self.transform.repeated(self.history)

    @staticmethod
    def of(data: Dataset, normalize: bool) -> "Preparation":
        """Measured on the data; a constant column is only shifted, never divided by its zero deviation."""
        mean, scale = Preparation._measured(data.network_inputs, normalize)
        scaling = data.action_scaling
        center = np.zeros(data.action_dim) if scaling is None else scaling.center
        half_range = np.ones(data.action_dim) if scaling is None else scaling.half_range
        stride = data.stride or 1
        if data.stride_actions == "sum":  # of a stride; the user acts row by row
            center, half_range = center / stride, half_range / stride
        actions = np.asarray(center, np.float32), np.asarray(half_range, np.float32)
        return Preparation(mean, scale, *actions, stride, data.transform, data.choices, data.spec.history)

    @staticmethod
    def _measured(observations: Tree, normalize: bool) -> tuple[Tree, Tree]:
        if isinstance(observations, Mapping):
            parts = {name: part for name, part in sorted(observations.items()) if part.dtype != np.uint8}
            both = {name: Preparation._measured(part, normalize) for name, part in parts.items()}
            return {name: mean for name, (mean, _) in both.items()}, {name: scale for name, (_, scale) in both.items()}
        if not normalize:
            return np.zeros(observations.shape[1:], np.float32), np.ones(observations.shape[1:], np.float32)
        mean, deviation = _mean_and_deviation(observations)
        scale = np.where(deviation > 1e-6 * np.maximum(1.0, np.abs(mean)), deviation, 1.0)
        return np.asarray(mean, np.float32), np.asarray(scale, np.float32)

    def observations(self, observations: Tree) -> Tree:
        """Of the user, as the networks take them."""
        view = self.view
        seen = observations if view is None else view(observations)
        return normalised(seen, self.mean, self.scale)

    def seen(self, spec: Spec) -> Spec:
        """What networks know of data that the user knows as `spec`."""
        seen = spec if self.view is None else replace(spec, observation_dim=self.view.size)
        return seen.of_networks

    def answers(self, actions: np.ndarray) -> np.ndarray:
        """Of the networks, in the user's units; of discrete actions a score for each choice."""
        return actions if self.choices else self.action_center + self.action_half_range * actions

    def inside(self, actions: np.ndarray) -> np.ndarray:
        """Of the user, as the networks give them; of discrete actions 1 for the one that was chosen, else 0."""
        if self.choices:
            return np.asarray(one_hot(np.asarray(actions), self.choices))
        return np.asarray((actions - self.action_center) / self.action_half_range, np.float32)

    def to_json(self) -> dict[str, Any]:
        found = {name: trees.over(np.ndarray.tolist, getattr(self, name)) for name in ARRAYS}
        found |= {} if self.stride == 1 else {"stride": self.stride}  # as before there were any
        return found if self.transform is None else {**found, "transform": self.transform.to_json()}

    @staticmethod
    def from_json(described: Mapping[str, Any], spec: Spec) -> "Preparation":
        """From what a policy's folder says; a ValueError where it does not fit the policy's spec."""
        transform = ObservationTransform.from_json(described["transform"]) if "transform" in described else None
        if transform is not None and (spec.parts or transform.width != spec.of_row.observation_dim):
            raise ValueError("its transform is not one of its observations")
        size = spec.observation_dim if transform is None else transform.size * spec.history
        numbers = {name: shape for name, shape, kind in spec.parts if kind != "uint8"}

        def array(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
            found = np.asarray(values, np.float32)
            if found.shape != shape or not np.isfinite(found).all():
                raise ValueError(f"'{name}' is not {math.prod(shape)} numbers")
            return found

        def tree(name: str) -> Tree:
            if not spec.parts:
                return array(name, described[name], (size,))
            if described[name].keys() != numbers.keys():
                raise ValueError(f"'{name}' has other parts than the observation")
            return {part: array(name, described[name][part], shape) for part, shape in sorted(numbers.items())}

        stride = described.get("stride", 1)
        if set(described) - {"stride", "transform"} != set(ARRAYS) or type(stride) is not int or stride < 1:
            raise ValueError("a part of the preparation is missing or unexpected")
        center, half_range = (array(name, described[name], (spec.action_dim,)) for name in ARRAYS[2:])
        more = (stride, transform, spec.choices, spec.history)
        return Preparation(tree("mean"), tree("scale"), center, half_range, *more)


def _mean_and_deviation(rows: np.ndarray, block: int = 1 << 16) -> tuple[np.ndarray, np.ndarray]:
    """Of each column, in float64 and two passes, block by block so that mapped files need no memory."""
    blocks = [slice(start, start + block) for start in range(0, len(rows), block)]
    mean = sum(np.sum(rows[b], axis=0, dtype=np.float64) for b in blocks) / len(rows)
    variance = sum(np.sum(np.square(rows[b] - mean), axis=0) for b in blocks) / len(rows)
    return np.asarray(mean), np.sqrt(variance)
