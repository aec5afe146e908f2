"""Readers: one function a format. `load` picks one and never guesses about the content of someone's data."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hilp.data import checks, dataset
from hilp.data.dataset import Dataset
from hilp.errors import HilpError, nearest

BUILT_IN_STEPS = 300_000  # transitions of a built-in data set
BUILT_IN_KIND = "navigate"  # what "maze-large" stands for
STRUCTURE = ("episode_lengths", "episode_ends", "terminals")


def built_in_names() -> dict[str, tuple[str, str]]:
    """Built-in data sets: name -> (task, kind of collector)."""
    from hilp.collect import maze as collect_maze
    from hilp.tasks import maze

    names = {task: (task, BUILT_IN_KIND) for task in maze.MAZES}
    return names | {f"{task}-{kind}": (task, kind) for task in maze.MAZES for kind in sorted(collect_maze.KINDS)}


def load(source: Any, *, rescale_actions: bool = False, steps: int | None = None, seed: int = 0) -> Dataset:
    """A data set from a built-in name, a native folder, an .npz file or a dict of arrays.

    `steps` and `seed` apply to built-in names, which are collected on the spot. The result is checked: what cannot be
    trained on is an error that says which rows and what to do.
    """
    data = _read(source, steps, seed)
    if rescale_actions:
        data = rescaled(data)
    checks.require_trainable(data)
    return data


def _read(source: Any, steps: int | None, seed: int) -> Dataset:
    if isinstance(source, Dataset):
        return source
    if isinstance(source, Mapping):
        return from_arrays(source)
    if not isinstance(source, str | os.PathLike):
        raise HilpError(f"cannot load data from a {type(source).__name__}: give a name, a path or a dict of arrays")
    path = Path(source)
    if str(source) in built_in_names():
        from hilp import collect

        task, kind = built_in_names()[str(source)]
        return collect.collect(task, kind, steps or BUILT_IN_STEPS, seed)
    if dataset.is_native(path):
        return Dataset.open(path)
    if path.suffix == ".npz" and path.is_file():
        return from_npz(path)
    if path.exists():
        raise HilpError(f"{path} is not a data set hilp can read: it reads native folders and .npz files")
    raise HilpError(f"there is no file and no built-in data set '{source}': {nearest(str(source), built_in_names())}")


def from_npz(path: Path) -> Dataset:
    """An .npz file with the keys of `from_arrays`."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, KeyError) as error:
        raise HilpError(f"{path} cannot be read as .npz: {error}") from error
    return from_arrays(arrays, name=str(path))


def from_arrays(arrays: Mapping[str, Any], name: str = "arrays") -> Dataset:
    """A data set from arrays in memory.

    `observations` [rows, d] and `actions`, with one of: `episode_lengths` (rows of each episode), `episode_ends` (the row
    number after each episode's last), `terminals` (true on each episode's last row). Actions have a row per observation
    (the last of each episode is ignored) or one fewer per episode. With `next_observations` every row is a whole
    transition instead, and the final state of each episode is added. Any other array with a row per observation becomes
    a named extra column.
    """
    columns = {key: np.asarray(value) for key, value in arrays.items()}
    for key in ("observations", "actions"):
        if key not in columns:
            raise HilpError(f"{name}: there is no '{key}' array among: {', '.join(sorted(columns)) or 'nothing'}")
        if columns[key].dtype == object or columns[key].dtype.kind not in "fiub":
            raise HilpError(f"{name}: {key} are ragged or not numbers (dtype {columns[key].dtype}): give one 2-D array")
    observations, actions = columns.pop("observations"), columns.pop("actions")
    if observations.ndim != 2 or actions.ndim != 2:
        raise HilpError(
            f"{name}: observations {observations.shape} and actions {actions.shape} must be 2-D, [rows, columns]: "
            "flatten or concatenate what each row holds"
        )
    following = columns.pop("next_observations", None)
    lengths = _episode_lengths(columns, len(observations), name)
    observations = observations.astype(np.float32, copy=False)
    actions = actions.astype(np.float32, copy=False)
    if following is not None:
        return _from_whole_transitions(observations, actions, following, lengths, columns, name)
    if len(actions) == len(observations) - len(lengths):
        actions = _insert_after_each(actions, lengths - 1, np.zeros((len(lengths), actions.shape[1]), np.float32))
    if len(actions) != len(observations):
        raise HilpError(
            f"{name}: {len(observations)} observations but {len(actions)} actions in {len(lengths)} episodes: give an action "
            "a row, or one fewer per episode"
        )
    return Dataset(observations, actions, lengths, _extras(columns, len(observations), name), name=name)


def rescaled(data: Dataset) -> Dataset:
    """Map each action column's range to [-1, 1]; the policy maps its actions back."""
    low, high = checks.action_range(data)
    center = ((high + low) / 2).astype(np.float32)
    half_range = np.where(high > low, (high - low) / 2, 1.0).astype(np.float32)
    actions = np.clip((data.actions - center) / half_range, -1.0, 1.0).astype(np.float32)
    return replace(data, actions=actions, action_center=center, action_half_range=half_range)


def _episode_lengths(columns: dict[str, np.ndarray], rows: int, name: str) -> np.ndarray:
    given = [key for key in STRUCTURE if key in columns]
    if len(given) != 1:
        problem = "nothing says where episodes end" if not given else f"both {' and '.join(given)} are given"
        raise HilpError(f"{name}: {problem}: give exactly one of {', '.join(STRUCTURE)}")
    values = columns.pop(given[0])
    if values.ndim != 1 or values.dtype.kind not in "iubf":
        raise HilpError(f"{name}: {given[0]} must be a flat array of numbers, not {values.shape} of {values.dtype}")
    if given[0] == "terminals":
        if len(values) != rows:
            raise HilpError(f"{name}: {rows} observations but {len(values)} terminals: give one a row")
        if not rows or not values[-1]:
            raise HilpError(f"{name}: the last row is not terminal, so the last episode has no end: mark it or cut it")
        ends = np.flatnonzero(values) + 1
    else:
        values = values.astype(np.int64)
        ends = np.cumsum(values) if given[0] == "episode_lengths" else values
    lengths = np.diff(np.concatenate([[0], ends])).astype(np.int64)
    if len(lengths) == 0 or lengths.min() < 1 or ends[-1] != rows:
        last = int(ends[-1]) if len(ends) else 0
        raise HilpError(
            f"{name}: {given[0]} end at row {last} but there are {rows} observations"
            if len(lengths) and lengths.min() >= 1
            else f"{name}: {given[0]} hold an empty episode: lengths must be positive, ends must increase"
        )
    return lengths


def _from_whole_transitions(
    observations: np.ndarray,
    actions: np.ndarray,
    following: np.ndarray,
    lengths: np.ndarray,
    columns: dict[str, np.ndarray],
    name: str,
) -> Dataset:
    if following.shape != observations.shape or len(actions) != len(observations):
        raise HilpError(
            f"{name}: with next_observations every row is a transition, but observations are {observations.shape}, "
            f"next_observations {following.shape}, actions {actions.shape}"
        )
    ends = np.cumsum(lengths) - 1
    inner = np.setdiff1d(np.arange(len(observations)), ends)
    broken = inner[np.any(np.abs(following[inner] - observations[inner + 1]) > 1e-4, axis=1)]
    if len(broken):
        raise HilpError(
            f"{name}: next_observations of rows {checks.some(broken)} are not the observations of the row after, inside "
            "an episode: check where episodes end"
        )
    last = following[ends].astype(np.float32)
    extras = {
        key: _insert_after_each(column, lengths, column[ends])
        for key, column in _extras(columns, len(observations), name).items()
    }
    return Dataset(
        _insert_after_each(observations, lengths, last),
        _insert_after_each(actions, lengths, np.zeros((len(lengths), actions.shape[1]), np.float32)),
        lengths + 1,
        extras,
        name=name,
    )


def _insert_after_each(array: np.ndarray, lengths: np.ndarray, added: np.ndarray) -> np.ndarray:
    """One more row after each run of `lengths` rows."""
    return np.insert(array, np.cumsum(lengths), added, axis=0)


def _extras(columns: dict[str, np.ndarray], rows: int, name: str) -> dict[str, np.ndarray]:
    for key, column in columns.items():
        if column.ndim == 0 or len(column) != rows or column.dtype == object:
            shape = column.shape if column.dtype != object else "ragged"
            raise HilpError(
                f"{name}: extra column '{key}' is {shape}, but there are {rows} observations: drop or fix it"
            )
    return columns
