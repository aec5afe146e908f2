"""Tasks: what `evaluate`, `diagnose` and `collect` know about the world. Each family has its own room.

A task is any object with the attributes of `Task`. Nothing outside this folder tests a task's name.
"""

from __future__ import annotations

from typing import Any

from hilp.errors import HilpError, nearest
from hilp.tasks.base import Episodes, Finite, Task

__all__ = ["Episodes", "Finite", "Task", "make", "names", "reward_tasks"]


def names() -> list[str]:
    """The tasks that can be made by name."""
    from hilp.tasks import antmaze, dmc, maze

    return [*sorted(maze.MAZES), *sorted(antmaze.NAMES), *dmc.NAMES, *dmc.TASKS]


def reward_tasks() -> tuple[str, ...]:
    """The tasks that are one reward each."""
    from hilp.tasks import dmc

    return dmc.TASKS


def make(name: str) -> Any:
    """The task of this name; a maze may also be given as its map or as the path of a file that holds one."""
    from hilp.tasks import antmaze, dmc, maze

    if name in maze.MAZES or maze.looks_like_map(name):
        return maze.make(name)
    if name in antmaze.NAMES or name.startswith(antmaze.MAP_PREFIX):
        return antmaze.make(name)
    if name in (*dmc.NAMES, *dmc.TASKS):
        return dmc.make(name)
    raise HilpError(f"unknown task '{name}': {nearest(name, names())}")
