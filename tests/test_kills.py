"""Forty kills at random moments: what loads is whole, nothing old is lost, and in the end the files are the same bytes.

Each scenario is a program that works in a folder of its own. It runs once in peace; then, in a second folder, it is
started and killed again and again, and at last left alone. Both folders must then hold the same files.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp.bench.cells import GOAL_PLANS

pytestmark = pytest.mark.slow

SMALL = "dim=4 hidden=16x16 actor_hidden=16x16 batch=32"  # networks
PATIENCE = 300.0  # seconds for a program that is left alone


@dataclass(frozen=True)
class Scenario:
    """A program (it is in `folder` and says when it begins to work), and what must hold whenever it was killed."""

    prepare: Callable[[Path], None]  # the folder before the first start
    program: str
    check: Callable[[Path], None]
    kills: int


def start(program: str, folder: Path) -> subprocess.Popen[str]:
    """Start a program and wait until it begins to work: most of its time before that goes into imports."""
    words = [sys.executable, "-c", f"import sys\nimport hilp\nfrom hilp.cli import main\n{program}"]
    with open(folder.with_suffix(".stderr"), "w") as said:
        process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=said, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line == "working\n":
            return process
    process.wait()
    raise AssertionError(folder.with_suffix(".stderr").read_text())


def run(program: str, folder: Path, kill_after: float | None = None) -> float | None:
    """Seconds that the program worked; None where it was killed before its end."""
    process, began = start(program, folder), time.monotonic()
    try:
        process.communicate(timeout=PATIENCE if kill_after is None else kill_after)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        assert kill_after is not None, f"not over after {PATIENCE} s"
        return None
    assert process.returncode == 0, folder.with_suffix(".stderr").read_text()
    return time.monotonic() - began


def files(folder: Path) -> dict[str, str]:
    """The hash of every file in a folder, hidden ones, too, by its path.

    Of metrics only which rows there are: their numbers are means over chunks that depend on the machine's speed.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            continue
        content = path.read_bytes()
        if path.name == "metrics.jsonl":
            content = str([json.loads(line)["step"] for line in content.splitlines()]).encode()
        found[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return found


def suffer(scenario: Scenario, tmp_path: Path) -> None:
    seed = time.time_ns() % 2**32  # new moments every time
    print(f"moments of the kills: seed {seed}")
    rng = np.random.default_rng(seed)
    calm, struck = tmp_path / "calm", tmp_path / "struck"

    def begin(folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        scenario.prepare(folder)

    begin(calm)
    seconds = run(scenario.program, calm)
    assert seconds is not None
    expected = files(calm)
    begin(struck)
    kills = ends = 0
    while kills < scenario.kills:
        if run(scenario.program, struck, float(rng.uniform(0, seconds))) is None:
            kills += 1
            scenario.check(struck)
        else:  # it came to its end: once more from the beginning
            ends += 1
            assert files(struck) == expected
            assert ends < 3 * scenario.kills, "the program ends before it can be killed"
            begin(struck)
    run(scenario.program, struck)
    scenario.check(struck)
    assert files(struck) == expected
    hidden = [path.name for path in struck.rglob(".*")]
    assert not hidden, "nothing of the dead is left"


# ---- what is killed --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two data sets `a` and `b`, and two policies `one` and `two`."""
    folder = tmp_path_factory.mktemp("shared")
    for seed, name in enumerate("ab"):
        hilp.collect("maze-medium", "navigate", 20_000, seed=seed).save(folder / name)
    config = hilp.HILP(dim=4, hidden=(16, 16), actor_hidden=(16, 16), batch=32)
    for seed, name in enumerate(("one", "two")):
        hilp.pretrain(config, hilp.load(folder / "a"), steps=20, seed=seed, bank=2_000, quiet=True).save(folder / name)
    return folder


def test_training_goes_on_and_the_old_policy_is_there_until_the_new_one_is(shared: Path, tmp_path: Path) -> None:
    words = f"pretrain --data {shared / 'a'} --out run --bank 500 --checkpoint-every 40 --json --set {SMALL}"
    old = tmp_path / "old"
    old.mkdir()
    run(f"print('working', flush=True)\nsys.exit(main('{words} --steps 200'.split()))", old)
    known = hilp.FoundationPolicy.load(old / "run").fingerprint
    program = f"""
hilp.pretrain, hilp.HILP
print("working", flush=True)
sys.exit(main("{words} --steps 4000 --resume".split()))
"""

    def check(folder: Path) -> None:
        policy = hilp.FoundationPolicy.load(folder / "run")
        assert policy.fingerprint == known or policy.provenance.steps == 4000
        json.loads((folder / "run" / "run.json").read_text())

    suffer(Scenario(lambda folder: _copy(old / "run", folder / "run"), program, check, kills=8), tmp_path)


def test_a_table_has_all_rows_of_a_cell_or_none(shared: Path, tmp_path: Path) -> None:
    words = f"bench goals --data {shared / 'a'} --methods hilp --seeds 3 --episodes 2 --steps 40"
    words += "".join(f" --set {value}" for value in SMALL.split()) + " --out out --rows rows.jsonl --json"
    program = f"""
hilp.pretrain, hilp.evaluate
print("working", flush=True)
sys.exit(main("{words}".split()))
"""
    before: list[bytes] = []

    def prepare(folder: Path) -> None:
        before.clear()

    def check(folder: Path) -> None:
        nonlocal before
        text = (folder / "rows.jsonl").read_bytes() if (folder / "rows.jsonl").exists() else b""
        lines = text.splitlines(keepends=True)
        assert lines[: len(before)] == before, "rows that were there are there"
        before = lines
        cells: dict[str, int] = {}
        for row in map(json.loads, lines):
            cell = json.dumps(row["cell"])
            cells[cell] = cells.get(cell, 0) + 1
        assert set(cells.values()) <= {len(GOAL_PLANS)}, "a row for each plan"

    suffer(Scenario(prepare, program, check, kills=8), tmp_path)


def test_a_policy_saved_over_another_is_one_of_them(shared: Path, tmp_path: Path) -> None:
    program = f"""
policies = [hilp.FoundationPolicy.load({str(shared)!r} + "/" + name) for name in ("one", "two")]
print("working", flush=True)
for _ in range(20):
    for policy in policies:
        policy.save("saved")
"""
    either = [files(shared / name) for name in ("one", "two")]

    def check(folder: Path) -> None:
        hilp.FoundationPolicy.load(folder / "saved")
        assert files(folder / "saved") in either

    suffer(Scenario(lambda folder: _copy(shared / "one", folder / "saved"), program, check, kills=8), tmp_path)


def test_a_conversion_over_a_data_set_leaves_one_of_them(shared: Path, tmp_path: Path) -> None:
    commands = [f"data convert {shared / name} target --overwrite --json" for name in "ab"]
    suffer(Scenario(*_over_a_data_set(shared, commands, times=5), kills=8), tmp_path)


def test_a_collection_over_a_data_set_leaves_one_of_them(shared: Path, tmp_path: Path) -> None:
    words = "data collect --task maze-medium --steps 20000 --out target --overwrite --json --seed"
    suffer(Scenario(*_over_a_data_set(shared, [f"{words} {seed}" for seed in (0, 1)], times=5), kills=4), tmp_path)


@pytest.mark.skipif(not importlib.util.find_spec("ogbench"), reason="needs the simulators")
def test_a_collection_in_shards_goes_on_and_leaves_one_of_two_data_sets(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "corner.txt").write_text("#####\n#...#\n###.#\n#####")
    words = f"data collect --task antmaze:{tmp_path / 'corner.txt'} --steps 1000 --workers 1"
    words += " --out target --overwrite --json"
    # Short episodes, two to a shard, so that a second sees several.
    short = "from hilp.collectors import antmaze\nantmaze.EPISODE_STEPS, antmaze.BLOCK = 50, 2\n"
    prepare, program, check = _over_a_data_set(shared, [words], times=1)
    suffer(Scenario(prepare, short + program, check, kills=4), tmp_path)


def _over_a_data_set(
    shared: Path, commands: list[str], times: int
) -> tuple[Callable[[Path], None], str, Callable[[Path], None]]:
    """Commands that write the data set `target` over the one before, again and again; each is whole at every moment."""
    program = f"""
hilp.load, hilp.collect, hilp.Dataset
print("working", flush=True)
for _ in range({times}):
    for words in {commands!r}:
        if code := main(words.split()):
            sys.exit(code)
"""

    def check(folder: Path) -> None:
        known = [shared / "a", shared / "b", folder.parent / "calm" / "target"]
        found = hilp.Dataset.open(folder / "target", verify=True)
        assert found.fingerprint in [hilp.Dataset.open(path).fingerprint for path in known]

    return lambda folder: _copy(shared / "b", folder / "target"), program, check


def _copy(source: Path, target: Path) -> Any:
    return shutil.copytree(source, target)
