"""Reading the arrays of many simulations at once, and writing a physics state into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class Views:
    """The arrays of n simulations, by their MuJoCo names, stacked when asked for: [n, ...]."""

    def __init__(self, simulations: Sequence[Any]) -> None:
        self._simulations = simulations
        self._views: dict[str, list[np.ndarray]] = {}  # MuJoCo updates them in place

    def __getattr__(self, name: str) -> np.ndarray:
        if name not in self._views:
            self._views[name] = [getattr(data, name) for data in self._simulations]
        return np.array(self._views[name])


class StateOf:
    """Writes physics states (positions, velocities, activations, side by side) into a simulation."""

    def __init__(self, model: Any, data: Any) -> None:
        self._qpos, self._qvel, self._act = data.qpos, data.qvel, data.act
        self._cuts = (model.nq, model.nq + model.nv)

    def set(self, state: np.ndarray) -> None:
        first, second = self._cuts
        self._qpos[:], self._qvel[:], self._act[:] = state[:first], state[first:second], state[second:]
