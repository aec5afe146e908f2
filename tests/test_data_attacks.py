"""Nothing wrong is taken silently, nothing outside of a file is read, nothing old is lost, and nothing hangs."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from data_samples import LENGTHS, d4rl_arrays, outcome, walk, write_exorl, write_hdf5, write_minari
from hilp import storage
from hilp.collectors import named
from hilp.data import checks, load, subprocess_reader
from hilp.data import dataset as native
from hilp.data.convert import convert
from hilp.data.convert import write_exorl as export_exorl
from hilp.data.dataset import Dataset
from hilp.errors import HilpError

ROWS = sum(LENGTHS)


@pytest.fixture
def minari_store(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    return tmp_path / "store"


# ---- the right file --------------------------------------------------------------------------------------------------


def test_relative_paths_mean_the_folder_one_is_in(tmp_path, monkeypatch, minari_store):
    """The child that reads HDF5 was started in another folder, where files of the same names lie."""
    for folder, lengths in (("one", (5, 6)), ("two", (7, 8, 9))):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / folder))
        write_hdf5(Path("walks.hdf5"), d4rl_arrays(lengths))
        write_minari("walks-v0", lengths)
        for name in ("walks.hdf5", "walks-v0", Path("walks-v0") / "data"):
            assert hilp.load(name).lengths.tolist() == list(lengths)


@pytest.mark.parametrize("format", ["hdf5", "minari", "native", "exorl", "npz"])
def test_a_source_stays_where_it_was_opened(tmp_path, monkeypatch, format):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    name: Any = f"walks-{format}"
    if format == "hdf5":
        write_hdf5(Path(name), d4rl_arrays())
    elif format == "minari":
        write_minari("walks-v0")
        name = Path("walks-v0") / "data"
    elif format == "native":
        hilp.load(walk()).save(name)
    elif format == "exorl":
        write_exorl(Path(name))
    else:
        name = "walks.npz"
        np.savez(name, **walk())
    expected = hilp.load(name)
    opened = load.open_source(name)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    np.testing.assert_array_equal(opened.read(0, ROWS)["observations"], expected.observations)


# ---- the right arrays ------------------------------------------------------------------------------------------------

LOG = {"a": walk()["observations"], "b": walk(seed=1)["observations"], "c": walk()["actions"], "n": np.array(LENGTHS)}
STRUCTURE = {"actions": "c", "episode_lengths": "n"}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"observations": "a", "a": "b"}, "takes 'a' for observations and calls b 'a'"),
        ({"x": "a", "observations": "b", "a": "x"}, "there is no array 'x' for a"),
        ({"b": "a", "observations": "b"}, "takes 'b' for observations and calls a 'b'"),
        ({"observations": "a", "x": "a"}, "names the array 'a' twice, for observations and x"),
        ({"observations": "a", "next_observations": "a"}, "twice, for observations and next_observations"),
        ({"observations": ["a", "b", "a"]}, "names the array 'a' twice, for observations"),
        ({"observations": "a", "d": "b", "e": "b"}, "names the array 'b' twice, for d and e"),
    ],
)
def test_columns_that_chain_or_repeat_are_one_clear_error(columns, message):
    with pytest.raises(HilpError, match=message):
        hilp.load(LOG, columns={**STRUCTURE, **columns})


def test_a_name_that_is_there_is_not_given_to_another_array():
    log = {**LOG, "rewards": np.zeros(ROWS)}
    with pytest.raises(HilpError, match="calls b 'rewards', but there is an array 'rewards' already"):
        hilp.load(log, columns={**STRUCTURE, "observations": "a", "rewards": "b"})
    data = hilp.load(log, columns={**STRUCTURE, "observations": "a", "rewards": "rewards"})
    assert set(data.extras) == {"rewards", "b"}


def test_an_array_that_was_chosen_is_not_what_its_name_says():
    with pytest.raises(HilpError, match="there is no 'actions' array"):
        hilp.load({"observations": LOG["a"], "actions": LOG["c"], "n": LOG["n"]},
                  columns={"observations": "actions", "episode_lengths": "n"})  # fmt: skip


@pytest.mark.parametrize("key", ["observations", "actions", "rewards", "episode_lengths"])
def test_masked_arrays_are_refused(key):
    arrays = {**walk(), "rewards": np.zeros(ROWS)}
    arrays[key] = np.ma.masked_equal(arrays[key], arrays[key].flat[0])
    with pytest.raises(HilpError, match=f"{key} are a masked array: fill in or leave out what is masked"):
        hilp.load(arrays)


@pytest.mark.filterwarnings("ignore:.*masked element")
def test_lists_of_masked_rows_are_refused():
    arrays = walk()
    rows = [list(np.ma.masked_less(row, 0)) for row in arrays["observations"]]
    for observations in (list(np.ma.masked_less(arrays["observations"], 0)), rows):
        with pytest.raises(HilpError, match="observations are a masked array: fill in or leave out what is masked"):
            hilp.load({**arrays, "observations": observations})


@pytest.mark.parametrize(
    "names", [lambda a: {1: a, "1": a}, lambda a: {"a/b": a, "a": {"b": a}}], ids=["number and text", "path and dict"]
)
def test_two_arrays_of_one_name_are_refused(names):
    arrays = walk()
    name = "1" if "1" in names(0) else "a/b"
    with pytest.raises(HilpError, match=f"two arrays have the name 'observations/{name}': rename one of them"):
        hilp.load({**arrays, "observations": names(arrays["observations"])})


@pytest.mark.parametrize("dtype", ["datetime64[s]", "timedelta64[s]", "complex64", "complex128"])
@pytest.mark.parametrize("key", ["observations", "actions", "rewards", "episode_ids"])
def test_times_and_complex_numbers_are_refused(key, dtype):
    arrays = {name: array for name, array in walk().items() if name != "episode_lengths"}
    arrays |= {"rewards": np.zeros(ROWS), "episode_ids": np.repeat(np.arange(5), LENGTHS)}
    arrays[key] = arrays[key].astype(np.int64).astype(dtype)
    with pytest.raises(HilpError, match=rf"{key} are .*{dtype.partition('[')[0]}.*: turn them into plain numbers"):
        hilp.load(arrays)


def test_a_data_set_built_by_hand_is_refused_for_the_same():
    arrays = walk()
    complexes, masked = arrays["observations"] + 0j, np.ma.masked_less(arrays["actions"], 0)
    for observations, actions, message in (
        (complexes, arrays["actions"], "observations are complex"),
        (arrays["observations"], masked, "actions are a masked array"),
    ):
        with pytest.raises(HilpError, match=message):
            checks.require_trainable(Dataset(observations, actions, arrays["episode_lengths"]))


@pytest.mark.parametrize("steps", [float("nan"), 0, 1.5, -3, True, "5", float("inf")])
def test_steps_are_a_number_of_transitions(steps):
    with pytest.raises(HilpError, match=r"steps must be (at|a whole number of at) least 1"):
        hilp.load("maze-medium", steps=steps)
    with pytest.raises(HilpError, match=r"steps must be (at|a whole number of at) least 1"):
        named.open_source("maze-medium", steps=steps)


@pytest.mark.parametrize("episodes", [float("nan"), 0, 1.5, -3, True, "5"])
def test_episodes_are_a_number(tmp_path, episodes):
    for source in (walk(), write_exorl(tmp_path / "rnd")):
        with pytest.raises(HilpError, match=r"episodes must be (at|a whole number of at) least 1"):
            hilp.load(source, episodes=episodes)
    assert hilp.load(walk(), episodes=np.int64(2)).episodes == 2


# ---- checked once ----------------------------------------------------------------------------------------------------


def test_rows_are_gone_through_once(monkeypatch, tmp_path):
    passes = []
    examine = checks.examine
    monkeypatch.setattr(checks, "examine", lambda source: passes.append(1) or examine(source))
    for data in (
        hilp.load(walk()),
        hilp.load(hilp.load(walk()).save(tmp_path / "saved")),
        hilp.load("maze-medium", steps=300),
        hilp.load({**walk(), "actions": 3 * walk()["actions"]}, rescale_actions=True),
    ):
        done = len(passes)
        checks.require_trainable(data)
        assert hilp.load(data).fingerprint == data.fingerprint
        checks.require_trainable(hilp.load(data))
        assert len(passes) == done


def test_replaced_arrays_are_checked_again():
    data = hilp.load(walk())
    assert data.is_checked and replace(data, name="other").is_checked
    spoiled = np.where(data.observations == data.observations[3, 0], np.nan, data.observations)
    for changed in (replace(data, observations=spoiled), data.select(np.array([0]))):
        assert not changed.is_checked
    with pytest.raises(HilpError, match="NaN or infinite observations in rows 3"):
        checks.require_trainable(replace(data, observations=spoiled))
    with pytest.raises(HilpError, match="leave \\[-1, 1\\]"):
        hilp.load(replace(data, actions=3 * data.actions))


# ---- inside the file -------------------------------------------------------------------------------------------------


def spoil_minari(folder: Path, how: str, secret: Path) -> None:
    import h5py

    with h5py.File(folder / "data" / "main_data.hdf5", "r+") as file:
        episode = file["episode_0"]
        shape = episode["observations"].shape
        del episode["observations"]
        if how == "external link":
            with h5py.File(secret.with_suffix(".hdf5"), "w") as other:
                other["stolen"] = np.zeros(shape, np.float32)
            episode["observations"] = h5py.ExternalLink(str(secret.with_suffix(".hdf5")), "stolen")
        elif how == "external storage":
            external = [(str(secret), 0, h5py.h5f.UNLIMITED)]
            episode.create_dataset("observations", shape, np.float32, external=external)
        elif how == "virtual":
            with h5py.File(secret.with_suffix(".hdf5"), "w") as other:
                other["stolen"] = np.zeros(shape, np.float32)
            layout = h5py.VirtualLayout(shape, np.float32)
            layout[:] = h5py.VirtualSource(str(secret.with_suffix(".hdf5")), "stolen", shape)
            episode.create_virtual_dataset("observations", layout)
        else:
            with h5py.File(secret.with_suffix(".hdf5"), "w") as other:
                other["stolen"] = np.zeros(shape, np.float32)
            file["door"] = h5py.ExternalLink(str(secret.with_suffix(".hdf5")), "/")
            episode["observations"] = h5py.SoftLink("/door/stolen")


@pytest.mark.parametrize("how", ["external link", "external storage", "virtual", "soft link"])
def test_minari_files_are_read_from_themselves_alone(tmp_path, minari_store, how):
    write_minari("walks-v0")
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(4096))
    assert hilp.load("walks-v0").rows == ROWS  # which a check that is made once must not be satisfied with
    spoil_minari(minari_store / "walks-v0", how, secret)
    with pytest.raises(HilpError, match="which hilp does not follow"):
        hilp.load("walks-v0")


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_that_escape_the_limit_of_deflate_are_refused(tmp_path, compression):
    """Sixteen megabytes of zeros in a few hundred bytes; it could be gigabytes."""
    header = np.lib.format.header_data_from_array_1_0(np.zeros((1, 4), np.float32)) | {"shape": (1 << 20, 4)}
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", compression) as archive:
        with archive.open("observations.npy", "w") as member:
            np.lib.format.write_array_header_1_0(member, header)
            member.write(bytes(16 << 20))
        with archive.open("actions.npy", "w") as member:
            np.save(member, np.zeros((4, 2)))
    assert (tmp_path / "bomb.npz").stat().st_size < (16 << 20) / 1100
    with pytest.raises(HilpError, match=r"is compressed as no \.npz is"):
        hilp.load(tmp_path / "bomb.npz")


# ---- forks -----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*fork.*")
@pytest.mark.parametrize("lock", [False, True])
def test_hdf5_is_read_in_forked_processes(tmp_path, lock):
    path = write_hdf5(tmp_path / "walks.hdf5", d4rl_arrays())
    expected = hilp.load(path).fingerprint
    receiver, sender = multiprocessing.Pipe()

    def work() -> None:
        sender.send(hilp.load(path).fingerprint)

    child = multiprocessing.get_context("fork").Process(target=work, daemon=True)
    with subprocess_reader._lock if lock else nullcontext():  # as when another thread is waiting for an answer just now
        child.start()
    assert receiver.poll(30), "a forked process hangs"
    assert receiver.recv() == expected
    child.join(10)
    assert child.exitcode == 0
    assert hilp.load(path).fingerprint == expected


def test_a_process_ends_while_forked_ones_live(tmp_path):
    """The reading child ends when its input does, of which a fork must not keep a copy."""
    path = write_hdf5(tmp_path / "walks.hdf5", d4rl_arrays())
    script = (
        "import hilp, os, sys, time\nhilp.load(sys.argv[1])\npid = os.fork()\n"
        "if pid == 0:\n    time.sleep(20)\n    os._exit(0)\nprint(pid, flush=True)\n"
    )
    done = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    assert done.stdout is not None
    forked = int(done.stdout.readline())
    try:
        assert done.wait(15) == 0
    finally:
        os.kill(forked, 9)
        done.kill()
        done.stdout.close()


# ---- nothing old is lost ---------------------------------------------------------------------------------------------

ALWAYS_THERE = """
import sys
from pathlib import Path
import hilp
from hilp.data.convert import convert
target, what = Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, sys.argv[3])
from data_samples import walk
def audit(event, args):
    if event in ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree"):
        assert (target / "dataset.json").is_file(), (event, args)
sys.addaudithook(audit)
for lengths in ((4, 5), (6, 7), (8, 9)):
    data = hilp.load(walk(lengths))
    data.save(target, overwrite=True) if what == "save" else convert(data, target, overwrite=True)
    assert hilp.load(target, verify=True).lengths.tolist() == list(lengths)
"""


@pytest.mark.parametrize("what", ["save", "convert"])
def test_an_overwritten_data_set_is_there_at_every_moment(tmp_path, what):
    target = hilp.load(walk()).save(tmp_path / "out")
    subprocess.run([sys.executable, "-c", ALWAYS_THERE, str(target), what, str(Path(__file__).parent)], check=True)
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def dead_process() -> str:
    """The end of a temporary name that a process had which is no more."""
    script = "from pathlib import Path; from hilp import storage; print(storage.temporary_beside(Path('x')).name)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.strip().removeprefix(".x.writing-")


def test_what_the_dead_left_is_cleaned_up_and_what_the_living_write_is_not(tmp_path):
    owner = dead_process()
    hilp.load(walk()).save(tmp_path / "out")
    for kind in ("writing", "replaced"):
        (tmp_path / f".out.{kind}-{owner}").mkdir()
    living = storage.temporary_beside(tmp_path / "out")
    living.mkdir()
    hilp.load(walk()).save(tmp_path / "out", overwrite=True)
    assert {file.name for file in tmp_path.iterdir()} == {"out", living.name}


def test_a_data_set_that_was_renamed_aside_comes_back(tmp_path):
    owner = dead_process()
    for reader in (hilp.load, Dataset.open):
        hilp.load(walk()).save(tmp_path / "out", overwrite=True)
        os.rename(tmp_path / "out", tmp_path / f".out.replaced-{owner}")
        assert reader(tmp_path / "out").rows == ROWS
    os.rename(tmp_path / "out", tmp_path / f".out.replaced-{owner}")
    with pytest.raises(HilpError, match="already exists"):
        hilp.load(walk((4, 4))).save(tmp_path / "out")


def test_a_conversion_does_not_work_in_a_folder_that_others_made(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("all of it")
    (tmp_path / ".out.converting").symlink_to(precious)
    with pytest.raises(HilpError, match="is in the way and not a folder of yours"):
        convert(walk(), tmp_path / "out")
    assert [file.name for file in precious.iterdir()] == ["thesis.tex"]


def test_temporary_names_cannot_be_guessed(tmp_path, monkeypatch):
    made = []
    mkdir = Path.mkdir
    monkeypatch.setattr(Path, "mkdir", lambda self, *a, **k: made.append(self.name) or mkdir(self, *a, **k))
    data = hilp.load(walk())
    for name in ("one", "one"):
        data.save(tmp_path / name, overwrite=True)
        export_exorl(data, tmp_path / str(len(made)), "walker", "one")
    hidden = {name.rpartition("-")[2] for name in made if name.startswith(".one.writing-")}
    assert len(hidden) == 4 and all(len(name) == 16 for name in hidden)


# ---- one clear line --------------------------------------------------------------------------------------------------

BAD_NAME = os.fsdecode(b"walks-\xff")


def test_names_that_are_not_utf8_are_one_clear_line(tmp_path):
    message = r"is not written in UTF-8: rename it"
    np.savez(tmp_path / "walks.npz", **walk())
    bad = tmp_path / BAD_NAME
    os.rename(tmp_path / "walks.npz", bad)
    data = hilp.load(walk())
    for act in (
        lambda: hilp.load(bad),
        lambda: named.open_source(str(bad)),
        lambda: data.save(tmp_path / "out" / BAD_NAME),
        lambda: convert(data, tmp_path / "out" / BAD_NAME),
        lambda: export_exorl(data, tmp_path / "out" / BAD_NAME, "walker", "one"),
        lambda: hilp.load({**walk(), BAD_NAME: np.zeros(ROWS)}),
    ):
        with pytest.raises(HilpError, match=message) as caught:
            act()
        str(caught.value).encode()  # can be printed anywhere
    assert not (tmp_path / "out").exists()


def test_a_place_that_is_no_path_is_one_clear_line(tmp_path):
    data = hilp.load(walk())
    for write in (data.save, lambda path: convert(data, path), lambda path: export_exorl(data, path, "walker", "one")):
        with pytest.raises(HilpError, match="is not a path"):
            write(tmp_path / "a\0b")


def test_a_file_inside_with_such_a_name_does_no_harm(tmp_path):
    folder = write_exorl(tmp_path / "rnd")
    first = min((folder / "buffer").iterdir())
    os.rename(first, first.with_name(first.stem + BAD_NAME + ".npz"))
    assert hilp.load(folder).rows == ROWS
    assert hilp.load(convert(folder, tmp_path / "out")).rows == ROWS


@pytest.mark.parametrize("depth", [100, 400, 900, 100_000])
def test_deep_json_is_one_clear_line(tmp_path, depth):
    folder = hilp.load(walk()).save(tmp_path / "saved")
    about = native.read_manifest(folder)
    for _ in range(min(depth, 400)):  # as deep as a right checksum can be had
        about["notes"] = [about["notes"]]
    text = json.dumps({**about, native.CHECKSUM: native._checksum(about)})
    if depth > 400:
        text = text.replace("[[]]", "[" * (depth - 400) + "]" * (depth - 400))
    (folder / native.MANIFEST).write_text(text)
    assert isinstance(outcome(folder), HilpError)


def test_deep_json_in_what_a_conversion_left_starts_it_anew(tmp_path):
    (tmp_path / ".out.converting").mkdir()
    (tmp_path / ".out.converting" / "conversion.json").write_text("[" * 100_000)
    np.savez(tmp_path / "walks.npz", **walk())
    assert hilp.load(convert(tmp_path / "walks.npz", tmp_path / "out"), verify=True).rows == ROWS


def test_deep_json_beside_minari_data_is_one_clear_line(minari_store):
    write_minari("walks-v0")
    metadata = minari_store / "walks-v0" / "data" / "metadata.json"
    about = json.loads(metadata.read_text())
    metadata.write_text(
        json.dumps({**about, "author": 0}).replace('"author": 0', '"author": ' + "[" * 5000 + "]" * 5000)
    )
    outcome("walks-v0")
