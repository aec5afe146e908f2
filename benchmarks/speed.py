"""Speed and memory of hilp on this machine, one JSON line each; every value has a ratio measured in the same run.

python benchmarks/speed.py --only train_step plan
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import acting
import over_socket
import pixels
import stepping
from timing import ACTION, OBSERVATION, Line, best, python, random_data

WALKS_DISCOUNT = 0.97  # of the latents of walks: that of the mazes


def update_flops(batch: int, observation: int, action: int, width: int, dim: int) -> dict[str, int]:
    """Matrix-product operations of one joint HILP update, part by part (a multiply-add is two).

    Networks have three hidden layers of `width`. A backward pass costs two products per layer, except that the first
    layer needs no gradient of its input.
    """

    def forward(size_in: int, size_out: int) -> int:
        return 2 * batch * (size_in * width + 2 * width * width + width * size_out)

    def backward(size_in: int, size_out: int) -> int:
        return 2 * forward(size_in, size_out) - 2 * batch * size_in * width

    sz, sza = observation + dim, observation + dim + action
    return {
        "phi, 2 members, s and g": 4 * forward(observation, dim),
        "phi backward": 4 * backward(observation, dim),
        "target phi, 2 members, s, g and s'": 6 * forward(observation, dim),
        "phi of s' for the reward": forward(observation, dim),
        "V of s and s'": 2 * forward(sz, 1),
        "V backward": backward(sz, 1),
        "Q, 2 members": 2 * forward(sza, 1),
        "Q backward": 2 * backward(sza, 1),
        "target Q, 2 members": 2 * forward(sza, 1),
        "actor": forward(sz, action),
        "actor backward": backward(sz, action),
    }


def successor_flops(batch: int, observation: int, action: int, dim: int) -> dict[str, int]:
    """Matrix-product operations of one update of SF-HILP at the paper's widths, part by part, as above."""

    def product(size_in: int, size_out: int) -> int:
        return 2 * batch * size_in * size_out

    def preprocessor(size_in: int) -> int:
        return product(size_in, 1024) + product(1024, 512)

    def head(size_out: int) -> int:
        return product(1024, 1024) + product(1024, size_out)

    sa, sz = observation + action, observation + dim
    psi = preprocessor(sa) + preprocessor(sz) + 2 * head(dim)
    actor = preprocessor(observation) + preprocessor(sz) + head(action)
    phi = product(observation, 512) + product(512, 512) + product(512, dim)
    return {
        "phi, 2 members, s and g": 4 * phi,
        "phi backward": 4 * (2 * phi - product(observation, 512)),
        "target phi, 2 members, s, g and s'": 6 * phi,
        "phi of s' for the cumulant": phi,
        "second moment and skills of features": 2 * product(dim, dim),
        "actor at s'": actor,
        "target psi": psi,
        "psi": psi,
        "psi backward": 2 * psi - product(sa, 1024) - product(sz, 1024),
        "actor": actor,
        "psi of its action": psi,
        "psi backward to the action": 2 * head(dim) + product(1024, 512) + product(action, 1024),
        "actor backward": 2 * actor - product(observation, 1024) - product(sz, 1024),
    }


def train_step() -> Line:
    """FLOP/s of a whole HILP training step at the paper's goal-conditioned shapes."""
    from hilp.learning.methods import hilp

    config = hilp.Config()
    parts = update_flops(config.batch, OBSERVATION, ACTION, config.hidden[0], config.dim)
    return over_matmul(config, (1024, 512, 512), parts)


def sf_train_step() -> Line:
    """FLOP/s of a whole SF-HILP training step at the paper's zero-shot shapes."""
    from hilp.learning.methods import sf

    config = sf.Config()
    return over_matmul(config, (1024, 1024, 1024), successor_flops(config.batch, OBSERVATION, ACTION, config.dim))


def over_matmul(config: Any, shape: tuple[int, int, int], parts: dict[str, int]) -> Line:
    """FLOP/s of training steps over those of a plain matrix product of a shape that is common in them."""
    import jax
    import jax.numpy as jnp

    from hilp.training.loop import Run

    run = Run(config, random_data(100_000))
    a = jax.random.normal(jax.random.key(0), shape[:2])
    b = jax.random.normal(jax.random.key(1), shape[1:])
    product = jax.jit(jnp.matmul)
    multiply = lambda: product(a, b).block_until_ready()  # noqa: E731
    multiply()
    state = run.fresh
    state, _ = run.advance(state, 0, 1)  # compiles
    steps, seconds, plain = 10, [], []
    for turn in range(4):
        plain.append(best(multiply, 50))
        start = time.perf_counter()
        state, _ = run.advance(state, 1 + turn * steps, steps)
        seconds.append((time.perf_counter() - start) / steps)
    plain.append(best(multiply, 50))
    achieved, peak = sum(parts.values()) / min(seconds), 2 * shape[0] * shape[1] * shape[2] / min(plain)
    size = "x".join(map(str, shape))
    return {
        "value": round(1e3 * min(seconds), 1),
        "unit": "ms",
        "ratio": round(achieved / peak, 3),
        "against": f"plain f32 matmul {size} at {peak / 1e9:.0f} GFLOP/s (achieved {achieved / 1e9:.0f})",
        "flop": {**parts, "total": sum(parts.values())},
    }


def plan() -> Line:
    """Latency of one plan (N 50,000, D 32, 3 recursions, k 50) against the direct NumPy way."""
    from hilp.prompts.midpoints import Midpoints

    rng = np.random.default_rng(0)
    latents = maze_like_latents(rng, 50_000, 32)
    bank = Midpoints(latents)
    queries = [(latents[i], latents[j]) for i, j in rng.integers(len(latents), size=(20, 2))]

    def direct(here: np.ndarray, goal: np.ndarray) -> np.ndarray:
        u = goal
        for _ in range(3):
            cost = np.maximum(np.linalg.norm(latents - here, axis=1), np.linalg.norm(latents - u, axis=1))
            u = latents[np.argsort(cost)[:50]].mean(axis=0)
        return u

    worst = max(float(np.abs(direct(*query) - bank.subgoal(*query)).max()) for query in queries)
    ours = best(lambda: [bank.subgoal(*query) for query in queries], 5) / len(queries)
    theirs = best(lambda: [direct(*query) for query in queries], 3) / len(queries)
    return {
        "value": round(1e3 * ours, 3),
        "unit": "ms",
        "ratio": round(theirs / ours, 1),
        "against": f"direct NumPy float32: all norms and a full argsort a recursion, {1e3 * theirs:.1f} ms",
        "largest_difference": worst,
    }


def graph() -> Line:
    """Seconds to build the graph of the data (50,000 states of a bank, 300,000 rows, D 8) once training ends."""
    from hilp.prompts.graph import build

    rng = np.random.default_rng(0)
    latents, lengths = maze_like_walks(rng, 300, 1_000, 8)
    bank = latents[rng.choice(len(latents), 50_000, replace=False)]
    found = build(bank, latents, lengths, WALKS_DISCOUNT)
    ours = best(lambda: build(bank, latents, lengths, WALKS_DISCOUNT), 3)
    landmarks, sample = bank[found.landmarks], latents[::10]

    def direct() -> None:
        for one in np.array_split(sample, 10):
            np.linalg.norm(one[:, None] - landmarks, axis=2).argmin(axis=1)

    theirs = 100 * best(direct, 3)
    return {
        "value": round(ours, 2),
        "unit": "s",
        "ratio": round(theirs / ours, 1),
        "against": f"direct NumPy: the nearest of {len(found)} landmarks of every row alone, {theirs:.1f} s",
        "edges": len(found.steps),
    }


def graph_step() -> Line:
    """Latency of one step of a graph prompt for one agent, against one of the paper's plan on the same bank (D 32)."""
    from hilp.prompts.graph import GraphPlanner, build, by_scipy
    from hilp.prompts.midpoints import Midpoints

    rng = np.random.default_rng(0)
    latents, lengths = maze_like_walks(rng, 300, 1_000, 32)
    bank = Midpoints(latents[rng.choice(len(latents), 50_000, replace=False)])
    drawn = build(bank.latents, latents, lengths, WALKS_DISCOUNT)
    planner = GraphPlanner(drawn, bank, WALKS_DISCOUNT, by_scipy)
    queries = [bank.latents[[i]] for i in rng.integers(len(bank), size=20)]
    goal = bank.latents[[0]]
    to_goal, stuck, rows = planner.to_goals(goal), planner.stuck(), np.arange(1)
    on_graph = lambda: [planner.subgoals(here, goal, to_goal, 50, stuck, rows) for here in queries]  # noqa: E731
    by_midpoints = lambda: [bank.subgoals(here, goal, 3, 50) for here in queries]  # noqa: E731
    times = [(best(on_graph, 3), best(by_midpoints, 3)) for _ in range(4)]  # in turns: a machine's pace changes
    ours, theirs = (min(turn) / len(queries) for turn in zip(*times, strict=True))
    return {
        "value": round(1e3 * ours, 3),
        "unit": "ms",
        "ratio": round(ours / theirs, 2),
        "against": f"a step of plan 3 on the same bank, {1e3 * theirs:.2f} ms",
    }


def act() -> Line:
    """Latency of `act` for a single observation under a goal prompt, at the paper's shapes."""
    import jax

    from hilp.learning.methods import hilp
    from hilp.policy.policy import FoundationPolicy
    from hilp.policy.preparation import Preparation
    from hilp.prompts.bank import Bank
    from hilp.spec import Spec

    config, spec = hilp.Config(), Spec(OBSERVATION, ACTION)
    core = hilp.export(config, hilp.init(config, spec, jax.random.key(0)))
    data = random_data(5_000)
    policy = FoundationPolicy(config, spec, core, Preparation.of(data, True), Bank.draw(data, 1000, 0))
    prompt = policy.goal(data.observations[0], plan=0)
    observation = data.observations[1]
    policy.act(observation, prompt)
    ours = best(lambda: policy.act(observation, prompt), 300)

    layers = [(np.asarray(layer.weight), np.asarray(layer.bias)) for layer in core.actor.hidden]
    x = np.zeros((1, spec.observation_dim + config.dim), np.float32)

    def bare() -> np.ndarray:
        h = x
        for weight, bias in layers:
            h = np.maximum(h @ weight + bias, 0.0)
        return h

    plain = best(bare, 300)
    return {
        "value": round(1e6 * ours, 1),
        "unit": "us",
        "ratio": round(ours / plain, 2),
        "against": f"the actor's hidden layers alone in NumPy, {1e6 * plain:.0f} us",
    }


MEMORY_SCRIPT = """
import sys
import timing
from hilp.data.dataset import Dataset
from hilp.training.loop import Run
from hilp.learning.methods import hilp
def train(folder):
    data = Dataset.open(folder)
    run = Run(hilp.Config(), data)
    run.advance(run.fresh, 0, 3)
    return data.observations.nbytes + data.actions.nbytes
train(sys.argv[1])
before = timing.peak_memory()
raw = train(sys.argv[2])
print(before, timing.peak_memory(), raw)
"""


def memory() -> Line:
    """Peak memory that 1M x 29 of data in a native folder add to a training process, over the bytes of the data."""
    with tempfile.TemporaryDirectory(prefix="hilp-bench-") as folder:
        paths = [random_data(rows).save(Path(folder) / str(rows)) for rows in (2_000, 1_000_000)]
        before, peak, raw = map(int, python("-c", MEMORY_SCRIPT, *map(str, paths)).split())
    return {
        "value": round((peak - before) / 2**20, 1),
        "unit": "MiB",
        "ratio": round((peak - before) / raw, 2),
        "against": f"raw bytes of the data, {raw / 2**20:.0f} MiB (process without them: {before / 2**20:.0f} MiB)",
    }


def import_time() -> Line:
    """Seconds of `import hilp`."""
    return _start_time(["-c", "import hilp"])


def help_time() -> Line:
    """Seconds of `hilp --help`."""
    return _start_time(["-c", "import sys; from hilp.cli import main; sys.exit(main(['--help']))"])


BENCHMARKS: dict[str, Callable[[], Line]] = {
    "train_step": train_step,
    "sf_train_step": sf_train_step,
    "plan": plan,
    "graph": graph,
    "graph_step": graph_step,
    "act": act,
    "act_goal": acting.act_goal,
    "act_plan": acting.act_plan,
    "act_numpy": acting.act_numpy,
    "act_onnx": acting.act_onnx,
    "act_flow": acting.act_flow,
    "start": acting.start,
    "serve": over_socket.serve,
    "memory": memory,
    "films": pixels.films,
    "maze_frames": pixels.maze_frames,
    "walker_frames": pixels.walker_frames,
    "cube_frames": pixels.cube_frames,
    "kitchen_frames": pixels.kitchen_frames,
    "workers_waiting": stepping.workers_waiting,
    "workers_computing": stepping.workers_computing,
    "import": import_time,
    "help": help_time,
}


def maze_like_latents(rng: np.random.Generator, count: int, dim: int, place: np.ndarray | None = None) -> np.ndarray:
    """A curved two-dimensional sheet with noise, at random places or given ones: what phi makes of a maze."""
    place = rng.uniform(0.0, 1.0, (count, 2)) if place is None else place
    waves = np.sin(place @ rng.normal(0.0, 2.5, (2, dim)) + rng.uniform(0.0, 6.0, dim))
    return (10.0 * waves + 0.1 * rng.standard_normal((count, dim))).astype(np.float32)


def maze_like_walks(rng: np.random.Generator, walks: int, length: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Random walks on that sheet, one behind the other, and their lengths."""
    start = rng.uniform(0.0, 1.0, (1, walks, 2))
    place = start + np.cumsum(rng.normal(0.0, 0.004, (length, walks, 2)), axis=0)
    folded = np.abs((place + 1.0) % 2.0 - 1.0).transpose(1, 0, 2).reshape(-1, 2)  # edges of the sheet reflect
    return maze_like_latents(rng, len(folded), dim, folded), np.full(walks, length)


def _start_time(arguments: list[str]) -> Line:
    ours = best(lambda: python(*arguments), 5)
    bare = best(lambda: python("-c", "pass"), 5)
    return {
        "value": round(ours, 3),
        "unit": "s",
        "ratio": round(ours / bare, 2),
        "against": f"an empty Python program, {bare:.3f} s",
    }


def measure(only: Sequence[str] = ()) -> Iterator[Line]:
    """A line for each benchmark."""
    for name, run in BENCHMARKS.items():
        if not only or name in only:
            yield {"name": name, **run()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=(), help="names to measure (default: all)")
    for line in measure(parser.parse_args().only):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
