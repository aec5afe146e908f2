"""OGBench's visual environments: policies see OGBench's own images of 64 x 64 pixels.

Episodes run in the environments with states; each state is put into a visual one to be rendered, so that rewards,
goals and success stay those of states.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from hilp.errors import HilpError
from hilp.tasks.ogbench.environments import Environment
from hilp.tasks.ogbench.manipulation import Manipulation
from hilp.tasks.ogbench.mazes import OgbenchMaze
from hilp.tasks.ogbench.task import EXTRA, OgbenchTask, make_env
from hilp.tasks.rendering import VISUAL, ImageTask
from hilp.tasks.simulator import import_simulator, rendering_errors


class Visual(ImageTask, OgbenchTask):
    """What both kinds of visual environments add."""

    state_column = "states"

    def __init__(self, about: Environment) -> None:
        super().__init__(about)
        self.name = VISUAL + about.name

    @property
    def plain(self) -> OgbenchTask:
        return Manipulation(self.about) if isinstance(self, Manipulation) else OgbenchMaze(self.about)

    @cached_property
    def _visual_env(self) -> Any:
        import_simulator(EXTRA, "ogbench")
        registered = VISUAL + self.about.registered
        if registered not in import_simulator(EXTRA, "gymnasium.envs.registration").registry:
            raise HilpError(f"OGBench has no {registered}: take {self.about.name}, which has states")
        return self._ready(make_env(registered))

    def render_states(self, states: np.ndarray) -> dict[str, np.ndarray]:
        ((part, shape, dtype),) = self.image_parts
        env, images = self._visual_env, np.empty((len(states), *shape), dtype)
        for state, image in zip(states, images, strict=True):
            self.set_state(env, np.asarray(state, np.float64))
            with rendering_errors():
                image[:] = self._observe(env)
        return {part: images}


class VisualManipulation(Visual, Manipulation):
    """An arm, by images."""


class VisualMaze(Visual, OgbenchMaze):
    """A maze, by images."""
