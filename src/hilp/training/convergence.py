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

    def __init__(self, run: Run):
        states = Bank.draw(run.data, STATES, run.seed).observations
        self._observations = run.preparation.observations(states)
        self._run = run
        self.note: dict[str, Any] = {
            "distances": None,
            "change": None,
            "still": 0,
        }  # of the latest check; in checkpoints

    @staticmethod
    def of(run: Run) -> Convergence | None:
        """Where a run is watched and trains distances all the time: not where phi is trained first and then frozen."""
        if not run.options.until_converged and run.options.folder is None:
            return None
        if len(run.stages) == 1 and hasattr(run.exports(run.fresh)[0], "goal_direction"):
            return Convergence(run)
        if run.options.until_converged:
            name = methods.name_of(run.config)
            raise HilpError(f"steps='auto' watches distances, which {name} does not train all the time: give a number")
        return None

    @property
    def change(self) -> float | None:
        return self.note["change"]

    @property
    def converged(self) -> bool:
        return bool(self.note["still"] >= CHECKS)

    def check(self, state: Any) -> None:
        """Compare distances with those of the last check."""
        core = self._run.exports(state)[0]
        latents = np.asarray(_encode(core, self._observations), np.float64)
        one, other = np.triu_indices(len(latents), 1)
        if hasattr(core, "distance"):
            now = np.asarray(core.distance(latents[one], latents[other]), np.float64)
        else:
            now = np.linalg.norm(latents[one] - latents[other], axis=-1)
        before, change, still = (self.note[name] for name in ("distances", "change", "still"))
        if before is not None and now.mean() > 0:
            change = float(np.abs(now - np.asarray(before)).mean() / now.mean())
            still = still + 1 if change < CONVERGED else 0
        self.note = {"distances": now.tolist(), "change": change, "still": still}

    def still_moving(self, steps: int) -> str | None:
        """A line about a run that ended after so many updates while phi moved; None where it stood still."""
        if self.change is None or self.change <= MOVING:
            return None
        every = self._run.options.pace.convergence
        return (
            f"phi still moves: distances among states of the data changed by {self.change:.0%} in the last "
            f"{every:,} updates; go on with --resume --steps {2 * steps}, or with --resume --steps auto"
        )
