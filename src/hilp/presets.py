"""Presets: (method, size, task) -> config, number of updates and size of the planning bank.

`paper` holds the values of the paper's tables; `laptop` is for two CPU cores and minutes (AntMaze: more). The values
live beside their method (`PRESETS` in its file); a method that says nothing about a size gets its Config's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hilp.errors import HilpError, nearest
from hilp.learning import contract, methods

SIZES = ("laptop", "paper")
STEPS = {"laptop": 8_000, "paper": 1_000_000}
HIGH_LEVEL = "iql"  # the method that learns to choose skills
BANK = {"laptop": 10_000, "paper": 50_000}


@dataclass(frozen=True)
class Preset:
    """A config and what the training loop needs beside it."""

    config: Any
    steps: int  # gradient updates
    bank: int  # states kept in the artifact for planning (N of Algorithm 2) and for reward prompts
    for_any_data: bool = False  # whether the updates are those of the size, not of a task that they were chosen for


def preset(method: str, size: str, task: str | None = None) -> Preset:
    """The preset of a method at a size, for data of a task where there are values of its own for it."""
    values, steps = _fitting(methods.presets(method), size, task)
    everywhere = _fitting(methods.presets(method), size, None)[1]
    return Preset(methods.config(method, **values), steps, BANK[size], for_any_data=steps == everywhere)


def high_level(size: str, task: str | None = None) -> Preset:
    """The preset of the policy over skills that a hierarchy trains."""
    values, steps = _fitting(methods.module(HIGH_LEVEL).HIGH_LEVEL_PRESETS, size, task)
    return Preset(methods.config(HIGH_LEVEL, **values), steps, bank=0)


def _fitting(parts: Sequence[contract.Preset], size: str, task: str | None) -> tuple[dict[str, Any], int]:
    """The values and the updates that presets of a method's file have for a size and a task."""
    if size not in SIZES:
        raise HilpError(f"unknown preset '{size}': {nearest(size, SIZES)}")
    name = re.split("[_:]", task)[0] if task else ""  # without a reward's name, without a map
    values: dict[str, Any] = {}
    steps = STEPS[size]
    for part in parts:
        if part.size in (None, size) and (not part.tasks or name in part.tasks):
            values |= part.values
            steps = part.steps or steps
    return values, steps
