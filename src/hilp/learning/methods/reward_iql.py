"""IQL (Kostrikov et al. 2022) on data with rewards: one policy for one task, without skills.

Flat, k = 1, it is the baseline of both hierarchies. With k > 1 it is the paper's high level: its "actions" are
skills that last k steps, its transitions are segments (s_t, z, what k steps earned, s_t+k) of a semi-MDP.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import actors, images, losses, networks, sampling, skills, tables
from hilp.learning.configs import Count, Ema, Info, NonNegative, Sizes
from hilp.spec import Spec
from hilp.trees import Tree

COLUMNS = ("rewards", "terminals")  # of the transition that begins in a row


@dataclass(frozen=True)
class Config(skills.Config):
    """Hyper-parameters; the defaults are the paper's table for hierarchical RL, but for k."""

    k: Count = 1  # steps that an action lasts
    value_norm: bool = False  # LayerNorm in V and Q; the paper has it for Kitchen
    actor_hidden: Sizes = (256, 256)  # layers of the policy
    batch: Count = 256  # segments per update
    temperature: NonNegative = 1.0  # AWR: larger trusts the critic, smaller imitates the data
    actor_ema: Ema = 1.0  # below 1: the policy kept is a moving average of the actor's weights; not in the paper


class State(NamedTuple):
    value: Any
    critic: tuple[Any, ...]  # of 2
    critic_target: tuple[Any, ...]
    actor: actors.Density
    actor_average: actors.Density | tuple[()]  # () at rate 1: the actor itself is kept
    opt: optax.OptState


class Policy(eqx.Module):
    """What is left after training: pi(a | s)."""

    actor: actors.Density

    @property
    def skill_dim(self) -> int:
        return 0

    def act(self, observation: Tree, z: Array) -> Array:
        return self.actor.act(observation, z)


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    rows, steps = sampling.segments(index, key, cfg.batch, cfg.k)
    wanted = {
        "observations": {"observation": rows[:, 0], "next_observation": rows[:, -1]},
        "actions": {"action": rows[:, 0]},
        "rewards": {"rewards": rows[:, :-1]},
        "terminals": {"terminals": rows[:, :-1]},
    }
    return sampling.Rows(wanted, {"steps": steps})


def init(cfg: Config, spec: Spec, key: Array) -> State:
    key_value, key_critic, key_actor = jax.random.split(key, 3)
    network: Any = networks.Trunk if cfg.value_norm else networks.Mlp
    seen = images.layout(cfg, spec)
    value = network(seen, cfg.hidden, 1, key_value)
    critic = networks.ensemble(network, seen + spec.action_dim, cfg.hidden, 1, key=key_critic)
    actor = actors.head(spec, seen, cfg.actor_hidden, key_actor)
    opt = optax.adam(cfg.lr).init((value, critic, actor))
    return State(value, critic, critic, actor, losses.averaged(actor, actor, cfg.actor_ema), opt)


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    s, next_s = networks.join(batch.observation), networks.join(batch.next_observation)
    sa = jnp.concatenate([s, batch.action], axis=-1)
    target_q = jnp.min(networks.apply_all(state.critic_target, sa)[..., 0], axis=0)
    value_grad = jax.value_and_grad(losses.expectile_value_loss, has_aux=True)
    (loss_v, v), grad_v = value_grad(state.value, s, target_q, cfg.expectile)

    earned, carry = losses.semi_mdp(batch.rewards, batch.terminals, batch.steps, cfg.discount)
    target = earned + carry * state.value(next_s)[..., 0]
    loss_q, grad_q = jax.value_and_grad(losses.critic_loss)(state.critic, sa, target)

    actor_grad = jax.value_and_grad(actors.awr_loss, has_aux=True)
    (loss_a, weight), grad_a = actor_grad(state.actor, s, batch.action, target_q - v, cfg.temperature, cfg.awr_clip)

    nets = (state.value, state.critic, state.actor)
    (value, critic, actor), opt = losses.adam_step(cfg.lr, (grad_v, grad_q, grad_a), state.opt, nets)
    critic_target = losses.polyak(state.critic_target, critic, cfg.tau)
    average = losses.averaged(state.actor_average, actor, cfg.actor_ema, opt[0].count)
    info = {"value_loss": loss_v, "critic_loss": loss_q, "actor_loss": loss_a, "awr_weight": weight}
    return State(value, critic, critic_target, actor, average, opt), {**info, "value": jnp.mean(v)}


def export(cfg: Config, state: State) -> Policy:
    return Policy(state.actor_average or state.actor)


KITCHEN_EXPECTILE = 0.7  # of the paper's high level, and of IQL's own experiments

# Values see thin walls only with LayerNorm here, and one update can lose or find the way round a corner.
LAPTOP = {**tables.LAPTOP_TRUNKS, "tau": 0.02, "value_norm": True, "actor_ema": 2e-3, "steps": 4_000}

# Flat IQL is not in the paper's table: its AWR temperatures are those of IQL's own AntMaze and Kitchen experiments.
PRESETS = {
    **tables.GOAL_IMAGES,
    "both": {"temperature": 10.0, "actor_hidden": (512, 512, 512)},
    "laptop": LAPTOP,
    "paper": {"steps": 500_000},
    "both all-kitchens": {"temperature": 0.5, "expectile": KITCHEN_EXPECTILE, "value_norm": True},
    "laptop antmaze": {**tables.ANT, **tables.ANT_AVERAGE, "discount": tables.ANT_DISCOUNT},
    "laptop all-kitchens": {**tables.KITCHEN_LAPTOP, **tables.KITCHEN_AVERAGE},
}

HIGH_LEVEL_PRESETS = {
    "both": {"k": 10},
    "laptop": {**LAPTOP, "k": 5},  # a maze turns more often than every ten steps
    "paper": {"steps": 500_000},
    "laptop antmaze": {"k": 10, "discount": tables.ANT_DISCOUNT, **tables.ANT_AVERAGE, "steps": 20_000},
    "both all-kitchens": {"expectile": KITCHEN_EXPECTILE, "value_norm": True},
    "laptop all-kitchens": {"k": 10, "normalize": False, **tables.KITCHEN_AVERAGE, "steps": 10_000},
    "laptop maze-pixels": tables.LAPTOP_PIXELS,
    "laptop dmc-pixels+visual": tables.LAPTOP_FILMS,
}
