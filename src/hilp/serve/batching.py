"""The thread that acts for all robots: observations that wait together are one call of the networks.

Each robot has a prompt of its own, which remembers its episode. Batches have one of a few sizes, padded, so that what
was compiled when the server began is all that is ever compiled to act.
"""

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from hilp import trees
from hilp.prompts.agent import Batch
from hilp.prompts.base import Prompt
from hilp.prompts.promptable import PromptablePolicy

SIZES = (1, 4, 16)  # of batches
NOBODY, ONE = np.zeros(1, bool), np.ones(1, bool)


@dataclass(frozen=True)
class Request:
    """An observation that waits for its actions, horizon x act."""

    batch: Batch  # of one observation, checked
    prompt: Prompt
    actions: "Future[np.ndarray]" = field(default_factory=Future)


class Batcher:
    """Answers requests in the order in which they come, as many at once as are waiting."""

    def __init__(self, policy: PromptablePolicy) -> None:
        self.policy = policy
        self._waiting: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="hilp-batcher", daemon=True)

    def start(self) -> None:
        """Compile what acting takes, then begin."""
        policy = self.policy
        for size in SIZES:
            batch = joined([example(policy)], size)
            if policy.has_rule("encode"):
                policy.latents(batch)
            policy.rule("act", batch, np.zeros((size, policy.skill_dim), np.float32))
        self._thread.start()

    def close(self) -> None:
        self._waiting.put(None)

    def act(self, batch: Batch, prompt: Prompt) -> "Future[np.ndarray]":
        """The actions of a robot, once it is its turn."""
        request = Request(batch, prompt)
        self._waiting.put(request)
        return request.actions

    def try_out(self, prompt: Prompt) -> None:
        """Act once under a new prompt, alone and beside another: what is compiled for it is compiled here."""
        for count in (1, 2):
            requests = [Request(example(self.policy), prompt.fresh()) for _ in range(count)]
            self._answer(requests)
            for request in requests:
                request.actions.result()

    def _run(self) -> None:
        while (request := self._waiting.get()) is not None:
            together = [request]
            while len(together) < SIZES[-1]:
                try:
                    further = self._waiting.get_nowait()
                except queue.Empty:
                    break
                if further is None:
                    self._waiting.put(None)
                    break
                together.append(further)
            if live := [one for one in together if one.actions.set_running_or_notify_cancel()]:
                self._answer(live)

    def _answer(self, together: Sequence[Request]) -> None:
        """Give all of them their actions, or an error."""
        try:
            self._act(together)
        except Exception as error:
            for request in together:
                if not request.actions.done():
                    request.actions.set_exception(error)

    def _act(self, together: Sequence[Request]) -> None:
        policy = self.policy
        batch = joined([request.batch for request in together], next(n for n in SIZES if n >= len(together)))
        policy.data_range.warn("observation", batch.tree)
        answers = together[0].prompt.step(together[0].batch) if len(together) == 1 else None
        if answers is None:
            if policy.has_rule("encode") and any(one.prompt.kind != "skill" for one in together):
                policy.latents(batch)  # once for all; a skill does not ask where it is
            skills = np.zeros((len(batch), policy.skill_dim), np.float32)
            for row, request in enumerate(together):
                try:
                    skills[row] = request.prompt(batch.take(slice(row, row + 1)))[0]
                except Exception as error:  # of one prompt: the others act
                    request.actions.set_exception(error)
            answers = policy.rule("act", batch, skills)
        if policy.spec.choices and policy.chunk == 1:
            answers = np.array(answers)
            for number, request in enumerate(together):
                if not request.actions.done():
                    own = slice(number, number + 1)
                    answers[own] = request.prompt.untried(answers[own], batch.take(own), ONE)
        for request, actions in zip(together, policy.until_asked(policy.chosen(answers)), strict=False):
            if request.actions.done():
                continue
            for _ in range(policy.horizon - 1):  # what prompts remember counts steps
                request.prompt(request.batch, active=NOBODY)
            request.actions.set_result(actions)


def joined(batches: Sequence[Batch], size: int) -> Batch:
    """Observations as one batch of a size; its last rows are the last observation again."""
    padded = [*batches, *[batches[-1]] * (size - len(batches))]
    return Batch(trees.over(lambda *parts: np.concatenate(parts), *(one.tree for one in padded)), False)


def example(policy: PromptablePolicy) -> Batch:
    """One observation: the first that the policy keeps, else zeros."""
    if len(policy.bank):
        return Batch(trees.over(lambda rows: np.asarray(rows[:1]), policy.bank.observations), True)
    parts = {name: np.zeros((1, *shape), kind) for name, shape, kind in policy.spec.parts}
    return Batch(parts or np.zeros((1, policy.spec.observation_dim), np.float32), True)
