"""DeepMind Control: walker, cheetah, quadruped and the Jaco arm, with the four rewards of each.

The models, resets and control rates are dm_control's own. A reward is a function of the physics state alone, so the
same function labels the rows of a data set and scores a rollout.
"""

from hilp.tasks.dmc.domains import DOMAINS, NAMES, TASKS
from hilp.tasks.dmc.episodes import DmcEpisodes
from hilp.tasks.dmc.task import Dmc, make, names, reward_tasks, takes

__all__ = ["DOMAINS", "NAMES", "TASKS", "Dmc", "DmcEpisodes", "make", "names", "reward_tasks", "takes"]
