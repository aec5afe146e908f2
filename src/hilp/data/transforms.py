"""What is known of a data set besides its rows, and what stands between these and the networks.

That is a transform of observations and a scaling of actions. Files, goals, banks and rewards keep rows as they are
recorded. Training applies the transform, and so does the policy, which is saved with it.
"""

import json
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError
from hilp.trees import Tree


@dataclass(frozen=True)
class ObservationTransform:
    """Of observations of `width` numbers: columns that are columns, in order, an angle as its sine and its cosine."""

    width: int
    columns: tuple[int, ...]
    angles: tuple[tuple[int, float], ...] = ()  # column, period; all of them columns

    @cached_property
    def size(self) -> int:
        """Numbers that networks see."""
        return len(self.columns) + len(self.angles)

    def repeated(self, count: int) -> "ObservationTransform":
        """Of so many such observations side by side."""
        firsts = [self.width * number for number in range(count)]
        columns = tuple(first + column for first in firsts for column in self.columns)
        angles = tuple((first + column, period) for first in firsts for column, period in self.angles)
        return ObservationTransform(self.width * count, columns, angles)

    @cached_property
    def places(self) -> tuple[np.ndarray, ...]:
        """Columns that pass as they are and where they go; angles, where their sines go, their unit in radians."""
        turning = dict(self.angles)
        wide = [2 if column in turning else 1 for column in self.columns]
        begin = np.cumsum([0, *wide])[:-1]
        plain = [n for n, column in enumerate(self.columns) if column not in turning]
        turned = [n for n, column in enumerate(self.columns) if column in turning]
        columns = np.array(self.columns, np.int64)
        radians = np.array([2.0 * math.pi / turning[self.columns[n]] for n in turned])
        return columns[plain], begin[plain], columns[turned], begin[turned], radians

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """One observation or a batch, as the networks see it."""
        plain, into, turned, sines, radians = self.places
        found = np.empty((*rows.shape[:-1], self.size), np.float32)
        found[..., into] = rows[..., plain]
        angles = np.asarray(rows[..., turned], np.float64) * radians
        found[..., sines], found[..., sines + 1] = np.sin(angles), np.cos(angles)
        return found

    def to_json(self) -> dict[str, Any]:
        return {"width": self.width, "columns": list(self.columns), "angles": [list(angle) for angle in self.angles]}

    @staticmethod
    def from_json(values: Any) -> "ObservationTransform":
        """From plain values; a ValueError where they describe no transform."""
        if not isinstance(values, Mapping) or set(values) != {"width", "columns", "angles"}:
            raise ValueError("a transform of observations has a width, columns and angles")
        width, columns, angles = values["width"], values["columns"], values["angles"]
        turning = {column: float(period) for column, period in angles}
        if not all(type(number) is int and number >= 0 for number in (width, *columns, *turning)):
            raise ValueError("the columns of a transform are whole numbers")
        if list(columns) != sorted({*columns, *turning}) or max(columns, default=width) >= width:
            raise ValueError("a transform names columns that are not there, or twice, or none")
        if len(turning) != len(angles) or not all(0.0 < period < math.inf for period in turning.values()):
            raise ValueError("the periods of a transform's angles are numbers above 0")
        return ObservationTransform(width, tuple(columns), tuple(sorted(turning.items())))

    @property
    def text(self) -> str:
        """The same text for equal views, to be hashed."""
        return json.dumps(self.to_json(), sort_keys=True)


class MadeRows:
    """Rows that are made when they are read: what `trees`, samplers and numpy ask of an array of rows."""

    block = 1 << 16  # rows that are made at a time

    def __len__(self: Any) -> int:
        return int(self.shape[0])

    def __array__(self: Any, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = np.empty(self.shape, self.dtype)
        for first in range(0, len(self), self.block):
            found[first : first + self.block] = self[first : first + self.block]
        return found if dtype is None else found.astype(dtype, copy=False)


class TransformedRows(MadeRows):
    """Rows that may lie in a file, through a transform."""

    dtype = np.dtype(np.float32)
    ndim = 2

    def __init__(self, rows: Any, transform: ObservationTransform):
        self._rows, self._transform = rows, transform
        self.shape = (len(rows), transform.size)

    def __getitem__(self, index: Any) -> np.ndarray:
        return self._transform(np.asarray(self._rows[index]))


class OneHot(MadeRows):
    """Discrete actions as networks see them: rows of `count` numbers, 1 for the one that was chosen, else 0."""

    ndim, dtype = 2, np.dtype(np.float32)

    def __init__(self, stored: Any, count: int) -> None:
        self.stored, self.count = stored, count  # [rows, 1] whole numbers from 0 to count - 1; the array may be jax's

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.stored), self.count

    def __getitem__(self, rows: Any) -> Any:
        return one_hot(self.stored[rows], self.count)


def one_hot(chosen: Any, count: int) -> Any:
    """Choices [..., 1] as numbers [..., count]; the same lines are traced by jax."""
    return (chosen == np.arange(count, dtype=chosen.dtype)).astype(np.float32)


@dataclass(frozen=True, eq=False)
class ActionScaling:
    """raw action = center + half_range * action, column by column."""

    center: np.ndarray  # [act] float32
    half_range: np.ndarray  # [act] float32

    @staticmethod
    def of_range(low: np.ndarray, high: np.ndarray) -> "ActionScaling":
        """Maps the range of each column to [-1, 1]; a column of one value is only shifted."""
        center = ((high + low) / 2).astype(np.float32)
        return ActionScaling(center, np.where(high > low, (high - low) / 2, 1.0).astype(np.float32))

    def scaled(self, raw: np.ndarray) -> np.ndarray:
        """Raw actions, mapped for training."""
        return np.clip((raw - self.center) / self.half_range, -1.0, 1.0).astype(np.float32)

    def raw(self, actions: np.ndarray) -> np.ndarray:
        """Actions of training in the user's units."""
        return self.center + self.half_range * actions

    def after(self, earlier: "ActionScaling | None") -> "ActionScaling":
        """Both in one, where the actions had been scaled before."""
        if earlier is None:
            return self
        return ActionScaling(earlier.center + earlier.half_range * self.center, earlier.half_range * self.half_range)


OTHERWISE_IN_JSON = ("format", "action_scaling", "measured", "choices")  # fields of Metadata
Parts = tuple[tuple[str, tuple[int, ...]], ...]  # named parts of a row, side by side: name, shape


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """Where data comes from and what was done to it: what a Dataset and a Source, which have rows, have in common."""

    name: str = "arrays"
    task: str | None = None  # the task it was collected in, where hilp collected it
    format: str = "arrays"  # the reader that took it
    endings: Mapping[str, int] = field(default_factory=dict)  # how many episodes end in which way, where the data says
    notes: tuple[str, ...] = ()  # what the reader decided or left out, one line each
    measured: Mapping[str, Any] = field(default_factory=dict)  # of its collector: what the behaviour was like
    observation_parts: Parts = ()
    action_parts: Parts = ()  # where columns of a log make up an action
    action_scaling: ActionScaling | None = None  # where actions were rescaled
    choices: int = 0  # of discrete actions how many there are; they are stored as whole numbers from 0 on
    stride: int | None = None  # rows of the log that one step spans; None: 1, and free to be chosen
    stride_actions: str = "mean"  # how the commands of a stride became one: mean or sum
    frames: int = 1  # of a picture, or a vector, and those before it that networks see at once
    transform: ObservationTransform | None = None  # of observations, where networks do not see them as they are

    @property
    def episodes(self: Any) -> int:
        return len(self.lengths)

    @property
    def transitions(self: Any) -> int:
        return int(self.rows) - len(self.lengths)

    def view(self, width: int) -> "ObservationTransform":
        """How networks see observations of so many numbers."""
        return self.transform or ObservationTransform(width, tuple(range(width)))

    def metadata(self) -> dict[str, Any]:
        """These fields, to be handed on."""
        return {known.name: getattr(self, known.name) for known in fields(Metadata)}

    def to_json(self) -> dict[str, Any]:
        """As plain values, for dataset.json."""
        scaling, transform = self.action_scaling, self.transform
        plain = {name: value for name, value in self.metadata().items() if name not in OTHERWISE_IN_JSON}
        return {
            **plain,
            "read_as": self.format,
            "endings": dict(self.endings),
            **({"choices": self.choices} if self.choices else {}),
            **({"measured": dict(self.measured)} if self.measured else {}),
            "action_center": None if scaling is None else scaling.center.tolist(),
            "action_half_range": None if scaling is None else scaling.half_range.tolist(),
            "transform": None if transform is None else transform.to_json(),
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> "Metadata":
        """From plain values; a ValueError, TypeError or KeyError where they are none of this."""
        known = {key.name: values[key.name] for key in fields(Metadata) if key.name not in OTHERWISE_IN_JSON}
        scaling = [values["action_center"], values["action_half_range"]]
        if scaling != [None, None]:
            known["action_scaling"] = ActionScaling(*(np.array([*part], np.float32) for part in scaling))
        for what in ("observation_parts", "action_parts"):
            known[what] = tuple((str(name), tuple(map(int, shape))) for name, shape in known[what])
        if known["transform"] is not None:
            known["transform"] = ObservationTransform.from_json(known["transform"])
        if known["stride"] is not None:
            known["stride"] = max(1, int(known["stride"]))
        known |= {"notes": tuple(known["notes"]), "frames": max(1, int(known["frames"]))}
        known["choices"] = max(0, int(values.get("choices", 0)))
        return Metadata(**known, format="native", measured=dict(values.get("measured", {})))


#
# What networks see of films is a picture and those just before it, built when rows are read; and of vectors, where one
# does not tell the state, the same. Files and memory hold each frame once. At the start of an episode, its first frame
# stands in for those before it.


class Frames(MadeRows):
    """Rows of `count` frames each, oldest first, one behind the other along the channels; the arrays may be jax's.

    Of vectors the last one is the row as it is, and those before it are changes: from each row to the next. Neighbours
    are nearly equal, and networks would hardly tell from two of them how fast something moves.
    """

    block = 1 << 12

    def __init__(self, stored: Any, first: Any, count: int):
        self.stored = stored  # [rows, height, width, channels], or [rows, obs]: each frame once
        self.first = first  # int32 [rows]: the first row of each row's episode
        self.count = count

    @property
    def shape(self) -> tuple[int, ...]:
        *sizes, channels = self.stored.shape
        return *sizes, self.count * channels

    @property
    def ndim(self) -> int:
        return len(self.stored.shape)

    @property
    def dtype(self) -> Any:
        return self.stored.dtype

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        elif isinstance(rows, int | np.integer):
            return self[np.array([rows])][0]
        elif isinstance(rows, list | np.ndarray):  # masks, and rows counted from the end
            rows = np.arange(len(self))[np.asarray(rows)]
        # Methods of the arrays, not functions of numpy: the same lines are traced by jax.
        before = rows[..., None] - np.arange(self.count - 1, -1, -1, dtype=np.int32)
        found = self.stored[before.clip(self.first[rows][..., None])]  # ... x count x height x width x channels
        axes, own = range(found.ndim), self.ndim
        if own == 2:  # of vectors the earlier rows as the change that each was to the next: see `Frames`
            later = self.stored[(before + 1).clip(self.first[rows][..., None], rows[..., None])]
            newest = (np.arange(self.count) == self.count - 1).astype(self.dtype)[:, None]
            found = (later - found) * (1 - newest) + found * newest
        found = found.transpose(*axes[:-own], *axes[1 - own : -1], axes[-own], axes[-1])
        return found.reshape(*found.shape[:-2], -1)

    def select(self, slices: Sequence[slice]) -> "Frames":
        """The rows of some episodes."""
        stored = np.concatenate([self.stored[:0], *(self.stored[s] for s in slices)])
        return Frames(stored, firsts([s.stop - s.start for s in slices]), self.count)


def firsts(lengths: Any) -> np.ndarray:
    """The first row of each row's episode."""
    lengths = np.asarray(lengths, np.int64)
    return np.repeat(np.cumsum(lengths) - lengths, lengths).astype(np.int32)


def stacked(observations: Tree, lengths: Any, count: int) -> Tree:
    """Observations whose pictures are stacks of frames, or whose one vector is one of rows."""
    if not 1 <= count <= 64:
        raise HilpError(f"frames is how many frames networks see at once, from 1 to 64, not {count}")
    if count == 1:
        return observations
    first = firsts(lengths)
    if not isinstance(observations, Mapping):
        return Frames(observations, first, count)
    films = [name for name, part in observations.items() if part.dtype == np.uint8 and part.ndim == 4]
    if not films:
        raise HilpError(
            f"frames={count} stacks pictures, or one vector, and these observations are vectors by name: put them into "
            "one array, or leave it out"
        )
    return {name: Frames(part, first, count) if name in films else part for name, part in observations.items()}


def stored(observations: Tree) -> Tree:
    """Observations as they lie in files and memory, each frame once."""
    return trees.over(lambda part: part.stored if isinstance(part, Frames) else part, observations)


class Recent:
    """The last frames of episodes that run side by side: the input of a policy that was trained on stacks."""

    def __init__(self, count: int):
        self._frames: deque[np.ndarray] = deque(maxlen=count)

    def add(self, frames: np.ndarray) -> np.ndarray:
        """The stacks [n, height, width, count x channels] after the next frame [n, height, width, channels] of each."""
        frames = np.asarray(frames)
        if not self._frames:
            self._frames.extend([frames] * int(self._frames.maxlen or 1))
        self._frames.append(frames)
        return np.concatenate(list(self._frames), axis=-1)
