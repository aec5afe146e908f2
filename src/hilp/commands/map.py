"""`hilp map`: the latent space next to the plan of the task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hilp.commands import common
from hilp.errors import HilpError


@dataclass(frozen=True)
class Flags(common.Reading):
    """Draw the latent space next to the plan of the task and, where latents are distances, those to a goal."""

    run: common.RunFolder
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
    """how latents are projected to two dimensions: t-SNE or principal components (default: t-SNE above two)"""
    goal: str | None = None
    """goal of the distances: task3, row:12, x=3,y=4 or all numbers (default: one that `hilp evaluate` could draw)"""
    seed: int = 0
    """seed of the states and of that goal"""
    json: bool = False
    """print JSON"""


def run(flags: Flags) -> int:
    from hilp.evaluation import setup
    from hilp.prompts.bank import Bank
    from hilp.report import figures, page
    from hilp.spec import Spec
    from hilp.tasks import rendering

    common.require_counts(flags, "points")
    if flags.out is not None:
        common.require_picture("--out", flags.out)
    policy, home = common.load_policy(flags.run)
    policy.require_rule("encode", "has no latent map")
    world = setup.task_for_policy(policy, setup.task_of(policy, flags.task))
    if not world.has_goals:
        raise HilpError(f"{world.name} has no plan to draw on: mazes and AntMaze have one")
    setup.require_fit("this policy", policy.spec, world)
    goal = None
    if flags.goal is not None:
        policy.require_rule("goal_direction", "does not learn distances: leave out --goal")
        goal = setup.find_goal(flags.goal, policy, world, seed=flags.seed).observation
    sample = policy.bank
    if flags.data is not None:
        data = common.read_as_trained(flags.run, flags.data, flags)
        setup.require_fit("this data", Spec.of(data.observations, data.action_dim), world)
        sample = Bank.draw(data, max(flags.points, page.FIELD_STATES), flags.seed)
    if len(sample) == 0:
        raise HilpError("this policy keeps no states (--bank 0): name a data set with --data")
    target = home / "latents.png" if flags.out is None else Path(flags.out)
    drawn = sample.subsample(flags.points, flags.seed).observations
    latents = policy.encode_all(drawn)
    result: dict[str, Any] = {"policy": policy.fingerprint, "task": world.name, "points": len(latents)}
    pictures = {}
    if policy.has_rule("goal_direction"):
        goal = page.evaluation_goal(world, goal, flags.seed)  # a state, also where policies see pictures
        result["goal"] = goal.tolist()
        distances = target.with_stem(f"{target.stem}-distances")
        pictures["distances"] = (page.learned_distances(policy, world, sample, goal), distances)
    places = rendering.infer_states(world, drawn)
    pictures["latents"] = (figures.latent_map(world, places, latents, flatten=flags.flatten), target)
    common.print_result(result | {name: str(figures.save(*picture)) for name, picture in pictures.items()}, flags.json)
    return 0
