"""Actors: the heads that give actions, and the losses that train them.

`GaussianActor` and `SquashedActor` belong to the goal-conditioned half of the paper, `TanhActor` to the zero-shot half,
`UnitActor` to the rivals; `FlowActor` can stand in for the Gaussian one. Of discrete actions, which are one-hot here,
`head` and `skilled` give `CategoricalActor` and `SoftmaxActor` in their place, which answer a score for each choice:
the policy takes the largest. The first argument of a loss is the actor that it trains; values come in as arrays or as a
function of the actor's own action, so one loss serves every kind of critic.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from hilp.learning import images, networks
from hilp.learning.configs import Info
from hilp.learning.networks import Dense, Mlp, Preprocessor, join
from hilp.learning.sampling import Batch
from hilp.spec import Spec
from hilp.trees import Tree

LOG_STD_RANGE = (-5.0, 2.0)
ACTION_BOX = 1.0 - 1e-6  # the zero-shot half acts inside this
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
TINY = 1e-6  # keeps a division by a mean of zero finite
SHARPNESS = 0.1  # of a softmax over choices: its temperature, in deviations of their values
FLOW_STEPS = 10  # Euler steps from noise to an action
FLOW_START = 0.1  # deviation of the noise that acting starts from: see FlowActor


class Actor(eqx.Module):
    """Hidden layers without LayerNorm and a small last layer: a batch of states and skills -> means of actions."""

    hidden: tuple[Dense, ...]
    mean: Dense  # of a SquashedActor: mean and log-std
    image_encoder: images.ImageEncoder | None

    def __init__(self, size_in: images.Input, hidden: Sequence[int], size_out: int, key: Array, beside: int = 0):
        """beside: how many numbers the layers take beside what is seen."""
        self.image_encoder, size_in = images.image_encoder(size_in, key)
        keys = jax.random.split(key, len(hidden) + 1)
        sizes = [size_in + beside, *hidden]
        self.hidden = tuple(Dense(a, b, k) for a, b, k in zip(sizes, sizes[1:], keys, strict=False))
        self.mean = Dense(sizes[-1], size_out, keys[-1], scale=0.01)

    @staticmethod
    def activation(x: Array) -> Array:
        return jax.nn.relu(x)

    @property
    def size_in(self) -> int:
        """How many numbers a row of its input has."""
        return int(self.hidden[0].weight.shape[0]) if self.image_encoder is None else self.image_encoder.size_in

    def __call__(self, x: Array) -> Array:
        """The mean action, not clipped."""
        x = images.encode(self.image_encoder, x)
        for dense in self.hidden:
            x = self.activation(dense(x))
        return self.mean(x)

    def act(self, observation: Tree, *skill: Tree) -> Array:
        """The action without noise, inside the box."""
        return jnp.clip(self(join(observation, *skill)), -1.0, 1.0)

    def expected(self, q: Callable[[Array], Array], x: Array) -> Array:
        """What `q`, a function of actions, says of its own action: batch."""
        return q(self.act(x))


class GaussianActor(Actor):
    """pi(a | s, z): ReLU layers, one free log-std per action dimension."""

    log_std: Array

    def __init__(self, size_in: images.Input, hidden: Sequence[int], action_dim: int, key: Array):
        super().__init__(size_in, hidden, action_dim, key)
        self.log_std = jnp.zeros((action_dim,), jnp.float32)

    def log_prob(self, x: Array, action: Array, key: Array | None = None, real: Array | None = None) -> Array:
        """log pi(action | x) of the diagonal Gaussian (no tanh squashing); of a chunk, of its `real` numbers only."""
        log_std = jnp.clip(self.log_std, *LOG_STD_RANGE)
        standard = (action - self(x)) * jnp.exp(-log_std)
        return summed(-0.5 * jnp.square(standard) - log_std - HALF_LOG_2PI, real)


class UnitActor(Actor):
    """OGBench's pi(a | s, g): GELU layers, a deviation of one."""

    def __init__(self, size_in: images.Input, hidden: Sequence[int], action_dim: int, key: Array):
        super().__init__(size_in, hidden, action_dim, key)  # a module's fields would be its arguments without this

    @staticmethod
    def activation(x: Array) -> Array:
        return jax.nn.gelu(x, approximate=True)

    def log_prob(self, x: Array, action: Array, key: Array | None = None, real: Array | None = None) -> Array:
        """log pi(action | x): a squared error, up to a constant."""
        return summed(-0.5 * jnp.square(action - self(x)) - HALF_LOG_2PI, real)


class FlowActor(Actor):
    """pi(a | s, z) by flow matching (Lipman et al. 2023): a velocity field that carries noise to the data's actions.

    Where the data has two ways, a Gaussian's mean lies between them; a flow takes one. Acting starts from a small noise
    that is drawn with the weights: small, so that of noisy actions it gives the middle; the same at every step, so that
    an agent keeps to one of two ways.
    """

    time: Array  # weights of the time in the first layer
    start: Array  # the noise that acting starts from

    def __init__(self, size_in: images.Input, hidden: Sequence[int], action_dim: int, key: Array):
        key_layers, key_time, key_start = jax.random.split(key, 3)
        super().__init__(size_in, hidden, action_dim, key_layers, beside=action_dim)
        self.time = Dense(1, hidden[0], key_time).weight[0]
        self.start = FLOW_START * jax.random.normal(key_start, (action_dim,))

    @property
    def size_in(self) -> int:
        beside = self.start.size if self.image_encoder is None else 0
        return super().size_in - beside

    def velocity(self, seen: Array, action: Array, time: Array | float) -> Array:
        """Where the flow carries an action at a time between 0 (noise) and 1 (the data's actions)."""
        first, *others = self.hidden
        x = self.activation(first(jnp.concatenate([seen, action], axis=-1)) + time * self.time)
        for dense in others:
            x = self.activation(dense(x))
        return self.mean(x)

    def __call__(self, x: Array) -> Array:
        """Where the start is carried, not clipped."""
        seen = images.encode(self.image_encoder, x)
        # A value of its own for each row: exported programs cannot put together what is only broadcast.
        action = jax.lax.stop_gradient(self.start) + 0.0 * jax.lax.slice_in_dim(seen, 0, 1, axis=-1)
        for step in range(FLOW_STEPS):
            action = action + self.velocity(seen, action, step / FLOW_STEPS) / FLOW_STEPS
        return action

    def log_prob(self, x: Array, action: Array, key: Array | None = None, real: Array | None = None) -> Array:
        """In its place the flow's loss: -|v(x, (1 - t) noise + t action, t) - (action - noise)|^2 / 2, t uniform."""
        assert key is not None, "a flow is learnt from noise"
        key_noise, key_time = jax.random.split(key)
        noise = jax.random.normal(key_noise, action.shape)
        time = jax.random.uniform(key_time, (*action.shape[:-1], 1))
        found = self.velocity(images.encode(self.image_encoder, x), (1.0 - time) * noise + time * action, time)
        return -0.5 * summed(jnp.square(found - (action - noise)), real)


class CategoricalActor(Actor):
    """pi(a | s, z) of discrete actions: ReLU layers, a logit for each choice (in each step of a chunk)."""

    choices: int = eqx.field(static=True)

    def __init__(self, size_in: images.Input, hidden: Sequence[int], size_out: int, key: Array, choices: int):
        super().__init__(size_in, hidden, size_out, key)
        self.choices = choices

    def log_prob(self, x: Array, action: Array, key: Array | None = None, real: Array | None = None) -> Array:
        """log pi(action | x) of one-hot actions, side by side in a chunk: the sum over its real steps."""
        logits = self(x)
        steps = logits.reshape(*logits.shape[:-1], -1, self.choices)
        return summed(action * jax.nn.log_softmax(steps).reshape(logits.shape), real)

    def act(self, observation: Tree, *skill: Tree) -> Array:
        """The logits."""
        return self(join(observation, *skill))

    def expected(self, q: Callable[[Array], Array], x: Array) -> Array:
        """The mean of `q` over the policy's choices of one action: batch."""
        probabilities = jax.nn.softmax(self(x))
        return jnp.sum(probabilities * jnp.moveaxis(of_choices(q, probabilities.shape), 0, -1), axis=-1)


class SquashedActor(Actor):
    """SAC's pi(a | s, g): a Gaussian of state-dependent mean and deviation, sent through tanh."""

    def __init__(self, size_in: images.Input, hidden: Sequence[int], action_dim: int, key: Array):
        super().__init__(size_in, hidden, 2 * action_dim, key)  # mean and log-std

    def __call__(self, x: Array) -> Array:
        """The action without noise: tanh of the mean."""
        return jnp.tanh(gaussian(super().__call__(x))[0])

    def draw(self, x: Array, noise: Array) -> tuple[Array, Array]:
        """The action that standard normal `noise` (... x batch x act) gives, and its log-density."""
        mean, log_std = gaussian(super().__call__(x))
        before = mean + jnp.exp(log_std) * noise
        log_normal = -0.5 * jnp.square(noise) - log_std - HALF_LOG_2PI
        log_slope = 2.0 * (math.log(2.0) - before - jax.nn.softplus(-2.0 * before))  # log(1 - tanh^2), never -inf
        return jnp.tanh(before), jnp.sum(log_normal - log_slope, axis=-1)


HEADS: dict[str, type[GaussianActor] | type[FlowActor]] = {
    "gaussian": GaussianActor,
    "flow": FlowActor,
}  # by the config key `actor`
KINDS = {**HEADS, "unit": UnitActor}


def head(
    spec: Spec,
    size_in: images.Input,
    hidden: Sequence[int],
    key: Array,
    kind: str = "gaussian",
    chunk: int = 1,
) -> "Density":
    """The actor of a kind in KINDS that imitates actions of this spec, so many at once."""
    if not spec.choices:
        return KINDS[kind](size_in, hidden, chunk * spec.action_dim, key)
    if kind == "flow":
        spec.require_continuous("the actor 'flow'", "leave out --set actor=flow")
    return CategoricalActor(size_in, hidden, chunk * spec.choices, key, spec.choices)


def of_choices(q: Callable[[Array], Array], shape: tuple[int, ...]) -> Array:
    """`q`, a function of actions, for each choice that all of a batch might make; shape: batch x choices."""
    return jax.vmap(lambda one: q(jnp.broadcast_to(one, shape)))(jnp.eye(shape[-1]))


def gaussian(outputs: Array) -> tuple[Array, Array]:
    """Mean and log-deviation from the two halves of a network's outputs."""
    mean, log_std = jnp.split(outputs, 2, axis=-1)
    return mean, jnp.clip(log_std, *LOG_STD_RANGE)


class TanhActor(eqx.Module):
    """The deterministic actor of the zero-shot half: (s) and (s, z) enter apart."""

    state: Preprocessor
    state_skill: Preprocessor
    head: Mlp

    def __init__(self, spec: Spec, skill_dim: int, preprocess_hidden: tuple[int, int], hidden: int, key: Array):
        key_state, key_skill, key_head = jax.random.split(key, 3)
        self.state = Preprocessor(spec.observation_dim, preprocess_hidden, key_state)
        self.state_skill = Preprocessor(spec.observation_dim + skill_dim, preprocess_hidden, key_skill)
        self.head = Mlp(2 * preprocess_hidden[1], (hidden,), spec.action_dim, key_head)

    def numbers(self, observation: Tree, z: Array) -> Array:
        """What the layers give."""
        joined = [self.state(join(observation)), self.state_skill(join(observation, z))]
        return self.head(jnp.concatenate(joined, axis=-1))

    def __call__(self, observation: Tree, z: Array) -> Array:
        return jnp.tanh(self.numbers(observation, z))

    def explore(self, observation: Tree, z: Array, noise: Array) -> Array:
        """The action with noise, held inside the open box; the gradient passes as if nothing held it."""
        action = self(observation, z) + noise
        return action + jax.lax.stop_gradient(jnp.clip(action, -ACTION_BOX, ACTION_BOX) - action)


class SoftmaxActor(TanhActor):
    """The same layers for discrete actions: a logit for each choice, learnt as a softmax of what critics say of all."""

    def __init__(self, spec: Spec, skill_dim: int, preprocess_hidden: tuple[int, int], hidden: int, key: Array):
        super().__init__(spec, skill_dim, preprocess_hidden, hidden, key)

    def __call__(self, observation: Tree, z: Array) -> Array:
        return self.numbers(observation, z)

    def explore(self, observation: Tree, z: Array, noise: Array) -> Array:
        """Its probabilities: critics are linear in actions, so they give the mean over its choices, without noise."""
        return jax.nn.softmax(self(observation, z))


def skilled(
    spec: Spec, skill_dim: int, preprocess_hidden: tuple[int, int], hidden: int, key: Array
) -> TanhActor | SoftmaxActor:
    """The actor of the zero-shot half for actions of this spec."""
    kind = SoftmaxActor if spec.choices else TanhActor
    return kind(spec, skill_dim, preprocess_hidden, hidden, key)


def smoothing_noise(key: Array, shape: tuple[int, ...], std: float, limit: float) -> Array:
    """TD3's noise on actions: Gaussian, clipped."""
    return jnp.clip(std * jax.random.normal(key, shape), -limit, limit)


# ---- chunks: several actions at once ---------------------------------------------------------------------------------


def laid_out(batch: Batch) -> tuple[Array, Array | None]:
    """The actions of a batch as an actor answers them, and which of their numbers are real (None: all).

    Chunks (batch x k x act) become batch x (k act); behind their episode's end they are zero, and not real.
    """
    if "chunk_steps" not in batch:
        return batch.action, None
    count, k, size = batch.action.shape
    real = jnp.repeat(jnp.arange(k) < batch.chunk_steps[:, None], size, axis=1)
    return jnp.where(real, batch.action.reshape(count, k * size), 0.0), real


def summed(each: Array, real: Array | None) -> Array:
    """The sum over the last axis, of real numbers only."""
    return jnp.sum(each if real is None else jnp.where(real, each, 0.0), axis=-1)


def as_chunk(answer: Array, k: int) -> Array:
    """What an actor answers as k actions, rows x k x act; as one action where k is 1."""
    return answer if k == 1 else answer.reshape(answer.shape[0], k, answer.shape[1] // k)


# ---- losses ----------------------------------------------------------------------------------------------------------

Density = GaussianActor | UnitActor | FlowActor | CategoricalActor  # actors with a log_prob; a flow's needs a key


def bc_loss(actor: Density, sz: Array, action: Array, key: Array | None = None, real: Array | None = None) -> Array:
    """Behavioural cloning: -E[log pi(a | s, z)]."""
    return -jnp.mean(actor.log_prob(sz, action, key, real))


def awr_weight(advantage: Array, temperature: float, most: float) -> Array:
    """min(exp(temperature * advantage), most): how much advantage-weighted regression imitates a sample."""
    return jnp.minimum(jnp.exp(temperature * advantage), most)


def awr_loss(
    actor: Density,
    sz: Array,
    action: Array,
    advantage: Array,
    temperature: float,
    most: float,
    key: Array | None = None,
    real: Array | None = None,
) -> tuple[Array, Array]:
    """Advantage-weighted regression: -E[weight * log pi(a | s, z)]; also returns the mean weight."""
    weight = awr_weight(advantage, temperature, most)
    return -jnp.mean(weight * actor.log_prob(sz, action, key, real)), jnp.mean(weight)


def ddpg_bc(q: Array, log_prob: Array, weight: float) -> Array:
    """-E[Q(s, pi(s))] / E|Q| - weight * E[log pi(a | s)]: climb Q and stay with the data.

    Dividing by E|Q|, which has no gradient, lets one weight serve rewards of any scale.
    """
    scale = jax.lax.stop_gradient(jnp.mean(jnp.abs(q))) + TINY
    return -jnp.mean(q) / scale - weight * jnp.mean(log_prob)


def ddpg_bc_loss(
    actor: Density,
    q: Callable[[Array], Array],
    sz: Array,
    action: Array,
    weight: float,
    key: Array | None = None,
    real: Array | None = None,
) -> tuple[Array, Array]:
    """DDPG+BC: the actor's own action climbs Q, the density stays with the data; also returns the mean of Q."""
    own = actor.expected(q, sz)
    return ddpg_bc(own, actor.log_prob(sz, action, key, real), weight), jnp.mean(own)


def extraction_loss(
    actor: Density,
    cfg: Any,
    critic: networks.Ensemble,
    sz: Array,
    action: Array,
    advantage: Array,
    key: Array | None = None,
    real: Array | None = None,
) -> tuple[Array, Info]:
    """AWR, or where `cfg.extraction` is ddpg+bc, that on the smaller critic."""
    if getattr(cfg, "extraction", "awr") == "awr":
        loss, weight = awr_loss(actor, sz, action, advantage, cfg.temperature, cfg.awr_clip, key, real)
        return loss, {"actor_loss": loss, "awr_weight": weight}

    def smaller(own: Array) -> Array:
        return jnp.min(networks.apply_all(critic, jnp.concatenate([sz, own], axis=-1))[..., 0], axis=0)

    loss, _ = ddpg_bc_loss(actor, smaller, sz, action, cfg.bc_weight, key, real)
    return loss, {"actor_loss": loss}


def td3_loss(
    actor: TanhActor,
    q: Callable[[Array], Array],
    observation: Tree,
    z: Array,
    noise: Array,
    action: Array,
    bc_weight: float,
) -> Array:
    """-min_i Q_i(s, pi(s, z) + noise, z), for `q` from an action to the values of all heads: heads x batch.

    With a weight Q is divided by E|Q|, and the weighted |pi(s, z) + noise - a|^2 keeps to the data's action a (TD3+BC).
    """
    if isinstance(actor, SoftmaxActor):
        return softmax_loss(actor, q, observation, z, action, bc_weight)
    own = actor.explore(observation, z, noise)
    value = jnp.min(q(own), axis=0)
    if bc_weight == 0.0:
        return -jnp.mean(value)
    return ddpg_bc(value, -jnp.sum(jnp.square(own - action), axis=-1), bc_weight)


def softmax_loss(
    actor: SoftmaxActor, q: Callable[[Array], Array], observation: Tree, z: Array, action: Array, bc_weight: float
) -> Array:
    """TD3's loss in its discrete form: the cross-entropy to softmax(min_i Q_i(s, ., z) / temperature).

    The temperature is SHARPNESS of how far Q usually spreads over choices, so rewards of any scale are served. With a
    weight, the cross-entropy to the data's action keeps to it.
    """
    values = jnp.min(of_choices(q, action.shape), axis=1).T  # batch x choices
    temperature = SHARPNESS * jnp.mean(jnp.std(values, axis=-1)) + TINY
    wanted = jax.lax.stop_gradient(jax.nn.softmax(values / temperature))
    return -jnp.mean(jnp.sum((wanted + bc_weight * action) * jax.nn.log_softmax(actor(observation, z)), axis=-1))
