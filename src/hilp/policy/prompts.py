"""Prompts: callables obs -> z. Each belongs to one policy, by fingerprint, and can be saved and loaded.

Prompts know a policy by what they ask of it (`hilp.policy.agent`). Those that hold a skill for some steps are in
`hilp.policy.hierarchy`; `reset` tells any prompt that new episodes begin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError, PromptUnsupported, require_count, require_seed, some
from hilp.learning.hilbert import undiscounted
from hilp.policy import hierarchy, planning
from hilp.policy.agent import Promptable, numbers, require_graph
from hilp.policy.combining import Combinable, Packed
from hilp.policy.graph_planner import PathInfo
from hilp.policy.graph_prompts import GraphRewardPrompt
from hilp.policy.hierarchy import HierarchyPrompt, PriorPrompt
from hilp.policy.latent_ema import LatentEma, require_smooth
from hilp.policy.stuck import StuckAgents
from hilp.trees import Tree


@dataclass(frozen=True)
class GoalPrompt(Combinable):
    """Reach a goal, by the rule of the policy's method.

    By direction: z points from phi(s) to u, anew at every step; u is the goal, a midpoint found by planning, or the
    next place on the way there on the graph of the data. Plan "auto" takes the way that the data shows, and midpoints
    where it shows none. By name: z is the one skill that the goal stands for, wherever
    the agent is.
    """

    policy: Promptable
    goal: Tree  # [obs] or [n, obs], or named parts of that
    plan: int | str
    best: int
    radius: float | None  # of midpoints, where somebody chose one
    latent: np.ndarray = field(repr=False)  # phi(goal), or the skill that the goal stands for
    to_goal: np.ndarray | None = field(default=None, repr=False)  # on the graph: steps from landmarks, [k] or [n, k]
    stuck: StuckAgents | None = field(default=None, repr=False, compare=False)  # on the graph: what agents have tried
    latent_ema: LatentEma | None = field(default=None, repr=False, compare=False)  # where agents were, if that counts

    kind = "goal"

    @property
    def fingerprint(self) -> str:
        return self.policy.fingerprint

    def __call__(self, observations: Tree, active: np.ndarray | None = None) -> np.ndarray:
        """Skills for a batch; `active` (bool [n]) spares the planning of rows whose skill nobody will use."""
        named = isinstance(observations, Mapping)
        observations = self.policy.batched(observations)[0] if named else np.atleast_2d(observations)
        count = trees.rows(observations)
        if self.latent.ndim == 2 and len(self.latent) != count:
            raise HilpError(f"this prompt holds {len(self.latent)} goals, one an observation, not {count}")
        target = np.array(np.broadcast_to(self.latent, (count, self.latent.shape[-1])))
        if not self.by_direction:
            return target
        here = self.policy.encode(observations)
        if self.latent_ema is not None:
            here = self.latent_ema(here)
        rows = np.arange(len(here)) if active is None else np.flatnonzero(active)
        return self.policy.goal_direction(here, self._targets(here, target, rows))

    def _targets(self, here: np.ndarray, goals: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The latents to head for, agents x dim; of agents that are not in `rows` their goals."""
        until_near = self.near_enough if isinstance(self.plan, str) else 0.0
        if self.stuck is not None:
            assert self.to_goal is not None
            steps = np.broadcast_to(self.to_goal, (len(here), self.to_goal.shape[-1]))
            radius = until_near if self.plan == "auto" else None
            return self.policy.planner.targets(here, goals, steps, self.best, self.stuck, rows, radius)
        target = np.array(goals)
        if self.plan != 0 and len(rows):
            how = ("auto" if until_near else self.plan, self.best, until_near)
            target[rows] = self.policy.midpoints.subgoals(here[rows], goals[rows], *how)
        return target

    @property
    def near_enough(self) -> float:
        """The radius, in latent steps, within which a midpoint is not divided further; of plans without a number."""
        return planning.trust_radius(self.policy.discount) if self.radius is None else self.radius

    @property
    def by_direction(self) -> bool:
        """Whether the skill depends on where the agent is."""
        return self.policy.has_rule("goal_direction")

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
        until_near = self.near_enough if isinstance(self.plan, str) else 0.0
        how = ("auto" if until_near else self.plan, self.best, until_near)
        return self.policy.midpoints.subgoal(here[0], self.one_goal[0], *how)[None]

    def reset(self, rows: Any = None) -> None:
        """New episodes begin, of all agents or of those in these rows: what a plan has tried is forgotten."""
        for memory in (self.stuck, self.latent_ema):
            if memory is not None:
                memory.reset(rows)

    def path_info(self, observation: Any) -> PathInfo:
        """What the graph of the data says about the way from an observation to this goal, before anybody acts."""
        if self.latent.ndim != 1:
            raise HilpError("an path_info is about one goal: make a prompt with one")
        require_graph(self.policy)
        to_goal = self.policy.planner.to_goals(self.latent[None])[0] if self.to_goal is None else self.to_goal
        here = np.asarray(self.policy.encode(observation))
        if here.ndim != 1:
            raise HilpError("an path_info is from one observation on: give one")
        return self.policy.planner.path_info(here, self.latent, to_goal)

    def path(self, observation: Any) -> Tree:
        """The landmarks to come, as observations of the policy's bank: where it lacks them, those nearest to them."""
        rows = self.path_info(observation).path
        if self.policy.latent_bank is not None:
            rows = self.policy.pictured(self.policy.midpoints.latents[rows])
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
        """bool [n]: observations that are as near to the goal as latent distances tell, within some steps."""
        self.policy.require_rule("goal_direction", "has no distances to tell whether a goal is reached: say until when")
        here = self.policy.encode(self.policy.batched(observations)[0])
        apart = self.policy.distance(here, np.broadcast_to(self.latent, here.shape))
        return np.asarray(undiscounted(apart, self.policy.discount) <= NEAR)

    def packed(self) -> Packed:
        note = {"kind": self.kind, "fingerprint": self.fingerprint, "plan": self.plan, "best": self.best,
                "radius": self.radius}  # fmt: skip
        if self.latent_ema is not None:
            note["smooth"] = self.latent_ema.steps
        return trees.named(self.goal, "goal"), note


@dataclass(frozen=True)
class SkillPrompt(Combinable):
    """One fixed skill z, wherever the agent is; from a reward (then r2 says how well phi expresses it) or given."""

    fingerprint: str
    z: np.ndarray  # [dim], or [n, dim]: one for each of n agents
    r2: float | None = None
    agreement: float | None = None  # from preferences: the share of pairs that it explains
    policy: Promptable | None = field(default=None, repr=False, compare=False)

    kind = "skill"

    def __call__(self, observations: Tree, active: np.ndarray | None = None) -> np.ndarray:
        count = trees.rows(observations) if isinstance(observations, Mapping) else len(np.atleast_2d(observations))
        return np.broadcast_to(self.z, (count, self.z.shape[-1]))

    def reset(self, rows: Any = None) -> None:
        """Nothing is remembered."""

    def packed(self) -> Packed:
        note: dict[str, Any] = {"kind": self.kind, "fingerprint": self.fingerprint, "r2": self.r2}
        if self.agreement is not None:
            note["agreement"] = self.agreement
        return {"z": self.z}, note


Prompt = GoalPrompt | SkillPrompt | GraphRewardPrompt | HierarchyPrompt | PriorPrompt | Combinable
NEAR = 2.0  # steps from a goal at which it is reached, where nobody else says so
PRIOR_STEPS = 10  # that a skill of a prior lasts where its method does not say


def goal(
    policy: Promptable, goal: Any, plan: int | str, best: int, radius: float | None, smooth: float | None = None
) -> GoalPrompt:
    by_direction = policy.has_rule("goal_direction")
    if not by_direction:
        policy.require_rule("goal_skill", "has no goal rule: prompt it with a reward, e.g. that of being at the goal")
    if plan not in planning.NAMED and not (
        isinstance(plan, int) and not isinstance(plan, bool) and 0 <= plan <= planning.MOST_RECURSIONS
    ):
        most = planning.MOST_RECURSIONS
        raise HilpError(
            f"plan is a number of recursions from 0 to {most} or one of {some(planning.NAMED)}, not {plan!r}"
        )
    if plan == "graph":
        require_graph(policy)
    if plan != 0 and not by_direction:
        raise PromptUnsupported(f"{policy.method} has no latent distances to find midpoints with: use plan=0")
    if plan != 0 and not len(policy.bank):
        raise HilpError("this policy was saved without a bank of states, so it cannot plan: use plan=0")
    if plan in ("auto", "midpoints") and radius is None:
        policy.require_rule(
            "discount", "does not say how far its distances reach: use a number of recursions as plan, or pass a radius"
        )
    if best < 1 or (radius is not None and not radius > 0.0):
        raise HilpError(f"planning needs at least one best midpoint and a radius above 0, not {best} and {radius}")
    if smooth is not None:
        require_smooth(smooth)
        policy.require_rule("goal_direction", "goes by no direction that could be steadier")
    # Policies of versions before the graph, and those who choose a radius, have "auto" as it was: midpoints.
    has_own = plan == "auto" and radius is None and policy.graph is not None
    on_graph = plan == "graph" or (has_own and policy.planner.is_fine_enough)
    goals, single = policy.batched(goal)
    encode = policy.encode_goal if single and plan == 0 else policy.encode
    latent = encode(goals) if by_direction else policy.goal_skill(goals)
    to_goal = policy.planner.to_goals(latent) if on_graph else None
    return GoalPrompt(
        policy,
        trees.over(lambda rows: rows[0], goals) if single else goals,
        plan,
        best,
        radius,
        latent[0] if single else latent,
        to_goal[0] if single and to_goal is not None else to_goal,
        policy.planner.stuck() if on_graph else None,
        None if smooth is None else LatentEma(smooth, planning.trust_radius(policy.discount)),
    )


def skill(policy: Promptable, z: Any, seed: int) -> SkillPrompt:
    if z is None and policy.skill_dim == 0:
        return SkillPrompt(policy.fingerprint, np.zeros(0, np.float32))
    policy.require_rule("project", "has no skill rule: prompt it with a goal")
    if z is None:
        z = np.random.default_rng(seed).normal(size=policy.skill_dim)
    z = numbers(z, "a skill")
    if z.shape != (policy.skill_dim,):
        raise HilpError(f"a skill of this policy has {policy.skill_dim} numbers, not {z.shape}")
    if not np.isfinite(z).all() or not np.any(z):
        raise HilpError("a skill must be a finite direction, not zero or NaN")
    return SkillPrompt(policy.fingerprint, policy.project(z), policy=policy)


def prior(policy: Promptable, k: int | None, seed: int) -> PriorPrompt:
    policy.require_rule("prior", "has no prior over skills")
    k = None if k is None else require_count("k", k)
    return PriorPrompt(policy, hierarchy.steps_of_a_skill(policy, k, PRIOR_STEPS), require_seed(seed))
