"""Nearest: the data's own next actions, where a state and a later one are most like here and the goal.

Not in the paper: the baseline that no learner should lose to. There is no network: updates put rows of the data, each
with a later row of its episode as goal, into a table of `rows` rows that becomes the weights, and the policy answers
the actions of the row with the smallest |s - s_i|^2 + goal_weight |g - g_i|^2. Of more data than the table holds, what
is kept is drawn at random.
"""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from hilp.errors import HilpError
from hilp.learning import actors, networks, sampling
from hilp.learning.configs import AUTO, ChunkConfig, Count, Info, NonNegative, played
from hilp.spec import Spec
from hilp.trees import Tree

EMPTY = 1e30  # a square distance that no row has
MEASURED = 32  # rows of a batch that the error is measured on: a look through the table costs more than putting in


@dataclass(frozen=True)
class Config(ChunkConfig):
    """What is kept, and what is near."""

    rows: Count = 20_000  # that the policy keeps; more cost memory, and time at every action
    goal_weight: NonNegative = 0.1  # of being like the goal, against being like the state
    batch: Count = 256  # rows per update
    normalize: bool = True  # distances are in deviations of the data

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch > self.rows:
            raise HilpError(f"config key 'batch' is at most 'rows' ({self.rows}), not {self.batch}")


class State(NamedTuple):
    seen: Array  # rows x obs
    goals: Array  # rows x obs, later rows of the same episodes
    actions: Array  # rows x (chunk act)
    filled: Array  # rows that were put in


class Policy(eqx.Module):
    """What is left after training: the table."""

    seen: Array  # obs x rows
    goals: Array  # obs x rows, times goal_weight
    square: Array  # |s_i|^2 + goal_weight |g_i|^2, by row
    actions: Array  # rows x (chunk act)
    chunk: int = eqx.field(static=True, default=1)  # actions that it answers at once
    play: int = eqx.field(static=True, default=1)  # of them played before it is asked anew

    @property
    def skill_dim(self) -> int:
        return self.goals.shape[0]

    def act(self, observation: Tree, z: Array) -> Array:
        return actors.as_chunk(self.answer(networks.join(observation), z), self.chunk)

    def answer(self, s: Array, g: Array) -> Array:
        """The actions of the nearest row; their mean where several are equally near. Plain products, to be exported."""
        near = 2.0 * (s @ self.seen + g @ self.goals) - self.square  # batch x rows: what |s|^2 and |g|^2 leave
        best = jnp.where(near >= jnp.max(near, axis=-1, keepdims=True), 1.0, 0.0)
        return (best @ self.actions) / jnp.sum(best, axis=-1, keepdims=True)

    def goal_skill(self, goal: Tree) -> Array:
        """The skill of a goal is the goal."""
        return networks.join(goal)


def sample(cfg: Config, index: sampling.Index, key: Array) -> sampling.Rows:
    key_at, key_goal = jax.random.split(key)
    at = sampling.transitions(index, key_at, cfg.batch)
    goal = sampling.uniform_future(index, key_goal, at)
    acted = jnp.minimum(at[:, None] + np.arange(cfg.chunk), index.last[at][:, None] - 1)  # at the end the last is held
    columns = {"observations": {"observation": at, "goal": goal}, "actions": {"action": acted}}
    return sampling.Rows(columns)


def init(cfg: Config, spec: Spec, key: Array) -> State:
    nothing = jnp.zeros((cfg.rows, spec.observation_dim), jnp.float32)
    actions = jnp.zeros((cfg.rows, cfg.chunk * spec.action_dim), jnp.float32)
    return State(nothing, nothing, actions, jnp.zeros((), jnp.int32))


def update(cfg: Config, state: State, batch: sampling.Batch, key: Array) -> tuple[State, Info]:
    """Put a batch into the table, over the oldest rows; the error is that of the table before."""
    s, g = networks.join(batch.observation), networks.join(batch.goal)
    action = batch.action.reshape(cfg.batch, -1)
    error = jnp.mean(jnp.square(export(cfg, state).answer(s[:MEASURED], g[:MEASURED]) - action[:MEASURED]))
    at = (state.filled + jnp.arange(cfg.batch)) % cfg.rows
    parts = (state.seen.at[at].set(s), state.goals.at[at].set(g), state.actions.at[at].set(action))
    count = state.filled + cfg.batch
    count = jnp.where(count < 2 * cfg.rows, count, count - cfg.rows)  # full once it is as large as the table
    return State(*parts, count), {"actor_loss": error}


def export(cfg: Config, state: State) -> Policy:
    square = jnp.sum(jnp.square(state.seen), axis=-1) + cfg.goal_weight * jnp.sum(jnp.square(state.goals), axis=-1)
    square = jnp.where(jnp.arange(cfg.rows) < state.filled, square, EMPTY)
    return Policy(state.seen.T, cfg.goal_weight * state.goals.T, square, state.actions, **played(cfg))


PRESETS = {"laptop": {"chunk": AUTO, "steps": 100}, "paper": {"rows": 50_000, "batch": 1024, "steps": 100}}
