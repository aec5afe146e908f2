"""The maps of mazes: those with a name, and those that people draw themselves."""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path

import numpy as np

from hilp.errors import HilpError
from hilp.tasks.maze.doors import DOORS, cell_name, require_ways

# The map and the step limit of each named maze. The limit is four times the longest exact distance (given behind it),
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
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise HilpError(f"cannot read the map {path}: it must be a text file ({error})") from error
    try:
        parse_cells(text)
    except HilpError as error:
        raise HilpError(f"{path}: {error}") from error
    # A name goes into rows and pages; the file's own may be no text at all.
    return os.fsencode(Path(path).stem).decode("utf-8", "replace"), text


def looks_like_map(text: str) -> bool:
    """Whether a task is given as a map or as the path of one, rather than by name."""
    return "\n" in text or os.path.isfile(text)


def parse_cells(text: str) -> np.ndarray:
    """A map as characters [rows, columns] ('#', '.', doors), after checking that it is closed and all of one piece."""
    lines = textwrap.dedent(text).splitlines()
    while lines and not lines[0].strip():
        lines.pop(0)
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise HilpError("the map is empty: draw it with '#' for walls and '.' for free cells")
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
    _require_one_piece(cells == "#")
    require_ways(cells)
    return cells


def _require_one_piece(walls: np.ndarray) -> None:
    """Raise unless walls close the map and its free cells are connected through their sides."""
    from scipy.ndimage import label

    border = np.ones_like(walls)
    border[1:-1, 1:-1] = False
    gaps, free = np.argwhere(border & ~walls), np.argwhere(~walls)
    if len(gaps):
        raise HilpError(f"the border of the map is open at {cell_name(*gaps[0])}: put a '#' there")
    if not len(free):
        raise HilpError("the map has no free cell: open at least two with '.'")
    if len(free) == 1:
        raise HilpError(f"the map has only one free cell, at {cell_name(*free[0])}: open one beside it with '.'")
    pieces, count = label(~walls)
    if count > 1:
        smallest = 1 + int(np.bincount(pieces.ravel())[1:].argmin())
        raise HilpError(
            f"the free cell at {cell_name(*np.argwhere(pieces == smallest)[0])} of the map is cut off from the rest: "
            "open a wall beside it or close it with '#'"
        )


def cell_corners(walls: np.ndarray) -> np.ndarray:
    """[cells, 2]: the lower left corner of each free cell, row after row of the map."""
    row, column = np.nonzero(~walls)
    return np.stack([column, len(walls) - 1 - row], axis=1).astype(np.float64)
