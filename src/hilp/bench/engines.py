"""Engines: many cells of a table at once. What is common to them: handing out, trying again, keeping, stopping."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from hilp.bench import worker
from hilp.bench.board import Board
from hilp.bench.cells import Keep, Missing
from hilp.bench.orders import LOG, ROWS, Order, Recipe, of_cells
from hilp.errors import HilpError, TrainingStopped, counted
from hilp.evaluation import rows as files

RETRIES = 2  # of a cell whose process was lost
LOOK_SECONDS = 0.1  # between two looks at processes
SAVE_SECONDS = 300.0  # that cells have to save themselves when the table is stopped
VISIBLE_CARDS = "CUDA_VISIBLE_DEVICES"
DRIVER = Path("/proc/driver/nvidia/gpus")  # has a folder a card
GPU_SHARE = 0.9  # of a card's memory, divided among the processes on it


class Ended(NamedTuple):
    """How a try ended."""

    order: Order
    rows: list[files.Row] | None  # None where it failed
    problem: str = ""
    final: bool = False  # another try would end the same way


class Engine(Protocol):
    """Where orders are carried out."""

    @property
    def room(self) -> bool:
        """Whether one more order can be taken now."""
        ...

    def submit(self, order: Order) -> None: ...
    def ended(self) -> list[Ended]:
        """Tries that ended since the last look; waits a moment where there are none."""
        ...

    def stop(self) -> None:
        """Let what runs save itself, and end."""
        ...

    def close(self) -> None:
        """End whatever is left, at once."""
        ...


def run(
    missing: Sequence[Missing],
    total: int,
    keep: Keep,
    *,
    engine: Engine,
    retries: int,
    out: Path,
    recipes: Mapping[str, Recipe],
    command: str,
    board: Board,
) -> None:
    """Run these cells on an engine, each as often as its process is lost but `retries` times again at most.

    A cell that cannot be run does not keep others from it; all that failed are told in the end.
    """
    orders = of_cells(missing, out, recipes, command)
    if not orders:
        engine.close()
        return
    waiting, running, tries = deque(orders), dict[str, Order](), Counter[str]()
    failed: dict[str, str] = {}
    done = 0
    try:
        with ended_as_by_ctrl_c(), board.showing(orders, total):
            while waiting or running:
                while engine.room and (order := _next(waiting, running)) is not None:
                    waiting.remove(order)
                    order.prepare()
                    engine.submit(order)
                    running[order.place] = order
                for order, rows, problem, final in engine.ended():
                    del running[order.place]
                    tries[order.place] += 1
                    if rows is not None:
                        if order.job == "cell":
                            keep(order.number, rows)
                            done += 1
                        order.clear()
                        board.done(order)
                    elif final or tries[order.place] > retries:
                        if order.job == "cell":  # without a V(s, g), cells train it themselves
                            failed[order.title] = problem
                        board.failed(order, problem)
                    else:
                        waiting.appendleft(order)
                        board.again(order, problem)
                board.show(set(running))
    except HilpError:  # the disk is full, say: what runs has not failed
        engine.stop()
        raise
    except KeyboardInterrupt:
        board.say(f"stopping: {counted(len(running), 'cell')} will be saved (once more stops at once)")
        engine.stop()
        raise TrainingStopped(
            f"stopped with {done} of {counted(len(missing), 'missing cell')} done: give the command again to go on"
        ) from None
    finally:
        engine.close()
    if failed:
        title, problem = next(iter(failed.items()))
        more = "" if len(failed) == 1 else f" ({', '.join(failed)})"
        raise HilpError(
            f"{counted(len(failed), 'cell')} of {len(missing)} failed{more}; {title}: {problem} (rows of others are "
            "kept: give the command again to go on)"
        )


@contextlib.contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """A scheduler's end and a closed terminal stop a table as Ctrl-C does: cells save themselves."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    numbers = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup's, say
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _next(waiting: Iterable[Order], running: Mapping[str, Order]) -> Order | None:
    """The first order that trains in no folder in which another trains now."""
    taken = {folder for order in running.values() for folder in order.trainings}
    return next((order for order in waiting if not taken & order.trainings.keys()), None)


# ---- processes of this machine ---------------------------------------------------------------------------------------


class Local:
    """A process a cell, so many at once; losing one loses no other."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._cards = cards()
        on_a_card = math.ceil(jobs / max(1, len(self._cards)))
        # What one cell has compiled another need not compile again; what the user has set goes before all of this.
        self._compiled = tempfile.TemporaryDirectory(prefix="hilp-compiled-", ignore_cleanup_errors=True)
        self._environment = {
            **limits(max(1, cores() // jobs), 1 / on_a_card),
            "JAX_COMPILATION_CACHE_DIR": self._compiled.name,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            **os.environ,
        }
        self._running: dict[subprocess.Popen[bytes], tuple[Order, str | None]] = {}  # and the card that it may use

    @property
    def room(self) -> bool:
        return len(self._running) < self._jobs

    def submit(self, order: Order) -> None:
        # -P: Python would look for packages in the current folder first, where the user may have anything.
        words = [sys.executable, "-P", "-m", worker.__name__]
        taken = [card for _, card in self._running.values()]
        card = min(self._cards, key=taken.count, default=None)
        environment = self._environment if card is None else {**self._environment, VISIBLE_CARDS: card}
        with open(order.at / LOG, "ab") as log:
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
            )  # a session of its own: Ctrl-C is for this process, which then asks the others to save
        self._running[process] = (order, card)
        with contextlib.suppress(BrokenPipeError):  # it is gone already, which `ended` will see
            stdin(process).write(order.text().encode() + b"\n")
            stdin(process).flush()

    def ended(self) -> list[Ended]:
        found = [self._end(process) for process in list(self._running) if process.poll() is not None]
        if not found:
            time.sleep(LOOK_SECONDS)
        return found

    def _end(self, process: subprocess.Popen[bytes]) -> Ended:
        order, _ = self._running.pop(process)
        close_input(process)
        return outcome(order, process.returncode)

    def stop(self) -> None:
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        until = time.monotonic() + SAVE_SECONDS
        try:
            for process in self._running:
                process.wait(max(0.1, until - time.monotonic()))
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            self.close()

    def close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait()
            close_input(process)
        self._running.clear()
        self._compiled.cleanup()


def stdin(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdin is not None
    return process.stdin


def close_input(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError):  # of what it did not read any more
        stdin(process).close()


def outcome(order: Order, code: int) -> Ended:
    """What came of an order whose process ended with this code."""
    if code == worker.DONE:
        return Ended(order, files.read_rows(order.at / ROWS))
    words = order.last_words().removeprefix("hilp: ").removeprefix("error: ")
    if code in worker.FINAL:
        return Ended(order, None, words, final=True)
    lost = (
        f"its process was ended by {signal.Signals(-code).name}" if code < 0 else f"its process ended with code {code}"
    )
    return Ended(order, None, f"{lost} ({order.at / LOG}{': ' + words if words and code > 0 else ''})")


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
