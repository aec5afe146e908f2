"""Environments of Gymnasium: found by an id, an object or what makes one; their observations and actions as vectors."""

import contextlib
import copy
import difflib
import importlib
import inspect
import io
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from hilp.data.transforms import Parts
from hilp.errors import HilpError, is_count, reason
from hilp.tasks.base import choose_rendering
from hilp.tasks.gym.stepping import Here, Simulator
from hilp.tasks.gym.vectors import One

# Packages whose environments are known to Gymnasium only once they are imported.
PACKAGES = ("gymnasium_robotics", "ogbench", "hilp.tasks.gym_maze")
OBSERVATION, ACHIEVED, DESIRED = "observation", "achieved_goal", "desired_goal"  # as goal environments call them
Maker = Callable[..., Any]  # makes an environment; with render_mode="rgb_array" one that draws


def maker(env: Any, values: Mapping[str, Any]) -> tuple[Maker, str | None]:
    """A function that makes the environment, and the id and values that make it again if any."""
    choose_rendering()
    if isinstance(env, str):
        query = "&".join(f"{key}={json.dumps(value)}" for key, value in values.items())
        return partial(_make_by_id, _imported(env), values), f"{env}?{query}" if query else env
    if isinstance(env, gymnasium.Env):
        if values:
            raise HilpError(f"{', '.join(values)}: values are for environments made here, and this one is made")
        return partial(_copy, env), None
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise HilpError("a vector environment has a size of its own: give a function of num_envs that makes one")
    if not callable(env):
        raise HilpError(f"a Gymnasium task is made from an id, an environment or a function, not {env!r:.60}")
    return partial(_call, env, values), None


def _imported(identity: str) -> str:
    """The ID of module:ID or ID, after importing the module, or packages until the registry knows the ID."""
    module, colon, bare = identity.rpartition(":")
    if colon:
        try:
            importlib.import_module(module)
        except Exception as error:
            raise HilpError(
                f"the module '{module}' cannot be imported ({reason(error)}): put its folder on PYTHONPATH, or name "
                f"the file, path/to/{module}.py:make_env"
            ) from error
    known = {spec.partition("-v")[0] for spec in gymnasium.registry}
    for package in PACKAGES:
        if bare in gymnasium.registry or bare.partition("-v")[0] in known:
            break
        with contextlib.suppress(ImportError):
            _import_quietly(package)
    return bare


def _import_quietly(module: str) -> None:
    """Without notices about other environments."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        importlib.import_module(module)


def _make_by_id(identity: str, values: Mapping[str, Any], **drawn: str) -> Any:
    try:
        return _quietly_made(identity, **values, **drawn)
    except Exception as error:  # its code is not ours
        if isinstance(error, gymnasium.error.UnregisteredEnv) or type(error) is gymnasium.error.Error:
            near = difflib.get_close_matches(identity, gymnasium.registry, n=3, cutoff=0.6)
            meant = f"did you mean {' or '.join(repr(f'gym:{name}') for name in near)}?"
            listed = "`python -c 'import gymnasium; gymnasium.pprint_registry()'` lists those that are installed"
            raise HilpError(f"there is no Gymnasium environment '{identity}': {meant if near else listed}") from error
        raise HilpError(f"the environment {identity} cannot be made: {reason(error)}") from error


def _quietly_made(spec: Any, **values: Any) -> Any:
    """An environment without warnings of versions and of checks that are not the user's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gymnasium.make(spec, disable_env_checker=True, **values)


def _copy(env: Any, **drawn: str) -> Any:
    """A copy of an environment: made anew by its spec where it has one."""
    try:
        return copy.deepcopy(env) if env.spec is None else _quietly_made(env.spec, **drawn)
    except Exception as error:
        kind = type(env.unwrapped).__name__
        raise HilpError(f"{kind} cannot be copied ({reason(error)}): give a function that makes it") from error


def _call(function: Callable[..., Any], values: Mapping[str, Any], **own: Any) -> Any:
    """own: what a function may take, `render_mode`, or for several episodes at once `num_envs`."""
    try:
        taken = set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        taken = set()
    name = getattr(function, "__name__", type(function).__name__)
    try:
        env = function(**values, **{key: value for key, value in own.items() if key in taken})
    except Exception as error:
        raise HilpError(f"{name} makes no environment: {type(error).__name__}: {reason(error)}") from error
    if isinstance(env, gymnasium.vector.VectorEnv):
        if env.num_envs != own.get("num_envs", 1):
            raise HilpError(
                f"{name} gives a vector environment of {env.num_envs}: let it take num_envs=1, as many as are asked for"
            )
        return env if "num_envs" in own else One(env)
    if not isinstance(env, gymnasium.Env):
        raise HilpError(f"{name} gives a {type(env).__name__}, not a Gymnasium environment")
    return env


def loader(simulator: Simulator) -> Callable[[], Callable[[], Here]]:
    """What lets another process step these environments, also where they were registered in this one."""
    env = simulator.take()
    simulator.pool.append(env)
    spec = None if env.spec is None else gymnasium.registry.get(env.spec.id)
    return partial(_load, replace(simulator, pool=[]), spec)


def _load(simulator: Simulator, spec: Any) -> Callable[[], Here]:
    if spec is not None:
        gymnasium.registry.setdefault(spec.id, spec)
        if isinstance(spec.entry_point, str):
            _import_quietly(spec.entry_point.partition(":")[0])
    return partial(Here, simulator)


def is_goal_space(space: Any) -> bool:
    """Whether observations are dicts of an observation, an achieved goal and a desired one."""
    return {OBSERVATION, ACHIEVED, DESIRED} <= set(getattr(space, "spaces", ()))


class Layout:
    """How an observation becomes one vector: its parts side by side.

    In a goal environment the achieved goal joins the observation, unless it is part of it: a column of the observation
    belongs to the goal if it is equal in all observations that were seen.
    """

    goal_columns = np.arange(0)  # the columns that are the achieved goal, in its order

    def __init__(self, space: Any, seen: list[Mapping[str, np.ndarray]], name: str) -> None:
        _require_vectors(space, name)
        self._space, self._name, goal_env = space, name, is_goal_space(space)
        named = dict(space.spaces) if isinstance(space, spaces.Dict) else {OBSERVATION: space}
        named = {part: space[part] for part in (OBSERVATION, ACHIEVED)} if goal_env else named
        self.parts: Parts = tuple((key, (int(spaces.flatdim(part)),)) for key, part in named.items())
        if goal_env:
            rows = (np.array([spaces.flatten(part, one[key]) for one in seen]) for key, part in named.items())
            inside = _inside(*rows)
            (_, (size,)), (_, (goals,)) = self.parts
            self.goal_columns = np.arange(size, size + goals) if inside is None else inside
            self.parts = self.parts if inside is None else self.parts[:1]
        self.dim = sum(size for _, (size,) in self.parts)

    def vector(self, observation: Any) -> np.ndarray:
        """One observation as the environment gives it, float64 [dim]."""
        if not len(self.goal_columns):
            found = np.asarray(spaces.flatten(self._space, observation), np.float64)
        else:
            found = np.concatenate([spaces.flatten(self._space[name], observation[name]) for name, _ in self.parts])
        if found.shape != (self.dim,):
            raise HilpError(
                f"{self._name} gave an observation of {found.size} numbers, and its observation_space says {self.dim}"
            )
        return found.astype(float)


def _require_vectors(space: Any, name: str) -> None:
    for path, box in leaves(space):
        where = f" ({path})" if path else ""
        if not isinstance(box, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            raise HilpError(f"{name} has observations of the kind {type(box).__name__}{where}, which are no vectors")
        if isinstance(box, spaces.Box) and len(box.shape) > 1 and box.dtype == np.uint8:
            raise HilpError(f"{name} has pictures as observations{where}: wrap it so that it gives vectors")


def leaves(space: Any, path: str = "") -> list[tuple[str, Any]]:
    """The spaces inside a space of several, with their names."""
    inner = getattr(space, "spaces", None)
    if inner is None:
        return [(path, space)]
    named = inner.items() if isinstance(inner, Mapping) else enumerate(inner)
    return [leaf for key, part in named for leaf in leaves(part, f"{path}/{key}" if path else str(key))]


def _inside(observations: np.ndarray, goals: np.ndarray) -> np.ndarray | None:
    """The columns of observations [n, obs] that are those of goals [n, k]; None where one is not there for sure."""
    columns = []
    for goal in goals.T:
        if np.ptp(goal) == 0:  # a number that never changes can be anything
            return None
        same = np.flatnonzero((np.abs(observations - goal[:, None]) <= 1e-6).all(axis=0))
        if not len(same):
            return None
        columns.append(int(same[0]))
    return np.array(columns) if len(set(columns)) == len(columns) else None


def actions_of(space: Any, name: str) -> "Actions | Choices":
    """How policies act in a space of actions."""
    return Choices(space, name) if isinstance(space, spaces.Discrete) else Actions(space, name)


class Choices:
    """Discrete actions, seen as 0 to choices - 1, whatever the space begins with."""

    dim = 1

    def __init__(self, space: spaces.Discrete, name: str) -> None:
        self._name, self._start, self.choices = name, int(space.start), int(space.n)
        if self.choices < 2:
            raise HilpError(f"{name} has one action only: there is nothing to choose")

    def scaled(self, actions: np.ndarray) -> np.ndarray:
        raise HilpError(f"{self._name} has discrete actions, which have no units: leave out actions='own'")

    def limited(self, actions: np.ndarray) -> np.ndarray:
        return actions

    def drawn(self, rng: np.random.Generator) -> np.ndarray:
        return rng.integers(self.choices, size=1)

    def raw(self, action: np.ndarray) -> int:
        """One action [1] as the environment takes it."""
        (number,) = np.ravel(action)
        if number != int(number) or not 0 <= number < self.choices:
            raise HilpError(f"an action of {self._name} is a whole number from 0 to {self.choices - 1}, not {number:g}")
        return self._start + int(number)


class Actions:
    """A box of actions, seen as [-1, 1] in each direction."""

    choices = 0

    def __init__(self, space: Any, name: str) -> None:
        if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
            raise HilpError(
                f"{name} has actions of the kind {space}: hilp acts in a Box of continuous numbers or in a Discrete "
                "space (of several discrete ones, wrap it so that it numbers their combinations)"
            )
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise HilpError(
                f"{name} has actions without bounds: wrap it in gymnasium.wrappers.RescaleAction or ClipAction"
            )
        self._space, self.dim = space, int(np.prod(space.shape))
        self._low, self._high = (np.asarray(bound, np.float64) for bound in (space.low, space.high))

    def scaled(self, actions: np.ndarray) -> np.ndarray:
        """From the environment's own units [n, act] to [-1, 1]."""
        low, half = self._low.ravel(), ((self._high - self._low) / 2).ravel()
        return (actions - low) / np.where(half > 0, half, 1.0) - 1

    def limited(self, actions: np.ndarray) -> np.ndarray:
        """Actions [n, act] as they are taken."""
        return np.clip(actions, -1, 1)

    def drawn(self, rng: np.random.Generator) -> np.ndarray:
        """A random action [act]."""
        return rng.uniform(-1, 1, self.dim)

    def raw(self, action: np.ndarray) -> np.ndarray:
        """One action [act] inside [-1, 1] as the environment takes it."""
        low, high = self._low, self._high
        within = np.clip(np.asarray(action, np.float64), -1, 1).reshape(self._space.shape)
        return np.clip(low + (high - low) * (within + 1) / 2, low, high).astype(self._space.dtype)


def of_environment(given: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an environment is made with besides `values`: what is called as an option of `gym_task`."""
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise HilpError(f"env_values are what the environment is made with, by name, not {given!r:.60}")
    for key in given:
        if key in values:
            raise HilpError(f"the environment gets '{key}' twice: leave it out of env_values")
    return given


def two_columns(place: Any) -> list[int]:
    """The columns to draw, or none."""
    several = isinstance(place, list | tuple) or (isinstance(place, np.ndarray) and place.ndim == 1)
    if not several or not all(is_count(column) for column in place):
        raise HilpError(
            f"place is two columns of the observation to draw, not {place!r:.60}: if the environment is made with a "
            "value of that name, give it as env_values={'place': ...}"
        )
    return [int(column) for column in place]
