"""Tasks: what `evaluate`, `diagnose` and `collect` know about the world. Each family has its own folder.

A task is any object with the attributes of `Task`. Nothing outside this folder tests a task's name. A family is a
module with `names()` and `make(name)`, with `takes(name)` where it makes more than it lists, and with `reward_tasks()`
where some of its tasks are one reward each. Tasks of your own come by an entry point of the group `hilp.tasks` or by
`register`.
"""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from hilp import plugins
from hilp.errors import HilpError, nearest, require_name
from hilp.tasks import gym
from hilp.tasks.base import Episodes, Finite, Task

FAMILIES: dict[str, str] = {  # imported when needed
    "antmaze": "hilp.tasks.antmaze",  # before maze, which takes any text of several lines
    "maze": "hilp.tasks.maze",
    "maze-chance": "hilp.tasks.maze.chance",
    "kitchen": "hilp.tasks.kitchen",
    "dmc": "hilp.tasks.dmc",
    "ogbench": "hilp.tasks.ogbench",  # after antmaze, two of whose names it would take otherwise
    "minigrid": "hilp.tasks.minigrid",
    "gym": "hilp.tasks.gym",
}
_typed: set[str] = set()  # names that the user typed in this process; others were read in a file
_registered: dict[str, Any] = {}  # tasks of this process, by name


def register(name: str, make: Callable[[], Any] | Task) -> None:
    """Make a task known by name in this process: a task, or a function that gives a task or an environment."""
    require_name("a task", name)
    if not callable(make) and not hasattr(make, "episodes"):
        raise HilpError(f"task '{name}' must be registered with a function that makes it, not {make!r:.60}")
    _registered[name] = make


def names() -> list[str]:
    """The tasks that can be made by name, those of other packages included."""
    return [*(name for family in _families() for name in family.names()), *_single(), *_registered]


def is_known(name: str) -> bool:
    """Whether `make` knows this name; nothing is made."""
    return name in _registered or name in _single() or _family_of(name) is not None


def reward_tasks() -> tuple[str, ...]:
    """The tasks that are one reward each."""
    return tuple(name for family in _families() for name in getattr(family, "reward_tasks", tuple)())


def runs_user_code(name: str) -> bool:
    """Whether making a task runs code that its name points to, in a file or a module."""
    return name not in _registered and gym.runs_user_code(name)


def make_recorded(name: str) -> Any:
    """The task that data, a policy or a row names: opening a file of a stranger runs none of the code it names."""
    if runs_user_code(name) and name not in _typed:
        raise HilpError(f"the task '{name}' is code of its own, which is not run unasked: name it yourself with --task")
    return make(name)


def make(name: str) -> Any:
    """The task of this name; a maze may also be given as its map or as the path of a file that holds one.

    `gym:ID` is any environment of Gymnasium, `path/to/file.py:make` code of the user's own.
    """
    if require_name("a task", name) in _registered:
        return gym.task_from(_registered[name], name)
    if (family := _family_of(name)) is not None:
        _typed.add(name)  # typed by the user, so its code may be run
        return family.make(name)
    if name in _single():
        return gym.task_from(plugins.load(_single()[name]), name)
    if name.endswith(".py"):
        raise HilpError(f"{name} is a file of code: name the function or class in it that makes the task, {name}:make")
    raise HilpError(f"unknown task '{name}': {nearest(name, names())}")


def _single() -> dict[str, Any]:
    """The entry points of plugins that are one task each."""
    return {name: entry for name, entry in plugins.found("tasks").items() if entry.attr}


def _family_of(name: str) -> Any | None:
    for family in _families():
        if family.takes(name) if hasattr(family, "takes") else name in family.names():
            return family
    return None


def _families() -> Iterator[Any]:
    """The modules of all families, ours first; a plugin without an attribute is one."""
    for path in FAMILIES.values():
        yield importlib.import_module(path)
    for entry in plugins.found("tasks").values():
        if not entry.attr:
            yield plugins.load(entry)
