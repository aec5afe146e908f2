"""The user's own arrays: layouts, column mappings, and every message about what is wrong with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hilp
from data_samples import LENGTHS, end_flags, last_rows, outcome, walk
from hilp.data import load
from hilp.data import source as sources
from hilp.data.checks import require_trainable
from hilp.data.dataset import Dataset
from hilp.data.formats.arrays import PARTS, STRUCTURE
from hilp.errors import HilpError

ROWS = sum(LENGTHS)


def without(arrays: dict, *names: str) -> dict:
    return {name: array for name, array in arrays.items() if name not in names}


# ---- layouts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", ["episode_lengths", "episode_ends", "terminals", "episode_ids", "timeouts"])
def test_every_way_to_say_where_episodes_end(structure):
    arrays = walk()
    marks = {
        "episode_lengths": np.array(LENGTHS),
        "episode_ends": np.cumsum(LENGTHS),
        "terminals": end_flags(LENGTHS).astype(np.float64),
        "timeouts": end_flags(LENGTHS)[:, None],
        "episode_ids": np.repeat([4, 9, 1, 0, 7], LENGTHS),
    }
    data = hilp.load({**without(arrays, "episode_lengths"), structure: marks[structure]})
    assert data.lengths.tolist() == list(LENGTHS) and data.format == "arrays"
    np.testing.assert_array_equal(data.observations, arrays["observations"])
    np.testing.assert_array_equal(data.actions, arrays["actions"])


def test_episode_ids_may_be_names():
    arrays = without(walk(), "episode_lengths")
    data = hilp.load({**arrays, "episode_ids": np.repeat(["a", "b", "c", "d", "e"], LENGTHS)})
    assert data.lengths.tolist() == list(LENGTHS)


def test_terminals_and_timeouts_both_end_episodes_even_in_the_same_row():
    terminals, timeouts = np.zeros(ROWS), np.zeros(ROWS)
    terminals[last_rows(LENGTHS)[:2]] = 1
    timeouts[last_rows(LENGTHS)[1:]] = 1  # the second episode has both
    data = hilp.load({**without(walk(), "episode_lengths"), "terminals": terminals, "timeouts": timeouts})
    assert data.lengths.tolist() == list(LENGTHS)
    assert data.endings == {"terminal": 1, "timeout": 3, "both": 1, "cut": 0}


def test_one_action_fewer_per_episode():
    arrays = walk()
    keep = ~end_flags(LENGTHS)
    short = {**arrays, "actions": arrays["actions"][keep], "rewards": np.arange(keep.sum()), "clock": np.arange(ROWS)}
    data = hilp.load(short)
    np.testing.assert_array_equal(data.actions[data.transition_rows], arrays["actions"][keep])
    assert not data.actions[last_rows(LENGTHS)].any()
    np.testing.assert_array_equal(data.extra("rewards")[data.transition_rows], np.arange(keep.sum()))
    np.testing.assert_array_equal(data.extra("clock"), np.arange(ROWS))


def whole_transitions() -> tuple[dict, dict]:
    """Arrays of whole transitions, and the compact arrays they came from."""
    arrays = walk()
    keep = np.flatnonzero(~end_flags(LENGTHS))
    return {
        "observations": arrays["observations"][keep],
        "next_observations": arrays["observations"][keep + 1],
        "actions": arrays["actions"][keep],
        "episode_lengths": np.array(LENGTHS) - 1,
        "rewards": keep,
    }, arrays


def test_whole_transitions_get_their_final_states():
    whole, arrays = whole_transitions()
    data = hilp.load(whole)
    assert data.lengths.tolist() == list(LENGTHS)
    np.testing.assert_array_equal(data.observations, arrays["observations"])
    keep = data.transition_rows
    np.testing.assert_array_equal(data.actions[keep], arrays["actions"][keep])
    np.testing.assert_array_equal(data.extra("rewards")[keep], keep)
    np.testing.assert_array_equal(data.extra("rewards")[last_rows(LENGTHS)], last_rows(LENGTHS) - 1)


@pytest.mark.parametrize("block", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("layout", ["compact", "short", "whole", "subset"])
def test_any_block_size_gives_the_same_rows(layout, block, monkeypatch):
    whole, arrays = whole_transitions()
    keep = ~end_flags(LENGTHS)
    given_arrays = {
        "compact": arrays,
        "subset": arrays,
        "short": {**arrays, "actions": arrays["actions"][keep]},
        "whole": whole,
    }[layout]
    source = load.open_source(given_arrays)
    if layout == "subset":
        source = sources.select(source, np.array([0, 2, 3]))
    expected = sources.gather(source)
    monkeypatch.setattr(sources, "MOST_BLOCK_ROWS", block)
    blocks = list(source.blocks())
    assert [first for first, _ in blocks] == list(range(0, source.rows, block))
    joined = sources.join([rows for _, rows in blocks])
    np.testing.assert_array_equal(joined["observations"], expected.observations)
    np.testing.assert_array_equal(joined["actions"], expected.actions)


def test_numbers_of_all_kinds_become_float32():
    arrays = walk()
    for dtype in (np.float64, np.float16, np.int32, ">f4", ">f8"):
        data = hilp.load({**arrays, "observations": arrays["observations"].astype(dtype)})
        assert data.observations.dtype == np.float32 and data.observations.dtype.isnative
        np.testing.assert_allclose(data.observations, arrays["observations"].astype(dtype).astype(np.float32))


def test_the_data_set_is_not_the_users_memory():
    arrays = walk()
    data = hilp.load(arrays)
    before = data.observations.copy()
    arrays["observations"][:] = 0
    np.testing.assert_array_equal(data.observations, before)


def test_images_are_flattened_only_when_asked():
    arrays = {**walk(), "observations": np.random.default_rng(0).integers(0, 256, (ROWS, 4, 5, 3), np.uint8)}
    seen = hilp.load(arrays).observations
    assert seen.keys() == {"pixels"} and seen["pixels"].shape == (ROWS, 4, 5, 3)
    floats = {**arrays, "observations": arrays["observations"].astype(np.float64)}
    with pytest.raises(HilpError, match=r"observations are arrays of \(4, 5, 3\) in each row: pass flatten=True"):
        hilp.load(floats)
    data = hilp.load(arrays, flatten=True)
    assert data.observations.dtype == np.uint8 and data.observation_dim == 60
    np.testing.assert_array_equal(data.observations[8], arrays["observations"][8].reshape(-1))
    floats = hilp.load({**arrays, "observations": arrays["observations"].astype(np.float64)}, flatten=True)
    assert floats.observations.dtype == np.float32


def test_columns_name_and_join_arrays():
    arrays = walk()
    log = {
        "x": arrays["observations"][:, 0],
        "rest": arrays["observations"][:, 1:],
        "u": arrays["actions"],
        "trial": np.repeat(np.arange(5), LENGTHS),
        "r": np.arange(ROWS),
        "battery": np.ones(ROWS),
    }
    columns = {"observations": ["x", "rest"], "actions": "u", "episode_ids": "trial", "rewards": "r"}
    data = hilp.load(log, columns=columns)
    np.testing.assert_array_equal(data.observations, arrays["observations"])
    np.testing.assert_array_equal(data.actions, arrays["actions"])
    assert data.lengths.tolist() == list(LENGTHS) and set(data.extras) == {"rewards", "battery"}


def test_episodes_extras_and_short_ones():
    arrays = {**walk((3, 1, 4, 1, 2)), "rewards": np.arange(11), "clock": np.arange(11)}
    data = hilp.load(arrays, drop_short=True, extras=["clock"])
    assert data.lengths.tolist() == [3, 4, 2] and set(data.extras) == {"clock"}
    assert data.extra("clock").tolist() == [0, 1, 2, 4, 5, 6, 7, 9, 10]
    assert "left out 2 episodes of a single row (no transition): numbers 1, 3" in data.notes
    assert hilp.load(arrays, drop_short=True, episodes=2).lengths.tolist() == [3, 4]
    assert hilp.load(hilp.load(walk()), episodes=1).lengths.tolist() == [7]


# ---- messages --------------------------------------------------------------------------------------------------------

BAD = np.float32([np.nan, np.inf, -np.inf])


def spoiled(name: str, rows: list[int], value: float) -> dict:
    arrays = walk()
    arrays[name][rows, -1] = value
    return arrays


MISTAKES = {
    "no observations": (without(walk(), "observations"), "there is no 'observations' array among: actions, episode_l"),
    "nothing at all": ({}, "there is no 'observations' array among: nothing"),
    "no ends": (without(walk(), "episode_lengths"), "nothing says where episodes end: give exactly one of"),
    "two kinds of ends": ({**walk(), "terminals": end_flags(LENGTHS)}, "there are both episode_lengths and terminals"),
    "ragged": ({**walk(), "observations": [[1.0, 2.0], [3.0]]}, "observations are ragged or not numbers"),
    "objects": ({**walk(), "observations": np.array([None] * ROWS)}, "observations are ragged or not numbers"),
    "words": ({**walk(), "actions": np.array([["a"]] * ROWS)}, "actions are not numbers"),
    "flat": ({**walk(), "observations": np.zeros(ROWS)}, r"observations are \(29,\), but must be 2-D"),
    "a scalar": ({**walk(), "observations": 3.0}, r"observations are \(\), but must be 2-D"),
    "no columns": ({**walk(), "observations": np.zeros((ROWS, 0))}, "there are no numbers in a row"),
    "flat actions": ({**walk(), "actions": np.zeros(ROWS)}, r"actions are \(29,\), but must be 2-D"),
    "actions amiss": ({**walk(), "actions": np.zeros((10, 2))}, "29 observations but 10 actions in 5 episodes"),
    "extra amiss": ({**walk(), "rewards": np.zeros(4)}, r"extra column 'rewards' is \(4,\), but there are 29"),
    "extra words": ({**walk(), "task": np.array(["a"] * ROWS)}, "extra column 'task' is not numbers"),
    "lengths too short": ({**walk(), "episode_lengths": [7, 3]}, "episode_lengths end at row 10 but there are 29"),
    "empty episode": ({**walk(), "episode_lengths": [29, 0]}, "episode_lengths hold an empty episode"),
    "no episodes": ({**walk(), "episode_lengths": np.zeros(0, int)}, "episode_lengths hold an empty episode"),
    "half rows": ({**walk(), "episode_lengths": [14.5, 14.5]}, "episode_lengths must be whole numbers"),
    "lengths as table": ({**walk(), "episode_lengths": np.ones((5, 2))}, "episode_lengths must be a flat array"),
    "length one": ({**walk((3, 1, 4, 1))}, "episodes 1, 3 have fewer than two rows, so no transition: remove them"),
    "open end": (
        {**without(walk(), "episode_lengths"), "terminals": np.arange(ROWS) == 5},
        "the last row is not terminal",
    ),
    "few flags": (
        {**without(walk(), "episode_lengths"), "terminals": np.ones(4)},
        r"29 observations but terminals \(4,\)",
    ),
    "NaN flags": ({**without(walk(), "episode_lengths"), "terminals": np.full(ROWS, np.nan)}, "must be yes or no"),
    "scattered ids": (
        {**without(walk(), "episode_lengths"), "episode_ids": np.arange(ROWS) % 3},
        "the rows of episode '0' are not together",
    ),
    "few ids": (
        {**without(walk(), "episode_lengths"), "episode_ids": np.arange(3)},
        "29 observations but 3 episode_ids",
    ),
    "NaN": (spoiled("observations", [3, 17, 18], np.nan), "NaN or infinite observations in rows 3, 17, 18: remove"),
    "many NaN": (spoiled("observations", list(range(9)), np.nan), "in rows 0, 1, 2, 3, 4 and 4 more"),
    "infinite action": (spoiled("actions", [4], np.inf), "NaN or infinite actions in rows 4: remove or repair"),
    "too large for float32": (
        {**walk(), "observations": np.full((ROWS, 2), 1e300)},
        "NaN or infinite observations in rows 0, 1, 2, 3, 4 and 24 more",
    ),
    "actions outside": (
        spoiled("actions", [0], 2.5),
        r"actions leave \[-1, 1\] \(column 1 spans .* to 2\.5\): scale them yourself, or let rescale_actions=True",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_named_on_one_line(case):
    arrays, message = MISTAKES[case]
    with pytest.raises(HilpError, match=message) as caught:
        hilp.load(arrays)
    assert "\n" not in str(caught.value)


def test_a_break_between_whole_transitions_is_named():
    whole, _ = whole_transitions()
    whole["next_observations"][[2, 9]] += 1.0
    with pytest.raises(HilpError, match=r"next_observations of rows 2, 9 are not the observations of the row after"):
        hilp.load(whole)
    whole, _ = whole_transitions()
    with pytest.raises(HilpError, match="with next_observations every row is a transition"):
        hilp.load({**whole, "next_observations": whole["next_observations"][:, :2]})


def test_a_data_set_put_together_wrongly_is_named():
    arrays = walk()
    data = Dataset(arrays["observations"], arrays["actions"], np.array([7, 3]))
    with pytest.raises(
        HilpError, match="29 observations, 29 actions and episodes of 10 rows in all do not fit together"
    ):
        require_trainable(data)


def test_the_unused_last_action_may_be_anything():
    arrays = walk()
    arrays["actions"][last_rows(LENGTHS)] = [np.nan, 99.0]
    assert hilp.load(arrays).transitions == ROWS - len(LENGTHS)


def test_a_hair_outside_the_box_is_fine():
    assert hilp.load(spoiled("actions", [0], 1.00001)).rows == ROWS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "d4lr"}, "unknown format 'd4lr': did you mean 'd4rl'"),
        ({"flaten": True}, "'flaten' is no option of the format arrays: did you mean 'flatten'"),
        ({"format": "d4rl", "convention": "antmaz"}, "unknown convention 'antmaz': did you mean 'antmaze'"),
        ({"format": "native"}, "cannot load data from a dict"),
        ({"format": "exorl"}, "a dict cannot be read as the format exorl"),
        ({"columns": {"observations": "state"}}, "there is no array 'state' for observations: choose from"),
        ({"columns": {"observations": 3}}, "columns must name an array"),
        ({"columns": ["state"]}, "columns is a mapping"),
        ({"columns": {"rewards": ["actions", "observations"]}}, "only observations and actions can have several"),
        ({"extras": ["reward"]}, "arrays has no extra column 'reward': it has none"),
        ({"episodes": 0}, "episodes must be at least 1, not 0"),
        ({"steps": 3}, "steps is for built-in data sets"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(HilpError, match=message):
        hilp.load(walk(), **options)


@pytest.mark.parametrize("source", [3, None, [1, 2], "no-such-file.npz", "", "a\0b", "x" * 5000])
def test_what_is_no_source_is_an_error(source):
    with pytest.raises(HilpError):
        hilp.load(source)


def test_a_misspelt_name_is_corrected():
    with pytest.raises(HilpError, match="did you mean 'maze-large'"):
        hilp.load("maze-larg")
    with pytest.raises(HilpError, match="'flatten' is no option of a built-in data set"):
        hilp.load("maze-large", flatten=True)


def test_built_in_names_collect_as_many_steps_as_asked():
    data = hilp.load("maze-large", steps=500, seed=3)
    assert (data.transitions, data.format, data.task) == (500, "built-in", "maze-large")
    assert data.fingerprint == hilp.load("maze-large", steps=500, seed=3).fingerprint


# ---- action scaling --------------------------------------------------------------------------------------------------


def test_rescaled_actions_map_back():
    arrays = walk()
    raw = arrays["actions"] * [3.0, 0.01] + [5.0, -1.0]
    data = hilp.load({**arrays, "actions": raw}, rescale_actions=True)
    used = data.actions[data.transition_rows]
    np.testing.assert_allclose(used.min(axis=0), -1.0, atol=1e-5)
    np.testing.assert_allclose(used.max(axis=0), 1.0, atol=1e-5)
    back = data.action_scaling.raw(used)
    np.testing.assert_allclose(back, raw[data.transition_rows], rtol=1e-5)


def test_rescaling_twice_still_maps_back():
    arrays = walk()
    raw = arrays["actions"] * 4 + 2
    once = hilp.load({**arrays, "actions": raw}, rescale_actions=True)
    part = hilp.load(once.select(np.array([1])), rescale_actions=True)
    back = part.action_scaling.raw(part.actions[part.transition_rows])
    np.testing.assert_allclose(back, raw[7:9], rtol=1e-5)


def test_a_constant_action_column_is_only_shifted():
    arrays = walk()
    arrays["actions"][:, 1] = 7.0
    data = hilp.load(arrays, rescale_actions=True)
    assert not data.actions[data.transition_rows, 1].any() and data.action_scaling.center[1] == 7.0


def test_nan_actions_are_named_before_they_spoil_the_range():
    with pytest.raises(HilpError, match="NaN or infinite actions in rows 4"):
        hilp.load(spoiled("actions", [4], np.nan), rescale_actions=True)


# ---- properties ------------------------------------------------------------------------------------------------------

EPISODES = st.lists(st.integers(2, 9), min_size=1, max_size=6)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@QUICK
@given(lengths=EPISODES, seed=st.integers(0, 99), layout=st.sampled_from(["compact", "short", "whole"]))
def test_every_layout_of_the_same_transitions_is_the_same_data(lengths, seed, layout):
    arrays = walk(tuple(lengths), seed=seed)
    inner = np.flatnonzero(~end_flags(lengths))
    if layout == "short":
        arrays["actions"] = arrays["actions"][inner]
    if layout == "whole":
        arrays = {
            "observations": arrays["observations"][inner],
            "next_observations": arrays["observations"][inner + 1],
            "actions": arrays["actions"][inner],
            "episode_ends": np.cumsum(np.array(lengths) - 1),
        }
    data, compact = hilp.load(arrays), hilp.load(walk(tuple(lengths), seed=seed))
    np.testing.assert_array_equal(data.observations, compact.observations)
    np.testing.assert_array_equal(data.lengths, compact.lengths)
    np.testing.assert_array_equal(data.actions[data.transition_rows], compact.actions[compact.transition_rows])


@QUICK
@given(lengths=EPISODES, seed=st.integers(0, 99))
def test_native_round_trip(lengths, seed, tmp_path_factory):
    data = hilp.load({**walk(tuple(lengths), seed=seed), "rewards": np.arange(sum(lengths))})
    opened = hilp.load(data.save(tmp_path_factory.mktemp("native") / "saved"), verify=True)
    assert opened.fingerprint == data.fingerprint
    np.testing.assert_array_equal(opened.extra("rewards"), data.extra("rewards"))


NAMES = st.sampled_from([*PARTS, *STRUCTURE, "timeouts", "rewards", "x/y", ""])
NUMBERS = st.sampled_from([0, 1, 2, 6, -1, 2.5, float("nan"), float("inf"), 1e300, 2**63, True])
SHAPES = st.lists(st.integers(0, 6), max_size=3)
DTYPES = st.sampled_from(["f4", "f8", "f2", "i8", "u1", "u8", "?", "c8", "U3", "O", "M8[s]", ">f4"])


@st.composite
def odd_arrays(draw):
    """Arrays of right and wrong types and shapes, often of six rows so that they fit together."""
    shape = tuple(draw(SHAPES))
    if draw(st.booleans()):
        shape = (6, *shape[1:2])
    array = np.zeros(shape, draw(DTYPES))
    if array.size and array.dtype.kind in "fiu?" and draw(st.booleans()):
        with np.errstate(all="ignore"):
            value = np.asarray(draw(NUMBERS)).astype(array.dtype)
            array[(draw(st.integers(0, len(array) - 1)),) if array.ndim else ()] = value
    if array.size and array.ndim == 1 and draw(st.booleans()) and array.dtype.kind in "fiu?":
        array[-1] = 1
    return array


VALUES = st.one_of(
    odd_arrays(),
    st.none(),
    st.text(max_size=3),
    NUMBERS,
    st.lists(st.lists(st.integers(0, 3), max_size=3), max_size=4),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)


def loads_or_says_why(source, **options) -> None:
    data = outcome(source, **options)
    if isinstance(data, Dataset):
        require_trainable(data)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(arrays=st.dictionaries(NAMES, VALUES, max_size=6), flatten=st.booleans(), rescale=st.booleans())
def test_malformed_dicts_are_errors_never_tracebacks(arrays, flatten, rescale):
    loads_or_says_why(arrays, flatten=flatten, rescale_actions=rescale)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    change=st.dictionaries(NAMES, VALUES, min_size=1, max_size=2),
    format=st.sampled_from([None, "d4rl", "ogbench", "arrays"]),
)
def test_right_dicts_made_wrong_are_errors_never_tracebacks(change, format):
    arrays = {
        "observations": np.arange(12.0).reshape(6, 2),
        "actions": np.zeros((6, 1)),
        "terminals": np.array([0, 0, 1, 0, 0, 1]),
    }
    loads_or_says_why({**arrays, **change}, format=format)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(columns=st.one_of(VALUES, st.dictionaries(NAMES, st.one_of(NAMES, st.lists(NAMES, max_size=3), VALUES))))
def test_malformed_columns_are_errors_never_tracebacks(columns):
    loads_or_says_why(walk(), columns=columns)
