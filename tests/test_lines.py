"""Files of JSON lines: whole or not at all, through kills, full disks and two writers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hilp.errors import HilpError
from hilp.storage import lines

ROWS: list[dict[str, Any]] = [{"n": 1}, {"n": 2, "text": "ü"}, {"n": 3}]


def values(path: Path) -> list[dict[str, Any]]:
    return [value for _, value in lines.read(path)]


def test_lines_are_added_behind_each_other(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rows.jsonl"
    lines.append(path, ROWS[:1])
    lines.append(path, ROWS[1:])
    assert values(path) == ROWS and [number for number, _ in lines.read(path)] == [1, 2, 3]
    assert path.read_text().count("\n") == 3
    assert [name.name for name in path.parent.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_torn_last_line_is_left_out_then_cut_off_and_told(
    tmp_path: Path, cut: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    lines.append(path, ROWS)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"\n" + b'{"n": 4, "x":'[:cut])
    assert values(path) == ROWS
    assert (
        capsys.readouterr().err
        == f"hilp: note: the last line of {path} is torn (a write was stopped) and is left out\n"
    )
    assert path.read_bytes() != whole, "reading changes nothing"
    lines.append(path, [{"n": 5}])
    assert capsys.readouterr().err.count("was cut off") == 1
    assert path.read_bytes() == whole + b'{"n": 5}\n'
    assert values(path) == [*ROWS, {"n": 5}] and capsys.readouterr().err == ""


def test_a_line_may_be_torn_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    numbers = "0, -1, 12.5e-3, 1E+10, NaN, Infinity, -Infinity, true, false, null"
    line = f'{{"n": [{numbers}], "ü\\u00fc\\n": {{}}, "x": {{"y": ["z", {{}}], "\\ud83d\\ude00": "\\\\"}}}}'.encode()
    for cut in range(1, len(line)):
        path.write_bytes(b'{"n": 1}\n' + line[:cut])
        assert values(path) == [{"n": 1}], line[:cut]
    path.write_bytes(line)
    assert len(values(path)) == 1


@pytest.mark.parametrize(
    "tail",
    [
        *(b"[]", b'[{"n": 1}]', b'[{"n": 1}', b"3", b"nul", b"name,score", b"{not json", b'{"n": 1}}', b'{"n": 1} x'),
        *(b'{"n" 1', b'{"n": 1, "m": truth', b'{"n": "\xff"', b'{"n": 1}\xc3', b"\x89PNG", b'{"n": ' + b"[" * 100_000),
    ],
)
def test_a_last_line_that_is_something_else_is_left_alone(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "old.json"
    for before in (b"", b'{"n": 1}\n'):
        path.write_bytes(before + tail)
        for work in (lambda: lines.read(path), lambda: lines.append(path, ROWS)):
            with pytest.raises(HilpError, match=f"old.json line {1 + bool(before)} is damaged"):
                work()
        assert path.read_bytes() == before + tail


def test_a_last_line_that_only_lacks_its_end_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"n": 1}\n\n{"n": 2}')
    assert values(path) == [{"n": 1}, {"n": 2}]
    lines.append(path, [{"n": 3}])
    assert values(path) == [{"n": 1}, {"n": 2}, {"n": 3}] and capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (b"not json", "not JSON"),
        (b'{"n": 1', "not JSON"),
        (b'{"n": ' + b"1" * 5000 + b"}", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"n": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_damage_in_the_middle_is_an_error_that_names_it(tmp_path: Path, damage: bytes, says: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"n": 1}\n' + damage + b'\n{"n": 3}\n')
    before = path.read_bytes()
    with pytest.raises(HilpError, match=f"rows.jsonl line 2 is damaged: it is {says}"):
        lines.read(path)
    with pytest.raises(HilpError, match="line 2 is damaged"):
        lines.append(path, ROWS)
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(HilpError, match="cannot read"):
        lines.read(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "rows.jsonl", tmp_path):
        with pytest.raises(HilpError, match="cannot write"):
            lines.append(path, ROWS)


def test_lines_are_replaced_in_the_same_step(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    lines.append(path, ROWS)
    lines.append(path, [{"n": 4}], instead_of=lambda value: value["n"] < 3)
    assert values(path) == [{"n": 3}, {"n": 4}]
    node = path.stat().st_ino
    lines.append(path, [{"n": 5}], instead_of=lambda value: value["n"] == 7)
    assert path.stat().st_ino == node, "nothing to replace: it only grows"


def test_a_full_disk_takes_all_or_nothing(tmp_path: Path) -> None:
    """The system refuses what would make the file larger than 4 KB: at first a part is taken, then nothing."""
    path = tmp_path / "rows.jsonl"
    code = """
import resource, sys
from hilp.errors import HilpError
from hilp.storage import lines
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for size in (1500, 9000, 100):
    try:
        lines.append(sys.argv[1], [{"size": size, "x": "x" * (size // 3)}, {"x": "x" * (2 * size // 3)}])
        print("added", size)
    except HilpError as error:
        print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["added 1500", f"cannot write {path}: File too large", "added 100"]
    assert [value.get("size") for value in values(path)] == [1500, None, 100, None]


def test_a_disk_that_fills_in_the_middle_of_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.jsonl"
    lines.append(path, ROWS)
    real, calls = os.pwrite, []

    def fills(handle: int, data: bytes, offset: int) -> int:
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return real(handle, data[:5], offset)

    monkeypatch.setattr(os, "pwrite", fills)
    with pytest.raises(HilpError, match=r"cannot write .*: No space left on device"):
        lines.append(path, ROWS)
    monkeypatch.undo()
    assert len(calls) == 2 and values(path) == ROWS


def test_a_kill_while_writing_loses_nothing_that_was_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    lines.append(path, ROWS)
    code = """
import os, signal, sys
from hilp.storage import lines
real = os.pwrite
def killed(handle, data, offset):
    real(handle, data[: len(data) // 2], offset)
    os.kill(os.getpid(), signal.SIGKILL)
os.pwrite = killed
lines.append(sys.argv[1], [{"n": 4}, {"n": 5}, {"n": 6}])
"""
    assert subprocess.run([sys.executable, "-c", code, str(path)]).returncode == -9
    assert values(path) == [*ROWS, {"n": 4}]
    lines.append(path, [{"n": 7}])
    assert values(path) == [*ROWS, {"n": 4}, {"n": 7}]
    assert capsys.readouterr().err.count("torn") == 2


def test_writers_at_the_same_time_keep_each_others_lines_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    code = """
import sys
from hilp.storage import lines
who = sys.argv[2]
for n in range(40):
    own = [{"who": who, "n": n, "part": part, "x": "x" * 3000} for part in range(3)]
    # Every tenth time the file is written anew, which the others must notice.
    lines.append(sys.argv[1], own, instead_of=(lambda v: v["who"] == who and v["n"] == n - 1) if n % 10 == 0 else None)
"""
    running = [subprocess.Popen([sys.executable, "-c", code, str(path), who]) for who in "ab"]
    assert [process.wait() for process in running] == [0, 0]
    found = [(value["who"], value["n"], value["part"]) for value in values(path)]
    wanted = [n for n in range(40) if n % 10 != 9 or n == 39]
    for who in "ab":
        assert [(n, part) for w, n, part in found if w == who] == [(n, part) for n in wanted for part in range(3)]
    assert all(found[i][:2] == found[i + 1][:2] == found[i + 2][:2] for i in range(0, len(found), 3)), "whole cells"
