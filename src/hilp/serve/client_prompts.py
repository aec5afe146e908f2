"""Prompts as clients send them: a spec as JSON. Nothing of it is run, and no file of this machine is opened."""

import json
import re
from typing import Any

from hilp.errors import HilpError
from hilp.evaluation import setup

DEEPEST = 20  # specs in specs
COLUMNS = re.compile(r"\s*\w+\s*=\s*[-+.\deE]+\s*(,\s*\w+\s*=\s*[-+.\deE]+\s*)*")  # x=3,y=4


def loaded(text: str) -> Any:
    """What JSON says; a HilpError where it is none, or holds a number that is none."""

    def refuse(name: str) -> Any:
        raise HilpError(f"a message holds finite numbers, not {name}")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise HilpError(f"a message is JSON: {error}") from None


def require_safe(spec: Any, world: Any, depth: int = 0) -> None:
    """Raise where a spec would open a file of this machine, or holds too many others."""
    if depth > DEEPEST:
        raise HilpError(f"a prompt holds at most {DEEPEST} prompts in prompts")
    if isinstance(spec, list | tuple):
        for part in spec:
            require_safe(part, world, depth + 1) if isinstance(part, list | tuple | dict) else None
    if not isinstance(spec, dict):
        return
    goal = spec.get("goal")
    known = not isinstance(goal, str) or goal in getattr(world, "goal_names", ()) or setup.is_row(goal)
    if not known and not COLUMNS.fullmatch(str(goal)):
        raise HilpError(f"a goal of a client is a place, a state, row:0 or a name of the task, not '{goal:.40}'")
    if spec.get("kind") == "saved" or isinstance(spec.get("trajectory"), str):
        raise HilpError("a client opens no files: send the prompt itself")
    for value in spec.values():
        if isinstance(value, list | tuple | dict):
            require_safe(value, world, depth + 1)
