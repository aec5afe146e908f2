"""The conformance suite (hilp.testing) on every method, and on a method of one's own as docs/add-a-method.md has it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import presets, testing
from hilp.learning import methods
from hilp.policy.preparation import Preparation
from hilp.prompts.bank import Bank
from hilp.spec import Spec
from shapes import drawn_core, emitted

# One hidden layer where a method has several networks: they are compiled for longer than they are trained.
SUCCESSOR: dict[str, Any] = {"dim": 4, "preprocess_hidden": (16, 8), "hidden": 16, "batch": 32}
TRUNKS: dict[str, Any] = {"hidden": (16,), "actor_hidden": (16, 16), "batch": 32}
SMALL: dict[str, dict[str, Any]] = {
    "hilp": {**TRUNKS, "dim": 4},
    "hindsight": {**TRUNKS, "dim": 4, "k": 4},
    "hilp-directed": {**TRUNKS, "dim": 8},
    **{name: {**SUCCESSOR, "phi_hidden": (16, 16)} for name in methods.MODULES if name.startswith("sf-")},
    "fb": {**SUCCESSOR, "backward_hidden": (16, 16)},
    "gc-td3": {"preprocess_hidden": (16, 8), "hidden": 16, "batch": 32},
    "gc-bc": {"actor_hidden": (16, 16), "batch": 32},
    "gc-iql": TRUNKS,
    "gc-iql-q": TRUNKS,
    "gc-cql": {**TRUNKS, "samples": 3},
    "hiql": {**TRUNKS, "rep_dim": 4, "subgoal_steps": 5},
    "qrl": {**TRUNKS, "latent": 16},
    "crl": {**TRUNKS, "latent": 8},
    **{name: {**TRUNKS, "dim": 4, "phi_hidden": (16, 16)} for name in methods.MODULES if name.startswith("iql-")},
    "nearest": {"rows": 300, "batch": 32},
    "opal": {"hidden": (16,), "actor_hidden": (16, 16), "dim": 4, "gru": 8, "k": 4, "batch": 32},
    "iql": {**TRUNKS, "k": 3},
}
NAMES = sorted(methods.MODULES)
# Names that share a file differ in a loss, which has tests of its own, not in how they run: the suite runs one of them.
FIRST = [name for name in NAMES if name == min(n for n in NAMES if methods.MODULES[n][0] == methods.MODULES[name][0])]
# How several seeds are mapped, rows are fed and images are read is the affair of the loop and of the encoders: the
# suite has a method of each kind of rows (transitions, goals, segments, rewards) and one that keeps them. `-m slow` has
# all the rest.
OF_EACH_KIND = ("gc-bc", "hilp", "iql", "nearest", "opal")
SHARED = (testing.check_seeds, testing.check_stream, testing.check_trees)


def case(name: str, check: Callable[[Any], None]) -> Any:
    quick = NAMES if check is testing.check_contract else OF_EACH_KIND if check in SHARED else FIRST
    return pytest.param(name, check, id=f"{name}-{check.__name__}", marks=[] if name in quick else [pytest.mark.slow])


def config_of(name: str) -> Any:
    return methods.config(name, **SMALL[name], encoder="light")  # of check_trees; the paper's have tests of their own


# One method after the other: the checks of one share its programs.
@pytest.mark.parametrize(("name", "check"), [case(name, check) for name in NAMES for check in testing.CHECKS])
def test_conformance(name: str, check: Callable[[Any], None]) -> None:
    check(config_of(name))


@pytest.mark.parametrize(
    "name", [name if name in OF_EACH_KIND else pytest.param(name, marks=pytest.mark.slow) for name in FIRST]
)
def test_several_seeds_are_streamed_as_one_is(name: str) -> None:
    testing.check_stream(config_of(name), seeds=2)


@pytest.mark.parametrize(
    "check",
    [testing.check_samples, testing.check_one_trace, testing.check_chunks, testing.check_resume, testing.check_stream],
)
def test_a_method_of_two_stages(check: Callable[[Any], None]) -> None:
    check(methods.config("hilp", **SMALL["hilp"], schedule="sequential", phi_steps=7))


@pytest.mark.parametrize("schedule", ["joint", "sequential"])
def test_named_trees_are_streamed_too(schedule: str) -> None:
    config = methods.config("hilp", **SMALL["hilp"], encoder="light", schedule=schedule, phi_steps=5)
    testing.check_trees(config, device_budget=0)


@pytest.mark.parametrize("name", [name for name in FIRST if name not in OF_EACH_KIND])
def test_named_trees_without_training(name: str) -> None:
    """The updates of other methods take images by their shapes, and their policies act on them."""
    config, data = config_of(name), testing.tree_data()
    assert emitted(config, data) == emitted(config, testing.small_data())
    spec, preparation = Spec.of(data.observations, data.action_dim), Preparation.of(data, config.normalize)
    core = drawn_core(config, spec)
    policy = hilp.FoundationPolicy(config, spec, core, preparation, Bank.draw(data, 50, 0))
    testing.check_tree_policy(policy, data)


# ---- a method of one's own -------------------------------------------------------------------------------------------

PAGE = Path(__file__).parent.parent / "docs" / "add-a-method.md"


@pytest.fixture
def my_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The method that the page writes, as a module of its own."""
    (code,) = re.findall(r"```python title=\"my_method.py\"\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(code.splitlines()) <= 80, "a page, not a chapter"
    (tmp_path / "my_method.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    methods.register("my-method", "my_method")
    yield methods.module("my-method")
    del methods.MODULES["my-method"], sys.modules["my_method"]


def test_the_page_about_adding_a_method(my_method: Any, tmp_path: Path) -> None:
    """It trains, plans nothing, is saved and loaded, and passes the conformance suite."""
    config = methods.config("my-method", batch=32)
    testing.check_method(config)
    for size in presets.SIZES:  # a preset that the file does not have is its Config
        assert hilp.preset("my-method", size).config == methods.config("my-method")
    policy = hilp.pretrain(config, testing.small_data(), steps=20, quiet=True)
    policy.save(tmp_path / "policy")
    again = hilp.FoundationPolicy.load(tmp_path / "policy")
    assert again.method == "my-method"
    here, there = testing.small_data().observations[:2]
    assert again.act(here, again.goal(there)).shape == (2,)
    with pytest.raises(hilp.PromptUnsupported, match="my-method has no skill rule"):
        again.skill(seed=0)


def test_a_method_that_breaks_the_contract_is_told_how(my_method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(my_method.Policy, "skill_dim")
    with pytest.raises(AssertionError, match="the size of a skill: skill_dim"):
        testing.check_contract(methods.config("my-method"))
    monkeypatch.delattr(my_method, "export")
    with pytest.raises(hilp.HilpError, match="my_method is no method: it has no 'export'"):
        methods.module("my-method")


def test_a_module_that_is_not_there_is_one_line() -> None:
    methods.register("lost", "no.such.module")
    try:
        with pytest.raises(hilp.HilpError, match=r"method 'lost' cannot be imported from no\.such\.module"):
            methods.module("lost")
    finally:
        del methods.MODULES["lost"]


def test_a_plug_in_is_found_by_its_entry_point(my_method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "_plugins", lambda: {"theirs": "my_method"})
    try:
        assert "theirs" in methods.names()
        assert methods.config("theirs", batch=8).batch == 8
    finally:
        methods.MODULES.pop("theirs", None)


def test_plans_of_a_method_that_does_not_say_how_far_it_sees(tiny: hilp.FoundationPolicy, change: Any) -> None:
    class Blind(type(tiny.core)):  # type: ignore[misc]
        discount = property(lambda self: (_ for _ in ()).throw(AttributeError("discount")))

    core = object.__new__(Blind)
    for field in ("phi", "actor", "skill_dim", "through_phi"):
        object.__setattr__(core, field, getattr(tiny.core, field))
    blind = change(tiny, core=core)
    assert not np.isnan(blind.goal(np.zeros(2), plan=0)(np.zeros((1, 2)))).any()
    assert blind.goal(np.zeros(2)).plan == 0, "straight, where it cannot plan"
    for plan in ("midpoints", "graph"):
        with pytest.raises(hilp.PromptUnsupported, match="how far its distances reach"):
            blind.goal(np.zeros(2), plan=plan)
