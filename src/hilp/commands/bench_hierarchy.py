"""`hilp bench hierarchy`: the paper's hierarchical table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from hilp.commands import bench_tables, common
from hilp.errors import require_count


@dataclass(frozen=True)
class Flags(bench_tables.TableFlags):
    """Train skills and a high level over them for one sparse reward, flat IQL beside: the paper's hierarchical table.

    Run the command again to continue after an interruption: cells whose rows exist are skipped.
    """

    data: tuple[str, ...] = ("maze-large",)
    """data sets, each with a task that has a far place or a reward: mazes, or what `hilp data collect` wrote"""
    methods: tuple[str, ...] = ()
    """methods to compare: those with skills of segments, and iql without any (default: iql opal hilp)"""
    reward: str | None = None
    """the task's reward to learn (default: 'target', its one far place or its subtasks)"""
    high_steps: int | None = None
    """gradient updates of each high level (default: the preset's)"""
    high_set: tuple[str, ...] = ()
    """config values of the high level to change: key=value ..."""
    episodes: int = 100
    """episodes of each policy"""


def run(flags: Flags) -> int:
    from hilp.bench import hierarchy, tables

    if flags.high_steps is not None:
        require_count("--high-steps", flags.high_steps)
    values = tuple(common.config_values(flags.high_set).items())

    def make(world: Any) -> Any:
        reward = hierarchy.reward_for(world, flags.reward)
        return partial(hierarchy.HierarchyCell, reward=reward, high_steps=flags.high_steps, high_values=values)

    rows, _ = bench_tables.fill("hierarchy", flags, hierarchy.METHODS, intercept=False, make=make)
    table = tables.hierarchy_table(rows)
    if flags.json:
        common.print_json({"table": table})
        return 0
    score = " or ".join(dict.fromkeys("return" if m == "return" else f"100 x {m}" for m in (r["metric"] for r in rows)))
    title = f"{score}, {flags.preset}, {flags.episodes} episodes, {tables.spread_words(rows)}"
    title += " (ours / paper)" if any(" / " in cell for line in table[1] for cell in line[1:]) else ""
    common.print_table(*table, title=title)
    return 0
