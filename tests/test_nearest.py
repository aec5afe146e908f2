"""The nearest row of the data: which one it is by hand, what the table keeps, and how it is prompted and exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hilp
from hilp import HilpError, export, testing
from hilp.export import numpy_folder
from hilp.learning import methods, sampling
from hilp.learning.methods import nearest
from hilp.learning.sampling import Batch
from hilp.spec import Spec

CFG = nearest.Config(rows=4, batch=2, goal_weight=0.5)


def put(state: nearest.State, rows: Any, goals: Any, actions: Any, cfg: Any = CFG) -> nearest.State:
    batch = Batch(observation=jnp.array(rows), goal=jnp.array(goals), action=jnp.array(actions)[:, None])
    return nearest.update(cfg, state, batch, jax.random.key(0))[0]


def test_the_nearest_row_by_hand() -> None:
    """Two rows, at 1 on the way to 6 and at 3 on the way to 10; squares of how far they are, goals count half."""
    empty = nearest.init(CFG, Spec(1, 1), jax.random.key(0))
    state = put(empty, [[1.0], [3.0]], [[6.0], [10.0]], [[0.2], [-0.7]])
    s, g = jnp.array([[-0.5], [0.1]]), jnp.array([[10.2], [10.2]])
    found = nearest.export(CFG, state).act(s, g)
    np.testing.assert_allclose(found, [[0.2], [-0.7]])  # 2.25 + 8.82 against 12.25 + 0.02, 0.81 + 8.82 against 8.43
    free = nearest.Config(rows=4, batch=2, goal_weight=0.0)
    np.testing.assert_allclose(nearest.export(free, state).act(s, g), [[0.2], [0.2]])
    assert not np.any(nearest.export(CFG, empty).act(s, g))


def test_the_oldest_rows_make_room() -> None:
    state = nearest.init(CFG, Spec(1, 1), jax.random.key(0))
    counts = []
    for first in (1.0, 3.0, 5.0, 7.0, 9.0):
        state = put(state, [[first], [first + 1]], [[0.0], [0.0]], [[first / 10], [first / 10]])
        counts.append(int(state.filled))
    assert counts == [2, 4, 6, 4, 6]  # 4 is full
    assert sorted(np.ravel(state.seen).tolist()) == [7.0, 8.0, 9.0, 10.0]
    found = nearest.export(CFG, state).act(jnp.array([[8.9]]), jnp.array([[0.0]]))
    assert float(found[0, 0]) == pytest.approx(0.9)
    with pytest.raises(HilpError, match=r"'batch' is at most 'rows' \(4\), not 5"):
        nearest.Config(rows=4, batch=5)


def test_at_the_end_the_last_action_is_held() -> None:
    index, _ = sampling.build_index(np.array([3, 5]))
    rows = nearest.sample(nearest.Config(rows=64, batch=64, chunk=3), index, jax.random.key(0)).columns
    at, acted = np.asarray(rows["observations"]["observation"]), np.asarray(rows["actions"]["action"])
    last = np.where(at < 3, 1, 6)  # rows 2 and 7 have no action
    np.testing.assert_array_equal(acted, np.minimum(at[:, None] + np.arange(3), last[:, None]))
    goal = np.asarray(rows["observations"]["goal"])
    assert np.all((goal > at) & (goal <= last + 1))


def walk() -> hilp.Dataset:
    """Episodes that go right and episodes that go left, all from about 0: which way, only the goal tells."""
    rng = np.random.default_rng(0)
    way = np.repeat([1.0, -1.0], 10)
    place = np.cumsum(way[:, None] * np.ones(20) * 0.1, axis=1) + 0.02 * rng.normal(size=(20, 20))
    actions = np.repeat(0.5 * way, 20)
    return hilp.Dataset(place.reshape(-1, 1).astype(np.float32), actions[:, None].astype(np.float32), np.full(20, 20))


def test_goals_and_rewards_say_where_to(tmp_path: Path) -> None:
    data = walk()
    config = methods.config("nearest", rows=1000, batch=50, chunk=2)
    policy = hilp.pretrain(config, data, steps=20, quiet=True)
    assert policy.chunk == 2
    for goal, way in ((1.5, 0.5), (-1.5, -0.5)):
        assert policy.act([0.05], policy.goal([goal])) == pytest.approx([way])
    right = policy.reward(data, lambda s, a, t: t[:, 0])
    assert right.kind == "goal" and policy.act([0.05], right) == pytest.approx([0.5])
    export.write(policy, "numpy", tmp_path / "numpy")
    theirs = numpy_folder.load(tmp_path / "numpy").load(tmp_path / "numpy")
    seen = np.linspace(-1, 1, 9, dtype=np.float32)[:, None]
    goals = [one.goal([1.5]) for one in (policy, theirs)]
    np.testing.assert_allclose(theirs.act(seen, goals[1]), policy.act(seen, goals[0]), atol=1e-6)


def test_its_error_is_that_of_rows_it_has_not_seen() -> None:
    rows: list[dict[str, float]] = []
    config = methods.config("nearest", rows=400, batch=100)
    hilp.pretrain(config, walk(), steps=4, log_every=1, on_metrics=rows.append, quiet=True)
    assert rows[0]["actor_loss"] == pytest.approx(0.25)  # nothing is kept yet, so it answers 0
    assert rows[-1]["actor_loss"] < 0.1
    assert rows[-1]["listening"] > 0.3
    testing.check_contract(config)
