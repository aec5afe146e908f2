"""Trajectories that are kept: the first episodes of each prompt, in one small file beside the rows, to draw them later.

As with rows, what is evaluated again replaces what was kept of the same policy, task and prompt.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hilp import storage
from hilp.errors import HilpError, printable
from hilp.evaluation.rollouts import Rollout
from hilp.evaluation.rows import Row, prompt_of

EPISODES = 12  # that are kept of each prompt
MOST_BYTES = 2 << 20  # of a prompt: where episodes are large, fewer of them are kept
MOST_PROMPTS = 32  # the latest
ARRAYS = ("observations", "lengths", "goals", "reached")


@dataclass(frozen=True)
class Kept:
    """Episodes of one prompt, and whose they are."""

    policy: str  # fingerprint
    task: str
    prompt: str  # "goal" or "reward"
    name: int | str  # the plan or the reward
    rollout: Rollout  # without physics

    @property
    def key(self) -> tuple[Any, ...]:
        return self.policy, self.task, self.prompt, self.name

    @property
    def title(self) -> str:
        return f"plan {self.name}" if self.prompt == "goal" else f"reward {self.name}"


def keep(path: Path, found: Sequence[tuple[Row, Rollout]]) -> None:
    """Put the first episodes of each rollout into a file, in the place of earlier ones of the same prompt."""
    new = [kept(row, rollout) for row, rollout in found]
    try:
        with storage.in_turn(path.parent):
            _write(path, [*_before(path), *new])
    except OSError as error:
        raise HilpError(f"cannot write {path}: {error.strerror or error}") from error


def _before(path: Path) -> list[Kept]:
    """What a file keeps so far; a damaged one holds nothing that is not made again."""
    try:
        return read(path) if path.is_file() else []
    except HilpError:
        print(f"hilp: note: {printable(str(path))} is damaged: the trajectories in it are dropped", file=sys.stderr)
        return []


def _write(path: Path, found: Sequence[Kept]) -> None:
    entries: dict[tuple[Any, ...], Kept] = {}
    for entry in found:
        entries.pop(entry.key, None)  # the later one, in its place
        entries[entry.key] = entry
    chosen = list(entries.values())[-MOST_PROMPTS:]
    arrays = {f"{i}.{name}": getattr(entry.rollout, name) for i, entry in enumerate(chosen) for name in ARRAYS}
    about = [{f.name: getattr(entry, f.name) for f in dataclasses.fields(Kept)[:-1]} for entry in chosen]
    storage.write_arrays(path, arrays, {"prompts": about})


def kept(row: Row, rollout: Rollout) -> Kept:
    """What is kept of a rollout."""
    first = rollout.first(EPISODES)
    count = max(1, min(EPISODES, MOST_BYTES // max(1, first.observations[:, 0].nbytes)))
    task, prompt, name = prompt_of(row)
    return Kept(row["policy"], task, prompt, name, dataclasses.replace(first.first(count), physics=None))


def read(path: Path) -> list[Kept]:
    """What a file keeps, oldest first; a file that is no such thing is one line."""
    arrays, note = storage.read_arrays(path)
    try:
        found = [
            Kept(**about, rollout=Rollout(*(arrays[f"{i}.{name}"] for name in ARRAYS)))
            for i, about in enumerate(note["prompts"])
        ]
        if not all(_makes_sense(entry) for entry in found):
            raise ValueError("arrays of other shapes than an evaluation has")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise HilpError(f"{path} does not hold the trajectories of an evaluation ({error}): delete it") from None
    return found


def _makes_sense(entry: Kept) -> bool:
    rollout, texts = entry.rollout, (entry.policy, entry.task, entry.prompt)
    steps, episodes, *rest = rollout.observations.shape
    return (
        all(isinstance(text, str) for text in texts)
        and isinstance(entry.name, int | str)
        and entry.prompt in ("goal", "reward")
        and len(rest) == 1
        and rollout.goals.shape == (episodes, *rest)
        and rollout.lengths.shape == rollout.reached.shape == (episodes,)
        and rollout.observations.dtype.kind == "f"
        and rollout.lengths.dtype.kind == "i"
        and rollout.reached.dtype.kind == "b"
        and bool(np.isfinite(rollout.observations).all())
        and bool(((rollout.lengths >= 0) & (rollout.lengths < steps)).all())
        and episodes > 0
    )
