"""GC-IQL: goal-conditioned IQL (Kostrikov et al. 2022, Park et al. 2023), a baseline of the paper.

The paper's variant `v` has values of states only: V(s, g) learnt with the loss that trains phi (Eq. 6), and the
advantage of an action is how much nearer it brings the goal, V(s', g) - V(s, g). Variant `q` is the usual IQL with twin
critics Q(s, a, g), which can also be climbed by DDPG+BC. The paper gives no expectile and no temperature: ours are
those that the code it builds on has for AntMaze-large (0.7 and 1 for AntMaze-ultra and Kitchen).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.errors import HilpError
from hilp.learning import hilbert, losses, networks, sampling
from hilp.learning.methods import require
from hilp.spec import Batch, Info, Spec

VALUE_MEMBERS = {"v": 2, "q": 1}
CRITIC_MEMBERS = {"v": 0, "q": 2}


@dataclass(frozen=True)
class Config:
    """Hyper-parameters; the defaults are the paper's table for goal-conditioned RL."""

    variant: Literal["v", "q"] = "v"  # values of states alone, as in the paper, or critics of actions too
    hidden: tuple[int, ...] = (512, 512, 512)  # layers of V and Q
    actor_hidden: tuple[int, ...] = (512, 512, 512)  # layers of the policy; the paper has (256, 256) on AntMaze-large
    batch: int = 1024  # transitions per update
    lr: float = 3e-4  # Adam, every network
    discount: float = 0.99  # sets the longest distance V can tell apart, about 1 / (1 - discount) steps
    expectile: float = 0.9  # nearer 1: values of the best path in the data, not of the usual one
    target_rate: float = 0.005  # EMA of the target, of V in variant v and of Q in variant q
    goal_discount: float = 0.99  # how far ahead future goals of the value lie
    goal_here: float = 0.2  # share of the value's goals that are the state itself: V(s, s) = 0 must be learnt
    goal_random: float = 0.3  # share of the value's goals drawn from the whole data set
    actor_goal_random: float = 0.3  # share of the actor's goals drawn from the whole data set; the others lie ahead
    extraction: Literal["awr", "ddpg+bc"] = "awr"  # policy from values: weigh the data's actions, or climb Q near them
    temperature: float = 3.0  # AWR: larger trusts the values, smaller imitates the data
    weight_max: float = 100.0  # AWR weights are cut here
    bc_weight: float = 0.3  # ddpg+bc: larger imitates the data
    actor_rate: float = 1.0  # below 1: the policy kept is a moving average of the actor's weights; not in the paper
    normalize: bool = False  # shift and scale observations by the data's mean and standard deviation

    def __post_init__(self) -> None:
        require(
            self,
            {
                "at least 1": ("batch",),
                "sizes of at least 1": ("hidden", "actor_hidden"),
                "between 0 and 1": ("discount", "expectile", "goal_discount"),
                "from 0 to 1": ("target_rate", "goal_here", "goal_random", "actor_goal_random"),
                "at least 0": ("lr", "temperature", "bc_weight"),
                "above 0": ("weight_max",),
                "above 0, at most 1": ("actor_rate",),
            },
        )
        if self.goal_here + self.goal_random > 1.0:
            raise HilpError(
                "config keys 'goal_here' and 'goal_random' are shares of one whole: together at most 1, "
                f"not {self.goal_here} + {self.goal_random}"
            )
        if self.extraction == "ddpg+bc" and self.variant == "v":
            raise HilpError("config key 'extraction' can be ddpg+bc for variant q only: V(s, g) knows no actions")


class State(NamedTuple):
    """Everything that training changes. An ensemble without members is a network that the variant does not have."""

    value: networks.Ensemble  # of 2 in variant v, of 1 in variant q
    value_target: networks.Ensemble  # variant v
    critic: networks.Ensemble  # of 2 in variant q
    critic_target: networks.Ensemble  # variant q
    actor: networks.GaussianActor
    actor_average: networks.GaussianActor | tuple[()]  # () at rate 1: the actor itself is kept
    opt: optax.OptState


class Policy(eqx.Module):
    """What is left after training: pi(a | s, g)."""

    actor: networks.GaussianActor

    @property
    def skill_dim(self) -> int:
        return self.actor.hidden[0].weight.shape[0] // 2  # the actor takes a state and, of the same size, the skill

    def act(self, observation: Array, z: Array) -> Array:
        return jnp.clip(self.actor(jnp.concatenate([observation, z], axis=-1)), -1.0, 1.0)

    def aim(self, goal: Array) -> Array:
        """The skill of a goal is the goal."""
        return goal


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    key_at, key_goal, key_actor = jax.random.split(key, 3)
    at = sampling.transitions(index, key_at, cfg.batch)
    goal = sampling.value_goals(index, key_goal, at, cfg.goal_discount, cfg.goal_here, cfg.goal_random)
    return sampling.Rows(at, goal, sampling.actor_goals(index, key_actor, at, cfg.actor_goal_random))


def init(cfg: Config, spec: Spec, key: Array) -> State:
    key_value, key_critic, key_actor = jax.random.split(key, 3)
    size_sg = 2 * spec.observation_dim
    size_sga = size_sg + spec.action_dim
    value = networks.ensemble(networks.Trunk, VALUE_MEMBERS[cfg.variant], size_sg, cfg.hidden, 1, key=key_value)
    critic = networks.ensemble(networks.Trunk, CRITIC_MEMBERS[cfg.variant], size_sga, cfg.hidden, 1, key=key_critic)
    actor = networks.GaussianActor(size_sg, cfg.actor_hidden, spec.action_dim, key_actor)
    return State(
        value=value,
        value_target=value if cfg.variant == "v" else (),
        critic=critic,
        critic_target=critic,
        actor=actor,
        actor_average=losses.averaged(actor, actor, cfg.actor_rate),
        opt=optax.adam(cfg.lr).init((value, critic, actor)),
    )


def update(cfg: Config, state: State, batch: Batch, key: Array) -> tuple[State, Info]:
    """One step of the values and of the actor, all from the same state."""
    assert batch.actor_goal is not None  # `sample` draws them
    learn = _learn_states if cfg.variant == "v" else _learn_actions
    grad_v, grad_q, advantage, info = learn(cfg, state, batch, batch.actor_goal)

    sg = jnp.concatenate([batch.observation, batch.actor_goal], axis=-1)
    if cfg.extraction == "awr":
        weight = losses.awr_weight(advantage, cfg.temperature, cfg.weight_max)
        loss_a, grad_a = jax.value_and_grad(actor_loss)(state.actor, sg, batch.action, weight)
        info["awr_weight"] = jnp.mean(weight)
    else:
        loss_a, grad_a = jax.value_and_grad(climbing_loss)(state.actor, cfg, state.critic, sg, batch.action)

    nets = (state.value, state.critic, state.actor)
    updates, opt = optax.adam(cfg.lr).update((grad_v, grad_q, grad_a), state.opt)
    value, critic, actor = optax.apply_updates(nets, updates)
    state = State(
        value=value,
        value_target=losses.polyak(state.value_target, value, cfg.target_rate) if cfg.variant == "v" else (),
        critic=critic,
        critic_target=losses.polyak(state.critic_target, critic, cfg.target_rate),
        actor=actor,
        actor_average=losses.averaged(state.actor_average, actor, cfg.actor_rate, opt[0].count),
        opt=opt,
    )
    return state, {**info, "actor_loss": loss_a, "advantage": jnp.mean(advantage)}


def export(cfg: Config, state: State) -> Policy:
    return Policy(state.actor_average or state.actor)


def _learn_states(cfg: Config, state: State, batch: Batch, actor_goal: Array) -> tuple[Any, Any, Array, Info]:
    """Variant v: gradients of V, none of critics, and V(s', g) - V(s, g) for the actor's goals."""
    (loss_v, v), grad_v = jax.value_and_grad(state_value_loss, has_aux=True)(
        state.value, cfg, state.value_target, batch
    )
    both = jnp.concatenate([batch.observation, batch.next_observation])
    toward = jnp.concatenate([both, jnp.concatenate([actor_goal, actor_goal])], axis=-1)
    before, after = jnp.split(jnp.mean(networks.members(state.value, toward)[..., 0], axis=0), 2)
    return grad_v, (), after - before, {"value_loss": loss_v, "value": v}


def _learn_actions(cfg: Config, state: State, batch: Batch, actor_goal: Array) -> tuple[Any, Any, Array, Info]:
    """Variant q: gradients of V and of the critics, and Q(s, a, g) - V(s, g) for the actor's goals."""
    sg = jnp.concatenate([batch.observation, batch.goal], axis=-1)
    toward = jnp.concatenate([batch.observation, actor_goal], axis=-1)
    sga = jnp.concatenate([sg, batch.action], axis=-1)
    every = jnp.concatenate([sga, jnp.concatenate([toward, batch.action], axis=-1)])
    target_q, actor_q = jnp.split(jnp.min(networks.members(state.critic_target, every)[..., 0], axis=0), 2)
    (loss_v, v), grad_v = jax.value_and_grad(action_value_loss, has_aux=True)(state.value, cfg, sg, target_q)

    next_sg = jnp.concatenate([batch.next_observation, batch.goal], axis=-1)
    next_v = networks.member(state.value, 0)(next_sg)[..., 0]
    target = (batch.reached - 1.0) + cfg.discount * (1.0 - batch.reached) * next_v
    loss_q, grad_q = jax.value_and_grad(critic_loss)(state.critic, sga, target)
    advantage = actor_q - networks.member(state.value, 0)(toward)[..., 0]
    return grad_v, grad_q, advantage, {"value_loss": loss_v, "critic_loss": loss_q, "value": v}


def state_value_loss(
    value: networks.Ensemble, cfg: Config, target: networks.Ensemble, batch: Batch
) -> tuple[Array, Array]:
    """Eq. 6 with V(s, g) in the place of -|phi(s) - phi(g)|; also returns the mean of V."""
    v = networks.members(value, jnp.concatenate([batch.observation, batch.goal], axis=-1))[..., 0]  # members x batch
    both = jnp.concatenate([batch.observation, batch.next_observation])
    toward = jnp.concatenate([both, jnp.concatenate([batch.goal, batch.goal])], axis=-1)
    old_v, old_next_v = jnp.split(networks.members(target, toward)[..., 0], 2, axis=1)
    loss = hilbert.representation_loss(v, old_v, old_next_v, batch.reached, cfg.discount, cfg.expectile)
    return loss, jnp.mean(v)


def action_value_loss(value: networks.Ensemble, cfg: Config, sg: Array, target_q: Array) -> tuple[Array, Array]:
    """Expectile regression of V(s, g) towards the smaller target critic; also returns the mean of V."""
    v = networks.member(value, 0)(sg)[..., 0]
    return jnp.mean(losses.expectile(target_q - v, target_q - v, cfg.expectile)), jnp.mean(v)


def critic_loss(critic: networks.Ensemble, sga: Array, target: Array) -> Array:
    """Both critics towards -1 + discount * V(s', g), and towards 0 where the goal is the state itself."""
    q = networks.members(critic, sga)[..., 0]  # members x batch
    return jnp.mean(jnp.sum(jnp.square(q - target[None]), axis=0))


def actor_loss(actor: networks.GaussianActor, sg: Array, action: Array, weight: Array) -> Array:
    """Advantage-weighted regression: -E[weight * log pi(a | s, g)]."""
    return -jnp.mean(weight * actor.log_prob(sg, action))


def climbing_loss(
    actor: networks.GaussianActor, cfg: Config, critic: networks.Ensemble, sg: Array, action: Array
) -> Array:
    """DDPG+BC: the mean action climbs the smaller critic, the density stays with the data."""
    own = jnp.clip(actor(sg), -1.0, 1.0)
    q = jnp.min(networks.members(critic, jnp.concatenate([sg, own], axis=-1))[..., 0], axis=0)
    return losses.ddpg_bc(q, actor.log_prob(sg, action), cfg.bc_weight)
