"""The paper's mathematics: V(s, g) = -|phi(s) - phi(g)| (Eq. 4), its loss (Eq. 6), directions (Eq. 9), discounting."""

from typing import TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from hilp.learning import losses

Steps = TypeVar("Steps", np.ndarray, Array)
SQUARE_FLOOR = 1e-6  # of |phi(s) - phi(g)|^2, so that the root has a gradient
VALUE_MARGIN = 1e-3  # of the ends of a value's range, where its logarithm has none


def value(phi_s: Array, phi_g: Array) -> Array:
    """V(s, g) = -|phi(s) - phi(g)|, the negative number of steps from s to g."""
    square = jnp.sum(jnp.square(phi_s - phi_g), axis=-1)
    return -jnp.sqrt(jnp.maximum(square, SQUARE_FLOOR))


def representation_loss(
    v: Array,
    target_v: Array,
    target_next_v: Array,
    reached: Array,
    discount: float,
    expectile: float,
    steps: Array | None = None,
    steps_to_goal: Array | None = None,
) -> Array:
    """Temporal-difference loss of an ensemble of values (each: values x batch); a scalar.

    The expectile weight comes from one advantage, shared by the ensemble and built from the pessimistic
    target; the square is each value's own error.

    Not in the paper, both to learn long distances sooner: `steps` (batch), how many steps of the trajectory lie
    before the state of `target_next_v` (1 without it), and `steps_to_goal` (batch), after how many the trajectory
    itself reaches the goal (-1: never), which no target need fall short of.
    """
    reward = reached - 1.0
    carry = discount * (1.0 - reached)
    if steps is not None:
        reward = reward * discounted(steps, discount)
        carry = discount**steps * (1.0 - reached)
    q = reward + carry * jnp.min(target_next_v, axis=0)  # batch
    own_q = reward + carry * target_next_v  # values x batch
    if steps_to_goal is not None:
        shown = jnp.where(steps_to_goal >= 0, -discounted(steps_to_goal, discount), -jnp.inf)  # batch
        q, own_q = jnp.maximum(q, shown), jnp.maximum(own_q, shown)
    advantage = q - jnp.mean(target_v, axis=0)  # batch
    return jnp.sum(jnp.mean(losses.expectile_loss(advantage[None], own_q - v, expectile), axis=1))


def unit(x: Array) -> Array:
    """x / |x| along the last axis; zero stays zero."""
    return x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-8)


def skill_reward(phi_s: Array, phi_next: Array, z: Array) -> Array:
    """r(s, z, s') = <phi(s') - phi(s), z> (Eq. 7)."""
    return jnp.sum((phi_next - phi_s) * z, axis=-1)


def discounted(steps: Steps, discount: float) -> Steps:
    """The value scale of a distance: (1 - gamma^d) / (1 - gamma), what |phi(s) - phi(g)| is trained towards."""
    return (1.0 - discount**steps) / (1.0 - discount)


def steps_of_value(v: Array, discount: float) -> Array:
    """The number of steps that a value stands for, -discounted(steps): its inverse, cut just inside of its range."""
    longest = 1.0 / (1.0 - discount)
    return jnp.log(1.0 + (1.0 - discount) * jnp.clip(v, VALUE_MARGIN - longest, -VALUE_MARGIN)) / jnp.log(discount)
