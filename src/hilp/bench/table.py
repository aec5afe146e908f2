"""One command for a table of results: every (method, data set, seed) is a cell that is trained, prompted and kept.

A cell whose rows exist is skipped and one that was interrupted goes on, so the command can be given again and again
until the table is full. The paper's numbers stand beside ours where it has any.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hilp import evaluation, figures, methods, paper, presets, stats, tasks, train
from hilp.data import readers
from hilp.data.dataset import Dataset
from hilp.errors import HilpError, nearest
from hilp.evaluation import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["rewards", "goals"]
GOAL_METHODS = ("gc-bc", "gc-iql", "gc-cql", "fb", "iql-fdm", "iql-lap", "iql-rand", "hilp")  # paper's order
GOAL_PLANS: tuple[int | str, ...] = (0, 1, 2, 3, "auto")
PAPER_PLAN = 3  # recursions of HILP-Plan in the paper
REWARD_METHODS = ("gc-td3", "sf-cl", "sf-rand", "sf-idm", "sf-ae", "sf-lap", "sf-fdm", "fb", "sf-hilp")  # paper's order


@dataclass(frozen=True)
class Entry:
    """A row of the table: a method, and what it is given beside its preset."""

    method: str
    values: dict[str, Any] = field(default_factory=dict)  # of its config
    rule: str = "skill"  # how rewards become prompts


# Entries that are not the bare name of a method.
ENTRIES = {
    "sf-hilp-g": Entry("sf-hilp", {"cumulant": "diff", "phi_expectile": 0.9}, rule="goal"),
}


def entry(name: str) -> Entry:
    known = {*ENTRIES, *methods.MODULES}
    if name not in known:
        raise HilpError(f"unknown method '{name}': {nearest(name, known)}")
    return ENTRIES.get(name, Entry(name))


def entries(names: Iterable[str], values: dict[str, str], sweep: tuple[str, Sequence[str]] | None) -> dict[str, Entry]:
    """The rows of a table by label; a sweep makes one of each value of a config key."""
    made = {}
    for name in names:
        base = entry(name)
        if sweep and sweep[0] not in {f.name for f in dataclasses.fields(methods.module(base.method).Config)}:
            continue  # say dim, of a method whose skill is the goal itself
        for value in sweep[1] if sweep else (None,):
            own = {**base.values, **values, **({sweep[0]: value} if sweep and value is not None else {})}
            made[name if sweep is None else f"{name} {sweep[0]}={value}"] = Entry(base.method, own, base.rule)
    if sweep and not made:
        raise HilpError(f"none of these methods has the config key '{sweep[0]}' to sweep")
    if sweep and not all(_is_number(value) for value in sweep[1]):
        raise HilpError(f"a sweep is drawn against numbers, not {', '.join(sweep[1])}: compare them with --set instead")
    return made


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def fill(
    kind: Kind,
    rows: dict[str, Entry],
    sources: Sequence[str],
    seeds: Sequence[int],
    *,
    size: str,
    steps: int | None,
    episodes: int,
    intercept: bool,
    out: Path,
    file: Path,
    quiet: bool,
    command: str,
    tell: Callable[[str], None],
) -> list[Row]:
    """Train and prompt what the file of rows lacks, one cell after the other; all rows of this table."""
    worlds = {}
    data = {source: readers.load(source) for source in sources}
    for source, found in data.items():
        if found.task is None:
            raise HilpError(f"{source} does not say which task it comes from: collect it with `hilp data collect`")
        worlds[source] = tasks.make(found.task)
        if hasattr(worlds[source], "with_first_observation"):  # D4RL's goals take all but x and y from it
            worlds[source] = worlds[source].with_first_observation(np.asarray(found.observations[0]))
        if kind == "rewards" and not worlds[source].rewards:
            raise HilpError(f"task {found.task} of {source} has no named rewards: try `hilp bench goals`")
        if kind == "goals" and not worlds[source].has_goals:
            raise HilpError(f"task {found.task} of {source} has no goals: try `hilp bench rewards`")
    cells = [
        Cell(kind, label, rows[label], source, data[source], seed, size, steps, episodes, intercept)
        for source in sources
        for seed in seeds
        for label in rows
    ]
    for cell in cells:
        _ = cell.config  # a mistake in a value is told before the first cell is trained
    kept: list[Row] = []
    for number, cell in enumerate(cells, 1):
        have = [row for row in evaluation.read_rows(file) if row.get("cell") == cell.identity] if file.is_file() else []
        if not have:
            tell(f"cell {number} of {len(cells)}: {cell.label}, {cell.data.name}, seed {cell.seed}")
            found_rows = cell.run(worlds[cell.source], out, quiet=quiet, command=command)
            have = [{**row, "cell": cell.identity} for row in found_rows]
            evaluation.append_rows(file, have)
        kept += have
    return kept


@dataclass(frozen=True)
class Cell:
    """One policy of the table."""

    kind: Kind
    label: str
    entry: Entry
    source: str
    data: Dataset
    seed: int
    size: str
    steps: int | None
    episodes: int
    intercept: bool

    @property
    def preset(self) -> presets.Preset:
        return presets.preset(self.entry.method, self.size, self.data.task)

    @property
    def config(self) -> Any:
        return methods.configure(self.preset.config, self.entry.values)

    @property
    def updates(self) -> int:
        return self.preset.steps if self.steps is None else self.steps

    @property
    def identity(self) -> dict[str, Any]:
        """What tells this cell's rows from others."""
        return {
            "kind": self.kind,
            "label": self.label,
            "config": digest(dataclasses.asdict(self.config)),
            "data": self.data.name,
            "data_fingerprint": self.data.fingerprint,
            "seed": self.seed,
            "preset": self.size,
            "updates": self.updates,
            "episodes": self.episodes,
            **({"intercept": True} if self.intercept else {}),
        }

    def run(self, world: tasks.Task, out: Path, *, quiet: bool, command: str) -> list[Row]:
        """Train (or go on training) the policy and prompt it."""
        changed = f"-{digest(dataclasses.asdict(self.config))}" if self.entry.values else ""
        folder = out / file_name(self.data.name) / f"{file_name(self.label)}{changed}" / f"seed-{self.seed}"
        policy = train.pretrain(
            self.config,
            self.data,
            steps=self.updates,
            seed=self.seed,
            out=folder,
            resume=(folder / train.RUN).is_file(),
            bank=self.preset.bank,
            quiet=quiet,
            command=command,
        )
        if self.kind == "goals":
            plans = GOAL_PLANS if policy.has_rule("direct") else (0,)
            return evaluation.evaluate(
                policy, world, plan=plans, rewards=(), episodes=self.episodes, seed=self.seed, command=command
            )
        found = evaluation.evaluate(
            policy,
            world,
            plan=(),
            rewards=world.rewards,
            rule=self.entry.rule,
            intercept=self.intercept,
            data=self.data,
            episodes=self.episodes,
            seed=self.seed,
            command=command,
        )
        for row in found:
            row["random"] = float(evaluation.random_return(world, row["reward"], self.episodes, self.seed).mean())
        return found


def file_name(text: str) -> str:
    """A name as part of a file's name; data sets may be called by their path."""
    return re.sub(r"[^\w.=]+", "-", text).strip("-")


def digest(config: dict[str, Any]) -> str:
    """A short name of a config, the same for the one in memory and the one in a row."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:8]


# ---- reading the rows ------------------------------------------------------------------------------------------------


def score(row: Row) -> float:
    """A score that can be averaged over tasks: the share of what the best policy earns above a random one where that
    is known, else the return on the common scale of 0 to 1000; successes as they are."""
    if row["metric"] != "return":
        return float(row["score"])
    if row["best_possible"] is not None:
        return float((row["score"] - row["random"]) / (row["best_possible"] - row["random"]))
    return float(row["score"] * tasks.make(row["task"]).score_scale)


def headings(rows: list[Row]) -> list[str]:
    """The columns of a table of rewards."""
    return list(dict.fromkeys(row["reward"] for row in rows))


def table(rows: list[Row]) -> tuple[list[str], list[list[Any]]]:
    """Methods by rewards: mean and standard deviation over seeds, and over everything IQM with its 95% interval."""
    columns = headings(rows)
    lines = []
    for label in dict.fromkeys(row["cell"]["label"] for row in rows):
        line: list[Any] = [label]
        strata = []
        for column in columns:
            own = [score(r) for r in rows if r["cell"]["label"] == label and r["reward"] == column]
            if not own:
                line.append("")
                continue
            mean, std = stats.mean_std(own)
            line.append(f"{shown(mean)} ± {shown(std)}")
            strata.append(own)
        iqm, low, high = stats.stratified_bootstrap(strata)
        lines.append([*line, f"{shown(iqm)} [{shown(low)}, {shown(high)}]"])
    lines.append(["random actions", *(shown(_random_score(rows, column)) for column in columns), ""])
    return ["method", *columns, "IQM [95%]"], lines


def goal_table(rows: list[Row]) -> tuple[list[str], list[list[Any]]]:
    """Methods by data sets: 100 x success, mean and standard deviation over seeds, the paper's behind a slash."""
    names = list(dict.fromkeys(row["cell"]["data"] for row in rows))
    groups: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        groups.setdefault(goal_label(row), {}).setdefault(row["cell"]["data"], []).append(100 * row["score"])
    lines = []
    for label, found in groups.items():
        line: list[Any] = [label]
        for name in names:
            if name not in found:
                line.append("")
                continue
            mean, std = stats.mean_std(found[name])
            theirs = paper.goal_conditioned(name, label)
            line.append(f"{mean:.0f} ± {std:.0f}" + (f" / {theirs[0]:.0f} ± {theirs[1]:.0f}" if theirs else ""))
        iqm, low, high = stats.stratified_bootstrap(list(found.values()))
        lines.append([*line, f"{iqm:.0f} [{low:.0f}, {high:.0f}]"])
    return ["method", *names, "IQM [95%]"], lines


def goal_label(row: Row) -> str:
    """A row's line in the table: the paper's HILP-Plan is HILP with three recursions."""
    label, depth = str(row["cell"]["label"]), row["plan"]
    return label if depth == 0 else f"{label}-plan" if depth == PAPER_PLAN else f"{label}, plan {depth}"


def planning_figure(rows: list[Row], label: str) -> Figure | None:
    """Success against the number of recursions, with its interval over all episodes of all seeds; None without plan."""
    depths = [plan for plan in GOAL_PLANS if any(r["plan"] == plan and r["cell"]["label"] == label for r in rows)]
    if len(depths) < 2:
        return None
    rates, lows, highs = [], [], []
    for depth in depths:
        outcomes = [x for r in rows if r["plan"] == depth and r["cell"]["label"] == label for x in r["outcomes"]]
        low, high = stats.wilson(int(sum(outcomes)), len(outcomes))
        rates.append(float(np.mean(outcomes)))
        lows.append(low)
        highs.append(high)
    return figures.success_by_depth(
        [str(depth) for depth in depths], rates, lows, highs, title=f"{label} on {rows[0]['cell']['data']}"
    )


def _random_score(rows: list[Row], column: str) -> float:
    own = [row for row in rows if row["reward"] == column]
    if own[0]["best_possible"] is not None:
        return 0.0
    return float(np.mean([row["random"] * tasks.make(row["task"]).score_scale for row in own]))


def paper_table(rows: list[Row]) -> tuple[list[str], list[list[Any]]] | None:
    """Our mean beside the paper's for the same environment, kind of data and reward; None where the paper has none."""
    columns = headings(rows)
    lines = []
    for label in dict.fromkeys(row["cell"]["label"] for row in rows):
        line: list[Any] = [label]
        for column in columns:
            own = [r for r in rows if r["cell"]["label"] == label and r["reward"] == column]
            theirs = _paper_score(own[0]) if own else None
            line.append(f"{shown(float(np.mean([r['score'] for r in own])))} / {shown(theirs)}" if theirs else "")
        lines.append(line)
    if not any(cell for line in lines for cell in line[1:]):
        return None
    return ["method", *(f"{column} (ours / paper)" for column in columns)], lines


def _paper_score(row: Row) -> float | None:
    """The paper's mean for a row: on its data of the same kind, else over all its data."""
    kind = re.split(r"[-/]", str(row["cell"]["data"]).removesuffix("/buffer"))[-1]
    given = entry(row["cell"]["label"].partition(" ")[0])
    environment = str(row["task"]).partition("_")[0]
    dataset = kind if kind in paper.DATASETS else None
    found = paper.zero_shot(environment, str(row["reward"]), given.method, dataset, rule=given.rule)
    return None if found is None else found[0]


def aggregates(
    rows: list[Row], by: Literal["environment", "data", "task"]
) -> dict[str, dict[str, tuple[float, float, float]]]:
    """IQM and interval of each label in each environment, data set or task, as the paper's figures show them."""
    keys: dict[str, Callable[[Row], str]] = {
        "environment": lambda row: str(row["task"]).partition("_")[0],
        "data": lambda row: str(row["cell"]["data"]),
        "task": lambda row: f"{str(row['task']).partition('_')[0]} {row.get('reward', row.get('plan'))}",
    }
    groups: dict[str, dict[str, dict[str, list[float]]]] = {}
    for row in rows:
        strata = groups.setdefault(keys[by](row), {}).setdefault(row["cell"]["label"], {})
        strata.setdefault(f"{row['cell']['data']} {row.get('reward', row.get('plan'))}", []).append(score(row))
    return {
        group: {label: stats.stratified_bootstrap(list(strata.values())) for label, strata in labels.items()}
        for group, labels in groups.items()
    }


def shown(value: float) -> str:
    """Shares and successes with two decimals, returns as whole numbers."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.0f}"


def sweep_figure(rows: list[Row], key: str) -> Figure:
    """IQM over all rewards against the value of a config key, a line each method."""
    lines: dict[str, dict[float, dict[str, list[float]]]] = {}
    for row in rows:
        at = lines.setdefault(row["cell"]["label"].partition(" ")[0], {}).setdefault(float(row["config"][key]), {})
        at.setdefault(f"{row['cell']['data']} {row.get('reward', row.get('plan'))}", []).append(score(row))
    series, bands = {}, {}
    for method, points in lines.items():
        x = sorted(points)
        middle, low, high = zip(*(stats.stratified_bootstrap(list(points[at].values())) for at in x), strict=True)
        series[method], bands[method] = (x, middle), (low, high)
    return figures.curves(series, f"{key} against the score", "IQM of the scores", bands=bands, xlabel=key)


def by_data(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows of each data set."""
    for name in dict.fromkeys(row["cell"]["data"] for row in rows):
        yield name, [row for row in rows if row["cell"]["data"] == name]
