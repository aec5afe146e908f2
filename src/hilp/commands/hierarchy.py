"""`hilp hierarchy`: a high-level policy that sequences the skills of a trained one, for a reward."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hilp.commands import common
from hilp.errors import printable
from hilp.training.options import RunOptions


@dataclass(frozen=True)
class Hierarchy(common.Printing, common.Reading, RunOptions):
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

    def __call__(self) -> None:
        from hilp import presets
        from hilp.evaluation import setup
        from hilp.learning import methods
        from hilp.runs import PROMPT, seed_folder
        from hilp.training.hierarchy import hierarchy

        common.require_counts(self, "steps", "seeds", "k", "checkpoint_every", "keep", "devices")
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
        made = hierarchy(policy, data, **reward, **options)
        prompts = made if isinstance(made, list) else [made]
        out = Path(self.out)
        files = [str((out if self.seeds == 1 else seed_folder(out, p.high.about["seed"])) / PROMPT) for p in prompts]
        if self.json:
            found = {"out": self.out, "prompts": files, "policy": policy.fingerprint, "k": prompts[0].high.k}
            common.print_json({**found, "steps": steps, "preset": self.preset})
        else:
            count = "a high level" if len(files) == 1 else f"{len(files)} high levels"
            verb = "evaluate" if self.task or policy.provenance.task else "prompt"  # what needs a task to act in
            next_command = f"hilp {verb} {common.quoted(self.run)} --load {common.quoted(files[0])}"
            print(f"trained {count} in {printable(self.out)}: try `{next_command}`")
