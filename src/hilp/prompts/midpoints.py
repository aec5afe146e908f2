"""Midpoint planning in latent space (Algorithm 2), exact and fast: a pass over the bank, then only what can still win.

The direct way computes both norms for all N bank states and sorts them in every recursion. Here distances to the state
are computed once per query, distances to the subgoal by one matrix-vector product, and two exact filters
keep the rest small: no midpoint farther from the state than the k-th best seen can win, and the k best of N are taken
by selection, not by sorting.
"""

from collections.abc import Callable

import numpy as np

from hilp.prompts.specs import BEST, MOST_RECURSIONS

RECURSIONS = 3  # of the paper
TRUST_SHARE = 0.09  # `auto` stops recursing once the subgoal is as near as this share of what phi can tell apart
BLOCK = 32  # queries planned at a time, so that their distance tables stay in cache
MOST_DIRECTED = 256  # states among which directed midpoints are looked for: a rule's distances are slow
PAIRS = 1024  # of directed distances at a time: a rule is compiled anew for every size
GATHER_COST = 5  # a gathered row costs about this many rows of a full pass
Distance = Callable[[np.ndarray, np.ndarray], np.ndarray]  # from latents to latents; leading axes are broadcast


def trust_radius(phi_discount: float) -> float:
    """How near, in latent steps, a subgoal is trusted as it is; the longest distance is 1 / (1 - phi_discount)."""
    return TRUST_SHARE / (1.0 - phi_discount)


def undiscounted(distance: np.ndarray, discount: float) -> np.ndarray:
    """The number of steps behind a discounted distance; past the horizon, its last resolvable step.

    Inverse of `hilp.learning.hilbert.discounted`. The scale saturates at 1 / (1 - gamma); a learned distance can
    overshoot it, so the inverse is cut where float32 stops telling distances apart.
    """
    left = np.maximum(1.0 - (1.0 - discount) * np.asarray(distance, np.float64), 1e-6)
    return np.log(left) / np.log(discount)


class Midpoints:
    """Latents of N data states, ready for midpoint queries."""

    distance: Distance | None = None  # of a method whose way back is another way

    def __init__(self, latents: np.ndarray):
        self.latents = np.ascontiguousarray(latents, np.float32)
        self.by_dimension = np.ascontiguousarray(self.latents.T)  # dim x N: the layout of the fast full pass
        self.squares = np.einsum("nd,nd->n", self.latents, self.latents)
        self.states, self.share = self.latents, 1.0  # among which those of batches are looked for

    def __len__(self) -> int:
        return len(self.latents)

    def apart(self, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        """The distance from latents to latents; leading axes are broadcast."""
        return np.asarray(np.linalg.norm(there - here, axis=-1))

    def square_distances(self, point: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """|w - point|^2 for all bank states, or for these rows."""
        # einsum, not BLAS: one thread, so that a busy machine cannot stall a controller's step on a thread pool
        if rows is None:
            inner, squares = np.einsum("d,dn->n", point, self.by_dimension), self.squares
        else:
            inner, squares = np.einsum("nd,d->n", self.latents[rows], point), self.squares[rows]
        return np.maximum(squares - 2.0 * inner + point @ point, 0.0)

    def subgoal(self, here: np.ndarray, goal: np.ndarray, recursions: int | str = RECURSIONS, best: int = BEST,
                radius: float = 0.0) -> np.ndarray:  # fmt: skip
        """The latent to head for from `here` on the way to `goal`: u <- mean of the `best` midpoints of (here, u).

        `recursions` is a number, or "auto": recurse only while u is farther than `radius`.
        """
        best = min(best, len(self))
        most = MOST_RECURSIONS if recursions == "auto" else int(recursions)
        u = np.asarray(goal, np.float32)
        here = np.asarray(here, np.float32)
        rows: np.ndarray | None = None  # bank rows that can still win; None means all
        to_here = np.zeros(0, np.float32)
        for depth in range(most):
            if recursions == "auto" and np.linalg.norm(u - here) <= radius:
                break
            if depth == 0:
                to_here = self.square_distances(here)
            cost = np.maximum(to_here, self.square_distances(u, rows))
            chosen = smallest(cost, best)
            winners = chosen if rows is None else rows[chosen]
            u = self.latents[winners].mean(axis=0)
            # The next k-th best cost is at most the worst cost these winners have there.
            bound = max(to_here[chosen].max(), self.square_distances(u, winners).max())
            inside = np.flatnonzero(to_here <= bound)
            if len(inside) * GATHER_COST <= len(to_here):
                rows = inside if rows is None else rows[inside]
                to_here = to_here[inside]
        return u

    def subgoals(self, here: np.ndarray, goal: np.ndarray, recursions: int | str = RECURSIONS, best: int = BEST,
                 radius: float = 0.0) -> np.ndarray:  # fmt: skip
        """`subgoal` for a batch: [n, D] and [n, D] -> [n, D]. Whole blocks of queries at a time, no filters."""
        best = min(len(self.states), max(1, round(best * self.share)))
        most = MOST_RECURSIONS if recursions == "auto" else int(recursions)
        u = np.array(goal, np.float32)
        for first in range(0, len(u), BLOCK):
            starts, ends = np.asarray(here[first : first + BLOCK], np.float32), u[first : first + BLOCK]
            active, from_here = np.arange(len(ends)), None
            for _ in range(most):
                if recursions == "auto":
                    active = active[self._apart(starts, ends)[active] > radius]
                if not len(active):
                    break
                from_here = self._from(starts) if from_here is None else from_here
                cost = np.maximum(from_here[active], self._to(ends, active))
                winners = np.argpartition(cost, best - 1, axis=1)[:, :best]  # queries x best
                ends[active] = self.states[winners].mean(axis=1)
        return u

    def _apart(self, here: np.ndarray, u: np.ndarray) -> np.ndarray:
        return np.asarray(np.linalg.norm(u - here, axis=1))

    def _from(self, here: np.ndarray) -> np.ndarray:
        return self.square_distance_table(here)

    def _to(self, u: np.ndarray, active: np.ndarray) -> np.ndarray:
        return self.square_distance_table(u[active])

    def square_distance_table(self, points: np.ndarray) -> np.ndarray:
        squares = np.einsum("nd,nd->n", points, points)
        inner = np.einsum("qd,dn->qn", points, self.by_dimension)  # queries x N
        return np.maximum(self.squares - 2.0 * inner + squares[:, None], 0.0)


class DirectedMidpoints(Midpoints):
    """Where the way back is another way: distances by the method's own rule, from the state and to u.

    A midpoint w of (s, u) is one that makes the longer of d(s, w) and d(w, u) short.
    """

    def __init__(self, latents: np.ndarray, distance: Distance):
        super().__init__(latents)
        self.distance: Distance = distance
        self.states = self.latents[:: max(1, -(-len(latents) // MOST_DIRECTED))]
        self.share = len(self.states) / max(1, len(latents))

    def apart(self, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        here, there = np.broadcast_arrays(np.asarray(here, np.float32), np.asarray(there, np.float32))
        shape, pairs = here.shape[:-1], [latents.reshape(-1, here.shape[-1]) for latents in (here, there)]
        count = len(pairs[0])
        size = BLOCK if count <= BLOCK else PAIRS
        padded = [np.concatenate([one, np.zeros((-count % size, one.shape[1]), np.float32)]) for one in pairs]
        blocks = [slice(first, first + size) for first in range(0, count, size)]
        found = [self.distance(*(one[block] for one in padded)) for block in blocks]
        return np.concatenate([np.zeros(0, np.float32), *found])[:count].reshape(shape)

    def subgoal(self, here: np.ndarray, goal: np.ndarray, recursions: int | str = RECURSIONS, best: int = BEST,
                radius: float = 0.0) -> np.ndarray:  # fmt: skip
        return self.subgoals(np.asarray(here)[None], np.asarray(goal)[None], recursions, best, radius)[0]

    def _apart(self, here: np.ndarray, u: np.ndarray) -> np.ndarray:
        return self.distance(filled(here), filled(u))[: len(u)]

    def _from(self, here: np.ndarray) -> np.ndarray:
        return self.distance(filled(here)[:, None], self.states[None])[: len(here)]

    def _to(self, u: np.ndarray, active: np.ndarray) -> np.ndarray:
        return self.distance(self.states[None], filled(u)[:, None])[active]


def filled(block: np.ndarray) -> np.ndarray:
    """One query, or up to a whole block of them: a rule is compiled anew for every size."""
    return block if len(block) == 1 else block[np.minimum(np.arange(BLOCK), len(block) - 1)]


def smallest(values: np.ndarray, count: int) -> np.ndarray:
    """Positions of the `count` smallest values, in no order. Exact.

    A stride sample guesses a threshold that about twice as many pass; only those are partitioned.
    """
    n = len(values)
    if n <= 16 * count:
        return np.argpartition(values, count - 1)[:count]
    sample = values[:: max(1, n // 2048)]
    rank = min(len(sample) - 1, int(2.0 * count * len(sample) / n) + 4)
    below = np.flatnonzero(values <= np.partition(sample, rank)[rank])
    if len(below) < count:  # the sample was unlucky
        return np.argpartition(values, count - 1)[:count]
    return below[np.argpartition(values[below], count - 1)[:count]]
