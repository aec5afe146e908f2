"""Goals that are kept: where trajectories stay, what prompts say of it, and where they head once they are there."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp.prompts.graph import Graph, build
from hilp.prompts.posture import resting


def test_who_stays_by_hand() -> None:
    walk = np.arange(20.0)
    pause = np.concatenate([np.arange(10.0), np.full(15, 10.0), 10.0 + np.arange(10.0)])
    latents = np.concatenate([walk, pause])[:, None]
    # At one a step a radius of 2 is left after two; so six rows must be within it. The walk never stays.
    found = resting(latents, np.array([20, 35]), radius=2.0) - 20
    assert found.tolist() == list(range(8, 22)), "from two before the pause to six before row 27, which is at 12"
    assert resting(latents[:20], np.array([20]), 2.0).tolist() == []
    assert resting(latents[:3], np.array([3]), 2.0).tolist() == [], "too short to tell"


def test_episodes_that_end_do_not_stay_in_the_next() -> None:
    stayed = resting(np.concatenate([np.arange(8.0), np.full(8, 7.0)])[:, None], np.array([8, 8]), 1.0)
    assert stayed.tolist() == [8, 9], "the first ends where the second stands; six rows are to be stayed"


def test_the_graph_knows_states_where_bodies_stayed() -> None:
    rng = np.random.default_rng(0)
    pause = np.concatenate([np.arange(60.0), np.full(60, 60.0), 60.0 + np.arange(60.0)])
    latents = np.tile(pause, 5)[:, None] + 0.01 * rng.normal(size=(900, 1))
    drawn = build(latents, latents, np.full(5, 180), discount=0.97)
    assert len(drawn.rests) and np.abs(latents[drawn.rests, 0] - 60).max() < 4
    assert drawn.columns()["rests"].dtype == np.int32
    again = Graph.from_columns(drawn.columns(), len(latents))
    assert again.rests.tolist() == drawn.rests.tolist()
    with pytest.raises(ValueError, match="'rests' of the graph points outside"):
        Graph.from_columns(drawn.columns() | {"rests": np.array([900], np.int32)}, len(latents))


def with_rests(policy: hilp.FoundationPolicy, rows: Any) -> hilp.FoundationPolicy:
    assert policy.graph is not None
    return dataclasses.replace(policy, graph=dataclasses.replace(policy.graph, rests=np.asarray(rows, np.int32)))


def test_the_command_says_that_a_goal_is_only_passed(tiny: hilp.FoundationPolicy, tmp_path: Path, run: Any) -> None:
    goal = ",".join(str(number) for number in np.asarray(tiny.bank.observations)[7])
    for rows, said in (([], True), ([7], False)):
        with_rests(tiny, rows).save(tmp_path / "policy")
        code, out, err = run("prompt", tmp_path / "policy", "--goal", goal, "--steps", 2)
        assert code == 0 and ("passes this goal and never stays" in out) == said, err
