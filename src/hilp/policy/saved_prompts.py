"""Prompts from files: of every kind, and of prompts in prompts. Loading runs no code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hilp import runs, storage, trees
from hilp.errors import HilpError
from hilp.policy import following, graph_prompts, prompts
from hilp.policy.adapting import AdaptedPrompt
from hilp.policy.agent import Promptable, require_graph
from hilp.policy.combining import Ending, SumPrompt, ThenPrompt, UntilPrompt, part_of
from hilp.policy.hierarchy import HierarchyPrompt
from hilp.policy.prompts import Prompt, SkillPrompt

Arrays = Mapping[str, np.ndarray]
Note = Mapping[str, Any]
DEEPEST = 20  # prompts in prompts


def load(policy: Promptable, path: Path) -> Prompt:
    """A prompt that was saved for this very policy; the folder in which a high level was trained stands for its own."""
    if path.is_dir():
        path = runs.find_prompt(path)
    arrays, note = storage.read_arrays(path)
    return _Reader(policy, path).read(arrays, note)


class _Reader:
    """Reads one file."""

    def __init__(self, policy: Promptable, path: Path) -> None:
        self.policy, self.path, self.depth = policy, path, 0
        self.kinds: dict[str, Callable[[Arrays, Note], Prompt]] = {
            "goal": self._goal,
            "skill": self._skill,
            "graph": self._graph,
            "hierarchy": lambda arrays, note: HierarchyPrompt.revive(policy, arrays, note, path),
            "prior": lambda arrays, note: prompts.prior(policy, note["k"], note["seed"]),
            "follow": lambda arrays, note: following.revive(policy, arrays, note),
            "sum": self._sum,
            "until": lambda arrays, note: UntilPrompt(self._part("first", arrays, note), _ending(note)),
            "then": lambda arrays, note: ThenPrompt(
                self._part("first", arrays, note), self._part("second", arrays, note), _ending(note)
            ),
            "adapted": self._adapted,
        }

    def read(self, arrays: Arrays, note: Note) -> Prompt:
        kind = note.get("kind") if isinstance(note, Mapping) else None
        if not isinstance(kind, str) or kind not in self.kinds:
            raise HilpError(f"{self.path} is not a prompt")
        if note.get("fingerprint") != self.policy.fingerprint:
            owner = str(note.get("fingerprint"))[:8]
            raise HilpError(
                f"{self.path} was made for policy {owner}, not for this one ({self.policy.fingerprint[:8]}): "
                "make it again with this policy"
            )
        try:
            return self.kinds[kind](arrays, note)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise HilpError(f"{self.path} is not a whole prompt ({error!r}): make it again") from error

    def _part(self, name: str, arrays: Arrays, note: Note) -> Prompt:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(f"more than {DEEPEST} prompts in prompts")
        try:
            return self.read(part_of(arrays, name), note["parts"][name])
        finally:
            self.depth -= 1

    def _goal(self, arrays: Arrays, note: Note) -> Prompt:
        how = (note["plan"], note["best"], note["radius"], note.get("smooth"))
        return prompts.goal(self.policy, trees.unnamed(arrays, "goal"), *how)

    def _skill(self, arrays: Arrays, note: Note) -> Prompt:
        return SkillPrompt(self.policy.fingerprint, arrays["z"], note["r2"], note.get("agreement"), self.policy)

    def _graph(self, arrays: Arrays, note: Note) -> Prompt:
        require_graph(self.policy)
        return graph_prompts.loaded(self.policy, arrays, note)

    def _sum(self, arrays: Arrays, note: Note) -> Prompt:
        weights = [float(weight) for weight in note["weights"]]
        parts = tuple((weight, self._part(str(number), arrays, note)) for number, weight in enumerate(weights))
        if not parts:
            raise ValueError("a sum of nothing")
        return SumPrompt(parts)

    def _adapted(self, arrays: Arrays, note: Note) -> Prompt:
        offset = np.asarray(arrays["offset"], np.float32)
        if offset.shape != (self.policy.skill_dim,) or not np.isfinite(offset).all():
            raise ValueError("its offset is no skill of the policy")
        return AdaptedPrompt(self.policy, self._part("first", arrays, note), offset)


def _ending(note: Note) -> Ending:
    until = note["until"]
    columns = {str(name): int(column) for name, column in until["columns"].items()}
    steps = None if until["steps"] is None else int(until["steps"])
    return Ending(steps, None if until["formula"] is None else str(until["formula"]), columns)
