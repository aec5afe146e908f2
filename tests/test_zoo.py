"""The policies that come with hilp: they load, act right, and say where they come from; and names that are none."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import hilp
import make_zoo
from conftest import Run
from hilp import runs
from hilp.cli import flags_of
from hilp.commands import help
from hilp.errors import HilpError
from hilp.evaluation.rows import read_rows
from hilp.policy import hub, places
from hilp.storage import flatten

ROOT = Path(__file__).parent.parent
LARGEST = 2_000_000  # bytes of all of them, as a wheel packs them
REACHED = {"maze-large": 0.9, "large-pixels": 0.7, "ant-open": 0.7}  # of goals, at least


def test_it_is_what_its_tool_makes() -> None:
    assert places.zoo() == sorted(make_zoo.ENTRIES) == sorted(REACHED)
    packed = [zlib.compress(path.read_bytes(), 9) for path in places.ZOO_FOLDER.glob("*/*")]
    assert sum(map(len, packed)) < LARGEST
    names = {path.name for path in places.ZOO_FOLDER.glob("*/*")}
    assert names <= {*hub.OURS, hub.CARD}


@pytest.mark.parametrize("verb", ["play", "prompt"])
def test_help_names_it(verb: str) -> None:
    flags = flags_of(verb)
    assert "run" in {field.name for field in fields(flags)}
    words = " ".join(help.text(flags, verb, everything=True).split())
    assert "zoo:" in words and all(name in words for name in places.zoo())


@pytest.mark.parametrize("name", sorted(REACHED))
def test_a_policy_says_where_it_comes_from(name: str) -> None:
    policy = hilp.FoundationPolicy.load(f"zoo:{name}")
    text = (places.ZOO_FOLDER / name / hub.CARD).read_text()
    assert policy.fingerprint in text and f"python tools/make_zoo.py {name}" in text
    rows = [row for row in read_rows(ROOT / "benchmarks" / "zoo.jsonl") if row["policy"] == policy.fingerprint]
    assert {row["command"] for row in rows} == {
        f"hilp evaluate zoo:{name} {make_zoo.ENTRIES[name].evaluate} --rows benchmarks/zoo.jsonl"
    }
    best = max(row["score"] for row in rows if row["prompt"] == "goal")
    assert best >= REACHED[name]


@pytest.mark.parametrize("name", sorted(REACHED))
def test_a_policy_acts_right(name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is said about it goes to a folder of its own: the package is only read."""
    if name == "ant-open" and find_spec("mujoco") is None:
        pytest.skip("pip install 'hilp[mujoco]'")
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in places.ZOO_FOLDER.rglob("*")}
    episodes = 3 if name == "ant-open" else 20
    code, out, err = run("evaluate", f"zoo:{name}", "--plan", "auto", "--episodes", episodes, "--seed", 1, "--json")
    assert code == 0, err
    row = json.loads(out)
    assert row["score"] >= REACHED[name] - 0.2, "with few episodes, chance has its say"
    assert json.loads((tmp_path / "runs" / f"zoo-{name}" / runs.ROWS).read_text())["policy"] == row["policy"]
    assert {path: path.stat().st_mtime_ns for path in places.ZOO_FOLDER.rglob("*")} == before


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("zoo:maze-lrage", "did you mean 'maze-large'?"),
        ("zoo:xyz", "choose from: ant-open, large-pixels, maze-large"),
        ("zoo:", "name one of the zoo's policies: zoo:ant-open"),
        ("zoo:../zoo/maze-large", "there is no policy"),
        ("zoo:maze-large/config.json", "there is no policy"),
    ],
)
def test_names_that_are_none(name: str, said: str, refused: Callable[..., str]) -> None:
    assert said in refused("prompt", name, "--goal", "1,1")
    with pytest.raises(HilpError, match="zoo"):
        hilp.FoundationPolicy.load(name)


def test_a_smaller_policy_is_the_same_but_for_what_it_keeps(
    tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset
) -> None:
    policy = make_zoo.smaller(tiny, tiny_data, states=300, pictures=0)
    assert len(policy.bank) == 300 and policy.graph is not None and len(policy.graph) <= 300
    here, there = tiny.bank.observations[:2]
    straight = [one.act(here, one.goal(there, plan=0)) for one in (policy, tiny)]
    np.testing.assert_array_equal(*straight)
    assert np.isfinite(policy.goal(there, plan="graph").path_info(here).steps)


def test_rounding_packs_weights_and_changes_little(tiny: hilp.FoundationPolicy) -> None:
    policy = make_zoo.rounded(tiny)
    before, after = (b"".join(column.tobytes() for column in flatten(one.core).values()) for one in (tiny, policy))
    assert len(zlib.compress(after)) < 0.7 * len(zlib.compress(before))
    here = tiny.bank.observations[:200]
    actions = [one.act(here, one.goal(tiny.bank.observations[300], plan=0)) for one in (policy, tiny)]
    assert np.abs(actions[0] - actions[1]).max() < 0.1
