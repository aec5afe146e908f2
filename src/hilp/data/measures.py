"""What can be measured of a data set in one pass over its blocks."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hilp import trees
from hilp.data.metadata import Parts
from hilp.data.source import Block, Kind, Source

MOST_COLUMNS = 512  # that are measured and reported one by one; images have more
SHOWN_EPISODES = 24  # in the picture
SHOWN_ROWS = 400  # of an episode in the picture
STILL_EPISODES, STILLS = 4, 12  # whose pictures are shown, and how many of each


@dataclass(frozen=True)
class ColumnStats:
    """One column of observations or actions; over finite values, and over used actions only."""

    column: int  # of its part, where observations are a named tree
    low: float
    high: float
    mean: float
    deviation: float
    at_limits: float  # share of values equal to the smallest or largest
    part: str = ""  # of a named tree
    name: str = ""  # what to call it: of its part, where parts are known, else its number


def vectors(observations: trees.Tree) -> np.ndarray:
    """Rows of numbers to be measured column by column: one array as it is; of a named tree the vectors side by side."""
    if not isinstance(observations, dict):
        return np.asarray(observations)
    flat = [column for _, column in sorted(observations.items()) if column.ndim == 2]
    rows = trees.rows(observations)
    return np.concatenate([np.zeros((rows, 0), np.float32), *flat], axis=1, dtype=np.float32, casting="unsafe")


def vector_parts(observation: Kind | dict[str, Kind]) -> list[str]:
    """The part of a named tree that each column of `vectors` comes from, or an empty name for one array."""
    if isinstance(observation, Kind):
        return [""] * observation.shape[0]
    flat = {name: kind for name, kind in sorted(observation.items()) if len(kind.shape) == 1}
    return [name for name, kind in flat.items() for _ in range(kind.shape[0])]


def column_names(source: Source) -> list[str]:
    """What to call each column of `vectors`: by its part, with its number there if it has several; else its number."""
    if not isinstance(source.observation, Kind):
        parts = vector_parts(source.observation)
        return [f"{part} {number - parts.index(part)}" for number, part in enumerate(parts)]
    return _names(source.observation_parts, source.observation_dim)


def action_names(source: Source) -> list[str]:
    """What to call each number of an action, by the same rule."""
    return _names(source.action_parts, source.action.shape[0])


def _names(parts: Parts, width: int) -> list[str]:
    sizes = [(name, int(np.prod(shape))) for name, shape in parts]
    if sum(size for _, size in sizes) != width:
        return [str(number) for number in range(width)]
    return [name if size == 1 else f"{name}[{number}]" for name, size in sizes for number in range(size)]


class Moments:
    """Range, mean, deviation and values at the limits of each column, from blocks."""

    def __init__(self, width: int):
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)
        self.count, self.mean, self.squares = np.zeros(width), np.zeros(width), np.zeros(width)
        self.at_low, self.at_high = np.zeros(width, np.int64), np.zeros(width, np.int64)

    def add(self, rows: np.ndarray) -> None:
        finite = np.isfinite(rows)
        count = finite.sum(axis=0)
        if not count.any():
            return
        whole = bool(finite.all())
        low = (rows if whole else np.where(finite, rows, np.inf)).min(axis=0)
        high = (rows if whole else np.where(finite, rows, -np.inf)).max(axis=0)
        self.at_low = np.where(low < self.low, 0, self.at_low) + np.where(low <= self.low, (rows == low).sum(axis=0), 0)
        self.at_high = np.where(high > self.high, 0, self.at_high) + np.where(
            high >= self.high, (rows == high).sum(axis=0), 0
        )
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        values = rows.astype(np.float64) if whole else np.where(finite, rows, 0.0).astype(np.float64)
        mean = values.sum(axis=0) / np.maximum(count, 1)
        squares = (np.square(values - mean) * finite).sum(axis=0)
        total = self.count + count
        shift = mean - self.mean
        # Chan's rule for joining the moments of two samples
        self.squares += squares + np.square(shift) * self.count * count / np.maximum(total, 1)
        self.mean += shift * count / np.maximum(total, 1)
        self.count = total

    @property
    def deviation(self) -> np.ndarray:
        return np.sqrt(self.squares / np.maximum(self.count, 1))

    @property
    def constant(self) -> np.ndarray:
        """Columns that hold one value."""
        return np.flatnonzero(self.low == self.high)

    @property
    def at_limits(self) -> np.ndarray:
        """Share of values at their column's smallest or largest value."""
        both = self.at_low + np.where(self.low == self.high, 0, self.at_high)
        return np.asarray(both / np.maximum(self.count, 1))

    def stats(self, parts: Sequence[str] | None = None, names: Sequence[str] = ()) -> list[ColumnStats]:
        """Of the first MOST_COLUMNS columns that hold any finite value."""
        columns = zip(self.low, self.high, self.mean, self.deviation, self.at_limits, strict=True)
        parts = [""] * len(self.low) if parts is None else parts
        found: list[ColumnStats] = []
        for number, values in enumerate(columns):
            if self.count[number] and len(found) < MOST_COLUMNS:
                low, high, mean, deviation, at_limits = map(float, values)
                place = number - parts.index(parts[number])
                name = names[number] if names else str(number)
                found.append(ColumnStats(place, low, high, mean, deviation, at_limits, parts[number], name))
        return found


class ColumnHashes:
    """Finds columns that are equal in every row, by a random linear hash of their bits."""

    def __init__(self, width: int):
        self.sums = np.zeros(width, np.uint64)

    def add(self, first: int, rows: np.ndarray) -> None:
        weights = np.random.default_rng([17, first]).integers(1, 2**63, len(rows), np.uint64)
        bits = (rows.astype(np.float32) + np.float32(0.0)).view(np.uint32)  # adding zero makes -0 and 0 the same bits
        with np.errstate(over="ignore"):
            self.sums += (bits * weights[:, None]).sum(axis=0, dtype=np.uint64)

    def twins(self, apart_from: np.ndarray) -> list[list[int]]:
        groups: dict[int, list[int]] = defaultdict(list)
        for column in np.setdiff1d(np.arange(len(self.sums)), apart_from):
            groups[int(self.sums[column])].append(int(column))
        return [group for group in groups.values() if len(group) > 1]


class EpisodeHashes:
    """Finds episodes with the same observations and used actions."""

    def __init__(self) -> None:
        self.done: list[bytes] = []
        self._open: dict[str, Any] = {}  # the hash of each column so far, in an episode that goes on in the next block

    def add(self, block: Block, last_rows: np.ndarray) -> None:
        columns = {**trees.named(block.observations, "observations"), "actions": block.actions}
        columns = {name: np.ascontiguousarray(column) for name, column in columns.items()}
        begin = 0
        for last in [*last_rows.tolist(), None]:
            for name, column in columns.items():
                end = last if last is None or name == "actions" else last + 1
                digest = self._open.setdefault(name, hashlib.blake2b(digest_size=16))
                digest.update(column[begin:end].data)
            if last is not None:
                self.done.append(b"".join(digest.digest() for digest in self._open.values()))
                self._open = {}
                begin = last + 1

    def copies(self) -> list[int]:
        """Episodes that equal an earlier one."""
        seen: set[bytes] = set()
        found = []
        for number, digest in enumerate(self.done):
            if digest in seen:
                found.append(number)
            seen.add(digest)
        return found


class Paths:
    """Keeps a few rows of a few episodes, for the picture."""

    def __init__(self, source: Source):
        chosen = np.unique(np.linspace(0, source.episodes - 1, SHOWN_EPISODES).astype(int))
        rows = []
        for episode in chosen:
            begin, length = int(source.stops[episode] - source.lengths[episode]), int(source.lengths[episode])
            rows.append(begin + np.unique(np.linspace(0, length - 1, min(length, SHOWN_ROWS)).astype(int)))
        self._wanted = rows
        self._all = np.concatenate(rows)
        self._found: list[np.ndarray] = []

    def add(self, first: int, observations: np.ndarray) -> None:
        low, high = np.searchsorted(self._all, [first, first + len(observations)])
        self._found.append(np.asarray(observations[self._all[low:high] - first], np.float32))

    def result(self) -> list[np.ndarray]:
        edges = np.cumsum([len(rows) for rows in self._wanted])[:-1]
        return np.split(np.concatenate(self._found), edges)


class Stills:
    """Some pictures of some episodes, for a contact sheet."""

    def __init__(self, source: Source):
        kinds = {} if isinstance(source.observation, Kind) else source.observation
        self._names = [name for name, kind in kinds.items() if kind.dtype == np.uint8 and len(kind.shape) == 3]
        episodes = np.unique(np.linspace(0, source.episodes - 1, STILL_EPISODES).round().astype(int))
        self._rows = {
            int(e): np.unique(np.linspace(source.stops[e] - source.lengths[e], source.stops[e] - 1, STILLS).astype(int))
            for e in episodes
        }
        self._found: dict[tuple[str, int], list[np.ndarray]] = {(n, e): [] for n in self._names for e in self._rows}

    def add(self, first: int, block: Block) -> None:
        for name in self._names:
            for episode, rows in self._rows.items():
                own = rows[(rows >= first) & (rows < first + len(block.actions))] - first
                if len(own):
                    self._found[name, episode].append(np.array(block.observations[name][own]))

    def result(self) -> list[tuple[str, np.ndarray]]:
        """A line each: what it shows, and pictures [n, height, width, channels]."""
        several = len(self._names) > 1
        return [
            (f"{name}, episode {episode}" if several else f"episode {episode}", np.concatenate(parts))
            for (name, episode), parts in self._found.items()
            if parts
        ]
