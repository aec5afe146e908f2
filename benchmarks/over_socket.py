"""How long a robot waits for an action over the socket of `hilp serve`, at the size of the quickstart."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from acting import quickstart_policy
from hilp.errors import HilpError
from hilp.serve import sockets
from timing import Line, not_measured

REQUESTS, TURNS, ROBOTS = 5_000, 10, 8
SERVE = "import sys; from hilp.cli import main; sys.exit(main(sys.argv[1:]))"


def serve() -> Line:
    """p50 of a goal's action through the socket, server and robot in processes of their own; p99 beside it."""
    try:
        sockets.require("serve", "websockets", "msgpack")
    except HilpError as error:
        return not_measured("us", error)
    from hilp.serve.client import Client

    policy, observation = quickstart_policy(), np.zeros(2, np.float32)
    prompt, asked = policy.goal(np.ones(2)), {"observation/state": observation}
    with tempfile.TemporaryDirectory(prefix="hilp-bench-") as folder, contextlib.ExitStack() as stack:
        policy.save(folder)
        address = stack.enter_context(served(Path(folder)))
        robots = [stack.enter_context(Client(address)) for _ in range(ROBOTS)]
        here, ours, together = percentiles(
            lambda: policy.act(observation, prompt),
            lambda: robots[0].infer(asked),
            lambda: [robot.receive() for robot in [one.send(asked) for one in robots]],
        )
    return {
        "value": round(ours[0], 1),
        "unit": "us",
        "ratio": round(ours[0] / here[0], 2),
        "against": f"`policy.act` in the same process, {here[0]:.0f} us (p50 both; p99: {ours[1]:.0f} and "
        f"{here[1]:.0f} us; {ROBOTS} robots that ask at once: {together[0]:.0f} us, p99 {together[1]:.0f} us)",
        "p99_us": round(ours[1], 1),
        "act_p99_us": round(here[1], 1),
        "together_us": round(together[0], 1),
        "together_p99_us": round(together[1], 1),
    }


def percentiles(*ways: Callable[[], Any]) -> list[list[float]]:
    """p50 and p99 of the microseconds that each way takes, measured in turns because a machine's pace changes."""
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(TURNS):
        for run, seconds in zip(ways, times, strict=True):
            run()  # not measured: the other ways have had the caches
            for _ in range(REQUESTS // TURNS):
                start = time.perf_counter()
                run()
                seconds.append(time.perf_counter() - start)
    return [(1e6 * np.percentile(seconds, [50, 99])).tolist() for seconds in times]


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server in a process of its own, whose robots are sent to a goal."""
    words = [sys.executable, "-c", SERVE, "serve", str(folder), "--goal", "1,1", "--plan", "0", "--port", "0", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["served at"]
        finally:
            process.terminate()
