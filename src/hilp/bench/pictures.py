"""Pictures of a table: success by plan, by error and while training, and curves of what was swept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from hilp.bench.cells import GOAL_PLANS
from hilp.bench.tables import score
from hilp.evaluation import stats
from hilp.evaluation.rows import Row
from hilp.report import figures


def planning_figure(rows: Sequence[Row], label: str) -> Figure | None:
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


def curve_figure(rows: Sequence[Row]) -> Figure | None:
    """Success while training, mean over seeds, of every method and of its plan; None where nobody evaluated it."""
    points: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        for point in row.get("curve", []):
            for key, suffix in (("success", ""), ("success_plan", "-plan")):
                if key in point:
                    line = points.setdefault(f"{row['cell']['label']}{suffix}", {})
                    line.setdefault(point["step"], []).append(100 * point[key])
    if not points:
        return None
    series = {
        name: (sorted(line), [float(np.mean(line[step])) for step in sorted(line)]) for name, line in points.items()
    }
    return figures.curves(series, f"Learning on {rows[0]['cell']['data']}", "goals reached, %", xlabel="updates")


def error_figure(rows: Sequence[Row], swept: str | None) -> Figure | None:
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


def sweep_figure(rows: Sequence[Row], key: str) -> Figure:
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


def goal_sweep_figure(rows: Sequence[Row], key: str) -> Figure:
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
