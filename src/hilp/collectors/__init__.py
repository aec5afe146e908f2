"""Collectors: unlabeled data from a task, with no download. One file a family of tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset


def collect(task: str, kind: str, steps: int, seed: int = 0, progress: Callable[[int], None] | None = None) -> Dataset:
    """`steps` transitions of this kind of behaviour in a task."""
    from hilp import tasks
    from hilp.collectors import maze
    from hilp.data.readers import from_arrays

    world = tasks.make(task)
    data = from_arrays(maze.collect(world, kind, steps, seed, progress), name=f"{world.name}-{kind}")
    # A map of the user's own travels as its text: the file it came from may not.
    return replace(data, task=task if task in tasks.names() else world.map_text)
