"""Reading a table: rows in, headers and lines out, the paper's numbers beside ours where it has any."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from hilp import tasks
from hilp.bench.cells import entry
from hilp.evaluation import stats, words
from hilp.evaluation.rows import Row
from hilp.report import paper

PAPER_PLAN = 3  # recursions of HILP-Plan in the paper


def score(row: Row) -> float:
    """A score that can be averaged over tasks: the share of what the best policy earns above a random one where that
    is known, else the return on the common scale of 0 to 1000; successes as they are."""
    if row["metric"] != "return":
        return float(row["score"])
    if row["best_possible"] is not None:
        return float((row["score"] - row["random"]) / (row["best_possible"] - row["random"]))
    return float(row["score"] * tasks.make(row["task"]).score_scale)


def headings(rows: Sequence[Row]) -> list[str]:
    """The columns of a table of rewards."""
    return list(dict.fromkeys(row["reward"] for row in rows))


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[Any]]]:
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


def goal_table(rows: Sequence[Row]) -> tuple[list[str], list[list[Any]]]:
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


def value_notes(rows: Sequence[Row]) -> list[str]:
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
    if unsure > words.UNSURE:
        notes.append(
            f"note: the two networks of V(s, g) differ by {unsure:.0%} of its mean, so the embedding errors say "
            "little: train longer"
        )
    return notes


def _random_score(rows: Sequence[Row], column: str) -> float:
    own = [row for row in rows if row["reward"] == column]
    if own[0]["best_possible"] is not None:
        return 0.0
    return float(np.mean([row["random"] * tasks.make(row["task"]).score_scale for row in own]))


def paper_table(rows: Sequence[Row]) -> tuple[list[str], list[list[Any]]] | None:
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
    rows: Sequence[Row], by: Literal["environment", "data", "task"]
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


def by_data(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows of each data set."""
    for name in dict.fromkeys(row["cell"]["data"] for row in rows):
        yield name, [row for row in rows if row["cell"]["data"] == name]
