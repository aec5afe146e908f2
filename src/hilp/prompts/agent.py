"""Agent: what prompts ask of a policy, over numpy. `FoundationPolicy` and the exported runtime both are one.

A backend gives the attributes below and `rule`; all else is here, so both act on prompts by the same code.
"""

from functools import cached_property
from typing import Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError, PromptUnsupported
from hilp.prompts import graph, observations
from hilp.prompts.bank import Bank, LatentBank
from hilp.prompts.graph import Graph, GraphPlanner
from hilp.prompts.midpoints import DirectedMidpoints, Midpoints
from hilp.prompts.observations import Batch, DataRange, Parts
from hilp.spec import Spec
from hilp.trees import Tree

AT_GOAL = 1e-3  # latent steps: this near a direction is that of rounding errors, so there is none, and the skill is 0
BLOCK = 4096  # images encoded at a time


class Agent:
    """The rules of a policy's method (hilp.learning.methods), and what is kept of its data."""

    method: str
    fingerprint: Any
    spec: Spec
    bank: Bank
    latent_bank: LatentBank | None
    graph: Graph | None  # from training; None: that of the bank's own transitions
    observation_parts: Parts
    skill_dim: Any
    stride: Any  # rows of the user's log that a step of training spans
    skill_horizon: Any  # steps that skills of segments were learnt for; None where any number will do
    transform: Any  # which columns networks see, and which are angles; None: all, and none

    def rule(self, name: str, *inputs: Any) -> np.ndarray:
        """What a rule gives for checked observations (`Batch`), skills and latents; actions in the user's units."""
        raise NotImplementedError

    def has_rule(self, name: str) -> bool:
        """Whether the method behind this policy has a rule."""
        raise NotImplementedError

    def require_rule(self, name: str, lacking: str) -> None:
        """Raise unless the method behind this policy has a rule."""
        if not self.has_rule(name):
            raise PromptUnsupported(f"{self.method} {lacking}")

    def require_own(self, fingerprint: Any, what: Any = "this prompt") -> None:
        """Raise unless a prompt of this fingerprint is one of this very policy."""
        if fingerprint != self.fingerprint:
            raise HilpError(
                f"{what} was made for policy {str(fingerprint)[:8]}, not for this one ({self.fingerprint[:8]}): "
                "make it again with this policy"
            )

    def check(self, observation: Any) -> Batch:
        """One observation or several as a checked batch; a batch stays what it is."""
        return observations.check(observation, self.spec, self.observation_parts)

    # ---- the method's rules ------------------------------------------------------------------------------------------

    def encode(self, observation: Any) -> np.ndarray:
        """phi of one observation or a batch."""
        self.require_rule("encode", "has no latent map")
        batch = self.check(observation)
        latents = self.rule("encode", batch)
        return latents[0] if batch.single else latents

    def encode_goal(self, goal: Batch) -> np.ndarray:
        """phi of one checked goal, [1, dim]; a backend may do so by the program that acts on the way there."""
        return self.rule("encode", goal)

    def encode_all(self, rows: Tree, numbers: np.ndarray | None = None) -> np.ndarray:
        """phi of any number of rows, or of these; images in blocks, because they take more memory than latents."""
        self.require_rule("encode", "has no latent map")
        if not self.spec.parts:
            return self.rule("encode", Batch(self.check(rows if numbers is None else rows[numbers]).tree, False))
        count = trees.rows(rows) if numbers is None else len(numbers)
        blocks: list[Any] = [slice(first, first + BLOCK) for first in range(0, max(1, count), BLOCK)]
        wanted = blocks if numbers is None else [numbers[block] for block in blocks]
        return np.concatenate([self.encode(trees.over(lambda part, at=at: part[at], rows)) for at in wanted])

    def goal_direction(self, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        """The skill that moves from one latent to another; 0 where they are the same to within rounding errors."""
        self.require_rule("goal_direction", "has no goal rule")
        apart = np.linalg.norm(np.asarray(there) - np.asarray(here), axis=-1, keepdims=True)
        return np.where(apart > AT_GOAL, self.rule("goal_direction", here, there), np.float32(0.0))

    def distance(self, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        """From one latent to another, on the discounted scale of steps; leading axes are broadcast."""
        if self.has_rule("distance"):
            return self.rule("distance", here, there)
        return np.asarray(np.linalg.norm(np.asarray(there - here, np.float64), axis=-1))

    def goal_skill(self, goal: Any) -> np.ndarray:
        """The one skill that a goal stands for, of one goal or a batch."""
        self.require_rule("goal_skill", "has no goal rule")
        batch = self.check(goal)
        skills = self.rule("goal_skill", batch)
        return skills[0] if batch.single else skills

    def reward_features(self, observation: Any, following: Any) -> np.ndarray:
        """What rewards of transitions are expressed in: the cumulant, or the backward map of where they lead."""
        if self.has_rule("cumulant"):
            return self.cumulant(observation, following)
        return self.backward(following)

    def cumulant(self, observation: Any, following: Any) -> np.ndarray:
        """The features of transitions whose inner product with a skill is the reward that skill maximises."""
        self.require_rule("cumulant", "has no reward rule")
        return self.rule("cumulant", self.check(observation), self.check(following))

    def backward(self, following: Any) -> np.ndarray:
        """Features of states whose mean, weighted by a reward, is the skill of that reward."""
        self.require_rule("backward", "has no reward rule")
        return self.rule("backward", self.check(following))

    def project(self, z: np.ndarray) -> np.ndarray:
        """The valid skill in the direction of z, of one or a batch."""
        self.require_rule("project", "has no skill rule")
        z = np.asarray(z, np.float64)
        z = z / np.linalg.norm(z, axis=-1, keepdims=True)  # a direction has no scale, and float32 loses small ones
        return self.rule("project", z.astype(np.float32))

    @property
    def discount(self) -> float:
        """Of latent distances: they differ up to about 1 / (1 - discount) steps."""
        raise NotImplementedError

    # ---- what is kept of the data ------------------------------------------------------------------------------------

    @cached_property
    def data_range(self) -> DataRange:
        return DataRange(self.bank, self.observation_parts, self.transform)

    def latent_column(self, name: str) -> np.ndarray | None:
        """A column of the latent bank, of policies that have one."""
        return None if self.latent_bank is None else self.latent_bank.encoded.get(name)

    @cached_property
    def bank_latents(self) -> np.ndarray:
        """phi of the observations of the bank."""
        return self.encode_all(self.bank.observations)

    @cached_property
    def midpoints(self) -> Midpoints:
        """Latents of the kept data states, for planning."""
        kept = self.latent_column("latents")
        latents = self.bank_latents if kept is None else kept
        return DirectedMidpoints(latents, self.distance) if self.has_rule("distance") else Midpoints(latents)

    @cached_property
    def planner(self) -> GraphPlanner:
        """The graph of the data, for planning. Without one from training, that of the bank's own transitions."""
        drawn = self.graph
        if drawn is None:
            kept = self.latent_column("next_latents")
            following = self.encode_all(self.bank.next_observations) if kept is None else kept
            pairs = np.stack([self.midpoints.latents, following], axis=1).reshape(-1, following.shape[1])
            drawn = graph.build(self.midpoints.latents, pairs, np.full(len(following), 2), self.discount)
        return GraphPlanner(drawn, self.midpoints, self.discount)


def has_graph(policy: Agent) -> bool:
    """Whether a policy has what a graph of its data is made of."""
    return policy.has_rule("goal_direction") and policy.has_rule("discount") and len(policy.bank) > 0


def require_graph(policy: Agent) -> None:
    """Raise unless a policy has what a graph of its data is made of."""
    policy.require_rule("goal_direction", "has no latent distances, so it has no graph of its data: use plan=0")
    policy.require_rule("discount", "does not say how far its distances reach, so it has no graph of its data")
    if not len(policy.bank):
        raise HilpError("this policy was saved without a bank of states, so it has no graph of its data: use plan=0")
