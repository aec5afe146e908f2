"""Any flag of any verb with any value: 0, 1 or 2, one line, and nothing written.

Every command has something wrong that ends it before work begins, so that hundreds take seconds.
"""

from __future__ import annotations

import contextlib
import io
import os
import typing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import tree
from hilp import cli
from hilp.cli import VERBS, main

# What ends a verb: these words come last, and their flags are left alone.
FATAL = {
    "quickstart": ["--task", "nosuch"],
    "pretrain": ["--out", "new", "--data", "nosuch.npz"],
    "evaluate": ["nosuch"],
    "prompt": ["nosuch"],
    "play": ["nosuch"],
    "serve": ["nosuch"],
    "diagnose": ["nosuch"],
    "map": ["nosuch"],
    "report": ["nosuch"],
    "export": ["--to", "numpy", "--out", "new", "nosuch"],
    "push": ["nosuch", "user/name"],
    "pull": ["nosuch"],
    "bench rewards": ["--out", "new", "--data", "nosuch.npz"],
    "bench goals": ["--out", "new", "--data", "nosuch.npz"],
    "bench hierarchy": ["--out", "new", "--data", "nosuch.npz"],
    "hierarchy": ["nosuch"],
    "preset": ["nosuch"],
    "data list": [],
    "data inspect": ["nosuch"],
    "data convert": ["nosuch", "new"],
    "data collect": ["--out", "new", "--task", "nosuch"],
}

NASTY = [
    "", " ", "0", "-1", "1", "1.5", "1e309", "nan", "inf", "-inf", "9" * 400, "0x10", "1_0", "²", "true", "None",
    "auto", ",", "1,2", "1.5,1.5", "nan,nan", ",,", "=", "a=b", "dim=", "=3", "dim=3=4", "dim=1e30", "batch=-1",
    "lr=nan", "a:b=c", "hidden=8x8", "hidden=x", "columns=" + "[" * 50_000, "columns={}", "[" * 50_000, "{}", "null",
    "'", '"', "\\", "`id`", "-", "--", "-x", "--x", "--seed", "/", ".", "..", "~", "/dev/null", "/etc/passwd", "new",
    "nosuch", "new/new", "x" * 5000, "a.png", "a.gif", "a.jpeg", "laptop", "paper", "hilp", "fb", "all", "random",
    "maze-medium", "walker_run", "npz", "right", "\n", "a\nb", "\r", "\t", "\x1b[31m", "\x07", "\x7f", "\x85",
    "\u202e", "\ufeff", "\U0001f600", "é", os.fsdecode(b"\xff"), "s[0]", "s[0]**9**9**9", "__import__('os')",
    "lambda: 0", "skill", "goal", "tsne", "speed", "data", "native", "exorl",
]  # fmt: skip
VALUES = st.one_of(st.sampled_from(NASTY), st.text(st.characters(exclude_characters="\0"), max_size=12))


def flags_of(verb: str) -> dict[str, Any]:
    """Names and types of the options of a verb, without those that its fatal words give."""
    hints = typing.get_type_hints(cli.flags_of(verb))
    own = {f"--{name.replace('_', '-')}": kind for name, kind in hints.items()}
    return {name: kind for name, kind in own.items() if name not in FATAL[verb]}


@st.composite
def commands(draw: st.DrawFn) -> list[str]:
    verb = draw(st.sampled_from(list(VERBS)))
    words: list[str] = []
    for name, kind in draw(st.lists(st.sampled_from(sorted(flags_of(verb).items(), key=str)), max_size=3)):
        words += [name] if kind is bool else [name, draw(VALUES)]
        if "tuple" in str(kind):
            words += draw(st.lists(VALUES, max_size=2))
    stray = draw(st.lists(VALUES, max_size=1)) if draw(st.integers(0, 9)) == 0 else []
    return (
        [*verb.split(), *FATAL[verb], *stray, *words] if draw(st.booleans()) else [*verb.split(), *words, *FATAL[verb]]
    )


def call(words: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as stop:  # --help
            code = int(stop.code or 0)
    return code, out.getvalue(), err.getvalue()


def require_polite(words: list[str], folder: Path) -> None:
    code, out, err = call(words)
    assert code in (0, 1, 2)
    assert all(c.isprintable() or c == "\n" for c in out + err), "nothing speaks to the terminal"
    if code == 2:
        assert out == "" and err.startswith("hilp: error: ") and err.count("\n") == 1 and err.endswith("\n")
    assert not tree(folder), "nothing is written"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tries(count: int) -> settings:
    quick = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=quick)


@tries(150)
@given(words=commands())
def test_any_flag_with_any_value(words: list[str], nowhere: Path) -> None:
    require_polite(words, nowhere)


@tries(100)
@given(words=st.lists(st.one_of(VALUES, st.sampled_from(["data", "bench", "--help", "-h", "evaluate"])), max_size=4))
def test_any_words_at_all(words: list[str], nowhere: Path) -> None:
    if words[:1] != ["quickstart"]:  # it needs no flag to begin
        require_polite(words, nowhere)


PROMPTS = ["--goal", "--reward", "--labels", "--skill", "--load", "--plan", "--start", "--task", "--seed", "--data"]


@tries(40)
@given(
    flag=st.sampled_from(PROMPTS), value=VALUES, more=st.sampled_from([[], ["--skill", "random"], ["--goal", "2,2"]])
)
def test_any_prompt_of_a_policy(flag: str, value: str, more: list[str], tiny_run: Path, nowhere: Path) -> None:
    require_polite(["prompt", str(tiny_run), "--steps", "1", "--json", flag, value, *more], nowhere)
