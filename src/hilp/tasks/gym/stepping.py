"""The one place where environments of Gymnasium are reset and stepped, for episodes of this process or of another.

An episode depends on its own seed and actions, never on those beside it.
"""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hilp import plugins
from hilp.errors import HilpError

FLAGS = ("is_success", "success")  # of info: what environments call it
Seen = dict[str, np.ndarray]  # what environments answered, by name, a row an episode


@dataclass(frozen=True)
class Simulator:
    """How a task's environments are made, and what goes in and out of them as vectors."""

    name: str  # of the task
    make: Callable[..., Any]
    layout: Any  # Layout of `environments`
    actions: Any  # Actions of `environments`
    pool: list[Any] = field(default_factory=list)  # environments that no episode uses

    def take(self) -> Any:
        return self.pool.pop() if self.pool else self.make()

    def seen(self, observation: Any, info: Mapping[str, Any]) -> dict[str, Any]:
        vector = self.layout.vector(observation)
        if not np.isfinite(vector).all():
            raise HilpError(f"{self.name} gave an observation with NaN or infinite numbers: {vector}")
        return {"observations": vector, "flags": bool(next((info[flag] for flag in FLAGS if flag in info), False))}

    def begun(self, observation: Any, info: Mapping[str, Any], goal: np.ndarray | None, told: bool) -> dict[str, Any]:
        """Of a goal environment also what it desires, and whether its flag is about that."""
        row = self.seen(observation, info)
        if len(self.layout.goal_columns):
            row["told"], row["wanted"] = told, np.ravel(observation["desired_goal"]) if goal is None else goal
        return row


def stacked(rows: Sequence[Mapping[str, Any]]) -> Seen:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


class Here:
    """Environments of a group of episodes; they go back to the pool when these episodes are no longer used."""

    number = 0  # of the environment that was last asked

    def __init__(self, simulator: Simulator) -> None:
        self._simulator, self._envs = simulator, list[Any]()
        weakref.finalize(self, simulator.pool.extend, self._envs)

    def begin(self, seeds: Sequence[int], goals: Sequence[np.ndarray | None]) -> Seen:
        """A reset of one a seed: observations [n, obs] and flags [n], of goal environments also told and wanted.

        goals: of each in the goal space of a goal environment, or None for the environment's own.
        """
        self._envs += [self._simulator.take() for _ in seeds]
        return self._asked(range(len(seeds)), lambda number: self._reset(number, seeds[number], goals[number]))

    def step(self, numbers: np.ndarray, actions: np.ndarray) -> Seen:
        """One step of some of them: observations [k, obs], flags, rewards and over [k]."""
        given = dict(zip(numbers.tolist(), actions, strict=True))
        return self._asked(given, lambda number: self._step(number, given[number]))

    def picture(self, number: int) -> np.ndarray:
        return np.asarray(self._envs[number].render(), np.uint8)

    def _asked(self, numbers: Iterable[int], ask: Callable[[int], dict[str, Any]]) -> Seen:
        rows = []
        for self.number in numbers:
            with plugins.no_library_errors(self._simulator.name):
                rows.append(ask(self.number))
        return stacked(rows)

    def _reset(self, number: int, seed: int, goal: np.ndarray | None) -> dict[str, Any]:
        env = self._envs[number]
        observation, info = env.reset(seed=int(seed))
        return self._simulator.begun(observation, info, goal, goal is None or set_goal(env, goal))

    def _step(self, number: int, action: np.ndarray) -> dict[str, Any]:
        observation, reward, terminated, truncated, info = self._envs[number].step(self._simulator.actions.raw(action))
        row = self._simulator.seen(observation, info)
        return {**row, "rewards": float(reward), "over": bool(terminated or truncated)}


def set_goal(env: Any, goal: np.ndarray) -> bool:
    """Give a goal environment another goal, where it keeps its own as `goal`; False where it does not."""
    inner = env.unwrapped
    if not hasattr(inner, "goal") or np.shape(inner.goal) != np.shape(goal):
        return False
    inner.goal = np.array(goal)
    return True
