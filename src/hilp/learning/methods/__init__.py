"""The registry of methods: from a name to its file, its config and its presets.

A method of your own is found by an entry point of the group `hilp.methods` (name = "package.module"), or by `register`.
The contract is in hilp.learning.contract.
"""

from __future__ import annotations

import dataclasses
import importlib
from types import ModuleType
from typing import Any

from hilp import plugins
from hilp.errors import HilpError, nearest
from hilp.learning import configs
from hilp.learning.contract import Stage

# Name on the command line -> module (imported at first use), and the config values that the name implies.
MODULES: dict[str, tuple[str, dict[str, str]]] = {
    "hilp": ("hilp.learning.methods.hilp", {}),
    "hilp-directed": ("hilp.learning.methods.directed", {}),
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
    "gc-iql-q": ("hilp.learning.methods.gciql_q", {}),
    "gc-cql": ("hilp.learning.methods.gccql", {}),
    "hiql": ("hilp.learning.methods.hiql", {}),
    "qrl": ("hilp.learning.methods.qrl", {}),
    "crl": ("hilp.learning.methods.crl", {}),
    "iql-fdm": ("hilp.learning.methods.iql", {"features": "fdm"}),
    "iql-lap": ("hilp.learning.methods.iql", {"features": "lap"}),
    "iql-rand": ("hilp.learning.methods.iql", {"features": "rand"}),
    "opal": ("hilp.learning.methods.opal", {}),
    "iql": ("hilp.learning.methods.reward_iql", {}),
}


def register(name: str, module: str | ModuleType, **values: str) -> None:
    """Make a method known by name in this process: its module or the path of it, and config values it implies."""
    MODULES[name] = (module if isinstance(module, str) else module.__name__, values)


def names() -> list[str]:
    """The names of all methods, those of other packages included."""
    return [*MODULES, *(name for name in _plugins() if name not in MODULES)]


def module(name: str) -> ModuleType:
    """The file of a method."""
    if name not in MODULES:
        brought = _plugins()
        if name not in brought:
            raise HilpError(f"unknown method '{name}': {nearest(name, names())}")
        register(name, brought[name])
    path = MODULES[name][0]
    try:
        found = importlib.import_module(path)
    except ImportError as error:
        raise HilpError(f"method '{name}' cannot be imported from {path}: {error}") from error
    lacking = [part for part in ("Config", "sample", "init", "update", "export") if not hasattr(found, part)]
    if lacking:
        raise HilpError(f"{path} is no method: it has no '{lacking[0]}'")
    return found


def _plugins() -> dict[str, str]:
    return {name: entry.value for name, entry in plugins.found("methods").items()}


def config(name: str, **values: Any) -> Any:
    """The Config of a method by its name; other values are the paper's."""
    found = module(name)
    return found.Config(**{**MODULES[name][1], **values})


def keys(name: str) -> set[str]:
    """The config keys of a method."""
    return {field.name for field in dataclasses.fields(module(name).Config)}


def fixed(name: str) -> dict[str, str]:
    """The config values that a method's name implies."""
    module(name)
    return MODULES[name][1]


def of(config: Any) -> ModuleType:
    """The module whose Config this is: a method, or a model that only explains policies."""
    return importlib.import_module(type(config).__module__)


def name_of(config: Any) -> str:
    """The method whose Config this is."""
    for name in names():
        path, values = MODULES[name] if name in MODULES else (_plugins()[name], {})
        if type(config).__module__ == path and all(getattr(config, key) == value for key, value in values.items()):
            return name
    raise HilpError(f"{type(config).__name__} is not the config of a method: {nearest('', names())}")


def stages(config: Any) -> tuple[Stage, ...]:
    """The parts that training has, one for most methods."""
    method = of(config)
    found = method.stages(config) if hasattr(method, "stages") else (Stage(method.sample, method.update),)
    if not found or found[-1].until is not None or any(stage.until is None for stage in found[:-1]):
        raise HilpError(f"{method.__name__}: every stage but the last needs an `until`, and the last must have none")
    return found


def columns(config: Any) -> tuple[str, ...]:
    """The columns that a method needs of the data, besides observations and actions; none for most."""
    return getattr(of(config), "COLUMNS", ())


def presets(name: str) -> dict[str, dict[str, Any]]:
    """The table of a method's presets (see hilp.learning.tables)."""
    return getattr(module(name), "PRESETS", {})


configure = configs.changed


def config_values(config: Any) -> dict[str, Any]:
    """A config as plain values: what runs, policies and rows hold of it."""
    return dataclasses.asdict(config)


def from_values(name: str, values: dict[str, Any]) -> Any:
    """The config that a run, a policy or a row holds as plain values."""
    return configs.changed(module(name).Config(), values)
