"""Mistakes that every reader and writer meets, and pieces of what is said about data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hilp.errors import HilpError, some


def reason(error: BaseException) -> str:
    """A library's error on one line, short enough to be a part of ours."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."


def first_few(values: Sequence[Any] | np.ndarray, limit: int = 5) -> str:
    """The first few of a list of numbers or names, and how many more there are."""
    return some(values, limit)  # type: ignore[arg-type]  # an array is as good


def path_of(source: Any) -> Path:
    """A path that the system can have, whether or not anything is there."""
    if not isinstance(source, str | os.PathLike):
        raise HilpError(f"cannot load data from a {type(source).__name__}: give a name, a path or a dict of arrays")
    try:
        path = Path(source)
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (ValueError, OSError, TypeError) as error:  # a null byte, a name too long
        raise HilpError(f"{str(source)[:80]!a} is not a path: {reason(error)}") from error
    require_utf8(str(path), "the path")
    return path


def require_utf8(name: str, what: str) -> None:
    """A name in no known encoding can neither be printed nor be noted beside the data."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise HilpError(f"{what} {name!a} is not written in UTF-8: rename it") from error


def size_text(count: int) -> str:
    """A number of bytes, for people."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
