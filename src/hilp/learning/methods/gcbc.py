"""GC-BC: goal-conditioned behavioural cloning (Ding et al. 2019, Ghosh et al. 2021), a baseline of the paper.

pi(a | s, g) imitates what the data did in s on its way to g, a later state of the same episode. No values, no targets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import images, losses, networks, sampling
from hilp.learning.configs import BaseConfig, Count, Ema, NonNegative, Share, Sizes
from hilp.learning.contract import Info
from hilp.learning.methods import preset_values as values
from hilp.learning.sampling import Batch
from hilp.spec import Spec
from hilp.trees import Tree


@dataclass(frozen=True)
class Config(BaseConfig):
    """Hyper-parameters; the defaults are the paper's table for goal-conditioned RL."""

    actor_hidden: Sizes = (512, 512, 512)  # layers of the policy; the paper has (256, 256) on AntMaze-large
    batch: Count = 1024  # transitions per update
    lr: NonNegative = 3e-4  # Adam
    actor_goal_random: Share = 0.0  # share of the goals drawn from the whole data set; the others lie ahead
    actor_ema: Ema = 1.0  # below 1: the policy kept is a moving average of the actor's weights; not in the paper


class State(NamedTuple):
    """Everything that training changes."""

    actor: networks.GaussianActor
    actor_average: networks.GaussianActor | tuple[()]  # () at rate 1: the actor itself is kept
    opt: optax.OptState


class Policy(eqx.Module):
    """What is left after training: pi(a | s, g)."""

    actor: networks.Actor

    @property
    def skill_dim(self) -> int:
        return self.actor.size_in // 2  # the actor takes a state and, of the same size, the skill

    def act(self, observation: Tree, z: Array) -> Array:
        return jnp.clip(self.actor(networks.join(observation, z)), -1.0, 1.0)

    def goal_skill(self, goal: Tree) -> Array:
        """The skill of a goal is the goal."""
        return networks.join(goal)


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    key_at, key_goal = jax.random.split(key)
    at = sampling.transitions(index, key_at, cfg.batch)
    if cfg.actor_goal_random:
        goal = sampling.actor_goals(index, key_goal, at, cfg.actor_goal_random)
    else:
        goal = sampling.uniform_future(index, key_goal, at)
    return sampling.Rows({"observations": {"observation": at, "goal": goal}, "actions": {"action": at}})


def init(cfg: Config, spec: Spec, key: Array) -> State:
    actor = networks.GaussianActor(2 * images.layout(cfg, spec), cfg.actor_hidden, spec.action_dim, key)
    return State(actor, losses.averaged(actor, actor, cfg.actor_ema), optax.adam(cfg.lr).init(actor))


def update(cfg: Config, state: State, batch: Batch, key: Array) -> tuple[State, Info]:
    loss, grads = jax.value_and_grad(actor_loss)(state.actor, batch)
    actor, opt = losses.adam_step(cfg.lr, grads, state.opt, state.actor)
    average = losses.averaged(state.actor_average, actor, cfg.actor_ema, opt[0].count)
    return State(actor, average, opt), {"actor_loss": loss}


def export(cfg: Config, state: State) -> Policy:
    return Policy(state.actor_average or state.actor)


def actor_loss(actor: networks.GaussianActor, batch: Batch) -> Array:
    """-E[log pi(a | s, g)]."""
    sg = networks.join(batch.observation, networks.join(batch.goal))
    return -jnp.mean(actor.log_prob(sg, batch.action))


PRESETS = {
    **values.GOAL_IMAGES,
    "laptop": values.LAPTOP_ACTOR,
    "laptop antmaze": {**values.ANT_ACTOR, **values.ANT_AVERAGE},
    "laptop pointmaze+all-arms": values.OGBENCH_LAPTOP,
    "paper antmaze-large": {"actor_hidden": (256, 256)},
    "laptop all-kitchens": {**values.KITCHEN_LAPTOP, **values.KITCHEN_AVERAGE},
    "paper all-kitchens": values.KITCHEN_PAPER,
    "paper visual": {**values.PAPER_IMAGES, "steps": 500_000},
}
