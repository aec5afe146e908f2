"""DeepMind Control: walker, cheetah, quadruped and the Jaco arm, by states or by a camera, with four rewards each.

The models, resets and control rates are dm_control's own. A reward is a function of the physics state alone, so the
same function labels the rows of a data set and scores a rollout. The camera shows 64 x 64 pixels, three frames at once,
as in the paper's experiments. Images are rendered from physics states, so data that holds them (as ExORL's does) needs
no new simulation.
"""

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from typing import Any

import numpy as np

from hilp.data.dataset import Dataset
from hilp.data.transforms import Recent
from hilp.errors import HilpError, nearest, some
from hilp.tasks.base import Axes, BaseEpisodes, Given, Threaded, column_names, cores
from hilp.tasks.dmc.domains import DOMAINS, NAMES, TASKS, Arrays, Domain
from hilp.tasks.rendering import SUFFIX, drawing, render, with_images

SIDE, FRAMES = 64, 3  # pixels of an image along each side; images that policies see at once
PART, PHYSICS = "pixels", "physics"
SPEED_EDGES = (-10, -5, -2, -1, -0.5, 0.5, 1, 2, 5, 10)  # m/s: of a histogram; the outer parts have what is faster
BLOCK = 1000  # images between two reports of progress


def names() -> tuple[str, ...]:
    """Robots with all their rewards, those with one, and robots that are seen by a camera."""
    return (*NAMES, *TASKS, *(f"{name}{SUFFIX}" for name in NAMES))


def reward_tasks() -> tuple[str, ...]:
    return TASKS


def make(name: str, threads: int | None = None) -> "Dmc":
    """A domain ("walker") with all its rewards, a task ("walker_run") with its own, or a domain seen by a camera."""
    if name not in names():
        raise HilpError(f"unknown DeepMind Control task '{name}': {nearest(name, names())}")
    if name in TASKS:
        return Dmc(name, (name.partition("_")[2],), threads)
    kind = PixelDmc if name.endswith(SUFFIX) else Dmc
    return kind(name, tuple(DOMAINS[name.removesuffix(SUFFIX)].rewards), threads)


class Dmc(Threaded):
    """A robot in its world, with one or all of its rewards."""

    family = "dmc"
    has_goals = False
    extra_columns: tuple[str, ...] = (PHYSICS,)

    def __init__(self, name: str, rewards: Sequence[str], threads: int | None = None) -> None:
        self.name = name
        self.domain_name = name.removesuffix(SUFFIX).partition("_")[0]
        self.kind = DOMAINS[self.domain_name]
        self.max_steps, self.score_scale = self.kind.max_steps, self.kind.score_scale
        self.observation_parts = self.kind.parts
        self.observation_dim = sum(int(np.prod(shape)) for _, shape in self.kind.parts)
        self.columns: Mapping[str, int] = column_names(self.kind.parts)
        self.rewards = {reward: partial(self._label, reward) for reward in rewards}
        self.threads = threads or cores()

    @cached_property
    def domain(self) -> Domain:
        return self.kind()

    @cached_property
    def action_dim(self) -> int:  # type: ignore[override]
        return int(self.domain.model.nu)

    @cached_property
    def physics_dim(self) -> int:
        model = self.domain.model
        return int(model.nq + model.nv + model.na)

    @property
    def fps(self) -> float:
        return float(1 / (self.domain.substeps * self.domain.model.opt.timestep))

    def _label(self, name: str, s: np.ndarray, a: np.ndarray, s2: np.ndarray, extras: Any) -> np.ndarray:
        return self.reward_of(extras.after(PHYSICS), name)

    def reward_of(self, physics: np.ndarray, name: str) -> np.ndarray:
        """The reward [n] of being in these physics states [n, p], as the simulator pays it after a step."""
        if name not in self.kind.rewards:
            raise HilpError(f"{self.domain_name} has no reward '{name}': {nearest(name, self.kind.rewards)}")
        return self.kind.rewards[name](*self.measure(physics).T)

    @property
    def speed_edges(self) -> Sequence[float]:
        return () if self.kind.speed is None else SPEED_EDGES

    def speeds(self, s: np.ndarray, a: np.ndarray, s2: np.ndarray, extras: Any) -> np.ndarray:
        """The forward speed [n] after each transition, in m/s: below zero backward."""
        speed: np.ndarray = self.measure(extras.after(PHYSICS))[:, self.kind.speed]
        return speed

    def measure(self, physics: np.ndarray) -> np.ndarray:
        """What rewards are made of [n, k], e.g. height, uprightness, speed and spin for the walker."""
        states, put = self._states(physics), self.domain.putting()
        return np.array([self.domain.measure(put(row)) for row in states], np.float64).reshape(len(states), -1)

    def _states(self, physics: np.ndarray) -> np.ndarray:
        states = np.asarray(physics, np.float64)
        if states.ndim != 2 or states.shape[1] != self.physics_dim:
            raise HilpError(
                f"physics of {self.domain_name} has {self.physics_dim} numbers a state, not shape {states.shape}"
            )
        return states

    def episodes(self, rng: np.random.Generator, n: int, start: Given = None, goal: Given = None) -> "DmcEpisodes":
        """n episodes from random starts, or all from one physics state."""
        if goal is not None:
            raise HilpError(f"{self.name} has rewards and no goals: prompt with one of {some(list(self.rewards))}")
        return DmcEpisodes(self, [self._begin(int(rng.integers(2**32)), start) for _ in range(n)])

    def _begin(self, seed: int, start: np.ndarray | None) -> Any:
        domain = self.domain
        if start is None:
            domain.begin(seed)
            return copy.copy(domain.physics.data.ptr)
        data = domain.putting()(self._states(np.asarray(start)[None])[0])
        with domain.physics.model.disable("actuation"):  # there is no action yet, as after a reset
            domain.mujoco.mj_forward(domain.model, data)
        return data

    def near(self, observations: np.ndarray, goal: np.ndarray) -> np.ndarray:
        raise HilpError(f"{self.name} has no goals: prompt with one of its rewards, {some(list(self.rewards))}")

    def draw(self, ax: Axes) -> None:
        x, y = self.kind.axes
        ax.set(xlabel=x, ylabel=y)

    def place(self, observations: np.ndarray) -> np.ndarray:
        """Two telling numbers of each observation: what robots do has no place on a map."""
        return np.asarray(observations)[:, list(self.kind.axes.values())]

    def film(self, observations: np.ndarray, physics: np.ndarray) -> np.ndarray:
        return self.frames(physics, (240, 320))

    def frames(
        self, physics: np.ndarray, size: tuple[int, int] = (SIDE, SIDE), camera: int | str | None = None
    ) -> np.ndarray:
        """Pictures uint8 [t, height, width, 3] of physics states [t, p], without shadows and reflections."""
        states, domain, mujoco, model = self._states(physics), self.domain, self.domain.mujoco, self.domain.model
        try:
            view = model.camera(domain.camera if camera is None else camera).id
        except (KeyError, IndexError) as error:
            named = [model.camera(number).name for number in range(model.ncam)]
            raise HilpError(f"{self.domain_name} has no camera {camera!r}: {nearest(str(camera), named)}") from error
        put = domain.putting(mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_camlight)
        return render(model, states, size, view, put)


class DmcEpisodes(BaseEpisodes):
    """n episodes that step MuJoCo directly, in the order in which dm_control steps it.

    What depends on position and velocity is of now, force and acceleration sensors are of the substep before.
    """

    def __init__(self, world: Dmc, simulations: list[Any]) -> None:
        self._world, self.simulations = world, simulations  # MuJoCo's data of each episode
        self._arrays = Arrays(simulations)
        self._low, high = world.domain.model.actuator_ctrlrange.T
        self._half_range = (high - self._low) / 2
        self._observe()
        self.goals = np.full_like(self.observations, np.nan)

    def _observe(self) -> None:
        self.observations = np.concatenate(self._world.domain.observe(self._arrays), axis=1).astype(np.float32)

    def step(self, actions: np.ndarray) -> None:
        """One step of control with actions [n, act] inside [-1, 1]."""
        controls = self._low + self._half_range * (np.clip(np.asarray(actions, np.float64), -1, 1) + 1)
        self._world.share_out(self._advance, np.arange(len(controls)), controls)
        self._observe()

    def _advance(self, episode: int, control: np.ndarray) -> None:
        domain, data = self._world.domain, self.simulations[episode]
        mujoco, model, more = domain.mujoco, domain.model, domain.substeps - 1
        data.ctrl[:] = control
        mujoco.mj_step2(model, data)
        if more:
            mujoco.mj_step(model, data, more)
        mujoco.mj_step1(model, data)

    def extra(self, name: str) -> np.ndarray:
        """ "physics" [n, p]: positions, velocities and activations, from which rewards and images are made."""
        if name != PHYSICS:
            return super().extra(name)
        return np.concatenate([self._arrays.qpos, self._arrays.qvel, self._arrays.act], axis=1)


class PixelDmc(Dmc):
    """A robot whose policies see images; rewards are of its physics."""

    image_parts = ((PART, (SIDE, SIDE, 3 * FRAMES), "uint8"),)

    def episodes(self, rng: np.random.Generator, n: int, start: Given = None, goal: Given = None) -> "PixelDmcEpisodes":
        return PixelDmcEpisodes(self, super().episodes(rng, n, start, goal).simulations)

    def render_dataset(self, data: Dataset, progress: Callable[[int], None] | None = None) -> Dataset:
        """Data of this robot's states with images of them as observations, in stacks; each frame is kept once."""
        if PHYSICS not in data.extras:
            raise HilpError(f"{data.name} has no column '{PHYSICS}', of which images are rendered: keep it in the data")
        named = {"task": self.name, "name": re.sub(rf"^{self.domain_name}\b", self.name, data.name)}
        physics, shape = data.extras[PHYSICS], (SIDE, SIDE, 3)
        return with_images(data, PART, self.frames, physics, shape, progress, BLOCK, **named).in_frames(FRAMES)


class PixelDmcEpisodes(DmcEpisodes):
    """n episodes with images of each."""

    def __init__(self, world: Dmc, simulations: list[Any]) -> None:
        self._recent, domain = Recent(FRAMES), world.domain
        self._camera = domain.model.camera(domain.camera).id
        self._screen = ExitStack()  # closed with these episodes: opening it takes longer than a picture
        self._draw = self._screen.enter_context(drawing(domain.model, SIDE, SIDE))
        super().__init__(world, simulations)

    def _observe(self) -> None:
        super()._observe()
        images = np.empty((len(self.simulations), SIDE, SIDE, 3), np.uint8)
        for data, image in zip(self.simulations, images, strict=True):
            self._draw(data, self._camera, image)
        self.images = {PART: self._recent.add(images)}

    def __del__(self) -> None:
        self._screen.close()
