"""GC-CQL: goal-conditioned conservative Q-learning (Kumar et al. 2020), a baseline of the paper.

The paper gives no equations for it ("mostly" the values of Nakamoto et al. 2023), so these are our choices: CQL(H) with
importance weights, at weight 5 and with max-target backups; twin critics of the shape of all other critics here; a
tanh-Gaussian actor with SAC's automatic temperature (target entropy -action_dim) and a smaller learning rate; one draw
of next actions for both the backup and the conservative term. Goals are those of GC-IQL's value, as the paper has "the
same goal relabeling" for both, and serve critic and actor alike. So the reward is -1 until the state IS the goal, and
the goals that are the state itself anchor Q(s, a, s) at 0: no other goal's value is known without bootstrapping.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import actors, images, losses, networks, sampling, tables
from hilp.learning.configs import Count, Fraction, GoalShare, Info, NonNegative, Share, TrunkConfig
from hilp.learning.methods import gcbc
from hilp.spec import Spec


@dataclass(frozen=True)
class Config(TrunkConfig):
    """Hyper-parameters; sizes, batch, discount and target rate are the paper's table for goal-conditioned RL."""

    actor_lr: NonNegative = 1e-4  # Adam, actor and temperature; `lr` is that of the critics
    discount: Fraction = 0.99  # of the reward
    tau: Share = 0.005  # EMA of the critic's target
    goal_discount: Fraction = 0.99  # how far ahead future goals lie
    p_current_goal: GoalShare = 0.2  # share of goals that are the state itself: Q(s, a, s) = 0 must be learnt
    goal_random: GoalShare = 0.3  # share of goals drawn from the whole data set
    conservative: NonNegative = 5.0  # weight of the conservative term: larger keeps Q of unseen actions lower
    samples: Count = 10  # actions drawn from each of the uniform, the current and the next policy's distribution


class State(NamedTuple):
    critic: networks.Ensemble  # of 2
    critic_target: networks.Ensemble
    actor: actors.SquashedActor
    log_temperature: Array  # of SAC: how much entropy is worth
    critic_opt: optax.OptState
    actor_opt: optax.OptState


Policy = gcbc.Policy  # without its noise, the actor is pi(a | s, g) as that of gc-bc


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    key_at, key_goal = jax.random.split(key)
    at = sampling.transitions(index, key_at, cfg.batch)
    goal = sampling.hindsight_goals(index, key_goal, at, cfg.goal_random, cfg.goal_discount, cfg.p_current_goal)
    return sampling.Rows.of_transitions(at, {"goal": goal}, reached=goal == at)


def init(cfg: Config, spec: Spec, key: Array) -> State:
    spec.require_continuous("gc-cql", "choose another method, such as gc-iql-q")
    key_critic, key_actor = jax.random.split(key)
    size_sg = 2 * images.layout(cfg, spec)
    critic = networks.ensemble(networks.Trunk, size_sg + spec.action_dim, cfg.hidden, 1, key=key_critic)
    actor = actors.SquashedActor(size_sg, cfg.actor_hidden, spec.action_dim, key_actor)
    log_temperature = jnp.zeros(())
    critic_opt, actor_opt = optax.adam(cfg.lr).init(critic), optax.adam(cfg.actor_lr).init((actor, log_temperature))
    return State(critic, critic, actor, log_temperature, critic_opt, actor_opt)


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    """One step of the critics, of the actor and of the temperature, all from the same state."""
    key_anywhere, key_here, key_next, key_actor = jax.random.split(key, 4)
    sg, next_sg = (networks.join(seen, batch.goal) for seen in (batch.observation, batch.next_observation))
    shape = (cfg.samples, *batch.action.shape)
    here, here_density = state.actor.draw(sg, jax.random.normal(key_here, shape))
    after, after_density = state.actor.draw(next_sg, jax.random.normal(key_next, shape))
    anywhere = jax.random.uniform(key_anywhere, shape, minval=-1.0, maxval=1.0)
    anywhere_density = jnp.full(here_density.shape, -shape[-1] * math.log(2.0))  # of the box [-1, 1]^act

    # The backup takes the best of the drawn next actions; being pessimistic is left to the conservative term.
    next_q = jnp.max(jnp.min(critics(state.critic_target, next_sg, after), axis=0), axis=0)  # batch
    target = (batch.reached - 1.0) + cfg.discount * (1.0 - batch.reached) * next_q
    actions = jnp.concatenate([batch.action[None], anywhere, here, after])  # 1 + 3 samples x batch x act
    density = jnp.concatenate([anywhere_density, here_density, after_density])  # 3 samples x batch
    (_, info), grad_q = jax.value_and_grad(critic_loss, has_aux=True)(state.critic, cfg, sg, actions, density, target)

    noise = jax.random.normal(key_actor, batch.action.shape)
    temperature = jnp.exp(state.log_temperature)
    (loss_a, log_prob), grad_a = jax.value_and_grad(actor_loss, has_aux=True)(
        state.actor, state.critic, temperature, sg, noise
    )
    grad_t = jax.grad(temperature_loss)(state.log_temperature, log_prob, -float(shape[-1]))

    critic, critic_opt = losses.adam_step(cfg.lr, grad_q, state.critic_opt, state.critic)
    (actor, log_temperature), actor_opt = losses.adam_step(
        cfg.actor_lr, (grad_a, grad_t), state.actor_opt, (state.actor, state.log_temperature)
    )
    critic_target = losses.polyak(state.critic_target, critic, cfg.tau)
    info |= {"actor_loss": loss_a, "entropy": -jnp.mean(log_prob), "temperature": temperature}
    return State(critic, critic_target, actor, log_temperature, critic_opt, actor_opt), info


def export(cfg: Config, state: State) -> Policy:
    return Policy(state.actor)


def critics(critic: networks.Ensemble, sg: Array, actions: Array) -> Array:
    """Q(s, a, g) of several actions a state: critics x actions x batch."""
    repeated = jnp.broadcast_to(sg, (*actions.shape[:-1], sg.shape[-1]))
    rows = jnp.concatenate([repeated, actions], axis=-1).reshape(-1, sg.shape[-1] + actions.shape[-1])
    return networks.apply_all(critic, rows)[..., 0].reshape(-1, *actions.shape[:-1])


def critic_loss(
    critic: networks.Ensemble, cfg: Config, sg: Array, actions: Array, density: Array, target: Array
) -> tuple[Array, Info]:
    """Both critics towards their target in the data's actions (the first), and above it nowhere else: CQL(H)."""
    q = critics(critic, sg, actions)
    squares = jnp.sum(jnp.mean(jnp.square(q[:, 0] - target), axis=1))
    gap = jnp.sum(jnp.mean(losses.conservative(q[:, 1:], density, q[:, 0]), axis=1))
    loss = squares + cfg.conservative * gap
    return loss, {"critic_loss": loss, "conservative_gap": gap, "value": jnp.mean(q[:, 0])}


def actor_loss(
    actor: actors.SquashedActor, critic: networks.Ensemble, temperature: Array, sg: Array, noise: Array
) -> tuple[Array, Array]:
    """SAC: E[temperature * log pi(a | s, g) - min_i Q_i(s, a, g)]; also returns the log-density."""
    action, log_prob = actor.draw(sg, noise)
    q = jnp.min(critics(critic, sg, action[None])[:, 0], axis=0)
    return jnp.mean(temperature * log_prob - q), log_prob


def temperature_loss(log_temperature: Array, log_prob: Array, target_entropy: float) -> Array:
    """Raises the temperature while the entropy -log pi is below its target, lowers it otherwise."""
    return -log_temperature * jnp.mean(log_prob + target_entropy)


PRESETS = {
    **tables.GOAL_IMAGES,
    "laptop": {
        **tables.LAPTOP_TRUNKS,
        "actor_lr": 3e-4,
        **tables.horizon(0.97),
        "tau": 0.02,
        "samples": 4,  # 30 actions a row would be most of the work
    },
    "laptop antmaze": {**tables.ANT, **tables.ANT_GOAL_VALUES, **tables.ANT_LONG, "actor_lr": 1e-4},
    "laptop all-kitchens": {**tables.KITCHEN_LAPTOP, **tables.horizon(tables.KITCHEN_DISCOUNT)},
    "paper all-kitchens": tables.KITCHEN_PAPER,
    "paper visual-kitchen": tables.PAPER_IMAGES,
}
