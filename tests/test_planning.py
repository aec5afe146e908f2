"""Midpoint planning against Algorithm 2 written down directly, and its selection of the k best against a sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from hilp.prompts import midpoints as planning
from hilp.prompts.midpoints import Midpoints, smallest

LINE = np.arange(101, dtype=np.float32)[:, None]  # latents 0, 1, ..., 100 on a line


def at(x: float) -> np.ndarray:
    return np.array([x], np.float32)


def algorithm_2(
    latents: np.ndarray, here: np.ndarray, goal: np.ndarray, recursions: int, best: int
) -> tuple[np.ndarray, float]:
    """The subgoal, and how clearly the k best won in the closest recursion (0: a tie, so the answer is not unique)."""
    w, u, clear = latents.astype(np.float64), goal.astype(np.float64), np.inf
    for _ in range(recursions):
        cost = np.maximum(np.linalg.norm(w - here, axis=1), np.linalg.norm(w - u, axis=1))
        order = np.argsort(cost, kind="stable")
        if best < len(w):
            clear = min(clear, cost[order[best]] - cost[order[best - 1]])
        u = w[order[:best]].mean(axis=0)
    return u, clear


def cloud(seed: int, n: int, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A bank, a state and a goal. The two are far apart, so that most of the bank can never win."""
    rng = np.random.default_rng(seed)
    latents = (10 * rng.normal(size=(n, dim))).astype(np.float32)
    return latents, latents[rng.integers(n)] + np.float32(0.5), latents[rng.integers(n)]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    seed=st.integers(0, 2**31),
    n=st.one_of(st.integers(1, 60), st.integers(60, 5_000)),
    dim=st.integers(1, 12),
    best=st.integers(1, 80),
    recursions=st.integers(0, 3),
)
@example(seed=0, n=1, dim=1, best=1, recursions=3)
@example(seed=1, n=5_000, dim=3, best=5, recursions=3)  # few can win: the filters are at work
@example(seed=2, n=40, dim=4, best=80, recursions=2)  # k larger than the bank
def test_subgoal_is_algorithm_2_with_the_mean_of_the_k_best(
    seed: int, n: int, dim: int, best: int, recursions: int
) -> None:
    latents, here, goal = cloud(seed, n, dim)
    wanted, clear = algorithm_2(latents, here, goal, recursions, min(best, n))
    assume(clear > 1e-3)
    bank = Midpoints(latents)
    np.testing.assert_allclose(bank.subgoal(here, goal, recursions, best), wanted, atol=1e-3)
    np.testing.assert_allclose(bank.subgoals(here[None], goal[None], recursions, best)[0], wanted, atol=1e-3)


@pytest.mark.parametrize("recursions", [0, 1, 3, "auto"])
def test_a_batch_is_its_single_queries(recursions: int | str) -> None:
    rng = np.random.default_rng(3)
    count = 2 * planning.BLOCK + 5  # more than one block, the last one not full
    latents = (10 * rng.normal(size=(3_000, 4))).astype(np.float32)
    here, goal = (latents[rng.integers(3_000, size=count)] + np.float32(0.1) for _ in range(2))
    bank = Midpoints(latents)
    singles = np.stack([bank.subgoal(h, g, recursions, 20) for h, g in zip(here, goal, strict=True)])
    np.testing.assert_allclose(bank.subgoals(here, goal, recursions, 20), singles, atol=1e-3)
    assert bank.subgoals(here[:0], goal[:0], recursions, 20).shape == (0, 4)


def test_a_batch_leaves_its_arguments_alone() -> None:
    bank, here, goal = Midpoints(LINE), np.zeros((3, 1), np.float32), np.full((3, 1), 64, np.float32)
    bank.subgoals(here, goal, 2, 1)
    assert (here == 0).all() and (goal == 64).all()


@pytest.mark.parametrize(("recursions", "wanted"), [(0, 64), (1, 32), (2, 16), (3, 8), (4, 4), (5, 2), (6, 1)])
def test_midpoints_halve_a_line(recursions: int, wanted: float) -> None:
    bank = Midpoints(LINE)
    assert bank.subgoal(at(0), at(64), recursions, best=1) == wanted
    assert bank.subgoals(at(0)[None], at(64)[None], recursions, best=1) == wanted


def test_the_k_best_are_averaged() -> None:
    # Costs max(w, |w - 64|) of 29..35 are 35 34 33 32 33 34 35: the best five are 30..34, around 32.
    assert Midpoints(LINE).subgoal(at(0), at(64), 1, best=5) == 32
    # From 10 to 64 the middle is 37: 34..40 on a line without 38, 39 and 40 are 34, 35, 36, 37.
    gap = LINE[~np.isin(LINE[:, 0], [38, 39, 40])]
    assert Midpoints(gap).subgoal(at(10), at(64), 1, best=4) == (34 + 35 + 36 + 37) / 4


@pytest.mark.parametrize(
    ("goal", "radius", "wanted"),
    [
        (64, 3.0, 2),  # 32, 16, 8, 4 are outside
        (64, 2.0, 2),  # at the radius is inside
        (64, 1.9, 1),
        (64, 10.0, 8),
        (64, 40.0, 32),
        (64, 64.0, 64),  # never recursed
        (2, 3.0, 2),
        (3, 3.0, 3),
    ],
)
def test_auto_recurses_until_the_subgoal_is_within_the_radius(goal: float, radius: float, wanted: float) -> None:
    bank = Midpoints(LINE)
    assert bank.subgoal(at(0), at(goal), "auto", 1, radius) == wanted
    assert bank.subgoals(at(0)[None], at(goal)[None], "auto", 1, radius) == wanted


def test_auto_stops_each_query_of_a_batch_on_its_own() -> None:
    goals = np.array([[64], [2], [100], [3], [12]], np.float32)
    found = Midpoints(LINE).subgoals(np.zeros_like(goals), goals, "auto", 1, 3.0)
    # 100, 50, 25, then 12 or 13 (a tie), then 6 or 7, ...: only its end is unique enough to ask for
    assert found[[0, 1, 3, 4], 0].tolist() == [2, 2, 3, 3]
    assert 1 <= found[2, 0] <= 3


def test_auto_gives_up_where_the_bank_has_no_midpoint() -> None:
    """Between two far clusters no subgoal is near: the recursion is bounded."""
    latents = np.array([[0.0], [100.0]], np.float32)
    assert Midpoints(latents).subgoal(at(0), at(100), "auto", 2, 3.0) == 50


def test_a_bank_of_one_state_is_every_subgoal() -> None:
    bank = Midpoints(np.array([[3.0, 4.0]], np.float32))
    here, goal = np.zeros(2, np.float32), np.ones(2, np.float32)
    for recursions in (1, 3):
        np.testing.assert_array_equal(bank.subgoal(here, goal, recursions, 50), [3, 4])
        np.testing.assert_array_equal(bank.subgoals(here[None], goal[None], recursions, 50), [[3, 4]])
    np.testing.assert_array_equal(bank.subgoal(here, goal, 0, 50), goal)


def test_k_larger_than_the_bank_is_the_mean_of_the_bank() -> None:
    assert Midpoints(LINE).subgoal(at(0), at(64), 1, best=1_000) == 50


def test_a_bank_of_equal_states() -> None:
    bank = Midpoints(np.full((4_000, 3), 2.0, np.float32))
    np.testing.assert_array_equal(bank.subgoal(np.zeros(3), np.ones(3), 3, 50), [2, 2, 2])


# ---- the k smallest --------------------------------------------------------------------------------------------------


def require_smallest(values: np.ndarray, count: int) -> None:
    chosen = smallest(values, count)
    assert len(set(chosen.tolist())) == count, "each position once"
    np.testing.assert_array_equal(np.sort(values[chosen]), np.sort(values)[:count])


N = 40_000
RNG = np.random.default_rng(0)
ADVERSARIAL = {
    "constant": np.full(N, 3.0),
    "sorted": np.arange(N, dtype=float),
    "reversed": np.arange(N, dtype=float)[::-1],
    "two values, few small": np.where(np.arange(N) < 30, 0.0, 1.0),
    "two values, many small": np.where(np.arange(N) % 2 == 0, 0.0, 1.0),
    "ties at the border": np.round(RNG.uniform(0, 40, N)),
    "all infinite": np.full(N, np.inf),
    "few finite": np.where(np.arange(N) == N - 1, 1.0, np.inf),
    "negative infinity": np.where(np.arange(N) % 1_000 == 7, -np.inf, RNG.normal(size=N)),
    # The sample takes every 19th value: here it sees only the largest, and only the smallest.
    "large where sampled": np.where(np.arange(N) % (N // 2048) == 0, 1e6, RNG.normal(size=N)),
    "small where sampled": np.where(np.arange(N) % (N // 2048) == 0, -1e6, RNG.normal(size=N)),
    "small and distinct where sampled": np.where(np.arange(N) % (N // 2048) == 0, np.arange(N) - N, RNG.normal(size=N)),
    "random": RNG.normal(size=N),
}


@pytest.mark.parametrize("count", [1, 7, 50, 2_000, N // 16, N // 16 + 1, N])
@pytest.mark.parametrize("kind", ADVERSARIAL)
def test_smallest_is_exact(kind: str, count: int) -> None:
    require_smallest(ADVERSARIAL[kind].astype(np.float32), count)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**31), n=st.integers(1, 9_000), share=st.floats(0, 1), levels=st.sampled_from([1, 2, 5, 10**6])
)
def test_smallest_is_exact_for_any_size(seed: int, n: int, share: float, levels: int) -> None:
    values = np.random.default_rng(seed).integers(levels, size=n).astype(np.float32)
    require_smallest(values, max(1, round(share * n)))


def test_auto_trusts_a_share_of_what_phi_can_tell_apart() -> None:
    assert planning.trust_radius(0.97) == pytest.approx(3.0)
    assert planning.trust_radius(0.995) == pytest.approx(18.0)
