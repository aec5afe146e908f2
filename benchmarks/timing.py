"""What the benchmarks share: clocks, memory, random data in the paper's shapes, and a line for each result."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hilp.data.dataset import Dataset

Line = dict[str, Any]  # name, value, unit, ratio, against
OBSERVATION, ACTION = 29, 8  # AntMaze, the paper's goal-conditioned shapes


def best(run: Callable[[], Any], repeats: int = 1_000) -> float:
    """Seconds of the fastest of several runs; the others were disturbed."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def not_measured(unit: str, why: Exception) -> Line:
    """The line of a benchmark whose package is not installed here."""
    return {"value": None, "unit": unit, "ratio": None, "against": f"not measured: {why}"}


def peak_memory() -> int:
    """The most bytes this process has held, as Linux counts them (getrusage would count a parent's, too)."""
    try:
        status = Path("/proc/self/status").read_text()
        return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def python(*arguments: str) -> str:
    """What a Python process prints; it imports from this folder, too."""
    words = [sys.executable, *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=True, cwd=Path(__file__).parent).stdout


def random_data(rows: int) -> Dataset:
    """Noise in the shapes of AntMaze, in episodes of 1000 rows at most."""
    rng = np.random.default_rng(0)
    observations = rng.standard_normal((rows, OBSERVATION), np.float32)
    actions = 2.0 * rng.random((rows, ACTION), np.float32) - 1.0
    lengths = np.diff([*range(0, rows - 1, 1000), rows])
    return Dataset(observations, actions, lengths, name="noise")


def updates_per_second(config: Any, data: Dataset, first: int, steps: int, turns: int) -> dict[str, float]:
    """With data on the "device" and in a "stream" from disk, the best of some turns: they alternate as a pace drifts.

    first: updates before the clock starts, which compile and read the file once.
    """
    from hilp.training.options import TrainOptions
    from hilp.training.run import Run

    budgets = {"device": 2**62, "stream": 0}
    runs = {name: Run(config, data, TrainOptions(1, device_budget=budget)) for name, budget in budgets.items()}
    states = {name: run.advance(run.fresh, 0, first)[0] for name, run in runs.items()}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(turns):
        for name, run in runs.items():
            start = time.perf_counter()
            states[name], _ = run.advance(states[name], first + turn * steps, steps)
            seconds[name].append(time.perf_counter() - start)
    return {name: steps / min(times) for name, times in seconds.items()}
