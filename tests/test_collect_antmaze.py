from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hilp.collectors import antmaze, collect
from hilp.collectors.antmaze import Controller, Walk, actual, canonical, kinds, play_cells, quarter_turns
from hilp.errors import HilpError
from hilp.tasks.antmaze import AntMaze, make
from hilp.tasks.maze import SUCCESS_RADIUS

if not all(importlib.util.find_spec(package) for package in ("mujoco", "ogbench")):
    pytest.skip("needs the simulators", allow_module_level=True)

TOOL = Path(__file__).parents[1] / "tools" / "train_ant_controller.py"
U_MAP = "#####\n#...#\n###.#\n#...#\n#####"


@pytest.fixture(scope="module")
def world() -> AntMaze:
    return make(U_MAP)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes of 51 rows, two in a block."""
    monkeypatch.setattr(antmaze, "EPISODE_STEPS", 50)
    monkeypatch.setattr(antmaze, "BLOCK", 2)


def unit(angle: float) -> np.ndarray:
    return np.array([[np.cos(angle), np.sin(angle)]])


def test_rows_and_layout(world: AntMaze, tmp_path: Path) -> None:
    data = collect(world, "diverse", 1300, 0, out=tmp_path / "data", workers=1)
    assert data.lengths.tolist() == [1001, 301] and data.transitions == 1300
    assert data.observations.shape == (1302, 29) and data.actions.shape == (1302, 8)
    assert data.observations.dtype == data.actions.dtype == np.float32
    assert abs(data.actions).max() <= 1 and (data.actions[[1000, 1301]] == 0).all()
    assert data.name == "antmaze-custom-diverse"
    assert make(data.task or "").map_text == world.map_text
    assert (world.free_cell(data.observations[:, :2]) >= 0).all()
    running = world.episodes(np.random.default_rng(0), 1, start=data.observations[0])
    for row in range(10):
        assert running.observations[0] == pytest.approx(data.observations[row], abs=1e-3)
        running.step(data.actions[row : row + 1])


def test_starts_and_noise_are_the_recipes(world: AntMaze) -> None:
    controller = Controller.load()
    starts, noise = [], []
    for seed in range(150):
        walk = Walk(world, controller, np.random.default_rng(seed), strays=False)
        state = walk.episodes.states[0].copy()
        starts.append(state[:2] - world.centres(world.free_cells[walk.cell]))
        action = walk.step()
        way = walk._waypoint - state[:2]
        noise.append(action - controller.act(state[None, 2:], (way / np.linalg.norm(way))[None])[0])
        inside = abs(action) < 1
        noise[-1] = noise[-1][inside]
    offsets = np.array(starts)
    assert offsets.min() >= 0 and offsets.max() <= 1 and offsets.mean(axis=0) == pytest.approx([0.5, 0.5], abs=0.1)
    middle = np.concatenate(noise)
    assert len(middle) > 300 and 0.15 < middle.std() < 0.22 and abs(middle.mean()) < 0.05


def test_episodes_go_on_to_new_goals(world: AntMaze) -> None:
    walk = Walk(world, Controller.load(), np.random.default_rng(0))
    goals = [walk.goal]
    for _ in range(1000):
        before = len(walk.arrivals)
        walk.step()
        if len(walk.arrivals) > before:
            assert np.linalg.norm(walk.episodes.states[0, :2] - goals[-1]) <= SUCCESS_RADIUS
            goals.append(walk.goal)
    assert len(goals) >= 4
    cells = world.free_cell(np.array(goals))
    assert (cells[1:] != cells[:-1]).all() and (cells >= 0).all()


@pytest.mark.usefixtures("short")
def test_seed_and_number_decide_an_episode(world: AntMaze, tmp_path: Path) -> None:
    told: list[int] = []
    one = collect(world, "diverse", 130, 0, out=tmp_path / "one", workers=1)
    two = collect(world, "diverse", 230, 0, out=tmp_path / "two", progress=told.append, workers=2)
    other = collect(world, "diverse", 130, 1, out=tmp_path / "other", workers=1)
    assert told == [100, 200, 230]
    assert one.lengths.tolist() == [51, 51, 31] and two.lengths.tolist() == [51, 51, 51, 51, 31]
    assert (two.observations[:133] == one.observations).all()
    assert (two.actions[:132] == one.actions[:132]).all()
    assert (other.observations[1:51] != one.observations[1:51]).all(axis=0).any()
    assert (one.observations[0] != one.observations[51]).any()


@pytest.mark.usefixtures("short")
def test_a_killed_collection_goes_on(world: AntMaze, tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from hilp.collectors import antmaze, collect
from hilp.tasks.antmaze import make
antmaze.EPISODE_STEPS, antmaze.BLOCK = 50, 2
collect(make({U_MAP!r}), "diverse", 50_000, 3, out=Path({str(tmp_path / "data")!r}), workers=1)
"""
    child = subprocess.Popen([sys.executable, "-c", script])
    partial = tmp_path / "data.partial"
    deadline = time.monotonic() + 60
    while len(list(partial.glob("0*.safetensors"))) < 2:
        assert time.monotonic() < deadline and child.poll() is None
        time.sleep(0.02)
    child.kill()
    child.wait()
    with pytest.raises(HilpError, match="unfinished collection"):
        collect(world, "play", 50_000, 3, out=tmp_path / "data", workers=1)
    # The rest of so long a collection would take minutes: let it be a shorter one that has come as far.
    finished = 2 * sum(1 for _ in partial.glob("0*.safetensors"))
    steps = 50 * (finished + 1)
    identity = json.loads((partial / "collection.json").read_text())
    (partial / "collection.json").write_text(json.dumps(identity | {"steps": steps}))
    told: list[int] = []
    resumed = collect(world, "diverse", steps, 3, out=tmp_path / "data", progress=told.append, workers=1)
    assert told == [steps], "only the missing episode was collected"
    assert not partial.exists() and resumed.episodes == finished + 1
    whole = collect(world, "diverse", steps, 3, out=tmp_path / "whole", workers=1)
    assert (resumed.observations == whole.observations).all() and (resumed.actions == whole.actions).all()


def test_worker_processes_do_not_load_jax() -> None:
    code = "import sys, hilp.collectors.antmaze; sys.exit('jax' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_play_walks_to_few_cells(tmp_path: Path) -> None:
    large = make("antmaze-large")
    cells = large.free_cells[play_cells(large)].tolist()
    assert cells == [[1, 6], [3, 5], [3, 10], [5, 2], [7, 4], [7, 6], [7, 9]]
    ultra = make("antmaze-ultra-play")
    assert len(play_cells(ultra)) == 14 == len(set(play_cells(ultra)))  # 7 / 46 of 89
    for seed in range(20):
        walk = Walk(large, Controller.load(), np.random.default_rng(seed), play_cells(large))
        assert int(large.free_cell(walk.goal)) in play_cells(large)
    data = collect(large, "play", 3, 0, out=tmp_path / "play", workers=1)
    assert data.name == data.task == "antmaze-large-play"
    assert set(kinds(large)) == {"diverse", "play"}


def test_mistakes_are_told(world: AntMaze, tmp_path: Path) -> None:
    with pytest.raises(HilpError, match="did you mean 'diverse'"):
        collect(world, "divers", 10, 0, out=tmp_path / "x")
    with pytest.raises(HilpError, match="at least 1"):
        collect(world, "play", 0, 0, out=tmp_path / "x")
    with pytest.raises(HilpError, match="workers must be at least 1, not 0"):
        collect(world, "play", 10, 0, out=tmp_path / "x", workers=0)
    assert not list(tmp_path.iterdir())
    collect(world, "diverse", 3, 0, out=tmp_path / "x", workers=1)
    with pytest.raises(HilpError, match="exists"):
        collect(world, "diverse", 3, 0, out=tmp_path / "x", workers=1)
    assert collect(world, "diverse", 4, 0, out=tmp_path / "x", workers=1, overwrite=True).transitions == 4


def test_a_script_without_a_guard_is_told(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        f"""
from pathlib import Path
from hilp.collectors import antmaze, collect
from hilp.tasks.antmaze import make
antmaze.EPISODE_STEPS, antmaze.BLOCK = 5, 1
collect(make({U_MAP!r}), "diverse", 20, 3, out=Path({str(tmp_path / "data")!r}), workers=2)
"""
    )
    told = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=False)
    assert told.returncode == 1 and "HilpError" in told.stderr.splitlines()[-1]
    assert "if __name__ == '__main__':" in told.stderr.splitlines()[-1]


def test_walkers_stray_for_a_while_unless_told_not_to(world: AntMaze, monkeypatch: pytest.MonkeyPatch) -> None:
    class Standing:
        """Keeps the directions that it is told."""

        def __init__(self) -> None:
            self.told: list[np.ndarray] = []

        def act(self, proprioception: np.ndarray, direction: np.ndarray) -> np.ndarray:
            self.told.append(direction[0])
            return np.zeros((1, 8))

    def kept(strays: bool) -> np.ndarray:
        """At which steps the direction stayed what it was; one to a waypoint changes with every wobble of the body."""
        legs = Standing()
        walk = Walk(world, legs, np.random.default_rng(0), strays=strays)  # type: ignore[arg-type]
        for step in range(60):
            monkeypatch.setattr(antmaze, "STRAY_CHANCE", 1.0 if step == 5 else 0.0)
            walk.step()
        told = np.array(legs.told)
        return np.flatnonzero((told[1:] == told[:-1]).all(axis=1))

    strayed = kept(strays=True)
    assert 9 <= len(strayed) <= 38, "from 10 to 39 steps in one direction"
    assert (strayed == 5 + np.arange(len(strayed))).all(), "once, from its beginning to its end"
    assert not len(kept(strays=False))


# The controller


def test_quarter_turns_of_the_world_and_the_legs_change_nothing() -> None:
    from ogbench.locomaze.ant import AntEnv

    rng = np.random.default_rng(0)
    ant, twin = AntEnv(), AntEnv()
    ant.reset(seed=0)
    seen = set()
    for _ in range(12):
        for _ in range(8):
            ant.step(rng.uniform(-1, 1, 8))
        before, direction = ant.get_ob(), unit(rng.uniform(-np.pi, np.pi))
        turns = int(quarter_turns(direction)[0])
        seen.add(turns)
        seat = canonical(before[None, 2:], direction)[0]
        facing = seat[27:]  # the direction as the network sees it
        assert facing[0] >= abs(facing[1])
        # A twin that stands as the network sees the ant, its ankles with the signs of the model.
        signs = np.array([1, 1, 1, -1, 1, -1, 1, 1])
        twin.set_state(
            np.concatenate([[0, 0], seat[:5], signs * seat[5:13]]), np.concatenate([seat[13:19], signs * seat[19:27]])
        )
        assert abs(np.arctan2(seat[4], seat[1])) == pytest.approx(abs(np.arctan2(before[6], abs(before[3]))), abs=1e-9)
        action = rng.uniform(-1, 1, (1, 8))
        after = ant.step(actual(action, direction)[0])[0]
        after_twin = twin.step(actual(action, facing[None])[0])[0]
        back = np.linalg.matrix_power(np.array([[0, 1], [-1, 0]]), turns)
        assert back @ direction[0] == pytest.approx(facing)
        assert back @ (after[:2] - before[:2]) == pytest.approx(after_twin[:2], abs=1e-9)
        assert canonical(after[None, 2:], direction) == pytest.approx(
            canonical(after_twin[None, 2:], facing[None]), abs=1e-9
        )
    assert seen == {0, 1, 2, 3}


def test_numpy_acts_as_the_trained_network() -> None:
    import jax

    from train_ant_controller import Network, controller_of

    actor = Network(29, 16, jax.random.key(0))
    rng = np.random.default_rng(0)
    observations = rng.standard_normal((50, 27)).astype(np.float32)
    controller = controller_of(actor)
    directions = np.concatenate([unit(angle) for angle in rng.uniform(-np.pi, np.pi, 50)])
    seats = canonical(observations, directions).astype(np.float32)
    assert controller.head(seats) == pytest.approx(np.asarray(actor(seats)), abs=1e-5)
    mean = np.tanh(np.asarray(actor(seats))[:, :8])
    assert controller.act(observations, directions) == pytest.approx(actual(mean, directions), abs=1e-5)
    shipped = Controller.load()
    assert [(w.shape, b.shape) for w, b in shipped.layers] == [(w.shape, b.shape) for w, b in controller.layers]


def test_the_shipped_controller_is_small_walks_and_keeps_its_heading(world: AntMaze) -> None:
    from train_ant_controller import heading

    assert antmaze.WEIGHTS.stat().st_size < 1_000_000
    controller = Controller.load()
    corridor = make("#" * 22 + "\n#" + "." * 20 + "#\n" + "#" * 22)
    hall = make("###\n" + "#.#\n" * 20 + "###")
    for place, axis, start, angle in (
        (corridor, 0, 0, 0.0),
        (corridor, 0, 76, 1.0),
        (hall, 1, 0, 0.5),
        (hall, 1, 76, 1.5),
    ):
        direction, along = unit(np.pi * angle), np.eye(2)[axis]
        running = place.episodes(np.random.default_rng(0), 1, start=start * along, goal=40 * along)
        facing = []
        for _ in range(100):
            running.step(controller.act(running.states[:, 2:], direction))
            facing.append(np.cos(heading(running.states[:, 2:])[0]))
        assert abs(running.states[0, axis] - start) > 8, "0.8 m/s at least"
        assert np.mean(facing) > 0.9, "forwards, backwards or sideways, it faces +x"


def test_a_damaged_controller_is_told(tmp_path: Path) -> None:
    from hilp.storage import write_arrays

    write_arrays(tmp_path / "other.safetensors", {"weight0": np.zeros((27, 256), np.float32)})
    with pytest.raises(HilpError, match="no ant controller"):
        Controller.load(tmp_path / "other.safetensors")
    arrays = {f"{kind}{layer}": np.zeros((27, 256), np.float32) for kind in ("weight", "bias") for layer in range(3)}
    write_arrays(tmp_path / "older.safetensors", arrays)
    with pytest.raises(HilpError, match="takes 27 inputs, not 29"):
        Controller.load(tmp_path / "older.safetensors")


def test_training_is_resumed_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import train_ant_controller as ant_training

    for name, value in {
        "ANTS": 2,
        "WALLED_ANTS": 1,
        "CHUNK": 2,
        "WARMUP": 12,
        "RANDOM": 8,
        "REPORT_STEPS": 8,
        "CHECKPOINT_STEPS": 8,
    }.items():
        monkeypatch.setattr(ant_training, name, value)
    out, said = tmp_path / "ant.safetensors", []
    first = ant_training.train(20, 0, out, said.append)
    assert any("m/s" in line for line in said)
    loaded = Controller.load(out)
    for (weight, _), (saved, _) in zip(first.layers, loaded.layers, strict=True):
        assert (weight == saved).all()
    start = ant_training.controller_of(ant_training.new_learner(ant_training.jax.random.key(0)).actor)
    assert (first.layers[0][0] != start.layers[0][0]).any(), "something was learned"
    said.clear()
    second = ant_training.train(40, 0, out, said.append)
    assert said[0] == "going on after 20 steps"
    assert (second.layers[0][0] != first.layers[0][0]).any()
    with pytest.raises(HilpError, match="already at step 40"):
        ant_training.train(20, 0, out, said.append)
    with pytest.raises(HilpError, match="belongs to seed 0"):
        ant_training.train(40, 1, out, said.append)


def test_measuring_adds_a_row(tmp_path: Path) -> None:
    results = tmp_path / "rows.jsonl"
    (tmp_path / "map.txt").write_text(U_MAP)
    arguments = ["--evaluate", str(tmp_path / "map.txt"), "--episodes", "2", "--seed", "5", "--results", str(results)]
    subprocess.run([sys.executable, TOOL, *arguments], check=True, stdout=subprocess.DEVNULL)
    (row,) = (json.loads(line) for line in results.read_text().splitlines())
    assert row["episodes"] == 2 == len(row["lengths"]) and row["seed"] == 5 and row["max_steps"] == 1000
    assert row["success"] == sum(length is not None for length in row["lengths"]) / 2
    assert row["interval"][0] <= row["success"] <= row["interval"][1]
    assert row["command"] == "python tools/train_ant_controller.py " + " ".join(arguments)
    assert {"mujoco", "ogbench", "numpy", "hilp"} <= row["versions"].keys()
    bad = [sys.executable, TOOL, "--evaluate", "antmaze-lage"]
    told = subprocess.run(bad, capture_output=True, text=True, check=False)
    assert told.returncode == 1 and "did you mean 'antmaze-large'" in told.stderr and "Traceback" not in told.stderr
