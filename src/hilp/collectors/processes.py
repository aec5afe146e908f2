"""Pieces of a collection shared by processes: each is simulated by one of them, and they come back in order."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from hilp.errors import HilpError

UNGUARDED = "in a script, call this under `if __name__ == '__main__':`, or use workers=1"
Episode = dict[str, Any]  # columns of an episode: observations [T + 1, obs], actions [T, act], extras [T + 1, ...]
Piece = TypeVar("Piece")


def count(workers: int | None) -> int:
    """How many processes to use: one a core where nobody says; raises where more than one cannot be started."""
    workers = (os.cpu_count() or 1) if workers is None else workers
    if workers < 1:
        raise HilpError(f"cannot collect with {workers} workers: use at least 1")
    if workers > 1 and multiprocessing.parent_process() is not None:
        # Most likely a worker of ours, which runs its parent's script anew.
        raise HilpError(f"cannot collect with {workers} workers inside another one: {UNGUARDED}")
    return workers


def in_order(
    make: Callable[[], Callable[[Piece], list[Episode]]], pieces: Sequence[Piece], workers: int
) -> Iterator[list[Episode]]:
    """The episodes of each piece, in order. Every process calls `make` once: what it returns collects a piece."""
    workers = min(workers, len(pieces))
    if workers < 2:
        if pieces:
            yield from map(make(), pieces)
        return
    # Not forked: the threads of a process that has used JAX do not survive it.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _start_worker, (make,))
    try:
        yield from pool.map(_work, pieces)
    except BrokenProcessPool as error:
        raise HilpError(f"a collecting process ended too early: {UNGUARDED}") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_collector: Callable[[Any], list[Episode]] | None = None  # of this worker process


def _start_worker(make: Callable[[], Callable[[Any], list[Episode]]]) -> None:
    global _collector
    _collector = make()


def _work(piece: Any) -> list[Episode]:
    assert _collector is not None
    return _collector(piece)
