"""Your own arrays: from a dict of NumPy arrays to a policy that takes goals and rewards.

Run: python examples/own_arrays.py [updates]
"""

import sys

import numpy as np

import hilp

# A log of 200 episodes of a robot that drifts about a room: positions, and the velocity commands it was given.
rng = np.random.default_rng(0)
episodes = []
for _ in range(200):
    commands = np.clip(rng.normal(rng.normal(0, 0.5, 2), 0.5, (60, 2)), -1, 1)
    positions = np.clip(np.cumsum(np.vstack([rng.uniform(-3, 3, 2), 0.2 * commands]), axis=0), -4, 4)
    episodes.append((positions, commands))

data = hilp.load(
    {
        "observations": np.concatenate([positions for positions, _ in episodes]),  # 61 rows an episode
        "actions": np.concatenate([commands for _, commands in episodes]),  # 60 rows an episode
        "episode_lengths": [len(positions) for positions, _ in episodes],
    }
)
updates = int(sys.argv[1]) if len(sys.argv) > 1 else 1500
config = hilp.HILP(dim=8, hidden=(64, 64), actor_hidden=(64, 64), batch=128, lr=1e-3, normalize=True)
policy = hilp.pretrain(config, data, steps=updates)

go = policy.goal([3.0, -2.0])
position = np.zeros(2)
for _ in range(60):
    position = np.clip(position + 0.2 * policy.act(position, go), -4, 4)
print(f"asked for (3, -2), arrived at ({position[0]:.1f}, {position[1]:.1f})")

earn = policy.reward(data, lambda s, a, s2: s2[:, 0] - s[:, 0])
print(f"reward 'move right': R^2 {earn.r2:.2f}, action at the origin {policy.act(np.zeros(2), earn).round(2)}")
