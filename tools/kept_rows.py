"""The kept rows in benchmarks/, and how the tables of the pages write numbers."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hilp.evaluation import stats

ROOT = Path(__file__).parent.parent
Row = dict[str, Any]
Table = list[list[str]]


@cache
def kept(name: str) -> tuple[Row, ...]:
    return tuple(json.loads(line) for line in (ROOT / "benchmarks" / f"{name}.jsonl").read_text().splitlines())


def percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def mean(values: list[float]) -> str:
    return f"{np.mean(values):.0f}"


def spread(values: list[float], digits: int = 0) -> str:
    return f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}"


def spread_or_mean(values: list[float]) -> str:
    return spread(values) if len(values) > 1 else mean(values)


def with_interval(strata: list[list[float]], digits: int = 0) -> str:
    middle, low, high = stats.stratified_bootstrap(strata)
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def of_temperature_10(row: Any) -> bool:
    """Whether a row is of HILP with weights that tell the data's actions apart more (docs/how-it-works.md)."""
    return row["method"] == "hilp" and row["config"]["temperature"] == 10.0


def data_of(row: Any) -> str:
    return row["data"] + (", temperature 10" if of_temperature_10(row) else "")


def success(file: str, label: str, plan: Any = 0, **where: Any) -> list[float]:
    """100 x success of every seed."""
    return [
        100 * row["score"]
        for row in kept(file)
        if (row["cell"]["label"], row["plan"]) == (label, plan)
        and all(row[key] == value for key, value in where.items())
    ]


def share(row: Row) -> float:
    return float((row["score"] - row["random"]) / (row["best_possible"] - row["random"]))
