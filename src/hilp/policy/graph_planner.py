"""GraphPlanner: distances on the graph of the data, which way to take, and what is known of it before acting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hilp.learning.hilbert import undiscounted
from hilp.policy.graph import Graph, nearest
from hilp.policy.planning import Midpoints, smallest, trust_radius
from hilp.policy.stuck import StuckAgents

NEIGHBOURS = 4  # landmarks by which a state is placed on the graph
GUESS = 1e6  # steps that an edge costs on top, where no trajectory was seen to take it
BEST_SHARE = 0.1  # of the states around an agent that a subgoal is averaged over, at most
FEW = 3  # states that it is averaged over at least
LEAST_AROUND = 10  # states that count as around an agent, however far
COARSE = 0.5  # of the trust radius: landmarks farther apart are too few to follow
AGENTS_AT_A_TIME = 32  # whose distances to the bank are held

Reachable = Literal["yes", "no", "unknown"]
Search = Callable[[Graph, np.ndarray, np.ndarray], np.ndarray]  # of hilp.policy.shortest


@dataclass(frozen=True)
class PathInfo:
    """What the graph says about a goal before anybody acts."""

    path: np.ndarray  # rows of the bank: the landmarks to come, without the goal
    steps: float  # expected; infinite where there is no way
    support: int | None  # observed transitions behind the weakest edge of the path; 0: a guess; None: no edge is needed
    reachable: Reachable  # unknown: the way holds a guess, or the goal lies off the graph


class GraphPlanner:
    """A graph with the bank that its landmarks are from, and a way to find shortest ways on it."""

    def __init__(self, graph: Graph, bank: Midpoints, discount: float, search: Search):
        self.graph, self.bank, self.discount, self.search = graph, bank, discount, search
        self.landmarks = bank.latents[graph.landmarks]
        self.trust = trust_radius(discount)
        self.prices = np.where(graph.counts > 0, graph.steps, GUESS + graph.steps)
        self.placed, apart = nearest(bank.latents, self.landmarks, NEIGHBOURS)  # bank x neighbours
        self.beside = undiscounted(apart, discount).astype(np.float32)  # steps from states of the bank to those

    @property
    def is_fine_enough(self) -> bool:
        """Whether landmarks lie well within the radius that subgoals are chosen in; states of many numbers that vary
        freely are too many to cover.
        """
        return self.graph.radius <= COARSE * self.trust

    def stuck(self) -> StuckAgents:
        return StuckAgents(self.trust, float(undiscounted(np.asarray(self.trust), self.discount)))

    # ---- goals -------------------------------------------------------------------------------------------------------

    def to_goals(self, goals: np.ndarray) -> np.ndarray:
        """Steps from every landmark to each goal, goals x landmarks; equal goals are searched for once."""
        unique, numbers = np.unique(goals, axis=0, return_inverse=True)
        found = self.search(self.graph, self.prices, self._last_legs(unique)).astype(np.float32)
        return found[numbers.reshape(-1)]

    def _last_legs(self, goals: np.ndarray) -> np.ndarray:
        """Steps from landmarks around each goal to it, goals x landmarks, infinite for the others."""
        near, apart = nearest(goals, self.landmarks, NEIGHBOURS)
        inside = (apart <= 2.0 * self.graph.radius) | (apart <= apart.min(axis=1, keepdims=True))
        steps = np.where(inside, np.maximum(undiscounted(apart, self.discount), 1e-3), np.inf)  # 0 would be no edge
        table = np.full((len(goals), len(self.graph)), np.inf)
        np.put_along_axis(table, near, steps, axis=1)
        return table

    def steps_left(self, here: np.ndarray, goals: np.ndarray, to_goals: np.ndarray) -> np.ndarray:
        """Steps from latents to their goals: by way of the graph, or as phi says where the goal is near."""
        near, apart = nearest(here, self.landmarks, NEIGHBOURS)
        by_graph = np.take_along_axis(to_goals, near, axis=1) + undiscounted(apart, self.discount)
        straight = np.linalg.norm(goals - here, axis=1)
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
        straight = np.linalg.norm(found - here[rows], axis=1)
        far = np.flatnonzero(at_random | (straight > reaches))
        for agent, states, _ in self.surroundings(here[rows[far]], reaches[far]):
            number = far[agent]
            if at_random[number]:
                found[number] = self.bank.latents[stuck.random_subgoal(rows[number], states)]
                continue
            steps = np.min(to_goals[rows[number]][self.placed[states]] + self.beside[states], axis=1)
            if steps.min() < (steps_left[number] if straight[number] <= self.trust else np.inf):
                found[number] = self.mean_of_best(states, steps, best)
        return found

    def targets(
        self, here: np.ndarray, goals: np.ndarray, to_goals: np.ndarray, best: int, stuck: StuckAgents,
        rows: np.ndarray, radius: float | None = None,
    ) -> np.ndarray:  # fmt: skip
        """`subgoals`, and of agents that are not in `rows` their goals. With a radius, agents to whose goals the data
        shows no way head for midpoints, until one is that near.
        """
        found, unshown = np.array(goals), rows[:0]
        if radius is not None:
            shown = self.steps_left(here[rows], goals[rows], to_goals[rows]) < GUESS
            rows, unshown = rows[shown], rows[~shown]
        found[rows] = self.subgoals(here, goals, to_goals, best, stuck, rows)
        if radius is not None and len(unshown):
            found[unshown] = self.bank.subgoals(here[unshown], goals[unshown], "auto", best, radius)
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
                yield number, states, undiscounted(np.sqrt(squares[states]), self.discount)

    def mean_of_best(self, states: np.ndarray, costs: np.ndarray, best: int) -> np.ndarray:
        """The mean latent of those states of the bank that cost least: `best` of them, but no more than a share.

        Where data is thin, 50 states are all that lie around an agent, and their mean is where it stands.
        """
        count = min(best, len(states), max(FEW, math.ceil(BEST_SHARE * len(states))))
        return self.bank.latents[states[smallest(costs, count)]].mean(axis=0)

    def shares(self, latents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Latents as weighted means of the landmarks around them: which, and how much of each; both n x neighbours."""
        near, apart = nearest(latents, self.landmarks, NEIGHBOURS)
        return near, _shares(undiscounted(apart, self.discount))

    def bank_shares(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`shares` of states of the bank, which were placed before."""
        return self.placed[states], _shares(self.beside[states])

    # ---- knowing before acting ---------------------------------------------------------------------------------------

    def path_info(self, here: np.ndarray, goal: np.ndarray, to_goal: np.ndarray) -> PathInfo:
        """What the graph says about the way from one latent to another, given the steps to it from all landmarks."""
        graph, last = self.graph, self._last_legs(goal[None])[0]
        near, apart = nearest(here[None], self.landmarks, NEIGHBOURS)
        steps = to_goal[near[0]] + undiscounted(apart[0], self.discount)
        at, total = int(near[0, np.argmin(steps)]), float(steps.min())
        if np.linalg.norm(goal - here) <= graph.radius:  # as near as the landmarks tell states apart
            direct = float(undiscounted(np.asarray(np.linalg.norm(goal - here)), self.discount))
            return PathInfo(np.zeros(0, np.int64), direct, None, "yes")
        if not np.isfinite(total):
            return PathInfo(np.zeros(0, np.int64), np.inf, 0, "no")
        path, support = [at], None
        while last[at] > to_goal[at] * (1 + 1e-5) and len(path) < len(graph):
            edges = slice(*np.searchsorted(graph.origin, [at, at + 1]))
            taken = edges.start + int(np.argmin(self.prices[edges] + to_goal[graph.target[edges]]))
            at, count = int(graph.target[taken]), int(graph.counts[taken])
            support = count if support is None else min(support, count)
            path.append(at)
        guesses = round(total // GUESS)
        off = max(apart[0].min(), np.linalg.norm(self.landmarks - goal, axis=1).min()) > 2.0 * graph.radius
        reachable: Reachable = "unknown" if guesses or off else "yes"
        return PathInfo(graph.landmarks[path].astype(np.int64), total - guesses * GUESS, support, reachable)


def _shares(steps: np.ndarray) -> np.ndarray:
    """Weights that fall with the square of the distance; half a step is as near as can be told."""
    weights = 1.0 / np.square(steps + 0.5)
    return weights / weights.sum(axis=1, keepdims=True)
