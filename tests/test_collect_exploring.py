from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import cli
from hilp.collectors import acting, collecting, exploring
from hilp.data.dataset import Dataset
from hilp.errors import HilpError
from hilp.storage import lines
from hilp.tasks import maze

MAP = "#######\n#.....#\n#####.#\n#.....#\n#######\n"
SMALL = {"rounds": 3, "updates": 20, "episode": 10, "wander": 3}


def small(out: Path, seed: int = 0, steps: int = 60, **more: Any) -> Dataset:
    return hilp.collect(MAP, "skills", steps, seed, out=out, config=SMALL, **more)


def test_coverage_by_hand() -> None:
    """Two episodes of 2 and 3 transitions in a corridor of cells; rows after the first so many transitions count."""
    places = np.array([[1.5, 3.5], [2.2, 3.5], [2.9, 3.5], [1.1, 3.9], [3.5, 3.1], [3.6, 3.1], [5.5, 2.5]], np.float32)
    data = Dataset(places, np.zeros((7, 2), np.float32), np.array([3, 4]))
    world = maze.make(MAP)
    found = exploring.coverage(world, 1.0, data, [1, 2, 3, 5])
    assert found == {"transitions_at": [1, 2, 3, 5], "cells_at": [2, 2, 3, 4], "cells_of": 11}
    assert collecting.covered(found) == "2, 2, 3, 4 of 11"
    halves = exploring.coverage(world, 0.5, data, [5])  # squares, by column and row: no cells of the map
    assert halves == {"transitions_at": [5], "cells_at": [6]}


def test_rounds_begin_at_one_place_and_tell_their_coverage(tmp_path: Path) -> None:
    data = small(tmp_path / "data", steps=65)  # 20, 20 and 25 transitions
    assert data.lengths.tolist() == [11] * 6 + [6] and data.name == "maze-custom-skills"
    begins = np.asarray(data.observations)[data.starts]
    assert (begins == maze.make(MAP).target).all()
    told = data.measured
    assert (
        told["transitions_at"] == [7, 13, 20, 26, 33, 39, 46, 52, 59, 65]
        and told["cells_of"] == 11
        and told["config"]["updates"] == 20
    )
    assert told["cells_at"] == sorted(told["cells_at"])
    cells = {tuple(cell) for cell in np.floor(np.asarray(data.observations)).astype(int)}
    assert told["cells_at"][-1] == len(cells)
    world = maze.make(MAP)
    rows = data.transition_rows
    after = world.step(data.observations[rows], data.actions[rows])
    np.testing.assert_allclose(after, data.observations[rows + 1], atol=1e-5)


def test_a_seed_decides_everything_and_a_killed_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "SHARD", 10)  # a file for each few episodes: it is killed inside of a round
    monkeypatch.setattr(acting, "SIDE_BY_SIDE", 1)
    whole = small(tmp_path / "whole")
    assert small(tmp_path / "other", seed=1).fingerprint != whole.fingerprint

    def stop(done: int) -> None:
        if done == 50:  # the second of the three episodes of a round, by a policy of the 40 transitions before
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small(tmp_path / "data", steps=90, progress=stop)
    assert not (tmp_path / "data").exists()
    trained: list[int] = []
    learned = exploring._learned

    def counted(world: Any, cfg: Any, data: Dataset, seed: int) -> Any:
        trained.append(data.transitions)
        return learned(world, cfg, data, seed)

    monkeypatch.setattr(exploring, "_learned", counted)
    again = small(tmp_path / "data", steps=90)
    assert trained == [30, 60]  # of the transitions before each round, although 50 were there
    assert again.fingerprint == small(tmp_path / "again", steps=90).fingerprint


def test_seldom_visited_landmarks_are_gone_to() -> None:
    """Chances are as 1 / visits: of 1, 1, 2 and 4 visits 4, 4, 2 and 1 of 11."""
    np.testing.assert_allclose(exploring.chances(np.array([1, 1, 2, 4])), np.array([4, 4, 2, 1]) / 11)


class Still:
    """A policy that names its goals and does not move."""

    def goal(self, observation: np.ndarray) -> float:
        return float(observation[0])

    def encode(self, observation: np.ndarray) -> np.ndarray:
        return observation

    def act(self, observation: np.ndarray, prompt: float) -> np.ndarray:
        return np.full(2, prompt)


def test_explorers_wander_at_a_landmark_or_when_time_is_over() -> None:
    places = np.array([[5.0, 0.0]])
    landmarks = SimpleNamespace(observations=places, latents=places, radius=0.5, chances=np.ones(1))
    cfg, rng = exploring.Config(travel=2, wander=3), np.random.default_rng(0)

    def travels(at: float) -> list[bool]:
        explorer = exploring.Explorer(maze.make(MAP), cfg, Still(), landmarks, rng)  # type: ignore[arg-type]
        return [bool((explorer(np.array([at, 0.0])) == 5).all()) for _ in range(7)]

    assert travels(3.0) == [True, True, False, False, False, True, True]
    assert travels(4.6) == [False] * 7  # each landmark is reached at once


def test_any_environment_and_discrete_actions(tmp_path: Path) -> None:
    config = {**SMALL, "rounds": 2, "cell": 0.1}
    data = hilp.collect("gym:CartPole-v1", "skills", 80, out=tmp_path / "data", config=config)
    assert data.choices == 2 and data.transitions == 80 and "own_reward" in data.extras
    assert len(data.measured["cells_at"]) == 10 and "cells_of" not in data.measured


def test_mistakes_are_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HilpError, match="29 steps are too few for 3 rounds of an episode of 10 steps: ask for 30"):
        small(tmp_path / "data", steps=29)
    with pytest.raises(HilpError, match="maze-large-pixels shows pictures"):
        hilp.collect("maze-large-pixels", "skills", 100, out=tmp_path / "data", config=SMALL)
    with pytest.raises(HilpError, match="give a folder"):
        hilp.collect(MAP, "skills", 60)
    with pytest.raises(HilpError, match=r"unknown config key 'round'.*'rounds'"):
        hilp.collect(MAP, "skills", 60, out=tmp_path / "data", config={"round": 3})
    with pytest.raises(HilpError, match="did you mean 'skills'"):
        hilp.collect(MAP, "skils", 60, out=tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "map.txt").write_text(MAP)
    argv = ["data", "collect", "--task", str(tmp_path / "map.txt"), "--kind", "skills", "--steps", "60"]
    argv += ["--set", *(f"{key}={value}" for key, value in SMALL.items())]
    assert cli.main([*argv, "--out", str(tmp_path / "data"), "--rows", str(tmp_path / "rows.jsonl")]) == 0
    out, err = capsys.readouterr()
    assert "round 3 of 3: 60 transitions, cells visited: " in err and "cells visited, by tenths: 1, " in out
    ((_, row),) = lines.read(tmp_path / "rows.jsonl")
    assert row["cells_at"] == Dataset.open(tmp_path / "data").measured["cells_at"]
