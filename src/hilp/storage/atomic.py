"""Files and folders that take their name in one step: whoever looks finds the old content or the new one, whole.

What takes more than a moment to write is written under another name in the same folder (`temporary_beside`) and takes
the target's place in one step: `os.replace` for files, `swap_folder` for folders. A process that is killed leaves at
most such a name behind; the name says whose it was, and `clean_leftovers` removes those of the dead.
"""

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from hilp.errors import HilpError, reason, require_regular

WRITING, ASIDE = "writing", "replaced"  # names of what is not finished, and of what makes room for it
LONGEST_NAME = 180  # bytes of a file's name that leave room for ours around it


@contextlib.contextmanager
def told(what: str, refused: type[Exception] | tuple[type[Exception], ...] = OSError, then: str = "") -> Iterator[None]:
    """Say on one line what cannot be done, and why; then: what to do."""
    try:
        yield
    except refused as error:
        raise HilpError(f"{what}: {getattr(error, 'strerror', None) or reason(error)}{then}") from error


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one step."""
    write_bytes(path, [text.encode(errors="backslashreplace")])  # a file name that is not UTF-8 may be in it


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """What a JSON file says; one line about a file that is none."""
    require_regular(path)
    with told(f"cannot read {path}"):
        text = path.read_bytes()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise HilpError(f"{path} is damaged ({why}): restore it from a copy") from error


def write_bytes(path: Path, pieces: Iterable[Any]) -> None:
    """Give a file this content in one step; it is flushed to disk before it takes its name."""
    temporary = temporary_beside(path)
    try:
        with told(f"cannot write {path}", (OSError, ValueError)):  # of a zero byte in the name
            with open(temporary, "xb") as file:
                file.writelines(pieces)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError, ValueError):
            temporary.unlink()
    fsync_folder(path.parent)


def with_a_name(path: Path) -> Path:
    """The same path with a name that others can be made of: `.` and `..` have none."""
    return path.resolve() if path.name in ("", "..") else path


def temporary_beside(path: Path, ending: str = "", kind: str = WRITING) -> Path:
    """A hidden name in the same folder that cannot be guessed, and that says which process writes there."""
    path = _followed(path)
    owner = f"{os.getpid()}-{_began(os.getpid())}-{_machine()}"  # a number alone is given to another process one day
    return path.with_name(f".{_stem(path)}.{kind}-{owner}-{secrets.token_hex(8)}{ending}")


def fsync_folder(path: Path) -> None:
    """Have the names in a folder on the disk, not only in memory; where the system knows no such thing, nothing."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def swap_folder(temporary: Path, target: Path) -> None:
    """Give a finished folder its name, and remove what had that name before. On the same disk only.

    Where the system can exchange two names (Linux), the target is at every instant the old folder or the new one. Where
    it cannot, the old one is renamed aside for a moment; whoever is killed in it leaves it to `clean_leftovers`.
    """
    target, old = _followed(target), None
    with told(f"cannot write {target}"):
        fsync_folder(temporary)
        if not target.exists():
            os.rename(temporary, target)
        elif _exchange(temporary, target):
            old = temporary
        else:
            old = temporary_beside(target, kind=ASIDE)
            os.rename(target, old)
            try:
                os.rename(temporary, target)
            except OSError:
                os.rename(old, target)
                raise
        fsync_folder(target.parent)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A hidden folder to fill: it takes the target's name in the end, and is removed where that does not happen."""
    temporary = temporary_beside(target)
    try:
        with told(f"cannot write {target}"):
            temporary.mkdir(parents=True)
            yield temporary
            swap_folder(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def carry_over(source: Path, target: Path) -> None:
    """Give a folder all that another has and it has not: further names of the same files, or copies of them."""
    for entry in os.scandir(source):
        name = target / entry.name
        if os.path.lexists(name):
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.copytree(entry.path, name, symlinks=True, copy_function=_link)
        elif entry.is_symlink():
            name.symlink_to(os.readlink(entry.path))
        else:
            _link(entry.path, name)


def _link(source: str, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a disk where a file has one name
        shutil.copy2(source, target)


def clean_leftovers(path: Path) -> None:
    """Remove what dead processes left next to a path; it gets back an old folder that one had just renamed aside."""
    path = _followed(path)
    restore_aside(path)
    clean_leftovers_in(path.parent, re.escape(_stem(path)), f"{WRITING}|{ASIDE}")


def clean_leftovers_in(folder: Path, stem: str = ".+?", kinds: str = WRITING) -> None:
    """Remove what dead processes were writing in a folder when they were killed, whatever its name."""
    for path in _dead(folder, stem, kinds):
        with contextlib.suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def restore_aside(path: Path) -> None:
    """Give a missing folder back its content that a dead process had renamed aside."""
    path = _followed(path)
    if not path.exists():
        for aside in _dead(path.parent, re.escape(_stem(path)), ASIDE):
            with contextlib.suppress(OSError):
                os.rename(aside, path)
                return


def _dead(folder: Path, stem: str, kinds: str) -> list[Path]:
    """Leftovers of dead processes in a folder, the newest first."""
    pattern = re.compile(rf"\.{stem}\.(?:{kinds})-(\d+)-([0-9a-f]+)-([0-9a-f]+)-[0-9a-f]+(?:\.\w+)?", re.DOTALL)
    found = []
    with contextlib.suppress(OSError, ValueError):  # ValueError: a zero byte in the name
        for entry in os.scandir(folder):
            if match := pattern.fullmatch(entry.name):
                pid, began, machine = match.groups()
                if machine == _machine() and not _alive(int(pid), began):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, Path(entry.path)))
    return [path for _, path in sorted(found, reverse=True)]


def _followed(path: Path) -> Path:
    """Where a link to a folder leads: the folder is replaced, not the link. And a name for `.` and `..`."""
    return path.resolve() if path.is_symlink() and path.is_dir() else with_a_name(path)


def _stem(path: Path) -> str:
    name = os.fsencode(path.name)
    return path.name if len(name) <= LONGEST_NAME else hashlib.sha256(name).hexdigest()[:32]


def _exchange(one: Path, two: Path) -> bool:
    """Exchange two names in one step; False where this system or disk cannot."""
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if function is None:
        return False
    if function(here, os.fsencode(one), here, os.fsencode(two), exchange) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number), str(two))


@cache
def _machine() -> str:
    """Where process numbers mean what they mean here: this host, and in it this container."""
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(f"{socket.gethostname()} {namespace}".encode()).hexdigest()[:8]


def _began(pid: int) -> str | None:
    """When a process began, as a hash; None where there is no such process, "0" where the system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return "0"
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] in b"ZX" else hashlib.sha256(boot + fields[19]).hexdigest()[:8]
    except (OSError, IndexError):
        return None


def _alive(pid: int, began: str) -> bool:
    """Whether this process still lives; where the system cannot say, it does."""
    if os.name == "nt":  # where os.kill(pid, 0) is no question
        return True
    now = _began(pid)
    if now != "0":
        return now == began
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True
