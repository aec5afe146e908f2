"""`hilp evaluate`: prompt a policy, or those of several seeds, with goals and rewards and count what they reach."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hilp.commands import common
from hilp.errors import HilpError, printable

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset
    from hilp.evaluation.rollouts import Rollout
    from hilp.evaluation.rows import Row
    from hilp.policy.policy import FoundationPolicy


@dataclass(frozen=True)
class Flags(common.Reading):
    """Prompt a policy with random goals, and with named rewards, in a task."""

    run: common.RunFolder
    """folder of a run or of a policy"""
    task: str | None = None
    """task, map or map file (default: the one its data was collected in)"""
    plan: tuple[str, ...] | None = None
    """midpoint recursions of the goal prompt, several may be given (default: 0 1 3 auto where the policy can plan)"""
    goal: str | None = None
    """one goal for all episodes: task3 (a name of the task), x=3,y=4, row:12 of the policy's states, or all numbers"""
    goal_dims: str | None = None
    """columns of goals that matter, by name or number, if not all do: x,y is a place, whatever the posture"""
    smooth: float | None = None
    """take an agent to be where it was on average over about so many steps, for bodies that walk and noisy sensors"""
    rewards: tuple[str, ...] | None = None
    """named rewards of the task to prompt with as well, or 'all' (default: all, in a task without goals)"""
    load: str | None = None
    """a saved prompt, such as a hierarchy, to evaluate under --rewards (default: 'target' where the task has one)"""
    rule: Literal["auto", "skill", "goal", "graph"] = "auto"
    """turn a reward into a skill, the goal of highest reward (HILP-G), or a plan on the graph; auto: by its R2"""
    intercept: bool = False
    """fit a constant beside the features, so that adding one to the reward changes nothing"""
    data: str | None = None
    """in a task: data set to label with the rewards (default: the transitions kept in the policy); without one: data to
    measure the policy on, a file or 'held-out' for the episodes that its run kept from training"""
    video: str | None = None
    """GIF, WebP or MP4 file to record the first episode of each prompt to (the prompt's name is added)"""
    random: bool = False
    """also say what uniformly random actions score from the same starts"""
    episodes: int = 50
    """episodes per prompt"""
    seed: int = 0
    """seed of starts and goals"""
    rows: str | None = None
    """JSONL file to append the rows to (default: rows.jsonl beside the policy)"""
    json: bool = False
    """print one JSON line a row instead of a table"""


def run(flags: Flags) -> int:
    from hilp import runs
    from hilp.evaluation import explain
    from hilp.report import page

    common.require_counts(flags, "episodes")
    plans = None if flags.plan is None else [common.plan(text) for text in flags.plan]
    if plans == [] and not flags.rewards:
        raise HilpError("nothing to evaluate: --plan takes at least one number of recursions or 'auto'")
    if flags.load is not None and (plans or flags.rule != "auto" or flags.intercept or flags.data is not None):
        raise HilpError("a prompt that is loaded is as it was made: leave out --plan, --rule, --intercept and --data")
    seeds = runs.seed_folders(Path(flags.run))
    found = [(folder, *common.load_policy(folder)) for folder in seeds or [Path(flags.run)]]
    unseen = held_out_data(flags, found[0][1])
    data = None if unseen is not None or flags.data is None else read(flags)
    rows: list[Row] = []
    if flags.load is not None and seeds:
        raise HilpError(f"a prompt belongs to one policy: name one of the seeds, e.g. {seeds[0]}")
    for folder, policy, home in found:
        if unseen is not None:
            rows += measure(flags, policy, unseen, plans, home)
        else:
            world = common.task_of(policy, flags.task)
            rows += evaluate(flags, policy, world, plans, data, home, folder if seeds else None)
    if flags.json:
        for row in rows:
            common.print_json(row)
        return 0
    title = rows[0]["task"]
    if seeds:
        common.print_table(*page.aggregate_table(rows), title=f"{title}, {len(seeds)} seeds")
    else:
        common.print_table(*page.results_table(rows), title=title)
        if unseen is not None:
            for sentence in explain.explain_held_out([row["held_out"] for row in rows]):
                print(f"- {printable(sentence)}")
    return 0


def read(flags: Flags) -> Dataset:
    return common.read_as_trained(flags.run, str(flags.data), flags)


def held_out_data(flags: Flags, policy: FoundationPolicy) -> Dataset | None:
    """Data to measure a policy on where no simulator is asked for: what was given, or what its run kept."""
    from hilp import runs
    from hilp.data.dataset import Dataset

    has_task = flags.task is not None or policy.provenance.task is not None
    if flags.data is not None and flags.data != runs.HELD_OUT:
        return None if has_task else read(flags)
    kept = runs.held_out(Path(flags.run))
    if flags.data == runs.HELD_OUT or not has_task:
        if kept is not None:
            return Dataset.open(kept)
        if flags.data == runs.HELD_OUT:
            raise HilpError(
                f"{flags.run} kept no episodes from training: name a file of data that it has not seen, or train with "
                "--validation 0.1"
            )
    return None


def measure(
    flags: Flags, policy: FoundationPolicy, data: Dataset, plans: list[int | str] | None, home: Path
) -> list[Row]:
    """The rows of one policy on data that it has not seen, appended to their file."""
    from hilp import runs
    from hilp.evaluation import held_out
    from hilp.evaluation import rows as files

    of_a_task = ("rewards", "video", "goal", "goal_dims", "load", "random", "intercept")
    given = {name: getattr(flags, name) for name in of_a_task}
    given |= {"smooth": flags.smooth is not None, "rule": flags.rule != "auto"}
    for flag, asked in given.items():
        if asked:
            raise HilpError(f"--{flag} needs a task to act in (--task): held-out data has none")
    rows = held_out.evaluate(
        policy, data, plans=plans, episodes=flags.episodes, seed=flags.seed, command=common.command()
    )
    files.append_rows(flags.rows or home / runs.ROWS, rows)
    return rows


def evaluate(
    flags: Flags,
    policy: FoundationPolicy,
    world: Any,
    plans: list[int | str] | None,
    data: Any,
    home: Path,
    seed_folder: Path | None,
) -> list[Row]:
    """The rows of one policy, appended to their file; its videos where asked for."""
    from hilp import runs
    from hilp.evaluation import goals, trajectories
    from hilp.evaluation import rows as files
    from hilp.evaluation.evaluate import evaluate_with_rollouts

    if flags.video:
        common.require_video(world, flags.video)
    best = files.best_evaluation((home.parent if seed_folder else home) / runs.METRICS)  # before it takes any time
    found = evaluate_with_rollouts(
        policy,
        world,
        plan=plans,
        goal=flags.goal,
        goal_dims=None if flags.goal_dims is None else goals.goal_dims_of_text(flags.goal_dims, policy, world),
        smooth=flags.smooth,
        prompt=None if flags.load is None else policy.load_prompt(flags.load),
        rewards=(*world.potentials, *world.rewards) if flags.rewards == ("all",) else flags.rewards,
        rule=flags.rule,
        intercept=flags.intercept,
        data=data,
        episodes=flags.episodes,
        seed=flags.seed,
        command=common.command(),
    )
    for row, _ in found:
        row["best_evaluation"] = best
    rows = [row for row, _ in found]
    if flags.random:
        beside_random(rows, world, flags)
    files.append_rows(flags.rows or home / runs.ROWS, rows)
    if flags.rows is None and world.has_goals:  # a report shows what lies beside its policy, where there is a map
        trajectories.keep(home / runs.TRAJECTORIES, found)
    if flags.video:
        record(policy, world, found, Path(flags.video), f"-{seed_folder.name}" if seed_folder else "")
    return rows


def beside_random(rows: list[Row], world: Any, flags: Flags) -> None:
    """Note in rows what random actions score; all goal prompts have the same starts and goals."""
    from hilp.evaluation import rollouts

    goals = None
    for row in rows:
        if row["prompt"] == "goal":
            goals = rollouts.random_success(world, flags.episodes, flags.seed) if goals is None else goals
            row["random"] = goals
        elif row["metric"] == "return":
            returns = rollouts.random_return(world, row["reward"], flags.episodes, flags.seed)
            row["random"] = float(returns.mean())


def record(policy: FoundationPolicy, world: Any, found: list[tuple[Row, Rollout]], target: Path, suffix: str) -> None:
    """Film the first episode of each rollout; the prompt's name goes before the file's ending."""
    from hilp.report import films, video

    for row, rollout in found:
        name = f"plan-{row['plan']}" if row["prompt"] == "goal" else f"reward-{row['reward']}"
        stem = f"{target.stem}-{name.replace(' ', '-')}{suffix}"
        if hasattr(world, "film"):
            frames, fps = world.film(*rollout.episode(0)), getattr(world, "fps", common.VIDEO_FPS)
        else:
            goal = rollout.goals[0] if row["prompt"] == "goal" else None
            frames, fps = films.on_plan(policy, world, {name: rollout.episode(0)[0]}, goal), films.FPS
        video.write(target.with_stem(stem), frames, fps)
