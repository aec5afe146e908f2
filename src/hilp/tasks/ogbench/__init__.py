"""OGBench (Park et al. 2025): its environments with states, their five evaluation tasks and its success.

`visual-cube-single` and so on are the same as policies see them in OGBench's own images of 64 x 64 pixels.

Names are OGBench's, with or without the version at the end: `pointmaze-large-v0` or `pointmaze-large`. Only
`antmaze-large` needs it, because without it the name is D4RL's, which has the same maze and another evaluation.
"""

from functools import cached_property
from typing import Any

import numpy as np

from hilp.errors import HilpError
from hilp.tasks.ogbench.manipulation import Manipulation
from hilp.tasks.ogbench.mazes import OgbenchMaze
from hilp.tasks.ogbench.task import EXTRA, NAMES, VERSION, Environment, OgbenchTask, find, of_data, takes
from hilp.tasks.rendering import VISUAL, ImageTask
from hilp.tasks.simulator import import_simulator


def names() -> tuple[str, ...]:
    return NAMES


def make(name: str) -> OgbenchTask:
    about = find(name)
    if name.startswith(VISUAL):
        return VisualManipulation(about) if about.has_arm else VisualMaze(about)
    return Manipulation(about) if about.has_arm else OgbenchMaze(about)


class Visual(ImageTask, OgbenchTask):
    """What visual environments add, of either kind.

    Episodes run in the environments with states; each state is put into a visual one to be rendered, so that rewards,
    goals and success stay those of states.
    """

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
        return self._made(registered)

    def render_states(self, states: np.ndarray) -> dict[str, np.ndarray]:
        return {self.image_parts[0][0]: self._images(self._visual_env, states, self._observe)}


class VisualManipulation(Visual, Manipulation):
    """An arm, by images."""


class VisualMaze(Visual, OgbenchMaze):
    """A maze, by images."""
