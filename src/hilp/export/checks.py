"""What is exported, held against the policy itself, before it is written.

The direction to a goal divides by the distance to it, so it is as exact as the distance is large, and that of a
directed distance jumps where one interval ends at another: actions are held to what the policy itself makes of latents
that are off by as much as latents may be. At the goal itself, nearer than AT_GOAL, every runtime has the skill zero.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError
from hilp.policy.policy import FoundationPolicy
from hilp.prompts.graph import GraphPlanner
from hilp.prompts.observations import Batch
from hilp.spec import Spec
from hilp.trees import Tree

OBSERVATIONS = 1_000
GOALS = 20  # that ways are searched to
TOLERANCE = 1e-5  # of numbers, relative to the largest of their column where that is above 1
NUDGES = 8  # of latents, each of which finds a jump that is near enough every other time

Run = Callable[..., np.ndarray]  # a rule as it was exported, over the inputs of its program


def hold(policy: FoundationPolicy, exported: Mapping[str, Run], seed: int = 0) -> float:
    """Raise unless every exported rule gives the numbers of the policy; the largest difference, relative as above."""
    rng = np.random.default_rng(seed)
    seen, following = (policy.check(observations(policy, rng)) for _ in range(2))
    z = rng.standard_normal((OBSERVATIONS, policy.skill_dim)).astype(np.float32)
    worst = [0.0]

    def compare(rule: str, inputs: Sequence[Any], ours: np.ndarray, allowed: Any = 0.0) -> None:
        if rule in exported:
            arrays = [array for one in inputs for array in _arrays(policy.spec, one)]
            worst.append(_difference(f"{policy.method}'s '{rule}'", ours, exported[rule](*arrays), allowed))

    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    inputs = {"act": (seen, z), "encode": (seen,), "goal_skill": (seen,), "cumulant": (seen, following),
              "backward": (seen,), "project": (unit,), "prior": (seen, z)}  # fmt: skip
    for rule, arguments in inputs.items():
        if policy.has_rule(rule):
            compare(rule, arguments, policy.rule(rule, *arguments))
    if policy.has_rule("goal_direction"):
        here, there = policy.encode(seen), policy.encode(following)
        ours = policy.act(seen, policy.goal_direction(here, there))
        swayed = [
            policy.act(seen, policy.goal_direction(_nudged(here, rng), _nudged(there, rng))) for _ in range(NUDGES)
        ]
        allowed = np.abs(np.stack(swayed) - ours).max(axis=0)
        compare("act_towards", [seen, there], ours, allowed)
        compare("act_between", [seen, here, there], ours, allowed)
        still = policy.act(seen, np.zeros_like(here))
        compare("act_towards", [seen, here], still)
        compare("act_between", [seen, here, here], still)
        if policy.has_rule("distance"):
            compare("distance", [here, there], policy.distance(here, there)[:, None])
    return max(worst)


def hold_planner(ours: GraphPlanner, theirs: Any, seed: int = 0) -> float:
    """Raise unless the ways to states of the bank are as long as ours; the largest difference, relative."""
    count = len(ours.bank)
    goals = ours.bank.latents[np.random.default_rng(seed).choice(count, min(GOALS, count), replace=False)]
    steps, found = (np.nan_to_num(one.to_goals(goals), posinf=-1.0) for one in (ours, theirs))
    return _difference("the graph of the data", steps.T, found.T)


def observations(policy: FoundationPolicy, rng: np.random.Generator) -> Tree:
    """Rows of the policy's bank; where it has none, noise around the data's mean."""
    count = len(policy.bank)
    if count:
        rows = rng.choice(count, OBSERVATIONS, replace=count < OBSERVATIONS)
        return trees.over(lambda part: part[rows], policy.bank.observations)
    spec, preparation = policy.spec, policy.preparation

    def noise(shape: tuple[int, ...], kind: str) -> np.ndarray:
        if kind == "uint8":
            return rng.integers(0, 256, (OBSERVATIONS, *shape), dtype=np.uint8)
        return rng.standard_normal((OBSERVATIONS, *shape)).astype(np.float32)

    if spec.parts:
        drawn = {name: noise(shape, kind) for name, shape, kind in spec.parts}
        mean, scale = preparation.mean, preparation.scale
        return {n: part if n not in mean else mean[n] + scale[n] * part for n, part in drawn.items()}
    plain = noise((spec.observation_dim,), "float32")
    return plain if preparation.transform is not None else preparation.mean + preparation.scale * plain


def _arrays(spec: Spec, one: Batch | np.ndarray) -> list[np.ndarray]:
    """Observations, skills or latents as the inputs of a program."""
    if not isinstance(one, Batch):
        return [one]
    return [one.tree[name] for name, _, _ in spec.parts] if spec.parts else [one.tree]


def _nudged(latents: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Latents that would still pass for those of the policy."""
    off = TOLERANCE * _scale(latents) * rng.uniform(-1.0, 1.0, latents.shape)
    return (latents + off).astype(np.float32)


def _scale(numbers: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(1.0, np.abs(numbers).max(axis=0, initial=0.0)))


def _difference(what: str, ours: np.ndarray, theirs: np.ndarray, allowed: Any = 0.0) -> float:
    """The largest difference, relative, beyond what may lie between the two."""
    if ours.shape != theirs.shape:
        raise HilpError(f"{what} was exported wrongly: it gives {theirs.shape}, not {ours.shape}")
    difference = np.maximum(np.abs(ours - theirs) - allowed, 0.0) / _scale(ours)
    worst = float(difference.max(initial=0.0))
    if not worst <= TOLERANCE:
        raise HilpError(
            f"{what} was exported wrongly: it differs by {worst:.2g} from the policy, more than {TOLERANCE}; please "
            "report it with the versions of jax and numpy"
        )
    return worst
