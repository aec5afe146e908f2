"""Visual Kitchen: the paper's camera, goals as pictures of the paper's goals, and the kitchen's own scores."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import hilp
from conftest import compiled_well
from hilp import tasks
from hilp.cli import main
from hilp.collectors import kitchen as collector
from hilp.data.rewards import Extras, apply_reward
from hilp.errors import HilpError
from hilp.evaluation import rollouts, setup
from hilp.learning import methods
from hilp.prompts.bank import Bank
from hilp.prompts.specs import Goal
from hilp.report import page
from hilp.tasks import kitchen, rendering
from hilp.tasks.kitchen import VisualKitchen, camera

if not all(importlib.util.find_spec(package) for package in ("mujoco", "gymnasium_robotics")):
    pytest.skip("needs the simulators", allow_module_level=True)

NAME = "visual-kitchen-mixed"


@pytest.fixture(scope="module")
def world() -> Any:
    made = kitchen.make(NAME, threads=1)
    assert isinstance(made, VisualKitchen)
    try:
        made.render_states(made.simulator.resting[None])
    except HilpError as error:
        pytest.skip(str(error))
    return made


@pytest.fixture(scope="module")
def resting(world: Any) -> np.ndarray:
    """The kitchen that nobody has touched."""
    return np.asarray(world.render_states(world.simulator.resting[None])["pixels"][0]).astype(int)


def test_threads_draw_what_one_does(world: Any) -> None:
    """In the order of the states, each by a screen of its own."""
    states = np.repeat(world.simulator.resting[None], 5, axis=0)
    states[:, 0] += np.linspace(-0.5, 0.5, 5)  # the arm turns
    alone = world.render_states(states)["pixels"]
    assert len({picture.tobytes() for picture in alone}) == 5
    np.testing.assert_array_equal(camera(2).images(states), alone)


def pixel(world: Any, point: np.ndarray) -> np.ndarray:
    """Row and column at which the paper's camera sees a point, by hand: 60 degrees from above, looking along y."""
    down, along = np.sin(np.pi / 3), np.cos(np.pi / 3)
    forward, right, up = np.array([0, along, -down]), np.array([1.0, 0, 0]), np.array([0, down, along])
    way = point - (np.array([-0.3, 0.5, 2.0]) - 1.86 * forward)
    depth = way @ forward * np.tan(np.deg2rad(world.simulator.model.vis.global_.fovy) / 2)
    return 32 + 32 * np.array([-way @ up, way @ right]) / depth


def test_the_camera_is_the_papers(world: Any, resting: np.ndarray) -> None:
    view = camera(1).view
    assert (view.distance, view.azimuth, view.elevation) == (1.86, 90, -60) and view.lookat.tolist() == [-0.3, 0.5, 2]
    assert rendering.policy_spec(world).parts == (("pixels", (64, 64, 3), "uint8"),) and resting.std() > 30
    # What changes where a subtask is done is what it is about, and where it is.
    for subtask in ("kettle", "microwave", "slide cabinet", "bottom burner"):
        state = world.simulator.resting.copy()
        state[world.simulator.columns[subtask]] = world.simulator.targets[subtask]
        moved = np.argwhere((np.abs(world.render_states(state[None])["pixels"][0] - resting) > 20).any(axis=-1))
        handle = pixel(world, world.simulator.begin(state).site(kitchen.HANDLES[subtask]).xpos)
        assert len(moved) >= 4 and np.linalg.norm(moved - handle, axis=1).min() < 4, subtask


def test_a_goal_is_a_picture_of_the_papers_goal(world: Any) -> None:
    """The arm as in the first state of the data, the task's four things done, the others as D4RL's zeros have them."""
    first = world.simulator.resting.copy()
    first[0] += 0.5
    wanted = np.zeros(30)
    wanted[:9] = first[:9]
    for subtask in ("microwave", "kettle", "bottom burner", "light switch"):
        wanted[world.simulator.columns[subtask]] = world.simulator.targets[subtask]
    film = hilp.Dataset({"pixels": np.zeros((2, 64, 64, 3), np.uint8)}, np.zeros((2, 9)), np.array([2]))
    assert rendering.for_data(world, film) is world, "a film without states says nothing about the arm"
    film.extras["physics"] = np.tile(first, (2, 1))
    running = rendering.for_data(world, film).episodes(np.random.default_rng(0), 3)
    shown, alone = (
        rendering.policy_goals(running)["pixels"],
        world.render_states(wanted[None].astype(np.float32))["pixels"],
    )
    assert shown.shape == (3, 64, 64, 3) and (shown == alone).all()
    assert (shown[0] != world.render_states(world.goal[None])["pixels"][0]).any(), "the arm is seen"
    assert running.goals[0].tolist() == wanted.astype(np.float32).tolist()


def test_episodes_are_those_of_the_kitchen_and_score_the_same(world: Any) -> None:
    plain = kitchen.make("kitchen-mixed", threads=1)
    running, states = (one.episodes(np.random.default_rng(3), 2) for one in (world, plain))
    column = world.simulator.columns["kettle"]
    for step, action in enumerate(np.random.default_rng(0).uniform(-1, 1, (4, 2, 9))):
        if step == 2:
            for one in (running, states):
                one.data[1].qpos[column] = world.simulator.targets["kettle"]
        running.step(action)
        states.step(action)
        assert (running.observations == states.observations).all()
        assert running.success_fractions().tolist() == states.success_fractions().tolist() == [0, 0.25 * (step >= 2)]
    assert hasattr(running, "success_fractions") and (running.reached() == states.reached()).all()
    assert (running.extra("physics") == states.observations).all()
    row = rollouts._goal_scores(running, running.reached(), seed=0)
    assert row["metric"] == "share of the subtasks" and row["outcomes"] == [0, 0.25]


def test_what_is_seen_are_the_states_and_what_rests_is_not_drawn_again(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, drawn = world.episodes(np.random.default_rng(0), 3), []
    see = world.render_states
    monkeypatch.setattr(world, "render_states", lambda states: drawn.append(len(states)) or see(states))
    first = rendering.policy_observations(running)["pixels"]
    assert rendering.policy_observations(running)["pixels"] is first and drawn == [3]
    running.done[1] = True  # over, so it rests
    running.step(np.ones((3, 9)))
    then = rendering.policy_observations(running)["pixels"]
    assert drawn == [3, 2] and (then[1] == first[1]).all() and (then[[0, 2]] != first[[0, 2]]).any()
    assert (then == see(running.observations)["pixels"]).all()


def test_goals_by_name_columns_and_row_are_states_that_are_seen(world: Any) -> None:
    policy: Any = SimpleNamespace(spec=rendering.policy_spec(world), bank=SimpleNamespace(observations={}))
    named = setup.find_goal("microwave+kettle", policy, world)
    moved = setup.find_goal("microwave=-0.5", policy, world)
    assert named.for_task == "microwave+kettle" and moved.state is not None and moved.state[22] == -0.5
    assert (moved.observation["pixels"] == rendering.observe_states(world, moved.state)["pixels"]).all()
    assert world.episodes(np.random.default_rng(0), 1, goal=moved.for_task).subtasks == ("microwave",)
    states = np.stack([named.state, moved.state])
    pictures = {"pixels": np.stack([named.observation["pixels"], moved.observation["pixels"]])}
    film = hilp.Dataset(pictures, np.zeros((2, 9)), np.array([2]), {"physics": states})
    row = setup.find_goal("row:1", policy, world, film)
    assert row.state is not None and row.state.tolist() == moved.state.tolist()
    with pytest.raises(HilpError, match="decided by states, which an image does not"):
        world.episodes(np.random.default_rng(0), 1, goal=row.observation)


def test_the_reward_reads_the_states_beside_pictures(world: Any) -> None:
    """Of data, and of what a policy keeps of it."""
    states = np.stack([world.simulator.resting, world.goal, world.goal_named("microwave")]).astype(np.float32)
    film = hilp.Dataset(
        {"pixels": np.zeros((3, 64, 64, 3), np.uint8)}, np.zeros((3, 9), np.float32), np.array([3]), {"physics": states}
    )
    found = apply_reward(world.at_target, None, film.actions[:2], None, Extras.of(film, film.transition_rows))
    assert found.tolist() == [4, 1]
    kept = Extras({}, Bank.at(film, film.transition_rows).next_extras, "a policy")
    assert apply_reward(world.at_target, None, film.actions[:2], None, kept).tolist() == [4, 1]


def test_data_is_collected_and_then_drawn(world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "EPISODE_STEPS", 2)
    data = hilp.collect("visual-kitchen", "mixed", 3, out=tmp_path / "film", workers=1)
    states = hilp.load(tmp_path / "film-states")
    assert (data.name, data.task, data.lengths.tolist()) == (NAME, NAME, [3, 2]) and states.task == "kitchen-mixed"
    assert (data.extra("physics") == states.observations).all()
    assert (data.extra("target") == states.extra("target")).all()
    assert (data.observations["pixels"] == world.render_states(states.observations)["pixels"]).all()
    with pytest.raises(HilpError, match=r"belongs to visual-kitchen-partial, .* take --task visual-kitchen"):
        hilp.collect(NAME, "partial", 3, out=tmp_path / "other")


def test_files_of_others_become_films(
    world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # the screen that is open already
    h5py = pytest.importorskip("h5py")
    file = tmp_path / "kitchen_microwave_kettle_bottomburner_light-v0.hdf5"
    rows = np.tile(world.simulator.resting, (3, 2))
    rows[:, 0] += [0.0, 0.2, 0.4]
    with h5py.File(file, "w") as written:
        written["observations"], written["actions"] = rows.astype(np.float32), np.zeros((3, 9), np.float32)
        written["terminals"] = np.array([False, False, True])
    convert = ["data", "convert", str(file), str(tmp_path / "film"), "--task", "visual-kitchen"]
    assert main(convert) == 2
    assert "images of visual-kitchen are rendered from 30" in capsys.readouterr().err
    assert main([*convert, "--option", "convention=kitchen"]) == 0
    data = hilp.load(tmp_path / "film")
    assert data.task == NAME and (data.extra("physics") == rows[:, :30].astype(np.float32)).all()
    assert (data.observations["pixels"] == world.render_states(rows[:, :30].astype(np.float32))["pixels"]).all()


def test_presets_have_the_papers_values() -> None:
    paper = hilp.preset("hilp", "paper", NAME)
    config = paper.config
    assert (paper.steps, config.batch, config.phi_expectile, config.expectile) == (500_000, 256, 0.7, 0.7)
    assert (config.encoder, config.augment, config.dim, config.schedule) == ("paper", "rows", 32, "joint")
    assert {hilp.preset(name, "paper", NAME).config.batch for name in ("gc-bc", "gc-iql", "gc-cql", "iql-fdm")} == {256}
    laptop = hilp.preset("hilp", "laptop", NAME).config
    assert (laptop.encoder, laptop.policy_sees, laptop.phi_expectile) == ("light", "phi", 0.7)
    assert hilp.preset("hilp", "paper", "kitchen-mixed").config.phi_expectile == 0.95


def test_mistakes_are_told(world: Any) -> None:
    policy: Any = SimpleNamespace(has_rule=lambda name: False, method="sf-hilp")
    for action, message in (
        (lambda: tasks.make("visual-kitchen-mixd"), "did you mean 'visual-kitchen-mixed'"),
        (lambda: rendering.observe_states(world, np.zeros(7)), "a state of visual-kitchen-mixed has 30 finite numbers"),
        (
            lambda: rollouts.rollout_goals(policy, world, Goal(), 1, 0),
            "sf-hilp takes a goal as the reward of being there",
        ),
    ):
        with pytest.raises(HilpError, match=message):
            action()


@pytest.mark.slow
def test_visual_kitchen_end_to_end(world: Any, tmp_path: Path) -> None:
    """Collected, trained, prompted with goals that are pictures, evaluated, reported."""
    folder, run = str(tmp_path / "film"), str(tmp_path / "run")
    collect = ["data", "collect", "--task", "visual-kitchen", "--kind", "mixed", "--steps", "300", "--out", folder]
    assert main(collect) == 0
    data = hilp.load(folder)
    assert data.task == NAME and data.observations["pixels"].shape == (302, 64, 64, 3)
    few = ["--steps", "300", "--set", "phi_steps=150", "batch=32", "--bank", "300"]
    with compiled_well():
        assert main(["pretrain", "--data", folder, "--out", run, *few]) == 0
    policy = hilp.FoundationPolicy.load(run)
    assert policy.provenance.first_observation == data.extra("physics")[0].astype(float).tolist()
    photo = tmp_path / "photo.png"
    Image.fromarray(np.asarray(data.observations["pixels"][100])).save(photo)
    for goal in (["row:200", "--data", folder], ["row:7"], ["microwave=-0.75"], [str(photo)]):
        assert main(["prompt", run, "--goal", *goal, "--steps", "3"]) == 0
    film = tmp_path / "open.gif"
    assert main(["prompt", run, "--goal", "microwave+kettle", "--steps", "5", "--video", str(film)]) == 0
    assert film.stat().st_size > 10_000
    short = setup.task_of(policy)
    short.max_steps = 10
    assert short.goal[:9].tolist() == policy.provenance.first_observation[:9]
    (row,) = hilp.evaluate(policy, short, plan="auto", episodes=2)
    assert row["metric"] == "share of the subtasks" and row["task"] == NAME and len(row["outcomes"]) == 2
    (earned,) = hilp.evaluate(policy, short, plan=(), rewards="target", episodes=1)
    assert earned["reward"] == "target"
    high = hilp.hierarchy(policy, data, short.at_target, steps=2, quiet=True)
    assert high.high.config.encoder == "light"
    page.write(run)
    lap = hilp.pretrain(methods.config("sf-lap", batch=8, encoder="light"), data, steps=1, quiet=True, bank=50)
    with pytest.raises(HilpError, match="sf-lap takes a goal as the reward of being there"):
        hilp.evaluate(lap, short, plan=0, episodes=1)
