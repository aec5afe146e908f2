"""Gymnasium's classic control by a reward prompt: what the environment itself pays a policy that was trained on random
actions alone, a row a seed.

python benchmarks/classic_control.py CartPole-v1 "-abs(observation[2]) - 0.1*abs(observation[0])"
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import hilp
from hilp.evaluation.rollouts import run_returns
from hilp.learning import methods
from hilp.versions import versions

EPISODES = 50
FB = {"preprocess_hidden": (128, 64), "hidden": 128, "dim": 32, "lr": 1e-3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", help="an id of Gymnasium, such as CartPole-v1")
    parser.add_argument("reward", help="the formula that the policy is asked to maximise")
    parser.add_argument("--transitions", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=7_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", default="benchmarks/classic-control.jsonl")
    flags = parser.parse_args()
    world = hilp.make_task(f"gym:{flags.environment}")
    config = methods.configure(hilp.preset("fb", "laptop").config, FB)
    for seed in range(flags.seed, flags.seed + flags.seeds):
        data = hilp.collect(world, "random", flags.transitions, seed)
        begun = time.process_time()
        policy = hilp.pretrain(config, data, steps=flags.steps, seed=seed, quiet=True)
        minutes = (time.process_time() - begun) / 60
        prompt: Any = policy.reward(data, flags.reward)
        found, at_random = (run_returns(by, world, "own", prompt, EPISODES, 0)[0] for by in (policy, None))
        row = {
            "task": world.name,
            "method": "fb",
            "reward": flags.reward,
            "r2": prompt.r2,
            "seed": seed,
            "returns": found.tolist(),
            "score": float(found.mean()),
            "random": float(at_random.mean()),
            "transitions": data.transitions,
            "steps": flags.steps,
            "core_minutes": round(minutes, 2),
            "config": methods.config_values(policy.config),
            "data_fingerprint": data.fingerprint,
            "versions": versions(),
            "command": shlex.join(["python", "benchmarks/classic_control.py", *sys.argv[1:]]),
        }
        with Path(flags.rows).open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{world.name}, seed {seed}: {found.mean():.0f}, random {at_random.mean():.0f}", flush=True)


if __name__ == "__main__":
    main()
