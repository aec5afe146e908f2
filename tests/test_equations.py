"""The paper's equations against values computed by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hilp.learning import actors, hilbert, losses, sampling, skills
from hilp.learning.methods import hilp
from hilp.learning.sampling import Batch
from hilp.prompts.midpoints import undiscounted
from hilp.spec import Spec


def test_expectile_weighs_by_the_sign_of_the_advantage_and_squares_the_error() -> None:
    got = losses.expectile_loss(jnp.array([1.0, -1.0, 0.0]), jnp.array([2.0, 3.0, 1.0]), 0.9)
    np.testing.assert_allclose(got, [0.9 * 4, 0.1 * 9, 0.9 * 1], rtol=1e-6)


def test_awr_weight_is_cut() -> None:
    got = actors.awr_weight(jnp.array([0.0, 0.1, 5.0, -1.0]), 10.0, 100.0)
    np.testing.assert_allclose(got, [1.0, np.e, 100.0, np.exp(-10.0)], rtol=1e-5)


def test_polyak_moves_by_its_rate() -> None:
    got = losses.polyak({"w": jnp.array([1.0, 2.0])}, {"w": jnp.array([3.0, 2.0])}, 0.25)
    np.testing.assert_allclose(got["w"], [1.5, 2.0])


def test_value_is_minus_the_distance_and_has_a_gradient_at_the_goal() -> None:
    np.testing.assert_allclose(hilbert.value(jnp.array([3.0, 0.0]), jnp.array([0.0, 4.0])), -5.0, rtol=1e-6)
    same = jnp.array([1.0, 2.0])
    np.testing.assert_allclose(hilbert.value(same, same), -1e-3, rtol=1e-5)  # -sqrt(1e-6)
    assert np.all(np.isfinite(jax.grad(lambda x: hilbert.value(x, same))(same)))


def test_representation_loss_by_hand() -> None:
    # Two members, two samples; the second sample's goal is its own state.
    v = jnp.array([[-3.0, -0.5], [-4.0, -0.2]])
    target_v = jnp.array([[-2.0, -0.4], [-3.0, -0.6]])
    target_next_v = jnp.array([[-1.0, -9.0], [-2.0, -9.0]])
    reached = jnp.array([False, True])
    got = hilbert.representation_loss(v, target_v, target_next_v, reached, discount=0.9, expectile=0.8)
    # Sample 1: q = -1 + 0.9 * min(-1, -2) = -2.8, advantage = -2.8 - (-2.5) = -0.3 < 0, weight 0.2;
    #   own targets -1.9 and -2.8, errors 1.1 and 1.2.
    # Sample 2: q = 0, advantage = 0.5 > 0, weight 0.8; own targets 0, errors 0.5 and 0.2.
    first = (0.2 * 1.1**2 + 0.8 * 0.5**2) / 2
    second = (0.2 * 1.2**2 + 0.8 * 0.2**2) / 2
    assert float(got) == pytest.approx(first + second, rel=1e-5)


def test_reached_cuts_the_bootstrap_and_the_step_cost() -> None:
    one = jnp.ones((2, 1))
    done = hilbert.representation_loss(-one, -one, -50 * one, jnp.array([True]), 0.99, 0.5)
    assert float(done) == pytest.approx(2 * 0.5 * 1.0)  # target 0, error 1, two members


def test_skill_reward_is_the_displacement_along_the_skill() -> None:
    phi_s, phi_next = jnp.array([[1.0, 1.0]]), jnp.array([[4.0, 5.0]])
    np.testing.assert_allclose(hilbert.skill_reward(phi_s, phi_next, jnp.array([[0.6, 0.8]])), [0.6 * 3 + 0.8 * 4])


def test_unit_of_zero_is_zero() -> None:
    np.testing.assert_array_equal(hilbert.unit(jnp.zeros((1, 3))), np.zeros((1, 3)))
    np.testing.assert_allclose(hilbert.unit(jnp.array([[3.0, 4.0]])), [[0.6, 0.8]], rtol=1e-6)


def test_discounted_distance_and_back() -> None:
    steps = np.array([0.0, 1.0, 2.0, 30.0])
    np.testing.assert_allclose(hilbert.discounted(steps[:3], 0.9), [0.0, 1.0, 1.9])
    np.testing.assert_allclose(undiscounted(hilbert.discounted(steps, 0.99), 0.99), steps, atol=1e-9)
    assert np.isfinite(undiscounted(np.array([1e9]), 0.99)).all()


CONFIG = hilp.Config(dim=3, hidden=(8, 8), actor_hidden=(8,), batch=4, lr=0.0)
SPEC = Spec(observation_dim=2, action_dim=2)


@pytest.fixture
def state() -> hilp.State:
    state = hilp.init(CONFIG, SPEC, jax.random.key(0))
    # Targets that differ from the online networks, so that using the wrong one shows.
    shift = lambda tree: jax.tree.map(lambda x: x + 0.1, tree)  # noqa: E731
    return state._replace(phi_target=shift(state.phi), critic_target=shift(state.critic))


@pytest.fixture
def batch() -> Batch:
    keys = jax.random.split(jax.random.key(1), 4)
    draw = lambda key: jax.random.uniform(key, (4, 2), minval=-1.0, maxval=1.0)  # noqa: E731
    reached = jnp.array([False, True, False, False])
    names = ("observation", "action", "next_observation", "goal")
    return Batch(**{name: draw(key) for name, key in zip(names, keys, strict=True)}, reached=reached)


def plain_trunk(net: Any, x: np.ndarray, number: int | None = None) -> np.ndarray:
    """A trunk, or one of an ensemble, written out in numpy: affine, GELU (tanh form), LayerNorm, ..., affine."""
    trunk = net if number is None else net[number]
    take = lambda leaf: np.asarray(leaf, np.float64)  # noqa: E731
    for dense, norm in zip(trunk.hidden, trunk.norms, strict=True):
        x = x @ take(dense.weight) + take(dense.bias)
        x = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        x = x * take(norm.scale) + take(norm.shift)
    return x @ take(trunk.out.weight) + take(trunk.out.bias)


def test_every_metric_of_an_update_against_numpy(state: hilp.State, batch: Batch) -> None:
    key = jax.random.key(7)
    _, info = hilp.update(CONFIG, state, batch, key)
    parts = (batch.observation, batch.action, batch.next_observation, batch.goal)
    s, a, s2, g = (np.asarray(x, np.float64) for x in parts)
    phi = [[plain_trunk(net, x, i) for x in (s, g, s2)] for net in (state.phi, state.phi_target) for i in (0, 1)]
    distance = lambda x, y: np.linalg.norm(x - y, axis=1)  # noqa: E731
    v = -np.array([distance(*phi[i][:2]) for i in (0, 1)])
    old = -np.array([distance(*phi[i][:2]) for i in (2, 3)])
    old_next = -np.array([distance(phi[i][2], phi[i][1]) for i in (2, 3)])
    done = np.asarray(batch.reached, float)
    q = done - 1 + 0.99 * (1 - done) * old_next
    advantage = done - 1 + 0.99 * (1 - done) * old_next.min(0) - old.mean(0)
    weight = np.where(advantage < 0, 0.05, 0.95)
    assert float(info["phi_loss"]) == pytest.approx((weight * (q - v) ** 2).mean(1).sum(), rel=1e-4)

    z = np.asarray(hilbert.unit(jax.random.normal(key, (4, 3))), np.float64)
    reward = ((phi[0][2] - phi[0][0]) * z).sum(1)  # the online first phi
    assert float(info["skill_reward"]) == pytest.approx(reward.mean(), abs=1e-5)
    sz, s2z, sza = np.hstack([s, z]), np.hstack([s2, z]), np.hstack([s, z, a])
    target_q = np.minimum(*(plain_trunk(state.critic_target, sza, i)[:, 0] for i in (0, 1)))
    value = plain_trunk(state.value, sz)[:, 0]
    gap = target_q - value
    assert float(info["value_loss"]) == pytest.approx((np.where(gap < 0, 0.1, 0.9) * gap**2).mean(), rel=1e-4)
    target = reward + 0.99 * plain_trunk(state.value, s2z)[:, 0]  # no done mask
    errors = sum((plain_trunk(state.critic, sza, i)[:, 0] - target) ** 2 for i in (0, 1))
    assert float(info["critic_loss"]) == pytest.approx(np.mean(errors), rel=1e-4)
    imitate = np.minimum(np.exp(10 * gap), 100)
    log_pi = np.asarray(state.actor.log_prob(jnp.asarray(sz, jnp.float32), batch.action))
    assert float(info["actor_loss"]) == pytest.approx(-(imitate * log_pi).mean(), rel=1e-3)


def test_gradients_flow_only_where_they_should(state: hilp.State, batch: Batch) -> None:
    config = hilp.Config(dim=3, hidden=(8, 8), actor_hidden=(8,), batch=4, lr=1e-2)
    moved, _ = hilp.update(config, state, batch, jax.random.key(0))
    apart = lambda a, b: max(float(jnp.abs(x - y).max()) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))  # noqa: E731
    for name in ("phi", "value", "critic", "actor"):
        assert apart(getattr(state, name), getattr(moved, name)) > 1e-4, name
    # phi is moved by its own loss alone: the policy's gradients must not reach it.
    alone, _ = jax.grad(hilp.phi_loss, has_aux=True)(state.phi, config, state.phi_target, batch)
    again = jax.tree.map(lambda p, g: p - 1e-2 * g / (jnp.abs(g) + 1e-8), state.phi, alone)  # Adam's first step
    assert apart(again, moved.phi) < 1e-4


def test_skills_are_fresh_at_every_update(state: hilp.State, batch: Batch) -> None:
    rewards = [float(hilp.update(CONFIG, state, batch, jax.random.key(i))[1]["skill_reward"]) for i in range(5)]
    assert len(set(rewards)) == 5


def test_skills_that_were_lived_lead_to_the_goal_of_their_row(state: hilp.State, batch: Batch) -> None:
    """All of them with lived=1; a row that is its own goal leads nowhere, and has a uniform skill."""
    _, info = hilp.update(replace(CONFIG, lived=1.0), state, batch, jax.random.key(0))
    here, there, after = (
        np.asarray(state.phi[0](x), np.float64) for x in (batch.observation, batch.goal, batch.next_observation)
    )
    apart = np.linalg.norm(there - here, axis=1, keepdims=True)
    z = np.where(apart > skills.STANDING, (there - here) / np.maximum(apart, 1e-8), 0.0)
    key, _ = jax.random.split(jax.random.key(0))
    z = np.where(apart > skills.STANDING, z, skills.draw(key, z.shape))
    assert info["skill_reward"] == pytest.approx(np.mean(np.sum((after - here) * z, axis=1)), rel=1e-4)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_share_of_skills_that_were_lived(share: float) -> None:
    direction = jnp.tile(jnp.array([[0.0, 3.0]]), (4000, 1)).at[:100].set(0.0)
    z = np.asarray(skills.draw_lived(jax.random.key(1), direction, share))
    np.testing.assert_allclose(np.linalg.norm(z, axis=1), 1.0, rtol=1e-5)
    assert np.mean(np.all(z[100:] == [0.0, 1.0], axis=1)) == pytest.approx(share, abs=0.03)
    assert not np.all(z[:100] == [0.0, 1.0], axis=1).any()
    if share == 0.0:
        np.testing.assert_array_equal(z, skills.draw(jax.random.key(1), direction.shape))  # the paper's own draw


@pytest.mark.parametrize("lived", [0.0, 0.5])
def test_a_policy_apart_from_phi_draws_goals_for_skills_that_were_lived(lived: float) -> None:
    index, _ = sampling.build_index(np.full(20, 20))
    config = hilp.Config(schedule="sequential", lived=lived)
    rows = hilp.sample_policy(config, index, jax.random.key(0)).columns["latents"]
    assert ("goal_latent" in rows) == (lived > 0)
    np.testing.assert_array_equal(rows["next_latent"], rows["latent"] + 1)


def with_latents(config: hilp.Config, state: hilp.State, batch: Batch) -> Batch:
    """The batch of the second stage: transitions and what the first stage's phi makes of them."""
    latent, next_latent = (hilp.latents(config, state, x) for x in (batch.observation, batch.next_observation))
    kept = {name: getattr(batch, name) for name in ("observation", "action", "next_observation")}
    return Batch(**kept, latent=latent, next_latent=next_latent)


def test_sequential_trains_phi_first_and_then_only_the_policy(batch: Batch) -> None:
    config = hilp.Config(dim=3, hidden=(8, 8), actor_hidden=(8,), batch=4, lr=1e-2, schedule="sequential", phi_steps=2)
    state = hilp.init(config, SPEC, jax.random.key(0))
    same = lambda a, b: all(bool((x == y).all()) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))  # noqa: E731
    phi_stage, policy_stage = hilp.stages(config)
    assert (phi_stage.until, policy_stage.until, len(hilp.stages(CONFIG))) == (2, None, 1)
    for step in range(4):
        if step == 2:
            batch = with_latents(config, state, batch)
        stage = phi_stage if step < 2 else policy_stage
        before, (state, info) = state, stage.update(config, state, batch, jax.random.key(step))
        assert same(before.phi, state.phi) == (step >= 2)
        assert same((before.value, before.critic, before.actor), (state.value, state.critic, state.actor)) == (step < 2)
        assert ("phi_loss" in info) == (step < 2) and ("actor_loss" in info) == (step >= 2)


def test_kept_latents_change_nothing_but_the_work(state: hilp.State, batch: Batch) -> None:
    """A policy's update is the same from kept latents as in joint training from phi itself."""
    joint, _ = hilp.update(CONFIG, state, batch, jax.random.key(7))
    sequential, _ = hilp.update_policy(CONFIG, state, with_latents(CONFIG, state, batch), jax.random.key(7))
    for name in ("value", "critic", "critic_target", "actor"):
        for a, b in zip(*(jax.tree.leaves(getattr(s, name)) for s in (joint, sequential)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
