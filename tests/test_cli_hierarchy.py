"""`hilp hierarchy`, `hilp bench hierarchy` and flat IQL on the command line: end to end, killed, and misused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp.evaluation import rows as files
from hilp.runs import PROMPT

Words = Callable[..., tuple[int, str, str]]
HIGH = ["--set", "hidden=16,16", "actor_hidden=16,16", "batch=32"]


@pytest.fixture(scope="module")
def maze_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data that gets to the far place of the medium maze."""
    folder = tmp_path_factory.mktemp("maze") / "data"
    hilp.collect("maze-medium", "navigate", 20_000).save(folder)
    return folder


def test_from_skills_to_a_table_row(run: Words, run_copy: Path, tiny_data_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "high"
    words = ["hierarchy", run_copy, "--data", tiny_data_folder, "--reward", "target", "--out", out, "--k", "4", *HIGH]
    code, said, _ = run(*words, "--steps", "6")
    assert code == 0 and f"hilp evaluate {run_copy} --load {out / PROMPT}" in said
    code, said, _ = run(*words, "--steps", "9", "--resume", "--json")
    told = json.loads(said)
    assert told["k"] == 4 and told["steps"] == 9 and told["prompts"] == [str(out / PROMPT)]
    about = json.loads((out / "run.json").read_text())
    assert (about["reward"], about["shift"], about["ends"]) == ("target", -1.0, True)
    assert about["policy"] == hilp.FoundationPolicy.load(run_copy).fingerprint

    code, said, _ = run("evaluate", run_copy, "--load", out / PROMPT, "--episodes", "5", "--json")
    row = json.loads(said)
    assert (row["reward"], row["rule"], row["metric"], row["episodes"]) == ("target", "hierarchy", "success", 5)
    assert row["hierarchy"]["reward"] == "target" and row["hierarchy"]["config"]["k"] == 4
    assert files.read_rows(run_copy / "rows.jsonl")[-1]["policy"] == told["policy"]
    code, said, _ = run("evaluate", run_copy, "--load", out / PROMPT, "--rewards", "right", "region", "--episodes", "2")
    assert code == 0 and "region" in said
    picture = tmp_path / "walk.png"
    code, said, _ = run("prompt", run_copy, "--load", out / PROMPT, "--steps", "6", "--picture", picture, "--json")
    told = json.loads(said)
    assert code == 0 and (told["steps"], told["reached"]) == (6, False) and picture.is_file()
    there = ",".join(map(str, hilp.make_task("maze-medium").target))
    code, said, _ = run("prompt", run_copy, "--load", out / PROMPT, "--start", there, "--json")
    told = json.loads(said)
    assert code == 0 and (told["steps"], told["reached"]) == (0, True)  # it is where it was trained to get to


def test_skills_of_the_prior(run: Words, refused: Callable[..., str], tiny_run: Path, tiny_data_folder: Path,
                             tmp_path: Path) -> None:  # fmt: skip
    out = tmp_path / "opal"
    words = ["--method", "opal", "--set", "dim=3", "gru=4", "hidden=8", "actor_hidden=8", "batch=8", "k=4"]
    assert run("pretrain", "--data", tiny_data_folder, "--out", out, "--steps", "2", "--bank", "9", *words)[0] == 0
    code, said, _ = run("prompt", out, "--skill", "prior", "--steps", "6", "--json")
    assert code == 0 and len(json.loads(said)["z"]) == 3
    assert "hilp has no prior over skills" in refused("prompt", tiny_run, "--skill", "prior")


def test_flat_iql_learns_from_a_reward_by_name(run: Words, maze_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "flat"
    words = ["pretrain", "--data", maze_data, "--method", "iql", "--out", out, "--steps", "4", *HIGH]
    assert run(*words, "--reward", "target")[0] == 0
    code, said, _ = run("evaluate", out, "--episodes", "3", "--json")
    row = json.loads(said)
    assert code == 0 and (row["method"], row["reward"], row["rule"]) == ("iql", "target", "none")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--reward", "nowhere"], "has no reward 'nowhere'"),
        (["--reward", "target", "--k", "5000"], "k=5000 is longer than every episode"),
        (["--reward", "0*observation[0]"], "asks for nothing"),
        (["--reward", "observation[0]/0"], "NaN or infinite"),
        (["--steps", "3"], "no column 'rewards'"),
        (["--reward", "target", "--preset", "huge"], "unknown preset 'huge'"),
        (["--reward", "target", "--set", "kk=3"], "unknown config key 'kk'"),
    ],
)
def test_mistakes(refused: Callable[..., str], tiny_run: Path, tiny_data_folder: Path, words: list[str], said: str,
                  tmp_path: Path) -> None:  # fmt: skip
    assert said in refused("hierarchy", tiny_run, "--data", tiny_data_folder, "--out", tmp_path / "out", *words)


def test_more_mistakes(refused: Callable[..., str], tiny_run: Path, tiny_data_folder: Path, tmp_path: Path) -> None:
    data = ["--data", tiny_data_folder]
    told = refused("pretrain", *data, "--out", tmp_path / "out", "--reward", "target")
    assert "hilp learns without rewards" in told
    told = refused("pretrain", *data, "--out", tmp_path / "out", "--method", "iql")
    assert "no column 'rewards' or 'reward'" in told
    told = refused("bench", "hierarchy", *data, "--out", tmp_path / "out", "--methods", "gc-bc")
    assert "gc-bc cannot name the skill of a segment" in told
    assert "rewards every step on the way" in refused(
        "bench", "hierarchy", *data, "--out", tmp_path / "out", "--reward", "right"
    )
    assert "leave out --plan" in refused("evaluate", tiny_run, "--load", tmp_path / "none", "--plan", "0")
    assert "leave out --goal" in refused("evaluate", tiny_run, "--load", tmp_path / "none", "--goal", "task1")


def test_a_table_is_filled_once_and_shows_the_paper(run: Words, maze_data: Path, tmp_path: Path) -> None:
    words = ["bench", "hierarchy", "--data", maze_data, "--seeds", "1", "--steps", "5", "--high-steps", "4", "--out",
             tmp_path, "--episodes", "3", "--methods", "iql", "hilp", "--high-set", "hidden=8", "batch=16", "--set",
             "batch=16", "hidden=8", "actor_hidden=8"]  # fmt: skip
    code, said, _ = run(*words)
    assert code == 0 and "100 x success" in said
    rows = files.read_rows(tmp_path / "hierarchy.jsonl")
    assert [(row["method"], row["rule"]) for row in rows] == [("iql", "none"), ("hilp", "hierarchy")]
    assert rows[1]["cell"]["high_updates"] == 4 and "high_config" not in rows[0]["cell"]
    before = (tmp_path / "hierarchy.jsonl").read_bytes()
    code, again, _ = run(*words)
    assert code == 0 and "cell" not in again and (tmp_path / "hierarchy.jsonl").read_bytes() == before

    from hilp.bench import tables

    lines: Any = [{**row, "cell": {**row["cell"], "data": "antmaze-ultra-diverse"}} for row in rows]
    headers, table = tables.hierarchy_table(lines)
    assert headers == ["method", "antmaze-ultra-diverse"]
    assert table[1][1].endswith("/ 44 ± 9") and "/" not in table[0][1]


def test_a_killed_hierarchy_goes_on_to_the_same_bits(
    run: Words, tiny_run: Path, tiny_data_folder: Path, tmp_path: Path
) -> None:
    def words(out: str, *more: str) -> list[str]:
        return ["hierarchy", str(tiny_run), "--data", str(tiny_data_folder), "--reward", "observation[0]", "--out",
                str(tmp_path / out), "--checkpoint-every", "20", "--json", *HIGH, *more]  # fmt: skip

    command = [sys.executable, "-c", "from hilp.cli import main; main()", *words("killed", "--steps", "1000000")]
    child = subprocess.Popen(command, env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"})
    deadline = time.monotonic() + 300
    while not list((tmp_path / "killed" / "checkpoints").glob("step-*.safetensors")):
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    newest = max(int(path.stem.split("-")[1]) for path in (tmp_path / "killed" / "checkpoints").glob("step-*"))
    steps = ["--steps", str(newest + 7)]
    code, _, told = run(*words("killed", *steps, "--resume"))
    assert code == 0, told
    assert run(*words("whole", *steps))[0] == 0
    assert (tmp_path / "killed" / PROMPT).read_bytes() == (tmp_path / "whole" / PROMPT).read_bytes()


def test_the_far_place_of_a_maze() -> None:
    world = hilp.make_task("maze-large")
    running = world.target_episodes(np.random.default_rng(0), 200)
    ways = world.cell_steps[world.cell(running.xy), world.cell(world.target[None])[0]]
    assert ways.min() >= world.cell_steps.max() / 2 and not running.reached().any()
    assert world.at_target(None, None, np.array([world.target, world.target + 0.6])).tolist() == [1.0, 0.0]
