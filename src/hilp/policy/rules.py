"""Rules of a method's export (hilp.learning.contract), compiled once for all exports of the same structure."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np

from hilp.policy.forks import require_own_process


@cache
def _compiled(rule: str, structure: Any) -> Callable[..., jax.Array]:
    """A rule of exports of this structure, e.g. their `encode`, as a function of their arrays.

    The arrays come as a list because jax takes a list apart much faster than a tree of modules.
    """
    return jax.jit(lambda leaves, *arguments: getattr(jax.tree.unflatten(structure, leaves), rule)(*arguments))


class Rules:
    """The rules of one export, by name, as functions of arrays."""

    def __init__(self, core: Any) -> None:
        self._leaves, self._structure = jax.tree.flatten(core)
        self._known: dict[str, Callable[..., jax.Array]] = {}

    def __call__(self, rule: str, *arguments: Any) -> np.ndarray:
        require_own_process()
        if rule not in self._known:
            self._known[rule] = _compiled(rule, self._structure)
        return np.asarray(self._known[rule](self._leaves, *arguments))
