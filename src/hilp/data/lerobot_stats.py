"""Statistics of LeRobot data: those that its own recorder notes, of each episode and joined over all.

Quantiles of long episodes and of pictures are of an even sample. Pictures count by channel, from 0 to 1.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hilp.data.measures import Moments

QUANTILES = {f"q{percent:02d}": percent / 100 for percent in (1, 10, 50, 90, 99)}
ROWS_SAMPLED, PICTURES_SAMPLED, PIXELS_SAMPLED = 10_000, 100, 150  # of an episode; pixels: of a picture's side

Noted = dict[str, np.ndarray]  # min, max, mean, std, count and quantiles of a feature


class Sampled:
    """Statistics of a feature in one episode, from its rows block by block."""

    def __init__(self, width: int, frames: int, is_picture: bool = False):
        """width: numbers of a row, or channels of a picture."""
        self._width, self._is_picture, self._moments = width, is_picture, Moments(width)
        self._every = math.ceil(frames / (PICTURES_SAMPLED if is_picture else ROWS_SAMPLED))
        self._sample: list[np.ndarray] = []
        self._pictures = 0

    def add(self, first: int, values: np.ndarray) -> None:
        """Take in the rows of the episode from `first` on."""
        sample = values[-first % self._every :: self._every].copy()  # and no view, which would keep the block
        if self._is_picture:
            self._pictures += len(sample)
            apart = max(1, min(values.shape[1:3]) // PIXELS_SAMPLED)
            sample = sample[:, ::apart, ::apart].astype(np.float32) / np.float32(255)
            values = sample
        self._sample.append(sample.reshape(-1, self._width))
        self._moments.add(values.reshape(-1, self._width))

    def noted(self) -> Noted:
        sample, known = np.concatenate(self._sample), self._moments
        quantiles = np.quantile(sample.astype(np.float64), list(QUANTILES.values()), axis=0)
        found = {"min": known.low, "max": known.high, "mean": known.mean, "std": known.deviation}
        found |= dict(zip(QUANTILES, quantiles, strict=True))
        shape = (-1, 1, 1) if self._is_picture else (-1,)
        found = {name: np.asarray(value, np.float64).reshape(shape) for name, value in found.items()}
        count = self._pictures if self._is_picture else int(known.count[0])
        return {**found, "count": np.array([count])}


class Stats:
    """Statistics of all episodes, joined from those of each."""

    def __init__(self) -> None:
        self._all: dict[str, Noted] = {}

    def add(self, noted: Mapping[str, Noted]) -> None:
        for name, new in noted.items():
            old = self._all.get(name)
            self._all[name] = new if old is None else _joined(old, new)

    def noted(self) -> dict[str, dict[str, Any]]:
        return {name: {key: value.tolist() for key, value in one.items()} for name, one in self._all.items()}


def _joined(one: Noted, two: Noted) -> Noted:
    """As LeRobot joins them: of quantiles the mean, which is not the quantile of all."""
    both = one["count"] + two["count"]
    share = float(two["count"][0] / both[0])
    found = {name: one[name] + share * (two[name] - one[name]) for name in ("mean", *QUANTILES)}
    between = share * (1.0 - share) * np.square(two["mean"] - one["mean"])
    deviation = np.sqrt((1.0 - share) * np.square(one["std"]) + share * np.square(two["std"]) + between)
    ends = {"min": np.minimum(one["min"], two["min"]), "max": np.maximum(one["max"], two["max"])}
    return {**ends, **found, "std": deviation, "count": both}
