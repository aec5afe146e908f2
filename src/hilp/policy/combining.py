"""Prompts combined: a weighted sum of skills (`go + 0.5 * earn`), and one after the other (`a.then(b, until=...)`).

Every prompt is `Combinable`. What it is made of comes as arrays and a note of plain values (`packed`), so a prompt of
prompts is saved as a tree of those, in one file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hilp import storage, trees
from hilp.data.rewards import Extras
from hilp.errors import HilpError, require_count
from hilp.policy import formulas
from hilp.trees import Tree

Packed = tuple[dict[str, np.ndarray], dict[str, Any]]
Condition = int | str | Callable[[Any], Any] | None  # steps, a formula or 'reached', a function of observations
REACHED = "reached"


class Combinable:
    """What all prompts share: they are added, weighed, put one behind the other, and saved."""

    kind: str
    fingerprint: Any  # of the policy that it belongs to

    def packed(self) -> Packed:
        """What this prompt is made of: arrays, and plain values."""
        raise NotImplementedError

    def reset(self, rows: Any = None) -> None:
        """New episodes begin: in these rows of the batch (numbers or a mask), or in all of them."""

    def __call__(self, observations: Tree, active: np.ndarray | None = None) -> np.ndarray:
        raise NotImplementedError

    def save(self, path: str | Path) -> None:
        storage.write_arrays(Path(path), *self.packed())

    def __add__(self, other: Any) -> SumPrompt:
        if not isinstance(other, Combinable):
            return NotImplemented
        return SumPrompt((*_weighed(self), *_weighed(other)))

    def __mul__(self, weight: Any) -> SumPrompt:
        if isinstance(weight, bool) or not isinstance(weight, int | float | np.number):
            return NotImplemented
        return SumPrompt(tuple((float(weight) * own, part) for own, part in _weighed(self)))

    __rmul__ = __mul__

    def then(self, following: Combinable, until: Condition = None) -> ThenPrompt:
        """This prompt, and from then on another.

        until: a number of steps, a formula over the observation that becomes true ("observation[0] > 5"), a function of
        a batch of observations, or "reached", which goals and demonstrations know and which is meant where nothing is
        said. Each agent of a batch changes over by itself, once an episode.
        """
        if not isinstance(following, Combinable):
            raise HilpError(f"what follows a prompt is a prompt, not {type(following).__name__}")
        if isinstance(self, UntilPrompt) and until is None:
            return ThenPrompt(self.prompt, following, self.condition)
        return ThenPrompt(self, following, condition_of(self, until))

    def until(self, until: Condition = None) -> UntilPrompt:
        """This prompt with an end: `over` says which agents are there. `a.until(c).then(b)` is `a.then(b, until=c)`."""
        return UntilPrompt(self, condition_of(self, until))


@dataclass(frozen=True)
class Ending:
    """When a prompt is over: one of these."""

    steps: int | None = None
    formula: str | None = None
    columns: Mapping[str, int] = field(default_factory=dict)  # names of single numbers, of a task, for the formula
    function: Callable[[Any], Any] | None = None  # none of all: `reached`

    def met(self, prompt: Any, observations: Tree, steps: np.ndarray) -> np.ndarray:
        """bool [n]: whether it is over for agents that followed the prompt for so many steps."""
        if self.steps is not None:
            return steps >= self.steps
        if self.formula is not None:
            found: Any = self._evaluate(prompt, observations)
        elif self.function is not None:
            found = self.function(observations)
        else:
            found = prompt.reached(observations)
        met = np.asarray(found)
        if met.shape != steps.shape:
            raise HilpError(f"an end of a prompt is told of each observation, {steps.shape}, not {met.shape}")
        return met.astype(bool)

    def _evaluate(self, prompt: Any, observations: Tree) -> np.ndarray:
        about = policy_of(prompt)
        flat = np.atleast_2d(np.asarray(observations, np.float64))
        read = formulas.reward(self.formula or "", about.observation_parts, flat.shape[1], 0, self.columns)
        nothing = np.zeros((len(flat), 0))
        return read(flat, nothing, flat, Extras({}, {}, "an observation")) != 0.0

    def note(self) -> dict[str, Any]:
        if self.function is not None:
            raise HilpError(
                "a prompt that ends by a function cannot be saved: end it by a number of steps, or by a formula such "
                "as 'observation[0] > 5'"
            )
        return {"steps": self.steps, "formula": self.formula, "columns": dict(self.columns)}


@dataclass(frozen=True)
class SumPrompt(Combinable):
    """The weighted sum of the skills of several prompts, brought to the length of the first one's."""

    parts: tuple[tuple[float, Any], ...]

    kind = "sum"

    def __post_init__(self) -> None:
        for weight, part in self.parts:
            if not np.isfinite(weight):
                raise HilpError(f"the weight of a prompt is a number, not {weight}")
            require_one_policy(self.parts[0][1], part)
            known = policy_of(part, required=False)
            if known is not None:
                known.require_rule("project", "takes a goal itself as its skill: prompts of it cannot be added")

    @property
    def fingerprint(self) -> str:
        return str(self.parts[0][1].fingerprint)

    @property
    def policy(self) -> Any:
        return policy_of(self, required=False)

    def __call__(self, observations: Tree, active: np.ndarray | None = None) -> np.ndarray:
        skills = [np.asarray(part(observations, active=active), np.float64) for _, part in self.parts]
        total = np.sum([weight * z for (weight, _), z in zip(self.parts, skills, strict=True)], axis=0)
        length, wanted = (np.linalg.norm(z, axis=-1, keepdims=True) for z in (total, skills[0]))
        # Skills that cancel out ask for nothing: then the first one is followed.
        scaled = np.where(length > 1e-8, total * wanted / np.maximum(length, 1e-8), skills[0])
        return scaled.astype(np.float32)

    def reset(self, rows: Any = None) -> None:
        for _, part in self.parts:
            part.reset(rows)

    def packed(self) -> Packed:
        arrays, notes = _nested({str(number): part for number, (_, part) in enumerate(self.parts)})
        note = {"kind": self.kind, "fingerprint": self.fingerprint, "weights": [weight for weight, _ in self.parts]}
        return arrays, {**note, "parts": notes}


class UntilPrompt(Combinable):
    """A prompt with an end. It goes on as it is; `over` tells, agent by agent, whether the end has come."""

    kind = "until"

    def __init__(self, prompt: Any, condition: Ending) -> None:
        self.prompt, self.condition = prompt, condition
        self._agents = Agents()

    @property
    def fingerprint(self) -> str:
        return str(self.prompt.fingerprint)

    @property
    def policy(self) -> Any:
        return policy_of(self.prompt, required=False)

    @property
    def over(self) -> np.ndarray:
        """bool [n]: agents of the last call that have met the end in this episode."""
        return self._agents.over.copy()

    def reached(self, observations: Tree) -> np.ndarray:
        """bool [n]: the same for a batch of observations that come next."""
        steps = self._agents.steps_of(observations)  # first: it makes room for as many agents
        return self._agents.over | self.condition.met(self.prompt, observations, steps)

    def __call__(self, observations: Tree, active: np.ndarray | None = None) -> np.ndarray:
        steps = self._agents.steps_of(observations)
        self._agents.over |= self.condition.met(self.prompt, observations, steps)
        self._agents.steps += 1
        return np.asarray(self.prompt(observations, active=active))

    def reset(self, rows: Any = None) -> None:
        self._agents.reset(rows)
        self.prompt.reset(rows)

    def packed(self) -> Packed:
        arrays, notes = _nested({"first": self.prompt})
        note = {"kind": self.kind, "fingerprint": self.fingerprint, "until": self.condition.note()}
        return arrays, {**note, "parts": notes}


class ThenPrompt(Combinable):
    """One prompt until its end, then another; each agent of a batch by itself."""

    kind = "then"

    def __init__(self, first: Any, second: Any, condition: Ending) -> None:
        require_one_policy(first, second)
        self.first, self.second, self.condition = first, second, condition
        self._agents, self._begun = Agents(), False

    @property
    def fingerprint(self) -> str:
        return str(self.first.fingerprint)

    @property
    def policy(self) -> Any:
        return policy_of(self.first, required=False) or policy_of(self.second, required=False)

    @property
    def over(self) -> np.ndarray:
        """bool [n]: agents of the last call that follow the second prompt."""
        return self._agents.over.copy()

    def reached(self, observations: Tree) -> np.ndarray:
        """bool [n]: agents that have also reached what the second prompt asks for, where it can tell."""
        if not hasattr(self.second, "reached"):
            raise HilpError("the last of these prompts has no end of its own: say until when")
        self._agents.steps_of(observations)
        return self._agents.over & self.second.reached(observations)

    def __call__(self, observations: Tree, active: np.ndarray | None = None) -> np.ndarray:
        before, steps = self._agents.over.copy(), self._agents.steps_of(observations)
        if len(before) != len(steps):  # a batch of another size: new episodes
            before = np.zeros(len(steps), bool)
        over = before | self.condition.met(self.first, observations, steps)
        new = np.flatnonzero(over & ~before)
        if len(new):
            self.second.reset(new if self._begun else None)
        self._agents.over, self._agents.steps = over, steps + 1
        wanted = np.ones(len(over), bool) if active is None else np.asarray(active, bool)
        if not over.any():
            return np.asarray(self.first(observations, active=wanted))
        self._begun = True
        z = np.array(self.second(observations, active=wanted & over))
        if not over.all():
            z[~over] = np.asarray(self.first(observations, active=wanted & ~over))[~over]
        return z

    def reset(self, rows: Any = None) -> None:
        self._agents.reset(rows)
        self.first.reset(rows)
        if rows is None:
            self._begun = False
        if self._begun or rows is None:
            self.second.reset(rows)

    def packed(self) -> Packed:
        arrays, notes = _nested({"first": self.first, "second": self.second})
        note = {"kind": self.kind, "fingerprint": self.fingerprint, "until": self.condition.note()}
        return arrays, {**note, "parts": notes}


class Agents:
    """For each agent of a batch, how many steps it has followed a prompt and whether that is over."""

    def __init__(self) -> None:
        self.reset()

    def reset(self, rows: Any = None) -> None:
        if rows is None:
            self.steps, self.over = np.zeros(0, int), np.zeros(0, bool)
        elif len(self.steps):
            self.steps[rows], self.over[rows] = 0, False

    def steps_of(self, observations: Tree) -> np.ndarray:
        """Steps so far [n]; a batch of another size is one of new episodes."""
        count = trees.rows(observations) if isinstance(observations, Mapping) else len(np.atleast_2d(observations))
        if len(self.steps) != count:
            self.steps, self.over = np.zeros(count, int), np.zeros(count, bool)
        return self.steps


def condition_of(prompt: Any, until: Condition, columns: Mapping[str, int] | None = None) -> Ending:
    """When a prompt is over, as a user says it; `columns` are names that a formula may use beside the policy's."""
    if until is None or until == REACHED:
        if not hasattr(prompt, "reached"):
            raise HilpError(
                f"a {prompt.kind} prompt has no end of its own: say until when, by a number of steps, a formula such "
                "as 'observation[0] > 5', or a function of observations"
            )
        return Ending()
    if isinstance(until, str):
        about = policy_of(prompt)
        if about.spec.parts:
            raise HilpError("a formula tells the end over plain vectors, and this policy has observations by name")
        size = about.spec.observation_dim
        ending = Ending(formula=until, columns=dict(columns or {}))
        ending.met(prompt, np.zeros((1, size)), np.zeros(1, int))  # a mistake in it is told here
        return ending
    if callable(until):
        return Ending(function=until)
    return Ending(steps=require_count("until", until))


def policy_of(prompt: Any, required: bool = True) -> Any:
    """The policy behind a prompt, or behind one of its parts; a plain skill may not know it."""
    parts = [part for _, part in prompt.parts] if isinstance(prompt, SumPrompt) else [prompt]
    for part in parts:
        found = getattr(part, "policy", None)
        if found is not None:
            return found
    if required:
        raise HilpError("this prompt does not know its policy: make or load it with one, policy.skill(...) say")
    return None


def require_one_policy(first: Any, second: Any) -> None:
    if first.fingerprint != second.fingerprint:
        raise HilpError(
            f"these prompts are of two policies ({first.fingerprint[:8]}, {second.fingerprint[:8]}): make both with one"
        )


def part_of(arrays: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """The arrays of one of several prompts that were saved in one file."""
    prefix = f"{name}/"
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}


def _nested(parts: Mapping[str, Any]) -> Packed:
    arrays: dict[str, np.ndarray] = {}
    notes: dict[str, Any] = {}
    for name, part in parts.items():
        own, notes[name] = part.packed()
        arrays |= {f"{name}/{key}": array for key, array in own.items()}
    return arrays, notes


def _weighed(prompt: Combinable) -> tuple[tuple[float, Any], ...]:
    return prompt.parts if isinstance(prompt, SumPrompt) else ((1.0, prompt),)
