"""Gymnasium environments as tasks: real ones, one of a file, and what people get wrong."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from rerun.chunk import RrdReader

import hilp
from hilp import tasks, testing
from hilp.cli import main
from hilp.collectors import acting
from hilp.evaluation import setup
from hilp.tasks import gym
from hilp.tasks.gym import environments

ROOT = Path(__file__).parent.parent
TABLE = f"{ROOT / 'examples' / 'own_task.py'}:make"
SMALL = {"dim": 4, "hidden": (16, 16), "actor_hidden": (16, 16), "batch": 32}


class Reach(gymnasium.Env):
    """A goal environment in one dimension whose achieved goal is (not) a part of the observation; ends at 3."""

    action_space = gymnasium.spaces.Box(np.array([0.0], np.float32), np.array([4.0], np.float32))

    def __init__(self, inside: bool = True, flag: str = "is_success") -> None:
        self.inside, self.flag = inside, flag
        box = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        one = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.observation_space = gymnasium.spaces.Dict(observation=box, achieved_goal=one, desired_goal=one)

    def _seen(self) -> dict[str, np.ndarray]:
        place = self.at if self.inside else -3 * self.at
        return {
            "observation": np.array([7.0, place]),
            "achieved_goal": np.array([self.at]),
            "desired_goal": self.goal.copy(),
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at, self.goal = self.np_random.uniform(-1, 0), self.np_random.uniform(1, 2, 1)
        return self._seen(), {}

    def step(self, action: np.ndarray) -> Any:
        assert self.action_space.contains(action), action
        self.at += float(action[0]) / 10
        near = self.compute_reward(np.array([self.at]), self.goal, {}) == 0
        return self._seen(), float(action[0]), self.at > 3, False, {self.flag: near}

    def compute_reward(self, achieved: np.ndarray, desired: np.ndarray, info: Any) -> float:
        return -float(np.abs(achieved - desired).max() > 0.2)


class Hasty(Reach):
    """Tells of success in the first step of an episode alone."""

    def reset(self, **given: Any) -> Any:
        self.steps = 0
        return super().reset(**given)

    def step(self, action: np.ndarray) -> Any:
        *seen, info = super().step(action)
        self.steps += 1
        return *seen, info if self.steps == 1 else {}


def test_a_flag_that_was_seen_once_is_known() -> None:
    assert hilp.gym_task(Hasty).has_goals
    with pytest.raises(hilp.HilpError, match="does not say in info when a goal is reached"):
        hilp.gym_task(Reach, flag="arrived")


# ---- conformance -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["maze-medium", "antmaze-large", "walker", "gym:Pendulum-v1", "gym:MountainCarContinuous-v0", "gym:FetchReach-v4",
     "gym:PointMaze_UMaze-v3", "gym:hilp/Maze-v0", TABLE],
)  # fmt: skip
def test_every_task_passes_the_suite(name: str) -> None:
    if name.startswith(("gym:Fetch", "gym:Point")):
        pytest.importorskip("gymnasium_robotics")
    if name in ("antmaze-large", "walker"):
        pytest.importorskip("ogbench")
    testing.check_task(name)


class Broken:
    """A maze that does one thing wrong."""

    def __init__(self, **changes: Any) -> None:
        self._maze, self._changes = tasks.make("maze-medium"), changes

    def __getattr__(self, name: str) -> Any:
        return self._changes[name] if name in self._changes else getattr(self._maze, name)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"observation_dim": 3, "finite": lambda: None}, "observations are float32"),
        ({"episodes": lambda rng, n, **given: tasks.make("maze-medium").episodes(np.random.default_rng(), n)}, "seed"),
        ({"near": lambda observations, goals: np.zeros(len(observations), bool)}, "a goal is at itself"),
        ({"rewards": {"odd": lambda s, a, s2: np.zeros(2)}}, "reward 'odd' is one number a transition"),
        ({"place": lambda observations: observations[:, :1]}, "place"),
        ({"columns": None}, "columns names numbers of an observation"),
        ({"columns": {"x": 2}}, "columns has one that observations lack"),
    ],
)
def test_the_suite_tells_what_is_wrong(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        testing.check_task(Broken(**changes))  # type: ignore[arg-type]


# ---- spaces ----------------------------------------------------------------------------------------------------------


def test_actions_of_any_box_are_minus_one_to_one() -> None:
    box = gymnasium.spaces.Box(np.array([[-2.0, 0.0]], np.float32), np.array([[2.0, 10.0]], np.float32))
    actions = environments.Actions(box, "x")
    assert actions.dim == 2
    np.testing.assert_allclose(actions.raw(np.array([-1, -1])), [[-2, 0]])
    np.testing.assert_allclose(actions.raw(np.array([0.5, 7])), [[1, 10]])  # and no farther
    np.testing.assert_allclose(actions.scaled(np.array([[1.0, 5.0]])), [[0.5, 0.0]])


def test_columns_have_the_names_of_the_parts_of_an_observation() -> None:
    assert hilp.gym_task("Pendulum-v1").columns == {"observation_0": 0, "observation_1": 1, "observation_2": 2}
    assert hilp.gym_task(lambda: Reach(False)).columns == {"observation_0": 0, "observation_1": 1, "achieved_goal": 2}


@pytest.mark.parametrize("inside", [True, False])
def test_goals_are_columns_of_the_observation(inside: bool) -> None:
    world = hilp.gym_task(lambda: Reach(inside), max_steps=40)
    assert world.observation_dim == (2 if inside else 3)
    assert world.layout.goal_columns.tolist() == [1 if inside else 2]
    running = world.episodes(np.random.default_rng(0), 2)
    desired = running.extra("physics")[:, 1]
    np.testing.assert_allclose(running.goals[:, world.layout.goal_columns[0]], desired, rtol=1e-6)
    assert (running.goals[:, 0] == 7).all()  # the rest is that of a state
    fitted = world.for_data(np.full(world.observation_dim, 0.25))
    assert (fitted.episodes(np.random.default_rng(0), 2).goals[:, 0] == 0.25).all()
    testing.check_task(world)


def test_goals_look_like_usual_states_near_them() -> None:
    world = hilp.gym_task(Reach)
    states = np.stack([np.full(60, 7.0), np.linspace(0, 3, 60)], axis=1)
    states[25] = (999.0, 1.26)  # an odd one, and the nearest
    goals = world.for_states(states).episodes(np.random.default_rng(0), 1, goal=np.array([1.26])).goals
    np.testing.assert_allclose(goals, [[7.0, 1.26]], rtol=1e-6)
    assert hilp.gym_task("Pendulum-v1").for_states(states).goal_dim == 0


def test_an_episode_that_ends_stays_where_it_is_and_earns_nothing() -> None:
    world = hilp.gym_task(Reach, max_steps=40)
    assert world.action_dim == 1 and world.name == "Reach" and world.task is None
    running = world.episodes(np.random.default_rng(0), 2)
    best = np.array([[1.0], [-1.0]])  # raw 4 and raw 0
    was_there = False
    for _ in range(12):
        running.step(best)
        was_there |= bool(running.reached()[0])
    assert was_there and running.over.tolist() == [True, False]
    stopped = running.observations[0].copy()
    running.step(best)
    assert (running.observations[0] == stopped).all() and stopped[1] > 3


def test_a_goal_can_be_given_in_either_space() -> None:
    world = hilp.gym_task(Reach)
    for goal in ([1.5], [7.0, 1.5]):
        running = world.episodes(np.random.default_rng(0), 1, goal=np.array(goal))
        assert running.goals[0, 1] == 1.5
        start = running.observations[0, 1]
        for _ in range(round((1.5 - start) / 0.4)):
            running.step(np.ones((1, 1)))
        assert running.reached()[0]
    with pytest.raises(hilp.HilpError, match="an observation of 2 numbers or 1 of its goal space"):
        world.episodes(np.random.default_rng(0), 1, goal=np.zeros(5))
    with pytest.raises(hilp.HilpError, match="starts where its reset puts it"):
        world.episodes(np.random.default_rng(0), 1, start=np.zeros(2))


def test_policies_in_the_units_of_a_log(tiny: hilp.FoundationPolicy, change: Any) -> None:
    world = tasks.make("gym:Pendulum-v1")
    assert setup.task_for_policy(tiny, world) is world
    preparation = dataclasses.replace(
        tiny.preparation, action_center=np.zeros(2, np.float32), action_half_range=np.full(2, 2, np.float32)
    )
    own = setup.task_for_policy(change(tiny, preparation=preparation), world)
    paths = []
    for one, action in ((world, 0.5), (own, 1.0)):
        running = one.episodes(np.random.default_rng(0), 1)
        running.step(np.array([[action]]))
        paths.append(running.observations)
    assert np.array_equal(*paths)


# ---- mistakes --------------------------------------------------------------------------------------------------------


class Pixels(Reach):
    observation_space = gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8)  # type: ignore[assignment]

    def __init__(self) -> None: ...


def of_kind(**spaces_: Any) -> Any:
    class Odd(Reach):
        def __init__(self) -> None:
            super().__init__()
            for name, space in spaces_.items():
                setattr(self, name, space)

    return Odd


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: tasks.make("gym:Pendlum-v1"), "no Gymnasium environment .*did you mean 'gym:Pendulum-v1'"),
        (lambda: tasks.make("gym:Qqqqqq-v0"), "pprint_registry"),
        (lambda: tasks.make("gym:no spaces"), "no Gymnasium environment"),
        (lambda: hilp.gym_task(of_kind(action_space=gymnasium.spaces.MultiBinary(2))), "of the kind MultiBinary"),
        (lambda: tasks.make("gym:no_such_module:Env-v0"), "cannot be imported.*PYTHONPATH"),
        (lambda: tasks.make("gym:Pendulum-v1?g"), "key=value&key=value"),
        (lambda: tasks.make("gym:Pendulum-v1?nonsense=3"), "cannot be made"),
        (lambda: tasks.make("gym:Pendulum-v1?goal=3"), "is no text: write the task in a file"),
        (lambda: tasks.make("no_such_file.py:make"), "there is no file no_such_file.py"),
        (lambda: tasks.make(TABLE.replace(":make", ":mke")), "has no 'mke': did you mean 'make'"),
        (lambda: hilp.gym_task(3), "from an id, an environment or a function"),
        (lambda: hilp.gym_task(lambda: 3), "gives a int, not a Gymnasium environment"),
        (lambda: hilp.gym_task(Pixels), "pictures as observations"),
        (lambda: hilp.gym_task(of_kind(action_space=gymnasium.spaces.Box(-np.inf, np.inf, (1,)))), "without bounds"),
        (lambda: hilp.gym_task(of_kind(observation_space=gymnasium.spaces.Text(3))), "no vectors"),
        (lambda: hilp.gym_task("Pendulum-v1", goal=[1, 0, 0]), "goal= and success= together"),
        (lambda: hilp.gym_task("Pendulum-v1", goal=[1, 0], success=lambda s, g: s[:, 0] > 0), "3 numbers"),
        (lambda: hilp.gym_task(Reach, goal=[1, 0], success=lambda s, g: s[:, 0] > 0), "goals of its own"),
        (lambda: hilp.gym_task(lambda: Reach(flag="done")), "does not say in info when a goal is reached"),
        (lambda: hilp.gym_task("Pendulum-v1", place=(0, 9)), "two columns from 0 to 2"),
        (lambda: hilp.gym_task("Pendulum-v1", actions="mine"), "'unit' or 'own'"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(make: Any, told: str) -> None:
    with pytest.raises(hilp.HilpError, match=told) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_file_that_is_opened_runs_no_code(tmp_path: Path) -> None:
    """A task that data names is not run where its name is code, unless it was asked for."""
    trap = tmp_path / "trap.py"
    trap.write_text("raise SystemExit('ran')")
    for name in (f"{trap}:make", f"gym:{trap}:make", "gym:trap:Env-v0"):
        assert tasks.runs_user_code(name)
        with pytest.raises(hilp.HilpError, match="not run unasked: name it yourself with --task"):
            tasks.make_recorded(name)
    assert not tasks.runs_user_code("gym:Pendulum-v1?g=9") and not tasks.runs_user_code("maze-large")
    assert tasks.make_recorded("gym:Pendulum-v1?g=9").name == "gym:Pendulum-v1?g=9"


def test_values_of_a_name_reach_the_environment() -> None:
    world = tasks.make("gym:Pendulum-v1?g=9.5&max_steps=30")
    assert (world.pool[0].unwrapped.g, world.max_steps) == (9.5, 30)
    assert hilp.gym_task("Pendulum-v1", g=9.5).task == "gym:Pendulum-v1?g=9.5"


def test_an_object_is_copied_and_a_name_registered() -> None:
    env = gymnasium.make("Pendulum-v1", g=3.0)
    world = hilp.gym_task(env)
    assert world.pool[0].unwrapped.g == 3.0 and world.pool[0] is not env
    assert hilp.gym_task(Reach()).observation_dim == 2
    hilp.register_task("my-reach", lambda: Reach())
    hilp.register_task("my-task", world)
    try:
        assert tasks.make("my-reach").task == "my-reach" and tasks.make("my-task") is world
        assert "my-reach" in tasks.names()
        with pytest.raises(hilp.HilpError, match="did you mean 'my-reach'"):
            tasks.make("my-rech")
    finally:
        tasks._registered.clear()
    with pytest.raises(hilp.HilpError, match="registered with a function"):
        hilp.register_task("odd", 3)  # type: ignore[arg-type]


# ---- collecting ------------------------------------------------------------------------------------------------------


def test_collections_repeat_themselves_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "SHARD", 200)
    world = tasks.make("gym:Pendulum-v1?max_steps=20")
    whole = hilp.collect(world, "wander", 500, seed=1)
    assert (whole.transitions, whole.task) == (500, "gym:Pendulum-v1?max_steps=20")
    assert whole.lengths.tolist() == [21] * 25 and np.abs(whole.actions).max() <= 1
    assert hilp.collect(world, "wander", 500, seed=1).fingerprint == whole.fingerprint
    assert hilp.collect(world, "wander", 500, seed=2).fingerprint != whole.fingerprint
    calls = 0

    def stop(done: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hilp.collect(world, "wander", 500, 1, stop, out=tmp_path / "data")
    assert not (tmp_path / "data").exists()
    again = hilp.collect(world, "wander", 500, 1, out=tmp_path / "data")
    assert again.fingerprint == whole.fingerprint
    np.testing.assert_array_equal(again.extras["own_reward"], whole.extras["own_reward"])


def test_a_collection_does_not_go_on_with_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same words, but what they name was edited: half of the data would be of another behaviour."""
    monkeypatch.setattr(acting, "SHARD", 100)
    file = tmp_path / "actor.py"

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    file.write_text("def act(observation):\n    return [0.5, 0.5]\n")
    with pytest.raises(KeyboardInterrupt):
        hilp.collect(TABLE, f"{file}:act", 300, 0, stop, out=tmp_path / "data")
    file.write_text("def act(observation):\n    return [-0.5, -0.5]\n")
    with pytest.raises(hilp.HilpError, match="unfinished collection"):
        hilp.collect(TABLE, f"{file}:act", 300, 0, out=tmp_path / "data")
    file.write_text("def act(observation):\n    return [0.5, 0.5]\n")
    assert (hilp.collect(TABLE, f"{file}:act", 300, 0, out=tmp_path / "data").actions >= 0).all()


def test_the_reward_stands_in_the_row_it_led_to() -> None:
    data = hilp.collect(tasks.make("gym:Pendulum-v1?max_steps=5"), "random", 5)
    cos, sin, speed = np.asarray(data.observations[:-1], np.float64).T
    cost = np.arctan2(sin, cos) ** 2 + 0.1 * speed**2 + 0.001 * (2 * data.actions[:-1, 0]) ** 2
    np.testing.assert_allclose(data.extras["own_reward"][1:], -cost, rtol=1e-4)


def test_an_actor_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "actors.py"
    file.write_text(
        "import numpy as np\n"
        "def act(observation, rng):\n    return rng.uniform(0, 1, 2)\n"
        "def simple(observation):\n    return -np.sign(observation) * 0.5\n"
        "class Circle:\n"
        "    def __init__(self, rng):\n        self.angle = rng.uniform(0, 6)\n"
        "    def __call__(self, observation):\n"
        "        self.angle += 0.1\n        return [np.cos(self.angle), np.sin(self.angle)]\n"
        "def wild(observation):\n    return [0, 3]\n"
    )
    for name in ("act", "simple", "Circle"):
        data = hilp.collect(TABLE, f"{file}:{name}", 200)
        assert data.transitions == 200
        assert (data.actions[data.transition_rows] >= 0).all() or name != "act"
        assert hilp.collect(TABLE, f"{file}:{name}", 200).fingerprint == data.fingerprint
    in_a_maze = hilp.collect("maze-medium", f"{file}:act", 50)
    assert in_a_maze.task == "maze-medium" and (in_a_maze.actions >= 0).all()
    with pytest.raises(hilp.HilpError, match="an action is 2 numbers from -1 to 1"):
        hilp.collect(TABLE, f"{file}:wild", 200)
    with pytest.raises(hilp.HilpError, match=r"unknown kind .* data 'wandr': did you mean 'wander'"):
        hilp.collect(TABLE, "wandr", 200)


def test_episodes_that_end_are_cut() -> None:
    data = hilp.collect(hilp.gym_task(Reach, max_steps=40), "random", 300)
    assert data.transitions == 300 and data.lengths[0] < 41
    assert data.observations[data.lengths[0] - 1, 1] > 3
    assert acting.KINDS[0] == "wander"


# ---- the whole way, from the shell -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("table")
    settings = [f"{key}={'x'.join(map(str, v)) if isinstance(v, tuple) else v}" for key, v in SMALL.items()]
    assert main(["data", "collect", "--task", TABLE, "--out", str(folder / "data"), "--steps", "3000", "--json"]) == 0
    words = ["pretrain", "--data", str(folder / "data"), "--out", str(folder / "run"), "--steps", "60"]
    assert main([*words, "--set", *settings]) == 0
    yield folder
    for name in [name for name in sys.modules if name.startswith("own_task_")]:
        del sys.modules[name]


def test_from_collecting_to_a_report(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks._typed.clear()  # as a new process begins
    run = str(table / "run")
    assert main(["evaluate", run]) == 2
    assert "name it yourself with --task" in capsys.readouterr().err
    words = ["evaluate", run, "--task", TABLE, "--plan", "0", "--rewards", "right", "--episodes", "4", "--random"]
    assert main([*words, "--json", "--video", str(table / "film.gif")]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["metric"] for row in rows] == ["success", "return"]
    assert all("random" in row for row in rows) and rows[1]["score_scale"] == 1.0
    assert (table / "film-plan-0.gif").stat().st_size and (table / "film-reward-right.gif").stat().st_size
    words = ["prompt", run, "--task", TABLE, "--goal=0.5,0.5", "--picture", str(table / "p.png"), "--video"]
    assert main([*words, str(table / "p.gif"), "--rerun", str(table / "p.rrd")]) == 0
    film = [one for one in RrdReader(table / "p.rrd").stream().to_chunks() if one.entity_path == "/film"]
    steps = [step for one in film for step in one.to_record_batch()["frame_index"].to_pylist()]
    assert len(set(steps)) == len(steps) > 1, "a picture of every step"
    assert (table / "p.png").stat().st_size and (table / "p.gif").stat().st_size
    tasks._typed.clear()
    assert main(["report", run]) == 0 and "Trajectories" not in (table / "run" / "report.html").read_text()
    assert main(["report", run, "--task", TABLE]) == 0 and "Trajectories" in (table / "run" / "report.html").read_text()


def test_data_that_names_no_task_is_given_one(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = hilp.load(table / "data")
    np.savez(table / "log.npz", observations=data.observations, actions=data.actions, episode_lengths=data.lengths)
    log, small = str(table / "log.npz"), ["--set", "dim=4", "batch=32", "hidden=16x16", "actor_hidden=16x16"]
    assert main(["data", "convert", log, str(table / "native"), "--task", "hilp"]) == 2
    assert main(["data", "convert", log, str(table / "native"), "--task", TABLE]) == 0
    assert hilp.load(table / "native").task == TABLE
    assert hilp.load(log).task is None and hilp.load(log, task=TABLE).task == TABLE
    assert main(["pretrain", "--data", log, "--task", "antmaze-large", "--out", str(table / "no")]) == 2
    assert "has 2 observation and 2 action numbers, task antmaze-large has 29 and 8" in capsys.readouterr().err
    assert main(["pretrain", "--data", log, "--task", TABLE, "--out", str(table / "log"), "--steps", "3", *small]) == 0
    assert hilp.FoundationPolicy.load(table / "log" / "policy").provenance.task == TABLE
    bench = ["bench", "goals", "--data", log, "--methods", "gc-bc", "--seeds", "1", "--episodes", "3", "--steps", "3"]
    assert main([*bench, "--out", str(table / "bench"), "--json"]) == 2
    assert "name it with --task" in capsys.readouterr().err
    sweep = ["--sweep", "lr=0.001,0.01", "--set", "actor_hidden=16x16", "batch=32"]
    assert main([*bench, "--out", str(table / "bench"), "--task", TABLE, "--json", *sweep]) == 0
    assert [line[0] for line in json.loads(capsys.readouterr().out)["table"][1]] == ["gc-bc lr=0.001", "gc-bc lr=0.01"]


def test_the_own_reward_of_an_environment_is_a_prompt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = hilp.collect("gym:Pendulum-v1?max_steps=30", "wander", 900, out=tmp_path / "data")
    config = hilp.HILP(**SMALL)
    policy = hilp.pretrain(config, data, steps=20, out=tmp_path / "run", quiet=True)
    again = hilp.FoundationPolicy.load(tmp_path / "run" / "policy")
    np.testing.assert_array_equal(again.bank.next_extras["own_reward"], policy.bank.next_extras["own_reward"])
    (row,) = hilp.evaluate(again, "gym:Pendulum-v1?max_steps=30", episodes=2)
    assert row["reward"] == gym.OWN_REWARD and row["score"] < 0
    assert main(["prompt", str(tmp_path / "run"), "--reward", "own", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["return"] < 0 and told["steps"] == 30
    bench = ["bench", "rewards", "--data", str(tmp_path / "data"), "--methods", "hilp", "--seeds", "1", "--steps", "3"]
    small = ["--episodes", "2", "--set", "dim=4", "hidden=16x16", "--out", str(tmp_path / "bench"), "--json"]
    assert main([*bench, *small]) == 0
