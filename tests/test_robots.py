"""Zero-shot RL from end to end on the real simulators, as a user does it: collect, train, prompt.

Long: run them by name (`pytest -m slow tests/test_robots.py`). The budgets are far too small for good behaviour.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hilp import cli
from hilp.collectors import named
from hilp.evaluation.rows import read_rows

pytest.importorskip("dm_control")

REWARDS = {
    "walker": ["stand", "walk", "run", "flip"],
    "cheetah": ["run", "run_backward", "walk", "walk_backward"],
    "quadruped": ["stand", "walk", "run", "jump"],
    "jaco": ["reach_top_left", "reach_top_right", "reach_bottom_left", "reach_bottom_right"],
}
SMALL = ["--set", "preprocess_hidden=64,32", "--set", "hidden=64", "--set", "batch=64", "--set", "phi_hidden=64,64"]


def hilp(*words: str) -> None:
    assert cli.main(list(words)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("domain", ["cheetah", "quadruped", "jaco"])
def test_collect_train_and_prompt(domain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, rows = str(tmp_path / f"{domain}-rnd"), tmp_path / "rows.jsonl"
    hilp("data", "collect", "--task", domain, "--kind", "rnd", "--steps", "6000", "--out", data)
    assert named.load(data).extra("physics").shape[0] == named.load(data).rows
    methods = ["sf-hilp", "sf-hilp-g"] if domain == "jaco" else ["sf-hilp"]
    hilp("bench", "rewards", "--data", data, "--methods", *methods, "--steps", "600", "--seeds", "1", "--episodes", "4",
         *SMALL, "--out", str(tmp_path / "out"), "--rows", str(rows))  # fmt: skip
    found = read_rows(rows)
    assert {(row["cell"]["label"], row["reward"]) for row in found} == {
        (method, reward) for method in methods for reward in REWARDS[domain]
    }
    limit = 250 if domain == "jaco" else 1000
    assert all(0 <= row["score"] <= limit and row["steps"] == limit for row in found)
    assert {row["cell"]["label"]: row["rule"] for row in found} == dict(
        zip(methods, ["skill", "goal"], strict=False)
    ), "HILP-G is prompted with a goal"
    capsys.readouterr()
    (run,) = (str(row.parent) for row in (tmp_path / "out" / f"{domain}-rnd").glob("sf-hilp-????????/seed-0/policy"))
    task, film = f"{domain}_{REWARDS[domain][0]}", tmp_path / "film.gif"
    hilp("prompt", run, "--task", task, "--steps", "30", "--video", str(film), "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["task"] == task and 0 <= told["return"] <= 30 and film.stat().st_size > 1000
    hilp("evaluate", run, "--task", task, "--episodes", "2", "--json")
    (row,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert row["reward"] == REWARDS[domain][0] and np.isfinite(row["score"])
