"""What an exported policy is made of: programs of its rules, from the user's observations to the user's actions.

They are held against the policy itself before they are written.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.export import symbolic_shape

from hilp import storage, trees
from hilp.data.transforms import ObservationTransform
from hilp.errors import HilpError
from hilp.export.programs import Builder, Operand, Program
from hilp.learning.networks import FOLD_FROM_ROWS
from hilp.policy.policy import FoundationPolicy, HighLevel, apply_rule
from hilp.policy.preparation import Preparation
from hilp.prompts.agent import Batch
from hilp.prompts.graph import GraphPlanner
from hilp.trees import Tree

# Rules that robots use, and what each takes. Not `skill_of`, which names the skills of segments for the training of a
# high level.
RULES = {"act": "observation skill", "encode": "observation", "goal_skill": "observation",
         "cumulant": "observation next_observation", "backward": "observation", "project": "skill",
         "prior": "observation skill", "distance": "latent target", "goal_direction": "latent target",
         "steps": "skill other_skill",
         "act_towards": "observation target", "act_between": "observation latent target"}  # fmt: skip
NEEDS = {"act_towards": "goal_direction", "act_between": "goal_direction"}  # what these are put together of


class Exported(NamedTuple):
    """Programs by the names of rules, the arrays that they share, and why other rules have no program."""

    programs: dict[str, Program]
    arrays: dict[str, np.ndarray]
    refused: dict[str, str]


def programs_of(policy: FoundationPolicy | HighLevel, method: str, wanted: Sequence[str] | None = None) -> Exported:
    """The programs of all rules of a policy, or of those that are wanted.

    A policy that cannot act is not exported; one that lacks another rule is, and says so when it is used.
    """
    rules = {rule: takes for rule, takes in RULES.items() if hasattr(policy.core, NEEDS.get(rule, rule))}
    weights = storage.flatten(policy.core)
    arrays = weights | _prepared_arrays(policy.preparation)
    found: dict[str, Program] = {}
    refused: dict[str, str] = {}
    for rule, takes in rules.items():
        if wanted is not None and rule not in wanted:
            continue
        builder = Builder(f"{method}'s rule '{rule}'", _inputs(policy, takes))
        try:
            found[rule] = _program(builder, policy, rule, takes, weights)
        except HilpError as error:
            if rule == "act":
                raise
            refused[rule] = str(error)
        else:
            arrays |= builder.constants
    used = set[str]().union(*(program.arrays() for program in found.values()))
    return Exported(found, {name: array for name, array in arrays.items() if name in used}, refused)


def _prepared_arrays(preparation: Preparation) -> dict[str, np.ndarray]:
    found = {name: getattr(preparation, name) for name in ("action_center", "action_half_range")}
    found |= trees.named(preparation.mean, "mean") | trees.named(preparation.scale, "scale")
    if preparation.view is not None:
        found["radians"] = preparation.view.places[-1]
    return {f"preparation.{name}": np.asarray(array) for name, array in found.items()}


def _inputs(policy: FoundationPolicy | HighLevel, takes: str) -> tuple[str, ...]:
    """Names of what a rule takes; an observation of named parts is several."""
    parts = [f"/{part}" for part, _, _ in policy.spec.parts] or [""]
    return tuple(f"{name}{part}" for name in takes.split() for part in (parts if "observation" in name else [""]))


def described(policy: FoundationPolicy) -> dict[str, Any]:
    """What every export says about its policy."""
    return {
        "method": policy.method,
        "fingerprint": policy.fingerprint,
        "skill_dim": policy.skill_dim,
        **({} if policy.chunk == 1 else {"chunk": policy.chunk, "play": policy.play}),
        "discount": policy.discount if policy.has_rule("discount") else None,
        "observation_parts": [[name, list(shape)] for name, shape in policy.observation_parts],
    }


def _program(
    builder: Builder, policy: FoundationPolicy | HighLevel, rule: str, takes: str, weights: Mapping[str, np.ndarray]
) -> Program:
    """A rule from the user's observations to the user's actions."""
    structure = jax.tree.structure(policy.core)

    def applied(leaves: list[Any], *inputs: Any) -> Any:
        return apply_rule(jax.tree.unflatten(structure, leaves), rule, *inputs)

    # Any number of rows. Few enough that networks take the way of few rows; its numbers are those of the other one.
    (count,) = symbolic_shape("rows", constraints=(f"rows <= {FOLD_FROM_ROWS - 1}",))
    spec, preparation = policy.spec, policy.preparation
    arguments: list[Any] = []  # what the traced rule takes, as shapes
    operands: list[Operand] = []  # and the values that stand for it, prepared for the networks
    places = iter(range(len(builder.inputs)))
    for name in takes.split():
        if "observation" not in name:
            width = int(policy.core.skill_dim) if "skill" in name else latent_dim(policy)
            arguments.append(jax.ShapeDtypeStruct((count, width), np.float32))
            operands.append(next(places))
            continue
        arguments.append(_seen(policy, count))
        for part, shape, kind in spec.parts:
            value = next(places) if shape else builder.step("flatten", next(places))  # a number a row is a row of one
            operands.append(value if kind == "uint8" else _normalised(builder, value, f"/{part}"))
        if not spec.parts:
            value = next(places)
            if preparation.view is not None:
                value = _transformed(builder, value, preparation.view)
            operands.append(_normalised(builder, value))
    output = builder.rule(applied, weights, arguments, operands)
    if rule.startswith("act") and not spec.choices:  # of discrete actions the scores go out
        scaled = builder.step("mul", output, "preparation.action_half_range")
        output = builder.step("add", scaled, "preparation.action_center")
    return Program(builder.inputs, tuple(builder.steps), output)


def _seen(policy: FoundationPolicy | HighLevel, count: Any) -> Any:
    """The shapes of so many observations as networks see them."""
    if policy.spec.parts:
        return {name: jax.ShapeDtypeStruct((count, *shape), kind) for name, shape, kind in policy.spec.parts}
    return jax.ShapeDtypeStruct((count, policy.preparation.seen(policy.spec).observation_dim), np.float32)


def latent_dim(policy: FoundationPolicy | HighLevel) -> int:
    """Numbers of a latent."""
    return int(jax.eval_shape(policy.core.encode, _seen(policy, 1)).shape[-1])


def _normalised(builder: Builder, value: int, part: str = "") -> int:
    return builder.step("div", builder.step("sub", value, f"preparation.mean{part}"), f"preparation.scale{part}")


def _transformed(builder: Builder, value: int, transform: ObservationTransform) -> int:
    """What networks see of an observation: some columns as they are, of others the sine and the cosine."""
    plain, into, turned, sines, _ = transform.places
    pieces = [builder.step("take", value, columns=plain.tolist())] if len(plain) else []
    order = into.tolist()
    if len(turned):
        angles = builder.step("cast", builder.step("take", value, columns=turned.tolist()), to="float64")
        angles = builder.step("mul", angles, "preparation.radians")
        later = builder.step("add", angles, np.pi / 2)  # the sine of it is the cosine
        pieces += [builder.step("cast", builder.step("sin", one), to="float32") for one in (angles, later)]
        order += [*sines.tolist(), *(sines + 1).tolist()]
    together = pieces[0] if len(pieces) == 1 else builder.step("concat", *pieces)
    places = np.argsort(order).tolist()
    return together if places == list(range(len(places))) else builder.step("take", together, columns=places)


# The direction to a goal divides by the distance to it, so it is as exact as the distance is large, and that of a
# directed distance jumps where one interval ends at another: actions are held to what the policy itself makes of
# latents that are off by as much as latents may be. At the goal itself, nearer than AT_GOAL, every runtime has the
# skill zero.

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
            arrays = [array for one in inputs for array in (one.arrays if isinstance(one, Batch) else [one])]
            worst.append(_difference(f"{policy.method}'s '{rule}'", ours, exported[rule](*arrays), allowed))

    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    inputs = {"act": (seen, z), "encode": (seen,), "goal_skill": (seen,), "cumulant": (seen, following),
              "backward": (seen,), "project": (unit,), "prior": (seen, z)}  # fmt: skip
    for rule, arguments in inputs.items():
        if policy.has_rule(rule):
            compare(rule, arguments, policy.rule(rule, *arguments))
    if policy.has_rule("steps"):
        here, there = policy.goal_skill(seen), policy.goal_skill(following)
        ours = policy.steps_between(here, there)[:, None]
        nudged = [(_nudged(here, rng), _nudged(there, rng)) for _ in range(NUDGES)]  # a logarithm is steep at its end
        swayed = np.stack([policy.steps_between(*pair)[:, None] for pair in nudged])
        compare("steps", [here, there], ours, np.abs(swayed - ours).max(axis=0))
    if policy.has_rule("goal_direction"):
        here, there = policy.encode(seen), policy.encode(following)
        ours = policy.rule("act", seen, policy.goal_direction(here, there))
        nudged = [(_nudged(here, rng), _nudged(there, rng)) for _ in range(NUDGES)]
        swayed = np.stack([policy.rule("act", seen, policy.goal_direction(*pair)) for pair in nudged])
        allowed = np.abs(swayed - ours).max(axis=0)
        compare("act_towards", [seen, there], ours, allowed)
        compare("act_between", [seen, here, there], ours, allowed)
        still = policy.rule("act", seen, policy.goal_direction(here, here))
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
