"""The built-in maze for Gymnasium: import this module, then `gymnasium.make("hilp/Maze-v0", map="maze-ultra")`.

Without an import, `gymnasium.make("hilp.tasks.gym_maze:hilp/Maze-v0")` does the same.
"""

from typing import Any

import gymnasium
import numpy as np

import hilp.tasks.maze as mazes
from hilp.errors import HilpError, nearest
from hilp.tasks.maze import maps

ENV_ID = "hilp/Maze-v0"

_CELL_PIXELS = 32
_FLOOR, _WALL, _GOAL, _AGENT = (255, 255, 255), (74, 78, 87), (129, 199, 132), (25, 118, 210)
_DOOR = (194, 87, 26)


class MazeEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """Reach the goal: reward 1 and the end of the episode within the success radius, 0 elsewhere.

    `map` is a maze's name, its map or the path of a map. Episodes are truncated here, at the maze's own step limit or
    at `max_steps`, because the limit that an environment is registered with cannot depend on the map.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 (as gymnasium has it)

    def __init__(self, map: str = "maze-large", render_mode: str | None = None, max_steps: int | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise HilpError(f"unknown render_mode '{render_mode}': {nearest(str(render_mode), ['rgb_array'])}")
        self.maze = mazes.make(map)
        self.max_steps = self.maze.max_steps if max_steps is None else max_steps
        self.render_mode = render_mode
        rows, columns = self.maze.walls.shape
        self.observation_space = gymnasium.spaces.Box(0.0, np.array([columns, rows], np.float32), dtype=np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start anew; `options` may fix "start" and "goal" to a position (x, y) each, else they are drawn."""
        super().reset(seed=seed)
        for name in (options or {}).keys() - {"start", "goal"}:
            raise HilpError(f"unknown reset option '{name}': {nearest(name, ['start', 'goal'])}")
        given = {name: self.maze.require_position(value, name) for name, value in (options or {}).items()}
        self._xy = given.get("start", self._draw())
        self._goal = given.get("goal", self._draw())
        while len(given) < 2 and mazes.at_goal(self._xy, self._goal):
            if "start" not in given:
                self._xy = self._draw()
            else:
                self._goal = self._draw()
        self._steps = 0
        return self._observe()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step of the maze's own physics."""
        self._xy = self.maze.step(self._xy[None], np.asarray(action)[None], self.np_random)[0]
        self._steps += 1
        reached = bool(mazes.at_goal(self._xy, self._goal))
        observation, info = self._observe()
        return observation, float(reached), reached, self._steps >= self.max_steps, info

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """The maze from above [height, width, 3] uint8: a disc to be reached, and the robot."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() without a render mode: make the environment with render_mode='rgb_array'")
            return None
        walls = self.maze.walls.repeat(_CELL_PIXELS, axis=0).repeat(_CELL_PIXELS, axis=1)
        image = np.where(walls[..., None], _WALL, _FLOOR).astype(np.uint8)
        for row, column in np.argwhere(np.isin(self.maze.cells, list(maps.DOORS))):
            cell = (slice(at * _CELL_PIXELS, (at + 1) * _CELL_PIXELS) for at in (row, column))
            image[tuple(cell)][maps.painted(self.maze.cells[row, column], _CELL_PIXELS)] = _DOOR
        height, width = walls.shape
        x = (np.arange(width) + 0.5) / _CELL_PIXELS
        y = (height - np.arange(height)[:, None] - 0.5) / _CELL_PIXELS
        image[(np.hypot(x - self._goal[0], y - self._goal[1]) <= mazes.SUCCESS_RADIUS) & ~walls] = _GOAL
        image[np.maximum(abs(x - self._xy[0]), abs(y - self._xy[1])) <= mazes.RADIUS] = _AGENT
        return image

    def _observe(self) -> tuple[np.ndarray, dict[str, Any]]:
        distance = float(np.linalg.norm(self._xy - self._goal))
        return self._xy.astype(np.float32), {"goal": self._goal.astype(np.float32), "distance": distance}

    def _draw(self) -> np.ndarray:
        return self.maze.starts(self.np_random, 1)[0]


def register() -> None:
    """Make the environment known to gymnasium; calling it again changes nothing."""
    if ENV_ID not in gymnasium.registry:
        gymnasium.register(ENV_ID, entry_point="hilp.tasks.gym_maze:MazeEnv")


register()
