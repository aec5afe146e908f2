"""Ten thousand generated bad inputs: each is an error of one line or a right answer, soon and in little memory."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hilp
from hilp.data.rewards import Extras
from hilp.errors import HilpError
from hilp.evaluation import rows
from hilp.learning import methods
from hilp.prompts import formulas, specs

SECONDS, GIBIBYTES = 30.0, 2.0  # that a case may take, and this process
pytestmark = pytest.mark.slow


def cases(count: int) -> Callable[[Any], Any]:
    unhealthy = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    return settings(max_examples=count, deadline=None, suppress_health_check=unhealthy, derandomize=True)


@contextmanager
def bounded() -> Iterator[None]:
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    assert time.perf_counter() - began < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GIBIBYTES * 2**20


numbers = st.one_of(
    st.integers(), st.floats(), st.booleans(), st.none(), st.sampled_from([1, 0, -1, 0.5, 2**63, 1e308, 10**400])
)
texts = st.one_of(
    st.text(max_size=20), st.sampled_from(["auto", "graph", "goal", "reward", "nan", "inf", "1e999", "\0"])
)
values = st.recursive(
    numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)

# ---- readers ---------------------------------------------------------------------------------------------------------

field = st.one_of(
    st.sampled_from(
        ["1", "2.5", "-3", "", "nan", "3_9", "1,5", "0x1", "1e400", "true", "ü", '"', "a\0", "2020-01-01", " 7 "]
    ),
    st.floats(allow_nan=False, width=32).map(str),
    st.text(max_size=6),
)
lines = st.lists(st.lists(field, min_size=0, max_size=5), max_size=12)


def plain(text: str) -> float | None:
    """A number as a log has it, read on its own."""
    if "_" in text or not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        return None


@cases(1500)
@given(header=st.lists(field | st.sampled_from(["x", "u", "run", "t"]), min_size=0, max_size=5), body=lines)
def test_logs(header: list[str], body: list[list[str]], tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    stream = io.StringIO()
    csv.writer(stream).writerows([["x", "u", *header], *([["1", "0.5", *line] for line in body])])
    path.write_text(stream.getvalue(), encoding="utf-8", errors="surrogatepass")
    with bounded():
        try:
            found = hilp.load(path, columns={"observations": ["x", *header[:1]], "actions": ["u"]})
        except HilpError:
            return
    assert len(found.observations) == len(body), "no row is lost and none is made up"
    for row, line in zip(np.asarray(found.observations), body, strict=True):
        wanted = [1.0, *map(plain, line[: len(row) - 1])]
        words = {"true": 1.0, "false": 0.0}
        wanted = [words.get(text.strip().lower(), one) for text, one in zip(["1", *line], wanted, strict=False)]
        np.testing.assert_allclose(row, np.array(wanted, np.float32), rtol=1e-6)


arrays = st.one_of(
    values,
    st.builds(
        lambda shape, kind, seed: np.random.default_rng(seed).normal(size=shape).astype(kind),
        st.lists(st.integers(0, 6), max_size=3).map(tuple),
        st.sampled_from(["f4", "f8", "i8", "u1", "c8", "?", "M8[s]", "S3"]),
        st.integers(0, 5),
    ),
)
NAMES = ["observations", "actions", "next_observations", "terminals", "timeouts", "episode_lengths", "episode_ids", "x"]


@cases(1500)
@given(
    st.dictionaries(st.sampled_from(NAMES), arrays, max_size=6),
    st.dictionaries(
        st.sampled_from(["stride", "split", "angles", "drop", "extras", "episodes", "columns", "format"]),
        values,
        max_size=2,
    ),
)
def test_arrays(source: dict[str, Any], options: dict[str, Any]) -> None:
    with bounded():
        try:
            found = hilp.load(source, **options)
        except HilpError:
            return
    assert found.rows == int(np.sum(found.lengths)) and np.isfinite(np.asarray(found.observations)).all()


# ---- prompts ---------------------------------------------------------------------------------------------------------


@cases(2000)
@given(
    st.one_of(
        values,
        st.builds(
            lambda kind, more: {"kind": kind, **more},
            st.sampled_from(sorted(specs.KINDS)),
            st.dictionaries(
                st.sampled_from(
                    [
                        "goal",
                        "plan",
                        "best",
                        "radius",
                        "reward",
                        "rule",
                        "z",
                        "seed",
                        "k",
                        "window",
                        "path",
                        "parts",
                        "first",
                        "until",
                        "samples",
                        "pairs",
                    ]
                ),
                values,
                max_size=4,
            ),
        ),
    )
)
def test_specs(described: Any) -> None:
    with bounded():
        try:
            spec = specs.from_json(described)
        except HilpError:
            return
    again = specs.from_json(spec.to_json())
    assert repr(again.to_json()) == repr(spec.to_json()), "what was read is what is written"


piece = st.sampled_from(
    [
        "x",
        "y",
        "observation",
        "action",
        "before(",
        "norm(",
        "(",
        ")",
        "[",
        "]",
        "0",
        "1",
        "-3",
        "1e308",
        "+",
        "-",
        "*",
        "/",
        "**",
        "%",
        "<",
        "==",
        "and",
        "not",
        "if",
        "else",
        ",",
        ".",
        ":",
        "lambda",
        "'a'",
        "nan",
    ]
)


@cases(2000)
@given(st.lists(piece, max_size=14).map(" ".join) | st.text(max_size=40))
def test_formulas(text: str) -> None:
    s = np.arange(6.0).reshape(3, 2)
    with bounded():
        try:
            made = formulas.reward(text, (("x", ()), ("y", ())), 2, 1)
            found = made(s, np.ones((3, 1)), s + 1, Extras({}, {}, "none"))
        except HilpError:
            return
    assert found.shape == (3,) and found.dtype == np.float64


def test_prompts_of_a_policy(tiny: hilp.FoundationPolicy) -> None:
    @cases(500)
    @given(st.sampled_from(["goal", "follow", "skill", "prefer"]), arrays, arrays)
    def attempt(kind: str, first: Any, second: Any) -> None:
        with bounded():
            try:
                prompt = getattr(tiny, kind)(first)
                action = tiny.act(second, prompt)
            except HilpError:
                return
        assert np.isfinite(action).all()

    attempt()


# ---- configs and rows ------------------------------------------------------------------------------------------------

CONFIGS = [type(hilp.preset(name, "laptop").config) for name in ("hilp", "fb", "gc-iql", "opal", "iql", "hiql")]


@cases(1500)
@given(st.sampled_from(CONFIGS), st.data())
def test_configs(config: Any, data: Any) -> None:
    names = [field.name for field in dataclasses.fields(config)]
    given_values = data.draw(st.dictionaries(st.sampled_from(names), values, min_size=1, max_size=2))
    with bounded():
        try:
            found = config(**given_values)
        except HilpError:
            return
    for name, value in methods.config_values(found).items():
        usual = getattr(config(), name)
        if isinstance(usual, float) and value != "auto":
            assert not isinstance(value, bool) and math.isfinite(value), (name, value)
        elif isinstance(usual, int):
            assert type(value) is type(usual) or value == "auto", (name, value)


ROW = {
    "task": "t",
    "method": "m",
    "policy": "p",
    "prompt": "goal",
    "plan": 0,
    "metric": "success",
    "score": 0.5,
    "episodes": 2,
}


@cases(1500)
@given(st.dictionaries(st.sampled_from(sorted(rows.FIELDS)) | texts, values, max_size=3))
def test_rows(changed: dict[str, Any]) -> None:
    row = {**ROW, **changed}
    with bounded():
        try:
            found = rows.check(row, "line 1")
            rows.aggregate([found])
            rows.latest([found])
        except HilpError:
            return
    assert 0 <= found["score"] <= 1 or found["metric"] not in (rows.SUCCESS, rows.SHARE)
    assert json.dumps({name: found[name] for name in rows.FIELDS if name in found}, allow_nan=True)
