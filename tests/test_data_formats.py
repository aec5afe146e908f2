"""Every format, written with its real library in its exact layout, reads back to the same transitions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

import hilp
from data_samples import (
    LENGTHS,
    d4rl_arrays,
    end_flags,
    last_rows,
    ogbench_arrays,
    walk,
    write_exorl,
    write_hdf5,
    write_minari,
)
from hilp.data import load, subprocess_reader
from hilp.data import source as sources
from hilp.data.measures import StepSizes, jumps
from hilp.errors import HilpError

ROWS = sum(LENGTHS)


@pytest.fixture(autouse=True)
def minari_store(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    return tmp_path / "store"


def assert_walks(data: hilp.Dataset, lengths: tuple[int, ...] = LENGTHS) -> None:
    """The data set holds exactly the transitions of `walk`."""
    expected = walk(lengths)
    assert data.lengths.tolist() == list(lengths)
    assert data.observations.dtype == data.actions.dtype == np.float32
    np.testing.assert_array_equal(data.observations, expected["observations"])
    rows = data.transition_rows
    np.testing.assert_array_equal(data.actions[rows], expected["actions"][rows])


# ---- D4RL ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"compression": "gzip", "chunks": True}, {"compression": "lzf", "shuffle": True}])
def test_d4rl(tmp_path, how):
    data = hilp.load(write_hdf5(tmp_path / "walks.hdf5", d4rl_arrays(), **how))
    assert_walks(data)
    assert data.format == "d4rl"
    assert data.endings == {"terminal": 0, "timeout": 5, "both": 0, "cut": 0}
    assert set(data.extras) == {"rewards", "terminals", "timeouts", "infos/qpos"}
    np.testing.assert_array_equal(data.extra("rewards"), np.arange(ROWS))
    assert data.extra("infos/qpos").dtype == np.float64
    assert any("metadata/algorithm" in note for note in data.notes)


def test_d4rl_in_double_precision_and_without_timeouts(tmp_path):
    arrays = d4rl_arrays(terminals=end_flags(LENGTHS))
    arrays |= {
        "observations": arrays["observations"].astype(np.float64),
        "actions": arrays["actions"].astype(np.float64),
    }
    arrays.pop("timeouts")
    data = hilp.load(write_hdf5(tmp_path / "walks.hdf5", arrays))
    assert_walks(data)
    assert data.endings["terminal"] == 5


def test_d4rl_terminal_and_timeout_in_the_same_row_end_one_episode(tmp_path):
    terminals, timeouts = end_flags(LENGTHS), end_flags(LENGTHS)
    terminals[last_rows(LENGTHS)[0]] = False
    timeouts[last_rows(LENGTHS)[1]] = False
    data = hilp.load(write_hdf5(tmp_path / "walks.hdf5", d4rl_arrays(terminals=terminals, timeouts=timeouts)))
    assert_walks(data)
    assert data.endings == {"terminal": 1, "timeout": 1, "both": 3, "cut": 0}


def test_d4rl_files_may_stop_in_the_middle_of_an_episode(tmp_path):
    timeouts = end_flags(LENGTHS)
    timeouts[-1] = False
    data = hilp.load(write_hdf5(tmp_path / "walks.hdf5", d4rl_arrays(timeouts=timeouts)))
    assert_walks(data)
    assert data.endings["cut"] == 1


def test_d4rl_episodes_of_one_row_are_left_out_and_said_so(tmp_path):
    data = hilp.load(write_hdf5(tmp_path / "walks.hdf5", d4rl_arrays((4, 1, 3, 1))))
    assert data.lengths.tolist() == [4, 3]
    np.testing.assert_array_equal(data.observations[4:], walk((4, 1, 3, 1))["observations"][5:8])
    assert "left out 2 episodes of a single row (no transition): numbers 1, 3" in data.notes
    assert data.endings == {"terminal": 0, "timeout": 2, "both": 0, "cut": 0}


LONG = (40, 55, 30, 62)


def test_d4rl_wrong_timeouts_are_mended_by_jumps(tmp_path):
    late = np.roll(end_flags(LONG), 1)  # every flag a row too late, as in some files
    path = write_hdf5(tmp_path / "walks.hdf5", d4rl_arrays(LONG, timeouts=late))
    wrong = hilp.load(path)
    starts = walk(LONG)["observations"]
    crossing = [
        r for r in wrong.transition_rows if np.linalg.norm(wrong.observations[r + 1] - wrong.observations[r]) > 20
    ]
    assert crossing, "without detection some transitions lead from one episode into the next"
    data = hilp.load(path, detect_jumps=True)
    steps = data.observations[data.transition_rows + 1] - data.observations[data.transition_rows]
    assert np.linalg.norm(steps, axis=1).max() < 20
    assert data.rows > len(starts) - 10
    assert any("cut at 3 jumps" in note and "3 of them not flagged" in note for note in data.notes)


def test_d4rl_without_any_flags_needs_jumps(tmp_path):
    arrays = d4rl_arrays(LONG)
    arrays.pop("timeouts"), arrays.pop("terminals")
    path = write_hdf5(tmp_path / "walks.hdf5", arrays)
    with pytest.raises(HilpError, match="nothing says where episodes end"):
        hilp.load(path)
    with pytest.raises(HilpError, match=r"nothing says where episodes end \(no terminals, no timeouts\): pass detect_"):
        hilp.load(path, format="d4rl")
    assert_walks(hilp.load(path, format="d4rl", detect_jumps=True), LONG)


def test_antmaze_cuts_at_timeouts_and_never_at_terminals(tmp_path):
    terminals = np.zeros(sum(LONG), bool)
    terminals[[10, 11, 12, 13, 70, 71]] = True  # at the goal; the walk goes on
    path = write_hdf5(tmp_path / "walks.hdf5", d4rl_arrays(LONG, terminals=terminals))
    plain = hilp.load(path)
    assert plain.episodes > len(LONG)
    assert any("convention='antmaze'" in note for note in plain.notes)
    data = hilp.load(path, convention="antmaze")
    assert_walks(data, LONG)
    assert data.endings == {"terminal": 0, "timeout": 4, "both": 0, "cut": 0}
    np.testing.assert_array_equal(data.extra("terminals"), terminals)


def test_antmaze_without_timeouts_cuts_at_jumps_of_the_place(tmp_path):
    arrays = d4rl_arrays(LONG, terminals=np.ones(sum(LONG), bool))
    arrays.pop("timeouts")
    data = hilp.load(write_hdf5(tmp_path / "walks.hdf5", arrays), convention="antmaze")
    assert_walks(data, LONG)
    assert data.endings["cut"] == 4


def test_kitchen_keeps_the_first_thirty_numbers(tmp_path):
    rows = np.random.default_rng(0).normal(size=(ROWS, 60)).astype(np.float32)
    path = write_hdf5(tmp_path / "kitchen.hdf5", d4rl_arrays(observations=rows))
    plain = hilp.load(path)
    assert plain.observation_dim == 60 and any("convention='kitchen'" in note for note in plain.notes)
    data = hilp.load(path, convention="kitchen")
    np.testing.assert_array_equal(data.observations, rows[:, :30])
    with pytest.raises(HilpError, match="Kitchen files have rows of 60 numbers, this one has 3"):
        hilp.load(write_hdf5(tmp_path / "walks.hdf5", d4rl_arrays()), convention="kitchen")


def test_d4rl_next_observations_are_not_stored_twice(tmp_path):
    arrays = d4rl_arrays()
    data = hilp.load(write_hdf5(tmp_path / "walks.hdf5", {**arrays, "next_observations": arrays["observations"]}))
    assert_walks(data)
    assert "next_observations" not in data.extras and any("next_observations are not used" in n for n in data.notes)


def test_d4rl_takes_dicts_and_npz_too(tmp_path):
    arrays = d4rl_arrays()
    arrays.pop("metadata/algorithm")
    assert_walks(hilp.load(arrays, format="d4rl"))
    np.savez(tmp_path / "walks.npz", **{name.replace("/", "_"): array for name, array in arrays.items()})
    assert_walks(hilp.load(tmp_path / "walks.npz", format="d4rl"))


def test_jumps_ignore_one_spiking_column_and_columns_that_rest():
    rng = np.random.default_rng(0)
    rows = np.cumsum(rng.normal(size=(500, 8)), axis=0)
    rows[:, 6] = rng.random(500) < 0.05  # a flag that flips now and then
    rows[200, 7] += 1e6  # a sensor's spike
    rows[300:] += 500.0  # a reset
    steps = StepSizes()
    for start in range(0, 500, 64):
        steps.add(rows[start : start + 64])
    assert len(steps.sizes) == 499
    assert jumps(steps.sizes).tolist() == [299]


# ---- OGBench ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_ogbench_train_and_validation(tmp_path, save):
    save(tmp_path / "walks-v0.npz", **ogbench_arrays())
    save(tmp_path / "walks-v0-val.npz", **ogbench_arrays((4, 6)))
    data = hilp.load(tmp_path / "walks-v0.npz")
    assert_walks(data)
    assert data.format == "ogbench" and set(data.extras) == {"qpos", "qvel"}
    for path in (tmp_path / "walks-v0.npz", tmp_path / "walks-v0-val.npz"):
        assert_walks(hilp.load(path, split="val"), (4, 6))
        assert_walks(hilp.load(path, split="train"))
    with pytest.raises(HilpError, match="split is 'train' or 'val'"):
        hilp.load(tmp_path / "walks-v0.npz", split="test")
    (tmp_path / "walks-v0-val.npz").unlink()
    with pytest.raises(HilpError, match=r"there is no file .*-val\.npz"):
        hilp.load(tmp_path / "walks-v0.npz", split="val")


def test_ogbench_images_and_single_rows(tmp_path):
    arrays = {**ogbench_arrays((3, 1, 4)), "observations": np.arange(8 * 48, dtype=np.uint8).reshape(8, 4, 4, 3)}
    np.savez(tmp_path / "visual.npz", **arrays)
    seen = hilp.load(tmp_path / "visual.npz")
    assert seen.lengths.tolist() == [3, 4] and seen.observations["pixels"].dtype == np.uint8
    np.testing.assert_array_equal(seen.observations["pixels"][3:], arrays["observations"][4:])
    data = hilp.load(tmp_path / "visual.npz", flatten=True)
    assert data.lengths.tolist() == [3, 4] and data.observations.dtype == np.uint8
    np.testing.assert_array_equal(data.observations[3:], arrays["observations"][4:].reshape(4, -1))


# ---- plain files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["npz", "hdf5"])
def test_plain_files_with_their_own_names(tmp_path, kind):
    arrays = walk()
    own = {
        "robot/qpos": arrays["observations"][:, :2],
        "robot/qvel": arrays["observations"][:, 2:].astype(np.float64),
        "ctrl": arrays["actions"],
        "done": end_flags(LENGTHS),
        "volts": np.arange(ROWS),
        "rate": np.float64(50.0),
    }
    columns = {"observations": ["robot/qpos", "robot/qvel"], "actions": "ctrl", "terminals": "done"}
    path = tmp_path / f"log.{kind}"
    if kind == "npz":
        np.savez(path, **own)
    else:
        write_hdf5(path, own)
    data = hilp.load(path, columns=columns)
    assert_walks(data)
    assert data.format == kind and set(data.extras) == {"volts"}
    assert any("rate" in note for note in data.notes)
    with pytest.raises(HilpError, match=r"there is no 'observations' array among: .* \(say which it is with columns="):
        hilp.load(path)
    with pytest.raises(HilpError, match="there is no array 'controls' for actions: did you mean 'ctrl'"):
        hilp.load(path, columns={**columns, "actions": "controls"})


def test_plain_files_in_every_layout(tmp_path):
    arrays = walk()
    inner = np.flatnonzero(~end_flags(LENGTHS))
    np.savez_compressed(tmp_path / "short.npz", **{**arrays, "actions": arrays["actions"][inner]})
    whole = {
        "observations": arrays["observations"][inner],
        "next_observations": arrays["observations"][inner + 1],
        "actions": arrays["actions"][inner],
        "episode_lengths": np.array(LENGTHS) - 1,
    }
    write_hdf5(tmp_path / "whole.hdf5", whole)
    np.savez_compressed(tmp_path / "whole.npz", **whole)
    for name in ("short.npz", "whole.hdf5", "whole.npz"):
        assert_walks(hilp.load(tmp_path / name))


def test_arrays_stored_column_by_column_read_the_same(tmp_path):
    arrays = walk()
    np.savez(tmp_path / "fortran.npz", **{name: np.asfortranarray(array) for name, array in arrays.items()})
    assert_walks(hilp.load(tmp_path / "fortran.npz"))


def test_small_blocks_of_compressed_files_read_the_same(tmp_path, monkeypatch):
    inner = np.flatnonzero(~end_flags(LENGTHS))
    arrays = walk()
    whole = {
        "observations": arrays["observations"][inner],
        "next_observations": arrays["observations"][inner + 1],
        "actions": arrays["actions"][inner],
        "episode_lengths": np.array(LENGTHS) - 1,
    }
    np.savez_compressed(tmp_path / "whole.npz", **whole)
    opened: list[str] = []
    open_member = zipfile.ZipFile.open
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda z, m, *a: opened.append(m.filename) or open_member(z, m, *a))
    monkeypatch.setattr(sources, "MOST_BLOCK_ROWS", 2)
    assert_walks(hilp.load(tmp_path / "whole.npz", format="npz"))
    assert opened.count("next_observations.npy") == 2, "once for its header and once for all of its blocks"


def test_files_with_python_objects_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "evil.npz", **walk(), payload=np.array([{"a": 1}], dtype=object))
    with pytest.raises(HilpError, match="holds Python objects, which hilp never loads"):
        hilp.load(tmp_path / "evil.npz")


def test_data_in_other_hdf5_files_is_not_followed(tmp_path):
    secret = write_hdf5(tmp_path / "secret.hdf5", {"observations": walk()["observations"]})
    path = write_hdf5(tmp_path / "walks.hdf5", {n: a for n, a in d4rl_arrays().items() if n != "observations"})
    with h5py.File(path, "a") as file:
        file["observations"] = h5py.ExternalLink(secret.name, "observations")
    with pytest.raises(HilpError, match="there is no 'observations' array"):
        hilp.load(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("log.txt", b"x y\n1 2\n", "is not a file hilp can read: it reads .npz, HDF5, CSV and Parquet files"),
        ("log.csv", b"x,y\n1,2\n", r"there is no 'observations' array among: x, y \(say which it is with columns="),
        ("empty.npz", b"", "is not a file hilp can read"),
        ("cut.npz", b"PK\x03\x04 and nothing else", "cannot be read as .npz"),
        ("cut.hdf5", b"\x89HDF\r\n\x1a\n and nothing else", "cannot be read"),
    ],
)
def test_other_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(HilpError, match=message):
        hilp.load(tmp_path / name)


def test_format_overrides_what_was_recognised(tmp_path):
    np.savez(tmp_path / "walks.npz", **ogbench_arrays())
    assert hilp.load(tmp_path / "walks.npz").format == "ogbench"
    assert hilp.load(tmp_path / "walks.npz", format="npz").format == "npz"
    with pytest.raises(HilpError, match=r"dataset\.json cannot be read"):
        hilp.load(tmp_path / "walks.npz", format="native")


# ---- ExORL -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", [False, True])
def test_exorl(tmp_path, compressed, monkeypatch):
    folder = write_exorl(tmp_path / "walker" / "rnd", compressed=compressed)
    for block in (3, 1 << 16):
        monkeypatch.setattr(sources, "MOST_BLOCK_ROWS", block)
        data = hilp.load(folder)
        assert_walks(data)
        assert data.format == "exorl" and set(data.extras) == {"reward", "discount", "physics"}
        np.testing.assert_array_equal(data.extra("physics"), 2 * walk()["observations"].astype(np.float64))
        # reward[i] was recorded with observation[i], the state its action led to
        after = data.extra("reward")[data.transition_rows + 1, 0]
        assert after[:6].tolist() == [1, 2, 3, 4, 5, 6]
        assert not data.actions[last_rows(LENGTHS)].any()
    assert hilp.load(folder / "buffer").fingerprint == data.fingerprint


def test_exorl_reads_the_first_episodes_in_the_order_of_names(tmp_path):
    folder = write_exorl(tmp_path / "rnd")
    data = hilp.load(folder, episodes=2, extras=["physics"])
    assert data.lengths.tolist() == list(LENGTHS[:2]) and set(data.extras) == {"physics"}
    np.testing.assert_array_equal(data.observations, walk()["observations"][:10])
    with pytest.raises(HilpError, match="has no extra column 'physic': did you mean 'physics'"):
        hilp.load(folder, extras=["physic"])
    with pytest.raises(HilpError, match="episodes must be"):
        hilp.load(folder, episodes=0)


def test_exorl_files_without_a_transition_are_left_out(tmp_path):
    data = hilp.load(write_exorl(tmp_path / "rnd", (3, 1, 4)))
    assert data.lengths.tolist() == [3, 4] and any("left out 1 episodes of a single row" in note for note in data.notes)


def test_exorl_opens_only_the_columns_that_are_needed(tmp_path):
    folder = write_exorl(tmp_path / "rnd")
    for file in (folder / "buffer").glob("*.npz"):
        with zipfile.ZipFile(file) as archive:
            at = archive.getinfo("physics.npy").header_offset
        content = file.read_bytes()
        begin = content.index(b"\x93NUMPY", at)
        file.write_bytes(content[:begin] + b"damaged" + content[begin + 7 :])
    data = hilp.load(folder, extras=["reward"])
    assert_walks(data)
    assert set(data.extras) == {"reward"}
    with pytest.raises(HilpError, match=r"array 'physics' of .* is damaged"):
        hilp.load(folder)


def test_exorl_mistakes_are_named(tmp_path):
    folder = write_exorl(tmp_path / "walker" / "rnd")
    write_exorl(tmp_path / "walker" / "aps")
    with pytest.raises(HilpError, match="holds several ExORL data sets: name one of them, aps, rnd"):
        hilp.load(tmp_path / "walker")
    files = sorted((folder / "buffer").glob("*.npz"))
    with pytest.raises(HilpError, match="is one episode of an ExORL folder: give the folder"):
        hilp.load(files[0])
    with np.load(files[1]) as episode:
        arrays = dict(episode)
    np.savez(files[1], **{**arrays, "observation": arrays["observation"][:, :2]})
    with pytest.raises(HilpError, match=rf"{files[1].name} has other columns than .*: observations is"):
        hilp.load(folder)
    np.savez(files[1], **{name: array for name, array in arrays.items() if name != "physics"})
    with pytest.raises(HilpError, match=rf"{files[1].name} has no extra column 'physics'"):
        hilp.load(folder)
    files[1].write_bytes(files[1].read_bytes()[:-40])
    with pytest.raises(HilpError, match=rf"{files[1].name} cannot be read as .npz"):
        hilp.load(folder)


# ---- Minari ----------------------------------------------------------------------------------------------------------


def test_minari_by_id_and_by_folder(minari_store):
    write_minari("walks/plain-v0")
    data = hilp.load("walks/plain-v0")
    assert_walks(data)
    assert data.format == "minari" and data.name == "Minari walks/plain-v0"
    np.testing.assert_array_equal(data.extra("rewards")[:7], [0, 1, 2, 3, 4, 5, 0])
    np.testing.assert_array_equal(data.extra("infos/qpos")[:7, 0], np.arange(7))
    assert {"terminations", "truncations"} <= set(data.extras)
    for folder in (minari_store / "walks" / "plain-v0", minari_store / "walks" / "plain-v0" / "data"):
        assert hilp.load(folder).fingerprint == data.fingerprint
    with pytest.raises(HilpError, match="did you mean 'walks/plain-v0'"):
        hilp.load("walks/plan-v0")
    with pytest.raises(HilpError, match="is a part of a Minari data set: give its folder or its id"):
        hilp.load(minari_store / "walks" / "plain-v0" / "data" / "main_data.hdf5")
    with pytest.raises(HilpError, match="observations are one array"):
        hilp.load("walks/plain-v0", observation_keys=["position"])


def test_minari_dict_observations_by_named_keys(minari_store, monkeypatch):
    write_minari("walks/parts-v0", parts=True)
    with pytest.raises(HilpError, match=r"choose with observation_keys=.* from camera, inner/velocity, position"):
        hilp.load("walks/parts-v0")
    for block in (2, 1 << 16):
        monkeypatch.setattr(sources, "MOST_BLOCK_ROWS", block)
        data = hilp.load("walks/parts-v0", observation_keys=["position", "inner/velocity"])
        assert_walks(data)
        assert data.extra("observations/camera").shape == (ROWS, 4, 4, 3)
    with pytest.raises(HilpError, match="there is no observation key 'positon': did you mean 'position'"):
        hilp.load("walks/parts-v0", observation_keys=["positon"])
    for block in (2, 1 << 16):
        monkeypatch.setattr(sources, "MOST_BLOCK_ROWS", block)
        seen = hilp.load("walks/parts-v0", observation_keys=["camera", "position"], extras=())
        assert {name: (part.shape[1:], part.dtype.name) for name, part in seen.observations.items()} == {
            "camera": ((4, 4, 3), "uint8"),
            "position": ((2,), "float32"),
        }
        np.testing.assert_array_equal(seen.observations["camera"], data.extra("observations/camera"))
    images = hilp.load("walks/parts-v0", observation_keys="camera", flatten=True, extras=())
    assert images.observations.dtype == np.uint8 and images.observation_dim == 48 and not images.extras


def test_minari_with_discrete_actions_says_how_many(minari_store):
    import minari
    from gymnasium.spaces import Box, Discrete
    from minari.data_collector.episode_buffer import EpisodeBuffer

    buffer = EpisodeBuffer(
        observations=np.zeros((4, 2), np.float32),
        actions=np.zeros(3, np.int64),
        rewards=np.zeros(3),
        terminations=np.zeros(3, bool),
        truncations=np.ones(3, bool),
    )
    space = Box(-1, 1, (2,), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers("d-v0", [buffer], observation_space=space, action_space=Discrete(3))
    data = hilp.load("d-v0")
    assert data.choices == 3 and data.actions.dtype == np.uint8


def test_minari_never_builds_the_simulator_a_file_names(minari_store):
    import json

    write_minari("walks-v0")
    file = minari_store / "walks-v0" / "data" / "metadata.json"
    about = json.loads(file.read_text())
    del about["observation_space"]
    about["env_spec"] = '{"id": "Evil-v0", "entry_point": "os:system"}'
    file.write_text(json.dumps(about))
    with pytest.raises(HilpError, match="has no observation_space and action_space"):
        hilp.load("walks-v0")


# ---- the child that reads HDF5 ---------------------------------------------------------------------------------------


def test_a_child_that_crashes_is_an_error_and_the_next_file_reads(tmp_path):
    path = write_hdf5(tmp_path / "walks.hdf5", d4rl_arrays())
    source = load.open_source(path)
    assert subprocess_reader._child is not None
    os.kill(subprocess_reader._child.pid, signal.SIGKILL)
    with pytest.raises(HilpError, match="the HDF5 library crashes on it: restore it from a copy"):
        source.read(0, 5)
    assert_walks(hilp.load(path))


def test_a_child_that_stalls_is_stopped(tmp_path, monkeypatch):
    path = write_hdf5(tmp_path / "walks.hdf5", d4rl_arrays())
    source = load.open_source(path)
    monkeypatch.setattr(subprocess_reader, "STALL_SECONDS", 0.3)
    assert subprocess_reader._child is not None
    os.kill(subprocess_reader._child.pid, signal.SIGSTOP)
    with pytest.raises(HilpError, match="takes for ever"):
        source.read(0, 5)
    monkeypatch.undo()
    assert_walks(hilp.load(path))


def test_the_child_ends_with_its_parent(tmp_path):
    path = write_hdf5(tmp_path / "walks.hdf5", d4rl_arrays())
    script = (
        "import sys, os, hilp\nfrom hilp.data import subprocess_reader\nhilp.load(sys.argv[1])\n"
        "assert 'h5py' not in sys.modules and 'jax' not in sys.modules\n"
        "print(subprocess_reader._child.pid)\nsys.stdout.flush()\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    path = write_hdf5(tmp_path / "walks.hdf5", d4rl_arrays())
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "h5py.py").write_text("raise ModuleNotFoundError('No module named h5py', name='h5py')")
    subprocess_reader.let_go()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "shadow"), *sys.path])
    with pytest.raises(HilpError, match=r"needs h5py: pip install 'hilp\[formats\]'"):
        hilp.load(path)
    subprocess_reader.let_go()


def test_a_bounce_is_no_jump():
    """Off walls of a box velocities turn, in corners all of them; a reset moves places, too."""
    rng = np.random.default_rng(0)
    at, v, rows = np.array([0.0, 0.3]), np.array([0.011, 0.008]), []
    for row in range(1200):
        rows.append([*at, *v])
        if row == 800:
            at, v = np.array([-0.9, 0.7]), np.array([0.012, -0.009])  # a reset
        v = np.where(np.abs(at + v) > 1.0, -v, v) + rng.uniform(-1e-4, 1e-4, 2)
        at = at + v
    rows[501:] = [[*row[:2], -row[2], -row[3]] for row in rows[501:]]  # in a corner
    steps = StepSizes()
    steps.add(np.array(rows))
    assert jumps(steps.sizes).tolist() == [800]


@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_a_reset_to_a_mirrored_place_is_a_jump(shift):
    """50 walks from (-1, -1) to (1, 1) in a log without ends of episodes."""
    walk = np.linspace(-1, 1, 40)[:, None] * np.ones(2) + shift
    steps = StepSizes()
    steps.add(np.concatenate([walk] * 50))
    assert jumps(steps.sizes).tolist() == list(range(39, 1999, 40))
