"""`hilp bench rewards`: the paper's zero-shot RL table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hilp.commands import bench_tables, common
from hilp.errors import printable

if TYPE_CHECKING:
    from hilp.evaluation.rows import Row


@dataclass(frozen=True)
class Flags(bench_tables.TableFlags):
    """Train methods on unlabeled data and prompt each with every reward of the task: the paper's zero-shot RL table.

    Run the command again to continue after an interruption: cells whose rows exist are skipped.
    """

    data: tuple[str, ...] = ("maze-large",)
    """data sets, each with a task that has rewards: mazes by name, or what `hilp data collect` wrote"""
    methods: tuple[str, ...] = ()
    """methods to compare; sf-hilp-g: the goal of highest reward, (sf-)hilp-graph: plans (default: the paper's)"""
    episodes: int = 50
    """episodes per reward"""
    intercept: bool = False
    """prompt with a constant fitted beside the features"""
    adapt: int | None = None
    """one more row of each: its prompts after a search with so many episodes, which are not those that are counted"""


def run(flags: Flags) -> int:
    from hilp.bench import cells
    from hilp.bench import tables as reading

    common.require_counts(flags, "adapt")
    asked = {"intercept": flags.intercept, "adapt": flags.adapt or 0}
    rows, swept = bench_tables.fill("rewards", flags, cells.REWARD_METHODS, **asked)
    tables = {name: reading.table(own) for name, own in reading.by_data(rows)}
    beside = {name: reading.paper_table(own) for name, own in reading.by_data(rows)}
    if flags.json:
        common.print_json({"tables": tables, "beside_the_paper": beside})
        return 0
    for name, own in tables.items():
        common.print_table(*own, title=f"{name}, {flags.preset}, {reading.spread_words(rows)}")
        theirs = beside[name]
        if theirs is not None:
            common.print_table(*theirs, title=f"{name} beside the paper")
    draw(flags, rows, swept)
    print(f"pictures: {printable(flags.out)}")
    return 0


def draw(flags: Flags, rows: list[Row], swept: str | None) -> None:
    """Bars of the methods, by data set or more, and a curve of what was swept."""
    from hilp.bench import cells, pictures, tables
    from hilp.report import figures

    out = Path(flags.out)
    for group in ("environment", "data", "task") if len(flags.data) > 1 else ("data",):
        for name, labels in tables.aggregates(rows, group).items():
            middle, low, high = zip(*labels.values(), strict=True)
            fig = figures.bars(list(labels), middle, low, high, title=f"{name}: IQM of all rewards")
            figures.save(fig, out / f"rewards-{group}-{cells.file_name(name)}.png")
    if swept is not None:
        figures.save(pictures.sweep_figure(rows, swept), out / f"rewards-sweep-{swept}.png")
