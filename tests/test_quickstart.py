"""The quickstart, small, to its end: every file and every key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hilp
from hilp.commands import quickstart
from hilp.evaluation import trajectories


def test_every_file_and_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quickstart, "TRANSITIONS", 5000)
    monkeypatch.setattr(quickstart, "PAIRS", 20)
    told = quickstart.quickstart(tmp_path / "q", task="maze-medium", steps=30, quiet=True, command="as typed")
    results = json.loads((tmp_path / "q" / "results.json").read_text())
    assert results == json.loads(json.dumps(told))
    assert {"pairs", "success", "rank_correlation", "reward_gain", "seconds", "versions", "command"} <= results.keys()
    assert results["success"].keys() == {"0", "1", "3", "auto"}
    assert results["reward_gain"].keys() == {"right", "left", "up", "down", "centre"}
    assert results["seconds"].keys() == {"collect", "pretrain", "evaluate", "total"}
    assert (results["pairs"], results["command"]) == (20, "as typed")
    assert "data:image/png" in (tmp_path / "q" / "report.html").read_text()
    assert (tmp_path / "q" / "trajectories.png").stat().st_size > 1000
    assert len(trajectories.read(tmp_path / "q" / "trajectories.safetensors")) == 9, "four plans and five rewards"
    assert hilp.FoundationPolicy.load(tmp_path / "q" / "policy").provenance.task == "maze-medium"
    with pytest.raises(hilp.HilpError, match="--overwrite"):
        quickstart.quickstart(tmp_path / "q", quiet=True)


def test_the_new_one_takes_the_place_of_the_old(run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def story(folder: Path, *rest: Any) -> dict[str, Any]:
        assert (run_copy / "policy" / "config.json").is_file(), "the old one is there while the new one is made"
        (folder / "policy").mkdir(parents=True)
        (folder / "results.json").write_text("{}")
        return {"made": folder.name}

    monkeypatch.setattr(quickstart, "story", story)
    beside = set(run_copy.parent.iterdir())
    with pytest.raises(hilp.HilpError, match="--overwrite"):
        quickstart.quickstart(run_copy, task="maze-medium")
    assert quickstart.quickstart(run_copy, task="maze-medium", overwrite=True)["made"] != run_copy.name
    assert {path.name for path in run_copy.iterdir()} == {"policy", "results.json"}
    assert set(run_copy.parent.iterdir()) == beside, "and nothing is left beside it"


@pytest.mark.slow
def test_the_promises_of_the_readme(tmp_path: Path) -> None:
    results = quickstart.quickstart(tmp_path / "q", quiet=True)
    success, gains = results["success"], results["reward_gain"]
    assert success["3"] >= 0.75
    assert success["auto"] >= 0.80
    assert min(success["3"], success["auto"]) > success["0"] or success["0"] > 0.9
    assert results["rank_correlation"] >= 0.95
    four = [gains[name] for name in ("right", "left", "up", "down")]
    assert sum(four) / 4 >= 0.7
    assert min(four) >= 0.5
    assert results["reward_r2"]["centre"] < 0.7
