"""Dataset: flat arrays and episode lengths, in memory or memory-mapped from a native folder.

Layout: an episode of T steps is T + 1 consecutive rows; transition i is rows i and i + 1; the action of an episode's
last row is never used. There is no copy of next observations.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hilp import trees
from hilp.data import native, transforms
from hilp.data.columns import fingerprint_of
from hilp.data.transforms import ActionScaling, Metadata, TransformedRows
from hilp.errors import HilpError, nearest


@dataclass(frozen=True)
class Dataset(Metadata):
    """Unlabeled trajectories. Build one with `hilp.load`; `checks.require_trainable` says what is wrong with it.

    Observations are one array, or named arrays that share their rows: {"state": [rows, d], "camera": [rows, h, w, 3]}.
    """

    observations: Any  # [rows, obs_dim] float32 (uint8 where images were flattened), or a dict of float32 and uint8
    actions: np.ndarray  # [rows, act_dim], inside [-1, 1]
    lengths: np.ndarray  # int64 [episodes]: rows of each episode
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)  # named columns of `rows` rows
    checked: tuple[Any, ...] = field(default=(), kw_only=True, repr=False, compare=False)  # arrays found trainable

    @property
    def rows(self) -> int:
        return trees.rows(self.observations)

    @property
    def episodes(self) -> int:
        return len(self.lengths)

    @property
    def transitions(self) -> int:
        return self.rows - self.episodes

    @property
    def observation_dim(self) -> int:
        """All numbers of an observation."""
        columns = trees.named(self.observations, "observations").values()
        return sum(int(np.prod(column.shape[1:])) for column in columns)

    @property
    def action_dim(self) -> int:
        return int(self.actions.shape[1])

    @property
    def network_inputs(self) -> Any:
        """Observations as networks see them before they are normalised: through the transform, where there is one."""
        return self.observations if self.transform is None else TransformedRows(self.observations, self.transform)

    @property
    def is_checked(self) -> bool:
        """Whether the very arrays that it holds now were found trainable: one that was replaced was not."""
        now = (self.observations, self.actions, self.lengths)
        return len(self.checked) == len(now) and all(a is b for a, b in zip(self.checked, now, strict=True))

    def as_checked(self) -> Dataset:
        """The same data, marked as trainable, so that its rows are not checked again."""
        return replace(self, checked=(self.observations, self.actions, self.lengths))

    def rescaled(self, low: np.ndarray, high: np.ndarray) -> Dataset:
        """The same data with the range of each action column mapped to [-1, 1]; the policy maps its own back."""
        scaling = ActionScaling.of_range(low, high)
        actions = scaling.scaled(self.actions)
        return replace(self, actions=actions, action_scaling=scaling.after(self.action_scaling))

    def acted(self, rows: np.ndarray) -> np.ndarray:
        """The actions of these rows (numbers of any shape) in the user's units, a row's worth each."""
        actions = np.asarray(self.actions[rows], np.float32)
        if self.action_scaling is not None:
            actions = self.action_scaling.raw(actions)
        # Of a stride that adds them up: the user acts row by row.
        return actions / np.float32(self.stride or 1) if self.stride_actions == "sum" else actions

    @cached_property
    def starts(self) -> np.ndarray:
        """First row of each episode."""
        return np.concatenate([[0], np.cumsum(self.lengths)[:-1]]).astype(np.int64)

    @cached_property
    def transition_rows(self) -> np.ndarray:
        """Rows that have a next row in their episode."""
        keep = np.ones(self.rows, bool)
        keep[self.starts + self.lengths - 1] = False
        return np.flatnonzero(keep)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that training sees; equal data has an equal fingerprint wherever it lies."""
        observations = transforms.stored(self.observations)
        return fingerprint_of(observations, self.actions, self.lengths, self.transform, self.frames)

    def extra(self, name: str) -> np.ndarray:
        """An extra column by name, a value per row: `data.extra("physics")[data.transition_rows + 1]` is at each s'.

        Values stand in the row they were recorded with. A reward that came with its action (D4RL, Minari) stands in the
        row of s; one that came with the state it led to (ExORL) stands in the row of s'.
        """
        if name not in self.extras:
            raise HilpError(f"{self.name} has no extra column '{name}': {nearest(name, self.extras)}")
        return self.extras[name]

    def iter_episodes(self) -> Iterator[slice]:
        """The rows of each episode, in order."""
        for start, length in zip(self.starts, self.lengths, strict=True):
            yield slice(int(start), int(start + length))

    def select(self, episodes: np.ndarray) -> Dataset:
        """A data set of these episodes only."""
        slices = [slice(int(self.starts[e]), int(self.starts[e] + self.lengths[e])) for e in episodes]

        def take(array: Any) -> Any:
            if isinstance(array, transforms.Frames):
                return array.select(slices)
            return np.concatenate([array[:0], *(array[s] for s in slices)])

        return replace(
            self,
            observations=trees.over(take, self.observations),
            actions=take(self.actions),
            lengths=np.asarray(self.lengths)[episodes],
            extras={name: take(column) for name, column in self.extras.items()},
            endings={},
            measured={},
        )

    def in_frames(self, count: int) -> Dataset:
        """The same data, of whose pictures networks see `count` at once, that of a row and those before it."""
        plain = transforms.stored(self.observations)
        return replace(self, observations=transforms.stacked(plain, self.lengths, count), frames=count, checked=())

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the native folder. It appears whole or not at all."""
        columns = native.columns_of(transforms.stored(self.observations), self.actions, self.extras)
        return native.write(Path(path), columns, self.lengths, self, overwrite)

    @staticmethod
    def open(path: str | os.PathLike[str], in_memory: bool = False, verify: bool = False) -> Dataset:
        """Open a native folder, memory-mapped unless `in_memory`. `verify` compares every file with its hash."""
        columns, about = native.read(Path(path), in_memory, verify)
        observations = trees.unnamed(columns, native.OBSERVATIONS)
        if about.frames > 1:
            observations = transforms.stacked(observations, columns["lengths"], about.frames)
        return Dataset(
            observations, columns["actions"], columns["lengths"], native.extras_of(columns), **about.metadata()
        )
