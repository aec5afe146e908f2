"""Cells in processes of their own: the same rows as in one process, whatever is killed on the way."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import cli, storage
from hilp.bench import cells, jobs, pool
from hilp.bench.cells import Entry
from hilp.bench.jobs import Job
from hilp.errors import HilpError, TrainingStopped
from hilp.evaluation import diagnosis
from hilp.evaluation import rows as files
from hilp.learning import methods

SMALL = ["--set", "actor_hidden=8,8", "batch=32"]
# A shell starts what runs in its background deaf to Ctrl-C, and with it this suite: not so what it starts.
HEARD = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
VARYING = ("command",)  # of a row: the flags that name the engine are part of it


def table(folder: Path, data: Path | str, *words: object, verb: str = "goals") -> int:
    """Fill a table by the command."""
    given = ["--data", data, "--out", folder / "out", "--rows", folder / "rows.jsonl", *words]
    return cli.main(["bench", verb, *map(str, given)])


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of a table without what names the engine, in the order of the cells."""
    found = [{k: v for k, v in row.items() if k not in VARYING} for row in files.read_rows(folder / "rows.jsonl")]
    return sorted(found, key=lambda row: json.dumps([row["cell"], str(row.get("plan", row.get("reward")))]))


def fingerprints(folder: Path) -> dict[str, str]:
    """Of all policies of a table, by their run."""
    found = sorted((folder / "out").rglob("policy/config.json"))
    return {str(p.relative_to(folder)): hilp.FoundationPolicy.load(p.parent).fingerprint for p in found}


# ---- jobs ------------------------------------------------------------------------------------------------------------


def fake_job(folder: Path, number: int = 1, **more: Any) -> Job:
    run = folder / "out" / str(number)
    return Job(number, f"cell [{number}]", "{}", run.with_name(f"{number}.log"), {run: 100})


def cell_of(data: hilp.Dataset, kind: cells.Kind = "goals", label: str = "hilp", **table: Any) -> cells.Cell:
    options = {"size": "laptop", "steps": 20, "episodes": 2, "out": "out", "command": "hilp"} | table
    recipe = {"source": "data"}
    world = hilp.tasks.make("maze-medium")
    entry = Entry(label, {"dim": "4"} if label == "hilp" else {})
    return cells.CELLS[kind](cells.Table(kind, **options), label, entry, recipe, 3, data, world)


@pytest.mark.parametrize(
    ("kind", "more", "updates"),
    [("goals", {}, 20), ("rewards", {"intercept": True}, 20),
     ("hierarchy", {"high_steps": 5, "high_values": {"batch": "32"}}, 25)],
)  # fmt: skip
def test_a_job_is_text_and_its_cell_is_the_same_again(
    kind: cells.Kind, more: dict[str, Any], updates: int, tiny_data: hilp.Dataset, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    cell = cell_of(tiny_data, kind, out=str(tmp_path), **more)
    job = Job.of(1, cell)
    known = json.loads(job.text)
    monkeypatch.setattr(cells, "load_source", lambda kind, recipe: (cell.data, cell.world))
    assert cells.load(known["cell"]) == cell and len(job.text) < 4096
    assert json.loads(json.dumps(cell.identity)) == known["identity"]
    assert job.updates == updates, "of the skills and of the high level"


def test_a_job_on_other_data_is_refused(tiny_data: hilp.Dataset, tiny_data_folder: Path, tmp_path: Path) -> None:
    cell = cell_of(tiny_data, label="gc-bc", out=str(tmp_path))
    job = Job.of(1, replace(cell, recipe={"source": str(tiny_data_folder), "episodes": 20}))
    before = Path.cwd()
    result = json.loads(jobs.run(job.text))
    assert "is not the same data on" in result["problem"] and result["final"] and result["rows"] is None
    assert Path.cwd() == before


def test_another_version_of_hilp_is_not_taken_for_other_data() -> None:
    ours = {"data_fingerprint": "abc", "config": "1234", "updates": 10}
    job = {"title": "hilp", "identity": ours, "cell": {"recipe": {"source": "maze"}}}
    jobs.require_same(job, dict(ours))
    with pytest.raises(HilpError, match=r"\(config: 5678, not 1234\): install the same version of hilp"):
        jobs.require_same(job, {**ours, "config": "5678"})
    with pytest.raises(HilpError, match=r"not the same data on .* \(fingerprint xyz, not abc\)"):
        jobs.require_same(job, {**ours, "data_fingerprint": "xyz", "config": "5678"})


def test_progress_of_a_job_is_read_from_its_metrics(tmp_path: Path) -> None:
    job = fake_job(tmp_path)
    assert job.trained == 0
    (tmp_path / "out" / "1").mkdir(parents=True)
    (tmp_path / "out" / "1" / "metrics.jsonl").write_text('{"step": 10}\n{"step": 20}\n{"step": 3')
    assert job.trained == 20


# 441 cells are more than distances of all pairs are kept for.
FIELD = "\n".join(["#" * 23, *["#" + "." * 21 + "#"] * 21, "#" * 23])


def test_cells_train_a_shared_value_while_others_train_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hilp.collect(FIELD, "navigate", 2_000).save(tmp_path / "data")
    table = cells.Table("goals", "laptop", 20, 2, str(tmp_path / "out"), "hilp", errors=True)
    values = {"hidden": "8,8", "actor_hidden": "8,8", "batch": "32"}
    recipe = {"source": str(tmp_path / "data")}
    source = cells.load_source("goals", recipe)
    cell = cells.GoalCell(table, "hilp", Entry("hilp", values), recipe, 0, *source)
    where, _ = cell.value(methods.of(cell.config).reference(cell.config))
    order: list[str] = []
    monkeypatch.setattr(cells.Cell, "train", lambda *_: order.append("policy") or hilp.HilpError)
    monkeypatch.setattr(cells.Cell, "evaluate", lambda *_, **__: [])
    monkeypatch.setattr(cells.GoalCell, "embedding_error", lambda *_: {})
    monkeypatch.setattr(diagnosis.Reference, "train", lambda *_: order.append("V") or {"a": np.zeros(1)})
    with storage.locked(where, "another cell"):
        cell.run()
    assert order == ["policy"] and not (where / diagnosis.VALUE_WEIGHTS).is_file(), "another process trains it"
    cell.run()
    assert order == ["policy", "V", "policy"] and (where / diagnosis.VALUE_WEIGHTS).is_file()


def test_waiting_for_who_writes_a_folder(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with storage.locked(tmp_path, "second", wait=True):
            order.append("second")

    thread = threading.Thread(target=second)
    with storage.locked(tmp_path, "first"):
        thread.start()
        time.sleep(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


# ---- handing out -----------------------------------------------------------------------------------------------------


Answer = dict[str, Any]
DONE: Answer = {"rows": []}


class Pretended:
    """An engine that ends every try as a test says: by an answer, or by an error; None: not at all."""

    slots = 2

    def __init__(self, ends: Callable[[Job, int], Answer | Exception | None]) -> None:
        self.ends = ends
        self.tries: list[int] = []
        self.calls: list[str] = []

    def submit(self, job: Job) -> Future[str]:
        job.log.touch()
        self.tries.append(job.number)
        found: Future[str] = Future()
        answer = self.ends(job, self.tries.count(job.number))
        if isinstance(answer, Exception):
            found.set_exception(answer)
        elif answer is not None:
            found.set_result(json.dumps(answer))
        return found

    def stop(self) -> None:
        self.calls.append("stop")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def pooled(tmp_path: Path) -> Callable[..., dict[int, list[files.Row]]]:
    """Run three pretended jobs on an engine: the rows that were kept, by cell."""

    def run(engine: Any, retries: int = 2, keep: pool.Keep | None = None) -> dict[int, list[files.Row]]:
        kept: dict[int, list[files.Row]] = {}
        three = [fake_job(tmp_path, number) for number in (1, 2, 3)]
        pool.run_jobs(three, engine, retries, pool.Progress(three, 3, quiet=False), keep or kept.__setitem__)
        return kept

    return run


LOST = HilpError("lost")


def test_a_lost_process_is_tried_again_so_many_times(pooled: Any) -> None:
    engine = Pretended(lambda one, n: LOST if one.number == 2 and n < 3 else DONE)
    assert pooled(engine) == {1: [], 2: [], 3: []}
    assert engine.tries.count(2) == 3 and engine.tries.count(1) == 1
    with pytest.raises(HilpError, match=r"1 cell of 3 failed; cell \[2\]: lost"):
        pooled(Pretended(lambda one, n: LOST if one.number == 2 else DONE), retries=1)


def test_a_mistake_is_not_tried_again_and_keeps_no_other_cell_from_its_rows(pooled: Any, tmp_path: Path) -> None:
    mistake = {"rows": None, "problem": "no such thing", "final": True}
    engine = Pretended(lambda one, n: mistake if one.number < 3 else DONE)
    with pytest.raises(HilpError, match=r"2 cells of 3 failed \(cell \[1\], cell \[2\]\); cell \[1\]: no such thing"):
        pooled(engine)
    assert sorted(engine.tries) == [1, 2, 3]
    assert (tmp_path / "out" / "1.log").is_file() and not (tmp_path / "out" / "3.log").exists()


def test_ctrl_c_lets_cells_save_themselves(pooled: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def ends(one: Job, tries: int) -> Answer | None:
        if one.number == 3:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        return DONE if one.number == 1 else None

    engine = Pretended(ends)
    with pytest.raises(TrainingStopped, match="stopped with 1 of 3 missing cells done: give the command again"):
        pooled(engine)
    assert engine.calls == ["stop", "close"] and "2 cells will be saved" in capsys.readouterr().out


def test_rows_that_cannot_be_kept_stop_the_table(pooled: Any) -> None:
    def full(number: int, rows: list[files.Row]) -> None:
        raise HilpError("the disk is full")

    engine = Pretended(lambda one, n: DONE)
    with pytest.raises(HilpError, match="the disk is full"):
        pooled(engine, keep=full)
    assert engine.calls == ["stop", "close"]


def test_what_a_process_says_last_is_what_users_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = {1: "import sys; print('noise'); sys.exit('no such module')", 2: "import os; os.kill(os.getpid(), 9)",
                3: "print('noise'); print('{\"rows\": []}')"}  # fmt: skip
    engine = jobs.Processes(3)
    real = subprocess.Popen
    ended: dict[int, Future[str]] = {}
    try:
        for number, program in programs.items():
            job = fake_job(tmp_path, number)
            job.log.parent.mkdir(exist_ok=True)
            monkeypatch.setattr(
                subprocess, "Popen", lambda words, program=program, **more: real([words[0], "-c", program], **more)
            )
            ended[number] = engine.submit(job)
        wait(ended.values())
    finally:
        engine.close()
    found = {number: jobs.answer(future) for number, future in ended.items()}
    assert found[3] == ([], "", False)
    assert found[1][0] is None and not found[1][2]
    assert f"ended with code 1 ({tmp_path / 'out' / '1.log'}: no such module)" in found[1][1]
    assert "ended by SIGKILL" in found[2][1] and not found[2][2]


def test_the_live_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(pool, "REFRESH_SECONDS", 0.0)
    for name, value in {"COLUMNS": "120", "TTY_COMPATIBLE": "1"}.items():
        monkeypatch.setenv(name, value)
    three = [fake_job(tmp_path, number) for number in (1, 2, 3)]
    shown = pool.Progress(three, 3, False)
    with shown.bars:
        (tmp_path / "out" / "1").mkdir(parents=True)
        three[0].log.touch()
        shown.show([three[0]])
        assert shown.time_left() == "ETA unknown"
        shown.update(three[1], "failed", "no such thing")
        for step in (25, 50):
            (tmp_path / "out" / "1" / "metrics.jsonl").write_text(f'{{"step": {step}}}\n')
            time.sleep(0.01)
            shown.show([three[0]])
        assert shown.counts() == "0 done, 1 running, 1 waiting, 1 failed"
        assert shown.time_left().startswith("ETA 0:00:0")
        shown.update(three[2], "failed")
        (tmp_path / "out" / "1" / "metrics.jsonl").write_text('{"step": 100}\n')
        time.sleep(0.01)
        shown.show([three[0]])
        assert shown.time_left() == "all updates are done, cells evaluate", "and no ETA of 0"
        shown.update(three[0], "done")
        assert shown.counts() == "1 done, 0 running, 0 waiting, 2 failed"
    said = capsys.readouterr().err
    assert "cell [1]" in said and "50/100" in said and "no such thing" in said


# ---- processes -------------------------------------------------------------------------------------------------------


def test_two_jobs_make_the_rows_of_one_although_a_process_is_killed(
    tiny_data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--methods", "gc-bc", "--seeds", 2, "--steps", 3000, "--episodes", 2, *SMALL)
    one, two = tmp_path / "one", tmp_path / "two"
    assert table(one, tiny_data_folder, *words, "--json") == 0
    capsys.readouterr()
    with killing_once(two / "out" / "maze-medium-navigate"):
        assert table(two, tiny_data_folder, *words, "--jobs", 2) == 0
    said = capsys.readouterr().out
    assert "is tried again: its process was ended by SIGKILL" in said
    assert "cell 1 of 2: gc-bc, maze-medium-navigate, seed 0 done" in said
    assert rows_of(two) == rows_of(one) and len(rows_of(two)) == 2
    assert fingerprints(two) == fingerprints(one) and len(fingerprints(two)) == 2
    assert not [p.name for p in (two / "out").rglob("*") if p.name.endswith((".log", ".lock"))]
    assert table(two, tiny_data_folder, *words, "--jobs", 2, "--json") == 0, "nothing is left to do"


def test_a_mistake_that_only_the_process_sees_is_one_line(
    tiny_data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--methods", "gc-bc", "--seeds", 1, "--steps", 20, "--episodes", 2, "--jobs", 2, "--json")
    run = tmp_path / "out" / "maze-medium-navigate" / "gc-bc" / "seed-0"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")  # another run, which cannot be gone on with
    assert table(tmp_path, tiny_data_folder, *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("hilp: error: 1 cell of 1 failed; gc-bc, maze-medium-navigate, seed 0: cannot resume")


@contextlib.contextmanager
def killing_once(folder: Path) -> Iterator[None]:
    """Kill the process behind the first cell under a folder that has a checkpoint."""
    code = f"""
import os, signal, sys, time
from pathlib import Path
while True:
    for log in Path({str(folder)!r}).glob("*/seed-*.log"):
        if any((log.parent / log.name.split(".")[0]).glob("checkpoints/step-*")):
            os.kill(int(log.read_text().split()[1]), signal.SIGKILL)
            sys.exit()
    time.sleep(0.005)
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
        assert process.wait(timeout=1) == 0, "nothing was killed"
    finally:
        process.kill()
        process.wait()


def environments(engine: jobs.Processes, folder: Path, count: int) -> list[dict[str, str]]:
    """Of as many processes as they begin with."""
    found = []
    try:
        for number in range(count):
            job = fake_job(folder, number)
            job.log.parent.mkdir(exist_ok=True)
            engine.submit(job)
        for process in list(engine._running):
            text = wait_for(Path(f"/proc/{process.pid}/environ").read_text)  # empty until it has begun
            found.append(dict(pair.split("=", 1) for pair in text.split("\0") if pair))
    finally:
        engine.close()
    return found


@pytest.mark.parametrize(
    ("platforms", "visible", "expected", "share"),
    [
        ("", "3,5", ["3", "5", "3"], "0.450"),
        ("cuda", "GPU-8f", ["GPU-8f"] * 3, "0.300"),
        ("cpu", "3,5", ["3,5"] * 3, "0.300"),  # as the user has set it
        ("", "", [""] * 3, "0.300"),
    ],
)
def test_cells_share_out_the_cards(
    platforms: str, visible: str, expected: list[str], share: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = environments(jobs.Processes(3), tmp_path, 3)
    assert [own["CUDA_VISIBLE_DEVICES"] for own in found] == expected
    assert [own["XLA_PYTHON_CLIENT_MEM_FRACTION"] for own in found] == [share] * 3


def test_cards_are_those_that_the_driver_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(jobs, "DRIVER", tmp_path / "gpus")
    assert jobs.cards() == [] and "CUDA_VISIBLE_DEVICES" not in environments(jobs.Processes(1), tmp_path, 1)[0]
    for name in ("0000:01:00.0", "0000:41:00.0"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
    assert jobs.cards() == ["0", "1"]


def test_cells_end_when_the_table_does(tiny_data_folder: Path, tmp_path: Path) -> None:
    """Ctrl-C saves what runs; a killed command takes its cells with it; what is left goes on."""
    words = ["bench", "goals", "--data", tiny_data_folder, "--out", "out", "--methods", "gc-bc", "--seeds", 1,
             "--steps", 10**6, "--episodes", 2, "--jobs", 2, *SMALL]  # fmt: skip
    start = [
        sys.executable,
        "-c",
        f"{HEARD}; import sys; from hilp.cli import main; sys.exit(main())",
        *map(str, words),
    ]
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)):
        process = subprocess.Popen(start, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        try:
            metrics = wait_for(lambda: next(tmp_path.glob("out/*/*/seed-0/metrics.jsonl"), None))
            before = metrics.read_text().count("\n")
            wait_for(lambda path=metrics, n=before: path.read_text().count("\n") > n)
            child = int(next(tmp_path.glob("out/*/*/seed-0.*.log")).read_text().split()[1])
            process.send_signal(number)
            said = process.communicate(timeout=300)[1]
        finally:
            process.kill()  # nothing of a failed test trains on
        assert process.returncode == code, said
        wait_for(lambda pid=child: not is_running(pid))
        if number != signal.SIGKILL:
            assert "give the command again to go on" in said and any(metrics.parent.glob("checkpoints/step-*"))
        assert not (metrics.parent / ".lock").exists(), "saved, and not killed"


@pytest.mark.slow
def test_two_jobs_are_nearly_twice_as_fast(tiny_data_folder: Path, tmp_path: Path) -> None:
    """Against cells one after the other in one process, which starts only once; one thread each."""
    if jobs.cores() < 2 or os.getloadavg()[0] > 0.5:
        pytest.skip("needs two cores that nobody else uses")
    words = ["--methods", "gc-bc", "--seeds", 4, "--steps", 20_000, "--episodes", 2, "--json"]
    limits = jobs.limits(1, 1.0)
    seconds = {}
    for count in (1, 2):
        out = tmp_path / str(count)
        given = ["bench", "goals", "--data", tiny_data_folder, "--out", out, "--jobs", count, *words]
        start = [sys.executable, "-c", "import sys; from hilp.cli import main; sys.exit(main())", *map(str, given)]
        began = time.monotonic()
        subprocess.run(start, check=True, env={**os.environ, **limits}, stdout=subprocess.DEVNULL)
        seconds[count] = time.monotonic() - began
    print(f"one after the other {seconds[1]:.1f} s, two at once {seconds[2]:.1f} s")
    assert seconds[1] / seconds[2] >= 1.6, seconds


def test_cells_of_one_policy_wait_for_each_other(tmp_path: Path) -> None:
    """Two ways to prompt the same policy train in one folder."""
    one, same, other = (fake_job(tmp_path, number) for number in (1, 2, 3))
    same = replace(same, trainings=one.trainings)
    assert pool.next_job([same, other], []) is same
    assert pool.next_job([same, other], [one]) is other
    assert pool.next_job([same], [one]) is None


def is_running(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def wait_for(what: Callable[[], Any], seconds: float = 300.0) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError("in vain")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["--retries", "-1"], "--retries must be at least 0"),
        (["--address", "10.0.0.1:6379"], "--address is for --engine ray"),
        (["--engine", "ray", "--jobs", "2"], "--jobs is for --engine local"),
        (["--engine", "ray", "--gpus-per-cell", "1.5"], "--gpus-per-cell must be from 0 to 1"),
        (["--engine", "ray", "--cpus-per-cell", "1.5"], "--cpus-per-cell must be a whole number, or a fraction of 1"),
        (["--engine", "spark"], "--engine"),
        (["--engine", "ray", "--address", "localhost:1"], "no Ray cluster at localhost:1"),
    ],
)
def test_mistakes(words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert table(tmp_path, "maze-medium", *words) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_rows_that_cannot_be_written_are_told_before_anything_is_trained(
    tiny_data_folder: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    for rows, says in (("folder", "it is a folder"), ("file/rows.jsonl", "is no folder")):
        words = ("--data", tiny_data_folder, "--methods", "gc-bc", "--seeds", 1, "--steps", 2, *SMALL)
        said = refused("bench", "goals", *words, "--out", tmp_path.parent / "out", "--rows", tmp_path / rows)
        assert f"cannot write {tmp_path / rows}" in said and says in said


def test_without_ray_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert table(tmp_path, "maze-medium", "--engine", "ray") == 2
    said = capsys.readouterr().err
    assert "pip install 'hilp[ray]'" in said and said.count("\n") == 1
