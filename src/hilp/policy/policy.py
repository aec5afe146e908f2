"""FoundationPolicy: what training leaves behind. A folder with config.json, weights and a bank of data states."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from hilp import storage
from hilp.errors import HilpError, PromptUnsupported
from hilp.learning import methods
from hilp.policy import planning
from hilp.policy.bank import Bank
from hilp.policy.preparation import Preparation
from hilp.policy.provenance import Provenance
from hilp.runs import CONFIG, find
from hilp.spec import Spec
from hilp.versions import versions

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset, Parts
    from hilp.policy.prompts import GoalPrompt, Prompt, SkillPrompt

FORMAT = "hilp-policy"
FORMAT_VERSION = 1
WEIGHTS, BANK = "weights.safetensors", "bank.safetensors"
IDENTITY = ("method", "config", "spec", "preparation")  # what the fingerprint covers beside the weights


@cache
def _compiled(rule: str, structure: Any) -> Callable[..., jax.Array]:
    """A rule of exported policies of this structure, e.g. their `encode`, as a function of their arrays.

    The arrays come as a list because jax takes a list apart much faster than a tree of modules.
    """
    return jax.jit(lambda leaves, *arguments: getattr(jax.tree.unflatten(structure, leaves), rule)(*arguments))


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
    ):
        self.method = methods.name_of(config)
        self.config = config
        self.spec = spec
        self.core = core
        self.preparation = preparation
        self.bank = bank
        self.observation_parts = observation_parts
        self.provenance = provenance or Provenance()

    # ---- using it ----------------------------------------------------------------------------------------------------

    def act(self, observation: Any, prompt: Prompt | np.ndarray) -> np.ndarray:
        """The action for one observation or a batch, under a prompt or a skill vector."""
        observations, single = self._observations(observation)
        if callable(prompt):
            self._require_own(prompt)
            z = prompt(observations)
        else:
            z = np.asarray(prompt, np.float32)
        wanted = (len(observations), self.skill_dim)
        if z.shape not in (wanted[1:], wanted):
            raise HilpError(f"a skill of this policy has {self.skill_dim} numbers (a batch {wanted}), not {z.shape}")
        z = np.broadcast_to(z, wanted)
        p = self.preparation
        action = p.action_center + p.action_half_range * self._apply("act", self._normalised(observations), z)
        return action[0] if single else action

    def encode(self, observation: Any) -> np.ndarray:
        """phi of one observation or a batch."""
        self.require_rule("encode", "has no latent map")
        observations, single = self._observations(observation)
        latents = self._apply("encode", self._normalised(observations))
        return latents[0] if single else latents

    def cumulant(self, observation: np.ndarray, following: np.ndarray) -> np.ndarray:
        """The features of transitions whose inner product with a skill is the reward that skill maximises."""
        self.require_rule("cumulant", "has no reward rule")
        first, _ = self._observations(observation)
        second, _ = self._observations(following)
        return self._apply("cumulant", self._normalised(first), self._normalised(second))

    def direct(self, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        """The skill that moves from one latent to another."""
        self.require_rule("direct", "has no goal rule")
        return self._apply("direct", here, there)

    def aim(self, goal: Any) -> np.ndarray:
        """The one skill that a goal stands for, of one goal or a batch."""
        self.require_rule("aim", "has no goal rule")
        goals, single = self._observations(goal)
        skills = self._apply("aim", self._normalised(goals))
        return skills[0] if single else skills

    def backward(self, following: np.ndarray) -> np.ndarray:
        """Features of states whose mean, weighted by a reward, is the skill of that reward."""
        self.require_rule("backward", "has no reward rule")
        observations, _ = self._observations(following)
        return self._apply("backward", self._normalised(observations))

    def project(self, z: np.ndarray) -> np.ndarray:
        """The valid skill in the direction of z."""
        self.require_rule("project", "has no skill rule")
        z = np.asarray(z, np.float64)
        z = z / np.linalg.norm(z, axis=-1, keepdims=True)  # a direction has no scale, and float32 loses small ones
        return np.asarray(self.core.project(z.astype(np.float32)))

    @property
    def skill_dim(self) -> int:
        return int(self.core.skill_dim)

    @property
    def discount(self) -> float:
        """Of latent distances: they are told apart up to about 1 / (1 - discount) steps."""
        self.require_rule("direct", "does not learn distances")
        return float(self.core.discount)

    @cached_property
    def midpoints(self) -> planning.Midpoints:
        """Latents of the kept data states, for planning."""
        return planning.Midpoints(self.encode(self.bank.observations))

    # ---- prompts -----------------------------------------------------------------------------------------------------

    def goal(
        self, goal: Any, plan: int | str = 0, best: int = planning.BEST, radius: float | None = None
    ) -> GoalPrompt:
        """Reach a goal observation. `plan` is the number of midpoint recursions, or "auto".

        radius: `auto` recurses until the subgoal is within so many latent steps; a share of phi's horizon if not given.
        """
        from hilp.policy import prompts

        return prompts.goal(self, goal, plan, best, radius)

    def reward(
        self,
        data: Dataset | tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
        function: Callable[..., np.ndarray] | str | None = None,
        samples: int = 10_000,
        seed: int = 0,
        rule: str = "skill",
        intercept: bool = False,
    ) -> Prompt:
        """Maximise a reward: a vectorised function of (s, a, s'), a formula, or a table (s, s', r) of labelled samples.

        A formula such as "height - 0.1*norm(action)" names parts of the observation at s' (see hilp.expressions).

        The function is asked about transitions of `data`, or, without a data set, of the policy's own bank. It may take
        a fourth argument for named extra columns: x.before("qpos") at s, x.after("qpos") at s'; the bank keeps the
        column `physics` only. rule="goal" makes the state of highest reward the goal (HILP-G) instead of finding the
        skill that follows the reward; methods without a reward rule do so always. intercept=True fits a constant beside
        the features, so that adding one to the reward changes nothing.
        """
        from hilp.policy import prompts

        return prompts.reward(self, data, function, samples, seed, rule, intercept)

    def skill(self, z: Any = None, seed: int = 0) -> SkillPrompt:
        """Follow one latent direction, given or random."""
        from hilp.policy import prompts

        return prompts.skill(self, z, seed)

    def load_prompt(self, path: str | os.PathLike[str]) -> Prompt:
        """A prompt saved earlier for this very policy."""
        from hilp.policy import prompts

        return prompts.load(self, Path(path))

    # ---- on disk -----------------------------------------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """Hash of method, config, preparation and weights: equal policies have equal fingerprints."""
        return _fingerprint(self._identity(), storage.flatten(self.core))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the folder; config.json comes last, so a folder that has one is complete."""
        folder = Path(path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / CONFIG).unlink(missing_ok=True)
        except OSError as error:
            raise HilpError(f"cannot write {folder}: {error.strerror or error}") from error
        storage.write_arrays(folder / WEIGHTS, storage.flatten(self.core))
        bank = {f.name: getattr(self.bank, f.name) for f in dataclasses.fields(Bank)}
        storage.write_arrays(folder / BANK, {name: column for name, column in bank.items() if column is not None})
        description = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            **self._identity(),
            "fingerprint": self.fingerprint,
            "observation_parts": [[name, list(shape)] for name, shape in self.observation_parts],
            "origin": {"versions": versions(), **self.provenance.to_json()},
        }
        storage.write_json(folder / CONFIG, description)
        return folder

    @staticmethod
    def load(path: str | os.PathLike[str]) -> FoundationPolicy:
        """A policy from its folder, or from the folder of the run that trained it."""
        folder = find(Path(path))
        try:
            description = json.loads((folder / CONFIG).read_text())
        except (OSError, ValueError) as error:
            raise HilpError(f"{folder / CONFIG} is damaged ({error}): restore it from a copy") from error
        if not isinstance(description, dict) or description.get("format") != FORMAT:
            raise HilpError(f"{folder / CONFIG} is not the config of a hilp policy")
        if description.get("version") != FORMAT_VERSION:
            raise HilpError(
                f"{folder} has format version {description.get('version')}, this hilp reads {FORMAT_VERSION}"
            )
        lacking = [key for key in (*IDENTITY, "fingerprint", "origin") if key not in description]
        if lacking:
            raise HilpError(f"{folder / CONFIG} is incomplete (no '{lacking[0]}'): restore it from a copy")
        arrays, _ = storage.read_arrays(folder / WEIGHTS)
        # Before anything is built from the config, which would fail in its own way on a changed value.
        if _fingerprint({key: description[key] for key in IDENTITY}, arrays) != description["fingerprint"]:
            raise HilpError(f"{folder}: {CONFIG} or {WEIGHTS} was changed (fingerprints differ): restore a copy")
        try:
            module = methods.module(description["method"])
            config = methods.revived(description["method"], description["config"])
            module = methods.of(config)
            spec = Spec(**description["spec"])
            preparation = Preparation(**{k: np.asarray(v, np.float32) for k, v in description["preparation"].items()})
            like = jax.eval_shape(lambda: module.export(config, module.init(config, spec, jax.random.key(0))))
            provenance = Provenance.from_json(dict(description["origin"]))
            parts = tuple((str(n), tuple(map(int, shape))) for n, shape in description.get("observation_parts", []))
        except (AttributeError, TypeError, ValueError) as error:
            raise HilpError(f"{folder / CONFIG} does not describe a policy ({error}): restore a copy") from error
        core = storage.unflatten(like, arrays, folder / WEIGHTS)
        return FoundationPolicy(config, spec, core, preparation, _read_bank(folder / BANK, spec), provenance, parts)

    def _put_together(self, parts: Mapping[str, Any]) -> np.ndarray:
        """An observation (or a batch) from its named parts, in the order of the data; others are left."""
        known = dict(self.observation_parts)
        if not known:
            raise HilpError("the data of this policy had no named parts: give an observation as one array")
        for name in (name for name in known if name not in parts):
            raise HilpError(f"this policy's observation is made of {', '.join(known)}, and '{name}' is not given")
        try:
            arrays = [np.asarray(parts[name], np.float32) for name in known]
        except (TypeError, ValueError) as error:
            raise HilpError(f"the parts of an observation must be numbers: {error}") from error
        if all(array.shape == shape for array, shape in zip(arrays, known.values(), strict=True)):
            return np.concatenate([array.reshape(-1) for array in arrays])
        counts = {array.shape[:1] for array in arrays}
        if len(counts) > 1 or any(a.ndim == 0 or a.shape[1:] != s for a, s in zip(arrays, known.values(), strict=True)):
            raise HilpError(f"the parts of an observation have the shapes {known}, or one more axis for a batch")
        return np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1)

    @cached_property
    def _leaves(self) -> list[Any]:
        return jax.tree.leaves(self.core)

    @cached_property
    def _rules(self) -> dict[str, Callable[..., jax.Array]]:
        return {}

    def _apply(self, rule: str, *arguments: np.ndarray) -> np.ndarray:
        if rule not in self._rules:
            self._rules[rule] = _compiled(rule, jax.tree.structure(self.core))
        return np.asarray(self._rules[rule](self._leaves, *arguments))

    def _normalised(self, observations: np.ndarray) -> np.ndarray:
        return (observations - self.preparation.mean) / self.preparation.scale

    def _identity(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "config": methods.described(self.config),
            "spec": dataclasses.asdict(self.spec),
            "preparation": {k: v.tolist() for k, v in dataclasses.asdict(self.preparation).items()},
        }

    def _observations(self, observation: Any) -> tuple[np.ndarray, bool]:
        """As a batch, and whether a single one was given."""
        if isinstance(observation, Mapping):
            observation = self._put_together(observation)
        try:
            array = np.asarray(observation, np.float32)
        except (TypeError, ValueError) as error:
            raise HilpError(f"an observation must be numbers: {error}") from error
        wanted = self.spec.observation_dim
        if array.ndim not in (1, 2) or array.shape[-1] != wanted:
            raise HilpError(
                f"this policy takes observations of {wanted} numbers (or batches [n, {wanted}]), not {array.shape}"
            )
        if not np.isfinite(array).all():
            raise HilpError("the observation holds a NaN or an infinity")
        return (array[None], True) if array.ndim == 1 else (array, False)

    def _require_own(self, prompt: Prompt) -> None:
        if prompt.fingerprint != self.fingerprint:
            raise HilpError(
                f"this prompt was made for policy {prompt.fingerprint[:8]}, not for this one ({self.fingerprint[:8]}): "
                "make it again with this policy"
            )

    def has_rule(self, rule: str) -> bool:
        """Whether the method behind this policy has a rule (see hilp.methods)."""
        return hasattr(self.core, rule)

    def require_rule(self, rule: str, lacking: str) -> None:
        """Raise unless the method behind this policy has a rule."""
        if not self.has_rule(rule):
            raise PromptUnsupported(f"{self.method} {lacking}")


def _fingerprint(identity: dict[str, Any], weights: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
    digest.update(storage.checksum(weights).encode())
    return digest.hexdigest()[:32]


def _read_bank(path: Path, spec: Spec) -> Bank:
    arrays, _ = storage.read_arrays(path)
    sizes = {
        "observations": spec.observation_dim,
        "actions": spec.action_dim,
        "next_observations": spec.observation_dim,
    }
    count = len(arrays["observations"]) if "observations" in arrays else 0
    if "next_physics" in arrays:
        sizes["next_physics"] = arrays["next_physics"].shape[-1]
    if {name: array.shape for name, array in arrays.items()} != {name: (count, size) for name, size in sizes.items()}:
        raise HilpError(f"{path} is not the bank of this policy: restore it from a copy")
    return Bank(**arrays)
