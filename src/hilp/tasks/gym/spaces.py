"""Spaces of Gymnasium and vectors: observations side by side, goals among them, actions from [-1, 1] and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hilp.errors import HilpError

OBSERVATION, ACHIEVED, DESIRED = "observation", "achieved_goal", "desired_goal"  # as goal environments call them
Parts = tuple[tuple[str, tuple[int, ...]], ...]


def is_goal_space(space: Any) -> bool:
    """Whether observations are dicts of an observation, an achieved goal and a desired one."""
    return {OBSERVATION, ACHIEVED, DESIRED} <= set(getattr(space, "spaces", ()))


@dataclass(frozen=True)
class Layout:
    """How an observation becomes one vector: its parts side by side."""

    space: Any
    parts: Parts
    goal_columns: np.ndarray | None = None  # the columns that are the achieved goal, in its order

    @property
    def dim(self) -> int:
        return sum(int(np.prod(shape)) for _, shape in self.parts)

    def vector(self, observation: Any) -> np.ndarray:
        """One observation as the environment gives it, float64 [dim]."""
        from gymnasium.spaces import flatten

        if not is_goal_space(self.space):
            return np.asarray(flatten(self.space, observation), np.float64)
        return np.concatenate([flatten(self.space[name], observation[name]) for name, _ in self.parts]).astype(float)


def layout(space: Any, seen: list[Mapping[str, np.ndarray]], name: str) -> Layout:
    """The layout of a space; in a goal environment the achieved goal joins the observation, unless it is part of it.

    seen: observations of a goal environment; a column belongs to the goal if it is equal in all of them.
    """
    from gymnasium import spaces

    _require_vectors(space, name)
    if not is_goal_space(space):
        named = space.spaces.items() if isinstance(space, spaces.Dict) else [(OBSERVATION, space)]
        return Layout(space, tuple((key, (int(spaces.flatdim(part)),)) for key, part in named))
    size, goals = (int(spaces.flatdim(space[part])) for part in (OBSERVATION, ACHIEVED))
    rows = ([np.asarray(spaces.flatten(space[part], one[part])) for one in seen] for part in (OBSERVATION, ACHIEVED))
    columns = _inside(*map(np.stack, rows))
    if columns is not None:
        return Layout(space, ((OBSERVATION, (size,)),), columns)
    return Layout(space, ((OBSERVATION, (size,)), (ACHIEVED, (goals,))), np.arange(size, size + goals))


def _require_vectors(space: Any, name: str) -> None:
    from gymnasium import spaces

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


@dataclass(frozen=True)
class Actions:
    """A box of actions, seen as [-1, 1] in each direction."""

    space: Any

    @staticmethod
    def of(space: Any, name: str) -> Actions:
        from gymnasium.spaces import Box

        if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
            raise HilpError(f"{name} has actions of the kind {space}: hilp acts in a Box of continuous numbers")
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise HilpError(
                f"{name} has actions without bounds: wrap it in gymnasium.wrappers.RescaleAction or ClipAction"
            )
        return Actions(space)

    @property
    def dim(self) -> int:
        return int(np.prod(self.space.shape))

    def scaled(self, actions: np.ndarray) -> np.ndarray:
        """From the environment's own units [n, act] to [-1, 1]."""
        low, high = (np.asarray(bound, np.float64).ravel() for bound in (self.space.low, self.space.high))
        half: np.ndarray = (high - low) / 2
        return (actions - low) / np.where(half > 0, half, 1.0) - 1

    def raw(self, action: np.ndarray) -> np.ndarray:
        """One action [act] inside [-1, 1] as the environment takes it."""
        low, high = (np.asarray(bound, np.float64) for bound in (self.space.low, self.space.high))
        within = np.clip(np.asarray(action, np.float64), -1, 1).reshape(self.space.shape)
        return np.clip(low + (high - low) * (within + 1) / 2, low, high).astype(self.space.dtype)
