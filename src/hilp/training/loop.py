"""The only training loop: chunks of updates, metrics, evaluations, checkpoints; resumed, it ends in the same bits.

Whether distances among some states of the data still change is watched: where they do not, phi has learned what it will
learn from this data, and more updates only polish.
"""

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, overload

import jax
import numpy as np

from hilp.data import checks
from hilp.data.dataset import Dataset, require_dataset
from hilp.errors import HilpError, TrainingStopped, say
from hilp.learning import methods
from hilp.policy.policy import FoundationPolicy, require_own_process
from hilp.prompts.agent import has_ways
from hilp.prompts.bank import Bank
from hilp.runs import CHECKPOINTS, HELD_OUT, POLICY
from hilp.training import auto_config, distributed
from hilp.training.checkpoints import RunWriter, read_run
from hilp.training.options import Steps, TrainOptions
from hilp.training.progress import Progress, stop_requests
from hilp.training.run import Means, Run, scalars

CHUNK_SECONDS = 2.0  # about how long the device works between two updates of the progress line
STATES = 64  # whose distances are watched
CONVERGED = 0.03  # change of distances between two checks, relative to their mean, below which they stand still
CHECKS = 2  # in a row that must find them so
MOVING = 0.1  # change in the last part of a run that is worth a line


@overload
def pretrain(
    config: Any, data: Dataset, options: None = None, *, steps: Steps = ..., seeds: Literal[1] = 1, **keywords: Any
) -> FoundationPolicy: ...
@overload
def pretrain(
    config: Any, data: Dataset, options: None = None, *, steps: Steps = ..., seeds: int, **keywords: Any
) -> list[FoundationPolicy]: ...
@overload
def pretrain(config: Any, data: Dataset, options: TrainOptions) -> FoundationPolicy | list[FoundationPolicy]: ...
def pretrain(
    config: Any, data: Dataset, options: TrainOptions | None = None, **keywords: Any
) -> FoundationPolicy | list[FoundationPolicy]:
    """Train a policy on unlabeled data; returns a FoundationPolicy, or a list of them for several seeds.

    config: of a method (`hilp.HILP(...)`, `hilp.preset(...).config`). Or a name: "auto" for what `hilp pretrain` would
    take for this data without flags, the method, its laptop preset and number of updates; "gc-iql" for that method's.
    The keywords are the fields of `hilp.training.options.TrainOptions`, which explains each and can be passed instead:
    steps, most_steps, minutes, seed, seeds, out, resume, bank, validation, log_every, checkpoint_every, keep,
    device_budget, devices, evaluate, eval_every, on_metrics, on_policies, quiet, command.
    """
    if isinstance(config, str):
        if options is not None:
            raise HilpError("the config of a name goes with keywords, not with options, which it chooses in part")
        config, data, keywords = _by_name(config, data, keywords)
    methods.name_of(config)  # a model that only explains policies is no method
    if options is None and "steps" not in keywords:
        raise HilpError(
            "say for how many updates, steps=...; 'auto' or a method's name in place of a config knows how many"
        )
    options = TrainOptions(**keywords) if options is None else dataclasses.replace(options, **keywords)
    run = prepare(config, data, options)
    if options.updates <= run.last_stage_begins:
        say(
            f"warning: all {options.updates} updates train phi and none the policy: ask for more steps or lower "
            f"phi_steps (--set phi_steps={max(1, options.updates // 3)})"
        )
    session = Session(run)
    with session.writer.locked(), distributed.while_all_live():
        state, steps = session.train()
        policies = session.policies(state, steps)
        session.save(policies)
    if run.spec.pictures and not options.quiet:
        say(f"the policy keeps {policies[0].keeps}")
    if (line := session.convergence.still_moving(steps)) and not options.quiet:
        say(line)
    return policies[0] if options.seeds == 1 else policies


def _by_name(name: str, data: Dataset, keywords: dict[str, Any]) -> tuple[Any, Dataset, dict[str, Any]]:
    """The config of a name, the data as networks see it, and keywords with what nobody said."""
    require_dataset(data)
    given = TrainOptions(**{"steps": 1, **keywords})  # checked first
    before = read_run(given.folder) if given.resume and given.folder is not None else {}
    preset, data, found = auto_config.usual(name, data, given.minutes, before, given.quiet)
    begun = auto_config.as_begun(before, keywords.get("steps"), given.minutes)
    return auto_config.config_begun(preset.config, before), data, found | begun | keywords


def prepare(config: Any, data: Dataset, options: TrainOptions) -> Run:
    """A run of a config on data: both are checked, and open values of the config are chosen by the data."""
    require_own_process()
    require_dataset(data)
    checks.require_trainable(data)
    before = read_run(options.folder) if options.resume and options.folder is not None else {}
    config, data, fit_line = auto_config.resolve(config, data, before)
    if not distributed.writes(options.devices):
        # All processes compute rows of metrics together: those that report to no one still take part.
        unheard = None if options.on_metrics is None else (lambda row: None)
        options = dataclasses.replace(options, quiet=True, evaluate=None, on_metrics=unheard, on_policies=None)
    return Run(config, data, options, fit_line)


class Session:
    """One training: a run, its folder, and when it ends."""

    def __init__(self, run: Run, verb: str = "training") -> None:
        self.run, self.options, self.verb = run, run.options, verb
        self.convergence = Convergence(run)
        self.writer = RunWriter(run)
        self.pace = run.options.pace
        self.seconds = 0.0  # of training, time before a resume included
        self._evaluation: dict[str, float] = {}  # the latest scores
        self._evaluated: dict[str, float] = {}  # and their update, as a row of metrics has it

    def train(self) -> tuple[Any, int]:
        """Updates to the end; the state after them, and how many there were."""
        run, options, writer, convergence = self.run, self.options, self.writer, self.convergence
        step, state, note = writer.begin()
        self.seconds = float(note.get("seconds", 0.0))
        convergence.note = note.get("convergence") or convergence.note  # none where the run was not watched before
        if run.fit_line is not None and not options.quiet:
            say(run.fit_line)
        limit = None if options.minutes is None else 60 * options.minutes
        progress = Progress(options.updates, step, options.quiet, self.verb, limit)
        before, began_at, logged_at, done = self.seconds, time.perf_counter(), self.seconds, step
        chunk, over = 1, self._over(step)
        with progress, stop_requests() as stops, enough_memory(writer.own_folder, step):
            while not over:
                count = min(chunk, self.pace.boundary(step) - step, options.updates - step)
                began = time.perf_counter()
                state, means = run.advance(state, step, count)
                took = time.perf_counter() - began
                step += count
                self.seconds = before + time.perf_counter() - began_at  # validation and evaluations included
                if step % self.pace.convergence == 0:
                    convergence.check(state)
                # The next chunk grows slowly, because the first one compiles.
                chunk = int(min(max(1, CHUNK_SECONDS * count / took), 2 * chunk + 8))
                due = over or step % self.pace.log == 0 or self.seconds - logged_at >= options.log_seconds
                chunk, over, due, stop = distributed.agreed(chunk, self._over(step), due, bool(stops))
                progress.advance(count, scalars(means), self._evaluation, self.seconds)
                self._report(state, step, count, means, step - done if due or over else 0, progress.rate)
                if due or over:
                    logged_at, done = self.seconds, step
                if step % self.pace.checkpoint == 0 or over or writer.late or stop:
                    writer.save(state, step, self._note())
                if stop:
                    self._stop(step, over)
        return state, step

    def _stop(self, step: int, over: bool) -> None:
        if self.writer.folder is None:
            raise KeyboardInterrupt
        if not over:
            raise TrainingStopped(f"stopped at step {step} and saved; go on with --resume --out {self.options.out}")

    def _over(self, step: int) -> bool:
        converged = self.options.until_converged and self.convergence.note["still"] >= CHECKS
        minutes = self.options.minutes
        return step >= self.options.updates or converged or (minutes is not None and self.seconds >= 60 * minutes)

    def _note(self) -> dict[str, Any]:
        watched = {"convergence": self.convergence.note} if self.convergence.watches else {}
        return {**watched, **({} if self.options.minutes is None else {"seconds": self.seconds})}

    def _report(self, state: Any, step: int, count: int, means: Means, logged: int, rate: float) -> None:
        """Evaluate the policy and write a row of metrics where these are due; logged: updates that a row is about."""
        options, run, writer = self.options, self.run, self.writer
        if options.evaluate is not None and step % self.pace.evaluate == 0 and step > run.last_stage_begins:
            policy = run.policies(state, step)[0]
            self._evaluation, self._evaluated = options.evaluate(policy), {"evaluation_step": step}
        if writer.folder is None and options.on_metrics is None:
            return
        writer.waiting.append((count, means))
        if logged:
            seen = {} if self.convergence.change is None else {"phi_change": self.convergence.change}
            seen |= run.listening(state, step)
            more = {**run.validate(state, step, logged), **self._evaluation, **self._evaluated, **seen}
            self._notify(writer.log(step, {**more, "steps_per_second": round(rate, 3)}), state)

    def _notify(self, row: dict[str, float], state: Any) -> None:
        """Call on_metrics; if it fails, save first: hours of training are not lost with it."""
        try:
            if self.options.on_metrics is not None:
                self.options.on_metrics(row)
        except Exception as error:
            step, folder = int(row["step"]), self.writer.folder
            self.writer.save(state, step, self._note())
            saved = "not saved (no out)" if folder is None else f"saved; go on with --resume --out {folder}"
            own = isinstance(error, HilpError)
            what = str(error) if own else f"on_metrics failed with {type(error).__name__}: {error}"
            raise (type(error) if own else HilpError)(f"{what} (stopped at step {step} and {saved})") from error

    def policies(self, state: Any, steps: int) -> list[FoundationPolicy]:
        """The finished policies, with latents of the data and a graph where they plan on one."""
        data, bank = self.run.trained_on, self.options.bank
        policies = self.run.policies(state, steps, self.convergence.change)
        policies = [policy.with_latents(data, bank, own) for own, policy in enumerate(policies, self.run.seed)]
        policies = [policy.with_skills(data, own) for own, policy in enumerate(policies, self.run.seed)]
        if not self.options.quiet and any(map(has_ways, policies)):
            say("building the graph of the data ...")  # takes minutes on a busy machine
        return [policy.with_graph(data) if has_ways(policy) else policy for policy in policies]

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


@contextlib.contextmanager
def enough_memory(folder: Path | None, start: int) -> Iterator[None]:
    """Raise one line where the device has not enough memory, and leave no folder of a run that never began."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        if folder is not None and start == 0 and not any((folder / CHECKPOINTS).iterdir()):
            shutil.rmtree(folder, ignore_errors=True)
        raise HilpError("training does not fit in memory: lower batch or hidden or train fewer seeds at once") from None


@jax.jit
def _encode(core: Any, observations: Any) -> jax.Array:
    return core.encode(observations)


class Convergence:
    """Checks distances now and then, where a run is watched and trains them to its end: phi may be frozen halfway."""

    def __init__(self, run: Run) -> None:
        self._run, auto = run, run.options.until_converged
        # Of the latest check; in checkpoints, so that a run that is killed and resumed stops where it would have.
        self.note: dict[str, Any] = {"distances": None, "change": None, "still": 0}
        self.watches = (
            (auto or run.options.folder is not None)
            and len(run.stages) == 1
            and hasattr(run.exports(run.fresh)[0], "goal_direction")
        )
        if self.watches:
            self._observations = run.preparation.observations(Bank.draw(run.data, STATES, run.seed).observations)
        elif auto:
            name = methods.name_of(run.config)
            raise HilpError(f"steps='auto' watches distances, which {name} does not train all the time: give a number")

    @property
    def change(self) -> float | None:
        """The latest change of distances, where they are watched."""
        return self.note["change"]

    def check(self, state: Any) -> None:
        """Compare distances with those of the last check."""
        if not self.watches:
            return
        core = self._run.exports(state)[0]
        latents = np.asarray(_encode(core, self._observations), np.float64)
        one, other = np.triu_indices(len(latents), 1)
        if hasattr(core, "distance"):
            now = np.asarray(core.distance(latents[one], latents[other]), np.float64)
        else:
            now = np.linalg.norm(latents[one] - latents[other], axis=-1)
        before, change, still = (self.note[name] for name in ("distances", "change", "still"))
        if before is not None and now.mean() > 0:
            change = float(np.abs(now - np.asarray(before)).mean() / now.mean())
            still = still + 1 if change < CONVERGED else 0
        self.note = {"distances": now.tolist(), "change": change, "still": still}

    def still_moving(self, steps: int) -> str | None:
        """A line about a run that ended after so many updates while phi moved; None where it stood still."""
        if self.change is None or self.change <= MOVING:
            return None
        options = self._run.options
        moved = f"distances among states of the data changed by {self.change:.0%} in the last"
        longer = f"--resume --steps {2 * steps}, or with --resume --steps auto"
        if options.minutes is not None:
            longer = "--resume and more --minutes"  # how many more, the command says by the preset's updates
        return f"phi still moves: {moved} {options.pace.convergence:,} updates; go on with {longer}"
