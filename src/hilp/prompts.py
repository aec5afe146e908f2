"""Prompts: callables obs -> z. Each belongs to one policy, by fingerprint, and can be saved and loaded."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp import planning, storage
from hilp.errors import HilpError
from hilp.policy import FoundationPolicy, Transitions

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset

RewardFunction = Callable[..., np.ndarray]  # of (s, a, s'), or of (s, a, s', Extras)

RIDGE = 1e-6  # of the mean feature variance: keeps rank-deficient features solvable, changes nothing else
POOR_FIT = 0.7  # R^2 below which phi cannot express the reward and the user is told


@dataclass(frozen=True)
class GoalPrompt:
    """z = unit(u - phi(s)), recomputed at every step; u is the goal, or a midpoint found by planning."""

    policy: FoundationPolicy
    goal: np.ndarray  # [obs] or [n, obs]
    plan: int | str
    best: int
    radius: float
    latent: np.ndarray = field(repr=False)  # phi(goal)

    kind = "goal"

    @property
    def fingerprint(self) -> str:
        return self.policy.fingerprint

    def __call__(self, observations: np.ndarray, active: np.ndarray | None = None) -> np.ndarray:
        """Skills for a batch; `active` (bool [n]) spares the planning of rows whose skill nobody will use."""
        here = self.policy.encode(np.atleast_2d(observations))
        if self.latent.ndim == 2 and len(self.latent) != len(here):
            raise HilpError(f"this prompt holds {len(self.latent)} goals, one an observation, not {len(here)}")
        target = np.array(np.broadcast_to(self.latent, here.shape))
        if self.plan != 0:
            rows = np.arange(len(here)) if active is None else np.flatnonzero(active)
            target[rows] = self.policy.bank.subgoals(here[rows], target[rows], self.plan, self.best, self.radius)
        return self.policy.direct(here, target)

    def save(self, path: str | Path) -> None:
        note = {"kind": self.kind, "fingerprint": self.fingerprint, "plan": self.plan, "best": self.best,
                "radius": self.radius}  # fmt: skip
        storage.write_arrays(Path(path), {"goal": self.goal}, note)


@dataclass(frozen=True)
class SkillPrompt:
    """One fixed skill z, wherever the agent is; from a reward (then r2 says how well phi expresses it) or given."""

    fingerprint: str
    z: np.ndarray
    r2: float | None = None

    kind = "skill"

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        return np.broadcast_to(self.z, (len(np.atleast_2d(observations)), len(self.z)))

    def save(self, path: str | Path) -> None:
        note = {"kind": self.kind, "fingerprint": self.fingerprint, "r2": self.r2}
        storage.write_arrays(Path(path), {"z": self.z}, note)


Prompt = GoalPrompt | SkillPrompt


def goal(policy: FoundationPolicy, goal: Any, plan: int | str, best: int, radius: float) -> GoalPrompt:
    policy.require_rule("direct", "has no goal rule")
    if plan != "auto" and not (
        isinstance(plan, int) and not isinstance(plan, bool) and 0 <= plan <= planning.MOST_RECURSIONS
    ):
        raise HilpError(f"plan is a number of recursions from 0 to {planning.MOST_RECURSIONS} or 'auto', not {plan!r}")
    if plan != 0 and not len(policy.sample):
        raise HilpError("this policy was saved without a bank of states, so it cannot plan: use plan=0")
    if best < 1 or not radius > 0.0:
        raise HilpError(f"planning needs at least one best midpoint and a radius above 0, not {best} and {radius}")
    latent = policy.encode(goal)
    goal = np.asarray(goal, np.float32)
    if not np.isfinite(goal).all():
        raise HilpError("the goal holds a NaN or an infinity")
    return GoalPrompt(policy, goal, plan, best, radius, latent)


def skill(policy: FoundationPolicy, z: Any, seed: int) -> SkillPrompt:
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
    function: RewardFunction | None,
    samples: int,
    seed: int,
) -> SkillPrompt:
    """z* = argmin E[(r - <features, z>)^2], closed form, then projected onto the policy's skills (section 5.1)."""
    policy.require_rule("cumulant", "has no reward rule")
    if isinstance(data, tuple):
        if function is not None or len(data) != 3:
            raise HilpError(
                "a table of labelled samples is (observations, next_observations, rewards), with no function"
            )
        before, after, rewards = (_numbers(column, "a table of labelled samples") for column in data)
    else:
        if function is None:
            raise HilpError("a reward prompt needs a vectorised function of (s, a, s'), or a table of labelled samples")
        extras: tuple[Extras, ...] = ()
        if data is None:
            sample = policy.sample
            if _takes_extras(function):
                raise HilpError(
                    "a reward function of (s, a, s', extras) needs a data set: the bank has no extra columns"
                )
        else:
            rows = Transitions.rows(data, samples, seed)
            sample = Transitions.at(data, rows)
            extras = (Extras(data, rows),) if _takes_extras(function) else ()
        before, after = sample.observations, sample.next_observations
        rewards = _numbers(function(before, sample.actions, after, *extras), "the reward")
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
    features = policy.cumulant(before, after)
    if not np.isfinite(features).all():
        raise HilpError("the observations of the labelled samples hold a NaN or an infinity")
    z, r2 = least_squares(features, rewards)
    if not np.any(z):
        raise HilpError("phi does not change on the sampled data, so no skill can follow a reward")
    if r2 < POOR_FIT:
        warnings.warn(
            f"phi expresses only R^2 = {r2:.2f} of this reward: the prompt follows the part it can express; prefer "
            "rewards that are differences of a smooth potential, or a larger latent dimension",
            stacklevel=3,
        )
    return SkillPrompt(policy.fingerprint, policy.project(z), r2)


@dataclass(frozen=True)
class Extras:
    """The extra columns of sampled transitions, for rewards that need more than the observation."""

    data: Dataset
    at: np.ndarray  # rows of s

    def before(self, name: str) -> np.ndarray:
        """A column at s."""
        return np.asarray(self.data.extra(name)[self.at])

    def after(self, name: str) -> np.ndarray:
        """A column at s'."""
        return np.asarray(self.data.extra(name)[self.at + 1])


def _takes_extras(function: RewardFunction) -> bool:
    """Whether a reward function has a fourth parameter without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) > 3


def least_squares(features: np.ndarray, rewards: np.ndarray) -> tuple[np.ndarray, float]:
    """z = (E[x x'] + ridge I)^-1 E[r x], no intercept, and the share of the reward's variance it explains.

    Features of a low-dimensional world do not fill their space, so the second moment is close to singular; the ridge is
    RIDGE times its mean eigenvalue. R^2 = 1 - E[(r - <x, z>)^2] / Var[r].
    """
    x = np.asarray(features, np.float64)
    r = np.asarray(rewards, np.float64)
    moment = x.T @ x / len(x)
    ridge = RIDGE * np.trace(moment) / len(moment)
    if ridge == 0.0:
        return np.zeros(x.shape[1]), 0.0
    z = np.linalg.solve(moment + ridge * np.eye(len(moment)), x.T @ r / len(x))
    variance = np.var(r)
    r2 = 1.0 - float(np.mean(np.square(r - x @ z)) / variance) if variance > 0 else 0.0
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
