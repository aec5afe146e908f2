"""What trains: `hilp pretrain`, unlabeled trajectories in and a promptable policy out, and `hilp hierarchy`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from hilp import runs
from hilp.commands import common
from hilp.errors import HilpError, counted, printable, say
from hilp.training.options import RunOptions, TrainOptions

with common.WhenUsed():
    from hilp import presets, tasks
    from hilp.data import checks
    from hilp.evaluation import evaluate, explain, held_out, setup
    from hilp.evaluation import rows as files
    from hilp.learning import methods
    from hilp.training import auto_config, checkpoints, distributed, hierarchy, loggers, loop

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset
    from hilp.policy.policy import FoundationPolicy

MOST_AUTO = 5  # times the preset's updates that --steps auto goes on for at most
MOST_NAMED = 8  # columns of a goal that is shown by their names
SHORT = 0.5  # of the updates that the data takes: a run of --minutes that ended before gets a word


@dataclass(frozen=True, kw_only=True)
class TrainFlags(common.Verb, common.Reading, RunOptions):
    """What verbs take that train."""

    data: str
    """a built-in name (see `hilp data list`), a native folder or a file"""
    out: str
    """folder to write: the policy, metrics, checkpoints"""
    reward: str | None = None
    """for iql and hierarchies, which learn from rewards: one of the task ('target': its far place or its subtasks) or a
    formula (default: the data's own)"""
    shift: float | None = None
    """added to every reward (default: 0; with 'target' of a place -1, so that time counts)"""
    ends: bool = False
    """an episode is over once it has earned more than 0 (always so with 'target' of a place)"""
    preset: str = "laptop"
    """laptop (two cores, minutes) or paper (the paper's tables)"""
    set: tuple[str, ...] = ()
    """config values to change: key=value ..."""


@dataclass(frozen=True)
class Pretrain(TrainFlags):
    """Train a policy on unlabeled trajectories."""

    first: ClassVar = ("data", "out", "minutes", "steps", "method", "preset", "set", "seeds", "resume")
    example: ClassVar = "hilp pretrain --data maze-large --out runs/maze"

    method: str = "auto"
    """what to train: hilp, hindsight, gc-iql, fb, ...; `hilp data list --json` names all (default: hilp, of bodies that
    walk hindsight)"""
    steps: int | Literal["auto"] | None = None
    """gradient updates, or 'auto': until distances among states stop changing (default: the preset's, more where data
    takes long to cross; with --resume what the run was begun with)"""
    minutes: float | None = None
    """stop training after so many minutes, those before --resume included; to read data, to measure and to save the
    policy take a little more"""
    bank: int | None = None
    """states kept in the policy for planning (default: the preset's)"""
    validation: float | None = None
    """share of episodes held out for validation losses and `hilp evaluate --data held-out` (default: 0.1 of data that
    names no task, else none)"""
    stride: str | None = None
    """keep every so many rows, or 'auto' (default: auto where the data names no task and phi_discount is auto)"""
    stride_actions: Literal["mean", "sum"] = "mean"
    """how the commands of a stride become one: mean (speeds, forces) or sum (displacements)"""
    task: str | None = None
    """task that the data comes from, where it does not say so itself: the policy is evaluated in it"""
    verify: bool = False
    """compare a native folder with its checksums first"""
    device_budget: float | None = None
    """MiB of data to put on the device; larger data is streamed (default: half of the device's memory)"""
    devices: int | None = None
    """devices that share out each batch (default: 1; with --coordinator all of all processes)"""
    coordinator: str | None = None
    """train together with processes on other machines: host:port of the first, or auto under SLURM or Open MPI"""
    processes: int | None = None
    """with --coordinator host:port: how many processes there are"""
    process: int | None = None
    """with --coordinator host:port: which one this is, from 0; the first one writes the run"""
    eval_task: str | None = None
    """evaluate goal prompts in this task while training"""
    eval_every: int | None = None
    """updates between two evaluations (default: a fifth of the run)"""
    log: tuple[Literal["csv", "tensorboard", "wandb"], ...] = ()
    """where metrics go besides metrics.jsonl: csv, tensorboard, wandb (the last two are extras)"""

    def __call__(self) -> None:
        from hilp.tasks import rendering

        loggers.require(self.log)
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise HilpError(f"--minutes must be a number above 0, not {self.minutes:g}")
        if self.device_budget is not None and not 0 <= self.device_budget < math.inf:
            raise HilpError(f"--device-budget must be a number of MiB from 0 on, not {self.device_budget}")
        devices = distributed.join(self.coordinator, self.processes, self.process, self.devices)
        if self.method != auto_config.AUTO:
            presets.preset(self.method, self.preset)  # a wrong name is an error before data is read
        world = None if self.eval_task is None else tasks.make(self.eval_task)
        more: dict[str, Any] = {"stride": self.stride, "stride_actions": self.stride_actions, "task": self.task}
        if self.resume:
            data = common.read_as_trained(self.out, self.data, self, verify=self.verify, **more)
        else:
            data = common.load_data(self.data, self, self.verify, **more)
        flags = self
        if self.angles is None and (turned := auto_config.seen_usually(data, say)) is not data:
            data, flags = turned, replace(self, angles=checks.AUTO)
        if self.frames is None:
            data = auto_config.with_past(data, say)
            flags = flags if data.frames == 1 else replace(flags, frames=data.frames)
        begun, told = checkpoints.read_run(Path(self.out)) if self.resume else {}, list[str]()
        method = auto_config.method_named(self.method, self.preset, data, begun, told.append)
        for line in [] if self.json else told:
            say(line)  # first: what follows is about this method
        preset = presets.preset(method, self.preset, data.task)
        config = auto_config.config_begun(preset.config, begun)
        config = methods.configure(config, common.config_values(self.set))
        options = train_options(self, preset, config, data)
        if methods.columns(config):
            data = setup.label(data, self.reward, self.shift, self.ends)
        elif (self.reward, self.shift, self.ends) != (None, None, False):
            raise HilpError(f"{method} learns without rewards: leave out --reward, --shift, --ends, or take iql")
        rows: list[Any] = []  # of held-out episodes
        more = {"devices": devices, "on_policies": partial(measure, self, data, rows)}
        if world is not None:  # policies are sent to its goals while they are trained
            setup.require_fit("this data", data.spec, world, data.observation_parts)
            seen = rendering.for_data(world, data)
            more["evaluate"] = partial(evaluate.evaluate_in_training, world=seen, seed=self.seed)
        about = {"method": method, "data": data.name, "seed": self.seed, "steps": options.steps}
        writes = distributed.writes(devices)
        with loggers.opened(self.log if writes else (), self.out, about | methods.config_values(config)) as on_metrics:
            trained = loop.pretrain(config, data, replace(options, on_metrics=on_metrics, **more))
        if writes:
            finish(replace(flags, method=method), data, trained, rows, told)


def finish(flags: Pretrain, data: Dataset, trained: Any, rows: list[Any], told: Sequence[str] = ()) -> None:
    """Write the rows of held-out episodes, and print what was trained and what to try next."""
    policies: list[FoundationPolicy] = trained if isinstance(trained, list) else [trained]
    flags.keep_in(flags.out, flags.data)
    if rows:
        files.append_rows(runs.seed_folder(Path(flags.out), flags.seed, flags.seeds) / runs.ROWS, rows)
    if flags.json:
        found: dict[str, Any] = {
            "out": flags.out,
            "policies": [policy.fingerprint for policy in policies],
            "data": data.fingerprint,
        }
        found |= {"method": flags.method, "preset": flags.preset, "steps": policies[0].provenance.steps}
        return common.print_json(found | ({"chosen": "; ".join(told)} if told else {}))
    for sentence in explain.explain_held_out([row["held_out"] for row in rows]) if rows else []:
        print(f"- {printable(sentence)}")
    if line := more_minutes(flags, data, policies[0].provenance.steps or 1):
        print(line)
    count = "a policy" if len(policies) == 1 else f"{len(policies)} policies"
    print(f"trained {count} in {printable(flags.out)}: try `{next_command(flags, data, policies[0])}`")


def more_minutes(flags: Pretrain, data: Dataset, done: int) -> str | None:
    """What to add to a run that the clock ended long before the updates that it would take without --minutes."""
    if flags.minutes is None:
        return None
    preset = presets.preset(flags.method, flags.preset, data.task)
    usual = auto_config.updates(preset, methods.configure(preset.config, common.config_values(flags.set)), data)
    if done >= SHORT * usual:
        return None
    longer = flags.minutes * math.ceil(usual / done)
    return (
        f"- {flags.minutes:g} minutes were enough for {counted(done, 'update')}, {done / usual:.0%} of the {usual:,} "
        f"that this data takes without --minutes: go on with --resume --minutes {longer:g}"
    )


def train_options(flags: Pretrain, preset: presets.Preset, config: Any, data: Dataset) -> TrainOptions:
    """The options as the flags say, else as the run began, else the preset's for such data.

    Of data that no task can measure a policy on, some episodes are held out.
    """
    found = checkpoints.read_run(Path(flags.out)) if flags.resume else {}
    begun = auto_config.as_begun(found, flags.steps, flags.minutes)
    steps = begun.get("steps", flags.steps)
    if steps is None:
        most = auto_config.MOST_TIMED * preset.steps
        steps = most if flags.minutes else auto_config.updates(preset, config, data, flags.json)
    validation = begun.get("validation") if flags.validation is None else flags.validation
    if validation is None:
        validation = auto_config.held_out_share(data)
    return TrainOptions(
        steps=steps,
        most_steps=MOST_AUTO * preset.steps,
        minutes=flags.minutes or begun.get("minutes"),
        out=flags.out,
        bank=preset.bank if flags.bank is None else flags.bank,
        validation=validation,
        device_budget=None if flags.device_budget is None else int(flags.device_budget * 2**20),
        eval_every=flags.eval_every,
        quiet=flags.json,
        command=common.command(),
        **flags.run_options(),
    )


def measure(
    flags: Pretrain, data: Dataset, rows: list[Any], policies: list[FoundationPolicy], held: Dataset | None
) -> None:
    """Measure the first policy on held-out episodes where no task can, and keep the plan that is best there in it."""
    policy = policies[0]
    if held is None or has_task(data) or not has_goals(policy):
        return
    if not flags.json:
        say(f"measuring on {counted(held.episodes, 'held-out episode')} ...")
    rows += held_out.evaluate(policy, held, seed=flags.seed, command=common.command())
    policy.provenance = replace(policy.provenance, plan=rows[0]["held_out"]["advised_plan"])


def next_command(flags: Pretrain, data: Dataset, policy: FoundationPolicy) -> str:
    """What to try with the policy: an evaluation where its task is known, else what works without one."""
    out = common.quoted(flags.out)
    if data.task is not None and tasks.runs_user_code(data.task):
        return f"hilp evaluate {out} --task {common.quoted(data.task)}"
    if has_task(data):
        return f"hilp evaluate {out}"
    measured = runs.held_out(Path(flags.out)) is not None and has_goals(policy)
    out = common.quoted(str(runs.seed_folder(Path(flags.out), flags.seed, flags.seeds)))
    if measured and len(policy.bank) and not policy.spec.parts:
        return f"hilp prompt {out} --goal {goal_words(data, policy)}"
    prompt = prompt_command(out, data, policy)
    if not policy.has_rule("goal_direction"):
        return prompt or f"hilp report {out}"
    diagnose = " ".join(["hilp diagnose", out, "--data", common.quoted(flags.data), *flags.words()])
    return f"{prompt}` or `{diagnose}" if prompt else diagnose


def goal_words(data: Dataset, policy: FoundationPolicy) -> str:
    """A goal to type: a state of the data by the names of its columns, by the number of its row where they are many."""
    row, names = data.observations[data.rows // 2], [name for name, _ in policy.observation_parts]
    if len(names) != len(row) or len(names) > MOST_NAMED or any(mark in name for name in names for mark in ",="):
        return "row:0"
    return common.quoted(",".join(f"{name}={number:.3g}" for name, number in zip(names, row, strict=True)))


def prompt_command(out: str, data: Dataset, policy: FoundationPolicy) -> str | None:
    """A prompt that can be typed: of observations by name there must be some in the policy, to act at one of them."""
    if policy.spec.parts:
        if not len(policy.bank):
            return None
        return f"hilp prompt {out} {'--skill random' if policy.has_rule('project') else '--goal row:0'}"
    first = ",".join(f"{number:g}" for number in data.observations[0])
    start = "" if len(policy.bank) else f" --start={first}"
    return f"hilp prompt {out} {'--skill random' if policy.has_rule('project') else f'--goal={first}'}{start}"


def has_goals(policy: FoundationPolicy) -> bool:
    """Whether a policy takes goals as they are, without a reward."""
    return policy.has_rule("goal_direction") or policy.has_rule("goal_skill")


def has_task(data: Dataset) -> bool:
    """Whether policies trained on a data set can be evaluated without naming a task."""
    try:
        if data.task is not None:
            spec, world = data.spec, tasks.make_recorded(data.task)
            setup.require_fit("this data", spec, world, data.observation_parts)
        return data.task is not None
    except HilpError:  # a task that this installation does not have
        return False


@dataclass(frozen=True)
class Hierarchy(TrainFlags):
    """Train a high level that chooses one of a policy's skills every k steps, from data of its task."""

    run: common.RunFolder
    """folder of a run or of a policy whose skills are those of segments: hilp, opal"""
    task: str | None = None
    """task whose reward it is (default: the one the policy's data was collected in)"""
    k: int | None = None
    """steps that a skill lasts (default: as it was learnt, else 10)"""
    steps: int | None = None
    """gradient updates (default: the preset's)"""
    validation: float = 0.0
    """share of episodes held out for validation losses"""
    devices: int = 1
    """devices that share out each batch"""

    def __call__(self) -> None:
        policy, _ = common.load_policy(self.run)
        data = common.read_as_trained(self.run, self.data, self, task=self.task)
        preset = presets.high_level(self.preset, data.task)
        config = methods.configure(preset.config, common.config_values(self.set))
        steps = preset.steps if self.steps is None else self.steps
        reward: dict[str, Any] = {"reward": None, "shift": self.shift or 0.0, "ends": self.ends}
        if self.reward is not None:
            world = setup.task_if_known(policy, self.task)
            reward = {"reward": setup.reward_of(self.reward, policy, world), "named": self.reward}
            reward |= setup.reward_shift(world, self.reward, self.shift, self.ends)
        options = {"steps": steps, "k": self.k, "config": config, "validation": self.validation, **self.run_options()}
        options |= {"out": self.out, "devices": self.devices, "quiet": self.json, "command": common.command()}
        made = hierarchy.hierarchy(policy, data, **reward, **options)
        prompts = made if isinstance(made, list) else [made]
        seeds = [prompt.high.about["seed"] for prompt in prompts]
        written = [str(runs.seed_folder(Path(self.out), seed, self.seeds) / runs.PROMPT) for seed in seeds]
        if self.json:
            found = {"out": self.out, "prompts": written, "policy": policy.fingerprint, "k": prompts[0].high.k}
            common.print_json({**found, "steps": steps, "preset": self.preset})
        else:
            count = "a high level" if len(written) == 1 else f"{len(written)} high levels"
            verb = "evaluate" if self.task or policy.provenance.task else "prompt"  # what needs a task to act in
            next_command = f"hilp {verb} {common.quoted(self.run)} --load {common.quoted(written[0])}"
            print(f"trained {count} in {printable(self.out)}: try `{next_command}`")
