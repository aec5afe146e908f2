"""Every kind of prompt on one policy, trained on the built-in maze.

Run: python examples/prompts.py [updates]
"""

import sys
import tempfile
from pathlib import Path

import hilp

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
preset = hilp.preset("hilp", "laptop")
data = hilp.load("maze-medium", steps=100_000)
policy = hilp.pretrain(preset.config, data, steps=updates, bank=preset.bank)

start = [1.5, 1.5]
goal = policy.goal([6.5, 6.5], plan=0)  # the latent direction of the goal, recomputed at every step
plan = policy.goal([6.5, 6.5])  # the same to places on the way that the data shows
earn = policy.reward(data, lambda s, a, s2: s2[:, 1] - s[:, 1])  # any vectorised reward: here, go up
skill = policy.skill(seed=7)  # a random latent direction
for name, prompt in {"goal": goal, "plan": plan, "reward": earn, "skill": skill}.items():
    print(f"{name:7s} action at the start: {policy.act(start, prompt).round(2)}")
print(f"the reward is expressed with R^2 = {earn.r2:.2f}")

with tempfile.TemporaryDirectory() as folder:
    policy.save(Path(folder) / "policy")
    earn.save(Path(folder) / "up.safetensors")
    again = hilp.FoundationPolicy.load(Path(folder) / "policy")
    same = again.act(start, again.load_prompt(Path(folder) / "up.safetensors"))
    print(f"loaded again:                {same.round(2)}")

specs = [*(hilp.Goal(plan=plan) for plan in (0, 1, 3, "auto")), hilp.Reward("up")]
for row in hilp.evaluate(policy, "maze-medium", prompts=specs, episodes=50):
    print(f"{row['spec']}: {row['metric']} {100 * row['score']:.0f}%")
