"""Robots side by side in a maze of OGBench: points and ants, with the physics of its environments to the bit.

Both have `observations` [n, obs] float32, `xy` [n, 2] float64, `toward(directions)`, the actions along unit directions,
and `step(actions)`.
"""

from __future__ import annotations

import numpy as np

from hilp.collectors.ant_controller import Controller
from hilp.tasks.antmaze import CELL, AntEpisodes
from hilp.tasks.ogbench.mazes import OgbenchMaze
from hilp.tasks.simulator import import_simulator

POINT_STEP = 0.2  # how far an action of 1 moves the point along its axis
POINT_RADIUS = 0.7  # of its ball
POINT_SUBSTEPS = 5
FREE = 1e-3  # farther from every wall than this, nothing touches


class Points:
    """Points: an action moves one, then the simulator pushes it out of the walls.

    Where nothing touches there is nothing to push: a ball at rest without forces stays, to the bit, so that the
    simulator need not be asked. It starts each solution from the last one, which is therefore kept for each point.
    """

    def __init__(self, world: OgbenchMaze, rng: np.random.Generator, xy: np.ndarray) -> None:
        self._mujoco, self._model = import_simulator("OGBench"), world.env.model
        self._data = self._mujoco.MjData(self._model)
        self._walls = world.walls
        self.xy = np.array(xy, np.float64)
        self._warm = np.zeros_like(self.xy)
        self.observations = self.xy.astype(np.float32)

    def toward(self, directions: np.ndarray) -> np.ndarray:
        return directions

    def step(self, actions: np.ndarray) -> None:
        self.xy = self.xy + POINT_STEP * np.asarray(actions, np.float64)
        touching = self._touching()
        for i in np.flatnonzero(touching):
            data = self._data
            data.qpos[:], data.qvel[:], data.qacc_warmstart[:] = self.xy[i], 0.0, self._warm[i]
            self._mujoco.mj_step(self._model, data, POINT_SUBSTEPS)
            self.xy[i], self._warm[i] = data.qpos, data.qacc_warmstart
        self._warm[~touching] = 0.0
        self.observations = self.xy.astype(np.float32)

    def _touching(self) -> np.ndarray:
        """Which points are within their radius of a wall, or a hair farther."""
        cells = self.xy / CELL + 1.5  # (column, row), with a cell from one whole number to the next
        reach = (POINT_RADIUS + FREE) / CELL
        low, high = np.floor(cells - reach).astype(np.intp), np.floor(cells + reach).astype(np.intp)
        touching = np.zeros(len(cells), bool)
        # The ball is taken as a square here, which may ask the simulator too often, never too seldom.
        rows, columns = self._walls.shape
        for column in (low[:, 0], high[:, 0]):
            for row in (low[:, 1], high[:, 1]):
                touching |= self._walls[row.clip(0, rows - 1), column.clip(0, columns - 1)]
        return touching


class Ants:
    """Ants that our own controller walks along a direction."""

    def __init__(self, world: OgbenchMaze, rng: np.random.Generator, xy: np.ndarray) -> None:
        self._controller = Controller.load()
        states = world.ground.resets(rng, xy)
        states[:, :2] = xy
        self._episodes = AntEpisodes(world.ground, states, np.full_like(xy, np.inf))  # nobody is ever at a goal

    @property
    def xy(self) -> np.ndarray:
        return self._episodes.states[:, :2]

    @property
    def observations(self) -> np.ndarray:
        return self._episodes.observations

    def toward(self, directions: np.ndarray) -> np.ndarray:
        return self._controller.act(self._episodes.states[:, 2:], directions)

    def step(self, actions: np.ndarray) -> None:
        self._episodes.step(actions)
