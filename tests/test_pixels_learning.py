"""Encoders of pictures, where they stand, and random shifts: against what is computed by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hilp
from hilp import testing
from hilp.learning import images, methods, networks
from hilp.learning.sampling import Batch
from hilp.spec import Spec

SPEC = Spec.of({"camera": np.zeros((1, 16, 12, 3), np.uint8), "state": np.zeros((1, 2), np.float32)}, 2)
TRUNKS: dict[str, Any] = {"hidden": (16, 16), "actor_hidden": (16, 16), "batch": 16}


def rows(count: int = 5, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    camera = rng.integers(0, 256, (count, 16, 12, 3), np.uint8)
    return {"camera": camera, "state": rng.normal(size=(count, 2)).astype(np.float32)}


def config(**values: Any) -> Any:
    return methods.config("hilp", **{**TRUNKS, "dim": 4, **values})


@pytest.mark.parametrize("encoder", ["paper", "light"])
def test_a_layout_adds_up_as_sizes_do_and_finds_its_pictures(encoder: str) -> None:
    """Two observations and three numbers: the codes of both pictures by one encoder, the numbers as they are."""
    read = 2 * images.layout(config(encoder=encoder), SPEC) + 3
    own, size = images.image_encoder(read, jax.random.key(0))
    assert own is not None and own.size_in == 2 * SPEC.observation_dim + 3
    s, g, z = rows(seed=1), rows(seed=2), np.ones((5, 3), np.float32)
    seen = np.asarray(own(networks.join(s, networks.join(g), z)))
    assert seen.shape == (5, size)
    codes = [
        np.asarray(own.encoders[0](jnp.asarray(one["camera"], jnp.float32) / 255)).reshape(5, -1) for one in (s, g)
    ]
    wanted = np.concatenate([codes[0], s["state"], codes[1], g["state"], z], axis=1)
    np.testing.assert_allclose(seen, wanted, atol=1e-5)
    segments = np.asarray(own(jnp.stack([networks.join(s, networks.join(g), z)] * 2, axis=1)))
    np.testing.assert_allclose(segments[:, 1], wanted, atol=1e-5)


def test_vectors_have_no_encoder() -> None:
    """And bytes none where a config asks for none."""
    assert images.layout(config(), Spec(7, 2)) == 7
    assert images.layout(config(encoder="none"), SPEC) == SPEC.observation_dim
    assert networks.Trunk(7, (8,), 1, jax.random.key(0)).image_encoder is None


def test_shapes_are_those_of_the_paper() -> None:
    """64 x 64: 2048 numbers behind IMPALA's; 25 x 25 x 32 behind four convolutions, of which only the first halves."""
    spec = Spec.of({"frame": np.zeros((1, 64, 64, 9), np.uint8)}, 1)
    sizes = {}
    for half in ("goals", "rewards"):
        read = images.layout(config(), spec, half)  # type: ignore[arg-type]
        own = jax.eval_shape(lambda read=read: images.ImageEncoder(read, jax.random.key(0)))
        sizes[half] = own.size, sum(leaf.size for leaf in jax.tree.leaves(own))
    nine = 9
    impala = (nine * 9 + 1) * 16 + 2 * (16 * 9 + 1) * 16 + (16 * 9 + 1) * 32 + 5 * (32 * 9 + 1) * 32
    four = (nine * 9 + 1) * 32 + 3 * (32 * 9 + 1) * 32
    assert sizes == {"goals": (8 * 8 * 32, impala), "rewards": (25 * 25 * 32, four)}


def test_patches_are_convolutions() -> None:
    """A kernel as wide as its stride; a picture that does not divide is filled up with its edge."""
    layer = images.Patches(4, 3, 5, jax.random.key(0))
    x = jax.random.uniform(jax.random.key(1), (2, 16, 12, 3))
    kernel = layer.weight.reshape(4, 4, 3, 5)
    wanted = jax.lax.conv_general_dilated(x, kernel, (4, 4), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    np.testing.assert_allclose(layer(x), wanted, atol=1e-5)
    odd = layer(x[:, :15, :10])
    assert odd.shape == (2, 4, 3, 5)
    np.testing.assert_allclose(odd[:, :3, :2], wanted[:, :3, :2], atol=1e-5)


def test_no_gradient_passes_through_a_pixel() -> None:
    """What is asked of an action beside a picture changes nothing about the picture."""
    net = networks.Trunk(images.layout(config(encoder="light"), SPEC) + 2, (8,), 1, jax.random.key(0))
    x = networks.join(rows(), np.ones((5, 2), np.float32))
    slope = np.asarray(jax.grad(lambda x: jnp.sum(net(x)))(x))
    assert not slope[:, : 16 * 12 * 3].any() and slope[:, -2:].any()
    grads = jax.grad(lambda net: jnp.sum(net(x)))(net)
    assert all(np.asarray(leaf).any() for leaf in jax.tree.leaves(grads.image_encoder))


# ---- one encoder for all --------------------------------------------------------------------------------------------


def test_a_shared_encoder_learns_from_all_losses_but_not_from_what_follows() -> None:
    """The gradient is that of both losses through the encoder, with the codes of s' held fixed."""
    cfg = methods.config("sf-hilp", encoder="light", batch=5)
    own, _, behind = images.shared_encoder(cfg, SPEC, jax.random.key(0))
    assert isinstance(own, images.ImageEncoder) and behind.parts == () and behind.observation_dim == own.size
    batch = Batch(observation=rows(seed=1), next_observation=rows(seed=2), goal=rows(seed=3), reached=np.zeros(5, bool))
    weight = jax.random.normal(jax.random.key(1), (own.size,))

    def one(w: Any, seen: Batch) -> tuple[jax.Array, None]:
        return jnp.sum(seen.observation @ w * (seen.goal @ w) + seen.next_observation @ w), None

    def two(w: Any, seen: Batch) -> tuple[jax.Array, None]:
        return jnp.sum(jnp.square(seen.observation @ w)), None

    seen, back = images.encode_batch(own, batch)
    assert back is not None and "reached" in seen
    gradients = [images.value_and_grad_with_codes(own, loss, weight, seen)[2] for loss in (one, two)]
    fixed = jax.lax.stop_gradient(own(networks.join(batch.next_observation)))

    def whole(own: images.ImageEncoder) -> jax.Array:
        s, g = own(networks.join(batch.observation)), own(networks.join(batch.goal))
        return (
            one(weight, Batch(observation=s, goal=g, next_observation=fixed))[0] + two(weight, Batch(observation=s))[0]
        )

    wanted = jax.grad(whole)(own)
    found = back(jax.tree.map(lambda a, b: a + b, *gradients))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-2)


# ---- random shifts ---------------------------------------------------------------------------------------------------


def shifted_by(before: np.ndarray, after: np.ndarray, most: int) -> set[tuple[int, int]]:
    """The shifts that turn one picture into another, its edge filling what is missing."""
    padded = np.pad(before, ((most, most), (most, most), (0, 0)), mode="edge")
    height, width = before.shape[:2]
    places = [(y, x) for y in range(2 * most + 1) for x in range(2 * most + 1)]
    return {at for at in places if np.array_equal(padded[at[0] : at[0] + height, at[1] : at[1] + width], after)}


def test_shifts_of_a_row_are_the_same_for_all_its_pictures() -> None:
    """The goal-conditioned half: half of the batches, up to three pixels; numbers stay."""
    batch = Batch(observation=rows(seed=1), goal=rows(seed=1), action=np.ones((5, 2)))
    moved, still = 0, 0
    for n in range(12):
        found = images.augmented(config(), batch, jax.random.key(n))
        np.testing.assert_array_equal(found.observation["camera"], found.goal["camera"])
        np.testing.assert_array_equal(found.observation["state"], batch.observation["state"])
        assert found.observation["camera"].dtype == jnp.uint8
        pairs = zip(batch.observation["camera"], np.asarray(found.observation["camera"]), strict=True)
        shifts = [shifted_by(before, after, 3) for before, after in pairs]
        assert all(shifts), "each is the picture, shifted"
        still += shifts == [{(3, 3)}] * 5
        moved += len(set(map(frozenset, shifts))) > 1
    assert moved >= 2 and still >= 2 and moved + still == 12
    assert images.augmented(config(augment="none"), batch, jax.random.key(0)) is batch


def test_shifts_of_the_zero_shot_half_are_drawn_apart() -> None:
    """By up to a pixel in 21, of s and of g each its own; a segment's pictures move as one."""
    big = np.random.default_rng(0).integers(0, 256, (4, 42, 42, 3), np.uint8)
    batch = Batch(observation={"camera": big}, goal={"camera": big})
    cfg = methods.config("sf-hilp")
    found = images.augmented(cfg, batch, jax.random.key(0))
    assert not np.array_equal(found.observation["camera"], found.goal["camera"])
    for one in (found.observation, found.goal):
        pairs = zip(big, np.asarray(one["camera"]), strict=True)
        assert all(shifted_by(before, after, 2) for before, after in pairs)
    segment = Batch(observations={"camera": np.stack([big, big], axis=1)})
    twice = images.augmented(cfg, segment, jax.random.key(0)).observations["camera"]
    np.testing.assert_array_equal(twice[:, 0], twice[:, 1])
    vectors = Batch(observation=np.ones((4, 3)))
    assert images.augmented(cfg, vectors, jax.random.key(0)) is vectors


def seeing(count: int = 200) -> hilp.Dataset:
    plain = testing.small_data(count)
    camera = np.random.default_rng(1).integers(0, 256, size=(count, 8, 8, 3), dtype=np.uint8)
    return hilp.Dataset({"camera": camera}, plain.actions, plain.lengths)


@pytest.mark.parametrize("values", [{}, {"schedule": "sequential", "phi_steps": 6, "policy_sees": "phi"}])
def test_shifts_are_the_same_after_a_resumption(values: dict[str, Any], tmp_path: Any) -> None:
    """And a policy that sees through phi acts as it was trained to, from pictures."""
    cfg, data = config(encoder="light", hidden=(16,), actor_hidden=(16,), **values), seeing()
    whole = hilp.pretrain(cfg, data, steps=14, quiet=True, out=tmp_path / "whole")
    hilp.pretrain(cfg, data, steps=9, quiet=True, out=tmp_path / "parts")
    parts = hilp.pretrain(cfg, data, steps=14, quiet=True, out=tmp_path / "parts", resume=True)
    assert whole.fingerprint == parts.fingerprint
    if not values:  # in both stages it is the same shift
        still = hilp.pretrain(methods.configure(cfg, {"augment": "none"}), data, steps=14, quiet=True)
        assert not np.array_equal(still.encode(data.observations), whole.encode(data.observations))
    again = hilp.FoundationPolicy.load(tmp_path / "whole")
    one = {"camera": data.observations["camera"][3]}
    np.testing.assert_array_equal(again.act(one, again.goal(one)), whole.act(one, whole.goal(one)))


def test_a_policy_sees_through_phi_only_once_phi_is_trained() -> None:
    with pytest.raises(hilp.HilpError, match="sequential schedule only"):
        config(policy_sees="phi")


def test_what_a_policy_sees_through_phi_is_phi_without_its_last_layer() -> None:
    phi = networks.Trunk(7, (8, 8), 3, jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (100, 7))
    np.testing.assert_allclose(phi.out(phi.features(x)), phi(x), atol=1e-5)
