"""Values of the wrong kind for every public argument: a HilpError of one line or a result, never another exception."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp.data import load
from hilp.errors import HilpError
from hilp.learning import methods
from hilp.prompts import specs

MASKED = np.ma.masked_array([1.0, 2.0], [True, False])
JUNK = [
    None, 5, -1, 0, 1.5, float("nan"), float("inf"), 10**30, "x", "", "\0", "3", b"x", True, [], [1], (), {}, {"a": 1},
    object(), np.array([]), np.zeros((2, 3)), np.array("2020", "datetime64"), MASKED, 1j, lambda *_: None,
    [[1], [2, 3]], np.array([object()], object), "a" * 5000, "1" * 400, set(), range(3),
]  # fmt: skip
QUICK = {"quiet": True, "bank": 50, "steps": 1}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where a folder is made whose name is junk
    monkeypatch.setattr(methods, "MODULES", dict(methods.MODULES))  # what is registered here is gone for other tests
    monkeypatch.setattr(load, "FORMATS", dict(load.FORMATS))


def refuses(function: Callable[..., Any], /, **known: Any) -> None:
    """Each keyword in turn gets all the junk."""
    for name in known:
        for junk in JUNK:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    function(**{**known, name: junk})
                except HilpError:
                    pass
                except Exception as error:
                    error.add_note(f"{name}={junk!r:.80}")
                    raise


def test_prompts(tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset) -> None:
    one = np.asarray(tiny_data.observations[0])
    refuses(tiny.goal, goal_observation=one, plan=0, best=5, radius=1.0, goal_dims=(0,), smooth=None)
    fit = {"data": None, "samples": 50, "seed": 0, "rule": "skill", "intercept": False, "discount": 0.9}
    refuses(tiny.reward, function="observation[0]", **fit)
    refuses(tiny.skill, z=None, seed=0)
    refuses(tiny.follow, trajectory=tiny_data.observations[:20], window=None)
    refuses(tiny.prefer, pairs=[])
    refuses(lambda better: tiny.prefer([(better, tiny_data.observations[:5])]), better=None)
    refuses(tiny.prior, k=None, seed=0)
    refuses(tiny.prompt, spec=hilp.Reward("observation[0]", samples=50), data=None)
    refuses(tiny.load_prompt, path="nowhere")
    refuses(tiny.act, observation=np.stack([one, one]), prompt=tiny.goal(one), active=np.ones(2, bool))


@pytest.mark.parametrize("kind", sorted(specs.KINDS))
def test_specs(kind: str) -> None:
    for field in dataclasses.fields(specs.KINDS[kind]):
        refuses(specs.KINDS[kind], **{field.name: None})
        refuses(lambda value, name=field.name: specs.from_json({"kind": kind, name: value}), value=None)
    refuses(specs.from_json, described=None)


@pytest.mark.parametrize("method", sorted(methods.names()))
def test_configs(method: str) -> None:
    config = type(hilp.preset(method, "laptop").config)
    for field in dataclasses.fields(config):
        refuses(config, **{field.name: field.default})


@pytest.mark.parametrize(
    "values", [{"dim": 1.5}, {"dim": "4"}, {"lr": float("inf")}, {"normalize": 1}, {"batch": True}]
)
def test_configs_that_make_no_sense_are_not_taken(values: dict[str, Any]) -> None:
    with pytest.raises(HilpError, match="needs a value of type"):
        hilp.HILP(**values)


def test_data(tiny_data: hilp.Dataset) -> None:
    arrays = {"observations": np.zeros((10, 2)), "actions": np.zeros((10, 1)), "terminals": np.eye(10)[9]}
    ways = {"format": None, "stride": None, "stride_actions": "mean", "rescale_actions": False, "columns": None}
    refuses(hilp.load, source=arrays, **ways, episodes=1, extras=(), split=None, angles=None, drop=None)
    refuses(lambda **column: hilp.load({**arrays, **column}), **arrays, rewards=np.zeros(10), episode_lengths=None)
    refuses(lambda data, shift: hilp.label(data, lambda s, a, s2: s2[:, 0], shift=shift), data=tiny_data, shift=0.0)
    refuses(tiny_data.select, episodes=[0])
    refuses(tiny_data.save, path="out")
    more = {"out": None, "workers": 1, "overwrite": False, "progress": None, "seed": 0}
    refuses(hilp.collect, task="maze-medium", kind="navigate", steps=100, **more)


def test_training_and_evaluation(tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset) -> None:
    config, few = tiny.config, tiny_data.select(range(3))
    flags = {"out": "run", "resume": False, "validation": 0.0, "minutes": None, "command": None, "on_metrics": None}
    refuses(hilp.pretrain, config=config, data=few, **QUICK | {"steps": None}, **flags, seed=0, devices=1, keep=1)
    refuses(hilp.evaluate, policy=tiny, task="maze-medium", prompts=[hilp.Goal(plan=0)], episodes=1, seed=0)
    refuses(lambda **some: hilp.evaluate(tiny, "maze-medium", episodes=1, **some), plan=0, rewards=None)
    refuses(hilp.diagnose, policy=tiny, task=None, data=None)
    refuses(hilp.hierarchy, policy=tiny, data=None)
    refuses(hilp.adapt, policy=tiny, prompt=tiny.skill(), evaluator="maze-medium", episodes=8)
    refuses(hilp.preset, method="hilp", size="laptop", task=None)
    refuses(hilp.make_task, name="nothing")
    refuses(hilp.gym_task, env="Nothing-v0", goal=None, reward=None, max_steps=None, place=(), actions="unit")
    refuses(hilp.FoundationPolicy.load, path="nowhere")
    refuses(tiny.save, path="policy")
    refuses(hilp.register_method, name="mine", module=None)
    refuses(hilp.register_format, name="mine", read=None)


def test_an_empty_place_is_not_the_folder_one_is_in(tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset) -> None:
    for save in (tiny.save, tiny_data.save, lambda out: hilp.pretrain(tiny.config, tiny_data, out=out, **QUICK)):
        with pytest.raises(HilpError, match="is empty"):
            save("")
    assert not os.listdir()


def test_what_numpy_makes_numbers_of_is_no_observation(tiny: hilp.FoundationPolicy) -> None:
    for junk, message in ((MASKED, "masked"), (["1", "2"], "numbers, not"), ([1j, 0], "numbers, not")):
        with pytest.raises(HilpError, match=message):
            tiny.act(junk, tiny.goal([1.0, 2.0]))
