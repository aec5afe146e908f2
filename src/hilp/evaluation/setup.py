"""A task as a policy acts in it, whether the two fit, and its rewards and goals as people name them.

| text | goal |
|---|---|
| `task3` | a goal that the task has a name for |
| `row:1234` | the observation in that row of a data set, or of the states that a policy keeps |
| `x=3,y=4` | these columns; the others as the task says; without a task all columns that networks see |
| `3.0,4.0` | a whole observation |
| `photo.png` | a picture, where policies see one; it is brought to their size |
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hilp import tasks, trees
from hilp.data import rewards
from hilp.data.dataset import Dataset
from hilp.data.rewards import RewardFunction
from hilp.data.transforms import Parts
from hilp.errors import HilpError, nearest, some
from hilp.policy.policy import FoundationPolicy
from hilp.prompts import formulas
from hilp.prompts import reward as reward_prompts
from hilp.prompts.agent import numbers
from hilp.prompts.specs import Goal
from hilp.spec import Spec
from hilp.storage import told
from hilp.tasks import rendering
from hilp.tasks.base import require_order

TARGET = "target"  # the reward of being at the one far place that some tasks have, or of their subtasks
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
POLICY = "this policy"  # the owner of columns where there is no task
ROW = "row:"  # before the number of a row


def reward_names(world: tasks.Task) -> list[str]:
    """The rewards that a task has a name for."""
    target = {TARGET} if hasattr(world, "at_target") else set()
    return sorted({*world.potentials, *world.rewards, *target})


def reward_shift(world: Any, name: str, shift: float | None = None, ends: bool = False) -> dict[str, Any]:
    """How a task's reward is learnt from; at a far place, as in the paper's AntMaze, episodes end, and steps cost 1."""
    far = name == TARGET and bool(getattr(world, "target_ends", True))
    return {"shift": (-1.0 if far else 0.0) if shift is None else shift, "ends": ends or far}


def reward_function(world: Any, name: str) -> RewardFunction:
    """A task's reward of this name, as a function of (s, a, s') or (s, a, s', extras); an error where it has none."""
    if name not in reward_names(world):
        raise HilpError(f"task {world.name} has no reward '{name}': {nearest(name, reward_names(world))}")
    if name in world.rewards:
        return world.rewards[name]
    if name not in world.potentials:
        return world.at_target
    potential = world.potentials[name]
    return lambda s, a, s2: potential(s2) - potential(s)


def reward_of(text: str, policy: FoundationPolicy, world: Any | None, data: Dataset | None = None) -> Any:
    """The reward that a text names or is the formula of; over parts, images among them, the policy reads it itself.

    data: whose extra columns, else those of the policy's bank, a formula may name.
    """
    columns = {} if world is None else dict(world.columns)
    extras = policy.bank.next_extras if data is None else data.extras
    parts = [*columns, *dict(policy.observation_parts), *(name for name, _, _ in policy.spec.parts), *(extras or {})]
    named = named_reward(text, parts, world)
    if named is not None or policy.spec.parts:
        return named or text
    row = policy.spec.of_row
    sizes, angles = (row.observation_dim, row.action_dim), reward_prompts.angles_of(policy.transform)
    return formulas.reward(text, policy.observation_parts, *sizes, columns, angles)


def named_reward(text: str, parts: Iterable[str], world: Any | None) -> RewardFunction | None:
    """The reward of a task that a text names; None where it is a formula over these parts of an observation."""
    known = world is not None and text in reward_names(world)
    if not known and (text in parts or not text.isidentifier()):
        return None
    if world is None:
        hint = nearest(text, parts)
        if hint.startswith("did you"):
            raise HilpError(f"there is no column '{text}': {hint} (a reward of a task needs --task)")
        raise HilpError(f"'{text}' is a name: name the task whose reward it is with --task, or give a formula")
    try:
        return reward_function(world, text)
    except HilpError as error:  # says which names there are
        column = next(iter(world.columns), "observation[0]")
        raise HilpError(f"{error}; or give a formula, e.g. '{column} - before({column})'") from None


def label(data: Dataset, reward: str | None, shift: float | None = None, ends: bool = False) -> Dataset:
    """The data with rewards: those of its task or of a formula, or its own."""
    if reward is None:
        return rewards.label(data, shift=shift or 0.0, ends=ends)
    spec = data.spec
    world = None if data.task is None else tasks.make_recorded(data.task)
    if world is not None:
        fits = not spec.parts or rendering.policy_spec(world).parts == spec.parts
        world = rendering.for_data(world, data) if fits else None
    names = [*dict(data.observation_parts), *(name for name, _, _ in spec.parts), *data.extras]
    angles = reward_prompts.angles_of(data.transform)
    function = named_reward(reward, names, world) or reward_prompts.formula(
        spec, data.observation_parts, reward, angles
    )
    return rewards.label(data, function, **reward_shift(world, reward, shift, ends))


def task_of(policy: FoundationPolicy, name: str | None = None) -> Any:
    """A task, by default the one that the policy's data names, in the form that it has on that data."""
    recorded = policy.provenance.task
    if name is None and recorded is None:
        raise HilpError(
            "this policy's data does not say which task it comes from: name one with --task, or measure the policy on "
            "episodes with `hilp evaluate RUN --data FILE`"
        )
    world = tasks.make_recorded(str(recorded)) if name is None else tasks.make(name)
    first = policy.provenance.first_observation
    return world if first is None or len(first) != world.observation_dim else world.for_data(np.asarray(first))


def task_if_known(policy: FoundationPolicy, name: str | None) -> Any | None:
    """The task of this name, or of the policy's data, as the policy acts in it; None where neither is known."""
    if not (name or policy.provenance.task):
        return None
    if name is not None or not policy.spec.parts:
        return task_for_policy(policy, task_of(policy, name))
    try:
        world = task_for_policy(policy, task_of(policy))
    except HilpError:  # it can be prompted without one
        return None
    return world if rendering.policy_spec(world).parts == policy.spec.parts else None  # data may see more than a task


def acting_task(policy: FoundationPolicy, task: str | tasks.Task) -> Any:
    """A task, by name or as it is, in the form that a policy acts in; the two must fit."""
    if not isinstance(task, str) and not hasattr(task, "episodes"):
        raise HilpError(f"a task is a name or an object as hilp.make_task gives it, not {task!r:.60}")
    world = task_for_policy(policy, task_of(policy, task) if isinstance(task, str) else task)
    require_fit("this policy", policy.spec, world, policy.observation_parts)
    return world


def task_for_policy(policy: FoundationPolicy, world: Any) -> Any:
    """The task as a policy acts in it, where the task has forms of its own for that.

    Tasks act in [-1, 1], logs of a robot may be in the robot's own units; and goals may look like states of the
    policy's data.
    """
    row = policy.spec.of_row
    if hasattr(world, "for_states") and not row.parts and row.observation_dim == world.observation_dim:
        world = world.for_states(policy.spec.newest(policy.bank.observations))
    if not hasattr(world, "with_own_units"):
        return world
    names = [name for name, _ in policy.observation_parts]
    if len(world.observation_parts) == 1 < len(names) == world.observation_dim:  # those of a log
        world = world.with_columns(names)
    preparation = policy.preparation
    beyond = (np.abs(preparation.action_center) + preparation.action_half_range > 1 + 1e-3).any()
    return world.with_own_units(True) if beyond else world


def require_fit(what: str, spec: Spec, world: tasks.Task, parts: Parts = ()) -> None:
    """Raise unless a policy or a data set has the observations and actions of a task; parts: its columns by name."""
    remedy = "choose the task it comes from, or use it without one"
    spec.of_row.require(what, rendering.policy_spec(world), f"task {world.name}", remedy)
    require_order(what, parts, world)


@dataclass(frozen=True)
class ResolvedGoal:
    """The goal that a text names."""

    observation: Any  # one array, or one of named parts: what a policy is prompted with
    named: str | None = None  # by the task, which then says where an episode starts, too
    state: np.ndarray | None = None  # of the task, where a policy sees a picture of it

    @property
    def for_task(self) -> Any:
        """The goal as `world.episodes` takes it."""
        where = self.observation if self.state is None else self.state
        return where if self.named is None else self.named


def resolve_goal(
    spec: Goal, policy: FoundationPolicy, world: tasks.Task | None, data: Dataset | None = None, seed: int = 0
) -> tuple[Goal, Any]:
    """A goal spec with columns by number, and the goal that it names; None: the task chooses goals."""
    dims = None if spec.goal_dims is None else column_numbers(spec.goal_dims, policy, world)
    goal = spec.goal
    if isinstance(goal, str):
        goal = find_goal(goal, policy, world, data, seed, dims)
    elif isinstance(goal, Mapping):
        goal = ResolvedGoal(trees.over(lambda rows: rows[0], policy.check(goal).tree))
    elif goal is not None:
        goal = ResolvedGoal(numbers(goal, "a goal", np.float32))
    return replace(spec, goal_dims=dims), goal


def find_goal(
    text: str,
    policy: FoundationPolicy,
    world: tasks.Task | None = None,
    data: Dataset | None = None,
    seed: int = 0,
    goal_dims: Sequence[int] | None = None,
) -> ResolvedGoal:
    """The goal that a text names. Rows are those of `data`, or without it of the policy's bank.

    seed: of what the task draws for a goal; the same as that of its episodes. goal_dims: the columns that count, if not
    all: a goal by columns needs no others.
    """
    text = text.strip()
    if text.startswith(ROW):
        return _row(text.removeprefix(ROW), policy, world, data)
    if Path(text).suffix.lower() in PICTURES:
        return ResolvedGoal(picture_observation(text, policy.spec))
    shown = world is not None and hasattr(world, "render_states")  # a state can become what the policy sees
    if policy.spec.parts and not shown:
        names = some([name for name, _, _ in policy.spec.parts])
        raise HilpError(
            f"this policy has observations by name ({names}), so '{text}' is no goal: give a row of data, {ROW}0, a "
            "picture, photo.png, or policy.goal(...).save(FILE) in Python, then --load FILE"
        )
    if "=" in text:
        return _seen(world, _by_columns(text, policy, world, seed, goal_dims))
    try:
        numbers = np.array([float(part) for part in text.split(",")], np.float32)
    except ValueError:
        return _by_name(text, world, seed)
    return _seen(world, numbers)


def _by_name(text: str, world: tasks.Task | None, seed: int) -> ResolvedGoal:
    if world is None:
        raise HilpError(
            f"'{text}' is a name: name the task whose goal it is with --task, or give {ROW}0 or numbers separated by "
            "commas"
        )
    if not hasattr(world, "goal_named"):
        raise HilpError(
            f"'{text}' is no goal, {world.name} has none by name: give {ROW}0, columns such as x=3,y=4, or numbers "
            "separated by commas"
        )
    return _seen(world, world.goal_named(text, np.random.default_rng(seed)), text)


def _seen(world: tasks.Task | None, state: np.ndarray, named: str | None = None) -> ResolvedGoal:
    """A state as a goal: as it is, or as policies see it."""
    seen = rendering.observe_states(world, state)
    return ResolvedGoal(seen, named, None if seen is state else np.asarray(state))


def is_row(text: str | None) -> bool:
    """Whether a goal is a row of data."""
    return text is not None and text.strip().startswith(ROW)


def _row(text: str, policy: FoundationPolicy, world: tasks.Task | None, data: Dataset | None) -> ResolvedGoal:
    observations = policy.bank.observations if data is None else data.observations
    where = "the bank of this policy" if data is None else f"the data set {data.name}"
    count = trees.rows(observations)
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise HilpError(f"{ROW} takes the number of a row from 0 on, not '{text}'")
    if int(text) >= count:
        last = f"rows 0 to {count - 1}" if count else "no rows"
        raise HilpError(f"there is no row {text}: {where} has {last}")
    states = None if data is None else data.extras.get(str(getattr(world, "state_column", "")))  # behind rendered data
    state = None if states is None else np.asarray(states[int(text)])
    return ResolvedGoal(trees.over(lambda part: np.array(part[int(text)]), observations), state=state)


def _columns_of(policy: FoundationPolicy, world: tasks.Task | None) -> tuple[Mapping[str, int], str]:
    """The columns that have names, and whose they are: of a log without a task, where each has a name of its own."""
    if world is not None:
        return world.columns, world.name
    parts = policy.observation_parts
    alone = len(parts) == policy.spec.of_row.observation_dim and all(np.prod(shape) == 1 for _, shape in parts)
    return {name: column for column, (name, _) in enumerate(parts)} if alone else {}, POLICY


def column_numbers(columns: str | Sequence[int | str], policy: FoundationPolicy, world: Any | None) -> tuple[int, ...]:
    """Columns by name or number, as in x,y or 0,1."""
    known, owner = _columns_of(policy, world)
    found = []
    for name in [str(part).strip() for part in (columns.split(",") if isinstance(columns, str) else columns)]:
        if name not in known and not (name.isascii() and name.isdecimal()):
            hint = nearest(name, known) if known else "its columns have no names, give their numbers from 0 on"
            raise HilpError(f"{owner} has no column '{name}': {hint}")
        found.append(known[name] if name in known else int(name))
    return tuple(found)


def _by_columns(
    text: str, policy: FoundationPolicy, world: tasks.Task | None, seed: int, goal_dims: Sequence[int] | None
) -> np.ndarray:
    """A goal of which some columns are given: the others as the task says, or any that networks do not see."""
    columns, owner = _columns_of(policy, world)
    values = _column_values(text, columns, owner)
    if world is not None and hasattr(world, "goal_base"):
        goal = np.array(world.goal_base(np.random.default_rng(seed)), np.float32)
    elif policy.spec.parts:
        raise HilpError(f"{owner} does not say what the rest of a goal is: give {ROW}0 or all its numbers")
    else:  # columns that networks do not see may be any
        goal = np.resize(policy.spec.newest(policy.bank.observations[:1]), len(columns))  # without a bank zeros
        transform = policy.preparation.transform
        goal[list(range(len(goal)) if transform is None else transform.columns)] = np.nan
    for name, number in values.items():
        goal[columns[name]] = number
    missing = [name for name, column in columns.items() if np.isnan(goal[column])]
    hint = f" (or say that they do not matter: --goal-dims {','.join(values)})"
    if goal_dims is not None:
        missing, hint = [name for name in missing if columns[name] in goal_dims], ""
        goal = np.nan_to_num(goal)  # what does not matter may be anything
    if missing:
        raise HilpError(f"a goal of {owner} also needs {some(missing)}{hint}")
    return goal


def _column_values(text: str, columns: Mapping[str, int], owner: str) -> dict[str, float]:
    """The numbers of x=3,y=4 by column."""
    if not columns and owner == POLICY:
        raise HilpError(f"'{text}' names columns: name the task that has them with --task, or give {ROW}0 or numbers")
    if not columns:
        raise HilpError(f"the columns of {owner} have no names: give {ROW}0 or all numbers of a goal")
    values: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name in values:
            raise HilpError(f"a goal by columns is x=3,y=4 with each name once, not '{text}'")
        if name not in columns:
            raise HilpError(f"{owner} has no column '{name}': {nearest(name, columns)}")
        try:
            values[name] = float(value)
        except ValueError:
            raise HilpError(f"column {name} of a goal takes a number, not '{value}'") from None
    return values


def picture_observation(path: str, spec: Spec) -> dict[str, np.ndarray]:
    """What a policy would see where a picture was taken, brought to its size; of a stack, the same frame in each."""
    shapes = spec.pictures
    if len(shapes) != 1 or len(spec.parts) != 1:
        parts = some([f"{name} {kind} {shape}" for name, shape, kind in spec.parts]) or "plain vectors"
        raise HilpError(f"{path} is a picture, and this policy sees {parts}: a picture alone is no goal for it")
    ((name, (height, width, channels)),) = shapes.items()
    frame = 1 if channels in (1, 2) else 3
    if channels % frame:
        raise HilpError(f"{path} is a picture, and this policy sees {channels} channels, no stack of frames in colour")
    from PIL import Image

    if not Path(path).is_file():
        raise HilpError(f"there is no picture {path}")
    refused = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)
    with told(f"{path} is not a picture that can be read", refused), Image.open(path) as picture:
        found = picture.convert("L" if frame == 1 else "RGB")
        if found.size != (width, height):  # then averaged over areas
            found = found.resize((width, height), Image.Resampling.BOX)
        pixels = np.asarray(found, np.uint8).reshape(height, width, frame)
        return {name: np.tile(pixels, (1, 1, channels // frame))}
