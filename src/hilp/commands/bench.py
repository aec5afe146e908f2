"""`hilp bench`: the paper's tables of methods, by rewards, by goals, and of hierarchies."""

import contextlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hilp.commands import common
from hilp.errors import HilpError, printable, some

with common.WhenUsed():
    from hilp import storage
    from hilp.bench import cells, jobs, pool, tables
    from hilp.report import figures
if TYPE_CHECKING:
    from hilp.evaluation.rows import Row


@dataclass(frozen=True)
class TableFlags(common.Verb, common.Reading):
    """What all tables of methods take."""

    task: str | None = None
    """task of the data (default: the one that each data set names)"""
    preset: str = "laptop"
    """laptop or paper"""
    steps: int | None = None
    """gradient updates of each policy (default: the preset's)"""
    seeds: int = 4
    """policies of each method: seed, seed + 1, ..."""
    seed: int = 0
    """first seed"""
    set: tuple[str, ...] = ()
    """config values to change for all: key=value ..."""
    sweep: str | None = None
    """a config value to vary, one table row each: key=value,value,..., e.g. dim=2,8,32,128"""
    variants: tuple[str, ...] = ()
    """more rows for each method, with config values changed: name:key=value,key=value ... (sizes as 256x256)"""
    out: str = "runs/bench"
    """folder of the runs and of the pictures; the same command goes on there: cells with rows are skipped"""
    rows: str | None = None
    """JSONL file of rows to add to (default: named after the table, in --out)"""
    engine: Literal["local", "ray"] = "local"
    """where cells are run: on this machine, or on a Ray cluster (pip install 'hilp[ray]')"""
    jobs: int = 1
    """cells at once on this machine, each in a process of its own that has its share of the cores"""
    retries: int = 2
    """how often a cell is tried again when its process or its machine is lost"""
    address: str | None = None
    """ray: address of the cluster, host:port (default: one that runs on this machine, or one of its own)"""
    cpus_per_cell: float = 1.0
    """ray: cores of a cell"""
    gpus_per_cell: float = 0.0
    """ray: 1 gives a cell a card, a fraction shares one and its memory"""


@dataclass(frozen=True)
class Rewards(TableFlags):
    """Train methods on unlabeled data and prompt each with every reward of the task: the paper's zero-shot RL table."""

    data: tuple[str, ...] = ("maze-large",)
    """data sets, each with a task that has rewards: mazes by name, or what `hilp data collect` wrote"""
    methods: tuple[str, ...] = ()
    """methods to compare; sf-hilp-g: the goal of highest reward, (sf-)hilp-graph: plans (default: the paper's)"""
    episodes: int = 50
    """episodes per reward"""
    intercept: bool = False
    """prompt with a constant, too, that is fitted with the features"""
    adapt: int | None = None
    """one more row of each: its prompts after a search with so many episodes, which are not those that are counted"""

    def __call__(self) -> None:
        rows, swept = fill("rewards", self, self.adapt or 0, intercept=self.intercept)
        groups = tables.grouped(rows, tables.data_of)
        ours = {name: tables.table(own) for name, own in groups.items()}
        theirs = {name: tables.paper_table(own) for name, own in groups.items()}
        if self.json:
            return common.print_json({"tables": ours, "paper": theirs})
        for name, table in ours.items():
            common.print_table(*table, title=f"{name}, {self.preset}, {tables.spread_words(rows)}")
            if (paper := theirs[name]) is not None:
                common.print_table(*paper, title=f"{name}, ours and the paper's")
        save_pictures(self, tables.reward_figures(rows, swept))


@dataclass(frozen=True)
class Goals(TableFlags):
    """Train methods on unlabeled data and send each to the goals of the task: the paper's goal-conditioned table."""

    data: tuple[str, ...] = ("maze-large", "maze-ultra")
    """data sets, each with a task that has goals: mazes by name, or what `hilp data collect` wrote"""
    methods: tuple[str, ...] = ()
    """methods to compare (default: the paper's eight; HILP-Plan is a prompt of hilp)"""
    episodes: int = 100
    """start-goal pairs per prompt"""
    curve_points: int = 0
    """evaluations of each policy while it is trained, for a learning curve (50 pairs each)"""
    errors: bool = False
    """also compare each policy's distances with the true ones, or with a learned V(s, g) where those are unknown"""

    def __call__(self) -> None:
        rows, swept = fill("goals", self, errors=self.errors, curve_points=self.curve_points)
        show(self, rows, tables.goal_table(rows), "100 x success", "pairs")
        if self.json:
            return
        notes = tables.value_notes(rows)
        for name, own in tables.grouped(rows, tables.data_of).items() if self.curve_points else ():
            if not any("curve" in row for row in own):
                notes.append(f"note: no learning curve of {name}: its policies were trained without --curve-points")
        for note in notes:
            print(printable(note))
        save_pictures(self, tables.goal_figures(rows, swept))


@dataclass(frozen=True)
class Hierarchy(TableFlags):
    """Train skills, a high level over them for one sparse reward, and flat IQL: the paper's hierarchical table."""

    data: tuple[str, ...] = ("maze-large",)
    """data sets, each with a task that has a far place or a reward: mazes, or what `hilp data collect` wrote"""
    methods: tuple[str, ...] = ()
    """methods to compare: those with skills of segments, and iql without any (default: iql opal hilp)"""
    reward: str | None = None
    """the task's reward to learn (default: 'target', its one far place or its subtasks)"""
    high_steps: int | None = None
    """gradient updates of each high level (default: the preset's)"""
    high_set: tuple[str, ...] = ()
    """config values of the high level to change: key=value ..."""
    episodes: int = 100
    """episodes of each policy"""

    def __call__(self) -> None:
        high: dict[str, Any] = {"high_steps": self.high_steps, "high_values": common.config_values(self.high_set)}
        rows, _ = fill("hierarchy", self, reward=self.reward, **high)
        scores = dict.fromkeys("return" if row["metric"] == "return" else f"100 x {row['metric']}" for row in rows)
        show(self, rows, tables.hierarchy_table(rows), " or ".join(scores), "episodes")


def fill(kind: "cells.Kind", flags: Any, adapt: int = 0, **options: Any) -> "tuple[list[Row], str | None]":
    """The rows of a table, made where they are missing (by one process at a time), and the config key of its sweep."""
    engine = _engine(flags)
    swept, changes = _changes(flags)
    lines = cells.entries(flags.methods or cells.METHODS[kind], common.config_values(flags.set), changes, adapt)
    recipes = [flags.recipe(source) | {"task": flags.task} for source in dict.fromkeys(flags.data)]
    about = {"out": flags.out, "command": common.command(), "quiet": flags.json}
    table = cells.Table(kind, flags.preset, flags.steps, flags.episodes, **about, **options)
    with storage.locked(Path(flags.out), table.command):
        made = cells.cells(table, lines, recipes, range(flags.seed, flags.seed + flags.seeds))
        file = Path(flags.rows or f"{flags.out}/{kind}.jsonl")
        return pool.fill(made, file, flags.json, engine, flags.retries), swept


def show(flags: Any, rows: "list[Row]", table: "tables.Table", score: str, episodes: str) -> None:
    """Print a table of data sets, or its JSON."""
    if flags.json:
        return common.print_json({"table": table})
    title = f"{score}, {flags.preset}, {flags.episodes} {episodes}, {tables.spread_words(rows)}"
    common.print_table(*table, title=title + (" (ours / paper)" if tables.has_paper_numbers(table) else ""))


def save_pictures(flags: Any, made: Iterable[tuple[str, Any]]) -> None:
    for name, figure in made:
        figures.save(figure, Path(flags.out) / f"{name}.png")
    print(f"pictures: {printable(flags.out)}")


def _engine(flags: Any) -> "pool.Engine | None":
    """What runs missing cells: processes of this machine, or a cluster; None: this process."""
    cpus, gpus = flags.cpus_per_cell, flags.gpus_per_cell
    if flags.engine == "local":
        for name in ("address", "cpus_per_cell", "gpus_per_cell"):
            if getattr(flags, name) != getattr(TableFlags, name):
                raise HilpError(f"--{name.replace('_', '-')} is for --engine ray")
        return None if flags.jobs == 1 else jobs.Processes(flags.jobs)
    if flags.jobs != 1:
        raise HilpError("--jobs is for --engine local: Ray runs as many cells at once as --cpus-per-cell allows")
    if not 0.01 <= cpus < 10_000 or (cpus > 1 and cpus != int(cpus)):
        raise HilpError(f"--cpus-per-cell must be a whole number, or a fraction of 1, not {cpus}")
    if not 0 <= gpus <= 1:
        raise HilpError(f"--gpus-per-cell must be from 0 to 1, as a cell trains on one card, not {gpus}")
    engine = jobs.Cluster(flags.address, cpus, gpus)
    jobs.require_answer(flags.address)
    return engine


def _changes(flags: Any) -> tuple[str | None, list[tuple[str, dict[str, str]]]]:
    """The config key of --sweep, and the lines of each method: a label and the config values that it changes."""
    variants = [_variant(text) for text in flags.variants]
    if len(dict(variants)) < len(variants):
        raise HilpError(f"two variants have one name: {some([label for label, _ in variants])}")
    if flags.sweep is None:
        return None, [("", {}), *variants]
    key, text = common.key_value(flags.sweep, "--sweep")
    values = [value for value in text.split(",") if value]
    if variants:
        raise HilpError("--sweep and --variants are two tables: ask for one after the other")
    if not values:
        raise HilpError(f"--sweep has no values of '{key}': name some as {key}=2,8,32")
    with contextlib.suppress(ValueError):
        if all(math.isfinite(float(value)) for value in values):
            return key, [(f"{key}={value}", {key: value}) for value in values]
    raise HilpError(f"a sweep is drawn against numbers, not {some(values)}: compare them with --variants")


def _variant(text: str) -> tuple[str, dict[str, str]]:
    name, colon, values = text.partition(":")
    if not colon or not name.strip():
        raise HilpError(f"--variants takes name:key=value,key=value, not '{text}'")
    return name.strip(), dict(common.key_value(part, "--variants") for part in values.split(","))
