"""Reading a table: rows in, headers and lines out, the paper's numbers beside ours where it has any."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Literal

import numpy as np

from hilp import tasks
from hilp.bench.cells import entry
from hilp.evaluation import explain, stats
from hilp.evaluation.rows import Row, interval_of
from hilp.report import paper

PAPER_PLAN = 3  # recursions of HILP-Plan in the paper


def score(row: Row, value: float | None = None) -> float:
    """A score that can be averaged over tasks: the share of what the best policy earns above a random one where that
    is known, else the return on the common scale of 0 to 1000; successes as they are. Of the row, or of a value in its
    place, such as that of one episode."""
    value = row["score"] if value is None else value
    if row["metric"] != "return":
        return float(value)
    if row["best_possible"] is not None:
        return float((value - row["random"]) / (row["best_possible"] - row["random"]))
    return float(value * scale(row))


def scale(row: Row) -> float:
    """What brings the returns of a row's task to the common scale; rows of earlier versions leave it to the task."""
    return row["score_scale"] if "score_scale" in row else _score_scale(row["task"])


@cache
def _score_scale(task: str) -> float:
    return float(tasks.make_recorded(task).score_scale)


def headings(rows: Sequence[Row]) -> list[str]:
    """The columns of a table of rewards."""
    return list(dict.fromkeys(row["reward"] for row in rows))


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[Any]]]:
    """Methods by rewards: mean and standard deviation over seeds, and over everything IQM with its 95% interval.

    One seed has no deviation: its interval is that over episodes.
    """
    columns = headings(rows)
    lines = []
    for label in dict.fromkeys(row["cell"]["label"] for row in rows):
        line: list[Any] = [label]
        strata = []
        for column in columns:
            own = [r for r in rows if r["cell"]["label"] == label and r["reward"] == column]
            if not own:
                line.append("")
                continue
            line.append(_cell(own, score, shown))
            strata.append(own)
        lines.append([*line, _iqm(strata, score, shown)])
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
            theirs = _paper_goals(found[name][0])
            beside = f" / {theirs[0]:.0f} ± {theirs[1]:.0f}" if theirs else ""
            line.append(_cell(found[name], _percent, "{:.0f}".format) + beside)
        line.append(_iqm(list(found.values()), _percent, "{:.0f}".format))
        for name in compared:
            errors = [row["embedding"]["mse"] for row in found.get(name, []) if "embedding" in row]
            line.append(f"{np.mean(errors):.3g}" if errors else "")
        lines.append(line)
    columns = ["embedding MSE" if len(names) == 1 else f"embedding MSE, {name}" for name in compared]
    return ["method", *names, "IQM [95%]", *columns], lines


def hierarchy_table(rows: Sequence[Row]) -> tuple[list[str], list[list[Any]]]:
    """Methods by data sets: 100 x success or the return, mean and deviation over seeds, the paper's behind a slash."""
    names = list(dict.fromkeys(row["cell"]["data"] for row in rows))
    lines = []
    for label in dict.fromkeys(row["cell"]["label"] for row in rows):
        line: list[Any] = [label]
        for name in names:
            own = [row for row in rows if (row["cell"]["label"], row["cell"]["data"]) == (label, name)]
            if not own:
                line.append("")
                continue
            theirs = paper.hierarchical(name, label)
            beside = f" / {theirs[0]:.0f} ± {theirs[1]:.0f}" if theirs else ""
            line.append(_cell(own, score if own[0]["metric"] == "return" else _percent, "{:.0f}".format) + beside)
        lines.append(line)
    return ["method", *names], lines


def goal_label(row: Row) -> str:
    """A row's line in the table."""
    label, depth = str(row["cell"]["label"]), row["plan"]
    return label if depth == 0 else f"{label}, plan {depth}"


def _paper_goals(row: Row) -> paper.Score | None:
    """The paper's score for a row: its HILP-Plan is HILP with three recursions, other plans it does not have."""
    names = {0: str(row["cell"]["label"]), PAPER_PLAN: f"{row['cell']['label']}-plan"}
    return paper.goal_conditioned(row["cell"]["data"], names[row["plan"]]) if row["plan"] in names else None


def beside_the_paper(rows: Sequence[Row]) -> bool:
    """Whether a table of goals has a number of the paper in it."""
    return any(_paper_goals(row) for row in rows)


def _percent(row: Row, value: float | None = None) -> float:
    return 100 * (row["score"] if value is None else value)


def _cell(own: Sequence[Row], scored: Callable[..., float], write: Callable[[float], str]) -> str:
    """Mean and standard deviation over seeds; of one seed its score, and the interval over its episodes."""
    if len(own) > 1:
        mean, std = stats.mean_std([scored(row) for row in own])
        return f"{write(mean)} ± {write(std)}"
    (row,) = own
    interval = interval_of(row)
    return write(scored(row)) + ("" if interval is None else _bracketed([scored(row, x) for x in interval], write))


def _iqm(strata: Sequence[Sequence[Row]], scored: Callable[..., float], write: Callable[[float], str]) -> str:
    middle, *interval = _iqm_interval(strata, scored)
    return write(middle) + (_bracketed(interval, write) if interval[0] < interval[1] else "")


def _iqm_interval(strata: Sequence[Sequence[Row]], scored: Callable[..., float]) -> tuple[float, float, float]:
    """IQM of all rows, with its interval: over seeds, and over episodes where there is one seed."""
    episodes = [
        [scored(own[0], x) for x in own[0]["outcomes"]] if len(own) == 1 and own[0].get("outcomes") else None
        for own in strata
    ]
    return stats.stratified_bootstrap([[scored(row) for row in own] for own in strata], episodes=episodes)


def _bracketed(interval: Sequence[float], write: Callable[[float], str]) -> str:
    return f" [{write(interval[0])}, {write(interval[1])}]"


def spread_words(rows: Sequence[Row]) -> str:
    """What stands behind the numbers of a table: how many seeds, and what their spread or interval is over."""
    seeds = len({row["cell"]["seed"] for row in rows})
    if seeds > 1:
        return f"mean ± std over {seeds} seeds"
    return "one seed, 95% intervals over its episodes (not over seeds)"


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
    if unsure > explain.UNSURE:
        notes.append(
            f"note: the two networks of V(s, g) differ by {unsure:.0%} of its mean, so the embedding errors say "
            "little: train longer"
        )
    return notes


def _random_score(rows: Sequence[Row], column: str) -> float:
    own = [row for row in rows if row["reward"] == column]
    if own[0]["best_possible"] is not None:
        return 0.0
    return float(np.mean([row["random"] * scale(row) for row in own]))


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
    known = [n for n, _ in enumerate(columns, 1) if any(line[n] for line in lines)]
    if not known:
        return None
    return (
        ["method", *(f"{columns[n - 1]} (ours / paper)" for n in known)],
        [[line[0], *(line[n] for n in known)] for line in lines if any(line[n] for n in known)],
    )


def _paper_score(row: Row) -> float | None:
    """The paper's mean for a row: on its data of the same kind, else over all its data; it adapts nothing."""
    if row["cell"].get("adapt"):
        return None
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
    groups: dict[str, dict[str, dict[str, list[Row]]]] = {}
    for row in rows:
        strata = groups.setdefault(keys[by](row), {}).setdefault(row["cell"]["label"], {})
        strata.setdefault(f"{row['cell']['data']} {row.get('reward', row.get('plan'))}", []).append(row)
    return {
        group: {label: _iqm_interval(list(strata.values()), score) for label, strata in labels.items()}
        for group, labels in groups.items()
    }


def shown(value: float) -> str:
    """Shares and successes with two decimals, returns as whole numbers."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.0f}"


def by_data(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows of each data set."""
    for name in dict.fromkeys(row["cell"]["data"] for row in rows):
        yield name, [row for row in rows if row["cell"]["data"] == name]
