"""Rewards of being somewhere in a maze, and what the best policy earns under them."""

from __future__ import annotations

import numpy as np
import pytest

import hilp
from hilp import tasks
from hilp.evaluation import rollouts
from hilp.prompts.specs import Reward
from hilp.tasks.maze import Maze
from hilp.tasks.maze.maps import longest_corridor

HALL = Maze("hall", "#######\n#.....#\n###.###\n#######")


def at(*xy: tuple[float, float]) -> np.ndarray:
    return np.array(xy, np.float32)


def earned(world: Maze, name: str, *xy: tuple[float, float]) -> list[float]:
    s2 = at(*xy)
    return world.rewards[name](np.full_like(s2, np.nan), np.full_like(s2, np.nan), s2).tolist()


def test_the_longest_corridor_is_found_with_both_ends() -> None:
    first, last = longest_corridor(HALL.walls)
    assert first.tolist() == [1.5, 2.5] and last.tolist() == [5.5, 2.5]
    tall = Maze("tall", "####\n#..#\n#.##\n#.##\n####")
    first, last = longest_corridor(tall.walls)
    assert {tuple(first), tuple(last)} == {(1.5, 3.5), (1.5, 1.5)}


def test_rewards_by_hand() -> None:
    # The top right free cell has its centre at (5.5, 2.5), the middle one at (3.5, 2.5).
    assert earned(HALL, "region", (5.5, 2.5), (4.1, 2.5), (3.9, 2.5)) == [1.0, 1.0, 0.0]
    assert earned(HALL, "avoid", (3.5, 2.5), (1.5, 2.5)) == [0.0, 0.0], "the hall is too short to get away"
    assert earned(HALL, "corridor", (1.5, 2.5), (3.5, 2.5), (5.5, 2.5), (5.9, 2.5)) == [0.0, 0.5, 1.0, 1.0]
    assert earned(HALL, "corridor", (3.5, 1.4)) == [0.0], "the cell below is not the corridor"


@pytest.mark.parametrize("name", ["maze-medium", "maze-large", "maze-ultra", "maze-four-rooms"])
def test_every_reward_asks_for_something_in_every_maze(name: str) -> None:
    world = tasks.make(name)
    xy = world.starts(np.random.default_rng(0), 5_000).astype(np.float32)
    for reward, function in world.rewards.items():
        values = function(xy, xy, xy)
        assert values.shape == (5_000,) and values.min() >= 0 and values.max() <= 1, reward
        assert 0.02 < values.mean() < 0.98, reward


def test_the_best_return_is_that_of_walking_straight() -> None:
    # From (1.5, 2.5) the region begins at x = 4.0: seven steps of 0.4 arrive at 4.3, and every later step earns one.
    best = HALL.best_return("region", at((1.5, 2.5)), 20)
    assert best is not None and best.tolist() == [20 - 6]
    assert HALL.best_return("region", at((5.5, 2.5)), 20).tolist() == [20]


def test_no_policy_earns_more_than_the_best_one() -> None:
    world = tasks.make("maze-medium")
    for name in world.rewards:
        earned_at_random, *_ = rollouts.run_returns(None, world, name, None, 30, seed=3)
        starts = world.episodes(np.random.default_rng(3), 30).observations
        best = world.best_return(name, starts, world.max_steps)
        assert best is not None and np.all(earned_at_random <= best + 3), name  # the lattice rounds the start


def test_a_return_row_says_what_was_earned_and_what_could_be(tiny: hilp.FoundationPolicy) -> None:
    rows = hilp.evaluate(tiny, "maze-medium", plan=(), rewards=["region", "corridor"], episodes=5, seed=1)
    assert [(row["reward"], row["metric"]) for row in rows] == [("region", "return"), ("corridor", "return")]
    for row in rows:
        assert row["score"] == pytest.approx(np.mean(row["outcomes"])) and len(row["outcomes"]) == 5
        assert 0 <= row["score"] <= row["best_possible"] + 3 and row["steps"] == 100
        assert row["interval"][0] <= row["score"] <= row["interval"][1] and row["r2"] < 1
    (again,) = hilp.evaluate(tiny, "maze-medium", Reward("region", rule="goal"), episodes=5, seed=1)
    assert again["rule"] == "goal" and again["r2"] is None


def test_unknown_rewards_name_the_nearest_of_both_kinds(tiny: hilp.FoundationPolicy) -> None:
    with pytest.raises(hilp.HilpError, match="did you mean 'region'"):
        hilp.evaluate(tiny, "maze-medium", rewards=["regoin"], episodes=1)
    with pytest.raises(hilp.HilpError, match="the rule of a reward is one of auto, skill"):
        tiny.reward(function=lambda s, a, s2: s2[:, 0], rule="guess")
