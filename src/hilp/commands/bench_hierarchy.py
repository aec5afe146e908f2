"""`hilp bench hierarchy`: the paper's hierarchical table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hilp.commands import bench_tables, common


@dataclass(frozen=True)
class Flags(bench_tables.TableFlags):
    """Train skills, a high level over them for one sparse reward, and flat IQL: the paper's hierarchical table.

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
    from hilp.bench import entries, tables

    common.require_counts(flags, "high_steps")
    high: dict[str, Any] = {"high_steps": flags.high_steps, "high_values": common.config_values(flags.high_set)}
    rows, _ = bench_tables.fill("hierarchy", flags, entries.HIERARCHY_METHODS, reward=flags.reward, **high)
    scores = dict.fromkeys("return" if row["metric"] == "return" else f"100 x {row['metric']}" for row in rows)
    bench_tables.show(flags, rows, tables.hierarchy_table(rows), " or ".join(scores), "episodes")
    return 0
