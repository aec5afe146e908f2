"""Memory: of the device, of a config, and errors where it is not enough."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from hilp.errors import HilpError, reason
from hilp.learning import methods
from hilp.runs import CHECKPOINTS
from hilp.spec import Spec


def device_memory(free: bool = False) -> int:
    """Bytes of the device's memory; where it is the CPU, of the machine's. free: of what is free now."""
    device = jax.devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    return os.sysconf("SC_AVPHYS_PAGES" if free else "SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def release() -> None:
    """Give memory that was freed back to the system; the C library of Linux keeps most of what compiling took."""
    with contextlib.suppress(OSError, AttributeError):  # another system, another C library
        ctypes.CDLL(None).malloc_trim(0)


def require_fit(config: Any, spec: Spec, seeds: int) -> None:
    """Refuse what cannot fit before anything is compiled: XLA ends the process where it cannot allocate.

    Networks with their optimiser are counted exactly; of a batch only its observations, the least that it takes.
    """
    batch = getattr(config, "batch", 1)
    needed = seeds * (state_bytes(config, spec) + 4 * batch * 2 * spec.observation_dim)
    if needed > device_memory():
        raise HilpError(
            f"training would need at least {needed / 2**30:,.1f} GiB, this device has "
            f"{device_memory() / 2**30:,.1f}: lower batch, hidden or dim, or train fewer seeds at once"
        )


@lru_cache(maxsize=32)
def state_bytes(config: Any, spec: Spec) -> int:
    """Bytes of a method's networks and optimisers, without making them."""
    try:
        state = jax.eval_shape(lambda: methods.of(config).init(config, spec, jax.random.key(0)))
    except (OverflowError, MemoryError) as error:
        raise HilpError(f"these sizes make no network ({reason(error)}): lower them") from error
    return sum(math.prod(leaf.shape) * jnp.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(state))


@contextlib.contextmanager
def enough(folder: Path | None, start: int) -> Iterator[None]:
    """Raise one line where the device has not enough memory, and leave no folder of a run that never began."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        if folder is not None and start == 0 and not any((folder / CHECKPOINTS).iterdir()):
            shutil.rmtree(folder, ignore_errors=True)
        raise HilpError(
            "training does not fit in memory: lower batch or hidden, or train fewer seeds at once"
        ) from None
