"""Pictures on a task's ground plan: paths, distances, and next to it the latent space in the same colours.

A task is known here only through `draw(ax)`, which draws its ground plan, and `place(observations)`, which says where
on it an observation lies.
"""

import importlib.util
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from hilp.errors import HilpError
from hilp.evaluation.stats import as_vector
from hilp.report.figures import style
from hilp.report.figures.style import require_some
from hilp.tasks.base import Task

TSNE_POINTS = 1500  # at most: more take minutes and show nothing new
PERPLEXITY = 30.0  # neighbours that each point attends to
LEAST_POINTS = math.ceil(3 * PERPLEXITY) + 1  # three times those neighbours, and the point itself
ITERATIONS, EXAGGERATION = 500, 4.0  # as in the first paper: 12 times crumples up a few hundred points
START_SPREAD = 1.0
EXTRA = "pip install 'hilp[plots]'"

# Colours of the corners of a ground plan (left, right; bottom, top): the diagonal runs from dark to light.
_CORNERS = np.array([[[0x2D, 0x1E, 0x8F], [0xC9, 0x25, 0x5E]], [[0x0A, 0xA3, 0xA8], [0xF7, 0xC9, 0x1E]]]) / 255

Flatten = Literal["tsne", "pca"]  # how points of more than two dimensions come onto a plane
Trials = tuple[Sequence[ArrayLike], ArrayLike, ArrayLike, ArrayLike]  # paths, starts, goals, reached

_OUTCOMES: dict[bool, dict[str, Any]] = {
    True: {"color": style.BLUE, "label": "reached"},
    False: {"color": style.VERMILLION, "label": "not reached"},
}


def trajectories(
    task: Task, named: Mapping[str, Trials], title: str | None = None, way: ArrayLike | None = None
) -> Figure:
    """A panel per prompt: its paths ([T, obs] each), blue where the goal was reached, vermillion where it was not.

    Under a `title` of the figure, each panel has its count of goals reached.
    way: places [n, obs] that a plan expected to pass, drawn beneath.
    """
    fig, axes = _panels(task, named, title)
    if way is not None and len(np.atleast_2d(way)):
        xy = places_of(task, way, "way")
        axes[0].plot(*xy.T, color=style.SOFT, linewidth=1.0, linestyle=(0, (2, 2)), marker="s", ms=3.5, zorder=2)
    for ax, (name, trials) in zip(axes, named.items(), strict=True):
        done, total = _draw_trials(ax, task, trials)
        if title is not None:
            style.draw_panel_title(ax, name, f"{done} of {total}")
    handles = [Line2D([], [], linewidth=2, **outcome) for outcome in _OUTCOMES.values()]
    marks: dict[str, Any] = {"linestyle": "", "markeredgecolor": style.SOFT}
    handles.append(Line2D([], [], marker="o", markerfacecolor="white", markersize=6, label="start", **marks))
    handles.append(Line2D([], [], marker="*", markerfacecolor=style.SOFT, markersize=10, label="goal", **marks))
    fig.legend(handles=handles, loc="outside lower center", ncols=4, **style.PLAIN_LEGEND)
    return fig


def earnings(task: Task, path: ArrayLike, earned: ArrayLike, title: str = "Reward prompt") -> Figure:
    """One path [T, obs] on the task's plan, coloured by what had been earned at each of its states [T]."""
    fig, (ax,) = _panels(task, {title: path}, None)
    xy = places_of(task, path, "path")
    values = as_vector(earned, "earned (one number a state of the path)", len(xy))
    low, high = float(values.min()), float(values.max())
    norm = Normalize(low, high if high > low else low + 1.0)
    line = _draw_lines(ax, np.stack([xy[:-1], xy[1:]], axis=1), linewidths=2.5, array=values[1:], norm=norm)
    ax.plot(*xy[:1].T, "o", mfc="white", mec=style.INK, ms=6, mew=1.4, zorder=4)
    ax.plot(*xy[-1:].T, "s", color=style.INK, mec="white", ms=6, zorder=4)
    _bar(fig, ax, line, "earned so far (circle: start, square: end)")
    return fig


def earnings_grid(task: Task, named: Mapping[str, tuple[Sequence[ArrayLike], ArrayLike, str]]) -> Figure:
    """A panel per reward prompt: its paths, coloured by the share [n] of what each could have earned, and its score."""
    fig, axes = _panels(task, named, "Trajectories of reward prompts")
    for ax, (name, (paths, shares, score)) in zip(axes, named.items(), strict=True):
        lines = [places_of(task, path, f"paths[{i}]") for i, path in enumerate(paths)]
        values = np.clip(as_vector(shares, "shares (one a path)", len(lines)), 0, 1)
        drawn = _draw_lines(ax, lines, linewidths=1.5, alpha=0.85, array=values, norm=Normalize(0, 1))
        ax.plot(*np.array([line[0] for line in lines]).T, "o", mfc="white", mec=style.SOFT, ms=5, mew=1.3, zorder=4)
        style.draw_panel_title(ax, name, score)
    _bar(fig, axes[-1], drawn, "share of what was possible")
    return fig


def distance_fields(
    task: Task, observations: ArrayLike, fields: Mapping[str, ArrayLike], goal: ArrayLike, title: str | None = None
) -> Figure:
    """Distances from every observation to one goal, as squares in colours that fields share; nan (no way) is grey."""
    fig, axes = _panels(task, fields, title)
    draw_fields(fig, axes, task, observations, list(fields.values()), goal)
    return fig


def _panels(task: Task, named: Mapping[str, Any], title: str | None) -> tuple[Figure, list[Axes]]:
    """A panel for each name; without a title of the figure, names are the titles."""
    require_some(named, "named")
    fig, axes = plan_panels(task, len(named), min(len(named), 3 if len(named) != 4 else 2))
    for ax, name in zip(axes, named, strict=True):
        (style.draw_title if title is None else style.draw_panel_title)(ax, name)
    if title is not None:
        style.draw_suptitle(fig, title)
    return fig, axes


def plan_panels(task: Task, count: int, columns: int) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels with the task's plan in each, sized to the plan's own proportions."""
    fig = Figure(layout=ConstrainedLayoutEngine(compress=True, w_pad=0.1, h_pad=0.06), facecolor="white")
    rows = math.ceil(count / columns)
    axes = [fig.add_subplot(rows, columns, i + 1) for i in range(count)]
    for ax in axes:
        task.draw(ax)
        ax.spines[:].set_visible(False)
    width = {1: 5.4, 2: 4.2}.get(columns, 3.4)
    fig.set_size_inches(width * columns, (width * aspect_of(axes[0]) + 0.3) * rows + 0.6)
    return fig, axes


def aspect_of(ax: Axes) -> float:
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    return abs(top - bottom) / max(abs(right - left), 1e-9)


def _draw_trials(ax: Axes, task: Task, trials: Trials) -> tuple[int, int]:
    paths, starts, goals, reached = trials
    lines = [places_of(task, path, f"paths[{i}]") for i, path in enumerate(paths)]
    begin, end = places_of(task, starts, "starts"), places_of(task, goals, "goals")
    good = np.asarray(reached, dtype=bool)
    sizes = {"paths": len(lines), "starts": len(begin), "goals": len(end), "reached": good.size}
    if len(set(sizes.values())) != 1 or good.ndim != 1:
        raise ValueError("one start, goal and outcome per path, not " + ", ".join(f"{n} {k}" for k, n in sizes.items()))
    scale = 1.0 if len(lines) <= 25 else 0.7
    for outcome in (True, False):  # failures are drawn last: they are fewer and say more
        colour = _OUTCOMES[outcome]["color"]
        chosen = np.flatnonzero(good == outcome)
        _draw_lines(ax, [lines[i] for i in chosen], colors=colour, linewidths=1.5 * scale, alpha=0.75)
        ax.plot(*begin[chosen].T, "o", mfc="white", mec=colour, ms=5 * scale, mew=1.3, zorder=4)
        draw_stars(ax, end[chosen], colour, 11.5 * scale)
    return int(good.sum()), len(good)


def _draw_lines(ax: Axes, lines: Sequence[np.ndarray] | np.ndarray, **options: Any) -> LineCollection:
    drawn = LineCollection(list(lines), cmap=style.DISTANCE_MAP, zorder=3, capstyle="round", **options)
    ax.add_collection(drawn, autolim=ax.get_autoscale_on())  # not on plans, which have limits of their own
    ax.autoscale_view()
    return drawn


def draw_stars(ax: Axes, xy: np.ndarray, colour: str, size: float) -> None:
    ax.plot(*xy.T, "*", color=colour, mec="white", mew=0.8, ms=size, zorder=5)


def draw_fields(
    fig: Figure, axes: Sequence[Axes], task: Task, observations: ArrayLike, fields: Sequence[ArrayLike], goal: ArrayLike
) -> None:
    xy = places_of(task, observations, "observations")
    star = places_of(task, np.reshape(np.asarray(goal), (1, -1)), "goal")
    stacked = np.stack([np.asarray(field, dtype=np.float64) for field in fields])
    if stacked.shape != (len(fields), len(xy)):
        raise ValueError(f"each field needs one distance per observation ({len(xy)}), not shape {stacked.shape[1:]}")
    if (stacked < 0).any():
        raise ValueError("distances are never negative; write nan where there is no way")
    stacked[~np.isfinite(stacked)] = np.nan
    top = float(np.nanmax(stacked)) if np.isfinite(stacked).any() else 1.0
    colours = matplotlib.colormaps[style.DISTANCE_MAP].with_extremes(bad="#c9ced8")
    for ax, field in zip(axes, stacked, strict=True):
        squares = draw_squares(ax, xy, cmap=colours, norm=Normalize(0, top or 1.0), array=field)
        draw_stars(ax, star, style.VERMILLION, 14)
    _bar(fig, axes[-1], squares, "distance, latent steps", integer=True)


def _bar(fig: Figure, ax: Axes, drawn: Any, label: str, integer: bool = False) -> None:
    # A bar inside the last panel's coordinates is exactly as high as the plan, whatever the layout makes of it.
    bar = fig.colorbar(drawn, cax=ax.inset_axes((1.025, 0, 0.03, 1)), ticks=MaxNLocator(6, integer=integer))
    bar.set_label(label, fontsize=style.TEXT_SIZE, color=style.INK)
    bar.ax.tick_params(labelsize=style.SMALL_SIZE, colors=style.SOFT, length=2)
    bar.outline.set_visible(False)


def draw_squares(ax: Axes, xy: np.ndarray, **options: Any) -> PolyCollection:
    """One square per point, as wide as the points are apart: fills a lattice without reaching through a wall."""
    half = _spacing(xy) / 2
    corners = np.array([[-half, -half], [half, -half], [half, half], [-half, half]])
    # Without antialiasing neighbouring squares meet without a seam.
    squares = PolyCollection(xy[:, None] + corners, linewidths=0, antialiaseds=False, zorder=2, **options)
    ax.add_collection(squares, autolim=False)
    return squares


def _spacing(xy: np.ndarray) -> float:
    """Median distance to the third nearest other point: the spacing of a lattice, also next to a wall."""
    distinct = np.unique(xy, axis=0)
    if len(distinct) < 2:
        return 0.2
    sample = distinct[:: math.ceil(len(distinct) / 256)]
    gaps = np.linalg.norm(sample[:, None] - distinct[None], axis=-1)  # sample x all
    third = min(3, len(distinct) - 1)
    return float(np.median(np.partition(gaps, third, axis=1)[:, third]))


def places_of(task: Task, observations: ArrayLike, name: str) -> np.ndarray:
    rows = np.asarray(observations)
    if rows.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, not shape {rows.shape}")
    return np.asarray(task.place(rows), dtype=np.float64)


def latent_map(task: Task, observations: ArrayLike, latents: ArrayLike, flatten: Flatten | None = None) -> Figure:
    """Places on the plan, and their latents [n, D] on a plane, in the same colours.

    The plane is that of the two principal directions ("pca") or one of t-SNE ("tsne", of at most TSNE_POINTS points);
    by default as `choose_flatten` has it. The picture of the latents is turned and mirrored as a whole to lie like the
    plan (orthogonal Procrustes): distances in it are untouched, and a reader finds each place again.
    """
    from scipy.linalg import orthogonal_procrustes

    xy = places_of(task, observations, "observations")
    phi = np.asarray(latents, dtype=np.float64)
    if phi.ndim != 2 or phi.size == 0 or len(phi) != len(xy) or not np.isfinite(phi).all():
        raise ValueError(f"latents must be a row of finite numbers for each of {len(xy)} observations, not {phi.shape}")
    flatten = flatten or choose_flatten(phi)
    # In this order they are drawn as well: nearest-first would hide one corner behind another, a shuffle mixes fairly.
    shown = np.random.default_rng(0).permutation(len(phi))
    if flatten == "tsne":
        shown = shown[:TSNE_POINTS]
        flat = tsne(phi[shown])
        left_out = f" of {len(phi):,}" if len(shown) < len(phi) else ""
        name, note = "latents (t-SNE)", f"{len(shown):,}{left_out} points"
    else:
        flat, share = principal_plane(phi[shown])
        name, note = "latents (PCA)", f"{share:.0%} of the variance"
    flat = flat @ orthogonal_procrustes(flat, xy[shown] - xy[shown].mean(axis=0))[0]
    colours = _colours_by_place(xy)

    fig, (plan,) = plan_panels(task, 1, 2)
    cloud = fig.add_subplot(1, 2, 2)
    draw_squares(plan, xy, facecolors=colours)
    style.draw_panel_title(plan, "places")
    cloud.scatter(flat[:, 0], flat[:, 1], c=colours[shown], s=np.clip(12_000 / len(flat), 5, 30), linewidths=0)
    cloud.set_aspect("equal", adjustable="datalim")
    cloud.set_box_aspect(aspect_of(plan))
    cloud.xaxis.set_major_locator(MaxNLocator(6))
    cloud.yaxis.set_major_locator(MaxNLocator(5))
    style.draw_panel_title(cloud, name, note)
    style.draw_frame(cloud, grid="both")
    if flatten == "tsne":
        cloud.tick_params(labelbottom=False, labelleft=False, length=0)  # its coordinates mean nothing
    style.draw_suptitle(fig, "The latent space")
    return fig


def choose_flatten(latents: np.ndarray) -> Flatten:
    """t-SNE where there are more than two dimensions and points enough, if scikit-learn is installed; else PCA."""
    worth_it = latents.shape[1] > 2 and len(latents) >= LEAST_POINTS
    return "tsne" if worth_it and has_tsne() else "pca"


def has_tsne() -> bool:
    return importlib.util.find_spec("sklearn") is not None


def tsne(points: np.ndarray, seed: int = 0) -> np.ndarray:
    """Places [n, 2] of points [n, D] on a plane, neighbours together (van der Maaten and Hinton, 2008)."""
    if not has_tsne():
        raise HilpError(f"t-SNE needs scikit-learn: {EXTRA}, or take principal components (pca)")
    if len(points) < LEAST_POINTS:
        raise HilpError(
            f"t-SNE with perplexity {PERPLEXITY:g} needs at least {LEAST_POINTS} points, not {len(points)}: take more, "
            "or principal components"
        )
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    # The perplexity finds its own scale, so any unit will do: in this one no square overflows.
    x = points / (np.abs(points).max() or 1.0)
    x = x - x.mean(axis=0)
    start, _ = principal_plane(x)
    if np.abs(x).max() < 1e-12:  # nothing but rounding
        return np.zeros((len(x), 2))
    # The start is the plane of most variance, which keeps the layout at large. scikit-learn's own rate is never below
    # 50, which throws so few points about that the layout depends on the rounding of the machine.
    reducer = TSNE(
        perplexity=PERPLEXITY,
        early_exaggeration=EXAGGERATION,
        learning_rate=len(x) / (4 * EXAGGERATION),
        max_iter=ITERATIONS,
        init=(START_SPREAD * start / start[:, 0].std()).astype(np.float32),
        random_state=seed,
        n_jobs=1,
    )
    with threadpool_limits(1):  # threads would wait for each other for longer than they work
        return np.asarray(reducer.fit_transform(x.astype(np.float32)), np.float64)


def principal_plane(latents: np.ndarray) -> tuple[np.ndarray, float]:
    """Coordinates in the two directions of most variance, [n, 2], and the share of all variance they hold."""
    centred = latents - latents.mean(axis=0)
    left, scale, _ = np.linalg.svd(centred, full_matrices=False)
    total = float((scale**2).sum())
    flat = np.zeros((len(latents), 2))
    kept = min(2, len(scale))
    flat[:, :kept] = left[:, :kept] * scale[:kept]
    return flat, float((scale[:2] ** 2).sum()) / total if total > 0 else 1.0


def _colours_by_place(xy: np.ndarray) -> np.ndarray:
    """A colour for each place, blended from those of the plan's four corners; [n, 3]."""
    span = np.ptp(xy, axis=0)
    u, v = ((xy - xy.min(axis=0)) / np.where(span > 0, span, 1)).T[:, :, None]
    (bottom_left, bottom_right), (top_left, top_right) = _CORNERS
    bottom, top = (1 - u) * bottom_left + u * bottom_right, (1 - u) * top_left + u * top_right
    return np.asarray((1 - v) * bottom + v * top)
