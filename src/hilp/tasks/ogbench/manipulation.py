"""OGBench's arm on a table: cubes to carry, a scene with a drawer and a window, a puzzle of buttons.

Observations hold positions in decimetres from the middle of the table and other units of OGBench's own (`SCALES`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.tasks.maze.maps import bare_axes
from hilp.tasks.ogbench.task import EXTRA, OgbenchTask
from hilp.tasks.simulator import import_simulator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CENTRE = np.array([0.425, 0.0, 0.0])  # metres, of positions in an observation
SCALES = {"position": 10.0, "gripper": 3.0, "button": 120.0, "drawer": 18.0, "window": 15.0}
TOLERANCE = 0.04  # metres, of cubes, drawer and window
TABLE = ((0.25, 0.6), (-0.35, 0.35))  # what the arm reaches, x and y
GRIPPER_CLOSED = 0.8  # radians of the driver joints
SIDES = ("right", "left")


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
        if self._has_drawer:
            names += [f"{thing}_{number}" for thing in ("drawer", "window") for number in ("position", "velocity")]
        return {name: column for column, name in enumerate(names)}

    @property
    def _has_drawer(self) -> bool:
        return self.about.body == "scene"

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
        for thing in ("drawer", "window") if self._has_drawer else ():
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

    # Environments

    def _step(self, env: Any, action: np.ndarray) -> np.ndarray:
        # A locked drawer is a damping in the model, which twins share: each step begins with that of its own buttons.
        if self._has_drawer:
            for joint, state in zip(("drawer_slide", "window_slide"), env._cur_button_states, strict=True):
                env._model.joint(joint).damping[0] = 2.0 if state else 1e6
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
        for thing in ("drawer", "window") if self._has_drawer else ():
            at = self._part(observation, f"{thing}_position")[0] / SCALES[thing]
            data.joint(f"{thing}_slide").qpos[0] = at
        import_simulator(EXTRA).mj_forward(env._model, data)
        env.pre_step()  # what the next step compares with
        env.post_step()
