"""Rewards as formulas: values against numpy by hand and against Python itself, and that nothing else gets through."""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hilp.data.rewards import Extras, apply_reward
from hilp.errors import HilpError
from hilp.prompts import formulas

PARTS: formulas.Parts = (
    ("orientations", (2,)),
    ("height", (1,)),
    ("velocity", (3,)),
    ("joints", (2, 2)),
    ("up", ()),
)
OBS, ACT, ROWS = 11, 2, 5

RNG = np.random.default_rng(0)
S, S2 = RNG.normal(size=(2, ROWS, OBS)).astype(np.float32)
A = RNG.normal(size=(ROWS, ACT)).astype(np.float32)
D, D2, AD = S.astype(np.float64), S2.astype(np.float64), A.astype(np.float64)
HEIGHT, VELOCITY, JOINTS, UP = D2[:, 2], D2[:, 3:6], D2[:, 6:10].reshape(ROWS, 2, 2), D2[:, 10]
FOOD, WORDS = np.arange(ROWS), np.array(["a"] * ROWS)
EXTRAS = Extras(
    {"food": FOOD, "place": np.ones((ROWS, 2))},
    {"food": FOOD + 10, "place": np.full((ROWS, 2), 3.0), "word": WORDS, "short": np.ones(2)},
    "the farm",
)


def reward(text: str) -> Any:
    return formulas.reward(text, PARTS, OBS, ACT)


def value(text: str) -> np.ndarray:
    result = reward(text)(S, A, S2, EXTRAS)
    assert result.shape == (ROWS,) and result.dtype == np.float64
    return result


def message(text: Any) -> str:
    """The error of a formula, raised before any data is seen."""
    with pytest.raises(HilpError) as caught:
        reward(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def said(text: str, piece: str | None, problem: str) -> str:
    at = "" if piece is None else f" at '{piece}'"
    return f"reward formula '{text}'{at}: {problem}"


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("height - 0.1*norm(action)", HEIGHT - 0.1 * np.linalg.norm(AD, axis=1)),
        ("height", HEIGHT),
        ("up", UP),
        ("height[0]", HEIGHT),
        ("up[0]", UP),
        ("height * up", HEIGHT * UP),
        ("velocity[0]", VELOCITY[:, 0]),
        ("velocity[-1]", VELOCITY[:, 2]),
        ("norm(velocity)", np.linalg.norm(VELOCITY, axis=1)),
        ("norm(velocity[:2])", np.linalg.norm(VELOCITY[:, :2], axis=1)),
        ("sum(observation[3:6])", VELOCITY.sum(1)),
        ("sum(observation[::2])", D2[:, ::2].sum(1)),
        ("sum(observation[-2:])", D2[:, -2:].sum(1)),
        ("mean(observation)", D2.mean(1)),
        ("sum(velocity - height)", (VELOCITY - HEIGHT[:, None]).sum(1)),
        ("sum(velocity - up)", (VELOCITY - UP[:, None]).sum(1)),
        ("sum(2 * velocity * velocity)", 2 * np.square(VELOCITY).sum(1)),
        ("dot(velocity, before(velocity))", (VELOCITY * D[:, 3:6]).sum(1)),
        ("dot(height, up)", HEIGHT * UP),
        ("joints[1, 0]", JOINTS[:, 1, 0]),
        ("joints[1][0]", JOINTS[:, 1, 0]),
        ("norm(joints[0])", np.linalg.norm(JOINTS[:, 0], axis=1)),
        ("sum(joints[:, 1])", JOINTS[:, :, 1].sum(1)),
        ("max(norm(joints))", np.linalg.norm(JOINTS, axis=2).max(1)),
        ("sum(sum(joints * up))", (JOINTS * UP[:, None, None]).sum((1, 2))),
        ("sum(sum(joints * action))", (JOINTS * AD[:, None]).sum((1, 2))),
        ("norm(height)", np.abs(HEIGHT)),
        ("min(velocity)", VELOCITY.min(1)),
        ("max(velocity)", VELOCITY.max(1)),
        ("min(height, up, 0.1)", np.minimum(np.minimum(HEIGHT, UP), 0.1)),
        ("max(height, up, 0.1)", np.maximum(np.maximum(HEIGHT, UP), 0.1)),
        ("sum(max(velocity, height))", np.maximum(VELOCITY, HEIGHT[:, None]).sum(1)),
        ("clip(height, -0.1, 0.2)", np.clip(HEIGHT, -0.1, 0.2)),
        ("sum(clip(velocity, 0, up))", np.minimum(np.maximum(VELOCITY, 0), UP[:, None]).sum(1)),
        ("abs(height) + exp(up) + log(2) + sqrt(4)", np.abs(HEIGHT) + np.exp(UP) + np.log(2) + 2),
        ("sin(height) * cos(up) / tanh(height)", np.sin(HEIGHT) * np.cos(UP) / np.tanh(HEIGHT)),
        ("sign(height)", np.sign(HEIGHT)),
        ("height % 0.3", np.mod(HEIGHT, 0.3)),
        ("-height ** 2", -(HEIGHT**2)),
        ("2 ** 3 ** 2 + +height", 512 + HEIGHT),
        ("height > 0", HEIGHT > 0),
        ("(height >= up) + (height != up) + (height == height)", (HEIGHT >= UP) + 2.0),
        ("-0.5 < height <= 0.5", (HEIGHT > -0.5) & (HEIGHT <= 0.5)),
        ("height > 0 and up > 0", (HEIGHT > 0) & (UP > 0)),
        ("height > 0 or up > 0 or 0", (HEIGHT > 0) | (UP > 0)),
        ("not height > 0", HEIGHT <= 0),
        ("not 0.5", np.zeros(ROWS)),
        ("2 and 3", np.ones(ROWS)),
        ("height if height > up else 3 * up", np.where(HEIGHT > UP, HEIGHT, 3 * UP)),
        ("sum(velocity if height > 0 else action[0])", np.where(HEIGHT[:, None] > 0, VELOCITY, AD[:, :1]).sum(1)),
        ("height - before(height)", HEIGHT - D[:, 2]),
        ("norm(before(observation[3:6] * 2))", 2 * np.linalg.norm(D[:, 3:6], axis=1)),
        ("norm(before(velocity))  *\n\t 1_0", 10 * np.linalg.norm(D[:, 3:6], axis=1)),
        ("food - 2 * before(food)", 10 - FOOD),
        ("sum(place) * before(sum(place) + food)", 6.0 * (2 + FOOD)),
        ("3", np.full(ROWS, 3.0)),
    ],
)
def test_values(text: str, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(value(text), wanted, rtol=1e-12, atol=1e-14)


def test_numbers_that_are_none_are_left_to_whoever_asked() -> None:
    with np.errstate(all="raise"):
        assert np.isnan(value("log(-1)")).all() and np.isinf(value("1 / 0")).all()
        assert np.isinf(value("9**9**9")).all() and np.isnan(value("(-1) ** 0.5")).all()


def test_without_parts_there_are_the_observation_the_action_and_extras() -> None:
    function = formulas.reward("observation[0] + food", (), OBS, ACT)
    np.testing.assert_allclose(function(S, A, S2, EXTRAS), D2[:, 0] + FOOD + 10)


def test_observation_and_action_mean_the_whole_whatever_the_parts_are_called() -> None:
    parts = (("action", (1,)), ("observation", (1,)))
    function = formulas.reward("sum(observation) + sum(action)", parts, 2, ACT)
    np.testing.assert_allclose(function(S[:, :2], A, S2[:, :2], EXTRAS), D2[:, :2].sum(1) + AD.sum(1))


def test_it_is_a_reward_function_that_asks_for_extras() -> None:
    function = reward("food + height")
    assert [p.kind for p in inspect.signature(function).parameters.values()] == [
        inspect.Parameter.POSITIONAL_OR_KEYWORD
    ] * 4
    np.testing.assert_allclose(apply_reward(function, S, A, S2, EXTRAS), FOOD + 10 + HEIGHT)


def test_no_transitions_and_one() -> None:
    function = reward("max(velocity) + norm(joints[0]) if up > 0 else clip(height, 0, 1)")
    whole = function(S, A, S2, EXTRAS)
    assert function(S[:0], A[:0], S2[:0], EXTRAS).shape == (0,)
    np.testing.assert_array_equal(function(S[:1], A[:1], S2[:1], EXTRAS), whole[:1])


@st.composite
def python_too(draw: st.DrawFn, depth: int = 0) -> str:
    """A formula of numbers that Python can read as well, so that precedence and grouping are checked against it."""

    def inner() -> str:
        return draw(python_too(depth + 1))

    def test() -> str:
        signs = draw(st.lists(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), min_size=1, max_size=2))
        return inner() + "".join(f" {sign} {inner()}" for sign in signs)

    def tests() -> str:
        return f"{test()} {draw(st.sampled_from(['and', 'or']))} {draw(st.sampled_from(['', 'not ']))}{test()}"

    kinds = ["leaf", "binary", "group", "minus", "call", "tests", "choice"]
    kind = "leaf" if depth > 2 else draw(st.sampled_from(kinds))
    if kind == "leaf":
        return draw(st.sampled_from(["height", "up", "velocity[0]", "velocity[-1]", "2", "0.5", "-1.5", "before(up)"]))
    if kind in ("binary", "group"):
        formula = f"{inner()} {draw(st.sampled_from('+-*'))} {inner()}"
        return f"({formula})" if kind == "group" else formula
    if kind == "minus":
        return f"-{inner()}"
    if kind == "call":
        name = draw(st.sampled_from(["min", "max", "abs"]))
        return f"{name}({inner()})" if name == "abs" else f"{name}({inner()}, {inner()})"
    return f"({tests()})" if kind == "tests" else f"({inner()} if {tests()} else {inner()})"


@settings(max_examples=150, deadline=None)
@given(python_too())
def test_numbers_mean_what_they_mean_in_python(text: str) -> None:
    found = value(text)
    for row in range(ROWS):
        height, up, before = float(HEIGHT[row]), float(UP[row]), float(D[row, 10])
        names = {"height": height, "up": up, "velocity": VELOCITY[row].tolist(), "before": lambda _, x=before: x}
        assert found[row] == pytest.approx(float(eval(text, {}, names)), rel=1e-9, abs=1e-12)


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("height.real", "dot"),
        ("().__class__.__bases__", "dot"),
        ("np.exp(height)", "dot"),
        ("velocity.sum()", "dot"),
        ("lambda: 1", "lambda"),
        ("(lambda x: x)(1)", "lambda"),
        ("[x for x in velocity]", "ListComp"),
        ("sum(x for x in velocity)", "GeneratorExp"),
        ("{x for x in velocity}", "SetComp"),
        ("{x: x for x in velocity}", "DictComp"),
        ("[1, 2]", "lists"),
        ("(1, 2)", "comma"),
        ("height, up", "comma"),
        ("{1}", "Set"),
        ("{1: 2}", "Dict"),
        ("'height'", "text"),
        ("b'height'", "text"),
        ("f'{height}'", "text"),
        ("f'{__import__(1)}'", "text"),
        ("True", "not a number"),
        ("None", "not a number"),
        ("...", "not a number"),
        ("3j", "not a number"),
        ("1e999", "too large"),
        ("9" * 400, "too large"),
        ("clip(x=height)", "by position"),
        ("clip(height, 0, high=1)", "by position"),
        ("max(**velocity)", "by position"),
        ("max(*velocity)", "'*'"),
        ("(x := 3)", "':='"),
        ("(yield)", "Yield"),
        ("await height", "Await"),
        ("__import__('os')", "unknown function '__import__'"),
        ("eval('1')", "unknown function 'eval'"),
        ("exec('1')", "unknown function 'exec'"),
        ("height(3)", "unknown function 'height'"),
        ("velocity[0](1)", "Subscript is not allowed"),
        ("exp(1)(2)", "Call is not allowed"),
        ("height ^ 2", "power is **"),
        ("height // 2", "'//'"),
        ("height @ up", "dot(x, y)"),
        ("height & up", "'and'"),
        ("height | up", "'or'"),
        ("~height", "'not'"),
        ("height << 2", "LShift"),
        ("height in velocity", "'in'"),
        ("height not in velocity", "'not in'"),
        ("height is up", "=="),
        ("height is not up", "!="),
        ("velocity[height]", "whole number"),
        ("velocity[up:2]", "whole number"),
        ("velocity[0.0]", "whole number"),
        ("velocity[True]", "whole number"),
        ("velocity['x']", "whole number"),
        ("velocity[1+1]", "whole number"),
        ("velocity[...]", "whole number"),
        ("velocity[*action]", "whole number"),
        ("velocity[None]", "whole number"),
        ("velocity[::0]", "step"),
        ("before(action)", "out of before()"),
        ("before(height - norm(action))", "out of before()"),
        ("before(before(height))", "before() inside of before()"),
        ("norm", "is a function"),
        ("before + 1", "is a function"),
        ("height # and so on", "comments"),
    ],
)
def test_what_is_no_formula(text: str, piece: str) -> None:
    error = message(text)
    assert piece in error
    assert error.startswith(f"reward formula '{text[:100]}")


TOO_MANY = "a transition, not one number: use norm, sum or an index"
NO_FIT = "3 numbers (shape (3,)) and 2 numbers (shape (2,)) a transition do not fit together"


@pytest.mark.parametrize(
    ("text", "piece", "problem"),
    [
        ("height - nrom(action)", "nrom(action)", "unknown function 'nrom': did you mean 'norm'?"),
        ("up + velocity.x", "velocity.x", "a dot is not allowed: functions and names are plain, as in exp(x)"),
        ("height - * up", None, "syntax error at character 10 ('* up'): invalid syntax"),
        ("clip(height, 0)", "clip(height, 0)", "clip() takes 3 arguments, not 2"),
        ("exp()", "exp()", "exp() takes 1 argument, not 0"),
        ("max()", "max()", "max() takes at least one argument, not 0"),
        ("1 + before(height, up)", "before(height, up)", "before() takes 1 argument, not 2"),
        ("velocity * 2", None, f"it gives 3 numbers (shape (3,)) {TOO_MANY}"),
        ("joints", None, f"it gives 2 x 2 numbers (shape (2, 2)) {TOO_MANY}"),
        ("1 + norm(velocity + action)", "velocity + action", NO_FIT),
        ("dot(velocity, action)", "dot(velocity, action)", NO_FIT),
        ("up + velocity[3]", "velocity[3]", "there are 3 numbers, from 0 to 2"),
        ("up + velocity[-4]", "velocity[-4]", "there are 3 numbers, from 0 to 2"),
        ("up[1]", "up[1]", "there is one number, 0"),
        ("sum(velocity[1:9])", "velocity[1:9]", "the slice goes beyond the 3 numbers"),
        ("sum(velocity[2:1])", "velocity[2:1]", "the slice is empty: there are 3 numbers"),
        ("velocity[0, 0]", "velocity[0, 0]", "2 indices into 3 numbers (shape (3,)) a transition"),
        ("", None, "it is empty: write one such as 'height - 0.1*norm(action)'"),
    ],
)
def test_an_error_quotes_the_formula_and_the_piece(text: str, piece: str | None, problem: str) -> None:
    assert message(text) == said(text, piece, problem)


def test_a_vector_of_one_number_makes_no_dot_product_with_more() -> None:
    for text in ("dot(velocity, up)", "dot(velocity, height)"):
        assert "3 numbers (shape (3,)) and one number a transition do not fit" in message(text)


@pytest.mark.parametrize(
    "text",
    ["height +", "(height", "height)", "2 height", "import os", "x = 3", "height; up", "del x", "0777", "1__0", "a\0b",
     "\ud800", "'", "$x", "if", "héight €"],
)  # fmt: skip
def test_what_is_not_even_python(text: str) -> None:
    assert "syntax error at character" in message(text) or "a character that cannot be in a formula" in message(text)


def test_long_formulas() -> None:
    fits = "height" + " " * 5000 + "+1" * 90
    np.testing.assert_allclose(value(fits), HEIGHT + 90)
    error = message("height+" * 400 + "1")
    assert "it has 2801 characters, at most 2000" in error and len(error) < 300


@pytest.mark.parametrize(
    "text",
    ["1" + "+1" * 900, "-" * 1990 + "1", "not " * 450 + "1", "1**" * 600 + "1",
     "abs(" * 150 + "1" + ")" * 150, "1 if 1 else " * 150 + "1", "velocity" + "[0]" * 600, "f" + "(" * 1900],
)  # fmt: skip
def test_deep_formulas(text: str) -> None:
    error = message(text)
    assert "nested" in error or "syntax error" in error
    assert len(error) < 300


def test_errors_stay_on_one_line_without_control_characters() -> None:
    error = message("height\n+ \x1b[31m")
    assert error.isprintable() and "height + ?[31m" in error


@pytest.mark.parametrize("text", [None, 3, b"height", ["height"]])
def test_not_text(text: Any) -> None:
    assert "a reward formula is text" in message(text)


# ---- extras and arrays -----------------------------------------------------------------------------------------------


UNKNOWN = "unknown name, neither a part of the observation nor an extra column"
FORM = "; a reward for moving is e.g. 'height - before(height)'"
NAMES = "action, food, height, joints, observation, orientations, place, up, velocity"


@pytest.mark.parametrize(
    ("text", "piece", "problem"),
    [
        ("heihgt + 1", "heihgt", f"{UNKNOWN} of the farm: did you mean 'height'?{FORM}"),
        ("fod", "fod", f"{UNKNOWN} of the farm: did you mean 'food'?{FORM}"),
        ("acton[0]", "acton", f"{UNKNOWN} of the farm: did you mean 'action'?{FORM}"),
        ("before(short)", "short", f"{UNKNOWN} at s of the farm: choose from: {NAMES}{FORM}"),
        ("word", "word", "this extra column does not hold numbers"),
        ("short", "short", "this extra column has shape (2,) for 5 transitions"),
        ("place", None, f"it gives 2 numbers (shape (2,)) {TOO_MANY}"),
        ("place[2]", "place[2]", "there are 2 numbers, from 0 to 1"),
        ("sum(velocity * place)", "velocity * place", NO_FIT),
    ],
)
def test_what_extras_have_not_is_said_when_asked(text: str, piece: str | None, problem: str) -> None:
    function = reward(text)
    with pytest.raises(HilpError) as caught:
        function(S, A, S2, EXTRAS)
    assert str(caught.value) == said(text, piece, problem)


def test_other_observations_than_the_formula_is_for() -> None:
    function = reward("height")
    with pytest.raises(HilpError, match=r"it is for observations, actions and next observations \[\(5, 11\), \(5, 2\)"):
        function(S[:, :9], A, S2[:, :9], EXTRAS)
    with pytest.raises(HilpError, match=r"not \[\(5, 11\), \(4, 2\), \(5, 11\)\]"):
        function(S, A[:4], S2, EXTRAS)


def test_parts_that_are_not_the_observation() -> None:
    with pytest.raises(HilpError, match="the parts of an observation have 11 numbers, but an observation 12"):
        formulas.reward("height", PARTS, 12, ACT)


# ---- whatever is written ---------------------------------------------------------------------------------------------

SOUP = r"""
    before height velocity joints observation action food place x (height) (velocity) [0] [:2] [0,1]
    canary canary() __import__ os system eval exec open print lambda for in if else and or not is await yield import
    None True ( ) () [ ] { } , : := . .. = == < >= != + - * ** / // % @ & | ^ ~ << 0 1 2 -1 0.5 1e9 1e999 9 0x 1_ 3j
    ' " 'a' f"{ }" \ # ; é
"""
TOKENS = [*formulas.FUNCTIONS, *SOUP.split(), "\n", "\t", "\0", "\u2028", "\ud800"]


def tried(text: str) -> None:
    called: list[str] = []
    builtins.canary = lambda *_: called.append(text)  # type: ignore[attr-defined]
    problem = ""
    try:
        result = reward(text)(S, A, S2, EXTRAS)
    except HilpError as error:
        problem = str(error)
    else:
        assert result.shape == (ROWS,) and result.dtype == np.float64
    finally:
        del builtins.canary  # type: ignore[attr-defined]
    assert problem.isprintable() and not called


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(TOKENS), max_size=25), st.sampled_from(["", " "]))
def test_token_soup_gives_numbers_or_an_error_and_calls_nothing(tokens: list[str], between: str) -> None:
    tried(between.join(tokens))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_text_gives_numbers_or_an_error(text: str) -> None:
    tried(text)


LEAVES = "height up velocity joints observation action food place nothing word 3 'a' 1e300"
OPERATORS = "+ - * / ** % < == and or @"
INDICES = "0 -1 5 : 1: :2 ::-1 0,1 :,0 2:1 x 99999999999999999999"


@st.composite
def of_any_shape(draw: st.DrawFn, depth: int = 0) -> str:
    """Mostly well formed, to get past the parser, where soup mostly stops."""

    def inner() -> str:
        return draw(of_any_shape(depth + 1))

    kind = "leaf" if depth > 2 else draw(st.sampled_from(["leaf", "binary", "call", "index", "not"]))
    if kind == "binary":
        return f"({inner()} {draw(st.sampled_from(OPERATORS.split()))} {inner()})"
    if kind == "call":
        name = draw(st.sampled_from([*formulas.FUNCTIONS, "before", "canary"]))
        return f"{name}({', '.join(inner() for _ in range(draw(st.integers(1, 3))))})"
    if kind == "index":
        return f"{inner()}[{draw(st.sampled_from(INDICES.split()))}]"
    return f"(not {inner()})" if kind == "not" else draw(st.sampled_from(LEAVES.split()))


@settings(max_examples=400, deadline=None)
@given(of_any_shape())
def test_formulas_of_any_shapes_give_numbers_or_an_error(text: str) -> None:
    tried(text)


def test_the_room_has_no_way_to_run_text() -> None:
    """No call of a builtin that runs, imports or looks up by name: a formula cannot reach what is not there."""
    tree = ast.parse(Path(formulas.__file__).read_text("utf-8"))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not names & {"eval", "exec", "compile", "getattr", "__import__", "globals", "locals", "vars", "open"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("yaw - before(yaw)", [0.2, -0.2]),
        ("before(yaw) - yaw", [-0.2, 0.2]),
        ("observation[1] - before(observation[1])", [0.2, -0.2]),
        ("(yaw - before(yaw)) + x - before(x)", [6.2, 5.8]),
        ("x - before(x)", [6.0, 6.0]),
        ("sum(observation - before(observation))", [6.2, 5.8]),
        ("yaw - 2*before(yaw)", [-3.1 - 6.2, 3.1 + 6.2]),
    ],
)
def test_the_difference_of_an_angle_is_the_shorter_way_round(text: str, wanted: list[float]) -> None:
    turn = 2 * np.pi
    s, s2 = np.array([[0.0, 3.1], [0.0, -3.1]]), np.array([[6.0, 3.3 - turn], [6.0, turn - 3.3]])
    made = formulas.reward(text, (("x", ()), ("yaw", ())), 2, 1, angles=((1, turn),))
    found = made(s, np.zeros((2, 1)), s2, None)
    if "2*" in text:
        wanted = [s2[0, 1] - 6.2, s2[1, 1] + 6.2]
    np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_what_an_angle_gains_in_a_step_is_the_shorter_way_round() -> None:
    made = formulas.reward("yaw", (("x", ()), ("yaw", ())), 2, 1, angles=((1, 360.0),))
    assert made.change is not None
    gained = made.change(np.array([[0.0, 350.0]]), np.zeros((1, 1)), np.array([[0.0, 10.0]]), None)
    assert gained.tolist() == [20.0]


def test_deep_brackets_do_not_take_the_stack_of_a_small_thread() -> None:
    """In a process of its own: what fails here is a crash."""
    code = (
        "import threading; from hilp.prompts import formulas; threading.stack_size(256 * 1024)\n"
        "def read():\n"
        "    try: formulas.reward('(' * 190 + 'observation[0]' + ')' * 190, (), 1, 1)\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
        "thread = threading.Thread(target=read); thread.start(); thread.join()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("HilpError") and "nested deeper" in done.stdout
