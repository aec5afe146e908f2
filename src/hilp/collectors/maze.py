"""Scripted data for the built-in maze: many robots side by side, each step one pass of numpy over all of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hilp.collectors.collecting import Request
from hilp.data.dataset import Dataset
from hilp.tasks import rendering
from hilp.tasks.maze import RADIUS, STEP, Grid, Maze

IN_MEMORY = True

SIDE_BY_SIDE = 1024  # episodes that run at once: enough to hide numpy's overhead, few enough to stay in the cache
ARRIVED = 0.25  # from its goal a follower takes a new one: less than the success radius, or corners are hardly visited
TURN = 0.05  # chance per step that a wanderer turns without a wall in its way
ORACLE_ORDER = (2, 1, 3, 0)  # up, left, down, right: which neighbour OGBench's oracle prefers
BLOCKED = 0.25  # a wanderer that got less than this part of a step forward turns


class Followers:
    """Robots on their way to random goals, along the shortest path of cells with a random waypoint in each."""

    def __init__(self, maze: Maze, rng: np.random.Generator) -> None:
        self.maze, self.rng = maze, rng
        self.next_cells = routes(maze, rng)

    def start(self, xy: np.ndarray) -> None:
        self.goals = self.maze.starts(self.rng, len(xy))
        self.goal_cells = self.maze.cell(self.goals)
        self.waypoints = np.empty_like(self.goals)
        self.waypoint_cells = np.full(len(xy), -1)

    def intend(self, xy: np.ndarray) -> np.ndarray:
        """The noiseless actions [n, 2]."""
        arrived = np.flatnonzero(np.linalg.norm(xy - self.goals, axis=1) <= ARRIVED)
        self.goals[arrived] = self.maze.starts(self.rng, len(arrived))
        self.goal_cells[arrived] = self.maze.cell(self.goals[arrived])
        self.waypoint_cells[arrived] = -1

        ahead = self.next_cells[self.goal_cells, self.maze.cell(xy)]
        new = np.flatnonzero(ahead != self.waypoint_cells)
        last = (ahead[new] == self.goal_cells[new])[:, None]
        jittered = self.maze.cell_corners[ahead[new]] + self.rng.uniform(RADIUS, 1 - RADIUS, (len(new), 2))
        self.waypoints[new] = np.where(last, self.goals[new], jittered)
        self.waypoint_cells[new] = ahead[new]

        way = self.waypoints - xy
        return way / np.maximum(np.abs(way).max(axis=1, keepdims=True), STEP)


class Wanderers:
    """Robots without goals: each keeps its heading until chance or a wall turns it."""

    def __init__(self, maze: Maze, rng: np.random.Generator) -> None:
        self.rng = rng

    def start(self, xy: np.ndarray) -> None:
        self.headings = self._headings(len(xy))
        self.before = xy - STEP * self.headings  # as if nothing had been in the way so far

    def intend(self, xy: np.ndarray) -> np.ndarray:
        """The noiseless actions [n, 2]."""
        forward = ((xy - self.before) * self.headings).sum(axis=1)
        turn = np.flatnonzero((forward < BLOCKED * STEP) | (self.rng.random(len(xy)) < TURN))
        self.headings[turn] = self._headings(len(turn))
        self.before = xy
        return self.headings

    def _headings(self, n: int) -> np.ndarray:
        angle = self.rng.uniform(0, 2 * np.pi, n)
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)


@dataclass(frozen=True)
class Kind:
    """A way to move, the noise on it and the length of an episode."""

    robots: type[Followers] | type[Wanderers]
    noise: float  # standard deviation of the Gaussian added to each action before it is clipped to [-1, 1]
    episode_steps: int


KINDS = {
    "navigate": Kind(Followers, noise=0.4, episode_steps=200),
    "explore": Kind(Wanderers, noise=0.6, episode_steps=300),
    # Long enough for about four cells of travel: no episode shows a long path.
    "stitch": Kind(Followers, noise=0.4, episode_steps=12),
}


def collect(maze: Maze, request: Request) -> Dataset:
    """A map of the user's own goes into the data as its text: the file that it came from may not be there later."""
    from hilp.data.load import from_arrays  # here: mazes are also walked by what reads no data

    arrays: dict[str, Any] = walks(maze, request.kind, request.steps, request.seed, request.report)
    if rendering.policy_spec(maze).parts:
        places = arrays["observations"]
        arrays = {**arrays, "observations": rendering.observe_states(maze, places), "physics": places}
    data = replace(from_arrays(arrays, name=f"{maze.name}-{request.kind}"), task=maze.task)
    if request.out is not None:
        data.save(request.out, overwrite=request.overwrite)
    return data


def walks(
    maze: Maze, kind: str, steps: int, seed: int, progress: Callable[[int], None] | None = None
) -> dict[str, np.ndarray]:
    """Exactly `steps` transitions in episodes of T transitions = T + 1 rows, the last row's action being zero.

    Returns float32 `observations` and `actions` [rows, 2] and int64 `episode_lengths`, counted in rows. The last
    episode may be shorter than the others. `maze.step`, or chance, leads from each stored row to the next one exactly
    (as float32).
    """
    recipe, rng = KINDS[kind], np.random.default_rng(seed)
    length = min(recipe.episode_steps, steps)
    episodes = -(-steps // length)
    observations = np.empty((episodes, length + 1, 2), np.float32)
    actions = np.zeros((episodes, length + 1, 2), np.float32)
    robots = recipe.robots(maze, rng)
    for first in range(0, episodes, SIDE_BY_SIDE):
        block = slice(first, min(first + SIDE_BY_SIDE, episodes))
        seen, chosen = observations[block], actions[block]
        seen[:, 0] = maze.starts(rng, len(seen))
        # Each step of the physics starts from what is stored: rounding to float32 does not part data from simulator.
        xy = seen[:, 0].astype(np.float64)
        robots.start(xy)
        for t in range(length):
            noisy = robots.intend(xy) + recipe.noise * rng.standard_normal((len(seen), 2))
            chosen[:, t] = noisy.clip(-1, 1)
            seen[:, t + 1] = maze.step(xy, chosen[:, t], rng)
            xy = seen[:, t + 1].astype(np.float64)
        if progress:
            progress(min(block.stop * length, steps))

    surplus = episodes * length - steps
    rows = episodes * (length + 1) - surplus
    lengths = np.full(episodes, length + 1, np.int64)
    lengths[-1] -= surplus
    data = {"observations": observations.reshape(-1, 2)[:rows], "actions": actions.reshape(-1, 2)[:rows]}
    data["actions"][-1] = 0
    return {**data, "episode_lengths": lengths}


def routes(maze: Grid, rng: np.random.Generator | None = None) -> np.ndarray:
    """[goal cell, cell] -> the next cell on a shortest path.

    Among equally short ones it is drawn, to vary the ways taken; without a generator it is that of OGBench's oracle.
    """
    beside = maze.neighbours if rng else maze.neighbours[:, ORACLE_ORDER]
    distance = maze.cell_steps[beside]  # [cell, neighbour, goal cell]
    # Less than one step of noise never prefers a longer way.
    noise = rng.random(distance.shape, np.float32) if rng else 0
    best = (distance + noise).argmin(axis=1)  # [cell, goal cell]
    ahead = np.take_along_axis(beside, best, axis=1)
    np.fill_diagonal(ahead, np.arange(len(ahead)))
    return np.ascontiguousarray(ahead.T)
