"""Steady prompts: an agent is taken to be where it was on average over the last steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp.prompts.memory import LatentEma


def test_the_mean_by_hand() -> None:
    smooth = LatentEma(4.0, jump=10.0)
    assert smooth(np.array([[0.0], [8.0]])).tolist() == [[0.0], [8.0]]
    assert smooth(np.array([[4.0], [8.0]])).tolist() == [[1.0], [8.0]]
    assert smooth(np.array([[5.0], [0.0]])).tolist() == [[2.0], [6.0]]


def test_a_jump_a_reset_and_another_batch_begin_anew() -> None:
    smooth = LatentEma(4.0, jump=10.0)
    smooth(np.array([[0.0], [0.0]]))
    assert smooth(np.array([[11.0], [4.0]])).tolist() == [[11.0], [1.0]], "who is suddenly elsewhere"
    smooth.reset([1])
    assert smooth(np.array([[15.0], [8.0]])).tolist() == [[12.0], [8.0]]
    assert smooth(np.array([[3.0]])).tolist() == [[3.0]]
    smooth.reset()
    assert smooth(np.array([[7.0]])).tolist() == [[7.0]]


def test_what_is_handed_out_is_not_what_is_remembered() -> None:
    smooth = LatentEma(2.0, jump=10.0)
    smooth(np.zeros((1, 1)))[:] = 100.0
    assert smooth(np.array([[2.0]])).tolist() == [[1.0]]


@pytest.mark.parametrize("plan", [0, 2, "midpoints"])  # on the graph who stands still is sent astray
def test_noise_of_a_sensor_turns_the_skill_less(plan: int | str, tiny: hilp.FoundationPolicy) -> None:
    rng = np.random.default_rng(0)
    seen = np.array([1.5, 1.5]) + rng.normal(scale=0.2, size=(60, 2))

    def swings(**how: Any) -> float:
        prompt = tiny.goal([6.5, 1.5], plan=plan, **how)
        skills = np.stack([prompt(row[None])[0] for row in seen])[20:]
        return float(np.linalg.norm(skills - skills.mean(axis=0), axis=1).mean())

    assert swings(smooth=10) < 0.6 * swings()
    assert swings(smooth=1) == swings()


def test_one_observation_at_a_time_is_a_batch_of_one(tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset) -> None:
    prompts = [tiny.goal([6.5, 1.5], plan="auto", smooth=5) for _ in range(2)]
    for row in tiny_data.observations[:6]:
        one, batch = tiny.act(row, prompts[0]), tiny.act(row[None], prompts[1])[0]
        np.testing.assert_array_equal(one, batch)
    prompts[0].reset()
    plain = tiny.goal([6.5, 1.5], plan="auto")
    here = tiny_data.observations[50:51]
    np.testing.assert_array_equal(prompts[0](here), plain(here))


def test_saved_and_loaded(tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset, tmp_path: Path) -> None:
    prompt = tiny.goal([6.5, 1.5], plan=1, smooth=5)
    prompt.save(tmp_path / "calm")
    again = tiny.load_prompt(tmp_path / "calm")
    for row in tiny_data.observations[:4]:
        np.testing.assert_array_equal(prompt(row[None]), again(row[None]))


@pytest.mark.parametrize("smooth", [0, 0.5, -3, float("nan"), float("inf"), True, "ten"])
def test_numbers_of_steps_that_are_none(smooth: Any, tiny: hilp.FoundationPolicy) -> None:
    with pytest.raises(hilp.HilpError, match="smooth is a number of steps from 1 on"):
        tiny.goal([6.5, 1.5], smooth=smooth)


def test_rows_and_commands(tiny_run: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    words = ("evaluate", tiny_run, "--plan", 0, "--episodes", 3, "--json", "--rows", "/dev/null")
    code, out, err = run(*words, "--smooth", 3)
    assert code == 0 and json.loads(out)["spec"]["smooth"] == 3.0, err
    code, _, err = run(*words, "--smooth", 0)
    assert code == 2 and "smooth is a number of steps" in err
    code, out, err = run("prompt", tiny_run, "--goal", "1.5,2.5", "--smooth", 3, "--steps", 2, "--json")
    assert code == 0, err
    code, _, err = run("prompt", tiny_run, "--skill", "random", "--smooth", 3)
    assert code == 2 and "--smooth changes nothing about a prompt with --skill" in err
