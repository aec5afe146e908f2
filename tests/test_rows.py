"""Rows: the schema, the committed rows, and one line about rows that make no sense."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from hilp.errors import HilpError
from hilp.evaluation import rows as files
from hilp.storage import lines

ROOT = Path(__file__).parents[1]
KEPT = sorted((ROOT / "benchmarks").glob("*.jsonl"))
OF_EVALUATIONS = [file for file in KEPT if re.match("goals|zero-shot", file.name)]


def goal(**changes: Any) -> dict[str, Any]:
    """A row of a goal prompt; a value of `...` leaves the field out."""
    row = {
        "task": "maze-medium", "method": "hilp", "policy": "f" * 32, "prompt": "goal", "plan": 0, "metric": "success",
        "score": 0.5, "interval": [0.1, 0.9], "episodes": 2, "outcomes": [1.0, 0.0], "lengths": [3, 15],
    }  # fmt: skip
    return {name: value for name, value in {**row, **changes}.items() if value is not ...}


def written(path: Path, *rows: dict[str, Any] | str) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.name)
def test_every_kept_line_reads(file: Path) -> None:
    assert len(lines.read(file)) > 0
    if file in OF_EVALUATIONS:
        rows = files.read_rows(file)
        assert len(rows) == len(lines.read(file))
        assert all(("cell" in row) != row["command"].startswith("hilp evaluate") for row in rows), "cells are of tables"
        assert {name for row in rows for name in row} <= files.FIELDS.keys()


def test_kept_rows_of_evaluations_are_those_that_were_looked_for() -> None:
    assert len(OF_EVALUATIONS) >= 12  # a glob that finds nothing would test nothing


def test_rows_with_fewer_and_with_unknown_fields(tmp_path: Path) -> None:
    bare = goal(interval=..., outcomes=..., lengths=...)
    later = goal(best_evaluation={"step": 3, "success": 0.2}, of_a_later_version={"anything": [None]})
    assert files.read_rows(written(tmp_path / "rows.jsonl", bare, later)) == [bare, later]


ODD: list[tuple[str, Any]] = [
    ("task", 3), ("task", ...), ("task", None), ("method", ["hilp"]), ("policy", ...), ("policy", 1),
    ("prompt", "skill"), ("prompt", ["goal"]), ("metric", None), ("score", "0.5"), ("score", None), ("score", True),
    ("score", 1.5), ("score", -0.1), ("score", float("nan")), ("score", float("inf")), ("score", 10**400),
    ("score", 1e300), ("episodes", 0), ("episodes", 2.0), ("episodes", 10**30), ("episodes", -1), ("plan", -1),
    ("plan", "deep"), ("plan", True), ("plan", ...), ("interval", [0.1]), ("interval", [0.9, 0.1]),
    ("interval", "wide"), ("interval", [float("nan"), 1]), ("interval", None), ("outcomes", [1.0]),
    ("outcomes", [1, "x"]), ("outcomes", 3), ("lengths", [1, -2]), ("lengths", [1.5, 2]),
    ("mean_length_of_successes", "long"), ("r2", "<b>"), ("r2", 10**400), ("possible", [float("inf"), 1.0]),
    ("config", [1]), ("train_steps", -1), ("train_seed", "a"), ("data", {}), ("versions", {"jax": 1}),
    ("versions", []), ("evaluation_seed", 1.5), ("command", 1), ("best_evaluation", {"step": "x"}), ("cell", "fb"),
    ("cell", {"label": "fb"}), ("cell", {"label": 1, "data": "x"}), ("embedding", {"mse": 1.0}),
    ("embedding", {"against": "exact", "mse": "x"}), ("curve", [{"step": 1}]), ("curve", {"step": 1}),
    ("spec", "goal"), ("spec", {"kind": "gaol"}), ("spec", {"kind": "goal", "plan": -1}),
    ("rule", 2), ("random", None), ("best_possible", [1]), ("steps", "many"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), ODD, ids=lambda value: str(value)[:20])
def test_one_line_names_file_line_and_field_of_an_odd_row(tmp_path: Path, name: str, value: Any) -> None:
    path = written(tmp_path / "rows.jsonl", goal(), goal(**{name: value}))
    with pytest.raises(HilpError, match=rf"rows\.jsonl line 2\b.*'{name}'") as error:
        files.read_rows(path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_a_reward_row_has_a_reward(tmp_path: Path) -> None:
    row = goal(prompt="reward", metric="return", score=600.0)
    with pytest.raises(HilpError, match="line 1: a reward prompt must have a 'reward'"):
        files.read_rows(written(tmp_path / "rows.jsonl", row))
    assert files.read_rows(written(tmp_path / "rows.jsonl", {**row, "reward": "run"}))


def test_nothing_is_written_of_rows_that_make_no_sense(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with pytest.raises(HilpError, match=r"row 2 for .*: 'score' must be a number"):
        files.append_rows(path, [goal(), goal(score=float("nan"))])  # type: ignore[list-item]
    assert not path.exists()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        *(({"loss": 1}, "'step'"), ({"step": "x"}, "'step'"), ({"step": -1}, "'step'")),
        ({"step": 1, "phi_loss": [1]}, "'phi_loss'"),
        *(({"step": 1, "evaluation_step": odd}, "'evaluation_step'") for odd in (math.nan, math.inf, -5, 2.5)),
        *(({"step": 1, key: math.nan}, f"'{key}'") for key in ("success", "success_plan")),
    ],
)
def test_one_line_about_odd_metrics(tmp_path: Path, line: dict[str, Any], says: str) -> None:
    path = written(tmp_path / "metrics.jsonl", {"step": 1, "phi_loss": 0.5}, '{"step": 2, "phi_loss": NaN}', line)
    with pytest.raises(HilpError, match=f"line 3: {says}"):
        files.read_metrics(path)


def test_the_schema_is_written_down_for_users() -> None:
    page = (ROOT / "docs" / "rows.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", page, flags=re.M))
    wanted = {name: kind.words + (", always" if name in files.ALWAYS else "") for name, kind in files.FIELDS.items()}
    assert told == wanted
