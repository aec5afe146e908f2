"""The built-in maze: a point robot between walls, in numpy, many side by side, with exact distances in steps.

World units are cells. x grows to the right and y upwards; row 0 of a map is its top. The robot is a square of
half-width RADIUS that moves up to STEP per axis and step, along one axis and then the other (in the order that gets
farther), and slides along the walls. One-way doors stop it as walls do where it comes from a wrong side.

`maze-large-pixels` and so on are seen from above. Pictures of 32 x 32 pixels are drawn by numpy, and the robot's place
can be read from them again. Nothing but the robot is red, so how red a pixel is says how much of it the robot covers,
and the middle of all red is where the robot is. It is drawn far larger than it is: a robot of a quarter of a pixel
would be lost on a small network.
"""

import math
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from hilp.errors import HilpError, nearest
from hilp.tasks import rendering
from hilp.tasks.base import Axes, BaseEpisodes, Finite, Given
from hilp.tasks.maze import maps
from hilp.tasks.maze.maps import MAZES, SUCCESS_RADIUS, Grid, Places, at_goal, read_map
from hilp.tasks.rendering import SUFFIX

RADIUS = 0.1  # half the width of the robot
STEP = 0.4  # how far an action of 1 moves the robot along its axis
TOUCH = 1e-5  # an overlap up to this is touching: a position rounded to float32 must not stick to the wall beside it

# Every motion maps the lattice of points at offsets 0.1, 0.3, 0.5, 0.7, 0.9 in each free cell to itself: free motions
# are multiples of its spacing, and a wall stops the robot at offset 0.1 or 0.9.
MOTIONS = np.array([(x, y) for x in (-1, -0.5, 0, 0.5, 1) for y in (-1, -0.5, 0, 0.5, 1)])
REGION_RADIUS = 1.5  # cells: of a region that is rewarded, or avoided
FINITE_LIMIT = 10_000  # points (400 free cells) up to which the distances of all pairs are worth their memory, 200 MB

StateReward = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # of s, a, s'

# Of pictures
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
    return name.removesuffix(SUFFIX) in MAZES or maps.looks_like_map(name)


def make(name: str) -> "Maze":
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


class Maze(Grid):
    """A map with its physics, its exact distances and its pictures."""

    observation_dim = 2
    action_dim = 2
    family = "maze"
    columns: Mapping[str, int] = {"x": 0, "y": 1}

    def __init__(self, name: str, map_text: str, max_steps: int | None = None) -> None:
        super().__init__(name, map_text)
        rows, columns = self.walls.shape
        self._height = rows
        self._wall_at = np.ascontiguousarray(self.walls[::-1].T).ravel()  # [column * rows + row from the bottom]
        shut = maps.closed(self.cells)[:, ::-1].transpose(0, 2, 1)  # [side, column, row from the bottom]
        self._shut_at = np.ascontiguousarray(shut).reshape(4, -1)  # whether a door forbids to leave through each side
        self._centre = np.array([columns / 2, rows / 2])
        if max_steps is not None:
            self.max_steps = max_steps
        self.task = name if MAZES.get(name, ("",))[0] == map_text else self.map_text  # `make` gives this maze again
        self.potentials: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
            "right": lambda observations: self.positions(observations)[..., 0],
            "left": lambda observations: -self.positions(observations)[..., 0],
            "up": lambda observations: self.positions(observations)[..., 1],
            "down": lambda observations: -self.positions(observations)[..., 1],
            "centre": lambda observations: -np.linalg.norm(self.positions(observations) - self._centre, axis=-1),
        }

    def positions(self, observations: np.ndarray) -> np.ndarray:
        return np.asarray(observations)

    @cached_property
    def rewards(self) -> Mapping[str, StateReward]:  # type: ignore[override]
        """Rewards of being somewhere, by name, with values from 0 to 1: the kind that successor features are made for.

        Unlike the potentials, which reward getting closer, they have an exact best return.
        """
        rows, columns = self.walls.shape
        centres = self.cell_corners + 0.5
        home, middle = (  # the free cell nearest to the top right corner, and to the middle
            centres[np.square(centres - xy).sum(axis=1).argmin()]
            for xy in (np.array([columns - 1.5, rows - 1.5]), self._centre)
        )
        first, last = maps.longest_corridor(self.walls)

        def region(s: np.ndarray, a: np.ndarray, s2: np.ndarray) -> np.ndarray:
            """Be near the top right corner."""
            return (np.linalg.norm(self.positions(s2) - home, axis=-1) <= REGION_RADIUS).astype(np.float64)

        def avoid(s: np.ndarray, a: np.ndarray, s2: np.ndarray) -> np.ndarray:
            """Be anywhere but in the middle: twice the radius, so that crossing the maze costs something."""
            return (np.linalg.norm(self.positions(s2) - middle, axis=-1) > 2 * REGION_RADIUS).astype(np.float64)

        def corridor(s: np.ndarray, a: np.ndarray, s2: np.ndarray) -> np.ndarray:
            """Be far along the longest straight corridor: nothing outside, one at its end."""
            at = self.positions(s2)
            along = (at - first) @ (last - first) / np.square(last - first).sum()
            off = np.abs(at - (first + np.clip(along, 0, 1)[..., None] * (last - first))).max(axis=-1)
            return np.where(off <= 0.5, np.clip(along, 0, 1), 0.0)

        return {"region": region, "avoid": avoid, "corridor": corridor}

    def best_return(self, name: str, observations: np.ndarray, steps: int) -> np.ndarray | None:
        """The most that can be earned under a reward from each observation; None for huge maps."""
        finite = self.finite()
        if finite is None:
            return None
        places = finite.observations.astype(np.float64)
        earned = self.rewards[name](places, np.zeros_like(places), places)
        value = np.zeros(len(places))
        for _ in range(steps):
            value = (earned + value)[finite.successors].max(axis=1)
        return value[self.nearest(observations)]

    @cached_property
    def max_steps(self) -> int:  # type: ignore[override]
        """The step limit, where none is given: four times the longest distance, rounded up to a multiple of 50."""
        finite = self.finite()
        longest = float(self.cell_steps.max() / STEP if finite is None else finite.steps.max())
        return 50 * math.ceil(4 * longest / 50)

    def step(self, xy: np.ndarray, action: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """Where the robots at xy [n, 2] are after one action [n, 2] each; float64. rng: of mazes of chance."""
        xy = np.asarray(xy, np.float64)
        move = STEP * np.clip(np.asarray(action, np.float64), -1, 1)
        moved = self._slide(xy, move, first=0)
        # Around a corner only one order is free. Taking it makes every motion reversible, so distances are symmetric
        # but for doors.
        stopped = np.flatnonzero((moved != xy + move).any(axis=1))
        other = self._slide(xy[stopped], move[stopped], first=1)
        start = xy[stopped]
        farther = np.abs(other - start).sum(axis=1) > np.abs(moved[stopped] - start).sum(axis=1) + TOUCH
        moved[stopped[farther]] = other[farther]
        return moved

    def _slide(self, xy: np.ndarray, move: np.ndarray, first: int) -> np.ndarray:
        position = [xy[:, 0], xy[:, 1]]
        for axis in (first, 1 - first):
            position[axis] = self._advance(position[axis], move[:, axis], position[1 - axis], axis)
        return np.stack(position, axis=1)

    def _advance(self, start: np.ndarray, move: np.ndarray, across: np.ndarray, axis: int) -> np.ndarray:
        """Move along one axis and stop at walls, and at doors from the wrong side."""
        strides = (self._height, 1) if axis == 0 else (1, self._height)  # to the next cell along and across the motion
        side = np.where(move < 0, -1.0, 1.0)
        end = start + move
        # STEP is less than a cell, so the robot can meet a wall only in the cells that its front ends in.
        front = np.floor(end + side * RADIUS)
        ahead = front.astype(np.intp) * strides[0]
        first, last = _span(across)
        # Clipped indices are faster, and keep a position off the map from being an error here.
        blocked = self._wall_at.take(ahead + first * strides[1], mode="clip")
        blocked |= self._wall_at.take(ahead + last * strides[1], mode="clip")
        # Never backwards: a start that rounding put into the wall stays, it is not thrown out on the other side.
        touching = np.where(side > 0, np.maximum(front - RADIUS, start), np.minimum(front + (1 + RADIUS), start))
        moved = np.where(blocked, touching, end)
        if not self.has_doors:
            return moved
        cell = np.floor(start)
        here = cell.astype(np.intp) * strides[0] + np.floor(across).astype(np.intp) * strides[1]
        forwards, backwards = (self._shut_at[2 * axis + back].take(here, mode="clip") for back in (0, 1))
        shut = np.where(side > 0, forwards, backwards) & (np.floor(moved) != cell)
        before = np.where(side > 0, np.maximum(cell + (1 - RADIUS), start), np.minimum(cell + RADIUS, start))
        return np.where(shut, before, moved)

    def valid(self, xy: np.ndarray) -> np.ndarray:
        """Whether a robot at each xy [n, 2] is on the map and in no wall (touching one is fine)."""
        x, y = np.asarray(xy, np.float64).T
        on_map = (x > 0) & (x < self.walls.shape[1]) & (y > 0) & (y < self._height)  # False for NaN, too
        x, y = np.where(on_map, x, 0), np.where(on_map, y, 0)
        slack = 2 * TOUCH  # what the physics allow may still be rounded to float32
        corners = [column * self._height + row for column in _span(x, slack) for row in _span(y, slack)]
        return on_map & ~np.any([self._wall_at.take(corner, mode="clip") for corner in corners], axis=0)

    @cached_property
    def _rooms(self) -> np.ndarray:
        """[k, 4] (x, y, width, height): disjoint rectangles that together are all the valid positions.

        Each free cell falls into 3 x 3 parts: its inside is always valid, a strip along a side if the cell beyond is
        free, a corner if the three cells around it are.
        """
        parts = ((0.0, RADIUS, -1), (RADIUS, 1 - 2 * RADIUS, 0), (1 - RADIUS, RADIUS, 1))  # offset, size, neighbour
        found = []
        for row, column in self.free_cells:
            for x, width, right in parts:
                for y, height, up in parts:
                    around = ((row, column + right), (row - up, column), (row - up, column + right))
                    if not any(self.walls[cell] for cell in around):
                        found.append((column + x, self._height - 1 - row + y, width, height))
        return np.array(found)

    def starts(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """n positions [n, 2] uniform over all valid ones."""
        area = self._rooms[:, 2] * self._rooms[:, 3]
        bounds = np.cumsum(area) / area.sum()
        room = self._rooms[np.searchsorted(bounds[:-1], rng.random(n), side="right")]
        return room[:, :2] + room[:, 2:] * rng.random((n, 2))

    def episodes(self, rng: np.random.Generator, n: int, start: Given = None, goal: Given = None) -> "MazeEpisodes":
        """n episodes, each from a random start to a random goal that is not reached yet; either can be given."""
        goals = self.starts(rng, n) if goal is None else np.tile(self.require_position(goal, "goal"), (n, 1))
        if start is not None:
            return self._run(np.tile(self.require_position(start, "start"), (n, 1)), goals, rng)
        xy = self.starts(rng, n)
        while (near := at_goal(xy, goals)).any():
            xy[near] = self.starts(rng, int(near.sum()))
        return self._run(xy, goals, rng)

    def _run(self, xy: np.ndarray, goals: np.ndarray, rng: np.random.Generator) -> "MazeEpisodes":
        return MazeEpisodes(self, xy, goals, rng)

    def goal_base(self, rng: np.random.Generator) -> np.ndarray:
        return np.full(2, np.nan)

    def require_position(self, xy: np.ndarray, name: str) -> np.ndarray:
        xy = np.asarray(xy, np.float64)
        if xy.shape != (2,) or not self.valid(xy[None])[0]:
            raise HilpError(
                f"the {name} {xy.tolist()!s:.60} is not a free position x,y of {self.name}: it is off the map or in a "
                "wall"
            )
        return xy

    def potential_max(self, name: str) -> float:
        """The largest value of a potential over all valid positions, exactly."""
        if name not in self.potentials:
            raise HilpError(f"unknown potential '{name}' of {self.name}: {nearest(name, self.potentials)}")
        low, high = self._rooms[:, :2], self._rooms[:, :2] + self._rooms[:, 2:]
        # All five are largest, in each rectangle, at a corner or at the point closest to the centre of the map.
        candidates = np.concatenate([low, high, np.clip(self._centre, low, high)])
        return float(self.potentials[name](candidates).max())

    @cached_property
    def target(self) -> np.ndarray:  # type: ignore[override]
        """The middle of a cell at one end of the longest way through the maze."""
        return (self.cell_corners[self.far_end] + 0.5).astype(np.float32)

    def target_episodes(self, rng: np.random.Generator, n: int) -> "MazeEpisodes":
        """n episodes to the target, from anywhere at least half of the longest way from it."""
        way = self.cell_steps[:, self.cell(self.target[None])[0]]
        xy = self.starts(rng, n)
        while (near := 2 * way[self.cell(xy)] < way.max()).any():
            xy[near] = self.starts(rng, int(near.sum()))
        return self._run(xy, np.tile(self.target.astype(np.float64), (n, 1)), rng)

    def cell(self, xy: np.ndarray) -> np.ndarray:
        """The row of free_cells that each valid position [n, 2] is in."""
        column, row = np.asarray(xy).T.astype(np.intp)
        return self.free_index[self._height - 1 - row, column]

    @cached_property
    def cell_corners(self) -> np.ndarray:
        """[cells, 2]: the lower left corner of each free cell, row after row of the map."""
        row, column = self.free_cells.T
        return np.stack([column, self._height - 1 - row], axis=1).astype(np.float64)

    # The exact finite maze

    @cached_property
    def _lattice(self) -> Any:
        """A tree of points [points, 2]: five by five in each free cell, cell after cell."""
        from scipy.spatial import cKDTree

        offsets = np.array([(x, y) for x in (1, 3, 5, 7, 9) for y in (1, 3, 5, 7, 9)])
        return cKDTree(((10 * self.cell_corners[:, None] + offsets) / 10).reshape(-1, 2))

    def nearest(self, xy: np.ndarray) -> np.ndarray:
        """The row of `finite()` nearest to each position [n, 2], also from inside walls."""
        return self._lattice.query(np.asarray(xy, np.float64))[1].astype(np.int32)

    @cached_property
    def _finite(self) -> Finite:
        lattice, n = np.array(self._lattice.data), self._lattice.n
        moved = self.step(np.repeat(lattice, len(MOTIONS), axis=0), np.tile(MOTIONS, (n, 1)))
        successors = self.nearest(moved).reshape(n, len(MOTIONS))
        return Finite(lattice.astype(np.float32), successors, maps.fewest_steps(successors))

    def finite(self) -> Finite | None:
        """The maze restricted to its lattice and to MOTIONS; None if the map is too large to hold all distances."""
        return self._finite if 25 * len(self.free_cells) <= FINITE_LIMIT else None

    def draw(self, ax: Axes) -> None:
        maps.draw_walls(self.walls, ax, corner=(0, 0), cell=1, origin="upper")
        maps.draw_doors(self.cells, ax)


class MazeEpisodes(BaseEpisodes):
    """n episodes. The physics keep float64; observations are float32."""

    def __init__(self, maze: Maze, xy: np.ndarray, goals: np.ndarray, rng: np.random.Generator | None = None) -> None:
        self._world, self.xy, self._goal_xy, self._rng = maze, xy, goals, rng
        self.goals = goals.astype(np.float32)
        self.observations = xy.astype(np.float32)

    def step(self, actions: np.ndarray) -> None:
        self.xy = self._world.step(self.xy, actions, self._rng)
        self.observations = self.xy.astype(np.float32)

    def reached(self) -> np.ndarray:
        return at_goal(self.xy, self._goal_xy)


def _span(middle: np.ndarray, slack: float = TOUCH) -> tuple[np.ndarray, np.ndarray]:
    """The first and last cell that the robot overlaps by more than slack along one axis."""
    reach = RADIUS - slack
    return np.floor(middle - reach).astype(np.intp), np.floor(middle + reach).astype(np.intp)


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

    def _run(self, xy: np.ndarray, goals: np.ndarray, rng: np.random.Generator) -> Any:
        return rendering.RenderedEpisodes(self, super()._run(xy, goals, rng))

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
