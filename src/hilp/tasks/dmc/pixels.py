"""DeepMind Control seen by a camera: 64 x 64 pixels, three frames at once, as in the paper's experiments from pixels.

Pictures are drawn from physics states, so data that holds them (as ExORL's does) can be seen without simulating again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.data.frames import Recent
from hilp.errors import HilpError
from hilp.tasks.dmc.task import Dmc, DmcEpisodes
from hilp.tasks.rendering import SUFFIX, render_in_blocks
from hilp.tasks.simulator import drawing

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset

SIDE = 64  # pixels of a picture
FRAMES = 3  # that policies see at once
PART = "pixels"
PHYSICS = "physics"
BLOCK = 1000  # pictures between two words of progress


class PixelDmc(Dmc):
    """A robot whose policies see pictures; rewards are of its physics, as ever."""

    image_parts = ((PART, (SIDE, SIDE, 3 * FRAMES), "uint8"),)

    def __init__(self, name: str, rewards: Sequence[str], threads: int | None = None) -> None:
        super().__init__(name.removesuffix(SUFFIX), rewards, threads)
        self.name = name

    @property
    def plain(self) -> Dmc:
        """The same robot, by its states."""
        return Dmc(self.name.removesuffix(SUFFIX), tuple(self.rewards), self.threads)

    def episodes(
        self, rng: np.random.Generator, n: int, start: np.ndarray | None = None, goal: np.ndarray | None = None
    ) -> PixelDmcEpisodes:
        return PixelDmcEpisodes(self, super().episodes(rng, n, start, goal).simulations)

    def render_dataset(self, data: Dataset, progress: Callable[[int], None] | None = None) -> Dataset:
        """Data of this robot's states with pictures of them as observations, in stacks; each frame is kept once."""
        if PHYSICS not in data.extras:
            raise HilpError(
                f"{data.name} has no column '{PHYSICS}', from which pictures are drawn: keep it in the data"
            )
        physics = data.extras[PHYSICS]
        images = render_in_blocks(
            lambda states: self.frames(states, (SIDE, SIDE)), physics, (SIDE, SIDE, 3), progress, BLOCK
        )
        name = re.sub(rf"^{self.domain_name}\b", self.name, data.name)
        found = replace(data, observations={PART: images}, task=self.name, name=name, checked=())
        return replace(found, observation_parts=(), transform=None).in_frames(FRAMES)


class PixelDmcEpisodes(DmcEpisodes):
    """n episodes running side by side, and what a camera sees of each."""

    def __init__(self, world: Dmc, simulations: list[Any]) -> None:
        self._recent, domain = Recent(FRAMES), world.domain
        self._camera = domain.model.camera(domain.camera).id
        self._screen = ExitStack()  # closed with these episodes: opening it takes longer than a picture
        self._draw = self._screen.enter_context(drawing(domain.mujoco, domain.model, SIDE, SIDE))
        super().__init__(world, simulations)

    def _observe(self) -> None:
        super()._observe()
        pictures = np.empty((len(self.simulations), SIDE, SIDE, 3), np.uint8)
        for data, picture in zip(self.simulations, pictures, strict=True):
            self._draw(data, self._camera, picture)
        self.images = {PART: self._recent.add(pictures)}

    def __del__(self) -> None:
        self._screen.close()
