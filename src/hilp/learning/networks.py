"""Networks: plain functions of arrays. Shapes and initialisers are those of the paper's two halves.

`Trunk` belongs to the goal-conditioned half, `Feature` and `SuccessorMap` to the zero-shot half; those that give
actions are in `hilp.learning.actors`.

Every network maps the last axis and broadcasts over the others. An observation that is a named tree is laid out as one
vector by `join`, at the input of a network and nowhere before; where images are among its parts, a network has
an image encoder (`hilp.learning.images`). An ensemble is a tuple of networks; `apply_all` runs it and puts its networks
first in the output.
"""

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from hilp import trees
from hilp.learning import images
from hilp.learning.images import join as join
from hilp.spec import Spec
from hilp.trees import Tree

LAYER_NORM_EPSILON = 1e-6  # goal-conditioned half
PREPROCESSOR_EPSILON = 1e-5  # zero-shot half
HEADS = 2  # of a successor map
FOLD_FROM_ROWS = 64  # folding a LayerNorm into weights costs about this many rows; a controller's one row skips it
GELU_LINEAR, GELU_CUBIC = math.sqrt(2.0 / math.pi), 0.044715  # gelu(x) = x / 2 * (1 + tanh(linear * (x + cubic * x^3)))


def stacked(*observations: Tree) -> Tree:
    """Batches of observations, one below the other: one pass through a network is faster than several."""
    return trees.over(lambda *parts: jnp.concatenate(parts), *observations)


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


def orthogonal(size_in: int, size_out: int, key: Array) -> Dense:
    """An affine map with orthogonal weights (gain 1) and zero bias."""
    weight = jax.nn.initializers.orthogonal()(key, (size_in, size_out), jnp.float32)
    return eqx.tree_at(lambda dense: dense.weight, Dense(size_in, size_out, key), weight)


class LayerNorm(eqx.Module):
    """Normalise the last axis, then scale and shift."""

    scale: Array
    shift: Array
    epsilon: float = eqx.field(static=True)

    def __init__(self, size: int, epsilon: float = LAYER_NORM_EPSILON):
        self.scale = jnp.ones((size,), jnp.float32)
        self.shift = jnp.zeros((size,), jnp.float32)
        self.epsilon = epsilon

    def __call__(self, x: Array) -> Array:
        mean = jnp.mean(x, axis=-1, keepdims=True)
        centred = x - mean
        variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + self.epsilon) * self.scale + self.shift


class Trunk(eqx.Module):
    """Hidden layers of GELU (tanh form) then LayerNorm, and a linear output: phi, V and Q are all this."""

    hidden: tuple[Dense, ...]
    norms: tuple[LayerNorm, ...]
    out: Dense
    image_encoder: images.ImageEncoder | None

    def __init__(self, size_in: images.Input, hidden: Sequence[int], size_out: int, key: Array):
        self.image_encoder, size_in = images.image_encoder(size_in, key)
        keys = jax.random.split(key, len(hidden) + 1)
        sizes = [size_in, *hidden]
        self.hidden = tuple(Dense(a, b, k) for a, b, k in zip(sizes, sizes[1:], keys, strict=False))
        self.norms = tuple(LayerNorm(size) for size in hidden)
        self.out = Dense(sizes[-1], size_out, keys[-1])

    def __call__(self, x: Tree) -> Array:
        x = images.encode(self.image_encoder, join(x))
        if x.size < FOLD_FROM_ROWS * x.shape[-1]:
            return self.out(self._layers(x))
        product, bias = x @ self.hidden[0].weight, self.hidden[0].bias
        inverse_std = jnp.ones((*x.shape[:-1], 1), x.dtype)
        for norm, dense in zip(self.norms, (*self.hidden[1:], self.out), strict=True):
            x, inverse_std = activate(product, inverse_std, bias)
            weight, bias = fold(norm, dense)
            product = x @ weight
        return product * inverse_std + bias

    def features(self, x: Tree) -> Array:
        """The last hidden layer, after its LayerNorm: what the output is a linear map of."""
        return self._layers(images.encode(self.image_encoder, join(x)))

    def _layers(self, x: Array) -> Array:
        for dense, norm in zip(self.hidden, self.norms, strict=True):
            x = norm(jax.nn.gelu(dense(x), approximate=True))
        return x


def fold(norm: LayerNorm, dense: Dense) -> tuple[Array, Array]:
    """LayerNorm's mean, scale and shift, moved into the weight and bias of the layer after it.

    dense(norm(x)) == (x @ weight) / std(x) + bias, because columns of zero mean do not see the mean of x. What is left
    of LayerNorm is one number a row: weights are far smaller than a batch of activations.
    """
    mean = norm.scale @ dense.weight / norm.scale.size
    return norm.scale[:, None] * dense.weight - mean, norm.shift @ dense.weight + dense.bias


@jax.custom_vjp
def activate(product: Array, inverse_std: Array, bias: Array) -> tuple[Array, Array]:
    """g = gelu(product * inverse_std + bias) and 1 / std(g) of each row: all between two matrix products."""
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


class Preprocessor(eqx.Module):
    """The first two layers of every zero-shot network: LayerNorm and tanh, then ReLU."""

    first: Dense
    norm: LayerNorm
    second: Dense

    def __init__(self, size_in: int, hidden: tuple[int, int], key: Array):
        key_first, key_second = jax.random.split(key)
        self.first = orthogonal(size_in, hidden[0], key_first)
        self.norm = LayerNorm(hidden[0], PREPROCESSOR_EPSILON)
        self.second = orthogonal(hidden[0], hidden[1], key_second)

    def __call__(self, x: Array) -> Array:
        return jax.nn.relu(self.second(norm_tanh(self.first(x), self.norm.scale, self.norm.shift)))


@jax.custom_vjp
def norm_tanh(x: Array, scale: Array, shift: Array) -> Array:
    """tanh of LayerNorm: by hand, because XLA computes the tanh again for each of its readers."""
    return _norm_tanh(x, scale, shift)[0]


def _norm_tanh(x: Array, scale: Array, shift: Array) -> tuple[Array, tuple[Array, ...]]:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.maximum(jnp.mean(jnp.square(x), axis=-1, keepdims=True) - jnp.square(mean), 0.0)
    inverse_std = jax.lax.rsqrt(variance + PREPROCESSOR_EPSILON)
    y = jax.lax.optimization_barrier(jnp.tanh((x - mean) * inverse_std * scale + shift))
    return y, (x, mean, inverse_std, scale, y)


def _norm_tanh_vjp(saved: tuple[Array, ...], d_y: Array) -> tuple[Array, Array, Array]:
    x, mean, inverse_std, scale, y = saved
    d_affine = jax.lax.optimization_barrier(d_y * (1.0 - jnp.square(y)))
    standard = (x - mean) * inverse_std
    batch = tuple(range(x.ndim - 1))
    d_standard = d_affine * scale
    along = jnp.mean(d_standard * standard, axis=-1, keepdims=True)
    d_x = inverse_std * (d_standard - jnp.mean(d_standard, axis=-1, keepdims=True) - standard * along)
    return d_x, jnp.sum(d_affine * standard, axis=batch), jnp.sum(d_affine, axis=batch)


norm_tanh.defvjp(_norm_tanh, _norm_tanh_vjp)


class Feature(eqx.Module):
    """phi(s), B(s) and mu(s) of the zero-shot half."""

    preprocessor: Preprocessor
    out: Dense
    image_encoder: images.ImageEncoder | None

    def __init__(self, size_in: images.Input, hidden: tuple[int, int], dim: int, key: Array):
        self.image_encoder, size_in = images.image_encoder(size_in, key)
        key_preprocessor, key_out = jax.random.split(key)
        self.preprocessor = Preprocessor(size_in, hidden, key_preprocessor)
        self.out = orthogonal(hidden[1], dim, key_out)

    def __call__(self, x: Tree) -> Array:
        return self.out(self.preprocessor(images.encode(self.image_encoder, join(x))))


class Mlp(eqx.Module):
    """Plain ReLU layers: the decoders that teach a feature, and values without LayerNorm."""

    layers: tuple[Dense, ...]
    image_encoder: images.ImageEncoder | None

    def __init__(self, size_in: images.Input, hidden: Sequence[int], size_out: int, key: Array):
        self.image_encoder, size_in = images.image_encoder(size_in, key)
        sizes = [size_in, *hidden, size_out]
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(orthogonal(a, b, k) for a, b, k in zip(sizes, sizes[1:], keys, strict=False))

    def __call__(self, x: Array) -> Array:
        x = images.encode(self.image_encoder, x)
        for dense in self.layers[:-1]:
            x = jax.nn.relu(dense(x))
        return self.layers[-1](x)


class SuccessorMap(eqx.Module):
    """psi(s, a, z) (or a critic, with one output): (s, a) and (s, z) have a preprocessor each, shared by all heads.

    Of discrete actions, (s, a) is s alone, and a head foretells all of them at once; `action` says how much each
    counts: one-hot for one of them, probabilities for the mean over a policy.
    """

    state_action: Preprocessor
    state_skill: Preprocessor
    heads: tuple[Mlp, ...]
    choices: int = eqx.field(static=True)

    def __init__(
        self, spec: Spec, skill_dim: int, preprocess_hidden: tuple[int, int], hidden: int, size_out: int, key: Array
    ):
        key_action, key_skill, *keys = jax.random.split(key, 2 + HEADS)
        self.choices = spec.choices
        size_action = 0 if spec.choices else spec.action_dim
        self.state_action = Preprocessor(spec.observation_dim + size_action, preprocess_hidden, key_action)
        self.state_skill = Preprocessor(spec.observation_dim + skill_dim, preprocess_hidden, key_skill)
        size_out *= spec.choices or 1
        self.heads = tuple(Mlp(2 * preprocess_hidden[1], (hidden,), size_out, k) for k in keys)

    def __call__(self, observation: Tree, action: Array, z: Array) -> Array:
        """heads x batch x out."""
        sa = self.state_action(join(observation) if self.choices else join(observation, action))
        sz = self.state_skill(join(observation, z))
        joined = jnp.concatenate([sa, sz], axis=-1)
        found = jnp.stack([head(joined) for head in self.heads])
        if not self.choices:
            return found
        return jnp.einsum("hbad,ba->hbd", found.reshape(*found.shape[:-1], self.choices, -1), action)


Ensemble = tuple[Trunk, ...]  # not one stacked network: on a CPU a batched matrix product is the slower one


def ensemble(make: Callable[..., Trunk], *args: object, key: Array, count: int = 2) -> Ensemble:
    """Independent networks, two as wherever the paper has several."""
    return tuple(make(*args, own_key) for own_key in jax.random.split(key, count))


def of_segments(network: Callable[[Tree], Array], rows: Tree) -> Array:
    """A network of the rows of segments (batch x k), in one pass: batch x k x out."""
    found = network(trees.over(lambda part: part.reshape(-1, *part.shape[2:]), rows))
    return found.reshape(-1, jax.tree.leaves(rows)[0].shape[1], found.shape[-1])


def apply_all(networks: Ensemble, x: Tree) -> Array:
    """Every network of an ensemble on the same input: count x ... x out."""
    x = join(x)
    return jnp.stack([network(x) for network in networks])
