"""Prompts that hold a skill for k steps: chosen by a trained high level, or drawn from a prior.

They remember, for every row of a batch, what it holds and for how much longer; `reset` begins new episodes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hilp import storage, trees
from hilp.errors import HilpError
from hilp.learning import methods
from hilp.policy import artifact
from hilp.policy.agent import Promptable
from hilp.policy.combining import Combinable, Packed
from hilp.policy.preparation import Preparation
from hilp.policy.rules import Rules
from hilp.spec import Spec
from hilp.trees import Tree


class Holding:
    """Which skill each of n episodes side by side holds, and for how many more steps."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.reset()

    def reset(self, rows: Any = None) -> None:
        """New episodes: in these rows (numbers or a mask), or in all, of which there may then be another number."""
        if rows is None:
            self._skills: np.ndarray | None = None
            self._left = np.zeros(0, int)
        elif self._skills is not None:
            self._left[np.asarray(rows)] = 0

    def __call__(self, observations: Tree, choose: Callable[[Tree], np.ndarray]) -> np.ndarray:
        """The skills of a step; rows whose skill has ended get the one that `choose` has for them."""
        count = trees.rows(observations)
        if self._skills is None:
            self._left = np.zeros(count, int)
        elif len(self._left) != count:
            raise HilpError(
                f"this prompt is in the middle of {len(self._left)} episodes, not {count}: call its reset() when "
                "episodes begin"
            )
        due = np.flatnonzero(self._left == 0)
        if len(due):
            chosen = choose(trees.over(lambda part: part[due], observations))
            if self._skills is None:
                self._skills = np.zeros((count, chosen.shape[1]), np.float32)
            self._skills[due] = chosen
            self._left[due] = self.k
        self._left -= 1
        assert self._skills is not None
        return self._skills.copy()


@dataclass(frozen=True)
class HighLevel:
    """pi(z | s): trained by `iql` on segments, whose actions are skills. Observations and skills in their own units."""

    config: Any
    spec: Spec  # its actions are skills
    core: Any  # the method's export
    preparation: Preparation
    about: dict[str, Any] = field(default_factory=dict)  # reward, data, updates, seed, ... : plain values

    @property
    def k(self) -> int:
        return int(self.config.k)

    def skills(self, rules: Rules, observations: Tree) -> np.ndarray:
        """The mean of pi(z | s) for a batch."""
        nothing = np.zeros((trees.rows(observations), 0), np.float32)
        return self.preparation.actions(rules("act", self.preparation.observations(observations), nothing))


class HierarchyPrompt(Combinable):
    """A high level over the skills of one policy: pi(z | s) is asked every k steps of an episode.

    Where skills live on a sphere, as HILP's do, the mean is projected back to it.
    """

    kind = "hierarchy"

    def __init__(self, policy: Promptable, high: HighLevel) -> None:
        if high.spec.action_dim != policy.skill_dim:
            raise HilpError(f"this high level gives {high.spec.action_dim} numbers, a skill has {policy.skill_dim}")
        self.policy, self.high = policy, high
        self._rules, self._holding = Rules(high.core), Holding(high.k * high.preparation.stride)

    @property
    def fingerprint(self) -> str:
        return self.policy.fingerprint

    def reset(self, rows: Any = None) -> None:
        """Begin new episodes: in these rows of the batch (numbers or a mask), or in all of them."""
        self._holding.reset(rows)

    def choose(self, observations: Tree) -> np.ndarray:
        """The skill that the high level has for each observation, whatever is held."""
        skills = self.high.skills(self._rules, observations)
        return self.policy.project(skills) if self.policy.has_rule("project") else skills

    def __call__(self, observations: Tree, active: np.ndarray | None = None) -> np.ndarray:
        """Skills for a batch, one step later at each call."""
        return self._holding(self.policy.batched(observations)[0], self.choose)

    def packed(self) -> Packed:
        high = self.high
        note = {
            "kind": self.kind,
            "fingerprint": self.fingerprint,
            "method": methods.name_of(high.config),
            "config": methods.config_values(high.config),
            "spec": high.spec.to_json(),
            "preparation": high.preparation.to_json(),
            "about": high.about,
        }
        return storage.flatten(high.core), note

    @staticmethod
    def revive(
        policy: Promptable, arrays: Mapping[str, np.ndarray], note: Mapping[str, Any], path: Path
    ) -> HierarchyPrompt:
        """From what `save` wrote; KeyError, TypeError or ValueError where it is something else."""
        config, spec, preparation, like = artifact.parse_description(note, arrays)
        if spec.parts != policy.spec.parts or spec.observation_dim != policy.spec.observation_dim:
            raise ValueError("its observations are not those of the policy")
        core = storage.unflatten(like, arrays, path)
        return HierarchyPrompt(policy, HighLevel(config, spec, core, preparation, dict(note["about"])))


class PriorPrompt(Combinable):
    """Skills drawn from the prior p(z | s) of the policy's method, anew every k steps: what the data does."""

    kind = "prior"

    def __init__(self, policy: Promptable, k: int, seed: int) -> None:
        self.policy, self.k, self.seed = policy, k, seed
        self._holding = Holding(k * policy.stride)
        self._rng = np.random.default_rng(seed)

    @property
    def fingerprint(self) -> str:
        return self.policy.fingerprint

    def reset(self, rows: Any = None) -> None:
        """Begin new episodes: in these rows of the batch (numbers or a mask), or in all, which draw as at first."""
        self._holding.reset(rows)
        if rows is None:
            self._rng = np.random.default_rng(self.seed)

    def __call__(self, observations: Tree, active: np.ndarray | None = None) -> np.ndarray:
        return self._holding(self.policy.batched(observations)[0], self._draw)

    def _draw(self, observations: Tree) -> np.ndarray:
        noise = self._rng.standard_normal((trees.rows(observations), self.policy.skill_dim)).astype(np.float32)
        return self.policy.prior_skill(observations, noise)

    def packed(self) -> Packed:
        return {}, {"kind": self.kind, "fingerprint": self.fingerprint, "k": self.k, "seed": self.seed}


def steps_of_a_skill(policy: Promptable, k: int | None, usual: int) -> int:
    """How many steps skills last: as asked for, but as they were learnt where the policy's method says that."""
    horizon = policy.skill_horizon
    if horizon is None:
        return usual if k is None else k
    if k not in (None, horizon):
        raise HilpError(f"skills of this {policy.method} policy were learnt for {horizon} steps, not {k}: leave k out")
    return horizon


def high_level_summary(high: HighLevel) -> dict[str, Any]:
    """A high level as plain values, for rows."""
    return {"config": dataclasses.asdict(high.config), **high.about}
