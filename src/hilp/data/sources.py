"""Source: a data set that need not be in memory. What its rows hold, and a way to read any of them.

Readers make sources; `gather` turns one into a Dataset in memory, `convert` writes it to a native folder block by
block, `inspect` looks at it block by block. Rows are laid out as in a Dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hilp.data.columns import BLOCK_BYTES, row_bytes
from hilp.data.dataset import Dataset, Parts
from hilp.errors import HilpError, nearest

MOST_BLOCK_ROWS = 1 << 16


class Kind(NamedTuple):
    """What a row of a column is."""

    shape: tuple[int, ...]
    dtype: np.dtype


class Block(NamedTuple):
    """Consecutive rows."""

    observations: np.ndarray
    actions: np.ndarray
    extras: dict[str, np.ndarray]

    def part(self, start: int, stop: int) -> Block:
        columns = {name: column[start:stop] for name, column in self.extras.items()}
        return Block(self.observations[start:stop], self.actions[start:stop], columns)


@dataclass(frozen=True)
class Source:
    """Trajectories somewhere."""

    name: str
    format: str
    lengths: np.ndarray  # int64 [episodes]: rows of each episode
    observation: Kind
    action: Kind
    extras: Mapping[str, Kind]
    read: Callable[[int, int], Block]  # rows from, to; going forward is fast
    disk_bytes: int = 0
    identity: str | None = None  # of the files behind it; None where there are none
    endings: Mapping[str, int] = field(default_factory=dict)  # how many episodes end in which way, where the data says
    notes: tuple[str, ...] = ()  # what the reader decided or left out, one line each
    action_center: np.ndarray | None = None
    action_half_range: np.ndarray | None = None
    task: str | None = None
    observation_parts: Parts = ()

    @property
    def episodes(self) -> int:
        return len(self.lengths)

    @cached_property
    def rows(self) -> int:
        return int(np.sum(self.lengths))

    @property
    def transitions(self) -> int:
        return self.rows - self.episodes

    @cached_property
    def stops(self) -> np.ndarray:
        """The row after each episode."""
        return np.cumsum(self.lengths)

    @property
    def row_bytes(self) -> int:
        kinds = (self.observation, self.action, *self.extras.values())
        return sum(row_bytes((1, *kind.shape), kind.dtype) for kind in kinds)

    @property
    def block_rows(self) -> int:
        """Rows of a block: bounded in bytes, so that images need no more memory than numbers."""
        return int(np.clip(BLOCK_BYTES // max(1, self.row_bytes), 1, MOST_BLOCK_ROWS))

    def blocks(self, start: int = 0) -> Iterator[tuple[int, Block]]:
        """All blocks from a row on, each with its first row."""
        for first in range(start, self.rows, self.block_rows):
            yield first, self.read(first, min(first + self.block_rows, self.rows))


def gather(source: Source) -> Dataset:
    """All of it in memory."""
    try:
        observations = np.empty((source.rows, *source.observation.shape), source.observation.dtype)
        actions = np.empty((source.rows, *source.action.shape), source.action.dtype)
        extras = {name: np.empty((source.rows, *kind.shape), kind.dtype) for name, kind in source.extras.items()}
    except (MemoryError, ValueError) as error:
        size = source.rows * source.row_bytes / 2**30
        raise HilpError(
            f"{source.name} needs {size:.1f} GiB of memory: convert it to a native folder, which is read from disk"
        ) from error
    for first, block in source.blocks():
        rows = slice(first, first + len(block.observations))
        observations[rows] = block.observations
        actions[rows] = block.actions
        for name, column in block.extras.items():
            extras[name][rows] = column
    return Dataset(
        observations,
        actions,
        source.lengths,
        extras,
        source.action_center,
        source.action_half_range,
        source.name,
        source.task,
        source.format,
        dict(source.endings),
        source.notes,
        source.observation_parts,
    )


def of_dataset(data: Dataset) -> Source:
    """A data set that is there already."""

    def read(start: int, stop: int) -> Block:
        extras = {name: np.asarray(column[start:stop]) for name, column in data.extras.items()}
        return Block(np.asarray(data.observations[start:stop]), np.asarray(data.actions[start:stop]), extras)

    def kind(column: np.ndarray) -> Kind:
        return Kind(column.shape[1:], column.dtype)

    return Source(
        name=data.name,
        format=data.format,
        lengths=np.asarray(data.lengths, np.int64),
        observation=kind(data.observations),
        action=kind(data.actions),
        extras={name: kind(column) for name, column in data.extras.items()},
        read=read,
        endings=data.endings,
        notes=data.notes,
        action_center=data.action_center,
        action_half_range=data.action_half_range,
        task=data.task,
        observation_parts=data.observation_parts,
    )


def select(source: Source, episodes: np.ndarray, note: str | None = None) -> Source:
    """The source with these episodes only (numbers, ascending)."""
    lengths = source.lengths[episodes]
    begins = (source.stops - source.lengths)[episodes]  # in the rows of `source`
    stops = np.cumsum(lengths)

    def read(start: int, stop: int) -> Block:
        runs: list[list[int]] = []
        for episode in range(
            int(np.searchsorted(stops, start, "right")), int(np.searchsorted(stops, stop - 1, "right")) + 1
        ):
            ahead = int(stops[episode] - lengths[episode])
            first = int(begins[episode]) + max(start - ahead, 0)
            last = int(begins[episode]) + min(stop - ahead, int(lengths[episode]))
            if runs and runs[-1][1] == first:
                runs[-1][1] = last
            else:
                runs.append([first, last])
        return join([source.read(first, last) for first, last in runs])

    return replace(
        source,
        lengths=lengths,
        read=read,
        endings=source.endings if len(episodes) == source.episodes else {},
        notes=source.notes if note is None else (*source.notes, note),
    )


def join(blocks: Sequence[Block]) -> Block:
    """Blocks, one after the other."""
    if len(blocks) == 1:
        return blocks[0]
    extras = {name: np.concatenate([block.extras[name] for block in blocks]) for name in blocks[0].extras}
    observations = np.concatenate([block.observations for block in blocks])
    return Block(observations, np.concatenate([block.actions for block in blocks]), extras)


def by_episode(lengths: np.ndarray, fetch: Callable[[int, int], list[Block]]) -> Callable[[int, int], Block]:
    """`Source.read` for files that hold whole episodes; `fetch` reads a range of them."""
    stops = np.cumsum(lengths)
    last: tuple[int, Block] | None = None  # a block may end inside an episode, and the next one goes on with it

    def read(start: int, stop: int) -> Block:
        nonlocal last
        first = int(np.searchsorted(stops, start, "right"))
        beyond = int(np.searchsorted(stops, stop - 1, "right")) + 1
        if last is not None and last[0] == first:
            episodes = [last[1], *(fetch(first + 1, beyond) if first + 1 < beyond else [])]
        else:
            episodes = fetch(first, beyond)
        last = (beyond - 1, episodes[-1])
        ahead = int(stops[first] - lengths[first])
        return join(episodes).part(start - ahead, stop - ahead)

    return read


def choose_extras(available: Collection[str], wanted: Sequence[str] | None, name: str) -> list[str]:
    """The extra columns to keep: all, or those asked for."""
    if wanted is None:
        return list(available)
    wanted = [wanted] if isinstance(wanted, str) else wanted
    for column in wanted:
        if column not in available:
            has = nearest(column, available) if available else "it has none"
            raise HilpError(f"{name} has no extra column '{column}': {has}")
    return list(wanted)


def with_extras(source: Source, names: Sequence[str]) -> Source:
    """The source with these extra columns only."""
    kept = choose_extras(source.extras, names, source.name)

    def read(start: int, stop: int) -> Block:
        block = source.read(start, stop)
        return block._replace(extras={name: block.extras[name] for name in kept})

    return replace(source, extras={name: source.extras[name] for name in kept}, read=read)


class Scaling:
    """Maps the range of each action column to [-1, 1]."""

    def __init__(self, low: np.ndarray, high: np.ndarray):
        self.center = ((high + low) / 2).astype(np.float32)
        self.half_range = np.where(high > low, (high - low) / 2, 1.0).astype(np.float32)

    def __call__(self, actions: np.ndarray) -> np.ndarray:
        return np.clip((actions - self.center) / self.half_range, -1.0, 1.0).astype(np.float32)

    def after(self, center: np.ndarray | None, half_range: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Center and half range of raw actions, where the data had been rescaled before."""
        if center is None or half_range is None:
            return self.center, self.half_range
        return center + half_range * self.center, half_range * self.half_range


def rescaled(source: Source, scaling: Scaling) -> Source:
    """The source with its actions mapped; the policy maps its own back."""

    def read(start: int, stop: int) -> Block:
        block = source.read(start, stop)
        return block._replace(actions=scaling(block.actions))

    center, half_range = scaling.after(source.action_center, source.action_half_range)
    return replace(source, read=read, action_center=center, action_half_range=half_range)
