"""`hilp prompt`: prompt a policy once and watch it run."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hilp.commands import common, prompt_inputs
from hilp.errors import HilpError, printable, some

if TYPE_CHECKING:
    import numpy as np

    from hilp.evaluation.goals import Goal
    from hilp.evaluation.rollouts import Episode
    from hilp.policy.policy import FoundationPolicy
    from hilp.policy.prompts import Prompt

KINDS = ("goal", "reward", "labels", "skill", "load", "follow", "prefer")  # flags that are a prompt
LABELS = ("observations", "next_observations", "rewards")


@dataclass(frozen=True)
class Flags(common.Reading):
    """Prompt a policy once and watch it run in its task.

    Give one of --goal, --reward, --labels, --skill, --load, --follow, --prefer.
    """

    run: common.RunFolder
    """folder of a run or of a policy"""
    goal: str | None = None
    """goal: task3 (a name of the task), row:1234 (of --data, or of the policy's states), x=3,y=4, all numbers, or
    photo.png"""
    goal_dims: str | None = None
    """columns of --goal that matter, by name or number, if not all do: x,y is a place, whatever the posture"""
    smooth: float | None = None
    """take the agent to be where it was on average over about so many steps, for bodies that walk and noisy sensors"""
    reward: str | None = None
    """named reward of the task, or a formula over the observation, e.g. "height - 0.1*norm(action)\""""
    labels: str | None = None
    """npz file of labelled samples: observations, next_observations, rewards"""
    skill: str | None = None
    """'random', 'prior' (opal: what the data would do, drawn anew every k steps), or numbers separated by commas"""
    load: str | None = None
    """a prompt saved earlier for this policy"""
    follow: str | None = None
    """data file whose first episode is a demonstration to follow; FILE:3 is its episode 3, counted from 0"""
    prefer: str | None = None
    """npz file of preferences: better and worse, segments of observations [pairs, rows, ...] each"""
    add: tuple[str, ...] = ()
    """saved prompts to add to this one: FILE, or WEIGHT:FILE, e.g. 0.5:earn.safetensors"""
    then: str | None = None
    """a saved prompt to change over to, once --until is met"""
    until: str | None = None
    """when --then begins: a number of steps, a formula that becomes true such as "x > 5", or 'reached' (default)"""
    adapt: int | None = None
    """episodes to search with among skills around the prompt's own, by what they earn (see --earn)"""
    earn: str | None = None
    """reward that --adapt counts (default: that of --reward, or the only one of the task)"""
    window: int | None = None
    """rows that --follow heads ahead (default: as far as directions are trusted)"""
    plan: str | None = None
    """midpoint recursions of the goal prompt, 'graph' (ways of the data), 'midpoints', or 'auto' (default if it can)"""
    rule: Literal["auto", "skill", "goal", "graph"] = "auto"
    """turn a reward into a skill, the goal of highest reward (HILP-G), or a plan on the graph; auto: by its R2"""
    intercept: bool = False
    """fit a constant beside the features, so that adding one to the reward changes nothing"""
    data: str | None = None
    """data set to label with the reward, or to take a goal's row from (default: the transitions kept in the policy)"""
    task: str | None = None
    """task to run in (default: the one its data was collected in); a task such as walker_run is a reward prompt, too"""
    start: str | None = None
    """start position, numbers separated by commas (default: random)"""
    steps: int | None = None
    """length of the episode (default: the task's limit)"""
    seed: int = 0
    """seed of a random start or skill"""
    save: str | None = None
    """file to save the prompt to"""
    picture: str | None = None
    """PNG, SVG or PDF file to draw the trajectory to"""
    video: str | None = None
    """GIF, WebP or MP4 file to record the episode to; in a maze beside the same goal without a plan"""
    json: bool = False
    """print JSON"""


def run(flags: Flags) -> int:
    policy, _ = common.load_policy(flags.run)
    world = common.task_if_known(policy, flags.task)
    flags, kind = one_prompt(flags, world)
    check(flags, kind, policy, world)
    goal = goal_of(flags, policy, world)
    prompt = prompt_with_warnings(flags, policy, world, goal)
    facts: dict[str, Any] = {"prompt": kind, "policy": policy.fingerprint}
    if flags.adapt is not None:
        prompt, found = prompt_inputs.adapted(flags, policy, world, prompt)
        facts |= found
    r2 = getattr(prompt, "r2", None)
    if r2 is not None:
        facts["r2"] = r2
    agreement = getattr(prompt, "agreement", None)
    if agreement is not None:
        facts["preferences explained"] = agreement
    if world is None:
        facts |= act_once(flags, policy, prompt)
    else:
        facts |= act_in_task(flags, kind, policy, world, prompt, goal)
    if flags.save:
        prompt.save(flags.save)
        facts["saved"] = flags.save
    common.tell(facts, flags.json)
    return 0


def one_prompt(flags: Flags, world: Any | None) -> tuple[Flags, str]:
    """The flags and the one kind of prompt they give; a task that is a reward, such as walker_run, stands for it."""
    from hilp import tasks

    given = [name for name in KINDS if getattr(flags, name) is not None]
    if not given and world is not None and flags.task in tasks.reward_tasks():
        return replace(flags, reward=next(iter(world.rewards))), "reward"
    if len(given) != 1:
        raise HilpError(
            f"give exactly one of {', '.join(f'--{name}' for name in KINDS)}, or a --task that is a reward "
            f"(given: {', '.join(given) or 'none'})"
        )
    return flags, given[0]


def check(flags: Flags, kind: str, policy: FoundationPolicy, world: Any | None) -> None:
    """Raise where flags do not go together, before anything is run."""
    from hilp.evaluation import goals, setup

    for flag, given, kinds in (
        ("--plan", flags.plan is not None, ("goal",)),
        ("--goal-dims", flags.goal_dims is not None, ("goal",)),
        ("--smooth", flags.smooth is not None, ("goal",)),
        ("--data", flags.data is not None and not goals.is_row(flags.goal), ("reward", "goal row:...")),
        (f"--rule {flags.rule}", flags.rule != "auto", ("reward", "labels")),
        ("--intercept", flags.intercept, ("reward", "labels")),
        ("--window", flags.window is not None, ("follow",)),
    ):
        if given and kind not in kinds:
            used = " or ".join(f"--{name}" for name in kinds)
            raise HilpError(f"{flag} changes nothing about a prompt with --{kind}: leave it out, or prompt with {used}")
    common.require_counts(flags, "steps", "adapt", "window")
    if flags.until is not None and flags.then is None:
        raise HilpError("--until says when --then begins: name a saved prompt with --then")
    if flags.earn is not None and flags.adapt is None:
        raise HilpError("--earn is what --adapt counts: say how many episodes to search with, --adapt 10")
    common.require_picture("--picture", flags.picture)
    if world is None and (flags.picture or flags.video or flags.steps or flags.adapt):
        common.task_of(policy, flags.task)  # says that it needs one
    if world is not None:
        setup.require_fit("this policy", policy.spec, world)
    if flags.video:
        common.require_video(world, flags.video)
    names = some([name for name, _, _ in policy.spec.parts])
    if names and flags.goal is not None and not goals.is_row(flags.goal):
        goals.find(flags.goal, policy, world)  # says what to give instead
    if names and flags.start is not None and world is None:
        raise HilpError(f"--start takes numbers, but this policy has observations by name ({names}): leave it out")
    if world is None and not flags.start and not len(policy.bank):
        instead = "act in Python" if names else "name an observation to act at with --start"
        raise HilpError(f"this policy keeps no states (--bank 0): {instead}")


# ---- making the prompt -----------------------------------------------------------------------------------------------


def goal_of(flags: Flags, policy: FoundationPolicy, world: Any | None) -> Goal | None:
    """The goal that is asked for."""
    from hilp.evaluation import goals

    if flags.goal is None:
        return None
    data = None if flags.data is None else common.read_as_trained(flags.run, flags.data, flags)
    return goals.find(flags.goal, policy, world, data, flags.seed, goal_dims_of(flags, policy, world))


def goal_dims_of(flags: Flags, policy: FoundationPolicy, world: Any | None) -> tuple[int, ...] | None:
    """The columns of a goal that matter; None: all of them."""
    from hilp.evaluation import goals

    return None if flags.goal_dims is None else goals.goal_dims_of_text(flags.goal_dims, policy, world)


def prompt_with_warnings(flags: Flags, policy: FoundationPolicy, world: Any | None, goal: Goal | None) -> Prompt:
    """The prompt that the flags ask for; each of its warnings becomes one line."""
    with warnings.catch_warnings(record=True) as told_on_the_way:
        warnings.simplefilter("always")
        prompt = prompt_inputs.combined(flags, policy, world, make_prompt(flags, policy, world, goal))
    for warning in told_on_the_way:
        print(f"hilp: warning: {printable(' '.join(str(warning.message).split()))}", file=sys.stderr)
    return prompt


def make_prompt(flags: Flags, policy: FoundationPolicy, world: Any | None, goal: Goal | None) -> Any:
    if goal is not None:
        usual = "auto" if policy.has_rule("goal_direction") else 0
        plan = usual if flags.plan is None else common.plan(flags.plan)
        return policy.goal(
            goal.observation, plan=plan, goal_dims=goal_dims_of(flags, policy, world), smooth=flags.smooth
        )
    if flags.skill == "prior":
        return policy.prior(seed=flags.seed)
    if flags.skill is not None:
        skill = None if flags.skill == "random" else common.numbers(flags.skill, "--skill")
        return policy.skill(skill, seed=flags.seed)
    if flags.load is not None:
        return policy.load_prompt(flags.load)
    if flags.follow is not None:
        return policy.follow(prompt_inputs.demonstration(flags.follow, flags.run, flags), window=flags.window)
    if flags.prefer is not None:
        return policy.prefer(prompt_inputs.preferences(flags.prefer, [name for name, _, _ in policy.spec.parts]))
    if flags.labels is not None:
        samples = labelled_samples(flags.labels, [name for name, _, _ in policy.spec.parts])
        return policy.reward(samples, rule=flags.rule, intercept=flags.intercept)
    assert flags.reward is not None
    data = None if flags.data is None else common.read_as_trained(flags.run, flags.data, flags)
    reward = common.reward_of(flags.reward, policy, world)
    return policy.reward(data, reward, rule=flags.rule, intercept=flags.intercept)


def labelled_samples(path: str, parts: Sequence[str] = ()) -> tuple[Any, Any, np.ndarray]:
    """(observations, next_observations, rewards) from an npz file, whose sizes are checked before memory is taken.

    Observations that have parts are in there as `observations/camera` and so on.
    """
    from hilp import trees
    from hilp.data import columns

    names = [f"{label}/{part}" for label in LABELS[:2] for part in parts] or list(LABELS[:2])
    wanted = f"--labels takes an npz file with {some([*names, LABELS[2]])}"
    try:
        found = columns.open_npz(Path(path), (*names, LABELS[2]))
        for name in (*names, LABELS[2]):
            if name not in found:
                raise HilpError(f"{path} has no '{name}'")
            if found[name].dtype.kind not in columns.NUMBERS:
                raise HilpError(f"'{name}' of {path} holds {found[name].dtype}, not numbers")
        observations, next_observations = (
            trees.over(lambda column: column[:], trees.unnamed(found, label)) for label in LABELS[:2]
        )
        return observations, next_observations, found[LABELS[2]][:]
    except HilpError as error:
        raise HilpError(f"{wanted}: {error}") from error


# ---- acting on it ----------------------------------------------------------------------------------------------------


def act_once(flags: Flags, policy: FoundationPolicy, prompt: Any) -> dict[str, Any]:
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
    flags: Flags, kind: str, policy: FoundationPolicy, world: Any, prompt: Any, asked: Goal | None
) -> dict[str, Any]:
    """One episode in a task: where it went, what it earned, and its picture and film where asked for."""
    import numpy as np

    from hilp import trees
    from hilp.evaluation import rollouts
    from hilp.tasks import rendering

    goal = destination(prompt, world, asked)
    start = common.numbers(flags.start, "--start") if flags.start else None
    steps = world.max_steps if flags.steps is None else flags.steps
    to = goal if asked is None or goal is None else asked.asked
    if to is not None and asked is None and rendering.policy_spec(world).parts:
        to = prompt.goal  # the task finds the free place that a picture shows
    episode = rollouts.run_episode(policy, world, prompt, start, to, steps, flags.seed)
    path, share = episode.path, episode.share
    facts = {"task": world.name, "start": path[0].tolist(), "end": path[-1].tolist(), "steps": len(path) - 1}
    earned = rewards_along(flags, policy, world, episode)
    if earned is not None:
        facts |= score(flags.reward, world, path, float(earned.sum()))
    if hasattr(prompt, "progress"):
        facts["followed"] = float(prompt.progress[0])
    prompt.reset()  # the skill of the episode's first step
    facts["z"] = np.asarray(prompt(episode.first_seen))[0].tolist()
    if goal is not None and flags.reward is None:
        facts["reached"] = share == 1
        if 0 < share < 1:
            facts[rollouts.SHARE] = share
    elif prompt.kind == "goal" and world.has_goals and policy.has_rule("goal_direction"):
        facts["near it, by phi"] = bool(prompt.reached(episode.last_seen)[0])  # a picture does not tell the task
    seen_start = trees.over(lambda rows: rows[0], episode.first_seen)
    known = forecast_of(prompt, seen_start)
    facts |= known
    if flags.picture:
        title = f"{prompt.kind if kind == 'load' else kind} prompt"
        way = (
            rendering.infer_states(world, prompt.path(seen_start))
            if known and rendering.can_infer_states(world)
            else None
        )
        draw(flags.picture, world, path, goal, share == 1, earned, title, way)
        facts["picture"] = flags.picture
    if flags.video:
        facts["video"] = film(flags, policy, world, prompt, episode, to)
    return facts


def destination(prompt: Any, world: Any, asked: Goal | None) -> np.ndarray | None:
    """Where an episode ends: at the prompt's goal, or at the far place that a high level was trained to get to.

    A picture of which the task cannot tell the state is acted towards, but nobody knows when it is reached.
    """
    from hilp.evaluation import setup
    from hilp.tasks import rendering

    if prompt.kind == "hierarchy":
        far = prompt.high.about.get("reward") == setup.TARGET and getattr(world, "target_ends", False)
        return world.target if far else None
    if prompt.kind != "goal" or not world.has_goals:
        return None
    if asked is not None and asked.state is not None:
        return asked.state
    return rendering.infer_states(world, prompt.goal) if rendering.can_infer_states(world) else None


def forecast_of(prompt: Any, start: Any) -> dict[str, Any]:
    """What the graph of the data said about a goal before the first step; nothing where a prompt does not ask it."""
    import math

    if getattr(prompt, "stuck", None) is None:
        return {}
    path_info = prompt.path_info(start)
    return {
        "reachable": path_info.reachable,
        "expected steps": round(path_info.steps, 1) if math.isfinite(path_info.steps) else None,
        "transitions behind the weakest edge": path_info.support,
    }


def rewards_along(flags: Flags, policy: FoundationPolicy, world: Any, episode: Episode) -> np.ndarray | None:
    """The reward of each step of an episode; None without a reward, or where it takes columns that a task lacks."""
    from hilp.evaluation import rollouts

    if flags.reward is None:
        return None
    try:
        return rollouts.rewards_along(world, common.reward_of(flags.reward, policy, world), episode)
    except HilpError:  # an extra column of the data
        return None


def score(name: str | None, world: Any, path: np.ndarray, earned: float) -> dict[str, float]:
    """What an episode scored under a reward: its return, and of getting somewhere the share of what was possible."""
    if name not in world.potentials:
        return {"return": earned}
    possible = world.potential_max(name) - float(world.potentials[name](path[:1])[0])
    return {"gain": earned, **({"share of the possible gain": earned / possible} if possible > 0 else {})}


def film(
    flags: Flags,
    policy: FoundationPolicy,
    world: Any,
    prompt: Any,
    episode: Episode,
    goal: Any,
) -> str:
    """Record the episode: as the simulator shows it, or on the plan, where a goal is shown without a plan beside."""
    from hilp.evaluation import rollouts
    from hilp.report import films, video
    from hilp.tasks import rendering

    fps = getattr(world, "fps", common.VIDEO_FPS)
    if hasattr(world, "film"):
        return str(video.write(str(flags.video), world.film(episode.path, episode.beside.get("physics")), fps))
    target = getattr(prompt, "goal", None)
    plan = getattr(prompt, "plan", "graph")
    panels = {str(flags.reward or "skill") if target is None else f"plan {plan}": episode.path}
    if target is not None and plan != 0:
        direct = policy.goal(target, plan=0)
        steps = world.max_steps if flags.steps is None else flags.steps
        other = rollouts.run_episode(policy, world, direct, episode.path[0], goal, steps, flags.seed)
        panels = {"plan 0": other.path, **panels}
    shown = None if target is None else rendering.infer_states(world, target)
    return str(video.write(str(flags.video), films.on_plan(policy, world, panels, shown), films.FPS))


def draw(
    target: str,
    world: Any,
    path: np.ndarray,
    goal: np.ndarray | None,
    reached: bool,
    earned: np.ndarray | None,
    title: str,
    way: np.ndarray | None = None,
) -> None:
    """The trajectory of one episode on the plan of its task, and beneath it the way that was expected; under a reward
    coloured by what it has earned so far.
    """
    import numpy as np

    from hilp.report import figures

    if earned is not None:
        said = f"{title}: earned {earned.sum():.3g}"
        figures.save(figures.earnings(world, path, np.concatenate([[0.0], np.cumsum(earned)]), said), target)
        return
    goals = np.full_like(path[:1], np.nan) if goal is None else goal[None]
    figures.save(figures.trajectories(world, [path], path[:1], goals, np.array([reached]), title, way), target)
