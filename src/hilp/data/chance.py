"""How random data is: whether steps that began alike, in what is seen and done, end alike."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hilp.data import checks
from hilp.data.dataset import Dataset
from hilp.data.measures import UPPER, KeptRows, vectors
from hilp.data.source import Source
from hilp.trees import over

MOST_NUMBERS = 40  # of a state and an action, beyond which hardly any begin alike, and looking takes long
MOST_ROWS = 100_000  # among which ones that began alike are looked for
LEAST_STEPS = 200  # that say anything
LOOKED_UP, LONGEST = 4000, 500  # steps whose nearest ones are looked for: usual ones, and the longest
NEAR = 0.6  # steps and deviations of actions, that two steps begin apart at most to count as the same
LEAST_PAIRS = 100  # of such steps that say whether chance decides
LEAST_COMMON = 0.05  # of their way, so that steps are not expected to take for ever
RANDOM = 0.05  # share of them that end more than a step apart, from which data is random; walls alone make 0.006
OFTEN = 0.2  # share of steps in which a column changes that says something: goals change at resets alone


@dataclass(frozen=True)
class Chance:
    """What chance does to steps that began alike."""

    usual: float | None = None  # share of pairs that end more than a usual step apart; None: too few began alike
    longest: float | None = None  # the same of the longest steps: what seldom happens may lead far
    slower: float = 1.0  # how many steps it takes, on average, to get as far as one step goes

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
        return f"{told}: chance decides" if self.is_random else f"{told}: hardly any chance"


class KeptSteps:
    """Keeps some steps of blocks of rows as they pass by; none of data with more than MOST_NUMBERS, or without any."""

    def __init__(self, source: Source, numbers: int):
        rows = inside(source.lengths) if 0 < numbers <= MOST_NUMBERS else np.zeros(0, np.int64)
        self._rows, self._seen = rows, KeptRows(np.unique(rows[:, None] + np.array([-1, 0, 1])))
        self._actions = KeptRows(rows)

    def add(self, first: int, rows: np.ndarray, actions: np.ndarray) -> None:
        self._actions.add(first, actions)
        self._seen.add(first, rows)

    def measured(self, periods: Iterable[tuple[int, float]]) -> Chance:
        """periods: of columns that wrap."""
        if not len(self._rows):
            return Chance()
        seen = self._seen.result()
        before, here, there = (seen[np.searchsorted(self._seen.rows, self._rows + step)] for step in (-1, 0, 1))
        return measured(before, here, there, self._actions.result(), periods)


def inside(lengths: np.ndarray) -> np.ndarray:
    """Rows with one before and one after them in their episode, evenly spaced, up to MOST_ROWS."""
    ends = np.cumsum(lengths)
    found = np.ones(int(ends[-1]) if len(ends) else 0, bool)
    found[ends - lengths], found[ends - 1] = False, False
    rows = np.flatnonzero(found)
    return rows[_spaced(len(rows), MOST_ROWS)]


def _spaced(count: int, most: int) -> np.ndarray:
    """Numbers below `count`, evenly spaced, up to so many."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def measured(before: np.ndarray, here: np.ndarray, there: np.ndarray, actions: np.ndarray, periods: Any = ()) -> Chance:
    """Of steps from `here` to `there`, each held against the one that began nearest to it; before: the row before.

    What is not seen, such as a velocity, looks like chance as well. So where steps part, they are compared once more
    by the change that led to their beginning, too: chance does not depend on it.
    """
    parts = [np.asarray(part, np.float64) for part in (before, here, there, actions)]
    finite = np.logical_and.reduce([np.isfinite(part).all(axis=1) for part in parts])
    before, here, there, actions = (part[finite] for part in parts)
    came, step = here - before, there - here
    for column, period in periods:
        for change in (came, step):
            change[:, column] = (change[:, column] + period / 2) % period - period / 2
    found = _compared(here, step, actions, None)
    return _compared(here, step, actions, came) if found.is_random else found


def _compared(here: np.ndarray, step: np.ndarray, actions: np.ndarray, came: np.ndarray | None) -> Chance:
    from scipy.spatial import cKDTree

    moves = np.abs(step)
    often = (moves > 0).mean(axis=0) > OFTEN if len(step) else np.zeros(0, bool)
    if not often.any() or not actions.shape[1] or len(step) < LEAST_STEPS:
        return Chance()
    if here.shape[1] + actions.shape[1] > MOST_NUMBERS:
        return Chance()
    usual = np.where(here.std(axis=0) > 0, here.std(axis=0), 1.0)
    usual[often] = np.nanmedian(np.where(moves > 0, moves, np.nan)[:, often], axis=0)
    acts = actions / np.maximum(actions.std(axis=0), 1e-9)
    places = [part / usual / len(usual) ** 0.5 for part in ((here,) if came is None else (here, came))]
    starts = np.concatenate([*places, acts / acts.shape[1] ** 0.5], axis=1)
    ends, moved = ((part / usual)[:, often] for part in (here + step, step))
    lengths, tree = np.square(moved).mean(axis=1), cKDTree(starts)
    shares: list[float | None] = [None, None]
    slower = 1.0
    for number, rows in enumerate((_spaced(len(starts), LOOKED_UP), np.argsort(-lengths, kind="stable")[:LONGEST])):
        apart, nearest = tree.query(starts[rows], k=3, distance_upper_bound=NEAR)
        there = np.minimum(nearest, len(starts) - 1)  # of what lies farther, any
        copy = (apart == 0.0) & (ends[there] == ends[rows][:, None]).all(axis=-1)  # of the row, or the row itself
        apart = np.where(copy, np.inf, apart)
        place = np.argmin(apart, axis=1)[:, None]
        apart, there = (np.take_along_axis(part, place, axis=1)[:, 0] for part in (apart, there))
        one, other = rows[np.isfinite(apart)], there[np.isfinite(apart)]
        if len(one) < LEAST_PAIRS:
            continue
        share = float((np.square(ends[one] - ends[other]).mean(axis=1) > 1.0).mean())
        shares[number] = share
        if number == 0 and share >= RANDOM:  # what both have of their way in common was meant; the rest is chance
            common = (moved[one] * moved[other]).sum() / max(np.square(moved[one]).sum(), 1e-12)
            slower = float(np.clip(common, LEAST_COMMON, 1.0) ** -0.5)
    return Chance(shares[0], shares[1], slower)


def of_dataset(data: Dataset) -> Chance:
    """How random a data set is, measured once."""
    known: dict[str, Chance] = vars(data)  # kept as a cached property is: a data set does not change
    if "_chance" not in known:
        found = _of_inputs(data)
        if found.is_random:  # angles that wrap look like it, and looking for these takes a pass over the data
            found = _of_inputs(_with_angles(data))
        known["_chance"] = found
    return known["_chance"]


def _with_angles(data: Dataset) -> Dataset:
    """Data whose columns that wrap are turned, also where networks shall not see them so."""
    plain = data.transform is not None and not data.transform.angles
    return checks.with_angles(replace(data, transform=None) if plain else data)


def _of_inputs(data: Dataset) -> Chance:
    inputs = _numbers(data)
    width = sum(part.shape[1] for part in (inputs.values() if isinstance(inputs, Mapping) else (inputs,)))
    if not 0 < width <= MOST_NUMBERS - data.network_actions.shape[1]:
        return Chance()
    rows = inside(data.lengths)
    before, here, there = (
        vectors(over(lambda part, at=rows + step: np.asarray(part[at]), inputs)) for step in (-1, 0, 1)
    )
    return measured(before, here, there, np.asarray(data.network_actions[rows]))


def _numbers(data: Dataset) -> Any:
    """Observations as networks see them, without pictures."""
    inputs = data.network_inputs
    return {name: part for name, part in inputs.items() if part.ndim == 2} if isinstance(inputs, Mapping) else inputs


def without_leaps(data: Dataset) -> tuple[Dataset, int]:
    """Data whose episodes end before each step that is far longer than nearly all others, and how many there are.

    What is left of an episode as a single row is left out.
    """
    numbers = vectors(over(np.asarray, _numbers(_with_angles(data))))
    moves = np.abs(np.diff(numbers, axis=0))
    within = np.ones(len(moves), bool)
    within[np.cumsum(data.lengths)[:-1] - 1] = False
    usual = np.where(numbers.std(axis=0) > 0, numbers.std(axis=0), 1.0)
    far = np.linalg.norm(moves / usual, axis=1)
    limit = UPPER * np.quantile(far[within], 0.95) if within.any() else 0.0
    leaps = np.flatnonzero(within & (far > limit)) if limit > 0 else np.zeros(0, np.int64)
    if not len(leaps):
        return data, 0
    ends = np.union1d(np.cumsum(data.lengths), leaps + 1)
    lengths = np.diff(ends, prepend=0)
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
