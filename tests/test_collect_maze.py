from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp.collectors import collecting
from hilp.collectors.maze import ARRIVED, KINDS, Followers, routes
from hilp.collectors.maze import walks as collect
from hilp.errors import HilpError
from hilp.tasks import maze
from hilp.tasks.maze import STEP, Maze

ALL_KINDS = sorted(KINDS)


@pytest.fixture(scope="module")
def large() -> Maze:
    return maze.make("maze-large")


def test_the_kinds() -> None:
    assert set(KINDS) == {"navigate", "explore", "stitch"}


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("steps", [1, 2, 7, 200, 201, 301, 12_345])
def test_exact_counts_and_compact_layout(kind: str, steps: int, large: Maze) -> None:
    data = collect(large, kind, steps, seed=0)
    lengths = data["episode_lengths"]
    assert lengths.dtype == np.int64 and data["observations"].dtype == data["actions"].dtype == np.float32
    assert (lengths >= 2).all()
    assert (lengths - 1).sum() == steps
    assert data["observations"].shape == data["actions"].shape == (lengths.sum(), 2)
    assert (data["actions"][np.cumsum(lengths) - 1] == 0).all()
    assert (abs(data["actions"]) <= 1).all()


@pytest.mark.parametrize("name", sorted(maze.MAZES))
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_the_simulator_reproduces_every_stored_step(kind: str, name: str) -> None:
    world = maze.make(name)
    data = collect(world, kind, 20_000, seed=1)
    last = np.cumsum(data["episode_lengths"]) - 1
    rows = np.delete(np.arange(len(data["observations"])), last)
    after = world.step(data["observations"][rows], data["actions"][rows]).astype(np.float32)
    assert (after == data["observations"][rows + 1]).all()
    assert world.valid(data["observations"]).all()


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_seed_decides_everything(kind: str, large: Maze) -> None:
    one, two, other = (collect(large, kind, 3000, seed) for seed in (5, 5, 6))
    for name in one:
        assert (one[name] == two[name]).all()
    assert (one["observations"] != other["observations"]).any()


@pytest.mark.parametrize("name", sorted(maze.MAZES))
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_every_free_cell_is_visited(kind: str, name: str) -> None:
    world = maze.make(name)
    visits = np.bincount(world.cell(collect(world, kind, 50_000, 0)["observations"]), minlength=len(world.free_cells))
    assert visits.min() >= 10


def test_data_of_one_way_mazes_goes_through_doors_one_way() -> None:
    world = maze.make("maze-oneway")
    for kind in ALL_KINDS:
        data = collect(world, kind, 30_000, 0)
        cells = world.cell(data["observations"])
        inside = np.flatnonzero(world.cells[tuple(world.free_cells[cells].T)] == "v")
        rows = np.setdiff1d(inside, np.cumsum(data["episode_lengths"]) - 1)
        down = np.floor(data["observations"][rows, 1]) - np.floor(data["observations"][rows + 1, 1])
        assert (down == 1).sum() > 20 and set(down.tolist()) <= {0.0, 1.0}, kind


def test_followers_travel_far_and_stitched_episodes_do_not(large: Maze) -> None:
    def travel(kind: str) -> np.ndarray:
        """The longest cell path from an episode's start to any of its states, for each full episode."""
        data = collect(large, kind, 40_000, seed=0)
        rows = data["episode_lengths"][0]
        cells = large.cell(data["observations"])[: len(data["observations"]) // rows * rows].reshape(-1, rows)
        return large.cell_steps[cells[:, :1], cells].max(axis=1)

    assert np.mean(travel("navigate")) > 9
    stitch = travel("stitch")
    assert 3 < stitch.mean() < 5 and stitch.max() <= 12
    assert KINDS["stitch"].episode_steps * STEP < 5


def test_followers_arrive_at_their_goals(large: Maze) -> None:
    rng = np.random.default_rng(0)
    followers, xy = Followers(large, rng), large.starts(rng, 50)
    followers.start(xy)
    goals, nearest = followers.goals.copy(), np.full(50, np.inf)
    for _ in range(300):
        nearest = np.minimum(nearest, np.linalg.norm(xy - goals, axis=1))
        xy = large.step(xy, followers.intend(xy))
    assert (nearest <= ARRIVED).all()


def test_progress_counts_up_to_the_total(large: Maze) -> None:
    seen: list[int] = []
    collect(large, "stitch", 30_001, seed=0, progress=seen.append)
    assert seen == sorted(seen) and seen[-1] == 30_001 and len(seen) == 3


@pytest.mark.parametrize("name", ["maze-four-rooms", "maze-oneway"])
def test_routes_are_shortest(name: str) -> None:
    world = maze.make(name)
    ahead = routes(world, np.random.default_rng(0))
    goals, cells = np.indices(ahead.shape)
    away = goals != cells
    assert (ahead[~away] == cells[~away]).all()
    assert (world.cell_steps[ahead, goals][away] == world.cell_steps[cells, goals][away] - 1).all()
    assert (world.cell_steps[cells, ahead][away] == 1).all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        *(({"steps": odd}, "steps must be a whole number") for odd in (float("nan"), 2.5, "5", True)),
        ({"steps": 10**30}, "steps must be at most"),
        ({"seed": -1}, "seed must be at least 0"),
        *(({"seed": odd}, "seed must be a whole number") for odd in (float("nan"), None)),
    ],
)
def test_numbers_that_make_no_sense_are_told(options: dict[str, Any], says: str) -> None:
    for make in (hilp.load, hilp.collect):
        with pytest.raises(HilpError, match=says):
            make("maze-medium", **options)


def test_numbers_of_numpy_are_numbers() -> None:
    made = hilp.load("maze-medium", steps=np.int64(50), seed=np.int32(3))
    assert made.fingerprint == hilp.load("maze-medium", steps=50, seed=3).fingerprint


def test_mistakes_are_named(large: Maze) -> None:
    with pytest.raises(HilpError, match="did you mean 'navigate'"):
        hilp.collect(large, "navigat", 10, 0)
    for steps in (0, -3):
        with pytest.raises(HilpError, match="at least 1"):
            hilp.collect(large, "explore", steps, 0)


def test_a_mistake_does_not_stand_in_the_way_of_the_corrected_command(tmp_path: Path) -> None:
    with pytest.raises(HilpError, match="no such kind"), collecting.collection(tmp_path / "out", {"kind": "wrong"}):
        raise HilpError("no such kind")
    assert not list(tmp_path.iterdir())
    with collecting.collection(tmp_path / "out", {"kind": "right"}) as shards:
        assert shards.episodes() == 0
