"""Samplers: which rows can be drawn, how far goals lie, and that drawing needs only the key."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hilp.learning import sampling

ROWS = 100  # of all examples: other shapes are compiled anew
few_lengths = st.lists(st.integers(2, 12), min_size=1, max_size=8)
lengths_lists = few_lengths.map(lambda lengths: [ROWS - sum(lengths), *lengths])


def last_rows(lengths: list[int]) -> np.ndarray:
    return np.cumsum(lengths) - 1


@settings(max_examples=40, deadline=None)
@given(lengths_lists, st.integers(0, 2**31 - 1))
def test_transitions_never_start_on_a_last_row_and_goals_stay_in_the_episode(lengths: list[int], seed: int) -> None:
    index, held_out = sampling.build_index(np.array(lengths))
    assert held_out is None
    key = jax.random.key(seed)
    at = np.asarray(sampling.transitions(index, key, 64))
    assert not np.isin(at, last_rows(lengths)).any()
    goal = np.asarray(sampling.geometric_future(index, key, jnp.asarray(at), 0.9))
    episode = np.searchsorted(np.cumsum(lengths), at, side="right")
    assert (goal > at).all()
    assert (goal <= last_rows(lengths)[episode]).all()


def test_every_transition_and_every_state_is_drawn_equally_often() -> None:
    lengths = [3, 2, 7]
    index, _ = sampling.build_index(np.array(lengths))
    at = np.bincount(np.asarray(sampling.transitions(index, jax.random.key(0), 90_000)), minlength=12)
    assert at[[2, 4, 11]].sum() == 0
    np.testing.assert_allclose(np.delete(at, [2, 4, 11]), 10_000, rtol=0.05)
    states = np.bincount(np.asarray(sampling.states(index, jax.random.key(1), 120_000)), minlength=12)
    np.testing.assert_allclose(states, 10_000, rtol=0.05)


def test_future_goals_are_geometric_and_at_least_one_step_ahead() -> None:
    index, _ = sampling.build_index(np.array([10_000]))
    at = jnp.zeros(200_000, jnp.int32)
    ahead = np.asarray(sampling.geometric_future(index, jax.random.key(0), at, 0.9))
    for k in (1, 2, 5):
        assert np.mean(ahead == k) == pytest.approx(0.1 * 0.9 ** (k - 1), rel=0.05)
    assert ahead.min() == 1
    assert ahead.mean() == pytest.approx(10.0, rel=0.02)


def test_the_share_of_random_goals() -> None:
    index, _ = sampling.build_index(np.array([2] * 5_000))
    at = sampling.transitions(index, jax.random.key(0), 50_000)
    goal = sampling.hindsight_goals(index, jax.random.key(1), at, 0.375, 0.99)
    assert np.mean(np.asarray(goal != at + 1)) == pytest.approx(0.375, abs=0.01)


def test_every_later_row_is_an_equally_likely_uniform_goal() -> None:
    index, _ = sampling.build_index(np.array([3, 6, 4]))
    at = jnp.repeat(jnp.array([4, 7, 0], jnp.int32), 20_000)  # 4, 1 and 2 rows before their last rows 8, 8 and 2
    goals = np.asarray(sampling.uniform_future(index, jax.random.key(0), at)).reshape(3, -1)
    for row, wanted in zip(goals, ([5, 6, 7, 8], [8], [1, 2]), strict=True):
        values, counts = np.unique(row, return_counts=True)
        np.testing.assert_array_equal(values, wanted)
        np.testing.assert_allclose(counts, 20_000 / len(wanted), rtol=0.05)


def test_the_shares_of_value_goals_and_of_actor_goals() -> None:
    index, _ = sampling.build_index(np.array([2] * 5_000))
    at = sampling.transitions(index, jax.random.key(0), 50_000)
    goal = np.asarray(sampling.hindsight_goals(index, jax.random.key(1), at, 0.3, 0.99, 0.2) - at)
    assert [np.mean(goal == 0), np.mean(goal == 1)] == pytest.approx([0.2, 0.5], abs=0.01)
    goal = np.asarray(sampling.hindsight_goals(index, jax.random.key(1), at, 0.3) - at)
    assert np.mean(goal == 1) == pytest.approx(0.7, abs=0.01)


def test_steps_to_the_goal_and_the_n_step_row_by_hand() -> None:
    index, _ = sampling.build_index(np.array([5, 4]))  # last rows 4 and 8
    at, goal = jnp.array([0, 0, 1, 2, 3, 5, 5]), jnp.array([4, 2, 1, 1, 6, 8, 3])
    np.testing.assert_array_equal(sampling.steps_to_goal(index, at, goal), [4, 2, 0, -1, -1, 3, -1])
    np.testing.assert_array_equal(sampling.n_step_rows(index, at, goal, 3), [3, 2, 1, 4, 4, 8, 8])
    np.testing.assert_array_equal(sampling.n_step_rows(index, at, goal, 1), [1, 1, 1, 3, 4, 6, 6])


@settings(max_examples=30, deadline=None)
@given(lengths_lists, st.integers(1, 15), st.integers(0, 2**31 - 1))
def test_segments_stop_at_the_end_of_their_episode(lengths: list[int], k: int, seed: int) -> None:
    index, _ = sampling.build_index(np.array(lengths))
    rows, real = (np.asarray(x) for x in sampling.segments(index, jax.random.key(seed), 32, k))
    ends = last_rows(lengths)[np.searchsorted(np.cumsum(lengths), rows[:, 0], side="right")]
    np.testing.assert_array_equal(rows, np.minimum(rows[:, :1] + np.arange(k + 1), ends[:, None]))
    np.testing.assert_array_equal(real, np.minimum(ends - rows[:, 0], k))
    assert (real >= 1).all()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(2, 9), min_size=2, max_size=8), st.data())
def test_a_validation_split_shares_nothing(lengths: list[int], data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.integers(0, len(lengths) - 1), min_size=1, max_size=len(lengths) - 1))
    held = np.isin(np.arange(len(lengths)), list(chosen))
    train, validation = sampling.build_index(np.array(lengths), held)
    assert validation is not None
    assert jax.tree.map(jnp.shape, train) == jax.tree.map(jnp.shape, validation), "one compiled program for both"
    episode = np.repeat(np.arange(len(lengths)), lengths)
    for index, wanted in ((train, ~held), (validation, held)):
        at = np.asarray(sampling.transitions(index, jax.random.key(0), 200))
        goals = np.asarray(sampling.hindsight_goals(index, jax.random.key(1), jnp.asarray(at), 0.5, 0.9))
        assert wanted[episode[at]].all()
        assert wanted[episode[goals]].all()


def columns_of(xp: Any, observations: Any, actions: Any, mean: Any, scale: Any, **own: Any) -> sampling.Columns:
    shared = {"observations": jax.tree.map(xp.asarray, observations), "actions": xp.asarray(actions)}
    return sampling.Columns(shared, {name: xp.asarray(column) for name, column in own.items()}, mean, scale)


def test_gather_normalises_and_clips() -> None:
    observations = np.array([[0.0, 0.0], [0.0, 0.0], [4.0, 10.0], [6.0, 10.0]])
    columns = columns_of(jnp, observations, [[1.0], [-1.0], [0.5], [0.0]], jnp.array([2.0, 0.0]), jnp.array([2.0, 5.0]))
    at, goal = jnp.array([0, 1, 2]), jnp.array([1, 1, 3])
    batch = sampling.gather(columns, sampling.Rows.of_transitions(at, {"goal": goal}, reached=goal == at))
    np.testing.assert_allclose(batch.observation, [[-1, 0], [-1, 0], [1, 2]])
    np.testing.assert_allclose(batch.next_observation, [[-1, 0], [1, 2], [2, 2]])
    np.testing.assert_allclose(batch.goal, [[-1, 0], [-1, 0], [2, 2]])
    np.testing.assert_allclose(batch.action, [[1 - 1e-5], [-1 + 1e-5], [0.5]])
    # Rows 0 and 1 hold the same numbers, but only the second sample's goal IS its state.
    np.testing.assert_array_equal(batch.reached, [False, True, False])


@pytest.mark.parametrize("xp", [jnp, np])
def test_gather_looks_up_what_is_asked_for_and_nothing_else(xp: Any) -> None:
    table = np.arange(12, dtype=np.float32).reshape(6, 2)
    columns = columns_of(xp, table, np.zeros((6, 1)), xp.array([1.0, 2.0]), xp.array([2.0, 4.0]), latents=10 * table)
    rows = sampling.Rows(
        {
            "observations": {"observation": xp.array([[0, 3]]), "other": xp.array([[1, 5]])},
            "latents": {"latent": xp.array([[2, 4]])},
        },
        {"told": xp.array([[2, 0]])},
    )  # a block of one batch
    batch = sampling.gather(columns, rows, xp)
    prepared = (table - [1.0, 2.0]) / [2.0, 4.0]
    np.testing.assert_allclose(batch.observation, prepared[[[0, 3]]])
    np.testing.assert_allclose(batch.other, prepared[[[1, 5]]])
    np.testing.assert_allclose(batch.latent, 10 * table[[[2, 4]]])
    np.testing.assert_array_equal(batch.told, [[2, 0]])
    assert "action" not in batch
    with pytest.raises(AttributeError, match="no 'goal', its sampler drew latent, observation, other, told"):
        _ = batch.goal


@pytest.mark.parametrize("xp", [jnp, np])
def test_gather_takes_segments_and_named_trees(xp: Any) -> None:
    """A vector is normalised, an image stays bytes; a segment of k steps is k + 1 rows of everything."""
    rng = np.random.default_rng(0)
    state = rng.normal(size=(10, 3)).astype(np.float32)
    camera = rng.integers(0, 255, size=(10, 4, 5, 3), dtype=np.uint8)
    mean, scale = {"state": np.float32([1, 2, 3])}, {"state": np.float32([2, 2, 4])}
    columns = columns_of(xp, {"state": state, "camera": camera}, np.zeros((10, 2), np.float32), mean, scale)
    index, _ = sampling.build_index(np.array([6, 4]))
    numbers, real = sampling.segments(index, jax.random.key(0), 7, 3)
    numbers = xp.asarray(numbers)
    rows = sampling.Rows(
        {"observations": {"first": numbers[:, 0], "segment": numbers}, "actions": {"actions": numbers[:, :-1]}}
    )
    batch = sampling.gather(columns, rows, xp)
    assert batch.segment["camera"].dtype == np.uint8
    np.testing.assert_array_equal(batch.segment["camera"], camera[np.asarray(numbers)])
    np.testing.assert_allclose(
        batch.segment["state"], (state[np.asarray(numbers)] - mean["state"]) / scale["state"], rtol=1e-6
    )
    np.testing.assert_array_equal(batch.first["state"], batch.segment["state"][:, 0])
    assert batch.actions.shape == (7, 3, 2)
    assert (np.asarray(real) <= 3).all() and (np.asarray(real) >= 1).all()


def test_the_same_key_draws_the_same_rows() -> None:
    index, _ = sampling.build_index(np.array([5, 6]))
    one, two = (sampling.transitions(index, jax.random.key(3), 20) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert (np.asarray(sampling.transitions(index, jax.random.key(4), 20)) != np.asarray(one)).any()
