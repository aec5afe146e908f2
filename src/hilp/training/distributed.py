"""Several devices: the rows of a batch shared out among them, everything else the same on each; on one machine or more.

The state of a run is on every device in full, so what is saved, exported and resumed does not know how many there were.
Sums over a batch are then taken in another order: results are those of one device but for rounding, and the number of
devices is part of a run's identity.
"""

import contextlib
import os
import re
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hilp.errors import HilpError, counted, reason, say, some
from hilp.storage import told

ROWS = "rows"  # the axis of a mesh: rows of a batch
LOST = re.compile(  # what JAX, its coordination service, Gloo and NCCL say where another process is gone
    r"UNAVAILABLE|DEADLINE_EXCEEDED|heartbeat|coordination service|gloo|closed by peer|reset by peer|broken pipe"
    r"|tasks are unhealthy|remote process exited",
    re.IGNORECASE,
)


def mesh_of(count: int, batch: int) -> Mesh | None:
    """The first so many devices, of all processes; None for one, which needs no mesh."""
    together = jax.process_count()
    if together > 1 and count != jax.device_count():
        have = jax.device_count()
        raise HilpError(f"{together} processes train together on all their devices: devices={have}, not {count}")
    if count == 1:
        return None
    if count > jax.device_count():
        kind = jax.devices()[0].platform
        trial = f" (to try it out on one: XLA_FLAGS=--xla_force_host_platform_device_count={count})"
        raise HilpError(
            f"devices={count}, and JAX sees {counted(jax.device_count(), 'device')} here ({kind})"
            f"{trial if kind == 'cpu' else ''}"
        )
    if batch % count:
        raise HilpError(f"a batch of {batch} rows cannot be shared out evenly among {count} devices: change batch")
    return Mesh(np.asarray(jax.devices()[:count]), (ROWS,))


def everywhere(mesh: Mesh) -> NamedSharding:
    """All of an array on every device."""
    return NamedSharding(mesh, PartitionSpec())


def shared_out(batch: Any, mesh: Mesh) -> Any:
    """A batch with its rows shared out."""
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, _of_rows(leaf.shape, 0, mesh)), batch)


def _of_rows(shape: tuple[int, ...], axis: int | None, mesh: Mesh) -> NamedSharding:
    """Rows along an axis, where there is one and they can be shared out; else everywhere."""
    if axis is None or len(shape) <= axis or shape[axis] % mesh.size:
        return everywhere(mesh)
    return NamedSharding(mesh, PartitionSpec(*[None] * axis, ROWS))


def placed(tree: Any, mesh: Mesh | None, axis: int | None = None) -> Any:
    """A tree that each process has, on the device or on each of several; rows along an axis are shared out."""
    if mesh is None:
        return jax.device_put(tree)
    return jax.tree.map(lambda leaf: _place(leaf, _of_rows(leaf.shape, axis, mesh)), tree)


def _place(leaf: Any, sharding: NamedSharding) -> jax.Array:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = _place(jax.random.key_data(leaf), sharding)
        return jax.jit(jax.random.wrap_key_data, out_shardings=sharding)(data)
    here = np.asarray(leaf)
    return jax.make_array_from_callback(here.shape, sharding, lambda part: here[part])


def local(tree: Any, mesh: Mesh | None) -> Any:
    """A tree that is whole on every device, on the first one of this process alone."""
    return tree if mesh is None else jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), tree)


def join(coordinator: str | None, processes: int | None, process: int | None, devices: int | None = None) -> int:
    """Train together with other processes; returns the number of devices: `devices`, or all of them.

    coordinator: host:port of the first process, or "auto" under SLURM or Open MPI, which know the rest; None to train
    alone, on one device by default.
    """
    _require_address(coordinator, processes, process)
    if coordinator is None:
        return 1 if devices is None else devices
    hint = " (this is no job of SLURM or Open MPI: give host:port)" if coordinator == "auto" else ""
    with told(f"cannot join the processes at {coordinator}{hint}", (RuntimeError, ValueError)):
        jax.distributed.initialize(None if coordinator == "auto" else coordinator, processes, process)
    # A first exchange, before each reads its data: on CPUs a process waits 30 seconds only for others to come to the
    # first one, and longer afterwards.
    _gathered(0)
    return jax.device_count() if devices is None else devices


@contextlib.contextmanager
def while_all_live() -> Iterator[None]:
    """One line where another process has died, and the end: JAX would wait for it, and then abort with a dump."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1 or not LOST.search(str(error)):
            raise
        say(f"error: another process of this training has ended ({reason(error)}): start all again with --resume")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(2)


def _require_address(coordinator: str | None, processes: int | None, process: int | None) -> None:
    if coordinator is None or coordinator == "auto":
        if processes is None and process is None:
            return
        if coordinator == "auto":
            raise HilpError("--coordinator auto knows --processes and --process by itself: leave them out")
        flag = "--processes" if processes is not None else "--process"
        raise HilpError(f"{flag} is for processes that train together: name their --coordinator")
    if processes is None or process is None or not 0 <= process < processes:
        raise HilpError("--coordinator host:port needs --processes (how many) and --process (which one it is, from 0)")
    if re.fullmatch(r".+:\d+", coordinator) is None:
        raise HilpError(f"--coordinator is host:port of the first process, not '{coordinator}'")


def _gathered(*numbers: int) -> np.ndarray:
    """The numbers of every process, processes x numbers."""
    if jax.process_count() == 1:
        return np.asarray([numbers])
    from jax.experimental import multihost_utils

    found = multihost_utils.process_allgather(np.asarray(numbers, np.int32))
    return np.asarray(found).reshape(jax.process_count(), -1)


def any_process(here: bool) -> bool:
    """Whether something holds for this process, or for one of those that it trains with."""
    return bool(_gathered(here).any())


def writes(devices: int) -> bool:
    """Whether this process is the one that writes, of those that train on so many devices together."""
    return devices == 1 or jax.process_index() == 0


def require_same(start: int, identity: str, problem: HilpError | None = None) -> None:
    """Raise in all processes where they would train different things, or one of them cannot begin: none then waits."""
    starts, digests, problems = _gathered(start, zlib.crc32(identity.encode()) >> 1, problem is not None).T
    if problem is not None:
        raise problem
    if problems.any():
        raise HilpError(f"process {int(np.argmax(problems))} cannot begin, and says why")
    if np.ptp(digests):
        raise HilpError("processes that train together must have the same data, config, seeds, devices and steps")
    if np.ptp(starts):
        raise HilpError(f"processes go on from updates {some(starts)}: all must see the same folder of the run")


def agreed(chunk: int, over: bool, due: bool, stop: bool) -> tuple[int, bool, bool, bool]:
    """The next chunk, and whether the run is over and a row of metrics due, as in the first process, whose clock
    counts; stop, if any is to.
    """
    found = _gathered(chunk, over, due, stop)
    return int(found[0, 0]), bool(found[0, 1]), bool(found[0, 2]), bool(found[:, 3].any())
