"""DeepMind Control as tasks: a robot in its world, with one or all of its rewards."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.errors import HilpError, nearest, some
from hilp.tasks.base import Finite, column_names
from hilp.tasks.dmc.domains import DOMAINS, NAMES, TASKS, Domain
from hilp.tasks.dmc.episodes import DmcEpisodes
from hilp.tasks.dmc.simulation import StateOf
from hilp.tasks.pictures import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Dmc:
    """A robot in its world, with one or all of its rewards. `threads` simulate side by side."""

    family = "dmc"
    has_goals = False
    extra_columns: tuple[str, ...] = ("physics",)
    potentials: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {}

    def __init__(self, name: str, rewards: Sequence[str], threads: int | None = None) -> None:
        self.name = name
        self.domain_name = name.partition("_")[0]
        self.kind = DOMAINS[self.domain_name]
        self.max_steps, self.score_scale = self.kind.max_steps, self.kind.score_scale
        self.observation_parts = self.kind.parts
        self.observation_dim = sum(int(np.prod(shape)) for _, shape in self.kind.parts)
        self.columns: Mapping[str, int] = column_names(self.kind.parts)
        self.rewards: Mapping[str, Callable[..., np.ndarray]] = {reward: self._labels(reward) for reward in rewards}
        self.threads = threads or _cores()

    @cached_property
    def domain(self) -> Domain:
        return self.kind()

    @cached_property
    def action_dim(self) -> int:
        return int(self.domain.model.nu)

    @cached_property
    def physics_dim(self) -> int:
        model = self.domain.model
        return int(model.nq + model.nv + model.na)

    @property
    def fps(self) -> float:
        """Steps of control in a second."""
        return float(1 / (self.domain.substeps * self.domain.model.opt.timestep))

    @cached_property
    def pool(self) -> ThreadPoolExecutor | None:
        """The threads that simulate; None where one is all there is."""
        return ThreadPoolExecutor(self.threads, "hilp-dmc") if self.threads > 1 else None

    def _labels(self, name: str) -> Callable[..., np.ndarray]:
        def reward(s: np.ndarray, a: np.ndarray, s2: np.ndarray, extras: Any) -> np.ndarray:
            return self.reward_of(extras.after("physics"), name)

        return reward

    def reward_of(self, physics: np.ndarray, name: str) -> np.ndarray:
        """The reward [n] of being in these physics states [n, p], as the simulator pays it after a step."""
        if name not in self.kind.rewards:
            raise HilpError(f"{self.domain_name} has no reward '{name}': {nearest(name, self.kind.rewards)}")
        return self.kind.rewards[name](*self.measure(physics).T)

    def measure(self, physics: np.ndarray) -> np.ndarray:
        """What rewards are made of [n, k], e.g. height, uprightness, speed and spin for the walker."""
        states, domain = self._states(physics), self.domain
        data = domain.mujoco.MjData(domain.model)
        state = StateOf(domain.model, data)
        rows = []
        for row in states:
            state.set(row)
            rows.append(domain.measure(data))
        return np.array(rows, np.float64).reshape(len(states), -1)

    def _states(self, physics: np.ndarray) -> np.ndarray:
        states = np.asarray(physics, np.float64)
        if states.ndim != 2 or states.shape[1] != self.physics_dim:
            raise HilpError(
                f"physics of {self.domain_name} has {self.physics_dim} numbers a state, not shape {states.shape}"
            )
        return states

    def episodes(
        self, rng: np.random.Generator, n: int, start: np.ndarray | None = None, goal: np.ndarray | None = None
    ) -> DmcEpisodes:
        """n episodes from random starts, or all from one physics state."""
        if goal is not None:
            raise HilpError(f"{self.name} has rewards and no goals: prompt with one of {some(list(self.rewards))}")
        simulations = [self._begin(int(rng.integers(2**32)), start) for _ in range(n)]
        return DmcEpisodes(self.name, self.domain, simulations, self.threads, self.pool)

    def _begin(self, seed: int, start: np.ndarray | None) -> Any:
        domain = self.domain
        if start is None:
            domain.begin(seed)
            return copy.copy(domain.physics.data.ptr)
        data = domain.mujoco.MjData(domain.model)
        StateOf(domain.model, data).set(self._states(np.asarray(start)[None])[0])
        with domain.physics.model.disable("actuation"):  # there is no action yet, as after a reset
            domain.mujoco.mj_forward(domain.model, data)
        return data

    def for_data(self, first: np.ndarray) -> Dmc:
        return self

    def potential_max(self, name: str) -> float:
        raise HilpError(f"{self.name} has no potentials: prompt with one of its rewards, {some(list(self.rewards))}")

    def best_return(self, name: str, observations: np.ndarray, steps: int) -> np.ndarray | None:
        """Nobody knows; a reward is at most 1 a step."""
        return None

    def near(self, observations: np.ndarray, goal: np.ndarray) -> np.ndarray:
        raise HilpError(f"{self.name} has no goals: prompt with one of its rewards, {some(list(self.rewards))}")

    def finite(self) -> Finite | None:
        return None

    def draw(self, ax: Axes) -> None:
        """Name the axes that `place` uses."""
        x, y = self.kind.axes
        ax.set_xlabel(x)
        ax.set_ylabel(y)

    def place(self, observations: np.ndarray) -> np.ndarray:
        """Two telling numbers of each observation: what robots do has no place on a map."""
        return self.domain.place(np.asarray(observations))

    def film(self, observations: np.ndarray, physics: np.ndarray) -> np.ndarray:
        """Frames of an episode for people to look at."""
        return self.frames(physics, (240, 320))

    def frames(
        self, physics: np.ndarray, size: tuple[int, int] = (64, 64), camera: int | str | None = None
    ) -> np.ndarray:
        """Pictures uint8 [t, height, width, 3] of physics states [t, p], without shadows and reflections."""
        states, (height, width) = self._states(physics), size
        domain, mujoco = self.domain, self.domain.mujoco
        model, data = domain.model, mujoco.MjData(domain.model)
        try:
            view = model.camera(domain.camera if camera is None else camera).id
        except (KeyError, IndexError) as error:
            named = [model.camera(number).name for number in range(model.ncam)]
            raise HilpError(f"{self.domain_name} has no camera {camera!r}: {nearest(str(camera), named)}") from error
        state, pictures = StateOf(model, data), np.empty((len(states), height, width, 3), np.uint8)
        with drawing(mujoco, model, height, width) as draw:
            for row, picture in zip(states, pictures, strict=True):
                state.set(row)
                mujoco.mj_kinematics(model, data)
                mujoco.mj_comPos(model, data)
                mujoco.mj_camlight(model, data)
                draw(data, view, picture)
        return pictures


def names() -> tuple[str, ...]:
    """Robots with all their rewards, then those with one."""
    return (*NAMES, *TASKS)


def reward_tasks() -> tuple[str, ...]:
    """The tasks that are one reward each."""
    return TASKS


def takes(name: str) -> bool:
    """Whether this is a robot of DeepMind Control."""
    return name in NAMES or name in TASKS


def make(name: str, threads: int | None = None) -> Dmc:
    """A domain ("walker") with all its rewards, or a task ("walker_run") with its own."""
    if name in NAMES:
        return Dmc(name, tuple(DOMAINS[name].rewards), threads)
    if name in TASKS:
        return Dmc(name, (name.partition("_")[2],), threads)
    raise HilpError(f"unknown DeepMind Control task '{name}': {nearest(name, names())}")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
