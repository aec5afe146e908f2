"""Kitchen: a robot arm among things to open, switch and move, by states or, as `visual-kitchen-mixed`, by a camera."""

from hilp.errors import HilpError, nearest
from hilp.tasks.kitchen.task import MAX_STEPS, NAMES, PARTS, Kitchen, simulator, task_of_file
from hilp.tasks.kitchen.visual import VisualKitchen
from hilp.tasks.rendering import VISUAL

__all__ = [
    "MAX_STEPS",
    "NAMES",
    "PARTS",
    "Kitchen",
    "VisualKitchen",
    "make",
    "names",
    "simulator",
    "takes",
    "task_of_file",
]


def names() -> list[str]:
    """The kitchens: all have the same things in them, and other subtasks count. Each can also be seen by a camera."""
    return [*sorted(NAMES), *(f"{VISUAL}{name}" for name in sorted(NAMES))]


def takes(name: str) -> bool:
    return name.removeprefix(VISUAL) in NAMES


def make(name: str, threads: int | None = None) -> Kitchen:
    """The kitchen of this name. `threads` simulate and render, one a core by default."""
    if not takes(name):
        raise HilpError(f"unknown kitchen '{name}': {nearest(name, names())}")
    kind = VisualKitchen if name.startswith(VISUAL) else Kitchen
    return kind(name, NAMES[name.removeprefix(VISUAL)], threads)
