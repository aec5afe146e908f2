"""The quickstart, small, to its end: every file and every key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hilp
from hilp import versions
from hilp.cli import main
from hilp.commands import quickstart
from hilp.commands.quickstart import Quickstart
from hilp.evaluation import trajectories
from hilp.learning import methods


def test_every_file_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(quickstart, "TRANSITIONS", 5000)
    monkeypatch.setattr(quickstart, "PAIRS", 20)
    monkeypatch.setattr("sys.argv", ["hilp", "as", "typed"])
    told = quickstart.quickstart(Quickstart(out=str(tmp_path / "q"), task="maze-medium", steps=30, json=True))
    results = json.loads((tmp_path / "q" / "results.json").read_text())
    assert results == json.loads(json.dumps(told))
    assert {"pairs", "success", "rank_correlation", "reward_gain", "seconds", "versions", "command"} <= results.keys()
    assert results["success"].keys() == {"0", "1", "3", "auto"}
    assert results["reward_gain"].keys() == {"right", "left", "up", "down", "centre"}
    assert results["seconds"].keys() == {"collect", "pretrain", "evaluate", "total"}
    assert (results["pairs"], results["command"]) == (20, "hilp as typed")
    assert "data:image/png" in (tmp_path / "q" / "report.html").read_text()
    assert (tmp_path / "q" / "trajectories.png").stat().st_size > 1000
    assert len(trajectories.read(tmp_path / "q" / "trajectories.safetensors")) == 9, "four plans and five rewards"
    assert hilp.FoundationPolicy.load(tmp_path / "q" / "policy").provenance.task == "maze-medium"
    with pytest.raises(hilp.HilpError, match="--overwrite"):
        quickstart.quickstart(Quickstart(out=str(tmp_path / "q"), json=True))
    assert "hilp play" in (tmp_path / "q" / "report.html").read_text()
    monkeypatch.setattr(quickstart, "quickstart", lambda flags: told)
    Quickstart(out=str(tmp_path / "q"))()
    assert capsys.readouterr().out.endswith(f"hilp play {tmp_path / 'q'}\n"), "the last line opens the playground"


def test_the_new_one_takes_the_place_of_the_old(run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def story(folder: Path, *rest: Any) -> dict[str, Any]:
        assert (run_copy / "policy" / "config.json").is_file(), "the old one is there while the new one is made"
        (folder / "policy").mkdir(parents=True)
        (folder / "results.json").write_text("{}")
        return {"made": folder.name}

    monkeypatch.setattr(quickstart, "story", story)
    beside = set(run_copy.parent.iterdir())
    with pytest.raises(hilp.HilpError, match="--overwrite"):
        quickstart.quickstart(Quickstart(out=str(run_copy), task="maze-medium"))
    assert (
        quickstart.quickstart(Quickstart(out=str(run_copy), task="maze-medium", overwrite=True))["made"]
        != run_copy.name
    )
    assert {path.name for path in run_copy.iterdir()} == {"policy", "results.json"}
    assert set(run_copy.parent.iterdir()) == beside, "and nothing is left beside it"


@pytest.mark.slow
def test_the_promises_of_the_readme(tmp_path: Path) -> None:
    results = quickstart.quickstart(Quickstart(out=str(tmp_path / "q"), json=True))
    success, gains = results["success"], results["reward_gain"]
    assert success["3"] >= 0.75
    assert success["auto"] >= 0.80
    assert min(success["3"], success["auto"]) > success["0"] or success["0"] > 0.9
    assert results["rank_correlation"] >= 0.95
    four = [gains[name] for name in ("right", "left", "up", "down")]
    assert sum(four) / 4 >= 0.7
    assert min(four) >= 0.5
    assert results["reward_r2"]["centre"] < 0.7


@pytest.mark.slow
def test_the_promises_of_the_page_about_pixels(tmp_path: Path) -> None:
    results = quickstart.quickstart(Quickstart(out=str(tmp_path / "q"), task="maze-large-pixels", json=True))
    assert results["success"]["auto"] >= 0.6
    assert results["rank_correlation"] >= 0.9
    assert "Plans in pictures" in (tmp_path / "q" / "report.html").read_text()


def quickly(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Quickstarts that only say what they would; the seeds they were asked for."""
    asked: list[int] = []

    def story(folder: Path, flags: Quickstart, world: Any) -> dict[str, Any]:
        asked.append(flags.seed)
        (folder / "policy").mkdir(parents=True)
        (folder / "run.json").write_text("{}")
        config = json.loads(json.dumps(methods.config_values(hilp.preset("hilp", "laptop").config)))
        results = {
            "task": flags.task, "config": config, "steps": 8000, "pairs": quickstart.PAIRS, "seed": flags.seed,
            "success": {"0": 0.5 + flags.seed / 10}, "reward_gain": {"up": 0.25 * flags.seed}, "reward_r2": {"up": 0.5},
            "rank_correlation": 0.9, "machine": versions.machine(),
        }  # fmt: skip
        (folder / "results.json").write_text(json.dumps(results))
        return results

    monkeypatch.setattr(quickstart, "story", story)
    return asked


def test_several_seeds_tell_mean_and_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = quickly(monkeypatch)
    rows = tmp_path / "kept.jsonl"
    words = ["quickstart", "--out", str(tmp_path / "q"), "--rows", str(rows), "--seeds"]
    assert main([*words, "2"]) == 0
    assert main([*words, "3"]) == 0
    assert asked == [0, 1, 2], "what the file has is not made again"
    out = " ".join(capsys.readouterr().out.split("3 quickstarts")[1].split())
    assert "(3 seeds, 1 machines)" in out
    assert "goal, plan 0 60% 50% to 70%" in out
    assert "reward: up 25% 0% to 50% 0.50" in out
    (tmp_path / "q" / "seed-1" / "results.json").unlink()  # stopped before its end
    rows.write_text("".join(line for line in rows.read_text().splitlines(True) if '"seed": 1' not in line))
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX2")  # another machine
    assert main([*words, "2", "--overwrite", "--json"]) == 0
    assert asked[3:] == [0, 1]
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["seed"] for line in told] == [0, 2, 0, 1]
    assert told[-1]["machine"]["settings"]["XLA_FLAGS"].startswith("--xla_cpu_max_isa=AVX2")
    assert main(["quickstart", "--out", str(tmp_path / "q" / "seed-0"), "--seeds", "2"]) == 2
    assert "a single quickstart" in capsys.readouterr().err
