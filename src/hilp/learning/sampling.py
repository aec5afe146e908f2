"""Pure, keyed samplers. They draw row numbers by name; `gather` turns row numbers into a batch.

Drawing and gathering are apart so that the same key picks the same rows wherever the arrays live.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from hilp import trees
from hilp.data.transforms import Frames, OneHot
from hilp.errors import HilpError, nearest, some
from hilp.trees import Tree

jax.tree_util.register_pytree_node(  # stacks of frames go to the device as what is stored, and are built there
    Frames, lambda frames: ((frames.stored, frames.first), frames.count), lambda count, parts: Frames(*parts, count)
)
jax.tree_util.register_pytree_node(  # discrete actions go there as small whole numbers
    OneHot, lambda actions: ((actions.stored,), actions.count), lambda count, parts: OneHot(*parts, count)
)
ACTION_LIMIT = 1.0 - 1e-5  # data actions are clipped to this, so that a squashed density stays finite


class Index(NamedTuple):
    """Where episodes lie in the flat arrays, and which rows may be drawn (training rows first, then validation)."""

    transitions: Array  # int32 [T]: rows that have a next row in their episode
    states: Array  # int32 [N]: all rows
    last: Array  # int32 [N]: the last row of each row's episode
    transition_range: Array  # int32 [2]: the part of `transitions` to draw from
    state_range: Array  # int32 [2]: the part of `states` to draw from


class Columns(NamedTuple):
    """The columns a batch is gathered from, a value per row, and the observation normaliser applied on the way."""

    shared: dict[str, Tree]  # name -> [N, ...]: observations (an array or a named tree), actions, ...
    own: dict[str, Array | np.ndarray]  # columns computed by a run; [seeds, N, ...] where it trains several seeds
    mean: Tree  # of observations: [obs], or that of each float part
    scale: Tree


class Rows(NamedTuple):
    """What a method samples: row numbers by column and name in the batch, and values that go into it unchanged.

    Row numbers may have any shape: one a sample, or several, as the rows of a segment (batch x (k + 1)).
    """

    columns: dict[str, dict[str, Array]]  # column -> name in the batch -> row numbers
    values: dict[str, Array] = {}  # noqa: RUF012 (never changed)

    @staticmethod
    def of_transitions(at: Array, observations: Mapping[str, Array] | None = None, **values: Array) -> "Rows":
        """s, a and s' of the transitions that begin in these rows, and more observations by their name."""
        seen = {"observation": at, "next_observation": at + 1, **(observations or {})}
        return Rows({"observations": seen, "actions": {"action": at}}, values)


@jax.tree_util.register_pytree_with_keys_class
class Batch:
    """Arrays by name, as a method sampled them: `batch.observation`, `batch.goal`, ..."""

    def __init__(self, **arrays: Tree):
        self._arrays = arrays

    def __getattr__(self, name: str) -> Any:
        arrays = self.__dict__.get("_arrays", {})
        if name not in arrays:
            raise AttributeError(f"this batch has no '{name}', its sampler drew {some(sorted(arrays))}")
        return arrays[name]

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def items(self) -> Iterable[tuple[str, Tree]]:
        return self._arrays.items()

    def replace(self, **arrays: Tree) -> "Batch":
        return Batch(**{**self._arrays, **arrays})

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Any, Tree]], tuple[str, ...]]:
        names = tuple(sorted(self._arrays))
        return [(jax.tree_util.DictKey(name), self._arrays[name]) for name in names], names

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], arrays: list[Tree]) -> "Batch":
        return cls(**dict(zip(names, arrays, strict=True)))


def build_index(
    lengths: np.ndarray, validation: np.ndarray | None = None, size: int | None = None
) -> tuple[Index, Index | None]:
    """Index of episodes of these lengths (in rows), and a second one over the episodes marked in `validation`.

    Both share their arrays and have the same shapes, so one compiled program serves both. size: pad the arrays to this
    length with rows that are never drawn.
    """
    ends = np.cumsum(lengths)
    last = np.repeat((ends - 1).astype(np.int32), lengths)
    held_out = np.zeros(len(lengths), bool) if validation is None else np.asarray(validation, bool)
    row_held_out = np.repeat(held_out, lengths)
    states = np.concatenate([np.flatnonzero(~row_held_out), np.flatnonzero(row_held_out)]).astype(np.int32)
    transitions = states[states != last[states]]
    split_t = int(np.sum(~row_held_out[transitions]))
    split_s = int(np.sum(~row_held_out))

    train = Index(
        jnp.asarray(padded(transitions, size)),
        jnp.asarray(padded(states, size)),
        jnp.asarray(padded(last, size)),
        transition_range=jnp.asarray((0, split_t), jnp.int32),
        state_range=jnp.asarray((0, split_s), jnp.int32),
    )
    if not held_out.any():
        return train, None
    held = train._replace(
        transition_range=jnp.asarray((split_t, len(transitions)), jnp.int32),
        state_range=jnp.asarray((split_s, len(states)), jnp.int32),
    )
    return train, held


def padded(array: np.ndarray, size: int | None) -> np.ndarray:
    """The array with zeros appended, up to `size` rows; the array itself without a size."""
    if size is None or size == len(array):
        return array
    found = np.zeros((size, *array.shape[1:]), array.dtype)
    found[: len(array)] = array
    return found


def transitions(index: Index, key: Array, count: int) -> Array:
    """Rows drawn uniformly from all transitions."""
    low, high = index.transition_range
    return index.transitions[jax.random.randint(key, (count,), low, high)]


def states(index: Index, key: Array, count: int) -> Array:
    """Rows drawn uniformly from all states, final states of episodes included."""
    low, high = index.state_range
    return index.states[jax.random.randint(key, (count,), low, high)]


def geometric_future(index: Index, key: Array, at: Array, discount: float) -> Array:
    """A later row of the same episode, at least one step ahead, geometrically far, clipped to the episode's end."""
    u = jax.random.uniform(key, at.shape)  # [0, 1)
    ahead = jnp.ceil(jnp.log1p(-u) / jnp.log(discount)).astype(jnp.int32)
    return jnp.minimum(at + jnp.maximum(ahead, 1), index.last[at])


def uniform_future(index: Index, key: Array, at: Array) -> Array:
    """A later row of the same episode, each one equally likely."""
    return jax.random.randint(key, at.shape, at + 1, index.last[at] + 1, at.dtype)


def hindsight_goals(
    index: Index, key: Array, at: Array, p_random: float, discount: float | None = None, p_current: float = 0.0
) -> Array:
    """Goals of rows: any state of the data, the row itself, or else a later row of its episode.

    Later rows are geometrically far with a discount, and equally likely without one. A value that is not zero at its
    goal by construction needs rows that are their own goal.
    """
    key_future, key_random, key_which = jax.random.split(key, 3)
    if discount is None:
        future = uniform_future(index, key_future, at)
    else:
        future = geometric_future(index, key_future, at, discount)
    anywhere = states(index, key_random, at.shape[0])
    which = jax.random.uniform(key_which, at.shape)
    return jnp.where(which < p_current, at, jnp.where(which < p_current + p_random, anywhere, future))


def steps_to_goal(index: Index, at: Array, goal: Array) -> Array:
    """How many steps after `at` the goal lies in the same episode; -1 where it lies before or in another one."""
    return jnp.where((goal >= at) & (goal <= index.last[at]), goal - at, -1)


def n_step_rows(index: Index, at: Array, goal: Array, steps: int) -> Array:
    """The row `steps` after `at`, or the goal or the episode's end where that comes first."""
    left = steps_to_goal(index, at, goal)
    row = jnp.minimum(at + steps, index.last[at])
    return jnp.where(left >= 0, jnp.minimum(row, goal), row)


def segments(index: Index, key: Array, count: int, k: int) -> tuple[Array, Array]:
    """Rows of k-step segments (count x (k + 1)) and how many steps of each are real.

    A segment that meets its episode's end stays on the last row from there on.
    """
    return segments_from(index, transitions(index, key, count), k)


def segments_from(index: Index, at: Array, k: int) -> tuple[Array, Array]:
    """The same of the segments that begin in these rows."""
    ends = index.last[at]
    rows = jnp.minimum(at[:, None] + jnp.arange(k + 1), ends[:, None])
    return rows, jnp.minimum(ends - at, k)


def with_chunks(rows: Rows, index: Index, at: Array, k: int) -> Rows:
    """Rows whose `action` are the next k actions (batch x k x act), of which the first `chunk_steps` are real."""
    if k == 1:
        return rows
    segment, steps = segments_from(index, at, k)
    return Rows({**rows.columns, "actions": {"action": segment[:, :-1]}}, {**rows.values, "chunk_steps": steps})


def gather(columns: Columns, rows: Rows, xp: Any = jnp) -> Batch:
    """The batch of row numbers, observations normalised and actions inside the open box.

    `xp` is jax.numpy for columns on the device, numpy for columns on the host; both give the same numbers (but for the
    last bit of a normalised one).
    """
    found: dict[str, Tree] = {}
    for name, wanted in rows.columns.items():
        known = {**columns.shared, **columns.own}
        if name not in known:
            raise HilpError(f"a sampler draws from an unknown column '{name}': {nearest(name, known)}")
        # One look-up for all rows of a column.
        numbers = xp.concatenate([numbers.reshape(-1) for numbers in wanted.values()])
        values = trees.over(lambda part, numbers=numbers: part[numbers], known[name])
        if name == "observations":
            values = normalised(values, columns.mean, columns.scale)
        elif name == "actions" and not isinstance(known[name], OneHot):
            values = xp.clip(values, -ACTION_LIMIT, ACTION_LIMIT)
        ends = np.cumsum([numbers.size for numbers in wanted.values()])[:-1]
        pieces = trees.over(lambda part, ends=ends: xp.split(part, ends), values)
        for i, (label, numbers) in enumerate(wanted.items()):
            flat = trees.over(lambda piece, i=i: piece[i], pieces)
            found[label] = trees.over(lambda part, at=numbers: part.reshape(*at.shape, *part.shape[1:]), flat)
    return Batch(**found, **rows.values)


def normalised(observations: Tree, mean: Tree, scale: Tree) -> Tree:
    """Numbers shifted and scaled; the bytes of an image stay bytes on their way to the network."""
    if isinstance(observations, Mapping):
        shifted = {name: (observations[name] - mean[name]) / scale[name] for name in mean}
        return {name: shifted.get(name, part) for name, part in observations.items()}
    return (observations - mean) / scale
