"""Aggregates for tables and figures. Every draw is seeded; nothing here keeps state.

A wrong argument is the caller's bug, not the user's mistake, so it raises ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

# Resampled values held at once: bounds the memory of a bootstrap without changing its result for given scores.
_CHUNK_VALUES = 4_000_000


def mean_std(values: ArrayLike) -> tuple[float, float]:
    """Mean and standard deviation of the values at hand (n in the denominator, so one value has spread 0)."""
    x = _vector(values, "values")
    return float(x.mean()), float(x.std())


def iqm(values: ArrayLike) -> float:
    """Interquartile mean: the mean without the lowest and highest quarter of the values.

    A quarter that is no whole number is rounded down: floor(n / 4) values go at each end, none is weighted; fewer than
    four values give their plain mean.
    """
    return float(_iqm_rows(_vector(values, "values")))


def stratified_bootstrap(
    scores: Sequence[ArrayLike] | np.ndarray,
    statistic: Literal["iqm", "mean"] = "iqm",
    reps: int = 2000,
    seed: int = 0,
    level: float = 0.95,
    episodes: Sequence[ArrayLike | None] | None = None,
) -> tuple[float, float, float]:
    """Statistic of all scores together, with its percentile bootstrap interval: (point, low, high).

    `scores` holds one vector per stratum (say a task's seeds); lengths may differ. Each stratum is resampled within
    itself, so a resample has as many scores of every stratum as the original. A stratum of one score cannot vary,
    unless `episodes` has the outcomes whose mean it is: then these are resampled, for an interval over episodes.
    """
    if statistic not in _STATISTICS:
        raise ValueError(f"statistic must be 'iqm' or 'mean', not {statistic!r}")
    if reps < 1:
        raise ValueError(f"reps must be at least 1, not {reps}")
    _check_level(level)
    strata = [_vector(stratum, f"scores[{i}]") for i, stratum in enumerate(scores)]
    if not strata:
        raise ValueError("scores has no stratum")
    own = episodes or [None] * len(strata)
    outcomes = [
        None if own[i] is None or len(scores) > 1 else _vector(own[i], f"episodes[{i}]")  # type: ignore[arg-type]
        for i, scores in enumerate(strata)
    ]
    aggregate = _STATISTICS[statistic]
    pooled = np.concatenate(strata)
    rng = np.random.default_rng(seed)
    chunk = max(1, _CHUNK_VALUES // len(pooled))
    rows = [min(chunk, reps - begin) for begin in range(0, reps, chunk)]
    resampled = np.concatenate([aggregate(_draw(rng, strata, outcomes, count)) for count in rows])
    tail = (1 - level) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return float(aggregate(pooled)), float(low), float(high)


def _draw(
    rng: np.random.Generator, strata: Sequence[np.ndarray], outcomes: Sequence[np.ndarray | None], rows: int
) -> np.ndarray:
    """rows x all scores: each stratum resampled within itself, or its score as the mean of resampled outcomes."""
    draws = [
        _resampled(rng, stratum, rows) if own is None else _resampled_means(rng, own, rows)[:, None]
        for stratum, own in zip(strata, outcomes, strict=True)
    ]
    return np.concatenate(draws, axis=1)


def ratio_bootstrap(
    parts: ArrayLike, wholes: ArrayLike, reps: int = 2000, seed: int = 0, level: float = 0.95
) -> tuple[float, float] | None:
    """Percentile bootstrap interval (low, high) of sum(parts) / sum(wholes) over pairs; None where it is undefined."""
    part, whole = _vector(parts, "parts"), _vector(wholes, "wholes")
    if len(part) != len(whole):
        raise ValueError(f"parts and wholes must have the same length, not {len(part)} and {len(whole)}")
    _check_level(level)
    if (whole < 0).any() or not whole.sum() > 0:
        return None
    drawn = np.random.default_rng(seed).integers(len(part), size=(reps, len(part)))
    top, bottom = part[drawn].sum(axis=1), whole[drawn].sum(axis=1)
    tail = (1 - level) / 2
    with np.errstate(all="ignore"):
        low, high = np.quantile(top[bottom > 0] / bottom[bottom > 0], [tail, 1 - tail])
    return float(low), float(high)


def wilson(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson score interval (low, high) of a success rate; unlike mean +- std it never leaves [0, 1]."""
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    if not 0 <= successes <= n:
        raise ValueError(f"successes must be within 0..{n}, not {successes}")
    _check_level(level)
    from scipy.stats import binomtest

    interval = binomtest(successes, n).proportion_ci(level, method="wilson")
    return float(interval.low), float(interval.high)


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Rank correlation in [-1, 1], ties at their average rank; nan if one side is constant and so has no order."""
    a, b = _vector(x, "x"), _vector(y, "y")
    if len(a) != len(b):
        raise ValueError(f"x and y must have the same length, not {len(a)} and {len(b)}")
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan
    from scipy.stats import spearmanr

    return float(np.clip(spearmanr(a, b).statistic, -1.0, 1.0))


def _resampled(rng: np.random.Generator, values: np.ndarray, rows: int) -> np.ndarray:
    """rows x values, drawn with replacement."""
    return values[rng.integers(len(values), size=(rows, len(values)))]


def _resampled_means(rng: np.random.Generator, values: np.ndarray, rows: int) -> np.ndarray:
    """Means of resamples of many values, a few at a time: [rows]."""
    chunk = max(1, _CHUNK_VALUES // len(values))
    parts = [_resampled(rng, values, min(chunk, rows - begin)).mean(axis=1) for begin in range(0, rows, chunk)]
    return np.concatenate(parts)


def _iqm_rows(x: np.ndarray) -> np.ndarray:
    from scipy.stats import trim_mean

    return np.asarray(trim_mean(x, 0.25, axis=-1))


_STATISTICS = {"iqm": _iqm_rows, "mean": lambda x: np.asarray(x.mean(axis=-1))}


def _vector(values: ArrayLike, name: str) -> np.ndarray:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"{name} must be a vector of at least one number, not of shape {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError(f"{name} holds {int((~np.isfinite(x)).sum())} values that are not finite")
    return x


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level}")
