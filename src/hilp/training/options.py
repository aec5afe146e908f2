"""The options of a training, checked when they are made."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hilp.errors import HilpError, is_number, place_of, require_count, require_function, require_switch
from hilp.runs import seed_folder

if TYPE_CHECKING:  # flags are read before anything slow is imported
    from hilp.data.dataset import Dataset
    from hilp.policy.policy import FoundationPolicy

AUTO_STEPS = 40_000  # the most updates of a run that ends by itself
CONVERGENCE_EVERY = 1000  # updates between two checks of convergence, where they decide about the end
CHECKS_PER_RUN = 8  # of convergence, in a run that ends after a fixed number of updates
LEAST_SECONDS = 2.0  # between two rows of metrics of a run that a clock ends
LINES_PER_RUN = 100  # rows of metrics, unless log_every says otherwise
# Options that are whole numbers, and the least of each; some of them need not be said.
COUNTS = {"seed": 0, "seeds": 1, "keep": 1, "bank": 0, "devices": 1, "log_every": 1, "checkpoint_every": 1,
          "eval_every": 1, "device_budget": 0}  # fmt: skip
UNSAID = ("log_every", "checkpoint_every", "eval_every", "device_budget")

Steps = int | Literal["auto"]


class Pace(NamedTuple):
    """How many updates lie between two of each."""

    log: int
    checkpoint: int
    evaluate: int
    convergence: int

    def boundary(self, step: int) -> int:
        """The next update after `step` at which something is due."""
        return min((step // every + 1) * every for every in self)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options that are flags of `hilp pretrain` and `hilp hierarchy` as well."""

    seed: int = 0
    """random seed"""
    seeds: int = 1
    """train this many seeds at once: seed, seed + 1, ..."""
    resume: bool = False
    """continue from the newest intact checkpoint in --out"""
    checkpoint_every: int | None = None
    """updates between two checkpoints (default: a tenth of the run)"""
    keep: int = 2
    """checkpoints kept on disk"""

    def run_options(self) -> dict[str, Any]:
        """These options by name, as `pretrain` takes them."""
        return {field.name: getattr(self, field.name) for field in fields(RunOptions)}


@dataclass(frozen=True)
class TrainOptions(RunOptions):
    """What `pretrain` takes besides a config and data."""

    steps: Steps
    """updates, or "auto": until distances among states of the data stop changing"""
    most_steps: int = AUTO_STEPS
    """updates at most, where steps is "auto"."""
    minutes: float | None = None
    """stop after this long, time before a resume included; measuring and saving the policy come after it"""
    out: str | os.PathLike[str] | None = None
    """folder of the run; without one nothing is written"""
    bank: int = 50_000
    """states of the data that a policy keeps for planning"""
    validation: float = 0.0
    """share of episodes held out to watch the losses on; some are saved next to the policy"""
    log_every: int | None = None
    """updates between two rows of metrics (default: a hundredth of the run)"""
    device_budget: int | None = None
    """bytes of data on the device (default: half of its memory); larger data is read from where it is while training"""
    devices: int = 1
    """how many share each batch; where several processes train together (`jax.distributed`), all devices of all"""
    evaluate: Callable[["FoundationPolicy"], dict[str, float]] | None = None
    """called for scores of the policy every `eval_every` updates, once it has had an update"""
    eval_every: int | None = None
    """updates between two evaluations (default: a fifth of the run)"""
    on_metrics: Callable[[dict[str, float]], object] | None = None
    """called with each row of metrics (docs/metrics.md); if it raises, the run is saved and stops"""
    on_policies: Callable[[list["FoundationPolicy"], "Dataset | None"], object] | None = None
    """called with the policies and the held-out data before they are saved"""
    quiet: bool = False
    """print no progress"""
    command: str | None = None
    """what run.json names as the command (default: that of this process)"""

    def __post_init__(self) -> None:
        if self.out is not None:
            place_of("out", self.out)
        for name in ("resume", "quiet"):
            object.__setattr__(self, name, require_switch(name, getattr(self, name)))
        for name in ("evaluate", "on_metrics", "on_policies"):
            require_function(name, getattr(self, name))
        if self.command is not None and not isinstance(self.command, str):
            raise HilpError(f"command is the text that run.json keeps, not {self.command!r:.60}")
        for name, least in {"most_steps" if self.until_converged else "steps": 1, **COUNTS}.items():
            if getattr(self, name) is not None or name not in UNSAID:
                object.__setattr__(self, name, require_count(name, getattr(self, name), least))  # numpy's become plain
        if self.minutes is not None and not is_number(self.minutes, above=0.0):
            raise HilpError(f"minutes must be a number above 0, not {self.minutes!r:.60}")
        if not is_number(self.validation) or not 0.0 <= self.validation < 1.0:
            raise HilpError(f"validation is a share of episodes, at least 0 and below 1, not {self.validation!r:.60}")
        object.__setattr__(self, "minutes", None if self.minutes is None else float(self.minutes))
        object.__setattr__(self, "validation", float(self.validation))

    @property
    def until_converged(self) -> bool:
        return isinstance(self.steps, str) and self.steps == "auto"

    @property
    def updates(self) -> int:
        """The most updates that there will be."""
        return self.most_steps if self.steps == "auto" else self.steps

    @property
    def until(self) -> dict[str, Any]:
        """What else ends the run, as run.json says it."""
        minutes = {} if self.minutes is None else {"minutes": self.minutes}
        return {"converged": True, **minutes} if self.until_converged else minutes

    @property
    def pace(self) -> Pace:
        timed = self.minutes is not None  # how many updates there will be is not known
        updates = min(self.updates, AUTO_STEPS) if timed else self.updates
        return Pace(
            self.log_every or max(1, updates // LINES_PER_RUN),
            self.checkpoint_every or max(1, updates // 10),
            self.eval_every or max(1, updates // 5),
            CONVERGENCE_EVERY if self.until_converged or timed else max(1, updates // CHECKS_PER_RUN),
        )

    @property
    def log_seconds(self) -> float:
        """Between two rows of metrics of a run that a clock ends."""
        return math.inf if self.minutes is None else max(LEAST_SECONDS, 60 * self.minutes / LINES_PER_RUN)

    @property
    def folder(self) -> Path | None:
        return None if self.out is None else Path(self.out)

    def home(self, seed: int) -> Path:
        """The folder of what one seed leaves."""
        assert self.folder is not None
        return seed_folder(self.folder, seed, self.seeds)
