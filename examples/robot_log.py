"""From a CSV robot log to a prompted policy.

Run: python examples/robot_log.py [updates]
"""

import sys
from pathlib import Path

import numpy as np

import hilp

path = Path("robot_log.csv")
if not path.exists():  # a log to try it on: a cart that is pushed about, commands in newtons
    rng, lines = np.random.default_rng(0), ["run,x,y,push_x,push_y"]
    for run in range(150):
        x, y = rng.uniform(-3, 3, 2)
        for _ in range(50):
            push = np.clip(rng.normal(0, 8, 2), -12, 12)
            lines.append(f"{run},{x:.4f},{y:.4f},{push[0]:.3f},{push[1]:.3f}")
            x, y = np.clip([x + 0.02 * push[0], y + 0.02 * push[1]], -4, 4)
    path.write_text("\n".join(lines))

data = hilp.load(
    path,
    columns={"observations": ["x", "y"], "actions": ["push_x", "push_y"], "episode_ids": "run"},
    rescale_actions=True,  # newtons to [-1, 1]; the policy answers in newtons
)
config = hilp.HILP(dim=8, hidden=(64, 64), actor_hidden=(64, 64), batch=128, lr=1e-3, temperature=3.0, normalize=True)
updates = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
policy = hilp.pretrain(config, data, steps=updates)
policy.save("runs/robot")

cart, go = np.array([-2.0, -2.0]), policy.goal([2.5, 1.0])
for _ in range(80):
    cart = np.clip(cart + 0.02 * policy.act(cart, go), -4, 4)
print(f"asked for (2.5, 1.0), arrived at ({cart[0]:.1f}, {cart[1]:.1f})")
