"""Rollouts: episodes of a policy under a prompt in a task, run side by side and counted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hilp import tasks, trees
from hilp.data.rewards import Extras, RewardFunction, apply_reward
from hilp.errors import HilpError, some
from hilp.evaluation import setup, stats
from hilp.evaluation.rows import GAIN, SHARE, SUCCESS
from hilp.evaluation.setup import ResolvedGoal
from hilp.policy.policy import FoundationPolicy, require_policy
from hilp.prompts import reward as reward_prompts
from hilp.prompts import skills
from hilp.prompts.base import Prompt
from hilp.prompts.goal import GoalPrompt
from hilp.prompts.specs import PLANS, Goal
from hilp.tasks import rendering
from hilp.tasks.base import REST, AnyGoal, Given, random_actions

REWARD_STEPS = 300  # length of an episode under the reward of a potential
Outcome = dict[str, Any]  # the part of a row that says what came of the episodes


@dataclass(frozen=True)
class Rollout:
    """Episodes that ran side by side."""

    observations: np.ndarray  # [steps + 1, episodes, obs]: an episode that ended stays where it is
    lengths: np.ndarray  # [episodes]: steps of each
    goals: np.ndarray  # [episodes, obs]: NaN where a prompt has none
    reached: np.ndarray  # bool [episodes]: the goal, or at least half of what a reward had to give
    actions: Sequence[np.ndarray] = ()  # of each step [episodes, act]
    alive: Sequence[np.ndarray] = ()  # before each step, bool [episodes]: those that their task has not ended
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)  # extra columns after each step [steps, episodes]
    earned: np.ndarray | None = None  # what each step earned [steps, episodes], under a reward

    @property
    def reached_goal(self) -> np.ndarray:
        """Episodes that ended at their goal, bool [episodes]: under a reward there is none."""
        return self.reached & ~np.isnan(self.goals).all(axis=-1)

    def episode(self, number: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Observations [length + 1, obs] of one of them, and the states of its simulator [length, p], to film it."""
        length = int(self.lengths[number])
        physics = self.columns.get("physics")
        return self.observations[: length + 1, number], None if physics is None else physics[:length, number]

    def first(self, count: int) -> "Rollout":
        """What is saved of the first few of them, no longer than they lasted."""
        steps = int(self.lengths[:count].max(initial=0))
        return Rollout(
            self.observations[: steps + 1, :count], self.lengths[:count], self.goals[:count], self.reached[:count]
        )


Scored = tuple[Outcome, Rollout]
Act = Callable[[np.ndarray], np.ndarray]  # actions of all episodes, by which of them still head for their goal


def roll(running: tasks.Episodes, act: Act, most: int, columns: Iterable[str] = (), to_goals: bool = False) -> Rollout:
    """Step episodes up to `most` times; to goals only until every one is over or has reached its own."""
    path, actions, living = [running.observations.copy()], [], []
    extras: dict[str, list[np.ndarray]] = {name: [] for name in columns}
    goals = running.goals.copy() if to_goals else np.full_like(path[0], np.nan)
    reached = running.reached().copy() if to_goals else np.zeros(len(path[0]), bool)
    lengths = np.where(reached, 0, most)
    for step in range(most):
        alive = ~np.asarray(getattr(running, "over", np.zeros_like(reached)))  # most tasks never end one
        if to_goals and not (alive & ~reached).any():
            break
        living.append(alive)
        actions.append(np.array(act(~reached)))
        running.step(actions[-1])
        path.append(running.observations.copy())
        for name, column in extras.items():
            column.append(running.extra(name))
        if to_goals:
            now = running.reached() & ~reached
            lengths[now] = step + 1
            reached |= now
    found = {name: np.stack(column) for name, column in extras.items() if column}
    lengths = np.minimum(lengths, len(path) - 1)  # where all were over before the limit
    return Rollout(np.stack(path), lengths, goals, reached, actions, living, found)


def _actor(policy: FoundationPolicy, running: tasks.Episodes, prompt: Any, to_goals: bool = False) -> Act:
    """How a policy acts under a prompt in episodes that begin; to goals nothing is planned for those that are there."""
    if hasattr(prompt, "reset"):  # a user's own function need not have it
        prompt.reset()

    def act(active: np.ndarray) -> np.ndarray:
        seen = rendering.policy_observations(running)
        actions = policy.act(seen, prompt, active=active) if to_goals else policy.act(seen, prompt)
        if to_goals:
            actions[~active] = REST if policy.spec.choices else 0.0
        return actions.reshape(len(actions), -1)

    return act


def rollout_goals(
    policy: FoundationPolicy, world: tasks.Task, spec: Goal, episodes: int, seed: int, goal: ResolvedGoal | None = None
) -> Scored:
    """Goal-reaching episodes side by side, to the goals of the task or to one; an episode ends when it is reached.

    A method without a goal rule gets the skill of the reward of being at the goal. The options of the spec change how
    the policy heads for goals; what counts as reached is up to the task.
    """
    if goal is not None and isinstance(goal.for_task, Mapping) and not rendering.can_infer_states(world):
        raise HilpError(f"{world.name} cannot tell from a picture whether a goal is reached: give a name or its state")
    to_one = {} if goal is None else {"goal": goal.for_task}
    running = world.episodes(np.random.default_rng(seed), episodes, **to_one)
    if spec.plan in (0, "auto") and not policy.has_rule("goal_direction") and not policy.has_rule("goal_skill"):
        prompt: Any = _by_reward(policy, world, spec, running)
    else:
        prompt = policy.goal(rendering.policy_goals(running), **spec.options())
    on_graph = getattr(prompt, "stuck", None) is not None
    expected = forecast(policy, prompt, rendering.policy_observations(running)) if on_graph else {}
    row, rollout = _reach(policy, world, running, prompt, seed)
    radius = {"radius": prompt.near_enough} if spec.plan in PLANS and not on_graph else {}
    ema = getattr(prompt, "latent_ema", None)
    smooth = {} if ema is None else {"smooth": ema.steps}
    return {**row, **radius, **smooth, **expected}, rollout


def _by_reward(policy: FoundationPolicy, world: tasks.Task, spec: Goal, running: tasks.Episodes) -> Any:
    """Goals as rewards of being there, for a method that has no goal rule."""
    options = [name for name in spec.to_json() if name not in ("kind", "goal", "plan")]  # plan: 0, or 0 by itself
    if options:
        raise HilpError(f"{policy.method} takes a goal as the reward of being there: leave out {some(options)}")
    if not rendering.can_infer_states(world):
        raise HilpError(
            f"{policy.method} takes a goal as the reward of being there, and {world.name} cannot tell from a "
            "picture whether it is: take a method with goals, hilp or gc-bc, or a reward"
        )
    return reward_prompts.goals_by_reward(policy, world.near, running.goals)


def forecast(policy: FoundationPolicy, prompt: GoalPrompt, starts: trees.Tree) -> dict[str, Any]:
    """The part of a row that says what a prompt on the graph expects of each episode from its start on."""
    assert prompt.to_goal is not None
    here = policy.latents(policy.check(starts, always=True))
    goals = np.broadcast_to(prompt.latent, here.shape)
    to_goals = np.broadcast_to(prompt.to_goal, (len(here), prompt.to_goal.shape[-1]))
    found = [policy.planner.path_info(*one) for one in zip(here, goals, to_goals, strict=True)]
    return {
        "expected_steps": [float(one.steps) if np.isfinite(one.steps) else None for one in found],
        "reachable": [one.reachable for one in found],
    }


def _reach(policy: FoundationPolicy, world: tasks.Task, running: tasks.Episodes, prompt: Any, seed: int) -> Scored:
    """Episodes that end when their goal is reached, or at the task's limit."""
    columns = [name for name in world.extra_columns if name == "physics"]
    rollout = roll(running, _actor(policy, running, prompt, to_goals=True), world.max_steps, columns, to_goals=True)
    reached, lengths = rollout.reached, rollout.lengths
    row = {
        **_goal_scores(running, reached, seed),
        "episodes": len(reached),
        **_falls(running),
        "lengths": lengths.tolist(),
        "mean_length_of_successes": float(lengths[reached].mean()) if reached.any() else None,
    }
    names = np.array(getattr(running, "names", ()))
    if len(names):
        outcomes = np.array(row["outcomes"])
        row["by_goal"] = {name: float(outcomes[names == name].mean()) for name in dict.fromkeys(names.tolist())}
    return row, rollout


def _falls(running: tasks.Episodes) -> Outcome:
    """How many episodes ended in a fall, in tasks in which one can fall."""
    return {"falls": int(running.fallen.sum())} if hasattr(running, "fallen") else {}


def _shares(running: tasks.Episodes, reached: np.ndarray) -> np.ndarray:
    """What each episode reached of its goal [n]: all or nothing, or a share where goals have parts."""
    return running.success_fractions() if hasattr(running, "success_fractions") else reached.astype(float)


def _goal_scores(running: tasks.Episodes, reached: np.ndarray, seed: int) -> Outcome:
    outcomes = _shares(running, reached)
    if hasattr(running, "success_fractions"):
        _, *interval = stats.stratified_bootstrap([outcomes], statistic="mean", seed=seed)
        metric = SHARE
    else:
        metric, interval = SUCCESS, [*stats.wilson(int(reached.sum()), len(reached))]
    return {"metric": metric, "score": float(outcomes.mean()), "interval": interval, "outcomes": outcomes.tolist()}


def rollout_reward(policy: FoundationPolicy, world: Any, name: str, prompt: Any, episodes: int, seed: int) -> Scored:
    """Episodes of a prompt under a reward of the task: the return, the share of the possible gain, or the success."""
    if name in world.rewards:
        return _returns(policy, world, name, prompt, episodes, seed)
    rng = np.random.default_rng(seed)
    if name in world.potentials:
        running = world.episodes(rng, episodes)
        return _gains(world, name, roll(running, _actor(policy, running, prompt), REWARD_STEPS))
    return _reach(policy, world, world.target_episodes(rng, episodes), prompt, seed)


def _gains(world: tasks.Task, name: str, rollout: Rollout) -> Scored:
    """Under the reward f(s') - f(s) of a potential f of the task: the share of the possible gain that is realised."""
    potential, path = world.potentials[name], rollout.observations
    start = potential(path[0])
    possible, gain = world.potential_max(name) - start, potential(path[-1]) - start
    row = {
        "metric": GAIN,
        "score": float(gain.sum() / possible.sum()),
        "episodes": len(gain),
        "outcomes": gain.tolist(),
        "possible": possible.tolist(),
        "steps": REWARD_STEPS,
    }
    height = np.stack([potential(seen) for seen in path[1:]])
    return row, replace(rollout, reached=gain >= 0.5 * possible, earned=height)


def _returns(policy: FoundationPolicy, world: tasks.Task, name: str, prompt: Any, episodes: int, seed: int) -> Scored:
    """Under a reward of being somewhere: the return, and that of the best policy where it is known."""
    returns, rollout, running = run_returns(policy, world, name, prompt, episodes, seed)
    path = rollout.observations
    best = world.best_return(name, path[0], world.max_steps)
    _, *interval = stats.stratified_bootstrap([returns], statistic="mean", seed=seed)
    row = {
        "metric": "return",
        "score": float(returns.mean()),
        "interval": interval,
        "best_possible": None if best is None else float(best.mean()),
        "score_scale": float(world.score_scale),
        "episodes": episodes,
        "outcomes": returns.tolist(),
        "steps": world.max_steps,
        **_about_steps(rollout),
        **_falls(running),
        **(world.held(name, path, running) if hasattr(world, "held") else {}),
    }
    return row, replace(rollout, reached=np.zeros(episodes, bool) if best is None else returns >= 0.5 * best)


def _about_steps(rollout: Rollout) -> Outcome:
    """The most that a step earned, a mean of episodes; what was earned before any were charged, where some were."""
    assert rollout.earned is not None
    alive = np.asarray(rollout.alive, bool)
    best = np.where(alive, rollout.earned, -np.inf).max(axis=0)
    raw = rollout.earned.sum(axis=0)
    found: Outcome = {"largest": float(best.mean())}
    return found if np.array_equal(raw, charged(rollout.earned, alive)) else {**found, "uncharged": float(raw.mean())}


def run_returns(
    policy: FoundationPolicy | None, world: Any, name: str | RewardFunction, prompt: Any, episodes: int, seed: int
) -> tuple[np.ndarray, Rollout, tasks.Episodes]:
    """Returns [n] of whole episodes, of random ones without a policy; what they went through, and as they ended."""
    if policy is None:
        world, at_random = _at_random(world, episodes, seed)
    reward = setup.reward_function(world, name) if isinstance(name, str) else name
    running = world.episodes(np.random.default_rng(seed), episodes)
    act = at_random if policy is None else _actor(policy, running, prompt)
    rollout = roll(running, act, world.max_steps, world.extra_columns)
    path, earned = rollout.observations, np.zeros((len(rollout.actions), episodes))
    for step, (alive, actions) in enumerate(zip(rollout.alive, rollout.actions, strict=True)):
        extras = Extras({}, {name: column[step] for name, column in rollout.columns.items()}, world.name)
        earned[step] = alive * apply_reward(reward, path[step], actions, path[step + 1], extras)
    return charged(earned, np.asarray(rollout.alive, bool)), replace(rollout, earned=earned), running


def charged(earned: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """Returns [episodes] of what steps earned; both steps x episodes.

    An episode that ended early is charged for the steps that it missed where it lost by the step: else, where rewards
    are negative, one that falls at once would be the best.
    """
    lived = np.maximum(alive.sum(axis=0), 1)
    return earned.sum(axis=0) + np.minimum(earned.sum(axis=0) / lived, 0.0) * (len(earned) - lived)


def episode_return(
    policy: FoundationPolicy, task: str | tasks.Task, reward: str | RewardFunction | None = None, seed: int = 0
) -> Callable[[Any], float]:
    """A function of a prompt: what an episode in the task earns under it, each time from the same start.

    reward: of the task, by name, or a function of (s, a, s'); none is needed where the task has one only.
    """
    world = setup.acting_task(policy, task)
    if reward is None and len(world.rewards) != 1:
        known = some(setup.reward_names(world))
        raise HilpError(f"task {world.name} has more than one reward: say which one counts ({known})")
    reward = next(iter(world.rewards)) if reward is None else reward
    function = setup.reward_function(world, reward) if isinstance(reward, str) else reward
    return lambda prompt: float(run_returns(policy, world, function, prompt, 1, seed)[0][0])


def adapt(
    policy: FoundationPolicy, prompt: Prompt, evaluator: Any, episodes: int = 10, seed: int = 0, **options: Any
) -> skills.Search:
    """Search among skills around a prompt's own with a few episodes; `prompt` of the result is what earned most.

    evaluator: a function of a prompt that runs an episode and gives what it earned, or a task (then `reward` names one
    of its rewards, where it has several). The first episode is that of the prompt as it is.
    """
    require_policy(policy)
    if not callable(prompt) or not hasattr(prompt, "fingerprint"):
        raise HilpError(f"a search begins with a prompt of the policy, such as policy.skill(), not with {prompt!r:.60}")
    run = evaluator if callable(evaluator) else episode_return(policy, evaluator, seed=seed, **options)
    return skills.search(policy, prompt, run, episodes, seed)


@dataclass(frozen=True)
class Episode:
    """One episode of t steps."""

    path: np.ndarray  # [t + 1, obs]: the task's observations
    actions: np.ndarray  # [t, act]
    extras: dict[str, np.ndarray]  # the extra columns of the task after each step [t, ...]
    share: float  # of its goal that was reached; 1: all of it, or it has none; between 0 and 1 where goals have parts
    first_seen: trees.Tree  # [1, ...]: the start, as the policy sees it
    last_seen: trees.Tree  # [1, ...]: the end


def run_episode(
    policy: FoundationPolicy, world: tasks.Task, prompt: Any, start: Given, goal: AnyGoal, steps: int, seed: int
) -> Episode:
    """One episode under a prompt; it ends at its goal, where it has one."""
    running = world.episodes(np.random.default_rng(seed), 1, start=start, goal=goal)
    first_seen = trees.over(np.array, rendering.policy_observations(running))
    rollout = roll(running, _actor(policy, running, prompt), steps, world.extra_columns, to_goals=goal is not None)
    share = 1.0 if goal is None else float(_shares(running, rollout.reached)[0])
    return Episode(
        rollout.observations[:, 0],
        np.array([action[0] for action in rollout.actions], np.float32).reshape(-1, world.action_dim),
        {name: column[:, 0] for name, column in rollout.columns.items()},
        share,
        first_seen,
        rendering.policy_observations(running),
    )


def rewards_along(world: tasks.Task, reward: RewardFunction, episode: Episode) -> np.ndarray:
    """What each step of an episode earned: float64 [t]."""
    extras = Extras({}, episode.extras, world.name)
    found = apply_reward(reward, episode.path[:-1], episode.actions, episode.path[1:], extras)
    return np.asarray(found, np.float64)


def random_score(world: tasks.Task, row: Outcome, goal: ResolvedGoal | None = None) -> Outcome:
    """What uniformly random actions score from the starts of a row's episodes; nothing of a potential's gain."""
    episodes, seed = row["episodes"], row["evaluation_seed"]
    if row["metric"] == "return":
        return {"random": float(run_returns(None, world, row["reward"], None, episodes, seed)[0].mean())}
    if row["prompt"] != "goal":
        return {}
    world, act = _at_random(world, episodes, seed)
    running = world.episodes(np.random.default_rng(seed), episodes, **({} if goal is None else {"goal": goal.for_task}))
    return {"random": float(roll(running, act, world.max_steps, to_goals=True).reached.mean())}


def _at_random(world: tasks.Task, episodes: int, seed: int) -> tuple[Any, Act]:
    """The task for random actions, from -1 to 1 whatever the units of the policy and not rendered, and who acts so."""
    world = getattr(world, "plain", world)
    world = world.with_own_units(False) if hasattr(world, "with_own_units") else world
    rng = np.random.default_rng([seed, 1])
    return world, lambda _: random_actions(world, rng, episodes)
