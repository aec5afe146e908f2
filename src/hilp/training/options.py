"""The options of a training, checked when they are made."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from hilp.data.dataset import Dataset
from hilp.errors import HilpError, require_count
from hilp.policy.policy import FoundationPolicy
from hilp.runs import seed_folder

AUTO_STEPS = 40_000  # the most updates of a run that ends by itself
CONVERGENCE_EVERY = 1000  # updates between two checks of convergence, where they decide about the end
CHECKS_PER_RUN = 8  # of convergence, in a run that ends after a fixed number of updates
LINES_PER_RUN = 100  # rows of metrics, unless log_every says otherwise

Evaluate = Callable[[FoundationPolicy], dict[str, float]]
OnMetrics = Callable[[dict[str, float]], object]
OnPolicies = Callable[[list[FoundationPolicy], Dataset | None], object]


class Pace(NamedTuple):
    """How many updates lie between two of each."""

    log: int
    checkpoint: int
    evaluate: int
    convergence: int

    def boundary(self, step: int) -> int:
        """The next update after `step` at which something is due."""
        return min((step // every + 1) * every for every in self)


@dataclass(frozen=True)
class TrainOptions:
    """What `pretrain` takes besides a config and data."""

    steps: int | Literal["auto"]  # updates, or "auto": until distances among states of the data stop changing
    most_steps: int = AUTO_STEPS  # updates at most with steps="auto"
    minutes: float | None = None  # stop after this long, time before a resume included
    seed: int = 0
    seeds: int = 1  # seed, seed + 1, ...: trained at once in one compiled program
    out: str | os.PathLike[str] | None = None  # folder of the run; without one nothing is written
    resume: bool = False  # go on from the newest intact checkpoint
    bank: int = 50_000  # states of the data that a policy keeps for planning
    validation: float = 0.0  # share of episodes held out to watch the losses on; some are saved next to the policy
    log_every: int | None = None  # updates between two rows of metrics
    checkpoint_every: int | None = None
    keep: int = 2  # checkpoints kept on disk
    device_budget: int | None = None  # bytes of data on the device (default: half its memory); more is streamed
    devices: int = 1  # that share each batch; with several processes (`jax.distributed`), all devices of all of them
    evaluate: Evaluate | None = None  # scores of a policy, computed every `eval_every` updates
    eval_every: int | None = None
    on_metrics: OnMetrics | None = None  # called with each row of metrics; if it raises, the run is saved and stops
    on_policies: OnPolicies | None = None  # called with the policies and the held-out data before they are saved
    quiet: bool = False
    command: str | None = None  # that is written into run.json

    def __post_init__(self) -> None:
        for name in ("most_steps" if self.until_converged else "steps", "seeds", "keep", "devices"):
            require_count(name, getattr(self, name))
        for name in ("log_every", "checkpoint_every", "eval_every"):
            if getattr(self, name) is not None:
                require_count(name, getattr(self, name))
        for name in ("seed", "bank"):
            require_count(name, getattr(self, name), 0)
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise HilpError(f"minutes must be a number above 0, not {self.minutes}")
        if not 0.0 <= self.validation < 1.0:
            raise HilpError(f"validation is a share of the episodes, at least 0 and below 1, not {self.validation}")

    @property
    def until_converged(self) -> bool:
        return self.steps == "auto"

    @property
    def updates(self) -> int:
        """The most updates that there will be."""
        return self.most_steps if self.steps == "auto" else self.steps

    @property
    def until(self) -> dict[str, Any]:
        """What else ends the run, as run.json says it."""
        found = {"converged": self.until_converged or None, "minutes": self.minutes}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def pace(self) -> Pace:
        updates = self.updates
        return Pace(
            self.log_every or max(1, updates // LINES_PER_RUN),
            self.checkpoint_every or max(1, updates // 10),
            self.eval_every or max(1, updates // 5),
            CONVERGENCE_EVERY if self.until_converged else max(1, updates // CHECKS_PER_RUN),
        )

    @property
    def folder(self) -> Path | None:
        return None if self.out is None else Path(self.out)

    def home(self, seed: int) -> Path:
        """The folder of what one seed leaves."""
        assert self.folder is not None
        return self.folder if self.seeds == 1 else seed_folder(self.folder, seed)
