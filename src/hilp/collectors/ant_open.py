"""Data of an ant on open ground: its controller under random headings and speeds, as the log of a robot that works.

A heading and a speed (none, half or full) are held for one to three seconds. The controller only knows full speed: its
actions times a share give about that share of the speed, and no action at all is to stand. There is little noise, so
the log is narrow: it shows a good gait and hardly anything else.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.collectors.ant_controller import Controller, fingerprint
from hilp.collectors.collecting import Block, Episode, Request, Simulate, apart, collect_blocks, recorded
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
        actions = (actions + ACTION_NOISE * noise).clip(-1, 1).astype(np.float32)
        running.step(actions)
        left[:] -= 1
        return actions

    return recorded(row, step, steps), running.fallen


def collect(world: AntOpen, request: Request) -> Dataset:
    """Episodes of 1001 rows, simulated by several processes."""
    identity = request.identity(world.task, controller=fingerprint())
    make, name = partial(_simulation, request.seed), f"{NAME}-{request.kind}"
    measured = partial(measure, world)
    return collect_blocks(request, identity, make, EPISODE_STEPS, BLOCK, name, world.task, measure=measured)


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


def _simulation(seed: int) -> Simulate:
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
