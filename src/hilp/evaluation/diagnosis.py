"""Diagnosis: how well |phi(s) - phi(g)| fits the number of steps from s to g.

Against exact distances where the task knows them. Where there is only data, against a value V(s, g) of its own network,
which is no metric and so can say what a metric cannot.
"""

from __future__ import annotations

from hilp import tasks
from hilp.data import timescale
from hilp.data.dataset import Dataset
from hilp.errors import HilpError, require_count, require_seed, some
from hilp.evaluation import held_out, theory
from hilp.evaluation.reference import PAIRS, Numbers, Reference, compare_with_value, directed_distance, value_config
from hilp.learning.methods import monolithic
from hilp.policy.policy import FoundationPolicy
from hilp.spec import Spec
from hilp.tasks import rendering

STEPS = 5_000  # updates of V(s, g)


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
    """Numbers about a policy's distances, ready for JSON; `words.sentences` says what they mean.

    `exact` is there for a task with exact distances (by default the task that the policy's data was collected in).
    `learned` is there when data is given: a value V(s, g) is trained on it for `steps` updates (`config`, by default
    the sizes and the discount of the policy) and compared on random `pairs` of its states.
    """
    if not policy.has_rule("goal_direction"):
        raise HilpError(f"{policy.method} does not learn distances: there is nothing to compare with steps")
    steps, pairs, seed = require_count("steps", steps), require_count("pairs", pairs, 2), require_seed(seed)
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
        "expectile": policy.settings.get("phi_expectile"),
        "seed": seed,
        "directed": policy.has_rule("distance"),
    }
    if world is not None and finite is not None:
        latents = policy.encode_all(rendering.observe_states(world, finite.observations))
        numbers = theory.examine(
            finite.successors,
            finite.steps,
            latents,
            policy.discount,
            seed=seed,
            distance=directed_distance(policy),
        )
        result["exact"] = {"task": world.name, **numbers}
    if data is not None:
        _require_own_observations(policy, data)
        data = held_out.as_trained(policy, data)
        reference = Reference(data, config or value_config(policy), steps, seed)
        learned = compare_with_value(policy, reference, reference.train(quiet), pairs)
        result["learned"] = {"data": data.name, "steps": steps, "pairs": pairs, **learned}
    return result


def about(policy: FoundationPolicy, data: Dataset | None = None) -> Numbers:
    """What was done to make a policy, so that nobody is advised to do it again."""
    return {
        "discount": policy.discount,
        "normalize": policy.settings.get("normalize", True),
        "stride": policy.preparation.stride,
        "scale": None if data is None or (data.stride or 1) > 1 else timescale.of_dataset(data).to_json(),
        "moving": policy.provenance.moving,
        "updates": policy.provenance.steps,
    }


def _require_own_observations(policy: FoundationPolicy, data: Dataset) -> None:
    if data.observation_dim != policy.spec.observation_dim:
        raise HilpError(
            f"this policy takes observations of {policy.spec.observation_dim} numbers, {data.name} has "
            f"{data.observation_dim}: pass the data it was trained on"
        )
    if Spec.of(data.observations, data.action_dim).parts != policy.spec.parts:
        names = some([name for name, _, _ in policy.spec.parts])
        takes = f"observations by name ({names})" if names else "plain vectors as observations"
        raise HilpError(f"this policy takes {takes}, {data.name} has others: pass the data it was trained on")
