"""Visual Kitchen: the same kitchen, of which policies see images of 64 x 64 pixels, by the paper's camera.

Subtasks, goals and scores are those of states. An image is rendered from an observation, with the noise of its reading,
as the paper renders D4RL's rows.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.tasks.kitchen.task import Kitchen, simulator
from hilp.tasks.rendering import VISUAL, ImageTask, RenderedEpisodes
from hilp.tasks.simulator import drawing, offscreen

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset
    from hilp.data.rewards import Extras

PART, SIDE = "pixels", 64
DISTANCE, AZIMUTH, ELEVATION, LOOKS_AT = 1.86, 90.0, -60.0, (-0.3, 0.5, 2.0)  # of the paper's camera
FINE = 2  # points a pixel along each axis; their mean is nearly MuJoCo's multisampling, at half its cost


class VisualKitchen(ImageTask, Kitchen):
    """A kitchen whose policies see images; its own observations, rewards and goals stay states."""

    extra_columns: tuple[str, ...] = (ImageTask.state_column,)
    data_hint = ": files of D4RL and Minari have them with --option convention=kitchen"

    @property
    def plain(self) -> Kitchen:
        return Kitchen(self.name.removeprefix(VISUAL), self.subtasks, self.threads)

    def render_states(self, states: np.ndarray) -> dict[str, np.ndarray]:
        return {PART: camera(self.threads).images(np.asarray(states, np.float64))}

    def episodes(self, *args: Any, **kwargs: Any) -> Any:
        return VisualKitchenEpisodes(self, Kitchen.episodes(self, *args, **kwargs))

    def at_target(  # type: ignore[override]  # an image does not show what is done
        self, s: Any, a: np.ndarray, s2: Any, extras: Extras
    ) -> np.ndarray:
        states = extras.after(self.state_column)
        return super().at_target(states, a, states)

    def _task_of(self, data: Dataset) -> str:
        return super()._task_of(data) if self.name == f"{VISUAL}kitchen" else self.name  # a kitchen with all subtasks


class VisualKitchenEpisodes(RenderedEpisodes):
    """Episodes with images and parts of a goal."""

    def success_fractions(self) -> np.ndarray:  # not left to __getattr__, by which a protocol is not met
        fractions: np.ndarray = self._plain.success_fractions()
        return fractions


class Camera:
    """Renders states in threads of its own: a screen belongs to the thread that opened it, and opening takes seconds.

    Screens of a desktop are for the main thread only; where they are used, the caller's thread renders.
    """

    def __init__(self, threads: int) -> None:
        self._simulator, self._threads = simulator(), threads
        self._pool = ThreadPoolExecutor(threads, "hilp-kitchen-camera") if offscreen() else None
        self._own, self._opening = threading.local(), threading.Lock()
        self.view = self._simulator.mujoco.MjvCamera()
        self.view.distance, self.view.azimuth, self.view.elevation = DISTANCE, AZIMUTH, ELEVATION
        self.view.lookat[:] = LOOKS_AT

    def images(self, states: np.ndarray) -> np.ndarray:
        """uint8 [n, 64, 64, 3] of states [n, 30]."""
        if self._pool is None:
            return self._draw(states)
        parts = np.array_split(states, min(self._threads, len(states)) or 1)
        return np.concatenate(list(self._pool.map(self._draw, parts)))

    def _draw(self, states: np.ndarray) -> np.ndarray:
        mujoco, model = self._simulator.mujoco, self._simulator.model
        if not hasattr(self._own, "draw"):
            self._own.screen = ExitStack()
            with self._opening:  # libraries of screens set themselves up when the first one is opened
                self._own.draw = self._own.screen.enter_context(drawing(mujoco, model, FINE * SIDE, FINE * SIDE))
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


@cache
def camera(threads: int) -> Camera:
    """The camera of this process, shared by all its kitchens."""
    return Camera(threads)
