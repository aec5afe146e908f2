"""Measuring without a simulator, runs that end by themselves, and advice that fits the case."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import cli, runs
from hilp.commands import pretrain
from hilp.data.dataset import Dataset
from hilp.errors import HilpError, TrainingStopped
from hilp.evaluation import explain, held_out, rows
from hilp.training import auto_config, loop, options, progress
from hilp.training.options import TrainOptions

SMALL = hilp.HILP(
    dim=4, hidden=(32, 32), actor_hidden=(32, 32), batch=128, lr=3e-3, phi_discount=0.95, goal_discount=0.95,
    discount=0.95, temperature=3.0, phi_tau=0.05, tau=0.05, normalize=True,
)  # fmt: skip
TINY = ["dim=2", "hidden=8", "actor_hidden=8", "batch=16"]


def carts(episodes: int = 40, steps: int = 40, seed: int = 0) -> dict[str, np.ndarray]:
    """Carts in a square of 2 by 2, pushed by up to 0.1 a step towards one place after the other."""
    rng = np.random.default_rng(seed)
    x, target = rng.uniform(-1, 1, (2, episodes, 2))
    seen, told = [], []
    for _ in range(steps + 1):
        near = np.linalg.norm(target - x, axis=1) < 0.1
        target[near] = rng.uniform(-1, 1, (int(near.sum()), 2))
        way = target - x
        push = np.clip(way / np.abs(way).max(axis=1, keepdims=True) + rng.normal(0, 0.3, x.shape), -1, 1)
        seen.append(x.copy())
        told.append(push)
        x = np.clip(x + 0.1 * push, -1, 1)
    flat = [np.stack(values, 1).reshape(-1, 2) for values in (seen, told)]
    return {"observations": flat[0], "actions": flat[1], "episode_lengths": np.full(episodes, steps + 1)}


@cache
def trained(updates: int = 600) -> hilp.FoundationPolicy:
    return hilp.pretrain(SMALL, hilp.load(carts()), steps=updates, bank=2000, quiet=True)


# ---- numbers ---------------------------------------------------------------------------------------------------------


def test_a_trained_policy_measures_well_and_an_untrained_one_does_not() -> None:
    unseen = hilp.load(carts(seed=1))
    good, bad = (held_out.measure(trained(updates), unseen, plans=(0,), episodes=30) for updates in (600, 1))
    assert good["time_correlation"] > 0.7 and good["plans"][0]["agreement"] > 0.75
    assert good["plans"][0]["estimated_success"] > 0.7 > bad["plans"][0]["estimated_success"]
    assert abs(bad["plans"][0]["agreement"] - 0.5) < 0.4
    json.dumps(good)


def test_the_world_of_neighbours_is_the_real_one_where_data_is_dense() -> None:
    policy, unseen = trained(), hilp.load(carts(episodes=200, seed=2))
    world = held_out.Neighbours(policy, unseen, seed=0)
    here = np.random.default_rng(0).uniform(-0.8, 0.8, (50, 2)).astype(np.float32)
    push = np.random.default_rng(1).uniform(-1, 1, (50, 2)).astype(np.float32)
    after, away = world.step(here, push)
    error = np.linalg.norm(after - (here + 0.1 * push), axis=1)
    assert np.median(error) < 0.05 and np.median(away) < 0.3


def test_the_default_plan_is_advised_unless_another_is_clearly_quicker() -> None:
    def of(**lengths: list[int]) -> list[dict[str, Any]]:
        named = {"direct": 0, "three": 3}
        return [
            {"plan": named.get(plan, plan), "lengths": taken, "estimated_steps": float(np.mean(taken))}
            for plan, taken in lengths.items()
        ]

    usual = [30, 50, 200, 40]
    by_chance = of(direct=[32, 45, 90, 45], auto=usual)  # saves 27 steps a way, give or take as many
    assert held_out.advised(by_chance) == "auto"
    assert held_out.advised(of(direct=[21, 40, 189, 30], three=[26, 46, 196, 37], auto=usual)) == 0, "10 of each way"
    assert held_out.advised(of(three=usual, direct=usual)) == 0, "the simplest where there is no auto"
    assert held_out.advised(of(three=[3], auto=[9])) == "auto", "one episode is none"


def test_a_goal_to_type_has_the_names_of_columns() -> None:
    data = hilp.load(carts(episodes=2))
    row = data.observations[data.rows // 2]
    names = [(("x", ()), ("hand, y", ())), (("x", ()), ("y", ()))]
    comma, plain = (SimpleNamespace(observation_parts=parts) for parts in names)
    assert pretrain.goal_words(data, plain) == f"x={row[0]:.3g},y={row[1]:.3g}"
    assert pretrain.goal_words(data, comma) == "row:0"


def test_the_clock_is_held_against_what_the_data_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_config, "updates", lambda *_: 17_000)
    flags, data = pretrain.Pretrain(data="log", out="run", method="hilp", minutes=4.0), hilp.load(carts(episodes=2))
    told = pretrain.more_minutes(flags, data, 3_160)
    assert told is not None and "19% of the 17,000" in told and told.endswith("--resume --minutes 24")
    assert pretrain.more_minutes(flags, data, 9_000) is None


def test_data_is_measured_as_it_was_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = carts()
    policy = hilp.pretrain(SMALL, hilp.load(fast, stride=2), steps=1, quiet=True)
    assert held_out.as_trained(policy, hilp.load(fast)).stride == 2
    with pytest.raises(HilpError, match="this policy has 2 observation and 2 action numbers"):
        held_out.measure(policy, hilp.load({**fast, "actions": fast["actions"][:, :1]}))
    monkeypatch.setattr(policy, "has_rule", lambda rule: rule == "backward")
    with pytest.raises(HilpError, match="no goal rule"):
        held_out.measure(policy, hilp.load(fast))


# ---- advice ----------------------------------------------------------------------------------------------------------

FINE = {"time_correlation": 0.9, "plain_correlation": 0.8, "saturated": 0.0, "agreement": 0.9, "reached_any": True}
DONE = {"discount": 0.97, "normalize": True, "stride": 1, "scale": None, "moving": 0.01, "updates": 8000}


@pytest.mark.parametrize(
    ("found", "done", "wanted", "not_wanted"),
    [
        ({"saturated": 0.8}, {}, "raise phi_discount", "--resume"),
        ({"saturated": 0.8}, {"discount": 0.995}, "Nothing stands out", "raise phi_discount"),
        ({}, {"scale": {"crossing": 300.0, "stride": 10}}, "--stride 10", "phi_discount"),
        ({}, {"scale": {"crossing": 300.0, "stride": 10}, "stride": 10}, "Nothing stands out", "--stride"),
        ({}, {"moving": 0.4}, "--resume --steps 16000", "phi_discount"),
        ({"time_correlation": 0.2}, {"normalize": False}, "normalize=true", "--resume"),
        ({"time_correlation": 0.2}, {}, "Plain distances", "normalize"),
        ({"time_correlation": 0.2, "plain_correlation": 0.1}, {}, "add velocities", "normalize"),
        ({"agreement": 0.5}, {}, "check that each command", "phi_discount"),
        ({"reached_any": False}, {}, "no goal is reached", "phi_discount"),
        ({}, {}, "Nothing stands out", "--"),
    ],
)
def test_advice_goes_by_the_cause(found: dict, done: dict, wanted: str, not_wanted: str) -> None:
    told = " ".join(explain.advise([{**FINE, **found}], {**DONE, **done}))
    assert wanted in told and not_wanted not in told


# ---- from the shell --------------------------------------------------------------------------------------------------


def test_training_on_own_data_ends_in_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "log.npz", **carts(episodes=20))
    run = tmp_path / "run"
    asked = ["pretrain", "--data", str(tmp_path / "log.npz"), "--out", str(run), "--steps", "3", "--set", *TINY]
    assert cli.main(asked) == 0
    told, err = capsys.readouterr()
    assert "measuring on 2 held-out episodes ..." in err and "building the graph of the data ..." in err
    assert "rank correlation" in told and f"hilp prompt {run} --goal row:0`" in told
    assert cli.main(["prompt", str(run), "--goal", "row:0"]) == 0
    kept = Dataset.open(run / runs.HELD_OUT)
    assert kept.episodes == 2 and json.loads((run / runs.RUN).read_text())["validation"] == 0.1
    states = hilp.FoundationPolicy.load(run).bank.observations
    assert not (kept.observations[:, None] == states).all(axis=-1).any(), "plans know nothing of what measures them"
    for word in (
        ["--load", "x"],
        ["--goal", "1,1"],
        ["--random"],
        ["--intercept"],
        ["--rule", "goal"],
        ["--smooth", "3"],
    ):
        assert cli.main(["evaluate", str(run), *word]) == 2
        assert f"{word[0]} needs a task to act in" in capsys.readouterr().err
    assert hilp.FoundationPolicy.load(run).provenance.plan in (0, 1, 3, "auto", "graph")
    assert cli.main(["evaluate", str(run), "--data", "held-out", "--plan", "0", "--episodes", "5"]) == 0  # as suggested
    assert cli.main(["evaluate", str(run), "--plan", "0", "--episodes", "5", "--json"]) == 0  # nothing else is known
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (row["task"], row["metric"], row["held_out"]["data"]) == (
        "held-out",
        "estimated success",
        str(tmp_path / "log.npz"),
    )
    np.savez(tmp_path / "more.npz", **carts(episodes=5, seed=3))
    assert cli.main(["evaluate", str(run), "--data", str(tmp_path / "more.npz"), "--plan", "0", "--episodes", "5"]) == 0
    assert len(rows.read_rows(run / runs.ROWS)) == 5 + 3
    assert cli.main(["report", str(run)]) == 0 and "estimated success" in (run / runs.PAGE).read_text()
    assert cli.main(["diagnose", str(run)]) == 0 and "advises plan" in capsys.readouterr().out
    assert cli.main([*asked, "--resume"]) == 0  # with the share that it began with


def test_what_cannot_be_measured_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = replace_task(trained(1))
    policy.save(tmp_path / "policy")
    for asked, wanted in (([], "--data FILE"), (["--data", "held-out"], "kept no episodes")):
        assert cli.main(["evaluate", str(tmp_path / "policy"), *asked]) == 2
        assert wanted in capsys.readouterr().err


def replace_task(policy: hilp.FoundationPolicy) -> hilp.FoundationPolicy:
    policy.provenance = replace(policy.provenance, task=None)
    return policy


# ---- runs that end by themselves -------------------------------------------------------------------------------------


def test_a_run_ends_when_distances_stand_still(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(options, "CONVERGENCE_EVERY", 20)
    monkeypatch.setattr(loop, "CONVERGED", 0.2)
    data = hilp.load(carts(episodes=10))
    whole = hilp.pretrain(SMALL, data, steps="auto", most_steps=1000, out=tmp_path / "whole", quiet=True)
    ended = whole.provenance.steps
    assert ended is not None and ended % 20 == 0 and 60 <= ended < 1000
    lines = [json.loads(line) for line in (tmp_path / "whole" / runs.METRICS).read_text().splitlines()]
    assert lines[-1]["step"] == ended and lines[-1]["phi_change"] < 0.2

    def stop(row: dict[str, float]) -> None:
        if row["step"] == ended - 10:
            raise RuntimeError("power cut")

    asked = {"steps": "auto", "most_steps": 1000, "out": tmp_path / "cut", "quiet": True, "log_every": 10}
    with pytest.raises((HilpError, TrainingStopped)):
        hilp.pretrain(SMALL, data, **asked, on_metrics=stop)  # type: ignore[call-overload]
    again = hilp.pretrain(SMALL, data, **asked, resume=True)  # type: ignore[call-overload]
    assert again.provenance.steps == ended and again.fingerprint == whole.fingerprint
    assert json.loads((tmp_path / "cut" / runs.RUN).read_text())["until"] == {"converged": True}


def test_a_run_that_ends_while_phi_moves_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "MOVING", 0.005)
    policy = hilp.pretrain(SMALL, hilp.load(carts(episodes=10)), steps=24, out=tmp_path / "run")
    assert policy.provenance.moving is not None and policy.provenance.moving > loop.MOVING
    assert "phi still moves" in capsys.readouterr().err
    assert hilp.FoundationPolicy.load(tmp_path / "run").provenance.moving == policy.provenance.moving


@pytest.mark.parametrize(("minutes", "advised"), [(None, "--steps 20"), (3.0, "--resume and more --minutes")])
def test_a_run_that_the_clock_ends_is_advised_more_of_it(minutes: float | None, advised: str) -> None:
    watched: Any = SimpleNamespace(change=0.5, _run=SimpleNamespace(options=TrainOptions(steps=10, minutes=minutes)))
    told = loop.Convergence.still_moving(watched, 10)
    assert told is not None and advised in told and ("--steps" in told) == (minutes is None)


def test_a_config_in_run_json_that_is_none_is_said(tmp_path: Path) -> None:
    data, config = hilp.load(carts(episodes=10)), replace(SMALL, phi_discount="auto")
    with pytest.raises(HilpError, match=r"the config in run\.json is no config, but 5"):
        auto_config.resolve(config, data, {"config": 5})


def test_the_clock_tells_what_is_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    line = progress.Progress(10**9, seconds=60.0)
    for second in (1.0, 2.0):
        line.advance(5, {}, {}, second)
    shown = capsys.readouterr().err
    assert "ETA 58 s" in shown and "training 10 " in shown and "000" not in shown.split("/s")[0]


def test_minutes_bound_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = hilp.load(carts(episodes=10))
    policy = hilp.pretrain(SMALL, data, steps=10**6, minutes=0.01, out=tmp_path / "run", quiet=True)
    ended = policy.provenance.steps
    assert ended is not None and 0 < ended < 10**6
    monkeypatch.setattr(options, "LEAST_SECONDS", 0.05)
    hilp.pretrain(SMALL, data, steps=10**9, minutes=0.02, out=tmp_path / "logged", quiet=True)
    rows = (tmp_path / "logged" / "metrics.jsonl").read_text().splitlines()
    assert len(rows) >= 3, "rows by the clock, not by updates that never come"
    again = hilp.pretrain(SMALL, data, steps=10**6, minutes=0.01, out=tmp_path / "run", resume=True, quiet=True)
    assert again.provenance.steps == ended  # its time is over
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(HilpError, match="minutes"):
            hilp.pretrain(SMALL, data, steps=5, minutes=wrong)
    with pytest.raises(HilpError, match="give a number"):
        hilp.pretrain(replace(SMALL, schedule="sequential", phi_steps=5), data, steps="auto")
