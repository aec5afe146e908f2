"""What `hilp prompt` does with a prompt: one action, or one episode in a task with its picture and film."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hilp.commands import common
from hilp.errors import HilpError

if TYPE_CHECKING:
    import numpy as np

    from hilp.evaluation.goals import ResolvedGoal
    from hilp.evaluation.rollouts import Episode
    from hilp.policy.policy import FoundationPolicy


def act_once(flags: Any, policy: FoundationPolicy, prompt: Any) -> dict[str, Any]:
    """Without a task: the skill and the action at one observation."""
    import numpy as np

    from hilp import trees

    def shown(part: np.ndarray) -> Any:
        return f"{' x '.join(map(str, part.shape))} bytes" if part.dtype == np.uint8 else part.reshape(-1).tolist()

    batch = trees.over(lambda rows: rows[:1], policy.bank.observations)
    if flags.start:
        batch = common.numbers(flags.start, "--start")[None]
    at = trees.over(lambda rows: rows[0], batch)
    z = np.asarray(prompt(batch))[0].tolist()
    prompt.reset()  # the action is that of the same step
    return {
        **{name: shown(part) for name, part in trees.named(at, "at").items()},
        "z": z,
        "action": policy.act(at, prompt).tolist(),
    }


def act_in_task(
    flags: Any, kind: str, policy: FoundationPolicy, world: Any, prompt: Any, named: ResolvedGoal | None
) -> dict[str, Any]:
    """One episode in a task: where it went, what it earned, and its picture and film."""
    import numpy as np

    from hilp import trees
    from hilp.evaluation import rollouts

    goal, to = destination(prompt, world, named)
    start = common.numbers(flags.start, "--start") if flags.start else None
    steps = int(world.max_steps if flags.steps is None else flags.steps)
    episode = rollouts.run_episode(policy, world, prompt, start, to, steps, flags.seed)
    path = episode.path
    result = {"task": world.name, "start": path[0].tolist(), "end": path[-1].tolist(), "steps": len(path) - 1}
    earned = None if flags.reward is None else rewards_along(flags.reward, policy, world, episode)
    if earned is not None:
        result |= score(flags.reward, world, path, float(earned.sum()))
    if hasattr(prompt, "progress"):
        result["followed"] = float(prompt.progress[0])
    prompt.reset()  # the skill of the episode's first step
    result["z"] = np.asarray(prompt(episode.first_seen))[0].tolist()
    result |= reached(policy, world, prompt, None if flags.reward else goal, episode)
    begin = trees.over(lambda rows: rows[0], episode.first_seen)
    on_graph = getattr(prompt, "stuck", None) is not None
    if on_graph:
        result |= forecast(prompt.path_info(begin))
    if flags.picture:
        title = f"{prompt.kind if kind == 'load' else kind} prompt"
        draw(flags.picture, world, episode, goal, earned, title, prompt.path(begin) if on_graph else None)
        result["picture"] = flags.picture
    if flags.video:
        result["video"] = film(flags, policy, world, prompt, episode, to, steps)
    return result


def destination(prompt: Any, world: Any, named: ResolvedGoal | None) -> tuple[np.ndarray | None, Any]:
    """Where an episode ends, as a state and as the task takes it: at its goal, or where a high level learnt to get to.

    The policy acts towards a picture from which the task cannot infer a state, but when it is reached is not known.
    """
    from hilp.evaluation import setup
    from hilp.tasks import rendering

    if prompt.kind == "hierarchy":
        far = prompt.high.about.get("reward") == setup.TARGET and getattr(world, "target_ends", False)
        return (world.target, world.target) if far else (None, None)
    if prompt.kind != "goal" or not world.has_goals:
        return None, None
    if named is not None and named.state is not None:
        return named.state, named.for_task
    if not rendering.can_infer_states(world):
        return None, None
    return rendering.infer_states(world, prompt.goal), prompt.goal if named is None else named.for_task


def reached(
    policy: FoundationPolicy, world: Any, prompt: Any, goal: np.ndarray | None, episode: Episode
) -> dict[str, Any]:
    """Whether an episode reached its goal, as far as the task or phi can tell."""
    from hilp.evaluation.rows import SHARE

    if goal is not None:
        return {"reached": episode.share == 1, **({SHARE: episode.share} if 0 < episode.share < 1 else {})}
    if prompt.kind == "goal" and world.has_goals and policy.has_rule("goal_direction"):
        return {"near it, by phi": bool(prompt.reached(episode.last_seen)[0])}  # the task cannot tell from a picture
    return {}


def forecast(info: Any) -> dict[str, Any]:
    """What the graph of the data says about a goal before the first step."""
    return {
        "reachable": info.reachable,
        "expected steps": round(info.steps, 1) if math.isfinite(info.steps) else None,
        "transitions behind the weakest edge": info.support,
    }


def rewards_along(reward: str, policy: FoundationPolicy, world: Any, episode: Episode) -> np.ndarray | None:
    """The reward of each step of an episode; None where it takes columns that the task lacks."""
    from hilp.evaluation import rollouts

    try:
        return rollouts.rewards_along(world, common.reward_of(reward, policy, world), episode)
    except HilpError:  # an extra column of the data
        return None


def score(name: str | None, world: Any, path: np.ndarray, earned: float) -> dict[str, float]:
    """What an episode scored under a reward: its return, and of getting somewhere the share of what was possible."""
    if name not in world.potentials:
        return {"return": earned}
    possible = world.potential_max(name) - float(world.potentials[name](path[:1])[0])
    return {"gain": earned, **({"share of the possible gain": earned / possible} if possible > 0 else {})}


def film(flags: Any, policy: FoundationPolicy, world: Any, prompt: Any, episode: Episode, goal: Any, steps: int) -> str:
    """Record the episode: as the simulator shows it, or on the plan, next to the same goal without a plan."""
    from hilp.evaluation import rollouts
    from hilp.report import films, video
    from hilp.tasks import rendering

    fps = getattr(world, "fps", common.VIDEO_FPS)
    if hasattr(world, "film"):
        return str(video.write(str(flags.video), world.film(episode.path, episode.extras.get("physics")), fps))
    target = getattr(prompt, "goal", None)
    plan = getattr(prompt, "plan", "graph")
    panels = {str(flags.reward or "skill") if target is None else f"plan {plan}": episode.path}
    if target is not None and plan != 0:
        direct = policy.goal(target, plan=0)
        other = rollouts.run_episode(policy, world, direct, episode.path[0], goal, steps, flags.seed)
        panels = {"plan 0": other.path, **panels}
    shown = None if target is None else rendering.infer_states(world, target)
    return str(video.write(str(flags.video), films.on_plan(policy, world, panels, shown), films.FPS))


def draw(
    target: str, world: Any, episode: Episode, goal: np.ndarray | None, earned: np.ndarray | None, title: str, way: Any
) -> None:
    """The trajectory on the plan of its task; under a reward coloured by what it has earned.

    way: the observations that a prompt expected to pass, drawn where the task can infer their states.
    """
    import numpy as np

    from hilp.report import figures
    from hilp.tasks import rendering

    path = episode.path
    if earned is not None:
        title = f"{title}: earned {earned.sum():.3g}"
        figures.save(figures.earnings(world, path, np.concatenate([[0.0], np.cumsum(earned)]), title), target)
        return
    goals = np.full_like(path[:1], np.nan) if goal is None else goal[None]
    expected = rendering.infer_states(world, way) if way is not None and rendering.can_infer_states(world) else None
    done = np.array([episode.share == 1])
    figures.save(figures.trajectories(world, {title: ([path], path[:1], goals, done)}, way=expected), target)
