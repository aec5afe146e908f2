"""Tasks: what `evaluate`, `diagnose` and `collect` know about the world. Each family has its own room.

A task is any object with the attributes of `Task`. Nothing outside this folder tests a task's name. A family is a
module with `names()`, `takes(name)` and `make(name)`, and with `reward_tasks()` where some of its tasks are one reward
each. Tasks of your own come by an entry point of the group `hilp.tasks` or by `register`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from hilp import plugins
from hilp.errors import HilpError, nearest
from hilp.tasks.base import Episodes, Finite, InParts, NamedGoals, Task

__all__ = ["Episodes", "Finite", "InParts", "NamedGoals", "Task", "make", "names", "register", "reward_tasks"]

FAMILIES: dict[str, str] = {  # imported when asked for
    "maze": "hilp.tasks.maze",
    "antmaze": "hilp.tasks.antmaze",
    "kitchen": "hilp.tasks.kitchen",
    "dmc": "hilp.tasks.dmc",
    "ogbench": "hilp.tasks.ogbench",  # after antmaze, two of whose names it would take otherwise
}
_registered: dict[str, Callable[[], Any]] = {}  # tasks of this process, by name


def register(name: str, make: Callable[[], Any]) -> None:
    """Make a task known by name in this process: a function that gives it when called."""
    if not callable(make):
        raise HilpError(f"task '{name}' must be registered with a function that makes it, not {make!r:.60}")
    _registered[name] = make


def names() -> list[str]:
    """The tasks that can be made by name, those of other packages included."""
    single = [name for name, entry in plugins.found("tasks").items() if entry.attr]
    return [*(name for family in _families() for name in family.names()), *single, *_registered]


def reward_tasks() -> tuple[str, ...]:
    """The tasks that are one reward each."""
    return tuple(name for family in _families() for name in getattr(family, "reward_tasks", tuple)())


def make(name: str) -> Any:
    """The task of this name; a maze may also be given as its map or as the path of a file that holds one."""
    if name in _registered:
        return _registered[name]()
    for family in _families():
        if family.takes(name):
            return family.make(name)
    entry = plugins.found("tasks").get(name)
    if entry is not None and entry.attr:
        return plugins.load(entry)()
    raise HilpError(f"unknown task '{name}': {nearest(name, names())}")


def _families() -> Iterator[Any]:
    """The modules of all families, ours first; a plugin without an attribute is one."""
    for path in FAMILIES.values():
        yield importlib.import_module(path)
    for entry in plugins.found("tasks").values():
        if not entry.attr:
            yield plugins.load(entry)
