"""Pictures of a table: success by plan, by error and while training, and curves of what was swept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure

from hilp.bench.cells import GOAL_PLANS, file_name
from hilp.bench.tables import aggregates, by_data, data_of, grouped, iqm_interval, label_of, percent
from hilp.evaluation import stats
from hilp.evaluation.rows import Row
from hilp.report import figures

Point = tuple[float, float, float]  # middle, low, high


def goal_figures(rows: Sequence[Row], swept: str | None) -> Iterator[tuple[str, Figure]]:
    """All pictures of a table of goals, with the names of their files."""
    for name, own in by_data(rows).items():
        where = file_name(name)
        for label in dict.fromkeys(map(label_of, own)):
            if (planned := planning_figure(own, label)) is not None:
                yield f"goals-plan-{where}-{file_name(label)}", planned
        if (errors := error_figure(own, swept)) is not None:
            yield f"goals-errors-{where}", errors
        if (curve := curve_figure(own)) is not None:
            yield f"goals-curve-{where}", curve
    if swept is not None:
        yield f"goals-sweep-{swept}", goal_sweep_figure(rows, swept)


def reward_figures(rows: Sequence[Row], swept: str | None) -> Iterator[tuple[str, Figure]]:
    """The same of a table of rewards: bars of the methods, by data set or more, and what was swept."""
    for group in ("environment", "data", "task") if len(by_data(rows)) > 1 else ("data",):
        for name, labels in aggregates(rows, group).items():
            middle, low, high = zip(*labels.values(), strict=True)
            fig = figures.bars(list(labels), middle, low, high, title=f"{name}: IQM of all rewards")
            yield f"rewards-{group}-{file_name(name)}", fig
    if swept is not None:
        yield f"rewards-sweep-{swept}", sweep_figure(rows, swept)


def planning_figure(rows: Sequence[Row], label: str) -> Figure | None:
    """Success against the number of recursions, with its interval over all episodes of all seeds; None without plan."""
    outcomes: dict[int | str, list[float]] = {}
    for row in rows:
        if label_of(row) == label:
            outcomes.setdefault(row["plan"], []).extend(row["outcomes"])
    plans = [plan for plan in GOAL_PLANS if plan in outcomes]
    if len(plans) < 2:
        return None
    rates = [float(np.mean(outcomes[plan])) for plan in plans]
    lows, highs = zip(*(stats.wilson(int(sum(outcomes[p])), len(outcomes[p])) for p in plans), strict=True)
    return figures.success_by_depth([str(p) for p in plans], rates, lows, highs, title=f"{label} on {data_of(rows[0])}")


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
    named = grouped(own, lambda row: f"{swept} = {row['config'][swept]}" if swept else label_of(row), data_of)
    points = {name: _errors_and_scores(found[data_of(own[0])], measure) for name, found in named.items()}
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
    points = {}
    for method in dict.fromkeys(map(_method, rows)):
        own = [row for row in rows if _method(row) == method]
        found = grouped(own, lambda row: str(row["config"][key]), lambda row: f"{data_of(row)} {row['reward']}")
        points[method] = {float(at): iqm_interval(strata) for at, strata in found.items()}
    return _sweep_curves(points, key, "IQM of the scores", "the score")


def goal_sweep_figure(rows: Sequence[Row], key: str) -> Figure:
    """Mean success over seeds against the value of a config key: a line for each method, data set and plan."""
    names = by_data(rows)

    def line(row: Row) -> str:
        data = [data_of(row)] if len(names) > 1 else []
        return ", ".join([_method(row), *data, *([f"plan {row['plan']}"] if row["plan"] else [])])

    found = grouped([row for row in rows if row["plan"] in (0, "auto")], line, lambda row: str(row["config"][key]))
    points = {
        name: {float(at): stats.stratified_bootstrap([[*map(percent, seeds)]], "mean") for at, seeds in own.items()}
        for name, own in found.items()
    }
    of = f"success on {next(iter(names))}" if len(names) == 1 else "success"
    return _sweep_curves(points, key, "goals reached, %", of)


def _method(row: Row) -> str:
    """A row's label without what was changed."""
    return label_of(row).partition(" ")[0]


def _sweep_curves(points: dict[str, dict[float, Point]], key: str, ylabel: str, of: str) -> Figure:
    """A line with its band for each name: points by the value of the key."""
    series, bands = {}, {}
    for name, found in points.items():
        middle, low, high = zip(*(found[at] for at in sorted(found)), strict=True)
        series[name], bands[name] = (sorted(found), middle), (low, high)
    ticks = sorted({at for found in points.values() for at in found})
    return figures.curves(series, f"{key} against {of}", ylabel, bands=bands, xlabel=key, xticks=ticks)
