"""A few episodes: search among skills around those of a prompt, by what they earn.

The cross-entropy method: skills are drawn around the prompt's own, the better half moves and narrows the draw. What was
seen to earn most is kept, the prompt as it was included, which is tried first: of episodes alike, what comes out earned
no less than what went in. A few episodes are few; of a noisy evaluator they say little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hilp.errors import HilpError, require_count, require_seed
from hilp.prompts.agent import Agent
from hilp.prompts.base import Packed, Prompt, nested
from hilp.prompts.skills import SkillPrompt

Evaluator = Callable[[Any], float]  # a prompt -> what an episode under it earned
SPREAD = 0.5  # of the first draw, as a share of a skill's length
NARROWING = 0.7  # of the spread, after each generation
GENERATION = 3  # episodes


@dataclass(frozen=True)
class AdaptedPrompt(Prompt):
    """A prompt whose skills are moved by one and the same offset."""

    policy: Agent
    prompt: Any
    offset: np.ndarray  # [skill_dim]

    kind = "adapted"

    def __call__(self, observations: Any, active: np.ndarray | None = None) -> np.ndarray:
        z = np.asarray(self.prompt(self.policy.check(observations), active=active))
        if not self.offset.any():
            return z
        moved = z + self.offset
        nowhere = np.linalg.norm(moved, axis=-1) < 1e-8
        return self.policy.project(np.where(nowhere[:, None], z, moved))

    def memories(self) -> Iterable[Any]:
        return (self.prompt,)

    def packed(self) -> Packed:
        arrays, notes = nested({"first": self.prompt})
        return {**arrays, "offset": self.offset}, self.note(parts=notes)


@dataclass(frozen=True)
class Search:
    """What was tried: `earned[0]` is the prompt as it was."""

    prompt: Any
    earned: tuple[float, ...]
    best: int  # the one that was kept
    offsets: tuple[np.ndarray, ...] = field(repr=False)


def search(policy: Agent, prompt: Any, evaluator: Evaluator, episodes: int, seed: int) -> Search:
    """Search with so many episodes, the first of which goes to the prompt as it is."""
    policy.require_rule("project", "takes a goal itself as its skill: there are no skills around it to try")
    episodes, rng = require_count("episodes", episodes), np.random.default_rng(require_seed(seed))
    if not isinstance(prompt, Prompt):
        raise HilpError("adapt takes a prompt of this policy: policy.goal(...), policy.reward(...), ...")
    if prompt.fingerprint != policy.fingerprint:
        raise HilpError("this prompt was made for another policy: make it again with this one")
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
    kept = moved(policy, prompt, offsets[best])
    return Search(kept, tuple(earned), best, tuple(offsets))


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
