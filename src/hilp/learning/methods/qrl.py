"""QRL: quasimetric RL (Wang et al. 2023), as OGBench runs it. Not in the paper.

d(s, g) is a quasimetric by construction: it obeys the triangle inequality, and the way back may be longer. States are
pushed apart as far as the data allows, one step for a transition; then d is the number of steps on the shortest way,
and no value is ever bootstrapped. A model of the latents says where an action leads, and the policy climbs it by
DDPG+BC.
"""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import actors, images, losses, networks, sampling, tables
from hilp.learning.configs import Ema, Info, NonNegative, OfEight, Share, TrunkConfig
from hilp.learning.methods import gcbc
from hilp.spec import Spec
from hilp.trees import Tree

INTERVALS = 8  # in each group of the embedding
FAR, SCALE = 500.0, 100.0  # pairs are pushed apart up to about FAR steps, ever more softly within SCALE of it
SLACK = 0.05  # mean squared excess over one step that is let pass


@dataclass(frozen=True)
class Config(TrunkConfig):
    """Hyper-parameters; the defaults are OGBench's for ant mazes."""

    latent: OfEight = 512  # numbers that phi gives: groups of eight intervals
    actor_goal_random: Share = 0.0  # share of the actor's goals drawn from the whole data set; the others lie ahead
    bc_weight: NonNegative = 0.003  # larger imitates the data
    actor_ema: Ema = 1.0  # below 1: the policy kept is a moving average of the actor's weights; not in OGBench


class Quasimetric(eqx.Module):
    """d(s, g) of two states' latents: an interval quasimetric embedding (IQE; Wang and Isola 2022)."""

    phi: networks.Trunk
    mix: Array  # its sigmoid is the share of the groups' mean, the rest is that of their maximum

    def __init__(self, size_in: images.Input, hidden: tuple[int, ...], latent: int, key: Array):
        self.phi = networks.Trunk(size_in, hidden, latent, key)
        self.mix = jnp.zeros((), jnp.float32)

    def encode(self, observation: Tree) -> Array:
        return self.phi(observation)

    def __call__(self, here: Array, there: Array) -> Array:
        """Steps from one latent to another."""
        shape = (*here.shape[:-1], INTERVALS, here.shape[-1] // INTERVALS)  # groups last: neighbours in memory
        lengths = union_length(here.reshape(shape), there.reshape(shape))
        share = jax.nn.sigmoid(self.mix)
        return share * jnp.mean(lengths, axis=-1) + (1.0 - share) * jnp.max(lengths, axis=-1)


def union_length(start: Array, end: Array) -> Array:
    """The length of the union of intervals [start, max(start, end)] along the last axis but one.

    It is the sum of the right ends that no interval covers minus that of such left ends. Asking every pair of a few
    intervals takes no sorting, which is what XLA does slowly on CPUs; of ends that are equal, the first one counts.
    """
    end = jnp.maximum(start, end)
    count = start.shape[-2]
    first = jnp.tril(jnp.ones((count, count), bool), -1)[:, :, None]  # one, other: the other comes before
    left, right = start[..., :, None, :], end[..., :, None, :]
    other_left, other_right = start[..., None, :, :], end[..., None, :, :]
    left_covered = jnp.where(first, other_left <= left, other_left < left) & (left <= other_right)
    right_covered = jnp.where(first, right <= other_right, right < other_right) & (other_left <= right)
    ends = jnp.where(jnp.any(right_covered, axis=-2), 0.0, end)
    starts = jnp.where(jnp.any(left_covered, axis=-2), 0.0, start)
    return jnp.sum(ends - starts, axis=-2)


class State(NamedTuple):
    distance: Quasimetric
    dynamics: networks.Trunk  # (phi(s), a) -> phi(s') - phi(s)
    log_weight: Array  # of the constraint that a transition takes one step
    actor: actors.Density
    actor_average: actors.Density | tuple[()]  # () at rate 1: the actor itself is kept
    opt: optax.OptState


class Policy(gcbc.Policy):
    """What is left after training: pi(a | s, g), and d(s, g)."""

    quasimetric: Quasimetric = eqx.field(kw_only=True)

    def steps(self, here: Array, there: Array) -> Array:
        """Steps from one state to another, both as the skills of goals; leading axes are broadcast."""
        d = self.quasimetric
        latents = (d.encode(one.reshape(-1, one.shape[-1])).reshape(*one.shape[:-1], -1) for one in (here, there))
        return d(*jnp.broadcast_arrays(*latents))


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    """Transitions with two goals each: any state, to be pushed away from, and one for the actor."""
    key_at, key_goal, key_actor = jax.random.split(key, 3)
    at = sampling.transitions(index, key_at, cfg.batch)
    goal = sampling.states(index, key_goal, cfg.batch)
    actor_goal = sampling.hindsight_goals(index, key_actor, at, cfg.actor_goal_random)
    return sampling.Rows.of_transitions(at, {"goal": goal, "actor_goal": actor_goal})


def init(cfg: Config, spec: Spec, key: Array) -> State:
    key_phi, key_dynamics, key_actor = jax.random.split(key, 3)
    distance = Quasimetric(images.layout(cfg, spec), cfg.hidden, cfg.latent, key_phi)
    dynamics = networks.Trunk(cfg.latent + spec.action_dim, cfg.hidden, cfg.latent, key_dynamics)
    log_weight = jnp.zeros((), jnp.float32)
    actor = actors.head(spec, 2 * images.layout(cfg, spec), cfg.actor_hidden, key_actor, "unit")
    nets = (distance, dynamics, log_weight, actor)
    return State(*nets, losses.averaged(actor, actor, cfg.actor_ema), optax.adam(cfg.lr).init(nets))


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    """One step of d, its model and the constraint's weight, and one of the actor, both from the same state."""
    model = (state.distance, state.dynamics, state.log_weight)
    (_, info), grads = jax.value_and_grad(model_loss, has_aux=True)(model, batch)
    actor_grad = jax.value_and_grad(actor_loss, has_aux=True)
    (loss_a, _), grad_a = actor_grad(state.actor, state.distance, state.dynamics, batch, cfg.bc_weight)

    nets, opt = losses.adam_step(cfg.lr, (*grads, grad_a), state.opt, (*model, state.actor))
    distance, dynamics, log_weight, actor = nets
    average = losses.averaged(state.actor_average, actor, cfg.actor_ema, opt[0].count)
    return State(distance, dynamics, log_weight, actor, average, opt), {**info, "actor_loss": loss_a}


def export(cfg: Config, state: State) -> Policy:
    return Policy(state.actor_average or state.actor, quasimetric=state.distance)


def model_loss(model: tuple[Quasimetric, networks.Trunk, Array], batch: sampling.Batch) -> tuple[Array, Info]:
    """Push states apart, hold transitions at one step, and foresee latents as d sees them, from both sides."""
    distance, dynamics, log_weight = model
    rows = networks.stacked(batch.observation, batch.next_observation, batch.goal)
    here, after, goal = jnp.split(distance.encode(rows), 3)
    guess = foreseen(dynamics, here, batch.action)
    starts, ends = jnp.concatenate([here, here, after, guess]), jnp.concatenate([goal, after, guess, after])
    apart, step, to, fro = jnp.split(distance(starts, ends), 4)
    push = jnp.mean(SCALE * jax.nn.softplus((FAR - apart) / SCALE))
    excess = jnp.mean(jnp.square(jax.nn.relu(step - 1.0)))
    foresight = jnp.mean(to + fro) / 2.0
    info = {"push_loss": push, "excess": excess, "dynamics_loss": foresight, "constraint_weight": jnp.exp(log_weight)}
    return push + constraint(excess, log_weight) + foresight, {**info, "distance": jnp.mean(apart)}


def constraint(excess: Array, log_weight: Array) -> Array:
    """A Lagrangian: the model pays for excess, and the weight grows while there is more of it than SLACK."""
    weight = jnp.exp(log_weight)
    return jax.lax.stop_gradient(weight) * excess + weight * (SLACK - jax.lax.stop_gradient(excess))


def foreseen(dynamics: networks.Trunk, latent: Array, action: Array) -> Array:
    """The latent after an action."""
    return latent + dynamics(jnp.concatenate([latent, action], axis=-1))


def actor_loss(
    actor: actors.Density, distance: Quasimetric, dynamics: networks.Trunk, batch: sampling.Batch, weight: float
) -> tuple[Array, Array]:
    """DDPG+BC: be nearer to the goal after the action."""
    here, goal = jnp.split(distance.encode(networks.stacked(batch.observation, batch.actor_goal)), 2)

    def nearness(own: Array) -> Array:
        return -distance(foreseen(dynamics, here, own), goal)

    sg = networks.join(batch.observation, batch.actor_goal)
    return actors.ddpg_bc_loss(actor, nearness, sg, batch.action, weight)


PRESETS = {
    **tables.RIVALS,
    "laptop": {**tables.LAPTOP_TRUNKS, "latent": 128},
    "both maze+pointmaze": {"bc_weight": 0.0003},
    "both arm+visual-arm+all-kitchens": {"bc_weight": 0.3},
    "both antmaze-explore": {"bc_weight": 0.001},
    "both noisy-arm+visual-noisy-arm": {"bc_weight": 0.03},
    "laptop antmaze": {**tables.ANT, **tables.ANT_AVERAGE},
}
