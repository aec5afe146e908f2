"""Kitchen data by scripts, as D4RL has it from people: an arm that does one thing after the other, with noise.

"partial" does all that the scripts know, in random order, so that some episodes do all four subtasks of the task.
"mixed" leaves one of its four out, so that no episode does all, and breaks off some halfway, to come back to them
later. "complete" does D4RL's four in their order. An arm that is done early rests where it began.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hilp.collectors.collecting import NO_TARGET, Episode, Request, Simulate, at_target, collect_blocks, recorded
from hilp.collectors.kitchen_scripts import JOINTS, SCRIPTS, Actions, Hand, rest
from hilp.errors import HilpError
from hilp.tasks import kitchen
from hilp.tasks.kitchen import MAX_STEPS, NAMES, PARTS, Kitchen
from hilp.tasks.rendering import VISUAL

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset

KINDS = ("partial", "mixed", "complete")
EPISODE_STEPS = MAX_STEPS  # 281 rows
ACTION_NOISE = 0.1  # standard deviation of the Gaussian on the arm's actions; on the fingers it would lose the grip
BREAK_CHANCE = 0.25  # of breaking off a subtask of "mixed" after BREAK_STEPS
BREAK_STEPS = (10, 50)  # the last excluded
BLOCK = 5  # episodes in one piece of work, and in one file on the way


class Cook:
    """One episode of an arm that follows scripts."""

    def __init__(self, world: Kitchen, plan: list[str], rng: np.random.Generator, breaks: float = 0.0) -> None:
        """plan: subtasks in order. breaks: chance of leaving one halfway; it is taken up again after the others."""
        self.running = world.episodes(rng, 1)  # of all subtasks, whichever count later
        self.rng, self._breaks = rng, breaks
        self.hand = Hand(world.simulator, self.running.data[0])
        self.target, self.subtask = NO_TARGET, ""  # what the last action was for; what is to be broken off is none
        self._actions = self._all(deque(plan))

    def step(self) -> np.ndarray:
        """Go on for one step; returns the action."""
        action = next(self._actions)
        action[:JOINTS] += ACTION_NOISE * self.rng.standard_normal(JOINTS)
        action = action.clip(-1, 1).astype(np.float32)
        self.running.step(action[None])
        return action

    def row(self) -> Episode:
        """What the data holds of now: also whether the subtask that the arm is at is done."""
        reached = self.target != NO_TARGET and self.running.done[0, self.running.subtasks.index(self.subtask)]
        return {"observations": self.running.observations[0], **at_target(self.target, reached)}

    def _all(self, plan: deque[str]) -> Actions:
        taken_up = 0
        while plan:
            subtask = plan.popleft()
            most = None
            if self.rng.random() < self._breaks:
                most = int(self.rng.integers(*BREAK_STEPS))
                plan.append(subtask)
                self.target = NO_TARGET
            else:
                self.target, self.subtask, taken_up = taken_up, subtask, taken_up + 1
            for taken, action in enumerate(SCRIPTS[subtask](self.hand)):
                if taken == most:
                    yield from self.hand.back(1.0)
                    break
                yield action
        self.target = NO_TARGET
        yield from rest(self.hand)


def plan_of(kind: str, rng: np.random.Generator) -> list[str]:
    """What an episode sets out to do, in order."""
    if kind == "complete":
        return list(NAMES["kitchen-complete"])
    subtasks = list(SCRIPTS)
    if kind == "mixed":
        subtasks.remove(str(rng.choice(NAMES["kitchen-mixed"])))
    return [str(name) for name in rng.permutation(subtasks)]


def require(world: Kitchen, request: Request) -> None:
    """Raise where the data would be another task's."""
    plain, name = world.name.removeprefix(VISUAL), f"kitchen-{request.kind}"
    if plain not in ("kitchen", name):
        of = world.name.removesuffix(plain)
        raise HilpError(
            f"data of kind {request.kind} belongs to {of}{name}, not to {world.name}: take --task {of}kitchen"
        )


def collect(world: Kitchen, request: Request) -> Dataset:
    """Episodes of 281 rows, simulated by several processes."""
    name = f"kitchen-{request.kind}"
    _ = world.simulator  # raises before there is a folder where it is not installed
    make = partial(_simulation, request.kind, request.seed)
    return collect_blocks(request, request.identity(name), make, EPISODE_STEPS, BLOCK, name, name, PARTS)


def _simulation(kind: str, seed: int) -> Simulate:
    """What a process needs to collect: it makes a world of its own."""
    world = kitchen.make("kitchen", threads=1)

    def episode(number: int, steps: int) -> Episode:
        rng = np.random.default_rng([seed, number])
        cook = Cook(world, plan_of(kind, rng), rng, BREAK_CHANCE if kind == "mixed" else 0.0)
        return recorded(cook.row, cook.step, steps)

    return lambda block: [episode(number, steps) for number, steps in block]
