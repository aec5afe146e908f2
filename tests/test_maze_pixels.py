"""The maze seen from above: pictures that can be read again, and everything that a policy of pictures is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rerun.chunk import RrdReader

import hilp
from hilp import tasks, testing
from hilp.cli import main
from hilp.data import audit
from hilp.data.load import from_arrays
from hilp.learning import methods
from hilp.prompts.specs import Goal
from hilp.report import figures, page
from hilp.tasks import rendering
from hilp.tasks.maze import MAZES

NAME = "maze-medium-pixels"


@pytest.mark.parametrize("name", sorted(MAZES))
def test_the_place_of_the_robot_is_read_from_its_picture(name: str) -> None:
    world: Any = tasks.make(f"{name}-pixels")
    places = world.starts(np.random.default_rng(0), 300)
    seen = world.render_states(places)
    assert seen["pixels"].shape == (300, 32, 32, 3) and seen["pixels"].dtype == np.uint8
    assert np.abs(world.infer_states(seen) - places).max() < 0.03
    np.testing.assert_array_equal(rendering.observe_states(world, places[7])["pixels"], seen["pixels"][7])
    np.testing.assert_allclose(
        rendering.infer_states(world, rendering.observe_states(world, places[7])), places[7], atol=0.03
    )


def test_walls_floor_and_robot_have_their_colours() -> None:
    world: Any = tasks.make(NAME)  # 8 x 8 cells of 4 x 4 pixels
    corner = world.cell_corners[0] + 0.5
    (picture,) = world.render_states(corner[None])["pixels"]
    row, column = world.free_cells[0]
    patch = picture[4 * row : 4 * row + 4, 4 * column : 4 * column + 4].astype(int)
    assert patch[1:3, 1:3, 0].min() > 150, "the robot is red"
    assert not picture[:4, 20:, 0].any() and (picture[:4, 20:] == picture[0, 20]).all(), "walls are not"
    far = picture[4 * world.free_cells[-1][0] + 1, 4 * world.free_cells[-1][1] + 1]
    assert far[1] > 150 and far[0] == 0, "the floor is green"


def test_it_is_a_task_as_others_are() -> None:
    testing.check_task(NAME)
    world, plain = (tasks.make(name) for name in (NAME, "maze-medium"))
    assert world.finite().steps.max() == plain.finite().steps.max() and world.max_steps == plain.max_steps
    assert rendering.policy_spec(world).parts == (("pixels", (32, 32, 3), "uint8"),)
    places = world.starts(np.random.default_rng(0), 50).astype(np.float32)
    for name in world.potentials:
        found = world.potentials[name](world.render_states(places))
        np.testing.assert_allclose(found, plain.potentials[name](places), atol=0.05)


def test_goals_are_pictures_and_nothing_red_is_no_goal() -> None:
    world: Any = tasks.make(NAME)
    goal = world.starts(np.random.default_rng(1), 1)[0]
    running = world.episodes(np.random.default_rng(0), 3, goal=rendering.observe_states(world, goal))
    np.testing.assert_allclose(running.goals, np.tile(goal, (3, 1)), atol=0.03)
    np.testing.assert_array_equal(
        rendering.policy_observations(running)["pixels"], world.render_states(running.observations)["pixels"]
    )
    assert world.near(rendering.policy_goals(running), goal).all()
    with pytest.raises(hilp.HilpError, match="there is no robot on the floor of maze-medium-pixels"):
        world.episodes(np.random.default_rng(0), 1, goal={"pixels": np.zeros((32, 32, 3), np.uint8)})


def test_built_in_data_are_pictures_of_the_same_walks() -> None:
    data, plain = (hilp.load(name, steps=500) for name in (NAME, "maze-medium"))
    assert data.task == NAME and data.observations["pixels"].shape == (data.rows, 32, 32, 3)
    np.testing.assert_array_equal(data.actions, plain.actions)
    np.testing.assert_array_equal(data.extra("physics"), plain.observations)


@pytest.mark.parametrize("place", [[3.0], [1.0, 2.0, 3.0], [np.nan, 1.0]])
def test_a_state_that_is_none_cannot_be_seen(place: list[float]) -> None:
    with pytest.raises(hilp.HilpError, match="has 2 finite numbers"):
        rendering.observe_states(tasks.make(NAME), np.array(place))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few updates: not good, but whole."""
    folder = tmp_path_factory.mktemp("pixels") / "run"
    small = {"hidden": (32, 32), "actor_hidden": (32, 32), "batch": 16, "dim": 4, "phi_discount": 0.9}
    cfg = methods.configure(
        hilp.preset("hilp", "laptop", NAME).config, {**small, "goal_discount": 0.9, "phi_steps": 20, "normalize": False}
    )
    hilp.pretrain(cfg, hilp.load(NAME, steps=2_000), steps=40, bank=200, out=folder, quiet=True)
    return folder


def test_every_prompt_takes_pictures(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By row, by place, by photo: evaluated, drawn, filmed and written up."""
    policy, world = hilp.FoundationPolicy.load(run), tasks.make(NAME)
    places = world.starts(np.random.default_rng(3), 2)
    photo = tmp_path / "goal.png"
    Image.fromarray(rendering.observe_states(world, places[0])["pixels"]).resize(
        (128, 128), Image.Resampling.NEAREST
    ).save(photo)
    rows = hilp.evaluate(policy, NAME, plan=(0, "auto"), episodes=3)
    assert [row["metric"] for row in rows] == ["success"] * 2
    assert hilp.evaluate(policy, NAME, plan=(), rewards=["right", "region"], episodes=2)[0]["r2"] is not None
    image = Goal(rendering.observe_states(world, places[0]))
    by_image, by_text = (hilp.evaluate(policy, NAME, [one], episodes=2)[0] for one in (image, Goal(str(photo))))
    assert by_image["lengths"] == by_text["lengths"], "a goal by its image"
    with pytest.raises(hilp.HilpError, match="pixels"):
        hilp.evaluate(policy, NAME, [Goal({"camera": places[0]})], episodes=2)
    goals = ["row:5", f"x={places[1][0]:.2f},y={places[1][1]:.2f}", str(photo)]
    for number, goal in enumerate(goals):
        picture = str(tmp_path / f"{number}.png")
        assert main(["prompt", str(run), "--goal", goal, "--steps", "3", "--picture", picture]) == 0
    assert main(["prompt", str(run), "--reward", "right", "--steps", "3"]) == 0
    film = str(tmp_path / "film.gif")
    assert main(["prompt", str(run), "--goal", str(photo), "--plan", "1", "--steps", "2", "--video", film]) == 0
    record = ["--rerun", str(tmp_path / "film.rrd")]
    assert main(["prompt", str(run), "--goal", str(photo), "--plan", "auto", "--steps", "2", *record]) == 0
    seen = [chunk for chunk in RrdReader(record[1]).stream().to_chunks() if chunk.entity_path == "/sees/pixels"]
    buffers = [row for chunk in seen for row in chunk.to_record_batch()["Image:buffer"].to_pylist()]
    assert [len(buffer[0]) for buffer in buffers] == [32 * 32 * 3] * len(buffers) and buffers
    assert main(["evaluate", str(run), "--plan", "1", "--episodes", "2"]) == 0
    assert main(["map", str(run), "--points", "100", "--flatten", "pca", "--out", str(tmp_path / "map.png")]) == 0
    assert main(["diagnose", str(run)]) == 0
    capsys.readouterr()
    text = page.write(run).read_text()
    assert "Plans in pictures" in text and "What phi has learned" in text
    (tmp_path / "text.png").write_text("no picture")
    for wrong, message in (("text.png", "is not a picture that can be read"), ("gone.png", "there is no picture")):
        assert main(["prompt", str(run), "--goal", str(tmp_path / wrong)]) == 2
        assert message in capsys.readouterr().err


def test_a_high_level_sees_pictures_too(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its segments are labelled with skills in blocks that fit, and its prompt comes back from its file."""
    from hilp.training import hierarchy

    film = hilp.load(NAME, steps=600).save(tmp_path / "film")
    policy, data = hilp.FoundationPolicy.load(run), hilp.load(film)
    whole = hierarchy.segment_skills(policy, data, 5)
    monkeypatch.setattr(hierarchy, "MOST_PICTURES", 100 * 6 * 3072)
    np.testing.assert_allclose(hierarchy.segment_skills(policy, data, 5), whole, atol=1e-4)
    small = ["--set", "hidden=16,16", "actor_hidden=16,16", "batch=16", "--steps", "4"]
    high = tmp_path / "high"
    assert main(["hierarchy", str(run), "--data", str(film), "--reward", "right", "--out", str(high), *small]) == 0
    (prompt,) = high.glob("*.safetensors")
    asked = ["--load", str(prompt), "--rewards", "right", "--episodes", "2"]
    assert main(["evaluate", str(run), *asked]) == 0
    loaded = policy.load_prompt(prompt)
    assert loaded.high.config.encoder == "light"
    first = {"pixels": data.observations["pixels"][:2]}
    assert policy.act(first, loaded).shape == (2, 2)


def test_a_plan_in_pictures_halves_the_way(run: Path) -> None:
    """Seven midpoints, all states of the bank, each nearer to the goal in latents of a straight line."""
    policy = hilp.FoundationPolicy.load(run)
    (start, goal), *_ = page.far_pairs(policy.midpoints.latents)
    rows = page.plan_by_midpoints(policy.midpoints, policy.midpoints.latents, start, goal)
    assert len(rows) == 9 and (rows[0], rows[-1]) == (start, goal)
    (section,) = page._plans_in_pictures(policy)
    assert f"keeps {len(policy.bank):,} transitions" in section.text
    assert sum(len(ax.images) for ax in section.figures[0][0].axes) >= len(rows)


@pytest.mark.filterwarnings("ignore:phi expresses only")
def test_the_bank_of_pictures_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    from hilp.prompts import bank

    data = hilp.load(NAME, steps=300)
    assert len(bank.Bank.draw(data, 250, 0)) == 250
    monkeypatch.setattr(bank, "MOST_PICTURES", 100 * 3072)
    few = bank.Bank.draw(data, 250, 0)
    assert len(few) == 50 and sum(column.nbytes for column in few.columns().values()) < 101 * 3072 + 50 * 16
    policy = hilp.pretrain(hilp.preset("hilp", "laptop", NAME).config, data, steps=1, bank=250, quiet=True)
    assert policy.latent_bank is not None, "of pictures alone, a formula sees the actions of all transitions"
    assert policy.reward(function="-abs(action[0])", rule="skill").r2 <= 1.0  # type: ignore[union-attr]
    numbers = from_arrays({"observations": np.zeros((9, 2)), "actions": np.zeros((9, 1)), "episode_lengths": [9]})
    assert len(bank.Bank.draw(numbers, 250, 0)) == 8


def test_inspect_draws_a_contact_sheet(tmp_path: Path) -> None:
    data = hilp.load(NAME, steps=600)
    report = audit.inspect(data)
    assert [pictures.shape for _, pictures in report.stills] == [(12, 32, 32, 3)] * 3
    np.testing.assert_array_equal(report.stills[0][1][0], data.observations["pixels"][0])
    figures.save_data_picture(report, tmp_path / "sheet.png")
    assert Image.open(tmp_path / "sheet.png").width > 300


MEMORY = """
import resource, sys
import hilp
from hilp.learning import methods

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def train(data):
    small = {"hidden": (16,), "actor_hidden": (16,), "batch": 32, "dim": 4, "encoder": "light"}
    frozen = {"schedule": "sequential", "phi_steps": 3, "policy_sees": "phi"}
    hilp.pretrain(methods.config("hilp", **small, **frozen), data, steps=6, bank=0, quiet=True)

train(hilp.load("maze-medium-pixels", steps=20_000))
before = peak()
data = hilp.load(sys.argv[1])
train(data)
print((peak() - before) / data.observations["pixels"].nbytes)
"""


def test_training_on_pictures_takes_their_bytes_and_little_more(tmp_path: Path) -> None:
    """100,000 frames from a folder to networks: no second copy, and above all none of floats."""
    few = hilp.load(NAME, steps=1_000)
    lengths = np.tile(few.lengths, 100)
    frames = np.tile(few.observations["pixels"], (100, 1, 1, 1))
    data = hilp.Dataset({"pixels": frames}, np.tile(few.actions, (100, 1)), lengths)
    assert data.rows >= 100_000
    folder = data.save(tmp_path / "film")
    found = subprocess.run([sys.executable, "-c", MEMORY, str(folder)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert float(found.stdout.split()[-1]) <= 1.3
