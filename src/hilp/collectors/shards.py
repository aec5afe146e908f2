"""Finished episodes of a collection that may be interrupted, kept next to the target folder until it is complete.

Every call of `add` leaves one checked file, written whole or not at all. A learner's state says how many episodes it
has seen, and later ones are dropped when it is loaded. So a killed collection continues without torn or doubled
episodes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hilp import storage
from hilp.data.dataset import Dataset, require_free
from hilp.data.transforms import Parts
from hilp.errors import HilpError

IDENTITY = "collection.json"
STATE = "state.safetensors"


@contextmanager
def collection(out: Path, identity: dict[str, Any], overwrite: bool = False) -> Iterator[Shards]:
    """The episodes of one collection on their way to `out`, for this process alone.

    identity: what tells it from others (task, kind, steps, seed, ...).
    """
    out = storage.with_a_name(Path(out))
    require_free(out, overwrite)
    folder = _beside(out)
    with storage.locked(folder, f"collecting {_listed(identity)}"):
        storage.clean_leftovers(folder)
        storage.clean_leftovers_in(folder)
        yield Shards(out, identity, overwrite)


class Shards:
    """The finished episodes of a collection, in a folder next to its target `out`."""

    def __init__(self, out: Path, identity: dict[str, Any], overwrite: bool = False) -> None:
        self.out, self._overwrite = storage.with_a_name(out), overwrite
        self.folder = _beside(self.out)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HilpError(f"cannot write {self.folder}: {error.strerror or error}") from error
        known = self.folder / IDENTITY
        if not known.exists():
            storage.write_json(known, identity)
        try:
            found = storage.read_json(known)
        except HilpError as error:
            raise HilpError(f"{error}; or delete {self.folder} and collect again") from error
        if found != json.loads(json.dumps(identity)):
            about = _listed(found) if isinstance(found, dict) else "something else"
            raise HilpError(
                f"{self.folder} holds an unfinished collection of {about}: finish it with the same command, delete the "
                "folder or choose another target"
            )
        self._lengths = np.zeros(0, np.int64)  # rows of each finished episode
        for file in self._files():
            lengths = storage.read_arrays(file)[0]["lengths"]
            if int(file.stem) != len(self._lengths):
                raise HilpError(f"{self.folder} lacks episodes before {file.name}: delete the folder and collect again")
            self._lengths = np.concatenate([self._lengths, lengths])

    def episodes(self) -> int:
        return len(self._lengths)

    def transitions(self) -> int:
        return int(self._lengths.sum()) - len(self._lengths)

    def add(self, episodes: list[dict[str, np.ndarray]]) -> None:
        """Keep finished episodes: observations [T + 1, obs], actions [T, act] and extras [T + 1, ...] each."""
        if not episodes:
            return
        columns: dict[str, np.ndarray] = {}
        for name in episodes[0]:
            parts = [episode[name] for episode in episodes]
            if name == "actions":
                parts = [np.concatenate([actions, np.zeros_like(actions[:1])]) for actions in parts]
            columns[name] = np.concatenate(parts)
        lengths = np.array([len(episode["observations"]) for episode in episodes], np.int64)
        torn = [name for name, column in columns.items() if len(column) != lengths.sum()]
        if torn:
            raise ValueError(f"episodes of {lengths.sum()} observations have {len(columns[torn[0]])} rows of {torn[0]}")
        storage.write_arrays(self.folder / f"{self.episodes():08d}.safetensors", {**columns, "lengths": lengths})
        self._lengths = np.concatenate([self._lengths, lengths])

    def stored(self) -> Iterator[dict[str, np.ndarray]]:
        """The episodes so far, as they were added."""
        for file in self._files():
            columns, _ = storage.read_arrays(file)
            stops = np.cumsum(columns.pop("lengths"))
            for start, stop in zip([0, *stops[:-1]], stops, strict=True):
                episode = {name: column[start:stop] for name, column in columns.items()}
                yield {**episode, "actions": episode["actions"][:-1]}

    def save_state(self, arrays: dict[str, np.ndarray], note: dict[str, Any]) -> None:
        """Keep the state of a learner that has seen all the episodes so far."""
        storage.write_arrays(self.folder / STATE, arrays, {"note": note, "episodes": self.episodes()})

    def load_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """The state last saved; drops the episodes that it has not seen, which are all of them where there is none."""
        if not (self.folder / STATE).exists():
            self._drop_from(0)
            return None
        arrays, saved = storage.read_arrays(self.folder / STATE)
        if saved["episodes"] > self.episodes():
            raise HilpError(
                f"{self.folder} has lost episodes that its state has seen: delete the folder and collect again"
            )
        self._drop_from(saved["episodes"])
        return arrays, saved["note"]

    def finish(
        self,
        name: str,
        task: str | None,
        observation_parts: Parts = (),
        measure: Callable[[Dataset], dict[str, Any]] | None = None,
    ) -> Dataset:
        """Write the native folder and remove what led to it."""
        files = self._files()
        if not files:
            raise HilpError(f"{self.folder} holds no episode: there is nothing to write")
        rows = int(self._lengths.sum())
        columns: dict[str, np.ndarray] = {}
        at = 0
        for file in files:
            shard, _ = storage.read_arrays(file)
            count = int(shard.pop("lengths").sum())
            for key, values in shard.items():
                column = columns.setdefault(key, np.empty((rows, *values.shape[1:]), values.dtype))
                column[at : at + count] = values
            at += count
        data = Dataset(columns.pop("observations"), columns.pop("actions"), self._lengths, columns, name=name)
        measured = {} if measure is None else measure(data)
        data = replace(data, task=task, observation_parts=observation_parts, measured=measured)
        data.save(self.out, self._overwrite)
        # Under another name at once: the rest of a folder that was half removed would look like a torn collection.
        leftover = storage.temporary_beside(self.folder)
        try:
            os.rename(self.folder, leftover)
        except OSError as error:
            raise HilpError(f"{self.out} is complete, but {self.folder} cannot be removed: {error.strerror}") from error
        shutil.rmtree(leftover, ignore_errors=True)
        return Dataset.open(self.out)

    def _files(self) -> list[Path]:
        """One a call of `add`, named after the number of its first episode."""
        return sorted(self.folder.glob("[0-9]*.safetensors"))

    def _drop_from(self, episodes: int) -> None:
        for file in self._files():
            if int(file.stem) >= episodes:
                file.unlink()
        self._lengths = self._lengths[:episodes]


def _beside(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")


def _listed(identity: dict[str, Any]) -> str:
    """An identity in one line, whatever is in it: a task may be the text of a map."""
    return ", ".join(f"{key} {' '.join(str(value).split())}" for key, value in identity.items())
