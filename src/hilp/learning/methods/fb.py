"""Forward-backward representations (Touati & Ollivier), the paper's strongest zero-shot rival.

F(s, a, z)' B(s') is the density of successor states under skill z, so z = E[r B] is the skill of a reward and
z = B(g) that of a goal. Both come from one Bellman equation on pairs of the batch; B is kept orthonormal.
"""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp import trees
from hilp.learning import actors, features, images, losses, networks, sampling, skills, tables
from hilp.learning.configs import Count, Info, NonNegative, Share, SuccessorConfig, TwoSizes
from hilp.spec import Spec
from hilp.trees import Tree


@dataclass(frozen=True)
class Config(SuccessorConfig):
    """Hyper-parameters; the defaults are the paper's table for zero-shot RL."""

    dim: Count = 50  # latent dimension D
    backward_hidden: TwoSizes = (512, 512)  # layers of B
    orthonormality: NonNegative = 1.0  # weight of the loss that keeps B orthonormal
    q_weight: NonNegative = 0.0  # of the loss on values <F, z> with the reward that z implies; 0.01 where it helps
    skill_mix: Share = 0.5  # share of skills that are B of states of the data instead of the sphere's


class State(NamedTuple):
    forward: networks.SuccessorMap
    forward_target: networks.SuccessorMap
    backward: networks.Feature
    backward_target: networks.Feature
    actor: actors.TanhActor
    opt: optax.OptState  # of F and B
    actor_opt: optax.OptState
    image_encoder: images.SharedEncoder  # in front of all networks
    encoder_opt: optax.OptState


class Policy(eqx.Module):
    """What is left after training: B, pi, and the rules that turn tasks into skills."""

    features: networks.Feature
    actor: actors.TanhActor
    skill_dim: int = eqx.field(static=True)
    image_encoder: images.SharedEncoder

    def act(self, observation: Tree, z: Array) -> Array:
        return self.actor(images.encode_observation(self.image_encoder, observation), z)

    def backward(self, observation: Tree) -> Array:
        """Reward rule: the skill of a reward r is the direction of E[r(s') B(s')]."""
        return features.sphere(self.features(images.encode_observation(self.image_encoder, observation)))

    def goal_skill(self, goal: Tree) -> Array:
        """Goal rule: the skill of a goal is B(g)."""
        return self.backward(goal)

    def project(self, z: Array) -> Array:
        """Skills live on the sphere of radius sqrt(dim)."""
        return features.sphere(z)


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    # No goals of its own: all pairs of the batch are.
    return sampling.Rows.of_transitions(sampling.transitions(index, key, cfg.batch))


def init(cfg: Config, spec: Spec, key: Array) -> State:
    key_forward, key_backward, key_actor = jax.random.split(key, 3)
    image_encoder, encoder_opt, spec = images.shared_encoder(cfg, spec, key)
    forward = networks.SuccessorMap(spec, cfg.dim, cfg.preprocess_hidden, cfg.hidden, cfg.dim, key_forward)
    backward = networks.Feature(spec.observation_dim, cfg.backward_hidden, cfg.dim, key_backward)
    actor = actors.skilled(spec, cfg.dim, cfg.preprocess_hidden, cfg.hidden, key_actor)
    opt, actor_opt = (optax.adam(cfg.lr).init(nets) for nets in ((forward, backward), actor))
    return State(forward, forward, backward, backward, actor, opt, actor_opt, image_encoder, encoder_opt)


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    """One step of F and B, and of the image encoder where there are images, then one of the actor."""
    key_skill, key_next, key_actor = jax.random.split(key, 3)
    batch, back = images.encode_batch(state.image_encoder, batch)
    z = draw_skills(cfg, state.backward, batch, key_skill)

    next_noise = actors.smoothing_noise(key_next, batch.action.shape, cfg.noise, cfg.noise_clip)
    next_action = state.actor.explore(batch.next_observation, z, next_noise)
    old_forward = state.forward_target(batch.next_observation, next_action, z)  # heads x batch x dim
    old_backward = features.sphere(state.backward_target(batch.next_observation))
    old_measure = jnp.min(jnp.einsum("hbd,cd->hbc", old_forward, old_backward), axis=0)  # batch x batch
    old_q = jnp.min(losses.skill_values(old_forward, z), axis=0)  # batch
    both = (state.forward, state.backward)
    (_, info), grads, of_codes = images.value_and_grad_with_codes(
        state.image_encoder, lambda nets, batch: measure_loss(nets, cfg, batch, z, old_measure, old_q), both, batch
    )
    (forward, backward), opt = losses.adam_step(cfg.lr, grads, state.opt, both)

    noise = actors.smoothing_noise(key_actor, batch.action.shape, cfg.noise, cfg.noise_clip)

    def q(own: Array) -> Array:
        return losses.skill_values(forward(batch.observation, own, z), z)

    loss_actor, grads = jax.value_and_grad(actors.td3_loss)(
        state.actor, q, batch.observation, z, noise, batch.action, cfg.bc_weight
    )
    actor, actor_opt = losses.adam_step(cfg.lr, grads, state.actor_opt, state.actor)
    image_encoder, encoder_opt = images.update_encoder(cfg.lr, state.image_encoder, state.encoder_opt, back, of_codes)
    forward_target = losses.polyak(state.forward_target, forward, cfg.tau)
    backward_target = losses.polyak(state.backward_target, backward, cfg.tau)
    nets = (forward, forward_target, backward, backward_target, actor)
    return State(*nets, opt, actor_opt, image_encoder, encoder_opt), {**info, "actor_loss": loss_actor}


def export(cfg: Config, state: State) -> Policy:
    return Policy(state.backward, state.actor, cfg.dim, state.image_encoder)


def draw_skills(cfg: Config, backward: networks.Feature, batch: sampling.Batch, key: Array) -> Array:
    """Fresh skills: uniform on the sphere, or B of another state of the batch."""

    def of_rows(rows: Array) -> Array:
        return features.sphere(backward(trees.over(lambda part: part[rows], batch.observation)))

    return skills.draw_mixed(key, (len(batch.action), cfg.dim), cfg.skill_mix, of_rows)


Nets = tuple[networks.SuccessorMap, networks.Feature]  # F and B


def measure_loss(
    nets: Nets, cfg: Config, batch: sampling.Batch, z: Array, old_measure: Array, old_q: Array
) -> tuple[Array, Info]:
    """The Bellman equation of successor measures M = F B' over all pairs of the batch."""
    forward, backward = nets
    f = forward(batch.observation, batch.action, z)  # heads x batch x dim
    b = features.sphere(backward(batch.next_observation))
    measures = jnp.einsum("hbd,cd->hbc", f, b)  # heads x batch x batch
    errors = jax.vmap(losses.off_diagonal_mean)(jnp.square(measures - cfg.discount * old_measure))
    bellman = jnp.sum(0.5 * errors - jnp.mean(jnp.diagonal(measures, axis1=1, axis2=2), axis=1))
    orthonormality = losses.orthonormal(b)
    loss = bellman + cfg.orthonormality * orthonormality
    info = {"measure_loss": bellman, "orthonormality": orthonormality}
    if cfg.q_weight > 0.0:
        q = losses.skill_values(f, z)
        target = implied_reward(jax.lax.stop_gradient(b), z) + cfg.discount * old_q
        info["q_loss"] = jnp.sum(jnp.mean(jnp.square(q - target), axis=1))
        loss = loss + cfg.q_weight * info["q_loss"]
    return loss, info


def implied_reward(b: Array, z: Array) -> Array:
    """The reward whose skill is z, as far as B can express it: <B(s'), C^-1 z>, C the second moment of B."""
    return jnp.sum((b @ features.inverse(b.T @ b / b.shape[0])) * z, axis=-1)


PRESETS = {
    **tables.SUCCESSOR_IMAGES,
    "laptop": {**tables.LAPTOP_SUCCESSORS, "dim": 32, "backward_hidden": (128, 128)},
    "laptop antmaze": tables.ANT_LONG,
    # The goal-conditioned table lists these for all of its methods; what it leaves open stays the zero-shot table's.
    "paper antmaze+kitchen": {"dim": 32, "discount": 0.99, "lr": 3e-4, "tau": 0.005},
    "laptop kitchen": {"normalize": False},
    "paper kitchen": tables.KITCHEN_PAPER,
}
