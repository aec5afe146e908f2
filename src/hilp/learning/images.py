"""Pictures: the encoders that stand in front of networks, and random shifts of what networks see.

A picture is a part of an observation that is bytes [height, width, channels]. It stays bytes until `networks.join`
lays a row out as one vector; a network that was made for such rows (`Layout`) has `Eyes`, which find the pictures in
the vector again and put their codes in their places. In the goal-conditioned half every network has eyes of its own;
in the zero-shot half one pair serves them all (`coded`, `graded`), trained by all losses but the actor's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from hilp import trees
from hilp.learning.sampling import Batch
from hilp.spec import Spec
from hilp.trees import Tree

Encoder = Literal["paper", "light", "none"]  # of a half of the paper; for two CPU cores; bytes as plain numbers
Augment = Literal["rows", "apart", "none"]  # random shifts: the same for all pictures of a row, or each its own
Shape = tuple[int, int, int]  # height, width, channels

PAD = 3  # goal-conditioned half: pixels that a picture is shifted by, at most
CROPPED = 0.5  # goal-conditioned half: share of the batches that are shifted
SIDE_A_PIXEL = 21  # zero-shot half: a picture is shifted by its side over this, at most


class Sighted(Protocol):
    """What a config says about pictures."""

    @property
    def encoder(self) -> Encoder: ...
    @property
    def augment(self) -> Augment: ...


# ---- an observation as one vector ------------------------------------------------------------------------------------


def join(observation: Tree, *others: Array) -> Array:
    """One vector a row, as dense layers take it: an observation and what stands beside it.

    A named tree is put side by side in the order of its names; the bytes of an image become numbers from 0 to 1. Its
    arrays have one batch axis (a segment's second one is `jax.vmap`'s), because only a plain vector shows where a row
    begins.
    """
    if isinstance(observation, Mapping):
        parts = [as_numbers(observation[name]) for name in sorted(observation)]
        return jnp.concatenate([*parts, *others], axis=-1)
    return jnp.concatenate([observation, *others], axis=-1) if others else observation


def as_numbers(part: Array) -> Array:
    """A part of an observation as one vector a row."""
    rows = part.reshape(part.shape[0], -1)
    return rows.astype(jnp.float32) / 255.0 if part.dtype == jnp.uint8 else rows


# ---- what a row of input is made of ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """What a network reads in one row, in order: pictures and runs of plain numbers. It adds up as sizes do.

    `layout + 8` is an observation and 8 numbers, `2 * layout` an observation and a goal.
    """

    pieces: tuple[tuple[int, Shape | int], ...]  # which picture of an observation and its shape, or (-1, how many)
    make: str  # the name of the encoder

    def __add__(self, numbers: int) -> Layout:
        return replace(self, pieces=(*self.pieces, (-1, numbers)))

    def __rmul__(self, times: int) -> Layout:
        return replace(self, pieces=self.pieces * times)


Input = int | Layout  # how a network is told what it reads


def layout(cfg: Sighted, spec: Spec, half: Literal["goals", "rewards"] = "goals") -> Any:
    """What a network reads of an observation: an `Input`, which adds up with sizes; without pictures, a size.

    half: of the paper, whose encoders differ.
    """
    if not pictures(spec) or cfg.encoder == "none":
        return spec.observation_dim
    make = cfg.encoder if cfg.encoder == "light" else {"goals": "impala", "rewards": "four"}[half]
    order = {name: number for number, (name, _) in enumerate(pictures(spec).items())}
    found: list[tuple[int, Shape | int]] = [
        (order[name], pictures(spec)[name]) if name in order else (-1, math.prod(shape))
        for name, shape, _ in spec.parts
    ]
    return Layout(tuple(found), make)


def pictures(spec: Spec) -> dict[str, Shape]:
    """The parts of an observation that are pictures, in their order in a row."""
    return {n: (shape[0], shape[1], shape[2]) for n, shape, kind in spec.parts if kind == "uint8" and len(shape) == 3}


# ---- encoders --------------------------------------------------------------------------------------------------------


class Conv(eqx.Module):
    """A convolution over [batch, height, width, channels]."""

    weight: Array  # height x width x in x out
    bias: Array
    stride: int = eqx.field(static=True)
    padding: str = eqx.field(static=True)

    def __init__(
        self,
        size_in: int,
        size_out: int,
        key: Array,
        kernel: int = 3,
        stride: int = 1,
        padding: str = "SAME",
        orthogonal: bool = False,
    ):
        shape = (kernel, kernel, size_in, size_out)
        make = (
            jax.nn.initializers.orthogonal(math.sqrt(2.0))
            if orthogonal
            else jax.nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")
        )
        self.weight = make(key, shape, jnp.float32)
        self.bias = jnp.zeros((size_out,), jnp.float32)
        self.stride, self.padding = stride, padding

    def __call__(self, x: Array) -> Array:
        strides = (self.stride, self.stride)
        product = jax.lax.conv_general_dilated(
            x, self.weight, strides, self.padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return product + self.bias


class Impala(eqx.Module):
    """IMPALA's small network: three stacks of a convolution, a pool that halves, and a residual block."""

    first: tuple[Conv, ...]
    residual: tuple[tuple[Conv, Conv], ...]

    FILTERS = (16, 32, 32)

    def __init__(self, channels: int, key: Array):
        sizes = (channels, *self.FILTERS)
        keys = jax.random.split(key, (len(self.FILTERS), 3))
        self.first = tuple(Conv(a, b, k[0]) for a, b, k in zip(sizes, sizes[1:], keys, strict=False))
        self.residual = tuple((Conv(b, b, k[1]), Conv(b, b, k[2])) for b, k in zip(sizes[1:], keys, strict=True))

    def __call__(self, x: Array) -> Array:
        for first, (one, two) in zip(self.first, self.residual, strict=True):
            x = jax.lax.reduce_window(first(x), -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
            x = x + two(jax.nn.relu(one(jax.nn.relu(x))))
        return jax.nn.relu(x)


class Four(eqx.Module):
    """Convolutions of 32 filters, the first of which halves: four of them, three from 48 pixels down, two below 48."""

    layers: tuple[Conv, ...]

    FILTERS = 32

    def __init__(self, side: int, channels: int, key: Array):
        count = 4 if side > 48 else 3 if side == 48 else 2
        # Pictures of a few pixels have nothing left to cut off.
        padding = "VALID" if side >= 16 else "SAME"
        sizes = (channels, *[self.FILTERS] * count)
        self.layers = tuple(
            Conv(a, b, k, stride=1 if n else 2, padding=padding, orthogonal=True)
            for n, (a, b, k) in enumerate(zip(sizes, sizes[1:], jax.random.split(key, count), strict=False))
        )

    def __call__(self, x: Array) -> Array:
        x = x - 0.5
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x


class Patches(eqx.Module):
    """A convolution whose kernel is as wide as its stride: each patch of the picture goes through one matrix."""

    weight: Array  # (side x side x in) x out
    bias: Array
    side: int = eqx.field(static=True)

    def __init__(self, side: int, size_in: int, size_out: int, key: Array):
        make = jax.nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")
        self.weight = make(key, (side * side * size_in, size_out), jnp.float32)
        self.bias = jnp.zeros((size_out,), jnp.float32)
        self.side = side

    def __call__(self, x: Array) -> Array:
        side = self.side
        missing = [-size % side for size in x.shape[1:3]]
        if any(missing):
            x = jnp.pad(x, ((0, 0), (0, missing[0]), (0, missing[1]), (0, 0)), mode="edge")
        count, height, width, channels = x.shape
        x = x.reshape(count, height // side, side, width // side, side, channels).swapaxes(2, 3)
        return x.reshape(count, height // side, width // side, -1) @ self.weight + self.bias


class Light(eqx.Module):
    """For two CPU cores: patches of 4 x 4 pixels, and of 2 x 2 of those, 32 filters each.

    What lies behind is told apart by its place, so nothing is pooled. A matrix product a patch is several times faster
    on a CPU than overlapping convolutions that halve, whose gradients cost most.
    """

    layers: tuple[Patches, ...]

    SIDES = (4, 2)
    FILTERS = 32

    def __init__(self, channels: int, key: Array):
        keys = jax.random.split(key, len(self.SIDES))
        sizes = (channels, *[self.FILTERS] * len(self.SIDES))
        self.layers = tuple(
            Patches(side, a, b, k) for side, a, b, k in zip(self.SIDES, sizes, sizes[1:], keys, strict=False)
        )

    def __call__(self, x: Array) -> Array:
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x


ENCODERS: dict[str, Callable[[Shape, Array], Any]] = {
    "impala": lambda shape, key: Impala(shape[2], key),
    "four": lambda shape, key: Four(min(shape[:2]), shape[2], key),
    "light": lambda shape, key: Light(shape[2], key),
}


class Eyes(eqx.Module):
    """Rows in which pictures lie as plain numbers -> rows in which their codes do."""

    encoders: tuple[Any, ...]  # one for each picture of an observation; a goal's goes through the same
    pieces: tuple[tuple[int, Shape | int], ...] = eqx.field(static=True)

    def __init__(self, read: Layout, key: Array):
        shapes = {number: piece for number, piece in read.pieces if isinstance(piece, tuple)}
        make = ENCODERS[read.make]
        self.encoders = tuple(make(shapes[n], jax.random.fold_in(key, n)) for n in range(len(shapes)))
        self.pieces = read.pieces

    @property
    def reads(self) -> int:
        """Numbers of a row before the eyes."""
        return sum(_numbers(piece) for _, piece in self.pieces)

    @property
    def size(self) -> int:
        """Numbers of a row behind the eyes."""
        return int(jax.eval_shape(Eyes.__call__, self, jnp.zeros((1, self.reads))).shape[-1])

    def __call__(self, x: Array) -> Array:
        found, at = [], 0
        for number, piece in self.pieces:
            part = jax.lax.slice_in_dim(x, at, at + _numbers(piece), axis=-1)
            at += _numbers(piece)
            if isinstance(piece, tuple):
                # Nobody asks how a pixel should change: the gradient of an action beside it stops here.
                image = jax.lax.stop_gradient(part).reshape(-1, *piece)
                part = self.encoders[number](image).reshape(*x.shape[:-1], -1)
            found.append(part)
        return jnp.concatenate(found, axis=-1)


def _numbers(piece: Shape | int) -> int:
    return math.prod(piece) if isinstance(piece, tuple) else piece


def eyes(read: Input, key: Array) -> tuple[Eyes | None, int]:
    """The eyes of a network that reads such rows, where it needs some, and the size of what lies behind them."""
    if not isinstance(read, Layout):
        return None, read
    made = Eyes(read, jax.random.fold_in(key, 0x5EE))  # not one of the keys that the network splits off
    return made, made.size


def see(own: Eyes | None, x: Array) -> Array:
    """What lies behind the eyes of a network; without any, the row itself."""
    return x if own is None else own(x)


# ---- one pair of eyes for all networks -------------------------------------------------------------------------------

NEXT = "next_observation"  # seen, but nothing is learnt from how it looks
Shared = Eyes | tuple[()]  # () where there is nothing to look at
Codes = dict[str, Array]


def shared(cfg: Sighted, spec: Spec, key: Array) -> tuple[Shared, Spec]:
    """The eyes that all networks of the zero-shot half look through, and what they know of the data behind them."""
    own, size = eyes(layout(cfg, spec, "rewards"), key)
    return ((), spec) if own is None else (own, Spec(size, spec.action_dim))


def look(own: Shared, observation: Tree) -> Tree:
    """An observation as networks behind shared eyes take it."""
    return own(join(observation)) if isinstance(own, Eyes) else observation


def coded(own: Shared, batch: Batch) -> tuple[Batch, Callable[[Codes], Any] | None]:
    """The batch with codes in the places of its observations, and the way from their gradients to those of the eyes.

    s and goals teach; s' does not. Without eyes the batch stays as it is, and there is no way.
    """
    if not isinstance(own, Eyes):
        return batch, None
    seen = {name: join(tree) for name, tree in batch.items() if isinstance(tree, Mapping)}
    taught = {name: rows for name, rows in seen.items() if name != NEXT}
    ends = [len(rows) for rows in taught.values()]

    def all_at_once(own: Eyes) -> Codes:
        codes = jnp.split(own(jnp.concatenate(list(taught.values()))), _sums(ends)[:-1])
        return dict(zip(taught, codes, strict=True))

    codes, back = jax.vjp(all_at_once, own)
    after = {name: own(rows) for name, rows in seen.items() if name == NEXT}
    return batch.having(**codes, **after), lambda gradients: back(gradients)[0]


def graded(own: Shared, loss: Callable[..., Any], networks: Any, batch: Batch) -> tuple[Any, Any, Codes]:
    """What a loss of (networks, batch) with something beside it gives, the networks' gradients and those of the codes.

    Without eyes there are no codes, and it is `jax.value_and_grad`.
    """
    if not isinstance(own, Eyes):
        return *jax.value_and_grad(loss, has_aux=True)(networks, batch), {}
    codes = {name: rows for name, rows in batch.items() if name in ("observation", "goal")}
    found, gradients = jax.value_and_grad(
        lambda networks, codes: loss(networks, batch.having(**codes)), argnums=(0, 1), has_aux=True
    )(networks, codes)
    return found, *gradients


def taught_from(lr: float, own: Shared) -> optax.OptState:
    """The optimiser of shared eyes before their first step."""
    return optax.adam(lr).init(own) if isinstance(own, Eyes) else ()


def taught(
    lr: float, own: Shared, opt: optax.OptState, back: Callable[[Codes], Any] | None, *gradients: Codes
) -> tuple[Shared, optax.OptState]:
    """Shared eyes after one step of Adam on the sum of what some losses ask of their codes."""
    if back is None:
        return own, opt
    total = jax.tree.map(lambda *parts: functools.reduce(jnp.add, parts), *gradients)
    updates, opt = optax.adam(lr).update(back(total), opt)
    return optax.apply_updates(own, updates), opt


# ---- random shifts ---------------------------------------------------------------------------------------------------


def augmented(cfg: Any, batch: Batch, key: Array) -> Batch:
    """The batch of an update with its pictures shifted at random, as the config says; vectors stay as they are.

    The key is that of the update: a run that was killed and resumed sees the same shifts.
    """
    kind = getattr(cfg, "augment", "none")
    seen = {name: tree for name, tree in batch.items() if isinstance(tree, Mapping)}
    if kind == "none" or not any(map(_is_picture, jax.tree.leaves(seen))):
        return batch
    key = jax.random.fold_in(key, 0x5F1F7)  # apart from the keys that the update splits off
    found: dict[str, Tree] = {}
    for number, (name, tree) in enumerate(seen.items()):
        own = jax.random.fold_in(key, number) if kind == "apart" else key
        found[name] = trees.over(lambda part, own=own: _shifted(part, own, kind) if _is_picture(part) else part, tree)
    return batch.having(**found)


def _is_picture(part: Array) -> bool:
    return part.dtype == jnp.uint8 and part.ndim >= 4


def _shifted(part: Array, key: Array, kind: str) -> Array:
    """Pictures [batch, ..., height, width, channels], each shifted by its own offset; edges fill what is missing."""
    *around, height, width, channels = part.shape
    pad = PAD if kind == "rows" else min(height, width) // SIDE_A_PIXEL
    key_offsets, key_whether = jax.random.split(key)
    offsets = jax.random.randint(key_offsets, (part.shape[0], 2), 0, 2 * pad + 1)
    if kind == "rows":
        offsets = jnp.where(jax.random.uniform(key_whether) < CROPPED, offsets, pad)
    frames = part.reshape(part.shape[0], -1, height, width, channels)
    frames = jnp.pad(frames, ((0, 0), (0, 0), (pad, pad), (pad, pad), (0, 0)), mode="edge")
    size = (frames.shape[1], height, width, channels)
    cut = jax.vmap(lambda row, by: jax.lax.dynamic_slice(row, (0, by[0], by[1], 0), size))(frames, offsets)
    return cut.reshape(*around, height, width, channels)


def _sums(sizes: list[int]) -> list[int]:
    return [sum(sizes[: n + 1]) for n in range(len(sizes))]
