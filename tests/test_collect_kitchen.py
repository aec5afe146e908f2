"""Kitchen's scripts do what they say, and what they leave behind is seeded, resumable and replays."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from hilp.collectors import collect
from hilp.collectors import kitchen as collector
from hilp.collectors.collecting import script_outcome
from hilp.collectors.kitchen import SCRIPTS, Cook, Hand, moved, plan_of
from hilp.errors import HilpError
from hilp.tasks import kitchen
from hilp.tasks.kitchen import NAMES, Kitchen

if not all(importlib.util.find_spec(package) for package in ("mujoco", "gymnasium_robotics")):
    pytest.skip("needs the simulators", allow_module_level=True)


@pytest.fixture(scope="module")
def world() -> Kitchen:
    return kitchen.make("kitchen", threads=1)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes of 6 rows, two in a block."""
    monkeypatch.setattr(collector, "EPISODE_STEPS", 5)
    monkeypatch.setattr(collector, "BLOCK", 2)


@pytest.mark.parametrize("subtask", SCRIPTS)
def test_scripts_do_their_subtask(world: Kitchen, subtask: str) -> None:
    running = world.episodes(np.random.default_rng(0), 1)
    hand = Hand(world.simulator, running.data[0])
    steps = 0
    for action in SCRIPTS[subtask](hand):
        assert action.shape == (9,) and np.isfinite(action).all()
        running.step(action[None])
        steps += 1
    done = dict(zip(running.subtasks, running.done[0], strict=True))
    assert done[subtask] and steps < 100
    assert sum(done.values()) == 1, "and nothing else"


def test_the_hand_goes_where_it_is_sent(world: Kitchen) -> None:
    running = world.episodes(np.random.default_rng(0), 1)
    hand = Hand(world.simulator, running.data[0])
    place = moved(hand.home, 0.1, 0.15, 0.1)
    for action in hand.go(place, 1.0, near=0.005):
        running.step(action[None])
    assert np.linalg.norm(hand.at - place) < 0.005, "it does not sag"
    assert hand.turned[:, 2] == pytest.approx(hand.forward[:, 2], abs=0.1), "and still points forward"


def test_kinds_plan_what_they_say() -> None:
    rng = np.random.default_rng(0)
    mixed = [plan_of("mixed", rng) for _ in range(40)]
    wanted = set(NAMES["kitchen-mixed"])
    assert all(len(wanted - set(plan)) == 1 and "slide cabinet" in plan for plan in mixed), "never all four"
    assert {next(iter(wanted - set(plan))) for plan in mixed} == wanted and len({tuple(p) for p in mixed}) > 20
    parts = [plan_of("partial", rng) for _ in range(40)]
    assert all(sorted(plan) == sorted(SCRIPTS) for plan in parts) and len({tuple(p) for p in parts}) > 20
    assert plan_of("complete", rng) == list(NAMES["kitchen-complete"])


def test_what_is_broken_off_is_taken_up_again(world: Kitchen, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def script(name: str):  # type: ignore[no-untyped-def]
        def actions(hand: Hand):  # type: ignore[no-untyped-def]
            begun.append(name)
            for _ in range(60):
                yield np.zeros(9)

        return actions

    monkeypatch.setattr(collector, "SCRIPTS", {name: script(name) for name in ("kettle", "microwave")})
    monkeypatch.setattr(collector, "BREAK_STEPS", (2, 3))

    class Twice:
        """Breaks off the first two."""

        def __init__(self) -> None:
            self.draws = iter([0.0, 0.0, 1.0, 1.0])

        def random(self) -> float:
            return next(self.draws)

        def integers(self, low: int, high: int) -> int:
            return low

        def spawn(self, n: int) -> list[np.random.Generator]:
            return np.random.default_rng(0).spawn(n)

        def standard_normal(self, size: int) -> np.ndarray:
            return np.zeros(size)

    monkeypatch.setattr(Kitchen, "episodes", lambda self, rng, n: _Still(self))
    cook = Cook(world, ["kettle", "microwave"], Twice(), 0.5)  # type: ignore[arg-type]
    for _ in range(150):
        cook.step()
    assert begun == ["kettle", "microwave", "kettle", "microwave"]


class _Still:
    """An episode in which nothing moves, at no cost."""

    def __init__(self, world: Kitchen) -> None:
        self.data = [world.simulator.begin(world.simulator.resting)]

    def step(self, actions: np.ndarray) -> None: ...


def test_a_collected_episode_replays_to_the_same_score(world: Kitchen, tmp_path: Path) -> None:
    data = collect(world, "mixed", 300, 5, out=tmp_path / "data", workers=1)
    assert data.lengths.tolist() == [281, 21] and data.transitions == 300
    assert data.observations.shape == (302, 30) and data.actions.shape == (302, 9)
    assert data.name == data.task == "kitchen-mixed" and sum(size for _, (size,) in data.observation_parts) == 30
    assert abs(data.actions).max() <= 1 and (data.actions[[280, 301]] == 0).all()
    cook = Cook(world, plan := plan_of("mixed", rng := np.random.default_rng([5, 0])), rng, collector.BREAK_CHANCE)
    assert len(plan) == 4
    running = kitchen.make("kitchen-mixed", threads=1).episodes(np.random.default_rng([5, 0]), 1)
    for row in range(280):
        assert (running.observations[0] == data.observations[row]).all(), row
        running.step(data.actions[row : row + 1])
        cook.step()
    assert (running.observations[0] == data.observations[280]).all()
    wanted = [list(cook.running.subtasks).index(name) for name in running.subtasks]
    assert running.success_fractions()[0] == cook.running.done[0, wanted].mean() and running.success_fractions()[0] in (
        0.25,
        0.5,
        0.75,
    )
    number, reached = data.extra("target"), data.extra("target_reached")
    taken_up = [int(reached[:281][number[:281] == target].any()) for target in range(int(number[:281].max()) + 1)]
    assert number[0] == -1 and not reached[number == -1].any() and len(taken_up) <= 4
    assert sum(taken_up) == cook.running.done.sum(), "what it does, it sets out to do"
    told = script_outcome(data)
    assert told["targets"] == len(taken_up) + (number[281:].max() >= 0)
    assert told["targets_reached"] == sum(taken_up) + reached[281:].any()


@pytest.mark.usefixtures("short")
def test_seed_and_number_decide_an_episode_whoever_collects_it(world: Kitchen, tmp_path: Path) -> None:
    told: list[int] = []
    one = collect(world, "partial", 13, 0, out=tmp_path / "one", workers=1)
    two = collect(world, "partial", 23, 0, out=tmp_path / "two", progress=told.append, workers=2)
    other = collect(world, "partial", 13, 1, out=tmp_path / "other", workers=1)
    assert told == [10, 20, 23] and two.lengths.tolist() == [6, 6, 6, 6, 4]
    assert (two.observations[:16] == one.observations).all() and (two.actions[:15] == one.actions[:15]).all()
    assert (other.observations[1:6] != one.observations[1:6]).any()


@pytest.mark.usefixtures("short")
def test_an_interrupted_collection_goes_on(world: Kitchen, tmp_path: Path) -> None:
    def interrupt(done: int) -> None:
        if done >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(world, "mixed", 40, 3, out=tmp_path / "data", progress=interrupt, workers=1)
    assert not (tmp_path / "data").exists() and len(list((tmp_path / "data.partial").glob("0*"))) == 2
    with pytest.raises(HilpError, match="unfinished collection"):
        collect(world, "partial", 40, 3, out=tmp_path / "data", workers=1)
    told: list[int] = []
    resumed = collect(world, "mixed", 40, 3, out=tmp_path / "data", progress=told.append, workers=1)
    whole = collect(world, "mixed", 40, 3, out=tmp_path / "whole", workers=1)
    assert told == [30, 40] and (resumed.observations == whole.observations).all()
    assert not (tmp_path / "data.partial").exists()


def test_mistakes_are_told_and_leave_nothing(world: Kitchen, tmp_path: Path) -> None:
    for action, message in (
        (lambda: collect(world, "mixd", 10, 0, out=tmp_path / "x"), "did you mean 'mixed'"),
        (lambda: collect(world, "mixed", 0, 0, out=tmp_path / "x"), "at least 1"),
        (lambda: collect(world, "mixed", 10, 0, out=tmp_path / "x", workers=0), "workers must be at least 1, not 0"),
        (
            lambda: collect(kitchen.make("kitchen-partial"), "mixed", 10, 0, out=tmp_path / "x"),
            "data of kind mixed belongs to kitchen-mixed, not to kitchen-partial",
        ),
    ):
        with pytest.raises(HilpError, match=message):
            action()
    assert not list(tmp_path.iterdir())
