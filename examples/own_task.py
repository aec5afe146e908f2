"""A Gymnasium environment of your own as a task: a point that is pushed over a table, with goals and a reward.

python examples/own_task.py [UPDATES]               # the whole way in Python; or in the shell:
hilp data collect --task examples/own_task.py:make --out table --steps 20000
hilp pretrain --data table --out runs/table --steps 2000
hilp evaluate runs/table --task examples/own_task.py:make --rewards right --random
"""

import sys

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


if __name__ == "__main__":
    task = make()
    data = hilp.collect(task, "wander", steps=20_000)
    preset = hilp.preset("hilp", "laptop")
    policy = hilp.pretrain(preset.config, data, steps=int(sys.argv[1]) if len(sys.argv) > 1 else 2_000)
    for row in hilp.evaluate(policy, task, plan=(0, 3), rewards="right", episodes=20):
        print(row["prompt"], row.get("plan", row.get("reward")), row["metric"], round(row["score"], 2))
