"""Gymnasium tasks: columns by name against those of data, and values that an environment is made with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import hilp
from hilp.cli import main
from hilp.errors import HilpError
from hilp.evaluation import evaluate, setup, trajectories

ENV = '''
import gymnasium
import numpy as np


class Named(gymnasium.Env):
    """Two numbers by name, in the order that Gymnasium gives them."""

    one = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    observation_space = gymnasium.spaces.Dict({"speed": one, "angle": one})
    action_space = one

    def __init__(self, place=(0, 0), fails=False):
        self.where, self.fails = place, fails

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"speed": np.zeros(1, np.float32), "angle": np.ones(1, np.float32)}, {}

    def step(self, action):
        if self.fails:
            raise RuntimeError("the motor is hot")
        return {"speed": np.zeros(1, np.float32), "angle": np.ones(1, np.float32)}, 0.0, False, False, {}
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "named.py").write_text(ENV + "\n\ndef broken():\n    return Named(fails=True)\n")
    return tmp_path / "named.py"


def env_of(file: Path) -> Any:
    from hilp import plugins

    return plugins.from_file(f"{file}:Named")


def write_log(path: Path, columns: list[str]) -> Path:
    random = np.random.default_rng(0)
    lines = [",".join([*map(str, random.uniform(-1, 1, 2)), "0.5"]) for _ in range(60)]
    path.write_text("\n".join([",".join([*columns, "u"]), *lines]) + "\n")
    return path


def test_columns_in_another_order_than_the_tasks_are_refused(file: Path, tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", ["speed", "angle"])
    task = hilp.gym_task(env_of(file), max_steps=5)
    config = hilp.HILP(dim=4, hidden=(8, 8), actor_hidden=(8, 8), batch=8, phi_discount=0.9)
    for names, fits in ((["speed", "angle"], False), (["angle", "speed"], True)):
        data = hilp.load(log, columns={"observations": names, "actions": ["u"]})
        policy = hilp.pretrain(config, data, steps=1, bank=20, quiet=True)
        prompts = {"prompts": policy.skill(), "rewards": "own", "episodes": 1}
        if fits:
            assert hilp.evaluate(policy, task, **prompts)
            continue
        with pytest.raises(HilpError, match=r"'speed' as column 0, task Named as column 1.*angle, speed"):
            hilp.evaluate(policy, task, **prompts)
        with pytest.raises(HilpError, match="'speed' as column 0"):
            hilp.load(log, columns={"observations": names, "actions": ["u"]}, task=f"{file}:Named")


def test_values_of_the_environment_that_are_called_as_ours(file: Path) -> None:
    made = env_of(file)
    assert hilp.gym_task(made, env_values={"place": "lab"}).pool[0].where == "lab"
    assert hilp.gym_task(made, place=(1, 0)).pool[0].where == (0, 0)
    with pytest.raises(HilpError, match="env_values"):
        hilp.gym_task(made, place="lab")
    with pytest.raises(HilpError, match="gets 'fails' twice"):
        hilp.gym_task(made, fails=True, env_values={"fails": False})


def test_a_value_that_an_installed_environment_cannot_use_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert main(["data", "collect", "--task", "gym:Pendulum-v1?g=x", "--out", out, "--steps", "300"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "gym:Pendulum-v1?g=x fails in its own code" in error
    assert gymnasium.make("Pendulum-v1") and not list(tmp_path.iterdir())


def test_what_fails_in_the_users_own_environment_is_said_with_its_line(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["data", "collect", "--task", f"{file}:broken", "--out", str(tmp_path / "out"), "--steps", "300"]
    assert main([*command, "--workers", "1"]) == 2
    line = ENV.split("\n").index('            raise RuntimeError("the motor is hot")') + 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"{file}:{line} raised RuntimeError: the motor is hot" in error
    assert not (tmp_path / "out.partial").exists(), "the corrected command is not kept from working"


def test_an_observation_of_another_size_than_the_space_says_is_refused() -> None:
    class Short(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (6,))
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            super().reset(seed=seed)
            return np.zeros(6, np.float32), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return np.zeros(5, np.float32), 0.0, False, False, {}

    with pytest.raises(HilpError, match="gave an observation of 5 numbers, and its observation_space says 6"):
        hilp.collect(hilp.gym_task(Short, max_steps=5), "random", 20)


BALL = """
import gymnasium
import hilp
import numpy as np


class Ball(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9.0, 9.0, (3,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return self.at, {}

    def step(self, action):
        self.at = np.clip(self.at + action[0] / 10, -9, 9).astype(np.float32)
        return self.at, 0.0, False, False, {}


def limited():
    return gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.wrappers.TimeLimit(Ball(), 7))


def short(**more):
    far = {"goal": lambda rng: np.full(3, 8.0), "success": lambda s, g: np.abs(s - g).max(axis=1) < 0.1}
    return hilp.gym_task(limited, max_steps=50, **far, **more)


def named():
    return short(columns=["x", "y", "yaw"])
"""


@pytest.fixture
def ball(tmp_path: Path) -> Path:
    (tmp_path / "ball.py").write_text(BALL)
    return tmp_path / "ball.py"


def policy_of(names: list[str]) -> hilp.FoundationPolicy:
    rng = np.random.default_rng(0)
    log = {name: rng.uniform(-1, 1, 90) for name in [*names, "u"]} | {"run": np.arange(90) // 30}
    data = hilp.load(log, columns={"observations": names, "actions": ["u"], "episode_ids": "run"})
    config = hilp.HILP(dim=2, hidden=(4,), actor_hidden=(4,), batch=8)
    return hilp.pretrain(config, data, steps=1, bank=50, quiet=True)


def test_the_time_limit_of_any_wrapper_counts(ball: Path) -> None:
    assert hilp.make_task(f"{ball}:limited").max_steps == 7


def test_what_episodes_that_end_before_the_limit_leave_can_be_drawn_again(ball: Path, tmp_path: Path) -> None:
    """They end after 7 steps, and the task says 50: no file may hold lengths that its observations do not have."""
    policy = policy_of(["x", "y", "yaw"])
    found = evaluate.evaluate_with_rollouts(policy, hilp.make_task(f"{ball}:short"), plan=0, episodes=3)
    assert found[0][0]["lengths"] == [7, 7, 7]
    trajectories.save(tmp_path / "kept", found)
    (kept,) = trajectories.read(tmp_path / "kept")
    assert kept.rollout.observations.shape == (8, 3, 3)


def test_columns_of_a_plain_environment_have_names(ball: Path) -> None:
    """Those that the task gives them, or those of the log that the policy is of."""
    assert dict(hilp.make_task(f"{ball}:named").columns) == {"x": 0, "y": 1, "yaw": 2}
    policy = policy_of(["east", "north", "yaw"])
    world = setup.acting_task(policy, hilp.make_task(f"{ball}:short"))
    assert dict(world.columns) == {"east": 0, "north": 1, "yaw": 2}
    found = setup.find_goal("north=0.5", policy, world, goal_dims=[1])
    assert found.observation[1] == 0.5 and np.isfinite(found.observation).all()
    with pytest.raises(HilpError, match=r"also needs east, yaw \(or say that they do not matter: --goal-dims north\)"):
        setup.find_goal("north=0.5", policy, world)


@pytest.mark.parametrize("columns", [["x", "y"], ["x", "x", "y"], "xyz", 3, ["x", "", "y"], [1, 2, 3]])
def test_names_that_are_no_columns_are_refused(columns: Any, ball: Path) -> None:
    from hilp import plugins

    with pytest.raises(HilpError, match="columns of limited are 3 names, each once"):
        plugins.from_file(f"{ball}:short")(columns=columns)


def test_a_file_of_code_without_a_name_is_no_map(ball: Path, refused: Any) -> None:
    told = refused("data", "collect", "--task", ball, "--out", "never")
    assert f"name the function or class in it that makes the task, {ball}:make" in told


def test_workers_of_a_vector_environment_are_not_ignored_silently(capsys: pytest.CaptureFixture[str]) -> None:
    task = hilp.gym_task(lambda num_envs=1: gymnasium.make_vec("CartPole-v1", num_envs=num_envs))
    with task.with_processes(2):
        assert "hilp: workers change nothing: " in capsys.readouterr().err
