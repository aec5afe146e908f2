"""Steady prompts: an agent is taken to be where it was on average over the last steps."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp.prompts.graph import Graph
from hilp.prompts.memory import LatentEma
from hilp.prompts.posture import smoothing_steps
from hilp.prompts.specs import Goal


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


def walks(swing: float, period: float, length: int = 250, count: int = 60, noise: float = 0.1) -> np.ndarray:
    """Latents [count, length, 4] of bodies that go on by half a step each, turn now and then, and swing their legs."""
    rng = np.random.default_rng(0)
    turns = rng.choice([-1, 0, 1], p=[0.025, 0.95, 0.025], size=(count, length)) * np.pi / 2
    heading = np.cumsum(turns, axis=1)
    moved = 0.5 * np.stack([np.cos(heading), np.sin(heading)], axis=2) + noise * rng.normal(size=(count, length, 2))
    legs = 2 * np.pi * (np.arange(length) / period + rng.random((count, 1)))
    swung = swing * np.stack([np.sin(legs), np.cos(legs)], axis=2) @ np.array([[0.6, 0, 0.8, 0], [0, 0.6, 0, 0.8]])
    return np.concatenate([np.cumsum(moved, axis=1), np.zeros_like(moved)], axis=2) + swung


def chosen(latents: np.ndarray, ahead: float = 15) -> int:
    count, length, size = latents.shape
    return smoothing_steps(latents.reshape(-1, size), np.full(count, length), ahead)


def test_legs_that_swing_are_smoothed_over_about_a_stride_and_a_point_is_not() -> None:
    assert chosen(walks(3.5, period=10)) in (7, 10, 14)
    assert chosen(walks(3.0, period=4)) in (5, 7, 10)
    assert chosen(walks(0.0, period=10)) == 1 == chosen(walks(0.0, period=10, noise=0.5)), "points, one of them noisy"
    assert chosen(walks(0.3, period=10)) == 1, "what hardly swings"


def test_data_that_cannot_tell_is_not_smoothed() -> None:
    assert chosen(walks(3.5, period=10, length=50)) == 1, "too short"
    assert chosen(np.zeros((5, 250, 3))) == 1, "nobody moves"
    assert smoothing_steps(np.zeros((0, 3)), np.zeros(0, int), 10) == 1


def test_auto_takes_what_the_graph_says(tiny: hilp.FoundationPolicy, tmp_path: Path) -> None:
    assert tiny.graph is not None and tiny.graph.smooth == 1.0, "a point in a maze"
    assert tiny.goal([6.5, 1.5]).latent_ema is None
    legs = dataclasses.replace(tiny, graph=dataclasses.replace(tiny.graph, smooth=10.0))
    legs.save(tmp_path / "legs")
    for policy in (legs, hilp.FoundationPolicy.load(tmp_path / "legs")):
        for plan in (0, "auto"):
            ema = policy.goal([6.5, 1.5], plan=plan).latent_ema
            assert ema is not None and ema.steps == 10.0
        assert policy.goal([6.5, 1.5], smooth=1).latent_ema is None
    (row,) = hilp.evaluate(legs, "maze-medium", prompts=[Goal(plan=0)], episodes=2)
    assert row["smooth"] == 10.0 and "smooth" not in row["spec"]
    (row,) = hilp.evaluate(tiny, "maze-medium", prompts=[Goal(plan=0)], episodes=2)
    assert "smooth" not in row


def test_graphs_without_the_number_load(tiny: hilp.FoundationPolicy) -> None:
    assert tiny.graph is not None
    columns = dict(tiny.graph.columns(), smooth=np.full(1, 7, np.float32))
    assert Graph.from_columns(columns, len(tiny.bank)).smooth == 7
    for wrong in (0.5, np.nan, np.inf):
        with pytest.raises(ValueError, match="smooth"):
            Graph.from_columns({**columns, "smooth": np.full(1, wrong, np.float32)}, len(tiny.bank))
    del columns["smooth"]
    assert Graph.from_columns(columns, len(tiny.bank)).smooth == 1


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
