"""CartPole by a prompt: data of random actions, and a reward that was not known when it was trained on.

hilp data collect --task examples/cartpole.py:make --kind random --steps 40000 --out data/cartpole
hilp pretrain --data data/cartpole --out runs/cartpole
hilp evaluate runs/cartpole --task examples/cartpole.py:make --rewards upright --random
"""

import numpy as np

import hilp

UPRIGHT, TRACK = 0.2095, 2.4  # radians and metres at which the environment ends an episode


def make():
    return hilp.gym_task("CartPole-v1", reward={"upright": upright}, max_steps=500)


def upright(s, a, s2):
    """How near the pole is to upright and the cart to the middle: 0 where an episode ends, at most 1 a step."""
    return np.clip(1.0 - np.abs(s2[:, 2]) / UPRIGHT, 0, 1) * np.clip(1.0 - np.abs(s2[:, 0]) / TRACK, 0, 1)
