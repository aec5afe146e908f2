"""The graph of the data: landmarks that cover the bank's latents, and the ways between them that the data has gone.

phi says which states are a few steps apart, and the data says which of those few steps can be taken: across a thin wall
latents lie close, and no trajectory leads there. So nodes come from phi and edges from observed trajectories. An edge
from landmark i to j costs the fewest steps that a trajectory took from near i to near j, plus what phi says lies
between the trajectory and the landmarks at both ends; by the triangle inequality that is no less than the time from i
to j. Edges have a direction, since what the data did need not be possible backwards.

Where no trajectory leads on, neighbours by phi alone are joined, at a price that no observed way can reach: a path over
such an edge is a guess, and `GraphPlanner.reachable` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hilp.learning.hilbert import undiscounted
from hilp.policy import planning

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

    def __len__(self) -> int:
        return len(self.landmarks)

    def columns(self) -> dict[str, np.ndarray]:
        """Its arrays by name, as they are saved."""
        return {name: np.asarray(getattr(self, name)) for name in ("landmarks", *EDGES)} | {
            "radius": np.asarray([self.radius], np.float32)
        }

    @staticmethod
    def from_columns(columns: Mapping[str, np.ndarray], bank: int) -> Graph:
        """The graph of a policy with so many states in its bank; a ValueError where the columns are none."""
        if set(columns) != {"landmarks", "radius", *EDGES}:
            raise ValueError("a column of the graph is missing or unexpected")
        wanted = {"landmarks": "int32", "radius": "float32", "origin": "int32", "target": "int32", "steps": "float32"}
        wanted["counts"] = "int32"
        if any(columns[name].ndim != 1 or columns[name].dtype != kind for name, kind in wanted.items()):
            raise ValueError("a column of the graph has another type")
        if len({len(columns[name]) for name in EDGES}) != 1 or len(columns["radius"]) != 1:
            raise ValueError("the columns of the graph differ in length")
        for name, limit in (
            ("landmarks", bank),
            ("origin", len(columns["landmarks"])),
            ("target", len(columns["landmarks"])),
        ):
            if len(columns[name]) and not (columns[name].min() >= 0 and columns[name].max() < limit):
                raise ValueError(f"'{name}' of the graph points outside")
        if not (
            np.isfinite(columns["steps"]).all() and (columns["steps"] > 0).all() and (columns["counts"] >= 0).all()
        ):
            raise ValueError("the steps of the graph make no sense")
        edges = {name: columns[name] for name in EDGES}
        return Graph(columns["landmarks"], float(columns["radius"][0]), **edges)


EDGES = ("origin", "target", "steps", "counts")


def build(bank: np.ndarray, latents: np.ndarray, lengths: np.ndarray, discount: float, seed: int = 0) -> Graph:
    """The graph of trajectories.

    bank: latents of the states that landmarks are chosen from, [n, D]. latents: those of trajectories one behind the
    other, [rows, D], with `lengths` rows each. Both by a phi with this discount.
    """
    trust = planning.trust_radius(discount)
    chosen, radius = cover(bank, CELL_SHARE * trust, seed)
    landmarks = bank[chosen]
    cells, offsets = nearest(latents, landmarks, 1)
    cell, offset = cells[:, 0].astype(np.int64), undiscounted(offsets[:, 0], discount)
    episode = np.repeat(np.arange(len(lengths)), lengths)
    longest = int(np.ceil(undiscounted(np.asarray(REACH * trust), discount)))
    keys, costs = [np.zeros(0, np.int64)], [np.zeros(0)]
    for lag in np.unique(np.geomspace(1, max(1, longest), LAGS).round().astype(int)):
        moved = (episode[lag:] == episode[:-lag]) & (cell[lag:] != cell[:-lag])
        keys.append(cell[:-lag][moved] * len(chosen) + cell[lag:][moved])
        costs.append(lag + offset[:-lag][moved] + offset[lag:][moved])
    pairs, steps, counts = quickest(np.concatenate(keys), np.concatenate(costs))
    origin, target = np.divmod(pairs, max(1, len(chosen)))
    guessed = neighbours(landmarks, GUESSED * radius, origin, target)
    apart = np.linalg.norm(landmarks[guessed[0]] - landmarks[guessed[1]], axis=1)
    origin, target = np.concatenate([origin, guessed[0]]), np.concatenate([target, guessed[1]])
    steps = np.concatenate([steps, np.maximum(undiscounted(apart, discount), 1.0)])
    counts = np.concatenate([counts, np.zeros(len(apart))])
    order = np.lexsort((target, origin))
    columns = {"origin": (origin, "int32"), "target": (target, "int32"), "steps": (steps, "float32")}
    columns["counts"] = (counts, "int32")
    edges = {name: np.asarray(column[order], kind) for name, (column, kind) in columns.items()}
    return Graph(chosen.astype(np.int32), float(np.float32(radius)), **edges)


def trajectories(lengths: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of whole episodes, drawn at random until there are MOST_ROWS, and how many rows each of them has."""
    order = np.random.default_rng(seed).permutation(len(lengths))
    enough = int(np.searchsorted(np.cumsum(lengths[order]), MOST_ROWS)) + 1
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


def quickest(keys: np.ndarray, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each key the QUANTILE of its costs, and how many there are."""
    order = np.lexsort((costs, keys))
    unique, first, counts = np.unique(keys[order], return_index=True, return_counts=True)
    return unique, costs[order][first + (QUANTILE * (counts - 1)).astype(int)], counts


def neighbours(
    landmarks: np.ndarray, radius: float, origin: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of landmarks within a radius, in both directions, but those that are edges already."""
    squares = np.square(landmarks).sum(axis=1)
    table = squares + squares[:, None] - 2.0 * landmarks @ landmarks.T <= radius * radius
    table[origin, target] = False
    np.fill_diagonal(table, False)
    one, two = np.nonzero(table)
    return one, two
