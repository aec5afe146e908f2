"""Load: whatever holds trajectories. The format is recognised by content and noted; nothing else is guessed.

A reader (`formats/`) makes a Source, which `load` gathers in memory and `convert` and `inspect` go through block by
block. A reader of your own is a function `read(source, **options)` of a path that gives a dict of arrays, a Dataset or
a Source. Where its module, or what is registered, also says `recognises(path)`, files that are none of ours are
recognised by content; else users name the format.
"""

import contextlib
import inspect
import itertools
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hilp import plugins, storage
from hilp.data import checks, dataset, discrete, tables, timescale
from hilp.data.checks import TIME, Repairs, is_split
from hilp.data.columns import open_npz
from hilp.data.dataset import Dataset
from hilp.data.formats import arrays, episodes, logs
from hilp.data.source import Source, Where, gather, of_dataset, of_folder, rows_text, select, with_extras
from hilp.data.transforms import Metadata
from hilp.errors import HilpError, nearest, path_of, require_count, require_known, require_name, require_switch, some

LOADED = "data set"
MOST_LOOKED_AT = 1000  # files and folders of a level, where the folder that was named is no data set
FORMATS: dict[str, Callable[..., Any]] = {
    "native": of_folder,
    "d4rl": arrays.read_d4rl,
    "minari": episodes.read_minari,
    "ogbench": arrays.read_ogbench,
    "exorl": episodes.read_exorl,
    "lerobot": logs.read_lerobot,
    "groups": episodes.read_groups,
    "csv": logs.read_csv,
    "parquet": logs.read_parquet,
    "npz": arrays.read,
    "hdf5": arrays.read,
    "arrays": arrays.read,
    LOADED: lambda source: source,
}
FOLDERS = ("native", "minari", "exorl", "lerobot", "groups", "csv", "parquet")  # formats that are no dict
D4RL_FLAGS = ({"terminals"}, {"timeouts"}, {"terminals", "timeouts"})  # what says where its episodes end
COMMON = ("episodes", "extras", "split", "angles", "drop", "discrete_actions")  # options of every format


def load(
    source: Any,
    format: str | None = None,
    *,
    rescale_actions: bool = False,
    stride: int | str | None = None,
    stride_actions: timescale.Commands = "mean",
    **options: Any,
) -> Dataset:
    """A data set from a path, a Minari id or a dict of arrays.

    The format is recognised by content (`Dataset.format` says which it was) unless `format` names one of FORMATS;
    `options` are those of its reader, plus `episodes` (the first so many), `extras` (names of the extra columns to
    keep) and repairs: `split=("nan", "gap")` splits episodes at rows without numbers and at gaps in time,
    `angles=("q1",)` or "auto" shows networks the sine and cosine of angles that wrap, `drop=("constant", "duplicate")`
    keeps columns that say nothing from them. The result is checked, once: what cannot be trained on is an error that
    says which rows and what to do.

    discrete_actions: how many discrete actions there are, "auto" (as many as the data shows) or "none"; without it, one
    column of whole-number type with few values is discrete (see `hilp.data.discrete`).

    stride: keep every so many rows of each episode, or "auto" for as many as the data's time scale asks for; the
    commands in between are averaged, or added up with stride_actions="sum". Without one, training may choose.
    """
    format = None if format is None else require_name("format", format)
    rescale_actions = require_switch("rescale_actions", rescale_actions)
    data, where = _read(source, format, options)
    wanted = timescale.require_stride(stride)
    if wanted is not None:
        checks.examine_dataset(data, rescale=True, where=where)  # while its rows are those of the file
        chosen = timescale.of_dataset(data).stride if wanted == timescale.AUTO else wanted
        data = timescale.subsample(data, int(chosen), stride_actions)
    if not rescale_actions:
        if not data.is_checked:
            checks.examine_dataset(data, where=where)
        return data.as_checked()
    require_to_rescale(data)
    health = checks.examine_dataset(data, rescale=True, where=where)
    return data.rescaled(health.acted.low, health.acted.high).as_checked()


def require_to_rescale(data: Metadata) -> None:
    """Raise where actions have no range that could be mapped to [-1, 1]."""
    if data.choices:
        raise HilpError(
            f"{data.name} has {data.choices} discrete actions, which are not rescaled: leave out rescale_actions / "
            "--rescale-actions, or read them as numbers with discrete_actions='none' / --discrete-actions none"
        )


def _read(source: Any, format: str | None, options: dict[str, Any]) -> tuple[Dataset, Where]:
    """The data in memory, or mapped where no option moves its rows; and where its rows are."""
    if isinstance(source, Dataset) and not options:
        return source, rows_text
    chosen = recognise(source, options) if format is None else format
    if chosen == "native" and set(options) <= {"verify", "in_memory", "angles", "drop"}:
        repairs = Repairs(**{name: options.pop(name) for name in ("angles", "drop") if name in options})
        data = Dataset.open(path_of(source), **options)
        repaired = repairs.apply(of_dataset(data))
        return replace(data, transform=repaired.transform, notes=repaired.notes), rows_text
    opened = open_source(source, chosen, **options)
    return gather(opened), opened.where


def from_arrays(
    source: Mapping[str, Any], name: str = "arrays", discrete_actions: discrete.Wanted = None, **options: Any
) -> Dataset:
    """A data set from a dict of arrays, see `formats.arrays`; not checked beyond its structure."""
    return gather(discrete.settle(replace(arrays.read(source, **options), name=name), discrete_actions))


def open_source(source: Any, format: str | None = None, **options: Any) -> Source:
    """A source for anything `load` takes, without reading its rows."""
    format = recognise(source, options) if format is None else require_name("format", format)
    reader, _ = _reader(format)
    known = _known_options(reader, format, options)
    common = {name: options.pop(name) for name in COMMON if name in options and name not in known}
    repairs = Repairs(common.get("split"), common.get("angles"), common.get("drop"))
    wanted = discrete.require_wanted(common.get("discrete_actions"))
    kept = common.pop("extras", options.get("extras"))
    kept = [kept] if isinstance(kept, str) else kept
    if kept is not None and not (isinstance(kept, list | tuple) and all(isinstance(name, str) for name in kept)):
        raise HilpError(f"extras are names of columns, such as ['rewards'], not {kept!r:.60}")
    if kept is not None and "extras" in known:
        # The time is needed to split at gaps, whether or not it is to be kept.
        options["extras"] = [*kept, *({TIME} - set(kept) if "gap" in repairs.split else ())]
    found = _as_source(reader(_fitting(source, format), **options), format, source)
    if (first := common.get("episodes")) is not None:
        found = select(found, np.arange(min(require_count("episodes", first), found.episodes)))
    found = discrete.settle(repairs.apply(found), wanted)
    return found if kept is None or list(kept) == list(found.extras) else with_extras(found, kept)


def _known_options(reader: Callable[..., Any], format: str, options: Mapping[str, Any]) -> list[str]:
    """Which of these options are for the reader, where all are for it or for every format."""
    known = list(inspect.signature(reader).parameters)[1:]  # the first is the source
    for option in options:
        require_known(option, [*known, *COMMON], f"'{option}' is no option of the format {format}")
    repairs = is_split(options.get("split"))  # OGBench's reader has another option of this name
    return [name for name in known if name != "split" or not repairs]


def _as_source(found: Any, format: str, source: Any) -> Source:
    """What a reader gave; those of others may give arrays or a data set as well."""
    if isinstance(found, Mapping):
        found = replace(arrays.read(found), name=name_of(source))
    if isinstance(found, Dataset):
        found = of_dataset(found)
    if not isinstance(found, Source):
        raise HilpError(
            f"the reader of the format {format} gave a {type(found).__name__}: it must give a dict of arrays, a "
            "Dataset or a Source"
        )
    return found if format in FORMATS else replace(found, format=format)


def _fitting(source: Any, format: str) -> Any:
    """The source as its reader takes it: a Dataset, a Source, a dict or a path."""
    if isinstance(source, Dataset | Source) != (format == LOADED):
        raise HilpError(f"{name_of(source)} cannot be read as the format {format}")
    if isinstance(source, Mapping) and format in FOLDERS:
        raise HilpError(f"a dict cannot be read as the format {format}: give a path")
    if isinstance(source, Dataset | Source | Mapping):
        return source
    path = path_of(source)
    if not path.exists() and format != "minari":
        raise HilpError(f"there is no file {path}")
    return path


def recognise(source: Any, options: Collection[str] = ()) -> str:
    """The format of something, by its content; `options` are for its reader."""
    if isinstance(source, Dataset | Source):
        return LOADED
    if isinstance(source, Mapping):
        return "arrays"
    path = path_of(source)
    storage.restore_aside(path)  # of a process that was killed while it replaced a data set
    if path.exists():
        try:
            return _recognise_folder(path) if path.is_dir() else _recognise_file(path, plain="columns" in options)
        except HilpError:
            theirs = _recognised(path)
            if theirs is None:
                raise
            return theirs
    if episodes.minari_folder(path) is not None:
        return "minari"
    if is_name(path):
        close = nearest(str(source), ids) if (ids := episodes.minari_ids()) else "give a path"
        raise HilpError(f"there is no file and no Minari data set '{source}': {close}")
    raise HilpError(f"there is no file or folder {path}")


def is_name(path: Path) -> bool:
    """Whether this could be a name or an id, rather than a path."""
    return not path.suffix and len(path.parts) <= 2 and path.parts[:1] not in (("..",), (path.anchor,))


def is_missing(source: Any) -> bool:
    """Whether this is the name or path of nothing that is there."""
    if not isinstance(source, str | os.PathLike):
        return False
    path = path_of(source)
    storage.restore_aside(path)
    return not path.exists() and episodes.minari_folder(path) is None


def _recognise_folder(path: Path) -> str:
    tests = {"native": dataset.is_native, "minari": episodes.minari_folder, "lerobot": logs.is_lerobot}
    for format, test in tests.items():
        if test(path):
            return format
    files = episodes.exorl_files(path)
    if files and {"observation", "action"} <= open_npz(files[0]).keys():
        return "exorl"
    inside = sorted(str(child.parent.relative_to(path)) for child in path.glob("*/buffer"))
    if inside:
        raise HilpError(f"{path} holds several ExORL data sets: name one of them, {some(inside)}")
    for format, endings in (("csv", logs.CSV_ENDINGS), ("parquet", logs.PARQUET_ENDINGS)):
        if any(file.suffix.lower() in endings for file in path.iterdir()):
            return _recognised(path) or format
    inner = [folder for folder in _folders_below(path) if any(test(folder) for test in tests.values())]
    if inner:
        raise HilpError(
            f"{path} is not a data set, but {some(inner, 3)} {'is' if len(inner) == 1 else 'are'}: name one"
        )
    raise HilpError(
        f"{path} is not a data set: it has no dataset.json (native), no data/metadata.json (Minari), no meta/info.json "
        "(LeRobot), no .npz episodes with observation and action (ExORL), no .csv and no .parquet files"
    )


def _folders_below(path: Path) -> list[Path]:
    """The folders in a folder and in those, some of them: a data set may lie a level or two below what was named."""
    found: list[Path] = []
    for depth in ("*", "*/*", "*/*/*"):
        with contextlib.suppress(OSError):
            found += filter(Path.is_dir, itertools.islice(path.glob(depth), MOST_LOOKED_AT))
    return sorted(found)


def _recognise_file(path: Path, plain: bool) -> str:
    """plain: columns are named by the user, so that names say nothing about the format."""
    kind = tables.magic(path)
    if kind == "npz" and not plain:
        return _recognise_npz(path)
    if kind == "hdf5":
        return _recognise_hdf5(path, plain)
    if kind is not None:
        return kind
    if logs.looks_like_csv(path):
        return _recognised(path) or "csv"  # a reader of the user's knows better than "several fields"
    raise HilpError(
        f"{path} is not a file hilp can read: it reads .npz, HDF5, CSV and Parquet files; load other files "
        "yourself and give hilp a dict of arrays"
    )


def _recognise_npz(path: Path) -> str:
    names = open_npz(path).keys()
    if {"observation", "action"} <= names and "observations" not in names:
        raise HilpError(f"{path} is one episode of an ExORL folder: give the folder")
    structure = names & {*arrays.STRUCTURE, "timeouts", "next_observations"}
    return "ogbench" if {"observations", "actions"} <= names and structure == {"terminals"} else "npz"


def _recognise_hdf5(path: Path, plain: bool) -> str:
    names = set(tables.open_table(path).columns)
    named = {"observations", "actions"} & names
    if any(name.startswith("episode_0/") for name in names):
        if not plain:
            raise HilpError(f"{path} is a part of a Minari data set: give its folder or its id")
    elif not named and episodes.episode_groups(names):
        return "groups"
    ends = names & {*arrays.STRUCTURE, "timeouts"} in D4RL_FLAGS
    return "d4rl" if len(named) == 2 and not plain and ends else "hdf5"


def name_of(source: Any) -> str:
    """What to call it in a message."""
    return str(source) if isinstance(source, str | os.PathLike) else f"a {type(source).__name__}"


Reader = tuple[Callable[..., Any], Callable[[Path], bool] | None]  # what reads a format, and what recognises it
_registered: dict[str, Reader] = {}


def register(name: str, read: Callable[..., Any], recognises: Callable[[Path], bool] | None = None) -> None:
    """Make a format known by name in this process: what reads it and, where content tells, what recognises it."""
    require_name("a format", name)
    if not callable(read):
        raise HilpError(f"format '{name}' must be registered with a function that reads it, not {read!r:.60}")
    _registered[name] = read, recognises


def _others() -> list[str]:
    return [*_registered, *(name for name in plugins.found("formats") if name not in _registered)]


def _reader(name: str) -> Reader:
    """What reads a format; an entry point leads to a function or to a module with `read`."""
    if name in FORMATS:
        return FORMATS[name], None
    if name in _registered:
        return _registered[name]
    require_known(name, [*FORMATS, *_others()], f"unknown format '{name}'")
    found = plugins.load(plugins.found("formats")[name])
    read = found if callable(found) else getattr(found, "read", None)
    if read is None:
        raise HilpError(f"the plugin '{name}' is no format: it has no 'read'")
    return read, getattr(found, "recognises", None)


def _recognised(path: Path) -> str | None:
    """The format of others that a file or folder has, by its content."""
    known = ((name, _reader(name)[1]) for name in _others())
    return next((name for name, recognises in known if recognises is not None and recognises(path)), None)
