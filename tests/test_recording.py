"""Recordings for Rerun: what `hilp prompt --rerun` wrote, read by Rerun's own reader."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import tasks
from hilp.commands.common import VIDEO_FPS
from hilp.evaluation import rollouts
from hilp.prompts.midpoints import undiscounted

STEPS = 12


def read(path: Path) -> dict[str, dict[int, Any]]:
    """By entity: what each frame has of it."""
    from rerun.chunk import RrdReader

    found: dict[str, dict[int, Any]] = {}
    for chunk in RrdReader(path).stream().to_chunks():
        rows = chunk.to_record_batch()
        names = [name for name in rows.schema.names if ":" in name and not name.endswith("radii")]
        if "frame_index" not in rows.schema.names:
            continue
        seconds = rows["timestamp"].cast("int64").to_pylist()
        for at, frame in enumerate(rows["frame_index"].to_pylist()):
            np.testing.assert_allclose(seconds[at] / 1e9, frame / VIDEO_FPS, atol=1e-6)
            value = [rows[name][at].as_py() for name in names]
            found.setdefault(chunk.entity_path, {})[frame] = value[0] if len(value) == 1 else value
    return found


def vectors(entity: dict[int, Any]) -> np.ndarray:
    assert sorted(entity) == list(range(len(entity)))
    return np.array([entity[frame] for frame in sorted(entity)])


def test_an_episode_is_recorded_whole(tiny_run: Path, tiny: hilp.FoundationPolicy, tmp_path: Path, run: Any) -> None:
    target = tmp_path / "new" / "goal.rrd"
    words = ["prompt", tiny_run, "--goal", "5.5,5.5", "--start", "1.5,1.5", "--steps", STEPS, "--rerun", target]
    code, said, _ = run(*words)
    assert code == 0 and str(target) in said
    goal, world = np.array([5.5, 5.5], np.float32), tasks.make("maze-medium")
    go = tiny.goal(goal, plan="auto")
    episode = rollouts.run_episode(tiny, world, go, np.array([1.5, 1.5], np.float32), goal, STEPS, 0)
    found = read(target)
    np.testing.assert_allclose(vectors(found["/observation"]), episode.path, atol=1e-5)
    np.testing.assert_allclose(vectors(found["/action"]), episode.actions, atol=1e-4)
    places = vectors(found["/path/agent"])[:, 0]
    np.testing.assert_allclose(places, np.pad(episode.path[:, :2], ((0, 0), (0, 1))), rtol=1e-6)
    np.testing.assert_allclose(found["/path"][0][0], places, rtol=1e-6)
    np.testing.assert_allclose(found["/path/goal"][0][0], [5.5, 5.5, 0.0])
    latents = tiny.encode(episode.path)
    np.testing.assert_allclose(vectors(found["/latent"]), latents, atol=1e-4)
    apart = undiscounted(tiny.distance(latents, np.broadcast_to(tiny.encode(goal), latents.shape)), tiny.discount)
    np.testing.assert_allclose(vectors(found["/distance_to_go/phi"])[:, 0], apart, rtol=1e-3, atol=1e-3)
    assert vectors(found["/skill"]).shape == (STEPS, tiny.skill_dim)
    np.testing.assert_allclose(np.linalg.norm(vectors(found["/skill"]), axis=1), 1.0, rtol=1e-5)
    expected = go.steps(episode.path[0])
    if np.isfinite(expected):
        np.testing.assert_allclose(found["/distance_to_go/data"][0][0], expected, rtol=1e-4)
        way = go.path(episode.path[0])
        np.testing.assert_allclose(np.array(found["/path/plan"][0][0])[:, :2], way[:, :2], rtol=1e-6)


def test_rewards_are_recorded_and_nothing_acts_otherwise(tiny_run: Path, tmp_path: Path, run: Any) -> None:
    target = tmp_path / "earn.rrd"
    words = ["prompt", tiny_run, "--reward", "right", "--start", "1.5,1.5", "--steps", STEPS, "--json"]
    recorded, plain = (json.loads(run(*more)[1]) for more in ([*words, "--rerun", target], words))
    assert recorded.pop("rerun") == str(target) and recorded == plain
    found = read(target)
    np.testing.assert_allclose(vectors(found["/reward"]).sum(), plain["gain"], rtol=1e-5, atol=1e-6)
    assert "/distance_to_go/phi" not in found and "/path/goal" not in found
    before = target.read_bytes()
    assert run(*words, "--rerun", target)[0] == 0 and target.read_bytes() != before, "it takes the old one's place"
    assert [file.name for file in tmp_path.iterdir()] == ["earn.rrd"]


def test_mistakes_are_told_before_anything_is_run(
    tiny_run: Path, tmp_path: Path, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["prompt", tiny_run, "--goal", "5.5,5.5", "--steps", 2, "--rerun"]
    assert "--rerun takes a file that ends in .rrd" in refused(*words, tmp_path / "goal.gif")
    (tmp_path / "file").write_text("")
    assert "cannot write" in refused(*words, tmp_path / "file" / "goal.rrd")
    monkeypatch.setitem(sys.modules, "rerun", None)
    assert "--rerun needs rerun: pip install 'hilp[rerun]'" in refused(*words, tmp_path / "goal.rrd")
