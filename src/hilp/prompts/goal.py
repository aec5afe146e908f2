"""Goals as prompts: by direction, midpoints, the graph of the data, or the one skill that a goal stands for.

And demonstrations, which are goals one after the other.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError, some
from hilp.prompts.agent import Agent, Batch, require_ways
from hilp.prompts.base import Packed, Prompt
from hilp.prompts.graph import GUESS, PathInfo, nearest
from hilp.prompts.memory import AgentMemory, LatentEma, StuckAgents, TriedChoices
from hilp.prompts.midpoints import Midpoints, trust_radius, undiscounted
from hilp.prompts.specs import Follow, Goal
from hilp.trees import Tree

NEAR = 2.0  # steps from a goal at which it counts as reached, unless a task says otherwise
AROUND = 10  # states of the bank that agree best with a goal, of which the one in their midst is taken
FAR = 3.0  # times the largest gap between neighbours in the data: beyond, nothing of the data agrees with a goal
SAMPLE = 256  # states whose gaps are looked at
WINDOW = 10  # rows ahead, where a method has no distances to choose by
LOOKED = 3  # windows ahead in which the agent's place is looked for


@dataclass(frozen=True)
class GoalPrompt(Prompt):
    """Reach a goal, by the rule of the policy's method.

    By direction: z points from phi(s) to u, anew at every step; u is the goal, a midpoint found by planning, or the
    next place on the way there on the graph of the data. Plan "auto" takes the way that the data shows, and midpoints
    where it shows none. By name: z is the one skill that the goal stands for, wherever the agent is.
    """

    policy: Agent
    goal: Tree  # [obs] or [n, obs], or named parts of that
    latent: np.ndarray = field(repr=False)  # phi(goal), or the skill that the goal stands for
    spec: Goal = field(default_factory=Goal)  # how to reach it; the observation itself is saved as an array
    to_goal: np.ndarray | None = field(default=None, repr=False)  # on the graph: steps from landmarks, [k] or [n, k]
    stuck: StuckAgents | None = field(default=None, repr=False, compare=False)  # on the graph: what agents have tried
    latent_ema: LatentEma | None = field(default=None, repr=False, compare=False)  # where agents were, if that counts
    tried: TriedChoices = field(default_factory=TriedChoices, repr=False, compare=False)  # of discrete actions

    kind = "goal"

    @property
    def plan(self) -> int | str:
        return self.spec.plan

    def __call__(self, observations: Any, active: np.ndarray | None = None) -> np.ndarray:
        batch = self.policy.check(observations)
        count = len(batch)
        if self.latent.ndim == 2 and len(self.latent) != count:
            raise HilpError(f"this prompt holds {len(self.latent)} goals, one an observation, not {count}")
        target = np.array(np.broadcast_to(self.latent, (count, self.latent.shape[-1])))
        by_direction = self.policy.has_rule("goal_direction")
        if self.stuck is None and not by_direction:
            return target
        here = self.policy.latents(batch)
        if self.latent_ema is not None:
            here = self.latent_ema(here)
        rows = np.arange(count) if active is None else np.flatnonzero(active)
        targets = self._targets(here, target, rows)
        return self.policy.goal_direction(here, targets) if by_direction else targets

    def step(self, batch: Batch) -> np.ndarray | None:
        if self.latent_ema is not None or not self.policy.has_rule("goal_direction"):
            return None
        if self.plan == 0:
            return self.policy.rule("act_towards", batch, self.one_goal)
        here = self.policy.latents(batch)
        return self.policy.rule("act_between", batch, here, self.subgoal(here))

    def untried(self, scores: np.ndarray, batch: Batch, active: np.ndarray) -> np.ndarray:
        goals = trees.over(lambda goal, seen: np.broadcast_to(goal, seen.shape), self.goal, batch.tree)
        return self.tried.untried(scores, batch.tree, goals, active)

    def _targets(self, here: np.ndarray, goals: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The latents to head for, agents x dim; of agents that are not in `rows` their goals.

        By way of the graph; but by plan "auto", agents to whose goals the data shows no way head for midpoints.
        """
        target = np.array(goals)
        if self.stuck is not None:
            assert self.to_goal is not None
            planner, steps = self.policy.planner, np.broadcast_to(self.to_goal, (len(here), self.to_goal.shape[-1]))
            shown = np.ones(len(rows), bool)
            if self.plan == "auto" and not self.policy.plans_by_steps:  # that has no midpoints
                shown = planner.steps_left(here[rows], goals[rows], steps[rows]) < GUESS
            target[rows[shown]] = planner.subgoals(here, goals, steps, self.spec.best, self.stuck, rows[shown])
            rows = rows[~shown]
        if self.plan != 0 and len(rows):
            target[rows] = self.policy.midpoints.subgoals(here[rows], goals[rows], *self._midpoint_options)
        return target

    @cached_property
    def _midpoint_options(self) -> tuple[int | str, int, float]:
        """Recursions, best and radius, as midpoints take them."""
        named = isinstance(self.plan, str)
        return ("auto" if named else self.plan, self.spec.best, self.near_enough if named else 0.0)

    @property
    def near_enough(self) -> float:
        """The radius, in latent steps, within which a midpoint is not divided further; of plans without a number."""
        return trust_radius(self.policy.discount) if self.spec.radius is None else self.spec.radius

    @cached_property
    def one_goal(self) -> np.ndarray:
        """The latent of the goal of one agent, [1, dim]."""
        latent = np.atleast_2d(self.latent)
        if len(latent) != 1:
            raise HilpError(f"this prompt holds {len(latent)} goals, one an observation, not 1")
        return latent

    def subgoal(self, here: np.ndarray) -> np.ndarray:
        """The latent to head for, [1, dim], of one agent whose latent is `here` [1, dim]."""
        if self.stuck is not None:
            return self._targets(here, self.one_goal, np.arange(1))
        return self.policy.midpoints.subgoal(here[0], self.one_goal[0], *self._midpoint_options)[None]

    @property
    def holds(self) -> bool | None:
        """Whether trajectories of the data stay at this goal; None where the data is not around it, or cannot tell."""
        graph = self.policy.graph
        if graph is None or self.latent.ndim != 1 or self.policy.plans_by_steps:
            return None
        if _apart(self.policy, graph.landmarks, self.latent) > 2.0 * graph.radius:
            return None
        return _apart(self.policy, graph.rests, self.latent) <= graph.radius

    def path_info(self, observation: Any) -> PathInfo:
        """What the graph of the data says about the way from an observation to this goal, before acting."""
        if self.latent.ndim != 1:
            raise HilpError("path_info is about one goal: make a prompt with one")
        require_ways(self.policy)
        to_goal = self.policy.planner.to_goals(self.latent[None])[0] if self.to_goal is None else self.to_goal
        batch = self.policy.check(observation, always=True)
        if not batch.single:
            raise HilpError("path_info is from one observation on: give one")
        return self.policy.planner.path_info(self.policy.latents(batch)[0], self.latent, to_goal)

    def path(self, observation: Any) -> Tree:
        """The landmarks to come, as observations of the policy's bank: where it lacks them, those nearest to them."""
        rows = self.path_info(observation).path
        if len(self.policy.midpoints) != len(self.policy.bank):
            latents = self.policy.midpoints.latents[rows]
            rows = Midpoints(self.policy.bank_latents).square_distance_table(latents).argmin(axis=1)
        return trees.over(lambda part: part[rows], self.policy.bank.observations)

    def steps(self, observation: Any) -> float:
        """The steps that the way is expected to take; infinite where the data has none."""
        return self.path_info(observation).steps

    def support(self, observation: Any) -> int | None:
        """How many transitions of the data show the weakest part of the way; 0: none; None: it is near enough."""
        return self.path_info(observation).support

    def reachable(self, observation: Any) -> str:
        """yes, no, or unknown: phi knows a way that the data does not show, or the goal is unlike the data."""
        return self.path_info(observation).reachable

    def reached(self, observations: Any) -> np.ndarray:
        """bool [n]: observations that are as near to the goal as distances tell, within some steps."""
        if not self.policy.plans_by_steps:
            lacking = "has no distances to tell whether a goal is reached: say until when"
            self.policy.require_rule("goal_direction", lacking)
        here = self.policy.latents(self.policy.check(observations))
        if self.policy.plans_by_steps:
            return self.policy.steps_between(here, np.broadcast_to(self.latent, here.shape)) <= NEAR
        apart = self.policy.distance(here, np.broadcast_to(self.latent, here.shape))
        return np.asarray(undiscounted(apart, self.policy.discount) <= NEAR)

    def packed(self) -> Packed:
        return trees.named(self.goal, "goal"), self.note()


def goal(policy: Agent, goal: Any, options: Goal, matched: bool = False) -> GoalPrompt:
    """The prompt to reach a goal observation, or one an agent. matched: it is a state of the data for `goal_dims`."""
    if options.plan == "auto" and not _can_plan(policy, options):
        options = replace(options, plan=0)
    require(policy, options)
    goals = policy.check(goal, "goal", always=True)
    if options.goal_dims is not None and not matched:
        goals = Batch(match(policy, goals.tree, options.goal_dims), goals.single)
    policy.data_range.warn("goal", goals.tree)
    if not policy.has_rule("goal_direction"):
        latent = policy.rule("goal_skill", goals)
    elif goals.single and options.plan == 0:
        latent = policy.encode_goal(goals)
    else:
        latent = policy.rule("encode", goals)
    to_goal = stuck = None
    if _is_on_graph(policy, options):
        to_goal, stuck = policy.planner.to_goals(latent), policy.planner.stuck()
    steps = smoothing(policy, options)
    ema = None if steps <= 1.0 else LatentEma(steps, trust_radius(policy.discount))
    tree = goals.tree
    if goals.single:
        tree, latent = trees.over(lambda rows: rows[0], tree), latent[0]
        to_goal = None if to_goal is None else to_goal[0]
    return GoalPrompt(policy, tree, latent, options, to_goal, stuck, ema)


def _apart(policy: Agent, rows: np.ndarray, goal: np.ndarray) -> float:
    """How far the nearest of these rows of the bank is from a goal [dim], in phi; infinite where there is none."""
    return float(nearest(goal[None], policy.midpoints.latents[rows], 1)[1][0, 0]) if len(rows) else math.inf


def smoothing(policy: Agent, options: Goal) -> float:
    """The steps over which an agent's latents are averaged; 1 for none."""
    if options.smooth != "auto":
        return float(options.smooth)
    if policy.spec.choices:  # each is a whole step or turn, and a mean of places is none
        return 1.0
    return 1.0 if policy.graph is None else policy.graph.smooth


def _is_on_graph(policy: Agent, options: Goal) -> bool:
    """Whether goals are reached by way of the graph; a radius asks for midpoints."""
    if options.plan != "auto" or options.radius is not None:
        return options.plan == "graph"
    return policy.graph is not None and policy.planner.is_fine_enough


def require(policy: Agent, options: Goal) -> None:
    """Raise unless a policy can reach goals in this way; rules that it has may be refused, too, by an export."""
    plan = options.plan
    rule = "goal_direction" if policy.has_rule("goal_direction") else "goal_skill"
    policy.require_rule(rule, "has no goal rule: prompt it with a reward, e.g. that of being at the goal")
    by_steps = policy.plans_by_steps and plan in ("auto", "graph") and options.radius is None
    if plan == "graph" or by_steps:
        require_ways(policy)
    if plan != 0 and not by_steps:
        policy.require_rule("goal_direction", "has no latent distances to find midpoints with: use plan=0")
        if not len(policy.bank):
            raise HilpError("this policy was saved without a bank of states, so it cannot plan: use plan=0")
        if policy.has_rule("distance"):
            policy.require_rule("distance", "has no distances: use plan=0")
    if options.smooth != "auto":
        policy.require_rule("goal_direction", "goes by no direction that could be smoother")
    if plan in ("auto", "midpoints") and options.radius is None and not by_steps:
        policy.require_rule(
            "discount", "does not say how far its distances reach: use a number of recursions as plan, or pass a radius"
        )


def _can_plan(policy: Agent, options: Goal) -> bool:
    """Whether there is anything to plan with."""
    try:
        require(policy, options)
    except HilpError:
        return False
    return True


def match(policy: Agent, goals: np.ndarray, goal_dims: Sequence[Any]) -> np.ndarray:
    """For each goal [n, obs] a state of the policy's bank that agrees with it in these columns.

    A goal is often a place: where the robot shall be, in whatever posture. Made up (zeros, a home position), the rest
    may be a state that no data is like, of which networks know nothing.
    """
    states: Any = policy.bank.observations
    if isinstance(states, Mapping):
        raise HilpError(f"goal_dims are columns of a goal, and this policy sees {some(list(states))}")
    if not len(states):
        raise HilpError("this policy was saved without a bank of states, so goal_dims have none to match")
    newest = policy.spec.newest(states)
    width, columns = newest.shape[1], list(goal_dims)
    if not all(isinstance(column, int) and 0 <= column < width for column in columns):
        raise HilpError(f"goal_dims are one or more of its columns 0 to {width - 1}, not {goal_dims!r}")
    periods = {} if policy.transform is None else dict(policy.transform.angles)
    places = Places(newest[:, columns], np.array([periods.get(column, 0.0) for column in columns]))
    gap, spread = places.largest_gap(), np.maximum(states.std(axis=0), 1e-6)
    found = []
    for one in policy.spec.newest(np.asarray(goals))[:, columns]:
        apart = places.apart(one)
        around = np.argsort(apart, kind="stable")[:AROUND]
        if apart[around[0]] > FAR * gap:
            there = ", ".join(f"{number:.4g}" for number in places.known[around[0]])
            text = f"no state of the data is near this goal in its goal_dims: the nearest one has {there} there"
            warnings.warn(text, stacklevel=4)
        seen = policy.encode(states[around]) if policy.has_rule("goal_direction") else states[around] / spread
        found.append(around[np.argmin(np.linalg.norm(seen - seen.mean(axis=0), axis=1))])
    return np.asarray(states[found])


class Places:
    """States by some of their columns, each in units of its standard deviation."""

    def __init__(self, known: np.ndarray, periods: np.ndarray) -> None:
        self.known, self.periods = known, periods  # [n, columns], [columns]: 0 where a column does not wrap
        self.scale = np.maximum(known.std(axis=0), 1e-6)

    def apart(self, place: np.ndarray) -> np.ndarray:
        """How far all states are from a place, [n]."""
        away = self.known - place
        turns = np.round(away / np.where(self.periods > 0, self.periods, np.inf))
        return np.asarray(np.linalg.norm((away - turns * self.periods) / self.scale, axis=1))

    def largest_gap(self) -> float:
        """Between a state and the next one, of a sample."""
        gaps = [0.0]
        for row in np.random.default_rng(0).permutation(len(self.known))[:SAMPLE]:
            others = np.delete(self.apart(self.known[row]), row)
            gaps.append(float(others.min(initial=np.inf)))
        return max(gaps)


@dataclass(frozen=True)
class FollowPrompt(Prompt):
    """Follow a demonstration: a trajectory, a little ahead of where the agent is on it.

    Where the method has directions, an agent is placed on the path by latent distance and heads for a state ahead of
    that place: the farthest one that is still within a trusted distance, so that a slow demonstration is followed
    faster than it was shown, and a corner is not cut. Its place never goes back, and is looked for only a little ahead,
    so a path that crosses itself is walked in its order. Without distances (methods whose skill is the goal) time is
    all there is: the skill of a step is that of the state so many rows later.
    """

    policy: Agent
    trajectory: Tree  # [rows, obs], or named parts of that
    window: int | None  # rows ahead to head for; None: as far as directions are trusted
    latents: np.ndarray = field(repr=False)  # phi of each row, or the skill that each row stands for as a goal
    places: AgentMemory = field(repr=False, compare=False)  # row: where on the demonstration an agent is

    kind = "follow"

    @property
    def spec(self) -> Follow:  # the rows themselves are saved as arrays
        return Follow(window=self.window)

    @property
    def progress(self) -> np.ndarray:
        """[n]: the share of the demonstration that each agent of the last call has behind it."""
        return self.places["row"] / max(1, len(self.latents) - 1)

    def __call__(self, observations: Any, active: np.ndarray | None = None) -> np.ndarray:
        batch = self.policy.check(observations)
        self.places.begin(len(batch))
        if not self.policy.has_rule("goal_direction"):
            return self.latents[self._ahead_by_time()]
        here = self.policy.latents(batch)
        target = np.array(here)
        for agent in np.arange(len(here)) if active is None else np.flatnonzero(active):
            target[agent] = self.latents[self._ahead_by_distance(int(agent), here[agent])]
        return self.policy.goal_direction(here, target)

    def _ahead_by_time(self) -> np.ndarray:
        """The rows to head for, a window ahead of ones that move on by one a step."""
        last, row = len(self.latents) - 1, self.places["row"]
        self.places["row"] = np.minimum(row + 1, last)
        return np.minimum(row + (self.window or WINDOW), last)

    def _ahead_by_distance(self, agent: int, here: np.ndarray) -> int:
        """The row to head for of an agent at a latent [D]; its place on the demonstration moves on."""
        first, last = int(self.places["row"][agent]), len(self.latents) - 1
        # An episode may begin anywhere on the path; later the place is near the one before.
        end = min(last, first + LOOKED * (self.window or WINDOW)) if self.places["begun"][agent] else last
        apart = np.asarray(self.policy.distance(here[None], self.latents[first : end + 1]))
        at = int(np.argmin(apart))
        self.places["row"][agent], self.places["begun"][agent] = first + at, True
        if self.window is not None:
            return min(last, first + at + self.window)
        beyond = np.flatnonzero(apart[at:] > trust_radius(self.policy.discount))
        trusted = at + (int(beyond[0]) - 1 if len(beyond) else len(apart) - 1 - at)
        return min(last, first + max(trusted, at + 1))

    def reached(self, observations: Any) -> np.ndarray:
        """bool [n]: agents whose place is the last row."""
        count = len(self.policy.check(observations))
        row = self.places["row"]
        return np.zeros(count, bool) if len(row) != count else row >= len(self.latents) - 1

    def packed(self) -> Packed:
        return trees.named(self.trajectory, "trajectory"), self.note()
