"""The compiled program of a stage: any number of updates in one loop, sampling inside, or by a thread ahead.

The randomness of update i is fold_in(seed key, i) and nothing else, so a run killed and resumed ends in the same bits.
"""

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from hilp.learning import images, methods, sampling
from hilp.spec import Spec
from hilp.storage import told
from hilp.training import distributed

Function = Callable[..., Any]
BLOCK = 32  # updates whose batches are gathered at a time
SEED_AXES = sampling.Columns(shared=None, own=0, mean=None, scale=None)  # type: ignore[arg-type]


@lru_cache(maxsize=32)
def initialiser(config: Any, spec: Spec, several: bool, mesh: Mesh | None = None) -> Function:
    """The compiled `init` of a config, for one seed or several."""
    init = partial(methods.of(config).init, config, spec)
    return jax.jit(jax.vmap(init) if several else init, **_out(mesh))


@lru_cache(maxsize=32)
def chunk_program(config: Any, stage: int, several: bool, streamed: bool, mesh: Mesh | None = None) -> Function:
    """The compiled chunk of a stage of a config, for one seed or several; shared by the runs of a session.

    Of (state, source, keys, first update, count): the state after them, sums of the metrics, first NaN of each. Seeds
    share the data on the device, but each has its own computed columns. mesh: the devices that share out the batch.
    """
    own = methods.stages(config)[stage]
    # Where devices share out a batch, each would need the rows of all to look some up.
    stored = partial(stored_batch, look_up=mesh is None)
    batch_of = stored if streamed else partial(drawn_batch, config, own.sample)

    def update(state: Any, batch: Any, key: jax.Array) -> Any:  # pictures, where there are some, are shifted at random
        return own.update(config, state, images.augmented(config, batch, key), key)

    chunk = chunk_function(update, batch_of, mesh)
    if several:
        source_axes: Any = 0 if streamed else (SEED_AXES, None)
        chunk = jax.vmap(chunk, in_axes=(0, source_axes, 0, None, None))
    return jax.jit(chunk, donate_argnums=0, **_out(mesh))


@lru_cache(maxsize=32)
def column_program(config: Any, function: Function, several: bool) -> Function:
    """A column of a stage, compiled: of (state, observations), one value a row, for one seed or several."""
    one = partial(function, config)
    return jax.jit(jax.vmap(one, in_axes=(0, None)) if several else one)


def _out(mesh: Mesh | None) -> dict[str, Any]:
    return {} if mesh is None else {"out_shardings": distributed.everywhere(mesh)}


def chunk_function(update: Function, batch_of: Function, mesh: Mesh | None = None) -> Function:
    """`count` updates as one loop with a dynamic bound, so every chunk length runs the same compiled code.

    `batch_of(source, key, i)` is the batch of the chunk's i-th update.
    """
    # The inner jit caches its trace: asking for the shapes of the metrics does not trace `update` a second time.
    update = jax.jit(update, inline=True)

    def one(state: Any, source: Any, key: jax.Array, i: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
        key_rows, key_update = jax.random.split(key)
        batch = batch_of(source, key_rows, i)
        if mesh is None:
            return update(state, batch, key_update)
        state, info = update(state, distributed.shared_out(batch, mesh), key_update)
        return jax.lax.with_sharding_constraint(state, distributed.everywhere(mesh)), info

    def chunk(state: Any, source: Any, key: jax.Array, start: jax.Array, count: jax.Array) -> Any:
        shapes = jax.eval_shape(one, state, source, key, count)[1]
        sums = {name: jnp.zeros((), jnp.float32) for name in shapes}
        bad = {name: jnp.zeros((), jnp.int32) for name in shapes}  # step of the first NaN, counted from 1; 0 is none

        def body(i: jax.Array, carry: Any) -> Any:
            state, sums, bad = carry
            state, info = one(state, source, jax.random.fold_in(key, i + 1), i - start)
            for name, metric in info.items():
                sums = {**sums, name: sums[name] + metric}
                bad = {**bad, name: jnp.where((bad[name] == 0) & ~jnp.isfinite(metric), i + 1, bad[name])}
            return state, sums, bad

        return jax.lax.fori_loop(start, start + count, body, (state, sums, bad))

    return chunk


def drawn_batch(config: Any, sample: Callable[..., sampling.Rows], source: Any, key: jax.Array, i: jax.Array) -> Any:
    """A batch drawn from columns on the device."""
    columns, index = source
    return sampling.gather(columns, sample(config, index, key))


def stored_batch(source: Any, key: jax.Array, i: jax.Array, look_up: bool = True) -> Any:
    """The i-th batch of a block that was gathered on the host.

    look_up: take pictures out of it row by row. XLA fuses a slice, even one behind a barrier, into each loop that turns
    bytes into numbers, which slows these down; it does not fuse a gather.
    """

    def cut(stack: jax.Array) -> jax.Array:
        if look_up and stack.dtype == jnp.uint8:
            rows = jnp.arange(stack.shape[1])
            return stack[jnp.full_like(rows, i), rows]
        return jax.lax.dynamic_index_in_dim(stack, i, keepdims=False)

    return jax.tree.map(cut, source)


class Stream:
    """Blocks of batches from columns on the host; the next block is gathered while the device works."""

    def __init__(
        self, sample: Callable[..., sampling.Rows], columns: sampling.Columns, keys: jax.Array, mesh: Mesh | None
    ) -> None:
        self.columns, self._keys, self._mesh = columns, keys, mesh
        self._ahead: tuple[Any, Future[Any]] | None = None  # what is being gathered
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hilp-stream")

        def rows(index: sampling.Index, key: jax.Array, start: jax.Array) -> sampling.Rows:
            steps = start + 1 + jnp.arange(BLOCK)
            keys = jax.vmap(lambda step: jax.random.split(jax.random.fold_in(key, step))[0])(steps)
            return jax.vmap(partial(sample, index))(keys)

        self._rows = jax.jit(rows if keys.ndim == 0 else jax.vmap(rows, in_axes=(None, 0, None)))

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
            return distributed.placed(sampling.gather(self.columns, rows, np), self._mesh, axis=1 + self._keys.ndim)
        batches = []
        for own in map(itemgetter, range(len(self._keys))):  # what is a seed's own
            columns = self.columns._replace(own=jax.tree.map(own, self.columns.own))
            batches.append(sampling.gather(columns, jax.tree.map(own, rows), np))
        return distributed.placed(jax.tree.map(lambda *parts: np.stack(parts), *batches), self._mesh, axis=2)


def scratch_array(shape: tuple[int, ...], folder: Path | None) -> np.ndarray:
    """A float32 array in a file without a name, gone once it is no longer used."""
    size = 4 * int(np.prod(shape))
    what = f"no room for {size / 2**20:.0f} MiB of computed columns in {folder or tempfile.gettempdir()}"
    with told(what), tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):  # a disk that fills up later would end the process without a message
            os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, np.float32, "w+", shape=shape)
