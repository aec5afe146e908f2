"""The only training loop: chunks of updates, metrics, evaluations, checkpoints; killed and resumed, it ends in the same
bits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal, overload

from hilp.data import checks
from hilp.data.dataset import Dataset
from hilp.errors import HilpError, TrainingStopped
from hilp.learning import methods
from hilp.policy.policy import FoundationPolicy, require_own_process
from hilp.prompts.agent import has_graph
from hilp.runs import HELD_OUT, POLICY
from hilp.signals import on_stop
from hilp.training import auto_config, distributed, memory
from hilp.training.checkpoints import RunWriter, read_run
from hilp.training.convergence import Convergence
from hilp.training.options import TrainOptions
from hilp.training.progress import Progress
from hilp.training.run import Means, Run, scalars

CHUNK_SECONDS = 2.0  # about how long the device works between two updates of the progress line


@overload
def pretrain(
    config: Any,
    data: Dataset,
    options: None = None,
    *,
    steps: int | Literal["auto"],
    seeds: Literal[1] = 1,
    **keywords: Any,
) -> FoundationPolicy: ...
@overload
def pretrain(
    config: Any, data: Dataset, options: None = None, *, steps: int | Literal["auto"], seeds: int, **keywords: Any
) -> list[FoundationPolicy]: ...
@overload
def pretrain(config: Any, data: Dataset, options: TrainOptions) -> FoundationPolicy | list[FoundationPolicy]: ...
def pretrain(
    config: Any, data: Dataset, options: TrainOptions | None = None, **keywords: Any
) -> FoundationPolicy | list[FoundationPolicy]:
    """Train a policy on unlabeled data; returns a FoundationPolicy, or a list of them for several seeds.

    The keywords are the fields of `hilp.training.options.TrainOptions`, which explains each and can be passed instead:
    steps, most_steps, minutes, seed, seeds, out, resume, bank, validation, log_every, checkpoint_every, keep,
    device_budget, devices, evaluate, eval_every, on_metrics, on_policies, quiet, command.
    """
    methods.name_of(config)  # a model that only explains policies is no method
    options = TrainOptions(**keywords) if options is None else dataclasses.replace(options, **keywords)
    run = prepare(config, data, options)
    if options.updates <= run.last_stage_begins:
        print(
            f"hilp: warning: all {options.updates} updates train phi and none the policy: ask for more steps or lower "
            f"phi_steps (--set phi_steps={max(1, options.updates // 3)})",
            file=sys.stderr,
        )
    session = Session(run)
    with session.writer:
        state, steps = session.train()
        policies = session.policies(state, steps)
        session.save(policies)
    session.print_advice(policies, steps)
    return policies[0] if options.seeds == 1 else policies


def train(config: Any, data: Dataset, *, steps: int, seed: int = 0, quiet: bool = False, verb: str = "training") -> Any:
    """Train and return the bare export of a method, with nothing written; for models that are means, not ends."""
    run = prepare(config, data, TrainOptions(steps=steps, seed=seed, quiet=quiet))
    state, _ = Session(run, verb).train()
    return run.exports(state)[0]


def prepare(config: Any, data: Dataset, options: TrainOptions) -> Run:
    """A run of a config on data: both are checked, and open values of the config are chosen by the data."""
    lists = {f.name: tuple(v) for f in dataclasses.fields(config) if isinstance(v := getattr(config, f.name), list)}
    config = dataclasses.replace(config, **lists)  # compiled programs are kept by config, which must not change
    require_own_process()
    require_dataset(data)
    checks.require_trainable(data)
    before = read_run(options.folder) if options.resume and options.folder is not None else None
    chosen = auto_config.resolve(config, data, before)
    if not distributed.writes(options.devices):
        # All processes compute rows of metrics together: those that report to no one still take part.
        unheard = None if options.on_metrics is None else (lambda row: None)
        options = dataclasses.replace(options, quiet=True, evaluate=None, on_metrics=unheard, on_policies=None)
    return Run(chosen.config, chosen.data, options, chosen.line)


def require_dataset(data: Any) -> None:
    """Raise where data is something else than a Dataset."""
    if not isinstance(data, Dataset):
        raise HilpError(f"data must be a Dataset, not a {type(data).__name__}: make one with hilp.load(...)")


class Session:
    """One training: a run, its folder, and when it ends."""

    def __init__(self, run: Run, verb: str = "training") -> None:
        self.run, self.options, self.verb = run, run.options, verb
        self.convergence = Convergence.of(run)
        self.writer = RunWriter(run)
        self.pace = run.options.pace
        self.seconds = 0.0  # of training, time before a resume included
        self._evaluation: dict[str, float] = {}  # the latest scores
        self._evaluated: dict[str, float] = {}  # and their update, as a row of metrics has it

    # ---- the loop ----------------------------------------------------------------------------------------------------

    def train(self) -> tuple[Any, int]:
        """Updates to the end; the state after them, and how many there were."""
        run, options, writer = self.run, self.options, self.writer
        step, state = writer.begin()
        self._restore(writer.note)
        if run.fit_line is not None and not options.quiet:
            print(f"hilp: {run.fit_line}", file=sys.stderr)
        progress = Progress(options.updates, step, options.quiet, self.verb)
        chunk, over = 1, self._over(step)
        with progress, stop_requests() as stops, memory.enough(writer.own_folder, step):
            while not over:
                count = min(chunk, self.pace.boundary(step) - step, options.updates - step)
                began = time.perf_counter()
                state, means = run.advance(state, step, count)
                took = time.perf_counter() - began
                step += count
                self.seconds += took
                if self.convergence is not None and step % self.pace.convergence == 0:
                    self.convergence.check(state)
                chunk = next_chunk(chunk, count, took)
                chunk, over, stop = distributed.agreed(chunk, self._over(step), bool(stops))
                progress.advance(count, scalars(means), self._evaluation)
                self._report(state, step, count, means, over, progress.rate)
                if step % self.pace.checkpoint == 0 or over or writer.late or stop:
                    writer.save(state, step, self._note())
                if stop:
                    self._stop(step, over)
        return state, step

    def _stop(self, step: int, over: bool) -> None:
        """End a run that is to stop, and was saved if it can be."""
        if self.writer.folder is None:
            raise KeyboardInterrupt
        if not over:
            raise TrainingStopped(f"stopped at step {step} and saved; go on with --resume --out {self.writer.folder}")

    def _over(self, step: int) -> bool:
        converged = self.options.until_converged and self.convergence is not None and self.convergence.converged
        minutes = self.options.minutes
        return step >= self.options.updates or converged or (minutes is not None and self.seconds >= 60 * minutes)

    def _report(self, state: Any, step: int, count: int, means: Means, over: bool, rate: float) -> None:
        """Evaluate the policy and write a row of metrics where these are due."""
        options, run, writer = self.options, self.run, self.writer
        if options.evaluate is not None and step % self.pace.evaluate == 0 and step > run.last_stage_begins:
            policy = run.policies(state, step)[0]
            self._evaluation, self._evaluated = options.evaluate(policy), {"evaluation_step": step}
        if writer.folder is None and options.on_metrics is None:
            return
        writer.add(count, means)
        if step % self.pace.log == 0 or over:
            moved = {} if self._change is None else {"phi_change": self._change}
            more = {**run.validate(state, step, self.pace.log), **self._evaluation, **self._evaluated, **moved}
            self._notify(writer.log(step, {**more, "steps_per_second": round(rate, 3)}), state)

    @property
    def _change(self) -> float | None:
        """The latest change of distances, where they are watched."""
        return None if self.convergence is None else self.convergence.change

    def _notify(self, row: dict[str, float], state: Any) -> None:
        """Call on_metrics; if it fails, save first: hours of training are not lost with it."""
        try:
            if self.options.on_metrics is not None:
                self.options.on_metrics(row)
        except Exception as error:
            step, folder = int(row["step"]), self.writer.folder
            self.writer.save(state, step, self._note())
            saved = "not saved (no out)" if folder is None else f"saved; go on with --resume --out {folder}"
            if isinstance(error, HilpError):
                raise type(error)(f"{error} (stopped at step {step} and {saved})") from error
            what = f"on_metrics failed with {type(error).__name__}: {error}"
            raise HilpError(f"{what} (stopped at step {step} and {saved})") from error

    def _note(self) -> dict[str, Any]:
        """What a checkpoint holds besides the state."""
        watched = {} if self.convergence is None else {"convergence": self.convergence.note}
        return {**watched, **({} if self.options.minutes is None else {"seconds": self.seconds})}

    def _restore(self, note: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's note."""
        self.seconds = float(note.get("seconds", 0.0))
        if self.convergence is not None and note.get("convergence"):  # none where the run was not watched before
            self.convergence.note = note["convergence"]

    # ---- the policies ------------------------------------------------------------------------------------------------

    def policies(self, state: Any, steps: int) -> list[FoundationPolicy]:
        """The finished policies, with latents of the data and a graph where they plan on one."""
        data, bank = self.run.trained_on, self.options.bank
        policies = self.run.policies(state, steps, self._change)
        policies = [policy.with_latents(data, bank, own) for own, policy in enumerate(policies, self.run.seed)]
        return [policy.with_graph(data) if has_graph(policy) else policy for policy in policies]

    def save(self, policies: list[FoundationPolicy]) -> None:
        """Write the policies, and held-out episodes: so a policy can be measured without the data."""
        folder, on_policies = self.writer.own_folder, self.options.on_policies
        held_out = None if folder is None and on_policies is None else self.run.held_out_data()
        if folder is not None and held_out is not None:
            held_out.save(folder / HELD_OUT, overwrite=True)
        try:
            if on_policies is not None:
                on_policies(policies, held_out)
        finally:  # a policy that cannot be measured is a policy all the same
            for seed, policy in enumerate(policies if folder is not None else (), self.options.seed):
                policy.save(self.options.home(seed) / POLICY)

    def print_advice(self, policies: list[FoundationPolicy], steps: int) -> None:
        """Print what a policy of pictures keeps, and whether phi still moves."""
        if self.options.quiet:
            return
        if self.run.spec.pictures:
            print(f"hilp: the policy keeps {policies[0].keeps}", file=sys.stderr)
        if self.convergence is not None and (line := self.convergence.still_moving(steps)):
            print(f"hilp: {line}", file=sys.stderr)


def next_chunk(chunk: int, count: int, seconds: float) -> int:
    """How many updates to run at once, after `count` took this long; grows slowly, because the first chunk compiles."""
    return int(min(max(1, CHUNK_SECONDS * count / seconds), 2 * chunk + 8))


@contextlib.contextmanager
def stop_requests() -> Iterator[list[int]]:
    """A list that fills with signals to stop, so that the chunk under way can end and be saved; a second one stops the
    process at once.
    """
    received: list[int] = []

    def receive(number: int, frame: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    with on_stop(receive):
        yield received
