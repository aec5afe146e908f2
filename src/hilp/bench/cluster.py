"""The machines of a Ray cluster: a task for each job. Ray schedules them; what is lost is tried again by the pool.

Ray's own retries are off: it would try again for ever what its memory monitor ends.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from typing import Any

from hilp.bench import jobs
from hilp.bench.jobs import Ended, Job
from hilp.errors import HilpError

WAIT_SECONDS = 0.5  # for the next task to end
CANCEL_SECONDS = 60.0
ANSWER_SECONDS = 10.0  # for the head of a cluster to answer at all


def require_ray() -> Any:
    """The package, where it is installed."""
    try:
        # Nothing is sent to Ray's makers by default; and its warning about how cards will be hidden is not for users.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray
    except ImportError as error:
        raise HilpError(f"--engine ray needs Ray ({error}): pip install 'hilp[ray]'") from error
    return ray


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
    own = jobs.limits(max(1, int(cpus)), gpus if 0 < gpus < 1 else 1.0)
    return own if gpus else {**own, "JAX_PLATFORMS": "cpu"}


class Cluster:
    """Tasks of a Ray cluster: the one at an address, or one that runs on this machine already, or one of our own."""

    has_room = True  # Ray queues tasks

    def __init__(self, address: str | None, cpus: float, gpus: float) -> None:
        self._ray = require_ray()
        self._address, self._cpus, self._gpus = address, cpus, gpus
        self._running: dict[Any, Job] = {}  # by Ray's reference to the result
        self._task: Any = None

    def start(self, job: Job) -> None:
        if self._task is None:
            self._task = self._connect()
        self._running[self._task.remote(job.text)] = job

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
        )(run)

    def ended(self) -> list[Ended]:
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=WAIT_SECONDS)
        return [self._end(result) for result in ready]

    def _end(self, result: Any) -> Ended:
        job = self._running.pop(result)
        try:
            return Ended(job, **json.loads(self._ray.get(result)))
        except self._ray.exceptions.RayTaskError as error:  # no mistake of the user's: those come back as a problem
            return Ended(job, None, f"{type(error.cause).__name__}: {' '.join(str(error.cause).split())[:200]}")
        except self._ray.exceptions.RayError as error:  # the process or its machine is gone
            return Ended(job, None, f"its process was lost ({type(error).__name__})")

    def stop(self) -> None:
        if not self._running:  # waiting for nothing, a Ray that is not connected yet would start a cluster
            return
        for result in self._running:
            self._ray.cancel(result, force=False)
        self._ray.wait(list(self._running), num_returns=len(self._running), timeout=CANCEL_SECONDS)

    def close(self) -> None:
        self._running.clear()
        if self._task is not None:
            self._ray.shutdown()  # ends the tasks of this driver, and a cluster that it has started itself
            self._task = None


def run(text: str) -> str:
    """In a process of Ray's."""
    # Ray cancels a task by this signal. Nodes that a shell started in its background ignore it, and so do their tasks.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return jobs.run(text)
