"""More ways to ask: demonstrations, preferences, a few episodes, prompts combined. By hand, in files, mistaken."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import hilp
from hilp import export
from hilp.commands import common
from hilp.errors import HilpError
from hilp.export import runtime
from hilp.learning import hilbert
from hilp.learning.methods import hilp as hilp_method
from hilp.policy.policy import FoundationPolicy
from hilp.policy.preparation import Preparation
from hilp.prompts import formulas
from hilp.prompts.bank import Bank
from hilp.prompts.skills import logistic
from hilp.spec import Spec
from hilp.tasks import maze

SMALL = hilp_method.Config(dim=2, hidden=(4,), actor_hidden=(4,))
RIGHT, UP = np.array([1.0, 0.0]), np.array([0.0, 1.0])


class Plane(eqx.Module):
    """phi(s) = s: latent distances are those of the plane, and directions of trust end at 0.9."""

    weight: jnp.ndarray
    skill_dim: int = eqx.field(static=True, default=2)
    discount: float = eqx.field(static=True, default=0.9)

    def encode(self, observation: Any) -> Any:
        return observation @ self.weight

    def act(self, observation: Any, z: Any) -> Any:
        return jnp.clip(z, -1.0, 1.0)

    def goal_direction(self, here: Any, there: Any) -> Any:
        return hilbert.unit(there - here)

    def cumulant(self, s: Any, s2: Any) -> Any:
        return (s2 - s) @ self.weight

    def project(self, z: Any) -> Any:
        return hilbert.unit(z)


def plane(scale: float = 1.0) -> FoundationPolicy:
    zeros, ones = np.zeros(2, np.float32), np.ones(2, np.float32)
    states = np.random.default_rng(0).uniform(-2, 8, (50, 2)).astype(np.float32)
    bank = Bank(states, np.zeros_like(states), states + 0.1)
    return FoundationPolicy(SMALL, Spec(2, 2), Plane(scale * jnp.eye(2)), Preparation(zeros, ones, zeros, ones), bank)


@pytest.fixture(scope="module", params=["hilp", "exported"])
def policy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The policy itself, and as `hilp export --to numpy` writes it: both take the same prompts."""
    if request.param == "hilp":
        return plane()
    folder = tmp_path_factory.mktemp("exported") / "robot"
    export.write(plane(), "numpy", folder)
    return runtime.load(folder)


def line(*ends: tuple[float, float], step: float = 0.5) -> np.ndarray:
    """Points along a path through these ends, `step` apart."""
    rows = [np.array([ends[0]])]
    for one, two in zip(np.array(ends[:-1], float), np.array(ends[1:], float), strict=True):
        count = round(float(np.linalg.norm(two - one)) / step)
        rows.append(one + (two - one) * np.arange(1, count + 1)[:, None] / count)
    return np.concatenate(rows).astype(np.float32)


def walk(prompt: Any, start: np.ndarray, steps: int, stride: float = 0.3) -> np.ndarray:
    """Agents that move along their skills: [steps + 1, n, 2]."""
    prompt.reset()
    path = [np.atleast_2d(start).astype(np.float32)]
    for _ in range(steps):
        path.append((path[-1] + stride * prompt(path[-1])).astype(np.float32))
    return np.stack(path)


# ---- demonstrations --------------------------------------------------------------------------------------------------


def test_following_by_hand(policy: FoundationPolicy) -> None:
    prompt = policy.follow(line((0, 0), (10, 0)))
    # On the path at x = 2 (row 4): 2.5 is within 0.9, 3.0 is not.
    np.testing.assert_allclose(prompt(np.array([[2.0, 0.0]])), [[1.0, 0.0]], atol=1e-6)
    assert prompt.progress == pytest.approx([4 / 20])
    # Beside it: towards (2.5, 0), which is 0.64 away; (3, 0) would be 1.08.
    prompt.reset()
    np.testing.assert_allclose(prompt(np.array([[2.0, 0.4]])), [np.array([0.5, -0.4]) / np.hypot(0.5, 0.4)], atol=1e-5)
    wide = policy.follow(line((0, 0), (10, 0)), window=3)
    np.testing.assert_allclose(wide(np.array([[2.0, 0.4]])), [np.array([1.5, -0.4]) / np.hypot(1.5, 0.4)], atol=1e-5)
    # Far off: no row is near enough to be trusted, so the one after the nearest.
    prompt.reset()
    np.testing.assert_allclose(prompt(np.array([[2.0, 3.0]])), [np.array([0.5, -3.0]) / np.hypot(0.5, 3.0)], atol=1e-5)


def test_a_path_that_comes_back_is_walked_in_its_order(policy: FoundationPolicy) -> None:
    there_and_back = line((0, 0), (5, 0), (5, 2), (0, 2), (0, 0), (5, 0))
    prompt = policy.follow(there_and_back)
    path = walk(prompt, np.array([0.0, 0.0]), 90)[:, 0]
    for place in ((5, 0), (5, 2), (0, 2)):
        assert np.linalg.norm(path - place, axis=1).min() < 0.6, place
    first = [int((np.linalg.norm(path - place, axis=1) < 0.6).argmax()) for place in ((5, 0), (5, 2), (0, 2))]
    assert first == sorted(first)
    assert prompt.progress[0] == 1.0 and prompt.reached(path[-1:]).all()


def test_a_slow_demonstration_is_followed_faster(policy: FoundationPolicy) -> None:
    slow = line((0, 0), (6, 0), step=0.05)
    path = walk(policy.follow(slow), np.array([0.0, 0.0]), 21)[:, 0]
    assert len(slow) == 121 and path[:, 0].max() > 5.9  # 0.3 a step, where it was shown 0.05 a step


def test_agents_of_a_batch_are_placed_and_reset_by_themselves(policy: FoundationPolicy) -> None:
    prompt = policy.follow(line((0, 0), (10, 0)))
    prompt(np.array([[0.0, 0.0], [8.0, 0.0]]))
    assert prompt.progress == pytest.approx([0.0, 16 / 20])
    prompt.reset(np.array([False, True]))
    prompt(np.array([[1.0, 0.0], [3.0, 0.0]]))
    assert prompt.progress == pytest.approx([2 / 20, 6 / 20])
    prompt(np.array([[0.0, 0.0], [0.0, 0.0]]), active=np.array([True, False]))
    assert prompt.progress == pytest.approx([2 / 20, 6 / 20])  # a place never goes back; the second was not asked


# ---- preferences -----------------------------------------------------------------------------------------------------


def test_logistic_regression_by_hand() -> None:
    # One feature, always 1: ridge * w = sigmoid(-w) on the scale where the feature is 1.
    w = logistic(np.ones((5, 1)))[0]
    assert 0.01 * w == pytest.approx(1 / (1 + np.exp(w)), rel=1e-6)
    np.testing.assert_allclose(logistic(4 * np.ones((5, 1))), w / 4)  # the unit of a feature changes nothing
    # Three of four prefer it: up to the ridge, log(3).
    mixed = logistic(np.array([[1.0], [1.0], [1.0], [-1.0]]))[0]
    assert 0.9 < mixed < np.log(3)
    assert not logistic(np.zeros((3, 2))).any()


def test_preferences_become_the_direction_that_explains_them(policy: FoundationPolicy) -> None:
    rng = np.random.default_rng(0)
    ends = rng.normal(size=(200, 2, 2))
    pairs = []
    for one, two in ends:
        segments = [np.stack([np.zeros(2), end / 2, end]) for end in (one, two)]
        better = int(two @ [0.8, 0.6] > one @ [0.8, 0.6])
        pairs.append((segments[better], segments[1 - better]))
    prompt = policy.prefer(pairs)
    assert prompt.z @ [0.8, 0.6] > 0.98 and prompt.agreement is not None and prompt.agreement > 0.95
    with pytest.warns(UserWarning, match=r"explains only \d\d% of these 40 preferences"):
        policy.prefer([pair if number % 2 else pair[::-1] for number, pair in enumerate(pairs[:20] * 2)])


# ---- a few episodes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_adapting_is_never_worse_than_the_prompt_on_what_it_has_seen(policy: FoundationPolicy, seed: int) -> None:
    tried = []

    def earned(prompt: Any) -> float:
        tried.append(prompt)
        return float(prompt(np.zeros((1, 2)))[0] @ UP)

    start = policy.skill(RIGHT + 0.5 * UP)
    search = hilp.adapt(policy, start, earned, episodes=10, seed=seed)
    assert len(tried) == len(search.earned) == 10 and tried[0] is start
    assert search.earned[0] == pytest.approx(0.5 / np.hypot(1, 0.5))
    assert search.earned[search.best] == max(search.earned) > search.earned[0]
    assert earned(search.prompt) == pytest.approx(search.earned[search.best])
    again = hilp.adapt(policy, start, earned, episodes=10, seed=seed)
    np.testing.assert_array_equal(again.prompt.z, search.prompt.z)


def test_where_nothing_is_better_the_prompt_stays(policy: FoundationPolicy) -> None:
    start = policy.skill(RIGHT)
    assert hilp.adapt(policy, start, lambda prompt: 1.0).prompt is start
    best = hilp.adapt(policy, start, lambda prompt: float(prompt(np.zeros((1, 2)))[0] @ RIGHT)).prompt
    assert best is start
    assert hilp.adapt(policy, start, lambda prompt: 0.0, episodes=1).prompt is start


def test_a_goal_is_adapted_by_an_offset(policy: FoundationPolicy) -> None:
    goal = policy.goal([5.0, 0.0])
    search = hilp.adapt(policy, goal, lambda prompt: float(prompt(np.zeros((1, 2)))[0] @ UP), episodes=12)
    z = search.prompt(np.array([[0.0, 0.0], [9.0, 0.0]]))
    assert search.prompt.kind == "adapted" and z[0] @ UP > 0.2 and z[1, 0] < z[0, 0]  # still a goal, and higher
    np.testing.assert_allclose(np.linalg.norm(z, axis=1), 1.0, rtol=1e-5)


def test_a_task_counts_the_episodes(tiny: FoundationPolicy) -> None:
    world = maze.make("maze-medium")
    prompt = tiny.skill(seed=3)
    search = hilp.adapt(tiny, prompt, world, episodes=3, reward="right", seed=1)
    earn = hilp.episode_return(tiny, "maze-medium", "right", seed=1)
    assert search.earned[0] == earn(prompt) and max(search.earned) == earn(search.prompt)
    with pytest.raises(HilpError, match=r"has more than one reward: say which one counts \(avoid"):
        hilp.adapt(tiny, prompt, "maze-medium")
    with pytest.raises(HilpError, match="has no reward 'rigth'"):
        hilp.adapt(tiny, prompt, "maze-medium", reward="rigth")


# ---- prompts combined ------------------------------------------------------------------------------------------------


def test_sums_by_hand(policy: FoundationPolicy) -> None:
    right, up, x = policy.skill(RIGHT), policy.skill(UP), np.zeros((3, 2))
    half = np.array([1.0, 0.5]) / np.hypot(1, 0.5)
    np.testing.assert_allclose((right + 0.5 * up)(x), np.tile(half, (3, 1)), atol=1e-6)
    np.testing.assert_allclose((2 * (right + up * 0.5))(x), np.tile(half, (3, 1)), atol=1e-6)
    np.testing.assert_allclose((right + -1 * right)(x), np.tile(RIGHT, (3, 1)))  # nothing is left: the first
    assert len((right + up + right).parts) == 3
    go = policy.goal([0.0, 4.0], plan=0)
    np.testing.assert_allclose((go + right)(np.zeros((1, 2))), [[np.sqrt(0.5)] * 2], atol=1e-6)
    with pytest.raises(TypeError):
        right + 3
    with pytest.raises(TypeError):
        right * "much"


def test_one_after_the_other(policy: FoundationPolicy) -> None:
    right, up = policy.skill(RIGHT), policy.skill(UP)
    path = walk(right.then(up, until=4), np.zeros((2, 2)), 6, stride=1.0)
    np.testing.assert_allclose(path[-1], [[4, 2], [4, 2]], atol=1e-5)
    # By a formula, each agent for itself; who has changed over does not change back.
    path = walk(right.then(up, until="observation[0] >= 2"), np.array([[0.0, 0.0], [1.0, 0.0]]), 5, stride=1.0)
    np.testing.assert_allclose(path[-1], [[2, 3], [2, 4]], atol=1e-5)
    path = walk(right.then(-1 * right, until=lambda x: x[:, 0] > 1.5), np.zeros((1, 2)), 6, stride=1.0)
    np.testing.assert_allclose(path[:, 0, 0], [0, 1, 2, 1, 0, -1, -2], atol=1e-5)
    # A goal knows when it is reached: within two steps, here 1.9 of latent distance.
    path = walk(policy.goal([6.0, 0.0], plan=0).then(up), np.zeros((1, 2)), 8, stride=1.0)
    np.testing.assert_allclose(path[-1, 0], [5, 3], atol=1e-5)
    # A demonstration, too; three in a row.
    demo = policy.follow(line((0, 0), (2, 0)))
    path = walk(demo.then(up, until="reached").then(right, until=12), np.zeros((1, 2)), 16)
    assert path[12, 0, 1] > 1.0 and path[-1, 0, 0] > path[12, 0, 0] + 1.0


def test_new_episodes_begin_where_they_are_told_to(policy: FoundationPolicy) -> None:
    prompt = policy.skill(RIGHT).then(policy.skill(UP), until=2)
    x = np.zeros((2, 2))
    for _ in range(3):
        z = prompt(x)
    np.testing.assert_allclose(z, [UP, UP])
    prompt.reset(np.array([1]))
    np.testing.assert_allclose(prompt(x), [UP, RIGHT])
    assert prompt.over.tolist() == [True, False]
    prompt.reset()
    np.testing.assert_allclose(prompt(np.zeros((3, 2))), [RIGHT] * 3)


def test_until_tells_and_leads_on(policy: FoundationPolicy) -> None:
    right, up = policy.skill(RIGHT), policy.skill(UP)
    ending = right.until("observation[0] > 0.5")
    np.testing.assert_allclose(ending(np.array([[0.0, 0.0], [1.0, 0.0]])), [RIGHT, RIGHT])
    assert ending.over.tolist() == [False, True]
    one, two = ending.then(up), right.then(up, until="observation[0] > 0.5")
    start = np.array([[0.0, 0.0], [0.3, 0.0]])
    np.testing.assert_array_equal(walk(one, start, 5), walk(two, start, 5))


def test_a_formula_that_ends_a_prompt_is_read_once(policy: FoundationPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    ending = policy.skill(RIGHT).then(policy.skill(UP), until="observation[0] > 2.5")
    monkeypatch.setattr(formulas, "reward", None)  # not even asked for again
    path = walk(ending, np.zeros((1, 2)), 5, stride=1.0)
    assert path[-1, 0].tolist() == [3.0, 2.0]


def test_a_batch_of_another_size_begins_new_episodes_in_every_prompt(policy: FoundationPolicy) -> None:
    """As a reset does, and with a warning: agents are known by their row."""
    right, up, demo = policy.skill(RIGHT), policy.skill(UP), policy.follow(line((0, 0), (5, 0)), window=2)
    prompts = [right.then(up, until=2), right.until(2), demo, policy.goal([6.0, 0.0], smooth=3), up + demo]
    two, three = np.array([[0.0, 0.0], [2.0, 0.0]]), np.array([[0.0, 0.0], [2.0, 0.0], [4.0, 1.0]])
    for prompt in prompts:
        first = [prompt(two) for _ in range(4)]
        with pytest.warns(UserWarning, match="a batch of 3 came after one of 2"):
            prompt(three)
        with pytest.warns(UserWarning, match="a batch of 2 came after one of 3"):
            np.testing.assert_array_equal([prompt(two) for _ in range(4)], first)
        prompt.reset()
        with warnings.catch_warnings(action="error"):
            prompt(three)


def test_prompts_carry_their_specs(policy: FoundationPolicy) -> None:
    right, go = policy.skill(RIGHT), policy.goal([6.0, 1.0], plan=0)
    preferred = policy.prefer([(line((0, 0), (1, 0)), line((0, 0), (0, 1)))])
    both = [{"kind": "skill", "z": [1.0, 0.0]}, {"kind": "goal", "plan": 0}]
    assert right.spec.to_json() == both[0] and policy.skill(seed=3).spec.to_json() == {"kind": "skill", "seed": 3}
    assert preferred.spec.to_json() == {"kind": "prefer"}
    assert (right + 0.5 * go).spec.to_json() == {"kind": "sum", "parts": [[1.0, both[0]], [0.5, both[1]]]}
    for until in (3, "observation[0] > 1"):
        then = {"kind": "then", "first": both[0], "second": both[1], "until": until}
        assert right.then(go, until=until).spec.to_json() == then
    assert go.then(right).spec.to_json() == {"kind": "then", "first": both[1], "second": both[0]}
    assert right.then(go, until=lambda x: x[:, 0] > 1).spec is None  # a function does not go to JSON


# ---- files -----------------------------------------------------------------------------------------------------------


def asked(policy: FoundationPolicy) -> dict[str, Any]:
    right, up, go = policy.skill(RIGHT), policy.skill(UP), policy.goal([6.0, 1.0])
    demo = policy.follow(line((0, 0), (5, 0)), window=2)
    preferred = policy.prefer([(line((0, 0), (1, 0)), line((0, 0), (0, 1)))])
    return {
        "follow": demo,
        "prefer": preferred,
        "adapt": hilp.adapt(policy, go, lambda prompt: float(prompt(np.zeros((1, 2)))[0] @ UP)).prompt,
        "adapted skill": hilp.adapt(policy, right, lambda prompt: float(prompt(np.zeros((1, 2)))[0] @ UP)).prompt,
        "sum": go + 0.5 * up + demo,
        "then": go.then(right, until=3),
        "formula": (right + up).then(demo.then(go), until="observation[0] > 1"),
        "reached": go.then(demo),
        "until": go.until(7),
    }


@pytest.mark.parametrize("name", sorted(asked(plane())))
def test_saved_and_loaded_prompts_are_equal(name: str, policy: FoundationPolicy, tmp_path: Path) -> None:
    prompt, path, start = asked(policy)[name], tmp_path / "p.safetensors", np.array([[0.0, 0.0], [3.0, 1.0]])
    prompt.save(path)
    again = policy.load_prompt(path)
    assert again.kind == prompt.kind and again.fingerprint == policy.fingerprint
    np.testing.assert_array_equal(walk(again, start, 12), walk(prompt, start, 12))
    again.save(tmp_path / "again.safetensors")
    assert path.read_bytes() == (tmp_path / "again.safetensors").read_bytes()
    with pytest.raises(HilpError, match="was made for policy"):
        plane(2.0).load_prompt(path)


def test_a_function_cannot_be_saved(policy: FoundationPolicy, tmp_path: Path) -> None:
    prompt = policy.skill(RIGHT).then(policy.skill(UP), until=lambda x: x[:, 0] > 1)
    with pytest.raises(HilpError, match="ends by a function cannot be saved"):
        prompt.save(tmp_path / "p.safetensors")
    assert not list(tmp_path.iterdir())


def test_files_that_are_no_whole_prompts(policy: FoundationPolicy, tmp_path: Path) -> None:
    from hilp import storage

    path = tmp_path / "p.safetensors"
    (policy.skill(RIGHT) + policy.skill(UP)).save(path)
    arrays, note = storage.read_arrays(path)
    for change in ({"parts": {}}, {"weights": []}, {"weights": ["x"]}, {"kind": "then"}, {"kind": "adapted"}):
        storage.write_arrays(path, arrays, {**note, **change})
        with pytest.raises(HilpError, match="is not a whole prompt"):
            policy.load_prompt(path)
    deep = note
    for _ in range(50):
        deep = {**note, "weights": [1.0], "parts": {"0": deep}}
    storage.write_arrays(path, arrays, deep)
    with pytest.raises(HilpError, match="prompts in prompts"):
        policy.load_prompt(path)
    storage.write_arrays(path, arrays, {**note, "kind": "__import__"})
    with pytest.raises(HilpError, match="is not a prompt"):
        policy.load_prompt(path)


# ---- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: p.follow([[0.0, 0.0]]), "at least two observations"),
        (lambda p: p.follow([0.0, 0.0]), "at least two observations"),
        (lambda p: p.follow(np.zeros((4, 3))), "takes observations of 2 numbers"),
        (lambda p: p.follow([[0.0, np.nan], [0, 0]]), "NaN"),
        (lambda p: p.follow(np.zeros((4, 2)), window=0), "window must be at least 1"),
        (lambda p: p.prefer([]), "give at least one"),
        (lambda p: p.prefer([(np.zeros((3, 2)),)]), "pair 0 of the preferences is not"),
        (lambda p: p.prefer([(np.zeros((1, 2)), np.zeros((3, 2)))]), "fewer than two observations"),
        (lambda p: p.prefer([(np.zeros((3, 2)), np.zeros((4, 2)))]), "ask for nothing"),
        (lambda p: hilp.adapt(p, p.skill(RIGHT), lambda prompt: 0.0, episodes=0), "episodes must be at least 1"),
        (lambda p: hilp.adapt(p, p.skill(RIGHT), lambda prompt: np.nan), "NaN"),
        (lambda p: hilp.adapt(p, p.skill(RIGHT), lambda prompt: "much"), "gives one number"),
        (lambda p: hilp.adapt(p, np.ones(2), lambda prompt: 0.0), "a search begins with a prompt of the policy"),
        (lambda p: hilp.adapt(p, plane(2.0).skill(RIGHT), lambda prompt: 0.0), "was made for policy"),
        (lambda p: p.skill(RIGHT) + plane(2.0).skill(UP), "was made for policy"),
        (lambda p: p.skill(RIGHT) * float("nan"), "the weight of a prompt is a number"),
        (lambda p: p.skill(RIGHT).then(p.skill(UP)), "a skill prompt has no end of its own: say until when"),
        (lambda p: p.skill(RIGHT).then(p.skill(UP), until=0), "until must be at least 1"),
        (lambda p: p.skill(RIGHT).then(p.skill(UP), until="height > 1"), "height"),
        (lambda p: p.skill(RIGHT).then(RIGHT, until=3), "what follows a prompt is a prompt"),
        (lambda p: p.skill(RIGHT).then(p.skill(UP), until=lambda x: [True])(np.zeros((3, 2))), r"\(3,\), not \(1,\)"),
    ],
)
def test_mistakes_are_named(ask: Callable[[FoundationPolicy], Any], message: str, policy: FoundationPolicy) -> None:
    with pytest.raises(HilpError, match=message) as caught:
        ask(policy)
    assert "\n" not in str(caught.value)


def test_methods_whose_skill_is_the_goal() -> None:
    """They follow by time, and cannot be added."""
    from hilp.learning import methods

    data = hilp.collect("maze-medium", "navigate", 400, 0)
    config = methods.config("gc-bc", actor_hidden=(8,), batch=8)
    own = hilp.pretrain(config, data, steps=2, quiet=True, bank=10)
    demo = data.observations[:5]
    prompt = own.follow(demo, window=2)
    for row in (2, 3, 4, 4, 4):
        np.testing.assert_allclose(prompt(demo[:1]), own.goal_skill(demo[row])[None])
    with pytest.raises(HilpError, match="cannot be added"):
        _ = own.goal(demo[0]) + own.goal(demo[1])
    with pytest.raises(HilpError, match="no skills around it"):
        hilp.adapt(own, own.goal(demo[0]), lambda prompt: 0.0)
    with pytest.raises(HilpError, match="cannot learn from preferences"):
        own.prefer([(demo, demo)])
    with pytest.raises(HilpError, match="say until when"):
        own.goal(demo[0]).then(own.goal(demo[1]))(demo[:1])


# ---- the command line ------------------------------------------------------------------------------------------------


def test_asking_from_the_shell(tiny_run: Path, tiny_data_folder: Path, run: Any, tmp_path: Path) -> None:
    import json

    def told(*words: object) -> dict[str, Any]:
        code, out, err = run("prompt", tiny_run, *words, "--json")
        assert code == 0, err
        return dict(json.loads(out))

    walk_file, like_file = tmp_path / "walk.safetensors", tmp_path / "like.safetensors"
    facts = told("--follow", f"{tiny_data_folder}:1", "--steps", 5, "--save", walk_file)
    assert facts["prompt"] == "follow" and 0 <= facts["followed"] <= 1 and facts["steps"] == 5
    data = hilp.load(tiny_data_folder)
    segments = np.stack([data.observations[row : row + 10] for row in (0, 20, 40, 60)])
    np.savez(tmp_path / "pairs.npz", better=segments[:2], worse=segments[2:])
    facts = told("--prefer", tmp_path / "pairs.npz", "--steps", 3, "--save", like_file)
    assert 0 <= facts["preferences explained"] <= 1
    mixed = told("--goal", "6.5,1.5", "--plan", 0, "--add", f"0.5:{like_file}", "--steps", 1, "--start", "1.5,1.5")
    policy = hilp.FoundationPolicy.load(tiny_run)
    both = policy.goal([6.5, 1.5], plan=0) + 0.5 * policy.load_prompt(like_file)
    np.testing.assert_allclose(mixed["z"], both(np.array([[1.5, 1.5]], np.float32))[0], atol=1e-5)
    tour = tmp_path / "tour.safetensors"
    told("--load", like_file, "--then", walk_file, "--until", "x > 4 or y > 4", "--steps", 4, "--save", tour)
    assert policy.load_prompt(tour).ending == "x > 4 or y > 4"
    told("--load", like_file, "--then", walk_file, "--until", "2", "--steps", 4)
    facts = told("--reward", "right", "--adapt", 3, "--steps", 2, "--save", tmp_path / "better.safetensors")
    assert facts["earned adapted"] >= facts["earned before"]
    facts = told("--load", walk_file, "--adapt", 2, "--earn", "x - before(x)", "--steps", 2)
    assert facts["earned adapted"] >= facts["earned before"]
    code, _, err = run(
        "evaluate", tiny_run, "--load", tour, "--rewards", "right", "--episodes", 3, "--rows", tmp_path / "rows.jsonl"
    )
    assert code == 0, err


def test_mistakes_in_the_shell(tiny_run: Path, tiny_data_folder: Path, refused: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "pairs.npz", better=np.zeros((2, 5, 2)), worse=np.zeros((3, 5, 2)))
    np.savez(tmp_path / "flat.npz", better=np.zeros((2, 5)), worse=np.zeros((2, 5)))
    skill = ("--skill", "random")
    for words, message in (
        (("--follow", f"{tiny_data_folder}:5000"), "there is no episode 5000"),
        (("--follow", f"{tiny_data_folder}:²"), "data:²"),
        (("--follow", tmp_path / "none.npz"), "none.npz"),
        (("--follow", tiny_data_folder, *skill), "give exactly one of"),
        (("--prefer", tmp_path / "pairs.npz"), "2 better and 3 worse segments"),
        (("--prefer", tmp_path / "flat.npz"), "of shape (2, 5)"),
        ((*skill, "--window", 3), "--window changes nothing"),
        ((*skill, "--until", "3"), "--until says when --then begins"),
        ((*skill, "--earn", "right"), "--earn is what --adapt counts"),
        ((*skill, "--adapt", 0), "--adapt must be at least 1"),
        ((*skill, "--adapt", 3), "say which one counts"),
        ((*skill, "--add", "0.5:nowhere.safetensors"), "nowhere.safetensors"),
        ((*skill, "--then", "nowhere.safetensors", "--until", "3"), "nowhere.safetensors"),
        ((*skill, "--then", "nowhere.safetensors", "--until", "+-3"), "nowhere.safetensors"),
        ((*skill, "--then", "nowhere.safetensors", "--until", "²"), "²"),
        ((*skill, "--then", "nowhere.safetensors", "--until", "-3"), "until must be at least 1, not -3"),
    ):
        assert message in refused("prompt", tiny_run, *words), words


def test_ends_are_asked_before_the_first_step_and_of_one_observation(tiny: hilp.FoundationPolicy) -> None:
    goal = tiny.goal(np.array([5.5, 5.5]))
    assert not goal.until(5).reached(np.full((3, 2), 1.5)).any()
    tour = goal.then(tiny.skill(seed=0), until="observation[0] > 6")
    assert tour(np.array([1.5, 1.5])).shape == (1, tiny.config.dim)


def test_a_sum_of_many_prompts_is_loaded_again(tiny: hilp.FoundationPolicy, tmp_path: Path) -> None:
    many = sum((tiny.skill(seed=seed) for seed in range(1, 25)), start=tiny.skill(seed=0))
    many.save(tmp_path / "many.safetensors")
    again = tiny.load_prompt(tmp_path / "many.safetensors")
    np.testing.assert_array_equal(again(np.zeros((1, 2))), many(np.zeros((1, 2))))


def test_what_is_wrong_is_called_by_its_name(tiny: hilp.FoundationPolicy) -> None:
    with pytest.raises(HilpError, match=r"this policy takes goals of 2 numbers \(or batches \[n, 2\]\), not \(3,\)"):
        tiny.goal([1.0, 2.0, 3.0])
    with pytest.raises(HilpError, match="the goal holds a NaN"):
        tiny.goal([1.0, np.nan])
    with pytest.raises(HilpError, match="takes observations of 2 numbers"):
        tiny.act([1.0], tiny.goal([1.5, 1.5]))


def test_a_start_is_refused_before_a_reward_is_fitted(
    tiny_run: Path, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hilp.FoundationPolicy, "reward", None)  # a call would be an error of another kind
    assert "the start [1.0] is not a free position" in refused("prompt", tiny_run, "--reward", "x", "--start", "1")


def test_numbers_are_rounded_for_the_eye_alone(capsys: pytest.CaptureFixture[str]) -> None:
    result = {"r2": 0.8498402390667724, "return": -1234.5678, "steps": 1000, "reached": True}
    common.print_result(result, as_json=False)
    assert capsys.readouterr().out == "r2: 0.8498\nreturn: -1235.0\nsteps: 1000\nreached: True\n"
    common.print_result(result, as_json=True)
    assert json.loads(capsys.readouterr().out) == result


def test_a_misspelt_column_of_a_reward_is_told() -> None:
    from hilp.evaluation.setup import named_reward

    with pytest.raises(HilpError, match="there is no column 'cart_position': did you mean 'cart_pos'"):
        named_reward("cart_position", ["cart_pos", "cart_vel"], None)
    assert named_reward("cart_pos", ["cart_pos"], None) is None
