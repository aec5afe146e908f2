"""Configs: frozen dataclasses of hyper-parameters, changed by name, with one clear line for a wrong value."""

from __future__ import annotations

import dataclasses
import typing
from typing import Annotated, Any

from hilp.errors import HilpError, nearest

AUTO = "auto"
AutoFloat = Annotated[float, AUTO]  # a number, or "auto" until training finds the one that fits its data
LARGEST = 2**31 - 1  # of a whole number: sizes beyond it are typing errors


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
        "two sizes of at least 1": lambda v: len(v) == 2 and min(v) >= 1,
    }
    fitted = to_fit(config)
    for kind, names in wanted.items():
        for name in (name for name in names if name not in fitted):
            if not makes_sense[kind](getattr(config, name)):
                raise HilpError(f"config key '{name}' must be {kind}, not {getattr(config, name)}")
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        for number in value if isinstance(value, tuple | list) else (value,):
            if isinstance(number, int) and abs(number) > LARGEST:
                raise HilpError(f"config key '{field.name}' is too large: {number:.3g}")
    for name, choice in typing.get_type_hints(type(config)).items():
        if typing.get_origin(choice) is typing.Literal:
            parse(name, getattr(config, name), choice)


def to_fit(config: Any) -> list[str]:
    """The keys of a config that are still to be fitted to data."""
    kinds = typing.get_type_hints(type(config), include_extras=True)
    return [name for name, kind in kinds.items() if kind == AutoFloat and getattr(config, name) == AUTO]


def require_shares(config: Any, *names: str) -> None:
    """Raise where values that are shares of one whole are more than it together."""
    values = [getattr(config, name) for name in names]
    if sum(values) > 1.0:
        keys = " and ".join(f"'{name}'" for name in names)
        raise HilpError(
            f"config keys {keys} are shares of one whole: together at most 1, not {' + '.join(map(str, values))}"
        )


def reference_values(config: Any) -> dict[str, object]:
    """Config values of a V(s, g) to hold the distances of a phi against: phi's sizes, goals and discount."""
    same = ("hidden", "batch", "lr", "goal_discount", "goal_random", "bound_targets", "encoder", "augment", "normalize")
    return {
        **{name: getattr(config, name) for name in same},
        "discount": config.phi_discount,
        "tau": config.phi_tau,
    }


def changed(config: Any, changes: dict[str, Any]) -> Any:
    """A copy of a frozen config with some values changed; text is parsed by the field's type."""
    types = typing.get_type_hints(type(config), include_extras=True)
    parsed = {}
    for key, value in changes.items():
        if key not in types:
            raise HilpError(f"unknown config key '{key}': {nearest(key, types)}")
        parsed[key] = parse(key, value, types[key])
    return dataclasses.replace(config, **parsed)  # all at once: some values make sense only together


def parse(key: str, value: Any, kind: Any) -> Any:
    """`value` as the type of a config field, from text (command line) or JSON."""
    if kind == AutoFloat:
        return value if value == AUTO else parse(key, value, float)
    if typing.get_origin(kind) is typing.Literal:
        options = typing.get_args(kind)
        if value not in options:
            raise HilpError(f"config key '{key}' cannot be '{value}': {nearest(str(value), map(str, options))}")
        return value
    try:
        if typing.get_origin(kind) is tuple:
            parts = value.replace("x", ",").strip("()[]").split(",") if isinstance(value, str) else value
            item = typing.get_args(kind)[0]
            return tuple(parse(key, part, item) for part in parts if part != "")
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
