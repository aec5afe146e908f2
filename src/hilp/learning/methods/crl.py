"""CRL: contrastive RL (Eysenbach et al. 2022), as OGBench runs it. Not in the paper.

Two critics phi(s, a) . psi(g) learn to tell the states that lie ahead of (s, a) from those ahead of others: the larger,
the likelier g is reached. Values of where the data goes, not of the best way there, so it stitches nothing. The policy
is extracted by DDPG+BC.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import actors, images, losses, networks, sampling, tables
from hilp.learning.configs import Count, Ema, Fraction, Info, NonNegative, Share, TrunkConfig
from hilp.learning.methods import gcbc
from hilp.spec import Spec


@dataclass(frozen=True)
class Config(TrunkConfig):
    """Hyper-parameters; the defaults are OGBench's for ant mazes."""

    latent: Count = 512  # numbers that phi and psi give
    goal_discount: Fraction = 0.99  # how far ahead the critics' goals lie
    actor_goal_random: Share = 0.0  # share of the actor's goals drawn from the whole data set; the others lie ahead
    bc_weight: NonNegative = 0.1  # larger imitates the data
    actor_ema: Ema = 1.0  # below 1: the policy kept is a moving average of the actor's weights; not in OGBench


class State(NamedTuple):
    phi: networks.Ensemble  # of 2, of (s, a)
    psi: networks.Ensemble  # of 2, of g
    actor: actors.Density
    actor_average: actors.Density | tuple[()]  # () at rate 1: the actor itself is kept
    opt: optax.OptState


class Policy(gcbc.Policy):
    """What is left after training: pi(a | s, g), and the critics, which say how far a goal is."""

    phi: networks.Trunk = eqx.field(kw_only=True)
    psi: networks.Trunk = eqx.field(kw_only=True)
    discount: float = eqx.field(static=True, kw_only=True)

    def steps(self, here: Array, there: Array) -> Array:
        """Steps from one state to another, both as the skills of goals, as far as the critics tell.

        Logits are log p(g | s, a) - log p(g). Against that of being there already, what only depends on g goes out, and
        what is left falls by log(1 / discount) a step (Myers et al. 2024). Leading axes are broadcast.
        """
        away = self._logits(there, there) - self._logits(here, there)
        return jax.nn.relu(away) / -math.log(self.discount)

    def _logits(self, here: Array, there: Array) -> Array:
        """Of the action that leads there."""
        size, psi = here.shape[-1], self.psi(there.reshape(-1, there.shape[-1]))
        both = jnp.concatenate([there, psi.reshape(*there.shape[:-1], -1)], axis=-1)  # psi once for each goal

        def of_rows(state: Array, aim: Array) -> Array:
            goal, psi = jnp.split(aim, [size], axis=-1)

            def of(action: Array) -> Array:
                return jnp.sum(self.phi(networks.join(state, action)) * psi, axis=-1) / math.sqrt(psi.shape[-1])

            return self.actor.expected(of, networks.join(state, goal))

        return gcbc.of_pairs(of_rows, here, both)


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    """Transitions with two goals each: a later state, for the critics, and one for the actor."""
    key_at, key_goal, key_actor = jax.random.split(key, 3)
    at = sampling.transitions(index, key_at, cfg.batch)
    goal = sampling.geometric_future(index, key_goal, at, cfg.goal_discount)
    actor_goal = sampling.hindsight_goals(index, key_actor, at, cfg.actor_goal_random)
    seen = {"observation": at, "goal": goal, "actor_goal": actor_goal}
    return sampling.Rows({"observations": seen, "actions": {"action": at}})


def init(cfg: Config, spec: Spec, key: Array) -> State:
    key_phi, key_psi, key_actor = jax.random.split(key, 3)
    seen = images.layout(cfg, spec)
    phi = networks.ensemble(networks.Trunk, seen + spec.action_dim, cfg.hidden, cfg.latent, key=key_phi)
    psi = networks.ensemble(networks.Trunk, seen, cfg.hidden, cfg.latent, key=key_psi)
    actor = actors.head(spec, 2 * seen, cfg.actor_hidden, key_actor, "unit")
    average = losses.averaged(actor, actor, cfg.actor_ema)
    return State(phi, psi, actor, average, optax.adam(cfg.lr).init((phi, psi, actor)))


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    """One step of the critics and of the actor, both from the same state."""
    critic = (state.phi, state.psi)
    (loss_q, right), grad_q = jax.value_and_grad(critic_loss, has_aux=True)(critic, batch)
    (loss_a, q), grad_a = jax.value_and_grad(actor_loss, has_aux=True)(state.actor, critic, batch, cfg.bc_weight)

    (phi, psi, actor), opt = losses.adam_step(cfg.lr, (*grad_q, grad_a), state.opt, (*critic, state.actor))
    average = losses.averaged(state.actor_average, actor, cfg.actor_ema, opt[0].count)
    info = {"critic_loss": loss_q, "right_pairs": right, "actor_loss": loss_a, "q": q}
    return State(phi, psi, actor, average, opt), info


def export(cfg: Config, state: State) -> Policy:
    actor = state.actor_average or state.actor
    return Policy(actor, phi=state.phi[0], psi=state.psi[0], discount=cfg.goal_discount)


Critic = tuple[networks.Ensemble, networks.Ensemble]  # phi and psi


def critic_loss(critic: Critic, batch: sampling.Batch) -> tuple[Array, Array]:
    """Which of the batch's goals lies ahead of which (s, a); also returns how often the right one scores highest."""
    phi = networks.apply_all(critic[0], networks.join(batch.observation, batch.action))
    psi = networks.apply_all(critic[1], batch.goal)
    products = jnp.stack([own @ goals.T for own, goals in zip(phi, psi, strict=True)])  # critics x pairs x goals
    logits = products / math.sqrt(phi.shape[-1])
    right = jnp.argmax(logits, axis=-1) == jnp.arange(logits.shape[-1])
    return losses.binary_contrastive(logits), jnp.mean(right)


def actor_loss(actor: actors.Density, critic: Critic, batch: sampling.Batch, weight: float) -> tuple[Array, Array]:
    """DDPG+BC on the smaller critic; also returns its mean."""

    def smaller(own: Array) -> Array:
        phi = networks.apply_all(critic[0], networks.join(batch.observation, own))
        psi = networks.apply_all(critic[1], batch.actor_goal)
        return jnp.min(jnp.sum(phi * psi, axis=-1), axis=0) / math.sqrt(phi.shape[-1])

    sg = networks.join(batch.observation, batch.actor_goal)
    return actors.ddpg_bc_loss(actor, smaller, sg, batch.action, weight)


PRESETS = {
    **tables.RIVALS,
    "laptop": {**tables.LAPTOP_TRUNKS, "latent": 128, "goal_discount": 0.97},
    "both maze+pointmaze": {"bc_weight": 0.03},
    "both arm+visual-arm+all-kitchens": {"bc_weight": 3.0},
    "both antmaze-explore": {"bc_weight": 0.003},
    "both noisy-arm+visual-noisy-arm": {"bc_weight": 0.1},
    "laptop pointmaze-not-giant+all-arms+all-kitchens": {"goal_discount": tables.OGBENCH_DISCOUNT},
    "both giant": {"goal_discount": tables.OGBENCH_GIANT_DISCOUNT},
    "laptop antmaze": {**tables.ANT, **tables.ANT_AVERAGE, "goal_discount": tables.ANT_DISCOUNT},
}
