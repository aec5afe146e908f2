"""Readers: one file a format here, and those that other packages bring or a process registers.

A reader of your own is a function `read(source, **options)` of a path that gives a dict of arrays (as `hilp.load` takes
one), a Dataset or a Source. Where its module, or what is registered, also says `recognises(path)`, files that are none
of ours are recognised by content; else users name the format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hilp import plugins
from hilp.errors import HilpError


@dataclass(frozen=True)
class Reader:
    """A reader of another package or of this process."""

    read: Callable[..., Any]
    recognises: Callable[[Path], bool] | None = None


_registered: dict[str, Reader] = {}


def register(name: str, read: Callable[..., Any], recognises: Callable[[Path], bool] | None = None) -> None:
    """Make a format known by name in this process: what reads it and, where content tells, what recognises it."""
    if not callable(read):
        raise HilpError(f"format '{name}' must be registered with a function that reads it, not {read!r:.60}")
    _registered[name] = Reader(read, recognises)


def names() -> list[str]:
    """The formats that are not ours."""
    return [*_registered, *(name for name in plugins.found("formats") if name not in _registered)]


def reader(name: str) -> Reader:
    """The reader of one of them; an entry point leads to a function or to a module with `read`."""
    if name in _registered:
        return _registered[name]
    found = plugins.load(plugins.found("formats")[name])
    read = found if callable(found) else getattr(found, "read", None)
    if read is None:
        raise HilpError(f"the plugin '{name}' is no format: it has no 'read'")
    return Reader(read, getattr(found, "recognises", None))


def recognised(path: Path) -> str | None:
    """The format of these that a file or folder has, by its content."""
    for name in names():
        recognises = reader(name).recognises
        if recognises is not None and recognises(path):
            return name
    return None
