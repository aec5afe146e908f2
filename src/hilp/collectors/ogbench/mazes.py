"""Data of OGBench's mazes by its recipes: robots that follow the oracle's way from cell to cell, with noise.

| kind | where to | episodes |
|---|---|---|
| navigate | a random cell that is no corridor, then another | 1001 rows, in giant mazes 2001 |
| stitch | a cell four cells away, where it stays | 201 rows |
| explore | a random direction, a new one every ten steps | 501 rows |

The way is the environment's own (`get_oracle_subgoal`), from the middle of one cell to that of the next. A point's
action is the unit direction, an ant's that of our controller, which also leaves the middle of its last cell for the
goal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hilp.collectors import targets
from hilp.collectors.ant_controller import Controller
from hilp.collectors.collecting import Block, Episode, stacked
from hilp.errors import HilpError
from hilp.tasks import ogbench
from hilp.tasks.antmaze import AntEpisodes
from hilp.tasks.ogbench.mazes import OgbenchMaze, Points

NOISE = {"point": 0.5, "ant": 0.2}  # standard deviation of the Gaussian added to an action before it is clipped
EXPLORE_NOISE = 1.0
EXPLORE_STEPS = 10  # in one direction
START_NOISE = 1.0  # starts and goals are the middle of a cell and up to this much more or less along each axis
STITCH_CELLS = 4  # from start to goal
ORACLE_ORDER = ((-1, 0), (0, -1), (1, 0), (0, 1))  # (row, column): of equally short ways the oracle takes the first


@dataclass(frozen=True)
class Kind:
    """How long episodes are, and how many run side by side in one piece of work."""

    steps: int
    giant_steps: int
    point_block: int
    ant_block: int


KINDS = {
    "navigate": Kind(1000, 2000, point_block=50, ant_block=10),
    "stitch": Kind(200, 200, point_block=250, ant_block=25),
    "explore": Kind(500, 500, point_block=100, ant_block=20),
}


def require(world: OgbenchMaze) -> None:
    """Raise for a robot that nothing here can walk."""
    if world.about.body not in NOISE or world.env._teleport_info is not None:
        raise HilpError(
            f"there is no script for {world.name}: collect in a pointmaze or antmaze (medium, large or giant)"
        )


def episode_steps(world: OgbenchMaze, kind: str) -> int:
    return KINDS[kind].giant_steps if "giant" in world.about.registered else KINDS[kind].steps


def block(world: OgbenchMaze, kind: str) -> int:
    return KINDS[kind].point_block if world.about.body == "point" else KINDS[kind].ant_block


class Ways:
    """The oracle's ways between the free cells of a maze."""

    def __init__(self, world: OgbenchMaze) -> None:
        self.ground = world.ground
        self.cells = self.ground.free_cells
        self.centres = self.ground.centres(self.cells)
        self.steps = self.ground.cell_steps

    @cached_property
    def ahead(self) -> np.ndarray:
        """[goal cell, cell] -> the next cell on the oracle's way."""
        index = self.ground.free_index
        ahead = np.tile(np.arange(len(self.cells)), (len(self.cells), 1))
        for down, right in reversed(ORACLE_ORDER):
            beside = index[self.cells[:, 0] + down, self.cells[:, 1] + right]  # the border is all walls
            there = np.where(beside < 0, np.arange(len(beside)), beside)
            shorter = self.steps[:, there] < self.steps
            ahead = np.where(shorter, there, ahead)
        return ahead

    @cached_property
    def vertices(self) -> np.ndarray:
        """The free cells that are no corridor: not open on two opposite sides alone."""
        walls = self.ground.walls
        row, column = self.cells.T
        up, down = walls[row - 1, column], walls[row + 1, column]
        left, right = walls[row, column - 1], walls[row, column + 1]
        corridor = (up & down & ~left & ~right) | (left & right & ~up & ~down)
        return np.flatnonzero(~corridor)

    def four_away(self, cell: int) -> np.ndarray:
        """The cells that "stitch" goes to from one."""
        found = np.flatnonzero(self.steps[cell] == STITCH_CELLS)
        return found if len(found) else np.array([cell])


class Errands:
    """n robots on their errands: where each is to go, and when it is there."""

    def __init__(self, world: OgbenchMaze, ways: Ways, kind: str, rng: np.random.Generator, n: int) -> None:
        self._world, self._ways, self._kind, self._rng = world, ways, kind, rng
        self._cell = rng.integers(len(ways.cells), size=n)
        self.starts = self._around(self._cell)
        self._goal_cell = np.array([self._draw_goal(int(cell)) for cell in self._cell])
        self.goals = self._around(self._goal_cell)
        self.number = np.zeros(n, np.int32)  # of the errand, in its episode
        self.reached = np.zeros(n, bool)  # whether the robot is at the goal of its errand now

    def _around(self, cells: np.ndarray) -> np.ndarray:
        return self._ways.centres[cells] + self._rng.uniform(-START_NOISE, START_NOISE, (len(cells), 2))

    def _draw_goal(self, cell: int) -> int:
        others = self._ways.four_away(cell) if self._kind == "stitch" else self._ways.vertices
        return int(self._rng.choice(others))

    def directions(self, xy: np.ndarray) -> np.ndarray:
        """Unit directions [n, 2] to where the oracle would have each robot go next."""
        cell = self._ways.ground.free_cell(xy)
        self._cell = np.where(cell < 0, self._cell, cell)  # a leg that pushes off can lift an ant over a wall's edge
        to = self._ways.centres[self._ways.ahead[self._goal_cell, self._cell]]
        if self._world.about.body == "ant":  # whose goals are so small that many are not reached from the middle
            to = np.where((self._cell == self._goal_cell)[:, None], self.goals, to)
        way = to - xy
        return way / (np.linalg.norm(way, axis=1, keepdims=True) + 1e-6)

    def arrive(self, xy: np.ndarray) -> None:
        """After a step: see who is there."""
        self.reached = np.linalg.norm(xy - self.goals, axis=1) <= self._world.radius

    def go_on(self) -> None:
        """Before a step: those who navigate and are there get a new goal."""
        if self._kind != "navigate":
            return
        there = np.flatnonzero(self.reached)
        self._goal_cell[there] = self._rng.choice(self._ways.vertices, len(there))
        self.goals[there] = self._around(self._goal_cell[there])
        self.number[there] += 1


class Walkers(Points):
    """Points whose action is the direction."""

    def toward(self, directions: np.ndarray) -> np.ndarray:
        return directions


class Ants(AntEpisodes):
    """Ants that our own controller walks along a direction."""

    def __init__(self, world: OgbenchMaze, rng: np.random.Generator, xy: np.ndarray) -> None:
        self._controller = Controller.load()
        states = world.ground.resets(rng, xy)
        states[:, :2] = xy
        super().__init__(world.ground, states, np.full_like(xy, np.inf))  # none is ever at a goal

    @property
    def xy(self) -> np.ndarray:
        return self.states[:, :2]

    def toward(self, directions: np.ndarray) -> np.ndarray:
        return self._controller.act(self.states[:, 2:], directions)


class Simulation:
    """What a process needs to collect blocks of a kind of data: it makes a world of its own."""

    def __init__(self, task: str, kind: str, seed: int) -> None:
        world = ogbench.make(task)
        assert isinstance(world, OgbenchMaze)
        self._world, self._kind, self._seed = world, kind, seed
        self._ways = Ways(world)

    def __call__(self, episodes: Block) -> list[Episode]:
        first, lengths = episodes[0][0], [steps for _, steps in episodes]
        rng = np.random.default_rng([self._seed, first // block(self._world, self._kind)])
        errands = Errands(self._world, self._ways, self._kind, rng, len(lengths))
        if self._world.about.body == "point":
            bodies: Walkers | Ants = Walkers(self._world.env.model, self._world.walls, errands.starts)
        else:
            bodies = Ants(self._world, rng, errands.starts)
        rows, actions = [self._row(bodies, errands)], []
        for step in range(max(lengths)):
            if self._kind == "explore":
                if step % EXPLORE_STEPS == 0:
                    directions = rng.standard_normal((len(lengths), 2))
                    directions /= np.linalg.norm(directions, axis=1, keepdims=True) + 1e-6
                intended, width = bodies.toward(directions), EXPLORE_NOISE
            else:
                errands.go_on()
                intended, width = bodies.toward(errands.directions(bodies.xy)), NOISE[self._world.about.body]
            noisy = intended + width * rng.standard_normal(intended.shape)
            actions.append(noisy.clip(-1, 1).astype(np.float32))
            bodies.step(actions[-1])
            errands.arrive(bodies.xy)
            rows.append(self._row(bodies, errands))
        columns = stacked(rows, actions)  # [steps + 1, n, ...], actions one row less
        return [
            {name: column[: steps + (name != "actions"), i] for name, column in columns.items()}
            for i, steps in enumerate(lengths)
        ]

    def _row(self, bodies: Walkers | Ants, errands: Errands) -> dict[str, np.ndarray]:
        row = {"observations": bodies.observations}
        if self._kind != "explore":
            row |= {targets.NUMBER: errands.number.copy(), targets.REACHED: errands.reached.copy()}
        return row
