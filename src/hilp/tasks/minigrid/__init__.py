"""MiniGrid's rooms as tasks with goals: `minigrid-four-rooms` and `minigrid-door-key-5x5`, `-6x6` and `-8x8`.

A policy sees the state as a few numbers and not MiniGrid's picture of the squares before the agent: `at` (column, row),
`facing` (one of right, down, left, up: four numbers), and where there is a door `carrying` (1 with the key in hand),
`door` (open, locked) and `key` (its column and row; 0, 0 in hand). Actions are those of MiniGrid that do something:
left, right, forward, and where there is a key pick up, drop and toggle.

The walls, the door and the key lie where seed LAYOUT of the environment puts them, in every episode: a graph of places
is of one world. The agent begins on a free square on its side of the door. A goal is a square: any free one, or behind
the door the green one, whose tile is taken away so that episodes end at their limit or at the goal of the task.
"""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.errors import HilpError, nearest
from hilp.tasks.base import import_simulator

if TYPE_CHECKING:
    from hilp.tasks.gym import GymTask

DOOR_KEY_SIZES = ("5x5", "6x6", "8x8")
ENVIRONMENTS = {"minigrid-four-rooms": "MiniGrid-FourRooms-v0"} | {
    f"minigrid-door-key-{size}": f"MiniGrid-DoorKey-{size}-v0" for size in DOOR_KEY_SIZES
}
LAYOUT = 0  # the seed of walls, doors and keys
FACINGS = 4


def names() -> list[str]:
    return list(ENVIRONMENTS)


def make(name: str) -> "GymTask":
    """The task of a name."""
    if name not in ENVIRONMENTS:
        raise HilpError(f"unknown task '{name}': {nearest(name, ENVIRONMENTS)}")
    with warnings.catch_warnings():  # of pygame, about what it imports
        warnings.simplefilter("ignore")
        import_simulator(f"the task {name}", "minigrid", "minigrid")
    from hilp.tasks.gym import gym_task
    from hilp.tasks.minigrid.states import States

    def environment(render_mode: str | None = None) -> States:
        return States(ENVIRONMENTS[name], LAYOUT, render_mode)

    world = environment()

    def goal(rng: np.random.Generator) -> np.ndarray:
        return flat(world.goal(rng))

    def success(observations: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """On the same square, whatever the agent faces."""
        return np.asarray((np.round(observations[:, :2]) == np.round(goals[:, :2])).all(axis=1))

    found = gym_task(
        environment, goal=goal, success=success, reward={}, max_steps=world.max_steps, name=name, place=(0, 1)
    )
    found.task = name
    return found


def flat(state: Mapping[str, Any]) -> np.ndarray:
    """A state as one vector, as Gymnasium flattens it: parts by name, `facing` one-hot."""
    parts = {**state, "facing": np.eye(FACINGS)[state["facing"]]}
    return np.concatenate([np.ravel(parts[key]) for key in sorted(parts)]).astype(np.float64)
