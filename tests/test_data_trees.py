"""Observations that are a named tree of arrays: from a dict, a file or a folder, with bytes kept as bytes."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import hilp
from data_samples import LENGTHS, end_flags, walk, write_hdf5
from hilp.commands.data import render
from hilp.data import dataset as native
from hilp.data import source as sources
from hilp.data.audit import inspect
from hilp.data.checks import require_trainable
from hilp.data.convert import convert
from hilp.data.convert import write_exorl as export_exorl
from hilp.data.dataset import Dataset
from hilp.data.load import open_source
from hilp.errors import HilpError

ROWS = sum(LENGTHS)


def parts(rows: int = ROWS) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    state = np.cumsum(rng.normal(size=(rows, 3)), axis=0)
    return {"state": state.astype(np.float32), "camera": rng.integers(0, 256, (rows, 8, 8, 3), np.uint8)}


def seeing(**changed: Any) -> dict[str, Any]:
    return {**walk(), "observations": parts(), **changed}


def in_a_file(arrays: dict[str, Any]) -> dict[str, Any]:
    """The same with the names that arrays have in a file."""
    flat = {name: array for name, array in arrays.items() if not isinstance(array, dict)}
    for above in ("observations", "next_observations"):
        flat |= {f"{above}/{name}": array for name, array in arrays.get(above, {}).items()}
    return flat


def assert_same(one: Dataset, other: Dataset) -> None:
    assert one.fingerprint == other.fingerprint
    assert one.observations.keys() == other.observations.keys() == {"state", "camera"}
    for name, column in one.observations.items():
        assert column.dtype == other.observations[name].dtype
        np.testing.assert_array_equal(column, other.observations[name])
    np.testing.assert_array_equal(one.actions, other.actions)


def test_a_dict_of_named_arrays_is_loaded_as_it_is():
    data = hilp.load(seeing())
    assert data.observations["camera"].dtype == np.uint8 and data.observations["camera"].shape == (ROWS, 8, 8, 3)
    assert data.observations["state"].dtype == np.float32
    np.testing.assert_array_equal(data.observations["camera"], parts()["camera"])
    assert (data.rows, data.observation_dim, data.transitions) == (ROWS, 3 + 192, ROWS - len(LENGTHS))


def test_other_numbers_become_float32_vectors():
    observations = {"clock": np.arange(ROWS), "flags": np.ones((ROWS, 2), bool), "state": np.zeros((ROWS, 1, 2))}
    data = hilp.load(seeing(observations=observations))
    assert {name: (a.shape[1:], a.dtype.name) for name, a in data.observations.items()} == {
        "clock": ((1,), "float32"),
        "flags": ((2,), "float32"),
        "state": ((1, 2), "float32"),
    }


@pytest.mark.parametrize("format", ["npz", "hdf5", "native", "converted"])
def test_files_and_folders_hold_the_same(tmp_path, monkeypatch, format):
    monkeypatch.setattr(sources, "MOST_BLOCK_ROWS", 4)
    expected = hilp.load(seeing())
    path: Path = tmp_path / "seeing"
    if format in ("npz", "converted"):
        path = tmp_path / "seeing.npz"
        np.savez(path, **in_a_file(seeing()))
    elif format == "hdf5":
        write_hdf5(path, in_a_file(seeing()))
    else:
        expected.save(path)
    if format == "converted":
        path = convert(path, tmp_path / "out")
    data = hilp.load(path)
    assert_same(data, expected)
    if format in ("native", "converted"):
        assert all(isinstance(column, np.memmap) for column in data.observations.values())
        assert {"observations%2Fcamera.npy", "observations%2Fstate.npy"} < {file.name for file in path.iterdir()}
        assert native.read_manifest(path)["fingerprint"] == expected.fingerprint
        assert_same(hilp.load(path, episodes=5), expected)


def test_terminals_short_actions_and_whole_transitions_lay_out_the_same_rows(monkeypatch):
    monkeypatch.setattr(sources, "MOST_BLOCK_ROWS", 3)
    arrays, ends = seeing(), end_flags(LENGTHS)
    expected = hilp.load({**arrays, "actions": np.where(ends[:, None], 0, arrays["actions"])})
    marked = {name: arrays[name] for name in ("observations", "actions")} | {"terminals": ends}
    assert hilp.load(marked).lengths.tolist() == list(LENGTHS)
    assert_same(hilp.load({**arrays, "actions": arrays["actions"][~ends]}), expected)
    starts = np.roll(ends, 1)
    whole = {
        "observations": {name: column[~ends] for name, column in parts().items()},
        "next_observations": {name: column[~starts] for name, column in parts().items()},
        "actions": arrays["actions"][~ends],
        "episode_lengths": np.array(LENGTHS) - 1,
    }
    assert_same(hilp.load(whole), expected)
    whole["next_observations"]["camera"] = whole["next_observations"]["camera"].copy()
    whole["next_observations"]["camera"][3] ^= 255
    with pytest.raises(HilpError, match="next_observations of rows 3 are not the observations of the row after"):
        hilp.load(whole)


def test_columns_can_name_the_parts():
    log = {
        "pose": parts()["state"],
        "eye": parts()["camera"],
        "push": walk()["actions"],
        "run": np.repeat(range(5), LENGTHS),
    }
    columns = {"observations/state": "pose", "observations/camera": "eye", "actions": "push", "episode_ids": "run"}
    assert_same(hilp.load(log, columns=columns), hilp.load(seeing()))


def test_select_takes_the_rows_of_every_part():
    data = hilp.load(seeing()).select(np.array([3, 0]))
    assert data.lengths.tolist() == [2, 7] and data.rows == 9
    np.testing.assert_array_equal(data.observations["camera"][2:], parts()["camera"][:7])


def test_every_part_is_in_the_fingerprint():
    data = hilp.load(seeing())
    for name, column in data.observations.items():
        changed = {**data.observations, name: column + column.dtype.type(1)}
        assert replace(data, observations=changed).fingerprint != data.fingerprint
    renamed = {"state": data.observations["state"], "photo": data.observations["camera"]}
    assert replace(data, observations=renamed).fingerprint != data.fingerprint


def test_only_float_parts_can_hold_a_nan():
    observations = parts()
    observations["state"][4, 1] = np.nan
    with pytest.raises(HilpError, match="NaN or infinite observations in rows 4: remove"):
        hilp.load(seeing(observations=observations))


@pytest.mark.parametrize(
    ("observations", "message"),
    [
        ({**parts(), "state": parts()["state"][1:]}, r"observations \('camera'\) are .* but another part has 28 rows"),
        ({**parts(), "names": np.array(["a"] * ROWS)}, r"observations \('names'\) are not numbers"),
        ({**parts(), "empty": np.zeros((ROWS, 0))}, "there are no numbers in a row"),
        ({}, "there is no 'observations' array"),
    ],
)
def test_mistakes_are_named(observations, message):
    with pytest.raises(HilpError, match=message):
        hilp.load(seeing(observations=observations))


def test_flatten_and_other_formats_say_no():
    with pytest.raises(HilpError, match="leave out flatten"):
        hilp.load(seeing(), flatten=True)
    data = hilp.load(seeing())
    with pytest.raises(HilpError, match="named observations, which hilp does not write as ExORL"):
        export_exorl(data, "somewhere", "walker", "rnd")


def test_a_data_set_built_by_hand_is_checked():
    arrays = walk()
    data = Dataset(parts(), arrays["actions"], arrays["episode_lengths"])
    require_trainable(data)
    for observations in ({}, {**parts(), "state": parts()["state"][1:]}, {"state": np.zeros((ROWS, 2), complex)}):
        with pytest.raises(HilpError):
            require_trainable(replace(data, observations=observations))


def test_reading_copies_no_image_to_float():
    source = open_source(seeing())
    block = source.read(2, 6)
    assert block["observations/camera"].base is not None, "rows of a dict are a view of it"
    assert source.row_bytes == 3 * 4 + 192 + 2 * 4


def test_inspect_measures_vectors_and_sums_up_images():
    report = inspect(seeing())
    assert [(stats.part, stats.column) for stats in report.observations] == [("state", 0), ("state", 1), ("state", 2)]
    assert report.images == {"camera": "uint8 [8, 8, 3], 192 B a row"}
    assert report.observation_dim == 195 and report.training_bytes == ROWS * (192 + 3 * 4 + 2 * 4 + 12)
    json.dumps(report.to_json(), allow_nan=False)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(report))
    text = console.export_text()
    assert "state 2" in text and "camera: uint8 [8, 8, 3], 192 B a row" in text


def test_inspect_names_columns_of_parts_and_finds_copied_episodes():
    lengths = (100,) * 12
    arrays = walk(lengths)
    observations = parts(1200)
    observations["state"][:, 2] = 1.0
    for column in (*observations.values(), arrays["actions"]):
        column[300:400] = column[100:200]
    report = inspect({**arrays, "observations": observations})
    said = [str(warning) for warning in report.warnings]
    assert any("columns state 2" in line and "never change" in line for line in said)
    assert report.duplicate_episodes == 1
    observations["camera"][350, 0, 0, 0] ^= 1
    assert inspect({**arrays, "observations": observations}).duplicate_episodes == 0


def test_images_alone_can_be_inspected_and_saved(tmp_path):
    data = hilp.load(seeing(observations={"camera": parts()["camera"]}))
    report = inspect(data.save(tmp_path / "eyes"))
    assert report.trainable and report.observations == [] and report.verified


def test_damage_of_a_part_is_found(tmp_path):
    folder = hilp.load(seeing()).save(tmp_path / "saved")
    file = folder / native.file_name("observations/camera")
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    with pytest.raises(HilpError, match="was changed after it was written"):
        Dataset.open(folder, verify=True)
    file.unlink()
    with pytest.raises(HilpError, match="is missing"):
        Dataset.open(folder)
