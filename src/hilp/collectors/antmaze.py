"""Data of ants that walk by our controller, with noise on their actions.

In mazes by D4RL's recipe, from cell to cell along shortest paths. Each episode starts in a random free cell. The ant
follows the breadth-first path of cells to a random goal, with a random waypoint in each cell, and takes a new goal when
it arrives. For about a fifth of the time it strays: our controller is so good that it would hardly ever touch a wall,
and policies are helpless where data never was.

On open ground under random headings and speeds, as the log of a robot that works. A heading and a speed (none, half or
full) are held for one to three seconds. The controller only knows full speed: its actions times a share give about that
share of the speed, and no action at all is to stand. There is little noise, so the log is narrow: it shows a good gait
and hardly anything else.

The controller is a small network, with inference in plain numpy. It keeps facing +x whatever the direction: a walker
whose heading wanders would show every place and every gait in all headings, far more to learn from its data. The world
and the ant together look the same after a quarter turn, if the legs are renumbered. So the network sees directions
within 45 degrees of +x only: 27 numbers of the body and two of the direction. The weights beside this file were trained
by `tools/train_ant_controller.py`, which also measures them.
"""

import hashlib
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np

from hilp.collectors.collecting import Block, Episode, Request, Simulate, apart, collect_blocks, measure, recorded
from hilp.collectors.maze import routes
from hilp.data.dataset import Dataset
from hilp.errors import HilpError
from hilp.storage import read_arrays
from hilp.tasks import antmaze
from hilp.tasks.antmaze import SPEED, AntMaze, AntOpen, OpenEpisodes
from hilp.tasks.maze import at_goal

# The controller
INPUT_DIM, ACTION_DIM = 29, 8
WEIGHTS = Path(__file__).with_name("ant_controller.safetensors")
LAYERS = 3
# Legs 1 to 4 stand at 45, 135, 225 and 315 degrees. In observations each is (hip, ankle); the actuators begin with
# leg 4. The ankles of legs 2 and 3 turn the other way round.
ANKLE_SIGNS = np.array([1.0, -1.0, -1.0, 1.0])
FIRST_ACTUATOR = 3

# In mazes
EPISODE_STEPS = 1000  # 1001 rows
ACTION_NOISE = 0.2  # standard deviation of the Gaussian added to each action before it is clipped to [-1, 1]
STRAY_CHANCE = 0.01  # a step, of walking in a random direction for STRAY_STEPS
STRAY_STEPS = (10, 40)  # the last excluded
JITTER = 1.0  # starts, waypoints and goals are the centre of a cell and up to this much more along each axis
PLAY_SHARE = 7 / 46  # of the free cells that are goals of "play", as in the large map
BLOCK = 5  # episodes in one piece of work, and in one file on the way

# On open ground
SHARES = (0.0, 0.5, 1.0)  # of the full speed
COMMAND_STEPS = (10, 31)  # that a heading and a speed are held, the last excluded
OPEN_NOISE = 0.1  # in place of ACTION_NOISE
OPEN_BLOCK = 10
ASKED = "asked"  # extra column [2]: the velocity that the ant is asked for in this row, in m/s


def quarter_turns(direction: np.ndarray) -> np.ndarray:
    """How many quarter turns [n] back bring directions [n, 2] within 45 degrees of +x."""
    angle = np.arctan2(direction[:, 1], direction[:, 0])
    return np.asarray(np.rint(angle / (np.pi / 2)).astype(np.intp) % 4)


def canonical(proprioception: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """The network's inputs [n, 29]: the body's 27 numbers (an observation without xy) and the direction, turned back.

    World and legs turn by the same quarter turns, so that the heading stays what it was.
    """
    turns = quarter_turns(direction)
    out = np.concatenate([proprioception, direction], axis=1, dtype=np.float64)
    out[:, 1:5] *= np.where(out[:, 1:2] < 0, -1, 1)  # q and -q are the same rotation
    cos, sin = np.array([1, 0, -1, 0])[turns], np.array([0, 1, 0, -1])[turns]
    # The axis of a tilt, the velocity, the spin, the direction.
    for at in ((2, 3), (13, 14), (16, 17), (27, 28)):
        x, y = out[:, at].T
        out[:, at] = np.stack([cos * x + sin * y, cos * y - sin * x], axis=1)
    for joints in (slice(5, 13), slice(19, 27)):
        legs = out[:, joints].reshape(-1, 4, 2)
        legs[..., 1] *= ANKLE_SIGNS
        out[:, joints] = _renumber_legs(legs, turns)
    return out


def actual(action: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """The actuators' signals [n, 8] of a network's action (the leg at 45 degrees first, all ankles alike)."""
    legs = _renumber_legs(action.reshape(-1, 4, 2), -quarter_turns(direction)).reshape(-1, 4, 2)
    legs[..., 1] *= ANKLE_SIGNS
    return np.roll(legs, -FIRST_ACTUATOR, axis=1).reshape(-1, 8)


def _renumber_legs(legs: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Legs [n, 4, 2] numbered as after so many quarter turns back, as joints [n, 8]."""
    return legs[np.arange(len(legs))[:, None], (np.arange(4) + turns[:, None]) % 4].reshape(-1, 8)


class Controller:
    """Proprioception and unit directions in, actions out."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.layers = [(arrays[f"weight{layer}"], arrays[f"bias{layer}"]) for layer in range(LAYERS)]

    @classmethod
    def load(cls, path: Path = WEIGHTS) -> Self:
        arrays, _ = read_arrays(path)
        if set(arrays) != {f"{kind}{layer}" for kind in ("weight", "bias") for layer in range(LAYERS)}:
            raise HilpError(f"{path} holds no ant controller: train one with tools/train_ant_controller.py")
        inputs = len(arrays["weight0"])
        if inputs != INPUT_DIM:
            raise HilpError(f"{path} takes {inputs} inputs, not {INPUT_DIM}: train another controller")
        return cls(arrays)

    def head(self, x: np.ndarray) -> np.ndarray:
        """The network's raw output: the mean before tanh, then the log standard deviation."""
        x = x.astype(np.float32)
        for weight, bias in self.layers[:-1]:
            x = np.maximum(x @ weight + bias, 0)
        weight, bias = self.layers[-1]
        return np.asarray(x @ weight + bias)

    def act(self, proprioception: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Actions [n, 8] in [-1, 1] that walk ants with these 27 numbers [n, 27] along unit directions [n, 2]."""
        mean = self.head(canonical(proprioception, direction))[:, :ACTION_DIM]
        return actual(np.tanh(mean), direction)


class Walk:
    """One ant on its way to goals drawn from some cells; `arrivals` are the steps at which it reached one."""

    def __init__(
        self,
        world: AntMaze,
        controller: Controller,
        rng: np.random.Generator,
        goal_cells: np.ndarray | None = None,
        strays: bool = True,
    ) -> None:
        self.world, self.controller, self.rng = world, controller, rng
        self._strays, self._stray_until, self._stray_direction = strays, 0, np.zeros(2)
        cells = len(world.free_cells)
        self._goal_cells = np.arange(cells) if goal_cells is None else goal_cells
        self._routes = routes(world, rng)
        self.cell = int(rng.integers(cells))
        self._take_goal()
        start = world.resets(rng, np.zeros((1, 2)))[0]
        start[:2] = self._within(self.cell)
        self.episodes = world.episodes(rng, 1, start=start, goal=self.goal)
        self.arrivals: list[int] = []
        self.steps = 0

    def _within(self, cell: int) -> np.ndarray:
        centre = self.world.centres(self.world.free_cells[cell])
        return np.asarray(centre + self.rng.uniform(0, JITTER, 2))

    def _take_goal(self) -> None:
        others = self._goal_cells[self._goal_cells != self.cell]
        self._goal_cell = int(self.rng.choice(others))
        self.goal = self._within(self._goal_cell)
        self._waypoint_cell = -1

    def step(self) -> np.ndarray:
        """Go on for one step; returns the action."""
        state = self.episodes.states[0]
        cell = int(self.world.free_cell(state[:2]))
        if cell >= 0:  # a leg that pushes off can lift the body over the edge of a wall for a moment
            self.cell = cell
        ahead = int(self._routes[self._goal_cell, self.cell])
        if ahead != self._waypoint_cell:
            self._waypoint_cell = ahead
            self._waypoint = self.goal if ahead == self._goal_cell else self._within(ahead)
        way = self._waypoint - state[:2]
        direction = way / max(float(np.linalg.norm(way)), 1e-6)
        if self._strays and self.rng.random() < STRAY_CHANCE:
            self._stray_until = self.steps + int(self.rng.integers(*STRAY_STEPS))
            angle = self.rng.uniform(0, 2 * np.pi)
            self._stray_direction = np.array([np.cos(angle), np.sin(angle)])
        if self.steps < self._stray_until:
            direction = self._stray_direction
        action = self.controller.act(state[None, 2:], direction[None])[0]
        action = (action + ACTION_NOISE * self.rng.standard_normal(action.shape)).clip(-1, 1).astype(np.float32)
        self.episodes.step(action[None])
        self.steps += 1
        if at_goal(self.episodes.states[0, :2], self.goal):
            self.arrivals.append(self.steps)
            self._take_goal()
        return action


def kinds(world: AntMaze | AntOpen) -> tuple[str, ...]:
    return ("wander",) if isinstance(world, AntOpen) else ("diverse", "play")


def collect(world: AntMaze | AntOpen, request: Request) -> Dataset:
    """Episodes of 1001 rows, simulated by several processes."""
    weights = hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()  # data by another controller is other data
    identity, measured = request.identity(world.task, controller=weights), partial(measure, world)
    if isinstance(world, AntOpen):
        make, name = partial(_open_simulation, request.seed), f"{world.name}-{request.kind}"
        return collect_blocks(request, identity, make, EPISODE_STEPS, OPEN_BLOCK, name, world.task, measure=measured)
    name = f"{world.name.removesuffix('-diverse').removesuffix('-play')}-{request.kind}"
    task = name if name in antmaze.NAMES else world.task
    make = partial(_simulation, world.task, request.kind, request.seed)
    return collect_blocks(request, identity, make, EPISODE_STEPS, BLOCK, name, task, measure=measured)


def _simulation(task: str, kind: str, seed: int) -> Simulate:
    """What a process needs to collect: it makes a world of its own."""
    world: AntMaze = antmaze.make(task)
    controller = Controller.load()
    goal_cells = play_cells(world) if kind == "play" else None

    def episode(number: int, steps: int) -> Episode:
        walk = Walk(world, controller, np.random.default_rng([seed, number]), goal_cells)
        return recorded(lambda: {"observations": walk.episodes.observations[0]}, walk.step, steps)

    return lambda block: [episode(number, steps) for number, steps in block]


def play_cells(world: AntMaze) -> np.ndarray:
    """The free cells that "play" walks to: those of D4RL, in other maps a fixed choice of as large a share."""
    free = world.free_cells
    if world.play_goals:
        return np.array([int(np.flatnonzero((free == cell).all(axis=1))[0]) for cell in world.play_goals])
    count = max(2, round(PLAY_SHARE * len(free)))
    return np.sort(np.random.default_rng(0).permutation(len(free))[:count])


def walk(controller: Controller, states: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Actions [n, 8] that walk ants in states [n, 29] with these velocities [n, 2], in m/s."""
    speed = np.linalg.norm(asked, axis=1, keepdims=True)
    return controller.act(states[:, 2:], asked / np.maximum(speed, 1e-6)) * (speed / SPEED).clip(0, 1)


def wander(
    world: AntOpen, controller: Controller, generators: list[np.random.Generator], steps: int
) -> tuple[Episode, np.ndarray]:
    """Ants side by side from the origin, each with commands, a start and noise by a generator of its own.

    Returns columns [steps, ants, ...] and which ants fell.
    """
    starts = np.stack([world.episodes(rng, 1).states[0] for rng in generators])
    running = OpenEpisodes(world, starts, np.full((len(starts), 2), np.nan))
    left, asked = np.zeros(len(starts), int), np.zeros((len(starts), 2))

    def row() -> Episode:
        """Where the time of a command is over, another heading and speed are drawn first."""
        for ant in np.flatnonzero(left == 0):
            rng = generators[ant]
            angle, speed = rng.uniform(0, 2 * np.pi), SPEED * rng.choice(SHARES)
            asked[ant] = speed * np.cos(angle), speed * np.sin(angle)
            left[ant] = rng.integers(*COMMAND_STEPS)
        return {"observations": running.observations.copy(), ASKED: asked.astype(np.float32)}

    def step() -> np.ndarray:
        actions = walk(controller, running.states, asked)
        noise = np.stack([rng.standard_normal(actions.shape[1]) for rng in generators])
        actions = (actions + OPEN_NOISE * noise).clip(-1, 1).astype(np.float32)
        running.step(actions)
        left[:] -= 1
        return actions

    return recorded(row, step, steps), running.fallen


def _open_simulation(seed: int) -> Simulate:
    """What a process needs to collect: it makes a world of its own."""
    world, controller = AntOpen(), Controller.load()

    def simulate(block: Block) -> list[Episode]:
        """Episodes without a fall: one in which the ant falls is begun anew, with other commands.

        Episodes of a block share the controller's products, whose last bits depend on how many they are.
        """
        found: dict[int, Episode] = {}
        left, attempt = dict(block), 0
        while left:
            generators = [np.random.default_rng([seed, number, attempt]) for number in left]
            columns, fallen = wander(world, controller, generators, max(left.values()))
            episodes = zip(left, apart(columns, left.values()), fallen, strict=True)
            found |= {number: episode for number, episode, fell in episodes if not fell}
            left, attempt = {number: steps for number, steps in block if number not in found}, attempt + 1
        return [found[number] for number, _ in block]

    return simulate
