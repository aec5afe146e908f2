"""The graph of the data: landmarks that cover the bank's latents, and the ways between them that the data has gone.

phi says which states are a few steps apart, and the data says which of those few steps can be taken: across a thin wall
latents lie close, and no trajectory leads there. So nodes come from phi and edges from observed trajectories. An edge
from landmark i to j costs the fewest steps that a trajectory took from near i to near j, plus what phi says lies
between the trajectory and the landmarks at both ends; by the triangle inequality that is no less than the time from i
to j. Edges have a direction, since what the data did need not be possible backwards.

Where no trajectory leads on, neighbours by phi alone are joined, at a price that no observed way can reach: a path over
such an edge is a guess, and `GraphPlanner.path_info` says so.
"""

import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hilp.prompts.memory import StuckAgents
from hilp.prompts.midpoints import Midpoints, smallest, trust_radius, undiscounted
from hilp.prompts.posture import resting, smoothing_steps

CELL_SHARE = 0.25  # radius of a landmark's neighbourhood, of the trust radius of plans
REACH = 2.0  # trust radii that an edge may span
GUESSED = 3.0  # radii between landmarks that are joined without a trajectory
LAGS = 10  # numbers of steps at which trajectories are looked at
QUANTILE = 0.2  # of the observed steps between two neighbourhoods: quick, but not the luckiest alone
MOST_LANDMARKS = 3_000
MOST_ROWS = 300_000  # of trajectories that are looked at: more would only be more of the same
ROWS_AT_A_TIME = 512  # states held against all landmarks, so that the table stays in cache


@dataclass(frozen=True)
class Graph:
    """Landmarks and the edges between them. In steps, not in latent distances, which saturate at phi's horizon."""

    landmarks: np.ndarray  # int32 [k]: rows of the bank
    radius: float  # latent: every state of the bank is this near to a landmark
    origin: np.ndarray  # int32 [e], rising: edges, as numbers of landmarks
    target: np.ndarray  # int32 [e]
    steps: np.ndarray  # float32 [e]
    counts: np.ndarray  # int32 [e]: observed transitions behind an edge; 0: neighbours by phi alone
    smooth: float = 1.0  # steps that the mean of an agent's latents should go back, so that its posture cancels out
    rests: np.ndarray = field(
        default_factory=lambda: np.zeros(0, np.int32)
    )  # [m]: rows of the bank where bodies stayed

    def __len__(self) -> int:
        return len(self.landmarks)

    def columns(self) -> dict[str, np.ndarray]:
        """Its arrays by name, as they are saved."""
        return {name: np.atleast_1d(np.asarray(getattr(self, name), kind)) for name, kind in COLUMNS.items()}

    @staticmethod
    def from_columns(columns: Mapping[str, np.ndarray], bank: int) -> "Graph":
        """The graph of a policy with so many states in its bank; a ValueError where the columns are none."""
        columns = {"smooth": np.ones(1, np.float32), "rests": np.zeros(0, np.int32), **columns}  # not in all of them
        if columns.keys() != COLUMNS.keys():
            raise ValueError("a column of the graph is missing or unexpected")
        if any(columns[name].ndim != 1 or columns[name].dtype != kind for name, kind in COLUMNS.items()):
            raise ValueError("a column of the graph has another type")
        if len({len(columns[name]) for name in EDGES}) != 1 or {len(columns[name]) for name in NUMBERS} != {1}:
            raise ValueError("the columns of the graph differ in length")
        landmarks, steps, counts = (columns[name] for name in ("landmarks", "steps", "counts"))
        for name, limit in {
            "landmarks": bank,
            "rests": bank,
            "origin": len(landmarks),
            "target": len(landmarks),
        }.items():
            if ((columns[name] < 0) | (columns[name] >= limit)).any():
                raise ValueError(f"'{name}' of the graph points outside")
        if not (np.isfinite(steps) & (steps > 0) & (counts >= 0)).all():
            raise ValueError("the steps of the graph make no sense")
        radius, smooth = (float(columns[name][0]) for name in NUMBERS)
        if not 1.0 <= smooth < np.inf:
            raise ValueError("the steps that the graph says to smooth over make no sense")
        edges = columns["origin"], columns["target"], steps, counts
        return Graph(landmarks, radius, *edges, smooth, columns["rests"])


EDGES = {"origin": "int32", "target": "int32", "steps": "float32", "counts": "int32"}  # and their types
NUMBERS = {"radius": "float32", "smooth": "float32"}
COLUMNS = {"landmarks": "int32", "rests": "int32", **NUMBERS, **EDGES}


def build(
    bank: np.ndarray, latents: np.ndarray, lengths: np.ndarray, discount: float, seed: int = 0, slower: float = 1.0
) -> Graph:
    """The graph of trajectories.

    bank: latents of the states that landmarks are chosen from, [n, D]. latents: those of trajectories one behind the
    other, [rows, D], with `lengths` rows each. Both by a phi with this discount. slower: a factor of their steps.
    """
    trust = trust_radius(discount)
    chosen, radius = cover(bank, CELL_SHARE * trust, seed)
    landmarks = bank[chosen]
    cells, offsets = nearest(latents, landmarks, 1)
    cell, offset = cells[:, 0].astype(np.int64), undiscounted(offsets[:, 0], discount)
    longest = int(np.ceil(undiscounted(np.asarray(REACH * trust), discount)))
    origin, target, steps, counts = moves(cell, offset, offset, lengths, longest, len(chosen))
    steps = steps * slower
    guessed = neighbours(landmarks, GUESSED * radius, origin, target)
    apart = np.linalg.norm(landmarks[guessed[0]] - landmarks[guessed[1]], axis=1)
    origin, target = np.concatenate([origin, guessed[0]]), np.concatenate([target, guessed[1]])
    steps = np.concatenate([steps, np.maximum(undiscounted(apart, discount), 1.0)])
    counts = np.concatenate([counts, np.zeros(len(apart))])
    order = np.lexsort((target, origin))
    columns = zip(EDGES.items(), (origin, target, steps, counts), strict=True)
    edges = {name: np.asarray(column[order], kind) for (name, kind), column in columns}
    smooth = float(smoothing_steps(latents, np.asarray(lengths), longest, seed))
    rests = _rests(bank, latents, lengths, radius, seed)
    return Graph(chosen.astype(np.int32), float(np.float32(radius)), **edges, smooth=smooth, rests=rests)


def _rests(bank: np.ndarray, latents: np.ndarray, lengths: np.ndarray, radius: float, seed: int) -> np.ndarray:
    """Rows of the bank, of those nearest to where trajectories stayed."""
    stayed = resting(latents, lengths, 2.0 * radius)
    stayed = np.random.default_rng(seed).permutation(stayed)[:MOST_LANDMARKS]
    return np.unique(nearest(latents[stayed], bank, 1)[0]).astype(np.int32)


def trajectories(lengths: np.ndarray, seed: int, most: int = MOST_ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Rows of whole episodes, drawn at random until there are so many, and how many rows each of them has."""
    order = np.random.default_rng(seed).permutation(len(lengths))
    enough = int(np.searchsorted(np.cumsum(lengths[order]), most)) + 1
    chosen = np.sort(order[:enough])
    ends = np.cumsum(lengths)
    rows = np.concatenate([np.arange(ends[number] - lengths[number], ends[number]) for number in chosen])
    return rows, np.asarray(lengths)[chosen]


def cover(points: np.ndarray, radius: float, seed: int) -> tuple[np.ndarray, float]:
    """Rows of landmarks that are farther than `radius` apart and leave no point farther than it from all of them.

    Where more than MOST_LANDMARKS would be needed, the radius grows. Taken at random, so that common states are not
    more likely to be left out than rare ones are to be taken.
    """
    order = np.random.default_rng(seed).permutation(len(points))
    while True:
        chosen = np.zeros(0, np.int64)
        for first in range(0, len(order), ROWS_AT_A_TIME):
            block = order[first : first + ROWS_AT_A_TIME]
            if len(chosen):  # most of a block is covered by what the blocks before have left
                block = block[nearest(points[block], points[chosen], 1)[1][:, 0] > radius]
            chosen = np.concatenate([chosen, _apart(points, block, radius)])
            if len(chosen) > MOST_LANDMARKS:
                break
        if len(chosen) <= MOST_LANDMARKS:
            return np.sort(chosen), radius
        radius *= 1.25


def _apart(points: np.ndarray, rows: np.ndarray, radius: float) -> np.ndarray:
    """Of these rows, one after the other, those that are farther than `radius` from all taken before."""
    taken = []
    while len(rows):
        taken.append(rows[0])
        rows = rows[np.square(points[rows] - points[rows[0]]).sum(axis=1) > radius * radius]
    return np.asarray(taken, np.int64)


def nearest(points: np.ndarray, landmarks: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The `count` landmarks nearest to each point and how far they are, the nearest first: [n, count] twice."""
    count = min(count, len(landmarks))
    numbers, apart = np.zeros((len(points), count), np.int32), np.zeros((len(points), count), np.float32)
    # |x - w|^2 = |x|^2 + (|w|^2 - 2 x.w): one product with a column of ones, and x itself decides nothing.
    center = landmarks.mean(axis=0)  # rounding errors grow with the squares
    others = landmarks - center
    table_of = np.concatenate([-2.0 * others.T, np.square(others).sum(axis=1)[None]]).astype(np.float32)
    for first in range(0, len(points), ROWS_AT_A_TIME):
        block = points[first : first + ROWS_AT_A_TIME]
        table = np.concatenate([block - center, np.ones((len(block), 1))], axis=1, dtype=np.float32) @ table_of
        for place in range(count):
            found = table.argmin(axis=1)
            numbers[first : first + ROWS_AT_A_TIME, place] = found
            apart[first : first + ROWS_AT_A_TIME, place] = np.sqrt(np.square(block - landmarks[found]).sum(axis=1))
            if place + 1 < count:
                np.put_along_axis(table, found[:, None], np.inf, axis=1)
    return numbers, apart


def moves(
    cell: np.ndarray, leave: np.ndarray, arrive: np.ndarray, lengths: np.ndarray, longest: int, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Edges between so many landmarks that trajectories have shown: where from, where to, steps, how often seen.

    cell: the landmark of each row; leave, arrive: steps from it to the row, and from the row to it.
    """
    episode = np.repeat(np.arange(len(lengths)), lengths)
    keys, costs = [np.zeros(0, np.int64)], [np.zeros(0)]
    for lag in np.unique(np.geomspace(1, max(1, longest), LAGS).round().astype(int)):
        moved = (episode[lag:] == episode[:-lag]) & (cell[lag:] != cell[:-lag])
        keys.append(cell[:-lag][moved] * count + cell[lag:][moved])
        costs.append(lag + leave[:-lag][moved] + arrive[lag:][moved])
    pairs, steps, counts = quickest(np.concatenate(keys), np.concatenate(costs))
    return *np.divmod(pairs, max(1, count)), steps, counts


def quickest(keys: np.ndarray, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each key the QUANTILE of its costs, and how many there are."""
    order = np.lexsort((costs, keys))
    unique, first, counts = np.unique(keys[order], return_index=True, return_counts=True)
    return unique, costs[order][first + (QUANTILE * (counts - 1)).astype(int)], counts


def neighbours(landmarks: np.ndarray, radius: float, origin: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, ...]:
    """Pairs of landmarks within a radius, in both directions, but those that are edges already."""
    squares = np.square(landmarks).sum(axis=1)
    table = squares + squares[:, None] - 2.0 * landmarks @ landmarks.T <= radius * radius
    table[origin, target] = False
    np.fill_diagonal(table, False)
    return np.nonzero(table)


# ---- planning on it --------------------------------------------------------------------------------------------------

NEIGHBOURS = 4  # landmarks by which a state is placed on the graph
GUESS = 1e6  # steps that an edge costs on top, where no trajectory was seen to take it
BEST_SHARE = 0.1  # of the states around an agent that a subgoal is averaged over, at most
FEW = 3  # states that it is averaged over at least
LEAST_AROUND = 10  # states that count as around an agent, however far
COARSE = 0.5  # of the trust radius: landmarks farther apart are too few to follow
AGENTS_AT_A_TIME = 32  # whose distances to the bank are held

Reachable = Literal["yes", "no", "unknown"]


@dataclass(frozen=True)
class PathInfo:
    """What the graph says about a goal before acting."""

    path: np.ndarray  # rows of the bank: the landmarks to come, without the goal
    steps: float  # expected; infinite where there is no way
    support: int | None  # observed transitions behind the weakest edge of the path; 0: a guess; None: no edge is needed
    reachable: Reachable  # unknown: the way holds a guess, or the goal lies off the graph


class GraphPlanner:
    """A graph with the bank that its landmarks are from."""

    precision: type = np.float32  # of the steps from landmarks to goals

    def __init__(self, graph: Graph, bank: Midpoints, discount: float, search: "Search | None" = None):
        """search: of shortest ways; without one by SciPy, and by sweeps where it is not installed."""
        self.graph, self.bank, self.discount = graph, bank, discount
        self.search = search or (by_scipy if has_scipy() else by_sweeps)
        self.landmarks = bank.latents[graph.landmarks]
        self.trust = trust_radius(discount)
        self.steps = self._edge_steps()
        self.prices = np.where(graph.counts > 0, self.steps, GUESS + self.steps)
        self.placed, _, steps = self.near(bank.latents)  # bank x neighbours
        self.bank_steps = steps.astype(np.float32)  # steps from states of the bank to those

    @property
    def is_fine_enough(self) -> bool:
        """Whether landmarks lie well within the radius of subgoals; states that vary freely are too many to cover."""
        return self.graph.radius <= COARSE * self.trust

    def _edge_steps(self) -> np.ndarray:
        """Steps of the edges: as observed, but no fewer than a directed distance says.

        A landmark at a one-way door has states of both sides around it. Trajectories arrive at it behind the door and
        leave it in front of it, so two edges that were seen make a way back through the door that never was. By the
        triangle inequality a directed distance puts that way's length on one of the two.
        """
        steps = self.graph.steps
        if self.bank.distance is None:
            return steps
        ends = self.bank.apart(self.landmarks[self.graph.origin], self.landmarks[self.graph.target])
        return np.maximum(steps, undiscounted(ends, self.discount)).astype(np.float32)

    def near(self, points: np.ndarray, towards: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The landmarks nearest to latents, how far they are, and steps to them, or from them `towards` the latents."""
        near, apart = nearest(points, self.landmarks, NEIGHBOURS)
        far = apart
        if self.bank.distance is not None:
            here, there = points[:, None], self.landmarks[near]
            far = self.bank.apart(there, here) if towards else self.bank.apart(here, there)
        return near, apart, undiscounted(far, self.discount)

    def stuck(self) -> StuckAgents:
        return StuckAgents(self.trust, float(undiscounted(np.asarray(self.trust), self.discount)))

    def to_goals(self, goals: np.ndarray) -> np.ndarray:
        """Steps from every landmark to each goal, goals x landmarks; equal goals are searched for once."""
        unique, numbers = np.unique(goals, axis=0, return_inverse=True)
        found: np.ndarray = self.search(self.graph, self.prices, self._last_legs(unique)).astype(self.precision)
        return found[numbers.reshape(-1)]

    def _last_legs(self, goals: np.ndarray) -> np.ndarray:
        """Steps from landmarks around each goal to it, goals x landmarks, infinite for the others."""
        near, apart, legs = self.near(goals, towards=True)
        inside = (apart <= 2.0 * self.graph.radius) | (apart <= apart.min(axis=1, keepdims=True))
        steps = np.where(inside, np.maximum(legs, 1e-3), np.inf)  # 0 would be no edge
        table = np.full((len(goals), len(self.graph)), np.inf)
        np.put_along_axis(table, near, steps, axis=1)
        return table

    def steps_left(self, here: np.ndarray, goals: np.ndarray, to_goals: np.ndarray) -> np.ndarray:
        """Steps from latents to their goals: by way of the graph, or as phi says where the goal is near."""
        near, _, steps = self.near(here)
        by_graph = np.take_along_axis(to_goals, near, axis=1) + steps
        straight = self.bank.apart(here, goals)
        return np.where(straight <= self.trust, undiscounted(straight, self.discount), by_graph.min(axis=1))

    def subgoals(
        self, here: np.ndarray, goals: np.ndarray, to_goals: np.ndarray, best: int, stuck: StuckAgents, rows: np.ndarray
    ) -> np.ndarray:
        """The latents to head for, of those agents that `rows` names: of the bank's states around an agent, the mean of
        those that are nearest to its goal by way of the graph. The goal itself once it is that near, or a little
        farther away than that where none of them is nearer: data need not lead all the way to a goal.
        """
        steps_left = self.steps_left(here[rows], goals[rows], to_goals[rows])
        reaches, at_random = stuck.reaches(here, steps_left, rows)
        found = np.array(goals[rows])
        straight = self.bank.apart(here[rows], found)
        far = np.flatnonzero(at_random | (straight > reaches))
        for agent, states, _ in self.surroundings(here[rows[far]], reaches[far]):
            number = far[agent]
            if at_random[number]:
                found[number] = self.bank.latents[stuck.random_subgoal(rows[number], states)]
                continue
            steps = np.min(to_goals[rows[number]][self.placed[states]] + self.bank_steps[states], axis=1)
            if steps.min() < (steps_left[number] if straight[number] <= self.trust else np.inf):
                found[number] = self.mean_of_best(states, steps, best)
        return found

    # ---- what goals and rewards share --------------------------------------------------------------------------------

    def surroundings(
        self, here: np.ndarray, reaches: np.ndarray | None = None
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Of each agent the states of the bank within its reach, or the nearest LEAST_AROUND, and steps to them."""
        radii = np.full(len(here), self.trust) if reaches is None else reaches
        for first in range(0, len(here), AGENTS_AT_A_TIME):
            table = self.bank.square_distance_table(here[first : first + AGENTS_AT_A_TIME])
            for number, squares in enumerate(table, first):
                states = np.flatnonzero(squares <= radii[number] ** 2)
                if len(states) < LEAST_AROUND:
                    states = smallest(squares, min(LEAST_AROUND, len(squares)))
                apart = np.sqrt(squares[states])
                if self.bank.distance is not None:  # what lies behind a door is not within reach
                    apart = self.bank.apart(here[number], self.bank.latents[states])
                    limit = max(radii[number], np.sort(apart)[: min(LEAST_AROUND, len(apart))][-1])
                    states, apart = states[apart <= limit], apart[apart <= limit]
                yield number, states, undiscounted(apart, self.discount)

    def mean_of_best(self, states: np.ndarray, costs: np.ndarray, best: int) -> np.ndarray:
        """The mean latent of those states of the bank that cost least: `best` of them, but no more than a share.

        Where data is thin, 50 states are all that lie around an agent, and their mean is where it stands.
        """
        count = min(best, len(states), max(FEW, math.ceil(BEST_SHARE * len(states))))
        return self.bank.latents[states[smallest(costs, count)]].mean(axis=0)

    def shares(self, latents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Latents as weighted means of the landmarks around them: which, and how much of each; both n x neighbours."""
        near, _, steps = self.near(latents)
        return near, _shares(steps)

    def on_bank(self, columns: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What landmarks have, each as all states of the bank have it by their `shares`; these were placed before."""
        weights = _shares(self.bank_steps)
        return [np.sum(column[self.placed] * weights, axis=1) for column in columns]

    # ---- knowing before acting ---------------------------------------------------------------------------------------

    def path_info(self, here: np.ndarray, goal: np.ndarray, to_goal: np.ndarray) -> PathInfo:
        """What the graph says about the way from one latent to another and the steps to it from all landmarks."""
        graph, last = self.graph, self._last_legs(goal[None])[0]
        near, apart, legs = self.near(here[None])
        steps = to_goal[near[0]] + legs[0]
        at, total = int(near[0, np.argmin(steps)]), float(steps.min())
        straight = self.bank.apart(here, goal)
        if straight <= graph.radius:  # as near as the landmarks tell states apart
            direct = float(undiscounted(straight, self.discount))
            return PathInfo(np.zeros(0, np.int64), direct, None, "yes")
        if not np.isfinite(total):
            return PathInfo(np.zeros(0, np.int64), np.inf, 0, "no")
        edges = self.way(at, to_goal, last)
        path = [at, *graph.target[edges]]
        support = int(graph.counts[edges].min()) if edges else None
        guesses = round(total // GUESS)
        off = max(apart[0].min(), np.linalg.norm(self.landmarks - goal, axis=1).min()) > 2.0 * graph.radius
        reachable: Reachable = "unknown" if guesses or off else "yes"
        return PathInfo(graph.landmarks[path].astype(np.int64), total - guesses * GUESS, support, reachable)

    def way(self, at: int, to_goal: np.ndarray, last: np.ndarray) -> list[int]:
        """The edges from a landmark to the one that a goal is next to."""
        graph, taken = self.graph, list[int]()
        while last[at] > to_goal[at] * (1 + 1e-5) and len(taken) < len(graph) - 1:
            edges = slice(*np.searchsorted(graph.origin, [at, at + 1]))
            taken.append(edges.start + int(np.argmin(self.prices[edges] + to_goal[graph.target[edges]])))
            at = int(graph.target[taken[-1]])
        return taken


def _shares(steps: np.ndarray) -> np.ndarray:
    """Weights that fall with the square of the distance; half a step is the least that counts."""
    weights = 1.0 / np.square(steps + 0.5)
    return weights / weights.sum(axis=1, keepdims=True)


# ---- shortest ways ---------------------------------------------------------------------------------------------------


Search = Callable[[Graph, np.ndarray, np.ndarray], np.ndarray]


def has_scipy() -> bool:
    """Whether SciPy is installed; robots may have numpy alone."""
    return importlib.util.find_spec("scipy") is not None


def by_scipy(graph: Graph, prices: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Steps from every landmark to each goal, goals x landmarks.

    prices: of the edges; last: steps from landmarks around each goal to it, goals x landmarks, infinite for the others.
    """
    from scipy.sparse import csr_matrix  # here: a policy that plans on no graph starts without it
    from scipy.sparse.csgraph import dijkstra

    number, landmark = np.nonzero(np.isfinite(last))
    goals, count = last.shape
    # Searched backwards, from goals to all landmarks: the row of an edge is where it leads to.
    rows = np.concatenate([graph.target, count + number])
    columns = np.concatenate([graph.origin, landmark])
    table = csr_matrix((np.concatenate([prices, last[number, landmark]]), (rows, columns)), (count + goals,) * 2)
    found: np.ndarray = dijkstra(table, indices=count + np.arange(goals))[:, :count]
    return found


def by_sweeps(graph: Graph, prices: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The same by numpy alone: all landmarks at once look one edge ahead, until none gains.

    The same sums in the same order as Dijkstra's, so the same numbers; some tenths of a second for a goal.
    """
    found = np.array(last)
    leaving, first = np.unique(graph.origin, return_index=True)  # edges lie in the order of where they begin
    for steps in found if len(leaving) else ():  # a goal at a time: its sweeps stay in cache
        while True:
            ahead = np.minimum.reduceat(steps[graph.target] + prices, first)
            if not (ahead < steps[leaving]).any():
                break
            steps[leaving] = np.minimum(steps[leaving], ahead)
    return found
