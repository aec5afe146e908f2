"""Robots side by side in a maze of OGBench: points and ants, with the physics of its environments to the bit.

Both have `observations` [n, obs] float32, `xy` [n, 2] float64, `toward(directions)`, the actions along unit directions,
and `step(actions)`.
"""

from __future__ import annotations

import numpy as np

from hilp.collectors.ant_controller import Controller
from hilp.tasks.antmaze import AntEpisodes
from hilp.tasks.ogbench.mazes import OgbenchMaze
from hilp.tasks.ogbench.points import Points


class Walkers(Points):
    """Points: the direction is the action."""

    def toward(self, directions: np.ndarray) -> np.ndarray:
        return directions


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
