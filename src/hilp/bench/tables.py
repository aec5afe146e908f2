"""Reading a table: rows in; headers, lines and pictures out, with the paper's numbers where it has any."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter

import numpy as np
from matplotlib.figure import Figure

from hilp.bench.cells import entry, file_name
from hilp.evaluation import explain, stats
from hilp.evaluation.rows import Row, grouped, interval_of
from hilp.report import figures, paper

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


def iqms(rows: Sequence[Row], by: Name) -> dict[str, Point]:
    """IQM of the scores of each group, with its interval."""
    groups = grouped(rows, by)  # of whose rows those of the same data and reward differ in their seeds only
    return {name: iqm_interval(grouped(own, lambda r: f"{data_of(r)} {r['reward']}")) for name, own in groups.items()}


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
    random = [
        0.0 if own[0]["best_possible"] is not None else np.mean([row["random"] * row["score_scale"] for row in own])
        for own in grouped(rows, reward_of).values()
    ]
    lines.append(["random actions", *map(shown, random), ""])
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
        scores = np.array([scored(row) for row in own])
        text = f"{number(scores.mean())} ± {number(scores.std())}"
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


# What a bar chart of methods is over.
GROUPS: dict[str, Name] = {
    "environment": environment_of,
    "data": data_of,
    "task": lambda row: f"{environment_of(row)} {row['reward']}",
}


def goal_figures(rows: Sequence[Row], swept: str | None) -> Iterator[tuple[str, Figure]]:
    """All pictures of a table of goals, with the names of their files."""
    for name, own in grouped(rows, data_of).items():
        where = file_name(name)
        made = {f"plan-{where}-{file_name(label)}": planning_figure(g) for label, g in grouped(own, label_of).items()}
        made |= {f"errors-{where}": error_figure(own, swept), f"curve-{where}": curve_figure(own)}
        yield from ((f"goals-{kind}", figure) for kind, figure in made.items() if figure is not None)
    if swept is not None:
        yield f"goals-sweep-{swept}", goal_sweep_figure(rows, swept)


def reward_figures(rows: Sequence[Row], swept: str | None) -> Iterator[tuple[str, Figure]]:
    """The same of a table of rewards: bars of the methods, by data set or more, and what was swept."""
    for group in GROUPS if len(grouped(rows, data_of)) > 1 else ("data",):
        for name, own in grouped(rows, GROUPS[group]).items():
            labels = iqms(own, label_of)
            middle, low, high = zip(*labels.values(), strict=True)
            fig = figures.bars(list(labels), middle, low, high, f"{name}: IQM of all rewards")
            yield f"rewards-{group}-{file_name(name)}", fig
    if swept is not None:
        lines = grouped(rows, _method)
        yield f"rewards-sweep-{swept}", _sweep_curves(lines, swept, iqms, "IQM of the scores", "the score")


def planning_figure(rows: Sequence[Row]) -> Figure | None:
    """Success against the number of recursions, with its interval over all episodes of all seeds; None without plan."""
    planned = grouped(rows, lambda row: str(row["plan"]))
    known = {plan: [x for row in own for x in row["outcomes"]] for plan, own in planned.items()}
    if len(known) < 2:
        return None
    rates = [float(np.mean(own)) for own in known.values()]
    lows, highs = zip(*(stats.wilson(int(sum(own)), len(own)) for own in known.values()), strict=True)
    title = f"{label_of(rows[0])} on {data_of(rows[0])}"
    return figures.success_by_depth(list(known), rates, lows, highs, title=title)


def curve_figure(rows: Sequence[Row]) -> Figure | None:
    """Success while training, mean over seeds, of every method and of its plan; None where it was not evaluated."""
    points: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        for point in row.get("curve", []):
            for key, suffix in (("success", ""), ("success_plan", "-plan")):
                if key in point:
                    line = points.setdefault(f"{label_of(row)}{suffix}", {})
                    line.setdefault(point["step"], []).append(100 * point[key])
    if not points:
        return None
    series = {name: (sorted(line), [float(np.mean(line[at])) for at in sorted(line)]) for name, line in points.items()}
    return figures.curves(series, f"Learning on {data_of(rows[0])}", "goals reached, %", xlabel="updates")


def error_figure(rows: Sequence[Row], swept: str | None) -> Figure | None:
    """Success without a plan against the embedding error, one point a policy; None where no row has one."""
    own = [row for row in rows if row["plan"] == 0 and "embedding" in row]
    if not own:
        return None
    methods = list(dict.fromkeys(map(_method, own)))
    swept = swept if len(methods) == 1 else None
    if swept:
        own = sorted(own, key=lambda row: float(row["config"][swept]))
    # Squared errors have a unit, (1 - gamma^d) / (1 - gamma), and a reference: others cannot be compared with them.
    alike = len({(row["config"]["phi_discount"], row["embedding"].get("value")) for row in own}) == 1
    measure, unit = ("mse", "") if alike else ("relative", "relative to E[d*], root of ")
    named = grouped(own, lambda row: f"{swept} = {row['config'][swept]}" if swept else label_of(row))
    points = {name: _errors_and_scores(found, measure) for name, found in named.items()}
    against = "V(s, g)" if own[0]["embedding"]["against"] == "value" else "exact distances"
    return figures.success_by_error(
        points,
        stats.spearman(*_errors_and_scores(own, measure)),
        f"{['Success', *methods][len(methods) == 1]} on {data_of(own[0])}",
        f"embedding error {unit}E[(d* − |φ(s) − φ(g)|)²], d* from {against}",
        in_order=swept is not None,
    )


def _errors_and_scores(rows: Sequence[Row], measure: str) -> tuple[list[float], list[float]]:
    return [row["embedding"][measure] for row in rows], [row["score"] for row in rows]


def goal_sweep_figure(rows: Sequence[Row], key: str) -> Figure:
    """Mean success over seeds against the value of a config key: a line for each method, data set and plan."""
    names = list(grouped(rows, data_of))

    def line(row: Row) -> str:
        data = [data_of(row)] if len(names) > 1 else []
        return ", ".join([_method(row), *data, *([f"plan {row['plan']}"] if row["plan"] else [])])

    def means(own: Sequence[Row], by: Name) -> dict[str, Point]:
        scores = {at: [[*map(percent, seeds)]] for at, seeds in grouped(own, by).items()}
        return {at: stats.stratified_bootstrap(found, "mean") for at, found in scores.items()}

    drawn = grouped([row for row in rows if row["plan"] in (0, "auto")], line)
    of = f"success on {names[0]}" if len(names) == 1 else "success"
    return _sweep_curves(drawn, key, means, "goals reached, %", of)


def _method(row: Row) -> str:
    """A row's label without what was changed."""
    return label_of(row).partition(" ")[0]


def _sweep_curves(
    lines: Mapping[str, Sequence[Row]],
    key: str,
    points: Callable[[Sequence[Row], Name], Mapping[str, Point]],
    ylabel: str,
    of: str,
) -> Figure:
    """A line with its band for each name: the points of its rows by the value of the key."""
    series, bands, ticks = {}, {}, set[float]()
    for name, own in lines.items():
        found = points(own, lambda row: str(row["config"][key]))
        places = sorted(found, key=float)
        middle, low, high = zip(*(found[at] for at in places), strict=True)
        series[name], bands[name] = ([float(at) for at in places], middle), (low, high)
        ticks |= {*series[name][0]}
    return figures.curves(series, f"{key} against {of}", ylabel, bands=bands, xlabel=key, xticks=sorted(ticks))
