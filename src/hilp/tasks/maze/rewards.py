"""Rewards of being somewhere in a maze, for any map: functions of the state s' alone, with values from 0 to 1.

Unlike the maze's potentials, which reward getting closer, these say where to be: the kind of reward that successor
features are made for. What the best possible policy earns is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hilp.tasks.base import Finite
from hilp.tasks.maze.maps import cell_corners

REGION_RADIUS = 1.5  # cells

StateReward = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # of s, a, s'


def rewards(walls: np.ndarray) -> Mapping[str, StateReward]:
    """The rewards of a map by name."""
    rows, columns = walls.shape
    home = _free_centre_nearest(walls, np.array([columns - 1.5, rows - 1.5]))  # the top right corner
    middle = _free_centre_nearest(walls, np.array([columns / 2, rows / 2]))
    first, last = longest_corridor(walls)

    def region(s: np.ndarray, a: np.ndarray, s2: np.ndarray) -> np.ndarray:
        """Be near the top right corner."""
        return (np.linalg.norm(s2 - home, axis=-1) <= REGION_RADIUS).astype(np.float64)

    def avoid(s: np.ndarray, a: np.ndarray, s2: np.ndarray) -> np.ndarray:
        """Be anywhere but in the middle: twice the radius, so that crossing the maze costs something."""
        return (np.linalg.norm(s2 - middle, axis=-1) > 2 * REGION_RADIUS).astype(np.float64)

    def corridor(s: np.ndarray, a: np.ndarray, s2: np.ndarray) -> np.ndarray:
        """Be far along the longest straight corridor: nothing outside, one at its end."""
        along = (s2 - first) @ (last - first) / np.square(last - first).sum()
        off = np.abs(s2 - (first + np.clip(along, 0, 1)[..., None] * (last - first))).max(axis=-1)
        return np.where(off <= 0.5, np.clip(along, 0, 1), 0.0)

    return {"region": region, "avoid": avoid, "corridor": corridor}


def best_return(finite: Finite, reward: StateReward, starts: np.ndarray, steps: int) -> np.ndarray:
    """What the best policy earns in `steps` from each of these rows of the finite maze, exactly."""
    places = finite.observations.astype(np.float64)
    earned = reward(places, np.zeros_like(places), places)
    value = np.zeros(len(places))
    for _ in range(steps):
        value = (earned + value)[finite.successors].max(axis=1)
    return value[starts]


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


def _free_centre_nearest(walls: np.ndarray, xy: np.ndarray) -> np.ndarray:
    centres = cell_corners(walls) + 0.5
    return centres[np.square(centres - xy).sum(axis=1).argmin()]
