"""Losses: formulas of arrays first, then those of networks that several methods share.

All are pure; none moves a target or draws a random number. The first argument of a network's loss is what it trains.
"""

from typing import TypeVar

import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import networks

Tree = TypeVar("Tree")


def expectile_loss(advantage: Array, error: Array, expectile: float) -> Array:
    """|expectile - 1(advantage < 0)| * error^2: an asymmetric square, weighted by the sign of `advantage`.

    Plain expectile regression has advantage == error; the Hilbert loss weighs with one and squares the other.
    """
    return jnp.where(advantage < 0, 1.0 - expectile, expectile) * jnp.square(error)


def conservative(q: Array, log_density: Array, data_q: Array) -> Array:
    """CQL(H): log of the sum over sampled actions of exp(Q) / density, minus Q of the data's action.

    q: ... x samples x batch; log_density: samples x batch, of the distribution each action was drawn from;
    data_q: ... x batch.
    """
    return jax.nn.logsumexp(q - log_density, axis=-2) - data_q


def adam_step(lr: float, grads: Tree, opt: optax.OptState, nets: Tree) -> tuple[Tree, optax.OptState]:
    """Networks after one step of Adam, and the state of the optimiser."""
    updates, opt = optax.adam(lr).update(grads, opt)
    return optax.apply_updates(nets, updates), opt


def polyak(target: Tree, online: Tree, rate: float | Array) -> Tree:
    """Move a target network towards the online one: (1 - rate) * target + rate * online."""
    return jax.tree.map(lambda t, o: t + rate * (o - t), target, online)


def averaged(average: Tree, online: Tree, rate: float, updates: Array | int = 1) -> Tree | tuple[()]:
    """The moving average of a network's weights after so many updates; nothing at rate 1: the network itself is kept.

    At first it is the plain mean of all weights so far, so that little of the untrained network stays in it.
    """
    return () if rate == 1.0 else polyak(average, online, jnp.maximum(rate, 1.0 / updates))


def semi_mdp(rewards: Array, terminals: Array, steps: Array, discount: float) -> tuple[Array, Array]:
    """What segments of up to k steps earn, discounted, and what a value after them counts for (each: batch).

    rewards, terminals: batch x k; steps (batch): how many of the k are real. Nothing is earned after a terminal step,
    and no value counts after one; a segment cut short by its episode's end counts the value there at discount^steps.
    """
    ahead = jnp.arange(rewards.shape[1])
    real = ahead < steps[:, None]
    over = (terminals > 0) & real
    alive = real & (jnp.cumsum(over, axis=1) - over == 0)  # the terminal step itself still pays
    total = jnp.sum(jnp.where(alive, rewards * discount**ahead, 0.0), axis=1)
    return total, jnp.where(jnp.any(over, axis=1), 0.0, discount**steps)


def gaussian_kl(mean: Array, log_std: Array, prior_mean: Array, prior_log_std: Array) -> Array:
    """KL(N(mean, std) || N(prior mean, prior std)) of diagonal Gaussians, summed over the last axis."""
    ratio = jnp.exp(2.0 * (log_std - prior_log_std))
    shift = jnp.square((mean - prior_mean) * jnp.exp(-prior_log_std))
    return jnp.sum(prior_log_std - log_std + 0.5 * (ratio + shift - 1.0), axis=-1)


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


def binary_contrastive(logits: Array) -> Array:
    """The mean cross-entropy of telling the positive pairs, on the diagonal of the last two axes, from all others."""
    positive = jnp.diagonal(logits, axis1=-2, axis2=-1)
    return jnp.mean(jax.nn.softplus(logits)) - jnp.mean(positive) / logits.shape[-1]


def skill_values(successors: Array, z: Array) -> Array:
    """<psi_i, z>, what heads of successor features (heads x batch x dim) say that skill z is worth: heads x batch."""
    return jnp.einsum("hbd,bd->hb", successors, z)


def smaller_head(successors: Array, z: Array) -> Array:
    """Of two successor features (heads x batch x dim), the whole vector of the head that values skill z less."""
    values = skill_values(successors, z)
    return jnp.where((values[0] <= values[1])[:, None], successors[0], successors[1])


def expectile_value_loss(value: networks.Trunk, sz: Array, target_q: Array, expectile: float) -> tuple[Array, Array]:
    """IQL: expectile regression of V(s, z) towards the smaller target critic; also returns V(s, z)."""
    v = value(sz)[..., 0]
    advantage = target_q - v
    return jnp.mean(expectile_loss(advantage, advantage, expectile)), v


def critic_loss(critic: networks.Ensemble, sza: Array, target: Array) -> Array:
    """Every critic of an ensemble towards one target: Q(s, a, z) towards r + gamma * V(s', z), for example."""
    q = networks.apply_all(critic, sza)[..., 0]  # critics x batch
    return jnp.mean(jnp.sum(jnp.square(q - target[None]), axis=0))
