"""Collectors: unlabeled data from a task, with no download. One file a family of tasks; none imports this one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hilp.errors import HilpError, require_count, require_seed

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset


def collect(
    task: str,
    kind: str | None = None,
    steps: int = 300_000,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    overwrite: bool = False,
) -> Dataset:
    """`steps` transitions of this kind of behaviour in a task; `kind` defaults to the family's first.

    out: folder to write. Mazes need none; simulators do, because they take minutes: a collection that was interrupted
    goes on when it is called again with the same arguments. workers: processes or threads that simulate.
    """
    from hilp import tasks

    steps, seed = require_count("steps", steps), require_seed(seed)
    workers = None if workers is None else require_count("workers", workers)
    world = tasks.make(task)
    collector = _of_family(world.family)
    kind = next(iter(collector.KINDS)) if kind is None else kind
    if world.family == "maze":
        from hilp.data.load import from_arrays

        data = from_arrays(collector.collect(world, kind, steps, seed, progress), name=f"{world.name}-{kind}")
        # A map of the user's own travels as its text: the file it came from may not.
        data = replace(data, task=task if task in tasks.names() else world.map_text)
        if out is not None:
            data.save(Path(out), overwrite=overwrite)
        return data
    if out is None:
        raise HilpError(f"collecting in {world.name} takes minutes and can be interrupted: give a folder, out=...")
    done: Dataset = collector.collect(world, kind, steps, seed, Path(out), progress, workers, overwrite=overwrite)
    return done


def _of_family(family: str) -> Any:
    """The collector of a family of tasks, imported alone: some bring a learner along."""
    if family == "maze":
        from hilp.collectors import maze

        return maze
    if family == "antmaze":
        from hilp.collectors import antmaze

        return antmaze
    from hilp.collectors import dmc

    return dmc
