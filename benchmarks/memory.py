"""What memory is worth where one observation does not tell the state: success by what a policy sees, a row a seed.

python benchmarks/memory.py

The laboratory `arm`: joints that are pushed, not moved, and are at a goal when they are there and stand. It is learnt
with full sight, without its velocities, and without them but with the last rows (`frames`).
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import hilp
from hilp.evaluation import stats
from hilp.evaluation.rollouts import roll
from hilp.learning import methods
from hilp.versions import versions

EPISODES = 200
NEAR, STANDING = 0.1, 0.1  # of the arm: joints and velocities within these of a goal have reached it
FRAMES = {"arm": 2}  # rows that are remembered, as `hilp data inspect` advises
TICK = 0.2  # seconds


class Arm:
    """Two joints with inertia, from -1 to 1; a row is their angles and velocities, an action what pushes them."""

    most = 75

    def data(self, seed: int) -> dict[str, np.ndarray]:
        """Somebody steers from pose to pose with an unsteady hand, 500 times 40 seconds."""
        rng, count, ticks = np.random.default_rng(seed), 500, 200
        arms, goals, wobble = Pushed(rng, count), rng.uniform(-1, 1, (count, 2)), np.zeros((count, 2))
        rows = np.empty((count, ticks + 1, 4), np.float32)
        actions = np.zeros((count, ticks + 1, 2), np.float32)
        for tick in range(ticks):
            rows[:, tick] = arms.observations
            goals = np.where(rng.random((count, 1)) < 1 / 50, rng.uniform(-1, 1, (count, 2)), goals)
            wobble = 0.8 * wobble + 0.6 * rng.normal(0.0, 0.4, (count, 2))
            joints, speeds = arms.observations[:, :2], arms.observations[:, 2:]
            actions[:, tick] = np.clip(2.0 * (goals - joints) - 2.5 * speeds + wobble, -1, 1)
            arms.step(actions[:, tick])
        rows[:, ticks] = arms.observations
        lengths = np.full(count, ticks + 1)
        return {"observations": rows.reshape(-1, 4), "actions": actions.reshape(-1, 2), "episode_lengths": lengths}

    def episodes(self, rng: np.random.Generator) -> Any:
        return Pushed(rng, EPISODES)

    def seen(self, rows: np.ndarray) -> np.ndarray:
        return rows[:, :2]


class Pushed:
    """Arms side by side, at rest somewhere, with goals somewhere."""

    def __init__(self, rng: np.random.Generator, count: int) -> None:
        joints, goals = rng.uniform(-1, 1, (2, count, 2))
        self.observations = np.concatenate([joints, np.zeros((count, 2))], axis=1).astype(np.float32)
        self.goals = np.concatenate([goals, np.zeros((count, 2))], axis=1).astype(np.float32)

    def step(self, actions: np.ndarray) -> None:
        speeds = self.observations[:, 2:] + TICK * np.clip(actions, -1, 1)
        joints = self.observations[:, :2] + TICK * speeds
        speeds = np.where(np.abs(joints) > 1, 0.0, speeds)  # they stop at their ends
        self.observations = np.concatenate([np.clip(joints, -1, 1), speeds], axis=1).astype(np.float32)

    def reached(self) -> np.ndarray:
        apart = np.abs(self.observations - self.goals)
        return np.asarray((apart[:, :2].max(axis=1) < NEAR) & (apart[:, 2:].max(axis=1) < STANDING))


LABS: dict[str, Any] = {"arm": Arm}


def row(name: str, sight: str, frames: int, seed: int, steps: int) -> dict[str, Any]:
    """Train on what is seen, act on what is seen: the share of goals that were reached."""
    lab = LABS[name]()
    arrays = lab.data(seed)
    if sight != "full":
        arrays["observations"] = lab.seen(arrays["observations"])
    data = hilp.load(arrays, frames=frames)
    begun = time.process_time()
    policy = hilp.pretrain(hilp.preset("hilp", "laptop").config, data, steps=steps, seed=seed, quiet=True)
    minutes = (time.process_time() - begun) / 60
    running = lab.episodes(np.random.default_rng(1000 + seed))
    goals = running.goals if sight == "full" else lab.seen(running.goals)
    prompt = policy.goal(goals)

    def act(active: np.ndarray) -> np.ndarray:
        seen = running.observations if sight == "full" else lab.seen(running.observations)
        return policy.act(seen, prompt, active=active) * active[:, None]

    reached = roll(running, act, lab.most, to_goals=True).reached
    return {
        "lab": name, "sight": sight, "frames": frames, "method": "hilp", "seed": seed, "score": float(reached.mean()),
        "interval": [*stats.wilson(int(reached.sum()), len(reached))], "episodes": len(reached), "steps": steps,
        "transitions": data.transitions, "core_minutes": round(minutes, 2),
        "config": methods.config_values(policy.config), "data_fingerprint": data.fingerprint, "versions": versions(),
        "command": shlex.join(["python", "benchmarks/memory.py", *sys.argv[1:]]),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labs", nargs="+", default=list(LABS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--sights", nargs="+", default=["full", "none", "history"])
    parser.add_argument("--frames", type=int)
    parser.add_argument("--steps", type=int, default=2_500)
    parser.add_argument("--rows", default="benchmarks/memory.jsonl")
    flags = parser.parse_args()
    for seed in flags.seeds:
        for name in flags.labs:
            for sight in flags.sights:
                frames = (flags.frames or FRAMES[name]) if sight == "history" else 1
                found = row(name, sight, frames, seed, flags.steps)
                with Path(flags.rows).open("a") as file:
                    file.write(json.dumps(found) + "\n")
                print(f"{name}, {sight}, {frames} rows, seed {seed}: {found['score']:.2f}, "
                      f"{found['core_minutes']} min", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
