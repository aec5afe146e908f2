"""Imitate what the data did in s on its way to g, by squared errors."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from hilp.learning import networks, sampling


@dataclass(frozen=True)
class Config:
    actor_hidden: tuple[int, ...] = (64, 64)  # layers of the policy
    batch: int = 256  # transitions per update
    lr: float = 1e-3  # Adam
    normalize: bool = True  # shift and scale observations by the data's mean and standard deviation


class State(NamedTuple):
    """Everything that training changes."""

    actor: networks.Mlp
    opt: optax.OptState


class Policy(eqx.Module):
    """What is left after training: an actor, and the rules that turn tasks into skills."""

    actor: networks.Mlp

    @property
    def skill_dim(self):
        return self.actor.layers[0].weight.shape[0] // 2  # half of what it takes is the goal

    def act(self, observation, z):
        return jnp.clip(self.actor(networks.join(observation, z)), -1.0, 1.0)

    def goal_skill(self, goal):
        return networks.join(goal)  # the skill of a goal is the goal


def sample(cfg, index, key):
    key_at, key_goal = jax.random.split(key)
    at = sampling.transitions(index, key_at, cfg.batch)
    goal = sampling.uniform_future(index, key_goal, at)
    return sampling.Rows({"observations": {"observation": at, "goal": goal}, "actions": {"action": at}})


def init(cfg, spec, key):
    actor = networks.Mlp(2 * spec.observation_dim, cfg.actor_hidden, spec.action_dim, key)
    return State(actor, optax.adam(cfg.lr).init(actor))


def update(cfg, state, batch, key):
    loss, grads = jax.value_and_grad(actor_loss)(state.actor, batch)
    updates, opt = optax.adam(cfg.lr).update(grads, state.opt)
    return State(optax.apply_updates(state.actor, updates), opt), {"actor_loss": loss}


def export(cfg, state):
    return Policy(state.actor)


def actor_loss(actor, batch):
    sg = networks.join(batch.observation, networks.join(batch.goal))
    return jnp.mean(jnp.square(actor(sg) - batch.action))
