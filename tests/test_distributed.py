"""Several devices: the losses of one but for rounding; killed and resumed the same bits; two processes that are as one.

The devices are virtual ones of the CPU, which a process has from its start: all of it runs in processes of its own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import hilp
from hilp import HilpError
from hilp.training import distributed
from test_identity import CASES, HILP

DEVICES = 4
SEQUENTIAL = {**HILP, "schedule": "sequential", "phi_steps": 20}
STREAMED = {"seeds": 2, "device_budget": 0, "validation": 0.2}
# Compiling is what takes long: the suite has the smallest program, `-m slow` those of all methods.
KILLED = {"gc-bc": (*CASES["gc-bc"][:2], STREAMED), "frozen latents": ("hilp", SEQUENTIAL, STREAMED)}
# Its features are nearly dependent in so small a batch: their pseudo-inverse carries rounding farther (6e-5 was seen).
ROUNDING = {"sf-idm": 3e-4}
PROGRAM = """
import json, os, signal, sys
sys.path.insert(0, {tests!r})
import jax
jax.config.update("jax_disable_most_optimizations", True)
import hilp
from hilp.learning import methods
from hilp.training import distributed
from test_identity import UPDATES, walks

def train(case, devices, steps=UPDATES, kill_at=None, **more):
    method, values, arguments = case
    values = {{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}}
    rows = []
    def watch(row):
        rows.append(row)
        if row["step"] == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    config = methods.configure(methods.config(method), values)
    made = hilp.pretrain(config, walks(), steps=steps, seed=3, bank=10, quiet=True, log_every=1, on_metrics=watch,
                         devices=devices, **{{**arguments, **more}})
    return rows, [policy.fingerprint for policy in (made if isinstance(made, list) else [made])]
"""


def start(code: str, devices: int = DEVICES) -> subprocess.Popen[str]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    tests = str(Path(__file__).parent)
    words = [sys.executable, "-c", PROGRAM.format(tests=tests) + code]
    return subprocess.Popen(
        words, env={**os.environ, "XLA_FLAGS": flags}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(code: str, ends: int = 0) -> Any:
    """What the code prints as JSON, last."""
    process = start(code)
    out, err = process.communicate(timeout=1200)
    assert process.returncode == ends, err[-3000:]
    return json.loads(out.splitlines()[-1]) if ends == 0 else None


def free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def require_equal_losses(one: dict[str, float], several: dict[str, float], rounding: float = 1e-5) -> None:
    assert one.keys() == several.keys() and len(one) > 2
    for name in one.keys() - {"steps_per_second"}:
        # Of a metric near zero, such as a difference of means, only what is left of larger numbers can be compared.
        np.testing.assert_allclose(several[name], one[name], rtol=rounding, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", ["gc-bc", pytest.param("frozen latents", marks=pytest.mark.slow)])
def test_four_devices_learn_as_one_and_go_on_after_a_kill(name: str, tmp_path: Path) -> None:
    out, case = str(tmp_path / "run"), json.loads(json.dumps(KILLED[name]))
    run(f"train({case}, {DEVICES}, kill_at=35, out={out!r}, checkpoint_every=20)", ends=-signal.SIGKILL)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["devices"] == DEVICES
    one, four, resumed, said = run(f"""
one, four = train({case}, 1), train({case}, {DEVICES})
resumed = train({case}, {DEVICES}, out={out!r}, resume=True)
try:
    train({case}, 1, out={out!r}, resume=True)
except hilp.HilpError as error:
    said = str(error)
print(json.dumps([one, four, resumed, said]))
""")
    require_equal_losses(one[0][-1], four[0][-1])
    assert resumed[0][0]["step"] == 21, "it went on from the checkpoint"
    without = [{k: v for k, v in row.items() if k != "steps_per_second"} for row in resumed[0]]
    expected = [{k: v for k, v in row.items() if k != "steps_per_second"} for row in four[0][20:]]
    assert without == expected and resumed[1] == four[1], "to the bit"
    assert "batches are shared out among 4 devices, not 1" in said
    assert len({*one[1], *four[1]}) == 4, "of two seeds each"
    assert hilp.FoundationPolicy.load(tmp_path / "run" / "seed-4").fingerprint == four[1][1]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_method_learns_the_same_on_four_devices(case: str) -> None:
    known = json.loads(json.dumps(CASES[case]))
    one, four = run(f"print(json.dumps([train({known}, 1)[0][-1], train({known}, {DEVICES})[0][-1]]))")
    require_equal_losses(one, four, ROUNDING.get(case, 1e-5))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gc-bc", "hilp sequential", "hilp sequential streamed"])
def test_two_processes_train_and_resume_as_one(name: str, tmp_path: Path) -> None:
    case = json.loads(json.dumps(CASES[name]))
    expected = run(f"print(json.dumps(train({case}, {DEVICES})))")

    def together(name: str, **more: Any) -> list[Any]:
        address = free_address()
        words = {"checkpoint_every": 20, "out": str(tmp_path / name), **more}
        both = [
            start(f"distributed.join({address!r}, 2, {n})\nprint(json.dumps(train({case}, {DEVICES}, **{words})))", 2)
            for n in range(2)
        ]
        said = [process.communicate(timeout=600) for process in both]
        if "kill_at" in more:
            assert both[0].returncode == -signal.SIGKILL and both[1].returncode == 2, "nobody goes on alone"
            assert "hilp: error: another process of this training has ended" in said[1][1]
            assert "stack trace" not in said[1][1]
            return []
        assert [process.returncode for process in both] == [0, 0], said
        return [json.loads(out.splitlines()[-1]) for out, _ in said]

    first, second = together("calm")
    require_equal_losses(expected[0][-1], first[0][-1])
    assert second[0] == [] and second[1] == first[1], "both have the policy, one tells of it"
    together("struck", kill_at=35)
    resumed, _ = together("struck", resume=True)
    assert resumed[0][0]["step"] == 21 and resumed[1] == first[1], "to the bit"


@pytest.mark.slow
def test_two_processes_that_disagree_end_both(tmp_path: Path) -> None:
    """Neither waits for the other: where one cannot begin, and where they have different things in mind."""
    case = json.loads(json.dumps(CASES["gc-bc"]))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "precious.txt").write_text("mine")
    for out, steps, told in (
        ("taken", (20, 20), ("not the folder of a run", "process 0 cannot begin")),
        ("new", (20, 30), ("the same data, config, seeds, devices and steps",) * 2),
    ):
        address = free_address()
        given = f"{case}, {DEVICES}, out={str(tmp_path / out)!r}"
        both = [
            start(f"distributed.join({address!r}, 2, {n})\ntrain({given}, steps={own})", 2)
            for n, own in enumerate(steps)
        ]
        try:
            said = [process.communicate(timeout=300)[1] for process in both]
        finally:
            for process in both:
                process.kill()
        assert all(process.returncode != 0 for process in both)
        assert all(words in text for words, text in zip(told, said, strict=True)), said


@pytest.mark.slow
def test_two_processes_that_write_nothing_watch_held_out_episodes_together() -> None:
    """Only the first one tells of the rows, but both compute them: the second one would wait for ever."""
    case = json.loads(json.dumps(CASES["gc-bc"]))
    address = free_address()
    both = [
        start(f"distributed.join({address!r}, 2, {n})\nprint(json.dumps(train({case}, {DEVICES}, validation=0.2)))", 2)
        for n in range(2)
    ]
    try:
        said = [process.communicate(timeout=600) for process in both]
    finally:
        for process in both:
            process.kill()
    assert [process.returncode for process in both] == [0, 0], said
    first, second = (json.loads(out.splitlines()[-1]) for out, _ in said)
    assert "validation_actor_loss" in first[0][-1] and second[0] == []
    assert first[1] == second[1]


# ---- mistakes --------------------------------------------------------------------------------------------------------


def test_more_devices_than_there_are(tiny_data_folder: Path, tmp_path: Path, refused: Any) -> None:
    out = tmp_path / "run"
    said = refused("pretrain", "--data", tiny_data_folder, "--out", out, "--devices", 64)
    assert "JAX sees" in said and "xla_force_host_platform_device_count=64" in said
    assert "at least 1" in refused("pretrain", "--data", tiny_data_folder, "--out", out, "--devices", 0)
    assert "name their --coordinator" in refused("pretrain", "--data", tiny_data_folder, "--out", out, "--process", 1)
    lacks = ["--coordinator", "node1", "--processes", 2, "--process", 0]
    assert "host:port" in refused("pretrain", "--data", tiny_data_folder, "--out", out, *lacks)
    assert "host:port" in refused(
        "pretrain", "--data", tiny_data_folder, "--out", out, "--coordinator", ":1", *lacks[2:]
    )
    said = refused("pretrain", "--data", tiny_data_folder, "--out", out, "--coordinator", "auto", *lacks[2:])
    assert "leave them out" in said
    said = refused("pretrain", "--data", tiny_data_folder, "--out", out, "--coordinator", "localhost:1", "--process", 1)
    assert "needs --processes" in said


def test_a_batch_that_cannot_be_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    monkeypatch.setattr(jax, "device_count", lambda: 3)
    with pytest.raises(HilpError, match="a batch of 32 rows cannot be shared out evenly among 3 devices"):
        distributed.mesh_of(3, 32)
    assert distributed.mesh_of(1, 32) is None


@pytest.mark.parametrize(
    "told",
    [
        "FAILED_PRECONDITION: Gloo all-reduce failed: [external/gloo/pair.cc:547] Connection closed by peer",
        "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats)",
        "DEADLINE_EXCEEDED: Barrier timed out",
        "INTERNAL: NCCL operation failed: remote process exited or there was a network error",
    ],
)
def test_an_error_of_a_lost_process_ends_this_one(told: str, monkeypatch: Any, capsys: Any) -> None:
    ended: list[int] = []
    monkeypatch.setattr(distributed.jax, "process_count", lambda: 2)
    monkeypatch.setattr(distributed.os, "_exit", ended.append)
    with distributed.while_all_live():
        raise jax.errors.JaxRuntimeError(told)
    assert ended == [2] and "another process of this training has ended" in capsys.readouterr().err


@pytest.mark.parametrize("told", ["RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes", "INTERNAL: a bug"])
def test_an_error_of_this_process_is_raised(told: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(distributed.jax, "process_count", lambda: 2)
    monkeypatch.setattr(distributed.os, "_exit", lambda code: pytest.fail("ended"))
    with pytest.raises(jax.errors.JaxRuntimeError, match=told.split(":")[0]), distributed.while_all_live():
        raise jax.errors.JaxRuntimeError(told)
