"""The only training loop: chunks of updates, metrics, evaluations, checkpoints; killed and resumed, it ends in the same
bits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, Unpack, overload

from hilp import storage
from hilp.data import checks
from hilp.data.dataset import Dataset
from hilp.errors import HilpError, TrainingStopped, require_count
from hilp.learning import methods
from hilp.learning.images import pictures
from hilp.policy.agent import has_graph
from hilp.policy.forks import require_own_process
from hilp.policy.policy import FoundationPolicy
from hilp.runs import HELD_OUT, POLICY, seed_folder
from hilp.signals import on_stop
from hilp.training import auto_config, convergence, distributed, memory
from hilp.training.checkpoints import RunWriter, read_run
from hilp.training.progress import Progress
from hilp.training.run import Run, scalars

HELD_OUT_ROWS = 20_000  # kept beside the policy
AUTO_STEPS = 40_000  # updates of a run that is to end by itself, at most
LOOKS_PER_RUN = 8  # at distances, in a run that ends after so many updates
LINES_PER_RUN = 100  # metrics rows of a run, unless log_every says otherwise
CHUNK_SECONDS = 2.0  # about how long the device works between two updates of the progress line

Evaluate = Callable[[FoundationPolicy], dict[str, float]]
OnMetrics = Callable[[dict[str, float]], object]


class Pace(NamedTuple):
    """After how many updates things are done."""

    log: int
    checkpoint: int
    evaluate: int
    look: int  # at whether distances still change

    def boundary(self, step: int) -> int:
        """The next update after `step` at which something is to be done."""
        return min((step // every + 1) * every for every in self)


class Options(TypedDict, total=False):
    """What `pretrain` takes beside config, data, steps and seeds."""

    most_steps: int
    minutes: float | None
    seed: int
    out: str | os.PathLike[str] | None
    resume: bool
    bank: int
    validation: float
    log_every: int | None
    checkpoint_every: int | None
    keep: int
    device_budget: int | None
    devices: int
    evaluate: Evaluate | None
    eval_every: int | None
    on_metrics: OnMetrics | None
    quiet: bool
    command: str | None


@overload
def pretrain(
    config: Any, data: Dataset, *, steps: int | Literal["auto"], seeds: Literal[1] = 1, **options: Unpack[Options]
) -> FoundationPolicy: ...
@overload
def pretrain(
    config: Any, data: Dataset, *, steps: int | Literal["auto"], seeds: int, **options: Unpack[Options]
) -> list[FoundationPolicy]: ...
def pretrain(
    config: Any,
    data: Dataset,
    *,
    steps: int | Literal["auto"],
    most_steps: int = AUTO_STEPS,
    minutes: float | None = None,
    seed: int = 0,
    seeds: int = 1,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    bank: int = 50_000,
    validation: float = 0.0,
    log_every: int | None = None,
    checkpoint_every: int | None = None,
    keep: int = 2,
    device_budget: int | None = None,
    devices: int = 1,
    evaluate: Evaluate | None = None,
    eval_every: int | None = None,
    on_metrics: OnMetrics | None = None,
    quiet: bool = False,
    command: str | None = None,
) -> FoundationPolicy | list[FoundationPolicy]:
    """Train a policy on unlabeled data; returns a FoundationPolicy, or a list of them for several seeds.

    steps: updates, or "auto": until the distances among states of the data stop changing, but at most `most_steps`.
    minutes: stop after so long, those before a resumption included.
    out: folder of the run; without one nothing is written. resume: go on from its newest good checkpoint.
    seeds: train this many at once (seed, seed + 1, ...) in one compiled program. bank: states kept for planning.
    validation: share of episodes held out to watch the losses on; some are kept beside the policy. evaluate: asked for
    scores of the policy every `eval_every` steps, as soon as it has had an update. on_metrics: called with each row of
    metrics (docs/metrics.md) every `log_every` steps; if it raises, the run is saved and stops. keep: checkpoints kept
    on disk. device_budget: bytes of data that may be put on the device (default: half of its memory); larger data is
    read from where it is while training. devices: how many share out each batch; where several processes train together
    (`jax.distributed`), all of theirs, and the first process writes.
    """
    methods.name_of(config)  # a model that only explains policies is no method
    until_converged = steps == "auto"
    steps = most_steps if steps == "auto" else steps
    require_numbers(1, steps=steps, seeds=seeds, keep=keep)
    if minutes is not None and not 0 < minutes < math.inf:
        raise HilpError(f"minutes must be a number above 0, not {minutes}")
    require_numbers(1, log_every=log_every, checkpoint_every=checkpoint_every, eval_every=eval_every)
    require_numbers(0, seed=seed, bank=bank)
    if not 0.0 <= validation < 1.0:
        raise HilpError(f"validation is a share of the episodes, at least 0 and below 1, not {validation}")
    pace = Pace(
        log_every or max(1, steps // LINES_PER_RUN),
        checkpoint_every or max(1, steps // 10),
        eval_every or max(1, steps // 5),
        convergence.EVERY if until_converged else max(1, steps // LOOKS_PER_RUN),
    )
    folder = None if out is None else Path(out)
    before = read_run(folder) if resume and folder is not None else None
    writes = distributed.writes(require_count("devices", devices))
    scratch = folder if writes else None
    run = prepare(config, data, seed, seeds, validation, device_budget, scratch, before, devices)
    if steps <= run.last_stage_begins:
        print(
            f"hilp: warning: all {steps} updates train phi and none the policy: ask for more steps or lower phi_steps "
            f"(--set phi_steps={max(1, steps // 3)})",
            file=sys.stderr,
        )
    watched = until_converged or folder is not None
    watch = convergence.Convergence(run, pace.look) if watched and convergence.Convergence.fits(run) else None
    if until_converged and watch is None:
        name = methods.name_of(config)
        raise HilpError(f"steps='auto' watches distances, which {name} does not train all the time: give a number")
    writer = RunWriter(folder, keep, writes)
    if not writes:
        # All processes compute the rows of metrics together, so those that tell nobody must believe to be listened to.
        quiet, evaluate, on_metrics = True, None, None if on_metrics is None else unheard
    until = {**({"converged": True} if until_converged else {}), **({"minutes": minutes} if minutes else {})}
    with alone_in(folder if writes else None, command):
        start, state = writer.begin(run, steps, resume, command, until, pace)
        if run.fit_line is not None and not quiet:
            print(f"hilp: {run.fit_line}", file=sys.stderr)
        end = End(steps, until_converged, None if minutes is None else 60 * minutes, watch)
        end.recall(writer.noted)
        state, steps = loop(run, state, start, end, pace, writer, evaluate, bank, quiet, on_metrics=on_metrics)
        moving = None if watch is None else watch.change
        policies = run.policies(state, steps, bank, moving)
        policies = [policy.with_latents(run.trained_on, bank, own) for own, policy in enumerate(policies, run.seed)]
        policies = [policy.with_graph(run.trained_on) if has_graph(policy) else policy for policy in policies]
        if folder is not None and writes:
            kept = run.held_out_data(HELD_OUT_ROWS)
            if kept is not None:  # so that the policy can be measured wherever the data has gone
                kept.save(folder / HELD_OUT, overwrite=True)
            for number, policy in enumerate(policies):
                policy.save((folder if seeds == 1 else seed_folder(folder, seed + number)) / POLICY)
    if pictures(run.spec) and not quiet:
        print(f"hilp: the policy keeps {policies[0].keeps}", file=sys.stderr)
    if watch is not None and not quiet and (line := watch.still_moving(steps)):
        print(f"hilp: {line}", file=sys.stderr)
    return policies[0] if seeds == 1 else policies


def train(config: Any, data: Dataset, *, steps: int, seed: int = 0, quiet: bool = False, verb: str = "training") -> Any:
    """Train and return the bare export of a method, with nothing written; for models that are means, not ends."""
    steps = require_count("steps", steps)
    run = prepare(config, data, seed)
    pace = Pace(steps, steps, steps, steps)
    state, _ = loop(run, run.fresh, 0, End(steps), pace, RunWriter(None), quiet=quiet, verb=verb)
    return run.exports(state)[0]


def prepare(
    config: Any,
    data: Dataset,
    seed: int = 0,
    seeds: int = 1,
    validation: float = 0.0,
    device_budget: int | None = None,
    scratch: Path | None = None,
    before: Mapping[str, Any] | None = None,
    devices: int = 1,
) -> Run:
    """A run of a config on data, checked and fitted to each other. before: what a resumed run said of itself."""
    lists = {f.name: tuple(v) for f in dataclasses.fields(config) if isinstance(v := getattr(config, f.name), list)}
    config = dataclasses.replace(config, **lists)  # compiled programs are kept by config, which must not change
    require_own_process()
    if not isinstance(data, Dataset):
        raise HilpError(f"data must be a Dataset, not a {type(data).__name__}: make one with hilp.load(...)")
    checks.require_trainable(data)
    fit = auto_config.resolve(config, data, before)
    return Run(fit.config, fit.data, seed, seeds, validation, device_budget, scratch, fit.line, devices)


@dataclass
class End:
    """When a run ends: after so many updates, or before, when distances stand still or time is up."""

    steps: int
    until_converged: bool = False
    seconds: float | None = None
    watch: convergence.Convergence | None = None
    spent: float = 0.0  # seconds of training, those before a resumption included

    def reached(self, step: int) -> bool:
        converged = self.until_converged and self.watch is not None and self.watch.converged
        return step >= self.steps or converged or (self.seconds is not None and self.spent >= self.seconds)

    def note(self) -> dict[str, Any]:
        """For a checkpoint."""
        watched = {} if self.watch is None else {"convergence": self.watch.note()}
        return {**watched, **({} if self.seconds is None else {"seconds": self.spent})}

    def recall(self, note: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's note."""
        self.spent = float(note.get("seconds", 0.0))
        if self.watch is not None:
            self.watch.recall(note.get("convergence"))


def loop(
    run: Run,
    state: Any,
    start: int,
    end: End,
    pace: Pace,
    writer: RunWriter,
    evaluate: Evaluate | None = None,
    bank: int = 0,
    quiet: bool = False,
    verb: str = "training",
    on_metrics: OnMetrics | None = None,
) -> tuple[Any, int]:
    """Updates from `start` to the end; the state after them, and how many there were."""
    steps = end.steps
    evaluation: dict[str, float] = {}  # the latest one
    evaluated_at: dict[str, float] = {}
    watched = writer.folder is not None or on_metrics is not None
    step, chunk = start, 1
    progress = Progress(steps, start, quiet, verb)
    over = end.reached(step)
    with progress, stop_requests() as asked, memory.enough(writer.folder if writer.writes else None, start):
        while not over:
            count = min(chunk, pace.boundary(step) - step, steps - step)
            began = time.perf_counter()
            state, means = run.advance(state, step, count)
            took = time.perf_counter() - began
            step += count
            end.spent += took
            if end.watch is not None and step % pace.look == 0:
                end.watch.look(state)
            chunk = next_chunk(chunk, count, took)
            chunk, over, stop = distributed.agreed(run.mesh, chunk, end.reached(step), bool(asked))
            if watched:
                writer.add(count, means)
            progress.advance(count, scalars(means), evaluation)

            if evaluate is not None and step % pace.evaluate == 0 and step > run.last_stage_begins:
                evaluation, evaluated_at = evaluate(run.policies(state, step, bank)[0]), {"evaluation_step": step}
            if watched and (step % pace.log == 0 or over):
                rate = {"steps_per_second": round(progress.rate, 3)}
                moved = {} if end.watch is None or end.watch.change is None else {"phi_change": end.watch.change}
                held_out = run.validate(state, step, pace.log)
                row = writer.log(step, {**held_out, **evaluation, **evaluated_at, **moved, **rate})
                if on_metrics is not None:
                    tell(on_metrics, row, writer, state, end)
            if step % pace.checkpoint == 0 or over or writer.late or stop:
                writer.save(state, step, end.note())
            if stop and writer.folder is None:
                raise KeyboardInterrupt
            if stop and not over:
                raise TrainingStopped(f"stopped at step {step} and saved; go on with --resume --out {writer.folder}")
    return state, step


def unheard(row: dict[str, float]) -> None:
    """Stands for an `on_metrics` that another process calls."""


def tell(on_metrics: OnMetrics, row: dict[str, float], writer: RunWriter, state: Any, end: End) -> None:
    """Hand a row of metrics to whoever watches; where that fails, hours of training are not lost with it."""
    try:
        on_metrics(row)
    except Exception as error:
        step = int(row["step"])
        writer.save(state, step, end.note())
        saved = "not saved (no out)" if writer.folder is None else f"saved; go on with --resume --out {writer.folder}"
        if isinstance(error, HilpError):
            raise type(error)(f"{error} (stopped at step {step} and {saved})") from error
        what = f"on_metrics failed with {type(error).__name__}: {error}"
        raise HilpError(f"{what} (stopped at step {step} and {saved})") from error


def alone_in(folder: Path | None, command: str | None) -> contextlib.AbstractContextManager[None]:
    """Nobody else trains into this folder meanwhile; another run in it, or something else, is refused before."""
    if folder is None:
        return contextlib.nullcontext()
    if folder.exists() and not folder.is_dir():
        raise HilpError(f"{folder} exists and is not the folder of a run: choose another --out")
    return storage.locked(folder, command or " ".join(sys.argv))


def next_chunk(chunk: int, count: int, seconds: float) -> int:
    """How many updates to run at once, after `count` took this long; grows slowly, because the first chunk compiles."""
    return int(min(max(1, CHUNK_SECONDS * count / seconds), 2 * chunk + 8))


def require_numbers(low: int, **numbers: Any) -> None:
    """Raise one line about the first number that is given and makes no sense."""
    for name, value in numbers.items():
        if value is not None:
            require_count(name, value, low)


@contextlib.contextmanager
def stop_requests() -> Iterator[list[int]]:
    """A list that fills when the run is asked to stop, so that the chunk under way can end and be saved; twice stops at
    once.
    """
    asked: list[int] = []

    def ask(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    with on_stop(ask):
        yield asked
