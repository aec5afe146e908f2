"""The data's own time scale: how it is measured, what follows for stride and discount, and that neither is silent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hilp
from hilp.collectors import collect
from hilp.data import audit, timescale
from hilp.data.dataset import Dataset
from hilp.errors import HilpError
from hilp.learning import configs
from hilp.policy.preparation import Preparation
from hilp.prompts.bank import Bank
from hilp.tasks.maze import MAZES
from hilp.training import auto_config

TINY = {"dim": 2, "hidden": (8,), "actor_hidden": (8,), "batch": 16, "normalize": False}


def strollers(rate: int, seconds: int = 200, walks: int = 30, noise: float = 0.0, seed: int = 0) -> Dataset:
    """Walks to and fro on a line of 100 m at 5 m/s, with turns now and then, logged at some rate; commands in m/s."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 100, walks)
    heading = rng.choice([-1.0, 1.0], walks)
    seen, told = [], []
    for _ in range(seconds * rate):
        heading = np.where(rng.random(walks) < 0.05 / rate, -heading, heading)
        heading = np.where(x <= 0, 1.0, np.where(x >= 100, -1.0, heading))
        seen.append(x + rng.normal(0, noise, walks))
        told.append(heading)
        x = x + 5.0 * heading / rate
    rows = np.stack(seen, 1).reshape(-1, 1)
    return hilp.load(
        {"observations": rows, "actions": np.stack(told, 1).reshape(-1, 1), "episode_lengths": [len(seen)] * walks}
    )


@pytest.mark.parametrize("rate", [1, 4, 20])
def test_the_way_across_is_that_of_the_line_at_every_rate(rate: int) -> None:
    """Of two points of a line of 100 m, 95% are less than 77.6 m apart: 15.5 s at 5 m/s."""
    scale = timescale.of_dataset(strollers(rate))
    assert scale.crossing is not None and 0.8 < scale.crossing / (15.5 * rate) < 1.25
    assert scale.stride == max(1, int(scale.crossing / timescale.FEW_STEPS))
    assert scale.discount == timescale.discount_for(scale.crossing / scale.stride)
    assert scale.discount == (0.98 if rate == 4 else 0.97)  # 60 steps are not worth a stride of two


def test_noise_of_the_sensors_is_told_from_motion() -> None:
    clean, noisy = (timescale.of_dataset(strollers(20, noise=noise)) for noise in (0.0, 0.5))
    assert clean.noise is not None and clean.noise < 0.2
    assert noisy.noise is not None and noisy.noise > 0.8  # steps of 0.25 m under an error of 0.5 m
    assert noisy.crossing is not None and 0.55 < noisy.crossing / (15.5 * 20) < 1.3 and noisy.stride >= 5


@pytest.mark.parametrize("kind", ["navigate", "stitch", "explore"])
@pytest.mark.parametrize("task", sorted(MAZES))
def test_built_in_mazes_are_trained_as_they_always_were(task: str, kind: str) -> None:
    data = collect(task, kind, 40_000, 0)
    assert auto_config.resolve(hilp.preset("hilp", "laptop", task).config, data).config.phi_discount == 0.97
    free = replace(data, task=None)
    fit = auto_config.resolve(hilp.preset("hilp", "laptop").config, free)
    assert (fit.config.phi_discount, fit.config.goal_discount) == (0.97, 0.97) and fit.data is free


def test_longer_ways_get_a_longer_horizon() -> None:
    discounts = [timescale.discount_for(steps) for steps in (None, 3.0, 49.0, 60.0, 100.0, 1000.0)]
    assert discounts == [0.97, 0.97, 0.97, 0.98, 0.99, 0.995]
    corridor = "\n".join(["#" * 44, "#" + "." * 42 + "#", "#" * 44])  # 42 cells: 105 steps of 0.4
    scale = timescale.of_dataset(collect(corridor, "navigate", 60_000, 0))
    assert scale.stride == 1 and scale.discount in (0.98, 0.99)


@pytest.mark.parametrize("rows", [np.zeros((40, 2)), np.random.default_rng(0).normal(size=(40, 2)), np.zeros((3, 1))])
def test_data_that_says_nothing_about_time_is_left_alone(rows: np.ndarray) -> None:
    scale = timescale.Sample(np.array([len(rows)])).measured(rows[timescale.Sample(np.array([len(rows)])).rows])
    assert scale.stride == 1 and "phi_discount" in scale.line
    assert timescale.Sample(np.array([3])).measured(np.full((3, 1), np.nan)).crossing is None


def test_inspect_says_what_training_will_do() -> None:
    report = audit.inspect(strollers(20))
    assert report.time_scale is not None and report.time_scale == timescale.of_dataset(strollers(20))
    assert f"stride {report.time_scale.stride}" in report.time_scale.line
    json.dumps(report.to_json()["time_scale"])


# ---- subsampling -----------------------------------------------------------------------------------------------------


def small(lengths: list[int], **more: object) -> Dataset:
    rows = sum(lengths)
    arrays = {"observations": np.arange(rows)[:, None], "actions": np.linspace(-1, 1, rows)[:, None]}
    return hilp.load({**arrays, "episode_lengths": lengths, "clock": np.arange(rows), **more})


def test_subsampling_by_hand() -> None:
    data = small([8, 3, 7])  # strides of three: rows 0 3 6 (7 is left), none, and 11 14 17
    thin = timescale.subsample(data, 3)
    assert thin.observations[:, 0].tolist() == [0, 3, 6, 11, 14, 17] and thin.lengths.tolist() == [3, 3]
    means = [data.actions[at : at + 3].mean() for at in (0, 3, 11, 14)]
    assert np.allclose(thin.actions[thin.transition_rows, 0], means, atol=1e-6)
    summed = timescale.subsample(data, 3, "sum")
    assert np.allclose(summed.actions, 3 * thin.actions, atol=1e-6)
    assert thin.extras["clock"].tolist() == [0, 3, 6, 11, 14, 17] and thin.stride == 3
    assert "1 episodes are shorter" in thin.notes[-1]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(2, 30), min_size=1, max_size=5), st.integers(1, 12))
def test_subsampled_rows_are_rows_of_the_log_and_commands_add_up(lengths: list[int], stride: int) -> None:
    data = small(lengths)
    if max(lengths) - 1 < stride:
        with pytest.raises(HilpError, match="lower the stride"):
            timescale.subsample(data, stride)
        return
    thin = timescale.subsample(data, stride)
    for rows in thin.iter_episodes():
        seen = thin.observations[rows, 0].astype(int)
        assert (np.diff(seen) == stride).all()
        whole = data.actions[seen[0] : seen[-1], 0].astype(np.float64).sum()
        assert np.isclose(stride * thin.actions[rows, 0][:-1].astype(np.float64).sum(), whole, atol=1e-4)


def test_a_stride_that_is_asked_for_is_taken_and_kept(tmp_path: Path) -> None:
    data = strollers(4)
    thin = hilp.load(data, stride=5)
    assert (thin.stride, thin.rows) == (5, 30 * (799 // 5 + 1))
    assert Dataset.open(thin.save(tmp_path / "thin")).stride == 5
    assert hilp.load(strollers(8), stride="auto").stride == timescale.of_dataset(strollers(8)).stride == 3
    assert hilp.load(data, stride="3").stride == 3
    open_, told = (
        auto_config.resolve(open_config(), d).data for d in (strollers(8), hilp.load(strollers(8), stride=1))
    )
    assert (open_.stride, told.stride) == (3, 1)
    with pytest.raises(HilpError, match="subsampled already"):
        hilp.load(thin, stride=2)
    for wrong in ("fast", 0, 2.5):
        with pytest.raises(HilpError, match="stride"):
            hilp.load(data, stride=wrong)  # type: ignore[arg-type]
    with pytest.raises(HilpError, match="'mean'"):
        hilp.load(data, stride=2, stride_actions="median")  # type: ignore[arg-type]


# ---- what is left to the data ----------------------------------------------------------------------------------------


def open_config() -> object:
    return replace(hilp.preset("hilp", "laptop").config, **TINY)


def test_numbers_that_somebody_gave_win() -> None:
    data = strollers(20)
    told = configs.changed(open_config(), {"phi_discount": "0.9"})
    fit = auto_config.resolve(told, data)
    assert (fit.config.phi_discount, fit.data) == (0.9, data)  # whoever says the horizon has thought of the rate
    assert fit.config.goal_discount == 0.995  # which is still open, at the stride that the data has
    tasked = replace(data, task="maze-large")
    assert auto_config.resolve(open_config(), tasked).data is tasked
    assert auto_config.resolve(hilp.HILP(), data) == auto_config.Resolved(hilp.HILP(), data)
    with pytest.raises(HilpError, match="phi_discount"):
        configs.changed(open_config(), {"phi_discount": "never"})
    with pytest.raises(HilpError, match="temperature"):
        configs.changed(open_config(), {"temperature": "auto"})


def test_a_policy_carries_its_stride_and_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = strollers(20, seconds=60)
    data = hilp.load(
        {"observations": raw.observations, "actions": 0.25 * raw.actions, "episode_lengths": raw.lengths},
        rescale_actions=True,
    )
    policy = hilp.pretrain(open_config(), data, steps=4, out=tmp_path / "run")
    stride = policy.preparation.stride
    assert stride > 1 and policy.config.phi_discount == 0.97
    assert f"stride {stride}" in capsys.readouterr().err
    described = json.loads((tmp_path / "run" / "run.json").read_text())
    assert described["stride"] == stride and described["config"]["phi_discount"] == 0.97
    again = hilp.FoundationPolicy.load(tmp_path / "run")
    assert again.preparation.stride == stride and again.fingerprint == policy.fingerprint
    command = again.act([50.0], again.goal([90.0]))
    assert np.abs(command) <= 0.25 + 1e-6  # a speed, as in the log

    # Resumed, it goes on with what it began with, whatever this version would choose now.
    described["config"]["phi_discount"], described["config"]["goal_discount"] = 0.98, 0.98
    fit = auto_config.resolve(open_config(), data, described)
    assert (fit.config.phi_discount, fit.data.stride) == (0.98, stride)
    more = hilp.pretrain(open_config(), data, steps=6, out=tmp_path / "run", resume=True, quiet=True)
    whole = hilp.pretrain(open_config(), data, steps=6, quiet=True)
    assert more.fingerprint == whole.fingerprint


def test_summed_commands_are_shared_out_over_the_rows_of_a_stride() -> None:
    raw = strollers(20, seconds=60)
    arrays = {"observations": raw.observations, "actions": raw.actions, "episode_lengths": raw.lengths}
    mean, summed = (hilp.load(arrays, stride=10, stride_actions=how, rescale_actions=True) for how in ("mean", "sum"))  # type: ignore[arg-type]
    ranges = [Preparation.of(data, normalize=False).action_half_range for data in (mean, summed)]
    assert np.allclose(*ranges) and np.allclose(ranges[0], 1.0)
    assert np.allclose(Bank.draw(mean, 50, 0).actions, Bank.draw(summed, 50, 0).actions, atol=1e-5)


def test_policies_of_whole_data_are_described_as_ever(tiny: hilp.FoundationPolicy) -> None:
    assert tiny.preparation.stride == 1 and "stride" not in tiny.preparation.to_json()


# ---- updates ---------------------------------------------------------------------------------------------------------


def test_data_that_takes_longer_to_cross_gets_more_updates() -> None:
    short, long = (collect(name, "navigate", 30_000) for name in ("maze-medium", "examples/maps/spiral.txt"))
    preset = hilp.preset("hilp", "laptop")
    assert auto_config.updates(preset, preset.config, short) == preset.steps == 8_000
    assert auto_config.resolve(preset.config, long).config.phi_discount == 0.99  # a horizon 3 times as long
    more = auto_config.updates(preset, preset.config, long)
    assert type(more) is int and more == 17_000  # 8,000 x 3^(2/3), in thousands


def test_updates_that_somebody_chose_stay() -> None:
    """By a discount of the user's own, or of a task that has a number of updates of its own."""
    long = collect("examples/maps/spiral.txt", "navigate", 30_000)
    preset = hilp.preset("hilp", "laptop")
    assert auto_config.updates(preset, replace(preset.config, phi_discount=0.99), long) == preset.steps
    chosen = hilp.preset("hilp", "laptop", "pointmaze-giant")
    assert configs.to_fit(chosen.config) and auto_config.updates(chosen, chosen.config, long) == chosen.steps == 20_000
    paper = hilp.preset("hilp", "paper")
    assert auto_config.updates(paper, paper.config, long) == paper.steps
