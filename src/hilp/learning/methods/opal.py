"""OPAL (Ajay et al. 2021), the skills that the paper compares HILP with: a variational autoencoder of k-step segments.

q(z | segment) is a bidirectional GRU, pi(a | s, z) the decoder, p(z | s) the prior; the loss is that of the ELBO,
-sum over steps of log pi(a_i | s_i, z) + beta KL(q || p). The paper's table says two GRU layers, MLPs of (256, 256) and
beta 0.1. Ours to settle: 256 units a direction, means and deviations straight from the last state of both directions,
log-deviations clipped as the actor's are; a segment that its episode's end cuts short counts its real steps only.
"""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import actors, images, losses, networks, sampling, tables
from hilp.learning.configs import BaseConfig, Count, Info, NonNegative, Sizes
from hilp.spec import Spec
from hilp.trees import Tree


@dataclass(frozen=True)
class Config(BaseConfig):
    """Hyper-parameters; the defaults are the paper's table for hierarchical RL."""

    dim: Count = 8  # latent dimension
    k: Count = 10  # steps of a segment, and so of a skill
    gru: Count = 256  # units a direction
    gru_layers: Count = 2
    hidden: Sizes = (256, 256)  # layers of the prior
    actor_hidden: Sizes = (256, 256)  # layers of the decoder
    kl_weight: NonNegative = 0.1  # beta: larger makes skills simpler and the prior better
    batch: Count = 256  # segments per update
    lr: NonNegative = 3e-4  # Adam, every network


class BidirectionalGru(eqx.Module):
    """Layers of gated recurrent units, each over a sequence and over its reverse; the second layer reads both."""

    layers: tuple[tuple[eqx.nn.GRUCell, eqx.nn.GRUCell], ...]  # forwards, backwards

    def __init__(self, size_in: int, hidden: int, layers: int, key: Array):
        sizes = [size_in, *[2 * hidden] * (layers - 1)]
        keys = jax.random.split(key, (layers, 2))
        cells = [[eqx.nn.GRUCell(n, hidden, key=key) for key in pair] for n, pair in zip(sizes, keys, strict=True)]
        self.layers = tuple((forwards, backwards) for forwards, backwards in cells)

    def __call__(self, x: Array, real: Array) -> Array:
        """The last state of both directions: batch x 2 hidden, of x (batch x steps x in) where `real` (batch x steps).

        A step that is not real changes no state, so a padded sequence gives what the sequence alone does.
        """
        ends = []
        for forwards, backwards in self.layers:
            ahead, behind = along(forwards, x, real), along(backwards, x[:, ::-1], real[:, ::-1])
            ends = [ahead[:, -1], behind[:, -1]]
            x = jnp.concatenate([ahead, behind[:, ::-1]], axis=-1)
        return jnp.concatenate(ends, axis=-1)


def along(cell: eqx.nn.GRUCell, x: Array, real: Array) -> Array:
    """The states of a recurrent unit after each step, from zero on: batch x steps x hidden."""

    def step(state: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        now, counts = inputs
        state = jnp.where(counts[:, None], jax.vmap(cell)(now, state), state)
        return state, state

    start = jnp.zeros((x.shape[0], cell.hidden_size), x.dtype)
    _, states = jax.lax.scan(step, start, (jnp.swapaxes(x, 0, 1), jnp.swapaxes(real, 0, 1)))
    return jnp.swapaxes(states, 0, 1)


class Networks(eqx.Module):
    """Encoder, decoder and prior, trained by one loss."""

    encoder: BidirectionalGru
    posterior: networks.Dense  # the encoder's last states to mean and log-deviation
    prior: networks.Mlp
    actor: actors.Density
    image_encoder: images.ImageEncoder | None  # one for all three

    def encode(self, observations: Array, actions: Array, real: Array) -> tuple[Array, Array]:
        """Mean and log-deviation of q(z | segment), of batch x k encoded states and actions."""
        seen = self.encoder(jnp.concatenate([observations, actions], axis=-1), real)
        return actors.gaussian(self.posterior(seen))

    def see(self, rows: Array) -> Array:
        """Observations as the networks take them."""
        return images.encode(self.image_encoder, rows)


class State(NamedTuple):
    nets: Networks
    opt: optax.OptState


class Policy(eqx.Module):
    """What is left after training: skills of segments, skills from the prior, and what acts on them."""

    nets: Networks
    skill_dim: int = eqx.field(static=True)
    skill_horizon: int = eqx.field(static=True)  # steps that a skill was learnt for

    def act(self, observation: Tree, z: Array) -> Array:
        return self.nets.actor.act(self.nets.see(networks.join(observation)), z)

    def skill_of(self, observations: Tree, actions: Array, steps: Array) -> Array:
        """The posterior's mean."""
        return self.nets.encode(self.nets.see(side_by_side(observations)), actions, real_steps(actions, steps))[0]

    def prior(self, observation: Tree, noise: Array) -> Array:
        mean, log_std = actors.gaussian(self.nets.prior(self.nets.see(networks.join(observation))))
        return mean + jnp.exp(log_std) * noise


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    rows, steps = sampling.segments(index, key, cfg.batch, cfg.k)
    wanted = {"observations": {"observations": rows}, "actions": {"actions": rows[:, :-1]}}
    return sampling.Rows(wanted, {"steps": steps})


def init(cfg: Config, spec: Spec, key: Array) -> State:
    key_encoder, key_posterior, key_prior, key_actor = jax.random.split(key, 4)
    image_encoder, size = images.image_encoder(images.layout(cfg, spec), key)
    nets = Networks(
        BidirectionalGru(size + spec.action_dim, cfg.gru, cfg.gru_layers, key_encoder),
        networks.Dense(2 * cfg.gru, 2 * cfg.dim, key_posterior),
        networks.Mlp(size, cfg.hidden, 2 * cfg.dim, key_prior),
        actors.head(spec, size + cfg.dim, cfg.actor_hidden, key_actor),
        image_encoder,
    )
    return State(nets, optax.adam(cfg.lr).init(nets))


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    noise = jax.random.normal(key, (cfg.batch, cfg.dim))
    (_, info), grads = jax.value_and_grad(loss, has_aux=True)(state.nets, cfg, batch, noise)
    return State(*losses.adam_step(cfg.lr, grads, state.opt, state.nets)), info


def export(cfg: Config, state: State) -> Policy:
    return Policy(state.nets, cfg.dim, cfg.k)


def loss(nets: Networks, cfg: Config, batch: sampling.Batch, noise: Array) -> tuple[Array, Info]:
    """The negative ELBO of segments, z drawn from the posterior by `noise` (batch x dim)."""
    s, real = nets.see(side_by_side(batch.observations)), real_steps(batch.actions, batch.steps)
    mean, log_std = nets.encode(s, batch.actions, real)
    kl = jnp.mean(losses.gaussian_kl(mean, log_std, *actors.gaussian(nets.prior(s[:, 0]))))
    z = mean + jnp.exp(log_std) * noise
    held = jnp.broadcast_to(z[:, None], (*s.shape[:2], z.shape[-1]))  # one skill for all steps of a segment
    log_prob = nets.actor.log_prob(jnp.concatenate([s, held], axis=-1), batch.actions)  # batch x k
    imitation = -jnp.mean(jnp.sum(jnp.where(real, log_prob, 0.0), axis=1))
    total = imitation + cfg.kl_weight * kl
    return total, {"actor_loss": imitation, "kl": kl, "loss": total}


def side_by_side(observations: Tree) -> Array:
    """The states that actions were taken in, one vector each: batch x k x obs."""
    return jax.vmap(networks.join, in_axes=1, out_axes=1)(observations)[:, :-1]


def real_steps(actions: Array, steps: Array) -> Array:
    """Which of a segment's steps lie before its episode's end: batch x k."""
    return jnp.arange(actions.shape[1]) < jnp.asarray(steps)[:, None]


PRESETS = {
    "laptop": {**tables.LAPTOP_ACTOR, "gru": 32, "hidden": (128, 128), "actor_hidden": (128, 128), "batch": 64},
    "paper": {"steps": 500_000},
    "laptop antmaze": {**tables.ANT_ACTOR, "gru": 64, "batch": 128},
    # 32 segments are 320 rows for the decoder, about as many as the others' batches.
    "laptop all-kitchens": {**tables.KITCHEN_LAPTOP, "batch": 32},
    "laptop maze-pixels": tables.LAPTOP_PIXELS,
    "laptop visual": {"encoder": "light"},
}
