"""Chunks: actors that answer several actions at once, what they learn from, and how a policy plays them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hilp
from hilp import HilpError, export, testing
from hilp.export import numpy_folder
from hilp.learning import actors, methods, sampling
from hilp.learning.methods import gciql
from hilp.learning.methods import hilp as method
from hilp.learning.sampling import Batch
from hilp.spec import Spec
from hilp.training import auto_config
from test_export import untrained
from test_methods import SMALL, config_of

DATA = testing.small_data()
CHUNKED = ("gc-bc", "gc-iql", "hilp")
CHECKS = [testing.check_samples, testing.check_one_trace, testing.check_chunks, testing.check_artifact,
           testing.check_resume, testing.check_stream, testing.check_trees]  # fmt: skip


# ---- what is learnt from ---------------------------------------------------------------------------------------------


def test_chunks_end_with_their_episode() -> None:
    """Episodes of three rows and of four: rows 1 and 4 have one and two steps left, of three that are asked for."""
    index, _ = sampling.build_index(np.array([3, 4]))
    at = jnp.array([1, 4, 3])
    rows = sampling.with_chunks(sampling.Rows.of_transitions(at), index, at, 3)
    assert rows.columns["actions"]["action"].tolist() == [[1, 2, 2], [4, 5, 6], [3, 4, 5]]
    assert rows.values["chunk_steps"].tolist() == [1, 2, 3]
    assert sampling.with_chunks(rows, index, at, 1) is rows


def test_numbers_behind_the_end_are_not_real() -> None:
    actions = jnp.arange(12.0).reshape(2, 3, 2)
    action, real = actors.laid_out(Batch(action=actions, chunk_steps=jnp.array([1, 3])))
    assert action.tolist() == [[0, 1, 0, 0, 0, 0], [6, 7, 8, 9, 10, 11]]
    assert real is not None and real.tolist() == [[True] * 2 + [False] * 4, [True] * 6]
    assert actors.as_chunk(action, 3)[1].tolist() == actions[1].tolist()
    assert actors.laid_out(Batch(action=actions[:, 0]))[1] is None


def test_a_chunk_is_as_likely_as_its_real_actions() -> None:
    actor = actors.GaussianActor(2, (4,), 4, jax.random.key(0))
    x, action = jnp.ones((1, 2)), jnp.array([[0.5, -0.5, 9.0, 9.0]])
    real = jnp.array([[True, True, False, False]])
    mean = np.asarray(actor(x))[0]
    by_hand = sum(-0.5 * (a - m) ** 2 - 0.5 * np.log(2 * np.pi) for a, m in zip((0.5, -0.5), mean[:2], strict=True))
    np.testing.assert_allclose(actor.log_prob(x, action, real=real), [by_hand], rtol=1e-5)
    slope = jax.grad(actors.bc_loss)(actor, x, action, real=real)
    assert np.all(np.asarray(slope.mean.bias)[2:] == 0.0)
    assert np.all(np.asarray(slope.log_std)[2:] == 0.0)


def test_the_target_of_a_chunk_is_what_its_steps_earn() -> None:
    """phi moves 1, 2 and 4 along z; with discount 1/2 that earns 1 + 2/2 + 4/4, and after one real step only 1."""
    cfg = replace(config_of("hilp"), chunk=3, dim=2, discount=0.5, lived=1.0)  # lived: z leads to the goal
    state = method.init(cfg, Spec(3, 2), jax.random.key(0))
    latents = jnp.array([[[0.0, 5], [1, 5], [3, 5], [7, 5]], [[0, 0], [1, 0], [1, 0], [1, 0]]])
    s, after, action = (
        jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate([(2, 3), (2, 3), (2, 3, 2)])
    )
    batch = Batch(observation=s, next_observation=after, action=action, chunk_steps=jnp.array([3, 1]),
                  latent=latents[:, 0], latents=latents, goal_latent=jnp.array([[9.0, 5.0], [4.0, 0.0]]))  # fmt: skip
    _, info = method.update_policy(cfg, state, batch, jax.random.key(0))
    assert float(info["skill_reward"]) == pytest.approx((3.0 + 1.0) / 2)
    z = jnp.array([[1.0, 0.0], [1.0, 0.0]])
    target = jnp.array([3.0, 1.0]) + jnp.array([0.125, 0.5]) * state.value(jnp.concatenate([after, z], axis=1))[:, 0]
    played = action.reshape(2, 6) * jnp.array([[1.0] * 6, [1.0] * 2 + [0.0] * 4])
    sza = jnp.concatenate([s, z, played], axis=1)
    by_hand = sum(jnp.mean(jnp.square(one(sza)[:, 0] - target)) for one in state.critic)
    assert float(info["critic_loss"]) == pytest.approx(float(by_hand), rel=1e-5)


def test_the_advantage_of_a_chunk_ends_at_its_goal() -> None:
    """gc-iql: from row 0 the state after three steps is row 3; row 2 where that is the goal, row 4 at the end."""
    cfg = replace(config_of("gc-iql"), chunk=3)
    index, _ = sampling.build_index(np.array([5]))
    rows = gciql.sample(cfg, index, jax.random.key(0)).columns["observations"]
    at, goal, after = (np.asarray(rows[name]) for name in ("observation", "actor_goal", "after_chunk"))
    expected = np.minimum(at + 3, 4)
    np.testing.assert_array_equal(after, np.where(goal >= at, np.minimum(expected, goal), expected))


def test_critics_see_the_whole_chunk() -> None:
    cfg = replace(config_of("hilp"), chunk=3, play=2)
    state = method.init(cfg, Spec(3, 2), jax.random.key(0))
    assert state.critic[0].hidden[0].weight.shape[0] == 3 + cfg.dim + 3 * 2
    core = method.export(cfg, state)
    assert core.act(jnp.zeros((5, 3)), jnp.zeros((5, cfg.dim))).shape == (5, 3, 2)
    assert (core.chunk, core.play) == (3, 2)
    assert method.export(replace(cfg, play=0), state).play == 3


@pytest.mark.parametrize("name", CHUNKED)
def test_chunks_at_their_default_are_not_told(name: str) -> None:
    """So policies and rows of before keep their names."""
    assert not {"chunk", "play"} & set(methods.config_values(methods.config(name)))
    with pytest.raises(HilpError, match=r"'play' is at most 'chunk' \(4\), not 5"):
        methods.config(name, chunk=4, play=5)


@pytest.mark.parametrize("check", CHECKS)
def test_conformance(check: Any) -> None:
    check(replace(config_of("hilp"), chunk=3, play=2))


@pytest.mark.parametrize("name", ["gc-bc", "gc-iql"])
def test_conformance_of_others(name: str) -> None:
    testing.check_artifact(replace(config_of(name), chunk=3))


def test_two_stages_learn_chunks_too() -> None:
    config = methods.config("hilp", **SMALL["hilp"], schedule="sequential", phi_steps=7, policy_sees="phi", chunk=3)
    testing.check_resume(config)


# ---- how many the data asks for --------------------------------------------------------------------------------------


def commanded(fresh: bool, episodes: int = 20, rows: int = 100) -> Any:
    """Two joints that move a third of the way to where a command says, and a column that says nothing.

    The command moves slowly from place to place, or is drawn afresh at each row.
    """
    rng = np.random.default_rng(0)
    seen, acted = [], []
    for _ in range(episodes):
        joints = rng.uniform(-1, 1, 2)
        places = rng.uniform(-1, 1, (rows // 20 + 2, 2))
        for row in range(rows):
            between = row % 20 / 20
            target = (1 - between) * places[row // 20] + between * places[row // 20 + 1]
            target = rng.uniform(-1, 1, 2) if fresh else target
            seen.append([*joints, rng.normal()])
            acted.append(target)
            joints = joints + (target - joints) / 3
    data = hilp.Dataset(np.array(seen, np.float32), np.array(acted, np.float32), np.full(episodes, rows))
    return data


def test_autocorrelation_by_hand() -> None:
    """1, -1, 1, -1, 1 and its last row, which is no action: 4 pairs of opposites, then 3 of equals."""
    actions = np.array([[1.0], [-1.0], [1.0], [-1.0], [1.0], [9.0]])
    data = hilp.Dataset(np.zeros((12, 1), np.float32), np.concatenate([actions, -actions]), np.array([6, 6]))
    assert auto_config.autocorrelation(data, 1) == pytest.approx(-1.0)
    assert auto_config.autocorrelation(data, 2) == pytest.approx(1.0)
    assert auto_config.autocorrelation(data, 5) == 0.0


def test_slow_commands_of_positions_ask_for_chunks() -> None:
    data = commanded(fresh=False)
    chunk, line = auto_config.chunk_for(data)
    assert chunk in (4, 8) and line is not None and "2 of 2 commands are positions" in line
    parts = {"arm": data.observations[:, :2], "clock": data.observations[:, 2:]}
    assert auto_config.chunk_for(replace(data, observations=parts))[0] == chunk
    spare = replace(data, observations=data.observations[:, 2:])  # the joints are not observed
    for other in (
        commanded(fresh=True),
        DATA,
        spare,
        replace(data, observations={"camera": np.zeros((2000, 4, 4, 3))}),
    ):
        assert auto_config.chunk_for(other) == (1, None)


@pytest.mark.parametrize("name", ["maze-large", "maze-large-stitch"])
def test_built_in_data_asks_for_one_action(name: str) -> None:
    assert auto_config.chunk_for(hilp.load(name)) == (1, None)


def test_auto_becomes_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = commanded(fresh=False)
    chunk = auto_config.chunk_for(data)[0]
    config = replace(config_of("gc-bc"), chunk="auto", play=2)
    policy = hilp.pretrain(config, data, steps=4, out=tmp_path / "run")
    assert f"{chunk} actions are answered at once" in capsys.readouterr().err
    assert (policy.chunk, policy.play, policy.config.chunk) == (chunk, 2, chunk)
    more = hilp.pretrain(config, data, steps=8, out=tmp_path / "run", resume=True, quiet=True)
    assert more.fingerprint == hilp.pretrain(config, data, steps=8, quiet=True).fingerprint
    plain = hilp.pretrain(replace(config, play=0), DATA, steps=4, out=tmp_path / "one", quiet=True)
    assert plain.chunk == 1 and "chunk" not in methods.config_values(plain.config)
    again = hilp.pretrain(replace(config, play=0), DATA, steps=6, out=tmp_path / "one", resume=True, quiet=True)
    assert again.chunk == 1


@pytest.mark.parametrize("name", CHUNKED)
def test_the_laptop_preset_asks_the_data_and_the_paper_does_not(name: str) -> None:
    assert hilp.preset(name, "laptop").config.chunk == "auto"
    assert hilp.preset(name, "paper").config.chunk == 1


# ---- how they are played ---------------------------------------------------------------------------------------------


class Counted:
    """A goal prompt's calls, and which rows it was asked to plan for."""

    def __init__(self, prompt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[list[bool]] = []
        plain = type(prompt).__call__

        def call(one: Any, observations: Any, active: Any = None) -> Any:
            self.asked.append(np.asarray(active).tolist())
            return plain(one, observations, active)

        monkeypatch.setattr(type(prompt), "__call__", call)
        monkeypatch.setattr(type(prompt), "step", lambda *_: None)


def chunks_of(policy: Any, seen: Any, prompt: Any) -> np.ndarray:
    return np.asarray(policy.rule("act", policy.check(seen), prompt(seen)))


@pytest.mark.parametrize("name", CHUNKED)
def test_a_prompt_is_asked_anew_when_all_was_played(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = untrained(name, chunk=4, play=2)
    path, goal = DATA.observations[:5], policy.goal(DATA.observations[30])
    first, third, fifth = (chunks_of(policy, path[i : i + 1], goal)[0] for i in (0, 2, 4))
    calls = Counted(goal, monkeypatch)
    acted = [policy.act(one, goal) for one in path]
    np.testing.assert_allclose(acted, [first[0], first[1], third[0], third[1], fifth[0]], rtol=1e-5)
    assert calls.asked == [[True], [False], [True], [False], [True]]


def test_agents_of_a_batch_play_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two begins a new episode after one step: it asks, the other one plays on."""
    policy = untrained("hilp", chunk=3)
    goal = policy.goal(DATA.observations[30])
    path = DATA.observations[:8].reshape(4, 2, 3)
    chunks = [chunks_of(policy, seen, goal) for seen in path]
    calls = Counted(goal, monkeypatch)
    acted = [policy.act(path[0], goal)]
    goal.reset([1])
    acted += [policy.act(seen, goal) for seen in path[1:]]
    assert calls.asked == [[True, True], [False, True], [False, False], [True, False]]
    np.testing.assert_allclose([one[0] for one in acted], [*chunks[0][0], chunks[3][0, 0]], rtol=1e-5)
    np.testing.assert_allclose([one[1] for one in acted], [chunks[0][1, 0], *chunks[1][1]], rtol=1e-5)
    goal.reset()
    np.testing.assert_allclose(policy.act(path[2], goal), chunks[2][:, 0], rtol=1e-5)


def test_who_is_not_asked_begins_when_it_is() -> None:
    """Its chunk is not what the actor would have answered without a plan, rows ago."""
    policy = untrained("hilp", chunk=3)
    goal, path = policy.goal(DATA.observations[30], plan=1), DATA.observations[:6].reshape(3, 2, 3)
    for seen in path[:2]:
        policy.act(seen, goal, active=np.array([True, False]))
    wanted = chunks_of(policy, path[2], goal)[1]
    acted = policy.act(path[2], goal, active=np.array([False, True]))
    np.testing.assert_allclose(acted[1], wanted[0], rtol=1e-5)


def test_prompts_of_prompts_begin_anew_too() -> None:
    policy = untrained("hilp", chunk=3)
    both = policy.goal(DATA.observations[30]) + 0.5 * policy.goal(DATA.observations[50])
    start = policy.act(DATA.observations[0], both)
    assert not np.allclose(policy.act(DATA.observations[0], both), start)  # the second of its chunk
    both.reset()
    np.testing.assert_array_equal(policy.act(DATA.observations[0], both), start)


def test_until_counts_steps_and_not_chunks() -> None:
    """The first prompt is over after four steps; the second one takes over with the next chunk, at step six."""
    policy = untrained("hilp", chunk=3)
    first, second = (policy.goal(DATA.observations[row]) for row in (30, 50))
    path = DATA.observations[:7]
    then = first.then(second, until=4)
    acted = [policy.act(one, then) for one in path]
    assert then.over.tolist() == [True]
    np.testing.assert_allclose(acted[3:6], chunks_of(policy, path[3:4], first)[0], rtol=1e-5)
    np.testing.assert_allclose(acted[6], chunks_of(policy, path[6:7], second)[0, 0], rtol=1e-5)


def test_a_skill_vector_has_no_memory() -> None:
    policy = untrained("hilp", chunk=3)
    z = np.eye(policy.skill_dim, dtype=np.float32)[0]
    for _ in range(2):
        found = policy.act(DATA.observations[0], z)
        np.testing.assert_array_equal(found, policy.rule("act", policy.check(DATA.observations[:1]), z[None])[0, 0])


def test_actions_last_as_long_as_the_steps_of_training() -> None:
    policy = untrained("gc-bc", chunk=2)
    policy.stride = 2
    goal = policy.goal(DATA.observations[30])
    chunk = chunks_of(policy, DATA.observations[:1], goal)[0]
    acted = [policy.act(one, goal) for one in DATA.observations[:4]]
    np.testing.assert_allclose(acted, np.repeat(chunk, 2, axis=0), rtol=1e-5)


@pytest.mark.parametrize("name", CHUNKED)
def test_exports_play_the_same(name: str, tmp_path: Path) -> None:
    policy = untrained(name, chunk=4, play=3)
    export.write(policy, "numpy", tmp_path / "numpy")
    theirs = numpy_folder.load(tmp_path / "numpy").load(tmp_path / "numpy")
    goals = [one.goal(DATA.observations[30]) for one in (policy, theirs)]
    for seen in DATA.observations[:7]:
        ours, found = (one.act(seen, goal) for one, goal in zip((policy, theirs), goals, strict=True))
        np.testing.assert_allclose(found, ours, atol=1e-5)
