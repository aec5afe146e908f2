"""LeRobot: data written for it, held against LeRobot's own writing and read by Rerun's reader of it; and the plugin.

`lerobot_sample.json` says what LeRobot 0.6.1 wrote of the same rows; the slow tests write and read with it again, in an
environment of its own, because it brings torch and asks for another numpy.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import hilp
from hilp.data import lerobot
from hilp.data import source as sources
from hilp.data.convert import convert
from hilp.errors import HilpError
from hilp.learning import methods

SAMPLE = Path(__file__).parent / "lerobot_sample.json"
PLUGIN = Path(__file__).parent.parent / "examples" / "lerobot_policy_hilp"
LEROBOT = "lerobot[dataset]==0.6.1"  # needs Python 3.12; it brings its own torch
LENGTHS = (6, 8)  # rows: frames and a last observation
QUANTILES = tuple(lerobot.QUANTILES)


def arrays(lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> dict[str, Any]:
    """Two episodes with a vector, pictures, rewards, an end and a vector of forces."""
    rng, rows = np.random.default_rng(seed), sum(lengths)
    return {
        "observations": {
            "state": rng.normal(size=(rows, 3)).astype(np.float32),
            "camera": rng.integers(0, 256, (rows, 12, 16, 3), dtype=np.uint8),
        },
        "actions": rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        "episode_lengths": np.array(lengths),
        "rewards": rng.normal(size=rows),
        "terminations": np.arange(rows) == rows - 2,
        "force": rng.normal(size=(rows, 2)),
    }


def expected(data: hilp.Dataset) -> dict[str, np.ndarray]:
    """The rows that LeRobot shall have, by its names: all but the last of each episode."""
    rows = data.transition_rows
    number = np.repeat(np.arange(data.episodes), data.lengths)[rows]
    frame = rows - data.starts[number]
    found = {
        "observation.state": data.observations["state"][rows],
        "observation.images.camera": data.observations["camera"][rows],
        "action": data.actions[rows],
        "next.reward": data.extras["rewards"][rows],
        "next.done": data.extras["terminations"][rows].astype(bool),
        "force": data.extras["force"][rows],
        "timestamp": (frame / 20).astype(np.float32),
        "frame_index": frame,
        "episode_index": number,
        "index": np.arange(len(rows)),
        "task_index": np.zeros(len(rows), np.int64),
    }
    return {name: np.asarray(column) for name, column in found.items()}


def table(folder: Path, name: str = "data") -> Any:
    files = sorted(folder.glob(f"{name}/chunk-*/*.parquet"))
    return pyarrow.concat_tables(map(pyarrow.parquet.read_table, files))


def columns(folder: Path) -> dict[str, np.ndarray]:
    """What the files hold, pictures decoded."""
    found = {}
    for name, column in zip((read := table(folder)).column_names, read.columns, strict=True):
        values = column.to_pylist()
        if name.startswith("observation.images."):
            values = [np.asarray(Image.open(io.BytesIO(value["bytes"]))) for value in values]
        found[name] = np.array(values)
    return found


def types(schema: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


def about(folder: Path) -> dict[str, Any]:
    """What the sample says of a folder: everything but the rows."""
    stats = json.loads((folder / "meta" / "stats.json").read_text())
    tasks = pyarrow.parquet.read_table(folder / "meta" / "tasks.parquet")
    episodes = table(folder, "meta/episodes")
    known = [name for name in episodes.column_names if not name.startswith("stats/")]
    return {
        "info": json.loads((folder / "meta" / "info.json").read_text()),
        "stats": stats,
        "data": types(table(folder).schema),
        "episodes": types(episodes.schema),
        "episode rows": episodes.select(known).to_pylist(),
        "episode stats": episodes.select(sorted({*episodes.column_names} - {*known})).to_pylist(),
        "tasks": tasks.to_pylist(),
        "tasks index": json.loads(tasks.schema.metadata[b"pandas"])["index_columns"],
    }


def assert_like(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Equal but for quantiles, which LeRobot takes from histograms, and for rounding: it adds up in float32."""
    for name in ("info", "data", "episodes", "episode rows", "tasks", "tasks index"):
        assert ours[name] == theirs[name], name
    pairs = [(ours["stats"][name], theirs["stats"][name]) for name in theirs["stats"]]
    assert ours["stats"].keys() == theirs["stats"].keys()
    for one, two in pairs:
        assert one.keys() == two.keys()
        for key in set(two) - set(QUANTILES):
            np.testing.assert_allclose(one[key], two[key], rtol=1e-4, atol=1e-6, err_msg=key)
        assert {np.shape(one[key]) for key in QUANTILES} == {np.shape(two[key]) for key in QUANTILES}
    for one, two in zip(ours["episode stats"], theirs["episode stats"], strict=True):
        for key in two:
            if key.rpartition("/")[2] not in QUANTILES:
                np.testing.assert_allclose(one[key], two[key], rtol=1e-4, atol=1e-6, err_msg=key)


# ---- data ------------------------------------------------------------------------------------------------------------


def test_files_are_as_lerobot_writes_them(tmp_path: Path) -> None:
    data = hilp.load(arrays())
    folder = convert(data, tmp_path / "robot", to="lerobot", fps=20)
    assert_like(about(folder), json.loads(SAMPLE.read_text()))
    wanted = expected(data)
    for name, column in columns(folder).items():
        assert column.dtype == wanted[name].dtype or name in ("observation.state", "action", "timestamp"), name
        np.testing.assert_array_equal(column.astype(wanted[name].dtype), wanted[name], err_msg=name)
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]


def test_reruns_reader_of_lerobot_data_reads_it(tmp_path: Path) -> None:
    from rerun.experimental import LeRobotReader

    data = hilp.load(arrays())
    reader = LeRobotReader(convert(data, tmp_path / "robot", to="lerobot", fps=20))
    assert reader.version == "v3" or "3" in str(reader.version)
    wanted = expected(data)
    for episode in range(2):
        rows = wanted["episode_index"] == episode
        found = {chunk.entity_path: chunk.to_record_batch() for chunk in reader.stream(episode).to_chunks()}
        for name in ("observation.state", "action", "next.reward", "force"):
            values = np.array(found[f"/{name}"]["Scalars:scalars"].to_pylist())
            np.testing.assert_array_equal(values.reshape(rows.sum(), -1), wanted[name][rows].reshape(rows.sum(), -1))
        blobs = found["/observation.images.camera"]["EncodedImage:blob"].to_pylist()
        pictures = [np.asarray(Image.open(io.BytesIO(bytes(blob[0])))) for blob in blobs]
        np.testing.assert_array_equal(pictures, wanted["observation.images.camera"][rows])


def test_own_reader_gets_the_rows_back(tmp_path: Path) -> None:
    data = hilp.load(arrays())
    folder = convert(data, tmp_path / "robot", to="lerobot", fps=20)
    again, wanted = hilp.load(folder), expected(data)
    assert again.lengths.tolist() == [5, 7] and again.format == "lerobot"
    np.testing.assert_array_equal(again.observations, wanted["observation.state"])
    np.testing.assert_array_equal(again.actions, wanted["action"])
    for name in ("next.reward", "next.done", "force"):
        np.testing.assert_array_equal(again.extras[name], wanted[name])
    np.testing.assert_array_equal(again.extras["time"], wanted["timestamp"])
    parts = {"observations": ["observation.state", "observation.images.camera"]}
    seen = hilp.load(folder, columns=parts)
    assert sorted(seen.extras) == ["force", "next.done", "next.reward", "time"] and len(seen.notes) == 1
    for name in parts["observations"]:
        np.testing.assert_array_equal(seen.observations[name], wanted[name])
    convert(folder, tmp_path / "seen", to="lerobot", columns=parts)
    short = wanted["index"][[0, 1, 2, 3, 5, 6, 7, 8, 9, 10]]
    pictures = columns(tmp_path / "seen")["observation.images.camera"]
    np.testing.assert_array_equal(pictures, wanted["observation.images.camera"][short])
    twice = hilp.load(convert(folder, tmp_path / "again", to="lerobot"))  # 20 rows a second, by its own time
    np.testing.assert_array_equal(twice.observations, again.observations[short])
    assert json.loads((tmp_path / "again" / "meta" / "info.json").read_text())["fps"] == 20


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(lengths=st.lists(st.integers(2, 9), min_size=1, max_size=5), block=st.integers(1, 20), full=st.booleans())
def test_blocks_and_files_change_nothing(lengths: list[int], block: int, full: bool, tmp_path_factory: Any) -> None:
    """Rows that are read a few at a time, and a file an episode, hold the same."""
    folder, data = tmp_path_factory.mktemp("lerobot"), hilp.load(arrays(tuple(lengths), seed=block))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "MOST_BLOCK_ROWS", block)
        patch.setattr(lerobot, "FILE_MB", 0 if full else 100)
        convert(data, folder / "robot", to="lerobot", fps=20)
    assert len(list((folder / "robot" / "data").rglob("*.parquet"))) == (len(lengths) if full else 1)
    for name, column in columns(folder / "robot").items():
        np.testing.assert_array_equal(column.astype(expected(data)[name].dtype), expected(data)[name], err_msg=name)
    episodes = table(folder / "robot", "meta/episodes").to_pylist()
    assert [one["length"] for one in episodes] == [length - 1 for length in lengths]
    assert [one["data/file_index"] for one in episodes] == (list(range(len(lengths))) if full else [0] * len(lengths))
    state, stats = (
        expected(data)["observation.state"],
        json.loads((folder / "robot" / "meta" / "stats.json").read_text()),
    )
    np.testing.assert_allclose(stats["observation.state"]["std"], state.std(axis=0), rtol=1e-5, atol=1e-7)


def test_quantiles_are_those_of_the_rows(tmp_path: Path) -> None:
    rows = np.arange(102, dtype=np.float32)[:, None]  # 101 frames, 0 to 100
    walk = {"observations": rows, "actions": np.zeros((102, 1), np.float32), "episode_lengths": [102]}
    stats = json.loads((convert(walk, tmp_path / "one", to="lerobot", fps=1) / "meta" / "stats.json").read_text())
    assert {name: stats["observation.state"][name] for name in QUANTILES} == {
        "q01": [1.0], "q10": [10.0], "q50": [50.0], "q90": [90.0], "q99": [99.0]
    }  # fmt: skip


def test_rewards_of_states_and_units_of_actions(tmp_path: Path) -> None:
    walk = arrays()
    walk = {**walk, "observations": walk["observations"]["state"], "actions": walk["actions"] * 5 + 2}
    walk["reward"] = walk.pop("rewards")[:, None]  # as ExORL has it: of the state in this row
    data = hilp.load(walk, rescale_actions=True)
    found = columns(convert(data, tmp_path / "robot", to="lerobot", fps=20))
    np.testing.assert_allclose(found["action"], walk["actions"][data.transition_rows], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(
        found["next.reward"].astype(np.float32), walk["reward"][data.transition_rows + 1, 0].astype(np.float32)
    )


def log(path: Path, step: float) -> Path:
    lines = ["run,t,x,u"] + [f"{run},{row * step + 1000},{row},0.5" for run in (1, 2) for row in range(4)]
    path.write_text("\n".join(lines))
    return path


def nan_reward() -> dict[str, Any]:
    walk = arrays()
    walk["rewards"][2] = np.nan
    return walk


COLUMNS = {"observations": ["x"], "actions": ["u"], "episode_ids": "run", "time": "t"}


def test_rows_a_second_come_from_the_time_column(tmp_path: Path, run: Any) -> None:
    source = log(tmp_path / "log.csv", 0.05)
    folder = convert(source, tmp_path / "robot", to="lerobot", columns=COLUMNS)
    info = json.loads((folder / "meta" / "info.json").read_text())
    assert info["fps"] == 20 and info["features"]["observation.state"]["names"] == ["x"]
    found = columns(folder)
    np.testing.assert_allclose(found["timestamp"], [0, 0.05, 0.1] * 2, rtol=1e-6)
    np.testing.assert_array_equal(found["recorded_time"], [1000, 1000.05, 1000.1] * 2)
    told = ("--columns", "observations=x", "actions=u", "episode_ids=run", "time=t")
    out = (str(source), str(tmp_path / "other"), "--to", "lerobot", *told)
    code, said, _ = run("data", "convert", *out)
    assert code == 0 and "20 rows a second, by the time column" in said and "last observation of each of 2" in said
    assert run("data", "convert", *out, "--fps", "10", "--overwrite")[0] == 0
    assert json.loads((tmp_path / "other" / "meta" / "info.json").read_text())["fps"] == 10


def test_mistakes_are_told_on_one_line_and_leave_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    def refused(match: str, source: Any = None, **options: Any) -> None:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(HilpError, match=match):
            convert(arrays() if source is None else source, tmp_path / "out", **{"to": "lerobot", **options})
        assert sorted(tmp_path.rglob("*")) == before

    refused("has no time column: say how many rows a second there are with --fps 20")
    refused("fps must be at least 1, not 0", fps=0)
    refused("fps is for LeRobot data", to="native", fps=20)
    refused("steps by 0.7, and LeRobot takes a whole number", log(tmp_path / "slow.csv", 0.7), columns=COLUMNS)
    spoilt = arrays()
    spoilt["observations"]["state"][3, 1] = np.nan
    refused("NaN or infinite observation.state in rows 3, which its statistics cannot hold", spoilt, fps=20)
    refused("NaN or infinite next.reward in rows 2, .*: keep other columns only", nan_reward(), fps=20)
    strange = {**arrays(), "observations": {"camera": np.zeros((14, 8, 8, 2), np.uint8)}}
    refused("pictures of 'camera' have 2 channels, and LeRobot's have 1, 3, 4", strange, fps=20)
    refused("two columns would be called 'action' in LeRobot", {**arrays(), "action": np.zeros(14)}, fps=20)
    turned = {**arrays(), "observations": arrays()["observations"]["state"]}
    refused("LeRobot does not keep angles and dropped columns", turned, fps=20, angles={"0": 360})
    (tmp_path / "out").mkdir()
    refused("already exists", fps=20)
    (tmp_path / "out" / "thesis.tex").write_text("all I have")
    refused("is not LeRobot data, so it is not overwritten", fps=20, overwrite=True)
    shutil.rmtree(tmp_path / "out")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lerobot, "_write_tasks", full)
    refused("No space left on device", fps=20)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused("writing LeRobot data needs pyarrow: pip install 'hilp\\[formats\\]'", fps=20)


def test_a_folder_of_lerobot_data_is_replaced_when_asked(tmp_path: Path) -> None:
    convert(arrays(), tmp_path / "out", to="lerobot", fps=20)
    convert(arrays((3, 3)), tmp_path / "out", to="lerobot", fps=20, overwrite=True)
    assert hilp.load(tmp_path / "out").lengths.tolist() == [2, 2]
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("damage", ["no picture", "another size"])
def test_pictures_that_are_none_are_told(tmp_path: Path, damage: str) -> None:
    folder = convert(arrays(), tmp_path / "robot", to="lerobot", fps=20)
    file = folder / "data" / "chunk-000" / "file-000.parquet"
    rows = pyarrow.parquet.read_table(file).to_pylist()
    schema = pyarrow.parquet.read_schema(file)
    stream = io.BytesIO()
    Image.new("RGB", (4, 4)).save(stream, "png")
    rows[7]["observation.images.camera"]["bytes"] = b"GIF89a?" if damage == "no picture" else stream.getvalue()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema), file)
    with pytest.raises(HilpError, match=r"file-000.parquet cannot be read: ") as told:
        hilp.load(folder, columns={"observations": ["observation.images.camera"]})
    assert "\n" not in str(told.value)
    assert hilp.load(folder).rows == 12, "the rest is whole"


# ---- LeRobot itself --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with LeRobot, hilp's dependencies and the plugin: HILP_LEROBOT_PYTHON, or a new one."""
    given_one = os.environ.get("HILP_LEROBOT_PYTHON")
    if given_one:
        return Path(given_one)
    known = ["python3.12", *map(str, Path.home().glob(".pyenv/versions/3.12*/bin/python"))]
    found = next((one for one in known if shutil.which(one) and not subprocess.call([one, "--version"])), None)
    if found is None:
        pytest.skip("LeRobot needs Python 3.12")
    folder = tmp_path_factory.mktemp("lerobot")
    subprocess.run([found, "-m", "venv", folder / "env"], check=True)
    made = folder / "env" / "bin" / "python"
    shutil.copytree(PLUGIN, folder / "plugin")
    needed = [LEROBOT, "jax>=0.7", "equinox>=0.13", "optax>=0.2.5", "scipy", "tyro>=0.9", "rich", "matplotlib"]
    for words in (needed, ["setuptools>=77"], ["--no-deps", "--no-build-isolation", str(folder / "plugin")]):
        done = subprocess.run([made, "-m", "pip", "install", "-q", *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
    return made


def in_lerobot(python: Path, verb: str, folder: Path, out: Path) -> dict[str, Any]:
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": str(here.parent / "src"), "JAX_PLATFORMS": "cpu"}
    words = [str(python), str(here / "in_lerobot.py"), verb, str(folder), str(out)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
def test_lerobot_reads_what_hilp_wrote(python: Path, tmp_path: Path) -> None:
    data = hilp.load(arrays())
    folder = convert(data, tmp_path / "robot", to="lerobot", fps=20)
    known = in_lerobot(python, "read", folder, tmp_path / "rows.npz")
    assert (known["fps"], known["spans"], known["tasks"]) == (20, [[0, 5], [5, 12]], ["unlabeled"])
    found, wanted = np.load(tmp_path / "rows.npz"), expected(data)
    assert set(known["stats"]) == set(wanted)
    pictures = np.moveaxis(found["observation.images.camera"], 1, -1) * 255
    np.testing.assert_array_equal(np.rint(pictures).astype(np.uint8), wanted["observation.images.camera"])
    np.testing.assert_array_equal(found["action"][:, 0], wanted["action"])  # this step's, and the next one's
    following = np.minimum(np.arange(12) + 1, np.array([4] * 5 + [11] * 7))
    np.testing.assert_array_equal(found["action"][:, 1], wanted["action"][following])
    for name in set(wanted) - {"action", "observation.images.camera"}:
        np.testing.assert_array_equal(found[name], wanted[name].astype(found[name].dtype), err_msg=name)


@pytest.mark.slow
def test_the_sample_is_what_lerobot_writes(python: Path, tmp_path: Path) -> None:
    rows = expected(hilp.load(arrays()))
    np.savez(tmp_path / "rows.npz", episode=rows["episode_index"], **rows)
    in_lerobot(python, "write", tmp_path / "sample", tmp_path / "rows.npz")
    written = about(tmp_path / "sample")
    if os.environ.get("HILP_LEROBOT_RECORD"):  # after a new version of LeRobot
        SAMPLE.write_text(json.dumps(written) + "\n")
    assert_like(written, json.loads(SAMPLE.read_text()))


@pytest.mark.slow
def test_lerobots_factory_makes_policies_that_act_as_in_hilp(
    python: Path, tiny: hilp.FoundationPolicy, tiny_run: Path, tiny_data: hilp.Dataset, tmp_path: Path
) -> None:
    folder = convert(tiny_data.select(range(3)), tmp_path / "maze", to="lerobot", fps=20)
    goal, seen = tiny_data.observations[700], tiny_data.observations[:12]
    spec = {"kind": "goal", "goal": goal.tolist(), "plan": "auto"}
    asked = {"data": str(folder), "prompt": json.dumps(spec), "saved": str(tmp_path / "saved")}
    np.savez(tmp_path / "actions.npz", observations=seen)
    (tmp_path / "actions.json").write_text(json.dumps(asked))
    known = in_lerobot(python, "act", tiny_run, tmp_path / "actions.npz")
    assert known["type"] == "hilp" and known["chunk"] == [1, 1, 2]
    go = tiny.goal(goal, plan="auto")
    wanted = np.stack([tiny.act(row, go) for row in seen])
    found = np.load(tmp_path / "actions.npz")
    for name in ("made first", "made second", "loaded first", "loaded second"):
        np.testing.assert_allclose(found[name], wanted, atol=1e-4, err_msg=name)
    np.testing.assert_allclose(found["by task"], wanted[:1], atol=1e-4)
    training = "NotImplementedError: LeRobot does not train policies of hilp"
    starts = [training] * 3 + [
        "HilpError: say what the policy shall do",
        "HilpError: this policy looks at 'observation.state', which the observation has not",
        "HilpError: a prompt is a spec as JSON or a file, and this is no JSON",
        "HilpError: there is no policy at nowhere",
    ]
    for said, start in zip(known["refused"], starts, strict=True):
        assert said.startswith(start) and "\n" not in said
    assert sorted(file.name for file in (tmp_path / "saved").iterdir()) == [
        "config.json", "policy", "policy_postprocessor.json", "policy_preprocessor.json"
    ]  # fmt: skip


@pytest.mark.slow
def test_policies_that_see_pictures_act_in_lerobot(python: Path, tmp_path: Path) -> None:
    name = "maze-medium-pixels"
    data = hilp.load(name, steps=500)
    small = {"hidden": (16, 16), "actor_hidden": (16, 16), "batch": 16, "dim": 4, "phi_discount": 0.9}
    small |= {"goal_discount": 0.9, "phi_steps": 20, "normalize": False}
    config = methods.configure(hilp.preset("hilp", "laptop", name).config, small)
    policy = hilp.pretrain(config, data, steps=20, bank=100, out=tmp_path / "run", quiet=True)
    pictures = data.observations["pixels"][:6]
    go = policy.goal({"pixels": data.observations["pixels"][40]})
    go.save(tmp_path / "go.safetensors")
    np.savez(tmp_path / "seen.npz", pictures=pictures)
    features = in_lerobot(python, "see", tmp_path / "run" / "policy", tmp_path / "seen.npz")
    assert features == {"observation.images.pixels": [3, 32, 32]}
    wanted = np.stack([policy.act({"pixels": one}, go) for one in pictures])
    np.testing.assert_allclose(np.load(tmp_path / "seen.npz")["actions"], wanted, atol=1e-4)
