"""HILP with a directed phi, for worlds in which the way back is another way. Not in the paper, which names the limit.

The distance of two latents is a quasimetric by construction: zero to oneself, the triangle inequality, and the way back
may be longer. Eq. 6 trains it as it trains |phi(s) - phi(g)|; all else is HILP, with skills as directions in the space
of latents. A skill z is paid <x(s') - x(s), z>, so the skill that gets nearer to a goal soonest is the one along the
gradient of the distance, of HILP's metric that is Eq. 9.

Two heads make a distance of latents x (of s) and y (of g):

- `intervals`: of groups of eight intervals [x_i, max(x_i, y_i)] the length of their union, half the mean and half the
  longest over groups (IQE, Wang and Isola 2022). The default: better on maze-oneway.
- `heights`: |phi(s) - phi(g)| + max_i max(0, h_i(s) - h_i(g)) of a latent's two halves phi and h (as MRN, Liu et al.
  2022): what a metric can express, and what it costs to come down.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import actors, hilbert, images, losses, networks, sampling, skills, tables
from hilp.learning.configs import AUTO, Info, OfEight
from hilp.learning.methods import hilp
from hilp.learning.methods.qrl import INTERVALS, union_length
from hilp.spec import Spec
from hilp.trees import Tree

Head = Literal["intervals", "heights"]


@dataclass(frozen=True)
class Config(hilp.PhiConfig):
    """Hyper-parameters; the defaults are those of HILP."""

    dim: OfEight = 64  # numbers of a latent: groups of eight intervals, or half phi and half heights
    head: Head = "intervals"  # what makes a distance of two latents


class State(NamedTuple):
    latent: networks.Ensemble  # of 2
    latent_target: networks.Ensemble
    step: Array  # how long a step of the data is, in latents: that of HILP's is one, by its loss
    value: networks.Trunk
    critic: networks.Ensemble  # of 2
    critic_target: networks.Ensemble
    actor: actors.Density
    actor_average: actors.Density | tuple[()]  # () at rate 1: the actor itself is kept
    latent_opt: optax.OptState
    policy_opt: optax.OptState


class Policy(hilp.Policy):
    """What is left after training: HILP's, with a distance of its own.

    Latents are in steps of the data: what is near in all directions is so by their Euclidean distance, as HILP's.
    """

    step: Array = eqx.field(kw_only=True)
    head: Head = eqx.field(static=True, kw_only=True)

    def encode(self, observation: Tree) -> Array:
        return self.phi(observation) / self.step

    def distance(self, here: Array, there: Array) -> Array:
        return distance(self.head, self.step * here, self.step * there)

    def goal_direction(self, here: Array, there: Array) -> Array:
        """Goal rule: the unit direction in which the distance shrinks soonest."""
        return direction(self.head, here, there)


def distance(head: Head, here: Array, there: Array) -> Array:
    """d from one latent to another, on the discounted scale of steps; leading axes are broadcast."""
    if head == "heights":
        (phi, height), (phi_there, height_there) = (jnp.split(one, 2, axis=-1) for one in (here, there))
        fall = jnp.max(jax.nn.relu(height - height_there), axis=-1)
        return fall - hilbert.value(phi, phi_there)
    here, there = jnp.broadcast_arrays(here, there)
    shape = (*here.shape[:-1], INTERVALS, here.shape[-1] // INTERVALS)  # groups last: neighbours in memory
    lengths = union_length(here.reshape(shape), there.reshape(shape))
    return 0.5 * (jnp.mean(lengths, axis=-1) + jnp.max(lengths, axis=-1))


def direction(head: Head, here: Array, there: Array) -> Array:
    """The skill from one latent to another: against the gradient of the distance."""
    return hilbert.unit(-jax.grad(lambda x: jnp.sum(distance(head, x, there)))(here))


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    key_at, key_goal = jax.random.split(key)
    at = sampling.transitions(index, key_at, cfg.batch)
    goal = sampling.hindsight_goals(index, key_goal, at, cfg.goal_random, cfg.goal_discount)
    extras = {"reached": goal == at}
    if cfg.bound_targets:
        extras["steps_to_goal"] = sampling.steps_to_goal(index, at, goal)
    return sampling.Rows.of_transitions(at, {"goal": goal}, **extras)


def init(cfg: Config, spec: Spec, key: Array) -> State:
    key_latent, *keys = jax.random.split(key, 4)
    seen = images.layout(cfg, spec)
    latent = networks.ensemble(networks.Trunk, seen, cfg.hidden, cfg.dim, key=key_latent)
    policy = skills.init_policy(cfg, seen + cfg.dim, spec, keys)
    average, opt = losses.averaged(policy["actor"], policy["actor"], cfg.actor_ema), optax.adam(cfg.lr).init(latent)
    return State(latent, latent, jnp.ones((), jnp.float32), actor_average=average, latent_opt=opt, **policy)


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    """One update of the latents and one of the policy, which sees the latents from before."""
    (_, (latent_info, found)), grad = jax.value_and_grad(latent_loss, has_aux=True)(
        state.latent, cfg, state.latent_target, batch
    )
    latent, latent_opt = losses.adam_step(cfg.lr, grad, state.latent_opt, state.latent)
    latent_target = losses.polyak(state.latent_target, latent, cfg.phi_tau)

    here, there = jnp.split(jax.lax.stop_gradient(found), 2)
    after = state.latent[0](batch.next_observation)
    usual = jnp.mean(jnp.linalg.norm(after - here, axis=-1))
    step = losses.polyak(state.step, usual, cfg.phi_tau)
    z = skills.draw_lived(key, direction(cfg.head, here, there), cfg.lived)
    reward = hilbert.skill_reward(here, after, z) / step

    part, info = skills.update_policy(cfg, state, batch, z, reward, key)
    average = losses.averaged(state.actor_average, part["actor"], cfg.actor_ema, part["policy_opt"][0].count)
    parts = {"latent": latent, "latent_target": latent_target, "step": step, "latent_opt": latent_opt}
    return State(**parts, **part, actor_average=average), {**latent_info, **info, "latent_step": step}


def export(cfg: Config, state: State) -> Policy:
    actor = state.actor_average or state.actor
    return Policy(state.latent[0], actor, cfg.dim, False, cfg.phi_discount, step=state.step, head=cfg.head)


reference = hilp.reference


def latent_loss(
    latent: networks.Ensemble, cfg: Config, target: networks.Ensemble, batch: sampling.Batch
) -> tuple[Array, tuple[Info, Array]]:
    """Eq. 6 with V(s, g) = -d(s, g), and the latents of s by the first network, so that they are computed once."""
    return hilp.phi_loss(latent, cfg, target, batch, lambda here, there: -distance(cfg.head, here, there))


PRESETS = {
    "laptop": {
        **tables.LAPTOP_TRUNKS,
        **tables.phi_horizon(AUTO),
        "discount": 0.95,  # with a plan to follow, a skill need not look far ahead
        "phi_tau": 0.02,
        "tau": 0.02,
        "temperature": 10.0,
        "lived": 1.0,
        "bound_targets": True,  # detours of the data make ways longer, and a quasimetric believes them more easily
    },
    "laptop pointmaze+arm+noisy-arm": tables.OGBENCH_LAPTOP,
    "laptop pointmaze-not-giant+arm+noisy-arm": tables.phi_horizon(tables.OGBENCH_DISCOUNT),
    "both giant": tables.phi_horizon(tables.OGBENCH_GIANT_DISCOUNT),
    "laptop visual": tables.LAPTOP_FILMS,
}
