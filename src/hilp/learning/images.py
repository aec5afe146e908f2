"""Images: the encoders in front of networks, and random shifts of what networks see.

An image is a part of an observation of dtype uint8 [height, width, channels]. It stays uint8 until `join` lays a row
out as one vector; a network made for such rows (`Layout`) has an `ImageEncoder`, which finds the images in the vector
and replaces them by their codes. In the goal-conditioned half every network has its own encoder; in the zero-shot half
all networks share one (`encode_batch`, `value_and_grad_with_codes`), trained by all losses but the actor's.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from hilp import trees
from hilp.learning.configs import BaseConfig, SuccessorConfig
from hilp.learning.sampling import Batch
from hilp.spec import Spec
from hilp.trees import Tree

Shape = tuple[int, int, int]  # height, width, channels

PAD = 3  # goal-conditioned half: pixels that an image is shifted by, at most
SHIFTED = 0.5  # goal-conditioned half: share of the batches that are shifted
SIDE_A_PIXEL = 21  # zero-shot half: an image is shifted by its side over this, at most


def join(observation: Tree, *others: Tree) -> Array:
    """One vector a row, as dense layers take it: an observation and more, goals or skills.

    The parts of a named tree are joined in the order of their names; the bytes of an image become numbers from 0 to 1.
    Arrays have one batch axis (a segment's second one is `jax.vmap`'s), because only a plain vector shows where a row
    begins.
    """
    parts: list[Array] = []
    for tree in (observation, *others):
        if not isinstance(tree, Mapping):
            parts.append(tree)
            continue
        for _, part in sorted(tree.items()):
            rows = part.reshape(part.shape[0], -1)
            parts.append(rows.astype(jnp.float32) / 255.0 if part.dtype == jnp.uint8 else rows)
    return jnp.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]


@dataclass(frozen=True)
class Layout:
    """What a network reads in one row, in order: images and runs of plain numbers. It adds up as sizes do.

    `layout + 8` is an observation and 8 numbers, `2 * layout` an observation and a goal.
    """

    pieces: tuple[tuple[int, Shape | int], ...]  # number of an image and its shape, or (-1, how many numbers)
    make: str  # the name of the encoder

    def __add__(self, numbers: int) -> "Layout":
        return replace(self, pieces=(*self.pieces, (-1, numbers)))

    def __rmul__(self, times: int) -> "Layout":
        return replace(self, pieces=self.pieces * times)


Input = int | Layout  # what a network reads


def layout(cfg: BaseConfig, spec: Spec, half: Literal["goals", "rewards"] = "goals") -> Any:
    """What a network reads of an observation: an `Input`, which adds up with sizes; without images, a size.

    half: of the paper, whose encoders differ.
    """
    if not spec.pictures or cfg.encoder == "none":
        return spec.observation_dim
    make = cfg.encoder if cfg.encoder == "light" else {"goals": "impala", "rewards": "four"}[half]
    order = {name: number for number, (name, _) in enumerate(spec.pictures.items())}
    found: list[tuple[int, Shape | int]] = [
        (order[name], spec.pictures[name]) if name in order else (-1, math.prod(shape)) for name, shape, _ in spec.parts
    ]
    return Layout(tuple(found), make)


SCALED = jax.nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")
ORTHOGONAL = jax.nn.initializers.orthogonal(math.sqrt(2.0))


class Conv(eqx.Module):
    """A convolution of 3 x 3 pixels over [batch, height, width, channels]."""

    weight: Array  # height x width x in x out
    bias: Array
    stride: int = eqx.field(static=True)
    padding: str = eqx.field(static=True)

    def __init__(
        self, size_in: int, size_out: int, key: Array, stride: int = 1, padding: str = "SAME", make: Any = SCALED
    ):
        self.weight = make(key, (3, 3, size_in, size_out), jnp.float32)
        self.bias = jnp.zeros((size_out,), jnp.float32)
        self.stride, self.padding = stride, padding

    def __call__(self, x: Array) -> Array:
        strides, axes = (self.stride, self.stride), ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, self.weight, strides, self.padding, dimension_numbers=axes) + self.bias


class Impala(eqx.Module):
    """IMPALA's small network: three stacks of a convolution, a pool that halves, and a residual block."""

    first: tuple[Conv, ...]
    residual: tuple[tuple[Conv, Conv], ...]

    FILTERS = (16, 32, 32)

    def __init__(self, shape: Shape, key: Array):
        sizes = (shape[2], *self.FILTERS)
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

    def __init__(self, shape: Shape, key: Array):
        side = min(shape[:2])
        count = 4 if side > 48 else 3 if side == 48 else 2
        # Images of a few pixels have nothing left to cut off.
        padding = "VALID" if side >= 16 else "SAME"
        sizes = (shape[2], *[self.FILTERS] * count)
        self.layers = tuple(
            Conv(a, b, k, stride=1 if n else 2, padding=padding, make=ORTHOGONAL)
            for n, (a, b, k) in enumerate(zip(sizes, sizes[1:], jax.random.split(key, count), strict=False))
        )

    def __call__(self, x: Array) -> Array:
        x = x - 0.5
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x


class Patches(eqx.Module):
    """A convolution whose kernel is as wide as its stride: each patch of the image goes through one matrix."""

    weight: Array  # (side x side x in) x out
    bias: Array
    side: int = eqx.field(static=True)

    def __init__(self, side: int, size_in: int, size_out: int, key: Array):
        self.weight = SCALED(key, (side * side * size_in, size_out), jnp.float32)
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

    Nothing is pooled, so that places stay apart. A matrix product a patch is several times faster on a CPU than
    overlapping convolutions that halve, whose gradients cost most.
    """

    layers: tuple[Patches, ...]

    SIDES = (4, 2)
    FILTERS = 32

    def __init__(self, shape: Shape, key: Array):
        keys = jax.random.split(key, len(self.SIDES))
        sizes = (shape[2], *[self.FILTERS] * len(self.SIDES))
        layers = zip(self.SIDES, sizes, sizes[1:], keys, strict=False)
        self.layers = tuple(Patches(*layer) for layer in layers)

    def __call__(self, x: Array) -> Array:
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x


ENCODERS: dict[str, Callable[[Shape, Array], Any]] = {"impala": Impala, "four": Four, "light": Light}


class ImageEncoder(eqx.Module):
    """Rows with images as plain numbers -> rows with their codes instead."""

    encoders: tuple[Any, ...]  # one for each image of an observation; the same encodes a goal's image
    pieces: tuple[tuple[int, Shape | int], ...] = eqx.field(static=True)

    def __init__(self, read: Layout, key: Array):
        shapes = {number: piece for number, piece in read.pieces if isinstance(piece, tuple)}
        make = ENCODERS[read.make]
        self.encoders = tuple(make(shapes[n], jax.random.fold_in(key, n)) for n in range(len(shapes)))
        self.pieces = read.pieces

    @property
    def size_in(self) -> int:
        """Numbers of a row before encoding."""
        return sum(_numbers(piece) for _, piece in self.pieces)

    @property
    def size(self) -> int:
        """Numbers of a row after encoding."""
        return int(jax.eval_shape(ImageEncoder.__call__, self, jnp.zeros((1, self.size_in))).shape[-1])

    def __call__(self, x: Array) -> Array:
        found, at = [], 0
        for number, piece in self.pieces:
            part = jax.lax.slice_in_dim(x, at, at + _numbers(piece), axis=-1)
            at += _numbers(piece)
            if isinstance(piece, tuple):
                # Pixels need no gradient: that of an action in the same row stops here.
                image = jax.lax.stop_gradient(part).reshape(-1, *piece)
                part = self.encoders[number](image).reshape(*x.shape[:-1], -1)
            found.append(part)
        return jnp.concatenate(found, axis=-1)


def _numbers(piece: Shape | int) -> int:
    return math.prod(piece) if isinstance(piece, tuple) else piece


def image_encoder(read: Input, key: Array) -> tuple[ImageEncoder | None, int]:
    """The encoder of a network that reads such rows (None without images), and the size of an encoded row."""
    if not isinstance(read, Layout):
        return None, read
    encoder = ImageEncoder(read, jax.random.fold_in(key, 0x5EE))  # not one of the keys that the network splits off
    return encoder, encoder.size


def encode(encoder: ImageEncoder | None, x: Array) -> Array:
    """A row with its images encoded; without an encoder, the row itself."""
    return x if encoder is None else encoder(x)


NEXT = "next_observation"  # encoded, but without a gradient
SharedEncoder = ImageEncoder | tuple[()]  # () without images
Codes = dict[str, Array]


def shared_encoder(cfg: SuccessorConfig, spec: Spec, key: Array) -> tuple[SharedEncoder, optax.OptState, Spec]:
    """The encoder in front of all networks of the zero-shot half, its optimiser, and the spec of encoded data."""
    encoder, size = image_encoder(layout(cfg, spec, "rewards"), key)
    if encoder is None:
        return (), (), spec
    return encoder, optax.adam(cfg.lr).init(encoder), replace(spec, observation_dim=size, parts=())


def encode_observation(encoder: SharedEncoder, observation: Tree) -> Tree:
    """An observation as networks behind a shared encoder take it."""
    return encoder(join(observation)) if isinstance(encoder, ImageEncoder) else observation


def encode_batch(encoder: SharedEncoder, batch: Batch) -> tuple[Batch, Callable[[Codes], Any] | None]:
    """The batch with codes for its observations, and the function from gradients of codes to those of the encoder.

    s and goals train the encoder; s' does not. Without an encoder the batch stays as it is, and there is no function.
    """
    if not isinstance(encoder, ImageEncoder):
        return batch, None
    rows = {name: join(tree) for name, tree in batch.items() if isinstance(tree, Mapping)}
    after = {name: encoder(rows.pop(name)) for name in (NEXT,) if name in rows}

    def all_at_once(encoder: ImageEncoder) -> Codes:
        ends = np.cumsum([len(part) for part in rows.values()])
        return dict(zip(rows, jnp.split(encoder(jnp.concatenate(list(rows.values()))), ends[:-1]), strict=True))

    codes, vjp = jax.vjp(all_at_once, encoder)
    return batch.replace(**codes, **after), lambda gradients: vjp(gradients)[0]


def value_and_grad_with_codes(
    encoder: SharedEncoder, loss: Callable[..., Any], networks: Any, batch: Batch
) -> tuple[Any, Any, Codes]:
    """`loss(networks, batch)` with its auxiliary output, the gradients of the networks and those of the codes.

    Without an encoder there are no codes, and it is `jax.value_and_grad`.
    """
    coded = ("observation", "goal") if isinstance(encoder, ImageEncoder) else ()
    codes = {name: rows for name, rows in batch.items() if name in coded}
    found, gradients = jax.value_and_grad(
        lambda networks, codes: loss(networks, batch.replace(**codes)), argnums=(0, 1), has_aux=True
    )(networks, codes)
    return found, *gradients


def update_encoder(
    lr: float, encoder: SharedEncoder, opt: optax.OptState, to_encoder: Callable[[Codes], Any] | None, *gradients: Codes
) -> tuple[SharedEncoder, optax.OptState]:
    """One step of Adam on the sum of the gradients that some losses have for the codes."""
    if to_encoder is None:
        return encoder, opt
    total = jax.tree.map(lambda *parts: functools.reduce(jnp.add, parts), *gradients)
    updates, opt = optax.adam(lr).update(to_encoder(total), opt)
    return optax.apply_updates(encoder, updates), opt


def augmented(cfg: Any, batch: Batch, key: Array) -> Batch:
    """The batch with its images shifted at random, as the config says; vectors stay as they are.

    The key is that of the update: a run that was killed and resumed has the same shifts.
    """
    kind = getattr(cfg, "augment", "none")
    seen = {name: tree for name, tree in batch.items() if isinstance(tree, Mapping)}
    if kind == "none" or not any(map(_is_image, jax.tree.leaves(seen))):
        return batch
    key = jax.random.fold_in(key, 0x5F1F7)  # apart from the keys that the update splits off
    found: dict[str, Tree] = {}
    for number, (name, tree) in enumerate(seen.items()):
        own = jax.random.fold_in(key, number) if kind == "apart" else key
        found[name] = trees.over(lambda part, own=own: _shifted(part, own, kind) if _is_image(part) else part, tree)
    return batch.replace(**found)


def _is_image(part: Array) -> bool:
    return part.dtype == jnp.uint8 and part.ndim >= 4


def _shifted(part: Array, key: Array, kind: str) -> Array:
    """Images [batch, ..., height, width, channels], each shifted by its own offset; edges fill what is missing."""
    *around, height, width, channels = part.shape
    pad = PAD if kind == "rows" else min(height, width) // SIDE_A_PIXEL
    key_offsets, key_whether = jax.random.split(key)
    offsets = jax.random.randint(key_offsets, (part.shape[0], 2), 0, 2 * pad + 1)
    if kind == "rows":
        offsets = jnp.where(jax.random.uniform(key_whether) < SHIFTED, offsets, pad)
    frames = part.reshape(part.shape[0], -1, height, width, channels)
    frames = jnp.pad(frames, ((0, 0), (0, 0), (pad, pad), (pad, pad), (0, 0)), mode="edge")
    size = (frames.shape[1], height, width, channels)
    cut = jax.vmap(lambda row, by: jax.lax.dynamic_slice(row, (0, by[0], by[1], 0), size))(frames, offsets)
    return cut.reshape(*around, height, width, channels)
