"""OGBench's visual environments: what policies see is what the package itself shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import hilp
from hilp import tasks
from hilp.cli import main
from hilp.errors import HilpError
from hilp.evaluation import setup
from hilp.learning import methods
from hilp.report import page
from hilp.tasks import rendering

pytest.importorskip("ogbench", reason="pip install 'hilp[mujoco]'")

NAME = "visual-cube-single"


@pytest.fixture(scope="module")
def world() -> Any:
    made: Any = tasks.make(NAME)
    try:
        made.render_states(made.episodes(np.random.default_rng(0), 1).observations)
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
    (picture,) = world.render_states(np.asarray(states.compute_observation())[None])["pixels"]
    assert picture.shape == (64, 64, 3) and picture.std() > 10
    assert np.abs(picture.astype(int) - shown.astype(int)).mean() < 3.0


def test_episodes_are_seen_and_so_are_goals(world: Any) -> None:
    running = world.episodes(np.random.default_rng(0), 2)
    assert rendering.policy_spec(world).parts == (("pixels", (64, 64, 3), "uint8"),)
    before = rendering.policy_observations(running)["pixels"].copy()
    np.testing.assert_array_equal(before, world.render_states(running.observations)["pixels"])
    for _ in range(5):
        running.step(np.ones((2, world.action_dim)))
    assert not np.array_equal(rendering.policy_observations(running)["pixels"], before)
    assert rendering.policy_goals(running)["pixels"].shape == (2, 64, 64, 3)
    assert running.reached().shape == (2,) and world.name == NAME


def test_goals_are_known_by_their_state_or_only_acted_towards(world: Any) -> None:
    """By name, by columns, by a row with states; a photo shows no state, and nothing tells when it is reached."""
    spec = rendering.policy_spec(world)
    policy: Any = SimpleNamespace(spec=spec, bank=SimpleNamespace(observations={}))
    named = setup.find_goal("task1", policy, world, seed=3)
    assert named.for_task == "task1" and named.observation["pixels"].shape == (64, 64, 3)
    moved = setup.find_goal("block_0_x=0.5,block_0_y=-1", policy, world, seed=3)
    np.testing.assert_array_equal(moved.observation["pixels"], rendering.observe_states(world, moved.state)["pixels"])
    assert moved.state is not None and moved.state[world.columns["block_0_y"]] == -1
    running = world.episodes(np.random.default_rng(0), 1, goal=moved.for_task)
    np.testing.assert_allclose(running.goals[0], moved.state)
    states = np.stack([named.state, moved.state])
    film = hilp.Dataset(world.render_states(states), np.zeros((2, world.action_dim)), np.array([2]), {"states": states})
    row = setup.find_goal("row:1", policy, world, film)
    np.testing.assert_array_equal(row.state, moved.state)
    assert setup.find_goal("row:1", policy, world, replace(film, extras={})).state is None
    with pytest.raises(HilpError, match="decided by states, which an image does not"):
        world.episodes(np.random.default_rng(0), 1, goal=moved.observation)


@pytest.mark.slow
def test_visual_cube_end_to_end(world: Any, tmp_path: Path) -> None:
    """Collected, trained, prompted with goals that are pictures. OGBench's own take a quarter of a second each."""
    data = hilp.collect(NAME, "play", 300, out=tmp_path / "cube", workers=1)
    assert data.task == "visual-cube-single-play" and data.observations["pixels"].shape == (301, 64, 64, 3)
    np.testing.assert_array_equal(
        data.observations["pixels"][7], world.render_states(data.extra("states")[7:8])["pixels"][0]
    )
    preset = hilp.preset("hilp", "laptop", data.task)
    config = methods.configure(preset.config, {"phi_steps": 60})
    policy = hilp.pretrain(config, data, steps=120, bank=200, out=tmp_path / "run", quiet=True)
    world.max_steps = 20
    (row,) = hilp.evaluate(policy, world, plan="auto", episodes=5)
    assert row["metric"] == "success" and set(row["by_goal"]) == set(world.goal_names)
    photo = tmp_path / "photo.png"
    Image.fromarray(np.asarray(data.observations["pixels"][100])).save(photo)
    film = ["--data", str(tmp_path / "cube")]
    for goal in (["task2"], ["block_0_x=0.5"], ["row:200", *film], ["row:7"], [str(photo)]):
        assert main(["prompt", str(tmp_path / "run"), "--goal", *goal, "--steps", "3"]) == 0
    page.write(tmp_path / "run")
