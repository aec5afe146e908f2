"""What a policy keeps of films: a few transitions whole, of the others latents, columns and thumbnails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp import export, storage
from hilp.errors import HilpError
from hilp.export import numpy_folder
from hilp.learning import methods
from hilp.prompts import bank
from hilp.prompts import reward as reward_prompts
from hilp.report import page

ROWS, EPISODE, WHOLE, KEPT = 240, 40, 20, 150
SHAPE = (48, 40, 6)  # two frames in colour
SMALL: dict[str, Any] = {"batch": 8, "dim": 3, "encoder": "light", "augment": "none", "normalize": False}
SIZES: dict[str, dict[str, Any]] = {
    "hilp": {"hidden": (16, 16), "actor_hidden": (16, 16), "phi_discount": 0.9, "goal_discount": 0.9},
    "fb": {"backward_hidden": (16, 16), "preprocess_hidden": (16, 16), "hidden": 16},
}


@pytest.fixture(scope="module")
def film() -> hilp.Dataset:
    """A bright spot that wanders, where it is beside the picture, and physics."""
    rng = np.random.default_rng(0)
    place = np.clip(np.cumsum(rng.normal(0, 0.05, (ROWS, 2)), axis=0) % 1.0, 0, 1).astype(np.float32)
    frames = rng.integers(0, 40, (ROWS, 48, 40, 3), np.uint8)
    for frame, (x, y) in zip(frames, place, strict=True):
        frame[int(40 * y) : int(40 * y) + 8, int(32 * x) : int(32 * x) + 8] = 255
    made = hilp.Dataset(
        {"camera": frames, "state": place},
        rng.uniform(-1, 1, (ROWS, 2)).astype(np.float32),
        np.full(ROWS // EPISODE, EPISODE),
        {"physics": np.concatenate([place, place**2], axis=1)},
        name="spots",
    )
    return made.in_frames(2)


@pytest.fixture(scope="module", params=["hilp", "fb"])
def policy(request: pytest.FixtureRequest, film: hilp.Dataset) -> Iterator[hilp.FoundationPolicy]:
    patch = pytest.MonkeyPatch()
    patch.setattr(bank, "MOST_PICTURES", WHOLE * 2 * int(np.prod(SHAPE)))
    patch.setattr(bank, "BLOCK", 64)
    patch.setattr(bank, "MOST_THUMBNAILS", 100 * 24 * 20 * 3)
    config = methods.config(request.param, **SMALL, **SIZES[request.param])
    yield hilp.pretrain(config, film, steps=2, bank=KEPT, quiet=True)
    patch.undo()


def test_it_has_what_plans_and_rewards_need_of_the_rows(policy: hilp.FoundationPolicy, film: hilp.Dataset) -> None:
    kept, rows = policy.latent_bank, bank.Bank.rows(film, KEPT, 0)
    assert kept is not None and (len(policy.bank), len(kept), len(kept.thumbnails)) == (WHOLE, KEPT, 100)
    whole = bank.Bank.at(film, rows)
    assert ("latents" in kept.encoded) == policy.has_rule("encode") == (policy.method == "hilp")
    if policy.has_rule("encode"):
        np.testing.assert_allclose(kept.encoded["latents"], policy.encode(whole.observations), atol=1e-5)
        np.testing.assert_allclose(kept.encoded["next_latents"], policy.encode(whole.next_observations), atol=1e-5)
    np.testing.assert_array_equal(kept.rest.observations["state"], film.observations["state"][rows])
    assert set(kept.rest.observations) == {"state"}
    np.testing.assert_array_equal(kept.rest.next_extras["physics"], film.extra("physics")[rows + 1])
    wanted = policy.reward_features(whole.observations, whole.next_observations)
    np.testing.assert_allclose(kept.encoded["features"], wanted, atol=1e-5)


def test_thumbnails_are_the_newest_frame_made_smaller(policy: hilp.FoundationPolicy, film: hilp.Dataset) -> None:
    kept, rows = policy.latent_bank, bank.Bank.rows(film, KEPT, 0)
    assert kept is not None and kept.thumbnails.shape == (100, 24, 20, 3)
    for number in (0, 57, 99):
        frame = film.observations["camera"][rows[kept.shown[number]]][..., 3:].astype(np.float64)
        means = frame.reshape(24, 2, 20, 2, 3).mean(axis=(1, 3))
        assert np.abs(kept.thumbnails[number] - means).max() <= 0.5
    small = np.zeros((9, 32, 32, 3), np.uint8)
    assert len(bank._thumbnails(small, np.arange(9))[0]) == 0, "those are small already"


def test_it_says_how_much_it_keeps(policy: hilp.FoundationPolicy, tmp_path: Path) -> None:
    assert policy.keeps == f"{WHOLE} transitions whole, latents of {KEPT}, 100 thumbnails: 1 MB"
    files = policy.save(tmp_path / "policy")
    assert policy.latent_bank is not None
    size = sum(column.nbytes for column in policy.latent_bank.columns().values())
    assert size <= (files / "latents.safetensors").stat().st_size < size + 10_000


def test_it_comes_back_from_its_folder(policy: hilp.FoundationPolicy, film: hilp.Dataset, tmp_path: Path) -> None:
    folder = policy.save(tmp_path / "policy")
    again = hilp.FoundationPolicy.load(folder)
    assert again.fingerprint == policy.fingerprint
    assert json.loads((folder / "config.json").read_text())["latents"] is True
    goal, start = ({name: part[row] for name, part in film.observations.items()} for row in (100, 3))
    if policy.has_rule("goal_direction"):
        np.testing.assert_array_equal(again.midpoints.latents, policy.midpoints.latents)
        assert len(again.midpoints.latents) == KEPT
        acted = [one.act(start, one.goal(goal, plan="auto")) for one in (policy, again)]
        np.testing.assert_array_equal(*acted)
    columns, note = storage.read_arrays(folder / "latents.safetensors")
    storage.write_arrays(folder / "latents.safetensors", {**columns, "shown": columns["shown"] + 1}, note)
    with pytest.raises(HilpError, match=r"latents.safetensors was changed"):
        hilp.FoundationPolicy.load(folder)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda c: {**c, "shown": c["shown"] + 100}, "show no transitions"),
        (lambda c: {**c, "features": c["features"][:-1]}, "do not fit its transitions"),
        (lambda c: {**c, "thumbnails": c["thumbnails"].astype(np.float32)}, "no pictures"),
        (lambda c: {**c, "observations/camera": c["thumbnails"]}, "do not fit the policy"),
    ],
)
def test_columns_that_make_no_sense_are_refused(policy: hilp.FoundationPolicy, change: Any, what: str) -> None:
    assert policy.latent_bank is not None
    with pytest.raises(ValueError, match=what):
        bank.LatentBank.from_columns(change(policy.latent_bank.columns()), policy.spec)


def test_rewards_ask_about_all_of_them_unless_they_look_at_pictures(policy: hilp.FoundationPolicy) -> None:
    """By physics, by a formula over numbers: 150 transitions; by brightness: the 20 that have pictures."""
    asked = []

    def by_physics(s: Any, a: Any, s2: Any, extras: Any) -> np.ndarray:
        asked.append(len(a))
        s2["state"][:] = 0.0  # what a function does to its arguments stays with it
        return extras.after("physics")[:, 2]

    def by_picture(s: Any, a: Any, s2: Any) -> np.ndarray:
        asked.append(len(a))
        return s2["camera"].mean(axis=(1, 2, 3)) + s2["camera"][:, :24].mean(axis=(1, 2, 3))

    kept = policy.latent_bank
    assert kept is not None
    found = policy.reward(function=by_physics, rule="skill")
    z, r2 = reward_prompts.least_squares(kept.encoded["features"], kept.rest.next_extras["physics"][:, 2])
    if policy.has_rule("backward"):
        z = kept.encoded["features"].T @ kept.rest.next_extras["physics"][:, 2]
    assert found.r2 == pytest.approx(r2) and asked == [KEPT]  # type: ignore[union-attr]
    np.testing.assert_allclose(found.z, policy.project(z), rtol=1e-4)  # type: ignore[union-attr]
    assert kept.rest.next_observations["state"].any()
    policy.reward(function="state[0]", rule="skill")
    policy.reward(function=by_picture, rule="skill")
    assert asked[1:] == [KEPT, WHOLE], "asked about all, it looks at a picture, and is asked about those that have one"


@pytest.mark.parametrize(
    "brightness",
    [
        lambda s: s.get("camera").mean(axis=(1, 2, 3)),
        lambda s: dict(s)["camera"].mean(axis=(1, 2, 3)),
        lambda s: dict(**s)["camera"].mean(axis=(1, 2, 3)),
        lambda s: next(iter(s.values())).mean(axis=(1, 2, 3)),
        lambda s: s["camera"].mean(axis=(1, 2, 3)) if "camera" in s else np.zeros(len(s["state"])),
    ],
)
def test_however_a_reward_looks_at_pictures_it_gets_them(policy: hilp.FoundationPolicy, brightness: Any) -> None:
    wanted = policy.reward(function=lambda s, a, s2: s2["camera"].mean(axis=(1, 2, 3)), rule="skill")
    found = policy.reward(function=lambda s, a, s2: brightness(s2), rule="skill")
    np.testing.assert_array_equal(found.z, wanted.z)  # type: ignore[union-attr]


def test_plans_are_shown_by_thumbnails(policy: hilp.FoundationPolicy, film: hilp.Dataset) -> None:
    if not policy.has_rule("goal_direction"):
        assert page._plans_in_pictures(policy) == []
        return
    frames, latents = page.kept_pictures(policy)
    assert frames.shape == (100, 24, 20, 3) and len(latents) == 100
    (section,) = page._plans_in_pictures(policy)
    assert policy.keeps in section.text
    start, goal = ({name: part[row] for name, part in film.observations.items()} for row in (3, 100))
    way = policy.goal(goal, plan="graph").path(start)
    assert way["camera"].shape[1:] == SHAPE and set(way) == {"camera", "state"}


def test_an_export_plans_on_the_same_latents(
    film: hilp.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bank, "MOST_PICTURES", WHOLE * 2 * int(np.prod(SHAPE)))
    plain = methods.config("hilp", **{**SMALL, **SIZES["hilp"], "encoder": "none"})  # convolutions are not exported
    policy = hilp.pretrain(plain, film, steps=1, bank=KEPT, quiet=True)
    export.write(policy, "numpy", tmp_path / "robot")
    runtime = numpy_folder.load(tmp_path / "robot").load(tmp_path / "robot")
    np.testing.assert_array_equal(runtime.midpoints.latents, policy.midpoints.latents)
    start, goal = ({name: part[row] for name, part in film.observations.items()} for row in (3, 100))
    ours = policy.act(start, policy.goal(goal, plan=2, best=5))
    np.testing.assert_allclose(runtime.act(start, runtime.goal(goal, plan=2, best=5)), ours, atol=1e-4)


def test_all_is_kept_whole_where_it_is_small(policy: hilp.FoundationPolicy, film: hilp.Dataset) -> None:
    assert bank.LatentBank.draw(policy, film, WHOLE, 0) is None
