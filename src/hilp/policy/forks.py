"""JAX does not survive a fork: its threads are not there in the child, which would wait for them for ever."""

from __future__ import annotations

import os
import sys

from hilp.errors import HilpError

_lost = False


def require_own_process() -> None:
    """Raise, instead of hanging, in a child that was forked after JAX had started."""
    if _lost:
        raise HilpError(
            "JAX does not survive a fork, and this process was forked after JAX had started: start processes with "
            "'spawn', e.g. multiprocessing.get_context('spawn')"
        )


def _after_fork_in_child() -> None:
    global _lost
    _lost = _lost or _started()


def _started() -> bool:
    """Whether JAX has threads; a child forked before that can start its own."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    asked = getattr(bridge, "backends_are_initialized", None)
    return bool(asked()) if asked is not None else bridge is not None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
