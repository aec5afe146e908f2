"""Code of others: methods, tasks and readers of installed packages, by entry points; and files named by the user."""

import contextlib
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from hilp.errors import HilpError, nearest, reason, users_line

GROUPS = "hilp"  # and a dot: the groups of entry points are hilp.methods, hilp.tasks and hilp.formats
FAILURES = (Exception, GeneratorExit, SystemExit)  # of code that is imported; Ctrl-C is none


@cache
def found(kind: Literal["methods", "tasks", "formats"]) -> dict[str, EntryPoint]:
    """The entry points of one group by name; nothing is imported for it."""
    return {entry.name: entry for entry in entry_points(group=f"{GROUPS}.{kind}")}


def load(entry: EntryPoint) -> Any:
    """The module or object behind an entry point; a package that is broken is one line."""
    try:
        return entry.load()
    except FAILURES as error:  # the code of another package, which can fail in any way
        package = f" of {entry.dist.name}" if entry.dist is not None else ""
        raise HilpError(
            f"the plugin '{entry.name}'{package} cannot be imported from {entry.value}: {reason(error)}"
        ) from error


def names_code(text: str) -> bool:
    """Whether a text names something in a file of code: path/to/file.py:name."""
    path, colon, name = text.rpartition(":")
    return bool(colon) and path.endswith(".py") and name.isidentifier()


def file_of(text: str) -> Path | None:
    """The file that a text names, where it names something in a file of code."""
    return Path(text.rpartition(":")[0]).resolve() if names_code(text) else None


def from_file(text: str) -> Any:
    """What path/to/file.py:name names. It runs the file, so it is only for texts that the user typed."""
    given, _, name = text.rpartition(":")
    path = Path(given).resolve()
    if not path.is_file():
        raise HilpError(f"there is no file {given} to take '{name}' from")
    module = run_file(path, given)
    if not hasattr(module, name):
        known = [one for one in vars(module) if not one.startswith("_")]
        raise HilpError(f"{given} has no '{name}': {nearest(name, known)}")
    return getattr(module, name)


def run_file(path: Path, given: str) -> ModuleType:
    """A file as a module, run once in a process; given: what the user calls it."""
    key = f"{path.stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"  # files of one name are several modules
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, path)
        assert spec is not None and spec.loader is not None, "the path ends in .py"
        module = importlib.util.module_from_spec(spec)
        sys.modules[key] = module
        sys.path.insert(0, str(path.parent))  # as Python does for a script: its neighbours can be imported
        try:
            spec.loader.exec_module(module)
        except FAILURES as error:
            del sys.modules[key]
            raise HilpError(f"{given} cannot be run: {type(error).__name__}: {reason(error)}") from error
        finally:
            sys.path.remove(str(path.parent))
    return sys.modules[key]


@contextlib.contextmanager
def no_library_errors(name: str) -> Iterator[None]:
    """One line of what fails inside an installed environment, as with values that it cannot use.

    What fails in a file of the user's own is raised as it is: the command line says which line of theirs it was.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, HilpError) or users_line(error) is not None:
            raise
        raise HilpError(
            f"{name} fails in its own code: {type(error).__name__}: {reason(error)}: check the values it is made with"
        ) from error
