"""The only training loop: fused chunks of updates, metrics, checkpoints, exact resume.

The data lives on the device and is an argument of one compiled program; sampling happens inside. Data too large for
the device stays where it is (a mapped file), and a thread gathers batches ahead: the same rows for the same seed. The
randomness of update i is fold_in(seed key, i) and nothing else, so a run killed and resumed ends in the same bits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hilp import storage
from hilp.data import checks
from hilp.data.dataset import Dataset
from hilp.errors import HilpError, TrainingDiverged, TrainingStopped
from hilp.learning import methods, sampling
from hilp.policy.bank import Bank
from hilp.policy.policy import FoundationPolicy
from hilp.policy.preparation import Preparation
from hilp.policy.provenance import Provenance
from hilp.runs import CHECKPOINTS, METRICS, POLICY, RUN
from hilp.spec import Spec
from hilp.training.progress import Progress
from hilp.versions import versions

VALIDATION_BATCHES = 8
LINES_PER_RUN = 100  # metrics rows of a run, unless log_every says otherwise
CHUNK_SECONDS = 2.0  # about how long the device works between two looks of the progress line
CHECKPOINT_MINUTES = 5.0  # a slow run is saved at least this often
STREAM_BLOCK = 32  # updates whose batches are gathered at a time where the data stays on the host
FREEZE_BLOCK = 8192  # rows whose latents are computed at a time

Look = Callable[[FoundationPolicy], dict[str, float]]


def pretrain(
    config: Any,
    data: Dataset,
    *,
    steps: int,
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
    look: Look | None = None,
    look_every: int | None = None,
    quiet: bool = False,
    command: str | None = None,
) -> Any:
    """Train a policy on unlabeled data; returns a FoundationPolicy, or a list of them for several seeds.

    out: folder of the run; without one nothing is written. resume: go on from its newest good checkpoint.
    seeds: train this many at once (seed, seed + 1, ...) in one compiled program. bank: states kept for planning.
    validation: share of episodes held out to watch the losses on. look: evaluates the policy every `look_every` steps,
    as soon as it has had an update. keep: checkpoints kept on disk. device_budget: bytes of data that may be put on the
    device (default: half of its memory); larger data is read from where it is while training.
    """
    methods.name_of(config)
    lists = {f.name: tuple(v) for f in dataclasses.fields(config) if isinstance(v := getattr(config, f.name), list)}
    config = dataclasses.replace(config, **lists)  # compiled programs are kept by config, which must not change
    if not isinstance(data, Dataset):
        raise HilpError(f"data must be a Dataset, not a {type(data).__name__}: make one with hilp.load(...)")
    smallest: dict[str, tuple[int | None, int]] = {
        "steps": (steps, 1),
        "seeds": (seeds, 1),
        "seed": (seed, 0),
        "bank": (bank, 0),
        "keep": (keep, 1),
        "log_every": (log_every, 1),
        "checkpoint_every": (checkpoint_every, 1),
        "look_every": (look_every, 1),
    }
    for name, (value, low) in smallest.items():
        if value is not None and value < low:
            raise HilpError(f"{name} must be at least {low}, not {value}")
    if not 0.0 <= validation < 1.0:
        raise HilpError(f"validation is a share of the episodes, at least 0 and below 1, not {validation}")
    checks.require_trainable(data)
    run = Run(config, data, seed, seeds, validation, device_budget)
    log_every = log_every or max(1, steps // LINES_PER_RUN)
    checkpoint_every = checkpoint_every or max(1, steps // 10)
    look_every = look_every or max(1, steps // 5)
    folder = None if out is None else Path(out)
    if run.frozen_from is not None and steps <= run.frozen_from:
        print(
            f"hilp: warning: all {steps} updates train phi and none the policy: ask for more steps or lower phi_steps "
            f"(--set phi_steps={max(1, steps // 3)})",
            file=sys.stderr,
        )
    start, state = 0, run.fresh
    run.scratch = folder
    if folder is not None:
        description = run.description(steps, command)
        _require_own_folder(folder, description, resume)
        if resume:
            start, state = _newest_checkpoint(folder, run)
        if start > steps:
            raise HilpError(f"{folder} is already at step {start}, past the {steps} asked for: ask for more steps")
        _open_folder(folder, description)
        _trim_metrics(folder / METRICS, start)

    waiting: list[tuple[int, dict[str, np.ndarray]]] = []  # chunks since the last metrics row
    saved_at = time.monotonic()
    looked: dict[str, float] = {}  # the latest evaluation
    looked_at: dict[str, int] = {}  # and its step
    step, chunk = start, 1
    with Progress(steps, start, quiet) as progress, _asked_to_stop() as asked, _enough_memory(folder, start):
        while step < steps:
            boundary = min((step // every + 1) * every for every in (log_every, checkpoint_every, look_every))
            count = min(chunk, boundary - step, steps - step)
            began = time.perf_counter()
            state, means = run.advance(state, step, count)
            took = time.perf_counter() - began
            step += count
            waiting.append((count, means))
            chunk = _next_chunk(chunk, count, took)
            progress.advance(count, _scalars(means), looked)

            if step % look_every == 0 and look is not None and step > (run.frozen_from or 0):
                looked, looked_at = look(run.policies(state, step, bank)[0]), {"look_step": step}
            if (step % log_every == 0 or step == steps) and folder is not None:
                row = {
                    "step": step,
                    **_scalars(_weighted_mean(waiting)),
                    **run.validate(state, step),
                    **looked,
                    **looked_at,
                }
                _append_metrics(folder / METRICS, {**row, "steps_per_second": round(progress.rate, 3)})
                waiting = []
            late = time.monotonic() - saved_at > 60 * CHECKPOINT_MINUTES
            if folder is not None and (step % checkpoint_every == 0 or step == steps or late):
                _save_checkpoint(folder, state, step, keep)
                saved_at = time.monotonic()
            if asked and step < steps:
                if folder is None:
                    raise KeyboardInterrupt
                _save_checkpoint(folder, state, step, keep)
                raise TrainingStopped(f"stopped at step {step} and saved; go on with --resume --out {folder}")

    policies = run.policies(state, steps, bank)
    if folder is not None:
        for number, policy in enumerate(policies):
            policy.save(folder / POLICY if seeds == 1 else folder / f"seed-{seed + number}" / POLICY)
    return policies[0] if seeds == 1 else policies


class Run:
    """One compiled program and its data, on the device or streamed to it."""

    def __init__(
        self, config: Any, data: Dataset, seed: int, seeds: int, validation: float, device_budget: int | None = None
    ):
        self.config, self.data, self.seed, self.seeds, self.validation = config, data, seed, seeds, validation
        self.method = methods.of(config)
        self.spec = Spec(data.observation_dim, data.action_dim)
        self.preparation = Preparation.of(data, config.normalize)
        self.index, self.held_out = sampling.build_index(data.lengths, self._held_out_episodes())
        keys = jnp.stack([jax.random.key(s) for s in range(seed, seed + seeds)])
        # Key 0 of the stream starts the networks; updates use keys 1, 2, ...
        first = jax.vmap(lambda key: jax.random.fold_in(key, 0))(keys)
        self.keys = keys[0] if seeds == 1 else keys

        columns = sampling.Columns(data.observations, data.actions, self.preparation.mean, self.preparation.scale)
        self.frozen_from = methods.frozen_from(config)
        self.scratch: Path | None = None  # where latents too large for memory may lie; the system's choice without
        self._latent_dim = 0 if self.frozen_from is None else latent_dim(config, self.spec)
        bytes_on_device = 4 * data.rows * (data.observation_dim + data.action_dim + seeds * self._latent_dim)
        self.streamed = bytes_on_device > (default_device_budget() if device_budget is None else device_budget)
        if self.streamed:
            self.stream = Stream(self.method, config, columns, self.keys)
        else:
            # device_put, not jnp.asarray: on a CPU it shares the memory of a mapped file where it can
            self.columns = jax.device_put(
                sampling.Columns(*(np.asarray(column, np.float32) for column in columns if column is not None))
            )
        init, self._chunk = programs(config, self.spec, seeds > 1, self.streamed)
        self.fresh = init(first[0] if seeds == 1 else first)

    def advance(self, state: Any, step: int, count: int) -> tuple[Any, dict[str, np.ndarray]]:
        """`count` updates from `step`; the mean of each metric, per seed."""
        results = list(self._chunks(state, self.index, step, count))
        means, broken = [], {}
        for _, now, sums, bad in results:
            means.append((now, {name: np.asarray(total) / now for name, total in sums.items()}))
            for name, steps in bad.items():
                at = min((int(at) for at in np.ravel(np.asarray(steps)) if at), default=0)
                if at and name not in broken:
                    broken[name] = at
        if broken:
            name = min(broken, key=lambda n: broken[n])
            raise TrainingDiverged(
                f"{name} became NaN or infinite at step {broken[name]}: the last good checkpoint is kept; lower lr "
                "(--set lr=1e-4) or check the scale of the observations (--set normalize=true)"
            )
        return results[-1][0], _weighted_mean(means)

    def validate(self, state: Any, step: int) -> dict[str, float]:
        """Metrics on held-out episodes: updates that are thrown away, by the same compiled program."""
        if self.held_out is None:
            return {}
        rows = []
        for batch in range(VALIDATION_BATCHES):
            copy = jax.tree.map(jnp.copy, state)  # the program consumes its state
            # Where latents will be frozen, looking ahead must not cross that line.
            at = step + batch if self.frozen_from is None or step > self.frozen_from else max(0, step - 1 - batch)
            ((_, _, sums, _),) = self._chunks(copy, self.held_out, at, 1)
            rows.append(_scalars(jax.tree.map(np.asarray, sums)))
        return {f"validation_{name}": float(np.mean([row[name] for row in rows])) for name in rows[0]}

    def _chunks(self, state: Any, index: sampling.Index, step: int, count: int) -> Iterator[tuple[Any, int, Any, Any]]:
        """Run `count` updates in one or several pieces; of each its state, its updates, sums of metrics, first NaNs.

        One piece where the data is on the device, block after block where it is streamed; another one where latents
        are frozen.
        """
        while count:
            now = min(count, STREAM_BLOCK) if self.streamed else count
            if self.frozen_from is not None:
                if step < self.frozen_from:
                    now = min(now, self.frozen_from - step)
                elif (self.stream if self.streamed else self).columns.latents is None:
                    self._keep_latents(state)
            source = self.stream.block(index, step) if self.streamed else (self.columns, index)
            state, sums, bad = self._chunk(state, source, self.keys, jnp.int32(step), jnp.int32(now))
            step, count = step + now, count - now
            yield state, now, sums, bad

    def _keep_latents(self, state: Any) -> None:
        """Compute the frozen latents of all rows; from here on batches carry them."""
        one = partial(self.method.freeze, self.config)
        freeze = jax.jit(one if self.seeds == 1 else jax.vmap(one, in_axes=(0, None)))
        shape = (*self.keys.shape, self.data.rows, self._latent_dim)
        if self.streamed:  # data that is streamed may be larger than memory, and so may its latents
            latents: np.ndarray = _scratch_array(shape, self.scratch)
        else:
            latents = np.empty(shape, np.float32)
        mean, scale = (np.asarray(column, np.float32) for column in (self.preparation.mean, self.preparation.scale))
        for first in range(0, self.data.rows, FREEZE_BLOCK):
            rows = slice(first, first + FREEZE_BLOCK)
            block = np.asarray(self.data.observations[rows], np.float32)
            latents[..., rows, :] = freeze(state, (block - mean) / scale)
        if self.streamed:
            self.stream.columns = self.stream.columns._replace(latents=latents)
        else:
            self.columns = self.columns._replace(latents=jax.device_put(latents))

    def _held_out_episodes(self) -> np.ndarray | None:
        if self.validation == 0.0:
            return None
        rng = np.random.default_rng(self.seed)
        count = max(1, round(self.validation * self.data.episodes))
        if count >= self.data.episodes:
            raise HilpError(f"validation {self.validation} of {self.data.episodes} episodes leaves none to train on")
        return np.isin(np.arange(self.data.episodes), rng.choice(self.data.episodes, count, replace=False))

    def policies(self, state: Any, step: int, bank: int) -> list[FoundationPolicy]:
        """The policy of each seed, with its bank of data states."""
        provenance = Provenance(
            data=self.data.name,
            data_fingerprint=self.data.fingerprint,
            task=self.data.task,
            first_observation=np.asarray(self.data.observations[0], np.float64).tolist(),
            steps=step,
            versions=versions(),
        )
        policies = []
        for number in range(self.seeds):
            own = state if self.seeds == 1 else jax.tree.map(lambda leaf, n=number: leaf[n], state)
            core = jax.tree.map(jnp.copy, self.method.export(self.config, own))
            sample = Bank.draw(self.data, bank, self.seed + number)
            about = dataclasses.replace(provenance, seed=self.seed + number)
            policy = FoundationPolicy(
                self.config, self.spec, core, self.preparation, sample, about, self.data.observation_parts
            )
            policies.append(policy)
        return policies

    def description(self, steps: int, command: str | None) -> dict[str, Any]:
        """What identifies a run (checked on resume), and what is good to know about it."""
        return {
            "method": methods.name_of(self.config),
            "config": methods.described(self.config),
            "seed": self.seed,
            "seeds": self.seeds,
            "validation": self.validation,
            "data_fingerprint": self.data.fingerprint,
            "data": self.data.name,
            "steps": steps,
            "command": command or " ".join(sys.argv),
            "versions": versions(),
        }


def fit(config: Any, data: Dataset, steps: int, seed: int = 0, quiet: bool = False, verb: str = "training") -> Any:
    """Train and return the bare export of a method, with nothing written; for models that are means, not ends."""
    run = Run(config, data, seed, seeds=1, validation=0.0)
    state, step, chunk = run.fresh, 0, 1
    with Progress(steps, 0, quiet, verb) as progress, _enough_memory(None, 0):
        while step < steps:
            count = min(chunk, steps - step)
            began = time.perf_counter()
            state, means = run.advance(state, step, count)
            chunk = _next_chunk(chunk, count, time.perf_counter() - began)
            step += count
            progress.advance(count, _scalars(means), {})
    return run.method.export(config, state)


def _next_chunk(chunk: int, count: int, seconds: float) -> int:
    """How many updates to run at once, after `count` took this long; grows slowly, because the first chunk compiles."""
    return int(min(max(1, CHUNK_SECONDS * count / seconds), 2 * chunk + 8))


@lru_cache(maxsize=32)
def programs(config: Any, spec: Spec, several: bool, streamed: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The compiled `init` and chunk of a config, for one seed or several; shared by the runs of a session."""
    method = methods.of(config)
    init = partial(method.init, config, spec)
    chunk = chunk_function(method, config, stored_batch if streamed else partial(drawn_batch, method, config))
    if several:
        return jax.jit(jax.vmap(init)), jax.jit(partial(chunk_of_seeds, chunk, streamed), donate_argnums=0)
    return jax.jit(init), jax.jit(chunk, donate_argnums=0)


def chunk_of_seeds(
    chunk: Callable[..., Any], streamed: bool, states: Any, source: Any, keys: jax.Array, start: Any, count: Any
) -> Any:
    """A chunk for several seeds at once. They share the data on the device, but each has its own frozen latents."""
    axes: Any = 0
    if not streamed:
        columns: dict[str, Any] = dict.fromkeys(sampling.Columns._fields)
        axes = (sampling.Columns(**(columns if source[0].latents is None else columns | {"latents": 0})), None)
    return jax.vmap(chunk, in_axes=(0, axes, 0, None, None))(states, source, keys, start, count)


def latent_dim(config: Any, spec: Spec) -> int:
    """How many numbers a method freezes for each row."""
    method = methods.of(config)

    def some() -> Any:
        state = method.init(config, spec, jax.random.key(0))
        return method.freeze(config, state, jnp.zeros((1, spec.observation_dim)))

    return int(jax.eval_shape(some).shape[-1])


def chunk_function(method: ModuleType, config: Any, batch_of: Callable[..., Any]) -> Callable[..., Any]:
    """`count` updates as one loop with a dynamic bound, so every chunk length runs the same compiled code.

    `batch_of(source, key, i)` is the batch of the chunk's i-th update.
    """
    # The inner jit caches its trace: asking for the shapes of the metrics does not trace `update` a second time.
    update = jax.jit(partial(method.update, config), inline=True)

    def one(state: Any, source: Any, key: jax.Array, i: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
        key_rows, key_update = jax.random.split(key)
        return update(state, batch_of(source, key_rows, i), key_update)

    def chunk(state: Any, source: Any, key: jax.Array, start: jax.Array, count: jax.Array) -> Any:
        shapes = jax.eval_shape(one, state, source, key, count)[1]
        sums = {name: jnp.zeros((), jnp.float32) for name in shapes}
        bad = {name: jnp.zeros((), jnp.int32) for name in shapes}  # step of the first NaN, counted from 1; 0 is none

        def body(i: jax.Array, carry: Any) -> Any:
            state, sums, bad = carry
            state, info = one(state, source, jax.random.fold_in(key, i + 1), i - start)
            for name, metric in info.items():
                sums = {**sums, name: sums[name] + metric}
                bad = {**bad, name: jnp.where((bad[name] == 0) & ~jnp.isfinite(metric), i + 1, bad[name])}
            return state, sums, bad

        return jax.lax.fori_loop(start, start + count, body, (state, sums, bad))

    return chunk


def drawn_batch(method: ModuleType, config: Any, source: Any, key: jax.Array, i: jax.Array) -> Any:
    """A batch drawn from columns on the device."""
    columns, index = source
    return sampling.gather(columns, method.sample(config, index, key))


def stored_batch(source: Any, key: jax.Array, i: jax.Array) -> Any:
    """The i-th batch of a block that was gathered on the host."""
    return jax.tree.map(lambda stack: jax.lax.dynamic_index_in_dim(stack, i, keepdims=False), source)


class Stream:
    """Blocks of batches from columns that stay on the host; the next block is gathered while the device works."""

    def __init__(self, method: ModuleType, config: Any, columns: sampling.Columns, keys: jax.Array):
        self.columns = columns
        self._keys = keys
        self._ahead: tuple[Any, Future[Any]] | None = None  # what is being gathered
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hilp-stream")

        def rows(index: sampling.Index, key: jax.Array, start: jax.Array) -> sampling.Rows:
            steps = start + 1 + jnp.arange(STREAM_BLOCK)
            keys = jax.vmap(lambda step: jax.random.split(jax.random.fold_in(key, step))[0])(steps)
            return jax.vmap(lambda k: method.sample(config, index, k))(keys)

        over_seeds = rows if keys.ndim == 0 else jax.vmap(rows, in_axes=(None, 0, None))
        self._rows = jax.jit(over_seeds)

    def block(self, index: sampling.Index, start: int) -> Any:
        """The batches of updates start, start + 1, ...; also begins to gather the block after them."""
        wanted = self._name(index, start)
        ready = self._ahead[1] if self._ahead is not None and self._ahead[0] == wanted else None
        batches = self._gather(index, start) if ready is None else ready.result()
        after = start + STREAM_BLOCK
        self._ahead = (self._name(index, after), self._worker.submit(self._gather, index, after))
        return batches

    def _name(self, index: sampling.Index, start: int) -> tuple[int, int, bool]:
        """What a block was gathered for; one from before the latents were frozen lacks them."""
        return id(index), start, self.columns.latents is None

    def _gather(self, index: sampling.Index, start: int) -> Any:
        rows = jax.tree.map(np.asarray, self._rows(index, self._keys, jnp.int32(start)))
        columns = self.columns
        if columns.latents is None or self._keys.ndim == 0:
            return jax.device_put(sampling.gather(columns, rows, np))
        own = [
            sampling.gather(columns._replace(latents=latents), jax.tree.map(lambda drawn, n=n: drawn[n], rows), np)
            for n, latents in enumerate(columns.latents)
        ]
        return jax.device_put(jax.tree.map(lambda *batches: np.stack(batches), *own))


def default_device_budget() -> int:
    """Bytes of data to put on the device: half of its memory, or of what is free where the device is the CPU."""
    device = jax.devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"]) // 2
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


# ---- the run's folder ------------------------------------------------------------------------------------------------

IDENTITY = ("method", "config", "seed", "seeds", "validation", "data_fingerprint")  # must agree to resume


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """A list that fills on Ctrl-C or SIGTERM, so that the chunk under way can end and be saved; twice stops at once."""
    asked: list[int] = []

    def ask(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield asked  # signals reach the main thread only
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _enough_memory(folder: Path | None, start: int) -> Iterator[None]:
    """Say in one line that the device has not enough memory, and leave no folder of a run that never began."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        if folder is not None and start == 0 and not any((folder / CHECKPOINTS).iterdir()):
            shutil.rmtree(folder)
        raise HilpError(
            "training does not fit in memory: lower batch or hidden, or train fewer seeds at once"
        ) from None


def _scratch_array(shape: tuple[int, ...], folder: Path | None) -> np.ndarray:
    """An array in a file without a name, gone when nobody looks at it any more."""
    size = 4 * int(np.prod(shape))
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):  # a disk that fills up later would end the process without a word
                os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, np.float32, "w+", shape=shape)
    except OSError as error:
        where = folder or tempfile.gettempdir()
        raise HilpError(
            f"no room for {size / 2**20:.0f} MiB of latents in {where}: {error.strerror or error}"
        ) from error


def _require_own_folder(folder: Path, description: dict[str, Any], resume: bool) -> None:
    """Refuse a folder that holds another run, or something else; nothing is changed yet."""
    described = folder / RUN
    if described.is_file():
        if not resume:
            raise HilpError(f"{folder} already holds a run: go on with --resume, or choose another --out")
        try:
            before = json.loads(described.read_text())
        except ValueError as error:
            raise HilpError(f"{described} is damaged ({error}): choose another --out") from error
        if not isinstance(before, dict):
            raise HilpError(f"{described} is damaged (not an object): choose another --out")
        now = json.loads(json.dumps(description))  # tuples become lists, as on disk
        for key in IDENTITY:
            if before.get(key) != now[key]:
                raise HilpError(f"cannot resume {folder}: its {_difference(key, before.get(key), now[key])}")
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HilpError(f"{folder} exists and is not the folder of a run: choose another --out")


def _open_folder(folder: Path, description: dict[str, Any]) -> None:
    try:
        (folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HilpError(f"cannot write {folder}: {error.strerror or error}") from error
    storage.write_json(folder / RUN, description)


def _difference(key: str, before: Any, now: Any) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        odd = next(k for k in {**before, **now} if before.get(k) != now.get(k))
        return f"config has {odd}={before.get(odd)}, not {now.get(odd)}"
    return f"{key} is {before}, not {now}"


def _save_checkpoint(folder: Path, state: Any, step: int, keep: int) -> None:
    path = folder / CHECKPOINTS / f"step-{step:09d}.safetensors"
    storage.write_arrays(path, storage.flatten(state), {"step": step})
    found = sorted((folder / CHECKPOINTS).glob("step-*.safetensors"))
    here = found.index(path) + 1
    for old in (*found[: max(0, here - keep)], *found[here:]):  # what lies ahead could not be gone on from
        old.unlink()


def _newest_checkpoint(folder: Path, run: Run) -> tuple[int, Any]:
    """The newest checkpoint that is whole; a torn one is named and passed over."""
    found = sorted((folder / CHECKPOINTS).glob("step-*.safetensors"), reverse=True)
    for path in found:
        try:
            arrays, note = storage.read_arrays(path)
            return int(note["step"]), storage.unflatten(run.fresh, arrays, path)
        except (HilpError, KeyError, ValueError) as error:
            print(f"hilp: warning: skipping checkpoint {path.name}: {error}", file=sys.stderr)
    if found:
        raise HilpError(f"none of the checkpoints in {folder} can be gone on from: choose another --out to start anew")
    return 0, run.fresh


def _trim_metrics(path: Path, step: int) -> None:
    """Drop rows past the step that training goes on from; they will be written again."""
    if not path.is_file():
        return
    kept = []
    for line in path.read_text().splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except (ValueError, KeyError):
            continue  # a line torn by a kill
    storage.write_text(path, "".join(line + "\n" for line in kept))


def _append_metrics(path: Path, row: dict[str, Any]) -> None:
    with open(path, "a") as file:
        file.write(json.dumps(row) + "\n")


def _scalars(means: dict[str, np.ndarray]) -> dict[str, float]:
    """Metrics averaged over seeds."""
    return {name: float(np.mean(value)) for name, value in means.items()}


def _weighted_mean(chunks: list[tuple[int, dict[str, np.ndarray]]]) -> dict[str, np.ndarray]:
    """Over the updates of those chunks that have a metric: not all do where methods learn in phases."""
    found = {}
    for name in dict.fromkeys(name for _, means in chunks for name in means):
        own = [(count, np.asarray(means[name], np.float64)) for count, means in chunks if name in means]
        found[name] = np.asarray(sum(count * mean for count, mean in own) / sum(count for count, _ in own))
    return found
