"""One-way doors of a maze: cells that can be entered and left in one direction only.

A door is about the robot's centre: it crosses a side of the cell in the door's direction or not at all. Inside the cell
it may move as it likes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hilp.errors import HilpError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from scipy.sparse import csr_matrix

SIDES = {">": (0, 1), "<": (0, -1), "^": (-1, 0), "v": (1, 0)}  # rows and columns to the cell behind each side
DOORS = "".join(SIDES)
COLOUR = "#c2571a"
ARROW = np.array([(0.25, 0.2), (0.25, 0.8), (0.8, 0.5)])  # of a door to the right, in a cell of size 1


def closed(cells: np.ndarray) -> np.ndarray:
    """bool [4, rows, columns]: whether doors forbid to leave a cell through its right, left, upper, lower side."""
    found = []
    for door, (down, right) in SIDES.items():
        behind = np.roll(cells, (-down, -right), axis=(0, 1))  # the border is all walls
        found.append(np.any([np.isin(side, list(DOORS)) & (side != door) for side in (cells, behind)], axis=0))
    return np.stack(found)


def require_ways(cells: np.ndarray) -> None:
    """Raise unless every free cell of a map [rows, columns] can be reached from every other."""
    from scipy.sparse.csgraph import breadth_first_order

    for row, column in np.argwhere(np.isin(cells, list(DOORS))):
        door = cells[row, column]
        down, right = SIDES[door]
        for sign, lacking in ((1, "leads into a wall"), (-1, "has a wall before it")):
            if cells[row + sign * down, column + sign * right] == "#":
                raise HilpError(
                    f"the door '{door}' at {cell_name(row, column)} of the map {lacking}: free the cell there, or turn "
                    "the door"
                )
    onwards = step_graph(neighbours(cells))
    for back, graph in ((False, onwards), (True, onwards.T)):
        reached = np.zeros(graph.shape[0], bool)
        reached[breadth_first_order(graph, 0, return_predecessors=False)] = True  # from the first free cell
        if not reached.all():
            first, lost = np.argwhere(cells != "#")[[0, int(np.argmin(reached))]]
            start, end = (lost, first) if back else (first, lost)
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


def neighbours(cells: np.ndarray) -> np.ndarray:
    """[free cells, 4]: the free cell to the right, left, top and bottom; the cell itself where there is no way."""
    row, column = np.nonzero(cells != "#")
    own = np.arange(len(row), dtype=np.int32)
    index = np.full(cells.shape, -1, np.int32)
    index[row, column] = own
    beside = [index[row + down, column + right] for down, right in SIDES.values()]
    shut = closed(cells)[:, row, column]  # side x cells
    return np.stack([np.where((cell < 0) | no, own, cell) for cell, no in zip(beside, shut, strict=True)], axis=1)


def step_graph(successors: np.ndarray) -> csr_matrix:
    """The graph in which i leads to successors[i]."""
    from scipy.sparse import csr_matrix

    n, width = successors.shape
    rows = np.arange(0, successors.size + 1, width)
    graph = csr_matrix((np.ones(successors.size, bool), successors.flatten(), rows), shape=(n, n))
    graph.sum_duplicates()  # reorders in place, hence the copy
    return graph
