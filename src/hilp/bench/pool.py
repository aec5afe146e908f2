"""Filling a table: cells whose rows are missing run one after the other here, or as jobs in a pool."""

from __future__ import annotations

import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hilp.bench import cells
from hilp.bench.cells import Cell, Table
from hilp.bench.cluster import Cluster
from hilp.bench.entries import Entry
from hilp.bench.jobs import Ended, Job, Processes
from hilp.bench.progress import Progress
from hilp.errors import HilpError, TrainingStopped, counted, printable, some
from hilp.evaluation import rows as files
from hilp.evaluation.rows import Row
from hilp.signals import on_stop
from hilp.storage import lines

Keep = Callable[[int, list[Row]], None]  # takes the rows of a cell, by its number
Engine = Processes | Cluster  # where jobs run
Run = Callable[[Mapping[int, Cell], int, Keep], None]  # of all missing cells of a table with so many


def fill(
    table: Table,
    entries: Mapping[str, Entry],
    recipes: Iterable[dict[str, Any]],
    seeds: Sequence[int],
    *,
    file: Path,
    run: Run,
) -> list[Row]:
    """Run the cells that the file of rows lacks; all rows of this table. Rows are added to the file here only."""
    numbered = dict(enumerate(_cells(table, entries, recipes, seeds), 1))
    lines.require_writable(file)  # before hours of training
    known = files.read_rows(file) if file.is_file() else []
    kept = {number: cell.complete(known) for number, cell in numbered.items()}

    def keep(number: int, rows: list[Row]) -> None:
        identity = numbered[number].identity  # an interrupted write may have left some of its rows
        files.append_rows(file, rows, instead_of=lambda row: row.get("cell") == identity)
        kept[number] = rows

    run({number: cell for number, cell in numbered.items() if kept[number] is None}, len(numbered), keep)
    return [row for rows in kept.values() for row in rows or ()]


def _cells(
    table: Table, entries: Mapping[str, Entry], recipes: Iterable[dict[str, Any]], seeds: Sequence[int]
) -> list[Cell]:
    """All cells of a table, checked."""
    sources = [(recipe, *cells.load_source(table.kind, recipe)) for recipe in recipes]
    made = [
        cells.CELLS[table.kind](table, label, entry, recipe, seed, data, world)
        for recipe, data, world in sources
        for seed in seeds
        for label, entry in entries.items()
    ]
    for cell in made:
        cell.check()
    return _adaptable(made)


def _adaptable(made: Sequence[Cell]) -> list[Cell]:
    """Not those whose prompts are to be searched for without skills around them."""
    lacking = {cell.label: cell.entry.method for cell in made if not cell.is_adaptable}
    if lacking and all(cell.label in lacking for cell in made if cell.entry.adapt):
        raise HilpError(f"{some(list(lacking.values()))}: the skill is the goal itself, there is none around it to try")
    return [cell for cell in made if cell.label not in lacking]


def run_here(missing: Mapping[int, Cell], total: int, keep: Keep, *, out: Path, command: str, quiet: bool) -> None:
    """Cells one after the other in this process."""
    for number, cell in missing.items():
        if not quiet:
            print(printable(f"cell {number} of {total}: {cell.title}"), flush=True)
        keep(number, cell.run(out, quiet=quiet, command=command))


def run_in_pool(
    missing: Mapping[int, Cell],
    total: int,
    keep: Keep,
    *,
    out: Path,
    command: str,
    quiet: bool,
    engine: Engine,
    retries: int,
) -> None:
    """Cells as jobs of an engine; a job whose process is lost is tried again, `retries` times at most.

    A cell that fails does not keep others from running; all that failed are named in the end.
    """
    jobs = [Job.of(number, cell, out, command) for number, cell in missing.items()]
    progress = Progress(jobs, total, quiet)
    pool = Pool(jobs, engine, retries, progress, keep)
    try:
        with on_stop(signal.default_int_handler), progress:
            pool.run()
    except HilpError:  # the disk is full, say: what runs has not failed
        engine.stop()
        raise
    except KeyboardInterrupt:
        progress.say(f"stopping: {counted(len(pool.running), 'cell')} will be saved (once more stops at once)")
        engine.stop()
        raise TrainingStopped(
            f"stopped with {pool.done} of {counted(len(jobs), 'missing cell')} done: give the command again to go on"
        ) from None
    finally:
        engine.close()
    if pool.failed:
        title, problem = next(iter(pool.failed.items()))
        more = "" if len(pool.failed) == 1 else f" ({', '.join(pool.failed)})"
        raise HilpError(
            f"{counted(len(pool.failed), 'cell')} of {len(jobs)} failed{more}; {title}: {problem} (rows of others are "
            "kept: give the command again to go on)"
        )


class Pool:
    """Jobs that wait, run, are done or failed."""

    def __init__(self, jobs: Sequence[Job], engine: Engine, retries: int, progress: Progress, keep: Keep) -> None:
        self.waiting, self.running = deque(jobs), dict[int, Job]()
        self.failed: dict[str, str] = {}  # the problem, by title
        self.done = 0
        self._tries = Counter[int]()
        self._engine, self._retries, self._progress, self._keep = engine, retries, progress, keep

    def run(self) -> None:
        while self.waiting or self.running:
            while self._engine.has_room and (job := self._next()) is not None:
                self._start(job)
            for ended in self._engine.ended():
                self._settle(ended)
            self._progress.show(self.running.values())

    def _next(self) -> Job | None:
        """The first job that trains in no folder in which another trains now: lines may share a policy."""
        taken = {folder for job in self.running.values() for folder in job.trainings}
        return next((job for job in self.waiting if not taken & job.trainings.keys()), None)

    def _start(self, job: Job) -> None:
        try:
            job.log.parent.mkdir(parents=True, exist_ok=True)
            job.log.unlink(missing_ok=True)  # of an earlier try
        except OSError as error:
            raise HilpError(f"cannot write {job.log}: {error.strerror or error}") from error
        self.waiting.remove(job)
        self._engine.start(job)
        self.running[job.number] = job

    def _settle(self, ended: Ended) -> None:
        job, problem = ended.job, ended.problem
        del self.running[job.number]
        self._tries[job.number] += 1
        if ended.rows is not None:
            self._keep(job.number, ended.rows)
            self.done += 1
            job.log.unlink(missing_ok=True)
            self._progress.update(job, "done")
        elif ended.final or self._tries[job.number] > self._retries:
            self.failed[job.title] = problem
            self._progress.update(job, "failed", problem)
        else:
            self.waiting.appendleft(job)
            self._progress.update(job, "waiting", problem)
