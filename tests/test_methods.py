"""One conformance suite for every method: init, update, export, save, load, same action, exact resume, one trace."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hilp
from hilp import storage
from hilp.learning import methods, sampling
from hilp.spec import Spec
from hilp.training.loop import Run, chunk_function, drawn_batch, programs

SUCCESSOR: dict[str, Any] = {"dim": 4, "entrance": (16, 8), "hidden": 16, "batch": 32}
SMALL: dict[str, dict[str, Any]] = {
    "hilp": {"dim": 4, "hidden": (16, 16), "actor_hidden": (16, 16), "batch": 32},
    **{name: {**SUCCESSOR, "phi_hidden": (16, 16)} for name in methods.MODULES if name.startswith("sf-")},
    "fb": {**SUCCESSOR, "backward_hidden": (16, 16)},
    "gc-td3": {"entrance": (16, 8), "hidden": 16, "batch": 32},
    "gc-bc": {"actor_hidden": (16, 16), "batch": 32},
    "gc-iql": {"hidden": (16, 16), "actor_hidden": (16, 16), "batch": 32},
    "gc-cql": {"hidden": (16, 16), "actor_hidden": (16, 16), "batch": 32, "samples": 3},
    **{
        name: {"dim": 4, "phi_hidden": (16, 16), "hidden": (16, 16), "actor_hidden": (16, 16), "batch": 32}
        for name in methods.MODULES
        if name.startswith("iql-")
    },
}
WITHOUT_VALUES = {"gc-bc"}  # methods that only imitate have nothing to bootstrap from, so no target
SPEC = Spec(observation_dim=3, action_dim=2)


def config_of(name: str) -> Any:
    return methods.config(name, **SMALL[name])


def noise(rows: int = 400) -> hilp.Dataset:
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(rows, 3)).astype(np.float32)
    actions = rng.uniform(-1, 1, size=(rows, 2)).astype(np.float32)
    return hilp.Dataset(observations, actions, np.full(rows // 20, 20))


def equal(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


pytestmark = pytest.mark.parametrize("name", sorted(methods.MODULES))


@pytest.fixture(autouse=True, scope="module")
def _compile_quickly() -> Iterator[None]:
    """These networks run for milliseconds; compiling them well takes far longer than running them badly."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def first_of_module(name: str) -> bool:
    """Whether this is the first name of its module: names that share one differ in a loss, not in how they run."""
    return name == next(other for other, (path, _) in methods.MODULES.items() if path == methods.MODULES[name][0])


def test_every_method_is_covered(name: str) -> None:
    assert name in SMALL
    public = {"Config", "sample", "init", "update", "export"}
    assert public <= set(dir(methods.module(name)))


def test_targets_equal_online_weights_at_step_zero(name: str) -> None:
    state = programs(config_of(name), SPEC, False, False)[0](jax.random.key(0))
    targets = [field for field in state._fields if field.endswith("_target")]
    assert bool(targets) == (name not in WITHOUT_VALUES)
    if name in WITHOUT_VALUES:
        assert set(state._fields) == {"actor", "actor_average", "opt"}
    for field in targets:
        assert equal(getattr(state, field), getattr(state, field.removesuffix("_target"))), field


def test_update_is_traced_once_whatever_the_chunk_lengths(name: str) -> None:
    module, config = methods.module(name), config_of(name)
    calls = []

    class Counted:
        sample = staticmethod(module.sample)

        @staticmethod
        def update(*args: Any) -> Any:
            calls.append(1)
            return module.update(*args)

    data = noise()
    run = Run(config, data, seed=0, seeds=1, validation=0.0)
    drawn = partial(drawn_batch, module, config)
    chunk = jax.jit(chunk_function(Counted, config, drawn))  # type: ignore[arg-type]
    state = run.fresh
    for start, count in ((0, 3), (3, 1), (4, 7)):
        state, _, _ = chunk(state, (run.columns, run.index), run.keys, jnp.int32(start), jnp.int32(count))
    assert len(calls) == 1


def test_chunk_lengths_do_not_change_the_result(name: str) -> None:
    run = Run(config_of(name), noise(), seed=0, seeds=1, validation=0.0)
    copy = lambda: jax.tree.map(jnp.copy, run.fresh)  # noqa: E731
    whole, _ = run.advance(copy(), 0, 10)
    part, _ = run.advance(copy(), 0, 4)
    part, _ = run.advance(part, 4, 6)
    assert equal(whole, part)


def test_training_is_deterministic_and_seeds_differ(name: str) -> None:
    one, two, other = (hilp.pretrain(config_of(name), noise(), steps=5, seed=seed, quiet=True) for seed in (0, 0, 1))
    assert one.fingerprint == two.fingerprint
    assert one.fingerprint != other.fingerprint


def test_save_and_load_give_the_same_action(name: str, tmp_path: Path) -> None:
    data = noise()
    policy = hilp.pretrain(config_of(name), data, steps=5, quiet=True)
    policy.save(tmp_path / "policy")
    again = hilp.FoundationPolicy.load(tmp_path / "policy")
    z = np.random.default_rng(3).normal(size=policy.skill_dim).astype(np.float32)
    np.testing.assert_array_equal(policy.act(data.observations[:9], z), again.act(data.observations[:9], z))
    assert again.fingerprint == policy.fingerprint
    actions = policy.act(data.observations, z)
    assert actions.shape == (len(data.observations), 2)
    assert np.abs(actions).max() <= 1.0


def test_resume_is_exact(name: str, tmp_path: Path) -> None:
    config, data = config_of(name), noise()
    whole = hilp.pretrain(config, data, steps=30, quiet=True, out=tmp_path / "whole")
    hilp.pretrain(config, data, steps=11, quiet=True, out=tmp_path / "parts")
    parts = hilp.pretrain(config, data, steps=30, quiet=True, out=tmp_path / "parts", resume=True)
    assert whole.fingerprint == parts.fingerprint
    newest = [sorted((tmp_path / run / "checkpoints").iterdir())[-1] for run in ("whole", "parts")]
    (a, _), (b, _) = (storage.read_arrays(path) for path in newest)
    assert equal(a, b), "optimiser state included"


def test_several_seeds_in_one_program_match_their_single_runs(name: str, tmp_path: Path) -> None:
    if not first_of_module(name):
        pytest.skip("its module is tested under another name")
    config, data = config_of(name), noise()
    together = hilp.pretrain(config, data, steps=20, seed=5, seeds=2, quiet=True, out=tmp_path / "run")
    assert len({policy.fingerprint for policy in together}) == 2
    for number, policy in enumerate(together):
        alone = hilp.pretrain(config, data, steps=20, seed=5 + number, quiet=True)
        for a, b in zip(jax.tree.leaves(alone.core), jax.tree.leaves(policy.core), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-4)
        assert hilp.FoundationPolicy.load(tmp_path / "run" / f"seed-{5 + number}").fingerprint == policy.fingerprint


@pytest.mark.parametrize("seeds", [1, 2])
def test_streamed_data_gives_the_same_batches_and_the_same_training(name: str, seeds: int) -> None:
    if not first_of_module(name):
        pytest.skip("its module is tested under another name")
    config, data = config_of(name), noise()
    device = Run(config, data, seed=3, seeds=seeds, validation=0.0)
    host = Run(config, data, seed=3, seeds=seeds, validation=0.0, device_budget=0)
    assert host.streamed
    assert not device.streamed
    key = device.keys if seeds == 1 else device.keys[1]
    blocks = host.stream.block(host.index, 5)
    own = blocks if seeds == 1 else jax.tree.map(lambda leaf: leaf[1], blocks)
    for i in (0, 7):
        rows = jax.random.split(jax.random.fold_in(key, 5 + i + 1))[0]
        wanted = drawn_batch(device.method, config, (device.columns, device.index), rows, jnp.int32(i))
        assert equal(wanted, jax.tree.map(lambda leaf, i=i: leaf[i], own)), "the same batch, bit for bit"
    states = [run.fresh for run in (device, host)]
    for start, count in ((0, 40), (40, 3), (43, 50)):
        states = [run.advance(state, start, count)[0] for run, state in zip((device, host), states, strict=True)]
    for a, b in zip(jax.tree.leaves(states[0]), jax.tree.leaves(states[1]), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_samples_are_rows_of_the_data(name: str) -> None:
    index, _ = sampling.build_index(np.full(20, 20))
    rows = methods.module(name).sample(config_of(name), index, jax.random.key(0))
    for field in (part for part in rows if part is not None):
        assert field.dtype == jnp.int32
        assert int(field.min()) >= 0 and int(field.max()) < 400
