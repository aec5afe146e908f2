"""The graph of the data for methods that estimate the steps between two states by a value or a distance, not by phi.

Values tell near goals apart and blur far ones, so a far goal is better reached from landmark to landmark (TTGS,
2510.07257). Landmarks are states of the bank, drawn at random, and each is headed for as a goal of its own: these
methods have no directions. Edges are moves that trajectories made, as in `hilp.prompts.graph`, and estimates of the
steps between two landmarks. Estimates are trusted as far as landmarks lie close together; beyond, an edge costs ever
more than it is long, so that it is taken only where nothing else leads on.
"""

from collections.abc import Callable

import numpy as np

from hilp.prompts import graph
from hilp.prompts.graph import GUESS, Graph, GraphPlanner, PathInfo, Search, moves, nearest
from hilp.prompts.memory import StuckAgents
from hilp.prompts.midpoints import BLOCK, Midpoints, filled

LANDMARKS = 500  # at every step an agent asks how far all of them are
NEIGHBOURS, MOST = 16, 0.9  # estimates are trusted as far as so many landmarks lie around most of them
AIM = 2.0  # times as far lies the landmark that is headed for, at most
FEW = 4  # landmarks that count as around an agent, however far
PENALTY = 1000.0  # of an edge as long as the trusted distance; its square of one twice as long
LONGEST = 4.0  # times as long: beyond, the penalty stays, or float64 would lose single steps beside it
VALUE_EDGES = 32  # of a landmark, to those that are nearest by the estimate
ALIKE = 4  # landmarks that look most like a row of the data, of which one is next to it
MOST_ROWS = 20_000  # of trajectories that are looked at
ROWS = 512  # of them at a time
LEAST = 1e-3  # steps of an edge: 0 would be none

Steps = Callable[[np.ndarray, np.ndarray], np.ndarray]  # between states, as skills of goals; leading axes are broadcast


def build(
    bank: np.ndarray, rows: np.ndarray, lengths: np.ndarray, steps: Steps, seed: int = 0, slower: float = 1.0
) -> Graph:
    """The graph of trajectories. Its radius is the trusted distance, in steps.

    bank: skills of the states that landmarks are drawn from, [n, D]; rows: those of trajectories one behind the other,
    with `lengths` rows each. slower: see `graph.build`.
    """
    chosen = np.sort(np.random.default_rng(seed).permutation(len(bank))[:LANDMARKS])
    landmarks, count = bank[chosen], len(chosen)
    apart = np.maximum(table(steps, landmarks, landmarks), 1.0)
    np.fill_diagonal(apart, np.inf)
    near = np.argsort(apart, axis=1)[:, : min(VALUE_EDGES, count - 1)]
    estimates = np.take_along_axis(apart, near, axis=1)
    reach = float(np.quantile(estimates[:, :NEIGHBOURS][:, -1], MOST)) if count > 1 else 1.0
    reach = float(np.float32(reach))  # as it is saved

    cell, leave, arrive = beside(steps, landmarks, rows)
    seen = moves(cell, leave, arrive, lengths, int(np.ceil(AIM * reach)), count)
    keys = np.concatenate(
        [seen[0] * count + seen[1], np.repeat(np.arange(count), near.shape[1]) * count + near.ravel()]
    )
    keys, first = np.unique(keys, return_index=True)  # of an edge that was seen, that
    origin, target = np.divmod(keys, count)
    costs = np.maximum(np.concatenate([seen[2] * slower, estimates.ravel()])[first], LEAST)
    counts = np.concatenate([seen[3], np.zeros(near.size)])[first]
    columns = zip(graph.EDGES.values(), (origin, target, costs, counts), strict=True)
    return Graph(chosen.astype(np.int32), reach, *(column.astype(kind) for kind, column in columns))


def beside(steps: Steps, landmarks: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each row the landmark that is fewest steps away there and back, the steps from it and the steps to it.

    Only landmarks that look like the row are asked about: all of them would take minutes.
    """
    alike, _ = nearest(rows, landmarks, ALIKE)
    leave, arrive = (np.zeros(alike.shape, np.float32) for _ in range(2))
    for first in range(0, len(rows), ROWS):
        block = slice(first, first + ROWS)
        here, there = rows[block, None], landmarks[alike[block]]
        arrive[block], leave[block] = steps(here, there), steps(there, here)
    best = np.argmin(leave + arrive, axis=1)[:, None]
    cell, leave, arrive = (np.take_along_axis(one, best, axis=1)[:, 0] for one in (alike, leave, arrive))
    return cell.astype(np.int64), leave, arrive


def table(steps: Steps, here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """The steps from each state to each of others, [n, m]."""
    firsts = range(0, len(here), BLOCK)
    found = [steps(filled(here[first : first + BLOCK])[:, None], there[None]) for first in firsts]
    return np.concatenate([np.zeros((0, len(there)), np.float32), *found])[: len(here)]


def pairs(steps: Steps, here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """The steps from each state to the one of others in the same place, [n]."""
    blocks = (slice(first, first + BLOCK) for first in range(0, len(here), BLOCK))
    found = [steps(filled(here[block]), filled(there[block])) for block in blocks]
    return np.concatenate([np.zeros(0, np.float32), *found])[: len(here)]


class ValuePlanner(GraphPlanner):
    """A graph with the bank that its landmarks are from, and the rule that estimates the steps between two states.

    Where `GraphPlanner` has latents this has skills of goals, and there is no mean of them: they are states.
    """

    is_fine_enough = True
    precision = np.float64  # a guess costs up to 1e12 times its length, and single steps still count beside it

    def __init__(self, drawn: Graph, bank: Midpoints, steps: Steps, search: Search | None = None):
        self.graph, self.bank, self.between = drawn, bank, steps
        self.search = search or (graph.by_scipy if graph.has_scipy() else graph.by_sweeps)
        self.landmarks = bank.latents[drawn.landmarks]
        self.reach = drawn.radius
        self.prices = np.where(drawn.counts > 0, drawn.steps, GUESS + self.priced(drawn.steps))

    def priced(self, steps: np.ndarray) -> np.ndarray:
        """Estimated steps, as they count on a way: a guess, beyond the trusted distance."""
        times = np.minimum(np.asarray(steps, np.float64) / self.reach, LONGEST)
        return np.where(times > 1.0, GUESS + steps * PENALTY**times, steps)

    def stuck(self) -> StuckAgents:
        return StuckAgents(AIM * self.reach, AIM * self.reach)

    def _last_legs(self, goals: np.ndarray) -> np.ndarray:
        return self.priced(np.maximum(table(self.between, self.landmarks, goals).T, LEAST))

    def steps_left(self, here: np.ndarray, goals: np.ndarray, to_goals: np.ndarray) -> np.ndarray:
        return self._seen(here, goals, to_goals)[-1]

    def _seen(self, here: np.ndarray, goals: np.ndarray, to_goals: np.ndarray) -> tuple[np.ndarray, ...]:
        """Estimated steps to all landmarks and to the goal; and those of the best way to it."""
        away, straight = table(self.between, here, self.landmarks), pairs(self.between, here, goals)
        return away, straight, np.minimum(self.priced(straight), (self.priced(away) + to_goals).min(axis=1))

    def subgoals(
        self, here: np.ndarray, goals: np.ndarray, to_goals: np.ndarray, best: int, stuck: StuckAgents, rows: np.ndarray
    ) -> np.ndarray:
        """The skills to follow, of those agents that `rows` names: of landmarks within reach that of the one nearest to
        the goal, and that of the goal itself once it is within reach.
        """
        found, to_goals = np.array(goals[rows]), to_goals[rows]
        away, straight, steps_left = self._seen(here[rows], found, to_goals)
        at = np.full((len(here), 1), np.nan)  # agents are known by their way to go: who has another is elsewhere
        ways = np.concatenate([self.priced(away) + to_goals, self.priced(straight)[:, None]], axis=1)
        lengths = np.concatenate([away + to_goals, straight[:, None]], axis=1)  # no penalty: it changes with every step
        at[rows, 0] = np.take_along_axis(lengths, ways.argmin(axis=1)[:, None], axis=1)[:, 0]
        reaches, at_random = stuck.reaches(at, at[rows, 0], rows)
        for agent in np.flatnonzero(at_random | (straight > reaches)):
            around = np.flatnonzero(away[agent] <= max(reaches[agent], np.sort(away[agent])[:FEW][-1]))
            heads_for = around[np.argmin(to_goals[agent, around])]
            if at_random[agent]:
                heads_for = stuck.random_subgoal(rows[agent], around)
            elif straight[agent] <= AIM * self.reach and to_goals[agent, heads_for] >= steps_left[agent]:
                continue  # data need not lead all the way to a goal
            found[agent] = self.landmarks[heads_for]
        return found

    def path_info(self, here: np.ndarray, goal: np.ndarray, to_goal: np.ndarray) -> PathInfo:
        straight = float(self.between(here[None], goal[None])[0])
        if straight <= self.reach:
            return PathInfo(np.zeros(0, np.int64), straight, None, "yes")
        away, last = table(self.between, here[None], self.landmarks)[0], self._last_legs(goal[None])[0]
        at = int(np.argmin(self.priced(away) + to_goal))
        if not np.isfinite(self.priced(away)[at] + to_goal[at]):
            return PathInfo(np.zeros(0, np.int64), np.inf, 0, "no")
        edges = self.way(at, to_goal, last)
        path = np.array([at, *self.graph.target[edges]])
        legs = float(away[at]), float(self.between(self.landmarks[path[-1:]], goal[None])[0])
        support = int(self.graph.counts[edges].min()) if edges else None
        is_shown = support != 0 and max(legs) <= self.reach
        steps = sum(legs) + float(self.graph.steps[edges].sum())
        return PathInfo(self.graph.landmarks[path].astype(np.int64), steps, support, "yes" if is_shown else "unknown")
