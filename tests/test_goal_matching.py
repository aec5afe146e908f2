"""Goals of which only some numbers matter: states of the data that stand in for them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hilp
from hilp.evaluation import setup
from hilp.prompts.goal import Places

SMALL = hilp.HILP(dim=4, hidden=(16,), actor_hidden=(16,), batch=32, normalize=True)


def test_states_are_held_against_a_place_in_units_of_their_spread_and_angles_wrap() -> None:
    known = np.array([[0.0, 170.0], [10.0, -170.0], [0.0, 0.0]])
    places = Places(known, np.array([0.0, 360.0]))
    one, two = known.std(axis=0)
    found = places.apart(np.array([10.0, 170.0]))
    np.testing.assert_allclose(found, [10 / one, 20 / two, np.hypot(10 / one, 170 / two)])
    assert places.largest_gap() == pytest.approx(np.hypot(10 / one, 20 / two).clip(170 / two))


@pytest.fixture(scope="module")
def roaming() -> hilp.FoundationPolicy:
    """A policy of a robot with a place (x, y) and a posture of two numbers, which is never at rest."""
    rng = np.random.default_rng(0)
    place = np.cumsum(rng.uniform(-0.2, 0.2, size=(3_000, 2)), axis=0)
    turn = rng.uniform(0, 2 * np.pi, size=3_000)
    observations = np.column_stack([place, np.sin(turn), np.cos(turn)]).astype(np.float32)
    parts = tuple((name, ()) for name in ("x", "y", "s", "c"))
    data = hilp.Dataset(observations, rng.uniform(-1, 1, (3_000, 2)).astype(np.float32), np.full(30, 100))
    return hilp.pretrain(SMALL, replace(data, observation_parts=parts), steps=20, bank=2_000, quiet=True)


def test_a_place_is_asked_for_in_a_posture_that_the_data_has(roaming: hilp.FoundationPolicy) -> None:
    states = roaming.bank.observations
    asked = np.array([*states[700, :2], 0.0, 0.0], np.float32)  # nobody ever had this posture
    found = roaming.goal(asked, goal_dims=(0, 1)).goal
    assert any((states == found).all(axis=1)), "a state of the data"
    assert np.linalg.norm(found[:2] - asked[:2]) < 1.0 and np.hypot(*found[2:]) == pytest.approx(1.0, abs=1e-5)
    apart = np.linalg.norm((states[:, :2] - asked[:2]) / states[:, :2].std(axis=0), axis=1)
    around = np.argsort(apart, kind="stable")[:10]
    latents = roaming.encode(states[around])
    midst = around[np.argmin(np.linalg.norm(latents - latents.mean(axis=0), axis=1))]
    np.testing.assert_array_equal(found, states[midst])
    several = roaming.goal(np.stack([asked, states[5]]), goal_dims=[0, 1]).goal
    np.testing.assert_array_equal(several[0], found)


def test_a_place_where_nobody_was_is_told(roaming: hilp.FoundationPolicy) -> None:
    with pytest.warns(UserWarning, match="no state of the data is near this goal"):
        roaming.goal([500.0, 0.0, 0.0, 1.0], goal_dims=(0,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        roaming.goal(roaming.bank.observations[3], goal_dims=(0, 1))


def test_a_saved_prompt_holds_the_state_that_was_matched(roaming: hilp.FoundationPolicy, tmp_path: Path) -> None:
    here = roaming.bank.observations[:5]
    for place in np.random.default_rng(0).uniform(-1.0, 1.0, (30, 4)):  # matching twice would move many of them
        prompt = roaming.goal(place, plan="midpoints", goal_dims=(0, 1))
        prompt.save(tmp_path / "place.safetensors")
        again = roaming.load_prompt(tmp_path / "place.safetensors")
        np.testing.assert_array_equal(prompt.goal, again.goal)
        np.testing.assert_array_equal(prompt(here), again(here))


def test_what_is_open_need_not_be_given(roaming: hilp.FoundationPolicy) -> None:
    with pytest.raises(hilp.HilpError, match=r"also needs s, c \(or say that they do not matter: --goal-dims x,y\)"):
        setup.find_goal("x=1,y=2", roaming)
    assert setup.column_numbers("y, x,3", roaming, None) == (1, 0, 3)
    assert setup.find_goal("x=1,y=2", roaming, goal_dims=(0, 1)).observation[:2].tolist() == [1.0, 2.0]
    with pytest.raises(hilp.HilpError, match="also needs y"):
        setup.find_goal("x=1", roaming, goal_dims=(0, 1))
    with pytest.raises(hilp.HilpError, match="also needs x"):
        setup.find_goal("x=nan,y=1", roaming, goal_dims=(0, 1))


@pytest.mark.parametrize(
    ("goal_dims", "says"),
    [
        ((), "goal_dims are numbers or names of columns"),
        ((0.5,), "goal_dims are numbers or names of columns"),
        ((4,), "one or more of its columns 0 to 3"),
        ((-1,), "one or more of its columns 0 to 3"),
        (("x",), "one or more of its columns 0 to 3"),
    ],
)
def test_columns_that_are_none(goal_dims: tuple[int, ...], says: str, roaming: hilp.FoundationPolicy) -> None:
    with pytest.raises(hilp.HilpError, match=says):
        roaming.goal(roaming.bank.observations[0], goal_dims=goal_dims)


def test_a_policy_without_states_or_with_named_parts_has_no_stand_ins(
    roaming: hilp.FoundationPolicy, change: Callable[..., hilp.FoundationPolicy]
) -> None:
    plain = small()
    named = replace(plain, observations={"state": plain.observations})
    parts = hilp.pretrain(SMALL, named, steps=1, quiet=True)
    with pytest.raises(hilp.HilpError, match="columns of a goal, and this policy sees state"):
        parts.goal({"state": np.zeros(4)}, goal_dims=(0,))
    empty = change(roaming, bank=hilp.pretrain(SMALL, small(), steps=1, bank=0, quiet=True).bank)
    with pytest.raises(hilp.HilpError, match="without a bank of states"):
        empty.goal(np.zeros(4), goal_dims=(0,))


def small() -> hilp.Dataset:
    rng = np.random.default_rng(1)
    return hilp.Dataset(
        rng.normal(size=(100, 4)).astype(np.float32), rng.uniform(-1, 1, (100, 2)).astype(np.float32), np.array([100])
    )


def test_methods_that_take_goals_as_they_are_have_stand_ins_too() -> None:
    config = hilp.preset("gc-bc", "laptop").config
    policy = hilp.pretrain(replace(config, actor_hidden=(16,), batch=32), small(), steps=2, quiet=True)
    found = policy.goal(np.array([0.1, 9.0, 9.0, 9.0]), goal_dims=(0,)).goal
    assert any((policy.bank.observations == found).all(axis=1)) and abs(found[0] - 0.1) < 0.5


def test_rows_say_what_mattered_and_success_is_the_tasks_affair(
    tiny_run: Path, tiny: hilp.FoundationPolicy, run: Callable[..., tuple[int, str, str]]
) -> None:
    words = ("evaluate", tiny_run, "--plan", 0, "--episodes", 3, "--json", "--rows", "/dev/null")
    code, out, err = run(*words, "--goal-dims", "x,y")
    assert code == 0, err
    assert json.loads(out)["spec"]["goal_dims"] == [0, 1]
    code, _, err = run(*words, "--goal-dims", "x,posture")
    assert code == 2 and "maze-medium has no column 'posture'" in err
    code, out, err = run("prompt", tiny_run, "--goal", "x=1.5,y=2.5", "--goal-dims", "x,y", "--steps", 2, "--json")
    assert code == 0, err
    code, _, err = run("prompt", tiny_run, "--skill", "random", "--goal-dims", "x")
    assert code == 2 and "--goal-dims changes nothing about a prompt with --skill" in err
    code, _, err = run("evaluate", tiny_run, "--goal-dims", "x", "--plan", "--rewards", "right")
    assert code == 2 and "--goal-dims changes nothing without a goal prompt" in err
