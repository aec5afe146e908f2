"""How fast the same networks learn from data on the device, and from data that is streamed from disk."""

from __future__ import annotations

import time
from typing import Any

from hilp.data.dataset import Dataset


def updates_a_second(config: Any, data: Dataset, first: int, steps: int, turns: int) -> dict[str, float]:
    """Of "device" and "stream": the best of some turns, taken one after the other, because a machine's pace changes.

    first: updates before the clock starts, which compile and touch the file.
    """
    from hilp.training.run import Run

    runs = {"device": Run(config, data, device_budget=2**62), "stream": Run(config, data, device_budget=0)}
    states = {name: run.advance(run.fresh, 0, first)[0] for name, run in runs.items()}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(turns):
        for name, run in runs.items():
            start = time.perf_counter()
            states[name], _ = run.advance(states[name], first + turn * steps, steps)
            seconds[name].append(time.perf_counter() - start)
    return {name: steps / min(times) for name, times in seconds.items()}
