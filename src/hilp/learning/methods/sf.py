"""Successor features with TD3 over any features of the table: HILP for zero-shot RL, Lap, FDM, AE, IDM, CL, Rand.

psi(s, a, z) foretells the discounted sum of cumulants x under skill z, so <psi, z> is the value of the reward <x, z>
(paper, section 5.1 and "Zero-Shot RL"). It is called TD3, but there is no target actor and no delayed update, and the
smoothing noise is in the actor's loss too. Hilbert cumulants are phi(s') - E[phi] (`state`) or phi(s') - phi(s)
(`diff`, for goal prompts); all others are phi(s').
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.errors import HilpError
from hilp.learning import actors, features, images, losses, networks, sampling, skills, tables
from hilp.learning.configs import Count, Fraction, Info, NonNegative, Share, SuccessorConfig, TwoSizes, reference_values
from hilp.learning.features import Kind
from hilp.spec import Spec
from hilp.trees import Tree


@dataclass(frozen=True)
class Config(SuccessorConfig):
    """Hyper-parameters; the defaults are the paper's table for zero-shot RL."""

    features: Kind = "hilbert"  # what phi is trained to be
    cumulant: Literal["state", "diff"] = "state"  # hilbert only: centred phi(s'), or phi(s') - phi(s)
    dim: Count = 50  # latent dimension D
    phi_hidden: TwoSizes = (512, 512)  # layers of phi
    phi_lr: NonNegative = 5e-4  # Adam, phi
    phi_discount: Fraction = 0.98  # hilbert only; the paper's Walker has 0.96
    phi_expectile: Fraction = 0.5  # hilbert only; 0.9 for goal prompts (HILP-G)
    phi_tau: Share = 0.005  # hilbert only: EMA of phi's target
    mean_rate: Share = 0.005  # hilbert only: EMA of E[phi]
    goal_discount: Fraction = 0.99  # how far ahead future goals lie
    goal_random: Share = 0.375  # hilbert only: share of goals drawn from the whole data set
    loss: Literal["vector", "q"] = "vector"  # fit psi, or <psi, z> only (the paper's Quadruped and Jaco)
    skill_mix: Share = 0.5  # share of skills that come from features of the data instead of the sphere

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cumulant == "diff" and self.features != "hilbert":
            raise HilpError(f"config key 'cumulant' can be diff for hilbert features only, not for {self.features}")


class State(NamedTuple):
    phi: features.Phi
    phi_target: features.Phi  # moves for hilbert features only; for the others it stays where phi began
    phi_mean: Array  # running mean of phi(s); zero unless cumulants are centred
    psi: networks.SuccessorMap
    psi_target: networks.SuccessorMap
    actor: actors.TanhActor
    phi_opt: optax.OptState
    psi_opt: optax.OptState
    actor_opt: optax.OptState
    image_encoder: images.SharedEncoder  # in front of all networks
    encoder_opt: optax.OptState


class Policy(eqx.Module):
    """What is left after training: phi, pi, and the reward rule."""

    phi: networks.Feature
    phi_mean: Array
    actor: actors.TanhActor
    kind: Kind = eqx.field(static=True)
    difference: bool = eqx.field(static=True)
    skill_dim: int = eqx.field(static=True)
    image_encoder: images.SharedEncoder

    def encode(self, observation: Tree) -> Array:
        return features.scale(self.kind, self.phi(images.encode_observation(self.image_encoder, observation)))

    def act(self, observation: Tree, z: Array) -> Array:
        return self.actor(images.encode_observation(self.image_encoder, observation), z)

    def cumulant(self, observation: Tree, next_observation: Tree) -> Array:
        """Features whose inner product with z is the reward that skill z maximises."""
        return self.encode(next_observation) - (self.encode(observation) if self.difference else self.phi_mean)

    def project(self, z: Array) -> Array:
        """Skills live on the sphere of radius sqrt(dim)."""
        return features.sphere(z)


class HilbertPolicy(Policy):
    """Hilbert features also have a goal rule."""

    discount: float = eqx.field(static=True)  # of distances

    def goal_direction(self, here: Array, there: Array) -> Array:
        """The direction from one latent to another (Eq. 9), on the sphere of skills."""
        return features.sphere(there - here)


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    key_at, key_goal = jax.random.split(key)
    at = sampling.transitions(index, key_at, cfg.batch)
    if cfg.features not in features.WITH_GOALS:
        return sampling.Rows.of_transitions(at)
    p_random = cfg.goal_random if cfg.features == "hilbert" else 0.0
    goal = sampling.hindsight_goals(index, key_goal, at, p_random, cfg.goal_discount)
    return sampling.Rows.of_transitions(at, {"goal": goal}, reached=goal == at)


def init(cfg: Config, spec: Spec, key: Array) -> State:
    key_phi, key_psi, key_actor = jax.random.split(key, 3)
    image_encoder, encoder_opt, spec = images.shared_encoder(cfg, spec, key)
    phi = features.init(cfg, spec, key_phi)
    psi = networks.SuccessorMap(spec, cfg.dim, cfg.preprocess_hidden, cfg.hidden, cfg.dim, key_psi)
    actor = actors.skilled(spec, cfg.dim, cfg.preprocess_hidden, cfg.hidden, key_actor)
    nets = (phi, phi, jnp.zeros((cfg.dim,)), psi, psi, actor)
    opts = (optax.adam(cfg.phi_lr).init(phi), optax.adam(cfg.lr).init(psi), optax.adam(cfg.lr).init(actor))
    return State(*nets, *opts, image_encoder, encoder_opt)


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    """One step of phi, of psi and of the actor, in this order; phi's step is not seen before the next update.

    Of images all three see codes. The losses of phi and psi train the encoder together, the actor's does not.
    """
    key_skill, key_next, key_actor = jax.random.split(key, 3)
    batch, back = images.encode_batch(state.image_encoder, batch)
    (_, phi_info), grads, of_phi = images.value_and_grad_with_codes(
        state.image_encoder, lambda phi, batch: features.loss(phi, cfg, state.phi_target, batch), state.phi, batch
    )
    phi, phi_opt = losses.adam_step(cfg.phi_lr, grads, state.phi_opt, state.phi)

    phi_mean, x = cumulants(cfg, state, batch)
    z = draw_skills(cfg, x, key_skill)

    next_noise = actors.smoothing_noise(key_next, batch.action.shape, cfg.noise, cfg.noise_clip)
    next_action = state.actor.explore(batch.next_observation, z, next_noise)
    next_psi = losses.smaller_head(state.psi_target(batch.next_observation, next_action, z), z)
    target = x + cfg.discount * next_psi  # batch x dim
    (loss_psi, _), grads, of_psi = images.value_and_grad_with_codes(
        state.image_encoder, lambda psi, batch: (psi_loss(psi, cfg, batch, z, target), None), state.psi, batch
    )
    psi, psi_opt = losses.adam_step(cfg.lr, grads, state.psi_opt, state.psi)

    def q(own: Array) -> Array:
        return losses.skill_values(psi(batch.observation, own, z), z)

    noise = actors.smoothing_noise(key_actor, batch.action.shape, cfg.noise, cfg.noise_clip)
    loss_actor, grads = jax.value_and_grad(actors.td3_loss)(
        state.actor, q, batch.observation, z, noise, batch.action, cfg.bc_weight
    )
    actor, actor_opt = losses.adam_step(cfg.lr, grads, state.actor_opt, state.actor)
    codes = (of_phi, of_psi)
    image_encoder, encoder_opt = images.update_encoder(cfg.lr, state.image_encoder, state.encoder_opt, back, *codes)
    phi_target = losses.polyak(state.phi_target, phi, cfg.phi_tau) if cfg.features == "hilbert" else state.phi_target
    psi_target = losses.polyak(state.psi_target, psi, cfg.tau)
    nets, opts = (phi, phi_target, phi_mean, psi, psi_target, actor), (phi_opt, psi_opt, actor_opt)
    info = {"psi_loss": loss_psi, "actor_loss": loss_actor, "skill_reward": jnp.mean(jnp.sum(x * z, axis=-1))}
    return State(*nets, *opts, image_encoder, encoder_opt), {**phi_info, **info}


def export(cfg: Config, state: State) -> Policy:
    nets, difference = (state.phi.nets[0], state.phi_mean, state.actor), cfg.cumulant == "diff"
    parts = (*nets, cfg.features, difference, cfg.dim, state.image_encoder)
    return HilbertPolicy(*parts, cfg.phi_discount) if cfg.features == "hilbert" else Policy(*parts)


def reference(cfg: Config) -> dict[str, object]:
    return reference_values(cfg, hidden=cfg.phi_hidden, lr=cfg.phi_lr)


def cumulants(cfg: Config, state: State, batch: sampling.Batch) -> tuple[Array, Array]:
    """The running mean of phi after this batch, and x(s, s') (batch x dim), for fixed phi."""
    after = features.encode(cfg.features, state.phi, batch.next_observation)
    if cfg.features != "hilbert":
        return state.phi_mean, after
    before = features.encode(cfg.features, state.phi, batch.observation)
    if cfg.cumulant == "diff":
        return state.phi_mean, after - before
    mean = state.phi_mean + cfg.mean_rate * (jnp.mean(before, axis=0) - state.phi_mean)
    return mean, after - mean


def draw_skills(cfg: Config, x: Array, key: Array) -> Array:
    """Fresh skills: uniform on the sphere, or the skill of being where another row of the batch is."""
    moment = x.T @ x / x.shape[0]
    return skills.draw_mixed(key, x.shape, cfg.skill_mix, lambda rows: features.skill_of_feature(x[rows], moment))


def psi_loss(psi: networks.SuccessorMap, cfg: Config, batch: sampling.Batch, z: Array, target: Array) -> Array:
    """Both heads towards x + discount * psi', as vectors or as values <., z>."""
    error = psi(batch.observation, batch.action, z) - target[None]  # heads x batch x dim
    if cfg.loss == "q":
        error = losses.skill_values(error, z)
    return jnp.sum(jnp.mean(jnp.square(error), axis=tuple(range(1, error.ndim))))


PRESETS = {
    **tables.SUCCESSOR_IMAGES,
    "laptop": {**tables.LAPTOP_SUCCESSORS, "dim": 32, "phi_hidden": (128, 128), "phi_lr": 1e-3, "phi_tau": 0.02},
    "both walker": {"phi_discount": 0.96},
    "both quadruped+jaco": {"loss": "q"},
}
