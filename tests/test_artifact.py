"""The folder of a policy: replaced in one step, read without belief, the same file for the same policy."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import runs, storage
from hilp.policy import artifact
from hilp.prompts.bank import Bank

Change = Callable[..., hilp.FoundationPolicy]
KEPT = Path(__file__).parent / "kept" / "policy"
FILES = ["bank.safetensors", "config.json", "weights.safetensors"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refusal(folder: Path) -> str:
    with pytest.raises(hilp.HilpError) as caught:
        hilp.FoundationPolicy.load(folder)
    line = str(caught.value)
    assert "\n" not in line and len(line) < 600
    return line


@pytest.fixture
def kept() -> hilp.FoundationPolicy:
    """A very small policy."""
    return hilp.FoundationPolicy.load(KEPT / "folder")


# ---- a kept policy ---------------------------------------------------------------------------------------------------


def test_a_kept_policy_acts_as_it_did(kept: hilp.FoundationPolicy) -> None:
    expected = json.loads((KEPT / "expected.json").read_text())
    x = np.float32(expected["observations"])
    assert kept.fingerprint == expected["fingerprint"], "prompts and rows carry it"
    np.testing.assert_allclose(kept.encode(x), expected["latents"], rtol=1e-4, atol=1e-5)
    for name in ("goal", "skill"):
        prompt = kept.load_prompt(KEPT / f"{name}.safetensors")
        np.testing.assert_allclose(kept.act(x, prompt), expected[name], rtol=1e-4, atol=1e-5)


def test_a_kept_policy_keeps_its_prompts_when_saved_again(kept: hilp.FoundationPolicy, tmp_path: Path) -> None:
    again = hilp.FoundationPolicy.load(kept.save(tmp_path / "copy"))
    assert again.fingerprint == kept.fingerprint
    assert again.load_prompt(KEPT / "goal.safetensors").plan == 1


# ---- the fingerprint -------------------------------------------------------------------------------------------------


def test_the_fingerprint_covers_the_bank(tiny: hilp.FoundationPolicy, change: Change, tmp_path: Path) -> None:
    seen = {tiny.fingerprint}
    for name in ("observations", "actions", "next_observations"):
        column = np.array(getattr(tiny.bank, name))
        column[-1, -1] = np.nextafter(column[-1, -1], np.float32(9))
        seen.add(change(tiny, bank=replace(tiny.bank, **{name: column})).fingerprint)
    physics = {"physics": np.zeros((len(tiny.bank), 1), np.float32)}
    seen.add(change(tiny, bank=replace(tiny.bank, next_extras=physics)).fingerprint)
    assert len(seen) == 5, "the last bit of any column changes it"
    other = change(tiny, bank=tiny.bank.subsample(100, 0))
    prompt = other.goal([1.5, 1.5], plan=1)
    with pytest.raises(hilp.HilpError, match="made for policy"):
        tiny.act([1.5, 1.5], prompt)
    tiny.save(tmp_path / "one")
    other.save(tmp_path / "two")
    shutil.copy(tmp_path / "two" / "bank.safetensors", tmp_path / "one")
    assert "bank.safetensors or graph.safetensors was changed" in refusal(tmp_path / "one")


def test_the_same_policy_is_the_same_bytes(kept: hilp.FoundationPolicy, tmp_path: Path) -> None:
    program = f"""
import sys, hilp
hilp.FoundationPolicy.load({str(KEPT / "folder")!r}).save(sys.argv[1])
"""
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "there")], check=True, env=environment)
    kept.save(tmp_path / "here")
    for name in FILES:
        hashes = {hashlib.sha256((tmp_path / where / name).read_bytes()).hexdigest() for where in ("here", "there")}
        assert len(hashes) == 1, name


def test_settings_are_plain_values(tiny: hilp.FoundationPolicy) -> None:
    assert json.loads(json.dumps(tiny.settings)) == tiny.settings
    assert tiny.settings["hidden"] == [32, 32] and tiny.settings["actor_ema"] == 1.0


# ---- saving over another ---------------------------------------------------------------------------------------------


def test_what_else_lies_in_the_folder_stays(kept: hilp.FoundationPolicy, tmp_path: Path) -> None:
    folder = kept.save(tmp_path / "policy")
    (folder / "rows.jsonl").write_text("{}\n")
    (folder / "notes" / "deep").mkdir(parents=True)
    (folder / "notes" / "deep" / "x").write_text("mine")
    (folder / "link").symlink_to("/nowhere")
    with open(folder / "rows.jsonl", "a") as rows:  # somebody has it open
        kept.save(folder)
        rows.write("{}\n")
    assert names(folder) == sorted([*FILES, "rows.jsonl", "notes", "link"]) and names(tmp_path) == ["policy"]
    assert (folder / "rows.jsonl").read_text() == "{}\n{}\n"
    assert (folder / "notes" / "deep" / "x").read_text() == "mine"
    assert os.readlink(folder / "link") == "/nowhere"


def test_the_folder_that_the_process_works_in(
    kept: hilp.FoundationPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    kept.save(".")
    assert hilp.FoundationPolicy.load(".").fingerprint == kept.fingerprint
    with pytest.raises(hilp.HilpError, match="from inside it"):
        kept.save(".")
    assert names(Path.cwd()) == FILES, "it is still the same folder"
    (tmp_path / "here" / "deep").mkdir()
    kept.save("deep/../../beside")
    assert names(tmp_path) == ["beside", "here"]


@pytest.mark.parametrize("file", FILES)
def test_a_disk_that_fills_leaves_the_old_policy(
    kept: hilp.FoundationPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    folder = kept.save(tmp_path / "policy")
    before = {name: (folder / name).read_bytes() for name in FILES}
    write = storage.atomic.write_bytes

    def full(path: Path, pieces: Any) -> None:
        if path.name == file:
            raise hilp.HilpError(f"cannot write {path}: {os.strerror(errno.ENOSPC)}")
        write(path, pieces)

    for module in (storage.atomic, storage.arrays):
        monkeypatch.setattr(module, "write_bytes", full)
    with pytest.raises(hilp.HilpError, match="No space"):
        kept.save(folder)
    assert {name: (folder / name).read_bytes() for name in FILES} == before
    assert names(tmp_path) == ["policy"], "nothing half-written is left"


SAVE_FOR_EVER = """
import sys, hilp
from dataclasses import replace
policies = [hilp.FoundationPolicy.load(sys.argv[1])]
mean = policies[0].preparation.mean
parts = {name: getattr(policies[0], name) for name in ("config", "spec", "core", "bank", "provenance")}
policies.append(hilp.FoundationPolicy(**parts, preparation=replace(policies[0].preparation, mean=mean + 1)))
print([policy.fingerprint for policy in policies], flush=True)
while True:
    for policy in policies:
        policy.save(sys.argv[2])
"""


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_a_kill_at_any_instant_leaves_a_policy(kept: hilp.FoundationPolicy, tmp_path: Path, kills: int) -> None:
    folder = kept.save(tmp_path / "policy")
    for number in range(kills):
        command = [sys.executable, "-c", SAVE_FOR_EVER, str(KEPT / "folder"), str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        known = process.stdout.readline()
        time.sleep(0.02 + 0.013 * number)
        process.kill()
        process.communicate()
        found = hilp.FoundationPolicy.load(folder)
        assert found.fingerprint in known
    kept.save(folder)
    assert names(tmp_path) == ["policy"], "leftovers of the dead are gone"


def test_a_policy_renamed_aside_by_the_dead_is_found(kept: hilp.FoundationPolicy, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    folder = kept.save(tmp_path / "run" / "policy")
    began, machine = storage.temporary_beside(folder).name.split("-")[2:4]
    folder.rename(folder.with_name(f".policy.replaced-999999999-{began}-{machine}-00"))
    assert hilp.FoundationPolicy.load(tmp_path / "run").fingerprint == kept.fingerprint
    assert names(tmp_path / "run") == ["policy"]


def test_half_a_folder(kept: hilp.FoundationPolicy, tmp_path: Path) -> None:
    whole = kept.save(tmp_path / "whole")
    for number in range(2 ** len(FILES) - 1):
        part = tmp_path / f"part-{number}"
        part.mkdir()
        for bit, name in enumerate(FILES):
            if number >> bit & 1:
                shutil.copy(whole / name, part)
        assert str(part) in refusal(part)
    for name in FILES:
        part = shutil.copytree(whole, tmp_path / f"folder-{name}")
        (part / name).unlink()
        (part / name).mkdir()
        refusal(part)


def test_a_path_that_is_not_utf8(kept: hilp.FoundationPolicy, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    kept.save(folder / "policy")
    policy = hilp.FoundationPolicy.load(folder)
    assert policy.fingerprint == kept.fingerprint
    prompt = policy.goal([1.5, 1.5])
    prompt.save(folder / os.fsdecode(b"\xff"))
    np.testing.assert_array_equal(policy.load_prompt(folder / os.fsdecode(b"\xff")).goal, prompt.goal)
    refusal(folder / "nowhere").encode(errors="backslashreplace")
    for wrong in ("a\0b", tmp_path / "x" / "a\0b"):
        refusal(Path(wrong))
        with pytest.raises(hilp.HilpError, match="not a path"):
            kept.save(wrong)


# ---- folders of strangers --------------------------------------------------------------------------------------------


def forged(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> Path:
    """A folder whose config was changed by somebody who also knows how fingerprints are made."""
    shutil.copytree(KEPT / "folder", folder)
    config = json.loads((folder / "config.json").read_text())
    edit(config)
    weights, columns = (storage.read_arrays(folder / name)[0] for name in ("weights.safetensors", "bank.safetensors"))
    identity = {key: config[key] for key in artifact.IDENTITY}
    config["fingerprint"] = artifact.fingerprint(identity, weights, columns)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


FORGERIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a size beyond all numbers": lambda c: c["config"].update(dim=1e30),
    "infinity": lambda c: c["config"].update(dim=float("inf")),
    "layers of terabytes": lambda c: c["config"].update(hidden=[10**8, 10**8]),
    "layers beyond all numbers": lambda c: c["config"].update(actor_hidden=[10**30]),
    "a million layers": lambda c: c["config"].update(hidden=[1] * 1_000_000),
    "a latent of terabytes": lambda c: c["config"].update(dim=10**12),
    "an observation of terabytes": lambda c: c["spec"].update(observation_dim=10**12),
    "an observation of nothing": lambda c: c["spec"].update(observation_dim=0),
    "an action of terabytes": lambda c: c["spec"].update(action_dim=10**12),
    "a size of text": lambda c: c["spec"].update(observation_dim="2"),
    "a size of true": lambda c: c["spec"].update(action_dim=True),
    "a spec that is none": lambda c: c.update(spec=[]),
    "an unknown spec": lambda c: c["spec"].update(colour=3),
    "parts of terabytes": lambda c: c["spec"].update(parts=[["camera", [10**8, 10**8], "uint8"]]),
    "parts that do not fit": lambda c: c["spec"].update(parts=[["camera", [2, 1], "uint8"]]),
    "parts of an odd type": lambda c: c["spec"].update(parts=[["camera", [2], "object"]]),
    "parts that are none": lambda c: c["spec"].update(parts=3),
    "a mean of another size": lambda c: c["preparation"].update(mean=[0.0]),
    "a mean that is none": lambda c: c["preparation"].update(mean=[0.0, float("nan")]),
    "a mean by name": lambda c: c["preparation"].update(mean={"camera": [0.0, 0.0]}),
    "no mean": lambda c: c["preparation"].pop("mean"),
    "a preparation that is none": lambda c: c.update(preparation=3),
    "parts of an observation that are none": lambda c: c.update(observation_parts=[["x", None]]),
    "a config that is none": lambda c: c.update(config=None),
    "a deep value": lambda c: c["config"].update(dim=json.loads("[" * 500 + "]" * 500)),
    "steps of text": lambda c: c["origin"].update(steps="many"),
    "steps of a fraction": lambda c: c["origin"].update(steps=1.5),
    "a task that is a list": lambda c: c["origin"].update(task=["maze-medium"]),
    "a data set that is an object": lambda c: c["origin"].update(data={}),
    "a first observation of text": lambda c: c["origin"].update(first_observation=["a"]),
    "versions that are none": lambda c: c["origin"].update(versions=["1.0"]),
    "another method": lambda c: c.update(method="fb"),
    "version 2 with the bank of another": lambda c: c.update(version=2) or c["spec"].update(action_dim=1),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_a_forged_config_is_refused_before_it_asks_for_memory(tmp_path: Path, what: str) -> None:
    refusal(forged(tmp_path / "policy", FORGERIES[what]))


def test_deep_json(tmp_path: Path) -> None:
    shutil.copytree(KEPT / "folder", tmp_path / "policy")
    (tmp_path / "policy" / "config.json").write_text('{"format":' * 100_000 + "1" + "}" * 100_000)
    assert "nested too deep" in refusal(tmp_path / "policy")


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "F8_E5M2", "C64", "??"])
@pytest.mark.parametrize("name", ["weights.safetensors", "bank.safetensors"])
def test_numbers_of_a_type_that_numpy_has_not(tmp_path: Path, name: str, dtype: str) -> None:
    shutil.copytree(KEPT / "folder", tmp_path / "policy")
    path = tmp_path / "policy" / name
    path.write_bytes(path.read_bytes().replace(b'"F32"', json.dumps(dtype).encode().ljust(5)[:5], 1))
    assert name in refusal(tmp_path / "policy")


def test_weights_of_another_type_than_the_network(tmp_path: Path) -> None:
    shutil.copytree(KEPT / "folder", tmp_path / "policy")
    config = json.loads((tmp_path / "policy" / "config.json").read_text())
    names = [artifact.WEIGHTS, artifact.BANK, *(name for name, key in artifact.OPTIONAL.items() if config.get(key))]
    weights, *kept = (storage.read_arrays(tmp_path / "policy" / name)[0] for name in names)
    doubled = {key: value.astype(np.float64) for key, value in weights.items()}
    storage.write_arrays(tmp_path / "policy" / artifact.WEIGHTS, doubled)
    config["fingerprint"] = artifact.fingerprint({key: config[key] for key in artifact.IDENTITY}, doubled, *kept)
    (tmp_path / "policy" / "config.json").write_text(json.dumps(config))
    assert "does not fit its config" in refusal(tmp_path / "policy")


# ---- the folder of a run ---------------------------------------------------------------------------------------------


def test_folders_that_are_called_like_seeds(tmp_path: Path) -> None:
    for name in ("seed-10", "seed-2", "seed-old", "seed-", "seed-1.5", "seed-3-copy"):
        (tmp_path / name).mkdir()
    (tmp_path / "seed-4").write_text("a file")
    assert [folder.name for folder in runs.seed_folders(tmp_path)] == ["seed-2", "seed-10"]
    assert "holds 2 seeds" in refusal(tmp_path)


def test_the_bank_keeps_bytes_and_names(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    camera = rng.integers(0, 256, (5, 3, 3), np.uint8)
    bank = Bank({"camera": camera, "pose": np.zeros((5, 2), np.float32)}, np.zeros((5, 1), np.float32),
                {"camera": camera[::-1], "pose": np.ones((5, 2), np.float32)})  # fmt: skip
    assert sorted(bank.columns()) == sorted(
        ["observations/camera", "observations/pose", "actions", "next_observations/camera", "next_observations/pose"]
    )
    assert len(bank) == 5 and bank.columns()["observations/camera"].dtype == np.uint8
    assert bank.subsample(2, 0).next_observations["camera"].shape == (2, 3, 3)
