"""Mazes of chance: teleports that lead to a random exit, and a floor on which steps slip; expected steps are exact.

A robot whose centre ends a step in a teleport's cell ('@') is at once in the middle of one of the exits ('o'), each as
likely. With the chance `slip` a step goes by one of MOTIONS at random, whatever was meant. Without a generator `step`
goes as meant, through teleports as if there were none.
"""

import textwrap
from functools import cached_property
from typing import Any

import numpy as np

from hilp.errors import HilpError
from hilp.tasks.base import Axes, Finite
from hilp.tasks.maze import MOTIONS, Maze
from hilp.tasks.maze.maps import COLOUR, at_goal

TELEPORT, EXIT = "@", "o"
SLIP = 0.25
CLOSE = 1e-3  # steps by which the last sweep of value iteration changes what it found, at most
SWEEPS = 10_000

_LARGE = """
    ############
    #....#.....#
    #.##.#.#.#.#
    #......#...#
    #.####.###.#
    #..#.#.....#
    ##.#.#.#.###
    #..#...#...#
    ############
    """
# Both teleports lie on shortest ways, with a way around them; the exits are far corners.
_TELEPORTS = """
    ############
    #....#....o#
    #.##.#.#.#.#
    #..@...#...#
    #.####@###.#
    #..#.#.....#
    ##.#.#.#.###
    #o.#...#..o#
    ############
    """
# The map, the chance to slip, and the step limit: four times the longest expected way, up to a multiple of 50.
MAZES: dict[str, tuple[str, float, int]] = {
    "maze-large-slip": (_LARGE, SLIP, 200),
    "maze-large-teleport": (_TELEPORTS, 0.0, 200),
}


def names() -> list[str]:
    return sorted(MAZES)


def make(name: str) -> "ChanceMaze":
    return ChanceMaze(name, *MAZES[name])


class ChanceMaze(Maze):
    """A maze whose steps are drawn by the generator of their episodes."""

    def __init__(self, name: str, map_text: str, slip: float = 0.0, max_steps: int | None = None) -> None:
        drawn = textwrap.dedent(map_text).strip("\n")
        super().__init__(name, drawn.replace(TELEPORT, ".").replace(EXIT, "."), max_steps)
        self.map_text = drawn
        marks = np.array([list(line) for line in drawn.splitlines()])[tuple(self.free_cells.T)]
        self.slip, self.teleports = slip, marks == TELEPORT  # of the free cells
        self.task = name
        self.exits = self.cell_corners[marks == EXIT] + 0.5  # [k, 2]
        if self.teleports.any() and not len(self.exits):
            raise HilpError(f"the map of {name} has teleports ('{TELEPORT}') and no exit: mark one with '{EXIT}'")

    def step(self, xy: np.ndarray, action: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        if rng is None:
            return super().step(xy, action)
        action = np.asarray(action, np.float64)
        if self.slip:
            slips = rng.random(len(action)) < self.slip
            action = np.where(slips[:, None], MOTIONS[rng.integers(len(MOTIONS), size=len(action))], action)
        moved = super().step(xy, action)
        if self.teleports.any():
            inside = np.flatnonzero(self.teleports[self.cell(moved)])
            moved[inside] = self.exits[rng.integers(len(self.exits), size=len(inside))]
        return moved

    @cached_property
    def _rooms(self) -> np.ndarray:
        """Without those of teleports, where nobody stays."""
        rooms = super()._rooms
        return rooms[~self.teleports[self.cell(rooms[:, :2] + rooms[:, 2:] / 2)]]

    def require_position(self, xy: np.ndarray, name: str) -> np.ndarray:
        xy = super().require_position(xy, name)
        if self.teleports[self.cell(xy[None])[0]]:
            raise HilpError(f"the {name} {xy.tolist()} lies in a teleport of {self.name}, where nobody stays")
        return xy

    # The exact finite maze

    @cached_property
    def _lattice(self) -> Any:
        from scipy.spatial import cKDTree

        points = super()._lattice.data
        return cKDTree(points[~self.teleports[self.cell(points)]])

    @cached_property
    def _landings(self) -> np.ndarray:
        """[points, motions]: the row that each motion leads to as meant; one behind the last for a teleport."""
        points, n = np.array(self._lattice.data), self._lattice.n
        moved = self.step(np.repeat(points, len(MOTIONS), axis=0), np.tile(MOTIONS, (n, 1)))
        landings = np.where(self.teleports[self.cell(moved)], n, self.nearest(moved))
        return landings.reshape(n, len(MOTIONS))

    def outcomes(self, values: np.ndarray, least: bool = True) -> np.ndarray:
        """What the best motion from each point is expected to lead to, by values [points, ...] of the points."""
        behind = values[self.nearest(self.exits)].mean(axis=0, keepdims=True) if len(self.exits) else values[:1]
        known, better = np.concatenate([values, behind]), np.minimum if least else np.maximum
        best, mean = known[self._landings[:, 0]], 0.0
        for motion in self._landings.T:
            led = known[motion]
            best = better(best, led)
            mean = mean + led / len(MOTIONS) if self.slip else 0.0
        return (1.0 - self.slip) * best + self.slip * mean if self.slip else best

    def expected_steps(self, goals: np.ndarray) -> np.ndarray:
        """[points, goals]: the fewest steps that are expected to a goal, each a set of points: goals [points, goals].

        By value iteration from below: what the best way takes on average, where chance decides where it leads.
        """
        steps = np.zeros(goals.shape, np.float32)
        for _ in range(SWEEPS):
            before, steps = steps, np.where(goals, np.float32(0), 1 + self.outcomes(steps)).astype(np.float32)
            if np.max(steps - before, initial=0.0) < CLOSE:
                return steps
        raise HilpError(f"{self.name} has points from which chance never leads to a goal")

    def expected(self, xy: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """The fewest steps that are expected from positions [n, 2] until their goals [n, 2] count as reached."""
        points = np.array(self._lattice.data)
        found = self.expected_steps(at_goal(points[:, None], np.asarray(goals, np.float64)[None]))
        return found[self.nearest(xy), np.arange(len(goals))]

    @cached_property
    def _finite(self) -> Finite:
        """`steps` are expected ones; a motion into a teleport is one to its first exit."""
        n = self._lattice.n
        successors = np.append(np.arange(n, dtype=np.int32), self.nearest(self.exits)[:1])[self._landings]
        return Finite(np.array(self._lattice.data, np.float32), successors, self.expected_steps(np.eye(n, dtype=bool)))

    def best_return(self, name: str, observations: np.ndarray, steps: int) -> np.ndarray | None:
        places = np.array(self._lattice.data)
        earned = self.rewards[name](places, np.zeros_like(places), places)
        value = np.zeros(len(places))
        for _ in range(steps):
            value = self.outcomes(earned + value, least=False)
        return value[self.nearest(observations)]

    def draw(self, ax: Axes) -> None:
        super().draw(ax)
        for corner in self.cell_corners[self.teleports]:
            ax.add_patch(_disc(corner + 0.5, fill=True))
        for middle in self.exits:
            ax.add_patch(_disc(middle, fill=False))


def _disc(middle: np.ndarray, fill: bool) -> Any:
    from matplotlib.patches import Circle

    return Circle((middle[0], middle[1]), 0.3, fill=fill, color=COLOUR, zorder=0.5)
