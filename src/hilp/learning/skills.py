"""Skills z: how methods draw them to learn from, and the policy half of HILP, IQL with any reward r(s, z, s') (Eq. 7).

HILP's directed version and the IQL baselines of the paper differ from HILP's policy in the reward only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import actors, hilbert, losses, networks
from hilp.learning.configs import LATER, Fraction, Head, Info, NonNegative, Positive, Share, TrunkConfig
from hilp.learning.sampling import Batch
from hilp.spec import Spec

STANDING = 1e-2  # latent steps: what moves by less has no direction


@dataclass(frozen=True)
class Config(TrunkConfig):
    """Hyper-parameters of the policy half; the defaults are the paper's table for goal-conditioned RL."""

    discount: Fraction = 0.99  # of the reward, one step
    expectile: Fraction = 0.9  # of the value V(s, z)
    temperature: NonNegative = 10.0  # AWR: larger trusts the critic, smaller imitates the data
    awr_clip: Positive = 100.0  # AWR weights are cut here
    tau: Share = 0.005  # EMA of the critic's target
    actor: Head = field(default="gaussian", metadata=LATER)  # flow: does not average the ways of the data


def draw(key: Array, shape: tuple[int, ...]) -> Array:
    """Skills (batch x dim) that are uniform on the unit sphere; fresh for every element at every update."""
    return hilbert.unit(jax.random.normal(key, shape))


def draw_lived(key: Array, direction: Array, share: float) -> Array:
    """Skills on the unit sphere: a share of them along `direction` (batch x dim), what was done in the data.

    A uniform skill says nothing about the action of the data, so an actor that is told no other learns little from it.
    """
    if share == 0.0:
        return draw(key, direction.shape)
    key_uniform, key_which = jax.random.split(key)
    led = jnp.linalg.norm(direction, axis=-1, keepdims=True) > STANDING
    taken = led & (jax.random.uniform(key_which, (len(direction), 1)) < share)
    return jnp.where(taken, hilbert.unit(direction), draw(key_uniform, direction.shape))


def draw_mixed(key: Array, shape: tuple[int, ...], share: float, of_rows: Callable[[Array], Array]) -> Array:
    """Skills on the sphere of radius sqrt(dim): uniform, or, a share of them, what `of_rows` makes of other rows."""
    key_uniform, key_rows, key_which = jax.random.split(key, 3)
    uniform = jnp.sqrt(shape[-1]) * draw(key_uniform, shape)
    of_data = of_rows(jax.random.permutation(key_rows, shape[0]))
    return jnp.where(jax.random.uniform(key_which, (shape[0], 1)) < share, of_data, uniform)


def init_policy(cfg: Config, size_sz: Any, spec: Spec, keys: Sequence[Array], chunk: int = 1) -> dict[str, Any]:
    """V(s, z), the critics with their targets, the actor and their optimiser: parts of a state, by three keys."""
    if chunk > 1 and getattr(cfg, "extraction", "awr") != "awr":
        spec.require_continuous("ddpg+bc with a chunk", "leave out one of the two (--set chunk=1)")
    value = networks.Trunk(size_sz, cfg.hidden, 1, keys[0])
    critic = networks.ensemble(networks.Trunk, size_sz + chunk * spec.action_dim, cfg.hidden, 1, key=keys[1])
    actor = actors.head(spec, size_sz, cfg.actor_hidden, keys[2], cfg.actor, chunk)
    opt = optax.adam(cfg.lr).init((value, critic, actor))
    return {"value": value, "critic": critic, "critic_target": critic, "actor": actor, "policy_opt": opt}


def update_policy(
    cfg: Any, state: Any, batch: Batch, z: Array, reward: Array, key: Array, carry: Array | None = None
) -> tuple[dict[str, Any], Info]:
    """One step of V(s, z), of the critics and of the actor, all from the same state: the new parts of the state.

    An action may be a chunk: then `reward` is what all its steps earn, `batch.next_observation` comes after them, and
    `carry` (batch) is what the value there counts for, in the place of the discount of one step.
    """
    action, real = actors.laid_out(batch)
    sz = networks.join(batch.observation, z)
    sza = jnp.concatenate([sz, action], axis=-1)
    target_q = jnp.min(networks.apply_all(state.critic_target, sza)[..., 0], axis=0)
    value_grad = jax.value_and_grad(losses.expectile_value_loss, has_aux=True)
    (loss_v, v), grad_v = value_grad(state.value, sz, target_q, cfg.expectile)

    # No done mask: a skill has no end.
    next_v = state.value(networks.join(batch.next_observation, z))[..., 0]
    target = reward + (cfg.discount if carry is None else carry) * next_v
    loss_q, grad_q = jax.value_and_grad(losses.critic_loss)(state.critic, sza, target)

    actor_grad = jax.value_and_grad(actors.extraction_loss, has_aux=True)
    key_flow = jax.random.fold_in(key, 1)  # the key itself drew the skills
    (_, info), grad_a = actor_grad(state.actor, cfg, state.critic, sz, action, target_q - v, key_flow, real)

    nets = (state.value, state.critic, state.actor)
    (value, critic, actor), opt = losses.adam_step(cfg.lr, (grad_v, grad_q, grad_a), state.policy_opt, nets)
    critic_target = losses.polyak(state.critic_target, critic, cfg.tau)
    part = {"value": value, "critic": critic, "critic_target": critic_target, "actor": actor, "policy_opt": opt}
    info |= {"value_loss": loss_v, "critic_loss": loss_q, "skill_reward": jnp.mean(reward)}
    return part, {**info, "skill_value": jnp.mean(v)}
