"""Any Gymnasium environment with continuous actions as a task: by its id, as an object, or as code in a file.

`gym:Pendulum-v1` is an environment that is installed, `gym:PointMaze_UMaze-v3?continuing_task=false` one with values
for its constructor, `gym:my_module:my/Env-v0` one that a module registers, and `my_env.py:make` what a function (or
class) in a file gives: an environment, or a task made of one by `gym_task`.
"""

from hilp.tasks.gym.finding import names, runs_user_code, takes
from hilp.tasks.gym.task import OWN_REWARD, GymTask, gym_task, make, task_from

__all__ = ["OWN_REWARD", "GymTask", "gym_task", "make", "names", "runs_user_code", "takes", "task_from"]
