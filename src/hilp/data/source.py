"""Source: a data set that need not be in memory. What its rows hold, and a way to read any of them.

Readers make sources; `gather` turns one into a Dataset in memory, `convert` writes it to a native folder block by
block, `inspect` looks at it block by block. Rows are laid out as in a Dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hilp import trees
from hilp.data import frames
from hilp.data.columns import BLOCK_BYTES, row_bytes
from hilp.data.dataset import Dataset
from hilp.data.metadata import Metadata
from hilp.data.native import columns_of
from hilp.data.transforms import ActionScaling
from hilp.errors import HilpError, nearest, some

MOST_BLOCK_ROWS = 1 << 16
MOST_PLACES = 3  # files that are named in a message


class Kind(NamedTuple):
    """What a row of a column is."""

    shape: tuple[int, ...]
    dtype: np.dtype


class Block(NamedTuple):
    """Consecutive rows."""

    observations: Any  # an array, or a dict of them
    actions: np.ndarray
    extras: dict[str, np.ndarray]

    def part(self, start: int, stop: int) -> Block:
        take = lambda column: column[start:stop]  # noqa: E731
        extras = {name: take(column) for name, column in self.extras.items()}
        return Block(trees.over(take, self.observations), take(self.actions), extras)


def rows_text(rows: np.ndarray) -> str:
    """Where rows are, in words."""
    return f"rows {some(rows, 5)}"


@dataclass(frozen=True)
class Source(Metadata):
    """Trajectories somewhere."""

    lengths: np.ndarray  # int64 [episodes]: rows of each episode
    observation: Kind | dict[str, Kind]  # one array, or a named tree of them
    action: Kind
    extras: Mapping[str, Kind]
    read: Callable[[int, int], Block]  # rows from, to; going forward is fast
    disk_bytes: int = 0
    identity: str | None = None  # of the files behind it; None where there are none
    damages: Callable[[], list[str]] | None = None  # compares its files with their hashes, where they have any
    where: Callable[[np.ndarray], str] = rows_text  # where these rows are in what the user has, for messages

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
    def columns(self) -> dict[str, Kind]:
        """Everything that has a value a row, by the names of its columns."""
        return columns_of(self.observation, self.action, self.extras)

    @property
    def observation_dim(self) -> int:
        """All numbers of an observation."""
        kinds = trees.named(self.observation, "observations").values()
        return sum(int(np.prod(kind.shape)) for kind in kinds)

    @property
    def row_bytes(self) -> int:
        return sum(row_bytes((1, *kind.shape), kind.dtype) for kind in self.columns.values())

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
        columns = {n: np.empty((source.rows, *kind.shape), kind.dtype) for n, kind in source.columns.items()}
    except (MemoryError, ValueError) as error:
        size = source.rows * source.row_bytes / 2**30
        raise HilpError(
            f"{source.name} needs {size:.1f} GiB of memory: convert it to a native folder, which is read from disk"
        ) from error
    for first, block in source.blocks():
        for name, values in columns_of(*block).items():
            columns[name][first : first + len(values)] = values
    observations = trees.unnamed(columns, "observations")
    extras = {name: columns[f"extra.{name}"] for name in source.extras}
    observations = frames.stacked(observations, source.lengths, source.frames)
    return Dataset(observations, columns["actions"], source.lengths, extras, **source.metadata())


def of_dataset(data: Dataset) -> Source:
    """A data set that is there already; of stacks of frames each frame once."""
    observations = frames.stored(data.observations)

    def kind(column: np.ndarray) -> Kind:
        return Kind(column.shape[1:], column.dtype)

    def read(start: int, stop: int) -> Block:
        rows = lambda column: np.asarray(column[start:stop])  # noqa: E731
        extras = {name: rows(column) for name, column in data.extras.items()}
        return Block(trees.over(rows, observations), rows(data.actions), extras)

    return Source(
        lengths=np.asarray(data.lengths, np.int64),
        observation=trees.over(kind, observations),
        action=kind(data.actions),
        extras={name: kind(column) for name, column in data.extras.items()},
        read=read,
        **data.metadata(),
    )


def select(source: Source, episodes: np.ndarray, note: str | None = None) -> Source:
    """The source with these episodes only (numbers, ascending)."""
    found = ranges(source, (source.stops - source.lengths)[episodes], source.lengths[episodes], note)
    return found if len(episodes) == source.episodes else replace(found, endings={})


def ranges(source: Source, begins: np.ndarray, lengths: np.ndarray, note: str | None = None) -> Source:
    """The source with these ranges of its rows as episodes (ascending and apart)."""
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

    def where(rows: np.ndarray) -> str:
        episode = np.searchsorted(stops, rows, "right")
        return source.where(begins[episode] + rows - (stops - lengths)[episode])

    return replace(
        source,
        lengths=lengths,
        read=read,
        where=where,
        notes=source.notes if note is None else (*source.notes, note),
    )


def chain(sources: Sequence[Source], name: str, names: Sequence[str]) -> Source:
    """Sources of one kind as one, in order; `names` are what to call them in messages."""
    first = sources[0]
    if len(sources) == 1:
        return replace(first, name=name)
    for other, called in zip(sources, names, strict=True):
        if other.columns != first.columns:
            raise HilpError(f"{name}: {called} has other columns than {names[0]}: {_difference(first, other)}")
    stops = np.cumsum([source.rows for source in sources])

    def read(start: int, stop: int) -> Block:
        parts = range(int(np.searchsorted(stops, start, "right")), int(np.searchsorted(stops, stop - 1, "right")) + 1)
        ahead = [int(stops[part]) - sources[part].rows for part in parts]
        return join(
            [
                sources[part].read(max(start - before, 0), min(stop - before, sources[part].rows))
                for part, before in zip(parts, ahead, strict=True)
                if sources[part].rows
            ]
        )

    def where(rows: np.ndarray) -> str:
        part = np.searchsorted(stops, rows, "right")
        found = [
            f"{sources[p].where(rows[part == p] - (int(stops[p]) - sources[p].rows))} of {names[p]}"
            for p in np.unique(part)[:MOST_PLACES]
        ]
        more = len(np.unique(part)) - len(found)
        return "; ".join(found) + (f" and {more} more" if more else "")

    return replace(
        first,
        name=name,
        lengths=np.concatenate([source.lengths for source in sources]),
        read=read,
        where=where,
        endings={},
        notes=tuple(dict.fromkeys(note for source in sources for note in source.notes)),
    )


def _difference(one: Source, other: Source) -> str:
    for name in (*one.columns, *other.columns):
        kinds = [source.columns.get(name) for source in (one, other)]
        if kinds[0] != kinds[1]:
            here, there = ("nothing" if kind is None else f"{kind.dtype} {kind.shape}" for kind in kinds)
            return f"{name} is {there}, not {here}"
    raise AssertionError("they are the same")


def join(blocks: Sequence[Block]) -> Block:
    """Blocks, one after the other."""
    if len(blocks) == 1:
        return blocks[0]
    extras = {name: np.concatenate([block.extras[name] for block in blocks]) for name in blocks[0].extras}
    observations = trees.over(lambda *parts: np.concatenate(parts), *(block.observations for block in blocks))
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


def rescaled(source: Source, scaling: ActionScaling) -> Source:
    """The source with its actions mapped; the policy maps its own back."""

    def read(start: int, stop: int) -> Block:
        block = source.read(start, stop)
        return block._replace(actions=scaling.scaled(block.actions))

    return replace(source, read=read, action_scaling=scaling.after(source.action_scaling))
