"""Rollouts: episodes of a policy under a prompt in a task, run side by side and counted."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp import tasks, trees
from hilp.data.rewards import Extras, RewardFunction, apply_reward
from hilp.errors import HilpError, some
from hilp.evaluation import setup, stats
from hilp.evaluation.goals import Goal
from hilp.evaluation.rows import GAIN, finite
from hilp.policy import planning, prompts, reward_prompts
from hilp.policy.policy import FoundationPolicy
from hilp.tasks import rendering

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset

SHARE = "share of the subtasks"  # the metric of goals that are reached part by part
REWARD_STEPS = 300  # length of an episode under a reward prompt
Outcome = dict[str, Any]  # the part of a row that says what came of it


@dataclass(frozen=True)
class Rollout:
    """Episodes that ran side by side."""

    observations: np.ndarray  # [steps + 1, episodes, obs]: an episode that ended stays where it is
    lengths: np.ndarray  # [episodes]: steps of each
    goals: np.ndarray  # [episodes, obs]: NaN where a prompt has none
    reached: np.ndarray  # bool [episodes]: the goal, or at least half of what a reward had to give
    physics: np.ndarray | None = None  # [steps, episodes, p]: states of the simulator, to film them

    def episode(self, number: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Observations [length + 1, obs] and physics [length, p] of one of them."""
        length = int(self.lengths[number])
        physics = None if self.physics is None else self.physics[:length, number]
        return self.observations[: length + 1, number], physics

    def first(self, count: int) -> Rollout:
        """The first few of them, no longer than they lasted."""
        steps = int(self.lengths[:count].max(initial=0))
        return Rollout(
            self.observations[: steps + 1, :count],
            self.lengths[:count],
            self.goals[:count],
            self.reached[:count],
            None if self.physics is None else self.physics[:steps, :count],
        )


def rollout_goals(
    policy: FoundationPolicy,
    world: tasks.Task,
    plan: int | str,
    episodes: int,
    seed: int,
    goal: Goal | None = None,
    goal_dims: Sequence[int] | None = None,
    smooth: float | None = None,
) -> tuple[Outcome, Rollout]:
    """Goal-reaching episodes side by side, to the goals of the task or to one; an episode ends when it is reached.

    A method without a goal rule gets the skill of the reward of being at the goal. goal_dims, smooth: see
    `FoundationPolicy.goal`; what counts as reached is the task's affair.
    """
    running = world.episodes(np.random.default_rng(seed), episodes, **({} if goal is None else {"goal": goal.asked}))
    if plan == 0 and not policy.has_rule("goal_direction") and not policy.has_rule("goal_skill"):
        if goal_dims is not None or smooth is not None:
            raise HilpError(
                f"{policy.method} takes a goal as the reward of being there: leave out goal_dims and smooth"
            )
        if not rendering.can_infer_states(world):
            raise HilpError(
                f"{policy.method} takes a goal as the reward of being there, and {world.name} cannot tell from a "
                "picture whether it is: take a method with goals, hilp or gc-bc, or a reward"
            )
        prompt: Any = reward_prompts.goals_by_reward(policy, world.near, running.goals)
    else:
        prompt = policy.goal(rendering.policy_goals(running), plan=plan, goal_dims=goal_dims, smooth=smooth)
    on_graph = getattr(prompt, "stuck", None) is not None
    said = forecast(policy, prompt, rendering.policy_observations(running)) if on_graph else {}
    row, kept = _reach(policy, world, running, prompt, seed)
    radius = {"radius": prompt.near_enough} if plan in planning.NAMED and not on_graph else {}
    return {**row, **radius, **said}, kept


def forecast(policy: FoundationPolicy, prompt: prompts.GoalPrompt, starts: trees.Tree) -> dict[str, Any]:
    """The part of a row that says what a prompt on the graph expects of each episode from its start on."""
    assert prompt.to_goal is not None
    here = policy.encode(starts)
    goals = np.broadcast_to(prompt.latent, here.shape)
    to_goals = np.broadcast_to(prompt.to_goal, (len(here), prompt.to_goal.shape[-1]))
    found = [policy.planner.path_info(*one) for one in zip(here, goals, to_goals, strict=True)]
    return {
        "expected_steps": [float(one.steps) if np.isfinite(one.steps) else None for one in found],
        "reachable": [one.reachable for one in found],
    }


def _reach(
    policy: FoundationPolicy, world: tasks.Task, running: tasks.Episodes, prompt: Any, seed: int
) -> tuple[Outcome, Rollout]:
    """Episodes that end when their goal is reached, or at the task's limit."""
    begin(prompt)
    goals = running.goals.copy()
    path, states = [running.observations.copy()], []
    reached = running.reached()
    lengths = np.where(reached, 0, world.max_steps)
    for step in range(world.max_steps):
        if (reached | over(running)).all():
            break
        seen = rendering.policy_observations(running)
        actions = policy.act(seen, prompt(seen, active=~reached))
        actions[reached] = 0.0
        running.step(actions)
        now = running.reached() & ~reached
        lengths[now] = step + 1
        reached |= now
        path.append(running.observations.copy())
        states += [running.extra("physics")] if "physics" in world.extra_columns else []
    scores = _goal_scores(running, reached, seed)
    row = {
        **scores,
        "episodes": len(reached),
        "lengths": lengths.tolist(),
        "mean_length_of_successes": float(lengths[reached].mean()) if reached.any() else None,
        **_by_goal(getattr(running, "names", ()), np.array(scores["outcomes"])),
    }
    return row, Rollout(np.stack(path), lengths, goals, reached, np.stack(states) if states else None)


def begin(prompt: Any) -> None:
    """Tell a prompt that new episodes begin; one of the user's own need not care."""
    if hasattr(prompt, "reset"):
        prompt.reset()


def over(running: tasks.Episodes) -> np.ndarray:
    """bool [n]: the episodes that their task has ended; most tasks never do."""
    return np.asarray(getattr(running, "over", np.zeros(len(running.observations), bool)))


def _goal_scores(running: tasks.Episodes, reached: np.ndarray, seed: int) -> Outcome:
    """Goals reached; where goals have parts, each counts its share."""
    if isinstance(running, tasks.PartialSuccess):
        shares = running.success_fractions()
        _, low, high = stats.stratified_bootstrap([shares], statistic="mean", seed=seed)
        metric, outcomes = SHARE, shares
    else:
        low, high = stats.wilson(int(reached.sum()), len(reached))
        metric, outcomes = "success", reached.astype(float)
    return {
        "metric": metric,
        "score": float(outcomes.mean()),
        "interval": [low, high],
        "outcomes": outcomes.tolist(),
    }


def _by_goal(names: Sequence[str], outcomes: np.ndarray) -> Outcome:
    """The score of each goal with a name, where episodes have one."""
    if not names:
        return {}
    each = np.array(names)
    return {"by_goal": {name: float(outcomes[each == name].mean()) for name in dict.fromkeys(names)}}


def rollout_target(
    policy: FoundationPolicy,
    world: Any,  # a tasks.WithTarget
    episodes: int,
    seed: int,
    rule: str = "skill",
    intercept: bool = False,
    data: Dataset | None = None,
    prompt: Any = None,
) -> tuple[Outcome, Rollout]:
    """Episodes under the reward of being at the task's target: how many get there."""
    prompt = prompt or reward_prompt(policy, data, world.at_target, rule, intercept)
    running = world.target_episodes(np.random.default_rng(seed), episodes)
    outcome, kept = _reach(policy, world, running, prompt, seed)
    return {**outcome, "rule": rule_of(policy, prompt), "r2": finite(getattr(prompt, "r2", None))}, kept


def rule_of(policy: FoundationPolicy, prompt: Any) -> str:
    """How a reward became what the policy acts on, for a row."""
    return str(prompt.kind) if policy.skill_dim else "none"


def reward_prompt(
    policy: FoundationPolicy, data: Dataset | None, reward: RewardFunction, rule: str, intercept: bool
) -> prompts.Prompt:
    """The policy's prompt for a reward, without a warning about a bad fit: rows carry R^2."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return policy.reward(data, reward, rule=rule, intercept=intercept)


def rollout_reward(
    policy: FoundationPolicy,
    world: tasks.Task,
    name: str,
    episodes: int,
    seed: int,
    rule: str = "skill",
    intercept: bool = False,
    data: Dataset | None = None,
    steps: int = REWARD_STEPS,
    prompt: Any = None,
) -> tuple[Outcome, Rollout]:
    """Episodes under the reward f(s') - f(s) of a potential f of the task: the share of the possible gain realised."""
    f = world.potentials[name]
    prompt = prompt or reward_prompt(policy, data, setup.reward_function(world, name), rule, intercept)
    begin(prompt)
    running = world.episodes(np.random.default_rng(seed), episodes)
    path = [running.observations.copy()]
    for _ in range(steps):
        running.step(policy.act(rendering.policy_observations(running), prompt))
        path.append(running.observations.copy())
    start = f(path[0])
    possible = world.potential_max(name) - start
    gain = f(path[-1]) - start
    row = {
        "metric": GAIN,
        "score": float(gain.sum() / possible.sum()),
        "rule": rule_of(policy, prompt),
        "r2": finite(getattr(prompt, "r2", None)),
        "episodes": episodes,
        "outcomes": gain.tolist(),
        "possible": possible.tolist(),
        "steps": steps,
    }
    lengths = np.full(episodes, steps)
    no_goals = np.full_like(path[0], np.nan)
    reached = gain >= 0.5 * possible
    return row, Rollout(np.stack(path), lengths, no_goals, reached)


def rollout_return(
    policy: FoundationPolicy,
    world: tasks.Task,
    name: str,
    episodes: int,
    seed: int,
    rule: str = "skill",
    intercept: bool = False,
    data: Dataset | None = None,
    prompt: Any = None,
) -> tuple[Outcome, Rollout]:
    """Episodes under a reward of being somewhere: the return, and beside it what a random and the best policy earn."""
    prompt = prompt or reward_prompt(policy, data, world.rewards[name], rule, intercept)
    returns, path, physics = run_returns(policy, world, name, prompt, episodes, seed)
    best = world.best_return(name, path[0], world.max_steps)
    _, low, high = stats.stratified_bootstrap([returns], statistic="mean", seed=seed)
    row = {
        "metric": "return",
        "score": float(returns.mean()),
        "interval": [low, high],
        "rule": rule_of(policy, prompt),
        "intercept": intercept,
        "r2": finite(getattr(prompt, "r2", None)),
        "best_possible": None if best is None else float(best.mean()),
        "score_scale": float(world.score_scale),
        "episodes": episodes,
        "outcomes": returns.tolist(),
        "steps": world.max_steps,
    }
    lengths = np.full(episodes, world.max_steps)
    no_goals = np.full_like(path[0], np.nan)
    reached = np.zeros(episodes, bool) if best is None else returns >= 0.5 * best
    return row, Rollout(path, lengths, no_goals, reached, physics)


def episode_return(
    policy: FoundationPolicy, task: str | tasks.Task, reward: str | RewardFunction | None = None, seed: int = 0
) -> Callable[[Any], float]:
    """A function of a prompt: what an episode in the task earns under it, each time from the same start.

    reward: of the task, by name, or a function of (s, a, s'); none is needed where the task has one only.
    """
    world = setup.task_for_policy(policy, setup.task_of(policy, task) if isinstance(task, str) else task)
    setup.require_fit("this policy", policy.spec, world)
    if reward is None:
        if len(world.rewards) != 1:
            known = some(setup.reward_names(world))
            raise HilpError(f"task {world.name} has more than one reward: say which one counts ({known})")
        reward = next(iter(world.rewards))
    if isinstance(reward, str):
        setup.require_reward(world, reward)
    return lambda prompt: float(run_returns(policy, world, reward, prompt, 1, seed)[0][0])


# ---- one episode ---


@dataclass(frozen=True)
class Episode:
    """One episode of t steps."""

    path: np.ndarray  # [t + 1, obs]: the task's observations
    actions: np.ndarray  # [t, act]
    beside: dict[str, np.ndarray]  # columns beside the observations after each step [t, ...]
    share: float  # of its goal that was reached; 1: all of it, or it has none; between 0 and 1 where goals have parts
    first_seen: trees.Tree  # [1, ...]: the start, as the policy sees it
    last_seen: trees.Tree  # [1, ...]: the end


def run_episode(
    policy: FoundationPolicy,
    world: tasks.Task,
    prompt: Any,
    start: np.ndarray | None,
    goal: np.ndarray | str | None,
    steps: int,
    seed: int,
) -> Episode:
    """One episode under a prompt; it ends at the goal, where one is given."""
    begin(prompt)
    running = world.episodes(np.random.default_rng(seed), 1, start=start, goal=goal)
    first_seen = trees.over(np.array, rendering.policy_observations(running))
    path = [running.observations[0].copy()]
    actions: list[np.ndarray] = []
    beside: dict[str, list[np.ndarray]] = {name: [] for name in world.extra_columns}
    for _ in range(steps):
        if (goal is not None and running.reached()[0]) or over(running)[0]:
            break
        action = policy.act(rendering.policy_observations(running), prompt)
        running.step(action)
        actions.append(np.array(action[0]))
        path.append(running.observations[0].copy())
        for name, column in beside.items():
            column.append(running.extra(name)[0])
    columns = {name: np.stack(column) for name, column in beside.items() if column}
    share = 1.0 if goal is None else float(running.reached()[0])
    if goal is not None and isinstance(running, tasks.PartialSuccess):
        share = float(running.success_fractions()[0])
    did = np.stack(actions) if actions else np.zeros((0, world.action_dim), np.float32)
    return Episode(np.stack(path), did, columns, share, first_seen, rendering.policy_observations(running))


def rewards_along(world: tasks.Task, reward: RewardFunction, episode: Episode) -> np.ndarray:
    """What each step of an episode earned: float64 [t]."""
    extras = Extras({}, episode.beside, world.name)
    found = apply_reward(reward, episode.path[:-1], episode.actions, episode.path[1:], extras)
    return np.asarray(found, np.float64)


# ---- random actions ---


def random_success(world: tasks.Task, episodes: int, seed: int) -> float:
    """The share of goals that uniformly random actions reach, from the starts that the episodes of this seed have."""
    world = _for_random_actions(world)
    running = world.episodes(np.random.default_rng(seed), episodes)
    chance = np.random.default_rng([seed, 1])
    reached = running.reached()
    for _ in range(world.max_steps):
        if (reached | over(running)).all():
            break
        running.step(chance.uniform(-1, 1, (episodes, world.action_dim)))
        reached |= running.reached()
    return float(reached.mean())


def random_return(world: tasks.Task, name: str, episodes: int, seed: int) -> np.ndarray:
    """What uniformly random actions earn under a reward, from the same starts as the episodes of this seed."""
    return run_returns(None, world, name, None, episodes, seed)[0]


def run_returns(
    policy: FoundationPolicy | None,
    world: tasks.Task,
    name: str | RewardFunction,
    prompt: Any,
    episodes: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Returns [n], observations [steps + 1, n, obs] and, where there are, physics [steps, n, p] of whole episodes.

    name: of a reward of the task, or a reward. Without a policy, actions are random.
    """
    world = world if policy is not None else _for_random_actions(world)
    reward = setup.reward_function(world, name) if isinstance(name, str) else name
    begin(prompt)
    running = world.episodes(np.random.default_rng(seed), episodes)
    chance = np.random.default_rng([seed, 1])
    returns = np.zeros(episodes)
    path = [running.observations.copy()]
    states: list[np.ndarray] = []
    for _ in range(world.max_steps):
        if policy is None:
            actions = chance.uniform(-1, 1, (episodes, world.action_dim))
        else:
            actions = policy.act(rendering.policy_observations(running), prompt)
        alive = ~over(running)
        running.step(actions)
        beside = {column: running.extra(column) for column in world.extra_columns}
        extras = Extras({}, beside, world.name)
        returns += alive * apply_reward(reward, path[-1], actions, running.observations, extras)
        path.append(running.observations.copy())
        states += [beside["physics"]] if "physics" in beside else []
    return returns, np.stack(path), np.stack(states) if states else None


def _for_random_actions(world: tasks.Task) -> Any:
    """The task for random actions: from -1 to 1, whatever the units of the policy that it is for, and unseen."""
    world = getattr(world, "plain", world)  # what nobody looks at need not be drawn
    return world.with_own_units(False) if hasattr(world, "with_own_units") else world
