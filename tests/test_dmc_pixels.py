"""DeepMind Control by a camera: what policies see is what is drawn from physics, three frames at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import collectors, tasks
from hilp.cli import main
from hilp.collectors import dmc as collector
from hilp.collectors.collecting import Request
from hilp.data import dataset as native
from hilp.errors import HilpError
from hilp.tasks import dmc, rendering

pytest.importorskip("dm_control", reason="pip install 'hilp[mujoco]'")

NAME = "walker-pixels"


@pytest.fixture(scope="module")
def world() -> Any:
    made: Any = tasks.make(NAME)
    made.threads = 1
    try:
        made.frames(made.episodes(np.random.default_rng(0), 1).extra("physics"))
    except HilpError as error:
        pytest.skip(str(error))
    return made


def test_policies_see_the_last_three_frames(world: Any) -> None:
    """Those that physics states are drawn as, the first one thrice at the start."""
    running = world.episodes(np.random.default_rng(1), 2)
    states = [running.extra("physics")]
    for step in range(3):
        running.step(np.full((2, world.action_dim), 0.3 * step))
        states.append(running.extra("physics"))
    drawn = [world.frames(physics) for physics in states]
    np.testing.assert_array_equal(running.images["pixels"], np.concatenate(drawn[1:], axis=-1))
    fresh = world.episodes(np.random.default_rng(1), 2)
    np.testing.assert_array_equal(fresh.images["pixels"], np.concatenate([drawn[0]] * 3, axis=-1))
    assert rendering.policy_spec(world).parts == (("pixels", (64, 64, 9), "uint8"),)
    assert not np.array_equal(drawn[0][0], drawn[0][1]) and drawn[0].std() > 10


def test_collected_data_are_films_of_states(world: Any, tmp_path: Path) -> None:
    """Each frame is on disk once; the states lie beside, and can be drawn again by `hilp data convert`."""
    data = hilp.collect(NAME, "random", 30, out=tmp_path / "film", workers=1)
    assert data.task == NAME and data.frames == 3 and data.observations["pixels"].shape == (31, 64, 64, 9)
    assert np.load(tmp_path / "film" / native.file_name("observations/pixels"), mmap_mode="r").shape == (31, 64, 64, 3)
    np.testing.assert_array_equal(data.observations["pixels"][5][..., 6:], world.frames(data.extra("physics")[5:6])[0])
    again = tmp_path / "again"
    assert main(["data", "convert", str(tmp_path / "film-states"), str(again), "--task", NAME]) == 0
    assert hilp.load(again).fingerprint == data.fingerprint
    with pytest.raises(HilpError, match="has no column 'physics'"):
        world.render_dataset(hilp.load("maze-medium", steps=20))


def test_a_collection_that_was_killed_while_drawing_only_draws(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The states are there; other arguments are another collection."""
    told: list[int] = []
    draw, simulate = dmc.PixelDmc.render_dataset, collector.Rounds.run

    def killed(self: Any, data: Any, progress: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(dmc.PixelDmc, "render_dataset", killed)
    with pytest.raises(KeyboardInterrupt):
        hilp.collect(NAME, "random", 30, out=tmp_path / "film", workers=1, progress=told.append)
    assert not (tmp_path / "film").exists() and max(told) == 15, "collected, which is half of it"
    monkeypatch.setattr(dmc.PixelDmc, "render_dataset", draw)
    monkeypatch.setattr(collector.Rounds, "run", lambda *_: pytest.fail("the states were collected again"))
    with pytest.raises(HilpError, match="film-states already exists"):
        hilp.collect(NAME, "random", 30, seed=1, out=tmp_path / "film", workers=1)
    other = Request("random", 30, 0, tmp_path / "film", workers=1, config={"width": "8"})
    with pytest.raises(HilpError, match="film-states already exists"):
        collectors.run(collector, world, other)
    data = hilp.collect(NAME, "random", 30, out=tmp_path / "film", workers=1, progress=told.append)
    assert data.rows == 31 and told[-1] == 30 and told == sorted(told)
    monkeypatch.setattr(collector.Rounds, "run", simulate)
    at_once = hilp.collect(NAME, "random", 30, out=tmp_path / "again", workers=1)
    assert at_once.fingerprint == data.fingerprint


@pytest.mark.slow
def test_walker_from_pixels_end_to_end(world: Any, tmp_path: Path) -> None:
    """Collected, trained, prompted with a reward, evaluated."""
    data = hilp.collect(NAME, "random", 3_000, out=tmp_path / "film")
    preset = hilp.preset("sf-hilp", "laptop", NAME)
    assert preset.config.encoder == "light" and preset.config.phi_discount == 0.96
    policy = hilp.pretrain(preset.config, data, steps=200, bank=300, out=tmp_path / "run", quiet=True)
    rows = hilp.evaluate(policy, NAME, rewards=["stand", "run"], episodes=2)
    assert [row["reward"] for row in rows] == ["stand", "run"]
    assert all(np.isfinite(row["score"]) and row["steps"] == 1000 for row in rows)
