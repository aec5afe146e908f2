"""Evaluation: what is counted, by scripted policies of known outcome; what a row says."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hilp
from hilp.errors import HilpError
from hilp.evaluation import evaluate, rollouts, setup
from hilp.evaluation import rows as files
from hilp.policy.artifact import Provenance
from hilp.policy.preparation import Preparation
from hilp.prompts.bank import Bank
from hilp.prompts.specs import Goal, Reward, Skill, Sum, Then
from hilp.report import page
from hilp.spec import Spec
from hilp.tasks.maze import MAZES, STEP, SUCCESS_RADIUS, Maze

OPEN = """
########
#......#
#......#
#......#
########
"""


def hall() -> Maze:
    return Maze("hall", OPEN, max_steps=40)


def medium() -> Maze:
    """The task of the tiny policy, with episodes that end soon."""
    return Maze("maze-medium", MAZES["maze-medium"][0], max_steps=15)


class Walker:
    """A scripted policy: where `walks` says so it goes straight to its goal, elsewhere it never moves."""

    method, fingerprint = "scripted", "0" * 32
    settings, spec, skill_dim, observation_parts = {"dim": 32}, Spec(2, 2), 2, ()
    bank = Bank(*np.zeros((3, 0, 2), np.float32))
    preparation = Preparation(np.zeros(2), np.ones(2), np.zeros(2), np.ones(2))

    def __init__(self, walks: Any = True) -> None:
        self.walks, self.provenance = walks, Provenance(seed=3, steps=70, data="none")
        self.reward_right: Any = None

    def has_rule(self, rule: str) -> bool:
        return rule == "goal_direction"

    def goal(self, goals: np.ndarray, plan: int | str, **options: Any) -> Any:
        def prompt(observations: np.ndarray, active: np.ndarray) -> np.ndarray:
            return np.where(np.reshape(self.walks, (-1, 1)), goals - observations, 0.0)

        return prompt

    def reward(self, data: Any, function: Any, **options: Any) -> Any:
        s = np.random.default_rng(0).uniform(1, 4, (100, 2))
        self.reward_right = function(s, np.zeros((100, 2)), s + np.array([0.25, 0.0]))
        z = [1.0, 0.0] if self.walks else [0.0, 0.0]
        return SimpleNamespace(kind="skill", r2=0.9, z=np.array(z))

    def act(self, observations: np.ndarray, z: Any, active: Any = None) -> np.ndarray:
        z = z(observations, active) if callable(z) else getattr(z, "z", z)
        return np.array(np.broadcast_to(np.clip(z / STEP, -1, 1), observations.shape))


def steps_needed(start: np.ndarray, goal: np.ndarray) -> int:
    """Steps of a straight walk, axis by axis, through an empty hall."""
    count, xy = 0, start.astype(float)
    while np.linalg.norm(xy - goal) > SUCCESS_RADIUS:
        xy, count = xy + np.clip(goal - xy, -STEP, STEP), count + 1
    return count


# ---- what is counted -------------------------------------------------------------------------------------------------


def test_walking_straight_reaches_every_goal_of_an_open_hall() -> None:
    ((row, kept),) = evaluate.evaluate_with_rollouts(Walker(), hall(), plan=0, episodes=60)  # type: ignore[arg-type]
    assert row["score"] == 1.0 and row["outcomes"] == [1.0] * 60 and row["episodes"] == 60
    wanted = [steps_needed(s, g) for s, g in zip(kept.observations[0], kept.goals, strict=True)]
    assert row["lengths"] == wanted
    assert len(set(wanted)) > 3
    assert row["mean_length_of_successes"] == pytest.approx(np.mean(wanted))
    assert row["interval"][1] == 1.0 and 0.9 < row["interval"][0] < 1.0
    for i, length in enumerate(wanted):  # there it is at the goal, and one step before it is not
        away = np.linalg.norm(kept.observations[:, i] - kept.goals[i], axis=1)
        assert away[length] <= SUCCESS_RADIUS < away[length - 1]
        assert (kept.observations[length:, i] == kept.observations[length, i]).all(), "an episode ends at its goal"


def test_standing_still_reaches_nothing() -> None:
    (row,) = hilp.evaluate(Walker(False), hall(), plan=0, episodes=30)  # type: ignore[arg-type]
    assert row["score"] == 0.0 and row["outcomes"] == [0.0] * 30 and row["lengths"] == [40] * 30
    assert row["mean_length_of_successes"] is None
    assert row["interval"][0] == 0.0


def test_each_episode_is_counted_for_itself() -> None:
    walks = np.arange(30) % 3 == 0
    (row,) = hilp.evaluate(Walker(walks), hall(), plan=3, episodes=30)  # type: ignore[arg-type]
    assert row["outcomes"] == walks.astype(float).tolist()
    assert row["score"] == pytest.approx(1 / 3)
    lengths = np.array(row["lengths"])
    assert (lengths[~walks] == 40).all() and (lengths[walks] < 40).all()
    assert row["mean_length_of_successes"] == pytest.approx(lengths[walks].mean())


def test_a_goal_reached_with_the_last_step_counts() -> None:
    corridor = Maze("corridor", "#########\n#.......#\n#########", max_steps=40)
    start, goal = np.array([1.1, 1.5]), np.array([1.1 + SUCCESS_RADIUS + 3 * STEP - 0.01, 1.5])
    for limit, reached in ((3, True), (2, False)):
        tight = Maze("tight", corridor.map_text, max_steps=limit)
        tight.episodes = lambda rng, n, t=tight: Maze.episodes(t, rng, n, start=start, goal=goal)  # type: ignore[method-assign]
        (row,) = hilp.evaluate(Walker(), tight, plan=0, episodes=2)  # type: ignore[arg-type]
        assert row["outcomes"] == [float(reached)] * 2 and row["lengths"] == [limit] * 2


def test_a_reward_row_is_the_share_of_the_possible_gain() -> None:
    walker = Walker()
    ((row, kept),) = evaluate.evaluate_with_rollouts(walker, hall(), plan=(), rewards="right", episodes=20)  # type: ignore[arg-type]
    np.testing.assert_allclose(walker.reward_right, 0.25, atol=1e-6)  # f(s') - f(s) of f = x
    assert row["score"] == pytest.approx(1, abs=1e-5), "always to the right ends at the right wall"
    start = kept.observations[0]
    np.testing.assert_allclose(row["possible"], 6.9 - start[:, 0], atol=1e-5)
    np.testing.assert_allclose(row["outcomes"], row["possible"], atol=1e-5)
    assert row["r2"] == 0.9 and row["steps"] == 300

    still, left = hilp.evaluate(Walker(False), hall(), plan=(), rewards=["right", "left"], episodes=20)  # type: ignore[arg-type]
    assert still["score"] == left["score"] == 0.0
    (wrong_way,) = hilp.evaluate(Walker(), hall(), plan=(), rewards=["left"], episodes=20)  # type: ignore[arg-type]
    assert wrong_way["score"] < 0


def test_a_policy_without_prompts_is_scored_under_the_rewards_that_were_asked_for() -> None:
    flat: Any = Walker()
    right = np.array([1.0, 0.0])
    flat.skill_dim = 0
    flat.skill = lambda: type("Right", (), {"kind": "none", "z": right, "__call__": lambda *_: right})()
    rows = hilp.evaluate(flat, hall(), rewards=["right", "up"], episodes=2)
    assert [row["reward"] for row in rows] == ["right", "up"]


def test_one_episode_under_a_prompt() -> None:
    world, walker = hall(), Walker()
    start, goal = np.array([1.5, 1.5]), np.array([5.5, 1.5])
    toward = SimpleNamespace(z=goal - start, reset=lambda: None)
    walked = rollouts.run_episode(walker, world, toward, start, goal, 40, 0)  # type: ignore[arg-type]
    assert walked.share == 1 and len(walked.actions) == 9 and walked.path[0].tolist() == [1.5, 1.5]
    walked = rollouts.run_episode(walker, world, toward, start, goal, 8, 0)  # type: ignore[arg-type]
    assert walked.share == 0 and len(walked.actions) == 8
    walked = rollouts.run_episode(walker, world, toward, start, None, 30, 0)  # type: ignore[arg-type]
    assert walked.share == 1 and len(walked.path) - 1 == 30


# ---- what a row says -------------------------------------------------------------------------------------------------


def test_rows_say_what_made_them(tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset) -> None:
    rows = hilp.evaluate(tiny, "maze-medium", plan=(0, 2, "auto"), rewards=["up"], episodes=9, seed=5, command="mine")
    assert [(row["prompt"], row.get("plan"), row.get("reward")) for row in rows] == [
        ("goal", 0, None),
        ("goal", 2, None),
        ("goal", "auto", None),
        ("reward", None, "up"),
    ]
    for row in rows:
        assert row["command"] == "mine" and row["task"] == "maze-medium" and row["method"] == "hilp"
        assert row["policy"] == tiny.fingerprint and row["config"]["dim"] == 8 and row["config"]["hidden"] == [32, 32]
        assert row["train_seed"] == 0 and row["train_steps"] == 300 and row["evaluation_seed"] == 5
        assert row["data"] == tiny_data.name and row["data_fingerprint"] == tiny_data.fingerprint
        assert row["checkpoint"] == "last" and {"hilp", "jax", "numpy", "python"} <= set(row["versions"])
        assert row["episodes"] == len(row["outcomes"]) == 9
    for row in rows[:3]:
        assert row["metric"] == "success" and row["score"] == pytest.approx(np.mean(row["outcomes"]))
        assert set(row["outcomes"]) <= {0.0, 1.0}
        assert row["interval"][0] <= row["score"] <= row["interval"][1]
    assert rows[3]["score"] == pytest.approx(sum(rows[3]["outcomes"]) / sum(rows[3]["possible"]))


def test_all_plans_face_the_same_pairs(tiny: hilp.FoundationPolicy) -> None:
    def pairs(seed: int) -> dict[str, np.ndarray]:
        found = evaluate.evaluate_with_rollouts(tiny, medium(), plan=(0, 1, "auto"), episodes=9, seed=seed)
        return {f"plan {row['plan']}": np.concatenate([kept.observations[0], kept.goals]) for row, kept in found}

    one = pairs(4)
    assert list(one) == ["plan 0", "plan 1", "plan auto"]
    for same in (*one.values(), *pairs(4).values()):
        np.testing.assert_array_equal(same, one["plan 0"])
    assert not np.array_equal(pairs(5)["plan 0"], one["plan 0"])


def test_what_is_adapted_is_measured_in_other_episodes(
    tiny: hilp.FoundationPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[np.ndarray] = []
    world = hilp.make_task("maze-medium")
    episodes = type(world).episodes

    def kept(self: Any, *args: Any, **given: Any) -> Any:
        running = episodes(self, *args, **given)
        begun.append(running.observations.copy())
        return running

    monkeypatch.setattr(type(world), "episodes", kept)
    prompts = [Reward(name, rule="skill") for name in ("region", "right")]
    plain = hilp.evaluate(tiny, world, prompts, episodes=4, seed=3)
    counted = begun[0]
    begun.clear()
    moved = hilp.evaluate(tiny, world, prompts, adapt=3, episodes=4, seed=3)
    for before, row, starts in zip(plain, moved, (begun[:4], begun[4:]), strict=True):
        np.testing.assert_array_equal(starts[-1], counted)
        assert all(len(start) == 1 and (start == starts[0]).all() for start in starts[:3]), "a search begins alike"
        assert not (counted == starts[0]).all(axis=1).any()
        assert row["adapted"] == len(row["search"]) == 3 and "adapted" not in before
        assert (row["rule"], row["r2"]) == (before["rule"], before["r2"]), "of the prompt that was moved"


def test_the_same_seed_gives_the_same_row(tiny: hilp.FoundationPolicy) -> None:
    one, two = (hilp.evaluate(tiny, medium(), plan=1, rewards=["up"], episodes=9, command="mine") for _ in range(2))
    assert one == two


def test_rows_are_json_and_survive_a_file(tiny: hilp.FoundationPolicy, tmp_path: Path) -> None:
    rows = hilp.evaluate(tiny, medium(), plan=[1, "auto"], rewards=["right"], episodes=9)
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    path = tmp_path / "deep" / "rows.jsonl"
    files.append_rows(path, rows[:1])
    files.append_rows(path, rows[1:])
    assert len(path.read_text().splitlines()) == 3
    assert files.read_rows(path) == rows


# ---- mistakes --------------------------------------------------------------------------------------------------------


def test_rows_of_numpys_numbers_survive_a_file(tiny: hilp.FoundationPolicy, tmp_path: Path) -> None:
    rows = hilp.evaluate(tiny, "maze-medium", plan=0, episodes=np.int64(2), seed=np.int64(3))
    assert rows == hilp.evaluate(tiny, "maze-medium", plan=0, episodes=2, seed=3)
    files.append_rows(tmp_path / "rows.jsonl", rows)
    assert files.read_rows(tmp_path / "rows.jsonl") == rows


def test_a_policy_of_other_data(tiny: hilp.FoundationPolicy, change: Any) -> None:
    for spec, says in ((Spec(3, 2), "3 observation and 2 action"), (Spec(2, 5), "2 observation and 5 action")):
        with pytest.raises(hilp.HilpError, match=f"{says}.*maze-medium has 2 and 2"):
            hilp.evaluate(change(tiny, spec=spec), "maze-medium", episodes=2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"episodes": 0}, "at least 1"),
        *(({"episodes": odd}, "episodes must be a whole number") for odd in (float("nan"), 2.5, True, "3", None)),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"seed": 10**5000}, "seed must be at most"),
        ({"plan": 99}, "recursions"),
        ({"plan": "deep"}, "recursions"),
        ({"rewards": ["rigth"]}, "did you mean 'right'"),
        ({"rewards": "rigth"}, "no reward 'rigth'"),
        ({"task": "maze-lrge"}, "did you mean 'maze-large'"),
    ],
)
def test_things_that_cannot_be_evaluated(tiny: hilp.FoundationPolicy, options: dict[str, Any], says: str) -> None:
    with pytest.raises(hilp.HilpError, match=says):
        hilp.evaluate(tiny, **{"task": "maze-medium", "episodes": 2, "plan": 0, **options})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"prompts": []}, "nothing to evaluate"),
        ({"plan": (), "rewards": ()}, "nothing to evaluate"),
        ({"prompts": [Goal()], "rewards": ["up"]}, "rewards score prompts of other kinds.*add Reward"),
        ({"prompts": [Reward("up")], "rewards": "right"}, "rewards score prompts of other kinds"),
        ({"prompts": [Sum(((1.0, Goal("x=1.5")), (1.0, Goal("row:2"))))], "rewards": "up"}, "also needs y"),
        ({"prompts": [Then(Reward("rigth"), Goal("row:1"), 3)], "rewards": "up"}, "did you mean 'right'"),
    ],
)
def test_prompts_that_cannot_be_evaluated(tiny: hilp.FoundationPolicy, options: dict[str, Any], says: str) -> None:
    with pytest.raises(hilp.HilpError, match=says):
        hilp.evaluate(tiny, "maze-medium", episodes=2, **options)


def test_prompts_in_prompts_may_name_what_the_task_knows(tiny: hilp.FoundationPolicy) -> None:
    """Goals by columns and rewards by name, as in prompts of their own; the row has them as they were given."""
    tour = Then(Goal("x=1.5,y=2.5", goal_dims=("x",)), Sum(((1.0, Reward("right")), (0.5, Goal("row:3")))), "x > 4")
    (row,) = hilp.evaluate(tiny, medium(), [tour], rewards="up", episodes=3)
    assert row["spec"] == tour.to_json() and row["rule"] == "then"
    assert files.check(row, "row")


def test_only_the_fit_of_a_rewards_own_row_is_silent(
    tiny: hilp.FoundationPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row has R^2; no other prompt's warnings are in a row."""
    made = tiny.skill(seed=0)

    def warned(*args: Any, **options: Any) -> Any:
        warnings.warn("a bad fit", stacklevel=1)
        return made

    monkeypatch.setattr(type(tiny), "reward", warned)
    monkeypatch.setattr(type(tiny), "skill", warned)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hilp.evaluate(tiny, medium(), [Reward("up")], episodes=2)
    with pytest.warns(UserWarning, match="a bad fit"):
        hilp.evaluate(tiny, medium(), [Skill()], rewards="up", episodes=2)


def test_random_actions_are_sent_to_the_same_goal(run: Any, tiny_run: Path, tmp_path: Path) -> None:
    found = {}
    for goal in ([], ["--goal", "x=1.5,y=1.5"], ["--goal", "row:3"]):
        words = ["--plan", 0, "--episodes", 20, "--random", "--json", "--rows", tmp_path / "rows.jsonl"]
        code, out, err = run("evaluate", tiny_run, *goal, *words)
        assert code == 0, err
        found[goal[-1] if goal else None] = json.loads(out)["random"]
    world, policy = hilp.make_task("maze-medium"), hilp.FoundationPolicy.load(tiny_run)
    row = {"prompt": "goal", "metric": "success", "episodes": 20, "evaluation_seed": 0}
    for name, random in found.items():
        goal = None if name is None else setup.find_goal(name, policy, world)
        assert {"random": random} == rollouts.random_score(world, row, goal)
    assert len({*found.values()}) > 1, "some goals are easier than others"


def test_a_wrong_reward_is_told_before_the_first_rollout() -> None:
    walker = Walker()
    walker.goal = None  # type: ignore[method-assign, assignment]
    with pytest.raises(hilp.HilpError, match="no reward"):
        hilp.evaluate(walker, hall(), plan=0, rewards=["rigth"])  # type: ignore[arg-type]


# ---- aggregates ------------------------------------------------------------------------------------------------------


def scored(score: float, **about: Any) -> dict[str, Any]:
    return {"task": "t", "method": "m", "prompt": "goal", "plan": 0, "score": score, **about}


def test_aggregates_over_seeds_by_hand() -> None:
    scores = [0.1, 0.5, 0.9, 0.3, 0.7]
    rows = [scored(s, train_seed=i) for i, s in enumerate(scores)]
    rows += [scored(0.25, plan="auto"), scored(0.6, task="u"), scored(0.5, prompt="reward", plan=None, reward="up")]
    table = files.aggregate(rows)
    assert [(line["task"], line.get("plan"), line.get("reward"), line["runs"]) for line in table] == [
        ("t", 0, None, 5),
        ("t", "auto", None, 1),
        ("u", 0, None, 1),
        ("t", None, "up", 1),
    ]
    many, one = table[:2]
    assert many["mean"] == pytest.approx(0.5)
    assert many["std"] == pytest.approx(np.sqrt(2 * (0.4**2 + 0.2**2) / 5))  # deviations 0.4, 0.2, 0, 0.2, 0.4
    assert many["iqm"] == pytest.approx(0.5)  # without 0.1 and 0.9
    assert 0.1 <= many["interval"][0] < 0.5 < many["interval"][1] <= 0.9
    assert (one["mean"], one["std"], one["iqm"], one["interval"]) == (0.25, None, 0.25, None), "no certainty"
    assert files.aggregate(rows) == table, "the bootstrap is seeded"


def test_rules_of_one_reward_are_not_averaged_together() -> None:
    about = {"prompt": "reward", "plan": None, "reward": "up", "metric": "return"}
    rows = [scored(s, rule=rule, **about) for rule, s in (("skill", 10.0), ("graph", 80.0), ("skill", 20.0))]
    rows.append(scored(40.0, rule="goal", **about))
    assert [(line["rule"], line["mean"], line["runs"]) for line in files.aggregate(rows)] == [
        ("skill", 15.0, 2),
        ("graph", 80.0, 1),
        ("goal", 40.0, 1),
    ]
    _, lines = page.aggregate_table(rows)
    assert [line[:2] for line in lines] == [
        ["reward, up", "15.0"],
        ["reward, up (graph)", "80.0"],
        ["reward, up (goal)", "40.0"],
    ]


def test_aggregates_are_stratified_by_task() -> None:
    rows = [scored(0.0, task="hard", train_seed=i) for i in range(4)] + [scored(1.0, task="easy") for _ in range(4)]
    (line,) = files.aggregate(rows, by=("method",))
    assert line.pop("interval_over") == "runs"
    assert line == {"method": "m", "runs": 8, "mean": 0.5, "std": 0.5, "iqm": 0.5, "interval": [0.5, 0.5]}


def test_one_run_has_the_interval_of_its_episodes() -> None:
    row: Any = {"task": "a", "method": "m", "policy": "p", "prompt": "goal", "plan": 0, "metric": "success",
                "score": 0.5, "episodes": 4, "outcomes": [1.0, 0.0, 1.0, 0.0], "interval": [0.15, 0.85]}  # fmt: skip
    (line,) = files.aggregate([row])
    assert (line["std"], line["interval"], line["interval_over"]) == (None, [0.15, 0.85], "episodes")
    _, ((_, _, std, _, shown, runs),) = page.aggregate_table([row])
    assert (std, shown, runs) == (None, "15.0% to 85.0% (over episodes)", 1)
    gain: Any = {**row, "metric": files.GAIN, "prompt": "reward", "reward": "up", "outcomes": [1.0, 0.0, 3.0],
                 "possible": [2.0, 2.0, 4.0]}  # fmt: skip
    del gain["interval"], gain["plan"]
    low, high = files.interval_of(gain) or (0, 0)
    assert (low, high) == (0.0, 0.75), "the worst and the best three of three"
    assert files.interval_of({**gain, "outcomes": [1.0, 1.0], "possible": [2.0, 2.0]}) is None, "no two differ"
    assert files.interval_of({**gain, "outcomes": [1.0], "possible": []}) is None
    two_tasks = [row, {**row, "task": "b"}]
    (line,) = files.aggregate(two_tasks, by=("method",))
    assert line["interval"][0] < 0.5 < line["interval"][1], "one run a task: episodes are drawn"


# ---- while training -------------------------------------------------------------------------------------------------


def test_the_best_evaluation_is_kept_apart_from_the_last_score(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    assert files.best_evaluation(metrics) is None
    rows = [{"step": 10}, {"step": 20, "success": 0.4}, {"step": 30, "success": 0.9}, {"step": 40, "success": 0.7}]
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert files.best_evaluation(metrics) == {"step": 30, "success": 0.9}
    rows.append({"step": 60, "success": 0.97, "evaluation_step": 55})
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    best = files.best_evaluation(metrics)
    assert best is not None and best["step"] == 55


def test_an_evaluation_in_training_plans_where_there_are_states_for_it(
    tiny: hilp.FoundationPolicy, change: Any
) -> None:
    world = hilp.make_task("maze-medium")
    assert set(evaluate.evaluate_in_training(tiny, world, seed=0, episodes=2)) == {"success", "success_plan"}
    bare = change(tiny, bank=tiny.bank.subsample(0, 0))
    assert set(evaluate.evaluate_in_training(bare, world, seed=0, episodes=2)) == {"success"}


def test_a_task_takes_the_form_it_has_on_the_policys_data(
    tiny: hilp.FoundationPolicy, tiny_data: hilp.Dataset, change: Any
) -> None:
    """Goals of AntMaze look like the first observation of the data, but for x and y."""
    assert tiny.provenance.first_observation == tiny_data.observations[0].tolist()
    first = np.arange(29.0)
    posed = change(tiny, provenance=Provenance(first_observation=first.tolist()))
    assert setup.task_of(posed, "antmaze-large").proprioception.tolist() == first[2:].tolist()
    assert setup.task_of(posed, "maze-large").name == "maze-large", "of another task"


@pytest.mark.parametrize("asked", [{"prompts": []}, {"plan": []}, {"prompts": [hilp.Skill(seed=0)], "rewards": []}])
def test_nothing_to_evaluate_is_said(tiny: hilp.FoundationPolicy, asked: dict[str, Any]) -> None:
    with pytest.raises(HilpError, match="nothing to evaluate: give at least one prompt, plan or reward"):
        hilp.evaluate(tiny, "maze-medium", episodes=1, **asked)


def test_a_plan_may_be_a_number_of_numpys(tiny: hilp.FoundationPolicy) -> None:
    (row,) = hilp.evaluate(tiny, "maze-medium", plan=np.int64(0), episodes=np.int64(1), seed=np.int64(3))
    assert json.loads(json.dumps(row))["plan"] == 0
