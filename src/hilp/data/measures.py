"""What can be measured of a data set in one pass over its blocks."""

import hashlib
import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hilp import trees
from hilp.data.source import Kind, Rows, Source
from hilp.data.transforms import Parts

MOST_COLUMNS = 512  # that are measured and reported one by one; images have more
MOST_CHANGE = 50.0  # a column's share in a step size, in units of its usual change
BOUNCE = 3.0  # usual changes of a size, up to which a number that turned its sign has bounced
TYPICAL, UPPER = 10.0, 3.0  # a jump exceeds this many medians, and this many 95th percentiles, of the step sizes
PERIODS = (2.0 * math.pi, 360.0)
SMALL, WHOLE = 0.25, 1.01  # shares of a period: of a step, and of a wrap or the range at most
REACH = 0.9  # of a period: the range of an angle that wraps
ODD = 0.1  # steps that are neither small nor wraps, for each wrap, that noise may make


@dataclass(frozen=True)
class ColumnStats:
    """One column of observations or actions; over finite values, and over used actions only."""

    column: int  # of its part, where observations are a named tree
    part: str  # of a named tree
    name: str  # what to call it: of its part, where parts are known, else its number
    low: float
    high: float
    mean: float
    deviation: float
    at_limits: float  # share of values equal to the smallest or largest


def vectors(observations: trees.Tree) -> np.ndarray:
    """Rows of numbers to be measured column by column: one array as it is; of a named tree the vectors side by side."""
    if not isinstance(observations, dict):
        return np.asarray(observations)
    flat = [column for _, column in sorted(observations.items()) if column.ndim == 2]
    rows = trees.rows(observations)
    return np.concatenate([np.zeros((rows, 0), np.float32), *flat], axis=1, dtype=np.float32, casting="unsafe")


Label = tuple[int, str, str]  # of a column: its number in its part, that part of a named tree (or ""), what to call it


def column_labels(source: Source) -> list[Label]:
    """Of each column of `vectors`."""
    if isinstance(source.observation, Kind):
        names = names_of(source.observation_parts, source.observation_dim)
        return [(column, "", name) for column, name in enumerate(names)]
    flat = [(part, kind.shape[0]) for part, kind in sorted(source.observation.items()) if len(kind.shape) == 1]
    return [(column, part, f"{part} {column}") for part, width in flat for column in range(width)]


def names_of(parts: Parts, width: int) -> list[str]:
    """What to call each number of a row: by its part, with its number there if it has several; else its number."""
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
        at_low, at_high = (rows == low).sum(axis=0), (rows == high).sum(axis=0)
        self.at_low = np.where(low < self.low, 0, self.at_low) + np.where(low <= self.low, at_low, 0)
        self.at_high = np.where(high > self.high, 0, self.at_high) + np.where(high >= self.high, at_high, 0)
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

    def stats(self, labels: Sequence[Label]) -> list[ColumnStats]:
        """Of the first MOST_COLUMNS columns that hold any finite value."""
        columns = zip(labels, self.count, self.low, self.high, self.mean, self.deviation, self.at_limits, strict=True)
        found = (ColumnStats(*label, *map(float, row)) for label, count, *row in columns if count)
        return list(itertools.islice(found, MOST_COLUMNS))


class ColumnHashes:
    """Finds columns that are equal in every row, by a random linear hash of their bits."""

    def __init__(self, width: int):
        self.sums = np.zeros(width, np.uint64)

    def add(self, first: int, rows: np.ndarray) -> None:
        weights = np.random.default_rng([17, first]).integers(1, 2**63, len(rows), np.uint64)
        bits = (rows.astype(np.float32) + np.float32(0.0)).view(np.uint32)  # adding zero makes -0 and 0 the same bits
        with np.errstate(over="ignore"):
            self.sums += (bits * weights[:, None]).sum(axis=0, dtype=np.uint64)

    def twins(self, among: Collection[int]) -> list[list[int]]:
        groups: dict[int, list[int]] = defaultdict(list)
        for column in sorted(among):
            groups[int(self.sums[column])].append(int(column))
        return [group for group in groups.values() if len(group) > 1]


class EpisodeHashes:
    """Finds episodes with the same observations and used actions."""

    def __init__(self) -> None:
        self.done: list[bytes] = []
        self._open: dict[str, Any] = {}  # the hash of each column so far, in an episode that goes on in the next block

    def add(self, block: Rows, last_rows: np.ndarray) -> None:
        columns = {n: np.ascontiguousarray(column) for n, column in block.items() if not n.startswith("extra.")}
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
        first = {digest: number for number, digest in reversed(list(enumerate(self.done)))}
        return [number for number, digest in enumerate(self.done) if first[digest] < number]


class KeptRows:
    """Keeps some rows (numbers, ascending) of blocks as they pass by; episodes: those that they are of, in order."""

    def __init__(self, rows: np.ndarray, episodes: Mapping[int, int] | None = None):
        self.rows, self.episodes = rows, episodes or {}
        self.found: list[np.ndarray] = []

    def add(self, first: int, values: np.ndarray) -> None:
        low, high = np.searchsorted(self.rows, [first, first + len(values)])
        self.found.append(np.array(values[self.rows[low:high] - first]))

    def result(self) -> np.ndarray:
        return np.concatenate(self.found)

    def by_episode(self) -> dict[int, np.ndarray]:
        edges = np.cumsum(list(self.episodes.values()))[:-1]
        return dict(zip(self.episodes, np.split(self.result(), edges), strict=True))


def spread(source: Source, episodes: int, rows: int) -> tuple[np.ndarray, dict[int, int]]:
    """Some rows of some episodes, spread evenly, for pictures; and how many are of which episode."""
    begins = source.stops - source.lengths
    chosen = {
        int(e): np.unique(np.linspace(begins[e], source.stops[e] - 1, rows).astype(int))
        for e in np.unique(np.linspace(0, source.episodes - 1, episodes).astype(int))
    }
    return np.concatenate(list(chosen.values())), {episode: len(found) for episode, found in chosen.items()}


class StepSizes:
    """The size of the step from each row to the next, from blocks of rows in order.

    It is the mean over columns of |change| / (the column's usual |change|), each at most MOST_CHANGE, so that one
    sensor's spike is no jump, but a reset, which moves everything, is. A bounce is no jump: it turns signs
    alone, of half the columns at most.
    """

    def __init__(self) -> None:
        self._sizes: list[np.ndarray] = []
        self._before: np.ndarray | None = None
        self._usual: np.ndarray | None = None  # measured on the first block that moves

    def add(self, observations: np.ndarray) -> None:
        rows = np.asarray(observations, np.float32)
        if self._before is not None:
            rows = np.concatenate([self._before, rows])
        self._before = rows[-1:].copy()
        with np.errstate(invalid="ignore", over="ignore"):
            change, turned = np.abs(np.diff(rows, axis=0)), np.abs(np.diff(np.abs(rows), axis=0))
            change[~np.isfinite(change)] = 0.0
            if self._usual is None and change.any():
                self._usual = np.median(change, axis=0)
            moving = np.zeros(rows.shape[1], bool) if self._usual is None else self._usual > 0
            if self._usual is None or not moving.any():  # nothing moves by itself, so nothing tells a jump apart
                self._sizes.append(np.zeros(len(change), np.float32))
                return
            bounced = (turned <= BOUNCE * self._usual) & (change > BOUNCE * self._usual)
            few = bounced[:, moving].mean(axis=1) <= 0.5  # a reset to a mirrored place turns all signs
            change = np.where(bounced & few[:, None], turned, change)
            relative = np.minimum(change[:, moving] / self._usual[moving], MOST_CHANGE)
        self._sizes.append(relative.mean(axis=1, dtype=np.float32))

    @property
    def sizes(self) -> np.ndarray:
        """[rows - 1]: entry i is the step from row i to row i + 1."""
        return np.concatenate([np.zeros(0, np.float32), *self._sizes])


def jumps(sizes: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
    """Rows i whose step to i + 1 is a jump: far larger than the typical step and than nearly all of those in `among`.

    Resets are found where episodes are longer than about twenty rows.
    """
    steps = np.arange(len(sizes)) if among is None else np.flatnonzero(among)
    if not len(steps):
        return steps
    chosen = sizes[steps]
    median, upper = np.quantile(chosen, [0.5, 0.95])
    return np.asarray(steps[chosen > max(TYPICAL * median, UPPER * upper)])


class Wrapped(NamedTuple):
    """A column that wraps."""

    column: int
    period: float
    wraps: int


class Wraps:
    """Finds angles that wrap, from blocks of rows in order, by counting steps inside episodes by their size.

    An angle of period P stays within a range of P, moves by less than a quarter of P a step, and where it wraps it
    moves by nearly P. Nothing else is taken for one: the user names other columns with their period.
    """

    def __init__(self, source: Source, width: int):
        self._source = source
        self._before: np.ndarray | None = None
        self._edges = [share * period for period in PERIODS for share in (SMALL, 1.0 - SMALL, WHOLE)]
        self.above = np.zeros((len(self._edges), width), np.int64)  # steps beyond each edge

    def add(self, first: int, rows: np.ndarray) -> None:
        """Rows from `first` on."""
        at = first
        if self._before is not None:
            rows, at = np.concatenate([self._before, rows]), first - 1
        self._before = np.array(rows[-1:])
        with np.errstate(invalid="ignore", over="ignore"):
            steps = np.abs(np.diff(rows, axis=0))
            steps[self._source.last_rows(at, len(steps))] = 0.0
            for number, edge in enumerate(self._edges):  # a step that is not finite is no step
                self.above[number] += ((steps > edge) & (steps < np.inf)).sum(axis=0)

    def found(self, moments: Moments) -> list[Wrapped]:
        """The columns that wrap, after all blocks, of which these are the moments."""
        wrapped = []
        for number, period in enumerate(PERIODS):
            moving, wrapping, beyond = self.above[3 * number : 3 * number + 3]
            wraps = wrapping - beyond
            odd = moving - wraps
            with np.errstate(invalid="ignore"):
                reach = (moments.high - moments.low) / period
            fits = (wraps > 0) & (odd <= ODD * wraps) & (reach >= REACH) & (reach <= WHOLE)
            wrapped += [Wrapped(int(column), period, int(wraps[column])) for column in np.flatnonzero(fits)]
        return sorted(wrapped)


TARGET_ROWS = 20_000  # that are compared
TARGET_FIT = 0.75  # correlation of a command with the column that it is a target for: a weak motor does not get there
LEADS = 0.3  # correlation of how far a command is ahead of its column with how that column then changes
ECHO = 0.95  # share of rows in which a column takes exactly the value of the action before it: a record, no place
RATE = 0.9  # correlation of a column with the change of another one, whose speed it then is
RESETS = 0.01  # share of changes, at both ends, that are made smaller: rows follow each other over ends of episodes


def position_commands(observations: np.ndarray, actions: np.ndarray) -> dict[int, int]:
    """Action columns that are targets for an observation column (a joint, a place of the hand): action -> observation.

    Of rows in order. Such a command follows its column closely, up to scale and offset, and is ahead of it: where it is
    larger, the column grows. What only repeats the command of the row before, and speeds of other columns, are none.
    """
    if len(actions) < 3 or observations.ndim != 2:
        return {}
    rows = np.unique(np.linspace(0, len(actions) - 2, TARGET_ROWS).astype(np.int64))
    return commanded(Steps.of(observations[rows], observations[rows + 1], actions[rows]))


class Steps(NamedTuple):
    """Some transitions whose numbers are finite."""

    here: np.ndarray  # [n, obs]
    there: np.ndarray  # [n, obs]
    actions: np.ndarray  # [n, act]

    @staticmethod
    def of(here: np.ndarray, there: np.ndarray, actions: np.ndarray) -> "Steps":
        parts = [np.asarray(part, np.float64) for part in (here, there, actions)]
        finite = np.logical_and.reduce([np.isfinite(part).all(axis=1) for part in parts])
        return Steps(*(part[finite] for part in parts))

    @property
    def change(self) -> np.ndarray:
        """Of each column, with mean 0 and deviation 1; jumps at ends of episodes and at wraps made smaller."""
        change = self.there - self.here
        return standard(np.clip(change, *np.quantile(change, [RESETS, 1.0 - RESETS], axis=0)))


def commanded(steps: Steps) -> dict[int, int]:
    """`position_commands` of these steps."""
    from scipy.optimize import linear_sum_assignment

    if len(steps.actions) < 3:
        return {}
    here, there, act, change = standard(steps.here), standard(steps.there), standard(steps.actions), steps.change
    fit = act.T @ here / len(act)  # actions x observations, correlations
    rates = np.maximum(np.abs(here.T @ change), np.abs(there.T @ change)) / len(act)
    np.fill_diagonal(rates, 0.0)
    sent = np.abs(act.T @ change) / len(act)  # of another column, which the command may move itself
    leads = np.zeros_like(fit)
    for action, column in zip(*np.nonzero(fit > TARGET_FIT), strict=True):
        is_speed = ((rates[column] > RATE) & (rates[column] > sent[action])).any()
        if not is_speed and np.isclose(there[:, column], act[:, action], rtol=0.0, atol=1e-3).mean() < ECHO:
            leads[action, column] = (standard(act[:, action] - here[:, column]) * change[:, column]).mean()
    fits = np.where(leads > LEADS, fit + leads, 0.0)
    pairs = zip(*linear_sum_assignment(-fits), strict=True)  # each column is the target of one command
    return {int(action): int(column) for action, column in pairs if fits[action, column] > 0}


def standard(values: np.ndarray) -> np.ndarray:
    """Columns with mean 0 and deviation 1; constant ones 0."""
    away = values - values.mean(axis=0)
    deviation = away.std(axis=0)
    return np.asarray(np.where(deviation > 0, away / np.where(deviation > 0, deviation, 1.0), 0.0))
