"""Reading a table: rows in, headers and lines out, with the paper's numbers where it has any."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from hilp.bench.entries import entry
from hilp.evaluation import explain, stats
from hilp.evaluation.rows import Row, interval_of
from hilp.report import paper

PAPER_PLAN = 3  # recursions of HILP-Plan in the paper
Table = tuple[list[str], list[list[str]]]  # headers, lines
Groups = dict[str, dict[str, list[Row]]]  # rows by line and column, or by other pairs of names


def score(row: Row, value: float | None = None) -> float:
    """A score that can be averaged over tasks: the share of what the best policy earns above a random one where that
    is known, else the return on the common scale of 0 to 1000; successes as they are. Of the row, or of a value in its
    place, such as that of one episode."""
    value = row["score"] if value is None else value
    if row["metric"] != "return":
        return float(value)
    if row["best_possible"] is not None:
        return float((value - row["random"]) / (row["best_possible"] - row["random"]))
    return float(value * row["score_scale"])


def percent(row: Row, value: float | None = None) -> float:
    return 100 * (row["score"] if value is None else value)


def grouped(rows: Sequence[Row], first: Callable[[Row], str], second: Callable[[Row], str]) -> Groups:
    found: Groups = {}
    for row in rows:
        found.setdefault(first(row), {}).setdefault(second(row), []).append(row)
    return found


def label_of(row: Row) -> str:
    return str(row["cell"]["label"])


def data_of(row: Row) -> str:
    return str(row["cell"]["data"])


def reward_of(row: Row) -> str:
    return row["reward"]


def goal_label(row: Row) -> str:
    """A row's line in the table of goals."""
    return label_of(row) if row["plan"] == 0 else f"{label_of(row)}, plan {row['plan']}"


def _grid(groups: Groups, columns: Sequence[str], write: Callable[[Sequence[Row]], str]) -> list[list[str]]:
    return [[label, *(write(own[c]) if c in own else "" for c in columns)] for label, own in groups.items()]


def table(rows: Sequence[Row]) -> Table:
    """Methods by rewards: mean and standard deviation over seeds, and over everything IQM with its 95% interval."""
    columns, groups = list(dict.fromkeys(map(reward_of, rows))), grouped(rows, label_of, reward_of)
    lines = _grid(groups, columns, lambda own: _cell(own, score, shown))
    for line, own in zip(lines, groups.values(), strict=True):
        line.append(_iqm(own, score, shown))
    lines.append(["random actions", *(shown(_random_score(rows, column)) for column in columns), ""])
    return ["method", *columns, "IQM [95%]"], lines


def goal_table(rows: Sequence[Row]) -> Table:
    """Methods by data sets: 100 x success, mean and standard deviation over seeds, then the paper's after a slash.

    The last columns are the mean embedding error on each data set, where rows have one; it is the same with any plan.
    """
    columns, groups = list(dict.fromkeys(map(data_of, rows))), grouped(rows, goal_label, data_of)
    lines = _grid(groups, columns, lambda own: _cell(own, percent, whole) + _paper_words(_paper_goals(own[0])))
    compared = list(dict.fromkeys(data_of(row) for row in rows if "embedding" in row))
    for line, own in zip(lines, groups.values(), strict=True):
        line.append(_iqm(own, percent, whole))
        for name in compared:
            errors = [row["embedding"]["mse"] for row in own.get(name, []) if "embedding" in row]
            line.append(f"{np.mean(errors):.3g}" if errors else "")
    more = ["embedding MSE" if len(columns) == 1 else f"embedding MSE, {name}" for name in compared]
    return ["method", *columns, "IQM [95%]", *more], lines


def hierarchy_table(rows: Sequence[Row]) -> Table:
    """Methods by data sets: 100 x success or the return, mean and deviation over seeds, the paper's after a slash."""

    def write(own: Sequence[Row]) -> str:
        theirs = paper.hierarchical(data_of(own[0]), label_of(own[0]))
        return _cell(own, score if own[0]["metric"] == "return" else percent, whole) + _paper_words(theirs)

    columns = list(dict.fromkeys(map(data_of, rows)))
    return ["method", *columns], _grid(grouped(rows, label_of, data_of), columns, write)


def paper_table(rows: Sequence[Row]) -> Table | None:
    """Our mean and the paper's for the same environment, kind of data and reward; None where the paper has none."""

    def write(own: Sequence[Row]) -> str:
        theirs = _paper_score(own[0])
        return f"{shown(float(np.mean([row['score'] for row in own])))} / {shown(theirs)}" if theirs else ""

    columns = list(dict.fromkeys(map(reward_of, rows)))
    lines = _grid(grouped(rows, label_of, reward_of), columns, write)
    known = [n for n in range(1, len(columns) + 1) if any(line[n] for line in lines)]
    headers = ["method", *(f"{columns[n - 1]} (ours / paper)" for n in known)]
    return (headers, [[line[0], *(line[n] for n in known)] for line in lines if any(line[1:])]) if known else None


def _paper_words(theirs: paper.Score | None) -> str:
    return f" / {theirs[0]:.0f} ± {theirs[1]:.0f}" if theirs else ""


def _paper_goals(row: Row) -> paper.Score | None:
    """The paper's score for a row: its HILP-Plan is HILP with three recursions, other plans it does not have."""
    names = {0: label_of(row), PAPER_PLAN: f"{label_of(row)}-plan"}
    return paper.goal_conditioned(data_of(row), names[row["plan"]]) if row["plan"] in names else None


def _paper_score(row: Row) -> float | None:
    """The paper's mean for a row: on its data of the same kind, else over all its data; it adapts nothing."""
    if row["cell"].get("adapt"):
        return None
    kind = re.split(r"[-/]", data_of(row).removesuffix("/buffer"))[-1]
    ours = entry(label_of(row).partition(" ")[0])
    dataset = kind if kind in paper.DATASETS else None
    found = paper.zero_shot(environment_of(row), reward_of(row), ours.method, dataset, rule=ours.rule)
    return None if found is None else found[0]


def environment_of(row: Row) -> str:
    return row["task"].partition("_")[0]


def has_paper_numbers(found: Table) -> bool:
    return any(" / " in text for line in found[1] for text in line[1:])


def _cell(own: Sequence[Row], scored: Callable[..., float], write: Callable[[float], str]) -> str:
    """Mean and standard deviation over seeds; of one seed its score, and the interval over its episodes."""
    if len(own) > 1:
        mean, std = stats.mean_std([scored(row) for row in own])
        return f"{write(mean)} ± {write(std)}"
    (row,) = own
    interval = interval_of(row)
    return write(scored(row)) + ("" if interval is None else _bracketed([scored(row, x) for x in interval], write))


def _iqm(strata: Mapping[str, Sequence[Row]], scored: Callable[..., float], write: Callable[[float], str]) -> str:
    middle, *interval = iqm_interval(strata, scored)
    return write(middle) + (_bracketed(interval, write) if interval[0] < interval[1] else "")


def iqm_interval(
    strata: Mapping[str, Sequence[Row]], scored: Callable[..., float] = score
) -> tuple[float, float, float]:
    """IQM of all rows, with its interval: over seeds, and over episodes where there is one seed."""
    episodes = [
        [scored(own[0], x) for x in own[0]["outcomes"]] if len(own) == 1 and own[0].get("outcomes") else None
        for own in strata.values()
    ]
    return stats.stratified_bootstrap([[scored(row) for row in own] for own in strata.values()], episodes=episodes)


def _bracketed(interval: Sequence[float], write: Callable[[float], str]) -> str:
    return f" [{write(interval[0])}, {write(interval[1])}]"


def _random_score(rows: Sequence[Row], column: str) -> float:
    own = [row for row in rows if row["reward"] == column]
    if own[0]["best_possible"] is not None:
        return 0.0
    return float(np.mean([row["random"] * row["score_scale"] for row in own]))


def shown(value: float) -> str:
    """Shares and successes with two decimals, returns as whole numbers."""
    return f"{value:.2f}" if abs(value) < 10 else whole(value)


def whole(value: float) -> str:
    return f"{value:.0f}"


def spread_words(rows: Sequence[Row]) -> str:
    """What the numbers of a table are over: how many seeds, and what their spread or interval is."""
    seeds = len({row["cell"]["seed"] for row in rows})
    if seeds > 1:
        return f"mean ± std over {seeds} seeds"
    return "one seed, 95% intervals over its episodes (not over seeds)"


def value_notes(rows: Sequence[Row]) -> list[str]:
    """Lines to print where embedding errors against V(s, g) mislead: another expectile than phi's, an unsure V."""
    compared = [row for row in rows if row.get("embedding", {}).get("against") == "value"]
    pairs = [(row["config"]["phi_expectile"], row["embedding"]["value_expectile"]) for row in compared]
    notes = [
        f"note: the embedding errors compare phi at expectile {ours:g} with V(s, g) at {theirs:g}; the paper has "
        f"{theirs:g} for both: --set phi_expectile={theirs:g}"
        for ours, theirs in pairs
        if ours != theirs
    ][:1]
    unsure = max((row["embedding"]["disagreement"] for row in compared), default=0.0)
    if unsure > explain.UNSURE:
        notes.append(
            f"note: the two networks of V(s, g) differ by {unsure:.0%} of its mean, so the embedding errors say "
            "little: train longer"
        )
    return notes


def aggregates(
    rows: Sequence[Row], by: Literal["environment", "data", "task"]
) -> dict[str, dict[str, tuple[float, float, float]]]:
    """IQM and interval of each label in each environment, data set or task, as the paper's figures show them."""
    task = lambda row: f"{environment_of(row)} {row['reward']}"  # noqa: E731
    key: Callable[[Row], str] = {"environment": environment_of, "data": data_of, "task": task}[by]
    found = {}
    for name in dict.fromkeys(map(key, rows)):
        own = [row for row in rows if key(row) == name]
        groups = grouped(own, label_of, lambda row: f"{data_of(row)} {row['reward']}")
        found[name] = {label: iqm_interval(strata) for label, strata in groups.items()}
    return found


def by_data(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each data set."""
    return {name: [row for row in rows if data_of(row) == name] for name in dict.fromkeys(map(data_of, rows))}
