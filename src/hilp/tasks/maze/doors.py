"""One-way doors of a maze: cells that can be entered and left in one direction only.

A door is about the robot's centre: it crosses a side of the cell in the door's direction or not at all. Inside the cell
it may move as it likes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from hilp.errors import HilpError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDES = {">": (0, 1), "<": (0, -1), "^": (-1, 0), "v": (1, 0)}  # rows and columns to the cell behind each side
DOORS = "".join(SIDES)
COLOUR = "#c2571a"
ARROW = np.array([(0.25, 0.2), (0.25, 0.8), (0.8, 0.5)])  # of a door to the right, in a cell of size 1
Cell = tuple[int, int]  # row and column of a map


def closed(cells: np.ndarray) -> np.ndarray:
    """bool [4, rows, columns]: whether doors forbid to leave a cell through its right, left, upper, lower side."""
    found = []
    for door, (down, right) in SIDES.items():
        behind = np.roll(cells, (-down, -right), axis=(0, 1))  # the border is all walls
        found.append(np.any([np.isin(side, list(DOORS)) & (side != door) for side in (cells, behind)], axis=0))
    return np.stack(found)


def require_ways(cells: np.ndarray) -> None:
    """Raise unless every free cell of a map [rows, columns] can be reached from every other."""
    for row, column in np.argwhere(np.isin(cells, list(DOORS))):
        door = cells[row, column]
        down, right = SIDES[door]
        for sign, lacking in ((1, "leads into a wall"), (-1, "has a wall before it")):
            if cells[row + sign * down, column + sign * right] == "#":
                raise HilpError(
                    f"the door '{door}' at {cell_name(row, column)} of the map {lacking}: free the cell there, or turn "
                    "the door"
                )
    free = [(int(row), int(column)) for row, column in np.argwhere(cells != "#")]
    onwards = _ways(cells, free)
    backwards: dict[Cell, list[Cell]] = {cell: [] for cell in free}
    for cell, following in onwards.items():
        for there in following:
            backwards[there].append(cell)
    for ways, back in ((onwards, False), (backwards, True)):
        lost = sorted(set(free) - _reached(ways, free[0]))
        if lost:
            start, end = (lost[0], free[0]) if back else (free[0], lost[0])
            raise HilpError(
                f"the one-way doors of the map leave no way from {cell_name(*start)} to {cell_name(*end)}: turn a "
                "door, or open another way"
            )


def cell_name(row: int, column: int) -> str:
    return f"row {row + 1}, column {column + 1}"


def draw_doors(cells: np.ndarray, ax: Axes) -> None:
    """An arrow in each door."""
    from matplotlib.patches import Polygon

    for row, column in np.argwhere(np.isin(cells, list(DOORS))):
        corner = np.array([column, len(cells) - 1 - row])
        ax.add_patch(Polygon(corner + arrow(cells[row, column]), facecolor=COLOUR, edgecolor="none", zorder=0.5))


def arrow(door: str) -> np.ndarray:
    """The corners [3, 2] of a door's arrow, in a cell of size 1 with y upwards."""
    down, right = SIDES[door]
    along, across = np.array([right, -down]), np.array([down, right])
    return 0.5 + np.outer(ARROW[:, 0] - 0.5, along) + np.outer(ARROW[:, 1] - 0.5, across)


def painted(door: str, size: int) -> np.ndarray:
    """The pixels [size, size] of a cell that its arrow covers, row 0 at the top."""
    y, x = (np.indices((size, size)) + 0.5) / size
    points = np.stack([x, 1 - y], axis=-1)
    corners = arrow(door)
    sides = np.roll(corners, -1, axis=0) - corners
    beside = points[..., None, :] - corners
    turn = sides[:, 0] * beside[..., 1] - sides[:, 1] * beside[..., 0]
    return np.asarray((turn <= 0).all(axis=-1) | (turn >= 0).all(axis=-1))


def _ways(cells: np.ndarray, free: list[Cell]) -> dict[Cell, list[Cell]]:
    """Each free cell and the cells that can be entered from it."""
    shut = closed(cells)
    ways: dict[Cell, list[Cell]] = {}
    for row, column in free:
        beside = [(row + down, column + right) for down, right in SIDES.values()]
        ways[row, column] = [
            there for side, there in enumerate(beside) if cells[there] != "#" and not shut[side, row, column]
        ]
    return ways


def _reached(ways: dict[Cell, list[Cell]], start: Cell) -> set[Cell]:
    seen, queue = {start}, deque([start])
    while queue:
        for there in ways[queue.popleft()]:
            if there not in seen:
                seen.add(there)
                queue.append(there)
    return seen
