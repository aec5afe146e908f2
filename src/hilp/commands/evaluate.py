"""`hilp evaluate`: prompt a policy, or those of several seeds, with goals and rewards and count what they reach."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hilp import runs
from hilp.commands import common
from hilp.errors import HilpError, printable, some
from hilp.prompts.specs import Goal, Reward, Saved

with common.WhenUsed():
    from hilp.data import dataset
    from hilp.evaluation import behaviour, evaluate, explain, held_out, setup, trajectories
    from hilp.evaluation import rows as files
    from hilp.report import page, video

if TYPE_CHECKING:
    from hilp.evaluation.rows import Row
    from hilp.policy.policy import FoundationPolicy

OF_A_TASK = ("rewards", "video", "goal", "load", "random", "workers")  # flags that change nothing without one


@dataclass(frozen=True, kw_only=True)
class Evaluate(common.OfPolicy, common.PromptOptions):
    """Prompt a policy with random goals, and with named rewards, in a task; without one, measure it on unseen data."""

    example: ClassVar = "hilp evaluate runs/maze --rewards all --episodes 100"

    task: str | None = None
    """task, map or map file (default: that of its data)"""
    plan: tuple[str, ...] | None = None  # type: ignore[assignment]  # several
    """ways to the goals, one or several: 0 (straight), recursions of midpoints, midpoints, graph, auto (default:
    all that it can of 0 1 3 auto graph)"""
    goal: str | None = None
    """one goal for all episodes: task3 (a name of the task), x=3,y=4, row:12 of the policy's states, or all numbers"""
    rewards: tuple[str, ...] | None = None
    """named rewards of the task to prompt with as well, or 'all' (default: all, in a task without goals)"""
    load: str | None = None
    """a saved prompt, such as a hierarchy, to evaluate under --rewards (default: 'target' where the task has one)"""
    data: str | None = None
    """in a task: data set to label with the rewards (default: that kept in the policy); without one: data to measure
    the policy on, a file or 'held-out' for the episodes that its run kept"""
    video: str | None = None
    """GIF, WebP or MP4 file to record the first episode of each prompt to (the prompt's name is added)"""
    random: bool = False
    """also score random actions from the same starts"""
    episodes: int = 50
    """episodes per prompt"""
    seed: int = 0
    """seed of starts and goals"""
    workers: int | None = None
    """processes (Gymnasium, OGBench) or threads (MuJoCo) that step slow simulators; the rows stay the same (default: 1,
    or a thread a core)"""
    rows: str | None = None
    """JSONL file to append the rows to (default: rows.jsonl next to the policy)"""

    @property
    def plans(self) -> list[int | str] | None:
        return None if self.plan is None else [common.plan(text) for text in self.plan]

    def __call__(self) -> None:
        check(self)
        seeds = runs.seed_folders(Path(self.run))
        if self.load is not None and seeds:
            raise HilpError(f"a prompt belongs to one policy: name one of the seeds, e.g. {seeds[0]}")
        folders: list[str | Path] = [*seeds] or [self.run]
        found = [(folder, *common.load_policy(folder)) for folder in folders]
        data, has_task = data_of(self, found[0][1])
        rows: list[Row] = []
        for folder, policy, home in found:
            if data is None or has_task:
                rows += act(self, policy, data, home, Path(folder) if seeds else None)
            else:
                rows += measure(self, policy, data, home)
        show(self, rows, len(seeds))


def check(flags: Evaluate) -> None:
    """Raise where flags do not go together, before anything is read."""
    plans = flags.plans
    changed = [name for name in ("goal", "data") if getattr(flags, name) is not None] + flags.given_options()
    changed += ["plan"] if plans else []
    if flags.load is not None and changed:
        words = some([f"--{name.replace('_', '-')}" for name in changed])
        raise HilpError(f"a prompt that is loaded is as it was made: leave out {words}")


def show(flags: Evaluate, rows: list[Row], seeds: int) -> None:
    """Print rows as JSON, or as a table with what held-out data says."""
    if flags.json:
        return common.print_json(*rows)
    table = page.aggregate_table if seeds else page.results_table
    common.print_table(*table(rows), title=rows[0]["task"] + (f", {seeds} seeds" if seeds else ""))
    for sentence in dict.fromkeys(words for row in rows for words in behaviour.words(row)):
        print(f"- {printable(sentence)}")
    if "held_out" in rows[0] and not seeds:
        for sentence in explain.explain_held_out([row["held_out"] for row in rows]):
            print(f"- {printable(sentence)}")


def data_of(flags: Evaluate, policy: FoundationPolicy) -> tuple[dataset.Dataset | None, bool]:
    """The data, and whether it is for a task: else the policy is measured on it, a file or what its run kept."""
    has_task = flags.task is not None or policy.provenance.task is not None
    if flags.data is not None and flags.data != runs.HELD_OUT:
        return common.read_as_trained(flags.run, flags.data, flags), has_task
    kept = None if has_task and flags.data is None else runs.held_out(Path(flags.run))
    if kept is None and flags.data is not None:
        raise HilpError(
            f"{flags.run} kept no episodes from training: name a file of data that it has not seen, or train with "
            "--validation 0.1"
        )
    return None if kept is None else dataset.Dataset.open(kept), False


def measure(flags: Evaluate, policy: FoundationPolicy, data: dataset.Dataset, home: Path) -> list[Row]:
    """The rows of one policy on data that it has not seen, appended to their file."""
    for flag in [name for name in OF_A_TASK if getattr(flags, name)] + flags.given_options():
        raise HilpError(f"--{flag.replace('_', '-')} needs a task to act in (--task): held-out data has none")
    rows = held_out.evaluate(
        policy, data, plans=flags.plans, episodes=flags.episodes, seed=flags.seed, command=common.command()
    )
    files.append_rows(flags.rows or home / runs.ROWS, rows)
    return rows


def prompts_of(flags: Evaluate, policy: FoundationPolicy, world: Any) -> list[Any]:
    """The specs that the flags ask for: a goal a plan, a prompt a reward, with the options of each."""
    if flags.load is not None:
        return [Saved(flags.load)]
    specs = evaluate.default_prompts(policy, world, flags.plans, rewards_of(flags, world))
    found = [flags.with_options(spec) for spec in specs]
    goal = [*(["goal"] if flags.goal is not None else []), *flags.given_options(Goal)]
    reward = [*(["data"] if flags.data is not None else []), *flags.given_options(Reward)]
    for given, kind, ask in ((goal, Goal, "--plan 0"), (reward, Reward, "--rewards all")):
        if given and not any(isinstance(spec, kind) for spec in found):
            flag = given[0].replace("_", "-")
            raise HilpError(
                f"--{flag} changes nothing without a {kind.kind} prompt: ask for one, e.g. {ask}, or leave it out"
            )
    return found


def rewards_of(flags: Evaluate, world: Any) -> tuple[str, ...] | None:
    return (*world.potentials, *world.rewards) if flags.rewards == ("all",) else flags.rewards


def act(flags: Evaluate, policy: FoundationPolicy, data: Any, home: Path, seed_folder: Path | None) -> list[Row]:
    """The rows of one policy, appended to their file; its videos where --video names a file."""
    world = setup.task_for_policy(policy, setup.task_of(policy, flags.task))
    if flags.video:
        common.require_video(world, flags.video)
    best = files.best_evaluation((home.parent if seed_folder else home) / runs.METRICS)  # before it takes any time
    prompts = prompts_of(flags, policy, world)
    others = not all(isinstance(one, Goal | Reward) for one in prompts)  # which rewards score
    options: dict[str, Any] = {"episodes": flags.episodes, "seed": flags.seed, "random": flags.random, "data": data}
    options |= {"workers": flags.workers}
    options |= {"rewards": rewards_of(flags, world) if others else None, "command": common.command()}
    found = evaluate.evaluate_with_rollouts(policy, world, prompts, **options)
    rows = [row for row, _ in found]
    for row in rows:
        row["best_evaluation"] = best
    files.append_rows(flags.rows or home / runs.ROWS, rows)
    if flags.rows is None and world.has_goals:  # a report draws what is in the run's folder, where there is a map
        trajectories.save(home / runs.TRAJECTORIES, found)
    if flags.video:
        record(policy, world, found, Path(flags.video), f"-{seed_folder.name}" if seed_folder else "")
    return rows


def record(policy: FoundationPolicy, world: Any, found: list[tuple[Row, Any]], target: Path, suffix: str) -> None:
    """Film the first episode of each rollout; the prompt's name goes before the file's ending."""
    for row, rollout in found:
        name = f"plan-{row['plan']}" if row["prompt"] == "goal" else f"reward-{row['reward']}"
        stem = f"{target.stem}-{name.replace(' ', '-')}{suffix}"
        if hasattr(world, "film"):
            frames, fps = world.film(*rollout.episode(0)), getattr(world, "fps", common.VIDEO_FPS)
        else:
            goal = rollout.goals[0] if row["prompt"] == "goal" else None
            frames, fps = video.on_plan(policy, world, {name: rollout.episode(0)[0]}, goal), video.FPS
        video.write(target.with_stem(stem), frames, fps)
