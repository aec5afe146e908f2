"""Data of an ant on open ground: its controller under random headings and speeds, as the log of a robot that works.

A heading and a speed (none, half or full) are held for one to three seconds. The controller only knows full speed: its
actions times a share give about that share of the speed, and no action at all is to stand. There is little noise, so
the log is narrow: it shows a good gait and hardly anything else.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.collectors.ant_controller import WEIGHTS, Controller
from hilp.collectors.collecting import Block, Episode, Request, collect_blocks, stacked
from hilp.tasks.ant_open import NAME, SPEED, AntOpen, OpenEpisodes

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset

KINDS = ("wander",)
EPISODE_STEPS = 1000  # 1001 rows
SHARES = (0.0, 0.5, 1.0)  # of the full speed
COMMAND_STEPS = (10, 31)  # that a heading and a speed are held, the last excluded
ACTION_NOISE = 0.1  # standard deviation of the Gaussian added to each action before it is clipped to [-1, 1]
BLOCK = 10  # episodes in one piece of work, and in one file on the way
SPEED_EDGES = np.arange(0, 2.01, 0.25)  # m/s: of a histogram; whatever is faster counts in the last part
ASKED = "asked"  # extra column [2]: the velocity that the ant is asked for in this row, in m/s


def walk(controller: Controller, states: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Actions [n, 8] that walk ants in states [n, 29] with these velocities [n, 2], in m/s."""
    speed = np.linalg.norm(asked, axis=1, keepdims=True)
    return controller.act(states[:, 2:], asked / np.maximum(speed, 1e-6)) * (speed / SPEED).clip(0, 1)


class Wander:
    """Ants side by side from the origin, each with commands, a start and noise by a generator of its own."""

    def __init__(self, world: AntOpen, controller: Controller, generators: list[np.random.Generator]) -> None:
        self.controller, self._generators = controller, generators
        starts = [world.episodes(rng, 1).states[0] for rng in generators]
        self.episodes = OpenEpisodes(world, np.stack(starts), np.full((len(starts), 2), np.nan))
        self._left, self.asked = np.zeros(len(starts), int), np.zeros((len(starts), 2))
        self._command()

    def _command(self) -> None:
        """Draw another heading and speed where the time of one is over."""
        for ant in np.flatnonzero(self._left == 0):
            rng = self._generators[ant]
            angle, speed = rng.uniform(0, 2 * np.pi), SPEED * rng.choice(SHARES)
            self.asked[ant] = speed * np.cos(angle), speed * np.sin(angle)
            self._left[ant] = rng.integers(*COMMAND_STEPS)

    def step(self) -> np.ndarray:
        """Go on for one step; returns the actions."""
        actions = walk(self.controller, self.episodes.states, self.asked)
        noise = np.stack([rng.standard_normal(actions.shape[1]) for rng in self._generators])
        actions = (actions + ACTION_NOISE * noise).clip(-1, 1).astype(np.float32)
        self.episodes.step(actions)
        self._left -= 1
        self._command()
        return actions

    def rows(self) -> dict[str, Any]:
        return {"observations": self.episodes.observations.copy(), ASKED: self.asked.astype(np.float32)}


def collect(world: AntOpen, request: Request) -> Dataset:
    """Episodes of 1001 rows, simulated by several processes."""
    return collect_blocks(
        request,
        request.identity(world.task, controller=hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()),
        partial(_Simulation, request.seed),
        EPISODE_STEPS,
        BLOCK,
        f"{NAME}-{request.kind}",
        world.task,
        measure=partial(measure, world),
    )


def measure(world: AntOpen, data: Dataset) -> dict[str, Any]:
    """What the log has of each speed, in m/s, and what each reward of the task would have paid a step of it."""
    rows = data.transition_rows
    s, a, s2 = data.observations[rows], data.actions[rows], data.observations[rows + 1]
    counts, edges = np.histogram(world.speeds(s, s2).clip(max=SPEED_EDGES[-1]), SPEED_EDGES)
    return {
        "speed_edges": edges.tolist(),
        "speed_shares": (counts / len(rows)).tolist(),
        **{f"reward_{name}": float(reward(s, a, s2).mean()) for name, reward in world.rewards.items()},
    }


class _Simulation:
    """What a process needs to collect: it makes a world of its own.

    Episodes of a block share the controller's products, whose last bits depend on how many they are.
    """

    def __init__(self, seed: int) -> None:
        self.world, self.controller, self.seed = AntOpen(), Controller.load(), seed

    def __call__(self, block: Block) -> list[Episode]:
        """Episodes without a fall: one in which the ant falls is begun anew, with other commands."""
        found: dict[int, Episode] = {}
        attempt = 0
        while len(left := [(number, steps) for number, steps in block if number not in found]):
            generators = [np.random.default_rng([self.seed, number, attempt]) for number, _ in left]
            wander = Wander(self.world, self.controller, generators)
            rows, actions = [wander.rows()], []
            for _ in range(max(steps for _, steps in left)):
                actions.append(wander.step())
                rows.append(wander.rows())
            together = stacked(rows, actions)  # [steps, ants, ...]
            for ant, (number, steps) in enumerate(left):
                if not wander.episodes.fallen[ant]:
                    found[number] = {
                        name: column[: steps + (name != "actions"), ant] for name, column in together.items()
                    }
            attempt += 1
        return [found[number] for number, _ in block]
