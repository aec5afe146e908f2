"""The policy half of HILP: IQL of skills z with any reward r(s, z, s') (Eq. 7).

HILP's directed version and the IQL baselines of the paper differ from it in the reward only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import losses, networks
from hilp.learning.configs import BaseConfig, Count, Fraction, NonNegative, Positive, Share, Sizes
from hilp.learning.contract import Info
from hilp.learning.sampling import Batch

CRITICS = 2


@dataclass(frozen=True)
class Config(BaseConfig):
    """Hyper-parameters of the policy half; the defaults are the paper's table for goal-conditioned RL."""

    hidden: Sizes = (512, 512, 512)  # layers of V and Q, and of HILP's phi
    actor_hidden: Sizes = (512, 512, 512)  # layers of the policy
    batch: Count = 1024  # transitions per update
    lr: NonNegative = 3e-4  # Adam, every network
    discount: Fraction = 0.99  # of the skill reward
    expectile: Fraction = 0.9  # of the skill value V(s, z)
    temperature: NonNegative = 10.0  # AWR: larger trusts the critic, smaller imitates the data
    awr_clip: Positive = 100.0  # AWR weights are cut here
    tau: Share = 0.005  # EMA of the critic's target


def init_policy(cfg: Config, size_sz: Any, action_dim: int, keys: Sequence[Array]) -> dict[str, Any]:
    """V(s, z), the critics with their targets, the actor and their optimiser: parts of a state, by three keys."""
    value = networks.Trunk(size_sz, cfg.hidden, 1, keys[0])
    critic = networks.ensemble(networks.Trunk, CRITICS, size_sz + action_dim, cfg.hidden, 1, key=keys[1])
    actor = networks.GaussianActor(size_sz, cfg.actor_hidden, action_dim, keys[2])
    opt = optax.adam(cfg.lr).init((value, critic, actor))
    return {"value": value, "critic": critic, "critic_target": critic, "actor": actor, "policy_opt": opt}


def update_policy(
    cfg: Any, state: Any, batch: Batch, z: Array, reward: Array, extraction: str
) -> tuple[dict[str, Any], Info]:
    """One step of V(s, z), of the critics and of the actor, all from the same state: the new parts of the state."""
    sz = networks.join(batch.observation, z)
    sza = jnp.concatenate([sz, batch.action], axis=-1)
    target_q = jnp.min(networks.apply_all(state.critic_target, sza)[..., 0], axis=0)
    value_grad = jax.value_and_grad(losses.expectile_value_loss, has_aux=True)
    (loss_v, v), grad_v = value_grad(state.value, sz, target_q, cfg.expectile)

    # No done mask: a skill has no end.
    next_v = state.value(networks.join(batch.next_observation, z))[..., 0]
    loss_q, grad_q = jax.value_and_grad(losses.critic_loss)(state.critic, sza, reward + cfg.discount * next_v)
    info = {"value_loss": loss_v, "critic_loss": loss_q}

    if extraction == "awr":
        weight = losses.awr_weight(target_q - v, cfg.temperature, cfg.awr_clip)
        loss_a, grad_a = jax.value_and_grad(losses.awr_loss)(state.actor, sz, batch.action, weight)
        info["awr_weight"] = jnp.mean(weight)
    else:
        climb = jax.value_and_grad(losses.ddpg_bc_loss)
        loss_a, grad_a = climb(state.actor, state.critic, sz, batch.action, cfg.bc_weight)

    nets = (state.value, state.critic, state.actor)
    (value, critic, actor), opt = losses.adam_step(cfg.lr, (grad_v, grad_q, grad_a), state.policy_opt, nets)
    critic_target = losses.polyak(state.critic_target, critic, cfg.tau)
    part = {"value": value, "critic": critic, "critic_target": critic_target, "actor": actor, "policy_opt": opt}
    return part, {**info, "actor_loss": loss_a, "skill_reward": jnp.mean(reward), "skill_value": jnp.mean(v)}
