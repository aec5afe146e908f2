"""Any Gymnasium environment with a Box or a Discrete space of actions as a task: by its id, as an object, or by code.

`gym:Pendulum-v1` is an environment that is installed, `gym:PointMaze_UMaze-v3?continuing_task=false` one with values
for its constructor, `gym:my_module:my/Env-v0` one that a module registers, and `my_env.py:make` what a function (or
class) in a file gives: an environment, or a task made of one by `gym_task`.
"""

import contextlib
import copy
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from hilp import plugins
from hilp.errors import HilpError, is_one_of, reason, require_count, say
from hilp.tasks.base import Axes, BaseEpisodes, Given, Task, changed, column_names, require_observation
from hilp.tasks.gym.stepping import FLAGS, Here, Simulator, set_goal

PREFIX = "gym:"
OWN_REWARD = "own"  # the name of the environment's own reward
STEPS = 1000  # of an episode, where neither the environment nor the caller has a limit
TIME_LIMIT = "_max_episode_steps"  # of gymnasium.wrappers.TimeLimit, whatever lies around it
PROBES, PROBE_STEPS = 3, 4  # episodes and steps that show which columns of observations are goals
NEIGHBOURS = 16  # states of the data around a goal; it looks like the most usual one
NOT_TYPED = {"env", "goal", "reward", "success", "place", "columns", "name"}  # no name can hold what these take
Reward = Callable[..., np.ndarray]


def names() -> list[str]:
    """None: what is installed can be made, but is not listed."""
    return []


def takes(name: str) -> bool:
    """Whether this is an environment of Gymnasium, or code in a file that makes a task."""
    return name.startswith(PREFIX) or plugins.names_code(name)


def runs_user_code(name: str) -> bool:
    """Whether making this task runs code that is named in it: that of a file, or of a module to be imported."""
    given = name.removeprefix(PREFIX).partition("?")[0]
    return takes(name) and (plugins.names_code(name) or ":" in given)


def gym_task(
    env: Any,
    *,
    goal: Callable[[np.random.Generator], Any] | Sequence[float] | None = None,
    reward: Reward | Mapping[str, Reward] | None = None,
    success: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
    max_steps: int | None = None,
    name: str | None = None,
    place: Sequence[int] = (),
    columns: Sequence[str] = (),
    actions: str = "unit",
    env_values: Mapping[str, Any] = MappingProxyType({}),
    **values: Any,
) -> "GymTask":
    """A task from a Gymnasium environment: its id, an environment, or a function that makes one.

    A function of `num_envs` may make a vector environment (`gymnasium.vector`) for so many episodes.

    A goal environment (observations with achieved_goal and desired_goal) has its own goals and says itself when one is
    reached. For others:

    goal: a goal observation, or a function of a generator that draws one. success: a function of observations and goals
    [n, obs] that says which are reached. reward: a function of (s, a, s'), or several by name; without one, the
    environment's own reward is the reward "own", for data that `hilp.collect` made. max_steps: length of an episode
    (default: the environment's limit). place: two columns of the observation to draw. columns: names of all of them.
    actions: "unit" where policies act in [-1, 1], as on data that hilp collected, or "own" where they act in the
    environment's own units, as on logs of it. values: for the environment's constructor; those that are called as
    something here go into env_values, `gym_task("My-v0", env_values={"place": "lab"})`.
    """
    from hilp.tasks.gym import environments

    if not is_one_of(actions, ("unit", "own")):
        raise HilpError(f"actions is 'unit' or 'own', not {actions!r:.60}")
    values = {**values, **environments.of_environment(env_values, values)}
    place = environments.two_columns(place)
    maker, identity = environments.maker(env.removeprefix(PREFIX) if isinstance(env, str) else env, values)
    known = None if identity is None else PREFIX + identity
    of_class = getattr(env, "__name__", type(getattr(env, "unwrapped", env)).__name__)
    options = (goal, reward, success, max_steps, place or None)
    changed = actions == "own" or bool(columns) or any(value is not None for value in options)
    found = GymTask(maker, name or known or of_class, *options)
    found.task, found.own_units, found.is_named = None if changed else known, actions == "own", name is not None
    return found.with_columns(columns) if columns else found


def make(name: str) -> Any:
    """The task of a name: gym:ID, gym:ID?key=value&key=value, gym:module:ID, or what a file's function gives.

    Values are JSON where they can be.
    """
    given = name.removeprefix(PREFIX)
    if plugins.names_code(given):
        return task_from(plugins.from_file(given), given)
    identity, _, query = given.partition("?")
    values: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if not equals or not key.isidentifier():
            raise HilpError(f"values of an environment are like {PREFIX}{identity}?key=value&key=value, not '{part}'")
        if key in NOT_TYPED:
            raise HilpError(f"'{key}' of a Gymnasium task is no text: write the task in a file, path/to/file.py:make")
        try:
            values[key] = json.loads(value)
        except ValueError:
            values[key] = value
    found = gym_task(identity, **values, name=name)
    found.task = name
    return found


def task_from(made: Any, name: str) -> Any:
    """A task from what a function (or class) of the user's gives: a task as it is, or an environment."""
    import gymnasium

    is_env = isinstance(made, type) and issubclass(made, gymnasium.Env)
    found = made() if callable(made) and not is_env else made
    if isinstance(found, gymnasium.Env | gymnasium.vector.VectorEnv) or is_env:
        found = gym_task(made, name=name)
    if not hasattr(found, "episodes") or not hasattr(found, "observation_dim"):
        raise HilpError(f"{name} gives a {type(found).__name__}: it must give a Gymnasium environment or a task")
    if isinstance(found, GymTask):
        found.task = name
        if not found.is_named:  # else a table would be called "env" or "<lambda>"
            found.name = Path(name).name
    return found


class GymTask(Task):
    """An environment with its goals or rewards, made by `gym_task`. Episodes take environments from `pool`."""

    family = "gym"
    task: str | None = None  # the name by which `make` gives this task again; None where there is none
    drawn: Sequence[Any] = ()  # environments that draw
    is_named = False  # by the user; else after what made it
    own_units = False  # whether policies act in the environment's own units
    crew: Any = None  # processes that step its environments; None: this one does
    _states: np.ndarray | None = None  # [n, obs] of the data, one of which a goal looks like

    def __init__(
        self, maker: Callable[..., Any], name: str, goal: Any, reward: Any, success: Any, max_steps: Any, place: Any
    ) -> None:
        from hilp.tasks.gym.environments import Layout, One, actions_of, is_goal_space

        self.name, self._maker, self._draw_goal, self.success = name, maker, goal, success
        self.pool: list[Any] = [maker()]
        env = self.pool[0]
        self.together = isinstance(env, One)  # whether all episodes are stepped by one vector environment
        self.actions = actions_of(env.action_space, name)
        self.action_dim, self.choices = self.actions.dim, self.actions.choices
        seen, told = self._probe(env) if is_goal_space(env.observation_space) else ([], False)
        self.layout = Layout(env.observation_space, seen, name)
        self.observation_dim, self.observation_parts = self.layout.dim, self.layout.parts
        self.columns = column_names(self.layout.parts)
        self.goal_dim = len(self.layout.goal_columns)  # 0 where it is no goal environment
        goal_env = self.goal_dim > 0
        self.has_goals = goal_env or goal is not None
        self._require_goals_and_success(goal_env, told)
        limit = env.get_wrapper_attr(TIME_LIMIT) if env.has_wrapper_attr(TIME_LIMIT) else None
        self.max_steps = require_count("max_steps", limit or STEPS if max_steps is None else max_steps)
        self.fps = float(min(max(env.metadata.get("render_fps") or 30, 1), 100))
        self._place = self._columns_to_draw(place)
        if reward is None:
            reward = {} if goal_env else {OWN_REWARD: own_reward}  # that of goal environments changes with the goal
        self.rewards = {"reward": reward} if callable(reward) else dict(reward)
        self.extra_columns = ("physics",) if goal_env else ("physics", "own_reward")

    def _require_goals_and_success(self, goal_env: bool, told: bool) -> None:
        """Raise unless it is known what to reach, and when it is reached. told: whether info tells when."""
        goal, success = self._draw_goal, self.success
        if goal_env and goal is not None:
            raise HilpError(f"{self.name} has goals of its own: leave out goal=")
        if goal_env and success is None and not told:
            raise HilpError(
                f"{self.name} does not say in info when a goal is reached ({' or '.join(FLAGS)}): give success=, a "
                "function of observations and goals"
            )
        if not goal_env and (goal is None) != (success is None):
            raise HilpError(f"{self.name} needs goal= and success= together: what to reach, and when it is reached")
        if goal is not None and not callable(goal):
            self._given_goal(goal)

    def _probe(self, env: Any) -> tuple[list[Any], bool]:
        """Some observations of a goal environment, and whether its info says when a goal is reached."""
        rng, seen, told = np.random.default_rng(0), [], False
        for seed in range(PROBES):
            with plugins.no_library_errors(self.name):
                seen.append(env.reset(seed=seed)[0])
            for _ in range(PROBE_STEPS):
                action = self.actions.raw(self.actions.drawn(rng))
                with plugins.no_library_errors(self.name):
                    observation, _, _, _, info = env.step(action)
                seen.append(observation)
                told |= any(flag in info for flag in FLAGS)
        return copy.deepcopy(seen), told

    def _columns_to_draw(self, place: Sequence[int] | None) -> list[int]:
        """The two columns of a user's, else the first two of the goal, else of the observation."""
        if place is not None:
            if len(place) != 2 or not all(0 <= column < self.observation_dim for column in place):
                raise HilpError(f"place takes two columns from 0 to {self.observation_dim - 1}, not {[*place]}")
            return [*place]
        first = self.layout.goal_columns[:2].tolist()
        rest = [column for column in range(self.observation_dim) if column not in first]
        return [*first, *rest, 0][:2]

    def episodes(self, rng: np.random.Generator, n: int, start: Given = None, goal: Given = None) -> "GymEpisodes":
        """n episodes, each from a reset with a seed of its own; a goal may be an observation or of the goal space."""
        if start is not None:
            raise HilpError(f"{self.name} starts where its reset puts it: leave out the start, and choose a seed")
        if goal is not None:
            self._require_goals()
        seeds = rng.integers(2**31, size=n)
        source = self._draw_goal if goal is None else goal  # None: the environment's own
        drawn = (source(rng) if callable(source) else source for _ in range(n))
        goals = [None if one is None else self._given_goal(one) for one in drawn]
        return GymEpisodes(self, n, seeds, goals)

    @property
    def simulator(self) -> Simulator:
        return Simulator(self.name, self._maker, self.layout, self.actions, self.pool)

    def group(self, size: int) -> Any:
        """Where so many episodes are stepped: here, in other processes, or by a vector environment."""
        if self.together:
            from hilp.tasks.gym.vectors import Together

            return Together(self.simulator)
        return Here(self.simulator) if self.crew is None else self.crew.group(size)

    def _require_goals(self) -> None:
        if not self.has_goals:
            raise HilpError(f"{self.name} has no goals: give it some with goal= and success=, see `hilp.gym_task`")

    def _given_goal(self, goal: Any) -> np.ndarray:
        """A goal in the goal space of a goal environment, as an observation in others."""
        value = np.asarray(goal, np.float64)
        if self.goal_dim and value.shape == (self.observation_dim,):
            value = value[self.layout.goal_columns]
        size = self.goal_dim or self.observation_dim
        if value.shape != (size,) or not np.isfinite(value).all():
            also = f" or {self.goal_dim} of its goal space" if self.goal_dim else ""
            raise HilpError(
                f"a goal of {self.name} is an observation of {self.observation_dim} numbers{also}, not {goal}"
            )
        return value

    def goal_observation(self, goal: np.ndarray) -> np.ndarray:
        """What a goal [k] of the goal space looks like: a usual state of the data near it, with the goal achieved.

        Without data, a state after a reset; but those can be unlike all others (a gripper that has not settled).
        """
        if self._states is None:
            env = self.simulator.take()
            self._states = self.layout.vector(env.reset(seed=0)[0])[None]
            self.pool.append(env)
        away = np.linalg.norm(self._states[:, self.layout.goal_columns] - goal, axis=1)
        near = self._states[np.argsort(away, kind="stable")[:NEIGHBOURS]]
        spread = self._states.std(axis=0)
        odd = np.abs(near - np.median(near, axis=0)) / np.where(spread > 0, spread, 1.0)
        observation: np.ndarray = near[int(np.argmin(odd.sum(axis=1)))].copy()
        observation[self.layout.goal_columns] = goal
        return observation

    def for_states(self, states: np.ndarray) -> Self:
        """The same task with goals that look like states [n, obs] of the data, but for what is to be achieved."""
        return changed(self, _states=np.asarray(states, np.float64)) if self.goal_dim and len(states) else self

    def for_data(self, first: np.ndarray) -> Self:
        """The same task with goals that look like the first observation of the data."""
        if not self.goal_dim:
            return self
        return self.for_states(require_observation(self, first, "first observation", finite=False)[None])

    def with_own_units(self, own: bool) -> Self:
        """The same task for policies that act in the environment's own units, or in [-1, 1]."""
        return changed(self, own_units=own)

    def with_columns(self, names: Sequence[str]) -> Self:
        """The same task with a name for each column of its observations."""
        known = [name for name in names if isinstance(name, str) and name] if isinstance(names, list | tuple) else []
        if not len({*known}) == len(known) == self.observation_dim:
            raise HilpError(f"columns of {self.name} are {self.observation_dim} names, each once, not {names!r:.60}")
        parts = tuple((name, (1,)) for name in known)
        return changed(self, observation_parts=parts, columns=column_names(parts))

    def with_processes(self, count: int) -> AbstractContextManager[Self]:
        """The same task with environments in so many other processes; a vector environment has its own ways."""
        if self.together:
            say(f"workers change nothing: {self.name} is a vector environment, which steps its episodes itself")
        from hilp.tasks import processes
        from hilp.tasks.gym.environments import loader

        file = plugins.file_of(self.task.removeprefix(PREFIX)) if self.task else None
        return processes.shared(self, 1 if self.together else count, loader(self.simulator), file)

    def with_rendering(self) -> Self:
        """The same task with environments that draw, where they can: its episodes have a `picture`."""
        if self.together:
            return self
        maker, drawn = self._maker, []

        def drawing() -> Any:
            drawn.append(maker(render_mode="rgb_array"))
            return drawn[-1]

        try:
            env = drawing()
        except HilpError:
            return self
        return changed(self, _maker=drawing, pool=[env], drawn=drawn) if env.render_mode == "rgb_array" else self

    def close(self) -> None:
        """Close all environments that draw, in the thread that drew: they cannot clean up when Python ends."""
        for env in self.drawn:
            with contextlib.suppress(Exception):  # as each may fail in its own way
                env.close()

    def near(self, observations: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """Whether observations count as at the goal: by the rule given, else where the goal's own reward is paid."""
        self._require_goals()
        observations, goal = np.broadcast_arrays(np.asarray(observations), np.asarray(goal))
        if self.success is not None:
            found = np.asarray(self.success(observations, goal))
            if found.shape != observations.shape[:1]:
                raise HilpError(f"success of {self.name} must give one bool per observation, not {found.shape}")
            return found.astype(bool)
        achieved, desired = (rows[:, self.layout.goal_columns].astype(np.float64) for rows in (observations, goal))
        return self._paid(achieved, desired) >= self._paid(desired, desired) - 1e-9

    def _paid(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        env = self.pool[0] if self.pool else self._maker()
        if not hasattr(env.unwrapped, "compute_reward"):
            raise HilpError(f"{self.name} cannot tell whether a state is at a goal: give success=")
        pairs = zip(achieved, desired, strict=True)
        return np.array([float(env.unwrapped.compute_reward(*pair, {})) for pair in pairs])

    def draw(self, ax: Axes) -> None:
        names = [*self.columns]
        ax.set(xlabel=names[self._place[0]], ylabel=names[self._place[1]])

    def place(self, observations: np.ndarray) -> np.ndarray:
        return np.asarray(observations)[:, self._place]

    def film(self, observations: np.ndarray, physics: np.ndarray | None) -> np.ndarray:
        """Frames of an episode, played again from its seed in an environment that renders."""
        if physics is None or not len(physics):
            raise HilpError(f"there is no step of {self.name} to film")
        if self.together:
            raise HilpError(f"{self.name} is a vector environment, which is not filmed: name one of single ones")
        env = self._maker(render_mode="rgb_array")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what renderers import
                return self._played(env, physics)
        except HilpError:
            raise
        except Exception as error:  # renderers fail in their own ways, a package that is missing among them
            raise HilpError(f"{self.name} cannot be filmed: {reason(error)}") from error
        finally:
            env.close()

    def _played(self, env: Any, physics: np.ndarray) -> np.ndarray:
        """Frames of the steps that `extra("physics")` noted, played again."""
        if env.render_mode != "rgb_array":
            raise HilpError(
                f"{self.name} cannot be filmed: let what makes it take render_mode, and make it with 'rgb_array'"
            )
        seed, wanted, actions = np.split(physics, [1, 1 + self.goal_dim], axis=1)
        env.reset(seed=int(seed[0, 0]))
        if self.goal_dim:
            set_goal(env, wanted[0])
        frames, over = [env.render()], False
        for action in actions:
            if not over:
                _, _, terminated, truncated, _ = env.step(self.actions.raw(action))
                over = terminated or truncated
                frames.append(env.render())
        return np.asarray(frames, np.uint8)


class GymEpisodes(BaseEpisodes):
    """n episodes. One that the environment ends (`over`) stays where it is and earns nothing more.

    given: a goal for each episode, or None for the environment's own.
    """

    def __init__(self, task: GymTask, n: int, seeds: np.ndarray, given: list[np.ndarray | None]) -> None:
        self._world, self._seeds = task, seeds
        self.over = np.zeros(n, bool)
        self._earned, self._actions = np.zeros(n), np.zeros((n, task.action_dim))
        self._wanted = np.full((n, task.goal_dim), np.nan)  # what a goal environment desires, in its own goal space
        self._told = np.ones(n, bool)  # whether the environment's own flag is about the goal of the episode
        self._envs = task.group(n)
        first = self._envs.begin(seeds.tolist(), given)
        self.observations, self._flags = first["observations"].astype(np.float32), first["flags"]
        self.goals = np.full((n, task.observation_dim), np.nan, np.float32)
        if task.goal_dim:
            self._told, self._wanted = first["told"], first["wanted"].astype(np.float64)
            self.goals[:] = [task.goal_observation(wanted) for wanted in self._wanted]
        elif task.has_goals:
            self.goals[:] = given

    def step(self, actions: np.ndarray) -> None:
        task = self._world
        actions = np.asarray(actions, np.float64).reshape(len(self.over), -1)  # discrete ones may be one number each
        if task.own_units:
            actions = task.actions.scaled(actions)
        self._actions, self._earned = task.actions.limited(actions), np.zeros(len(self.over))
        if len(moving := self.moving(actions)):
            seen = self._envs.step(moving, actions[moving])
            self.observations[moving], self._flags[moving] = seen["observations"], seen["flags"]
            self._earned[moving], self.over[moving] = seen["rewards"], seen["over"]

    def picture(self, number: int = 0) -> np.ndarray:
        """What an episode looks like now: uint8 [height, width, 3], of a task `with_rendering`."""
        return self._envs.picture(number)

    def reached(self) -> np.ndarray:
        """At the goal now: by the task's own rule where it has one, else as the environment says."""
        task = self._world
        if not task.has_goals:
            return super().reached()
        if task.success is not None:
            return task.near(self.observations, self.goals)
        if self._told.all():
            return self._flags.copy()
        return np.where(self._told, self._flags, task.near(self.observations, self.goals))

    def extra(self, name: str) -> np.ndarray:
        """ "own_reward" [n]: what the last step earned; "physics" [n, p]: what it takes to play the step again."""
        if name == "physics":
            return np.concatenate([self._seeds[:, None], self._wanted, self._actions], axis=1)
        if name in self._world.extra_columns:
            return self._earned.astype(np.float32)
        return super().extra(name)


def own_reward(s: np.ndarray, a: np.ndarray, s2: np.ndarray, extras: Any) -> np.ndarray:
    """The environment's own reward, a column of data from `hilp.collect`."""
    return np.asarray(extras.after("own_reward"))
