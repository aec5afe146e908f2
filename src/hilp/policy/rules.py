"""Rules of a method's export (hilp.learning.methods), compiled once for all exports of the same structure.

What a controller needs at every step is put together of several rules (`COMBINED`) in one compiled call: for a single
observation the way into a compiled program and back costs more than what the program does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hilp import compiler
from hilp.errors import HilpError
from hilp.prompts.agent import AT_GOAL
from hilp.trees import Tree

compiler.keep_flags_here()
_lost = False  # whether this process was forked after JAX had started


def require_own_process() -> None:
    """Raise, instead of hanging, in a child that was forked after JAX had started: its threads are not there."""
    if _lost:
        raise HilpError(
            "JAX does not survive a fork, and this process was forked after JAX had started: start processes with "
            "'spawn', e.g. multiprocessing.get_context('spawn')"
        )


def _after_fork_in_child() -> None:
    global _lost
    _lost = _lost or compiler.started()  # a child forked before that can start its own threads


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def act_between(core: Any, observation: Tree, here: jax.Array, there: jax.Array) -> jax.Array:
    """The action that moves from one latent to another."""
    apart = jnp.linalg.norm(there - here, axis=-1, keepdims=True)
    return core.act(observation, jnp.where(apart > AT_GOAL, core.goal_direction(here, there), 0.0))


def act_towards(core: Any, observation: Tree, there: jax.Array) -> jax.Array:
    """The action that moves towards a latent."""
    return act_and_encode(core, observation, there)[0]


def act_and_encode(core: Any, observation: Tree, there: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The action that moves towards a latent, and the latent of where it is: a goal is encoded by the program of a
    step, so that a controller compiles one program and no more before it acts.
    """
    here = core.encode(observation)
    return act_between(core, observation, here, there), here


COMBINED: dict[str, Callable[..., Any]] = {
    "act_between": act_between,
    "act_towards": act_towards,
    "act_and_encode": act_and_encode,
}


def apply_rule(core: Any, rule: str, *arguments: Any) -> Any:
    """What a rule of an export, or one put together of several, gives."""
    return COMBINED[rule](core, *arguments) if rule in COMBINED else getattr(core, rule)(*arguments)


@cache
def _compiled(rule: str, structure: Any) -> Callable[..., Any]:
    """A rule of exports of this structure, e.g. their `encode`, as a function of their arrays.

    The arrays come as a list because jax takes a list apart much faster than a tree of modules.
    """

    def run(leaves: list[jax.Array], *arguments: Any) -> Any:
        return apply_rule(jax.tree.unflatten(structure, leaves), rule, *arguments)

    return jax.jit(run)


class Rules:
    """The rules of one export, by name, as functions of arrays."""

    def __init__(self, core: Any) -> None:
        self._leaves, self._structure = jax.tree.flatten(core)
        self._known: dict[str, Callable[..., Any]] = {}

    def __call__(self, rule: str, *arguments: Any) -> np.ndarray:
        return np.asarray(self.on_device(rule, *arguments))

    def on_device(self, rule: str, *arguments: Any) -> Any:
        """What a rule gives, as JAX has it: of several things, only those that are used are copied."""
        require_own_process()
        if rule not in self._known:
            self._known[rule] = _compiled(rule, self._structure)
        return self._known[rule](self._leaves, *arguments)
