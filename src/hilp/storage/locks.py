"""One writer for each folder: a second one reads in an error who the first is, or waits for it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from hilp.errors import FolderBusy, HilpError

LOCK = ".lock"  # in the folder, as long as a process writes it
POLL_SECONDS = 0.5  # between two tries of a lock that is waited for


@contextlib.contextmanager
def locked(folder: Path, what: str, wait: bool = False) -> Iterator[None]:
    """Keep other processes from writing this folder (it is made where it is missing); the lock ends with the process.

    `what` is told to a second writer, e.g. the command. wait: for the first, instead of an error.
    """
    try:
        import fcntl
    except ImportError:  # Windows: without a lock
        yield
        return
    made = not folder.exists()
    path = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _holder(handle)
                os.close(handle)
                if wait:
                    time.sleep(POLL_SECONDS)
                    continue
                raise FolderBusy(
                    f"{folder} is being written by {holder}: wait for it, or choose another folder"
                ) from None
            except OSError:  # a disk that knows no locks
                break
            if _is_same(handle, path):
                break
            os.close(handle)  # the one before has just removed it
        about = {"pid": os.getpid(), "host": socket.gethostname(), "since": _now(), "what": what}
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(about).encode(), 0)
    except OSError as error:
        raise HilpError(f"cannot write {folder}: {error.strerror or error}") from error
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


def wait_for(handle: int, shared: bool = False) -> None:
    """Wait until an open file or folder is ours; closing it ends that, and so does the end of the process."""
    try:
        import fcntl
    except ImportError:  # Windows: without a lock
        return
    with contextlib.suppress(OSError):  # a disk that knows no locks
        fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


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
        wait_for(handle)
        yield
    finally:
        os.close(handle)


def _is_same(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


def _now() -> str:
    return datetime.now(UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _holder(handle: int) -> str:
    """Who holds a lock, as they said."""
    try:
        about = json.loads(os.pread(handle, 1 << 16, 0))
        text = f"process {about['pid']} on {about['host']} since {about['since']} ({about['what']})"
        return " ".join(text.split())
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"
