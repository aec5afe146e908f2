"""The command line under attack: sizes no machine has, crafted files, names of any bytes, two at once, closed pipes."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from conftest import Run, tree
from hilp import storage
from hilp.commands import bench, common, pretrain, quickstart
from hilp.errors import TrainingStopped
from hilp.policy.artifact import Provenance

HILP = str(Path(sys.executable).with_name("hilp"))
NESTED = "[" * 100_000
SMALL = ["--method", "gc-bc", "--set", "actor_hidden=8", "batch=16"]  # the quickest to compile

Refused = Callable[..., str]


# ---- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["batch=1e15", "dim=1e30", "dim=1e300", "hidden=100000000x100000000"])
@pytest.mark.parametrize("verb", ["pretrain", "bench goals"])
def test_a_config_that_no_machine_can_train(
    verb: str, value: str, refused: Refused, tiny_data_folder: Path, tmp_path: Path
) -> None:
    words = [*verb.split(), "--data", tiny_data_folder, "--out", tmp_path / "new", "--steps", 2, "--json"]
    refused(*words, *(["--methods", "hilp"] if verb == "bench goals" else []), "--set", value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("bench goals --seeds 1000000000000", "--seeds must be at most"),
        ("pretrain --data x --seeds 1000000000", "--seeds must be at most"),
        ("pretrain --data x --steps 1" + "0" * 30, "--steps must be at most"),
        ("evaluate {run} --episodes 1000000000000", "--episodes must be at most"),
        ("evaluate {run} --plan 1" + "0" * 30, "--plan takes"),
        ("evaluate {run} --plan ²", "--plan takes"),
        ("data collect --task maze-medium --workers 1000000000", "--workers must be at most"),
    ],
)
def test_counts_that_nobody_can_mean(words: str, says: str, refused: Refused, tiny_run: Path, tmp_path: Path) -> None:
    out = [] if "{run}" in words else ["--out", tmp_path / "new"]
    assert says in refused(*(word.format(run=tiny_run) for word in words.split()), *out)


def test_memory_that_is_not_there_is_one_line(refused: Refused, tmp_path: Path) -> None:
    words = ["data", "collect", "--task", "maze-medium", "--steps", 10**14, "--out", tmp_path / "new"]
    assert "not enough memory" in refused(*words)


# ---- crafted files ---------------------------------------------------------------------------------------------------


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def header(*shape: int) -> bytes:
    """The beginning of an .npy file that claims an array of this shape, and nothing after it."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return file.getvalue()


ROWS = np.random.default_rng(0).uniform(1, 2, (50, 2)).astype(np.float32)
LABELS = {"observations": npy(ROWS), "next_observations": npy(ROWS[::-1]), "rewards": npy(ROWS[:, 0])}


def write_labels(path: Path, kind: int = zipfile.ZIP_DEFLATED, **changes: bytes | None) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, content in {**LABELS, **changes}.items():
            if content is not None:
                archive.writestr(f"{name}.npy", content)
    return path


def test_labelled_samples_are_a_prompt(run: Run, tiny_run: Path, tmp_path: Path) -> None:
    words = ["prompt", tiny_run, "--labels", write_labels(tmp_path / "labels.npz"), "--steps", 2, "--json"]
    code, out, _ = run(*words)
    assert code == 0 and json.loads(out)["prompt"] == "labels"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"observations": header(10**15, 2)}, "observations.*damaged"),
        ({"rewards": header(10**15)}, "rewards.*damaged"),
        ({"rewards": header(-1)}, "rewards.*damaged"),
        ({"next_observations": header(2**62, 2**62)}, "next_observations"),
        ({"rewards": npy(np.array([None] * 50))}, "rewards.*Python objects"),
        ({"rewards": npy(np.full(50, "x"))}, "rewards.*not numbers"),
        ({"rewards": npy(np.zeros(50, np.complex64))}, "rewards.*not numbers"),
        ({"rewards": npy(np.zeros(50, "M8[s]"))}, "rewards.*not numbers"),
        ({"rewards": None}, "has no 'rewards'"),
        ({"rewards": b"not an array"}, "rewards"),
        ({"rewards": npy(ROWS[:40, 0])}, "50"),
        ({"rewards": npy(np.full(50, np.nan))}, "NaN"),
    ],
)
def test_labels_are_checked_before_memory_is_taken(
    changes: dict[str, bytes | None], says: str, refused: Refused, tiny_run: Path, tmp_path: Path
) -> None:
    path = write_labels(tmp_path / "labels.npz", **changes)
    assert re.search(says, refused("prompt", tiny_run, "--labels", path, "--steps", 2))


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_labels_packed_as_numpy_never_packs_them(kind: int, refused: Refused, tiny_run: Path, tmp_path: Path) -> None:
    """Nothing bounds what such a member unpacks to."""
    path = write_labels(tmp_path / "labels.npz", kind)
    assert "labels.npz" in refused("prompt", tiny_run, "--labels", path, "--steps", 2)


def test_labels_that_are_no_file(refused: Refused, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("mine")
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "text"):
        assert "--labels takes an npz file" in refused("prompt", tiny_run, "--labels", path)


def test_options_nested_too_deeply(refused: Refused, tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", observations=ROWS)
    for words in (["data", "inspect", tmp_path / "own.npz"], ["data", "convert", tmp_path / "own.npz", tmp_path / "x"]):
        assert "--option columns is nested too deeply" in refused(*words, "--option", f"columns={NESTED}")


@pytest.mark.parametrize(
    "file",
    [
        "run.json",
        "policy/config.json",
        "metrics.jsonl",
        "checkpoints",
    ],
)
def test_files_of_a_run_nested_too_deeply(
    file: str, refused: Refused, run: Run, run_copy: Path, tiny_data_folder: Path
) -> None:
    evaluate = ["evaluate", run_copy, "--plan", 0, "--episodes", 2]
    resume = ["pretrain", "--data", tiny_data_folder, "--out", run_copy, "--resume", "--steps", 310]
    resume += ["--set", "hidden=32,32", "actor_hidden=32,32", "batch=64", "dim=8", "--json"]
    if file == "checkpoints":
        for path in (run_copy / file).iterdir():
            path.write_bytes(NESTED.encode())
        code, _, err = run(*resume)
        assert code == 2 and "Traceback" not in err and "checkpoint" in err
        return
    (run_copy / file).write_text(NESTED + "\n")
    assert Path(file).name in refused(*(resume if file == "run.json" else evaluate))


def test_rows_nested_too_deeply(refused: Refused, tiny_data_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(NESTED + "\n")
    words = ["bench", "goals", "--data", tiny_data_folder, "--methods", "hilp", "--out", tmp_path / "table"]
    assert "rows.jsonl" in refused(*words, "--rows", tmp_path / "rows.jsonl", "--steps", 2)


@pytest.mark.parametrize("verb", ["evaluate", "prompt", "diagnose", "map", "report"])
def test_a_folder_that_only_looks_like_a_seed(verb: str, run: Run, run_copy: Path, tmp_path: Path) -> None:
    """It is the user's, whatever it is called: the run beside it is used, and an empty run is told."""
    (run_copy / "seed-old").mkdir()
    words = {
        "evaluate": ["--plan", 0, "--episodes", 2],
        "prompt": ["--skill", "random", "--steps", 2],
        "diagnose": [],
        "map": ["--flatten", "pca", "--points", 100, "--out", tmp_path / "map.png"],
        "report": [],
    }
    if verb in ("evaluate", "prompt"):  # one of each way to find a policy is enough to run to its end
        assert run(verb, run_copy, *words[verb])[0] == 0
    (tmp_path / "empty" / "seed-old").mkdir(parents=True)
    (tmp_path / "empty" / "seed-").mkdir()
    (tmp_path / "empty" / "seed-²").mkdir()
    code, out, err = run(verb, tmp_path / "empty", *words[verb])
    assert (code, out) == (2, "") and "there is no policy at" in err


# ---- names of any bytes ----------------------------------------------------------------------------------------------

ODD = "\x1b[31mred\n \u202e'[bold]"
NASTY = os.fsdecode(b"caf\xe9 ") + ODD  # in Latin-1


def is_safe(text: str) -> bool:
    """No terminal code, no half of a character: only letters and ends of lines."""
    return all(c.isprintable() or c == "\n" for c in text)


def test_names_of_any_bytes(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data, run and pictures under such names, all the way; nothing that is printed speaks to the terminal."""
    data, out = tmp_path / f"{ODD}.npz", tmp_path / NASTY
    rng = np.random.default_rng(0)
    np.savez(data, observations=rng.uniform(0, 9, (200, 2)), actions=rng.uniform(-1, 1, (200, 2)),
             episode_lengths=[100, 100])  # fmt: skip
    commands: list[list[Any]] = [
        ["data", "inspect", data],
        ["data", "convert", data, tmp_path / f"{ODD}-native"],
        ["data", "inspect", tmp_path / f"{ODD}-native", "--json"],
        ["pretrain", "--data", data, "--out", out, "--steps", 2, "--bank", 50, *SMALL],
        ["evaluate", out, "--task", "maze-medium", "--plan", 0, "--episodes", 2],
        ["prompt", out, "--goal", "1.5,1.5", "--save", tmp_path / f"{NASTY}-prompt"],
        ["prompt", out, "--load", tmp_path / f"{NASTY}-prompt", "--task", "maze-medium", "--steps", 2, "--picture",
         tmp_path / f"{NASTY}.png"],
        ["report", out],
    ]  # fmt: skip
    for words in commands:
        monkeypatch.setattr(sys, "argv", ["hilp", *map(str, words)])
        code, said, err = run(*words)
        assert code == 0 and "hilp:" not in err, (words, err)
        assert is_safe(said) and said.strip()
        if words[0] == "pretrain":
            quoted = common.quoted(str(out))
            assert f"try `hilp prompt {quoted} --goal=" in said
    (tmp_path / f"{ODD}-native" / "dataset.json").unlink()
    for path in (tmp_path / f"{NASTY}-nowhere", tmp_path / f"{ODD}-native"):
        for verb in (["evaluate"], ["prompt"], ["report"], ["data", "inspect"]):
            code, said, err = run(*verb, path)
            assert (code, said) == (2, "") and is_safe(err) and err.count("\n") == 1


def test_data_whose_name_is_not_utf8(run: Run, tmp_path: Path) -> None:
    """It may be refused, but in one line."""
    np.savez(tmp_path / f"{NASTY}.npz", observations=ROWS, actions=ROWS - 1.5, episode_lengths=[25, 25])
    data = tmp_path / f"{NASTY}.npz"
    for words in (["data", "inspect", data], ["data", "convert", data, tmp_path / "new"]):
        code, said, err = run(*words)
        assert code in (0, 2) and is_safe(said) and is_safe(err) and err.count("\n") == (code == 2)


@pytest.mark.parametrize("word", [NASTY, "plain", "two words", "", "it's", "\\", "$HOME", "\t", "é"])
def test_a_command_can_be_given_again(word: str) -> None:
    shown = common.quoted(word)
    assert shown.isprintable()
    done = subprocess.run(["bash", "-c", f"printf %s {shown}"], capture_output=True, check=True)
    assert os.fsdecode(done.stdout) == word


def without_task(data: hilp.Dataset, task: str | None = None) -> hilp.Dataset:
    return hilp.Dataset(data.observations, data.actions, data.lengths, task=task)


def test_what_to_try_next(tiny_data: hilp.Dataset, tiny: hilp.FoundationPolicy) -> None:
    """An evaluation only where there is a task to evaluate in."""
    flags = pretrain.Pretrain(data="my log.npz", out="runs/a", format="npz", rescale_actions=True)
    assert pretrain.next_command(flags, tiny_data, tiny) == "hilp evaluate runs/a"
    for task in (None, "a-task-of-another-day", "antmaze-large"):  # the last has other observations
        said = pretrain.next_command(flags, without_task(tiny_data, task), tiny)
        assert said == ("hilp prompt runs/a --skill random` or `hilp diagnose runs/a --data 'my log.npz' --format npz "
                        "--rescale-actions")  # fmt: skip


def test_what_to_try_next_works(
    run: Run, tiny_data: hilp.Dataset, tiny: hilp.FoundationPolicy, change: Any, tmp_path: Path
) -> None:
    homeless = change(tiny, provenance=Provenance())
    homeless.save(tmp_path / "own run")
    data = without_task(tiny_data)
    data.save(tmp_path / "data")
    flags = pretrain.Pretrain(data=str(tmp_path / "data"), out=str(tmp_path / "own run"))
    for said in pretrain.next_command(flags, data, homeless).split("` or `"):
        code, _, err = run(*shlex.split(said)[1:], *(["--steps", "2"] if "diagnose" in said else []))
        assert code == 0 and "hilp:" not in err


def named_parts(rows: int = 200) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    steps = np.cumsum(rng.normal(size=(rows, 2)), axis=0)
    camera = rng.integers(0, 256, (rows, 4, 4, 1), np.uint8)
    parts = {"observations/state": steps, "observations/camera": camera}
    return {**parts, "actions": rng.uniform(-1, 1, (rows, 2)), "episode_lengths": np.full(rows // 50, 50)}


@pytest.mark.parametrize(
    ("method", "bank", "offered"),
    [
        ("hilp", 50, ["prompt", "diagnose"]),
        ("hilp", 0, ["diagnose"]),
        ("gc-bc", 50, ["prompt"]),
        ("gc-bc", 0, ["report"]),
    ],
)
def test_observations_by_name_from_data_to_prompt(
    method: str, bank: int, offered: list[str], run: Run, refused: Refused, tmp_path: Path
) -> None:
    np.savez(tmp_path / "eyes.npz", **named_parts())
    data, out = tmp_path / "eyes.npz", tmp_path / "run"
    small = [*SMALL, "encoder=light", *(["hidden=8", "dim=4"] if method == "hilp" else []), "--method", method]
    train = ["pretrain", "--data", data, "--out", out, "--steps", 2, "--bank", bank, *small]
    assert "by name (camera uint8 (4, 4, 1), state float32 (2,))" in refused(*train, "--eval-task", "maze-medium")
    code, said, err = run(*train)
    assert code == 0, err
    commands = said.partition("try `")[2].rstrip("`\n").split("` or `")
    assert [command.split()[1] for command in commands] == offered
    for command in commands:
        code, said, err = run(*shlex.split(command)[1:], *(["--steps", "2"] if "diagnose" in command else []))
        assert code == 0 and "Traceback" not in err, (command, err)
        if " prompt " in command:
            assert "at/camera: 4 x 4 x 1 bytes\n" in said and "at/state: " in said
    goal = refused("prompt", out, "--goal", "1,2")
    assert "is no goal: give a row of data" in goal and "by name (camera, state)" in goal and "--load" in goal
    if not bank:
        assert "keeps no states" in refused("prompt", out, "--reward", "state[0]")
        return
    assert run("prompt", out, "--reward", "state[0]")[0] == 0
    assert run("prompt", out, "--reward", "norm(state)", "--data", data)[0] == 0
    assert "by name" in refused("prompt", out, "--reward", "state[0]", "--start", "1,2")
    assert "by name" in refused("prompt", out, "--reward", "state[0]", "--task", "maze-medium")
    parts = {name: array for name, array in named_parts().items() if name.startswith("observations/")}
    labels = {f"next_{name}": array for name, array in parts.items()} | {"rewards": parts["observations/state"][:, 0]}
    np.savez(tmp_path / "labels.npz", **parts, **labels)
    assert run("prompt", out, "--labels", tmp_path / "labels.npz", "--rule", "goal")[0] == 0
    np.savez(tmp_path / "flat.npz", observations=ROWS, actions=ROWS - 1.5, episode_lengths=[25, 25])
    assert "observations/camera" in refused("prompt", out, "--labels", tmp_path / "flat.npz")
    assert "not those of this policy" in refused("prompt", out, "--reward", "state[0]", "--data", tmp_path / "flat.npz")


def test_a_policy_without_states_says_so(
    refused: Refused,
    run: Run,
    tiny: hilp.FoundationPolicy,
    tiny_data: hilp.Dataset,
    change: Any,
    tmp_path: Path,
) -> None:
    bare = change(tiny, provenance=Provenance(), bank=tiny.bank.subsample(0, 0))
    bare.save(tmp_path / "bare")
    assert "--start" in refused("prompt", tmp_path / "bare", "--skill", "random")
    assert run("prompt", tmp_path / "bare", "--skill", "random", "--start", "1.5,1.5")[0] == 0
    said = pretrain.prompt_command(str(tmp_path / "bare"), tiny_data, bare)
    assert run(*shlex.split(said)[1:])[0] == 0
    assert "2" in refused("prompt", tmp_path / "bare", "--skill", "random", "--start", "1.5")


# ---- two at once, and old work ---------------------------------------------------------------------------------------


def test_one_table_at_a_time_in_a_folder(refused: Refused, tmp_path: Path) -> None:
    with storage.locked(tmp_path / "table", "hilp bench goals --seeds 99"):
        for verb in ("goals", "rewards"):
            line = refused("bench", verb, "--data", "maze-medium", "--out", tmp_path / "table")
            assert f"process {os.getpid()}" in line and "hilp bench goals --seeds 99" in line


def test_one_quickstart_at_a_time_in_a_folder(refused: Refused, run_copy: Path) -> None:
    with storage.locked(run_copy, "hilp quickstart --seed 7"):
        line = refused("quickstart", "--out", run_copy, "--task", "maze-medium", "--overwrite", "--steps", 2)
        assert f"process {os.getpid()}" in line and "hilp quickstart --seed 7" in line


@pytest.mark.parametrize(
    "error", [TrainingStopped("saved"), hilp.HilpError("no"), KeyboardInterrupt(), OSError(28, "full")]
)
def test_an_earlier_quickstart_stays_until_the_new_one_is_done(
    error: BaseException, run: Run, run_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*args: object, out: Path, **kwargs: object) -> None:
        out.mkdir(exist_ok=True)
        (out / "run.json").write_text("half")
        raise error

    monkeypatch.setattr("hilp.training.loop.pretrain", stopped)
    monkeypatch.setattr(quickstart, "TRANSITIONS", 500)
    before = tree(run_copy.parent)
    code, out, err = run("quickstart", "--out", run_copy, "--task", "maze-medium", "--overwrite", "--steps", 2)
    assert code == (130 if isinstance(error, TrainingStopped | KeyboardInterrupt) else 2)
    assert out == "" and err.count("\n") == 1
    assert tree(run_copy.parent) == before, "and nothing else is left behind"


# ---- what is printed -------------------------------------------------------------------------------------------------


def test_json_has_no_nan(run: Run, tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"a": float("nan"), "b": [1.0, float("inf")], "c": {"d": -float("inf")}, "e": (2, "NaN")}
    monkeypatch.setattr("hilp.evaluation.diagnosis.diagnose", lambda *args, **kwargs: found)
    code, out, _ = run("diagnose", tiny_run, "--json")
    told = json.loads(out, parse_constant=pytest.fail)
    assert code == 0 and told == {"a": None, "b": [1.0, None], "c": {"d": None}, "e": [2, "NaN"]}


@pytest.mark.parametrize("words", ["--help", "report --help", "data list"])
def test_a_closed_pipe(words: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([HILP, *words.split()], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_output_that_cannot_be_written() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([HILP, "data"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert re.fullmatch(r"hilp: error: .*No space left on device\n", done.stderr), done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--reward right --plan 3", "--plan changes nothing about a prompt with --reward"),
        ("--skill random --plan auto", "--plan changes nothing"),
        ("--load x --plan 0", "prompt with --goal"),
        ("--goal 1.5,1.5 --data maze-medium", "--data changes nothing"),
        ("--skill random --rule goal", "--rule goal changes nothing"),
        ("--goal 1.5,1.5 --intercept", "prompt with --reward or --labels"),
    ],
)
def test_flags_that_change_nothing(words: str, says: str, refused: Refused, tiny_run: Path) -> None:
    assert says in refused("prompt", tiny_run, *words.split())


def test_flags_take_a_dash_or_an_underscore(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    seen = []

    def fill(kind: str, flags: Any, **extra: Any) -> Any:
        seen.append(flags.curve_points)
        raise hilp.HilpError("enough")

    monkeypatch.setattr(bench, "fill", fill)
    for name in ("--curve-points", "--curve_points"):
        refused("bench", "goals", name, 8)
    assert seen == [8, 8]
    assert "--curve-points must be at least 0" in refused("bench", "goals", "--curve-points", -1)
