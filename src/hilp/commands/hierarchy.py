"""`hilp hierarchy`: a high-level policy that sequences the skills of a trained one, for a reward."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hilp.commands import common
from hilp.errors import printable
from hilp.training.options import RunOptions


@dataclass(frozen=True)
class Flags(common.Reading, RunOptions):
    """Train a high level that chooses one of a policy's skills every k steps, from data with rewards."""

    run: common.RunFolder
    """folder of a run or of a policy whose skills are those of segments: hilp, opal"""
    data: str
    """a built-in name (see `hilp data list`), a native folder or a file; of the policy's task"""
    out: str
    """folder to train in; the prompt is written there"""
    reward: str | None = None
    """a reward of the task ('target': its far place or its subtasks) or a formula (default: the data's own rewards)"""
    shift: float | None = None
    """added to every reward (default: 0; with 'target' of a place -1, so that time counts)"""
    ends: bool = False
    """an episode is over once it has earned more than 0 (always so with 'target' of a place)"""
    task: str | None = None
    """task whose reward it is (default: the one the policy's data was collected in)"""
    k: int | None = None
    """steps that a skill lasts (default: as it was learnt, else 10)"""
    preset: str = "laptop"
    """laptop (two cores, minutes) or paper (the paper's tables)"""
    steps: int | None = None
    """gradient updates (default: the preset's)"""
    set: tuple[str, ...] = ()
    """config values of the high level to change: key=value ..."""
    validation: float = 0.0
    """share of episodes held out for validation losses"""
    devices: int = 1
    """devices that share out each batch"""
    json: bool = False
    """print a JSON line about the trained prompt, and no progress"""


def run(flags: Flags) -> int:
    from hilp import presets
    from hilp.evaluation import setup
    from hilp.learning import methods
    from hilp.runs import PROMPT, seed_folder
    from hilp.training.hierarchy import hierarchy

    common.require_counts(flags, "steps", "seeds", "k", "checkpoint_every", "keep", "devices")
    policy, _ = common.load_policy(flags.run)
    data = common.read_as_trained(flags.run, flags.data, flags, task=flags.task)
    preset = presets.high_level(flags.preset, data.task)
    config = methods.configure(preset.config, common.config_values(flags.set))
    steps = preset.steps if flags.steps is None else flags.steps
    reward: dict[str, Any] = {"reward": None, "shift": flags.shift or 0.0, "ends": flags.ends}
    if flags.reward is not None:
        world = setup.task_if_known(policy, flags.task)
        reward = {"reward": setup.reward_of(flags.reward, policy, world), "named": flags.reward}
        reward |= setup.reward_shift(world, flags.reward, flags.shift, flags.ends)
    made = hierarchy(
        policy,
        data,
        steps=steps,
        k=flags.k,
        config=config,
        **reward,
        **flags.run_options(),
        out=flags.out,
        validation=flags.validation,
        devices=flags.devices,
        quiet=flags.json,
        command=common.command(),
    )
    prompts = made if isinstance(made, list) else [made]
    out = Path(flags.out)
    files = [str((out if flags.seeds == 1 else seed_folder(out, p.high.about["seed"])) / PROMPT) for p in prompts]
    if flags.json:
        found = {"out": flags.out, "prompts": files, "policy": policy.fingerprint, "k": prompts[0].high.k}
        common.print_json({**found, "steps": steps, "preset": flags.preset})
    else:
        count = "a high level" if len(files) == 1 else f"{len(files)} high levels"
        verb = "evaluate" if flags.task or policy.provenance.task else "prompt"  # what needs a task to act in
        next_command = f"hilp {verb} {common.quoted(flags.run)} --load {common.quoted(files[0])}"
        print(f"trained {count} in {printable(flags.out)}: try `{next_command}`")
    return 0
