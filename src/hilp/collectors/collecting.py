"""What collectors share: what is to be collected, episodes simulated by several processes, data of images, targets.

Worker processes import this file, so it leaves what reads and writes data to functions that only the parent calls.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
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
TARGET, TARGET_REACHED = "target", "target_reached"  # extra columns of data by scripts
NO_TARGET = -1  # of a row in which the script had none: it rests, or is going to break off


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

    workers = (os.cpu_count() or 1) if request.workers is None else request.workers
    if workers > 1 and multiprocessing.parent_process() is not None:
        # Most likely a worker process, which runs its parent's script again.
        raise HilpError(f"cannot collect with {workers} workers inside another one: {UNGUARDED}")
    lengths = np.full(-(-request.steps // length), length)
    lengths[-1] -= lengths.sum() - request.steps
    with collection(request.folder, identity, request.overwrite) as shards:
        left = list(enumerate(lengths.tolist()))[shards.episodes() :]
        blocks = [left[first : first + block] for first in range(0, len(left), block)]
        for episodes in in_order(make, blocks, workers):
            shards.add(episodes)
            request.report(shards.transitions())
        return shards.finish(name, task, parts, measure)


def recorded(row: Callable[[], Episode], step: Callable[[], np.ndarray | None], steps: int) -> Episode:
    """The columns of so many steps, each of which returns its actions, or None where all is over."""
    rows, actions = [row()], []
    for _ in range(steps):
        chosen = step()
        if chosen is None:
            break
        actions.append(chosen)
        rows.append(row())
    return {"actions": np.stack(actions), **{name: np.stack([one[name] for one in rows]) for name in rows[0]}}


def apart(columns: Episode, steps: Iterable[int]) -> list[Episode]:
    """The episodes that were recorded side by side, in columns [T + 1, n, ...], each with its first so many steps."""
    return [cut({name: column[:, i] for name, column in columns.items()}, own) for i, own in enumerate(steps)]


def cut(episode: Episode, steps: int) -> Episode:
    """The first so many transitions of an episode."""
    return {name: rows[: steps + (name != "actions")] for name, rows in episode.items()}


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


def at_target(number: Any, reached: Any) -> Episode:
    """Extra columns: how many targets the episode had before this row's (or NO_TARGET), and whether it is there."""
    return {TARGET: np.array(number, np.int32), TARGET_REACHED: np.array(reached, bool)}


def script_outcome(data: Dataset) -> dict[str, int | float]:
    """Targets that a script took up, how many it reached and their share, and how many an episode's end cut short.

    Empty for data without targets. One that is followed by a rest was not cut short.
    """
    if not {TARGET, TARGET_REACHED} <= data.extras.keys():
        return {}
    number, reached = np.asarray(data.extras[TARGET]), np.asarray(data.extras[TARGET_REACHED])
    episode = np.repeat(np.arange(data.episodes), data.lengths)
    firsts = np.flatnonzero(np.diff(number, prepend=-1) | np.diff(episode, prepend=-1))  # first row of each target
    got = np.logical_or.reduceat(reached, firsts)
    last = np.diff(episode[firsts], append=data.episodes) > 0  # of its episode
    some = number[firsts] != NO_TARGET
    got, last = got[some], last[some]
    if not len(got):
        return {}
    return {
        "targets": len(got),
        "targets_reached": int(got.sum()),
        "targets_cut_short": int((last & ~got).sum()),
        "script_success": float(got.mean()),
    }
