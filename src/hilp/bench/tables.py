"""Reading a table: rows in, headers and lines out, with the paper's numbers where it has any."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

import numpy as np

from hilp.bench.entries import entry
from hilp.evaluation import explain, stats
from hilp.evaluation.rows import Row, interval_of
from hilp.report import paper

PAPER_PLAN = 3  # recursions of HILP-Plan in the paper
Table = tuple[list[str], list[list[str]]]  # headers, lines
Name = Callable[[Row], str]  # of the group that a row belongs to
Score = Callable[..., float]  # of a row, or of a value in the place of its score: `score` or `percent`
Point = tuple[float, float, float]  # a mean, and the ends of its interval
whole = "{:.0f}".format
reward_of: Name = itemgetter("reward")


def score(row: Row, value: float | None = None) -> float:
    """A score that can be averaged over tasks: the share of what the best policy earns above a random one where that
    is known, else the return on the common scale of 0 to 1000; successes as they are."""
    value = row["score"] if value is None else value
    if row["metric"] != "return":
        return float(value)
    if row["best_possible"] is not None:
        return float((value - row["random"]) / (row["best_possible"] - row["random"]))
    return float(value * row["score_scale"])


def percent(row: Row, value: float | None = None) -> float:
    return 100 * (row["score"] if value is None else value)


def shown(value: float) -> str:
    """Shares and successes with two decimals, returns as whole numbers."""
    return f"{value:.2f}" if abs(value) < 10 else whole(value)


def label_of(row: Row) -> str:
    return str(row["cell"]["label"])


def data_of(row: Row) -> str:
    return str(row["cell"]["data"])


def goal_label(row: Row) -> str:
    """A row's line in the table of goals."""
    return label_of(row) if row["plan"] == 0 else f"{label_of(row)}, plan {row['plan']}"


def environment_of(row: Row) -> str:
    return row["task"].partition("_")[0]


def stratum_of(row: Row) -> str:
    """Rows of the same data and reward differ in their seeds only."""
    return f"{data_of(row)} {row['reward']}"


def grouped(rows: Sequence[Row], by: Name) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(by(row), []).append(row)
    return found


def iqms(rows: Sequence[Row], by: Name) -> dict[str, Point]:
    """IQM of the scores of each group, with its interval."""
    return {name: iqm_interval(grouped(own, stratum_of)) for name, own in grouped(rows, by).items()}


def iqm_interval(strata: Mapping[str, Sequence[Row]], scored: Score = score) -> Point:
    """IQM of all rows, with its interval: over seeds, and over episodes where there is one seed."""
    episodes = [
        [scored(own[0], x) for x in own[0]["outcomes"]] if len(own) == 1 and own[0].get("outcomes") else None
        for own in strata.values()
    ]
    return stats.stratified_bootstrap([[scored(row) for row in own] for own in strata.values()], episodes=episodes)


def table(rows: Sequence[Row]) -> Table:
    """Methods by rewards: mean and standard deviation over seeds, and over everything IQM with its 95% interval."""
    headers, lines = _grid(rows, label_of, reward_of, lambda own: _cell(own, score, shown), score, shown)
    lines.append(["random actions", *(shown(_random_score(own)) for own in grouped(rows, reward_of).values()), ""])
    return headers, lines


def goal_table(rows: Sequence[Row]) -> Table:
    """Methods by data sets: 100 x success, mean and standard deviation over seeds, then the paper's after a slash.

    The last columns are the mean embedding error on each data set, where rows have one; it is the same with any plan.
    """

    def write(own: Sequence[Row]) -> str:
        label, plan = label_of(own[0]), own[0]["plan"]
        theirs = {0: label, PAPER_PLAN: f"{label}-plan"}.get(plan, "")  # the paper has no other plans
        return _cell(own, percent, whole, paper.goal_conditioned(data_of(own[0]), theirs))

    headers, lines = _grid(rows, goal_label, data_of, write, percent, whole)
    one = len(grouped(rows, data_of)) == 1
    for name, compared in grouped([row for row in rows if "embedding" in row], data_of).items():
        headers.append("embedding MSE" if one else f"embedding MSE, {name}")
        groups = grouped(compared, goal_label)
        for line in lines:
            errors = [row["embedding"]["mse"] for row in groups.get(line[0], [])]
            line.append(f"{np.mean(errors):.3g}" if errors else "")
    return headers, lines


def hierarchy_table(rows: Sequence[Row]) -> Table:
    """Methods by data sets: 100 x success or the return, mean and deviation over seeds, the paper's after a slash."""

    def write(own: Sequence[Row]) -> str:
        theirs = paper.hierarchical(data_of(own[0]), label_of(own[0]))
        return _cell(own, score if own[0]["metric"] == "return" else percent, whole, theirs)

    return _grid(rows, label_of, data_of, write)


def paper_table(rows: Sequence[Row]) -> Table | None:
    """Our mean and the paper's for the same environment, kind of data and reward; None where the paper has none."""
    known = [row for row in rows if _paper_score(row)]

    def write(own: Sequence[Row]) -> str:
        return f"{shown(float(np.mean([row['score'] for row in own])))} / {shown(_paper_score(own[0]) or 0.0)}"

    (first, *columns), lines = _grid(known, label_of, reward_of, write)
    return ([first, *(f"{name} (ours / paper)" for name in columns)], lines) if known else None


def _grid(
    rows: Sequence[Row],
    by: Name,
    column: Name,
    write: Callable[[Sequence[Row]], str],
    scored: Score | None = None,
    number: Callable[[float], str] = shown,
) -> Table:
    """A line for each group of rows; the last column is the IQM over all of a line where its `scored` rows have one."""
    columns, lines = list(grouped(rows, column)), []
    for label, group in grouped(rows, by).items():
        own = grouped(group, column)
        line = [label, *(write(own[name]) if name in own else "" for name in columns)]
        if scored is not None:
            middle, *interval = iqm_interval(own, scored)
            line.append(_with_interval(middle, interval if interval[0] < interval[1] else None, number))
        lines.append(line)
    return ["method", *columns, *([] if scored is None else ["IQM [95%]"])], lines


def _cell(own: Sequence[Row], scored: Score, number: Callable[[float], str], theirs: paper.Score | None = None) -> str:
    """Mean and standard deviation over seeds; of one seed its score, and the interval over its episodes."""
    if len(own) > 1:
        mean, std = stats.mean_std([scored(row) for row in own])
        text = f"{number(mean)} ± {number(std)}"
    else:
        interval = interval_of(own[0])
        ends = None if interval is None else [scored(own[0], x) for x in interval]
        text = _with_interval(scored(own[0]), ends, number)
    return text + (f" / {theirs[0]:.0f} ± {theirs[1]:.0f}" if theirs else "")


def _with_interval(value: float, interval: Sequence[float] | None, number: Callable[[float], str]) -> str:
    return number(value) + ("" if interval is None else f" [{number(interval[0])}, {number(interval[1])}]")


def _paper_score(row: Row) -> float | None:
    """The paper's mean for a row: on its data of the same kind, else over all its data; it adapts nothing."""
    if row["cell"].get("adapt"):
        return None
    kind = re.split(r"[-/]", data_of(row).removesuffix("/buffer"))[-1]
    ours = entry(label_of(row).partition(" ")[0])
    dataset = kind if kind in paper.DATASETS else None
    found = paper.zero_shot(environment_of(row), reward_of(row), ours.method, dataset, rule=ours.rule)
    return None if found is None else found[0]


def _random_score(own: Sequence[Row]) -> float:
    if own[0]["best_possible"] is not None:
        return 0.0
    return float(np.mean([row["random"] * row["score_scale"] for row in own]))


def has_paper_numbers(found: Table) -> bool:
    return any(" / " in text for line in found[1] for text in line[1:])


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
