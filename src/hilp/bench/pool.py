"""Filling a table: cells whose rows are missing run one after the other here, or as jobs in a pool.

How jobs stand is shown by bars with a time that is left on a terminal, by lines in a log.
"""

import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from concurrent import futures
from datetime import timedelta
from pathlib import Path

from rich import progress as bars
from rich.console import Console

from hilp import storage
from hilp.bench.cells import Cell
from hilp.bench.jobs import Cluster, Job, Processes, answer
from hilp.errors import HilpError, TrainingStopped, counted, printable
from hilp.evaluation import rows as files
from hilp.evaluation.rows import Row
from hilp.storage import lines
from hilp.training.progress import on_stop

WAIT_SECONDS = 0.5  # for the next job to end
REFRESH_SECONDS = 1.0
PLAIN_SECONDS = 60.0  # between lines in a log
PACE_SECONDS = 3600.0  # of the past that the time left is estimated from
Keep = Callable[[int, list[Row]], None]  # takes the rows of a cell, by its number
Engine = Processes | Cluster  # where jobs run


def fill(cells: Sequence[Cell], file: Path, quiet: bool, engine: Engine | None = None, retries: int = 0) -> list[Row]:
    """Run the cells that the file of rows lacks; all rows of this table. Rows are added to the file here only."""
    lines.require_writable(file)  # before hours of training
    known = files.read_rows(file) if file.is_file() else []
    kept = {number: cell.complete(known) for number, cell in enumerate(cells, 1)}
    missing = {number: cell for number, cell in enumerate(cells, 1) if kept[number] is None}

    def keep(number: int, rows: list[Row]) -> None:
        identity = missing[number].identity  # an interrupted write may have left some of its rows
        files.append_rows(file, rows, instead_of=lambda row: row.get("cell") == identity)
        kept[number] = rows

    if engine is not None:
        jobs = [Job.of(number, cell) for number, cell in missing.items()]
        run_jobs(jobs, engine, retries, Progress(jobs, len(cells), quiet), keep)
    else:
        for number, cell in missing.items():
            if not quiet:
                print(printable(f"cell {number} of {len(cells)}: {cell.title}"), flush=True)
            keep(number, cell.run())
    return [row for rows in kept.values() for row in rows or ()]


def run_jobs(jobs: Sequence[Job], engine: Engine, retries: int, progress: "Progress", keep: Keep) -> None:
    """Run jobs on an engine; one whose process is lost is tried again, `retries` times at most.

    A job that fails does not keep others from running; all that failed are named in the end.
    """
    waiting, tries = deque(jobs), Counter[int]()
    running: dict[futures.Future[str], Job] = {}
    failed: dict[str, str] = {}  # the problem, by title
    try:
        with on_stop(signal.default_int_handler), progress.bars:
            while waiting or running:
                while len(running) < engine.slots and (job := next_job(waiting, running.values())) is not None:
                    waiting.remove(job)
                    with storage.told(f"cannot write {job.log}"):  # make room for the log of a new try
                        job.log.parent.mkdir(parents=True, exist_ok=True)
                        job.log.unlink(missing_ok=True)
                    running[engine.submit(job)] = job
                futures.wait(running, WAIT_SECONDS, futures.FIRST_COMPLETED)
                for future in [one for one in running if one.done()]:
                    job, (rows, problem, final) = running.pop(future), answer(future)
                    tries[job.number] += 1
                    state = "waiting"
                    if rows is not None:
                        keep(job.number, rows)
                        job.log.unlink(missing_ok=True)
                        state = "done"
                    elif final or tries[job.number] > retries:
                        failed[job.title] = problem
                        state = "failed"
                    else:
                        waiting.appendleft(job)
                    progress.update(job, state, problem)
                progress.show(running.values())
    except HilpError:  # the disk is full, say: what runs has not failed
        engine.stop()
        raise
    except KeyboardInterrupt:
        progress.say(f"stopping: {counted(len(running), 'cell')} will be saved (once more stops at once)")
        engine.stop()
        done = f"{progress.count('done')} of {counted(len(jobs), 'missing cell')} done"
        raise TrainingStopped(f"stopped with {done}: give the command again to go on") from None
    finally:
        engine.close()
    for title, problem in failed.items():
        others = "" if len(failed) == 1 else f" ({', '.join(failed)})"
        raise HilpError(
            f"{counted(len(failed), 'cell')} of {len(jobs)} failed{others}; {title}: {problem} (rows of others are "
            "kept: give the command again to go on)"
        )


def next_job(waiting: Collection[Job], running: Collection[Job]) -> Job | None:
    """The first job that trains in no folder in which another trains now: lines may share a policy."""
    taken = {folder for job in running for folder in job.trainings}
    return next((job for job in waiting if not taken & job.trainings.keys()), None)


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

    def show(self, running: Collection[Job]) -> None:
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
        whole = self.bars.tasks[self._all]
        if whole.completed >= (whole.total or 0) and self.count("running"):
            return "all updates are done, cells evaluate"  # for which there is no pace
        seconds = whole.time_remaining
        return "ETA unknown" if seconds is None else f"ETA {timedelta(seconds=int(seconds))}"
