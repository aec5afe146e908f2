"""Worlds of chance: exact expected steps by hand, a test of how random data is, and trajectories without luck."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hilp
from hilp.data import chance
from hilp.data.load import from_arrays
from hilp.errors import HilpError
from hilp.evaluation import theory
from hilp.play import export
from hilp.prompts import graph
from hilp.tasks.maze import MOTIONS
from hilp.tasks.maze import chance as mazes
from hilp.tasks.maze.chance import ChanceMaze
from hilp.training import auto_config

COIN = "######\n#o.@o#\n######"  # behind the teleport lies the goal, and so does one exit; the other is where one began


def test_expected_steps_to_a_coin_flip_by_hand() -> None:
    """Four steps of 0.4 lead from the left exit, 1.5, into the teleport, 3; half of the flips lead back: 2 x 4."""
    world = ChanceMaze("coin", COIN)
    finite = world.finite()
    assert finite is not None
    here, goal, beside = world.nearest(np.array([[1.5, 1.5], [4.5, 1.5], [2.9, 1.5]]))
    assert finite.steps[here, goal] == pytest.approx(8.0, abs=0.01)
    assert finite.steps[beside, goal] == pytest.approx(1 + 0.5 * 8.0, abs=0.01)
    assert finite.steps[goal, goal] == 0


def test_expected_steps_of_a_slip_by_hand() -> None:
    """Out of a corner: only a slip, a quarter, can fail, by 9 of the 25 motions, which press into it."""
    world = ChanceMaze("corridor", "####\n#..#\n####", slip=0.25)
    corner = world.nearest(np.array([[1.1, 1.1]]))[0]
    elsewhere = np.ones((world._lattice.n, 1), bool)
    elsewhere[corner] = False
    assert world.expected_steps(elsewhere)[corner, 0] == pytest.approx(1 / (1 - 0.25 * 9 / 25), abs=2e-3)


def test_without_chance_expected_steps_are_the_fewest() -> None:
    plain = hilp.make_task("####\n#..#\n##.#\n####").finite()
    same = ChanceMaze("corner", "####\n#..#\n##.#\n####").finite()
    assert plain is not None and same is not None
    np.testing.assert_allclose(same.steps, plain.steps, atol=1e-2)


def test_a_trap_that_nothing_leads_out_of_is_an_error() -> None:
    world = ChanceMaze("trap", "######\n#.@.o#\n######")  # from the right nobody comes back
    with pytest.raises(HilpError, match="never leads"):
        world.finite()
    with pytest.raises(HilpError, match="no exit"):
        ChanceMaze("nowhere", "####\n#.@#\n####")


def test_steps_are_drawn_as_said_and_seeded() -> None:
    world = ChanceMaze("coin", COIN)
    at, right = np.tile([2.9, 1.5], (4000, 1)), np.tile([1.0, 0.0], (4000, 1))
    landed = world.step(at, right, np.random.default_rng(0))
    assert sorted({tuple(xy) for xy in landed.tolist()}) == [(1.5, 1.5), (4.5, 1.5)]
    assert (landed[:, 0] > 3).mean() == pytest.approx(0.5, abs=0.03)
    np.testing.assert_array_equal(landed, world.step(at, right, np.random.default_rng(0)))
    slippery = ChanceMaze("room", "#####\n#...#\n#...#\n#...#\n#####", slip=0.25)
    moved = slippery.step(np.tile([2.5, 2.5], (4000, 1)), right, np.random.default_rng(0))
    as_meant = np.isclose(moved, [2.9, 2.5]).all(axis=1).mean()
    assert as_meant == pytest.approx(0.75 + 0.25 / len(MOTIONS), abs=0.03)


def test_nobody_starts_in_a_teleport_or_is_sent_there() -> None:
    world: Any = hilp.make_task("maze-large-teleport")
    assert not world.teleports[world.cell(world.starts(np.random.default_rng(0), 2000))].any()
    with pytest.raises(HilpError, match="lies in a teleport"):
        world.episodes(np.random.default_rng(0), 1, goal=np.array([3.5, 5.5]))


@pytest.mark.parametrize("name", mazes.names())
def test_step_limits_are_four_times_the_longest_expected_way(name: str) -> None:
    world = mazes.make(name)
    assert world.max_steps == 50 * np.ceil(4 * world.finite().steps.max() / 50)  # type: ignore[union-attr]


def test_a_diagnosis_leaves_the_theorem_out_where_chance_decides() -> None:
    world = ChanceMaze("coin", COIN)
    finite = world.finite()
    assert finite is not None
    numbers = theory.examine(finite.successors, finite.steps, finite.observations, 0.97)
    assert "theorem_as_learned" not in numbers and numbers["mean_steps"] > 0


def test_a_page_without_a_server_has_no_chance() -> None:
    policy: Any = SimpleNamespace(spec=SimpleNamespace(parts=()))
    with pytest.raises(HilpError, match="no chance, by which maze-large-slip moves"):
        export.require(policy, hilp.make_task("maze-large-slip"))


# ---- how random data is ----------------------------------------------------------------------------------------------


def walks(noise: float = 0.0, seed: int = 0) -> list[np.ndarray]:
    """Rows before, at and after steps on a plane as long as their actions say; a share of them goes elsewhere."""
    rng = np.random.default_rng(seed)
    here, act, came = rng.uniform(0, 10, (20_000, 2)), rng.uniform(-1, 1, (20_000, 2)), rng.uniform(-1, 1, (20_000, 2))
    lucky = rng.random(len(here)) < noise
    return [here - came, here, here + np.where(lucky[:, None], rng.uniform(-10, 10, here.shape), act), act]


def test_chance_is_the_share_of_steps_that_began_alike_and_parted() -> None:
    calm = chance.measured(*walks())
    assert (calm.usual, calm.longest) == (0.0, 0.0) and not calm.is_random and calm.slower == 1.0
    rare = chance.measured(*walks(noise=0.05))
    assert rare.longest is not None and rare.longest > 0.9  # the longest are lucky ones, whose nearest is mostly none
    assert rare.usual == pytest.approx(1 - 0.95**2, abs=0.03)
    assert rare.is_random and rare.leaps and "chance decides" in rare.line


def test_copies_of_a_row_are_not_compared_with_it() -> None:
    twice = [np.concatenate([part, part]) for part in walks(noise=0.5)]
    found = chance.measured(*twice)
    assert found.usual == pytest.approx(chance.measured(*walks(noise=0.5)).usual, abs=0.05)


def test_what_chance_takes_away_is_made_up_for() -> None:
    """Of steps that are lost half of the time pairs share 1/4 of a way squared, where one has 1/2: its root is left."""
    before, here, there, act = walks()
    lost = np.random.default_rng(1).random(len(here)) < 0.5
    found = chance.measured(before, here, np.where(lost[:, None], here, there), act)
    assert found.slower == pytest.approx(2**0.5, rel=0.05)


def test_too_few_that_began_alike_say_nothing() -> None:
    rng = np.random.default_rng(0)
    here, act = rng.uniform(0, 10, (5_000, 20)), rng.uniform(-1, 1, (5_000, 2))
    found = chance.measured(here, here, here + rng.normal(size=here.shape), act)
    assert found.share is None and not found.is_random and "too few" in found.line


def log(observations: np.ndarray, actions: np.ndarray, **more: Any) -> Any:
    return from_arrays({"observations": observations.astype(np.float32), "actions": actions.astype(np.float32), **more})


def test_a_velocity_that_is_not_seen_is_no_chance() -> None:
    rng = np.random.default_rng(0)
    act, x, v = rng.uniform(-1, 1, (40, 500, 1)), np.zeros((40, 500, 1)), np.zeros((40, 1))
    for t in range(1, 500):
        v = 0.9 * v + 0.1 * act[:, t - 1]
        x[:, t] = x[:, t - 1] + v
    data = log(x.reshape(-1, 1), act.reshape(-1, 1), episode_lengths=[500] * 40)
    found = chance.of_dataset(data)
    assert not found.is_random and found.slower == 1.0


def test_an_angle_that_wraps_is_no_chance() -> None:
    rng = np.random.default_rng(0)
    act = rng.uniform(-1, 1, (40, 500, 2))
    heading = np.cumsum(0.3 * act[..., 1], axis=1)
    place = np.cumsum(0.1 * np.stack([np.cos(heading), np.sin(heading)], axis=-1) * act[..., :1], axis=1)
    seen = np.concatenate([place, ((heading + np.pi) % (2 * np.pi) - np.pi)[..., None]], axis=-1)
    moved = np.roll(act, -1, axis=1)  # what leads from a row to the next
    data = log(seen.reshape(-1, 3), moved.reshape(-1, 2), episode_lengths=[500] * 40)
    assert not chance.of_dataset(data).is_random
    assert chance.without_leaps(data)[1] == 0


def test_pictures_are_not_read_for_it() -> None:
    class Picture(np.ndarray):
        def __getitem__(self, at: Any) -> Any:
            raise AssertionError("read")

    pictures = np.zeros((300, 4, 4, 3), np.uint8).view(Picture)
    data: Any = SimpleNamespace(
        network_inputs={"camera": pictures}, network_actions=np.zeros((300, 2)), lengths=np.array([300])
    )
    assert chance.of_dataset(data).share is None


def test_the_graph_of_random_data_expects_more_steps() -> None:
    walk = np.stack([np.arange(60.0), np.zeros(60)], axis=1).astype(np.float32)
    usual, slower = (graph.build(walk, walk, np.array([60]), 0.99, slower=factor) for factor in (1.0, 1.5))
    seen = usual.counts > 0
    np.testing.assert_allclose(slower.steps[seen], 1.5 * usual.steps[seen], rtol=1e-6)
    np.testing.assert_array_equal(slower.steps[~seen], usual.steps[~seen])


def leaping() -> Any:
    """Two walks along a line, 100 rows each, by one a row; the first leaps by 50 before its rows 40 and 99."""
    x = np.tile(np.arange(100.0), 2)
    x[40:100] += 50
    x[99] += 50
    seen = np.stack([x, np.zeros(200)], axis=1).astype(np.float32)
    return from_arrays({"observations": seen, "actions": np.zeros((200, 2), np.float32), "episode_lengths": [100, 100]})


def test_trajectories_end_before_long_steps() -> None:
    data, leaps = chance.without_leaps(leaping())
    assert leaps == 2 and data.lengths.tolist() == [40, 59, 100]  # row 99 would be alone
    seen = np.asarray(data.observations)[:, 0]
    assert seen[39] == 39 and seen[40] == 90 and seen[98] == 148 and seen[99] == 0


def test_data_without_chance_stays_as_it_is() -> None:
    config = hilp.preset("hilp", "laptop", "maze-medium").config
    data = hilp.collect("maze-medium", steps=20_000)
    found = auto_config.resolve(config, data)
    assert found.data is data and found.config.cut_leaps is False
    assert "chance" not in (found.line or "")


def test_data_of_teleports_is_cut_unless_told_otherwise() -> None:
    config = hilp.preset("hilp", "laptop", "maze-large-teleport").config
    data = hilp.collect("maze-large-teleport", steps=20_000)
    found = auto_config.resolve(config, data)
    assert found.config.cut_leaps is True and "chance decides" in (found.line or "")
    rows = np.asarray(found.data.observations)
    far = np.abs(np.diff(rows, axis=0)).max(axis=1) > 0.41
    assert not far[found.data.transition_rows].any()
    again = auto_config.resolve(config, data, {"config": hilp_values(found.config)})
    assert again.data.lengths.tolist() == found.data.lengths.tolist()
    kept = auto_config.resolve(hilp_with(config, cut_leaps=False), data)
    assert kept.data.rows == data.rows and kept.config.cut_leaps is False


def hilp_values(config: Any) -> dict[str, Any]:
    return dict(vars(config))


def hilp_with(config: Any, **changes: Any) -> Any:
    from hilp.learning import configs

    return configs.changed(config, changes)
