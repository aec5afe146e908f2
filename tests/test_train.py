"""The training loop: killed and resumed, torn and corrupted, diverging, watched, refused."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hilp
from hilp import storage
from hilp.training import loop, program
from hilp.training.options import TrainOptions
from hilp.training.run import Run, bucket

CONFIG = hilp.HILP(dim=4, hidden=(16, 16), actor_hidden=(16, 16), batch=32)


def walks(rows: int = 600, seed: int = 0) -> hilp.Dataset:
    rng = np.random.default_rng(seed)
    actions = rng.uniform(-1, 1, size=(rows, 2)).astype(np.float32)
    observations = np.cumsum(actions, axis=0).astype(np.float32) / 10
    return hilp.Dataset(observations, actions, np.full(rows // 30, 30), name=f"walks-{seed}")


# Trains slowly enough to be killed: a chunk of one update at a time, a checkpoint every few.
KILLED = """
import sys
import hilp
from hilp.training import loop
sys.path.insert(0, sys.argv[1])
from test_train import CONFIG, walks
loop.CHUNK_SECONDS = 1e-9
hilp.pretrain(CONFIG, walks(), steps=400, out=sys.argv[2], resume=True, checkpoint_every=7, log_every=10, quiet=True)
"""


def test_sigkill_at_random_moments_changes_nothing(tmp_path: Path) -> None:
    whole = hilp.pretrain(CONFIG, walks(), steps=400, out=tmp_path / "whole", log_every=10, quiet=True)
    out = tmp_path / "killed"
    rng = np.random.default_rng(int(time.time()))  # a new moment in every run of the suite
    kills = 0
    for _ in range(3):
        before = set((out / "checkpoints").glob("step-*")) if out.exists() else set()
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(Path(__file__).parent), str(out)])
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if set((out / "checkpoints").glob("step-*")) - before:  # it is training
                time.sleep(float(rng.uniform(0, 0.15)))
                os.kill(process.pid, signal.SIGKILL)
                break
            time.sleep(0.005)
        kills += process.wait() == -signal.SIGKILL
    assert kills >= 2, "the runs ended before they could be killed"
    resumed = hilp.pretrain(
        CONFIG, walks(), steps=400, out=out, resume=True, checkpoint_every=7, log_every=10, quiet=True
    )
    assert resumed.fingerprint == whole.fingerprint
    (a, _), (b, _) = (
        storage.read_arrays(r / "checkpoints" / "step-000000400.safetensors") for r in (tmp_path / "whole", out)
    )
    assert all(np.array_equal(a[name], b[name]) for name in a)
    steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(10, 401, 10)), "every metrics row once, in order"


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = hilp.pretrain(CONFIG, walks(), steps=40, out=tmp_path / "whole", quiet=True)
    out = tmp_path / "torn"
    hilp.pretrain(CONFIG, walks(), steps=30, out=out, checkpoint_every=10, keep=3, quiet=True)
    newest = sorted((out / "checkpoints").iterdir())[-1]
    content = bytearray(newest.read_bytes())
    if damage == "truncate":
        newest.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        content[-100] ^= 0x10
        newest.write_bytes(content)
    else:
        newest.write_bytes(b"")
    capsys.readouterr()
    resumed = hilp.pretrain(CONFIG, walks(), steps=40, out=out, resume=True, quiet=True)
    told = [line for line in capsys.readouterr().err.splitlines() if line]
    assert len(told) == 1
    assert newest.name in told[0]
    assert resumed.fingerprint == whole.fingerprint


def test_checkpoints_that_fit_no_more_are_said_so_and_not_started_over(tmp_path: Path) -> None:
    hilp.pretrain(CONFIG, walks(), steps=20, out=tmp_path, checkpoint_every=10, quiet=True)
    for path in (tmp_path / "checkpoints").iterdir():
        arrays, note = storage.read_arrays(path)
        storage.write_arrays(path, {**arrays, ".more": np.zeros(1)}, note)
    before = (tmp_path / "metrics.jsonl").read_text()
    with pytest.raises(hilp.HilpError, match=r"no checkpoint in .* can be resumed"):
        hilp.pretrain(CONFIG, walks(), steps=30, out=tmp_path, resume=True, quiet=True)
    assert (tmp_path / "metrics.jsonl").read_text() == before


def test_a_checkpoint_is_never_deleted_for_one_that_lies_ahead(tmp_path: Path) -> None:
    hilp.pretrain(CONFIG, walks(), steps=30, out=tmp_path, checkpoint_every=10, keep=3, quiet=True)
    folder = tmp_path / "checkpoints"
    for path in sorted(folder.iterdir())[1:]:
        path.write_bytes(path.read_bytes()[:100])
    hilp.pretrain(CONFIG, walks(), steps=15, out=tmp_path, resume=True, checkpoint_every=5, quiet=True)
    assert [path.name for path in sorted(folder.iterdir())] == [
        "step-000000010.safetensors", "step-000000015.safetensors"]  # fmt: skip


def test_retention_keeps_the_newest(tmp_path: Path) -> None:
    hilp.pretrain(CONFIG, walks(), steps=50, out=tmp_path / "run", checkpoint_every=10, keep=3, quiet=True)
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == [f"step-{step:09d}.safetensors" for step in (30, 40, 50)]


def test_a_loss_that_turns_nan_stops_the_run_and_is_named(tmp_path: Path) -> None:
    out = tmp_path / "run"
    good = hilp.pretrain(CONFIG, walks(), steps=20, out=out, checkpoint_every=10, quiet=True)
    kept = sorted((out / "checkpoints").iterdir())[-1]
    arrays, note = storage.read_arrays(kept)
    weight = next(name for name in arrays if ".value" in name and "weight" in name)
    arrays[weight] = np.full_like(arrays[weight], np.nan)  # from here on V is NaN
    storage.write_arrays(kept, arrays, note)
    with pytest.raises(hilp.HilpError, match=r"(value|critic|actor)_loss became NaN or infinite at step 21") as caught:
        hilp.pretrain(CONFIG, walks(), steps=60, out=out, checkpoint_every=10, resume=True, quiet=True)
    assert "\n" not in str(caught.value)
    assert sorted((out / "checkpoints").iterdir())[-1] == kept, "nothing newer than the last good one"
    assert good.fingerprint


def test_infinite_learning_rate_diverges_with_a_named_step(tmp_path: Path) -> None:
    config = hilp.HILP(dim=4, hidden=(16, 16), actor_hidden=(16, 16), batch=32, lr=1e30)
    with pytest.raises(hilp.HilpError, match=r"\w+_loss became NaN or infinite at step \d+"):
        hilp.pretrain(config, walks(), steps=50, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run" / "policy").exists()


def test_a_run_is_not_overwritten_and_not_resumed_as_another(tmp_path: Path) -> None:
    out = tmp_path / "run"
    hilp.pretrain(CONFIG, walks(), steps=5, out=out, quiet=True)
    with pytest.raises(hilp.HilpError, match="--resume"):
        hilp.pretrain(CONFIG, walks(), steps=5, out=out, quiet=True)
    other = hilp.HILP(dim=4, hidden=(16, 16), actor_hidden=(16, 16), batch=32, lr=1e-3)
    with pytest.raises(hilp.HilpError, match=r"lr=0.0003, not 0.001"):
        hilp.pretrain(other, walks(), steps=9, out=out, resume=True, quiet=True)
    with pytest.raises(hilp.HilpError, match="seed is 0, not 1"):
        hilp.pretrain(CONFIG, walks(), steps=9, out=out, resume=True, seed=1, quiet=True)
    with pytest.raises(hilp.HilpError, match="data_fingerprint"):
        hilp.pretrain(CONFIG, walks(seed=1), steps=9, out=out, resume=True, quiet=True)


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(hilp.HilpError, match="not the folder of a run"):
        hilp.pretrain(CONFIG, walks(), steps=5, out=tmp_path, quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_validation_split_reports_held_out_losses_and_leaves_training_alone(tmp_path: Path) -> None:
    runs = []
    for name in ("one", "two"):
        every = 10 if name == "one" else 5
        runs.append(
            hilp.pretrain(
                CONFIG, walks(), steps=20, out=tmp_path / name, validation=0.2, log_every=every, quiet=True
            ).fingerprint
        )
    assert runs[0] == runs[1], "asking more often for held-out losses must not change the weights"
    row = json.loads((tmp_path / "one" / "metrics.jsonl").read_text().splitlines()[-1])
    assert np.isfinite(row["validation_phi_loss"])
    assert row["validation_phi_loss"] != row["phi_loss"]


@pytest.mark.parametrize(("every", "batches"), [(5, 1), (20, 2), (100, 8)])
def test_held_out_losses_take_at_most_a_tenth_of_the_updates_but_a_batch_each(
    every: int, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, asked = loop.prepare(CONFIG, walks(), TrainOptions(steps=20, validation=0.2)), []
    chunks = run._chunks

    def counted(*args: Any) -> Any:
        asked.append(args[3])
        return chunks(*args)

    monkeypatch.setattr(run, "_chunks", counted)
    run.validate(run.fresh, 1, every)
    assert asked == [1] * batches


def test_metrics_rows_and_evaluations(tmp_path: Path) -> None:
    seen = []

    def evaluate(policy: hilp.FoundationPolicy) -> dict[str, float]:
        seen.append(policy.provenance.steps)
        return {"success": 0.5}

    hilp.pretrain(
        CONFIG, walks(), steps=40, out=tmp_path / "run", log_every=10, evaluate=evaluate, eval_every=20, quiet=True
    )
    assert seen == [20, 40]
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [10, 20, 30, 40]
    assert [row.get("success") for row in rows] == [None, 0.5, 0.5, 0.5]
    assert [row.get("evaluation_step") for row in rows] == [None, 20, 20, 40]
    assert {"phi_loss", "actor_loss", "steps_per_second"} <= rows[0].keys()


def test_run_json_says_what_made_it(tmp_path: Path) -> None:
    hilp.pretrain(CONFIG, walks(), steps=5, out=tmp_path / "run", command="hilp pretrain ...", quiet=True)
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert told["command"] == "hilp pretrain ..."
    assert told["config"]["dim"] == 4
    assert re.fullmatch(r"[0-9a-f]{32}", told["data_fingerprint"])
    assert {"jax", "hilp", "python"} <= told["versions"].keys()


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"steps": float("nan")},
        {"steps": 5.5},
        {"steps": True},
        {"steps": 5, "seeds": 0},
        {"steps": 5, "validation": 1.0},
        {"steps": 5, "validation": float("nan")},
    ],
)
def test_impossible_arguments(wrong: dict[str, float]) -> None:
    with pytest.raises(hilp.HilpError):
        hilp.pretrain(CONFIG, walks(), quiet=True, **wrong)  # type: ignore[arg-type]


@pytest.fixture
def attentive() -> Iterator[None]:
    """Signals as a terminal has them: under nohup or in the background some are ignored, and then so by the loop."""
    before = {
        number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("attentive")
def test_interrupt_saves_a_checkpoint_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advance = loop.Run.advance

    def interrupted(self: loop.Run, state: object, step: int, count: int) -> object:
        if step >= 13:
            os.kill(os.getpid(), signal.SIGINT)
        return advance(self, state, step, count)

    monkeypatch.setattr(loop.Run, "advance", interrupted)
    with pytest.raises(hilp.HilpError, match=r"stopped at step \d+ and saved; go on with --resume"):
        hilp.pretrain(CONFIG, walks(), steps=40, out=tmp_path / "run", checkpoint_every=40, log_every=1, quiet=True)
    monkeypatch.undo()
    assert list((tmp_path / "run" / "checkpoints").iterdir())
    resumed = hilp.pretrain(CONFIG, walks(), steps=40, out=tmp_path / "run", resume=True, quiet=True)
    assert resumed.fingerprint == hilp.pretrain(CONFIG, walks(), steps=40, quiet=True).fingerprint


@pytest.mark.usefixtures("attentive")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_scheduler_or_a_closed_terminal_saves_too(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advance = loop.Run.advance

    def asked(self: loop.Run, state: object, step: int, count: int) -> object:
        os.kill(os.getpid(), getattr(signal, name))
        return advance(self, state, step, count)

    monkeypatch.setattr(loop.Run, "advance", asked)
    with pytest.raises(hilp.HilpError, match="stopped at step 1 and saved"):
        hilp.pretrain(CONFIG, walks(), steps=40, out=tmp_path / "run", quiet=True)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000000001.safetensors"]


def test_a_run_that_is_not_to_be_hung_up_on_is_not(tmp_path: Path) -> None:
    """`nohup hilp pretrain` ignores SIGHUP, and so does the loop."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with loop.stop_requests() as asked:
            os.kill(os.getpid(), signal.SIGHUP)
        assert asked == []
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("left", ["lock", "description"])
def test_a_kill_before_the_first_checkpoint_leaves_a_folder_to_begin_in(left: str, tmp_path: Path) -> None:
    name = storage.LOCK if left == "lock" else ".run.json.writing-12-ab-cd"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text("{")
    hilp.pretrain(CONFIG, walks(), steps=3, out=tmp_path / "run", quiet=True)
    assert (tmp_path / "run" / "policy" / "config.json").exists()


def test_without_a_folder_nothing_is_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop.Run, "validate", lambda *_: pytest.fail("it would not be kept"))
    hilp.pretrain(CONFIG, walks(), steps=3, validation=0.2, quiet=True)


def test_a_chunk_may_cross_stages() -> None:
    one, two = (loop.prepare(SEQUENTIAL, walks(), TrainOptions(steps=20)) for _ in range(2))
    whole, _ = one.advance(one.fresh, 0, 40)
    parts, _ = two.advance(two.fresh, 0, 25)
    parts, _ = two.advance(parts, 25, 15)
    for a, b in zip(*(storage.flatten(state).values() for state in (whole, parts)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("sizes", [{"batch": 10**9}, {"hidden": (10**8, 10**8)}, {"dim": 2 * 10**9}])
def test_sizes_that_no_machine_has_are_one_line(sizes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(hilp.HilpError, match=r"training would need at least|does not fit in memory"):
        hilp.pretrain(dataclasses.replace(CONFIG, **sizes), walks(), steps=4, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_resuming_with_fewer_steps_than_are_done_is_refused(tmp_path: Path) -> None:
    hilp.pretrain(CONFIG, walks(), steps=20, out=tmp_path / "run", quiet=True)
    before = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(hilp.HilpError, match="already at step 20"):
        hilp.pretrain(CONFIG, walks(), steps=10, out=tmp_path / "run", resume=True, quiet=True)
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_too_large_a_batch_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    config = hilp.HILP(dim=4, hidden=(16, 16), actor_hidden=(16, 16), batch=2**31 - 1)
    with pytest.raises(hilp.HilpError, match="training would need at least"):
        hilp.pretrain(config, walks(), steps=20, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("wrong", [{"bank": -3}, {"seed": -1}, {"keep": 0}, {"checkpoint_every": 0}, {"data": {}}])
def test_mistakes_are_told_before_anything_is_written(wrong: dict[str, object], tmp_path: Path) -> None:
    asked = {"config": CONFIG, "data": walks(), "steps": 5, "quiet": True, "out": tmp_path / "run", **wrong}
    with pytest.raises(hilp.HilpError):
        hilp.pretrain(**asked)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_resume_goes_on_and_does_not_start_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hilp.pretrain(CONFIG, walks(), steps=20, out=tmp_path / "run", quiet=True)
    started = []
    advance = loop.Run.advance

    def watched(self: loop.Run, state: object, step: int, count: int) -> object:
        started.append(step)
        return advance(self, state, step, count)

    monkeypatch.setattr(loop.Run, "advance", watched)
    hilp.pretrain(CONFIG, walks(), steps=30, out=tmp_path / "run", resume=True, quiet=True)
    assert started[0] == 20


@pytest.mark.parametrize(
    "wrong", [{"dim": 0}, {"batch": -3}, {"hidden": ()}, {"hidden": (0,)}, {"phi_discount": 1.5}, {"expectile": 1.0}]
)
def test_a_config_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(hilp.HilpError, match=f"config key '{next(iter(wrong))}' must be"):
        hilp.HILP(**wrong)  # type: ignore[arg-type]


# ---- one thing after the other ---------------------------------------------------------------------------------------

SEQUENTIAL = dataclasses.replace(CONFIG, schedule="sequential", phi_steps=25)


@pytest.mark.parametrize("stop", [10, 25, 40])
def test_sequential_training_resumes_to_the_same_bits_in_either_phase(stop: int, tmp_path: Path) -> None:
    whole = hilp.pretrain(SEQUENTIAL, walks(), steps=60, quiet=True)
    hilp.pretrain(SEQUENTIAL, walks(), steps=stop, out=tmp_path, quiet=True)
    resumed = hilp.pretrain(SEQUENTIAL, walks(), steps=60, out=tmp_path, resume=True, quiet=True)
    assert resumed.fingerprint == whole.fingerprint


def test_no_policy_is_evaluated_before_its_first_update() -> None:
    seen = []

    def evaluate(policy: hilp.FoundationPolicy) -> dict[str, float]:
        seen.append(policy.provenance.steps)
        return {}

    hilp.pretrain(SEQUENTIAL, walks(), steps=50, evaluate=evaluate, eval_every=10, quiet=True)
    assert seen == [30, 40, 50], "phi alone is trained for 25"


def test_sequential_training_is_the_same_from_streamed_data() -> None:
    policies = [hilp.pretrain(SEQUENTIAL, walks(), steps=70, device_budget=budget, quiet=True) for budget in (None, 0)]
    # To the bit as users compile it; the suite's compiler rounds a sum of the two programs otherwise (3e-8 was seen).
    for one, two in zip(*(jax.tree.leaves(policy.core) for policy in policies), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_blocks_are_gathered_ahead_whatever_the_lengths_of_chunks() -> None:
    """Where updates are slow a chunk is shorter than a block, and what was gathered ahead must begin where it ends."""
    run = Run(CONFIG, walks(), TrainOptions(1, device_budget=0))
    state, step, gathered = run.fresh, 0, []
    run.enter(0, state)
    stream = run.stream
    assert stream is not None
    gather = stream._gather
    stream._gather = lambda index, start: gathered.append(start) or gather(index, start)  # type: ignore[method-assign, func-returns-value]
    for count in (10, 3, 40, 7):
        state, _ = run.advance(state, step, count)
        step += count
    stream._worker.shutdown()
    assert gathered == [0, 10, 13, 45, 53, 60], "every block once"


def test_a_stored_batch_is_its_part_of_the_block() -> None:
    """Pictures take another way out of it than numbers, also where each of several seeds has its own block."""
    rng = np.random.default_rng(0)
    block = {"pixels": rng.integers(0, 256, (2, 5, 7, 4, 4, 3), np.uint8), "state": rng.random((2, 5, 7, 3))}
    seeds = jax.vmap(lambda own: program.stored_batch(own, jax.random.key(0), jnp.int32(3)))(block)
    for name, whole in block.items():
        np.testing.assert_array_equal(seeds[name], whole.astype(seeds[name].dtype)[:, 3])


@pytest.mark.parametrize("budget", [None, 0])
def test_each_of_several_seeds_has_its_own_latents(budget: int | None) -> None:
    config = dataclasses.replace(SEQUENTIAL, hidden=(16,), actor_hidden=(16,))
    together = hilp.pretrain(config, walks(), steps=40, seeds=2, seed=3, device_budget=budget, quiet=True)
    observations = walks().observations[:50]
    for seed, policy in zip((3, 4), together, strict=True):
        alone = hilp.pretrain(config, walks(), steps=40, seed=seed, quiet=True)
        np.testing.assert_allclose(policy.encode(observations), alone.encode(observations), atol=1e-4)
        skill = policy.project(np.ones(4, np.float32))
        np.testing.assert_allclose(
            policy.act(observations, policy.skill(skill)), alone.act(observations, alone.skill(skill)), atol=1e-4
        )


def test_phi_stands_still_once_it_is_frozen_and_metrics_belong_to_their_phase(tmp_path: Path) -> None:
    before = hilp.pretrain(SEQUENTIAL, walks(), steps=25, quiet=True)
    after = hilp.pretrain(
        SEQUENTIAL, walks(), steps=50, out=tmp_path, log_every=10, validation=0.2, checkpoint_every=7, quiet=True
    )
    plain = hilp.pretrain(SEQUENTIAL, walks(), steps=50, quiet=True)
    observations = walks().observations
    assert np.array_equal(before.encode(observations), plain.encode(observations))
    assert not np.array_equal(
        before.act(observations, before.skill(seed=0)), plain.act(observations, plain.skill(seed=0))
    )
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [("phi_loss" in row, "actor_loss" in row) for row in rows] == [
        (True, False), (True, False), (True, True), (False, True), (False, True),
    ]  # fmt: skip
    assert [("validation_phi_loss" in row, "validation_actor_loss" in row) for row in rows] == [
        (True, False), (True, False), (False, True), (False, True), (False, True),
    ]  # fmt: skip
    assert after.provenance.steps == 50


def test_steps_that_end_before_the_policy_begins_are_worth_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    hilp.pretrain(SEQUENTIAL, walks(), steps=25, quiet=True)
    assert "all 25 updates train phi and none the policy" in capsys.readouterr().err
    hilp.pretrain(SEQUENTIAL, walks(), steps=26, quiet=True)
    assert not capsys.readouterr().err


def test_no_room_for_latents_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(hilp.HilpError, match="MiB of computed columns in"):
        program.scratch_array((2**20, 2**30), tmp_path)
    kept = program.scratch_array((3, 4), tmp_path)
    kept[:] = 1.0
    assert kept.sum() == 12 and not list(tmp_path.iterdir())


TWO_STAGES = dataclasses.replace(CONFIG, schedule="sequential", phi_steps=3)


def updated(data: hilp.Dataset, **options: Any) -> list[np.ndarray]:
    """The state after three updates of either stage."""
    run = Run(TWO_STAGES, data, TrainOptions(1, **options))
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run.advance(run.fresh, 0, 6)[0])]


def test_data_of_about_one_size_is_compiled_for_once() -> None:
    compiled: list[str] = []

    def listen(event: str, seconds: float, **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        updated(walks(3_000))
        del compiled[:]
        updated(walks(2_400))
        updated(walks(4_080))
        assert not compiled, "all three are padded to 4096 rows"
        updated(walks(4_110))
        assert compiled, "the next bucket"
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_padding_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    padded = updated(walks(), seeds=2, validation=0.2)
    monkeypatch.setattr("hilp.training.run.MOST_PADDED", 0)
    assert len(Run(TWO_STAGES, walks()).columns.shared["actions"]) == 600
    for one, other in zip(padded, updated(walks(), seeds=2, validation=0.2), strict=True):
        np.testing.assert_array_equal(one, other)


def test_large_data_is_not_padded() -> None:
    assert [bucket(rows, 100 * rows) for rows in (1, 1_024, 1_025, 200_000)] == [1_024, 1_024, 2_048, 262_144]
    assert bucket(300_000, 100 * 300_000) == 300_000  # it shares the memory of its file


# Of two children that train alike, one on much data: what the data adds to the peak.
PEAK = """
import sys
import hilp
from test_train import CONFIG, Run
run = Run(CONFIG, hilp.Dataset.open(sys.argv[1]))
run.advance(run.fresh, 0, 3)
status = open("/proc/self/status").read()
print(1024 * int(status.split("VmHWM:")[1].split()[0]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells a process its peak memory")
def test_training_adds_little_more_memory_than_its_data(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    peaks = []
    for rows in (2_000, 500_000):
        observations, actions = (rng.standard_normal((rows, n), np.float32) for n in (60, 8))
        data = hilp.Dataset(observations, np.tanh(actions), np.full(rows // 1_000, 1_000), name="noise")
        words = [sys.executable, "-c", PEAK, str(data.save(tmp_path / str(rows)))]
        own = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
        peaks.append(int(subprocess.run(words, env=own, check=True, capture_output=True, text=True).stdout))
    raw = 4 * 68 * 500_000
    assert (peaks[1] - peaks[0]) / raw <= 1.3, f"{peaks[0]:,} -> {peaks[1]:,} bytes for {raw:,} bytes of data"


def test_a_policy_that_cannot_be_measured_is_saved(tiny_data: hilp.Dataset, tmp_path: Path) -> None:
    def fails(policies: list[hilp.FoundationPolicy], held_out: hilp.Dataset | None) -> None:
        raise ValueError("cannot measure")

    with pytest.raises(ValueError, match="cannot measure"):
        hilp.pretrain(CONFIG, tiny_data, steps=5, out=tmp_path / "run", bank=10, quiet=True, on_policies=fails)
    assert hilp.FoundationPolicy.load(tmp_path / "run").config == CONFIG


def test_options_of_numpy_are_plain_numbers_and_others_are_told(tmp_path: Path) -> None:
    options = TrainOptions(
        steps=np.int64(5), seed=np.int64(3), log_every=np.int32(2), minutes=np.float32(3), validation=np.float64(0.5)
    )
    assert json.loads(json.dumps([options.updates, options.seed, options.log_every, options.minutes])) == [5, 3, 2, 3.0]
    mistakes = {"minutes": "3", "validation": "a", "seed": 1.5, "device_budget": "1"}
    for name, wrong in mistakes.items():
        with pytest.raises(hilp.HilpError, match=f"{name} (must be|is) a"):
            TrainOptions(steps=5, **{name: wrong})


def test_updates_that_nobody_said_are_asked_for() -> None:
    with pytest.raises(hilp.HilpError, match="say for how many updates, steps="):
        hilp.pretrain(CONFIG, walks())
