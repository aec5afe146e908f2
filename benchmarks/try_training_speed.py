"""What ways to compute networks and their gradients cost, over plain matrix products: what was tried, and what is kept.

    taskset -c 1 python benchmarks/try_training_speed.py trunks hilp sf-hilp films

A row for each trial is added to benchmarks/speed-trials.jsonl. Trials take turns with the matrix product, and times are
those of the processor, not of the clock: on one core both stay comparable while a machine is busy with other work.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import pixels
import speed
from hilp.learning import images, networks
from hilp.learning.methods import hilp, sf
from hilp.learning.networks import Trunk
from hilp.storage import lines
from hilp.training import program
from hilp.training.options import TrainOptions
from hilp.training.program import BLOCK
from hilp.training.run import Run
from hilp.versions import machine, versions
from timing import ACTION, OBSERVATION, random_data

COMMAND = "python benchmarks/try_training_speed.py"
BATCH, HIDDEN, DIM = 1024, (512, 512, 512), 32  # the paper's sizes for goals
SHAPE = (1024, 512, 512)  # of the plain product
TURNS = 12
STORED_BATCH = program.stored_batch
Work = Callable[[], Any]
Trunks = tuple[Trunk, ...]


# ---- clocks ----------------------------------------------------------------------------------------------------------


def in_turns(runs: dict[str, Work], turns: int = TURNS) -> dict[str, float]:
    """The fewest seconds of the processor that each run took, one after the other; the first turn compiles."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(1 + turns):
        for name, run in runs.items():
            start = time.process_time()
            jax.block_until_ready(run())
            found[name].append(time.process_time() - start)
    return {name: min(times[1:]) for name, times in found.items()}


def plain_products() -> tuple[Work, float]:
    """Some matrix products of a shape that is common in training, and their operations."""
    a, b = (jax.random.normal(jax.random.key(i), SHAPE[i : i + 2]) for i in range(2))
    multiply = jax.jit(jnp.matmul)
    some, flop = 20, 2.0 * SHAPE[0] * SHAPE[1] * SHAPE[2]
    return lambda: [multiply(a, b).block_until_ready() for _ in range(some)], some * flop


def over_products(runs: dict[str, Work], flop: float) -> Iterator[dict[str, Any]]:
    """Each run's rate of operations over that of the plain product."""
    multiply, own = plain_products()
    best = in_turns({**runs, "product": multiply})
    peak = own / best.pop("product")
    for trial, took in best.items():
        yield {
            "trial": trial,
            "ms": round(1e3 * took, 1),
            "ratio": round(flop / took / peak, 3),
            "against": f"plain f32 matmul {'x'.join(map(str, SHAPE))} at {peak / 1e9:.0f} GFLOP/s",
        }


# ---- what is tried with two trunks -----------------------------------------------------------------------------------


Product = Callable[[Array, Array], Array]


def product_forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ weight, (x, weight)


def product_backward(saved: tuple[Array, Array], d: Array) -> tuple[Array, Array]:
    """The gradient of a weight, x.T @ d with both stored row by row, goes to slower kernels than x @ weight: here the
    narrower of the two is written out transposed first, behind a barrier, or XLA would put the transpose back.
    """
    x, weight = saved
    out = jax.lax.optimization_barrier
    rows, ahead = x.reshape(-1, x.shape[-1]), d.reshape(-1, d.shape[-1])
    narrow = d.shape[-1] < x.shape[-1]
    return d @ weight.T, out(out(ahead.T) @ rows).T if narrow else out(rows.T) @ ahead


@contextmanager
def products_by(product: Product) -> Iterator[None]:
    """All products of trunks in another way."""

    def through(self: Trunk, x: Any) -> Array:
        x = images.encode(self.image_encoder, images.join(x))
        rows, bias = product(x, self.hidden[0].weight), self.hidden[0].bias
        inverse_std = jnp.ones((*x.shape[:-1], 1), x.dtype)
        for norm, dense in zip(self.norms, (*self.hidden[1:], self.out), strict=True):
            x, inverse_std = networks.activate(rows, inverse_std, bias)
            weight, bias = networks.fold(norm, dense)
            rows = product(x, weight)
        return rows * inverse_std + bias

    kept, Trunk.__call__ = Trunk.__call__, through  # type: ignore[method-assign]
    try:
        yield
    finally:
        Trunk.__call__ = kept  # type: ignore[method-assign]


def transposed_copies() -> Product:
    """Products whose gradients of weights have a transposed copy."""
    made = jax.custom_vjp(lambda x, weight: x @ weight)
    made.defvjp(product_forward, product_backward)
    return made


@contextmanager
def half_precision_kept() -> Iterator[None]:
    """Activations that wait for the backward pass wait as bfloat16, those of products and those of GELU."""

    def short(saved: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(part.astype(jnp.bfloat16) if part.shape[:-1] == saved[0].shape[:-1] else part for part in saved)

    def long(saved: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(part.astype(jnp.float32) for part in saved)

    def shortened(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
        made = jax.custom_vjp(lambda *args: forward(*args)[0])
        made.defvjp(
            lambda *args: (lambda out, saved: (out, short(saved)))(*forward(*args)),
            lambda saved, d: backward(long(saved), d),
        )
        return made

    kept, networks.activate = networks.activate, shortened(networks._activate, networks._activate_vjp)  # type: ignore[assignment]
    try:
        with products_by(shortened(product_forward, product_backward)):
            yield
    finally:
        networks.activate = kept


def apart(trunks: Trunks, x: Array) -> Array:
    """As it is kept: one network after the other, all rows at once."""
    return networks.apply_all(trunks, x)


def blocks(rows: int, again: bool) -> Callable[[Trunks, Array], Array]:
    """Block after block through the whole networks; `again`: nothing waits for the backward pass but the input."""

    def run(trunks: Trunks, x: Array) -> Array:
        one = jax.checkpoint(apart) if again else apart
        found = jax.lax.map(lambda part: one(trunks, part), x.reshape(-1, rows, x.shape[-1]))
        return found.swapaxes(0, 1).reshape(len(trunks), len(x), -1)

    return run


def together(trunks: Trunks, x: Array) -> Array:
    """What lies between products, of both networks in one array."""
    rows = [x @ trunk.hidden[0].weight for trunk in trunks]
    bias = jnp.stack([trunk.hidden[0].bias for trunk in trunks])
    inverse_std = jnp.ones((len(trunks), len(x), 1))
    activate = jax.vmap(networks.activate)
    for n in range(len(HIDDEN)):
        active, inverse_std = activate(jnp.stack(rows), inverse_std, bias)
        after = [(*trunk.hidden[1:], trunk.out)[n] for trunk in trunks]
        folded = [networks.fold(trunk.norms[n], dense) for trunk, dense in zip(trunks, after, strict=True)]
        rows = [own @ weight for own, (weight, _) in zip(active, folded, strict=True)]
        bias = jnp.stack([shift for _, shift in folded])
    return jnp.stack(rows) * inverse_std + bias[:, None]


def trunks() -> Iterator[dict[str, Any]]:
    """phi of s and g, two networks, forward and backward."""
    x = jax.random.normal(jax.random.key(0), (2 * BATCH, OBSERVATION))
    pair = networks.ensemble(Trunk, OBSERVATION, HIDDEN, DIM, key=jax.random.key(1))

    def taught(run: Callable[[Trunks, Array], Array]) -> Work:
        step = jax.jit(jax.grad(lambda pair: jnp.mean(jnp.square(run(pair, x)))))
        step(pair)  # traced here, inside the context of its trial
        return lambda: step(pair)

    runs = {"gradients as JAX derives them": taught(apart)}
    with products_by(transposed_copies()):
        runs["transposed copies for gradients of weights"] = taught(apart)
    runs["both members' elementwise work in one array"] = taught(together)
    for rows in (128, 512):
        runs[f"blocks of {rows} rows"] = taught(blocks(rows, again=False))
    runs["blocks of 512 rows, computed again"] = taught(blocks(512, again=True))
    with half_precision_kept():
        runs["bfloat16 kept for the backward pass"] = taught(apart)
    parts = speed.update_flops(BATCH, OBSERVATION, ACTION, HIDDEN[0], DIM)
    yield from over_products(runs, parts["phi, 2 members, s and g"] + parts["phi backward"])


# ---- whole updates ---------------------------------------------------------------------------------------------------


def compiled(run: Run) -> Work:
    """One update after the other by a program of its own, whatever was compiled before."""
    run.enter(0, run.fresh)
    own = program.chunk_program.__wrapped__(run.config, 0, False, run.streamed)
    source = run.stream.block(run.index, 0) if run.stream else (run.columns, run.index)
    state, done = run.fresh, 0

    def once() -> Any:
        nonlocal state, done
        state, _, _ = own(state, source, run.keys, np.int32(done % BLOCK if run.streamed else done), np.int32(1))
        done += 1
        return state

    once()  # traced here, inside the context of its trial
    return once


def updates(config: Any, parts: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Whole updates at the paper's sizes."""
    data = random_data(20_000)
    runs = {"gradients as JAX derives them": compiled(Run(config, data))}
    with products_by(transposed_copies()):
        runs["transposed copies for gradients of weights"] = compiled(Run(config, data))
    yield from over_products(runs, sum(parts.values()))


def goal_updates() -> Iterator[dict[str, Any]]:
    """Updates of HILP."""
    config = hilp.Config()
    yield from updates(config, speed.update_flops(config.batch, OBSERVATION, ACTION, 512, config.dim))


def successor_updates() -> Iterator[dict[str, Any]]:
    """Updates of SF-HILP."""
    config = sf.Config()
    yield from updates(config, speed.successor_flops(config.batch, OBSERVATION, ACTION, config.dim))


# ---- pictures --------------------------------------------------------------------------------------------------------


def sliced(source: Any, key: Array, i: Array, look_up: bool = False) -> Any:
    """A batch as a slice of its block, pictures too."""
    return STORED_BATCH(source, key, i, look_up=False)


def films() -> Iterator[dict[str, Any]]:
    """Updates on pictures that were gathered beforehand, over those on pictures on the device."""
    config, data = pixels.filmed()
    program.stored_batch = sliced
    try:
        runs = {"batches sliced from a block": compiled(Run(config, data, TrainOptions(1, device_budget=0)))}
    finally:
        program.stored_batch = STORED_BATCH
    runs["pictures looked up row by row"] = compiled(Run(config, data, TrainOptions(1, device_budget=0)))
    best = in_turns(
        {**runs, "device": compiled(Run(config, data, TrainOptions(1, device_budget=sys.maxsize)))}, turns=5 * TURNS
    )
    device = best.pop("device")
    for trial, took in best.items():
        against = f"the same pictures on the device, {1e3 * device:.1f} ms"
        yield {"trial": trial, "ms": round(1e3 * took, 1), "ratio": round(device / took, 3), "against": against}


OF = {"trunks": trunks, "hilp": goal_updates, "sf-hilp": successor_updates, "films": films}


def main() -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=(__doc__ or "").splitlines()[0])
    parser.add_argument("of", nargs="+", choices=OF, help="what to measure")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/speed-trials.jsonl"), help="file of rows")
    args = parser.parse_args()
    if len(os.sched_getaffinity(0)) != 1:
        parser.error("times of the processor are comparable on one core: taskset -c 1 " + COMMAND)
    for name in args.of:
        for line in OF[name]():
            row = {
                "of": name,
                **line,
                "cores_used": 1,
                "command": shlex.join([*COMMAND.split(), *sys.argv[1:]]),
                "versions": versions(),
                "machine": machine(),
            }
            lines.append(args.results, [row])
            print(f"{name}, {row['trial']}: {row['ms']} ms, ratio {row['ratio']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
