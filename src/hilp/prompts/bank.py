"""The bank: the sample of data that a policy keeps, so that plans and reward prompts need no data set."""

from collections import UserDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hilp import trees
from hilp.spec import Spec
from hilp.trees import Tree

MOST_PICTURES = 16 << 20  # bytes of pictures that a bank keeps; a latent bank has the others
EXTRAS = ("physics", "own_reward")  # kept for rewards: the simulator's state, what the environment itself paid
BLOCK = 1024  # transitions encoded at a time
SIDE = 32  # pixels of a thumbnail, at most
MOST_THUMBNAILS = 16 << 20  # bytes
ENCODED = ("latents", "next_latents", "features")


@dataclass(frozen=True)
class Bank:
    """The artifact's sample of the data: midpoints for plans, transitions for reward prompts. In the user's units."""

    observations: Tree  # [n, obs], or named parts [n, ...]; bytes stay bytes
    actions: np.ndarray  # [n, act]
    next_observations: Tree  # as observations
    next_extras: Mapping[str, np.ndarray] = field(default_factory=dict)  # of EXTRAS what the data has, at s'
    skills: np.ndarray | None = None  # [n, dim]: of the segments that begin in s, where skills are those of segments

    @staticmethod
    def draw(data: Any, count: int, seed: int) -> "Bank":
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
    def at(data: Any, rows: np.ndarray, without: Collection[str] = ()) -> "Bank":
        """The transitions that start in these rows, without some parts of observations."""
        extras = {name: np.asarray(data.extras[name][rows + 1], np.float32) for name in EXTRAS if name in data.extras}
        observations, following = (_at(data.observations, at, without) for at in (rows, rows + 1))
        return Bank(observations, data.acted(rows), following, extras)

    def subsample(self, count: int, seed: int) -> "Bank":
        """At most `count` of them, drawn without replacement."""
        rows = self.sample_rows(count, seed)
        return self if len(self) <= count else self.over(lambda column: column[rows])

    def sample_rows(self, count: int, seed: int) -> np.ndarray:
        """The rows of that: all, where there are no more."""
        if len(self) <= count:
            return np.arange(len(self))
        return np.sort(np.random.default_rng(seed).choice(len(self), count, replace=False))

    def columns(self) -> dict[str, np.ndarray]:
        """Its arrays by name, parts of observations as `observations/camera`."""
        return {
            **trees.named(self.observations, "observations"),
            "actions": self.actions,
            **trees.named(self.next_observations, "next_observations"),
            **{f"next_{name}": column for name, column in self.next_extras.items()},
            **({} if self.skills is None else {"skills": self.skills}),
        }

    @staticmethod
    def from_columns(columns: Mapping[str, np.ndarray], spec: Spec, without: Collection[str] = ()) -> "Bank":
        """The bank of a policy for such data (without some parts); a ValueError where the columns do not fit it."""
        count = len(columns.get("actions", ()))
        wanted: dict[str, tuple[tuple[int, ...], str]] = {"actions": ((count, spec.action_dim), "float32")}
        parts = [(f"/{name}", shape, kind) for name, shape, kind in spec.parts if name not in without]
        for suffix, shape, kind in parts if spec.parts else [("", (spec.observation_dim,), "float32")]:
            wanted |= {f"{name}{suffix}": ((count, *shape), kind) for name in ("observations", "next_observations")}
        extras = {name: columns[f"next_{name}"] for name in EXTRAS if f"next_{name}" in columns}
        wanted |= {f"next_{name}": ((count, *column.shape[1:]), "float32") for name, column in extras.items()}
        skills = columns.get("skills")
        wanted |= {} if skills is None else {"skills": ((count, *skills.shape[-1:]), "float32")}
        if {name: (column.shape, column.dtype.name) for name, column in columns.items()} != wanted:
            raise ValueError("its columns do not fit the policy")
        observations, following = (trees.unnamed(columns, name) for name in ("observations", "next_observations"))
        return Bank(observations, columns["actions"], following, extras, skills)

    def over(self, function: Callable[[np.ndarray], np.ndarray]) -> "Bank":
        """The function of every array of it."""
        kept = (self.observations, self.actions, self.next_observations, self.next_extras)
        found = Bank(*(trees.over(function, tree) for tree in kept))
        return found if self.skills is None else replace(found, skills=function(self.skills))

    def __len__(self) -> int:
        return len(self.actions)


def _at(observations: Tree, rows: np.ndarray, without: Collection[str]) -> Tree:
    if isinstance(observations, Mapping):
        kept = {name: part for name, part in observations.items() if name not in without}
        return trees.over(lambda part: part[rows] if part.dtype == np.uint8 else np.float32(part[rows]), kept)
    return np.asarray(observations[rows], np.float32)


class PictureNotKept(LookupError):
    """A reward looked at a picture of a transition that was kept without it."""


class WithoutPictures(UserDict[str, Any]):
    """An observation that was kept without its pictures: it names them, and looking at one raises PictureNotKept."""

    def __init__(self, columns: Mapping[str, np.ndarray], pictures: Collection[str]) -> None:
        super().__init__(sorted({**columns, **dict.fromkeys(pictures)}.items()))

    def __getitem__(self, name: str) -> np.ndarray:
        if self.data[name] is None:
            raise PictureNotKept(name)
        return self.data[name]


@dataclass(frozen=True)
class LatentBank:
    """What plans and rewards need of many more transitions than a policy can keep pictures of.

    A stack of pictures takes tens of thousands of bytes, its latent a hundred. So a policy that sees pictures keeps a
    few whole transitions (the bank), and of the others latents, what rewards are expressed in, all columns but the
    pictures, and thumbnails, so that a plan can still be shown.
    """

    rest: Bank  # all else that a bank has of them
    encoded: Mapping[str, np.ndarray]  # of ENCODED what the method has rules for, [n, ...] each
    thumbnails: np.ndarray  # uint8 [m, height, width, channels]
    shown: np.ndarray  # int32 [m]: the transitions whose s they show

    @staticmethod
    def draw(policy: Any, data: Any, count: int, seed: int) -> "LatentBank | None":
        """Of at most `count` transitions; None where the policy's bank holds as many, or has no use for them."""
        rows = Bank.rows(data, count, seed)
        if len(rows) <= len(policy.bank):
            return None
        blocks = [rows[first : first + BLOCK] for first in range(0, len(rows), BLOCK)]
        parts = [_encoded(policy, Bank.at(data, block)) for block in blocks]
        if not parts[0]:
            return None
        encoded = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        seen = policy.spec.pictures
        thumbnails, shown = _thumbnails(data.observations[next(iter(seen))], rows)
        return LatentBank(Bank.at(data, rows, without=seen), encoded, thumbnails, shown)

    def __len__(self) -> int:
        return len(self.rest)

    def columns(self) -> dict[str, np.ndarray]:
        """Its arrays by name, as they are saved."""
        return {**self.rest.columns(), **self.encoded, "thumbnails": self.thumbnails, "shown": self.shown}

    @staticmethod
    def from_columns(columns: Mapping[str, np.ndarray], spec: Spec) -> "LatentBank":
        """The latent bank of a policy for such data; a ValueError where the columns do not fit it."""
        encoded = {name: columns[name] for name in ENCODED if name in columns}
        thumbnails, shown = columns["thumbnails"], columns["shown"]
        own = {*encoded, "thumbnails", "shown"}
        others = {name: column for name, column in columns.items() if name not in own}
        rest = Bank.from_columns(others, spec, without=spec.pictures)
        if {(rows.ndim, rows.dtype.name, len(rows)) for rows in encoded.values()} != {(2, "float32", len(rest))}:
            raise ValueError("its latents do not fit its transitions")
        if (thumbnails.ndim, thumbnails.dtype, shown.dtype) != (4, np.uint8, np.int32):
            raise ValueError("its thumbnails are no pictures")
        if shown.shape != thumbnails.shape[:1] or ((shown < 0) | (shown >= len(rest))).any():
            raise ValueError("its thumbnails show no transitions of it")
        return LatentBank(rest, encoded, thumbnails, shown)


def _encoded(policy: Any, sample: Bank) -> dict[str, np.ndarray]:
    before, after = sample.observations, sample.next_observations
    found: dict[str, np.ndarray] = {}
    if policy.has_rule("encode"):
        found |= {"latents": policy.encode(before), "next_latents": policy.encode(after)}
    if policy.has_rule("cumulant") or policy.has_rule("backward"):
        found["features"] = policy.reward_features(before, after)
    return {name: np.asarray(rows, np.float32) for name, rows in found.items()}


def _thumbnails(pictures: Any, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Small pictures of as many rows as there is room for, evenly chosen; none where pictures are small already."""
    _, height, width, channels = pictures.shape
    step = -(-max(height, width) // SIDE)
    newest = slice(-3, None) if channels % 3 == 0 else slice(-1, None)  # of a stack of frames
    if step == 1 and channels <= 3:
        return np.zeros((0, height, width, channels), np.uint8), np.zeros(0, np.int32)
    size = (height // step, width // step, 3 if channels % 3 == 0 else 1)
    count = min(len(rows), MOST_THUMBNAILS // int(np.prod(size)))
    shown = np.linspace(0, len(rows) - 1, count).astype(np.int32)
    thumbnails = np.empty((count, *size), np.uint8)
    for first in range(0, count, BLOCK):
        block = np.asarray(pictures[rows[shown[first : first + BLOCK]]])[..., newest]
        block = block[:, : size[0] * step, : size[1] * step].reshape(len(block), size[0], step, size[1], step, size[2])
        thumbnails[first : first + BLOCK] = block.mean(axis=(2, 4), dtype=np.float32).round()
    return thumbnails, shown
