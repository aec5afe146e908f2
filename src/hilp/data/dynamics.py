"""How observations change, for `inspect`: which are commanded, and how much the state and the action explain."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hilp.data.dataset import Dataset
from hilp.data.measures import UPPER, KeptRows, Steps, commanded, standard, vectors
from hilp.data.source import Source
from hilp.trees import over

MOST_STEPS = 8000  # that are looked at
MOST_NUMBERS = 40  # of a state and an action, beyond which hardly any begin alike, and looking takes long
MOST_ALIKE = 100_000  # among which ones that began alike are looked for
FEATURES = 256  # random ones, that changes are fitted with
RIDGE = 1e-2  # a row
LEAST_STEPS = 200  # that say anything about how observations change
STEADY = 1e-3  # of its mean: a change that varies less is the same in every step
LOOKED_UP, LONGEST = 4000, 500  # steps whose nearest ones are looked for: usual ones, and the longest
NEAR = 0.6  # steps and deviations of actions, that two steps begin apart at most to count as the same
LEAST_PAIRS = 100  # of such steps that say whether chance decides
LEAST_COMMON = 0.05  # of their way, so that steps are not expected to take for ever
RANDOM = 0.05  # share of them that end more than a step apart, from which data is random; walls alone make 0.006
OFTEN = 0.2  # share of steps in which a column changes that says something: goals change at resets alone


class Luck(NamedTuple):
    """What chance does to steps that began alike, in state and action."""

    usual: float | None  # share of pairs of them that end more than a usual step apart; None: too few began alike
    longest: float | None  # the same of the longest steps: what seldom happens may lead far
    slower: float  # how many steps it takes, on average, to get as far as one step goes

    @property
    def share(self) -> float | None:
        return max((share for share in (self.usual, self.longest) if share is not None), default=None)

    @property
    def is_random(self) -> bool:
        return (self.share or 0.0) >= RANDOM

    @property
    def leaps(self) -> bool:
        """Whether long steps are chance."""
        return (self.longest or 0.0) >= RANDOM

    @property
    def line(self) -> str:
        """What was found, in a line."""
        if self.share is None:
            return "too few steps began alike to tell whether chance decides"
        told = f"of steps that began alike, {self.share:.1%} ended more than a step apart"
        return (
            f"{told}: chance decides, or what is not seen, such as a velocity"
            if self.is_random
            else f"{told}: hardly any chance"
        )


class Dynamics:
    """Keeps some transitions of blocks as they pass by."""

    def __init__(self, source: Source):
        last = np.zeros(source.rows, bool)
        last[source.stops - 1] = True
        rows = np.flatnonzero(~last)
        self._rows = rows[_spaced(len(rows), MOST_ALIKE)]
        self._both = np.union1d(self._rows, self._rows + 1)
        self._actions, self._seen = KeptRows(self._rows), KeptRows(self._both)

    def add(self, first: int, rows: np.ndarray, actions: np.ndarray) -> None:
        self._actions.add(first, actions)
        self._seen.add(first, rows)

    def measured(self, periods: Iterable[tuple[int, float]]) -> tuple[dict[int, int], np.ndarray, Luck]:
        """Targets by action, the share of each column that is explained, and `luck`; periods: of columns that wrap."""
        seen = self._seen.result().astype(np.float64)
        here, there = (seen[np.searchsorted(self._both, rows)] for rows in (self._rows, self._rows + 1))
        for column, period in periods:
            step = there[:, column] - here[:, column]
            there[:, column] = here[:, column] + (step + period / 2) % period - period / 2
        acted = self._actions.result()
        few = _spaced(len(acted), MOST_STEPS)
        steps = Steps.of(here[few], there[few], acted[few])
        return commanded(steps), explained(steps), luck(Steps.of(here, there, acted))


def _spaced(count: int, most: int) -> np.ndarray:
    """Numbers below `count`, evenly spaced, up to so many."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


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


def luck(steps: Steps) -> Luck:
    """Each of some steps held against the one that began nearest to it.

    Where states have many numbers, too few begin alike to tell. What is not seen, such as a velocity, counts as chance.
    """
    from scipy.spatial import cKDTree

    moves = np.abs(steps.there - steps.here)
    often = (moves > 0).mean(axis=0) > OFTEN
    numbers = steps.here.shape[1] + steps.actions.shape[1]
    if not often.any() or not steps.actions.shape[1] or numbers > MOST_NUMBERS or len(steps.actions) < LEAST_STEPS:
        return Luck(None, None, 1.0)
    usual = np.where(steps.here.std(axis=0) > 0, steps.here.std(axis=0), 1.0)
    usual[often] = np.nanmedian(np.where(moves > 0, moves, np.nan)[:, often], axis=0)
    acts = steps.actions / np.maximum(steps.actions.std(axis=0), 1e-9)
    starts = np.concatenate([steps.here / usual / len(usual) ** 0.5, acts / acts.shape[1] ** 0.5], axis=1)
    ends, moved = ((part / usual)[:, often] for part in (steps.there, steps.there - steps.here))
    lengths, tree = np.square(moved).mean(axis=1), cKDTree(starts)
    shares: list[float | None] = [None, None]
    slower = 1.0
    for number, rows in enumerate((_spaced(len(starts), LOOKED_UP), np.argsort(-lengths, kind="stable")[:LONGEST])):
        apart, nearest = tree.query(starts[rows], k=2)
        near = apart[:, 1] <= NEAR
        one, other = rows[near], nearest[near, 1]
        if len(one) < LEAST_PAIRS:
            continue
        share = float((np.square(ends[one] - ends[other]).mean(axis=1) > 1.0).mean())
        shares[number] = share
        if number == 0 and share >= RANDOM:  # what both have of their way in common was meant; the rest is chance
            common = (moved[one] * moved[other]).sum() / max(np.square(moved[one]).sum(), 1e-12)
            slower = float(np.clip(common, LEAST_COMMON, 1.0) ** -0.5)
    return Luck(shares[0], shares[1], slower)


def of_dataset(data: Dataset) -> Luck:
    """The `luck` of a data set, measured once."""
    known: dict[str, Luck] = vars(data)  # kept as a cached property is: a data set does not change
    if "_luck" not in known:
        rows = data.transition_rows
        rows = rows[_spaced(len(rows), MOST_ALIKE)]
        seen = [over(lambda part, at=at: np.asarray(part[at]), data.network_inputs) for at in (rows, rows + 1)]
        here, there = map(vectors, seen)
        known["_luck"] = luck(Steps.of(here, there, data.network_actions[rows]))
    return known["_luck"]


def without_leaps(data: Dataset) -> tuple[Dataset, int]:
    """Data whose episodes end before each step that is far longer than nearly all others, and how many there are.

    What is left of an episode as a single row is left out.
    """
    numbers = vectors(over(np.asarray, data.network_inputs))
    moves = np.abs(np.diff(numbers, axis=0))
    inside = np.ones(len(moves), bool)
    inside[np.cumsum(data.lengths)[:-1] - 1] = False
    usual = np.where(numbers.std(axis=0) > 0, numbers.std(axis=0), 1.0)
    far = np.linalg.norm(moves / usual, axis=1)
    leaps = np.flatnonzero(inside & (far > UPPER * np.quantile(far[inside], 0.95)))
    ends = np.union1d(np.cumsum(data.lengths), leaps + 1)
    lengths = np.diff(ends, prepend=0)
    if not len(leaps):
        return data, 0
    kept = np.flatnonzero(np.repeat(lengths > 1, lengths))
    take = (lambda part: part) if len(kept) == data.rows else (lambda part: np.asarray(part[kept]))
    columns = {
        "observations": over(take, data.observations),
        "actions": take(data.actions),
        "extras": {name: take(column) for name, column in data.extras.items()},
    }
    note = f"{len(leaps):,} steps that chance made are left out"
    columns |= {"lengths": lengths[lengths > 1], "notes": (*data.notes, note)}
    return replace(data, **columns, endings={}, checked=()), len(leaps)
