"""Run: a config, its data and its compiled programs. It turns a state into the state some updates later."""

import contextlib
import ctypes
import dataclasses
import hashlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache, partial
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hilp import storage, trees
from hilp.data import transforms
from hilp.data.dataset import Dataset
from hilp.errors import HilpError, TrainingDiverged
from hilp.learning import methods, sampling
from hilp.policy import listening
from hilp.policy.artifact import Provenance
from hilp.policy.policy import FoundationPolicy
from hilp.policy.preparation import Preparation
from hilp.prompts.bank import Bank
from hilp.spec import Spec
from hilp.training.distributed import any_process, local, mesh_of, placed, writes
from hilp.training.options import TrainOptions
from hilp.training.program import BLOCK, Stream, chunk_program, column_program, initialiser, scratch_array
from hilp.versions import versions

VALIDATION_BATCHES = 8  # at most
VALIDATION_SHARE = 0.1  # of updates that are spent on held-out episodes; a batch a row of metrics at least
HELD_OUT_ROWS = 20_000  # of held-out episodes, saved next to the policy
LEAST_BUCKET = 1024  # rows of the smallest data on the device
MOST_PADDED = 32 << 20  # bytes of data that is padded
ONCE = TrainOptions(steps=1)
COLUMN_BLOCK = 8192  # rows that a column is computed for at a time

Means = dict[str, np.ndarray]  # of each metric over some updates, a number a seed


class Run:
    """The programs of a config and its data, on the device or streamed to it."""

    def __init__(self, config: Any, data: Dataset, options: TrainOptions = ONCE, fit_line: str | None = None) -> None:
        self.config, self.data, self.options = config, data, options
        self.fit_line = fit_line  # what was chosen for the data
        self.seed, self.seeds = options.seed, options.seeds
        self.method = methods.of(config)
        self.stages = methods.stages(config)
        self.spec = data.network_spec
        require_fit(config, self.spec, self.seeds)
        self.mesh = mesh_of(options.devices, getattr(config, "batch", options.devices))
        self.preparation = Preparation.of(data, config.normalize)
        self.about: dict[str, Any] = {}  # added to the description
        self.command = options.command or " ".join(sys.argv)
        keys = jnp.stack([jax.random.key(s) for s in range(self.seed, self.seed + self.seeds)])
        # Key 0 of the stream starts the networks; updates use keys 1, 2, ...
        first = jax.vmap(lambda key: jax.random.fold_in(key, 0))(keys)
        self._own_keys, first = (keys, first) if self.seeds > 1 else (keys[0], first[0])  # of this process
        self.keys = placed(self._own_keys, self.mesh)
        budget = device_memory(free=True) // 2 if options.device_budget is None else options.device_budget
        size = self._bytes_on_device()
        self.streamed = any_process(size > budget)  # all run the same programs
        self.large = not self.streamed and size > MOST_PADDED
        self.size = data.rows if self.streamed else bucket(data.rows, size)
        self._held_out_episodes = self._draw_held_out()
        self.index, self.held_out = sampling.build_index(data.lengths, self._held_out_episodes, self.size)
        shared = {"observations": data.network_inputs, "actions": data.network_actions, **self._extra_columns()}
        self.columns = sampling.Columns(shared, {}, self.preparation.mean, self.preparation.scale)
        if not self.streamed:
            # device_put, not jnp.asarray: on a CPU it shares the memory of a mapped file where it can
            numbers = {name: as_numbers(column) for name, column in shared.items()}
            numbers = jax.tree.map(lambda part: sampling.padded(part, self.size), numbers)
            self.columns = placed(self.columns._replace(shared=numbers), self.mesh)
            self.index, self.held_out = placed((self.index, self.held_out), self.mesh)
        self._stage = -1  # that the columns and the stream are of
        self.stream: Stream | None = None
        self.fresh = initialiser(config, self.spec, self.seeds > 1, self.mesh)(placed(first, self.mesh))

    def stage_of(self, step: int) -> int:
        """The stage that update `step` (counted from 0) belongs to."""
        return next(n for n, stage in enumerate(self.stages) if stage.until is None or step < stage.until)

    @property
    def last_stage_begins(self) -> int:
        """The update that the last stage begins with: a policy is not trained before it."""
        return max((stage.until or 0 for stage in self.stages[:-1]), default=0)

    def advance(self, state: Any, step: int, count: int) -> tuple[Any, Means]:
        """`count` updates from `step`; the mean of each metric, per seed."""
        end, pieces = step + count, list[Any]()
        while step < end:
            stage = self.stage_of(step)
            until = min(end, self.stages[stage].until or end)
            pieces += self._chunks(state, self.index, step, until - step, stage)
            state, step = pieces[-1][0], until
        means = [(done, {key: np.asarray(total) / done for key, total in sums.items()}) for _, done, sums, _ in pieces]
        broken = [(int(at), name) for *_, bad in pieces for name, steps in bad.items() for at in np.ravel(steps) if at]
        if broken:
            at, name = min(broken, key=lambda first: first[0])
            raise TrainingDiverged(
                f"{name} became NaN or infinite at step {at}: the last good checkpoint is kept; lower lr "
                "(--set lr=1e-4) or check the scale of the observations (--set normalize=true)"
            )
        return state, weighted_mean(means)

    def validate(self, state: Any, step: int, every: int) -> dict[str, float]:
        """Metrics on held-out episodes, wanted `every` so many updates: by further ones whose state is thrown away."""
        if self.held_out is None:
            return {}
        stage = self.stage_of(step - 1)
        rows = []
        for batch in range(min(VALIDATION_BATCHES, max(1, round(VALIDATION_SHARE * every)))):
            copy = jax.tree.map(jnp.copy, state)  # the program consumes its state
            ((_, _, sums, _),) = self._chunks(copy, self.held_out, step + batch, 1, stage)
            rows.append(scalars(jax.tree.map(np.asarray, sums)))
        return {f"validation_{name}": float(np.mean([row[name] for row in rows])) for name in rows[0]}

    def _chunks(
        self, state: Any, index: sampling.Index, step: int, count: int, stage: int
    ) -> Iterator[tuple[Any, int, Any, Any]]:
        """Updates, block after block where data is streamed: state after it, count, sums and first NaNs of metrics."""
        begins = stage != self._stage
        self.enter(stage, state)
        chunk = chunk_program(self.config, stage, self.seeds > 1, self.streamed, self.mesh)
        if begins and self.large:
            # Compile by a chunk of no updates, and give back the memory that this took before the data is read: the C
            # library of Linux keeps most of what is freed.
            state, *_ = chunk(state, (self.columns, index), self.keys, np.int32(step), np.int32(0))
            with contextlib.suppress(OSError, AttributeError):  # another system, another C library
                ctypes.CDLL(None).malloc_trim(0)
        while count:
            now = count if self.stream is None else min(count, BLOCK)
            source = (self.columns, index) if self.stream is None else self.stream.block(index, step, now)
            state, sums, bad = chunk(state, source, self.keys, np.int32(step), np.int32(now))
            step, count = step + now, count - now
            yield state, now, sums, bad

    def enter(self, stage: int, state: Any) -> None:
        """Have the columns of a stage, computed with the state that it begins with."""
        if stage == self._stage:
            return
        self._stage, own = stage, self.stages[stage]
        here = local(state, self.mesh)
        columns: Any = {name: self._computed(function, here) for name, function in own.columns.items()}
        self.columns = self.columns._replace(own=columns if self.streamed else placed(columns, self.mesh))
        if self.streamed:
            self.stream = Stream(partial(own.sample, self.config), self.columns, self._own_keys, self.mesh)

    def _computed(self, function: Callable[..., Any], state: Any) -> np.ndarray:
        """A column of a stage for all rows, [rows, ...], one for each of several seeds."""
        compute = column_program(self.config, function, self.seeds > 1)
        shape = (*self.keys.shape, self.size, self._column_size(function))
        # Data that is streamed may be larger than memory, and so may its columns.
        folder = self.options.folder if writes(self.options.devices) else None
        column = scratch_array(shape, folder) if self.streamed else np.zeros(shape, np.float32)
        size = min(COLUMN_BLOCK, self.size)  # of every block, padded where there are fewer rows left
        for first in range(0, self.data.rows, size):
            rows = slice(first, min(first + size, self.data.rows))
            block = as_numbers(trees.over(itemgetter(rows), self.data.network_inputs))
            block = trees.over(lambda part: sampling.padded(part, size), block)
            prepared = sampling.normalised(block, self.preparation.mean, self.preparation.scale)
            found = np.asarray(compute(state, prepared))
            column[..., rows, :] = found[..., : rows.stop - rows.start, :]
        return column

    def _column_size(self, function: Callable[..., Any]) -> int:
        state = state_shapes(self.config, self.spec)
        row = as_numbers(trees.over(lambda part: np.asarray(part[:1]), self.data.network_inputs))
        return int(jax.eval_shape(partial(function, self.config), state, row).shape[-1])

    def _bytes_on_device(self) -> int:
        kept = transforms.stored(self.data.network_inputs)  # of stacks of frames each frame once
        row = sum(part.nbytes for part in jax.tree.leaves(as_numbers(trees.over(lambda part: part[:1], kept))))
        row += 4 * (self.data.action_dim + len(methods.columns(self.config)))
        sizes = [sum(map(self._column_size, stage.columns.values())) for stage in self.stages]
        copies = 1 if self.mesh is None or jax.devices()[0].platform != "cpu" else self.mesh.size  # in one memory
        return copies * self.data.rows * (row + 4 * self.seeds * max(sizes))

    def _extra_columns(self) -> dict[str, np.ndarray]:
        """The columns that the method needs besides observations and actions: a number a row."""
        wanted = methods.columns(self.config)
        for name in wanted:
            if name not in self.data.extras:
                raise HilpError(
                    f"{methods.name_of(self.config)} learns from the column '{name}', which {self.data.name} does not "
                    "have: label the data with a reward first (hilp.label, --reward)"
                )
            if self.data.extras[name].shape != (self.data.rows,):
                raise HilpError(f"the column '{name}' of {self.data.name} is not one number a row")
        return {name: self.data.extras[name] for name in wanted}

    @property
    def data_fingerprint(self) -> str:
        """Of all that this training sees, the extra columns included."""
        return fingerprint_with(self.data, methods.columns(self.config))

    def _draw_held_out(self) -> np.ndarray | None:
        share, episodes = self.options.validation, self.data.episodes
        if share == 0.0:
            return None
        if (count := max(1, round(share * episodes))) >= episodes:
            raise HilpError(f"validation {share} of {episodes} episodes leaves none to train on")
        return np.isin(np.arange(episodes), np.random.default_rng(self.seed).choice(episodes, count, replace=False))

    def held_out_data(self) -> Dataset | None:
        """Episodes that are not trained on, about as many as have HELD_OUT_ROWS, but one at least."""
        if self._held_out_episodes is None:
            return None
        episodes = np.flatnonzero(self._held_out_episodes)
        whole = np.cumsum(np.asarray(self.data.lengths)[episodes]) <= HELD_OUT_ROWS
        return self.data.select(episodes[: max(1, int(whole.sum()))])

    @property
    def trained_on(self) -> Dataset:
        """The data without the episodes that are held out."""
        held_out = self._held_out_episodes
        return self.data if held_out is None else self.data.select(np.flatnonzero(~held_out))

    def exports(self, state: Any) -> list[Any]:
        """What the method exports, of each seed."""
        state = local(state, self.mesh)
        own = [state] if self.seeds == 1 else [jax.tree.map(itemgetter(n), state) for n in range(self.seeds)]
        return [jax.tree.map(jnp.copy, self.method.export(self.config, one)) for one in own]

    def listening(self, state: Any, step: int) -> dict[str, float]:
        """How far actions spread over skills after so many updates, as a row of metrics has it."""
        cores = self.exports(state) if step > self.last_stage_begins else []
        if not any(getattr(core, "skill_dim", 0) for core in cores):
            return {}
        spec = self.data.spec
        policies = [FoundationPolicy(self.config, spec, core, self.preparation, self._few) for core in cores]
        each = (listening.listening(policy.with_skills(self.data, self.seed)) for policy in policies)
        found = [number for number in each if number is not None]
        return {"listening": float(np.mean(found))} if found else {}

    @cached_property
    def _few(self) -> Bank:
        """States of the data for numbers that are measured again and again."""
        spec = self.data.spec
        return Bank.draw(self.data, listening.states(spec), self.seed)

    def policies(self, state: Any, step: int, moving: float | None = None) -> list[FoundationPolicy]:
        """The policy of each seed, with its bank of data states."""
        provenance = Provenance(
            data=self.data.name,
            data_fingerprint=self.data_fingerprint,
            task=self.data.task,
            first_observation=_first_observation(self.data),
            steps=step,
            moving=moving,
            versions=versions(),
        )
        states = self.trained_on  # what measures a policy must not be among what it plans with
        return [
            FoundationPolicy(
                self.config,
                self.data.spec,
                core,
                self.preparation,
                Bank.draw(states, self.options.bank, seed),
                dataclasses.replace(provenance, seed=seed),
                self.data.observation_parts,
            )
            for seed, core in enumerate(self.exports(state), self.seed)
        ]

    def description(self) -> dict[str, Any]:
        """What identifies a run (checked on resume), and what is good to know about it."""
        return {
            "method": methods.name_of(self.config),
            "config": methods.config_values(self.config),
            "seed": self.seed,
            "seeds": self.seeds,
            "validation": self.options.validation,
            "data_fingerprint": self.data_fingerprint,
            "data": self.data.name,
            "stride": self.preparation.stride,
            **({} if self.mesh is None else {"devices": self.mesh.size}),
            **({} if self.fit_line is None else {"chosen": self.fit_line}),
            "steps": self.options.updates,
            **self.about,
            "command": self.command,
            "versions": versions(),
            **({"until": self.options.until} if self.options.until else {}),
        }


def device_memory(free: bool = False) -> int:
    """Bytes of the device's memory; where it is the CPU, of the machine's. free: of what is free now."""
    device = jax.devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    return os.sysconf("SC_AVPHYS_PAGES" if free else "SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def require_fit(config: Any, spec: Spec, seeds: int) -> None:
    """Refuse what cannot fit before anything is compiled: XLA ends the process where it cannot allocate.

    Networks with their optimiser are counted exactly; of a batch only its observations, the least that it takes.
    """
    state = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state_shapes(config, spec)))
    needed = seeds * (state + 4 * getattr(config, "batch", 1) * 2 * spec.observation_dim)
    if needed > device_memory():
        raise HilpError(
            f"training would need at least {needed / 2**30:,.1f} GiB, this device has "
            f"{device_memory() / 2**30:,.1f}: lower batch, hidden or dim, or train fewer seeds at once"
        )


@lru_cache(maxsize=32)
def state_shapes(config: Any, spec: Spec) -> Any:
    """The shapes of a method's networks and optimisers."""
    with storage.told("these sizes make no network, lower them", (OverflowError, MemoryError)):
        return jax.eval_shape(lambda: methods.of(config).init(config, spec, jax.random.key(0)))


def bucket(rows: int, size: int) -> int:
    """The rows that data of so many rows and bytes is padded to on the device: the next power of two where it is small.

    Compiled programs know the shape of the data, so data sets of about one size share them, and so does a log that
    grows. Padding copies the data: where it is large, it stays as it is and shares the memory of its file.
    """
    padded = max(LEAST_BUCKET, 1 << (rows - 1).bit_length())
    return padded if size / rows * padded <= MOST_PADDED else rows


def fingerprint_with(data: Dataset, extras: Iterable[str]) -> str:
    """The fingerprint of data together with extra columns of it, where there are some."""
    own, extra = data.fingerprint, {name: data.extras[name] for name in extras}
    return own if not extra else hashlib.sha256((own + storage.checksum(extra)).encode()).hexdigest()[: len(own)]


def as_numbers(tree: trees.Tree) -> trees.Tree:
    """Rows as a network takes them: float32, but the bytes of a named tree (images) stay bytes."""
    if isinstance(tree, transforms.OneHot):
        return tree
    if isinstance(tree, Mapping):
        return {name: part if part.dtype == np.uint8 else np.asarray(part, np.float32) for name, part in tree.items()}
    return np.asarray(tree, np.float32)


def _first_observation(data: Dataset) -> list[float] | None:
    """Of data whose observations are one vector; of a film, the state that its first picture was drawn from."""
    film = isinstance(data.observations, Mapping)
    states = data.extras.get("physics") if film else data.spec.newest(data.observations[:1])
    return None if states is None or np.ndim(states) != 2 else np.asarray(states[0], np.float64).tolist()


def scalars(means: Means) -> dict[str, float]:
    """Metrics averaged over seeds."""
    return {name: float(np.mean(value)) for name, value in means.items()}


def weighted_mean(chunks: list[tuple[int, Means]]) -> Means:
    """Over the updates of those chunks that have a metric: not all do where methods learn in stages."""
    found = {}
    for name in dict.fromkeys(name for _, means in chunks for name in means):
        own = [(count, np.asarray(means[name], np.float64)) for count, means in chunks if name in means]
        found[name] = np.asarray(sum(count * mean for count, mean in own) / sum(count for count, _ in own))
    return found
