"""Writes the tables of the pages from the kept rows in benchmarks/: new rows become new tables by one command.

Run: python tools/docs_tables.py [--check]   (--check only names the pages whose tables say something else)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import tables_goals as goals
import tables_rewards as rewards
import tables_speed as speed
from kept_rows import ROOT, Table

Place = tuple[str, str, str]

RESULTS = "docs/results.md"
GRAPH_PLANS = "Plans on the graph (laptop)"
MAZE_REWARDS = "Zero-shot RL on the maze (laptop)"
PAIRS = "prompt, 400 random start-goal pairs"
# Page, heading, the header's first two cells -> what makes the table.
MADE: dict[Place, Callable[[], Table]] = {
    (
        "README.md",
        "Two commands",
        f"{PAIRS} in the large maze | reached, mean of 3 seeds",
    ): goals.readme_goals,
    ("README.md", "Two commands", "prompt, 400 random starts | share of the possible gain, mean"): goals.readme_rewards,
    (RESULTS, "The quickstart (laptop preset)", "maze | seed"): goals.quickstart_runs,
    (RESULTS, "The quickstart (laptop preset)", "prompt | mean"): goals.second_machine,
    (RESULTS, "Goals on the mazes (laptop)", "method | maze-large"): goals.goals,
    (RESULTS, GRAPH_PLANS, "data | seeds"): goals.plans_on_the_graph,
    (RESULTS, "Maps of one's own (laptop)", "map | longest way"): goals.own_maps,
    (RESULTS, "Latent dimension and embedding error", "dim | 2"): goals.dimension,
    (RESULTS, "Learning faster, and extracting policies", " | maze-large"): goals.ablation,
    (RESULTS, "One-way doors (laptop)", "method | steps off"): goals.one_way,
    (RESULTS, "AntMaze (laptop)", "method | success"): goals.antmaze,
    (RESULTS, "Latent dimension and embedding error on AntMaze", "dim | 2"): goals.dimension_antmaze,
    (RESULTS, "OGBench (laptop)", "method | updates"): goals.ogbench_mazes,
    (RESULTS, "OGBench (laptop)", "data | transitions"): goals.ogbench_scripts,
    (RESULTS, "An arm and a cube (laptop)", "method | updates"): goals.ogbench_arms,
    (RESULTS, "Kitchen (laptop)", "method | subtasks of four"): goals.kitchen,
    (RESULTS, "Kitchen (laptop)", "script | noise 0, alone"): goals.kitchen_scripts,
    (RESULTS, MAZE_REWARDS, "method | region"): rewards.zero_shot_maze,
    (RESULTS, "Plans on the graph in AntMaze", "data | plan 0"): goals.antmaze_on_the_graph,
    (RESULTS, "Plans on the graph in AntMaze", "maze | seeds"): goals.antmaze_seeds,
    (RESULTS, "Plans on the graph in AntMaze", "antmaze-ultra, plan graph | seeds 0, 1, 2"): goals.antmaze_steady,
    (RESULTS, "Rivals in AntMaze", "method | large"): goals.antmaze_rivals,
    (RESULTS, "Rewards on the graph (laptop)", "method | updates"): rewards.rewards_on_the_graph,
    (RESULTS, "Zero-shot RL on the walker (laptop)", "method | seed"): rewards.zero_shot_walker,
    (RESULTS, "Walker and cheetah after 100,000 updates", "task | reward"): rewards.zero_shot_long,
    (RESULTS, "Ways to ask the walker (laptop)", "prompt | stand"): rewards.walker_ways,
    (RESULTS, "Ways to ask the walker (laptop)", "known beforehand | stand"): rewards.walker_searches,
    (RESULTS, "Zero-shot RL on the walker from pixels (laptop)", "method | updates"): rewards.zero_shot_walker_pixels,
    (RESULTS, "An arm at four rates (laptop)", "logged at | stride"): goals.arm,
    (RESULTS, "Hierarchies", "method | updates"): rewards.hierarchies,
    (RESULTS, "A high level in the kitchen", "method | updates (skills, high level)"): rewards.hierarchies_kitchen,
    (RESULTS, "A high level in AntMaze", "maze | method"): rewards.hierarchies_antmaze,
    (RESULTS, "Speed", "name | value"): speed.speed,
    (RESULTS, "Speed", "of | tried"): speed.speed_trials,
}
WITHOUT_NUMBERS: set[Place] = {  # tables that show no result
    ("README.md", "Methods, tasks and tables", " | names"),
    (RESULTS, "The quickstart (laptop preset)", "change | our reading"),
}


def tables(page: str, text: str) -> Iterator[tuple[Place, int, int]]:
    """The tables of a page's text: its place, its first line, and the line behind its last."""
    heading, fenced, start = "", False, None
    lines = [*text.split("\n"), ""]
    for number, line in enumerate(lines):
        fenced ^= line.lstrip().startswith("```")
        if line.startswith("#") and not fenced:
            heading = line.lstrip("# ")
        if line.startswith("|") and not fenced:
            start = number if start is None else start
        elif start is not None:
            yield (page, heading, " | ".join(cells(lines[start])[:2])), start, number
            start = None


def cells(line: str) -> list[str]:
    """What a table's line says."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def written(table: Table) -> list[str]:
    """A table's lines in Markdown."""
    header, *rows = [f"| {' | '.join(line)} |" for line in table]
    return [header, "|" + "---|" * len(table[0]), *rows]


def filled(page: str, text: str) -> str:
    """A page's text with every table as the rows have it."""
    lines, places = text.split("\n"), list(tables(page, text))
    known = {place for place in {*MADE, *WITHOUT_NUMBERS} if place[0] == page}
    found = [place for place, *_ in places]
    if sorted(found) != sorted(known):
        wrong = sorted({*found} ^ known) or [place for place in found if found.count(place) > 1]
        raise SystemExit(f"tables and MADE in tools/docs_tables.py do not agree: {wrong}")
    for place, start, end in reversed(places):
        if place in MADE:
            lines[start:end] = written(MADE[place]())
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """Write the tables; with --check only name the pages that would change, and then 1."""
    check, changed = "--check" in words, False
    for page in dict.fromkeys(place[0] for place in MADE):
        text = (ROOT / page).read_text()
        if (new := filled(page, text)) != text:
            changed = True
            print(f"{page}: " + ("tables differ from the rows: make format" if check else "written"))
            if not check:
                (ROOT / page).write_text(new)
    return int(check and changed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
