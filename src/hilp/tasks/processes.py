"""Episodes in other processes, each with some of them; `python -m hilp.tasks.processes` is one of these.

Gymnasium's `AsyncVectorEnv` has a process for each environment, which runs the user's script again, and waits for ever
for one that was killed. A process here steps as many episodes as it gets, imports what they need and no more, and ends
with the one that started it, the only one that can talk to it.

What a task shares out is a group: `begin` takes a list of each argument with a value an episode, `step` the numbers of
episodes and their actions; both give arrays by name with a row an episode. `number` is the episode that a group is at.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper

from hilp import plugins
from hilp.errors import HilpError, reason, users_mistake
from hilp.tasks.base import changed

Seen = dict[str, np.ndarray]  # of episodes, by name, a row each
PATIENCE = 5.0  # seconds that a process may take to end by itself


# ---- this side -------------------------------------------------------------------------------------------------------


Load = Callable[[], Callable[[], Any]]  # called once in a process: it gives what makes a group


@contextlib.contextmanager
def shared(world: Any, count: int, load: Load, file: Path | None = None) -> Iterator[Any]:
    """The same task with its episodes in so many other processes, for as long as this lasts; 1: in this one.

    file: of the user's, whose code makes environments.
    """
    if count < 2:
        yield changed(world, crew=None)
        return
    crew = Crew(world.name, count, load, file)
    try:
        yield changed(world, crew=crew)
    finally:
        crew.close()


class InWorker(Exception):
    """How an error came about in another process, for --traceback."""


class Worker:
    """Another process that steps environments."""

    def __init__(self) -> None:
        self.left: list[int] = []  # groups that it still has, and that are no longer used
        self.connection, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(
                # -P: packages are found where this process finds them, in the current folder only if it is one ('').
                [sys.executable, "-P", "-m", "hilp.tasks.processes", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
                start_new_session=True,  # Ctrl-C is for this process, which then ends them
            )

    def send(self, *request: Any) -> None:
        left, self.left = self.left, []
        self.connection.send((*request, left))


class Crew:
    """So many processes for the episodes of a task, started when it has some."""

    def __init__(self, name: str, count: int, load: Load, file: Path | None) -> None:
        self.name, self._count, self._load, self._file = name, count, load, file
        self._workers: list[Worker] = []
        self._groups = 0  # of episodes, so far
        self.close = weakref.finalize(self, _end, self._workers, PATIENCE)

    def group(self, size: int) -> "There":
        """So many episodes, shared out among the processes."""
        while len(self._workers) < min(self._count, size):
            self._start()
        self._groups += 1
        return There(self, self._groups, min(self._count, size))

    def drop(self, key: int) -> None:
        for worker in self._workers:
            worker.left.append(key)

    def _start(self) -> None:
        worker = Worker()
        self._workers.append(worker)
        try:
            worker.connection.send(self._file)
            worker.connection.send(CloudpickleWrapper(self._load))  # type: ignore[arg-type]  # any function
        except BrokenPipeError:
            raise self._lost() from None
        except Exception as error:  # each object refuses in its own way
            raise HilpError(
                f"what makes {self.name} cannot be sent to other processes ({reason(error)}): let a function in a file "
                "make it, or step it in this process"
            ) from error

    def ask(self, do: str, key: int, requests: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """What some processes, by their number, answer to what they are to do with their part of a group."""
        try:
            for number, arguments in requests.items():
                self._workers[number].send(do, key, arguments)
            return {number: self._workers[number].connection.recv() for number in requests}
        except (EOFError, OSError, IndexError):  # also where they are ended
            raise self._lost() from None
        except BaseException:  # an interrupt leaves connections out of step
            _end(self._workers, 0)
            raise

    def _lost(self) -> HilpError:
        """The error of a process that is no longer there; the others are ended."""
        until = time.monotonic() + PATIENCE
        while all(one.process.poll() is None for one in self._workers) and time.monotonic() < until:
            time.sleep(0.01)
        code = next((one.process.returncode for one in self._workers if one.process.returncode is not None), 0)
        _end(self._workers, 0)
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return HilpError(
            f"a process that steps {self.name} {how}: give the command again, with fewer workers if memory ran out"
        )


class There:
    """A group of episodes, every so many-th of them in the same process."""

    def __init__(self, crew: Crew, key: int, shares: int) -> None:
        self._crew, self._key, self._shares = crew, key, shares
        weakref.finalize(self, crew.drop, key)

    def begin(self, *lists: Sequence[Any]) -> Seen:
        share = {one: tuple(given[one :: self._shares] for given in lists) for one in range(self._shares)}
        return self._asked("begin", np.arange(len(lists[0])), share)

    def step(self, numbers: np.ndarray, actions: np.ndarray) -> Seen:
        whose = numbers % self._shares
        own = {one: whose == one for one in np.unique(whose).tolist()}
        steps = {one: (numbers[mine] // self._shares, actions[mine]) for one, mine in own.items()}
        return self._asked("step", numbers, steps)

    def _asked(self, do: str, numbers: np.ndarray, requests: Mapping[int, tuple[Any, ...]]) -> Seen:
        answers, whose = self._crew.ask(do, self._key, requests), numbers % self._shares
        failed = [(at * self._shares + one, *how) for one, (at, *how) in answers.items() if at is not None]
        if failed:  # the first of them, as in one process
            _, message, trace = min(failed)
            raise HilpError(message) from InWorker(f"\n{trace}")
        found: Seen = {}
        for one, (_, seen) in answers.items():
            for name, rows in seen.items():
                found.setdefault(name, np.empty((len(numbers), *rows.shape[1:]), rows.dtype))[whose == one] = rows
        return found


def _end(workers: list[Worker], patience: float) -> None:
    """End processes: by themselves, once nobody talks to them, or by force."""
    ended = [workers.pop() for _ in range(len(workers))]
    for one in ended:
        one.connection.close()
    until = time.monotonic() + patience
    for one in ended:
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.process.wait(max(0.0, until - time.monotonic()))
            continue
        one.process.kill()
        one.process.wait()


# ---- in the process of a worker --------------------------------------------------------------------------------------


Answer = tuple[None, Seen] | tuple[int, str, str]  # what was seen; or what failed, as `_failure` has it


def _serve(connection: Connection) -> None:
    groups: dict[int, Any] = {}
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    make, broken = None, None
    try:
        if file := connection.recv():
            plugins.run_file(file, str(file))
        make = connection.recv()()
    except EOFError:
        return
    except BaseException as error:  # of the user's code
        broken = _failure(0, error)
    # A thread listens: where nobody talks to this process any more, it ends, also in the middle of a step.
    threading.Thread(target=_listen, args=(connection, requests), daemon=True).start()
    while (request := requests.get()) is not None:
        connection.send(broken or _answer(make, groups, *request))


def _answer(
    make: Any, groups: dict[int, Any], do: str, key: int, arguments: tuple[Any, ...], left: list[int]
) -> Answer:
    for one in left:
        groups.pop(one, None)
    group = groups[key] = groups.get(key) or make()
    try:
        return None, getattr(group, do)(*arguments)
    except BaseException as error:  # an environment may even ask Python to end
        return _failure(group.number, error)


def _failure(number: int, error: BaseException) -> tuple[int, str, str]:
    """The episode that an error came from, its line for the user, and its traceback."""
    known = str(error) if isinstance(error, HilpError) else users_mistake(error)
    return number, known or f"{type(error).__name__}: {reason(error)}", "".join(traceback.format_exception(error))


def _listen(connection: Connection, requests: "queue.SimpleQueue[Any]") -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            requests.put(connection.recv())
    requests.put(None)
    time.sleep(PATIENCE / 2)
    os._exit(1)


if __name__ == "__main__":
    with contextlib.suppress(OSError):
        os.dup2(2, 1)  # what environments print must not end up in the rows of --json
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        _serve(Connection(int(sys.argv[1])))
