"""Data of OGBench's arm by the scripts that come with its package: one target after the other, no task in mind.

A script follows a plan to its target, with noise that is correlated in time; a new target is drawn whenever it is done.
The scripts draw from numpy's global generator, which is seeded for each episode.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hilp.collectors import targets
from hilp.collectors.collecting import Block, Episode, stacked
from hilp.errors import HilpError
from hilp.tasks import ogbench
from hilp.tasks.ogbench.manipulation import SCALES, Manipulation
from hilp.tasks.ogbench.task import EXTRA, make_env, seeded
from hilp.tasks.simulator import import_simulator

KINDS = ("play",)
EPISODE_STEPS = 1000  # 1001 rows
BLOCK = 2  # episodes in one piece of work
PLAN = {"noise": 0.1, "noise_smoothing": 0.5}
SCRIPTS = {
    "cube": {"cube": "Cube"},
    "scene": {"cube": "Cube", "button": "Button", "drawer": "Drawer", "window": "Window"},
    "puzzle": {"button": "Button"},
}
# How often a cube's target lies on another cube, by their number: drawn for each episode between these two.
STACKED = {2: (0.0, 0.25), 3: (0.05, 0.35), 4: (0.1, 0.5), 8: (0.0, 0.35)}
# Where the scene's cube is no longer seen: beyond the table on one side; on the other, unless it is in the drawer.
FAR, DRAWER_SIDE, IN_DRAWER = 0.29, -0.3, (0.06, 0.08)
ATTEMPTS = 50  # at an episode in which the cube stays in view


class Simulation:
    """What a process needs to collect: it makes a world of its own."""

    def __init__(self, task: str, seed: int) -> None:
        world = ogbench.make(task)
        assert isinstance(world, Manipulation)
        self._world, self._seed = world, seed
        self._env = make_env(world.about.registered, mode="data_collection", visualize_info=False)
        self._env.reset(seed=0)  # compiles it, which the scripts ask for
        self._scripts = {kind: _script(self._env, name, world) for kind, name in SCRIPTS[world.about.body].items()}

    def __call__(self, block: Block) -> list[Episode]:
        return [self._episode(number, steps) for number, steps in block]

    def _episode(self, number: int, steps: int) -> Episode:
        """An episode depends on the seed and its number only."""
        for attempt in range(ATTEMPTS):
            seed = int(np.random.SeedSequence([self._seed, number, attempt]).generate_state(1)[0])
            with seeded(seed, self._env.action_space):
                found = self._attempt(seed, steps)
            if self._world.about.body != "scene" or stays_in_view(self._world, found["observations"]):
                return found
        raise HilpError(f"no episode of {self._world.name} keeps its cube in view: choose another seed")

    def _attempt(self, seed: int, steps: int) -> Episode:
        env = self._env
        observation, info = env.reset(seed=seed)
        of_target = self._of_targets(seed)
        script, target = self._take_up(observation, info), 0
        rows, actions = [self._row(observation, info, target)], []
        for _ in range(steps):
            action = np.clip(script.select_action(observation, info), -1, 1).astype(np.float32)
            observation, _, _, _, info = env.step(action.astype(np.float64))
            actions.append(action)
            rows.append(self._row(observation, info, target))
            if script.done:
                observation, info = env.set_new_target(**of_target)
                script, target = self._take_up(observation, info), target + 1
        return stacked(rows, actions)

    def _of_targets(self, seed: int) -> dict[str, float]:
        """What the targets of an episode are drawn with, apart from the environment's own values."""
        if self._world.about.body != "cube" or self._world.cubes not in STACKED:
            return {}
        return {"p_stack": np.random.default_rng(seed).uniform(*STACKED[self._world.cubes])}

    def _take_up(self, observation: np.ndarray, info: dict[str, Any]) -> Any:
        """The script of the target that there is now."""
        script = self._scripts[info["privileged/target_task"]]
        script.reset(observation, info)
        return script

    def _row(self, observation: np.ndarray, info: dict[str, Any], target: int) -> dict[str, Any]:
        """What OGBench's files hold of a state, and how far the script is."""
        row = {name: info[name].astype(np.float32) for name in ("qpos", "qvel")}
        if "button_states" in info:
            row["button_states"] = info["button_states"].astype(np.int64)
        return {
            "observations": observation.astype(np.float32),
            **row,
            targets.NUMBER: np.int32(target),
            targets.REACHED: np.bool_(self._env._success),
        }


def _script(env: Any, name: str, world: Manipulation) -> Any:
    module = import_simulator(EXTRA, f"ogbench.manipspace.oracles.plan.{name.lower()}_plan")
    more = {"gripper_always_closed": True} if world.about.body == "puzzle" else {}
    return getattr(module, f"{name}PlanOracle")(env=env, **PLAN, **more)


def stays_in_view(world: Manipulation, observations: np.ndarray) -> bool:
    """Whether the scene's cube is always where a camera sees it."""
    y, z = (observations[:, world.columns[f"block_0_{axis}"]] / SCALES["position"] for axis in "yz")
    out_of_drawer = (z < IN_DRAWER[0]) | (z > IN_DRAWER[1])
    return not ((y >= FAR) | ((y <= DRAWER_SIDE) & out_of_drawer)).any()
