"""What a task is to the rest of the package: an object with the attributes of `Task`, and episodes that run in it.

MuJoCo and other simulators are imported when a task is made, and stepped in threads.
"""

import copy
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ctypes.util import find_library
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from hilp.data.transforms import Parts
from hilp.errors import HilpError, nearest, some

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
else:
    Axes = Any  # matplotlib is imported where something is drawn


Given = np.ndarray | None  # a start or goal as an observation; None: a random one
REST = -1  # the discrete action of episodes that are done
AnyGoal = np.ndarray | str | None  # the same, or the name of a goal


class Episodes(Protocol):
    """n episodes running side by side.

    Where a goal has several parts, `success_fractions()` [n] in [0, 1] is the share of them reached so far; where
    episodes end by themselves, bool [n] `over` says which have, and `fallen` which of these by a fall.
    """

    observations: np.ndarray  # [n, obs_dim] float32: now
    goals: np.ndarray  # [n, obs_dim] float32: what a goal prompt takes

    def step(self, actions: np.ndarray) -> None: ...

    def reached(self) -> np.ndarray: ...  # bool [n]: at the goal now

    def extra(self, name: str) -> np.ndarray: ...  # [n, ...]: a column of extra data, e.g. "physics"


@dataclass(frozen=True)
class Finite:
    """A finite restriction of a task on which every distance is exact."""

    observations: np.ndarray  # [n, obs_dim] float32
    successors: np.ndarray  # [n, actions] int32: the row that each motion leads to, as meant
    # [n, n] int16: fewest steps from row to column, -1 where there is no way; where chance decides float32, expected
    steps: np.ndarray


class Task(Protocol):
    """What every task offers; a subclass has what tasks usually answer. `finite` and `best_return` may return None.

    Where a goal can be given by a few columns of an observation, a task also has `goal_base(rng)`: what the others are,
    NaN where they must be given. Where it can be given by a name, also `goal_names`, which its `episodes` take as goal,
    and `goal_named(name, rng)`, the observation of one.

    Where behaviour has a speed, a task also has `speeds(s, a, s2)`, or with extras as rewards have them, [n], and
    `speed_edges`, the edges of a histogram of it.

    A task with one far place to be, for policies trained on rewards, also has `target` [obs_dim], an observation of
    being there; `at_target(s, a, s2)`, a reward of 1 there and 0 elsewhere or, of a target that has parts, how many of
    them s2 has; `target_ends`, whether an episode is over there, so that time is what counts; and `target_episodes(rng,
    n)`, which begin far from it and have it as goal.
    """

    name: str
    family: str  # the collector's file
    max_steps: int
    observation_dim: int
    action_dim: int
    has_goals: bool  # whether goal prompts make sense
    choices: int = 0  # of discrete actions how many there are: then an action is one number; 0: they are in [-1, 1]
    columns: Mapping[str, int]  # numbers of an observation that have a name, e.g. "x"
    extra_columns: tuple[str, ...] = ()  # what `Episodes.extra` knows
    score_scale: float = 1.0  # brings returns of different tasks to one scale for aggregates
    potentials: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {}  # rewards f(s') - f(s) of getting somewhere
    rewards: Mapping[str, Callable[..., np.ndarray]] = {}  # rewards of (s, a, s') or (s, a, s', extras) of being there

    def episodes(self, rng: np.random.Generator, n: int, start: Given = None, goal: Any = None) -> Episodes: ...

    def for_data(self, first: np.ndarray) -> Self:
        """As it is evaluated on data with this first observation."""
        return self

    def potential_max(self, name: str) -> float:
        if self.rewards:
            raise HilpError(f"{self.name} has no potentials: take one of its rewards, {some(list(self.rewards))}")
        raise HilpError(f"{self.name} has no named rewards: give a function of observations")

    def best_return(self, name: str, observations: np.ndarray, steps: int) -> np.ndarray | None:
        return None

    def near(self, observations: np.ndarray, goal: np.ndarray) -> np.ndarray: ...  # bool [n]: counts as at the goal

    def finite(self) -> Finite | None:
        return None

    def draw(self, ax: Axes) -> None: ...

    def place(self, observations: np.ndarray) -> np.ndarray:
        """Where to draw each observation [n, 2]: at its x and y."""
        return np.asarray(observations)[:, :2]


def changed(task: Any, **attributes: Any) -> Any:
    """The same task, but for these attributes."""
    other = copy.copy(task)
    vars(other).update(attributes)
    return other


def require_observation(task: Task, value: Any, what: str, finite: bool = True) -> np.ndarray:
    """A start or goal of a user's as float64 [obs]; images are refused where only states say what is reached."""
    if isinstance(value, Mapping):
        raise HilpError(
            f"whether an episode of {task.name} is at its {what} is decided by states, which an image does not "
            "show: name one of its own goals, give columns, or a row of data that also has states"
        )
    value = np.asarray(value, np.float64)
    if value.shape != (task.observation_dim,) or (finite and not np.isfinite(value).all()):
        raise HilpError(
            f"the {what} of {task.name} must be an observation of {task.observation_dim} finite numbers, not of "
            f"shape {value.shape}"
        )
    return value


def random_actions(world: Any, rng: np.random.Generator, n: int) -> np.ndarray:
    """Uniform actions [n, act] in a task."""
    if choices := getattr(world, "choices", 0):
        return rng.integers(choices, size=(n, 1))
    return rng.uniform(-1, 1, (n, world.action_dim))


class BaseEpisodes(Episodes):
    """What episodes of a task usually have."""

    _world: Any

    def reached(self) -> np.ndarray:
        """None: the task has no goals."""
        return np.zeros(len(self.observations), bool)

    def moving(self, actions: np.ndarray) -> np.ndarray:
        """The numbers of all episodes but those that are over, or that rest: at their goal, with an action of zero.

        An evaluation gives exactly that action to episodes that are done, whose simulation would only cost time. Of
        discrete actions zero is a choice, so there it is REST.
        """
        still = actions < 0 if self._world.choices else actions == 0
        resting = self.reached() & still.all(axis=1)
        return np.flatnonzero(~(resting | getattr(self, "over", False)))

    def extra(self, name: str) -> np.ndarray:
        known = self._world.extra_columns
        hint = nearest(name, known) if known else "it has none"
        raise HilpError(f"{self._world.name} has no extra column '{name}': {hint}")


def require_order(what: str, parts: Parts, world: Any) -> None:
    """Raise where columns have the names of a task's, but other places: Gymnasium sorts the parts of a Dict space."""
    own, wanted = _places(parts), _places(getattr(world, "observation_parts", ()))
    for name, (first, size) in own.items():
        theirs = wanted.get(name, (first, size))
        if theirs[1] == size and theirs[0] != first:
            raise HilpError(
                f"{what} has '{name}' as column {first}, task {world.name} as column {theirs[0]}: give the "
                f"observations of the data in the task's order, {some(list(wanted))} (--columns observations=...)"
            )


def _places(parts: Parts) -> dict[str, tuple[int, int]]:
    """Of each part of an observation its first column and how many it has."""
    sizes = [int(np.prod(shape)) for _, shape in parts]
    return {name: (sum(sizes[:number]), sizes[number]) for number, (name, _) in enumerate(parts)}


def column_names(parts: Parts) -> dict[str, int]:
    """The columns of observations that are named parts side by side: a part's name, and a number where it has several.

    ("height", (1,)) is height; ("velocity", (9,)) is velocity_0 to velocity_8.
    """
    columns: dict[str, int] = {}
    for name, shape in parts:
        size = int(np.prod(shape))
        for number in range(size):
            columns[name if size == 1 else f"{name}_{number}"] = len(columns)
    return columns


def import_simulator(needed_by: str, module: str = "mujoco", extra: str = "mujoco") -> Any:
    """MuJoCo, or another module that an extra of hilp brings."""
    choose_rendering()  # before the import, by which simulators choose how to render
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise HilpError(f"{needed_by} needs {error.name or error}: pip install 'hilp[{extra}]'") from error


def choose_rendering() -> None:
    """Let simulators render in memory where there is no screen."""
    screenless = sys.platform == "linux" and not os.environ.get("DISPLAY")
    if screenless and "mujoco" not in sys.modules and "MUJOCO_GL" not in os.environ:
        os.environ["MUJOCO_GL"] = "egl" if find_library("EGL") else "disable"
    if screenless and "pygame" not in sys.modules:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")


@cache
def pool(threads: int) -> ThreadPoolExecutor:
    """The threads of this process, shared by all its tasks."""
    return ThreadPoolExecutor(threads, "hilp-simulator")


class Threaded(Task):
    """A task whose episodes are simulated by several threads: MuJoCo runs outside Python's lock."""

    threads = 1

    def with_threads(self, threads: int) -> Any:
        return changed(self, threads=threads)

    def share_out(self, advance: Callable[[Any, Any], None], episodes: np.ndarray, actions: np.ndarray) -> None:
        """Advance these episodes by one action each, each thread some of them."""

        def simulate(some: np.ndarray) -> None:
            for episode in some:
                advance(episode, actions[episode])

        if self.threads < 2 or len(episodes) < 2:
            simulate(episodes)
        else:
            list(pool(self.threads).map(simulate, np.array_split(episodes, min(self.threads, len(episodes)))))


@contextmanager
def with_workers(world: Any, workers: int | None) -> Iterator[Any]:
    """A task whose episodes are stepped by so many threads or processes, for as long as this lasts; None: as they are.

    Threads where a step is MuJoCo's own, processes where it is Python's, too. Others step all episodes as one array.
    """
    if workers is None:
        yield world
    elif hasattr(world, "with_processes"):
        with world.with_processes(workers) as found:
            yield found
    else:
        yield world.with_threads(workers) if hasattr(world, "with_threads") else world


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
