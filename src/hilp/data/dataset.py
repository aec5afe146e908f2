"""Dataset: flat arrays and episode lengths, in memory or memory-mapped from a native folder.

Layout: an episode of T steps is T + 1 consecutive rows; transition i is rows i and i + 1; the action of an episode's
last row is never used. There is no copy of next observations.

The native folder has dataset.json and one .npy file a column; observations that are a named tree have a file a part.
dataset.json names every file with its size and SHA-256, and carries a checksum of itself, so damage is always found:
sizes when the folder is opened, hashes with `verify=True`.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from hilp import storage, trees
from hilp.data import transforms
from hilp.data.columns import NUMBERS, block_rows, flush, open_npy, sha256_of
from hilp.data.transforms import ActionScaling, Metadata, OneHot, TransformedRows
from hilp.errors import HilpError, is_count, path_of, require_known
from hilp.spec import Spec

FORMAT = "hilp-dataset"
VERSION = 1
MANIFEST = "dataset.json"
CHECKSUM = "checksum"
OBSERVATIONS = "observations"
AGAIN = ": write the data set again"
CONTENTS = {"name": str, "rows": int, "extras": list, "files": dict, "endings": dict, "notes": list}  # of dataset.json


@dataclass(frozen=True)
class Dataset(Metadata):
    """Unlabeled trajectories. Build one with `hilp.load`; `checks.require_trainable` says what is wrong with it.

    Observations are one array, or named arrays that share their rows: {"state": [rows, d], "camera": [rows, h, w, 3]}.
    """

    observations: Any  # [rows, obs_dim] float32 (uint8 where images were flattened), or a dict of float32 and uint8
    actions: np.ndarray  # [rows, act_dim], inside [-1, 1]; discrete ones [rows, 1], whole numbers below `choices`
    lengths: np.ndarray  # int64 [episodes]: rows of each episode
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)  # named columns of `rows` rows
    checked: tuple[Any, ...] = field(default=(), kw_only=True, repr=False, compare=False)  # arrays found trainable

    @property
    def rows(self) -> int:
        return trees.rows(self.observations)

    @property
    def observation_dim(self) -> int:
        """All numbers of an observation."""
        columns = trees.named(self.observations, "observations").values()
        return sum(int(np.prod(column.shape[1:])) for column in columns)

    @property
    def action_dim(self) -> int:
        return int(self.actions.shape[1])

    @property
    def spec(self) -> Spec:
        """The sizes of a row."""
        plain = Spec.of(self.observations, self.action_dim, self.choices)
        return plain if plain.parts or self.frames == 1 else replace(plain, history=self.frames)

    @property
    def network_spec(self) -> Spec:
        """The sizes of a row as networks see it."""
        return Spec.of(self.network_inputs, self.action_dim, self.choices).of_networks

    @property
    def network_actions(self) -> Any:
        """Actions as networks see them: of discrete ones a number for each choice."""
        return OneHot(self.actions, self.choices) if self.choices else self.actions

    @property
    def network_inputs(self) -> Any:
        """Observations as networks see them before they are normalised: through the transform, where there is one."""
        if self.transform is None:
            return self.observations
        return TransformedRows(self.observations, self.transform.repeated(self.frames))

    @property
    def is_checked(self) -> bool:
        """Whether the very arrays that it holds now were found trainable: one that was replaced was not."""
        now = (self.observations, self.actions, self.lengths)
        return len(self.checked) == len(now) and all(a is b for a, b in zip(self.checked, now, strict=True))

    def as_checked(self) -> "Dataset":
        """The same data, marked as trainable, so that its rows are not checked again."""
        return replace(self, checked=(self.observations, self.actions, self.lengths))

    def rescaled(self, low: np.ndarray, high: np.ndarray) -> "Dataset":
        """The same data with the range of each action column mapped to [-1, 1]; the policy maps its own back."""
        scaling = ActionScaling.of_range(low, high)
        actions = scaling.scaled(self.actions)
        return replace(self, actions=actions, action_scaling=scaling.after(self.action_scaling))

    def acted(self, rows: np.ndarray) -> np.ndarray:
        """The actions of these rows (numbers of any shape) in the user's units, a row's worth each."""
        actions = np.asarray(self.actions[rows], np.float32)
        if self.action_scaling is not None:
            actions = self.action_scaling.raw(actions)
        # Of a stride that adds them up: the user acts row by row.
        return actions / np.float32(self.stride or 1) if self.stride_actions == "sum" else actions

    @cached_property
    def starts(self) -> np.ndarray:
        """First row of each episode."""
        return np.concatenate([[0], np.cumsum(self.lengths)[:-1]]).astype(np.int64)

    @cached_property
    def transition_rows(self) -> np.ndarray:
        """Rows that have a next row in their episode."""
        keep = np.ones(self.rows, bool)
        keep[self.starts + self.lengths - 1] = False
        return np.flatnonzero(keep)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that training sees; equal data has an equal fingerprint wherever it lies.

        Of names, types, shapes and bytes of columns, read a block at a time; of stacks of frames each counts once.
        """
        digest = hashlib.sha256()
        if self.frames > 1:
            digest.update(f"frames {self.frames}".encode())
        if self.transform is not None:
            digest.update(self.transform.text.encode())
        if self.choices:
            digest.update(f"choices {self.choices}".encode())
        columns = columns_of(transforms.stored(self.observations), self.actions, {})
        for name, column in {**columns, "lengths": self.lengths}.items():
            digest.update(f"{name} {column.dtype.str} {column.shape}".encode())
            step = block_rows(column.shape, column.dtype)
            for start in range(0, column.shape[0], step):
                digest.update(np.ascontiguousarray(column[start : start + step]).data)
        return digest.hexdigest()[:32]

    def extra(self, name: str) -> np.ndarray:
        """An extra column by name, a value per row: `data.extra("physics")[data.transition_rows + 1]` is at each s'.

        Values stand in the row they were recorded with. A reward that came with its action (D4RL, Minari) stands in the
        row of s; one that came with the state it led to (ExORL) stands in the row of s'.
        """
        require_known(name, self.extras, f"{self.name} has no extra column '{name}'")
        return self.extras[name]

    def iter_episodes(self) -> Iterator[slice]:
        """The rows of each episode, in order."""
        for start, length in zip(self.starts, self.lengths, strict=True):
            yield slice(int(start), int(start + length))

    def select(self, episodes: np.ndarray) -> "Dataset":
        """A data set of these episodes only."""
        chosen = np.asarray(episodes) if isinstance(episodes, np.ndarray | range) else _numbers(episodes)
        if chosen.ndim != 1 or (len(chosen) and (chosen.dtype.kind not in "iu" or not _within(chosen, self.episodes))):
            raise HilpError(f"episodes are chosen by their numbers, 0 to {self.episodes - 1}, not by {episodes!r:.60}")
        episodes = chosen.astype(np.int64)
        every = list(self.iter_episodes())
        slices = [every[episode] for episode in episodes]

        def take(array: Any) -> Any:
            if isinstance(array, transforms.Frames):
                return array.select(slices)
            return np.concatenate([array[:0], *(array[s] for s in slices)])

        return replace(
            self,
            observations=trees.over(take, self.observations),
            actions=take(self.actions),
            lengths=np.asarray(self.lengths)[episodes],
            extras={name: take(column) for name, column in self.extras.items()},
            endings={},
            measured={},
        )

    def in_frames(self, count: int) -> "Dataset":
        """The same data, of whose pictures, or vectors, networks see `count` at once: a row's and those before it."""
        plain = transforms.stored(self.observations)
        return replace(self, observations=transforms.stacked(plain, self.lengths, count), frames=count, checked=())

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the native folder. It appears whole or not at all."""
        target = path_of(path)
        storage.clean_leftovers(target)
        require_free(target, overwrite)
        columns = columns_of(transforms.stored(self.observations), self.actions, self.extras)
        require_plain(self.name, columns)
        with storage.new_folder(target) as temporary:
            for name, column in {**columns, "lengths": self.lengths}.items():
                np.save(temporary / file_name(name), column, allow_pickle=False)
            seal(temporary, self, list(columns))
        return target

    @staticmethod
    def open(path: str | os.PathLike[str], in_memory: bool = False, verify: bool = False) -> "Dataset":
        """Open a native folder, memory-mapped unless `in_memory`. `verify` compares every file with its hash."""
        folder = Path(path)
        storage.restore_aside(folder)
        manifest = read_manifest(folder)
        for damage in damages(folder, manifest, hashes=verify):
            raise HilpError(damage)
        parts = manifest.get("observation_names")
        names = [OBSERVATIONS] if parts is None else [f"{OBSERVATIONS}/{name}" for name in parts]
        names += ["actions", *(f"extra.{name}" for name in manifest["extras"])]
        columns = {name: _column(folder / file_name(name), in_memory) for name in names}
        lengths = np.array(_column(folder / file_name("lengths"), in_memory))
        _require_whole(folder, columns, lengths, manifest["rows"])
        with storage.told(f"{folder / MANIFEST} is damaged", (TypeError, ValueError, KeyError), AGAIN):
            about = Metadata.from_json(manifest)
        transform = about.transform
        if transform is not None and (parts is not None or transform.width != columns[OBSERVATIONS].shape[1]):
            raise HilpError(f"{folder} is damaged: its transform is not one of its observations: write it again")
        lengths = lengths.astype(np.int64)
        observations = trees.unnamed(columns, OBSERVATIONS)
        if about.frames > 1:
            observations = transforms.stacked(observations, lengths, about.frames)
        return Dataset(observations, columns["actions"], lengths, extras_of(columns), **about.metadata())


def is_native(path: str | os.PathLike[str]) -> bool:
    return (Path(path) / MANIFEST).is_file()


def file_name(column: str) -> str:
    """The file of a column; names of extras may hold slashes and anything else."""
    return quote(column, safe=" ") + ".npy"


def columns_of(observations: trees.Tree, actions: Any, extras: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that has a value a row (arrays, or what is known of them), by the names of its columns."""
    named = {f"extra.{name}": extra for name, extra in extras.items()}
    return {**trees.named(observations, OBSERVATIONS), "actions": actions, **named}


def require_plain(name: str, columns: Mapping[str, Any]) -> None:
    """Raise where a column is none of plain numbers, as one of a data set that is built by hand may be."""
    for column, array in columns.items():
        called = (
            f"the extra column '{column.removeprefix('extra.')}' is" if column.startswith("extra.") else f"{column} are"
        )
        if isinstance(array, np.ma.MaskedArray):
            raise HilpError(f"{name}: {called} a masked array: fill in or leave out what is masked")
        if array.dtype.kind not in NUMBERS:
            raise HilpError(f"{name}: {called} {array.dtype}: hilp needs plain numbers")


def extras_of(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The extra columns among these, by their own names."""
    return {name.removeprefix("extra."): column for name, column in columns.items() if name.startswith("extra.")}


def seal(folder: Path, about: Metadata, columns: Sequence[str], on_block: Callable[[int], None] | None = None) -> None:
    """Hash what lies in the folder (these columns, and lengths) and write dataset.json, which makes it a data set."""
    opened: dict[str, Any] = {name: open_npy(folder / file_name(name)) for name in (*columns, "lengths")}
    observations = trees.unnamed(opened, OBSERVATIONS)
    whole = Dataset(observations, opened["actions"], opened["lengths"], **about.metadata())  # not in memory
    parts = sorted(observations) if isinstance(observations, Mapping) else None
    extras = sorted(extras_of(opened))
    names = [*trees.named(observations, OBSERVATIONS), "actions", "lengths", *(f"extra.{e}" for e in extras)]
    paths = [folder / file_name(name) for name in names]
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        **about.to_json(),
        **({} if parts is None else {"observation_names": parts}),
        "rows": opened["actions"].shape[0],
        "episodes": opened["lengths"].shape[0],
        "fingerprint": whole.fingerprint,
        "extras": extras,
        "files": {p.name: {"bytes": p.stat().st_size, "sha256": sha256_of(p, on_block)} for p in paths},
    }
    (folder / MANIFEST).write_text(_text({**manifest, CHECKSUM: _checksum(manifest)}))
    flush([*paths, folder / MANIFEST])


def require_free(target: Path, overwrite: bool) -> None:
    """A data set may only replace a data set, and only with overwrite."""
    if not path_of(target).exists():
        return
    if not overwrite:
        raise HilpError(f"{target} already exists: choose another folder, or pass overwrite (--overwrite)")
    if not is_native(target) and not (target.is_dir() and not any(target.iterdir())):
        raise HilpError(f"{target} exists and is not a hilp data set, so it is not overwritten: choose another folder")


def _require_whole(folder: Path, columns: Mapping[str, np.ndarray], lengths: np.ndarray, rows: int) -> None:
    sizes = {name: len(array) for name, array in columns.items()}
    whole = lengths.ndim == 1 and lengths.dtype.kind in "iu" and bool(np.all(lengths >= 1))
    flat = all(columns[name].ndim == 2 for name in (OBSERVATIONS, "actions") if name in columns)
    if not whole or not flat or {*sizes.values(), int(lengths.sum())} != {rows}:
        raise HilpError(
            f"{folder} is damaged: dataset.json says {rows} rows, the arrays have {sizes} and episodes "
            f"of {lengths.sum()} rows: write the data set again"
        )


def _column(file: Path, in_memory: bool) -> np.ndarray:
    stream = open_npy(file)  # numpy trusts a header; this does not
    with storage.told(f"{file} cannot be read", (OSError, ValueError, EOFError, MemoryError), AGAIN):
        array = np.load(file, mmap_mode=None if 0 in stream.shape or in_memory else "r", allow_pickle=False)
    if array.dtype.kind not in NUMBERS or array.ndim < 1:
        raise HilpError(f"{file} is damaged: it holds {array.dtype} {array.shape}: write the data set again")
    return array


def read_manifest(folder: Path) -> dict[str, Any]:
    """dataset.json, checked against its own checksum."""
    path = folder / MANIFEST
    with storage.told(f"{path} cannot be read", (OSError, ValueError, RecursionError)):
        text = path.read_bytes().decode("ascii")
        manifest = json.loads(text)
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise HilpError(f"{path} is not a hilp data set (its format is not '{FORMAT}')")
        if manifest.get("version") != VERSION:
            raise HilpError(f"{folder} has format version {manifest.get('version')}, this hilp reads {VERSION}")
        checksum = manifest.pop(CHECKSUM, None)
        # Comparing the text as well finds flipped bits that JSON does not notice.
        intact = checksum == _checksum(manifest) and text == _text({**manifest, CHECKSUM: checksum})
    if not intact:
        raise HilpError(f"{path} was changed after it was written (its checksum does not match): restore a copy")
    for key, kind in CONTENTS.items():
        if not isinstance(manifest.get(key), kind):
            raise HilpError(f"{path} is incomplete: it has no '{key}': write the data set again")
    parts = manifest.get("observation_names", ["one"])
    if not isinstance(parts, list) or not parts or not all(isinstance(name, str) for name in parts):
        raise HilpError(f"{path} is incomplete: its 'observation_names' are no names: write the data set again")
    return manifest


def damages(folder: Path, manifest: Mapping[str, Any], hashes: bool) -> Iterator[str]:
    """What is wrong with the files of a native folder, a line each; without `hashes` only missing and cut files."""
    for name, noted in manifest["files"].items():
        path = folder / name
        try:
            size = path.stat().st_size
            if not isinstance(noted, dict) or size != noted.get("bytes"):
                yield f"{path} is damaged: it has {size} bytes, not as many as noted: write the data set again"
            elif hashes and sha256_of(path) != noted.get("sha256"):
                yield f"{path} was changed after it was written (its hash does not match): write the data set again"
        except OSError as error:
            yield f"{path} is missing or unreadable ({error.strerror or error}): write the data set again"


def _text(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=2) + "\n"


def _checksum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _numbers(values: Any) -> np.ndarray:
    """Whole numbers as an array; of anything else one that has no rows and fits nothing."""
    whole = isinstance(values, list | tuple) and all(is_count(value) for value in values)
    return np.array(values, np.int64) if whole else np.array(0)


def _within(numbers: np.ndarray, count: int) -> bool:
    return bool(-count <= numbers.min() and numbers.max() < count)


def require_dataset(data: Any) -> None:
    """Raise where data is something else than a Dataset."""
    if not isinstance(data, Dataset):
        raise HilpError(f"data must be a Dataset, not a {type(data).__name__}: make one with hilp.load(...)")
