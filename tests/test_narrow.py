"""Logs that show few actions: how alike near states act, by hand and in collected data, and what is chosen by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hilp
from hilp import testing
from hilp.learning import methods
from hilp.training import auto_config
from test_methods import SMALL

METHODS = ("sf-hilp", "sf-lap", "fb", "gc-td3")


def log(controlled: bool, noise: float = 0.0) -> hilp.Dataset:
    """Random states, and a controller's actions there or random ones."""
    rng = np.random.default_rng(0)
    seen = rng.uniform(-1, 1, (4000, 2)).astype(np.float32)
    actions = np.sin(3 * seen) if controlled else rng.uniform(-1, 1, (4000, 2))
    actions = actions + noise * rng.normal(size=actions.shape)
    return hilp.Dataset(seen, actions.astype(np.float32), np.full(40, 100), name="log")


def test_the_number_by_hand() -> None:
    """Two episodes of three transitions; the nearest state of the other one did the same, the same but once."""
    seen = np.array([[0.0], [1.0], [2.0], [9.0], [0.1], [1.1], [2.1], [9.1]], np.float32)
    acted = np.array([[1.0], [-1.0], [1.0], [0.0]] * 2, np.float32)
    data = hilp.Dataset(seen, acted, np.array([4, 4]))
    assert auto_config.action_spread(data) == 0.0
    acted[6] = -1.0  # rows 2 and 6 are each other's nearest: 2 of 6 differ by 4, and the variance is 1
    assert auto_config.action_spread(data) == pytest.approx((2 * 4 / 6) / 2)
    assert auto_config.action_spread(replace(data, lengths=np.array([8]))) is None
    assert auto_config.action_spread(replace(data, actions=np.zeros((8, 1), np.float32))) is None


def test_near_states_act_alike_under_a_controller_only() -> None:
    assert auto_config.action_spread(log(controlled=True)) < 0.05
    assert auto_config.action_spread(log(controlled=False)) == pytest.approx(1.0, abs=0.1)
    weight, line = auto_config.bc_weight_for(log(controlled=True, noise=0.2))
    assert weight == 0.3 and line is not None and "bc_weight 0.3" in line
    for broad in (log(controlled=False), testing.small_data(), hilp.collect("maze-medium", "explore", 5_000)):
        assert auto_config.bc_weight_for(broad) == (0.0, None)


def test_the_log_of_a_walking_ant_is_narrow(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    data = hilp.collect("ant-open", None, 3_000, out=tmp_path / "ant")
    assert auto_config.bc_weight_for(data)[0] == 0.3


@pytest.mark.parametrize("name", METHODS)
def test_presets(name: str) -> None:
    assert hilp.preset(name, "laptop").config.bc_weight == "auto"
    assert hilp.preset(name, "paper").config.bc_weight == 0.0


def test_auto_becomes_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = methods.config("gc-td3", **SMALL["gc-td3"], bc_weight="auto")
    policy = hilp.pretrain(config, log(controlled=True), steps=2, out=tmp_path / "run")
    assert policy.config.bc_weight == 0.3 and "near states act alike" in capsys.readouterr().err
    more = hilp.pretrain(config, log(controlled=True), steps=4, out=tmp_path / "run", resume=True, quiet=True)
    assert more.config.bc_weight == 0.3
    assert auto_config.resolve(config, log(controlled=False)).config.bc_weight == 0.0
