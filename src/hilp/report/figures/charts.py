"""Curves, bars and scatters of numbers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from numpy.typing import ArrayLike

from hilp.evaluation.stats import as_vector
from hilp.report.figures import style
from hilp.report.figures.style import plain, require_some, short_number

# Intervals are drawn about their own centre: a bootstrap's need not hold the point estimate.
_INTERVAL: dict[str, Any] = {"fmt": "none", "capsize": 3, "elinewidth": 1.4, "capthick": 1.2, "zorder": 3}
_NUMBER: dict[str, Any] = {"textcoords": "offset points", "color": style.INK}  # beside what it is of

Series = Mapping[str, tuple[ArrayLike, ArrayLike]]  # name -> (steps, values), or the (lows, highs) of a band


def success_by_depth(
    labels: Sequence[str], rates: ArrayLike, lows: ArrayLike, highs: ArrayLike, title: str = "Success by planning depth"
) -> Figure:
    """Success rate (0 to 1) against the number of plan recursions, with intervals."""
    mid, low, high = _intervals(labels, rates, lows, highs)
    fig, ax = _chart(max(3.6, 1.6 + 0.75 * len(labels)), 3.2, title, grid="y")
    x = np.arange(len(labels))
    ax.plot(x, 100 * mid, color=style.BLUE, linewidth=1.2, alpha=0.45, zorder=2)
    ax.errorbar(x, 50 * (low + high), 50 * (high - low), ecolor=style.BLUE, **_INTERVAL)
    ax.plot(x, 100 * mid, "o", color=style.BLUE, markersize=6, zorder=4)
    for place, value, top in zip(x, 100 * mid, 100 * np.maximum(mid, high), strict=True):
        ax.annotate(f"{value:.0f}", (place, top), (0, 4), ha="center", fontsize=style.TEXT_SIZE, **_NUMBER)
    ax.set_xticks(x, [plain(label) for label in labels])
    ax.set(xlim=(-0.5, len(labels) - 0.5), xlabel="plan recursions")
    ax.set(ylim=(0, 109), yticks=range(0, 101, 20), ylabel="goals reached, %")
    return fig


def curves(
    series: Series,
    title: str,
    ylabel: str,
    bands: Series | None = None,
    xlabel: str = "training steps",
    xticks: Sequence[float] | None = None,
) -> Figure:
    """Values against training steps (or something else), one line per name; `bands` may give its (lows, highs).

    `xticks` are the few places that were measured at: they are marked, and powers of two lie evenly.
    """
    fig, ax = _chart(5.4, 3.2, title, grid="y")
    _draw_curves(ax, series, bands or {}, list(series))
    if xticks is not None:
        _mark_places(ax, as_vector(xticks, "xticks"))
    if len(series) > 1:
        style.draw_legend(ax, loc="best")
    ax.set(xlabel=xlabel, ylabel=ylabel)
    return fig


def curve_grid(panels: Mapping[str, Series], title: str = "Training") -> Figure:
    """Small multiples of `curves`: one panel per title. A name has one colour throughout."""
    require_some(panels, "panels")
    columns = min(len(panels), 3 if len(panels) != 4 else 2)
    rows = math.ceil(len(panels) / columns)
    fig = style.new_figure(3.1 * columns, 2.25 * rows + 0.4)
    names = list(dict.fromkeys(name for series in panels.values() for name in series))
    for i, (panel, series) in enumerate(panels.items()):
        ax = fig.add_subplot(rows, columns, i + 1)
        style.draw_frame(ax, grid="y")
        _draw_curves(ax, series, {}, names)
        style.draw_panel_title(ax, panel)
        if i + columns >= len(panels):
            ax.set_xlabel("training steps")
    if len(names) > 1:
        handles = [Line2D([], [], label=plain(name), **_line_style(names, name)) for name in names]
        most = min(len(names), 2 * columns)
        fig.legend(handles=handles, loc="outside lower center", ncols=most, **style.PLAIN_LEGEND)
    style.draw_suptitle(fig, title)
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
    require_some(points, "points")
    fig, ax = _chart(6.2, 3.4, title, grid="both", pad=20)
    shades = matplotlib.colormaps[style.DISTANCE_MAP](np.linspace(0, 0.92, len(points)))
    all_errors = []
    for i, (name, (errors, rates)) in enumerate(points.items()):
        x = as_vector(errors, f"errors of {name}")
        y = as_vector(rates, f"rates of {name}", len(x))
        colour = shades[i] if in_order else style.PALETTE[i % len(style.PALETTE)]
        marker = "osD^"[0 if in_order else i // len(style.PALETTE) % 4]
        ax.plot(x, 100 * y, marker, color=colour, ms=7, mec="white", mew=0.7, label=plain(name), zorder=3)
        all_errors.append(x)
    known = np.concatenate(all_errors)
    if known.min() > 0 and known.max() > 10 * known.min():
        ax.set_xscale("log")
        between = (1.0, 2.0, 5.0) if known.max() < 1000 * known.min() else (1.0,)
        ax.xaxis.set_major_locator(LogLocator(subs=between))
        ax.xaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    ax.set(ylim=(-4, 104), yticks=range(0, 101, 20), xlabel=xlabel, ylabel="goals reached without a plan, %")
    caption = "1 policy" if len(known) == 1 else f"{len(known)} policies"
    caption += "" if math.isnan(corr) else f", rank correlation {corr:.2f}"
    ax.text(0, 1.02, caption.replace("-", "−"), transform=ax.transAxes, color=style.SOFT, fontsize=style.TEXT_SIZE)
    if len(points) > 1:
        fig.legend(loc="outside right upper", **style.PLAIN_LEGEND)  # outside, where it hides no point
    return fig


def scatter_distance(
    exact_steps: ArrayLike,
    latent_distance: ArrayLike,
    corr: float,
    curve: float | None = None,
    title: str = "Learned against exact distance",
    labels: tuple[str, str] = ("exact distance, steps", "latent distance |φ(s) − φ(g)|"),
) -> Figure:
    """How many pairs of states lie at each exact and latent distance (darker is more), with each column's median.

    `curve` is a discount gamma: it overlays (1 - gamma^d) / (1 - gamma), the distance that a perfect discounted value
    has at d steps; 1 overlays the identity.
    """
    exact = as_vector(exact_steps, "exact_steps")
    latent = as_vector(latent_distance, "latent_distance", len(exact))
    if curve is not None and not 0 < curve <= 1:
        raise ValueError(f"curve is a discount in (0, 1], not {curve}")
    fig, ax = _chart(4.6, 3.6, title, grid="both")
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
    ax.plot(columns[filled] + width / 2, medians, color=style.INK, linewidth=1.4, label="median")
    if curve is not None:
        steps = np.linspace(max(0.0, exact.min()), exact.max(), 200)
        ideal = steps if curve == 1 else (1 - curve**steps) / (1 - curve)
        label = "identity" if curve == 1 else f"discounted steps (γ = {curve:g})"
        ax.plot(steps, ideal, color=style.VERMILLION, linewidth=1.6, linestyle=(0, (4, 2)), label=label)
    ax.set(xlabel=labels[0], ylabel=labels[1])
    note = f"rank correlation {corr:.3f}\n{len(exact):,} pairs"
    ax.text(0.97, 0.05, note, transform=ax.transAxes, ha="right", color=style.INK, fontsize=style.TEXT_SIZE)
    style.draw_legend(ax, loc="upper left")
    return fig


def bars(
    labels: Sequence[str], values: ArrayLike, lows: ArrayLike, highs: ArrayLike, title: str, xlabel: str = ""
) -> Figure:
    """Horizontal bars with intervals, the first label on top; for methods or reward gains side by side."""
    mid, low, high = _intervals(labels, values, lows, highs)
    fig, ax = _chart(5.6, 1.1 + 0.36 * len(labels), title, grid="x")
    y = np.arange(len(labels))
    ax.barh(y, mid, height=0.62, color=[style.VERMILLION if v < 0 else style.BLUE for v in mid], zorder=2)
    ax.errorbar((low + high) / 2, y, xerr=(high - low) / 2, ecolor=style.INK, **_INTERVAL)
    for place, value, bottom, top in zip(y, mid, low, high, strict=True):
        # The number stands beyond the interval, on the far side of zero, where no bar can cover it.
        end, shift, side = (max(top, value), 5, "left") if value >= 0 else (min(bottom, value), -5, "right")
        number = f"{value:.3g}".replace("-", "−")
        ax.annotate(number, (end, place), (shift, 0), ha=side, va="center", fontsize=style.SMALL_SIZE, **_NUMBER)
    ax.axvline(0, color=style.INK, linewidth=0.8, zorder=4)
    ax.set_yticks(y, [plain(label) for label in labels])
    left, right = min(0.0, low.min(), mid.min()), max(0.0, high.max(), mid.max())
    span = (right - left) or 1.0
    ax.set_xlim(left - (0.12 * span if left < 0 else 0), right + (0.12 * span if right > 0 else 0) + 1e-9)
    ax.set(ylim=(len(labels) - 0.4, -0.6), xlabel=xlabel)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0, labelcolor=style.INK, labelsize=style.TEXT_SIZE)
    return fig


def _chart(width: float, height: float, title: str, grid: str, pad: float = 6) -> tuple[Figure, Axes]:
    fig = style.new_figure(width, height)
    ax = fig.add_subplot()
    style.draw_title(ax, title, pad=pad)
    style.draw_frame(ax, grid)
    return fig, ax


def _draw_curves(ax: Axes, series: Series, bands: Series, names: Sequence[str]) -> None:
    require_some(series, "series")
    if unknown := set(bands) - set(series):
        raise ValueError(f"bands without a series: {sorted(unknown)}")
    for name, (steps, values) in series.items():
        x = as_vector(steps, f"steps of {name}")
        y = as_vector(values, f"values of {name}", len(x), finite=False)
        line = _line_style(names, name)
        ax.plot(x, y, label=plain(name), marker="o" if len(x) == 1 else "", **line)
        if name in bands:
            low, high = (as_vector(edge, f"band of {name}", finite=False) for edge in bands[name])
            ax.fill_between(x, low, high, color=line["color"], alpha=0.18, linewidth=0)
    ax.margins(x=0.02)
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))


def _mark_places(ax: Axes, places: np.ndarray) -> None:
    """Points and ticks at these places only; on a logarithmic axis where they span several doublings."""
    if places.min() > 0 and places.max() >= 8 * places.min():
        ax.set_xscale("log", base=2)
    ax.set_xticks(places, [short_number(place) for place in places])
    ax.xaxis.set_minor_locator(NullLocator())
    for line in ax.lines:
        line.set(marker="o", markersize=4.5)


def _line_style(names: Sequence[str], name: str) -> dict[str, Any]:
    """Colours in order; once they are used up, again with dashes."""
    turn, index = divmod(names.index(name), len(style.PALETTE))
    return {"color": style.PALETTE[index], "linestyle": ("-", "--", ":")[turn % 3], "linewidth": 1.6}


def _intervals(
    labels: Sequence[str], values: ArrayLike, lows: ArrayLike, highs: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    named = (("values", values), ("lows", lows), ("highs", highs))
    mid, low, high = (as_vector(given, name, len(labels)) for name, given in named)
    if (low > high).any():
        raise ValueError("a low end lies above its high end")
    return mid, low, high
