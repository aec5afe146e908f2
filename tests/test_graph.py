"""The graph of the data: its edges, its distances, what it says beforehand, and rewards planned on it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp.evaluation import explain, stats
from hilp.learning.hilbert import discounted
from hilp.prompts import graph, graph_reward
from hilp.prompts import midpoints as planning
from hilp.prompts import reward as reward_prompts
from hilp.prompts.bank import Bank
from hilp.prompts.graph import GUESS, GraphPlanner
from hilp.prompts.graph_reward import GraphRewardPrompt
from hilp.prompts.memory import RANDOM_SUBGOAL, REACHES, StuckAgents
from hilp.prompts.midpoints import undiscounted
from hilp.prompts.skills import SkillPrompt
from hilp.report import page

DISCOUNT = 0.99  # trust radius: 9 latent steps


def line(length: int, start: float = 0.0) -> np.ndarray:
    """A walk along a line, one step a row, with latents that are positions."""
    return np.stack([start + np.arange(length), np.zeros(length)], axis=1).astype(np.float32)


def planner(bank: np.ndarray, walks: list[np.ndarray]) -> GraphPlanner:
    drawn = graph.build(bank, np.concatenate(walks), np.array([len(walk) for walk in walks]), DISCOUNT)
    return GraphPlanner(drawn, planning.Midpoints(bank), DISCOUNT, graph.by_scipy)


def steps_between(found: GraphPlanner, here: np.ndarray, goal: np.ndarray) -> float:
    return float(found.steps_left(here[None], goal[None], found.to_goals(goal[None]))[0])


# ---- landmarks and edges ---------------------------------------------------------------------------------------------


def test_landmarks_cover_the_bank_and_keep_apart() -> None:
    points = np.random.default_rng(0).uniform(0, 10, (500, 2)).astype(np.float32)
    chosen, radius = graph.cover(points, 1.0, 0)
    apart = np.linalg.norm(points[chosen][:, None] - points[chosen][None], axis=-1)
    assert radius == 1.0 and np.all(apart[~np.eye(len(chosen), dtype=bool)] > 1.0)
    assert graph.nearest(points, points[chosen], 1)[1].max() <= 1.0


def test_a_bank_too_wide_for_so_many_landmarks_gets_a_wider_net(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "MOST_LANDMARKS", 10)
    points = np.random.default_rng(0).uniform(0, 10, (500, 2)).astype(np.float32)
    chosen, radius = graph.cover(points, 0.1, 0)
    assert len(chosen) <= 10 and radius > 0.1


def test_the_quantile_of_each_key_by_hand() -> None:
    keys, costs = np.array([7, 3, 7, 7, 3, 7, 7, 7]), np.array([6.0, 9.0, 1.0, 5.0, 2.0, 4.0, 2.0, 3.0])
    unique, quick, counts = graph.quickest(keys, costs)
    assert unique.tolist() == [3, 7] and counts.tolist() == [2, 6]
    assert quick.tolist() == [2.0, 2.0]  # of 6 costs the one at place int(0.2 * 5) = 1


def test_steps_along_a_line_are_its_length_and_never_less() -> None:
    walk = line(60)
    found = planner(walk, [walk])
    for goal in (20, 40, 59):
        steps = steps_between(found, walk[0], walk[goal])
        assert goal - 1e-3 <= steps <= 1.5 * goal


def test_edges_have_the_direction_of_the_data() -> None:
    walk = line(60)
    found = planner(walk, [walk])  # always forwards
    assert steps_between(found, walk[0], walk[50]) < 100
    assert steps_between(found, walk[50], walk[0]) > GUESS, "nobody went back"


def test_a_wall_that_phi_does_not_see_is_not_crossed() -> None:
    """Two corridors that lie 1 apart in latents, joined at one end only: the way leads around."""
    there, back = line(60), line(60)[::-1] + np.array([0, 1], np.float32)
    walk = np.concatenate([there, back])
    bank = walk
    found = planner(bank, [walk])
    across = steps_between(found, there[20], back[-30] + np.array([0, 0], np.float32))
    assert np.linalg.norm(there[20] - back[-30]) < 15, "phi thinks it near"
    assert across > 60 or across <= planning.trust_radius(DISCOUNT) * 2  # within the trust radius phi is believed


@pytest.fixture(scope="module")
def lattice() -> tuple[Any, np.ndarray, list[np.ndarray], GraphPlanner]:
    """The finite maze, its places as latents, random walks on it, and the graph of those: only that knows of walls."""
    world: Any = hilp.make_task("maze-medium")
    finite = world.finite()
    rng, walks = np.random.default_rng(0), []
    for _ in range(300):
        rows = [int(rng.integers(len(finite.observations)))]
        motion = int(rng.integers(finite.successors.shape[1]))
        for _ in range(40):
            if rng.random() < 0.2:
                motion = int(rng.integers(finite.successors.shape[1]))
            rows.append(int(finite.successors[rows[-1], motion]))
        walks.append(np.array(rows))
    scale = 2 / 0.4  # twice as long as a step, so that no neighbourhood reaches across a wall
    places = (finite.observations * scale).astype(np.float32)
    bank = places[np.concatenate(walks)][::3]
    return finite, places, walks, planner(bank, [places[walk] for walk in walks])


def test_exact_distances_of_a_maze(lattice: Any) -> None:
    finite, places, _, found = lattice
    sample = np.random.default_rng(1).choice(len(places), 40, replace=False)
    to_goals = found.to_goals(places[sample])
    near, apart = graph.nearest(places[sample], found.landmarks, 1)
    estimate = to_goals[:, near[:, 0]] + apart[:, 0]
    exact = finite.steps[np.ix_(sample, sample)].T
    far = exact > 5
    ratio = estimate[far] / exact[far]
    assert np.corrcoef(estimate[far], exact[far])[0, 1] > 0.8
    assert 1.0 < np.median(ratio) < 2.5


def test_value_iteration_is_dynamic_programming_on_the_lattice(lattice: Any) -> None:
    """The reward of being in a corner, by value iteration over all states of the finite maze."""
    finite, places, walks, found = lattice
    corner = (np.abs(finite.observations - finite.observations.max(axis=0)) < 1.5).all(axis=1).astype(float)
    exact = np.zeros(len(places))
    for _ in range(400):
        exact = (corner[finite.successors] + 0.95 * exact[finite.successors]).max(axis=1)
    before, after = (np.concatenate([walk[part] for walk in walks]) for part in (slice(0, -1), slice(1, None)))
    plan = graph_reward.plan(found, places[before], places[after], corner[after], 0.95)
    at = np.argmin(np.linalg.norm(places[None] - found.landmarks[:, None], axis=2), axis=1)
    assert plan.model == "state_reward"
    assert stats.spearman(exact[at], plan.values) > 0.7  # many landmarks are as far from the corner as others


# ---- odd banks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 10])
def test_small_banks(count: int) -> None:
    walk = line(count)
    found = planner(walk, [walk])
    assert steps_between(found, walk[0], walk[-1]) == pytest.approx(
        undiscounted(np.float64(count - 1), DISCOUNT), abs=1
    )


def test_duplicates_are_one_landmark() -> None:
    walk = np.zeros((50, 2), np.float32)
    found = planner(walk, [walk])
    assert len(found.graph) == 1 and steps_between(found, walk[0], walk[0]) == pytest.approx(0, abs=1e-6)


def test_a_policy_without_a_bank_says_so(tiny: hilp.FoundationPolicy, change: Any) -> None:
    empty = change(tiny, bank=Bank.from_columns(
        {name: column[:0] for name, column in tiny.bank.columns().items()}, tiny.spec), graph=None)  # fmt: skip
    with pytest.raises(hilp.HilpError, match="without a bank"):
        empty.goal(tiny.bank.observations[0], plan="graph")


def test_a_landmark_at_a_one_way_door_is_no_way_back() -> None:
    """At 20 a line can be walked to the right only; the way back takes 60 steps more, which no walk here shows.

    The landmark at the door has both sides around it: walks reach it from the right, and leave it to the left.
    """
    walk, left, right = line(41), line(21), line(21, start=20.0)
    walks = [walk, *[left, left[::-1]] * 3, *[right, right[::-1]] * 3]
    columns = np.concatenate(walks), np.array([len(one) for one in walks])
    drawn = graph.build(walk, *columns, DISCOUNT)

    def distance(here: np.ndarray, there: np.ndarray) -> np.ndarray:
        back = (here[..., 0] > 20) & (there[..., 0] <= 20)
        return np.asarray(discounted(np.abs(there - here)[..., 0] + 60.0 * back, DISCOUNT), np.float32)

    found = GraphPlanner(drawn, planning.DirectedMidpoints(walk, distance), DISCOUNT, graph.by_scipy)
    blind = GraphPlanner(drawn, planning.Midpoints(walk), DISCOUNT, graph.by_scipy)
    near, far = walk[2], walk[38]
    assert steps_between(blind, far, near) == pytest.approx(36, rel=0.2)  # two edges that were seen, put together
    assert steps_between(found, far, near) == pytest.approx(36 + 60)
    assert steps_between(found, near, far) == pytest.approx(steps_between(blind, near, far), rel=0.05)
    here, goal = walk[[23]], walk[[2]]
    for one, most in ((blind, 20.0), (found, 40.0)):  # what is near by phi alone lies behind the door
        heads_for = one.subgoals(here, goal, one.to_goals(goal), 3, one.stuck(), np.arange(1))[0, 0]
        assert (heads_for <= 20.0) == (most == 20.0)


# ---- certificates ----------------------------------------------------------------------------------------------------


def test_outlook_of_a_way_that_was_seen() -> None:
    walk = line(60)
    found = planner(walk, [walk, walk, walk])
    path_info = found.path_info(walk[0], walk[50], found.to_goals(walk[50][None])[0])
    assert path_info.reachable == "yes" and path_info.support is not None and path_info.support >= 3
    assert 50 <= path_info.steps <= 75
    places = walk[path_info.path][:, 0]
    assert np.all(np.diff(places) > 0), "landmarks come in the order of the way"


def test_outlook_of_a_room_that_nothing_leads_to() -> None:
    walk, room = line(60), line(30, start=1000.0)
    bank = np.concatenate([walk, room])
    found = planner(bank, [walk, room])
    path_info = found.path_info(walk[0], room[5], found.to_goals(room[5][None])[0])
    assert path_info.reachable == "no" and path_info.steps == np.inf and not len(path_info.path)


def test_outlook_of_a_way_that_only_phi_knows() -> None:
    """Two walks that end and begin a few steps apart, and no trajectory that goes on from one to the other."""
    one, two = line(30), line(30, start=32.0)
    found = planner(np.concatenate([one, two]), [one, two])
    path_info = found.path_info(one[0], two[-1], found.to_goals(two[-1][None])[0])
    assert path_info.reachable == "unknown" and path_info.support == 0 and 50 < path_info.steps < 120


def test_a_goal_off_the_graph_is_unknown() -> None:
    walk = line(60)
    found = planner(walk, [walk])
    off = np.array([30.0, 40.0], np.float32)
    assert found.path_info(walk[0], off, found.to_goals(off[None])[0]).reachable == "unknown"


# ---- subgoals --------------------------------------------------------------------------------------------------------


def test_where_data_is_thin_a_subgoal_still_lies_ahead() -> None:
    """13 states lie around the agent; the mean of 50 of them would be where it stands."""
    found = both_ways()
    here, goal = np.array([[30.0, 0.0]], np.float32), found.bank.latents[[59]]
    subgoal = found.subgoals(here, goal, found.to_goals(goal), 50, found.stuck(), np.arange(1))
    assert subgoal[0, 0] > 34


@pytest.mark.parametrize("share", [0.72, 0.85, 0.99])
def test_a_goal_that_the_data_does_not_lead_to_is_headed_for_where_phi_is_trusted(share: float) -> None:
    """At the end of all data, no state around is nearer to a goal beyond it than where one stands."""
    found = both_ways()
    here = found.bank.latents[[59]]
    goal = here + np.array([[share * found.trust, 0.0]], np.float32)
    subgoal = found.subgoals(here, goal, found.to_goals(goal), 50, found.stuck(), np.arange(1))
    np.testing.assert_array_equal(subgoal, goal)


def test_one_who_stands_still_beside_its_goal_goes_astray_and_comes_back() -> None:
    found = both_ways()
    here, goal = np.array([[30.0, 0.0]], np.float32), np.array([[34.0, 0.0]], np.float32)
    stuck, to_goal = found.stuck(), found.to_goals(goal)
    seen = [found.subgoals(here, goal, to_goal, 50, stuck, np.arange(1))[0, 0] for _ in range(60)]
    astray = [x for x in seen if x != 34.0]
    assert seen[0] == seen[-1] == 34.0 or 34.0 in seen[30:]
    assert astray and all(abs(x - 30) <= found.trust for x in astray)
    again = found.stuck()
    assert [found.subgoals(here, goal, to_goal, 50, again, np.arange(1))[0, 0] for _ in range(60)] == seen


def test_prompts_of_the_same_episodes_are_the_same_again(tiny: hilp.FoundationPolicy) -> None:
    """A reset forgets what was tried, and begins the same random numbers."""
    prompt = tiny.goal(tiny.bank.observations[1000], plan="graph")
    x = np.repeat(tiny.bank.observations[:3], 1, axis=0)  # agents that never move
    first = np.stack([prompt(x) for _ in range(30)])
    assert any(not np.array_equal(first[0], later) for later in first)
    prompt.reset()
    np.testing.assert_array_equal(first, np.stack([prompt(x) for _ in range(30)]))


# ---- stuck --------------------------------------------------------------------------------------------------------


def test_patience_is_long_then_tries_something_else_and_forgets_a_new_episode() -> None:
    stuck, rows = StuckAgents(9.0, 4.0), np.arange(2)
    here = np.zeros((2, 2))
    seen = []
    for step in range(30):
        left = np.array([500.0 - 3 * step, 50.0])  # the second stands still
        reaches, astray = stuck.reaches(here, left, rows)
        seen.append((reaches[1], bool(astray[1])))
        assert reaches[0] == 9.0 * REACHES[0] and not astray[0]
    # One step to see where it is and 2 x 4 to wait; then 4 each, and one that notices: astray, half as far, astray.
    tried = [1 + 8, 5, 5, 5]
    expected = [(9.0 * REACHES[level], RANDOM_SUBGOAL[level]) for level in range(4) for _ in range(tried[level])]
    assert seen[: len(expected)] == expected
    assert seen[len(expected) :] == [(9.0 * REACHES[0], False)] * (30 - len(expected))
    elsewhere = here + np.array([[0.0, 0.0], [50.0, 0.0]])
    assert stuck.reaches(elsewhere, np.array([20.0, 50.0]), rows)[0].tolist() == [9.0 * REACHES[0]] * 2


# ---- rewards ---------------------------------------------------------------------------------------------------------


def both_ways(length: int = 60) -> GraphPlanner:
    walk = line(length)
    return planner(walk, [walk, walk[::-1].copy()] * 3)


def labelled(found: GraphPlanner) -> tuple[np.ndarray, np.ndarray]:
    before = np.concatenate([found.bank.latents[:-1], found.bank.latents[1:]])
    return before, np.concatenate([found.bank.latents[1:], found.bank.latents[:-1]])


def test_value_iteration_is_dynamic_programming_on_a_line() -> None:
    """Being at the right end pays 1 a step: the value at x is discount^(59 - x) / (1 - discount)."""
    found = both_ways()
    before, after = labelled(found)
    paid = (after[:, 0] >= 50).astype(float)
    plan = graph_reward.plan(found, before, after, paid, 0.95)
    assert plan.model == "state_reward" and plan.r2 > 0.8
    order = np.argsort(found.landmarks[:, 0])
    places, values = found.landmarks[order, 0], plan.values[order]
    exact = 0.95 ** np.maximum(50 - places, 0) / 0.05
    assert np.corrcoef(np.log(values[places < 48]), np.log(exact[places < 48]))[0, 1] > 0.97
    assert values[places > 53].min() > 0.8 * exact.max()


def towards(found: Any, plan: graph_reward.Plan, here: np.ndarray, best: int) -> np.ndarray:
    return graph_reward.subgoals(found, plan, graph_reward.on_bank(found, plan), here, best)


def test_a_potential_is_known_as_one_and_climbed() -> None:
    found = both_ways()
    before, after = labelled(found)
    plan = graph_reward.plan(found, before, after, after[:, 0] - before[:, 0], 0.99)
    assert plan.model == "potential"
    here = np.array([[20.0, 0.0], [40.0, 0.0]], np.float32)
    assert np.all(towards(found, plan, here, 3)[:, 0] > here[:, 0] + 0.5)
    down = graph_reward.plan(found, before, after, before[:, 0] - after[:, 0], 0.99)
    assert np.all(towards(found, down, here, 3)[:, 0] < here[:, 0] - 0.5)


def test_a_potential_that_is_known_is_climbed_where_steps_are_too_short_to_show_it() -> None:
    """Speed at one end looks like what is paid, and nothing like the way there."""
    found = both_ways()
    before, after = labelled(found)
    drawn = np.random.default_rng(0)
    at, to = (x + drawn.normal(0, 3, x.shape).astype(np.float32) * [1, 0] for x in (before, after))
    paid = np.where(before[:, 0] < 10, 1.0, 0.0) + drawn.normal(0, 0.1, len(before))
    here = np.array([[20.0, 0.0], [40.0, 0.0]], np.float32)
    fitted = graph_reward.plan(found, at, to, paid, 0.99)
    assert fitted.model != "potential"
    plan = graph_reward.plan(found, at, to, paid, 0.99, known=2.0 * after[:, 0])
    assert plan.model == "potential" and plan.r2 > 0.8
    ends = plan.potential[[np.argmin(found.landmarks[:, 0]), np.argmax(found.landmarks[:, 0])]]
    assert ends[1] - ends[0] == pytest.approx(2.0 * 59, rel=0.15)
    assert np.all(towards(found, plan, here, 3)[:, 0] > here[:, 0] + 0.5)


def test_staying_where_staying_pays() -> None:
    found = both_ways()
    before, after = labelled(found)
    plan = graph_reward.plan(found, before, after, (np.abs(after[:, 0] - 30) <= 4).astype(float), 0.95)
    assert abs(float(towards(found, plan, np.array([[30.0, 0.0]], np.float32), 3)[0, 0]) - 30) < 5


# ---- through a policy ------------------------------------------------------------------------------------------------


def test_training_leaves_a_graph_that_is_saved_with_the_policy(tiny: hilp.FoundationPolicy, tmp_path: Path) -> None:
    assert tiny.graph is not None and (tiny.graph.counts > 0).any()
    again = hilp.FoundationPolicy.load(tiny.save(tmp_path / "policy"))
    assert again.graph is not None
    for name, column in tiny.graph.columns().items():
        np.testing.assert_array_equal(column, again.graph.columns()[name])
    assert again.fingerprint == tiny.fingerprint


def test_the_graph_of_equal_data_is_equal(tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset) -> None:
    assert tiny.with_graph(tiny_data).fingerprint == tiny.fingerprint


def test_a_damaged_graph_is_refused(run_copy: Path) -> None:
    path = run_copy / "policy" / "graph.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(hilp.HilpError, match="graph"):
        hilp.FoundationPolicy.load(run_copy)


def test_a_reward_is_planned_on_a_graph_that_covers_the_data_and_expresses_it_as_well(
    tiny: hilp.FoundationPolicy, change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(policy: hilp.FoundationPolicy, rule: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return policy.reward(function=lambda s, a, s2: (s2[:, 0] > 5).astype(float), rule=rule)

    expressed, planned = (asked(tiny, rule).r2 for rule in ("skill", "graph"))
    assert expressed < planned
    assert isinstance(asked(tiny, "auto"), GraphRewardPrompt)
    coarse = change(tiny, graph=replace(tiny.graph, radius=0.6 * tiny.planner.trust))
    assert isinstance(asked(coarse, "auto"), SkillPrompt)
    monkeypatch.setattr(reward_prompts, "POOR_FIT", planned + 0.01)
    monkeypatch.setattr(reward_prompts, "least_squares", lambda x, r: (np.ones(x.shape[1]), planned + 0.04))
    assert isinstance(asked(tiny, "auto"), SkillPrompt), "the graph cannot express it, and a direction can"


def test_a_reward_that_landmarks_hardly_express_is_planned_along_phi(
    tiny: hilp.FoundationPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = np.random.default_rng(0).normal(size=tiny.encode(tiny.bank.observations[:1]).shape[1])

    def reward(s: np.ndarray, a: np.ndarray, s2: np.ndarray) -> np.ndarray:
        return (tiny.encode(s2) - tiny.encode(s)) @ way

    fitted = tiny.reward(function=reward, rule="graph").r2
    monkeypatch.setattr(reward_prompts, "POOR_FIT", 1.0)  # whatever landmarks express is too little
    made = tiny.reward(function=reward)
    assert isinstance(made, GraphRewardPrompt) and fitted < made.r2
    assert made.r2 == pytest.approx(1.0, abs=1e-3)
    landmarks = tiny.encode(tiny.bank.observations[tiny.planner.graph.landmarks])
    assert np.corrcoef(made.planned.potential, landmarks @ way)[0, 1] > 0.95


def test_an_intercept_is_advised_where_a_direction_is_fitted_and_not_where_the_graph_plans(
    tiny: hilp.FoundationPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reward_prompts, "OTHER_WAY", 2.0)  # always another way
    heard = {}
    for rule in ("skill", "auto"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = tiny.reward(function=lambda s, a, s2: (s2[:, 0] > 5).astype(float), rule=rule)
        heard[made.kind] = any("pass intercept=True" in str(warning.message) for warning in caught)
    assert heard == {"skill": True, "graph": False}


def test_graph_prompts_come_back_as_they_were(tiny: hilp.FoundationPolicy, tmp_path: Path) -> None:
    x = tiny.bank.observations[:7]
    for prompt in (
        tiny.goal(tiny.bank.observations[100], plan="graph"),
        tiny.reward(function=lambda s, a, s2: (s2[:, 0] > 5).astype(float), rule="graph"),
    ):
        prompt.save(tmp_path / "prompt")
        again = tiny.load_prompt(tmp_path / "prompt")
        np.testing.assert_array_equal(again(x), prompt(x))


def test_a_policy_says_what_it_knows_of_a_goal(tiny: hilp.FoundationPolicy) -> None:
    start, goal = tiny.bank.observations[0], tiny.bank.observations[1000]
    prompt = tiny.goal(goal, plan="graph")
    assert prompt.reachable(start) in ("yes", "unknown") and prompt.steps(start) > 0
    assert prompt.path(start).shape[1] == 2
    assert tiny.goal(goal, plan=0).steps(start) == prompt.steps(start)
    with pytest.raises(hilp.HilpError, match="one goal"):
        tiny.goal(tiny.bank.observations[:3], plan="graph").path_info(start)


def test_a_policy_of_an_older_version_plans_with_its_bank(tiny: hilp.FoundationPolicy, change: Any) -> None:
    old = change(tiny, graph=None)
    prompt = old.goal(tiny.bank.observations[1000], plan="graph")
    assert prompt(tiny.bank.observations[:5]).shape == (5, tiny.skill_dim)


def test_mistakes(tiny: hilp.FoundationPolicy) -> None:
    with pytest.raises(hilp.HilpError, match="one of auto, graph, midpoints"):
        tiny.goal(tiny.bank.observations[0], plan="dijkstra")
    with pytest.raises(hilp.HilpError, match="between 0 and 1"):
        tiny.reward(function=lambda s, a, s2: s2[:, 0], rule="graph", discount=1.0)
    with pytest.raises(hilp.HilpError, match="not 'grph'"):
        tiny.reward(function=lambda s, a, s2: s2[:, 0], rule="grph")


def test_discounted_and_back() -> None:
    steps = np.array([0.0, 1.0, 30.0])
    np.testing.assert_allclose(undiscounted(discounted(steps, DISCOUNT), DISCOUNT), steps, atol=1e-9)


# ---- known before acting, and what came ------------------------------------------------------------------------------


def row_of(**values: Any) -> Any:
    return {
        "plan": "graph",
        "episodes": 5,
        "outcomes": [1.0, 1.0, 1.0, 0.0, 0.0],
        "lengths": [12, 22, 0, 100, 100],
        "expected_steps": [10.0, 20.0, 0.0, 30.0, None],
        "reachable": ["yes", "yes", "yes", "unknown", "no"],
        **values,
    }


def test_foresight_against_what_came_by_hand() -> None:
    row = row_of()
    assert explain.certificates(row) == {"yes": (3, 3), "unknown": (1, 0), "no": (1, 0)}
    expected, realised = explain.calibration(row)
    assert expected.tolist() == [10.0, 20.0] and realised.tolist() == [12.0, 22.0]  # who stood there took no step
    told = " ".join(explain.explain_forecast(row))
    assert "shows a way to 3 of 5 goals, of which 3 were reached" in told and "1.15 of those expected" in told


def test_the_row_that_is_told_about() -> None:
    rows = [row_of(plan=0, expected_steps=[]), row_of(plan="auto"), row_of()]
    del rows[0]["expected_steps"]
    assert explain.row_with_forecast(rows) is rows[2] and explain.row_with_forecast(rows[:2]) is rows[1]
    assert explain.row_with_forecast(rows[:1]) is None


def test_rows_and_the_page_say_what_was_known_beforehand(tiny: hilp.FoundationPolicy) -> None:
    rows = hilp.evaluate(tiny, "maze-medium", plan=(0, "midpoints", "graph", "auto"), episodes=6)
    assert [("expected_steps" in row, "radius" in row) for row in rows] == [
        (False, False), (False, True), (True, False), (True, False)]  # fmt: skip
    assert len(rows[2]["expected_steps"]) == len(rows[2]["reachable"]) == 6
    text = page.build(tiny, rows, [], None)
    assert "Known before acting" in text and "Before the first step" in text
    assert "Known before acting" not in page.build(tiny, rows[:2], [], None)
