"""Stand-ins: states of the data for goals of which only some numbers matter.

A goal is often a place: where the robot shall be, in whatever posture. Whoever makes up the rest (zeros, a home
position) may ask for a state that no data is like, of which networks know nothing. A state of the data that agrees in
what matters is one that they know.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hilp.errors import HilpError, some
from hilp.policy.agent import Promptable

AROUND = 10  # states of the bank that agree best, of which the one in their midst is taken
FAR = 3.0  # times the largest gap between neighbours in the data: beyond, nothing of the data agrees with a goal
SAMPLE = 256  # states whose gaps are looked at


def for_goals(
    policy: Promptable, goals: np.ndarray, goal_dims: Sequence[int], periods: Mapping[int, float]
) -> np.ndarray:
    """For each goal [n, obs] a state of the policy's bank that agrees with it in these columns.

    periods: of those columns that are angles.
    """
    states, columns = _require(policy, goal_dims)
    places = Places(states[:, columns], np.array([periods.get(column, 0.0) for column in columns]))
    gap, spread = places.largest_gap(), np.maximum(states.std(axis=0), 1e-6)
    found = []
    for goal in np.asarray(goals)[:, columns]:
        apart = places.apart(goal)
        around = np.argsort(apart, kind="stable")[:AROUND]
        if apart[around[0]] > FAR * gap:
            nearest = ", ".join(f"{number:.4g}" for number in places.known[around[0]])
            warnings.warn(
                f"no state of the data is near this goal in what goal_dims: the nearest one has {nearest} there",
                stacklevel=3,
            )
        seen = policy.encode(states[around]) if policy.has_rule("goal_direction") else states[around] / spread
        found.append(around[np.argmin(np.linalg.norm(seen - seen.mean(axis=0), axis=1))])
    return states[found]


def _require(policy: Promptable, goal_dims: Sequence[int]) -> tuple[np.ndarray, list[int]]:
    """The states of the bank, and the columns."""
    states: Any = policy.bank.observations
    if isinstance(states, Mapping):
        raise HilpError(f"goal_dims are columns of a goal, and this policy sees {some(list(states))}")
    if not len(states):
        raise HilpError("this policy was saved without a bank of states, so none can stand in for a goal")
    width, columns = states.shape[1], list(goal_dims)
    if not columns or not all(isinstance(column, int | np.integer) and 0 <= column < width for column in columns):
        raise HilpError(f"goal_dims are one or more of its columns 0 to {width - 1}, not {goal_dims!r}")
    return states, columns


class Places:
    """States by what matters of them, each column in units of its standard deviation."""

    def __init__(self, known: np.ndarray, periods: np.ndarray) -> None:
        self.known, self.periods = known, periods  # [n, columns], [columns]: 0 where a column does not wrap
        self.scale = np.maximum(known.std(axis=0), 1e-6)

    def apart(self, place: np.ndarray) -> np.ndarray:
        """How far all states are from a place, [n]."""
        away = self.known - place
        turns = np.round(away / np.where(self.periods > 0, self.periods, np.inf))
        return np.linalg.norm((away - turns * self.periods) / self.scale, axis=1)

    def largest_gap(self) -> float:
        """Between a state and the next one, of a sample."""
        gaps = [0.0]
        for row in np.random.default_rng(0).permutation(len(self.known))[:SAMPLE]:
            others = np.delete(self.apart(self.known[row]), row)
            gaps.append(float(others.min(initial=np.inf)))
        return max(gaps)
