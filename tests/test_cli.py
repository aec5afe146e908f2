"""The command line: the flags people script against, end to end, and one line and exit code 2 for every mistake."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from conftest import Run, tree
from hilp.cli import VERBS, main
from hilp.commands import prompt_run
from hilp.errors import TrainingDiverged
from hilp.policy.artifact import Provenance

SMALL = ["--set", "hidden=32,32", "actor_hidden=32,32", "batch=64", "dim=8"]
HILP = str(Path(sys.executable).with_name("hilp"))

# ---- help ------------------------------------------------------------------------------------------------------------

HEAVY = "{'jax', 'numpy', 'scipy', 'equinox', 'matplotlib', 'tyro', 'rich', 'gymnasium'}"


@pytest.mark.parametrize("words", [["--help"], [], ["--version"], ["data"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = f"import sys\nfrom hilp.cli import main\ncode = main({words!r})\nassert not {HEAVY} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", f"{code}\nsys.exit(code)"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("usage: hilp", "hilp ")) and done.stderr == ""


def test_ctrl_c_while_modules_are_imported_is_one_line() -> None:
    """An import that is cut short can raise anything; here it would be swallowed."""
    code = """
import contextlib, os, signal, sys
from hilp import cli
def imports(verb):
    with contextlib.suppress(BaseException):
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(10**5))
    print("went on")
cli.flags_of = imports
cli.main(["map"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "hilp: stopped\n")


def test_help_names_every_verb(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    for verb in VERBS:
        assert re.search(rf"^  {verb} ", out, re.M)
    assert run("-h")[1] == run()[1] == run("help")[1] == out


@pytest.mark.parametrize("words", [[""], ["data", ""], ["bench", "-x"], ["pretrain", "--hlep"]])
def test_a_word_that_is_no_verb_is_a_mistake(run: Run, words: list[str]) -> None:
    code, out, err = run(*words)
    assert code == 2 and out == "" and err.startswith("hilp: error: ") and err.count("\n") == 1


FLAGS: dict[str, list[str]] = json.loads((Path(__file__).parent / "flags.json").read_text())


def help_of(verb: str, word: str = "--help-all") -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main([*verb.split(), word]) == 0
    return said.getvalue()


def flags_of(verb: str) -> set[str]:
    """What the help of a verb explains: positional arguments and options, at the beginning of a line each."""
    return set(re.findall(r"^  ([A-Z]+|--[a-z-]+)", help_of(verb), re.M))


@pytest.mark.parametrize("verb", VERBS)
def test_every_flag_that_people_script_against_is_still_there(verb: str) -> None:
    assert set(FLAGS[verb]) <= flags_of(verb)


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb(verb: str) -> None:
    short, full = help_of(verb, "--help"), help_of(verb)
    assert short.startswith(f"usage: hilp {verb}") and full.splitlines()[0] == short.splitlines()[0]
    assert set(FLAGS[verb]) <= set(re.findall(r"[A-Z]+|--[a-z-]+", short)), "each is named, if not explained"
    assert "None" not in full and "\nmore:" not in full, "every flag has a topic"
    for line in full.splitlines():
        assert len(line) <= 100 or not line.startswith(" "), line


@pytest.mark.parametrize(
    "verb", ["quickstart", "pretrain", "prompt", "evaluate", "play", "serve", "data", "data inspect", "--help"]
)
def test_help_of_the_main_verbs_fits_one_screen(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = help_of(verb, "--help").splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 120


def test_help_says_a_default_once_and_most_used_flags_first() -> None:
    lines = help_of("pretrain", "--help").splitlines()
    flags = [line.split()[0] for line in lines if line.startswith("  --")]
    assert flags[:5] == ["--data", "--out", "--minutes", "--steps", "--method"]
    assert "  data      --task" in "\n".join(lines), "the rest by topic"
    everything = " ".join(help_of("pretrain").split())
    assert "updates between two checkpoints (default: a tenth of the run) --keep" in everything
    assert "checkpoints kept on disk (default: 2)" in everything
    assert "compare a native folder with its checksums first --" in everything, "a switch is off"


def test_help_of_a_verb_reads_its_file_alone() -> None:
    code = "import sys\nfrom hilp.cli import main\ntry: main(['bench', 'goals', '--help'])\nfinally: pass\n"
    done = subprocess.run([sys.executable, "-c", f"{code}print(*sys.modules)"], check=True, capture_output=True)
    modules = set(done.stdout.decode().splitlines()[-1].split())
    assert not {"jax", "numpy"} & modules
    commands = {name.removeprefix("hilp.commands.") for name in modules if name.startswith("hilp.commands.")}
    assert commands == {"bench", "common", "help"}


# ---- end to end ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tiny_data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run made by the command line in two parts, with everything the shared run was made with."""
    out = tmp_path_factory.mktemp("cli") / "run"
    words = ["pretrain", "--data", tiny_data_folder, "--method", "hilp", "--preset", "laptop", "--seed", "0",
             "--out", out, "--bank", "2000", "--json", *SMALL]  # fmt: skip
    assert main([*map(str, words), "--steps", "120"]) == 0
    assert main([*map(str, words), "--steps", "300", "--resume"]) == 0
    return out


def test_pretrain_and_resume_make_what_the_library_makes(
    trained: Path, tiny: hilp.FoundationPolicy, tiny_run: Path
) -> None:
    policy = hilp.FoundationPolicy.load(trained)
    assert policy.fingerprint == tiny.fingerprint
    np.testing.assert_array_equal(policy.bank.observations, tiny.bank.observations)
    steps = [[json.loads(line)["step"] for line in (run / "metrics.jsonl").open()] for run in (trained, tiny_run)]
    assert steps[0] == sorted(set(steps[0])), "each step once, in order"
    assert steps[0][-1] == steps[1][-1] == 300
    about = json.loads((trained / "run.json").read_text())
    assert about["steps"] == 300 and about["seed"] == 0 and about["config"]["hidden"] == [32, 32]


def test_resume_goes_on_from_the_newest_checkpoint(
    trained: Path, tiny_data_folder: Path, tmp_path: Path, run: Run
) -> None:
    out = tmp_path / "run"
    shutil.copytree(trained, out)
    words = ["pretrain", "--data", tiny_data_folder, "--out", out, "--bank", 2000, "--resume", "--json", *SMALL]
    code, said, err = run(*words, "--steps", 310)
    assert code == 0 and err == "", "no checkpoint is skipped"
    told = json.loads(said)
    assert told["out"] == str(out) and told["steps"] == 310 and told["preset"] == "laptop"
    assert told["policies"] == [hilp.FoundationPolicy.load(out).fingerprint]
    assert "step-000000310.safetensors" in {path.name for path in (out / "checkpoints").iterdir()}


def test_evaluate_prints_one_json_line_a_row(run: Run, run_copy: Path, tiny: hilp.FoundationPolicy) -> None:
    words = ["evaluate", run_copy, "--task", "maze-medium", "--plan", 0, 1, 3, "auto", "--episodes", 4, "--json"]
    code, out, err = run(*words)
    assert code == 0 and err == ""
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["plan"] for row in rows] == [0, 1, 3, "auto"]
    assert all(row["policy"] == tiny.fingerprint and row["episodes"] == 4 for row in rows)
    kept = [json.loads(line) for line in (run_copy / "rows.jsonl").read_text().splitlines()]
    assert kept == rows
    again = run(
        "evaluate", run_copy / "policy", "--plan", 1, "--episodes", 4, "--json", "--rows", run_copy / "own.jsonl"
    )
    assert json.loads(again[1])["outcomes"] == rows[1]["outcomes"]
    assert json.loads((run_copy / "own.jsonl").read_text())["plan"] == 1


def test_evaluate_prints_a_table(run: Run, run_copy: Path) -> None:
    code, out, err = run("evaluate", run_copy, "--plan", "0", "--rewards", "all", "--episodes", 2)
    assert code == 0 and err == ""
    for text in ("maze-medium", "goal, plan 0", "reward, right", "reward, centre", "95% interval"):
        assert text in out
    assert "goal, plan 1" not in out


def test_collect_and_inspect(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "data"
    words = ["data", "collect", "--task", "maze-medium", "--kind", "explore", "--steps", 900, "--out", out, "--json"]
    code, said, _ = run(*words)
    told = json.loads(said)
    assert code == 0 and told["transitions"] == 900 and told["out"] == str(out)
    data = hilp.load(out)
    assert data.transitions == 900 and data.fingerprint == told["fingerprint"] and data.task == "maze-medium"
    code, said, _ = run("data", "inspect", out, "--json")
    assert code == 0
    inspected = json.loads(said)
    assert (
        inspected["trainable"]
        and inspected["transitions"] == 900
        and inspected["observation_dim"] == inspected["action_dim"] == 2
    )
    assert run(*words, "--overwrite", "--seed", 1)[0] == 0
    assert hilp.load(out).fingerprint != data.fingerprint


def test_list_as_json(run: Run) -> None:
    code, out, err = run("data", "list", "--json")
    listed = json.loads(out)
    assert code == 0 and err == ""
    assert {"maze-four-rooms", "maze-medium", "maze-large", "maze-ultra"} <= set(listed["tasks"])
    assert listed["data"]["maze-large"] == {"task": "maze-large", "kind": "navigate"}
    assert "maze-large-explore" in listed["data"] and "hilp" in listed["methods"]
    assert "maze-ultra" in run("data", "list")[1]


def test_prompt_with_a_goal(run: Run, tiny_run: Path, tiny: hilp.FoundationPolicy) -> None:
    words = ["prompt", tiny_run, "--goal", "6.5,1.5", "--start", "1.5,1.5", "--steps", 20, "--plan", "1", "--json"]
    code, out, err = run(*words)
    told = json.loads(out)
    assert code == 0 and err == ""
    assert told["prompt"] == "goal" and told["policy"] == tiny.fingerprint and told["task"] == "maze-medium"
    assert told["start"] == [1.5, 1.5] and told["steps"] <= 20 and isinstance(told["reached"], bool)
    np.testing.assert_allclose(told["z"], tiny.goal([6.5, 1.5], plan=1)(np.float32([[1.5, 1.5]]))[0], atol=1e-5)


def test_prompt_with_a_reward(run: Run, tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["prompt", tiny_run, "--reward", "right", "--rule", "skill", "--steps", 5, "--json"]
    monkeypatch.setattr("hilp.prompts.reward.POOR_FIT", -1.0)
    code, out, err = run(*words)
    told = json.loads(out)
    assert code == 0 and err == "" and told["steps"] == 5 and "reached" not in told
    assert np.linalg.norm(told["z"]) == pytest.approx(1, abs=1e-5)
    monkeypatch.setattr("hilp.prompts.reward.POOR_FIT", 1.0)
    code, again, err = run(*words)
    assert code == 0 and again == out
    assert re.fullmatch(rf"hilp: warning: phi expresses only R\^2 = {told['r2']:.2f} [^\n]+\n", err), "one line"


def test_prompt_with_a_skill(run: Run, tiny_run: Path, tiny: hilp.FoundationPolicy) -> None:
    code, out, _ = run("prompt", tiny_run, "--skill", "random", "--seed", 3, "--steps", 5, "--json")
    assert code == 0
    np.testing.assert_allclose(json.loads(out)["z"], tiny.skill(seed=3).z, atol=1e-6)
    code, out, _ = run("prompt", tiny_run, "--skill", "-3,0,0,0,4,0,0,0", "--steps", 5, "--json")
    assert code == 0
    np.testing.assert_allclose(json.loads(out)["z"], [-0.6, 0, 0, 0, 0.8, 0, 0, 0], atol=1e-6)


def test_prompts_are_saved_loaded_and_drawn(run: Run, tiny_run: Path, tmp_path: Path) -> None:
    file, where = tmp_path / "prompt", ["--start", "1.5,1.5", "--steps", 6, "--json"]
    for words in (["--goal", "6.5,1.5", "--plan", "auto"], ["--skill", "random", "--seed", 4]):
        code, out, _ = run("prompt", tiny_run, *words, *where, "--save", file, "--picture", tmp_path / "way.png")
        assert code == 0
        assert (tmp_path / "way.png").read_bytes().startswith(b"\x89PNG")
        loaded = json.loads(run("prompt", tiny_run, "--load", file, *where)[1])
        assert loaded["end"] == json.loads(out)["end"] and loaded["z"] == json.loads(out)["z"]


def test_prompt_without_a_task(run: Run, tiny: hilp.FoundationPolicy, change: Any, tmp_path: Path) -> None:
    """A policy of someone's own arrays has no world to run in, but its skills can be asked for and saved."""
    folder = change(tiny, provenance=Provenance()).save(tmp_path / "own")
    code, out, _ = run("prompt", folder, "--skill", "random", "--json", "--save", tmp_path / "skill")
    assert code == 0 and len(json.loads(out)["z"]) == 8 and (tmp_path / "skill").is_file()
    code, _, err = run("prompt", folder, "--reward", "right")
    assert code == 2 and "--task" in err
    assert run("prompt", folder, "--reward", "right", "--task", "maze-medium", "--steps", 3)[0] == 0
    picture = tmp_path / "way.png"
    code, _, err = run("prompt", folder, "--skill", "random", "--picture", picture)
    assert code == 2 and "--goal" in err and not picture.exists()
    assert run("prompt", folder, "--goal", "6.5,1.5", "--picture", picture)[0] == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_numbers_are_printed_with_the_names_of_columns(tmp_path: Path) -> None:
    rows, names = np.zeros((4, 2)), {"observation_parts": (("x", ()), ("y", ())), "action_parts": (("cmd", (2,)),)}
    result = {"at": [1.0, 2.0], "z": [0.5], "action": [7.44, -0.0249]}
    assert prompt_run.with_names(result, str(tmp_path)) == result
    hilp.Dataset(rows, rows, [4], **names).save(tmp_path / "held-out")
    found = prompt_run.with_names(result, str(tmp_path))
    assert found == {"at": ["x=1", "y=2"], "z": [0.5], "action": ["cmd[0]=7.44", "cmd[1]=-0.0249"]}


def test_actions_can_be_rescaled(
    run: Run, refused: Callable[..., str], tiny_data: hilp.Dataset, tmp_path: Path
) -> None:
    np.savez(tmp_path / "raw.npz", observations=tiny_data.observations, actions=5 + 3 * tiny_data.actions,
             episode_lengths=tiny_data.lengths)  # fmt: skip
    words = ["pretrain", "--data", tmp_path / "raw.npz", "--out", tmp_path / "run", "--steps", 3, "--json", *SMALL]
    line = refused(*words)
    assert "[-1, 1]" in line and "--rescale-actions" in line
    code, _, err = run(*words, "--rescale-actions")
    assert code == 0 and err == ""
    policy = hilp.FoundationPolicy.load(tmp_path / "run")
    action = policy.act(tiny_data.observations[:50], policy.skill(seed=0))
    assert ((action >= 2) & (action <= 8)).all(), "in the user's range"
    assert policy.bank.actions.min() == pytest.approx(2, abs=0.01)


def test_the_installed_command(run_copy: Path, tmp_path: Path) -> None:
    done = subprocess.run([HILP, "evaluate", str(tmp_path / "nowhere")], capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == f"hilp: error: there is no policy at {tmp_path / 'nowhere'}: no such folder\n"
    words = ["evaluate", str(run_copy), "--plan", "0", "--episodes", "2", "--json"]
    alone = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}  # which may speak up while others write to it
    done = subprocess.run([HILP, *words], capture_output=True, text=True, env=alone)
    assert done.returncode == 0 and done.stderr == ""
    assert json.loads(done.stdout)["command"] == " ".join(["hilp", *words]), "a row says how to make it again"


# ---- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("evalaute x", "did you mean 'evaluate'"),
        ("data colect", "did you mean 'data collect'"),
        ("frobnicate", "choose from: bench"),
        ("evaluate {run} --epsiodes 3", "no option --epsiodes: did you mean '--episodes'"),
        ("evaluate {run} --set dim=3", "no option --set"),
        ("evaluate {run} -x", "-x"),
        ("evaluate", "RUN"),
        ("evaluate {run} {run}", "{run}"),
        ("evaluate {run} --episodes five", "--episodes cannot be 'five'"),
        ("evaluate {run} --episodes 1.5", "--episodes cannot be '1.5'"),
        ("evaluate {run} --episodes", "--episodes"),
        ("evaluate {run} --episodes 0", "at least 1"),
        ("evaluate {run} --seed -1", "--seed"),
        ("evaluate {run} --plan deep", "'deep'"),
        ("evaluate {run} --plan 99", "from 0 to 12"),
        ("evaluate {run} --rewards rigth", "did you mean 'right'"),
        ("evaluate {run} --task maze-lrge", "did you mean 'maze-large'"),
        ("evaluate {run} --plan 0 --rule graph", "--rule changes nothing without a reward prompt"),
        ("evaluate {run} --plan 0 --data maze-medium", "--data changes nothing without a reward prompt"),
        ("evaluate {run} --plan --rewards", "nothing to evaluate"),
        ("evaluate {tmp}/nowhere", "no such folder"),
        ("evaluate {tmp}", "config.json"),
        ("evaluate {run} --plan 0 --episodes 2 --rows {tmp}/file/rows.jsonl", "cannot write"),
        ("pretrain --data maze-medium", "--out"),
        ("pretrain --out {tmp}/new", "--data"),
        ("pretrain --data maze-medum --out {tmp}/new", "did you mean 'maze-medium'"),
        ("pretrain --data {tmp}/nothing.npz --out {tmp}/new", "nothing.npz"),
        ("pretrain --data {tmp}/file --out {tmp}/new", "file"),
        ("pretrain --data maze-medium --out {tmp}/new --preset lapptop", "did you mean 'laptop'"),
        ("pretrain --data maze-medium --out {tmp}/new --method hlp", "did you mean 'hilp'"),
        ("pretrain --data maze-medium --out {tmp}/new --set hiden=3", "did you mean 'hidden'"),
        ("pretrain --data maze-medium --out {tmp}/new --set batch", "key=value"),
        ("pretrain --data maze-medium --out {tmp}/new --set batch=many", "'batch'"),
        ("pretrain --data maze-medium --out {tmp}/new --set batch=1.5", "'batch'"),
        ("pretrain --data maze-medium --out {tmp}/new --set normalize=perhaps", "'normalize'"),
        ("pretrain --data maze-medium --out {tmp}/new --set schedule=sequentail", "did you mean 'sequential'"),
        ("pretrain --data maze-medium --out {tmp}/new --steps ten", "--steps cannot be 'ten'"),
        ("pretrain --data maze-medium --out {tmp}/new --steps 0", "--steps"),
        ("pretrain --data maze-medium --out {tmp}/new --minutes 0", "--minutes must be a number above 0, not 0"),
        ("pretrain --data maze-medium --out {tmp}/new --seed -4", "--seed"),
        ("pretrain --data maze-medium --out {tmp}/new --seeds 0", "--seeds"),
        ("pretrain --data maze-medium --out {tmp}/new --bank -1", "--bank"),
        ("pretrain --data maze-medium --out {tmp}/new --device-budget nan", "--device-budget"),
        ("pretrain --data maze-medium --out {tmp}/new --format nzp", "did you mean 'npz'"),
        ("pretrain --data maze-medium --out {tmp}/new --checkpoint-every -5", "--checkpoint-every"),
        ("pretrain --data maze-medium --out {tmp}/new --eval-every 0", "--eval-every"),
        ("pretrain --data maze-medium --out {tmp}/new --validation 1.5", "validation"),
        ("pretrain --data maze-medium --out {tmp}/new --eval-task maze-lrge", "did you mean 'maze-large'"),
        ("prompt {run}", "exactly one of"),
        ("prompt {run} --goal 1.5,1.5 --skill random", "exactly one of"),
        ("prompt {run} --goal 1.5", "2 numbers"),
        ("prompt {run} --goal 1.5,1.5,1.5", "2 numbers"),
        ("prompt {run} --goal -1.5,1.5", "not a free position"),
        ("prompt {run} --goal 0.5,0.5", "not a free position"),
        ("prompt {run} --goal here", "numbers separated by commas"),
        ("prompt {run} --goal nan,1.5", "NaN"),
        ("prompt {run} --goal 1.5,1.5 --start 0.5,0.5 --save {tmp}/prompt", "the start"),
        ("prompt {run} --goal 1.5,1.5 --start 1.5", "the start"),
        ("prompt {run} --goal 1.5,1.5 --start x,y", "--start"),
        ("prompt {run} --goal 1.5,1.5 --plan 3.5", "--plan"),
        ("prompt {run} --reward rigth", "did you mean 'right'"),
        ("prompt {run} --skill 1,2", "8 numbers"),
        ("prompt {run} --skill 0,0,0,0,0,0,0,0", "direction"),
        ("prompt {run} --skill sideways", "--skill"),
        ("prompt {run} --load {tmp}/file", "file"),
        ("prompt {run} --load {tmp}/nowhere", "does not exist"),
        ("prompt {run} --skill random --steps 0", "--steps"),
        ("prompt {run} --skill random --steps 2 --save {tmp}/file/prompt", "cannot write"),
        ("prompt {run} --skill random --steps 2 --picture {tmp}/file/way.png", "file"),
        ("prompt {run} --skill random --picture {tmp}/way.jpeg", ".png"),
        ("report {tmp}/nowhere", "no such folder"),
        ("report {run} --out {tmp}/nowhere/page.html", "cannot write"),
        ("diagnose {tmp}/nowhere", "no such folder"),
        ("diagnose {run} --task maze-lrge", "did you mean 'maze-large'"),
        ("map {tmp}/nowhere", "no such folder"),
        ("map {run} --out {tmp}/map.jpeg", ".png"),
        ("map {run} --out {tmp}/map.png --points 0", "--points"),
        ("map {run} --out {tmp}/map.png --seed -1", "--seed"),
        ("map {run} --out {tmp}/map.png --points 90 --flatten tsne", "at least 91 points"),
        ("map {run} --out {tmp}/map.png --flatten umap", "--flatten"),
        ("map {run} --out {tmp}/map.png --goal 0.5,0.5", "not a free position"),
        ("map {run} --out {tmp}/map.png --goal 1.5", "the goal"),
        ("map {run} --out {tmp}/map.png --goal here", "numbers separated by commas"),
        ("map {run} --out {tmp}/map.png --task maze-lrge", "did you mean 'maze-large'"),
        ("map {run} --out {tmp}/map.png --data maze-lrge", "did you mean 'maze-large'"),
        ("map {run} --out {tmp}/file/map.png --flatten pca", "file"),
        ("bench sped", "did you mean 'bench rewards'"),
        ("data inspect {tmp}/nowhere", "nowhere"),
        ("data inspect maze-lrge", "did you mean 'maze-large'"),
        ("data inspect", "DATA"),
        ("data collect --task maze-medium", "--out"),
        ("data collect --task maze-lrge --out {tmp}/new", "did you mean 'maze-large'"),
        ("data collect --task maze-medium --out {tmp}/new --kind expolre", "did you mean 'explore'"),
        ("data collect --task maze-medium --out {tmp}/new --steps 0", "--steps"),
        ("data collect --task maze-medium --out {tmp}/new --seed -1", "--seed"),
        ("data collect --task maze-medium --out {tmp}/full --steps 50", "--overwrite"),
        ("data collect --task maze-medium --out {tmp}/full --steps 50 --overwrite", "not a hilp data set"),
        ("data collect --task maze-medium --out {tmp}/file --steps 50 --overwrite", "not a hilp data set"),
        ("data collect --task maze-medium --out {tmp}/file/new --steps 50", "cannot write"),
        ("quickstart --out {tmp}/full", "already exists"),
        ("quickstart --out {tmp}/full --overwrite", "not the folder of a run"),
        ("quickstart --out {tmp}/file --overwrite", "file"),
        ("quickstart --out {tmp}/new --task maze-lrge", "did you mean 'maze-large'"),
    ],
)
def test_one_line_for_a_mistake(
    words: str, says: str, refused: Callable[..., str], tiny_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    names = {"run": str(tiny_run), "tmp": str(tmp_path)}
    before = tree(tiny_run)
    assert says.format(**names) in refused(*(word.format(**names) for word in words.split()))
    assert tree(tiny_run) == before


def table(rows: int = 60, **changes: Any) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    observations, actions = rng.normal(size=(rows, 3)), rng.uniform(-1, 1, (rows, 2))
    return {"observations": observations, "actions": actions, "episode_lengths": np.full(rows // 20, 20), **changes}


def holed(name: str, value: float, *rows: int) -> dict[str, np.ndarray]:
    arrays = table()
    arrays[name][list(rows)] = value
    return arrays


def ragged() -> np.ndarray:
    rows = np.empty(60, object)
    rows[:] = [[0.0] * (2 + i % 2) for i in range(60)]
    return rows


BAD_DATA: dict[str, tuple[Callable[[], dict[str, np.ndarray]], str]] = {
    "NaN in observations": (lambda: holed("observations", np.nan, 7, 31), r"observations.*\b7, 31\b"),
    "infinity in actions": (lambda: holed("actions", np.inf, 12), r"actions.*\b12\b"),
    "more actions than observations": (lambda: table(actions=np.zeros((75, 2))), "60.*75|75.*60"),
    "lengths that do not add up": (lambda: table(episode_lengths=np.full(4, 20)), "60"),
    "an empty episode": (lambda: table(episode_lengths=np.array([30, 0, 30])), "episode"),
    "episodes of one row": (lambda: table(episode_lengths=np.array([1, 58, 1])), r"\b0\b.*\b2\b"),
    "nothing says where episodes end": (
        lambda: {key: column for key, column in table().items() if key != "episode_lengths"},
        "episode",
    ),
    "no actions": (lambda: {key: column for key, column in table().items() if key != "actions"}, "actions"),
    "ragged observations": (lambda: table(observations=ragged()), "observations|[Oo]bject"),
    "text": (lambda: table(observations=np.full((60, 3), "x")), "observations"),
    "flat observations": (lambda: table(observations=np.zeros(60)), "observations"),
    "wild actions": (lambda: table(actions=np.full((60, 2), 40.0)), "--rescale-actions"),
}


@pytest.mark.parametrize("kind", BAD_DATA)
def test_one_line_for_bad_data(kind: str, run: Run, refused: Callable[..., str], tmp_path: Path) -> None:
    make, says = BAD_DATA[kind]
    np.savez(tmp_path / "own.npz", **make())
    line = refused("pretrain", "--out", tmp_path / "new", "--data", tmp_path / "own.npz")
    assert "own.npz" in line and re.search(says, line), line
    code, out, err = run("data", "inspect", tmp_path / "own.npz", "--json")
    if code == 1:  # it can be read, so all that is wrong is told at once
        told = json.loads(out)
        assert err == "" and not told["trainable"] and any(re.search(says, error) for error in told["errors"])
    else:
        assert code == 2 and err == line


@pytest.mark.parametrize(
    "given",
    [
        "--set nosuch=2 --set lr=1",
        "--set lr=1 --set nosuch=2",
        "--set=nosuch=2 --set lr=1",
        "--set nosuch=2 lr=1 --steps 3",
        "--option nosuch=2 --option episodes=2",
        "--option episodes=2 --option nosuch=2",
    ],
)
def test_flags_of_several_values_may_be_repeated(given: str, refused: Callable[..., str], tmp_path: Path) -> None:
    """Every value is read, wherever it stands: the wrong one is found."""
    np.savez(tmp_path / "own.npz", **table())
    assert "'nosuch'" in refused("pretrain", "--data", tmp_path / "own.npz", "--out", tmp_path / "new", *given.split())


def test_one_line_for_a_torn_archive(refused: Callable[..., str], tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", **table())
    content = (tmp_path / "own.npz").read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"not an archive"):
        (tmp_path / "own.npz").write_bytes(damaged)
        assert "own.npz" in refused("pretrain", "--out", tmp_path / "new", "--data", tmp_path / "own.npz")


def test_an_evaluation_task_of_other_sizes_is_told_before_training(refused: Callable[..., str], tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", **table())
    words = ["--data", tmp_path / "own.npz", "--out", tmp_path / "new", "--eval-task", "maze-medium", *SMALL]
    assert "3 observation" in refused("pretrain", *words)


def test_a_run_is_not_overwritten(refused: Callable[..., str], tiny_data_folder: Path, run_copy: Path) -> None:
    words = ["pretrain", "--data", tiny_data_folder, "--steps", 310, *SMALL]
    assert "--resume" in refused(*words, "--out", run_copy)
    (run_copy.parent / "full").mkdir()
    (run_copy.parent / "full" / "thesis.txt").write_text("mine")
    (run_copy.parent / "file").write_text("mine")
    for out in ("full", "file"):
        assert "not the folder of a run" in refused(*words, "--out", run_copy.parent / out)
    assert "cannot write" in refused(*words, "--out", run_copy.parent / "file" / "run")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["--seed", "1"], "seed is 0, not 1"),
        (["--set", "lr=0.123"], "not 0.123"),
        (["--validation", "0.1"], "validation"),
        (["--data", "maze-medium-stitch"], "data"),
    ],
)
def test_a_run_is_resumed_only_as_it_was(
    changes: list[str], says: str, refused: Callable[..., str], tiny_data_folder: Path, run_copy: Path
) -> None:
    words = ["pretrain", "--data", tiny_data_folder, "--out", run_copy, "--resume", "--steps", 310, *SMALL, *changes]
    line = refused(*words)
    assert "cannot resume" in line and says in line


def test_tampered_weights(refused: Callable[..., str], run_copy: Path) -> None:
    weights = run_copy / "policy" / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    for words in (["evaluate", run_copy], ["prompt", run_copy, "--skill", "random"], ["report", run_copy]):
        assert "weights.safetensors" in refused(*words)
    weights.write_bytes(content[:-5])
    assert "truncated" in refused("evaluate", run_copy)


def test_a_prompt_for_another_policy(
    refused: Callable[..., str], other: hilp.FoundationPolicy, tiny_run: Path, tmp_path: Path
) -> None:
    other.skill(seed=0).save(tmp_path / "prompt")
    assert f"was made for policy {other.fingerprint[:8]}" in refused("prompt", tiny_run, "--load", tmp_path / "prompt")


MAPS = {
    "enclosed": ("#######\n#..#.##\n#..####\n#######\n", "row 2, column 5"),
    "open": ("#######\n#......\n#######\n", "row 2, column 7"),
    "ragged": ("#######\n#....#\n#######\n", "row 2"),
    "strange": ("#####\n#.X.#\n#####\n", "'X'"),
    "empty": ("\n\n", "empty"),
    "full": ("###\n###\n", "no free cell"),
}


@pytest.mark.parametrize("kind", MAPS)
def test_a_map_with_a_mistake(kind: str, refused: Callable[..., str], tiny_run: Path, tmp_path: Path) -> None:
    text, says = MAPS[kind]
    (tmp_path / "map.txt").write_text(text)
    for words in (["data", "collect", "--out", tmp_path / "new"], ["evaluate", tiny_run]):
        line = refused(*words, "--task", tmp_path / "map.txt")
        assert says in line and "map.txt" in line


def test_a_map_of_ones_own(run: Run, run_copy: Path, tmp_path: Path) -> None:
    (tmp_path / "hall.txt").write_text("#####\n#...#\n#...#\n#####\n")
    code, out, err = run("evaluate", run_copy, "--task", tmp_path / "hall.txt", "--plan", 0, "--episodes", 3, "--json")
    assert code == 0 and err == "" and json.loads(out)["task"] == "hall"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(refused: Callable[..., str], tiny_run: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    for words in (
        ["pretrain", "--data", "maze-medium", "--out", locked / "run", *SMALL],
        ["data", "collect", "--task", "maze-medium", "--steps", 50, "--out", locked / "data"],
        ["prompt", tiny_run, "--skill", "random", "--steps", 2, "--save", locked / "prompt"],
        ["report", tiny_run, "--out", locked / "page.html"],
    ):
        assert "ermission denied" in refused(*words)


def test_a_full_disk_is_one_line(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tiny_run: Path) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device", "page.html")

    monkeypatch.setattr("hilp.report.page.write", full)
    assert "No space left on device" in refused("report", tiny_run)


def test_a_diverged_run_is_no_mistake_of_the_user(run: Run, tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverges(*args: object) -> None:
        raise TrainingDiverged("phi_loss became NaN or infinite at step 7")

    monkeypatch.setattr("hilp.report.page.write", diverges)
    assert run("report", tiny_run) == (1, "", "hilp: stopped: phi_loss became NaN or infinite at step 7\n")


def test_a_closed_pipe_is_no_traceback(tiny_run: Path) -> None:
    done = subprocess.run(f"{HILP} --help | true", shell=True, capture_output=True, text=True)
    assert "Traceback" not in done.stderr


def test_several_seeds_are_trained_and_evaluated_together(run: Run, tiny_data_folder: Path, tmp_path: Path) -> None:
    small = ["--method", "gc-bc", "--set", "actor_hidden=8", "batch=16"]  # the quickest to compile
    out = tmp_path / "run"
    words = ["pretrain", "--data", tiny_data_folder, "--steps", 3, "--seeds", 3, "--out", out, *small]
    code, said, _ = run(*words)
    assert code == 0 and said == f"trained 3 policies in {out}: try `hilp evaluate {out}`\n"
    code, said, _ = run("evaluate", out, "--plan", 0, "--episodes", 5, "--json")
    assert code == 0 and [json.loads(line)["train_seed"] for line in said.splitlines()] == [0, 1, 2]
    code, said, _ = run("evaluate", out, "--plan", 0, "--episodes", 5)
    assert code == 0 and "IQM" in said
    code, _, err = run("prompt", out, "--skill", "random")
    assert code == 2 and "holds 3 seeds" in err


# ---- errors in the user's own code ---------------------------------------------------------------------------------

BROKEN = """
import gymnasium, numpy
class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)
    def reset(self, *, seed=None, options=None):
        return numpy.zeros(2, numpy.float32), {}
    def step(self, action):
        return self.nothing, 0.0, False, False, {}
def act(observation):
    return 1 / 0
def make():
    raise KeyError("x")
"""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--task {file}:Env", "{file}:9 raised AttributeError: 'Env' object has no attribute 'nothing'"),
        ("--task maze-medium --kind {file}:act", "{file}:11 raised ZeroDivisionError: division by zero"),
        ("--task {file}:make", "{file}:13 raised KeyError: 'x'"),
    ],
)
def test_an_error_in_the_users_code_is_one_line_with_its_place(words: str, says: str, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(BROKEN)
    code, _, said = run("data", "collect", *words.format(file=file).split(), "--out", tmp_path / "out", "--steps", 20)
    assert code == 2 and said.count("\n") == 1 and says.format(file=file) in said and "--traceback" in said


def test_traceback_shows_where_an_error_came_from(run: Run, tmp_path: Path) -> None:
    code, _, err = run("report", tmp_path / "none", "--traceback")
    assert code == 2 and err.startswith("Traceback") and err.splitlines()[-1].startswith("hilp: error: ")


@pytest.mark.parametrize("line", ["raise GeneratorExit", "raise SystemExit(3)", "import nothing_of_the_kind"])
def test_a_file_that_cannot_be_run_is_one_line(line: str, refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(line)
    words = ["--task", tmp_path / "own.py:make", "--out", tmp_path / "out"]
    assert "own.py cannot be run" in refused("data", "collect", *words)
