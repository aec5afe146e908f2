"""Whether data is of a body that walks: most of it swings back within a stride, and some of it gets on."""

import numpy as np

from hilp.data.dataset import Dataset
from hilp.data.measures import vectors
from hilp.trees import over

LENGTHS = (10, 15, 20, 30)  # rows of a stride that are tried, the shortest first
SWINGS, SLOW = 0.25, 0.75  # of its variance: a swinging column's mean over a stride keeps less, a slow one's more
BACK = -0.1  # autocorrelation that it has some rows later: what swings comes back, what is noise does not
LATER = 3  # rows: differences of noise come back at once
SHARE = 0.4  # of columns that swing in a body that walks
SEGMENTS = 3_000  # that are looked at
FEWEST = 1_000  # segments: among fewer, noise swings by chance
STRIDES, ONWARD = 4, 2.0  # what gets on is so many times as far after four strides as after one; so is a random walk


def walks(data: Dataset) -> int | None:
    """Rows of a stride of a body that swings and gets somewhere by it; None for pendulums, and arms that do one thing
    again and again: they swing as much, but after four strides are about where they were after one."""
    length = stride_rows(data)
    if length is None:
        return None
    at = _spread(data, (STRIDES + 1) * length)
    if at is None:
        return None
    seen, after, later = (_segments(data, at + n * length, length) for n in (0, 1, STRIDES))
    one, several = (np.sqrt(np.square((there - seen).mean(axis=1)).mean(axis=0)) for there in (after, later))
    return length if np.any((several >= ONWARD * one) & (one > 0.0) & (_kept(seen) >= SLOW)) else None


def stride_rows(data: Dataset) -> int | None:
    """Rows of a stride, the fewest over which enough columns swing; None where they do not."""
    for length in LENGTHS:
        at = _spread(data, length)
        if at is None:
            return None
        seen = _segments(data, at, length)
        if not seen.shape[2]:
            return None  # pictures only
        varied = seen.std(axis=(0, 1)) > 1e-9 * np.maximum(1.0, np.abs(seen).max(axis=(0, 1)))
        if varied.any() and np.mean(_swings(seen[..., varied])) >= SHARE:
            return length
    return None


def _spread(data: Dataset, length: int) -> np.ndarray | None:
    """Rows all over the data that so many more follow in their episode; None where there are few."""
    left = np.repeat(data.starts + data.lengths - 1, data.lengths) - np.arange(data.rows)
    rows = np.flatnonzero(left >= length)
    if len(rows) < FEWEST:
        return None
    return np.asarray(rows[np.unique(np.linspace(0, len(rows) - 1, SEGMENTS).astype(np.int64))])


def _segments(data: Dataset, at: np.ndarray, length: int) -> np.ndarray:
    """The numbers in the rows after these, [n, length, columns]."""
    rows = (at[:, None] + np.arange(1, length + 1)).reshape(-1)
    seen = vectors(over(lambda part: np.asarray(part[rows]), data.observations))
    return np.asarray(seen.reshape(len(at), length, -1), np.float64)


def _swings(segments: np.ndarray) -> np.ndarray:
    """Which columns of segments [n, rows, columns] swing."""
    away = segments - segments.mean(axis=(0, 1))
    whole = np.square(away).mean(axis=(0, 1))
    lags = range(LATER, away.shape[1])
    later = [(away[:, :-lag] * away[:, lag:]).mean(axis=(0, 1)) / whole for lag in lags]
    return (_kept(segments) < SWINGS) & (np.min(later, axis=0) <= BACK)


def _kept(segments: np.ndarray) -> np.ndarray:
    """The share of the variance of columns that their means over segments have."""
    whole = segments.var(axis=(0, 1))
    return np.asarray(segments.mean(axis=1).var(axis=0) / np.where(whole > 0.0, whole, 1.0))
