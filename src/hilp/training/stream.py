"""Data that stays on the host: batches gathered ahead by a thread, and arrays too large for memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from hilp.errors import HilpError
from hilp.learning import sampling
from hilp.training.distributed import placed

BLOCK = 32  # updates whose batches are gathered at a time


class Stream:
    """Blocks of batches from columns on the host; the next block is gathered while the device works."""

    def __init__(
        self,
        config: Any,
        sample: Callable[..., sampling.Rows],
        columns: sampling.Columns,
        keys: jax.Array,
        mesh: Mesh | None = None,
    ) -> None:
        """mesh: the devices that share out each batch."""
        self.columns = columns
        self._mesh = mesh
        self._keys = keys
        self._ahead: tuple[Any, Future[Any]] | None = None  # what is being gathered
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hilp-stream")

        def rows(index: sampling.Index, key: jax.Array, start: jax.Array) -> sampling.Rows:
            steps = start + 1 + jnp.arange(BLOCK)
            keys = jax.vmap(lambda step: jax.random.split(jax.random.fold_in(key, step))[0])(steps)
            return jax.vmap(partial(sample, config, index))(keys)

        over_seeds = rows if keys.ndim == 0 else jax.vmap(rows, in_axes=(None, 0, None))
        self._rows = jax.jit(over_seeds)

    def block(self, index: sampling.Index, start: int, used: int = BLOCK) -> Any:
        """The batches of updates start, start + 1, ..., of which so many are used; begins to gather what follows."""
        ready = self._ahead[1] if self._ahead is not None and self._ahead[0] == (id(index), start) else None
        batches = self._gather(index, start) if ready is None else ready.result()
        after = start + used
        self._ahead = ((id(index), after), self._worker.submit(self._gather, index, after))
        return batches

    def _gather(self, index: sampling.Index, start: int) -> Any:
        rows = jax.tree.map(np.asarray, self._rows(index, self._keys, jnp.int32(start)))
        if self._keys.ndim == 0 or not self.columns.own:
            return placed(sampling.gather(self.columns, rows, np), self._mesh, axis=1 + self._keys.ndim)
        batches = []
        for seed in range(len(self._keys)):
            columns = self.columns._replace(own={name: column[seed] for name, column in self.columns.own.items()})
            batches.append(sampling.gather(columns, jax.tree.map(lambda drawn, n=seed: drawn[n], rows), np))
        return placed(jax.tree.map(lambda *parts: np.stack(parts), *batches), self._mesh, axis=2)


def scratch_array(shape: tuple[int, ...], folder: Path | None) -> np.ndarray:
    """A float32 array in a file without a name, gone once it is no longer used."""
    size = 4 * int(np.prod(shape))
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):  # a disk that fills up later would end the process without a message
                os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, np.float32, "w+", shape=shape)
    except OSError as error:
        where = folder or tempfile.gettempdir()
        raise HilpError(
            f"no room for {size / 2**20:.0f} MiB of computed columns in {where}: {error.strerror or error}"
        ) from error
