"""A hand that opens a door, from 25 human demonstrations: success of a goal prompt from 50 resets, a row a policy.

The data is hand_dapg's (Rajeswaran et al., Apache License 2.0): observations, actions and episode_lengths as an npz
file. It is not part of this project. Needs pip install 'hilp[mujoco]'.
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
from hilp.commands import common
from hilp.errors import HilpError
from hilp.learning import configs, methods
from hilp.policy.listening import listening
from hilp.versions import versions

RESETS, STEPS = 50, 300
ANGLE, OPEN = 28, 1.5  # the column of the door's angle, and the goal


def opened(policy: hilp.FoundationPolicy, environments: list[Any], first: int) -> np.ndarray:
    """Which resets, the first of this seed, end in an open door; of the goal only the door's angle matters."""
    goal = np.array(policy.bank.observations[0])
    goal[ANGLE] = OPEN
    prompt = policy.goal(goal, plan=0, goal_dims=[ANGLE])
    seen = [env.reset(seed=seed)[0] for seed, env in enumerate(environments, first)]
    done = np.zeros(len(environments), bool)
    for _ in range(STEPS):
        actions = policy.act(np.asarray(seen, np.float32), prompt)
        for number, env in enumerate(environments):
            seen[number], _, _, _, info = env.step(np.clip(actions[number], -1, 1))
            done[number] |= bool(info["success"])
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="npz file of the demonstrations")
    parser.add_argument("--methods", nargs="+", default=["hilp", "gc-bc", "nearest"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="config values to try")
    parser.add_argument("--first", type=int, default=500, help="seed of the first reset: settings are chosen on others")
    parser.add_argument("--rows", default="benchmarks/adroit-door.jsonl")
    flags = parser.parse_args()
    try:
        changes = common.config_values(tuple(flags.set))
    except HilpError as error:
        parser.error(str(error))
    import gymnasium
    import gymnasium_robotics

    gymnasium.register_envs(gymnasium_robotics)
    environments = [gymnasium.make("AdroitHandDoor-v1", max_episode_steps=STEPS + 100) for _ in range(RESETS)]
    data = hilp.load(flags.data, rescale_actions=True)
    for method in flags.methods:
        preset = hilp.preset(method, "laptop")
        config = configs.changed(preset.config, changes)
        for seed in range(flags.seeds):
            begun = time.process_time()
            policy = hilp.pretrain(config, data, steps=preset.steps, bank=preset.bank, seed=seed, quiet=True)
            minutes = (time.process_time() - begun) / 60
            done = opened(policy, environments, flags.first)
            row = {
                "method": method,
                "seed": seed,
                "success": float(done.mean()),
                "outcomes": done.astype(int).tolist(),
                "first": flags.first,
                "set": flags.set,
                "steps": policy.provenance.steps,
                "core_minutes": round(minutes, 2),
                "listening": listening(policy),
                "config": methods.config_values(policy.config),
                "data_fingerprint": data.fingerprint,
                "versions": versions(),
                "command": shlex.join(["python", "benchmarks/adroit_door.py", Path(flags.data).name, *sys.argv[2:]]),
            }
            with Path(flags.rows).open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{method}, seed {seed}: {done.mean():.0%} after {minutes:.1f} core-minutes", flush=True)


if __name__ == "__main__":
    main()
