"""Networks: plain functions of arrays. Shapes and initialisers are those of the paper's goal-conditioned half.

Every network maps the last axis and broadcasts over the others. An ensemble is a tuple of networks; `members` runs it
and puts the members first in the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

LAYER_NORM_EPSILON = 1e-6
FOLD_FROM_ROWS = 64  # folding a LayerNorm into weights costs about this many rows; a controller's one row skips it
LOG_STD_RANGE = (-5.0, 2.0)
GELU_LINEAR, GELU_CUBIC = math.sqrt(2.0 / math.pi), 0.044715  # gelu(x) = x / 2 * (1 + tanh(linear * (x + cubic * x^3)))
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


class Dense(eqx.Module):
    """Affine map with variance-scaling (fan-average, uniform) weights and zero bias."""

    weight: Array  # in x out
    bias: Array

    def __init__(self, size_in: int, size_out: int, key: Array, scale: float = 1.0):
        limit = math.sqrt(3.0 * scale / ((size_in + size_out) / 2.0))
        self.weight = jax.random.uniform(key, (size_in, size_out), jnp.float32, -limit, limit)
        self.bias = jnp.zeros((size_out,), jnp.float32)

    def __call__(self, x: Array) -> Array:
        return x @ self.weight + self.bias


class LayerNorm(eqx.Module):
    """Normalise the last axis, then scale and shift."""

    scale: Array
    shift: Array

    def __init__(self, size: int):
        self.scale = jnp.ones((size,), jnp.float32)
        self.shift = jnp.zeros((size,), jnp.float32)

    def __call__(self, x: Array) -> Array:
        mean = jnp.mean(x, axis=-1, keepdims=True)
        centred = x - mean
        variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + LAYER_NORM_EPSILON) * self.scale + self.shift


class Trunk(eqx.Module):
    """Hidden layers of GELU (tanh form) then LayerNorm, and a linear output: phi, V and Q are all this."""

    hidden: tuple[Dense, ...]
    norms: tuple[LayerNorm, ...]
    out: Dense

    def __init__(self, size_in: int, hidden: Sequence[int], size_out: int, key: Array):
        keys = jax.random.split(key, len(hidden) + 1)
        sizes = [size_in, *hidden]
        self.hidden = tuple(Dense(a, b, k) for a, b, k in zip(sizes, sizes[1:], keys, strict=False))
        self.norms = tuple(LayerNorm(size) for size in hidden)
        self.out = Dense(sizes[-1], size_out, keys[-1])

    def __call__(self, x: Array) -> Array:
        if x.size < FOLD_FROM_ROWS * x.shape[-1]:
            for dense, norm in zip(self.hidden, self.norms, strict=True):
                x = norm(jax.nn.gelu(dense(x), approximate=True))
            return self.out(x)
        product, bias = x @ self.hidden[0].weight, self.hidden[0].bias
        inverse_std = jnp.ones((*x.shape[:-1], 1), x.dtype)
        for norm, dense in zip(self.norms, (*self.hidden[1:], self.out), strict=True):
            x, inverse_std = activate(product, inverse_std, bias)
            weight, bias = fold(norm, dense)
            product = x @ weight
        return product * inverse_std + bias


def fold(norm: LayerNorm, dense: Dense) -> tuple[Array, Array]:
    """LayerNorm's mean, scale and shift, moved into the weight and bias of the layer after it.

    dense(norm(x)) == (x @ weight) / std(x) + bias, because columns of zero mean do not see the mean of x. What is left
    of LayerNorm is one number a row: weights are far smaller than a batch of activations.
    """
    mean = norm.scale @ dense.weight / norm.scale.size
    return norm.scale[:, None] * dense.weight - mean, norm.shift @ dense.weight + dense.bias


@jax.custom_vjp
def activate(product: Array, inverse_std: Array, bias: Array) -> tuple[Array, Array]:
    """g = gelu(product * inverse_std + bias) and 1 / std(g) of each row: all that lies between two matrix products."""
    return _activate(product, inverse_std, bias)[0]


def _activate(product: Array, inverse_std: Array, bias: Array) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
    # Barriers here and below: without them XLA computes the tanh again for each reader of g.
    g = jax.lax.optimization_barrier(jax.nn.gelu(product * inverse_std + bias, approximate=True))
    mean = jnp.mean(g, axis=-1, keepdims=True)
    variance = jnp.maximum(jnp.mean(jnp.square(g), axis=-1, keepdims=True) - jnp.square(mean), 0.0)
    g_inverse_std = jax.lax.rsqrt(variance + LAYER_NORM_EPSILON)
    return (g, g_inverse_std), (product, inverse_std, bias, g, mean, g_inverse_std)


def _activate_vjp(saved: tuple[Array, ...], cotangents: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    product, inverse_std, bias, g, mean, g_inverse_std = saved
    d_g, d_g_inverse_std = cotangents
    d_g = d_g - (d_g_inverse_std * g_inverse_std**3 / g.shape[-1]) * (g - mean)
    x = product * inverse_std + bias
    cubic = GELU_CUBIC * jnp.square(x)
    tanh = jnp.tanh(GELU_LINEAR * x * (1.0 + cubic))
    slope = 0.5 * (1.0 + tanh) + 0.5 * GELU_LINEAR * x * (1.0 - jnp.square(tanh)) * (1.0 + 3.0 * cubic)
    d_product = jax.lax.optimization_barrier(d_g * slope * inverse_std)
    d_inverse_std = jnp.sum(d_product * product, axis=-1, keepdims=True) / inverse_std
    d_bias = jnp.tensordot(1.0 / inverse_std[..., 0], d_product, d_product.ndim - 1)
    return d_product, d_inverse_std, d_bias


activate.defvjp(_activate, _activate_vjp)


class GaussianActor(eqx.Module):
    """pi(a | s, z): ReLU layers without LayerNorm, a small mean head, one free log-std per action dimension."""

    hidden: tuple[Dense, ...]
    mean: Dense
    log_std: Array

    def __init__(self, size_in: int, hidden: Sequence[int], action_dim: int, key: Array):
        keys = jax.random.split(key, len(hidden) + 1)
        sizes = [size_in, *hidden]
        self.hidden = tuple(Dense(a, b, k) for a, b, k in zip(sizes, sizes[1:], keys, strict=False))
        self.mean = Dense(sizes[-1], action_dim, keys[-1], scale=0.01)
        self.log_std = jnp.zeros((action_dim,), jnp.float32)

    def __call__(self, x: Array) -> Array:
        """The mean action, not clipped."""
        for dense in self.hidden:
            x = jax.nn.relu(dense(x))
        return self.mean(x)

    def log_prob(self, x: Array, action: Array) -> Array:
        """log pi(action | x) of the diagonal Gaussian (no tanh squashing)."""
        log_std = jnp.clip(self.log_std, *LOG_STD_RANGE)
        standard = (action - self(x)) * jnp.exp(-log_std)
        return jnp.sum(-0.5 * jnp.square(standard) - log_std - HALF_LOG_2PI, axis=-1)


Ensemble = tuple[Trunk, ...]  # not one stacked network: on a CPU a batched matrix product is the slower one


def ensemble(make: Callable[..., Trunk], count: int, *args: object, key: Array) -> Ensemble:
    """`count` independent networks."""
    return tuple(make(*args, member_key) for member_key in jax.random.split(key, count))


def members(network: Ensemble, x: Array) -> Array:
    """Run every member of an ensemble on the same input: count x ... x out."""
    return jnp.stack([member(x) for member in network])


def member(network: Ensemble, index: int) -> Trunk:
    """One member of an ensemble."""
    return network[index]
