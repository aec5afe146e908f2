"""Action scaling: how the user's actions and the [-1, 1] of training are mapped to each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class ActionScaling:
    """raw action = center + half_range * action, column by column."""

    center: np.ndarray  # [act] float32
    half_range: np.ndarray  # [act] float32

    @staticmethod
    def of_range(low: np.ndarray, high: np.ndarray) -> ActionScaling:
        """Maps the range of each column to [-1, 1]; a column of one value is only shifted."""
        center = ((high + low) / 2).astype(np.float32)
        return ActionScaling(center, np.where(high > low, (high - low) / 2, 1.0).astype(np.float32))

    def scaled(self, raw: np.ndarray) -> np.ndarray:
        """Raw actions, mapped for training."""
        return np.clip((raw - self.center) / self.half_range, -1.0, 1.0).astype(np.float32)

    def raw(self, actions: np.ndarray) -> np.ndarray:
        """Actions of training in the user's units."""
        return self.center + self.half_range * actions

    def after(self, earlier: ActionScaling | None) -> ActionScaling:
        """Both in one, where the actions had been scaled before."""
        if earlier is None:
            return self
        return ActionScaling(earlier.center + earlier.half_range * self.center, earlier.half_range * self.half_range)
