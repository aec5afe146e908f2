"""The registry of methods: from a name to its file, its config and its presets.

A method of your own is found by an entry point of the group `hilp.methods` (name = "package.module"), or by `register`.

A method is one file with five names: `Config`, `sample(cfg, index, key)`, `init(cfg, spec, key)`,
`update(cfg, state, batch, key) -> (state, info)` and `export(cfg, state)`. It may have more: `PRESETS`, `stages(cfg)`
where it learns one thing after the other, `reference(cfg)` where it learns distances (config values of a V(s, g) to
compare them with), and `COLUMNS`, the names of extra columns of the data that its sampler needs (`rewards`).
What it exports is a tree of arrays with `skill_dim`, `act(observation, z)` and those rules that it has; prompts use
a rule, never a method's name. docs/add-a-method.md goes through all of them with an example.

A segment is rows (batch x (k + 1)) and the actions between them (batch x k), of which the first `steps` are real; one
that met its episode's end stays on the last row. An export with `skill_dim` 0 was trained for one task and takes no
prompt.
"""

import dataclasses
import importlib
from types import ModuleType
from typing import Any

from hilp import errors, plugins
from hilp.errors import HilpError, require_name
from hilp.learning import configs

OTHER_FEATURES = ("lap", "fdm", "ae", "idm", "cl", "rand")  # of successor features
# Name on the command line -> module (imported at first use), and the config values that the name implies.
MODULES: dict[str, tuple[str, dict[str, str]]] = {
    "hilp": ("hilp.learning.methods.hilp", {}),
    "hindsight": ("hilp.learning.methods.hindsight", {}),
    "hilp-directed": ("hilp.learning.methods.directed", {}),
    "sf-hilp": ("hilp.learning.methods.sf", {"features": "hilbert"}),
    **{f"sf-{kind}": ("hilp.learning.methods.sf", {"features": kind}) for kind in OTHER_FEATURES},
    "fb": ("hilp.learning.methods.fb", {}),
    "gc-td3": ("hilp.learning.methods.gctd3", {}),
    "gc-bc": ("hilp.learning.methods.gcbc", {}),
    "gc-iql": ("hilp.learning.methods.gciql", {}),
    "gc-iql-q": ("hilp.learning.methods.gciql_q", {}),
    "gc-cql": ("hilp.learning.methods.gccql", {}),
    "hiql": ("hilp.learning.methods.hiql", {}),
    "qrl": ("hilp.learning.methods.qrl", {}),
    "crl": ("hilp.learning.methods.crl", {}),
    **{f"iql-{kind}": ("hilp.learning.methods.iql", {"features": kind}) for kind in ("fdm", "lap", "rand")},
    "nearest": ("hilp.learning.methods.nearest", {}),
    "opal": ("hilp.learning.methods.opal", {}),
    "iql": ("hilp.learning.methods.reward_iql", {}),
}


def register(name: str, module: str | ModuleType, **values: str) -> None:
    """Make a method known by name in this process: its module or the path of it, and config values it implies."""
    require_name("a method", name)
    if not isinstance(module, str | ModuleType):
        raise HilpError(f"method '{name}' must be registered with its module or the path of it, not {module!r:.60}")
    MODULES[name] = (module if isinstance(module, str) else module.__name__, values)


def names() -> list[str]:
    """The names of all methods, those of other packages included."""
    return [*MODULES, *(name for name in _plugins() if name not in MODULES)]


def module(name: str) -> ModuleType:
    if name not in MODULES:
        brought = _plugins()
        if name not in brought:
            raise HilpError(f"unknown method '{name}': {errors.nearest(name, names())}")
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
    return {field.name for field in dataclasses.fields(module(name).Config)}


def of(config: Any) -> ModuleType:
    """The module whose Config this is: a method, or a model that only explains policies."""
    return importlib.import_module(type(config).__module__)


def name_of(config: Any) -> str:
    for name in names():
        path, values = MODULES[name] if name in MODULES else (_plugins()[name], {})
        if type(config).__module__ == path and all(getattr(config, key) == value for key, value in values.items()):
            return name
    raise HilpError(f"{type(config).__name__} is not the config of a method: {errors.nearest('', names())}")


def stages(config: Any) -> tuple[configs.Stage, ...]:
    """The parts that training has, one for most methods."""
    method = of(config)
    found = method.stages(config) if hasattr(method, "stages") else (configs.Stage(method.sample, method.update),)
    if not found or found[-1].until is not None or any(stage.until is None for stage in found[:-1]):
        raise HilpError(f"{method.__name__}: every stage but the last needs an `until`, and the last must have none")
    return found


def columns(config: Any) -> tuple[str, ...]:
    """The columns that a method needs of the data, besides observations and actions; none for most."""
    return getattr(of(config), "COLUMNS", ())


def presets(name: str) -> dict[str, dict[str, Any]]:
    """The table of a method's presets (see hilp.learning.tables)."""
    return getattr(module(name), "PRESETS", {})


configure, config_values = configs.changed, configs.values
