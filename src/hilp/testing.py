"""The conformance suite of methods: what every method must do, for yours as for those that come with hilp.

    from hilp import testing
    testing.check_method(my_method.Config(batch=32, ...))       # raises AssertionError with what is wrong

A check takes a config with small networks and a small batch. docs/add-a-method.md says how a method is written.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hilp import storage
from hilp.data.dataset import Dataset
from hilp.learning import methods
from hilp.policy.policy import FoundationPolicy
from hilp.spec import Spec
from hilp.training.loop import pretrain
from hilp.training.program import chunk_function, drawn_batch
from hilp.training.run import Run

RULES_OF_A_GOAL, RULES_OF_A_REWARD = ("direct", "aim"), ("cumulant", "backward")


def check_method(config: Any) -> None:
    """Run every check on a method's config."""
    for check in CHECKS:
        check(config)


def small_data(rows: int = 400) -> Dataset:
    """Noise with three numbers a state and two an action, in episodes of twenty rows."""
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(rows, 3)).astype(np.float32)
    actions = rng.uniform(-1, 1, size=(rows, 2)).astype(np.float32)
    return Dataset(observations, actions, np.full(rows // 20, 20))


def check_contract(config: Any) -> None:
    """Five names, a name of its own, and an export whose rules fit together."""
    name = methods.name_of(config)
    module = methods.module(name)
    state = jax.eval_shape(lambda: module.init(config, Spec(3, 2), jax.random.key(0)))
    core = module.export(config, state)
    fields = {field.name for field in dataclasses.fields(config)}
    assert fields >= {"batch", "normalize"}, "a Config says how large a batch is and whether to normalize"
    type(config)()  # every field has a default: kept policies are read with it
    assert hasattr(core, "skill_dim"), "an export says how many numbers a skill has: skill_dim"
    assert hasattr(core, "act"), "an export acts: act(observation, z)"
    if hasattr(core, "direct"):
        assert hasattr(core, "encode"), "direct(here, there) takes latents: an export with it needs encode(s)"
        assert hasattr(core, "discount"), "plans need to know how far distances are told apart: discount"
    if hasattr(core, "cumulant") or hasattr(core, "backward"):
        assert hasattr(core, "project"), "a reward becomes a skill by project(z)"
    takes_tasks = any(hasattr(core, rule) for rule in (*RULES_OF_A_GOAL, *RULES_OF_A_REWARD))
    assert takes_tasks, "an export without any rule can be prompted with nothing but a skill"


def check_targets(config: Any) -> None:
    """Targets (fields of the state that end in _target), where there are any, equal their networks at step 0."""
    state = Run(config, small_data()).fresh
    for field in getattr(state, "_fields", ()):
        if field.endswith("_target"):
            assert equal(getattr(state, field), getattr(state, field.removesuffix("_target"))), field


def check_samples(config: Any) -> None:
    """Samplers ask for rows of the data by number."""
    run = Run(config, small_data())
    for stage in run.stages:
        rows = stage.sample(config, run.index, jax.random.key(0))
        for wanted in rows.columns.values():
            for name, numbers in wanted.items():
                assert jnp.issubdtype(numbers.dtype, jnp.integer), name
                assert int(numbers.min()) >= 0 and int(numbers.max()) < run.data.rows, name


def check_one_trace(config: Any) -> None:
    """`update` is traced once, whatever the lengths of chunks."""
    run = Run(config, small_data())
    for number, stage in enumerate(run.stages):
        calls: list[int] = []

        def counted(*args: Any, stage: Any = stage, calls: list[int] = calls) -> Any:
            calls.append(1)
            return stage.update(config, *args)

        run.enter(number, run.fresh)
        chunk = jax.jit(chunk_function(counted, partial(drawn_batch, config, stage.sample)))
        state = run.fresh
        for start, count in ((0, 3), (3, 1), (4, 7)):
            state, _, _ = chunk(state, (run.columns, run.index), run.keys, jnp.int32(start), jnp.int32(count))
        assert len(calls) == 1, f"update of stage {number} was traced {len(calls)} times"


def check_chunks(config: Any) -> None:
    """The lengths of chunks do not change the result."""
    run = Run(config, small_data())
    whole, _ = run.advance(jax.tree.map(jnp.copy, run.fresh), 0, 10)
    part, _ = run.advance(jax.tree.map(jnp.copy, run.fresh), 0, 4)
    part, _ = run.advance(part, 4, 6)
    assert equal(whole, part), "the lengths of chunks change the result"


def check_determinism(config: Any) -> None:
    """Equal seeds give equal policies, different ones different policies."""
    one, two, other = (pretrain(config, small_data(), steps=5, seed=seed, quiet=True) for seed in (0, 0, 1))
    assert one.fingerprint == two.fingerprint
    assert one.fingerprint != other.fingerprint


def check_artifact(config: Any) -> None:
    """A policy that was saved and loaded acts as before, inside the box."""
    data = small_data()
    policy = pretrain(config, data, steps=5, quiet=True)
    with tempfile.TemporaryDirectory() as folder:
        again = FoundationPolicy.load(policy.save(Path(folder) / "policy"))
    z = np.random.default_rng(3).normal(size=policy.skill_dim).astype(np.float32)
    actions = policy.act(data.observations, z)
    np.testing.assert_array_equal(actions, again.act(data.observations, z))
    assert again.fingerprint == policy.fingerprint
    assert actions.shape == (len(data.observations), 2)
    assert np.abs(actions).max() <= 1.0


def check_resume(config: Any) -> None:
    """A run that was stopped and resumed ends in the same bits, optimiser included."""
    data = small_data()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = pretrain(config, data, steps=30, quiet=True, out=folder / "whole")
        pretrain(config, data, steps=11, quiet=True, out=folder / "parts")
        parts = pretrain(config, data, steps=30, quiet=True, out=folder / "parts", resume=True)
        assert whole.fingerprint == parts.fingerprint, "resumed runs end elsewhere; columns of what a stage trains?"
        newest = [sorted((folder / run / "checkpoints").iterdir())[-1] for run in ("whole", "parts")]
        (a, _), (b, _) = (storage.read_arrays(path) for path in newest)
        assert equal(a, b), "optimiser state included"


def check_seeds(config: Any) -> None:
    """Several seeds in one program match their single runs."""
    data = small_data()
    together = pretrain(config, data, steps=20, seed=5, seeds=2, quiet=True)
    assert len({policy.fingerprint for policy in together}) == 2
    for number, policy in enumerate(together):
        alone = pretrain(config, data, steps=20, seed=5 + number, quiet=True)
        for a, b in zip(jax.tree.leaves(alone.core), jax.tree.leaves(policy.core), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-4)


def check_stream(config: Any, seeds: int = 1) -> None:
    """Streamed data gives the same batches (XLA and numpy round a division differently) and the same training."""
    device = Run(config, small_data(), seed=3, seeds=seeds)
    host = Run(config, small_data(), seed=3, seeds=seeds, device_budget=0)
    assert host.streamed and not device.streamed
    key = device.keys if seeds == 1 else device.keys[1]
    blocks = host.block(0, 5)
    own = blocks if seeds == 1 else jax.tree.map(lambda leaf: leaf[1], blocks)
    source = (device.columns, device.index)
    for i in (0, 7):
        rows = jax.random.split(jax.random.fold_in(key, 5 + i + 1))[0]
        wanted = drawn_batch(config, device.stages[0].sample, source, rows, jnp.int32(i))
        found = jax.tree.map(lambda leaf, i=i: leaf[i], own)
        for a, b in zip(jax.tree.leaves(wanted), jax.tree.leaves(found), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6, err_msg="the same batch")
    states = [run.fresh for run in (device, host)]
    for start, count in ((0, 40), (40, 3), (43, 50)):
        states = [run.advance(state, start, count)[0] for run, state in zip((device, host), states, strict=True)]
    for a, b in zip(jax.tree.leaves(states[0]), jax.tree.leaves(states[1]), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def check_trees(config: Any, device_budget: int | None = None) -> None:
    """Observations that are a vector and an image are trained on, acted on, saved and loaded."""
    plain = small_data()
    camera = np.random.default_rng(1).integers(0, 256, size=(plain.rows, 4, 4, 3), dtype=np.uint8)
    data = dataclasses.replace(plain, observations={"camera": camera, "state": plain.observations})
    policy = pretrain(config, data, steps=10, device_budget=device_budget, quiet=True)
    one, batch = ({name: part[rows] for name, part in data.observations.items()} for rows in (0, slice(9)))
    z = np.random.default_rng(3).normal(size=policy.skill_dim).astype(np.float32)
    np.testing.assert_allclose(policy.act(one, z), policy.act(batch, z)[0], atol=1e-5)
    darker = {**batch, "camera": batch["camera"] // 2}
    assert not np.array_equal(policy.act(darker, z), policy.act(batch, z)), "the image makes no difference"
    with tempfile.TemporaryDirectory() as folder:
        again = FoundationPolicy.load(policy.save(Path(folder) / "policy"))
    np.testing.assert_array_equal(again.act(batch, z), policy.act(batch, z))
    if any(hasattr(policy.core, rule) for rule in RULES_OF_A_GOAL):
        assert again.act(batch, again.goal(one)).shape == (9, 2)


def equal(a: Any, b: Any) -> bool:
    """Whether two trees have equal arrays."""
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


CHECKS: tuple[Callable[[Any], None], ...] = (
    check_contract,
    check_targets,
    check_samples,
    check_one_trace,
    check_chunks,
    check_determinism,
    check_artifact,
    check_resume,
    check_seeds,
    check_stream,
    check_trees,
)
