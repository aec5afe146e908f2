"""Minari: read from the local store or a folder, and written for sharing."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hilp import storage
from hilp.data import subprocess_reader
from hilp.data.columns import BLOCK_BYTES
from hilp.data.formats import arrays
from hilp.data.native import extras_of
from hilp.data.source import Kind, Rows, Source, chain, short_note, with_files, with_numbers
from hilp.data.tables import Table
from hilp.errors import HilpError, nearest, some

KITCHEN_KEY, KITCHEN_WIDTH = "observation", 59  # of FrankaKitchen: positions and speeds of robot and objects
KITCHEN_KEEP = (*range(9), *range(18, 39))  # the positions, which are what D4RL's rows begin with


def read(
    source: Path,
    *,
    convention: Literal["kitchen"] | None = None,
    observation_keys: Sequence[str] | str | None = None,
    flatten: bool = False,
    extras: Sequence[str] | None = None,
) -> Source:
    """A local Minari data set, by id or by folder. Dict observations need `observation_keys`, put side by side.

    Where pictures are among them, observations are a named tree of them.

    The convention "kitchen" takes the 30 positions of FrankaKitchen's observations, as in D4RL's files.

    Rewards, terminations and truncations stand in the row of the action they came with (zero in the last row of an
    episode); infos and the observation keys that were not chosen are extras too.
    """
    folder = data_folder(source)
    if folder is None:
        ids = local_ids()
        hint = nearest(str(source), ids) if ids else f"there are none in {_root()}; download one with `minari download`"
        raise HilpError(f"there is no local Minari data set '{source}': {hint}")
    folder = folder.absolute()  # episodes are read as they are needed, wherever this process then is
    identifier, steps = subprocess_reader.open_minari(folder)
    name = f"Minari {identifier}"
    whole = np.flatnonzero(np.asarray(steps) > 0)  # episodes with a transition
    if not len(whole):
        raise HilpError(f"{name}: there are no episodes")
    kitchen = _is_kitchen(convention, observation_keys)
    chosen = [observation_keys] if isinstance(observation_keys, str) else observation_keys
    chosen = [KITCHEN_KEY] if kitchen else chosen
    (sample,) = subprocess_reader.read_minari(folder, int(whole[0]), int(whole[0]) + 1)
    keys = _keys(sample, chosen, name)
    if kitchen and sample[keys[0]].shape[1:] != (KITCHEN_WIDTH,):
        raise HilpError(
            f"{name}: observations of Kitchen have {KITCHEN_WIDTH} numbers, these have "
            f"{', '.join(map(str, sample[keys[0]].shape[1:]))}: leave out convention='kitchen'"
        )
    # Observations that are one array are found by their name.
    columns = None if chosen is None else {"observations": keys if len(keys) > 1 else keys[0]}

    def opened(number: int, episode: Mapping[str, np.ndarray], wanted: Sequence[str] | None) -> Source:
        table = Table(f"{name}, episode {number}", "minari", episode)
        rows, acts = ((*table[key].shape, 0)[0] for key in (keys[0], "actions"))
        if (rows, acts) != (steps[number] + 1, steps[number]):
            raise HilpError(f"{table.name}: {rows} observations and {acts} actions, but {steps[number]} steps")
        return arrays.of_table(table, columns, flatten, False, wanted, np.array([rows]))

    kept = list(opened(int(whole[0]), sample, extras).extras)
    at_once = max(1, BLOCK_BYTES // sum(array.nbytes for array in sample.values()))

    @functools.lru_cache(maxsize=1)
    def fetched(first: int) -> list[dict[str, np.ndarray]]:
        return subprocess_reader.read_minari(folder, first, min(first + at_once, len(steps)))

    def episode(number: int) -> Source:
        at = int(whole[number])
        return opened(at, fetched(at - at % at_once)[at % at_once], kept)

    lengths = [np.array([steps[at] + 1], np.int64) for at in whole]
    found = chain(name, lengths, episode, [f"episode {at}" for at in whole])
    named = keys if chosen and not kitchen and isinstance(found.observation, Kind) else ()
    parts = tuple((key.partition("/")[2], sample[key].shape[1:]) for key in named)
    notes = short_note(np.flatnonzero(np.asarray(steps) <= 0))
    found = replace(found, observation_parts=parts, notes=notes)
    found = with_files(found, sorted(file for file in folder.rglob("*") if file.is_file()))
    return with_numbers(found, KITCHEN_KEEP) if kitchen else found


def _is_kitchen(convention: str | None, observation_keys: Any) -> bool:
    if convention not in (None, "kitchen"):
        raise HilpError(f"unknown convention '{convention}': {nearest(str(convention), ('kitchen',))}")
    if convention is not None and observation_keys is not None:
        raise HilpError("convention='kitchen' says which observations to take: leave out observation_keys")
    return convention is not None


def _root() -> Path:
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


def data_folder(path: Path) -> Path | None:
    """The folder with the data of a Minari data set: of a path, or of an id."""
    for folder in (path, path / "data", _root() / path / "data"):
        if (folder / "metadata.json").is_file():
            return folder
    return None


def local_ids() -> list[str]:
    """All data sets in the local store."""
    root = _root()
    ids = [found.parent.parent.relative_to(root) for found in root.glob("**/data/metadata.json")]
    return sorted(str(path) for path in ids if not path.name.startswith("."))  # hidden ones are not finished


def _keys(episode: Mapping[str, np.ndarray], chosen: Sequence[str] | None, name: str) -> list[str]:
    """The arrays that are the observation, where actions are one array."""
    if "actions" not in episode:
        inside = some([key for key in episode if key.startswith("actions/")])
        problem = f"in several parts, {inside}" if inside else "not numbers"
        raise HilpError(f"{name}: actions are {problem}: hilp needs one array")
    keys = [key.partition("/")[2] for key in episode if key.startswith("observations/")]
    if "observations" in episode:
        if chosen is not None:
            raise HilpError(f"{name}: observations are one array, so there are no observation_keys to choose")
        return ["observations"]
    if not keys:
        raise HilpError(f"{name}: observations are not numbers")
    if chosen is None:
        raise HilpError(
            f"{name}: observations have several parts: choose with observation_keys=[...] from {some(keys)}"
        )
    for key in chosen:
        if key not in keys:
            raise HilpError(f"{name}: there is no observation key '{key}': {nearest(key, keys)}")
    if not chosen:
        raise HilpError(f"{name}: observation_keys is empty: choose from {some(keys)}")
    return [f"observations/{key}" for key in chosen]


# ---- writing ---------------------------------------------------------------------------------------------------------


def write(source: Source, name: str, overwrite: bool, progress: Callable[[str, int, int], None]) -> Path:
    """A Minari data set appears whole or not at all; one that was killed starts again.

    Actions are written in the user's units. `rewards` (recorded with the action) or ExORL's `reward` (recorded with the
    state it led to) become rewards, `terminations` stay; other extras become infos.
    """
    if isinstance(source.observation, dict):
        raise HilpError(f"{source.name} has named observations, which hilp does not write as Minari: choose native")
    if source.transform is not None:
        raise HilpError(f"{source.name}: Minari does not keep angles and dropped columns: choose native, or leave them")
    try:
        import minari
        from minari.dataset.minari_storage import MinariStorage
    except ImportError as error:
        raise HilpError(f"writing Minari data needs {error.name}: pip install 'hilp[formats]'") from error
    from gymnasium.spaces import Box

    target = _target(name, overwrite)
    low, high = np.full(source.action.shape, -1.0, np.float32), np.full(source.action.shape, 1.0, np.float32)
    if source.action_scaling is not None:
        low, high = source.action_scaling.raw(low), source.action_scaling.raw(high)
    kind = source.observation.dtype
    least, most = (0, 255) if kind == np.uint8 else (-np.inf, np.inf)
    note = {"minari_version": minari.__version__, "description": f"written by hilp from {source.name}"}
    with storage.new_folder(target) as temporary:
        (temporary / "data").mkdir()
        written = MinariStorage.new(
            temporary / "data",
            observation_space=Box(least, most, source.observation.shape, kind.type),
            action_space=Box(low, high, dtype=np.float32),
            data_format="hdf5",
        )
        written.update_metadata({"dataset_id": name, **note})
        for done, episodes in _whole_episodes(source):
            written.update_episodes([_buffer(source, episode) for episode in episodes])
            progress("writing", done, source.rows)
    return target


def _target(name: str, overwrite: bool) -> Path:
    """The folder of a new data set in the local store, with its namespace."""
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.namespace import create_namespace, list_local_namespaces
    from minari.storage import get_dataset_path

    try:
        namespace, _, version = parse_dataset_id(name)
    except (ValueError, TypeError) as error:
        raise HilpError(f"'{name}' is not a Minari id: give one like 'name-v0' or 'group/name-v0'") from error
    target = Path(get_dataset_path(name))
    storage.clean_leftovers(target)
    if target.exists() and not overwrite:
        raise HilpError(f"Minari already has '{name}': choose version {version + 1} or pass overwrite")
    if namespace is not None and namespace not in list_local_namespaces():
        create_namespace(namespace)
    return target


def _whole_episodes(source: Source) -> Iterator[tuple[int, list[Rows]]]:
    """Whole episodes, as many at a time as fit in a block (but at least one), and the rows done with them."""
    first, begin = 0, 0
    while first < source.episodes:
        beyond = int(np.searchsorted(source.stops, begin + source.block_rows, "right"))
        beyond = max(beyond, first + 1)
        stop = int(source.stops[beyond - 1])
        rows = source.read(begin, stop)
        edges = [0, *(int(s) - begin for s in source.stops[first:beyond])]
        yield stop, [{name: column[a:b] for name, column in rows.items()} for a, b in pairwise(edges)]
        first, begin = beyond, stop


def _buffer(source: Source, episode: Rows) -> Any:
    from minari.data_collector.episode_buffer import EpisodeBuffer

    steps = len(episode["actions"]) - 1
    actions = episode["actions"][:-1]
    if source.action_scaling is not None:
        actions = source.action_scaling.raw(actions)
    extras = extras_of(episode)
    rewards = np.zeros(steps)
    if "rewards" in extras and extras["rewards"].ndim == 1:
        rewards = extras.pop("rewards")[:-1]
    elif "reward" in extras and extras["reward"].size == steps + 1:
        rewards = extras.pop("reward").reshape(-1)[1:]
    terminations = extras.pop("terminations", np.zeros(steps + 1, bool))[:-1].astype(bool)
    truncations = extras.pop("truncations", np.zeros(steps + 1, bool))[:-1].astype(bool)
    truncations[-1] |= not terminations[-1]  # every episode ends somehow
    infos: dict[str, Any] = {}
    for name, column in extras.items():
        *path, leaf = name.removeprefix("infos/").split("/")
        inner = infos
        for part in path:
            inner = inner.setdefault(part, {})
        inner[leaf] = column
    return EpisodeBuffer(
        observations=episode["observations"],
        actions=actions,
        rewards=rewards,
        terminations=terminations,
        truncations=truncations,
        infos=infos,
    )
