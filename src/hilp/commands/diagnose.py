"""`hilp diagnose`: how well |phi(s) - phi(g)| fits the steps from s to g, and what that means."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    from hilp import runs
    from hilp.data.dataset import Dataset
    from hilp.evaluation import diagnosis, explain, held_out, setup

    common.require_counts(flags, "steps")
    policy, _ = common.load_policy(flags.run)
    world = setup.task_if_known(policy, flags.task)
    kept = runs.held_out(Path(flags.run)) if policy.has_rule("goal_direction") else None
    data = common.read_as_trained(flags.run, flags.data, flags) if flags.data else None
    unseen = None if kept is None else held_out.measure(policy, Dataset.open(kept), seed=flags.seed)
    if world is None and data is None and unseen is not None:
        result: dict[str, Any] = {"policy": policy.fingerprint, "method": policy.method}
    else:
        result = diagnosis.diagnose(policy, world, data, steps=flags.steps, seed=flags.seed, quiet=flags.json)
    if unseen is not None:
        result["held_out"] = unseen
    if flags.json:
        common.print_json(result)
        return 0
    sentences = explain.explain_diagnosis(result)
    if unseen is not None:
        plans = [{**unseen, **plan} for plan in unseen["plans"]]
        sentences += explain.explain_held_out(plans) + explain.advise(plans, diagnosis.training_summary(policy, data))
    for sentence in sentences:
        print(f"- {printable(sentence)}")
    return 0
