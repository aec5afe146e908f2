"""DeepMind Control: walker, cheetah, quadruped and the Jaco arm, with the four rewards of each.

The models, resets and control rates are dm_control's own. A reward is a function of the physics state alone, so the
same function labels the rows of a data set and scores a rollout.
"""

from hilp.errors import HilpError, nearest
from hilp.tasks.dmc.domains import DOMAINS, NAMES, TASKS
from hilp.tasks.dmc.task import Dmc, DmcEpisodes, PixelDmc
from hilp.tasks.rendering import SUFFIX

__all__ = ["DOMAINS", "NAMES", "TASKS", "Dmc", "DmcEpisodes", "PixelDmc", "make", "names", "reward_tasks", "takes"]


def names() -> tuple[str, ...]:
    """Robots with all their rewards, those with one, and robots that are seen by a camera."""
    return (*NAMES, *TASKS, *(f"{name}{SUFFIX}" for name in NAMES))


def reward_tasks() -> tuple[str, ...]:
    return TASKS


def takes(name: str) -> bool:
    return name in names()


def make(name: str, threads: int | None = None) -> Dmc:
    """A domain ("walker") with all its rewards, a task ("walker_run") with its own, or a domain seen by a camera."""
    if not takes(name):
        raise HilpError(f"unknown DeepMind Control task '{name}': {nearest(name, names())}")
    if name in TASKS:
        return Dmc(name, (name.partition("_")[2],), threads)
    kind = PixelDmc if name.endswith(SUFFIX) else Dmc
    return kind(name, tuple(DOMAINS[name.removesuffix(SUFFIX)].rewards), threads)
