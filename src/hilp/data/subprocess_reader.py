"""HDF5, Minari and Parquet files, read by a child process.

The HDF5 library trusts the files it reads: a few flipped bits are enough to make it loop for ever or end the process
(about one in five hundred damaged files did, with HDF5 2.0), and the one for Parquet crashes on some, too. So a child
reads, and when it dies or stalls, that is an error message here. The child is started when first needed, serves all
files, and ends with this process.
"""

import atexit
import contextlib
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from hilp.data.columns import BLOCK_BYTES, DEFLATE_LIMIT, NUMBERS, Computed, block_rows, fill, row_bytes
from hilp.data.parquet import Parquet
from hilp.errors import HilpError, reason, require_regular

STALL_SECONDS = 60.0  # an answer is at most a block or an episode; a healthy disk needs far less
EPISODES_AT_ONCE = 500  # in an answer about Minari
MOST_UNWRITTEN = 64 << 20  # bytes of an array of HDF5 that may not be in its file
CHILD_MEMORY = 16 << 30  # address space: a damaged size must not take the machine's memory

Answer = tuple[dict[str, Any], dict[str, np.ndarray]]


# ---- this side -------------------------------------------------------------------------------------------------------


_lock = threading.Lock()
_child: Any = None  # a subprocess.Popen


def _start() -> Any:
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "hilp.data.subprocess_reader"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths},
    )


@atexit.register
def let_go() -> None:
    """End the child, if there is one: it ends when its input does. The next file starts another."""
    global _child
    if _child is not None:
        for pipe in (_child.stdin, _child.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        _child.wait()
    _child = None


def _start_anew_after_fork() -> None:
    """Leave the child to the parent, whose pipes must not be written to, nor be kept open here."""
    global _child, _lock
    inherited, _child, _lock = _child, None, threading.Lock()  # the old one may be held by a thread that is not here
    if inherited is not None:
        for pipe in (inherited.stdin, inherited.stdout):
            pipe.raw.close()  # the buffers may be locked, and full of another thread's words
        inherited.returncode = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew_after_fork)


def ask(path: Path, do: str, **arguments: Any) -> Answer:
    """Have the child do something with a file. Whatever goes wrong is a HilpError about that file."""
    global _child
    require_regular(path)
    with _lock:
        child = _child = _child or _start()
        watch = threading.Timer(STALL_SECONDS, child.kill)
        watch.daemon = True
        watch.start()
        began = time.monotonic()
        try:
            # The child stays in the folder it was started in; this process may since have gone elsewhere.
            _send(child.stdin, {"do": do, "path": os.path.abspath(path), **arguments}, {})
            note, arrays = _receive(child.stdout)
        except BaseException as error:  # it died, or an interrupt left the pipe out of step
            child.kill()
            let_go()
            if not isinstance(error, EOFError | OSError):
                raise
            stalled = time.monotonic() - began >= STALL_SECONDS
            how = f"takes for ever ({STALL_SECONDS:.0f} s)" if stalled else "crashes"
            library = "HDF5" if arguments.get("ids") is None else "Parquet"
            raise HilpError(f"{path} is damaged: the {library} library {how} on it: restore it from a copy") from error
        finally:
            watch.cancel()
    if "missing" in note:
        raise HilpError(f"reading {path} needs {note['missing'].partition('.')[0]}: pip install 'hilp[formats]'")
    if "error" in note:
        raise HilpError(f"{path} cannot be read: {note['error']}")
    return note, arrays


def open_columns(path: Path, ids: str | None = None) -> tuple[dict[str, Computed], list[str]]:
    """The arrays of numbers in an HDF5 file, by their path inside it, and the names of what is not.

    ids: the file is a Parquet file, and this column may hold names of episodes.
    """
    note, _ = ask(path, "columns", ids=ids)
    limit = DEFLATE_LIMIT * (path.stat().st_size + 64)
    path = path.absolute()  # rows are read as they are needed, wherever this process then is
    columns = {}
    for name, shape, dtype in note["columns"]:
        kind = tuple(shape), np.dtype(dtype)
        if ids is None and shape[0] * row_bytes(*kind) > limit:
            raise HilpError(f"{path} is damaged: its '{name}' claims to be {kind[0]}, more than the file can hold")
        columns[name] = Computed(*kind, partial(_read_rows, path, ids, name, *kind))
    return columns, note["others"]


def _read_rows(
    path: Path, ids: str | None, name: str, shape: tuple[int, ...], dtype: np.dtype, start: int, stop: int
) -> np.ndarray:
    step = block_rows(shape, dtype)
    parts = [np.empty((0, *shape[1:]), dtype)]
    for first in range(start, stop, step):
        count = min(step, stop - first)
        _, found = ask(path, "rows", ids=ids, name=name, start=first, stop=first + count)
        if found["rows"].shape != (count, *shape[1:]) or found["rows"].dtype != dtype:
            raise HilpError(f"{path} is damaged: '{name}' changes its shape while it is read")
        parts.append(found["rows"])
    return parts[1] if len(parts) == 2 else np.concatenate(parts)


def open_minari(folder: Path) -> tuple[str, list[int]]:
    """The id of a Minari data set, and the steps of each of its episodes."""
    steps: list[int] = []
    while True:
        note, _ = ask(folder, "steps", first=len(steps), most=EPISODES_AT_ONCE)
        steps += note["steps"]
        if len(steps) >= note["episodes"]:
            return note["id"], steps


def read_minari(folder: Path, first: int, stop: int) -> list[dict[str, np.ndarray]]:
    """The arrays of some episodes. Parts of a dict are named by their path: "observations/qpos"."""
    episodes: list[dict[str, np.ndarray]] = [{} for _ in range(first, stop)]
    _, found = ask(folder, "episodes", first=first, stop=stop)
    for name, array in found.items():
        number, _, part = name.partition(" ")
        episodes[int(number) - first][part] = array
    return episodes


# ---- between both ----------------------------------------------------------------------------------------------------


def _send(pipe: IO[bytes], note: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    arrays = {name: np.ascontiguousarray(array).reshape(np.shape(array)) for name, array in arrays.items()}
    note = {**note, "arrays": [(name, array.dtype.str, array.shape) for name, array in arrays.items()]}
    pipe.write(json.dumps(note).encode() + b"\n")
    for array in arrays.values():
        pipe.write(array.reshape(-1).view(np.uint8).data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Answer:
    line = pipe.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    note = json.loads(line)
    arrays = {name: np.empty(shape, dtype) for name, dtype, shape in note.pop("arrays")}
    for array in arrays.values():
        fill(array, pipe)
    return note, arrays


# ---- the child -------------------------------------------------------------------------------------------------------


def _serve() -> None:
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not end up between our answers
    with contextlib.suppress(ImportError, OSError, ValueError):  # not on this system, or already lower
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (CHILD_MEMORY, CHILD_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    handlers: dict[str, Any] = {"columns": _columns, "rows": _rows, "steps": _steps, "episodes": _episodes}
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


class Hdf5:
    """One HDF5 file. It alone is read: what lies outside of it (links, data in other files) is not followed."""

    def __init__(self, path: str):
        import h5py

        self._file = h5py.File(path, "r", rdcc_nbytes=BLOCK_BYTES)
        self.columns: dict[str, Any] = {}
        self.others: list[str] = []
        self.outside: list[str] = []

        def link(name: Any, item: Any) -> None:
            if not isinstance(item, h5py.HardLink):
                self.outside.append(str(name))

        def look(name: Any, item: Any) -> None:
            if not isinstance(item, h5py.Dataset):
                return
            if item.is_virtual or item.external:
                self.outside.append(str(name))
            elif item.shape and item.dtype.kind in NUMBERS and isinstance(name, str):  # a damaged name comes as bytes
                if item.nbytes > MOST_UNWRITTEN and (missing := _unwritten(item)):
                    raise ValueError(f"'{name}' claims to be {item.shape}, but {missing:.0%} of it was never written")
                self.columns[name] = item
            else:
                self.others.append(str(name))

        self._file.visititems_links(link)  # `visititems` passes over links without a word
        self._file.visititems(look)
        self.others += self.outside


def _unwritten(item: Any) -> float:
    """The share of an array's chunks that are not in its file: HDF5 makes up what they hold, however much that is."""
    if item.chunks is None:
        return float(item.id.get_storage_size() == 0)
    whole = math.prod(-(-size // chunk) for size, chunk in zip(item.shape, item.chunks, strict=True))
    return 1.0 - item.id.get_num_chunks() / whole


_opened: dict[tuple[Any, ...], Any] = {}


def _kept(reopen: bool, opens: Callable[..., Any], *arguments: Any) -> Any:
    """What opens a file, or a folder, gives for it, kept as long as requests are about it."""
    if reopen or (opens, *arguments) not in _opened:
        _opened.clear()  # closes it
        _opened[opens, *arguments] = opens(*arguments)
    return _opened[opens, *arguments]


def _file(path: str, ids: str | None) -> Hdf5 | Parquet:
    return Hdf5(path) if ids is None else Parquet(path, ids)


def _columns(path: str, ids: str | None) -> Answer:
    file = _kept(True, _file, path, ids)
    columns = [(name, column.shape, column.dtype.str) for name, column in file.columns.items()]
    return {"columns": columns, "others": file.others}, {}


def _rows(path: str, ids: str | None, name: str, start: int, stop: int) -> Answer:
    return {}, {"rows": np.asarray(_kept(False, _file, path, ids).columns[name][start:stop])}


def _steps(path: str, first: int, most: int) -> Answer:
    data = _kept(first == 0, _minari_dataset, path)
    total = int(data.total_episodes)
    metadata = data.storage.get_episode_metadata(range(first, min(first + most, total)))
    steps = [int(episode["total_steps"]) for episode in metadata]
    return {"id": str(data.id), "episodes": total, "steps": steps}, {}


def _episodes(path: str, first: int, stop: int) -> Answer:
    arrays: dict[str, np.ndarray] = {}
    data, episodes = _kept(False, _minari_dataset, path), range(first, stop)
    for number, episode in zip(episodes, data.iterate_episodes(episodes), strict=True):
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


def _minari_dataset(path: str) -> Any:
    from minari import MinariDataset
    from minari.dataset.minari_storage import MinariStorage

    about = MinariStorage.read_raw_metadata(path)
    if "observation_space" not in about or "action_space" not in about:
        # Minari would now build the simulator that a stranger's file names.
        raise ValueError("its metadata.json has no observation_space and action_space")
    for file in (*Path(path).rglob("*.hdf5"), *Path(path).rglob("*.h5")):
        for name in Hdf5(str(file)).outside:  # Minari would read any file of this machine as observations
            raise ValueError(f"'{name}' is a link or lies in other files, which hilp does not follow")
    return MinariDataset(path)


if __name__ == "__main__":
    _serve()
