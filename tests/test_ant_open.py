from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import tasks
from hilp.cli import main
from hilp.collectors import antmaze as collector
from hilp.collectors import collect
from hilp.collectors.antmaze import WEIGHTS, Controller
from hilp.errors import HilpError
from hilp.evaluation import rollouts
from hilp.evaluation.rows import check
from hilp.report import page
from hilp.tasks import antmaze
from hilp.tasks.antmaze import SPEED, VELOCITIES, AntOpen
from hilp.testing import check_task

if not all(importlib.util.find_spec(package) for package in ("mujoco", "ogbench")):
    pytest.skip("needs the simulators", allow_module_level=True)


@pytest.fixture(scope="module")
def world() -> AntOpen:
    made = tasks.make("ant-open")
    assert isinstance(made, AntOpen)
    return made


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes of 101 rows, two in a block."""
    monkeypatch.setattr(collector, "EPISODE_STEPS", 100)
    monkeypatch.setattr(collector, "OPEN_BLOCK", 2)


def walking(world: AntOpen, asked: Any, steps: int, goal: Any = None) -> tuple[np.ndarray, Any]:
    """Observations [steps + 1, n, 29] under the controller, without noise, and the episodes."""
    asked, controller = np.asarray(asked, float), Controller.load()
    running = world.episodes(np.random.default_rng(0), len(asked), goal=goal)
    path = [running.observations.copy()]
    for _ in range(steps):
        running.step(collector.walk(controller, running.states, asked))
        path.append(running.observations.copy())
    return np.stack(path), running


def test_it_is_a_task(world: AntOpen) -> None:
    check_task(world)
    assert "ant-open" in tasks.names() and world.model.nq == 15
    assert not [name for name in (world.model.geom(i).name for i in range(world.model.ngeom)) if "block" in name]


def test_observations_begin_with_x_and_y(world: AntOpen) -> None:
    running = world.episodes(np.random.default_rng(0), 4)
    qpos, qvel = running._data[2].qpos, running._data[2].qvel
    assert running.observations[2] == pytest.approx(np.concatenate([qpos, qvel]), abs=1e-6)
    assert world.columns == {"x": 0, "y": 1, "height": 2} and abs(running.states[:, :2]).max() <= 0.1


def test_rewards_are_those_of_velocities_worked_out_by_hand(world: AntOpen) -> None:
    s = np.zeros((5, 29))
    s[:, :2] = 7, -3
    s2 = s.copy()
    # 1.5 m/s forward, 0.75 forward, none, 1.5 to the left, 3 backward: metres in a step of 0.1 s.
    s2[:, :2] += [[0.15, 0], [0.075, 0], [0, 0], [0, 0.15], [-0.3, 0]]
    a = np.zeros((5, 8))
    diagonal = 1 - np.sqrt(2) / 2
    expected = {
        "forward": [1, 0.75, 0.5, diagonal, 0],
        "backward": [0, 0.25, 0.5, diagonal, 0.5],
        "left": [diagonal, 1 - np.hypot(0.75, 1.5) / 3, 0.5, 1, 0],
        "right": [diagonal, 1 - np.hypot(0.75, 1.5) / 3, 0.5, 0, 0],
        "half": [0.75, 1, 0.75, 1 - np.hypot(0.75, 1.5) / 3, 0],
        "stand": [0.5, 0.75, 1, 0.5, 0],
    }
    assert expected.keys() == world.rewards.keys() == VELOCITIES.keys()
    for name, values in expected.items():
        assert world.rewards[name](s, a, s2) == pytest.approx(values), name
    assert world.speeds(s, a, s2) == pytest.approx([1.5, 0.75, 0, 1.5, 3])


def test_falls_are_seen_and_end_the_episode(world: AntOpen) -> None:
    def lying(up: float, height: float) -> np.ndarray:
        state = world.standing.copy()
        state[2:7] = height, np.cos(up / 2), np.sin(up / 2), 0, 0  # turned around its x axis
        return state

    states = np.stack([lying(0, 0.75), lying(1.5, 0.6), lying(1.6, 0.6), lying(np.pi, 0.3), lying(0, 0.29)])
    assert antmaze.fallen(states).tolist() == [False, False, True, True, True]
    running = antmaze.OpenEpisodes(world, states, np.full((5, 2), 50.0))
    before = running.states.copy()
    running.step(np.full((5, 8), 0.5))
    assert ((running.states == before).all(axis=1) == [False, False, True, True, True]).all()
    assert running.over.tolist() == [False, False, True, True, True]
    start = states[3]
    backs = world.episodes(np.random.default_rng(0), 2, start=start, goal=start[:2])
    assert backs.over.all() and not backs.reached().any(), "an ant on its back is nowhere"


def test_goals_are_two_to_four_metres_away(world: AntOpen) -> None:
    goals = world.episodes(np.random.default_rng(0), 200).goals
    away = np.linalg.norm(goals[:, :2], axis=1)
    assert 2 <= away.min() < 2.1 and 3.9 < away.max() <= 4
    assert (goals[:, :2].min(axis=0) < -3.5).all() and (goals[:, :2].max(axis=0) > 3.5).all()
    assert goals[0, 2:] == pytest.approx(world.standing[2:])
    given = world.episodes(np.random.default_rng(0), 2, goal=np.array([3.0, 0.0]))
    states = given.states.copy()
    states[:, :2] = [2.6, 0.2], [2.6, 0.4]
    assert world.near(states, given.goals).tolist() == [True, False], "within 0.5 m, as in AntMaze"
    assert np.isnan(world.goal_base(np.random.default_rng(0))[:2]).all()
    with pytest.raises(HilpError, match="finite"):
        world.episodes(np.random.default_rng(0), 1, goal=np.array([np.nan, 0]))
    with pytest.raises(HilpError, match="x,y"):
        world.episodes(np.random.default_rng(0), 1, goal=np.zeros(3))


def test_the_controller_walks_as_asked_and_holds_every_velocity(world: AntOpen) -> None:
    path, running = walking(world, list(VELOCITIES.values()), 100)
    assert not running.fallen.any() and antmaze.fallen(path[-1]).sum() == 0
    walked = antmaze.velocities(path[50], path[-1], 50)
    for number, (name, asked) in enumerate(VELOCITIES.items()):
        assert walked[number] == pytest.approx(asked, abs=0.35), name
        found = world.held(name, path, running)
        others = [world.held(other, path, running)["speed_errors"][number] for other in VELOCITIES if other != name]
        assert found["speed_errors"][number] < 0.3 * SPEED < min(others), "and no other one"
        assert found["held"] == 1, "only the ant that was asked for it"


def test_a_goal_on_the_way_is_reached(world: AntOpen) -> None:
    path, running = walking(world, [[SPEED, 0]], 25, goal=np.array([3.0, 0.0]))
    assert world.near(path[:, 0], running.goals[0]).any() and not world.near(path[0], running.goals[0]).any()


@pytest.mark.usefixtures("short")
def test_the_log_and_its_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    argv = ["data", "collect", "--task", "ant-open", "--kind", "wander", "--steps", "530", "--workers", "1"]
    assert main([*argv, "--out", str(tmp_path / "data"), "--rows", str(rows), "--json"]) == 0
    printed, row = json.loads(capsys.readouterr().out), json.loads(rows.read_text())
    data = hilp.load(tmp_path / "data")
    assert data.task == "ant-open" and data.name == "ant-open-wander"
    assert data.lengths.tolist() == [101] * 5 + [31] and data.observations.shape == (536, 29)
    assert not antmaze.fallen(data.observations).any()
    asked, at = data.extra("asked"), data.transition_rows
    shares = np.linalg.norm(asked, axis=1) / SPEED
    assert {*shares.round(3).tolist()} <= {0.0, 0.5, 1.0}
    held = np.diff(np.flatnonzero((np.diff(asked[:101], axis=0) != 0).any(axis=1)))
    assert len(held) and (held >= 10).all() and (held <= 30 * 3).all()  # a pause may be followed by another
    velocity = antmaze.velocities(data.observations[at], data.observations[at + 1])
    for name, asks in VELOCITIES.items():
        mean = np.maximum(0, 1 - np.linalg.norm(velocity - asks, axis=1) / (2 * SPEED)).mean()
        assert data.measured[f"reward_{name}"] == pytest.approx(mean)
    assert sum(data.measured["speed_shares"]) == pytest.approx(1) and len(data.measured["speed_edges"]) == 9
    slow = data.measured["speed_shares"][0]
    assert slow == pytest.approx((np.linalg.norm(velocity, axis=1) < 0.25).mean())
    assert data.measured.items() <= row.items() and data.measured.items() <= printed.items()
    assert data.select(np.arange(2)).measured == {}, "they are those of the whole"


@pytest.mark.usefixtures("short")
def test_seed_and_number_decide_an_episode(world: AntOpen, tmp_path: Path) -> None:
    one = collect(world, "wander", 200, 0, out=tmp_path / "one", workers=1)
    two = collect(world, "wander", 330, 0, out=tmp_path / "two", workers=2)
    other = collect(world, "wander", 130, 1, out=tmp_path / "other", workers=1)
    assert two.lengths.tolist() == [101, 101, 101, 31]
    assert (two.observations[:202] == one.observations).all() and (two.actions[:202] == one.actions).all()
    assert (other.observations[1:51] != one.observations[1:51]).any()
    assert (one.observations[0] != one.observations[101]).any()


@pytest.mark.usefixtures("short")
def test_an_episode_with_a_fall_is_begun_anew(world: AntOpen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = collect(world, "wander", 100, 0, out=tmp_path / "plain", workers=1)
    fallen, calls = antmaze.fallen, []

    def once(states: np.ndarray) -> np.ndarray:
        calls.append(1)
        return fallen(states) | (len(calls) == 50)

    monkeypatch.setattr(antmaze, "fallen", once)
    again = collect(world, "wander", 100, 0, out=tmp_path / "again", workers=1)
    assert again.lengths.tolist() == [101] and (again.observations[1:] != plain.observations[1:]).any()
    moved = np.linalg.norm(np.diff(again.observations, axis=0), axis=1)
    assert (moved > 0).all(), "no row of an ant that is over"


def test_the_controller_is_measured() -> None:
    from train_ant_controller import measure_velocities

    said: list[str] = []
    row = measure_velocities(6, 0, WEIGHTS, said.append)
    assert row["episodes"] == 6 == row["held"] and row["falls"] == 0 and row["rewards"].keys() == VELOCITIES.keys()
    assert said[0].startswith("forward: held in 1 of 1") and {"command", "versions", "controller"} <= row.keys()


def test_rows_have_falls_and_held(world: AntOpen, monkeypatch: pytest.MonkeyPatch) -> None:
    class Legs:
        """A policy that walks, but for one ant whose body is thrown onto its back."""

        skill_dim, method = 0, "legs"

    controller = Controller.load()

    def actor(policy: Any, running: Any, prompt: Any, to_goals: bool = False) -> Any:
        steps: list[int] = []

        def act(active: np.ndarray) -> np.ndarray:
            steps.append(1)
            if len(steps) == 20:
                running._data[1].qpos[3:7] = 0, 1, 0, 0
            return collector.walk(controller, running.states, np.tile([SPEED, 0.0], (3, 1)))

        return act

    monkeypatch.setattr(rollouts, "_actor", actor)
    legs: Any = Legs()
    outcome, _ = rollouts.rollout_reward(legs, world, "forward", None, 3, 0)
    assert outcome["falls"] == 1 and outcome["held"] == 2 and len(outcome["speed_errors"]) == 3
    fell, *walked = np.array(outcome["outcomes"])[[1, 0, 2]]
    assert 0 < fell < 20 < min(walked) <= 100, "what fell earns nothing more"
    about = {"task": "ant-open", "method": "legs", "policy": "x", "prompt": "reward", "reward": "forward"}
    check(about | outcome, "here")
    headers, (line,) = page.results_table([about | outcome])
    assert dict(zip(headers, line, strict=True)).items() >= {"held": 2, "falls": 1}.items()
    headers, (line,) = page.aggregate_table([about | outcome, about | outcome | {"policy": "y"}])
    assert dict(zip(headers, line, strict=True)).items() >= {"held": 4, "falls": 2, "seeds": 2}.items()
    stand, _ = rollouts.rollout_reward(legs, world, "stand", None, 3, 0)
    assert stand["held"] == 0 and stand["falls"] == 1
    with pytest.raises(HilpError, match="one entry for each of 3 episodes"):
        check(about | outcome | {"speed_errors": [0.1]}, "here")
