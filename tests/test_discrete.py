"""Discrete actions: one spec, one head for all methods; files, tasks, exports, and what people get wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hilp
from hilp import export, testing
from hilp.cli import main
from hilp.data.audit import inspect
from hilp.data.convert import convert
from hilp.data.dataset import Dataset
from hilp.data.transforms import OneHot
from hilp.evaluation import held_out
from hilp.learning import actors, methods, networks
from hilp.policy import listening
from hilp.policy.preparation import Preparation
from hilp.prompts.bank import Bank
from hilp.prompts.memory import REMEMBERED, TriedChoices
from hilp.spec import Spec
from shapes import drawn_core, emitted
from test_methods import FIRST, config_of

CONTINUOUS = ("gc-cql",)  # methods without a discrete form
DISCRETE = [name for name in FIRST if name not in CONTINUOUS]
SPEC = Spec(3, 4, choices=4)  # as networks see it
TINY = {"dim": 4, "hidden": (16,), "actor_hidden": (16,), "batch": 32}


def arrays(actions: Any, rows: int = 60) -> dict[str, Any]:
    """Three episodes of a walk along one axis."""
    seen = np.cumsum(np.ones((rows, 2), np.float32), axis=0)
    return {"observations": seen, "actions": actions, "episode_lengths": [rows // 3] * 3}


def counted(rows: int = 60, choices: int = 3) -> np.ndarray:
    return np.arange(rows) % choices


# ---- heads and critics, by hand --------------------------------------------------------------------------------------


def test_the_log_probability_of_a_choice() -> None:
    actor = actors.CategoricalActor(2, (5,), 3, jax.random.key(0), 3)
    x, chosen = jnp.array([[1.0, -2.0], [0.5, 0.5]]), np.array([2, 0])
    logits = np.asarray(actor(x), np.float64)
    by_hand = logits[[0, 1], chosen] - np.log(np.exp(logits).sum(axis=1))
    np.testing.assert_allclose(actor.log_prob(x, jnp.eye(3)[chosen]), by_hand, rtol=1e-5)
    assert float(actors.bc_loss(actor, x, jnp.eye(3)[chosen])) == pytest.approx(-by_hand.mean(), rel=1e-5)
    advantage = jnp.array([0.5, -1.0])
    loss, weight = actors.awr_loss(actor, x, jnp.eye(3)[chosen], advantage, 2.0, 2.0)
    weights = np.array([2.0, np.exp(-2.0)])  # the first, e, is cut
    assert float(loss) == pytest.approx(-(weights * by_hand).mean(), rel=1e-5)
    assert float(weight) == pytest.approx(weights.mean(), rel=1e-6)
    np.testing.assert_array_equal(actor.act(x), actor(x))  # scores: nothing is clipped


def test_a_chunk_of_choices_counts_its_real_steps() -> None:
    actor = actors.CategoricalActor(1, (4,), 6, jax.random.key(1), 3)
    x = jnp.ones((1, 1))
    logits = np.asarray(actor(x), np.float64).reshape(2, 3)
    steps = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    chunk = jnp.array([[0.0, 1.0, 0.0, 0.0, 0.0, 0.0]])  # behind the end there is nothing
    real = jnp.array([[True] * 3 + [False] * 3])
    np.testing.assert_allclose(actor.log_prob(x, chunk, real=real), [steps[0, 1]], rtol=1e-5)
    both = jnp.array([[0.0, 1.0, 0.0, 0.0, 0.0, 1.0]])
    np.testing.assert_allclose(actor.log_prob(x, both), [steps[0, 1] + steps[1, 2]], rtol=1e-5)


def test_ddpg_bc_climbs_the_mean_over_choices() -> None:
    actor, x = actors.CategoricalActor(1, (4,), 3, jax.random.key(2), 3), jnp.ones((2, 1))
    worth = jnp.array([1.0, -2.0, 4.0])
    own = np.asarray(jax.nn.softmax(actor(x))) @ np.asarray(worth)
    np.testing.assert_allclose(actor.expected(lambda action: action @ worth, x), own, rtol=1e-5)
    loss, mean = actors.ddpg_bc_loss(actor, lambda action: action @ worth, x, jnp.eye(3)[jnp.array([0, 1])], 0.0)
    assert float(mean) == pytest.approx(own.mean(), rel=1e-5)
    assert float(loss) == pytest.approx(-own.mean() / np.abs(own).mean(), rel=1e-5)


def test_a_critic_foretells_all_choices() -> None:
    psi = networks.SuccessorMap(SPEC, 2, (6, 5), 7, 3, jax.random.key(0))
    s, z = jax.random.normal(jax.random.key(1), (5, 3)), jax.random.normal(jax.random.key(2), (5, 2))
    each = np.stack([psi(s, jnp.tile(one, (5, 1)), z) for one in jnp.eye(4)])  # choices x heads x batch x out
    assert each.shape == (4, 2, 5, 3)
    shares = jax.nn.softmax(jax.random.normal(jax.random.key(3), (5, 4)))
    np.testing.assert_allclose(psi(s, shares, z), np.einsum("ahbd,ba->hbd", each, shares), rtol=1e-4, atol=1e-5)
    joined = jnp.concatenate([psi.state_action(s), psi.state_skill(jnp.concatenate([s, z], axis=1))], axis=1)
    layers = np.asarray(psi.heads[1](joined)).reshape(5, 4, 3)
    np.testing.assert_allclose(each[2, 1], layers[:, 2], rtol=1e-5)


def test_the_zero_shot_actor_is_a_softmax_of_the_smaller_values() -> None:
    weight = 0.5  # of staying with the data
    actor = actors.skilled(SPEC, 2, (6, 5), 7, jax.random.key(0))
    assert isinstance(actor, actors.SoftmaxActor)
    s, z = jnp.ones((2, 3)), jnp.zeros((2, 2))
    heads = jnp.array([[1.0, 2.0, 0.0, 4.0], [3.0, 0.0, 1.0, 2.0]])  # of two critics, the same in all states
    did = jnp.eye(4)[jnp.array([1, 3])]

    def q(action: jax.Array) -> jax.Array:
        return jnp.einsum("ha,ba->hb", heads, action)

    loss = actors.td3_loss(actor, q, s, z, jnp.zeros((2, 4)), did, weight)
    value = np.array([1.0, 0.0, 0.0, 2.0])  # the smaller of each
    scaled = value / (actors.SHARPNESS * value.std() + actors.TINY)
    wanted = np.exp(scaled - scaled.max()) / np.exp(scaled - scaled.max()).sum()
    logits = np.asarray(actor(s, z), np.float64)
    log_prob = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    by_hand = -((wanted + weight * np.asarray(did)) * log_prob).sum(axis=1).mean()
    assert float(loss) == pytest.approx(by_hand, rel=1e-4)
    np.testing.assert_allclose(actor.explore(s, z, jnp.ones((2, 4))), np.exp(log_prob), rtol=1e-5)


def test_one_hot_rows_are_what_was_chosen() -> None:
    stored = np.array([[2], [0], [1]], np.uint8)
    rows = OneHot(stored, 3)
    assert rows.shape == (3, 3) and len(rows) == 3
    np.testing.assert_array_equal(np.asarray(rows), [[0, 0, 1], [1, 0, 0], [0, 1, 0]])
    inside = jax.jit(lambda rows, at: rows[at])(jax.tree.map(jnp.asarray, rows), jnp.array([[0, 1], [2, 2]]))
    np.testing.assert_array_equal(inside, np.asarray(rows)[np.array([[0, 1], [2, 2]])])
    prepared = Preparation.of(testing.small_data(choices=3), False)
    np.testing.assert_array_equal(prepared.inside(np.array([[2.0], [0.0]])), [[0, 0, 1], [1, 0, 0]])


# ---- every method ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DISCRETE)
def test_every_other_method_answers_scores(name: str) -> None:
    config, data = config_of(name), testing.small_data(choices=3)
    testing.check_contract(config, choices=3)
    core = drawn_core(config, data.network_spec)
    shape = jax.eval_shape(core.act, data.observations[:5], jnp.zeros((5, core.skill_dim))).shape
    assert shape == (5, 3)


@pytest.mark.parametrize("name", ["crl", "gc-bc", "hilp", "sf-hilp"])  # a kind of loss of the actor each
def test_updates_take_choices(name: str) -> None:
    """By their shapes."""
    assert "actor_loss" in emitted(config_of(name), testing.small_data(choices=3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "check"),
    [pytest.param(n, c, id=f"{n}-{c.__name__}") for n in DISCRETE for c in testing.CHECKS],
)
def test_conformance(name: str, check: Callable[..., None]) -> None:
    check(config_of(name), 3)


def test_a_zero_shot_method_is_trained_saved_and_loaded() -> None:
    testing.check_artifact(config_of("fb"), 3)


@pytest.mark.parametrize(
    ("method", "changes", "told"),
    [
        ("gc-cql", {}, "gc-cql has no form for discrete actions, and this data has 3: choose another method"),
        ("hilp", {"actor": "flow"}, "the actor 'flow' has no form .*leave out --set actor=flow"),
        ("hilp", {"chunk": 2, "extraction": "ddpg+bc"}, "ddpg.bc with a chunk has no form"),
    ],
)
def test_what_has_no_discrete_form_says_so(method: str, changes: Any, told: str, tmp_path: Path) -> None:
    config = methods.configure(config_of(method), changes)
    with pytest.raises(hilp.HilpError, match=told):
        hilp.pretrain(config, testing.small_data(choices=3), steps=2, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


# ---- a policy --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A policy with a graph, on data of a real environment, and where it was trained."""
    folder = tmp_path_factory.mktemp("line")
    data = hilp.collect("gym:CartPole-v1", "wander", 600, out=folder / "data")
    config = methods.config("hilp", **TINY, normalize=True)
    return hilp.pretrain(config, data, steps=20, out=folder / "run", validation=0.3, quiet=True), data, folder


def test_a_collected_environment_is_stored_compactly(line: Any) -> None:
    _, data, folder = line
    assert (data.actions.dtype, data.actions.shape[1], data.choices) == (np.uint8, 1, 2)
    assert {0, 1} == set(np.unique(data.actions[data.transition_rows]))
    again = Dataset.open(folder / "data", verify=True)
    assert again.choices == 2 and again.fingerprint == data.fingerprint
    assert data.fingerprint != replace(data, choices=3).fingerprint


def test_it_answers_what_an_environment_takes(line: Any) -> None:
    policy, data, folder = line
    env = gymnasium.make("CartPole-v1")
    seen, _ = env.reset(seed=0)
    go = policy.goal(np.zeros(4))
    action = policy.act(seen, go)
    assert isinstance(action, np.int64) and env.action_space.contains(action)
    env.step(action)
    batch = policy.act(data.observations[:7], policy.goal(np.zeros(4), plan="auto"))
    assert batch.shape == (7,) and batch.dtype == np.int64
    again = hilp.FoundationPolicy.load(folder / "run")
    assert again.fingerprint == policy.fingerprint and again.spec == Spec(4, 1, choices=2)
    np.testing.assert_array_equal(again.act(data.observations[:7], again.goal(np.zeros(4), plan="auto")), batch)
    number = listening.listening(policy)
    assert number is not None and 0.0 <= number <= 2.0
    score = held_out.advised([{"plan": 0, "estimated_steps": 3.0, "lengths": [3]}])
    assert score == 0
    rows = data.transition_rows
    near = held_out.agreement(policy, data, rows, rows + 1, 0)
    assert near["agreement"] is not None and 0.0 <= near["agreement"] <= 1.0


def test_a_resumed_run_ends_in_the_same_bits(line: Any, tmp_path: Path) -> None:
    policy, data, _ = line
    options: dict[str, Any] = {"out": tmp_path / "run", "validation": 0.3, "quiet": True}
    hilp.pretrain(policy.config, data, steps=8, **options)
    assert hilp.pretrain(policy.config, data, steps=20, resume=True, **options).fingerprint == policy.fingerprint


def test_it_is_measured_in_its_task(line: Any) -> None:
    policy, _, _ = line
    task = hilp.gym_task("CartPole-v1", reward={"upright": lambda s, a, s2: 1.0 - np.abs(s2[:, 2])})
    (row,) = hilp.evaluate(policy, task, prompts=[hilp.Reward("upright")], episodes=2, random=True)
    assert row["metric"] == "return" and 5 <= row["score"] <= 500 and 5 <= row["random"] <= 100
    told = "this policy has 4 observation and 2 discrete actions, task .* has 3 and 1 action numbers"
    with pytest.raises(hilp.HilpError, match=told):
        hilp.evaluate(policy, "gym:Pendulum-v1", prompts=[hilp.Reward("own")], episodes=1)


def test_exports_choose_alike(line: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, data, _ = line
    seen, z = data.observations[:9], np.asarray(policy.project(np.ones(policy.skill_dim)), np.float32)
    export.write(policy, "numpy", tmp_path / "numpy")
    runtime = export.numpy_folder.load(tmp_path / "numpy")
    robot = runtime.load(tmp_path / "numpy")
    np.testing.assert_array_equal(robot.act(seen, z), policy.act(seen, z))
    action = robot.act(seen[0], robot.goal(seen[5], plan="auto"))
    assert isinstance(action, np.int64) and action == policy.act(seen[0], policy.goal(seen[5], plan="auto"))
    theirs, ours = robot.goal(seen[5], plan=0), policy.goal(seen[5], plan=0)
    assert [robot.act(seen[0], theirs) for _ in range(3)] == [policy.act(seen[0], ours) for _ in range(3)]
    onnxruntime = pytest.importorskip("onnxruntime")
    facts = export.write(policy, "onnx", tmp_path / "onnx")
    assert facts["graphs"] == ["act", "encode", "goal", "target"]
    session = onnxruntime.InferenceSession(str(tmp_path / "onnx" / "act.onnx"))
    found, scores = session.run(None, {"observation": seen, "skill": np.tile(z, (9, 1))})
    assert found.dtype == np.int64 and scores.shape == (9, 2)
    np.testing.assert_array_equal(found, policy.act(seen, z))


def test_a_high_level_over_discrete_skills(line: Any, tmp_path: Path) -> None:
    policy, data, _ = line
    config = methods.config("iql", hidden=(8,), actor_hidden=(8,), batch=16, k=3)
    prompt = hilp.hierarchy(policy, data, "observation[0]", config=config, steps=3, quiet=True)
    assert policy.act(data.observations[0], prompt) in (0, 1)


def test_chunks_of_choices_are_played_one_by_one() -> None:
    data = testing.small_data(choices=3)
    config = methods.config("gc-bc", actor_hidden=(8,), batch=16, chunk=3)
    core = drawn_core(config, data.network_spec)
    policy = hilp.FoundationPolicy(config, data.spec, core, Preparation.of(data, False), Bank.draw(data, 50, 0))
    seen, go = data.observations[0], policy.goal(data.observations[9])
    first = policy.chosen(policy.rule("act", policy.check(seen), policy.goal_skill(data.observations[9])[None]))
    assert first.shape == (1, 3, 1)
    assert [int(policy.act(seen, go)) for _ in range(3)] == first[0, :, 0].tolist()


def test_who_comes_back_to_a_state_takes_another_choice() -> None:
    tried, goal = TriedChoices(), np.array([[9.0]])
    scores = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    both = np.array([True, True])

    def chosen(first: float, second: float, active: np.ndarray = both) -> list[int]:
        seen = np.array([[first], [second]])
        return tried.untried(scores, seen, np.broadcast_to(goal, seen.shape), active).argmax(axis=1).tolist()

    assert chosen(0.0, 0.0) == [0, 0]
    assert chosen(0.0, 1.0, np.array([True, False])) == [1, 0], "the second is elsewhere, and does nothing"
    assert chosen(0.0, 1.0) == [2, 0]
    assert chosen(0.0, 0.0) == [0, 1], "the first has made all three once"
    assert chosen(9.0, 5.0) == chosen(9.0, 6.0) == [0, 0], "who is at the goal stays"
    assert chosen(0.0, 0.0) == [0, 2], "and has forgotten the way there"
    tried.reset([1])
    assert chosen(5.0, 0.0) == [0, 0], "a new episode"
    for step in range(REMEMBERED):
        chosen(100.0 + step, 0.0)
    assert chosen(0.0, 2.0) == [0, 0], "long ago"


def test_goals_alone_and_side_by_side_try_the_same_choices(line: Any) -> None:
    policy, data, _ = line
    seen, there = data.observations[0], data.observations[9]
    alone, beside = policy.goal(there, plan=0), policy.goal(there, plan=0).then(policy.goal(seen), until=100)
    one = [int(policy.act(seen, alone)) for _ in range(3)]
    two = [policy.act(np.stack([seen, there]), beside).tolist() for _ in range(3)]
    assert one[0] == one[2] != one[1], "of two choices"
    assert [first for first, _ in two] == one
    assert len({second for _, second in two}) == 1, "who is at the goal stays"
    alone.reset()
    assert int(policy.act(seen, alone)) == one[0]
    assert alone.latent_ema is None, "choices are not smoothed"


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(60,), (60, 1)])
@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_whole_numbers_of_few_values_are_choices(shape: Any, kind: Any) -> None:
    data = hilp.load(arrays(counted().astype(kind).reshape(shape)))
    assert data.choices == 3 and data.actions.dtype == np.uint8 and data.actions.shape == (60, 1)
    assert any("taken as 3 discrete ones" in note for note in data.notes)
    np.testing.assert_array_equal(data.actions[data.transition_rows, 0], counted()[data.transition_rows])


def test_a_flag_counts_as_two_choices() -> None:
    assert hilp.load(arrays(counted() > 0)).choices == 2


def test_what_the_user_says_goes_first() -> None:
    assert hilp.load(arrays(counted()), discrete_actions=7).choices == 7
    assert hilp.load(arrays(counted().astype(np.float32)[:, None]), discrete_actions="auto").choices == 3
    numbers = hilp.load(arrays(counted(choices=2)), discrete_actions="none")
    assert numbers.choices == 0 and numbers.actions.dtype == np.float32
    many = hilp.load(arrays(counted() * 300), discrete_actions=601)
    assert many.actions.dtype == np.uint16 and many.actions.max() == 600


def test_floats_and_wide_ranges_are_numbers_unasked() -> None:
    assert hilp.load(arrays((counted() - 1.0)[:, None])).choices == 0
    for wide in (counted() * 250, counted() - 1):  # ticks, and what goes both ways
        found = inspect(arrays(wide))
        assert found.choices == 0
    assert inspect(arrays(counted() * 250)).errors[0].startswith("actions leave [-1, 1]")


@pytest.mark.parametrize(
    ("actions", "options", "told"),
    [
        (counted() - 1, {"discrete_actions": 3}, r"actions are -1 in rows .*whole numbers from 0 to 2"),
        (counted(), {"discrete_actions": 2}, r"actions are 2 in rows 2, 5.*2 discrete actions .* from 0 to 1"),
        (counted()[:, None] + 0.5, {"discrete_actions": "auto"}, r"actions are 0.5, 1.5, 2.5 in rows"),
        (np.where(counted() == 1, np.nan, 1.0)[:, None], {"discrete_actions": 2}, "actions are nan in rows"),
        (np.stack([counted()] * 2, axis=1), {"discrete_actions": 3}, "one whole number, these have 2 numbers"),
        (counted(), {"discrete_actions": 1}, "discrete_actions is how many there are"),
        (counted(), {"discrete_actions": "some"}, "discrete_actions is how many there are"),
        (counted(), {"rescale_actions": True}, "3 discrete actions, which are not rescaled"),
        (counted(), {"stride": 2}, "discrete actions, of which a stride makes no mean"),
    ],
)
def test_mistakes_are_one_line(actions: Any, options: Any, told: str) -> None:
    with pytest.raises(hilp.HilpError, match=told) as error:
        hilp.load(arrays(actions), **options)
    assert "\n" not in str(error.value)


def test_a_data_set_by_hand_is_checked() -> None:
    data = testing.small_data(choices=3)
    with pytest.raises(hilp.HilpError, match="2 discrete actions are whole numbers from 0 to 1, not 0 to 2"):
        hilp.pretrain(
            methods.config("gc-bc"), Dataset(data.observations, data.actions, data.lengths, choices=2), steps=1
        )
    floats = Dataset(data.observations, data.actions.astype(np.float32), data.lengths, choices=3)
    with pytest.raises(hilp.HilpError, match="one whole number a row"):
        hilp.pretrain(methods.config("gc-bc"), floats, steps=1)


def test_files_keep_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "log.npz", **{k: np.asarray(v) for k, v in arrays(counted()).items()})
    assert hilp.load(convert(tmp_path / "log.npz", tmp_path / "native")).choices == 3
    assert main(["data", "inspect", str(tmp_path / "log.npz"), "--discrete-actions", "5"]) == 0
    shown = capsys.readouterr().out
    assert "one of 5, discrete" in shown and "0 to 2 of 0 to 4" in " ".join(shown.split())
    lines = ["run,x,key", *(f"{row // 20},{row},{row % 3}" for row in range(60))]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    named = {"columns": {"observations": ["x"], "actions": ["key"], "episode_ids": "run"}}
    (warned,) = [w for w in inspect(tmp_path / "log.csv", **named).warnings if "whole numbers" in w.what]
    assert "--discrete-actions auto" in warned.do
    assert hilp.load(tmp_path / "log.csv", discrete_actions="auto", **named).choices == 3


def test_minari_says_how_many_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    convert(arrays(counted()), "walk/count-v0", to="minari", discrete_actions=4)
    theirs = minari.load_dataset("walk/count-v0")
    assert theirs.spec.action_space == gymnasium.spaces.Discrete(4)
    episode = next(iter(theirs.iterate_episodes()))
    np.testing.assert_array_equal(episode.actions, counted()[:19])
    again = hilp.load("walk/count-v0")
    assert again.choices == 4 and again.actions.dtype == np.uint8


# ---- tasks -----------------------------------------------------------------------------------------------------------


class Counted(gymnasium.Env):
    """A place that five actions, -2 to 2, move; the last observation of an episode is far away."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(5, start=-2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at = self.np_random.normal(size=1).astype(np.float32)
        return self.at.copy(), {}

    def step(self, action: int) -> Any:
        assert self.action_space.contains(action), action
        self.at += action
        return self.at.copy(), float(action), False, False, {}


def counted_task() -> Any:
    return hilp.gym_task(
        Counted, goal=lambda rng: rng.normal(size=1), success=lambda s, g: np.abs(s - g)[:, 0] < 1e9, max_steps=5,
        name="counted",
    )  # fmt: skip


def test_a_discrete_task_passes_the_conformance_suite() -> None:
    testing.check_task(hilp.gym_task(Counted, max_steps=5, name="counted"))


def test_choices_begin_with_zero_whatever_the_space_says(tmp_path: Path) -> None:
    task = hilp.gym_task(Counted, max_steps=20, name="counted")
    for kind in ("random", "wander"):
        data = hilp.collect(task, kind, 100)
        moved = data.observations[data.transition_rows + 1] - data.observations[data.transition_rows]
        np.testing.assert_allclose(moved, data.actions[data.transition_rows].astype(float) - 2, atol=1e-4)
    (tmp_path / "act.py").write_text("def act(observation):\n    return 5\n")
    with pytest.raises(hilp.HilpError, match="an action of counted is a whole number from 0 to 4, not 5"):
        hilp.collect(task, f"{tmp_path / 'act.py'}:act", 10)


def test_episodes_that_are_done_rest() -> None:
    task = counted_task()
    running = task.episodes(np.random.default_rng(0), 2)  # at their goal from the start
    before = running.observations.copy()
    running.step(np.array([[-1], [-1]]))
    np.testing.assert_array_equal(running.observations, before)
    running.step(np.array([0, 0]))  # an action like any other
    np.testing.assert_allclose(running.observations, before - 2, atol=1e-5)
    for odd in (7, 0.5):
        with pytest.raises(hilp.HilpError, match="a whole number from 0 to 4"):
            running.step(np.array([odd, 0]))


def test_spaces_of_several_choices_are_refused_in_one_line() -> None:
    class Several(Counted):
        action_space = gymnasium.spaces.MultiDiscrete([2, 2])

    with pytest.raises(hilp.HilpError, match="so that it numbers their combinations"):
        hilp.gym_task(Several)


# ---- MiniGrid --------------------------------------------------------------------------------------------------------


def test_rooms_are_one_world_with_many_starts() -> None:
    pytest.importorskip("minigrid")
    task = hilp.make_task("minigrid-four-rooms")
    testing.check_task(task, 2)
    assert (task.choices, task.observation_dim, task.max_steps) == (3, 6, 100)
    running = task.episodes(np.random.default_rng(0), 2)
    seen = running.observations.copy()
    running.step(np.array([0, 1]))  # left, right
    faced = seen[:, 2:].argmax(axis=1)
    np.testing.assert_array_equal(running.observations[:, 2:].argmax(axis=1), (faced + np.array([3, 1])) % 4)
    np.testing.assert_array_equal(running.observations[:, :2], seen[:, :2])


def test_a_key_opens_the_door() -> None:
    pytest.importorskip("minigrid")
    task = hilp.make_task("minigrid-door-key-5x5")
    running = task.episodes(np.random.default_rng(3), 1)
    names = list(task.columns)
    assert names == [
        "at_0",
        "at_1",
        "carrying",
        "door_0",
        "door_1",
        *(f"facing_{n}" for n in range(4)),
        "key_0",
        "key_1",
    ]
    rng, told = np.random.default_rng(0), set()
    for _ in range(task.max_steps):
        running.step(rng.integers(task.choices, size=(1, 1)))
        row = dict(zip(names, running.observations[0].tolist(), strict=True))
        told.add((row["carrying"], row["door_0"], row["door_1"]))
        assert (row["carrying"] == 1) == ((row["key_0"], row["key_1"]) == (0, 0))
    assert (0.0, 0.0, 1.0) in told and (1.0, 0.0, 1.0) in told  # the door is locked, also with the key in hand
    goal = dict(zip(names, running.goals[0].tolist(), strict=True))
    assert (goal["at_0"], goal["at_1"], goal["carrying"], goal["door_0"]) == (3, 3, 1, 1)


def test_without_minigrid_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minigrid", None)
    with pytest.raises(hilp.HilpError, match=r"pip install 'hilp\[minigrid\]'"):
        hilp.make_task("minigrid-four-rooms")
