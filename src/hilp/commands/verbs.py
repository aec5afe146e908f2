"""What each verb of the `hilp` command takes (a dataclass: flags and their help) and does (a function)."""

from __future__ import annotations

import json
import math
import shlex
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from hilp.errors import HilpError

if TYPE_CHECKING:
    from hilp.policy.policy import FoundationPolicy


Folder = Annotated[Positional[str], arg(metavar="RUN")]
PICTURES = (".png", ".svg", ".pdf")
VIDEO_FPS = 30.0


@dataclass(frozen=True)
class Quickstart:
    """Collect maze data, pretrain, evaluate and write a report: a few minutes on two cores."""

    out: str = "runs/quickstart"
    """folder to write"""
    task: str = "maze-large"
    """maze to run in"""
    steps: int | None = None
    """gradient updates (default: the laptop preset's)"""
    seed: int = 0
    """random seed of everything"""
    overwrite: bool = False
    """replace an earlier quickstart in the same folder"""
    json: bool = False
    """print results.json instead of tables"""


@dataclass(frozen=True)
class Pretrain:
    """Train a policy on unlabeled trajectories."""

    data: str
    """a built-in name (see `hilp data list`), a native folder or a file"""
    out: str
    """folder of the run"""
    method: str = "hilp"
    """what to train"""
    preset: str = "laptop"
    """laptop (two cores, minutes) or paper (the paper's tables)"""
    steps: int | None = None
    """gradient updates (default: the preset's)"""
    seed: int = 0
    """random seed"""
    seeds: int = 1
    """train this many seeds at once: seed, seed + 1, ..."""
    resume: bool = False
    """go on from the newest good checkpoint in --out"""
    set: tuple[str, ...] = ()
    """config values to change: key=value ..."""
    bank: int | None = None
    """states kept in the policy for planning (default: the preset's)"""
    validation: float = 0.0
    """share of episodes held out to watch the losses on"""
    format: str | None = None
    """read the data as this format (default: recognised by content)"""
    option: tuple[str, ...] = ()
    """options of the format's reader: key=value ..."""
    rescale_actions: bool = False
    """map each action column's range to [-1, 1]; the policy maps its actions back"""
    verify: bool = False
    """compare a native folder with its checksums first"""
    device_budget: float | None = None
    """MiB of data to put on the device; larger data is streamed (default: half of the device's memory)"""
    eval_task: str | None = None
    """look at the success of a goal prompt in this task while training"""
    eval_every: int | None = None
    """updates between two looks (default: a fifth of the run)"""
    checkpoint_every: int | None = None
    """updates between two checkpoints (default: a tenth of the run)"""
    keep: int = 2
    """checkpoints kept on disk"""
    json: bool = False
    """print a JSON line about the trained policy, and no progress"""


@dataclass(frozen=True)
class Evaluate:
    """Prompt a policy with random goals, and with named rewards, in a task."""

    run: Folder
    """folder of a run or of a policy"""
    task: str | None = None
    """task, map or map file (default: the one its data was collected in)"""
    plan: tuple[str, ...] | None = None
    """midpoint recursions of the goal prompt, several may be given (default: 0 1 3 auto where the policy can plan)"""
    rewards: tuple[str, ...] | None = None
    """named rewards of the task to prompt with as well, or 'all' (default: all, in a task without goals)"""
    rule: Literal["skill", "goal"] = "skill"
    """turn a reward into a skill, or into the goal of highest reward (HILP-G)"""
    intercept: bool = False
    """fit a constant beside the features, so that adding one to the reward changes nothing"""
    data: str | None = None
    """data set to label with the rewards (default: the transitions kept in the policy)"""
    video: str | None = None
    """GIF, WebP or MP4 file to record the first episode of each reward to (the reward's name is added)"""
    episodes: int = 50
    """episodes per prompt"""
    seed: int = 0
    """seed of starts and goals"""
    rows: str | None = None
    """JSONL file to append the rows to (default: rows.jsonl beside the policy)"""
    json: bool = False
    """print one JSON line a row instead of a table"""


@dataclass(frozen=True)
class Prompt:
    """Prompt a policy once and watch it run in its task. Give one of --goal, --reward, --labels, --skill, --load."""

    run: Folder
    """folder of a run or of a policy"""
    goal: str | None = None
    """goal observation, numbers separated by commas"""
    reward: str | None = None
    """named reward of the task, or a formula over the observation, e.g. "height - 0.1*norm(action)\""""
    labels: str | None = None
    """npz file of labelled samples: observations, next_observations, rewards"""
    skill: str | None = None
    """'random', or a latent direction as numbers separated by commas"""
    load: str | None = None
    """a prompt saved earlier for this policy"""
    plan: str | None = None
    """midpoint recursions of the goal prompt (default: auto where the policy can plan)"""
    rule: Literal["skill", "goal"] = "skill"
    """turn a reward into a skill, or into the goal of highest reward (HILP-G)"""
    intercept: bool = False
    """fit a constant beside the features, so that adding one to the reward changes nothing"""
    data: str | None = None
    """data set to label with the reward (default: the transitions kept in the policy)"""
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
    """GIF, WebP or MP4 file to record the episode to (simulated tasks)"""
    json: bool = False
    """print JSON"""


@dataclass(frozen=True)
class Diagnose:
    """How well the latent distance fits the task, in numbers and in words."""

    run: Folder
    """folder of a run or of a policy"""
    task: str | None = None
    """task with exact distances (default: the one its data was collected in)"""
    data: str | None = None
    """data set to train a separate V(s, g) on, for tasks without exact distances and for the asymmetry of the data"""
    format: str | None = None
    """read the data as this format (default: recognised by content)"""
    option: tuple[str, ...] = ()
    """options of the format's reader: key=value ..."""
    rescale_actions: bool = False
    """as it was trained: map each action column's range to [-1, 1]"""
    steps: int = 5000
    """updates of that V"""
    seed: int = 0
    """random seed"""
    json: bool = False
    """print JSON"""


@dataclass(frozen=True)
class Map:
    """Draw the latent space beside the plan of the task and, where latents are distances, those to a goal."""

    run: Folder
    """folder of a run or of a policy"""
    out: str | None = None
    """PNG, SVG or PDF file (default: latents.png in the run); distances get '-distances' before the ending"""
    task: str | None = None
    """task with a plan to draw on (default: the one its data was collected in)"""
    data: str | None = None
    """data set to take states from (default: the states kept in the policy)"""
    points: int = 1000
    """states whose latents are drawn (t-SNE takes at most 1,500)"""
    flatten: Literal["tsne", "pca"] | None = None
    """how latents come onto a plane: t-SNE or principal components (default: t-SNE above two dimensions)"""
    goal: str | None = None
    """goal of the distances, numbers separated by commas (default: one that `hilp evaluate` could draw)"""
    seed: int = 0
    """seed of the states and of that goal"""
    json: bool = False
    """print JSON"""


@dataclass(frozen=True)
class Report:
    """Write one self-contained HTML page about a run."""

    run: Folder
    """folder of a run"""
    out: str | None = None
    """page to write (default: report.html in the run)"""


@dataclass(frozen=True)
class Bench:
    """Measure on this machine; every timing is a ratio against something measured in the same run."""

    what: Positional[Literal["speed", "data"]] = "speed"
    """speed: train_step, sf_train_step, plan, act, memory, import, help; data: convert, stream (1.3 GB of disk)"""
    only: tuple[str, ...] = ()
    """names to measure (default: all)"""


@dataclass(frozen=True)
class BenchTable:
    """What both tables of methods take."""

    preset: str = "laptop"
    """laptop or paper"""
    steps: int | None = None
    """gradient updates of each policy (default: the preset's)"""
    seeds: int = 4
    """policies of each method: seed, seed + 1, ..."""
    seed: int = 0
    """first seed"""
    set: tuple[str, ...] = ()
    """config values to change for all: key=value ..."""
    sweep: str | None = None
    """a config value to vary, one table row each: key=value,value,..., e.g. dim=2,8,32,128"""
    variants: tuple[str, ...] = ()
    """more rows for each method, with config values changed: name:key=value,key=value ... (sizes as 256x256)"""
    out: str = "runs/bench"
    """folder of the runs and of the pictures"""
    rows: str | None = None
    """JSONL file of rows to add to (default: named after the table, in --out)"""
    json: bool = False
    """print the table as JSON, and no progress"""


@dataclass(frozen=True)
class BenchRewards(BenchTable):
    """Train methods on unlabeled data and prompt each with every reward of the task: the paper's zero-shot RL table.

    Give the command again to go on after an interruption: cells whose rows exist are skipped.
    """

    data: tuple[str, ...] = ("maze-large",)
    """data sets, each with a task that has rewards: mazes by name, or what `hilp data collect` wrote"""
    methods: tuple[str, ...] = ()
    """methods to compare; sf-hilp-g is HILP prompted with the goal of highest reward (default: the paper's nine)"""
    episodes: int = 50
    """episodes per reward"""
    intercept: bool = False
    """prompt with a constant fitted beside the features"""


@dataclass(frozen=True)
class BenchGoals(BenchTable):
    """Train methods on unlabeled data and send each to the goals of the task: the paper's goal-conditioned table.

    Give the command again to go on after an interruption: cells whose rows exist are skipped.
    """

    data: tuple[str, ...] = ("maze-large", "maze-ultra")
    """data sets, each with a task that has goals: mazes by name, or what `hilp data collect` wrote"""
    methods: tuple[str, ...] = ()
    """methods to compare (default: the paper's eight; HILP-Plan is a prompt of hilp)"""
    episodes: int = 100
    """start-goal pairs per prompt"""
    looks: int = 0
    """how often to look at policies while they are trained, for a learning curve (50 pairs each)"""
    errors: bool = False
    """also compare each policy's distances with the true ones (a value V(s, g) of the data where nobody knows them)"""


@dataclass(frozen=True)
class DataList:
    """List the data sets and tasks that come with hilp."""

    json: bool = False
    """print JSON"""


@dataclass(frozen=True)
class DataInspect:
    """Say what is in a data set and what is wrong with it. Exit code 1 when it cannot be trained on."""

    data: Annotated[Positional[str], arg(metavar="DATA")]
    """a built-in name, a Minari id, a folder or a file"""
    format: str | None = None
    """read it as this format (default: recognised by content)"""
    option: tuple[str, ...] = ()
    """options of the format's reader: key=value ..."""
    rescale_actions: bool = False
    """judge it as if actions were mapped to [-1, 1]"""
    picture: str | None = None
    """PNG, SVG or PDF file to draw some episodes to"""
    json: bool = False
    """print JSON"""


@dataclass(frozen=True)
class DataConvert:
    """Write any readable data set as a native folder (memory-mapped, with checksums), for Minari or as ExORL does."""

    source: Annotated[Positional[str], arg(metavar="SOURCE")]
    """a built-in name, a Minari id, a folder or a file"""
    target: Annotated[Positional[str], arg(metavar="TARGET")]
    """folder to write, or a Minari id such as robot/log-v0"""
    to: Literal["native", "minari", "exorl"] = "native"
    """what to write"""
    format: str | None = None
    """read the source as this format (default: recognised by content)"""
    option: tuple[str, ...] = ()
    """options of the format's reader: key=value ..."""
    rescale_actions: bool = False
    """map each action column's range to [-1, 1]; a policy maps its actions back"""
    overwrite: bool = False
    """replace an existing data set"""
    json: bool = False
    """print JSON, and no progress"""


@dataclass(frozen=True)
class DataCollect:
    """Collect unlabeled trajectories in a task into a native folder."""

    task: str
    """task, map or map file"""
    out: str
    """folder to write"""
    kind: str | None = None
    """behaviour to collect: navigate, explore, stitch (mazes); rnd, apt, random (robots); diverse, play (AntMaze)"""
    steps: int = 300_000
    """transitions"""
    seed: int = 0
    """random seed"""
    workers: int | None = None
    """processes or threads that simulate (default: one a core)"""
    overwrite: bool = False
    """replace an existing data set"""
    json: bool = False
    """print JSON"""


# ---- what the verbs do -----------------------------------------------------------------------------------------------


def run_quickstart(args: Quickstart) -> int:
    from hilp import runs
    from hilp.commands import quickstart
    from hilp.evaluation import rollouts
    from hilp.report import page

    _require_counts(args, "steps")
    results = quickstart.quickstart(
        args.out,
        task=args.task,
        steps=args.steps,
        seed=args.seed,
        overwrite=args.overwrite,
        quiet=args.json,
        command=_command(),
    )
    if args.json:
        print(json.dumps(results))
        return 0
    _print_table(*page.results_table(rollouts.read_rows(f"{args.out}/{runs.ROWS}")), title=args.task)
    seconds = ", ".join(f"{name} {value:.0f} s" for name, value in results["seconds"].items())
    print(f"rank correlation of |phi(s) - phi(g)| with the exact distance: {results['rank_correlation']:.3f}")
    print(f"{seconds}\npictures: {args.out}/{runs.PAGE}")
    return 0


def run_pretrain(args: Pretrain) -> int:
    from hilp import presets, tasks
    from hilp.collectors import named
    from hilp.evaluation import rollouts
    from hilp.learning import methods
    from hilp.training import loop

    _require_counts(args, "steps", "seeds", "eval_every", "checkpoint_every", "keep")
    if args.bank is not None and args.bank < 0:
        raise HilpError(f"--bank must be at least 0, not {args.bank}")
    if args.device_budget is not None and not 0 <= args.device_budget < math.inf:
        raise HilpError(f"--device-budget must be a number of MiB from 0 on, not {args.device_budget}")
    presets.preset(args.method, args.preset)  # a wrong name is told before data is read
    world = None if args.eval_task is None else tasks.make(args.eval_task)
    options = _reader_options(args.option) | ({"verify": True} if args.verify else {})
    data = named.load(args.data, args.format, rescale_actions=args.rescale_actions, **options)
    preset = presets.preset(args.method, args.preset, data.task)
    config = methods.configure(preset.config, dict(_key_value(text, "--set") for text in args.set))
    steps = preset.steps if args.steps is None else args.steps
    look = None
    if world is not None:
        rollouts.require_fit("this data", data.observation_dim, data.action_dim, world)
        world = world.for_data(data.observations[0])
        look = partial(rollouts.look, world=world, seed=args.seed)

    trained = loop.pretrain(
        config,
        data,
        steps=steps,
        seed=args.seed,
        seeds=args.seeds,
        out=args.out,
        resume=args.resume,
        bank=preset.bank if args.bank is None else args.bank,
        validation=args.validation,
        evaluate=look,
        eval_every=args.eval_every,
        checkpoint_every=args.checkpoint_every,
        keep=args.keep,
        device_budget=None if args.device_budget is None else int(args.device_budget * 2**20),
        quiet=args.json,
        command=_command(),
    )
    policies = trained if isinstance(trained, list) else [trained]
    if args.json:
        told = {"out": args.out, "policies": [policy.fingerprint for policy in policies], "data": data.fingerprint}
        print(json.dumps({**told, "steps": steps, "preset": args.preset}))
    else:
        count = "a policy" if len(policies) == 1 else f"{len(policies)} policies"
        print(f"trained {count} in {args.out}: try `hilp evaluate {args.out}`")
    return 0


def run_evaluate(args: Evaluate) -> int:
    from hilp import runs
    from hilp.collectors import named
    from hilp.evaluation import rollouts
    from hilp.report import page
    from hilp.runs import seed_folders

    _require_counts(args, "episodes")
    plans = None if args.plan is None else [_plan(text) for text in args.plan]
    if plans == [] and not args.rewards:
        raise HilpError("nothing to evaluate: --plan takes at least one number of recursions or 'auto'")
    data = None if args.data is None else named.load(args.data)
    seeds = seed_folders(Path(args.run))
    rows = []
    for folder in map(str, seeds or [Path(args.run)]):
        policy, home = _policy(folder)
        world = _task(policy, args.task)
        if args.video:
            _require_film(world, args.video)
        rewards = (*world.potentials, *world.rewards) if args.rewards == ("all",) else args.rewards
        paths: dict[str, Any] = {}
        found = rollouts.evaluate(
            policy,
            world,
            plan=plans,
            rewards=rewards,
            rule=args.rule,
            intercept=args.intercept,
            data=data,
            episodes=args.episodes,
            seed=args.seed,
            command=_command(),
            paths=paths,
        )
        best = rollouts.best_look((home.parent if seeds else home) / runs.METRICS)
        found = [{**row, "best_look": best} for row in found]
        rollouts.append_rows(args.rows or home / runs.ROWS, found)
        rows += found
        if args.video:
            _record(world, paths, Path(args.video), f"-{Path(folder).name}" if seeds else "")
    if args.json:
        for row in rows:
            print(json.dumps(row))
    elif seeds:
        _print_table(*page.aggregate_table(rows), title=f"{world.name}, {len(seeds)} seeds")
    else:
        _print_table(*page.results_table(rows), title=world.name)
    return 0


def run_prompt(args: Prompt) -> int:
    import numpy as np

    from hilp import tasks
    from hilp.evaluation import rollouts

    given = [name for name in ("goal", "reward", "labels", "skill", "load") if getattr(args, name) is not None]
    policy, _ = _policy(args.run)
    world: Any = _task(policy, args.task) if args.task or policy.provenance.task else None
    if not given and args.task in tasks.reward_tasks():
        args, given = replace(args, reward=next(iter(world.rewards))), ["reward"]
    if len(given) != 1:
        raise HilpError(
            "give exactly one of --goal, --reward, --labels, --skill, --load, or a --task that is a reward "
            f"(given: {', '.join(given) or 'none'})"
        )
    _require_counts(args, "steps")
    if args.picture and Path(args.picture).suffix not in PICTURES:
        raise HilpError(f"--picture takes a file that ends in {', '.join(PICTURES)}, not '{args.picture}'")
    if world is None and (args.picture or args.video or args.steps):
        world = _task(policy, args.task)  # says that it needs one
    if world is not None:
        rollouts.require_fit("this policy", policy.spec.observation_dim, policy.spec.action_dim, world)
    if args.video:
        _require_film(world, args.video)
    with warnings.catch_warnings(record=True) as told_on_the_way:
        warnings.simplefilter("always")
        prompt = _prompt_of(args, policy, world)
    for warning in told_on_the_way:
        print(f"hilp: warning: {warning.message}", file=sys.stderr)
    told: dict[str, Any] = {"prompt": given[0], "policy": policy.fingerprint}
    if getattr(prompt, "r2", None) is not None:
        told["r2"] = prompt.r2
    if world is not None:
        goal = prompt.goal if prompt.kind == "goal" and world.has_goals else None
        start = _numbers(args.start, "--start") if args.start else None
        steps = world.max_steps if args.steps is None else args.steps
        path, physics, reached = rollouts.rollout_once(policy, world, prompt, start, goal, steps, args.seed)
        told |= {"task": world.name, "start": path[0].tolist(), "end": path[-1].tolist(), "steps": len(path) - 1}
        if args.reward is not None and args.reward in world.rewards:
            told["return"] = rollouts.path_return(policy, world, args.reward, prompt, path, physics)
        told["z"] = np.asarray(prompt(path[:1]))[0].tolist()
        if goal is not None:
            told["reached"] = reached
        if args.picture:
            from hilp.report import figures

            goals = np.full_like(path[:1], np.nan) if goal is None else goal[None]
            title = f"{given[0]} prompt"
            figures.save(figures.trajectories(world, [path], path[:1], goals, np.array([reached]), title), args.picture)
            told["picture"] = args.picture
        if args.video:
            from hilp.report import video

            told["video"] = str(video.write(args.video, world.film(path, physics), getattr(world, "fps", VIDEO_FPS)))
    else:
        at = _numbers(args.start, "--start") if args.start else policy.bank.observations[0]
        told |= {
            "at": at.tolist(),
            "z": np.asarray(prompt(at[None]))[0].tolist(),
            "action": policy.act(at, prompt).tolist(),
        }
    if args.save:
        prompt.save(args.save)
        told["saved"] = args.save
    _tell(told, args.json)
    return 0


def _prompt_of(args: Prompt, policy: FoundationPolicy, world: Any) -> Any:
    """The prompt that the flags ask for."""
    from hilp.collectors import named
    from hilp.evaluation import rollouts

    if args.goal is not None:
        plan = ("auto" if policy.has_rule("direct") else 0) if args.plan is None else _plan(args.plan)
        return policy.goal(_numbers(args.goal, "--goal"), plan=plan)
    if args.skill is not None:
        return policy.skill(None if args.skill == "random" else _numbers(args.skill, "--skill"), seed=args.seed)
    if args.load is not None:
        return policy.load_prompt(args.load)
    if args.labels is not None:
        return policy.reward(_labelled_samples(args.labels), rule=args.rule, intercept=args.intercept)
    assert args.reward is not None
    data = None if args.data is None else named.load(args.data)
    by_name = world is not None and (args.reward in world.potentials or args.reward in world.rewards)
    if args.reward.isidentifier() and not by_name and args.reward not in dict(policy.observation_parts):
        if world is None:
            raise HilpError(
                f"'{args.reward}' is a name: name the task whose reward it is with --task, or give a formula"
            )
        rollouts.require_reward(world, args.reward)  # says which names there are
    function = rollouts.reward_function(world, args.reward) if by_name else args.reward
    return policy.reward(data, function, rule=args.rule, intercept=args.intercept)


def _labelled_samples(path: str) -> Any:
    """(observations, next_observations, rewards) from an npz file."""
    import numpy as np

    wanted = ("observations", "next_observations", "rewards")
    try:
        file = np.load(path, allow_pickle=False)
        return tuple(file[name] for name in wanted)
    except (OSError, ValueError, LookupError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise HilpError(f"--labels takes an npz file with {', '.join(wanted)}: {path}: {error}") from error


def run_diagnose(args: Diagnose) -> int:
    from hilp.collectors import named
    from hilp.evaluation import diagnosis

    _require_counts(args, "steps")
    policy, _ = _policy(args.run)
    world = _task(policy, args.task) if args.task or policy.provenance.task else None
    data = None
    if args.data:
        options = _reader_options(args.option)
        data = named.load(args.data, args.format, rescale_actions=args.rescale_actions, **options)
    result = diagnosis.diagnose(policy, world, data, steps=args.steps, seed=args.seed, quiet=args.json)
    if args.json:
        print(json.dumps(result))
    else:
        for sentence in diagnosis.words(result):
            print(f"- {sentence}")
    return 0


def run_map(args: Map) -> int:
    from hilp.collectors import named
    from hilp.evaluation import rollouts
    from hilp.policy.bank import Bank
    from hilp.report import figures, page

    _require_counts(args, "points")
    if args.out is not None and Path(args.out).suffix not in PICTURES:
        raise HilpError(f"--out takes a file that ends in {', '.join(PICTURES)}, not '{args.out}'")
    policy, home = _policy(args.run)
    policy.require_rule("encode", "has no latent map")
    world = _task(policy, args.task)
    if not world.has_goals:
        raise HilpError(f"{world.name} has no plan to draw on: mazes and AntMaze have one")
    rollouts.require_fit("this policy", policy.spec.observation_dim, policy.spec.action_dim, world)
    goal = None if args.goal is None else _numbers(args.goal, "--goal")
    if goal is not None:
        policy.require_rule("direct", "does not learn distances: leave out --goal")
    sample = policy.bank
    if args.data is not None:
        data = named.load(args.data)
        rollouts.require_fit("this data", data.observation_dim, data.action_dim, world)
        sample = Bank.draw(data, max(args.points, page.FIELD_STATES), args.seed)
    if len(sample) == 0:
        raise HilpError("this policy keeps no states (--bank 0): name a data set with --data")
    target = home / "latents.png" if args.out is None else Path(args.out)
    drawn = sample.subsample(args.points, args.seed).observations
    told: dict[str, Any] = {"policy": policy.fingerprint, "task": world.name, "points": len(drawn)}
    pictures = {}
    if policy.has_rule("direct"):
        goal = page.evaluation_goal(world, goal, args.seed)
        told["goal"] = goal.tolist()
        beside = target.with_stem(f"{target.stem}-distances")
        pictures["distances"] = (page.learned_distances(policy, world, sample, goal), beside)
    pictures["latents"] = (figures.latent_map(world, drawn, policy.encode(drawn), flatten=args.flatten), target)
    _tell(told | {name: str(figures.save(*picture)) for name, picture in pictures.items()}, args.json)
    return 0


def run_report(args: Report) -> int:
    from hilp.report import page

    print(page.write(args.run, args.out))
    return 0


def run_bench(args: Bench) -> int:
    from hilp.bench import data, speed

    for line in (speed if args.what == "speed" else data).measure(args.only):
        print(json.dumps(line), flush=True)
    return 0


def _fill_table(
    kind: Literal["rewards", "goals"],
    args: BenchRewards | BenchGoals,
    usual: tuple[str, ...],
    *,
    intercept: bool = False,
    errors: bool = False,
    looks: int = 0,
) -> tuple[Any, str | None]:
    """The rows of a table, run where they are missing, and the key of its sweep."""
    from hilp.bench import table

    _require_counts(args, "steps", "seeds", "episodes")
    sweep = None
    if args.sweep is not None:
        key, values = _key_value(args.sweep, "--sweep")
        sweep = (key, [value for value in values.split(",") if value])
    out = Path(args.out)
    rows = table.fill(
        kind,
        table.entries(
            args.methods or usual,
            dict(_key_value(text, "--set") for text in args.set),
            sweep,
            [_variant(text) for text in args.variants],
        ),
        args.data,
        range(args.seed, args.seed + args.seeds),
        size=args.preset,
        steps=args.steps,
        episodes=args.episodes,
        intercept=intercept,
        errors=errors,
        looks=looks,
        out=out,
        file=Path(args.rows) if args.rows else out / f"{kind}.jsonl",
        quiet=args.json,
        command=_command(),
        tell=lambda text: None if args.json else print(text, flush=True),
    )
    return rows, None if sweep is None else sweep[0]


def run_bench_goals(args: BenchGoals) -> int:
    from hilp.bench import table
    from hilp.report import figures

    if args.looks < 0:
        raise HilpError(f"--looks must be at least 0, not {args.looks}")
    rows, swept = _fill_table("goals", args, table.GOAL_METHODS, errors=args.errors, looks=args.looks)
    if args.json:
        print(json.dumps({"table": table.goal_table(rows)}))
        return 0
    title = f"100 x success, {args.preset}, {args.seeds} seeds, {args.episodes} pairs each (ours / paper)"
    _print_table(*table.goal_table(rows), title=title)
    for note in table.value_notes(rows):
        print(note)
    out = Path(args.out)
    for name, own in table.by_data(rows):
        for label in dict.fromkeys(row["cell"]["label"] for row in own):
            fig = table.planning_figure(own, label)
            if fig is not None:
                figures.save(fig, out / f"goals-plan-{table.file_name(name)}-{table.file_name(label)}.png")
        for what, fig in (("errors", table.error_figure(own, swept)), ("curve", table.curve_figure(own))):
            if fig is not None:
                figures.save(fig, out / f"goals-{what}-{table.file_name(name)}.png")
            elif what == "curve" and args.looks:
                print(f"note: no learning curve of {name}: its policies were trained without --looks")
    if swept is not None:
        figures.save(table.goal_sweep_figure(rows, swept), out / f"goals-sweep-{swept}.png")
    print(f"pictures: {out}")
    return 0


def run_bench_rewards(args: BenchRewards) -> int:
    from hilp.bench import table
    from hilp.report import figures

    rows, swept = _fill_table("rewards", args, table.REWARD_METHODS, intercept=args.intercept)
    tables = {name: table.table(own) for name, own in table.by_data(rows)}
    beside = {name: table.paper_table(own) for name, own in table.by_data(rows)}
    if args.json:
        print(json.dumps({"tables": tables, "beside_the_paper": beside}))
        return 0
    out = Path(args.out)
    for name, own in tables.items():
        _print_table(*own, title=f"{name}, {args.preset}, {args.seeds} seeds")
        theirs = beside[name]
        if theirs is not None:
            _print_table(*theirs, title=f"{name} beside the paper")
    for group in ("environment", "data", "task") if len(args.data) > 1 else ("data",):
        for name, labels in table.aggregates(rows, group).items():
            middle, low, high = zip(*labels.values(), strict=True)
            fig = figures.bars(list(labels), middle, low, high, title=f"{name}: IQM of all rewards")
            figures.save(fig, out / f"rewards-{group}-{table.file_name(name)}.png")
    if swept is not None:
        figures.save(table.sweep_figure(rows, swept), out / f"rewards-sweep-{swept}.png")
    print(f"pictures: {out}")
    return 0


def run_data_list(args: DataList) -> int:
    from hilp import tasks
    from hilp.collectors import named
    from hilp.learning import methods

    built_in = {name: {"task": task, "kind": kind} for name, (task, kind) in named.built_in_names().items()}
    if args.json:
        print(json.dumps({"data": built_in, "tasks": tasks.names(), "methods": sorted(methods.MODULES)}))
    else:
        lines = [[name, about["task"], about["kind"], f"{named.BUILT_IN_STEPS:,}"] for name, about in built_in.items()]
        _print_table(["data", "task", "kind", "transitions"], lines, title="collected on the spot, no download")
    return 0


def run_data_inspect(args: DataInspect) -> int:
    from hilp.collectors import named
    from hilp.data import audit, page
    from hilp.report import data_picture

    picture = None if args.picture is None else data_picture.require_file(args.picture)
    options = _reader_options(args.option)
    verify = options.pop("verify", True)
    source = named.open_source(args.data, args.format, **options)
    report = audit.inspect(source, rescale_actions=args.rescale_actions, verify=verify)
    if picture is not None:
        data_picture.save(report, picture)
    if args.json:
        print(json.dumps(report.to_json()))
    else:
        from rich.console import Console

        Console().print(page.render(report))
    return report.exit_code


def run_data_convert(args: DataConvert) -> int:
    from hilp.collectors import named
    from hilp.data import convert
    from hilp.data.formats import exorl
    from hilp.training.progress import Bar

    options = _reader_options(args.option)
    if args.to == "exorl":
        if args.overwrite:
            raise HilpError("--to exorl does not overwrite: choose another folder")
        data = named.load(args.source, args.format, rescale_actions=args.rescale_actions, **options)
        _tell({"out": str(exorl.write(data, args.target)), "to": args.to}, args.json)
        return 0
    verify = options.pop("verify", True)
    with Bar(quiet=args.json) as bar:
        folder = convert.convert(
            named.open_source(args.source, args.format, **options),
            args.target,
            to=args.to,
            overwrite=args.overwrite,
            verify=verify,
            rescale_actions=args.rescale_actions,
            progress=bar,
        )
    _tell({"out": str(folder), "to": args.to}, args.json)
    return 0


def run_data_collect(args: DataCollect) -> int:
    from hilp.collectors import collect
    from hilp.data import native
    from hilp.training.progress import Progress

    _require_counts(args, "steps", "workers")
    if Path(args.out).exists():
        if not args.overwrite:
            raise HilpError(f"{args.out} already exists: pass --overwrite or choose another --out")
        if not native.is_native(args.out):
            raise HilpError(f"{args.out} is not a data set, so --overwrite will not delete it: choose another --out")
    with Progress(args.steps, quiet=args.json, verb="collecting") as progress:
        data = collect(
            args.task,
            args.kind,
            args.steps,
            args.seed,
            lambda done: progress.advance(done - progress.done, {}, {}),
            out=args.out,
            workers=args.workers,
            overwrite=args.overwrite,
        )
    _tell(
        {"out": args.out, "transitions": data.transitions, "episodes": data.episodes, "fingerprint": data.fingerprint},
        args.json,
    )
    return 0


def _require_film(world: Any, path: str) -> None:
    """Raise where a video cannot be had, before anything is run for it."""
    from hilp.report import video

    if not hasattr(world, "film"):
        raise HilpError(f"there is no film of {world.name}: draw it with `hilp prompt --picture`")
    if Path(path).suffix.lower() not in video.ENDINGS:
        raise HilpError(f"--video takes a file that ends in {', '.join(video.ENDINGS)}, not '{path}'")


def _record(world: Any, paths: dict[str, Any], target: Path, suffix: str) -> None:
    """Film the first episode of each rollout; the rollout's name goes before the file's ending."""
    from hilp.report import video

    for name, kept in paths.items():
        length = int(kept["lengths"][0])
        physics = kept["physics"][:length, 0] if "physics" in kept else None
        frames = world.film(kept["observations"][: length + 1, 0], physics)
        stem = f"{target.stem}-{name.replace(' ', '-')}{suffix}"
        video.write(target.with_stem(stem), frames, getattr(world, "fps", VIDEO_FPS))


def _require_counts(args: Any, *names: str) -> None:
    """Numbers of things are at least 1 where given, and seeds what every generator takes."""
    for name in names:
        value = getattr(args, name)
        if value is not None and value < 1:
            raise HilpError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
    if not 0 <= args.seed < 2**31:
        raise HilpError(f"--seed must be a number from 0 to {2**31 - 1}, not {args.seed}")


def _key_value(text: str, flag: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise HilpError(f"{flag} takes key=value, not '{text}'")
    return key.strip(), value.strip()


def _variant(text: str) -> tuple[str, dict[str, str]]:
    """A row of a table: its name and the config values that it changes."""
    name, colon, values = text.partition(":")
    if not colon or not name.strip():
        raise HilpError(f"--variants takes name:key=value,key=value, not '{text}'")
    return name.strip(), dict(_key_value(part, "--variants") for part in values.split(","))


def _reader_options(texts: tuple[str, ...]) -> dict[str, Any]:
    """Options of a reader from key=value: numbers, true, false and JSON lists as such, anything else as text."""
    options: dict[str, Any] = {}
    for text in texts:
        key, value = _key_value(text, "--option")
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
    return options


def _plan(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isdecimal():
        raise HilpError(f"--plan takes numbers of recursions or 'auto', not '{text}'")
    return int(text)


def _numbers(text: str, flag: str) -> Any:
    import numpy as np

    try:
        return np.array([float(part) for part in text.split(",")], np.float32)
    except ValueError:
        raise HilpError(f"{flag} takes numbers separated by commas, not '{text}'") from None


def _policy(run: str) -> tuple[FoundationPolicy, Any]:
    """A policy and the folder that its rows belong to."""
    from hilp.policy.policy import FoundationPolicy
    from hilp.runs import find, home

    folder = find(Path(run))
    return FoundationPolicy.load(folder), home(folder)


def _task(policy: FoundationPolicy, name: str | None) -> Any:
    from hilp.evaluation import rollouts

    known = name or policy.provenance.task
    if known is None:
        raise HilpError("this policy's data does not say which task it comes from: name one with --task")
    return rollouts.task_of(policy, known)


def _tell(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts))
    else:
        for name, value in facts.items():
            shown = " ".join(f"{v:.3g}" for v in value) if isinstance(value, list) and name != "extras" else value
            print(f"{name}: {shown}")


def _print_table(headers: list[str], lines: list[list[Any]], title: str) -> None:
    from rich.console import Console

    from hilp.report.markup import rich_table

    Console().print(rich_table(headers, lines, title))


def _command() -> str:
    return shlex.join(["hilp", *sys.argv[1:]])


RUN: dict[str, tuple[type, Callable[[Any], int]]] = {
    "quickstart": (Quickstart, run_quickstart),
    "pretrain": (Pretrain, run_pretrain),
    "evaluate": (Evaluate, run_evaluate),
    "prompt": (Prompt, run_prompt),
    "diagnose": (Diagnose, run_diagnose),
    "map": (Map, run_map),
    "report": (Report, run_report),
    "bench": (Bench, run_bench),
    "bench rewards": (BenchRewards, run_bench_rewards),
    "bench goals": (BenchGoals, run_bench_goals),
    "data list": (DataList, run_data_list),
    "data inspect": (DataInspect, run_data_inspect),
    "data convert": (DataConvert, run_data_convert),
    "data collect": (DataCollect, run_data_collect),
}
