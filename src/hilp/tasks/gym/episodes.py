"""Episodes in Gymnasium environments, side by side: a list of environments, none of which starts anew by itself."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from hilp.errors import HilpError, nearest

FLAGS = ("is_success", "success")  # of info: what environments call it


class GymEpisodes:
    """n episodes. One that the environment ends (`over`) stays where it is and earns nothing more.

    The environments are lent by the task (a GymTask) and go back to it when these episodes are no longer used.
    """

    def __init__(self, task: Any, envs: list[Any], seeds: np.ndarray, goal: Callable[[int], np.ndarray | None]) -> None:
        self._task, self._envs, self._seeds = task, envs, seeds
        weakref.finalize(self, task.pool.extend, envs)
        n = len(envs)
        self.over = np.zeros(n, bool)
        self._flags, self._earned = np.zeros(n, bool), np.zeros(n)
        self._actions = np.zeros((n, task.action_dim))
        given = [goal(number) for number in range(n)]
        self._wanted = np.full((n, task.goal_dim), np.nan)  # what a goal environment desires, in its own goal space
        self.observations = np.empty((n, task.observation_dim), np.float32)
        self.goals = np.full((n, task.observation_dim), np.nan, np.float32)
        self._told = np.ones(n, bool)  # whether the environment's own flag is about the goal of the episode
        for number, env in enumerate(envs):
            observation, info = env.reset(seed=int(seeds[number]))
            self._see(number, observation)
            self._flags[number] = bool(next((info[flag] for flag in FLAGS if flag in info), False))
            own = given[number]
            if task.goal_dim:
                if own is not None:
                    self._told[number] = set_goal(env, own)
                self._wanted[number] = np.ravel(observation["desired_goal"]) if own is None else own
                self.goals[number] = task.goal_observation(self._wanted[number])
            elif own is not None:
                self.goals[number] = own

    def _see(self, number: int, observation: Any) -> None:
        vector = self._task.layout.vector(observation)
        if not np.isfinite(vector).all():
            raise HilpError(f"{self._task.name} gave an observation with NaN or infinite numbers: {vector}")
        self.observations[number] = vector

    def step(self, actions: np.ndarray) -> None:
        """One step of all but the episodes that are over, or that rest at their goal with an action of exactly zero."""
        task = self._task
        actions = np.asarray(actions, np.float64)
        if task.own_units:
            actions = task.actions.scaled(actions)
        resting = self.reached() & (actions == 0).all(axis=1)
        self._actions, self._earned = np.clip(actions, -1, 1), np.zeros(len(self._envs))
        for number in np.flatnonzero(~(self.over | resting)):
            observation, reward, terminated, truncated, info = self._envs[number].step(
                task.actions.raw(actions[number])
            )
            self._see(number, observation)
            self._earned[number] = float(reward)
            self._flags[number] = bool(next((info[flag] for flag in FLAGS if flag in info), False))
            self.over[number] = terminated or truncated

    def reached(self) -> np.ndarray:
        """At the goal now: by the task's own rule where it has one, else as the environment says."""
        task = self._task
        if not task.has_goals:
            return np.zeros(len(self._envs), bool)
        if task.success is not None:
            return task.near(self.observations, self.goals)
        if self._told.all():
            return self._flags.copy()
        return np.where(self._told, self._flags, task.near(self.observations, self.goals))

    def extra(self, name: str) -> np.ndarray:
        """ "own_reward" [n]: what the last step earned; "physics" [n, p]: what it takes to play the step again."""
        if name == "physics":
            return np.concatenate([self._seeds[:, None], self._wanted, self._actions], axis=1)
        if name in self._task.extra_columns:
            return self._earned.astype(np.float32)
        raise HilpError(f"{self._task.name} has no extra column '{name}': {nearest(name, self._task.extra_columns)}")


def set_goal(env: Any, goal: np.ndarray) -> bool:
    """Give a goal environment another goal, where it keeps its own as `goal`; False where it does not."""
    inner = env.unwrapped
    if not hasattr(inner, "goal") or np.shape(inner.goal) != np.shape(goal):
        return False
    inner.goal = np.array(goal)
    return True
