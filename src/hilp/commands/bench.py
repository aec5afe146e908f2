"""`hilp bench`: speed and memory on this machine, one JSON line each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tyro.conf import Positional

from hilp.commands import common


@dataclass(frozen=True)
class Flags:
    """Measure on this machine; every timing is a ratio against something measured in the same run."""

    what: Positional[Literal["speed", "data"]] = "speed"
    """speed: train_step, plan, graph, graph_step, act, act_goal, act_plan, act_numpy, act_onnx, start, memory and
    others; data: convert, stream (1.3 GB of disk)"""
    only: tuple[str, ...] = ()
    """names to measure (default: all)"""


def run(flags: Flags) -> int:
    from hilp.bench import data, speed

    for line in (speed if flags.what == "speed" else data).measure(flags.only):
        common.print_json(line)
    return 0
