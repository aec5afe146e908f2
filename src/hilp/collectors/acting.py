"""Data of any task, by acting in it: at random, or with a function of the user's own.

Actions are in [-1, 1], as everywhere, or of discrete ones whole numbers from 0 on. An episode depends on the seed and
its number only, so an interrupted collection continues with the same data.
"""

import hashlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from hilp import plugins
from hilp.collectors.collecting import Episode, Request, apart, collection, cut, recorded
from hilp.data.dataset import Dataset
from hilp.errors import HilpError
from hilp.tasks import Task
from hilp.tasks.base import Given, random_actions

IN_MEMORY = True
KINDS = ("wander", "random")  # and path/to/file.py:act
SIDE_BY_SIDE = 8  # episodes
SHARD = 2_000  # transitions, at least, in one file on the way
HELD = (1, 12)  # steps that a wanderer holds an action, the last excluded
KEPT_EXTRAS = ("own_reward",)  # columns that rewards need; what films need is not data (but robots': all of theirs)
Actor = Callable[[np.ndarray], Any]  # of one observation
Make = Callable[[np.random.Generator], Actor]  # the actor of an episode, from its generator


def collect(world: Task, request: Request) -> Dataset:
    """Whole episodes; the last may be cut."""
    from hilp.data.load import from_arrays

    kind, task = request.kind, getattr(world, "task", world.name)
    make = _actors(kind, world)
    name = f"{world.name}-{Path(kind).stem if plugins.names_code(kind) else kind}"
    parts, choices = getattr(world, "observation_parts", ()), getattr(world, "choices", 0)
    if request.out is None:
        found: list[Episode] = []
        for episodes in several(world, make, request.seed, 0, request.steps):
            found += episodes
            request.report(sum(len(episode["actions"]) for episode in found))
        arrays = {key: np.concatenate([episode[key] for episode in found]) for key in found[0]}
        arrays["episode_lengths"] = np.array([len(episode["observations"]) for episode in found])
        found_data = from_arrays(arrays, name=name, discrete_actions=choices or None)
        return replace(found_data, task=task, observation_parts=parts)
    with collection(request.out, request.identity(task, **code(task, kind)), request.overwrite) as shards:
        left = request.steps - shards.transitions()
        for episodes in several(world, make, request.seed, shards.episodes(), left):
            shards.add(episodes)
            request.report(shards.transitions())
        return shards.finish(name, task, parts, choices=choices)


def code(*named: str | None) -> dict[str, str]:
    """A hash of each Python file that a task or a behaviour names: an edited file is another collection."""
    paths = [Path(text.rpartition(":")[0]) for text in named if text and plugins.names_code(text)]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in paths if file.is_file()}


def several(
    world: Task, make: Make, seed: int, first: int, left: int, start: Given = None, limit: int | None = None
) -> Iterator[list[Episode]]:
    """Episodes from number `first` on, in lists that are enough for a file, until there are `left` transitions.

    start: where all of them begin, in tasks that take one. limit: steps of an episode, if not the task's.
    """
    while left > 0:
        found: list[Episode] = []
        done = 0
        while done < min(left, SHARD):
            for episode in _side_by_side(world, make, seed, first + len(found), start, limit):
                if done < left:
                    found.append(cut(episode, left - done))
                    done += len(found[-1]["actions"])
        first, left = first + len(found), left - done
        yield found


def _side_by_side(world: Task, make: Make, seed: int, first: int, start: Given, limit: int | None) -> list[Episode]:
    """The next few episodes, to their end or to their limit."""
    given = {} if start is None else {"start": start}
    running = world.episodes(np.random.default_rng([seed, first]), SIDE_BY_SIDE, **given)
    actors = [make(np.random.default_rng([seed, first + number, 1])) for number in range(SIDE_BY_SIDE)]
    columns = [name for name in world.extra_columns if name in KEPT_EXTRAS or world.family == "dmc"]
    ends = np.zeros(SIDE_BY_SIDE, int)

    def row() -> Episode:
        return {"observations": running.observations.copy(), **{name: running.extra(name) for name in columns}}

    def step() -> np.ndarray | None:
        alive = np.flatnonzero(~getattr(running, "over", np.zeros(SIDE_BY_SIDE, bool)))
        if not len(alive):
            return None
        actions = np.zeros((SIDE_BY_SIDE, world.action_dim), np.float32)
        for number in alive:
            actions[number] = _checked(actors[number](running.observations[number].copy()), world)
        ends[alive] += 1
        running.step(actions)
        return actions

    return apart(recorded(row, step, world.max_steps if limit is None else limit), ends)


def _actors(kind: str, world: Task) -> Make:
    if kind == "random":
        return lambda rng: lambda observation: random_actions(world, rng, 1)[0]
    if kind == "wander":
        return lambda rng: wanderer(rng, world)
    act: Any = plugins.from_file(kind)
    if isinstance(act, type):
        return act
    if not callable(act):
        raise HilpError(f"{kind} is no function of an observation")
    if len(inspect.signature(act).parameters) > 1:
        return lambda rng: lambda observation: act(observation, rng)
    return lambda rng: act


def wanderer(rng: np.random.Generator, world: Task) -> Actor:
    """Random actions, each held for some steps: noise that changes at every step hardly leaves the start."""

    def held() -> Iterator[np.ndarray]:
        while True:
            steps = int(rng.integers(*HELD))
            yield from repeat(random_actions(world, rng, 1)[0], steps)

    actions = held()
    return lambda observation: next(actions)


def _checked(action: Any, world: Task) -> np.ndarray:
    found, size = np.asarray(action, np.float32), world.action_dim
    if choices := getattr(world, "choices", 0):
        if found.size != 1 or found.ravel()[0] not in range(choices):
            raise HilpError(f"an action of {world.name} is a whole number from 0 to {choices - 1}, not {action!r:.60}")
        return found.reshape(1)
    if found.shape != (size,) or not (np.abs(found) <= 1 + 1e-6).all():
        raise HilpError(f"an action is {size} numbers from -1 to 1, not {np.array2string(found, threshold=8)}")
    return np.clip(found, -1, 1)
