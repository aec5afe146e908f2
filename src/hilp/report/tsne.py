"""Exact t-SNE (van der Maaten and Hinton, 2008): points of any dimension on a plane, neighbours beside neighbours.

All pairs are compared, so time and memory grow with the square of the number of points: a thousand take a few seconds.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from hilp.errors import HilpError

PERPLEXITY = 30.0  # neighbours that each point attends to
ITERATIONS = 750
EXAGGERATION, EXAGGERATED = 12.0, 250  # groups form while affinities are this many times too large, for so many steps
START_SPREAD, START_NOISE = 1e-4, 1e-6
SLOW, FAST = 0.5, 0.8  # momentum with exaggeration and after it
GAIN_UP, GAIN_DOWN, LEAST_GAIN = 0.2, 0.8, 0.01  # of a coordinate's own rate: up while it keeps its direction
LEAST_AFFINITY = 1e-12
HALVINGS = 32
BLOCK = 1 << 16  # pairs of points that are looked at together
# The widths that are searched, as factors on squared distances of which the largest of a row is 1: from a row that is
# almost uniform to one that tells apart what float64 can.
WIDEST, NARROWEST = math.log(0.1), math.log(1e18)


def least_points(perplexity: float = PERPLEXITY) -> int:
    """Fewest points that t-SNE takes: three times the neighbours that each one attends to, and the point itself."""
    return math.ceil(3 * perplexity) + 1


def tsne(points: ArrayLike, perplexity: float = PERPLEXITY, iterations: int = ITERATIONS, seed: int = 0) -> np.ndarray:
    """Places [n, 2] float64 of points [n, D] on a plane, around the origin.

    The start is the plane of most variance, which keeps the layout at large; `seed` draws a noise a hundred times
    smaller. Points that are all the same stay in one place.
    """
    x = np.asarray(points, np.float64)
    if x.ndim != 2 or 0 in x.shape:
        raise HilpError(f"t-SNE takes a matrix, one row a point, not shape {x.shape}")
    if not np.isfinite(x).all():
        raise HilpError("t-SNE takes finite numbers: some points hold a NaN or an infinity")
    if not 1 < perplexity < math.inf:
        raise HilpError(f"the perplexity of t-SNE is a number above 1, not {perplexity}")
    if len(x) < least_points(perplexity):
        raise HilpError(
            f"t-SNE with perplexity {perplexity:g} needs at least {least_points(perplexity)} points, not {len(x)}: "
            "take more, or principal components"
        )
    # The perplexity finds its own scale, so any unit will do: in this one no square overflows.
    x = x / (np.abs(x).max() or 1.0)
    x -= x.mean(axis=0)
    farthest = np.abs(x).max()
    if farthest < 1e-12:  # nothing but rounding
        return np.zeros((len(x), 2))
    return _descend(affinities(x / farthest, perplexity), _start(x, seed), iterations)


def principal_plane(latents: np.ndarray) -> tuple[np.ndarray, float]:
    """Coordinates in the two directions of most variance, [n, 2], and the share of all variance they hold."""
    centred = latents - latents.mean(axis=0)
    left, scale, _ = np.linalg.svd(centred, full_matrices=False)
    total = float((scale**2).sum())
    flat = np.zeros((len(latents), 2))
    kept = min(2, len(scale))
    flat[:, :kept] = left[:, :kept] * scale[:kept]
    return flat, float((scale[:2] ** 2).sum()) / total if total > 0 else 1.0


def affinities(points: np.ndarray, perplexity: float) -> np.ndarray:
    """p_ij [n, n]: how much points i and j are neighbours; symmetric, sums to 1."""
    near = neighbourhoods(points, perplexity)
    return np.asarray((near + near.T) / (2 * len(near)))


def neighbourhoods(points: np.ndarray, perplexity: float) -> np.ndarray:
    """p(j | i) [n, n] in row i: a Gaussian around point i, just wide enough for the row to have this perplexity.

    Where more points than that are equally near, no width is right, and they share the row.
    """
    squares = (points**2).sum(axis=1)
    distances = squares[:, None] + squares - 2 * points @ points.T
    np.fill_diagonal(distances, np.inf)
    distances -= distances.min(axis=1, keepdims=True)  # changes no p(j | i), and keeps exp from vanishing
    np.fill_diagonal(distances, 0)
    largest = distances.max(axis=1, keepdims=True)
    distances /= np.where(largest > 0, largest, 1)

    low, high = np.full(len(points), WIDEST), np.full(len(points), NARROWEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        near, entropy = _gaussians(distances, np.exp(middle))
        wide = entropy > math.log(perplexity)
        low, high = np.where(wide, middle, low), np.where(wide, high, middle)
    return near


def _gaussians(distances: np.ndarray, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows [n, n] of p(j | i) at these precisions [n], and their entropies [n] in nats."""
    exponents = distances * precision[:, None]
    weights = np.exp(-exponents)
    np.fill_diagonal(weights, 0)
    total = weights.sum(axis=1)
    entropy = np.log(total) + np.einsum("ij,ij->i", weights, exponents) / total
    weights /= total[:, None]
    return weights, entropy


def gradient(p: np.ndarray, flat: np.ndarray) -> np.ndarray:
    """Of KL(P || Q) by the places [n, 2], where q_ij = w_ij / sum(w) and w_ij = 1 / (1 + |y_i - y_j|^2).

    That is 4 sum_j (p_ij - q_ij) w_ij (y_i - y_j). A few rows of the pairs at a time stay in the processor's cache, and
    products of so few are not shared out to threads, which wait for each other for much longer than they work.
    """
    squares, one = (flat**2).sum(axis=1), np.ones(len(flat), flat.dtype)
    left = np.column_stack([-2 * flat, squares + 1, one])
    right = np.column_stack([flat, one, squares]).T  # left @ right is 1 + |y_i - y_j|^2
    places = np.column_stack([flat, one])  # a product with this is a weighted sum of places and of 1
    pulled, pushed, total = np.empty_like(places), np.empty_like(places), 0.0
    count = max(BLOCK // len(flat), 1)
    for first in range(0, len(flat), count):
        rows = slice(first, first + count)
        w = left[rows] @ right
        np.reciprocal(w, out=w)
        total += float(w.sum() - np.trace(w, offset=first))
        pulled[rows] = (p[rows] * w) @ places
        w *= w
        pushed[rows] = w @ places
    force = pulled - pushed / flat.dtype.type(total)
    return np.asarray(4 * (force[:, 2:] * flat - force[:, :2]))


def _start(points: np.ndarray, seed: int) -> np.ndarray:
    """The plane of most variance, tiny, with a little noise: from a start that lies on a line nothing leaves it."""
    plane, _ = principal_plane(points)
    noise = np.random.default_rng(seed).standard_normal(plane.shape)
    return START_SPREAD * plane / plane[:, 0].std() + START_NOISE * noise


def _descend(p: np.ndarray, flat: np.ndarray, iterations: int) -> np.ndarray:
    """Gradient descent with momentum; every coordinate has a rate of its own."""
    # Half of the precision is twice the speed, and finer than any step; numbers too small for it would be slow.
    p, flat = np.maximum(p, LEAST_AFFINITY).astype(np.float32), flat.astype(np.float32)
    exaggerated = np.float32(EXAGGERATION) * p
    gains, velocity = np.ones_like(flat), np.zeros_like(flat)
    for iteration in range(iterations):
        early = iteration < EXAGGERATED
        slope = gradient(exaggerated if early else p, flat)
        rate = len(p) / 4 / (EXAGGERATION if early else 1)  # with a larger one, exaggerated steps overshoot
        steady = slope * velocity < 0
        gains = np.maximum(np.where(steady, gains + GAIN_UP, gains * GAIN_DOWN), LEAST_GAIN)
        velocity = (SLOW if early else FAST) * velocity - rate * gains * slope
        flat = flat + velocity
        flat -= flat.mean(axis=0)
    return flat.astype(np.float64)
