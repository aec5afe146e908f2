"""Goals as people name them: by a name of the task, by a row of data, by a few columns, or by all their numbers.

| text | goal |
|---|---|
| `task3` | a goal that the task has a name for |
| `row:1234` | the observation in that row of a data set, or of the states that a policy keeps |
| `x=3,y=4` | these columns; the others as the task says; without a task all columns that networks see |
| `3.0,4.0` | a whole observation |
| `photo.png` | a picture, where policies see one; it is brought to their size |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError, nearest, some
from hilp.prompts.specs import Goal
from hilp.spec import Spec
from hilp.tasks import Task, rendering

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset
    from hilp.policy.policy import FoundationPolicy

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
POLICY = "this policy"  # the owner of columns where there is no task
ROW = "row:"  # before the number of a row


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


def resolve(
    spec: Goal, policy: FoundationPolicy, world: Task | None, data: Dataset | None = None, seed: int = 0
) -> tuple[Goal, Any]:
    """A goal spec with columns by number, and the goal that it names; None: the task chooses goals."""
    dims = None if spec.goal_dims is None else column_numbers(spec.goal_dims, policy, world)
    goal = spec.goal
    if isinstance(goal, str):
        goal = find(goal, policy, world, data, seed, dims)
    elif isinstance(goal, Mapping):
        goal = ResolvedGoal(trees.over(lambda rows: rows[0], policy.check(goal).tree))
    elif goal is not None:
        goal = ResolvedGoal(np.asarray(goal, np.float32))
    return replace(spec, goal_dims=dims), goal


def find(
    text: str,
    policy: FoundationPolicy,
    world: Task | None = None,
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
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        return _by_name(text, world, seed)
    return _seen(world, np.array(numbers, np.float32))


def _by_name(text: str, world: Task | None, seed: int) -> ResolvedGoal:
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


def _seen(world: Task | None, state: np.ndarray, named: str | None = None) -> ResolvedGoal:
    """A state as a goal: as it is, or as policies see it."""
    seen = rendering.observe_states(world, state)
    return ResolvedGoal(seen, named, None if seen is state else np.asarray(state))


def is_row(text: str | None) -> bool:
    """Whether a goal is a row of data."""
    return text is not None and text.strip().startswith(ROW)


def _row(text: str, policy: FoundationPolicy, world: Task | None, data: Dataset | None) -> ResolvedGoal:
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


def _columns_of(policy: FoundationPolicy, world: Task | None) -> tuple[Mapping[str, int], str]:
    """The columns that have names, and whose they are: of a log without a task, where each has a name of its own."""
    if world is not None:
        return world.columns, world.name
    parts = policy.observation_parts
    alone = len(parts) == policy.spec.observation_dim and all(np.prod(shape) == 1 for _, shape in parts)
    return {name: column for column, (name, _) in enumerate(parts)} if alone else {}, POLICY


def column_numbers(columns: str | Sequence[int | str], policy: FoundationPolicy, world: Task | None) -> tuple[int, ...]:
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
    text: str, policy: FoundationPolicy, world: Task | None, seed: int, goal_dims: Sequence[int] | None
) -> np.ndarray:
    """A goal of which some columns are given: the others as the task says, or any that networks do not see."""
    columns, owner = _columns_of(policy, world)
    values = _column_values(text, columns, owner)
    if world is None:  # columns that networks do not see may be any
        goal = np.array(policy.bank.observations[0], np.float32)
        transform = policy.preparation.transform
        goal[list(range(len(goal)) if transform is None else transform.columns)] = np.nan
    elif hasattr(world, "goal_base"):
        goal = np.array(world.goal_base(np.random.default_rng(seed)), np.float32)
    else:
        raise HilpError(f"{owner} does not say what the rest of a goal is: give {ROW}0 or all its numbers")
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

    try:
        with Image.open(path) as picture:
            found = picture.convert("L" if frame == 1 else "RGB")
            if found.size != (width, height):  # then averaged over areas
                found = found.resize((width, height), Image.Resampling.BOX)
        pixels = np.asarray(found, np.uint8).reshape(height, width, frame)
        return {name: np.tile(pixels, (1, 1, channels // frame))}
    except FileNotFoundError:
        raise HilpError(f"there is no picture {path}") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise HilpError(f"{path} is not a picture that can be read: {' '.join(str(error).split())[:120]}") from error
