"""Goals as people name them: a task's name, a row, a few columns, all numbers; and what is not a goal."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import tasks
from hilp.evaluation import rows as files
from hilp.evaluation import setup
from hilp.prompts.specs import Goal
from hilp.tasks.base import column_names

simulated = pytest.mark.skipif(
    not all(importlib.util.find_spec(package) for package in ("mujoco", "ogbench")), reason="needs the simulators"
)


def test_numbers_columns_and_rows(tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset) -> None:
    world = tasks.make("maze-medium")
    assert setup.find_goal("1.5, 2.5", tiny).observation.tolist() == [1.5, 2.5]
    assert setup.find_goal("y=2.5,x=1.5", tiny, world).observation.tolist() == [1.5, 2.5]
    kept = setup.find_goal("row:7", tiny).observation
    assert (kept == tiny.bank.observations[7]).all()
    of_data = setup.find_goal("row:7", tiny, world, tiny_data)
    assert (of_data.observation == tiny_data.observations[7]).all() and of_data.named is None
    assert (
        setup.find_goal(f"row:{tiny_data.rows - 1}", tiny, data=tiny_data).observation == tiny_data.observations[-1]
    ).all()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("row:-1", "from 0 on, not '-1'"),
        ("row:", "from 0 on"),
        ("row:2000", "the bank of this policy has rows 0 to 1999"),
        ("row:99999999999999999999", "from 0 on"),
        ("x=3", "also needs y"),
        ("x=3,z=4", "has no column 'z': choose from: x, y"),
        ("x=3,x=4", "each name once"),
        ("x=3,4", "each name once"),
        ("x=three,y=4", "column x of a goal takes a number, not 'three'"),
        ("x=,y=4", "takes a number, not ''"),
        ("task3", "maze-medium has none by name"),
        ("", "maze-medium has none by name"),
    ],
)
def test_what_is_no_goal_is_told_in_one_line(text: str, told: str, tiny: hilp.FoundationPolicy) -> None:
    with pytest.raises(hilp.HilpError, match=told) as error:
        setup.find_goal(text, tiny, tasks.make("maze-medium"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["task3", "x=3,y=4"])
def test_names_need_a_task(text: str, tiny: hilp.FoundationPolicy) -> None:
    with pytest.raises(hilp.HilpError, match="with --task"):
        setup.find_goal(text, tiny)


def test_a_task_without_names_says_so(tiny: hilp.FoundationPolicy) -> None:
    class Nameless:
        name, columns = "nameless", {}

    with pytest.raises(hilp.HilpError, match="the columns of nameless have no names"):
        setup.find_goal("x=3", tiny, Nameless())  # type: ignore[arg-type]


def test_parts_become_columns() -> None:
    assert column_names((("height", (1,)), ("velocity", (2,)), ("grid", (2, 2)))) == {
        "height": 0,
        "velocity_0": 1,
        "velocity_1": 2,
        "grid_0": 3,
        "grid_1": 4,
        "grid_2": 5,
        "grid_3": 6,
    }


# ---- evaluation and commands -----------------------------------------------------------------------------------------


def test_one_goal_for_all_episodes(tiny: hilp.FoundationPolicy) -> None:
    world = tasks.make("maze-medium")
    world.max_steps = 3
    rows = hilp.evaluate(tiny, world, [Goal("x=1.5,y=1.5", plan=plan) for plan in (0, 1)], episodes=4)
    assert [row["spec"]["goal"] for row in rows] == ["x=1.5,y=1.5"] * 2
    assert all(files.check(dict(row), "row") for row in rows)
    others = hilp.evaluate(tiny, world, plan=0, episodes=4)
    assert others[0]["spec"] == {"kind": "goal", "plan": 0} and "by_goal" not in others[0]
    assert len(files.latest([*rows, *others])) == 3  # a page does not mix them
    with pytest.raises(hilp.HilpError, match="plan is short for prompts"):
        hilp.evaluate(tiny, world, Goal("row:3"), plan=())


def test_prompts_from_the_command_line(
    tiny_run: Path, tiny_data_folder: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    for goal in (["row:5"], ["x=1.5,y=2.5"], ["row:19000", "--data", tiny_data_folder]):
        code, out, err = run("prompt", tiny_run, "--goal", *goal, "--steps", 2, "--json")
        assert code == 0, err
        assert json.loads(out)["prompt"] == "goal"
    code, _, err = run("prompt", tiny_run, "--goal", "x=1,y=1", "--data", tiny_data_folder)
    assert code == 2 and "--data changes nothing" in err
    code, out, err = run(
        "evaluate", tiny_run, "--goal", "row:5", "--plan", 0, "--episodes", 2, "--json", "--rows", "/dev/null"
    )
    assert code == 0 and json.loads(out)["spec"]["goal"] == "row:5", err


@simulated
def test_an_ant_is_sent_somewhere_by_x_and_y(tiny: hilp.FoundationPolicy) -> None:
    world = tasks.make("antmaze-large")
    goal = setup.find_goal("x=12,y=8", tiny, world).observation
    assert goal[:2].tolist() == [12.0, 8.0] and (goal[2:] == world.proprioception.astype(np.float32)).all()
    running = world.episodes(np.random.default_rng(0), 1, goal=goal)
    assert running.goals[0].tolist() == goal.tolist()
    ogbench = tasks.make("antmaze-medium")
    goal = setup.find_goal("x=0,y=4", tiny, ogbench, seed=3).observation
    drawn = ogbench.goal_named("task1", np.random.default_rng(3))
    assert goal[:2].tolist() == [0.0, 4.0] and (goal[2:] == drawn[2:]).all()


@simulated
def test_a_goal_by_its_name(tiny: hilp.FoundationPolicy) -> None:
    """The prompt's goal is the one of the episode, and the episode starts where the task does."""
    world = tasks.make("pointmaze-medium")
    found = setup.find_goal("task3", tiny, world, seed=5)
    running = world.episodes(np.random.default_rng(5), 1, goal=found.for_task)
    assert found.named == "task3" and (running.goals[0] == found.observation).all()
    assert np.abs(running.observations[0] - world.env.task_infos[2]["init_xy"]).max() <= 1.0
    with pytest.raises(hilp.HilpError, match="did you mean 'task5'"):
        setup.find_goal("task9", tiny, world)
    with pytest.raises(hilp.HilpError, match="also needs y"):
        setup.find_goal("x=9", tiny, world)


@simulated
def test_rows_tell_success_by_goal(tiny: hilp.FoundationPolicy) -> None:
    """The tiny policy has seen another maze: what matters here is what is counted."""
    world = tasks.make("pointmaze-medium")
    world.max_steps = 3
    (row,) = hilp.evaluate(tiny, world, plan=0, episodes=7)
    assert row["by_goal"] == dict.fromkeys([f"task{i}" for i in range(1, 6)], 0.0) and files.check(dict(row), "row")
    (row,) = hilp.evaluate(tiny, world, Goal("task2"), episodes=3)
    assert row["spec"]["goal"] == "task2" and row["by_goal"] == {"task2": 0.0}
    start: Any = world.goal_named("task2", np.random.default_rng(0)) + np.float32(0.5)
    assert world.episodes(np.random.default_rng(0), 1, start=start, goal="task2").reached().all()


@pytest.mark.skipif(not importlib.util.find_spec("gymnasium_robotics"), reason="needs the kitchen")
def test_goals_of_the_kitchen(tiny: hilp.FoundationPolicy) -> None:
    world = tasks.make("kitchen-mixed")
    found = setup.find_goal("microwave", tiny, world)
    running = world.episodes(np.random.default_rng(0), 1, goal=found.for_task)
    assert (running.goals[0] == found.observation.astype(np.float32)).all()
    assert world.subtasks_of(found.observation) == ("microwave",)
    slid = setup.find_goal("slide_cabinet=0.37", tiny, world).observation
    assert world.subtasks_of(slid) == ("slide cabinet",)
    with pytest.raises(hilp.HilpError, match="did you mean 'kettle'"):
        setup.find_goal("ketle", tiny, world)
