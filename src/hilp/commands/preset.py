"""`hilp preset`: every value of a preset, with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from hilp.commands import common


@dataclass(frozen=True)
class Flags:
    """Print every config value that a method is trained with, and where it comes from."""

    method: Annotated[Positional[str], arg(metavar="METHOD")]
    """name of a method"""
    task: Annotated[Positional[str], arg(metavar="TASK")] = ""
    """name of a task that the data is of; without one, the values for any data"""
    size: Literal["laptop", "paper"] = "laptop"
    """laptop: for two CPU cores and minutes; paper: the values of the paper's tables"""
    json: bool = False
    """print JSON"""


def run(flags: Flags) -> int:
    from hilp import presets
    from hilp.learning import methods

    preset = presets.preset(flags.method, flags.size, flags.task)
    values = {**methods.config_values(preset.config), "steps": preset.steps, "bank": preset.bank}
    sources = presets.sources(flags.method, flags.size, flags.task)
    if flags.json:
        common.print_json({key: {"value": value, "from": sources[key]} for key, value in values.items()})
        return 0
    lines = [[key, _text(value), sources[key]] for key, value in values.items()]
    common.print_table(["key", "value", "from"], lines, title=f"{flags.method} {flags.task}".strip())
    if flags.task and sources == presets.sources(flags.method, flags.size):
        print(f"{flags.method} has no values of its own for the task '{flags.task}': these are the values for any data")
    return 0


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
