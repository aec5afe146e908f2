"""Hierarchies: rewards of data, targets of a semi-MDP, OPAL's parts, the high level as a prompt, and mistakes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hilp
from hilp import export
from hilp.data import rewards
from hilp.data.transforms import ActionScaling
from hilp.errors import HilpError
from hilp.export import runtime
from hilp.learning import actors, losses, methods, sampling
from hilp.learning.methods import opal, reward_iql
from hilp.prompts.agent import Batch
from hilp.prompts.skills import HeldSkills
from hilp.runs import PROMPT
from hilp.spec import Spec
from hilp.training import hierarchy
from hilp.training.run import Run

SMALL: dict[str, Any] = {"hidden": (16, 16), "actor_hidden": (16, 16), "batch": 32}
OPAL: dict[str, Any] = {**SMALL, "dim": 3, "gru": 8, "k": 4}


def episodes(*lengths: int, **extras: Any) -> hilp.Dataset:
    """Rows that know their own number, in episodes of so many rows."""
    rows = sum(lengths)
    observations = np.stack([np.arange(rows), np.zeros(rows)], axis=1).astype(np.float32)
    actions = np.linspace(-1, 1, rows, dtype=np.float32)[:, None]
    return hilp.Dataset(observations, actions, np.array(lengths), {k: np.asarray(v) for k, v in extras.items()})


# ---- targets of a semi-MDP -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pays", "over", "steps", "earned", "carry"),
    [
        ([1, 2, 4], [0, 0, 0], 3, 1 + 2 * 0.5 + 4 * 0.25, 0.125),
        ([1, 2, 4], [0, 1, 0], 3, 1 + 2 * 0.5, 0.0),  # a terminal inside: it pays, nothing behind it does
        ([1, 2, 4], [1, 0, 1], 3, 1.0, 0.0),
        ([1, 2, 4], [0, 0, 1], 3, 1 + 2 * 0.5 + 4 * 0.25, 0.0),
        ([1, 2, 9], [0, 0, 0], 2, 1 + 2 * 0.5, 0.25),  # cut short: the value there counts at discount^2
        ([1, 9, 9], [0, 1, 1], 1, 1.0, 0.5),  # what lies behind the end is not this episode's
        ([1, np.nan, np.inf], [0, 0, 0], 1, 1.0, 0.5),
    ],
)
def test_what_a_segment_earns(pays: list[float], over: list[int], steps: int, earned: float, carry: float) -> None:
    total, left = losses.semi_mdp(jnp.array([pays]), jnp.array([over], jnp.float32), jnp.array([steps]), 0.5)
    assert (float(total[0]), float(left[0])) == (earned, carry)


def test_segments_of_hand_made_episodes_reach_the_update_as_they_are() -> None:
    """Two episodes, of 3 and 1 steps: with k = 2 some segments are cut, with k = 9 all of them are."""
    data = episodes(4, 2, rewards=[1, 2, 4, 77, 8, 77], terminals=[0, 0, 1, 0, 0, 0])
    wanted = {
        2: {0: (1 + 2 * 0.5, 0.25, 2), 1: (2 + 4 * 0.5, 0.0, 3), 2: (4, 0.0, 3), 4: (8, 0.5, 5)},
        9: {0: (1 + 2 * 0.5 + 4 * 0.25, 0.0, 3), 1: (2 + 4 * 0.5, 0.0, 3), 2: (4, 0.0, 3), 4: (8, 0.5, 5)},
    }
    for k, rows in wanted.items():
        config = reward_iql.Config(**{**SMALL, "k": k, "batch": 64, "discount": 0.5})
        run = Run(config, data)
        batch = sampling.gather(run.columns, reward_iql.sample(config, run.index, jax.random.key(0)))
        total, carry = losses.semi_mdp(batch.rewards, batch.terminals, batch.steps, 0.5)
        found = {
            int(s): (float(a), float(b), int(s2))
            for s, a, b, s2 in zip(batch.observation[:, 0], total, carry, batch.next_observation[:, 0], strict=True)
        }
        assert found == rows


@settings(deadline=None, max_examples=10)
@given(st.lists(st.integers(2, 6), min_size=1, max_size=4), st.integers(1, 7), st.randoms(use_true_random=False))
def test_targets_are_those_of_walking_step_by_step(lengths: list[int], k: int, random: Any) -> None:
    rows = sum(lengths)
    pays, over = [random.random() for _ in range(rows)], [random.random() < 0.3 for _ in range(rows)]
    last = np.repeat(np.cumsum(lengths) - 1, lengths)
    for at in range(rows):
        if at == last[at]:
            continue
        earned, weight, row = 0.0, 1.0, at
        while row < min(at + k, last[at]):
            earned, row, weight = earned + weight * pays[row], row + 1, weight * 0.9
            if over[row - 1]:
                weight = 0.0
                break
        segment = np.minimum(at + np.arange(k), last[at])
        steps = np.array([min(k, last[at] - at)])
        total, carry = losses.semi_mdp(
            jnp.array([np.array(pays)[segment]]), jnp.array([np.array(over)[segment]], jnp.float32), steps, 0.9
        )
        np.testing.assert_allclose((total[0], carry[0]), (earned, weight), rtol=1e-5, atol=1e-7)


def test_iql_learns_what_a_chain_is_worth() -> None:
    """Five places in a row, a reward at the end, terminal there: V is discount^(steps to go - 1)."""
    data = episodes(*[6] * 20)
    places = np.tile(np.eye(6, dtype=np.float32), (20, 1))
    pays = np.tile([0, 0, 0, 0, 1, 0], 20)
    data = replace(data, observations=places, extras={"rewards": pays, "terminals": pays})
    for k in (1, 3):
        config = reward_iql.Config(k=k, hidden=(32,), actor_hidden=(8,), batch=64, lr=3e-3, discount=0.8, tau=0.1)
        run = Run(config, data)
        state, _ = run.advance(run.fresh, 0, 1000)
        found = np.asarray(state.value(np.eye(6, dtype=np.float32)[:5]))[:, 0]
        np.testing.assert_allclose(found, 0.8 ** np.arange(4, -1, -1), atol=0.1)


# ---- rewards of data -------------------------------------------------------------------------------------------------


def test_recorded_rewards_stand_with_their_transition() -> None:
    d4rl = rewards.label(episodes(3, 3, rewards=[0, 0, 5, 0, 1, 2], terminals=[0, 0, 1, 0, 0, 0]))
    assert d4rl.extras["rewards"][[0, 1, 3, 4]].tolist() == [0, 5, 0, 1]  # the last step of D4RL's has no next state
    assert d4rl.extras["terminals"][[0, 1, 3, 4]].tolist() == [0, 1, 0, 0]
    exorl = rewards.label(
        episodes(3, 3, reward=[[9], [1], [2], [9], [3], [4]], discount=[[1], [1], [0], [1], [1], [1]])
    )
    assert exorl.extras["rewards"][[0, 1, 3, 4]].tolist() == [1, 2, 3, 4]
    assert exorl.extras["terminals"][[0, 1, 3, 4]].tolist() == [0, 1, 0, 0]


def test_a_function_is_asked_in_the_users_units_and_may_end_episodes() -> None:
    data = episodes(3, 3, height=np.arange(6.0))
    scaled = replace(data, action_scaling=ActionScaling(np.array([10.0], np.float32), np.array([2.0], np.float32)))
    found = rewards.label(scaled, lambda s, a, s2: a[:, 0])
    np.testing.assert_allclose(found.extras["rewards"][[0, 4]], [8.0, 10 + 2 * data.actions[4, 0]], rtol=1e-6)
    at_goal = rewards.label(data, lambda s, a, s2, x: x.after("height") == 4, shift=-1.0, ends=True)
    assert at_goal.extras["rewards"][[0, 1, 3, 4]].tolist() == [-1, -1, 0, -1]
    assert at_goal.extras["terminals"][[0, 1, 3, 4]].tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda s, a, s2: np.zeros(len(s)), "for all 4 transitions"),
        (lambda s, a, s2: np.where(s[:, 0] == 1, np.nan, 0.0), "NaN or infinite for 1 of 4 transitions, rows 1"),
        (lambda s, a, s2: s, "one number per transition"),
        (lambda s, a, s2: ["x"] * len(s), "must be numbers"),
        (None, "no column 'rewards' or 'reward'"),
    ],
)
def test_rewards_that_cannot_be_learnt_from(function: Any, said: str) -> None:
    with pytest.raises(hilp.HilpError, match=said):
        rewards.label(episodes(3, 3), function)


def test_a_method_that_learns_from_rewards_needs_them() -> None:
    with pytest.raises(hilp.HilpError, match="learns from the column 'rewards', which arrays does not have"):
        hilp.pretrain(reward_iql.Config(**SMALL), episodes(5), steps=1, quiet=True)


# ---- OPAL ------------------------------------------------------------------------------------------------------------


def test_kl_is_the_closed_form_of_gaussians() -> None:
    """Against numbers by hand (one dimension), zero for equals, and an estimate by drawing."""
    one = losses.gaussian_kl(jnp.array([1.0]), jnp.log(jnp.array([2.0])), jnp.array([0.0]), jnp.array([0.0]))
    np.testing.assert_allclose(one, 0.5 * (4 + 1 - 1) - np.log(2), rtol=1e-6)
    rng = np.random.default_rng(0)
    mean, log_std, other, other_log = rng.normal(size=(4, 5, 3)) * 0.5
    np.testing.assert_allclose(losses.gaussian_kl(mean, log_std, mean, log_std), 0.0, atol=1e-6)
    x = mean + np.exp(log_std) * rng.normal(size=(200_000, 5, 3))

    def log_density(m: np.ndarray, s: np.ndarray) -> np.ndarray:
        return (-0.5 * ((x - m) / np.exp(s)) ** 2 - s).sum(-1)

    drawn = (log_density(mean, log_std) - log_density(other, other_log)).mean(0)
    np.testing.assert_allclose(losses.gaussian_kl(mean, log_std, other, other_log), drawn, rtol=0.05)


def test_reversing_a_segment_swaps_what_the_two_directions_read() -> None:
    gru = opal.BidirectionalGru(3, 5, 1, jax.random.key(0))
    swapped = eqx.tree_at(lambda g: g.layers, gru, tuple((b, f) for f, b in gru.layers))
    x = jax.random.normal(jax.random.key(1), (4, 6, 3))
    real = jnp.ones((4, 6), bool)
    forwards, backwards = jnp.split(gru(x, real), 2, axis=-1)
    np.testing.assert_allclose(swapped(x[:, ::-1], real), jnp.concatenate([backwards, forwards], axis=-1), atol=1e-6)
    assert not np.allclose(gru(x[:, ::-1], real), gru(x, real), atol=1e-3)


def test_both_layers_and_directions_count_and_padding_does_not() -> None:
    gru = opal.BidirectionalGru(3, 5, 2, jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (2, 6, 3))
    real = jnp.arange(6) < jnp.array([[4], [6]])
    alone = gru(x[:1, :4], jnp.ones((1, 4), bool))
    np.testing.assert_allclose(gru(x, real)[:1], alone, atol=1e-6)
    for at in (0, 5):  # each end of a whole segment reaches both halves through the second layer
        changed = gru(x.at[1, at].add(1.0), real)[1]
        assert np.all(np.abs(np.stack(jnp.split(changed - gru(x, real)[1], 2))).max(axis=1) > 1e-6)


def test_opal_loses_what_its_equation_says() -> None:
    config = opal.Config(**{**OPAL, "batch": 6})
    state = opal.init(config, Spec(2, 1), jax.random.key(0))
    data = episodes(8, 3)
    run = Run(config, data)
    batch = sampling.gather(run.columns, opal.sample(config, run.index, jax.random.key(0)))
    noise = jax.random.normal(jax.random.key(1), (6, 3))
    total, info = opal.loss(state.nets, config, batch, noise)
    wanted, kls = [], []
    for i in range(6):  # a segment at a time, cut to its real steps
        n = int(batch.steps[i])
        s, a = batch.observations[i : i + 1, :n], batch.actions[i : i + 1, :n]
        mean, log_std = state.nets.encode(s, a, jnp.ones((1, n), bool))
        z = mean + jnp.exp(log_std) * noise[i]
        log_prob = [state.nets.actor.log_prob(jnp.concatenate([s[0, t], z[0]]), a[0, t]) for t in range(n)]
        kls.append(losses.gaussian_kl(mean, log_std, *actors.gaussian(state.nets.prior(s[:, 0])))[0])
        wanted.append(-sum(log_prob))
    np.testing.assert_allclose(info["kl"], np.mean(kls), rtol=1e-4)
    np.testing.assert_allclose(total, np.mean(wanted) + 0.1 * np.mean(kls), rtol=1e-4)


def test_opal_tells_apart_what_its_data_does() -> None:
    """Segments go left or right: the posterior tells which, the decoder does it, the prior does either."""
    rng = np.random.default_rng(0)
    ways = rng.choice([-0.8, 0.8], 200)
    actions = np.repeat(ways, 5)[:, None].astype(np.float32)
    observations = rng.normal(size=(1000, 2)).astype(np.float32)
    data = hilp.Dataset(observations, actions, np.full(200, 5))
    policy = hilp.pretrain(opal.Config(**{**OPAL, "lr": 3e-3}), data, steps=400, quiet=True)
    skills = hierarchy.segment_skills(policy, data, 4)[::5]
    acted = policy.act(observations[::5], skills)[:, 0]
    assert np.abs(acted - ways).mean() < 0.3
    prior = policy.prior(seed=3)
    drawn = policy.act(observations[:200], prior)[:, 0]
    assert 0.2 < (drawn > 0.4).mean() < 0.8 and 0.2 < (drawn < -0.4).mean() < 0.8


# ---- prompts that hold skills ----------------------------------------------------------------------------------------


def test_skills_are_held_for_k_steps_row_by_row() -> None:
    asked: list[list[float]] = []

    class Echo(HeldSkills):
        def choose(self, observations: Any) -> np.ndarray:
            asked.append(observations.tree[:, 0].tolist())
            return observations.tree.copy()

    policy: Any = SimpleNamespace(check=lambda rows: rows, skill_dim=1)
    held = Echo(policy, 3)
    found = [held(Batch(np.full((2, 1), t, np.float32), False))[:, 0].tolist() for t in range(4)]
    assert found == [[0, 0], [0, 0], [0, 0], [3, 3]]
    held.reset(np.array([False, True]))  # the second row's episode is over
    assert held(Batch(np.full((2, 1), 4.0), False))[:, 0].tolist() == [3, 4]
    assert [held(Batch(np.full((2, 1), t), False))[:, 0].tolist() for t in (5.0, 6.0)] == [[3, 4], [6, 4]]
    with pytest.warns(UserWarning, match="a batch of 3 came after one of 2"):
        found = held(Batch(np.zeros((3, 1)), False))  # a batch of another size: new episodes
    assert found.shape == (3, 1)
    assert asked == [[0, 0], [3, 3], [4], [6], [0, 0, 0]]


@pytest.fixture(scope="module")
def trained(tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset) -> Any:
    return hilp.hierarchy(tiny, tiny_data, to_the_right, steps=30, k=5, config=reward_iql.Config(**SMALL), quiet=True)


def to_the_right(s: np.ndarray, a: np.ndarray, s2: np.ndarray) -> np.ndarray:
    return s2[:, 0] - s[:, 0]


def test_a_high_level_is_a_prompt(
    tiny: hilp.FoundationPolicy, other: hilp.FoundationPolicy, trained: Any, tmp_path: Path
) -> None:
    at = tiny.bank.observations[:7]
    z = trained.choose(at)
    np.testing.assert_allclose(np.linalg.norm(z, axis=1), 1.0, rtol=1e-5)  # back on the sphere
    np.testing.assert_array_equal(tiny.act(at, trained), tiny.act(at, z))
    trained.reset()
    trained.save(tmp_path / "prompt")
    again = tiny.load_prompt(tmp_path / "prompt")
    assert again.high.k == 5 and again.high.about == trained.high.about
    np.testing.assert_array_equal(again.choose(at), z)
    assert tiny.act(at[0], again).shape == (2,)
    with pytest.raises(hilp.HilpError, match="was made for policy"):
        other.load_prompt(tmp_path / "prompt")
    with pytest.raises(hilp.HilpError, match="this prompt was made for policy"):
        other.act(at, trained)
    torn = (tmp_path / "prompt").read_bytes()[:-100]
    (tmp_path / "torn").write_bytes(torn)
    with pytest.raises(hilp.HilpError, match="truncated"):
        tiny.load_prompt(tmp_path / "torn")


def test_a_hierarchy_inside_of_another_prompt_is_exported(
    tiny: hilp.FoundationPolicy, trained: Any, tmp_path: Path
) -> None:
    at, goal = tiny.bank.observations[:7], tiny.bank.observations[1000]
    trained.reset()
    prompts = {"high": trained, "sum": tiny.goal(goal) + 0.5 * trained, "then": tiny.goal(goal).then(trained, until=2)}
    for name, prompt in prompts.items():
        prompt.save(tmp_path / name)
    export.write(tiny, "numpy", tmp_path / "robot", [tmp_path / name for name in prompts])
    robot = runtime.load(tmp_path / "robot")
    for name, prompt in prompts.items():
        again = robot.load_prompt(tmp_path / "robot" / "prompts" / name)
        for _ in range(4):
            np.testing.assert_allclose(again(at), prompt(at), atol=1e-4)
        prompt.reset()


def test_the_skill_of_a_segment_is_its_unit_displacement(tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset) -> None:
    found = hierarchy.segment_skills(tiny, tiny_data, 5)
    first = int(tiny_data.lengths[0]) - 1  # the last row of the first episode
    for at, then in ((3, 8), (first - 2, first)):
        step = tiny.encode(tiny_data.observations[then]) - tiny.encode(tiny_data.observations[at])
        np.testing.assert_allclose(found[at], step / np.linalg.norm(step), atol=1e-4)
    assert not found[first].any()


def test_a_segment_ends_where_the_task_does() -> None:
    data = episodes(5, 4, rewards=[0] * 9, terminals=[0, 0, 1, 0, 0, 1, 0, 0, 0])
    assert hierarchy.segment_ends(data).tolist() == [3, 3, 3, 4, 4, 6, 8, 8, 8]
    plain = episodes(5, 4)
    assert hierarchy.segment_ends(plain).tolist() == [4] * 5 + [8] * 4


def test_several_seeds_and_formulas(tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset, tmp_path: Path) -> None:
    config = reward_iql.Config(**SMALL)
    options = {"steps": 3, "seeds": 2, "quiet": True, "out": tmp_path / "run"}
    two = hilp.hierarchy(tiny, tiny_data, "observation[0]", config=config, **options)
    assert [prompt.high.about["seed"] for prompt in two] == [0, 1]
    assert two[0].high.about["reward"] == "observation[0]"
    again = tiny.load_prompt(tmp_path / "run" / "seed-1")
    with pytest.raises(HilpError, match="holds 2 seeds: name one of them"):
        tiny.load_prompt(tmp_path / "run")
    with pytest.raises(HilpError, match="there is no prompt in"):
        tiny.load_prompt(tmp_path)
    np.testing.assert_array_equal(again.choose(tiny.bank.observations[:3]), two[1].choose(tiny.bank.observations[:3]))


def test_a_policy_for_one_task_takes_no_prompt(tiny_data: hilp.Dataset, tiny: hilp.FoundationPolicy) -> None:
    data = hilp.label(tiny_data, to_the_right)
    flat = hilp.pretrain(reward_iql.Config(**SMALL), data, steps=5, quiet=True)
    assert flat.skill_dim == 0
    at = data.observations[:4]
    np.testing.assert_array_equal(flat.act(at), flat.act(at, flat.skill()))
    with pytest.raises(hilp.PromptUnsupported):
        flat.goal(at[0])
    with pytest.raises(hilp.HilpError, match="hilp acts on a prompt"):
        tiny.act(at)


# ---- killed and resumed ----------------------------------------------------------------------------------------------


def test_a_hierarchy_that_was_stopped_ends_in_the_same_bits(
    tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset, tmp_path: Path
) -> None:
    options = {"config": reward_iql.Config(**SMALL), "quiet": True}
    hilp.hierarchy(tiny, tiny_data, "observation[0]", steps=20, out=tmp_path / "whole", **options)
    hilp.hierarchy(tiny, tiny_data, "observation[0]", steps=7, out=tmp_path / "parts", **options)
    (tmp_path / "parts" / PROMPT).unlink()
    hilp.hierarchy(tiny, tiny_data, "observation[0]", steps=20, out=tmp_path / "parts", resume=True, **options)
    assert (tmp_path / "whole" / PROMPT).read_bytes() == (tmp_path / "parts" / PROMPT).read_bytes()
    with pytest.raises(hilp.HilpError, match="cannot resume"):
        hilp.hierarchy(tiny, tiny_data, "observation[1]", steps=30, out=tmp_path / "parts", resume=True, **options)


def test_a_hierarchy_goes_on_where_skills_are_computed_otherwise(
    tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine or compiler rounds otherwise: policy, data, reward and k are still the same."""
    options = {"config": reward_iql.Config(**SMALL), "quiet": True, "out": tmp_path / "run"}
    hilp.hierarchy(tiny, tiny_data, "observation[0]", steps=2, **options)
    exact = hierarchy.segment_skills
    monkeypatch.setattr(hierarchy, "segment_skills", lambda *of: np.nextafter(exact(*of), np.float32(2)))
    hilp.hierarchy(tiny, tiny_data, "observation[0]", steps=4, resume=True, **options)
    with pytest.raises(hilp.HilpError, match="its config has k=1, not 3"):
        hilp.hierarchy(tiny, tiny_data, "observation[0]", k=3, steps=6, resume=True, **options)


# ---- mistakes --------------------------------------------------------------------------------------------------------


def test_a_policy_without_skills_of_segments(tiny_data: hilp.Dataset) -> None:
    policy = hilp.pretrain(methods.config("gc-bc", actor_hidden=(8,), batch=8), tiny_data, steps=1, quiet=True)
    with pytest.raises(hilp.PromptUnsupported, match="gc-bc cannot name the skill of a segment"):
        hilp.hierarchy(policy, tiny_data, to_the_right)
    with pytest.raises(hilp.PromptUnsupported, match="gc-bc has no prior"):
        policy.prior()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"reward": lambda s, a, s2: 0 * s[:, 0]}, "so it asks for nothing"),
        ({"reward": lambda s, a, s2: s[:, 0] * np.nan}, "NaN or infinite"),
        ({"reward": None}, "no column 'rewards'"),
        ({"reward": "observation[9]"}, "observation"),
        ({"k": 10**6}, "k=1000000 is longer than every episode"),
        ({"k": 0}, "k must be at least 1"),
        ({"shift": np.inf}, "shifted by a finite number"),
        ({"config": opal.Config()}, "trained by iql, not by opal"),
        ({"preset": "huge"}, "unknown preset"),
    ],
)
def test_mistakes_are_one_line(
    tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(hilp.HilpError, match=said) as told:
        hilp.hierarchy(tiny, tiny_data, **{"reward": to_the_right, "steps": 1, "quiet": True, **options})
    assert "\n" not in str(told.value)


def test_skills_last_as_long_as_they_were_learnt_for() -> None:
    data = hilp.label(episodes(9, 9), lambda s, a, s2: s2[:, 0])
    policy = hilp.pretrain(opal.Config(**OPAL), data, steps=1, quiet=True)
    with pytest.raises(hilp.HilpError, match="learnt for 4 steps, not 5: leave k out"):
        hilp.hierarchy(policy, data, k=5)
    prompt = hilp.hierarchy(policy, data, steps=1, config=reward_iql.Config(**SMALL), quiet=True)
    assert prompt.high.k == 4
    skills = hierarchy.segment_skills(policy, data, 4)[data.transition_rows]
    assert (prompt.choose(data.observations) <= skills.max(axis=0) + 1e-4).all()  # never outside what the data shows
    other = episodes(9)
    with pytest.raises(hilp.HilpError, match="use data of the task that it was trained on"):
        hilp.hierarchy(policy, replace(other, observations=np.zeros((9, 5), np.float32)), lambda s, a, s2: s[:, 0])


# ---- what comes out --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_high_level_finds_the_far_place_of_a_maze() -> None:
    """Half of the laptop's updates, in the medium maze, from starts that are far from it."""
    data, world = hilp.collect("maze-medium", "navigate", 100_000), hilp.make_task("maze-medium")
    policy = hilp.pretrain(hilp.preset("hilp", "laptop").config, data, steps=4000, bank=0, quiet=True)
    prompt = hilp.hierarchy(policy, data, world.at_target, shift=-1.0, ends=True, steps=3000, quiet=True)
    (row,) = hilp.evaluate(policy, world, prompt, episodes=100)
    assert row["score"] >= 0.7
