"""Loading data: built-in data sets ("maze-large"), which are collected on the spot, and all that `hilp.data` reads.

`hilp.data` knows no task. What tasks know about data is added here: the built-in names, and the task that a file or a
folder is named after.
"""

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from hilp import collectors, tasks
from hilp.collectors import maze as collect_maze
from hilp.data import load as loading
from hilp.data.dataset import Dataset
from hilp.data.formats import episodes
from hilp.data.source import Source, of_dataset
from hilp.data.transforms import Parts
from hilp.errors import HilpError, nearest, require_name
from hilp.tasks import dmc, kitchen, maze, ogbench, rendering
from hilp.tasks.base import require_order
from hilp.tasks.maze import chance
from hilp.tasks.ogbench.task import VERSION, of_data

BUILT_IN = "built-in"
BUILT_IN_STEPS = 300_000  # transitions of a built-in data set
BUILT_IN_FRAMES = 100_000  # the same where they are pictures, which are 300 MB then
BUILT_IN_KIND = "navigate"  # what "maze-large" stands for
# What names of files of D4RL and of data sets of Minari have in them -> the task.
KITCHENS = {"mixed": "mixed", "bottomburner_light": "mixed", "mini_kitchen": "complete", "complete": "complete"}
KITCHENS |= {"partial": "partial", "light_slider": "partial"}

Data = TypeVar("Data", Dataset, Source)


def built_in_names() -> dict[str, tuple[str, str]]:
    """Built-in data sets: name -> (task, kind of collector)."""
    mazes = [*maze.names(), *chance.names()]
    names = {task: (task, BUILT_IN_KIND) for task in mazes}
    return names | {f"{task}-{kind}": (task, kind) for task in mazes for kind in sorted(collect_maze.KINDS)}


def load(
    source: Any,
    format: str | None = None,
    *,
    rescale_actions: bool = False,
    stride: int | str | None = None,
    stride_actions: Literal["mean", "sum"] = "mean",
    frames: int | None = None,
    task: str | None = None,
    steps: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Dataset:
    """A data set from a built-in name, a path, a Minari id or a dict of arrays.

    The format is recognised by content (`Dataset.format` says which it was) unless `format` names one of FORMATS;
    `options` are those of its reader, plus `episodes` (the first so many) and `extras` (names of the extra columns to
    keep). `stride` keeps every so many rows ("auto": as the data's time scale asks for), with the commands in between
    averaged or, with stride_actions="sum", added up; where none is given, training may choose. `frames` is how many
    pictures networks see at once, a row's and those before it, where observations are films. `task` names the task
    of data that names none, or another one. `steps` and `seed` apply to built-in names, which are collected on the
    spot. The result is checked: what cannot be trained on is an error that says which rows and what to do.
    """
    format = None if format is None else require_name("format", format)
    prepared: dict[str, Any] = {"rescale_actions": rescale_actions, "stride": stride, "stride_actions": stride_actions}
    built_in = _built_in(source, format, {"steps": steps, "seed": seed, **options})
    if built_in is not None:
        data = loading.load(built_in, **prepared)
    elif steps is not None:
        raise HilpError(
            f"steps is for built-in data sets, and {loading.name_of(source)} is none: take fewer episodes with "
            "episodes="
        )
    else:
        data = _with_task(loading.load(source, format, **prepared, **options), source, options.get("convention"))
    data = data if task is None else in_task(data, task)
    if frames is None:
        return data
    if (data.stride or 1) > 1:
        raise HilpError(f"{data.name}: frames are those of neighbouring rows, which a stride leaves out: choose one")
    return data.in_frames(frames).as_checked()  # of rows that were checked


def in_task(data: Data, task: str) -> Data:
    """The data as that of a task; an error where it has other sizes."""
    world = tasks.make(task)
    action_dim = data.action_dim if isinstance(data, Dataset) else math.prod(data.action.shape)
    sizes, wanted = (data.observation_dim, action_dim), rendering.policy_spec(world)
    if sizes != (wanted.observation_dim, wanted.action_dim):
        raise HilpError(
            f"{data.name} has {sizes[0]} observation and {sizes[1]} action numbers, task {world.name} has "
            f"{wanted.observation_dim} and {wanted.action_dim}: choose the task it comes from"
        )
    require_order(data.name, data.observation_parts, world)
    return replace(data, task=task)


def open_source(source: Any, format: str | None = None, **options: Any) -> Source:
    """A source for anything `load` takes, for `convert` and `inspect`; only built-in data is collected now."""
    built_in = _built_in(source, format, options)
    if built_in is not None:
        return of_dataset(built_in)
    return _with_task(loading.open_source(source, format, **options), source, options.get("convention"))


def _built_in(source: Any, format: str | None, options: dict[str, Any]) -> Dataset | None:
    """The built-in data set of this name, collected now; None of anything else, and a name of nothing is an error."""
    if format != BUILT_IN and (format is not None or not isinstance(source, str | os.PathLike)):
        return None
    name, names = str(source), built_in_names()
    if name not in names:
        if format == BUILT_IN:
            raise HilpError(f"there is no built-in data set '{name}': {nearest(name, names)}")
        if loading.is_missing(source) and loading.is_name(Path(source)):
            close = nearest(name, [*names, *episodes.minari_ids()])
            raise HilpError(f"there is no file, no Minari data set and no built-in data set '{source}': {close}")
        return None
    known = ("steps", "seed")
    for option in options:
        if option not in known:
            raise HilpError(f"'{option}' is no option of a built-in data set: {nearest(option, known)}")
    task, kind = names[name]
    steps = options.get("steps")
    if steps is None:
        steps = BUILT_IN_FRAMES if rendering.policy_spec(tasks.make(task)).parts else BUILT_IN_STEPS
    return replace(collectors.collect(task, kind, steps, options.get("seed", 0)), format=BUILT_IN)


def _with_task(data: Data, source: Any, convention: str | None) -> Data:
    """The data with the task that its folder or file is named after, where the sizes fit."""
    path = Path(source) if isinstance(source, str | os.PathLike) else None
    if convention == "kitchen":
        return _of_kitchen(data, path or Path())
    if path is None:
        return data
    if data.format == "ogbench" and data.task is None:
        # Like pointmaze-large-stitch-v0-val.npz.
        name = path.name.removesuffix(".npz").removesuffix("-val").removesuffix(VERSION)
        if of_data(name.removeprefix(rendering.VISUAL)) is not None:
            return _named_after(data, "file", name, rendering.policy_spec(ogbench.make(name)).observation_dim)
    if data.format == "exorl":
        folder = path.resolve()
        domain = (folder.parent if folder.name == "buffer" else folder).parent.name
        if domain in dmc.DOMAINS:
            robot = dmc.make(domain)
            return _named_after(data, "folder", domain, robot.observation_dim, robot.observation_parts)
    return data


def _named_after(data: Data, what: str, task: str, size: int, parts: Parts = ()) -> Data:
    """The data as that of a task that its file or folder is named after, unless the task's observations differ."""
    if data.observation_dim != size:
        note = f"the {what} is named {task}, whose observations have {size} numbers: not taken as that task"
        return replace(data, notes=(note, *data.notes))
    note = f"taken as data of the task {task}, after its {what}"
    return replace(data, task=task, observation_parts=parts or data.observation_parts, notes=(note, *data.notes))


def _of_kitchen(data: Data, path: Path) -> Data:
    data = replace(data, observation_parts=kitchen.PARTS)
    for text in (path.name, path.parent.name):  # of Minari's .../mixed-v2/data
        for word, kind in KITCHENS.items():
            if word in text:
                return _named_after(data, "file", f"kitchen-{kind}", data.observation_dim)
    note = f"nothing says which subtasks count: name the task, one of {', '.join(kitchen.names())}"
    return replace(data, notes=(note, *data.notes))
