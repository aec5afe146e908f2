"""A monolithic goal-conditioned value V(s, g): one network of both states, with the loss of gc-iql (Eq. 6).

The paper's estimate of the true distance where it is not known (embedding error analysis). Unlike -|phi(s) - phi(g)|
it may differ there and back, so it also shows how asymmetric the data is. For diagnosis only: it has no policy.
"""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import images, losses, networks, sampling
from hilp.learning.configs import BaseConfig, Count, Fraction, Info, NonNegative, Share, Sizes
from hilp.learning.methods import gciql
from hilp.spec import Spec
from hilp.trees import Tree


@dataclass(frozen=True)
class Config(BaseConfig):
    """Hyper-parameters; `diagnose` takes those that phi was trained with."""

    hidden: Sizes = (512, 512, 512)
    batch: Count = 1024  # transitions per update
    lr: NonNegative = 3e-4  # Adam
    discount: Fraction = 0.99  # of the distance: the same as phi's, or the two cannot be compared
    expectile: Fraction = 0.9  # the paper's analysis uses this for both values
    tau: Share = 0.005  # EMA of the target
    goal_discount: Fraction = 0.99  # how far ahead future goals lie
    goal_random: Share = 0.375  # share of the other goals drawn from the whole data set
    p_current_goal: Share = 0.2  # share of goals that are the state itself: V(s, s) = 0 must be learnt, unlike phi's
    bound_targets: bool = False  # targets never say farther than the trajectory itself took; as phi's, not in the paper


class State(NamedTuple):
    value: networks.Ensemble
    target: networks.Ensemble
    opt: optax.OptState


class Value(eqx.Module):
    """What is left after training. Observations are normalised as in training."""

    ensemble: networks.Ensemble

    def values(self, observation: Tree, goal: Tree) -> Array:
        """V(s, g) of each network: ensemble x batch. How far they differ says how sure V is."""
        return networks.apply_all(self.ensemble, networks.join(observation, goal))[..., 0]

    def value(self, observation: Tree, goal: Tree) -> Array:
        return jnp.mean(self.values(observation, goal), axis=0)


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    key_at, key_goal, key_here = jax.random.split(key, 3)
    at = sampling.transitions(index, key_at, cfg.batch)
    goal = sampling.hindsight_goals(index, key_goal, at, cfg.goal_random, cfg.goal_discount)
    here = jax.random.uniform(key_here, at.shape) < cfg.p_current_goal
    goal = jnp.where(here, at, goal)
    extras = {"reached": goal == at}
    if cfg.bound_targets:
        extras["steps_to_goal"] = sampling.steps_to_goal(index, at, goal)
    return sampling.Rows.of_transitions(at, {"goal": goal}, **extras)


def init(cfg: Config, spec: Spec, key: Array) -> State:
    value = networks.ensemble(networks.Trunk, 2 * images.layout(cfg, spec), cfg.hidden, 1, key=key)
    return State(value=value, target=value, opt=optax.adam(cfg.lr).init(value))


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    value_grad = jax.value_and_grad(gciql.value_loss, has_aux=True)
    shown = batch.steps_to_goal if cfg.bound_targets else None
    (loss, _), grads = value_grad(state.value, cfg, state.target, batch, shown)
    value, opt = losses.adam_step(cfg.lr, grads, state.opt, state.value)
    target = losses.polyak(state.target, value, cfg.tau)
    return State(value=value, target=target, opt=opt), {"value_loss": loss}


def export(cfg: Config, state: State) -> Value:
    return Value(ensemble=state.value)
