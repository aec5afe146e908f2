"""Hindsight: an actor that is told what the trajectory did next (RvS, Emmons et al. 2022; HIM, Furuta et al. 2022).

For bodies, logged while they do what they do. A skill is what the next k rows were like, in the numbers of an
observation: their mean, and of columns that hardly change in k rows, as a place does, how far they moved. The actor
clones actions given it. So every skill was lived, and an actor that did not listen would clone badly. A reward becomes
the mean skill of the segments that it pays most (`hilp.prompts.segments`), a goal the skill of moving there. Where that
is not a straight line, HILP's phi (Eq. 6), learnt next to the actor, plans the way. Where columns are slow, phi sees
these alone: of all columns, most of the distance between two states of a body would be posture.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp import trees
from hilp.errors import HilpError
from hilp.learning import actors, configs, images, losses, networks, sampling, tables
from hilp.learning.configs import AUTO, AutoCount, AutoFraction, Count, Fraction, Info, Share, TrunkConfig
from hilp.learning.methods import hilp
from hilp.spec import Spec
from hilp.trees import Tree

SLOW = 0.5  # deviations of a column: one that moves by less in k rows tells by its movement, not by where it is
TINY = 1e-6  # keeps columns that never change finite
BESIDE = 0.01  # of numbers in a latent, so small that distances are those of phi


@dataclass(frozen=True)
class Config(TrunkConfig):
    """Hyper-parameters; those of phi are HILP's."""

    k: AutoCount = 10  # rows ahead that a skill sums up: about a stride of a body that walks
    dim: Count = 32  # of phi
    phi_discount: AutoFraction = 0.99  # sets the longest distance phi can tell apart, about 1 / (1 - discount) steps
    phi_expectile: Fraction = 0.95  # nearer 1: distances of the best path in the data, not of the usual one
    phi_tau: Share = 0.005  # EMA of phi's target
    goal_discount: AutoFraction = 0.99  # how far ahead future goals lie
    goal_random: Share = 0.375  # share of goals drawn from the whole data set
    bound_targets: bool = False  # targets of phi never say farther than the trajectory itself took


class Moments(NamedTuple):
    """Of the segments seen so far, a number a column: what skills are in units of."""

    batches: Array
    mean: Array  # of the means of segments
    square: Array  # their mean square
    moved: Array  # the mean square of how far segments moved


class Units(NamedTuple):
    """Of each column, and how many are slow."""

    mean: Array  # of the means of segments
    deviation: Array
    moved: Array  # how far segments usually move
    slow: Array  # 1 where a column is slow, else 0
    places: Array  # 1 for the columns that phi sees: the slow ones, all where none is slow
    slow_count: Array


class State(NamedTuple):
    phi: networks.Ensemble  # of 2
    phi_target: networks.Ensemble
    phi_opt: optax.OptState
    moments: Moments
    units: Units
    actor: actors.Density
    rest: networks.Mlp  # of a skill, given how far the slow columns move
    opt: optax.OptState


class Policy(eqx.Module):
    """What is left after training. A latent is phi(s) and, very small, the numbers of s."""

    phi: networks.Trunk
    actor: actors.Density
    rest: networks.Mlp
    units: Units
    skill_dim: int = eqx.field(static=True)
    skill_horizon: int = eqx.field(static=True)
    discount: float = eqx.field(static=True)

    def act(self, observation: Tree, z: Array) -> Array:
        return self.actor.act(observation, z)

    def encode(self, observation: Tree) -> Array:
        latent = self.phi(seen_places(observation, self.units))
        return jnp.concatenate([latent, BESIDE * numbers(observation)], axis=-1)

    def skill_of(self, observations: Tree, actions: Array, steps: Array) -> Array:
        """What a segment was like."""
        return skill(self.units, *summary(numbers(observations, 2), jnp.asarray(steps)))

    def goal_direction(self, here: Array, there: Array) -> Array:
        """Goal rule: the skill of moving there, no faster than usual; where nothing is slow, of being there."""
        first = here.shape[-1] - self.skill_dim
        here, there = (jax.lax.slice_in_dim(latent, first, None, axis=-1) / BESIDE for latent in (here, there))
        of = self.units
        way = of.slow * (there - here) / of.moved
        length = jnp.sqrt(jnp.sum(jnp.square(way), axis=-1, keepdims=True))
        way = way * jnp.minimum(1.0, jnp.sqrt(of.slow_count) / jnp.maximum(length, TINY))
        on_the_way = jnp.where(of.slow > 0.0, way, self.rest(jnp.concatenate([here, way], axis=-1)))
        return jnp.where(of.slow_count > 0.0, on_the_way, (there - of.mean) / of.deviation)


def numbers(observation: Tree, leading: int = 1) -> Array:
    """The numbers of observations, pictures left out, as one vector after the leading axes."""
    parts = trees.named(observation, "").values()
    flat = [part.reshape(*part.shape[:leading], -1) for part in parts if part.dtype != jnp.uint8]
    return jnp.concatenate(flat, axis=-1)


def seen_places(observation: Tree, of: Units) -> Tree:
    """What phi sees: pictures and the columns that are places, with zeros for the others."""
    at, found = 0, {}
    for name, part in trees.named(observation, "").items():
        if part.dtype != jnp.uint8:
            size = math.prod(part.shape[1:])
            part, at = part * of.places[at : at + size].reshape(part.shape[1:]), at + size
        found[name] = part
    return trees.unnamed(found, "")


def _columns(spec: Spec) -> int:
    found = sum(math.prod(shape) for _, shape, kind in spec.parts if kind != "uint8")
    if spec.parts and not found:
        raise HilpError("hindsight tells its actor what the numbers of an observation did next, and here are pictures "
                        "only: use hilp")  # fmt: skip
    return found if spec.parts else spec.observation_dim


def summary(rows: Array, steps: Array) -> tuple[Array, Array]:
    """The mean of the rows after the first of each segment (batch x (k + 1) x obs), and how far it moved in k steps.

    Of a segment that its episode's end cuts short, by its real steps.
    """
    k, real = rows.shape[1] - 1, jnp.maximum(steps, 1)[:, None]
    counted = jnp.arange(1, k + 1) <= real  # batch x k
    mean = jnp.sum(jnp.where(counted[..., None], rows[:, 1:], 0.0), axis=1) / real
    return mean, (rows[:, -1] - rows[:, 0]) * (k / real)


def units(moments: Moments) -> Units:
    variance = jnp.maximum(moments.square - jnp.square(moments.mean), 0.0)
    slow = jnp.where((moments.moved < SLOW**2 * variance) & (moments.moved > TINY**2), 1.0, 0.0)
    deviation, moved = (jnp.where(it > TINY**2, jnp.sqrt(it), 1.0) for it in (variance, moments.moved))
    count = jnp.sum(slow)
    return Units(moments.mean, deviation, moved, slow, jnp.where(count > 0.0, slow, 1.0), count)


def skill(of: Units, mean: Array, moved: Array) -> Array:
    """Of a segment's mean and movement, in units of the data: batch x columns."""
    return jnp.where(of.slow > 0.0, moved / of.moved, (mean - of.mean) / of.deviation)


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    key_at, key_goal = jax.random.split(key)
    segment, steps = sampling.segments(index, key_at, cfg.batch, cfg.k)
    at = segment[:, 0]
    goal = sampling.hindsight_goals(index, key_goal, at, cfg.goal_random, cfg.goal_discount)
    extras = {"reached": goal == at, "steps": steps}
    if cfg.bound_targets:
        extras["steps_to_goal"] = sampling.steps_to_goal(index, at, goal)
    return sampling.Rows.of_transitions(at, {"goal": goal, "segment": segment}, **extras)


def init(cfg: Config, spec: Spec, key: Array) -> State:
    key_phi, key_actor, key_rest = jax.random.split(key, 3)
    columns = _columns(spec)
    seen = images.layout(cfg, spec)
    phi = networks.ensemble(networks.Trunk, seen, cfg.hidden, cfg.dim, key=key_phi)
    actor = actors.head(spec, seen + columns, cfg.actor_hidden, key_actor)
    rest = networks.Mlp(2 * columns, cfg.hidden, columns, key_rest)
    nothing = jnp.zeros((columns,), jnp.float32)
    moments = Moments(jnp.zeros((), jnp.float32), nothing, nothing, nothing)
    adam = optax.adam(cfg.lr)
    return State(phi, phi, adam.init(phi), moments, units(moments), actor, rest, adam.init((actor, rest)))


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    mean, moved = summary(numbers(batch.segment, 2), batch.steps)
    moments = updated(state.moments, mean, moved)
    of = units(moments)

    rows = ("observation", "next_observation", "goal")
    seen = batch.replace(**{name: seen_places(getattr(batch, name), of) for name in rows})
    phi_grad = jax.value_and_grad(hilp.phi_loss, has_aux=True)
    (_, (info, _)), grads = phi_grad(state.phi, cfg, state.phi_target, seen)
    phi, phi_opt = losses.adam_step(cfg.lr, grads, state.phi_opt, state.phi)
    phi_target = losses.polyak(state.phi_target, phi, cfg.phi_tau)

    z = skill(of, mean, moved)
    actor_loss, grad_actor = jax.value_and_grad(actors.bc_loss)(
        state.actor, networks.join(batch.observation, z), batch.action
    )
    rest_loss, grad_rest = jax.value_and_grad(completion_loss)(state.rest, numbers(batch.observation), z, of.slow)
    nets = (state.actor, state.rest)
    (actor, rest), opt = losses.adam_step(cfg.lr, (grad_actor, grad_rest), state.opt, nets)
    info |= {"actor_loss": actor_loss, "rest_loss": rest_loss}
    return State(phi, phi_target, phi_opt, moments, of, actor, rest, opt), info


def updated(moments: Moments, mean: Array, moved: Array) -> Moments:
    """The moments with one more batch of segments, all batches counting alike."""
    count = moments.batches + 1.0
    fresh = (mean, jnp.square(mean), jnp.square(moved))
    before = (moments.mean, moments.square, moments.moved)
    means = (old + (jnp.mean(new, axis=0) - old) / count for old, new in zip(before, fresh, strict=True))
    return Moments(count, *means)


def completion_loss(rest: networks.Mlp, s: Array, z: Array, slow: Array) -> Array:
    """The squared error of a skill's other columns, given s and how far its slow ones move."""
    found = rest(jnp.concatenate([s, jnp.where(slow > 0.0, z, 0.0)], axis=-1))
    return jnp.mean(jnp.where(slow > 0.0, 0.0, jnp.square(found - z)))


def export(cfg: Config, state: State) -> Policy:
    columns = state.units.mean.size
    return Policy(state.phi[0], state.actor, state.rest, state.units, columns, cfg.k, cfg.phi_discount)


def reference(cfg: Config) -> dict[str, object]:
    return configs.reference_values(cfg, "hidden", "lr", "bound_targets", "augment")


PRESETS = {
    "laptop": {
        **tables.LAPTOP_TRUNKS,
        "dim": 8,
        "k": AUTO,
        **tables.phi_horizon(AUTO),
        "phi_tau": 0.02,
        "steps": 16_000,
    },
}
