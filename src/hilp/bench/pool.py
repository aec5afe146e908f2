"""Filling a table: cells whose rows are missing run one after the other here, or as jobs in a pool."""

from __future__ import annotations

import signal
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from hilp.bench.cells import Cell
from hilp.bench.cluster import Cluster
from hilp.bench.jobs import Job, Processes
from hilp.bench.progress import Progress
from hilp.errors import HilpError, TrainingStopped, counted, printable
from hilp.evaluation import rows as files
from hilp.evaluation.rows import Row
from hilp.signals import on_stop
from hilp.storage import lines

Keep = Callable[[int, list[Row]], None]  # takes the rows of a cell, by its number
Engine = Processes | Cluster  # where jobs run


def fill(
    cells: Sequence[Cell],
    file: Path,
    out: Path,
    command: str,
    *,
    quiet: bool,
    engine: Engine | None = None,
    retries: int = 0,
) -> list[Row]:
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
        jobs = [Job.of(number, cell, out, command) for number, cell in missing.items()]
        run_jobs(jobs, engine, retries, Progress(jobs, len(cells), quiet), keep)
    else:
        for number, cell in missing.items():
            if not quiet:
                print(printable(f"cell {number} of {len(cells)}: {cell.title}"), flush=True)
            keep(number, cell.run(out, quiet=quiet, command=command))
    return [row for rows in kept.values() for row in rows or ()]


def run_jobs(jobs: Sequence[Job], engine: Engine, retries: int, progress: Progress, keep: Keep) -> None:
    """Run jobs on an engine; one whose process is lost is tried again, `retries` times at most.

    A job that fails does not keep others from running; all that failed are named in the end.
    """
    waiting, tries = deque(jobs), Counter[int]()
    running: dict[int, Job] = {}
    failed: dict[str, str] = {}  # the problem, by title
    try:
        with on_stop(signal.default_int_handler), progress.bars:
            while waiting or running:
                while engine.has_room and (job := next_job(waiting, running.values())) is not None:
                    waiting.remove(job)
                    job.start_log()
                    engine.start(job)
                    running[job.number] = job
                for job, rows, problem, final in engine.ended():
                    del running[job.number]
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
    _require_none(failed, len(jobs))


def _require_none(failed: Mapping[str, str], count: int) -> None:
    for title, problem in failed.items():
        others = "" if len(failed) == 1 else f" ({', '.join(failed)})"
        raise HilpError(
            f"{counted(len(failed), 'cell')} of {count} failed{others}; {title}: {problem} (rows of others are kept: "
            "give the command again to go on)"
        )


def next_job(waiting: Collection[Job], running: Collection[Job]) -> Job | None:
    """The first job that trains in no folder in which another trains now: lines may share a policy."""
    taken = {folder for job in running for folder in job.trainings}
    return next((job for job in waiting if not taken & job.trainings.keys()), None)
