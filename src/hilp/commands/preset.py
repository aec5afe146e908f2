"""`hilp preset`: every value of a preset, with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from hilp.commands import common
from hilp.errors import HilpError, nearest


@dataclass(frozen=True)
class Flags:
    """Print every config value that a method is trained with, and where it comes from."""

    method: Annotated[Positional[str], arg(metavar="METHOD")]
    """name of a method"""
    task: Annotated[Positional[str], arg(metavar="TASK")] = ""
    """name of a task that the data is of; without one, the values for any data"""
    preset: str = "laptop"
    """laptop (two cores, minutes) or paper (the paper's tables)"""
    json: bool = False
    """print JSON"""


def run(flags: Flags) -> int:
    from hilp import presets, tasks
    from hilp.learning import methods, tables

    preset = presets.preset(flags.method, flags.preset, flags.task)
    if flags.task and not tasks.is_known(flags.task):
        own = [name for names in tables.FAMILIES.values() for name in names]  # also what is not installed
        if flags.task not in own:
            raise HilpError(f"unknown task '{flags.task}': {nearest(flags.task, {*own, *tasks.names()})}")
    values = {**methods.config_values(preset.config), "steps": preset.steps, "bank": preset.bank}
    sources = presets.sources(flags.method, flags.preset, flags.task)
    if flags.json:
        common.print_json({key: {"value": value, "from": sources[key]} for key, value in values.items()})
        return 0
    texts = [",".join(map(str, value)) if isinstance(value, tuple) else str(value) for value in values.values()]
    lines = [[key, text, sources[key]] for key, text in zip(values, texts, strict=True)]
    common.print_table(["key", "value", "from"], lines, title=f"{flags.method} {flags.task}".strip())
    if flags.task and sources == presets.sources(flags.method, flags.preset):
        print(f"{flags.method} has no values of its own for the task '{flags.task}': these are the values for any data")
    return 0
