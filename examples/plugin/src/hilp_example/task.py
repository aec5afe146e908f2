"""A point that is pushed over a table, with goals and a reward: a Gymnasium environment as a task.

The same task as in examples/own_task.py, written out, because each of the two is to be copied on its own.
"""

import gymnasium
import numpy as np

import hilp


class Table(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 (as gymnasium has it)
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-0.1, 0.1, (2,), np.float32)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.at, {}

    def step(self, action):
        self.at = np.clip(self.at + action, -1, 1)
        return self.at, 0.0, False, False, {}

    def render(self):
        picture = np.full((128, 128, 3), 255, np.uint8)
        x, y = (64 + 58 * self.at).astype(int)
        picture[124 - y : 132 - y, x - 4 : x + 4] = (25, 118, 210)
        return picture


def make():
    return hilp.gym_task(
        Table,
        goal=lambda rng: rng.uniform(-1, 1, 2),
        success=lambda observations, goals: np.linalg.norm(observations - goals, axis=1) < 0.15,
        reward={"right": lambda s, a, s2: s2[:, 0]},
        max_steps=60,
    )
