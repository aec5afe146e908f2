"""PromptablePolicy: an agent that acts, and makes prompts. What users know of every policy, whatever its backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hilp.errors import HilpError
from hilp.prompts import files, follow, goal, reward, skills, specs
from hilp.prompts.agent import Agent
from hilp.prompts.base import Prompt
from hilp.prompts.follow import FollowPrompt
from hilp.prompts.goal import GoalPrompt
from hilp.prompts.observations import Batch
from hilp.prompts.skills import PriorPrompt, SkillPrompt


class PromptablePolicy(Agent):
    """A policy that takes prompts. Observations and actions are those of the user's data, not normalised."""

    def act(self, observation: Any, prompt: Prompt | np.ndarray | None = None) -> np.ndarray:
        """The action for one observation or a batch, under a prompt or a skill vector.

        A policy that was trained for one task (`skill_dim` 0) needs no prompt.
        """
        batch = self.check(observation)
        self.data_range.warn("observation", batch.tree)
        if callable(prompt):
            self._require_own(prompt)
            action = prompt.step(batch) if batch.single else None
            if action is not None:
                return action[0]
            prompt = prompt(batch)
        action = self.rule("act", batch, self._skills(prompt, batch))
        return action[0] if batch.single else action

    def _skills(self, z: Any, batch: Batch) -> np.ndarray:
        """Skill vectors of a batch, checked."""
        if z is None and self.skill_dim:
            raise HilpError(f"{self.method} acts on a prompt: give one, e.g. policy.goal(...)")
        try:
            z = np.asarray(() if z is None else z, np.float32)
        except (TypeError, ValueError) as error:
            raise HilpError(f"a skill must be numbers: {error}") from error
        wanted = (len(batch), self.skill_dim)
        if z.shape not in (wanted[1:], wanted):
            raise HilpError(f"a skill of this policy has {self.skill_dim} numbers (a batch {wanted}), not {z.shape}")
        if not np.isfinite(z).all():
            raise HilpError("the skill holds a NaN or an infinity")
        return np.broadcast_to(z, wanted)

    def _require_own(self, prompt: Any) -> None:
        if prompt.fingerprint != self.fingerprint:
            raise HilpError(
                f"this prompt was made for policy {prompt.fingerprint[:8]}, not for this one ({self.fingerprint[:8]}): "
                "make it again with this policy"
            )

    # ---- prompts -----------------------------------------------------------------------------------------------------

    def goal(
        self,
        goal_observation: Any,
        plan: int | str = 0,
        best: int = specs.BEST,
        radius: float | None = None,
        goal_dims: Sequence[int] | None = None,
        smooth: float | None = None,
    ) -> GoalPrompt:
        """Reach a goal observation. `plan` is a number of midpoint recursions, "auto", "graph" or "midpoints".

        "graph" heads for states of the data that are nearest to the goal by way of the graph of the data, and tells
        beforehand what it knows (`path`, `steps`, `support`, `reachable`). "midpoints" recurses until the subgoal is
        within `radius` latent steps; by default a share of phi's horizon. "auto" follows the graph wherever the data
        shows a way, and midpoints where it does not.

        goal_dims: the columns of the goal that count, if not all: a place, whatever the posture. A state of the data
        that agrees with the goal in these takes its place. smooth: take the agent to be at the mean of where it was
        over about so many steps, for bodies that walk and sensors with noise.
        """
        options = specs.Goal(None, plan=plan, best=best, radius=radius, goal_dims=goal_dims, smooth=smooth)  # type: ignore[arg-type]
        return goal.goal(self, goal_observation, options)

    def reward(
        self,
        data: Any = None,
        function: Callable[..., np.ndarray] | str | None = None,
        samples: int = 10_000,
        seed: int = 0,
        rule: str = "auto",
        intercept: bool = False,
        discount: float = specs.REWARD_DISCOUNT,
    ) -> Prompt:
        """Maximise a reward: a vectorised function of (s, a, s'), a formula, or a table (s, s', r) of labelled samples.

        A formula such as "height - 0.1*norm(action)" names parts of the observation at s' (hilp.prompts.formulas).

        data: a data set whose transitions the function is called with, or a table; without one, the policy's own bank.
        The function may take a fourth argument for named extra columns: x.before("qpos") at s, x.after("qpos") at s';
        the bank keeps the column `physics` only. rule="goal" makes the state of highest reward the goal (HILP-G)
        instead of finding the skill that follows the reward; methods without a reward rule do so always. intercept=True
        fits a constant too, so that adding one to the reward changes nothing. rule="graph" plans on the graph of the
        data, by value iteration with this `discount`; rule="auto" finds the skill (rule="skill"), or, where phi cannot
        express the reward, as a low R^2 says, plans on the graph.
        """
        options = specs.Reward(None, rule=rule, intercept=intercept, discount=discount, samples=samples, seed=seed)
        return reward.reward(self, data, function, options)

    def skill(self, z: Any = None, seed: int = 0) -> SkillPrompt:
        """Follow one latent direction: z, or a random one."""
        return skills.skill(self, z, seed)

    def prior(self, k: int | None = None, seed: int = 0) -> PriorPrompt:
        """Follow skills that the prior p(z | s) draws, a new one every k steps (as learnt, where the method says)."""
        return PriorPrompt(self, k, seed)

    def follow(self, trajectory: Any, window: int | None = None) -> FollowPrompt:
        """Follow a demonstration, observations [rows, obs], at its pace or faster; a new episode may begin on its way.

        window: rows ahead to head for; without one, as far as directions are trusted.
        """
        return follow.follow(self, trajectory, window)

    def prefer(self, pairs: Sequence[tuple[Any, Any]]) -> SkillPrompt:
        """The skill that explains preferences: pairs (better, worse) of segments, observations [rows, obs] each."""
        return skills.prefer(self, pairs)

    def prompt(self, spec: specs.Spec, data: Any = None) -> Any:
        """The prompt of a spec (`hilp.prompts.specs`). data: whose transitions a reward is fitted on."""
        return files.of_spec(self, spec, data)

    def load_prompt(self, path: str | os.PathLike[str]) -> Any:
        """A prompt saved earlier for this very policy."""
        return files.load(self, Path(path))

    def high_level(self, arrays: Any, note: Any, path: Any) -> Any:
        """The high level of a saved hierarchy (see `hilp.prompts.skills.HighLevel`)."""
        raise NotImplementedError
