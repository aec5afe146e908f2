"""Prompts from files and from specs, of every kind, and prompts in prompts. Loading runs no code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hilp import trees
from hilp.errors import HilpError
from hilp.prompts import follow, goal, graph_reward, specs
from hilp.prompts.agent import require_graph
from hilp.prompts.base import Ending, Prompt, SumPrompt, ThenPrompt, UntilPrompt, condition_of
from hilp.prompts.search import AdaptedPrompt
from hilp.prompts.skills import HierarchyPrompt, SkillPrompt
from hilp.storage.arrays import read_arrays

Arrays = Mapping[str, np.ndarray]
Note = Mapping[str, Any]
DEEPEST = 20  # prompts in prompts


# ---- of specs --------------------------------------------------------------------------------------------------------


def of_spec(policy: Any, spec: Any, data: Any = None) -> Any:
    """The prompt of a spec for a policy. data: whose transitions a reward is fitted on."""
    make = MAKERS.get(getattr(spec, "kind", ""))
    if make is None:
        raise HilpError(f"a prompt is made of a spec such as Goal(...), not of {spec!r:.60}")
    return make(policy, spec, data)


def _goal_of(policy: Any, spec: specs.Goal, data: Any) -> Any:
    if spec.goal is None or isinstance(spec.goal, str):
        named = "without a goal" if spec.goal is None else f"to '{spec.goal}'"
        raise HilpError(f"a goal prompt {named} needs its task: give the numbers of an observation")
    return policy.goal(spec.goal, **spec.goal_options())


def _follow_of(policy: Any, spec: specs.Follow, data: Any) -> Any:
    if spec.trajectory is None or isinstance(spec.trajectory, str):
        raise HilpError("a follow prompt needs the rows of its demonstration, not the name of a file")
    return policy.follow(spec.trajectory, spec.window)


def _sum_of(policy: Any, spec: specs.Sum, data: Any) -> Any:
    return SumPrompt(tuple((weight, of_spec(policy, part, data)) for weight, part in spec.parts))


def _then_of(policy: Any, spec: specs.Then, data: Any) -> Any:
    first, second = (of_spec(policy, part, data) for part in (spec.first, spec.second))
    return ThenPrompt(first, second, condition_of(first, spec.until))


MAKERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "goal": _goal_of,
    "reward": lambda policy, spec, data: policy.reward(data, spec.reward, **spec.reward_options()),
    "skill": lambda policy, spec, data: policy.skill(spec.z, spec.seed),
    "prior": lambda policy, spec, data: policy.prior(spec.k, spec.seed),
    "follow": _follow_of,
    "prefer": lambda policy, spec, data: policy.prefer(spec.pairs),
    "saved": lambda policy, spec, data: policy.load_prompt(spec.path),
    "sum": _sum_of,
    "then": _then_of,
}


# ---- of files --------------------------------------------------------------------------------------------------------


def load(policy: Any, path: Path, high_level: Callable[..., Any] | None = None) -> Prompt:
    """A prompt that was saved for this very policy. high_level: what reads high levels, if not the policy."""
    return _Reader(policy, path, high_level or policy.high_level).read(*read_arrays(path))


class _Reader:
    """Reads one file."""

    def __init__(self, policy: Any, path: Path, high_level: Callable[..., Any]) -> None:
        self.policy, self.path, self.depth = policy, path, 0
        self.kinds: dict[str, Callable[[Arrays, Note], Prompt]] = {
            "goal": lambda arrays, note: goal.goal(
                policy, trees.unnamed(arrays, "goal"), self._spec(note, specs.Goal), matched=True
            ),
            "skill": lambda arrays, note: SkillPrompt(
                policy, arrays["z"], note["r2"], note.get("agreement"), self._spec(note, object)
            ),
            "graph": self._graph,
            "hierarchy": lambda arrays, note: HierarchyPrompt(policy, high_level(arrays, note, path)),
            "prior": lambda arrays, note: policy.prompt(self._spec(note, specs.Prior)),
            "follow": lambda arrays, note: follow.follow(
                policy, trees.unnamed(arrays, "trajectory"), self._spec(note, specs.Follow).window
            ),
            "sum": self._sum,
            "until": lambda arrays, note: UntilPrompt(
                self._part("first", arrays, note), Ending.from_note(note["until"])
            ),
            "then": lambda arrays, note: ThenPrompt(
                self._part("first", arrays, note),
                self._part("second", arrays, note),
                Ending.from_note(note["until"]),
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

    def _spec(self, note: Note, kind: type[Any]) -> Any:
        """The spec in a note; a ValueError where it is of another kind."""
        found = specs.from_json(note["spec"]) if "spec" in note else None
        if found is not None and not isinstance(found, kind):
            raise ValueError("its spec is of another prompt")
        if found is None and kind is not object:
            raise KeyError("spec")
        return found

    def _part(self, name: str, arrays: Arrays, note: Note) -> Prompt:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(f"more than {DEEPEST} prompts in prompts")
        prefix = f"{name}/"
        own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
        try:
            return self.read(own, note["parts"][name])
        finally:
            self.depth -= 1

    def _graph(self, arrays: Arrays, note: Note) -> Prompt:
        require_graph(self.policy)
        return graph_reward.loaded(self.policy, arrays, note, self._spec(note, object))

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
