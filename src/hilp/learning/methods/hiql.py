"""HIQL: hierarchical implicit Q-learning (Park et al. 2023), as OGBench runs it. Not in the paper.

One value V(s, g), learnt as that of `gc-iql`, and two policies out of it: the high one gives where to be some steps
from now on the way to g, the low one which action leads there. Near a goal values differ clearly; far from it only
over many steps, which is what the high one looks at. V sees a goal only through rep(s, g), a few numbers, and these are
what the high policy gives.
"""

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp.learning import actors, hilbert, images, losses, networks, sampling, tables
from hilp.learning.configs import LATER, Count, Fraction, Info, NonNegative, Share
from hilp.learning.methods import gcbc, gciql
from hilp.spec import Spec
from hilp.trees import Tree

SQUARE_FLOOR = 1e-6  # of a representation's squared length: zero has no direction, and must not end in NaN


@dataclass(frozen=True)
class Config(gciql.ValueConfig):
    """Hyper-parameters, those of `gc-iql` and of a hierarchy; the defaults are OGBench's for mazes."""

    rep_dim: Count = 10  # numbers that represent a goal, seen from a state
    subgoal_steps: Count = 25  # how far ahead the high policy looks
    expectile: Fraction = 0.7  # nearer 1: values of the best path in the data, not of the usual one
    actor_goal_random: Share = 0.0  # share of the high policy's goals drawn from the whole data set
    high_temperature: NonNegative = 3.0  # AWR of the high policy; `temperature` is that of the low one
    actor: Literal["gaussian"] = field(default="gaussian", metadata=LATER)  # no other head


class Representation(eqx.Module):
    """rep(s, g): a goal as seen from a state, a point on a sphere."""

    net: networks.Trunk

    def __call__(self, observation: Tree, goal: Tree) -> Array:
        return on_sphere(self.net(networks.join(observation, goal)))


def on_sphere(x: Array) -> Array:
    """x, scaled to a length of sqrt(dim): about one a number."""
    square = jnp.sum(jnp.square(x), axis=-1, keepdims=True)
    return x * (math.sqrt(x.shape[-1]) * jax.lax.rsqrt(jnp.maximum(square, SQUARE_FLOOR)))


class Actors(NamedTuple):
    low: actors.Density  # pi(a | s, rep(s, subgoal))
    high: actors.UnitActor  # pi(rep(s, subgoal) | s, g)


class State(NamedTuple):
    rep: Representation
    value: networks.Ensemble  # of 2, of (s, rep(s, g))
    value_target: networks.Ensemble
    actors: Actors
    actors_average: Actors | tuple[()]  # () at rate 1: the actors themselves are kept
    opt: optax.OptState


class Policy(eqx.Module):
    """What is left after training: a subgoal on the way to g, anew in every state, the action that leads there, and V,
    which says how far a goal is.
    """

    low: actors.Density
    high: actors.UnitActor
    rep: Representation
    value: networks.Trunk
    discount: float = eqx.field(static=True)

    @property
    def skill_dim(self) -> int:
        return self.high.size_in // 2  # it takes a state and, of the same size, the skill

    def act(self, observation: Tree, z: Array) -> Array:
        subgoal = on_sphere(self.high(networks.join(observation, z)))
        return self.low.act(observation, subgoal)

    def goal_skill(self, goal: Tree) -> Array:
        """The skill of a goal is the goal."""
        return networks.join(goal)

    def steps(self, here: Array, there: Array) -> Array:
        """Steps from one state to another, both as the skills of goals; leading axes are broadcast."""
        v = gcbc.of_pairs(lambda s, g: self.value(networks.join(s, self.rep(s, g))), here, there)
        return hilbert.steps_of_value(v, self.discount)


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    """Transitions, each with a goal for the value, one for the high policy and the states that both policies aim at.

    The low one aims at the state some steps ahead; the high one at that state too, or at its goal where that comes
    before.
    """
    key_at, key_goal, key_actor = jax.random.split(key, 3)
    at = sampling.transitions(index, key_at, cfg.batch)
    goal = sampling.hindsight_goals(index, key_goal, at, cfg.goal_random, cfg.goal_discount, cfg.p_current_goal)
    actor_goal = sampling.hindsight_goals(index, key_actor, at, cfg.actor_goal_random)
    more = {
        "goal": goal,
        "actor_goal": actor_goal,
        "low_target": jnp.minimum(at + cfg.subgoal_steps, index.last[at]),
        "high_target": sampling.n_step_rows(index, at, actor_goal, cfg.subgoal_steps),
    }
    return sampling.Rows.of_transitions(at, more, reached=goal == at)


def init(cfg: Config, spec: Spec, key: Array) -> State:
    key_rep, key_value, key_low, key_high = jax.random.split(key, 4)
    size = images.layout(cfg, spec)
    rep = Representation(networks.Trunk(2 * size, cfg.hidden, cfg.rep_dim, key_rep))
    value = networks.ensemble(networks.Trunk, size + cfg.rep_dim, cfg.hidden, 1, key=key_value)
    low = actors.head(spec, size + cfg.rep_dim, cfg.actor_hidden, key_low, "unit")
    both = Actors(low, actors.UnitActor(2 * size, cfg.actor_hidden, cfg.rep_dim, key_high))
    average = losses.averaged(both, both, cfg.actor_ema)
    return State(rep, value, value, both, average, optax.adam(cfg.lr).init((rep, value, both)))


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    """One step of V with its representation and of both policies, all from the same state."""
    learnt = (state.rep, state.value)
    (loss_v, mean_v), grad_v = jax.value_and_grad(value_loss, has_aux=True)(learnt, cfg, state.value_target, batch)

    s, after, goal = batch.observation, batch.next_observation, batch.actor_goal
    near, far = batch.low_target, batch.high_target
    # Values of the state and of what follows it, towards the aim of each policy; and what the high one should output.
    states, aims = networks.stacked(s, after, s, far, s), networks.stacked(near, near, goal, goal, far)
    reps = state.rep(states, aims)
    v = jnp.mean(networks.apply_all(state.value, networks.join(states, reps)[: 4 * cfg.batch])[..., 0], axis=0)
    low_before, low_after, high_before, high_after = jnp.split(v, 4)
    toward_near, _, _, _, wanted = jnp.split(reps, 5)
    low_sees, high_sees = networks.join(s, toward_near), networks.join(s, goal)
    imitate = jax.value_and_grad(actors.awr_loss, has_aux=True)
    (loss_low, low_weight), grad_low = imitate(
        state.actors.low, low_sees, batch.action, low_after - low_before, cfg.temperature, cfg.awr_clip
    )
    (loss_high, high_weight), grad_high = imitate(
        state.actors.high, high_sees, wanted, high_after - high_before, cfg.high_temperature, cfg.awr_clip
    )

    grads = (*grad_v, Actors(grad_low, grad_high))
    (rep, value, both), opt = losses.adam_step(cfg.lr, grads, state.opt, (*learnt, state.actors))
    value_target = losses.polyak(state.value_target, value, cfg.tau)
    average = losses.averaged(state.actors_average, both, cfg.actor_ema, opt[0].count)
    info = {"value_loss": loss_v, "value": mean_v, "actor_loss": loss_low, "high_loss": loss_high}
    info |= {"awr_weight": low_weight, "high_weight": high_weight}
    return State(rep, value, value_target, both, average, opt), info


def export(cfg: Config, state: State) -> Policy:
    return Policy(*(state.actors_average or state.actors), state.rep, state.value[0], cfg.discount)


def value_loss(
    learnt: tuple[Representation, networks.Ensemble], cfg: Config, target: networks.Ensemble, batch: sampling.Batch
) -> tuple[Array, Array]:
    """Eq. 6 with V(s, rep(s, g)) in the place of -|phi(s) - phi(g)|; also returns the mean of V.

    The targets see goals through the same representation, which has no target of its own.
    """
    rep, value = learnt
    seen = networks.join(batch.observation, rep(batch.observation, batch.goal))
    seen_after = networks.join(batch.next_observation, rep(batch.next_observation, batch.goal))
    v = networks.apply_all(value, seen)[..., 0]  # ensemble x batch
    old = networks.apply_all(target, jax.lax.stop_gradient(jnp.concatenate([seen, seen_after])))[..., 0]
    old_v, old_next_v = jnp.split(old, 2, axis=1)
    loss = hilbert.representation_loss(v, old_v, old_next_v, batch.reached, cfg.discount, cfg.expectile)
    return loss, jnp.mean(v)


PRESETS = {
    **tables.RIVALS,
    "laptop": {
        **tables.LAPTOP_TRUNKS,
        "subgoal_steps": 10,  # the built-in mazes are some 40 steps across
        **tables.horizon(0.97),  # as phi of hilp
        "tau": 0.02,
    },
    "laptop pointmaze-not-giant+all-arms+all-kitchens": tables.horizon(tables.OGBENCH_DISCOUNT),
    "both giant": tables.horizon(tables.OGBENCH_GIANT_DISCOUNT),
    "laptop pointmaze+antmaze": {"subgoal_steps": 25},
    "paper all-arms+all-kitchens": {"subgoal_steps": 10},
    "both antmaze-explore": {"temperature": 10.0, "high_temperature": 10.0},
    "laptop antmaze": {**tables.ANT, **tables.ANT_AVERAGE, **tables.ANT_GOAL_VALUES},
}
