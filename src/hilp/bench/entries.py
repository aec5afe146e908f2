"""The lines of a table: methods, what is changed of their presets, and how their policies are prompted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hilp.errors import HilpError, nearest, some
from hilp.learning import methods

GOAL_METHODS = ("gc-bc", "gc-iql", "gc-cql", "fb", "iql-fdm", "iql-lap", "iql-rand", "hilp")  # in the paper's order
REWARD_METHODS = ("gc-td3", "sf-cl", "sf-rand", "sf-idm", "sf-ae", "sf-lap", "sf-fdm", "fb", "sf-hilp")
HIERARCHY_METHODS = ("iql", "opal", "hilp")  # the paper has no flat IQL
ADAPTED = "-adapted"  # ends the name of a line whose prompts are searched for with a few episodes


@dataclass(frozen=True)
class Entry:
    """A line of a table."""

    method: str
    values: dict[str, Any] = field(default_factory=dict)  # of its config, over the preset's
    rule: str = "skill"  # how rewards become prompts
    adapt: int = 0  # episodes of a search around each prompt


# Entries that are not the bare name of a method.
ENTRIES = {
    "sf-hilp-g": Entry("sf-hilp", {"cumulant": "diff", "phi_expectile": 0.9}, rule="goal"),
    "hilp-graph": Entry("hilp", rule="graph"),
    "sf-hilp-graph": Entry("sf-hilp", rule="graph"),
}


def entry(name: str) -> Entry:
    known = {*ENTRIES, *methods.names()}
    if name not in known:
        raise HilpError(f"unknown method '{name}': {nearest(name, known)}")
    return ENTRIES.get(name, Entry(name))


def entries(
    names: Sequence[str],
    values: dict[str, str],
    sweep: tuple[str, Sequence[str]] | None = None,
    variants: Sequence[tuple[str, dict[str, str]]] = (),
    adapt: int = 0,
) -> dict[str, Entry]:
    """The lines of a table by label; a sweep makes one for each value of a config key, each variant one more.

    A method that lacks a key, say dim where the skill is the goal itself, has no such line.
    adapt: one more line of the same policies each, their prompts moved by a search with so many episodes.
    """
    labels = [label for label, _ in variants]
    if sweep and variants:
        raise HilpError("--sweep and --variants are two tables: ask for one after the other")
    if sweep and not sweep[1]:
        raise HilpError(f"--sweep has no values of '{sweep[0]}': name some as {sweep[0]}=2,8,32")
    if sweep and not all(map(_is_number, sweep[1])):
        raise HilpError(f"a sweep is drawn against numbers, not {some(sweep[1])}: compare them with --variants")
    if len({*labels}) < len(labels):
        raise HilpError(f"two variants have one name: {some(labels)}")
    found = {}
    for name in names:
        found[name] = entry(name)
        if adapt:
            found[name + ADAPTED] = replace(found[name], adapt=adapt)
    changes = [(f"{sweep[0]}={value}", {sweep[0]: value}) for value in sweep[1]] if sweep else [("", {}), *variants]
    made = {}
    for name, base in found.items():
        for label, own in changes:
            if methods.keys(base.method) >= own.keys():
                made[f"{name} {label}".strip()] = replace(base, values={**base.values, **values, **own})
    for label, _ in changes:
        if not any(f"{name} {label}".strip() in made for name in names):
            what = f"config key '{sweep[0]}' to sweep" if sweep else f"config keys of the variant '{label}'"
            raise HilpError(f"none of these methods has the {what}")
    return made


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
