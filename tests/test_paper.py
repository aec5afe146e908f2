"""The paper's numbers: that they are all there, and that our names find them. Values are copied from its tables."""

from __future__ import annotations

import math
from importlib import resources

import pytest

from hilp.report import paper


def test_every_row_of_the_tables_is_there() -> None:
    rows = {name: len(table["rows"]) for name, table in paper.tables().items()}
    assert rows == {"goal_conditioned": 8, "hierarchical": 6, "zero_shot_state": 64, "zero_shot_pixel": 64}
    assert sum(rows.values()) == 142
    assert len(resources.files("hilp.report").joinpath("paper.json").read_bytes()) < 60_000


def test_every_cell_is_a_mean_and_a_deviation_or_a_dash_of_the_paper() -> None:
    dashes = []
    for name, table in paper.tables().items():
        for row, cells in table["rows"].items():
            assert len(cells) == len(table["methods"]), (name, row)
            for method, cell in zip(table["methods"], cells, strict=True):
                if cell is None:
                    dashes.append((row.split("/")[0], method))
                else:
                    mean, std = cell
                    assert 0 <= mean <= 1000 and 0 <= std < 500, (name, row, method)
    visual = {(f"visual-kitchen-{kind}", name) for kind in ("partial", "mixed") for name in ("gc-cql", "fb", "fdm")}
    only_in_jaco = {(env, "hilp-g") for env in ("walker", "cheetah", "quadruped")}
    assert set(dashes) == visual | only_in_jaco
    assert len(dashes) == 6 + 3 * 16


@pytest.mark.parametrize(
    ("env", "task", "method", "dataset", "score"),
    [
        ("walker", "flip", "gc-td3", "aps", (406, 153)),
        ("walker", "run", "sf-hilp", "apt", (440, 39)),
        ("walker", "walk", "fb", "proto", (905, 29)),
        ("walker", "walk", "sf-rand", "proto", (190, 214)),
        ("cheetah", "run_backward", "sf-idm", "aps", (466, 30)),
        ("cheetah", "walk_backward", "sf-lap", "apt", (642, 238)),
        ("quadruped", "jump", "sf-ae", "proto", (289, 35)),
        ("quadruped", "stand", "sf-cl", "apt", (379, 246)),
        ("jaco", "reach_bottom_left", "sf-fdm", "proto", (60, 28)),
        ("jaco", "reach_top_right", "hilp-g", "aps", (80, 13)),
        ("cheetah", "run", "hilp", "rnd", (262, 53)),
    ],
)
def test_zero_shot_from_states(env: str, task: str, method: str, dataset: str, score: tuple[float, float]) -> None:
    assert paper.zero_shot(env, task, method, dataset) == score


@pytest.mark.parametrize(
    ("env", "task", "method", "dataset", "score"),
    [
        ("walker", "flip", "sf-fdm", "aps", (158, 25)),
        ("cheetah", "walk_backward", "sf-hilp", "rnd", (927, 35)),
        ("jaco", "reach_top_left", "fb", "apt", (97, 66)),
    ],
)
def test_zero_shot_from_pixels(env: str, task: str, method: str, dataset: str, score: tuple[float, float]) -> None:
    assert paper.zero_shot(env, task, method, dataset, pixels=True) == score
    assert paper.zero_shot(env, task, "sf-lap", dataset, pixels=True) is None


def test_zero_shot_over_the_data_sets() -> None:
    found = paper.zero_shot("walker", "run", "sf-hilp")
    assert found is not None
    assert found[0] == (348 + 440 + 402 + 401) / 4
    assert found[1] == pytest.approx(math.sqrt(14**2 + 39**2 + 28**2 + 30**2) / 4)
    pixels = paper.zero_shot("jaco", "reach_bottom_left", "fb", pixels=True)
    assert pixels is not None and pixels[0] == (52 + 24 + 75 + 62) / 4
    assert paper.zero_shot("walker", "run", "hilp-g") is None


def test_zero_shot_by_the_goal_that_a_reward_points_at() -> None:
    where = ("jaco", "reach_bottom_right")
    assert paper.zero_shot(*where, "sf-hilp", "apt") == (29, 44)
    assert paper.zero_shot(*where, "sf-hilp", "apt", rule="goal") == (37, 14)
    assert paper.zero_shot(*where, "hilp-g", "apt", rule="goal") == (37, 14)
    assert paper.zero_shot(*where, "gc-td3", "aps", rule="goal") == (121, 80)
    assert paper.zero_shot(*where, "fb", "apt", rule="goal") is None
    assert paper.zero_shot("walker", "run", "sf-hilp", "apt", rule="goal") is None


@pytest.mark.parametrize(
    ("dataset", "method", "score"),
    [
        ("antmaze-large-diverse", "hilp", (46.0, 12.7)),
        ("antmaze-large-diverse", "hilp-plan", (64.5, 10.2)),
        ("antmaze-ultra-play-v0", "gc-iql", (41.8, 9.0)),
        ("antmaze-large-play-v2", "gc-cql", (32.0, 25.8)),
        ("antmaze-ultra-diverse", "gc-bc", (30.5, 10.1)),
        ("kitchen-partial", "iql-fdm", (39.2, 4.2)),
        ("kitchen-mixed", "iql-lap", (40.9, 3.0)),
        ("kitchen-mixed", "fb", (0.7, 1.9)),
        ("visual-kitchen-mixed", "iql-rand", (49.6, 5.7)),
        ("visual-kitchen-mixed", "fb", None),
        ("kitchen-partial", "sf-fdm", None),  # the zero-shot version, which the paper does not prompt with goals
        ("kitchen-complete", "hilp", None),
    ],
)
def test_goal_conditioned(dataset: str, method: str, score: tuple[float, float] | None) -> None:
    assert paper.goal_conditioned(dataset, method) == score


def test_hierarchical() -> None:
    assert paper.hierarchical("antmaze-ultra-diverse", "hilp") == (43.8, 8.6)
    assert paper.hierarchical("antmaze-ultra-diverse", "opal") == (21.0, 10.1)
    assert paper.hierarchical("kitchen-mixed", "hilp") == (48.2, 10.1)
    assert paper.hierarchical("kitchen-mixed", "fb") is None
    assert paper.hierarchical("visual-kitchen-mixed", "hilp") is None
    average = [sum(paper.hierarchical(row, name)[0] for row in paper.tables()["hierarchical"]["rows"]) / 6  # type: ignore[index]
               for name in ("opal", "hilp")]  # fmt: skip
    assert [round(mean, 1) for mean in average] == [45.7, 51.3]  # the table's last line


@pytest.mark.parametrize(
    "asked", [("maze", "run", "fb"), ("walker", "fly", "fb"), ("walker", "run", "ppo"), ("walker", "run", "iql-fdm")]
)
def test_what_the_paper_does_not_have(asked: tuple[str, str, str]) -> None:
    assert paper.zero_shot(*asked) is None
    assert paper.zero_shot(*asked, "aps") is None


def test_an_unknown_data_set() -> None:
    assert paper.zero_shot("walker", "run", "fb", "mine") is None


@pytest.mark.parametrize(
    "method",
    ["sf-hilp", "sf-lap", "sf-fdm", "sf-ae", "sf-idm", "sf-cl", "sf-rand", "fb", "gc-td3"],
)
def test_every_method_of_zero_shot_rl_goes_by_our_name(method: str) -> None:
    ours = paper.zero_shot("walker", "run", method)
    assert ours is not None and ours == paper.zero_shot("walker", "run", method.removeprefix("sf-"))
