"""`hilp bench goals`: the paper's goal-conditioned table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from hilp.commands import bench_tables, common
from hilp.errors import HilpError, printable

if TYPE_CHECKING:
    from hilp.evaluation.rows import Row


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
    curve_points: Annotated[int, arg(aliases=("--looks",))] = 0
    """evaluations of each policy while it is trained, for a learning curve (50 pairs each)"""
    errors: bool = False
    """also compare each policy's distances with the true ones, or with a learned V(s, g) where those are unknown"""


def run(flags: Flags) -> int:
    from hilp.bench import cells, tables

    if flags.curve_points < 0:
        raise HilpError(f"--curve-points must be at least 0, not {flags.curve_points}")
    rows, swept = bench_tables.fill(
        "goals", flags, cells.GOAL_METHODS, intercept=False, errors=flags.errors, curve_points=flags.curve_points
    )
    if flags.json:
        common.print_json({"table": tables.goal_table(rows)})
        return 0
    title = f"100 x success, {flags.preset}, {flags.episodes} pairs, {tables.spread_words(rows)}"
    title += " (ours / paper)" if tables.beside_the_paper(rows) else ""
    common.print_table(*tables.goal_table(rows), title=title)
    for note in tables.value_notes(rows):
        print(printable(note))
    draw(flags, rows, swept)
    print(f"pictures: {printable(flags.out)}")
    return 0


def draw(flags: Flags, rows: list[Row], swept: str | None) -> None:
    """Success by plan, by error and while training, and a curve of what was swept."""
    from hilp.bench import cells, pictures, tables
    from hilp.report import figures

    out = Path(flags.out)
    for name, own in tables.by_data(rows):
        for label in dict.fromkeys(row["cell"]["label"] for row in own):
            fig = pictures.planning_figure(own, label)
            if fig is not None:
                figures.save(fig, out / f"goals-plan-{cells.file_name(name)}-{cells.file_name(label)}.png")
        errors, curve = pictures.error_figure(own, swept), pictures.curve_figure(own)
        if errors is not None:
            figures.save(errors, out / f"goals-errors-{cells.file_name(name)}.png")
        if curve is not None:
            figures.save(curve, out / f"goals-curve-{cells.file_name(name)}.png")
        elif flags.curve_points:
            print(f"note: no learning curve of {printable(name)}: its policies were trained without --curve-points")
    if swept is not None:
        figures.save(pictures.goal_sweep_figure(rows, swept), out / f"goals-sweep-{swept}.png")
