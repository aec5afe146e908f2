"""`hilp bench rewards`: the paper's zero-shot RL table."""

from __future__ import annotations

from dataclasses import dataclass

from hilp.commands import bench_tables, common


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
    """prompt with a constant, too, that is fitted with the features"""
    adapt: int | None = None
    """one more row of each: its prompts after a search with so many episodes, which are not those that are counted"""


def run(flags: Flags) -> int:
    from hilp.bench import entries, tables

    common.require_counts(flags, "adapt")
    options = {"intercept": flags.intercept, "adapt": flags.adapt or 0}
    rows, swept = bench_tables.fill("rewards", flags, entries.REWARD_METHODS, **options)
    groups = tables.grouped(rows, tables.data_of)
    ours = {name: tables.table(own) for name, own in groups.items()}
    theirs = {name: tables.paper_table(own) for name, own in groups.items()}
    if flags.json:
        common.print_json({"tables": ours, "paper": theirs})
        return 0
    for name, table in ours.items():
        common.print_table(*table, title=f"{name}, {flags.preset}, {tables.spread_words(rows)}")
        if (paper := theirs[name]) is not None:
            common.print_table(*paper, title=f"{name}, ours and the paper's")
    bench_tables.save_pictures(flags, tables.reward_figures(rows, swept))
    return 0
