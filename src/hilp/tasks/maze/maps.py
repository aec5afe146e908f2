"""The maps of mazes: those with a name, those that people draw, and the ways between their cells.

A one-way door is a cell that can be entered and left in one direction only. It is about the robot's centre: it crosses
a side of the cell in the door's direction or not at all. Inside the cell it may move freely.
"""

import os
import re
import textwrap
from functools import cached_property
from pathlib import Path

import numpy as np

from hilp.errors import HilpError
from hilp.storage import told
from hilp.tasks.base import Axes, Task

SIDES = {">": (0, 1), "<": (0, -1), "^": (-1, 0), "v": (1, 0)}  # rows and columns to the cell behind each side
DOORS = "".join(SIDES)
SUCCESS_RADIUS = 0.5  # a goal is reached at this Euclidean distance
COLOUR = "#c2571a"
ARROW = np.array([(0.25, 0.2), (0.25, 0.8), (0.8, 0.5)])  # of a door to the right, in a cell of size 1

# The map and the step limit of each named maze. The limit is four times the longest exact distance (in the comment),
# rounded up to a multiple of 50: enough for a policy that wanders a little, too little for one that is lost.
MAZES: dict[str, tuple[str, int]] = {
    "maze-four-rooms": (
        """
        ###########
        #....#....#
        #....#....#
        #.........#
        #....#....#
        ##.####.###
        #....#....#
        #.........#
        #....#....#
        #....#....#
        ###########
        """,
        150,  # 27
    ),
    "maze-medium": (
        """
        ########
        #..##..#
        #..#...#
        ##...###
        #..#...#
        #.#..#.#
        #...#..#
        ########
        """,
        100,  # 17
    ),
    "maze-large": (
        """
        ############
        #....#.....#
        #.##.#.#.#.#
        #......#...#
        #.####.###.#
        #..#.#.....#
        ##.#.#.#.###
        #..#...#...#
        ############
        """,
        150,  # 33
    ),
    "maze-ultra": (
        """
        ################
        #.......#......#
        #.###.#.#.##.#.#
        #.###.#....#.#.#
        #...#.##.###.#.#
        #.#...#........#
        #...#...#.###.##
        #.#.###.#...#.##
        #.......#.#....#
        ##.##.#...####.#
        ##.#..#.#......#
        ################
        """,
        200,  # 41
    ),
    "maze-oneway": (
        """
        ############
        #....>.....#
        #.##.#.#.#.#
        #.<....#...#
        #^####v###v#
        #..#.#.....#
        ##.#.#.#.###
        #..<...<...#
        ############
        """,
        250,  # 54, by a way whose way back has 6
    ),
}


def read_map(path: str) -> tuple[str, str]:
    """The name and the text of the map in a file."""
    with told(f"cannot read the map {path}, which must be a text file", (OSError, UnicodeDecodeError)):
        text = Path(path).read_text(encoding="utf-8-sig")
    with told(path, HilpError):
        parse_cells(text)
    # A name goes into rows and pages; the file's own may be no text at all.
    return os.fsencode(Path(path).stem).decode("utf-8", "replace"), text


def looks_like_map(text: str) -> bool:
    """Whether a task is given as a map or as the path of one, rather than by name."""
    return "\n" in text or (os.path.isfile(text) and not text.endswith(".py"))


def parse_cells(text: str) -> np.ndarray:
    """A map as characters [rows, columns] ('#', '.', doors), after checking that it is closed and all of one piece."""
    lines = textwrap.dedent(text).splitlines()
    drawn = [row for row, line in enumerate(lines) if line.strip()]
    if not drawn:
        raise HilpError("the map is empty: draw it with '#' for walls and '.' for free cells")
    lines = lines[drawn[0] : drawn[-1] + 1]
    for row, line in enumerate(lines):
        if len(line) != len(lines[0]):
            raise HilpError(
                f"row {row + 1} of the map has {len(line)} cells but row 1 has {len(lines[0])}: make all rows equal"
            )
        unknown = re.search(f"[^#1. 0{re.escape(DOORS)}]", line)
        if unknown:
            raise HilpError(
                f"unknown character {unknown[0]!r} at {cell_name(row, unknown.start())} of the map: "
                "use '#' or '1' for walls, '.', '0' or a space for free cells, '>', '<', '^' or 'v' for one-way doors"
            )
    plain = str.maketrans("1 0", "#..")
    cells = np.array([list(line.translate(plain)) for line in lines])
    _require_one_piece(cells)
    _require_ways(cells)
    return cells


def _require_one_piece(cells: np.ndarray) -> None:
    """Raise unless walls close the map and its free cells are connected through their sides, doors or not."""
    walls = cells == "#"
    border = np.ones_like(walls)
    border[1:-1, 1:-1] = False
    gaps, free = np.argwhere(border & ~walls), np.argwhere(~walls)
    if len(gaps):
        raise HilpError(f"the border of the map is open at {cell_name(*gaps[0])}: put a '#' there")
    if not len(free):
        raise HilpError("the map has no free cell: open at least two with '.'")
    if len(free) == 1:
        raise HilpError(f"the map has only one free cell, at {cell_name(*free[0])}: open one beside it with '.'")
    beside, piece = neighbours(np.where(walls, "#", ".")), np.arange(len(free))
    while ((lower := np.minimum(piece, piece[beside].min(axis=1))) != piece).any():
        piece = lower  # in the end that of the first cell of each piece
    names, sizes = np.unique(piece, return_counts=True)
    if len(names) > 1:
        raise HilpError(
            f"the free cell at {cell_name(*free[names[sizes.argmin()]])} of the map is cut off from the rest: "
            "open a wall beside it or close it with '#'"
        )


def _require_ways(cells: np.ndarray) -> None:
    """Raise unless one-way doors let every free cell be reached from every other."""
    for row, column in np.argwhere(np.isin(cells, list(DOORS))):
        door = cells[row, column]
        down, right = SIDES[door]
        for sign, lacking in ((1, "leads into a wall"), (-1, "has a wall before it")):
            if cells[row + sign * down, column + sign * right] == "#":
                raise HilpError(
                    f"the door '{door}' at {cell_name(row, column)} of the map {lacking}: free the cell there, or turn "
                    "the door"
                )
    beside = neighbours(cells)
    for back in (False, True):
        reached, before = np.arange(len(beside)) == 0, 0  # from the first free cell, or back to it
        while (count := int(reached.sum())) > before:
            before = count
            if back:
                reached |= reached[beside].any(axis=1)
            else:
                reached[beside[reached]] = True
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


def closed(cells: np.ndarray) -> np.ndarray:
    """bool [4, rows, columns]: whether doors forbid to leave a cell through its right, left, upper, lower side."""
    found = []
    for door, (down, right) in SIDES.items():
        behind = np.roll(cells, (-down, -right), axis=(0, 1))  # the border is all walls
        found.append(np.any([np.isin(side, list(DOORS)) & (side != door) for side in (cells, behind)], axis=0))
    return np.stack(found)


def at_goal(xy: np.ndarray, goals: np.ndarray) -> np.ndarray:
    return np.linalg.norm(xy - goals, axis=-1) <= SUCCESS_RADIUS


class Places(Task):
    """A task whose goals are places, and so given by x and y."""

    has_goals = True

    def near(self, observations: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """Whether each observation counts as at the goal: by x and y alone."""
        return at_goal(observations[..., :2], goal[..., :2])


class Grid(Places):
    """A task on a map: its cells, row 0 first, and the shortest paths between the free ones."""

    target_ends = True
    target: np.ndarray

    def __init__(self, name: str, map_text: str) -> None:
        self.name = name
        self.cells = parse_cells(map_text)  # [rows, columns]: '#', '.', or a door
        self.walls = self.cells == "#"  # bool
        self.map_text = "\n".join("".join(row) for row in self.cells)
        self.has_doors = bool(np.isin(self.cells, list(DOORS)).any())
        self.free_cells = np.argwhere(~self.walls)  # [cells, 2]: row, column
        self.free_index = np.full(self.walls.shape, -1, np.int32)  # [rows, columns] -> row of free_cells, -1 in walls
        self.free_index[~self.walls] = np.arange(len(self.free_cells))

    @cached_property
    def neighbours(self) -> np.ndarray:
        return neighbours(self.cells)

    @cached_property
    def cell_steps(self) -> np.ndarray:
        """[cells, cells] int16: the length of the shortest path of neighbouring cells."""
        return fewest_steps(self.neighbours)

    @property
    def far_end(self) -> int:
        """The row of free_cells at one end of the longest way through the map."""
        return int(np.unravel_index(self.cell_steps.argmax(), self.cell_steps.shape)[1])

    def at_target(self, s: np.ndarray, a: np.ndarray, s2: np.ndarray) -> np.ndarray:
        """The reward of being at the target: 1 there, 0 elsewhere."""
        return self.near(s2, self.target).astype(np.float64)


def fewest_steps(successors: np.ndarray) -> np.ndarray:
    """All pairs of distances [n, n] int16 in the graph where i leads to successors[i], -1 where there is no way."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import dijkstra

    n, width = successors.shape
    rows = np.arange(0, successors.size + 1, width)
    graph = csr_matrix((np.ones(successors.size, bool), successors.flatten(), rows), shape=(n, n))
    graph.sum_duplicates()  # reorders in place, hence the copy
    steps = np.empty((n, n), np.int16)
    for first in range(0, n, 512):  # in parts, because scipy answers in float64
        some = dijkstra(graph, unweighted=True, indices=np.arange(first, min(first + 512, n)))
        steps[first : first + 512] = np.where(np.isinf(some), -1, some)
    return steps


def longest_corridor(walls: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centres of the first and last cell of the longest straight run of free cells; the first found among equals."""
    rows = walls.shape[0]
    best: list[tuple[int, int]] = []
    lines = [[(row, column) for column in range(walls.shape[1])] for row in range(rows)]
    lines += [[(row, column) for row in range(rows)] for column in range(walls.shape[1])]
    for line in lines:
        run: list[tuple[int, int]] = []
        for cell in line:
            run = [] if walls[cell] else [*run, cell]
            if len(run) > len(best):
                best = run
    ends = np.array([(column + 0.5, rows - row - 0.5) for row, column in (best[0], best[-1])])
    return ends[0], ends[1]


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
    ax.set(aspect="equal", xticks=[], yticks=[])
