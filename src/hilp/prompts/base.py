"""Prompts: callables obs -> z, each of one policy. They are added, weighed, put one behind the other, and saved.

`go + 0.5 * earn` is a weighted sum of skills, `a.then(b, until=...)` one after the other. What a prompt is made of
comes as arrays and a note of plain values (`packed`), so a prompt of prompts is saved as a tree of those, in one file.
"""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hilp.data.rewards import Extras
from hilp.errors import HilpError, require_count
from hilp.prompts import formulas, specs
from hilp.prompts.agent import Agent, Batch
from hilp.prompts.memory import AgentMemory
from hilp.storage.arrays import write_arrays

Packed = tuple[dict[str, np.ndarray], dict[str, Any]]
Condition = int | str | Callable[[Any], Any] | None  # steps, a formula or 'reached', a function of observations
REACHED = "reached"


class Prompt:
    """A task for a policy: a skill for each observation."""

    kind: str
    policy: Agent
    spec: Any = None  # of `hilp.prompts.specs`, where the prompt was made of what goes to JSON

    @property
    def fingerprint(self) -> str:
        """Of the policy that it belongs to."""
        return str(self.policy.fingerprint)

    def __call__(self, observations: Any, active: np.ndarray | None = None) -> np.ndarray:
        """Skills [n, dim] for a batch; `active` (bool [n]) spares the planning of rows whose skill is not used."""
        raise NotImplementedError

    def step(self, batch: Batch) -> np.ndarray | None:
        """What the policy answers for one observation, where that takes fewer calls than by its skill; else None."""
        return None

    def untried(self, scores: np.ndarray, batch: Batch, active: np.ndarray) -> np.ndarray:
        """Scores of discrete choices [n, choices], without those that led agents back to where they are."""
        return scores

    def packed(self) -> Packed:
        """What this prompt is made of: arrays, and plain values."""
        raise NotImplementedError

    def reset(self, rows: Any = None) -> None:
        """New episodes begin: in these rows of the batch (numbers or a mask), or in all of them.

        A batch of another size does the same for all: agents are known by their row (`AgentMemory`). What is reset are
        those attributes of a prompt that are memories, and prompts that it is made of.
        """
        for part in vars(self).values():
            if isinstance(part, AgentMemory | Prompt):
                part.reset(rows)

    def fresh(self) -> Any:
        """The same prompt for other agents, which remembers nothing of those of this one."""
        found = copy.deepcopy(self, {id(self.policy): self.policy})
        found.reset()
        return found

    def note(self, **values: Any) -> dict[str, Any]:
        """Plain values to save, with what all prompts have."""
        spec = {} if self.spec is None else {"spec": self.spec.to_json()}
        return {"kind": self.kind, "fingerprint": self.fingerprint, **values, **spec}

    def save(self, path: str | Path) -> None:
        write_arrays(Path(path), *self.packed())

    def __add__(self, other: Any) -> "SumPrompt":
        if not isinstance(other, Prompt):
            return NotImplemented
        return SumPrompt((*_weighed(self), *_weighed(other)))

    def __mul__(self, weight: Any) -> "SumPrompt":
        if isinstance(weight, bool) or not isinstance(weight, int | float | np.number):
            return NotImplemented
        return SumPrompt(tuple((float(weight) * own, part) for own, part in _weighed(self)))

    __rmul__ = __mul__

    def then(self, following: "Prompt", until: Condition = None) -> "ThenPrompt":
        """This prompt, and from then on another.

        until: a number of steps, a formula over the observation that becomes true ("observation[0] > 5"), a function of
        a batch of observations, or "reached", which goals and demonstrations know and which is the default. Each agent
        of a batch changes over by itself, once an episode.
        """
        if not isinstance(following, Prompt):
            raise HilpError(f"what follows a prompt is a prompt, not {type(following).__name__}")
        if type(self) is UntilPrompt and until is None:
            return ThenPrompt(self.first, following, self.ending, self.columns)
        return ThenPrompt(self, following, until)

    def until(self, until: Condition = None) -> "UntilPrompt":
        """This prompt with an end: `over` says which agents are there. `a.until(c).then(b)` is `a.then(b, until=c)`."""
        return UntilPrompt(self, until)


class SumPrompt(Prompt):
    """The weighted sum of the skills of several prompts, brought to the length of the first one's."""

    kind = "sum"

    def __init__(self, parts: tuple[tuple[float, Any], ...]) -> None:
        self.parts, self.policy = parts, parts[0][1].policy
        for weight, part in parts:
            if not np.isfinite(weight):
                raise HilpError(f"the weight of a prompt is a number, not {weight}")
            self.policy.require_own(part.fingerprint)
        self.policy.require_rule("project", "takes a goal itself as its skill: prompts of it cannot be added")

    def __call__(self, observations: Any, active: np.ndarray | None = None) -> np.ndarray:
        batch = self.policy.check(observations)
        skills = [np.asarray(part(batch, active=active), np.float64) for _, part in self.parts]
        total = np.sum([weight * z for (weight, _), z in zip(self.parts, skills, strict=True)], axis=0)
        length, wanted = (np.linalg.norm(z, axis=-1, keepdims=True) for z in (total, skills[0]))
        # Skills that cancel out ask for nothing: then the first one is followed.
        scaled = np.where(length > 1e-8, total * wanted / np.maximum(length, 1e-8), skills[0])
        return scaled.astype(np.float32)

    @property
    def spec(self) -> specs.Sum | None:
        parts = tuple((weight, part.spec) for weight, part in self.parts)
        return None if any(spec is None for _, spec in parts) else specs.Sum(parts)

    def reset(self, rows: Any = None) -> None:
        super().reset(rows)
        for _, part in self.parts:
            part.reset(rows)

    def packed(self) -> Packed:
        arrays, notes = nested({str(number): part for number, (_, part) in enumerate(self.parts)})
        return arrays, self.note(weights=[weight for weight, _ in self.parts], parts=notes)


class UntilPrompt(Prompt):
    """A prompt with an end. It goes on as it is; `over` tells, agent by agent, whether the end has come."""

    kind = "until"

    def __init__(self, first: Any, ending: Condition, columns: Mapping[str, int] | None = None) -> None:
        """columns: names of single numbers, of a task, that a formula may use besides the policy's."""
        self.first, self.policy, self.columns = first, first.policy, dict(columns or {})
        self.ending = None if ending == REACHED else ending
        self._agents = AgentMemory(steps=0, over=False)
        if self.ending is None and not hasattr(first, "reached"):
            raise HilpError(
                f"a {first.kind} prompt has no end of its own: say until when, by a number of steps, a formula such "
                "as 'observation[0] > 5', or a function of observations"
            )
        if isinstance(self.ending, str):
            if self.policy.spec.parts:
                raise HilpError("a formula tells the end over plain vectors, and this policy has observations by name")
            width = self.policy.spec.of_row.observation_dim
            self._formula = formulas.reward(self.ending, self.policy.observation_parts, width, 0, self.columns)
            one = Batch(np.zeros((1, width), np.float32), False)
            self._met(one, np.zeros(1, int))  # a mistake in it is an error here, not at the first step
        elif self.ending is not None and not callable(self.ending):
            self.ending = require_count("until", ending)

    def _met(self, batch: Batch, steps: np.ndarray) -> np.ndarray:
        """bool [n]: whether the first prompt is over for agents that followed it for so many steps."""
        if isinstance(self.ending, int):
            return steps >= self.ending
        if isinstance(self.ending, str):
            flat = np.asarray(self.policy.spec.newest(batch.tree), np.float64)
            nothing, none = np.zeros((len(flat), 0)), Extras({}, {}, "an observation")
            found: Any = self._formula(flat, nothing, flat, none) != 0.0
        else:
            found = (
                self.first.reached(batch) if self.ending is None else self.ending(self.policy.spec.newest(batch.tree))
            )
        met = np.asarray(found)
        if met.shape != steps.shape:
            raise HilpError(f"the end of a prompt is one truth an observation, {steps.shape}, not {met.shape}")
        return met.astype(bool)

    @property
    def over(self) -> np.ndarray:
        """bool [n]: agents of the last call that have met the end in this episode."""
        return self._agents["over"].copy()

    def reached(self, observations: Any) -> np.ndarray:
        """bool [n]: the same for a batch of observations that come next."""
        batch = self.policy.check(observations)
        self._agents.begin(len(batch))
        return self._agents["over"] | self._met(batch, self._agents["steps"])

    def __call__(self, observations: Any, active: np.ndarray | None = None) -> np.ndarray:
        batch = self.policy.check(observations)
        self._agents["over"] = self.reached(batch)
        self._agents["steps"] += 1
        return np.asarray(self.first(batch, active=active))

    def untried(self, scores: np.ndarray, batch: Batch, active: np.ndarray) -> np.ndarray:
        return np.asarray(self.first.untried(scores, batch, active))

    def packed(self) -> Packed:
        if callable(self.ending):
            raise HilpError(
                "a prompt that ends by a function cannot be saved: end it by a number of steps, or by a formula such "
                "as 'observation[0] > 5'"
            )
        steps, formula = (self.ending if isinstance(self.ending, kind) else None for kind in (int, str))
        arrays, notes = nested({name: part for name, part in vars(self).items() if isinstance(part, Prompt)})
        return arrays, self.note(until={"steps": steps, "formula": formula, "columns": self.columns}, parts=notes)


class ThenPrompt(UntilPrompt):
    """One prompt until its end, then another; each agent of a batch by itself."""

    kind = "then"

    def __init__(self, first: Any, second: Any, ending: Condition, columns: Mapping[str, int] | None = None) -> None:
        first.policy.require_own(second.fingerprint)
        super().__init__(first, ending, columns)
        self.second = second

    @property
    def spec(self) -> specs.Then | None:
        if self.first.spec is None or self.second.spec is None or callable(self.ending):
            return None
        return specs.Then(self.first.spec, self.second.spec, self.ending)

    def reached(self, observations: Any) -> np.ndarray:
        """bool [n]: agents that have also reached what the second prompt asks for, where it can tell."""
        if not hasattr(self.second, "reached"):
            raise HilpError("the last of these prompts has no end of its own: say until when")
        batch = self.policy.check(observations)
        self._agents.begin(len(batch))
        return self._agents["over"] & self.second.reached(batch)

    def __call__(self, observations: Any, active: np.ndarray | None = None) -> np.ndarray:
        batch = self.policy.check(observations)
        if self._agents.begin(len(batch)):
            self.first.reset()  # only one of them may see batches of this size
            self.second.reset()
        before, steps = self._agents["over"], self._agents["steps"]
        over = before | self._met(batch, steps)
        new = np.flatnonzero(over & ~before)
        if len(new):
            self.second.reset(new)
        self._agents["over"], self._agents["steps"] = over, steps + 1
        wanted = np.ones(len(over), bool) if active is None else np.asarray(active, bool)
        if not over.any():
            return np.asarray(self.first(batch, active=wanted))
        z = np.array(self.second(batch, active=wanted & over))
        if not over.all():
            z[~over] = np.asarray(self.first(batch, active=wanted & ~over))[~over]
        return z

    def untried(self, scores: np.ndarray, batch: Batch, active: np.ndarray) -> np.ndarray:
        over = self._agents["over"]
        first = self.first.untried(scores, batch, active & ~over)
        return np.where(over[:, None], self.second.untried(scores, batch, active & over), first)


def nested(parts: Mapping[str, Any]) -> Packed:
    """What several prompts are made of, for one file."""
    arrays: dict[str, np.ndarray] = {}
    notes: dict[str, Any] = {}
    for name, part in parts.items():
        own, notes[name] = part.packed()
        arrays |= {f"{name}/{key}": array for key, array in own.items()}
    return arrays, notes


def _weighed(prompt: Prompt) -> tuple[tuple[float, Any], ...]:
    return prompt.parts if isinstance(prompt, SumPrompt) else ((1.0, prompt),)
