"""Methods: one file each, five public names each (Config, sample, init, update, export).

A method's export is a tree of arrays with `act(observation, z)` and those rules that it has; prompts ask for a rule,
never for a method's name:

| rule | what it gives |
|---|---|
| `encode(s)` | the latent of a state |
| `direct(here, there)` | goal rule by direction: the skill from one latent to another, asked anew at every step |
| `aim(goal)` | goal rule by name: the one skill that a goal stands for |
| `cumulant(s, s')` | reward rule: features to regress a reward on |
| `backward(s')` | reward rule: features whose reward-weighted mean is the skill |
| `project(z)` | the valid skill in the direction of z; methods whose skill is the goal itself have none |

A method that learns one thing after the other has two more names: `frozen_from(cfg)`, the update from which on (None:
never) its latents are frozen, and `freeze(cfg, state, observation)`, the latents. The training loop then computes
them once for all rows, and batches carry them.
"""

from __future__ import annotations

import dataclasses
import importlib
import typing
from types import ModuleType
from typing import Any

from hilp.errors import HilpError, nearest

# Name on the command line -> module (imported when asked for), and the config values that the name stands for.
MODULES: dict[str, tuple[str, dict[str, str]]] = {
    "hilp": ("hilp.learning.methods.hilp", {}),
    "sf-hilp": ("hilp.learning.methods.sf", {"features": "hilbert"}),
    "sf-lap": ("hilp.learning.methods.sf", {"features": "lap"}),
    "sf-fdm": ("hilp.learning.methods.sf", {"features": "fdm"}),
    "sf-ae": ("hilp.learning.methods.sf", {"features": "ae"}),
    "sf-idm": ("hilp.learning.methods.sf", {"features": "idm"}),
    "sf-cl": ("hilp.learning.methods.sf", {"features": "cl"}),
    "sf-rand": ("hilp.learning.methods.sf", {"features": "rand"}),
    "fb": ("hilp.learning.methods.fb", {}),
    "gc-td3": ("hilp.learning.methods.gctd3", {}),
    "gc-bc": ("hilp.learning.methods.gcbc", {}),
    "gc-iql": ("hilp.learning.methods.gciql", {}),
    "gc-cql": ("hilp.learning.methods.gccql", {}),
    "iql-fdm": ("hilp.learning.methods.iql", {"features": "fdm"}),
    "iql-lap": ("hilp.learning.methods.iql", {"features": "lap"}),
    "iql-rand": ("hilp.learning.methods.iql", {"features": "rand"}),
}
LATER_KEYS = {"actor_rate": 1.0}  # config keys younger than kept runs and rows -> the value that changes nothing


def module(name: str) -> ModuleType:
    if name not in MODULES:
        raise HilpError(f"unknown method '{name}': {nearest(name, MODULES)}")
    return importlib.import_module(MODULES[name][0])


def config(name: str, **values: Any) -> Any:
    """The Config of a method by its name; values that are not given are the paper's."""
    return module(name).Config(**{**MODULES[name][1], **values})


def frozen_from(config: Any) -> int | None:
    """The update from which on a method's latents are frozen, None where they never are."""
    method = of(config)
    return method.frozen_from(config) if hasattr(method, "frozen_from") else None


def of(config: Any) -> ModuleType:
    """The module whose Config this is: a method, or a model that only explains policies."""
    return importlib.import_module(type(config).__module__)


def name_of(config: Any) -> str:
    """The method whose Config this is."""
    for name, (path, values) in MODULES.items():
        if type(config).__module__ == path and all(getattr(config, key) == value for key, value in values.items()):
            return name
    raise HilpError(f"{type(config).__name__} is not the config of a method: {nearest('', MODULES)}")


def described(config: Any) -> dict[str, Any]:
    """A config as plain values, to tell it from others.

    Keys that came later are left out while they change nothing: what was made without them is still found.
    """
    return {key: value for key, value in dataclasses.asdict(config).items() if LATER_KEYS.get(key) != value}


def configure(config: Any, changes: dict[str, Any]) -> Any:
    """A copy of a frozen config with some values changed; text is parsed by the field's type."""
    types = typing.get_type_hints(type(config))
    parsed = {}
    for key, value in changes.items():
        if key not in types:
            raise HilpError(f"unknown config key '{key}': {nearest(key, types)}")
        parsed[key] = _parse(key, value, types[key])
    return dataclasses.replace(config, **parsed)  # all at once: some values make sense only together


def require(config: Any, wanted: dict[str, tuple[str, ...]]) -> None:
    """Raise one line about the first value of a config that makes no sense; `wanted` maps a kind to field names."""
    makes_sense = {
        "at least 1": lambda v: v >= 1,
        "at least 0": lambda v: v >= 0,
        "above 0": lambda v: v > 0,
        "between 0 and 1": lambda v: 0 < v < 1,
        "from 0 to 1": lambda v: 0 <= v <= 1,
        "above 0, at most 1": lambda v: 0 < v <= 1,
        "sizes of at least 1": lambda v: len(v) > 0 and min(v) >= 1,
    }
    for kind, names in wanted.items():
        for name in names:
            if not makes_sense[kind](getattr(config, name)):
                raise HilpError(f"config key '{name}' must be {kind}, not {getattr(config, name)}")
    for name, choice in typing.get_type_hints(type(config)).items():
        if typing.get_origin(choice) is typing.Literal:
            _parse(name, getattr(config, name), choice)


def _parse(key: str, value: Any, kind: Any) -> Any:
    """`value` as the type of a config field, from text (command line) or JSON."""
    if typing.get_origin(kind) is typing.Literal:
        options = typing.get_args(kind)
        if value not in options:
            raise HilpError(f"config key '{key}' cannot be '{value}': {nearest(str(value), map(str, options))}")
        return value
    try:
        if typing.get_origin(kind) is tuple:
            parts = value.replace("x", ",").strip("()[]").split(",") if isinstance(value, str) else value
            item = typing.get_args(kind)[0]
            return tuple(_parse(key, part, item) for part in parts if part != "")
        if kind is bool:
            if str(value).lower() not in ("true", "false", "0", "1"):
                raise ValueError
            return str(value).lower() in ("true", "1")
        if kind is int:
            number = float(value)
            if number != int(number):
                raise ValueError
            return int(number)
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        wanted = getattr(kind, "__name__", str(kind))
        raise HilpError(f"config key '{key}' needs a value of type {wanted}, not '{value}'") from None
