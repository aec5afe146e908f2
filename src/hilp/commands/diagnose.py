"""`hilp diagnose`: how well |phi(s) - phi(g)| fits the steps from s to g, and what that means."""

from __future__ import annotations

from dataclasses import dataclass

from hilp.commands import common
from hilp.errors import printable


@dataclass(frozen=True)
class Flags(common.Reading):
    """How well the latent distance fits the task, in numbers and in words."""

    run: common.RunFolder
    """folder of a run or of a policy"""
    task: str | None = None
    """task with exact distances (default: the one its data was collected in)"""
    data: str | None = None
    """data set to train a separate V(s, g) on, for tasks without exact distances and for the asymmetry of the data"""
    steps: int = 5000
    """updates of that V"""
    seed: int = 0
    """random seed"""
    json: bool = False
    """print JSON"""


def run(flags: Flags) -> int:
    from hilp.evaluation import diagnosis, words

    common.require_counts(flags, "steps")
    policy, _ = common.load_policy(flags.run)
    world = common.task_if_known(policy, flags.task)
    data = None
    if flags.data:
        data = common.load_data(flags.data, flags)
    result = diagnosis.diagnose(policy, world, data, steps=flags.steps, seed=flags.seed, quiet=flags.json)
    if flags.json:
        common.print_json(result)
    else:
        for sentence in words.sentences(result):
            print(f"- {printable(sentence)}")
    return 0
