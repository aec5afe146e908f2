"""The registry of methods: from a name to its file, its config and its presets; and what older runs called them.

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
from hilp.learning.contract import Preset, Stage

# Name on the command line -> module (imported when asked for), and the config values that the name stands for.
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
    """Make a method known by name in this process: its module or the path of it, and config values it stands for."""
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
    """The Config of a method by its name; values that are not given are the paper's."""
    found = module(name)
    return found.Config(**{**MODULES[name][1], **values})


def keys(name: str) -> set[str]:
    """The config keys that can be set for a method, former ones included."""
    former = {VARIANT, *V_ALSO_HAD} if name in VARIANTS else set()
    return {field.name for field in dataclasses.fields(module(name).Config)} | former


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
        raise HilpError(f"{method.__name__}: every stage but the last must say until when, and the last must not")
    return found


def columns(config: Any) -> tuple[str, ...]:
    """The columns that a method needs of the data beside observations and actions: none for most."""
    return getattr(of(config), "COLUMNS", ())


def presets(name: str) -> tuple[Preset, ...]:
    """What a method's file says about its presets."""
    return getattr(module(name), "PRESETS", ())


# ---- what was made before --------------------------------------------------------------------------------------------

LATER_KEYS: dict[str, tuple[Any, ...]] = {
    "actor_rate": (1.0,),
    "actor_goal_random": (0.0,),
    "encoder": ("paper",),  # of pictures, which were not looked at before
    "augment": ("rows", "apart"),
    "policy_sees": ("observations",),
}  # config keys younger than kept runs and rows -> the defaults that change nothing
# A key that once chose between what are two methods now: its values, and the keys that only the second of them has.
VARIANT, VARIANTS = "variant", {"gc-iql": "v", "gc-iql-q": "q"}
V_ALSO_HAD = {"extraction": "awr", "bc_weight": 0.3}
FORMER_NAMES = {"gc-iql-q": "gc-iql"}


def config_values(config: Any) -> dict[str, Any]:
    """A config as plain values, to tell it from others: the same for equal configs of any version.

    Keys that came later are left out while they change nothing, and those that went stay: what was made with other
    keys is still found.
    """
    values = dataclasses.asdict(config)
    for field in dataclasses.fields(config):
        if values[field.name] == field.default and field.default in LATER_KEYS.get(field.name, ()):  # found without it
            del values[field.name]
    path = type(config).__module__
    for name, variant in VARIANTS.items():
        if path == MODULES[name][0]:
            values |= {VARIANT: variant, **(V_ALSO_HAD if variant == "v" else {})}
    return values


def former_name(config: Any) -> str:
    """The method's name before its variants became methods: what was made then is told by it."""
    name = name_of(config)
    return FORMER_NAMES.get(name, name)


def configure(config: Any, changes: dict[str, Any]) -> Any:
    """A copy of a config with some values changed; text is parsed by the field's type."""
    config, changes = _without_variant(config, changes)
    return configs.changed(config, changes)


def revived(name: str, values: dict[str, Any]) -> Any:
    """The config that a run, a policy or a row describes, of this version or an older one."""
    return configure(module(name).Config(), values)


def _without_variant(config: Any, changes: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The config of gc-iql-q where gc-iql is asked for its former variant q, and the changes without that key."""
    paths = {MODULES[name][0]: name for name in VARIANTS}
    name = paths.get(type(config).__module__)
    if name is None or not (VARIANT in changes or (name == "gc-iql" and V_ALSO_HAD.keys() & changes.keys())):
        return config, changes
    wanted = changes.get(VARIANT, VARIANTS[name])
    if wanted not in VARIANTS.values():
        raise HilpError(f"config key '{VARIANT}' cannot be '{wanted}': {nearest(str(wanted), VARIANTS.values())}")
    rest = {key: value for key, value in changes.items() if key != VARIANT}
    target = module(next(name for name, variant in VARIANTS.items() if variant == wanted)).Config
    if wanted == "v":
        former = configs.changed(module("gc-iql-q").Config(), {k: v for k, v in rest.items() if k in V_ALSO_HAD})
        if former.extraction == "ddpg+bc":
            raise HilpError("config key 'extraction' is of gc-iql-q only: V(s, g) knows no actions to climb")
        rest = {key: value for key, value in rest.items() if key not in V_ALSO_HAD}
    if target is not type(config):
        known = {field.name for field in dataclasses.fields(target)}
        config = target(**{key: value for key, value in dataclasses.asdict(config).items() if key in known})
    return config, rest
