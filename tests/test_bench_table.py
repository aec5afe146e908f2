"""Tables of results: cells are trained once, go on after an interruption, and are read the way the paper's are."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import cli
from hilp.bench import cells, tables
from hilp.evaluation import rows as files
from hilp.evaluation import stats
from hilp.learning import methods
from hilp.report import paper
from hilp.spec import Spec
from hilp.storage import lines

SMALL = ["--set", "preprocess_hidden=8,8", "--set", "hidden=8", "--set", "batch=32", "--steps", "20", "--episodes", "2"]


def bench(tmp_path: Path, data: Path, *words: str) -> int:
    out = ["--out", str(tmp_path / "out"), "--rows", str(tmp_path / "rows.jsonl")]
    return cli.main(["bench", "rewards", "--data", str(data), *SMALL, *out, *words])


def test_a_table_is_filled_once_and_only_what_it_lacks_is_run(
    tmp_path: Path, tiny_data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--methods", "gc-td3", "fb", "--seeds", "2")
    assert bench(tmp_path, tiny_data_folder, "--methods", "fb", "--seeds", "1", "--json") == 0
    first = files.read_rows(tmp_path / "rows.jsonl")
    assert [row["reward"] for row in first] == ["region", "avoid", "corridor"]
    assert {row["cell"]["label"] for row in first} == {"fb"} and all(row["random"] >= 0 for row in first)
    capsys.readouterr()
    assert bench(tmp_path, tiny_data_folder, *words) == 0
    said = capsys.readouterr().out
    assert "cell 1 of 4: gc-td3" in said and "cell 2 of 4" not in said, "fb, seed 0 was there"
    rows = files.read_rows(tmp_path / "rows.jsonl")
    assert len(rows) == 4 * 3 and rows[:3] == first
    assert "IQM" in said and "random actions" in said
    assert (tmp_path / "out" / "rewards-data-maze-medium-navigate.png").is_file()
    assert bench(tmp_path, tiny_data_folder, *words, "--json") == 0
    assert files.read_rows(tmp_path / "rows.jsonl") == rows, "the second time nothing is left to do"
    told = json.loads(capsys.readouterr().out)
    headers, shown = told["tables"]["maze-medium-navigate"]
    assert headers == ["method", "region", "avoid", "corridor", "IQM [95%]"]
    assert [line[0] for line in shown] == ["gc-td3", "fb", "random actions"]
    assert told["paper"]["maze-medium-navigate"] is None


def test_a_sweep_has_a_row_for_each_value(tmp_path: Path, tiny_data_folder: Path) -> None:
    assert bench(tmp_path, tiny_data_folder, "--methods", "fb", "--seeds", "1", "--sweep", "dim=2,4") == 0
    rows = files.read_rows(tmp_path / "rows.jsonl")
    assert {row["cell"]["label"]: row["config"]["dim"] for row in rows} == {"fb dim=2": 2, "fb dim=4": 4}
    assert (tmp_path / "out" / "rewards-sweep-dim.png").is_file()


def test_ways_to_ask_one_policy_are_rows_of_their_own(
    tmp_path: Path, tiny_data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--methods", "sf-hilp", "sf-hilp-graph", "--seeds", "1", "--adapt", "2")
    assert bench(tmp_path, tiny_data_folder, *words) == 0
    said = capsys.readouterr().out
    rows = files.read_rows(tmp_path / "rows.jsonl")
    ways = {"sf-hilp": ("skill", None), "sf-hilp-adapted": ("skill", 2)}
    ways |= {"sf-hilp-graph": ("graph", None), "sf-hilp-graph-adapted": ("graph", 2)}
    assert {row["cell"]["label"]: (row["rule"], row.get("adapted")) for row in rows} == ways
    assert all(label in said for label in ways)
    assert len({row["policy"] for row in rows}) == 1, "one training for all of them"
    for row in rows:
        assert len(row.get("search", [])) == row.get("adapted", 0) and len(row["outcomes"]) == 2
    by_skill = [row for row in rows if row["rule"] == "skill"]
    assert [line["runs"] for line in files.aggregate(by_skill)] == [1] * 6, "adapted rows are not averaged with others"


def test_swept_rows_that_are_adapted_have_a_line_of_their_own() -> None:
    found = cells.entries(["fb"], {}, [("dim=2", {"dim": "2"}), ("dim=4", {"dim": "4"})], adapt=5)
    assert list(found) == ["fb dim=2", "fb dim=4", "fb-adapted dim=2", "fb-adapted dim=4"]
    assert [(entry.values["dim"], entry.adapt) for entry in found.values()] == [("2", 0), ("4", 0), ("2", 5), ("4", 5)]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--methods", "sf-hlip"], "did you mean 'sf-hilp'"),
        (["--set", "dmi=3"], "did you mean 'dim'"),
        (["--sweep", "dim"], "--sweep takes key=value"),
        (["--sweep", "dim=,"], "--sweep has no values of 'dim'"),
        (["--sweep", "loss=vector,q", "--methods", "sf-lap"], "drawn against numbers"),
        (["--sweep", "dim=2,4", "--methods", "gc-td3"], "none of these methods"),
        (["--variants", "dim=2"], "--variants takes name:key=value"),
        (["--variants", "small:dim"], "--variants takes key=value"),
        (["--variants", "small:dmi=2"], "none of these methods has the config keys of 'small' (dmi)"),
        (["--variants", "a:dim=2", "a:dim=3"], "two variants have one name"),
        (["--variants", "a:dim=2", "--sweep", "dim=2,4"], "two tables"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--adapt", "0"], "--adapt must be at least 1"),
        (["--adapt", "10", "--methods", "gc-td3"], "gc-td3: the skill is the goal itself"),
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


# ---- whole cells -----------------------------------------------------------------------------------------------------


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cells that were run; nothing is trained, their rows are made up."""
    found: list[str] = []

    def run(cell: cells.Cell) -> list[files.Row]:
        found.append(f"{cell.label} {cell.seed}")
        goals = cell.table.kind == "goals"
        about = {"task": cell.world.name, "method": cell.entry.method, "policy": "p", "episodes": cell.table.episodes,
                 "config": json.loads(json.dumps(methods.config_values(cell.config))),
                 "cell": cell.identity}  # fmt: skip
        return [
            {**about, "prompt": "goal", "plan": name, "metric": "success", "score": 0.5, "outcomes": [0.5, 0.5]}
            if goals
            else {**about, "prompt": "reward", "reward": name, "metric": "return", "score": 0.5, "random": 0.0,
                  "best_possible": None, "score_scale": 1.0}
            for name in cell.prompts
        ]  # fmt: skip

    for kind in ("goals", "rewards"):
        monkeypatch.setattr(cells.CELLS[kind], "run", run)
    return found


def test_other_config_values_are_another_cell(tmp_path: Path, tiny_data_folder: Path, ran: list[str]) -> None:
    words = ("--methods", "fb", "--seeds", "1", "--json")
    assert bench(tmp_path, tiny_data_folder, *words) == bench(tmp_path, tiny_data_folder, *words, "--set", "dim=3") == 0
    rows = files.read_rows(tmp_path / "rows.jsonl")
    assert [row["config"]["dim"] for row in rows] == [32] * 3 + [3] * 3 and len(ran) == 2


def test_another_number_of_episodes_to_adapt_with_is_another_cell(
    tmp_path: Path, tiny_data_folder: Path, ran: list[str]
) -> None:
    words = ("--methods", "fb", "--seeds", "1", "--json", "--adapt")
    assert bench(tmp_path, tiny_data_folder, *words, "2") == bench(tmp_path, tiny_data_folder, *words, "3") == 0
    assert ran == ["fb 0", "fb-adapted 0", "fb-adapted 0"]
    rows = files.read_rows(tmp_path / "rows.jsonl")
    assert [row["cell"].get("adapt") for row in rows] == [None] * 3 + [2] * 3 + [3] * 3


@pytest.mark.parametrize("lacking", [slice(0, 1), slice(2, 3), slice(0, 3)])
def test_a_cell_that_lacks_a_row_is_run_again_and_has_each_row_once(
    tmp_path: Path, tiny_data_folder: Path, ran: list[str], lacking: slice, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("gc-bc", "hilp", "--episodes", "2", "--seeds", "1", "--json")
    whole = bench_goals(tmp_path, tiny_data_folder, *words)
    assert [(row["method"], row["plan"]) for row in whole] == [
        ("gc-bc", 0),
        *(("hilp", p) for p in cells.GOAL_PLANS),
    ]
    assert ran == ["gc-bc 0", "hilp 0"]
    path = tmp_path / "rows.jsonl"
    kept = [line for line in path.read_text().splitlines() if line not in path.read_text().splitlines()[1:][lacking]]
    path.write_text("".join(f"{line}\n" for line in kept))
    assert bench_goals(tmp_path, tiny_data_folder, *words) == whole, "and no row twice"
    assert ran == ["gc-bc 0", "hilp 0", "hilp 0"]
    tables_told = [json.loads(line)["table"] for line in capsys.readouterr().out.splitlines()]
    assert tables_told[0] == tables_told[1]


def test_a_kill_in_the_middle_of_the_rows_of_a_cell(
    tmp_path: Path, tiny_data_folder: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("gc-bc", "hilp", "--episodes", "2", "--seeds", "1", "--json")
    whole = bench_goals(tmp_path / "whole", tiny_data_folder, *words)
    real = os.pwrite

    def killed(handle: int, data: bytes, offset: int) -> int:
        if data.count(b"\n") == len(cells.GOAL_PLANS):  # the rows of hilp
            real(handle, data[: data.index(b"\n") + 40], offset)
            raise KeyboardInterrupt
        return real(handle, data, offset)

    monkeypatch.setattr(os, "pwrite", killed)
    with pytest.raises(AssertionError):
        bench_goals(tmp_path, tiny_data_folder, *words)
    assert (tmp_path / "rows.jsonl").read_text().count("\n") == 2, "one row of each, and a torn one"
    monkeypatch.setattr(os, "pwrite", real)
    assert bench_goals(tmp_path, tiny_data_folder, *words) == whole
    assert ran[-2:] == ["hilp 0", "hilp 0"], "gc-bc was whole"


def test_the_plans_of_a_method_are_known_before_it_is_trained() -> None:
    spec = Spec(2, 2)
    found = {name: cells.has_rule("goal_direction", methods.config(name), spec) for name in methods.MODULES}
    assert {name for name, has in found.items() if has} == {"hilp", "hilp-directed", "hindsight", "sf-hilp"}
    by_steps = {name for name in methods.MODULES if cells.has_rule("steps", methods.config(name), spec)}
    assert by_steps == {"crl", "gc-iql", "gc-iql-q", "hiql", "qrl"}


def bench_goals(tmp_path: Path, data: Path, *words: str) -> list[dict[str, Any]]:
    """The rows of a table after a command."""
    out = ["--out", str(tmp_path / "out"), "--rows", str(tmp_path / "rows.jsonl"), "--data", str(data)]
    small = ["--steps", "20", "--set", "actor_hidden=8,8", "--set", "batch=32"]
    assert cli.main(["bench", "goals", "--methods", *words, *small, *out]) == 0
    return files.read_rows(tmp_path / "rows.jsonl")


def test_goals_table_has_a_line_for_each_plan_and_takes_errors_later(
    tmp_path: Path, tiny_data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ("--episodes", "4", "--seeds", "1")
    before = bench_goals(tmp_path, tiny_data_folder, "gc-bc", "hilp", "iql-rand", *small)
    said = capsys.readouterr().out
    assert all(label in said for label in ("gc-bc", "hilp, plan 3", "hilp, plan auto", "iql-rand"))
    assert [(row["method"], row["plan"]) for row in before] == [
        ("gc-bc", 0), *(("hilp", plan) for plan in cells.GOAL_PLANS), ("iql-rand", 0)]  # fmt: skip
    assert (tmp_path / "out" / "goals-plan-maze-medium-navigate-hilp.png").is_file()
    picture = tmp_path / "out" / "goals-errors-maze-medium-navigate.png"
    assert "embedding" not in said and not picture.exists()
    assert not any("embedding" in row or "errors" in row["cell"] for row in before)

    rows = bench_goals(tmp_path, tiny_data_folder, "gc-bc", "hilp", *small, "--errors")
    said = capsys.readouterr().out
    assert rows[:5] == before and all(row["cell"]["errors"] for row in rows[5:])
    of_bc, *of_hilp = rows[5:]
    assert [row["outcomes"] for row in of_hilp] == [row["outcomes"] for row in before[1:4]], "the same policy"
    assert "embedding" not in of_bc, "it has no distances"
    assert len({json.dumps(row["embedding"]) for row in of_hilp}) == 1
    found = of_hilp[0]["embedding"]
    assert set(found) == {"against", "mse", "mean_true", "relative", "steps_off", "rank_correlation"}
    assert found["against"] == "exact"
    finite = hilp.tasks.make("maze-medium").finite()
    steps, discount = finite.steps[finite.steps > 0].astype(float), of_hilp[0]["config"]["phi_discount"]
    assert found["mean_true"] == pytest.approx(np.mean((1 - discount**steps) / (1 - discount)), rel=0.02)
    assert "embedding MSE" in said and "note:" not in said and picture.is_file()
    for again in (("gc-bc", "hilp", *small, "--errors"), ("gc-bc", "hilp", *small)):
        assert bench_goals(tmp_path, tiny_data_folder, *again) == rows, "nothing is left to do"


def test_variants_are_rows_of_their_own_and_evaluations_make_a_learning_curve(
    tmp_path: Path, tiny_data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("gc-bc", "hilp", "--episodes", "2", "--seeds", "1", "--curve-points", "2")
    rows = bench_goals(tmp_path, tiny_data_folder, *words, "--variants", "flat:dim=2,lr=0.01")
    found = {row["cell"]["label"]: (row["config"].get("dim"), row["config"]["lr"]) for row in rows}
    assert found == {
        "gc-bc": (None, 1e-3), "hilp": (8, 1e-3), "hilp flat": (2, 0.01)}  # fmt: skip
    said = capsys.readouterr().out
    assert "hilp flat, plan 3" in said and (tmp_path / "out" / "goals-curve-maze-medium-navigate.png").is_file()
    curves = {row["cell"]["label"]: row["curve"] for row in rows if "curve" in row}
    assert set(curves) == set(found)
    assert all([point["step"] for point in points] == [10, 20] for points in curves.values())
    assert all(0 <= point["success_plan"] <= 1 for point in curves["hilp"])
    assert "success_plan" not in curves["gc-bc"][0], "it cannot plan"


def test_a_variant_is_a_row_of_each_method_that_has_its_keys() -> None:
    found = cells.entries(["gc-bc", "hilp"], {"lr": "0.1"}, [("", {}), ("flat", {"dim": "2"}), ("slow", {"lr": "1"})])
    assert {label: entry.values for label, entry in found.items()} == {
        "gc-bc": {"lr": "0.1"}, "gc-bc slow": {"lr": "1"},
        "hilp": {"lr": "0.1"}, "hilp flat": {"lr": "0.1", "dim": "2"}, "hilp slow": {"lr": "1"},
    }  # fmt: skip


def test_a_curve_has_each_evaluation_once_although_metrics_repeat_it(tmp_path: Path) -> None:
    rows = [{"step": 20}, {"step": 40, "success": 0.1, "evaluation_step": 30},
            {"step": 60, "success": 0.3, "success_plan": 0.5, "evaluation_step": 60},
            {"step": 80, "success": 0.3, "success_plan": 0.5, "evaluation_step": 60}]  # fmt: skip
    lines.append(tmp_path / "metrics.jsonl", rows)
    assert files.evaluations(tmp_path / "metrics.jsonl") == [
        {"step": 30, "success": 0.1}, {"step": 60, "success": 0.3, "success_plan": 0.5}]  # fmt: skip


# ---- embedding errors ------------------------------------------------------------------------------------------------

# 441 cells are more than distances of all pairs are kept for.
FIELD = "\n".join(["#" * 23, *["#" + "." * 21 + "#"] * 21, "#" * 23])


def test_errors_against_one_value_for_all_policies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hilp.collect(FIELD, "navigate", 2_000).save(tmp_path / "data")
    words = ("hilp", "--errors", "--sweep", "dim=2", "--set", "bound_targets=true", "--set", "hidden=8,8")
    rows = bench_goals(tmp_path, tmp_path / "data", *words, "--episodes", "1", "--seeds", "2")
    first, second = (row["embedding"] for row in rows if row["plan"] == 0)
    assert first["against"] == "value" and first["value_steps"] == 20
    assert (first["mean_true"], first["asymmetry"]) == (second["mean_true"], second["asymmetry"]), "the same V"
    assert first["mse"] != second["mse"]
    (folder,) = (tmp_path / "out" / "maze-custom-navigate").glob("value-*")
    kept = json.loads((folder / "value.json").read_text())
    assert kept["config"]["bound_targets"] and kept["config"]["hidden"] == [8, 8] and kept["config"]["expectile"] == 0.9
    said = capsys.readouterr().out
    assert said.count("--set phi_expectile=0.9") == 1
    assert (tmp_path / "out" / "goals-errors-maze-custom-navigate.png").is_file()
    assert (tmp_path / "out" / "goals-sweep-dim.png").is_file()


def goal_row(dim: int, score: float, plan: int | str = 0, data: str = "ant", **more: Any) -> dict[str, Any]:
    cell = {"label": f"hilp dim={dim}", "data": data, "seed": 0}
    return {"cell": cell, "method": "hilp", "plan": plan, "metric": "success", "score": score,
            "config": {"dim": dim, "phi_expectile": 0.95, "phi_discount": 0.99}, **more}  # fmt: skip


def test_goal_table_with_some_embedding_errors() -> None:
    rows = [
        goal_row(2, 0.5, embedding={"against": "exact", "mse": 3.0}),
        goal_row(2, 0.7, embedding={"against": "exact", "mse": 4.0}),
        goal_row(8, 0.9),
        goal_row(8, 0.3, data="other"),
    ]
    headers, shown = tables.goal_table(rows)
    assert headers == ["method", "ant", "other", "IQM [95%]", "embedding MSE, ant"]
    assert [line[-1] for line in shown] == ["3.5", ""] and shown[0][1] == "60 ± 10"
    assert tables.goal_table(rows[:2])[0] == ["method", "ant", "IQM [95%]", "embedding MSE"]
    assert tables.goal_table(rows[2:])[0] == ["method", "ant", "other", "IQM [95%]"]


def test_the_error_figure_has_a_point_for_each_policy() -> None:
    rows = [
        goal_row(dim, rate, plan, embedding={"against": "value", "mse": mse})
        for dim, mse, rate in ((32, 1.0, 0.9), (32, 2.0, 0.8), (4, 30.0, 0.1))
        for plan in (0, "auto")
    ]
    fig = tables.error_figure([*rows, goal_row(64, 0.5)], "dim")
    assert fig is not None
    (ax,) = fig.axes
    points = {line.get_label(): np.transpose(line.get_data()).tolist() for line in ax.lines}
    assert points == {"dim = 4": [[30.0, 10.0]], "dim = 32": [[1.0, 90.0], [2.0, 80.0]]}
    assert "rank correlation −1.00" in ax.texts[0].get_text() and "V(s, g)" in ax.get_xlabel()
    assert tables.error_figure([goal_row(64, 0.5)], "dim") is None
    rows[0]["config"]["phi_discount"] = 0.9  # its squared errors are in another unit
    for row in rows:
        row["embedding"]["relative"] = row["embedding"]["mse"] / 100
    unlike = tables.error_figure(rows, "dim")
    assert unlike is not None and "relative" in unlike.axes[0].get_xlabel()
    assert max(line.get_xdata().max() for line in unlike.axes[0].lines) == 0.3
    unswept = tables.error_figure(rows, None)
    assert unswept is not None and [line.get_label() for line in unswept.axes[0].lines] == ["hilp dim=32", "hilp dim=4"]


def test_notes_about_the_value_that_errors_are_taken_against() -> None:
    rows = [
        goal_row(8, 0.5, plan, embedding={"against": "value", "value_expectile": 0.9, "disagreement": unsure})
        for plan, unsure in ((0, 0.05), ("auto", 0.4))
    ]
    other_expectile, unsure = tables.value_notes(rows)
    assert "0.95" in other_expectile and "--set phi_expectile=0.9" in other_expectile and "40%" in unsure
    rows[0]["config"]["phi_expectile"] = 0.9
    assert tables.value_notes(rows[:1]) == tables.value_notes([goal_row(64, 0.5)]) == []
    assert tables.value_notes([goal_row(8, 0.5, embedding={"against": "exact", "mse": 1.0})]) == []


def test_the_goal_sweep_has_a_line_for_each_data_set_and_plan() -> None:
    rows = [
        goal_row(dim, rate + (plan == "auto") / 10, plan, data)
        for data, rates in (("ant", (0.1, 0.3, 0.5)), ("maze", (0.4, 0.6, 0.8)))
        for dim, rate in zip((128, 2, 32), rates, strict=True)
        for plan in (0, 3, "auto")
    ]
    rows.append(goal_row(2, 0.5, 0, "ant"))
    (ax,) = tables.goal_sweep_figure(rows, "dim").axes
    drawn = {line.get_label(): [list(part) for part in line.get_data()] for line in ax.lines}
    assert set(drawn) == {"hilp, ant", "hilp, ant, plan auto", "hilp, maze", "hilp, maze, plan auto"}
    assert drawn["hilp, ant"] == [[2, 32, 128], pytest.approx([40, 50, 10])], "the mean of both seeds at 2"
    assert drawn["hilp, maze, plan auto"] == [[2, 32, 128], pytest.approx([70, 90, 50])]
    assert ax.get_xscale() == "log" and [tick.get_text() for tick in ax.get_xticklabels()] == ["2", "32", "128"]
    (ax,) = tables.goal_sweep_figure(rows[:9], "dim").axes
    assert [line.get_label() for line in ax.lines] == ["hilp", "hilp, plan auto"] and "ant" in ax.get_title(loc="left")


# ---- reading rows ----------------------------------------------------------------------------------------------------


def row(label: str, reward: str, score: float, seed: int = 0, **more: Any) -> dict[str, Any]:
    cell = {"label": label, "data": "walker-rnd", "seed": seed}
    return {"cell": cell, "task": "walker", "reward": reward, "metric": "return", "score": score, "random": 20.0,
            "best_possible": None, "score_scale": 1.0, **more}  # fmt: skip


def test_scores_are_shares_where_the_best_is_known_and_returns_elsewhere() -> None:
    assert tables.score(row("fb", "run", 60.0, best_possible=100.0)) == pytest.approx(0.5)
    assert tables.score(row("fb", "run", 60.0)) == 60.0
    assert tables.score(row("fb", "reach_top_left", 60.0, task="jaco", score_scale=4.0)) == 240.0


def test_table_and_aggregates_by_hand() -> None:
    rows = [row("fb", "run", 100.0), row("fb", "run", 200.0, 1), row("fb", "walk", 400.0), row("fb", "walk", 400.0, 1)]
    headers, shown = tables.table(rows)
    assert headers == ["method", "run", "walk", "IQM [95%]"]
    assert shown[0][:3] == ["fb", "150 ± 50", "400 ± 0.00"] and shown[0][3].startswith("300")
    assert shown[1] == ["random actions", "20", "20", ""]
    assert tables.iqms(rows, tables.label_of)["fb"][0] == pytest.approx(300.0)
    assert set(tables.grouped(rows, tables.GROUPS["task"])) == {"walker run", "walker walk"}
    assert set(tables.grouped(rows, tables.GROUPS["environment"])) == {"walker"}
    assert [name for name, _ in tables.reward_figures(rows, None)] == ["rewards-data-walker-rnd"]
    other = [{**own, "cell": {**own["cell"], "data": "walker-apt"}} for own in rows]
    assert [name for name, _ in tables.reward_figures([*rows, *other], None)] == [
        "rewards-environment-walker", "rewards-data-walker-rnd", "rewards-data-walker-apt",
        "rewards-task-walker-run", "rewards-task-walker-walk"]  # fmt: skip


def test_one_seed_has_no_deviation_but_the_interval_of_its_episodes() -> None:
    outcomes = [1.0] * 8 + [0.0] * 2
    low, high = stats.wilson(8, 10)
    rows: Any = [goal_row(2, 0.8, plan, outcomes=outcomes, interval=[low, high]) for plan in (0, 3)]
    _, shown = tables.goal_table(rows)
    assert [line[0] for line in shown] == ["hilp dim=2", "hilp dim=2, plan 3"]
    assert shown[0][1] == f"80 [{100 * low:.0f}, {100 * high:.0f}]" == "80 [49, 94]"
    assert shown[0][2] == "80 [50, 100]", "the bootstrap over the same ten"
    assert "±" not in str(shown)
    assert "one seed" in tables.spread_words(rows)
    assert not tables.has_paper_numbers(tables.goal_table(rows))
    ant = [goal_row(8, 0.8, 3, "antmaze-large-diverse-v2", outcomes=outcomes)]
    ant[0]["cell"]["label"] = "hilp"
    assert tables.has_paper_numbers(tables.goal_table(ant))
    assert tables.goal_table(ant)[1][0][:2] == ["hilp, plan 3", "80 / 64 ± 10"], "and no interval is made up"
    returns = [row("fb", "run", 50.0, outcomes=[40.0, 60.0, 50.0], interval=[42.0, 58.0], best_possible=120.0)]
    assert tables.table(returns)[1][0][1] == "0.30 [0.22, 0.38]"
    assert tables.table([row("fb", "run", 50.0, best_possible=120.0)])[1][0] == ["fb", "0.30", "0.30"]


def test_the_papers_numbers_stand_beside_ours() -> None:
    both = [row("sf-hilp", "run", 100.0), row("sf-hilp", "moonwalk", 3.0), row("mine", "run", 3.0)]
    assert tables.paper_table(both[1:2]) is None
    assert (tables.paper_table(both[:2]) or [])[0] == ["method", "run (ours / paper)"]
    headers, shown = tables.paper_table([row("sf-hilp", "run", 100.0)]) or ([], [])
    assert headers == ["method", "run (ours / paper)"]
    assert shown == [["sf-hilp", f"100 / {paper.zero_shot('walker', 'run', 'sf-hilp', 'rnd')[0]:.0f}"]]


def test_kept_rows_are_those_of_configs_that_can_still_be_asked_for() -> None:
    kept = sorted((Path(__file__).parents[1] / "benchmarks").glob("goals*.jsonl"))
    rows = [row for file in kept for row in files.read_rows(file) if "cell" in row]  # not those of `hilp evaluate`
    assert len(rows) > 200
    for row in rows:
        config = methods.configure(methods.config(row["method"]), row["config"])
        assert row["cell"]["config"] == cells.digest(methods.config_values(config)), row["cell"]
