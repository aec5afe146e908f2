"""What collectors share: what is to be collected, episodes simulated by several processes, and data of images.

Worker processes import this file, so it leaves what reads and writes data to functions that only the parent calls.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.errors import HilpError

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset
    from hilp.data.transforms import Parts

UNGUARDED = "in a script, call this under `if __name__ == '__main__':`, or use workers=1"
Episode = dict[str, Any]  # columns of an episode: observations [T + 1, obs], actions [T, act], extras [T + 1, ...]
Block = list[tuple[int, int]]  # number and steps of each episode that one call simulates
Simulate = Callable[[Block], list[Episode]]


@dataclass(frozen=True)
class Request:
    """What to collect, and where to."""

    kind: str
    steps: int  # transitions
    seed: int
    out: Path | None = None  # a folder; None for data in memory
    progress: Callable[[int], None] | None = None  # called with the transitions so far
    workers: int | None = None  # processes or threads that simulate; None: one a core
    overwrite: bool = False
    config: Any = None  # of a collector that learns; None: its defaults

    def report(self, done: int) -> None:
        if self.progress:
            self.progress(min(done, self.steps))

    def identity(self, task: str, **more: Any) -> dict[str, Any]:
        """What distinguishes this collection from others."""
        return {"task": task, "kind": self.kind, "steps": self.steps, "seed": self.seed, **more}

    @property
    def folder(self) -> Path:
        assert self.out is not None, "collectors without IN_MEMORY are called with a folder"
        return self.out


def collect_blocks(
    request: Request,
    identity: dict[str, Any],
    make: Callable[[], Simulate],
    length: int,
    block: int,
    name: str,
    task: str,
    parts: Parts = (),
    measure: Callable[[Dataset], dict[str, Any]] | None = None,
) -> Dataset:
    """Exactly `request.steps` transitions in episodes of `length` steps; the last episode may be shorter.

    measure: what the data keeps of its own behaviour.

    Each process calls `make` once. What it returns simulates a block of episodes, which depend on the seed and their
    numbers only. So an interrupted collection continues with the same data, also with another number of workers.
    """
    from hilp.collectors.shards import collection

    workers = count_workers(request.workers)
    lengths = np.full(-(-request.steps // length), length)
    lengths[-1] -= lengths.sum() - request.steps
    with collection(request.folder, identity, request.overwrite) as shards:
        left = list(enumerate(lengths.tolist()))[shards.episodes() :]
        blocks = [left[first : first + block] for first in range(0, len(left), block)]
        for episodes in in_order(make, blocks, workers):
            shards.add(episodes)
            request.report(shards.transitions())
        return shards.finish(name, task, parts, measure)


def collect_images(request: Request, world: Any, collect_states: Callable[[Request], Dataset]) -> Dataset:
    """Images of a task: states are collected first, in a folder of their own, and then rendered.

    A later call renders the states of an interrupted one. A transition counts half when its state is collected.
    """
    from hilp import storage
    from hilp.collectors.shards import IDENTITY
    from hilp.data import native
    from hilp.data.dataset import Dataset

    native.require_free(request.folder, request.overwrite)
    beside, progress = request.folder.with_name(f"{request.folder.name}-states"), request.report
    note, identity = beside / IDENTITY, request.identity(world.name, config=repr(request.config))
    if note.is_file() and storage.read_json(note) == identity:
        states = Dataset.open(beside)
    else:
        states = collect_states(replace(request, out=beside, progress=lambda done: progress(done // 2)))
        storage.write_json(note, identity)
    images = world.render_dataset(states, lambda done: progress((request.steps + min(done, request.steps)) // 2))
    return Dataset.open(images.save(request.folder, overwrite=request.overwrite))


def stacked(rows: list[dict[str, Any]], actions: list[np.ndarray]) -> Episode:
    """An episode from the columns of each of its rows, of which there is one more than actions."""
    columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return {"actions": np.stack(actions), **columns}


def count_workers(workers: int | None) -> int:
    """How many processes to use, one a core by default; raises where more than one cannot be started."""
    workers = (os.cpu_count() or 1) if workers is None else workers
    if workers > 1 and multiprocessing.parent_process() is not None:
        # Most likely a worker process, which runs its parent's script again.
        raise HilpError(f"cannot collect with {workers} workers inside another one: {UNGUARDED}")
    return workers


def in_order(make: Callable[[], Simulate], blocks: Sequence[Block], workers: int) -> Iterator[list[Episode]]:
    """The episodes of each block, in order."""
    workers = min(workers, len(blocks))
    if workers < 2:
        if blocks:
            yield from map(make(), blocks)
        return
    # Not forked: the threads of a process that has used JAX do not survive it.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _start_worker, (make,))
    try:
        yield from pool.map(_work, blocks)
    except BrokenProcessPool as error:
        raise HilpError(f"a collecting process ended too early: {UNGUARDED}") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_simulate: Simulate | None = None  # of this worker process


def _start_worker(make: Callable[[], Simulate]) -> None:
    global _simulate
    _simulate = make()


def _work(block: Block) -> list[Episode]:
    assert _simulate is not None
    return _simulate(block)
