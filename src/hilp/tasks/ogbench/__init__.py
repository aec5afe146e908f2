"""OGBench (Park et al. 2025): its environments with states, their five evaluation tasks and its success.

`visual-cube-single` and so on are the same as policies see them in OGBench's pictures.

Names are OGBench's, with or without the version at the end: `pointmaze-large-v0` or `pointmaze-large`. Only
`antmaze-large` needs it, because without it the name is D4RL's, which has the same maze and another evaluation.
"""

from __future__ import annotations

from hilp.tasks.ogbench.environments import NAMES, VERSION, find, of_data, takes
from hilp.tasks.ogbench.manipulation import Manipulation
from hilp.tasks.ogbench.mazes import OgbenchMaze
from hilp.tasks.ogbench.task import OgbenchTask
from hilp.tasks.ogbench.visual import VisualManipulation, VisualMaze
from hilp.tasks.rendering import VISUAL

__all__ = ["VERSION", "VISUAL", "OgbenchTask", "find", "make", "names", "of_data", "takes"]


def names() -> tuple[str, ...]:
    return NAMES


def make(name: str) -> OgbenchTask:
    about = find(name)
    if name.startswith(VISUAL):
        return VisualManipulation(about) if about.has_arm else VisualMaze(about)
    return Manipulation(about) if about.has_arm else OgbenchMaze(about)
