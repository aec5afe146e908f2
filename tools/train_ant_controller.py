"""How the ant learned to walk: soft actor-critic, several ants side by side, most on an empty floor, some among walls.

The reward is the speed along a direction that changes at random, up to a brisk walk, less a little for sideways drift,
a heading away from +x, tilt, bouncing and effort; an ant that falls over starts anew. Both sides of every transition
are canonical for the direction it was made with, so a change of direction needs no special care.

Train the network that ships with the package again, or measure it:

    python tools/train_ant_controller.py --steps 150528 --out ant_controller.safetensors
    python tools/train_ant_controller.py --steps 250880 --out ant_controller.safetensors   # one run gives others
    python tools/train_ant_controller.py --evaluate antmaze-large --episodes 100
    python tools/train_ant_controller.py --evaluate ant-open --episodes 60
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from hilp import storage
from hilp.collectors.antmaze import ACTION_DIM, INPUT_DIM, WEIGHTS, Controller, Walk, actual, canonical, walk
from hilp.collectors.antmaze import EPISODE_STEPS as WALK_STEPS
from hilp.errors import HilpError
from hilp.evaluation import stats
from hilp.learning.networks import Dense
from hilp.storage import lines
from hilp.tasks import antmaze
from hilp.tasks.base import import_simulator
from hilp.versions import versions

COMMAND = "python tools/train_ant_controller.py"
HIDDEN = (256, 256)
BATCH = 256
DISCOUNT = 0.98  # 5 s at 10 steps/s: far enough to see a fall coming
TARGET_RATE = 0.005
LEARNING_RATE = 3e-4
TARGET_ENTROPY = -ACTION_DIM / 2
LOG_STD_RANGE = (-5.0, 2.0)
ANTS = 8
WALLED_ANTS = 2  # of them, in ROOM: they learn not to fall when they run into a wall
ROOM = "#####\n#...#\n#.#.#\n#...#\n#####"
CHUNK = 64  # updates in one compiled call
STEPS_PER_UPDATE = 2
WARMUP = 10_000  # steps before the first update
RANDOM = 4_000  # of them with random actions
EPISODE_STEPS = 400
DIRECTION_STEPS = (10, 80)
TOP_SPEED = 1.2  # m/s; faster earns nothing, because haste makes falls
FALLEN = 0.0  # vertical component of the body's z axis below which an ant has fallen: it does not get up again
FALL_PENALTY = 10.0
ALIVE = 0.5
DRIFT_COST = 0.3  # per m/s sideways
HEADING_COST = 0.5  # per radian that it faces away from +x; of a tilted body not quite the same after a quarter turn
ANY_HEADING_SHARE = 0.25  # of the starts: walls turn ants, and they learn to turn back
BOUNCE_COST = 0.2  # per m/s up or down
TILT_COST = 1.0  # from 0 upright to this on the side
EFFORT_COST = 0.02  # per squared action, summed over the joints
REPORT_STEPS = 5_000
CHECKPOINT_STEPS = 25_000


class Network(eqx.Module):
    """ReLU layers and a linear output."""

    layers: tuple[Dense, ...]

    def __init__(self, size_in: int, size_out: int, key: Array):
        sizes = (size_in, *HIDDEN, size_out)
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(Dense(a, b, k) for a, b, k in zip(sizes, sizes[1:], keys, strict=False))

    def __call__(self, x: Array) -> Array:
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)


class Learner(eqx.Module):
    """All that training changes."""

    actor: Network
    critics: tuple[Network, Network]
    targets: tuple[Network, Network]
    log_temperature: Array
    optimizers: tuple[Any, Any, Any]


def optimizer() -> optax.GradientTransformation:
    return optax.adam(LEARNING_RATE)


def new_learner(key: Array) -> Learner:
    keys = jax.random.split(key, 3)
    actor = Network(INPUT_DIM, 2 * ACTION_DIM, keys[0])
    critics = tuple(Network(INPUT_DIM + ACTION_DIM, 1, k) for k in keys[1:])
    log_temperature = jnp.asarray(-2.0)
    states = tuple(optimizer().init(part) for part in (actor, critics, log_temperature))
    return Learner(actor, critics, critics, log_temperature, states)  # type: ignore[arg-type]


def sample(actor: Network, observation: Array, key: Array) -> tuple[Array, Array]:
    """Squashed actions and their log-probabilities."""
    mean, log_std = jnp.split(actor(observation), 2, axis=-1)
    log_std = jnp.clip(log_std, *LOG_STD_RANGE)
    noise = jax.random.normal(key, mean.shape)
    raw = mean + jnp.exp(log_std) * noise
    gaussian = -0.5 * jnp.square(noise) - log_std - 0.5 * jnp.log(2 * jnp.pi)
    squash = 2 * (jnp.log(2.0) - raw - jax.nn.softplus(-2 * raw))  # log(1 - tanh(raw)^2), exact for large values
    return jnp.tanh(raw), jnp.sum(gaussian - squash, axis=-1)


def values(critics: tuple[Network, Network], observation: Array, action: Array) -> Array:
    inputs = jnp.concatenate([observation, action], axis=-1)
    return jnp.stack([critic(inputs)[..., 0] for critic in critics])


def update(learner: Learner, batch: dict[str, Array], key: Array) -> Learner:
    key_next, key_now = jax.random.split(key)
    temperature = jnp.exp(learner.log_temperature)
    next_action, next_log_prob = sample(learner.actor, batch["next"], key_next)
    next_value = jnp.min(values(learner.targets, batch["next"], next_action), axis=0) - temperature * next_log_prob
    wanted = batch["reward"] + DISCOUNT * (1 - batch["fell"]) * next_value

    def critic_loss(critics: tuple[Network, Network]) -> Array:
        return jnp.mean(jnp.square(values(critics, batch["now"], batch["action"]) - wanted))

    def actor_loss(actor: Network) -> tuple[Array, Array]:
        action, log_prob = sample(actor, batch["now"], key_now)
        value = jnp.min(values(learner.critics, batch["now"], action), axis=0)
        return jnp.mean(temperature * log_prob - value), jnp.mean(log_prob)

    critic_gradient = jax.grad(critic_loss)(learner.critics)
    actor_gradient, log_prob = jax.grad(actor_loss, has_aux=True)(learner.actor)
    temperature_gradient = -(log_prob + TARGET_ENTROPY) * temperature
    parts = (learner.actor, learner.critics, learner.log_temperature)
    gradients = (actor_gradient, critic_gradient, temperature_gradient)
    changed, states = [], []
    for part, gradient, state in zip(parts, gradients, learner.optimizers, strict=True):
        change, state = optimizer().update(gradient, state)
        changed.append(optax.apply_updates(part, change))
        states.append(state)
    targets = optax.incremental_update(changed[1], learner.targets, TARGET_RATE)
    return Learner(changed[0], changed[1], targets, changed[2], tuple(states))


@jax.jit
def updates(learner: Learner, batches: dict[str, Array], key: Array) -> Learner:
    """One update a batch."""

    def one(learner: Learner, inputs: tuple[dict[str, Array], Array]) -> tuple[Learner, None]:
        return update(learner, *inputs), None

    keys = jax.random.split(key, batches["reward"].shape[0])
    return jax.lax.scan(one, learner, (batches, keys))[0]


def controller_of(actor: Network) -> Controller:
    return Controller(arrays_of(actor))


def arrays_of(actor: Network) -> dict[str, np.ndarray]:
    arrays = {}
    for number, layer in enumerate(actor.layers):
        arrays[f"weight{number}"], arrays[f"bias{number}"] = np.asarray(layer.weight), np.asarray(layer.bias)
    return arrays


@dataclass
class Replay:
    """Every transition so far, in canonical form."""

    size: int
    count: int = 0

    def __post_init__(self) -> None:
        self.columns = {
            "now": np.empty((self.size, INPUT_DIM), np.float32),
            "action": np.empty((self.size, ACTION_DIM), np.float32),
            "reward": np.empty(self.size, np.float32),
            "fell": np.empty(self.size, np.float32),
            "next": np.empty((self.size, INPUT_DIM), np.float32),
        }

    def add(self, **rows: np.ndarray) -> None:
        block = slice(self.count, self.count + len(rows["reward"]))
        for name, column in self.columns.items():
            column[block] = rows[name]
        self.count = block.stop

    def batches(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        rows = rng.integers(self.count, size=(n, BATCH))
        return {name: column[rows] for name, column in self.columns.items()}


class Floor:
    """Ants on the floor, each with its direction."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.mujoco = import_simulator("AntMaze")
        self.room = antmaze.make(ROOM)
        empty = self.mujoco.MjModel.from_xml_string(antmaze.model_xml(np.zeros((3, 3), bool)))
        self.models = [self.room.model if ant < WALLED_ANTS else empty for ant in range(ANTS)]
        self.data = [self.mujoco.MjData(model) for model in self.models]
        self.observations = np.empty((ANTS, self.room.observation_dim))
        self.directions = np.empty((ANTS, 2))
        self.age = np.zeros(ANTS, np.int64)
        self.turn_at = np.zeros(ANTS, np.int64)
        for ant in range(ANTS):
            self._restart(ant)
        # Ages apart, or all ants would be young and old at the same time.
        self.age = rng.integers(EPISODE_STEPS, size=ANTS)
        self.turn_at += self.age

    def _restart(self, ant: int) -> None:
        cells = self.room.free_cells
        state = self.room.resets(self.rng, self.room.centres(cells[self.rng.integers(len(cells), size=1)]))[0]
        if self.rng.random() < ANY_HEADING_SHARE:
            half = self.rng.uniform(-np.pi / 2, np.pi / 2)  # of the heading
            state[3:7] += np.array([np.cos(half) - 1, 0, 0, np.sin(half)])
        self.mujoco.mj_resetData(self.models[ant], self.data[ant])
        antmaze.set_state(self.mujoco, self.models[ant], self.data[ant], state)
        self._observe(ant)
        self.age[ant] = self.turn_at[ant] = 0
        self._turn(ant)

    def _observe(self, ant: int) -> None:
        self.observations[ant] = np.concatenate([self.data[ant].qpos, self.data[ant].qvel])

    def _turn(self, ant: int) -> None:
        angle = self.rng.uniform(0, 2 * np.pi)
        self.directions[ant] = np.cos(angle), np.sin(angle)
        self.turn_at[ant] = self.age[ant] + self.rng.integers(*DIRECTION_STEPS)

    def step(self, choose: Callable[[np.ndarray], np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """One step of every ant: the transitions in canonical form, and the speeds along the directions."""
        before, directions = self.observations.copy(), self.directions
        now = canonical(before[:, 2:], directions).astype(np.float32)
        action = choose(now)
        for ant, signals in enumerate(actual(action, directions)):
            self.data[ant].ctrl[:] = signals
            self.mujoco.mj_step(self.models[ant], self.data[ant], antmaze.SUBSTEPS)
            self._observe(ant)
        proprioception = self.observations[:, 2:]
        moved = (self.observations[:, :2] - before[:, :2]) / antmaze.STEP_SECONDS
        along = (moved * directions).sum(axis=1)
        drift = moved[:, 1] * directions[:, 0] - moved[:, 0] * directions[:, 1]
        height = antmaze.upright(self.observations)
        fell = height < FALLEN
        cost = DRIFT_COST * np.abs(drift) + TILT_COST * (1 - height) + EFFORT_COST * np.square(action).sum(axis=1)
        cost += HEADING_COST * np.abs(heading(proprioception))
        cost += BOUNCE_COST * np.abs(self.observations[:, 2] - before[:, 2]) / antmaze.STEP_SECONDS
        reward = np.minimum(along, TOP_SPEED) + ALIVE - cost - FALL_PENALTY * fell
        after = canonical(proprioception, directions)
        rows = {"now": now, "action": action, "reward": reward, "fell": fell, "next": after}
        self.age += 1
        for ant in range(ANTS):
            if fell[ant] or self.age[ant] >= EPISODE_STEPS:
                self._restart(ant)
            elif self.age[ant] >= self.turn_at[ant]:
                self._turn(ant)
        return rows, along


def heading(proprioception: np.ndarray) -> np.ndarray:
    """The angle [n] of the body's x axis seen from above, within pi of 0."""
    w, i, j, k = proprioception[:, 1:5].T
    out: np.ndarray = np.arctan2(2 * (w * k + i * j), 1 - 2 * (j**2 + k**2))
    return out


def train(steps: int, seed: int, out: Path, report: Callable[[str], None]) -> Controller:
    """Train for `steps` steps in all and write the actor to `out`; a checkpoint beside it is taken up again.

    What was learned is kept across an interruption; the replay is filled anew.
    """
    rng = np.random.default_rng(seed)
    learner, done = new_learner(jax.random.key(seed)), 0
    checkpoint = out.with_name(f"{out.name}.training")
    if checkpoint.is_file():
        arrays, note = storage.read_arrays(checkpoint)
        if note["seed"] != seed:
            raise HilpError(f"{checkpoint} belongs to seed {note['seed']}, not {seed}: name another file with --out")
        learner, done = storage.unflatten(learner, arrays, checkpoint), note["steps"]
        if done > steps:
            raise HilpError(f"{checkpoint} is already at step {done:,}: ask for more --steps or name another --out")
        rng = np.random.default_rng([seed, done])
        report(f"going on after {done:,} steps")
    first = done
    replay, floor = Replay(steps - done + ANTS * CHUNK), Floor(rng)
    controller = controller_of(learner.actor)
    began, speeds, falls, reported, saved = time.monotonic(), [], 0, done, done

    def choose(observation: np.ndarray) -> np.ndarray:
        if done < RANDOM:
            return rng.uniform(-1, 1, (len(observation), ACTION_DIM))
        mean, log_std = np.split(controller.head(observation), 2, axis=1)
        return np.tanh(mean + np.exp(log_std.clip(*LOG_STD_RANGE)) * rng.standard_normal(mean.shape))

    while done < steps:
        for _ in range(CHUNK * STEPS_PER_UPDATE // ANTS):
            rows, along = floor.step(choose)
            replay.add(**rows)
            done += ANTS
            speeds.append(along[WALLED_ANTS:].mean())
            falls += int(rows["fell"].sum())
        if done - first >= WARMUP:
            learner = updates(learner, replay.batches(rng, CHUNK), jax.random.fold_in(jax.random.key(seed), done))
            controller = controller_of(learner.actor)
        if done - reported >= REPORT_STEPS:
            rate = (done - first) / (time.monotonic() - began)
            report(
                f"{done:,}/{steps:,} steps {rate:,.0f}/s: {np.mean(speeds):.2f} m/s, "
                f"{falls} falls in {done - reported:,} steps"
            )
            reported, speeds, falls = done, [], 0
        if done - saved >= CHECKPOINT_STEPS or done >= steps:
            saved = done
            storage.write_arrays(checkpoint, storage.flatten(learner), {"seed": seed, "steps": done})
            storage.write_arrays(out, arrays_of(learner.actor), {"seed": seed, "steps": done, "versions": versions()})
    return controller


def measure(task: str, episodes: int, seed: int, weights: Path, report: Callable[[str], None]) -> dict[str, Any]:
    """How often an ant reaches a random goal cell from a random start cell, walking as in the data without straying."""
    if episodes < 1:
        raise HilpError(f"episodes must be at least 1, not {episodes}")
    world, controller = antmaze.make(task), Controller.load(weights)
    lengths: list[int | None] = []
    for episode in range(episodes):
        walk = Walk(world, controller, np.random.default_rng([seed, episode]), strays=False)
        while walk.steps < WALK_STEPS and not walk.arrivals:
            walk.step()
        lengths.append(walk.arrivals[0] if walk.arrivals else None)
        report(f"{episode + 1}/{episodes}: {f'{lengths[-1]} steps' if walk.arrivals else 'not reached'}")
    arrived = [length for length in lengths if length is not None]
    return {
        "task": task,
        "success": len(arrived) / episodes,
        "interval": list(stats.wilson(len(arrived), episodes)),
        "episodes": episodes,
        "max_steps": WALK_STEPS,
        "median_steps": float(np.median(arrived)) if arrived else None,
        "lengths": lengths,
        **origin(seed, weights),
    }


def measure_velocities(episodes: int, seed: int, weights: Path, report: Callable[[str], None]) -> dict[str, Any]:
    """How well an ant holds the velocities that the rewards of ant-open ask for, in as many episodes each."""
    world, controller = antmaze.AntOpen(), Controller.load(weights)
    each, found = max(1, episodes // len(antmaze.VELOCITIES)), {}
    for name, asked in antmaze.VELOCITIES.items():
        running: Any = world.episodes(np.random.default_rng(seed), each)
        steps = [running.observations.copy()]
        for _ in range(world.max_steps):
            running.step(walk(controller, running.states, np.tile(asked, (each, 1))))
            steps.append(running.observations.copy())
        found[name] = world.held(name, np.stack(steps), running) | {"falls": int(running.fallen.sum())}
        mean = np.mean(found[name]["speed_errors"])
        report(f"{name}: held in {found[name]['held']} of {each}, {mean:.2f} m/s off, {found[name]['falls']} falls")
    return {
        "task": world.name,
        "episodes": each * len(found),
        "held": sum(one["held"] for one in found.values()),
        "falls": sum(one["falls"] for one in found.values()),
        "rewards": found,
        **origin(seed, weights),
    }


def origin(seed: int, weights: Path) -> dict[str, Any]:
    """What a row says about where it comes from."""
    return {
        "seed": seed,
        "controller": storage.read_arrays(weights)[1] | {"sha256": hashlib.sha256(weights.read_bytes()).hexdigest()},
        "command": " ".join([COMMAND, *sys.argv[1:]]),
        "versions": versions() | {package: metadata.version(package) for package in ("mujoco", "ogbench")},
    }


def main() -> None:
    """Train or measure from the command line."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Train the ant's legs, or measure them.")
    parser.add_argument("--steps", type=int, default=250_880, help="steps of training in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(WEIGHTS.name), help="where the trained weights go")
    parser.add_argument("--evaluate", metavar="TASK", help="measure in an AntMaze or ant-open instead of training")
    parser.add_argument("--episodes", type=int, default=100, help="episodes to measure")
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="the weights to measure")
    parser.add_argument(
        "--results", type=Path, default=Path("benchmarks/ant_controller.jsonl"), help="file that gets the measured row"
    )
    args = parser.parse_args()
    say = partial(print, flush=True)
    try:
        if args.evaluate is None:
            train(args.steps, args.seed, args.out, say)
        else:
            if args.evaluate == antmaze.OPEN:
                row = measure_velocities(args.episodes, args.seed, args.weights, say)
                told = f"{row['held']} of {row['episodes']} velocities held, {row['falls']} falls"
            else:
                row = measure(args.evaluate, args.episodes, args.seed, args.weights, say)
                told = f"{row['success']:.0%} of {args.episodes} goals"
            lines.append(args.results, [row])
            say(f"{args.evaluate}: {told}, row added to {args.results}")
    except HilpError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
