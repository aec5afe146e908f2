"""Networks against the plain formulas they are a fast form of."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from hilp.learning import networks
from hilp.learning.actors import GaussianActor
from hilp.learning.networks import Dense, LayerNorm, Trunk


def plain(trunk: Trunk, x: jax.Array) -> jax.Array:
    """Dense, GELU, LayerNorm, ..., Dense as anybody would write it, differentiated by JAX."""
    for dense, norm in zip(trunk.hidden, trunk.norms, strict=True):
        x = norm(jax.nn.gelu(dense(x), approximate=True))
    return trunk.out(x)


def worn(trunk: Trunk, key: jax.Array) -> Trunk:
    """The trunk with every parameter moved, so that no scale is one and no shift or bias is zero."""
    leaves, structure = jax.tree.flatten(trunk)
    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(
        structure, [leaf + 0.3 * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys, strict=True)]
    )


@pytest.fixture(scope="module", params=[(64, 64, 64), (48, 16), (8,)])
def trunk(request: pytest.FixtureRequest) -> Trunk:
    return worn(Trunk(5, request.param, 3, jax.random.key(0)), jax.random.key(1))


def close(actual: jax.Array, expected: jax.Array) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-5 * max(1.0, float(np.abs(expected).max())))


@pytest.mark.parametrize("shape", [(5,), (80, 5), (4, 20, 5)])
def test_trunk_is_the_plain_formula(trunk: Trunk, shape: tuple[int, ...]) -> None:
    x = jax.random.normal(jax.random.key(2), shape)
    close(jax.jit(Trunk.__call__)(trunk, x), jax.jit(plain)(trunk, x))


@pytest.mark.parametrize("shape", [(5,), (80, 5), (4, 20, 5)])
def test_trunk_has_the_gradients_of_the_plain_formula(trunk: Trunk, shape: tuple[int, ...]) -> None:
    x = jax.random.normal(jax.random.key(2), shape)

    def loss(run, trunk: Trunk, x: jax.Array) -> jax.Array:
        return jnp.mean(jnp.sin(run(trunk, x)))

    actual, expected = (
        jax.jit(jax.grad(partial(loss, run), argnums=(0, 1)))(trunk, x) for run in (Trunk.__call__, plain)
    )
    jax.tree.map(close, actual, expected)


def test_trunk_survives_rows_without_variance() -> None:
    trunk = Trunk(2, (16, 16), 1, jax.random.key(0))
    flat = eqx.tree_at(lambda t: t.hidden[0].weight, trunk, jnp.zeros((2, 16)))  # every unit of layer one is equal
    x = jnp.ones((80, 2))
    close(flat(x), plain(flat, x))
    grads = jax.grad(lambda t: jnp.sum(t(x)))(flat)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(grads))


def test_vmap_over_trunks_is_each_trunk_in_turn() -> None:
    trunks = networks.ensemble(Trunk, 5, (16, 16), 2, key=jax.random.key(0), count=3)
    x = jax.random.normal(jax.random.key(1), (70, 5))

    @jax.jit
    def grad(trunk: Trunk) -> Trunk:
        return jax.grad(lambda t: jnp.sum(jnp.square(t(x))))(trunk)

    together = jax.jit(jax.vmap(grad))(jax.tree.map(lambda *leaves: jnp.stack(leaves), *trunks))
    for index, trunk in enumerate(trunks):
        jax.tree.map(close, jax.tree.map(lambda leaf: leaf[index], together), grad(trunk))  # noqa: B023


def test_gelu_is_the_tanh_form_by_hand() -> None:
    # x = 1: 0.5 * (1 + tanh(0.7978845608 * 1.044715)) = 0.5 * (1 + tanh(0.8335620)) = 0.8411920
    g, _ = networks.activate(jnp.array([1.0, -1.0]), jnp.ones(1), jnp.zeros(2))
    np.testing.assert_allclose(g, [0.8411920, -0.1588080], atol=1e-6)


def test_layer_norm_by_hand() -> None:
    norm = LayerNorm(2)
    np.testing.assert_allclose(norm(jnp.array([0.0, 0.002])), [-(0.5**0.5), 0.5**0.5], rtol=1e-5)  # variance == epsilon
    np.testing.assert_allclose(norm(jnp.array([1.0, 5.0])), [-1.0, 1.0], rtol=1e-5)


def test_dense_starts_uniform_with_the_fan_average_limit() -> None:
    dense = Dense(300, 100, jax.random.key(0))
    limit = (3.0 / 200.0) ** 0.5
    largest = float(jnp.abs(dense.weight).max())
    assert 0.99 * limit < largest <= limit
    assert float(dense.weight.std()) == pytest.approx(limit / 3**0.5, rel=0.02)
    assert not dense.bias.any()


def test_mean_head_starts_ten_times_smaller() -> None:
    key = jax.random.key(0)
    np.testing.assert_allclose(Dense(64, 4, key, scale=0.01).weight * 10.0, Dense(64, 4, key).weight, rtol=1e-5)
    head = GaussianActor(6, (64,), 4, key).mean
    limit = 0.1 * (3.0 / 34.0) ** 0.5
    assert 0.9 * limit < float(jnp.abs(head.weight).max()) <= limit


def test_networks_of_an_ensemble_differ_and_match_their_own_output() -> None:
    both = networks.ensemble(Trunk, 5, (16, 16), 3, key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (4, 5))
    out = networks.apply_all(both, x)
    assert out.shape == (2, 4, 3)
    assert float(jnp.abs(out[0] - out[1]).min()) > 0.0
    for index in range(2):
        close(out[index], plain(both[index], x))


@pytest.mark.parametrize(("log_std", "clipped"), [(-0.7, -0.7), (-9.0, -5.0), (4.0, 2.0)])
def test_log_prob_is_scipys(log_std: float, clipped: float) -> None:
    actor = GaussianActor(3, (16,), 2, jax.random.key(0))
    actor = eqx.tree_at(lambda a: a.log_std, actor, jnp.full((2,), log_std))
    x, action = jax.random.normal(jax.random.key(1), (5, 3)), jax.random.normal(jax.random.key(2), (5, 2))
    expected = scipy.stats.norm(np.asarray(actor(x)), np.exp(clipped)).logpdf(np.asarray(action)).sum(axis=-1)
    np.testing.assert_allclose(actor.log_prob(x, action), expected, rtol=1e-4)
