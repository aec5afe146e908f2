"""Errors for people: what was wrong, where, and what to do, in one line."""

import difflib
import math
import os
import sys
import sysconfig
import traceback
from collections.abc import Collection, Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any

MOST = 10**15  # what is counted one by one never gets there
TRACEBACK = "--traceback"  # after any verb
LARGEST_SEED = 2**31 - 1  # that every generator takes


class HilpError(Exception):
    """A user's mistake. The command line prints its message on one line and exits with code 2."""

    def __init__(self, message: Any = "") -> None:
        super().__init__(printable(str(message)))  # it may quote a file, line breaks and terminal codes included


class PromptUnsupported(HilpError):
    """The method behind a policy has no rule for a prompt."""


class FolderBusy(HilpError):
    """Another process writes the folder."""


class TrainingStopped(HilpError):
    """Training was interrupted and saved."""


class TrainingDiverged(HilpError):
    """A loss became NaN or infinite. The last good checkpoint is kept."""


def require_count(what: str, value: Any, low: int = 1, most: int = MOST) -> int:
    """A whole number of things, numpy's as well, from `low` to `most`; NaN, 1.5, True and "3" are none."""
    if not is_count(value):
        raise HilpError(f"{what} must be a whole number of at least {low}, not {value!r:.60}")
    count = int(value)
    if count < low:
        raise HilpError(f"{what} must be at least {low}, not {_digits(count)}")
    if count > most:
        raise HilpError(f"{what} must be at most {most:,}, not {_digits(count)}")
    return count


def is_count(value: Any) -> bool:
    """Whether this is a whole number, numpy's as well; True is none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: Any, above: float = -math.inf) -> bool:
    """Whether this is a finite number, numpy's as well, above another one; True and "3" are none."""
    number: Any = value if not isinstance(value, bool) and isinstance(value, Real) else math.nan
    return bool(above < number < math.inf)


def is_one_of(value: Any, names: Collection[str]) -> bool:
    """Whether this is a text among others; of arrays and lists Python could not even ask."""
    return isinstance(value, str) and value in names


def require_switch(what: str, value: Any) -> bool:
    """True or False, numpy's as well; 1, "no" and None are neither."""
    if isinstance(value, bool) or type(value).__name__ == "bool":  # numpy's is called so, too
        return bool(value)
    raise HilpError(f"{what} is True or False, not {value!r:.60}")


def require_function(what: str, value: Any) -> None:
    """Something that can be called, or None where there is none."""
    if value is not None and not callable(value):
        raise HilpError(f"{what} must be a function, not {value!r:.60}")


def require_seed(value: Any, what: str = "seed") -> int:
    """A number that every generator of random numbers takes."""
    return require_count(what, value, 0, LARGEST_SEED)


def _digits(value: int) -> str:
    return str(value) if abs(value) < 10**60 else "a number of so many digits"  # Python does not write any number


def nearest(word: Any, options: Iterable[str], cutoff: float = 0.5) -> str:
    """The end of an error message about an unknown name: the closest right one, or what there is."""
    names = sorted(map(str, options))
    close = difflib.get_close_matches(str(word), names, n=1, cutoff=cutoff)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"choose from: {some(names)}" if names else "it has none"


def require_name(what: str, value: Any) -> str:
    """A text that names something."""
    if not isinstance(value, str) or not value:
        raise HilpError(f"{what} must be a name, not {value!r:.60}")
    return value


def require_known(name: Any, known: Collection[str], what: str) -> None:
    """Say which name comes closest where one is not known; what: the message before that."""
    if not is_one_of(name, known):
        raise HilpError(f"{what}: {nearest(name, known)}")


def some(names: Any, limit: int = 10) -> str:
    """A list or an array of names or numbers, the first few of many: a line that lists hundreds says nothing."""
    shown = ", ".join(str(name) for name in names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")


def counted(count: int, thing: str) -> str:
    """So many things: "1 row", "2 rows"."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def printable(text: str, keep: str = "") -> str:
    """A text that is safe to print: names of files may hold line breaks, terminal codes and bytes of any kind."""
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def say(text: str) -> None:
    """A line to the user besides what is printed as a result."""
    print(f"hilp: {printable(text)}", file=sys.stderr)


def reason(error: BaseException) -> str:
    """A library's error on one line, short enough to be a part of ours."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."


def users_line(error: BaseException) -> str | None:
    """The innermost line of the user's own code (a task, an actor, a plugin) that an error went through, if any did."""
    ours = [str(Path(__file__).parent), *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_file() and not frame.filename.startswith(tuple(ours))]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None


def users_mistake(error: BaseException) -> str | None:
    """An error of the user's own code on one line, with its place; None where it is none."""
    place, what = users_line(error), f"{type(error).__name__}: {reason(error)}"
    return None if place is None else f"{place} raised {what} ({TRACEBACK} shows how it got there)"


def path_of(source: Any) -> Path:
    """A path that the system can have, whether or not anything is there."""
    if not isinstance(source, str | os.PathLike):
        raise HilpError(f"cannot load data from a {type(source).__name__}: give a name, a path or a dict of arrays")
    path = place_of("a path", source)
    require_utf8(str(path), "the path")
    return path


def place_of(what: str, source: Any) -> Path:
    """A path to read from or to write to; an empty one would be the folder that one happens to be in."""
    if not isinstance(source, str | os.PathLike) or not isinstance(os.fspath(source), str):
        raise HilpError(f"{what} must be a path, not {source!r:.60}")
    if os.fspath(source) == "":
        raise HilpError(f"{what} is empty: name a file or a folder (. is the one you are in)")
    try:
        path = Path(source)
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (ValueError, OSError, TypeError) as error:  # a null byte, a name too long
        raise HilpError(f"{str(source)[:80]!a} is not a path: {reason(error)}") from error
    return path


def require_regular(path: Path) -> None:
    """What is read must be a file: a pipe or a device that is named like one would be waited for, for ever."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise HilpError(f"{path} is a pipe or a device, not a file: copy what it holds to a file")


def require_utf8(name: str, what: str) -> None:
    """A name in no known encoding can neither be printed nor be stored with the data."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise HilpError(f"{what} {name!a} is not written in UTF-8: rename it") from error


def size_text(count: int) -> str:
    """A number of bytes, for people."""
    power = min(max(0, int(count).bit_length() - 1) // 10, 3)
    return f"{count / 1024**power:.1f} {('KiB', 'MiB', 'GiB')[power - 1]}" if power else f"{count:.0f} B"
