"""Nothing changes by accident: the weights of every method after 50 updates from a fixed seed, as they were recorded.

`identity.json` holds, for each case, the norm of every array of the training state, and for each arithmetic (what a
CPU and a jaxlib make of a probe) the hash of all its bits. Where the arithmetic of this machine was recorded, the bits
must be equal; elsewhere the norms must be, up to rounding. To record again after a change that was meant:

    python tests/test_identity.py record [CASE ...]     # then say in the commit what changed, and why
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hilp
from conftest import ONE_PIECE, QUICK_COMPILER, use_quick_compiler
from hilp import compiler, storage
from hilp.learning import methods

RECORD = Path(__file__).with_name("identity.json")
UPDATES = 50
LAPACK_AVX2 = "f9a75a47"
ROUNDING = 0.05  # pseudo-inverses of small batches carry rounding far
FEW = (16, 16)
TRUNKS: dict[str, Any] = {"hidden": FEW, "actor_hidden": FEW, "batch": 32}
HILP = {**TRUNKS, "dim": 4}
SUCCESSOR: dict[str, Any] = {"dim": 4, "preprocess_hidden": (16, 8), "hidden": 16, "batch": 32, "phi_hidden": FEW}
IQL = {**TRUNKS, "dim": 4, "phi_hidden": FEW}
Case = tuple[str, dict[str, Any], dict[str, Any]]  # method, values of its config, arguments of `pretrain`
CASES: dict[str, Case] = {
    "hilp": ("hilp", HILP, {}),
    "hilp normalized": ("hilp", {**HILP, "normalize": True, "actor_ema": 0.1}, {}),
    "hilp sequential": ("hilp", {**HILP, "schedule": "sequential", "phi_steps": 20}, {}),
    "hilp sequential streamed": ("hilp", {**HILP, "schedule": "sequential", "phi_steps": 20}, {"device_budget": 0}),
    "hilp faster": ("hilp", {**HILP, "bound_targets": True, "n_step": 3}, {}),
    "hilp ddpg+bc": ("hilp", {**HILP, "extraction": "ddpg+bc"}, {}),
    "hilp streamed": ("hilp", HILP, {"device_budget": 0}),
    "hilp two seeds": ("hilp", HILP, {"seeds": 2}),
    "hilp-directed": ("hilp-directed", {**TRUNKS, "dim": 8}, {}),
    "hilp-directed heights": ("hilp-directed", {**TRUNKS, "dim": 8, "head": "heights", "bound_targets": True}, {}),
    "sf-hilp": ("sf-hilp", SUCCESSOR, {}),
    "sf-hilp diff": ("sf-hilp", {**SUCCESSOR, "cumulant": "diff", "loss": "q"}, {}),
    "sf-lap": ("sf-lap", SUCCESSOR, {}),
    "sf-fdm": ("sf-fdm", SUCCESSOR, {}),
    "sf-ae": ("sf-ae", SUCCESSOR, {}),
    "sf-idm": ("sf-idm", SUCCESSOR, {}),
    "sf-cl": ("sf-cl", SUCCESSOR, {}),
    "sf-rand": ("sf-rand", SUCCESSOR, {}),
    "fb": ("fb", {"dim": 4, "preprocess_hidden": (16, 8), "hidden": 16, "batch": 32, "backward_hidden": FEW}, {}),
    "fb q": (
        "fb",
        {"dim": 4, "preprocess_hidden": (16, 8), "hidden": 16, "batch": 32, "backward_hidden": FEW, "q_weight": 0.01},
        {},
    ),
    "gc-td3": ("gc-td3", {"preprocess_hidden": (16, 8), "hidden": 16, "batch": 32}, {}),
    "gc-bc": ("gc-bc", {"actor_hidden": FEW, "batch": 32}, {}),
    "gc-iql": ("gc-iql", TRUNKS, {}),
    "gc-iql q": ("gc-iql-q", TRUNKS, {}),
    "gc-iql q ddpg+bc": ("gc-iql-q", {**TRUNKS, "extraction": "ddpg+bc"}, {}),
    "gc-cql": ("gc-cql", {**TRUNKS, "samples": 3}, {}),
    "hiql": ("hiql", {**TRUNKS, "rep_dim": 4, "subgoal_steps": 5}, {}),
    "qrl": ("qrl", {**TRUNKS, "latent": 16}, {}),
    "crl": ("crl", {**TRUNKS, "latent": 8}, {}),
    "iql-fdm": ("iql-fdm", IQL, {}),
    "iql-lap": ("iql-lap", IQL, {}),
    "iql-rand": ("iql-rand", {**IQL, "extraction": "ddpg+bc"}, {}),
    "nearest": ("nearest", {"rows": 100, "batch": 32}, {}),
    "opal": ("opal", {"hidden": FEW, "actor_hidden": FEW, "batch": 32, "dim": 4, "gru": 8, "k": 5}, {}),
    "hindsight": ("hindsight", {**TRUNKS, "k": 5}, {}),
    "iql": ("iql", TRUNKS, {}),
    "iql over skills": ("iql", {**TRUNKS, "k": 5, "value_norm": True, "actor_ema": 0.1}, {}),
}


def walks() -> hilp.Dataset:
    """Random walks in the plane with a third, constant-speed coordinate: numpy's generator is the same everywhere."""
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, size=(600, 2)).astype(np.float32)
    places = np.cumsum(actions, axis=0, dtype=np.float32) / np.float32(10)
    clock = np.tile(np.arange(20, dtype=np.float32) / np.float32(20), 30)
    extras = {"rewards": places[:, 0], "terminals": (places[:, 1] > 0.9).astype(np.float32)}
    return hilp.Dataset(np.column_stack([places, clock]), actions, np.full(30, 20), extras, name="walks")


@contextmanager
def quickly_compiled() -> Iterator[None]:
    """Compiling these networks well takes far longer than running them badly."""
    before = os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS") == "1"  # as in the suite, see conftest
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@cache
def arithmetic() -> str:
    """What this CPU and this jaxlib make of sums, products, roots and exponentials: equal bits, equal name."""

    @jax.jit
    def probe(x: jax.Array) -> list[jax.Array]:
        y = jnp.tanh(x @ x.T / 7.0)
        z = jax.nn.gelu(y[:, :16]) @ y[:16]
        return [y, z, jnp.sum(jnp.exp(z), axis=0), jax.lax.rsqrt(jnp.mean(jnp.square(z), axis=1) + 1e-6)]

    with quickly_compiled():
        found = probe(jnp.asarray(np.random.default_rng(1).normal(size=(32, 48)), jnp.float32))
    loops = " older loops" if QUICK_COMPILER in os.environ.get("XLA_FLAGS", "") else ""  # as the suite compiles them
    pieces = " one piece" if ONE_PIECE in os.environ.get("XLA_FLAGS", "") else ""
    sums = " plain sums" if f"{compiler.FLAG}=-reduce" in os.environ.get("XLA_FLAGS", "") else ""  # as for users
    return f"jaxlib {jax.lib.__version__} {_digest(found)[:12]}{_lapack()}{loops}{pieces}{sums}"


def _lapack() -> str:
    """What another library makes of factorisations: it looks at the CPU by itself, and at OPENBLAS_CORETYPE.

    Nothing for the one (on CPUs with AVX2) that the first records were made with.
    """
    x = jnp.asarray(np.random.default_rng(1).normal(size=(32, 48)), jnp.float32)
    with quickly_compiled():
        found = jax.jit(lambda x: [*jnp.linalg.qr(x.T), jnp.linalg.pinv(x @ x.T / 7.0)])(x)
    digest = _digest(found)[:8]
    return "" if digest == LAPACK_AVX2 else f" lapack {digest}"


def _digest(parts: Iterable[jax.Array]) -> str:
    return hashlib.sha256(b"".join(np.asarray(part).tobytes() for part in parts)).hexdigest()


def train(case: str) -> list[np.ndarray]:
    """The arrays of the training state after the last update, in an order that no renaming of networks changes."""
    method, values, arguments = CASES[case]
    config = methods.configure(methods.config(method), values)
    with tempfile.TemporaryDirectory() as folder, quickly_compiled():
        hilp.pretrain(config, walks(), steps=UPDATES, seed=3, out=f"{folder}/run", bank=10, quiet=True, **arguments)
        checkpoint = Path(folder) / "run" / "checkpoints" / f"step-{UPDATES:09d}.safetensors"
        arrays, _ = storage.read_arrays(checkpoint)
    return sorted(arrays.values(), key=lambda array: (array.shape, array.dtype.str, array.tobytes()))


def bits(arrays: list[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(repr(a.shape).encode() + a.tobytes() for a in arrays)).hexdigest()[:32]


def norms(arrays: list[np.ndarray]) -> list[float]:
    """Of all arrays, sorted: rounding may change the order of two alike ones."""
    return sorted(float(np.linalg.norm(array.astype(np.float64))) for array in arrays)


# Compiling is what takes long: the suite has a case of each file and of each way to run, `-m slow` all others.
QUICK = {
    "hilp",
    "hilp sequential streamed",
    "hilp-directed",
    "sf-hilp",
    "fb",
    "gc-td3",
    "gc-bc",
    "gc-iql",
    "gc-iql q",
    "gc-cql",
    "hiql",
    "qrl",
    "crl",
    "iql-fdm",
    "opal",
    "hindsight",
    "iql",
}


@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_weights_are_those_that_were_recorded(case: str) -> None:
    recorded = json.loads(RECORD.read_text())[case]
    found = train(case)
    if arithmetic() in recorded["bits"]:
        assert bits(found) == recorded["bits"][arithmetic()]
    np.testing.assert_allclose(norms(found), recorded["norms"], rtol=ROUNDING, atol=1e-4)


def record(names: list[str]) -> None:
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for case in names or CASES:
        found = train(case)
        close = case in known and np.allclose(known[case]["norms"], norms(found), rtol=ROUNDING, atol=1e-4)
        kept = known[case]["bits"] if close and not names else {}
        known[case] = {
            "norms": [float(f"{norm:.6g}") for norm in norms(found)],
            "bits": {**kept, arithmetic(): bits(found)},
        }
        print(case, known[case]["bits"])
    RECORD.write_text(json.dumps({case: known[case] for case in CASES}, indent=1) + "\n")


if __name__ == "__main__":
    use_quick_compiler()
    record(sys.argv[2:])
