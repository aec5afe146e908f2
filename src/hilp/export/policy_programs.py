"""What an exported policy is made of: programs of its rules, from the user's observations to the user's actions."""

from collections.abc import Mapping, Sequence
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

# Rules that robots use, and what each takes. Not `skill_of`, which names the skills of segments for the training of a
# high level.
RULES = {"act": "observation skill", "encode": "observation", "goal_skill": "observation",
         "cumulant": "observation next_observation", "backward": "observation", "project": "skill",
         "prior": "observation skill", "distance": "latent target", "goal_direction": "latent target",
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
    if preparation.transform is not None:
        found["radians"] = preparation.transform.places[-1]
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
        "discount": policy.discount if policy.has_rule("discount") else None,
        "observation_parts": [[name, list(shape)] for name, shape in policy.observation_parts],
    }


def _program(
    builder: Builder,
    policy: FoundationPolicy | HighLevel,
    rule: str,
    takes: str,
    weights: Mapping[str, np.ndarray],
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
            width = int(policy.core.skill_dim) if name == "skill" else latent_dim(policy)
            arguments.append(jax.ShapeDtypeStruct((count, width), np.float32))
            operands.append(next(places))
            continue
        arguments.append(_seen(policy, count))
        for part, shape, kind in spec.parts:
            value = next(places) if shape else builder.step("flatten", next(places))  # a number a row is a row of one
            operands.append(value if kind == "uint8" else _normalised(builder, value, f"/{part}"))
        if not spec.parts:
            value = next(places)
            if preparation.transform is not None:
                value = _transformed(builder, value, preparation.transform)
            operands.append(_normalised(builder, value))
    output = builder.rule(applied, weights, arguments, operands)
    if rule.startswith("act"):
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
