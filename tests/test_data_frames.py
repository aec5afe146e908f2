"""Stacks of frames: built when rows are asked for, each frame stored once, on the host as on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import hilp
from hilp.data import dataset as native
from hilp.data.convert import convert
from hilp.data.dataset import Dataset
from hilp.data.transforms import Frames, Recent, firsts, stacked
from hilp.errors import HilpError
from hilp.learning import methods, sampling
from hilp.training.options import TrainOptions
from hilp.training.run import Run

LENGTHS = np.array([4, 2, 5])
ROWS = int(LENGTHS.sum())


def film() -> Dataset:
    rng = np.random.default_rng(0)
    seen = {"camera": rng.integers(0, 256, (ROWS, 6, 5, 3), np.uint8), "state": rng.normal(size=(ROWS, 2))}
    actions = rng.uniform(-1, 1, (ROWS, 2))
    return hilp.load({"observations": seen, "actions": actions, "episode_lengths": LENGTHS})


def by_hand(data: Dataset, count: int) -> np.ndarray:
    """Stacks as a loop over episodes makes them: the first frame stands in for those before it."""
    found = []
    for rows in data.iter_episodes():
        episode = data.observations["camera"][rows]
        for t in range(len(episode)):
            found.append(np.concatenate([episode[max(0, t - back)] for back in range(count - 1, -1, -1)], axis=-1))
    return np.stack(found)


@pytest.mark.parametrize("count", [2, 3])
def test_stacks_are_those_of_a_loop_over_episodes(count: int) -> None:
    data = film()
    seen = data.in_frames(count)
    wanted = by_hand(data, count)
    frames = seen.observations["camera"]
    assert isinstance(frames, Frames) and frames.stored is data.observations["camera"]
    assert frames.shape == wanted.shape and frames.dtype == np.uint8 and len(frames) == ROWS
    np.testing.assert_array_equal(np.asarray(frames), wanted)
    np.testing.assert_array_equal(frames[2:7], wanted[2:7])
    np.testing.assert_array_equal(frames[5], wanted[5])
    rows = np.array([[0, 4], [6, 10]])
    np.testing.assert_array_equal(frames[rows], wanted[rows])
    np.testing.assert_array_equal(frames[-1], wanted[-1])
    np.testing.assert_array_equal(frames[[0, -2]], wanted[[0, -2]])
    np.testing.assert_array_equal(frames[np.arange(ROWS) % 2 == 0], wanted[::2])
    assert seen.observations["state"] is data.observations["state"]
    assert seen.observation_dim == 6 * 5 * 3 * count + 2
    assert firsts(LENGTHS).tolist() == [0] * 4 + [4] * 2 + [6] * 5


def test_an_episode_that_runs_sees_what_data_of_it_does() -> None:
    data = film()
    wanted = by_hand(data, 3)
    recent = Recent(3)
    for row in range(4):
        found = recent.add(data.observations["camera"][row][None])
        np.testing.assert_array_equal(found[0], wanted[row])


@pytest.mark.parametrize("budget", [None, 0])
def test_batches_hold_stacks_on_the_device_and_streamed(budget: int | None) -> None:
    data = film().in_frames(3)
    run = Run(
        methods.config("gc-bc", actor_hidden=(8,), batch=16, encoder="light"),
        data,
        TrainOptions(1, device_budget=budget),
    )
    if budget == 0:
        run.enter(0, run.fresh)
        assert run.stream is not None
        batch = jax.tree.map(lambda leaf: leaf[0], run.stream.block(run.index, 0))
        key = jax.random.split(jax.random.fold_in(run.keys, 1))[0]
        rows = run.stages[0].sample(run.config, run.index, key)
    else:
        rows = run.stages[0].sample(run.config, run.index, jax.random.key(4))
        batch = jax.jit(sampling.gather)(run.columns, rows)
    numbers = np.asarray(rows.columns["observations"]["observation"])
    assert batch.observation["camera"].dtype == np.uint8
    np.testing.assert_array_equal(batch.observation["camera"], by_hand(film(), 3)[numbers])
    assert run._bytes_on_device() < 2 * ROWS * (6 * 5 * 3 + 2 * 4 + 2 * 4)


def test_folders_hold_each_frame_once(tmp_path: Path) -> None:
    data = film()
    seen = data.in_frames(3)
    folder = seen.save(tmp_path / "film")
    assert native.read_manifest(folder)["frames"] == 3
    assert np.load(folder / native.file_name("observations/camera")).shape == (ROWS, 6, 5, 3)
    again = hilp.load(folder)
    np.testing.assert_array_equal(np.asarray(again.observations["camera"]), by_hand(data, 3))
    assert isinstance(again.observations["camera"].stored, np.memmap)
    assert again.fingerprint == seen.fingerprint != data.fingerprint
    assert native.read_manifest(folder)["fingerprint"] == seen.fingerprint
    copy = hilp.load(convert(folder, tmp_path / "copy"))
    assert copy.fingerprint == seen.fingerprint and copy.frames == 3
    few = hilp.load(folder, episodes=2)
    np.testing.assert_array_equal(np.asarray(few.observations["camera"]), by_hand(data, 3)[:6])
    assert hilp.load(folder, frames=1).fingerprint == data.fingerprint
    chosen = seen.select(np.array([2, 0]))
    wanted = np.concatenate([by_hand(data, 3)[6:], by_hand(data, 3)[:4]])
    np.testing.assert_array_equal(np.asarray(chosen.observations["camera"]), wanted)


def test_a_policy_of_stacks_is_trained_saved_and_asked(tmp_path: Path) -> None:
    """It takes stacks as they are, and keeps some in its bank."""
    data = film().in_frames(2)
    policy = hilp.pretrain(
        methods.config("gc-bc", actor_hidden=(8,), batch=8, encoder="light"), data, steps=2, quiet=True
    )
    policy.save(tmp_path / "policy")
    again = hilp.FoundationPolicy.load(tmp_path / "policy")
    one: dict[str, Any] = {name: part[3] for name, part in data.observations.items()}
    assert again.spec.parts[0] == ("camera", (6, 5, 6), "uint8")
    np.testing.assert_array_equal(again.act(one, again.goal(one)), policy.act(one, policy.goal(one)))
    with pytest.raises(HilpError, match=r"'camera' of an observation is \(6, 5, 6\)"):
        again.act({name: part[3] for name, part in film().observations.items()})


def test_mistakes_are_named() -> None:
    data = film()
    with pytest.raises(HilpError, match="from 1 to 64, not 0"):
        data.in_frames(0)
    named = {"observations": {"arm": np.zeros((4, 2))}, "actions": np.zeros((4, 1)), "episode_lengths": [4]}
    with pytest.raises(HilpError, match="stacks pictures, or one vector, and these observations are vectors by name"):
        hilp.load(named, frames=2)
    with pytest.raises(HilpError, match="neighbouring rows"):
        hilp.load(data.in_frames(2), stride=2)
    assert stacked(data.observations, LENGTHS, 1) is data.observations


def test_exorl_from_pixels_as_its_collectors_write_it(tmp_path: Path) -> None:
    """Compressed files of one episode, stacks of three frames, channels first, actions a row late, dummies first."""
    rng, lengths = np.random.default_rng(0), (6, 4)
    buffer = tmp_path / "walker" / "icm_apt" / "buffer"
    buffer.mkdir(parents=True)
    written = []
    for number, length in enumerate(lengths):
        frames = rng.integers(0, 256, (length, 3, 20, 24), np.uint8)
        before = np.maximum(np.arange(length)[:, None] - [2, 1, 0], 0)
        written.append((frames, rng.uniform(-1, 1, (length, 6)).astype(np.float32)))
        np.savez_compressed(
            buffer / f"20211201T00000{number}_{number}_{length - 1}.npz",
            observation=frames[before].reshape(length, 9, 20, 24),
            action=written[-1][1],
            reward=rng.normal(size=(length, 1)).astype(np.float32),
            discount=np.ones((length, 1), np.float32),
        )
    data = hilp.load(buffer.parent)
    assert data.format == "exorl" and data.lengths.tolist() == [6, 4]
    pictures = data.observations["pixels"]
    assert pictures.shape == (10, 20, 24, 9) and pictures.dtype == np.uint8
    first, actions = written[0]
    np.testing.assert_array_equal(pictures[4][..., 6:], first[4].transpose(1, 2, 0))
    np.testing.assert_array_equal(pictures[4][..., :3], first[2].transpose(1, 2, 0))
    np.testing.assert_array_equal(pictures[0][..., :3], pictures[0][..., 6:])
    np.testing.assert_allclose(data.actions[:5], actions[1:], atol=1e-6)
    native = hilp.load(data.save(tmp_path / "native"))
    assert native.fingerprint == data.fingerprint


@pytest.mark.parametrize(
    ("shape", "turned"),
    [((3, 64, 48), True), ((9, 84, 84), True), ((1, 16, 16), True), ((64, 64, 3), False), ((4, 4, 3), False),
     ((3, 2, 64), False), ((64, 48), False), ((12, 64, 3), False)],
)  # fmt: skip
def test_channels_that_come_first_are_known_by_their_number(shape: tuple[int, ...], turned: bool) -> None:
    from hilp.data.tables import channels_first

    assert channels_first(shape) == turned
