"""Loss formulas, one a function. All are pure; none moves a target or draws a random number."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

Tree = TypeVar("Tree")


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
