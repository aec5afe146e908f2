"""Conversion: any format to a native folder and to Minari; streaming, atomic, resumable after SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hilp
from data_samples import LENGTHS, d4rl_arrays, end_flags, ogbench_arrays, walk, write_exorl, write_hdf5, write_minari
from hilp.collectors import named
from hilp.data import convert as convert_module
from hilp.data import dataset as native
from hilp.data import source as sources
from hilp.data.convert import convert
from hilp.data.dataset import Dataset
from hilp.errors import HilpError


@pytest.fixture(autouse=True)
def minari_store(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    return tmp_path / "store"


def assert_same(one: Dataset, other: Dataset) -> None:
    assert one.fingerprint == other.fingerprint
    assert one.extras.keys() == other.extras.keys()
    for name, column in one.extras.items():
        np.testing.assert_array_equal(column, other.extras[name])


def test_into_the_folder_one_is_in(tmp_path, monkeypatch):
    source, _ = write("npz", tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(HilpError, match="already exists"):
        convert(source, ".")
    written = convert(source, ".", overwrite=True)
    assert_same(hilp.load(written), hilp.load(source))
    assert written == tmp_path / "here"


def write(format: str, folder: Path) -> tuple[object, dict]:
    """A source of this format and the options to read it with."""
    if format == "d4rl":
        return write_hdf5(folder / "walks.hdf5", d4rl_arrays()), {}
    if format == "exorl":
        return write_exorl(folder / "rnd"), {}
    if format == "ogbench":
        np.savez_compressed(folder / "walks.npz", **ogbench_arrays())
        return folder / "walks.npz", {}
    if format == "minari":
        write_minari("walks/parts-v0", parts=True)
        return "walks/parts-v0", {"observation_keys": ["position"]}
    if format == "native":
        return hilp.load({**walk(), "rewards": np.arange(sum(LENGTHS))}).save(folder / "native"), {}
    if format == "hdf5":
        return write_hdf5(folder / "own.hdf5", {**walk(), "clock": np.arange(sum(LENGTHS))}), {}
    if format == "npz":
        np.savez(folder / "own.npz", **walk())
        return folder / "own.npz", {}
    if format == "built-in":
        return "maze-large", {"steps": 700}
    return {"arrays": walk(), "data set": hilp.load(walk())}[format], {}


ALL = ("d4rl", "exorl", "ogbench", "minari", "native", "hdf5", "npz", "built-in", "arrays", "data set")


@pytest.mark.parametrize("format", ALL)
def test_every_format_becomes_the_data_that_load_gives(tmp_path, format, monkeypatch):
    source, options = write(format, tmp_path)
    monkeypatch.setattr(sources, "MOST_BLOCK_ROWS", 4)
    told: list[tuple[str, int, int]] = []
    opened = named.open_source(source, **options) if format == "built-in" else source
    options_left = {} if format == "built-in" else options
    folder = convert(opened, tmp_path / "out", progress=lambda *step: told.append(step), **options_left)
    assert folder == tmp_path / "out"
    converted = hilp.load(folder, verify=True)
    assert isinstance(converted.observations, np.memmap)
    expected = hilp.load(source, **options)
    assert_same(converted, expected)
    assert converted.endings == expected.endings and converted.task == expected.task
    assert told[0] == ("writing", 0, expected.rows) and ("writing", expected.rows, expected.rows) in told
    assert told[-1][0] == "hashing" and told[-1][1] == told[-1][2]
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]


def test_files_are_byte_for_byte_what_save_writes(tmp_path):
    data = hilp.load({**walk(), "flag": end_flags(LENGTHS), "wide": np.zeros((sum(LENGTHS), 2, 3))})
    saved, converted = data.save(tmp_path / "saved"), convert(data, tmp_path / "converted")
    for file in saved.iterdir():
        assert file.read_bytes() == (converted / file.name).read_bytes(), file.name


def test_nothing_is_overwritten_unasked(tmp_path):
    convert(walk(), tmp_path / "out")
    with pytest.raises(HilpError, match="already exists"):
        convert(walk((3, 3)), tmp_path / "out")
    convert(walk((3, 3)), tmp_path / "out", overwrite=True)
    assert hilp.load(tmp_path / "out").lengths.tolist() == [3, 3]
    with pytest.raises(HilpError, match="'native', 'minari' or 'lerobot', not to 'zip'"):
        convert(walk(), tmp_path / "other", to="zip")


def test_a_native_folder_can_be_replaced_by_a_part_of_itself(tmp_path):
    folder = convert(walk(), tmp_path / "out")
    convert(folder, folder, overwrite=True, episodes=2)
    assert hilp.load(folder, verify=True).lengths.tolist() == list(LENGTHS[:2])


def test_options_of_the_reader_and_scaling(tmp_path):
    arrays = walk()
    arrays["actions"] = arrays["actions"] * 5 + 2
    folder = convert(arrays, tmp_path / "out", rescale_actions=True, episodes=3)
    expected = hilp.load(hilp.load(arrays, rescale_actions=True, episodes=3))
    converted = hilp.load(folder)
    assert_same(converted, expected)
    np.testing.assert_array_equal(converted.action_scaling.center, expected.action_scaling.center)
    with pytest.raises(HilpError, match="is no option of the format arrays"):
        convert(arrays, tmp_path / "other", flaten=True)
    with pytest.raises(HilpError, match="have fewer than two rows"):
        convert(walk((3, 1)), tmp_path / "other")


def test_damage_is_not_copied_under_new_hashes(tmp_path):
    folder = hilp.load(walk()).save(tmp_path / "native")
    file = folder / "observations.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(HilpError, match="was changed after it was written"):
        convert(folder, tmp_path / "out")
    convert(folder, tmp_path / "out", verify=False)


def test_a_damaged_source_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MOST_BLOCK_ROWS", 4)
    folder = write_exorl(tmp_path / "rnd")
    last = sorted((folder / "buffer").iterdir())[-1]
    content = bytearray(last.read_bytes())
    content[200] ^= 1
    last.write_bytes(content)
    with pytest.raises(HilpError, match="is damaged"):
        convert(folder, tmp_path / "out")
    assert [file.name for file in tmp_path.iterdir()] == ["rnd"]


def test_two_conversions_to_one_place_do_not_meet(tmp_path):
    message = rf"is being written by process {os.getpid()} on .* \(a conversion to .*out\)"

    def meet(what: str, done: int, total: int) -> None:
        with pytest.raises(HilpError, match=message):
            convert(walk(), tmp_path / "out")

    convert(walk(), tmp_path / "out", progress=meet)
    assert hilp.load(tmp_path / "out", verify=True).rows == sum(LENGTHS)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(lengths=st.lists(st.integers(2, 9), min_size=1, max_size=6), block=st.integers(1, 20), seed=st.integers(0, 9))
def test_npz_to_native_round_trip(lengths, block, seed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("convert")
    arrays = {**walk(tuple(lengths), seed=seed), "rewards": np.arange(sum(lengths))}
    np.savez_compressed(folder / "walks.npz", **arrays)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "MOST_BLOCK_ROWS", block)
        converted = hilp.load(convert(folder / "walks.npz", folder / "out"), verify=True)
    assert_same(converted, hilp.load(arrays))


# ---- killed ----------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from hilp.data import convert
from hilp.data import source as sources
sources.MOST_BLOCK_ROWS, convert.CHECKPOINT_SECONDS = 5, 0.0
limit = int(sys.argv[3])
calls = 0
def progress(what, done, total):
    global calls
    calls += 1
    if calls == limit:
        os.kill(os.getpid(), signal.SIGKILL)
convert.convert(sys.argv[1], sys.argv[2], progress=progress)
"""


def killed(source: Path, target: Path, after: int) -> int:
    """Convert in another process that kills itself after so many steps."""
    return subprocess.run([sys.executable, "-c", KILLED, str(source), str(target), str(after)]).returncode


def resumed(source: Path, target: Path) -> tuple[Dataset, int]:
    """Convert on; the data and the row at which it went on."""
    steps: list[tuple[str, int, int]] = []
    convert(source, target, progress=lambda *step: steps.append(step))
    return hilp.load(target, verify=True), steps[0][1]


@pytest.mark.parametrize("format", ["d4rl", "exorl", "ogbench", "native"])
def test_a_killed_conversion_leaves_nothing_that_loads_and_goes_on(tmp_path, format):
    source, _ = write(format, tmp_path)
    target = tmp_path / "out"
    assert killed(Path(str(source)), target, after=5) == -signal.SIGKILL
    assert not target.exists()
    hidden = tmp_path / ".out.converting"
    for path in (target, hidden):
        with pytest.raises(HilpError):
            hilp.load(path)
        with pytest.raises(HilpError):
            Dataset.open(path)
    data, went_on_at = resumed(Path(str(source)), target)
    assert went_on_at >= 10, "the first blocks are not written again"
    assert_same(data, hilp.load(source))
    assert not hidden.exists()


def test_a_conversion_killed_while_hashing_or_again_and_again_ends_well(tmp_path):
    np.savez(tmp_path / "walks.npz", **ogbench_arrays())
    source, target = tmp_path / "walks.npz", tmp_path / "out"
    for after in (2, 2, 3, 3, 3):
        assert killed(source, target, after) == -signal.SIGKILL
        assert not target.exists()
    data, went_on_at = resumed(source, target)
    assert went_on_at == sum(LENGTHS), "only hashing was left"
    assert_same(data, hilp.load(source))


def test_a_changed_source_or_option_starts_anew(tmp_path):
    source, target = tmp_path / "walks.npz", tmp_path / "out"
    np.savez(source, **ogbench_arrays())
    assert killed(source, target, after=5) == -signal.SIGKILL
    np.savez(source, **ogbench_arrays((9, 9)))
    data, went_on_at = resumed(source, target)
    assert went_on_at == 0 and data.lengths.tolist() == [9, 9]
    assert killed(source, tmp_path / "part", after=5) == -signal.SIGKILL
    convert(source, tmp_path / "part", extras=[])
    assert not hilp.load(tmp_path / "part", verify=True).extras


@pytest.mark.parametrize("spoil", ["state", "header", "short"])
def test_what_was_left_is_not_trusted_blindly(tmp_path, spoil):
    source, target = tmp_path / "walks.npz", tmp_path / "out"
    np.savez(source, **ogbench_arrays())
    assert killed(source, target, after=5) == -signal.SIGKILL
    hidden = tmp_path / ".out.converting"
    actions = hidden / convert_module.COLUMNS / "actions.npy"
    if spoil == "state":
        (hidden / convert_module.STATE).write_text("{")
    elif spoil == "header":
        actions.write_bytes(b"")
    else:
        actions.write_bytes(actions.read_bytes()[:140])
    data, _ = resumed(source, target)
    assert_same(data, hilp.load(source))


@pytest.mark.skipif(sys.platform == "win32", reason="files have no limit there")
def test_a_full_disk_at_the_very_end_says_how_to_go_on(tmp_path):
    import resource

    np.savez(tmp_path / "walks.npz", observations=np.zeros((6, 2)), actions=np.zeros((6, 1)), episode_lengths=[6])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))  # room for the arrays, not for dataset.json
    try:
        with pytest.raises(HilpError, match=r"cannot write .*out: .*; the same command goes on where this one stopped"):
            convert(tmp_path / "walks.npz", tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "out").exists()
    assert len(hilp.load(convert(tmp_path / "walks.npz", tmp_path / "out")).observations) == 6


def test_killed_at_any_moment(tmp_path):
    """Killed from outside at random moments until it is through; whatever is there at any time is whole."""
    rng = np.random.default_rng(0)
    source, target = tmp_path / "walks.npz", tmp_path / "out"
    np.savez(source, **ogbench_arrays((400,) * 40))
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(source), str(target), "-1"])
        time.sleep(float(rng.uniform(0.1, 0.6)))
        process.kill()
        process.wait()
        if target.exists():
            break
    if not target.exists():
        convert(source, target)
    assert_same(hilp.load(target, verify=True), hilp.load(source))


# ---- memory ----------------------------------------------------------------------------------------------------------

MEASURED = """
import sys
from hilp.data import convert
convert.convert(sys.argv[1], sys.argv[2])
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("format", ["npz", "hdf5", "exorl", "native"])
def test_memory_does_not_grow_with_the_data(tmp_path, format):
    """400k rows of 24 columns (38 MB; 76 MB as float64) are converted in far less memory than they are large."""
    lengths = (1000,) * 400
    data = walk(lengths, width=18, actions=6)
    if format == "npz":
        np.savez(tmp_path / "source", **{**data, "observations": data["observations"].astype(np.float64)})
        source = tmp_path / "source.npz"
    elif format == "hdf5":
        source = write_hdf5(tmp_path / "source.hdf5", {**data, "observations": data["observations"].astype(np.float64)})
    elif format == "exorl":
        source = write_exorl(tmp_path / "rnd", lengths)
    else:
        source = hilp.load(data).save(tmp_path / "source")
    del data
    empty = hilp.load(walk()).save(tmp_path / "small")

    def peak(path: Path, target: str) -> float:
        command = [sys.executable, "-c", MEASURED, str(path), str(tmp_path / target)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) / 1024

    assert peak(source, "large-out") - peak(empty, "small-out") < 60  # MB; a few blocks


# ---- Minari ----------------------------------------------------------------------------------------------------------


def test_to_minari_and_back(tmp_path, minari_store):
    import minari

    source = write_exorl(tmp_path / "rnd")
    folder = convert(source, "group/walks-v0", to="minari")
    assert folder == minari_store / "group" / "walks-v0"
    assert sorted(file.name for file in folder.parent.iterdir()) == ["namespace_metadata.json", "walks-v0"]
    assert "group/walks-v0" in minari.list_local_datasets()
    there = minari.load_dataset("group/walks-v0")
    assert there.total_episodes == len(LENGTHS) and there.total_steps == sum(LENGTHS) - len(LENGTHS)
    episode = there[0]
    np.testing.assert_array_equal(episode.observations, walk()["observations"][:7])
    np.testing.assert_array_equal(episode.rewards, [1, 2, 3, 4, 5, 6])  # of the states actions led to
    assert episode.truncations.tolist() == [False] * 5 + [True]
    assert there.observation_space.contains(episode.observations[0])
    assert there.action_space.contains(episode.actions[0])
    back, first = hilp.load("group/walks-v0"), hilp.load(source)
    np.testing.assert_array_equal(back.observations, first.observations)
    rows = first.transition_rows
    np.testing.assert_array_equal(back.actions[rows], first.actions[rows])
    np.testing.assert_array_equal(back.extra("infos/physics"), first.extra("physics"))


def test_minari_round_trip_keeps_ends_rewards_and_infos(tmp_path, minari_store):
    write_minari("a-v0")
    convert("a-v0", "b-v0", to="minari")
    one, other = hilp.load("a-v0"), hilp.load("b-v0")
    assert_same(one, other)


def test_to_minari_writes_raw_actions(minari_store):
    import minari

    arrays = walk()
    arrays["actions"] = arrays["actions"] * 5 + 2
    convert(arrays, "raw-v0", to="minari", rescale_actions=True)
    there = minari.load_dataset("raw-v0")
    np.testing.assert_allclose(there[1].actions, arrays["actions"][7:9], rtol=1e-5)
    assert there.action_space.high.max() > 1


def test_named_observations_and_pictures_go_to_minari_and_back(minari_store):
    import minari

    rng, state = np.random.default_rng(0), walk()["observations"]
    camera = rng.integers(0, 256, (len(state), 8, 10, 3), dtype=np.uint8)
    data = hilp.load({**walk(), "observations": {"state": state, "camera": camera}})
    convert(data, "walks/seen-v0", to="minari")
    there = minari.load_dataset("walks/seen-v0")
    assert there.observation_space["camera"].shape == (8, 10, 3) and there.observation_space["camera"].dtype == np.uint8
    np.testing.assert_array_equal(there[0].observations["camera"], camera[: LENGTHS[0]])
    again = hilp.load("walks/seen-v0", observation_keys=["state", "camera"])
    for name, column in data.observations.items():
        np.testing.assert_array_equal(again.observations[name], column)


def test_nan_is_not_written_for_minari(minari_store):
    spoilt = walk()
    spoilt["observations"][4, 0] = np.nan
    with pytest.raises(HilpError, match="NaN or infinite observations in rows 4"):
        convert(spoilt, "walks-v0", to="minari")
    assert not list(minari_store.iterdir())


def test_minari_names_and_places(minari_store):
    convert(walk(), "walks-v0", to="minari")
    with pytest.raises(HilpError, match="Minari already has 'walks-v0': choose version 1 or pass overwrite"):
        convert(walk(), "walks-v0", to="minari")
    convert(walk((4, 4)), "walks-v0", to="minari", overwrite=True)
    assert hilp.load("walks-v0").lengths.tolist() == [4, 4]
    with pytest.raises(HilpError, match="'some/where/' is not a Minari id: give one like 'name-v0'"):
        convert(walk(), "some/where/", to="minari")


def test_a_killed_lerobot_conversion_leaves_nothing(tmp_path):
    source = hilp.load(walk()).save(tmp_path / "native")
    script = KILLED.replace("progress=progress)", "progress=progress, to='lerobot', fps=20)")
    command = [sys.executable, "-c", script, str(source), str(tmp_path / "robot"), "2"]
    assert subprocess.run(command, env={**os.environ}).returncode == -signal.SIGKILL
    assert not (tmp_path / "robot").exists()
    convert(source, tmp_path / "robot", to="lerobot", fps=20)
    again = hilp.load(tmp_path / "robot", drop_short=True)
    assert again.lengths.tolist() == [length - 1 for length in LENGTHS if length > 2]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["native", "robot"]


def test_a_killed_minari_conversion_leaves_nothing(tmp_path, minari_store):
    source = hilp.load(walk()).save(tmp_path / "native")
    script = KILLED.replace("progress=progress)", "progress=progress, to='minari')")
    command = [sys.executable, "-c", script, str(source), "walks-v0", "2"]
    assert subprocess.run(command, env={**os.environ}).returncode == -signal.SIGKILL
    with pytest.raises(HilpError):
        hilp.load("walks-v0")
    convert(source, "walks-v0", to="minari")
    assert hilp.load("walks-v0").lengths.tolist() == list(LENGTHS)
    assert [file.name for file in minari_store.iterdir()] == ["walks-v0"]


def test_the_manifest_says_where_the_data_came_from(tmp_path):
    source = write_hdf5(tmp_path / "walks.hdf5", d4rl_arrays())
    manifest = json.loads((convert(source, tmp_path / "out") / native.MANIFEST).read_text())
    assert manifest["read_as"] == "d4rl" and manifest["name"] == str(source)
    assert manifest["endings"] == {"terminal": 0, "timeout": 5, "both": 0, "cut": 0}
    assert set(manifest["files"]) == {file.name for file in (tmp_path / "out").glob("*.npy")}
