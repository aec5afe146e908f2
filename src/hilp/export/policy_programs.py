"""What an exported policy is made of: programs of its rules, from the user's observations to the user's actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from hilp import storage, trees
from hilp.data.transforms import ObservationTransform
from hilp.errors import HilpError
from hilp.export.programs import Builder, Operand, Program, rows
from hilp.policy.policy import FoundationPolicy, apply_rule
from hilp.policy.preparation import Preparation
from hilp.spec import Spec

# Rules that robots use, and what each takes: observations (o), skills (z) and latents (l). Not `skill_of`, which
# names the skills of segments for the training of a high level.
RULES = {"act": "oz", "encode": "o", "goal_skill": "o", "cumulant": "oo", "backward": "o", "project": "z",
         "prior": "oz", "distance": "ll", "goal_direction": "ll"}  # fmt: skip
BY_DIRECTION = {"act_towards": "ol", "act_between": "oll"}
NAMES = {"o": ("observation", "next_observation"), "z": ("skill",), "l": ("latent", "target")}


@dataclass(frozen=True)
class Exported:
    """Programs by the names of rules, the arrays that they share, and why other rules have no program."""

    programs: dict[str, Program]
    arrays: dict[str, np.ndarray]
    refused: dict[str, str]


def of_policy(policy: FoundationPolicy, wanted: Sequence[str] | None = None) -> Exported:
    """The programs of a policy: of all its rules, or of those that are wanted."""
    return programs_of(policy.core, policy.spec, policy.preparation, policy.method, wanted)


def programs_of(
    core: Any, spec: Spec, preparation: Preparation, method: str, wanted: Sequence[str] | None = None
) -> Exported:
    """The programs of a method's export.

    A policy that cannot act is not exported; one that lacks another rule is, and says so when it is used.
    """
    rules = _rules(core, wanted)
    weights = storage.flatten(core)
    arrays = {**weights, **_prepared_arrays(preparation)}
    found: dict[str, Program] = {}
    refused: dict[str, str] = {}
    for rule, takes in rules.items():
        builder = Builder(f"{method}'s rule '{rule}'", _inputs(takes, spec))
        try:
            found[rule] = _program(builder, core, spec, preparation, rule, takes, weights)
        except HilpError as error:
            if rule == "act":
                raise
            refused[rule] = str(error)
        else:
            arrays |= builder.constants
    used = {name for program in found.values() for name in program.arrays()}
    return Exported(found, {name: array for name, array in arrays.items() if name in used}, refused)


def _rules(core: Any, wanted: Sequence[str] | None) -> dict[str, str]:
    """The rules of an export, or those of them that are wanted, and what they take."""
    rules = {rule: takes for rule, takes in RULES.items() if hasattr(core, rule)}
    rules |= BY_DIRECTION if hasattr(core, "goal_direction") else {}
    return rules if wanted is None else {rule: takes for rule, takes in rules.items() if rule in wanted}


def _program(
    builder: Builder,
    core: Any,
    spec: Spec,
    preparation: Preparation,
    rule: str,
    takes: str,
    weights: Mapping[str, np.ndarray],
) -> Program:
    """A rule from the user's observations to the user's actions."""
    structure = jax.tree.structure(core)

    def applied(leaves: list[Any], *inputs: Any) -> Any:
        return apply_rule(jax.tree.unflatten(structure, leaves), rule, *inputs)

    output = builder.rule(applied, weights, *_arguments(builder, core, spec, preparation, takes))
    if rule.startswith("act"):
        scaled = builder.step("mul", output, "preparation.action_half_range")
        output = builder.step("add", scaled, "preparation.action_center")
    return Program(builder.inputs, tuple(builder.steps), output)


def _inputs(takes: str, spec: Spec) -> tuple[str, ...]:
    """Names of what a rule takes; an observation of named parts is several."""
    names: list[str] = []
    seen = dict.fromkeys(NAMES, 0)
    for kind in takes:
        name = NAMES[kind][seen[kind]] if takes != "ol" or kind == "o" else "target"
        seen[kind] += 1
        names += [f"{name}/{part}" for part, _, _ in spec.parts] if kind == "o" and spec.parts else [name]
    return tuple(names)


def _arguments(
    builder: Builder, core: Any, spec: Spec, preparation: Preparation, takes: str
) -> tuple[list[Any], list[Operand]]:
    """What the traced rule takes, as shapes, and the values that stand for it, prepared for the networks."""
    count, place = rows(), 0
    arguments: list[Any] = []
    operands: list[Operand] = []
    for kind in takes:
        if kind != "o":
            width = int(core.skill_dim) if kind == "z" else latent_dim(core, spec, preparation)
            arguments.append(jax.ShapeDtypeStruct((count, width), np.float32))
            operands.append(place)
            place += 1
        elif spec.parts:
            shapes = {name: jax.ShapeDtypeStruct((count, *shape), kind) for name, shape, kind in spec.parts}
            arguments.append(shapes)
            for name, shape, dtype in spec.parts:
                value = place if shape else builder.step("flatten", place)  # one number a row is a row of one
                operands.append(value if dtype == "uint8" else _normalised(builder, value, f"/{name}"))
                place += 1
        else:
            arguments.append(jax.ShapeDtypeStruct((count, preparation.seen(spec).observation_dim), np.float32))
            seen = place if preparation.transform is None else _transformed(builder, place, preparation.transform)
            operands.append(_normalised(builder, seen))
            place += 1
    return arguments, operands


def latent_dim(core: Any, spec: Spec, preparation: Preparation) -> int:
    """Numbers of a latent."""
    one: Any = jax.ShapeDtypeStruct((1, preparation.seen(spec).observation_dim), np.float32)
    if spec.parts:
        one = {name: jax.ShapeDtypeStruct((1, *shape), kind) for name, shape, kind in spec.parts}
    return int(jax.eval_shape(core.encode, one).shape[-1])


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


def _prepared_arrays(preparation: Preparation) -> dict[str, np.ndarray]:
    found = {"action_center": preparation.action_center, "action_half_range": preparation.action_half_range}
    for name in ("mean", "scale"):
        found |= trees.named(getattr(preparation, name), name)
    if preparation.transform is not None:
        found["radians"] = preparation.transform.places[-1]
    return {f"preparation.{name}": np.asarray(array) for name, array in found.items()}
