"""The built-in maze: a point robot between walls, in numpy, many side by side, with exact distances in steps.

World units are cells. x grows to the right and y upwards; row 0 of a map is its top. The robot is a square of
half-width RADIUS that moves up to STEP per axis and step, along one axis and then the other (in the order that gets
farther), and slides along the walls. One-way doors stop it as walls do where it comes from a
wrong side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from hilp.errors import HilpError, nearest
from hilp.tasks.base import Axes, BaseEpisodes, Finite, Given
from hilp.tasks.maze.maps import MAZES, Grid, at_goal, closed, draw_doors, draw_walls, fewest_steps

RADIUS = 0.1  # half the width of the robot
STEP = 0.4  # how far an action of 1 moves the robot along its axis
TOUCH = 1e-5  # an overlap up to this is touching: a position rounded to float32 must not stick to the wall beside it

# Every motion maps the lattice of points at offsets 0.1, 0.3, 0.5, 0.7, 0.9 in each free cell to itself: free motions
# are multiples of its spacing, and a wall stops the robot at offset 0.1 or 0.9.
MOTIONS = np.array([(x, y) for x in (-1, -0.5, 0, 0.5, 1) for y in (-1, -0.5, 0, 0.5, 1)])
REGION_RADIUS = 1.5  # cells: of a region that is rewarded, or avoided
FINITE_LIMIT = 10_000  # points (400 free cells) up to which the distances of all pairs are worth their memory, 200 MB

StateReward = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # of s, a, s'


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
        shut = closed(self.cells)[:, ::-1].transpose(0, 2, 1)  # [side, column, row from the bottom]
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
        first, last = longest_corridor(self.walls)

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

    # Physics

    def step(self, xy: np.ndarray, action: np.ndarray) -> np.ndarray:
        """Where the robots at xy [n, 2] are after one action [n, 2] each; float64."""
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

    # Places

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

    @cached_property
    def _room_bounds(self) -> np.ndarray:
        area = self._rooms[:, 2] * self._rooms[:, 3]
        return np.cumsum(area) / area.sum()

    def starts(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """n positions [n, 2] uniform over all valid ones."""
        room = self._rooms[np.searchsorted(self._room_bounds[:-1], rng.random(n), side="right")]
        return room[:, :2] + room[:, 2:] * rng.random((n, 2))

    def episodes(self, rng: np.random.Generator, n: int, start: Given = None, goal: Given = None) -> MazeEpisodes:
        """n episodes, each from a random start to a random goal that is not reached yet; either can be given."""
        goals = self.starts(rng, n) if goal is None else np.tile(self.require_position(goal, "goal"), (n, 1))
        if start is not None:
            return self._run(np.tile(self.require_position(start, "start"), (n, 1)), goals)
        xy = self.starts(rng, n)
        while (near := at_goal(xy, goals)).any():
            xy[near] = self.starts(rng, int(near.sum()))
        return self._run(xy, goals)

    def _run(self, xy: np.ndarray, goals: np.ndarray) -> MazeEpisodes:
        return MazeEpisodes(self, xy, goals)

    def goal_base(self, rng: np.random.Generator) -> np.ndarray:
        return np.full(2, np.nan)

    def require_position(self, xy: np.ndarray, name: str) -> np.ndarray:
        xy = np.asarray(xy, np.float64)
        if xy.shape != (2,) or not self.valid(xy[None])[0]:
            raise HilpError(
                f"the {name} {xy.tolist()} is not a free position x,y of {self.name}: it is off the map or in a wall"
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

    def target_episodes(self, rng: np.random.Generator, n: int) -> MazeEpisodes:
        """n episodes to the target, from anywhere at least half of the longest way from it."""
        way = self.cell_steps[:, self.cell(self.target[None])[0]]
        xy = self.starts(rng, n)
        while (near := 2 * way[self.cell(xy)] < way.max()).any():
            xy[near] = self.starts(rng, int(near.sum()))
        return self._run(xy, np.tile(self.target.astype(np.float64), (n, 1)))

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
        return Finite(lattice.astype(np.float32), successors, fewest_steps(successors))

    def finite(self) -> Finite | None:
        """The maze restricted to its lattice and to MOTIONS; None if the map is too large to hold all distances."""
        return self._finite if 25 * len(self.free_cells) <= FINITE_LIMIT else None

    def draw(self, ax: Axes) -> None:
        draw_walls(self.walls, ax, corner=(0, 0), cell=1, origin="upper")
        draw_doors(self.cells, ax)


class MazeEpisodes(BaseEpisodes):
    """n episodes. The physics keep float64; observations are float32."""

    def __init__(self, maze: Maze, xy: np.ndarray, goals: np.ndarray) -> None:
        self._world, self.xy, self._goal_xy = maze, xy, goals
        self.goals = goals.astype(np.float32)
        self.observations = xy.astype(np.float32)

    def step(self, actions: np.ndarray) -> None:
        self.xy = self._world.step(self.xy, actions)
        self.observations = self.xy.astype(np.float32)

    def reached(self) -> np.ndarray:
        return at_goal(self.xy, self._goal_xy)


def _span(middle: np.ndarray, slack: float = TOUCH) -> tuple[np.ndarray, np.ndarray]:
    """The first and last cell that the robot overlaps by more than slack along one axis."""
    reach = RADIUS - slack
    return np.floor(middle - reach).astype(np.intp), np.floor(middle + reach).astype(np.intp)


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
