"""Collectors: unlabeled data from a task, with no download. One file a family of tasks; none imports this one.

A collector has `KINDS`, the usual first, and `collect(world, request)`, which gives a data set of exactly
`request.steps` transitions. Where tasks of a family differ, `kinds(world)` lists those of one task; where a
request may not fit a task, `require(world, request)` raises. One that learns has a `Config`. A collector with
`IN_MEMORY` is quick and needs no folder to write to.
"""

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hilp import plugins, storage, tasks
from hilp.collectors.collecting import IDENTITY, Request
from hilp.data.dataset import Dataset, require_free
from hilp.errors import (
    HilpError,
    nearest,
    place_of,
    require_count,
    require_function,
    require_name,
    require_seed,
    require_switch,
)
from hilp.tasks import Task
from hilp.tasks.base import with_workers
from hilp.tasks.rendering import SUFFIX, VISUAL

COLLECTORS: dict[str, str] = {  # family of tasks -> file, imported alone: some bring a learner along
    "maze": "hilp.collectors.maze",
    "antmaze": "hilp.collectors.antmaze",
    "ant-open": "hilp.collectors.antmaze",
    "kitchen": "hilp.collectors.kitchen",
    "dmc": "hilp.collectors.dmc",
    "ogbench": "hilp.collectors.ogbench",
}
SKILLS, EXPLORING = "skills", "hilp.collectors.exploring"  # a kind of data in any task
ACTING = "hilp.collectors.acting"  # in every other task, and with a function of the user's own in any


def collect(
    task: str | Task,
    kind: str | None = None,
    steps: int = 300_000,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    config: Mapping[str, Any] | None = None,
) -> Dataset:
    """`steps` transitions of this kind of behaviour in a task; `kind` defaults to the family's first.

    kind: as the family has them (mazes: navigate, explore, stitch; robots: rnd, apt, random; AntMaze: diverse, play;
    others: wander, random); in any task skills, rounds of learning and exploring that need no data, or
    path/to/file.py:act for a function of an observation (and a generator) of your own.

    out: folder to write. Mazes need none; simulators do, because they take minutes: an interrupted collection continues
    when it is called again with the same arguments. workers: processes or threads that simulate, by default one a core,
    and of environments of Gymnasium this process alone. config: values of the learners that explore (rnd, apt), e.g.
    {"width": 1024}.
    """
    steps, seed = require_count("steps", steps), require_seed(seed)
    workers = None if workers is None else require_count("workers", workers)
    world = tasks.make(task) if isinstance(task, str) else task
    if not hasattr(world, "family"):
        raise HilpError(f"data is collected in a task, by name or as it is, not in {task!r:.60}")
    kind = None if kind is None else require_name("the kind of behaviour", kind)
    require_function("progress", progress)
    own_code = kind is not None and plugins.names_code(kind)
    family = ACTING if own_code else COLLECTORS.get(world.family, ACTING)
    collector = importlib.import_module(EXPLORING if kind == SKILLS else family)
    if out is None and not getattr(collector, "IN_MEMORY", False):
        raise HilpError(f"collecting in {world.name} takes minutes and can be interrupted: give a folder, out=...")
    kinds = tuple(collector.kinds(world) if hasattr(collector, "kinds") else collector.KINDS)
    kind = kinds[0] if kind is None else kind
    if kind not in kinds and not own_code:
        close = nearest(kind, [*kinds, SKILLS])
        raise HilpError(f"unknown kind of {world.name} data '{kind}': {close}; or path/to/file.py:act of your own")
    if config and not hasattr(collector, "Config"):
        raise HilpError(f"nothing learns when data of {world.name} is collected: leave out --set and config=")
    folder = None if out is None else place_of("out", out)
    require_switch("overwrite", overwrite)
    return run(collector, world, Request(kind, steps, seed, folder, progress, workers, overwrite, config or {}))


def run(collector: Any, world: Any, request: Request) -> Dataset:
    """What a collector gives for a request.

    Where policies see images, states are collected first, in a folder of their own, which a later call renders where
    this one is interrupted. A transition counts half when its state is collected.
    """
    if hasattr(collector, "require"):
        collector.require(world, request)
    with with_workers(world, request.workers) as world:
        return _run(collector, world, request)


def _run(collector: Any, world: Any, request: Request) -> Dataset:
    if not hasattr(world, "render_dataset") or collector.__name__ == ACTING:
        done: Dataset = collector.collect(world, request)
        return done
    require_free(request.folder, request.overwrite)
    beside, progress = request.folder.with_name(f"{request.folder.name}-states"), request.report
    note, identity = beside / IDENTITY, request.identity(world.name, config=repr(request.config))
    if note.is_file() and storage.read_json(note) == identity:
        states = Dataset.open(beside)
    else:
        half = replace(request, out=beside, progress=lambda done: progress(done // 2))
        plain = tasks.make(world.name.removeprefix(VISUAL).removesuffix(SUFFIX))
        states = run(collector, plain, half)
        storage.write_json(note, identity)
    images = world.render_dataset(states, lambda done: progress((request.steps + min(done, request.steps)) // 2))
    return Dataset.open(images.save(request.folder, overwrite=request.overwrite))
