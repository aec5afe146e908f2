"""Kitchen: the same numbers as FrankaKitchen-v1, D4RL's goals and scores, its files, and mistakes."""

from __future__ import annotations

import copy
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import tasks
from hilp.collectors.kitchen import Cook
from hilp.errors import HilpError
from hilp.evaluation import rollouts, setup
from hilp.tasks import kitchen
from hilp.tasks.kitchen import NAMES, Kitchen, KitchenEpisodes

# Not imported here: the task chooses how MuJoCo draws before its first import.
if not all(importlib.util.find_spec(package) for package in ("mujoco", "gymnasium_robotics")):
    pytest.skip("needs the simulators", allow_module_level=True)


@pytest.fixture(scope="module")
def mixed() -> Kitchen:
    return kitchen.make("kitchen-mixed", threads=1)


@pytest.fixture(scope="module")
def partial() -> Kitchen:
    return kitchen.make("kitchen-partial", threads=1)


@pytest.fixture(scope="module")
def franka(partial: Kitchen) -> Any:
    """The environment that gymnasium-robotics registers, told to score what `partial` scores."""
    assert partial.simulator.model.nu == 9  # MuJoCo is imported, and the way it draws is chosen
    import gymnasium
    import gymnasium_robotics

    gymnasium.register_envs(gymnasium_robotics)
    return gymnasium.make("FrankaKitchen-v1", tasks_to_complete=list(partial.subtasks))


@pytest.fixture(scope="module")
def cooked(partial: Kitchen) -> tuple[np.ndarray, np.ndarray]:
    """Actions and observations of an episode in which D4RL's four are done in their order."""
    cook = Cook(kitchen.make("kitchen", threads=1), list(partial.subtasks), np.random.default_rng(0))
    actions = np.stack([cook.step() for _ in range(kitchen.MAX_STEPS)])
    return actions, np.asarray(cook.running.data[0].qpos)


def begin(env: Any, seed: int) -> np.ndarray:
    """Reset to the noise of our first episode of this seed."""
    env.unwrapped.robot_env.np_random = np.random.default_rng(seed).spawn(1)[0]
    return observed(env.reset()[0])


def observed(theirs: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([theirs["observation"][:9], theirs["observation"][18:39]])


def test_observations_and_physics_are_those_of_franka_kitchen_to_the_bit(partial: Kitchen, franka: Any) -> None:
    running = partial.episodes(np.random.default_rng(3), 1)
    first = begin(franka, 3)
    assert running.observations.dtype == np.float32 and running.observations.shape == (1, 30)
    assert running.observations[0].tolist() == first.astype(np.float32).tolist()
    for action in np.random.default_rng(1).uniform(-1.5, 1.5, (40, 9)):
        running.step(action[None])
        theirs = franka.step(action.clip(-1, 1))[0]
        assert running.observations[0].tolist() == observed(theirs).astype(np.float32).tolist()
        assert running.data[0].qpos.tolist() == franka.unwrapped.data.qpos.tolist()
    assert partial.fps == pytest.approx(12.5)


def test_a_scripted_episode_scores_there_what_it_scores_here(
    partial: Kitchen, franka: Any, cooked: tuple[np.ndarray, np.ndarray]
) -> None:
    actions, _ = cooked
    running = partial.episodes(np.random.default_rng(0), 1)
    begin(franka, 0)
    earned, over, counted = 0.0, 0, []
    for step, action in enumerate(actions, 1):
        running.step(action[None])
        _, reward, terminated, truncated, info = franka.step(action.astype(np.float64))
        earned += reward
        counted += info["step_task_completions"]
        assert running.success_fractions()[0] == earned / 4 and running.reached()[0] == terminated
        if terminated or truncated:
            over = step
            break
    assert sorted(counted) == sorted(partial.subtasks), "each counts once"
    assert 25 * earned == 100 * running.success_fractions()[0] == 100 and over < 280
    state = running.data[0].qpos.copy()
    running.step(np.ones((1, 9)))
    assert (running.data[0].qpos == state).all(), "what is over rests"


def test_the_time_limit_is_that_of_franka_kitchen(partial: Kitchen, franka: Any) -> None:
    assert partial.max_steps == franka.spec.max_episode_steps == 280


def test_done_is_done_also_where_it_is_undone(mixed: Kitchen) -> None:
    running = mixed.episodes(np.random.default_rng(0), 2)
    column = mixed.simulator.columns["microwave"]
    running.data[1].qpos[column] = -0.75
    running.step(np.zeros((2, 9)))
    assert running.success_fractions().tolist() == [0, 0.25]
    running.data[1].qpos[column] = 0.0
    running.step(np.zeros((2, 9)))
    assert running.success_fractions().tolist() == [0, 0.25] and not running.reached().any()


def test_a_subtask_is_done_within_three_tenths_of_its_goal(mixed: Kitchen) -> None:
    positions = np.tile(mixed.simulator.resting, (4, 1))
    positions[:, mixed.simulator.columns["microwave"]] = np.array([[-0.449], [-0.451], [-1.049], [-1.051]])
    assert mixed.done(positions, mixed.goal, ["microwave"])[:, 0].tolist() == [False, True, True, False]
    positions[:, mixed.simulator.columns["light switch"]] = [-0.69 + 0.24, -0.05 + 0.18]  # 0.3 in two dimensions
    assert not mixed.done(positions, mixed.goal, ["light switch"]).any()
    positions[:, mixed.simulator.columns["light switch"]] = [-0.69 + 0.23, -0.05 + 0.18]
    assert mixed.done(positions, mixed.goal, ["light switch"]).all()


def test_goals_are_the_papers(mixed: Kitchen, partial: Kitchen) -> None:
    first = np.arange(30) / 10
    goal = mixed.for_data(first).goal
    assert goal[:9].tolist() == first[:9].tolist(), "the arm as in the first row of the data"
    assert goal[9:11].tolist() == [0, 0] and goal[13:17].tolist() == [0] * 4, "burners that do not count"
    assert goal[11:13].tolist() == [-0.88, -0.01] and goal[17:19].tolist() == [-0.69, -0.05]
    assert goal[19:22].tolist() == [0, 0, 0] and goal[22] == -0.75
    assert goal[23:].tolist() == [-0.23, 0.75, 1.62, 0.99, 0, 0, -0.06]
    assert partial.goal[19] == 0.37 and partial.goal[11:13].tolist() == [0, 0]
    assert partial.goal[:9].tolist() == partial.simulator.resting[:9].tolist()
    running = mixed.for_data(first).episodes(np.random.default_rng(0), 3)
    assert (running.goals == goal.astype(np.float32)).all() and running.subtasks == NAMES["kitchen-mixed"]
    for name, columns in partial.simulator.columns.items():
        part = name.replace(" ", "_")
        assert partial.columns[part if len(columns) == 1 else f"{part}_0"] == columns[0]
    assert len(kitchen.make("kitchen").subtasks) == 7
    assert NAMES["kitchen-partial"] == NAMES["kitchen-complete"] != NAMES["kitchen-mixed"]


def test_goals_by_name_ask_for_one_subtask(mixed: Kitchen) -> None:
    assert len(mixed.goal_names) == 8
    assert (mixed.goal_named("kitchen-mixed") == mixed.goal).all()
    assert set(mixed.subtasks_of(mixed.goal)) == set(mixed.subtasks)
    assert mixed.subtasks_of(mixed.goal_named("microwave+kettle")) == ("microwave", "kettle")
    light = mixed.goal_named("light-switch")
    assert mixed.subtasks_of(light) == ("light switch",)
    assert np.delete(light, [17, 18]).tolist() == np.delete(mixed.simulator.resting, [17, 18]).tolist()
    done = np.stack([light, mixed.simulator.resting])
    assert mixed.near(done, light).tolist() == [True, False]
    assert mixed.subtasks_of(mixed.goal_base()) == ()
    assert mixed.episodes(np.random.default_rng(0), 1, goal="light-switch").subtasks == ("light switch",)
    running = mixed.episodes(np.random.default_rng(0), 1, goal=light)
    assert running.subtasks == ("light switch",)
    # A goal that moves nothing is a pose of the arm.
    pose = mixed.simulator.resting.copy()
    pose[0] += 1.0
    assert mixed.subtasks_of(pose) == () and mixed.near(np.stack([pose, mixed.simulator.resting]), pose).tolist() == [
        True,
        False,
    ]
    assert mixed.episodes(np.random.default_rng(0), 1, goal=pose).success_fractions().tolist() == [0]


def test_threads_change_nothing(mixed: Kitchen) -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (5, 3, 9))
    several = kitchen.make("kitchen-mixed", threads=2)
    one, two = (world.episodes(np.random.default_rng(0), 3) for world in (mixed, several))
    for action in actions:
        one.step(action)
        two.step(action)
    assert (one.observations == two.observations).all() and (one.observations[0] != one.observations[1]).all()


def test_rows_say_which_share_was_done(mixed: Kitchen) -> None:
    running = mixed.episodes(np.random.default_rng(0), 4)
    assert isinstance(running, KitchenEpisodes) and hasattr(running, "success_fractions")
    running.done[0, :2] = running.done[1] = True
    row = rollouts._goal_scores(running, running.reached(), seed=0)
    assert row["metric"] == "share of the subtasks" and row["outcomes"] == [0.5, 1, 0, 0]
    assert row["score"] == 0.375 and row["interval"][0] < 0.375 < row["interval"][1]


def test_one_episode_says_which_share_was_done(partial: Kitchen, cooked: tuple[np.ndarray, np.ndarray]) -> None:
    actions = iter(cooked[0])
    policy = SimpleNamespace(act=lambda observations, prompt: next(actions)[None])
    prompt = SimpleNamespace(reset=lambda: None)
    wanted = "microwave+hinge-cabinet"  # the first of what is cooked, and what nobody does
    share = rollouts.run_episode(policy, partial, prompt, None, wanted, 120, 0).share  # type: ignore[arg-type]
    assert share == 0.5


def test_the_reward_is_the_number_of_subtasks_that_are_done(mixed: Kitchen) -> None:
    """Of each step, as in D4RL's files; that of a place ends an episode, this one goes on paying."""
    at = np.tile(mixed.simulator.resting, (4, 1))
    for count, name in ((3, "microwave"), (2, "light switch"), (1, "hinge cabinet")):  # the last counts elsewhere
        at[:count, mixed.simulator.columns[name]] = mixed.simulator.targets[name]
    assert mixed.at_target(at, np.zeros((4, 9)), at.astype(np.float32)).tolist() == [2, 2, 1, 0]
    assert mixed.at_target(at, at, mixed.target[None]).tolist() == [4]
    assert "target" in setup.reward_names(mixed)
    assert setup.reward_shift(mixed, "target") == {"shift": 0.0, "ends": False}
    assert setup.reward_shift(tasks.make("maze-medium"), "target") == {"shift": -1.0, "ends": True}


def test_a_high_level_learns_the_kitchens_reward(mixed: Kitchen, cooked: tuple[np.ndarray, np.ndarray]) -> None:
    """From data to a row; the score is D4RL's, a share of the four subtasks."""
    actions, _ = cooked
    running = kitchen.make("kitchen-partial", threads=1).episodes(np.random.default_rng(0), 1)
    path = [running.observations[0].copy()]
    for action in actions[:60]:
        running.step(action[None])
        path.append(running.observations[0].copy())
    data = hilp.Dataset(
        np.stack(path), np.concatenate([actions[:60], actions[:1]]).astype(np.float32), np.array([61]), task=mixed.name
    )
    policy = hilp.pretrain(hilp.preset("opal", "laptop", mixed.name).config, data, steps=1, quiet=True, bank=0)
    prompt = hilp.hierarchy(policy, data, mixed.at_target, steps=1, quiet=True)
    assert prompt.high.config.k == 10 and not prompt.high.config.normalize
    (row,) = hilp.evaluate(policy, _short(mixed), prompt, episodes=2)
    assert (row["reward"], row["rule"], row["metric"]) == ("target", "hierarchy", "share of the subtasks")
    assert row["outcomes"] == [0.0, 0.0] and row["lengths"] == [3, 3]


def _short(world: Kitchen) -> Kitchen:
    """The same task with episodes of a few steps."""
    short = copy.copy(world)
    short.max_steps = 3
    return short


def test_d4rl_files_are_known_by_their_names(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    rows = np.random.default_rng(0).normal(size=(12, 60)).astype(np.float32)
    for name, task in (
        ("mini_kitchen_microwave_kettle_light_slider-v0.hdf5", "kitchen-complete"),
        ("kitchen_microwave_kettle_light_slider-v0.hdf5", "kitchen-partial"),
        ("kitchen_microwave_kettle_bottomburner_light-v0.hdf5", "kitchen-mixed"),
        ("mine.hdf5", None),
    ):
        with h5py.File(tmp_path / name, "w") as file:
            file["observations"], file["actions"] = rows, rows[:, :9] / 10
            file["terminals"] = np.arange(12) % 6 == 5
        data = hilp.load(tmp_path / name, convention="kitchen")
        assert (data.observations == rows[:, :30]).all() and data.task == task
        assert dict(data.observation_parts)["kettle"] == (7,) and data.observation_dim == 30
        assert any(("nothing says" if task is None else "after its file") in note for note in data.notes)


def test_minari_takes_the_positions(partial: Kitchen, franka: Any, tmp_path: Path, monkeypatch: Any) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    collector = minari.DataCollector(franka)
    rows = []
    for _ in range(2):
        rows.append(observed(collector.reset(seed=len(rows))[0]))
        for action in np.random.default_rng(0).uniform(-1, 1, (3, 9)):
            rows.append(observed(collector.step(action)[0]))
        collector._buffer.truncations[-1] = True
    collector.create_dataset(dataset_id="D4RL/kitchen/mixed-v2", algorithm_name="none", code_permalink="none",
                             author="none", author_email="none")  # fmt: skip
    data = hilp.load("D4RL/kitchen/mixed-v2", convention="kitchen")
    assert data.lengths.tolist() == [4, 4] and data.task == "kitchen-mixed"
    assert (data.observations == np.array(rows, np.float32)).all()
    with pytest.raises(HilpError, match="leave out observation_keys"):
        hilp.load("D4RL/kitchen/mixed-v2", convention="kitchen", observation_keys="observation")
    with pytest.raises(HilpError, match="unknown convention 'kitchn'"):
        hilp.load("D4RL/kitchen/mixed-v2", convention="kitchn")


def test_pictures_show_the_hand(mixed: Kitchen) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    mixed.draw(ax)
    assert {text.get_text() for text in ax.texts} == set(kitchen.HANDLES)
    rows = np.stack([mixed.simulator.resting, np.full(30, np.nan)])
    (x, z), nowhere = mixed.place(rows)
    assert (x, z) == pytest.approx((-0.432, 2.025), abs=1e-3) and np.isnan(nowhere).all()
    opened = mixed.simulator.resting.copy()
    opened[mixed.simulator.columns["microwave"]] = -1.5
    try:
        closed, open_ = mixed.film(np.stack([mixed.simulator.resting, opened]), None)
    except HilpError as error:
        pytest.skip(str(error))
    assert closed.shape == (360, 480, 3) and closed.dtype == np.uint8 and closed.std() > 20
    changed = np.argwhere((closed.astype(int) - open_ != 0).any(axis=-1))
    assert len(changed) > 1000 and changed[:, 1].mean() < 200, "the door is on the left"


def test_no_way_to_draw_is_one_line() -> None:
    code = """
import numpy as np
from hilp.errors import HilpError
from hilp.tasks import kitchen
world = kitchen.make("kitchen-mixed")
try:
    world.film(world.simulator.resting[None], None)
except HilpError as error:
    print(error)
"""
    environment = {**os.environ, "MUJOCO_GL": "disable"}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert "there is nothing to render with" in told.stdout and len(told.stdout.splitlines()) == 1
    assert "MUJOCO_GL=egl" in told.stdout and not told.stderr


def test_mistakes_are_told(mixed: Kitchen) -> None:
    rng = np.random.default_rng(0)
    for action, message in (
        (lambda: kitchen.make("kitchen-mixd"), "did you mean 'kitchen-mixed'"),
        (lambda: tasks.make("kitchen-partal"), "did you mean 'kitchen-partial'"),
        (lambda: mixed.episodes(rng, 1, start=np.zeros(5)), "must be an observation of 30 finite numbers"),
        (lambda: mixed.episodes(rng, 1, goal=np.full(30, np.nan)), "must be an observation of 30 finite numbers"),
        (lambda: mixed.goal_named("microwave+ketle"), "no goal 'ketle': did you mean 'kettle'"),
        (lambda: mixed.for_data(np.zeros(60)), "30 finite numbers"),
        (lambda: mixed.potential_max("right"), "no reward 'right': 'target' counts its subtasks"),
        (lambda: mixed.episodes(rng, 1).extra("physics"), "no extra column 'physics'"),
    ):
        with pytest.raises(HilpError, match=message):
            action()


def test_a_missing_simulator_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    kitchen.simulator.cache_clear()
    monkeypatch.setitem(sys.modules, "gymnasium_robotics.envs.franka_kitchen.kitchen_env", None)
    with pytest.raises(HilpError, match=r"Kitchen needs .*pip install 'hilp\[mujoco\]'"):
        kitchen.make("kitchen").episodes(np.random.default_rng(0), 1)
