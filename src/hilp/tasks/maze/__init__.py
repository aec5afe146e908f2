"""The built-in maze, by name or map: the world of `world.py` as it is, or as seen from above, in pictures.

Pictures of 32 x 32 pixels are drawn by numpy, and the robot's place can be read from them again. Nothing but the robot
is red, so how red a pixel is says how much of it the robot covers, and the middle of all red is where the robot is. It
is drawn far larger than it is: a robot of a quarter of a pixel would be lost on a small network.
"""

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from hilp.errors import HilpError, nearest
from hilp.tasks import rendering
from hilp.tasks.maze.maps import MAZES, SUCCESS_RADIUS, Grid, Places, at_goal, looks_like_map, read_map
from hilp.tasks.maze.world import RADIUS, STEP, Maze
from hilp.tasks.rendering import SUFFIX

SIDE = 32  # pixels of a picture
PART = "pixels"  # the name of the picture in an observation
ROBOT = 1.0 + RADIUS  # radius of the robot in pictures, in cells: as near as it comes to the edge of the map
FLOOR, WALL, DOOR, BEYOND = (0, 168, 150), (0, 62, 92), (0, 96, 224), (0, 22, 36)  # no red in any of them
RED = (255, 96, 64)
BLOCK = 1024  # pictures drawn at a time
IN_WALL = 0.3  # cells that a place may be read inside a wall, by rounding


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


class PixelMaze(Maze):
    """A maze whose policies see images. Its own observations, rewards and goals stay positions."""

    image_parts = ((PART, (SIDE, SIDE, 3), "uint8"),)
    state_column = "physics"
    extra_columns: tuple[str, ...] = (state_column,)

    def __init__(self, name: str, map_text: str, max_steps: int | None = None) -> None:
        super().__init__(name, map_text, max_steps)
        self.task = name
        rows, columns = self.walls.shape
        self._scale = SIDE / max(rows, columns)  # pixels of a cell
        # Where the lower left corner of the map is in the picture, in pixels from its lower left one.
        self._corner = (SIDE - self._scale * np.array([columns, rows])) / 2
        middle = np.arange(SIDE) + 0.5
        # x of the columns and y of the rows of a picture, in cells; row 0 is the top.
        x, y = (middle - self._corner[0]) / self._scale, (SIDE - middle - self._corner[1]) / self._scale
        self._x, self._y = x.astype(np.float32), y.astype(np.float32)

    # ---- pictures ----------------------------------------------------------------------------------------------------

    @cached_property
    def _ground(self) -> np.ndarray:
        """[SIDE, SIDE, 3] float32: the map without a robot."""
        fine = 4  # points a pixel along each axis: walls have edges between pixels
        x, y = ((np.arange(fine * SIDE) + 0.5) / fine for _ in range(2))
        column = np.floor((x - self._corner[0]) / self._scale).astype(int)
        row = self._height - 1 - np.floor((SIDE - y - self._corner[1]) / self._scale).astype(int)
        rows, columns = self.walls.shape
        on_map = ((row >= 0) & (row < rows))[:, None] & ((column >= 0) & (column < columns))[None]
        cells = self.cells[np.clip(row, 0, rows - 1)[:, None], np.clip(column, 0, columns - 1)[None]]
        colours = np.where((cells == "#")[..., None], WALL, np.where((cells == ".")[..., None], FLOOR, DOOR))
        colours = np.where(on_map[..., None], colours, BEYOND)
        return colours.reshape(SIDE, fine, SIDE, fine, 3).mean(axis=(1, 3)).astype(np.float32)

    def render_states(self, places: np.ndarray) -> dict[str, np.ndarray]:
        """Pictures of the robot at places [n, 2]."""
        places = np.asarray(places, np.float32)
        pictures = np.empty((len(places), SIDE, SIDE, 3), np.uint8)
        x, y = self._x, self._y
        bare, towards = (self._ground + 0.5).astype(np.uint8), np.array(RED, np.float32) - self._ground
        wide = min(SIDE, int(2 * ROBOT * self._scale) + 2)  # pixels that the robot can touch along an axis
        for first in range(0, len(places), BLOCK):
            at = places[first : first + BLOCK]
            left = np.floor(self._corner[0] + self._scale * (at[:, 0] - ROBOT))
            top = np.floor(SIDE - self._corner[1] - self._scale * (at[:, 1] + ROBOT))
            columns, rows = (
                np.clip(edge, 0, SIDE - wide).astype(np.intp)[:, None] + np.arange(wide) for edge in (left, top)
            )
            square = np.square(y[rows] - at[:, 1:])[:, :, None] + np.square(x[columns] - at[:, :1])[:, None, :]
            covered = np.maximum(1.0 - np.sqrt(square) * np.float32(1.0 / ROBOT), 0.0)[..., None]  # n x wide x wide x 1
            window = (rows[:, :, None], columns[:, None, :])
            block = pictures[first : first + BLOCK]
            block[:] = bare
            block[(np.arange(len(at))[:, None, None], *window)] = self._ground[window] + covered * towards[window] + 0.5
        return {PART: pictures}

    def infer_states(self, observations: Mapping[str, np.ndarray]) -> np.ndarray:
        """The places [n, 2] of the robot in pictures, to a few hundredths of a cell; NaN where there is no robot."""
        pictures = np.asarray(observations[PART])
        places = np.empty((len(pictures), 2))
        x, y = self._x, self._y
        for first in range(0, len(pictures), BLOCK):
            red = pictures[first : first + BLOCK, :, :, 0].astype(np.float32)
            total = red.sum(axis=(1, 2))
            total[total == 0] = np.nan
            places[first : first + BLOCK, 0] = red.sum(axis=1) @ x / total
            places[first : first + BLOCK, 1] = red.sum(axis=2) @ y / total
        return places

    def positions(self, observations: Any) -> np.ndarray:
        """x and y as they are, or as pictures show them."""
        return self.infer_states(observations) if isinstance(observations, Mapping) else np.asarray(observations)

    def near(self, observations: Any, goal: Any) -> np.ndarray:
        return super().near(self.positions(observations), rendering.infer_states(self, goal))

    def place(self, observations: Any) -> np.ndarray:
        return self.positions(observations)

    def _run(self, xy: np.ndarray, goals: np.ndarray) -> Any:
        return rendering.RenderedEpisodes(self, super()._run(xy, goals))

    def require_position(self, xy: Any, name: str) -> np.ndarray:
        """A start or goal; of an image the nearest free position, because reading an image rounds."""
        if not isinstance(xy, Mapping):
            return super().require_position(xy, name)
        seen = self.infer_states({PART: np.asarray(xy[PART])[None]})[0]
        inside = np.clip(seen, self._rooms[:, :2], self._rooms[:, :2] + self._rooms[:, 2:])
        gaps = np.linalg.norm(inside - seen, axis=1)
        if not np.isfinite(seen).all() or gaps.min() > IN_WALL:
            raise HilpError(f"there is no robot on the floor of {self.name} in this picture: nothing else in it is red")
        return super().require_position(inside[gaps.argmin()], name)
