"""Foresight: what the graph of the data said about goals before anybody acted, kept in rows and held against what came.

A prompt that says how many steps a way takes, and whether there is one, is worth as much as its words come true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hilp.evaluation import stats
from hilp.evaluation.rows import Row
from hilp.policy.policy import FoundationPolicy
from hilp.policy.prompts import GoalPrompt
from hilp.trees import Tree

CERTIFICATES = ("yes", "unknown", "no")


def foresee(policy: FoundationPolicy, prompt: GoalPrompt, starts: Tree) -> dict[str, Any]:
    """The part of a row that says what a prompt on the graph expects of each episode from its start on."""
    assert prompt.to_goal is not None
    here = policy.encode(starts)
    goals = np.broadcast_to(prompt.latent, here.shape)
    to_goals = np.broadcast_to(prompt.to_goal, (len(here), prompt.to_goal.shape[-1]))
    found = [policy.planner.path_info(*one) for one in zip(here, goals, to_goals, strict=True)]
    return {
        "expected_steps": [float(one.steps) if np.isfinite(one.steps) else None for one in found],
        "reachable": [one.reachable for one in found],
    }


def certificates(row: Row) -> dict[str, tuple[int, int]]:
    """How many goals were said to be reachable, unknown, not reachable, and how many of those were reached."""
    said, came = np.array(row["reachable"]), np.array(row["outcomes"]) >= 1.0
    return {word: (int((said == word).sum()), int(came[said == word].sum())) for word in CERTIFICATES}


def calibration(row: Row) -> tuple[np.ndarray, np.ndarray]:
    """Expected and realised steps of the episodes that reached a goal by a way that the data shows."""
    came = np.array(row["outcomes"]) >= 1.0
    known = came & (np.array(row["reachable"]) == "yes") & (np.array(row["lengths"]) > 0)
    expected = np.array([np.nan if steps is None else steps for steps in row["expected_steps"]], float)
    return expected[known], np.array(row["lengths"], float)[known]


def sentences(row: Row) -> list[str]:
    """What is to be said about it."""
    words = {"yes": "shows a way to", "unknown": "cannot tell of", "no": "shows no way to"}
    told = [
        f"it {words[word]} {count:,} of {row['episodes']:,} goals, of which {reached:,} were reached"
        for word, (count, reached) in certificates(row).items()
        if count
    ]
    found = [f"Before anybody acted, the graph of the data said (plan {row['plan']}): {'; '.join(told)}."]
    expected, realised = calibration(row)
    if len(expected) >= 2:
        ratio = float(np.median(realised / np.maximum(expected, 1.0)))
        found.append(
            f"Of those reached by a way that it shows, the steps taken were {ratio:.2f} of those expected (median), in "
            f"the same order with rank correlation {stats.spearman(expected, realised):.2f}."
        )
    return found


def foreseen(rows: Sequence[Row]) -> Row | None:
    """The row to tell about: that of the graph itself, or of another plan that follows it."""
    told = [row for row in rows if "expected_steps" in row and "reachable" in row]
    return next((row for row in told if row["plan"] == "graph"), told[0] if told else None)
