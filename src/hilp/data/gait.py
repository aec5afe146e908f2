"""Whether data is of a body that walks: most of what changes from row to row swings back within a stride."""

import numpy as np

from hilp.data.dataset import Dataset
from hilp.data.measures import vectors
from hilp.trees import over

LENGTHS = (10, 15, 20, 30)  # rows of a stride that are tried, the shortest first
SWINGS = 0.25  # of its variance that the mean of a swinging column over a stride keeps at most
BACK = -0.1  # autocorrelation that it has some rows later: what swings comes back, what is noise does not
LATER = 3  # rows: differences of noise come back at once
SHARE = 0.4  # of columns that swing in a body that walks
SEGMENTS = 3_000  # that are looked at
FEWEST = 1_000  # segments: among fewer, noise swings by chance


def stride_rows(data: Dataset) -> int | None:
    """Rows of a stride, the fewest over which enough columns swing; None where nothing walks."""
    left = np.repeat(data.starts + data.lengths - 1, data.lengths) - np.arange(data.rows)
    for length in LENGTHS:
        rows = np.flatnonzero(left >= length)
        if len(rows) < FEWEST:
            return None
        at = rows[np.unique(np.linspace(0, len(rows) - 1, SEGMENTS).astype(np.int64))]
        segments = (at[:, None] + np.arange(1, length + 1)).reshape(-1)
        seen = vectors(over(lambda part, wanted=segments: np.asarray(part[wanted]), data.observations))
        if not seen.shape[1]:
            return None  # pictures only
        seen = seen.reshape(len(at), length, -1).astype(np.float64)
        varied = seen.std(axis=(0, 1)) > 1e-9 * np.maximum(1.0, np.abs(seen).max(axis=(0, 1)))
        if varied.any() and np.mean(_swings(seen[..., varied])) >= SHARE:
            return length
    return None


def _swings(segments: np.ndarray) -> np.ndarray:
    """Which columns of segments [n, rows, columns] swing."""
    away = segments - segments.mean(axis=(0, 1))
    whole = np.square(away).mean(axis=(0, 1))
    lags = range(LATER, away.shape[1])
    later = [(away[:, :-lag] * away[:, lag:]).mean(axis=(0, 1)) / whole for lag in lags]
    return (np.square(away.mean(axis=1)).mean(axis=0) < SWINGS * whole) & (np.min(later, axis=0) <= BACK)
