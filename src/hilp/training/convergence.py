"""Convergence: whether the distances among some states of the data still change while a run trains.

Where they do not, phi has learned what it will learn from this data; more updates only polish. What one check keeps for
the next goes into the checkpoints, so that a run that is killed and resumed stops where it would have stopped.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from hilp.errors import HilpError
from hilp.learning import methods
from hilp.prompts.bank import Bank
from hilp.training.options import TrainOptions
from hilp.training.run import Run

STATES = 64  # whose distances are watched
CONVERGED = 0.03  # change of distances between two checks, relative to their mean, below which they stand still
CHECKS = 2  # in a row that must find them so
MOVING = 0.1  # change in the last part of a run that is worth a line


@jax.jit
def _encode(core: Any, observations: Any) -> jax.Array:
    return core.encode(observations)


class Convergence:
    """Checks distances now and then. `change` is the latest, `converged` whether they stand still."""

    def __init__(self, run: Run, every: int):
        self.every = every
        states = Bank.draw(run.data, STATES, run.seed).observations
        self._observations = run.preparation.observations(states)
        self._run = run
        self._before: np.ndarray | None = None
        self.change: float | None = None
        self._still = 0

    @staticmethod
    def of(run: Run, options: TrainOptions) -> Convergence | None:
        """Where a run is watched and trains distances all the time: not where phi is trained first and then frozen."""
        if not options.until_converged and options.folder is None:
            return None
        if len(run.stages) == 1 and hasattr(run.exports(run.fresh)[0], "goal_direction"):
            return Convergence(run, options.pace.convergence)
        if options.until_converged:
            name = methods.name_of(run.config)
            raise HilpError(f"steps='auto' watches distances, which {name} does not train all the time: give a number")
        return None

    @property
    def converged(self) -> bool:
        return self._still >= CHECKS

    def check(self, state: Any) -> None:
        """Compare distances with those of the last check."""
        core = self._run.exports(state)[0]
        latents = np.asarray(_encode(core, self._observations), np.float64)
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
        """What the next check needs, for a checkpoint."""
        distances = None if self._before is None else self._before.tolist()
        return {"distances": distances, "change": self.change, "still": self._still}

    def restore(self, note: dict[str, Any] | None) -> None:
        """Go on from a checkpoint's note; a run that was not watched before has none."""
        if note:
            self._before = None if note["distances"] is None else np.asarray(note["distances"], np.float64)
            self.change, self._still = note["change"], int(note["still"])
