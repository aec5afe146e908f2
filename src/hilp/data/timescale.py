"""The time scale of data: how many steps it takes to cross the states it has been in; and subsampling, if too many.

phi tells distances apart up to about 1 / (1 - discount) steps. The same robot logged ten times as often has ten times
as many steps between the same two states, each hardly longer than the sensors' noise: then it is better to keep every
n-th row (`stride`) than to look ever farther ahead.

The steps across are those of the shortest ways in a graph of the data: places that cover it, and the steps that
trajectories took from one place to the next. So ways are put together where no episode crosses the whole, and walls
count.

Subsampling keeps every n-th row of each episode, with the commands in between made into one. A policy trained on such
data still acts at the robot's own rate: it is a function of the observation, and its command is one for a single row
of the log. Averaged commands (speeds, forces, targets) are just that; summed ones (displacements, ticks) are divided by
n on their way out (`policy.preparation`).
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from hilp.data.dataset import Dataset
from hilp.data.measures import vectors
from hilp.data.tables import TIME
from hilp.errors import HilpError, is_one_of, require_count
from hilp.trees import over

Commands = Literal["mean", "sum"]
AUTO = "auto"

MOST_ROWS = 100_000  # that are looked at
EPISODES = (100, 1000)  # at least and at most; between them, whole ones come before more of them
MOST_TRIPLES = 4000  # neighbouring rows, for the noise
PLACES = 160  # that cover the data
CANDIDATES = 4000  # rows that places are chosen from
APART = 5.0  # times the sensors' error that places are apart at least, so that noise does not say which one is visited
WIDE = 10.0  # steps: columns that span fewer, as the width of a corridor, say little about ways and count for less
VISIT = 0.45  # a row within this share of the distance between places visits one; below a half it visits no other
HOPS = 3  # places ahead that an edge leads to: with edges to the next place alone, zigzag would look like a detour
QUICK = 0.2  # quantile of the steps that trajectories took along an edge: neither the luckiest nor the usual
FAR = 0.95  # quantile of the ways between places that is called the way across
LEAST_WAYS = 0.05  # share of pairs of places with a way: with fewer, the graph says nothing

FEW_STEPS = 30  # across, for data that is subsampled; the mazes that the presets were tuned on have as many
STRAIGHT = 0.8  # cosine of the motions of two strides in a row: below it, a stride would cut corners
LEAST_ROWS = 16  # of a subsampled episode, in the median
# Steps across, up to -> phi's discount. 1 / (1 - discount) is the way across, or some more.
DISCOUNTS = ((50.0, 0.97), (70.0, 0.98), (150.0, 0.99), (np.inf, 0.995))
USUAL_DISCOUNT = DISCOUNTS[0][1]


@dataclass(frozen=True)
class TimeScale:
    """What data says about time, in its own rows, and what to do about it."""

    crossing: float | None  # steps across: 95% of the ways between its places are shorter; None where it does not say
    straightness: float | None  # cosine of the motions of one stride and the next, at the stride advised
    noise: float | None  # share of a single step's length that the next steps take back
    stride: int  # advised: keep every so many rows
    discount: float  # advised for phi, at that stride
    seconds: float | None = None  # of a row, where the data has a column of times
    usual_length: float = 0.0  # rows of an episode, in the median

    @property
    def line(self) -> str:
        """What was found and what fits it, in one line."""
        if self.crossing is None:
            rows = self.usual_length
            return (
                "time scale: too little is seen twice to tell; for episodes of "
                f"{rows:.0f} rows{self._in_seconds(rows)}, phi_discount {self.discount:g}, not subsampled"
            )
        found = f"time scale: about {self.crossing:.0f} steps{self._in_seconds(self.crossing)} across the data"
        if self.stride == 1:
            return f"{found}, for which phi_discount {self.discount:g} fits, not subsampled"
        return (
            f"{found}, too many to learn well; stride {self.stride} makes them {self.crossing / self.stride:.0f}, for "
            f"which phi_discount {self.discount:g} fits"
        )

    @property
    def not_subsampled(self) -> "TimeScale":
        """The same where every row stays."""
        known = self.usual_length if self.crossing is None else self.crossing
        return replace(self, stride=1, discount=discount_for(known))

    def _in_seconds(self, steps: float) -> str:
        return "" if self.seconds is None else f" ({steps * self.seconds:.3g} s)"


def of_dataset(data: Dataset) -> TimeScale:
    """The time scale of a data set, measured once."""
    known: dict[str, TimeScale] = vars(data)  # kept as a cached property is: a data set does not change
    if "_time_scale" not in known:
        sample = Sample(data.lengths)
        rows = over(lambda part: np.asarray(part[sample.rows]), data.network_inputs)
        known["_time_scale"] = sample.measured(vectors(rows), _seconds(data))
    return known["_time_scale"]


def usual_step(times: np.ndarray | None, inside: np.ndarray) -> float | None:
    """Seconds of most steps inside episodes, where a column of times says it."""
    if times is None:
        return None
    steps = np.diff(times)[inside]
    steps = steps[np.isfinite(steps) & (steps > 0)]
    return float(np.median(steps)) if len(steps) else None


def _seconds(data: Dataset) -> float | None:
    """Of a row, where data has a column of times."""
    times = data.extras.get(TIME)
    if times is None or len(times) < 2 or np.size(times) != len(times):
        return None
    inside = np.ones(len(times) - 1, bool)
    inside[np.cumsum(data.lengths)[:-1] - 1] = False
    return usual_step(np.asarray(times, np.float64).reshape(-1), inside)


def discount_for(crossing: float | None) -> float:
    """phi's discount for so many steps across."""
    return next(discount for most, discount in DISCOUNTS if (crossing or 0.0) <= most)


class Sample:
    """Which rows are looked at, and what they say."""

    def __init__(self, lengths: np.ndarray):
        lengths = np.asarray(lengths, np.int64)
        starts = np.cumsum(lengths) - lengths
        few = np.clip(MOST_ROWS // max(1, int(np.mean(lengths))), *EPISODES)
        chosen = np.unique(np.linspace(0, len(lengths) - 1, few).astype(int))
        self.pace = max(1, -(-int(lengths[chosen].sum()) // MOST_ROWS))  # of the rows that the graph is made of
        paced = [np.arange(starts[e], starts[e] + lengths[e], self.pace) for e in chosen]
        self.graph = np.concatenate(paced)
        self.episode = np.repeat(chosen, [len(rows) for rows in paced])
        inside = self.graph[self.graph + 2 < (starts + lengths)[self.episode]]
        sparse = inside[np.unique(np.linspace(0, len(inside) - 1, min(len(inside), MOST_TRIPLES)).astype(int))]
        self.triples = sparse[:, None] + np.arange(3)
        self.rows = np.union1d(self.graph, self.triples)
        self.median_length = float(np.median(lengths)) if len(lengths) else 0.0

    def measured(self, values: np.ndarray, seconds: float | None = None) -> TimeScale:
        """The time scale, from the values of `rows`; seconds: of a row."""
        length = self.median_length
        unknown = TimeScale(None, None, None, 1, discount_for(length), seconds, length)
        values = np.asarray(values, np.float64)
        finite = np.isfinite(values).all(axis=1)
        if not finite.any() or not values.shape[1]:
            return unknown
        deviation = values[finite].std(axis=0)
        varied = deviation > 1e-9 * np.maximum(1.0, np.abs(values[finite]).max(axis=0))
        triples = np.searchsorted(self.rows, self.triples)
        triples = triples[finite[triples].all(axis=1)]
        steps = np.diff(values[triples], axis=1)
        usual = np.sqrt(np.square(steps).mean(axis=(0, 1))) if len(steps) else np.zeros(values.shape[1])
        values = values[:, varied] / np.maximum(deviation, WIDE * usual)[varied]
        at = np.searchsorted(self.rows, self.graph)
        whole = finite[at]
        points, rows, episode = values[at][whole], self.graph[whole], self.episode[whole]
        error, noise = _noise(values[triples])
        crossing = _crossing(points, rows, episode, APART * error)
        if crossing is None:
            return replace(unknown, noise=noise)
        stride = int(max(1, min(crossing / FEW_STEPS, self.median_length / LEAST_ROWS)))
        while not (straight := self._straightness(points, rows, episode, stride, error)) >= STRAIGHT and stride > 1:
            stride = int(0.75 * stride)
        straightness = float(straight) if np.isfinite(straight) else None
        return TimeScale(float(crossing), straightness, noise, stride, discount_for(crossing / stride), seconds, length)

    def _straightness(
        self, points: np.ndarray, rows: np.ndarray, episode: np.ndarray, stride: int, error: float
    ) -> float:
        """Cosine of the motions of two strides in a row, the sensors' error taken out."""
        lag = max(1, round(stride / self.pace))
        if len(rows) <= 2 * lag:
            return np.nan
        whole = rows[2 * lag :] - rows[: -2 * lag] == 2 * lag * self.pace
        together = whole & (episode[2 * lag :] == episode[: -2 * lag])
        first = (points[lag:-lag] - points[: -2 * lag])[together]
        second = (points[2 * lag :] - points[lag:-lag])[together]
        wrong = len(first) * error**2
        square = (np.square(first).sum() + np.square(second).sum()) / 2 - 2 * wrong
        return min(1.0, float(((first * second).sum() + wrong) / square)) if square > 0 else np.nan


def _noise(triples: np.ndarray) -> tuple[float, float | None]:
    """The sensors' error, and its share in the length of a single step.

    An error comes and goes: of steps v + e' - e the mean square is v^2 + 2 e^2, and the mean product of neighbours
    v^2 - e^2. Turns count as errors, too: it is at most so large.
    """
    steps = np.diff(triples, axis=1)
    size = np.square(steps).sum()
    if not len(triples) or size == 0:
        return 0.0, None
    common = (steps[:, 0] * steps[:, 1]).sum()
    square = max(0.0, size / 2 - common) / 3 / len(triples)  # e^2
    return float(np.sqrt(square)), float(np.sqrt(min(1.0, 2 * square / (size / 2 / len(triples)))))


def _crossing(points: np.ndarray, rows: np.ndarray, episode: np.ndarray, apart: float) -> float | None:
    """Steps that most shortest ways between places take; places are at least `apart`."""
    candidates = np.unique(np.linspace(0, len(points) - 1, CANDIDATES).astype(int))
    places, spacing = _places(points[candidates], apart)
    if len(places) < 2:
        return None
    steps = _steps_between(places, *_visits(points, rows, episode, places, VISIT * spacing))
    for middle in range(len(places)):
        steps = np.minimum(steps, steps[:, middle : middle + 1] + steps[middle])
    ways = steps[np.isfinite(steps) & (steps > 0)]
    if len(ways) < LEAST_WAYS * len(places) * (len(places) - 1):
        return None
    return float(np.quantile(ways, FAR))


def _places(points: np.ndarray, apart: float) -> tuple[np.ndarray, float]:
    """Points that cover the others evenly, each the farthest from those before it; how far apart they are."""
    chosen, away = [0], np.square(points - points[0]).sum(axis=1)
    while len(chosen) < PLACES:
        farthest = int(away.argmax())
        if away[farthest] <= apart**2:
            break
        chosen.append(farthest)
        away = np.minimum(away, np.square(points - points[farthest]).sum(axis=1))
    places, spacing = points[chosen], max(apart, float(np.sqrt(away.max())))
    if not spacing:  # data with fewer states than places
        between = np.linalg.norm(places[:, None] - places[None], axis=-1)
        spacing = float(np.min(between[between > 0], initial=np.inf))
    return places, spacing


def _visits(
    points: np.ndarray, rows: np.ndarray, episode: np.ndarray, places: np.ndarray, radius: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Place, row and episode of each visit: where a trajectory comes nearest to a place that it passes."""
    from scipy.spatial import cKDTree

    away, nearest = cKDTree(places).query(points)
    near = np.flatnonzero(away <= radius)
    if not len(near):
        return near, near, near
    nearest, away, rows, episode = nearest[near], away[near], rows[near], episode[near]
    begins = np.r_[True, (nearest[1:] != nearest[:-1]) | (episode[1:] != episode[:-1])]
    visit = np.cumsum(begins) - 1
    order = np.lexsort((away, visit))
    best = order[np.flatnonzero(begins)]  # visits are consecutive: the first of each, once they are sorted inside
    return nearest[best], rows[best], episode[best]


def _steps_between(places: np.ndarray, place: np.ndarray, row: np.ndarray, episode: np.ndarray) -> np.ndarray:
    """Steps from one place to another where a trajectory went there at once; infinite where none did."""
    count = len(places)
    steps = np.full(count * count, np.inf)
    edges, taken = [], []
    for ahead in range(1, HOPS + 1):
        same = episode[ahead:] == episode[:-ahead]
        edges.append((place[:-ahead] * count + place[ahead:])[same])
        taken.append((row[ahead:] - row[:-ahead])[same])
    edge, took = np.concatenate(edges), np.concatenate(taken)
    order = np.lexsort((took, edge))
    edge, took = edge[order], took[order]
    known, first, many = np.unique(edge, return_index=True, return_counts=True)
    steps[known] = took[first + (QUICK * (many - 1)).astype(np.int64)]
    table = steps.reshape(count, count)
    np.fill_diagonal(table, 0.0)
    return table


def require_stride(stride: Any) -> int | Literal["auto"] | None:
    """A stride of the user: a whole number, "auto", or None where there is none."""
    if stride is None:
        return None
    if isinstance(stride, str) and stride == AUTO:
        return "auto"
    try:
        return require_count("stride", int(stride) if isinstance(stride, str) else stride)
    except ValueError:
        raise HilpError(f"stride is a whole number of rows or 'auto', not '{stride}'") from None


def subsample(data: Dataset, stride: int, commands: Commands = "mean") -> Dataset:
    """The data with every `stride`-th row; a stride of 1 fixes that it stays as it is.

    Rows after an episode's last whole stride are left out, and so are episodes shorter than one stride. Extra columns
    keep the values of the rows that stay.
    """
    if not is_one_of(commands, get_args(Commands)):
        raise HilpError(f"stride_actions is 'mean' (speeds, forces) or 'sum' (displacements), not '{commands}'")
    if data.stride is not None and data.stride > 1:
        raise HilpError(f"{data.name} is subsampled already, by {data.stride}: load it again with another stride")
    if stride == 1:
        return replace(data, stride=1)
    if data.choices:
        raise HilpError(f"{data.name} has discrete actions, of which a stride makes no mean: leave out the stride")
    if data.frames > 1:
        raise HilpError(f"{data.name}: frames are those of neighbouring rows, which a stride leaves out: choose one")
    strides = (np.asarray(data.lengths) - 1) // stride  # of each episode
    kept = np.flatnonzero(strides >= 1)
    if not len(kept):
        longest = int(np.max(data.lengths)) - 1
        raise HilpError(f"{data.name}: no episode is {stride} steps long (the longest has {longest}): lower the stride")
    firsts = [data.starts[e] + stride * np.arange(strides[e] + 1) for e in kept]
    rows = np.concatenate(firsts)
    take = lambda column: np.asarray(column[rows])  # noqa: E731
    lost = data.episodes - len(kept)
    note = f"one row in {stride}, commands {'averaged' if commands == 'mean' else 'added up'} in between"
    note += f"; {lost} episodes are shorter than that and left out" if lost else ""
    return replace(
        data,
        observations=over(take, data.observations),
        actions=_joined(data.actions, firsts, stride, commands),
        lengths=strides[kept] + 1,
        extras={name: take(column) for name, column in data.extras.items()},
        endings=data.endings if not lost else {},
        notes=(*data.notes, note),
        stride=stride,
        stride_actions=commands,
        checked=(),
    )


def _joined(actions: np.ndarray, firsts: list[np.ndarray], stride: int, commands: Commands) -> np.ndarray:
    """The commands of each stride made into one; firsts: the rows that stay, of each episode."""
    found = []
    for rows in firsts:
        whole = np.asarray(actions[rows[0] : rows[-1]], np.float64).reshape(len(rows) - 1, stride, -1)
        one = whole.mean(axis=1) if commands == "mean" else whole.sum(axis=1)
        found += [one.astype(np.float32), np.zeros((1, one.shape[1]), np.float32)]
    return np.concatenate(found)


def refit_action_range(data: Dataset) -> Dataset:
    """Data whose actions had been mapped to [-1, 1] before it was subsampled, mapped to what is left of their range."""
    used = data.actions[data.transition_rows]
    return data.rescaled(used.min(axis=0), used.max(axis=0))
