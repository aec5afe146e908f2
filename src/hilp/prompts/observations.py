"""Observations of a call: checked and brought to a batch once, and held against the range of the data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError, some
from hilp.spec import Spec
from hilp.trees import Tree

Parts = tuple[tuple[str, tuple[int, ...]], ...]  # named parts of one flat vector
FAR = 1.0  # ranges of a column beyond its smallest and largest value
STILL = 0.1  # the same for a column of one value, in units of that value, or of 1 where it is smaller


class Batch:
    """Checked observations [n, ...] of one call; what networks take of them is computed once."""

    __slots__ = ("_prepared", "single", "tree")

    def __init__(self, tree: Tree, single: bool) -> None:
        self.tree, self.single = tree, single
        self._prepared: Any = None

    def __len__(self) -> int:
        return trees.rows(self.tree)

    def prepared(self, prepare: Callable[[Tree], Any]) -> Any:
        """The observations as the networks take them."""
        if self._prepared is None:
            self._prepared = prepare(self.tree)
        return self._prepared

    def take(self, rows: np.ndarray | slice) -> Batch:
        """Some of the rows."""
        return Batch(trees.over(lambda part: part[rows], self.tree), False)


def numbers(values: Any, name: str, kind: Any = np.float64) -> np.ndarray:
    """An array of numbers; a HilpError where they are none."""
    try:
        return np.asarray(values, kind)
    except (TypeError, ValueError) as error:
        raise HilpError(f"{name} must be numbers: {error}") from error


def check(observation: Any, spec: Spec, observation_parts: Parts) -> Batch:
    """One observation or several, by whatever shape a user has them in."""
    if isinstance(observation, Batch):
        return observation
    if spec.parts:
        return _check_parts(observation, spec.parts)
    if isinstance(observation, Mapping):
        if not observation_parts:
            raise HilpError("the data of this policy had no named parts: give an observation as one array")
        named = _check_parts(observation, [(name, shape, "float32") for name, shape in observation_parts])
        flat = [part.reshape(len(named), -1) for part in named.tree.values()]
        return Batch(np.concatenate(flat, axis=1), named.single)
    array = numbers(observation, "an observation", np.float32)
    wanted = spec.observation_dim
    if array.ndim not in (1, 2) or array.shape[-1] != wanted:
        raise HilpError(
            f"this policy takes observations of {wanted} numbers (or batches [n, {wanted}]), not {array.shape}"
        )
    if not np.isfinite(array).all():
        raise HilpError("the observation holds a NaN or an infinity")
    return Batch(array[None], True) if array.ndim == 1 else Batch(array, False)


def _check_parts(observation: Any, parts: Sequence[tuple[str, tuple[int, ...], str]]) -> Batch:
    """The same for named arrays, in the order of the data; names that the policy does not know are left out."""
    about = some([f"{name} {kind} {shape}" for name, shape, kind in parts])
    if not isinstance(observation, Mapping):
        raise HilpError(f"this policy takes observations by name ({about}): give a dict of arrays")
    lacking = [name for name, _, _ in parts if name not in observation]
    if lacking:
        raise HilpError(f"this policy's observation is made of {about}, and '{lacking[0]}' is missing")
    arrays = {name: _check_part(name, observation[name], shape, kind) for name, shape, kind in parts}
    counts = {None if arrays[name].shape == shape else len(arrays[name]) for name, shape, _ in parts}
    if len(counts) > 1:
        raise HilpError(f"the parts of an observation ({about}) have different numbers of rows")
    single = counts == {None}
    return Batch({name: array[None] if single else array for name, array in arrays.items()}, single)


def _check_part(name: str, values: Any, shape: tuple[int, ...], kind: str) -> np.ndarray:
    try:
        exact = np.asarray(values).astype(kind, casting="safe" if kind == "uint8" else "unsafe")
    except (TypeError, ValueError) as error:
        raise HilpError(f"part '{name}' of an observation must be {kind}: {error}") from error
    if shape not in (exact.shape, exact.shape[1:]):
        turned = len(shape) == 3 and exact.shape[-3:] == (shape[2], shape[0], shape[1])
        hint = f"; channels come last: np.moveaxis({name}, -3, -1)" if turned else ""
        raise HilpError(f"part '{name}' of an observation is {shape}, or [n, ...] for a batch, not {exact.shape}{hint}")
    if kind != "uint8" and not np.isfinite(exact).all():
        raise HilpError(f"part '{name}' of the observation holds a NaN or an infinity")
    return exact


class DataRange:
    """The range of the states that a policy keeps; warns, once a kind, of what is far outside.

    A policy without a bank has no range. Columns that networks do not see, and angles, cannot be outside.
    """

    def __init__(self, bank: Any, parts: Parts, transform: Any | None) -> None:
        self._warned: set[str] = set()
        self._names = [(name, int(np.prod(shape))) for name, shape in parts]
        self._limits: dict[str, tuple[np.ndarray, ...]] = {}  # least and most of the data, and what is far outside
        after = _by_name(bank.next_observations)
        for name, before in _by_name(bank.observations).items():
            if not len(before) or before.dtype == np.uint8:
                continue
            low = np.minimum(before.min(axis=0), after[name].min(axis=0))
            high = np.maximum(before.max(axis=0), after[name].max(axis=0))
            still = STILL * np.maximum(1.0, np.abs(low))
            margin = np.where(high > low, FAR * (high - low), still).astype(np.float32)
            if transform is not None:
                angles = dict(transform.angles)
                margin[[c for c in range(transform.width) if c not in transform.columns or c in angles]] = np.inf
            self._limits[name] = (low, high, low - margin, high + margin)

    def warn(self, what: str, observations: Tree) -> None:
        """Warn of a batch that leaves the range, the first time that one of this kind does."""
        if what in self._warned or not self._limits:
            return
        columns = _by_name(observations)
        for name, (least, most, low, high) in self._limits.items():
            rows = columns[name]
            if not ((rows < low).any() or (rows > high).any()):
                continue
            self._warned.add(what)
            row, *column = np.argwhere((rows < low) | (rows > high))[0]
            at = tuple(column)
            warnings.warn(
                f"this {what} is far outside the data behind the policy ({self._name(name, column)} is "
                f"{float(rows[(row, *at)]):.4g}, the data has {float(least[at]):.4g} to {float(most[at]):.4g}): do not "
                "expect it to know what to do there",
                stacklevel=4,
            )
            return

    def _name(self, part: str, column: list[int]) -> str:
        """What to call a column: by its part, or by its number."""
        place = int(column[0]) if len(column) == 1 else -1
        if part:
            return f"'{part}'" + (f" column {place}" if place >= 0 else "")
        for name, size in self._names:
            if place < size:
                return name if size == 1 else f"{name}[{place}]"
            place -= size
        return f"column {int(column[0])}"


def _by_name(tree: Tree) -> dict[str, np.ndarray]:
    return tree if isinstance(tree, dict) else {"": tree}
