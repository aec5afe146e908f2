"""How observations change, for `inspect`: which are commanded, and how much the state and the action explain."""

from collections.abc import Iterable

import numpy as np

from hilp.data.measures import KeptRows, Steps, commanded, standard
from hilp.data.source import Source

MOST_STEPS = 8000  # that are looked at
FEATURES = 256  # random ones, that changes are fitted with
RIDGE = 1e-2  # a row
LEAST_STEPS = 200  # that say anything about how observations change
STEADY = 1e-3  # of its mean: a change that varies less is the same in every step
OFTEN = 0.2  # share of steps in which a column changes that says something: goals change at resets alone


class Dynamics:
    """Keeps some transitions of blocks as they pass by."""

    def __init__(self, source: Source):
        last = np.zeros(source.rows, bool)
        last[source.stops - 1] = True
        rows = np.flatnonzero(~last)
        self._rows = rows[np.unique(np.linspace(0, len(rows) - 1, MOST_STEPS).astype(np.int64))] if len(rows) else rows
        self._both = np.union1d(self._rows, self._rows + 1)
        self._actions, self._seen = KeptRows(self._rows), KeptRows(self._both)

    def add(self, first: int, rows: np.ndarray, actions: np.ndarray) -> None:
        self._actions.add(first, actions)
        self._seen.add(first, rows)

    def measured(self, periods: Iterable[tuple[int, float]]) -> tuple[dict[int, int], np.ndarray]:
        """Targets by action, and the share of each column that is explained; periods: of columns that wrap."""
        seen = self._seen.result().astype(np.float64)
        here, there = (seen[np.searchsorted(self._both, rows)] for rows in (self._rows, self._rows + 1))
        for column, period in periods:
            step = there[:, column] - here[:, column]
            there[:, column] = here[:, column] + (step + period / 2) % period - period / 2
        steps = Steps.of(here, there, self._actions.result())
        return commanded(steps), explained(steps)


def explained(steps: Steps) -> np.ndarray:
    """Share of the variance of each column's change in a step that the state and the action explain, on other rows.

    By ridge regression on the numbers and on random features of them, fitted on the first half of the steps and
    measured on the second. Columns that hardly ever change are NaN.
    """
    found = np.full(steps.here.shape[1], np.nan)
    half = len(steps.actions) // 2
    moves = (steps.here != steps.there).sum(axis=0) > OFTEN * len(steps.actions)
    if 2 * half < LEAST_STEPS or not moves.any():
        return found
    seen = standard(np.concatenate([steps.here, steps.actions], axis=1))
    random = np.random.default_rng(0)
    directions = random.normal(size=(seen.shape[1], FEATURES)) / seen.shape[1] ** 0.5
    waves = np.cos(seen @ directions + random.uniform(0.0, 2.0 * np.pi, FEATURES))
    x, y = np.concatenate([np.ones((len(seen), 1)), seen, waves], axis=1), steps.change[:, moves]
    first = x[:half]
    weights = np.linalg.solve(first.T @ first + RIDGE * half * np.eye(x.shape[1]), first.T @ y[:half])
    wrong, spread = np.square(y[half:] - x[half:] @ weights).mean(axis=0), y[half:].var(axis=0)
    found[moves] = np.clip(1.0 - wrong / np.maximum(spread, 1e-12), 0.0, 1.0)
    change = steps.there - steps.here
    found[moves & (change.std(axis=0) < STEADY * np.abs(change.mean(axis=0)))] = 1.0
    return found
