"""Pictures of a table: success by plan, by error and while training, and curves of what was swept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from hilp.bench.cells import GOAL_PLANS, file_name
from hilp.bench.tables import Name, Point, data_of, environment_of, grouped, iqms, label_of, percent
from hilp.evaluation import stats
from hilp.evaluation.rows import Row
from hilp.report import figures

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
        yield f"rewards-sweep-{swept}", sweep_figure(rows, swept)


def planning_figure(rows: Sequence[Row]) -> Figure | None:
    """Success against the number of recursions, with its interval over all episodes of all seeds; None without plan."""
    outcomes = {plan: [x for row in rows if row["plan"] == plan for x in row["outcomes"]] for plan in GOAL_PLANS}
    known = {str(plan): own for plan, own in outcomes.items() if own}
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


def sweep_figure(rows: Sequence[Row], key: str) -> Figure:
    """IQM over all rewards against the value of a config key, a line for each method."""
    return _sweep_curves(grouped(rows, _method), key, iqms, "IQM of the scores", "the score")


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
    return _sweep_curves(
        drawn, key, means, "goals reached, %", f"success on {names[0]}" if len(names) == 1 else "success"
    )


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
