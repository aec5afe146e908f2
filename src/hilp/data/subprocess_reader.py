"""HDF5, Minari and Parquet files, read by a child process.

The HDF5 library trusts the files it reads: a few flipped bits are enough to make it loop for ever or end the process
(about one in five hundred damaged files did, with HDF5 2.0), and the one for Parquet crashes on some, too. So a child
reads, and when it dies or stalls, that is an error message here. The child is started when first needed, serves all
files, and ends with this process.
"""

from __future__ import annotations

import atexit
import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from hilp.data import arrow
from hilp.data.columns import BLOCK_BYTES, DEFLATE_LIMIT, NUMBERS, fill, row_bytes
from hilp.errors import HilpError, reason

STALL_SECONDS = 60.0  # an answer is at most a block or an episode; a healthy disk needs far less
EPISODES_AT_ONCE = 500  # in an answer about Minari
CHILD_MEMORY = 16 << 30  # address space: a damaged size must not take the machine's memory
HEADER = struct.Struct("<Q")

Answer = tuple[dict[str, Any], dict[str, np.ndarray]]


# ---- this side -------------------------------------------------------------------------------------------------------


class Child:
    """A process that answers one request at a time."""

    def __init__(self) -> None:
        paths = os.pathsep.join(path for path in sys.path if path)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "hilp.data.subprocess_reader"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
        )

    def ask(self, request: Mapping[str, Any]) -> Answer:
        """The answer; EOFError when the child died, TimeoutError when it had to be stopped."""
        stalled = threading.Event()

        def stop() -> None:
            stalled.set()
            self.process.kill()

        watch = threading.Timer(STALL_SECONDS, stop)
        watch.daemon = True
        watch.start()
        try:
            assert self.process.stdin is not None and self.process.stdout is not None
            _send(self.process.stdin, dict(request), {})
            return _receive(self.process.stdout)
        except (EOFError, OSError) as error:
            self.process.kill()
            if stalled.is_set():
                raise TimeoutError from error
            raise EOFError from error
        finally:
            watch.cancel()

    def disown(self) -> None:
        """In a forked process: leave it to the parent, whose pipes must not be written to, nor be kept open here."""
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.raw.close()  # type: ignore[union-attr]  # the buffers may be locked, and full of another thread's words
        self.process.returncode = 0

    def close(self) -> None:
        """Let it go; it ends when its input does."""
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:
                pass
        self.process.wait()


_lock = threading.Lock()
_child: Child | None = None


@atexit.register
def let_go() -> None:
    """End the child, if there is one; the next file starts another."""
    global _child
    if _child is not None:
        _child.close()
    _child = None


def _start_anew_after_fork() -> None:
    global _child, _lock
    inherited, _child, _lock = _child, None, threading.Lock()  # the old one may be held by a thread that is not here
    if inherited is not None:
        inherited.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew_after_fork)


def ask(path: Path, request: Mapping[str, Any]) -> Answer:
    """Have the child do something with a file. Whatever goes wrong is a HilpError about that file."""
    global _child
    with _lock:
        if _child is None:
            _child = Child()
        try:
            # The child stays in the folder it was started in; this process may since have gone elsewhere.
            note, arrays = _child.ask({**request, "path": os.path.abspath(path)})
        except (EOFError, TimeoutError) as error:
            _child.close()
            _child = None
            how = f"takes for ever ({STALL_SECONDS:.0f} s)" if isinstance(error, TimeoutError) else "crashes"
            library = "HDF5" if request.get("ids") is None else "Parquet"
            raise HilpError(f"{path} is damaged: the {library} library {how} on it: restore it from a copy") from error
        except BaseException:  # interrupted between question and answer: the pipe is out of step
            _child.process.kill()
            _child.close()
            _child = None
            raise
    if "missing" in note:
        raise HilpError(f"reading {path} needs {note['missing'].partition('.')[0]}: pip install 'hilp[formats]'")
    if "error" in note:
        raise HilpError(f"{path} cannot be read: {note['error']}")
    return note, arrays


@dataclass(frozen=True)
class FileColumn:
    """One array of an HDF5 file, or a column of a Parquet file."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    ids: str | None = None  # of a Parquet file: the column of the episodes

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        step = max(1, BLOCK_BYTES // max(1, row_bytes(self.shape, self.dtype)))
        parts = [np.empty((0, *self.shape[1:]), self.dtype)]
        for first in range(start, stop, step):
            count = min(step, stop - first)
            request = {"do": "rows", "ids": self.ids, "name": self.name, "start": first, "stop": first + count}
            part = ask(self.path, request)[1]["rows"]
            if part.shape != (count, *self.shape[1:]) or part.dtype != self.dtype:
                raise HilpError(f"{self.path} is damaged: '{self.name}' changes its shape while it is read")
            parts.append(part)
        return parts[1] if len(parts) == 2 else np.concatenate(parts)


def open_columns(path: Path, ids: str | None = None) -> tuple[dict[str, FileColumn], list[str]]:
    """The arrays of numbers in an HDF5 file, by their path inside it, and the names of what is not.

    ids: the file is a Parquet file, and this column may hold names of episodes.
    """
    note, _ = ask(path, {"do": "columns", "ids": ids})
    limit = DEFLATE_LIMIT * (path.stat().st_size + 64)
    path = path.absolute()  # rows are read as they are needed, wherever this process then is
    columns = {
        name: FileColumn(path, name, tuple(shape), np.dtype(dtype), ids) for name, shape, dtype in note["columns"]
    }
    for name, column in columns.items() if ids is None else ():
        if column.shape[0] * row_bytes(column.shape, column.dtype) > limit:
            raise HilpError(f"{path} is damaged: its '{name}' claims to be {column.shape}, more than the file can hold")
    return columns, note["others"]


def open_minari(folder: Path) -> tuple[str, list[int]]:
    """The id of a Minari data set, and the steps of each of its episodes."""
    about = ask(folder, {"do": "minari"})[0]
    steps: list[int] = []
    for portion in _portions(0, about["episodes"]):
        steps += ask(folder, {"do": "steps", **portion})[0]["steps"]
    return about["id"], steps


def read_minari(folder: Path, first: int, stop: int) -> list[dict[str, np.ndarray]]:
    """The arrays of some episodes. Parts of a dict are named by their path: "observations/qpos"."""
    episodes: list[dict[str, np.ndarray]] = [{} for _ in range(first, stop)]
    for portion in _portions(first, stop):
        for name, array in ask(folder, {"do": "episodes", **portion})[1].items():
            number, _, part = name.partition(" ")
            episodes[int(number) - first][part] = array
    return episodes


def _portions(first: int, stop: int) -> Iterable[dict[str, int]]:
    """Ranges of episodes that are few enough to be answered soon."""
    return ({"first": at, "stop": min(at + EPISODES_AT_ONCE, stop)} for at in range(first, stop, EPISODES_AT_ONCE))


# ---- between both ----------------------------------------------------------------------------------------------------


def _send(pipe: IO[bytes], note: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    arrays = {name: np.ascontiguousarray(array).reshape(np.shape(array)) for name, array in arrays.items()}
    note = {**note, "arrays": [(name, array.dtype.str, array.shape) for name, array in arrays.items()]}
    text = json.dumps(note).encode()
    pipe.write(HEADER.pack(len(text)) + text)
    for array in arrays.values():
        pipe.write(array.reshape(-1).view(np.uint8).data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Answer:
    (size,) = HEADER.unpack(_exactly(pipe, HEADER.size))
    note = json.loads(_exactly(pipe, size))
    arrays = {}
    for name, dtype, shape in note.pop("arrays"):
        array = np.empty(shape, dtype)
        fill(array, pipe)
        arrays[name] = array
    return note, arrays


def _exactly(pipe: IO[bytes], count: int) -> bytes:
    text = pipe.read(count)
    if len(text) < count:
        raise EOFError
    return text


# ---- the child -------------------------------------------------------------------------------------------------------


def _serve() -> None:
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not end up between our answers
    _limit_memory()
    handlers: dict[str, Callable[..., Answer]] = {
        "columns": _columns, "rows": _rows, "minari": _minari, "steps": _steps, "episodes": _episodes
    }  # fmt: skip
    while True:
        try:
            request, _ = _receive(requests)
        except EOFError:
            return
        try:
            note, arrays = handlers[request.pop("do")](**request)
        except ImportError as error:
            note, arrays = {"missing": error.name or reason(error)}, {}
        except Exception as error:  # anything may come out of a library that reads a damaged file
            note, arrays = {"error": reason(error)}, {}
        _send(answers, note, arrays)


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (CHILD_MEMORY, CHILD_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):  # not on this system, or already lower
        pass


class Hdf5:
    """One file."""

    def __init__(self, path: str):
        import h5py

        self._file = h5py.File(path, "r", rdcc_nbytes=BLOCK_BYTES)
        self.columns: dict[str, Any] = {}
        self.others: list[str] = []

        def look(name: Any, item: Any) -> None:
            if not isinstance(item, h5py.Dataset):
                return
            # Data in other files is not followed: this file alone says what is read.
            plain = item.shape and item.dtype.kind in NUMBERS and not item.is_virtual and not item.external
            if plain and isinstance(name, str):  # a damaged name comes as bytes
                self.columns[name] = item
            else:
                self.others.append(str(name))

        def linked(name: Any, link: Any) -> None:
            if isinstance(link, h5py.ExternalLink | h5py.SoftLink):  # `visititems` passes over them without a word
                self.others.append(str(name))

        self._file.visititems(look)
        self._file.visititems_links(linked)

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        return np.asarray(self.columns[name][start:stop])

    def close(self) -> None:
        self._file.close()


_opened: tuple[tuple[str, str | None], Hdf5 | arrow.Parquet] | None = None


def _file(path: str, ids: str | None, reopen: bool = False) -> Hdf5 | arrow.Parquet:
    """The file, kept open as long as requests are about it."""
    global _opened
    if _opened is None or _opened[0] != (path, ids) or reopen:
        if _opened is not None and isinstance(_opened[1], Hdf5):
            _opened[1].close()
        _opened = None
        _opened = ((path, ids), Hdf5(path) if ids is None else arrow.Parquet(path, ids))
    return _opened[1]


def _columns(path: str, ids: str | None) -> Answer:
    file = _file(path, ids, reopen=True)
    columns = [(name, column.shape, column.dtype.str) for name, column in file.columns.items()]
    return {"columns": columns, "others": file.others}, {}


def _rows(path: str, ids: str | None, name: str, start: int, stop: int) -> Answer:
    return {}, {"rows": _file(path, ids).read(name, start, stop)}


def _minari(path: str) -> Answer:
    data = _minari_dataset(path)
    return {"id": str(data.id), "episodes": int(data.total_episodes)}, {}


def _steps(path: str, first: int, stop: int) -> Answer:
    metadata = _minari_dataset(path).storage.get_episode_metadata(range(first, stop))
    return {"steps": [int(episode["total_steps"]) for episode in metadata]}, {}


def _episodes(path: str, first: int, stop: int) -> Answer:
    arrays: dict[str, np.ndarray] = {}
    episodes = range(first, stop)
    for number, episode in zip(episodes, _minari_dataset(path).iterate_episodes(episodes), strict=True):
        for part in ("observations", "actions", "rewards", "terminations", "truncations", "infos"):
            arrays |= {f"{number} {name}": array for name, array in _flattened(part, getattr(episode, part))}
    return {}, arrays


def _flattened(name: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    inner = value if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, tuple) else None
    if inner is not None:
        for key, part in inner.items():
            yield from _flattened(f"{name}/{key}", part)
    elif value is not None and (array := np.asarray(value)).dtype.kind in NUMBERS:
        yield name, array


_contained: list[tuple[str, int, int]] = []  # the files that were last looked through, with size and time of change


def _require_self_contained(folder: str) -> None:
    """Refuse HDF5 files that take data from elsewhere: Minari would read any file of this machine as observations."""
    global _contained
    import h5py

    files = sorted(Path(folder).rglob("*.hdf5")) + sorted(Path(folder).rglob("*.h5"))
    now = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    if now == _contained:
        return

    def link(name: Any, link: Any) -> Any:
        return None if isinstance(link, h5py.HardLink) else f"'{name}' is a link"

    def elsewhere(name: Any, item: Any) -> Any:
        away = isinstance(item, h5py.Dataset) and (item.is_virtual or item.external)
        return f"'{name}' lies in other files" if away else None

    for file in files:
        with h5py.File(file, "r") as opened:
            found = opened.visititems_links(link) or opened.visititems(elsewhere)  # the first answer ends the walk
            if found:
                raise ValueError(f"{found}, which hilp does not follow")
    _contained = now


def _minari_dataset(path: str) -> Any:
    from minari import MinariDataset
    from minari.dataset.minari_storage import MinariStorage

    about = MinariStorage.read_raw_metadata(path)
    if "observation_space" not in about or "action_space" not in about:
        # Minari would now build the simulator that a stranger's file names.
        raise ValueError("its metadata.json has no observation_space and action_space")
    _require_self_contained(path)
    return MinariDataset(path)


if __name__ == "__main__":
    _serve()
