"""Networks: plain functions of stacked arrays. Shapes and initialisers are those of the paper's goal-conditioned half.

Every network maps the last axis and broadcasts over the others. An ensemble is one network whose parameters carry a
leading axis; `members` runs it and puts that axis first in the output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

LAYER_NORM_EPSILON = 1e-6
LOG_STD_RANGE = (-5.0, 2.0)
SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
GELU_CUBE = 0.044715
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
        product, inverse_std, bias = x @ self.hidden[0].weight, jnp.ones((1,), x.dtype), self.hidden[0].bias
        for norm, dense in zip(self.norms, (*self.hidden[1:], self.out), strict=True):
            x, inverse_std = gelu_std(product, inverse_std, bias)
            weight, bias = fold(norm, dense)
            product = x @ weight
        return product * inverse_std + bias


def fold(norm: LayerNorm, dense: Dense) -> tuple[Array, Array]:
    """LayerNorm's mean, scale and shift, moved into the weights and bias of the layer that follows it.

    dense(norm(x)) == (x @ weight) / std(x) + bias: columns of zero mean do not see the mean of x.
    """
    mean = norm.scale @ dense.weight / norm.scale.size
    return norm.scale[:, None] * dense.weight - mean, norm.shift @ dense.weight + dense.bias


@jax.custom_vjp
def gelu_std(product: Array, inverse_std: Array, bias: Array) -> tuple[Array, Array]:
    """g = gelu(product * inverse_std + bias), and 1 / std(g) of every row: one hidden layer between two matrix products."""
    return _gelu_std(product, inverse_std, bias)[0]


def _gelu_std(product: Array, inverse_std: Array, bias: Array) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
    g = jax.lax.optimization_barrier(jax.nn.gelu(product * inverse_std + bias, approximate=True))
    mean = jnp.mean(g, axis=-1, keepdims=True)
    variance = jnp.maximum(jnp.mean(jnp.square(g), axis=-1, keepdims=True) - jnp.square(mean), 0.0)
    std = jax.lax.rsqrt(variance + LAYER_NORM_EPSILON)
    return (g, std), (product, inverse_std, bias, g, mean, std)


def _gelu_std_transpose(saved: tuple[Array, ...], cotangents: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    product, inverse_std, bias, g, mean, std = saved
    d_g, d_std = cotangents
    d_g = d_g - (d_std * std**3 / g.shape[-1]) * (g - mean)
    x = product * inverse_std + bias
    square = GELU_CUBE * jnp.square(x)
    t = jnp.tanh(SQRT_2_OVER_PI * x * (1.0 + square))
    slope = 0.5 * (1.0 + t) + (0.5 * SQRT_2_OVER_PI) * x * (1.0 - jnp.square(t)) * (1.0 + 3.0 * square)
    d_product = jax.lax.optimization_barrier(d_g * slope * inverse_std)
    d_std_in = jnp.sum(d_product * product, axis=-1, keepdims=True) / inverse_std
    if inverse_std.ndim == 1:
        d_std_in = jnp.zeros((1,), d_product.dtype)
        d_bias = jnp.sum(d_product, axis=tuple(range(d_product.ndim - 1)))
    else:
        d_bias = (1.0 / inverse_std.reshape(1, -1) @ d_product.reshape(-1, d_product.shape[-1]))[0]
    return d_product, d_std_in, d_bias


gelu_std.defvjp(_gelu_std, _gelu_std_transpose)


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


def ensemble(make: type[Trunk], count: int, *args: object, key: Array) -> tuple[Trunk, ...]:
    """`count` independent networks."""
    return tuple(make(*args, k) for k in jax.random.split(key, count))  # type: ignore[arg-type]


def members(network: tuple[Trunk, ...], x: Array) -> Array:
    """Run every member of an ensemble on the same input: count x ... x out."""
    return jnp.stack([member(x) for member in network])


def member(network: tuple[Trunk, ...], index: int) -> Trunk:
    """One member of an ensemble."""
    return network[index]
