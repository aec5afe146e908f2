"""Environments stepped by other processes: the same numbers as in one, mistakes as one line, and no process left."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

import hilp
from hilp import tasks
from hilp.cli import main
from hilp.collectors import acting
from hilp.evaluation.evaluate import evaluate_with_rollouts
from hilp.learning.methods import hilp as method
from hilp.policy.preparation import Preparation
from hilp.prompts.bank import Bank
from hilp.spec import Spec
from hilp.tasks import processes

# Observations of two numbers, as the tiny policy has them. It prints, and fails on request.
OWN = """
import os
import gymnasium
import numpy as np

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps = self.np_random.uniform(0, 5, 2), 0
        return self.at, {}

    def step(self, action):
        print("a step")
        self.at, self.steps = self.at + action, self.steps + 1
        if self.at[0] > 6.5:
            FAIL
        return self.at, 0.0, False, self.steps == 30, {}
"""


# The maze of the tiny policy as a goal environment.
GOALS = """
import gymnasium
from hilp.tasks.gym_maze import MazeEnv

class Env(MazeEnv):
    goal = property(lambda self: self._goal, lambda self, goal: setattr(self, "_goal", goal))

    def __init__(self):
        super().__init__("maze-medium")
        box = self.observation_space
        self.observation_space = gymnasium.spaces.Dict(observation=box, achieved_goal=box, desired_goal=box)

    def _observe(self):
        seen, info = super()._observe()
        parts = {"observation": seen, "achieved_goal": seen, "desired_goal": info["goal"]}
        return parts, {"is_success": info["distance"] < 0.5}
"""


def own(folder: Path, fail: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "own.py").write_text(OWN.replace("FAIL", fail))
    return f"{folder / 'own.py'}:Env"


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that a test starts here: they have ended when it has."""
    found: list[subprocess.Popen[bytes]] = []

    class Noted(processes.Worker):
        def __init__(self) -> None:
            super().__init__()
            found.append(self.process)

    monkeypatch.setattr(processes, "Worker", Noted)
    yield found
    assert all(one.poll() is not None for one in found)


# ---- the same numbers ------------------------------------------------------------------------------------------------


def untrained(world: Any, data: hilp.Dataset) -> hilp.FoundationPolicy:
    config = hilp.HILP(dim=4, hidden=(16,), actor_hidden=(16,), batch=32)
    spec = Spec(world.observation_dim, world.action_dim)
    core = method.export(config, method.init(config, spec, jax.random.key(0)))
    return hilp.FoundationPolicy(config, spec, core, Preparation.of(data, True), Bank.draw(data, 100, 0))


def test_rows_and_data_are_the_same_for_any_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[bytes]]
) -> None:
    """In MuJoCo; episodes end when the pole falls, at different times. A collection goes on with another number."""
    monkeypatch.setattr(acting, "SHARD", 50)
    name = "gym:InvertedPendulum-v5?max_episode_steps=40"
    whole = hilp.collect(name, "random", 300)
    assert len(set(whole.lengths.tolist())) > 3
    calls = 0

    def stop(done: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hilp.collect(name, "random", 300, progress=stop, out=tmp_path / "data", workers=2)
    assert [one.poll() for one in started] == [0, 0]
    again = hilp.collect(name, "random", 300, out=tmp_path / "data", workers=3)
    assert again.fingerprint == whole.fingerprint
    np.testing.assert_array_equal(again.extras["own_reward"], whole.extras["own_reward"])

    world = tasks.make(name)
    policy = untrained(world, whole)
    kept = []
    for workers in (1, 3):
        options: dict[str, Any] = {"episodes": 5, "seed": 1, "command": "x", "random": True, "workers": workers}
        ((row, rollout),) = evaluate_with_rollouts(policy, world, [hilp.Reward("own")], **options)
        kept.append((row, rollout.observations.tolist(), rollout.columns["physics"].tolist()))
    assert kept[0] == kept[1]
    assert len(set(kept[0][0]["outcomes"])) > 1


def test_goals_and_what_agents_remember_are_the_same(tiny: hilp.FoundationPolicy, tmp_path: Path) -> None:
    (tmp_path / "goals.py").write_text(GOALS)
    world = tasks.make(f"{tmp_path / 'goals.py'}:Env")
    prompts = [hilp.Goal(plan="auto"), hilp.Goal([2.5, 1.5], smooth=4)]
    rows = [hilp.evaluate(tiny, world, prompts, episodes=5, seed=3, command="x", workers=workers) for workers in (1, 3)]
    assert rows[0] == rows[1] and 0 < rows[0][0]["score"] < 1


@pytest.mark.parametrize(
    "name",
    [
        "antmaze-medium",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("cube-single", "scene", "puzzle-3x3")),
    ],
)
def test_episodes_of_ogbench_are_the_same(name: str) -> None:
    pytest.importorskip("ogbench")
    world, found = tasks.make(name), []
    for workers in (1, 2):
        with world.with_processes(workers) as shared:
            running, rng = shared.episodes(np.random.default_rng(0), 3), np.random.default_rng(1)
            for _ in range(20):
                running.step(rng.uniform(-1, 1, (3, world.action_dim)))
            found.append((running.observations.tolist(), running.goals.tolist(), running.reached().tolist()))
    assert found[0] == found[1]


def test_functions_without_a_name_are_sent_as_they_are() -> None:
    """Also an environment that only this process has registered."""
    if "Unshared-v0" not in gymnasium.registry:
        gymnasium.register("Unshared-v0", lambda: gymnasium.make("Pendulum-v1", g=3.0))
    world = hilp.gym_task(lambda: gymnasium.make("Unshared-v0"), max_steps=5)
    whole = hilp.collect(world, "random", 20)
    assert hilp.collect(world, "random", 20, workers=2).fingerprint == whole.fingerprint


def test_modules_beside_a_notebook_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python there looks in the current folder, whose name in sys.path is empty."""
    (tmp_path / "beside_a_notebook.py").write_text(
        "import gymnasium\n\ndef make():\n    return gymnasium.make('Pendulum-v1')"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    made = importlib.import_module("beside_a_notebook").make
    assert hilp.collect(hilp.gym_task(made, max_steps=5), "random", 10, workers=2).rows == 12


def test_a_process_imports_no_more_than_it_needs() -> None:
    code = f"import sys, {processes.__name__}; print([m for m in ('jax', 'equinox', 'scipy') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# ---- vector environments ---------------------------------------------------------------------------------------------


class Counted(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """One of its own kind: it takes one seed for all, and begins anew in the step of an end."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int = 1) -> None:
        self.num_envs = num_envs
        self.single_observation_space = self.single_action_space = gymnasium.spaces.Box(-9, 9, (1,))
        self.observation_space = self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.at = np.random.default_rng(int(seed)).uniform(0, 1, (self.num_envs, 1)).astype(np.float32)
        return self.at.copy(), {}

    def step(self, actions: np.ndarray) -> Any:
        self.at = self.at + 1
        over = self.at[:, 0] > 3.5
        seen, final = np.where(over[:, None], 0, self.at), np.array([*self.at, None], object)[:-1]
        return seen, self.at[:, 0], over, np.zeros_like(over), {"final_obs": final, "final_info": {}}


def test_a_vector_environment_gives_the_data_of_single_ones() -> None:
    """Whatever it does after an end; seeds belong to episodes."""
    single = hilp.collect(hilp.gym_task("InvertedPendulum-v5", max_episode_steps=20), "random", 150)
    assert len(set(single.lengths.tolist())) > 3

    for mode in AutoresetMode:
        world = hilp.gym_task(vectors("sync", autoreset_mode=mode), max_steps=20)
        found = hilp.collect(world, "random", 150, workers=2)  # which are for others
        assert found.fingerprint == single.fingerprint, mode
    with pytest.raises(hilp.HilpError, match="a vector environment, which is not filmed"):
        world.film(found.observations[:2], np.zeros((2, 2)))


def vectors(kind: str, **options: Any) -> Any:
    def make(num_envs: int = 1) -> Any:
        given = {"vectorization_mode": kind, "vector_kwargs": options, "max_episode_steps": 20}
        return gymnasium.make_vec("InvertedPendulum-v5", num_envs=num_envs, **given)

    return make


def test_a_vector_environment_of_processes() -> None:
    """Not forked: the threads of a process that has used JAX do not survive it."""
    found = []
    for made in (vectors("async", context="spawn"), lambda: gymnasium.make("InvertedPendulum-v5")):
        running, rng = hilp.gym_task(made).episodes(np.random.default_rng(0), 2), np.random.default_rng(1)
        for _ in range(15):
            running.step(rng.uniform(-1, 1, (2, 1)))
        found.append((running.observations.tolist(), running.over.tolist()))
    assert found[0] == found[1] and any(found[0][1])


def test_a_vector_environment_of_another_kind() -> None:
    data = hilp.collect(hilp.gym_task(Counted), "random", 24)
    assert set(data.lengths.tolist()) <= {4, 5}
    ends = np.cumsum(data.lengths) - 1
    assert (data.observations[ends[:-1], 0] > 3.5).all(), "an end is seen, not what begins after it"
    with pytest.raises(hilp.HilpError, match="give a function of num_envs that makes one"):
        hilp.gym_task(Counted())
    with pytest.raises(hilp.HilpError, match="of 2: let it take num_envs=1"):
        hilp.gym_task(lambda: Counted(2))


# ---- mistakes --------------------------------------------------------------------------------------------------------


def test_what_a_users_code_raises_is_the_same_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    task = own(tmp_path, "raise ValueError(f'at {self.at[0]:.9f}')")
    said = []
    for workers in ("1", "2"):
        words = ["data", "collect", "--task", task, "--out", str(tmp_path / "data"), "--workers", workers, "--json"]
        assert main([*words, "--steps", "2000"]) == 2
        out, err = capfd.readouterr()
        said.append([line for line in err.splitlines() if line.startswith("hilp: ")])
        assert workers == "1" or not out
    assert said[0] == said[1] and len(said[0]) == 1
    assert "own.py:19 raised ValueError: at 6." in said[0][0] and "--traceback" in said[0][0]
    with pytest.raises(hilp.HilpError) as caught:
        hilp.collect(task, steps=2000, workers=2)
    assert "in step" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("fail", "told"), [("os._exit(3)", "ended with code 3"), ("os.kill(os.getpid(), 9)", "was ended by SIGKILL")]
)
def test_a_process_that_is_lost_is_one_line(fail: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(hilp.HilpError, match=f"own.py:Env {told}: give the command again") as caught:
        hilp.collect(own(tmp_path, fail), steps=2000, workers=2)
    assert "\n" not in str(caught.value)


class Unsendable(gymnasium.Env[Any, Any]):
    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (2,))

    def reset(self, **_: Any) -> Any:
        return np.zeros(2, np.float32), {}


def test_what_cannot_be_sent_or_made_elsewhere_is_told() -> None:
    lock = threading.Lock()

    def make() -> Any:
        assert lock
        return Unsendable()

    with pytest.raises(hilp.HilpError, match=r"cannot be sent to other processes .*let a function in a file make it"):
        hilp.collect(hilp.gym_task(make), steps=20, workers=2)
    here = os.getpid()

    def only_here() -> Any:
        assert os.getpid() == here, "another process"
        return gymnasium.make("Pendulum-v1")

    with pytest.raises(hilp.HilpError, match="makes no environment: AssertionError: another process"):
        hilp.collect(hilp.gym_task(only_here), steps=20, workers=2)
    with pytest.raises(hilp.HilpError, match="workers must be at least 1, not 0"):
        hilp.collect("gym:Pendulum-v1", steps=20, workers=0)


# ---- interrupts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left(how: signal.Signals, tmp_path: Path) -> None:
    """Also none in the middle of a step that takes for ever. Ctrl-C is for the command, which then says one line."""
    stuck = tmp_path / "stuck"
    task = own(tmp_path, f"open({str(stuck)!r}, 'w').close(); import time; time.sleep(600)")
    words = ["data", "collect", "--task", task, "--out", str(tmp_path / "data"), "--steps", "9000", "--workers", "2"]
    code = "import sys; from hilp.cli import main; sys.exit(main())"
    with subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True) as command:
        until = time.monotonic() + 60
        while not stuck.exists() and time.monotonic() < until:
            time.sleep(0.02)
        command.send_signal(how)
        _, said = command.communicate(timeout=60)  # until all have ended that can write there
    own_lines = [line for line in said.replace("a step", "").splitlines() if line]  # of two at once
    assert own_lines == (["hilp: stopped"] if how == signal.SIGINT else [])
    assert not (tmp_path / "data").exists()
