"""Source: a data set that need not be in memory. What its rows hold, and a way to read any of them.

Readers make sources; `gather` turns one into a Dataset in memory, `convert` writes it to a native folder block by
block, `inspect` looks at it block by block. Rows are laid out as in a Dataset.
"""

import hashlib
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hilp import trees
from hilp.data import dataset, transforms
from hilp.data.columns import BLOCK_BYTES, open_npy, row_bytes
from hilp.data.dataset import Dataset, columns_of, extras_of
from hilp.data.transforms import Metadata
from hilp.errors import HilpError, require_known, some

MOST_BLOCK_ROWS = 1 << 16
INDEX_BYTES = 12  # a row of the sampler's tables
MOST_PLACES = 3  # files that are named in a message


class Kind(NamedTuple):
    """What a row of a column is."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape) or ''}".strip()


Rows = dict[str, np.ndarray]  # consecutive rows of each column
Where = Callable[[np.ndarray], str]  # says where rows are in what the user has, for messages


def rows_text(rows: np.ndarray) -> str:
    """Where rows are, in words."""
    return f"rows {some(rows, 5)}"


@dataclass(frozen=True)
class Source(Metadata):
    """Trajectories somewhere."""

    lengths: np.ndarray  # int64 [episodes]: rows of each episode
    columns: Mapping[str, Kind]  # observations (or observations/NAME), actions, extra.NAME: see `dataset.columns_of`
    read: Callable[[int, int], Rows]  # rows from, to; going forward is fast
    disk_bytes: int = 0
    identity: str | None = None  # of the files behind it; None where there are none
    damages: Callable[[], list[str]] | None = None  # compares its files with their hashes, where they have any
    where: Where = rows_text  # where these rows are in what the user has, for messages

    @cached_property
    def rows(self) -> int:
        return int(np.sum(self.lengths))

    @cached_property
    def stops(self) -> np.ndarray:
        """The row after each episode."""
        return np.cumsum(self.lengths)

    def last_rows(self, first: int, count: int) -> np.ndarray:
        """Which of these rows are the last of an episode, counted from `first`."""
        low, high = np.searchsorted(self.stops, [first + 1, first + count + 1])
        return np.asarray(self.stops[low:high] - 1 - first)

    @property
    def observation(self) -> Kind | dict[str, Kind]:
        """One array, or a named tree of them."""
        return trees.unnamed(self.columns, "observations")

    @property
    def action(self) -> Kind:
        return self.columns["actions"]

    @property
    def extras(self) -> dict[str, Kind]:
        return extras_of(self.columns)

    @property
    def observation_dim(self) -> int:
        """All numbers of an observation."""
        return sum(int(np.prod(kind.shape)) for kind in trees.named(self.observation, "").values())

    @property
    def row_bytes(self) -> int:
        return sum(row_bytes((1, *kind.shape), kind.dtype) for kind in self.columns.values())

    @property
    def block_rows(self) -> int:
        """Rows of a block: bounded in bytes, so that images need no more memory than numbers."""
        return int(np.clip(BLOCK_BYTES // max(1, self.row_bytes), 1, MOST_BLOCK_ROWS))

    def blocks(self, start: int = 0) -> Iterator[tuple[int, Rows]]:
        """All blocks from a row on, each with its first row."""
        for first in range(start, self.rows, self.block_rows):
            yield first, self.read(first, min(first + self.block_rows, self.rows))

    def groups(self) -> Iterator[tuple[int, int]]:
        """Episodes from, to: as many whole ones at a time as fit in a block, but at least one."""
        first = 0
        while first < self.episodes:
            begin = int(self.stops[first] - self.lengths[first])
            beyond = max(int(np.searchsorted(self.stops, begin + self.block_rows, "right")), first + 1)
            yield first, beyond
            first = beyond


def _pieces(stops: np.ndarray, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """What rows from `start` to `stop` are of: the number of each piece, and its own rows from and to."""
    for piece in range(int(np.searchsorted(stops, start, "right")), int(np.searchsorted(stops, stop)) + 1):
        begin = int(stops[piece - 1]) if piece else 0
        low, high = max(start - begin, 0), min(stop, int(stops[piece])) - begin
        if low < high:
            yield piece, low, high


def gather(source: Source) -> Dataset:
    """All of it in memory."""
    size = source.rows * source.row_bytes
    try:
        if size > physical_memory():  # the system would promise it, and end this process halfway
            raise MemoryError
        columns = {n: np.empty((source.rows, *kind.shape), kind.dtype) for n, kind in source.columns.items()}
    except (MemoryError, ValueError) as error:
        raise HilpError(
            f"{source.name} needs {size / 2**30:.1f} GiB of memory: convert it to a native folder, which is read from "
            "disk"
        ) from error
    for first, block in source.blocks():
        for name, values in block.items():
            columns[name][first : first + len(values)] = values
    observations = transforms.stacked(trees.unnamed(columns, "observations"), source.lengths, source.frames)
    return Dataset(observations, columns["actions"], source.lengths, extras_of(columns), **source.metadata())


def physical_memory() -> float:
    """Bytes of memory of this machine; infinite where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def of_dataset(data: Dataset) -> Source:
    """A data set that is in memory or mapped; of stacks of frames each frame once."""
    columns = columns_of(transforms.stored(data.observations), data.actions, data.extras)
    dataset.require_plain(data.name, columns)
    return Source(
        lengths=np.asarray(data.lengths, np.int64),
        columns={name: Kind(column.shape[1:], column.dtype) for name, column in columns.items()},
        read=lambda start, stop: {name: np.asarray(column[start:stop]) for name, column in columns.items()},
        **data.metadata(),
    )


def of_folder(path: Path, *, verify: bool = False) -> Source:
    """A native folder, as `Dataset.save` and `convert` write it. `verify` compares every file with its hash."""
    path = path.absolute()  # files are opened as they are needed, wherever this process then is
    found, manifest = of_dataset(Dataset.open(path, verify=verify)), dataset.read_manifest(path)
    # Plain reads instead of the memory map, whose pages would count as memory of this process.
    columns = {name: open_npy(path / dataset.file_name(name)) for name in found.columns}
    found = replace(
        found,
        read=lambda start, stop: {name: column[start:stop] for name, column in columns.items()},
        damages=lambda: list(dataset.damages(path, manifest, hashes=True)),
    )
    return with_files(found, [path / name for name in manifest["files"]])


def mapped(source: Source, function: Callable[[Rows], Rows], **changes: Any) -> Source:
    """The source with a function of its blocks, and what else changes by it."""
    return replace(source, read=lambda start, stop: function(source.read(start, stop)), **changes)


def select(source: Source, episodes: np.ndarray) -> Source:
    """The source with these episodes only (numbers, ascending)."""
    found = ranges(source, (source.stops - source.lengths)[episodes], source.lengths[episodes])
    return found if len(episodes) == source.episodes else replace(found, endings={})


def ranges(source: Source, begins: np.ndarray, lengths: np.ndarray) -> Source:
    """The source with these ranges of its rows as episodes (ascending and apart)."""
    stops = np.cumsum(lengths)

    def read(start: int, stop: int) -> Rows:
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

    return replace(source, lengths=lengths, read=read, where=where)


def chain(name: str, lengths: Sequence[np.ndarray], open_part: Callable[[int], Source], names: Sequence[str]) -> Source:
    """Sources of one kind as one, in order, each opened when its rows are read.

    lengths: rows of each episode, of each source; names: what to call them in messages.
    """
    first = open_part(0)
    stops = np.cumsum([np.sum(part) for part in lengths])

    def read_part(part: int, low: int, high: int) -> Rows:
        found = open_part(part)
        for column in (*first.columns, *found.columns):
            here, there = (source.columns.get(column, "nothing") for source in (found, first))
            if here != there:
                other = f"{names[part]} has other columns than {names[0]}"
                raise HilpError(f"{name}: {other}: {column} is {here}, not {there}")
        return found.read(low, high)

    def where(rows: np.ndarray) -> str:
        part = np.searchsorted(stops, rows, "right")
        begins = np.r_[0, stops[:-1]]
        found = [
            f"{open_part(p).where(rows[part == p] - begins[p])} of {names[p]}" for p in np.unique(part)[:MOST_PLACES]
        ]
        more = len(np.unique(part)) - len(found)
        return "; ".join(found) + (f" and {more} more" if more else "")

    return replace(
        first,
        name=name,
        lengths=np.concatenate(lengths),
        read=lambda start, stop: join([read_part(*piece) for piece in _pieces(stops, start, stop)]),
        where=where,
        endings={},
    )


def join(blocks: Sequence[Rows]) -> Rows:
    """Blocks, one after the other."""
    if len(blocks) == 1:
        return blocks[0]
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def without_short(source: Source) -> Source:
    """The source without episodes of one row, which have no transition."""
    short = source.lengths < 2
    if not short.any():
        return source
    found = select(source, np.flatnonzero(~short))
    return replace(found, notes=(*found.notes, *short_note(np.flatnonzero(short))))


def short_note(numbers: np.ndarray) -> tuple[str, ...]:
    """What is said of episodes that have no transition, if there are any."""
    note = f"left out {len(numbers)} episodes of a single row (no transition): numbers {some(numbers, 5)}"
    return (note,) if len(numbers) else ()


def with_files(source: Source, files: Collection[Path]) -> Source:
    """The source with the size of the files that it is read from, and an identity that changes when one does."""
    states = {os.path.abspath(file): file.stat() for file in files}
    digest = hashlib.sha256()
    for path, status in states.items():
        digest.update(os.fsencode(path) + f" {status.st_size} {status.st_mtime_ns};".encode())
    size = sum(status.st_size for status in states.values())
    return replace(source, disk_bytes=size, identity=digest.hexdigest())


def choose_extras(available: Collection[str], wanted: Sequence[str] | None, name: str) -> list[str]:
    """The extra columns to keep: all, or those that are wanted."""
    if wanted is None:
        return list(available)
    wanted = [wanted] if isinstance(wanted, str) else wanted
    for column in wanted:
        require_known(column, available, f"{name} has no extra column '{column}'")
    return list(wanted)


def with_extras(source: Source, names: Sequence[str]) -> Source:
    """The source with these extra columns only."""
    kept = [f"extra.{name}" for name in choose_extras(source.extras, names, source.name)]
    kept = [*(name for name in source.columns if not name.startswith("extra.")), *kept]
    columns = {name: source.columns[name] for name in kept}
    return mapped(source, lambda block: {name: block[name] for name in kept}, columns=columns)


def with_numbers(source: Source, keep: Sequence[int]) -> Source:
    """The source with these numbers of its observations only."""
    kind = Kind((len(keep),), source.columns["observations"].dtype)
    return mapped(
        source,
        lambda block: {**block, "observations": np.ascontiguousarray(block["observations"][:, keep])},
        columns={**source.columns, "observations": kind},
        observation_parts=(),
    )


def training_bytes(source: Source) -> int:
    """What training keeps on the device: float32 rows (images of a named tree as bytes) and the sampler's tables."""
    plain = isinstance(source.observation, Kind)
    kinds = trees.named(source.observation, "observations").values()
    row = sum((4 if plain else kind.dtype.itemsize) * int(np.prod(kind.shape)) for kind in kinds)
    return source.rows * (row + 4 * source.action.shape[0] + INDEX_BYTES)
