"""How often each script of the kitchen does its subtask: alone from the start, and in the middle of an episode.

    python tools/try_kitchen_scripts.py --tries 20 --noise 0 0.1

A row for each script and noise is added to benchmarks/kitchen-scripts.jsonl. Chained tries run all scripts in random
order, as the collector does; a script counts there if its subtask was done by its end.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from hilp.collectors.kitchen import JOINTS, SCRIPTS, Hand
from hilp.evaluation import stats
from hilp.storage import lines
from hilp.tasks import kitchen
from hilp.tasks.kitchen import Kitchen, KitchenEpisodes
from hilp.versions import versions

COMMAND = "python tools/try_kitchen_scripts.py"
Tries = dict[str, list[tuple[bool, int]]]  # script -> whether it was done, and steps, of each try


def act(running: KitchenEpisodes, hand: Hand, script: str, noise: float, rng: np.random.Generator) -> tuple[bool, int]:
    """Run one script to its end."""
    steps = 0
    for action in SCRIPTS[script](hand):
        action[:JOINTS] += noise * rng.standard_normal(JOINTS)
        running.step(action[None])
        steps += 1
    return bool(running.done[0, running.subtasks.index(script)]), steps


def measure(world: Kitchen, noise: float, tries: int, seed: int) -> tuple[Tries, Tries]:
    """Tries of each script alone and chained."""
    alone: Tries = {name: [] for name in SCRIPTS}
    chained: Tries = {name: [] for name in SCRIPTS}
    for number in range(tries):
        rng = np.random.default_rng([seed, number])
        for name in SCRIPTS:
            running = world.episodes(rng, 1)
            alone[name].append(act(running, Hand(world.simulator, running.data[0]), name, noise, rng))
        running = world.episodes(rng, 1)
        hand = Hand(world.simulator, running.data[0])
        for name in rng.permutation(list(SCRIPTS)):
            chained[str(name)].append(act(running, hand, str(name), noise, rng))
    return alone, chained


def counted(tries: list[tuple[bool, int]]) -> dict[str, Any]:
    done = sum(success for success, _ in tries)
    low, high = stats.wilson(done, len(tries))
    return {
        "done": done,
        "tries": len(tries),
        "interval": [low, high],
        "mean_steps": float(np.mean([steps for _, steps in tries])),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tries", type=int, default=20, help="of each script, alone and chained")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.1], help="standard deviations on actions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=Path("benchmarks/kitchen-scripts.jsonl"), help="file of rows")
    args = parser.parse_args()
    world = kitchen.make("kitchen", threads=1)
    software = versions() | {package: metadata.version(package) for package in ("mujoco", "gymnasium-robotics")}
    for noise in args.noise:
        alone, chained = measure(world, noise, args.tries, args.seed)
        found = [
            {
                "script": name,
                "noise": noise,
                "alone": counted(alone[name]),
                "chained": counted(chained[name]),
                "seed": args.seed,
                "command": shlex.join([*COMMAND.split(), *sys.argv[1:]]),
                "versions": software,
            }
            for name in SCRIPTS
        ]
        lines.append(args.results, found)
        for row in found:
            print(f"noise {noise:g}, {row['script']}: alone {row['alone']}, chained {row['chained']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
