"""Loss formulas, one a function. All are pure; none moves a target or draws a random number."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
import optax
from jax import Array

Tree = TypeVar("Tree")

ADAM_B1, ADAM_B2, ADAM_EPSILON = 0.9, 0.999, 1e-8


def expectile(advantage: Array, error: Array, tau: float) -> Array:
    """|tau - 1(advantage < 0)| * error^2: an asymmetric square, weighted by the sign of `advantage`.

    Plain expectile regression has advantage == error; the Hilbert loss weighs with one and squares the other.
    """
    return jnp.where(advantage < 0, 1.0 - tau, tau) * jnp.square(error)


def awr_weight(advantage: Array, temperature: float, most: float) -> Array:
    """min(exp(temperature * advantage), most): how much advantage-weighted regression imitates a sample."""
    return jnp.minimum(jnp.exp(temperature * advantage), most)


def polyak(target: Tree, online: Tree, rate: float) -> Tree:
    """Move a target network towards the online one: (1 - rate) * target + rate * online."""
    return jax.tree.map(lambda t, o: t + rate * (o - t), target, online)


def adam(params: Tree, grads: Tree, moments: optax.ScaleByAdamState, rate: float) -> tuple[Tree, optax.ScaleByAdamState]:
    """One step of Adam, the numbers of `optax.adam(rate)`.

    The barrier makes the step read the new moments instead of computing them again from the old ones, which
    would force a copy of every moment in every update.
    """
    count = moments.count + 1
    mu = jax.tree.map(lambda g, m: ADAM_B1 * m + (1.0 - ADAM_B1) * g, grads, moments.mu)
    nu = jax.tree.map(lambda g, v: ADAM_B2 * v + (1.0 - ADAM_B2) * jnp.square(g), grads, moments.nu)
    mu, nu = jax.lax.optimization_barrier((mu, nu))
    unbias1, unbias2 = 1.0 - ADAM_B1**count, 1.0 - ADAM_B2**count
    params = jax.tree.map(
        lambda p, m, v: p - rate * (m / unbias1) / (jnp.sqrt(v / unbias2) + ADAM_EPSILON), params, mu, nu
    )
    return params, optax.ScaleByAdamState(count, mu, nu)
