"""FoundationPolicy: what training leaves behind, and how it is used. `artifact` is its folder."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hilp import runs, storage
from hilp.data.dataset import Dataset
from hilp.data.transforms import Parts
from hilp.learning import methods
from hilp.policy import artifact
from hilp.policy.artifact import Provenance
from hilp.policy.preparation import Preparation
from hilp.policy.rules import Rules, require_own_process
from hilp.prompts import files, graph
from hilp.prompts.agent import require_graph
from hilp.prompts.bank import Bank, LatentBank
from hilp.prompts.base import Packed
from hilp.prompts.graph import Graph
from hilp.prompts.observations import Batch
from hilp.prompts.promptable import PromptablePolicy
from hilp.spec import Spec
from hilp.trees import Tree


class FoundationPolicy(PromptablePolicy):
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
        self.stride = preparation.stride
        self.transform = preparation.transform
        self.skill_horizon = getattr(core, "skill_horizon", None)
        self.skill_dim = int(core.skill_dim)
        self._has: dict[str, bool] = {}  # rules that were looked for

    # ---- the method's rules ------------------------------------------------------------------------------------------

    def rule(self, name: str, *inputs: Any) -> np.ndarray:
        prepare = self.preparation.observations
        arguments = [one.prepared(prepare) if isinstance(one, Batch) else one for one in inputs]
        if name == "act_towards":  # by the program that encodes the goal: see act_and_encode
            return self.preparation.actions(np.asarray(self._rules.on_device("act_and_encode", *arguments)[0]))
        if name == "project":  # a handful of numbers: compiling costs more
            require_own_process()
            return np.asarray(self.core.project(*arguments))
        found = self._rules(name, *arguments)
        return self.preparation.actions(found) if name.startswith("act") else found

    def has_rule(self, name: str) -> bool:
        """Whether the method behind this policy has a rule (see hilp.learning.methods)."""
        if name not in self._has:  # kept, because Equinox wraps a method anew each time that it is looked up
            self._has[name] = hasattr(self.core, name)
        return self._has[name]

    @cached_property
    def _rules(self) -> Rules:
        return Rules(self.core)

    @property
    def discount(self) -> float:
        """Of latent distances: they differ up to about 1 / (1 - discount) steps."""
        self.require_rule("discount", "does not say how far its distances reach")
        return float(self.core.discount)

    def encode_goal(self, goal: Batch) -> np.ndarray:
        """The latent [1, dim] of one goal, by the program that acts on the way there."""
        prepared = goal.prepared(self.preparation.observations)
        width = jax.eval_shape(lambda rows: self.core.encode(rows), prepared).shape[-1]
        return np.asarray(self._rules.on_device("act_and_encode", prepared, np.zeros((1, width), np.float32))[1])

    def skill_of(self, observations: Tree, actions: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """The skills that segments followed: rows n x (k + 1), actions n x k between them, the first `steps` real."""
        self.require_rule("skill_of", "cannot name the skill of a segment")
        inside = (actions - self.preparation.action_center) / self.preparation.action_half_range
        return self._rules("skill_of", self.preparation.observations(observations), inside.astype(np.float32), steps)

    def high_level(self, arrays: Mapping[str, np.ndarray], note: Mapping[str, Any], path: Path) -> HighLevel:
        """The high level of a saved hierarchy; KeyError, TypeError or ValueError where it is something else."""
        config, spec, preparation, like = artifact.parse_description(note, arrays)
        if spec.parts != self.spec.parts or spec.observation_dim != self.spec.observation_dim:
            raise ValueError("its observations are not those of the policy")
        if spec.action_dim != self.skill_dim:
            raise ValueError(f"it gives {spec.action_dim} numbers, a skill has {self.skill_dim}")
        return HighLevel(config, spec, storage.unflatten(like, arrays, path), preparation, dict(note["about"]))

    def load_prompt(self, path: str | os.PathLike[str]) -> Any:
        """A prompt saved earlier for this very policy, or the folder in which its high level was trained."""
        found = Path(path)
        return files.load(self, runs.find_prompt(found) if found.is_dir() else found)

    # ---- what it keeps of its data -----------------------------------------------------------------------------------

    def with_graph(self, data: Dataset, seed: int = 0) -> FoundationPolicy:
        """This policy with the graph of trajectories, as training leaves it: for policies that have none."""
        require_graph(self)
        rows, lengths = graph.trajectories(data.lengths, seed)
        latents = self.encode_all(data.observations, rows)
        return self._with(graph=graph.build(self.midpoints.latents, latents, lengths, self.discount, seed))

    def with_latents(self, data: Dataset, count: int, seed: int = 0) -> FoundationPolicy:
        """This policy with latents of more transitions than it keeps pictures of, as training leaves it."""
        drawn = LatentBank.draw(self, data, count, seed) if self.spec.pictures else None
        return self if drawn is None else self._with(latent_bank=drawn)

    def _with(self, **changed: Any) -> FoundationPolicy:
        return FoundationPolicy(**{**self._contents().fields(), **changed})

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
        return FoundationPolicy(**artifact.load(path).fields())

    def _contents(self) -> artifact.Contents:
        return artifact.Contents(**{f.name: getattr(self, f.name) for f in dataclasses.fields(artifact.Contents)})


@dataclasses.dataclass(frozen=True)
class HighLevel:
    """pi(z | s): trained by `iql` on segments, whose actions are skills. Observations and skills in their own units."""

    config: Any
    spec: Spec  # its actions are skills
    core: Any  # the method's export
    preparation: Preparation
    about: dict[str, Any] = dataclasses.field(default_factory=dict)  # reward, data, updates, seed, ...: plain values

    @property
    def k(self) -> int:
        return int(self.config.k)

    @property
    def steps(self) -> int:
        """That a skill is held, in rows of the user's log."""
        return self.k * self.preparation.stride

    @cached_property
    def _rules(self) -> Rules:
        return Rules(self.core)

    def skills(self, batch: Batch) -> np.ndarray:
        """The mean of pi(z | s) for a batch."""
        nothing = np.zeros((len(batch), 0), np.float32)
        return self.preparation.actions(self._rules("act", self.preparation.observations(batch.tree), nothing))

    def packed(self) -> Packed:
        return storage.flatten(self.core), artifact.describe(self)

    def settings(self) -> dict[str, Any]:
        """A high level as plain values, for rows."""
        return {"config": dataclasses.asdict(self.config), **self.about}
