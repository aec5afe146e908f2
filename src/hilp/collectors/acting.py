"""Data of any task, by acting in it: at random, or with a function of the user's own.

Actions are in [-1, 1], as everywhere. An episode depends on the seed and its number only, so an interrupted collection
continues with the same data.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp import plugins
from hilp.collectors.collecting import Request
from hilp.collectors.shards import collection, cut
from hilp.errors import HilpError

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset
    from hilp.tasks import Task

IN_MEMORY = True
KINDS = ("wander", "random")  # and path/to/file.py:act
SIDE_BY_SIDE = 8  # episodes
SHARD = 2_000  # transitions, at least, in one file on the way
HELD = (1, 12)  # steps that a wanderer holds an action, the last excluded
KEPT_EXTRAS = ("own_reward",)  # columns that rewards need; what films need is not data
Episode = dict[str, np.ndarray]
Actor = Callable[[np.ndarray], Any]  # of one observation


def collect(world: Task, request: Request) -> Dataset:
    """Whole episodes; the last may be cut."""
    from hilp.data.load import from_arrays

    kind, steps, seed = request.kind, request.steps, request.seed
    make = _actors(kind, world)
    name = f"{world.name}-{Path(kind).stem if plugins.names_code(kind) else kind}"
    task = getattr(world, "task", world.name)
    parts = getattr(world, "observation_parts", ())
    if request.out is None:
        found: list[Episode] = []
        while (done := _transitions(found)) < steps:
            found += _several(world, make, seed, len(found), steps - done)
            request.report(_transitions(found))
        arrays = {key: np.concatenate([episode[key] for episode in found]) for key in found[0]}
        arrays["episode_lengths"] = np.array([len(episode["observations"]) for episode in found])
        return replace(from_arrays(arrays, name=name), task=task, observation_parts=parts)
    with collection(request.out, request.identity(task, **_code(task, kind)), request.overwrite) as shards:
        while (done := shards.transitions()) < steps:
            shards.add(_several(world, make, seed, shards.episodes(), steps - done))
            request.report(shards.transitions())
        return shards.finish(name, task, parts)


def _code(*named: str | None) -> dict[str, str]:
    """A hash of each Python file that a task or a behaviour names: an edited file is another collection."""
    paths = [Path(text.rpartition(":")[0]) for text in named if text and plugins.names_code(text)]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in paths if file.is_file()}


def _episodes(world: Task, make: Callable[[np.random.Generator], Actor], seed: int, first: int) -> list[Episode]:
    """The next few episodes, to their end or to the limit of the task."""
    rng = np.random.default_rng([seed, first])
    running = world.episodes(rng, SIDE_BY_SIDE)
    actors = [make(np.random.default_rng([seed, first + number, 1])) for number in range(SIDE_BY_SIDE)]
    columns = [name for name in world.extra_columns if name in KEPT_EXTRAS]
    rows: dict[str, list[np.ndarray]] = {"observations": [running.observations.copy()], "actions": []}
    rows |= {name: [np.zeros(SIDE_BY_SIDE, np.float32)] for name in columns}  # nothing is earned before the first step
    ends = np.zeros(SIDE_BY_SIDE, int)
    for step in range(world.max_steps):
        alive = np.flatnonzero(~getattr(running, "over", np.zeros(SIDE_BY_SIDE, bool)))
        if not len(alive):
            break
        actions = np.zeros((SIDE_BY_SIDE, world.action_dim), np.float32)
        for number in alive:
            actions[number] = _checked(actors[number](running.observations[number].copy()), world.action_dim)
        ends[alive] = step + 1
        running.step(actions)
        rows["observations"].append(running.observations.copy())
        rows["actions"].append(actions)
        for name in columns:
            rows[name].append(running.extra(name))
    stacked = {name: np.stack(values, axis=1) for name, values in rows.items()}
    return [cut({name: values[i] for name, values in stacked.items()}, end) for i, end in enumerate(ends)]


def _several(
    world: Task, make: Callable[[np.random.Generator], Actor], seed: int, first: int, most: int
) -> list[Episode]:
    """The next episodes, enough for a file and with no more than `most` transitions."""
    found: list[Episode] = []
    while (done := _transitions(found)) < min(most, SHARD):
        for episode in _episodes(world, make, seed, first + len(found)):
            if done < most:
                found.append(cut(episode, most - done))
                done += len(found[-1]["actions"])
    return found


def _transitions(episodes: list[Episode]) -> int:
    return sum(len(episode["actions"]) for episode in episodes)


# ---- who acts --------------------------------------------------------------------------------------------------------


def _actors(kind: str, world: Task) -> Callable[[np.random.Generator], Actor]:
    """What makes the actor of an episode from its generator."""
    if kind == "random":
        return lambda rng: lambda observation: rng.uniform(-1, 1, world.action_dim)
    if kind == "wander":
        return lambda rng: Wanderer(rng, world.action_dim)
    act: Any = plugins.from_file(kind)
    if isinstance(act, type):
        made: Callable[[np.random.Generator], Actor] = act
        return made  # one for each episode, made with its generator
    if not callable(act):
        raise HilpError(f"{kind} is no function of an observation")
    if len(inspect.signature(act).parameters) > 1:
        return lambda rng: lambda observation: act(observation, rng)
    return lambda rng: act


class Wanderer:
    """Random actions, each held for some steps: noise that changes at every step hardly leaves the start."""

    def __init__(self, rng: np.random.Generator, size: int) -> None:
        self._rng, self._size, self._left = rng, size, 0

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        if not self._left:
            self._left = int(self._rng.integers(*HELD))
            self._action = self._rng.uniform(-1, 1, self._size)
        self._left -= 1
        return self._action


def _checked(action: Any, size: int) -> np.ndarray:
    found = np.asarray(action, np.float32)
    if found.shape != (size,) or not (np.abs(found) <= 1 + 1e-6).all():
        raise HilpError(f"an action is {size} numbers from -1 to 1, not {np.array2string(found, threshold=8)}")
    return np.clip(found, -1, 1)
