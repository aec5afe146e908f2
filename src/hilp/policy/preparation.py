"""Preparation: what happens to observations before the networks and to actions after them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hilp.data.dataset import Dataset


@dataclass(frozen=True)
class Preparation:
    """What happens to observations before the networks and to actions after them; part of the artifact."""

    mean: np.ndarray  # [obs]
    scale: np.ndarray  # [obs]
    action_center: np.ndarray  # [act]
    action_half_range: np.ndarray  # [act]

    @staticmethod
    def of(data: Dataset, normalize: bool) -> Preparation:
        """Measured on the data; a constant column is only shifted, never divided by its zero deviation."""
        if normalize:
            mean, deviation = _mean_and_deviation(data.observations)
            scale = np.where(deviation > 1e-6 * np.maximum(1.0, np.abs(mean)), deviation, 1.0)
        else:
            mean, scale = np.zeros(data.observation_dim), np.ones(data.observation_dim)
        scaling = data.action_scaling
        center = np.zeros(data.action_dim) if scaling is None else scaling.center
        half_range = np.ones(data.action_dim) if scaling is None else scaling.half_range
        return Preparation(*(np.asarray(v, np.float32) for v in (mean, scale, center, half_range)))


def _mean_and_deviation(rows: np.ndarray, block: int = 1 << 16) -> tuple[np.ndarray, np.ndarray]:
    """Of each column, in float64 and two passes, block by block so that mapped files need no memory."""
    blocks = [slice(start, start + block) for start in range(0, len(rows), block)]
    mean = sum(np.sum(rows[b], axis=0, dtype=np.float64) for b in blocks) / len(rows)
    variance = sum(np.sum(np.square(rows[b] - mean), axis=0) for b in blocks) / len(rows)
    return np.asarray(mean), np.sqrt(variance)
