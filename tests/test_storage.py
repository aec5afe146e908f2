"""What lies on disk: whole or not at all, the same bytes for the same content, one writer at a time."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import storage
from hilp.storage import atomic

SLEEPER = """
import os, sys, time
from pathlib import Path
from hilp import storage
{}
print("ready", flush=True)
time.sleep(60)
"""


def sleeping(body: str, *arguments: object) -> subprocess.Popen[str]:
    """A process that ran `body` and now sleeps until it is killed."""
    command = [sys.executable, "-c", SLEEPER.format(body), *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- arrays on disk --------------------------------------------------------------------------------------------------


def test_arrays_keep_shape_type_and_note(tmp_path: Path) -> None:
    arrays = {
        "scalar": np.float32(3.5).reshape(()),
        "count": np.array(7, np.int32),
        "empty": np.zeros((0, 4), np.float32),
        "turned": np.arange(6, dtype=np.float64).reshape(2, 3).T,
    }
    storage.write_arrays(tmp_path / "x", arrays, {"step": 7, "plan": "auto"})
    again, note = storage.read_arrays(tmp_path / "x")
    assert note == {"step": 7, "plan": "auto"}
    for name, array in arrays.items():
        assert again[name].shape == array.shape and again[name].dtype == array.dtype, name
        np.testing.assert_array_equal(again[name], array)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_changed_note_is_found(tmp_path: Path) -> None:
    storage.write_arrays(tmp_path / "x", {"a": np.zeros(3)}, {"step": 1000})
    content = (tmp_path / "x").read_bytes()
    assert content.count(b"1000") == 1
    (tmp_path / "x").write_bytes(content.replace(b"1000", b"9000"))
    with pytest.raises(hilp.HilpError, match="changed after it was written"):
        storage.read_arrays(tmp_path / "x")


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "file" / "x", tmp_path / "nowhere" / "x", tmp_path / "folder"):
        with pytest.raises(hilp.HilpError, match="cannot write"):
            storage.write_text(target, "x")
        with pytest.raises(hilp.HilpError, match="cannot write"):
            storage.write_arrays(target, {"a": np.zeros(3)})
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]


def test_equal_arrays_are_equal_files_in_every_process(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
import numpy as np
from hilp import storage
arrays = {name: np.arange(3).astype(dtype) for name, dtype in zip("dabc", ("f4", "f8", "u1", "?"))}
storage.write_arrays(Path(sys.argv[1]), arrays, {"step": 7, "plan": "auto", "seed": 0})
"""
    hashes = set()
    for seed in range(4):  # the order of the library's metadata changed with the process
        path = tmp_path / str(seed)
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        subprocess.run([sys.executable, "-c", program, str(path)], check=True, env=environment)
        hashes.add(hashlib.sha256(path.read_bytes()).hexdigest())
    arrays = {name: np.arange(3).astype(dtype) for name, dtype in (("c", "?"), ("a", "f8"), ("b", "u1"), ("d", "f4"))}
    storage.write_arrays(tmp_path / "other order", arrays, {"step": 7, "plan": "auto", "seed": 0})
    hashes.add(hashlib.sha256((tmp_path / "other order").read_bytes()).hexdigest())
    assert len(hashes) == 1


def test_the_library_reads_our_files_and_we_those_it_wrote(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    types = ("?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", ">f4")
    arrays = {f"{kind} \u00e9": np.arange(6).reshape(2, 3).astype(kind) for kind in types}
    arrays |= {"none": np.zeros((0, 4), np.float32), "scalar": np.array(3.0)}
    storage.write_arrays(tmp_path / "ours", arrays, {"step": 7})
    for name, array in load_file(tmp_path / "ours").items():
        np.testing.assert_array_equal(array, arrays[name])
        assert array.shape == arrays[name].shape and array.dtype == arrays[name].dtype.newbyteorder("=")
    again, note = storage.read_arrays(tmp_path / "ours")
    assert note == {"step": 7} and again.keys() == arrays.keys()
    seal = {"note": "{}", "sha256": storage.arrays._seal(again, "{}")}
    save_file(again, tmp_path / "theirs", seal)
    for name, array in storage.read_arrays(tmp_path / "theirs")[0].items():
        np.testing.assert_array_equal(array, arrays[name])


def with_header(header: Any, content: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


def tensor(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


DAMAGED: dict[str, bytes] = {
    "nothing": b"",
    "half a length": b"\x08\0\0",
    "a length without end": b"\xff" * 8 + b"{}",
    "no JSON": with_header(b"{]"),
    "no text": with_header(b"\xff\xfe"),
    "a list": with_header([]),
    "deep JSON": with_header(b"[" * 200_000 + b"]" * 200_000),
    "deep JSON in an entry": with_header(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "bf16": with_header(tensor("BF16", (4,)), bytes(8)),
    "f8": with_header(tensor("F8_E4M3", (8,)), bytes(8)),
    "an unknown type": with_header(tensor("QUATERNION"), bytes(8)),
    "a type that is none": with_header(tensor(["F32"]), bytes(8)),
    "an object": with_header(tensor("|O"), bytes(8)),
    "a shape of terabytes": with_header(tensor("F32", (10**6, 10**6)), bytes(8)),
    "a shape beyond all numbers": with_header(tensor("F32", (10**30,), (0, 4 * 10**30)), bytes(8)),
    "a negative shape": with_header(tensor("F32", (-1, -2)), bytes(8)),
    "a shape of fractions": with_header(tensor("F32", (2.0,)), bytes(8)),
    "a shape of true": with_header(tensor("F32", (True,), (0, 4)), bytes(4)),
    "no shape": with_header({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, bytes(8)),
    "no offsets": with_header({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)),
    "three offsets": with_header(tensor(offsets=(0, 4, 8)), bytes(8)),
    "offsets backwards": with_header(tensor(offsets=(8, 0)), bytes(8)),
    "a hole": with_header(tensor(offsets=(4, 12)), bytes(12)),
    "two in one place": with_header({**tensor(), "b": tensor()["a"]}, bytes(8)),
    "too short": with_header(tensor(), bytes(7)),
    "too long": with_header(tensor(), bytes(9)),
    "an entry that is none": with_header({"a": 3}),
    "metadata that is none": with_header({"__metadata__": 3}),
    "no checksum": with_header(tensor(), bytes(8)),
    "a note that is none": with_header({"__metadata__": {"note": 3}}),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_one_line_about_a_damaged_file(tmp_path: Path, what: str) -> None:
    (tmp_path / "x").write_bytes(DAMAGED[what])
    with pytest.raises(hilp.HilpError) as caught:
        storage.read_arrays(tmp_path / "x")
    assert "\n" not in str(caught.value) and str(tmp_path / "x") in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_type_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(DAMAGED["bf16"])
    with pytest.raises(hilp.HilpError, match="'a' is of type 'BF16'"):
        storage.read_arrays(tmp_path / "x")
    with pytest.raises(hilp.HilpError, match="'c' is complex64"):
        storage.write_arrays(tmp_path / "y", {"c": np.zeros(1, np.complex64)})
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 200_000])
def test_one_line_about_json_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(hilp.HilpError, match="damaged") as caught:
        storage.read_json(tmp_path / "x")
    assert "\n" not in str(caught.value)
    with pytest.raises(hilp.HilpError, match="cannot read"):
        storage.read_json(tmp_path / "nowhere")


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    storage.write_arrays(folder / os.fsdecode(b"\xff"), {"a": np.arange(3)})
    np.testing.assert_array_equal(storage.read_arrays(folder / os.fsdecode(b"\xff"))[0]["a"], np.arange(3))
    storage.write_text(folder / "page", f"about {folder}")
    assert "caf" in (folder / "page").read_text()
    with storage.locked(folder, "testing"), pytest.raises(hilp.HilpError), storage.locked(folder, "again"):
        pass
    (folder / "new").mkdir()
    storage.swap_folder(folder / "new", tmp_path / os.fsdecode(b"\xfe"))
    assert len(names(tmp_path)) == 2


# ---- one step --------------------------------------------------------------------------------------------------------


def test_temporary_names_cannot_be_guessed_and_lie_beside(tmp_path: Path) -> None:
    found = {storage.temporary_beside(tmp_path / "x.json") for _ in range(100)}
    assert len(found) == 100
    for path in found:
        assert path.parent == tmp_path and path.name.startswith(f".x.json.writing-{os.getpid()}-")
    assert storage.temporary_beside(tmp_path / "x.mp4", ".mp4").suffix == ".mp4"
    long = tmp_path / ("\u00e9" * 125)  # 250 bytes, and a name has at most 255
    storage.write_text(long, "x")
    assert names(tmp_path) == [long.name]


def test_a_link_where_the_temporary_would_lie_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are unguessable; and even a guessed one is never written through."""
    (tmp_path / "theirs").write_text("theirs")
    guessed = tmp_path / ".x.writing-guessed"
    guessed.symlink_to(tmp_path / "theirs")
    monkeypatch.setattr(atomic, "temporary_beside", lambda path: guessed)
    with pytest.raises(hilp.HilpError, match="cannot write"):
        storage.write_text(tmp_path / "x", "mine")
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_file_and_folder_reach_the_disk_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(handle: int) -> None:
        calls.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")
        fsync(handle)

    def noted_replace(source: Any, target: Any) -> None:
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    storage.write_text(tmp_path / "x", "text")
    assert calls == ["file", "rename", "folder"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.write_text(tmp_path / "x", "old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(hilp.HilpError, match="No space left"):
        storage.write_text(tmp_path / "x", "new")
    assert names(tmp_path) == ["x"] and (tmp_path / "x").read_text() == "old"


def folder(path: Path, content: str) -> Path:
    """A folder that is whole when both its files say the same."""
    path.mkdir()
    for name in ("one", "two"):
        (path / name).write_text(content)
    return path


def without_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "_exchange", lambda one, two: False)


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_takes_the_place_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool) -> None:
    if not exchange:
        without_exchange(monkeypatch)
    target = tmp_path / "x"
    for content in ("first", "second", "third"):
        storage.swap_folder(folder(storage.temporary_beside(target), content), target)
        assert (target / "one").read_text() == (target / "two").read_text() == content
        assert names(tmp_path) == ["x"]


def test_a_link_to_a_folder_stays_one(tmp_path: Path) -> None:
    real = tmp_path / "disk" / "real"
    real.parent.mkdir()
    folder(real, "old")
    (tmp_path / "x").symlink_to(real)
    temporary = storage.temporary_beside(tmp_path / "x")
    assert temporary.parent == real.parent
    storage.swap_folder(folder(temporary, "new"), tmp_path / "x")
    assert (tmp_path / "x").is_symlink() and (real / "one").read_text() == "new"
    assert names(tmp_path / "disk") == ["real"]


def test_the_target_is_there_at_every_instant(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("this system cannot exchange names")
    target = folder(tmp_path / "x", "0")
    missing: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            if not target.exists():
                missing.append(1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(100):
        storage.swap_folder(folder(storage.temporary_beside(target), str(number)), target)
    done.set()
    watcher.join()
    assert not missing and (target / "one").read_text() == "99"


def test_a_swap_that_fails_leaves_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = folder(tmp_path / "x", "old")
    without_exchange(monkeypatch)
    with pytest.raises(hilp.HilpError, match="cannot write"):
        storage.swap_folder(tmp_path / "nowhere", target)
    assert names(tmp_path) == ["x"] and (target / "one").read_text() == "old"


SWAPS = """
target = Path(sys.argv[1])
if sys.argv[2] == "aside":
    storage.atomic._exchange = lambda one, two: False
print("ready", flush=True)
for number in range(10**9):
    temporary = storage.temporary_beside(target)
    temporary.mkdir()
    for name in ("one", "two"):
        (temporary / name).write_text(str(number))
    storage.swap_folder(temporary, target)
"""


@pytest.mark.parametrize("way", ["exchange", "aside"])
def test_kills_in_the_middle_of_swaps(tmp_path: Path, way: str) -> None:
    """Whenever it dies, the old or the new folder is there, whole, and nothing else after cleaning."""
    target = folder(tmp_path / "x", "0")
    for round in range(8):
        process = sleeping(SWAPS, target, way)
        time.sleep(0.003 * round)
        killed(process)
        if way == "exchange":
            assert target.exists()
        storage.clean_leftovers(target)
        assert names(tmp_path) == ["x"]
        assert (target / "one").read_text() == (target / "two").read_text()


# ---- leftovers -------------------------------------------------------------------------------------------------------

LEAVE = """
target = Path(sys.argv[1])
temporary = storage.temporary_beside(target)
temporary.mkdir()
(temporary / "part").write_text("half")
(storage.temporary_beside(target, ".gif")).write_text("half")
"""


def test_leftovers_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    target = tmp_path / "x"
    (tmp_path / ".x.writing-notes").write_text("of somebody")
    (tmp_path / "y").write_text("beside")
    mine = storage.temporary_beside(target)
    mine.write_text("half")
    process = sleeping(LEAVE, target)
    try:
        assert len(names(tmp_path)) == 5
        storage.clean_leftovers(target)
        storage.clean_leftovers_in(tmp_path)
        assert len(names(tmp_path)) == 5, "it lives"
    finally:
        killed(process)
    storage.clean_leftovers(tmp_path / "y")
    storage.clean_leftovers(tmp_path / "xx")
    assert len(names(tmp_path)) == 5, "of another target"
    storage.clean_leftovers(target)
    assert names(tmp_path) == sorted([".x.writing-notes", "y", mine.name])
    killed(sleeping(LEAVE, tmp_path / "z"))
    storage.clean_leftovers_in(tmp_path)
    assert names(tmp_path) == sorted([".x.writing-notes", "y", mine.name])
    storage.clean_leftovers(tmp_path / "nowhere" / "x")


def test_a_process_number_given_again_is_another_process(tmp_path: Path) -> None:
    pid, began, machine, _ = atomic.temporary_beside(tmp_path / "x").name.removeprefix(".x.writing-").split("-")
    if began == "0":
        pytest.skip("this system does not say when a process began")
    for owner, dies in ((f"{pid}-{began}-{machine}", False), (f"{pid}-00000000-{machine}", True),
                        (f"999999999-{began}-{machine}", True), (f"999999999-{began}-00000000", False)):  # fmt: skip
        path = tmp_path / f".x.writing-{owner}-00"
        path.write_text("half")
        storage.clean_leftovers(tmp_path / "x")
        assert path.exists() != dies, owner


def test_what_was_renamed_aside_comes_back(tmp_path: Path) -> None:
    """Where names cannot be exchanged, a kill between two renames leaves no target."""
    body = """
target = Path(sys.argv[1])
aside = target.with_name(storage.temporary_beside(target).name.replace(".writing-", ".replaced-"))
os.rename(target, aside)
"""
    target = folder(tmp_path / "x", "old")
    process = sleeping(body, target)
    storage.restore_aside(target)
    assert not target.exists(), "its owner lives and will go on"
    killed(process)
    storage.restore_aside(target)
    assert names(tmp_path) == ["x"] and (target / "one").read_text() == "old"
    killed(sleeping(body, target))
    folder(target, "new")
    storage.clean_leftovers(target)
    assert names(tmp_path) == ["x"] and (target / "one").read_text() == "new", "the old is not needed any more"


# ---- locks -----------------------------------------------------------------------------------------------------------

HOLD = """
lock = storage.locked(Path(sys.argv[1]), "hilp pretrain --out runs/a")
lock.__enter__()
"""


def test_the_second_writer_is_told_about_the_first(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = sleeping(HOLD, run)
    try:
        with pytest.raises(hilp.HilpError) as caught, storage.locked(run, "me"):
            raise AssertionError("two writers")
        line = str(caught.value)
        assert "\n" not in line and str(run) in line and f"process {process.pid} on " in line
        assert "hilp pretrain --out runs/a" in line and time.strftime("%Y-") in line
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    with storage.locked(run, "me"):  # a lock ends with its process, however it ends
        assert names(run) == [storage.LOCK]
    assert not names(run)


def test_a_lock_leaves_nothing_behind(tmp_path: Path) -> None:
    with storage.locked(tmp_path / "made" / "run", "a"):
        pass
    assert not (tmp_path / "made" / "run").exists(), "nothing came of it"
    with storage.locked(tmp_path / "made" / "run", "a"):
        (tmp_path / "made" / "run" / "x").write_text("x")
    assert names(tmp_path / "made" / "run") == ["x"]
    with pytest.raises(KeyError), storage.locked(tmp_path / "made", "a"):
        raise KeyError
    assert names(tmp_path / "made") == ["run"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(hilp.HilpError, match="cannot write"), storage.locked(tmp_path / "file", "a"):
        pass


def test_one_of_many_writers_at_a_time(tmp_path: Path) -> None:
    inside: list[int] = []
    wrong: list[str] = []

    def work() -> None:
        times = 0
        while times < 10:
            try:
                with storage.locked(tmp_path / "run", "thread"):
                    inside.append(1)
                    if len(inside) > 1:
                        wrong.append("two at once")
                    time.sleep(0.001)
                    inside.pop()
                times += 1
            except hilp.HilpError:
                pass
            time.sleep(0.001)

    (tmp_path / "run").mkdir()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_lock_file_of_a_stranger(tmp_path: Path) -> None:
    import fcntl

    for content in (b"", b"[", b"3", b"{}", b"[" * 100_000):
        (tmp_path / storage.LOCK).write_bytes(content)
        with open(tmp_path / storage.LOCK) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with pytest.raises(hilp.HilpError, match="another process"), storage.locked(tmp_path, "a"):
                pass
