"""OGBench's data without a download: seeded, in parallel, and safe to interrupt.

| kind | where to | episodes |
|---|---|---|
| navigate | a random cell that is no corridor, then another | 1001 rows, in giant mazes 2001 |
| stitch | a cell four cells away, where it stays | 201 rows |
| explore | a random direction, a new one every ten steps | 501 rows |
| play | an arm does one thing after the other, with no task in mind | 1001 rows |

Points and arms follow OGBench's published recipes. Its ant experts were never published: ants walk by our own
controller here, and their data cannot be compared with published numbers.

Robots in mazes follow the environment's own way (`get_oracle_subgoal`), from the middle of one cell to that of the
next, with noise. A point's action is the unit direction, an ant's that of our controller, which also leaves the middle
of its last cell for the goal. An arm follows the scripts that come with OGBench's package: plans with noise that is
correlated in time, and a new target whenever one is done.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hilp.collectors.antmaze import Controller
from hilp.collectors.collecting import Block, Episode, Request, apart, at_target, collect_blocks, recorded
from hilp.collectors.maze import routes
from hilp.data.dataset import Dataset
from hilp.errors import HilpError
from hilp.tasks import ogbench
from hilp.tasks.antmaze import AntEpisodes, AntMaze
from hilp.tasks.base import import_simulator
from hilp.tasks.ogbench import SCALES, Manipulation, OgbenchMaze, OgbenchTask, Points
from hilp.tasks.ogbench.task import EXTRA, VERSION, make_env, seeded

KINDS = {"navigate": 1000, "stitch": 200, "explore": 500, "play": 1000}  # kind -> steps of an episode
# Body -> kind -> episodes in one piece of work, which run side by side in mazes.
BLOCKS = {
    "point": {"navigate": 50, "stitch": 250, "explore": 100},
    "ant": {"navigate": 10, "stitch": 25, "explore": 20},
}
ARM_BLOCK = 2

# Of mazes
NOISE = {"point": 0.5, "ant": 0.2}  # standard deviation of the Gaussian added to an action before it is clipped
EXPLORE_NOISE = 1.0
EXPLORE_STEPS = 10  # in one direction
START_NOISE = 1.0  # starts and goals are the middle of a cell and up to this much more or less along each axis
STITCH_CELLS = 4  # from start to goal
TELEPORTED = 1.5  # radii of a teleport within which it takes a robot away

# Of the arm
PLAN = {"noise": 0.1, "noise_smoothing": 0.5}
SCRIPTS = {
    "cube": {"cube": "Cube"},
    "scene": {"cube": "Cube", "button": "Button", "drawer": "Drawer", "window": "Window"},
    "puzzle": {"button": "Button"},
}
# How often a cube's target lies on another cube, by their number: drawn for each episode between these two.
STACKED = {2: (0.0, 0.25), 3: (0.05, 0.35), 4: (0.1, 0.5), 8: (0.0, 0.35)}
# Where the scene's cube is no longer seen: beyond the table on one side; on the other, unless it is in the drawer.
FAR, DRAWER_SIDE, IN_DRAWER = 0.29, -0.3, (0.06, 0.08)
ATTEMPTS = 50  # at an episode in which the cube stays in view


def kinds(world: OgbenchTask) -> tuple[str, ...]:
    return tuple(kind for kind in KINDS if (kind == "play") != isinstance(world, OgbenchMaze))


def episode_steps(world: OgbenchTask, kind: str) -> int:
    return KINDS[kind] * (2 if kind == "navigate" and "giant" in world.about.registered else 1)


def collect(world: OgbenchTask, request: Request) -> Dataset:
    """Episodes as long as OGBench's, simulated by several processes."""
    block = ARM_BLOCK
    make: Callable[[], Any] = partial(ArmSimulation, world.name, request.seed)
    if isinstance(world, OgbenchMaze):
        teleports = world.env._teleport_info is not None
        if world.about.body not in NOISE or (teleports and world.about.body != "point"):
            raise HilpError(
                f"there is no script for {world.name}: take a pointmaze, or an antmaze (medium, large, giant)"
            )
        block = BLOCKS[world.about.body][request.kind]
        make = partial(MazeSimulation, world.name, request.kind, request.seed)
    name = f"{world.name.removesuffix(VERSION)}-{request.kind}"  # also a name of the task: presets know it by its kind
    length = episode_steps(world, request.kind)
    return collect_blocks(request, request.identity(world.name), make, length, block, name, name)


def vertices(ground: AntMaze) -> np.ndarray:
    """The free cells that are no corridor: not open on two opposite sides alone."""
    right, left, up, down = np.arange(len(ground.neighbours)) == ground.neighbours.T  # whether there is a wall
    corridor = (up & down & ~left & ~right) | (left & right & ~up & ~down)
    return np.flatnonzero(~corridor)


class Errands:
    """n robots on their errands: where each is to go, and when it is there."""

    def __init__(self, world: OgbenchMaze, ahead: np.ndarray, kind: str, rng: np.random.Generator, n: int) -> None:
        """ahead [goal cell, cell]: the next cell on the oracle's way."""
        self._world, self._ahead, self._kind, self._rng = world, ahead, kind, rng
        self._centres, self._vertices = world.ground.centres(world.ground.free_cells), vertices(world.ground)
        self._cell = rng.integers(len(ahead), size=n)
        self.starts = self._around(self._cell)
        self._goal_cell = np.array([self._draw_goal(int(cell)) for cell in self._cell])
        self.goals = self._around(self._goal_cell)
        self.number = np.zeros(n, np.int32)  # of the errand, in its episode
        self.reached = np.zeros(n, bool)  # whether the robot is at the goal of its errand now
        self._steps = 0

    def _around(self, cells: np.ndarray) -> np.ndarray:
        return self._centres[cells] + self._rng.uniform(-START_NOISE, START_NOISE, (len(cells), 2))

    def _draw_goal(self, cell: int) -> int:
        cells = self._vertices
        if self._kind == "stitch":
            cells = np.flatnonzero(self._world.ground.cell_steps[cell] == STITCH_CELLS)
        return int(self._rng.choice(cells)) if len(cells) else cell

    def directions(self, xy: np.ndarray) -> np.ndarray:
        """Unit directions [n, 2]: random ones, or to where the oracle would have each robot go next."""
        if self._kind == "explore":
            if self._steps % EXPLORE_STEPS == 0:
                drawn = self._rng.standard_normal((len(xy), 2))
                self._headings = drawn / (np.linalg.norm(drawn, axis=1, keepdims=True) + 1e-6)
            self._steps += 1
            return self._headings
        if self._kind == "navigate":  # those who are there get a new goal
            there = np.flatnonzero(self.reached)
            self._goal_cell[there] = self._rng.choice(self._vertices, len(there))
            self.goals[there] = self._around(self._goal_cell[there])
            self.number[there] += 1
        cell = self._world.ground.free_cell(xy)
        self._cell = np.where(cell < 0, self._cell, cell)  # a leg that pushes off can lift an ant over a wall's edge
        to = self._centres[self._ahead[self._goal_cell, self._cell]]
        if self._world.about.body == "ant":  # whose goals are so small that many are not reached from the middle
            to = np.where((self._cell == self._goal_cell)[:, None], self.goals, to)
        way = to - xy
        return way / (np.linalg.norm(way, axis=1, keepdims=True) + 1e-6)


class MazeSimulation:
    """What a process needs to collect blocks of a kind of data: it makes a world of its own."""

    def __init__(self, task: str, kind: str, seed: int) -> None:
        world = ogbench.make(task)
        assert isinstance(world, OgbenchMaze)
        self._world, self._kind, self._seed = world, kind, seed
        self._ahead, self._controller = routes(world.ground), Controller.load()

    def __call__(self, episodes: Block) -> list[Episode]:
        first, lengths = episodes[0][0], [steps for _, steps in episodes]
        rng = np.random.default_rng([self._seed, first // BLOCKS[self._world.about.body][self._kind]])
        errands = Errands(self._world, self._ahead, self._kind, rng, len(lengths))
        width = EXPLORE_NOISE if self._kind == "explore" else NOISE[self._world.about.body]
        if self._world.about.body == "point":
            bodies: Points | AntEpisodes = Points(self._world.env.model, self._world.walls, errands.starts)
        else:
            states = self._world.ground.resets(rng, errands.starts)
            states[:, :2] = errands.starts
            bodies = AntEpisodes(self._world.ground, states, np.full_like(errands.starts, np.inf))  # never at a goal

        def row() -> Episode:
            told = {} if self._kind == "explore" else at_target(errands.number, errands.reached)
            return {"observations": bodies.observations, **told}

        def step() -> np.ndarray:
            intended = errands.directions(bodies.states[:, :2])
            if isinstance(bodies, AntEpisodes):
                intended = self._controller.act(bodies.states[:, 2:], intended)
            noisy = intended + width * rng.standard_normal(intended.shape)
            actions: np.ndarray = noisy.clip(-1, 1).astype(np.float32)
            bodies.step(actions)
            if isinstance(bodies, Points):
                teleport(self._world, bodies, rng)
            errands.reached = np.linalg.norm(bodies.states[:, :2] - errands.goals, axis=1) <= self._world.radius
            return actions

        return apart(recorded(row, step, max(lengths)), lengths)


def teleport(world: OgbenchMaze, points: Points, rng: np.random.Generator) -> None:
    """Put points that are in a teleport of the maze, if it has any, to one of its exits."""
    told = world.env._teleport_info
    for entrance in () if told is None else told["teleport_in_xys"]:
        inside = np.linalg.norm(points.states - entrance, axis=1) <= TELEPORTED * told["teleport_radius"]
        exits = np.array(told["teleport_out_xys"])
        points.states[inside] = exits[rng.integers(len(exits), size=int(inside.sum()))]


class ArmSimulation:
    """What a process needs to collect: it makes a world of its own."""

    def __init__(self, task: str, seed: int) -> None:
        world = ogbench.make(task)
        assert isinstance(world, Manipulation)
        self._world, self._seed = world, seed
        self._env = make_env(world.about.registered, mode="data_collection", visualize_info=False)
        self._env.reset(seed=0)  # compiles it, which the scripts ask for
        self._scripts = {}
        for kind, name in SCRIPTS[world.about.body].items():
            module = import_simulator(EXTRA, f"ogbench.manipspace.oracles.plan.{name.lower()}_plan")
            more = {"gripper_always_closed": True} if world.about.body == "puzzle" else {}
            self._scripts[kind] = getattr(module, f"{name}PlanOracle")(env=self._env, **PLAN, **more)

    def __call__(self, block: Block) -> list[Episode]:
        return [self._episode(number, steps) for number, steps in block]

    def _episode(self, number: int, steps: int) -> Episode:
        """An episode depends on the seed and its number only; scripts draw from numpy's global generator."""
        for attempt in range(ATTEMPTS):
            seed = int(np.random.SeedSequence([self._seed, number, attempt]).generate_state(1)[0])
            with seeded(seed, self._env.action_space):
                self._seen, self._number = self._env.reset(seed=seed), 0
                self._chances = self._of_targets(seed)
                self._take_up()
                found = recorded(self._row, self._step, steps)
            if self._world.about.body != "scene" or stays_in_view(self._world, found["observations"]):
                return found
        raise HilpError(f"no episode of {self._world.name} keeps its cube in view: choose another seed")

    def _of_targets(self, seed: int) -> dict[str, float]:
        """What the targets of an episode are drawn with, apart from the environment's own values."""
        stacked = STACKED.get(self._world.cubes) if self._world.about.body == "cube" else None
        return {"p_stack": np.random.default_rng(seed).uniform(*stacked)} if stacked else {}

    def _take_up(self) -> None:
        """Begin the script of the target that there is now."""
        self._script = self._scripts[self._seen[1]["privileged/target_task"]]
        self._script.reset(*self._seen)

    def _step(self) -> np.ndarray:
        if self._script.done:
            self._seen, self._number = self._env.set_new_target(**self._chances), self._number + 1
            self._take_up()
        action: np.ndarray = np.clip(self._script.select_action(*self._seen), -1, 1).astype(np.float32)
        observation, _, _, _, info = self._env.step(action.astype(np.float64))
        self._seen = observation, info
        return action

    def _row(self) -> Episode:
        """What OGBench's files hold of a state, and how far the script is."""
        observation, info = self._seen
        row = {name: info[name].astype(np.float32) for name in ("qpos", "qvel")}
        if "button_states" in info:
            row["button_states"] = info["button_states"].astype(np.int64)
        return {"observations": observation.astype(np.float32), **row, **at_target(self._number, self._env._success)}


def stays_in_view(world: Manipulation, observations: np.ndarray) -> bool:
    """Whether the scene's cube is always where a camera sees it."""
    y, z = (observations[:, world.columns[f"block_0_{axis}"]] / SCALES["position"] for axis in "yz")
    out_of_drawer = (z < IN_DRAWER[0]) | (z > IN_DRAWER[1])
    return not ((y >= FAR) | ((y <= DRAWER_SIDE) & out_of_drawer)).any()
