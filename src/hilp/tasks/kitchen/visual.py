"""Visual Kitchen: the same kitchen, of which policies see pictures of 64 x 64 pixels, by the paper's camera.

Episodes run on states and every state is drawn, so subtasks, goals and scores are those of the kitchen; a goal is the
picture of its state. What is drawn is an observation, with the noise of its reading, as the paper draws D4RL's rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.errors import HilpError
from hilp.tasks import rendering
from hilp.tasks.kitchen.task import Kitchen, KitchenEpisodes, simulator
from hilp.tasks.pictures import drawing, offscreen
from hilp.tasks.rendering import VISUAL

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset
    from hilp.data.rewards import Extras

PART, SIDE = "pixels", 64
PHYSICS = "physics"  # the column of states beside the pictures
DISTANCE, AZIMUTH, ELEVATION, LOOKS_AT = 1.86, 90.0, -60.0, (-0.3, 0.5, 2.0)  # of the paper's camera
FINE = 2  # points a pixel along each axis; their mean is nearly MuJoCo's multisampling, at half its cost


class VisualKitchen(Kitchen):
    """A kitchen whose policies see pictures; its own observations, rewards and goals stay states."""

    image_parts = ((PART, (SIDE, SIDE, 3), "uint8"),)
    state_column = PHYSICS
    extra_columns: tuple[str, ...] = (PHYSICS,)

    @property
    def plain(self) -> Kitchen:
        """The same kitchen, by its states."""
        return Kitchen(self.name.removeprefix(VISUAL), self.subtasks, self.threads)

    def render_states(self, states: np.ndarray) -> dict[str, np.ndarray]:
        """Pictures of states [n, 30]."""
        return {PART: camera(self.threads).pictures(np.asarray(states, np.float64))}

    def episodes(self, *given: Any, **more: Any) -> Any:
        return VisualKitchenEpisodes(self, super().episodes(*given, **more))

    def target_episodes(self, rng: np.random.Generator, n: int) -> Any:
        return self.episodes(rng, n)

    def at_target(  # type: ignore[override]  # a picture does not tell what is done
        self, s: Any, a: np.ndarray, s2: Any, extras: Extras
    ) -> np.ndarray:
        states = extras.after(PHYSICS)
        return super().at_target(states, a, states)

    def render_dataset(self, data: Dataset, progress: Callable[[int], None] | None = None) -> Dataset:
        """Data of the kitchen's states with pictures of them as observations; states stay beside."""
        if data.observation_dim != self.observation_dim:
            raise HilpError(
                f"{data.name} has observations of {data.observation_dim} numbers, and pictures of {self.name} are "
                f"drawn from {self.observation_dim}: of files of D4RL and Minari those are --option convention=kitchen"
            )
        pictures = rendering.render_in_blocks(
            lambda rows: self.render_states(rows)[PART], data.observations, (SIDE, SIDE, 3), progress
        )
        known = data.task is not None and self.name == f"{VISUAL}kitchen"  # the data says more than the name
        seen = replace(data, observations={PART: pictures}, task=f"{VISUAL}{data.task}" if known else self.name)
        extras = {**data.extras, PHYSICS: np.asarray(data.observations, np.float32)}
        return replace(
            seen, extras=extras, observation_parts=(), transform=None, checked=(), name=f"{VISUAL}{data.name}"
        )


class VisualKitchenEpisodes(rendering.RenderedEpisodes):
    """n episodes running side by side, and what the camera sees of each."""

    _plain: KitchenEpisodes

    def success_fractions(self) -> np.ndarray:  # not left to __getattr__, by which a protocol is not met
        return self._plain.success_fractions()

    def extra(self, name: str) -> np.ndarray:
        return self._plain.observations if name == PHYSICS else self._plain.extra(name)


class Camera:
    """Draws states in threads of its own: a screen belongs to the thread that opened it, and opening takes seconds.

    Screens of a desktop are for the main thread only; where they are used, whoever asks draws.
    """

    def __init__(self, threads: int) -> None:
        self._simulator, self._threads = simulator(), threads
        self._pool = ThreadPoolExecutor(threads, "hilp-kitchen-camera") if offscreen() else None
        self._own, self._opening = threading.local(), threading.Lock()
        self.view = self._simulator.mujoco.MjvCamera()
        self.view.distance, self.view.azimuth, self.view.elevation = DISTANCE, AZIMUTH, ELEVATION
        self.view.lookat[:] = LOOKS_AT

    def pictures(self, states: np.ndarray) -> np.ndarray:
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
