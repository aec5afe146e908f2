"""Files of JSON lines that grow: what is appended together is there together or not at all.

A process that is killed or a disk that fills may still leave a torn last line: an object that ends too early. It is
left out when the file is read and cut off when it is added to, and one line says so. Any other damage is an error that
names its line: the file may be something else, which must not be cut.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hilp.errors import HilpError, printable
from hilp.storage.atomic import fsync_folder, write_bytes
from hilp.storage.locks import wait_for

Line = dict[str, Any]
# What may be left behind the place of an error where a text only stops: a piece of a word or of a number.
_WORDS = [word[:end] for word in ("true", "false", "null", "NaN", "-Infinity", "Infinity") for end in range(len(word))]
_SCRAP = re.compile("|".join([*_WORDS, r"[.]?", r"[eE][+-]?"]))


class _Content(NamedTuple):
    lines: list[tuple[int, bytes, Line]]  # number, bytes without the line's end, value
    end: int  # bytes of the file that are whole lines
    torn: int  # bytes behind them
    ended: bool  # whether the last line has its end


def read(path: str | os.PathLike[str]) -> list[tuple[int, Line]]:
    """The objects of a file, each with the number of its line."""
    try:
        with open(path, "rb") as file:
            wait_for(file.fileno(), shared=True)
            content = _parse(file.read(), path)
    except OSError as error:
        raise HilpError(f"cannot read {path}: {error.strerror or error}") from error
    if content.torn:
        _tell(path, "is left out")
    return [(number, value) for number, _, value in content.lines]


def require_writable(path: str | os.PathLike[str]) -> None:
    """Raise what `append` would raise, as far as can be told without writing anything."""
    path = Path(path)
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if path.is_dir():
        raise HilpError(f"cannot write {path}: it is a folder")
    if there != path and not there.is_dir():
        raise HilpError(f"cannot write {path}: {there} is no folder")
    if not os.access(there, os.W_OK):
        raise HilpError(f"cannot write {path}: {there} may not be written to")


def append(
    path: str | os.PathLike[str], values: Sequence[Line], instead_of: Callable[[Line], bool] | None = None
) -> None:
    """Add one line a value, all in one write that has reached the disk when this returns; on an error none is added.

    Lines that `instead_of` is true for go in the same step: the whole file is then written anew.
    """
    path = Path(path)
    added = "".join(json.dumps(value, allow_nan=False) + "\n" for value in values).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _opened(path) as handle:
            if not stat.S_ISREG(os.fstat(handle).st_mode):  # a terminal or a pipe keeps nothing
                os.write(handle, added)
                return
            content = _parse(_all(handle), path)
            if content.torn:
                os.ftruncate(handle, content.end)
                _tell(path, "was cut off")
            if instead_of is not None and any(instead_of(value) for _, _, value in content.lines):
                kept = [raw + b"\n" for _, raw, value in content.lines if not instead_of(value)]
                write_bytes(path, [b"".join(kept), added])
            else:
                _extend(handle, content.end, (b"" if content.ended else b"\n") + added)
    except OSError as error:
        raise HilpError(f"cannot write {path}: {error.strerror or error}") from error


def _extend(handle: int, end: int, added: bytes) -> None:
    """Write behind the end; what a full disk lets through of it is taken back."""
    try:
        written = 0
        while written < len(added):  # a full disk may take a part
            written += os.pwrite(handle, added[written:], end + written)
        os.fsync(handle)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, end)
        raise


def _parse(data: bytes, path: str | os.PathLike[str]) -> _Content:
    parts = data.split(b"\n")
    last = parts.pop()  # behind the last end of a line: empty, torn, or a line that an editor left without one
    lines: list[tuple[int, bytes, Line]] = []
    for number, raw in enumerate(parts, 1):
        try:
            if raw.strip():
                lines.append((number, raw, _value(raw)))
        except ValueError as error:
            raise HilpError(f"{path} line {number} is damaged: {error}") from None
    if not last.strip():
        return _Content(lines, len(data), 0, True)
    try:
        value = _value(last)
    except ValueError as error:
        if _ends_too_early(last):
            return _Content(lines, len(data) - len(last), len(last), True)
        raise HilpError(f"{path} line {len(parts) + 1} is damaged: {error}") from None
    return _Content([*lines, (len(parts) + 1, last, value)], len(data), 0, False)


def _value(raw: bytes) -> Line:
    try:
        value = json.loads(raw.decode())
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def _ends_too_early(raw: bytes) -> bool:
    """Whether a line that is no object is the beginning of one."""
    if not raw.startswith(b"{"):
        return False
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(raw)  # without a last character that is cut in two
        json.loads(text)
    except json.JSONDecodeError as error:
        rest = text[error.pos :].strip()
        if error.msg.startswith("Unterminated string"):  # told by where it begins
            return True
        if error.msg.startswith("Invalid \\uXXXX"):
            return re.fullmatch("u?[0-9a-fA-F]{0,4}", rest.removeprefix("\\")) is not None
        return _SCRAP.fullmatch(rest) is not None
    except (ValueError, RecursionError):
        pass
    return False


def _tell(path: str | os.PathLike[str], what: str) -> None:
    print(
        f"hilp: note: the last line of {printable(str(path))} is torn (a write was stopped) and {what}", file=sys.stderr
    )


def _all(handle: int) -> bytes:
    with open(os.dup(handle), "rb") as file:
        file.seek(0)
        return file.read()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A file to add to, made where it is missing; other processes wait until it is closed."""
    while True:
        made = not path.exists()
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            wait_for(handle)
            if not os.path.samestat(os.fstat(handle), os.stat(path)):
                continue  # written anew while we waited
            yield handle
            if made:
                fsync_folder(path.parent)
            return
        finally:
            os.close(handle)
