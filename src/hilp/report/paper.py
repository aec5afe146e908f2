"""The paper's result tables, for reports that compare its numbers with ours.

`paper.json` holds the four tables that have numbers for every setting; a cell is [mean, standard deviation over seeds],
or null where the paper has a dash. Its rows are data sets, or `environment/task/data set` for zero-shot RL.

A method goes by the paper's name in lower case (`hilp`, `lap`, `gc-td3`, ...), or by ours where ours says more:
`sf-lap` is Lap in the zero-shot tables (successor features), `iql-lap` is Lap in the goal-conditioned one (IQL). HILP
itself is trained both ways under one name: the zero-shot tables have our `sf-hilp`, the others our `hilp`.
"""

import json
import math
import re
from functools import cache
from importlib import resources
from typing import Any

Score = tuple[float, float]  # mean, standard deviation over seeds

DATASETS = ("aps", "apt", "proto", "rnd")  # of the zero-shot tables


@cache
def tables() -> dict[str, Any]:
    """The tables as they are in the file: seeds, what the score is, methods (columns) and rows."""
    found: dict[str, Any] = json.loads(resources.files("hilp.report").joinpath("paper.json").read_text("utf-8"))
    return found


def zero_shot(
    env: str, task: str, method: str, dataset: str | None = None, pixels: bool = False, rule: str = "skill"
) -> Score | None:
    """The return in a zero-shot task (Tables 3 and 4), unnormalised; None where the paper has no number.

    Without a data set: the mean over the four of them, with the standard deviation that this mean has over seeds if the
    seeds of different data sets are independent, sqrt(sum of squares) / 4; the paper does not give it.

    `rule` is that of the reward prompt. With `goal`, the goal that a reward points at, `sf-hilp` is HILP-G, GC-TD3 is
    itself, and the others are not in the paper.
    """
    column = method.removeprefix("sf-")
    if rule == "goal" and column not in ("gc-td3", "hilp-g"):
        column = "hilp-g" if column == "hilp" else ""
    table = "zero_shot_pixel" if pixels else "zero_shot_state"
    if dataset is not None:
        return _cell(table, f"{env}/{task}/{dataset}", column)
    scores = [_cell(table, f"{env}/{task}/{name}", column) for name in DATASETS]
    known = [score for score in scores if score is not None]
    if len(known) < len(DATASETS):
        return None
    return math.fsum(mean for mean, _ in known) / len(known), math.hypot(*(std for _, std in known)) / len(known)


def goal_conditioned(dataset: str, method: str) -> Score | None:
    """100 x success (AntMaze) or 25 x return (Kitchen) of reaching goals (Table 1); None where there is no number.

    `hilp` is HILP without planning, `hilp-plan` with it.
    """
    return _cell("goal_conditioned", dataset, method.removeprefix("iql-"))


def hierarchical(dataset: str, method: str) -> Score | None:
    """The score of `opal` or `hilp` under a learned high level (Table 2); None where there is no number."""
    return _cell("hierarchical", dataset, method)


def _cell(table: str, row: str, column: str) -> Score | None:
    methods, rows = tables()[table]["methods"], tables()[table]["rows"]
    row = re.sub(r"-v\d+$", "", row)  # the benchmark has antmaze-large-play-v2 where the paper has no version
    if row not in rows or column not in methods:
        return None
    cell = rows[row][methods.index(column)]
    return None if cell is None else (float(cell[0]), float(cell[1]))
