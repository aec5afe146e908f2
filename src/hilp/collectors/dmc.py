"""Unlabeled data of DeepMind Control robots: random motion, or learners that seek what they have not seen.

A learner is the DDPG of URLB, by which ExORL's data was made, on an intrinsic reward of the state that an action leads
to: "rnd" is random network distillation, the error of predicting a random network's output there; "apt" is particle
entropy, the log of the mean distance to the nearest other states of the batch, in observations brought to unit variance
(no learned features). URLB has one learner, networks and batches of 1024 (novelty 1024,512), an update every 2 steps
and learning rates of 1e-4; the sizes of `Config` suit two cores. As the simulation takes a thirtieth of the time, and
small networks keep one core busy only, there are several learners, each in a thread of its own. They learn from what
all of them have seen. Rewards are centred, unlike URLB's: values of a few updates then tell states apart, instead of
climbing to what all states have in common.

Episodes run in blocks side by side. At the end of a round, a block of each learner, its episodes and the learners are
safe on disk, and all randomness of a block comes from (seed, block), so a collection that was killed goes on as if
nothing had happened.
"""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from threading import Lock
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from hilp import storage
from hilp.collectors.collecting import Episode, Request, Shards, apart, collection, cut, measure, recorded
from hilp.data.dataset import Dataset
from hilp.learning import actors, configs, losses, networks
from hilp.tasks import dmc

KINDS = ("random", "rnd", "apt")
CLIP = 5.0  # of standardised observations
REWARD_EMA = 0.001  # how quickly the scale of intrinsic rewards follows


@dataclass(frozen=True)
class Config:
    """Of the learners; sized for two cores: five million transitions of the walker in an hour and a half."""

    learners: configs.Count = 2
    side_by_side: configs.Count = 10  # episodes of a block
    chunk: configs.Count = 20  # steps of control between rounds of updates
    steps_per_update: configs.Count = 4  # transitions that a learner collects for each of its updates
    random_steps: configs.UpTo = 4_000  # transitions of random actions before a learner acts
    width: configs.Count = 256  # of actor and critic
    novelty: configs.TwoSizes = (256, 128)  # of the networks of rnd: width of two layers, and of what is predicted
    neighbours: configs.Count = 12  # of apt
    batch: configs.Count = 256
    lr: configs.Positive = 3e-4
    n_step: configs.Count = 3  # the reward is that of the state so many steps on, as is the value it goes on from
    discount: configs.Fraction = 0.99
    tau: configs.Ema = 0.01
    noise: configs.NonNegative = 0.2  # on actions, when acting and when learning
    noise_clip: configs.NonNegative = 0.3  # when learning

    def __post_init__(self) -> None:
        configs.check(self)


class Critic(eqx.Module):
    """Twin values of (s, a) on one layer of LayerNorm and tanh."""

    first: networks.Dense
    norm: networks.LayerNorm
    heads: tuple[networks.Mlp, ...]

    def __init__(self, size_in: int, width: int, key: Array):
        keys = jax.random.split(key, 3)
        self.first = networks.orthogonal(size_in, width, keys[0])
        self.norm = networks.LayerNorm(width, networks.PREPROCESSOR_EPSILON)
        self.heads = tuple(networks.Mlp(width, (width,), 1, k) for k in keys[1:])

    def __call__(self, observation: Array, action: Array) -> Array:
        """heads x batch."""
        x = self.first(jnp.concatenate([observation, action], axis=-1))
        x = networks.norm_tanh(x, self.norm.scale, self.norm.shift)
        return jnp.stack([head(x)[..., 0] for head in self.heads])


class State(NamedTuple):
    """Everything that learning changes."""

    actor: networks.Feature
    critic: Critic
    critic_target: Critic
    predictor: networks.Mlp
    fixed: networks.Mlp  # what the predictor predicts
    actor_opt: optax.OptState
    critic_opt: optax.OptState
    predictor_opt: optax.OptState
    reward_mean: Array  # moving mean of the raw intrinsic reward
    reward_square: Array  # and of its square
    updates: Array  # so far


class Batch(NamedTuple):
    observation: Array
    action: Array
    next_observation: Array  # n steps on
    discount: Array  # gamma to the power of the steps to there


@partial(jax.jit, static_argnums=(0, 1, 2))
def init(cfg: Config, observation_dim: int, action_dim: int, key: Array) -> State:
    keys = jax.random.split(key, 4)
    actor = networks.Feature(observation_dim, (cfg.width, cfg.width), action_dim, keys[0])
    critic = Critic(observation_dim + action_dim, cfg.width, keys[1])
    width, size_out = cfg.novelty
    predictor, fixed = (networks.Mlp(observation_dim, (width, width), size_out, k) for k in keys[2:])
    adam = optax.adam(cfg.lr)
    optimisers = adam.init(actor), adam.init(critic), adam.init(predictor)
    return State(actor, critic, critic, predictor, fixed, *optimisers, *jnp.zeros((3,)))


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
    updates = state.updates + 1
    rate = jnp.maximum(REWARD_EMA, 1 / updates)  # at first the mean of all
    reward_mean = state.reward_mean + rate * (jnp.mean(raw) - state.reward_mean)
    reward_square = state.reward_square + rate * (jnp.mean(jnp.square(raw)) - state.reward_square)
    reward = (raw - reward_mean) * jax.lax.rsqrt(jnp.maximum(reward_square - jnp.square(reward_mean), 1e-12))

    def acted(actor: networks.Feature, observation: Array, key: Array) -> Array:
        action = jnp.tanh(actor(observation))
        noisy = action + actors.smoothing_noise(key, action.shape, cfg.noise, cfg.noise_clip)
        return noisy + jax.lax.stop_gradient(jnp.clip(noisy, -1.0, 1.0) - noisy)

    key_next, key_now = jax.random.split(key)
    next_action = acted(state.actor, batch.next_observation, key_next)
    next_q = jnp.min(state.critic_target(batch.next_observation, next_action), axis=0)
    target = reward + batch.discount * next_q

    def critic_loss(critic: Critic) -> Array:
        return jnp.sum(jnp.mean(jnp.square(critic(batch.observation, batch.action) - target), axis=-1))

    grads = jax.grad(critic_loss)(state.critic)
    critic, critic_opt = losses.adam_step(cfg.lr, grads, state.critic_opt, state.critic)

    def actor_loss(actor: networks.Feature) -> Array:
        action = acted(actor, batch.observation, key_now)
        return -jnp.mean(jnp.min(critic(batch.observation, action), axis=0))

    grads = jax.grad(actor_loss)(state.actor)
    actor, actor_opt = losses.adam_step(cfg.lr, grads, state.actor_opt, state.actor)
    critic_target = losses.polyak(state.critic_target, critic, cfg.tau)
    optimisers, scale = (actor_opt, critic_opt, predictor_opt), (reward_mean, reward_square, updates)
    return State(actor, critic, critic_target, predictor, state.fixed, *optimisers, *scale), jnp.mean(raw)


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
    """All transitions so far: episodes of equal length."""

    def __init__(self, episodes: int, length: int, observation_dim: int, action_dim: int) -> None:
        self.observations = np.zeros((episodes, length + 1, observation_dim), np.float32)
        self.actions = np.zeros((episodes, length, action_dim), np.float32)
        self.finished = 0  # episodes, the first ones

    def sample(self, rng: np.random.Generator, updates: int, cfg: Config, running: slice, now: int) -> Batch:
        """[updates, batch] transitions, uniform over those of finished episodes and `now` steps of each running one."""
        length = self.actions.shape[1]
        old = self.finished * length
        at = rng.integers(old + (running.stop - running.start) * now, size=(updates, cfg.batch))
        current = at >= old
        steps = np.where(current, max(now, 1), length)  # of the episode that it is in
        place = np.where(current, at - old, at)
        episode, step = np.where(current, running.start, 0) + place // steps, place % steps
        after = np.minimum(step + cfg.n_step, steps)
        return Batch(
            self.observations[episode, step],
            self.actions[episode, step],
            self.observations[episode, after],
            (cfg.discount ** (after - step)).astype(np.float32),
        )

    def load(self, shards: Shards) -> None:
        """The episodes that are safe on disk."""
        for number, episode in enumerate(shards.stored()):
            steps = len(episode["actions"])
            self.observations[number, : steps + 1] = episode["observations"]
            self.actions[number, :steps] = episode["actions"]
        self.finished = shards.episodes()


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

    def __init__(self, cfg: Config, kind: str, world: dmc.Dmc, replay: Replay, key: Array) -> None:
        self.cfg, self.kind, self.replay, self.key = cfg, kind, replay, key
        self.state = init(cfg, world.observation_dim, world.action_dim, self.key)
        self.moments = Moments(world.observation_dim)
        self.block, self.now = slice(0, 0), 0  # the running episodes, and how many steps of them are done
        self.steps, self.updates = 0, 0

    def begin(self, first: int, observations: np.ndarray) -> None:
        """Episodes from number `first` on begin."""
        self.block, self.now = slice(first, first + len(observations)), 0
        self.replay.observations[self.block, 0] = observations

    def actions(self, rng: np.random.Generator, observations: np.ndarray) -> np.ndarray:
        shape = (len(observations), self.replay.actions.shape[-1])
        if self.steps < self.cfg.random_steps:
            return rng.uniform(-1, 1, shape).astype(np.float32)
        means = np.asarray(act(self.state.actor, observations))
        return np.clip(means + self.cfg.noise * rng.standard_normal(shape), -1, 1).astype(np.float32)

    def observe(self, rng: np.random.Generator, actions: np.ndarray, observations: np.ndarray) -> None:
        """One step of all running episodes; learns when a chunk of them is full."""
        cfg, replay, count = self.cfg, self.replay, len(actions)
        replay.actions[self.block, self.now] = actions
        self.now += 1
        self.steps += count
        replay.observations[self.block, self.now] = observations
        if self.now % cfg.chunk:
            return
        self.moments.add(replay.observations[self.block, self.now - cfg.chunk : self.now])
        updates = count * cfg.chunk // cfg.steps_per_update
        if updates and self.steps >= cfg.random_steps:
            batches = replay.sample(rng, updates, cfg, self.block, self.now)
            key = jax.random.fold_in(self.key, self.updates)
            self.state, _ = learn(cfg, self.kind, self.state, batches, *self.moments.scale(), key)
            self.updates += updates

    def to_save(self) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        moments = {f"moments.{name}": np.asarray(value) for name, value in vars(self.moments).items()}
        return {**storage.flatten(self.state), **moments}, {"steps": self.steps, "updates": self.updates}

    def load(self, arrays: dict[str, np.ndarray], note: dict[str, int], where: Shards) -> None:
        for name in vars(self.moments):
            setattr(self.moments, name, arrays.pop(f"moments.{name}"))
        self.state = storage.unflatten(self.state, arrays, where.folder)
        self.steps, self.updates = note["steps"], note["updates"]


def save(seekers: list[Seeker], shards: Shards) -> None:
    found = [seeker.to_save() for seeker in seekers]
    arrays = {f"{number}.{name}": value for number, (own, _) in enumerate(found) for name, value in own.items()}
    shards.save_state(arrays, {"learners": [note for _, note in found]})


def load(seekers: list[Seeker], shards: Shards) -> None:
    """Go on from the last round that is safe on disk."""
    saved = shards.load_state()
    if saved is None:
        return
    arrays, note = saved
    for number, (seeker, own) in enumerate(zip(seekers, note["learners"], strict=True)):
        begin = f"{number}."
        mine = {name.removeprefix(begin): value for name, value in arrays.items() if name.startswith(begin)}
        seeker.load(mine, own, shards)
    seekers[0].replay.load(shards)


def collect(world: dmc.Dmc, request: Request) -> Dataset:
    """Whole episodes (the last may be shorter), with an extra column "physics"."""
    cfg = configs.changed(Config(), dict(request.config))
    episodes = -(-request.steps // world.max_steps)
    identity = request.identity(world.domain_name, config=json.loads(json.dumps(asdict(cfg))))  # lists, no tuples
    with collection(request.folder, identity, request.overwrite) as shards:
        seekers: list[Seeker] = []
        if request.kind != "random":
            replay = Replay(episodes, world.max_steps, world.observation_dim, world.action_dim)
            keys = jax.random.split(jax.random.key(request.seed), cfg.learners)
            seekers = [Seeker(cfg, request.kind, world, replay, key) for key in keys]
            load(seekers, shards)
        rounds = Rounds(world, request, cfg, seekers)
        while (done := shards.episodes()) < episodes:
            found = rounds.run(done, min(cfg.learners * cfg.side_by_side, episodes - done))
            if done + len(found) == episodes:
                found[-1] = cut(found[-1], request.steps - (episodes - 1) * world.max_steps)
            shards.add(found)
            if seekers:
                save(seekers, shards)
        name = f"{world.domain_name}-{request.kind}"
        return shards.finish(name, world.domain_name, world.observation_parts, partial(measure, world))


class Rounds:
    """Blocks of episodes that run at the same time, each of another learner and in a thread of its own."""

    def __init__(self, world: dmc.Dmc, request: Request, cfg: Config, seekers: list[Seeker]) -> None:
        self.threads = min(cfg.learners, world.threads)
        self.world: dmc.Dmc = world.with_threads(max(1, world.threads // self.threads))
        self.request, self.cfg, self.seekers = request, cfg, seekers
        self.lock, self.done, self.stopped = Lock(), 0, False  # done: transitions

    def run(self, first: int, count: int) -> list[Episode]:
        """`count` whole episodes from number `first` on."""
        self.done = first * self.world.max_steps
        starts = range(first, first + count, self.cfg.side_by_side)
        with ThreadPoolExecutor(self.threads, "hilp-learner") as pool:
            blocks = [self._begin(start, min(self.cfg.side_by_side, first + count - start)) for start in starts]
            seekers: Sequence[Seeker | None] = self.seekers or [None] * len(blocks)
            running = [pool.submit(self._run, *block) for block in zip(blocks, seekers, strict=False)]
            try:
                found = [episode for future in running for episode in future.result()]
            except BaseException:  # let go of what still runs
                self.stopped = True
                raise
        if self.seekers:
            self.seekers[0].replay.finished += count
        return found

    def _begin(self, first: int, count: int) -> tuple[int, np.random.Generator, dmc.DmcEpisodes]:
        """Of one block after the other: all begin in one simulation of the world."""
        rng = np.random.default_rng([self.request.seed, first])
        return first, rng, self.world.episodes(rng, count)

    def _run(self, begun: tuple[int, np.random.Generator, dmc.DmcEpisodes], seeker: Seeker | None) -> list[Episode]:
        """Whole episodes side by side."""
        first, rng, running = begun
        count = len(running.observations)
        if seeker:
            seeker.begin(first, running.observations)

        def row() -> Episode:
            return {"observations": running.observations, "physics": running.extra("physics")}

        def step() -> np.ndarray | None:
            if self.stopped:
                return None
            if seeker:
                chosen = seeker.actions(rng, running.observations)
            else:
                chosen = rng.uniform(-1, 1, (count, self.world.action_dim)).astype(np.float32)
            running.step(chosen)
            if seeker:
                seeker.observe(rng, chosen, running.observations)
            with self.lock:
                self.done += count
                self.request.report(self.done)
            return chosen

        columns = recorded(row, step, self.world.max_steps)
        return apart(columns, [self.world.max_steps] * count)
