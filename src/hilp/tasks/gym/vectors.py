"""Environments that step many episodes at once by themselves: `gymnasium.vector`, whatever they do after an end."""

import weakref
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import iterate

from hilp import plugins
from hilp.tasks.gym.stepping import FLAGS, Seen, Simulator, stacked

ONE_SEED = (TypeError, ValueError, AttributeError, gymnasium.error.Error)  # of those that take no list of seeds


class Rows:
    """A vector environment as so many episodes, each of which is over when it has ended: what comes after is its own.

    An observation of an end is that of the end, also where the environment begins anew in the same step.
    """

    def __init__(self, env: Any) -> None:
        self.env, self._ended = env, np.zeros(env.num_envs, bool)
        self._mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))

    def reset(self, seeds: Sequence[int]) -> list[tuple[Any, dict[str, Any]]]:
        self._ended[:] = False
        try:
            observations, info = self.env.reset(seed=[int(seed) for seed in seeds])
        except ONE_SEED:
            observations, info = self.env.reset(seed=int(seeds[0]))
        rows = enumerate(iterate(self.env.observation_space, observations))
        return [(row, _info(info, number)) for number, row in rows]

    def step(self, actions: Sequence[Any]) -> list[tuple[Any, float, bool, dict[str, Any]]]:
        """Observation, reward, whether it has ended, and info of each."""
        if self._mode == AutoresetMode.DISABLED and self._ended.any():
            self.env.reset(options={"reset_mask": self._ended})
        observations, rewards, terminated, truncated, info = self.env.step(np.stack(actions))
        self._ended = np.logical_or(terminated, truncated)
        found = []
        for number, row in enumerate(iterate(self.env.observation_space, observations)):
            told, ended = info, bool(self._ended[number])
            if ended and self._mode == AutoresetMode.SAME_STEP:
                row, told = info["final_obs"][number], info.get("final_info", {})
            found.append((row, float(rewards[number]), ended, _info(told, number)))
        return found


def _info(info: dict[str, Any], number: int) -> dict[str, Any]:
    """What is said about success of one of them."""
    said = [flag for flag in FLAGS if flag in info and (f"_{flag}" not in info or info[f"_{flag}"][number])]
    return {flag: info[flag][number] for flag in said}


class One(gymnasium.Env[Any, Any]):
    """A vector environment of one as an ordinary one, which shows what spaces there are."""

    def __init__(self, env: Any) -> None:
        self._rows = Rows(env)
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space
        self.spec, self.metadata, self.render_mode = env.spec, env.metadata, env.render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._rows.reset([seed or 0])[0]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, ended, info = self._rows.step([action])[0]
        return observation, reward, ended, False, info

    def render(self) -> Any:
        return self._rows.env.render()[0]

    def close(self) -> None:
        self._rows.env.close()


class Together:
    """As `Here`, with one vector environment for all episodes of a group, which is closed with it."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def begin(self, seeds: Sequence[int], goals: Sequence[np.ndarray | None]) -> Seen:
        env = self._simulator.make(num_envs=len(seeds))
        weakref.finalize(self, env.close)
        with plugins.no_library_errors(self._simulator.name):
            self._rows = Rows(env)
            begun = zip(self._rows.reset(seeds), goals, strict=True)
            return stacked([self._simulator.begun(*seen, goal, goal is None) for seen, goal in begun])

    def step(self, numbers: np.ndarray, actions: np.ndarray) -> Seen:
        given = dict(zip(numbers.tolist(), map(self._simulator.actions.raw, actions), strict=True))
        idle = given[int(numbers[0])]  # what is not asked about may do anything
        with plugins.no_library_errors(self._simulator.name):
            found = self._rows.step([given.get(number, idle) for number in range(self._rows.env.num_envs)])
            seen = [
                (*found[number][1:3], self._simulator.seen(found[number][0], found[number][3])) for number in numbers
            ]
        return stacked([{**row, "rewards": reward, "over": ended} for reward, ended, row in seen])
