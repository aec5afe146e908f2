"""IQL over learnt features: the paper's goal-conditioned versions of FDM, Lap and Rand.

phi is trained by its learner; skills maximise the reward <x, z> by IQL, as in HILP's Eq. 7. What the paper leaves open,
and our choices: x = phi(s'), the cumulant of these learners in zero-shot RL, of norm sqrt(dim); z is uniform on the
unit sphere, as HILP's, so that rewards have about unit deviation whatever dim is; and the AWR temperature is 1, HILP's
10 divided by about how much more advantages vary here (deviation 0.7 to 1.6 against 0.15, dim 32 on the medium maze).
There is no goal rule: a goal is a reward here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import features, hilbert, images, losses, networks, sampling
from hilp.learning.configs import require
from hilp.learning.contract import Info, Preset
from hilp.learning.methods import preset_values as values
from hilp.learning.sampling import Batch
from hilp.spec import Spec
from hilp.trees import Tree

CRITICS = 2


@dataclass(frozen=True)
class Config:
    """Hyper-parameters; the defaults are the paper's table for goal-conditioned RL, and HILP's where it has none."""

    features: Literal["fdm", "lap", "rand"] = "fdm"  # what phi is trained to be
    dim: int = 32  # latent dimension D
    phi_hidden: tuple[int, int] = (512, 512)  # layers of phi
    hidden: tuple[int, ...] = (512, 512, 512)  # layers of V and Q
    actor_hidden: tuple[int, ...] = (512, 512, 512)  # layers of the policy
    batch: int = 1024  # transitions per update
    lr: float = 3e-4  # Adam, every network
    discount: float = 0.99  # of the skill reward
    expectile: float = 0.9  # of the skill value V(s, z)
    extraction: Literal["awr", "ddpg+bc"] = "awr"  # policy from critic: weigh the data's actions, or climb Q near them
    temperature: float = 1.0  # AWR: larger trusts the critic, smaller imitates the data
    awr_clip: float = 100.0  # AWR weights are cut here
    bc_weight: float = 0.3  # ddpg+bc: larger imitates the data
    tau: float = 0.005  # EMA of the critic's target
    encoder: images.Encoder = "paper"  # of pictures: the paper's, a light one, or none (bytes as numbers)
    augment: images.Augment = "rows"  # random shifts of pictures, in half of the batches
    normalize: bool = False  # shift and scale observations by the data's mean and standard deviation

    def __post_init__(self) -> None:
        require(
            self,
            {
                "at least 1": ("dim", "batch"),
                "sizes of at least 1": ("phi_hidden", "hidden", "actor_hidden"),
                "between 0 and 1": ("discount", "expectile"),
                "from 0 to 1": ("tau",),
                "at least 0": ("lr", "temperature", "bc_weight"),
                "above 0": ("awr_clip",),
            },
        )


class State(NamedTuple):
    """Everything that training changes."""

    phi: features.Phi
    value: networks.Trunk
    critic: networks.Ensemble  # of 2
    critic_target: networks.Ensemble
    actor: networks.GaussianActor
    phi_opt: optax.OptState
    policy_opt: optax.OptState


class Policy(eqx.Module):
    """What is left after training: phi, pi, and the reward rule."""

    phi: networks.Feature
    actor: networks.GaussianActor
    skill_dim: int = eqx.field(static=True)

    def encode(self, observation: Tree) -> Array:
        return features.sphere(self.phi(observation))

    def act(self, observation: Tree, z: Array) -> Array:
        return jnp.clip(self.actor(networks.join(observation, z)), -1.0, 1.0)

    def cumulant(self, observation: Tree, next_observation: Tree) -> Array:
        """Features whose inner product with z is the reward that skill z maximises."""
        return self.encode(next_observation)

    def project(self, z: Array) -> Array:
        """Skills live on the unit sphere."""
        return hilbert.unit(z)


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    return sampling.Rows.of_transitions(sampling.transitions(index, key, cfg.batch))


def init(cfg: Config, spec: Spec, key: Array) -> State:
    key_phi, key_value, key_critic, key_actor = jax.random.split(key, 4)
    settings: Any = cfg  # lacks only what Hilbert features need
    phi = features.init(settings, spec, key_phi)
    size_sz = images.layout(cfg, spec) + cfg.dim
    value = networks.Trunk(size_sz, cfg.hidden, 1, key_value)
    size_sza = size_sz + spec.action_dim
    critic = networks.ensemble(networks.Trunk, CRITICS, size_sza, cfg.hidden, 1, key=key_critic)
    actor = networks.GaussianActor(size_sz, cfg.actor_hidden, spec.action_dim, key_actor)
    adam = optax.adam(cfg.lr)
    return State(
        phi=phi,
        value=value,
        critic=critic,
        critic_target=critic,
        actor=actor,
        phi_opt=adam.init(phi),
        policy_opt=adam.init((value, critic, actor)),
    )


def update(cfg: Config, state: State, batch: Batch, key: Array) -> tuple[State, Info]:
    """One step of phi and one of the policy, which sees the phi from before."""
    adam = optax.adam(cfg.lr)
    settings: Any = cfg  # lacks only what Hilbert features need
    (_, phi_info), grads = jax.value_and_grad(features.loss, has_aux=True)(state.phi, settings, state.phi, batch)
    updates, phi_opt = adam.update(grads, state.phi_opt)
    phi = optax.apply_updates(state.phi, updates)

    x = features.encode(cfg.features, state.phi, batch.next_observation)
    z = hilbert.unit(jax.random.normal(key, x.shape))  # fresh for every element at every update
    reward = jnp.sum(x * z, axis=-1)

    sz = networks.join(batch.observation, z)
    sza = jnp.concatenate([sz, batch.action], axis=-1)
    target_q = jnp.min(networks.apply_all(state.critic_target, sza)[..., 0], axis=0)
    value_grad = jax.value_and_grad(losses.expectile_value_loss, has_aux=True)
    (loss_v, v), grad_v = value_grad(state.value, sz, target_q, cfg.expectile)

    # No done mask: a skill has no end.
    next_v = state.value(networks.join(batch.next_observation, z))[..., 0]
    loss_q, grad_q = jax.value_and_grad(losses.critic_loss)(state.critic, sza, reward + cfg.discount * next_v)
    info = {**phi_info, "value_loss": loss_v, "critic_loss": loss_q, "skill_value": jnp.mean(v)}

    if cfg.extraction == "awr":
        weight = losses.awr_weight(target_q - v, cfg.temperature, cfg.awr_clip)
        loss_a, grad_a = jax.value_and_grad(losses.awr_loss)(state.actor, sz, batch.action, weight)
        info["awr_weight"] = jnp.mean(weight)
    else:
        climb = jax.value_and_grad(losses.ddpg_bc_loss)
        loss_a, grad_a = climb(state.actor, state.critic, sz, batch.action, cfg.bc_weight)

    nets = (state.value, state.critic, state.actor)
    updates, policy_opt = adam.update((grad_v, grad_q, grad_a), state.policy_opt)
    value, critic, actor = optax.apply_updates(nets, updates)
    state = State(
        phi=phi,
        value=value,
        critic=critic,
        critic_target=losses.polyak(state.critic_target, critic, cfg.tau),
        actor=actor,
        phi_opt=phi_opt,
        policy_opt=policy_opt,
    )
    return state, {**info, "actor_loss": loss_a, "skill_reward": jnp.mean(reward)}


def export(cfg: Config, state: State) -> Policy:
    return Policy(state.phi.nets[0], state.actor, cfg.dim)


PRESETS = (
    Preset(
        "laptop",
        {
            **values.LAPTOP_TRUNKS,
            "dim": 32,
            "phi_hidden": (128, 128),
            "discount": 0.98,
            "tau": 0.02,
        },
        steps=8_000,
    ),
    Preset("laptop", {**values.ANT, "discount": 0.99}, steps=values.ANT_LONG_STEPS, tasks=values.ANTMAZES),
    Preset(
        "laptop",
        {**values.KITCHEN_ACTOR, "discount": values.KITCHEN_DISCOUNT},
        steps=values.KITCHEN_LAPTOP_STEPS,
        tasks=values.ALL_KITCHENS,
    ),
    Preset("paper", steps=values.KITCHEN_STEPS, tasks=values.ALL_KITCHENS),
    Preset("laptop", values.LAPTOP_PIXELS, tasks=values.MAZE_PIXELS),
    Preset("laptop", values.LAPTOP_FILMS, tasks=values.VISUAL),
    Preset("paper", values.PAPER_PICTURES, tasks=values.VISUAL_KITCHENS),
)
