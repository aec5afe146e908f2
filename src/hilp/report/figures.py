"""Figures: plain arrays in, a matplotlib Figure out. No pyplot and no global style, so any thread may draw.

A task is known here only through `draw(ax)`, which draws its ground plan, and `place(observations)`, which says where
on it an observation lies. A wrong argument is the caller's bug and raises ValueError.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from numpy.typing import ArrayLike

from hilp.report import tsne

# Okabe and Ito's palette: told apart with every common colour blindness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
BLUE, VERMILLION = PALETTE[:2]
INK, SOFT, LINE = "#1d2330", "#5b6475", "#dfe3ea"
TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 11.5, 9.5, 8.5
DISTANCE_MAP = "viridis"
TSNE_POINTS = 1500  # at most: time grows with their square

# Colours of the corners of a ground plan (left, right; bottom, top): the diagonal runs from dark to light.
_CORNERS = np.array([[[0x2D, 0x1E, 0x8F], [0xC9, 0x25, 0x5E]], [[0x0A, 0xA3, 0xA8], [0xF7, 0xC9, 0x1E]]]) / 255

_PLAIN_LEGEND: dict[str, Any] = {
    "frameon": False,
    "fontsize": TEXT_SIZE,
    "labelcolor": INK,
    "handlelength": 1.6,
    "columnspacing": 1.6,
}

# Intervals are drawn about their own centre: a bootstrap's need not hold the point estimate.
_INTERVAL: dict[str, Any] = {"fmt": "none", "capsize": 3, "elinewidth": 1.4, "capthick": 1.2, "zorder": 3}

Trials = tuple[Sequence[ArrayLike], ArrayLike, ArrayLike, ArrayLike]  # paths, starts, goals, reached
Series = Mapping[str, tuple[ArrayLike, ArrayLike]]  # name -> (steps, values)
Flatten = Literal["tsne", "pca"]  # how points of more than two dimensions come onto a plane


class Plan(Protocol):
    """What a figure needs of a task."""

    def draw(self, ax: Axes) -> None: ...

    def place(self, observations: np.ndarray) -> np.ndarray: ...


def trajectories(
    task: Plan,
    paths: Sequence[ArrayLike],
    starts: ArrayLike,
    goals: ArrayLike,
    reached: ArrayLike,
    title: str = "Trajectories",
) -> Figure:
    """Paths ([T, obs] each) on the task's plan: blue where the goal was reached, vermillion where it was not."""
    fig, axes = _plans(task, 1, 1)
    _draw_trials(axes[0], task, (paths, starts, goals, reached))
    _title(axes[0], title)
    _trials_legend(fig)
    return fig


def trajectory_grid(task: Plan, named: Mapping[str, Trials], title: str = "Trajectories by prompt") -> Figure:
    """Small multiples of `trajectories`: one panel per prompt, its count of goals reached in the panel's title."""
    _check_some(named, "named")
    fig, axes = _plans(task, len(named), min(len(named), 3 if len(named) != 4 else 2))
    for ax, (name, trials) in zip(axes, named.items(), strict=True):
        done, total = _draw_trials(ax, task, trials)
        _title(ax, name, size=TEXT_SIZE + 0.5, weight="normal")
        ax.set_title(f"{done} of {total}", loc="right", fontsize=TEXT_SIZE, color=SOFT, pad=6)
    _suptitle(fig, title)
    _trials_legend(fig)
    return fig


def distance_field(
    task: Plan, observations: ArrayLike, distances: ArrayLike, goal: ArrayLike, title: str = "Distance to the goal"
) -> Figure:
    """Distance from every observation to one goal, as coloured squares on the plan; nan (no way) is grey."""
    fig, axes = _plans(task, 1, 1)
    _draw_fields(fig, axes, task, observations, [distances], goal)
    _title(axes[0], title)
    return fig


def distance_fields(
    task: Plan,
    observations: ArrayLike,
    fields: Mapping[str, ArrayLike],
    goal: ArrayLike,
    title: str = "Distance to the goal",
) -> Figure:
    """Several distance fields (say learned and exact) side by side under one colour scale."""
    _check_some(fields, "fields")
    fig, axes = _plans(task, len(fields), len(fields))
    _draw_fields(fig, axes, task, observations, list(fields.values()), goal)
    for ax, name in zip(axes, fields, strict=True):
        _title(ax, name, size=TEXT_SIZE + 0.5, weight="normal")
    _suptitle(fig, title)
    return fig


def latent_map(
    task: Plan,
    observations: ArrayLike,
    latents: ArrayLike,
    title: str = "The latent space",
    flatten: Flatten | None = None,
) -> Figure:
    """Places on the plan, and their latents [n, D] on a plane, in the same colours.

    The plane is that of the two principal directions ("pca") or one of t-SNE ("tsne", of at most TSNE_POINTS points);
    by default t-SNE where there are more than two dimensions and points enough. The picture of the latents is turned
    and mirrored as a whole to lie like the plan (orthogonal Procrustes): distances in it are untouched, and a reader
    finds each place again.
    """
    xy = _places(task, observations, "observations")
    phi = _matrix(latents, "latents")
    if len(phi) != len(xy):
        raise ValueError(f"{len(xy)} observations but {len(phi)} latents")
    if flatten is None:
        flatten = "tsne" if phi.shape[1] > 2 and len(phi) >= tsne.least_points() else "pca"
    # In this order they are drawn as well: nearest-first would hide one corner behind another, a shuffle mixes fairly.
    shown = np.random.default_rng(0).permutation(len(phi))
    if flatten == "tsne":
        shown = shown[:TSNE_POINTS]
        flat = tsne.tsne(phi[shown])
        left_out = f" of {len(phi):,}" if len(shown) < len(phi) else ""
        name, note = "latents (t-SNE)", f"{len(shown):,}{left_out} points"
    else:
        flat, share = tsne.principal_plane(phi[shown])
        name, note = "latents", f"{share:.0%} of the variance"
    flat = flat @ _turn(flat, xy[shown] - xy[shown].mean(axis=0))
    colours = _colours_by_place(xy)

    fig, (plan,) = _plans(task, 1, 2)
    cloud = fig.add_subplot(1, 2, 2)
    _squares(plan, xy, facecolors=colours)
    _title(plan, "places", size=TEXT_SIZE + 0.5, weight="normal")
    cloud.scatter(flat[:, 0], flat[:, 1], c=colours[shown], s=_dot_size(len(flat)), linewidths=0)
    cloud.set_aspect("equal", adjustable="datalim")
    cloud.set_box_aspect(_aspect(plan))
    cloud.xaxis.set_major_locator(MaxNLocator(6))
    cloud.yaxis.set_major_locator(MaxNLocator(5))
    _title(cloud, name, size=TEXT_SIZE + 0.5, weight="normal")
    cloud.set_title(note, loc="right", fontsize=TEXT_SIZE, color=SOFT, pad=6)
    _frame(cloud, grid="both")
    if flatten == "tsne":
        cloud.tick_params(labelbottom=False, labelleft=False, length=0)  # its coordinates mean nothing
    _suptitle(fig, title)
    return fig


def success_by_depth(
    labels: Sequence[str],
    rates: ArrayLike,
    lows: ArrayLike,
    highs: ArrayLike,
    title: str = "Success by planning depth",
) -> Figure:
    """Success rate (0 to 1) against the number of plan recursions, with intervals."""
    mid, low, high = _intervals(labels, rates, lows, highs)
    fig, ax = _chart(max(3.6, 1.6 + 0.75 * len(labels)), 3.2)
    x = np.arange(len(labels))
    ax.plot(x, 100 * mid, color=BLUE, linewidth=1.2, alpha=0.45, zorder=2)
    ax.errorbar(x, 50 * (low + high), 50 * (high - low), ecolor=BLUE, **_INTERVAL)
    ax.plot(x, 100 * mid, "o", color=BLUE, markersize=6, zorder=4)
    for place, value, top in zip(x, 100 * mid, 100 * np.maximum(mid, high), strict=True):
        ax.annotate(
            f"{value:.0f}", (place, top), (0, 4), textcoords="offset points", ha="center", color=INK, fontsize=TEXT_SIZE
        )
    ax.set_xticks(x, labels)
    ax.set_xlim(-0.5, len(labels) - 0.5)
    ax.set_ylim(0, 109)
    ax.set_yticks(range(0, 101, 20))
    ax.set_xlabel("plan recursions")
    ax.set_ylabel("goals reached, %")
    _title(ax, title)
    _frame(ax, grid="y")
    return fig


def curves(
    series: Series,
    title: str,
    ylabel: str,
    logy: bool = False,
    bands: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    xlabel: str = "training steps",
    xticks: Sequence[float] | None = None,
) -> Figure:
    """Values against training steps (or something else), one line per name; `bands` may give its (lows, highs).

    `xticks` are the few places that were measured at: they are marked, and powers of two lie evenly.
    """
    fig, ax = _chart(5.4, 3.2)
    _draw_curves(ax, series, logy, bands or {}, list(series))
    if xticks is not None:
        _mark_places(ax, _vector(xticks, "xticks"))
    if len(series) > 1:
        _legend(ax, loc="best")
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    _title(ax, title)
    return fig


def curve_grid(panels: Mapping[str, Series], title: str = "Training", logy: bool = False) -> Figure:
    """Small multiples of `curves`: one panel per title. A name has one colour throughout."""
    _check_some(panels, "panels")
    columns = min(len(panels), 3 if len(panels) != 4 else 2)
    rows = math.ceil(len(panels) / columns)
    fig = Figure(figsize=(3.1 * columns, 2.25 * rows + 0.4), layout="constrained", facecolor="white")
    names = list(dict.fromkeys(name for series in panels.values() for name in series))
    for i, (panel, series) in enumerate(panels.items()):
        ax = fig.add_subplot(rows, columns, i + 1)
        _draw_curves(ax, series, logy, {}, names)
        _title(ax, panel, size=TEXT_SIZE + 0.5, weight="normal")
        if i + columns >= len(panels):
            ax.set_xlabel("training steps")
    if len(names) > 1:
        handles = [Line2D([], [], label=name, **_line_style(names, name)) for name in names]
        fig.legend(handles=handles, loc="outside lower center", ncols=min(len(names), 2 * columns), **_PLAIN_LEGEND)
    _suptitle(fig, title)
    return fig


def success_by_error(
    points: Mapping[str, tuple[ArrayLike, ArrayLike]],
    corr: float,
    title: str = "Success by embedding error",
    xlabel: str = "mean squared error of the distance",
    in_order: bool = False,
) -> Figure:
    """Success rate (0 to 1) against the error of the distances; of each name the (errors, rates) of its policies.

    Colours tell names apart or, where names are values `in_order`, run from dark to light. The rank correlation is
    told unless it is nan.
    """
    _check_some(points, "points")
    fig, ax = _chart(6.2, 3.4)
    shades = matplotlib.colormaps[DISTANCE_MAP](np.linspace(0, 0.92, len(points)))
    all_errors = []
    for i, (name, (errors, rates)) in enumerate(points.items()):
        x, y = _vector(errors, f"errors of {name}"), _vector(rates, f"rates of {name}")
        if len(x) != len(y):
            raise ValueError(f"{name}: {len(x)} errors but {len(y)} rates")
        colour = shades[i] if in_order else PALETTE[i % len(PALETTE)]
        marker = "osD^"[0 if in_order else i // len(PALETTE) % 4]
        style: dict[str, Any] = {"marker": marker, "markersize": 7, "markeredgecolor": "white", "markeredgewidth": 0.7}
        ax.plot(x, 100 * y, linestyle="", color=colour, label=name, zorder=3, **style)
        all_errors.append(x)
    known = np.concatenate(all_errors)
    if known.min() > 0 and known.max() > 10 * known.min():
        ax.set_xscale("log")
        between = (1.0, 2.0, 5.0) if known.max() < 1000 * known.min() else (1.0,)
        ax.xaxis.set_major_locator(LogLocator(subs=between))
        ax.xaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    ax.set_ylim(-4, 104)
    ax.set_yticks(range(0, 101, 20))
    ax.set_xlabel(xlabel)
    ax.set_ylabel("goals reached without a plan, %")
    ax.set_title(title, loc="left", fontsize=TITLE_SIZE, fontweight="bold", color=INK, pad=20)
    caption = f"{len(known)} {'policy' if len(known) == 1 else 'policies'}" + (
        "" if math.isnan(corr) else f", rank correlation {corr:.2f}"
    )
    ax.text(0, 1.02, caption.replace("-", "−"), transform=ax.transAxes, color=SOFT, fontsize=TEXT_SIZE)
    if len(points) > 1:
        fig.legend(loc="outside right upper", **_PLAIN_LEGEND)  # beside the points, where it can hide none
    _frame(ax, grid="both")
    return fig


def scatter_distance(
    exact_steps: ArrayLike,
    latent_distance: ArrayLike,
    corr: float,
    curve: float | None = None,
    title: str = "Learned against exact distance",
) -> Figure:
    """How many pairs of states lie at each exact and latent distance (darker is more), with each column's median.

    `curve` is a discount gamma: it overlays (1 - gamma^d) / (1 - gamma), the distance that a perfect discounted value
    has at d steps; 1 overlays the identity.
    """
    exact, latent = _vector(exact_steps, "exact_steps"), _vector(latent_distance, "latent_distance")
    if len(exact) != len(latent):
        raise ValueError(f"{len(exact)} exact distances but {len(latent)} latent ones")
    if curve is not None and not 0 < curve <= 1:
        raise ValueError(f"curve is a discount in (0, 1], not {curve}")
    fig, ax = _chart(4.6, 3.6)
    bins = int(np.clip(math.sqrt(len(exact)), 24, 60))
    # Exact distances are whole steps: columns as wide as whole steps keep the histogram from beating against them.
    width = math.ceil((exact.max() - exact.min() + 1) / bins)
    columns = np.arange(math.floor(exact.min()), exact.max() + width + 1, width) - 0.5
    rows = np.linspace(min(0.0, latent.min()), max(latent.max(), 1e-9) * 1.02, bins + 1)
    counts, _, _ = np.histogram2d(exact, latent, (columns, rows))
    shade = np.where(counts.T > 0, counts.T, np.nan)
    ax.pcolormesh(columns, rows, shade, cmap="Blues", norm=LogNorm(0.3, max(counts.max(), 1)), rasterized=True)

    column = np.digitize(exact, columns) - 1
    filled = np.unique(column)
    medians = [np.median(latent[column == c]) for c in filled]
    ax.plot(columns[filled] + width / 2, medians, color=INK, linewidth=1.4, label="median")
    if curve is not None:
        steps = np.linspace(max(0.0, exact.min()), exact.max(), 200)
        ideal = steps if curve == 1 else (1 - curve**steps) / (1 - curve)
        label = "identity" if curve == 1 else f"discounted steps (γ = {curve:g})"
        ax.plot(steps, ideal, color=VERMILLION, linewidth=1.6, linestyle=(0, (4, 2)), label=label)
    ax.set_xlabel("exact distance, steps")
    ax.set_ylabel("latent distance |φ(s) − φ(g)|")
    _title(ax, title)
    _note(ax, f"rank correlation {corr:.3f}\n{len(exact):,} pairs")
    _legend(ax, loc="upper left")
    _frame(ax, grid="both")
    return fig


def bars(
    labels: Sequence[str], values: ArrayLike, lows: ArrayLike, highs: ArrayLike, title: str, xlabel: str = ""
) -> Figure:
    """Horizontal bars with intervals, the first label on top; for methods or reward gains side by side."""
    mid, low, high = _intervals(labels, values, lows, highs)
    fig, ax = _chart(5.6, 1.1 + 0.36 * len(labels))
    y = np.arange(len(labels))
    ax.barh(y, mid, height=0.62, color=[VERMILLION if v < 0 else BLUE for v in mid], zorder=2)
    ax.errorbar((low + high) / 2, y, xerr=(high - low) / 2, ecolor=INK, **_INTERVAL)
    for place, value, bottom, top in zip(y, mid, low, high, strict=True):
        # The number stands beyond the interval, on the far side of zero, where no bar can cover it.
        end, shift, side = (max(top, value), 5, "left") if value >= 0 else (min(bottom, value), -5, "right")
        ax.annotate(
            f"{value:.3g}".replace("-", "−"),
            (end, place),
            (shift, 0),
            textcoords="offset points",
            ha=side,
            va="center",
            color=INK,
            fontsize=SMALL_SIZE,
        )
    ax.axvline(0, color=INK, linewidth=0.8, zorder=4)
    ax.set_yticks(y, labels)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    left, right = min(0.0, low.min(), mid.min()), max(0.0, high.max(), mid.max())
    span = (right - left) or 1.0
    ax.set_xlim(left - (0.12 * span if left < 0 else 0), right + (0.12 * span if right > 0 else 0) + 1e-9)
    ax.set_xlabel(xlabel)
    _title(ax, title)
    _frame(ax, grid="x")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0, labelcolor=INK, labelsize=TEXT_SIZE)
    return fig


def png_data_uri(fig: Figure, dpi: int = 110) -> str:
    """The figure as a PNG data URI, for a page that is one file. The same figure gives the same bytes."""
    buffer = io.BytesIO()
    _write(fig, buffer, "png", dpi)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def save(fig: Figure, path: str | Path, dpi: int = 160) -> Path:
    """Writes the figure in the format of the path's ending (png, svg, pdf), making folders as needed."""
    path = Path(path)
    if path.suffix not in _UNDATED:
        raise ValueError(f"a figure is saved as {', '.join(_UNDATED)}, not '{path.name}'")
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(fig, path, path.suffix[1:], dpi)
    return path


# Dates and versions inside a file would make every redrawn figure a changed file.
_UNDATED: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}


def _write(fig: Figure, target: Path | io.BytesIO, kind: str, dpi: int) -> None:
    with matplotlib.rc_context({"svg.hashsalt": "hilp"}):
        fig.savefig(target, format=kind, dpi=dpi, bbox_inches="tight", pad_inches=0.08, metadata=_UNDATED[f".{kind}"])


# Drawing on a task's plan


def _plans(task: Plan, count: int, columns: int) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels with the task's plan in each, sized to the plan's own proportions."""
    fig = Figure(layout=ConstrainedLayoutEngine(compress=True, w_pad=0.1, h_pad=0.06), facecolor="white")
    rows = math.ceil(count / columns)
    axes = [fig.add_subplot(rows, columns, i + 1) for i in range(count)]
    for ax in axes:
        task.draw(ax)
        ax.spines[:].set_visible(False)
    width = {1: 5.4, 2: 4.2}.get(columns, 3.4)
    fig.set_size_inches(width * columns, (width * _aspect(axes[0]) + 0.3) * rows + 0.6)
    return fig, axes


def _aspect(ax: Axes) -> float:
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    return abs(top - bottom) / max(abs(right - left), 1e-9)


def _draw_trials(ax: Axes, task: Plan, trials: Trials) -> tuple[int, int]:
    paths, starts, goals, reached = trials
    lines = [_places(task, path, f"paths[{i}]") for i, path in enumerate(paths)]
    begin, end = _places(task, starts, "starts"), _places(task, goals, "goals")
    good = np.asarray(reached, dtype=bool)
    sizes = {"paths": len(lines), "starts": len(begin), "goals": len(end), "reached": good.size}
    if len(set(sizes.values())) != 1 or good.ndim != 1:
        raise ValueError("one start, goal and outcome per path, not " + ", ".join(f"{n} {k}" for k, n in sizes.items()))
    scale = 1.0 if len(lines) <= 25 else 0.7
    for outcome in (True, False):  # failures are drawn last: they are fewer and say more
        style = _OUTCOMES[outcome]
        chosen = np.flatnonzero(good == outcome)
        drawn = LineCollection([lines[i] for i in chosen], colors=style["color"], linewidths=1.5 * scale, alpha=0.75)
        drawn.set(zorder=3, capstyle="round")
        ax.add_collection(drawn, autolim=False)
        ax.plot(*begin[chosen].T, "o", mfc="white", mec=style["color"], ms=5 * scale, mew=1.3, zorder=4)
        _stars(ax, end[chosen], style["color"], 11.5 * scale)
    return int(good.sum()), len(good)


def _stars(ax: Axes, xy: np.ndarray, colour: str, size: float) -> None:
    ax.plot(*xy.T, "*", color=colour, mec="white", mew=0.8, ms=size, zorder=5)


_OUTCOMES: dict[bool, dict[str, Any]] = {
    True: {"color": BLUE, "label": "reached"},
    False: {"color": VERMILLION, "label": "not reached"},
}


def _trials_legend(fig: Figure) -> None:
    handles = [Line2D([], [], linewidth=2, **style) for style in _OUTCOMES.values()]
    marks: dict[str, Any] = {"linestyle": "", "markeredgecolor": SOFT}
    handles.append(Line2D([], [], marker="o", markerfacecolor="white", markersize=6, label="start", **marks))
    handles.append(Line2D([], [], marker="*", markerfacecolor=SOFT, markersize=10, label="goal", **marks))
    fig.legend(handles=handles, loc="outside lower center", ncols=4, **_PLAIN_LEGEND)


def _draw_fields(
    fig: Figure,
    axes: Sequence[Axes],
    task: Plan,
    observations: ArrayLike,
    fields: Sequence[ArrayLike],
    goal: ArrayLike,
) -> None:
    xy = _places(task, observations, "observations")
    star = _places(task, np.reshape(np.asarray(goal), (1, -1)), "goal")
    stacked = np.stack([np.asarray(field, dtype=np.float64) for field in fields])
    if stacked.shape != (len(fields), len(xy)):
        raise ValueError(f"each field needs one distance per observation ({len(xy)}), not shape {stacked.shape[1:]}")
    if (stacked < 0).any():
        raise ValueError("distances are never negative; write nan where there is no way")
    stacked[~np.isfinite(stacked)] = np.nan
    top = float(np.nanmax(stacked)) if np.isfinite(stacked).any() else 1.0
    norm = Normalize(0, top or 1.0)
    for ax, field in zip(axes, stacked, strict=True):
        squares = _squares(ax, xy, cmap=matplotlib.colormaps[DISTANCE_MAP].with_extremes(bad="#c9ced8"), norm=norm)
        squares.set_array(field)
        _stars(ax, star, VERMILLION, 14)
    # A bar inside the last panel's coordinates is exactly as high as the plan, whatever the layout makes of it.
    bar = fig.colorbar(squares, cax=axes[-1].inset_axes((1.025, 0, 0.03, 1)), ticks=MaxNLocator(6, integer=True))
    bar.set_label("distance, latent steps", fontsize=TEXT_SIZE, color=INK)
    bar.ax.tick_params(labelsize=SMALL_SIZE, colors=SOFT, length=2)
    bar.outline.set_visible(False)


def _squares(ax: Axes, xy: np.ndarray, **style: Any) -> PolyCollection:
    """One square per point, as wide as the points are apart: fills a lattice without reaching through a wall."""
    half = _spacing(xy) / 2
    corners = np.array([[-half, -half], [half, -half], [half, half], [-half, half]])
    # Without antialiasing neighbouring squares meet without a seam.
    squares = PolyCollection(xy[:, None] + corners, linewidths=0, antialiaseds=False, zorder=2, **style)
    ax.add_collection(squares, autolim=False)
    return squares


def _spacing(xy: np.ndarray) -> float:
    """Median distance to the third nearest other point.

    On a lattice that is its spacing, beside a wall too; among scattered points it is wide enough for most to touch.
    """
    distinct = np.unique(xy, axis=0)
    if len(distinct) < 2:
        return 0.2
    sample = distinct[:: math.ceil(len(distinct) / 256)]
    gaps = np.linalg.norm(sample[:, None] - distinct[None], axis=-1)  # sample x all
    third = min(3, len(distinct) - 1)
    return float(np.median(np.partition(gaps, third, axis=1)[:, third]))


def _colours_by_place(xy: np.ndarray) -> np.ndarray:
    """A colour for each place, blended from those of the plan's four corners; [n, 3]."""
    span = np.ptp(xy, axis=0)
    u, v = ((xy - xy.min(axis=0)) / np.where(span > 0, span, 1)).T[:, :, None]
    (bottom_left, bottom_right), (top_left, top_right) = _CORNERS
    bottom, top = (1 - u) * bottom_left + u * bottom_right, (1 - u) * top_left + u * top_right
    return np.asarray((1 - v) * bottom + v * top)


def _turn(flat: np.ndarray, centred_xy: np.ndarray) -> np.ndarray:
    """The rotation or mirroring of `flat` that lies most like the plan."""
    left, _, right = np.linalg.svd(flat.T @ centred_xy)
    return np.asarray(left @ right)


# Charts


def _chart(width: float, height: float) -> tuple[Figure, Axes]:
    fig = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    return fig, fig.add_subplot()


def _draw_curves(
    ax: Axes,
    series: Series,
    logy: bool,
    bands: Mapping[str, tuple[ArrayLike, ArrayLike]],
    names: Sequence[str],
) -> None:
    _check_some(series, "series")
    if unknown := set(bands) - set(series):
        raise ValueError(f"bands without a series: {sorted(unknown)}")
    for name, (steps, values) in series.items():
        x, y = _vector(steps, f"steps of {name}"), _vector(values, f"values of {name}", finite=False)
        if len(x) != len(y):
            raise ValueError(f"{name}: {len(x)} steps but {len(y)} values")
        style = _line_style(names, name)
        ax.plot(x, y, label=name, marker="o" if len(x) == 1 else "", **style)
        if name in bands:
            low, high = (_vector(edge, f"band of {name}", finite=False) for edge in bands[name])
            ax.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)
    if logy:
        ax.set_yscale("log")
    ax.margins(x=0.02)
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    _frame(ax, grid="y")


def _mark_places(ax: Axes, places: np.ndarray) -> None:
    """Points and ticks at these places only; on a logarithmic axis where they span several doublings."""
    if places.min() > 0 and places.max() >= 8 * places.min():
        ax.set_xscale("log", base=2)
    ax.set_xticks(places, [_short(place) for place in places])
    ax.xaxis.set_minor_locator(NullLocator())
    for line in ax.lines:
        line.set(marker="o", markersize=4.5)


def _line_style(names: Sequence[str], name: str) -> dict[str, Any]:
    """Colours in order; once they are used up, again with dashes."""
    turn, index = divmod(names.index(name), len(PALETTE))
    return {"color": PALETTE[index], "linestyle": ("-", "--", ":")[turn % 3], "linewidth": 1.6}


def _short(value: float) -> str:
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def _frame(ax: Axes, grid: str) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color("#b8bfcb")
    ax.tick_params(colors=SOFT, labelsize=SMALL_SIZE, length=3, width=0.8, which="both")
    ax.xaxis.label.set(color=INK, fontsize=TEXT_SIZE)
    ax.yaxis.label.set(color=INK, fontsize=TEXT_SIZE)
    ax.grid(axis=grid, color=LINE, linewidth=0.7)  # type: ignore[arg-type]
    ax.set_axisbelow(True)


def _title(ax: Axes, text: str, size: float = TITLE_SIZE, weight: str = "bold") -> None:
    ax.set_title(text, loc="left", fontsize=size, fontweight=weight, color=INK, pad=6)


def _suptitle(fig: Figure, text: str) -> None:
    fig.suptitle(text, x=0.012, ha="left", fontsize=TITLE_SIZE + 1, fontweight="bold", color=INK)


def _legend(ax: Axes, loc: Literal["best", "upper left"]) -> None:
    ax.legend(loc=loc, frameon=True, framealpha=0.85, edgecolor="none", fontsize=SMALL_SIZE, labelcolor=INK)


def _note(ax: Axes, text: str) -> None:
    ax.text(0.97, 0.05, text, transform=ax.transAxes, ha="right", color=INK, fontsize=TEXT_SIZE)


def _dot_size(count: int) -> float:
    return float(np.clip(12_000 / max(count, 1), 5, 30))


# Checks


def _places(task: Plan, observations: ArrayLike, name: str) -> np.ndarray:
    rows = np.asarray(observations)
    if rows.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, not shape {rows.shape}")
    return np.asarray(task.place(rows), dtype=np.float64)


def _matrix(values: ArrayLike, name: str) -> np.ndarray:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 2 or x.size == 0 or not np.isfinite(x).all():
        raise ValueError(f"{name} must be a matrix of finite numbers, not shape {x.shape}")
    return x


def _vector(values: ArrayLike, name: str, finite: bool = True) -> np.ndarray:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.size == 0 or (finite and not np.isfinite(x).all()):
        raise ValueError(f"{name} must be a vector of{' finite' if finite else ''} numbers, not shape {x.shape}")
    return x


def _intervals(
    labels: Sequence[str], values: ArrayLike, lows: ArrayLike, highs: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    mid, low, high = (_vector(v, n) for v, n in ((values, "values"), (lows, "lows"), (highs, "highs")))
    if not len(labels) == len(mid) == len(low) == len(high):
        raise ValueError(f"{len(labels)} labels, {len(mid)} values, {len(low)} lows and {len(high)} highs must agree")
    if (low > high).any():
        raise ValueError("a low end lies above its high end")
    return mid, low, high


def _check_some(items: Mapping[str, Any], name: str) -> None:
    if not items:
        raise ValueError(f"{name} is empty")
