"""What tests learn about a method from the shapes of its arrays alone: nothing is compiled, and nothing is trained."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hilp
from hilp.learning import methods, sampling
from hilp.policy.preparation import Preparation
from hilp.spec import Spec
from hilp.training.program import drawn_batch


def emitted(config: Any, data: hilp.Dataset) -> set[str]:
    """The metrics of a method's updates in all its stages, each traced once."""
    method, key = methods.of(config), jax.random.key(0)
    spec, preparation = data.network_spec, Preparation.of(data, config.normalize)
    index, _ = sampling.build_index(data.lengths, None)
    observations = jax.tree.map(jnp.asarray, data.network_inputs)
    shared = {"observations": observations, "actions": jax.tree.map(jnp.asarray, data.network_actions)}
    shared |= dict.fromkeys(("rewards", "terminals"), jnp.zeros(data.rows))  # of methods with rewards
    found: set[str] = set()
    for stage in methods.stages(config):

        def one(stage: Any = stage) -> Any:
            state = method.init(config, spec, key)
            own = {name: column(config, state, observations) for name, column in stage.columns.items()}
            columns = sampling.Columns(shared, own, preparation.mean, preparation.scale)
            batch = drawn_batch(config, stage.sample, (columns, index), key, jnp.int32(0))
            return stage.update(config, state, batch, key)[1]

        found |= set(jax.eval_shape(one))
    return found


def drawn_core(config: Any, spec: Spec, seed: int = 7) -> Any:
    """What a method exports, with weights drawn by numpy; biases, too, which start at zero where they are trained."""
    method, rng = methods.of(config), np.random.default_rng(seed)

    def drawn(leaf: Any) -> Any:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.zeros(leaf.shape, leaf.dtype)
        # Networks keep about the size of what comes in.
        scale = 0.1 if leaf.ndim < 2 else np.sqrt(leaf.shape[-1] / leaf.size)
        return jnp.asarray(scale * rng.normal(size=leaf.shape), leaf.dtype)

    return jax.tree.map(
        drawn, jax.eval_shape(lambda: method.export(config, method.init(config, spec, jax.random.key(0))))
    )
