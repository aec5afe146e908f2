"""An environment of MiniGrid in one layout, whose observations are its state (see `hilp.tasks.minigrid`)."""

from typing import Any

import gymnasium
import minigrid  # noqa: F401  (which registers its environments)
import numpy as np
from gymnasium import spaces
from minigrid.core.world_object import Door, Goal, Key

Square = tuple[int, int]
MOVES, MOVES_AND_HANDS = (
    3,
    6,
)  # of MiniGrid's seven actions those that do something: turns, forward; pick up, drop, toggle
FORWARD = ((1, 0), (0, 1), (-1, 0), (0, -1))  # by what the agent faces


class States(gymnasium.Env[dict[str, Any], int]):
    """The environment of an id, with the walls of one seed."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (as gymnasium has it)

    def __init__(self, identity: str, layout: int, render_mode: str | None = None) -> None:
        made: Any = gymnasium.make(identity, render_mode=render_mode, disable_env_checker=True)
        self._env = made.unwrapped
        self._layout, self.render_mode = layout, render_mode
        self.max_steps = int(self._env.max_steps)
        self._lay_out()
        self._door: Any = next((thing for thing in self._things() if isinstance(thing, Door)), None)
        self.action_space = spaces.Discrete(MOVES if self._door is None else MOVES_AND_HANDS)
        parts: dict[str, Any] = {"at": self._box(2), "facing": spaces.Discrete(4)}
        if self._door is not None:
            parts |= {"carrying": self._box(1), "door": self._box(2), "key": self._box(2)}
        self.observation_space = spaces.Dict(parts)

    def _box(self, size: int) -> spaces.Box:
        return spaces.Box(0.0, float(max(self._env.width, self._env.height)), (size,), np.float32)

    def _things(self) -> list[Any]:
        return [thing for thing in self._env.grid.grid if thing is not None]

    def _lay_out(self) -> None:
        """Walls, door and key of the layout, without the green square, whose place is kept."""
        self._env.reset(seed=self._layout)
        grid = self._env.grid
        squares = [(x, y) for x in range(grid.width) for y in range(grid.height)]
        self.green: Square = next(at for at in squares if isinstance(grid.get(*at), Goal))
        grid.set(*self.green, None)
        self.near = self._reachable(tuple(map(int, self._env.agent_pos)))  # type: ignore[arg-type]

    def _reachable(self, start: Square) -> list[Square]:
        """The free squares on this side of doors."""
        found, edge = {start}, [start]
        while edge:
            x, y = edge.pop()
            beside = {(x + dx, y + dy) for dx, dy in FORWARD}
            free = [at for at in beside - found if self._env.grid.get(*at) is None]
            found.update(free)
            edge += free
        return sorted(found)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._lay_out()
        self._door = next((thing for thing in self._things() if isinstance(thing, Door)), None)
        self._env.agent_pos = self.near[int(self.np_random.integers(len(self.near)))]
        self._env.agent_dir = int(self.np_random.integers(4))
        return self._state(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        _, _, _, truncated, _ = self._env.step(action)
        return self._state(), 0.0, False, truncated, {}

    def _state(self) -> dict[str, Any]:
        at = np.array(self._env.agent_pos, np.float32)
        state: dict[str, Any] = {"at": at, "facing": int(self._env.agent_dir)}
        if self._door is None:
            return state
        grid = self._env.grid
        keys = [(x, y) for x in range(grid.width) for y in range(grid.height) if isinstance(grid.get(x, y), Key)]
        return self._with_door(state, keys[0] if keys else None, self._door.is_open, self._door.is_locked)

    def _with_door(self, state: dict[str, Any], key: Square | None, is_open: bool, is_locked: bool) -> dict[str, Any]:
        return {
            **state,
            "carrying": np.array([key is None], np.float32),
            "door": np.array([is_open, is_locked], np.float32),
            "key": np.array(key or (0, 0), np.float32),
        }

    def goal(self, rng: np.random.Generator) -> dict[str, Any]:
        """A state to be reached: on any free square, or behind the door on the green one, with the key in hand."""
        at = self.green if self._door is not None else self.near[int(rng.integers(len(self.near)))]
        state: dict[str, Any] = {"at": np.array(at, np.float32), "facing": int(rng.integers(4))}
        return state if self._door is None else self._with_door(state, None, True, False)

    def render(self) -> Any:
        return self._env.render()

    def close(self) -> None:
        self._env.close()
