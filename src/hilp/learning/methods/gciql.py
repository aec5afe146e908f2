"""GC-IQL: goal-conditioned IQL with values of states only, a baseline of the paper (Kostrikov 2022, Park 2023).

V(s, g) is learnt with the loss that trains phi (Eq. 6), and the advantage of an action is how much nearer it brings the
goal, V(s', g) - V(s, g). OGBench calls it GCIVL; the one with critics of actions is `gc-iql-q`. The paper gives no
expectile and no temperature: ours are those that the code it builds on has for AntMaze-large (0.7 and 1 for
AntMaze-ultra and Kitchen).
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import actors, hilbert, images, losses, networks, sampling, tables
from hilp.learning.configs import (
    AUTO,
    LATER,
    ChunkConfig,
    Ema,
    Fraction,
    GoalShare,
    Head,
    Info,
    NonNegative,
    Positive,
    Share,
    TrunkConfig,
    played,
)
from hilp.learning.methods import gcbc
from hilp.spec import Spec
from hilp.trees import Tree


@dataclass(frozen=True)
class ValueConfig(TrunkConfig):
    """Hyper-parameters of a value of goals and of an actor; the defaults are the paper's table."""

    discount: Fraction = 0.99  # sets the longest distance V can tell apart, about 1 / (1 - discount) steps
    expectile: Fraction = 0.9  # nearer 1: values of the best path in the data, not of the usual one
    tau: Share = 0.005  # EMA of V's target
    goal_discount: Fraction = 0.99  # how far ahead future goals of the value lie
    p_current_goal: GoalShare = 0.2  # share of the value's goals that are the state itself: V(s, s) = 0 must be learnt
    goal_random: GoalShare = 0.3  # share of the value's goals drawn from the whole data set
    actor_goal_random: Share = 0.3  # share of the actor's goals drawn from the whole data set; the others lie ahead
    temperature: NonNegative = 3.0  # AWR: larger trusts the values, smaller imitates the data
    awr_clip: Positive = 100.0  # AWR weights are cut here
    actor_ema: Ema = 1.0  # below 1: the policy kept is a moving average of the actor's weights; not in the paper
    actor: Head = field(default="gaussian", metadata=LATER)  # flow: does not average the ways of the data


@dataclass(frozen=True)
class Config(ValueConfig, ChunkConfig):
    """Hyper-parameters; the defaults are the paper's table for goal-conditioned RL."""


class State(NamedTuple):
    value: networks.Ensemble  # of 2
    value_target: networks.Ensemble
    actor: actors.Density
    actor_average: actors.Density | tuple[()]  # () at rate 1: the actor itself is kept
    opt: optax.OptState


class Policy(gcbc.Policy):
    """What is left after training: pi(a | s, g), and V(s, g), which says how far a goal is."""

    value: networks.Trunk = eqx.field(kw_only=True)
    discount: float = eqx.field(static=True, kw_only=True)

    def steps(self, here: Array, there: Array) -> Array:
        """Steps from one state to another, both as the skills of goals; leading axes are broadcast."""
        v = gcbc.of_pairs(lambda *sg: self.value(networks.join(*sg)), here, there)
        return hilbert.steps_of_value(v, self.discount)


def sample(cfg: ValueConfig, index: sampling.Index, key: Array) -> sampling.Rows:
    """Transitions with two goals each: one to learn the value from, one for the actor."""
    key_at, key_goal, key_actor = jax.random.split(key, 3)
    at = sampling.transitions(index, key_at, cfg.batch)
    goal = sampling.hindsight_goals(index, key_goal, at, cfg.goal_random, cfg.goal_discount, cfg.p_current_goal)
    actor_goal = sampling.hindsight_goals(index, key_actor, at, cfg.actor_goal_random)
    seen = {"goal": goal, "actor_goal": actor_goal}
    chunk = getattr(cfg, "chunk", 1)  # gc-iql-q, which samples as this does, has none
    if chunk > 1:  # V learns step by step; only the actor looks over a chunk, as far as its goal
        seen["after_chunk"] = sampling.n_step_rows(index, at, actor_goal, chunk)
    rows = sampling.Rows.of_transitions(at, seen, reached=goal == at)
    return sampling.with_chunks(rows, index, at, chunk)


def init(cfg: Config, spec: Spec, key: Array) -> State:
    key_value, _, key_actor = jax.random.split(key, 3)  # the second is the critics' in gc-iql-q
    size_sg = 2 * images.layout(cfg, spec)
    value = networks.ensemble(networks.Trunk, size_sg, cfg.hidden, 1, key=key_value)
    actor = actors.head(spec, size_sg, cfg.actor_hidden, key_actor, cfg.actor, cfg.chunk)
    average = losses.averaged(actor, actor, cfg.actor_ema)
    return State(value, value, actor, average, optax.adam(cfg.lr).init((value, actor)))


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    """One step of V and of the actor, both from the same state."""
    (loss_v, v), grad_v = jax.value_and_grad(value_loss, has_aux=True)(state.value, cfg, state.value_target, batch)

    lived = batch.replace(next_observation=batch.after_chunk) if cfg.chunk > 1 else batch
    before, after = jnp.split(jnp.mean(before_and_after(state.value, lived, batch.actor_goal), axis=0), 2)
    advantage = after - before
    action, real = actors.laid_out(batch)
    sg = networks.join(batch.observation, batch.actor_goal)
    actor_grad = jax.value_and_grad(actors.awr_loss, has_aux=True)
    weights = (advantage, cfg.temperature, cfg.awr_clip)
    (loss_a, weight), grad_a = actor_grad(state.actor, sg, action, *weights, key, real)

    (value, actor), opt = losses.adam_step(cfg.lr, (grad_v, grad_a), state.opt, (state.value, state.actor))
    value_target = losses.polyak(state.value_target, value, cfg.tau)
    average = losses.averaged(state.actor_average, actor, cfg.actor_ema, opt[0].count)
    info = {"value_loss": loss_v, "value": v, "awr_weight": weight, "actor_loss": loss_a}
    return State(value, value_target, actor, average, opt), {**info, "advantage": jnp.mean(advantage)}


def export(cfg: Config, state: State) -> Policy:
    return Policy(state.actor_average or state.actor, **played(cfg), value=state.value[0], discount=cfg.discount)


def before_and_after(value: networks.Ensemble, batch: sampling.Batch, goal: Tree) -> Array:
    """V(s, g) and then V(s', g) of each network: ensemble x 2 batch."""
    both = networks.stacked(batch.observation, batch.next_observation)
    return networks.apply_all(value, networks.join(both, networks.stacked(goal, goal)))[..., 0]


def value_loss(
    value: networks.Ensemble, cfg: Any, target: networks.Ensemble, batch: sampling.Batch, bounds: Array | None = None
) -> tuple[Array, Array]:
    """Eq. 6 with V(s, g) in the place of -|phi(s) - phi(g)|; also returns the mean of V."""
    v = networks.apply_all(value, networks.join(batch.observation, batch.goal))[..., 0]  # ensemble x batch
    old_v, old_next_v = jnp.split(before_and_after(target, batch, batch.goal), 2, axis=1)
    loss = hilbert.representation_loss(v, old_v, old_next_v, batch.reached, cfg.discount, cfg.expectile, None, bounds)
    return loss, jnp.mean(v)


PRESETS = {
    **tables.RIVALS,
    "laptop": {**tables.LAPTOP_TRUNKS, **tables.horizon(0.97), "tau": 0.02, "chunk": AUTO},  # 0.97 as phi of hilp
    "laptop antmaze": {**tables.ANT, **tables.ANT_AVERAGE, **tables.ANT_GOAL_VALUES},
    "laptop pointmaze-not-giant+all-arms": tables.horizon(tables.OGBENCH_DISCOUNT),
    "both giant": tables.horizon(tables.OGBENCH_GIANT_DISCOUNT),
    "paper antmaze-large": {"actor_hidden": (256, 256)},
    "both antmaze-ultra+all-kitchens": {"expectile": 0.7, "temperature": 1.0},
    "laptop all-kitchens": tables.horizon(tables.KITCHEN_DISCOUNT),
    "laptop visual-kitchen": tables.KITCHEN_ACTOR,
    "laptop kitchen": tables.KITCHEN_FLOW,
    # OGBench's values; networks stay ours, its actors have GELU and a deviation of one.
    "both ogbench": {"temperature": 10.0},
    "both navigate": {"actor_goal_random": 0.0},
}
