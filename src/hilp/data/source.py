"""Source: a data set that need not be in memory. What its rows hold, and a way to read any of them.

Readers make sources; `gather` turns one into a Dataset in memory, `convert` writes it to a native folder block by
block, `inspect` looks at it block by block. Rows are laid out as in a Dataset.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
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


def size_of(kind: Kind | dict[str, Kind]) -> int:
    """Numbers of a row."""
    return sum(int(np.prod(part.shape)) for part in trees.named(kind, "").values())


class Block(NamedTuple):
    """Consecutive rows."""

    observations: Any  # an array, or a dict of them
    actions: np.ndarray
    extras: dict[str, np.ndarray]

    def part(self, start: int, stop: int) -> Block:
        take = lambda column: np.asarray(column[start:stop])  # noqa: E731
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

    def last_rows(self, first: int, count: int) -> np.ndarray:
        """Which of these rows are the last of an episode, counted from `first`."""
        low, high = np.searchsorted(self.stops, [first + 1, first + count + 1])
        return np.asarray(self.stops[low:high] - 1 - first)

    @property
    def columns(self) -> dict[str, Kind]:
        """Everything that has a value a row, by the names of its columns."""
        return columns_of(self.observation, self.action, self.extras)

    @property
    def observation_dim(self) -> int:
        """All numbers of an observation."""
        return size_of(self.observation)

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


def _pieces(stops: np.ndarray, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """What rows from `start` to `stop` are of: the number of each piece, and its own rows from and to."""
    for piece in range(int(np.searchsorted(stops, start, "right")), int(np.searchsorted(stops, stop)) + 1):
        begin = int(stops[piece - 1]) if piece else 0
        low, high = max(start - begin, 0), min(stop, int(stops[piece])) - begin
        if low < high:
            yield piece, low, high


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
    """A data set that is in memory or mapped; of stacks of frames each frame once."""
    observations = frames.stored(data.observations)

    def kind(column: np.ndarray) -> Kind:
        return Kind(column.shape[1:], column.dtype)

    def read(start: int, stop: int) -> Block:
        return Block(observations, data.actions, dict(data.extras)).part(start, stop)

    return Source(
        lengths=np.asarray(data.lengths, np.int64),
        observation=trees.over(kind, observations),
        action=kind(data.actions),
        extras={name: kind(column) for name, column in data.extras.items()},
        read=read,
        **data.metadata(),
    )


def mapped(source: Source, function: Callable[[Block], Block], **changes: Any) -> Source:
    """The source with a function of its blocks, and what else changes by it."""
    return replace(source, read=lambda start, stop: function(source.read(start, stop)), **changes)


def select(source: Source, episodes: np.ndarray, note: str | None = None) -> Source:
    """The source with these episodes only (numbers, ascending)."""
    found = ranges(source, (source.stops - source.lengths)[episodes], source.lengths[episodes], note)
    return found if len(episodes) == source.episodes else replace(found, endings={})


def ranges(source: Source, begins: np.ndarray, lengths: np.ndarray, note: str | None = None) -> Source:
    """The source with these ranges of its rows as episodes (ascending and apart)."""
    stops = np.cumsum(lengths)

    def read(start: int, stop: int) -> Block:
        runs: list[list[int]] = []
        for episode, low, high in _pieces(stops, start, stop):
            first, last = int(begins[episode]) + low, int(begins[episode]) + high
            if runs and runs[-1][1] == first:
                runs[-1][1] = last
            else:
                runs.append([first, last])
        return join([source.read(first, last) for first, last in runs])

    def where(rows: np.ndarray) -> str:
        episode = np.searchsorted(stops, rows, "right")
        return source.where(begins[episode] + rows - (stops - lengths)[episode])

    notes = source.notes if note is None else (*source.notes, note)
    return replace(source, lengths=lengths, read=read, where=where, notes=notes)


def chain(sources: Sequence[Source], name: str, names: Sequence[str]) -> Source:
    """Sources of one kind as one, in order; `names` are what to call them in messages."""
    first = sources[0]
    if len(sources) == 1:
        return replace(first, name=name)
    for other, called in zip(sources, names, strict=True):
        require_same_columns(first, other, f"{name}: {called} has other columns than {names[0]}")
    stops = np.cumsum([source.rows for source in sources])

    def read(start: int, stop: int) -> Block:
        return join([sources[part].read(low, high) for part, low, high in _pieces(stops, start, stop)])

    def where(rows: np.ndarray) -> str:
        part = np.searchsorted(stops, rows, "right")
        found = [
            f"{sources[p].where(rows[part == p] - (int(stops[p]) - sources[p].rows))} of {names[p]}"
            for p in np.unique(part)[:MOST_PLACES]
        ]
        more = len(np.unique(part)) - len(found)
        return "; ".join(found) + (f" and {more} more" if more else "")

    lengths = np.concatenate([source.lengths for source in sources])
    notes = tuple(dict.fromkeys(note for source in sources for note in source.notes))
    return replace(first, name=name, lengths=lengths, read=read, where=where, endings={}, notes=notes)


def of_episodes(
    name: str,
    lengths: np.ndarray,
    fetch: Callable[[int, int], Iterable[Source | None]],
    like: int = 0,
    called: Callable[[int], str] = "episode {}".format,
) -> Source:
    """Episodes that are read one by one: `fetch` opens a range of them, and all must be as number `like` is.

    An episode that is None is one row of zeros: it has no transition and is left out later.
    """
    (first,) = fetch(like, like + 1)
    assert first is not None
    stops = np.cumsum(lengths)
    last: tuple[int, Block] | None = None  # a block may end inside an episode, and the next one goes on with it

    def blank(kind: Kind) -> np.ndarray:
        return np.zeros((1, *kind.shape), kind.dtype)

    def whole(number: int, episode: Source | None) -> Block:
        if episode is None:
            extras = {key: blank(kind) for key, kind in first.extras.items()}
            return Block(trees.over(blank, first.observation), blank(first.action), extras)
        require_same_columns(first, episode, f"{name}: {called(number)} has other columns than {called(like)}")
        return episode.read(0, episode.rows)

    def read(start: int, stop: int) -> Block:
        nonlocal last
        pieces = list(_pieces(stops, start, stop))
        begin, beyond = pieces[0][0], pieces[-1][0] + 1
        blocks = [last[1]] if last is not None and last[0] == begin else []
        begin += len(blocks)
        if begin < beyond:
            blocks += [whole(number, episode) for number, episode in enumerate(fetch(begin, beyond), begin)]
        last = (beyond - 1, blocks[-1])
        return join([block.part(low, high) for block, (_, low, high) in zip(blocks, pieces, strict=True)])

    return replace(first, name=name, lengths=lengths, read=read, where=rows_text)


def require_same_columns(one: Source, other: Source, problem: str) -> None:
    """Two sources have the same columns; else a HilpError that says which differ."""
    for name in (*one.columns, *other.columns):
        here, there = (source.columns.get(name) for source in (one, other))
        if here != there:
            was, found = ("nothing" if kind is None else f"{kind.dtype} {kind.shape}" for kind in (here, there))
            raise HilpError(f"{problem}: {name} is {found}, not {was}")


def join(blocks: Sequence[Block]) -> Block:
    """Blocks, one after the other."""
    if len(blocks) == 1:
        return blocks[0]
    extras = {name: np.concatenate([block.extras[name] for block in blocks]) for name in blocks[0].extras}
    observations = trees.over(lambda *parts: np.concatenate(parts), *(block.observations for block in blocks))
    return Block(observations, np.concatenate([block.actions for block in blocks]), extras)


def without_short(source: Source) -> Source:
    """The source without episodes of one row, which have no transition."""
    short = np.flatnonzero(source.lengths < 2)
    if not len(short):
        return source
    note = f"left out {len(short)} episodes of a single row (no transition): numbers {some(short, 5)}"
    return select(source, np.flatnonzero(source.lengths >= 2), note)


def identity_of(paths: Iterable[Path]) -> str:
    """Changes when one of the files does."""
    digest = hashlib.sha256()
    for path in paths:
        status = path.stat()
        digest.update(os.fsencode(os.path.abspath(path)) + f" {status.st_size} {status.st_mtime_ns};".encode())
    return digest.hexdigest()


def with_files(source: Source, files: Collection[Path]) -> Source:
    """The source with the size and the identity of the files that it is read from."""
    return replace(source, disk_bytes=sum(file.stat().st_size for file in files), identity=identity_of(files))


def choose_extras(available: Collection[str], wanted: Sequence[str] | None, name: str) -> list[str]:
    """The extra columns to keep: all, or those that are wanted."""
    if wanted is None:
        return list(available)
    wanted = [wanted] if isinstance(wanted, str) else wanted
    for column in wanted:
        if column not in available:
            raise HilpError(f"{name} has no extra column '{column}': {nearest(column, available)}")
    return list(wanted)


def with_extras(source: Source, names: Sequence[str]) -> Source:
    """The source with these extra columns only."""
    kept = choose_extras(source.extras, names, source.name)
    return mapped(
        source,
        lambda block: block._replace(extras={name: block.extras[name] for name in kept}),
        extras={name: source.extras[name] for name in kept},
    )


def rescaled(source: Source, scaling: ActionScaling) -> Source:
    """The source with its actions mapped; the policy maps its own back."""
    return mapped(
        source,
        lambda block: block._replace(actions=scaling.scaled(block.actions)),
        action_scaling=scaling.after(source.action_scaling),
    )
