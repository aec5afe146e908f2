"""The quickstart: collect, pretrain, evaluate, report, in minutes on a laptop, with every number in results.json."""

import contextlib
import functools
import json
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hilp import runs
from hilp.commands import common
from hilp.errors import HilpError, TrainingStopped, printable
from hilp.prompts.specs import Goal, Reward
from hilp.versions import machine, versions

with common.WhenUsed():
    from hilp import collectors, presets, storage, tasks
    from hilp.evaluation import diagnosis, evaluate, stats, trajectories
    from hilp.evaluation import rows as files
    from hilp.learning import methods
    from hilp.report import figures, page
    from hilp.training import auto_config, loop

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset
    from hilp.evaluation.rows import Row
    from hilp.policy.policy import FoundationPolicy

KIND, TRANSITIONS = "navigate", 300_000
FRAMES = 100_000  # transitions of data that are pictures
PLANS: tuple[int | str, ...] = (0, 1, 3, "auto")
PAIRS = 400  # start-goal pairs
CORRELATION_PAIRS = 50_000
MEASURED = {"success": ("goal", "score"), "success_interval": ("goal", "interval"), "reward_gain": ("reward", "score"),
            "reward_r2": ("reward", "r2"), "reward_rule": ("reward", "rule")}  # fmt: skip
RESULTS, PICTURE = "results.json", "trajectories.png"


@dataclass(frozen=True)
class Quickstart(common.Verb):
    """Collect maze data, pretrain, evaluate and write a report: a few minutes on two cores."""

    out: str = "runs/quickstart"
    """folder to write"""
    task: str = "maze-large"
    """maze to run in"""
    steps: int | None = None
    """gradient updates (default: the laptop preset's, more where the maze takes long to cross)"""
    seed: int = 0
    """random seed of everything"""
    seeds: int = 1
    """run this many, with seed, seed + 1, ..., each in a folder of its own; prints mean and range"""
    rows: str | None = None
    """JSONL file to add results to (default with --seeds: in --out); what it has from this machine is not made again"""
    overwrite: bool = False
    """replace an earlier quickstart in the same folder"""

    def __call__(self) -> None:
        if self.seeds > 1 or self.rows:
            return run_several(self)
        results = quickstart(self)
        if self.json:
            return common.print_json(results)
        common.print_table(*page.results_table(files.read_rows(f"{self.out}/{runs.ROWS}")), title=self.task)
        seconds = ", ".join(f"{name} {value:.0f} s" for name, value in results["seconds"].items())
        print(f"rank correlation of |phi(s) - phi(g)| with the exact distance: {results['rank_correlation']:.3f}")
        print(f"{seconds}\npictures: {printable(self.out)}/{runs.PAGE}")
        program = "hilp" if shutil.which("hilp") else sys.argv[0]
        print(f"meet it in the browser: {program} play {shlex.quote(printable(self.out))}")


def run_several(flags: Quickstart) -> None:
    """One quickstart after the other, and what they say together; what is finished is not made again."""
    from hilp.storage import lines

    folder = Path(flags.out)
    if (folder / runs.RUN).is_file():
        raise HilpError(f"{folder} holds a single quickstart: choose another --out for several")
    file = Path(flags.rows) if flags.rows else folder / "results.jsonl"
    preset = presets.preset("hilp", "laptop", flags.task)
    world = quick(flags.task)
    steps = flags.steps or preset.steps  # the same of all, also where data of some seeds would ask for more
    if flags.steps is None and preset.for_any_data:
        steps = auto_config.updates(preset, preset.config, collected(flags.task, world, flags.seed))
    alike = {"task": flags.task, "steps": steps, "pairs": PAIRS}
    alike["config"] = json.loads(json.dumps(methods.config_values(preset.config)))

    def is_alike(line: dict[str, Any], **own: Any) -> bool:
        return {**line, **alike, **own} == line

    def finished(**own: Any) -> list[dict[str, Any]]:
        return [line for _, line in lines.read(file) if is_alike(line, **own)] if file.is_file() else []

    for seed in range(flags.seed, flags.seed + flags.seeds):
        own: dict[str, Any] = {"seed": seed, "machine": machine()}
        if finished(**own) and not flags.overwrite:
            print(f"seed {seed}: already in {printable(str(file))}", file=sys.stderr)
            continue
        place = folder / f"seed-{seed}"
        overwrite = flags.overwrite or not (place / RESULTS).exists()  # one that was stopped begins anew
        results = quickstart(replace(flags, out=str(place), steps=steps, seed=seed, overwrite=overwrite))
        lines.append(file, [results], instead_of=functools.partial(is_alike, **own))
    show(flags, file, finished())


def show(flags: Quickstart, file: Path, found: Sequence[Mapping[str, Any]]) -> None:
    """Print what several quickstarts say together."""
    if flags.json:
        return common.print_json(*found)
    machines = {json.dumps(line.get("machine"), sort_keys=True) for line in found}
    seeds = {line["seed"] for line in found}
    title = f"{flags.task}: {len(found)} quickstarts ({len(seeds)} seeds, {len(machines)} machines)"
    common.print_table(["prompt", "mean", "lowest to highest", "R²"], summary(found), title=title)
    print(f"rows: {printable(str(file))}; pages: {printable(flags.out)}/seed-*/{runs.PAGE}")


def summary(found: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A line a prompt: mean and range of its score over some results, and the mean of its R²."""

    def line(name: str, values: list[float], form: str = ".0%", r2: Sequence[float] = ()) -> list[str]:
        spread = f"{min(values):{form}} to {max(values):{form}}"
        return [name, f"{fmean(values):{form}}", spread, f"{fmean(r2):.2f}" if r2 else ""]

    lines = [line(f"goal, plan {plan}", [one["success"][plan] for one in found]) for plan in found[0]["success"]]
    for name in found[0]["reward_gain"]:
        r2 = [one["reward_r2"][name] for one in found]
        lines.append(line(f"reward: {name}", [one["reward_gain"][name] for one in found], r2=r2))
    return [*lines, line("rank correlation", [one["rank_correlation"] for one in found], ".3f")]


def quickstart(flags: Quickstart) -> dict[str, Any]:
    """Run the whole story in a folder and return what results.json holds.

    With --overwrite an earlier quickstart stays as it is until the new one has taken its place.
    """
    folder, world = Path(flags.out), quick(flags.task)
    if not folder.exists():
        return story(folder, flags, world)
    if not flags.overwrite:
        raise HilpError(f"{folder} already exists: pass --overwrite or choose another --out")
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / runs.RUN).is_file()):
        raise HilpError(f"{folder} is not the folder of a run, so --overwrite will not delete it: choose another --out")
    with storage.locked(folder, common.command()):
        storage.clean_leftovers(folder)
        try:
            with storage.new_folder(folder) as new:
                return story(new, flags, world)
        except TrainingStopped:
            raise TrainingStopped(f"stopped: {folder} is as it was before") from None


def story(folder: Path, flags: Quickstart, world: "tasks.Task") -> dict[str, Any]:
    """Collect, pretrain, evaluate and draw."""
    preset, seed, command = presets.preset("hilp", "laptop", flags.task), flags.seed, common.command()
    seconds: dict[str, float] = {}
    with timed(seconds, "total"), contextlib.ExitStack() as stack:
        with timed(seconds, "collect"):
            data = collected(flags.task, world, seed)
        updates = flags.steps or auto_config.updates(preset, preset.config, data, quiet=flags.json)
        with timed(seconds, "pretrain"):
            about: dict[str, Any] = {"seed": seed, "out": folder, "quiet": flags.json, "command": command}
            policy = loop.pretrain(preset.config, data, steps=updates, bank=preset.bank, **about)
        stack.enter_context(storage.locked(folder, command))  # after the training, which locks for itself
        with timed(seconds, "evaluate"):
            prompts = [*(Goal(plan=plan) for plan in PLANS), *map(Reward, world.potentials)]
            found = evaluate.evaluate_with_rollouts(policy, world, prompts, episodes=PAIRS, seed=seed, command=command)
            correlation = rank_correlation(policy, world, seed)
        rows = [row for row, _ in found]
        files.append_rows(folder / runs.ROWS, rows)
        trajectories.save(folder / runs.TRAJECTORIES, found)
        goals = [trajectories.first_episodes(*pair) for pair in found if pair[0]["prompt"] == "goal"]
        figures.save(page.trajectory_figure(world, goals), folder / PICTURE)
        page.write(folder)
    results = {
        "task": flags.task,
        "preset": "laptop",
        "config": methods.config_values(preset.config),
        "steps": updates,
        "pairs": PAIRS,
        **{name: _by_prompt(rows, *what) for name, what in MEASURED.items()},
        "rank_correlation": correlation,
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "seed": seed,
        "versions": versions(),
        "machine": machine(),
        "command": command,
    }
    storage.write_json(folder / RESULTS, results)
    return results


def _by_prompt(rows: "Sequence[Row]", kind: str, field: str) -> dict[str, Any]:
    """A field of the rows of one kind of prompt, by the plan or the reward."""
    return {str(row[files.headline(row)]): row[field] for row in rows if row["prompt"] == kind}


def quick(task: str) -> "tasks.Task":
    """The world of a quickstart; it must have exact distances to compare with."""
    world = tasks.make(task)
    if world.finite() is None:
        raise HilpError(f"{world.name} is too large for exact distances, which a quickstart needs: use a smaller one")
    return world


def collected(task: str, world: "tasks.Task", seed: int) -> "Dataset":
    """What the story is trained on."""
    from hilp.tasks import rendering

    return collectors.collect(task, KIND, FRAMES if rendering.policy_spec(world).parts else TRANSITIONS, seed)


@contextlib.contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Note how long a part of the story took."""
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


def rank_correlation(policy: "FoundationPolicy", world: "tasks.Task", seed: int) -> float:
    """Of |phi(s) - phi(g)| with the exact number of steps, over random pairs of the task's exact restriction."""
    import numpy as np

    finite = world.finite()
    assert finite is not None, "the quickstart runs in mazes, which have one"
    latents, _ = diagnosis.exact_inputs(policy, world, finite)
    a, b = np.random.default_rng(seed).integers(len(latents), size=(2, CORRELATION_PAIRS))
    return stats.spearman(finite.steps[a, b], policy.distance(latents[a], latents[b]))
