"""What other packages bring along: methods, tasks and readers, found by the entry points of what is installed."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from hilp.errors import HilpError

GROUPS = "hilp"  # and a dot: the groups of entry points are hilp.methods, hilp.tasks and hilp.formats


@cache
def found(kind: Literal["methods", "tasks", "formats"]) -> dict[str, EntryPoint]:
    """The entry points of one group by name; nothing is imported for it."""
    return {entry.name: entry for entry in entry_points(group=f"{GROUPS}.{kind}")}


def load(entry: EntryPoint) -> Any:
    """The module or object behind an entry point; a package that is broken is one line."""
    try:
        return entry.load()
    except Exception as error:  # the code of another package, which can fail in any way
        package = f" of {entry.dist.name}" if entry.dist is not None else ""
        reason = " ".join(str(error).split()) or type(error).__name__
        raise HilpError(
            f"the plugin '{entry.name}'{package} cannot be imported from {entry.value}: {reason}"
        ) from error
