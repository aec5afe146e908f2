"""OGBench's environments as tasks: five tasks, goals, success, limits and seeds, held against the package itself."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from hilp import tasks
from hilp.errors import HilpError
from hilp.tasks import ogbench
from hilp.tasks.ogbench import Manipulation, OgbenchMaze
from hilp.tasks.ogbench import task as environments
from hilp.tasks.ogbench.task import make_env, seeded

if not all(importlib.util.find_spec(package) for package in ("mujoco", "ogbench", "dm_control")):
    pytest.skip("needs the simulators", allow_module_level=True)


@pytest.fixture(scope="module")
def maze() -> OgbenchMaze:
    return tasks.make("pointmaze-large")


@pytest.fixture(scope="module")
def cube() -> Manipulation:
    return tasks.make("cube-single")


@pytest.fixture(scope="module")
def scene() -> Manipulation:
    return tasks.make("scene-v0")


# ---- names -----------------------------------------------------------------------------------------------------------


def test_the_table_of_names_is_what_the_package_registers() -> None:
    make_env("pointmaze-medium-v0")  # imports it
    from gymnasium.envs.registration import registry

    with_states = {
        name: spec
        for name, spec in registry.items()
        if "ogbench" in str(spec.entry_point)
        and not name.startswith(("visual-", "powderworld-"))
        and "singletask" not in name
        and "online" not in str(spec.entry_point)
    }
    assert {about.registered for about in environments.ENVIRONMENTS.values()} == set(with_states)
    for about in environments.ENVIRONMENTS.values():
        assert about.max_steps == with_states[about.registered].max_episode_steps, about.name


@pytest.mark.parametrize("name", ["pointmaze-giant-v0", "antmaze-medium", "antsoccer-arena", "humanoidmaze-medium"])
def test_sizes_and_five_tasks_are_the_packages(name: str) -> None:
    world = tasks.make(name)
    running = world.episodes(np.random.default_rng(0), 1)
    assert running.observations.shape == running.goals.shape == (1, world.observation_dim)
    assert world.env.action_space.shape == (world.action_dim,)
    assert len(world.goal_names) == 5
    assert max(world.columns.values()) < world.observation_dim


def test_names_with_and_without_the_version_and_of_data_sets() -> None:
    for name in ("pointmaze-large", "pointmaze-large-v0", "pointmaze-large-stitch-v0", "pointmaze-large-navigate"):
        assert tasks.make(name).name == "pointmaze-large"
    assert tasks.make("cube-single-play-v0").name == "cube-single"
    # D4RL's antmaze-large was here first, with another evaluation.
    assert tasks.make("antmaze-large").family == "antmaze" and tasks.make("antmaze-large-play").family == "antmaze"
    assert tasks.make("antmaze-large-v0").family == tasks.make("antmaze-large-stitch-v0").family == "ogbench"
    assert environments.of_data("pointmaze-large") is None and environments.of_data("walks") is None
    assert set(environments.NAMES) <= set(tasks.names()) and len(set(tasks.names())) == len(tasks.names())


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("powderworld-easy-v0", "observes images"),
        ("cube-single-singletask-task2-v0", "take cube-single and one of its goals"),
        ("pointmaze-larg", "did you mean 'pointmaze-large'"),
        ("visual-nothing-v0", "unknown task"),
    ],
)
def test_other_names_are_refused_in_one_line(name: str, told: str) -> None:
    with pytest.raises(HilpError, match=told) as error:
        tasks.make(name)
    assert "\n" not in str(error.value)


# ---- the protocol ----------------------------------------------------------------------------------------------------


def test_episodes_are_the_five_tasks_in_turn(maze: OgbenchMaze) -> None:
    running = maze.episodes(np.random.default_rng(0), 10)
    assert running.names == [f"task{i}" for i in (1, 2, 3, 4, 5, 1, 2, 3, 4, 5)]
    for i, info in enumerate(maze.env.task_infos * 2):
        # Cells of the package's own tasks, with its noise of a quarter of a cell to each side.
        assert np.abs(running.observations[i] - info["init_xy"]).max() <= 1.0
        assert np.abs(running.goals[i] - info["goal_xy"]).max() <= 1.0
    assert len(np.unique(running.goals, axis=0)) == 10 and not running.reached().any()


@pytest.mark.parametrize(
    "name",
    [
        "pointmaze-large",
        "antmaze-medium",
        "scene",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("cube-single", "puzzle-3x3")),
    ],
)
def test_an_episode_among_others_is_that_of_the_environment_alone(name: str) -> None:
    """Goals, starts, steps and success are those of the package, to the bit, though all episodes share a model."""
    world = tasks.make(name)
    running = world.episodes(np.random.default_rng(3), 5)
    seeds = np.random.default_rng(3).integers(2**31, size=5).tolist()
    chance = np.random.default_rng(4)
    actions = chance.uniform(-1, 1, (12, 5, world.action_dim))
    path = [running.observations.copy()]
    for action in actions:
        running.step(action)
        path.append(running.observations.copy())
    for i in (1, 4):
        alone = make_env(world.about.registered)
        alone.reset(seed=0)
        with seeded(seeds[i], alone.action_space):
            first, info = alone.reset(seed=seeds[i], options={"task_id": i + 1})
        assert (info["goal"].astype(np.float32) == running.goals[i]).all()
        assert (first.astype(np.float32) == path[0][i]).all()
        for t, action in enumerate(actions):
            observation, _, _, _, info = alone.step(action[i])
            assert (observation.astype(np.float32) == path[t + 1][i]).all(), t
        assert bool(info["success"]) == bool(running.reached()[i])


def test_draws_depend_on_the_seed_alone(maze: OgbenchMaze) -> None:
    np.random.seed(1)
    before = np.random.get_state()[1].copy()
    first = maze.episodes(np.random.default_rng(7), 5)
    assert (np.random.get_state()[1] == before).all()  # the user's own generator is left alone
    np.random.seed(2)
    again = maze.episodes(np.random.default_rng(7), 5)
    other = maze.episodes(np.random.default_rng(8), 5)
    assert (first.goals == again.goals).all() and (first.observations == again.observations).all()
    assert (first.goals != other.goals).any()


def test_a_teleport_is_drawn_from_the_seed() -> None:
    world = tasks.make("pointmaze-teleport")
    ends = []
    for _ in range(2):
        running = world.episodes(np.random.default_rng(0), 6, start=np.array([20.0, 12.0]))
        running.step(np.zeros((6, 2)))
        running.step(np.zeros((6, 2)))
        ends.append(running.observations.copy())
    assert (ends[0] == ends[1]).all()
    assert len(np.unique(ends[0], axis=0)) > 1  # three places that it leads to


def test_success_of_a_maze_is_a_distance(maze: OgbenchMaze) -> None:
    goal = maze.episodes(np.random.default_rng(0), 1).goals[0]
    assert maze.radius == 1.0 and tasks.make("antmaze-medium").radius == 0.5
    beside = goal + np.array([[0.999, 0.0], [1.001, 0.0]], np.float32)
    assert maze.near(beside, goal).tolist() == [True, False]
    running = maze.episodes(np.random.default_rng(0), 1, start=beside[0], goal="task1")
    assert (running.goals[0] == goal).all() and running.reached().all()


def test_success_by_observations_is_the_packages(cube: Manipulation, scene: Manipulation) -> None:
    """A goal that is an observation is scored by the rule of a task: each thing is moved in and out of tolerance."""
    running = cube.episodes(np.random.default_rng(0), 2)
    goal = running.goals[0].copy()
    for metres, there in ((0.039, True), (0.041, False)):
        state = goal.copy()
        state[cube.columns["block_0_y"]] += 10 * metres
        assert cube.near(state, goal) == there
        assert cube.episodes(np.random.default_rng(0), 1, start=state).observations.shape == (1, 28)
        env = running._group.envs[0]
        cube.set_state(env, state.astype(np.float64))
        assert bool(all(env._compute_successes())) == there
    running = scene.episodes(np.random.default_rng(0), 1)
    goal, env = running.goals[0], running._group.envs[0]
    for column, change in (("drawer_position", 18 * 0.041), ("window_position", -15 * 0.041), ("button_0_on", 1)):
        state = goal.copy()
        scene.set_state(env, state.astype(np.float64))
        assert scene.near(state, goal) and env._success
        if column == "button_0_on":
            on = scene.columns[column]
            state[[on - 1, on]] = state[[on, on - 1]]
        else:
            state[scene.columns[column]] += change
        scene.set_state(env, state.astype(np.float64))
        assert not scene.near(state, goal) and not env._success


def test_an_observation_tells_the_state_as_far_as_it_can(cube: Manipulation, scene: Manipulation) -> None:
    for world in (cube, scene):
        running = world.episodes(np.random.default_rng(0), 1)
        for action in np.random.default_rng(1).uniform(-1, 1, (10, 1, 5)):
            running.step(action)
        seen = running.observations[0]
        world.set_state(world.env, seen.astype(np.float64))
        again = world._observe(world.env)
        known = [column for name, column in world.columns.items() if "velocity" not in name and "contact" not in name]
        np.testing.assert_allclose(again[known], seen[known], atol=0.02)


def test_starts_and_goals_of_the_user(maze: OgbenchMaze, cube: Manipulation) -> None:
    at, to = np.array([0.5, 0.2]), np.array([36.0, 24.0])
    running = maze.episodes(np.random.default_rng(0), 3, start=at, goal=to)
    assert (running.observations == at.astype(np.float32)).all() and (running.goals == to).all()
    for bad, told in (((100.0, 0.0), "no free position"), ((0.0, 0.0, 0.0), "shape"), ((np.nan, 0.0), "finite")):
        with pytest.raises(HilpError, match=told):
            maze.episodes(np.random.default_rng(0), 1, goal=np.array(bad))
    with pytest.raises(HilpError, match="did you mean 'task5'"):
        maze.episodes(np.random.default_rng(0), 1, goal="task6")
    assert cube.episodes(np.random.default_rng(0), 1, goal="task3").names == ["task3_vertical2"]
    with pytest.raises(HilpError, match="first observation"):
        cube.for_data(np.zeros(3))


def test_a_given_start_does_not_change_what_is_drawn(maze: OgbenchMaze) -> None:
    drawn = maze.episodes(np.random.default_rng(5), 1, goal="task2").goals
    assert (maze.episodes(np.random.default_rng(5), 1, start=np.zeros(2), goal="task2").goals == drawn).all()
    assert (maze.goal_named("task2", np.random.default_rng(5)) == drawn[0]).all()


def test_an_episode_at_its_goal_rests() -> None:
    world = tasks.make("antmaze-medium")
    goal = world.goal_named("task1", np.random.default_rng(0))
    running = world.episodes(np.random.default_rng(0), 1, start=goal, goal="task1")
    time = running._group.envs[0].data.time
    running.step(np.zeros((1, 8)))
    assert running._group.envs[0].data.time == time
    running.step(np.full((1, 8), 0.5))
    assert running._group.envs[0].data.time > time


def test_pictures(maze: OgbenchMaze, cube: Manipulation) -> None:
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots()
    for world in (maze, cube):
        world.draw(ax)
        running = world.episodes(np.random.default_rng(0), 2)
        assert world.place(running.observations).shape == (2, 2)
    plt.close(fig)
    on_table = cube.place(cube.episodes(np.random.default_rng(0), 5).observations)
    inits = np.concatenate([info["init_xyzs"][:, :2] for info in cube.env.task_infos])
    assert np.abs(on_table - inits).max() <= 0.011


def test_films(maze: OgbenchMaze, cube: Manipulation, monkeypatch: pytest.MonkeyPatch) -> None:
    for world in (maze, cube):
        running = world.episodes(np.random.default_rng(0), 1)
        path = np.repeat(running.observations, 5, axis=0)
        path[4:] = running.goals
        film = world.film(path, None)
        assert film.shape == (2, 360, 480, 3) and (film[0] != film[1]).any()

    def broken(self: Any) -> np.ndarray:
        raise RuntimeError("no EGL")

    monkeypatch.setattr(type(maze._drawn), "render", broken)
    with pytest.raises(HilpError, match="MUJOCO_GL"):
        maze.film(np.zeros((1, 2)), None)


def test_names_are_known_without_the_package() -> None:
    assert ogbench.find("cube-single-v0").observation_dim == 28
