"""The cells of a map and the ways between them, for any robot."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hilp.tasks.maze.doors import DOORS, neighbours, step_graph
from hilp.tasks.maze.maps import parse_cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Grid:
    """A map's cells, row 0 at its top, and the shortest paths between the free ones."""

    def __init__(self, map_text: str) -> None:
        self.cells = parse_cells(map_text)  # [rows, columns]: '#', '.', or a door
        self.walls = self.cells == "#"  # bool
        self.map_text = "\n".join("".join(row) for row in self.cells)
        self.has_doors = bool(np.isin(self.cells, list(DOORS)).any())
        self.free_cells = np.argwhere(~self.walls)  # [cells, 2]: row, column
        self.free_index = np.full(self.walls.shape, -1, np.int32)  # [rows, columns] -> row of free_cells, -1 in walls
        self.free_index[~self.walls] = np.arange(len(self.free_cells))

    @cached_property
    def neighbours(self) -> np.ndarray:
        """[cells, 4]: the free cell to the right, left, top and bottom; the cell itself where there is no way."""
        return neighbours(self.cells)

    @cached_property
    def cell_steps(self) -> np.ndarray:
        """[cells, cells] int16: the length of the shortest path of neighbouring cells."""
        return fewest_steps(self.neighbours)

    @property
    def far_end(self) -> int:
        """The row of free_cells at one end of the longest way through the map."""
        return int(np.unravel_index(self.cell_steps.argmax(), self.cell_steps.shape)[1])


def fewest_steps(successors: np.ndarray) -> np.ndarray:
    """All pairs of distances [n, n] int16 in the graph where i leads to successors[i], -1 where there is no way."""
    from scipy.sparse.csgraph import dijkstra

    graph, n = step_graph(successors), len(successors)
    steps = np.empty((n, n), np.int16)
    for first in range(0, n, 512):  # in parts, because scipy answers in float64
        some = dijkstra(graph, unweighted=True, indices=np.arange(first, min(first + 512, n)))
        steps[first : first + 512] = np.where(np.isinf(some), -1, some)
    return steps


def draw_walls(walls: np.ndarray, ax: Axes, corner: tuple[float, float], cell: float, origin: str) -> None:
    """Draw walls [rows, columns] from above; origin: "upper" where row 0 is at the top, else "lower"."""
    from matplotlib.colors import ListedColormap

    (rows, columns), (left, bottom) = walls.shape, corner
    extent = (left, left + cell * columns, bottom, bottom + cell * rows)
    colours = ListedColormap(["#ffffff", "#4a4e57"])
    ax.imshow(walls, cmap=colours, vmin=0, vmax=1, extent=extent, origin=origin, zorder=0)  # type: ignore[arg-type]
    bare_axes(ax)


def bare_axes(ax: Axes) -> None:
    """Equal scales and no ticks, as for a map."""
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
