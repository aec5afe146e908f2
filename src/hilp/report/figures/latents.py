"""The latent space on a plane next to the plan, in the same colours."""

from __future__ import annotations

import importlib.util
import math
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from hilp.errors import HilpError
from hilp.report.figures.maps import Plan, aspect_of, draw_squares, places_of, plan_panels
from hilp.report.figures.style import draw_frame, draw_panel_title, draw_suptitle

TSNE_POINTS = 1500  # at most: more take minutes and show nothing new
PERPLEXITY = 30.0  # neighbours that each point attends to
LEAST_POINTS = math.ceil(3 * PERPLEXITY) + 1  # three times those neighbours, and the point itself
ITERATIONS, EXAGGERATION = 500, 4.0  # as in the first paper: 12 times crumples up a few hundred points
START_SPREAD = 1.0
EXTRA = "pip install 'hilp[plots]'"

# Colours of the corners of a ground plan (left, right; bottom, top): the diagonal runs from dark to light.
_CORNERS = np.array([[[0x2D, 0x1E, 0x8F], [0xC9, 0x25, 0x5E]], [[0x0A, 0xA3, 0xA8], [0xF7, 0xC9, 0x1E]]]) / 255

Flatten = Literal["tsne", "pca"]  # how points of more than two dimensions come onto a plane


def latent_map(
    task: Plan,
    observations: ArrayLike,
    latents: ArrayLike,
    title: str = "The latent space",
    flatten: Flatten | None = None,
) -> Figure:
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
    draw_panel_title(plan, "places")
    cloud.scatter(flat[:, 0], flat[:, 1], c=colours[shown], s=np.clip(12_000 / len(flat), 5, 30), linewidths=0)
    cloud.set_aspect("equal", adjustable="datalim")
    cloud.set_box_aspect(aspect_of(plan))
    cloud.xaxis.set_major_locator(MaxNLocator(6))
    cloud.yaxis.set_major_locator(MaxNLocator(5))
    draw_panel_title(cloud, name, note)
    draw_frame(cloud, grid="both")
    if flatten == "tsne":
        cloud.tick_params(labelbottom=False, labelleft=False, length=0)  # its coordinates mean nothing
    draw_suptitle(fig, title)
    return fig


def choose_flatten(latents: np.ndarray) -> Flatten:
    """t-SNE where there are more than two dimensions and points enough, if scikit-learn is installed; else PCA."""
    worth_it = latents.shape[1] > 2 and len(latents) >= LEAST_POINTS
    return "tsne" if worth_it and has_tsne() else "pca"


def has_tsne() -> bool:
    return importlib.util.find_spec("sklearn") is not None


def tsne(points: np.ndarray, seed: int = 0) -> np.ndarray:
    """Places [n, 2] of points [n, D] on a plane, neighbours together (van der Maaten and Hinton, 2008).

    Points that are all the same stay in one place.
    """
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
