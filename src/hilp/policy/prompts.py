"""Prompts: callables obs -> z. Each belongs to one policy, by fingerprint, and can be saved and loaded.

Prompts know a policy by what they ask of it (`hilp.policy.asked`). Those that hold a skill for some steps are in
`hilp.policy.hierarchy`; `reset` tells any prompt that new episodes begin.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hilp import storage, trees
from hilp.data.dataset import Dataset, Parts
from hilp.data.extras import Extras, RewardFunction, apply_reward
from hilp.errors import HilpError, PromptUnsupported, require_count, require_seed, some
from hilp.policy import formulas, hierarchy, planning
from hilp.policy.asked import Promptable
from hilp.policy.bank import Bank
from hilp.policy.hierarchy import HierarchyPrompt, PriorPrompt
from hilp.spec import Spec
from hilp.trees import Tree

Reward = RewardFunction | str  # a formula over the named parts of an observation, see hilp.policy.formulas
Table = tuple[Tree, Tree, Any]  # labelled samples: observations, next observations, rewards

RIDGE = 1e-6  # of the mean feature variance: keeps rank-deficient features solvable, changes nothing else
OTHER_WAY = 0.5  # cosine below which the fits with and without an intercept ask for different things
POOR_FIT = 0.7  # R^2 below which phi cannot express the reward and the user is told


@dataclass(frozen=True)
class GoalPrompt:
    """Reach a goal, by the rule of the policy's method.

    By direction: z points from phi(s) to u, anew at every step; u is the goal, or a midpoint found by planning. By
    name: z is the one skill that the goal stands for, wherever the agent is.
    """

    policy: Promptable
    goal: Tree  # [obs] or [n, obs], or named parts of that
    plan: int | str
    best: int
    radius: float | None  # of plan "auto"
    latent: np.ndarray = field(repr=False)  # phi(goal), or the skill that the goal stands for

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
        if not self.policy.has_rule("direct"):
            return target
        here = self.policy.encode(observations)
        if self.plan != 0:
            rows = np.arange(len(here)) if active is None else np.flatnonzero(active)
            target[rows] = self.policy.midpoints.subgoals(
                here[rows], target[rows], self.plan, self.best, self.radius or 0.0
            )
        return self.policy.direct(here, target)

    def reset(self, rows: Any = None) -> None:
        """Nothing is remembered."""

    def save(self, path: str | Path) -> None:
        note = {"kind": self.kind, "fingerprint": self.fingerprint, "plan": self.plan, "best": self.best,
                "radius": self.radius}  # fmt: skip
        storage.write_arrays(Path(path), trees.named(self.goal, "goal"), note)


@dataclass(frozen=True)
class SkillPrompt:
    """One fixed skill z, wherever the agent is; from a reward (then r2 says how well phi expresses it) or given."""

    fingerprint: str
    z: np.ndarray  # [dim], or [n, dim]: one for each of n agents
    r2: float | None = None

    kind = "skill"

    def __call__(self, observations: Tree, active: np.ndarray | None = None) -> np.ndarray:
        count = trees.rows(observations) if isinstance(observations, Mapping) else len(np.atleast_2d(observations))
        return np.broadcast_to(self.z, (count, self.z.shape[-1]))

    def reset(self, rows: Any = None) -> None:
        """Nothing is remembered."""

    def save(self, path: str | Path) -> None:
        note = {"kind": self.kind, "fingerprint": self.fingerprint, "r2": self.r2}
        storage.write_arrays(Path(path), {"z": self.z}, note)


Prompt = GoalPrompt | SkillPrompt | HierarchyPrompt | PriorPrompt
KINDS = tuple(kind.kind for kind in (GoalPrompt, SkillPrompt, HierarchyPrompt, PriorPrompt))
PRIOR_STEPS = 10  # that a skill of a prior lasts where its method does not say


def goal(policy: Promptable, goal: Any, plan: int | str, best: int, radius: float | None) -> GoalPrompt:
    by_direction = policy.has_rule("direct")
    if not by_direction:
        policy.require_rule("aim", "has no goal rule: prompt it with a reward, e.g. that of being at the goal")
    if plan != "auto" and not (
        isinstance(plan, int) and not isinstance(plan, bool) and 0 <= plan <= planning.MOST_RECURSIONS
    ):
        raise HilpError(f"plan is a number of recursions from 0 to {planning.MOST_RECURSIONS} or 'auto', not {plan!r}")
    if plan != 0 and not by_direction:
        raise PromptUnsupported(f"{policy.method} has no latent distances to find midpoints with: use plan=0")
    if plan != 0 and not len(policy.bank):
        raise HilpError("this policy was saved without a bank of states, so it cannot plan: use plan=0")
    if plan == "auto" and radius is None:
        policy.require_rule(
            "discount", "does not say how far its distances reach: use a number of recursions as plan, or pass a radius"
        )
        radius = planning.trust_radius(policy.discount)
    if best < 1 or (radius is not None and not radius > 0.0):
        raise HilpError(f"planning needs at least one best midpoint and a radius above 0, not {best} and {radius}")
    goals, single = policy.batched(goal)
    latent = policy.encode(goals) if by_direction else policy.aim(goals)
    return GoalPrompt(
        policy,
        trees.over(lambda rows: rows[0], goals) if single else goals,
        plan,
        best,
        radius,
        latent[0] if single else latent,
    )


def goals_by_reward(policy: Promptable, near: Callable[[Tree, Tree], np.ndarray], goals: Tree) -> SkillPrompt:
    """One skill a goal, for methods that have no goal rule: that of the reward of being at the goal.

    near(observations, goal) says which of the bank's states count as there; where none does, nobody can say what the
    goal means, and the skill is that of nothing: a random one would be as good.
    """
    policy.require_rule("cumulant", "has no goal rule and no reward rule")
    sample = policy.bank
    if not len(sample):
        raise HilpError("this policy was saved without a bank of states, so it cannot say what a goal's reward is")
    features = policy.cumulant(sample.observations, sample.next_observations)
    skills = []
    for number in range(trees.rows(goals)):
        one = trees.over(lambda rows, number=number: rows[number], goals)
        there = near(sample.next_observations, one).astype(np.float64)
        z, _ = least_squares(features, there)
        skills.append(policy.project(z) if np.any(z) else np.zeros(policy.skill_dim))
    return SkillPrompt(policy.fingerprint, np.asarray(skills, np.float32))


def skill(policy: Promptable, z: Any, seed: int) -> SkillPrompt:
    if z is None and policy.skill_dim == 0:
        return SkillPrompt(policy.fingerprint, np.zeros(0, np.float32))
    policy.require_rule("project", "has no skill rule: prompt it with a goal")
    if z is None:
        z = np.random.default_rng(seed).normal(size=policy.skill_dim)
    z = _numbers(z, "a skill")
    if z.shape != (policy.skill_dim,):
        raise HilpError(f"a skill of this policy has {policy.skill_dim} numbers, not {z.shape}")
    if not np.isfinite(z).all() or not np.any(z):
        raise HilpError("a skill must be a finite direction, not zero or NaN")
    return SkillPrompt(policy.fingerprint, policy.project(z))


def prior(policy: Promptable, k: int | None, seed: int) -> PriorPrompt:
    policy.require_rule("prior", "has no prior over skills")
    k = None if k is None else require_count("k", k)
    return PriorPrompt(policy, hierarchy.steps_of_a_skill(policy, k, PRIOR_STEPS), require_seed(seed))


def reward(
    policy: Promptable,
    data: Dataset | Table | None,
    function: Reward | None,
    samples: int,
    seed: int,
    rule: str,
    intercept: bool,
) -> Prompt:
    """The skill of a reward (section 5.1 of the paper), by the rule of the policy's method, or the goal it points at.

    By regression: z* = argmin E[(r - <features, z>)^2], closed form. By the backward map: z* = E[r B(s')]. Both are
    then projected onto the policy's skills. By goal: the s' of highest reward among the samples.

    Without an intercept, as in the paper, the mean of the reward is explained by the mean of the features. A policy
    cannot earn more or less of a constant, so where the two fits disagree the user is told.
    """
    if rule not in ("skill", "goal"):
        raise HilpError(f"a reward prompt finds a 'skill' or a 'goal', not '{rule}'")
    by_goal = rule == "goal" or not (policy.has_rule("cumulant") or policy.has_rule("backward"))
    if by_goal and not policy.has_rule("direct"):
        policy.require_rule("aim", "has no goal rule" if rule == "goal" else "has no reward rule")
    before, after, rewards = _labelled(policy, data, function, samples, seed)
    if by_goal:
        best = int(np.argmax(rewards))
        return goal(policy, trees.over(lambda rows: rows[best], after), 0, planning.BEST, None)
    features = policy.cumulant(before, after) if policy.has_rule("cumulant") else policy.backward(after)
    if not np.isfinite(features).all():
        raise HilpError("the observations of the labelled samples hold a NaN or an infinity")
    fits = {False: (features, rewards), True: (features - features.mean(axis=0), rewards - rewards.mean())}
    x, r = fits[intercept]
    z, r2 = least_squares(x, r)
    if policy.has_rule("backward"):
        z = r @ features / len(r)
    elif not intercept and cosine(z, least_squares(*fits[True])[0]) < OTHER_WAY:
        warnings.warn(
            f"the mean of this reward ({rewards.mean():.3g}), not its differences, decides this prompt: subtract it, "
            "or pass intercept=True (--intercept)",
            stacklevel=3,
        )
    if not np.any(z):
        raise HilpError("phi does not change on the sampled data, so no skill can follow a reward")
    if r2 < POOR_FIT:
        warnings.warn(
            f"phi expresses only R^2 = {r2:.2f} of this reward: the prompt follows the part it can express; prefer "
            "smooth rewards (for `hilp`, differences of a smooth potential), or a larger latent dimension",
            stacklevel=3,
        )
    return SkillPrompt(policy.fingerprint, policy.project(z), r2)


def _labelled(
    policy: Promptable,
    data: Dataset | Table | None,
    function: Reward | None,
    samples: int,
    seed: int,
) -> tuple[Tree, Tree, np.ndarray]:
    """s, s' and the reward of sampled transitions, checked."""
    if isinstance(data, tuple):
        if function is not None or len(data) != 3:
            raise HilpError(
                "a table of labelled samples is (observations, next_observations, rewards), with no function"
            )
        before, after = (_table(tree) for tree in data[:2])
        rewards = _numbers(data[2], "a table of labelled samples")
    else:
        if function is None:
            raise HilpError("a reward prompt needs a function of (s, a, s'), a formula, or a table of labelled samples")
        if isinstance(function, str):
            function = formula(policy.spec, policy.observation_parts, function)
        if data is None:
            sample = policy.bank.subsample(samples, seed)
        else:
            if Spec.of(data.observations, data.action_dim).parts != policy.spec.parts:
                takes = some([name for name, _, _ in policy.spec.parts]) or "plain vectors"
                raise HilpError(f"the observations of {data.name} are not those of this policy ({takes})")
            rows = Bank.rows(data, samples, seed)
            sample = Bank.at(data, rows)
        asked = sample.copy()  # what a function writes into its arguments changes neither the bank nor the features
        extras = Extras({}, asked.next_extras, "the bank") if data is None else Extras.of(data, rows)
        found = apply_reward(function, asked.observations, asked.actions, asked.next_observations, extras)
        before, after, rewards = sample.observations, sample.next_observations, _numbers(found, "the reward")
    shapes = [trees.over(np.shape, tree) for tree in (before, after)]
    if policy.spec.parts:
        fits = isinstance(before, Mapping) and isinstance(after, Mapping) and shapes[0] == shapes[1]
        fits = fits and all(shape[:1] == rewards.shape for shape in shapes[0].values())
    else:
        fits = shapes[0] == shapes[1] and len(shapes[0]) == 2 and rewards.shape == shapes[0][:1]
    if not fits:
        raise HilpError(
            f"the reward must give one number per transition: {shapes[0]} observations, {shapes[1]} next "
            f"observations, rewards {rewards.shape}"
        )
    if not len(rewards):
        raise HilpError("there is no transition to ask the reward about: pass a data set, or a table that is not empty")
    bad = np.flatnonzero(~np.isfinite(rewards))
    if len(bad):
        raise HilpError(
            f"the reward is NaN or infinite for {len(bad)} of {len(rewards)} transitions, first at {bad[0]}"
        )
    if np.ptp(rewards) == 0.0:
        raise HilpError("the reward is the same everywhere in the sampled data, so it asks for nothing")
    return before, after, rewards


def _table(observations: Any) -> Tree:
    if isinstance(observations, Mapping):
        return trees.over(np.asarray, observations)  # bytes stay bytes
    return _numbers(observations, "a table of labelled samples")


def formula(spec: Spec, observation_parts: Parts, text: str) -> RewardFunction:
    """The reward of a formula over the named parts of an observation; of images it knows nothing."""
    if not spec.parts:
        return formulas.reward(text, observation_parts, spec.observation_dim, spec.action_dim)
    parts = tuple((name, shape) for name, shape, kind in spec.parts if kind != "uint8")
    size = sum(math.prod(shape) for _, shape in parts)
    on_vectors = formulas.reward(text, parts, size, spec.action_dim)

    def flat(tree: Tree) -> np.ndarray:
        rows = trees.rows(tree)
        return np.concatenate([np.zeros((rows, 0)), *(tree[name].reshape(rows, -1) for name, _ in parts)], axis=1)

    return lambda s, a, s2, extras: on_vectors(flat(s), a, flat(s2), extras)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Of the angle between two vectors; 1 where one is zero."""
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths > 0.0 else 1.0


def least_squares(features: np.ndarray, rewards: np.ndarray) -> tuple[np.ndarray, float]:
    """z = (E[x x'] + ridge I)^-1 E[r x], no intercept, and the share of the reward's variance it explains.

    Features of a low-dimensional world do not fill their space, so the second moment is close to singular; the ridge is
    RIDGE times its mean eigenvalue. R^2 = 1 - Var[r - <x, z>] / Var[r]: a constant that is left over asks for nothing.
    """
    x = np.asarray(features, np.float64)
    r = np.asarray(rewards, np.float64)
    moment = x.T @ x / len(x)
    ridge = RIDGE * np.trace(moment) / len(moment)
    if ridge == 0.0:
        return np.zeros(x.shape[1]), 0.0
    z = np.linalg.solve(moment + ridge * np.eye(len(moment)), x.T @ r / len(x))
    variance = np.var(r)
    r2 = 1.0 - float(np.var(r - x @ z) / variance) if variance > 0 else 0.0
    return z, r2


def load(policy: Promptable, path: Path) -> Prompt:
    arrays, note = storage.read_arrays(path)
    if note.get("kind") not in KINDS:
        raise HilpError(f"{path} is not a prompt")
    if note.get("fingerprint") != policy.fingerprint:
        owner = str(note.get("fingerprint"))[:8]
        raise HilpError(
            f"{path} was made for policy {owner}, not for this one ({policy.fingerprint[:8]}): "
            "make it again with this policy"
        )
    try:
        if note["kind"] == "goal":
            return goal(policy, trees.unnamed(arrays, "goal"), note["plan"], note["best"], note["radius"])
        if note["kind"] == "hierarchy":
            return HierarchyPrompt.revive(policy, arrays, note, path)
        if note["kind"] == "prior":
            return prior(policy, note["k"], note["seed"])
        return SkillPrompt(policy.fingerprint, arrays["z"], note["r2"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise HilpError(f"{path} is not a whole prompt ({error!r}): make it again") from error


def _numbers(values: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise HilpError(f"{name} must be numbers: {error}") from error
