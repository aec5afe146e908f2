"""Chance in the graph of the data: leaps, long steps that luck made.

A step that went far at once, where others that began alike ended elsewhere, is no way that one can choose. So
trajectories are cut at leaps, and a landmark that they leave is a lottery: where those around it have landed, each as
likely. `Lotteries.expected` adds them to the ways between landmarks, each at the mean of what may follow.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

POOLED = 30  # leaps around a landmark that say where one from it lands
ENOUGH = 1e-2  # steps by which the last round changes what is expected, at most
ROUNDS = 1000
HERE = 1e-3  # steps from a landmark to itself: 0 would be no edge
Ways = Callable[[np.ndarray], np.ndarray]  # from last legs, goals x landmarks, to steps from every landmark


def cut(lengths: np.ndarray, leaps: np.ndarray) -> np.ndarray:
    """The lengths of trajectories that end in these rows, too."""
    return np.diff(np.union1d(np.cumsum(lengths), leaps + 1), prepend=0)


def tickets(
    before: np.ndarray, origin: np.ndarray, landed: np.ndarray, landmarks: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Landmarks that leaps leave, and where: [k] and [k, POOLED] numbers of landmarks.

    before: latents that leaps began in [n, D]; origin, landed: the landmarks nearest to both ends. A landmark alone has
    seen too few to tell luck from choice, so those that began nearest to it say where one lands.
    """
    left = np.unique(origin)
    count = min(POOLED, len(before))
    found = np.zeros((len(left), POOLED), np.int32)
    for number, landmark in enumerate(left):
        apart = np.square(before - landmarks[landmark]).sum(axis=1)
        pooled = np.sort(landed[np.argpartition(apart, count - 1)[:count]])
        found[number] = pooled[np.arange(POOLED) * count // POOLED]
    return left.astype(np.int32), found


@dataclass(frozen=True)
class Lotteries:
    """Landmarks with leaps, where they land, and the ways between them all."""

    at: np.ndarray  # [k]: numbers of landmarks
    landed: np.ndarray  # [k, POOLED]: likewise
    count: int  # landmarks
    ways: Ways

    @cached_property
    def steps(self) -> np.ndarray:
        """Steps from every landmark to each with a leap, by ways alone: [k, landmarks]."""
        last = np.full((len(self.at), self.count), np.inf)
        last[np.arange(len(self.at)), self.at] = HERE
        return self.ways(last)

    def expected(self, to_goals: np.ndarray) -> np.ndarray:
        """Steps from every landmark to goals, [goals, landmarks]: by ways alone as they are given, or by leaps, too."""
        ends, place = np.unique(self.landed, return_inverse=True)
        odds = np.zeros((len(self.at), len(ends)))
        np.add.at(odds, (np.arange(len(self.at))[:, None], place.reshape(self.landed.shape)), 1.0 / POOLED)
        onwards, found = self.steps[:, ends], np.array(to_goals)
        for steps in found:
            worth = np.ones(len(self.at))
            for _ in range(ROUNDS):  # from below: what is expected is no less than that
                left = np.minimum(steps[ends], (onwards + worth[:, None]).min(axis=0))  # infinite where odds are 0, too
                after = 1.0 + np.sum(odds * left, axis=1, where=odds > 0)
                gained, worth = (after > worth + ENOUGH).any(), after
                if not gained:
                    break
            np.minimum(steps, (self.steps + worth[:, None]).min(axis=0), out=steps)
        return found

    def taken(self, landmark: int, to_goal: np.ndarray) -> np.ndarray | None:
        """Where a leap from a landmark lands [POOLED], if that is the best to do there, by what is expected."""
        place = int(np.searchsorted(self.at, landmark))
        if place == len(self.at) or self.at[place] != landmark:
            return None
        landed = self.landed[place]
        return landed if 1.0 + to_goal[landed].mean() <= to_goal[landmark] + 2 * ENOUGH else None


def lotteries(leaps: np.ndarray, landed: np.ndarray, count: int, ways: Ways) -> Lotteries | None:
    return Lotteries(leaps, landed.reshape(-1, POOLED), count, ways) if len(leaps) else None
