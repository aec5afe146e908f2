"""What `hilp prompt` does: it makes a prompt of the flags and acts on it, once or for an episode."""

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hilp import runs, storage, tasks, trees
from hilp.commands import common
from hilp.data import columns, dataset, measures
from hilp.errors import HilpError, some
from hilp.evaluation import rollouts, setup
from hilp.evaluation.rollouts import Episode
from hilp.evaluation.rows import SHARE
from hilp.evaluation.setup import ResolvedGoal
from hilp.policy.policy import FoundationPolicy
from hilp.prompts import base, specs
from hilp.prompts.agent import has_ways
from hilp.report import recording, video
from hilp.tasks import rendering

Result = dict[str, Any]  # what is printed


def result_of(flags: Any) -> Result:
    """Make the prompt, act on it, and say what came of it."""
    policy, _ = common.load_policy(flags.run)
    world = setup.task_if_known(policy, flags.task)
    flags, kind = one_prompt(flags, world)
    check_options(flags, kind)
    check_policy(flags, policy, world)
    prompt, goal = make_prompt(flags, kind, policy, world)
    prompt = combined(flags, policy, world, prompt)
    result: Result = {"prompt": kind, "policy": policy.fingerprint}
    if flags.adapt is not None:
        prompt, result["earned before"], result["earned adapted"] = adapted(flags, policy, world, prompt)
    for name, shown in (("r2", "r2"), ("agreement", "preferences explained")):
        if getattr(prompt, name, None) is not None:
            of_model = name == "r2" and prompt.kind == "graph"  # and no promise of what is earned
            result["r2 of the model of the reward" if of_model else shown] = getattr(prompt, name)
    if getattr(prompt, "holds", None) is False:
        result["note"] = "the data passes this goal and never stays there"
    if world is None:
        result |= act_once(flags, policy, prompt)
        if flags.picture:
            draw_way(flags, policy, prompt, np.asarray(result["at"]))
            result["picture"] = flags.picture
    else:
        result |= act_in_task(flags, kind, policy, world, prompt, goal)
    if flags.save:
        prompt.save(flags.save)
        result["saved"] = flags.save
    return result


def one_prompt(flags: Any, world: Any | None) -> tuple[Any, str]:
    """The flags and the one kind of prompt they name; a task that is a reward, such as walker_run, stands for it."""
    named = [name for name in flags.kinds if getattr(flags, name) is not None]
    if not named and world is not None and flags.task in tasks.reward_tasks():
        return replace(flags, reward=next(iter(world.rewards))), "reward"
    if len(named) != 1:
        raise HilpError(
            f"give exactly one of {', '.join(f'--{name}' for name in flags.kinds)}, or a --task that is a reward "
            f"(given: {', '.join(named) or 'none'})"
        )
    return flags, named[0]


def check_options(flags: Any, kind: str) -> None:
    """Raise where flags do not go together, before anything is run."""
    given = {name: [name] if getattr(flags, name) is not None else [] for name in ("plan", "window", "data")}
    for names, kinds in (
        (given["plan"] + flags.given_options(specs.Goal), ("goal",)),
        ([] if setup.is_row(flags.goal) else given["data"], ("reward", "goal row:...")),
        (flags.given_options(specs.Reward), ("reward", "labels")),
        (given["window"], ("follow",)),
    ):
        if names and kind not in kinds:
            used = " or ".join(f"--{name}" for name in kinds)
            flag = {"rule": f"rule {flags.rule}"}.get(names[0], names[0].replace("_", "-"))
            raise HilpError(f"--{flag} changes nothing about a prompt with --{kind}: drop it, or prompt with {used}")
    if flags.until is not None and flags.then is None:
        raise HilpError("--until says when --then begins: name a saved prompt with --then")


def check_policy(flags: Any, policy: FoundationPolicy, world: Any | None) -> None:
    """Raise where flags of the episode do not go together, or with the policy or its task, before anything is run."""
    if flags.earn is not None and flags.adapt is None:
        raise HilpError("--earn is what --adapt counts: say how many episodes to search with, --adapt 10")
    common.require_picture("--picture", flags.picture)
    if world is not None:
        setup.require_fit("this policy", policy.spec, world, policy.observation_parts)
        if flags.video:
            common.require_video(world, flags.video)
    if flags.rerun:
        recording.require(flags.rerun)
    if policy.spec.parts and flags.goal is not None and not setup.is_row(flags.goal):
        setup.find_goal(flags.goal, policy, world)  # says what to give instead
    if world is None:
        check_without_task(flags, policy)
    elif flags.start:
        world.episodes(np.random.default_rng(flags.seed), 1, start=common.numbers(flags.start, "--start"))


def check_without_task(flags: Any, policy: FoundationPolicy) -> None:
    """Raise where flags need a task, or nothing says where to act."""
    plain = policy.spec.of_row.observation_dim > 1 and not policy.spec.parts and has_ways(policy)
    if flags.picture and (flags.goal is None or flags.add or flags.then or not plain):
        raise HilpError(
            "--picture draws a walk in a task, or of a policy with a graph the way to one --goal among the states of "
            "the data: name a task with --task (`hilp report RUN` has other pictures)"
        )
    if any((flags.video, flags.rerun, flags.steps, flags.adapt)):
        setup.task_of(policy, flags.task)  # says that it needs one
    names = some(part_names(policy))
    if names and flags.start is not None:
        raise HilpError(f"--start takes numbers, but this policy has observations by name ({names}): leave it out")
    if flags.start:
        policy.check(common.numbers(flags.start, "--start"), "start", always=True)
    if not flags.start and not len(policy.bank):
        instead = "act in Python" if names else "name an observation to act at with --start"
        raise HilpError(f"this policy keeps no states (--bank 0): {instead}")


def part_names(policy: FoundationPolicy) -> list[str]:
    """The names of a policy's observations; none where they are plain vectors."""
    return [name for name, _, _ in policy.spec.parts]


# ---- making the prompt -----------------------------------------------------------------------------------------------


def make_prompt(flags: Any, kind: str, policy: FoundationPolicy, world: Any | None) -> tuple[Any, ResolvedGoal | None]:
    """The prompt of the one flag that is a prompt, and the goal that it names."""
    text = getattr(flags, kind)
    data = None if flags.data is None else common.read_as_trained(flags.run, flags.data, flags)
    if kind == "goal":
        spec = flags.with_options(specs.Goal(plan=specs.Goal.plan if flags.plan is None else common.plan(flags.plan)))
        spec, goal = setup.resolve_goal(spec, policy, world, data, flags.seed)
        return policy.goal(goal.observation, **spec.options()), goal
    if kind == "reward":
        options = flags.with_options(specs.Reward()).options()
        return policy.reward(data, setup.reward_of(text, policy, world, data), **options), None
    if kind == "labels":
        samples = labelled_samples(text, part_names(policy))
        return policy.prompt(flags.with_options(specs.Reward()), samples), None
    if kind == "load":
        return policy.load_prompt(text), None
    if kind == "follow":
        return policy.follow(demonstration(text, flags), flags.window), None
    if kind == "prefer":
        return policy.prefer(preferences(text, part_names(policy))), None
    if text == "prior":
        return policy.prior(seed=flags.seed), None
    return policy.skill(None if text == "random" else common.numbers(text, "--skill"), flags.seed), None


def combined(flags: Any, policy: FoundationPolicy, world: Any | None, prompt: Any) -> Any:
    """The prompt with what --add and --then say."""
    for text in flags.add:
        weight, colon, path = text.partition(":")
        try:
            share = float(weight) if colon else 1.0
        except ValueError:  # a path with a colon in it
            share, path = 1.0, text
        prompt = prompt + share * policy.load_prompt(path if colon else text)
    if flags.then is None:
        return prompt
    until: Any = flags.until
    if until is not None and re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", until):
        until = int(until)
    columns = {} if world is None else dict(world.columns)
    return base.UntilPrompt(prompt, until, columns).then(policy.load_prompt(flags.then))


def adapted(flags: Any, policy: FoundationPolicy, world: Any, prompt: Any) -> tuple[Any, float, float]:
    """The prompt after a search with a few episodes, and what the first and the best of these earned."""
    name = flags.earn if flags.earn is not None else flags.reward
    reward = None if name is None else setup.reward_of(name, policy, world)
    evaluator = rollouts.episode_return(policy, world, reward, flags.seed)
    search = rollouts.adapt(policy, prompt, evaluator, episodes=flags.adapt or 0, seed=flags.seed)
    return search.prompt, search.earned[0], search.earned[search.best]


# ---- prompts from files ----------------------------------------------------------------------------------------------


def demonstration(text: str, flags: Any) -> Any:
    """The observations of one episode of a data file: FILE, or FILE:3."""
    path, colon, number = text.rpartition(":")
    if not colon or not re.fullmatch("[0-9]{1,18}", number) or Path(text).exists():
        path, number = text, "0"
    data = common.read_as_trained(flags.run, path, flags)
    if int(number) >= data.episodes:
        raise HilpError(f"{path} has {data.episodes} episodes, counted from 0: there is no episode {number}")
    first = int(data.starts[int(number)])
    rows = slice(first, first + int(data.lengths[int(number)]))
    return trees.over(lambda part: np.asarray(part[rows]), data.observations)


def read_npz(path: str, names: Sequence[str], dims: int | None = None) -> Mapping[str, Any]:
    """Arrays of numbers by name; sizes are checked before memory is taken. dims: how many each must have."""
    found = columns.open_npz(Path(path))
    for name in names:
        if name not in found:
            raise HilpError(f"{path} has no '{name}'")
        if found[name].dtype.kind not in columns.NUMBERS:
            raise HilpError(f"'{name}' of {path} holds {found[name].dtype}, not numbers")
        if dims is not None and len(found[name].shape) != dims:
            raise HilpError(f"'{name}' of {path} holds {found[name].dtype} of shape {tuple(found[name].shape)}")
    return {name: found[name][:] for name in names}


def preferences(path: str, parts: Sequence[str]) -> list[tuple[Any, Any]]:
    """Pairs of segments from an npz file."""
    if parts:
        raise HilpError("--prefer takes plain vectors, and this policy has observations by name: use policy.prefer")
    wanted = "--prefer takes an npz file with 'better' and 'worse', numbers [pairs, rows, observation] each"
    with storage.told(wanted, HilpError):
        found = read_npz(path, ("better", "worse"), dims=3)
    better, worse = found["better"], found["worse"]
    if len(better) != len(worse):
        raise HilpError(f"{wanted}: it has {len(better)} better and {len(worse)} worse segments")
    return list(zip(better, worse, strict=True))


def labelled_samples(path: str, parts: Sequence[str] = ()) -> tuple[Any, ...]:
    """(observations, next_observations, rewards) from an npz file; parts are in there as `observations/camera`."""
    rows = ("observations", "next_observations")
    names = [*([f"{name}/{part}" for name in rows for part in parts] or rows), "rewards"]
    with storage.told(f"--labels takes an npz file with {some(names)}", HilpError):
        found = read_npz(path, names)
    return (*(trees.unnamed(found, name) for name in rows), found["rewards"])


# ---- acting ----------------------------------------------------------------------------------------------------------


def act_once(flags: Any, policy: FoundationPolicy, prompt: Any) -> Result:
    """Without a task: the skill and the action at one observation."""

    def shown(part: np.ndarray) -> Any:
        return f"{' x '.join(map(str, part.shape))} bytes" if part.dtype == np.uint8 else part.reshape(-1).tolist()

    row = np.random.default_rng(flags.seed).integers(max(1, len(policy.bank)), size=1)
    batch = trees.over(lambda rows: rows[row] if len(rows) else rows[:1], policy.bank.observations)
    if flags.start:
        batch = policy.check(common.numbers(flags.start, "--start")[None], "start", always=True).tree
    at = trees.over(lambda rows: rows[0], batch)
    z = np.asarray(prompt(batch))[0].tolist()
    prompt.reset()  # the action is that of the same step
    found = {name: shown(part) for name, part in trees.named(at, "at").items()}
    return {**found, "z": z, "action": policy.act(at, prompt).tolist()}


def with_names(result: Result, run: str) -> Result:
    """The result for the eye: numbers with the names of a log's columns, where the run kept episodes that have them."""
    kept = runs.held_out(Path(run))
    with contextlib.suppress(HilpError):  # of a held-out folder that is damaged: names are no reason to stop
        data = None if kept is None else dataset.Dataset.open(kept)
        for key in ("at", "action"):
            parts = () if data is None else data.observation_parts if key == "at" else data.action_parts
            values = result.get(key)
            if parts and isinstance(values, list):
                named = zip(measures.names_of(parts, len(values)), values, strict=True)
                result = {**result, key: [f"{name}={number:.3g}" for name, number in named]}
    return result


def act_in_task(
    flags: Any, kind: str, policy: FoundationPolicy, world: Any, prompt: Any, named: ResolvedGoal | None
) -> Result:
    """One episode in a task: where it went, what it earned, and its picture and film."""
    goal, to = destination(prompt, world, named)
    start = common.numbers(flags.start, "--start") if flags.start else None
    steps = int(world.max_steps if flags.steps is None else flags.steps)
    watched = recording.Watched(prompt) if flags.rerun else prompt
    episode = rollouts.run_episode(policy, world, watched, start, to, steps, flags.seed)
    path = episode.path
    result = {"task": world.name, "start": path[0].tolist(), "end": path[-1].tolist(), "steps": len(path) - 1}
    earned = None
    if flags.reward is not None:
        with contextlib.suppress(HilpError):  # of an extra column of the data that the task lacks
            earned = rollouts.rewards_along(world, setup.reward_of(flags.reward, policy, world), episode)
            result |= score(flags.reward, world, path, float(earned.sum()))
    if hasattr(prompt, "progress"):
        result["followed"] = float(prompt.progress[0])
    prompt.reset()  # the skill of the episode's first step
    result["z"] = np.asarray(prompt(episode.first_seen))[0].tolist()
    result |= reached(policy, world, prompt, None if flags.reward else goal, episode)
    begin = trees.over(lambda rows: rows[0], episode.first_seen)
    on_graph = getattr(prompt, "stuck", None) is not None
    if on_graph:
        info = prompt.path_info(begin)
        expected = round(info.steps, 1) if math.isfinite(info.steps) else None
        result |= {"reachable": info.reachable, "expected steps": expected}
        result["transitions behind the weakest edge"] = info.support
    if flags.picture:
        title = f"{prompt.kind if kind == 'load' else kind} prompt"
        draw(flags.picture, world, episode, goal, earned, title, prompt.path(begin) if on_graph else None)
        result["picture"] = flags.picture
    if flags.video:
        result["video"] = film(flags, policy, world, prompt, episode, to, steps)
    if flags.rerun:
        fps = getattr(world, "fps", common.VIDEO_FPS)
        result["rerun"] = str(recording.write(flags.rerun, policy, world, watched, episode, earned, fps))
    return result


def destination(prompt: Any, world: Any, named: ResolvedGoal | None) -> tuple[np.ndarray | None, Any]:
    """Where an episode ends, as a state and as the task takes it: at its goal, or where a high level learnt to get to.

    The policy acts towards a picture from which the task cannot infer a state, but when it is reached is not known.
    """
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


def reached(policy: FoundationPolicy, world: Any, prompt: Any, goal: np.ndarray | None, episode: Episode) -> Result:
    """Whether an episode reached its goal, as far as the task or phi can tell."""
    if goal is not None:
        return {"reached": episode.share == 1, **({SHARE: episode.share} if 0 < episode.share < 1 else {})}
    if prompt.kind == "goal" and world.has_goals and policy.has_rule("goal_direction"):
        return {"near it, by phi": bool(prompt.reached(episode.last_seen)[0])}  # the task cannot tell from a picture
    return {}


def score(name: str | None, world: Any, path: np.ndarray, earned: float) -> dict[str, float]:
    """What an episode scored under a reward: its return, and of getting somewhere the share of what was possible."""
    if name not in world.potentials:
        return {"return": earned}
    possible = world.potential_max(name) - float(world.potentials[name](path[:1])[0])
    return {"gain": earned, **({"share of the possible gain": earned / possible} if possible > 0 else {})}


def film(flags: Any, policy: FoundationPolicy, world: Any, prompt: Any, episode: Episode, goal: Any, steps: int) -> str:
    """Record the episode: as the simulator shows it, or on the plan, next to the same goal without a plan."""
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
    return str(video.write(str(flags.video), video.on_plan(policy, world, panels, shown), video.FPS))


def draw_way(flags: Any, policy: FoundationPolicy, prompt: Any, at: np.ndarray) -> None:
    """The landmarks of the data between an observation and a goal, over the first two columns of the goal."""
    from hilp.report import figures

    goal, reachable = np.asarray(prompt.goal), prompt.path_info(at).reachable != "no"
    seen = np.argsort(np.isnan(goal), kind="stable")[:2]
    names = measures.names_of(policy.observation_parts, len(goal))
    passed = np.concatenate([at[None], prompt.path(at), goal[None]] if reachable else [at[None]])[:, seen]
    title = "The data's way to the goal" if reachable else "The data has no way to the goal"
    drawn = figures.way(policy.bank.observations[:, seen], passed, goal[seen], [names[i] for i in seen], title)
    figures.save(drawn, flags.picture)


def draw(
    target: str, world: Any, episode: Episode, goal: np.ndarray | None, earned: np.ndarray | None, title: str, way: Any
) -> None:
    """The trajectory on the plan of its task; under a reward coloured by what it has earned.

    way: the observations that a prompt expected to pass, drawn where the task can infer their states.
    """
    from hilp.report import figures

    path = episode.path
    if earned is not None:
        title = f"{title}: earned {earned.sum():.3g}"
        figures.save(figures.earnings(world, path, np.concatenate([[0.0], np.cumsum(earned)]), title), target)
        return
    goals = np.full_like(path[:1], np.nan) if goal is None else goal[None]
    expected = rendering.infer_states(world, way) if way is not None and rendering.can_infer_states(world) else None
    done = np.array([episode.share == 1])
    figures.save(figures.trajectories(world, {title: ([path], path[:1], goals, done)}, way=expected), target)
