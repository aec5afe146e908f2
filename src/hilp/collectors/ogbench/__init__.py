"""OGBench's data without a download: seeded, in parallel, and safe to interrupt.

Points and arms follow OGBench's published recipes. Its ant experts were never published: ants walk by our own
controller here, and their data cannot be compared with published numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from hilp.collectors.collecting import Request, collect_blocks
from hilp.collectors.ogbench import mazes, play
from hilp.tasks.ogbench import VERSION, OgbenchTask
from hilp.tasks.ogbench.mazes import OgbenchMaze

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset

KINDS = (*mazes.KINDS, *play.KINDS)


def kinds(world: OgbenchTask) -> tuple[str, ...]:
    return tuple(mazes.KINDS) if isinstance(world, OgbenchMaze) else play.KINDS


def collect(world: OgbenchTask, request: Request) -> Dataset:
    """Episodes as long as OGBench's, simulated by several processes."""
    kind, seed = request.kind, request.seed
    if isinstance(world, OgbenchMaze):
        mazes.require(world)
        length, block = mazes.episode_steps(world, kind), mazes.block(world, kind)
        make: Callable[[], Any] = partial(mazes.Simulation, world.name, kind, seed)
    else:
        length, block = play.EPISODE_STEPS, play.BLOCK
        make = partial(play.Simulation, world.name, seed)
    name = f"{world.name.removesuffix(VERSION)}-{kind}"  # also a name of the task: presets know it by its kind of data
    return collect_blocks(request, request.identity(world.name), make, length, block, name, name)
