"""Data of any task from nothing: rounds of collecting, of learning phi and a policy from all of it, and of exploring.

The first round wanders at random. Before each later one, `hilp` is trained from scratch on all the data so far, and its
policy explores: it goes to a landmark of its graph that was seldom visited, wanders there, and goes to the next one.

A round is a function of the seed and of the data before it. So an interrupted collection trains the policy of its round
again, and continues with the same data.
"""

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from hilp.collectors import acting
from hilp.collectors.collecting import Episode, Request, Shards, collection, covered, measure
from hilp.data.dataset import Dataset
from hilp.data.load import from_arrays
from hilp.errors import HilpError, say
from hilp.learning import configs
from hilp.policy.policy import FoundationPolicy
from hilp.presets import preset
from hilp.prompts import graph
from hilp.tasks import Task
from hilp.tasks.rendering import policy_spec
from hilp.training.loop import pretrain

KINDS = ("skills",)
TOLD = 10  # times that data tells its coverage, evenly, whatever the rounds


@dataclass(frozen=True)
class Config:
    """Small, for two cores."""

    rounds: configs.Count = 10  # of equally many transitions; 1: random actions alone
    updates: configs.Count = 1_000  # of the policy of a round
    episode: configs.Count = 200  # steps
    travel: configs.Count = 100  # steps to a landmark, at most
    wander: configs.Count = 50  # steps there
    cell: configs.Positive = 1.0  # side of the squares, of places as they are drawn, in which coverage is counted

    def __post_init__(self) -> None:
        configs.check(self)


def require(world: Task, request: Request) -> None:
    cfg = configs.changed(Config(), dict(request.config))
    if request.steps < cfg.rounds * cfg.episode:
        raise HilpError(
            f"{request.steps:,} steps are too few for {cfg.rounds} rounds of an episode of {cfg.episode} steps: ask "
            f"for {cfg.rounds * cfg.episode:,}, or change these (--set rounds=2 episode=50)"
        )
    if policy_spec(world).parts and not hasattr(world, "render_dataset"):
        raise HilpError(f"skills explore vectors, and {world.name} shows pictures: explore its task of vectors")


def collect(world: Any, request: Request) -> Dataset:
    """Whole episodes of one round after the other; the last of all may be cut."""
    cfg = configs.changed(Config(), dict(request.config))
    task = getattr(world, "domain_name", getattr(world, "task", world.name))
    ends = [request.steps * number // cfg.rounds // cfg.episode * cfg.episode for number in range(1, cfg.rounds)]
    ends.append(request.steps)
    # In a maze episodes begin anywhere, which leaves nothing to explore: here all begin at an end of the longest way.
    start = world.target if world.family == "maze" else None
    parts, choices = getattr(world, "observation_parts", ()), getattr(world, "choices", 0)
    with collection(
        request.folder, request.identity(task, config=asdict(cfg), **acting.code(task)), request.overwrite
    ) as shards:
        for number, end in enumerate(ends):
            if shards.transitions() >= end:
                continue
            make: acting.Make = partial(acting.wanderer, world=world)
            if number:
                policy = _learned(world, cfg, _so_far(shards, ends[number - 1]), request.seed)
                make = partial(Explorer, world, cfg, policy, Landmarks(policy))
            first, left = shards.episodes(), end - shards.transitions()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "this observation is far outside the data")  # as it is to be
                for episodes in acting.several(world, make, request.seed, first, left, start, cfg.episode):
                    shards.add(episodes)
                    request.report(shards.transitions())
            seen = coverage(world, cfg.cell, _so_far(shards, end), [end])
            say(f"round {number + 1} of {cfg.rounds}: {end:,} transitions, cells visited: {covered(seen)}")

        def measured(data: Dataset) -> dict[str, Any]:
            speeds = measure(world, data) if hasattr(world, "speed_edges") else {}
            tenths = [-(-request.steps * (number + 1) // TOLD) for number in range(TOLD)]
            return {"config": asdict(cfg), **coverage(world, cfg.cell, data, tenths), **speeds}

        return shards.finish(f"{world.name}-skills", task, parts, measured, choices)


def coverage(world: Any, cell: float, data: Dataset, ends: list[int]) -> dict[str, Any]:
    """How many squares of this side were visited after so many transitions; in a maze these are its free cells."""
    cells = np.floor(world.place(np.asarray(data.observations)) / cell).astype(np.int64)
    _, firsts = np.unique(cells, axis=0, return_index=True)
    rows = data.transition_rows[np.array(ends) - 1] + 2  # up to the one that the last of them led to
    free = {"cells_of": len(world.free_cells)} if world.family == "maze" and cell == 1 else {}
    return {"transitions_at": ends, "cells_at": [int((firsts < stop).sum()) for stop in rows], **free}


def _so_far(shards: Shards, transitions: int) -> Dataset:
    """The first so many transitions, which are whole episodes."""

    def episodes() -> Iterator[Episode]:
        left = transitions
        for episode in shards.stored():
            if left <= 0:
                return
            left -= len(episode["actions"])
            yield episode

    found = list(episodes())
    actions = [np.concatenate([one["actions"], np.zeros_like(one["actions"][:1])]) for one in found]
    lengths = np.array([len(one["observations"]) for one in found], np.int64)
    return Dataset(np.concatenate([one["observations"] for one in found]), np.concatenate(actions), lengths)


def _learned(world: Any, cfg: Config, data: Dataset, seed: int) -> FoundationPolicy:
    """A policy of all the data so far."""
    arrays = {"observations": data.observations, "actions": data.actions, "episode_lengths": data.lengths}
    data = from_arrays(arrays, name=f"{world.name}-skills", discrete_actions=getattr(world, "choices", 0) or None)
    config = replace(preset("hilp", "laptop").config, chunk=1)
    return pretrain(config, data, steps=cfg.updates, seed=seed, bank=10_000, quiet=True)


class Landmarks:
    """Landmarks of a policy's graph; a state of the bank is a visit of the one that is nearest to it."""

    def __init__(self, policy: FoundationPolicy) -> None:
        assert policy.graph is not None
        latents = policy.encode(policy.bank.observations)
        self.observations = policy.bank.observations[policy.graph.landmarks]
        self.latents, self.radius = latents[policy.graph.landmarks], policy.graph.radius
        nearest = graph.nearest(latents, self.latents, 1)[0][:, 0]
        self.chances = chances(np.bincount(nearest, minlength=len(self.latents)))


def chances(visits: np.ndarray) -> np.ndarray:
    """How likely each of some places is to be gone to: as 1 / visits."""
    seldom = 1 / np.maximum(visits, 1)
    return seldom / seldom.sum()


class Explorer:
    """Goes to a landmark, wanders there or, where it cannot get there in time, on the way, and goes to the next one."""

    def __init__(
        self, world: Any, cfg: Config, policy: FoundationPolicy, landmarks: Landmarks, rng: np.random.Generator
    ) -> None:
        self.cfg, self.policy, self.landmarks, self.rng = cfg, policy, landmarks, rng
        self.wander = acting.wanderer(rng, world)
        self.leave()

    def leave(self) -> None:
        """For another landmark."""
        self.number = int(self.rng.choice(len(self.landmarks.chances), p=self.landmarks.chances))
        self.prompt = self.policy.goal(self.landmarks.observations[self.number])
        self.travel, self.left = self.cfg.travel, self.cfg.wander  # steps

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        if self.travel:
            self.travel -= 1
            apart = self.policy.encode(observation) - self.landmarks.latents[self.number]
            if np.linalg.norm(apart) > self.landmarks.radius:
                return self.policy.act(observation, self.prompt)
            self.travel = 0
        self.left -= 1
        if not self.left:
            self.leave()
        return self.wander(observation)
