"""Rewards planned on the graph of the data: a model of the reward on landmarks, then value iteration.

A reward is taken to be r(s, s') = rho(s') + u(s') - u(s): what it pays to be somewhere, and what it pays to get there.
A fit of both at once leaves some noise in rho, and staying for ever where that noise is highest would pay more than any
potential does. So the simplest of three models is taken that explains held-out samples as well as the best: rho alone,
u alone, both. Where steps are too short for landmarks to tell them apart, velocities look like what is paid, and a plan
would go back to where it can speed up again. So u may be known: of a reward that is a change of what is observed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hilp.prompts.agent import Agent
from hilp.prompts.base import Packed, Prompt
from hilp.prompts.graph import GraphPlanner
from hilp.prompts.specs import BEST

if TYPE_CHECKING:  # scipy is imported where it is used: a policy that plans on no graph starts without it
    from scipy.sparse import csr_matrix

Model = Literal["state_reward", "potential", "both"]
MODELS: tuple[Model, ...] = ("state_reward", "potential", "both")  # the simplest first

DAMPING = 0.3  # of the least squares, on rewards of unit variance: landmarks that no sample is near stay at the mean
AS_GOOD = 0.02  # of R^2 that a simpler model may lack
POOR_FIT = 0.7  # R^2 below which a reward is hardly expressed
SOLVER_STEPS = 200
SWEEPS = 3_000  # bound of value iteration
ENOUGH = 1e-4  # of the range of values: where value iteration ends


@dataclass(frozen=True)
class Plan:
    """What a reward is worth on every landmark."""

    state_reward: np.ndarray  # rho [k], a step
    potential: np.ndarray  # u [k]
    values: np.ndarray  # [k]: discounted return from there, without u
    discount: float
    r2: float  # share of the variance of held-out samples that the model explains
    model: Model


def plan(
    planner: GraphPlanner,
    before: np.ndarray,
    after: np.ndarray,
    rewards: np.ndarray,
    discount: float,
    known: np.ndarray | None = None,
) -> Plan:
    """From labelled transitions, as latents [n, D] of s and s' and rewards [n].

    known: u(s') [n] of a reward that is a change of it.
    """
    at, to = (_weights(planner, latents) for latents in (before, after))
    mean, deviation = rewards.mean(), rewards.std()
    wanted = (rewards - mean) / deviation
    train = is_trained_on(len(wanted))
    held_out, variance = wanted[~train], np.var(wanted[~train])
    scores = dict.fromkeys(MODELS, 0.0)  # R^2 up to a constant
    for model in MODELS if variance > 0 else ():
        state_reward, potential = _fit(model, at[train], to[train], wanted[train])
        left = held_out - to[~train] @ state_reward - (to - at)[~train] @ potential
        scores[model] = 1.0 - float(np.var(left) / variance)
    model = next(model for model in MODELS if scores[model] >= max(scores.values()) - AS_GOOD)
    if known is None or (model == "potential" and scores[model] >= POOR_FIT):
        state_reward, potential = _fit(model, at, to, wanted)
        state_reward, potential = state_reward * deviation + mean, potential * deviation
    else:
        model = "potential"
        left = known[~train] - to[~train] @ _on_landmarks(to[train], known[train])
        scores[model] = 1.0 - float(np.var(left) / np.var(known[~train]))
        state_reward, potential = np.full(to.shape[1], mean), _on_landmarks(to, known)
    values = _values(planner, state_reward, potential, discount)
    return Plan(state_reward, potential, values, discount, scores[model], model)


def is_trained_on(count: int) -> np.ndarray:
    """bool [count]: samples by which models are fitted while the others say which is best."""
    return np.random.default_rng(0).permutation(count) % 2 == 0


def _weights(planner: GraphPlanner, latents: np.ndarray) -> "csr_matrix":
    """States as weighted means of the landmarks around them, n x k."""
    from scipy.sparse import csr_matrix

    near, shares = planner.shares(latents)
    rows = np.repeat(np.arange(len(latents)), near.shape[1])
    return csr_matrix((shares.ravel(), (rows, near.ravel())), (len(latents), len(planner.graph)))


def _fit(model: Model, at: "csr_matrix", to: "csr_matrix", wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """rho and u, both [k], by damped least squares."""
    from scipy.sparse import hstack
    from scipy.sparse.linalg import lsqr

    count = at.shape[1]
    found = np.zeros(2 * count)
    used = {"state_reward": slice(count), "potential": slice(count, None), "both": slice(None)}[model]
    columns = hstack([to, to - at]).tocsr()[:, used]
    found[used] = lsqr(columns, wanted, damp=DAMPING, iter_lim=SOLVER_STEPS)[0]
    return found[:count], found[count:]


def _on_landmarks(states: "csr_matrix", values: np.ndarray) -> np.ndarray:
    """Numbers of landmarks [k] by those of states [n]; of landmarks that no state is near their mean."""
    mean, deviation = values.mean(), max(float(values.std()), 1e-12)
    found, _ = _fit("state_reward", states, states, (values - mean) / deviation)
    return found * deviation + mean


def _values(planner: GraphPlanner, state_reward: np.ndarray, potential: np.ndarray, discount: float) -> np.ndarray:
    """Value iteration over staying where one is and taking an edge, which lasts as many steps as it has.

    Guessed edges are for graphs that have no others: a way that the data never went is no plan to earn by.
    """
    graph, count = planner.graph, len(planner.graph)
    taken = graph.counts > 0 if (graph.counts > 0).any() else np.ones(len(graph.counts), bool)
    origin, target, steps = graph.origin[taken], graph.target[taken], planner.steps[taken].astype(np.float64)
    later = discount**steps
    on_the_way = (1.0 - later) / (1.0 - discount) * 0.5 * (state_reward[origin] + state_reward[target])
    earned = on_the_way + np.sqrt(later) * (potential[target] - potential[origin])
    leaving, first = np.unique(origin, return_index=True)  # edges lie in the order of where they begin
    values = staying = state_reward / (1.0 - discount)
    for _ in range(SWEEPS if len(leaving) else 0):
        best = np.full(count, -np.inf)
        best[leaving] = np.maximum.reduceat(earned + later * values[target], first)
        new = np.maximum(staying, best)
        change, values = float(np.abs(new - values).max()), new
        if change <= ENOUGH * max(float(np.ptp(new)), 1e-12):
            break
    return values


def on_bank(planner: GraphPlanner, plan: Plan) -> list[np.ndarray]:
    """What each state of the bank is worth, earns and gets: the same for all agents at every step."""
    return planner.on_bank((plan.values, plan.state_reward, plan.potential))


def subgoals(planner: GraphPlanner, plan: Plan, known: Sequence[np.ndarray], here: np.ndarray, best: int) -> np.ndarray:
    """The latents to head for, agents x D: of the bank's states within the trust radius of an agent, the mean of
    those that are worth most, counting what is earned until there. Where staying pays, these lie around the agent.

    known: `on_bank` of the plan.
    """
    near, shares = planner.shares(here)
    state_reward, potential = (np.sum(column[near] * shares, axis=1) for column in (plan.state_reward, plan.potential))
    found = np.array(here)
    for agent, states, steps in planner.surroundings(here):
        worth, earns, gets = (column[states] for column in known)
        later = plan.discount**steps
        on_the_way = (1.0 - later) / (1.0 - plan.discount) * 0.5 * (state_reward[agent] + earns)
        score = on_the_way + np.sqrt(later) * (gets - potential[agent]) + later * worth
        found[agent] = planner.mean_of_best(states, -score, best)
    return found


ARRAYS = ("state_reward", "potential", "values")


@dataclass(frozen=True)
class GraphRewardPrompt(Prompt):
    """Maximise a reward on the graph of the data: head for what is worth most, at every step; stay where that pays.

    `r2` says how well the model of the reward on landmarks explains it.
    """

    policy: Agent
    planned: Plan = field(repr=False)
    best: int = BEST
    spec: Any = None

    kind = "graph"

    @property
    def r2(self) -> float:
        return self.planned.r2

    def __call__(self, observations: Any, active: np.ndarray | None = None) -> np.ndarray:
        """Skills for a batch; rows that are not `active` get that of standing still."""
        here = self.policy.latents(self.policy.check(observations))
        target = np.array(here)
        rows = np.arange(len(here)) if active is None else np.flatnonzero(active)
        target[rows] = subgoals(self.policy.planner, self.planned, self._on_bank, here[rows], self.best)
        return self.policy.goal_direction(here, target)

    @cached_property
    def _on_bank(self) -> list[np.ndarray]:
        return on_bank(self.policy.planner, self.planned)

    def packed(self) -> Packed:
        values = asdict(self.planned)
        arrays = {name: values.pop(name) for name in ARRAYS}
        return arrays, self.note(best=self.best, **values)


def loaded(policy: Agent, arrays: Mapping[str, np.ndarray], note: Mapping[str, Any], spec: Any) -> GraphRewardPrompt:
    """A prompt that was saved; a ValueError where it does not fit the policy's graph."""
    columns = {name: np.asarray(arrays[name], np.float64) for name in ARRAYS}
    shape = (len(policy.planner.graph),)
    if any(column.shape != shape or not np.isfinite(column).all() for column in columns.values()):
        raise ValueError("its values are not one a landmark")
    plan = Plan(**columns, discount=float(note["discount"]), r2=float(note["r2"]), model=note["model"])
    return GraphRewardPrompt(policy, plan, int(note["best"]), spec)
