"""An ant on open ground: the ant of AntMaze without walls, asked for a velocity or sent to a place a few metres away.

Observations are AntMaze's: x and y, the other positions, the velocities. The ant keeps facing +x, so that forward is +x
and left is +y. One step is 0.1 s, an episode 10 s, from the origin. An ant that falls, on its back or its belly, has
ended its episode: it stays where it is and earns nothing more. So that a fall never pays, no reward is below zero: a
step earns 1 at the velocity asked for, 0.5 at a distance of the full speed and nothing at twice that and beyond.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.tasks.antmaze import STEP_SECONDS, Ant, AntEpisodes
from hilp.tasks.maze.maps import bare_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "ant-open"
SPEED = 1.5  # m/s: what the controller of the collector walks at
VELOCITIES: dict[str, tuple[float, float]] = {  # that rewards ask for, in m/s
    "forward": (SPEED, 0.0),
    "backward": (-SPEED, 0.0),
    "left": (0.0, SPEED),
    "right": (0.0, -SPEED),
    "half": (SPEED / 2, 0.0),
    "stand": (0.0, 0.0),
}
GOAL_DISTANCES = (2.0, 4.0)  # metres from the origin
MAX_STEPS = 100
LYING = 0.3  # metres: the body of an ant that lies on the ground is below this, that of one at rest on its legs above
STRIDE = 10  # steps, about a full stride: within one the ant sways from side to side by 0.5 m/s, whoever walks it
HELD = 0.3  # of the full speed: a velocity that is missed by less, over the last half of an episode, is held


class AntOpen(Ant):
    """Open ground with an ant on it."""

    name = task = family = NAME
    max_steps = MAX_STEPS
    walls = np.zeros((3, 3), bool)
    follow = True

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self.rewards = {name: partial(self._reward, name) for name in VELOCITIES}

    @cached_property
    def model(self) -> Any:
        model = super().model
        model.geom("floor").size[:2] = 0  # drawn without an end, as the physics have it
        return model

    def _run(self, states: np.ndarray, goal_xy: np.ndarray) -> OpenEpisodes:
        return OpenEpisodes(self, states, goal_xy)

    def _draw_goals(self, rng: np.random.Generator, n: int) -> np.ndarray:
        angle, distance = rng.uniform(0, 2 * np.pi, n), rng.uniform(*GOAL_DISTANCES, n)
        return distance[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)

    def _draw_starts(self, rng: np.random.Generator, goal_xy: np.ndarray) -> np.ndarray:
        return self.resets(rng, np.zeros_like(goal_xy))

    def _reward(self, name: str, s: np.ndarray, a: np.ndarray, s2: np.ndarray) -> np.ndarray:
        """How close the mean velocity of a step is to the one that a reward asks for: from 0 to 1."""
        error = np.linalg.norm(velocities(s, s2) - VELOCITIES[name], axis=-1)
        return np.maximum(0.0, 1 - error / (2 * SPEED))

    def speeds(self, s: np.ndarray, s2: np.ndarray) -> np.ndarray:
        """The speed [n] of each transition, in m/s."""
        return np.linalg.norm(velocities(s, s2), axis=-1)

    def held(self, name: str, path: np.ndarray, running: OpenEpisodes) -> dict[str, Any]:
        """Whether episodes [steps + 1, n, obs] held the velocity of a reward, and by how much each missed it, in m/s.

        What counts is the mean error of the velocity over a stride, in the last half of the episode.
        """
        error = np.linalg.norm(velocities(path[:-STRIDE], path[STRIDE:], STRIDE) - VELOCITIES[name], axis=-1)
        missed = error[-(len(path) // 2) :].mean(axis=0)
        return {"held": int(((missed < HELD * SPEED) & ~running.fallen).sum()), "speed_errors": missed.tolist()}

    def draw(self, ax: Axes) -> None:
        bare_axes(ax)


class OpenEpisodes(AntEpisodes):
    """n episodes; those whose ant has fallen are over."""

    def __init__(self, world: Ant, states: np.ndarray, goal_xy: np.ndarray) -> None:
        self.over = np.zeros(len(states), bool)
        super().__init__(world, states, goal_xy)

    def _observe(self) -> None:
        super()._observe()
        self.over = self.fallen = self.over | fallen(self.states)

    def reached(self) -> np.ndarray:
        """Who is at the goal, and has not fallen there."""
        return super().reached() & ~self.over


def velocities(s: np.ndarray, s2: np.ndarray, steps: int = 1) -> np.ndarray:
    """The mean velocity [..., 2] of the body in m/s from observations to those so many steps later."""
    return (np.asarray(s2, np.float64) - np.asarray(s, np.float64))[..., :2] / (steps * STEP_SECONDS)


def upright(observations: np.ndarray) -> np.ndarray:
    """The vertical component [n] of the z axis of each ant's body: 1 standing, 0 on the side, -1 on the back."""
    return 1 - 2 * np.square(observations[..., 4:6]).sum(axis=-1)


def fallen(observations: np.ndarray) -> np.ndarray:
    """Whether each ant [n, 29] has fallen: its body lies on the ground, or its back points down."""
    return (upright(observations) < 0) | (observations[..., 2] < LYING)


def names() -> list[str]:
    return [NAME]


def make(name: str, threads: int = 1) -> AntOpen:
    return AntOpen(threads)
