"""A table on a Ray cluster of two machines that are this one: the rows of one process, although one of them is lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hilp.bench import jobs
from test_engines import HEARD, SMALL, fingerprints, rows_of, table, wait_for

ray = pytest.importorskip("ray")
# The memory monitor watches the whole machine, which has others on it.
QUIET = {"RAY_memory_monitor_refresh_ms": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}


APART = "HILP_TEST_APART"


class Nodes:
    """The two nodes of a cluster on loopback, each a `ray start` of its own; stopped by their process ids."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.folder = folder
        port = self.address.partition(":")[2]
        words = ("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}")
        self.head = self._start("head", *words)
        wait_for(lambda: any(folder.glob("session_*/sockets/raylet*")), 120)
        self.second = self._start("second", f"--address={self.address}")

    def _start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        small = ["--num-cpus=1", "--num-gpus=0", "--object-store-memory=80000000", "--node-ip-address=127.0.0.1"]
        with open(self.folder / f"{name}.log", "wb") as log:
            return subprocess.Popen(
                [Path(sys.executable).with_name("ray"), "start", *words, *small, "--block"],
                stdout=log, stderr=log, env={**os.environ, **QUIET}, start_new_session=True)  # fmt: skip

    def processes(self, node: subprocess.Popen[bytes]) -> list[int]:
        """All processes of a node: `ray start` is the first of a session of their own."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                if entry.name.isdigit() and int(_stat(int(entry.name))[3]) == node.pid:
                    found.append(int(entry.name))
        return found

    def kill_second(self) -> None:
        """As when a machine is switched off: everything of it at once."""
        for pid in self.processes(self.second):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.second.wait()

    def stop(self) -> None:
        for node in (self.second, self.head):
            for pid in self.processes(node):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            node.wait()


def _stat(pid: int) -> list[str]:
    """State, parent, group, session, ... of a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    if not Path("/proc").is_dir():
        pytest.skip("processes are told by /proc")
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # short: sockets are in it
    found = Nodes(folder)
    yield found
    found.stop()
    shutil.rmtree(folder, ignore_errors=True)


class Killer(threading.Thread):
    """Kills a worker of the cluster in the middle of a cell, and then a node in the middle of another."""

    def __init__(self, nodes: Nodes, out: Path) -> None:
        super().__init__(daemon=True)
        self.nodes, self.out = nodes, out
        self.killed: list[str] = []

    def run(self) -> None:
        pid = self.busy(None)
        os.kill(pid, signal.SIGKILL)
        self.killed.append("worker")
        self.busy(self.nodes.second, other_than=pid)
        self.nodes.kill_second()
        self.killed.append("node")

    def busy(self, node: subprocess.Popen[bytes] | None, other_than: int = 0) -> int:
        """A process, of a node if asked for, that trains and has a checkpoint."""
        while True:
            for log in self.out.glob("*/*/seed-*.log"):
                with contextlib.suppress(OSError, ValueError, IndexError):  # a log that is being written or removed
                    pid = int(log.read_text().split()[1])
                    ours = node is None or int(_stat(pid)[3]) == node.pid
                    trains = any((log.parent / log.name.split(".")[0]).glob("checkpoints/step-*"))
                    if pid != other_than and ours and trains:
                        return pid
            time.sleep(0.005)


def lose(nodes: Nodes, data: Path, folder: Path, *words: object, verb: str = "goals") -> list[str]:
    """The same table in one process and on the cluster; what was killed on the way."""
    one, two = folder / "one", folder / "two"
    assert table(one, data, *words, "--json", verb=verb) == 0
    killer = Killer(nodes, two / "out")
    killer.start()
    assert table(two, data, *words, "--engine", "ray", "--address", nodes.address, "--retries", 3, verb=verb) == 0
    assert fingerprints(two) == fingerprints(one)
    for ours, theirs in zip(rows_of(two), rows_of(one), strict=True):
        # Sums over all pairs of states, which another number of threads cuts otherwise; all else is the same.
        errors = ours.pop("embedding", {}), theirs.pop("embedding", {})
        assert errors[0] == {k: v if isinstance(v, str) else pytest.approx(v) for k, v in errors[1].items()}
        assert {
            key: (ours.get(key), theirs.get(key)) for key in ours | theirs if ours.get(key) != theirs.get(key)
        } == {}
    assert not list((two / "out").rglob("*.log"))
    return killer.killed


def runs_apart(request: pytest.FixtureRequest) -> bool:
    """Run this test in a pytest of its own: Ray ends the process of a driver some time after its cluster is gone."""
    if APART in os.environ:
        return False
    here = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"{__file__}::{request.node.name}"]
    ended = subprocess.run(
        [sys.executable, *words], env={**here, APART: "1"}, capture_output=True, text=True, timeout=900
    )
    assert "1 passed" in ended.stdout, ended.stdout[-4000:]
    return True


def test_a_worker_and_a_node_are_lost(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if runs_apart(request):
        return
    nodes, tiny_data_folder = map(request.getfixturevalue, ("nodes", "tiny_data_folder"))
    words = ("--methods", "gc-bc", "--seeds", 3, "--steps", 4000, "--episodes", 2, *SMALL)
    assert lose(nodes, tiny_data_folder, tmp_path, *words) == ["worker", "node"]
    said = capsys.readouterr().out
    assert said.count("is tried again: its process was lost") == 2
    assert len(rows_of(tmp_path / "two")) == 3
    assert table(tmp_path / "three", tiny_data_folder, *words, "--engine", "ray", "--address", nodes.address,
                 "--gpus-per-cell", 0.5) == 2  # fmt: skip
    assert "no machine of this Ray cluster has 0.5 GPUs" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["goals", "rewards", "hierarchy"])
def test_whole_tables_although_a_worker_and_a_node_are_lost(
    verb: str, nodes: Nodes, tiny_data_folder: Path, tmp_path: Path
) -> None:
    methods = {"goals": ["gc-bc", "hilp"], "rewards": ["fb", "sf-hilp"], "hierarchy": ["iql", "hilp"]}[verb]
    small = {"goals": SMALL, "rewards": ["--set", "preprocess_hidden=8,8", "hidden=8", "batch=32"],
             "hierarchy": [*SMALL, "hidden=8,8"]}[verb]  # fmt: skip
    more = ["--errors", "--curve-points", 2] if verb == "goals" else []
    words = ("--methods", *methods, "--seeds", 2, "--steps", 2000, "--episodes", 4, *small, *more)
    assert lose(nodes, tiny_data_folder, tmp_path, *words, verb=verb) == ["worker", "node"]
    assert len(fingerprints(tmp_path / "two")) == 4


@pytest.mark.slow
def test_ctrl_c_saves_cells_on_the_cluster(tiny_data_folder: Path, tmp_path: Path, request: Any) -> None:
    """Also where the nodes were started by a shell in its background, which is deaf to Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        nodes = request.getfixturevalue("nodes")
    finally:
        signal.signal(signal.SIGINT, before)
    words = ["bench", "goals", "--data", tiny_data_folder, "--out", "out", "--methods", "gc-bc", "--seeds", 3,
             "--steps", 10**6, "--episodes", 2, *SMALL, "--engine", "ray", "--address", nodes.address]  # fmt: skip
    code = f"{HEARD}; import sys; from hilp.cli import main; sys.exit(main())"
    start = [sys.executable, "-c", code, *map(str, words)]
    process = subprocess.Popen(start, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(list(tmp_path.glob("out/*/*/seed-*/metrics.jsonl"))) == 2, 120)
    assert not list(tmp_path.glob("out/*/*/seed-*/checkpoints/step-*"))
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 130 and "give the command again to go on" in said
    assert len(list(tmp_path.glob("out/*/*/seed-*/checkpoints/step-*"))) == 2, "of both that ran"


def test_stopped_before_it_is_connected_it_starts_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    made = jobs.Cluster("127.0.0.1:1", 1.0, 0.0)
    monkeypatch.setattr(ray, "wait", lambda *given, **more: pytest.fail("it would start a Ray of its own"))
    made.stop()
    made.close()
    assert not ray.is_initialized()


def test_the_environment_of_a_task() -> None:
    assert jobs.environment(2.0, 0.0)["JAX_PLATFORMS"] == "cpu"
    assert jobs.environment(2.0, 0.0)["PJRT_NPROC"] == "2"
    shared = jobs.environment(1.0, 0.5)
    assert shared["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.450" and "JAX_PLATFORMS" not in shared
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in jobs.environment(1.0, 1.0)
