"""The machines of a Ray cluster: an order a task. Ray finds a place for each; what is lost is tried again by us.

Ray's own retries are off: it would try again for ever what its memory monitor ends.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from typing import Any

from hilp.bench.engines import Ended, limits, outcome
from hilp.bench.orders import LOG, ROWS, Order
from hilp.bench.worker import DONE, work
from hilp.errors import HilpError

WAIT_SECONDS = 0.5  # for the next task to end
CANCEL_SECONDS = 60.0
ANSWER_SECONDS = 10.0  # for the head of a cluster to answer at all


def require_ray() -> Any:
    """The package, where it is installed."""
    try:
        # Nothing is sent to Ray's makers unasked; and its warning about how cards will be hidden one day is not for us.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray
    except ImportError as error:
        raise HilpError(f"--engine ray needs Ray ({error}): pip install 'hilp[ray]'") from error
    return ray


def require_answer(address: str | None) -> None:
    """Raise where nobody listens at host:port: Ray itself would try for a quarter of an hour."""
    host, _, port = (address or "").rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise HilpError(f"no Ray cluster at {address}: {error}") from error


def environment(cpus: float, gpus: float) -> dict[str, str]:
    """Of a task. Ray shows a task no card that it did not ask for, but JAX would still look for one."""
    own = limits(max(1, int(cpus)), gpus if 0 < gpus < 1 else 1.0)
    return own if gpus else {**own, "JAX_PLATFORMS": "cpu"}


class Cluster:
    """Tasks of a Ray cluster: the one at an address, or one that runs on this machine already, or one of our own."""

    def __init__(self, address: str | None, cpus: float, gpus: float) -> None:
        self._ray = require_ray()
        self._address, self._cpus, self._gpus = address, cpus, gpus
        self._running: dict[Any, Order] = {}  # by what Ray calls the result
        self._task: Any = None

    @property
    def room(self) -> bool:
        return True  # Ray keeps them until there is

    def submit(self, order: Order) -> None:
        if self._task is None:
            self._task = self._connected()
        self._running[self._task.remote(order.text())] = order

    def _connected(self) -> Any:
        ray = self._ray
        heard = signal.getsignal(signal.SIGTERM)
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
            signal.signal(signal.SIGTERM, heard)  # Ray takes it for itself, and lets no cell be saved
        have = ray.cluster_resources()
        for what, asked in (("CPU", self._cpus), ("GPU", self._gpus)):
            if asked and not any(node["Resources"].get(what, 0) >= asked for node in ray.nodes() if node["Alive"]):
                raise HilpError(
                    f"no machine of this Ray cluster has {asked:g} {what}s for a cell (all together have "
                    f"{have.get(what, 0):g}): ask for less with --{what.lower()}s-per-cell"
                )
        # A process a task: the memory of a card is given back only when a process ends.
        return ray.remote(
            num_cpus=self._cpus,
            num_gpus=self._gpus,
            max_retries=0,
            max_calls=1,
            runtime_env={"env_vars": environment(self._cpus, self._gpus)},
        )(carry_out)

    def ended(self) -> list[Ended]:
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=WAIT_SECONDS)
        return [self._end(result) for result in ready]

    def _end(self, result: Any) -> Ended:
        order = self._running.pop(result)
        try:
            code, text = self._ray.get(result)
        except self._ray.exceptions.RayTaskError as error:  # no mistake of the user's: those come back as a code
            return Ended(order, None, f"{type(error.cause).__name__}: {' '.join(str(error.cause).split())[:200]}")
        except self._ray.exceptions.RayError as error:  # the process or its machine is gone
            return Ended(order, None, f"its process was lost ({type(error).__name__})")
        if code == DONE:  # rows come back with the result: folders of other machines may be seen late
            (order.at / ROWS).parent.mkdir(parents=True, exist_ok=True)
            (order.at / ROWS).write_text(text)
        else:
            (order.at / LOG).write_text(text)
        return outcome(order, code)

    def stop(self) -> None:
        if not self._running:  # asked to wait for nothing, a Ray that is not connected yet would start a cluster
            return
        for result in self._running:
            self._ray.cancel(result, force=False)
        self._ray.wait(list(self._running), num_returns=len(self._running), timeout=CANCEL_SECONDS)

    def close(self) -> None:
        self._running.clear()
        if self._task is not None:
            self._ray.shutdown()  # ends the tasks of this driver, and a cluster that it has started itself
            self._task = None


def carry_out(text: str) -> tuple[int, str]:
    """In a process of Ray's: how an order ended, and its rows or what was wrong."""
    # Ray cancels a task by this signal. Nodes that a shell started in its background are deaf to it, and so are tasks.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    order = Order.read(text)
    code, said = work(order)
    return code, (order.at / ROWS).read_text() if code == DONE else said
