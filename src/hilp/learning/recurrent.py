"""Recurrent networks: over the steps of a segment, for OPAL's skills."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array


class BidirectionalGru(eqx.Module):
    """Layers of gated recurrent units, each over a sequence and over its reverse; the second layer reads both."""

    layers: tuple[tuple[eqx.nn.GRUCell, eqx.nn.GRUCell], ...]  # forwards, backwards

    def __init__(self, size_in: int, hidden: int, layers: int, key: Array):
        sizes = [size_in, *[2 * hidden] * (layers - 1)]
        keys = jax.random.split(key, (layers, 2))
        cell = eqx.nn.GRUCell
        self.layers = tuple(
            (cell(n, hidden, key=k[0]), cell(n, hidden, key=k[1])) for n, k in zip(sizes, keys, strict=True)
        )

    def __call__(self, x: Array, real: Array) -> Array:
        """The last state of both directions: batch x 2 hidden, of x (batch x steps x in) where `real` (batch x steps).

        A step that is not real changes no state, so a padded sequence gives what the sequence alone does.
        """
        ends = []
        for forwards, backwards in self.layers:
            ahead, behind = along(forwards, x, real), along(backwards, x[:, ::-1], real[:, ::-1])
            ends = [ahead[:, -1], behind[:, -1]]
            x = jnp.concatenate([ahead, behind[:, ::-1]], axis=-1)
        return jnp.concatenate(ends, axis=-1)


def along(cell: eqx.nn.GRUCell, x: Array, real: Array) -> Array:
    """The states of a recurrent unit after each step, from zero on: batch x steps x hidden."""

    def step(state: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        now, counts = inputs
        state = jnp.where(counts[:, None], jax.vmap(cell)(now, state), state)
        return state, state

    start = jnp.zeros((x.shape[0], cell.hidden_size), x.dtype)
    _, states = jax.lax.scan(step, start, (jnp.swapaxes(x, 0, 1), jnp.swapaxes(real, 0, 1)))
    return jnp.swapaxes(states, 0, 1)
