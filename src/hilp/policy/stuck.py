"""StuckAgents: noticing that an agent no longer gets nearer to its goal, and trying something else.

A policy without noise in a world without noise that stands still once stands still for ever: it sees the same state,
heads for the same subgoal and takes the same action into the same corner. The graph knows that there is a way, so an
agent that has not come nearer for a while is sent astray, to a random state around it, which leads away from the
corner; then given a nearer subgoal, which leads around it. The while is long, because an agent that walks may seem to
get no nearer, too: a body's posture is part of its state. What is tried then is short.
"""

from __future__ import annotations

from typing import Any

import numpy as np

REACHES = (0.7, 0.7, 0.35, 0.7)  # of the trust radius, one after the other: farther, ways bend
RANDOM_SUBGOAL = (False, True, False, True)  # which of them lead to a random state
LEAST = 3  # steps without progress before something else is tried
WAITS = (2, 1, 1, 1)  # times as long as the trust radius takes, before the next is tried
PROGRESS = 0.5  # steps nearer that count as getting nearer


class StuckAgents:
    """What is remembered about agents side by side. A batch of another size, or an agent that is suddenly elsewhere, is
    a new episode and forgets what was before.
    """

    def __init__(self, trust: float, steps: float):
        """trust: the radius, in latents; steps: the same in steps, by which waiting is measured."""
        self.trust, self.steps = trust, max(LEAST, steps)
        self._begin(0)

    def reset(self, rows: Any = None) -> None:
        """New episodes begin, of all agents or of those in these rows."""
        if rows is None:
            self._begin(0)
        else:
            self._forget(rows)

    def _forget(self, rows: Any) -> None:
        self.nearest[rows] = self.tried_at[rows] = np.inf
        self.waited[rows] = self.level[rows] = 0
        self.heads_for[rows] = NOWHERE

    def _begin(self, agents: int) -> None:
        self.rng = np.random.default_rng(0)
        self.here: np.ndarray | None = None  # latents at the last call
        self.nearest = np.full(agents, np.inf)  # fewest steps to the goal since something was tried
        self.tried_at = np.full(agents, np.inf)  # steps to the goal when it was
        self.waited = np.zeros(agents, np.int64)
        self.level = np.zeros(agents, np.int64)
        self.heads_for = np.full(agents, NOWHERE)  # of those that go astray: a state of the bank

    def reaches(self, here: np.ndarray, steps_left: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of the agents in these rows: the radius, in latents, within which to choose a subgoal, and whether at random.

        here: latents of all agents; steps_left: of those in `rows`.
        """
        if self.here is None or len(self.here) != len(here):
            self._begin(len(here))
        else:
            self._forget(np.linalg.norm(here - self.here, axis=1) > self.trust)
        self.here = np.array(here)
        nearer = steps_left < self.nearest[rows] - PROGRESS
        self.nearest[rows[nearer]] = steps_left[nearer]
        self.waited[rows] = np.where(nearer, 0, self.waited[rows] + 1)
        well_past = steps_left < self.tried_at[rows] - self.steps
        self.level[rows[well_past]] = 0
        stuck = self.waited[rows] > self.steps * np.asarray(WAITS)[self.level[rows]]
        again = rows[stuck]
        self.level[again] = (self.level[again] + 1) % len(REACHES)
        self.waited[again] = 0
        self.heads_for[again] = NOWHERE
        self.nearest[again] = self.tried_at[again] = steps_left[stuck]
        level = self.level[rows]
        return self.trust * np.asarray(REACHES)[level], np.asarray(RANDOM_SUBGOAL)[level]

    def random_subgoal(self, agent: int, states: np.ndarray) -> int:
        """One of these states of the bank, the same one until something else is tried."""
        if self.heads_for[agent] == NOWHERE:
            self.heads_for[agent] = self.rng.choice(states)
        return int(self.heads_for[agent])


NOWHERE = -1
