"""OGBench's visual environments: what policies see is what the package itself shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import tasks
from hilp.errors import HilpError
from hilp.learning import methods
from hilp.tasks import sight

pytest.importorskip("ogbench", reason="pip install 'hilp[mujoco]'")

NAME = "visual-cube-single"


@pytest.fixture(scope="module")
def world() -> Any:
    made: Any = tasks.make(NAME)
    try:
        made.see(made.episodes(np.random.default_rng(0), 1).observations)
    except HilpError as error:
        pytest.skip(str(error))
    return made


def test_pictures_are_those_of_the_visual_environment(world: Any) -> None:
    """Of the state that it is in: nearly, because an observation does not tell how fingers sag."""
    from hilp.tasks.ogbench.task import make_env

    own = make_env("visual-cube-single-v0")
    shown, _ = own.reset(seed=3, options={"task_id": 1})
    states = make_env("cube-single-v0")
    states._ob_type = "states"
    states.reset(seed=3, options={"task_id": 1})
    states._data.qpos[:], states._data.qvel[:] = own._data.qpos, own._data.qvel
    import mujoco

    mujoco.mj_forward(states._model, states._data)
    states.pre_step()
    states.post_step()
    (picture,) = world.see(np.asarray(states.compute_observation())[None])["pixels"]
    assert picture.shape == (64, 64, 3) and picture.std() > 10
    assert np.abs(picture.astype(int) - shown.astype(int)).mean() < 3.0


def test_episodes_are_seen_and_so_are_goals(world: Any) -> None:
    running = world.episodes(np.random.default_rng(0), 2)
    assert sight.spec_of(world).parts == (("pixels", (64, 64, 3), "uint8"),)
    before = sight.seen(running)["pixels"].copy()
    np.testing.assert_array_equal(before, world.see(running.observations)["pixels"])
    for _ in range(5):
        running.step(np.ones((2, world.action_dim)))
    assert not np.array_equal(sight.seen(running)["pixels"], before)
    assert sight.seen_goals(running)["pixels"].shape == (2, 64, 64, 3)
    assert running.reached().shape == (2,) and world.name == NAME


@pytest.mark.slow
def test_visual_cube_end_to_end(world: Any, tmp_path: Path) -> None:
    """Collected, trained, prompted with goals that are pictures."""
    data = hilp.collect(NAME, "play", 1_000, out=tmp_path / "cube", workers=1)
    assert data.task == "visual-cube-single-play" and data.observations["pixels"].shape == (1001, 64, 64, 3)
    np.testing.assert_array_equal(data.observations["pixels"][7], world.see(data.extra("states")[7:8])["pixels"][0])
    preset = hilp.preset("hilp", "laptop", data.task)
    config = methods.configure(preset.config, {"phi_steps": 60})
    policy = hilp.pretrain(config, data, steps=120, bank=200, out=tmp_path / "run", quiet=True)
    (row,) = hilp.evaluate(policy, NAME, plan="auto", episodes=5)
    assert row["metric"] == "success" and set(row["by_goal"]) == set(world.goal_names)
