"""Midpoint planning where the way back is another way: distances by the method's own rule, from the state and to u."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hilp.policy.planning import BEST, BLOCK, MOST_RECURSIONS, RECURSIONS, Midpoints

MOST = 256  # states among which midpoints are looked for: a rule's distances cost hundreds of times an inner product
Distance = Callable[[np.ndarray, np.ndarray], np.ndarray]  # from latents to latents; leading axes are broadcast


class DirectedMidpoints(Midpoints):
    """A midpoint w of (s, u) is one that makes the longer of d(s, w) and d(w, u) short."""

    def __init__(self, latents: np.ndarray, distance: Distance):
        super().__init__(latents)
        self.distance = distance
        self._some = self.latents[:: max(1, -(-len(latents) // MOST))]
        self._share = len(self._some) / max(1, len(latents))

    def subgoal(self, here: np.ndarray, goal: np.ndarray, recursions: int | str = RECURSIONS, best: int = BEST,
                radius: float = 0.0) -> np.ndarray:  # fmt: skip
        """The latent to head for from `here` on the way to `goal`."""
        return self.subgoals(np.asarray(here)[None], np.asarray(goal)[None], recursions, best, radius)[0]

    def subgoals(self, here: np.ndarray, goal: np.ndarray, recursions: int | str = RECURSIONS, best: int = BEST,
                 radius: float = 0.0) -> np.ndarray:  # fmt: skip
        """`subgoal` for a batch: [n, D] and [n, D] -> [n, D]."""
        here, u = np.asarray(here, np.float32), np.array(goal, np.float32)
        block = 1 if len(here) == 1 else BLOCK
        for first in range(0, len(here), block):
            rows = slice(first, first + block)
            count = len(here[rows])
            # Filled up to a whole block: the rule is compiled anew for every size.
            filled = np.minimum(np.arange(block), count - 1)
            u[rows] = self._block(here[rows][filled], u[rows][filled], recursions, best, radius)[:count]
        return u

    def _block(self, here: np.ndarray, u: np.ndarray, recursions: int | str, best: int, radius: float) -> np.ndarray:
        best = min(len(self._some), max(1, round(best * self._share)))
        most = MOST_RECURSIONS if recursions == "auto" else int(recursions)
        from_here = None
        active = np.arange(len(here))
        for _ in range(most):
            if recursions == "auto":
                active = active[self.distance(here, u)[active] > radius]
            if not len(active):
                break
            if from_here is None:
                from_here = self.distance(here[:, None], self._some[None])  # queries x states
            cost = np.maximum(from_here, self.distance(self._some[None], u[:, None]))[active]
            winners = np.argpartition(cost, best - 1, axis=1)[:, :best]
            u[active] = self._some[winners].mean(axis=1)
        return u
