"""The bank: the sample of data that a policy keeps, so that plans and reward prompts need no data set."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hilp import trees
from hilp.spec import Spec
from hilp.trees import Tree

MOST_PICTURES = 16 << 20  # bytes of pictures that a bank keeps; `latent_bank` has the others
EXTRAS = ("physics", "own_reward")  # columns of the data that are kept for rewards


@dataclass(frozen=True)
class Bank:
    """The artifact's sample of the data: midpoints for plans, transitions for reward prompts. In the user's units."""

    observations: Tree  # [n, obs], or named parts [n, ...]; bytes stay bytes
    actions: np.ndarray  # [n, act]
    next_observations: Tree  # as observations
    next_physics: np.ndarray | None = None  # [n, p]: the simulator's state at s', where the data has it, for rewards
    next_own_reward: np.ndarray | None = None  # [n]: what the environment itself paid for reaching s', likewise

    @staticmethod
    def draw(data: Any, count: int, seed: int) -> Bank:
        """At most `count` transitions, drawn without replacement; fewer where they are pictures, which are large."""
        parts = trees.named(data.observations, "observations").values()
        picture = sum(int(np.prod(part.shape[1:])) for part in parts if part.dtype == np.uint8 and len(part.shape) == 4)
        most = count if not picture else min(count, max(1, MOST_PICTURES // (2 * picture)))
        return Bank.at(data, Bank.rows(data, most, seed))

    @staticmethod
    def rows(data: Any, count: int, seed: int) -> np.ndarray:
        """The rows of s of at most `count` transitions, drawn without replacement."""
        chosen = np.random.default_rng(seed).choice(data.transitions, min(count, data.transitions), replace=False)
        return data.transition_rows[np.sort(chosen)]

    @staticmethod
    def at(data: Any, rows: np.ndarray, without: Collection[str] = ()) -> Bank:
        """The transitions that start in these rows, without some parts of observations."""
        actions = data.acted(rows)
        observations, following = (_at(data.observations, at, without) for at in (rows, rows + 1))
        columns = (data.extras.get(name) for name in EXTRAS)
        extras = (None if column is None else np.asarray(column[rows + 1], np.float32) for column in columns)
        return Bank(observations, actions, following, *extras)

    @property
    def next_extras(self) -> dict[str, np.ndarray]:
        """The extra columns at s', by the names that the data has for them."""
        columns = ((name, getattr(self, f"next_{name}")) for name in EXTRAS)
        return {name: column for name, column in columns if column is not None}

    @property
    def bytes(self) -> int:
        """What it takes in memory and on disk."""
        return sum(column.nbytes for column in self.columns().values())

    def subsample(self, count: int, seed: int) -> Bank:
        """At most `count` of them, drawn without replacement."""
        if len(self) <= count:
            return self
        return self.take(np.sort(np.random.default_rng(seed).choice(len(self), count, replace=False)))

    def take(self, rows: np.ndarray) -> Bank:
        """The transitions of these numbers, in arrays of their own."""
        return self._over(lambda column: column[rows])

    def copy(self) -> Bank:
        """One whose arrays may be written to."""
        return self._over(np.array)

    def columns(self) -> dict[str, np.ndarray]:
        """Its arrays by name, parts of observations as `observations/camera`."""
        columns = {
            **trees.named(self.observations, "observations"),
            "actions": self.actions,
            **trees.named(self.next_observations, "next_observations"),
        }
        return columns | {f"next_{name}": column for name, column in self.next_extras.items()}

    @staticmethod
    def from_columns(columns: Mapping[str, np.ndarray], spec: Spec, without: Collection[str] = ()) -> Bank:
        """The bank of a policy for such data (without some parts); a ValueError where the columns do not fit it."""
        count = len(columns["actions"]) if "actions" in columns else 0
        numbers = {"actions": spec.action_dim}
        if not spec.parts:
            numbers |= dict.fromkeys(("observations", "next_observations"), spec.observation_dim)
        if "next_physics" in columns:
            numbers["next_physics"] = columns["next_physics"].shape[-1]
        wanted: dict[str, tuple[tuple[int, ...], str]]
        wanted = {name: ((count, size), "float32") for name, size in numbers.items()}
        if "next_own_reward" in columns:
            wanted["next_own_reward"] = ((count,), "float32")
        for name, shape, kind in (part for part in spec.parts if part[0] not in without):
            wanted |= {f"{prefix}/{name}": ((count, *shape), kind) for prefix in ("observations", "next_observations")}
        if {name: (column.shape, column.dtype.name) for name, column in columns.items()} != wanted:
            raise ValueError("its columns do not fit the policy")
        observations, following = (trees.unnamed(columns, name) for name in ("observations", "next_observations"))
        extras = (columns.get(f"next_{name}") for name in EXTRAS)
        return Bank(observations, columns["actions"], following, *extras)

    def _over(self, function: Any) -> Bank:
        extras = (function(self.next_extras[name]) if name in self.next_extras else None for name in EXTRAS)
        observations, following = (trees.over(function, tree) for tree in (self.observations, self.next_observations))
        return Bank(observations, function(self.actions), following, *extras)

    def __len__(self) -> int:
        return len(self.actions)


def _at(observations: Tree, rows: np.ndarray, without: Collection[str]) -> Tree:
    if isinstance(observations, Mapping):
        kept = {name: part for name, part in observations.items() if name not in without}
        return trees.over(lambda part: part[rows] if part.dtype == np.uint8 else np.float32(part[rows]), kept)
    return np.asarray(observations[rows], np.float32)
