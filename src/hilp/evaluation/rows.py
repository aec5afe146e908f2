"""Rows: what one prompt of one policy scored in one task, and what made it. A row is a plain dict and a line of JSON.

`FIELDS` is the schema, docs/rows.md says what each field is: one that is there must make sense, unknown ones are
ignored.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hilp.errors import HilpError, some
from hilp.evaluation import stats
from hilp.prompts import specs
from hilp.storage import lines
from hilp.storage.lines import AnyPath

LARGEST = 1e12  # of a number: nothing measured here is larger, and axes of figures have no room for it
GAIN = "share of the possible gain"  # the metric of rewards that are differences of a potential
SUCCESS, SHARE = "success", "share of the subtasks"  # metrics of goals: whole ones, and those that have parts
TALLIES = ("held", "falls")  # of episodes, in tasks that know them: tables have a column of each
Row = dict[str, Any]
Name = TypeVar("Name")  # of a group of rows
Metrics = dict[str, Any]  # a line of a run's metrics.jsonl


@dataclass(frozen=True)
class Kind:
    """What a value must be, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]

    def require(self, value: Any, what: str) -> None:
        if not self.holds(value):
            text = repr(value)
            raise HilpError(f"{what} must be {self.words}, not {text if len(text) <= 60 else f'{text[:57]}...'}")

    def or_null(self) -> "Kind":
        return Kind(f"{self.words} or null", lambda value: value is None or self.holds(value))

    def listed(self, words: str) -> "Kind":
        return Kind(words, lambda value: isinstance(value, list) and all(map(self.holds, value)))

    def named(self, words: str) -> "Kind":
        return Kind(words, lambda value: isinstance(value, dict) and all(map(self.holds, value.values())))


def _is_spec(value: Any) -> bool:
    try:
        return specs.from_json(value) is not None
    except HilpError:
        return False


def _object(words: str, needed: Iterable[str] = (), **kinds: Kind) -> Kind:
    """An object that has the needed keys, and in which these keys, where it has them, make sense."""

    def holds(value: Any) -> bool:
        known = isinstance(value, dict) and {*needed} <= value.keys()
        return known and all(kind.holds(value[key]) for key, kind in kinds.items() if key in value)

    return Kind(words, holds)


CERTIFICATES = ("yes", "unknown", "no")  # whether the data shows a way to a goal
TEXT = Kind("text", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
NUMBER = Kind(f"a number within ±{LARGEST:g}", lambda value: type(value) in (int, float) and abs(value) <= LARGEST)
COUNT = Kind("a whole number from 0 on", lambda value: type(value) is int and 0 <= value < 2**63)
COUNTS = COUNT.listed("a list of whole numbers from 0 on")
NUMBERS = NUMBER.listed(f"a list of numbers within ±{LARGEST:g}")
INTERVAL = Kind("two numbers, the lower first", lambda two: NUMBERS.holds(two) and len(two) == 2 and two[0] <= two[1])
PLAN = Kind(
    f"a number of recursions, or one of {some(specs.PLANS)}", lambda value: COUNT.holds(value) or value in specs.PLANS
)
SHARES = Kind("", lambda value: NUMBER.holds(value) and 0 <= value <= 1).named("an object of numbers from 0 to 1")
OBJECT = _object("an object")
CELL = _object(
    "an object with kind, label, data, seed and more", ("label", "data"),
    kind=TEXT, label=TEXT, config=TEXT, data=TEXT, data_fingerprint=TEXT, seed=COUNT, preset=TEXT, updates=COUNT,
    episodes=COUNT, intercept=FLAG, errors=FLAG, adapt=COUNT, reward=TEXT, high_config=TEXT, high_updates=COUNT,
)  # fmt: skip
EMBEDDING = _object(
    "an object with against, mse and more", ("against", "mse"),
    against=TEXT, mse=NUMBER, steps_off=NUMBER, mean_true=NUMBER, relative=NUMBER, rank_correlation=NUMBER.or_null(),
    disagreement=NUMBER, asymmetry=NUMBER, value_expectile=NUMBER, value_steps=COUNT, value=TEXT,
)  # fmt: skip
ALWAYS = ("task", "method", "policy", "prompt", "metric", "score", "episodes")  # a row without one of them is none
FIELDS: dict[str, Kind] = {
    "task": TEXT, "method": TEXT, "policy": TEXT,
    "prompt": Kind("'goal' or 'reward'", lambda value: value in (specs.Goal.kind, specs.Reward.kind)),
    "metric": TEXT, "score": NUMBER,
    "episodes": Kind("a whole number from 1 on", lambda value: COUNT.holds(value) and value >= 1),
    "spec": Kind("a spec of a prompt", _is_spec), "plan": PLAN,
    "by_goal": SHARES, "reward": TEXT, "interval": INTERVAL, "outcomes": NUMBERS, "lengths": COUNTS,
    "mean_length_of_successes": NUMBER.or_null(), "radius": NUMBER.or_null(), "smooth": NUMBER,
    "expected_steps": NUMBER.or_null().listed("a list of numbers and nulls"),
    "reachable": Kind("", lambda value: value in CERTIFICATES).listed("a list of 'yes', 'unknown' and 'no'"),
    "falls": COUNT, "held": COUNT, "speed_errors": NUMBERS, "rule": TEXT, "r2": NUMBER.or_null(),
    "adapted": COUNT, "search": NUMBERS, "best_possible": NUMBER.or_null(), "score_scale": NUMBER, "random": NUMBER,
    "possible": NUMBERS, "steps": COUNT, "largest": NUMBER, "uncharged": NUMBER,
    "behaviour": NUMBER.named("an object of numbers"),
    "config": OBJECT, "listening": NUMBER, "train_seed": COUNT.or_null(), "train_steps": COUNT.or_null(),
    "data": TEXT.or_null(), "data_fingerprint": TEXT.or_null(), "checkpoint": TEXT, "evaluation_seed": COUNT,
    "best_evaluation": _object("an object with step and success", step=COUNT, success=NUMBER).or_null(),
    "command": TEXT, "versions": TEXT.named("an object of texts"), "cell": CELL, "hierarchy": OBJECT,
    "embedding": EMBEDDING,
    "curve": _object("", ("step", "success"), step=COUNT, success=NUMBER, success_plan=NUMBER).listed(
        "a list of objects with step and success"
    ),
    "held_out": OBJECT,
}  # fmt: skip
# Of the lines that training writes: a loss may be anything, the others go into rows.
METRICS = {"step": COUNT, "evaluation_step": COUNT, "success": NUMBER, "success_plan": NUMBER}
LOSS = Kind("a number", lambda value: type(value) is float or NUMBER.holds(value))


def check(value: Row, where: str) -> Row:
    """The value as a row; one line about the first field that makes no sense. `where` names the file and the line."""
    for name, kind in FIELDS.items():
        if name in value:
            kind.require(value[name], f"{where}: '{name}'")
        elif name in ALWAYS:
            raise HilpError(f"{where} is not an evaluation row: it has no '{name}'")
    needed = headline(value)
    if needed not in value:
        raise HilpError(f"{where}: a {value['prompt']} prompt must have a '{needed}'")
    if value["metric"] in (SUCCESS, SHARE) and not 0 <= value["score"] <= 1:
        raise HilpError(f"{where}: 'score' must be from 0 to 1, as a {value['metric']}, not {value['score']}")
    for name in ("outcomes", "lengths", "possible", "expected_steps", "reachable", "speed_errors"):
        if name in value and len(value[name]) != value["episodes"]:
            raise HilpError(f"{where}: '{name}' must have one entry for each of {value['episodes']} episodes")
    return value


def read_rows(path: AnyPath) -> list[Row]:
    """The rows of a JSONL file."""
    return [check(value, f"{path} line {number}") for number, value in lines.read(path)]


def append_rows(path: AnyPath, rows: Sequence[Row], instead_of: Callable[[Row], bool] | None = None) -> None:
    """Add rows to a JSONL file, all or none; those that `instead_of` is true for go in the same step."""
    for number, row in enumerate(rows, 1):
        check(row, f"row {number} for {path}")
    lines.append(path, rows, instead_of)


def read_metrics(path: AnyPath) -> list[Metrics]:
    """The lines that training wrote: a step, and numbers by name."""
    found = lines.read(path)
    for number, value in found:
        for name in ("step", *value):
            METRICS.get(name, LOSS).require(value.get(name), f"{path} line {number}: '{name}'")
    return [value for _, value in found]


def evaluations(metrics: AnyPath) -> list[Metrics]:
    """The evaluations while training in their order: step, success, success_plan; a metrics line has the latest one."""
    found: dict[int, Metrics] = {}
    for line in read_metrics(metrics) if Path(metrics).is_file() else []:
        step = int(line.get("evaluation_step") or line["step"])
        if "success" in line:
            found[step] = {"step": step} | {key: line[key] for key in line if key in ("success", "success_plan")}
    return [found[step] for step in sorted(found)]


def best_evaluation(metrics: AnyPath) -> Metrics | None:
    """The best evaluation while training, and when; shown besides the last policy's score, never instead of it."""
    found = evaluations(metrics)
    best = max(found, key=lambda line: line["success"], default=None)
    return None if best is None else {"step": best["step"], "success": best["success"]}


def headline(row: Row) -> str:
    """The field that names the prompt of a row among those of its kind: its plan or its reward."""
    return "plan" if row["prompt"] == specs.Goal.kind else "reward"


def options(row: Row) -> str:
    """The options of a row's prompt that tell it from others with the same plan or reward, as JSON; adapting is one."""
    found = {key: value for key, value in row.get("spec", {}).items() if key != headline(row)}
    if found.get("kind") == row["prompt"]:  # else a prompt of another kind that is scored under a reward
        del found["kind"]
    found |= {"adapted": row["adapted"]} if "adapted" in row else {}
    return json.dumps(found, sort_keys=True) if found else ""


def option_words(options: str) -> str:
    """Options as a title has them: ", smooth 3". A rule and adapting have columns of their own."""
    found = json.loads(options) if options else {}
    shown = {key: value for key, value in found.items() if key not in ("rule", "adapted")}
    return "".join(f", {key.replace('_', ' ')} {value!s:.30}" for key, value in shown.items())


def prompt_of(row: Row) -> tuple[str, str, str, Any]:
    """What tells the prompt of a row from others: task, kind, options, and the plan or the reward."""
    return row["task"], row["prompt"], options(row), row[headline(row)]


def latest(rows: Iterable[Row]) -> list[Row]:
    """The last row of each prompt in each task: a new evaluation replaces what a page shows, not what is on file."""
    return list({prompt_of(row): row for row in rows}.values())


def grouped(rows: Iterable[Row], by: Callable[[Row], Name]) -> dict[Name, list[Row]]:
    """The rows of each name, in their order."""
    found: dict[Name, list[Row]] = {}
    for row in rows:
        found.setdefault(by(row), []).append(row)
    return found


GROUP_BY = ("task", "method", "prompt", "plan", "reward", "options", "rule", "adapted", "metric")


def aggregate(rows: Sequence[Row], by: Sequence[str] = GROUP_BY) -> list[dict[str, Any]]:
    """Scores over seeds: mean, std, and IQM with a seeded 95% bootstrap interval, stratified by task.

    One run has no spread over seeds: its `std` is None, and its interval is over its episodes (None where the row does
    not have them). `interval_over` says which of the two an interval is.
    """

    def group_of(row: Row) -> tuple[Any, ...]:
        return tuple((options(row) or None) if key == "options" else row.get(key) for key in by)

    return [
        {**{name: value for name, value in zip(by, key, strict=True) if value is not None}, **_summary(group)}
        for key, group in grouped(rows, group_of).items()
    ]


def _summary(group: Sequence[Row]) -> dict[str, Any]:
    by_task = grouped(group, itemgetter("task"))
    values = np.array([row["score"] for row in group])
    scores = [[row["score"] for row in own] for own in by_task.values()]
    first = [own[0] for own in by_task.values()]
    episodes = [None if row.get("metric") == GAIN else row.get("outcomes") or None for row in first]
    iqm, *interval = stats.stratified_bootstrap(scores, episodes=episodes)
    found: dict[str, Any] = {"runs": len(group), "mean": float(values.mean())}
    found |= {name: sum(row[name] for row in group) for name in TALLIES if all(name in row for row in group)}
    if len(group) == 1:
        return found | {"std": None, "iqm": iqm, "interval": interval_of(group[0]), "interval_over": "episodes"}
    return found | {"std": float(values.std()), "iqm": iqm, "interval": interval, "interval_over": "runs"}


def interval_of(row: Row) -> list[float] | None:
    """The 95% interval of a row's score over its episodes: Wilson's of a success, else bootstrap; None without one."""
    found: Sequence[float] | None = row.get("interval")
    if found is None and row.get("metric") == GAIN:
        gain, possible = row.get("outcomes", []), row.get("possible", [])
        found = stats.ratio_bootstrap(gain, possible) if len(gain) == len(possible) > 0 else None
    if found is None or not max(map(abs, found)) <= LARGEST or found[0] >= found[1]:
        return None  # nothing to draw from, or no two episodes differ: that is no certainty
    return [float(found[0]), float(found[1])]
