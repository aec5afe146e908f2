"""What is said after an evaluation besides the score, and what is not said where it means nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import hilp
from hilp import runs
from hilp.errors import HilpError
from hilp.evaluation import behaviour, explain, rollouts, setup
from hilp.report import page

ROW = {"task": "t", "method": "m", "policy": "p", "prompt": "reward", "reward": "up", "metric": "return", "score": -4.0}


def test_an_episode_that_ends_early_does_not_gain_by_it() -> None:
    alive = np.array([[True, True], [True, False], [True, False], [True, False]])
    assert rollouts.charged(-1.0 * alive, alive).tolist() == [-4.0, -4.0], "the steps that it missed cost as much"
    assert rollouts.charged(1.0 * alive, alive).tolist() == [4.0, 1.0], "what was not earned is not made up"


def test_passed_and_not_kept() -> None:
    time = np.arange(100)
    through, stays, never = 1.0 * ((time > 40) & (time < 60)), 1.0 * (time > 40), np.zeros(100)
    lived = np.full(3, 100)
    assert behaviour._passed(np.stack([through, stays, never], axis=1), lived).tolist() == [True, False, False]
    assert not behaviour._passed(np.ones((50, 2)), np.full(2, 50)).any()


def rollout_of(tiny: hilp.FoundationPolicy, path: np.ndarray, actions: np.ndarray, reached: bool) -> rollouts.Rollout:
    steps, n = actions.shape[:2]
    goals = np.ones((n, path.shape[-1]))
    return rollouts.Rollout(
        path, np.full(n, steps), goals, np.full(n, reached), list(actions), [np.ones(n, bool)] * steps
    )


def test_standing_still_and_commands_at_their_limits(tiny: hilp.FoundationPolicy) -> None:
    still = np.repeat(np.asarray(tiny.bank.observations[:1])[None], 41, axis=0)  # steps + 1 x 1 x obs
    most = tiny.preparation.action_center + tiny.preparation.action_half_range
    actions = np.tile(most, (40, 1, 1))
    found = behaviour.behaviour(tiny, rollout_of(tiny, still, actions, reached=False))
    assert found["standing"] == 1 and found["at_limits"] == 1.0 and found["steps_alive"] == 40.0
    assert behaviour.behaviour(tiny, rollout_of(tiny, still, actions, reached=True))["standing"] == 0
    moving = np.asarray(tiny.bank.observations[:41])[:, None]
    assert behaviour.behaviour(tiny, rollout_of(tiny, moving, 0 * actions, reached=False)) | {"at_limits": 0.0} == {
        "steps_alive": 40.0, "standing": 0, "at_limits": 0.0, "data_at_limits": found["data_at_limits"],
    }  # fmt: skip


def test_words_of_a_row() -> None:
    told = {"steps_alive": 31.0, "ended_early": 7, "passed": 5, "at_limits": 0.9, "data_at_limits": 0.1, "standing": 0}
    row = {**ROW, "episodes": 10, "falls": 6, "uncharged": -1.0, "behaviour": told}
    early, passed, limits = behaviour.words(row)
    assert "7 of 10 episodes ended early, 6 by a fall: they lasted 31 steps" in early and "missing" in early
    assert "passed, not kept" in passed and "90% of commands are at their limit, 10% in the data" in limits
    goal = {**row, "prompt": "goal", "plan": "auto", "behaviour": {"standing": 4, "steps_alive": 9.0}}
    assert [("plan auto, 4 of 10" in words, "standing still" in words) for words in behaviour.words(goal)] == [
        (True, True)
    ]
    assert not list(behaviour.words({**row, "behaviour": {}}))


def test_an_evaluation_says_what_its_episodes_were_like(tiny: hilp.FoundationPolicy) -> None:
    (row,) = hilp.evaluate(tiny, "maze-medium", prompts=[hilp.Goal(plan=0)], episodes=3)
    assert row["behaviour"].keys() >= {"steps_alive", "standing", "at_limits"}


def test_the_r2_of_a_graph_is_not_shown_as_a_promise() -> None:
    rows = [{**ROW, "episodes": 2, "rule": rule, "r2": 0.74, "largest": 1.5} for rule in ("skill", "graph")]
    headers, lines = page.results_table(rows)
    r2, largest = headers.index("R²"), headers.index("best step")
    assert [(line[r2], line[largest]) for line in lines] == [("0.74", "1.5"), (None, "1.5")]


PLAN = {"data": "log", "episodes": 4, "transitions": 100, "neighbour_distance": 1.0, "advised_plan": 1, "replayed": 0.9}


def sentences(**changed: object) -> str:
    plans = [
        {**PLAN, **changed, "plan": plan, "agreement": share, "reached_any": True}
        for plan, share in ((0, 0.9), (1, 0.6))
    ]
    return " ".join(explain.explain_held_out(plans))


def test_held_out_sentences_are_silent_where_a_measure_says_nothing() -> None:
    usual = sentences()
    assert "60% (plan 1; by chance 50%)" in usual and "90%" not in usual, "of the plan that is advised"
    assert usual.endswith("advises plan 1: it arrives sooner than plan 0 by more than chance.")
    assert sentences(advised_plan=0).endswith("advises plan 0: no other arrives sooner by more than chance.")
    targets = sentences(targets=2)
    assert "same direction" not in targets and "are targets of columns" in targets
    lost = sentences(replayed=0.1)
    assert "says nothing here" in lost and "advises plan" not in lost


def test_the_folder_of_a_hierarchy_is_no_unfinished_run(tmp_path: Path) -> None:
    (tmp_path / runs.RUN).write_text("{}")
    (tmp_path / runs.PROMPT).write_bytes(b"")
    with pytest.raises(HilpError, match=r"high level of a hierarchy.*--load"):
        runs.find(tmp_path)


def test_an_extra_column_alone_is_a_reward(tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset) -> None:
    tip = np.asarray(tiny_data.observations)[:, 0].copy()
    data = dataclasses.replace(tiny_data, extras={**tiny_data.extras, "tip_x": tip})
    read = {text: setup.reward_of(text, tiny, None, data) for text in ("tip_x", "tip_x + 0")}
    alone, sum_of = (tiny.reward(data, function, rule="skill") for function in read.values())
    assert np.array_equal(alone.z, sum_of.z)
    with pytest.raises(HilpError, match="there is no column 'tip_y': did you mean 'tip_x'"):
        setup.reward_of("tip_y", tiny, None, data)


def test_a_method_without_distances_says_what_it_knows(tiny: hilp.FoundationPolicy) -> None:
    first, second = explain.explain_without_distances(tiny)
    assert "does not learn distances" in first and "updates on maze" in first and "It takes " in second


def test_saved_skills_are_checked(tiny: hilp.FoundationPolicy, tmp_path: Path) -> None:
    from hilp.storage.arrays import read_arrays, write_arrays

    path = tiny.skill().save(tmp_path / "skill.safetensors") or tmp_path / "skill.safetensors"
    arrays, note = read_arrays(path)
    for z in (np.zeros(3, np.float32), np.full_like(arrays["z"], 3e38), np.full_like(arrays["z"], np.nan)):
        write_arrays(path, {**arrays, "z": z}, note)
        with pytest.raises(HilpError):
            tiny.load_prompt(path)


def test_another_seed_is_another_state_without_a_task(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hilp.commands import prompt_run

    policy = hilp.FoundationPolicy.load(tiny_run)

    class Flags:
        start, seed = None, 0

    found = []
    for Flags.seed in (0, 1, 0):
        found.append(prompt_run.act_once(Flags, policy, policy.skill())["at"])
    assert found[0] == found[2] != found[1]
