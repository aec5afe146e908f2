"""Bodies that walk: found in the data by how it swings, and trained with hindsight."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hilp
from hilp.cli import main
from hilp.data.gait import stride_rows, walks
from hilp.learning import configs, methods
from hilp.training import auto_config
from hilp.training.options import TrainOptions


def walker(period: int, legs: int, places: int = 2, rows: int = 400) -> hilp.Dataset:
    """Places that drift, and legs that swing once in so many rows."""
    rng = np.random.default_rng(0)
    seen, actions = [], []
    for _ in range(5):
        drift = np.cumsum(rng.normal(size=(rows, places)).cumsum(axis=0), axis=0) / rows
        swing = np.sin(2 * np.pi * np.arange(rows)[:, None] / period + rng.uniform(0, 6.28, legs))
        seen.append(np.concatenate([drift, swing], axis=1))
        actions.append(rng.uniform(-1, 1, (rows, 2)))
    return hilp.Dataset(
        np.concatenate(seen).astype(np.float32), np.concatenate(actions).astype(np.float32), np.full(5, rows), name="w"
    )


@pytest.mark.parametrize(("period", "rows"), [(8, 10), (13, 10), (26, 20), (38, 30), (200, None)])
def test_a_stride_is_as_long_as_it_takes_to_swing_back(period: int, rows: int | None) -> None:
    assert stride_rows(walker(period, legs=4)) == walks(walker(period, legs=4)) == rows


def test_what_drifts_alone_does_not_walk() -> None:
    assert stride_rows(walker(8, legs=1, places=3)) is None, "one column of four"
    assert stride_rows(hilp.load("maze-large")) is None


def test_noise_does_not_walk() -> None:
    rng = np.random.default_rng(0)
    seen, acted = rng.normal(size=(4000, 6)), rng.uniform(-1, 1, (4000, 2))
    data = hilp.Dataset(seen.astype(np.float32), acted.astype(np.float32), np.full(40, 100), name="noise")
    assert stride_rows(data) is None
    difference = np.diff(seen, axis=0, prepend=0)  # as speeds of noisy positions are
    data = hilp.Dataset(difference.astype(np.float32), acted.astype(np.float32), np.full(40, 100), name="noise")
    assert stride_rows(data) is None


def test_a_stride_is_not_subsampled_whatever_k_is() -> None:
    config = hilp.preset("hindsight", "laptop").config
    for k in ("auto", "20"):
        found = auto_config.resolve(configs.changed(config, {"k": k}), walker(26, legs=4))
        assert found.data.stride in (None, 1) and found.config.k == 20


def test_a_pendulum_swings_and_does_not_walk() -> None:
    world, rng = pytest.importorskip("gymnasium").make("Acrobot-v1"), np.random.default_rng(0)
    seen = np.concatenate(
        [[world.reset(seed=n)[0]] + [world.step(rng.integers(3))[0] for _ in range(150)] for n in range(30)]
    )
    data = hilp.Dataset(seen, rng.uniform(-1, 1, (len(seen), 1)).astype(np.float32), np.full(30, 151), name="acrobot")
    assert stride_rows(data) == 10 and walks(data) is None
    assert auto_config.method_for(data) == ("hilp", None)


@pytest.mark.parametrize("period", [10, 14, 26])
def test_an_arm_that_does_one_thing_again_and_again_does_not_walk(period: int) -> None:
    """Joints go to a place that is drawn anew and back, a hand closes, and what it holds is somewhere else then."""
    rng, cycles = np.random.default_rng(0), 400 // period
    lift = np.sin(np.pi * np.arange(period) / period)[:, None] ** 2
    closed = (np.arange(period) < period / 2)[:, None]
    seen = []
    for _ in range(10 * cycles):
        here, there = rng.uniform(-1, 1, (2, 6))
        seen.append(
            np.concatenate([0.2 * here + lift * (1 + 0.2 * there), closed, np.where(closed, here, there)[:, :3]], 1)
        )
    observed = np.concatenate(seen).astype(np.float32)
    acted = rng.uniform(-1, 1, (len(observed), 2)).astype(np.float32)
    data = hilp.Dataset(observed, acted, np.full(10, cycles * period), name="arm")
    assert stride_rows(data) is not None and walks(data) is None


def test_short_episodes_and_pictures_do_not_walk() -> None:
    data = walker(8, legs=4, rows=9)
    assert stride_rows(data) is None
    pictures = {"camera": np.zeros((len(data.actions), 4, 4, 3), np.uint8)}
    assert stride_rows(hilp.Dataset(pictures, data.actions, data.lengths, name="p")) is None


def test_pretrain_in_python_takes_a_name() -> None:
    data = walker(8, legs=4, rows=40)
    policy = hilp.pretrain("nearest", data, bank=5, steps=2, quiet=True)
    assert policy.method == "nearest" and policy.provenance.steps == 2 and len(policy.bank) == 5
    with pytest.raises(hilp.HilpError, match="gc-bc"):
        hilp.pretrain("gc-bd", data)
    with pytest.raises(hilp.HilpError, match="steps"):
        hilp.pretrain("auto", data, steps=0)
    with pytest.raises(hilp.HilpError, match="with keywords"):
        hilp.pretrain("auto", data, TrainOptions(steps=1))


def test_a_name_goes_on_with_all_that_a_run_began_with(tmp_path: Path) -> None:
    """Its config, steps and held-out episodes, and not those that its preset has today."""
    data, out = walker(8, legs=4, rows=40), tmp_path / "run"
    tiny = dict.fromkeys(("hidden", "actor_hidden"), (8,))
    before = hilp.pretrain(hilp.HILP(**tiny, dim=3, batch=8), data, steps=3, validation=0.25, out=out, quiet=True)
    for name in ("hilp", "auto"):
        after = hilp.pretrain(name, data, out=out, resume=True, quiet=True)
        assert after.settings == before.settings and after.provenance.steps == 3
        assert after.fingerprint == before.fingerprint
    assert hilp.pretrain("auto", data, steps=4, out=out, resume=True, quiet=True).provenance.steps == 4


def test_what_phi_looks_ahead_and_skips_stays_as_the_run_began(tmp_path: Path) -> None:
    config = hilp.preset("hilp", "laptop").config
    before = {"method": "hilp", "config": {**methods.config_values(config), "phi_discount": 0.9, "dim": 5}, "stride": 3}
    begun = auto_config.config_begun(config, before)
    assert begun.dim == 5 and begun.lived == config.lived and begun.phi_discount == "auto"  # so the stride counts, too
    resolved = auto_config.resolve(begun, walker(8, legs=4, rows=60), before)
    assert resolved.config.phi_discount == 0.9 and resolved.data.stride == 3
    assert auto_config.config_begun(config, {**before, "method": "gc-bc"}) == config


def test_pretrain_takes_hindsight_for_bodies_that_walk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = walker(26, legs=4)
    preset, _, found = auto_config.usual("auto", data)  # as `hilp.pretrain("auto", data)` in Python
    assert preset == hilp.preset("hindsight", "laptop") and found == {
        "steps": preset.steps,
        "bank": preset.bank,
        "validation": 0.0,
    }
    assert auto_config.usual("auto", data, before={"method": "gc-bc"})[0] == hilp.preset("gc-bc", "laptop")
    data.save(tmp_path / "data")
    words = ["pretrain", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "run")]
    sizes = ["--set", "dim=4", "hidden=8", "actor_hidden=8", "batch=8"]
    assert main([*words, *sizes, "--steps", "2"]) == 0
    told = capsys.readouterr().err
    assert "swing back within 20 rows and others get on, as in a body that walks: trained with hindsight" in told
    assert "skills sum up 20 rows" in told
    policy = hilp.FoundationPolicy.load(tmp_path / "run")
    assert policy.method == "hindsight" and policy.config.k == 20 and policy.stride == 1
    assert main([*words, *sizes, "--steps", "4", "--resume"]) == 0, "with the method that it was begun with"
    assert "trained with hindsight" not in capsys.readouterr().err
    assert hilp.FoundationPolicy.load(tmp_path / "run").provenance.steps == 4
