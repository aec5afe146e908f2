"""Methods: one file each, five public names each (Config, sample, init, update, export).

A method's export is a tree of arrays with `act(observation, z)` and those of `encode`, `direct`, `cumulant` and
`project` that it has a rule for; prompts ask for a rule, never for a method's name.
"""

from __future__ import annotations

import dataclasses
import importlib
import typing
from types import ModuleType
from typing import Any

from hilp.errors import HilpError, nearest

MODULES = {"hilp": "hilp.methods.hilp"}  # name on the command line -> module, imported when asked for


def module(name: str) -> ModuleType:
    if name not in MODULES:
        raise HilpError(f"unknown method '{name}': {nearest(name, MODULES)}")
    return importlib.import_module(MODULES[name])


def of(config: Any) -> ModuleType:
    """The module whose Config this is: a method, or a model that only explains policies."""
    return importlib.import_module(type(config).__module__)


def name_of(config: Any) -> str:
    """The method whose Config this is."""
    for name, path in MODULES.items():
        if type(config).__module__ == path:
            return name
    raise HilpError(f"{type(config).__name__} is not the config of a method: {nearest('', MODULES)}")


def configure(config: Any, changes: dict[str, Any]) -> Any:
    """A copy of a frozen config with some values changed; text is parsed by the field's type."""
    types = typing.get_type_hints(type(config))
    for key, value in changes.items():
        if key not in types:
            raise HilpError(f"unknown config key '{key}': {nearest(key, types)}")
        config = dataclasses.replace(config, **{key: _parse(key, value, types[key])})
    return config


def require(config: Any, wanted: dict[str, tuple[str, ...]]) -> None:
    """Raise one line about the first value of a config that makes no sense; `wanted` maps a kind to field names."""
    makes_sense = {
        "at least 1": lambda v: v >= 1,
        "at least 0": lambda v: v >= 0,
        "above 0": lambda v: v > 0,
        "between 0 and 1": lambda v: 0 < v < 1,
        "from 0 to 1": lambda v: 0 <= v <= 1,
        "sizes of at least 1": lambda v: len(v) > 0 and min(v) >= 1,
    }
    for kind, names in wanted.items():
        for name in names:
            if not makes_sense[kind](getattr(config, name)):
                raise HilpError(f"config key '{name}' must be {kind}, not {getattr(config, name)}")


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
