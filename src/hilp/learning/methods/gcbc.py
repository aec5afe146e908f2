"""GC-BC: goal-conditioned behavioural cloning (Ding et al. 2019, Ghosh et al. 2021), a baseline of the paper.

pi(a | s, g) imitates what the data did in s on its way to g, a later state of the same episode. No values, no targets.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import actors, images, losses, networks, sampling, tables
from hilp.learning.configs import AUTO, LATER, ActorConfig, ChunkConfig, Ema, Head, Info, Share, played
from hilp.spec import Spec
from hilp.trees import Tree


@dataclass(frozen=True)
class Config(ActorConfig, ChunkConfig):
    """Hyper-parameters; the defaults are the paper's table for goal-conditioned RL."""

    actor_goal_random: Share = 0.0  # share of the goals drawn from the whole data set; the others lie ahead
    actor_ema: Ema = 1.0  # below 1: the policy kept is a moving average of the actor's weights; not in the paper
    actor: Head = field(default="gaussian", metadata=LATER)  # flow: does not average the ways of the data


class State(NamedTuple):
    actor: actors.Density
    actor_average: actors.Density | tuple[()]  # () at rate 1: the actor itself is kept
    opt: optax.OptState


class Policy(eqx.Module):
    """What is left after training: pi(a | s, g)."""

    actor: actors.Actor
    chunk: int = eqx.field(static=True, default=1)  # actions that it answers at once
    play: int = eqx.field(static=True, default=1)  # of them played before it is asked anew

    @property
    def skill_dim(self) -> int:
        return self.actor.size_in // 2  # the actor takes a state and, of the same size, the skill

    def act(self, observation: Tree, z: Array) -> Array:
        return actors.as_chunk(self.actor.act(observation, z), self.chunk)

    def goal_skill(self, goal: Tree) -> Array:
        """The skill of a goal is the goal."""
        return networks.join(goal)


def of_pairs(rule: Callable[[Array, Array], Array], here: Array, there: Array) -> Array:
    """What a rule of rows says of pairs, a number each; leading axes are broadcast."""
    shape = jnp.broadcast_shapes(here.shape[:-1], there.shape[:-1])
    rows = (jnp.broadcast_to(one, (*shape, one.shape[-1])).reshape(-1, one.shape[-1]) for one in (here, there))
    return rule(*rows).reshape(shape)


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    key_at, key_goal = jax.random.split(key)
    at = sampling.transitions(index, key_at, cfg.batch)
    if cfg.actor_goal_random:
        goal = sampling.hindsight_goals(index, key_goal, at, cfg.actor_goal_random)
    else:
        goal = sampling.uniform_future(index, key_goal, at)
    rows = sampling.Rows({"observations": {"observation": at, "goal": goal}, "actions": {"action": at}})
    return sampling.with_chunks(rows, index, at, cfg.chunk)


def init(cfg: Config, spec: Spec, key: Array) -> State:
    actor = actors.head(spec, 2 * images.layout(cfg, spec), cfg.actor_hidden, key, cfg.actor, cfg.chunk)
    return State(actor, losses.averaged(actor, actor, cfg.actor_ema), optax.adam(cfg.lr).init(actor))


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    sg = networks.join(batch.observation, batch.goal)
    action, real = actors.laid_out(batch)
    loss, grads = jax.value_and_grad(actors.bc_loss)(state.actor, sg, action, key, real)
    actor, opt = losses.adam_step(cfg.lr, grads, state.opt, state.actor)
    average = losses.averaged(state.actor_average, actor, cfg.actor_ema, opt[0].count)
    return State(actor, average, opt), {"actor_loss": loss}


def export(cfg: Config, state: State) -> Policy:
    return Policy(state.actor_average or state.actor, **played(cfg))


PRESETS = {
    **tables.GOAL_IMAGES,
    "laptop": {**tables.LAPTOP_ACTOR, "chunk": AUTO},
    "laptop antmaze": {**tables.ANT_ACTOR, **tables.ANT_AVERAGE},
    "laptop pointmaze+all-arms": tables.OGBENCH_LAPTOP,
    "paper antmaze-large": {"actor_hidden": (256, 256)},
    "laptop visual-kitchen": tables.KITCHEN_ACTOR,
    "laptop kitchen": tables.KITCHEN_FLOW,
    "paper all-kitchens": tables.KITCHEN_PAPER,
    "paper visual": {**tables.PAPER_IMAGES, "steps": 500_000},
}
