"""The theorems of the paper's appendix, as properties; and the vectorised code against the definitions as written."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hilp.errors import HilpError
from hilp.evaluation import theory
from hilp.tasks.maze.maps import fewest_steps

FAMILIES = ("path", "complete", "grid", "cycle", "random", "one-way")


def path(n: int) -> np.ndarray:
    """Motions: left, right, stay."""
    here = np.arange(n)
    return np.stack([np.maximum(here - 1, 0), np.minimum(here + 1, n - 1), here], axis=1)


def one_way_ring(n: int) -> np.ndarray:
    return ((np.arange(n) + 1) % n)[:, None]


def successors_of(family: str, rng: np.random.Generator) -> np.ndarray:
    """A deterministic world of up to a dozen states."""
    n = int(rng.integers(2, 12))
    if family == "path":
        return path(n)
    if family == "complete":
        return np.tile(np.arange(n), (n, 1))
    if family == "grid":
        rows, columns = int(rng.integers(2, 5)), int(rng.integers(2, 5))
        r, c = np.divmod(np.arange(rows * columns), columns)
        moves = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, -1), (1, -1), (-1, 1))
        return np.stack(
            [np.clip(r + i, 0, rows - 1) * columns + np.clip(c + j, 0, columns - 1) for i, j in moves], axis=1
        )
    if family == "cycle":
        return np.stack([np.roll(np.arange(n), 1), np.roll(np.arange(n), -1)], axis=1)
    if family == "random":
        return rng.integers(n, size=(n, int(rng.integers(1, 5))))
    cut = path(n)
    cut[rng.integers(n), 0] = rng.integers(n)  # a motion that jumps: there is not as back any more
    return cut


def embedded(steps: np.ndarray, rng: np.random.Generator, noise: float, stretch: float) -> np.ndarray:
    """Classical scaling of the symmetrised distances (exact where they are Euclidean), turned, stretched and shaken."""
    n = len(steps)
    known = np.where(steps < 0, steps.max() + 1, steps).astype(np.float64)
    square = np.square((known + known.T) / 2)
    centre = np.eye(n) - 1.0 / n
    values, vectors = np.linalg.eigh(-0.5 * centre @ square @ centre)
    exact = vectors * np.sqrt(np.maximum(values, 0.0))
    turn, _ = np.linalg.qr(rng.normal(size=(n, n)))
    shake = rng.normal(size=(n, n))
    shake *= noise * rng.random((n, 1)) / np.linalg.norm(shake, axis=1, keepdims=True)
    return stretch * exact @ turn + shake


def world(family: str, seed: int, noise: float, stretch: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    successors = successors_of(family, rng)
    steps = fewest_steps(successors)
    return successors, steps, embedded(steps, rng, noise, stretch)


worlds = st.builds(
    world,
    family=st.sampled_from(FAMILIES),
    seed=st.integers(0, 2**32 - 1),
    noise=st.floats(0.0, 0.4),
    stretch=st.floats(0.8, 1.1),
)


def everywhere(steps: np.ndarray) -> np.ndarray:
    return np.arange(len(steps))


def slowly(successors: np.ndarray, steps: np.ndarray, latents: np.ndarray, s: int, g: int) -> tuple[int, float, float]:
    """pi(s, g), eps_d and eps_e of one pair, transcribed from the appendix."""
    phi = [[float(x) for x in row] for row in latents]
    way = [b - a for a, b in zip(phi[s], phi[g], strict=True)]
    length = math.sqrt(sum(w * w for w in way))
    direction = [w / length for w in way]
    ideal = [a + d for a, d in zip(phi[s], direction, strict=True)]
    best, best_gain = -1, -math.inf
    for a, t in enumerate(successors[s]):
        if math.dist(phi[s], phi[t]) <= 1.0 + theory.UNIT_SLACK:
            gain = sum((y - x) * d for x, y, d in zip(phi[s], phi[t], direction, strict=True))
            if gain > best_gain:
                best, best_gain = a, gain
    movement = math.dist(ideal, phi[successors[s, best]]) if best >= 0 else math.inf
    local = 0.0
    for t in [*successors[s], s]:
        off = abs(int(steps[t, g]) - math.dist(phi[t], phi[g])) if steps[t, g] >= 0 else math.inf
        local = max(local, off)
    return best, movement, local


# ---- theorem 1 -------------------------------------------------------------------------------------------------------


def promised_and_optimal(successors: np.ndarray, steps: np.ndarray, latents: np.ndarray) -> tuple[np.ndarray, ...]:
    """For every pair: s != g with a way; 4 eps_e + eps_d; whether the chosen motion is optimal."""
    found = theory.direct(successors, steps, latents, everywhere(steps))
    optimal = np.zeros(steps.shape, bool)
    for s, g in np.argwhere(found.motion >= 0):
        optimal[s, g] = steps[successors[s, found.motion[s, g]], g] == steps[s, g] - 1
    return steps > 0, 4 * found.local_error + found.movement_error, optimal


@given(worlds)
@settings(max_examples=200, deadline=None)
def test_where_the_condition_holds_the_direction_is_optimal(given_world: tuple[np.ndarray, ...]) -> None:
    ways, bound, optimal = promised_and_optimal(*given_world)
    assert optimal[ways & (bound < 1.0 - theory.MARGIN)].all()


def test_the_premise_of_theorem_1_is_met_often_and_by_inexact_embeddings() -> None:
    rng = np.random.default_rng(0)
    met, loose, failed = dict.fromkeys(FAMILIES, 0), 0, 0
    for family in FAMILIES:
        for seed in range(60):
            ways, bound, optimal = promised_and_optimal(*world(family, seed, rng.uniform(0, 0.3), rng.uniform(0.8, 1)))
            holds = ways & (bound < 1.0 - theory.MARGIN)
            assert optimal[holds].all()
            met[family] += int(holds.sum())
            loose += int((holds & (bound > 0.5)).sum())
            failed += int((ways & ~optimal).sum())
    assert min(met.values()) >= 20, met  # in every family, also those that no Hilbert space holds exactly
    assert sum(met.values()) >= 2000, met
    assert loose >= 500  # close to the bound, where a wrong definition would show
    assert failed >= 500  # and the motion is no optimal one by itself


# ---- theorem 2 -------------------------------------------------------------------------------------------------------


@given(worlds, st.data())
@settings(max_examples=200, deadline=None)
def test_a_feasible_ideal_point_is_chosen(given_world: tuple[np.ndarray, ...], data: st.DataObject) -> None:
    successors, steps, latents = given_world
    n = len(steps)
    s = data.draw(st.integers(0, n - 1))
    g = data.draw(st.integers(0, n - 1).filter(lambda g: not np.allclose(latents[g], latents[s], atol=1e-3)))
    a = data.draw(st.integers(0, successors.shape[1] - 1))
    ideal = latents[s] + (latents[g] - latents[s]) / np.linalg.norm(latents[g] - latents[s])
    # A state of its own, so that neither s nor g moves with it.
    latents = np.concatenate([latents, ideal[None]])
    successors = np.concatenate([successors, np.full((1, successors.shape[1]), n)])
    successors[s, a] = n
    steps = fewest_steps(successors)
    found = theory.direct(successors, steps, latents, everywhere(steps))
    chosen = latents[successors[s, found.motion[s, g]]]
    # A motion that is longer by the slack may win, but not from a direction farther off than this.
    near = 2 * math.sqrt(theory.UNIT_SLACK)
    assert np.linalg.norm(chosen - ideal) < near and found.movement_error[s, g] < near


@pytest.mark.parametrize("family", ["path", "complete"])
def test_isometric_worlds_have_feasible_ideal_points_everywhere(family: str) -> None:
    for seed in range(30):
        successors, steps, latents = world(family, seed, noise=0.0, stretch=1.0)
        found = theory.direct(successors, steps, latents, everywhere(steps))
        ways = steps > 0
        assert found.local_error[ways].max() < 1e-6
        assert found.movement_error[ways].max() < 1e-4
        numbers = theory.theorem(successors, steps, latents, everywhere(steps))
        assert numbers["condition_share"] == numbers["optimal_where_condition"] == numbers["optimal_share"] == 1.0


# ---- the numbers -----------------------------------------------------------------------------------------------------


@given(worlds)
@settings(max_examples=60, deadline=None)
def test_vectorised_as_defined(given_world: tuple[np.ndarray, ...]) -> None:
    successors, steps, latents = given_world
    found = theory.direct(successors, steps, latents, everywhere(steps))
    for s, g in np.argwhere(steps != 0):
        motion, movement, local = slowly(successors, steps, latents, s, g)
        assert found.local_error[s, g] == pytest.approx(local, abs=1e-5)
        assert (found.motion[s, g] < 0) == (motion < 0)
        if motion < 0:
            continue
        way = latents[g] - latents[s]
        gains = [float((latents[successors[s, a]] - latents[s]) @ way) for a in (motion, found.motion[s, g])]
        assert gains[0] == pytest.approx(gains[1], abs=1e-9)  # ties may be broken either way
        if np.array_equal(latents[successors[s, motion]], latents[successors[s, found.motion[s, g]]]):
            assert found.movement_error[s, g] == pytest.approx(movement, abs=1e-5)


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    successors, steps, latents = world("grid", 3, 0.2, 1.0)
    whole = theory.direct(successors, steps, latents, everywhere(steps))
    monkeypatch.setattr(theory, "BLOCK", 3)
    for a, b in zip(whole, theory.direct(successors, steps, latents, everywhere(steps)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    some = theory.direct(successors, steps, latents, np.array([1, 3]))
    np.testing.assert_array_equal(some.motion, whole.motion[[1, 3]])


def test_three_states_by_hand() -> None:
    """States at 0, 1.1 and 2 on a line: the motion between the first two is too long to be allowed."""
    successors, latents = path(3), np.array([[0.0], [1.1], [2.0]])
    steps = fewest_steps(successors)
    found = theory.direct(successors, steps, latents, everywhere(steps))
    left, right, stay = 0, 1, 2
    assert found.motion[1, 2] == right and found.motion[2, 1] == found.motion[2, 0] == left
    assert found.motion[1, 0] == stay
    assert successors[0, found.motion[0, 1]] == successors[0, found.motion[0, 2]] == 0
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(found.movement_error[off], [1.0, 1.0, 1.0, 0.1, 0.1, 0.1], atol=1e-9)
    np.testing.assert_allclose(found.local_error[off], 0.1, atol=1e-9)
    numbers = theory.theorem(successors, steps, latents, everywhere(steps))
    assert numbers["condition_share"] == numbers["optimal_share"] == 0.5  # 4 * 0.1 + 0.1 < 1 < 4 * 0.1 + 1
    assert numbers["optimal_where_condition"] == 1.0
    assert numbers["median_local_error"] == pytest.approx(0.1)
    whole = theory.examine(successors, steps, latents, discount=0.99)
    assert whole["greedy_motion_optimal"] == 1.0  # with the long motion, too
    assert whole["random_motion_optimal"] == pytest.approx(1 / 3)


def test_a_scaled_isometry_is_found_again() -> None:
    successors = path(9)
    steps = fewest_steps(successors)
    numbers = theory.examine(successors, steps, 0.5 * np.arange(9.0)[:, None], discount=0.99)
    assert numbers["theorem_scaled"]["scale"] == pytest.approx(2.0)
    assert numbers["theorem_scaled"]["condition_share"] == numbers["theorem_scaled"]["optimal_share"] == 1.0
    assert numbers["theorem_as_learned"]["condition_share"] < 0.5
    assert numbers["theorem_as_learned"]["optimal_share"] == 1.0
    assert numbers["rank_correlation"] == pytest.approx(1.0)
    json.dumps(numbers, allow_nan=False)


def test_errors_on_both_scales() -> None:
    successors = path(6)
    steps = fewest_steps(successors)
    numbers = theory.embedding(steps, np.arange(6.0)[:, None], 0.9, everywhere(steps))
    exact = steps[steps > 0].astype(float)
    discounted = (1 - 0.9**exact) / 0.1
    assert numbers["error_plain"]["sup"] == pytest.approx(0.0, abs=1e-9)
    assert numbers["error_discounted"]["mean"] == pytest.approx(np.mean(exact - discounted))
    assert numbers["error_discounted"]["sup"] == pytest.approx(np.max(exact - discounted))
    assert numbers["error_discounted"]["mse"] == pytest.approx(np.mean((exact - discounted) ** 2))
    assert numbers["error_in_steps"]["mean"] == pytest.approx(np.mean(np.log(1 - 0.1 * exact) / np.log(0.9) - exact))

    simplex = np.eye(4) / np.sqrt(2)  # all distances are one step, on every scale
    steps = 1 - np.eye(4, dtype=np.int16)
    numbers = theory.embedding(steps, simplex, 0.9, everywhere(steps))
    assert numbers["rank_correlation"] is None  # nothing to order
    for scale in ("error_plain", "error_discounted", "error_in_steps"):
        assert numbers[scale]["sup"] == pytest.approx(0.0, abs=1e-9)


def test_asymmetry() -> None:
    steps = fewest_steps(one_way_ring(4))  # 1, 2 or 3 there; 3, 2 or 1 back
    assert theory.asymmetry(steps, everywhere(steps)) == {"asymmetry": pytest.approx(2 / 3), "one_way_share": 0.0}
    steps = fewest_steps(path(5))
    assert theory.asymmetry(steps, everywhere(steps)) == {"asymmetry": 0.0, "one_way_share": 0.0}
    steps = fewest_steps(np.array([[1], [2], [2]]))  # 0 -> 1 -> 2 and no way back
    assert theory.asymmetry(steps, everywhere(steps)) == {"asymmetry": None, "one_way_share": 1.0}


def test_pairs_without_a_way_are_left_out_and_counted() -> None:
    two_paths = np.concatenate([path(3), 3 + path(2)])
    steps = fewest_steps(two_paths)
    latents = np.array([0.0, 1.0, 2.0, 50.0, 51.0])[:, None]
    numbers = theory.examine(two_paths, steps, latents, discount=0.99)
    assert (numbers["pairs"], numbers["pairs_without_way"]) == (8, 12)
    assert numbers["theorem_as_learned"]["condition_share"] == numbers["theorem_as_learned"]["optimal_share"] == 1.0
    assert numbers["error_plain"]["sup"] == pytest.approx(0.0, abs=1e-9)


def test_a_collapsed_phi_has_no_direction() -> None:
    successors = path(4)
    numbers = theory.examine(successors, fewest_steps(successors), np.full((4, 3), 0.1), discount=0.99)
    assert numbers["rank_correlation"] is None
    for name in ("theorem_as_learned", "theorem_scaled"):
        assert numbers[name]["undefined_share"] == 1.0
        assert numbers[name]["condition_share"] == numbers[name]["optimal_share"] == 0.0
        assert numbers[name]["optimal_where_condition"] is None
    assert numbers["greedy_motion_optimal"] == 0.0
    json.dumps(numbers, allow_nan=False)


def test_a_world_without_ways_is_an_error() -> None:
    successors = np.array([[0], [1]])
    with pytest.raises(HilpError, match="no state"):
        theory.examine(successors, fewest_steps(successors), np.zeros((2, 1)), discount=0.9)


def test_many_states_are_sampled_by_start() -> None:
    assert np.array_equal(theory.choose_starts(7), np.arange(7))
    some = theory.choose_starts(100, pairs=2_000, seed=1)
    assert len(some) == len(set(some)) == 20 and np.array_equal(some, theory.choose_starts(100, 2_000, seed=1))
    successors = path(100)
    steps = fewest_steps(successors)
    numbers = theory.examine(successors, steps, np.arange(100.0)[:, None], 0.99, pairs=2_000, seed=1)
    assert (numbers["start_states"], numbers["pairs"]) == (20, 20 * 99)
    assert numbers["theorem_as_learned"]["optimal_share"] == 1.0
