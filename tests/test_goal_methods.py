"""Goal-conditioned baselines: every loss against numpy written out here, and where gradients may flow."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hilp
from hilp.errors import HilpError
from hilp.learning import actors, hilbert, losses, methods, networks, sampling
from hilp.learning.methods import gcbc, gccql, gciql, gciql_q, iql
from hilp.learning.methods import hilp as hilp_method
from hilp.learning.sampling import Batch
from plain_networks import (
    COUNT,
    NETS,
    SPEC,
    adam_first,
    apart,
    drawn,
    join,
    plain_gaussian,
    plain_squashed,
    plain_trunk,
    step,
    used,
)

N_STEPS, STEPS_TO_GOAL = np.array([4, 0, 2, 4, 3, 1]), np.array([5, 0, 2, -1, -1, 9])


@pytest.fixture
def batch() -> Batch:
    """Six transitions; the second one's goal is its own state, the third one's is its next state."""
    rng = np.random.default_rng(0)
    s, s2, g, actor_goal, later = (rng.normal(size=(COUNT, 3)).astype(np.float32) for _ in range(5))
    action = rng.uniform(-0.9, 0.9, size=(COUNT, 2)).astype(np.float32)
    arrays = {"observation": s, "action": action, "next_observation": s2, "goal": g, "actor_goal": actor_goal}
    extras = {"reached": np.arange(COUNT) == 1, "arrived": np.arange(COUNT) == 2}
    every = {**arrays, **extras, "n_step_observation": later, "n_steps": N_STEPS, "steps_to_goal": STEPS_TO_GOAL}
    return Batch(**{name: jnp.asarray(array) for name, array in every.items()})


def changed(batch: Batch, **arrays: Any) -> Batch:
    leaves, names = batch.tree_flatten_with_keys()
    return Batch(**{name: leaf for name, (_, leaf) in zip(names, leaves, strict=True)} | arrays)


def float64(batch: Batch) -> tuple[np.ndarray, ...]:
    """s, a, s', g, the actor's goal and whether the goal is s."""
    parts = (batch.observation, batch.action, batch.next_observation, batch.goal, batch.actor_goal, batch.reached)
    return tuple(np.asarray(part, np.float64) for part in parts)


# ---- formulas --------------------------------------------------------------------------------------------------------


def test_ddpg_bc_divides_by_the_mean_size_of_q_and_gives_that_no_gradient() -> None:
    q, log_prob = jnp.array([2.0, -4.0]), jnp.array([-1.0, -3.0])
    assert float(actors.ddpg_bc(q, log_prob, 0.5)) == pytest.approx(1.0 / 3.0 + 0.5 * 2.0, rel=1e-5)
    np.testing.assert_allclose(jax.grad(actors.ddpg_bc)(q, log_prob, 0.5), [-0.5 / 3, -0.5 / 3], rtol=1e-5)
    np.testing.assert_allclose(actors.ddpg_bc(1000 * q, log_prob, 0.5), actors.ddpg_bc(q, log_prob, 0.5), rtol=1e-5)
    assert np.isfinite(float(actors.ddpg_bc(jnp.zeros(2), log_prob, 0.5)))


def test_conservative_is_the_log_of_weighted_exponentials_minus_q_of_the_data() -> None:
    q = jnp.array([[[0.0, 1.0], [2.0, -1.0], [1.0, 0.5]]])  # 1 member, 3 actions, 2 states
    density = jnp.array([[0.25, 0.5], [2.0, 1.0], [0.5, 4.0]])  # not logs: by hand below
    got = losses.conservative(q, jnp.log(density), jnp.array([[0.5, -0.5]]))
    first = np.log(1 / 0.25 + np.exp(2) / 2 + np.exp(1) / 0.5) - 0.5
    second = np.log(np.exp(1) / 0.5 + np.exp(-1) / 1 + np.exp(0.5) / 4) + 0.5
    np.testing.assert_allclose(got, [[first, second]], rtol=1e-6)


def test_n_step_targets_by_hand() -> None:
    # One member, discount 0.9: three steps on, one step on, and a goal that is the state itself.
    v, target_v = jnp.array([[-5.0, -5.0, -5.0]]), jnp.array([[-4.0, -1.0, -1.0]])
    target_next_v = jnp.array([[-2.0, -2.0, -7.0]])
    reached, steps = jnp.array([False, False, True]), jnp.array([3, 1, 0])
    got = hilbert.representation_loss(v, target_v, target_next_v, reached, 0.9, 0.8, steps=steps)
    # q: -(1 + 0.9 + 0.81) - 0.729 * 2 = -4.168 (advantage -0.168); -1 - 0.9 * 2 = -2.8 (advantage -1.8); 0 (+1).
    wanted = (0.2 * (5 - 4.168) ** 2 + 0.2 * (5 - 2.8) ** 2 + 0.8 * 5**2) / 3
    assert float(got) == pytest.approx(wanted, rel=1e-5)


def test_one_step_is_the_paper_and_unknown_paths_bound_nothing() -> None:
    rng = np.random.default_rng(0)
    v, old, old_next = (jnp.asarray(-rng.uniform(0, 9, (2, 5)), jnp.float32) for _ in range(3))
    reached = jnp.arange(5) == 2
    paper = hilbert.representation_loss(v, old, old_next, reached, 0.97, 0.9)
    ones, never = jnp.ones(5, jnp.int32), jnp.full(5, -1)
    both = hilbert.representation_loss(v, old, old_next, reached, 0.97, 0.9, steps=ones, steps_to_goal=never)
    assert float(both) == pytest.approx(float(paper), rel=1e-4)


def test_bounded_targets_by_hand() -> None:
    # Two members, discount 0.9, goals 2 steps ahead (bound -1.9), 3 ahead (bound -2.71) and elsewhere.
    v = jnp.zeros((2, 3))
    target_v = jnp.array([[-2.0, -2.0, -2.0], [-2.2, -2.0, -2.0]])
    target_next_v = jnp.array([[-0.5, -3.0, -8.0], [-4.0, -1.0, -9.0]])
    got = hilbert.representation_loss(
        v, target_v, target_next_v, jnp.zeros(3, bool), 0.9, 0.8, steps_to_goal=jnp.array([2, 3, -1])
    )
    # Own targets without bounds: -1.45, -3.7, -8.2 and -4.6, -1.9, -9.1.
    own = np.array([[-1.45, -2.71, -8.2], [-1.9, -1.9, -9.1]])
    # Shared targets: max(-4.6, -1.9), max(-3.7, -2.71), -9.1; advantages 0.2, -0.71, -7.1.
    assert float(got) == pytest.approx((np.array([0.8, 0.2, 0.2]) * own**2).mean(1).sum(), rel=1e-5)


def test_squashed_density_is_that_of_the_drawn_action() -> None:
    actor = drawn(lambda key: actors.SquashedActor(3, (8,), 2, key), jax.random.key(0))
    x, noise = np.random.default_rng(0).normal(size=(4, 3)), np.random.default_rng(1).normal(size=(5, 4, 2))
    action, density = actor.draw(jnp.asarray(x, jnp.float32), jnp.asarray(noise, jnp.float32))
    wanted_action, wanted_density = plain_squashed(actor, x, noise)
    np.testing.assert_allclose(action, wanted_action, atol=1e-5)
    np.testing.assert_allclose(density, wanted_density, rtol=1e-3, atol=1e-3)
    quiet = plain_squashed(actor, x, np.zeros((4, 2)))[0]
    np.testing.assert_allclose(actor(jnp.asarray(x, jnp.float32)), quiet, atol=1e-5)
    _, far = actor.draw(jnp.asarray(x, jnp.float32), jnp.full((4, 2), 60.0))
    assert np.isfinite(far).all(), "where tanh rounds to one"


# ---- GC-BC -----------------------------------------------------------------------------------------------------------


def test_gcbc_imitates(batch: Batch) -> None:
    config = gcbc.Config(actor_hidden=(8,), batch=COUNT, lr=1e-2)
    state = used(gcbc, config)
    moved, info = step(gcbc, config, state, batch)
    s, a, _, g, _, _ = float64(batch)
    assert info["actor_loss"] == pytest.approx(-plain_gaussian(state.actor, join(s, g), a)[1].mean(), rel=1e-4)
    assert step(gcbc, config, moved, batch)[1]["actor_loss"] < info["actor_loss"]


# ---- GC-IQL ----------------------------------------------------------------------------------------------------------

FAST: dict[str, Any] = {**NETS, "lr": 1e-2, "tau": 0.25}
OF_STATES = gciql.Config(**FAST)
OF_ACTIONS = gciql_q.Config(**FAST, bc_weight=0.7)
CLIMBING = gciql_q.Config(**FAST, bc_weight=0.7, extraction="ddpg+bc")


def test_gciql_of_states(batch: Batch) -> None:
    state = used(gciql, OF_STATES)
    _, info = step(gciql, OF_STATES, state, batch)
    s, a, s2, g, ag, done = float64(batch)
    v = np.array([plain_trunk(net, join(s, g)) for net in state.value])
    old = np.array([plain_trunk(net, join(s, g)) for net in state.value_target])
    old_next = np.array([plain_trunk(net, join(s2, g)) for net in state.value_target])
    own = done - 1 + 0.99 * (1 - done) * old_next
    shared = done - 1 + 0.99 * (1 - done) * old_next.min(0) - old.mean(0)
    wanted = (np.where(shared < 0, 0.1, 0.9) * (own - v) ** 2).mean(1).sum()
    assert info["value_loss"] == pytest.approx(wanted, rel=1e-4)
    assert info["value"] == pytest.approx(v.mean(), rel=1e-4)

    nearer = np.mean([plain_trunk(net, join(s2, ag)) - plain_trunk(net, join(s, ag)) for net in state.value], axis=0)
    weight = np.minimum(np.exp(3 * nearer), 100)
    assert info["awr_weight"] == pytest.approx(weight.mean(), rel=1e-3)
    log_pi = plain_gaussian(state.actor, join(s, ag), a)[1]
    assert info["actor_loss"] == pytest.approx(-(weight * log_pi).mean(), rel=1e-3)


def test_awr_weights_are_cut(batch: Batch) -> None:
    config = gciql.Config(**NETS, temperature=1e6, awr_clip=2.0)
    info = step(gciql, config, used(gciql, config), batch)[1]
    share = info["awr_weight"] / 2.0 * COUNT  # weights are 0 or 2
    assert share == pytest.approx(round(share), abs=1e-4) and 0 < round(share) < COUNT


@pytest.mark.parametrize("config", [OF_ACTIONS, CLIMBING])
def test_gciql_of_actions(batch: Batch, config: gciql_q.Config) -> None:
    state = used(gciql_q, config)
    _, info = step(gciql_q, config, state, batch)
    s, a, s2, g, ag, done = float64(batch)
    value = state.value
    target_q, actor_q = (
        np.min([plain_trunk(net, join(s, goal, a)) for net in state.critic_target], axis=0) for goal in (g, ag)
    )
    gap = target_q - plain_trunk(value, join(s, g))
    assert info["value_loss"] == pytest.approx((np.where(gap < 0, 0.1, 0.9) * gap**2).mean(), rel=1e-4)
    target = done - 1 + 0.99 * (1 - done) * plain_trunk(value, join(s2, g))
    errors = sum((plain_trunk(net, join(s, g, a)) - target) ** 2 for net in state.critic)
    assert info["critic_loss"] == pytest.approx(np.mean(errors), rel=1e-4)

    advantage = actor_q - plain_trunk(value, join(s, ag))
    assert info["advantage"] == pytest.approx(advantage.mean(), rel=1e-3)
    mean, log_pi = plain_gaussian(state.actor, join(s, ag), a)
    q = np.min([plain_trunk(net, join(s, ag, np.clip(mean, -1, 1))) for net in state.critic], axis=0)
    climb = -q.mean() / np.abs(q).mean() - 0.7 * log_pi.mean()
    weigh = -(np.minimum(np.exp(3 * advantage), 100) * log_pi).mean()
    assert info["actor_loss"] == pytest.approx(climb if config is CLIMBING else weigh, rel=1e-3)


@pytest.mark.parametrize("config", [OF_STATES, OF_ACTIONS, CLIMBING])
def test_gciql_values_feel_nothing_of_the_actor(batch: Batch, config: Any) -> None:
    module = methods.of(config)
    state = used(module, config)
    one, _ = step(module, config, state, batch)
    two, _ = step(module, config, state, changed(batch, actor_goal=batch.actor_goal + 1))
    assert apart(one.value, two.value) == 0
    assert module is gciql or apart(one.critic, two.critic) == 0
    assert apart(one.actor, two.actor) > 1e-4
    assert apart(one.value, state.value) > 1e-4
    elsewhere, _ = step(module, config, state, changed(batch, goal=batch.goal + 1))
    assert apart(one.value, elsewhere.value) > 1e-4
    assert apart(one.actor, elsewhere.actor) == 0


def test_gciql_targets_follow_slowly(batch: Batch) -> None:
    for module, config, name in ((gciql, OF_STATES, "value"), (gciql_q, OF_ACTIONS, "critic")):
        state = used(module, config)
        moved, _ = step(module, config, state, batch)
        before, online = getattr(state, f"{name}_target"), getattr(moved, name)
        wanted = jax.tree.map(lambda t, o: 0.75 * t + 0.25 * o, before, online)
        assert apart(wanted, getattr(moved, f"{name}_target")) < 1e-6
    fresh = jax.jit(partial(gciql_q.init, OF_ACTIONS, SPEC))(jax.random.key(0))
    assert apart(fresh.critic, fresh.critic_target) == 0


# ---- GC-CQL ----------------------------------------------------------------------------------------------------------

CONSERVATIVE = gccql.Config(**NETS, samples=3, conservative=2.0, lr=1e-2, actor_lr=1e-3)


def test_gccql_every_metric(batch: Batch) -> None:
    state = used(gccql, CONSERVATIVE)
    _, info = step(gccql, CONSERVATIVE, state, batch, seed=7)
    s, a, s2, g, _, done = float64(batch)
    key_anywhere, key_here, key_next, key_actor = jax.random.split(jax.random.key(7), 4)
    shape = (3, COUNT, 2)
    anywhere = np.asarray(jax.random.uniform(key_anywhere, shape, minval=-1.0, maxval=1.0), np.float64)
    here, here_density = plain_squashed(state.actor, join(s, g), np.asarray(jax.random.normal(key_here, shape)))
    after, after_density = plain_squashed(state.actor, join(s2, g), np.asarray(jax.random.normal(key_next, shape)))

    def q(critic: Any, start: np.ndarray, actions: np.ndarray) -> np.ndarray:  # members x actions x batch
        return np.array([[plain_trunk(net, join(start, g, one)) for one in actions] for net in critic])

    next_q = q(state.critic_target, s2, after).min(0).max(0)  # pessimistic over critics, optimistic over actions
    target = done - 1 + 0.99 * (1 - done) * next_q
    at_data = q(state.critic, s, a[None])[:, 0]
    squares = ((at_data - target) ** 2).mean(1).sum()
    total = np.exp(q(state.critic, s, anywhere)).sum(1) / 0.25  # uniform on a square of area 4
    total += (np.exp(q(state.critic, s, here)) / np.exp(here_density)).sum(1)
    total += (np.exp(q(state.critic, s, after)) / np.exp(after_density)).sum(1)
    gap = (np.log(total) - at_data).mean(1).sum()
    assert info["conservative_gap"] == pytest.approx(gap, rel=1e-3)
    assert info["critic_loss"] == pytest.approx(squares + 2.0 * gap, rel=1e-3)

    temperature = np.exp(float(state.log_temperature))
    own, own_density = plain_squashed(state.actor, join(s, g), np.asarray(jax.random.normal(key_actor, (COUNT, 2))))
    climbed = q(state.critic, s, own[None])[:, 0].min(0)
    assert info["actor_loss"] == pytest.approx((temperature * own_density - climbed).mean(), rel=1e-3)
    assert info["entropy"] == pytest.approx(-own_density.mean(), rel=1e-3)
    assert info["temperature"] == pytest.approx(temperature, rel=1e-5)


def test_gccql_gradients_flow_only_where_they_should(batch: Batch) -> None:
    state = used(gccql, CONSERVATIVE)
    moved, info = step(gccql, CONSERVATIVE, state, batch, seed=1)
    sg = jnp.concatenate([batch.observation, batch.goal], axis=-1)
    noise = jax.random.normal(jax.random.split(jax.random.key(1), 4)[3], (COUNT, 2))
    of_actor = lambda actor: gccql.actor_loss(actor, state.critic, jnp.exp(state.log_temperature), sg, noise)[0]  # noqa: E731
    alone = adam_first(state.actor, jax.jit(jax.grad(of_actor))(state.actor), 1e-3)
    assert apart(alone, moved.actor) < 2e-5, "the critic's loss does not move the actor"
    # Another temperature changes the actor's loss, and must not change the critics.
    cold, _ = step(gccql, CONSERVATIVE, state._replace(log_temperature=jnp.float32(-20.0)), batch, seed=1)
    assert apart(cold.critic, moved.critic) == 0
    assert apart(cold.actor, moved.actor) > 1e-4
    # Adam's first step has the size of lr and the sign of (entropy - target entropy).
    sign = 1.0 if info["entropy"] > -2.0 else -1.0
    assert float(moved.log_temperature - state.log_temperature) == pytest.approx(-sign * 1e-3, rel=1e-2)
    assert apart(moved.critic, state.critic) > 1e-4


def test_gccql_temperature_rises_while_entropy_is_too_low() -> None:
    slope = jax.grad(gccql.temperature_loss)
    assert float(slope(jnp.float32(0.3), jnp.array([3.0, 4.0]), -2.0)) == pytest.approx(-1.5)  # entropy -3.5 < -2
    assert float(slope(jnp.float32(0.3), jnp.array([-1.0, 0.0]), -2.0)) == pytest.approx(2.5)


# ---- IQL over features -----------------------------------------------------------------------------------------------


def plain_feature(net: networks.Feature, x: np.ndarray) -> np.ndarray:
    """phi(s), rescaled to norm sqrt(dim)."""
    take = lambda dense, y: y @ np.asarray(dense.weight, np.float64) + np.asarray(dense.bias, np.float64)  # noqa: E731
    x = take(net.preprocessor.first, x)
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    x = np.tanh(x * np.asarray(net.preprocessor.norm.scale) + np.asarray(net.preprocessor.norm.shift))
    x = take(net.out, np.maximum(take(net.preprocessor.second, x), 0))
    return np.sqrt(x.shape[-1]) * x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.mark.parametrize(("kind", "extraction"), [("fdm", "awr"), ("lap", "ddpg+bc"), ("rand", "awr")])
def test_iql_every_metric(batch: Batch, kind: Any, extraction: Any) -> None:
    config = iql.Config(**NETS, dim=3, phi_hidden=(8, 8), features=kind, extraction=extraction, lr=1e-2)
    state = used(iql, config)
    moved, info = step(iql, config, state, batch)
    s, a, s2, *_ = float64(batch)
    z = np.asarray(jax.random.normal(jax.random.key(7), (COUNT, 3)), np.float64)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    reward = (plain_feature(state.phi.nets[0], s2) * z).sum(1)
    assert info["skill_reward"] == pytest.approx(reward.mean(), abs=1e-4)
    sz, sza = join(s, z), join(s, z, a)
    v = plain_trunk(state.value, sz)
    gap = np.min([plain_trunk(net, sza) for net in state.critic_target], axis=0) - v
    assert info["value_loss"] == pytest.approx((np.where(gap < 0, 0.1, 0.9) * gap**2).mean(), rel=1e-4)
    target = reward + 0.99 * plain_trunk(state.value, join(s2, z))
    errors = sum((plain_trunk(net, sza) - target) ** 2 for net in state.critic)
    assert info["critic_loss"] == pytest.approx(np.mean(errors), rel=1e-4)
    mean, log_pi = plain_gaussian(state.actor, sz, a)
    q = np.min([plain_trunk(net, join(sz, np.clip(mean, -1, 1))) for net in state.critic], axis=0)
    climb = -q.mean() / np.abs(q).mean() - 0.3 * log_pi.mean()
    weigh = -(np.minimum(np.exp(config.temperature * gap), 100) * log_pi).mean()
    assert info["actor_loss"] == pytest.approx(weigh if extraction == "awr" else climb, rel=1e-3)
    # Random features stay as they are; the others learn, and from their own loss alone.
    assert (apart(state.phi.nets, moved.phi.nets) > 1e-4) == (kind != "rand")
    fresh, _ = step(iql, config, state, batch, seed=8)
    assert apart(moved.phi, fresh.phi) == 0, "skills differ, phi does not feel them"
    assert apart(moved.critic, fresh.critic) > 1e-4


def test_iql_export_has_the_reward_rule_and_no_goal_rule() -> None:
    config = iql.Config(**NETS, dim=4, phi_hidden=(8, 8))
    policy = iql.export(config, used(iql, config))
    s, s2 = jnp.ones((2, 3)), jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(policy.cumulant(s, s2), plain_feature(policy.phi, np.asarray(s2)), atol=1e-4)
    np.testing.assert_array_equal(policy.encode(s2), policy.cumulant(s, s2))
    np.testing.assert_allclose(policy.project(jnp.array([0.0, 3.0, 4.0, 0.0])), [0, 0.6, 0.8, 0], rtol=1e-6)
    assert not hasattr(policy, "goal_direction") and not hasattr(policy, "goal_skill")


# ---- HILP's options --------------------------------------------------------------------------------------------------


def test_hilp_looks_from_the_later_state_and_bounds_by_the_path(batch: Batch) -> None:
    config = hilp_method.Config(**NETS, dim=3, bound_targets=True, n_step=4)
    state = used(hilp_method, config)
    steps, ahead = N_STEPS, STEPS_TO_GOAL
    _, info = step(hilp_method, config, state, batch)
    s, _, _, g, _, done = float64(batch)
    later = np.asarray(batch.n_step_observation, np.float64)
    value = lambda net, x: -np.linalg.norm(plain_trunk(net, x) - plain_trunk(net, g), axis=1)  # noqa: E731
    v, old = (np.array([value(net, s) for net in nets]) for nets in (state.phi, state.phi_target))
    old_later = np.array([value(net, later) for net in state.phi_target])
    paid = np.array([sum(0.99**i for i in range(n)) for n in steps])
    shown = np.array([-sum(0.99**i for i in range(n)) if n >= 0 else -np.inf for n in ahead])
    own = np.maximum((1 - done) * (-paid + 0.99**steps * old_later), shown)
    advantage = np.maximum((1 - done) * (-paid + 0.99**steps * old_later.min(0)), shown) - old.mean(0)
    wanted = (np.where(advantage < 0, 0.05, 0.95) * (own - v) ** 2).mean(1).sum()
    assert info["phi_loss"] == pytest.approx(wanted, rel=1e-4)


def test_hilp_climbs_with_ddpg_bc(batch: Batch) -> None:
    config = hilp_method.Config(**NETS, dim=3, extraction="ddpg+bc", bc_weight=0.7, lr=1e-2)
    state = used(hilp_method, config)
    moved, info = step(hilp_method, config, state, batch)
    s, a, *_ = float64(batch)
    sz = join(s, np.asarray(hilbert.unit(jax.random.normal(jax.random.key(7), (COUNT, 3)))))
    mean, log_pi = plain_gaussian(state.actor, sz, a)
    q = np.min([plain_trunk(net, join(sz, np.clip(mean, -1, 1))) for net in state.critic], axis=0)
    assert info["actor_loss"] == pytest.approx(-q.mean() / np.abs(q).mean() - 0.7 * log_pi.mean(), rel=1e-3)
    assert "awr_weight" not in info
    # Another actor has another loss, which must not reach phi, V or Q.
    other, _ = step(hilp_method, config, state._replace(actor=jax.tree.map(jnp.negative, state.actor)), batch)
    assert apart((moved.phi, moved.value, moved.critic), (other.phi, other.value, other.critic)) == 0
    assert apart(moved.actor, state.actor) > 1e-4


def test_hilp_draws_what_its_options_need_and_nothing_else() -> None:
    index, _ = sampling.build_index(np.full(20, 20))
    sample = lambda config: jax.jit(partial(hilp_method.sample, config))(index, jax.random.key(0))  # noqa: E731
    rows = sample(hilp_method.Config())
    assert set(rows.columns["observations"]) == {"observation", "next_observation", "goal"}
    assert set(rows.values) == {"reached"}
    more = sample(hilp_method.Config(bound_targets=True, n_step=5))
    seen = more.columns["observations"]
    np.testing.assert_array_equal(rows.columns["observations"]["goal"], seen["goal"])
    at, goal, later = (np.asarray(seen[name]) for name in ("observation", "goal", "n_step_observation"))
    ahead = (goal >= at) & (goal // 20 == at // 20)
    np.testing.assert_array_equal(more.values["steps_to_goal"], np.where(ahead, goal - at, -1))
    np.testing.assert_array_equal(later, np.minimum(np.minimum(at + 5, at // 20 * 20 + 19), np.where(ahead, goal, 400)))


@pytest.mark.parametrize("extraction", ["awr", "ddpg+bc"])
def test_hilp_options_go_with_the_sequential_schedule(batch: Batch, extraction: Any) -> None:
    config = hilp_method.Config(**NETS, dim=3, schedule="sequential", n_step=2, extraction=extraction)
    state = used(hilp_method, config)
    kept = changed(batch, latent=jnp.ones((COUNT, 3)), next_latent=jnp.ones((COUNT, 3)))
    for stage, turn in zip(hilp_method.stages(config), (batch, kept), strict=True):
        after, info = jax.eval_shape(partial(stage.update, config), state, turn, jax.random.key(0))
        assert jax.tree.structure(after) == jax.tree.structure(state)
        assert ("awr_weight" in info) == (extraction == "awr" and turn is kept)


# ---- goals and mistakes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [hilp_method, gciql, gcbc])
def test_the_policy_kept_can_be_a_moving_average(batch: Batch, module: Any) -> None:
    sizes = {"actor_hidden": (8,), "batch": COUNT, "lr": 0.01}
    if module is not gcbc:
        sizes["hidden"] = (8,)
    last, averaged = module.Config(**sizes), module.Config(**sizes, actor_ema=0.25)
    state, plain = (module.init(config, SPEC, jax.random.key(0)) for config in (averaged, last))
    want: Any = None
    for number in range(1, 7):  # the plain mean at first, a moving average from the fourth update on
        state, _ = step(module, averaged, state, batch, seed=number)
        plain, _ = step(module, last, plain, batch, seed=number)
        rate = max(0.25, 1 / number)
        want = jax.tree.map(lambda old, new: old + rate * (new - old), want or state.actor, state.actor)  # noqa: B023
    assert apart(state.actor, want) > 1e-3
    assert apart(state.actor_average, want) < 1e-6
    assert apart(module.export(averaged, state).actor, want) < 1e-6
    assert plain.actor_average == () and apart(plain.actor, state.actor) < 1e-6
    assert apart(module.export(last, plain).actor, plain.actor) == 0


def test_goal_mixes() -> None:
    index, _ = sampling.build_index(np.full(2_000, 20))
    rows = gciql.sample(gciql.Config(batch=40_000), index, jax.random.key(0))
    at, goal, actor_goal = (np.asarray(rows.columns["observations"][n]) for n in ("observation", "goal", "actor_goal"))
    share = lambda wanted: pytest.approx(wanted, abs=0.01)  # noqa: E731
    same = lambda other: at // 20 == other // 20  # noqa: E731
    assert (goal == at).mean() == share(0.2)
    assert (same(goal) & (goal > at)).mean() == share(0.5)
    assert (~same(goal)).mean() == share(0.3)
    assert (same(actor_goal) & (actor_goal > at)).mean() == share(0.7)
    assert (~same(actor_goal)).mean() == share(0.3)
    # Of the actor's goals in the episode none lies behind, but for a random one that falls there ...
    assert (same(actor_goal) & (actor_goal <= at)).mean() < 0.001
    # ... and they are drawn apart from the value's.
    ahead = same(goal) & (goal > at) & same(actor_goal) & (actor_goal > at) & (at % 20 == 0)
    assert ahead.sum() > 500
    assert abs(np.corrcoef((goal - at)[ahead], (actor_goal - at)[ahead])[0, 1]) < 0.15

    rows = gccql.sample(gccql.Config(batch=40_000), index, jax.random.key(1))
    at, goal = (np.asarray(rows.columns["observations"][name]) for name in ("observation", "goal"))
    assert (goal == at).mean() == share(0.2)
    rows = gcbc.sample(gcbc.Config(batch=40_000), index, jax.random.key(2))
    at, goal = (np.asarray(rows.columns["observations"][name]) for name in ("observation", "goal"))
    assert (same(goal) & (goal > at)).all()


@pytest.mark.parametrize("name", ["gc-bc", "gc-iql", "gc-iql-q", "gc-cql"])
def test_the_skill_of_a_goal_is_the_goal_and_actions_stay_in_the_box(name: str) -> None:
    config = methods.config(name, **{key: value for key, value in NETS.items() if name != "gc-bc" or key != "hidden"})
    module = methods.module(name)
    policy = module.export(config, used(module, config))
    goal = jnp.array([[1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(policy.goal_skill(goal), goal)
    actions = policy.act(100 * jnp.ones((1, 3)), goal)
    assert actions.shape == (1, 2) and float(jnp.abs(actions).max()) <= 1.0
    assert not hasattr(policy, "cumulant") and not hasattr(policy, "project")
    assert methods.name_of(config) == name


SENSELESS: list[tuple[str, dict[str, Any], str]] = [
    ("gc-bc", {"batch": 0}, "'batch' must be at least 1"),
    ("gc-bc", {"actor_hidden": ()}, "'actor_hidden' must be sizes"),
    ("gc-bc", {"lr": -1.0}, "'lr' must be at least 0"),
    ("gc-bc", {"actor_ema": 0.0}, "'actor_ema' must be above 0, at most 1"),
    ("gc-iql", {"discount": 1.0}, "'discount' must be between"),
    ("gc-iql", {"expectile": 0.0}, "'expectile' must be between"),
    ("gc-iql", {"p_current_goal": 0.6, "goal_random": 0.5}, "together at most 1, not 0.6"),
    ("gc-iql", {"actor_goal_random": 1.1}, "'actor_goal_random' must be from 0 to 1"),
    ("gc-iql-q", {"extraction": "ddpg"}, "did you mean 'ddpg\\+bc'"),
    ("hilp", {"dim": 10**400}, "'dim' must be at most 2,147,483,647"),
    ("hilp", {"hidden": (10**12,)}, "'hidden' must be at most"),
    ("gc-iql", {"awr_clip": 0.0}, "'awr_clip' must be above 0"),
    ("gc-cql", {"samples": 0}, "'samples' must be at least 1"),
    ("gc-cql", {"conservative": -1.0}, "'conservative' must be at least 0"),
    ("gc-cql", {"actor_lr": -1.0}, "'actor_lr' must be at least 0"),
    ("gc-cql", {"p_current_goal": 0.9, "goal_random": 0.2}, "together at most 1"),
    ("iql-lap", {"features": "hilbert"}, "'features' cannot be 'hilbert'"),
    ("iql-lap", {"dim": 0}, "'dim' must be at least 1"),
    ("iql-lap", {"phi_hidden": (0, 1)}, "'phi_hidden' must be sizes"),
    ("iql-lap", {"bc_weight": -0.1}, "'bc_weight' must be at least 0"),
    ("hilp", {"n_step": 0}, "'n_step' must be at least 1"),
    ("hilp", {"bc_weight": -0.1}, "'bc_weight' must be at least 0"),
    ("hilp", {"schedule": "jointly"}, "did you mean 'joint'"),
    ("fb", {"backward_hidden": (128,)}, "'backward_hidden' must be two sizes"),
    ("sf-lap", {"phi_hidden": (8, 8, 8)}, "'phi_hidden' must be two sizes"),
]


@pytest.mark.parametrize(("name", "values", "message"), SENSELESS)
def test_senseless_configs_are_told(name: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(HilpError, match=message):
        methods.config(name, **values)


@pytest.mark.parametrize(("name", "key"), [("hilp", "lived"), ("hilp-directed", "lived"), ("fb", "bc_weight")])
def test_options_that_came_later_are_told_where_they_are_used(name: str, key: str) -> None:
    """At their default they would change the fingerprints of policies and the names of rows of before."""
    assert key not in methods.config_values(methods.config(name))
    used = methods.config_values(methods.config(name, **{key: 0.5}))
    assert used[key] == 0.5
    assert methods.configure(methods.config(name), used) == methods.config(name, **{key: 0.5})


def test_configs_are_plain_values_and_back() -> None:
    config = methods.configure(gciql_q.Config(lr=1e-2), {"extraction": "ddpg+bc", "bc_weight": "1"})
    assert (config.extraction, config.bc_weight, config.lr) == ("ddpg+bc", 1.0, 1e-2)
    assert methods.configure(methods.config("gc-iql-q"), methods.config_values(config)) == config
    with pytest.raises(HilpError, match="unknown config key 'extraction'"):
        methods.configure(gciql.Config(), {"extraction": "ddpg+bc"})


def test_configs_take_numpys_numbers_and_keep_pythons() -> None:
    config = hilp.HILP(
        dim=np.int64(4), hidden=np.array([8, 8]), actor_hidden=[np.int32(8)], temperature=np.float32(0.5)
    )
    assert config == hilp.HILP(dim=4, hidden=(8, 8), actor_hidden=(8,), temperature=0.5)
    assert json.loads(json.dumps(methods.config_values(config)))["dim"] == 4
