"""How long a controller waits for an action, at the size of the quickstart: by hilp, and by what it exports."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hilp.errors import HilpError
from hilp.policy.policy import FoundationPolicy
from timing import Line, best, not_measured

START = """
import sys
import numpy as np
import hilp
policy = hilp.FoundationPolicy.load(sys.argv[1])
policy.act(np.zeros(2), policy.goal(np.ones(2), plan=0))
"""
START_EXPORTED = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import hilp_runtime
policy = hilp_runtime.load()
policy.act(np.zeros(2), policy.goal(np.ones(2), plan=0))
"""


def act_goal() -> Line:
    """Latency of `act` for one observation under a goal prompt."""
    policy = quickstart_policy()
    ours = best(_acting(policy, policy.goal(np.ones(2), plan=0)))
    plain = best(_products(policy))
    return {
        "value": round(1e6 * ours, 1),
        "unit": "us",
        "ratio": round(ours / plain, 2),
        "against": f"the matrix products of phi and the actor alone in NumPy, {1e6 * plain:.0f} us",
    }


def act_plan() -> Line:
    """The same with three midpoint recursions over the bank."""
    policy = quickstart_policy()
    ours = best(_acting(policy, policy.goal(np.ones(2), plan=3)))
    latents, here, goal = policy.midpoints.latents, policy.encode(np.zeros(2)), policy.encode(np.ones(2))

    def direct() -> np.ndarray:
        u = goal
        for _ in range(3):
            cost = np.maximum(np.linalg.norm(latents - here, axis=1), np.linalg.norm(latents - u, axis=1))
            u = latents[np.argsort(cost)[:50]].mean(axis=0)
        return u

    theirs = best(direct, 100)
    return {
        "value": round(1e6 * ours, 1),
        "unit": "us",
        "ratio": round(theirs / ours, 2),
        "against": f"its plan alone ({len(latents):,} states), the direct NumPy way: {1e6 * theirs:.0f} us",
    }


def act_numpy() -> Line:
    """A goal in the runtime of `hilp export --to numpy`; `plan_us`: with three recursions."""
    from hilp import export
    from hilp.export import numpy_folder

    policy = quickstart_policy()
    ours = best(_acting(policy, policy.goal(np.ones(2), plan=0)))
    with tempfile.TemporaryDirectory(prefix="hilp-bench-") as folder:
        out = Path(folder) / "out"
        export.write(policy, "numpy", out)
        runtime = numpy_folder.load(out).load(out)
        seconds, planned = (best(_acting(runtime, runtime.goal(np.ones(2), plan=plan))) for plan in (0, 3))
    return {**_against_act(seconds, ours), "plan_us": round(1e6 * planned, 1)}


def act_onnx() -> Line:
    """A goal in onnxruntime, by the graph of `hilp export --to onnx`."""
    from hilp import export
    from hilp.export import onnx_folder

    try:
        onnx_folder.require_onnx()
    except HilpError as error:
        return not_measured("us", error)
    policy = quickstart_policy()
    ours = best(_acting(policy, policy.goal(np.ones(2), plan=0)))
    with tempfile.TemporaryDirectory(prefix="hilp-bench-") as folder:
        out = Path(folder) / "out"
        export.write(policy, "onnx", out)
        session = _session(out)
    inputs = {"observation": np.zeros((1, 2), np.float32), "target": policy.encode(np.ones((1, 2)))}
    return _against_act(best(lambda: session.run(None, inputs)), ours)


def act_flow() -> Line:
    """A goal by a flow head (`actor=flow`), ten steps from noise to an action; the same in both exports.

    `apart`: of actions of an export from the policy's own, the largest difference.
    """
    from hilp import export
    from hilp.export import numpy_folder, onnx_folder

    try:
        onnx_folder.require_onnx()
    except HilpError as error:
        return not_measured("us", error)
    policy, gaussian = quickstart_policy("flow"), quickstart_policy()
    ours, plain = (best(_acting(one, one.goal(np.ones(2), plan=0))) for one in (policy, gaussian))
    seen, prompt = policy.bank.observations[:100], policy.goal(np.ones(2), plan=0)
    with tempfile.TemporaryDirectory(prefix="hilp-bench-") as folder:
        out = Path(folder)
        for kind in ("numpy", "onnx"):
            export.write(policy, kind, out / kind)
        runtime, graph = numpy_folder.load(out / "numpy").load(out / "numpy"), _session(out / "onnx")
    target = policy.encode(np.ones((1, 2)))
    wanted, (found,) = policy.act(seen, prompt), graph.run(None, {"observation": seen, "target": target.repeat(100, 0)})
    apart = max(np.abs(one - wanted).max() for one in (runtime.act(seen, runtime.goal(np.ones(2), plan=0)), found))
    by_numpy = best(_acting(runtime, runtime.goal(np.ones(2), plan=0)))
    by_onnx = best(lambda: graph.run(None, {"observation": seen[:1], "target": target}))
    return {
        "value": round(1e6 * ours, 1),
        "unit": "us",
        "ratio": round(ours / plain, 2),
        "against": f"`policy.act` of a Gaussian head, {1e6 * plain:.0f} us (the flow exported: numpy "
        f"{1e6 * by_numpy:.0f} us, ONNX {1e6 * by_onnx:.0f} us, actions at most {apart:.0e} apart)",
        "numpy_us": round(1e6 * by_numpy, 1),
        "onnx_us": round(1e6 * by_onnx, 1),
        "apart": float(apart),
    }


def start() -> Line:
    """Seconds from the start of Python to the first action of a policy on disk, nothing compiled before."""
    from hilp import export

    with tempfile.TemporaryDirectory(prefix="hilp-bench-") as folder:
        saved, out = quickstart_policy().save(Path(folder) / "policy"), Path(folder) / "out"
        export.write(quickstart_policy(), "numpy", out)
        turns = [(_run(START, saved), _run("import jax"), _run(START_EXPORTED, out)) for _ in range(3)]
    (ours, busy), (bare, _), (exported, _) = (min(times) for times in zip(*turns, strict=True))
    return {
        "value": round(ours, 3),
        "unit": "s",
        "ratio": round(ours / bare, 2),
        "against": f"`import jax` alone, {bare:.2f} s (the exported runtime: {exported:.2f} s)",
        "cpu_s": round(busy, 3),  # what it takes on an idle machine
    }


def _session(out: Path) -> Any:
    """The goal graph of an export to ONNX, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(out / "goal.onnx"), options, providers=["CPUExecutionProvider"])


@cache
def quickstart_policy(actor: str = "gaussian") -> FoundationPolicy:
    """A policy of the quickstart's sizes, with fresh weights: how it acts takes as long."""
    import equinox as eqx
    import jax

    from hilp import presets
    from hilp.data.dataset import Dataset
    from hilp.learning.methods import hilp
    from hilp.policy.preparation import Preparation
    from hilp.prompts.bank import Bank
    from hilp.spec import Spec

    preset = presets.preset("hilp", "laptop")
    config, spec = replace(preset.config, phi_discount=0.98, goal_discount=0.98, chunk=1, actor=actor), Spec(2, 2)
    rng = np.random.default_rng(0)
    walks = np.cumsum(rng.normal(0.0, 0.3, (60, 300, 2)), axis=1).reshape(-1, 2).astype(np.float32)
    actions = rng.uniform(-1.0, 1.0, walks.shape).astype(np.float32)
    data = Dataset(walks, actions, np.full(60, 300), name="walks")
    core = hilp.export(config, hilp.init(config, spec, jax.random.key(0)))
    # Fresh actors answer nearly nothing, about which all exports would agree.
    core = eqx.tree_at(lambda one: one.actor.mean.weight, core, replace_fn=lambda weight: 100.0 * weight)
    bank = Bank.draw(data, preset.bank, 0)
    return FoundationPolicy(config, spec, core, Preparation.of(data, config.normalize), bank)


def _acting(policy: Any, prompt: Any) -> Callable[[], Any]:
    observation = np.zeros(2, np.float32)
    policy.act(observation, prompt)  # compiles
    return lambda: policy.act(observation, prompt)


def _products(policy: FoundationPolicy) -> Callable[[], Any]:
    """The matrix products of one goal action, and nothing else of it."""
    networks = [(*policy.core.phi.hidden, policy.core.phi.out), (*policy.core.actor.hidden, policy.core.actor.mean)]
    weights = [[np.asarray(layer.weight) for layer in layers] for layers in networks]

    def run() -> None:
        for layers in weights:
            x = np.zeros((1, len(layers[0])), np.float32)
            for weight in layers:
                x = x @ weight

    return run


def _against_act(theirs: float, ours: float) -> Line:
    return {
        "value": round(1e6 * theirs, 1),
        "unit": "us",
        "ratio": round(theirs / ours, 2),
        "against": f"`policy.act` in the same run, {1e6 * ours:.0f} us",
    }


def _run(script: str, *arguments: Path) -> tuple[float, float]:
    """Seconds of a Python program that finds nothing compiled, and those in which it computed."""
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", script, *map(str, arguments)], env=environment, check=True)
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
