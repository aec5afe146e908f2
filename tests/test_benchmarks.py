"""The benchmarks of speed and memory: a line each, with a ratio against something measured in the same run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import adroit_door
import large_data
import speed
import timing


@pytest.mark.parametrize("name", ["plan", "act_numpy", "maze_frames"])
def test_a_benchmark_is_a_line_with_a_ratio(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing.best, "__defaults__", (2,))
    (line,) = speed.measure([name])
    assert line["name"] == name and line["value"] > 0 and line["ratio"] > 0
    assert {"unit", "against"} <= line.keys() and json.loads(json.dumps(line)) == line


def test_large_data_is_converted_and_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_data, "TRANSITIONS", 2_000)
    (line,) = large_data.measure(["convert"])
    assert line["name"] == "convert" and line["value"] > 10 and "2,000 transitions" in line["against"]


def test_kept_rows_are_those_of_benchmarks_that_exist() -> None:
    text = (Path(speed.__file__).parent / "speed.jsonl").read_text()
    assert {json.loads(line)["name"] for line in text.splitlines()} <= speed.BENCHMARKS.keys()


def test_operations_are_counted_by_hand() -> None:
    parts = speed.update_flops(1, 1, 1, 1, 1)
    assert parts["phi, 2 members, s and g"] == 4 * 2 * (1 + 2 + 1)
    assert parts["phi backward"] == 4 * (2 * 2 * (1 + 2 + 1) - 2), "the first layer needs no gradient of its input"


def test_an_unknown_name_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["speed.py", "--only", "trian_step"])
    with pytest.raises(SystemExit):
        speed.main()
    assert "trian_step" in capsys.readouterr().err


def test_a_value_to_set_without_a_value_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["adroit_door.py", "door.npz", "--set", "chunk"])
    with pytest.raises(SystemExit) as ended:
        adroit_door.main()
    assert ended.value.code == 2 and "--set takes key=value, not 'chunk'" in capsys.readouterr().err
