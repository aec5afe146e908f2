"""Subsampling: every n-th row of each episode, with the commands in between made into one.

A policy trained on subsampled data still acts at the robot's own rate: it is a function of the observation, and its
command is one for a single row of the log. Averaged commands (speeds, forces, targets) are just that; summed ones
(displacements, ticks) are divided by n on their way out (`policy.preparation`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from hilp import trees
from hilp.data.dataset import Dataset
from hilp.data.transforms import ActionScaling
from hilp.errors import HilpError, require_count

Commands = Literal["mean", "sum"]
AUTO = "auto"


def require_stride(stride: Any) -> int | Literal["auto"] | None:
    """A stride of the user: a whole number, "auto", or None where there is none."""
    if stride is None or stride == AUTO:
        return stride
    try:
        return require_count("stride", int(stride) if isinstance(stride, str) else stride)
    except ValueError:
        raise HilpError(f"stride is a whole number of rows or 'auto', not '{stride}'") from None


def subsample(data: Dataset, stride: int, commands: Commands = "mean") -> Dataset:
    """The data with every `stride`-th row; a stride of 1 fixes that it stays as it is.

    Rows after an episode's last whole stride are left out, and so are episodes shorter than one stride. Extra columns
    keep the values of the rows that stay.
    """
    if commands not in get_args(Commands):
        raise HilpError(f"stride_actions is 'mean' (speeds, forces) or 'sum' (displacements), not '{commands}'")
    if data.stride is not None and data.stride > 1:
        raise HilpError(f"{data.name} is subsampled already, by {data.stride}: load it again with another stride")
    if stride == 1:
        return replace(data, stride=1)
    if data.frames > 1:
        raise HilpError(f"{data.name}: frames are those of neighbouring rows, which a stride leaves out: choose one")
    strides = (np.asarray(data.lengths) - 1) // stride  # of each episode
    kept = np.flatnonzero(strides >= 1)
    if not len(kept):
        longest = int(np.max(data.lengths)) - 1
        raise HilpError(f"{data.name}: no episode is {stride} steps long (the longest has {longest}): lower the stride")
    firsts = [data.starts[e] + stride * np.arange(strides[e] + 1) for e in kept]
    rows = np.concatenate(firsts)
    take = lambda column: np.asarray(column[rows])  # noqa: E731
    actions = np.zeros((len(rows), data.action_dim), np.float32)
    at = 0
    for episode, first in zip(kept, firsts, strict=True):
        whole = np.asarray(data.actions[first[0] : first[-1]], np.float64).reshape(strides[episode], stride, -1)
        actions[at : at + strides[episode]] = whole.mean(axis=1) if commands == "mean" else whole.sum(axis=1)
        at += len(first)
    lost = data.episodes - len(kept)
    return replace(
        data,
        observations=trees.over(take, data.observations),
        actions=actions,
        lengths=strides[kept] + 1,
        extras={name: take(column) for name, column in data.extras.items()},
        endings=data.endings if not lost else {},
        notes=(*data.notes, _note(stride, commands, lost)),
        stride=stride,
        stride_actions=commands,
        checked=(),
    )


def _note(stride: int, commands: Commands, lost: int) -> str:
    note = f"every {stride}th row, commands {'averaged' if commands == 'mean' else 'added up'} in between"
    return note + (f"; {lost} episodes are shorter than that and left out" if lost else "")


def refit_action_range(data: Dataset) -> Dataset:
    """Data whose actions had been mapped to [-1, 1] before it was subsampled, mapped to what is left of their range."""
    used = data.actions[data.transition_rows]
    scaling = ActionScaling.of_range(used.min(axis=0), used.max(axis=0))
    return replace(data, actions=scaling.scaled(data.actions), action_scaling=scaling.after(data.action_scaling))
