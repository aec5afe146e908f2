"""Watching a run: callbacks, loggers, and the page that says what the numbers are."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import testing
from hilp.learning import methods
from hilp.training import loggers
from shapes import emitted
from test_methods import SMALL
from test_train import CONFIG, walks

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"
OF_THE_LOOP = {"step", "steps_per_second", "success", "success_plan", "evaluation_step", "phi_change", "listening",
               "validation_..."}  # fmt: skip


# ---- the page --------------------------------------------------------------------------------------------------------


def said() -> dict[str, str]:
    """Metric -> the methods that the page says it belongs to."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    table = [row for row in cells if len(row) == 3 and row[0].strip("` ") not in loggers.KINDS]
    return {name: row[2].strip() for row in table for name in re.findall(r"`([^`]+)`", row[0])}


def test_the_page_names_what_methods_emit() -> None:
    page = said()
    unseen = set(page) - OF_THE_LOOP - {"q_loss"}  # q_loss: not at the default config
    for method in methods.MODULES:
        own = emitted(methods.config(method, **SMALL[method]), testing.small_data())
        unseen -= own
        wanted = {
            metric
            for metric, text in page.items()
            if metric not in OF_THE_LOOP
            and (text == "all" or any(fnmatch(method, one) for one in text.split(":")[0].split(", ")))
        }
        assert own == wanted - {"q_loss"} | (own & {"q_loss"}), f"docs/metrics.md is wrong about {method}"
    assert not unseen, "no method emits these"


def test_the_page_names_what_the_loop_adds(tmp_path: Path) -> None:
    rows: list[dict[str, float]] = []
    hilp.pretrain(
        CONFIG, walks(), steps=20, log_every=10, validation=0.2, evaluate=lambda policy: {"success": 0.5},
        eval_every=10, on_metrics=rows.append, out=tmp_path / "run", quiet=True,
    )  # fmt: skip
    assert [row["step"] for row in rows] == [10, 20]
    known = set(said())
    for row in rows:
        assert {name for name in row if not name.startswith("validation_")} <= known
        assert {name.removeprefix("validation_") for name in row} <= known
        assert "validation_phi_loss" in row
    assert [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()] == rows


# ---- callbacks -------------------------------------------------------------------------------------------------------


def test_a_callback_needs_no_folder_and_changes_nothing() -> None:
    rows: list[dict[str, float]] = []

    def spoil(row: dict[str, float]) -> None:
        rows.append(dict(row))
        row.clear()

    watched = hilp.pretrain(CONFIG, walks(), steps=30, log_every=10, on_metrics=spoil, quiet=True)
    assert [row["step"] for row in rows] == [10, 20, 30]
    assert all(np.isfinite(row["phi_loss"]) for row in rows)
    assert watched.fingerprint == hilp.pretrain(CONFIG, walks(), steps=30, quiet=True).fingerprint


def test_a_callback_that_raises_costs_no_updates(tmp_path: Path) -> None:
    def fail(row: dict[str, float]) -> None:
        if row["step"] >= 20:
            raise ConnectionError("no route to the dashboard")

    out = tmp_path / "run"
    options: dict[str, Any] = {"steps": 60, "log_every": 10, "checkpoint_every": 60, "quiet": True}
    with pytest.raises(hilp.HilpError, match=r"ConnectionError: no route.*stopped at step 20 and saved.*--resume") as e:
        hilp.pretrain(CONFIG, walks(), out=out, on_metrics=fail, **options)
    assert isinstance(e.value.__cause__, ConnectionError)
    steps: list[float] = []
    resumed = hilp.pretrain(
        CONFIG, walks(), out=out, resume=True, on_metrics=lambda row: steps.append(row["step"]), **options
    )
    assert steps == [30, 40, 50, 60], "it goes on where it was saved"
    assert resumed.fingerprint == hilp.pretrain(CONFIG, walks(), steps=60, quiet=True).fingerprint
    with pytest.raises(hilp.HilpError, match="not saved"):
        hilp.pretrain(CONFIG, walks(), on_metrics=fail, **options)


# ---- loggers ---------------------------------------------------------------------------------------------------------


def stopped_then_resumed(out: Path, kinds: tuple[str, ...]) -> list[dict[str, Any]]:
    """A run that logs to 30 but was saved at 20, as one that was killed; then the rest. Its metrics.jsonl."""
    with loggers.opened(kinds, out) as log:
        hilp.pretrain(CONFIG, walks(), steps=30, out=out, log_every=10, checkpoint_every=20, on_metrics=log, quiet=True)
    (out / "checkpoints" / "step-000000030.safetensors").unlink()
    with loggers.opened(kinds, out) as log:
        hilp.pretrain(CONFIG, walks(), steps=50, out=out, resume=True, log_every=10, on_metrics=log, quiet=True)
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_csv_and_tensorboard_hold_each_row_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rows = stopped_then_resumed(tmp_path / "run", ("csv", "tensorboard"))
    assert [row["step"] for row in rows] == [10, 20, 30, 40, 50]
    with open(tmp_path / "run" / "metrics.csv", newline="") as file:
        found = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    assert found == rows
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == set(rows[0]) - {"step"}
    scalars = events.Scalars("phi_loss")
    assert [event.step for event in scalars] == [10, 20, 30, 40, 50]
    np.testing.assert_allclose([event.value for event in scalars], [row["phi_loss"] for row in rows], rtol=1e-6)


def test_a_metric_that_comes_later_gets_a_column(tmp_path: Path) -> None:
    with loggers.opened(["csv"], tmp_path) as log:
        assert log is not None
        log({"step": 10, "phi_loss": 0.1})
        log({"step": 20, "phi_loss": 1e-17, "success": 0.5})
        log({"step": 30, "success": 0.75})
    text = "step,phi_loss,success\n10,0.1,\n20,1e-17,0.5\n30,,0.75\n"
    assert (tmp_path / "metrics.csv").read_text() == text
    with open(tmp_path / "metrics.csv", "a") as file:
        file.write("40,0.")  # killed in the middle of a line
    with loggers.opened(["csv"], tmp_path) as log:
        assert log is not None
        log({"step": 40, "success": 1.0})
    assert (tmp_path / "metrics.csv").read_text() == text + "40,,1.0\n"


def test_wandb_goes_on_with_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    stopped_then_resumed(tmp_path / "run", ("wandb",))
    known = (tmp_path / "run" / "wandb-id.txt").read_text().strip()
    offline = sorted((tmp_path / "run" / "wandb").glob(f"offline-run-*-{known}"))
    assert len(offline) >= 1
    assert list(offline[-1].glob("*.wandb")), "metrics on disk, and nothing sent"


def test_loggers_are_not_imported_unasked(tmp_path: Path) -> None:
    code = """
import sys
import hilp
from test_train import walks
from hilp.learning import methods
from hilp.training import loggers
config = methods.config("gc-bc", actor_hidden=(8,), batch=8)
with loggers.opened(("csv",), sys.argv[1]) as log:
    hilp.pretrain(config, walks(), steps=2, out=sys.argv[1], on_metrics=log, quiet=True)
print([name for name in ("tensorboard", "wandb") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_from_the_shell(tmp_path: Path, tiny_data_folder: Path, run: Any, refused: Any) -> None:
    small = ["--set", "hidden=32,32", "actor_hidden=32,32", "batch=64", "dim=8"]
    words = ["pretrain", "--data", tiny_data_folder, "--out", tmp_path / "run", "--steps", 20, *small, "--json"]
    assert run(*words, "--log", "csv")[0] == 0
    assert (tmp_path / "run" / "metrics.csv").read_text().startswith("step,")
    assert "--log" in refused(*words[:4], tmp_path / "other", "--log", "cvs")


def test_a_logger_that_is_not_installed_is_told_before_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(hilp.HilpError, match=r"pip install 'hilp\[wandb\]'"):
        loggers.require(["csv", "wandb"])


# ---- resuming --------------------------------------------------------------------------------------------------------


def test_resume_never_shortens_a_run_unsaid(
    tmp_path: Path, tiny_data_folder: Path, run: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    small = ["--set", "hidden=32,32", "actor_hidden=32,32", "batch=64", "dim=8"]
    out = tmp_path / "run"
    words = ["pretrain", "--data", tiny_data_folder, "--out", out, "--checkpoint-every", 10, *small, "--json"]
    assert run(*words, "--steps", 40)[0] == 0
    for step in (30, 40):
        (out / "checkpoints" / f"step-{step:09d}.safetensors").unlink(missing_ok=True)
    described = json.loads((out / "run.json").read_text())
    assert described["steps"] == 40
    code, told, err = run(*words, "--resume")
    assert (code, json.loads(told)["steps"]) == (0, 40), "not the preset's number"
    assert "warning" not in err
    (out / "run.json").write_text(json.dumps({**described, "steps": 60}))
    code, told, err = run(*words, "--resume", "--steps", 50)
    assert (code, json.loads(told)["steps"]) == (0, 50)
    assert "begun for 60 updates and will now end at 50" in err
