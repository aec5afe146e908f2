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
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hilp
from hilp import cli, storage
from hilp.bench import board, cells, engines, hierarchy, orders
from hilp.bench.orders import Order
from hilp.errors import HilpError, TrainingStopped
from hilp.evaluation import rows as files

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


# ---- orders ----------------------------------------------------------------------------------------------------------


def order(folder: Path, **more: Any) -> Order:
    known: dict[str, Any] = {
        "number": 1, "title": "hilp, maze, seed 0", "job": "cell", "settings": {}, "identity": {}, "recipe": {},
        "command": "hilp bench", "folder": str(folder), "out": "out", "trainings": {"out/run": 100},
        "place": "out/run.cell"}  # fmt: skip
    return Order(**known | more)


def test_an_order_is_text_and_its_cell_is_the_same_again(tiny_data: hilp.Dataset, tmp_path: Path) -> None:
    entry = cells.Entry("hilp", {"dim": "4"})
    known: dict[str, Any] = {"source": "data", "data": tiny_data, "seed": 3, "size": "laptop", "steps": 20,
                             "episodes": 2, "intercept": False, "errors": False, "curve_points": 0}  # fmt: skip
    made = [cells.Cell("goals", "hilp", entry, **known),
            hierarchy.HierarchyCell("hierarchy", "hilp", entry, **known, reward="target", high_steps=5,
                                    high_values=(("batch", "32"),))]  # fmt: skip
    for cell in made:
        world = cells.world_of("goals", "data", tiny_data)
        (ordered,) = orders.of_cells([cells.Missing(1, cell, world)], tmp_path, {"data": {"source": "x"}}, "hilp")
        again = Order.read(ordered.text())
        assert again == ordered and len(ordered.text()) < 4096
        assert type(cell).of(again.settings, tiny_data) == cell
        assert json.loads(json.dumps(cell.identity)) == again.identity
    assert ordered.updates == 25, "of the skills and of the high level"


def test_an_order_on_other_data_is_refused(tiny_data: hilp.Dataset, tiny_data_folder: Path, tmp_path: Path) -> None:
    known: dict[str, Any] = {"source": "data", "data": tiny_data, "seed": 3, "size": "laptop", "steps": 20,
                             "episodes": 2, "intercept": False, "errors": False, "curve_points": 0}  # fmt: skip
    cell = cells.Cell("goals", "gc-bc", cells.Entry("gc-bc"), **known)
    recipe = {"source": str(tiny_data_folder), "episodes": 20}
    world = cells.world_of("goals", "data", tiny_data)
    (ordered,) = orders.of_cells([cells.Missing(1, cell, world)], tmp_path, {"data": recipe}, "hilp")
    before = Path.cwd()
    with pytest.raises(HilpError, match="is not the same data on"):
        orders.carry_out(ordered)
    assert Path.cwd() == before


def test_another_version_of_hilp_is_not_taken_for_other_data(tmp_path: Path) -> None:
    ours = {"data_fingerprint": "abc", "config": "1234", "updates": 10}
    ordered = order(tmp_path, identity=ours, recipe={"source": "maze"})
    orders.require_same(ordered, dict(ours))
    with pytest.raises(HilpError, match=r"\(config: 5678, not 1234\): install the same version of hilp"):
        orders.require_same(ordered, {**ours, "config": "5678"})
    with pytest.raises(HilpError, match=r"not the same data on .* \(fingerprint xyz, not abc\)"):
        orders.require_same(ordered, {**ours, "data_fingerprint": "xyz", "config": "5678"})


def test_progress_of_an_order_is_read_from_its_metrics(tmp_path: Path) -> None:
    ordered = order(tmp_path)
    assert ordered.trained == 0
    (tmp_path / "out" / "run").mkdir(parents=True)
    (tmp_path / "out" / "run" / "metrics.jsonl").write_text('{"step": 10}\n{"step": 20}\n{"step": 3')
    assert ordered.trained == 20


# 441 cells are more than distances of all pairs are kept for.
FIELD = "\n".join(["#" * 23, *["#" + "." * 21 + "#"] * 21, "#" * 23])


def test_a_value_that_cells_share_is_an_order_of_its_own(tmp_path: Path) -> None:
    data = hilp.collect(FIELD, "navigate", 2_000)
    data.save(tmp_path / "data")
    data = hilp.load(tmp_path / "data")
    world = cells.world_of("goals", "data", data)
    values = {"hidden": "8,8", "actor_hidden": "8,8", "batch": "32"}
    entries = {"hilp": cells.Entry("hilp", values), "gc-bc": cells.Entry("gc-bc", {"actor_hidden": "8,8"})}
    made = [
        cells.Cell("goals", label, entries[label], "data", data, seed, "laptop", 20, 2, False, True, 0)
        for label, seed in [("gc-bc", 0), ("hilp", 0), ("hilp", 1)]
    ]
    missing = [cells.Missing(n, cell, world) for n, cell in enumerate(made, 1)]

    def ordered() -> list[Order]:
        return orders.of_cells(missing, tmp_path / "out", {"data": {"source": str(tmp_path / "data")}}, "hilp")

    assert [one.job for one in ordered()] == ["value", "cell", "cell", "cell"], "once, and before who waits for it"
    before = Path.cwd()
    try:
        orders.carry_out(ordered()[0])
    finally:
        os.chdir(before)
    folder, value = missing[1].cell.shared_value(world, tmp_path / "out") or (None, None)
    assert folder is not None and value is not None and value.is_in(folder)
    assert [one.job for one in ordered()] == ["cell"] * 3


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


class Pretended:
    """An engine that ends every try as it is told to."""

    def __init__(self, ends: Callable[[Order, int], engines.Ended], interrupt: bool = False) -> None:
        self.ends, self.interrupt = ends, interrupt
        self.taken: list[Order] = []
        self.tries: list[str] = []
        self.said: list[str] = []

    @property
    def room(self) -> bool:
        return len(self.taken) < 2

    def submit(self, order: Order) -> None:
        self.taken.append(order)

    def ended(self) -> list[engines.Ended]:
        if self.interrupt and len(self.tries) == 1:
            raise KeyboardInterrupt
        one = self.taken.pop(0)
        self.tries.append(one.title)
        return [self.ends(one, self.tries.count(one.title))]

    def stop(self) -> None:
        self.said.append("stop")

    def close(self) -> None:
        self.said.append("close")


@pytest.fixture
def handed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[int, list[files.Row]]]:
    """Run three pretended orders on an engine: the rows that were kept, by cell."""
    three = [order(tmp_path, number=n, title=f"cell {n}", place=f"out/{n}.cell",
                   trainings={f"out/{n}": 100}) for n in (1, 2, 3)]  # fmt: skip
    monkeypatch.setattr(engines, "of_cells", lambda *_: three)

    def run(engine: Pretended, retries: int = 2) -> dict[int, list[files.Row]]:
        kept: dict[int, list[files.Row]] = {}
        engines.run(three, 3, kept.__setitem__, engine=engine, retries=retries, out=tmp_path, recipes={},  # type: ignore[arg-type]
                    command="hilp", board=board.Board(True, engine.said.append))  # fmt: skip
        return kept

    return run


def lost(order: Order) -> engines.Ended:
    return engines.Ended(order, None, "lost")


def test_a_lost_process_is_tried_again_so_many_times(handed_out: Any) -> None:
    engine = Pretended(lambda one, n: lost(one) if one.number == 2 and n < 3 else engines.Ended(one, []))
    assert handed_out(engine) == {1: [], 2: [], 3: []}
    assert engine.tries.count("cell 2") == 3 and engine.tries.count("cell 1") == 1
    with pytest.raises(HilpError, match=r"1 cell of 3 failed; cell 2: lost"):
        handed_out(Pretended(lambda one, n: lost(one) if one.number == 2 else engines.Ended(one, [])), retries=1)


def test_a_mistake_is_not_tried_again_and_keeps_no_other_cell_from_its_rows(handed_out: Any, tmp_path: Path) -> None:
    engine = Pretended(lambda one, n: engines.Ended(one, None, "no such thing", True) if one.number < 3 else
                       engines.Ended(one, []))  # fmt: skip
    with pytest.raises(HilpError, match=r"2 cells of 3 failed \(cell 1, cell 2\); cell 1: no such thing"):
        handed_out(engine)
    assert sorted(engine.tries) == ["cell 1", "cell 2", "cell 3"]
    assert (tmp_path / "out" / "1.cell").is_dir() and not (tmp_path / "out" / "3.cell").exists()


def test_ctrl_c_lets_cells_save_themselves(handed_out: Any) -> None:
    engine = Pretended(lambda one, n: engines.Ended(one, []), interrupt=True)
    with pytest.raises(TrainingStopped, match="stopped with 1 of 3 missing cells done: give the command again"):
        handed_out(engine)
    assert engine.said[-2:] == ["stop", "close"] and "2 cells will be saved" in engine.said[-3]


def test_what_a_process_says_last_is_what_is_told(tmp_path: Path) -> None:
    ordered = order(tmp_path)
    ordered.prepare()
    (ordered.at / "log").write_text("hilp: note\nhilp: error: no such file\n\n")
    assert engines.outcome(ordered, 2)[1:] == (None, "no such file", True)
    assert "ended by SIGKILL" in engines.outcome(ordered, -9).problem and not engines.outcome(ordered, -9).final


def test_the_live_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(board, "REFRESH_SECONDS", 0.0)
    monkeypatch.setenv("COLUMNS", "120")
    three = [order(tmp_path, number=n, title=f"cell [{n}]", place=f"out/{n}.cell",
                   trainings={f"out/{n}": 100}) for n in (1, 2, 3)]  # fmt: skip
    shown = board.Board(False, print)
    with shown.showing(three, 3):
        three[0].prepare()
        (three[0].at / orders.STARTED).touch()
        (tmp_path / "out" / "1").mkdir()
        (tmp_path / "out" / "1" / "metrics.jsonl").write_text('{"step": 50}\n')
        shown.failed(three[1], "no such thing")
        time.sleep(0.01)
        shown.show({three[0].place})
        assert shown.summary().startswith("0 done, 1 running, 1 waiting, 1 failed, ETA 0:00:0")
        shown.done(three[0])
        assert shown.summary().startswith("1 done, 0 running, 1 waiting, 1 failed, ETA")
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
    assert not [p.name for p in (two / "out").rglob("*") if p.name.endswith((".cell", ".lock"))]
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
import json, os, signal, sys, time
from pathlib import Path
while True:
    for cell in Path({str(folder)!r}).glob("*/*.cell/started"):
        if any(cell.parent.with_suffix("").glob("checkpoints/step-*")):
            os.kill(json.loads(cell.read_text())["pid"], signal.SIGKILL)
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


def environments(engine: engines.Local, folder: Path, count: int) -> list[dict[str, str]]:
    """Of as many processes as they begin with."""
    found = []
    try:
        for number in range(count):
            own = order(folder, place=f"out/{number}")
            own.at.mkdir(parents=True)
            engine.submit(own)
        for process in engine._running:
            text = Path(f"/proc/{process.pid}/environ").read_text()
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
    found = environments(engines.Local(3), tmp_path, 3)
    assert [own["CUDA_VISIBLE_DEVICES"] for own in found] == expected
    assert [own["XLA_PYTHON_CLIENT_MEM_FRACTION"] for own in found] == [share] * 3


def test_cards_are_those_that_the_driver_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(engines, "DRIVER", tmp_path / "gpus")
    assert engines.cards() == [] and "CUDA_VISIBLE_DEVICES" not in environments(engines.Local(1), tmp_path, 1)[0]
    for name in ("0000:01:00.0", "0000:41:00.0"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
    assert engines.cards() == ["0", "1"]


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
            child = json.loads(next(tmp_path.glob("out/*/*/seed-0.cell/started")).read_text())["pid"]
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
    if engines.cores() < 2 or os.getloadavg()[0] > 0.5:
        pytest.skip("needs two cores that nobody else uses")
    words = ["--methods", "gc-bc", "--seeds", 4, "--steps", 20_000, "--episodes", 2, "--json"]
    limits = engines.limits(1, 1.0)
    seconds = {}
    for jobs in (1, 2):
        out = tmp_path / str(jobs)
        given = ["bench", "goals", "--data", tiny_data_folder, "--out", out, "--jobs", jobs, *words]
        start = [sys.executable, "-c", "import sys; from hilp.cli import main; sys.exit(main())", *map(str, given)]
        began = time.monotonic()
        subprocess.run(start, check=True, env={**os.environ, **limits}, stdout=subprocess.DEVNULL)
        seconds[jobs] = time.monotonic() - began
    print(f"one after the other {seconds[1]:.1f} s, two at once {seconds[2]:.1f} s")
    assert seconds[1] / seconds[2] >= 1.6, seconds


def test_cells_of_one_policy_wait_for_each_other() -> None:
    """Two ways to ask the same policy train in one folder."""
    one, same, other = (SimpleNamespace(trainings={folder: 10}) for folder in ("a", "a", "b"))
    assert engines._next([same, other], {"place": one}) is other  # type: ignore[dict-item, list-item]
    assert engines._next([same], {"place": one}) is None  # type: ignore[dict-item, list-item]
    assert engines._next([same], {}) is same  # type: ignore[list-item]


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
