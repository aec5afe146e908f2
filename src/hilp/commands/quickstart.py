"""The quickstart: collect, pretrain, evaluate, report, in minutes on a laptop, with every number in results.json."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from hilp import presets, runs, storage, tasks
from hilp.collectors import collect
from hilp.errors import HilpError
from hilp.evaluation import rollouts, stats
from hilp.policy.policy import FoundationPolicy
from hilp.report import figures, page
from hilp.training import loop
from hilp.versions import versions

TASK, KIND, TRANSITIONS = "maze-large", "navigate", 300_000
PLANS: tuple[int | str, ...] = (0, 1, 3, "auto")
PAIRS = 400  # start-goal pairs
CORRELATION_PAIRS = 50_000
RESULTS, PICTURE = "results.json", "trajectories.png"


def quickstart(
    out: str | os.PathLike[str],
    *,
    task: str = TASK,
    steps: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
    quiet: bool = False,
    command: str = "hilp quickstart",
) -> dict[str, Any]:
    """Run the whole story in a folder and return what results.json holds."""
    folder = Path(out)
    world = tasks.make(task)  # before anything is deleted
    if world.finite() is None:
        raise HilpError(
            f"{world.name} is too large for exact distances, which the quickstart compares with: use a smaller one"
        )
    if folder.exists():
        if not overwrite:
            raise HilpError(f"{folder} already exists: pass --overwrite or choose another --out")
        if any(folder.iterdir()) and not (folder / runs.RUN).is_file():
            raise HilpError(
                f"{folder} is not the folder of a run, so --overwrite will not delete it: choose another --out"
            )
        shutil.rmtree(folder)
    preset = presets.preset("hilp", "laptop")
    seconds = {}
    began = time.perf_counter()

    data = collect(task, KIND, TRANSITIONS, seed)
    seconds["collect"] = time.perf_counter() - began

    start = time.perf_counter()
    policy = loop.pretrain(
        preset.config,
        data,
        steps=steps or preset.steps,
        seed=seed,
        out=folder,
        bank=preset.bank,
        quiet=quiet,
        command=command,
    )
    seconds["pretrain"] = time.perf_counter() - start

    start = time.perf_counter()
    paths: dict[str, Any] = {}
    rows = rollouts.evaluate(
        policy,
        world,
        plan=PLANS,
        rewards=list(world.potentials),
        episodes=PAIRS,
        seed=seed,
        command=command,
        paths=paths,
    )
    correlation = rank_correlation(policy, world, seed)
    seconds["evaluate"] = time.perf_counter() - start

    rollouts.append_rows(folder / runs.ROWS, rows)
    metrics = rollouts.read_rows(folder / runs.METRICS)
    figures.save(page.trajectory_figure("goal", paths, world), folder / PICTURE)
    storage.write_text(folder / runs.PAGE, page.build(policy, rows, metrics, world, paths))
    seconds["total"] = time.perf_counter() - began
    goals = [row for row in rows if row["prompt"] == "goal"]
    rewards = [row for row in rows if row["prompt"] == "reward"]
    results = {
        "task": task,
        "preset": "laptop",
        "config": dataclasses.asdict(preset.config),
        "steps": steps or preset.steps,
        "pairs": PAIRS,
        "success": {str(row["plan"]): row["score"] for row in goals},
        "success_interval": {str(row["plan"]): row["interval"] for row in goals},
        "rank_correlation": correlation,
        "reward_gain": {row["reward"]: row["score"] for row in rewards},
        "reward_r2": {row["reward"]: row["r2"] for row in rewards},
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "seed": seed,
        "versions": versions(),
        "command": command,
    }
    storage.write_json(folder / RESULTS, results)
    return results


def rank_correlation(policy: FoundationPolicy, world: tasks.Task, seed: int) -> float:
    """Of |phi(s) - phi(g)| with the exact number of steps, over random pairs of the task's exact restriction."""
    finite = world.finite()
    assert finite is not None, "the quickstart runs in mazes, which have one"
    latents = policy.encode(finite.observations)
    a, b = np.random.default_rng(seed).integers(len(latents), size=(2, CORRELATION_PAIRS))
    return stats.spearman(finite.steps[a, b], np.linalg.norm(latents[a] - latents[b], axis=1))
