"""Diagnosis: how well |phi(s) - phi(g)| fits the number of steps from s to g.

Against exact distances where the task knows them. Where there is only data, against a value V(s, g) of its own network,
which is no metric and so can say what a metric cannot.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hilp import storage, tasks, trees
from hilp.data import chance, timescale
from hilp.data.dataset import Dataset, require_dataset
from hilp.errors import HilpError, require_count, require_seed
from hilp.evaluation import theory
from hilp.learning import methods
from hilp.learning.methods import monolithic
from hilp.policy import listening
from hilp.policy.policy import FoundationPolicy, require_policy
from hilp.policy.preparation import Preparation
from hilp.tasks import rendering
from hilp.training import loop
from hilp.training.hierarchy import as_trained
from hilp.training.options import TrainOptions
from hilp.training.run import as_numbers
from hilp.versions import versions

STEPS = 5_000  # updates of V(s, g)
PAIRS = 20_000  # random pairs of data states that phi and V are compared on
BLOCK = 4096  # of them at a time, where an observation may hold images
VALUE, VALUE_WEIGHTS = "value.json", "weights.safetensors"  # a V(s, g) that is kept
Numbers = dict[str, Any]
_values = jax.jit(monolithic.Value.values)


def diagnose(
    policy: FoundationPolicy,
    task: str | tasks.Task | None = None,
    data: Dataset | None = None,
    *,
    steps: int = STEPS,
    pairs: int = PAIRS,
    seed: int = 0,
    config: monolithic.Config | None = None,
    quiet: bool = False,
) -> Numbers:
    """Numbers about a policy's distances, ready for JSON; `explain.explain_diagnosis` says what they mean.

    `exact` is there for a task with exact distances (by default the task that the policy's data was collected in).
    `learned` is there when data is given: a value V(s, g) is trained on it for `steps` updates (`config`, by default
    the sizes and the discount of the policy) and compared on random `pairs` of its states. `listening` is there for
    policies that take prompts; of one without distances it is all that there is.
    """
    require_policy(policy)
    if data is not None:
        require_dataset(data)
    result = about(policy, seed)
    if not policy.has_rule("goal_direction"):
        if "listening" not in result:
            raise HilpError(f"{policy.method} does not learn distances: there is nothing to compare with steps")
        return result
    steps, pairs, seed = require_count("steps", steps), require_count("pairs", pairs, 2), require_seed(seed)
    if task is None and data is None:
        task = policy.provenance.task
    world: Any = tasks.make(task) if isinstance(task, str) else task
    if world is not None and not hasattr(world, "finite"):
        raise HilpError(f"a task is a name or an object as hilp.make_task gives it, not {task!r:.60}")
    finite = None if world is None else world.finite()
    if finite is None and data is None:
        reason = "no task is known" if world is None else f"{world.name} has no exact distances"
        raise HilpError(f"nothing to compare the policy with: {reason}; pass the data it was trained on (--data)")
    result |= {
        "discount": policy.discount,
        "expectile": policy.settings.get("phi_expectile"),
        "seed": seed,
        "directed": policy.has_rule("distance"),
    }
    if finite is not None:
        latents, distance = exact_inputs(policy, world, finite)
        found = theory.examine(finite.successors, finite.steps, latents, policy.discount, seed=seed, distance=distance)
        result["exact"] = {"task": world.name, **found}
    if data is not None:
        data = as_trained(policy, data)
        result["chance"] = chance.of_dataset(data).line
        reference = Reference(data, config or value_config(policy.reference), steps, seed)
        learned = compare_with_value(policy, reference, reference.train(quiet), pairs)
        result["learned"] = {"data": data.name, "steps": steps, "pairs": pairs, **learned}
    return result


def about(policy: FoundationPolicy, seed: int = 0) -> Numbers:
    """Which policy it is, and whether its actor listens."""
    found = listening.listening(policy, require_seed(seed))
    return {
        "policy": policy.fingerprint,
        "method": policy.method,
        **({} if found is None else {"listening": found}),
    }


def training_summary(policy: FoundationPolicy, data: Dataset | None = None) -> Numbers:
    """How a policy was trained, so that advice does not repeat what was done."""
    return {
        "discount": policy.discount,
        "normalize": policy.settings.get("normalize", True),
        "stride": policy.preparation.stride,
        "scale": None if data is None or (data.stride or 1) > 1 else asdict(timescale.of_dataset(data)),
        "moving": policy.provenance.moving,
        "updates": policy.provenance.steps,
    }


def value_config(values: Mapping[str, Any]) -> monolithic.Config:
    """V(s, g) by what a policy's `reference` names: its size, and the goals and the discount of its phi."""
    found: monolithic.Config = methods.configure(monolithic.Config(), dict(values))
    return found


@dataclass(frozen=True)
class Reference:
    """How a value V(s, g) comes about that policies are compared with."""

    data: Dataset
    config: monolithic.Config
    steps: int
    seed: int

    @property
    def identity(self) -> Numbers:
        """What tells this V from others, ready for JSON."""
        return {
            "config": methods.config_values(self.config),
            "data_fingerprint": self.data.fingerprint,
            "steps": self.steps,
            "seed": self.seed,
        }

    def train(self, quiet: bool) -> monolithic.Value:
        run = loop.prepare(self.config, self.data, TrainOptions(steps=self.steps, seed=self.seed, quiet=quiet))
        model: monolithic.Value = run.exports(loop.Session(run, "fitting V(s, g)").train()[0])[0]
        return model

    def train_once(self, folder: Path, quiet: bool, wait: bool = False) -> monolithic.Value:
        """The V that a folder keeps, trained there by one process at a time; wait: for another, instead of an error."""
        with storage.locked(folder, "training V(s, g)", wait=wait):
            weights = folder / VALUE_WEIGHTS
            if not weights.is_file():
                model = self.train(quiet)
                storage.write_json(folder / VALUE, {**self.identity, "data": self.data.name, "versions": versions()})
                storage.write_arrays(weights, storage.flatten(model))  # last: a folder that has them is complete
                return model
        spec = self.data.network_spec
        key = jax.random.key(0)
        like = jax.eval_shape(lambda: monolithic.export(self.config, monolithic.init(self.config, spec, key)))
        return storage.unflatten(like, storage.read_arrays(weights)[0], weights)


def compare_with_value(policy: FoundationPolicy, reference: Reference, model: monolithic.Value, pairs: int) -> Numbers:
    """Set |phi(s) - phi(g)| against -V(s, g); both are distances on the discounted scale."""
    data, seed = reference.data, reference.seed
    rng = np.random.default_rng(seed)
    first = rng.integers(data.rows, size=pairs)
    second = (first + rng.integers(1, data.rows, size=pairs)) % data.rows  # never the same row
    preparation = Preparation.of(data, reference.config.normalize)
    found = []
    block = BLOCK if isinstance(data.observations, Mapping) else pairs  # images are large
    for start in range(0, pairs, block):
        at = (rows[start : start + block] for rows in (first, second))
        s, g = (as_numbers(trees.over(lambda part, rows=rows: part[rows], data.observations)) for rows in at)
        prepared = [preparation.observations(rows) for rows in (s, g)]
        there = np.asarray(_values(model, *prepared), np.float64)  # ensemble x pairs
        back = np.asarray(_values(model, *prepared[::-1]), np.float64)
        latent = policy.distance(policy.encode(s), policy.encode(g)).astype(np.float64)
        found.append((there, back, latent))
    there, back, latent = (np.concatenate(blocks, axis=-1) for blocks in zip(*found, strict=True))
    size = np.abs(there.mean(axis=0)).mean()
    return {
        "asymmetry": float(np.abs(there.mean(axis=0) - back.mean(axis=0)).mean() / size),
        "disagreement": float(np.ptp(there, axis=0).mean() / size),  # of V's two networks: how sure V is
        "rank_correlation": theory.rank_correlation(latent, -there.mean(axis=0), seed),
        "error_discounted": theory.errors(latent, -there.mean(axis=0)),
    }


def exact_error(policy: FoundationPolicy, world: tasks.Task) -> Numbers | None:
    """E[(d(s, g) - |phi(s) - phi(g)|)^2] on phi's discounted scale, with exact distances; None where there are none."""
    finite = world.finite()
    if finite is None:
        return None
    starts = theory.choose_starts(len(finite.steps))
    latents, distance = exact_inputs(policy, world, finite)
    found = theory.embedding(finite.steps, latents, policy.discount, starts, distance=distance)
    return {"against": "exact", **_in_short(found)}


def exact_inputs(policy: FoundationPolicy, world: tasks.Task, finite: Any) -> tuple[np.ndarray, Any]:
    """The latents of a finite task's states, and the policy's own distance of them; None: the Euclidean one."""
    latents = policy.encode_all(rendering.observe_states(world, finite.observations))
    return latents, policy.distance if policy.has_rule("distance") else None


def value_error(policy: FoundationPolicy, reference: Reference, model: monolithic.Value, pairs: int = PAIRS) -> Numbers:
    """The same error with -V(s, g) in the place of the exact distance, as in the paper."""
    found = compare_with_value(policy, reference, model, pairs)
    return {
        "against": "value",
        **_in_short(found),
        "value_steps": reference.steps,
        "value_expectile": reference.config.expectile,
        "disagreement": found["disagreement"],
        "asymmetry": found["asymmetry"],
    }


def phi_updates(config: Any, updates: int) -> int:
    """How many of a policy's updates train its phi."""
    until = methods.stages(config)[0].until
    return updates if until is None else min(updates, until)


def _in_short(found: Numbers) -> Numbers:
    """The numbers of a row; `relative` is the root of the mean squared error as a share of the mean distance."""
    error = found["error_discounted"]
    return {
        **({"steps_off": found["error_in_steps"]["mean"]} if "error_in_steps" in found else {}),
        "mse": error["mse"],
        "mean_true": error["mean_true"],
        "relative": math.sqrt(error["mse"]) / abs(error["mean_true"]),
        "rank_correlation": found["rank_correlation"],
    }
