"""Jobs: cells for other processes, as JSON; `python -m hilp.bench.jobs` runs the one on its standard input.

Data sets do not travel: whoever runs a job loads the data and compares it with what the job says.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from hilp import runs
from hilp.bench import cells
from hilp.errors import FolderBusy, HilpError, TrainingDiverged, TrainingStopped, printable
from hilp.evaluation.rows import Row

BUSY_SECONDS = 120.0  # that a folder may be held by a process that is ending: one whose machine was lost, say
POLL_SECONDS = 0.1
SAVE_SECONDS = 300.0  # that jobs have to save themselves when the table is stopped
VISIBLE_CARDS = "CUDA_VISIBLE_DEVICES"
DRIVER = Path("/proc/driver/nvidia/gpus")  # has a folder for each card
GPU_SHARE = 0.9  # of a card's memory, divided among the processes on it


@dataclass(frozen=True)
class Job:
    """A cell for another process."""

    number: int  # of the cell in its table
    title: str
    text: str  # all that `run` needs, as JSON
    log: Path  # next to the run: written once the job runs, removed once its rows are kept
    trainings: Mapping[Path, int]  # folders that it trains in (the last name a pattern), and the updates of each

    @staticmethod
    def of(number: int, cell: cells.Cell, out: Path, command: str) -> Job:
        folder = cell.folder(out)
        log = folder.with_name(f"{folder.name}.{cells.file_name(cell.label)}.log")
        known = {"title": cell.title, "cell": cell.settings, "identity": cell.identity, "command": command}
        places = {"folder": str(Path.cwd()), "out": str(out), "log": str(log)}
        return Job(number, cell.title, json.dumps(known | places, allow_nan=False), log, cell.trainings(out))

    def start_log(self) -> None:
        """Make room for the log of a new try."""
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self.log.unlink(missing_ok=True)
        except OSError as error:
            raise HilpError(f"cannot write {self.log}: {error.strerror or error}") from error

    @property
    def updates(self) -> int:
        return sum(self.trainings.values())

    @property
    def trained(self) -> int:
        """Updates that the metrics of its runs end with; those on other machines may be seen late."""
        return sum(min(_last_step(run), most) for run, most in self.trainings.items())


class Ended(NamedTuple):
    """How a try ended."""

    job: Job
    rows: list[Row] | None  # None where it failed
    problem: str = ""
    final: bool = False  # another try would end the same way


# ---- in the process of a job -----------------------------------------------------------------------------------------


def run(text: str) -> str:
    """Run a job: its rows, or what went wrong, as JSON."""
    try:
        return json.dumps({"rows": _rows(json.loads(text))}, allow_nan=False)
    except (TrainingStopped, KeyboardInterrupt) as error:
        problem, final = str(error) or "stopped", False
    except TrainingDiverged as error:
        problem, final = f"stopped: {error}", True
    except HilpError as error:
        problem, final = str(error), True
    return json.dumps({"rows": None, "problem": printable(" ".join(problem.split())), "final": final})


def _rows(job: Mapping[str, Any]) -> list[Row]:
    try:
        os.chdir(job["folder"])  # paths are relative to where the command was given
        Path(job["log"]).parent.mkdir(parents=True, exist_ok=True)
        with open(job["log"], "a") as log:
            log.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    except OSError as error:
        raise HilpError(
            f"{socket.gethostname()} cannot write {job['log']} ({error.strerror}): all machines of a table need its "
            "folder"
        ) from error
    cell = cells.load(job["cell"])
    require_same(job, json.loads(json.dumps(cell.identity)))
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return cell.run(Path(job["out"]), quiet=True, command=job["command"])
        except FolderBusy:  # by the process of an earlier try that is ending
            if time.monotonic() > until:
                raise
            time.sleep(1.0)


def require_same(job: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Raise where this machine makes another cell of a job than was meant."""
    here, ours = socket.gethostname(), job["identity"]
    other = next((key for key in ("data_fingerprint", *ours, *found) if found.get(key) != ours.get(key)), None)
    if other is None:
        return
    values = f"{found.get(other)}, not {ours.get(other)}"
    if other == "data_fingerprint":
        source = job["cell"]["recipe"]["source"]
        raise HilpError(
            f"{source} is not the same data on {here} (fingerprint {values}): give all machines the same files"
        )
    raise HilpError(
        f"{job['title']} is not the same on {here} ({other}: {values}): install the same version of hilp on all "
        "machines"
    )


def _last_step(run: Path) -> int:
    """The update that the metrics of a run end with; 0 where there are none."""
    try:
        newest = max(run.parent.glob(f"{run.name}/{runs.METRICS}"), key=lambda path: path.stat().st_mtime)
        with open(newest, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            whole_lines = file.read().split(b"\n")[:-1]
        return int(json.loads(whole_lines[-1])["step"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return 0


def _stop_at_end_of_input() -> None:
    """Without the process that reads the rows there is nothing to train for."""
    with contextlib.suppress(OSError, ValueError):
        while os.read(sys.stdin.fileno(), 1 << 16):
            pass
    os.kill(os.getpid(), signal.SIGTERM)  # which training takes as a request to save and stop


# ---- processes of this machine ---------------------------------------------------------------------------------------


class Processes:
    """A process for each job, so many at once; losing one loses no other."""

    def __init__(self, count: int) -> None:
        self._count, self._cards = count, cards()
        on_a_card = math.ceil(count / max(1, len(self._cards)))
        # What one job has compiled another need not compile again; what the user has set overrides all of this.
        self._compiled = tempfile.TemporaryDirectory(prefix="hilp-compiled-", ignore_cleanup_errors=True)
        self._environment = {
            **limits(max(1, cores() // count), 1 / on_a_card),
            "JAX_COMPILATION_CACHE_DIR": self._compiled.name,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            **os.environ,
        }
        self._running: dict[subprocess.Popen[bytes], tuple[Job, IO[bytes], str | None]] = {}  # result, card

    @property
    def has_room(self) -> bool:
        """Whether one more job can start now."""
        return len(self._running) < self._count

    def start(self, job: Job) -> None:
        taken = [card for _, _, card in self._running.values()]
        card = min(self._cards, key=taken.count, default=None)
        result = tempfile.TemporaryFile()  # noqa: SIM115  # `_end` closes it
        with open(job.log, "ab") as log:
            process = subprocess.Popen(
                # -P: Python would look for packages in the current folder first, where the user may have anything.
                [sys.executable, "-P", "-m", "hilp.bench.jobs"],
                stdin=subprocess.PIPE,  # stays open: its end tells the job that this process is gone
                stdout=result,
                stderr=log,
                env=self._environment | ({} if card is None else {VISIBLE_CARDS: card}),
                start_new_session=True,  # Ctrl-C is for this process, which then lets jobs save themselves
            )
        self._running[process] = job, result, card
        with contextlib.suppress(BrokenPipeError):  # it is gone already, which `ended` will see
            assert process.stdin is not None
            process.stdin.write(job.text.encode() + b"\n")
            process.stdin.flush()

    def ended(self) -> list[Ended]:
        """Tries that ended since the last call; waits a moment where there are none."""
        found = [self._end(process) for process in list(self._running) if process.poll() is not None]
        if not found:
            time.sleep(POLL_SECONDS)
        return found

    def _end(self, process: subprocess.Popen[bytes]) -> Ended:
        (job, result, _), code = self._running.pop(process), process.returncode
        self._close(process)
        with result:
            result.seek(0)
            *_, answer, _ = b"", *result.read().split(b"\n")  # the last whole line
        if code == 0 and answer:
            return Ended(job, **json.loads(answer))
        if code < 0:
            return Ended(job, None, f"its process was ended by {signal.Signals(-code).name} ({job.log})")
        said = job.log.read_text(errors="replace") if job.log.exists() else ""
        *_, last = "", *said.strip().splitlines()
        return Ended(job, None, f"its process ended with code {code} ({job.log}: {last})")

    @staticmethod
    def _close(process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(BrokenPipeError):  # of what it did not read any more
            process.communicate()

    def stop(self) -> None:
        """Let what runs save itself, and end."""
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        until = time.monotonic() + SAVE_SECONDS
        with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            for process in self._running:
                process.wait(max(0.1, until - time.monotonic()))

    def close(self) -> None:
        """End what is left at once."""
        for process, (_, result, _) in self._running.items():
            process.kill()
            self._close(process)
            result.close()
        self._running.clear()
        self._compiled.cleanup()


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cards() -> list[str]:
    """NVIDIA's cards that this process may use, as `CUDA_VISIBLE_DEVICES` calls them."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if platforms and not {"cuda", "gpu"} & set(platforms.split(",")):
        return []
    if VISIBLE_CARDS in os.environ:
        return [name.strip() for name in os.environ[VISIBLE_CARDS].split(",") if name.strip()]
    return [str(number) for number in range(len(list(DRIVER.iterdir())))] if DRIVER.is_dir() else []


def limits(threads: int, share: float) -> dict[str, str]:
    """The environment of a process that has so many threads, and its share of the memory of a card."""
    names = ("PJRT_NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    own = dict.fromkeys(names, str(threads))
    return {**own, **({"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{GPU_SHARE * share:.3f}"} if share < 1 else {})}


if __name__ == "__main__":
    line = sys.stdin.readline()
    threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
    print(run(line), flush=True)
