"""What collectors share: what is to be collected, episodes simulated by several processes and kept, and targets.

Finished episodes are kept next to the target folder until the collection is complete. Every call of `Shards.add` leaves
one checked file, written whole or not at all. A learner's state says how many episodes it has seen, and later ones are
dropped when it is loaded. So a killed collection continues without torn or doubled episodes.
"""

import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hilp import storage
from hilp.data.dataset import Dataset, require_free
from hilp.data.rewards import Extras, apply_reward
from hilp.data.transforms import Parts
from hilp.errors import HilpError

UNGUARDED = "in a script, call this under `if __name__ == '__main__':`, or use workers=1"
Episode = dict[str, Any]  # columns of an episode: observations [T + 1, obs], actions [T, act], extras [T + 1, ...]
Block = list[tuple[int, int]]  # number and steps of each episode that one call simulates
Simulate = Callable[[Block], list[Episode]]
Measure = Callable[[Dataset], dict[str, Any]]  # what data keeps of its own behaviour
MEASURED = 100_000  # transitions of which speeds and rewards are told
IDENTITY, STATE = "collection.json", "state.safetensors"
TARGET, TARGET_REACHED = "target", "target_reached"  # extra columns of data by scripts
NO_TARGET = -1  # of a row in which the script had none: it rests, or is going to break off


@dataclass(frozen=True)
class Request:
    """What to collect, and where to."""

    kind: str
    steps: int  # transitions
    seed: int
    out: Path | None = None  # a folder; None for data in memory
    progress: Callable[[int], None] | None = None  # called with the transitions so far
    workers: int | None = None  # processes or threads that simulate; None: one a core
    overwrite: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)  # values that change the defaults of one that learns

    def report(self, done: int) -> None:
        if self.progress:
            self.progress(min(done, self.steps))

    def identity(self, task: str, **more: Any) -> dict[str, Any]:
        """What distinguishes this collection from others."""
        return {"task": task, "kind": self.kind, "steps": self.steps, "seed": self.seed, **more}

    @property
    def folder(self) -> Path:
        assert self.out is not None, "collectors without IN_MEMORY are called with a folder"
        return self.out


def collect_blocks(
    request: Request,
    identity: dict[str, Any],
    make: Callable[[], Simulate],
    length: int,
    block: int,
    name: str,
    task: str,
    parts: Parts = (),
    measure: Measure | None = None,
) -> Dataset:
    """Exactly `request.steps` transitions in episodes of `length` steps; the last episode may be shorter.

    Each process calls `make` once. What it returns simulates a block
    of episodes, which depend on the seed and their numbers only. So an interrupted collection continues with the same
    data, also with another number of workers.
    """
    workers = (os.cpu_count() or 1) if request.workers is None else request.workers
    if workers > 1 and multiprocessing.parent_process() is not None:
        # Most likely a worker process, which runs its parent's script again.
        raise HilpError(f"cannot collect with {workers} workers inside another one: {UNGUARDED}")
    lengths = np.full(-(-request.steps // length), length)
    lengths[-1] -= lengths.sum() - request.steps
    with collection(request.folder, identity, request.overwrite) as shards:
        left = list(enumerate(lengths.tolist()))[shards.episodes() :]
        blocks = [left[first : first + block] for first in range(0, len(left), block)]
        for episodes in in_order(make, blocks, workers):
            shards.add(episodes)
            request.report(shards.transitions())
        return shards.finish(name, task, parts, measure)


def recorded(row: Callable[[], Episode], step: Callable[[], np.ndarray | None], steps: int) -> Episode:
    """The columns of so many steps, each of which returns its actions, or None where all is over."""
    rows, actions = [row()], []
    for _ in range(steps):
        chosen = step()
        if chosen is None:
            break
        actions.append(chosen)
        rows.append(row())
    return {"actions": np.stack(actions), **{name: np.stack([one[name] for one in rows]) for name in rows[0]}}


def apart(columns: Episode, steps: Iterable[int]) -> list[Episode]:
    """The episodes that were recorded side by side, in columns [T + 1, n, ...], each with its first so many steps."""
    return [cut({name: column[:, i] for name, column in columns.items()}, own) for i, own in enumerate(steps)]


def cut(episode: Episode, steps: int) -> Episode:
    """The first so many transitions of an episode."""
    return {name: rows[: steps + (name != "actions")] for name, rows in episode.items()}


def in_order(make: Callable[[], Simulate], blocks: Sequence[Block], workers: int) -> Iterator[list[Episode]]:
    """The episodes of each block, in order."""
    workers = min(workers, len(blocks))
    if workers < 2:
        if blocks:
            yield from map(make(), blocks)
        return
    # Not forked: the threads of a process that has used JAX do not survive it.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _start_worker, (make,))
    try:
        yield from pool.map(_work, blocks)
    except BrokenProcessPool as error:
        raise HilpError(f"a collecting process ended too early: {UNGUARDED}") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_simulate: Simulate | None = None  # of this worker process


def _start_worker(make: Callable[[], Simulate]) -> None:
    global _simulate
    _simulate = make()


def _work(block: Block) -> list[Episode]:
    assert _simulate is not None
    return _simulate(block)


def at_target(number: Any, reached: Any) -> Episode:
    """Extra columns: how many targets the episode had before this row's (or NO_TARGET), and whether it is there."""
    return {TARGET: np.array(number, np.int32), TARGET_REACHED: np.array(reached, bool)}


def script_outcome(data: Dataset) -> dict[str, int | float]:
    """Targets that a script took up, how many it reached and their share, and how many an episode's end cut short.

    Empty for data without targets. One that is followed by a rest was not cut short.
    """
    if not {TARGET, TARGET_REACHED} <= data.extras.keys():
        return {}
    number, reached = np.asarray(data.extras[TARGET]), np.asarray(data.extras[TARGET_REACHED])
    episode = np.repeat(np.arange(data.episodes), data.lengths)
    firsts = np.flatnonzero(np.diff(number, prepend=-1) | np.diff(episode, prepend=-1))  # first row of each target
    got = np.logical_or.reduceat(reached, firsts)
    last = np.diff(episode[firsts], append=data.episodes) > 0  # of its episode
    some = number[firsts] != NO_TARGET
    got, last = got[some], last[some]
    if not len(got):
        return {}
    return {
        "targets": len(got),
        "targets_reached": int(got.sum()),
        "targets_cut_short": int((last & ~got).sum()),
        "script_success": float(got.mean()),
    }


def measure(world: Any, data: Dataset) -> dict[str, Any]:
    """What the behaviour was like: shares of speeds, what each reward would have paid a step, and early ends.

    Speeds and rewards are those of transitions spread over all the data, at most `MEASURED` of them.
    """
    rows = data.transition_rows
    rows = rows[:: -(-len(rows) // MEASURED)]
    s, a, s2 = data.observations[rows], data.actions[rows], data.observations[rows + 1]
    extras = Extras.of(data, rows)
    found: dict[str, Any] = {}
    if len(edges := np.asarray(getattr(world, "speed_edges", ()), float)):
        speeds = apply_reward(world.speeds, s, a, s2, extras).clip(edges[0], edges[-1])
        found["speed_edges"] = edges.tolist()
        found["speed_shares"] = (np.histogram(speeds, edges)[0] / len(rows)).tolist()
    for name, reward in world.rewards.items():
        found[f"reward_{name}"] = float(np.mean(apply_reward(reward, s, a, s2, extras)))
    # All but the last, which is cut where there are enough transitions.
    return {**found, "ended_early": int((data.lengths[:-1] < data.lengths.max()).sum())}


def covered(measured: Mapping[str, Any]) -> str:
    """How many squares data from nothing had visited, at one time after the other."""
    of = f" of {measured['cells_of']}" if "cells_of" in measured else ""
    return ", ".join(f"{cells:,}" for cells in measured["cells_at"]) + of


@contextmanager
def collection(out: Path, identity: dict[str, Any], overwrite: bool = False) -> Iterator["Shards"]:
    """The episodes of one collection on their way to `out`, for this process alone.

    identity: what tells it from others (task, kind, steps, seed, ...).
    """
    out = storage.with_a_name(out)
    require_free(out, overwrite)
    folder = _beside(out)
    with storage.locked(folder, f"collecting {_listed(identity)}"):
        storage.clean_leftovers(folder)
        storage.clean_leftovers_in(folder)
        try:
            yield Shards(out, identity, overwrite)
        except BaseException:
            # A mistake that shows before the first episode must not stand in the way of the corrected command.
            if {file.name for file in folder.iterdir()} <= {IDENTITY, storage.LOCK}:
                (folder / IDENTITY).unlink(missing_ok=True)
            raise


class Shards:
    """The finished episodes of a collection, in a folder next to its target `out`."""

    def __init__(self, out: Path, identity: dict[str, Any], overwrite: bool = False) -> None:
        self.out, self.folder, self._overwrite = out, _beside(out), overwrite
        with storage.told(f"cannot write {self.folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
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

    def add(self, episodes: list[Episode]) -> None:
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

    def stored(self) -> Iterator[Episode]:
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
        there = (self.folder / STATE).exists()
        arrays, saved = storage.read_arrays(self.folder / STATE) if there else ({}, {"episodes": 0})
        if saved["episodes"] > self.episodes():
            raise HilpError(f"{self.folder} has lost episodes that its state saw: delete the folder and collect again")
        for file in self._files():
            if int(file.stem) >= saved["episodes"]:
                file.unlink()
        self._lengths = self._lengths[: saved["episodes"]]
        return (arrays, saved["note"]) if there else None

    def finish(
        self, name: str, task: str | None, parts: Parts = (), measure: Measure | None = None, choices: int = 0
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
        actions = columns.pop("actions")
        actions = actions.astype(np.min_scalar_type(choices - 1)) if choices else actions
        data = Dataset(columns.pop("observations"), actions, self._lengths, columns, name=name, choices=choices)
        measured = {} if measure is None else measure(data)
        data = replace(data, task=task, observation_parts=parts, measured=measured)
        data.save(self.out, self._overwrite)
        # Under another name at once: the rest of a folder that was half removed would look like a torn collection.
        leftover = storage.temporary_beside(self.folder)
        with storage.told(f"{self.out} is complete, but {self.folder} cannot be removed"):
            os.rename(self.folder, leftover)
        shutil.rmtree(leftover, ignore_errors=True)
        return Dataset.open(self.out)

    def _files(self) -> list[Path]:
        """One a call of `add`, named after the number of its first episode."""
        return sorted(self.folder.glob("[0-9]*.safetensors"))


def _beside(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")


def _listed(identity: dict[str, Any]) -> str:
    """An identity in one line, whatever is in it: a task may be the text of a map."""
    return ", ".join(f"{key} {' '.join(str(value).split())}" for key, value in identity.items())
