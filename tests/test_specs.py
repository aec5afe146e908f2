"""Specs of prompts go to JSON and back, refuse what makes no sense, and make the prompts that methods make."""

from __future__ import annotations

import dataclasses
import inspect
import json
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import export
from hilp.evaluation import rows
from hilp.export import runtime
from hilp.prompts import specs
from hilp.prompts.promptable import PromptablePolicy
from hilp.prompts.specs import Follow, Goal, Prefer, Prior, Reward, Saved, Skill, Sum, Then

EVERY = [
    Goal(),
    Goal([1.0, 2.0], plan="auto", goal_dims=(0, "y"), smooth=5),
    Goal("task3", plan=3, best=10, radius=2.0),
    Reward("run"),
    Reward("x - 0.1*norm(action)", rule="graph", intercept=True, discount=0.9, samples=50, seed=3),
    Skill(),
    Skill((1.0, 0.0), seed=2),
    Prior(k=5, seed=1),
    Follow([[0.0, 1.0], [1.0, 1.0]], window=3),
    Prefer("pairs.npz"),
    Saved("go.safetensors"),
    Sum(((1.0, Goal("task1")), (0.5, Reward("run")))),
    Then(Goal("task1"), Sum(((2.0, Skill()),)), until="x > 5"),
]


@pytest.mark.parametrize("spec", EVERY, ids=lambda spec: spec.kind)
def test_specs_go_to_json_and_back(spec: Any) -> None:
    described = json.loads(json.dumps(spec.to_json()))
    again = specs.from_json(described)
    assert type(again) is type(spec) and again.to_json() == described


def test_defaults_are_left_out() -> None:
    assert Goal().to_json() == {"kind": "goal", "plan": "auto"}, "but for the plan"
    assert Reward("run", rule="skill").to_json() == {"kind": "reward", "reward": "run", "rule": "skill"}


@pytest.mark.parametrize(
    ("described", "said"),
    [
        ({"kind": "gaol"}, "did you mean 'goal'"),
        ({"kind": "goal", "plans": 3}, "a goal prompt has no 'plans': did you mean 'plan'"),
        ({"kind": "reward", "reward": "run", "steady": 3}, "a reward prompt has no 'steady'"),
        ({"goal": 1}, "a dict with a 'kind'"),
        ([1], "a dict with a 'kind'"),
        ({"kind": "sum", "parts": []}, "at least one prompt"),
        ({"kind": "sum", "parts": [[float("nan"), {"kind": "skill"}]]}, "finite weight"),
        ({"kind": "then", "first": {"kind": "skill"}}, "a part of a prompt is a prompt"),
        ({"kind": "goal", "plan": 13}, "plan is a number of recursions from 0 to 12"),
        ({"kind": "goal", "plan": True}, "plan is a number of recursions"),
        ({"kind": "goal", "best": 0}, "best must be at least 1"),
        ({"kind": "goal", "radius": -1.0}, "radius is a number of latent steps above 0"),
        ({"kind": "goal", "smooth": 0}, "smooth is a number of steps"),
        ({"kind": "reward", "rule": "luck"}, "the rule of a reward is one of"),
        ({"kind": "reward", "discount": 1.0}, "between 0 and 1"),
        ({"kind": "reward", "reward": 3}, "a name or a formula"),
        ({"kind": "goal", "best": 2.5}, "best must be a whole number"),
        ({"kind": "goal", "goal_dims": 1.5}, "goal_dims are numbers or names of columns"),
        ({"kind": "skill", "z": ["a"]}, "the z of a skill is a row of numbers"),
        ({"kind": "skill", "z": 3}, "the z of a skill is a row of numbers"),
        ({"kind": "sum", "parts": [{"kind": "goal"}]}, "a sum is made of pairs"),
        ({"kind": "prior", "k": 0}, "k must be at least 1"),
        ({"kind": "follow", "window": 1.5}, "window must be a whole number"),
        ({"kind": "then", "first": {"kind": "skill"}, "second": {"kind": "skill"}, "until": 0}, "until must be"),
    ],
)
def test_what_makes_no_sense_is_refused(described: Any, said: str) -> None:
    with pytest.raises(hilp.HilpError, match=said):
        specs.from_json(described)


def test_numbers_of_numpy_are_numbers() -> None:
    spec = Goal(
        plan=np.int64(3), best=np.int32(10), radius=np.float32(2.0), goal_dims=np.array([0, 1]), smooth=np.float64(5)
    )
    assert spec == Goal(plan=3, best=10, radius=2.0, goal_dims=(0, 1), smooth=5.0)
    reward = Reward("run", discount=np.float32(0.5), samples=np.int64(9), seed=np.uint8(3))
    assert reward == Reward("run", discount=0.5, samples=9, seed=3)
    for one in (
        spec,
        reward,
        Prior(np.int64(5)),
        Sum(((np.float32(0.5), Skill(np.ones(2))),)),
        Then(spec, spec, np.int64(5)),
    ):
        assert specs.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_one_text_names_several_columns() -> None:
    assert Goal(goal_dims="x,y").goal_dims == ("x", "y")  # type: ignore[arg-type]
    assert Goal(goal_dims="0, 12").goal_dims == (0, 12)  # type: ignore[arg-type]


@pytest.fixture(params=["hilp", "exported"])
def backend(request: pytest.FixtureRequest, tiny: hilp.FoundationPolicy, tmp_path: Any) -> Any:
    if request.param == "hilp":
        return tiny
    export.write(tiny, "numpy", tmp_path / "robot")
    return runtime.load(tmp_path / "robot")


def test_a_policy_makes_the_prompts_of_specs(backend: Any, tmp_path: Any) -> None:
    tiny = backend
    seen = np.array([[1.5, 1.5], [6.5, 2.5]], np.float32)
    goal = tiny.prompt(Goal((6.5, 1.5), plan=1))
    np.testing.assert_array_equal(goal(seen), tiny.goal([6.5, 1.5], plan=1)(seen))
    goal.save(tmp_path / "go.safetensors")
    np.testing.assert_array_equal(tiny.prompt(Saved(tmp_path / "go.safetensors"))(seen), goal(seen))
    skill = tiny.prompt(Skill(seed=3))
    np.testing.assert_array_equal(skill(seen), tiny.skill(seed=3)(seen))
    both = tiny.prompt(Sum(((1.0, Goal((6.5, 1.5), plan=1)), (0.5, Skill(seed=3)))))
    np.testing.assert_array_equal(both(seen), (goal + 0.5 * skill)(seen))
    then = tiny.prompt(Then(Skill(seed=3), Goal((6.5, 1.5), plan=1), until=1))
    np.testing.assert_array_equal(then(seen), skill(seen))
    np.testing.assert_array_equal(then(seen), goal(seen))
    with pytest.raises(hilp.HilpError, match="needs its task"):
        tiny.prompt(Goal("task3"))
    with pytest.raises(hilp.HilpError, match="made of a spec"):
        tiny.prompt("goal")


def test_the_keywords_of_python_are_the_options_of_specs() -> None:
    """`policy.goal` and `policy.reward` write the options out for readers; they may not drift."""
    for method, options in ((PromptablePolicy.goal, specs.GoalOptions), (PromptablePolicy.reward, specs.RewardOptions)):
        keywords = {name: one.default for name, one in inspect.signature(method).parameters.items()}
        assert {field.name: field.default for field in dataclasses.fields(options)}.items() <= keywords.items()


def test_titles_tell_options_apart() -> None:
    row = {"prompt": "goal", "plan": "auto", "spec": {"kind": "goal", "plan": "auto", "smooth": 3.0}}
    assert rows.option_words(rows.options(row)) == ", smooth 3.0"
    assert rows.option_words(rows.options({**row, "spec": {"kind": "goal", "plan": "auto"}})) == ""


def test_arrays_go_to_json() -> None:
    places = np.float32([[6.5, 1.5], [7.5, 2.5]])
    assert Goal(places[0]).to_json() == {"kind": "goal", "goal": [6.5, 1.5], "plan": "auto"}
    assert Follow(places).to_json()["trajectory"] == places.tolist()


def test_a_batch_of_another_size_begins_a_sequence_anew(tiny: hilp.FoundationPolicy) -> None:
    states = tiny.bank.observations
    prompt = tiny.goal(states[0]).then(tiny.goal(states[1], plan="graph"), until=1)
    for count in (2, 2, 5, 5, 5):
        assert prompt(states[:count]).shape == (count, tiny.skill_dim)


def test_other_prompts_under_a_reward_are_not_that_reward() -> None:
    row = {"task": "t", "prompt": "reward", "reward": "right", "spec": {"kind": "reward", "reward": "right"}}
    assert rows.prompt_of(row) != rows.prompt_of({**row, "spec": {"kind": "skill", "seed": 0}})
    assert rows.prompt_of({**row, "spec": {"kind": "skill"}}) != rows.prompt_of(row)
