"""`hilp pretrain`: unlabeled trajectories in, a promptable policy out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hilp.commands import common
from hilp.errors import HilpError, printable

if TYPE_CHECKING:
    from hilp.data.dataset import Dataset
    from hilp.policy.policy import FoundationPolicy
    from hilp.presets import Preset


@dataclass(frozen=True)
class Flags(common.Reading):
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
    """gradient updates (default: the preset's; with --resume those that the run was begun for)"""
    seed: int = 0
    """random seed"""
    seeds: int = 1
    """train this many seeds at once: seed, seed + 1, ..."""
    resume: bool = False
    """continue from the newest intact checkpoint in --out"""
    set: tuple[str, ...] = ()
    """config values to change: key=value ..."""
    bank: int | None = None
    """states kept in the policy for planning (default: the preset's)"""
    validation: float = 0.0
    """share of episodes held out for validation losses"""
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
    eval_task: str | None = None
    """evaluate goal prompts in this task while training"""
    eval_every: int | None = None
    """updates between two evaluations (default: a fifth of the run)"""
    checkpoint_every: int | None = None
    """updates between two checkpoints (default: a tenth of the run)"""
    keep: int = 2
    """checkpoints kept on disk"""
    log: tuple[Literal["csv", "tensorboard", "wandb"], ...] = ()
    """where else metrics go, beside metrics.jsonl: csv, tensorboard, wandb (the last two are extras)"""
    json: bool = False
    """print a JSON line about the trained policy, and no progress"""


def run(flags: Flags) -> int:
    from hilp import presets, tasks
    from hilp.training.checkpoints import planned_steps

    check(flags)
    presets.preset(flags.method, flags.preset)  # a wrong name is told before data is read
    world = None if flags.eval_task is None else tasks.make(flags.eval_task)
    more = {"stride": flags.stride, "stride_actions": flags.stride_actions, "task": flags.task}
    data = common.load_data(flags.data, flags, flags.verify, **more)
    preset = presets.preset(flags.method, flags.preset, data.task)
    steps = flags.steps or (planned_steps(Path(flags.out)) if flags.resume else None) or preset.steps
    policies = train(flags, data, preset, steps, world)
    if flags.json:
        told = {"out": flags.out, "policies": [policy.fingerprint for policy in policies], "data": data.fingerprint}
        common.print_json({**told, "steps": steps, "preset": flags.preset})
    else:
        count = "a policy" if len(policies) == 1 else f"{len(policies)} policies"
        print(f"trained {count} in {printable(flags.out)}: try `{next_command(flags, data, policies[0])}`")
    return 0


def check(flags: Flags) -> None:
    """Raise where a number makes no sense, before anything is read."""
    from hilp.training import loggers

    common.require_counts(flags, "steps", "seeds", "eval_every", "checkpoint_every", "keep")
    loggers.require(flags.log)
    if flags.bank is not None and flags.bank < 0:
        raise HilpError(f"--bank must be at least 0, not {flags.bank}")
    if flags.device_budget is not None and not 0 <= flags.device_budget < math.inf:
        raise HilpError(f"--device-budget must be a number of MiB from 0 on, not {flags.device_budget}")


def train(flags: Flags, data: Dataset, preset: Preset, steps: int, world: Any | None) -> list[FoundationPolicy]:
    """The policies, one a seed; with a task to evaluate in, they are sent to its goals while they are trained."""
    from hilp.evaluation import rollouts
    from hilp.evaluation.evaluate import evaluate_in_training
    from hilp.learning import methods
    from hilp.spec import Spec
    from hilp.training import loggers, loop

    evaluate = None
    if world is not None:
        rollouts.require_fit("this data", Spec.of(data.observations, data.action_dim), world)
        evaluate = partial(evaluate_in_training, world=world.for_data(data.observations[0]), seed=flags.seed)
    config = methods.configure(preset.config, common.config_values(flags.set))
    about = {"method": flags.method, "data": data.name, "seed": flags.seed, "steps": steps, **methods.described(config)}
    with loggers.opened(flags.log, flags.out, about) as on_metrics:
        trained = loop.pretrain(
            config,
            data,
            steps=steps,
            seed=flags.seed,
            seeds=flags.seeds,
            out=flags.out,
            resume=flags.resume,
            bank=preset.bank if flags.bank is None else flags.bank,
            validation=flags.validation,
            evaluate=evaluate,
            eval_every=flags.eval_every,
            on_metrics=on_metrics,
            checkpoint_every=flags.checkpoint_every,
            keep=flags.keep,
            device_budget=None if flags.device_budget is None else int(flags.device_budget * 2**20),
            quiet=flags.json,
            command=common.command(),
        )
    return trained if isinstance(trained, list) else [trained]


def next_command(flags: Flags, data: Dataset, policy: FoundationPolicy) -> str:
    """What to try with the policy: an evaluation where its task is known, else what works without one."""
    from hilp import tasks
    from hilp.runs import seed_folder

    out = common.quoted(flags.out)
    if data.task is not None and tasks.needs_code(data.task):
        return f"hilp evaluate {out} --task {common.quoted(data.task)}"
    if has_task(data):
        return f"hilp evaluate {out}"
    if flags.seeds > 1:
        out = common.quoted(str(seed_folder(Path(flags.out), flags.seed)))
    prompt = prompt_command(out, data, policy)
    if not policy.has_rule("direct"):
        return prompt or f"hilp report {out}"
    diagnose = " ".join(["hilp diagnose", out, "--data", common.quoted(flags.data), *flags.words()])
    return f"{prompt}` or `{diagnose}" if prompt else diagnose


def prompt_command(out: str, data: Dataset, policy: FoundationPolicy) -> str | None:
    """A prompt that can be typed: of observations by name there must be some in the policy, to act at one of them."""
    if policy.spec.parts:
        if not len(policy.bank):
            return None
        if policy.has_rule("project"):
            return f"hilp prompt {out} --skill random"
        for name, shape, kind in policy.spec.parts:  # its prompts are goals: that of a reward
            part = policy.bank.next_observations[name]
            if kind != "uint8" and len(shape) == 1 and name.isidentifier() and part[:, 0].min() < part[:, 0].max():
                return f"hilp prompt {out} --reward '{name}[0]'"
        return None
    first = ",".join(f"{number:g}" for number in data.observations[0])
    start = "" if len(policy.bank) else f" --start={first}"
    return f"hilp prompt {out} {'--skill random' if policy.has_rule('project') else f'--goal={first}'}{start}"


def has_task(data: Dataset) -> bool:
    """Whether policies trained on a data set can be evaluated without naming a task."""
    from hilp import tasks
    from hilp.evaluation import rollouts
    from hilp.spec import Spec

    try:
        if data.task is not None:
            rollouts.require_fit("this data", Spec.of(data.observations, data.action_dim), tasks.recorded(data.task))
        return data.task is not None
    except HilpError:  # a task that this installation does not have
        return False
