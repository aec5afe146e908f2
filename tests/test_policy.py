"""The policy and its folder: the same actions after a round trip, and one clear line for every kind of damage."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hilp
from hilp import storage
from hilp.learning import methods
from hilp.policy.artifact import Provenance
from hilp.policy.preparation import Preparation
from hilp.prompts.agent import Agent
from hilp.prompts.bank import Bank
from hilp.spec import Spec

Change = Callable[..., hilp.FoundationPolicy]
FILES = ("config.json", "weights.safetensors", "bank.safetensors", "graph.safetensors")


def observations(count: int = 7) -> np.ndarray:
    return np.random.default_rng(0).uniform(1, 7, (count, 2)).astype(np.float32)


def refusal(folder: Path) -> str:
    """The one line with which loading a damaged folder fails."""
    with pytest.raises(hilp.HilpError) as caught:
        hilp.FoundationPolicy.load(folder)
    line = str(caught.value)
    assert "\n" not in line
    assert str(folder) in line, "the line says which folder"
    return line


# ---- using it --------------------------------------------------------------------------------------------------------


def test_a_round_trip_gives_identical_actions(tiny: hilp.FoundationPolicy, tmp_path: Path) -> None:
    again = hilp.FoundationPolicy.load(tiny.save(tmp_path / "deep" / "copy"))
    x = observations()
    for make in (
        lambda p: p.skill(seed=4),
        lambda p: p.goal([1.5, 1.5]),
        lambda p: p.goal([1.5, 1.5], plan=2, best=7),
        lambda p: p.goal([6.5, 1.5], plan="auto"),
        lambda p: p.reward(function=lambda s, a, s2: p.reward_features(s, s2)[:, 3], rule="skill"),
    ):
        one, two = (policy.act(x, make(policy)) for policy in (tiny, again))
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-5)  # other tests may compile one with other flags
        assert one.shape == (7, 2) and np.isfinite(one).all() and np.abs(one).max() <= 1
    assert again.fingerprint == tiny.fingerprint
    assert again.config == tiny.config and again.spec == tiny.spec
    assert again.provenance == tiny.provenance
    assert sorted(path.name for path in (tmp_path / "deep" / "copy").iterdir()) == sorted(FILES), "no temporary files"


def test_a_run_and_its_policy_folder_load_the_same(tiny: hilp.FoundationPolicy, tiny_run: Path) -> None:
    assert hilp.FoundationPolicy.load(tiny_run / "policy").fingerprint == tiny.fingerprint
    assert hilp.FoundationPolicy.load(str(tiny_run)).fingerprint == tiny.fingerprint


@pytest.mark.parametrize("plan", [0, 1, "auto"])
def test_one_observation_acts_as_in_a_batch(tiny: hilp.FoundationPolicy, plan: int | str) -> None:
    x, go = observations(), tiny.goal([1.5, 1.5], plan=plan)
    batch = tiny.act(x, go)
    for row, action in zip(x, batch, strict=True):
        single = tiny.act(row, go)
        assert single.shape == (2,)
        np.testing.assert_allclose(single, action, atol=1e-5)
    np.testing.assert_allclose(tiny.act(x[0].tolist(), go), batch[0], atol=1e-5)


def test_skill_vectors_one_for_all_or_one_each(tiny: hilp.FoundationPolicy) -> None:
    x, z = observations(2), np.eye(8, dtype=np.float32)[:2]
    each = tiny.act(x, z)
    np.testing.assert_allclose(each[0], tiny.act(x[0], z[0]), atol=1e-5)
    np.testing.assert_allclose(each[1], tiny.act(x[1], z[1]), atol=1e-5)
    np.testing.assert_allclose(tiny.act(x, z[0])[1], tiny.act(x[1], z[0]), atol=1e-5)
    assert not np.allclose(each[1], tiny.act(x[1], z[0])), "the skill matters"


def test_encode_shapes(tiny: hilp.FoundationPolicy) -> None:
    x = observations()
    assert tiny.encode(x).shape == (7, 8) and tiny.encode(x[0]).shape == (8,) and tiny.encode(x[:0]).shape == (0, 8)
    np.testing.assert_allclose(tiny.encode(x)[3], tiny.encode(x[3]), atol=1e-5)


def test_the_normaliser_is_inside(tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset, change: Change) -> None:
    mean, scale = tiny.preparation.mean, tiny.preparation.scale
    np.testing.assert_allclose(mean, tiny_data.observations.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(scale, tiny_data.observations.std(axis=0), rtol=1e-4)
    bare = change(tiny, preparation=replace(tiny.preparation, mean=np.zeros_like(mean), scale=np.ones_like(scale)))
    x = observations()
    np.testing.assert_allclose(tiny.encode(x), bare.encode((x - mean) / scale), atol=1e-4)
    z = tiny.skill(seed=0).z
    np.testing.assert_allclose(tiny.act(x, z), bare.act((x - mean) / scale, z), atol=1e-4)


def made(observations: np.ndarray, actions: np.ndarray, **options: Any) -> hilp.Dataset:
    return hilp.load({"observations": observations, "actions": actions, "episode_lengths": [len(actions)]}, **options)


def test_a_constant_column_is_not_divided_by_zero() -> None:
    rng = np.random.default_rng(0)
    rows = np.stack([rng.normal(5, 2, 400), np.full(400, 1e6 / 3), np.full(400, 0.1)], axis=1).astype(np.float32)
    preparation = Preparation.of(made(rows, np.zeros((400, 1))), normalize=True)
    np.testing.assert_array_equal(preparation.scale[1:], [1, 1])
    prepared = (rows - preparation.mean) / preparation.scale
    assert np.isfinite(prepared).all()
    assert np.abs(prepared[:, 1:]).max() < 0.1, "a constant is shifted to about zero"
    np.testing.assert_allclose([prepared[:, 0].mean(), prepared[:, 0].std()], [0, 1], atol=1e-3)
    plain = Preparation.of(made(rows, np.zeros((400, 1))), normalize=False)
    assert plain.mean.tolist() == [0, 0, 0] and plain.scale.tolist() == [1, 1, 1]


def test_rescaled_actions_map_back_to_the_users_range(tiny: hilp.FoundationPolicy, change: Change) -> None:
    rng = np.random.default_rng(0)
    raw = rng.uniform([8, -8], [12, -2], (300, 2)).astype(np.float32)  # centres 10 and -5, half ranges 2 and 3
    raw[:2] = [[8, -8], [12, -2]]
    data = made(rng.normal(size=(300, 2)), raw, rescale_actions=True)
    assert np.abs(data.actions).max() <= 1
    preparation = Preparation.of(data, normalize=False)
    np.testing.assert_allclose(preparation.action_center, [10, -5], atol=1e-4)
    np.testing.assert_allclose(preparation.action_half_range, [2, 3], atol=1e-4)

    sample = Bank.draw(data, 100, seed=0)
    rows = [np.flatnonzero((data.observations == row).all(axis=1))[0] for row in sample.observations]
    np.testing.assert_allclose(sample.actions, raw[rows], atol=1e-5)

    whole = replace(tiny.preparation, action_center=np.float32([10, -5]), action_half_range=np.float32([2, 3]))
    x, z = observations(), tiny.skill(seed=1).z
    np.testing.assert_allclose(change(tiny, preparation=whole).act(x, z), [10, -5] + [2, 3] * tiny.act(x, z), rtol=1e-5)


def test_the_bank_is_transitions_of_the_data(tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset) -> None:
    rows = tiny_data.transition_rows
    known = {(*a, *b, *c) for a, b, c in zip(tiny_data.observations[rows].tolist(), tiny_data.actions[rows].tolist(),
             tiny_data.observations[rows + 1].tolist(), strict=True)}  # fmt: skip
    drawn = zip(tiny.bank.observations.tolist(), tiny.bank.actions.tolist(), tiny.bank.next_observations.tolist(),
                strict=True)  # fmt: skip
    bank = [(*a, *b, *c) for a, b, c in drawn]
    assert len(bank) == len(set(bank)) == 2_000, "without replacement"
    assert set(bank) <= known
    assert len(Bank.draw(tiny_data, 10**9, 0)) == tiny_data.transitions


# ---- the fingerprint -------------------------------------------------------------------------------------------------


def test_the_fingerprint_covers_all_that_acts(tiny: hilp.FoundationPolicy, change: Change) -> None:
    leaves, structure = jax.tree.flatten(tiny.core)
    seen = {tiny.fingerprint}
    for number, leaf in enumerate(leaves):
        flat = jnp.ravel(leaf)
        touched = jnp.reshape(flat.at[-1].set(jnp.nextafter(flat[-1], jnp.float32(9))), leaf.shape)
        core = jax.tree.unflatten(structure, [*leaves[:number], touched, *leaves[number + 1 :]])
        seen.add(change(tiny, core=core).fingerprint)
    assert len(seen) == 1 + len(leaves), "the last bit of any leaf changes it"
    for part in ("mean", "scale", "action_center", "action_half_range"):
        value = getattr(tiny.preparation, part) + 1
        seen.add(change(tiny, preparation=replace(tiny.preparation, **{part: value})).fingerprint)
    seen.add(change(tiny, config=replace(tiny.config, phi_discount=0.5)).fingerprint)
    assert len(seen) == 1 + len(leaves) + 5
    assert change(tiny).fingerprint == tiny.fingerprint
    assert change(tiny, provenance=Provenance(data="elsewhere")).fingerprint == tiny.fingerprint


# ---- mistakes in use -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [np.zeros(3), np.zeros((4, 3)), 1.0, np.zeros((2, 2, 2)), "north", [[1, 2], [3]], None]
)
def test_an_observation_of_the_wrong_size(tiny: hilp.FoundationPolicy, wrong: Any) -> None:
    z = tiny.skill(seed=0)
    for use in (lambda: tiny.act(wrong, z), lambda: tiny.encode(wrong), lambda: tiny.goal(wrong)):
        with pytest.raises(hilp.HilpError, match=r"observation|goal"):
            use()


@pytest.mark.parametrize("shape", [(7,), (9,), (3, 8), (5, 7), (), (1, 1, 8)])
def test_a_skill_of_the_wrong_size(tiny: hilp.FoundationPolicy, shape: tuple[int, ...]) -> None:
    with pytest.raises(hilp.HilpError, match="8 numbers"):
        tiny.act(observations(5), np.ones(shape))


def test_a_prompt_of_another_policy(tiny: hilp.FoundationPolicy, other: hilp.FoundationPolicy) -> None:
    for prompt in (other.skill(seed=0), other.goal([1.5, 1.5]), other.goal([1.5, 1.5], plan=1)):
        with pytest.raises(hilp.HilpError, match=f"{other.fingerprint[:8]}.*{tiny.fingerprint[:8]}"):
            tiny.act(observations(), prompt)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_skill_that_is_nowhere(tiny: hilp.FoundationPolicy, bad: float) -> None:
    z = np.ones(8)
    z[3] = bad
    for skill in (z, np.tile(z, (7, 1)), replace(tiny.skill(seed=0), z=np.float32(z))):
        with pytest.raises(hilp.HilpError, match="the skill holds a NaN or an infinity"):
            tiny.act(observations(), skill)
    for skill in ("north", ["a"] * 8, None):
        with pytest.raises(hilp.HilpError, match=r"a skill|acts on a prompt"):
            tiny.act(observations(), skill)


# ---- forked processes ------------------------------------------------------------------------------------------------

FORKED = """
import os, sys, warnings
warnings.simplefilter("ignore")
import hilp
if sys.argv[2] == "before":
    policy = hilp.FoundationPolicy.load(sys.argv[1])
    policy.act([1.5, 1.5], policy.skill(seed=0))
else:
    import hilp.policy.policy  # but nothing of JAX has started
child = os.fork()
if child == 0:
    lines = []
    for use in (
        lambda: policy.act([1.5, 1.5], [1.0, 0.0]),
        lambda: policy.encode([1.5, 1.5]),
        lambda: policy.skill(seed=1),
        lambda: hilp.FoundationPolicy.load(sys.argv[1]).encode([1.5, 1.5]),
    ):
        try:
            use()
            lines.append("fine")
        except hilp.HilpError as error:
            lines.append(str(error))
        except NameError:
            lines.append("not loaded")
    print(*lines, sep="\\n", flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("jax_started", ["before", "after"])
def test_a_forked_child_is_told_instead_of_hanging(jax_started: str) -> None:
    folder = Path(__file__).parent / "kept" / "policy" / "folder"
    command = [sys.executable, "-c", FORKED, str(folder), jax_started]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    lines = done.stdout.splitlines()
    if jax_started == "before":
        assert len(lines) == 4 and all("does not survive a fork" in line and "'spawn'" in line for line in lines), done
    else:
        assert lines == ["not loaded"] * 3 + ["fine"], done


# ---- observations of named parts -------------------------------------------------------------------------------------


class Eyes(eqx.Module):
    """An export that takes trees: its latent is the pose, its action the mean brightness."""

    size: jax.Array
    skill_dim: int = eqx.field(static=True)
    discount: float = eqx.field(static=True)

    def encode(self, observation: Any) -> jax.Array:
        return observation["pose"] * self.size

    def act(self, observation: Any, z: jax.Array) -> jax.Array:
        bright = jnp.mean(observation["camera"] / 255.0, axis=(1, 2))
        return jnp.stack([bright, z[:, 0]], axis=1)

    def goal_direction(self, here: jax.Array, there: jax.Array) -> jax.Array:
        return there - here

    def cumulant(self, observation: Any, following: Any) -> jax.Array:
        return self.encode(following) - self.encode(observation)

    def project(self, z: jax.Array) -> jax.Array:
        return jnp.asarray(z)


PARTS = (("camera", (3, 4), "uint8"), ("pose", (2,), "float32"))


def seeing() -> hilp.FoundationPolicy:
    rng = np.random.default_rng(0)
    trees = [
        {"camera": rng.integers(0, 256, (40, 3, 4), np.uint8), "pose": rng.normal(size=(40, 2)).astype(np.float32)}
        for _ in range(2)
    ]
    bank = Bank(trees[0], np.zeros((40, 2), np.float32), trees[1])
    one = np.ones(2, np.float32)
    preparation = Preparation({"pose": 3 * one}, {"pose": 2 * one}, 0 * one, one)
    core = Eyes(jnp.ones(()), 2, 0.9)
    config = hilp.HILP(dim=2, hidden=(4,), actor_hidden=(4,))
    return hilp.FoundationPolicy(config, Spec(14, 2, PARTS), core, preparation, bank)


def test_a_tree_of_arrays_is_an_observation(tmp_path: Path) -> None:
    policy = seeing()
    x = policy.bank.observations
    z = np.float32([0.25, 0])
    wanted = np.stack([x["camera"].mean(axis=(1, 2)) / 255, np.full(40, 0.25)], axis=1)
    np.testing.assert_allclose(policy.act(x, z), wanted, rtol=1e-5)
    one = {name: part[7] for name, part in x.items()}
    np.testing.assert_allclose(policy.act({**one, "beside": "a name nobody asks for"}, z), wanted[7], rtol=1e-5)
    np.testing.assert_allclose(policy.encode(x), (x["pose"] - 3) / 2, rtol=1e-5)
    assert policy.encode(one).shape == (2,) and policy.encode({n: p[:0] for n, p in x.items()}).shape == (0, 2)
    assert len(policy.midpoints) == 40

    go = policy.goal(one, plan=1, best=3)
    go.save(tmp_path / "goal")
    again = policy.load_prompt(tmp_path / "goal")
    assert again.goal["camera"].dtype == np.uint8 and again.goal["camera"].shape == (3, 4)
    np.testing.assert_array_equal(again(x), go(x))
    assert go(x).shape == (40, 2) and go(one).shape == (1, 2)
    assert policy.goal(x)(x).shape == (40, 2)

    after = policy.bank.next_observations
    by_function = policy.reward(function=lambda s, a, s2: s2["pose"][:, 0] - s["pose"][:, 0], rule="skill")
    by_formula = policy.reward(function="pose[0] - before(pose)[0]", rule="skill")
    by_table = policy.reward((x, after, after["pose"][:, 0] - x["pose"][:, 0]), rule="skill")
    np.testing.assert_array_equal(by_function.z, by_table.z)
    np.testing.assert_allclose(by_formula.z, by_table.z, atol=1e-5)
    brightest = policy.reward(function=lambda s, a, s2: s2["camera"].mean(axis=(1, 2)), rule="goal")
    np.testing.assert_array_equal(brightest.goal["camera"], after["camera"][after["camera"].mean(axis=(1, 2)).argmax()])
    with pytest.raises(hilp.HilpError, match="camera"):
        policy.reward(function="mean(camera)")


@pytest.mark.parametrize("shape", [(3, 8, 6), (5, 3, 8, 6)])
def test_channels_that_come_first_get_a_hint(shape: tuple[int, ...]) -> None:
    agent = Agent()
    agent.spec, agent.observation_parts = Spec.of({"camera": np.empty((1, 8, 6, 3), np.uint8)}, 2), ()
    with pytest.raises(hilp.HilpError, match=r"channels come last: np.moveaxis\(camera, -3, -1\)"):
        agent.check({"camera": np.zeros(shape, np.uint8)})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"camera": np.zeros((3, 4))}, "'camera' of an observation must be uint8"),
        ({"camera": np.full((3, 4), 300)}, "'camera' of an observation must be uint8"),
        ({"camera": np.zeros((4, 3), np.uint8)}, r"'camera' of an observation is \(3, 4\)"),
        ({"camera": np.zeros((5, 3, 4), np.uint8)}, "different numbers of rows"),
        ({"pose": [1.0, np.nan]}, "'pose' of the observation holds a NaN"),
        ({"pose": ["a", "b"]}, "'pose' of an observation must be numbers, not"),
        ({"pose": None}, "'pose'"),
    ],
)
def test_a_tree_that_does_not_fit(change: dict[str, Any], says: str) -> None:
    policy = seeing()
    right = {"camera": np.zeros((3, 4), np.uint8), "pose": np.zeros(2)}
    for use in (lambda x: policy.act(x, [1, 0]), policy.encode, policy.goal):
        with pytest.raises(hilp.HilpError, match=says):
            use({**right, **change})
    for wrong in (np.zeros(14), {"camera": right["camera"]}, None):
        with pytest.raises(hilp.HilpError, match="camera"):
            policy.encode(wrong)


def test_trees_are_measured_and_drawn_part_by_part() -> None:
    rng = np.random.default_rng(0)
    pose = np.stack([rng.normal(5, 2, 400), np.full(400, 0.1)], axis=1)
    camera = rng.integers(0, 256, (400, 3, 4), np.uint8)
    flat = made(pose, np.zeros((400, 1)))
    data = replace(flat, observations={"pose": pose, "camera": camera})
    preparation = Preparation.of(data, normalize=True)
    assert sorted(preparation.mean) == sorted(preparation.scale) == ["pose"], "bytes are left as they are"
    same = Preparation.of(flat, normalize=True)
    np.testing.assert_allclose(preparation.mean["pose"], same.mean, rtol=1e-6)
    np.testing.assert_allclose(preparation.scale["pose"], same.scale, rtol=1e-6)
    prepared = preparation.observations({"pose": np.float32(pose), "camera": camera})
    np.testing.assert_array_equal(prepared["camera"], camera)
    assert prepared["camera"].dtype == np.uint8 and abs(prepared["pose"][:, 0].mean()) < 1e-3
    spec = Spec.of(data.observations, 1)
    assert spec == Spec(14, 1, (("camera", (3, 4), "uint8"), ("pose", (2,), "float32")))
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert Spec.of(flat.observations, 1).to_json() == {"observation_dim": 2, "action_dim": 1}
    bank = Bank.draw(data, 50, 0)
    assert bank.observations["camera"].dtype == np.uint8 and bank.observations["pose"].dtype == np.float32
    rows = Bank.rows(data, 50, 0)
    np.testing.assert_array_equal(bank.next_observations["camera"], camera[rows + 1])


def test_a_policy_of_trees_comes_back(change: Change, tmp_path: Path) -> None:
    policy = change(seeing(), core=tiny_core())
    again = hilp.FoundationPolicy.load(policy.save(tmp_path / "policy"))
    assert again.spec == policy.spec and again.fingerprint == policy.fingerprint
    for name in ("camera", "pose"):
        np.testing.assert_array_equal(again.bank.observations[name], policy.bank.observations[name])
        assert again.bank.observations[name].dtype == policy.bank.observations[name].dtype
    np.testing.assert_array_equal(again.preparation.mean["pose"], policy.preparation.mean["pose"])
    assert "parts" in json.loads((tmp_path / "policy" / "config.json").read_text())["spec"]
    columns = policy.bank.columns()
    columns["observations/camera"] = columns["observations/camera"].astype(np.float32)
    storage.write_arrays(tmp_path / "policy" / "bank.safetensors", columns)
    assert "bank" in refusal(tmp_path / "policy")


def tiny_core() -> Any:
    """The export of a method for observations of 14 numbers."""
    config = hilp.HILP(dim=2, hidden=(4,), actor_hidden=(4,))
    module = methods.of(config)
    return jax.jit(lambda key: module.export(config, module.init(config, Spec(14, 2, PARTS), key)))(jax.random.key(0))


# ---- a damaged folder ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["weights.safetensors", "bank.safetensors"])
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_one_flipped_bit_among_the_tensors(run_copy: Path, name: str, place: float) -> None:
    path = run_copy / "policy" / name
    content = bytearray(path.read_bytes())
    first = 8 + int.from_bytes(content[:8], "little")  # behind the header
    content[first + round(place * (len(content) - 1 - first))] ^= 1
    path.write_bytes(content)
    assert name in refusal(run_copy / "policy")


@pytest.mark.parametrize("name", ["weights.safetensors", "bank.safetensors"])
@pytest.mark.parametrize("keep", [0, 5, 300, -1])
def test_a_truncated_file(run_copy: Path, name: str, keep: int) -> None:
    path = run_copy / "policy" / name
    path.write_bytes(path.read_bytes()[:keep])
    line = refusal(run_copy / "policy")
    assert name in line and "truncated" in line


@pytest.mark.parametrize("name", ["weights.safetensors", "bank.safetensors"])
def test_a_missing_file(run_copy: Path, name: str) -> None:
    (run_copy / "policy" / name).unlink()
    assert name in refusal(run_copy / "policy")


def test_no_policy_here(tiny_run: Path, run_copy: Path, tmp_path: Path) -> None:
    assert "no such folder" in refusal(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "config.json" in refusal(tmp_path / "empty")
    (run_copy / "policy" / "config.json").unlink()
    assert "not finished" in refusal(run_copy)
    refusal(tiny_run / "policy" / "weights.safetensors")
    (tmp_path / "several" / "seed-3").mkdir(parents=True)
    assert "seed-3" in refusal(tmp_path / "several")


def swap(path: tuple[str, ...], value: Any) -> Callable[[dict[str, Any]], None]:
    """An edit that changes (or, for None, removes) one value of config.json."""

    def edit(config: dict[str, Any]) -> None:
        for key in path[:-1]:
            config = config[key]
        assert path[-1] in config and config[path[-1]] != value
        if value is None:
            del config[path[-1]]
        else:
            config[path[-1]] = value

    return edit


EDITS: dict[str, Callable[[dict[str, Any]], None]] = {
    "a value the weights' shapes depend on": swap(("config", "dim"), 9),
    "a value they do not depend on": swap(("config", "phi_discount"), 0.5),
    "a negative size": swap(("config", "dim"), -3),
    "a text for a number": swap(("config", "batch"), "many"),
    "layers that are none": swap(("config", "hidden"), 7),
    "an unknown method": swap(("method",), "hlp"),
    "a method that is no text": swap(("method",), ["hilp"]),
    "another observation size": swap(("spec", "observation_dim"), 3),
    "a changed normaliser": swap(("preparation", "mean"), [0.0, 0.0]),
    "a normaliser of text": swap(("preparation", "scale"), "wide"),
    "a missing config key": swap(("config", "lr"), None),
    "an unknown config key": lambda config: config["config"].update(widht=3),
    "a config that is none": swap(("config",), 3),
    "no config": swap(("config",), None),
    "no spec": swap(("spec",), None),
    "no method": swap(("method",), None),
    "no preparation": swap(("preparation",), None),
    "no fingerprint": swap(("fingerprint",), None),
    "no origin": swap(("origin",), None),
    "an origin of text": swap(("origin",), "here"),
    "a changed fingerprint": swap(("fingerprint",), "0" * 32),
    "another format": swap(("format",), "zip"),
    "a newer version": swap(("version",), 6),
    "an older version": swap(("version",), 0),
    "a version of text": swap(("version",), "2"),
    "no version": swap(("version",), None),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_config(run_copy: Path, what: str) -> None:
    path = run_copy / "policy" / "config.json"
    config = json.loads(path.read_text())
    EDITS[what](config)
    path.write_text(json.dumps(config))
    refusal(run_copy / "policy")


def test_a_config_that_says_what_version_it_is(run_copy: Path) -> None:
    path = run_copy / "policy" / "config.json"
    own = path.read_text()
    for version, advice in ((7, "of a later hilp: update hilp"), (1, "of an earlier hilp: train the policy again")):
        path.write_text(own.replace('"version": 5', f'"version": {version}'))
        told = refusal(run_copy / "policy")
        assert f"format version {version}" in told and advice in told


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"\xff\xfe\x00", b"null", b'"hilp-policy"'])
def test_a_config_that_is_none(run_copy: Path, content: bytes) -> None:
    (run_copy / "policy" / "config.json").write_bytes(content)
    refusal(run_copy / "policy")


def test_reformatting_the_config_is_no_damage(run_copy: Path, tiny: hilp.FoundationPolicy) -> None:
    path = run_copy / "policy" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True, indent=7))
    assert hilp.FoundationPolicy.load(run_copy).fingerprint == tiny.fingerprint


def test_files_of_another_policy(run_copy: Path, change: Change, tiny: hilp.FoundationPolicy, tmp_path: Path) -> None:
    core = jax.tree.map(lambda leaf: leaf + 1, tiny.core)
    change(tiny, core=core).save(tmp_path / "second")
    weights = run_copy / "policy" / "weights.safetensors"
    weights.write_bytes((tmp_path / "second" / "weights.safetensors").read_bytes())
    refusal(run_copy / "policy")


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"observations": np.zeros((5, 2), np.float32)},
        {name: np.zeros((5, 3), np.float32) for name in ("observations", "actions", "next_observations")},
        {
            name: np.zeros((5 + i, 2), np.float32)
            for i, name in enumerate(("observations", "actions", "next_observations"))
        },
    ],
)
def test_a_whole_file_that_is_not_the_bank(run_copy: Path, arrays: dict[str, np.ndarray]) -> None:
    storage.write_arrays(run_copy / "policy" / "bank.safetensors", arrays)
    assert "bank" in refusal(run_copy / "policy")


def test_a_policy_without_a_bank_says_so(tiny: hilp.FoundationPolicy, change: Change, tmp_path: Path) -> None:
    sample = Bank(*(np.zeros((0, 2), np.float32) for _ in range(3)))
    bare = hilp.FoundationPolicy.load(change(tiny, bank=sample).save(tmp_path / "bare"))
    assert bare.act(observations(), bare.goal([1.5, 1.5])).shape == (7, 2)
    with pytest.raises(hilp.HilpError, match="bank"):
        bare.goal([1.5, 1.5], plan=1)
    with pytest.raises(hilp.HilpError, match="no transition"):
        bare.reward(function=lambda s, a, s2: s2[:, 0])


def test_saving_where_nothing_can_be_saved(tiny: hilp.FoundationPolicy, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for target in (tmp_path / "file", tmp_path / "file" / "policy"):
        with pytest.raises(hilp.HilpError, match="cannot write"):
            tiny.save(target)
    assert (tmp_path / "file").read_text() == "mine"


def test_no_source_file_can_run_what_it_loads() -> None:
    """Files from strangers run no code: nothing in the package unpickles, evaluates or executes."""
    found = []
    for path in sorted(Path(hilp.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = [f"{node.func.id}("]
            elif isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
                names = ["allow_pickle="]
            banned = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "eval(", "exec(", "allow_pickle="}
            found += [f"{path.name}:{getattr(node, 'lineno', '?')} {n}" for n in names if n.split(".")[0] in banned]
    assert not found


def test_column_selection_travels_with_the_policy(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    log = {"pose": rng.normal(size=(60, 2)), "junk": rng.normal(size=60), "speed": rng.normal(size=60)}
    log |= {"push": rng.uniform(-9, 9, (60, 1)), "run": np.repeat([0, 1, 2], 20)}
    columns = {"observations": ["speed", "pose"], "actions": "push", "episode_ids": "run"}
    data = hilp.load(log, columns=columns, rescale_actions=True)
    config = hilp.HILP(dim=2, hidden=(8,), actor_hidden=(8,), batch=8, normalize=True)
    for source in (data, hilp.load(data.save(tmp_path / "data"))):
        hilp.pretrain(config, source, steps=2, quiet=True).save(tmp_path / "policy")
        policy = hilp.FoundationPolicy.load(tmp_path / "policy")
        z = policy.skill(seed=0).z
        row = {"junk": 7.0, "pose": log["pose"][5], "speed": log["speed"][5]}  # a raw row of the log, in any order
        np.testing.assert_array_equal(policy.act(row, z), policy.act([log["speed"][5], *log["pose"][5]], z))
        whole = policy.act({name: log[name] for name in ("pose", "speed")}, z)
        assert whole.shape == (60, 1)
        np.testing.assert_allclose(whole[5], policy.act(row, z), rtol=1e-4, atol=1e-5)
        for wrong in ({"pose": log["pose"][5]}, {**row, "pose": [1.0]}, {**row, "speed": log["speed"]}):
            with pytest.raises(hilp.HilpError, match=r"parts? .*of an observation|is missing"):
                policy.act(wrong, z)
    plain = hilp.pretrain(config, hilp.collect("maze-medium", "navigate", 50), steps=1, quiet=True)
    with pytest.raises(hilp.HilpError, match="no named parts"):
        plain.act({"x": 1.0}, z)
