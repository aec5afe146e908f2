"""Prompts: callables obs -> z. Each belongs to one policy, by fingerprint, and can be saved and loaded."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp import storage
from hilp.errors import HilpError, PromptUnsupported, nearest
from hilp.policy import planning
from hilp.policy.bank import Bank
from hilp.policy.policy import FoundationPolicy

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset

RewardFunction = Callable[..., np.ndarray]  # of (s, a, s'), or of (s, a, s', Extras)
Reward = RewardFunction | str  # a formula over the named parts of an observation, see hilp.expressions

RIDGE = 1e-6  # of the mean feature variance: keeps rank-deficient features solvable, changes nothing else
OTHER_WAY = 0.5  # cosine below which the fits with and without an intercept ask for different things
POOR_FIT = 0.7  # R^2 below which phi cannot express the reward and the user is told


@dataclass(frozen=True)
class GoalPrompt:
    """Reach a goal, by the rule of the policy's method.

    By direction: z points from phi(s) to u, anew at every step; u is the goal, or a midpoint found by planning. By
    name: z is the one skill that the goal stands for, wherever the agent is.
    """

    policy: FoundationPolicy
    goal: np.ndarray  # [obs] or [n, obs]
    plan: int | str
    best: int
    radius: float | None  # of plan "auto"
    latent: np.ndarray = field(repr=False)  # phi(goal), or the skill that the goal stands for

    kind = "goal"

    @property
    def fingerprint(self) -> str:
        return self.policy.fingerprint

    def __call__(self, observations: np.ndarray, active: np.ndarray | None = None) -> np.ndarray:
        """Skills for a batch; `active` (bool [n]) spares the planning of rows whose skill nobody will use."""
        count = len(np.atleast_2d(observations))
        if self.latent.ndim == 2 and len(self.latent) != count:
            raise HilpError(f"this prompt holds {len(self.latent)} goals, one an observation, not {count}")
        target = np.array(np.broadcast_to(self.latent, (count, self.latent.shape[-1])))
        if not self.policy.has_rule("direct"):
            return target
        here = self.policy.encode(np.atleast_2d(observations))
        if self.plan != 0:
            rows = np.arange(len(here)) if active is None else np.flatnonzero(active)
            target[rows] = self.policy.midpoints.subgoals(
                here[rows], target[rows], self.plan, self.best, self.radius or 0.0
            )
        return self.policy.direct(here, target)

    def save(self, path: str | Path) -> None:
        note = {"kind": self.kind, "fingerprint": self.fingerprint, "plan": self.plan, "best": self.best,
                "radius": self.radius}  # fmt: skip
        storage.write_arrays(Path(path), {"goal": self.goal}, note)


@dataclass(frozen=True)
class SkillPrompt:
    """One fixed skill z, wherever the agent is; from a reward (then r2 says how well phi expresses it) or given."""

    fingerprint: str
    z: np.ndarray  # [dim], or [n, dim]: one for each of n agents
    r2: float | None = None

    kind = "skill"

    def __call__(self, observations: np.ndarray, active: np.ndarray | None = None) -> np.ndarray:
        return np.broadcast_to(self.z, (len(np.atleast_2d(observations)), self.z.shape[-1]))

    def save(self, path: str | Path) -> None:
        note = {"kind": self.kind, "fingerprint": self.fingerprint, "r2": self.r2}
        storage.write_arrays(Path(path), {"z": self.z}, note)


Prompt = GoalPrompt | SkillPrompt


def goal(policy: FoundationPolicy, goal: Any, plan: int | str, best: int, radius: float | None) -> GoalPrompt:
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
        radius = planning.trust_radius(policy.discount)
    if best < 1 or (radius is not None and not radius > 0.0):
        raise HilpError(f"planning needs at least one best midpoint and a radius above 0, not {best} and {radius}")
    latent = policy.encode(goal) if by_direction else policy.aim(goal)
    goal = np.asarray(goal, np.float32)
    if not np.isfinite(goal).all():
        raise HilpError("the goal holds a NaN or an infinity")
    return GoalPrompt(policy, goal, plan, best, radius, latent)


def goals_by_reward(
    policy: FoundationPolicy, near: Callable[[np.ndarray, np.ndarray], np.ndarray], goals: np.ndarray
) -> SkillPrompt:
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
    for goal in goals:
        there = near(sample.next_observations, goal).astype(np.float64)
        z, _ = least_squares(features, there)
        skills.append(policy.project(z) if np.any(z) else np.zeros(policy.skill_dim))
    return SkillPrompt(policy.fingerprint, np.asarray(skills, np.float32))


def skill(policy: FoundationPolicy, z: Any, seed: int) -> SkillPrompt:
    policy.require_rule("project", "has no skill rule: prompt it with a goal")
    if z is None:
        z = np.random.default_rng(seed).normal(size=policy.skill_dim)
    z = _numbers(z, "a skill")
    if z.shape != (policy.skill_dim,):
        raise HilpError(f"a skill of this policy has {policy.skill_dim} numbers, not {z.shape}")
    if not np.isfinite(z).all() or not np.any(z):
        raise HilpError("a skill must be a finite direction, not zero or NaN")
    return SkillPrompt(policy.fingerprint, policy.project(z))


def reward(
    policy: FoundationPolicy,
    data: Dataset | tuple[np.ndarray, np.ndarray, np.ndarray] | None,
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
        return policy.goal(after[np.argmax(rewards)])
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
    policy: FoundationPolicy,
    data: Dataset | tuple[np.ndarray, np.ndarray, np.ndarray] | None,
    function: Reward | None,
    samples: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """s, s' and the reward of sampled transitions, checked."""
    if isinstance(data, tuple):
        if function is not None or len(data) != 3:
            raise HilpError(
                "a table of labelled samples is (observations, next_observations, rewards), with no function"
            )
        before, after, rewards = (_numbers(column, "a table of labelled samples") for column in data)
    else:
        if function is None:
            raise HilpError("a reward prompt needs a function of (s, a, s'), a formula, or a table of labelled samples")
        if isinstance(function, str):
            from hilp.policy import formulas

            spec = policy.spec
            function = formulas.reward(function, policy.observation_parts, spec.observation_dim, spec.action_dim)
        if data is None:
            sample = policy.bank.subsample(samples, seed)
            extras = Extras({}, {} if sample.next_physics is None else {"physics": sample.next_physics}, "the bank")
        else:
            rows = Bank.rows(data, samples, seed)
            sample = Bank.at(data, rows)
            extras = Extras.of(data, rows)
        before, after = sample.observations, sample.next_observations
        rewards = _numbers(apply_reward(function, before, sample.actions, after, extras), "the reward")
    if before.ndim != 2 or after.shape != before.shape or rewards.shape != before.shape[:1]:
        raise HilpError(
            f"the reward must give one number per transition: {before.shape} observations, {after.shape} next "
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


@dataclass(frozen=True)
class Extras:
    """Named columns beside the observations of some transitions, for rewards that need more than the observation."""

    at_s: Mapping[str, np.ndarray]
    at_next: Mapping[str, np.ndarray]
    owner: str  # whose columns they are, for the error

    @staticmethod
    def of(data: Dataset, rows: np.ndarray) -> Extras:
        """The columns of a data set at the transitions that start in these rows; nothing is read before it is asked."""
        return Extras(_Rows(data.extras, rows), _Rows(data.extras, rows + 1), data.name)

    def before(self, name: str) -> np.ndarray:
        """A column at s."""
        return self._column(self.at_s, name)

    def after(self, name: str) -> np.ndarray:
        """A column at s'."""
        return self._column(self.at_next, name)

    def _column(self, columns: Mapping[str, np.ndarray], name: str) -> np.ndarray:
        if name not in columns:
            has = nearest(name, columns) if columns else "it has none"
            raise HilpError(f"this reward needs the extra column '{name}', which {self.owner} has not: {has}")
        return columns[name]


class _Rows(Mapping[str, np.ndarray]):
    """Some rows of columns that may lie in a file."""

    def __init__(self, columns: Mapping[str, np.ndarray], rows: np.ndarray):
        self._columns, self._rows = columns, rows

    def __getitem__(self, name: str) -> np.ndarray:
        return np.asarray(self._columns[name][self._rows])

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def apply_reward(
    function: RewardFunction, before: np.ndarray, actions: np.ndarray, after: np.ndarray, extras: Extras
) -> np.ndarray:
    """The reward of transitions; extras go to functions that ask for them."""
    return function(before, actions, after, extras) if _takes_extras(function) else function(before, actions, after)


def _takes_extras(function: RewardFunction) -> bool:
    """Whether a reward function has a fourth parameter without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) > 3


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


def load(policy: FoundationPolicy, path: Path) -> Prompt:
    arrays, note = storage.read_arrays(path)
    if note.get("kind") not in ("goal", "skill"):
        raise HilpError(f"{path} is not a prompt")
    if note.get("fingerprint") != policy.fingerprint:
        owner = str(note.get("fingerprint"))[:8]
        raise HilpError(
            f"{path} was made for policy {owner}, not for this one ({policy.fingerprint[:8]}): "
            "make it again with this policy"
        )
    try:
        if note["kind"] == "goal":
            return goal(policy, arrays["goal"], note["plan"], note["best"], note["radius"])
        return SkillPrompt(policy.fingerprint, arrays["z"], note["r2"])
    except (KeyError, TypeError) as error:
        raise HilpError(f"{path} is not a whole prompt ({error!r}): make it again") from error


def _numbers(values: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise HilpError(f"{name} must be numbers: {error}") from error
