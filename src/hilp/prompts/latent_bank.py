"""The latent bank: what plans and rewards need of many more transitions than a policy can keep pictures of.

A stack of pictures takes tens of thousands of bytes, its latent a hundred. So a policy that sees pictures keeps a few
whole transitions (the bank), and of the others latents, what rewards are expressed in, all columns but the pictures,
and thumbnails, so that a plan can still be shown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hilp.prompts.bank import Bank
from hilp.spec import Spec

BLOCK = 1024  # transitions encoded at a time
SIDE = 32  # pixels of a thumbnail, at most
MOST_THUMBNAILS = 16 << 20  # bytes
ENCODED = ("latents", "next_latents", "features")


def pictures(spec: Spec) -> dict[str, tuple[int, ...]]:
    """The parts of an observation that are pictures, in their order in a row."""
    return {name: shape for name, shape, kind in spec.parts if kind == "uint8" and len(shape) == 3}


class PictureNotKept(LookupError):
    """A reward looked at a picture of a transition that was kept without it."""


class WithoutPictures(Mapping[str, np.ndarray]):
    """An observation that was kept without its pictures: it names them, and looking at one raises PictureNotKept."""

    def __init__(self, columns: Mapping[str, np.ndarray], pictures: Collection[str]) -> None:
        self.columns, self.pictures = columns, pictures

    def __getitem__(self, name: str) -> np.ndarray:
        if name in self.pictures:
            raise PictureNotKept(name)
        return self.columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self.columns or name in self.pictures

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self.columns, *self.pictures}))

    def __len__(self) -> int:
        return len({*self.columns, *self.pictures})


@dataclass(frozen=True)
class LatentBank:
    """n transitions of the data without their pictures."""

    rest: Bank  # all else that a bank has of them
    encoded: Mapping[str, np.ndarray]  # of ENCODED what the method has rules for, [n, ...] each
    thumbnails: np.ndarray  # uint8 [m, height, width, channels]
    shown: np.ndarray  # int32 [m]: the transitions whose s they show

    @staticmethod
    def draw(policy: Any, data: Any, count: int, seed: int) -> LatentBank | None:
        """Of at most `count` transitions; None where the policy's bank holds as many, or has no use for them."""
        rows = Bank.rows(data, count, seed)
        if len(rows) <= len(policy.bank):
            return None
        blocks = [rows[first : first + BLOCK] for first in range(0, len(rows), BLOCK)]
        parts = [_encoded(policy, Bank.at(data, block)) for block in blocks]
        if not parts[0]:
            return None
        encoded = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        seen = pictures(policy.spec)
        thumbnails, shown = _thumbnails(data.observations[next(iter(seen))], rows)
        return LatentBank(Bank.at(data, rows, without=seen), encoded, thumbnails, shown)

    def __len__(self) -> int:
        return len(self.rest)

    @property
    def latents(self) -> np.ndarray | None:
        return self.encoded.get("latents")

    @property
    def bytes(self) -> int:
        """What it takes in memory and on disk."""
        return sum(column.nbytes for column in self.columns().values())

    def columns(self) -> dict[str, np.ndarray]:
        """Its arrays by name, as they are saved."""
        return {**self.rest.columns(), **self.encoded, "thumbnails": self.thumbnails, "shown": self.shown}

    @staticmethod
    def from_columns(columns: Mapping[str, np.ndarray], spec: Spec) -> LatentBank:
        """The latent bank of a policy for such data; a ValueError where the columns do not fit it."""
        encoded = {name: columns[name] for name in ENCODED if name in columns}
        thumbnails, shown = columns["thumbnails"], columns["shown"]
        own = {*encoded, "thumbnails", "shown"}
        others = {name: column for name, column in columns.items() if name not in own}
        rest = Bank.from_columns(others, spec, without=pictures(spec))
        flat = all(column.ndim == 2 and column.dtype == np.float32 for column in encoded.values())
        if not flat or {len(column) for column in encoded.values()} != {len(rest)}:
            raise ValueError("its latents do not fit its transitions")
        if (thumbnails.ndim, thumbnails.dtype, shown.dtype) != (4, np.uint8, np.int32):
            raise ValueError("its thumbnails are no pictures")
        if shown.shape != thumbnails.shape[:1] or (len(shown) and not 0 <= shown.min() <= shown.max() < len(rest)):
            raise ValueError("its thumbnails show no transitions of it")
        return LatentBank(rest, encoded, thumbnails, shown)

    def for_reward(
        self, rows: np.ndarray, pictures: Collection[str]
    ) -> tuple[WithoutPictures, np.ndarray, WithoutPictures, dict[str, np.ndarray]]:
        """s, a, s' and the extra columns for a reward, of these transitions; it may write to them."""
        own = self.rest.take(rows)
        before, after = (WithoutPictures(tree, pictures) for tree in (own.observations, own.next_observations))
        return before, own.actions, after, own.next_extras


def _encoded(policy: Any, sample: Bank) -> dict[str, np.ndarray]:
    before, after = sample.observations, sample.next_observations
    found: dict[str, np.ndarray] = {}
    if policy.has_rule("encode"):
        found |= {"latents": policy.encode(before), "next_latents": policy.encode(after)}
    if policy.has_rule("cumulant"):
        found["features"] = policy.cumulant(before, after)
    elif policy.has_rule("backward"):
        found["features"] = policy.backward(after)
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
