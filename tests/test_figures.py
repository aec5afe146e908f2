"""Every figure draws, and what it draws is what it was given."""

from __future__ import annotations

import base64
import importlib.util
import io
import subprocess
import sys
import warnings
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection, PolyCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle
from scipy.linalg import orthogonal_procrustes

from hilp.errors import HilpError
from hilp.report import figures
from hilp.report.figures import maps

needs_sklearn = pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="needs hilp[plots]")


class Corridor:
    """A U of three arms, 3 by 3 cells; observations carry a third number that no picture shows."""

    def draw(self, ax: Axes) -> None:
        ax.add_patch(Rectangle((1, 1), 1, 2, color="#444"))
        ax.set(xlim=(0, 3), ylim=(0, 3), xticks=[], yticks=[], aspect="equal")

    def place(self, observations: np.ndarray) -> np.ndarray:
        return observations[:, :2]


TASK = Corridor()
GRID = np.stack(np.meshgrid(np.arange(0.1, 3, 0.2), np.arange(0.1, 3, 0.2)), axis=-1).reshape(-1, 2)
FREE = GRID[~((GRID[:, 0] > 1) & (GRID[:, 0] < 2) & (GRID[:, 1] > 1))]
STATES = np.column_stack([FREE, np.ones(len(FREE))])


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """A layout that collapses or a missing glyph is a warning in matplotlib, and a bad figure to us."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def rendered(fig: Figure) -> np.ndarray:
    """The figure's pixels, as a page would show them."""
    assert isinstance(fig, Figure)
    head, _, data = figures.png_data_uri(fig).partition(",")
    assert head == "data:image/png;base64"
    pixels = imread(io.BytesIO(base64.b64decode(data)))[..., :3]
    assert pixels.std() > 0.02  # not blank
    assert (pixels[[0, -1]] == 1).all()  # a white margin: nothing is cut off above or below
    return pixels


def titles(fig: Figure) -> list[str]:
    return [ax.get_title(loc="left") for ax in fig.axes]


def of_kind(ax: Axes, kind: type) -> list:
    return [artist for artist in ax.get_children() if type(artist) is kind]


def trials(n: int, successes: int) -> tuple:
    rng = np.random.default_rng(n)
    paths = [STATES[rng.integers(len(STATES), size=5 + i)] for i in range(n)]
    return paths, [p[0] for p in paths], [p[-1] for p in paths], np.arange(n) < successes


@pytest.mark.parametrize("successes", [0, 2, 6])
def test_trajectories_colour_by_outcome(successes: int) -> None:
    fig = figures.trajectories(TASK, {"Six tries": trials(6, successes)})
    (ax,) = fig.axes
    reached, failed = of_kind(ax, LineCollection)
    assert [len(reached.get_segments()), len(failed.get_segments())] == [successes, 6 - successes]
    marks = [line for line in ax.lines if line.get_marker() in ("o", "*")]
    assert [len(line.get_xdata()) for line in marks] == [successes, successes, 6 - successes, 6 - successes]
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 3), (0, 3))
    assert titles(fig) == ["Six tries"]
    rendered(fig)


def test_trajectories_keep_their_places() -> None:
    paths, *rest = trials(1, 1)
    fig = figures.trajectories(TASK, {"One": (paths, *rest)})
    (segment,) = of_kind(fig.axes[0], LineCollection)[0].get_segments()
    np.testing.assert_allclose(segment, paths[0][:, :2])


@pytest.mark.parametrize("panels", [1, 3, 4, 5])
def test_trajectories_have_a_panel_per_prompt(panels: int) -> None:
    fig = figures.trajectories(TASK, {f"plan {i}": trials(5, i) for i in range(panels)}, "Prompts")
    assert titles(fig) == [f"plan {i}" for i in range(panels)]
    assert [ax.get_title(loc="right") for ax in fig.axes] == [f"{i} of 5" for i in range(panels)]
    assert fig.get_suptitle() == "Prompts"
    rendered(fig)


def test_distance_field_fills_the_floor_and_not_the_wall() -> None:
    distances = np.arange(len(STATES), dtype=float)
    fig = figures.distance_fields(TASK, STATES, {"": distances}, STATES[3])
    ax = fig.axes[0]
    (squares,) = of_kind(ax, PolyCollection)
    boxes = np.array([path.vertices[:4] for path in squares.get_paths()])
    np.testing.assert_allclose(boxes.mean(axis=1), FREE, atol=1e-9)
    np.testing.assert_allclose(np.ptp(boxes, axis=1), 0.2, atol=1e-9)
    wall = (boxes[..., 0] > 1.001) & (boxes[..., 0] < 1.999) & (boxes[..., 1] > 1.001)
    assert not wall.any()
    np.testing.assert_array_equal(squares.get_array(), distances)
    (star,) = [line for line in ax.lines if line.get_marker() == "*"]
    np.testing.assert_allclose(star.get_xydata(), FREE[3:4])
    (bar,) = ax.child_axes
    assert "latent steps" in bar.get_ylabel()
    rendered(fig)


def test_distance_fields_share_one_scale() -> None:
    near, far = np.linspace(0, 5, len(STATES)), np.linspace(0, 20, len(STATES))
    near[:4] = np.nan
    far[0] = np.inf
    fig = figures.distance_fields(TASK, STATES, {"learned": near, "exact": far}, STATES[0], "Distances")
    assert titles(fig)[:2] == ["learned", "exact"]
    fields = [of_kind(ax, PolyCollection)[0] for ax in fig.axes[:2]]
    assert [field.get_clim() for field in fields] == [(0, 20), (0, 20)]
    rendered(fig)
    grey = fields[0].get_facecolors()[:5, :3]
    assert np.ptp(grey[:4], axis=1).max() < 0.1 < np.ptp(grey[4])


def test_latent_map_finds_a_turned_plan_again() -> None:
    turned = FREE @ np.array([[0, 3.0], [3.0, 0]]) + 7  # mirrored along the diagonal, three times as large
    phi = np.hstack([np.zeros((len(FREE), 4)), turned])
    fig = figures.latent_map(TASK, STATES, phi, flatten="pca")
    plan, cloud = fig.axes
    (dots,) = of_kind(cloud, PathCollection)
    (squares,) = of_kind(plan, PolyCollection)
    assert len(squares.get_paths()) == len(STATES)
    drawn = np.asarray(dots.get_offsets())
    expected = 3 * (FREE - FREE.mean(axis=0))
    np.testing.assert_allclose(
        drawn[np.lexsort(drawn.round(6).T)], expected[np.lexsort(expected.round(6).T)], atol=1e-6
    )
    assert (cloud.get_title(loc="left"), cloud.get_title(loc="right")) == ("latents (PCA)", "100% of the variance")
    # The same place has the same colour on both sides.
    place = {tuple(p): tuple(c) for p, c in zip(expected.round(3), squares.get_facecolors(), strict=True)}
    assert {tuple(p): tuple(c) for p, c in zip(drawn.round(3), dots.get_facecolors(), strict=True)} == place
    assert len(set(place.values())) == len(place)
    rendered(fig)


@pytest.mark.parametrize("dim", [1, 2, 32])
def test_latent_map_of_any_dimension(dim: int) -> None:
    phi = np.random.default_rng(dim).normal(size=(len(STATES), dim))
    fig = figures.latent_map(TASK, STATES, phi, flatten="pca")
    share = np.sort(np.linalg.eigvalsh(np.atleast_2d(np.cov(phi.T))))[::-1]
    assert fig.axes[1].get_title(loc="right").startswith(f"{share[:2].sum() / share.sum():.0%}")
    rendered(fig)


def flattened(fig: Figure) -> tuple[np.ndarray, np.ndarray]:
    """The dots of a latent map [n, 2], and the places [n, 2] that have their colours on the plan."""
    plan, cloud = fig.axes
    (dots,) = of_kind(cloud, PathCollection)
    (squares,) = of_kind(plan, PolyCollection)
    where = {tuple(c): xy for c, xy in zip(squares.get_facecolors(), FREE, strict=True)}
    return np.asarray(dots.get_offsets()), np.array([where[tuple(c)] for c in dots.get_facecolors()])


def test_latent_map_turns_what_tsne_finds_to_lie_like_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    turned = np.array([[0.0, -2.0], [-2.0, 0.0]])  # mirrored along the other diagonal, twice as large
    monkeypatch.setattr(maps, "tsne", lambda phi: phi[:, :2])
    fig = figures.latent_map(TASK, STATES, np.column_stack([(FREE - FREE.mean(axis=0)) @ turned, FREE]))
    assert titles(fig) == ["places", "latents (t-SNE)"]
    drawn, places = flattened(fig)
    np.testing.assert_allclose(drawn, 2 * (places - FREE.mean(axis=0)), atol=1e-9)
    _, cloud = fig.axes
    assert cloud.get_title(loc="right") == f"{len(STATES)} points"
    assert not any(label.get_text() for label in (*cloud.get_xticklabels(), *cloud.get_yticklabels()))
    rendered(fig)


@needs_sklearn
@pytest.mark.parametrize("seed", [0, 1])
def test_latent_map_by_tsne_lies_like_the_plan(seed: int) -> None:
    """Over forty seeds, on kernels of OpenBLAS with and without AVX-512, these were never below 0.96 and 8.7."""
    points = np.random.default_rng(seed).uniform(0, 1, (150, 2)) * [4, 2]
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(5, 5)))[0][:2]
    flat = maps.tsne((points - points.mean(axis=0)) @ turn, seed)
    assert flat.shape == (150, 2) and flat.dtype == np.float64
    flat = flat @ orthogonal_procrustes(flat, points - points.mean(axis=0))[0]
    for axis in range(2):  # left stays left, below stays below
        assert np.corrcoef(flat[:, axis], points[:, axis])[0, 1] > 0.7
    near, still = (np.argsort(np.linalg.norm(x[:, None] - x, axis=-1), axis=1)[:, 1:11] for x in (points, flat))
    assert np.mean([len({*a} & {*b}) for a, b in zip(near, still, strict=True)]) > 6, "of ten neighbours"


@needs_sklearn
@pytest.mark.parametrize("scale", [1e-150, 1e300])
def test_the_same_points_in_any_unit_give_the_same_map(scale: float) -> None:
    points = np.random.default_rng(6).normal(size=(100, 8))
    flat = maps.tsne(points)
    np.testing.assert_array_equal(flat, maps.tsne(points))
    moved = maps.tsne(points * scale)
    assert np.isfinite(moved).all() and moved.std() == pytest.approx(flat.std(), rel=0.5)


@pytest.mark.parametrize(
    ("points", "dim", "flatten", "installed", "name"),
    [
        (len(STATES), 2, None, True, "latents (PCA)"),
        (len(STATES), 3, None, True, "latents (t-SNE)"),
        (len(STATES), 3, None, False, "latents (PCA)"),
        (91, 3, None, True, "latents (t-SNE)"),
        (90, 3, None, True, "latents (PCA)"),  # too few for the perplexity
        (91, 2, "tsne", True, "latents (t-SNE)"),
        (91, 3, "pca", True, "latents (PCA)"),
    ],
)
def test_latent_map_flattens_by_dimension_and_says_how(
    points: int,
    dim: int,
    flatten: maps.Flatten | None,
    installed: bool,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maps, "tsne", lambda x: x[:, :2])
    monkeypatch.setattr(maps, "has_tsne", lambda: installed)
    phi = np.random.default_rng(0).normal(size=(points, dim))
    assert titles(figures.latent_map(TASK, STATES[:points], phi, flatten=flatten))[1] == name


def test_tsne_without_scikit_learn_or_with_few_points_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    few = np.random.default_rng(0).normal(size=(90, 3))
    if importlib.util.find_spec("sklearn"):
        with pytest.raises(HilpError, match="at least 91 points, not 90"):
            figures.latent_map(TASK, STATES[:90], few, flatten="tsne")
    monkeypatch.setattr(maps, "has_tsne", lambda: False)
    with pytest.raises(HilpError, match=r"pip install 'hilp\[plots\]'"):
        figures.latent_map(TASK, STATES[:90], few, flatten="tsne")


def test_latent_map_by_tsne_draws_some_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "TSNE_POINTS", 100)
    monkeypatch.setattr(maps, "tsne", lambda x: x[:, :2])
    phi = np.random.default_rng(0).normal(size=(len(STATES), 4))
    fig = figures.latent_map(TASK, STATES, phi, flatten="tsne")
    plan, cloud = fig.axes
    assert cloud.get_title(loc="right") == f"100 of {len(STATES)} points"
    (dots,) = of_kind(cloud, PathCollection)
    assert len(dots.get_offsets()) == len(np.unique(dots.get_facecolors(), axis=0)) == 100
    assert len(of_kind(plan, PolyCollection)[0].get_paths()) == len(STATES), "all places, and their colours"
    every = {tuple(colour) for colour in of_kind(plan, PolyCollection)[0].get_facecolors()}
    assert {tuple(colour) for colour in dots.get_facecolors()} <= every


@pytest.mark.parametrize("flatten", [pytest.param("tsne", marks=needs_sklearn), "pca"])
def test_latent_map_of_collapsed_latents(flatten: maps.Flatten) -> None:
    rendered(figures.latent_map(TASK, STATES, np.ones((len(STATES), 8)), flatten=flatten))


def test_text_from_outside_is_no_formula() -> None:
    odd = r"$\frac{$ <b> " + 300 * "x "
    fig = figures.bars([odd], [1], [0], [2], odd)
    assert len(fig.axes[0].get_title(loc="left")) < 150
    rendered(fig)
    rendered(figures.curves({odd: ([1, 2], [1, 2]), "b": ([1], [1])}, odd, "y"))


def test_scattered_places_are_large_enough_to_see() -> None:
    """Squares as wide as the nearest points are apart would cover a fifth of the floor; these cover most of it."""
    places = np.random.default_rng(0).uniform(0, 3, (900, 3))
    fig = figures.distance_fields(TASK, places, {"": np.ones(900)}, places[0])
    boxes = np.array([path.vertices[:4] for path in of_kind(fig.axes[0], PolyCollection)[0].get_paths()])
    low, high = boxes.min(axis=1), boxes.max(axis=1)
    floor = np.random.default_rng(1).uniform(0.2, 2.8, (1000, 1, 2))
    assert 0.4 < ((floor > low) & (floor < high)).all(axis=-1).any(axis=1).mean() < 0.8
    one = figures.distance_fields(TASK, places[:1], {"": np.ones(1)}, places[0])
    two = figures.distance_fields(TASK, places[:2], {"": np.ones(2)}, places[0])
    for fig in (one, two):
        rendered(fig)


def test_success_by_depth_in_percent() -> None:
    fig = figures.success_by_depth(
        ["0", "1", "3", "auto"], [0.5, 0.6, 0.8, 1.0], [0.4, 0.5, 0.7, 0.9], [0.6, 0.7, 0.9, 1]
    )
    (ax,) = fig.axes
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1", "3", "auto"]
    assert [t.get_text() for t in ax.texts] == ["50", "60", "80", "100"]
    (spans,) = of_kind(ax, LineCollection)
    np.testing.assert_allclose([s[:, 1] for s in spans.get_segments()], [[40, 60], [50, 70], [70, 90], [90, 100]])
    assert ax.get_ylim()[0] == 0
    rendered(fig)


def test_curves_with_bands() -> None:
    steps = np.arange(0, 5000, 100)
    fig = figures.curves(
        {"value": (steps, np.exp(-steps / 900)), "actor": (steps, np.full(len(steps), 0.5))},
        "Losses",
        "loss",
        bands={"value": (np.exp(-steps / 800), np.exp(-steps / 1000))},
    )
    (ax,) = fig.axes
    assert [line.get_label() for line in ax.lines] == ["value", "actor"]
    assert len([c for c in ax.collections if isinstance(c, PolyCollection)]) == 1
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"value", "actor"}
    fig.draw_without_rendering()
    assert "4k" in {t.get_text() for t in ax.get_xticklabels()}
    rendered(fig)


def test_curves_survive_gaps_and_many_names() -> None:
    steps = np.arange(3)
    fig = figures.curves({f"s{i}": (steps, [i, np.nan, i]) for i in range(9)}, "Many", "y")
    styles = {(line.get_color(), line.get_linestyle()) for line in fig.axes[0].lines}
    assert len(styles) == 9
    rendered(fig)


@pytest.mark.parametrize(
    ("places", "scale", "labels"),
    [
        ([2, 4, 8, 128], "log", ["2", "4", "8", "128"]),
        ([0.5, 0.7, 0.9], "linear", ["0.5", "0.7", "0.9"]),
        ([0, 50, 4000], "linear", ["0", "50", "4k"]),
        ([3], "linear", ["3"]),
    ],
)
def test_curves_over_few_places_mark_them(places: list[float], scale: str, labels: list[str]) -> None:
    fig = figures.curves({"a": (places, np.arange(len(places)))}, "Sweep", "score", xlabel="dim", xticks=places)
    (ax,) = fig.axes
    assert ax.get_xscale() == scale
    fig.draw_without_rendering()
    assert [t.get_text() for t in ax.get_xticklabels()] == labels
    assert not list(ax.get_xticks(minor=True)) and ax.lines[0].get_marker() == "o"
    rendered(fig)


@pytest.mark.parametrize(("largest", "scale"), [(8.0, "linear"), (11.0, "log"), (5e4, "log")])
def test_success_by_error_in_percent(largest: float, scale: str) -> None:
    points = {"dim = 2": ([largest, largest / 2], [0.1, 0.2]), "dim = 8": ([1.0], [0.9])}
    fig = figures.success_by_error(points, -0.5, "Errors", in_order=True)
    (ax,) = fig.axes
    assert ax.get_xscale() == scale
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [10, 20])
    dark, light = (sum(line.get_color()[:3]) for line in ax.lines)
    assert dark < light
    assert ax.texts[0].get_text() == "3 policies, rank correlation −0.50"
    assert [t.get_text() for t in fig.legends[0].get_texts()] == list(points)
    fig.draw_without_rendering()
    low, high = ax.get_xlim()
    assert sum(low <= tick <= high for tick in ax.get_xticks()) >= 2
    rendered(fig)


def test_success_by_error_of_one_policy_and_of_many_names() -> None:
    fig = figures.success_by_error({"hilp": ([0.0], [1.0])}, float("nan"))
    assert fig.axes[0].texts[0].get_text() == "1 policy" and not fig.legends
    rendered(fig)
    fig = figures.success_by_error({f"m{i}": ([i + 1], [0.5]) for i in range(9)}, 0.0)
    assert len({(line.get_color(), line.get_marker()) for line in fig.axes[0].lines}) == 9
    rendered(fig)


def test_curve_grid_keeps_a_names_colour() -> None:
    x = np.arange(4)
    fig = figures.curve_grid({"a": {"one": (x, x)}, "b": {"two": (x, x), "one": (x, -x)}, "c": {"two": (x, x)}})
    colours: dict[str, set[str]] = {}
    for ax in fig.axes:
        for line in ax.lines:
            colours.setdefault(str(line.get_label()), set()).add(line.get_color())
    assert titles(fig) == ["a", "b", "c"]
    assert {name: len(found) for name, found in colours.items()} == {"one": 1, "two": 1}
    assert colours["one"] != colours["two"]
    assert [t.get_text() for t in fig.legends[0].get_texts()] == ["one", "two"]
    rendered(fig)


@pytest.mark.parametrize("n", [1, 50, 5000])
def test_scatter_distance_counts_every_pair(n: int) -> None:
    rng = np.random.default_rng(0)
    exact = rng.integers(0, 150, size=n)
    fig = figures.scatter_distance(exact, exact * 0.8 + rng.random(n), corr=0.9876, curve=0.99)
    (ax,) = fig.axes
    (mesh,) = of_kind(ax, QuadMesh)
    assert np.nansum(mesh.get_array()) == n
    median, ideal = ax.lines
    assert len(median.get_xdata()) == len(np.unique(median.get_xdata()))
    d, y = ideal.get_data()
    np.testing.assert_allclose(y, (1 - 0.99**d) / 0.01)
    assert "0.988" in ax.texts[0].get_text()
    rendered(fig)


def test_scatter_distance_identity_and_no_curve() -> None:
    d = np.arange(20)
    identity = figures.scatter_distance(d, d, 1.0, curve=1.0).axes[0].lines[1]
    np.testing.assert_allclose(identity.get_xdata(), identity.get_ydata())
    assert len(figures.scatter_distance(d, d, 1.0).axes[0].lines) == 1


def test_bars_first_on_top_and_within_the_axes() -> None:
    fig = figures.bars(["right", "left", "up"], [1.0, -0.5, 0.0], [0.8, -0.9, -0.1], [1.4, -0.2, 0.1], "Gain", "reward")
    (ax,) = fig.axes
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == [1.0, -0.5, 0.0]
    top, bottom = ax.get_ylim()[1], ax.get_ylim()[0]
    assert top < bottom
    low, high = ax.get_xlim()
    assert low < -0.9
    assert high > 1.4
    assert [t.get_text() for t in ax.texts] == ["1", "−0.5", "0"]
    rendered(fig)
    rendered(figures.bars(["nothing"], [0], [0], [0], "One"))


def test_same_figure_same_bytes(tmp_path) -> None:
    def draw() -> Figure:
        return figures.bars(["a", "b"], [1, 2], [0.5, 1], [2, 3], "Twice")

    assert figures.png_data_uri(draw()) == figures.png_data_uri(draw())
    for kind in ("png", "svg", "pdf"):
        first = figures.save(draw(), tmp_path / "new" / f"one.{kind}")
        second = figures.save(draw(), str(tmp_path / f"two.{kind}"))
        assert first.read_bytes() == second.read_bytes()
    with pytest.raises(ValueError, match=r"one\.gif"):
        figures.save(draw(), tmp_path / "one.gif")


@pytest.mark.parametrize(
    "call",
    [
        lambda: figures.trajectories(TASK, {"": ([STATES[:3]], STATES[:2], STATES[:1], [True])}),
        lambda: figures.trajectories(TASK, {"": ([STATES[0]], STATES[:1], STATES[:1], [True])}),
        lambda: figures.trajectories(TASK, {}),
        lambda: figures.distance_fields(TASK, STATES, {"": np.ones(3)}, STATES[0]),
        lambda: figures.distance_fields(TASK, STATES, {"": np.full(len(STATES), -1)}, STATES[0]),
        lambda: figures.distance_fields(TASK, STATES, {}, STATES[0]),
        lambda: figures.latent_map(TASK, STATES, np.ones((3, 2))),
        lambda: figures.latent_map(TASK, STATES, np.full((len(STATES), 2), np.nan)),
        lambda: figures.success_by_depth(["0"], [0.5, 0.6], [0, 0], [1, 1]),
        lambda: figures.curves({}, "t", "y"),
        lambda: figures.curves({"a": ([1, 2], [1])}, "t", "y"),
        lambda: figures.curves({"a": ([1], [1])}, "t", "y", bands={"b": ([0], [2])}),
        lambda: figures.curve_grid({}),
        lambda: figures.success_by_error({}, 0.5),
        lambda: figures.success_by_error({"a": ([1, 2], [0.5])}, 0.5),
        lambda: figures.scatter_distance([1, 2], [1], 0.5),
        lambda: figures.scatter_distance([1], [1], 0.5, curve=1.5),
        lambda: figures.bars(["a"], [1], [2], [0], "t"),
    ],
)
def test_wrong_arguments_are_value_errors(call) -> None:
    with pytest.raises(ValueError, match=r"."):
        call()


def test_the_built_in_maze_draws() -> None:
    maze = pytest.importorskip("hilp.tasks.maze").make("maze-medium")
    finite = maze.finite()
    steps = finite.steps[:, 7].astype(float)
    pixels = rendered(figures.distance_fields(maze, finite.observations, {"": steps}, finite.observations[7]))
    assert len(np.unique(pixels.reshape(-1, 3).round(2), axis=0)) > 20
    rendered(figures.latent_map(maze, finite.observations, finite.steps[:, ::50].astype(float)))


def test_no_pyplot_and_no_jax() -> None:
    heavy = "{'matplotlib.pyplot', 'jax', 'sklearn'}"
    command = [sys.executable, "-c", f"import sys, hilp.report.figures; print({heavy} & set(sys.modules))"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_a_task_without_limits_shows_all_of_a_walk() -> None:
    """A task that draws no walls has no place to look at but where the agent was."""
    plain = SimpleNamespace(draw=lambda ax: ax.set(xlabel="x"), place=lambda rows: np.asarray(rows)[:, :2])
    path = np.array([[0.0, 0.0], [7.0, -3.0], [1.0, 1.0]])
    for drawn in (
        figures.trajectories(plain, {"walk": ([path], path[:1], path[-1:], [True])}),  # type: ignore[arg-type]
        figures.earnings(plain, path, [0.0, 1.0, 2.0]),  # type: ignore[arg-type]
    ):
        (left, right), (bottom, top) = drawn.axes[0].get_xlim(), drawn.axes[0].get_ylim()
        assert left <= 0.0 and right >= 7.0 and bottom <= -3.0 and top >= 1.0
