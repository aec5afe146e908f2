"""The built-in maze: a point robot between walls, in numpy, many side by side, with exact distances in steps."""

from __future__ import annotations

import os

from hilp.errors import HilpError, nearest
from hilp.tasks.maze.maps import MAZES, SUCCESS_RADIUS, Grid, Places, at_goal, looks_like_map, read_map
from hilp.tasks.maze.pixels import PixelMaze
from hilp.tasks.maze.world import RADIUS, STEP, Maze
from hilp.tasks.rendering import SUFFIX

__all__ = [
    "MAZES",
    "RADIUS",
    "STEP",
    "SUCCESS_RADIUS",
    "Grid",
    "Maze",
    "Places",
    "at_goal",
    "make",
    "names",
    "read_map",
    "takes",
]


def names() -> list[str]:
    return [*sorted(MAZES), *sorted(f"{name}{SUFFIX}" for name in MAZES)]


def takes(name: str) -> bool:
    """Whether this is a maze: its name, its map or the path of one."""
    return name.removesuffix(SUFFIX) in MAZES or looks_like_map(name)


def make(name: str) -> Maze:
    """The maze of this name, of this map (a text of several lines) or of the map in this file."""
    if name in MAZES:
        return Maze(name, *MAZES[name])
    if name.removesuffix(SUFFIX) in MAZES:
        return PixelMaze(name, *MAZES[name.removesuffix(SUFFIX)])
    if "\n" in name:
        return Maze("maze-custom", name)
    if not os.path.isfile(name):
        raise HilpError(f"unknown maze '{name}': {nearest(name, MAZES)}; or give the path of a map")
    return Maze(*read_map(name))
