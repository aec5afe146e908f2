"""Hindsight: what skills are, against values worked out by hand, and rewards by the best-paid segments."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hilp
from hilp.learning import methods, networks
from hilp.learning.methods import hindsight
from hilp.learning.methods.hindsight import Moments, Units
from hilp.prompts import segments
from hilp.spec import Spec

# One column that is a place (moves by 1 in a segment, spread 10), one that swings.
OF = Units(
    mean=jnp.array([5.0, 2.0]),
    deviation=jnp.array([10.0, 4.0]),
    moved=jnp.array([2.0, 8.0]),
    slow=jnp.array([1.0, 0.0]),
    places=jnp.array([1.0, 0.0]),
    slow_count=jnp.array(1.0),
)


def test_a_segment_is_its_mean_and_its_movement() -> None:
    rows = jnp.array([[[0.0, 1.0], [1.0, 3.0], [2.0, 5.0]], [[4.0, 1.0], [6.0, 2.0], [6.0, 2.0]]])
    mean, moved = hindsight.summary(rows, jnp.array([2, 1]))  # the second ends after one step, and stays there
    np.testing.assert_allclose(mean, [[1.5, 4.0], [6.0, 2.0]])
    np.testing.assert_allclose(moved, [[2.0, 4.0], [4.0, 2.0]], err_msg="of one real step in two, twice as far")


def test_columns_that_hardly_move_are_slow() -> None:
    moments = Moments(
        batches=jnp.array(3.0),
        mean=jnp.array([1.0, 0.0, 7.0]),
        square=jnp.array([101.0, 4.0, 49.0]),  # variances 100, 4 and 0
        moved=jnp.array([24.0, 9.0, 0.0]),  # 24 < 0.25 * 100; 9 > 0.25 * 4; the last never changes
    )
    of = hindsight.units(moments)
    np.testing.assert_allclose(of.deviation, [10.0, 2.0, 1.0])
    np.testing.assert_allclose(of.moved, [24.0**0.5, 3.0, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(of.slow, [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(of.places, [1.0, 0.0, 0.0])
    nothing_slow = hindsight.units(moments._replace(moved=jnp.array([26.0, 9.0, 0.0])))
    np.testing.assert_array_equal(nothing_slow.places, [1.0, 1.0, 1.0], "then phi sees all")


def test_moments_count_all_batches_alike() -> None:
    zero = jnp.zeros(1)
    moments = Moments(jnp.zeros(()), zero, zero, zero)
    for mean, moved in (([[1.0], [3.0]], [[2.0], [0.0]]), ([[5.0], [5.0]], [[4.0], [4.0]])):
        moments = hindsight.updated(moments, jnp.array(mean), jnp.array(moved))
    np.testing.assert_allclose(moments.mean, [3.5])  # of 2 and 5
    np.testing.assert_allclose(moments.square, [15.0])  # of 5 and 25
    np.testing.assert_allclose(moments.moved, [9.0])  # of 2 and 16


def test_a_skill_is_in_units_of_the_data() -> None:
    found = hindsight.skill(OF, jnp.array([[100.0, 6.0]]), jnp.array([[3.0, 100.0]]))
    np.testing.assert_allclose(found, [[1.5, 1.0]])  # moved 3 of 2; mean 6 is one deviation of 4 above 2


def test_phi_sees_places_alone() -> None:
    seen = hindsight.seen_places(jnp.array([[3.0, 4.0]]), OF)
    np.testing.assert_array_equal(seen, [[3.0, 0.0]])
    pictures = {"camera": jnp.ones((1, 2, 2, 3), jnp.uint8), "state": jnp.array([[3.0, 4.0]])}
    seen = hindsight.seen_places(pictures, OF)
    np.testing.assert_array_equal(seen["state"], [[3.0, 0.0]])
    np.testing.assert_array_equal(seen["camera"], pictures["camera"])


def test_what_a_skill_leaves_open_is_learnt_from_the_slow_columns() -> None:
    rest = networks.Mlp(4, (3,), 2, jax.random.key(0))
    s, z = jnp.array([[1.0, 2.0]]), jnp.array([[0.5, -1.0]])
    found = rest(jnp.array([[1.0, 2.0, 0.5, 0.0]]))  # the swinging column is not given away
    wanted = float((found[0, 1] + 1.0) ** 2) / 2  # and the slow one counts for nothing
    assert float(hindsight.completion_loss(rest, s, z, OF.slow)) == pytest.approx(wanted, rel=1e-6)


def policy_of(units: Units) -> hindsight.Policy:
    config = methods.config("hindsight", hidden=(8,), actor_hidden=(8,), dim=3)
    state = hindsight.init(config, Spec(2, 1), jax.random.key(0))
    return hindsight.export(config, state._replace(units=units))


def test_a_goal_is_the_skill_of_moving_there_no_faster_than_usual() -> None:
    policy = policy_of(OF)
    here, near, far = (policy.encode(jnp.array([[x, 0.5]])) for x in (1.0, 2.0, 90.0))
    assert here.shape == (1, 3 + 2)
    np.testing.assert_allclose(policy.goal_direction(here, near)[0, 0], 0.5, rtol=1e-5)  # 1 of the usual 2
    np.testing.assert_allclose(policy.goal_direction(here, far)[0, 0], 1.0, rtol=1e-5)
    np.testing.assert_allclose(policy.goal_direction(far, here)[0, 0], -1.0, rtol=1e-5)
    wanted = policy.rest(jnp.array([[1.0, 0.5, 0.5, 0.0]]))[0, 1]
    np.testing.assert_allclose(policy.goal_direction(here, near)[0, 1], wanted, atol=1e-4)


def test_where_nothing_is_slow_a_goal_is_the_skill_of_being_there() -> None:
    policy = policy_of(OF._replace(slow=jnp.zeros(2), places=jnp.ones(2), slow_count=jnp.array(0.0)))
    here, there = policy.encode(jnp.array([[1.0, 0.5]])), policy.encode(jnp.array([[15.0, 6.0]]))
    np.testing.assert_allclose(policy.goal_direction(here, there), [[1.0, 1.0]], rtol=1e-4)


def test_the_best_paid_segments_make_a_skill() -> None:
    skills = np.arange(400, dtype=np.float64).reshape(200, 2)
    rewards = np.zeros(200)
    rewards[[10, 20]] = 5.0, 4.0
    np.testing.assert_allclose(segments.best_paid(skills, rewards), [30.0, 31.0])  # a hundredth of 200: both
    rewards[[30, 40]] = 4.0  # all that are paid alike
    np.testing.assert_allclose(segments.best_paid(skills, rewards), [50.0, 51.0])
    rewards[:] = 0.0
    rewards[7] = 1.0  # the second best is the worst, and the worst are never among the best
    np.testing.assert_allclose(segments.best_paid(skills, rewards), [14.0, 15.0])


def test_pictures_alone_are_refused() -> None:
    config = methods.config("hindsight", encoder="light")
    with pytest.raises(hilp.HilpError, match="pictures only: use hilp"):
        hindsight.init(config, Spec(48, 1, (("camera", (4, 4, 3), "uint8"),)), jax.random.key(0))
