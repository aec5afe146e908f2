"""What OGBench's environments have in common: their names, their five tasks, their success, many of them side by side.

Names are known without the package, an extra that is imported when one of them is used.
Episodes run in its environments themselves. Two things are added. They can be seeded: OGBench draws from numpy's global
generator, and from one of gymnasium's that cannot be seeded. And many share one compiled model, of which a manipulation
environment needs 70 MB.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from hilp.errors import HilpError, nearest
from hilp.tasks.base import AnyGoal, BaseEpisodes, Given, Task, import_simulator, require_observation
from hilp.tasks.rendering import VISUAL, rendering_errors

EXTRA = "OGBench"  # what needs the simulator, in error messages
FILM_STRIDE = 4  # one frame in so many steps
VERSION = "-v0"  # how every registered name ends
MAZE_KINDS, ARM_KINDS = ("navigate", "stitch", "explore"), ("play", "noisy")  # what its data sets are called
# Names that would be another task's without their ending: antmaze-large is D4RL's, with another evaluation.
TAKEN = ("antmaze-large",)


@dataclass(frozen=True)
class Environment:
    """What is registered under a name."""

    name: str  # ours: without the ending, unless another task has that name
    registered: str  # OGBench's
    max_steps: int
    observation_dim: int
    action_dim: int
    body: str  # point, ant, humanoid or soccer in a maze; cube, scene or puzzle before an arm

    @property
    def has_arm(self) -> bool:
        return self.body in ("cube", "scene", "puzzle")


def _environments() -> dict[str, Environment]:
    arm, joint_numbers = 19, 9  # numbers of the arm; of a cube: position, quaternion, cosine and sine of its yaw
    found = {}

    def add(plain: str, steps: int, observation: int, action: int, body: str) -> None:
        name = plain + VERSION if plain in TAKEN else plain
        found[name] = Environment(name, plain + VERSION, steps, observation, action, body)

    for size in ("medium", "large", "giant", "teleport"):
        add(f"pointmaze-{size}", 1000, 2, 2, "point")
        add(f"antmaze-{size}", 1000, 29, 8, "ant")
        add(f"humanoidmaze-{size}", 4000 if size == "giant" else 2000, 69, 21, "humanoid")
    for size in ("arena", "medium"):
        add(f"antsoccer-{size}", 1000, 42, 8, "soccer")
    sizes = {"single": (1, 200), "double": (2, 500), "triple": (3, 1000), "quadruple": (4, 1000), "octuple": (8, 1500)}
    for size, (cubes, steps) in sizes.items():
        add(f"cube-{size}", steps, arm + joint_numbers * cubes, 5, "cube")
    add("scene", 750, arm + joint_numbers + 2 * 4 + 4, 5, "scene")
    for size, steps in (("3x3", 500), ("4x4", 500), ("4x5", 1000), ("4x6", 1000)):
        buttons = int(size[0]) * int(size[2])
        add(f"puzzle-{size}", steps, arm + 4 * buttons, 5, "puzzle")
    return found


ENVIRONMENTS = _environments()
NAMES = tuple(ENVIRONMENTS)


def takes(name: str) -> bool:
    """Whether a name is one of OGBench's, also one that is refused when it is made."""
    plain = name.removesuffix(VERSION)
    base = plain.removeprefix(VISUAL).partition("-singletask")[0]
    return bool(_known(name) or (base != plain and _known(base + VERSION))) or plain.startswith("powderworld-")


def find(name: str) -> Environment:
    """The environment of a name: OGBench's, ours without the version, or that of a data set (cube-single-play-v0).

    Of a visual one that with states.
    """
    found = _known(name)
    if found is not None:
        return found
    plain = name.removesuffix(VERSION)
    if plain.startswith("powderworld-"):
        raise HilpError(f"{name} observes images, which tasks here do not: it has no version with states")
    if plain.startswith(VISUAL):
        return find(plain.removeprefix(VISUAL) + VERSION)
    if "-singletask" in plain:
        instead = plain.split("-singletask")[0]
        raise HilpError(f"{name} is one goal as a reward: take {instead} and one of its goals, task1 to task5")
    raise HilpError(f"unknown OGBench environment '{name}': {nearest(name, NAMES)}")


def of_data(name: str) -> Environment | None:
    """The environment of a data set with a name of OGBench's (pointmaze-large-stitch-v0), None for other names."""
    base, _, kind = name.removesuffix(VERSION).rpartition("-")
    found = ENVIRONMENTS.get(base) or ENVIRONMENTS.get(base + VERSION)
    return found if found is not None and kind in (ARM_KINDS if found.has_arm else MAZE_KINDS) else None


def _known(name: str) -> Environment | None:
    plain = name.removesuffix(VERSION) if name not in ENVIRONMENTS else name
    return ENVIRONMENTS.get(plain) or of_data(name)


class Twins:
    """A group of episodes, each in an environment of its own; see `hilp.tasks.processes`."""

    number = 0

    def __init__(self, world: "OgbenchTask") -> None:
        self._world, self.envs = world, list[Any]()

    def begin(self, tasks: Sequence[int], seeds: Sequence[int], starts: Sequence[Given]) -> dict[str, np.ndarray]:
        goals = []
        for self.number, (task, seed, start) in enumerate(zip(tasks, seeds, starts, strict=True)):
            env = self._world._twin(self._world.env)
            self.envs.append(env)
            goals.append(self._world._reset(env, task, seed))
            if start is not None:
                self._world.set_state(env, start)
        observations = np.stack([self._world._observe(env) for env in self.envs])
        return {"observations": observations, "goals": np.stack(goals), "succeeded": self._succeeded(self.envs)}

    def step(self, numbers: np.ndarray, actions: np.ndarray) -> dict[str, np.ndarray]:
        seen, envs = [], [self.envs[number] for number in numbers]
        for self.number, env, action in zip(numbers.tolist(), envs, actions, strict=True):
            seen.append(self._world._step(env, action))
        return {"observations": np.stack(seen), "succeeded": self._succeeded(envs)}

    def _succeeded(self, envs: list[Any]) -> np.ndarray:
        return np.array([self._world._succeeds(env) for env in envs], bool)


def _loaded(kind: "type[OgbenchTask]", about: Environment) -> Callable[[], Twins]:
    return partial(Twins, kind(about))


class OgbenchEpisodes(BaseEpisodes):
    """n episodes, each in an environment of its own; observations are float32."""

    def __init__(
        self,
        world: "OgbenchTask",
        group: Any,
        begun: Mapping[str, np.ndarray],
        goals: np.ndarray,
        names: list[str],
        by_observation: bool,
    ) -> None:
        """`names` are the tasks of the episodes; `by_observation`: their goals are an observation of the user's."""
        self._world, self._group, self.names, self._by_observation = world, group, names, by_observation
        self.goals = goals.astype(np.float32)
        self.observations = begun["observations"].astype(np.float32)
        self._succeeded = begun["succeeded"]

    def step(self, actions: np.ndarray) -> None:
        """One step of all but the episodes that rest at their goal."""
        actions = np.clip(np.asarray(actions, np.float64), -1, 1)
        if len(moving := self.moving(actions)):
            seen = self._group.step(moving, actions[moving])
            self.observations[moving], self._succeeded[moving] = seen["observations"], seen["succeeded"]

    def reached(self) -> np.ndarray:
        """By OGBench's own success; where the user gave an observation as goal, by the same rule on observations."""
        if self._by_observation:
            return self._world.near(self.observations, self.goals)
        return self._succeeded.copy()


class OgbenchTask(Task):
    """An environment of OGBench with its five evaluation tasks; episodes take them in turn."""

    family = "ogbench"
    has_goals = True
    crew: Any = None  # processes that step its episodes; None: this one does

    def __init__(self, about: Environment) -> None:
        self.about, self.name = about, about.name
        self.max_steps = about.max_steps
        self.observation_dim, self.action_dim = about.observation_dim, about.action_dim

    simulation: tuple[str, str]  # what an environment calls its model and its data
    set_state: Callable[[Any, np.ndarray], None]  # put an environment into the state that an observation tells of
    _observe: Callable[[Any], np.ndarray]
    _succeeds: Callable[[Any], bool]  # OGBench's success, now

    @cached_property
    def env(self) -> Any:
        """OGBench's environment as it registers it, without wrappers."""
        return self._made(self.about.registered)

    def _made(self, registered: str, **changes: Any) -> Any:
        env = make_env(registered, **changes)
        self._reset(env, 1, 0)  # some are compiled by that
        return env

    def _twin(self, env: Any) -> Any:
        """Another environment like this one, with a simulation of its own of the same model."""
        twin = object.__new__(type(env))  # `copy.copy` would make some environments anew, from wrong arguments
        twin.__dict__.update(env.__dict__)
        model, data = self.simulation
        setattr(twin, data, import_simulator(EXTRA).MjData(getattr(env, model)))
        return twin

    def _reset(self, env: Any, task: int, seed: int) -> np.ndarray:
        """Begin an episode of a task; its goal."""
        with seeded(seed, env.action_space):
            return np.asarray(env.reset(seed=seed, options={"task_id": task})[1]["goal"])

    def _step(self, env: Any, action: np.ndarray) -> np.ndarray:
        """One step of one of several twins; the observation."""
        return np.asarray(env.step(action)[0])

    @cached_property
    def goal_names(self) -> tuple[str, ...]:
        """The evaluation tasks: task1, ..., or what OGBench calls them in full (task1_horizontal)."""
        return tuple(str(info["task_name"]) for info in self.env.task_infos)

    def _task_number(self, name: str) -> int:
        """1 to 5, from a full name or its beginning: task3."""
        for number, full in enumerate(self.goal_names, 1):
            if name == full or re.match(rf"{re.escape(name)}(_|$)", full):
                return number
        raise HilpError(f"{self.name} has no goal '{name}': {nearest(name, self.goal_names)}")

    def episodes(self, rng: np.random.Generator, n: int, start: Given = None, goal: AnyGoal = None) -> OgbenchEpisodes:
        """n episodes of the five tasks in turn; `goal` may name one of them or be an observation."""
        numbers = [1 + i % len(self.goal_names) for i in range(n)]
        if isinstance(goal, str):
            numbers, goal = [self._task_number(goal)] * n, None
        start, goal = self._given(start, "start"), self._given(goal, "goal")
        group = Twins(self) if self.crew is None else self.crew.group(n)
        begun = group.begin(numbers, rng.integers(2**31, size=n).tolist(), [start] * n)
        goals = begun["goals"] if goal is None else np.stack([goal] * n)
        names = [self.goal_names[number - 1] for number in numbers]
        return self._episodes_class(self, group, begun, goals, names, goal is not None)

    def with_processes(self, count: int) -> AbstractContextManager[Self]:
        """The same task with its episodes in so many other processes."""
        from hilp.tasks import processes

        return processes.shared(self, count, partial(_loaded, type(self), self.about))

    @property
    def _episodes_class(self) -> type[OgbenchEpisodes]:
        return OgbenchEpisodes

    def goal_named(self, name: str, rng: np.random.Generator) -> np.ndarray:
        """The goal observation of an evaluation task, drawn as for an episode of it."""
        return self.episodes(rng, 1, goal=name).goals[0]

    def goal_base(self, rng: np.random.Generator) -> np.ndarray:
        """An observation that a goal of a few columns takes the others from: the goal of the first task."""
        return self.goal_named(self.goal_names[0], rng)

    def _given(self, value: np.ndarray | None, what: str) -> np.ndarray | None:
        return None if value is None else require_observation(self, value, what)

    def for_data(self, first: np.ndarray) -> Self:
        """The same task: its goals are drawn by the environment, whatever the data."""
        self._given(first, "first observation")
        return self

    def film(self, observations: np.ndarray, physics: np.ndarray | None) -> np.ndarray:
        """Frames of an episode for people to look at, by OGBench's own camera."""
        return self._images(self._drawn, observations[::FILM_STRIDE], lambda env: env.render())

    def _images(self, env: Any, states: np.ndarray, draw: Callable[[Any], np.ndarray]) -> np.ndarray:
        images = []
        for state in states:
            self.set_state(env, np.asarray(state, np.float64))
            with rendering_errors():
                images.append(np.array(draw(env)))
        return np.stack(images)

    @cached_property
    def _drawn(self) -> Any:
        """An environment with pictures large enough to look at."""
        return self._made(self.about.registered, width=480, height=360)


def make_env(registered: str, **changes: Any) -> Any:
    """An environment by OGBench's name, without gymnasium's wrappers: they would end episodes and cost time."""
    import_simulator(EXTRA)
    import_simulator(EXTRA, "ogbench")
    registration = import_simulator(EXTRA, "gymnasium.envs.registration")
    if registered not in registration.registry:
        raise HilpError(f"OGBench has no {registered}: take {registered.removeprefix(VISUAL)}, which has states")
    spec = registration.registry[registered]
    maker = registration.load_env_creator(spec.entry_point)
    actions = getattr(maker, "action_space", None)
    if isinstance(maker, type) and isinstance(actions, property) and actions.fget:
        # One action space for good: a property that makes a new one each time cannot be seeded.
        maker = type(maker.__name__, (maker,), {"action_space": cached_property(actions.fget)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # bounds of 1.0 become float32
        env = maker(**{**spec.kwargs, **changes})
        env.action_space.seed(0)
    return env


@contextmanager
def seeded(seed: int, *spaces: Any) -> Iterator[None]:
    """What OGBench draws from global generators is repeatable in here; afterwards they continue as before."""
    before = np.random.get_state()
    np.random.seed(seed)
    for space in spaces:
        space.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before)
