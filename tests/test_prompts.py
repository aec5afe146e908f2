"""Prompts: the skills they give, by hand; what they say about rewards; saving, loading and whose they are."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import hilp
from hilp import storage
from hilp.learning import actors, networks
from hilp.prompts import midpoints as planning
from hilp.prompts.bank import Bank
from hilp.prompts.reward import least_squares

Change = Callable[..., hilp.FoundationPolicy]
GOAL = [6.5, 1.5]


def observations(count: int = 7) -> np.ndarray:
    return np.random.default_rng(0).uniform(1, 7, (count, 2)).astype(np.float32)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def quietly(make: Callable[[], Any]) -> Any:
    """The prompt, without the warning about what phi cannot express."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return make()


# ---- goals and plans -------------------------------------------------------------------------------------------------


def test_a_goal_is_the_unit_direction_to_its_latent(tiny: hilp.FoundationPolicy) -> None:
    x = observations()
    z = tiny.goal(GOAL, plan=0)(x)
    np.testing.assert_allclose(z, unit(tiny.encode(np.float32(GOAL)) - tiny.encode(x)), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(z, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("plan", [1, 3, "auto"])
def test_a_plan_is_the_unit_direction_to_its_subgoal(tiny: hilp.FoundationPolicy, plan: int | str) -> None:
    x, far = observations(), tiny.encode(np.float32(GOAL))
    z = tiny.goal(GOAL, plan=plan, best=9, radius=2.0)(x)
    here = tiny.encode(x)
    subgoals = np.stack([tiny.midpoints.subgoal(h, far, plan, 9, 2.0) for h in here])
    np.testing.assert_allclose(z, unit(subgoals - here), atol=1e-3)


def test_midpoints_have_a_radius_of_their_own(tiny: hilp.FoundationPolicy) -> None:
    assert tiny.goal(GOAL, plan="midpoints").near_enough == planning.trust_radius(tiny.config.phi_discount)
    assert tiny.goal(GOAL, plan="midpoints", radius=1.5).near_enough == 1.5


def test_auto_is_the_graph_where_there_is_one_and_midpoints_where_not(tiny: hilp.FoundationPolicy, change: Any) -> None:
    x = observations()
    np.testing.assert_array_equal(tiny.goal(GOAL, plan="auto")(x), tiny.goal(GOAL, plan="graph")(x))
    chosen = tiny.goal(GOAL, plan="auto", radius=1.5)(x)
    np.testing.assert_array_equal(chosen, tiny.goal(GOAL, plan="midpoints", radius=1.5)(x))
    np.testing.assert_array_equal(
        tiny.goal(GOAL)(x), tiny.goal(GOAL, plan="graph")(x), "the default, as of the commands"
    )
    assert change(tiny, bank=tiny.bank.subsample(0, 0)).goal(GOAL).plan == 0, "nothing to plan with"
    earlier = change(tiny, graph=None)
    np.testing.assert_array_equal(earlier.goal(GOAL, plan="auto")(x), earlier.goal(GOAL, plan="midpoints")(x))


def test_auto_takes_midpoints_where_landmarks_are_too_few(tiny: hilp.FoundationPolicy, change: Any) -> None:
    x = observations()
    coarse = change(tiny, graph=replace(tiny.graph, radius=0.6 * tiny.planner.trust))
    np.testing.assert_array_equal(*(coarse.goal(GOAL, plan=plan)(x) for plan in ("auto", "midpoints")))


def test_auto_takes_midpoints_where_the_data_shows_no_way(tiny: hilp.FoundationPolicy, change: Any) -> None:
    """A graph whose edges are all guesses."""
    x = observations()
    guessing = change(tiny, graph=replace(tiny.graph, counts=np.zeros_like(tiny.graph.counts)))
    near = np.linalg.norm(guessing.encode(x) - guessing.encode(GOAL), axis=1) <= guessing.planner.trust
    assert not near.all()
    found, wanted = (guessing.goal(GOAL, plan=plan)(x) for plan in ("auto", "midpoints"))
    np.testing.assert_array_equal(found[~near], wanted[~near])


def test_auto_needs_to_know_how_far_distances_reach(tiny: hilp.FoundationPolicy, change: Change) -> None:
    class Silent(eqx.Module):
        inner: Any
        skill_dim: int = eqx.field(static=True)

        def encode(self, observation: Any) -> Any:
            return self.inner.encode(observation)

        def goal_direction(self, here: Any, there: Any) -> Any:
            return self.inner.goal_direction(here, there)

    policy = change(tiny, core=Silent(tiny.core, 8))
    with pytest.raises(hilp.PromptUnsupported, match=r"does not say how far its distances reach.*radius"):
        policy.goal(GOAL, plan="midpoints")
    assert policy.goal([GOAL]).plan == 0
    with pytest.raises(hilp.PromptUnsupported, match="how far"):
        _ = policy.discount
    assert policy.goal(GOAL, plan="auto", radius=2.0)(observations()).shape == (7, 8)
    assert policy.goal(GOAL, plan=2)(observations()).shape == (7, 8)


def test_goals_one_for_all_or_one_each(tiny: hilp.FoundationPolicy) -> None:
    x, goals = observations(3), observations(6)[3:]
    each = tiny.goal(goals, plan=1)(x)
    for i in range(3):
        np.testing.assert_allclose(each[i], tiny.goal(goals[i], plan=1)(x[i : i + 1])[0], atol=1e-4)
    for count in (1, 2, 7):
        with pytest.raises(hilp.HilpError, match="3 goals"):
            tiny.act(observations(count), tiny.goal(goals))


def test_inactive_rows_are_not_planned(tiny: hilp.FoundationPolicy) -> None:
    x = observations()
    active = np.array([1, 0, 1, 0, 0, 1, 0], bool)
    some, planned, plain = (
        tiny.goal(GOAL, plan=2)(x, active=active),
        tiny.goal(GOAL, plan=2)(x),
        tiny.goal(GOAL, plan=0)(x),
    )
    np.testing.assert_allclose(some[active], planned[active], atol=1e-4)
    np.testing.assert_allclose(some[~active], plain[~active], atol=1e-4)
    assert tiny.goal(GOAL, plan=2)(x, active=np.zeros(7, bool)).shape == (7, 8)


@pytest.mark.parametrize("plan", [-1, 13, 1.5, "three", None])
def test_a_plan_that_is_none(tiny: hilp.FoundationPolicy, plan: Any) -> None:
    with pytest.raises(hilp.HilpError, match="recursions"):
        tiny.goal(GOAL, plan=plan)


@pytest.mark.parametrize("wrong", [{"best": 0}, {"best": -1}, {"radius": 0.0}, {"radius": float("nan")}])
def test_planning_with_nothing(tiny: hilp.FoundationPolicy, wrong: dict[str, Any]) -> None:
    with pytest.raises(
        hilp.HilpError, match=f"{next(iter(wrong))} (must be at least 1|is a number of latent steps above 0)"
    ):
        tiny.goal(GOAL, plan=1, **wrong)


@pytest.mark.parametrize("wrong", [[np.nan, 1.5], [np.inf, 1.5]])
def test_a_goal_that_is_nowhere(tiny: hilp.FoundationPolicy, wrong: Any) -> None:
    with pytest.raises(hilp.HilpError, match="NaN"):
        tiny.goal(wrong)


# ---- least squares ---------------------------------------------------------------------------------------------------


def test_least_squares_solved_by_hand() -> None:
    # X'X = [[2, 1], [1, 2]] and X'r = [5, 6] give z = [4, 7] / 3. All residuals are 1/3, so the mean square error is
    # 1/9; the variance of 1, 2, 4 is 14/9.
    z, r2 = least_squares(np.array([[1, 0], [0, 1], [1, 1]]), np.array([1, 2, 4]))
    np.testing.assert_allclose(z, [4 / 3, 7 / 3], rtol=1e-5)
    assert r2 == pytest.approx(59 / 63, abs=1e-6)  # residuals -1/3, -1/3, 1/3: variance 8/81 of 14/9


def test_there_is_no_intercept() -> None:
    # One feature 1, 2 and rewards 3, 4: z = (3 + 8) / (1 + 4); with an intercept it would be 1.
    z, _ = least_squares(np.array([[1.0], [2.0]]), np.array([3.0, 4.0]))
    np.testing.assert_allclose(z, [11 / 5], rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_least_squares_of_full_rank_is_numpys(scale: float) -> None:
    rng = np.random.default_rng(0)
    x = scale * rng.normal(size=(500, 6)) * np.arange(1, 7)
    r = x @ rng.normal(size=6) / scale + rng.normal(size=500)
    z, r2 = least_squares(x, r)
    wanted = np.linalg.lstsq(x, r, rcond=None)[0]
    np.testing.assert_allclose(z * scale, wanted * scale, rtol=1e-4)
    assert r2 == pytest.approx(1 - np.var(r - x @ wanted) / np.var(r), abs=1e-6)


def test_rank_deficient_features_share_the_weight() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 300))
    x = np.stack([a, a, b, np.zeros(300)], axis=1)
    z, r2 = least_squares(x, 3 * a - 2 * b)
    np.testing.assert_allclose(z, [1.5, 1.5, -2, 0], atol=1e-4)
    assert r2 == pytest.approx(1, abs=1e-6)


def test_fewer_samples_than_features_stay_finite() -> None:
    x = np.random.default_rng(0).normal(size=(3, 8))
    z, r2 = least_squares(x, np.array([1.0, -1.0, 2.0]))
    assert np.isfinite(z).all() and r2 == pytest.approx(1, abs=1e-3)


def test_features_of_nothing() -> None:
    z, r2 = least_squares(np.zeros((5, 3)), np.arange(5))
    assert not z.any() and r2 == 0


# ---- rewards ---------------------------------------------------------------------------------------------------------


def test_a_linear_reward_is_expressed_exactly(tiny: hilp.FoundationPolicy) -> None:
    s, s2 = tiny.bank.observations, tiny.bank.next_observations
    wanted = tiny.skill(seed=5).z
    r = tiny.reward_features(s, s2) @ wanted
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="phi expresses only")
        earn = tiny.reward((s, s2, r), rule="skill")
    assert earn.r2 == pytest.approx(1, abs=1e-4)
    assert np.linalg.norm(earn.z) == pytest.approx(1, abs=1e-5)
    assert np.corrcoef(tiny.reward_features(s, s2) @ earn.z, r)[0, 1] > 0.9999


def test_the_skill_is_the_direction_of_the_solution(tiny: hilp.FoundationPolicy) -> None:
    s, s2 = tiny.bank.observations, tiny.bank.next_observations
    r = s2[:, 0] - s[:, 0]
    z, r2 = least_squares(tiny.encode(s2) - tiny.encode(s), r)
    earn = quietly(lambda: tiny.reward((s, s2, r), rule="skill"))
    np.testing.assert_allclose(earn.z, unit(z), atol=1e-4)
    assert earn.r2 == pytest.approx(r2, abs=1e-4)
    x = observations()
    np.testing.assert_array_equal(earn(x), np.tile(earn.z, (7, 1)))


def test_noise_is_not_expressed_and_warns(tiny: hilp.FoundationPolicy) -> None:
    r = np.random.default_rng(0).normal(size=len(tiny.bank))
    with pytest.warns(UserWarning, match=r"R\^2 = 0\.0"):
        earn = tiny.reward(function=lambda s, a, s2: r)
    assert abs(earn.r2) < 0.03


def test_the_scale_of_a_reward_does_not_matter(tiny: hilp.FoundationPolicy) -> None:
    def scaled(by: float) -> np.ndarray:
        def reward(s: Any, a: Any, s2: Any) -> np.ndarray:
            return by * (s2[:, 1] - s[:, 1]).astype(float)

        return quietly(lambda: tiny.reward(function=reward, rule="skill")).z

    for by in (1e-30, 1e-9, 1e9):
        np.testing.assert_allclose(scaled(by), scaled(1), atol=1e-5)
        np.testing.assert_allclose(scaled(-by), -scaled(1), atol=1e-5)


def test_a_table_of_labelled_samples_is_the_function(tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset) -> None:
    def f(s: np.ndarray, a: np.ndarray, s2: np.ndarray) -> np.ndarray:
        return s2[:, 0] * a[:, 1] - s[:, 1]

    own = tiny.bank
    table = (own.observations, own.next_observations, f(own.observations, own.actions, own.next_observations))
    one, two = (
        quietly(lambda asked=asked: tiny.reward(**asked, rule="skill")) for asked in ({"data": table}, {"function": f})
    )
    np.testing.assert_array_equal(one.z, two.z)
    assert one.r2 == two.r2

    drawn = Bank.draw(tiny_data, 400, seed=9)
    table = (drawn.observations, drawn.next_observations, f(drawn.observations, drawn.actions, drawn.next_observations))
    asked = quietly(lambda: tiny.reward(tiny_data, f, samples=400, seed=9, rule="skill"))
    np.testing.assert_array_equal(asked.z, quietly(lambda: tiny.reward(table, rule="skill")).z)
    other_sample = quietly(lambda: tiny.reward(tiny_data, f, samples=400, seed=10, rule="skill"))
    assert not np.array_equal(asked.z, other_sample.z)


S = np.zeros((4, 2), np.float32)
S2 = np.ones((4, 2), np.float32)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ((S, S2, [1, 1, 1, 1]), "same everywhere"),
        ((S, S2, [0, 0, 0, 0]), "same everywhere"),
        ((S, S2, np.full(4, np.float32(0.1))), "same everywhere"),
        ((S, S2, [1, 2, np.nan, np.inf]), "2 of 4 transitions, first at 2"),
        ((S, S2, [1, 2, 3]), "one number per transition"),
        ((S, S2, [[1], [2], [3], [4]]), "one number per transition"),
        ((S, S2, 1.0), "one number per transition"),
        ((S, S2[:3], [1, 2, 3, 4]), "one number per transition"),
        ((S[0], S2[0], [1, 2]), "one number per transition"),
        ((S, S2, ["a", "b", "c", "d"]), "numbers"),
        ((S, S2), "table of labelled samples"),
        ((np.zeros((4, 3)), np.ones((4, 3)), [1, 2, 3, 4]), "observations of 2 numbers"),
        ((S, S2 * np.nan, [1, 2, 3, 4]), "NaN"),
        ((S, S, [1, 2, 3, 4]), "does not change"),
        ((S[:0], S2[:0], []), "no transition"),
    ],
)
def test_rewards_that_ask_for_nothing(tiny: hilp.FoundationPolicy, table: Any, says: str) -> None:
    with pytest.raises(hilp.HilpError, match=says):
        tiny.reward(table)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda s, a, s2: 1.0, "one number per transition"),
        (lambda s, a, s2: s2, "one number per transition"),
        (lambda s, a, s2: None, "one number per transition"),
        (lambda s, a, s2: np.full(len(s), 7.0), "same everywhere"),
        (lambda s, a, s2: np.where(np.arange(len(s)) == 5, np.nan, s2[:, 0]), "1 of 2000 transitions, first at 5"),
        (lambda s, a, s2: ["good"] * len(s), "numbers"),
        (None, "needs a function of"),
    ],
)
def test_reward_functions_that_are_none(tiny: hilp.FoundationPolicy, function: Any, says: str) -> None:
    with pytest.raises(hilp.HilpError, match=says):
        tiny.reward(function=function)


def test_a_function_that_writes_into_its_arguments_harms_nothing(
    tiny: hilp.FoundationPolicy, change: Change, tiny_data: hilp.Dataset
) -> None:
    physics = np.arange(len(tiny.bank), dtype=np.float32)[:, None]
    policy = change(tiny, bank=replace(tiny.bank, next_extras={"physics": physics}))
    before = policy.bank.over(np.array)
    fingerprint = policy.fingerprint

    def careless(s: np.ndarray, a: np.ndarray, s2: np.ndarray, x: Any) -> np.ndarray:
        s -= s2
        reward = -s[:, 0].copy()
        for array in (s, a, s2, x.after("physics")):
            array[:] = 7
        return reward

    def careful(s: np.ndarray, a: np.ndarray, s2: np.ndarray) -> np.ndarray:
        return s2[:, 0] - s[:, 0]

    one, two = (
        quietly(lambda function=function: policy.reward(function=function, rule="skill"))
        for function in (careless, careful)
    )
    np.testing.assert_allclose(one.z, two.z, atol=1e-5)
    for name, column in before.columns().items():
        np.testing.assert_array_equal(policy.bank.columns()[name], column)
    assert change(policy).fingerprint == fingerprint
    one, two = (
        quietly(lambda function=function: policy.reward(tiny_data, function, samples=300, rule="skill"))
        for function in (lambda s, a, s2: careless(s, a, s2, SimpleNamespace(after=lambda name: a)), careful)
    )
    np.testing.assert_allclose(one.z, two.z, atol=1e-5)


# ---- skills ----------------------------------------------------------------------------------------------------------


def test_a_random_skill_is_unit_and_seeded(tiny: hilp.FoundationPolicy) -> None:
    one, two, three = tiny.skill(seed=1), tiny.skill(seed=1), tiny.skill(seed=2)
    np.testing.assert_array_equal(one.z, two.z)
    assert not np.allclose(one.z, three.z)
    assert np.linalg.norm(one.z) == pytest.approx(1, abs=1e-6) and one.z.dtype == np.float32
    assert one.r2 is None


def test_a_given_skill_is_its_direction(tiny: hilp.FoundationPolicy) -> None:
    z = np.array([3, 0, 0, 0, -4, 0, 0, 0])
    for scale in (1e-20, 1, 1e20):
        np.testing.assert_allclose(tiny.skill(z * scale).z, [0.6, 0, 0, 0, -0.8, 0, 0, 0], atol=1e-6)


@pytest.mark.parametrize("z", [np.ones(7), np.ones((1, 8)), np.zeros(8), np.full(8, np.nan), ["a"] * 8, 3.0])
def test_a_skill_that_is_none(tiny: hilp.FoundationPolicy, z: Any) -> None:
    with pytest.raises(hilp.HilpError, match="a skill"):
        tiny.skill(z)


# ---- saved and loaded ------------------------------------------------------------------------------------------------


def prompts_of(policy: hilp.FoundationPolicy) -> list[Any]:
    return [
        policy.goal(GOAL),
        policy.goal(observations(), plan=2, best=5),
        policy.goal(GOAL, plan="auto", radius=1.5),
        policy.skill(seed=3),
        quietly(lambda: policy.reward(function=lambda s, a, s2: s2[:, 0] - s[:, 0])),
    ]


def test_prompts_come_back_as_they_were(tiny: hilp.FoundationPolicy, tmp_path: Path) -> None:
    x = observations()
    for prompt in prompts_of(tiny):
        prompt.save(tmp_path / "prompt")
        again = tiny.load_prompt(tmp_path / "prompt")
        assert type(again) is type(prompt) and again.fingerprint == prompt.fingerprint == tiny.fingerprint
        np.testing.assert_array_equal(again(x), prompt(x))
        np.testing.assert_array_equal(tiny.act(x, again), tiny.act(x, prompt))
        for name in ("plan", "best", "radius", "r2"):
            assert getattr(again, name, None) == getattr(prompt, name, None)


def test_prompts_belong_to_one_policy(
    tiny: hilp.FoundationPolicy, other: hilp.FoundationPolicy, tmp_path: Path
) -> None:
    for prompt in prompts_of(tiny):
        prompt.save(tmp_path / "prompt")
        with pytest.raises(hilp.HilpError, match=f"{tiny.fingerprint[:8]}.*{other.fingerprint[:8]}"):
            other.load_prompt(tmp_path / "prompt")


def test_files_that_are_no_prompts(tiny: hilp.FoundationPolicy, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("go there")
    storage.write_arrays(tmp_path / "half", {}, {"kind": "goal", "fingerprint": tiny.fingerprint})
    for path, says in (
        (tmp_path / "nothing", "does not exist"),
        (tmp_path / "text", "not a safetensors file"),
        (tmp_path / "half", "not a whole prompt"),
        (tiny_run / "policy" / "bank.safetensors", "not a prompt"),
    ):
        with pytest.raises(hilp.HilpError, match=says) as caught:
            tiny.load_prompt(path)
        assert "\n" not in str(caught.value)


def test_a_changed_prompt_is_found(tiny: hilp.FoundationPolicy, tmp_path: Path) -> None:
    tiny.goal(GOAL, plan=2).save(tmp_path / "prompt")
    content = (tmp_path / "prompt").read_bytes()
    changed = content.replace(b'plan\\": 2', b'plan\\": 9')
    assert changed != content
    (tmp_path / "prompt").write_bytes(changed)
    with pytest.raises(hilp.HilpError, match="changed after it was written"):
        tiny.load_prompt(tmp_path / "prompt")


# ---- methods without a rule ------------------------------------------------------------------------------------------


class ActsOnly(eqx.Module):
    """A core that can act on a skill and has no rule for any task."""

    actor: actors.GaussianActor

    @property
    def skill_dim(self) -> int:
        return 8

    def act(self, observation: jax.Array, z: jax.Array) -> jax.Array:
        return self.actor(jax.numpy.concatenate([observation, z], axis=-1))


class NoGoals(ActsOnly):
    """As a method of successor features: rewards, but no direction to a goal."""

    phi: networks.Trunk

    def encode(self, observation: jax.Array) -> jax.Array:
        return self.phi(observation)

    def cumulant(self, observation: jax.Array, following: jax.Array) -> jax.Array:
        return self.phi(following)

    def project(self, z: jax.Array) -> jax.Array:
        return z


def test_a_method_without_a_goal_rule_says_so_by_name(tiny: hilp.FoundationPolicy, change: Change) -> None:
    policy = change(tiny, core=NoGoals(tiny.core.actor, tiny.core.phi))
    with pytest.raises(hilp.PromptUnsupported, match=r"^hilp has no goal rule"):
        policy.goal(GOAL)
    assert quietly(lambda: policy.reward(function=lambda s, a, s2: s2[:, 0])).z.shape == (8,)


def test_a_method_without_any_rule_says_so_by_name(tiny: hilp.FoundationPolicy, change: Change) -> None:
    policy = change(tiny, core=ActsOnly(tiny.core.actor))
    for use, says in (
        (lambda: policy.goal(GOAL), "goal rule"),
        (lambda: policy.reward(function=lambda s, a, s2: s2[:, 0]), "reward rule"),
        (lambda: policy.skill(seed=0), "skill rule"),
        (lambda: policy.encode(GOAL), "latent map"),
    ):
        with pytest.raises(hilp.PromptUnsupported, match=f"^hilp has no {says}"):
            use()
    assert policy.act(observations(), np.ones(8)).shape == (7, 2)
    assert issubclass(hilp.PromptUnsupported, hilp.HilpError), "so the command line prints one line"


def test_a_reward_may_use_extra_columns_by_name(tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset) -> None:
    labelled = replace(tiny_data, extras={"height": tiny_data.observations[:, 1].astype(np.float64)})
    by_name = lambda s, a, s2, x: x.after("height") - x.before("height")  # noqa: E731
    plain, named = (
        quietly(lambda one=one: tiny.reward(labelled, one, rule="skill"))
        for one in (lambda s, a, s2: s2[:, 1] - s[:, 1], by_name)
    )
    np.testing.assert_allclose(plain.z, named.z, atol=1e-5)
    with pytest.raises(hilp.HilpError, match="did you mean 'height'"):
        tiny.reward(labelled, lambda s, a, s2, x: x.after("heigt"))


# ---- rewards with a mean, formulas, goals of highest reward ----------------------------------------------------------


class Drifting(NoGoals):
    """Features that are almost centred: a small mean beside a large spread."""

    def cumulant(self, observation: jax.Array, following: jax.Array) -> jax.Array:
        place = jax.numpy.concatenate([following - 4.0, jax.numpy.full((len(following), 6), 0.02)], axis=1)
        return place


def test_a_constant_in_the_reward_changes_nothing_with_an_intercept(
    tiny: hilp.FoundationPolicy, change: Change
) -> None:
    policy = change(tiny, core=Drifting(tiny.core.actor, tiny.core.phi))
    plain, shifted = (lambda s, a, s2, c=c: s2[:, 0] + c for c in (0.0, 50.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, two = (policy.reward(function=f, intercept=True) for f in (plain, shifted))
    np.testing.assert_allclose(one.z, two.z, atol=1e-3)
    assert one.r2 == pytest.approx(1.0, abs=1e-4) and two.r2 == pytest.approx(1.0, abs=1e-4)
    with pytest.warns(UserWarning, match=r"the mean of this reward \(.*\), not its differences, decides"):
        turned = policy.reward(function=shifted)
    assert float(turned.z @ one.z) < 0.5 * np.linalg.norm(turned.z) * np.linalg.norm(one.z)


FORMULA = "observation[0] - before(observation[0]) - 0.1*norm(action)"


def test_a_formula_is_a_reward(tiny: hilp.FoundationPolicy) -> None:
    function, text = lambda s, a, s2: s2[:, 0] - s[:, 0] - 0.1 * np.linalg.norm(a, axis=1), FORMULA
    by_hand, formula = (
        quietly(lambda asked=asked: tiny.reward(function=asked, rule="skill")) for asked in (function, text)
    )
    np.testing.assert_allclose(formula.z, by_hand.z, atol=1e-5)
    with pytest.raises(hilp.HilpError, match="unknown function 'open'"):
        tiny.reward(function="open(observation)")


def test_the_goal_of_a_reward_is_the_state_that_earns_most(tiny: hilp.FoundationPolicy) -> None:
    there = tiny.reward(function=lambda s, a, s2: s2[:, 0] + s2[:, 1], rule="goal")
    following = tiny.bank.next_observations
    np.testing.assert_array_equal(there.goal, following[np.argmax(following.sum(axis=1))])
    assert there.kind == "goal" and there.plan == 0


class GoalIsSkill(ActsOnly):
    """As GC-TD3: the goal itself is the skill."""

    def goal_skill(self, goal: jax.Array) -> jax.Array:
        return jax.numpy.tile(goal, (1, 4))


def test_a_method_whose_skill_is_the_goal(tiny: hilp.FoundationPolicy, change: Change) -> None:
    policy = change(tiny, core=GoalIsSkill(tiny.core.actor))
    go = policy.goal(GOAL)
    wanted = np.tile((np.asarray(GOAL) - tiny.preparation.mean) / tiny.preparation.scale, 4)
    np.testing.assert_allclose(go(observations()), np.tile(wanted, (7, 1)), rtol=1e-5)
    with pytest.raises(hilp.PromptUnsupported, match="no latent distances"):
        policy.goal(GOAL, plan=1)
    assert policy.reward(function=lambda s, a, s2: s2[:, 0]).kind == "goal", "its only way to follow a reward"
    with pytest.raises(hilp.PromptUnsupported, match="no skill rule"):
        policy.skill(seed=0)


class Backward(ActsOnly):
    """As FB: the skill of a reward is its mean product with B."""

    def backward(self, observation: jax.Array) -> jax.Array:
        return jax.numpy.tile(observation, (1, 4))

    def project(self, z: jax.Array) -> jax.Array:
        return 2 * z


def test_a_backward_map_is_weighed_by_the_reward(tiny: hilp.FoundationPolicy, change: Change) -> None:
    policy = change(tiny, core=Backward(tiny.core.actor))
    earn = quietly(lambda: policy.reward(function=lambda s, a, s2: s2[:, 0]))
    following = tiny.bank.next_observations
    b = np.tile((following - tiny.preparation.mean) / tiny.preparation.scale, 4)
    z = following[:, 0] @ b
    np.testing.assert_allclose(earn.z, 2 * z / np.linalg.norm(z), rtol=1e-4)


def test_the_bank_keeps_physics_for_rewards(
    tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset, tmp_path: Any
) -> None:
    physics = np.arange(tiny_data.rows, dtype=np.float64)[:, None] % 7
    data = replace(tiny_data, extras={"physics": physics})
    config = replace(tiny.config, hidden=(8,), actor_hidden=(8,), batch=8)
    policy = hilp.pretrain(config, data, steps=1, bank=50, quiet=True)
    policy.save(tmp_path / "policy")
    again = hilp.FoundationPolicy.load(tmp_path / "policy")
    function = lambda s, a, s2, x: x.after("physics")[:, 0]  # noqa: E731
    found = [quietly(lambda one=one: one.reward(function=function, rule="skill")) for one in (again, policy)]
    np.testing.assert_array_equal(found[0].z, found[1].z)
    with pytest.raises(hilp.HilpError, match="needs the extra column 'physics', which the bank does not have"):
        tiny.reward(function=function)
