"""`hilp prompt`: prompt a policy once and watch it run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hilp.commands import common, prompt_episode
from hilp.errors import HilpError, some
from hilp.prompts import specs

if TYPE_CHECKING:
    from hilp.evaluation.goals import ResolvedGoal
    from hilp.policy.policy import FoundationPolicy

KINDS = ("goal", "reward", "labels", "skill", "load", "follow", "prefer")  # flags that are a prompt


@dataclass(frozen=True, kw_only=True)
class Flags(common.PromptOptions):
    """Prompt a policy once and watch it run in its task.

    Give one of --goal, --reward, --labels, --skill, --load, --follow, --prefer.
    """

    run: common.RunFolder
    """folder of a run or of a policy"""
    goal: str | None = None
    """goal: task3 (a name of the task), row:1234 (of --data, or of the policy's states), x=3,y=4, all numbers, or
    photo.png"""
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
    plan: str | None = None  # type: ignore[assignment]  # 'auto' depends on the policy
    """midpoint recursions of the goal prompt, 'graph' (ways of the data), 'midpoints', or 'auto' (default if it can)"""
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
    """GIF, WebP or MP4 file to record the episode to; in a maze next to the same goal without a plan"""
    json: bool = False
    """print JSON"""


def run(flags: Flags) -> int:
    policy, _ = common.load_policy(flags.run)
    world = common.task_if_known(policy, flags.task)
    flags, kind = one_prompt(flags, world)
    check_options(flags, kind)
    check_policy(flags, policy, world)
    prompt, goal = make_prompt(flags, kind, policy, world)
    prompt = combined(flags, policy, world, prompt)
    result: dict[str, Any] = {"prompt": kind, "policy": policy.fingerprint}
    if flags.adapt is not None:
        prompt, result["earned before"], result["earned adapted"] = adapted(flags, policy, world, prompt)
    for name, shown in (("r2", "r2"), ("agreement", "preferences explained")):
        if getattr(prompt, name, None) is not None:
            result[shown] = getattr(prompt, name)
    if world is None:
        result |= prompt_episode.act_once(flags, policy, prompt)
    else:
        result |= prompt_episode.act_in_task(flags, kind, policy, world, prompt, goal)
    if flags.save:
        prompt.save(flags.save)
        result["saved"] = flags.save
    common.print_result(result, flags.json)
    return 0


def one_prompt(flags: Flags, world: Any | None) -> tuple[Flags, str]:
    """The flags and the one kind of prompt they name; a task that is a reward, such as walker_run, stands for it."""
    from hilp import tasks

    named = [name for name in KINDS if getattr(flags, name) is not None]
    if not named and world is not None and flags.task in tasks.reward_tasks():
        return replace(flags, reward=next(iter(world.rewards))), "reward"
    if len(named) != 1:
        raise HilpError(
            f"give exactly one of {', '.join(f'--{name}' for name in KINDS)}, or a --task that is a reward "
            f"(given: {', '.join(named) or 'none'})"
        )
    return flags, named[0]


def check_options(flags: Flags, kind: str) -> None:
    """Raise where flags do not go together, before anything is run."""
    from hilp.evaluation import goals

    given = {name: [name] if getattr(flags, name) is not None else [] for name in ("plan", "window", "data")}
    for names, kinds in (
        (given["plan"] + flags.given_options(specs.Goal), ("goal",)),
        ([] if goals.is_row(flags.goal) else given["data"], ("reward", "goal row:...")),
        (flags.given_options(specs.Reward), ("reward", "labels")),
        (given["window"], ("follow",)),
    ):
        if names and kind not in kinds:
            used = " or ".join(f"--{name}" for name in kinds)
            flag = {"rule": f"rule {flags.rule}"}.get(names[0], names[0].replace("_", "-"))
            raise HilpError(
                f"--{flag} changes nothing about a prompt with --{kind}: leave it out, or prompt with {used}"
            )
    common.require_counts(flags, "steps", "adapt", "window")
    if flags.until is not None and flags.then is None:
        raise HilpError("--until says when --then begins: name a saved prompt with --then")
    if flags.earn is not None and flags.adapt is None:
        raise HilpError("--earn is what --adapt counts: say how many episodes to search with, --adapt 10")
    common.require_picture("--picture", flags.picture)


def check_policy(flags: Flags, policy: FoundationPolicy, world: Any | None) -> None:
    """Raise where flags do not go with the policy or its task, before anything is run."""
    from hilp.evaluation import goals, setup

    if world is not None:
        setup.require_fit("this policy", policy.spec, world)
        if flags.video:
            common.require_video(world, flags.video)
    if policy.spec.parts and flags.goal is not None and not goals.is_row(flags.goal):
        goals.find(flags.goal, policy, world)  # says what to give instead
    if world is None:
        check_without_task(flags, policy)


def check_without_task(flags: Flags, policy: FoundationPolicy) -> None:
    """Raise where flags need a task, or there is nothing to act at."""
    if any((flags.picture, flags.video, flags.steps, flags.adapt)):
        common.task_of(policy, flags.task)  # says that it needs one
    names = some(part_names(policy))
    if names and flags.start is not None:
        raise HilpError(f"--start takes numbers, but this policy has observations by name ({names}): leave it out")
    if not flags.start and not len(policy.bank):
        instead = "act in Python" if names else "name an observation to act at with --start"
        raise HilpError(f"this policy keeps no states (--bank 0): {instead}")


def part_names(policy: FoundationPolicy) -> list[str]:
    """The names of a policy's observations; none where they are plain vectors."""
    return [name for name, _, _ in policy.spec.parts]


# ---- making the prompt -----------------------------------------------------------------------------------------------


def make_prompt(
    flags: Flags, kind: str, policy: FoundationPolicy, world: Any | None
) -> tuple[Any, ResolvedGoal | None]:
    """The prompt of the one flag that is a prompt, and the goal that it names."""
    from hilp.evaluation import goals

    text = getattr(flags, kind)
    data = None if flags.data is None else common.read_as_trained(flags.run, flags.data, flags)
    if kind == "goal":
        usual = "auto" if policy.has_rule("goal_direction") else 0
        spec = flags.with_options(specs.Goal(plan=usual if flags.plan is None else common.plan(flags.plan)))
        spec, goal = goals.resolve(spec, policy, world, data, flags.seed)
        return policy.goal(goal.observation, **spec.goal_options()), goal
    if kind == "reward":
        options = flags.with_options(specs.Reward()).reward_options()
        return policy.reward(data, common.reward_of(text, policy, world), **options), None
    if kind == "labels":
        samples = labelled_samples(text, part_names(policy))
        return policy.prompt(flags.with_options(specs.Reward()), samples), None
    return policy.prompt(spec_of(flags, kind, policy)), None


def spec_of(flags: Flags, kind: str, policy: FoundationPolicy) -> specs.Spec:
    """The spec of a prompt that neither needs a task nor data."""
    text = getattr(flags, kind)
    if kind == "load":
        return specs.Saved(text)
    if kind == "follow":
        return specs.Follow(demonstration(text, flags), flags.window)
    if kind == "prefer":
        return specs.Prefer(preferences(text, part_names(policy)))
    if text == "prior":
        return specs.Prior(seed=flags.seed)
    return specs.Skill(None if text == "random" else tuple(common.numbers(text, "--skill")), flags.seed)


def combined(flags: Flags, policy: FoundationPolicy, world: Any | None, prompt: Any) -> Any:
    """The prompt with what --add and --then say."""
    from hilp.prompts import base

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
    if until is not None and until.strip().lstrip("+-").isdigit():
        until = int(until)
    ending = base.condition_of(prompt, until, {} if world is None else dict(world.columns))
    return base.ThenPrompt(prompt, policy.load_prompt(flags.then), ending)


def adapted(flags: Flags, policy: FoundationPolicy, world: Any, prompt: Any) -> tuple[Any, float, float]:
    """The prompt after a search with a few episodes, and what the first and the best of these earned."""
    from hilp.evaluation import rollouts

    name = flags.earn if flags.earn is not None else flags.reward
    reward = None if name is None else common.reward_of(name, policy, world)
    evaluator = rollouts.episode_return(policy, world, reward, flags.seed)
    search = rollouts.adapt(policy, prompt, evaluator, episodes=flags.adapt or 0, seed=flags.seed)
    return search.prompt, search.earned[0], search.earned[search.best]


# ---- prompts from files ----------------------------------------------------------------------------------------------


def demonstration(text: str, flags: Flags) -> Any:
    """The observations of one episode of a data file: FILE, or FILE:3."""
    import numpy as np

    from hilp import trees

    path, colon, number = text.rpartition(":")
    if not colon or not number.isdigit() or Path(text).exists():
        path, number = text, "0"
    data = common.read_as_trained(flags.run, path, flags)
    if int(number) >= data.episodes:
        raise HilpError(f"{path} has {data.episodes} episodes, counted from 0: there is no episode {number}")
    first = int(data.starts[int(number)])
    rows = slice(first, first + int(data.lengths[int(number)]))
    return trees.over(lambda part: np.asarray(part[rows]), data.observations)


def read_npz(path: str, names: Sequence[str], dims: int | None = None) -> Mapping[str, Any]:
    """Arrays of numbers by name; sizes are checked before memory is taken. dims: how many each must have."""
    from hilp.data import columns

    found = columns.open_npz(Path(path), tuple(names))
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
    try:
        found = read_npz(path, ("better", "worse"), dims=3)
    except HilpError as error:
        raise HilpError(f"{wanted}: {error}") from error
    better, worse = found["better"], found["worse"]
    if len(better) != len(worse):
        raise HilpError(f"{wanted}: it has {len(better)} better and {len(worse)} worse segments")
    return list(zip(better, worse, strict=True))


def labelled_samples(path: str, parts: Sequence[str] = ()) -> tuple[Any, ...]:
    """(observations, next_observations, rewards) from an npz file; parts are in there as `observations/camera`."""
    from hilp import trees

    rows = ("observations", "next_observations")
    names = [*([f"{name}/{part}" for name in rows for part in parts] or rows), "rewards"]
    try:
        found = read_npz(path, names)
    except HilpError as error:
        raise HilpError(f"--labels takes an npz file with {some(names)}: {error}") from error
    return (*(trees.unnamed(found, name) for name in rows), found["rewards"])
