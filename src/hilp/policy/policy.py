"""FoundationPolicy: what training leaves behind, and how it is used. `artifact` is its folder.

Rules of a method's export (hilp.learning.methods) are compiled once for all exports of the same structure. What a
controller needs at every step is put together of several rules (`COMBINED`) in one compiled call: for a single
observation the way into a compiled program and back costs more than what the program does.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hilp import compiler, runs, storage, trees
from hilp.data import chance
from hilp.data.dataset import Dataset
from hilp.data.transforms import Parts
from hilp.errors import HilpError, place_of
from hilp.learning import methods
from hilp.policy import artifact, places
from hilp.policy.artifact import Provenance
from hilp.policy.preparation import Preparation
from hilp.prompts import graph, value_graph
from hilp.prompts.agent import AT_GOAL, Batch, require_ways
from hilp.prompts.bank import Bank, LatentBank
from hilp.prompts.base import Packed
from hilp.prompts.graph import Graph
from hilp.prompts.promptable import PromptablePolicy
from hilp.prompts.skills import PRIOR_STEPS, steps_of_a_skill
from hilp.spec import Spec
from hilp.trees import Tree

compiler.keep_flags_here()
SEGMENTS = 512  # whose skills are named at a time
_lost = False  # whether this process was forked after JAX had started


def require_own_process() -> None:
    """Raise, instead of hanging, in a child that was forked after JAX had started: its threads are not there."""
    if _lost:
        raise HilpError(
            "JAX does not survive a fork, and this process was forked after JAX had started: start processes with "
            "'spawn', e.g. multiprocessing.get_context('spawn')"
        )


def _after_fork_in_child() -> None:
    global _lost
    _lost = _lost or compiler.started()  # a child forked before that can start its own threads


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def act_between(core: Any, observation: Tree, here: jax.Array, there: jax.Array) -> jax.Array:
    """The action that moves from one latent to another."""
    apart = jnp.linalg.norm(there - here, axis=-1, keepdims=True)
    return core.act(observation, jnp.where(apart > AT_GOAL, core.goal_direction(here, there), 0.0))


def act_towards(core: Any, observation: Tree, there: jax.Array) -> jax.Array:
    """The action that moves towards a latent."""
    return act_and_encode(core, observation, there)[0]


def act_and_encode(core: Any, observation: Tree, there: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The action that moves towards a latent, and the latent of where it is: a goal is encoded by the program of a
    step, so that a controller compiles one program and no more before it acts.
    """
    here = core.encode(observation)
    return act_between(core, observation, here, there), here


COMBINED: dict[str, Callable[..., Any]] = {one.__name__: one for one in (act_between, act_towards, act_and_encode)}


def apply_rule(core: Any, rule: str, *arguments: Any) -> Any:
    """What a rule of an export, or one put together of several, gives."""
    return COMBINED[rule](core, *arguments) if rule in COMBINED else getattr(core, rule)(*arguments)


@cache
def _compiled(rule: str, structure: Any) -> Callable[..., Any]:
    """A rule of exports of this structure, e.g. their `encode`, as a function of their arrays.

    The arrays come as a list because jax takes a list apart much faster than a tree of modules.
    """

    def run(leaves: list[jax.Array], *arguments: Any) -> Any:
        return apply_rule(jax.tree.unflatten(structure, leaves), rule, *arguments)

    return jax.jit(run)


def _rules_of(core: Any) -> Callable[..., Any]:
    """The rules of one export, by name, as functions of arrays: `rules("encode", observations)`, as JAX has it."""
    leaves, structure = jax.tree.flatten(core)
    known: dict[str, Callable[..., Any]] = {}

    def run(rule: str, *arguments: Any) -> Any:
        require_own_process()
        if rule not in known:
            known[rule] = _compiled(rule, structure)
        return known[rule](leaves, *arguments)

    return run


def require_policy(policy: Any) -> None:
    """Raise where this is something else than a policy."""
    if not hasattr(policy, "has_rule"):
        raise HilpError(f"a policy comes from hilp.pretrain or FoundationPolicy.load, not {policy!r:.60}")


@dataclass(eq=False, repr=False)
class FoundationPolicy(PromptablePolicy):
    """A trained policy that takes prompts. Observations and actions are those of the user's data, not normalised."""

    config: Any
    spec: Spec
    core: Any  # the method's export
    preparation: Preparation
    bank: Bank
    provenance: Provenance = field(default_factory=Provenance)
    observation_parts: Parts = ()  # named parts of one flat vector
    graph: Graph | None = None  # of the data that it was trained on; methods without distances have none
    latent_bank: LatentBank | None = None  # of policies that see pictures, where the bank cannot hold all transitions

    def __post_init__(self) -> None:
        self.method = methods.name_of(self.config)
        self.stride = self.preparation.stride
        self.transform = self.preparation.transform
        self.skill_horizon = getattr(self.core, "skill_horizon", None)
        self.chunk, self.play = getattr(self.core, "chunk", 1), getattr(self.core, "play", 1)
        self.known_discount = getattr(self.core, "discount", None)
        self.skill_dim = int(self.core.skill_dim)
        self._has: dict[str, bool] = {}  # rules that were looked for

    def rule(self, name: str, *inputs: Any) -> np.ndarray:
        prepare = self.preparation.observations
        arguments = [one.prepared(prepare) if isinstance(one, Batch) else one for one in inputs]
        if name == "act_towards":  # by the program that encodes the goal: see act_and_encode
            return self.preparation.answers(np.asarray(self._rules("act_and_encode", *arguments)[0]))
        if name == "project":  # a handful of numbers: compiling costs more
            require_own_process()
            return np.asarray(self.core.project(*arguments))
        found = np.asarray(self._rules(name, *arguments))
        return self.preparation.answers(found) if name.startswith("act") else found

    def has_rule(self, name: str) -> bool:
        if name not in self._has:  # kept, because Equinox wraps a method anew each time that it is looked up
            self._has[name] = hasattr(self.core, name)
        return self._has[name]

    @cached_property
    def _rules(self) -> Callable[..., Any]:
        return _rules_of(self.core)

    def encode_goal(self, goal: Batch) -> np.ndarray:
        """The latent [1, dim] of one goal, by the program that acts on the way there."""
        prepared = goal.prepared(self.preparation.observations)
        width = jax.eval_shape(lambda rows: self.core.encode(rows), prepared).shape[-1]
        return np.asarray(self._rules("act_and_encode", prepared, np.zeros((1, width), np.float32))[1])

    def skill_of(self, observations: Tree, actions: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """The skills that segments followed: rows n x (k + 1), actions n x k between them, the first `steps` real."""
        self.require_rule("skill_of", "cannot name the skill of a segment")
        seen, inside = self.preparation.observations(observations), self.preparation.inside(actions)
        return np.asarray(self._rules("skill_of", seen, inside, steps))

    def high_level(self, arrays: Mapping[str, np.ndarray], note: Mapping[str, Any], path: Path) -> "HighLevel":
        """The high level of a saved hierarchy; KeyError, TypeError or ValueError where it is something else."""
        config, spec, preparation, like = artifact.parse_description(note, arrays)
        if spec.parts != self.spec.parts or spec.observation_dim != self.spec.observation_dim:
            raise ValueError("its observations are not those of the policy")
        if spec.action_dim != self.skill_dim:
            raise ValueError(f"it gives {spec.action_dim} numbers, a skill has {self.skill_dim}")
        return HighLevel(config, spec, storage.unflatten(like, arrays, path), preparation, dict(note["about"]))

    def load_prompt(self, path: str | os.PathLike[str]) -> Any:
        """A prompt saved earlier for this very policy, or the folder in which its high level was trained."""
        found = place_of("the path of a prompt", path)
        return super().load_prompt(runs.find_prompt(found) if found.is_dir() else found)

    def with_graph(self, data: Dataset, seed: int = 0) -> "FoundationPolicy":
        """This policy with the graph of trajectories, as training leaves it: for policies that have none."""
        require_ways(self)
        most = value_graph.MOST_ROWS if self.plans_by_steps else graph.MOST_ROWS
        rows, lengths = graph.trajectories(data.lengths, seed, most)
        slower = chance.of_dataset(data).slower
        drawn = self.drawn(self.encode_all(data.observations, rows), lengths, seed, slower)
        return dataclasses.replace(self, graph=drawn)

    def with_skills(self, data: Dataset, seed: int = 0) -> "FoundationPolicy":
        """This policy with the skills of the segments that its bank begins, where its skills are those of segments."""
        if self.skill_horizon is None or not self.has_rule("skill_of") or not len(self.bank):
            return self
        skills = self.segment_skills(data, Bank.rows(data, len(self.bank), seed))
        return dataclasses.replace(self, bank=dataclasses.replace(self.bank, skills=skills))

    def segment_skills(self, data: Dataset, rows: np.ndarray) -> np.ndarray:
        """[n, dim]: the skills of the data's segments that begin in these rows, or of what their episodes leave."""
        if self.stride != (data.stride or 1):
            raise HilpError(f"steps of this policy span {self.stride} rows, of {data.name} {data.stride or 1}: leave "
                            "it out, and the policy's own bank is used")  # fmt: skip
        k = steps_of_a_skill(self, None, PRIOR_STEPS)
        last = (data.starts + data.lengths - 1)[np.searchsorted(data.starts, rows, side="right") - 1]
        found = []
        for first in range(0, len(rows), SEGMENTS):
            at, end = (one[first : first + SEGMENTS] for one in (rows, last))
            segments = np.minimum(at[:, None] + np.arange(k + 1), end[:, None])
            seen = trees.over(lambda part, wanted=segments: np.asarray(part[wanted]), data.observations)
            seen = seen if self.spec.parts else np.asarray(seen, np.float32)
            found.append(self.skill_of(seen, data.acted(segments[:, :-1]), np.minimum(end - at, k)))
        return np.concatenate(found).astype(np.float32)

    def with_latents(self, data: Dataset, count: int, seed: int = 0) -> "FoundationPolicy":
        """This policy with latents of more transitions than it keeps pictures of, as training leaves it."""
        drawn = LatentBank.draw(self, data, count, seed) if self.spec.pictures else None
        return self if drawn is None else dataclasses.replace(self, latent_bank=drawn)

    @property
    def keeps(self) -> str:
        """What it keeps of its data, for people."""
        kept, more = list(self.bank.columns().values()), ""
        if self.latent_bank is not None:
            kept += self.latent_bank.columns().values()
            small = len(self.latent_bank.thumbnails)
            more = f" whole, latents of {len(self.latent_bank):,}" + (f", {small:,} thumbnails" if small else "")
        return f"{len(self.bank):,} transitions{more}: {sum(one.nbytes for one in kept) / 2**20:.0f} MB"

    @cached_property
    def fingerprint(self) -> str:
        """Hash of method, config, preparation, weights and bank: equal policies have equal fingerprints."""
        kept = [part.columns() for part in (self.bank, self.graph, self.latent_bank) if part is not None]
        return artifact.fingerprint(artifact.describe(self), storage.flatten(self.core), *kept)

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
        return artifact.save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "FoundationPolicy":
        """A policy from its folder, or from that of the run that trained it; zoo:NAME is one that comes with hilp, and
        hf://USER/NAME one of the Hub, which is downloaded (pip install 'hilp[hub]'), at a revision with @REVISION.
        """
        require_own_process()
        return FoundationPolicy(**artifact.load(places.find(path).folder))


@dataclass(frozen=True)
class HighLevel:
    """pi(z | s): trained by `iql` on segments, whose actions are skills. Observations and skills in their own units."""

    config: Any
    spec: Spec  # its actions are skills
    core: Any  # the method's export
    preparation: Preparation
    about: dict[str, Any] = field(default_factory=dict)  # reward, data, updates, seed, ...: plain values

    @property
    def k(self) -> int:
        return int(self.config.k)

    @property
    def steps(self) -> int:
        """That a skill is held, in rows of the user's log."""
        return self.k * self.preparation.stride

    @cached_property
    def _rules(self) -> Callable[..., Any]:
        return _rules_of(self.core)

    def skills(self, batch: Batch) -> np.ndarray:
        """The mean of pi(z | s) for a batch."""
        nothing = np.zeros((len(batch), 0), np.float32)
        found = self._rules("act", self.preparation.observations(batch.tree), nothing)
        return self.preparation.answers(np.asarray(found))

    def packed(self) -> Packed:
        return storage.flatten(self.core), artifact.describe(self)

    def settings(self) -> dict[str, Any]:
        """A high level as plain values, for rows."""
        return {"config": dataclasses.asdict(self.config), **self.about}
