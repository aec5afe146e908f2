"""Aggregates for tables and figures. Every draw is seeded; nothing here keeps state."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

_CHUNK_VALUES = 4_000_000  # resampled at once: bounds the memory of a bootstrap without changing its result
_TAILS = (0.025, 0.975)  # of an interval of 95%


def iqm(values: ArrayLike) -> np.ndarray:
    """Interquartile mean over the last axis: that without the floor(n / 4) lowest and as many of the highest values."""
    from scipy.stats import trim_mean

    return np.asarray(trim_mean(values, 0.25, axis=-1))


def stratified_bootstrap(
    scores: Sequence[ArrayLike] | np.ndarray,
    statistic: Literal["iqm", "mean"] = "iqm",
    reps: int = 2000,
    seed: int = 0,
    episodes: Sequence[ArrayLike | None] | None = None,
) -> tuple[float, float, float]:
    """Statistic of all scores together, with its 95% percentile bootstrap interval: (point, low, high).

    `scores` holds one vector per stratum (say a task's seeds); lengths may differ. Each stratum is resampled within
    itself, so a resample has as many scores of every stratum as the original. A stratum of one score cannot vary,
    unless `episodes` has the outcomes whose mean it is: then these are resampled, for an interval over episodes.
    """
    strata = [as_vector(stratum, f"scores[{i}]") for i, stratum in enumerate(scores)]
    outcomes = [
        None if own is None or len(stratum) > 1 else as_vector(own, f"episodes[{i}]")
        for i, (stratum, own) in enumerate(zip(strata, episodes or [None] * len(strata), strict=True))
    ]
    aggregate = iqm if statistic == "iqm" else lambda x: np.asarray(x.mean(axis=-1))
    pooled = np.concatenate(strata)
    rng = np.random.default_rng(seed)

    def drawn(values: np.ndarray, rows: int) -> np.ndarray:
        """rows x values, with replacement."""
        return values[rng.integers(len(values), size=(rows, len(values)))]

    def resample(rows: int) -> np.ndarray:
        """rows x all scores: each stratum resampled within itself, or its score as the mean of resampled outcomes."""
        found = []
        for stratum, own in zip(strata, outcomes, strict=True):
            if own is None:
                found.append(drawn(stratum, rows))
            else:
                means = [drawn(own, count).mean(axis=1) for count in _chunks(rows, len(own))]
                found.append(np.concatenate(means)[:, None])
        return np.concatenate(found, axis=1)

    resampled = np.concatenate([aggregate(resample(rows)) for rows in _chunks(reps, len(pooled))])
    low, high = np.quantile(resampled, _TAILS)
    return float(aggregate(pooled)), float(low), float(high)


def ratio_bootstrap(parts: ArrayLike, wholes: ArrayLike, reps: int = 2000, seed: int = 0) -> tuple[float, float] | None:
    """95% bootstrap interval (low, high) of sum(parts) / sum(wholes) over pairs; None where it is undefined."""
    part, whole = as_vector(parts, "parts"), as_vector(wholes, "wholes")
    if (whole < 0).any() or not whole.sum() > 0:
        return None
    drawn = np.random.default_rng(seed).integers(len(part), size=(reps, len(part)))
    top, bottom = part[drawn].sum(axis=1), whole[drawn].sum(axis=1)
    with np.errstate(all="ignore"):
        low, high = np.quantile(top[bottom > 0] / bottom[bottom > 0], _TAILS)
    return float(low), float(high)


def wilson(successes: int, n: int) -> tuple[float, float]:
    """95% Wilson score interval (low, high) of a success rate; unlike mean +- std it never leaves [0, 1]."""
    from scipy.stats import binomtest

    interval = binomtest(successes, n).proportion_ci(0.95, method="wilson")
    return float(interval.low), float(interval.high)


def spearman(x: Any, y: Any) -> float:
    """Rank correlation in [-1, 1], ties at their average rank; nan if one side is constant and so has no order."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    from scipy.stats import spearmanr

    return float(np.clip(spearmanr(x, y).statistic, -1.0, 1.0))


def _chunks(rows: int, width: int) -> list[int]:
    chunk = max(1, _CHUNK_VALUES // width)
    return [min(chunk, rows - begin) for begin in range(0, rows, chunk)]


def as_vector(values: ArrayLike, name: str, length: int | None = None, finite: bool = True) -> np.ndarray:
    """The values as a vector, of this length where one is given: that of what they belong to."""
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.size == 0 or len(x) != (length or len(x)) or (finite and not np.isfinite(x).all()):
        size = "" if length is None else f"{length} "
        raise ValueError(f"{name} must be a vector of {size}{'finite ' if finite else ''}numbers, not shape {x.shape}")
    return x
