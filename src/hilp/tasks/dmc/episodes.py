"""Episodes that step MuJoCo directly, side by side in threads, in the order in which dm_control steps it.

What depends on position and velocity is of now, force and acceleration sensors are of the substep before.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

import numpy as np

from hilp.errors import HilpError, nearest
from hilp.tasks.dmc.domains import Domain
from hilp.tasks.dmc.simulation import Views


class DmcEpisodes:
    """n episodes running side by side."""

    def __init__(self, name: str, domain: Domain, simulations: list[Any], threads: int, pool: Executor | None) -> None:
        self._name, self._domain, self._simulations, self._pool = name, domain, simulations, pool
        self._views = Views(simulations)
        low, high = domain.model.actuator_ctrlrange.T
        self._low, self._half_range = low, (high - low) / 2
        parts = min(threads, len(simulations))
        self._shares = [range(len(simulations))[part::parts] for part in range(parts)]
        self._observe()
        self.goals = np.full_like(self.observations, np.nan)

    def _observe(self) -> None:
        self.observations = self._domain.observe(self._views).astype(np.float32)

    @property
    def simulations(self) -> list[Any]:
        """MuJoCo's data of each, as they are now."""
        return self._simulations

    def step(self, actions: np.ndarray) -> None:
        """One step of control with actions [n, act] inside [-1, 1]."""
        controls = self._low + self._half_range * (np.clip(np.asarray(actions, np.float64), -1, 1) + 1)
        if self._pool is None:
            self._advance(self._shares[0], controls)
        else:
            list(self._pool.map(lambda share: self._advance(share, controls), self._shares))
        self._observe()

    def _advance(self, share: range, controls: np.ndarray) -> None:
        mujoco = self._domain.mujoco
        model, more = self._domain.model, self._domain.substeps - 1
        for number in share:
            data = self._simulations[number]
            data.ctrl[:] = controls[number]
            mujoco.mj_step2(model, data)
            if more:
                mujoco.mj_step(model, data, more)
            mujoco.mj_step1(model, data)

    def extra(self, name: str) -> np.ndarray:
        """ "physics" [n, p]: positions, velocities and activations, from which rewards and pictures are made."""
        if name != "physics":
            raise HilpError(f"{self._name} has no extra column '{name}': {nearest(name, ['physics'])}")
        return np.concatenate([self._views.qpos, self._views.qvel, self._views.act], axis=1)

    def reached(self) -> np.ndarray:
        return np.zeros(len(self._simulations), bool)
