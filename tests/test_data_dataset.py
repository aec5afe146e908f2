"""Datasets and native folders: round trips, fingerprints, extras, damage."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

import hilp
from data_samples import LENGTHS, walk
from hilp.data import dataset as native
from hilp.data import load
from hilp.data.dataset import Dataset
from hilp.errors import HilpError


@pytest.fixture
def data() -> Dataset:
    arrays = walk()
    extras = {
        "rewards": np.arange(len(arrays["observations"])),
        "infos/qpos": arrays["observations"].astype(np.float64),
    }
    return replace(load.from_arrays({**arrays, **extras}), name="walks", task="maze-large", notes=("a note",))


def assert_same(one: Dataset, other: Dataset) -> None:
    assert one.fingerprint == other.fingerprint
    np.testing.assert_array_equal(one.observations, other.observations)
    np.testing.assert_array_equal(one.actions, other.actions)
    np.testing.assert_array_equal(one.lengths, other.lengths)
    assert one.extras.keys() == other.extras.keys()
    for name in one.extras:
        np.testing.assert_array_equal(one.extras[name], other.extras[name])
        assert one.extras[name].dtype == other.extras[name].dtype


def test_rows_transitions_and_episodes(data):
    assert (data.rows, data.episodes, data.transitions) == (sum(LENGTHS), len(LENGTHS), sum(LENGTHS) - len(LENGTHS))
    assert (data.observation_dim, data.action_dim) == (3, 2)
    expected = [row for rows in data.iter_episodes() for row in range(rows.start, rows.stop - 1)]
    np.testing.assert_array_equal(data.transition_rows, expected)


def test_save_and_open_give_the_same_data_memory_mapped(data, tmp_path):
    folder = data.save(tmp_path / "saved")
    mapped = Dataset.open(folder)
    assert isinstance(mapped.observations, np.memmap) and not isinstance(data.observations, np.memmap)
    assert_same(data, mapped)
    assert_same(data, Dataset.open(folder, in_memory=True, verify=True))
    assert (mapped.name, mapped.task, mapped.format, mapped.notes) == ("walks", "maze-large", "native", ("a note",))
    assert hilp.load(folder).fingerprint == data.fingerprint


def test_scaling_of_actions_survives_saving(tmp_path):
    arrays = walk()
    arrays["actions"] = arrays["actions"] * 3 + 1
    scaled = hilp.load(arrays, rescale_actions=True)
    opened = hilp.load(scaled.save(tmp_path / "saved"))
    np.testing.assert_array_equal(opened.action_scaling.center, scaled.action_scaling.center)
    np.testing.assert_array_equal(opened.action_scaling.half_range, scaled.action_scaling.half_range)


def test_fingerprint_sees_observations_actions_and_lengths_only(data):
    assert replace(data, name="other", extras={}).fingerprint == data.fingerprint
    for change in (
        {"observations": data.observations + 1},
        {"actions": -data.actions},
        {"lengths": np.array([10, 2, 10, 2, 5])},
    ):
        assert replace(data, **change).fingerprint != data.fingerprint


def test_plain_data_has_the_fingerprint_and_the_files_it_always_had(tmp_path):
    arrays = {"observations": np.arange(30, dtype=np.float32).reshape(10, 3), "episode_lengths": [4, 6]}
    actions = np.linspace(-1, 1, 20, dtype=np.float32).reshape(10, 2)
    assert hilp.load({**arrays, "actions": actions}).fingerprint == "4493a5f3aa57c5ecf0027c5126aacd91"
    data = hilp.load({**arrays, "actions": 3 * actions, "r": np.arange(10)}, rescale_actions=True)
    folder = data.save(tmp_path / "saved")
    written = {file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:10] for file in folder.iterdir()}
    assert written == {
        "actions.npy": "37d3b033b1",
        "dataset.json": "d2ebd55f48",
        "extra.r.npy": "f314ddddf1",
        "lengths.npy": "b819340def",
        "observations.npy": "5741dfdaa7",
    }


def test_select_keeps_whole_episodes(data):
    part = data.select(np.array([3, 0]))
    assert part.lengths.tolist() == [2, 7] and part.rows == 9
    np.testing.assert_array_equal(part.observations[2:], data.observations[:7])
    np.testing.assert_array_equal(part.extra("rewards")[:2], data.extra("rewards")[22:24])


def test_extra_by_name_and_the_nearest_one(data):
    assert data.extra("rewards")[data.transition_rows].shape == (data.transitions,)
    with pytest.raises(HilpError, match="walks has no extra column 'reward': did you mean 'rewards'"):
        data.extra("reward")
    with pytest.raises(HilpError, match="it has none"):
        replace(data, extras={}).extra("reward")


def test_extras_of_any_name_can_be_saved(data, tmp_path):
    odd = replace(data, extras={name: np.arange(data.rows) for name in ("a/b", "../up", "späß %", "observations")})
    assert_same(odd, Dataset.open(odd.save(tmp_path / "saved"), verify=True))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["saved"]


# ---- places ----------------------------------------------------------------------------------------------------------


def test_nothing_is_overwritten_unasked(data, tmp_path):
    folder = data.save(tmp_path / "saved")
    with pytest.raises(HilpError, match="already exists"):
        data.save(folder)
    data.select(np.array([0])).save(folder, overwrite=True)
    assert Dataset.open(folder).episodes == 1
    assert [file.name for file in tmp_path.iterdir()] == ["saved"]


def test_only_a_data_set_is_overwritten(data, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("precious")
    with pytest.raises(HilpError, match="is not a hilp data set, so it is not overwritten"):
        data.save(tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "precious"


def test_a_place_that_cannot_be_written_is_an_error(data, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HilpError, match="cannot write"):
        data.save(tmp_path / "file" / "saved")


def test_a_folder_without_manifest_is_no_data_set(data, tmp_path):
    folder = data.save(tmp_path / "saved")
    (folder / native.MANIFEST).unlink()
    with pytest.raises(HilpError, match="is not a data set"):
        hilp.load(folder)


# ---- damage ----------------------------------------------------------------------------------------------------------


def test_a_changed_value_is_found_by_verify(data, tmp_path):
    folder = data.save(tmp_path / "saved")
    file = folder / "extra.rewards.npy"
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    assert Dataset.open(folder).rows == data.rows  # sizes agree
    with pytest.raises(HilpError, match=r"extra.rewards.npy was changed after it was written"):
        Dataset.open(folder, verify=True)
    with pytest.raises(HilpError, match="was changed"):
        hilp.load(folder, verify=True)


@pytest.mark.parametrize("name", ["observations.npy", "actions.npy", "lengths.npy", "extra.rewards.npy"])
def test_cut_and_missing_files_are_found_at_once(data, tmp_path, name):
    folder = data.save(tmp_path / "saved")
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1])
    with pytest.raises(HilpError, match=rf"{name} is damaged: it has {len(content) - 1} bytes"):
        Dataset.open(folder)
    (folder / name).unlink()
    with pytest.raises(HilpError, match=rf"{name} is missing"):
        Dataset.open(folder)


def test_an_edited_manifest_is_found(data, tmp_path):
    folder = data.save(tmp_path / "saved")
    manifest = json.loads((folder / native.MANIFEST).read_text())
    manifest["name"] = "something else"
    (folder / native.MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    with pytest.raises(HilpError, match="checksum does not match"):
        Dataset.open(folder)


def test_every_flipped_bit_of_a_manifest_is_found(tmp_path):
    folder = load.from_arrays(walk((3, 2))).save(tmp_path / "saved")
    file = folder / native.MANIFEST
    content = file.read_bytes()
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << (place % 8)
        file.write_bytes(flipped)
        with pytest.raises(HilpError):
            native.read_manifest(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "is not a hilp data set"),
        ({"version": 99}, "format version 99, this hilp reads 1"),
        ({"rows": 3}, "dataset.json says 3 rows"),
        ({"extras": None}, "it has no 'extras'"),
        ({"action_center": ["a"]}, "could not convert"),
    ],
)
def test_wrong_manifests_with_right_checksums_are_errors(data, tmp_path, change, message):
    folder = data.save(tmp_path / "saved")
    manifest = json.loads((folder / native.MANIFEST).read_text())
    manifest.pop("checksum")
    manifest |= change
    manifest["checksum"] = native._checksum(manifest)
    (folder / native.MANIFEST).write_text(native._text(manifest))
    with pytest.raises(HilpError, match=message):
        Dataset.open(folder)
