"""Inspection: every finding, its warning and its place; agreement with what training accepts."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

import hilp
from data_samples import LENGTHS, d4rl_arrays, end_flags, outcome, walk, write_exorl, write_hdf5, write_minari
from hilp.collectors import named
from hilp.commands.common import column_names
from hilp.commands.data import Inspect, render
from hilp.data import source as sources
from hilp.data.audit import AuditReport, inspect
from hilp.data.measures import Moments
from hilp.errors import HilpError
from hilp.report import figures
from hilp.report.figures import sheets

LONG = (100,) * 20


@pytest.fixture(autouse=True)
def minari_store(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))


def page(report: AuditReport) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(report))
    return console.export_text()


def warned(report: AuditReport, what: str) -> str:
    """The one warning that says this, as a line."""
    found = [str(warning) for warning in report.warnings if what in warning.what]
    assert len(found) == 1, (what, report.warnings)
    return found[0]


def test_a_healthy_data_set(tmp_path):
    report = inspect(hilp.load({**walk(LONG), "rewards": np.zeros(2000)}).save(tmp_path / "native"))
    assert (report.format, report.episodes, report.transitions) == ("native", 20, 1980)
    assert report.trainable and not report.errors
    assert len(report.warnings) == 1 and warned(report, "explain little"), "walks of chance, whatever the action is"
    assert report.verified is True and report.jumps == 0 and report.duplicate_episodes == 0
    assert report.lengths["counts"] == [20] and report.extras == {"rewards": "float64"}
    assert report.disk_bytes > 0 and report.training_bytes == 2000 * (4 * 5 + 12)
    text = page(report)
    for part in ("hashes agree", "1,980", "rewards (float64)", "can be trained on", "does not say how"):
        assert part in text


def test_json_has_everything_and_is_json(tmp_path):
    report = inspect(write_hdf5(tmp_path / "walks.hdf5", d4rl_arrays(LONG)))
    parsed = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert {"format", "episodes", "transitions", "warnings", "errors", "trainable"} <= parsed.keys()
    assert parsed["format"] == "d4rl" and parsed["endings"]["timeout"] == 20
    assert parsed["observations"][2]["column"] == 2
    spoiled = walk()
    spoiled["observations"][3] = np.nan
    spoiled["observations"][:, 1] = np.inf
    json.loads(json.dumps(inspect(spoiled).to_json(), allow_nan=False))


@pytest.mark.parametrize("block", [3, 7, 1 << 16])
def test_statistics_do_not_depend_on_blocks(block, monkeypatch):
    monkeypatch.setattr(sources, "MOST_BLOCK_ROWS", block)
    arrays = walk(LONG[:3])
    data = hilp.load(arrays)
    report = inspect(arrays)
    for columns, values in (
        (report.observations, arrays["observations"]),
        (report.actions, arrays["actions"][data.transition_rows]),
    ):
        for column in columns:
            column_values = values[:, column.column].astype(np.float64)
            assert column.low == column_values.min() and column.high == column_values.max()
            np.testing.assert_allclose(column.mean, column_values.mean(), rtol=1e-9)
            np.testing.assert_allclose(column.deviation, column_values.std(), rtol=1e-9)


def test_moments_pass_over_what_is_not_finite():
    moments = Moments(2)
    moments.add(np.array([[1.0, np.nan], [3.0, np.inf]]))
    moments.add(np.array([[1.0, 5.0], [np.nan, 5.0]]))
    assert moments.mean.tolist() == [5 / 3, 5.0] and moments.low.tolist() == [1.0, 5.0]
    assert moments.at_limits.tolist() == [1.0, 1.0]


# ---- warnings --------------------------------------------------------------------------------------------------------


def test_jumps_inside_episodes_are_placed(tmp_path):
    arrays = walk(LONG)
    arrays["observations"][350:400] += 500.0
    report = inspect(arrays)
    assert report.jumps == 1
    assert "after rows 349): check where episodes end" in warned(report, "observations jump 1 times inside episodes")
    assert "detect_jumps" in warned(report, "observations jump")
    log = tmp_path / "log.csv"  # which has no such option
    numbers = np.column_stack([arrays["observations"][:, :2], arrays["actions"][:, :1]])
    np.savetxt(log, numbers, delimiter=",", header="x,y,u", comments="")
    logged = inspect(log, columns={"observations": ["x", "y"], "actions": ["u"]})
    assert "detect_jumps" not in warned(logged, "observations jump")
    merged = {**walk(LONG), "episode_lengths": np.array([500] * 4)}
    assert inspect(merged).jumps == 16


def test_copies_of_episodes_are_placed(monkeypatch):
    one, other = walk((20, 30)), walk((20,), seed=5)
    parts = [one["observations"][:20], one["observations"], other["observations"], one["observations"][20:]]
    acts = [one["actions"][:20].copy(), one["actions"], other["actions"], one["actions"][20:].copy()]
    acts[0][-1] = 0.5  # the unused action of the last row does not matter
    arrays = {
        "observations": np.concatenate(parts),
        "actions": np.concatenate(acts),
        "episode_lengths": np.array([20, 20, 30, 20, 30]),
    }
    for block in (7, 1 << 16):
        monkeypatch.setattr(sources, "MOST_BLOCK_ROWS", block)
        assert "episodes 1, 4" in warned(inspect(arrays), "2 episodes are copies of earlier ones")


def test_constant_and_repeated_columns_are_placed():
    arrays = walk(LONG)
    walked = arrays["observations"]
    arrays["observations"] = np.column_stack([walked, np.full(2000, 4.0), walked[:, 1], np.zeros(2000), walked[:, 1]])
    report = inspect(arrays)
    assert "columns 3, 5" in warned(report, "2 observation columns never change")
    assert "1 = 4 = 6" in warned(report, "2 observation columns repeat others")
    assert "constant" in page(report)


def test_uneven_scales():
    arrays = walk(LONG)
    arrays["observations"][:, 1] *= 1e-6
    assert "normalize=True" in warned(inspect(arrays), "very different scales")


def test_actions_at_their_limits_resting_or_discrete():
    arrays = walk(LONG)
    arrays["actions"] = np.clip(arrays["actions"] * 10, -1, 1)
    assert "column 0: 9" in warned(inspect(arrays), "most actions are at their smallest or largest value")
    arrays["actions"] = np.sign(arrays["actions"])
    assert "number them in one column" in warned(inspect(arrays), "all actions are whole numbers")
    arrays["actions"] = walk(LONG)["actions"] * [0.01, 0.0]
    report = inspect(arrays)
    assert "columns 1" in warned(report, "action columns never change")
    assert "rescale" in warned(report, "small part of [-1, 1]")


def test_little_short_and_single():
    assert "24 transitions" in warned(inspect(walk()), "very little data")
    assert "at most 5 rows" in warned(inspect(walk()), "episodes are very short")
    assert "2000 rows" in warned(inspect(walk((2000,))), "only one episode")


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_trained_on_is_an_error_with_exit_code_1():
    arrays = walk()
    arrays["observations"][[4, 9], 1] = np.nan
    arrays["actions"] *= 3
    report = inspect(arrays)
    assert not report.trainable
    assert report.errors[0].startswith("NaN or infinite observations in rows 4, 9")
    assert report.errors[1].startswith("actions leave [-1, 1]")
    assert "cannot be trained on" in page(report)
    assert [e[:3] for e in inspect(arrays, rescale_actions=True).errors] == ["NaN"]
    assert inspect(walk((3, 1, 4))).errors[0].startswith("episodes 1 have fewer than two rows")


def test_flipped_bits_of_a_native_folder_are_errors(tmp_path):
    folder = hilp.load(walk()).save(tmp_path / "native")
    content = bytearray((folder / "actions.npy").read_bytes())
    content[-1] ^= 1
    (folder / "actions.npy").write_bytes(content)
    report = inspect(folder)
    assert report.verified is False and not report.trainable
    assert "actions.npy was changed after it was written" in report.errors[0]
    assert "HASHES DIFFER" in page(report)
    assert inspect(folder, verify=False).verified is None


def test_what_cannot_be_read_is_raised(tmp_path):
    (tmp_path / "log.txt.gz").write_bytes(b"\x1f\x8b a,b")
    with pytest.raises(HilpError, match="is not a file hilp can read"):
        inspect(tmp_path / "log.txt.gz")
    with pytest.raises(HilpError, match="'flaten' is no option"):
        inspect(walk(), flaten=True)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    spoil=st.sampled_from(["nothing", "observation", "action", "range", "unused"]),
    row=st.integers(0, 23),
    block=st.integers(1, 30),
)
def test_inspection_and_loading_agree(lengths, spoil, row, block):
    arrays = walk(tuple(lengths))
    row = row % sum(lengths)
    if spoil == "observation":
        arrays["observations"][row, 0] = np.nan
    elif spoil == "action":
        arrays["actions"][row, 0] = np.inf
    elif spoil == "range":
        arrays["actions"][row, 1] = -4.0
    elif spoil == "unused":
        arrays["actions"][np.cumsum(lengths) - 1] = np.nan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "MOST_BLOCK_ROWS", block)
        report = inspect(arrays)
    loaded = outcome(arrays)
    assert report.trainable == isinstance(loaded, hilp.Dataset)
    if not report.trainable:
        assert str(loaded) == f"arrays: {report.errors[0]}"


# ---- formats, pictures -----------------------------------------------------------------------------------------------


def test_every_format_can_be_inspected(tmp_path):
    write_minari("walks/plain-v0")
    np.savez(tmp_path / "walks.npz", **walk())
    for source, format in (
        (write_hdf5(tmp_path / "walks.hdf5", d4rl_arrays()), "d4rl"),
        (write_exorl(tmp_path / "rnd"), "exorl"),
        ("walks/plain-v0", "minari"),
        (tmp_path / "walks.npz", "npz"),
        (walk(), "arrays"),
        (hilp.load(walk()), "arrays"),
    ):
        report = inspect(source)
        assert (report.format, report.episodes, report.trainable) == (format, len(LENGTHS), True)
        assert format in page(report)
    report = inspect(named.open_source("maze-large", steps=3000))
    assert report.transitions == 3000 and report.format == "built-in"


def test_endings_of_minari_are_counted():
    write_minari("walks/plain-v0")
    endings = inspect("walks/plain-v0").endings
    assert endings["terminal"] + endings["timeout"] == len(LENGTHS) and endings["terminal"] > 0


def test_notes_of_the_reader_are_on_the_page(tmp_path):
    flags = end_flags(LENGTHS)
    report = inspect(write_hdf5(tmp_path / "walks.hdf5", d4rl_arrays(terminals=flags | np.roll(flags, 1))))
    assert any("convention='antmaze'" in note for note in report.notes)
    assert "antmaze" in page(report)


@pytest.mark.parametrize("width", [1, 2, 9])
def test_pictures(tmp_path, width):
    path = tmp_path / "pictures" / "preview.png"
    report = inspect(walk(LONG, width=width))
    figures.save_data_picture(report, path)
    assert path.stat().st_size > 5000
    assert len(report.paths) == 20
    with pytest.raises(HilpError, match=r"--picture takes a file that ends in \.png, \.svg, \.pdf, not"):
        Inspect("nowhere", picture=str(tmp_path / "preview.gif"))()
    (tmp_path / "file").write_text("")
    with pytest.raises(HilpError, match="cannot write"):
        figures.save_data_picture(report, tmp_path / "file" / "preview.png")


def test_a_picture_of_a_log_has_the_names_of_its_columns(tmp_path, capsys):
    rows = [f"{number // 20},5,{number % 7},{number % 5},{number % 3 - 1}" for number in range(60)]
    (tmp_path / "log.csv").write_text("\n".join(["run,still,x,y,push", *rows]) + "\n")
    columns = ("observations=still,x,y", "actions=push", "episode_ids=run")
    picture = tmp_path / "log.png"
    assert Inspect(str(tmp_path / "log.csv"), columns=columns, picture=str(picture))() == 0
    assert f"picture: {picture}" in capsys.readouterr().out and picture.stat().st_size > 5000
    paths, names = sheets._plane(inspect(tmp_path / "log.csv", columns=column_names(columns)))
    assert names == ("x", "y") and paths[0].tolist()[:2] == [[0, 0], [1, 1]]


def test_images_are_summed_up_without_their_columns():
    rows = np.random.default_rng(0).integers(0, 256, (sum(LENGTHS), 16, 16, 3), np.uint8)
    report = inspect({**walk(), "observations": rows}, flatten=True)
    assert report.observation_dim == 768 and len(report.observations) == 512
    assert "and 744 more" in page(report)


def test_paths_are_accepted_as_text(tmp_path):
    folder: Path = hilp.load(walk()).save(tmp_path / "native")
    assert inspect(str(folder)).verified is True


# ---- what a newcomer would miss --------------------------------------------------------------------------------------


def test_a_data_set_below_the_folder_is_named(tmp_path):
    hilp.load(walk()).save(tmp_path / "robots" / "so100")
    with pytest.raises(HilpError, match=r"is not a data set, but .*robots/so100 is: name one"):
        inspect(tmp_path)


@pytest.mark.parametrize("path", ["/nope", "../nope"])
def test_a_path_of_nothing_is_not_compared_with_names(path):
    with pytest.raises(HilpError, match=r"^there is no file or folder .*nope$"):
        named.open_source(path)


def test_whole_numbers_of_a_wide_range_are_not_discrete():
    arrays = walk(LONG)
    arrays["actions"] = np.random.default_rng(0).integers(-250, 250, (2000, 2))
    assert not any("discrete" in str(warning) for warning in inspect(arrays, rescale_actions=True).warnings)
    arrays["actions"] = arrays["actions"] % 4
    assert any("discrete" in str(warning) for warning in inspect(arrays, rescale_actions=True).warnings)


def test_gaps_in_time_are_placed_and_ways_have_seconds():
    times = np.tile(np.arange(100) * 0.02, 20)
    report = inspect({**walk(LONG), "time": times})
    assert not any("gap" in warning.what for warning in report.warnings)
    assert report.time_scale.seconds == pytest.approx(0.02) and " s)" in report.time_scale.line
    times[340:400] += 1.0
    report = inspect({**walk(LONG), "time": times})
    assert "after rows 339; a step is usually 0.02" in warned(report, "time has 1 gap inside episodes")


def test_a_stride_is_looked_at_before_training():
    report = inspect(walk(LONG), stride=3)
    assert report.transitions == 20 * 33 and report.lengths["longest"] == 34
    with pytest.raises(HilpError, match="stride is a whole number of rows or 'auto'"):
        inspect(walk(LONG), stride="often")


def test_the_horizon_of_data_that_does_not_tell_is_that_of_its_episodes():
    rng = np.random.default_rng(0)
    arrays = {"observations": rng.normal(size=(2710, 60)), "actions": rng.uniform(-1, 1, (2710, 2))}
    scale = inspect({**arrays, "episode_lengths": [271] * 10}).time_scale
    assert scale.crossing is None and 1 / (1 - scale.discount) > 100
    assert "for episodes of 271 rows, phi_discount 0.995" in scale.line
