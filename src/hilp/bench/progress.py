"""How the cells of a table stand: bars with a time that is left on a terminal, lines in a log."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from rich import progress as bars
from rich.console import Console

from hilp.bench.jobs import Job
from hilp.errors import printable

REFRESH_SECONDS = 1.0
PLAIN_SECONDS = 60.0  # between lines in a log
PACE_SECONDS = 3600.0  # of the past that the time left is estimated from


class Progress:
    """Counts cells and their updates; use it as a context."""

    def __init__(self, jobs: Sequence[Job], total: int, quiet: bool) -> None:
        """total: cells of the table, also those whose rows exist."""
        self._total, self._quiet = total, quiet
        self._states = {job.number: "waiting" for job in jobs}
        self._looked = self._told = time.monotonic()
        self._live = bool(jobs) and not quiet and sys.stderr.isatty()
        columns = (bars.TextColumn("{task.description}", markup=False), bars.BarColumn(), bars.MofNCompleteColumn())
        self._bars = bars.Progress(
            *columns,
            bars.TimeRemainingColumn(),
            console=Console(stderr=True),
            speed_estimate_period=PACE_SECONDS,
            disable=not self._live,
        )
        trained = [job.trained for job in jobs]
        self._all = self._bars.add_task("", total=sum(job.updates for job in jobs), completed=sum(trained))
        self._bar_of = {
            job.number: self._bars.add_task(printable(job.title), total=job.updates, completed=done, visible=False)
            for job, done in zip(jobs, trained, strict=True)
        }

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, text: str) -> None:
        """A line that stays, above the bars."""
        if self._live:
            self._bars.console.print(printable(text), markup=False, highlight=False)
        elif not self._quiet:
            print(printable(text), flush=True)

    def update(self, job: Job, state: str, problem: str = "") -> None:
        """Note that a cell is "running", "done", "failed", or "waiting" to be tried again."""
        self._states[job.number] = state
        ending = {"running": "", "waiting": " is tried again"}.get(state, f" {state}")
        self.say(f"cell {job.number} of {self._total}: {job.title}{ending}{problem and f': {problem}'}")
        if state == "done":
            self._bars.update(self._bar_of[job.number], completed=job.updates)
        elif state == "failed":  # its updates are not waited for
            self._bars.update(self._bar_of[job.number], total=self._bars.tasks[self._bar_of[job.number]].completed)
        self._bars.update(self._bar_of[job.number], visible=state == "running")

    def show(self, running: Iterable[Job]) -> None:
        """Read how far cells are, now and then."""
        now = time.monotonic()
        if now - self._looked < REFRESH_SECONDS:
            return
        self._looked = now
        for job in running:
            self._bars.update(self._bar_of[job.number], completed=job.trained)
            if self._states[job.number] == "waiting" and job.log.exists():
                self.update(job, "running")
        own = [self._bars.tasks[bar] for bar in self._bar_of.values()]
        completed, total = sum(bar.completed for bar in own), sum(bar.total or 0 for bar in own)
        self._bars.update(self._all, completed=completed, total=total, description=self.counts(), refresh=True)
        if not self._live and now - self._told > PLAIN_SECONDS:
            self._told = now
            self.say(f"{self.counts()}, {self.time_left()}")

    def counts(self) -> str:
        count = Counter(self._states.values())
        return ", ".join(f"{count[state]} {state}" for state in ("done", "running", "waiting", "failed"))

    def time_left(self) -> str:
        seconds = self._bars.tasks[self._all].time_remaining
        if seconds is None:
            return "ETA unknown"
        return f"ETA {int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"
