"""Points in OGBench's mazes, many side by side: its physics to the bit, a hundred times faster than by its steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from hilp.tasks.antmaze import CELL
from hilp.tasks.simulator import import_simulator

STEP = 0.2  # how far an action of 1 moves a point along its axis
RADIUS = 0.7  # of its ball
SUBSTEPS = 5
FREE = 1e-3  # farther from every wall than this, nothing touches


class Points:
    """An action moves a point, then the simulator pushes it out of the walls.

    Where nothing touches there is nothing to push: a ball at rest without forces stays, to the bit, so that the
    simulator need not be asked. It starts each solution from the last one, which is therefore kept for each point.
    """

    def __init__(self, model: Any, walls: np.ndarray, xy: np.ndarray) -> None:
        """Points at xy [n, 2] in the compiled model of a maze with these walls [rows, columns]."""
        self._mujoco, self._model, self._walls = import_simulator("OGBench"), model, walls
        self._data = self._mujoco.MjData(model)
        self.xy = np.array(xy, np.float64)
        self._warm = np.zeros_like(self.xy)

    @property
    def observations(self) -> np.ndarray:
        return self.xy.astype(np.float32)

    def step(self, actions: np.ndarray) -> None:
        """Move all points by actions [n, 2]."""
        self.xy = self.xy + STEP * np.asarray(actions, np.float64)
        touching = self.touching()
        for i in np.flatnonzero(touching):
            data = self._data
            data.qpos[:], data.qvel[:], data.qacc_warmstart[:] = self.xy[i], 0.0, self._warm[i]
            self._mujoco.mj_step(self._model, data, SUBSTEPS)
            self.xy[i], self._warm[i] = data.qpos, data.qacc_warmstart
        self._warm[~touching] = 0.0

    def touching(self) -> np.ndarray:
        """Which points are within their radius of a wall, or a hair farther."""
        cells = self.xy / CELL + 1.5  # (column, row), with a cell from one whole number to the next
        reach = (RADIUS + FREE) / CELL
        low, high = np.floor(cells - reach).astype(np.intp), np.floor(cells + reach).astype(np.intp)
        touching = np.zeros(len(cells), bool)
        # The ball is taken as a square here, which may ask the simulator too often, never too seldom.
        rows, columns = self._walls.shape
        for column in (low[:, 0], high[:, 0]):
            for row in (low[:, 1], high[:, 1]):
                touching |= self._walls[row.clip(0, rows - 1), column.clip(0, columns - 1)]
        return touching
