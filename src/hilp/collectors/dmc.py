"""Unlabeled data of DeepMind Control robots: random motion, or a small learner that seeks what it has not seen.

The learner is TD3 without a target actor on an intrinsic reward of the state that an action leads to: "rnd" is random
network distillation, the error of predicting a random network's output there; "apt" is particle entropy, the log of the
mean distance to the nearest other states of the batch, in observations brought to unit variance (no learned features).

Episodes run in blocks side by side. At the end of a block its episodes and the learner are safe on disk, and all
randomness of a block comes from (seed, block), so a collection that was killed goes on as if nothing had happened.
"""

import json
from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from hilp import storage
from hilp.collectors.collecting import Episode, Request, Shards, apart, collection, cut, recorded
from hilp.data.dataset import Dataset
from hilp.learning import actors, losses, networks
from hilp.tasks import dmc

KINDS = ("random", "rnd", "apt")
CLIP = 5.0  # of standardised observations
REWARD_CLIP = 10.0
REWARD_EMA = 0.001  # how quickly the scale of intrinsic rewards follows


@dataclass(frozen=True)
class Config:
    """Of the learner; sized for one core: half a million transitions of the walker in well under an hour."""

    side_by_side: int = 10  # episodes of a block
    chunk: int = 20  # steps of control between rounds of updates
    steps_per_update: int = 4  # transitions collected for each update
    random_steps: int = 4_000  # transitions of random actions before the learner acts
    hidden: tuple[int, int] = (256, 256)
    novelty: tuple[int, int, int] = (128, 128, 64)  # sizes of the networks of rnd
    neighbours: int = 12  # of apt
    batch: int = 256
    lr: float = 3e-4
    n_step: int = 3  # the reward is that of the state so many steps on, as is the value it is bootstrapped from
    discount: float = 0.99
    tau: float = 0.01
    noise: float = 0.2  # on actions, when acting and when learning
    noise_clip: float = 0.3  # when learning


class State(NamedTuple):
    """Everything that learning changes."""

    actor: networks.Feature
    critic: tuple[networks.Feature, ...]
    critic_target: tuple[networks.Feature, ...]
    predictor: networks.Mlp
    fixed: networks.Mlp  # what the predictor predicts
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    predictor_opt: optax.OptState
    reward_square: Array  # moving mean square of the raw intrinsic reward


class Batch(NamedTuple):
    observation: Array
    action: Array
    next_observation: Array  # n steps on
    discount: Array  # gamma to the power of the steps to there


@partial(jax.jit, static_argnums=(0, 1, 2))
def init(cfg: Config, observation_dim: int, action_dim: int, key: Array) -> State:
    keys = jax.random.split(key, 5)
    actor = networks.Feature(observation_dim, cfg.hidden, action_dim, keys[0])
    both = observation_dim + action_dim
    critic = tuple(networks.Feature(both, cfg.hidden, 1, k) for k in keys[1:3])
    predictor, fixed = (networks.Mlp(observation_dim, cfg.novelty[:-1], cfg.novelty[-1], k) for k in keys[3:])
    adam = optax.adam(cfg.lr)
    optimisers = adam.init(actor), adam.init(critic), adam.init(predictor)
    return State(actor, critic, critic, predictor, fixed, *optimisers, jnp.ones(()))


def prediction_error(predictor: networks.Mlp, fixed: networks.Mlp, standard: Array) -> Array:
    return jnp.mean(jnp.square(predictor(standard) - fixed(standard)), axis=-1)


def particle_entropy(standard: Array, neighbours: int) -> Array:
    """log(1 + mean distance to the nearest others of the batch)."""
    squares = jnp.sum(jnp.square(standard), axis=-1)
    distance = jnp.sqrt(jnp.maximum(squares[:, None] + squares[None] - 2 * standard @ standard.T, 0.0))
    nearest_others = -jax.lax.top_k(-distance, neighbours + 1)[0]  # the nearest of all is the state itself
    return jnp.log1p(jnp.sum(nearest_others, axis=-1) / neighbours)


def _update(
    cfg: Config, kind: str, mean: Array, std: Array, state: State, given: tuple[Batch, Array]
) -> tuple[State, Array]:
    batch, key = given
    standard = jnp.clip((batch.next_observation - mean) / std, -CLIP, CLIP)
    predictor, predictor_opt = state.predictor, state.predictor_opt
    if kind == "rnd":
        raw, pull_back = jax.vjp(lambda net: prediction_error(net, state.fixed, standard), predictor)
        (grads,) = pull_back(jnp.full(raw.shape, 1 / raw.size))
        predictor, predictor_opt = losses.adam_step(cfg.lr, grads, predictor_opt, predictor)
    else:
        raw = particle_entropy(standard, cfg.neighbours)
    reward_square = state.reward_square + REWARD_EMA * (jnp.mean(jnp.square(raw)) - state.reward_square)
    reward = jnp.clip(raw * jax.lax.rsqrt(reward_square + 1e-12), 0.0, REWARD_CLIP)

    def acted(actor: networks.Feature, observation: Array, key: Array) -> Array:
        action = jnp.tanh(actor(observation))
        noisy = action + actors.smoothing_noise(key, action.shape, cfg.noise, cfg.noise_clip)
        return noisy + jax.lax.stop_gradient(jnp.clip(noisy, -1.0, 1.0) - noisy)

    def q(critic: tuple[networks.Feature, ...], observation: Array, action: Array) -> Array:
        x = jnp.concatenate([observation, action], axis=-1)
        return jnp.stack([network(x)[..., 0] for network in critic])

    key_next, key_now = jax.random.split(key)
    next_action = acted(state.actor, batch.next_observation, key_next)
    next_q = jnp.min(q(state.critic_target, batch.next_observation, next_action), axis=0)
    target = reward + batch.discount * next_q

    def critic_loss(critic: tuple[networks.Feature, ...]) -> Array:
        return jnp.mean(jnp.square(q(critic, batch.observation, batch.action) - target))

    grads = jax.grad(critic_loss)(state.critic)
    critic, critic_opt = losses.adam_step(cfg.lr, grads, state.critic_opt, state.critic)

    def actor_loss(actor: networks.Feature) -> Array:
        return -jnp.mean(q(critic[:1], batch.observation, acted(actor, batch.observation, key_now)))

    grads = jax.grad(actor_loss)(state.actor)
    actor, actor_opt = losses.adam_step(cfg.lr, grads, state.actor_opt, state.actor)
    critic_target = losses.polyak(state.critic_target, critic, cfg.tau)
    optimisers = (actor_opt, critic_opt, predictor_opt)
    return State(actor, critic, critic_target, predictor, state.fixed, *optimisers, reward_square), jnp.mean(raw)


@partial(jax.jit, static_argnums=(0, 1))
def learn(
    cfg: Config, kind: str, state: State, batches: Batch, mean: Array, std: Array, key: Array
) -> tuple[State, Array]:
    """An update for each of the batches, stacked in front; also the mean raw intrinsic reward of each."""
    keys = jax.random.split(key, batches.discount.shape[0])
    return jax.lax.scan(partial(_update, cfg, kind, mean, std), state, (batches, keys))


@jax.jit
def act(actor: networks.Feature, observations: Array) -> Array:
    return jnp.tanh(actor(observations))


class Replay:
    """All transitions so far: finished episodes of equal length, then those of the block that is running."""

    def __init__(self, episodes: int, length: int, observation_dim: int, action_dim: int) -> None:
        self.observations = np.zeros((episodes, length + 1, observation_dim), np.float32)
        self.actions = np.zeros((episodes, length, action_dim), np.float32)
        self.finished = 0  # episodes
        self.running = 0  # episodes
        self.now = 0  # steps of the running ones

    @property
    def transitions(self) -> int:
        return self.finished * self.actions.shape[1] + self.running * self.now

    @property
    def block(self) -> slice:
        return slice(self.finished, self.finished + self.running)

    def sample(self, rng: np.random.Generator, updates: int, cfg: Config) -> Batch:
        """[updates, batch] transitions, uniform over all."""
        length = self.actions.shape[1]
        at = rng.integers(self.transitions, size=(updates, cfg.batch))
        old = self.finished * length
        current = at >= old
        steps = np.where(current, max(self.now, 1), length)  # of the episode that it is in
        place = np.where(current, at - old, at)
        episode, step = np.where(current, self.finished, 0) + place // steps, place % steps
        after = np.minimum(step + cfg.n_step, steps)
        return Batch(
            self.observations[episode, step],
            self.actions[episode, step],
            self.observations[episode, after],
            (cfg.discount ** (after - step)).astype(np.float32),
        )


class Moments:
    """Mean and standard deviation of all observations so far."""

    def __init__(self, size: int) -> None:
        self.count, self.sum, self.squares = np.zeros(()), np.zeros(size), np.zeros(size)

    def add(self, observations: np.ndarray) -> None:
        rows = observations.reshape(-1, len(self.sum)).astype(np.float64)
        self.count += len(rows)
        self.sum += rows.sum(axis=0)
        self.squares += np.square(rows).sum(axis=0)

    def scale(self) -> tuple[np.ndarray, np.ndarray]:
        mean = self.sum / self.count
        variance = np.maximum(self.squares / self.count - mean**2, 1e-6)
        return mean.astype(np.float32), np.sqrt(variance).astype(np.float32)


class Seeker:
    """A learner in its world: acts, remembers and learns."""

    def __init__(self, cfg: Config, kind: str, world: dmc.Dmc, episodes: int, seed: int) -> None:
        self.cfg, self.kind = cfg, kind
        self.key = jax.random.key(seed)
        self.state = init(cfg, world.observation_dim, world.action_dim, self.key)
        self.replay = Replay(episodes, world.max_steps, world.observation_dim, world.action_dim)
        self.moments = Moments(world.observation_dim)
        self.updates = 0

    def begin(self, observations: np.ndarray) -> None:
        self.replay.running, self.replay.now = len(observations), 0
        self.replay.observations[self.replay.block, 0] = observations

    def actions(self, rng: np.random.Generator, observations: np.ndarray) -> np.ndarray:
        shape = (len(observations), self.replay.actions.shape[-1])
        if self.replay.transitions < self.cfg.random_steps:
            return rng.uniform(-1, 1, shape).astype(np.float32)
        means = np.asarray(act(self.state.actor, observations))
        return np.clip(means + self.cfg.noise * rng.standard_normal(shape), -1, 1).astype(np.float32)

    def observe(self, rng: np.random.Generator, actions: np.ndarray, observations: np.ndarray) -> None:
        """One step of all running episodes; learns when a chunk of them is full."""
        replay = self.replay
        replay.actions[replay.block, replay.now] = actions
        replay.now += 1
        replay.observations[replay.block, replay.now] = observations
        if replay.now % self.cfg.chunk:
            return
        self.moments.add(replay.observations[replay.block, replay.now - self.cfg.chunk : replay.now])
        updates = replay.running * self.cfg.chunk // self.cfg.steps_per_update
        if updates and replay.transitions >= self.cfg.random_steps:
            batches = replay.sample(rng, updates, self.cfg)
            key = jax.random.fold_in(self.key, self.updates)
            self.state, _ = learn(self.cfg, self.kind, self.state, batches, *self.moments.scale(), key)
            self.updates += updates

    def end(self) -> None:
        self.replay.finished += self.replay.running
        self.replay.running = self.replay.now = 0

    def save(self, shards: Shards) -> None:
        moments = {f"moments.{name}": np.asarray(value) for name, value in vars(self.moments).items()}
        shards.save_state({**storage.flatten(self.state), **moments}, {"updates": self.updates})

    def load(self, shards: Shards) -> None:
        """Go on from the last block that is safe on disk."""
        saved = shards.load_state()
        if saved is None:
            return
        arrays, note = saved
        for name in vars(self.moments):
            setattr(self.moments, name, arrays.pop(f"moments.{name}"))
        self.state = storage.unflatten(self.state, arrays, shards.folder)
        self.updates = note["updates"]
        for number, episode in enumerate(shards.stored()):
            steps = len(episode["actions"])
            self.replay.observations[number, : steps + 1] = episode["observations"]
            self.replay.actions[number, :steps] = episode["actions"]
        self.replay.finished = shards.episodes()


def collect(world: dmc.Dmc, request: Request) -> Dataset:
    """Whole episodes (the last may be shorter), with an extra column "physics"."""
    cfg, episodes = request.config or Config(), -(-request.steps // world.max_steps)
    identity = request.identity(world.domain_name, config=json.loads(json.dumps(asdict(cfg))))  # lists, no tuples
    with collection(request.folder, identity, request.overwrite) as shards:
        seeker = None
        if request.kind != "random":
            seeker = Seeker(cfg, request.kind, world, episodes, request.seed)
            seeker.load(shards)
        while (done := shards.episodes()) < episodes:
            rng, count = np.random.default_rng([request.seed, done]), min(cfg.side_by_side, episodes - done)
            block = _block(world, rng, count, seeker, request, shards.transitions())
            if done + count == episodes:
                block[-1] = cut(block[-1], request.steps - (episodes - 1) * world.max_steps)
            shards.add(block)
            if seeker:
                seeker.save(shards)
        return shards.finish(f"{world.domain_name}-{request.kind}", world.domain_name, world.observation_parts)


def _block(
    world: dmc.Dmc, rng: np.random.Generator, count: int, seeker: Seeker | None, request: Request, done: int
) -> list[Episode]:
    """`count` whole episodes side by side; `done`: transitions that there are already."""
    running = world.episodes(rng, count)
    if seeker:
        seeker.begin(running.observations)

    def row() -> Episode:
        return {"observations": running.observations, "physics": running.extra("physics")}

    def step() -> np.ndarray:
        nonlocal done
        if seeker:
            chosen = seeker.actions(rng, running.observations)
        else:
            chosen = rng.uniform(-1, 1, (count, world.action_dim)).astype(np.float32)
        running.step(chosen)
        if seeker:
            seeker.observe(rng, chosen, running.observations)
        done += count
        request.report(done)
        return chosen

    columns = recorded(row, step, world.max_steps)
    if seeker:
        seeker.end()
    return apart(columns, [world.max_steps] * count)
