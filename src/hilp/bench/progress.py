"""How the cells of a table stand: bars with a time that is left on a terminal, lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta

from rich import progress as bars
from rich.console import Console

from hilp.bench.jobs import Job
from hilp.errors import printable

REFRESH_SECONDS = 1.0
PLAIN_SECONDS = 60.0  # between lines in a log
PACE_SECONDS = 3600.0  # of the past that the time left is estimated from


class Progress:
    """Counts cells and their updates; `bars` is the context that shows them."""

    def __init__(self, jobs: Sequence[Job], total: int, quiet: bool) -> None:
        """total: cells of the table, also those whose rows exist."""
        self._total, self._quiet = total, quiet
        self._states = {job.number: "waiting" for job in jobs}
        self._read_at = self._said_at = time.monotonic()
        self._live = bool(jobs) and not quiet and sys.stderr.isatty()
        self.bars = bars.Progress(
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TimeRemainingColumn(),
            console=Console(stderr=True),
            speed_estimate_period=PACE_SECONDS,
            disable=not self._live,
        )
        trained = [job.trained for job in jobs]
        self._all = self.bars.add_task("", total=sum(job.updates for job in jobs), completed=sum(trained))
        self._bar_of = {
            job.number: self.bars.add_task(printable(job.title), total=job.updates, completed=done, visible=False)
            for job, done in zip(jobs, trained, strict=True)
        }

    def say(self, text: str) -> None:
        """A line that stays, above the bars."""
        if self._live:
            self.bars.console.print(printable(text), markup=False, highlight=False)
        elif not self._quiet:
            print(printable(text), flush=True)

    def update(self, job: Job, state: str, problem: str = "") -> None:
        """Note that a cell is "running", "done", "failed", or "waiting" to be tried again."""
        self._states[job.number] = state
        ending = {"running": "", "waiting": " is tried again"}.get(state, f" {state}")
        self.say(f"cell {job.number} of {self._total}: {job.title}{ending}{problem and f': {problem}'}")
        bar = self._bar_of[job.number]
        if state == "done":
            self.bars.update(bar, completed=job.updates)
        elif state == "failed":  # its updates are not waited for
            self.bars.update(bar, total=self.bars.tasks[bar].completed)
        self.bars.update(bar, visible=state == "running")

    def show(self, running: Iterable[Job]) -> None:
        """Read how far cells are, now and then."""
        now = time.monotonic()
        if now - self._read_at < REFRESH_SECONDS:
            return
        self._read_at = now
        for job in running:
            self.bars.update(self._bar_of[job.number], completed=job.trained)
            if self._states[job.number] == "waiting" and job.log.exists():
                self.update(job, "running")
        own = [self.bars.tasks[bar] for bar in self._bar_of.values()]
        completed, total = sum(bar.completed for bar in own), sum(bar.total or 0 for bar in own)
        self.bars.update(self._all, completed=completed, total=total, description=self.counts(), refresh=True)
        if not self._live and now - self._said_at > PLAIN_SECONDS:
            self._said_at = now
            self.say(f"{self.counts()}, {self.time_left()}")

    def count(self, state: str) -> int:
        return list(self._states.values()).count(state)

    def counts(self) -> str:
        return ", ".join(f"{self.count(state)} {state}" for state in ("done", "running", "waiting", "failed"))

    def time_left(self) -> str:
        seconds = self.bars.tasks[self._all].time_remaining
        return "ETA unknown" if seconds is None else f"ETA {timedelta(seconds=int(seconds))}"
