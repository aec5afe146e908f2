"""The quickstart: collect, pretrain, evaluate, report, in minutes on a laptop, with every number in results.json."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hilp.commands import common
from hilp.errors import HilpError, TrainingStopped, printable

if TYPE_CHECKING:
    from hilp import tasks
    from hilp.evaluation.rows import Row
    from hilp.policy.policy import FoundationPolicy

KIND, TRANSITIONS = "navigate", 300_000
PLANS: tuple[int | str, ...] = (0, 1, 3, "auto")
PAIRS = 400  # start-goal pairs
CORRELATION_PAIRS = 50_000
RESULTS, PICTURE = "results.json", "trajectories.png"


@dataclass(frozen=True)
class Flags:
    """Collect maze data, pretrain, evaluate and write a report: a few minutes on two cores."""

    out: str = "runs/quickstart"
    """folder to write"""
    task: str = "maze-large"
    """maze to run in"""
    steps: int | None = None
    """gradient updates (default: the laptop preset's)"""
    seed: int = 0
    """random seed of everything"""
    overwrite: bool = False
    """replace an earlier quickstart in the same folder"""
    json: bool = False
    """print results.json instead of tables"""


def run(flags: Flags) -> int:
    from hilp import runs
    from hilp.evaluation.rows import read_rows
    from hilp.report import page

    common.require_counts(flags, "steps")
    results = quickstart(
        flags.out,
        task=flags.task,
        steps=flags.steps,
        seed=flags.seed,
        overwrite=flags.overwrite,
        quiet=flags.json,
        command=common.command(),
    )
    if flags.json:
        common.print_json(results)
        return 0
    common.print_table(*page.results_table(read_rows(f"{flags.out}/{runs.ROWS}")), title=flags.task)
    seconds = ", ".join(f"{name} {value:.0f} s" for name, value in results["seconds"].items())
    print(f"rank correlation of |phi(s) - phi(g)| with the exact distance: {results['rank_correlation']:.3f}")
    print(f"{seconds}\npictures: {printable(flags.out)}/{runs.PAGE}")
    return 0


def quickstart(
    out: str | os.PathLike[str],
    *,
    task: str = Flags.task,
    steps: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
    quiet: bool = False,
    command: str = "hilp quickstart",
) -> dict[str, Any]:
    """Run the whole story in a folder and return what results.json holds.

    With `overwrite` an earlier quickstart stays as it is until the new one has taken its place.
    """
    from hilp import storage, tasks

    folder = Path(out)
    world = tasks.make(task)
    if world.finite() is None:
        raise HilpError(
            f"{world.name} is too large for exact distances, which the quickstart compares with: use a smaller one"
        )
    require_room(folder, overwrite)
    if not folder.exists():
        return story(folder, task, world, steps, seed, quiet, command)
    with storage.locked(folder, command):
        storage.clean_leftovers(folder)
        beside = storage.temporary_beside(folder)
        try:
            results = story(beside, task, world, steps, seed, quiet, command)
            storage.swap_folder(beside, folder)
        except TrainingStopped:
            raise TrainingStopped(f"stopped: {folder} is as it was before") from None
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return results


def require_room(folder: Path, overwrite: bool) -> None:
    """Raise where there is something that must not be replaced, or that nobody asked to replace."""
    from hilp import runs

    if not folder.exists():
        return
    if not overwrite:
        raise HilpError(f"{folder} already exists: pass --overwrite or choose another --out")
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / runs.RUN).is_file()):
        raise HilpError(f"{folder} is not the folder of a run, so --overwrite will not delete it: choose another --out")


def story(
    folder: Path, task: str, world: tasks.Task, steps: int | None, seed: int, quiet: bool, command: str
) -> dict[str, Any]:
    """Collect, pretrain, evaluate and draw."""
    from hilp import presets, runs, storage
    from hilp.collectors import collect
    from hilp.evaluation import evaluate, trajectories
    from hilp.evaluation import rows as files
    from hilp.report import figures, page
    from hilp.training import loop
    from hilp.versions import versions

    preset = presets.preset("hilp", "laptop")
    updates = steps or preset.steps
    seconds: dict[str, float] = {}
    with timed(seconds, "total"), contextlib.ExitStack() as stack:
        with timed(seconds, "collect"):
            data = collect(task, KIND, TRANSITIONS, seed)
        with timed(seconds, "pretrain"):
            policy = loop.pretrain(
                preset.config,
                data,
                steps=updates,
                seed=seed,
                out=folder,
                bank=preset.bank,
                quiet=quiet,
                command=command,
            )
        stack.enter_context(storage.locked(folder, command))  # after the training, which locks for itself
        with timed(seconds, "evaluate"):
            found = evaluate.run(
                policy,
                world,
                plan=PLANS,
                rewards=list(world.potentials),
                episodes=PAIRS,
                seed=seed,
                command=command,
            )
            correlation = rank_correlation(policy, world, seed)
        rows = [row for row, _ in found]
        files.append_rows(folder / runs.ROWS, rows)
        trajectories.keep(folder / runs.TRAJECTORIES, found)
        goals = [trajectories.kept(*pair) for pair in found if pair[0]["prompt"] == "goal"]
        figures.save(page.trajectory_figure(world, goals), folder / PICTURE)
        page.write(folder)
    results = {
        "task": task,
        "preset": "laptop",
        "config": dataclasses.asdict(preset.config),
        "steps": updates,
        **scores(rows),
        "rank_correlation": correlation,
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "seed": seed,
        "versions": versions(),
        "command": command,
    }
    storage.write_json(folder / RESULTS, results)
    return results


@contextlib.contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Note how long a part of the story took."""
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


def scores(rows: list[Row]) -> dict[str, Any]:
    """What the rows say, by plan and by reward."""
    goals = [row for row in rows if row["prompt"] == "goal"]
    rewards = [row for row in rows if row["prompt"] == "reward"]
    return {
        "pairs": PAIRS,
        "success": {str(row["plan"]): row["score"] for row in goals},
        "success_interval": {str(row["plan"]): row["interval"] for row in goals},
        "reward_gain": {row["reward"]: row["score"] for row in rewards},
        "reward_r2": {row["reward"]: row["r2"] for row in rewards},
    }


def rank_correlation(policy: FoundationPolicy, world: tasks.Task, seed: int) -> float:
    """Of |phi(s) - phi(g)| with the exact number of steps, over random pairs of the task's exact restriction."""
    import numpy as np

    from hilp.evaluation import stats

    finite = world.finite()
    assert finite is not None, "the quickstart runs in mazes, which have one"
    latents = policy.encode(finite.observations)
    a, b = np.random.default_rng(seed).integers(len(latents), size=(2, CORRELATION_PAIRS))
    return stats.spearman(finite.steps[a, b], np.linalg.norm(latents[a] - latents[b], axis=1))
