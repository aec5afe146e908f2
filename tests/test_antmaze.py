from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilp import tasks
from hilp.errors import HilpError
from hilp.tasks import antmaze
from hilp.tasks.antmaze import AntMaze

# Not imported here: the task chooses how MuJoCo draws before its first import.
if not all(importlib.util.find_spec(package) for package in ("mujoco", "ogbench")):
    pytest.skip("needs the simulators", allow_module_level=True)

U_MAP = "#####\n#...#\n###.#\n#...#\n#####"


@pytest.fixture(scope="module")
def large() -> AntMaze:
    return antmaze.make("antmaze-large-diverse")


@pytest.fixture(scope="module")
def ultra() -> AntMaze:
    return antmaze.make("antmaze-ultra-play")


@pytest.fixture(scope="module")
def small() -> AntMaze:
    return antmaze.make(antmaze.MAP_PREFIX + U_MAP)


@pytest.fixture(scope="module")
def ogbench(large: AntMaze) -> Any:
    assert large.model.nu == 8  # the task has imported MuJoCo, and chosen how it draws, before OGBench does
    from ogbench.locomaze.maze import make_maze_env

    return make_maze_env("ant", "maze", maze_type="large")


def test_the_large_map_is_ogbenchs_cell_by_cell(large: AntMaze, ogbench: Any) -> None:
    assert (large.walls == (ogbench.maze_map == 1)).all()
    for row, column in itertools.product(range(9), range(12)):
        assert large.centres(np.array([row, column])).tolist() == list(ogbench.ij_to_xy((row, column)))
    inside = np.random.default_rng(0).uniform([-5.9, -5.9], [41.9, 29.9], (200, 2))
    assert antmaze.cells_of(inside, large.walls).tolist() == [list(ogbench.xy_to_ij(xy)) for xy in inside]


def test_the_walls_stand_where_ogbench_puts_them(large: AntMaze, ogbench: Any) -> None:
    ours, theirs = large.model, ogbench.model
    walls = [name for name in (theirs.geom(i).name for i in range(theirs.ngeom)) if name.startswith("block_")]
    assert len(walls) == large.walls.sum() == 62
    for name in [*walls, "floor"]:
        assert ours.geom(name).pos.tolist() == theirs.geom(name).pos.tolist()
        assert ours.geom(name).size.tolist() == theirs.geom(name).size.tolist()


def test_physics_are_ogbenchs_to_the_bit(large: AntMaze, ogbench: Any) -> None:
    ogbench.reset(seed=0)
    rng = np.random.default_rng(1)
    start = large.resets(rng, np.array([[0.5, 6.0]]))[0]  # beside a wall, so that contacts count
    running = large.episodes(rng, 1, start=start)
    ogbench.set_state(start[:15], start[15:])
    assert running.states[0].tolist() == ogbench.get_ob().tolist()
    for action in rng.uniform(-1.5, 1.5, (60, 8)):
        running.step(action[None])
        assert running.states[0].tolist() == ogbench.step(action.clip(-1, 1))[0].tolist()
    assert ogbench.dt == pytest.approx(0.1)


def test_an_observation_is_qpos_then_qvel(large: AntMaze) -> None:
    state = np.arange(29, dtype=np.float64) / 100
    state[3:7] = 1, 0, 0, 0
    running = large.episodes(np.random.default_rng(0), 1, start=state)
    data = running._data[0]
    assert running.observations.dtype == np.float32 and running.observations.shape == (1, 29)
    assert data.qpos.tolist() == state[:15].tolist() and data.qvel.tolist() == state[15:].tolist()
    assert running.observations[0].tolist() == state.astype(np.float32).tolist()
    assert (large.observation_dim, large.action_dim) == (large.model.nq + large.model.nv, large.model.nu) == (29, 8)


def test_large_starts_and_goals_are_d4rls(large: AntMaze) -> None:
    running = large.episodes(np.random.default_rng(0), 400)
    starts, goals = running.observations[:, :2], running.goals[:, :2] - (32.0, 24.0)
    assert (
        abs(starts).max() <= 0.1
        and abs(starts).max() > 0.099
        and starts.std() == pytest.approx(0.2 / 12**0.5, rel=0.06)
    )
    # U(0, 1) + U(0, 0.5) on each axis: mean 0.75, variance (1 + 0.25) / 12
    assert goals.min() >= 0 and goals.max() <= 1.5
    assert goals.mean(axis=0) == pytest.approx([0.75, 0.75], abs=0.06)
    assert goals.var(axis=0) == pytest.approx([1.25 / 12, 1.25 / 12], rel=0.2)
    assert abs(np.corrcoef(goals.T)[0, 1]) < 0.2
    assert large.max_steps == 1000 and not running.reached().any()


def test_reset_noise_is_the_simulators(large: AntMaze) -> None:
    states = large.resets(np.random.default_rng(0), np.zeros((2000, 2)))
    noise = states - large.standing
    assert abs(noise[:, :15]).max() <= 0.1 and noise[:, :15].std() == pytest.approx(0.2 / 12**0.5, 0.02)
    assert noise[:, 15:].std() == pytest.approx(0.1, 0.02) and abs(noise[:, 15:]).max() > 0.3
    assert large.standing[:7].tolist() == [0, 0, 0.75, 1, 0, 0, 0] and not large.standing[7:].any()


def test_ultra_draws_one_goal_for_all_episodes(ultra: AntMaze) -> None:
    goals = np.stack([ultra.episodes(np.random.default_rng(seed), 3).goals[:, :2] for seed in range(300)])
    assert (goals == goals[:, :1]).all()
    noise = goals[:, 0] - (52.0, 36.0)  # cell (10, 14)
    # U(-1, 0) + U(0, 0.5)
    assert noise.min() >= -1 and noise.max() <= 0.5
    assert noise.mean(axis=0) == pytest.approx([-0.25, -0.25], abs=0.06)
    assert len(np.unique(noise[:, 0])) == 300
    assert ultra.max_steps == 2000


def test_the_ultra_map(ultra: AntMaze) -> None:
    assert ultra.walls.shape == (12, 16) and len(ultra.free_cells) == 89
    assert not ultra.walls[1, 1] and not ultra.walls[10, 14]
    free = ~ultra.walls
    assert free.sum(axis=1).tolist() == [0, 13, 6, 8, 7, 12, 8, 7, 12, 6, 10, 0]
    assert free.sum(axis=0).tolist() == [0, 8, 6, 6, 4, 9, 3, 9, 4, 9, 5, 5, 7, 6, 8, 0]


def test_every_name_is_evaluated_as_its_map() -> None:
    assert set(antmaze.NAMES) == {f"antmaze-{m}{k}" for m in ("large", "ultra") for k in ("", "-diverse", "-play")}
    for name in antmaze.NAMES:
        world = antmaze.make(name)
        assert world.name == world.task == name
        assert world.max_steps == (1000 if "large" in name else 2000)
        assert world.potentials == {} and world.finite() is None


def test_a_goal_is_the_target_and_the_body_of_the_first_observation(large: AntMaze) -> None:
    plain = large.episodes(np.random.default_rng(0), 4)
    assert (plain.goals[:, 2:] == large.standing[2:].astype(np.float32)).all()
    first = np.random.default_rng(5).standard_normal(29).astype(np.float32)
    posed = large.for_data(first).episodes(np.random.default_rng(0), 4)
    assert (posed.goals[:, 2:] == first[2:]).all()
    assert (posed.goals[:, :2] == plain.goals[:, :2]).all()
    assert (large.episodes(np.random.default_rng(0), 4).goals == plain.goals).all(), "the original is left alone"


@pytest.mark.parametrize(("distance", "reached"), [(0.0, True), (0.4999, True), (0.5, True), (0.5001, False)])
def test_success_is_half_a_metre(large: AntMaze, distance: float, reached: bool) -> None:
    running = large.episodes(np.random.default_rng(0), 1, start=np.array([0.0, distance]), goal=np.array([0.0, 0.0]))
    assert running.reached().tolist() == [reached]


def test_episodes_depend_on_the_seed_only(large: AntMaze) -> None:
    actions = np.random.default_rng(3).uniform(-1, 1, (20, 3, 8))

    def run(world: AntMaze, seed: int) -> np.ndarray:
        running = world.episodes(np.random.default_rng(seed), 3)
        for action in actions:
            running.step(action)
        return running.states

    assert (run(large, 0) == run(large, 0)).all()
    assert (run(large, 0) == run(antmaze.make("antmaze-large").with_threads(2), 0)).all()
    assert (run(large, 0) != run(large, 1)).any()


def test_an_episode_rests_at_its_goal_until_it_is_told_to_move(large: AntMaze) -> None:
    here = np.array([0.0, 0.0])
    running = large.episodes(np.random.default_rng(0), 2, start=here, goal=here)
    before = running.states.copy()
    running.step(np.stack([np.zeros(8), np.full(8, 0.5)]))
    assert (running.states[0] == before[0]).all() and (running.states[1] != before[1]).any()
    elsewhere = large.episodes(np.random.default_rng(0), 1, start=here)
    elsewhere.step(np.zeros((1, 8)))
    assert (elsewhere.states[0] != before[0]).any(), "an ant that has not arrived falls to the ground"


def test_a_map_of_the_users_own(small: AntMaze, tmp_path: Path) -> None:
    running = small.episodes(np.random.default_rng(0), 300)
    starts, goals = (small.free_cell(x[:, :2]) for x in (running.observations, running.goals))
    assert set(starts) == set(goals) == set(range(7))
    assert (starts != goals).all()
    assert (running.goals[:, :2] == small.centres(small.free_cells[goals]).astype(np.float32)).all()
    assert abs(running.observations[:, :2] - small.centres(small.free_cells[starts])).max() <= 0.1 + 1e-6
    assert small.max_steps == 1000
    (tmp_path / "bend.txt").write_text(U_MAP.replace("#", "1").replace(".", "0"))
    from_file = antmaze.make(str(tmp_path / "bend.txt"))
    assert from_file.name == "bend" and from_file.map_text == small.map_text
    assert antmaze.make(antmaze.MAP_PREFIX + str(tmp_path / "bend.txt")).map_text == small.map_text
    assert tasks.make(small.task).map_text == antmaze.make(small.task).map_text == small.map_text == U_MAP


def test_long_ways_of_own_maps_get_more_time(large: AntMaze) -> None:
    assert large.cell_steps.max() == antmaze.LARGE_LONGEST_WAY
    for cells, steps in ((20, 1000), (21, 2000), (39, 2000), (40, 3000)):
        line = "#" * (cells + 2)
        assert antmaze.make(f"{line}\n#{'.' * cells}#\n{line}").max_steps == steps


def test_walls_stop_the_ant(small: AntMaze) -> None:
    running = small.episodes(np.random.default_rng(0), 8)
    rng = np.random.default_rng(0)
    for _ in range(50):
        running.step(rng.choice([-1.0, 1.0], (8, 8)))
        assert (small.free_cell(running.states[:, :2]) >= 0).all()
    assert (small.free_cell(np.array([[0.0, 4.0], [-4.0, 0.0], [1e4, 0.0], [-1e4, -1e4]])) == -1).all()


def test_mistakes_are_told(large: AntMaze, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for action, message in (
        (lambda: antmaze.make("antmaze-lage-diverse"), "did you mean 'antmaze-large-diverse'"),
        (lambda: antmaze.make("antmaze:nowhere.txt"), "unknown antmaze"),
        (lambda: antmaze.make("###\n#.#\n###"), "only one free cell"),
        (lambda: large.episodes(rng, 1, start=np.zeros(5)), "must be an observation of 29 numbers or x,y"),
        (lambda: large.episodes(rng, 1, start=np.array([16.0, 0.0])), "no free position"),
        (lambda: large.episodes(rng, 1, goal=np.array([np.nan, 0.0])), "no free position"),
        (lambda: large.for_data(np.zeros(27)), "29 finite numbers"),
        (lambda: large.potential_max("right"), "no named rewards"),
    ):
        with pytest.raises(HilpError, match=message):
            action()
    (tmp_path / "open.txt").write_text("##\n..")
    with pytest.raises(HilpError, match=r"open\.txt.*border"):
        antmaze.make(str(tmp_path / "open.txt"))


def test_a_missing_simulator_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(HilpError, match=r"pip install 'hilp\[mujoco\]'"):
        antmaze.make("antmaze-large").episodes(np.random.default_rng(0), 1)


def test_drawn_walls_and_places_agree(large: AntMaze) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    large.draw(ax)
    (image,) = ax.get_images()
    left, right, bottom, top = image.get_extent()
    pixels = np.asarray(image.get_array())
    observations = large.resets(np.random.default_rng(0), large.centres(large.free_cells))
    x, y = large.place(observations).T
    columns = ((x - left) / (right - left) * pixels.shape[1]).astype(int)
    rows = ((y - bottom) / (top - bottom) * pixels.shape[0]).astype(int)
    assert image.origin == "lower"
    assert not pixels[rows, columns].any() and len(set(zip(rows, columns, strict=True))) == 46


def test_pictures_show_the_ant(large: AntMaze) -> None:
    states = large.resets(np.random.default_rng(0), np.array([[0.0, 0.0], [36.0, 24.0]]))
    try:
        first, second = large.frames(states)
    except HilpError as error:
        pytest.skip(str(error))
    assert first.shape == (360, 480, 3) and first.dtype == np.uint8
    # Cell (1, 1) is at the lower left of the picture, cell (7, 10) at the upper right; only the ant is orange.
    for picture, row, column in ((first, 0.8, 0.16), (second, 0.2, 0.84)):
        orange = np.argwhere(picture[..., 0].astype(int) - picture[..., 2] > 40) / picture.shape[:2]
        assert len(orange) > 10
        assert orange.mean(axis=0) == pytest.approx([row, column], abs=0.05)
    (behind,) = large.frames(states[:1], height=700, width=700, follow=True)
    assert behind.shape == (700, 700, 3)
