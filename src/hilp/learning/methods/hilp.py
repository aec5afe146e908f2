"""HILP, "Foundation Policies with Hilbert Representations" (ICML 2024): Eq. 6 for phi, Eq. 7 (IQL + AWR) for pi.

Deviations from the authors' code: skills are drawn afresh at every update (theirs stayed frozen by accident), and
goals can be an episode's true final state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp import trees
from hilp.errors import HilpError
from hilp.learning import hilbert, images, losses, networks, sampling
from hilp.learning.configs import AUTO, AutoFloat, reference_values, require
from hilp.learning.contract import Info, Preset, Stage
from hilp.learning.methods import preset_values as values
from hilp.learning.sampling import Batch
from hilp.spec import Spec
from hilp.trees import Tree

PHIS = 2  # the first one is phi
CRITICS = 2


@dataclass(frozen=True)
class Config:
    """Hyper-parameters; the defaults are the paper's table for goal-conditioned RL."""

    dim: int = 32  # latent dimension D
    hidden: tuple[int, ...] = (512, 512, 512)  # layers of phi, V and Q
    actor_hidden: tuple[int, ...] = (512, 512, 512)  # layers of the policy
    batch: int = 1024  # transitions per update
    lr: float = 3e-4  # Adam, every network
    phi_discount: AutoFloat = 0.99  # sets the longest distance phi can tell apart, about 1 / (1 - discount) steps
    phi_expectile: float = 0.95  # nearer 1: distances of the best path in the data, not of the usual one
    phi_tau: float = 0.005  # EMA of phi's target
    goal_discount: AutoFloat = 0.99  # how far ahead future goals lie
    goal_random: float = 0.375  # share of goals drawn from the whole data set
    discount: float = 0.99  # of the skill reward
    expectile: float = 0.9  # of the skill value V(s, z)
    temperature: float = 10.0  # AWR: larger trusts the critic, smaller imitates the data
    awr_clip: float = 100.0  # AWR weights are cut here
    tau: float = 0.005  # EMA of the critic's target
    schedule: Literal["joint", "sequential"] = "joint"  # sequential: first phi, then the policy (Algorithm 1)
    phi_steps: int = 500_000  # sequential: updates of phi before the policy starts
    extraction: Literal["awr", "ddpg+bc"] = "awr"  # policy from critic: weigh the data's actions, or climb Q near them
    bc_weight: float = 0.3  # ddpg+bc: larger imitates the data
    bound_targets: bool = False  # targets of phi never say farther than the trajectory itself took; not in the paper
    n_step: int = 1  # steps of the trajectory that targets of phi look over; not in the paper
    actor_ema: float = 1.0  # below 1: the policy kept is a moving average of the actor's weights; not in the paper
    encoder: images.Encoder = "paper"  # of pictures: the paper's, a light one, or none (bytes as numbers)
    augment: images.Augment = "rows"  # random shifts of pictures, in half of the batches
    policy_sees: Literal["observations", "phi"] = (
        "observations"  # sequential: "phi" is the last layer of the frozen phi
    )
    normalize: bool = False  # shift and scale observations by the data's mean and standard deviation

    def __post_init__(self) -> None:
        require(
            self,
            {
                "at least 1": ("dim", "batch", "phi_steps", "n_step"),
                "sizes of at least 1": ("hidden", "actor_hidden"),
                "between 0 and 1": ("phi_discount", "phi_expectile", "goal_discount", "discount", "expectile"),
                "from 0 to 1": ("phi_tau", "tau", "goal_random"),
                "at least 0": ("lr", "temperature", "bc_weight"),
                "above 0": ("awr_clip",),
                "above 0, at most 1": ("actor_ema",),
            },
        )
        if self.policy_sees == "phi" and self.schedule != "sequential":
            raise HilpError(
                "config key 'policy_sees' can be phi for a sequential schedule only: phi must be trained first"
            )


class State(NamedTuple):
    """Everything that training changes."""

    phi: networks.Ensemble  # of 2
    phi_target: networks.Ensemble
    value: networks.Trunk
    critic: networks.Ensemble  # of 2
    critic_target: networks.Ensemble
    actor: networks.GaussianActor
    actor_average: networks.GaussianActor | tuple[()]  # () at rate 1: the actor itself is kept
    phi_opt: optax.OptState
    policy_opt: optax.OptState


class Policy(eqx.Module):
    """What is left after training: phi, pi, and the rules that turn tasks into skills."""

    phi: networks.Trunk
    actor: networks.GaussianActor
    skill_dim: int = eqx.field(static=True)
    through_phi: bool = eqx.field(static=True)  # whether the actor sees what phi makes of a state
    discount: float = eqx.field(static=True)  # of distances: phi tells them apart up to about 1 / (1 - discount) steps

    def encode(self, observation: Tree) -> Array:
        return self.phi(observation)

    def act(self, observation: Tree, z: Array) -> Array:
        seen = self.phi.features(observation) if self.through_phi else observation
        return jnp.clip(self.actor(networks.join(seen, z)), -1.0, 1.0)

    def goal_direction(self, here: Array, there: Array) -> Array:
        """Goal rule: the unit direction from one latent to another (Eq. 9)."""
        return hilbert.unit(there - here)

    def cumulant(self, observation: Tree, next_observation: Tree) -> Array:
        """Features whose inner product with z is the reward that skill z maximises."""
        return self.phi(next_observation) - self.phi(observation)

    def skill_of(self, observations: Tree, actions: Array, steps: Array) -> Array:
        """The skill that a segment followed: the unit displacement from its first state to its last."""
        first, last = (trees.over(lambda part, at=at: part[:, at], observations) for at in (0, -1))
        return self.goal_direction(self.encode(first), self.encode(last))

    def project(self, z: Array) -> Array:
        """The skill in the direction of z: skills live on the unit sphere."""
        return hilbert.unit(z)


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    key_at, key_goal = jax.random.split(key)
    at = sampling.transitions(index, key_at, cfg.batch)
    goal = sampling.hindsight_goals(index, key_goal, at, cfg.goal_discount, cfg.goal_random)
    seen, extras = {"goal": goal}, {"reached": goal == at}
    if cfg.bound_targets:
        extras["steps_to_goal"] = sampling.steps_to_goal(index, at, goal)
    if cfg.n_step > 1:
        seen["n_step_observation"] = sampling.n_step_rows(index, at, goal, cfg.n_step)
        extras["n_steps"] = seen["n_step_observation"] - at
    return sampling.Rows.of_transitions(at, seen, **extras)


def sample_policy(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    """Transitions with the latents of a phi that is trained already; the policy has no goals."""
    key_at, _ = jax.random.split(key)
    rows = sampling.Rows.of_transitions(at := sampling.transitions(index, key_at, cfg.batch))
    columns = {**rows.columns, "latents": {"latent": at, "next_latent": at + 1}}
    if cfg.policy_sees == "phi":
        columns["views"] = columns.pop("observations")  # under the same names, so that no picture is looked at again
    return rows._replace(columns=columns)


def init(cfg: Config, spec: Spec, key: Array) -> State:
    key_phi, key_value, key_critic, key_actor = jax.random.split(key, 4)
    seen = images.layout(cfg, spec)
    size_sz = (cfg.hidden[-1] if cfg.policy_sees == "phi" else seen) + cfg.dim
    phi = networks.ensemble(networks.Trunk, PHIS, seen, cfg.hidden, cfg.dim, key=key_phi)
    value = networks.Trunk(size_sz, cfg.hidden, 1, key_value)
    size_sza = size_sz + spec.action_dim
    critic = networks.ensemble(networks.Trunk, CRITICS, size_sza, cfg.hidden, 1, key=key_critic)
    actor = networks.GaussianActor(size_sz, cfg.actor_hidden, spec.action_dim, key_actor)
    adam = optax.adam(cfg.lr)
    return State(
        phi=phi,
        phi_target=phi,
        value=value,
        critic=critic,
        critic_target=critic,
        actor=actor,
        actor_average=losses.averaged(actor, actor, cfg.actor_ema),
        phi_opt=adam.init(phi),
        policy_opt=adam.init((value, critic, actor)),
    )


def update(cfg: Config, state: State, batch: Batch, key: Array) -> tuple[State, Info]:
    """`joint`: one update of phi and one of the policy, which sees the phi from before."""
    phi_part, phi_info, phi_s = _update_phi(cfg, state, batch)
    phi_next = state.phi[0](batch.next_observation)
    policy_part, policy_info = _update_policy(cfg, state, batch, jax.lax.stop_gradient(phi_s), phi_next, key)
    return state._replace(**phi_part, **policy_part), {**phi_info, **policy_info}


def update_phi(cfg: Config, state: State, batch: Batch, key: Array) -> tuple[State, Info]:
    """`sequential`, first stage."""
    part, info, _ = _update_phi(cfg, state, batch)
    return state._replace(**part), info


def update_policy(cfg: Config, state: State, batch: Batch, key: Array) -> tuple[State, Info]:
    """`sequential`, second stage: phi stays as it is."""
    part, info = _update_policy(cfg, state, batch, batch.latent, batch.next_latent, key)
    return state._replace(**part), info


def stages(cfg: Config) -> tuple[Stage, ...]:
    if cfg.schedule == "joint":
        return (Stage(sample, update),)
    through = {"views": views} if cfg.policy_sees == "phi" else {}
    return (
        Stage(sample, update_phi, until=cfg.phi_steps),
        Stage(sample_policy, update_policy, columns={"latents": latents} | through),
    )


def latents(cfg: Config, state: State, observation: Tree) -> Array:
    """phi(s), computed once for each row of the data: batch x dim."""
    return state.phi[0](observation)


def views(cfg: Config, state: State, observation: Tree) -> Array:
    """What a policy that sees through phi sees, computed once for each row of the data: batch x hidden."""
    return state.phi[0].features(observation)


def export(cfg: Config, state: State) -> Policy:
    through_phi = cfg.policy_sees == "phi"
    return Policy(state.phi[0], state.actor_average or state.actor, cfg.dim, through_phi, cfg.phi_discount)


reference = reference_values


def phi_loss(
    phi: networks.Ensemble, cfg: Config, target: networks.Ensemble, batch: Batch
) -> tuple[Array, tuple[Info, Array]]:
    """Eq. 6, and phi(s) of the first network so that nobody computes it twice."""
    count = batch.reached.shape[0]
    online = networks.apply_all(phi, networks.stacked(batch.observation, batch.goal))  # ensemble x 2 batch x dim
    following = batch.n_step_observation if cfg.n_step > 1 else batch.next_observation
    old = networks.apply_all(target, networks.stacked(batch.observation, batch.goal, following))
    v = hilbert.value(online[:, :count], online[:, count:])  # ensemble x batch
    target_v = hilbert.value(old[:, :count], old[:, count : 2 * count])
    target_next_v = hilbert.value(old[:, 2 * count :], old[:, count : 2 * count])
    loss = hilbert.representation_loss(
        v,
        target_v,
        target_next_v,
        batch.reached,
        cfg.phi_discount,
        cfg.phi_expectile,
        steps=batch.n_steps if cfg.n_step > 1 else None,
        steps_to_goal=batch.steps_to_goal if cfg.bound_targets else None,
    )
    return loss, ({"phi_loss": loss, "distance": -jnp.mean(v)}, online[0, :count])


def _update_phi(cfg: Config, state: State, batch: Batch) -> tuple[dict, Info, Array]:
    (_, (info, phi_s)), grads = jax.value_and_grad(phi_loss, has_aux=True)(state.phi, cfg, state.phi_target, batch)
    updates, phi_opt = optax.adam(cfg.lr).update(grads, state.phi_opt)
    phi = optax.apply_updates(state.phi, updates)
    phi_target = losses.polyak(state.phi_target, phi, cfg.phi_tau)
    return {"phi": phi, "phi_target": phi_target, "phi_opt": phi_opt}, info, phi_s


def _update_policy(
    cfg: Config, state: State, batch: Batch, phi_s: Array, phi_next: Array, key: Array
) -> tuple[dict, Info]:
    z = hilbert.unit(jax.random.normal(key, phi_s.shape))  # fresh for every element at every update
    reward = hilbert.skill_reward(phi_s, phi_next, z)

    sz = networks.join(batch.observation, z)
    sza = jnp.concatenate([sz, batch.action], axis=-1)
    target_q = jnp.min(networks.apply_all(state.critic_target, sza)[..., 0], axis=0)
    value_grad = jax.value_and_grad(losses.expectile_value_loss, has_aux=True)
    (loss_v, v), grad_v = value_grad(state.value, sz, target_q, cfg.expectile)

    # No done mask: a skill has no end.
    next_v = state.value(networks.join(batch.next_observation, z))[..., 0]
    loss_q, grad_q = jax.value_and_grad(losses.critic_loss)(state.critic, sza, reward + cfg.discount * next_v)

    if cfg.extraction == "awr":
        weight = losses.awr_weight(target_q - v, cfg.temperature, cfg.awr_clip)
        loss_a, grad_a = jax.value_and_grad(losses.awr_loss)(state.actor, sz, batch.action, weight)
    else:
        climb = jax.value_and_grad(losses.ddpg_bc_loss)
        loss_a, grad_a = climb(state.actor, state.critic, sz, batch.action, cfg.bc_weight)

    nets = (state.value, state.critic, state.actor)
    updates, policy_opt = optax.adam(cfg.lr).update((grad_v, grad_q, grad_a), state.policy_opt)
    value, critic, actor = optax.apply_updates(nets, updates)
    critic_target = losses.polyak(state.critic_target, critic, cfg.tau)
    part = {
        "value": value,
        "critic": critic,
        "critic_target": critic_target,
        "actor": actor,
        "actor_average": losses.averaged(state.actor_average, actor, cfg.actor_ema, policy_opt[0].count),
        "policy_opt": policy_opt,
    }
    info = {
        "value_loss": loss_v,
        "critic_loss": loss_q,
        "actor_loss": loss_a,
        "skill_reward": jnp.mean(reward),
        "skill_value": jnp.mean(v),
    }
    if cfg.extraction == "awr":
        info["awr_weight"] = jnp.mean(weight)
    return part, info


PRESETS = (
    Preset(
        "laptop",
        {
            **values.LAPTOP_TRUNKS,
            "dim": 8,  # few latent directions are learned sooner than many
            "phi_discount": AUTO,  # 0.97 where the data takes up to some 45 steps across, as the built-in mazes do
            "goal_discount": AUTO,
            "discount": 0.98,
            "phi_tau": 0.02,
            "tau": 0.02,
            "temperature": 3.0,
        },
        steps=8_000,
    ),
    Preset(
        "laptop",
        {
            **values.ANT,
            **values.ANT_AVERAGE,
            "phi_discount": values.ANT_DISCOUNT,
            "goal_discount": values.ANT_DISCOUNT,
            "temperature": 3.0,  # at 10 the skills press against walls, where the data seldom walks
            "bound_targets": True,
            "schedule": "sequential",
            "phi_steps": 60_000,
        },
        steps=values.ANT_LONG_STEPS,
        tasks=values.ANTMAZES,
    ),
    Preset("laptop", steps=values.OGBENCH_STEPS, tasks=(*values.OGBENCH_POINTS, *values.OGBENCH_ARMS)),
    Preset(
        "laptop",
        {"phi_discount": values.OGBENCH_DISCOUNT, "goal_discount": values.OGBENCH_DISCOUNT},
        tasks=values.OGBENCH_ARMS,
    ),
    Preset(
        "paper",
        {"phi_discount": values.OGBENCH_GIANT_DISCOUNT, "goal_discount": values.OGBENCH_GIANT_DISCOUNT},
        tasks=values.OGBENCH_GIANTS,
    ),
    Preset(
        "laptop",
        {
            **values.KITCHEN_ACTOR,
            **values.KITCHEN_AVERAGE,
            "dim": 32,  # as in the paper: many things can be done in any order
            "phi_discount": values.KITCHEN_DISCOUNT,
            "goal_discount": values.KITCHEN_DISCOUNT,
            "discount": values.KITCHEN_DISCOUNT,
            "bound_targets": True,
            "schedule": "sequential",
            "phi_steps": 6_000,
        },
        steps=values.KITCHEN_LAPTOP_STEPS,
        tasks=values.ALL_KITCHENS,
    ),
    Preset("paper", steps=values.KITCHEN_STEPS, tasks=values.ALL_KITCHENS),
    Preset(
        "laptop",
        {**values.LAPTOP_PIXELS, "schedule": "sequential", "phi_steps": 3_000, "policy_sees": "phi"},
        steps=10_000,
        tasks=values.MAZE_PIXELS,
    ),
    Preset(
        "laptop",
        {
            **values.LAPTOP_FILMS,
            "phi_discount": values.OGBENCH_DISCOUNT,
            "goal_discount": values.OGBENCH_DISCOUNT,
            "schedule": "sequential",
            "phi_steps": 5_000,
            "policy_sees": "phi",
        },
        steps=15_000,
        tasks=values.VISUAL_ARMS,
    ),
    Preset(None, {"phi_expectile": 0.7, "expectile": 0.7}, tasks=values.VISUAL_KITCHENS),
    Preset(
        "laptop",
        {**values.LAPTOP_FILMS, "phi_steps": 5_000, "policy_sees": "phi"},
        steps=15_000,
        tasks=values.VISUAL_KITCHENS,
    ),
    Preset("paper", values.PAPER_PICTURES, tasks=values.VISUAL_KITCHENS),
)
