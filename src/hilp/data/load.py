"""Readers: one function a format. `load` recognises a format by content, says which it took, and guesses nothing else.

A reader makes a Source, which `load` gathers in memory and `convert` and `inspect` go through block by block.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hilp.data import checks, dataset, isolated, sources, tables
from hilp.data.columns import BLOCK_BYTES, NUMBERS, NpyStream, open_npy, open_npz
from hilp.data.dataset import Dataset, Parts
from hilp.data.jumps import StepSizes, jumps
from hilp.data.sources import Block, Kind, Source
from hilp.data.tables import Part, Table
from hilp.errors import HilpError, nearest

BUILT_IN, LOADED = "built-in", "data set"
BUILT_IN_STEPS = 300_000  # transitions of a built-in data set
BUILT_IN_KIND = "navigate"  # what "maze-large" stands for
STRUCTURE = ("episode_lengths", "episode_ends", "episode_ids", "terminals")  # columns that say where episodes end
KITCHEN_COLUMNS = (60, 30)  # numbers in a row of a D4RL Kitchen file, and how many of them are not the goal
ANTMAZE_PLACE = (0, 1)  # columns of an AntMaze observation that say where the ant is

Columns = Mapping[str, str | Sequence[str]]


def built_in_names() -> dict[str, tuple[str, str]]:
    """Built-in data sets: name -> (task, kind of collector)."""
    from hilp.collectors import maze as collect_maze
    from hilp.tasks import maze

    names = {task: (task, BUILT_IN_KIND) for task in maze.MAZES}
    return names | {f"{task}-{kind}": (task, kind) for task in maze.MAZES for kind in sorted(collect_maze.KINDS)}


# ---- load ------------------------------------------------------------------------------------------------------------


def load(
    source: Any,
    format: str | None = None,
    *,
    rescale_actions: bool = False,
    steps: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Dataset:
    """A data set from a built-in name, a path, a Minari id or a dict of arrays.

    The format is recognised by content (`Dataset.format` says which it was) unless `format` names one of FORMATS;
    `options` are those of its reader, plus `episodes` (the first so many) and `extras` (names of the extra columns to
    keep). `steps` and `seed` apply to built-in names, which are collected on the spot. The result is checked: what
    cannot be trained on is an error that says which rows and what to do.
    """
    data = _read(source, format, steps, seed, options)
    health = checks.require_trainable(data, rescale_actions)
    if rescale_actions:
        scaling = sources.Scaling(health.low, health.high)
        center, half_range = scaling.after(data.action_center, data.action_half_range)
        data = replace(data, actions=scaling(data.actions), action_center=center, action_half_range=half_range)
    return data


def _read(source: Any, format: str | None, steps: int | None, seed: int, options: dict[str, Any]) -> Dataset:
    if isinstance(source, Dataset) and not options:
        return source
    chosen = recognise(source, options) if format is None else format
    if chosen == BUILT_IN:
        return _collect(str(source), steps, seed, options)
    if steps is not None:
        raise HilpError(
            f"steps is for built-in data sets, and {_name(source)} is none: take fewer episodes with episodes="
        )
    if chosen == "native" and set(options) <= {"verify", "in_memory"}:
        return Dataset.open(_path(source), **options)
    return sources.gather(open_source(source, chosen, **options))


def _collect(name: str, steps: int | None, seed: int, options: Mapping[str, Any]) -> Dataset:
    from hilp import collectors

    for option in options:
        raise HilpError(f"'{option}' is no option of a built-in data set: {nearest(option, ('steps', 'seed'))}")
    names = built_in_names()
    if name not in names:
        raise HilpError(f"there is no built-in data set '{name}': {nearest(name, names)}")
    task, kind = names[name]
    return replace(collectors.collect(task, kind, steps or BUILT_IN_STEPS, seed), format=BUILT_IN)


def open_source(source: Any, format: str | None = None, **options: Any) -> Source:
    """A source for anything `load` takes, without reading its rows."""
    format = recognise(source, options) if format is None else format
    if format == BUILT_IN:
        steps, seed = options.pop("steps", None), options.pop("seed", 0)
        return sources.of_dataset(_collect(str(source), steps, seed, options))
    if format not in FORMATS:
        raise HilpError(f"unknown format '{format}': {nearest(format, [*FORMATS, BUILT_IN])}")
    reader = FORMATS[format]
    known = [name for name in inspect.signature(reader).parameters if name != "source"]
    for option in options:
        if option not in known and option not in COMMON:
            raise HilpError(f"'{option}' is no option of the format {format}: {nearest(option, [*known, *COMMON])}")
    common = {name: options.pop(name) for name in COMMON if name in options and name not in known}
    source = _fitting(source, format)
    found = reader(source, **options)
    if common.get("extras") is not None:
        found = sources.with_extras(found, common["extras"])
    if (episodes := common.get("episodes")) is not None:
        if not isinstance(episodes, int) or episodes < 1:
            raise HilpError(f"episodes is how many to take, at least 1, not {episodes!r}")
        found = sources.select(found, np.arange(min(episodes, found.episodes)))
    return found


def _fitting(source: Any, format: str) -> Any:
    """The source as its reader takes it: a Dataset, a dict or a path."""
    if isinstance(source, Dataset) != (format == LOADED):
        raise HilpError(f"{_name(source)} cannot be read as the format {format}")
    if isinstance(source, Dataset):
        return source
    if isinstance(source, Mapping):
        if format in FOLDERS:
            raise HilpError(f"a dict cannot be read as the format {format}: give a path")
        return source
    path = _path(source)
    if not path.exists() and format != "minari":
        raise HilpError(f"there is no file {path}")
    return path


def recognise(source: Any, options: Collection[str] = ()) -> str:
    """The format of something, by its content; `options` are what its reader will be given."""
    if isinstance(source, Dataset):
        return LOADED
    if isinstance(source, Mapping):
        return "arrays"
    path = _path(source)
    if str(source) in built_in_names():
        return BUILT_IN
    if path.is_dir():
        return _recognise_folder(path)
    if path.is_file():
        return _recognise_file(path, plain="columns" in options)
    if _minari_folder(path) is not None:
        return "minari"
    if path.suffix or len(path.parts) > 2:  # a path, not a name or an id
        raise HilpError(f"there is no file or folder {path}")
    close = nearest(str(source), [*built_in_names(), *_local_minari_ids()])
    raise HilpError(f"there is no file, no Minari data set and no built-in data set '{source}': {close}")


def _recognise_folder(path: Path) -> str:
    if dataset.is_native(path):
        return "native"
    if _minari_folder(path) is not None:
        return "minari"
    files = _exorl_files(path)
    if files and {"observation", "action"} <= open_npz(files[0]).keys():
        return "exorl"
    inside = sorted(str(child.parent.relative_to(path)) for child in path.glob("*/buffer"))
    if inside:
        raise HilpError(f"{path} holds several ExORL data sets: name one of them, {', '.join(inside)}")
    raise HilpError(
        f"{path} is not a data set: it has no dataset.json (native), no data/metadata.json (Minari) and no .npz "
        "episodes with observation and action (ExORL)"
    )


def _recognise_file(path: Path, plain: bool) -> str:
    kind = tables.magic(path)
    if kind is None:
        raise HilpError(
            f"{path} is not a file hilp can read: it reads .npz and HDF5 files; load other files yourself and give "
            "hilp a dict of arrays"
        )
    if plain:
        return kind
    names = set(tables.open_table(path).columns)
    if kind == "npz":
        if {"observation", "action"} <= names and "observations" not in names:
            raise HilpError(f"{path} is one episode of an ExORL folder: give the folder")
        only_terminals = names & {*STRUCTURE, "timeouts", "next_observations"} == {"terminals"}
        return "ogbench" if {"observations", "actions"} <= names and only_terminals else "npz"
    if any(name.startswith("episode_0/") for name in names):
        raise HilpError(f"{path} is a part of a Minari data set: give its folder or its id")
    flags = names & {"terminals", "timeouts"} and not names & {"episode_lengths", "episode_ends", "episode_ids"}
    return "d4rl" if {"observations", "actions"} <= names and flags else "hdf5"


def _path(source: Any) -> Path:
    if not isinstance(source, str | os.PathLike):
        raise HilpError(f"cannot load data from a {type(source).__name__}: give a name, a path or a dict of arrays")
    try:
        path = Path(source)
        path.exists()
    except (ValueError, OSError, TypeError) as error:  # a null byte, a name too long
        raise HilpError(f"{str(source)[:80]!r} is not a path: {error}") from error
    return path


def _name(source: Any) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else f"a {type(source).__name__}"


# ---- one function a format -------------------------------------------------------------------------------------------


def loaded(source: Dataset) -> Source:
    """A data set that is loaded already."""
    return sources.of_dataset(source)


def native(source: Path, *, verify: bool = False) -> Source:
    """hilp's own folder, written by `Dataset.save` and `convert`. `verify` compares every file with its hash."""
    opened = Dataset.open(source, verify=verify)
    manifest = dataset.read_manifest(source)
    files = [source / name for name in manifest["files"]]
    # Plain reads instead of the memory map, whose pages would count as memory of this process.
    columns: dict[str, NpyStream] = {
        name: open_npy(source / dataset.file_name(name))
        for name in ("observations", "actions", *(f"extra.{name}" for name in opened.extras))
    }

    def read(start: int, stop: int) -> Block:
        extras = {name: columns[f"extra.{name}"][start:stop] for name in opened.extras}
        return Block(columns["observations"][start:stop], columns["actions"][start:stop], extras)

    return replace(
        sources.of_dataset(opened),
        read=read,
        disk_bytes=sum(file.stat().st_size for file in files),
        identity=tables.identity_of(files),
    )


def arrays(
    source: Mapping[str, Any] | Path,
    *,
    columns: Columns | None = None,
    flatten: bool = False,
    drop_short: bool = False,
    extras: Sequence[str] | None = None,
) -> Source:
    """Named arrays: a dict, an .npz or an HDF5 file.

    `observations` [rows, d] and `actions`, with one of: `episode_lengths` (rows of each episode), `episode_ends` (the
    row number after each episode's last), `episode_ids` (a number or name a row, the same within an episode),
    `terminals` (true on each episode's last row; `timeouts` beside them end an episode too). Actions have a row per
    observation (the last of each episode is ignored) or one fewer per episode. With `next_observations` every row is a
    whole transition instead, and the final state of each episode is added. Any other array with a row per observation
    becomes a named extra column.

    `columns` says what these arrays are called in the source, {"observations": ["qpos", "qvel"], "actions": "ctrl"}:
    several are put side by side. `flatten` allows rows that are images; `drop_short` leaves out episodes of one row.
    """
    table = tables.open_table(source)
    renamed, parts = _renamed(table, columns)
    for key in ("observations", "actions"):
        if key not in parts:
            raise HilpError(
                f"{table.name}: there is no '{key}' array among: {', '.join(sorted(table.columns)) or 'nothing'}"
                + ("" if columns else f" (say which it is with columns={{'{key}': ...}})" if table.columns else "")
            )
    observations = Part(renamed, "observations", parts["observations"], flatten)
    actions = Part(renamed, "actions", parts["actions"])
    following = None
    if "next_observations" in parts:
        following = Part(renamed, "next_observations", parts["next_observations"], flatten)
    lengths, endings = _episode_lengths(renamed, parts, observations.rows)
    spent = {name for key in (*PARTS, *STRUCTURE, "timeouts") for name in parts.get(key, ())}
    others = {name: column for name, column in renamed.columns.items() if name not in spent}
    notes: list[str] = []
    if table.kind != "arrays":  # a file is as it is; a dict can be given without what does not fit
        fits = {observations.rows, actions.rows}
        odd = [n for n, c in others.items() if c.shape[:1] not in {(r,) for r in fits} or c.dtype.kind not in NUMBERS]
        others = {name: column for name, column in others.items() if name not in odd}
        notes = _left_out([*odd, *table.others])
    for name, column in others.items():
        if column.dtype.kind not in NUMBERS:
            raise HilpError(f"{table.name}: extra column '{name}' is not numbers ({column.dtype}): drop it")
    kept = {name: others[name] for name in sources.choose_extras(others, extras, table.name)}
    found = tables.lay_out(renamed, table.kind, lengths, observations, actions, following, kept, endings, notes)
    if columns and "observations" in columns:
        shapes = {name: renamed.columns[name].shape[1:] for name in parts["observations"]}
        found = replace(found, observation_parts=tuple(shapes.items()))
    return tables.without_short(found) if drop_short else found


def d4rl(
    source: Mapping[str, Any] | Path,
    *,
    convention: Literal["antmaze", "kitchen"] | None = None,
    detect_jumps: bool = False,
    flatten: bool = False,
    extras: Sequence[str] | None = None,
) -> Source:
    """D4RL's HDF5 (or a dict or .npz of the same arrays): rows in order, an episode ends at a terminal or a timeout.

    Consecutive rows of an episode are consecutive states, so the last row of each is its final state. `detect_jumps`
    also cuts where observations jump, for files with wrong or no timeouts. Conventions: "antmaze" cuts at timeouts and
    never at terminals (they mean "at the goal", and the walk goes on), or at jumps of the place where there are no
    timeouts; "kitchen" keeps the first 30 of 60 numbers, the others being the goal. Rewards, flags and infos become
    extras.
    """
    if convention not in (None, "antmaze", "kitchen"):
        raise HilpError(f"unknown convention '{convention}': {nearest(str(convention), ('antmaze', 'kitchen'))}")
    table = tables.open_table(source)
    width = (table["observations"].shape[1:] or (0,))[0]
    if convention == "kitchen" and width != KITCHEN_COLUMNS[0]:
        raise HilpError(f"{table.name}: Kitchen files have rows of {KITCHEN_COLUMNS[0]} numbers, this one has {width}")
    keep = KITCHEN_COLUMNS[1] if convention == "kitchen" else None
    observations = Part(table, "observations", ["observations"], flatten, keep)
    actions = Part(table, "actions", ["actions"])
    rows = observations.rows
    terminals, timeouts = tables.flags(table, "terminals", rows), tables.flags(table, "timeouts", rows)
    notes = _d4rl_hints(table, width, terminals, convention)

    ends = np.zeros(rows, bool)
    if terminals is not None and convention != "antmaze":
        ends |= terminals
    if timeouts is not None:
        ends |= timeouts
    antmaze_jumps = convention == "antmaze" and timeouts is None
    if terminals is None and timeouts is None and not antmaze_jumps and not detect_jumps:
        raise HilpError(
            f"{table.name}: nothing says where episodes end (no terminals, no timeouts): pass detect_jumps=True to cut "
            "where observations jump, or use format='hdf5' with columns"
        )
    if detect_jumps or antmaze_jumps:
        found = _jumps_of(observations, ANTMAZE_PLACE if convention == "antmaze" else None, table.name)
        new = found[~ends[found]]
        ends[found] = True
        notes.append(f"cut at {len(found)} jumps of the observations, {len(new)} of them not flagged in the file")
    if rows:
        ends[-1] = True
    last = np.flatnonzero(ends)
    lengths = np.diff(last, prepend=-1).astype(np.int64)

    spent = ("observations", "actions", "next_observations")
    others = {
        n: c for n, c in table.columns.items() if n not in spent and c.shape[:1] == (rows,) and c.dtype.kind in NUMBERS
    }
    odd = [name for name in table.columns if name not in spent and name not in others]
    kept = {name: others[name] for name in sources.choose_extras(others, extras, table.name)}
    notes += _left_out([*odd, *table.others])
    laid_out = tables.lay_out(table, "d4rl", lengths, observations, actions, None, kept, None, notes)
    no = np.zeros(rows, bool)
    endings = _endings(
        last[lengths >= 2],
        no if terminals is None or convention == "antmaze" else terminals,
        no if timeouts is None else timeouts,
    )
    return replace(tables.without_short(laid_out), endings=endings)


def ogbench(
    source: Mapping[str, Any] | Path,
    *,
    split: Literal["train", "val"] | None = None,
    flatten: bool = False,
    extras: Sequence[str] | None = None,
) -> Source:
    """OGBench's .npz: `terminals` is 1 on each episode's last row. `split` picks the file or its "-val" sibling."""
    if split not in (None, "train", "val"):
        raise HilpError(f"split is 'train' or 'val', not '{split}'")
    if split is not None:
        if isinstance(source, Mapping):
            raise HilpError("split picks one of two files, and this is a dict")
        source = source.with_name(source.stem.removesuffix("-val") + ("-val" if split == "val" else "") + source.suffix)
        if not source.is_file():
            raise HilpError(f"there is no file {source}")
    found = arrays(source, flatten=flatten, extras=extras)
    return replace(tables.without_short(found), format="ogbench", endings={})


def _exorl_task(source: Path, observation: Kind) -> tuple[str | None, Parts, tuple[str, ...]]:
    """The task that an ExORL folder is named after, where its observations have that task's size."""
    from hilp.tasks import dmc

    folder = source.resolve()
    folder = folder.parent if folder.name == "buffer" else folder
    domain = folder.parent.name
    if domain not in dmc.DOMAINS:
        return None, (), ()
    parts = dmc.DOMAINS[domain].parts
    size = sum(math.prod(shape) for _, shape in parts)
    if observation.shape != (size,):
        return (
            None,
            (),
            (f"the folder is named {domain}, whose observations have {size} numbers: not taken as that task",),
        )
    return domain, parts, (f"taken as data of the task {domain}, after its folder",)


def exorl(
    source: Path, *, episodes: int | None = None, flatten: bool = False, extras: Sequence[str] | None = None
) -> Source:
    """An ExORL folder (`<domain>/<algorithm>`, or its `buffer`): one episode a file, in the order of their names.

    A file has T + 1 rows; action[0] is a dummy and action[i] leads to observation[i], so actions move up by a row.
    Reward, discount, physics and whatever else has a row per observation stay with their observation, as extras;
    reward[0] and discount[0] are dummies. `episodes` reads the first so many files. Files are read as they are needed.
    """
    if episodes is not None and (not isinstance(episodes, int) or episodes < 1):
        raise HilpError(f"episodes is how many to take, at least 1, not {episodes!r}")
    files = _exorl_files(source)[:episodes]
    if not files:
        raise HilpError(f"{source} has no .npz files: give the folder of an algorithm, <domain>/<algorithm>")
    first = Table(str(files[0]), "npz", open_npz(files[0]))
    observation = Part(first, "observation", ["observation"], flatten).kind
    action = Part(first, "action", ["action"]).kind
    rows = len(first["observation"][:])
    available = {
        name: Kind(column.shape[1:], column.dtype.newbyteorder("="))
        for name, column in first.columns.items()
        if name not in ("observation", "action") and column.shape[:1] == (rows,) and column.dtype.kind in NUMBERS
    }
    kept = sources.choose_extras(available, extras, str(source))
    needed = ("observation", "action", *kept)
    lengths = np.array([_exorl_rows(file) for file in files], np.int64)

    def fetch(begin: int, stop: int) -> list[Block]:
        return [episode(number) for number in range(begin, stop)]

    def episode(number: int) -> Block:
        table = Table(str(files[number]), "npz", open_npz(files[number], needed))
        parts = Part(table, "observation", ["observation"], flatten), Part(table, "action", ["action"])
        if (parts[0].kind, parts[1].kind) != (observation, action) or parts[1].rows != lengths[number]:
            raise HilpError(
                f"{table.name} does not fit the first file: {parts[0].kind.shape} and {parts[1].kind.shape}"
            )
        shifted = np.zeros((parts[1].rows, *action.shape), np.float32)
        shifted[:-1] = parts[1].read(0, parts[1].rows)[1:]
        columns = {}
        for name in kept:
            column = table[name]
            if column.shape != (lengths[number], *available[name].shape):
                raise HilpError(f"{table.name}: '{name}' is {column.shape}, unlike in the first file")
            columns[name] = column[:].astype(available[name].dtype, copy=False)
        return Block(parts[0].read(0, parts[0].rows), shifted, columns)

    task, observation_parts, notes = _exorl_task(source, observation)
    found = Source(
        name=str(source),
        format="exorl",
        task=task,
        observation_parts=observation_parts,
        notes=notes,
        lengths=lengths,
        observation=observation,
        action=action,
        extras={name: available[name] for name in kept},
        read=sources.by_episode(lengths, fetch),
        disk_bytes=sum(file.stat().st_size for file in files),
        identity=tables.identity_of(files),
    )
    return tables.without_short(found)


def minari(
    source: Path,
    *,
    observation_keys: Sequence[str] | str | None = None,
    flatten: bool = False,
    extras: Sequence[str] | None = None,
) -> Source:
    """A local Minari data set, by id or by folder. Dict observations need `observation_keys`, put side by side.

    Rewards, terminations and truncations stand in the row of the action they came with (zero in the last row of an
    episode); infos and the observation keys that were not chosen are extras too.
    """
    folder = _minari_folder(source)
    if folder is None:
        raise HilpError(f"there is no local Minari data set '{source}': {_minari_hint(str(source))}")
    identifier, steps = isolated.open_minari(folder)
    lengths = np.asarray(steps, np.int64) + 1
    name = f"Minari {identifier}"
    if not len(lengths) or lengths.max() < 2:
        raise HilpError(f"{name}: there are no episodes")
    chosen = [observation_keys] if isinstance(observation_keys, str) else observation_keys

    def whole(episode: Mapping[str, np.ndarray], number: int) -> tuple[Part, Part, dict[str, np.ndarray]]:
        """Observations, actions and extras of an episode, checked and padded to a row per observation."""
        table = Table(f"{name}, episode {number}", "minari", episode)
        parts = _minari_keys(episode, chosen, name)
        observations = Part(table, "observations", parts, flatten)
        actions = Part(table, "actions", ["actions"] if "actions" in episode else _no_actions(episode, name))
        steps = int(lengths[number]) - 1
        if (observations.rows, actions.rows) != (steps + 1, steps):
            raise HilpError(
                f"{table.name}: {observations.rows} observations and {actions.rows} actions, but {steps} steps"
            )
        columns = {}
        for key, values in episode.items():
            if key in (*parts, "actions") or values.shape[:1] not in ((steps,), (steps + 1,)):
                continue
            padded = np.zeros((steps + 1, *values.shape[1:]), values.dtype)
            padded[: len(values)] = values
            columns[key] = padded
        return observations, actions, columns

    sample = int(np.argmax(lengths >= 2))
    observations, actions, columns = whole(isolated.read_minari(folder, sample, sample + 1)[0], sample)
    kept = sources.choose_extras(columns, extras, name)
    kinds = {key: Kind(columns[key].shape[1:], columns[key].dtype) for key in kept}

    def fetch(begin: int, stop: int) -> list[Block]:
        return [
            block(episode, begin + number) for number, episode in enumerate(isolated.read_minari(folder, begin, stop))
        ]

    def block(episode: Mapping[str, np.ndarray], number: int) -> Block:
        if lengths[number] < 2:  # left out below; only its rows are wanted
            empty = {key: np.zeros((1, *kind.shape), kind.dtype) for key, kind in kinds.items()}
            return Block(
                np.zeros((1, *observations.kind.shape), observations.kind.dtype),
                np.zeros((1, *actions.kind.shape), np.float32),
                empty,
            )
        own = whole(episode, number)
        found = {key: Kind(own[2][key].shape[1:], own[2][key].dtype) for key in kept if key in own[2]}
        if (own[0].kind, own[1].kind, found) != (observations.kind, actions.kind, kinds):
            raise HilpError(f"{name}: episode {number} has other columns than episode {sample}")
        steps = own[1].rows
        acted = np.zeros((steps + 1, *actions.kind.shape), np.float32)
        acted[:-1] = own[1].read(0, steps)
        return Block(own[0].read(0, steps + 1), acted, {key: own[2][key] for key in kept})

    files = sorted(file for file in folder.rglob("*") if file.is_file())
    first = isolated.read_minari(folder, sample, sample + 1)[0]
    named = tuple((key, first[f"observations/{key}"].shape[1:]) for key in chosen or ())
    found = Source(
        observation_parts=named,
        name=name,
        format="minari",
        lengths=lengths,
        observation=observations.kind,
        action=Kind(actions.kind.shape, np.dtype(np.float32)),
        extras=kinds,
        read=sources.by_episode(lengths, fetch),
        disk_bytes=sum(file.stat().st_size for file in files),
        identity=tables.identity_of(files),
    )
    return tables.without_short(found)


FORMATS: dict[str, Callable[..., Source]] = {
    "native": native,
    "d4rl": d4rl,
    "minari": minari,
    "ogbench": ogbench,
    "exorl": exorl,
    "npz": arrays,
    "hdf5": arrays,
    "arrays": arrays,
    LOADED: loaded,
}
FOLDERS = ("native", "minari", "exorl")  # formats that are no single file
COMMON = ("episodes", "extras")  # options of every format
PARTS = ("observations", "actions", "next_observations")


def from_arrays(source: Mapping[str, Any], name: str = "arrays", **options: Any) -> Dataset:
    """A data set from a dict of arrays, see `arrays`; not checked beyond its structure."""
    return sources.gather(replace(arrays(source, **options), name=name))


# ---- what readers share ----------------------------------------------------------------------------------------------


def _renamed(table: Table, columns: Columns | None) -> tuple[Table, dict[str, list[str]]]:
    """The table, and which of its columns are what: by their own names, or as the user says."""
    known = (*PARTS, *STRUCTURE, "timeouts")
    parts = {name: [name] for name in known if name in table.columns}
    if columns is None:
        return table, parts
    if not isinstance(columns, Mapping):
        raise HilpError("columns is a mapping of what to which array, {'observations': 'state', ...}")
    renamed = dict(table.columns)
    for what, names in columns.items():
        found: list[Any] = list(names) if isinstance(names, list | tuple) else [names]
        if not isinstance(what, str) or not found or not all(isinstance(name, str) for name in found):
            raise HilpError(f"{table.name}: columns must name an array, or a list of arrays, for {what}")
        for name in found:
            if name not in table.columns:
                close = nearest(name, table.columns)
                raise HilpError(f"{table.name}: there is no array '{name}' for {what}: {close}")
        if what in known:
            parts[what] = found
        elif len(found) == 1:
            renamed[what] = renamed.pop(found[0])
        else:
            raise HilpError(f"{table.name}: only observations and actions can have several arrays, not '{what}'")
    return replace(table, columns=renamed), parts


def _episode_lengths(table: Table, parts: Mapping[str, list[str]], rows: int) -> tuple[np.ndarray, dict[str, int]]:
    """Rows of each episode, and how many end in which way."""
    given = [key for key in STRUCTURE if key in parts]
    if not given and "timeouts" in parts:
        given = ["timeouts"]
    if len(given) != 1:
        problem = "nothing says where episodes end" if not given else f"both {' and '.join(given)} are given"
        raise HilpError(f"{table.name}: {problem}: give exactly one of {', '.join(STRUCTURE)}")
    key, name = given[0], parts[given[0]][0]
    if key in ("terminals", "timeouts"):
        named = {what: tables.flags(table, parts[what][0], rows) for what in ("terminals", "timeouts") if what in parts}
        terminals, timeouts = (
            np.zeros(rows, bool) if (f := named.get(w)) is None else f for w in ("terminals", "timeouts")
        )
        ends = np.flatnonzero(terminals | timeouts)
        if not rows or not len(ends) or ends[-1] != rows - 1:
            raise HilpError(
                f"{table.name}: the last row is not terminal, so the last episode has no end: mark it or cut it"
            )
        return np.diff(ends, prepend=-1).astype(np.int64), _endings(
            ends, terminals, timeouts
        ) if "timeouts" in parts else {}
    column = table[name]
    if len(column.shape) != 1:
        raise HilpError(f"{table.name}: {key} must be a flat array, not {column.shape}")
    values = column[:]
    if key == "episode_ids":
        return _lengths_by_id(values, rows, table.name), {}
    if values.dtype.kind not in "iuf" or not np.array_equal(values, np.floor(values)) or np.any(np.abs(values) > 2**62):
        raise HilpError(f"{table.name}: {key} must be whole numbers, not {values.dtype}")
    values = values.astype(np.int64)
    if key == "episode_ends":
        values = np.diff(values, prepend=0)
    if len(values) == 0 or values.min() < 1:
        raise HilpError(f"{table.name}: {key} hold an empty episode: lengths must be positive, ends must increase")
    total = int(values.sum(dtype=object))
    if total != rows:
        raise HilpError(f"{table.name}: {key} end at row {total} but there are {rows} observations")
    return values, {}


def _lengths_by_id(ids: np.ndarray, rows: int, name: str) -> np.ndarray:
    if len(ids) != rows:
        raise HilpError(f"{name}: {rows} observations but {len(ids)} episode_ids: give one a row")
    starts = np.flatnonzero(np.concatenate([np.ones(min(rows, 1), bool), ids[1:] != ids[:-1]]))
    if len(np.unique(ids[starts])) != len(starts):
        seen, counts = np.unique(ids[starts], return_counts=True)
        raise HilpError(
            f"{name}: the rows of episode '{seen[np.argmax(counts)]}' are not together: sort the rows by episode_ids"
        )
    return np.diff(starts, append=rows).astype(np.int64)


def _endings(last_rows: np.ndarray, terminals: np.ndarray, timeouts: np.ndarray) -> dict[str, int]:
    """How many episodes end at a terminal, at a timeout, at both, and at neither (cut)."""
    terminal, timeout = terminals[last_rows], timeouts[last_rows]
    return {
        "terminal": int(np.sum(terminal & ~timeout)),
        "timeout": int(np.sum(timeout & ~terminal)),
        "both": int(np.sum(terminal & timeout)),
        "cut": int(np.sum(~terminal & ~timeout)),
    }


def _left_out(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    return [f"left out (no number per row): {', '.join(sorted(names)[:8])}" + (" ..." if len(names) > 8 else "")]


def _jumps_of(observations: Part, columns: Sequence[int] | None, name: str) -> np.ndarray:
    if columns is not None and observations.kind.shape[0] <= max(columns):
        raise HilpError(
            f"{name}: observations of {observations.kind.shape[0]} numbers have no place in columns {columns}"
        )
    steps = StepSizes(columns)
    block = int(np.clip(BLOCK_BYTES // (4 * observations.kind.shape[0]), 1, sources.MOST_BLOCK_ROWS))
    for start in range(0, observations.rows, block):
        steps.look(observations.read(start, min(start + block, observations.rows)))
    return jumps(steps.sizes)


def _d4rl_hints(table: Table, width: int, terminals: np.ndarray | None, convention: str | None) -> list[str]:
    """What the file looks like, for a person to decide on."""
    hints = []
    if convention is None and terminals is not None and np.any(terminals[1:] & terminals[:-1]):
        hints.append(
            "terminals are true in rows that follow each other, as in AntMaze files, where they mean 'at the goal' and "
            "the walk goes on: if this is one, pass convention='antmaze'"
        )
    if convention is None and width == KITCHEN_COLUMNS[0]:
        hints.append(
            "observations have 60 numbers, as in Kitchen files, where the last 30 are the goal: if this is one, pass "
            "convention='kitchen'"
        )
    if "next_observations" in table.columns:
        hints.append("next_observations are not used: the row after is the next observation")
    return hints


def _exorl_files(path: Path) -> list[Path]:
    folder = path / "buffer" if (path / "buffer").is_dir() else path
    return sorted(folder.glob("*.npz"))


def _exorl_rows(file: Path) -> int:
    columns = open_npz(file, ("observation",))
    if "observation" not in columns or not columns["observation"].shape or not columns["observation"].shape[0]:
        raise HilpError(f"{file} is not an ExORL episode: it has no rows of 'observation'")
    return columns["observation"].shape[0]


def _minari_root() -> Path:
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


def _minari_folder(path: Path) -> Path | None:
    """The folder with the data of a Minari data set: of a path, or of an id."""
    for folder in (path, path / "data", _minari_root() / path / "data"):
        if (folder / "metadata.json").is_file():
            return folder
    return None


def _local_minari_ids() -> list[str]:
    root = _minari_root()
    return sorted(str(found.parent.parent.relative_to(root)) for found in root.glob("**/data/metadata.json"))


def _minari_hint(name: str) -> str:
    ids = _local_minari_ids()
    return nearest(name, ids) if ids else f"there are none in {_minari_root()}; download one with `minari download`"


def _minari_keys(episode: Mapping[str, np.ndarray], chosen: Sequence[str] | None, name: str) -> list[str]:
    """The arrays that are the observation."""
    keys = [key.partition("/")[2] for key in episode if key.startswith("observations/")]
    if "observations" in episode:
        if chosen is not None:
            raise HilpError(f"{name}: observations are one array, so there are no observation_keys to choose")
        return ["observations"]
    if not keys:
        raise HilpError(f"{name}: observations are not numbers")
    if chosen is None:
        raise HilpError(
            f"{name}: observations have several parts: choose with observation_keys=[...] from {', '.join(keys)}"
        )
    for key in chosen:
        if key not in keys:
            raise HilpError(f"{name}: there is no observation key '{key}': {nearest(key, keys)}")
    if not chosen:
        raise HilpError(f"{name}: observation_keys is empty: choose from {', '.join(keys)}")
    return [f"observations/{key}" for key in chosen]


def _no_actions(episode: Mapping[str, np.ndarray], name: str) -> list[str]:
    keys = [key for key in episode if key.startswith("actions/")]
    raise HilpError(
        f"{name}: actions are {'in several parts, ' + ', '.join(keys) if keys else 'not numbers'}: hilp needs one array"
    )
