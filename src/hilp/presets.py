"""Presets: (method, size, task) -> config, number of updates and size of the planning bank.

`paper` holds the values of the paper's tables; `laptop` is for two CPU cores and minutes (AntMaze: more). The values
are in the file of their method (`PRESETS`); a method that has none for a size gets its Config's own.
"""

import re
from dataclasses import dataclass
from typing import Any

from hilp.errors import is_one_of, require_known, require_name
from hilp.learning import methods, tables

SIZES = ("laptop", "paper")
STEPS = {"laptop": 8_000, "paper": 1_000_000}
HIGH_LEVEL = "iql"  # the method that learns to choose skills
PAPER_HIERARCHY_STEPS = 500_000  # also where other tables of the paper have more for the same method
BANK = {"laptop": 10_000, "paper": 50_000}


@dataclass(frozen=True)
class Preset:
    """A config and what the training loop needs with it."""

    config: Any
    steps: int  # gradient updates
    bank: int  # states kept in the artifact for planning (N of Algorithm 2) and for reward prompts
    for_any_data: bool = False  # whether the updates are those of the size, not of a task that they were chosen for


def preset(method: str, size: str, task: str | None = None) -> Preset:
    """The preset of a method at a size, for data of a task where there are values of its own for it."""
    table = methods.presets(require_name("a method", method))
    values, steps = _merged(table, size, task)
    return Preset(methods.config(method, **values), steps, BANK[size], steps == _merged(table, size, None)[1])


def high_level(size: str, task: str | None = None) -> Preset:
    """The preset of the policy over skills that a hierarchy trains."""
    values, steps = _merged(methods.module(HIGH_LEVEL).HIGH_LEVEL_PRESETS, size, task)
    return Preset(methods.config(HIGH_LEVEL, **values), steps, bank=0)


def under_high_level(method: str, size: str, task: str | None = None) -> Preset:
    """The preset of the skills of a hierarchy, or of the flat policy that it is compared with."""
    values, steps = _merged(getattr(methods.module(method), "SKILL_PRESETS", methods.presets(method)), size, task)
    return Preset(methods.config(method, **values), PAPER_HIERARCHY_STEPS if size == "paper" else steps, BANK[size])


def sources(method: str, size: str, task: str | None = None) -> dict[str, str]:
    """Where each value of a preset comes from: the method's default, its name, the size, or a family of tasks."""
    found = dict.fromkeys(sorted(methods.keys(method)), f"default of {method}")
    found |= dict.fromkeys(methods.MODULES[method][1], f"the name {method}") | {"steps": size, "bank": size}
    for entry, values in layers(methods.presets(method), size, task):
        found |= dict.fromkeys(values, entry)
    return found


def layers(table: tables.Table, size: str, task: str | None) -> list[tuple[str, dict[str, Any]]]:
    """The entries of a table that hold for a size and a task, those that go before others last."""
    require_known(size, SIZES, f"unknown preset '{size}'")
    task = None if task is None else require_name("a task", task)
    name = re.split("[_:]", task)[0] if task else ""  # without a reward's name, without a map
    found = [(entry, table[entry]) for entry in ("both", size) if entry in table]
    for entry, values in table.items():
        entry_size, _, families = entry.partition(" ")
        tasks = [known for family in families.split("+") if family for known in tables.FAMILIES[family]]
        if entry_size in ("both", size) and name in tasks:
            found.append((entry, values))
    return found


def _merged(table: tables.Table, size: str, task: str | None) -> tuple[dict[str, Any], int]:
    """The config values and the updates of a table for a size and a task."""
    merged: dict[str, Any] = {"steps": STEPS[size]} if is_one_of(size, SIZES) else {}
    for _, values in layers(table, size, task):
        merged |= values
    return merged, merged.pop("steps")
