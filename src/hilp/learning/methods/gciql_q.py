"""GC-IQL-Q: goal-conditioned IQL with critics of actions (Kostrikov et al. 2022); OGBench's GCIQL.

V(s, g) by expectile regression towards the smaller of two target critics Q(s, a, g). Not in the paper, whose GC-IQL has
values of states only (`gc-iql`): with critics, the policy can also be extracted by DDPG+BC. Goals, sizes and values are
those of `gc-iql`.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import actors, images, losses, networks, sampling
from hilp.learning.configs import Info, NonNegative
from hilp.learning.methods import gciql
from hilp.spec import Spec


@dataclass(frozen=True)
class Config(gciql.ValueConfig):
    """Hyper-parameters; the defaults are the paper's table for goal-conditioned RL, as those of `gc-iql`."""

    extraction: Literal["awr", "ddpg+bc"] = "awr"  # policy from values: weigh the data's actions, or climb Q near them
    bc_weight: NonNegative = 0.3  # ddpg+bc: larger imitates the data


class State(NamedTuple):
    value: networks.Trunk
    critic: networks.Ensemble  # of 2
    critic_target: networks.Ensemble
    actor: actors.Density
    actor_average: actors.Density | tuple[()]  # () at rate 1: the actor itself is kept
    opt: optax.OptState


Policy, sample = gciql.Policy, gciql.sample  # goals are the same, and so is what is left: pi(a | s, g) and V(s, g)


def init(cfg: Config, spec: Spec, key: Array) -> State:
    key_value, key_critic, key_actor = jax.random.split(key, 3)
    size_sg = 2 * images.layout(cfg, spec)
    value = networks.Trunk(size_sg, cfg.hidden, 1, jax.random.split(key_value, 1)[0])
    critic = networks.ensemble(networks.Trunk, size_sg + spec.action_dim, cfg.hidden, 1, key=key_critic)
    actor = actors.head(spec, size_sg, cfg.actor_hidden, key_actor, cfg.actor)
    average = losses.averaged(actor, actor, cfg.actor_ema)
    return State(value, critic, critic, actor, average, optax.adam(cfg.lr).init((value, critic, actor)))


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    """One step of V, of the critics and of the actor, all from the same state."""
    sg, toward = (networks.join(batch.observation, goal) for goal in (batch.goal, batch.actor_goal))
    sga = jnp.concatenate([sg, batch.action], axis=-1)
    every = jnp.concatenate([sga, jnp.concatenate([toward, batch.action], axis=-1)])
    target_q, actor_q = jnp.split(jnp.min(networks.apply_all(state.critic_target, every)[..., 0], axis=0), 2)
    value_grad = jax.value_and_grad(losses.expectile_value_loss, has_aux=True)
    (loss_v, v), grad_v = value_grad(state.value, sg, target_q, cfg.expectile)

    next_v = state.value(networks.join(batch.next_observation, batch.goal))[..., 0]
    target = (batch.reached - 1.0) + cfg.discount * (1.0 - batch.reached) * next_v
    loss_q, grad_q = jax.value_and_grad(losses.critic_loss)(state.critic, sga, target)

    advantage = actor_q - state.value(toward)[..., 0]
    actor_grad = jax.value_and_grad(actors.extraction_loss, has_aux=True)
    (_, info), grad_a = actor_grad(state.actor, cfg, state.critic, toward, batch.action, advantage, key)

    nets = (state.value, state.critic, state.actor)
    (value, critic, actor), opt = losses.adam_step(cfg.lr, (grad_v, grad_q, grad_a), state.opt, nets)
    critic_target = losses.polyak(state.critic_target, critic, cfg.tau)
    average = losses.averaged(state.actor_average, actor, cfg.actor_ema, opt[0].count)
    info |= {"value_loss": loss_v, "critic_loss": loss_q, "value": jnp.mean(v), "advantage": jnp.mean(advantage)}
    return State(value, critic, critic_target, actor, average, opt), info


def export(cfg: Config, state: State) -> gciql.Policy:
    return gciql.Policy(state.actor_average or state.actor, value=state.value, discount=cfg.discount)


PRESETS = {
    **gciql.PRESETS,
    "laptop": {key: value for key, value in gciql.PRESETS["laptop"].items() if key != "chunk"},
    "both ogbench": {**gciql.PRESETS["both ogbench"], "extraction": "ddpg+bc"},
    "both pointmaze": {"bc_weight": 0.003},
    "both antmaze-explore": {"bc_weight": 0.01},
    "both arm+visual-arm": {"bc_weight": 1.0},
    "both noisy-arm+visual-noisy-arm": {"bc_weight": 0.03},
}
