"""t-SNE: its gradient against differences, its rows against the perplexity, and what people read off a map."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hilp.errors import HilpError
from hilp.report import tsne


def divergence(p: np.ndarray, y: np.ndarray) -> float:
    """KL(P || Q), pair by pair."""
    pairs = [(i, j) for i in range(len(y)) for j in range(len(y)) if i != j]
    weight = {(i, j): 1 / (1 + (y[i, 0] - y[j, 0]) ** 2 + (y[i, 1] - y[j, 1]) ** 2) for i, j in pairs}
    total = sum(weight.values())
    return sum(p[i, j] * math.log(p[i, j] / (weight[i, j] / total)) for i, j in pairs if p[i, j] > 0)


@pytest.mark.parametrize("block", [1, 40, 1 << 16])
def test_the_gradient_is_that_of_the_divergence(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tsne, "BLOCK", block)  # rows one by one, a few (the last ones fewer), all at once
    rng = np.random.default_rng(0)
    p, y = tsne.affinities(rng.normal(size=(14, 5)), 4), 2 * rng.normal(size=(14, 2))
    expected = np.empty_like(y)
    for place in np.ndindex(*y.shape):
        step = np.zeros_like(y)
        step[place] = 1e-5
        expected[place] = (divergence(p, y + step) - divergence(p, y - step)) / 2e-5
    np.testing.assert_allclose(tsne.gradient(p, y), expected, atol=1e-8)
    single = tsne.gradient(p.astype(np.float32), y.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, atol=1e-6)


@pytest.mark.parametrize("perplexity", [2.0, 7.5, 30.0])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_every_row_has_the_perplexity_asked_for(perplexity: float, scale: float) -> None:
    rng = np.random.default_rng(1)
    points = scale * np.concatenate([rng.normal(size=(60, 3)), 100 + 0.01 * rng.normal(size=(60, 3))])
    near = tsne.neighbourhoods(points, perplexity)
    assert (np.diag(near) == 0).all()
    np.testing.assert_allclose(near.sum(axis=1), 1)
    entropy = -np.sum(near * np.log(np.where(near > 0, near, 1)), axis=1)
    np.testing.assert_allclose(np.exp(entropy), perplexity, rtol=1e-5)
    p = tsne.affinities(points, perplexity)
    np.testing.assert_allclose(p, (near + near.T) / 240)
    assert p.sum() == pytest.approx(1)


def test_rows_are_gaussian() -> None:
    """Their logarithm falls in proportion to the squared distance."""
    points = np.random.default_rng(2).normal(size=(40, 2))
    near = tsne.neighbourhoods(points, 8)
    squares = ((points[0] - points[1:]) ** 2).sum(axis=1)
    slope, start = np.polyfit(squares, np.log(near[0, 1:]), 1)
    assert slope < 0
    np.testing.assert_allclose(np.log(near[0, 1:]), start + slope * squares, atol=1e-8)


def test_equally_near_points_share_a_row() -> None:
    points = np.repeat([[0.0, 0.0], [1.0, 0.0]], 20, axis=0)
    near = tsne.neighbourhoods(points, 5)  # each point has 19 copies: no width gives five
    np.testing.assert_allclose(near[0, 1:20], 1 / 19)
    np.testing.assert_allclose(near[0, 20:], 0, atol=1e-12)


def test_far_clusters_stay_apart() -> None:
    rng = np.random.default_rng(3)
    centres = 50 * np.eye(3, 10)
    points = np.concatenate([centre + rng.normal(size=(50, 10)) for centre in centres])
    flat = tsne.tsne(points, perplexity=15).reshape(3, 50, 2)
    middles = flat.mean(axis=1)
    radius = np.linalg.norm(flat - middles[:, None], axis=-1).max()
    gaps = np.linalg.norm(middles[:, None] - middles, axis=-1)[~np.eye(3, dtype=bool)]
    assert gaps.min() > 2 * radius, "no two discs touch"


def neighbours(points: np.ndarray, count: int) -> np.ndarray:
    gaps = np.linalg.norm(points[:, None] - points, axis=-1)
    np.fill_diagonal(gaps, np.inf)
    return np.argsort(gaps, axis=1)[:, :count]


def test_a_ring_stays_a_ring() -> None:
    angle = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    turned = np.linalg.qr(np.random.default_rng(4).normal(size=(6, 6)))[0][:2]
    flat = tsne.tsne(np.column_stack([np.cos(angle), np.sin(angle)]) @ turned, perplexity=10)
    turns = np.diff(np.unwrap(np.arctan2(flat[:, 1], flat[:, 0])))
    assert abs(turns.sum()) == pytest.approx(2 * np.pi * 199 / 200, abs=0.02), "once around"
    assert (np.sign(turns) == np.sign(turns[0])).all(), "in order"
    distance = np.linalg.norm(flat, axis=1)
    assert distance.min() > 0.8 * distance.max(), "and round"


def test_neighbours_stay_neighbours() -> None:
    """On a torus, of which any two directions show places on top of each other."""
    rng = np.random.default_rng(5)
    angles = rng.uniform(0, 2 * np.pi, (400, 2))
    torus = np.hstack([np.cos(angles), np.sin(angles)])
    points = torus @ np.linalg.qr(rng.normal(size=(10, 4)))[0].T
    flat = tsne.tsne(points)
    centred = points - points.mean(axis=0)
    plane = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    true = neighbours(torus, 10)
    kept = {
        name: np.mean([len(set(a) & set(b)) for a, b in zip(true, neighbours(found, 10), strict=True)]) / 10
        for name, found in (("tsne", flat), ("pca", plane))
    }
    assert kept["tsne"] > 0.65 > 0.5 > kept["pca"]


def test_the_same_points_give_the_same_map() -> None:
    points = np.random.default_rng(6).normal(size=(120, 8))
    flat = tsne.tsne(points, iterations=300)
    assert flat.shape == (120, 2) and flat.dtype == np.float64
    np.testing.assert_array_equal(flat, tsne.tsne(points, iterations=300))
    np.testing.assert_allclose(flat.mean(axis=0), 0, atol=1e-4)
    assert not np.array_equal(flat, tsne.tsne(points, iterations=300, seed=1))


def test_the_start_is_the_plane_of_most_variance() -> None:
    points = np.random.default_rng(7).normal(size=(100, 3)) * [5, 2, 0.1]
    start = tsne.tsne(points, iterations=0)
    assert start[:, 0].std() == pytest.approx(1e-4, rel=0.01)
    for column, direction in zip(start.T, points.T, strict=False):
        assert abs(np.corrcoef(column, direction)[0, 1]) > 0.99


def test_duplicates_are_drawn() -> None:
    rng = np.random.default_rng(8)
    points = np.repeat(rng.normal(size=(5, 4)), 40, axis=0)
    with np.errstate(all="raise", under="ignore"):
        flat = tsne.tsne(points)
    assert np.isfinite(flat).all()
    groups = flat.reshape(5, 40, 2)
    middles = groups.mean(axis=1)
    gaps = np.linalg.norm(middles[:, None] - middles, axis=-1)[~np.eye(5, dtype=bool)]
    assert np.linalg.norm(groups - middles[:, None], axis=-1).max() < gaps.min() / 2


@pytest.mark.parametrize("value", [0.0, 3.7, -1e-200, 1e200])
def test_points_that_are_all_the_same_stay_in_one_place(value: float) -> None:
    np.testing.assert_array_equal(tsne.tsne(np.full((100, 8), value)), np.zeros((100, 2)))


@pytest.mark.parametrize("scale", [1e-150, 1e-3, 1e300])
def test_units_do_not_matter(scale: float) -> None:
    points = np.random.default_rng(9).integers(-1, 2, size=(100, 3)) * np.array([1.0, 0.5, 0.25])
    points += np.arange(100)[:, None] / 1024
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        moved = tsne.tsne(points * scale, iterations=20)
    np.testing.assert_allclose(moved, tsne.tsne(points, iterations=20), rtol=1e-3, atol=1e-8)


@pytest.mark.parametrize("columns", [1, 2])
def test_a_line_may_leave_the_line(columns: int) -> None:
    points = np.zeros((100, columns))
    points[:, 0] = np.linspace(0, 1, 100)
    flat = tsne.tsne(points, perplexity=10)
    assert flat.std(axis=0).min() > 0.1
    assert (np.abs(neighbours(flat, 1)[:, 0] - np.arange(100)) <= 3).all(), "and keeps its order"


@pytest.mark.parametrize(
    ("points", "perplexity", "says"),
    [
        (np.zeros((90, 3)), 30, "at least 91 points, not 90"),
        (np.zeros((0, 3)), 30, "shape"),
        (np.zeros((100, 0)), 30, "shape"),
        (np.zeros(100), 30, "shape"),
        (np.full((100, 3), np.nan), 30, "NaN"),
        (np.where(np.eye(100, 3) > 0, np.inf, 0), 30, "infinity"),
        (np.zeros((100, 3)), 1, "above 1"),
        (np.zeros((100, 3)), math.nan, "above 1"),
        (np.zeros((100, 3)), math.inf, "above 1"),
    ],
)
def test_one_line_for_points_that_have_no_map(points: np.ndarray, perplexity: float, says: str) -> None:
    with pytest.raises(HilpError, match=says):
        tsne.tsne(points, perplexity)


def test_the_fewest_points_it_asks_for_are_enough() -> None:
    points = np.random.default_rng(10).normal(size=(tsne.least_points(2.5), 3))
    assert len(points) == 9
    assert np.isfinite(tsne.tsne(points, 2.5)).all()
