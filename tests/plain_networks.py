"""Networks written out in numpy, and small training states full of random numbers: what losses are held against."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from hilp.learning import actors, networks
from hilp.learning.sampling import Batch
from hilp.spec import Spec

SPEC = Spec(observation_dim=3, action_dim=2)
COUNT = 6
NETS: dict[str, Any] = {"hidden": (8,), "actor_hidden": (8,), "batch": COUNT}


def plain_trunk(trunk: networks.Trunk, x: np.ndarray) -> np.ndarray:
    """Affine, GELU (tanh form), LayerNorm, ..., affine; one number a row where there is one output."""
    for dense, norm in zip(trunk.hidden, trunk.norms, strict=True):
        x = x @ np.asarray(dense.weight, np.float64) + np.asarray(dense.bias, np.float64)
        x = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        x = x * np.asarray(norm.scale) + np.asarray(norm.shift)
    y = x @ np.asarray(trunk.out.weight, np.float64) + np.asarray(trunk.out.bias, np.float64)
    return y[..., 0] if y.shape[-1] == 1 else y


def plain_layers(layers: Any, x: np.ndarray) -> np.ndarray:
    for dense in layers:
        x = np.maximum(x @ np.asarray(dense.weight, np.float64) + np.asarray(dense.bias, np.float64), 0)
    return x


def plain_gaussian(actor: actors.GaussianActor, x: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean, and the log-density of an action."""
    mean = plain_layers(actor.hidden, x) @ np.asarray(actor.mean.weight, np.float64) + np.asarray(actor.mean.bias)
    return mean, scipy.stats.norm.logpdf(action, mean, np.exp(np.asarray(actor.log_std))).sum(-1)


def plain_squashed(actor: actors.SquashedActor, x: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A drawn action and its log-density, by the change of variables."""
    out = plain_layers(actor.hidden, x) @ np.asarray(actor.mean.weight, np.float64) + np.asarray(actor.mean.bias)
    mean, std = out[..., :2], np.exp(np.clip(out[..., 2:], -5, 2))
    before = mean + std * noise
    action = np.tanh(before)
    return action, (scipy.stats.norm.logpdf(before, mean, std) - np.log(1 - action**2)).sum(-1)


def join(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts, axis=-1)


def drawn(make: Any, *args: Any, zeros: bool = False) -> Any:
    """What `make` would give, with random numbers: no bias is zero and no target equals its network."""
    rng = np.random.default_rng(0)
    fill = lambda leaf: np.zeros(leaf.shape) if zeros else 0.5 * rng.normal(size=leaf.shape)  # noqa: E731
    return jax.tree.map(lambda leaf: jnp.asarray(fill(leaf), leaf.dtype), jax.eval_shape(make, *args))


def used(module: Any, config: Any) -> Any:
    """A state in which every network and every target has numbers of its own, and optimisers are fresh."""
    init = partial(module.init, config, SPEC)
    fresh, state = (drawn(init, jax.random.key(0), zeros=zeros) for zeros in (True, False))
    return state._replace(**{field: getattr(fresh, field) for field in state._fields if field.endswith("opt")})


@cache
def compiled(module: Any, config: Any) -> Any:
    return jax.jit(partial(module.update, config))


def step(module: Any, config: Any, state: Any, batch: Batch, seed: int = 7) -> tuple[Any, dict[str, float]]:
    state, info = compiled(module, config)(state, batch, jax.random.key(seed))
    return state, {name: float(value) for name, value in info.items()}


def apart(a: Any, b: Any) -> float:
    return max(float(jnp.abs(x - y).max()) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))


def adam_first(params: Any, grads: Any, lr: float) -> Any:
    """Adam's first step from a fresh optimiser."""
    return jax.tree.map(lambda p, g: p - lr * g / (jnp.abs(g) + 1e-8), params, grads)
