"""Tables of results: cells are trained once, go on after an interruption, and are read the way the paper's are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hilp import cli, evaluation, paper
from hilp.bench import table

SMALL = ["--set", "entrance=8,8", "--set", "hidden=8", "--set", "batch=32", "--steps", "20", "--episodes", "2"]


def bench(tmp_path: Path, data: Path, *words: str) -> int:
    out = ["--out", str(tmp_path / "out"), "--rows", str(tmp_path / "rows.jsonl")]
    return cli.main(["bench", "rewards", "--data", str(data), *SMALL, *out, *words])


def test_a_table_is_filled_once_and_only_what_it_lacks_is_run(
    tmp_path: Path, tiny_data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--methods", "gc-td3", "fb", "--seeds", "2")
    assert bench(tmp_path, tiny_data_folder, "--methods", "fb", "--seeds", "1", "--json") == 0
    first = evaluation.read_rows(tmp_path / "rows.jsonl")
    assert [row["reward"] for row in first] == ["region", "avoid", "corridor"]
    assert {row["cell"]["label"] for row in first} == {"fb"} and all(row["random"] >= 0 for row in first)
    capsys.readouterr()
    assert bench(tmp_path, tiny_data_folder, *words) == 0
    said = capsys.readouterr().out
    assert "cell 1 of 4: gc-td3" in said and "cell 2 of 4" not in said, "fb, seed 0 was there"
    rows = evaluation.read_rows(tmp_path / "rows.jsonl")
    assert len(rows) == 4 * 3 and rows[:3] == first
    assert "IQM" in said and "random actions" in said
    assert (tmp_path / "out" / "rewards-data-maze-medium-navigate.png").is_file()
    assert bench(tmp_path, tiny_data_folder, *words, "--json") == 0
    assert evaluation.read_rows(tmp_path / "rows.jsonl") == rows, "the second time nothing is left to do"
    told = json.loads(capsys.readouterr().out)
    headers, lines = told["tables"]["maze-medium-navigate"]
    assert headers == ["method", "region", "avoid", "corridor", "IQM [95%]"]
    assert [line[0] for line in lines] == ["gc-td3", "fb", "random actions"]
    assert told["beside_the_paper"]["maze-medium-navigate"] is None


def test_a_sweep_has_a_row_for_each_value(tmp_path: Path, tiny_data_folder: Path) -> None:
    assert bench(tmp_path, tiny_data_folder, "--methods", "fb", "--seeds", "1", "--sweep", "dim=2,4") == 0
    rows = evaluation.read_rows(tmp_path / "rows.jsonl")
    assert {row["cell"]["label"]: row["config"]["dim"] for row in rows} == {"fb dim=2": 2, "fb dim=4": 4}
    assert (tmp_path / "out" / "rewards-sweep-dim.png").is_file()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--methods", "sf-hlip"], "did you mean 'sf-hilp'"),
        (["--set", "dmi=3"], "did you mean 'dim'"),
        (["--sweep", "dim"], "--sweep takes key=value"),
        (["--sweep", "loss=vector,q", "--methods", "sf-lap"], "drawn against numbers"),
        (["--sweep", "dim=2,4", "--methods", "gc-td3"], "none of these methods"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--preset", "huge"], "unknown preset"),
        (["--data", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_told_in_one_line(
    tmp_path: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", "rewards", "--out", str(tmp_path / "out"), "--methods", "fb", *words]) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


def test_other_config_values_are_another_cell(tmp_path: Path, tiny_data_folder: Path) -> None:
    words = ("--methods", "fb", "--seeds", "1", "--json")
    assert bench(tmp_path, tiny_data_folder, *words) == bench(tmp_path, tiny_data_folder, *words, "--set", "dim=3") == 0
    rows = evaluation.read_rows(tmp_path / "rows.jsonl")
    assert [row["config"]["dim"] for row in rows] == [32] * 3 + [3] * 3


def test_goals_table_has_a_line_for_each_plan(
    tmp_path: Path, tiny_data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "out"), "--rows", str(tmp_path / "rows.jsonl"), "--data", str(tiny_data_folder)]
    small = ["--steps", "20", "--episodes", "4", "--seeds", "1", "--set", "actor_hidden=8,8", "--set", "batch=32"]
    assert cli.main(["bench", "goals", "--methods", "gc-bc", "hilp", "iql-rand", *small, *out]) == 0
    said = capsys.readouterr().out
    assert all(label in said for label in ("gc-bc", "hilp-plan", "hilp, plan auto", "iql-rand"))
    rows = evaluation.read_rows(tmp_path / "rows.jsonl")
    assert [(row["method"], row["plan"]) for row in rows] == [
        ("gc-bc", 0), *(("hilp", plan) for plan in (0, 1, 2, 3, "auto")), ("iql-rand", 0)]  # fmt: skip
    assert (tmp_path / "out" / "goals-plan-maze-medium-navigate-hilp.png").is_file()


# ---- reading rows ----------------------------------------------------------------------------------------------------


def row(label: str, reward: str, score: float, seed: int = 0, **more: Any) -> dict[str, Any]:
    cell = {"label": label, "data": "walker-rnd", "seed": seed}
    return {"cell": cell, "task": "walker", "reward": reward, "metric": "return", "score": score, "random": 20.0,
            "best_possible": None, **more}  # fmt: skip


def test_scores_are_shares_where_the_best_is_known_and_returns_elsewhere() -> None:
    assert table.score(row("fb", "run", 60.0, best_possible=100.0)) == pytest.approx(0.5)
    assert table.score(row("fb", "run", 60.0)) == 60.0
    pytest.importorskip("dm_control")
    assert table.score(row("fb", "reach_top_left", 60.0, task="jaco")) == 240.0, "jaco counts four times"


def test_table_and_aggregates_by_hand() -> None:
    pytest.importorskip("dm_control")
    rows = [row("fb", "run", 100.0), row("fb", "run", 200.0, 1), row("fb", "walk", 400.0), row("fb", "walk", 400.0, 1)]
    headers, lines = table.table(rows)
    assert headers == ["method", "run", "walk", "IQM [95%]"]
    assert lines[0][:3] == ["fb", "150 ± 50", "400 ± 0.00"] and lines[0][3].startswith("300")
    assert lines[1] == ["random actions", "20", "20", ""]
    assert table.aggregates(rows, "environment")["walker"]["fb"][0] == pytest.approx(300.0)
    assert set(table.aggregates(rows, "task")) == {"walker run", "walker walk"}
    assert set(table.aggregates(rows, "data")) == {"walker-rnd"}


def test_the_papers_numbers_stand_beside_ours() -> None:
    headers, lines = table.paper_table([row("sf-hilp", "run", 100.0)]) or ([], [])
    assert headers == ["method", "run (ours / paper)"]
    assert lines == [["sf-hilp", f"100 / {paper.zero_shot('walker', 'run', 'sf-hilp', 'rnd')[0]:.0f}"]]
