"""Plans of methods that say how many steps lie between two states: their rules, the graph, prompts and exports."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hilp
from hilp import export, testing
from hilp.export import numpy_folder
from hilp.learning import hilbert, methods, networks
from hilp.learning.methods import crl
from hilp.prompts import graph, value_graph
from hilp.prompts.agent import Batch
from hilp.prompts.midpoints import Midpoints
from hilp.prompts.value_graph import ValuePlanner
from hilp.spec import Spec
from test_methods import config_of

WITH_STEPS = ("crl", "gc-iql", "gc-iql-q", "hiql", "qrl")


# ---- the rules -------------------------------------------------------------------------------------------------------


def test_steps_of_a_value() -> None:
    """-(1 - 0.9^d) / 0.1 for d = 1, 2, 10: -1, -1.9 and -6.5132; beyond its range a value is cut 0.001 inside of it."""
    found = hilbert.steps_of_value(jnp.array([-1.0, -1.9, -6.5132156, 3.0, -10.0]), 0.9)
    ends = [math.log(1 - 0.1 * 0.001) / math.log(0.9), math.log(0.0001) / math.log(0.9)]
    np.testing.assert_allclose(found, [1.0, 2.0, 10.0, *ends], rtol=1e-3)


def core_of(name: str) -> Any:
    config = methods.config(name, **{key: value for key, value in vars(config_of(name)).items() if key != "encoder"})
    method = methods.of(config)
    return method.export(config, method.init(config, Spec(observation_dim=3, action_dim=2), jax.random.key(0)))


@pytest.mark.parametrize("name", WITH_STEPS)
def test_steps_of_every_pair_are_those_of_the_pairs(name: str) -> None:
    core, rng = core_of(name), np.random.default_rng(0)
    here, there = (rng.standard_normal((count, 3)).astype(np.float32) for count in (5, 7))
    every = core.steps(here[:, None], there[None])
    pairs = jnp.stack([core.steps(here, np.broadcast_to(one, here.shape)) for one in there], axis=1)
    assert every.shape == (5, 7)
    np.testing.assert_allclose(every, pairs, rtol=1e-4, atol=1e-4)
    if name in ("gc-iql", "gc-iql-q"):
        wanted = hilbert.steps_of_value(core.value(networks.join(here[:1], there[:1]))[0, 0], core.discount)
        np.testing.assert_allclose(every[0, 0], wanted, rtol=1e-4)
    if name == "hiql":
        value = core.value(networks.join(here[:1], core.rep(here[:1], there[:1])))[0, 0]
        np.testing.assert_allclose(every[0, 0], hilbert.steps_of_value(value, core.discount), rtol=1e-4)
    if name == "qrl":
        of = core.quasimetric
        np.testing.assert_allclose(every[0, 0], of(of.encode(here[:1]), of.encode(there[:1]))[0], rtol=1e-4)


def test_steps_of_contrastive_critics() -> None:
    """The logit of being there less that of here, in units of log(1 / discount); never below nothing."""
    core = core_of("crl")
    assert isinstance(core, crl.Policy)

    def logit(state: np.ndarray, goal: np.ndarray) -> float:
        phi = core.phi(networks.join(state, core.actor.act(state, goal)))
        return float(jnp.sum(phi * core.psi(goal)) / math.sqrt(phi.shape[-1]))

    rng = np.random.default_rng(1)
    for _ in range(4):
        here, there = rng.standard_normal((2, 1, 3)).astype(np.float32)
        wanted = max(0.0, logit(there, there) - logit(here, there)) / math.log(1 / core.discount)
        assert float(core.steps(here, there)[0]) == pytest.approx(wanted, rel=1e-3, abs=1e-3)
    assert float(core.steps(there, there)[0]) == pytest.approx(0.0, abs=1e-3)


# ---- the graph -------------------------------------------------------------------------------------------------------


def walk(length: int = 300) -> np.ndarray:
    """A walk along a line, a step a row."""
    return np.stack([np.arange(length), np.zeros(length)], axis=1).astype(np.float32)


def there_only(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Steps along the line, and three times as many back; as values do, it hardly tells those past 20 apart."""
    far = (there - here)[..., 0]
    steps = np.where(far < 0, -3.0 * far, far) + 2.0 * np.abs((there - here)[..., 1])
    return np.asarray(np.where(steps > 20, 20.0 + 0.01 * steps, steps), np.float32)


def planner(rows: np.ndarray, lengths: list[int], steps: Any = there_only) -> ValuePlanner:
    drawn = value_graph.build(rows, rows, np.array(lengths), steps)
    return ValuePlanner(drawn, Midpoints(rows), steps)


def test_far_goals_are_as_far_as_the_way_over_landmarks() -> None:
    found, goal = planner(walk(), [300]), walk()[[255]]
    to_goal = found.to_goals(goal)
    for start in (0, 120, 250):
        left = found.steps_left(walk()[[start]], goal, to_goal)[0]
        assert left == pytest.approx(255 - start, rel=0.05), "the value alone says some 20 of all but the last"
    info = found.path_info(walk()[0], goal[0], to_goal[0])
    assert info.reachable == "yes" and info.support == 1 and info.steps == pytest.approx(255, rel=0.05)
    assert np.all(np.diff(walk()[info.path, 0]) > 0)


def test_an_agent_heads_for_the_landmark_within_reach_that_is_nearest_to_the_goal() -> None:
    found = planner(walk(), [300])
    assert found.reach == pytest.approx(12, abs=0.1), "16 landmarks: 12 ahead, and 4 behind, each at thrice its price"
    here, goals = walk()[[0, 250, 3]], walk()[[255, 255, 255]]
    heads_for = found.subgoals(here, goals, found.to_goals(goals), 1, found.stuck(), np.array([0, 1]))
    assert heads_for.shape == (2, 2)
    assert heads_for[0, 0] == 16, "0.7 of twice the reach is 16.8"
    assert heads_for[1, 0] == 255, "the goal itself is within reach"


def test_an_edge_by_the_estimate_alone_is_the_last_resort() -> None:
    """Two lanes, walked there and back, that are joined at their far end; across, the value says, it is 18 steps."""
    there = np.stack([np.arange(100.0), np.zeros(100)], axis=1)
    back = np.stack([99.0 - np.arange(100.0), np.full(100, 9.0)], axis=1)
    rows = np.concatenate([there, back]).astype(np.float32)

    def blind(here: np.ndarray, there: np.ndarray) -> np.ndarray:
        return np.asarray(np.abs(there - here) @ np.float32([1.0, 2.0]), np.float32)

    found = planner(rows, [200], blind)
    goal = rows[[-10]]
    assert found.reach < blind(rows[10], goal[0]) < 20
    info = found.path_info(rows[10], goal[0], found.to_goals(goal)[0])
    assert info.reachable == "yes" and info.steps == pytest.approx(180, rel=0.05)


def test_landmarks_that_no_trajectory_joins_are_a_guess() -> None:
    rows = np.concatenate([walk(100), walk(100) + np.float32([115.0, 0.0])])
    found = planner(rows, [100, 100])
    info = found.path_info(rows[50], rows[150], found.to_goals(rows[[150]])[0])
    assert info.reachable == "unknown" and info.support == 0
    inside = found.path_info(rows[0], rows[80], found.to_goals(rows[[80]])[0])
    assert inside.reachable == "yes"


def both_ways(here: np.ndarray, there: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(there - here).sum(axis=-1), np.float32)


@pytest.mark.parametrize("reaches", [1, 2.5, 4])
@pytest.mark.parametrize("search", [graph.by_scipy, graph.by_sweeps])
def test_goals_off_the_data_are_approached_as_far_as_the_data_leads(reaches: float, search: Any) -> None:
    """A line of 300 states, walked there and back; the goal lies beside the state 280."""
    rows = np.concatenate([walk(), walk()[::-1]])
    drawn = value_graph.build(walk(), rows, np.array([300, 300]), both_ways)
    found = ValuePlanner(drawn, Midpoints(walk()), both_ways, search)
    assert found.reach == pytest.approx(8, abs=1)
    goal = np.float32([[280, reaches * found.reach]])
    to_goals, stuck, here = found.to_goals(goal), found.stuck(), walk()[[150]]
    for _ in range(200):
        heads_for = found.subgoals(here, goal, to_goals, 1, stuck, np.array([0]))
        here = here + np.clip(heads_for - here, -1, 1) * np.float32([[1, 0]])
    assert abs(here[0, 0] - 280) <= 2


def test_an_agent_off_the_data_that_gets_no_nearer_is_noticed() -> None:
    """It sways by two steps: a guess of the way to the data changes by far more, and is no new episode."""
    rows = np.concatenate([walk(), walk()[::-1]])
    found = planner(rows, [300, 300], both_ways)
    goal = walk()[[280]]
    to_goals, stuck = found.to_goals(goal), found.stuck()
    for step in range(60):
        here = np.float32([[100, 25 + step % 2 * 2]])
        found.subgoals(here, goal, to_goals, 1, stuck, np.array([0]))
    assert stuck["level"][0] > 0


def test_where_no_way_leads_there_is_none() -> None:
    """East of 150 nothing can be reached from the west."""

    def door(here: np.ndarray, there: np.ndarray) -> np.ndarray:
        closed = (here[..., 0] < 150) & (there[..., 0] >= 150)
        return np.asarray(np.where(closed, np.inf, both_ways(here, there)), np.float32)

    rows = np.concatenate([walk(150), walk()[150:]])
    found = planner(rows, [150, 150], door)
    goal = walk()[200]
    info = found.path_info(walk()[20], goal, found.to_goals(goal[None])[0])
    assert (info.reachable, info.steps, info.support, len(info.path)) == ("no", np.inf, 0, 0)


def test_the_radius_is_what_is_saved() -> None:
    """Where a method's rule is one of float64, too."""
    steps, bank = (lambda here, there: 1.1 * both_ways(here, there).astype(np.float64)), walk()
    found = value_graph.build(bank, bank, np.array([300]), steps).radius
    assert found == float(np.float32(found))


# ---- prompts ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data() -> Any:
    return testing.small_data()


@pytest.fixture(scope="module")
def policy(data: Any) -> hilp.FoundationPolicy:
    return hilp.pretrain(config_of("gc-iql"), data, steps=20, quiet=True)


def test_training_leaves_a_graph_that_goals_are_reached_on(
    policy: hilp.FoundationPolicy, data: Any, tmp_path: Path
) -> None:
    seen, goal = np.asarray(data.observations[5:25]), np.asarray(data.observations[300])
    assert policy.graph is not None and (policy.graph.counts > 0).any()
    go, straight = policy.goal(goal), policy.goal(goal, plan=0)
    skills = policy.goal_skill(policy.bank.observations)
    landmarks = {tuple(one) for one in skills[policy.graph.landmarks]} | {tuple(policy.goal_skill(goal))}
    assert all(tuple(one) in landmarks for one in go(seen)), "a landmark or the goal, and no mean of them"
    assert (straight(seen) == policy.goal_skill(goal)).all()
    info = go.path_info(seen[0])
    assert info.reachable in ("yes", "unknown") and np.isfinite(info.steps)
    assert go.path(seen[0]).shape == (len(info.path), seen.shape[1])
    assert go.reached(goal[None]).shape == (1,)

    again = hilp.FoundationPolicy.load(policy.save(tmp_path / "policy"))
    go.save(tmp_path / "go")
    for agent in (again.load_prompt(tmp_path / "go"), again.goal(goal)):
        fresh = policy.goal(goal)
        np.testing.assert_array_equal(policy.act(seen, fresh), again.act(seen, agent))
    assert again.load_prompt(tmp_path / "go").plan == "auto"
    one = policy.goal(goal)
    np.testing.assert_allclose(policy.act(seen[0], one), policy.act(seen, policy.goal(goal))[0], atol=1e-5)


def test_plans_that_need_a_metric_are_refused(policy: hilp.FoundationPolicy) -> None:
    goal = policy.bank.observations[3]
    for plan in ("midpoints", 2):
        with pytest.raises(hilp.PromptUnsupported, match="gc-iql has no latent distances to find midpoints with"):
            policy.goal(goal, plan=plan)
    with pytest.raises(hilp.PromptUnsupported, match="no latent distances"):
        policy.reward(function=lambda s, a, s2: s2[:, 0], rule="graph")
    empty = replace(policy, bank=policy.bank.subsample(0, 0), graph=None)
    assert empty.goal(goal).plan == 0
    with pytest.raises(hilp.HilpError, match="without a bank of states"):
        empty.goal(goal, plan="graph")


def test_a_policy_from_before_plans_on_its_own_transitions(policy: hilp.FoundationPolicy) -> None:
    bare = replace(policy, graph=None)
    seen, goal = bare.bank.observations[:4], bare.bank.observations[40]
    assert bare.act(seen, bare.goal(goal, plan="graph")).shape == (4, 2)
    assert (bare.goal(goal)(seen) == bare.goal_skill(goal)).all(), "auto takes a graph of training"
    assert bare.planner.graph.counts.max() > 0


def test_exported_plans_are_the_same(policy: hilp.FoundationPolicy, data: Any, tmp_path: Path) -> None:
    facts = export.write(policy, "numpy", tmp_path / "out")
    assert "steps" in facts["rules"] and not facts["refused"]
    theirs = numpy_folder.load(tmp_path / "out").load(tmp_path / "out")
    seen, goal = np.asarray(data.observations[5:25]), np.asarray(data.observations[300])
    here = policy.rule("goal_skill", Batch(seen, False))
    ours = policy.steps_between(here[:, None], here[None])
    np.testing.assert_allclose(theirs.steps_between(here[:, None], here[None]), ours, rtol=1e-3, atol=1e-3)
    assert theirs.goal(goal).path_info(seen[0]).steps == pytest.approx(
        policy.goal(goal).path_info(seen[0]).steps, rel=0.01
    )
    skills = theirs.goal(goal)(seen)
    assert np.mean(np.all(np.isclose(skills, policy.goal(goal)(seen), atol=1e-4), axis=1)) > 0.9


def test_steps_that_cannot_be_exported_leave_the_straight_way(data: Any, tmp_path: Path) -> None:
    config = config_of("gc-iql")
    policy = hilp.pretrain(config, data, steps=5, quiet=True)
    fields = {name: getattr(policy.core, name) for name in ("actor", "chunk", "play", "value", "discount")}
    sorts = type("Sorts", (type(policy.core),), {"steps": lambda self, a, b: jnp.sort(a - b, axis=-1)[..., 0]})
    odd = replace(policy, core=sorts(**fields), graph=None)
    facts = export.write(odd, "numpy", tmp_path / "out")
    assert len(facts["refused"]) == 1
    theirs = numpy_folder.load(tmp_path / "out").load(tmp_path / "out")
    assert theirs.goal(data.observations[3]).plan == 0
    with pytest.raises(Exception, match="rule 'steps' cannot be exported: it computes 'sort'"):
        theirs.goal(data.observations[3], plan="graph")
