"""Stacks of frames: what networks see of films is a picture and those just before it, built when rows are read.

Files and memory hold each frame once. At the start of an episode, its first frame stands in for those before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError
from hilp.trees import Tree

BLOCK = 4096  # rows that are stacked at a time


class Frames:
    """Rows of `count` frames each, oldest first, one behind the other along the channels.

    What `trees`, samplers and numpy ask of an array of rows; numpy's arrays and jax's lie in it alike.
    """

    ndim = 4

    def __init__(self, stored: Any, first: Any, count: int):
        self.stored = stored  # [rows, height, width, channels]: each frame once
        self.first = first  # int32 [rows]: the first row of each row's episode
        self.count = count

    @property
    def shape(self) -> tuple[int, ...]:
        rows, height, width, channels = self.stored.shape
        return rows, height, width, self.count * channels

    @property
    def dtype(self) -> Any:
        return self.stored.dtype

    def __len__(self) -> int:
        return int(self.stored.shape[0])

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
        axes = range(found.ndim)
        found = found.transpose(*axes[:-4], *axes[-3:-1], axes[-4], axes[-1])
        return found.reshape(*found.shape[:-2], -1)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = np.empty(self.shape, self.dtype)
        for start in range(0, len(self), BLOCK):
            found[start : start + BLOCK] = self[start : start + BLOCK]
        return found if dtype is None else found.astype(dtype, copy=False)

    def select(self, slices: Sequence[slice]) -> Frames:
        """The rows of some episodes."""
        stored = np.concatenate([self.stored[:0], *(self.stored[s] for s in slices)])
        return Frames(stored, firsts([s.stop - s.start for s in slices]), self.count)


def firsts(lengths: Any) -> np.ndarray:
    """The first row of each row's episode."""
    lengths = np.asarray(lengths, np.int64)
    return np.repeat(np.cumsum(lengths) - lengths, lengths).astype(np.int32)


def stacked(observations: Tree, lengths: Any, count: int) -> Tree:
    """Observations whose pictures are stacks of frames."""
    if not 1 <= count <= 64:
        raise HilpError(f"frames is how many frames networks see at once, from 1 to 64, not {count}")
    if count == 1:
        return observations
    films = [name for name, part in _parts(observations).items() if part.dtype == np.uint8 and part.ndim == 4]
    if not films:
        raise HilpError(f"frames={count} stacks pictures, and these observations have none: leave it out")
    first = firsts(lengths)
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


def _parts(observations: Tree) -> dict[str, Any]:
    return dict(observations) if isinstance(observations, Mapping) else {}
