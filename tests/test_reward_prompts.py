"""Rewards from the shell: names of columns, forms that work, a leading minus, scores and pictures; films on a plan."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import hilp
from hilp import tasks
from hilp.evaluation import rollouts, setup
from hilp.prompts import formulas, reward
from hilp.report import figures, page, video

Run = Callable[..., tuple[int, str, str]]
X_AND_Y = {"x": 0, "y": 1}


def told(result: tuple[int, str, str]) -> dict[str, Any]:
    code, out, err = result
    assert code == 0, err
    return dict(json.loads(out))


# ---- formulas --------------------------------------------------------------------------------------------------------


def test_columns_are_names_beside_parts() -> None:
    s, s2 = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[2.0, 2.0], [3.0, 7.0]])
    formula = formulas.reward("2*x + y", (), 2, 2, X_AND_Y)
    np.testing.assert_allclose(formula(s, s, s2, None), [6.0, 13.0])  # type: ignore[arg-type]
    assert formula.change is not None and formula.change.text == "(2*x + y) - before(2*x + y)"
    np.testing.assert_allclose(formula.change(s, s, s2, None), [2.0, 3.0])  # type: ignore[arg-type]
    again = formulas.reward(formula.change.text, (), 2, 2, X_AND_Y)
    np.testing.assert_allclose(again(s, s, s2, None), [2.0, 3.0])  # type: ignore[arg-type]
    assert again.change is None and formulas.reward("x*action[0]", (), 2, 2, X_AND_Y).change is None
    parted = formulas.reward("x", (("y", (1,)), ("x", (1,))), 2, 2, X_AND_Y)
    np.testing.assert_allclose(parted(s, s, s2, None), [2.0, 7.0])  # type: ignore[arg-type]  # the data's own names win


@pytest.mark.parametrize("name", ["maze-medium", "antmaze-large", "walker"])
def test_tasks_name_their_columns(name: str) -> None:
    if name != "maze-medium":
        pytest.importorskip("mujoco")
    world = tasks.make(name)
    assert ("height" if name == "walker" else "x") in world.columns
    assert sorted(set(world.columns.values())) == sorted(world.columns.values())
    assert max(world.columns.values()) < world.observation_dim
    text = " + ".join(world.columns)
    formulas.reward(text, (), world.observation_dim, world.action_dim, world.columns)


# ---- the shell -------------------------------------------------------------------------------------------------------


def test_a_reward_by_columns_with_a_leading_minus(tiny_run: Path, run: Run) -> None:
    words = ["prompt", tiny_run, "--reward", "-abs(x-5)", "--steps", 3, "--json"]
    code, out, err = run(*words)
    assert code == 0, err
    assert json.loads(out)["return"] < 0
    found = told(run("prompt", tiny_run, "--reward", "x - before(x)", "--steps", 20, "--start", "1.5,1.5", "--json"))
    assert found["return"] == pytest.approx(found["end"][0] - found["start"][0], abs=1e-4)
    assert "reached" not in found
    code, out, err = run("prompt", tiny_run, "--skill", "-1,0,0,0,0,0,0,0.5", "--steps", 1, "--json")
    assert code == 0, err


def test_a_named_reward_tells_its_gain_and_share(tiny_run: Path, run: Run) -> None:
    found = told(run("prompt", tiny_run, "--reward", "right", "--steps", 30, "--start", "1.5,1.5", "--json"))
    world = tasks.make("maze-medium")
    gain = found["end"][0] - found["start"][0]
    assert found["gain"] == pytest.approx(gain, abs=1e-4)
    possible = world.potential_max("right") - found["start"][0]
    assert found["share of the possible gain"] == pytest.approx(gain / possible, abs=1e-3)
    by_goal = told(run("prompt", tiny_run, "--reward", "region", "--rule", "goal", "--steps", 5, "--json"))
    assert "return" in by_goal and "reached" not in by_goal


def test_mistakes_show_the_form_that_works(tiny_run: Path, refused: Callable[..., str]) -> None:
    line = refused("prompt", tiny_run, "--reward", "z")
    assert "no reward 'z'" in line and "'x - before(x)'" in line
    line = refused("prompt", tiny_run, "--reward", "z - before(z)")
    assert "unknown name" in line and "'x - before(x)'" in line


def test_a_low_fit_names_the_change_that_fits(tiny: hilp.FoundationPolicy) -> None:
    formula = formulas.reward("x", (), 2, 2, X_AND_Y)
    assert formula.change is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = tiny.reward(None, formula.change, rule="skill").r2  # type: ignore[union-attr]
    with pytest.warns(UserWarning, match="phi expresses only") as caught:
        tiny.reward(None, formula, rule="skill")
    text = next(str(one.message) for one in caught if "expresses" in str(one.message))
    assert "--rule goal" in text
    assert (f"'x - before(x)' (R^2 = {fits:.2f})" in text) == (fits >= 0.7), "only what fits is recommended"
    with pytest.warns(UserWarning, match="--rule goal") as caught:
        tiny.reward(None, lambda s, a, s2: s2[:, 0], rule="skill")
    assert not any("before(" in str(one.message) for one in caught), "nobody knows f of a function"


# ---- pictures and films ----------------------------------------------------------------------------------------------


def test_a_rewards_picture_is_coloured_by_what_was_earned() -> None:
    world = tasks.make("maze-medium")
    path = np.array([[1.5, 1.5], [1.9, 1.5], [2.3, 1.5]])
    fig = figures.earnings(world, path, [0.0, 0.4, 0.8], "reward prompt: earned 0.8")
    (line,) = fig.axes[0].collections
    np.testing.assert_allclose(np.asarray(line.get_array()), [0.4, 0.8])
    assert "earned 0.8" in fig.axes[0].get_title(loc="left")
    assert not fig.legends, "nothing is 'reached'"
    with pytest.raises(ValueError, match="one number a state"):
        figures.earnings(world, path, [0.0])


def test_the_report_colours_rewards_by_their_share(tiny: hilp.FoundationPolicy) -> None:
    from hilp.evaluation import evaluate, trajectories

    world = tasks.make("maze-medium")
    found = evaluate.evaluate_with_rollouts(tiny, world, plan=(), rewards=["right", "region"], episodes=3)
    kept = [trajectories.first_episodes(*pair) for pair in found]
    fig = page._earnings_figure(world, kept, [row for row, _ in found])
    panels = fig.axes[:2]
    row = found[0][0]
    shares = np.array(row["outcomes"]) / np.array(row["possible"])
    np.testing.assert_allclose(np.asarray(panels[0].collections[0].get_array()), np.clip(shares, 0, 1))
    assert panels[0].get_title(loc="right") == f"{100 * row['score']:.1f}%"
    assert panels[1].get_title(loc="right") == f"{found[1][0]['score']:.1f}"
    assert not fig.legends


def test_a_film_of_a_goal_has_the_plan_beside_none(tiny_run: Path, tmp_path: Path, run: Run) -> None:
    target = tmp_path / "goal.gif"
    words = ["prompt", tiny_run, "--goal", "5.5,5.5", "--start", "1.5,1.5", "--steps", 8, "--video", target, "--json"]
    assert told(run(*words))["video"] == str(target)
    with Image.open(target) as film:
        assert film.width > 1.5 * film.height, "two panels"
        assert film.n_frames > 1
    assert told(run("prompt", tiny_run, "--reward", "up", "--steps", 2, "--video", target, "--json"))["video"]


def test_frames_move_the_robot_and_nothing_else(tiny: hilp.FoundationPolicy) -> None:
    world = tasks.make("maze-medium")
    path = np.array([[1.5, 1.5], [1.9, 1.5], [2.3, 1.5], [2.7, 1.5]], np.float32)
    frames = video.on_plan(tiny, world, {"plan 0": path}, np.array([5.5, 5.5], np.float32))
    assert frames.dtype == np.uint8 and len(frames) == 4 + video.HELD
    changed = (frames[0] != frames[3]).any(axis=-1)
    assert 0 < changed.mean() < 0.05
    assert (frames[3] == frames[-1]).all(), "the end stays"
    plain = video.on_plan(tiny, world, {"right": path})
    assert len(np.unique(plain[0].reshape(-1, 3), axis=0)) < len(np.unique(frames[0].reshape(-1, 3), axis=0))


def test_path_rewards_are_those_of_the_steps(tiny: hilp.FoundationPolicy) -> None:
    world = tasks.make("maze-medium")
    path = np.array([[1.5, 1.5], [1.9, 1.5], [1.7, 1.5]], np.float32)
    walked = rollouts.Episode(path, np.zeros((2, 2), np.float32), {}, 1.0, path[:1], path[-1:])
    found = rollouts.rewards_along(world, setup.reward_function(world, "left"), walked)
    np.testing.assert_allclose(found, [-0.4, 0.2], atol=1e-6)


def test_the_change_of_what_is_observed_is_known_as_one() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, 400, 3)).astype(np.float32)
    change, r2 = reward._change(before, after, 2.0 * (after[:, 0] - before[:, 0]) - 0.5)
    assert r2 > reward.EXACT
    np.testing.assert_allclose(change - change[0], 2.0 * (after[:, 0] - after[0, 0]), atol=1e-3)
    assert reward._change(before, after, after[:, 0])[1] < 0.7
    assert reward._change(before, after, np.abs(after[:, 0] - before[:, 0]))[1] < 0.7
    few = (*rng.normal(size=(2, 20, 29)).astype(np.float32), rng.normal(size=20))
    assert reward._change(*few)[1] < 0.5, "as many columns as samples explain anything"
