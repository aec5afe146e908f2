"""How observations change, for `inspect`: which are commanded, and how much state, action and the past explain."""

from collections.abc import Iterable, Mapping

import numpy as np

from hilp.data.dataset import Dataset
from hilp.data.measures import KeptRows, Steps, commanded, standard
from hilp.data.source import Kind, Source, of_dataset

MOST_STEPS = 8000  # that are looked at
FEATURES = 256  # random ones, that changes are fitted with
RIDGE = 1e-2  # a row
LEAST_STEPS = 200  # that say anything about how observations change
STEADY = 1e-3  # of its mean: a change that varies less is the same in every step
PASTS = (1, 2, 3, 4, 6, 8)  # rows that networks may see at once, its own and those before it
PAST_NUMBERS = 64  # of a row, up to which the past is looked at
PAST_TELLS = 0.15  # share of what changes that the past has to explain beside the state and the action, to be advised
AS_GOOD = 0.9  # of what the longest past adds, from which a shorter one is enough
OFTEN = 0.2  # share of steps in which a column changes that says something: goals change at resets alone

Measured = tuple[dict[int, int], np.ndarray, dict[int, float]]  # see `Dynamics.measured`
NOTHING: Measured = ({}, np.full(1, np.nan), {})


class Dynamics:
    """Keeps some transitions of blocks as they pass by."""

    def __init__(self, source: Source):
        last = np.zeros(source.rows, bool)
        last[source.stops - 1] = True
        rows = np.flatnonzero(~last)
        self._rows = rows[np.unique(np.linspace(0, len(rows) - 1, MOST_STEPS).astype(np.int64))] if len(rows) else rows
        # The rows before each, as networks would see them: an episode's first one stands in for those before it.
        stacks = isinstance(source.observation, Kind) and source.observation.shape[0] <= PAST_NUMBERS
        longest = PASTS[-1] if stacks and source.frames == 1 else 1
        begins = np.repeat(source.stops - source.lengths, source.lengths)
        self._before = np.maximum(self._rows[:, None] - np.arange(longest), begins[self._rows][:, None])
        self._both = np.union1d(self._before, self._rows + 1)
        self._actions, self._seen = KeptRows(self._rows), KeptRows(self._both)

    def add(self, first: int, rows: np.ndarray, actions: np.ndarray) -> None:
        self._actions.add(first, actions)
        self._seen.add(first, rows)

    @staticmethod
    def past(data: Dataset) -> dict[int, float]:
        """What the last rows explain, of a data set whose rows are at hand: the last part of `measured`."""
        if not data.rows or isinstance(data.observations, Mapping) or data.observations.ndim != 2:
            return {}
        found = Dynamics(of_dataset(data))
        seen, acted = data.observations[found._both], data.network_actions[found._rows]
        found._seen.found, found._actions.found = [np.asarray(seen)], [np.asarray(acted)]
        return found.measured(() if data.transform is None else data.transform.angles)[2]

    def measured(self, periods: Iterable[tuple[int, float]]) -> Measured:
        """Targets by action; the share of each column that is explained; and the mean share by how many of the last
        rows are known, where that was looked at. periods: of columns that wrap.
        """
        seen = self._seen.result().astype(np.float64)
        here, there = (seen[np.searchsorted(self._both, rows)] for rows in (self._rows, self._rows + 1))
        for column, period in periods:
            step = there[:, column] - here[:, column]
            there[:, column] = here[:, column] + (step + period / 2) % period - period / 2
        actions = self._actions.result()
        steps = Steps.of(here, there, actions)
        alone, shares = explained(steps), dict[int, float]()
        if self._before.shape[1] > 1 and not np.isnan(alone).all():
            shares[1] = float(np.nanmean(alone))
            window = seen[np.searchsorted(self._both, self._before)]  # steps x rows x columns, newest first
            for column, period in periods:
                window[..., column] -= period * np.round((window[..., column] - here[:, None, column]) / period)
            window[:, 1:] -= window[:, :-1]  # neighbours are nearly equal, and a ridge would not tell them apart
            # Rows with a NaN are left out by what is known of all of them, so that all counts see the same steps.
            known = Steps.of(window.reshape(len(here), -1), there, actions)
            width = here.shape[1]
            same = Steps(known.here[:, :width], known.there, known.actions)
            for count in PASTS[1:]:
                found = explained(same, known.here[:, : count * width])
                if not np.isnan(found).all():
                    shares[count] = float(np.nanmean(found))
        return commanded(steps), alone, shares


def advised(shares: dict[int, float]) -> tuple[int, str]:
    """How many of the last rows networks should see at once, by what they explain, and why; 1 and "" for one."""
    most = max(shares.values(), default=0.0) - shares.get(1, 0.0)
    if most < PAST_TELLS:
        return 1, ""
    count = next(count for count, share in shares.items() if share - shares[1] >= AS_GOOD * most)
    explain = f"the last {count} rows and the action explain {shares[count]:.0%} of what changes"
    return count, f"{explain}, one row {shares[1]:.0%}"


def explained(steps: Steps, known: np.ndarray | None = None) -> np.ndarray:
    """Share of the variance of each column's change in a step that the state and the action explain, on other rows.

    known: what takes the state's place, [n, any]: the rows before it, too.
    By ridge regression on the numbers and on random features of them, fitted on the first half of the steps and
    measured on the second. Columns that hardly ever change are NaN.
    """
    found = np.full(steps.here.shape[1], np.nan)
    half = len(steps.actions) // 2
    moves = (steps.here != steps.there).sum(axis=0) > OFTEN * len(steps.actions)
    if 2 * half < LEAST_STEPS or not moves.any():
        return found
    seen = standard(np.concatenate([steps.here if known is None else known, steps.actions], axis=1))
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
