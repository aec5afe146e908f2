"""Skills as prompts: one that is fixed, one that explains preferences, and skills that are held for k steps.

Those that are held are chosen by a trained high level, or drawn from a prior. Skills around those of a prompt can be
searched through by what they earn.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hilp.errors import HilpError, require_count, require_seed
from hilp.prompts import specs
from hilp.prompts.agent import Agent
from hilp.prompts.base import Packed, Prompt, nested
from hilp.prompts.memory import AgentMemory

PRIOR_STEPS = 10  # that a skill of a prior is held where its method does not say
RIDGE = 1e-2  # of the loss of preferences, on features of unit scale: nothing else bounds a w that explains all
ITERATIONS = 100
ENOUGH = 1e-8
POOR = 0.7  # share of pairs explained below which the user is warned
Evaluator = Callable[[Any], float]  # a prompt -> what an episode under it earned
SPREAD = 0.5  # of the first draw, as a share of a skill's length
NARROWING = 0.7  # of the spread, after each generation
GENERATION = 3  # episodes


@dataclass(frozen=True)
class SkillPrompt(Prompt):
    """One fixed skill z, wherever the agent is; from a reward (then r2 says how well phi expresses it) or chosen."""

    policy: Agent
    z: np.ndarray  # [dim], or [n, dim]: one for each of n agents
    r2: float | None = None
    agreement: float | None = None  # from preferences: the share of pairs that it explains
    spec: Any = None

    kind = "skill"

    def __call__(self, observations: Any, active: np.ndarray | None = None) -> np.ndarray:
        return np.broadcast_to(self.z, (len(self.policy.check(observations)), self.z.shape[-1]))

    def packed(self) -> Packed:
        known = {} if self.agreement is None else {"agreement": self.agreement}
        return {"z": self.z}, self.note(r2=self.r2, **known)


class HeldSkills(Prompt):
    """Skills that are chosen one after the other, each held for some steps of an agent's episode."""

    def __init__(self, policy: Agent, steps: int, seed: int = 0) -> None:
        self.policy, self.steps = policy, steps
        self.agents = AgentMemory(seed, left=0, skill=np.float32(0.0))

    def choose(self, observations: Any) -> np.ndarray:
        """The skill for each observation, whatever is held."""
        raise NotImplementedError

    def __call__(self, observations: Any, active: np.ndarray | None = None) -> np.ndarray:
        """Skills for a batch, one step later at each call."""
        batch = self.policy.check(observations)
        self.agents.begin(len(batch), skill=self.policy.skill_dim)
        left, skills = self.agents["left"], self.agents["skill"]
        due = np.flatnonzero(left == 0)
        if len(due):
            skills[due] = self.choose(batch if len(due) == len(batch) else batch.take(due))
            left[due] = self.steps
        left -= 1
        return skills.copy()


class HierarchyPrompt(HeldSkills):
    """A high level over the skills of one policy: pi(z | s) is asked every k steps of an episode.

    Each backend has its own class for it, with `about` (reward, data, ...: plain values), `steps` (that a skill is
    held, in rows of the user's log), `skills(batch)` and `packed()`. Where skills live on a sphere, as HILP's do, the
    mean is projected back to it.
    """

    kind = "hierarchy"

    def __init__(self, policy: Agent, high: Any) -> None:
        super().__init__(policy, high.steps)
        self.high = high

    def choose(self, observations: Any) -> np.ndarray:
        skills = self.high.skills(self.policy.check(observations))
        return self.policy.project(skills) if self.policy.has_rule("project") else skills

    def packed(self) -> Packed:
        arrays, values = self.high.packed()
        return arrays, self.note(**values, about=self.high.about)


class PriorPrompt(HeldSkills):
    """Skills drawn from the prior p(z | s) of the policy's method, anew every k steps: what the data does."""

    kind = "prior"

    def __init__(self, policy: Agent, k: int | None, seed: int) -> None:
        policy.require_rule("prior", "has no prior over skills")
        k = steps_of_a_skill(policy, None if k is None else require_count("k", k), PRIOR_STEPS)
        self.spec = specs.Prior(k, seed)
        super().__init__(policy, k * policy.stride, self.spec.seed)

    def choose(self, observations: Any) -> np.ndarray:
        noise = self.agents.rng.standard_normal((len(observations), self.policy.skill_dim)).astype(np.float32)
        return self.policy.rule("prior", observations, noise)

    def packed(self) -> Packed:
        return {}, self.note()


def steps_of_a_skill(policy: Agent, k: int | None, usual: int) -> int:
    """How many steps skills are held: k, but as they were learnt where the policy's method says that."""
    horizon: int | None = policy.skill_horizon
    if horizon is None:
        return usual if k is None else k
    if k not in (None, horizon):
        raise HilpError(f"skills of this {policy.method} policy were learnt for {horizon} steps, not {k}: leave k out")
    return horizon


def prefer(policy: Agent, pairs: Sequence[tuple[Any, Any]]) -> SkillPrompt:
    """The skill of pairs (better, worse) of segments [rows, obs] each, which may differ in length.

    A segment earns the sum of the reward over its transitions, and a reward is linear in the method's features; so the
    chance that the first of two is preferred is the logistic function of <F(first) - F(second), w>, F being the sum of
    features over a segment (Bradley and Terry). w is found by logistic regression, and is a reward: it becomes a skill
    as any other reward does.
    """
    if not policy.has_rule("cumulant"):
        policy.require_rule("backward", "has no reward rule, so it cannot learn from preferences")
    try:
        pairs = list(pairs)
    except TypeError:  # no list of anything
        pairs = []
    if not pairs:
        raise HilpError("preferences are pairs (better, worse) of segments: give at least one")
    differences = []
    for number, pair in enumerate(pairs):
        try:
            better, worse = pair
        except (TypeError, ValueError) as error:
            raise HilpError(f"pair {number} of the preferences is not (better, worse)") from error
        differences.append(_segment(policy, better, number) - _segment(policy, worse, number))
    x = np.asarray(differences, np.float64)
    weights = logistic(x)
    if not np.any(weights):
        raise HilpError("the segments of all pairs have the same features, so the preferences ask for nothing")
    agreement = float(np.mean(x @ weights > 0))
    if agreement < POOR:
        warnings.warn(
            f"a reward that phi can express explains only {agreement:.0%} of these {len(x)} preferences: are all pairs "
            "(better, worse)? Longer segments tell more",
            stacklevel=3,
        )
    z = weights if policy.has_rule("cumulant") else _by_backward(policy, weights)
    return SkillPrompt(policy, policy.project(z), agreement=agreement, spec=specs.Prefer())


def _by_backward(policy: Agent, weights: np.ndarray) -> np.ndarray:
    """The skill of a reward is its mean weighted by features: E[B (B w)]."""
    kept, bank = policy.latent_column("features"), policy.bank
    found = policy.reward_features(bank.observations, bank.next_observations) if kept is None else kept
    features = np.asarray(found, np.float64)
    if not len(features):
        raise HilpError("this policy was saved without a bank of states, so it cannot say what a reward's skill is")
    return np.asarray(features.T @ (features @ weights) / len(features))


def _segment(policy: Agent, observations: Any, number: int) -> np.ndarray:
    """The sum of features over the transitions of a segment."""
    rows = policy.check(observations)
    if rows.single or len(rows) < 2:
        raise HilpError(f"a segment of pair {number} has fewer than two observations: it shows no transition")
    features = policy.reward_features(rows.take(slice(None, -1)), rows.take(slice(1, None)))
    return np.asarray(features, np.float64).sum(axis=0)


def logistic(x: np.ndarray) -> np.ndarray:
    """w = argmin mean log(1 + exp(-<x, w>)) + RIDGE / 2 |w|^2 on features of unit scale, by Newton's method."""
    scale = np.sqrt(np.mean(np.square(x)))
    if scale == 0.0:
        return np.zeros(x.shape[1])
    x = x / scale
    w = np.zeros(x.shape[1])
    for _ in range(ITERATIONS):
        wrong = 1.0 / (1.0 + np.exp(np.clip(x @ w, -500, 500)))  # the chance of the other answer
        slope = RIDGE * w - x.T @ wrong / len(x)
        curve = x.T @ (x * (wrong * (1.0 - wrong))[:, None]) / len(x) + RIDGE * np.eye(len(w))
        step = np.linalg.solve(curve, slope)
        w = w - step
        if np.abs(step).max() < ENOUGH:
            break
    return np.asarray(w / scale)


@dataclass(frozen=True)
class AdaptedPrompt(Prompt):
    """A prompt whose skills are moved by one and the same offset."""

    policy: Agent
    prompt: Any
    offset: np.ndarray  # [skill_dim]

    kind = "adapted"

    def __post_init__(self) -> None:
        if self.offset.shape != (self.policy.skill_dim,) or not np.isfinite(self.offset).all():
            raise ValueError("its offset is no skill of the policy")

    def __call__(self, observations: Any, active: np.ndarray | None = None) -> np.ndarray:
        z = np.asarray(self.prompt(self.policy.check(observations), active=active))
        if not self.offset.any():
            return z
        moved = z + self.offset
        nowhere = np.linalg.norm(moved, axis=-1) < 1e-8
        return self.policy.project(np.where(nowhere[:, None], z, moved))

    def packed(self) -> Packed:
        arrays, notes = nested({"first": self.prompt})
        return {**arrays, "offset": self.offset}, self.note(parts=notes)


@dataclass(frozen=True)
class Search:
    """What was tried: `earned[0]` is the prompt as it was."""

    prompt: Any
    earned: tuple[float, ...]
    best: int  # the one that was kept


def search(policy: Agent, prompt: Any, evaluator: Evaluator, episodes: int, seed: int) -> Search:
    """Search with so many episodes among skills around those of a prompt, by what they earn.

    The cross-entropy method: skills are drawn around the prompt's own, the better half moves and narrows the draw. What
    was seen to earn most is kept, the prompt as it was included, which is tried first: of episodes alike, what comes
    out earned no less than what went in. A few episodes are few; of a noisy evaluator they say little.
    """
    policy.require_rule("project", "takes a goal itself as its skill: there are no skills around it to try")
    episodes, rng = require_count("episodes", episodes), np.random.default_rng(require_seed(seed))
    if not isinstance(prompt, Prompt):
        raise HilpError("adapt takes a prompt of this policy: policy.goal(...), policy.reward(...), ...")
    policy.require_own(prompt.fingerprint)
    dim = policy.skill_dim
    length = float(np.linalg.norm(policy.project(np.ones(dim))))
    offsets, earned = [np.zeros(dim)], [_episode(evaluator, moved(policy, prompt, np.zeros(dim)))]
    mean, spread = np.zeros(dim), SPREAD * length / np.sqrt(dim)
    while len(offsets) < episodes:
        fresh = [mean + spread * rng.standard_normal(dim) for _ in range(min(GENERATION, episodes - len(offsets)))]
        earned += [_episode(evaluator, moved(policy, prompt, offset)) for offset in fresh]
        offsets += fresh
        order = np.argsort(-np.asarray(earned), kind="stable")
        mean = np.mean([offsets[number] for number in order[: (len(order) + 1) // 2]], axis=0)
        spread *= NARROWING
    best = int(np.argmax(earned))  # the first of equals: the prompt as it was
    return Search(moved(policy, prompt, offsets[best]), tuple(earned), best)


def moved(policy: Agent, prompt: Any, offset: np.ndarray) -> Any:
    """The prompt with its skills moved: a fixed skill stays one."""
    if isinstance(prompt, SkillPrompt):
        if not offset.any():
            return prompt
        return SkillPrompt(policy, policy.project(prompt.z + offset))
    return AdaptedPrompt(policy, prompt, offset.astype(np.float32))


def _episode(evaluator: Evaluator, prompt: Any) -> float:
    prompt.reset()
    try:
        earned = float(evaluator(prompt))
    except (TypeError, ValueError) as error:
        raise HilpError(f"an evaluator gives one number, what an episode earned: {error}") from error
    if not np.isfinite(earned):
        raise HilpError("an evaluator gave NaN or an infinity: what an episode earned must be a number")
    return earned
