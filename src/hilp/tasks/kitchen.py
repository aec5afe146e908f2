"""Kitchen: a robot arm that opens, switches and moves things, with D4RL's evaluation, in FrankaKitchen-v1.

`visual-kitchen-mixed` and so on are the same kitchens, of which policies see images of 64 x 64 pixels, by the paper's
camera. Subtasks, goals and scores stay those of states.

An observation is D4RL's: the 9 joints of the arm and its fingers, then the 21 numbers of what stands in the kitchen,
read with the noise of gymnasium-robotics. An action is a speed of each joint in [-1, 1], times 2 rad/s; the simulator
makes a position of it, from the last noisy reading. One step is 0.08 s.
"""

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, redirect_stderr
from functools import cache, cached_property
from io import StringIO
from typing import Any, Self

import numpy as np

from hilp.data.dataset import Dataset
from hilp.data.rewards import Extras
from hilp.errors import HilpError, nearest
from hilp.tasks import base
from hilp.tasks.base import AnyGoal, Axes, BaseEpisodes, Given, Threaded, column_names, require_observation
from hilp.tasks.maze.maps import bare_axes
from hilp.tasks.rendering import VISUAL, ImageTask, drawing, offscreen, render

MAX_STEPS = 280
THRESHOLD = 0.3  # a subtask is done where its numbers are less than this far from its goal's
ROBOT = 9  # of the 30 numbers of an observation
PARTS = (
    ("robot", (ROBOT,)),
    ("bottom_right_burner", (2,)),
    ("bottom_burner", (2,)),
    ("top_right_burner", (2,)),
    ("top_burner", (2,)),
    ("light_switch", (2,)),
    ("slide_cabinet", (1,)),
    ("hinge_cabinet", (2,)),
    ("microwave", (1,)),
    ("kettle", (7,)),
)
HANDLES = {  # subtask -> the simulator's mark on what the hand has to touch
    "bottom burner": "knob2_site",
    "top burner": "knob4_site",
    "light switch": "light_site",
    "slide cabinet": "slide_site",
    "hinge cabinet": "hinge_site2",
    "microwave": "microhandle_site",
    "kettle": "kettle_site",
}
HAND = "end_effector"
SUBTASKS = {name.replace(" ", "-"): name for name in sorted(HANDLES)}  # by the names that are typed
D4RL_SUBTASKS = ("microwave", "kettle", "light switch", "slide cabinet")
# The data of "complete" and "partial" differ, their evaluation does not.
NAMES: dict[str, tuple[str, ...]] = {
    "kitchen": tuple(sorted(HANDLES)),
    "kitchen-complete": D4RL_SUBTASKS,
    "kitchen-mixed": ("microwave", "kettle", "bottom burner", "light switch"),
    "kitchen-partial": D4RL_SUBTASKS,
}
SIDE = 64  # pixels of an image
DISTANCE, AZIMUTH, ELEVATION, LOOKS_AT = 1.86, 90.0, -60.0, (-0.3, 0.5, 2.0)  # of the paper's camera
FINE = 2  # points a pixel along each axis; their mean is nearly MuJoCo's multisampling, at half its cost


class Simulator:
    """What is read off FrankaKitchen-v1 once: building it takes seconds, a state in it next to nothing."""

    def __init__(self) -> None:
        self.mujoco = base.import_simulator("Kitchen")
        with redirect_stderr(StringIO()):  # a notice about other robots, printed when the package is first imported
            module = base.import_simulator("Kitchen", "gymnasium_robotics.envs.franka_kitchen.kitchen_env")
        env = module.KitchenEnv()
        robot = env.robot_env
        self.model, self.substeps, self.dt = robot.model, robot.frame_skip, robot.dt
        self.resting = np.array(robot.init_qpos, np.float64)  # [30]: positions after a reset
        self.columns: Mapping[str, np.ndarray] = module.OBS_ELEMENT_INDICES  # of each subtask, in an observation
        self.targets: Mapping[str, np.ndarray] = module.OBS_ELEMENT_GOALS  # of each subtask
        self.limits = robot.robot_pos_bound[:ROBOT]  # [9, 2]: of positions that an action can ask for
        self.fastest = robot.robot_vel_bound[:ROBOT]  # [9, 2]: speeds that the robot allows
        self.scale = robot.act_rng  # [9]: speed of an action of 1
        position, speed = robot.robot_pos_noise_amp, robot.robot_vel_noise_amp
        # What is read together, and half widths of the uniform noise on its positions and speeds: those of objects from
        # 8 on, not from 9, as gymnasium-robotics has it.
        of_robot, of_objects = robot.robot_noise_ratio, env.object_noise_ratio
        self.noise = (
            (slice(ROBOT), of_robot * position[:ROBOT], of_robot * speed[:ROBOT]),
            (slice(ROBOT, None), of_objects * position[ROBOT - 1 :], of_objects * speed[ROBOT:]),
        )

    def begin(self, position: np.ndarray) -> Any:
        """A simulation that rests at this position [30]."""
        data = self.mujoco.MjData(self.model)
        data.qpos[:] = position
        self.mujoco.mj_forward(self.model, data)
        return data


simulator = cache(Simulator)


def names() -> list[str]:
    """The kitchens: all have the same things in them, and other subtasks count. Each can also be seen by a camera."""
    return [*sorted(NAMES), *(f"{VISUAL}{name}" for name in sorted(NAMES))]


def make(name: str, threads: int | None = None) -> "Kitchen":
    """The kitchen of this name. `threads` simulate and render, one a core by default."""
    if name not in names():
        raise HilpError(f"unknown kitchen '{name}': {nearest(name, names())}")
    kind = VisualKitchen if name.startswith(VISUAL) else Kitchen
    return kind(name, NAMES[name.removeprefix(VISUAL)], threads)


class KitchenEpisodes(BaseEpisodes):
    """n episodes. The physics keep float64; observations are noisy and float32."""

    def __init__(
        self, world: "Kitchen", rngs: list[np.random.Generator], at: np.ndarray, goal: np.ndarray, names: Sequence[str]
    ) -> None:
        self._world, self._simulator, self._rngs = world, world.simulator, rngs
        self._goal, self.subtasks = goal, tuple(names)
        self.goals = np.tile(goal.astype(np.float32), (len(rngs), 1))
        self.data = [self._simulator.begin(at) for _ in rngs]
        self._readings = np.empty((len(rngs), world.observation_dim))  # the last, which actions are relative to
        for episode in range(len(rngs)):
            self._read(episode)
        self.done = np.zeros((len(rngs), len(self.subtasks) or 1), bool)  # [n, subtasks]: so far
        self.observations = self._readings.astype(np.float32)

    def step(self, actions: np.ndarray) -> None:
        """One step of all but the episodes that are over, whose simulation would only cost time."""
        actions = np.asarray(actions, np.float64).clip(-1, 1)
        self._world.share_out(self._advance, np.flatnonzero(~self.reached()), actions)
        self.observations = self._readings.astype(np.float32)
        positions = np.stack([data.qpos for data in self.data])
        self.done |= self._world.done(positions, self._goal, self.subtasks)

    def _advance(self, episode: int, action: np.ndarray) -> None:
        simulator, data = self._simulator, self.data[episode]
        speed = (simulator.scale * action).clip(*simulator.fastest.T)
        target = self._readings[episode, :ROBOT] + speed * simulator.dt
        data.ctrl[:] = target.clip(*simulator.limits.T)
        simulator.mujoco.mj_step(simulator.model, data, simulator.substeps)
        self._read(episode)

    def _read(self, episode: int) -> None:
        """Positions with noise, drawn in the order of gymnasium-robotics, which reads speeds too."""
        rng, position = self._rngs[episode], self.data[episode].qpos
        for columns, on_positions, on_speeds in self._simulator.noise:
            self._readings[episode, columns] = position[columns] + on_positions * rng.uniform(-1, 1, len(on_positions))
            rng.uniform(-1, 1, len(on_speeds))

    def success_fractions(self) -> np.ndarray:
        """The share of the subtasks [n] done so far: done is done, also where it is undone later."""
        return np.mean(self.done, axis=1)

    def reached(self) -> np.ndarray:
        return np.all(self.done, axis=1)


class Kitchen(Threaded):
    """The kitchen, and the subtasks that count."""

    observation_dim = 30
    action_dim = 9
    observation_parts = PARTS
    family = "kitchen"
    max_steps = MAX_STEPS
    has_goals = True
    target_ends = False
    columns: Mapping[str, int] = column_names(PARTS)

    def __init__(self, name: str, subtasks: Sequence[str], threads: int | None = None) -> None:
        self.name, self.subtasks = name, tuple(subtasks)
        self.task = name  # `make` gives this task again
        self.threads = threads or base.cores()

    @property
    def simulator(self) -> Simulator:
        return simulator()

    @cached_property
    def robot_pose(self) -> np.ndarray:
        """Where the arm is in a goal: as after a reset, unless data has another pose."""
        return self.simulator.resting[:ROBOT]

    @property
    def fps(self) -> float:
        return 1 / self.simulator.dt

    def for_data(self, first: np.ndarray) -> Self:
        """The same task with D4RL's goals: the arm is as in the first observation of the data."""
        seen = require_observation(self, first, "first observation", finite=False)
        return base.changed(self, robot_pose=seen[:ROBOT].copy())

    @property
    def goal(self) -> np.ndarray:
        """The goal [30] of the paper: all subtasks done, zeros for what is in none of them."""
        return self._goal(np.zeros(self.observation_dim), self.subtasks)

    @property
    def goal_names(self) -> tuple[str, ...]:
        """The task's own goal, and each subtask alone; several subtasks are joined by a plus."""
        return (self.name, *SUBTASKS)

    def goal_named(self, name: str, rng: np.random.Generator | None = None) -> np.ndarray:
        """The goal [30] of this name: `light-switch`, or `microwave+kettle`. What it does not name stays as it was."""
        if name == self.name:
            return self.goal
        subtasks = name.split("+")
        for subtask in subtasks:
            if subtask not in SUBTASKS:
                raise HilpError(f"{self.name} has no goal '{subtask}': {nearest(subtask, self.goal_names)}")
        return self._goal(self.simulator.resting, [SUBTASKS[subtask] for subtask in subtasks])

    def goal_base(self, rng: np.random.Generator | None = None) -> np.ndarray:
        """An observation that a goal of a few columns takes the others from: nothing has been touched."""
        return self._goal(self.simulator.resting, ())

    def _goal(self, like: np.ndarray, subtasks: Sequence[str]) -> np.ndarray:
        found = np.array(like, np.float64)
        found[:ROBOT] = self.robot_pose
        for name in subtasks:
            found[self.simulator.columns[name]] = self.simulator.targets[name]
        return found

    def subtasks_of(self, goal: np.ndarray) -> tuple[str, ...]:
        """The subtasks that a goal [30] is about: what it wants elsewhere than where it rests."""
        resting = self.simulator.resting
        away = {name: goal[columns] - resting[columns] for name, columns in self.simulator.columns.items()}
        return tuple(name for name, way in away.items() if np.linalg.norm(way) >= THRESHOLD)

    def done(self, positions: np.ndarray, goal: np.ndarray, subtasks: Sequence[str]) -> np.ndarray:
        """Whether each subtask of a goal is done [n, k] at these positions [n, 30].

        A goal that moves nothing is about the arm alone: one column, the arm's pose.
        """
        parts = [self.simulator.columns[name] for name in subtasks] or [np.arange(ROBOT)]
        far = [np.linalg.norm(positions[:, columns] - goal[columns], axis=1) for columns in parts]
        return np.stack(far, axis=1) < THRESHOLD

    def near(self, observations: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """Whether each observation counts as at the goal: all its subtasks done at once."""
        goal = np.asarray(goal, np.float64)
        return np.all(self.done(np.asarray(observations, np.float64), goal, self.subtasks_of(goal)), axis=1)

    @property
    def target(self) -> np.ndarray:
        return self.goal.astype(np.float32)

    def at_target(self, s: np.ndarray, a: np.ndarray, s2: np.ndarray) -> np.ndarray:
        """D4RL's reward of a step: how many of the task's subtasks are done behind it."""
        return self.done(np.asarray(s2, np.float64), self.goal, self.subtasks).sum(axis=1).astype(np.float64)

    def target_episodes(self, rng: np.random.Generator, n: int) -> KitchenEpisodes:
        return self.episodes(rng, n)

    def episodes(self, rng: np.random.Generator, n: int, start: Given = None, goal: AnyGoal = None) -> KitchenEpisodes:
        """n episodes; they differ by the noise of what is read, as every episode begins in the same kitchen."""
        begin = self.simulator.resting if start is None else require_observation(self, start, "start")
        if isinstance(goal, str):
            goal = None if goal == self.name else self.goal_named(goal, rng)
        target = self.goal if goal is None else require_observation(self, goal, "goal")
        subtasks = self.subtasks if goal is None else self.subtasks_of(target)
        return KitchenEpisodes(self, rng.spawn(n), begin, target, subtasks)

    def potential_max(self, name: str) -> float:
        raise HilpError(
            f"{self.name} has no reward '{name}': 'target' counts its subtasks, or give a function of observations"
        )

    def draw(self, ax: Axes) -> None:
        """The handles as the robot sees them, from the front: x to the right, z up."""
        data = self.simulator.begin(self.simulator.resting)
        for name, site in HANDLES.items():
            x, _, z = data.site(site).xpos
            wanted = name in self.subtasks
            ax.plot(x, z, "s", color="#4a4e57" if wanted else "#c9ccd1", markersize=7, zorder=0)
            ax.annotate(name, (x, z), (0, -12), textcoords="offset points", ha="center", fontsize=7, color="#6b7079")
        ax.set(xlim=(-1.05, 0.35), ylim=(1.55, 2.85))
        bare_axes(ax)

    def place(self, observations: np.ndarray) -> np.ndarray:
        """Where to draw each observation: where the hand is, from the front."""
        found = np.full((len(observations), 2), np.nan)
        data = self.simulator.begin(self.simulator.resting)
        for row, observation in enumerate(np.asarray(observations, np.float64)):
            if np.isfinite(observation).all():
                data.qpos[:] = observation
                self.simulator.mujoco.mj_kinematics(self.simulator.model, data)
                found[row] = data.site(HAND).xpos[[0, 2]]
        return found

    def film(self, observations: np.ndarray, physics: np.ndarray | None) -> np.ndarray:
        """Pictures uint8 [n, height, width, 3] of observations [n, 30], from the camera of FrankaKitchen-v1."""
        camera = self.simulator.mujoco.MjvCamera()
        camera.distance, camera.azimuth, camera.elevation = 2.2, 70.0, -35.0
        camera.lookat[:] = -0.2, 0.5, 2.0
        return render(self.simulator.model, observations, (360, 480), camera, self.simulator.begin)


class VisualKitchen(ImageTask, Kitchen):
    """A kitchen whose policies see images of observations with their noise, as the paper renders D4RL's rows."""

    extra_columns: tuple[str, ...] = (ImageTask.state_column,)
    data_hint = ": files of D4RL and Minari have them with --option convention=kitchen"

    def render_states(self, states: np.ndarray) -> dict[str, np.ndarray]:
        return {self.image_parts[0][0]: camera(self.threads).images(np.asarray(states, np.float64))}

    def at_target(self, s: Any, a: np.ndarray, s2: Any, extras: Extras) -> np.ndarray:  # type: ignore[override]
        states = extras.after(self.state_column)  # an image does not show what is done
        return super().at_target(states, a, states)

    def _task_of(self, data: Dataset) -> str:
        return super()._task_of(data) if self.name == f"{VISUAL}kitchen" else self.name  # a kitchen with all subtasks


class Camera:
    """Renders states in threads of its own: a screen belongs to the thread that opened it, and opening takes seconds.

    Screens of a desktop are for the main thread only; where they are used, the caller's thread renders.
    """

    def __init__(self, threads: int) -> None:
        self._simulator, self._threads = simulator(), threads
        self._own, self._opening = threading.local(), threading.Lock()
        self.view = self._simulator.mujoco.MjvCamera()
        self.view.distance, self.view.azimuth, self.view.elevation = DISTANCE, AZIMUTH, ELEVATION
        self.view.lookat[:] = LOOKS_AT

    def images(self, states: np.ndarray) -> np.ndarray:
        """uint8 [n, 64, 64, 3] of states [n, 30]."""
        if not offscreen():
            return self._draw(states)
        parts = np.array_split(states, min(self._threads, len(states)) or 1)
        return np.concatenate(list(base.pool(self._threads).map(self._draw, parts)))

    def _draw(self, states: np.ndarray) -> np.ndarray:
        mujoco, model = self._simulator.mujoco, self._simulator.model
        if not hasattr(self._own, "draw"):
            self._own.screen = ExitStack()
            with self._opening:  # libraries of screens set themselves up when the first one is opened
                self._own.draw = self._own.screen.enter_context(drawing(model, FINE * SIDE, FINE * SIDE))
            self._own.data = self._simulator.begin(self._simulator.resting)
        data, fine = self._own.data, np.empty((FINE * SIDE, FINE * SIDE, 3), np.uint8)
        found = np.empty((len(states), SIDE, SIDE, 3), np.uint8)
        for state, picture in zip(states, found, strict=True):
            data.qpos[:] = state
            mujoco.mj_kinematics(model, data)
            mujoco.mj_camlight(model, data)
            self._own.draw(data, self.view, fine)
            picture[:] = fine.reshape(SIDE, FINE, SIDE, FINE, 3).mean(axis=(1, 3)).round()
        return found


camera = cache(Camera)  # of this process, shared by all its kitchens
