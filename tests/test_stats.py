"""Aggregates against their formulas, hand values and their own guarantees."""

from __future__ import annotations

import math
import subprocess
import sys
from statistics import NormalDist

import numpy as np
import pytest

from hilp.evaluation import stats


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 50, 101])
def test_iqm_is_the_mean_of_the_middle_half(n: int) -> None:
    x = np.random.default_rng(n).normal(size=n)
    assert stats.iqm(x) == pytest.approx(np.sort(x)[n // 4 : n - n // 4].mean(), abs=1e-12)


def test_iqm_drops_a_rounded_down_quarter() -> None:
    assert stats.iqm([-1000, 1, 2, 3, 1000]) == pytest.approx(2.0)
    assert stats.iqm([1, 2, 30]) == pytest.approx(11.0)


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (1, 10), (5, 10), (10, 10), (87, 100), (1, 1), (0, 1)])
def test_wilson_by_its_formula(successes: int, n: int) -> None:
    z, rate = NormalDist().inv_cdf(0.975), successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    low, high = stats.wilson(successes, n)
    assert (low, high) == pytest.approx((centre - half, centre + half), abs=1e-12)
    assert 0 <= low <= rate <= high <= 1
    assert (low == 0) == (successes == 0) and (high == 1) == (successes == n), "the ends are exact"


def test_wilson_textbook_value() -> None:
    assert stats.wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [2, 3, 200])
def test_spearman_is_the_correlation_of_ranks(ties: bool, n: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=n)
    y = x + rng.normal(size=n)
    if ties:
        x, y = np.round(x), np.round(y)

    def ranks(values: np.ndarray) -> np.ndarray:  # ties share the mean of their places
        return (values < values[:, None]).sum(axis=1) + (values == values[:, None]).sum(axis=1) / 2

    expected = np.corrcoef(ranks(x), ranks(y))[0, 1]
    assert stats.spearman(x, y) == pytest.approx(expected, abs=1e-12)


def test_spearman_of_one_pair_and_of_a_constant_has_no_order() -> None:
    assert math.isnan(stats.spearman([1.0], [2.0]))
    assert math.isnan(stats.spearman([0.1 + 0.2] * 7, range(7))) and math.isnan(stats.spearman(range(7), [1.0] * 7))


def test_spearman_sees_order_only() -> None:
    x = np.linspace(0, 5, 40)
    assert stats.spearman(x, np.exp(x)) == pytest.approx(1.0)
    assert stats.spearman(x, -(x**3)) == pytest.approx(-1.0)
    assert math.isnan(stats.spearman(x, np.ones(40)))


def test_bootstrap_is_a_function_of_its_seed() -> None:
    scores = np.random.default_rng(0).normal(size=(3, 8))
    again = stats.stratified_bootstrap(scores, seed=5)
    assert stats.stratified_bootstrap(scores, seed=5) == again
    assert stats.stratified_bootstrap(scores, seed=6) != again


@pytest.mark.parametrize("statistic", ["iqm", "mean"])
def test_bootstrap_point_and_order(statistic: str) -> None:
    scores = [[1.0, 2.0, 3.0], [10.0, 11.0], [4.0, 4.5, 5.0, 9.0]]
    pooled = [s for stratum in scores for s in stratum]
    point, low, high = stats.stratified_bootstrap(scores, statistic=statistic)
    assert point == pytest.approx(stats.iqm(pooled) if statistic == "iqm" else np.mean(pooled))
    assert low < point < high


def test_bootstrap_resamples_within_strata() -> None:
    # Strata far apart but constant inside: nothing can vary, while pooled resampling would vary greatly.
    scores = [np.zeros(10), np.full(10, 100.0)]
    assert stats.stratified_bootstrap(scores, "mean") == (50.0, 50.0, 50.0)
    _, low, high = stats.stratified_bootstrap([np.concatenate(scores)], "mean")
    assert high - low > 20


def test_bootstrap_in_chunks_is_the_same_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = [np.random.default_rng(1).normal(size=40)]
    whole = stats.stratified_bootstrap(scores, reps=500)
    monkeypatch.setattr(stats, "_CHUNK_VALUES", 40 * 7)
    assert stats.stratified_bootstrap(scores, reps=500) == whole


@pytest.mark.parametrize("statistic", ["iqm", "mean"])
def test_bootstrap_covers_the_truth_about_as_often_as_it_says(statistic: str) -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(300):
        scores = rng.normal(size=(4, 12)) + 3.0
        _, low, high = stats.stratified_bootstrap(scores, statistic=statistic, reps=400, seed=trial)
        hits += low <= 3.0 <= high
    assert 0.87 <= hits / 300 <= 0.98


@pytest.mark.parametrize(
    "call",
    [
        lambda: stats.stratified_bootstrap([]),
        lambda: stats.stratified_bootstrap([[1.0, math.nan]]),
        lambda: stats.stratified_bootstrap([1.0, 2.0]),
        lambda: stats.stratified_bootstrap([[1.0], []]),
        lambda: stats.wilson(1, 0),
        lambda: stats.wilson(3, 2),
        lambda: stats.wilson(-1, 2),
        lambda: stats.spearman([1.0, 2.0], [1.0, 3.0, 2.0]),
    ],
)
def test_wrong_arguments_are_value_errors(call) -> None:
    with pytest.raises(ValueError, match=r"."):
        call()


def test_import_stays_light() -> None:
    code = "import runpy, sys; runpy.run_path(sys.argv[1]); print({'scipy', 'matplotlib', 'jax'} & set(sys.modules))"
    command = [sys.executable, "-c", code, str(stats.__file__)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
