"""Diagnosis: how well |phi(s) - phi(g)| fits the number of steps from s to g, and what that means.

Against exact distances where the task knows them. Where there is only data, against a value V(s, g) of its own network,
which is no metric and so can say what a metric cannot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hilp import storage, tasks
from hilp.data import checks
from hilp.data.dataset import Dataset
from hilp.errors import HilpError
from hilp.evaluation import theory
from hilp.learning import methods
from hilp.learning.methods import monolithic
from hilp.policy.policy import FoundationPolicy
from hilp.policy.preparation import Preparation
from hilp.spec import Spec
from hilp.training import loop
from hilp.versions import versions

STEPS = 5_000  # updates of V(s, g)
PAIRS = 20_000  # random pairs of data states that phi and V are compared on
SYMMETRIC, ASYMMETRIC = 0.1, 0.3  # up to the first a metric fits; from the second on it can only average both ways
GOOD_RANKS, POOR_RANKS = 0.95, 0.8  # rank correlations
UNSURE = 0.15  # relative difference of V's two networks above which V is not trained enough
BIASED = 0.15  # relative error of the mean distance that is worth a word
VALUE, VALUE_WEIGHTS = "value.json", "weights.safetensors"  # a V(s, g) that is kept

Numbers = dict[str, Any]


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
    """Numbers about a policy's distances, ready for JSON; `words` says what they mean.

    `exact` is there for a task with exact distances (by default the task that the policy's data was collected in).
    `learned` is there when data is given: a value V(s, g) is trained on it for `steps` updates (`config`, by default
    the sizes and the discount of the policy) and compared on random `pairs` of its states.
    """
    if not policy.has_rule("direct"):
        raise HilpError(f"{policy.method} does not learn distances: there is nothing to compare with steps")
    if task is None and data is None:
        task = policy.provenance.task
    world = tasks.make(task) if isinstance(task, str) else task
    finite = None if world is None else world.finite()
    if finite is None and data is None:
        lacking = "no task is known" if world is None else f"{world.name} has no exact distances"
        raise HilpError(f"nothing to compare the policy with: {lacking}; pass the data it was trained on (--data)")
    result: Numbers = {
        "policy": policy.fingerprint,
        "method": policy.method,
        "discount": policy.discount,
        "expectile": getattr(policy.config, "phi_expectile", None),
        "seed": seed,
    }
    if world is not None and finite is not None:
        latents = policy.encode(finite.observations)
        numbers = theory.examine(finite.successors, finite.steps, latents, policy.discount, seed=seed)
        result["exact"] = {"task": world.name, **numbers}
    if data is not None:
        if steps < 1 or pairs < 2:
            raise HilpError(f"steps {steps} must be at least 1 and pairs {pairs} at least 2")
        _require_own_observations(policy, data)
        reference = Reference(data, config or value_config(policy), steps, seed)
        learned = compare_with_value(policy, reference, reference.train(quiet), pairs)
        result["learned"] = {"data": data.name, "steps": steps, "pairs": pairs, **learned}
    return result


def value_config(policy: FoundationPolicy) -> monolithic.Config:
    """V(s, g) at the size of the policy's networks, with its phi's goals and discount, at expectile 0.9."""
    named = {"batch", "goal_discount", "goal_random", "bound_targets", "normalize"}
    same = {name: getattr(policy.config, name) for name in sorted(named) if hasattr(policy.config, name)}
    layers = "phi_hidden" if hasattr(policy.config, "phi_hidden") else "hidden"
    rate = "phi_lr" if hasattr(policy.config, "phi_lr") else "lr"
    renamed = {"discount": "phi_discount", "target_rate": "phi_target_rate", "hidden": layers, "lr": rate}
    own = {name: getattr(policy.config, of) for name, of in renamed.items() if hasattr(policy.config, of)}
    return monolithic.Config(**same, **own)


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
            "config": methods.described(self.config),
            "data_fingerprint": self.data.fingerprint,
            "steps": self.steps,
            "seed": self.seed,
        }

    def train(self, quiet: bool) -> monolithic.Value:
        checks.require_trainable(self.data)
        model: monolithic.Value = loop.train(
            self.config, self.data, steps=self.steps, seed=self.seed, quiet=quiet, verb="fitting V(s, g)"
        )
        return model

    def train_once(self, folder: Path, quiet: bool) -> monolithic.Value:
        """The V that a folder keeps; trained and put there where there is none yet."""
        weights = folder / VALUE_WEIGHTS
        if weights.is_file():
            spec = Spec(self.data.observation_dim, self.data.action_dim)
            like = jax.eval_shape(
                lambda key: monolithic.export(self.config, monolithic.init(self.config, spec, key)), jax.random.key(0)
            )
            return storage.unflatten(like, storage.read_arrays(weights)[0], weights)
        model = self.train(quiet)
        folder.mkdir(parents=True, exist_ok=True)
        storage.write_json(folder / VALUE, {**self.identity, "data": self.data.name, "versions": versions()})
        storage.write_arrays(weights, storage.flatten(model))
        return model


def compare_with_value(policy: FoundationPolicy, reference: Reference, model: monolithic.Value, pairs: int) -> Numbers:
    """Set |phi(s) - phi(g)| against -V(s, g); both are distances on the discounted scale."""
    data, seed = reference.data, reference.seed
    rng = np.random.default_rng(seed)
    first = rng.integers(data.rows, size=pairs)
    second = (first + rng.integers(1, data.rows, size=pairs)) % data.rows  # never the same row
    s, g = (np.asarray(data.observations[rows], np.float32) for rows in (first, second))
    preparation = Preparation.of(data, reference.config.normalize)
    there = np.asarray(_values(model, s, g, preparation.mean, preparation.scale), np.float64)  # members x pairs
    back = np.asarray(_values(model, g, s, preparation.mean, preparation.scale), np.float64)
    latent = np.linalg.norm(np.asarray(policy.encode(s) - policy.encode(g), np.float64), axis=1)
    size = np.abs(there.mean(axis=0)).mean()
    return {
        "asymmetry": float(np.abs(there.mean(axis=0) - back.mean(axis=0)).mean() / size),
        "disagreement": float(np.ptp(there, axis=0).mean() / size),  # of V's two networks: how sure V is
        "rank_correlation": theory.rank_correlation(latent, -there.mean(axis=0), seed),
        "error_discounted": theory.errors(latent, -there.mean(axis=0)),
    }


def _require_own_observations(policy: FoundationPolicy, data: Dataset) -> None:
    if data.observation_dim != policy.spec.observation_dim:
        raise HilpError(
            f"this policy takes observations of {policy.spec.observation_dim} numbers, {data.name} has "
            f"{data.observation_dim}: pass the data it was trained on"
        )


@jax.jit
def _values(model: monolithic.Value, s: Any, g: Any, mean: Any, scale: Any) -> jax.Array:
    return model.values((s - mean) / scale, (g - mean) / scale)


# ---- the paper's embedding error analysis ----------------------------------------------------------------------------


def exact_error(policy: FoundationPolicy, world: tasks.Task) -> Numbers | None:
    """E[(d(s, g) - |phi(s) - phi(g)|)^2] with the exact distances, on the discounted scale that phi is trained towards.

    None for a task that does not know them.
    """
    finite = world.finite()
    if finite is None:
        return None
    starts = theory.choose_starts(len(finite.steps))
    found = theory.embedding(finite.steps, policy.encode(finite.observations), policy.discount, starts)
    return {"against": "exact", **_in_short(found)}


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
        "mse": error["mse"],
        "mean_true": error["mean_true"],
        "relative": math.sqrt(error["mse"]) / abs(error["mean_true"]),
        "rank_correlation": found["rank_correlation"],
    }


# ---- in words --------------------------------------------------------------------------------------------------------


def words(result: Numbers) -> list[str]:
    """A diagnosis in sentences that a user can act on."""
    told = []
    if "exact" in result:
        told += _exact_words(result["exact"], result)
    if "learned" in result:
        told += _learned_words(result["learned"], result)
    return told


def _exact_words(exact: Numbers, result: Numbers) -> list[str]:
    told = [
        f"Compared with the exact distances of {exact['task']}: {exact['pairs']:,} pairs of states, "
        f"{exact['mean_steps']:.1f} steps apart on average, {exact['longest_steps']} at most."
    ]
    if exact["pairs_without_way"]:
        told.append(f"{exact['pairs_without_way']:,} pairs have no way between them and are left out.")
    if exact["asymmetry"] is not None:
        told.append(_asymmetry_words(exact["asymmetry"]))
    if exact["one_way_share"] > 0:
        told.append(
            f"{_percent(exact['one_way_share'])} of the ways have no way back: |phi(s) - phi(g)| is the same both ways "
            "and cannot show that."
        )
    error = exact["error_in_steps"]
    told.append(
        f"|phi(s) - phi(g)|, turned back into steps, is off by {error['mean']:.1f} steps on average (at most "
        f"{error['sup']:.0f})."
    )
    told += _rank_words(exact["rank_correlation"], "the exact distance", result)
    told += _bias_words(exact["error_discounted"])
    horizon = 1.0 / (1.0 - result["discount"])
    if exact["longest_steps"] > 2.0 * horizon:
        told.append(
            f"With phi_discount {result['discount']:g} distances beyond about {horizon:.0f} steps look alike, and the "
            f"longest here is {exact['longest_steps']}: raise phi_discount."
        )
    told += _theorem_words(exact)
    return told


def _learned_words(learned: Numbers, result: Numbers) -> list[str]:
    told = [
        f"Compared with a value V(s, g) trained for {learned['steps']:,} updates on {learned['data']}: "
        f"{learned['pairs']:,} random pairs of its states. V is an estimate itself: its two networks differ by "
        f"{_percent(learned['disagreement'])}."
    ]
    if learned["disagreement"] > UNSURE:
        told.append("That is much: train V longer (--steps) before trusting what follows.")
    told.append(_asymmetry_words(learned["asymmetry"]))
    error = learned["error_discounted"]
    told.append(
        f"|phi(s) - phi(g)| (mean {error['mean_found']:.3g}) and -V(s, g) (mean {error['mean_true']:.3g}) differ by "
        f"{error['mean']:.2g} on average (mean squared difference {error['mse']:.2g}), on the discounted scale."
    )
    told += _rank_words(learned["rank_correlation"], "V(s, g)", result)
    return told


def _asymmetry_words(asymmetry: float) -> str:
    share = _percent(asymmetry)
    if asymmetry <= SYMMETRIC:
        return f"Distances are nearly symmetric (asymmetry {share}), as those of a Hilbert metric have to be."
    if asymmetry < ASYMMETRIC:
        return (
            f"Distances are somewhat asymmetric (asymmetry {share}): |phi(s) - phi(g)| averages there and back; expect "
            "detours where the way back is much longer."
        )
    return (
        f"Distances are strongly asymmetric (asymmetry {share}): |phi(s) - phi(g)| can only average there and back; "
        "expect directions that try to go against one-way transitions, and consider observations that include "
        "velocities, or a goal-conditioned method that is no metric."
    )


def _rank_words(correlation: float | None, reference: str, result: Numbers) -> list[str]:
    if correlation is None:
        return ["All latent distances are equal: phi has collapsed or was never trained."]
    told = f"Latent distance and {reference} order pairs alike with rank correlation {correlation:.2f}"
    if correlation >= GOOD_RANKS:
        return [f"{told}: good."]
    if correlation >= POOR_RANKS:
        return [f"{told}: usable, and planning (plan 3 or auto) will help with far goals; train longer to improve it."]
    remedies = f"a larger phi_discount (now {result['discount']:g})"
    if result["expectile"] is not None:
        remedies += f" or a larger phi_expectile (now {result['expectile']:g})"
    return [f"{told}: low. Train longer, on more data between far places, or with {remedies}."]


def _bias_words(error: Numbers) -> list[str]:
    bias = error["mean_found"] / error["mean_true"] - 1.0
    if bias > BIASED:
        return [
            f"Latent distances are {_percent(bias)} too long on average, as they are where data takes detours: a "
            "larger phi_expectile or data with shorter ways may help."
        ]
    if bias < -BIASED:
        return [
            f"Latent distances are {_percent(-bias)} too short on average, as they are before phi has spread out: "
            "train longer, or raise dim."
        ]
    return []


def _theorem_words(exact: Numbers) -> list[str]:
    learned, scaled = exact["theorem_as_learned"], exact["theorem_scaled"]
    if learned["optimal_where_condition"] is None:
        promise = (
            "The condition of the theorem (4 eps_e + eps_d < 1) holds for no pair, so it promises nothing here: it "
            "asks for distances right to a quarter of a step all around a state."
        )
    else:
        promise = (
            f"The condition of the theorem (4 eps_e + eps_d < 1) holds for {_percent(learned['condition_share'])} of "
            f"pairs; on these the direction is optimal for {_percent(learned['optimal_where_condition'])}."
        )
    return [
        f"Over all pairs the greedy latent motion is optimal for {_percent(exact['greedy_motion_optimal'])} (a random "
        f"motion: {_percent(exact['random_motion_optimal'])}).",
        f"{promise} Motions within latent length 1, as the theorem has them, are optimal for "
        f"{_percent(learned['optimal_share'])} of all pairs.",
        f"At its best scale ({scaled['scale']:.2f} phi) the condition holds for {_percent(scaled['condition_share'])} "
        f"of pairs, and these motions are optimal for {_percent(scaled['optimal_share'])} of all.",
    ]


def _percent(share: float) -> str:
    """With one digit where it matters, and neither 0% nor 100% unless it is exactly that."""
    if 0 < share < 0.001:
        return "less than 0.1%"
    if 0.999 < share < 1:
        return "more than 99.9%"
    digits = 1 if share < 0.1 or 0.99 < share < 1 else 0
    return f"{100 * share:.{digits}f}%".replace(".0%", "%")
