"""OGBench's mazes: a point, an ant, a humanoid or an ant with a ball between walls of 4 x 4 metres.

Cell (row, column) of a map is the square around x = 4 * column - 4, y = 4 * row - 4, as in `tasks/antmaze.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.errors import HilpError
from hilp.tasks.antmaze import CELL, AntMaze, draw_walls, require_free
from hilp.tasks.ogbench.task import EXTRA, OgbenchEpisodes, OgbenchTask, seeded
from hilp.tasks.simulator import import_simulator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEP, SUBSTEPS = 0.2, 5  # how far an action of 1 moves a point along its axis; steps of the simulator for it
RADIUS = 0.7  # of a point's ball
FREE = 1e-3  # farther from every wall than this, nothing touches
BALL = 15  # where the ball's x and y are in an observation of antsoccer: behind the ant's positions


class OgbenchMaze(OgbenchTask):
    """A maze and a robot in it; what counts is where the robot is, in antsoccer where the ball is."""

    simulation = ("model", "data")

    @cached_property
    def walls(self) -> np.ndarray:
        """[rows, columns] bool."""
        return np.asarray(self.env.maze_map) == 1

    @cached_property
    def ground(self) -> AntMaze:
        """The cells of this maze and the ways between them (not of one with teleports); walls and ant are the same."""
        return AntMaze(self.name, "\n".join("".join("#" if wall else "." for wall in row) for row in self.walls))

    @property
    def radius(self) -> float:
        """How close to a goal counts as there."""
        return float(self.env._goal_tol)

    @property
    def columns(self) -> Mapping[str, int]:  # type: ignore[override]
        named = {"x": 0, "y": 1}
        if self.about.body in ("ant", "soccer"):
            named["height"] = 2
        if self.about.body == "soccer":
            named |= {"ball_x": BALL, "ball_y": BALL + 1}
        return named

    def goal_base(self, rng: np.random.Generator) -> np.ndarray:
        """The goal's position must be given; the body is as in a goal of the first task."""
        base = np.array(super().goal_base(rng))
        base[[column for name, column in self.columns.items() if name != "height"]] = np.nan
        return base

    def _counted(self, observations: np.ndarray) -> np.ndarray:
        first = BALL if self.about.body == "soccer" else 0
        return np.asarray(observations)[..., first : first + 2]

    def near(self, observations: np.ndarray, goal: np.ndarray) -> np.ndarray:
        return np.linalg.norm(self._counted(observations) - self._counted(goal), axis=-1) <= self.radius

    def _given(self, value: np.ndarray | None, what: str) -> np.ndarray | None:
        value = super()._given(value, what)
        if value is not None:
            require_free(self.walls, value, what, self.name)
        return value

    def draw(self, ax: Axes) -> None:
        draw_walls(self.walls, ax)

    def place(self, observations: np.ndarray) -> np.ndarray:
        """Where to draw each observation: at the x and y that count."""
        return self._counted(observations)

    # Environments

    @property
    def _episodes_class(self) -> type[OgbenchEpisodes]:
        simple = self.about.body == "point" and self.env._teleport_info is None
        return PointEpisodes if simple else OgbenchEpisodes

    def _step(self, env: Any, action: np.ndarray) -> np.ndarray:
        if env._teleport_info is None:
            return super()._step(env, action)
        with seeded(int(env.np_random.integers(2**31))):  # a teleport leads to one of three places
            return super()._step(env, action)

    def _observe(self, env: Any) -> np.ndarray:
        return np.asarray(env.get_ob())

    def _succeeds(self, env: Any) -> bool:
        return bool(env.compute_success())

    def set_state(self, env: Any, observation: np.ndarray) -> None:
        positions, velocities = env.model.nq, env.model.nv
        if self.observation_dim not in (positions, positions + velocities):
            raise HilpError(f"an observation of {self.name} does not tell the whole state: it cannot be put into one")
        speed = observation[positions:] if len(observation) > positions else np.zeros(velocities)
        env.set_state(observation[:positions], speed)


class PointEpisodes(OgbenchEpisodes):
    """Points begin where their environments do and then go on without them."""

    def __init__(self, world: Any, envs: list[Any], goals: np.ndarray, names: list[str], by_observation: bool) -> None:
        super().__init__(world, envs, goals, names, by_observation)
        starts = np.stack([env.get_xy() for env in envs])
        self._points = Points(world.env.model, world.walls, starts)
        self._goal_xy = goals if by_observation else np.stack([env.cur_goal_xy for env in envs])

    def step(self, actions: np.ndarray) -> None:
        """One step of all; a point without an action stays where it is."""
        self._points.step(np.clip(np.asarray(actions, np.float64), -1, 1))
        self.observations = self._points.observations

    def reached(self) -> np.ndarray:
        return self._world.near(self._points.xy, self._goal_xy)


class Points:
    """Many points with OGBench's physics to the bit, a hundred times faster than by its steps.

    An action moves a point, then the simulator pushes it out of the walls. Where nothing touches there is nothing to
    push: a ball at rest without forces stays, to the bit. The simulator starts each solution from the last one, which
    is therefore kept for each point.
    """

    def __init__(self, model: Any, walls: np.ndarray, xy: np.ndarray) -> None:
        """Points at xy [n, 2] in the compiled model of a maze with these walls [rows, columns]."""
        self._mujoco, self._model, self._walls = import_simulator(EXTRA), model, walls
        self._data = self._mujoco.MjData(model)
        self.xy = np.array(xy, np.float64)
        self._warm = np.zeros_like(self.xy)

    @property
    def observations(self) -> np.ndarray:
        return self.xy.astype(np.float32)

    def step(self, actions: np.ndarray) -> None:
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
        # The ball is taken as a square here, which may call the simulator too often, never too seldom.
        rows, columns = self._walls.shape
        for column in (low[:, 0], high[:, 0]):
            for row in (low[:, 1], high[:, 1]):
                touching |= self._walls[row.clip(0, rows - 1), column.clip(0, columns - 1)]
        return touching
