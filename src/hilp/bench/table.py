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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hilp import presets, runs, tasks
from hilp.collectors import named
from hilp.data.dataset import Dataset
from hilp.errors import HilpError, nearest
from hilp.evaluation import diagnosis, rollouts, stats
from hilp.evaluation.rollouts import Row
from hilp.learning import methods
from hilp.policy.policy import FoundationPolicy
from hilp.report import figures, paper
from hilp.training import loop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["rewards", "goals"]
GOAL_METHODS = ("gc-bc", "gc-iql", "gc-cql", "fb", "iql-fdm", "iql-lap", "iql-rand", "hilp")  # paper's order
GOAL_PLANS: tuple[int | str, ...] = (0, 1, 2, 3, "auto")
PAPER_PLAN = 3  # recursions of HILP-Plan in the paper
REWARD_METHODS = ("gc-td3", "sf-cl", "sf-rand", "sf-idm", "sf-ae", "sf-lap", "sf-fdm", "fb", "sf-hilp")  # paper's order
VALUE_SEED = 0  # of V(s, g): all policies on a data set are compared with the same one, on the same pairs


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


def entries(
    names: Sequence[str],
    values: dict[str, str],
    sweep: tuple[str, Sequence[str]] | None = None,
    variants: Sequence[tuple[str, dict[str, str]]] = (),
) -> dict[str, Entry]:
    """The rows of a table by label; a sweep makes one of each value of a config key, variants one more each.

    A method that lacks a key, say dim where the skill is the goal itself, has no such row.
    """
    if sweep and variants:
        raise HilpError("--sweep and --variants are two tables: ask for one after the other")
    labels = [label for label, _ in variants]
    if len(set(labels)) < len(labels):
        raise HilpError(f"two variants have one name: {', '.join(labels)}")
    made = {}
    for name in names:
        base = entry(name)
        keys = {f.name for f in dataclasses.fields(methods.module(base.method).Config)}
        if sweep and sweep[0] not in keys:
            continue
        for value in sweep[1] if sweep else (None,):
            own = {**base.values, **values, **({sweep[0]: value} if sweep and value is not None else {})}
            made[name if sweep is None else f"{name} {sweep[0]}={value}"] = Entry(base.method, own, base.rule)
        for label, own in variants:
            if keys.issuperset(own):
                made[f"{name} {label}"] = Entry(base.method, {**base.values, **values, **own}, base.rule)
    for label in labels:
        if not any(f"{name} {label}" in made for name in names):
            raise HilpError(f"none of these methods has all config keys of the variant '{label}'")
    if sweep and not made:
        raise HilpError(f"none of these methods has the config key '{sweep[0]}' to sweep")
    if sweep and not all(_is_number(value) for value in sweep[1]):
        raise HilpError(f"a sweep is drawn against numbers, not {', '.join(sweep[1])}: compare them with --variants")
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
    errors: bool = False,
    looks: int = 0,
) -> list[Row]:
    """Train and prompt what the file of rows lacks, one cell after the other; all rows of this table.

    errors: rows of policies with distances also say how far these are from the true ones (`embedding`).
    looks: how often policies are sent to goals while they are trained, for a learning curve.
    """
    worlds = {}
    data = {source: named.load(source) for source in sources}
    for source, found in data.items():
        if found.task is None:
            raise HilpError(f"{source} does not say which task it comes from: collect it with `hilp data collect`")
        worlds[source] = tasks.make(found.task).for_data(np.asarray(found.observations[0]))
        if kind == "rewards" and not worlds[source].rewards:
            raise HilpError(f"task {found.task} of {source} has no named rewards: try `hilp bench goals`")
        if kind == "goals" and not worlds[source].has_goals:
            raise HilpError(f"task {found.task} of {source} has no goals: try `hilp bench rewards`")
    cells = [
        Cell(kind, label, rows[label], source, data[source], seed, size, steps, episodes, intercept, errors, looks)
        for source in sources
        for seed in seeds
        for label in rows
    ]
    for cell in cells:
        _ = cell.config  # a mistake in a value is told before the first cell is trained
    kept: list[Row] = []
    for number, cell in enumerate(cells, 1):
        have = [row for row in rollouts.read_rows(file) if row.get("cell") == cell.identity] if file.is_file() else []
        if not have:
            tell(f"cell {number} of {len(cells)}: {cell.label}, {cell.data.name}, seed {cell.seed}")
            found_rows = cell.run(worlds[cell.source], out, quiet=quiet, command=command)
            have = [{**row, "cell": cell.identity} for row in found_rows]
            rollouts.append_rows(file, have)
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
    errors: bool
    looks: int  # no part of the identity: looking changes nothing

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
            "config": digest(methods.described(self.config)),
            "data": self.data.name,
            "data_fingerprint": self.data.fingerprint,
            "seed": self.seed,
            "preset": self.size,
            "updates": self.updates,
            "episodes": self.episodes,
            **({"intercept": True} if self.intercept else {}),
            **({"errors": True} if self.errors else {}),
        }

    def run(self, world: tasks.Task, out: Path, *, quiet: bool, command: str) -> list[Row]:
        """Train (or go on training) the policy and prompt it."""
        changed = f"-{digest(methods.described(self.config))}" if self.entry.values else ""
        folder = out / file_name(self.data.name) / f"{file_name(self.label)}{changed}" / f"seed-{self.seed}"
        policy = loop.pretrain(
            self.config,
            self.data,
            steps=self.updates,
            seed=self.seed,
            out=folder,
            resume=(folder / runs.RUN).is_file(),
            bank=self.preset.bank,
            evaluate=partial(rollouts.look, world=world, seed=self.seed) if self.looks else None,
            eval_every=max(1, self.updates // self.looks) if self.looks else None,
            quiet=quiet,
            command=command,
        )
        if self.kind == "goals":
            plans = GOAL_PLANS if policy.has_rule("direct") else (0,)
            # Before the episodes: V(s, g) is kept once it is trained, and they are not before they are over.
            embedding = self.embedding_error(policy, world, out, quiet) if self.errors else None
            found = rollouts.evaluate(
                policy, world, plan=plans, rewards=(), episodes=self.episodes, seed=self.seed, command=command
            )
            if embedding is not None:
                found = [{**row, "embedding": embedding} for row in found]
            if self.looks:
                found[0]["curve"] = rollouts.curve(folder / runs.METRICS)
            return found
        found = rollouts.evaluate(
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
            row["random"] = float(rollouts.random_return(world, row["reward"], self.episodes, self.seed).mean())
        return found

    def embedding_error(
        self, policy: FoundationPolicy, world: tasks.Task, out: Path, quiet: bool
    ) -> diagnosis.Numbers | None:
        """How far |phi(s) - phi(g)| is from the exact distance, or from V(s, g) where nobody knows that.

        None for a policy without distances. V is trained as long as phi was, once for all cells that ask for the same.
        """
        if not policy.has_rule("direct"):
            return None
        exact = diagnosis.exact_error(policy, world)
        if exact is not None:
            return exact
        steps = diagnosis.phi_updates(self.config, self.updates)
        reference = diagnosis.Reference(self.data, diagnosis.value_config(policy), steps, VALUE_SEED)
        folder = out / file_name(self.data.name) / f"value-{digest(reference.identity)}"
        found = diagnosis.value_error(policy, reference, reference.train_once(folder, quiet))
        return {**found, "value": folder.name}


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
    """Methods by data sets: 100 x success, mean and standard deviation over seeds, the paper's behind a slash.

    Behind them the mean embedding error on each data set, where rows have one; it is the same with any plan.
    """
    names = list(dict.fromkeys(row["cell"]["data"] for row in rows))
    compared = [name for name in names if any("embedding" in r for r in rows if r["cell"]["data"] == name)]
    groups: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        groups.setdefault(goal_label(row), {}).setdefault(row["cell"]["data"], []).append(row)
    lines = []
    for label, found in groups.items():
        line: list[Any] = [label]
        for name in names:
            if name not in found:
                line.append("")
                continue
            mean, std = stats.mean_std([100 * row["score"] for row in found[name]])
            theirs = paper.goal_conditioned(name, label)
            line.append(f"{mean:.0f} ± {std:.0f}" + (f" / {theirs[0]:.0f} ± {theirs[1]:.0f}" if theirs else ""))
        iqm, low, high = stats.stratified_bootstrap([[100 * row["score"] for row in own] for own in found.values()])
        line.append(f"{iqm:.0f} [{low:.0f}, {high:.0f}]")
        for name in compared:
            errors = [row["embedding"]["mse"] for row in found.get(name, []) if "embedding" in row]
            line.append(f"{np.mean(errors):.3g}" if errors else "")
        lines.append(line)
    columns = ["embedding MSE" if len(names) == 1 else f"embedding MSE, {name}" for name in compared]
    return ["method", *names, "IQM [95%]", *columns], lines


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


def curve_figure(rows: list[Row]) -> Figure | None:
    """Success while training, mean over seeds, of every method and of its plan; None where nobody looked."""
    points: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        for look in row.get("curve", []):
            for key, suffix in (("success", ""), ("success_plan", "-plan")):
                if key in look:
                    line = points.setdefault(f"{row['cell']['label']}{suffix}", {})
                    line.setdefault(look["step"], []).append(100 * look[key])
    if not points:
        return None
    series = {
        name: (sorted(line), [float(np.mean(line[step])) for step in sorted(line)]) for name, line in points.items()
    }
    return figures.curves(series, f"Learning on {rows[0]['cell']['data']}", "goals reached, %", xlabel="updates")


def error_figure(rows: list[Row], swept: str | None) -> Figure | None:
    """Success without a plan against the embedding error, one point a policy; None where no row has one."""
    own = [row for row in rows if row["plan"] == 0 and "embedding" in row]
    if not own:
        return None
    against = "V(s, g)" if own[0]["embedding"]["against"] == "value" else "exact distances"
    names = {row["cell"]["label"].partition(" ")[0] for row in own}
    single = len(names) == 1
    if swept:
        own = sorted(own, key=lambda row: float(row["config"][swept]))
    # Squared errors have a unit, (1 - gamma^d) / (1 - gamma), and a reference; only their like can be set beside them.
    alike = len({(row["config"]["phi_discount"], row["embedding"].get("value")) for row in own}) == 1
    measure = "mse" if alike else "relative"
    points: dict[str, tuple[list[float], list[float]]] = {}
    for row in own:
        name = f"{swept} = {row['config'][swept]}" if single and swept else row["cell"]["label"]
        errors, rates = points.setdefault(name, ([], []))
        errors.append(row["embedding"][measure])
        rates.append(row["score"])
    correlation = stats.spearman([row["embedding"][measure] for row in own], [row["score"] for row in own])
    return figures.success_by_error(
        points,
        correlation,
        f"{names.pop() if single else 'Success'} on {own[0]['cell']['data']}",
        f"embedding error {'' if alike else 'relative to E[d*], root of '}E[(d* − |φ(s) − φ(g)|)²], d* from {against}",
        in_order=single and swept is not None,
    )


def value_notes(rows: list[Row]) -> list[str]:
    """Lines to print where embedding errors against V(s, g) need a word: another expectile than phi's, a V unsure."""
    compared = [row for row in rows if row.get("embedding", {}).get("against") == "value"]
    notes = []
    for row in compared:
        ours, theirs = row["config"]["phi_expectile"], row["embedding"]["value_expectile"]
        if ours != theirs:
            notes.append(
                f"note: the embedding errors compare phi at expectile {ours:g} with V(s, g) at {theirs:g}; the paper "
                f"has {theirs:g} for both: --set phi_expectile={theirs:g}"
            )
            break
    unsure = max((row["embedding"]["disagreement"] for row in compared), default=0.0)
    if unsure > diagnosis.UNSURE:
        notes.append(
            f"note: the two networks of V(s, g) differ by {unsure:.0%} of its mean, so the embedding errors say "
            "little: train longer"
        )
    return notes


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
        at.setdefault(f"{row['cell']['data']} {row['reward']}", []).append(score(row))
    points = {
        method: {at: stats.stratified_bootstrap(list(strata.values())) for at, strata in found.items()}
        for method, found in lines.items()
    }
    return _sweep_curves(points, key, "IQM of the scores")


def goal_sweep_figure(rows: list[Row], key: str) -> Figure:
    """Mean success over seeds against the value of a config key: a line each method, data set and plan (0 or auto)."""
    names = {row["cell"]["data"] for row in rows}
    lines: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        if row["plan"] in (0, "auto"):
            parts = [row["cell"]["label"].partition(" ")[0]]
            parts += [str(row["cell"]["data"])] if len(names) > 1 else []
            parts += [f"plan {row['plan']}"] if row["plan"] else []
            lines.setdefault(", ".join(parts), {}).setdefault(float(row["config"][key]), []).append(100 * score(row))
    points = {
        line: {at: stats.stratified_bootstrap([scores], "mean") for at, scores in found.items()}
        for line, found in lines.items()
    }
    return _sweep_curves(
        points, key, "goals reached, %", of="success" + (f" on {names.pop()}" if len(names) == 1 else "")
    )


def _sweep_curves(
    points: dict[str, dict[float, tuple[float, float, float]]], key: str, ylabel: str, of: str = "the score"
) -> Figure:
    """A line with its band for each name: value of the key -> (middle, low, high)."""
    series, bands = {}, {}
    for name, found in points.items():
        x = sorted(found)
        middle, low, high = zip(*(found[at] for at in x), strict=True)
        series[name], bands[name] = (x, middle), (low, high)
    ticks = sorted({at for found in points.values() for at in found})
    return figures.curves(series, f"{key} against {of}", ylabel, bands=bands, xlabel=key, xticks=ticks)


def by_data(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows of each data set."""
    for name in dict.fromkeys(row["cell"]["data"] for row in rows):
        yield name, [row for row in rows if row["cell"]["data"] == name]
