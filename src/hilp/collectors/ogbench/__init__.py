"""OGBench's data made anew, without a download: seeded, in parallel, and to be interrupted at any time.

Points and arms follow OGBench's published recipes. Its ant experts were never published: ants walk by our own
controller here, and their data cannot be compared with published numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.collectors import processes
from hilp.collectors.ogbench import mazes, play
from hilp.errors import HilpError, nearest
from hilp.tasks import ogbench
from hilp.tasks.ogbench import OgbenchTask
from hilp.tasks.ogbench.environments import VERSION
from hilp.tasks.ogbench.mazes import OgbenchMaze

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset

KINDS = (*mazes.KINDS, *play.KINDS)


def kinds(world: OgbenchTask) -> tuple[str, ...]:
    """The kinds of data of a task, the usual one first."""
    return tuple(mazes.KINDS) if isinstance(world, OgbenchMaze) else play.KINDS


def collect(
    world: OgbenchTask,
    kind: str,
    steps: int,
    seed: int,
    out: Path,
    progress: Callable[[int], None] | None = None,
    workers: int | None = None,
    overwrite: bool = False,
) -> Dataset:
    """Exactly `steps` transitions in episodes as long as OGBench's (the last may be shorter), over `workers` processes.

    An interrupted collection goes on where it was when called again with the same arguments; `workers` may differ.
    """
    from hilp.collectors.filming import film  # here, because worker processes have no use for what they import
    from hilp.collectors.shards import collection
    from hilp.tasks.ogbench.visual import Visual

    if kind not in kinds(world):
        raise HilpError(f"unknown kind of data '{kind}' of {world.name}: {nearest(kind, kinds(world))}")
    if isinstance(world, Visual):
        plain = ogbench.make(world.plain_name)
        identity = {"task": world.name, "kind": kind, "steps": steps, "seed": seed}
        states = lambda beside, told: collect(plain, kind, steps, seed, beside, told, workers, overwrite)  # noqa: E731
        return film(out, identity, states, world.render_dataset, progress, overwrite)
    if isinstance(world, OgbenchMaze):
        mazes.require(world)
        length, block = mazes.episode_steps(world, kind), mazes.block(world, kind)
        make: Callable[[], Any] = partial(mazes.Collector, world.name, kind, seed)
    else:
        length, block = play.EPISODE_STEPS, play.BLOCK
        make = partial(play.Collector, world.name, seed)
    workers = processes.count(workers)
    lengths = np.full(-(-steps // length), length)
    lengths[-1] -= lengths.sum() - steps
    pieces = [
        (number, lengths[first : first + block].tolist()) for number, first in enumerate(range(0, len(lengths), block))
    ]
    identity = {"task": world.name, "kind": kind, "steps": steps, "seed": seed}
    with collection(out, identity, overwrite) as shards:
        done = -(-shards.episodes() // block)  # every file on the way is a whole piece, the last one may be shorter
        for episodes in processes.in_order(make, pieces[done:], workers):
            shards.add(episodes)
            if progress:
                progress(shards.transitions())
        name = f"{world.name.removesuffix(VERSION)}-{kind}"
        return shards.finish(name, name)  # a name of the same task, which presets know by its kind of data, too
