"""What several processes gain where episodes are stepped: by waiting, as for a robot or a server, and by computing."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium
import numpy as np

import hilp
from hilp import tasks
from hilp.errors import HilpError
from hilp.tasks.base import cores, with_workers
from timing import Line, not_measured

EPISODES, STEPS, TURNS = 16, 20, 10
WAIT = 0.01  # seconds of a step


class Waiting(gymnasium.Env[np.ndarray, np.ndarray]):
    """A simulator elsewhere: a step is time that passes, and no work for this machine."""

    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(WAIT)
        return action, 0.0, False, False, {}


def workers_waiting() -> Line:
    """Steps a second of an environment whose step waits, in 4 processes over one."""
    return gained(hilp.gym_task(Waiting, max_steps=STEPS), 4, f"each step waits {1e3 * WAIT:.0f} ms")


def workers_computing() -> Line:
    """Steps a second of a MuJoCo environment (FetchReach-v4), in a process a core, 4 at most, over one."""
    try:
        world = tasks.make("gym:FetchReach-v4")
    except HilpError as error:
        return not_measured("steps/s", error)
    return gained(world, min(4, cores()), "FetchReach-v4")


def gained(world: Any, workers: int, what: str) -> Line:
    began, load = time.perf_counter(), os.getloadavg()[0]  # with others at work there are fewer cores
    with with_workers(world, workers) as shared:
        shared.episodes(np.random.default_rng(0), EPISODES)
        start = time.perf_counter() - began
        both = [(seconds(shared), seconds(world)) for _ in range(TURNS)]  # in turns: a machine's pace changes
    ours, alone = (min(turn) for turn in zip(*both, strict=True))
    return {
        "value": round(EPISODES * STEPS / ours, 1),
        "unit": "steps/s",
        "ratio": round(alone / ours, 2),
        "against": f"one process instead of {workers}, {EPISODES * STEPS / alone:.1f} steps/s; {EPISODES} episodes, "
        f"{what}, {cores()} cores with a load of {load:.0f} by others",
        "start_seconds": round(start, 1),
    }


def seconds(world: Any) -> float:
    """Of the steps of all episodes, with random actions."""
    running, rng = world.episodes(np.random.default_rng(0), EPISODES), np.random.default_rng(1)
    began = time.perf_counter()
    for _ in range(STEPS):
        running.step(rng.uniform(-1, 1, (EPISODES, world.action_dim)))
    return time.perf_counter() - began
