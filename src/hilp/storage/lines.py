"""What several processes write: files of JSON lines that grow, and folders that one of them locks at a time.

What is appended together is there together or not at all.

A process that is killed or a disk that fills may still leave a torn last line: an object that ends too early. It is
left out when the file is read and cut off when it is added to, and one line says so. Any other damage is an error that
names its line: the file may be something else, which must not be cut.
"""

import codecs
import contextlib
import json
import os
import re
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from hilp.errors import FolderBusy, HilpError, say
from hilp.storage.atomic import fsync_folder, told, write_bytes

if sys.platform != "win32":  # which goes without locks
    import fcntl

LOCK = ".lock"  # in the folder, as long as a process writes it
Line = dict[str, Any]
AnyPath = str | os.PathLike[str]
# What may be left behind the place of an error where a text only stops: a piece of a word or of a number.
_WORDS = [word[:end] for word in ("true", "false", "null", "NaN", "-Infinity", "Infinity") for end in range(len(word))]
_SCRAP = re.compile("|".join([*_WORDS, r"[.]?", r"[eE][+-]?"]))


class _Content(NamedTuple):
    lines: list[tuple[int, bytes, Line]]  # number, bytes without the line's end, value
    end: int  # bytes of the file that are whole lines
    torn: bool  # whether there are others behind them
    ended: bool  # whether the last line has its end


def read(path: AnyPath) -> list[tuple[int, Line]]:
    """The objects of a file, each with the number of its line."""
    with told(f"cannot read {path}"), open(path, "rb") as file:
        _wait_for(file.fileno(), shared=True)
        content = _parse(file.read(), path)
    if content.torn:
        _tell(path, "is left out")
    return [(number, value) for number, _, value in content.lines]


def require_writable(path: AnyPath) -> None:
    """Raise what `append` would raise, as far as can be told without writing anything."""
    path = Path(path)
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if path.is_dir():
        raise HilpError(f"cannot write {path}: it is a folder")
    if there != path and not there.is_dir():
        raise HilpError(f"cannot write {path}: {there} is no folder")
    if not os.access(there, os.W_OK):
        raise HilpError(f"cannot write {path}: {there} may not be written to")


def append(path: AnyPath, values: Sequence[Line], instead_of: Callable[[Line], bool] | None = None) -> None:
    """Add one line a value, all in one write that has reached the disk when this returns; on an error none is added.

    Lines that `instead_of` is true for go in the same step: the whole file is then written anew.
    """
    path = Path(path)
    added = "".join(json.dumps(value, allow_nan=False) + "\n" for value in values).encode()
    with told(f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _opened(path) as handle:
            if not stat.S_ISREG(os.fstat(handle).st_mode):  # a terminal or a pipe keeps nothing
                os.write(handle, added)
                return
            with open(handle, "rb", closefd=False) as file:
                content = _parse(file.read(), path)
            if content.torn:
                os.ftruncate(handle, content.end)
                _tell(path, "was cut off")
            if instead_of is not None and any(instead_of(value) for _, _, value in content.lines):
                kept = [raw + b"\n" for _, raw, value in content.lines if not instead_of(value)]
                write_bytes(path, [*kept, added])
            else:
                _extend(handle, content.end, (b"" if content.ended else b"\n") + added)


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


def _parse(data: bytes, path: AnyPath) -> _Content:
    parts = data.split(b"\n")  # behind the last end of a line: nothing, a torn line, or one that an editor left so
    lines: list[tuple[int, bytes, Line]] = []
    for number, raw in enumerate(parts, 1):
        try:
            if raw.strip():
                lines.append((number, raw, _value(raw)))
        except ValueError as error:
            if number == len(parts) and _ends_too_early(raw):
                return _Content(lines, len(data) - len(raw), torn=True, ended=True)
            raise HilpError(f"{path} line {number} is damaged: {error}") from None
    return _Content(lines, len(data), torn=False, ended=not parts[-1].strip())


def _value(raw: bytes) -> Line:
    try:
        value = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        known = {UnicodeDecodeError: "it is not UTF-8 text", RecursionError: "it is nested too deeply"}
        raise ValueError(known.get(type(error), f"it is not JSON ({error})")) from None
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


def _tell(path: AnyPath, what: str) -> None:
    say(f"note: the last line of {path} is torn (a write was stopped) and {what}")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A file to add to, made where it is missing; other processes wait until it is closed."""
    made = not path.exists()
    handle = _lock(path, wait=True)
    try:
        yield handle
        if made:
            fsync_folder(path.parent)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(folder: Path, what: str, wait: bool = False) -> Iterator[None]:
    """Keep other processes from writing this folder (it is made where it is missing); the lock ends with the process.

    `what` is told to a second writer, e.g. the command. wait: for the first, instead of an error.
    """
    if sys.platform == "win32":
        yield
        return
    made, path = not folder.exists(), folder / LOCK
    with told(f"cannot write {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        handle = _lock(path, wait)
        now = datetime.now(UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        about = {"pid": os.getpid(), "host": socket.gethostname(), "since": now, "what": what}
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(about).encode(), 0)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if _is_same(handle, path):
                path.unlink()
        os.close(handle)
        if made:
            with contextlib.suppress(OSError):
                folder.rmdir()  # where nothing came of it


def _lock(path: Path, wait: bool) -> int:
    """A file that is open and ours alone, made where it is missing."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _wait_for(handle, wait=wait)
            if _is_same(handle, path):
                return handle
        except BlockingIOError:
            busy = f"{path.parent} is being written by {_holder(handle)}: wait for it or choose another folder"
            os.close(handle)
            raise FolderBusy(busy) from None
        os.close(handle)  # the one before has just removed it, or written it anew


def _holder(handle: int) -> str:
    try:
        about = json.loads(os.pread(handle, 1 << 16, 0))
        text = f"process {about['pid']} on {about['host']} since {about['since']} ({about['what']})"
        return " ".join(text.split())
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"


def _is_same(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


def _wait_for(handle: int, shared: bool = False, wait: bool = True) -> None:
    """Wait until an open file or folder is ours; closing it ends that, and so does the end of the process."""
    if sys.platform != "win32":
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:  # a disk that knows no locks
            if isinstance(error, BlockingIOError):
                raise


@contextlib.contextmanager
def in_turn(folder: Path) -> Iterator[None]:
    """Wait for others who change something in this folder in turn, and let them wait; it is made where it is missing.

    The folder itself is what is locked: nothing is left behind, and who trains into it (`locked`) does not mind.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        yield
        return
    try:
        _wait_for(handle)
        yield
    finally:
        os.close(handle)
