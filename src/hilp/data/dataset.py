"""Dataset: flat arrays and episode lengths, in memory or memory-mapped from a native folder.

Layout: an episode of T steps is T + 1 consecutive rows; transition i is rows i and i + 1; the action of an episode's
last row is never used. There is no copy of next observations.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from hilp.errors import HilpError

FORMAT = "hilp-dataset"
FORMAT_VERSION = 1
MANIFEST = "dataset.json"
HASH_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True)
class Dataset:
    """Unlabeled trajectories. Build one with `hilp.load`; `checks.require_trainable` says what is wrong with it."""

    observations: np.ndarray  # [rows, obs_dim]
    actions: np.ndarray  # [rows, act_dim], inside [-1, 1]
    lengths: np.ndarray  # int64 [episodes]: rows of each episode
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)  # named columns of `rows` rows
    action_center: np.ndarray | None = None  # raw action = center + half_range * action, where actions were rescaled
    action_half_range: np.ndarray | None = None
    name: str = "arrays"
    task: str | None = None  # the task it was collected in, where hilp collected it

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
        digest = hashlib.sha256()
        for name, array in (("observations", self.observations), ("actions", self.actions), ("lengths", self.lengths)):
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            for start in range(0, len(array), HASH_BLOCK_ROWS):
                digest.update(np.ascontiguousarray(array[start : start + HASH_BLOCK_ROWS]).data)
        return digest.hexdigest()[:32]

    def iter_episodes(self) -> Iterator[slice]:
        """The rows of each episode, in order."""
        for start, length in zip(self.starts, self.lengths, strict=True):
            yield slice(int(start), int(start + length))

    def select(self, episodes: np.ndarray) -> Dataset:
        """A data set of these episodes only."""
        slices = [slice(int(self.starts[e]), int(self.starts[e] + self.lengths[e])) for e in episodes]
        take = lambda array: np.concatenate([array[s] for s in slices])  # noqa: E731
        return replace(
            self,
            observations=take(self.observations),
            actions=take(self.actions),
            lengths=np.asarray(self.lengths)[episodes],
            extras={name: take(column) for name, column in self.extras.items()},
        )

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the native folder. It appears whole or not at all."""
        target = Path(path)
        if target.exists() and not overwrite:
            raise HilpError(f"{target} already exists: choose another folder or pass overwrite")
        temporary = target.with_name(f".{target.name}.writing-{os.getpid()}")
        try:
            temporary.mkdir(parents=True)
            columns = {"observations": self.observations, "actions": self.actions, "lengths": self.lengths}
            columns |= {f"extra.{name}": column for name, column in self.extras.items()}
            for name, column in columns.items():
                np.save(temporary / f"{name}.npy", column, allow_pickle=False)
            manifest = {
                "format": FORMAT,
                "version": FORMAT_VERSION,
                "name": self.name,
                "task": self.task,
                "rows": self.rows,
                "episodes": self.episodes,
                "fingerprint": self.fingerprint,
                "extras": sorted(self.extras),
                "action_center": None if self.action_center is None else self.action_center.tolist(),
                "action_half_range": None if self.action_half_range is None else self.action_half_range.tolist(),
            }
            (temporary / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
            if target.exists():
                shutil.rmtree(target)
            os.replace(temporary, target)
        except OSError as error:
            raise HilpError(f"cannot write {target}: {error.strerror or error}") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return target

    @staticmethod
    def open(path: str | os.PathLike[str], in_memory: bool = False) -> Dataset:
        """Open a native folder, memory-mapped unless `in_memory`."""
        folder = Path(path)
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
        except (OSError, ValueError) as error:
            raise HilpError(f"{folder / MANIFEST} cannot be read: {error}") from error
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise HilpError(f"{folder / MANIFEST} is not a hilp data set (its format is not '{FORMAT}')")
        if manifest.get("version") != FORMAT_VERSION:
            raise HilpError(f"{folder} has format version {manifest.get('version')}, this hilp reads {FORMAT_VERSION}")

        def column(name: str) -> np.ndarray:
            try:
                return np.load(folder / f"{name}.npy", mmap_mode=None if in_memory else "r", allow_pickle=False)
            except (OSError, ValueError, EOFError) as error:
                raise HilpError(
                    f"{folder / name}.npy is missing or damaged ({error}): write the data set again"
                ) from error

        def vector(name: str) -> np.ndarray | None:
            values = manifest.get(name)
            return None if values is None else np.asarray(values, np.float32)

        observations, actions, lengths = column("observations"), column("actions"), np.array(column("lengths"))
        rows = manifest.get("rows")
        if not (len(observations) == len(actions) == lengths.sum() == rows):
            raise HilpError(
                f"{folder} is damaged: dataset.json says {rows} rows, the arrays have {len(observations)} observations, "
                f"{len(actions)} actions and episodes of {lengths.sum()} rows: write the data set again"
            )
        return Dataset(
            observations,
            actions,
            lengths,
            {name: column(f"extra.{name}") for name in manifest.get("extras", [])},
            vector("action_center"),
            vector("action_half_range"),
            str(manifest.get("name", folder.name)),
            manifest.get("task"),
        )


def is_native(path: str | os.PathLike[str]) -> bool:
    return (Path(path) / MANIFEST).is_file()
