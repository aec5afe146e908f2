"""OGBench's visual environments: the same worlds, of which policies see OGBench's own pictures of 64 x 64 pixels.

Episodes run in the environments with states; each state is put into a visual one to be looked at, so that rewards,
goals and success stay those of states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.errors import HilpError
from hilp.tasks import rendering
from hilp.tasks.ogbench.environments import Environment
from hilp.tasks.ogbench.manipulation import Manipulation
from hilp.tasks.ogbench.mazes import OgbenchMaze
from hilp.tasks.ogbench.task import EXTRA, OgbenchTask, make_env
from hilp.tasks.rendering import VISUAL
from hilp.tasks.simulator import import_simulator

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset

PART, SIDE = "pixels", 64
STATES = "states"  # the column beside the pictures of collected data


class Visual(OgbenchTask):
    """What both kinds of visual environments add."""

    image_parts = ((PART, (SIDE, SIDE, 3), "uint8"),)
    state_column = STATES

    def __init__(self, about: Environment) -> None:
        super().__init__(about)
        self.plain_name = about.name
        self.name = VISUAL + about.name

    @cached_property
    def _seen_env(self) -> Any:
        """OGBench's visual environment."""
        import_simulator(EXTRA, "ogbench")
        registered = VISUAL + self.about.registered
        if registered not in import_simulator(EXTRA, "gymnasium.envs.registration").registry:
            raise HilpError(f"OGBench has no {registered}: take {self.plain_name}, which has states")
        return self._ready(make_env(registered))

    def render_states(self, states: np.ndarray) -> dict[str, np.ndarray]:
        """Pictures of states [n, obs]."""
        env, pictures = self._seen_env, np.empty((len(states), SIDE, SIDE, 3), np.uint8)
        for state, picture in zip(states, pictures, strict=True):
            self.set_state(env, np.asarray(state, np.float64))
            try:
                picture[:] = self._observe(env)
            except Exception as error:  # every GL backend has its own exceptions
                raise HilpError(f"cannot open a picture to draw in ({error}): try MUJOCO_GL=egl") from error
        return {PART: pictures}

    def episodes(self, *given: Any, **more: Any) -> Any:
        return rendering.RenderedEpisodes(self, super().episodes(*given, **more))

    def render_dataset(self, data: Dataset, progress: Callable[[int], None] | None = None) -> Dataset:
        """Data of this environment's states with pictures of them as observations; states stay beside."""
        if data.observation_dim != self.observation_dim:
            raise HilpError(f"{data.name} has no states of {self.plain_name}: pictures are drawn from those")
        pictures = rendering.render_in_blocks(
            lambda states: self.render_states(states)[PART], data.observations, (SIDE, SIDE, 3), progress
        )
        extras = {**data.extras, STATES: np.asarray(data.observations)}
        task = self.name if data.task is None else VISUAL + data.task.removeprefix(VISUAL)
        seen = replace(data, observations={PART: pictures}, extras=extras, task=task, checked=())
        return replace(seen, observation_parts=(), transform=None, name=VISUAL + data.name)


class VisualManipulation(Visual, Manipulation):
    """An arm, seen."""


class VisualMaze(Visual, OgbenchMaze):
    """A maze, seen."""


def make(about: Environment) -> OgbenchTask:
    """The visual task of an environment."""
    return VisualManipulation(about) if about.body in ("cube", "scene", "puzzle") else VisualMaze(about)
