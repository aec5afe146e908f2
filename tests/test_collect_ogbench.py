"""OGBench's data made anew: its recipes, its physics to the bit, its shapes; replayed, resumed, seeded."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import tasks
from hilp.collectors import collect
from hilp.collectors import ogbench as scripts
from hilp.collectors.collecting import script_outcome
from hilp.collectors.maze import routes
from hilp.data.dataset import Dataset
from hilp.errors import HilpError
from hilp.tasks.ogbench import Manipulation, OgbenchMaze, Points
from hilp.tasks.ogbench.task import make_env

if not all(importlib.util.find_spec(package) for package in ("mujoco", "ogbench", "dm_control")):
    pytest.skip("needs the simulators", allow_module_level=True)


@pytest.fixture(scope="module")
def maze() -> OgbenchMaze:
    return tasks.make("pointmaze-medium")


@pytest.fixture(scope="module")
def giant() -> OgbenchMaze:
    return tasks.make("pointmaze-giant")


@pytest.fixture(scope="module")
def cube() -> Manipulation:
    return tasks.make("cube-single")


# ---- points ----------------------------------------------------------------------------------------------------------


def test_points_move_as_in_the_environment_to_the_bit(maze: OgbenchMaze) -> None:
    """Also along walls, in corners and after them: the simulator is skipped only where it would change nothing."""
    rng = np.random.default_rng(0)
    cells = maze.ground.free_cells
    starts = maze.ground.centres(cells)[rng.integers(len(cells), size=12)] + rng.uniform(-1.2, 1.2, (12, 2))
    points = Points(maze.env.model, maze.walls, starts)
    envs = [maze._twin(maze.env) for _ in starts]
    for env, xy in zip(envs, starts, strict=True):
        env.reset(seed=0)
        env.set_xy(xy)
    touched = 0
    for step in range(250):
        if step % 25 == 0:
            headings = rng.uniform(-1, 1, (12, 2))
        actions = (headings + 0.3 * rng.standard_normal((12, 2))).clip(-1, 1).astype(np.float32)
        points.step(actions)
        touched += int(points.touching().sum())
        for i, env in enumerate(envs):
            assert (env.step(actions[i].astype(np.float64))[0] == points.states[i]).all(), (step, i)
    assert 200 < touched < 2800  # of 3000: both ways to move were taken


def test_the_way_is_the_oracles(giant: OgbenchMaze) -> None:
    cells, ahead = giant.ground.free_cells, routes(giant.ground)
    centres, rng = giant.ground.centres(cells), np.random.default_rng(0)
    for here, goal in rng.integers(len(cells), size=(100, 2)):
        at = centres[here] + rng.uniform(-1.9, 1.9, 2)
        subgoal, steps = giant.env.get_oracle_subgoal(at, centres[goal])
        assert (centres[ahead[goal, here]] == subgoal).all()
        assert steps[tuple(cells[here])] == giant.ground.cell_steps[here, goal]


def test_cells_that_are_no_corridor(maze: OgbenchMaze) -> None:
    vertices = {tuple(cell) for cell in maze.ground.free_cells[scripts.vertices(maze.ground)].tolist()}
    assert (1, 1) in vertices and (2, 2) in vertices  # corners of a room
    assert (4, 1) in vertices  # the end of a way
    assert (5, 1) not in vertices and (5, 6) not in vertices  # open above and below alone


@pytest.mark.parametrize(("kind", "rows"), [("navigate", 1001), ("stitch", 201), ("explore", 501)])
def test_episodes_are_as_long_as_ogbenchs(kind: str, rows: int, maze: OgbenchMaze, tmp_path: Path) -> None:
    data = collect(maze, kind, 2 * (rows - 1) + 7, 0, out=tmp_path / kind, workers=1)
    assert data.lengths.tolist() == [rows, rows, 8] and data.transitions == 2 * (rows - 1) + 7
    assert data.name == data.task == f"pointmaze-medium-{kind}" and tasks.make(data.task).name == "pointmaze-medium"
    assert data.observations.dtype == data.actions.dtype == np.float32
    assert np.abs(data.actions).max() <= 1.0 and (np.abs(data.actions) == 1.0).mean() > 0.1
    low, high = -2 + 0.5, 4 * 6 - 4 + 2 + 2.0  # the free cells, and the ball's radius off their walls
    assert data.observations.min() > low and data.observations.max() < high
    steps = np.diff(np.asarray(data.observations), axis=0)[:100]
    assert np.abs(steps).max() <= 0.4 and np.median(np.abs(steps).max(axis=1)) <= 0.2 + 1e-5  # walls push back


def test_giant_episodes_are_twice_as_long(giant: OgbenchMaze) -> None:
    assert scripts.episode_steps(giant, "navigate") == 2000 and scripts.episode_steps(giant, "stitch") == 200


def test_stitch_goes_four_cells_and_stays(maze: OgbenchMaze) -> None:
    collector = scripts.MazeSimulation("pointmaze-medium", "stitch", 0)
    episodes = collector([(number, 200) for number in range(100)])
    went = []
    for episode in episodes:
        start, end = (int(maze.ground.free_cell(episode["observations"][[row]])[0]) for row in (0, -1))
        went.append(maze.ground.cell_steps[start, end])
        assert (episode["target"] == 0).all()
    assert np.mean(np.array(went) == 4) > 0.9
    assert np.mean([episode["target_reached"].any() for episode in episodes]) > 0.85


def test_navigators_take_a_new_goal_on_arrival() -> None:
    (episode,) = scripts.MazeSimulation("pointmaze-medium", "navigate", 0)([(0, 1000)])
    number, reached = episode["target"], episode["target_reached"]
    assert number[-1] >= 3
    assert (np.diff(number)[:] == reached[:-1]).all()  # one more exactly where the last one was reached


def test_stored_actions_lead_through_the_stored_states(maze: OgbenchMaze, tmp_path: Path) -> None:
    """Open loop in the real environment: only the start is rounded to float32."""
    data = collect(maze, "stitch", 400, 1, out=tmp_path / "d", workers=1)
    env = maze._twin(maze.env)
    env.reset(seed=0)
    env.set_xy(data.observations[0].astype(np.float64))
    for row in range(200):
        seen = env.step(data.actions[row].astype(np.float64))[0]
        np.testing.assert_allclose(seen, data.observations[row + 1], atol=1e-4)


# ---- collections -----------------------------------------------------------------------------------------------------


def test_processes_do_not_change_what_is_collected(maze: OgbenchMaze, tmp_path: Path, monkeypatch: Any) -> None:
    alone = collect(maze, "stitch", 60_000, 5, out=tmp_path / "alone", workers=1)
    shared = collect(maze, "stitch", 60_000, 5, out=tmp_path / "shared", workers=2)
    other = collect(maze, "stitch", 60_000, 6, out=tmp_path / "other", workers=1)
    assert alone.fingerprint == shared.fingerprint != other.fingerprint
    assert script_outcome(alone) == script_outcome(shared)


def test_an_interrupted_collection_goes_on(maze: OgbenchMaze, tmp_path: Path) -> None:
    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(maze, "stitch", 120_000, 5, out=tmp_path / "d", progress=stop, workers=1)
    assert not (tmp_path / "d").exists()
    seen: list[int] = []
    resumed = collect(maze, "stitch", 120_000, 5, out=tmp_path / "d", progress=seen.append, workers=1)
    assert seen[0] == 100_000 and seen[-1] == 120_000  # the first piece of 50,000 was kept
    assert resumed.fingerprint == collect(maze, "stitch", 120_000, 5, out=tmp_path / "whole", workers=1).fingerprint


def test_a_collection_that_was_stopped_at_its_very_end_has_no_episode_twice(
    maze: OgbenchMaze, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hilp.collectors.collecting import Shards

    def full_disk(*given: object) -> None:
        raise HilpError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(Shards, "finish", full_disk)
        with pytest.raises(HilpError, match="no space left"):
            collect(maze, "stitch", 500, 0, out=tmp_path / "data", workers=1)
    data = collect(maze, "stitch", 500, 0, out=tmp_path / "data", workers=1)
    assert data.transitions == 500 and data.lengths.tolist() == [201, 201, 101]


def test_targets_are_counted(maze: OgbenchMaze, tmp_path: Path) -> None:
    found = script_outcome(collect(maze, "navigate", 3000, 0, out=tmp_path / "d", workers=1))
    assert found["targets"] == found["targets_reached"] + found["targets_cut_short"]
    assert 0 < found["targets_cut_short"] <= 3 and found["script_success"] < 1.0
    assert script_outcome(collect(maze, "explore", 20, 0, out=tmp_path / "e", workers=1)) == {}
    # Two episodes of 4 and 3 rows: reached, given up, cut short; then one that is reached in the last row.
    number, reached = np.array([0, 0, 1, 2, 0, 0, 0]), np.array([0, 1, 0, 0, 0, 0, 1], bool)
    rows = np.zeros((7, 2), np.float32)
    data = Dataset(rows, rows, np.array([4, 3]), {"target": number, "target_reached": reached})
    told = {"targets": 4, "targets_reached": 2, "targets_cut_short": 1, "script_success": 0.5}
    assert script_outcome(data) == told
    # At no target: before the first, between two, and in an episode's end, so that the one before was not cut short.
    number, reached = np.array([-1, 0, -1, 1, 1, 2, -1]), np.array([0, 1, 0, 0, 0, 0, 0], bool)
    data = Dataset(rows, rows, np.array([4, 3]), {"target": number, "target_reached": reached})
    told = {"targets": 4, "targets_reached": 1, "targets_cut_short": 1, "script_success": 0.25}
    assert script_outcome(data) == told


def test_ants_walk_by_our_controller_in_ogbenchs_physics() -> None:
    collector = scripts.MazeSimulation("antmaze-medium", "stitch", 0)
    episodes = collector([(number, 60) for number in range(4)])
    env = make_env("antmaze-medium-v0")
    env.reset(seed=0)
    for episode in episodes[:2]:
        assert episode["observations"].shape == (61, 29) and episode["actions"].shape == (60, 8)
        assert np.abs(np.diff(episode["observations"][:, :2], axis=0)).sum() > 3  # metres
        state = episode["observations"][20].astype(np.float64)
        env.set_state(state[:15], state[15:])
        seen = env.step(episode["actions"][20])[0]
        np.testing.assert_allclose(seen, episode["observations"][21], atol=2e-2)


def test_points_are_teleported_to_one_of_the_exits() -> None:
    world = tasks.make("pointmaze-teleport")
    told = world.env._teleport_info
    entrance, exits = np.array(told["teleport_in_xys"][0]), np.array(told["teleport_out_xys"])
    near, far = entrance + np.array([[1.4, 0.0], [0.0, 1.6]])  # the radius is 1, and half of it more
    points = Points(world.env.model, world.walls, np.array([near] * 300 + [far]))
    scripts.teleport(world, points, np.random.default_rng(0))
    landed, count = np.unique(points.states[:300], axis=0, return_counts=True)
    np.testing.assert_array_equal(landed, np.unique(exits, axis=0))
    assert count.min() > 70
    np.testing.assert_array_equal(points.states[300], far)
    # The cell that only a teleport leads to is no cell of the ways.
    assert (world.ground.walls & ~world.walls).sum() == 1


def test_mistakes_are_told(maze: OgbenchMaze, cube: Manipulation, tmp_path: Path) -> None:
    assert scripts.kinds(cube) == ("play",) and scripts.kinds(maze)[0] == "navigate"
    with pytest.raises(HilpError, match="did you mean 'stitch'"):
        collect(maze, "stich", 10, 0, out=tmp_path / "x")
    with pytest.raises(HilpError, match="unknown kind of cube-single data 'stitch'"):
        collect(cube, "stitch", 10, 0, out=tmp_path / "x")
    with pytest.raises(HilpError, match="no script for antsoccer-arena"):
        hilp.collect("antsoccer-arena", "stitch", 10, out=tmp_path / "x")
    with pytest.raises(HilpError, match="no script for antmaze-teleport"):
        hilp.collect("antmaze-teleport", steps=10, out=tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_worker_processes_do_not_load_jax() -> None:
    code = "import sys, hilp.collectors.ogbench; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- the arm ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def played() -> tuple[scripts.ArmSimulation, dict[str, np.ndarray]]:
    collector = scripts.ArmSimulation("cube-single", 0)
    return collector, collector([(0, 240)])[0]


def test_play_has_the_columns_of_ogbenchs_files(played: Any) -> None:
    _, episode = played
    shapes = {name: (column.shape, column.dtype.name) for name, column in episode.items()}
    assert shapes == {
        "actions": ((240, 5), "float32"),
        "observations": ((241, 28), "float32"),
        "qpos": ((241, 21), "float32"),
        "qvel": ((241, 20), "float32"),
        "target": ((241,), "int32"),
        "target_reached": ((241,), "bool"),
    }
    assert np.abs(episode["actions"]).max() <= 1.0
    assert episode["target"][-1] >= 2 and episode["target_reached"][: np.argmax(episode["target"] == 2)].any()
    assert np.ptp(episode["observations"][:, 19]) > 0.5  # the cube has been carried, in decimetres


def test_play_is_repeated_by_its_seed_and_leaves_other_generators_alone(played: Any) -> None:
    collector, episode = played
    np.random.seed(3)
    before = np.random.get_state()[1].copy()
    again = collector([(0, 60)])[0]
    assert (np.random.get_state()[1] == before).all()
    assert (again["observations"] == episode["observations"][:61]).all()
    other = collector([(2, 5)])[0]
    assert (other["observations"][0] != episode["observations"][0]).any()


def test_a_played_episode_replayed_open_loop_carries_the_cube_as_it_did(played: Any, cube: Manipulation) -> None:
    """From the stored state of the simulator, in the environment of the evaluation."""
    _, episode = played
    env = cube._twin(cube.env)
    env.reset(seed=0, options={"task_id": 1})
    env.set_state(episode["qpos"][0].astype(np.float64), episode["qvel"][0].astype(np.float64))
    first = np.argmax(episode["target"] == 1)  # after the first target
    for row in range(first):
        env.step(episode["actions"][row].astype(np.float64))
    there = cube._part(cube._observe(env), "block_0_x", 3)
    np.testing.assert_allclose(there, cube._part(episode["observations"][first], "block_0_x", 3), atol=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scene", "puzzle-3x3"])
def test_play_of_buttons(name: str) -> None:
    collector = scripts.ArmSimulation(name, 0)
    (episode,) = collector([(0, 300)])
    assert episode["button_states"].dtype == np.int64
    assert len(np.unique(episode["button_states"], axis=0)) > 1
    world = tasks.make(name)
    on = [world.columns[f"button_{i}_on"] for i in range(episode["button_states"].shape[1])]
    assert (episode["observations"][:, on] == episode["button_states"]).all()


@pytest.mark.parametrize(("name", "most"), [("cube-single", None), ("cube-double", 0.25), ("scene", None)])
def test_cubes_are_stacked_as_often_as_in_ogbenchs_files(name: str, most: float | None) -> None:
    """Once an episode the chance is drawn; one cube, and the scene's, have the environment's own."""
    collector = scripts.ArmSimulation.__new__(scripts.ArmSimulation)  # the simulation itself is not asked
    collector._world = tasks.make(name)
    drawn = [collector._of_targets(seed) for seed in range(50)]
    if most is None:
        assert drawn == [{}] * 50
        return
    chances = [of_target["p_stack"] for of_target in drawn]
    assert 0 <= min(chances) < most / 4 and 3 * most / 4 < max(chances) <= most
    assert collector._of_targets(7) == drawn[7]


def test_a_cube_out_of_view_is_seen() -> None:
    world = tasks.make("scene")
    observations = np.zeros((3, 40), np.float32)
    y, z = world.columns["block_0_y"], world.columns["block_0_z"]
    observations[:, z] = 0.2
    assert scripts.stays_in_view(world, observations)
    for at, height, stays in ((2.95, 0.2, False), (-3.1, 0.2, False), (-3.1, 0.7, True), (-2.9, 0.2, True)):
        observations[1, [y, z]] = at, height
        assert scripts.stays_in_view(world, observations) == stays


def test_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hilp import cli

    out, rows = str(tmp_path / "d"), tmp_path / "rows.jsonl"
    asked = ["--task", "pointmaze-large-v0", "--kind", "stitch", "--steps", "900", "--out", out, "--rows", str(rows)]
    monkeypatch.setattr("sys.argv", ["hilp", "data", "collect", *asked])
    assert cli.main(["data", "collect", *asked]) == 0
    assert "targets: 5" in capsys.readouterr().out
    row = json.loads(rows.read_text())
    assert row["task"] == row["data"] == "pointmaze-large-stitch" and row["transitions"] == 900
    assert 0 <= row["script_success"] <= 1 and row["command"].startswith("hilp ")
    assert cli.main(["data", "inspect", out]) == 0
    assert "can be trained on" in capsys.readouterr().out


def test_files_of_ogbench_are_taken_as_their_task(maze: OgbenchMaze, tmp_path: Path) -> None:
    """Written as OGBench does, read by its own package and by ours: the same transitions."""
    from ogbench.utils import load_dataset

    made = collect(maze, "stitch", 600, 0, out=tmp_path / "made", workers=1)
    ends = np.zeros(made.rows, bool)
    ends[made.starts + made.lengths - 1] = True
    arrays = {"observations": made.observations, "actions": made.actions, "terminals": ends}
    for file in ("pointmaze-medium-stitch-v0.npz", "pointmaze-medium-stitch-v0-val.npz", "walks.npz"):
        np.savez(tmp_path / file, **arrays)
    for file in ("pointmaze-medium-stitch-v0.npz", "pointmaze-medium-stitch-v0-val.npz"):
        data = hilp.load(tmp_path / file)
        assert data.format == "ogbench" and data.task == "pointmaze-medium-stitch"
    theirs = load_dataset(str(tmp_path / "walks.npz"))
    at = data.transition_rows
    assert (theirs["observations"] == data.observations[at]).all() and (theirs["actions"] == data.actions[at]).all()
    assert (theirs["next_observations"] == data.observations[at + 1]).all()
    assert hilp.load(tmp_path / "walks.npz").task is None
    np.savez(tmp_path / "antmaze-medium-stitch-v0.npz", **arrays)
    other = hilp.load(tmp_path / "antmaze-medium-stitch-v0.npz")
    assert other.task is None and "observations have 29 numbers" in other.notes[0]
