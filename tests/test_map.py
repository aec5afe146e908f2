"""`hilp map` and the pictures of a report where no distance is exact: the latent space on a plan."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from matplotlib.collections import PolyCollection

import hilp
from hilp import tasks
from hilp.cli import main
from hilp.learning import methods
from hilp.policy.artifact import Provenance
from hilp.policy.policy import FoundationPolicy
from hilp.policy.preparation import Preparation
from hilp.prompts.bank import Bank
from hilp.report import figures, page
from hilp.spec import Spec

Change = Callable[..., FoundationPolicy]
PNG = b"\x89PNG"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What t-SNE makes of latents has its own tests."""
    monkeypatch.setattr("hilp.report.figures.maps.tsne", lambda points: points[:, :2])


def untrained(method: str, observations: np.ndarray, actions: np.ndarray, task: str, **sizes: Any) -> FoundationPolicy:
    """A policy as its networks are at first: quick to have, and as good to draw."""
    module, config = methods.module(method), methods.config(method, dim=4, hidden=(8,), actor_hidden=(8,), **sizes)
    spec = Spec(observations.shape[1], actions.shape[1])
    core = jax.jit(lambda key: module.export(config, module.init(config, spec, key)))(jax.random.key(0))
    units = [make(size) for size in (spec.observation_dim, spec.action_dim) for make in (np.zeros, np.ones)]
    sample = Bank(*(rows.astype(np.float32) for rows in (observations, actions, observations)))
    return FoundationPolicy(config, spec, core, Preparation(*units), sample, Provenance(task=task))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The latent maps that were asked for."""
    asked: list[dict[str, Any]] = []
    real = figures.latent_map

    def note(world: Any, observations: np.ndarray, latents: np.ndarray, **style: Any) -> Any:
        asked.append({"observations": observations, "latents": latents, **style})
        return real(world, observations, latents, **style)

    monkeypatch.setattr(figures, "latent_map", note)
    return asked


@pytest.mark.usefixtures("quick")
def test_both_pictures_and_what_is_told(
    run_copy: Path, tiny: FoundationPolicy, capsys: pytest.CaptureFixture[str], drawn: list[dict[str, Any]]
) -> None:
    assert main(["map", str(run_copy), "--json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    files = {"latents": run_copy / "latents.png", "distances": run_copy / "latents-distances.png"}
    assert err == "" and told == {
        "policy": tiny.fingerprint,
        "task": "maze-medium",
        "points": 1000,
        "goal": told["goal"],
        **{name: str(path) for name, path in files.items()},
    }
    assert all(path.read_bytes().startswith(PNG) for path in files.values())
    assert tiny.spec.observation_dim == len(told["goal"])
    (asked,) = drawn
    assert asked["flatten"] is None and len(asked["observations"]) == 1000
    kept = {tuple(row) for row in tiny.bank.observations}
    assert {tuple(row) for row in asked["observations"]} <= kept, "the policy's own states"
    np.testing.assert_array_equal(asked["latents"], tiny.encode(asked["observations"]))
    before = {name: path.read_bytes() for name, path in files.items()}
    assert main(["map", str(run_copy)]) == 0
    assert {name: path.read_bytes() for name, path in files.items()} == before
    assert f"latents: {files['latents']}\n" in capsys.readouterr().out


def test_what_was_asked_for_is_drawn(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], drawn: list[dict[str, Any]]
) -> None:
    out = tmp_path / "new" / "map.svg"
    words = ["map", str(tiny_run), "--out", str(out), "--points", "120", "--flatten", "pca", "--goal", "6.5,1.5"]
    assert main([*words, "--data", "maze-medium-explore", "--seed", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["goal"] == [6.5, 1.5] and told["points"] == 120
    assert sorted(path.name for path in out.parent.iterdir()) == ["map-distances.svg", "map.svg"]
    (asked,) = drawn
    assert asked["flatten"] == "pca"
    rows = {tuple(row) for row in hilp.load("maze-medium-explore").observations}
    assert {tuple(row) for row in asked["observations"]} <= rows, "states of the data"


def test_distances_are_those_of_the_latents(tiny: FoundationPolicy) -> None:
    world = tasks.make("maze-medium")
    goal = page.evaluation_goal(world, np.float32([6.5, 1.5]))
    fig = page.learned_distances(tiny, world, tiny.bank, goal)
    (squares,) = [artist for artist in fig.axes[0].get_children() if type(artist) is PolyCollection]
    corners = np.array([path.vertices[:4] for path in squares.get_paths()])
    states = corners.mean(axis=1).astype(np.float32)
    np.testing.assert_allclose(states, tiny.bank.observations, atol=1e-5)
    expected = [np.linalg.norm(tiny.encode(state) - tiny.encode(goal)) for state in tiny.bank.observations[:20]]
    np.testing.assert_allclose(squares.get_array()[:20], expected, rtol=1e-4)


def test_a_goal_is_one_of_an_evaluation() -> None:
    world = tasks.make("maze-medium")
    goals = np.array([page.evaluation_goal(world, seed=seed) for seed in (0, 0, 1)])
    assert (goals[0] == goals[1]).all() and (goals[0] != goals[2]).any()
    assert world.valid(goals.astype(np.float64)).all()


@pytest.mark.usefixtures("quick")
def test_latents_that_are_no_distances(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    states = tasks.make("maze-medium").starts(np.random.default_rng(0), 300)
    run = untrained("iql-lap", states, 0 * states, "maze-medium", phi_hidden=(8, 8)).save(tmp_path / "run")
    assert main(["map", str(run), "--json"]) == 0
    assert "distances" not in json.loads(capsys.readouterr().out)
    assert [path.name for path in run.glob("*.png")] == ["latents.png"]
    assert main(["map", str(run), "--goal", "1.5,1.5"]) == 2
    assert "does not learn distances" in capsys.readouterr().err


def test_one_line_where_there_is_nothing_to_draw(
    tiny: FoundationPolicy, change: Change, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(folder: Path, *words: str) -> str:
        before = sorted(folder.rglob("*"))
        assert main(["map", str(folder), *words]) == 2
        out, err = capsys.readouterr()
        assert out == "" and re.fullmatch(r"hilp: error: [^\n]+\n", err)
        assert sorted(folder.rglob("*")) == before
        return err

    own = change(tiny, provenance=Provenance()).save(tmp_path / "own")
    assert "--task" in refused(own)
    nothing = Bank(*(array[:0] for array in (tiny.bank.observations, tiny.bank.actions)), tiny.bank.observations[:0])
    assert "--data" in refused(change(tiny, bank=nothing).save(tmp_path / "bare"))


def test_a_robot_has_no_plan(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("dm_control")
    assert main(["map", str(tiny_run), "--task", "walker", "--out", str(tmp_path / "map.png")]) == 2
    assert capsys.readouterr().err == "hilp: error: walker has no plan to draw on: mazes and AntMaze have one\n"
    assert not list(tmp_path.iterdir())


# ---- the report ------------------------------------------------------------------------------------------------------


def pictures(page: str) -> list[bytes]:
    return [base64.b64decode(data) for data in re.findall(r'src="data:image/png;base64,([^"]+)"', page)]


@pytest.mark.usefixtures("quick")
def test_a_report_without_exact_distances(
    tiny: FoundationPolicy, change: Change, monkeypatch: pytest.MonkeyPatch, drawn: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr("hilp.tasks.maze.FINITE_LIMIT", 0)
    text = page.build(tiny, [], [], tasks.make("maze-medium"))
    assert "What phi has learned" in text and "Rank correlation" not in text
    assert [picture[:4] for picture in pictures(text)] == [PNG, PNG]
    (asked,) = drawn
    assert len(asked["observations"]) == page.SHOWN_LATENTS and asked["flatten"] == "tsne" and "by t-SNE" in text
    nothing = Bank(*3 * [tiny.bank.observations[:0]])
    assert "What phi has learned" not in page.build(change(tiny, bank=nothing), [], [], tasks.make("maze-medium"))


def test_a_report_with_exact_distances_keeps_to_principal_directions(
    tiny: FoundationPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quickstart's minute is not for t-SNE."""
    monkeypatch.setattr("hilp.report.figures.maps.tsne", None)
    assert len(pictures(page.build(tiny, [], [], tasks.make("maze-medium")))) == 3


@pytest.mark.usefixtures("quick")
def test_an_ants_map_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not all(importlib.util.find_spec(package) for package in ("mujoco", "ogbench")):
        pytest.skip("needs the simulators")
    world = tasks.make("antmaze-large")
    rng = np.random.default_rng(0)
    xy = world.centres(world.free_cells[rng.integers(len(world.free_cells), size=300)])
    run = untrained("hilp", world.resets(rng, xy), np.zeros((300, 8)), "antmaze-large").save(tmp_path / "run")
    assert main(["map", str(run), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["points"] == 300 and len(told["goal"]) == 29
    corner = world.centres(np.array([7, 9]))
    assert (np.abs(told["goal"][:2] - corner) <= 1.5).all(), "the goal of its evaluation"
    assert main(["map", str(run), "--goal", "4,0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["goal"][:3] == [4, 0, 0.75]
    assert main(["map", str(run), "--goal", "-4,-4"]) == 2
    assert "is no free position" in capsys.readouterr().err
    text = page.write(shutil.copytree(run, tmp_path / "copy")).read_text()
    assert len(pictures(text)) == 2 and "antmaze-large has no exact distances" in text
