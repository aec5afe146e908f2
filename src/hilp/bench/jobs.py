"""Jobs: cells for other processes, as JSON; `python -m hilp.bench.jobs JOB` runs one.

Data sets do not travel: whoever runs a job loads the data and compares it with what the job says.
"""

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
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hilp import runs
from hilp.bench import cells
from hilp.errors import FolderBusy, HilpError, TrainingDiverged, TrainingStopped, printable
from hilp.evaluation.rows import Row
from hilp.tasks.base import cores

BUSY_SECONDS = 120.0  # that a folder may be held by a process that is ending: one whose machine was lost, say
SAVE_SECONDS = 300.0  # that jobs have to save themselves when the table is stopped
CANCEL_SECONDS = 60.0
ANSWER_SECONDS = 10.0  # for the head of a cluster to answer at all
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
    def of(number: int, cell: "cells.Cell") -> "Job":
        log = cell.folder.with_name(f"{cell.folder.name}.{cells.file_name(cell.label)}.log")
        known = {"title": cell.title, "cell": cell.settings, "identity": cell.identity}
        places = {"folder": str(Path.cwd()), "log": str(log)}
        return Job(number, cell.title, json.dumps(known | places, allow_nan=False), log, cell.trainings)

    @property
    def updates(self) -> int:
        return sum(self.trainings.values())

    @property
    def trained(self) -> int:
        """Updates that the metrics of its runs end with; those on other machines may be seen late."""
        return sum(min(_last_step(run), most) for run, most in self.trainings.items())


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
            return cell.run()
        except FolderBusy:  # by the process of an earlier try that is ending
            if time.monotonic() > until:
                raise
            time.sleep(1.0)


def require_same(job: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Raise where this machine makes another cell of a job than was meant."""
    ours, here = job["identity"], socket.gethostname()
    for key in ("data_fingerprint", *ours, *found):
        values = f"{found.get(key)}, not {ours.get(key)}"
        if found.get(key) != ours.get(key) and key == "data_fingerprint":
            what = f"{job['cell']['recipe']['source']} is not the same data on {here}"
            raise HilpError(f"{what} (fingerprint {values}): give all machines the same files")
        if found.get(key) != ours.get(key):
            version = "install the same version of hilp on all machines"
            raise HilpError(f"{job['title']} is not the same on {here} ({key}: {values}): {version}")


def _last_step(run: Path) -> int:
    """The update that the metrics of a run end with; 0 where there are none."""
    try:
        newest = max(run.parent.glob(f"{run.name}/{runs.METRICS}"), key=lambda path: path.stat().st_mtime)
        *_, last, _ = newest.read_bytes().split(b"\n")  # the last whole line
        return int(json.loads(last)["step"])
    except (OSError, ValueError, KeyError, TypeError):
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
        self.slots, self._cards = count, cards()
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
        self._threads = ThreadPoolExecutor(count)  # one waits for each process
        self._running: dict[subprocess.Popen[bytes], str | None] = {}  # and the card of each

    def submit(self, job: Job) -> Future[str]:
        taken = [*self._running.values()]
        card = min(self._cards, key=taken.count, default=None)
        result = tempfile.TemporaryFile()  # noqa: SIM115  # `_answer` closes it
        with open(job.log, "ab") as log:
            process = subprocess.Popen(
                # -P: Python would look for packages in the current folder first, where the user may have anything.
                [sys.executable, "-P", "-m", "hilp.bench.jobs", job.text],
                stdin=subprocess.PIPE,  # stays open: its end tells the job that this process is gone
                stdout=result,
                stderr=log,
                env=self._environment | ({} if card is None else {VISIBLE_CARDS: card}),
                start_new_session=True,  # Ctrl-C is for this process, which then lets jobs save themselves
            )
        self._running[process] = card
        return self._threads.submit(self._answer, process, result, job.log)

    def _answer(self, process: subprocess.Popen[bytes], result: IO[bytes], log: Path) -> str:
        """Wait for a process, and raise where it is lost."""
        with result:
            code = process.wait()
            process.communicate()
            del self._running[process]
            result.seek(0)
            *_, answer, _ = b"", *result.read().split(b"\n")  # the last whole line
        if code == 0 and answer:
            return answer.decode()
        if code < 0:
            raise HilpError(f"its process was ended by {signal.Signals(-code).name} ({log})")
        *_, last = "", *log.read_text(errors="replace").strip().splitlines()
        raise HilpError(f"its process ended with code {code} ({log}: {last})")

    def stop(self) -> None:
        """Let what runs save itself, and end."""
        running, until = list(self._running), time.monotonic() + SAVE_SECONDS
        for process in running:
            process.send_signal(signal.SIGTERM)
        with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            for process in running:
                process.wait(max(0.1, until - time.monotonic()))

    def close(self) -> None:
        """End what is left at once."""
        for process in list(self._running):
            process.kill()
        self._threads.shutdown()
        self._compiled.cleanup()


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


# ---- machines of a Ray cluster: a task for each job ------------------------------------------------------------------
# Ray schedules them; what is lost is tried again by the pool. Ray's own retries are off: it would try again for ever
# what its memory monitor ends.


def require_answer(address: str | None) -> None:
    """Raise where nothing listens at host:port: Ray itself would try for a quarter of an hour."""
    host, _, port = (address or "").rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise HilpError(f"no Ray cluster at {address}: {error}") from error


def environment(cpus: float, gpus: float) -> dict[str, str]:
    """Of a task. Ray shows a task no card that it did not ask for, but JAX would still look for one."""
    own = limits(max(1, int(cpus)), gpus or 1.0)
    return own if gpus else {**own, "JAX_PLATFORMS": "cpu"}


class Cluster:
    """Tasks of a Ray cluster: the one at an address, or one that runs on this machine already, or one of our own."""

    slots = math.inf  # Ray queues tasks

    def __init__(self, address: str | None, cpus: float, gpus: float) -> None:
        # Nothing is sent to Ray's makers by default; and its warning about how cards will be hidden is not for users.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError as error:
            raise HilpError(f"--engine ray needs Ray ({error}): pip install 'hilp[ray]'") from error
        self._ray: Any = ray
        self._address, self._cpus, self._gpus = address, cpus, gpus
        self._running: dict[Any, Any] = {}  # Ray's reference to a result, by its future
        self._task: Any = None

    def submit(self, job: Job) -> Future[str]:
        if self._task is None:
            self._task = self._connect()
        result = self._task.remote(job.text)
        future: Future[str] = result.future()
        self._running[future] = result
        future.add_done_callback(lambda done: self._running.pop(done, None))
        return future

    def _connect(self) -> Any:
        """Join the cluster; the remote function that runs a job."""
        ray, before = self._ray, signal.getsignal(signal.SIGTERM)
        refusals = (ConnectionError, RuntimeError, ValueError, getattr(ray.exceptions, "AuthenticationError", OSError))
        try:
            ray.init(address=self._address, log_to_driver=False, configure_logging=False)
        except refusals as error:
            where = f"at {self._address}" if self._address else "on this machine"
            raise HilpError(
                f"cannot join a Ray cluster {where} (if it has a token, ~/.ray/auth_token must be the same on all "
                f"machines): {' '.join(str(error).split())[:200]}"
            ) from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray takes it for itself, and lets no cell be saved
        for what, needed in (("CPU", self._cpus), ("GPU", self._gpus)):
            if needed and not any(node["Resources"].get(what, 0) >= needed for node in ray.nodes() if node["Alive"]):
                raise HilpError(
                    f"no machine of this Ray cluster has {needed:g} {what}s for a cell (all together have "
                    f"{ray.cluster_resources().get(what, 0):g}): ask for less with --{what.lower()}s-per-cell"
                )
        # A process for each task: the memory of a card is given back only when a process ends.
        return ray.remote(
            num_cpus=self._cpus,
            num_gpus=self._gpus,
            max_retries=0,
            max_calls=1,
            runtime_env={"env_vars": environment(self._cpus, self._gpus)},
        )(run_in_task)

    def stop(self) -> None:
        running = list(self._running.values())
        for result in running:
            self._ray.cancel(result, force=False)
        if running:  # waiting for nothing, a Ray that is not connected yet would start a cluster
            self._ray.wait(running, num_returns=len(running), timeout=CANCEL_SECONDS)

    def close(self) -> None:
        self._running.clear()
        if self._task is not None:
            self._ray.shutdown()  # ends the tasks of this driver, and a cluster that it has started itself
            self._task = None


def run_in_task(text: str) -> str:
    """In a process of Ray's."""
    # Ray cancels a task by this signal. Nodes that a shell started in its background ignore it, and so do their tasks.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return run(text)


def answer(ended: Future[str]) -> tuple[list[Row] | None, str, bool]:
    """The rows of a try, or None, what went wrong, and whether another try would end the same way."""
    error = ended.exception()
    if error is None:
        found = json.loads(ended.result())
        return found["rows"], found.get("problem", ""), found.get("final", False)
    if isinstance(error, HilpError):
        return None, str(error), False
    if (cause := getattr(error, "cause", None)) is not None:  # of a task, and no mistake of the user's
        return None, f"{type(cause).__name__}: {' '.join(str(cause).split())[:200]}", False
    return None, f"its process was lost ({type(error).__name__})", False  # or its machine


if __name__ == "__main__":
    threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
    print(run(sys.argv[1]), flush=True)
