"""Rows that do not tell the state: the last few seen at once, in data, while acting, in exports and on a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import export
from hilp.cli import main
from hilp.data.audit import inspect
from hilp.data.dynamics import Dynamics, advised
from hilp.errors import HilpError
from hilp.evaluation import evaluate
from hilp.export import runtime
from hilp.learning import methods
from hilp.play import scene
from hilp.policy.preparation import Preparation
from hilp.prompts.memory import RecentRows
from hilp.prompts.specs import Goal
from hilp.serve import server
from hilp.serve.client import Client
from hilp.training import auto_config
from serving import listening

LENGTHS = np.array([4, 1, 30, 30])
TINY: dict[str, Any] = {"actor_hidden": (8,), "hidden": (8,), "batch": 16}


def arrays(width: int = 2) -> dict[str, np.ndarray]:
    rng, rows = np.random.default_rng(0), int(LENGTHS.sum())
    seen = rng.normal(size=(rows, width)).astype(np.float32)
    return {"observations": seen, "actions": rng.uniform(-1, 1, (rows, 2)), "episode_lengths": LENGTHS}


@pytest.fixture(scope="module")
def trained() -> tuple[Any, np.ndarray]:
    data = hilp.load(arrays(), frames=3, drop_short=True)
    return hilp.pretrain(methods.config("hilp", **TINY), data, steps=4, quiet=True), np.asarray(
        arrays()["observations"]
    )


def log(what: str) -> dict[str, np.ndarray]:
    """Forty swings that are pushed at random; of `both` columns, place and speed, or of the place alone."""
    rng = np.random.default_rng(0)
    push, state = rng.uniform(-1, 1, (40, 100, 1)), rng.normal(size=(40, 2))
    seen = np.empty((40, 100, 2))
    for tick in range(100):
        seen[:, tick] = state
        speed = state[:, 1] + 0.2 * (push[:, tick, 0] - state[:, 0])
        state = np.stack([state[:, 0] + 0.2 * speed, speed], axis=1)
    seen = seen if what == "both" else seen[..., :1]
    lengths = np.full(40, 100)
    return {"observations": seen.reshape(4000, -1), "actions": push.reshape(-1, 1), "episode_lengths": lengths}


def test_a_row_stands_behind_the_changes_that_led_to_it_and_none_before_its_episode() -> None:
    rows = np.array([[0, 1], [2, 3], [5, 7], [6, 7], [8, 9]])
    plain = {"observations": rows.astype(float), "actions": np.zeros((5, 1)), "episode_lengths": [3, 2]}
    data = hilp.load(plain, frames=3)
    wanted = [[0, 0, 0, 0, 0, 1], [0, 0, 2, 2, 2, 3], [2, 2, 3, 4, 5, 7], [0, 0, 0, 0, 6, 7], [0, 0, 2, 2, 8, 9]]
    np.testing.assert_array_equal(np.asarray(data.observations), wanted)
    np.testing.assert_array_equal(data.observations[np.array([[4, 0], [2, -1]])], np.array(wanted)[[[4, 0], [2, 4]]])
    assert data.observations.stored.shape == (5, 2), "each row is kept once"
    assert (data.spec.observation_dim, data.spec.of_row.observation_dim, data.spec.history) == (6, 2, 3)
    assert data.fingerprint != hilp.load(plain).fingerprint == hilp.load(plain, frames=1).fingerprint


def test_one_row_is_as_it_was() -> None:
    data = hilp.load(arrays(), frames=1, drop_short=True)
    assert isinstance(data.observations, np.ndarray) and "history" not in data.spec.to_json()


def test_agents_remember_their_own_rows_and_begin_anew() -> None:
    recent = RecentRows(3)
    np.testing.assert_array_equal(recent(np.array([[1.0], [10.0]])), [[0, 0, 1], [0, 0, 10]])
    np.testing.assert_array_equal(recent(np.array([[2.0], [20.0]])), [[0, 1, 2], [0, 10, 20]])
    recent.reset([0])
    np.testing.assert_array_equal(recent(np.array([[3.0], [40.0]])), [[0, 0, 3], [10, 20, 40]])


def test_a_policy_acts_on_rows_as_on_the_stacks_of_its_data(trained: Any) -> None:
    policy, rows = trained
    last = [rows[[max(5, t - 2), max(5, t - 1), t]] for t in range(5, 12)]
    stacks = np.stack([np.concatenate([*np.diff(three, axis=0), three[-1]]) for three in last])
    whole, by_row = policy.goal(np.concatenate([np.zeros(4), rows[20]])), policy.goal(rows[20])
    wanted = [policy.act(stack, whole) for stack in stacks]
    for _ in range(2):
        np.testing.assert_allclose([policy.act(row, by_row) for row in rows[5:12]], wanted, atol=1e-6)
        by_row.reset()
    two = policy.goal(rows[20])
    policy.act(rows[[5, 30]], two)
    both = policy.act(rows[[6, 31]], two)
    np.testing.assert_allclose(both[0], wanted[1], atol=1e-5)
    two.reset([1])
    np.testing.assert_allclose(policy.act(rows[[7, 5]], two), [wanted[2], wanted[0]], atol=1e-5)
    combined = policy.goal(rows[20]).then(policy.goal(rows[21]), until=100)
    np.testing.assert_allclose([policy.act(row, combined) for row in rows[5:9]], wanted[:4], atol=1e-5)


def test_saved_and_exported_policies_remember_alike(trained: Any, tmp_path: Path) -> None:
    policy, rows = trained
    again = hilp.FoundationPolicy.load(policy.save(tmp_path / "policy"))
    export.write(policy, "numpy", tmp_path / "numpy")
    exported = runtime.load(tmp_path / "numpy")
    wanted = [policy.act(row, go) for go in [policy.goal(rows[20])] for row in rows[5:10]]
    for other in (again, exported):
        go = other.goal(rows[20])
        np.testing.assert_allclose([other.act(row, go) for row in rows[5:10]], wanted, atol=1e-5)
    assert again.fingerprint == policy.fingerprint and exported.spec.history == 3


def test_angles_are_those_of_every_row() -> None:
    plain = arrays()
    plain["observations"] = plain["observations"] % 6.28
    data = hilp.load(plain, frames=2, angles={"1": 6.283185307179586}, drop_short=True)
    found = Preparation.of(data, normalize=False).observations(np.array([[1.0, 2.0, 3.0, 4.0]], np.float32))
    np.testing.assert_allclose(found, [[1, np.sin(2), np.cos(2), 3, np.sin(4), np.cos(4)]], atol=1e-6)
    assert data.network_inputs.shape[1] == data.network_spec.observation_dim == 6


def test_rewards_ends_and_columns_of_goals_are_about_the_newest_row(trained: Any) -> None:
    policy, rows = trained
    seen: list[Any] = []
    policy.reward(function=lambda s, a, s2: seen.append(s2) or s2[:, 0], rule="skill", samples=20)
    np.testing.assert_array_equal(seen[0][:, :], policy.bank.subsample(20, 0).next_observations[:, -2:])
    ends = policy.skill(seed=0).until("observation[1] > 5")
    policy.act(np.array([0.0, 9.0]), ends)
    assert ends.over.tolist() == [True]
    matched = policy.goal(rows[20], goal_dims=(0, 1)).goal
    near = np.linalg.norm(
        (policy.bank.observations[:, -2:] - rows[20]) / policy.bank.observations[:, -2:].std(axis=0), axis=1
    )
    assert (policy.bank.observations[np.argsort(near)[:10]] == matched).all(axis=1).any(), "a whole state of the data"
    with pytest.raises(HilpError, match="columns 0 to 1"):
        policy.goal(rows[20], goal_dims=(2,))


def test_mistakes_are_told_in_a_line(trained: Any) -> None:
    policy, rows = trained
    for mistake in (lambda: policy.act(rows[0], np.ones(policy.skill_dim)), lambda: policy.encode(rows[0])):
        with pytest.raises(
            HilpError, match=r"sees the last 3 observations at once, and this is one: act under a prompt"
        ):
            mistake()
    with pytest.raises(HilpError, match="observations of 6 numbers"):
        policy.act(np.zeros(3), policy.skill())
    with pytest.raises(HilpError, match="neighbouring rows"):
        hilp.load(arrays(), frames=2, stride=2, drop_short=True)


def test_what_the_past_adds_is_measured_and_advised() -> None:
    report = inspect(log("place"))
    assert report.explained_by_past[1] < 0.2 and report.explained_by_past[2] > 0.95
    (told,) = [warning for warning in report.warnings if "does not tell the state" in warning.what]
    assert "--frames 2" in told.do
    whole = inspect(log("both"))
    assert min(whole.explained_by_past.values()) > 0.9 and advised(whole.explained_by_past) == (1, "")
    assert not [warning for warning in whole.warnings if "does not tell the state" in warning.what]
    assert Dynamics.past(hilp.load(log("place"))) == pytest.approx(report.explained_by_past)
    assert advised({}) == (1, "") and advised({1: 0.5, 2: 0.6, 4: 0.9, 8: 0.91})[0] == 4


def test_training_follows_the_advice_and_the_user_wins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []
    seen = auto_config.with_past(hilp.load(log("place")), told.append)
    assert seen.frames == 2 and "--frames 1 overrules" in told[0]
    whole = hilp.load(log("both"))
    assert auto_config.with_past(whole, told.append) is whole and len(told) == 1
    np.savez(tmp_path / "log.npz", **log("place"))
    words = ["pretrain", "--data", str(tmp_path / "log.npz"), "--steps", "2", "--set", "hidden=8", "batch=16"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    assert "networks see 2 at once" in capsys.readouterr().err
    assert hilp.FoundationPolicy.load(tmp_path / "run").spec.history == 2
    assert json.loads((tmp_path / "run" / "reading.json").read_text())["frames"] == 2, "other data is read alike"
    assert main(["prompt", str(tmp_path / "run"), "--goal", "0.5", "--start", "0.1"]) == 0
    assert main([*words, "--frames", "1", "--out", str(tmp_path / "one")]) == 0
    assert hilp.FoundationPolicy.load(tmp_path / "one").spec.history == 1


def test_a_server_remembers_the_rows_of_each_robot(trained: Any) -> None:
    policy, rows = trained
    with listening(server.PolicyServer(policy, Path("nowhere"), port=0, prompt=policy.goal(rows[20]))) as address:
        robots, alone = [Client(address), Client(address)], [policy.goal(rows[20]), policy.goal(rows[20])]
        assert robots[0].get_server_metadata()["observation"]["observation/state"]["shape"] == [2]
        for at in (5, 6, 7):
            for robot, prompt, row in zip(robots, alone, rows[[at, at + 25]], strict=True):
                found = robot.infer({"observation/state": row})["actions"][0]
                np.testing.assert_allclose(found, policy.act(row, prompt), atol=2e-5)
        alone[0].reset()
        found = robots[0].infer({"observation/state": rows[5], "reset": True})["actions"][0]
        np.testing.assert_allclose(found, policy.act(rows[5], alone[0]), atol=2e-5)
        for robot in robots:
            robot.close()


def test_evaluation_remembers_and_the_playground_refuses() -> None:
    data = hilp.collect("maze-four-rooms", "navigate", 400).in_frames(2)
    policy = hilp.pretrain(methods.config("hilp", **TINY), data, steps=4, quiet=True)
    world = hilp.make_task("maze-four-rooms")
    (row,) = evaluate.evaluate(policy, world, [Goal(plan="graph")], episodes=3)
    assert row["episodes"] == 3 and len(row["reachable"]) == 3
    with pytest.raises(HilpError, match="sees 2 observations at once"):
        scene.stage_of(policy, "runs/maze")


def test_rows_with_a_nan_are_left_out_of_what_the_past_tells() -> None:
    """A log with a few of them is measured all the same, and by the same steps for each count."""
    rng = np.random.default_rng(0)
    act, x, v = rng.uniform(-1, 1, (2000, 1)), np.zeros((2000, 1)), 0.0
    for t in range(1, 2000):
        v = 0.9 * v + 0.1 * float(act[t - 1, 0])
        x[t] = x[t - 1] + v
    x[[30, 31, 900]] = np.nan
    found = inspect({"observations": x, "actions": act, "episode_lengths": [500] * 4})
    assert found.explained_by_past[2] > 0.95 > found.explained_by_past[1] + 0.3
