"""`hilp bench goals`: the paper's goal-conditioned table."""

from __future__ import annotations

from dataclasses import dataclass

from hilp.commands import bench_tables
from hilp.errors import printable, require_count


@dataclass(frozen=True)
class Flags(bench_tables.TableFlags):
    """Train methods on unlabeled data and send each to the goals of the task: the paper's goal-conditioned table.

    Run the command again to continue after an interruption: cells whose rows exist are skipped.
    """

    data: tuple[str, ...] = ("maze-large", "maze-ultra")
    """data sets, each with a task that has goals: mazes by name, or what `hilp data collect` wrote"""
    methods: tuple[str, ...] = ()
    """methods to compare (default: the paper's eight; HILP-Plan is a prompt of hilp)"""
    episodes: int = 100
    """start-goal pairs per prompt"""
    curve_points: int = 0
    """evaluations of each policy while it is trained, for a learning curve (50 pairs each)"""
    errors: bool = False
    """also compare each policy's distances with the true ones, or with a learned V(s, g) where those are unknown"""


def run(flags: Flags) -> int:
    from hilp.bench import entries, tables

    require_count("--curve-points", flags.curve_points, 0)
    options = {"errors": flags.errors, "curve_points": flags.curve_points}
    rows, swept = bench_tables.fill("goals", flags, entries.GOAL_METHODS, **options)
    bench_tables.show(flags, rows, tables.goal_table(rows), "100 x success", "pairs")
    if flags.json:
        return 0
    notes = tables.value_notes(rows)
    for name, own in tables.grouped(rows, tables.data_of).items() if flags.curve_points else ():
        if not any("curve" in row for row in own):
            notes.append(f"note: no learning curve of {name}: its policies were trained without --curve-points")
    for note in notes:
        print(printable(note))
    bench_tables.save_pictures(flags, tables.goal_figures(rows, swept))
    return 0
