"""OGBench (Park et al. 2025): its environments with states, their five evaluation tasks and its success.

In mazes a point, an ant, a humanoid or an ant with a ball is between walls of 4 x 4 metres. Cell (row, column) of a map
is the square around x = 4 * column - 4, y = 4 * row - 4, as in `tasks/antmaze.py`.

An arm on a table has cubes to carry, a scene with a drawer and a window, or a puzzle of buttons. Its observations hold
positions in decimetres from the middle of the table and other units of OGBench's own (`SCALES`).

`visual-cube-single` and so on are the same as policies see them in OGBench's own images of 64 x 64 pixels.

Names are OGBench's, with or without the version at the end: `pointmaze-large-v0` or `pointmaze-large`. Only
`antmaze-large` needs it, because without it the name is D4RL's, which has the same maze and another evaluation.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Self

import numpy as np

from hilp.errors import HilpError
from hilp.tasks.antmaze import CELL, AntMaze, draw_walls, require_free
from hilp.tasks.base import Axes, import_simulator
from hilp.tasks.maze.maps import bare_axes
from hilp.tasks.ogbench.task import EXTRA, NAMES, Environment, OgbenchEpisodes, OgbenchTask, find, seeded, takes
from hilp.tasks.rendering import VISUAL, ImageTask

# Of mazes
STEP, SUBSTEPS = 0.2, 5  # how far an action of 1 moves a point along its axis; steps of the simulator for it
RADIUS = 0.7  # of a point's ball
FREE = 1e-3  # farther from every wall than this, nothing touches
BALL = 15  # where the ball's x and y are in an observation of antsoccer: behind the ant's positions

# Of the arm
CENTRE = np.array([0.425, 0.0, 0.0])  # metres, of positions in an observation
SCALES = {"position": 10.0, "gripper": 3.0, "button": 120.0, "drawer": 18.0, "window": 15.0}
TOLERANCE = 0.04  # metres, of cubes, drawer and window
TABLE = ((0.25, 0.6), (-0.35, 0.35))  # what the arm reaches, x and y
GRIPPER_CLOSED = 0.8  # radians of the driver joints
SIDES = ("right", "left")


def names() -> tuple[str, ...]:
    return NAMES


def make(name: str) -> OgbenchTask:
    about = find(name)
    if name.startswith(VISUAL):
        return VisualManipulation(about) if about.has_arm else VisualMaze(about)
    return Manipulation(about) if about.has_arm else OgbenchMaze(about)


class OgbenchMaze(OgbenchTask):
    """A maze and a robot in it; what counts is where the robot is, in antsoccer where the ball is."""

    simulation = ("model", "data")

    @cached_property
    def walls(self) -> np.ndarray:
        """[rows, columns] bool."""
        return np.asarray(self.env.maze_map) == 1

    @cached_property
    def ground(self) -> AntMaze:
        """The cells of this maze and the ways between them; walls and ant are the same.

        Teleports are cells as others; one that nothing but a teleport leads to is left out, as there is no way from it.
        """
        walls = self.walls
        around = [np.roll(walls, shift, axis) for axis in (0, 1) for shift in (1, -1)]
        walls = walls | np.logical_and.reduce(around)
        return AntMaze(self.name, "\n".join("".join("#" if wall else "." for wall in row) for row in walls))

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

    @property
    def _simple(self) -> bool:
        """Whether episodes are points that need no environment to move."""
        return self.about.body == "point" and self.env._teleport_info is None

    @property
    def _episodes_class(self) -> type[OgbenchEpisodes]:
        return PointEpisodes if self._simple else OgbenchEpisodes

    def with_processes(self, count: int) -> AbstractContextManager[Self]:
        return super().with_processes(1 if self._simple else count)

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

    def __init__(self, world: Any, group: Any, begun: Mapping[str, np.ndarray], goals: np.ndarray, *told: Any) -> None:
        super().__init__(world, group, begun, goals, *told)
        starts = np.stack([env.get_xy() for env in group.envs])
        self._points = Points(world.env.model, world.walls, starts)
        self._goal_xy = goals if self._by_observation else np.stack([env.cur_goal_xy for env in group.envs])

    def step(self, actions: np.ndarray) -> None:
        """One step of all; a point without an action stays where it is."""
        self._points.step(np.clip(np.asarray(actions, np.float64), -1, 1))
        self.observations = self._points.observations

    def reached(self) -> np.ndarray:
        return self._world.near(self._points.states, self._goal_xy)


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
        self.states = np.array(xy, np.float64)
        self._warm = np.zeros_like(self.states)

    @property
    def observations(self) -> np.ndarray:
        return self.states.astype(np.float32)

    def step(self, actions: np.ndarray) -> None:
        self.states = self.states + STEP * np.asarray(actions, np.float64)
        touching = self.touching()
        for i in np.flatnonzero(touching):
            data = self._data
            data.qpos[:], data.qvel[:], data.qacc_warmstart[:] = self.states[i], 0.0, self._warm[i]
            self._mujoco.mj_step(self._model, data, SUBSTEPS)
            self.states[i], self._warm[i] = data.qpos, data.qacc_warmstart
        self._warm[~touching] = 0.0

    def touching(self) -> np.ndarray:
        """Which points are within their radius of a wall, or a hair farther."""
        cells = self.states / CELL + 1.5  # (column, row), with a cell from one whole number to the next
        reach = (RADIUS + FREE) / CELL
        low, high = np.floor(cells - reach).astype(np.intp), np.floor(cells + reach).astype(np.intp)
        touching = np.zeros(len(cells), bool)
        # The ball is taken as a square here, which may call the simulator too often, never too seldom.
        rows, columns = self._walls.shape
        for column in (low[:, 0], high[:, 0]):
            for row in (low[:, 1], high[:, 1]):
                touching |= self._walls[row.clip(0, rows - 1), column.clip(0, columns - 1)]
        return touching


class Manipulation(OgbenchTask):
    """An arm and things that it can change; what counts is the things, not the arm."""

    simulation = ("_model", "_data")

    @cached_property
    def cubes(self) -> int:
        return int(getattr(self.env, "_num_cubes", 0))

    @cached_property
    def buttons(self) -> int:
        return int(getattr(self.env, "_num_buttons", 0))

    @cached_property
    def columns(self) -> Mapping[str, int]:  # type: ignore[override]
        names = [f"joint_{i}" for i in range(6)] + [f"joint_velocity_{i}" for i in range(6)]
        names += ["effector_x", "effector_y", "effector_z", "effector_yaw_cos", "effector_yaw_sin"]
        names += ["gripper_opening", "gripper_contact"]
        for cube in range(self.cubes):
            of_cube = ("x", "y", "z", "qw", "qx", "qy", "qz", "yaw_cos", "yaw_sin")
            names += [f"block_{cube}_{number}" for number in of_cube]
        for button in range(self.buttons):
            names += [f"button_{button}_{number}" for number in ("off", "on", "position", "velocity")]
        names += [f"{thing}_{number}" for thing in self._sliding for number in ("position", "velocity")]
        return {name: column for column, name in enumerate(names)}

    @property
    def _sliding(self) -> tuple[str, ...]:
        return ("drawer", "window") if self.about.body == "scene" else ()

    def _part(self, observations: np.ndarray, first: str, count: int = 1) -> np.ndarray:
        column = self.columns[first]
        return np.asarray(observations)[..., column : column + count]

    def near(self, observations: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """Whether every cube, button, drawer and window is where the goal has it, by OGBench's tolerances."""
        near = np.ones(np.broadcast_shapes(np.shape(observations)[:-1], np.shape(goal)[:-1]), bool)
        for cube in range(self.cubes):
            way = self._part(observations, f"block_{cube}_x", 3) - self._part(goal, f"block_{cube}_x", 3)
            near &= np.linalg.norm(way, axis=-1) <= TOLERANCE * SCALES["position"]
        for button in range(self.buttons):
            on = f"button_{button}_on"
            near &= (self._part(observations, on) > 0.5)[..., 0] == (self._part(goal, on) > 0.5)[..., 0]
        for thing in self._sliding:
            column = f"{thing}_position"
            way = self._part(observations, column) - self._part(goal, column)
            near &= np.abs(way[..., 0]) <= TOLERANCE * SCALES[thing]
        return near

    def draw(self, ax: Axes) -> None:
        """Draw the part of the table that the arm reaches, from above."""
        (left, right), (low, high) = TABLE
        ax.plot([left, right, right, left, left], [low, low, high, high, low], color="#4a4e57", zorder=0)
        bare_axes(ax)

    def place(self, observations: np.ndarray) -> np.ndarray:
        """Where to draw each observation: at its first cube, or at the arm's hand where there is none."""
        at = self._part(observations, "block_0_x" if self.cubes else "effector_x", 2)
        return at / SCALES["position"] + CENTRE[:2]

    def _step(self, env: Any, action: np.ndarray) -> np.ndarray:
        # A locked drawer is a damping in the model, which twins share: each step begins with that of its own buttons.
        for thing, state in zip(self._sliding, getattr(env, "_cur_button_states", ()), strict=False):
            env._model.joint(f"{thing}_slide").damping[0] = 2.0 if state else 1e6
        return super()._step(env, action)

    def _observe(self, env: Any) -> np.ndarray:
        return np.asarray(env.compute_observation())

    def _succeeds(self, env: Any) -> bool:
        return bool(env._success)

    def set_state(self, env: Any, observation: np.ndarray) -> None:
        """As far as an observation tells: the fingers stand as their opening says, all else is still."""
        data = env._data
        data.qvel[:] = 0
        data.qpos[env._arm_joint_ids] = self._part(observation, "joint_0", 6)
        data.qvel[env._arm_joint_ids] = self._part(observation, "joint_velocity_0", 6)
        closed = GRIPPER_CLOSED * self._part(observation, "gripper_opening")[0] / SCALES["gripper"]
        for side in SIDES:
            for joint, turn in (("driver", 1), ("coupler", 0), ("spring_link", 1), ("follower", -1)):
                data.joint(f"ur5e/robotiq/{side}_{joint}_joint").qpos[0] = turn * closed
        for cube in range(self.cubes):
            joint = data.joint(f"object_joint_{cube}")
            joint.qpos[:3] = self._part(observation, f"block_{cube}_x", 3) / SCALES["position"] + CENTRE
            joint.qpos[3:] = self._part(observation, f"block_{cube}_qw", 4)
        for button in range(self.buttons):
            env._cur_button_states[button] = int(self._part(observation, f"button_{button}_on")[0] > 0.5)
            at = self._part(observation, f"button_{button}_position")[0] / SCALES["button"]
            data.joint(f"buttonbox_joint_{button}").qpos[0] = at
        for thing in self._sliding:
            at = self._part(observation, f"{thing}_position")[0] / SCALES[thing]
            data.joint(f"{thing}_slide").qpos[0] = at
        import_simulator(EXTRA).mj_forward(env._model, data)
        env.pre_step()  # what the next step compares with
        env.post_step()


class Visual(ImageTask, OgbenchTask):
    """What visual environments add, of either kind.

    Episodes run in the environments with states; each state is put into a visual one to be rendered, so that rewards,
    goals and success stay those of states.
    """

    state_column = "states"

    def __init__(self, about: Environment) -> None:
        super().__init__(about)
        self.name = VISUAL + about.name

    @cached_property
    def _visual_env(self) -> Any:
        return self._made(VISUAL + self.about.registered)

    def render_states(self, states: np.ndarray) -> dict[str, np.ndarray]:
        return {self.image_parts[0][0]: self._images(self._visual_env, states, self._observe)}


class VisualManipulation(Visual, Manipulation):
    """An arm, by images."""


class VisualMaze(Visual, OgbenchMaze):
    """A maze, by images."""
