"""Convergence: whether the distances among some states of the data still change while a run trains.

Where they do not, phi has learned what it will learn from this data; more updates only polish. What is kept from one
look to the next goes into the checkpoints, so that a run that is killed and resumed stops where it would have stopped.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from hilp.policy.bank import Bank
from hilp.training.run import Run

STATES = 64  # whose distances are watched
CONVERGED = 0.03  # change of distances from one look to the next, relative to their mean, below which they stand still
LOOKS = 2  # in a row that must find them so
EVERY = 1000  # updates between two looks, where they decide about the end
MOVING = 0.1  # change in the last part of a run that is worth a word


class Convergence:
    """Looks at distances now and then. `change` is the latest, `converged` whether they stand still."""

    def __init__(self, run: Run, every: int):
        self.every = every
        states = Bank.draw(run.data, STATES, run.seed).observations
        self._observations = run.preparation.observations(states)
        self._encode = jax.jit(lambda core, observations: core.encode(observations))
        self._run = run
        self._before: np.ndarray | None = None
        self.change: float | None = None
        self._still = 0

    @staticmethod
    def fits(run: Run) -> bool:
        """Whether there are distances to watch, and all the way: not where phi is trained first and then left alone."""
        return len(run.stages) == 1 and hasattr(run.exports(run.fresh)[0], "goal_direction")

    @property
    def converged(self) -> bool:
        return self._still >= LOOKS

    def look(self, state: Any) -> None:
        """Compare distances with those of the last look."""
        core = self._run.exports(state)[0]
        latents = np.asarray(self._encode(core, self._observations), np.float64)
        one, other = np.triu_indices(len(latents), 1)
        if hasattr(core, "distance"):
            now = np.asarray(core.distance(latents[one], latents[other]), np.float64)
        else:
            now = np.linalg.norm(latents[one] - latents[other], axis=-1)
        if self._before is not None and now.mean() > 0:
            self.change = float(np.abs(now - self._before).mean() / now.mean())
            self._still = self._still + 1 if self.change < CONVERGED else 0
        self._before = now

    def still_moving(self, steps: int) -> str | None:
        """A line about a run that ended after so many updates while phi moved; None where it stood still."""
        if self.change is None or self.change <= MOVING:
            return None
        return (
            f"phi still moves: distances among states of the data changed by {self.change:.0%} in the last "
            f"{self.every:,} updates; go on with --resume --steps {2 * steps}, or with --resume --steps auto"
        )

    def note(self) -> dict[str, Any]:
        """What the next look needs to know, for a checkpoint."""
        return {
            "distances": None if self._before is None else self._before.tolist(),
            "change": self.change,
            "still": self._still,
        }

    def recall(self, note: dict[str, Any] | None) -> None:
        """Go on from a checkpoint's note; one without, of an earlier version, is as none."""
        if note:
            self._before = None if note["distances"] is None else np.asarray(note["distances"], np.float64)
            self.change, self._still = note["change"], int(note["still"])
