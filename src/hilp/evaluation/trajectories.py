"""Saved trajectories: the first episodes of each prompt, in one small file next to the rows, to draw them later.

A prompt that is evaluated again replaces what was saved of it for the same policy and task.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hilp import storage
from hilp.errors import HilpError, say
from hilp.evaluation.rollouts import Rollout
from hilp.evaluation.rows import Row, option_words, prompt_of

EPISODES = 12  # saved of each prompt
MOST_BYTES = 2 << 20  # of a prompt: where episodes are large, fewer are saved
MOST_PROMPTS = 32  # the latest
ARRAYS = {"observations": "f", "lengths": "i", "goals": "f", "reached": "b"}  # of a rollout, and of which kind


@dataclass(frozen=True)
class SavedRollout:
    """The first episodes of one prompt of a policy."""

    policy: str  # fingerprint
    task: str
    prompt: str  # "goal" or "reward"
    options: str  # as `rows.options` has them
    name: int | str  # the plan or the reward
    rollout: Rollout

    @property
    def prompt_of(self) -> tuple[Any, ...]:
        """What tells its prompt from others, as `rows.prompt_of` does."""
        return self.task, self.prompt, self.options, self.name

    @property
    def title(self) -> str:
        kind = "plan" if self.prompt == "goal" else "reward"
        return f"{kind} {self.name}{option_words(self.options)}"


def save(path: Path, found: Sequence[tuple[Row, Rollout]]) -> None:
    """Put the first episodes of each rollout into a file, in the place of earlier ones of the same prompt."""
    with storage.told(f"cannot write {path}"), storage.in_turn(path.parent):
        latest: dict[tuple[Any, ...], SavedRollout] = {}
        for one in [*_saved_before(path), *(first_episodes(row, rollout) for row, rollout in found)]:
            key = (one.policy, *one.prompt_of)
            latest.pop(key, None)  # the later one goes to the end
            latest[key] = one
        kept = list(latest.values())[-MOST_PROMPTS:]
        arrays = {f"{i}.{name}": getattr(one.rollout, name) for i, one in enumerate(kept) for name in ARRAYS}
        about = [{f.name: getattr(one, f.name) for f in dataclasses.fields(SavedRollout)[:-1]} for one in kept]
        storage.write_arrays(path, arrays, {"prompts": about})


def _saved_before(path: Path) -> list[SavedRollout]:
    """What a file holds so far; of a damaged one nothing."""
    try:
        return read(path) if path.is_file() else []
    except HilpError:
        say(f"note: {path} is damaged: the trajectories in it are dropped")
        return []


def first_episodes(row: Row, rollout: Rollout) -> SavedRollout:
    """The part of a rollout that is saved."""
    first = rollout.first(EPISODES)
    count = max(1, min(EPISODES, MOST_BYTES // max(1, first.observations[:, 0].nbytes)))
    return SavedRollout(row["policy"], *prompt_of(row), first.first(count))


def read(path: Path) -> list[SavedRollout]:
    """What a file holds, oldest first; one line about a file of something else."""
    arrays: Any
    arrays, note = storage.read_arrays(path)
    try:
        found = [
            SavedRollout(**about, rollout=Rollout(**{name: arrays[f"{i}.{name}"] for name in ARRAYS}))
            for i, about in enumerate(note["prompts"])
        ]
        if not all(_makes_sense(one) for one in found):
            raise ValueError("arrays of other shapes than an evaluation has")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise HilpError(f"{path} does not hold the trajectories of an evaluation ({error}): delete it") from None
    return found


def _makes_sense(one: SavedRollout) -> bool:
    rollout = one.rollout
    steps, episodes, width = rollout.observations.shape
    shapes = {"observations": (steps, episodes, width), "goals": (episodes, width)}
    arrays = [(getattr(rollout, name), kind, shapes.get(name, (episodes,))) for name, kind in ARRAYS.items()]
    return (
        all(isinstance(text, str) for text in (one.policy, one.task, one.options))
        and isinstance(one.name, int | str)
        and one.prompt in ("goal", "reward")
        and episodes > 0
        and all(array.dtype.kind == kind and array.shape == shape for array, kind, shape in arrays)
        and bool(np.isfinite(rollout.observations).all())
        and bool(((rollout.lengths >= 0) & (rollout.lengths < steps)).all())
    )
