"""Rows: what one prompt of one policy scored in one task, and what made it. A row is a plain dict and a line of JSON.

`FIELDS` is the schema (docs/rows.md tells it to people). Rows of earlier versions lack fields, and rows of later ones
have more: what is there must make sense, what is not asked for is passed over.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from hilp.errors import HilpError, some
from hilp.evaluation import stats
from hilp.policy import planning
from hilp.storage import lines

LARGEST = 1e12  # of a number: beyond it nothing that is measured here lies, and pictures have no room
GAIN = "share of the possible gain"  # the metric of rewards of getting somewhere
Metrics = dict[str, Any]  # a line of a run's metrics.jsonl


class Cell(TypedDict, total=False):
    """Which policy of which table a row belongs to (`hilp bench goals`, `rewards` and `hierarchy`)."""

    kind: str
    label: str
    config: str
    data: str
    data_fingerprint: str
    seed: int
    preset: str
    updates: int
    episodes: int
    intercept: bool
    errors: bool
    adapt: int
    reward: str
    high_config: str
    high_updates: int


class Row(TypedDict):
    """One prompt of one policy in one task."""

    task: str
    method: str
    policy: str
    prompt: str
    metric: str
    score: float
    episodes: int
    plan: NotRequired[int | str]
    goal: NotRequired[str]
    goal_dims: NotRequired[list[int]]
    smooth: NotRequired[float]
    by_goal: NotRequired[dict[str, float]]
    reward: NotRequired[str]
    interval: NotRequired[list[float]]
    outcomes: NotRequired[list[float]]
    lengths: NotRequired[list[int]]
    mean_length_of_successes: NotRequired[float | None]
    radius: NotRequired[float | None]
    expected_steps: NotRequired[list[float | None]]
    reachable: NotRequired[list[str]]
    rule: NotRequired[str]
    intercept: NotRequired[bool]
    r2: NotRequired[float | None]
    adapted: NotRequired[int]
    search: NotRequired[list[float]]
    best_possible: NotRequired[float | None]
    score_scale: NotRequired[float]
    random: NotRequired[float]
    possible: NotRequired[list[float]]
    steps: NotRequired[int]
    config: NotRequired[dict[str, Any]]
    train_seed: NotRequired[int | None]
    train_steps: NotRequired[int | None]
    data: NotRequired[str | None]
    data_fingerprint: NotRequired[str | None]
    checkpoint: NotRequired[str]
    evaluation_seed: NotRequired[int]
    best_evaluation: NotRequired[dict[str, Any] | None]
    command: NotRequired[str]
    versions: NotRequired[dict[str, str]]
    cell: NotRequired[Cell]
    hierarchy: NotRequired[dict[str, Any]]
    embedding: NotRequired[dict[str, Any]]
    curve: NotRequired[list[dict[str, Any]]]
    held_out: NotRequired[dict[str, Any]]


# ---- what makes sense ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """What a value must be, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]

    def or_null(self) -> Kind:
        return Kind(f"{self.words} or null", lambda value: value is None or self.holds(value))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= LARGEST  # not so for NaN


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_list(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(of, value))


def _has(**kinds: Kind) -> Callable[[Any], bool]:
    """An object in which these keys, where it has them, make sense."""
    return lambda value: (
        isinstance(value, dict) and all(kind.holds(value[key]) for key, kind in kinds.items() if key in value)
    )


TEXT = Kind("text", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
NUMBER = Kind(f"a number within ±{LARGEST:g}", _is_number)
COUNT = Kind("a whole number from 0 on", _is_count)
COUNTS = Kind("a list of whole numbers from 0 on", _is_list(_is_count))
NUMBERS = Kind(f"a list of numbers within ±{LARGEST:g}", _is_list(_is_number))
INTERVAL = Kind(
    "two numbers, the lower first",
    lambda value: _is_list(_is_number)(value) and len(value) == 2 and value[0] <= value[1],
)
PROMPT = Kind("'goal' or 'reward'", lambda value: value in ("goal", "reward") and isinstance(value, str))
PLAN = Kind(
    f"a number of recursions, or one of {some(planning.NAMED)}",
    lambda value: _is_count(value) or value in planning.NAMED,
)
OBJECT = Kind("an object", lambda value: isinstance(value, dict))
TEXTS = Kind("an object of texts", lambda value: isinstance(value, dict) and all(map(TEXT.holds, value.values())))
SHARES = Kind(
    "an object of numbers from 0 to 1",
    lambda value: isinstance(value, dict) and all(_is_number(v) and 0 <= v <= 1 for v in value.values()),
)
BEST = Kind("an object with step and success", _has(step=COUNT, success=NUMBER))
CELL = Kind(
    "an object with kind, label, data, seed and more",
    lambda value: (
        _has(kind=TEXT, label=TEXT, config=TEXT, data=TEXT, data_fingerprint=TEXT, seed=COUNT, preset=TEXT,
             updates=COUNT, episodes=COUNT, intercept=FLAG, errors=FLAG, adapt=COUNT, reward=TEXT,
             high_config=TEXT, high_updates=COUNT)(value)
        and {"label", "data"} <= value.keys()
    ),
)  # fmt: skip
EMBEDDING = Kind(
    "an object with against, mse and more",
    lambda value: (
        _has(against=TEXT, mse=NUMBER, steps_off=NUMBER, mean_true=NUMBER, relative=NUMBER,
             rank_correlation=NUMBER.or_null(), disagreement=NUMBER, asymmetry=NUMBER, value_expectile=NUMBER,
             value_steps=COUNT, value=TEXT)(value)
        and {"against", "mse"} <= value.keys()
    ),
)  # fmt: skip
CURVE = Kind(
    "a list of objects with step and success",
    _is_list(
        lambda value: _has(step=COUNT, success=NUMBER, success_plan=NUMBER)(value) and {"step", "success"} <= {*value}
    ),
)


@dataclass(frozen=True)
class Field:
    kind: Kind
    what: str
    always: bool = False  # a row without it is none


FIELDS: dict[str, Field] = {
    "task": Field(TEXT, "the task that the policy was prompted in", always=True),
    "method": Field(TEXT, "the method that trained the policy", always=True),
    "policy": Field(TEXT, "fingerprint of the policy", always=True),
    "prompt": Field(PROMPT, "what the policy was prompted with", always=True),
    "metric": Field(
        TEXT, "what the score is: success, share of the subtasks, share of the possible gain, or return", always=True
    ),
    "score": Field(
        NUMBER, "mean over the episodes (of gains: their sum over the sum of what was possible)", always=True
    ),
    "episodes": Field(Kind("a whole number from 1 on", lambda v: _is_count(v) and v >= 1), "how many", always=True),
    "plan": Field(PLAN, "goal prompts: midpoint recursions, or how it plans"),
    "goal": Field(TEXT, "goal prompts: the one goal that was asked for, where it was not the task that chose"),
    "goal_dims": Field(COUNTS, "goal prompts: the columns of goals that mattered, where not all did"),
    "smooth": Field(NUMBER, "goal prompts: steps that an agent's place was averaged over, where it was"),
    "by_goal": Field(SHARES, "goal prompts: success of each goal that the task has a name for"),
    "reward": Field(TEXT, "reward prompts: name of the reward"),
    "interval": Field(
        INTERVAL, "95% interval of the score: Wilson (success) or bootstrap over episodes (shares, return)"
    ),
    "outcomes": Field(NUMBERS, "of each episode: 1 or 0 (success), share, gain or return"),
    "lengths": Field(COUNTS, "goals and the target: steps of each episode"),
    "mean_length_of_successes": Field(NUMBER.or_null(), "goals and the target: null where none was reached"),
    "radius": Field(
        NUMBER.or_null(),
        "plans by midpoints, as `auto` once was: latent steps within which one is near enough",
    ),
    "expected_steps": Field(
        Kind("a list of numbers and nulls", _is_list(lambda value: value is None or _is_number(value))),
        "plans on the graph, of each episode: the steps that it expected; null where the data has no way",
    ),
    "reachable": Field(
        Kind("a list of 'yes', 'unknown' and 'no'", _is_list(lambda value: value in ("yes", "unknown", "no"))),
        "plans on the graph, of each episode: whether the data shows a way to the goal",
    ),
    "rule": Field(TEXT, "how the reward became a prompt: skill, goal, graph, hierarchy, or none (iql)"),
    "intercept": Field(FLAG, "whether a constant was fitted beside the features"),
    "r2": Field(
        NUMBER.or_null(), "share of the reward's variance that the features express, or its model on the graph"
    ),
    "adapted": Field(COUNT, "episodes that the prompt was adapted with; they are not among those of the score"),
    "search": Field(NUMBERS, "what each of these earned, the first under the prompt as it was"),
    "best_possible": Field(NUMBER.or_null(), "return of the best policy, where it is known"),
    "score_scale": Field(NUMBER, "what brings the returns of a task to a common scale, to be averaged over tasks"),
    "random": Field(NUMBER, "what uniformly random actions score from the same starts, where it was asked for"),
    "possible": Field(NUMBERS, "of each episode: the largest possible gain"),
    "steps": Field(COUNT, "rewards but the target: steps of each episode"),
    "config": Field(OBJECT, "the method's config, every key"),
    "train_seed": Field(COUNT.or_null(), "seed of the training"),
    "train_steps": Field(COUNT.or_null(), "updates of the training"),
    "data": Field(TEXT.or_null(), "name of the data set that the policy was trained on"),
    "data_fingerprint": Field(TEXT.or_null(), "its fingerprint"),
    "checkpoint": Field(TEXT, "always last: rows never mix the last policy of a run with the best one on the way"),
    "evaluation_seed": Field(COUNT, "seed of starts and goals"),
    "best_evaluation": Field(BEST.or_null(), "the best evaluation while training, beside the score, never instead"),
    "command": Field(TEXT, "the command that made the row"),
    "versions": Field(TEXTS, "of the software"),
    "cell": Field(CELL, "tables: which policy of which table this is"),
    "hierarchy": Field(OBJECT, "under a high level: its config, reward, shift, updates and seed"),
    "embedding": Field(EMBEDDING, "tables with --errors: how far latent distances are from the true ones"),
    "curve": Field(CURVE, "tables with --curve-points: success while training, in the first row of a policy"),
    "held_out": Field(OBJECT, "without a simulator: what held-out data says of the policy, and the plan it advises"),
}


def check(value: Metrics, where: str) -> Row:
    """The value as a row; one line about the first field that makes no sense. `where` names the file and the line."""
    for name, field in FIELDS.items():
        if name not in value:
            if field.always:
                raise HilpError(f"{where} is not an evaluation row: it has no '{name}'")
        elif not field.kind.holds(value[name]):
            raise HilpError(f"{where}: '{name}' must be {field.kind.words}, not {_shown(value[name])}")
    needed = "plan" if value["prompt"] == "goal" else "reward"
    if needed not in value:
        raise HilpError(f"{where}: a {value['prompt']} prompt must have a '{needed}'")
    if value["metric"] in ("success", "share of the subtasks") and not 0 <= value["score"] <= 1:
        raise HilpError(f"{where}: 'score' must be from 0 to 1, as a {value['metric']}, not {_shown(value['score'])}")
    for name in ("outcomes", "lengths", "possible", "expected_steps", "reachable"):
        if name in value and len(value[name]) != value["episodes"]:
            raise HilpError(f"{where}: '{name}' must have one entry for each of {value['episodes']} episodes")
    return value  # type: ignore[return-value]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ---- files -----------------------------------------------------------------------------------------------------------


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """The rows of a JSONL file."""
    return [check(value, f"{path} line {number}") for number, value in lines.read(path)]


def append_rows(
    path: str | os.PathLike[str], rows: Sequence[Row], instead_of: Callable[[Row], bool] | None = None
) -> None:
    """Add rows to a JSONL file, all or none; those that `instead_of` is true for go in the same step."""
    for number, row in enumerate(rows, 1):
        check(row, f"row {number} for {path}")  # type: ignore[arg-type]
    lines.append(path, rows, instead_of)  # type: ignore[arg-type]


def read_metrics(path: str | os.PathLike[str]) -> list[Metrics]:
    """The lines that training wrote: a step, and numbers by name."""
    found = []
    for number, value in lines.read(path):
        kinds = {"step": COUNT} | {name: _METRICS.get(name, FINITE_OR_NOT) for name in value}
        for name, kind in kinds.items():
            if not kind.holds(value.get(name)):
                raise HilpError(f"{path} line {number}: '{name}' must be {kind.words}, not {_shown(value.get(name))}")
        found.append(value)
    return found


FINITE_OR_NOT = Kind("a number", lambda value: type(value) is float or _is_number(value))
# A loss may be anything; these are told in rows.
_METRICS = {"step": COUNT, "evaluation_step": COUNT, "look_step": COUNT, "success": NUMBER, "success_plan": NUMBER}


# ---- while training --------------------------------------------------------------------------------------------------


def evaluations(metrics: str | os.PathLike[str]) -> list[Metrics]:
    """The evaluations while training in their order: step, success, success_plan; a metrics line has the latest one."""
    found: dict[int, Metrics] = {}
    for line in read_metrics(metrics) if Path(metrics).is_file() else []:
        step = int(line.get("evaluation_step") or line.get("look_step") or line["step"])  # a look, in earlier runs
        if "success" in line:
            found[step] = {"step": step} | {key: line[key] for key in line if key in ("success", "success_plan")}
    return [found[step] for step in sorted(found)]


def best_evaluation(metrics: str | os.PathLike[str]) -> Metrics | None:
    """The best evaluation while training, and when; told beside the last policy's score, never instead of it."""
    found = evaluations(metrics)
    best = max(found, key=lambda line: line["success"], default=None)
    return None if best is None else {"step": best["step"], "success": best["success"]}


# ---- over rows -------------------------------------------------------------------------------------------------------


def latest(rows: Iterable[Row]) -> list[Row]:
    """The last row of each prompt in each task: a new evaluation replaces what a page shows, not what is on file."""
    return list({prompt_of(row): row for row in rows}.values())


def prompt_of(row: Row) -> tuple[str, str, Any]:
    """What tells the prompt of a row from others: task, kind (adapted ones are another), and the plan or the reward."""
    task = f"{row['task']} {row['goal']}" if "goal" in row else row["task"]
    kind = f"{row['prompt']} adapted" if "adapted" in row else row["prompt"]
    kind += f" by {row['goal_dims']}" if "goal_dims" in row else ""
    kind += f" over {row['smooth']} steps" if "smooth" in row else ""
    return task, kind, row["plan"] if row["prompt"] == "goal" else row["reward"]


def aggregate(
    rows: Sequence[Row],
    by: Sequence[str] = (
        "task",
        "method",
        "prompt",
        "plan",
        "goal",
        "goal_dims",
        "smooth",
        "reward",
        "rule",
        "adapted",
        "metric",
    ),
) -> list[dict[str, Any]]:
    """Scores over seeds: mean, std, and IQM with a seeded 95% bootstrap interval, stratified by task.

    One run has no spread over seeds: its `std` is None, and its interval is that over its episodes (None where the row
    does not have them). `interval_over` says which of the two an interval is.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(_key(row.get(key)) for key in by), []).append(row)
    table = []
    for key, group in groups.items():
        mean, std = stats.mean_std([row["score"] for row in group])
        strata: dict[str, list[Row]] = {}
        for row in group:
            strata.setdefault(row["task"], []).append(row)
        scores = [[row["score"] for row in own] for own in strata.values()]
        episodes = [own[0].get("outcomes") if own[0].get("metric") != GAIN else None for own in strata.values()]
        iqm, low, high = stats.stratified_bootstrap(scores, episodes=[own or None for own in episodes])
        alone = len(group) == 1
        named = {name: value for name, value in zip(by, key, strict=True) if value is not None}
        table.append(
            {
                **named,
                "runs": len(group),
                "mean": mean,
                "std": None if alone else std,
                "iqm": iqm,
                "interval": interval_of(group[0]) if alone else [low, high],
                "interval_over": "episodes" if alone else "runs",
            }
        )
    return table


def _key(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def interval_of(row: Row) -> list[float] | None:
    """The 95% interval of a row's score over its episodes: Wilson's of a success, else bootstrap; None without one."""
    found: Sequence[float] | None = row.get("interval")
    if found is None and row.get("metric") == GAIN:
        gain, possible = row.get("outcomes", []), row.get("possible", [])
        found = stats.ratio_bootstrap(gain, possible) if len(gain) == len(possible) > 0 else None
    if found is None or not max(map(abs, found)) <= LARGEST or found[0] >= found[1]:
        return None  # nothing to draw from, or no two episodes differ: that is no certainty
    return [float(found[0]), float(found[1])]


def finite(value: float | None) -> float | None:
    """A number for a row: JSON has no NaN and no infinity."""
    return value if value is not None and math.isfinite(value) else None
