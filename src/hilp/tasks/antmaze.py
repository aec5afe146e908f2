"""A four-legged robot in a maze, with D4RL's evaluation, or on open ground: the ant that OGBench ships equals D4RL's.

An observation is the simulator's state: qpos (15: x, y, z, a quaternion, 8 joint angles) and qvel (14). World units are
metres. Cell (row, column) of a map is the square of side 4 around x = 4 * column - 4, y = 4 * row - 4, so cell (1, 1)
is around the origin and, with y upwards, row 0 is drawn at the bottom. One step is 0.1 s.

On open ground the ant is asked for a velocity or sent to a place a few metres away. It keeps facing +x, so that forward
is +x and left is +y. An episode is 10 s, from the origin. An ant that falls, on its back or its belly, has ended its
episode: it stays where it is and earns nothing more. So that a fall never pays, no reward is below zero: a step earns 1
at the velocity asked for, 0.5 at a distance of the full speed and nothing at twice that and beyond.
"""

import os
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from hilp.errors import HilpError, nearest
from hilp.tasks.base import Axes, BaseEpisodes, Given, Threaded, changed, import_simulator, require_observation
from hilp.tasks.maze import MAZES, Grid, Places, maps, read_map
from hilp.tasks.rendering import render

CELL = 4.0  # side of a cell
WALL_HEIGHT = 2.0
STEP_SECONDS, SUBSTEPS = 0.1, 5  # of the simulator, in one step
RESET_NOISE = 0.1  # uniform on qpos, and so on the start's x and y; Gaussian on qvel
POSITIONS = 15  # of the 29 numbers of an observation
START = (1, 1)  # the cell that episodes of D4RL begin in
MAP_PREFIX = "antmaze:"  # before a map of the user's own, or the path of one

LARGE_LONGEST_WAY = 19  # cells between the two free cells of the large map that are farthest apart

# On open ground
OPEN = "ant-open"
SPEED = 1.5  # m/s: what the controller of the collector walks at
VELOCITIES: dict[str, tuple[float, float]] = {  # that rewards ask for, in m/s
    "forward": (SPEED, 0.0),
    "backward": (-SPEED, 0.0),
    "left": (0.0, SPEED),
    "right": (0.0, -SPEED),
    "half": (SPEED / 2, 0.0),
    "stand": (0.0, 0.0),
}
GOAL_DISTANCES = (2.0, 4.0)  # metres from the origin
LYING = 0.3  # metres: the body of an ant that lies on the ground is below this, that of one at rest on its legs above
STRIDE = 10  # steps, about a full stride: within one the ant sways from side to side by 0.5 m/s, whoever walks it
HELD = 0.3  # of the full speed: a velocity that is missed by less, over the last half of an episode, is held


@dataclass(frozen=True)
class Layout:
    """A map and D4RL's evaluation on it."""

    map_text: str
    max_steps: int
    goal: tuple[int, int]  # cell
    goal_noise: tuple[tuple[float, float], ...]  # uniform ranges added to the goal cell's centre, along both axes
    goal_drawn_once: bool = False  # for all episodes, not for each of them
    play_goals: tuple[tuple[int, int], ...] = ()  # the cells that "play" data walks to


_PLAY_GOALS = ((1, 6), (3, 5), (3, 10), (5, 2), (7, 4), (7, 6), (7, 9))
_LARGE = Layout(MAZES["maze-large"][0], 1000, (7, 9), ((0.0, 1.0), (0.0, 0.5)), play_goals=_PLAY_GOALS)
_ULTRA = Layout(MAZES["maze-ultra"][0], 2000, (10, 14), ((-1.0, 0.0), (0.0, 0.5)), goal_drawn_once=True)
# The data of "diverse" and "play" differ, their evaluation does not.
NAMES: dict[str, Layout] = {
    f"antmaze-{size}{kind}": layout
    for size, layout in (("large", _LARGE), ("ultra", _ULTRA))
    for kind in ("", "-diverse", "-play")
}


class AntEpisodes(BaseEpisodes):
    """n episodes. The physics keep float64; observations are float32."""

    def __init__(self, world: "Ant", states: np.ndarray, goal_xy: np.ndarray) -> None:
        self._world, self._mujoco, self._goal_xy = world, import_simulator("AntMaze"), goal_xy
        goals = np.concatenate([goal_xy, np.tile(world.proprioception, (len(goal_xy), 1))], axis=1)
        self.goals = goals.astype(np.float32)
        self._data = [set_state(self._mujoco, world.model, self._mujoco.MjData(world.model), s) for s in states]
        self._observe()

    def step(self, actions: np.ndarray) -> None:
        """One step of all but the episodes that rest at their goal."""
        actions = np.asarray(actions, np.float64)
        self._world.share_out(self._advance, self.moving(actions), actions)
        self._observe()

    def _advance(self, episode: int, action: np.ndarray) -> None:
        data = self._data[episode]
        data.ctrl[:] = action  # the model clips it to [-1, 1]
        self._mujoco.mj_step(self._world.model, data, SUBSTEPS)

    def _observe(self) -> None:
        self.states = np.stack([np.concatenate([data.qpos, data.qvel]) for data in self._data])  # [n, 29] float64
        self.observations = self.states.astype(np.float32)

    def reached(self) -> np.ndarray:
        return self._world.near(self.states, self._goal_xy)


class Ant(Threaded, Places):
    """An ant among walls, or on open ground, that is sent to places."""

    observation_dim = 29
    action_dim = 8
    columns: Mapping[str, int] = {"x": 0, "y": 1, "height": 2}
    walls: np.ndarray  # bool [rows, columns]
    speed_edges = np.arange(0, 2.01, 0.25)  # m/s: of a histogram; whatever is faster counts in the last part
    follow = False  # whether films are from behind the ant, not from above
    episodes_class = AntEpisodes
    _draw_goals: Callable[[np.random.Generator, int], np.ndarray]  # x and y [n, 2]
    _draw_starts: Callable[[np.random.Generator, np.ndarray], np.ndarray]  # states [n, 29] to walk to goals [n, 2] from

    @cached_property
    def proprioception(self) -> np.ndarray:
        """The 27 numbers of a goal observation after its x and y: of the standing ant, unless data has others."""
        return self.standing[2:]

    def for_data(self, first: np.ndarray) -> Self:
        """The same task with D4RL's goals: they look like the first observation of the data but for x and y."""
        seen = require_observation(self, first, "first observation", finite=False)
        return changed(self, proprioception=seen[2:].copy())

    @cached_property
    def model(self) -> Any:
        return import_simulator("AntMaze").MjModel.from_xml_string(model_xml(self.walls))

    @cached_property
    def standing(self) -> np.ndarray:
        """The observation [29] of an ant that stands at the origin, before any noise."""
        return np.concatenate([self.model.qpos0, np.zeros(self.model.nv)])

    def resets(self, rng: np.random.Generator, xy: np.ndarray) -> np.ndarray:
        """States [n, 29] of ants around positions [n, 2], with the noise of D4RL's reset."""
        states = np.tile(self.standing, (len(xy), 1))
        states[:, :2] = xy
        states[:, :POSITIONS] += rng.uniform(-RESET_NOISE, RESET_NOISE, (len(xy), POSITIONS))
        states[:, POSITIONS:] += RESET_NOISE * rng.standard_normal((len(xy), self.observation_dim - POSITIONS))
        return states

    def speeds(self, s: np.ndarray, a: np.ndarray, s2: np.ndarray) -> np.ndarray:
        """The speed [n] of each transition, in m/s."""
        return np.linalg.norm(velocities(s, s2), axis=-1)

    def episodes(self, rng: np.random.Generator, n: int, start: Given = None, goal: Given = None) -> AntEpisodes:
        """n episodes; a start or goal can be given as an observation or as x and y alone."""
        goal_xy = self._draw_goals(rng, n) if goal is None else np.tile(self._given(goal, "goal")[:2], (n, 1))
        if start is None:
            states = self._draw_starts(rng, goal_xy)
        else:
            given = self._given(start, "start")
            if len(given) == 2:
                given = np.concatenate([given, self.standing[2:]])
            states = np.tile(given, (n, 1))
        return self.episodes_class(self, states, goal_xy)

    def _given(self, value: np.ndarray, what: str) -> np.ndarray:
        value = np.asarray(value, np.float64)
        if value.shape not in ((2,), (self.observation_dim,)):
            raise HilpError(
                f"the {what} of {self.name} must be an observation of {self.observation_dim} numbers or x,y, "
                f"not of shape {value.shape}"
            )
        require_free(self.walls, value, what, self.name)
        return value

    def goal_base(self, rng: np.random.Generator) -> np.ndarray:
        """A goal's x and y must be given; the ant stands there as in every goal of the task."""
        return np.concatenate([[np.nan, np.nan], self.proprioception])

    def film(self, observations: np.ndarray, physics: np.ndarray | None) -> np.ndarray:
        """Frames of an episode for people to look at: every fourth state."""
        return self.frames(observations[::4], follow=self.follow)

    def frames(self, observations: np.ndarray, height: int = 360, width: int = 480, follow: bool = False) -> np.ndarray:
        """Images uint8 [n, height, width, 3] of states [n, 29]: the whole maze from above, or close behind the ant."""
        mujoco, model = import_simulator("AntMaze"), self.model
        data, camera = mujoco.MjData(model), mujoco.MjvCamera()
        rows, columns = self.walls.shape
        camera.lookat[:2] = CELL * (columns - 3) / 2, CELL * (rows - 3) / 2
        camera.elevation = -90
        # Far enough for the longer side, at the simulator's angle of view.
        side = CELL * max(rows, columns * height / width)
        camera.distance = side / 2 / np.tan(np.radians(model.vis.global_.fovy) / 2) + WALL_HEIGHT
        view = model.camera("back").id if follow else camera
        put = partial(set_state, mujoco, model, data)
        return render(model, observations, (height, width), view, put, fast=False)


class AntMaze(Ant, Grid):
    """A map with an ant in it."""

    family = "antmaze"

    def __init__(self, name: str, map_text: str, layout: Layout | None = None) -> None:
        """With a layout its evaluation, without one random free cells."""
        super().__init__(name, map_text)
        if self.has_doors:
            raise HilpError(f"the map of {name} has one-way doors, which only the built-in maze has: free those cells")
        self.task = name if name in NAMES else MAP_PREFIX + "\n" + self.map_text  # `make` gives this task again
        self._layout = layout
        self.play_goals = layout.play_goals if layout else ()

    @cached_property
    def max_steps(self) -> int:  # type: ignore[override]
        """The step limit: the layout's, else 1000 for each time that the longest way is that of the large map."""
        if self._layout is not None:
            return self._layout.max_steps
        return 1000 * -(-int(self.cell_steps.max()) // LARGE_LONGEST_WAY)

    def centres(self, cells: np.ndarray) -> np.ndarray:
        """x and y [n, 2] of the middle of cells [n, 2] (row, column)."""
        return CELL * (np.asarray(cells, np.float64)[..., ::-1] - 1)

    def free_cell(self, xy: np.ndarray) -> np.ndarray:
        """The row of `free_cells` that each position [n, 2] is in, -1 in walls and off the map."""
        row, column = cells_of(xy, self.walls).T
        return self.free_index[row, column]

    def _draw_goals(self, rng: np.random.Generator, n: int) -> np.ndarray:
        if self._layout is None:
            return self.centres(self.free_cells[rng.integers(len(self.free_cells), size=n)])
        drawn = 1 if self._layout.goal_drawn_once else n
        xy = np.tile(self.centres(np.array(self._layout.goal)), (drawn, 1))
        for low, high in self._layout.goal_noise:
            xy += rng.uniform(low, high, (drawn, 2))
        return np.broadcast_to(xy, (n, 2)).copy()

    def _draw_starts(self, rng: np.random.Generator, goal_xy: np.ndarray) -> np.ndarray:
        if self._layout is not None:
            return self.resets(rng, np.tile(self.centres(np.array(START)), (len(goal_xy), 1)))
        cells = rng.integers(len(self.free_cells), size=len(goal_xy))
        goal_cells = self.free_cell(goal_xy)
        while (same := cells == goal_cells).any():
            cells[same] = rng.integers(len(self.free_cells), size=int(same.sum()))
        return self.resets(rng, self.centres(self.free_cells[cells]))

    @property
    def target(self) -> np.ndarray:  # type: ignore[override]
        """The middle of where D4RL draws goals, or of the cell at one end of a map's longest way."""
        if self._layout is None:
            xy = self.centres(self.free_cells[self.far_end])
        else:
            noise = sum((low + high) / 2 for low, high in self._layout.goal_noise)
            xy = self.centres(np.array(self._layout.goal)) + noise
        return np.concatenate([xy, self.proprioception]).astype(np.float32)

    def target_episodes(self, rng: np.random.Generator, n: int) -> AntEpisodes:
        """n episodes to the target, from D4RL's start or, on other maps, from a random cell."""
        return self.episodes(rng, n, goal=self.target)

    def draw(self, ax: Axes) -> None:
        draw_walls(self.walls, ax)


class OpenEpisodes(AntEpisodes):
    """n episodes; those whose ant has fallen are over."""

    over: np.ndarray | bool = False

    def _observe(self) -> None:
        super()._observe()
        self.over = self.fallen = self.over | fallen(self.states)

    def reached(self) -> np.ndarray:
        """Who is at the goal, and has not fallen there."""
        return super().reached() & ~self.over


def velocities(s: np.ndarray, s2: np.ndarray, steps: int = 1) -> np.ndarray:
    """The mean velocity [..., 2] of the body in m/s from observations to those so many steps later."""
    return (np.asarray(s2, np.float64) - np.asarray(s, np.float64))[..., :2] / (steps * STEP_SECONDS)


def upright(observations: np.ndarray) -> np.ndarray:
    """The vertical component [n] of the z axis of each ant's body: 1 standing, 0 on the side, -1 on the back."""
    return 1 - 2 * np.square(observations[..., 4:6]).sum(axis=-1)


def fallen(observations: np.ndarray) -> np.ndarray:
    """Whether each ant [n, 29] has fallen: its body lies on the ground, or its back points down."""
    return (upright(observations) < 0) | (observations[..., 2] < LYING)


class AntOpen(Ant):
    """Open ground with an ant on it."""

    name = task = family = OPEN
    max_steps = 100
    walls = np.zeros((3, 3), bool)
    follow = True
    episodes_class = OpenEpisodes

    def __init__(self) -> None:
        self.rewards = {name: partial(self._reward, name) for name in VELOCITIES}

    @cached_property
    def model(self) -> Any:
        model = super().model
        model.geom("floor").size[:2] = 0  # drawn without an end, as the physics have it
        return model

    def _draw_goals(self, rng: np.random.Generator, n: int) -> np.ndarray:
        angle, distance = rng.uniform(0, 2 * np.pi, n), rng.uniform(*GOAL_DISTANCES, n)
        return distance[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)

    def _draw_starts(self, rng: np.random.Generator, goal_xy: np.ndarray) -> np.ndarray:
        return self.resets(rng, np.zeros_like(goal_xy))

    def _reward(self, name: str, s: np.ndarray, a: np.ndarray, s2: np.ndarray) -> np.ndarray:
        """How close the mean velocity of a step is to the one that a reward asks for: from 0 to 1."""
        error = np.linalg.norm(velocities(s, s2) - VELOCITIES[name], axis=-1)
        return np.maximum(0.0, 1 - error / (2 * SPEED))

    def held(self, name: str, path: np.ndarray, running: OpenEpisodes) -> dict[str, Any]:
        """Whether episodes [steps + 1, n, obs] held the velocity of a reward, and by how much each missed it, in m/s.

        What counts is the mean error of the velocity over a stride, in the last half of the episode.
        """
        error = np.linalg.norm(velocities(path[:-STRIDE], path[STRIDE:], STRIDE) - VELOCITIES[name], axis=-1)
        missed = error[-(len(path) // 2) :].mean(axis=0)
        return {"held": int(((missed < HELD * SPEED) & ~running.fallen).sum()), "speed_errors": missed.tolist()}

    def draw(self, ax: Axes) -> None:
        maps.bare_axes(ax)


def names() -> list[str]:
    return [*sorted(NAMES), OPEN]


def takes(name: str) -> bool:
    return name in NAMES or name == OPEN or name.startswith(MAP_PREFIX)


def make(name: str) -> Any:
    """The task of this name, or `antmaze:` and a map (a text of several lines) or the path of a file that holds one."""
    if name == OPEN:
        return AntOpen()
    if name in NAMES:
        return AntMaze(name, NAMES[name].map_text, NAMES[name])
    given = name.removeprefix(MAP_PREFIX)
    if "\n" in given:
        return AntMaze("antmaze-custom", given)
    if not os.path.isfile(given):
        raise HilpError(f"unknown antmaze '{name}': {nearest(name, NAMES)}; or give {MAP_PREFIX} and the path of a map")
    return AntMaze(*read_map(given))


def cells_of(xy: np.ndarray, walls: np.ndarray) -> np.ndarray:
    """The cell [n, 2] (row, column) that each position [n, 2] is in; off the map, one of the walls at its border."""
    cells: np.ndarray = np.floor(np.asarray(xy) / CELL + 1.5).astype(np.intp)[..., ::-1]
    return cells.clip(0, np.array(walls.shape) - 1)


def require_free(walls: np.ndarray, value: np.ndarray, what: str, name: str) -> None:
    """Raise unless a start or goal, which begins with x and y, is on the map and in no wall."""
    if not np.isfinite(value).all() or walls[tuple(cells_of(value[:2], walls))]:
        raise HilpError(
            f"the {what} {value[:2].tolist()} is no free position of {name}: it is in a wall, off the map or not finite"
        )


def draw_walls(walls: np.ndarray, ax: Axes) -> None:
    """Draw walls [rows, columns] from above, row 0 at the bottom."""
    maps.draw_walls(walls, ax, corner=(-1.5 * CELL, -1.5 * CELL), cell=CELL, origin="lower")


def model_xml(walls: np.ndarray) -> str:
    """OGBench's ant between these walls, as MuJoCo's XML."""
    root = ET.parse(import_simulator("AntMaze", "ogbench.locomaze.ant").AntEnv.xml_file).getroot()
    world = root.find("worldbody")
    assert world is not None
    box = {"type": "box", "contype": "1", "conaffinity": "1", "material": "wall"}
    box["size"] = f"{CELL / 2} {CELL / 2} {WALL_HEIGHT / 2}"
    for row, column in np.argwhere(walls):
        at = f"{CELL * (column - 1)} {CELL * (row - 1)} {WALL_HEIGHT / 2}"
        ET.SubElement(world, "geom", box, name=f"block_{row}_{column}", pos=at)
    floor = world.find("geom[@name='floor']")
    assert floor is not None
    rows, columns = walls.shape
    floor.set("pos", f"{CELL * (columns - 3) / 2} {CELL * (rows - 3) / 2} 0")
    floor.set("size", f"{CELL * columns / 2} {CELL * rows / 2} 0.2")
    return ET.tostring(root, encoding="unicode")


def set_state(mujoco: Any, model: Any, data: Any, state: np.ndarray) -> Any:
    """Put a simulation into the state [29] of an observation."""
    data.qpos[:] = state[:POSITIONS]
    data.qvel[:] = state[POSITIONS:]
    mujoco.mj_forward(model, data)
    return data
