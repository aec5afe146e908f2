"""Small data sets, and the files other projects would write for them, made with the real libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import hilp
from hilp.errors import HilpError

LENGTHS = (7, 3, 12, 2, 5)


def walk(lengths: tuple[int, ...] = LENGTHS, width: int = 3, actions: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    """Random walks from far-apart starts: `observations`, `actions` (a row each) and `episode_lengths`."""
    rng = np.random.default_rng(seed)
    paths = [100 * rng.normal(size=width) + np.cumsum(rng.normal(size=(n, width)), axis=0) for n in lengths]
    return {
        "observations": np.concatenate(paths).astype(np.float32),
        "actions": rng.uniform(-1, 1, (sum(lengths), actions)).astype(np.float32),
        "episode_lengths": np.array(lengths),
    }


def outcome(source: Any, **options: Any) -> hilp.Dataset | HilpError:
    """What loading gives: a whole data set, or an error of one line. Anything else fails the test."""
    try:
        data = hilp.load(source, **options)
    except HilpError as error:
        data = error
    if isinstance(data, HilpError):
        assert str(data) and "\n" not in str(data)
    else:
        assert data.lengths.sum() == data.rows == len(data.actions) and data.lengths.min() >= 2
        assert all(len(column) == data.rows for column in data.extras.values())
    return data


def last_rows(lengths: tuple[int, ...] | np.ndarray) -> np.ndarray:
    return np.cumsum(lengths) - 1


def end_flags(lengths: tuple[int, ...] | np.ndarray) -> np.ndarray:
    flags = np.zeros(int(np.sum(lengths)), bool)
    flags[last_rows(lengths)] = True
    return flags


def write_hdf5(path: Path, arrays: dict[str, Any], **how: Any) -> Path:
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, **(how if np.ndim(array) else {}))
    return path


def d4rl_arrays(lengths: tuple[int, ...] = LENGTHS, **changed: Any) -> dict[str, Any]:
    data = walk(lengths)
    rows = sum(lengths)
    return {
        "observations": data["observations"],
        "actions": data["actions"],
        "rewards": np.arange(rows, dtype=np.float32),
        "terminals": np.zeros(rows, bool),
        "timeouts": end_flags(lengths),
        "infos/qpos": data["observations"].astype(np.float64),
        "metadata/algorithm": "SAC",
        **changed,
    }


def ogbench_arrays(lengths: tuple[int, ...] = LENGTHS) -> dict[str, np.ndarray]:
    data = walk(lengths)
    return {
        "observations": data["observations"],
        "actions": data["actions"],
        "terminals": end_flags(lengths).astype(np.float32),
        "qpos": data["observations"][:, :2].astype(np.float64),
        "qvel": data["observations"][:, 1:].astype(np.float64),
    }


def write_exorl(folder: Path, lengths: tuple[int, ...] = LENGTHS, compressed: bool = False) -> Path:
    """`<domain>/<algorithm>` with one file an episode, actions a row late, and dummies in the first row."""
    data = walk(lengths)
    (folder / "buffer").mkdir(parents=True)
    save = np.savez_compressed if compressed else np.savez
    for number, (last, length) in enumerate(zip(last_rows(lengths), lengths, strict=True)):
        rows = slice(last + 1 - length, last + 1)
        dummy = np.zeros((1, data["actions"].shape[1]), np.float32)
        save(
            folder / "buffer" / f"20211201T000000_{number}_{length - 1}.npz",
            observation=data["observations"][rows],
            action=np.concatenate([dummy, data["actions"][rows][:-1]]),
            reward=np.arange(length, dtype=np.float32)[:, None],
            discount=np.ones((length, 1), np.float32),
            physics=data["observations"][rows].astype(np.float64) * 2,
        )
    return folder


def minari_buffers(lengths: tuple[int, ...] = LENGTHS, parts: bool = False) -> list[Any]:
    """Episodes for Minari; `parts` makes dict observations of position, velocity and a picture."""
    from minari.data_collector.episode_buffer import EpisodeBuffer

    data = walk(lengths)
    buffers = []
    for last, length in zip(last_rows(lengths), lengths, strict=True):
        rows = slice(last + 1 - length, last + 1)
        observations: Any = data["observations"][rows]
        if parts:
            observations = {
                "position": observations[:, :2],
                "inner": {"velocity": observations[:, 2:]},
                "camera": np.full((length, 4, 4, 3), int(last) % 256, np.uint8),
            }
        steps = length - 1
        buffers.append(
            EpisodeBuffer(
                observations=observations,
                actions=data["actions"][rows][:-1],
                rewards=np.arange(steps, dtype=np.float64),
                terminations=np.arange(steps) == (steps - 1 if last % 2 else -1),
                truncations=np.arange(steps) == (-1 if last % 2 else steps - 1),
                infos={"qpos": np.arange(length, dtype=np.float64)[:, None]},
            )
        )
    return buffers


def write_minari(name: str, lengths: tuple[int, ...] = LENGTHS, parts: bool = False) -> None:
    """A data set in the local Minari store (MINARI_DATASETS_PATH)."""
    import warnings

    import minari
    from gymnasium.spaces import Box, Dict

    space: Any = Box(-np.inf, np.inf, (3,), np.float32)
    if parts:
        space = Dict(
            {
                "position": Box(-np.inf, np.inf, (2,), np.float32),
                "inner": Dict({"velocity": Box(-np.inf, np.inf, (1,), np.float32)}),
                "camera": Box(0, 255, (4, 4, 3), np.uint8),
            }
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers(
            name,
            minari_buffers(lengths, parts),
            observation_space=space,
            action_space=Box(-1, 1, (2,), np.float32),
        )
