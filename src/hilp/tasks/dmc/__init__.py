"""DeepMind Control: walker, cheetah, quadruped and the Jaco arm, with the four rewards of each.

The models, resets and control rates are dm_control's own. A reward is a function of the physics state alone, so the
same function labels the rows of a data set and scores a rollout.
"""

from hilp.tasks.dmc import task
from hilp.tasks.dmc.domains import DOMAINS, NAMES, TASKS
from hilp.tasks.dmc.pixels import PixelDmc
from hilp.tasks.dmc.task import Dmc, DmcEpisodes, reward_tasks
from hilp.tasks.rendering import SUFFIX

__all__ = ["DOMAINS", "NAMES", "TASKS", "Dmc", "DmcEpisodes", "PixelDmc", "make", "names", "reward_tasks", "takes"]


def names() -> tuple[str, ...]:
    """Robots with all their rewards, those with one, and robots that are seen by a camera."""
    return (*task.names(), *(f"{name}{SUFFIX}" for name in NAMES))


def takes(name: str) -> bool:
    """Whether this is a robot of DeepMind Control."""
    return task.takes(name) or name.removesuffix(SUFFIX) in NAMES


def make(name: str, threads: int | None = None) -> Dmc:
    """A domain ("walker") with all its rewards, a task ("walker_run") with its own, or a domain seen by a camera."""
    if name.endswith(SUFFIX) and takes(name):
        return PixelDmc(name, tuple(DOMAINS[name.removesuffix(SUFFIX)].rewards), threads)
    return task.make(name, threads)
