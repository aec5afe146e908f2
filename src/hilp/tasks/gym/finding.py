"""Finding an environment: by an id of Gymnasium's registry, from an object, or by what makes one."""

from __future__ import annotations

import contextlib
import copy
import difflib
import importlib
import inspect
import io
import json
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hilp import plugins
from hilp.errors import HilpError, reason
from hilp.tasks.simulator import choose_rendering

PREFIX = "gym:"
# Packages whose environments are known to Gymnasium only once they are imported.
PACKAGES = ("gymnasium_robotics", "ogbench", "hilp.tasks.gym_maze")


def names() -> list[str]:
    """None: what is installed can be made, but is not listed."""
    return []


def takes(name: str) -> bool:
    """Whether this is an environment of Gymnasium, or code in a file that makes a task."""
    return name.startswith(PREFIX) or plugins.names_code(name)


def runs_user_code(name: str) -> bool:
    """Whether making this task runs code that is named in it: that of a file, or of a module to be imported."""
    given = name.removeprefix(PREFIX).partition("?")[0]
    return takes(name) and (plugins.names_code(name) or ":" in given)


def with_values(text: str) -> tuple[str, dict[str, Any]]:
    """An id and the values for its constructor: ID?key=value&key=value, values as JSON where they are."""
    identity, _, query = text.partition("?")
    values: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if not equals or not key.isidentifier():
            raise HilpError(
                f"values of an environment are given as {PREFIX}{identity}?key=value&key=value, not '{part}'"
            )
        try:
            values[key] = json.loads(value)
        except ValueError:
            values[key] = value
    return identity, values


def maker(env: Any, values: Mapping[str, Any]) -> tuple[Callable[[bool], Any], str | None]:
    """A function that makes the environment, with or without pictures, and the name that makes it again if any."""
    import gymnasium

    choose_rendering()
    if isinstance(env, str):
        query = "&".join(f"{key}={json.dumps(value)}" for key, value in values.items())
        identity = env.removeprefix(PREFIX)
        bare = _import_module_of(identity)
        return partial(_make_by_id, bare, values), f"{PREFIX}{identity}" + (f"?{query}" if query else "")
    if isinstance(env, gymnasium.Env):
        if values:
            raise HilpError(
                f"{', '.join(values)}: values are for environments that are made here, and this one is made"
            )
        return partial(_copy, env), None
    if not callable(env):
        raise HilpError(f"a Gymnasium task is made from an id, an environment or a function, not {env!r:.60}")
    return partial(_call, env, values), None


def _import_module_of(identity: str) -> str:
    """Import what knows an id of the form module:ID or ID; returns the ID."""
    module, colon, bare = identity.rpartition(":")
    if colon:
        try:
            importlib.import_module(module)
        except Exception as error:
            raise HilpError(
                f"the module '{module}' cannot be imported ({reason(error)}): put its folder on PYTHONPATH, or name "
                f"the file, path/to/{module}.py:make_env"
            ) from error
    _import_packages(bare)
    return bare


def _make_by_id(identity: str, values: Mapping[str, Any], pictures: bool) -> Any:
    import gymnasium

    try:
        return _quietly_made(identity, **values, **_pictures(pictures))
    except Exception as error:  # its code is not ours
        if isinstance(error, gymnasium.error.UnregisteredEnv) or type(error) is gymnasium.error.Error:
            raise HilpError(f"there is no Gymnasium environment '{identity}': {_near(identity)}") from error
        raise HilpError(f"the environment {identity} cannot be made: {reason(error)}") from error


def _quietly_made(spec: Any, **values: Any) -> Any:
    """An environment without warnings of versions and of checks that are not the user's."""
    import gymnasium

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gymnasium.make(spec, disable_env_checker=True, **values)


def _pictures(wanted: bool) -> dict[str, Any]:
    return {"render_mode": "rgb_array"} if wanted else {}


def _import_packages(identity: str) -> None:
    """Import the packages that may know an id which the registry does not know yet."""
    import gymnasium

    known = {spec.partition("-v")[0] for spec in gymnasium.registry}
    for package in PACKAGES:
        if identity in gymnasium.registry or identity.partition("-v")[0] in known:
            return
        # Without notices about other environments.
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(ImportError):
            warnings.simplefilter("ignore")
            importlib.import_module(package)


def _near(identity: str) -> str:
    """The end of the message about an id that is not known: the ids most like it."""
    import gymnasium

    close = difflib.get_close_matches(identity, gymnasium.registry, n=3, cutoff=0.6)
    if not close:
        return "`python -c 'import gymnasium; gymnasium.pprint_registry()'` lists those that are installed"
    return f"did you mean {' or '.join(repr(PREFIX + name) for name in close)}?"


def _copy(env: Any, pictures: bool) -> Any:
    """A copy of an environment: made anew by its spec where it has one."""
    try:
        return copy.deepcopy(env) if env.spec is None else _quietly_made(env.spec, **_pictures(pictures))
    except Exception as error:
        kind = type(env.unwrapped).__name__
        raise HilpError(
            f"the environment {kind} cannot be copied ({reason(error)}): give a function that makes it"
        ) from error


def _call(function: Callable[..., Any], values: Mapping[str, Any], pictures: bool) -> Any:
    import gymnasium

    try:
        draws = "render_mode" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        draws = False
    name = getattr(function, "__name__", type(function).__name__)
    try:
        env = function(**values, **_pictures(pictures and draws))
    except Exception as error:
        raise HilpError(f"{name} makes no environment: {type(error).__name__}: {reason(error)}") from error
    if not isinstance(env, gymnasium.Env):
        raise HilpError(f"{name} gives a {type(env).__name__}, not a Gymnasium environment")
    return env
