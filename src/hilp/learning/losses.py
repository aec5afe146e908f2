"""Loss formulas, one a function. All are pure; none moves a target or draws a random number."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

Tree = TypeVar("Tree")
TINY = 1e-6  # keeps a division by a mean of zero finite


def expectile(advantage: Array, error: Array, tau: float) -> Array:
    """|tau - 1(advantage < 0)| * error^2: an asymmetric square, weighted by the sign of `advantage`.

    Plain expectile regression has advantage == error; the Hilbert loss weighs with one and squares the other.
    """
    return jnp.where(advantage < 0, 1.0 - tau, tau) * jnp.square(error)


def awr_weight(advantage: Array, temperature: float, most: float) -> Array:
    """min(exp(temperature * advantage), most): how much advantage-weighted regression imitates a sample."""
    return jnp.minimum(jnp.exp(temperature * advantage), most)


def ddpg_bc(q: Array, log_prob: Array, weight: float) -> Array:
    """-E[Q(s, pi(s))] / E|Q| - weight * E[log pi(a | s)]: climb Q and stay with the data.

    Dividing by E|Q|, which has no gradient, lets one weight serve rewards of any scale.
    """
    scale = jax.lax.stop_gradient(jnp.mean(jnp.abs(q))) + TINY
    return -jnp.mean(q) / scale - weight * jnp.mean(log_prob)


def conservative(q: Array, log_density: Array, data_q: Array) -> Array:
    """CQL(H): log of the sum over sampled actions of exp(Q) / density, minus Q of the data's action.

    q: ... x samples x batch; log_density: samples x batch, of the distribution each action was drawn from;
    data_q: ... x batch.
    """
    return jax.nn.logsumexp(q - log_density, axis=-2) - data_q


def polyak(target: Tree, online: Tree, rate: float | Array) -> Tree:
    """Move a target network towards the online one: (1 - rate) * target + rate * online."""
    return jax.tree.map(lambda t, o: t + rate * (o - t), target, online)


def averaged(average: Tree, online: Tree, rate: float, updates: Array | int = 1) -> Tree | tuple[()]:
    """The moving average of a network's weights after so many updates; nothing at rate 1: the network itself is kept.

    At first it is the plain mean of all weights so far, so that little of the untrained network stays in it.
    """
    return () if rate == 1.0 else polyak(average, online, jnp.maximum(rate, 1.0 / updates))


def orthonormal(features: Array) -> Array:
    """Pull the second moment of features (batch x dim) towards the identity, up to a constant: E[(x.y)^2] - 2 E[x.x].

    The pairs x, y are the different rows of the batch, so that no second batch is needed.
    """
    inner = features @ features.T  # batch x batch
    return off_diagonal_mean(jnp.square(inner)) - 2.0 * jnp.mean(jnp.diagonal(inner))


def off_diagonal_mean(square: Array) -> Array:
    """The mean of a square matrix's elements outside its diagonal."""
    count = square.shape[0]
    return (jnp.sum(square) - jnp.trace(square)) / (count * (count - 1))


def contrastive(logits: Array) -> Array:
    """InfoNCE with the positive pairs on the diagonal and only the negatives in the denominator."""
    negatives = jnp.where(jnp.eye(logits.shape[0], dtype=bool), -jnp.inf, logits)
    return jnp.mean(jax.nn.logsumexp(negatives, axis=1) - jnp.diagonal(logits))


def smaller_head(successors: Array, z: Array) -> Array:
    """Of two successor features (heads x batch x dim), the whole vector of the head that values skill z less."""
    values = jnp.einsum("hbd,bd->hb", successors, z)
    return jnp.where((values[0] <= values[1])[:, None], successors[0], successors[1])
