"""FoundationPolicy: what training leaves behind, and how it is used. `artifact` is its folder, `prompts` its tasks."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hilp import above, trees
from hilp.data.dataset import Dataset, Parts
from hilp.errors import HilpError, PromptUnsupported
from hilp.learning import methods
from hilp.learning.images import pictures
from hilp.policy import (
    adapting,
    artifact,
    following,
    goal_matching,
    graph,
    graph_rewards,
    observations,
    planning,
    preferences,
    prompts,
    reward_prompts,
    saved_prompts,
    shortest,
    specified,
    stepping,
)
from hilp.policy.agent import require_graph
from hilp.policy.bank import Bank
from hilp.policy.directed_planning import DirectedMidpoints
from hilp.policy.following import FollowPrompt
from hilp.policy.forks import require_own_process
from hilp.policy.graph import Graph
from hilp.policy.graph_planner import GraphPlanner
from hilp.policy.hierarchy import HierarchyPrompt, PriorPrompt
from hilp.policy.latent_bank import LatentBank
from hilp.policy.ood import Outside
from hilp.policy.preparation import Preparation
from hilp.policy.prompts import GoalPrompt, Prompt, SkillPrompt
from hilp.policy.provenance import Provenance
from hilp.policy.rules import AT_GOAL, Rules
from hilp.prompts import specs
from hilp.spec import Spec
from hilp.trees import Tree

BLOCK = 4096  # images encoded at a time


class FoundationPolicy:
    """A trained policy that takes prompts. Observations and actions are those of the user's data, not normalised."""

    def __init__(
        self,
        config: Any,
        spec: Spec,
        core: Any,
        preparation: Preparation,
        bank: Bank,
        provenance: Provenance | None = None,
        observation_parts: Parts = (),
        graph: Graph | None = None,
        latent_bank: LatentBank | None = None,
        version: int = artifact.VERSION,
    ):
        self.method = methods.name_of(config)
        self.config = config
        self.spec = spec
        self.core = core
        self.preparation = preparation
        self.bank = bank
        self.observation_parts = observation_parts
        self.graph = graph
        self.latent_bank = latent_bank
        self.provenance = provenance or Provenance()
        self.version = version  # of the format it came in: a policy keeps its fingerprint, and so its prompts
        self._has: dict[str, bool] = {}  # rules that were asked for

    # ---- using it ----------------------------------------------------------------------------------------------------

    def act(self, observation: Any, prompt: Prompt | np.ndarray | None = None) -> np.ndarray:
        """The action for one observation or a batch, under a prompt or a skill vector.

        A policy that was trained for one task (`skill_dim` 0) needs no prompt.
        """
        observations, single = self.batched(observation)
        self._outside.warn("observation", observations)
        if prompt is None:
            if self.skill_dim:
                raise HilpError(f"{self.method} acts on a prompt: give one, e.g. policy.goal(...)")
            z = np.zeros(0, np.float32)
        elif callable(prompt):
            self._require_own(prompt)
            if single and isinstance(prompt, GoalPrompt) and prompt.by_direction and prompt.latent_ema is None:
                return stepping.act(self._apply, self.preparation, observations, prompt)
            z = prompt(observations)
        else:
            try:
                z = np.asarray(prompt, np.float32)
            except (TypeError, ValueError) as error:
                raise HilpError(f"a skill must be numbers: {error}") from error
        wanted = (trees.rows(observations), self.skill_dim)
        if z.shape not in (wanted[1:], wanted):
            raise HilpError(f"a skill of this policy has {self.skill_dim} numbers (a batch {wanted}), not {z.shape}")
        if not np.isfinite(z).all():
            raise HilpError("the skill holds a NaN or an infinity")
        z = np.broadcast_to(z, wanted)
        action = self.preparation.actions(self._apply("act", self.preparation.observations(observations), z))
        return action[0] if single else action

    def encode(self, observation: Any) -> np.ndarray:
        """phi of one observation or a batch."""
        self.require_rule("encode", "has no latent map")
        observations, single = self.batched(observation)
        latents = self._apply("encode", self.preparation.observations(observations))
        return latents[0] if single else latents

    def encode_goal(self, goal: Tree) -> np.ndarray:
        """`encode` of one checked goal [1, ...], by the program that will act on the way there."""
        return stepping.encode_goal(self._apply, self.core, self.preparation.observations(goal))

    def cumulant(self, observation: Any, following: Any) -> np.ndarray:
        """The features of transitions whose inner product with a skill is the reward that skill maximises."""
        self.require_rule("cumulant", "has no reward rule")
        first, _ = self.batched(observation)
        second, _ = self.batched(following)
        return self._apply("cumulant", self.preparation.observations(first), self.preparation.observations(second))

    def goal_direction(self, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        """The skill that moves from one latent to another; 0 where they are the same to within rounding errors."""
        self.require_rule("goal_direction", "has no goal rule")
        apart = np.linalg.norm(np.asarray(there) - np.asarray(here), axis=-1, keepdims=True)
        return np.where(apart > AT_GOAL, self._apply("goal_direction", here, there), np.float32(0.0))

    def distance(self, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        """From one latent to another, on the discounted scale of steps; leading axes are broadcast."""
        if self.has_rule("distance"):
            return self._apply("distance", here, there)
        return np.asarray(np.linalg.norm(np.asarray(there - here, np.float64), axis=-1))

    def goal_skill(self, goal: Any) -> np.ndarray:
        """The one skill that a goal stands for, of one goal or a batch."""
        self.require_rule("goal_skill", "has no goal rule")
        goals, single = self.batched(goal)
        skills = self._apply("goal_skill", self.preparation.observations(goals))
        return skills[0] if single else skills

    def backward(self, following: Any) -> np.ndarray:
        """Features of states whose mean, weighted by a reward, is the skill of that reward."""
        self.require_rule("backward", "has no reward rule")
        observations, _ = self.batched(following)
        return self._apply("backward", self.preparation.observations(observations))

    def project(self, z: np.ndarray) -> np.ndarray:
        """The valid skill in the direction of z."""
        self.require_rule("project", "has no skill rule")
        z = np.asarray(z, np.float64)
        z = z / np.linalg.norm(z, axis=-1, keepdims=True)  # a direction has no scale, and float32 loses small ones
        require_own_process()
        return np.asarray(self.core.project(z.astype(np.float32)))

    def skill_of(self, observations: Tree, actions: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """The skills that segments followed: rows n x (k + 1), actions n x k between them, the first `steps` real."""
        self.require_rule("skill_of", "cannot name the skill of a segment")
        inside = (actions - self.preparation.action_center) / self.preparation.action_half_range
        return self._apply("skill_of", self.preparation.observations(observations), inside.astype(np.float32), steps)

    def prior_skill(self, observation: Any, noise: np.ndarray) -> np.ndarray:
        """The skills that standard normal noise [n, skill_dim] draws from the prior at a batch of observations."""
        self.require_rule("prior", "has no prior over skills")
        observations, _ = self.batched(observation)
        return self._apply("prior", self.preparation.observations(observations), noise)

    @property
    def stride(self) -> int:
        """Rows of the user's log that a step of training spans."""
        return self.preparation.stride

    @property
    def skill_horizon(self) -> int | None:
        """The steps that skills of segments were learnt for; None where any number will do."""
        return getattr(self.core, "skill_horizon", None)

    @cached_property
    def _outside(self) -> Outside:
        return Outside(self.bank, self.observation_parts, self.preparation.transform)

    @property
    def skill_dim(self) -> int:
        return int(self.core.skill_dim)

    @property
    def discount(self) -> float:
        """Of latent distances: they are told apart up to about 1 / (1 - discount) steps."""
        self.require_rule("discount", "does not say how far its distances reach")
        return float(self.core.discount)

    @cached_property
    def midpoints(self) -> planning.Midpoints:
        """Latents of the kept data states, for planning."""
        latents = self.kept("latents", lambda: self.bank_latents)
        return DirectedMidpoints(latents, self.distance) if self.has_rule("distance") else planning.Midpoints(latents)

    def encode_all(self, observations: Tree, rows: np.ndarray | None = None) -> np.ndarray:
        """`encode` of any number of rows, or of these; images in blocks, because they take more memory than latents."""
        if not self.spec.parts:
            return self.encode(observations if rows is None else observations[rows])
        count = trees.rows(observations) if rows is None else len(rows)
        blocks: list[Any] = [slice(first, first + BLOCK) for first in range(0, max(1, count), BLOCK)]
        wanted = blocks if rows is None else [rows[block] for block in blocks]
        latents = [self.encode(trees.over(lambda part, at=at: part[at], observations)) for at in wanted]
        return np.concatenate(latents)

    def kept(self, name: str, computed: Callable[[], np.ndarray]) -> np.ndarray:
        """A column of the latent bank, or what it would be for the bank."""
        own = {} if self.latent_bank is None else self.latent_bank.encoded
        return own[name] if name in own else computed()

    def pictured(self, latents: np.ndarray) -> np.ndarray:
        """Rows of the bank, which has pictures, that are nearest to some latents."""
        return planning.Midpoints(self.bank_latents).square_distance_table(latents).argmin(axis=1)

    @cached_property
    def bank_latents(self) -> np.ndarray:
        """`encode` of the observations of the bank."""
        return self.encode_all(self.bank.observations)

    @cached_property
    def planner(self) -> GraphPlanner:
        """The graph of the data, for planning. Without one from training, that of the bank's own transitions."""
        if self.graph is None:
            following = self.kept("next_latents", lambda: self.encode_all(self.bank.next_observations))
            pairs = np.stack([self.midpoints.latents, following], axis=1).reshape(-1, following.shape[1])
            drawn = graph.build(self.midpoints.latents, pairs, np.full(len(following), 2), self.discount)
            return GraphPlanner(drawn, self.midpoints, self.discount, shortest.by_scipy)
        return GraphPlanner(self.graph, self.midpoints, self.discount, shortest.by_scipy)

    def with_graph(self, data: Dataset, seed: int = 0) -> FoundationPolicy:
        """This policy with the graph of trajectories, as training leaves it: for policies that have none."""
        require_graph(self)
        rows, lengths = graph.trajectories(data.lengths, seed)
        latents = self.encode_all(data.observations, rows)
        drawn = graph.build(self.midpoints.latents, latents, lengths, self.discount, seed)
        return self._with(graph=drawn)

    def with_latents(self, data: Dataset, count: int, seed: int = 0) -> FoundationPolicy:
        """This policy with latents of more transitions than it keeps pictures of, as training leaves it."""
        drawn = LatentBank.draw(self, data, count, seed) if pictures(self.spec) else None
        return self if drawn is None else self._with(latent_bank=drawn)

    def _with(self, **changed: Any) -> FoundationPolicy:
        contents = dataclasses.replace(self._contents(), **changed, version=artifact.VERSION)
        return FoundationPolicy(**{f.name: getattr(contents, f.name) for f in dataclasses.fields(contents)})

    # ---- prompts -----------------------------------------------------------------------------------------------------

    def goal(
        self,
        goal: Any,
        plan: int | str = 0,
        best: int = planning.BEST,
        radius: float | None = None,
        goal_dims: Sequence[int] | None = None,
        smooth: float | None = None,
    ) -> GoalPrompt:
        """Reach a goal observation. `plan` is a number of midpoint recursions, "auto", "graph" or "midpoints".

        "graph" heads for states of the data that are nearest to the goal by way of the graph of the data, and tells
        beforehand what it knows (`path`, `steps`, `support`, `reachable`). "midpoints" recurses until the subgoal is
        within `radius` latent steps; a share of phi's horizon if not given. "auto" follows the graph wherever the data
        shows a way, and midpoints where it does not, or where the policy is of a version before graphs.

        goal_dims: the columns of the goal that do, if not all: a place, whatever the posture. A state of the data that
        agrees with the goal in these stands in for it. smooth: take the agent to be at the mean of where it was over
        about so many steps, for bodies that walk and sensors with noise.
        """
        if goal_dims is not None:
            goals, single = self.batched(goal)
            transform = self.preparation.transform
            found = goal_matching.for_goals(self, goals, goal_dims, {} if transform is None else dict(transform.angles))
            goal = found[0] if single else found
        prompt = prompts.goal(self, goal, plan, best, radius, smooth)
        self._outside.warn("goal", self.batched(prompt.goal)[0])
        return prompt

    def reward(
        self,
        data: Dataset | reward_prompts.Table | None = None,
        function: Callable[..., np.ndarray] | str | None = None,
        samples: int = 10_000,
        seed: int = 0,
        rule: str = "auto",
        intercept: bool = False,
        discount: float = graph_rewards.DISCOUNT,
    ) -> Prompt:
        """Maximise a reward: a vectorised function of (s, a, s'), a formula, or a table (s, s', r) of labelled samples.

        A formula such as "height - 0.1*norm(action)" names parts of the observation at s' (see hilp.policy.formulas).

        The function is asked about transitions of `data`, or, without a data set, of the policy's own bank. It may take
        a fourth argument for named extra columns: x.before("qpos") at s, x.after("qpos") at s'; the bank keeps the
        column `physics` only. rule="goal" makes the state of highest reward the goal (HILP-G) instead of finding the
        skill that follows the reward; methods without a reward rule do so always. intercept=True fits a constant beside
        the features, so that adding one to the reward changes nothing. rule="graph" plans on the graph of the data, by
        value iteration with this `discount`; rule="auto" finds the skill (rule="skill"), or, where phi cannot express
        the reward and says so by a low R^2, plans on the graph.
        """
        return reward_prompts.reward(self, data, function, samples, seed, rule, intercept, discount)

    def skill(self, z: Any = None, seed: int = 0) -> SkillPrompt:
        """Follow one latent direction, given or random."""
        return prompts.skill(self, z, seed)

    def prior(self, k: int | None = None, seed: int = 0) -> PriorPrompt:
        """Follow skills that the prior p(z | s) draws, a new one every k steps (as learnt, where the method says)."""
        return prompts.prior(self, k, seed)

    def follow(self, trajectory: Any, window: int | None = None) -> FollowPrompt:
        """Follow a demonstration, observations [rows, obs], at its pace or faster; a new episode may begin on its way.

        window: rows ahead to head for; without one, as far as directions are trusted.
        """
        return following.follow(self, trajectory, window)

    def prefer(self, pairs: Sequence[tuple[Any, Any]]) -> SkillPrompt:
        """The skill that explains preferences: pairs (better, worse) of segments, observations [rows, obs] each."""
        return preferences.prefer(self, pairs)

    def adapt(self, prompt: Prompt, evaluator: Any, episodes: int = 10, seed: int = 0, **asked: Any) -> adapting.Search:
        """Search among skills around a prompt's own with a few episodes; `prompt` of the result is what earned most.

        evaluator: a function of a prompt that runs an episode and gives what it earned, or a task (then `reward` names
        one of its rewards, where it has several). The first episode is that of the prompt as it is.
        """
        run = evaluator if callable(evaluator) else above.ask("episode_return")(self, evaluator, seed=seed, **asked)
        return adapting.adapt(self, prompt, run, episodes, seed)

    def hierarchy(self, data: Dataset, reward: Any = None, **options: Any) -> HierarchyPrompt:
        """Train a high level that sequences skills for a reward, every k steps; see `hilp.hierarchy` for the options.

        reward: a vectorised function of (s, a, s') or a formula; without one, the rewards that came with the data.
        """
        trained: HierarchyPrompt = above.ask("hierarchy")(self, data, reward, **options)
        return trained

    def prompt(self, spec: specs.Spec, data: Dataset | None = None) -> Prompt:
        """The prompt of a spec (`hilp.prompts.specs`). data: whose transitions a reward is fitted on."""
        return specified.prompt(self, spec, data)

    def load_prompt(self, path: str | os.PathLike[str]) -> Prompt:
        """A prompt saved earlier for this very policy."""
        return saved_prompts.load(self, Path(path))

    @property
    def keeps(self) -> str:
        """What it keeps of its data, for people."""
        size, more = self.bank.bytes, ""
        if self.latent_bank is not None:
            size += self.latent_bank.bytes
            small = len(self.latent_bank.thumbnails)
            more = f" whole, latents of {len(self.latent_bank):,}" + (f", {small:,} thumbnails" if small else "")
        return f"{len(self.bank):,} transitions{more}: {size / 2**20:.0f} MB"

    # ---- on disk -----------------------------------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """Hash of method, config, preparation, weights and bank: equal policies have equal fingerprints."""
        return self._contents().fingerprint()

    @property
    def settings(self) -> dict[str, Any]:
        """The config as plain values, to say in rows and reports how this policy was trained."""
        return dict(json.loads(json.dumps(dataclasses.asdict(self.config))))

    @property
    def reference(self) -> dict[str, Any]:
        """Config values of a V(s, g) to hold this policy's distances against; its method knows them."""
        self.require_rule("goal_direction", "does not learn distances")
        method = methods.of(self.config)
        return dict(method.reference(self.config)) if hasattr(method, "reference") else {"discount": self.discount}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the folder. A kill at any instant leaves what was there before, or the new policy."""
        return artifact.save(self._contents(), path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> FoundationPolicy:
        """A policy from its folder, or from the folder of the run that trained it."""
        found = artifact.load(path)
        return FoundationPolicy(**{f.name: getattr(found, f.name) for f in dataclasses.fields(found)})

    def _contents(self) -> artifact.Contents:
        return artifact.Contents(**{f.name: getattr(self, f.name) for f in dataclasses.fields(artifact.Contents)})

    # ---- observations ------------------------------------------------------------------------------------------------

    def batched(self, observation: Any) -> tuple[Tree, bool]:
        """Observations as a batch, checked, and whether a single one was given."""
        return observations.batched(observation, self.spec, self.observation_parts)

    # ---- the method's rules ------------------------------------------------------------------------------------------

    @cached_property
    def _apply(self) -> Rules:
        return Rules(self.core)

    def _require_own(self, prompt: Prompt) -> None:
        if prompt.fingerprint != self.fingerprint:
            raise HilpError(
                f"this prompt was made for policy {prompt.fingerprint[:8]}, not for this one ({self.fingerprint[:8]}): "
                "make it again with this policy"
            )

    def has_rule(self, rule: str) -> bool:
        """Whether the method behind this policy has a rule (see hilp.learning.contract)."""
        if rule not in self._has:  # kept, because Equinox wraps a method anew each time that it is asked for
            self._has[rule] = hasattr(self.core, rule)
        return self._has[rule]

    def require_rule(self, rule: str, lacking: str) -> None:
        """Raise unless the method behind this policy has a rule."""
        if not self.has_rule(rule):
            raise PromptUnsupported(f"{self.method} {lacking}")
