"""GC-TD3: goal-conditioned TD3 with hindsight goals, the paper's goal-conditioned rival in zero-shot RL.

The skill is the goal itself. The reward is -1 until the transition that arrives at the goal, by row number; a task
given as a reward becomes the goal of highest reward. Two choices differ from the authors' code, where this is a switch
of the successor features: ours are scalar twin critics, because the reward is one number (theirs predict as many as an
observation has), and a goal is reached by row number, because two rows of noisy data are never equal (theirs compares
the numbers of the goal with those of s').
"""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import actors, images, losses, networks, sampling, tables
from hilp.learning.configs import Fraction, Info, SuccessorConfig
from hilp.spec import Spec
from hilp.trees import Tree


@dataclass(frozen=True)
class Config(SuccessorConfig):
    """Hyper-parameters; the defaults are the paper's table for zero-shot RL."""

    goal_discount: Fraction = 0.99  # how far ahead future goals lie


class State(NamedTuple):
    critic: networks.SuccessorMap
    critic_target: networks.SuccessorMap
    actor: actors.TanhActor
    critic_opt: optax.OptState
    actor_opt: optax.OptState
    image_encoder: images.SharedEncoder  # in front of both networks
    encoder_opt: optax.OptState


class Policy(eqx.Module):
    """What is left after training: pi(a | s, g)."""

    actor: actors.TanhActor
    image_encoder: images.SharedEncoder

    @property
    def skill_dim(self) -> int:
        return self.actor.state.first.weight.shape[0]  # the skill is a goal, which is a state (of images: its code)

    def act(self, observation: Tree, z: Array) -> Array:
        return self.actor(images.encode_observation(self.image_encoder, observation), z)

    def goal_skill(self, goal: Tree) -> Array:
        """The skill of a goal is the goal."""
        return networks.join(images.encode_observation(self.image_encoder, goal))


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    key_at, key_goal = jax.random.split(key)
    at = sampling.transitions(index, key_at, cfg.batch)
    goal = sampling.geometric_future(index, key_goal, at, cfg.goal_discount)
    return sampling.Rows.of_transitions(at, {"goal": goal}, arrived=goal == at + 1)


def init(cfg: Config, spec: Spec, key: Array) -> State:
    key_critic, key_actor = jax.random.split(key)
    image_encoder, encoder_opt, spec = images.shared_encoder(cfg, spec, key)
    critic = networks.SuccessorMap(spec, spec.observation_dim, cfg.preprocess_hidden, cfg.hidden, 1, key_critic)
    actor = actors.skilled(spec, spec.observation_dim, cfg.preprocess_hidden, cfg.hidden, key_actor)
    adam = optax.adam(cfg.lr)
    return State(critic, critic, actor, adam.init(critic), adam.init(actor), image_encoder, encoder_opt)


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    """One step of the critic, and of the image encoder where there are images, then one of the actor."""
    key_next, key_actor = jax.random.split(key)
    next_noise = actors.smoothing_noise(key_next, batch.action.shape, cfg.noise, cfg.noise_clip)
    batch, back = images.encode_batch(state.image_encoder, batch)
    goal = networks.join(batch.goal)
    next_action = state.actor.explore(batch.next_observation, goal, next_noise)
    next_q = jnp.min(state.critic_target(batch.next_observation, next_action, goal)[..., 0], axis=0)
    target = (batch.arrived - 1.0) + cfg.discount * (1.0 - batch.arrived) * next_q
    (loss_critic, _), grads, of_codes = images.value_and_grad_with_codes(
        state.image_encoder, lambda critic, batch: (critic_loss(critic, batch, target), None), state.critic, batch
    )
    critic, critic_opt = losses.adam_step(cfg.lr, grads, state.critic_opt, state.critic)

    noise = actors.smoothing_noise(key_actor, batch.action.shape, cfg.noise, cfg.noise_clip)

    def q(own: Array) -> Array:
        return critic(batch.observation, own, goal)[..., 0]

    loss_actor, grads = jax.value_and_grad(actors.td3_loss)(
        state.actor, q, batch.observation, goal, noise, batch.action, cfg.bc_weight
    )
    actor, actor_opt = losses.adam_step(cfg.lr, grads, state.actor_opt, state.actor)
    image_encoder, encoder_opt = images.update_encoder(cfg.lr, state.image_encoder, state.encoder_opt, back, of_codes)
    critic_target = losses.polyak(state.critic_target, critic, cfg.tau)
    state = State(critic, critic_target, actor, critic_opt, actor_opt, image_encoder, encoder_opt)
    return state, {"critic_loss": loss_critic, "actor_loss": loss_actor, "value": jnp.mean(next_q)}


def export(cfg: Config, state: State) -> Policy:
    return Policy(state.actor, state.image_encoder)


def critic_loss(critic: networks.SuccessorMap, batch: sampling.Batch, target: Array) -> Array:
    """Both heads towards -1 + discount * Q', and towards 0 where the transition arrives."""
    q = critic(batch.observation, batch.action, networks.join(batch.goal))[..., 0]  # heads x batch
    return jnp.sum(jnp.mean(jnp.square(q - target[None]), axis=1))


PRESETS = {**tables.SUCCESSOR_IMAGES, "laptop": tables.LAPTOP_SUCCESSORS}
