"""Dataset: flat arrays and episode lengths, in memory or memory-mapped from a native folder.

Layout: an episode of T steps is T + 1 consecutive rows; transition i is rows i and i + 1; the action of an episode's
last row is never used. There is no copy of next observations.

A native folder is dataset.json and one .npy file a column. dataset.json names every file with its size and SHA-256, and
carries a checksum of itself, so damage is always found: sizes when the folder is opened, hashes with `verify=True`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from hilp.data.columns import BLOCK_BYTES, NUMBERS, Column, open_npy, reason, row_bytes, sha256_of
from hilp.errors import HilpError, nearest

FORMAT = "hilp-dataset"
FORMAT_VERSION = 1
MANIFEST = "dataset.json"
CHECKSUM = "checksum"
Parts = tuple[tuple[str, tuple[int, ...]], ...]  # named parts of an observation, side by side: name, shape of a row
CONTENTS = {"name": str, "rows": int, "extras": list, "files": dict, "endings": dict, "notes": list}  # of dataset.json


@dataclass(frozen=True)
class Dataset:
    """Unlabeled trajectories. Build one with `hilp.load`; `checks.require_trainable` says what is wrong with it."""

    observations: np.ndarray  # [rows, obs_dim] float32; uint8 where images were flattened
    actions: np.ndarray  # [rows, act_dim], inside [-1, 1]
    lengths: np.ndarray  # int64 [episodes]: rows of each episode
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)  # named columns of `rows` rows
    action_center: np.ndarray | None = None  # raw action = center + half_range * action, where actions were rescaled
    action_half_range: np.ndarray | None = None
    name: str = "arrays"
    task: str | None = None  # the task it was collected in, where hilp collected it
    format: str = "arrays"  # the reader that took it
    endings: Mapping[str, int] = field(default_factory=dict)  # how many episodes end in which way, where the data says
    notes: tuple[str, ...] = ()  # what the reader decided or left out, one line each
    observation_parts: Parts = ()

    @property
    def rows(self) -> int:
        return int(self.observations.shape[0])

    @property
    def episodes(self) -> int:
        return len(self.lengths)

    @property
    def transitions(self) -> int:
        return self.rows - self.episodes

    @property
    def observation_dim(self) -> int:
        return int(self.observations.shape[1])

    @property
    def action_dim(self) -> int:
        return int(self.actions.shape[1])

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
        """Hash of everything that training sees; equal data has an equal fingerprint wherever it lies."""
        return fingerprint_of(self.observations, self.actions, self.lengths)

    def extra(self, name: str) -> np.ndarray:
        """An extra column by name, a value per row: `data.extra("physics")[data.transition_rows + 1]` is at each s'.

        Values stand in the row they were recorded with. A reward that came with its action (D4RL, Minari) stands in the
        row of s; one that came with the state it led to (ExORL) stands in the row of s'.
        """
        if name not in self.extras:
            has = nearest(name, self.extras) if self.extras else "it has none"
            raise HilpError(f"{self.name} has no extra column '{name}': {has}")
        return self.extras[name]

    def iter_episodes(self) -> Iterator[slice]:
        """The rows of each episode, in order."""
        for start, length in zip(self.starts, self.lengths, strict=True):
            yield slice(int(start), int(start + length))

    def select(self, episodes: np.ndarray) -> Dataset:
        """A data set of these episodes only."""
        slices = [slice(int(self.starts[e]), int(self.starts[e] + self.lengths[e])) for e in episodes]
        take = lambda array: np.concatenate([array[:0], *(array[s] for s in slices)])  # noqa: E731
        return replace(
            self,
            observations=take(self.observations),
            actions=take(self.actions),
            lengths=np.asarray(self.lengths)[episodes],
            extras={name: take(column) for name, column in self.extras.items()},
            endings={},
        )

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the native folder. It appears whole or not at all."""
        target = Path(path)
        require_free(target, overwrite)
        temporary = target.with_name(f".{target.name}.writing-{os.getpid()}")
        try:
            temporary.mkdir(parents=True)
            columns = {"observations": self.observations, "actions": self.actions, "lengths": self.lengths}
            columns |= {f"extra.{name}": column for name, column in self.extras.items()}
            for name, column in columns.items():
                np.save(temporary / file_name(name), column, allow_pickle=False)
            seal(temporary, describe(self), sorted(self.extras))
            take_place(temporary, target)
        except OSError as error:
            raise HilpError(f"cannot write {target}: {error.strerror or error}") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return target

    @staticmethod
    def open(path: str | os.PathLike[str], in_memory: bool = False, verify: bool = False) -> Dataset:
        """Open a native folder, memory-mapped unless `in_memory`. `verify` compares every file with its hash."""
        folder = Path(path)
        manifest = read_manifest(folder)
        for damage in damages(folder, manifest, hashes=verify):
            raise HilpError(damage)

        def column(name: str) -> np.ndarray:
            file = folder / file_name(name)
            stream = open_npy(file)  # numpy trusts a header; this does not
            try:
                array = np.load(file, mmap_mode=None if in_memory or 0 in stream.shape else "r", allow_pickle=False)
            except (OSError, ValueError, EOFError, MemoryError) as error:
                raise HilpError(f"{file} cannot be read ({reason(error)}): write the data set again") from error
            if array.dtype.kind not in NUMBERS or array.ndim < 1:
                raise HilpError(f"{file} is damaged: it holds {array.dtype} {array.shape}: write the data set again")
            return array

        observations, actions, lengths = column("observations"), column("actions"), np.array(column("lengths"))
        extras = {name: column(f"extra.{name}") for name in manifest["extras"]}
        sizes = {
            name: len(array) for name, array in {"observations": observations, "actions": actions, **extras}.items()
        }
        whole = lengths.ndim == 1 and lengths.dtype.kind in "iu" and bool(np.all(lengths >= 1))
        if (
            not whole
            or observations.ndim != 2
            or actions.ndim != 2
            or {*sizes.values(), int(lengths.sum())} != {manifest["rows"]}
        ):
            raise HilpError(
                f"{folder} is damaged: dataset.json says {manifest['rows']} rows, the arrays have {sizes} and episodes "
                f"of {lengths.sum()} rows: write the data set again"
            )
        scaling = [manifest.get(key) for key in ("action_center", "action_half_range")]
        try:
            center, half_range = (None if v is None else np.asarray(v, np.float32) for v in scaling)
            parts = tuple((str(name), tuple(map(int, shape))) for name, shape in manifest.get("observation_parts", []))
        except (TypeError, ValueError) as error:
            raise HilpError(f"{folder / MANIFEST} is damaged: {reason(error)}: write the data set again") from error
        return Dataset(
            observations,
            actions,
            lengths.astype(np.int64),
            extras,
            center,
            half_range,
            manifest["name"],
            manifest.get("task"),
            "native",
            manifest["endings"],
            tuple(manifest["notes"]),
            parts,
        )


def fingerprint_of(observations: Column, actions: Column, lengths: Column) -> str:
    """Hash of names, types, shapes and bytes, read a block at a time."""
    digest = hashlib.sha256()
    for name, column in (("observations", observations), ("actions", actions), ("lengths", lengths)):
        digest.update(f"{name} {column.dtype.str} {column.shape}".encode())
        step = max(1, BLOCK_BYTES // max(1, row_bytes(column.shape, column.dtype)))
        for start in range(0, column.shape[0], step):
            digest.update(np.ascontiguousarray(column[start : start + step]).data)
    return digest.hexdigest()[:32]


# ---- the native folder -----------------------------------------------------------------------------------------------


def is_native(path: str | os.PathLike[str]) -> bool:
    return (Path(path) / MANIFEST).is_file()


def file_name(column: str) -> str:
    """The file of a column; names of extras may hold slashes and anything else."""
    return quote(column, safe=" ") + ".npy"


def describe(about: Any) -> dict[str, Any]:
    """What dataset.json says beyond files and rows; of a Dataset or anything with the same fields."""
    vectors = {key: getattr(about, key) for key in ("action_center", "action_half_range")}
    return {
        "name": about.name,
        "task": about.task,
        "read_as": about.format,
        "endings": dict(about.endings),
        "notes": list(about.notes),
        "observation_parts": [[name, list(shape)] for name, shape in about.observation_parts],
        **{key: None if vector is None else vector.tolist() for key, vector in vectors.items()},
    }


def seal(
    folder: Path, about: Mapping[str, Any], extras: list[str], beside: Callable[[int], None] | None = None
) -> None:
    """Hash what lies in the folder and write dataset.json, which makes it a data set."""
    columns = ["observations", "actions", "lengths", *(f"extra.{name}" for name in extras)]
    observations, actions, lengths = (open_npy(folder / file_name(name)) for name in columns[:3])
    files = {
        file_name(name): {
            "bytes": (folder / file_name(name)).stat().st_size,
            "sha256": sha256_of(folder / file_name(name), beside),
        }
        for name in columns
    }
    manifest = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        **about,
        "rows": observations.shape[0],
        "episodes": lengths.shape[0],
        "fingerprint": fingerprint_of(observations, actions, lengths),
        "extras": extras,
        "files": files,
    }
    text = _text({**manifest, CHECKSUM: _checksum(manifest)})
    temporary = folder / f".{MANIFEST}.writing"
    with open(temporary, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, folder / MANIFEST)


def read_manifest(folder: Path) -> dict[str, Any]:
    """dataset.json, checked against its own checksum."""
    path = folder / MANIFEST
    try:
        text = path.read_bytes().decode("ascii")
        manifest = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise HilpError(f"{path} cannot be read: {reason(error)}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise HilpError(f"{path} is not a hilp data set (its format is not '{FORMAT}')")
    if manifest.get("version") != FORMAT_VERSION:
        raise HilpError(f"{folder} has format version {manifest.get('version')}, this hilp reads {FORMAT_VERSION}")
    checksum = manifest.pop(CHECKSUM, None)
    # Comparing the text as well finds flipped bits that JSON does not care about.
    if checksum != _checksum(manifest) or text != _text({**manifest, CHECKSUM: checksum}):
        raise HilpError(
            f"{path} was changed after it was written (its checksum does not match): restore it from a copy"
        )
    for key, kind in CONTENTS.items():
        if not isinstance(manifest.get(key), kind):
            raise HilpError(f"{path} is incomplete: it has no '{key}': write the data set again")
    return manifest


def damages(
    folder: Path, manifest: Mapping[str, Any], hashes: bool, beside: Callable[[int], None] | None = None
) -> Iterator[str]:
    """What is wrong with the files of a native folder, a line each; without `hashes` only missing and cut files."""
    for name, about in manifest["files"].items():
        path = folder / name
        try:
            size = path.stat().st_size
            if not isinstance(about, dict) or size != about.get("bytes"):
                yield f"{path} is damaged: it has {size} bytes, not as many as noted: write the data set again"
            elif hashes and sha256_of(path, beside) != about.get("sha256"):
                yield f"{path} was changed after it was written (its hash does not match): write the data set again"
        except OSError as error:
            yield f"{path} is missing or unreadable ({error.strerror or error}): write the data set again"


def require_free(target: Path, overwrite: bool) -> None:
    """A data set may only replace a data set, and only when asked to."""
    if not target.exists():
        return
    if not overwrite:
        raise HilpError(f"{target} already exists: choose another folder or pass overwrite")
    if not is_native(target) and not (target.is_dir() and not any(target.iterdir())):
        raise HilpError(f"{target} exists and is not a hilp data set, so it is not overwritten: choose another folder")


def take_place(temporary: Path, target: Path) -> None:
    """Rename a finished folder to its place; what was there before is gone only afterwards."""
    if not target.exists():
        os.replace(temporary, target)
        return
    old = target.with_name(f".{target.name}.replaced-{os.getpid()}")
    os.replace(target, old)
    os.replace(temporary, target)
    shutil.rmtree(old, ignore_errors=True)


def _text(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=2) + "\n"


def _checksum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
