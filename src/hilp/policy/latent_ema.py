"""LatentEma: where an agent is, taken as the mean of where it was over the last steps.

A body that walks, or a sensor with noise, changes its latent at every step by more than it gets on, and a direction
that is taken from there to a near subgoal swings about with it. The mean of some steps swings less; it also lags
behind, so what moves without swinging is better off without it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hilp.errors import HilpError


def require_smooth(steps: Any) -> None:
    """Raise unless this is a number of steps that a mean can go back."""
    if isinstance(steps, bool) or not isinstance(steps, int | float) or not 1.0 <= steps < np.inf:
        raise HilpError(f"smooth is a number of steps from 1 on that the mean goes back, not {steps!r}")


class LatentEma:
    """A moving mean of the latents of agents side by side. A batch of another size, or an agent that is suddenly
    elsewhere, is a new episode and begins anew.
    """

    def __init__(self, steps: float, jump: float):
        """steps: that the mean goes back, about; jump: the latent distance in one step that no agent goes."""
        self.steps, self.jump = steps, jump
        self.reset()

    def reset(self, rows: Any = None) -> None:
        """New episodes begin, of all agents or of those in these rows."""
        if rows is None:
            self.last: np.ndarray | None = None
        elif self.last is not None:
            self.last[rows] = np.inf

    def __call__(self, here: np.ndarray) -> np.ndarray:
        """The means after one more step, [n, dim]."""
        here = np.asarray(here)
        if self.last is None or len(self.last) != len(here):
            self.mean = np.array(here)
        else:
            begins = ~(np.linalg.norm(here - self.last, axis=1, keepdims=True) <= self.jump)
            self.mean = np.where(begins, here, self.mean + (here - self.mean) / np.float32(self.steps))
        self.last = np.array(here)
        return np.array(self.mean)
