"""HILP, "Foundation Policies with Hilbert Representations" (ICML 2024): Eq. 6 for phi, Eq. 7 (IQL + AWR) for pi.

Deviations from the authors' code: skills are drawn afresh at every update (theirs stayed frozen by accident), and
goals can be an episode's true final state.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp import trees
from hilp.errors import HilpError
from hilp.learning import actors, configs, hilbert, images, losses, networks, sampling, skills, tables
from hilp.learning.configs import (
    AUTO,
    LATER,
    AutoFraction,
    AutoSwitch,
    ChunkConfig,
    Count,
    Ema,
    Fraction,
    Info,
    NonNegative,
    Share,
    Stage,
)
from hilp.spec import Spec
from hilp.trees import Tree


@dataclass(frozen=True)
class PhiConfig(skills.Config):
    """Hyper-parameters of phi, and of the policy on top of it; the defaults are the paper's table."""

    phi_discount: AutoFraction = 0.99  # sets the longest distance phi can tell apart, about 1 / (1 - discount) steps
    phi_expectile: Fraction = 0.95  # nearer 1: distances of the best path in the data, not of the usual one
    phi_tau: Share = 0.005  # EMA of phi's target
    goal_discount: AutoFraction = 0.99  # how far ahead future goals lie
    goal_random: Share = 0.375  # share of goals drawn from the whole data set
    bound_targets: bool = False  # targets of phi never say farther than the trajectory itself took; not in the paper
    # Share of skills that lead to the goal of their row; the others, in the paper all, are uniform.
    lived: Share = field(default=0.0, metadata=LATER)
    # Where chance makes long steps, as teleports do, trajectories end before them: nothing is learned from luck.
    cut_leaps: AutoSwitch = field(default=False, metadata=LATER)
    actor_ema: Ema = 1.0  # below 1: the policy kept is a moving average of the actor's weights; not in the paper


@dataclass(frozen=True)
class Config(PhiConfig, ChunkConfig):
    """Hyper-parameters; the defaults are the paper's table for goal-conditioned RL."""

    dim: Count = 32  # latent dimension D
    schedule: Literal["joint", "sequential"] = "joint"  # sequential: first phi, then the policy (Algorithm 1)
    phi_steps: Count = 500_000  # sequential: updates of phi before the policy starts
    extraction: Literal["awr", "ddpg+bc"] = "awr"  # policy from critic: weigh the data's actions, or climb Q near them
    bc_weight: NonNegative = 0.3  # ddpg+bc: larger imitates the data
    n_step: Count = 1  # steps of the trajectory that targets of phi look over; not in the paper
    policy_sees: Literal["observations", "phi"] = "observations"  # sequential: phi is the last layer of the frozen phi

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.policy_sees == "phi" and self.schedule != "sequential":
            needs = "a sequential schedule only: phi must be trained first"
            raise HilpError(f"config key 'policy_sees' can be phi for {needs}")


class State(NamedTuple):
    phi: networks.Ensemble  # of 2
    phi_target: networks.Ensemble
    value: networks.Trunk
    critic: networks.Ensemble  # of 2
    critic_target: networks.Ensemble
    actor: actors.Density
    actor_average: actors.Density | tuple[()]  # () at rate 1: the actor itself is kept
    phi_opt: optax.OptState
    policy_opt: optax.OptState


class Policy(eqx.Module):
    """What is left after training: phi, pi, and the rules that turn tasks into skills."""

    phi: networks.Trunk
    actor: actors.Density
    skill_dim: int = eqx.field(static=True)
    through_phi: bool = eqx.field(static=True)  # whether the actor sees what phi makes of a state
    discount: float = eqx.field(static=True)  # of distances: phi tells them apart up to about 1 / (1 - discount) steps
    chunk: int = eqx.field(static=True, default=1)  # actions that it answers at once
    play: int = eqx.field(static=True, default=1)  # of them played before it is asked anew

    def encode(self, observation: Tree) -> Array:
        return self.phi(observation)

    def act(self, observation: Tree, z: Array) -> Array:
        seen = self.phi.features(observation) if self.through_phi else observation
        return actors.as_chunk(self.actor.act(seen, z), self.chunk)

    def goal_direction(self, here: Array, there: Array) -> Array:
        """Goal rule: the unit direction from one latent to another (Eq. 9)."""
        return hilbert.unit(there - here)

    def cumulant(self, observation: Tree, next_observation: Tree) -> Array:
        """Features whose inner product with z is the reward that skill z maximises."""
        return self.encode(next_observation) - self.encode(observation)

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
    goal = sampling.hindsight_goals(index, key_goal, at, cfg.goal_random, cfg.goal_discount)
    seen, extras = {"goal": goal}, {"reached": goal == at}
    if cfg.bound_targets:
        extras["steps_to_goal"] = sampling.steps_to_goal(index, at, goal)
    if cfg.n_step > 1:
        seen["n_step_observation"] = sampling.n_step_rows(index, at, goal, cfg.n_step)
        extras["n_steps"] = seen["n_step_observation"] - at
    if cfg.chunk > 1 and cfg.schedule == "joint":
        seen["segment"] = sampling.segments_from(index, at, cfg.chunk)[0]
    return sampling.with_chunks(sampling.Rows.of_transitions(at, seen, **extras), index, at, cfg.chunk)


def sample_policy(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    """Transitions with the latents of a phi that is trained already; goals are for skills that lead to them."""
    key_at, key_goal = jax.random.split(key)
    at = sampling.transitions(index, key_at, cfg.batch)
    segment = sampling.segments_from(index, at, cfg.chunk)[0]
    rows = sampling.Rows.of_transitions(at, {"next_observation": segment[:, -1]})
    rows = sampling.with_chunks(rows, index, at, cfg.chunk)
    latents = {"latent": at, "next_latent": at + 1} if cfg.chunk == 1 else {"latent": at, "latents": segment}
    if cfg.lived:
        latents["goal_latent"] = sampling.hindsight_goals(index, key_goal, at, cfg.goal_random, cfg.goal_discount)
    columns = {**rows.columns, "latents": latents}
    if cfg.policy_sees == "phi":
        columns["views"] = columns.pop("observations")  # under the same names, so that no image is encoded again
    return rows._replace(columns=columns)


def init(cfg: Config, spec: Spec, key: Array) -> State:
    key_phi, *keys = jax.random.split(key, 4)
    seen = images.layout(cfg, spec)
    phi = networks.ensemble(networks.Trunk, seen, cfg.hidden, cfg.dim, key=key_phi)
    size_sz = (cfg.hidden[-1] if cfg.policy_sees == "phi" else seen) + cfg.dim
    policy = skills.init_policy(cfg, size_sz, spec, keys, cfg.chunk)
    average = losses.averaged(policy["actor"], policy["actor"], cfg.actor_ema)
    return State(phi=phi, phi_target=phi, phi_opt=optax.adam(cfg.lr).init(phi), actor_average=average, **policy)


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    """`joint`: one update of phi and one of the policy, which sees the phi from before."""
    if cfg.chunk == 1:
        seen = {"next_latent": state.phi[0](batch.next_observation)}
    else:
        behind = trees.over(lambda part: part[:, -1], batch.segment)
        seen = {"latents": networks.of_segments(state.phi[0], batch.segment), "next_observation": behind}
    state, phi_info, found = _update_phi(cfg, state, batch)
    latent, goal_latent = jnp.split(jax.lax.stop_gradient(found), 2)
    batch = batch.replace(latent=latent, goal_latent=goal_latent, **seen)
    state, policy_info = update_policy(cfg, state, batch, key)
    return state, {**phi_info, **policy_info}


def update_phi(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    """`sequential`, first stage."""
    return _update_phi(cfg, state, batch)[:2]


def update_policy(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    """`sequential`, second stage: phi stays as it is."""
    there = batch.goal_latent if cfg.lived else 0.0
    z = skills.draw_lived(key, there - batch.latent, cfg.lived)
    if cfg.chunk == 1:
        reward, carry = hilbert.skill_reward(batch.latent, batch.next_latent, z), None
    else:  # what the steps of a chunk earn, batch x chunk: a skill has no end, an episode has
        rewards = hilbert.skill_reward(batch.latents[:, :-1], batch.latents[:, 1:], z[:, None])
        reward, carry = losses.semi_mdp(rewards, jnp.zeros_like(rewards), batch.chunk_steps, cfg.discount)
    part, info = skills.update_policy(cfg, state, batch, z, reward, key, carry)
    average = losses.averaged(state.actor_average, part["actor"], cfg.actor_ema, part["policy_opt"][0].count)
    return state._replace(**part, actor_average=average), info


def stages(cfg: Config) -> tuple[Stage, ...]:
    if cfg.schedule == "joint":
        return (Stage(sample, update),)
    through = {"views": views} if cfg.policy_sees == "phi" else {}
    of_policy = Stage(sample_policy, update_policy, columns={"latents": latents} | through)
    return Stage(sample, update_phi, until=cfg.phi_steps), of_policy


def latents(cfg: Config, state: State, observation: Tree) -> Array:
    """phi(s), computed once for each row of the data: batch x dim."""
    return state.phi[0](observation)


def views(cfg: Config, state: State, observation: Tree) -> Array:
    """What a policy that sees through phi sees, computed once for each row of the data: batch x hidden."""
    return state.phi[0].features(observation)


def export(cfg: Config, state: State) -> Policy:
    actor = state.actor_average or state.actor
    return Policy(state.phi[0], actor, cfg.dim, cfg.policy_sees == "phi", cfg.phi_discount, **configs.played(cfg))


def reference(cfg: PhiConfig) -> dict[str, object]:
    return configs.reference_values(cfg, "hidden", "lr", "bound_targets", "augment")


def phi_loss(
    phi: networks.Ensemble,
    cfg: PhiConfig,
    target: networks.Ensemble,
    batch: sampling.Batch,
    value: Callable[[Array, Array], Array] = hilbert.value,
) -> tuple[Array, tuple[Info, Array]]:
    """Eq. 6, and phi of states and goals (2 batch x dim) by the first network, so that it is computed once."""
    count = batch.reached.shape[0]
    online = networks.apply_all(phi, networks.stacked(batch.observation, batch.goal))  # ensemble x 2 batch x dim
    n_steps = batch.n_steps if "n_steps" in batch else None
    steps_to_goal = batch.steps_to_goal if cfg.bound_targets else None
    following = batch.next_observation if n_steps is None else batch.n_step_observation
    old = networks.apply_all(target, networks.stacked(batch.observation, batch.goal, following))
    goal = old[:, count : 2 * count]
    v = value(online[:, :count], online[:, count:])  # ensemble x batch
    target_v, target_next_v = value(old[:, :count], goal), value(old[:, 2 * count :], goal)
    loss = hilbert.representation_loss(
        v, target_v, target_next_v, batch.reached, cfg.phi_discount, cfg.phi_expectile, n_steps, steps_to_goal
    )
    return loss, ({"phi_loss": loss, "distance": -jnp.mean(v)}, online[0])


def _update_phi(cfg: Config, state: State, batch: sampling.Batch) -> tuple[State, Info, Array]:
    (_, (info, latents)), grads = jax.value_and_grad(phi_loss, has_aux=True)(state.phi, cfg, state.phi_target, batch)
    phi, phi_opt = losses.adam_step(cfg.lr, grads, state.phi_opt, state.phi)
    phi_target = losses.polyak(state.phi_target, phi, cfg.phi_tau)
    return state._replace(phi=phi, phi_target=phi_target, phi_opt=phi_opt), info, latents


SEEN_THROUGH_PHI = {"schedule": "sequential", "policy_sees": "phi"}
PRESETS = {
    "laptop": {
        **tables.LAPTOP_TRUNKS,
        "chunk": AUTO,
        "dim": 8,  # few latent directions are learned sooner than many
        **tables.phi_horizon(AUTO),  # 0.97 where the data takes up to some 45 steps across, as the built-in mazes do
        "discount": 0.98,
        "phi_tau": 0.02,
        "tau": 0.02,
        "temperature": 3.0,
        "cut_leaps": AUTO,
        "lived": 1.0,  # skills that were lived say more about the data's actions than uniform ones
    },
    "laptop antmaze": {
        **tables.ANT,
        **tables.ANT_AVERAGE,
        **tables.ANT_LONG,
        **tables.phi_horizon(tables.ANT_DISCOUNT),
        "temperature": 3.0,  # at 10 the skills press against walls, where the data seldom walks
        "bound_targets": True,
        "schedule": "sequential",
        "phi_steps": 60_000,
    },
    "laptop pointmaze+arm+noisy-arm": tables.OGBENCH_LAPTOP,
    "laptop all-arms": tables.phi_horizon(tables.OGBENCH_DISCOUNT),
    "paper giant": tables.phi_horizon(tables.OGBENCH_GIANT_DISCOUNT),
    "laptop all-kitchens": {
        "actor_hidden": (256, 256, 256),
        "normalize": False,
        **tables.KITCHEN_AVERAGE,
        "dim": 32,  # as in the paper: many things can be done in any order
        **tables.phi_horizon(tables.KITCHEN_DISCOUNT),
        "discount": tables.KITCHEN_DISCOUNT,
        "bound_targets": True,
        "schedule": "sequential",
    },
    "laptop kitchen": {"phi_steps": 6_000, "steps": 20_000},
    "paper all-kitchens": tables.KITCHEN_PAPER,
    "both visual-kitchen": {"phi_expectile": 0.7, "expectile": 0.7},
    "paper visual-kitchen": tables.PAPER_IMAGES,
    "laptop maze-pixels": {**tables.LAPTOP_PIXELS, **SEEN_THROUGH_PHI, "phi_steps": 3_000, "steps": 10_000},
    "laptop visual": {**tables.LAPTOP_FILMS, **SEEN_THROUGH_PHI, "phi_steps": 5_000, "steps": 15_000},
}

# Of the skills under a high level. One that is held cannot be put right at every step: the last update of an actor may
# have lost a corner for good.
SKILL_PRESETS = {
    **PRESETS,
    "laptop": {**PRESETS["laptop"], "chunk": 1, "actor_ema": 2e-3},
    "paper kitchen": {"phi_expectile": 0.7},  # of the paper's table of hierarchies only
}
