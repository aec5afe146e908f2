"""IQL over learnt features: the paper's goal-conditioned versions of FDM, Lap and Rand.

phi is trained by its learner; skills maximise the reward <x, z> by IQL, as in HILP's Eq. 7. What the paper leaves open,
and our choices: x = phi(s'), the cumulant of these learners in zero-shot RL, of norm sqrt(dim); z is uniform on the
unit sphere, as HILP's, so that rewards have about unit deviation whatever dim is; and the AWR temperature is 1, HILP's
10 divided by about how much more advantages vary here (deviation 0.7 to 1.6 against 0.15, dim 32 on the medium maze).
There is no goal rule: a goal is a reward here.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import actors, features, hilbert, images, losses, networks, sampling, skills, tables
from hilp.learning.configs import Count, Info, NonNegative, Sizes
from hilp.spec import Spec
from hilp.trees import Tree


@dataclass(frozen=True)
class Config(skills.Config):
    """Hyper-parameters; the defaults are the paper's table for goal-conditioned RL, and HILP's where it has none."""

    features: Literal["fdm", "lap", "rand"] = "fdm"  # what phi is trained to be
    dim: Count = 32  # latent dimension D
    phi_hidden: Sizes = (512, 512)  # layers of phi
    extraction: Literal["awr", "ddpg+bc"] = "awr"  # policy from critic: weigh the data's actions, or climb Q near them
    temperature: NonNegative = 1.0  # AWR: larger trusts the critic, smaller imitates the data
    bc_weight: NonNegative = 0.3  # ddpg+bc: larger imitates the data


class State(NamedTuple):
    phi: features.Phi
    value: networks.Trunk
    critic: networks.Ensemble  # of 2
    critic_target: networks.Ensemble
    actor: actors.Density
    phi_opt: optax.OptState
    policy_opt: optax.OptState


class Policy(eqx.Module):
    """What is left after training: phi, pi, and the reward rule."""

    phi: networks.Feature
    actor: actors.Density
    skill_dim: int = eqx.field(static=True)

    def encode(self, observation: Tree) -> Array:
        return features.sphere(self.phi(observation))

    def act(self, observation: Tree, z: Array) -> Array:
        return self.actor.act(observation, z)

    def cumulant(self, observation: Tree, next_observation: Tree) -> Array:
        """Features whose inner product with z is the reward that skill z maximises."""
        return self.encode(next_observation)

    def project(self, z: Array) -> Array:
        return hilbert.unit(z)


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    return sampling.Rows.of_transitions(sampling.transitions(index, key, cfg.batch))


def init(cfg: Config, spec: Spec, key: Array) -> State:
    key_phi, *keys = jax.random.split(key, 4)
    phi = features.init(cfg, spec, key_phi)
    policy = skills.init_policy(cfg, images.layout(cfg, spec) + cfg.dim, spec, keys)
    return State(phi=phi, phi_opt=optax.adam(cfg.lr).init(phi), **policy)


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    """One step of phi and one of the policy, which sees the phi from before."""
    (_, phi_info), grads = jax.value_and_grad(features.loss, has_aux=True)(state.phi, cfg, state.phi, batch)
    phi, phi_opt = losses.adam_step(cfg.lr, grads, state.phi_opt, state.phi)

    x = features.encode(cfg.features, state.phi, batch.next_observation)
    z = skills.draw(key, x.shape)
    reward = jnp.sum(x * z, axis=-1)

    part, info = skills.update_policy(cfg, state, batch, z, reward, key)
    return State(phi=phi, phi_opt=phi_opt, **part), {**phi_info, **info}


def export(cfg: Config, state: State) -> Policy:
    return Policy(state.phi.nets[0], state.actor, cfg.dim)


PRESETS = {
    **tables.GOAL_IMAGES,
    "laptop": {**tables.LAPTOP_TRUNKS, "dim": 32, "phi_hidden": (128, 128), "discount": 0.98, "tau": 0.02},
    "laptop antmaze": {**tables.ANT, **tables.ANT_LONG, "discount": 0.99},
    "laptop all-kitchens": {**tables.KITCHEN_LAPTOP, "discount": tables.KITCHEN_DISCOUNT},
    "paper all-kitchens": tables.KITCHEN_PAPER,
    "paper visual-kitchen": tables.PAPER_IMAGES,
}
