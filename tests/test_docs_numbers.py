"""The tables of README.md and docs/results.md say what the kept rows in benchmarks/ say, cell by cell.

Each function below makes one table from rows, as text; a page whose table differs fails, whichever of the two changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hilp
from hilp.bench import cells
from hilp.commands import quickstart as command
from hilp.evaluation import stats
from hilp.report import paper

ROOT = Path(__file__).parent.parent
Row = dict[str, Any]
Table = list[list[str]]


@cache
def kept(name: str) -> tuple[Row, ...]:
    return tuple(json.loads(line) for line in (ROOT / "benchmarks" / f"{name}.jsonl").read_text().splitlines())


def tables(page: str) -> dict[tuple[str, str], Table]:
    """The tables of a page without the line under the header, by the heading above and the header's first two cells."""
    found: dict[tuple[str, str], Table] = {}
    heading, key = "", None
    for line in [*(ROOT / page).read_text().splitlines(), ""]:
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not line.startswith("|"):
            key = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if key is None:
            key = heading, f"{cells[0]} | {cells[1]}"
            assert key not in found, f"two tables of {page} begin alike under '{heading}'"
            found[key] = []
        if not set("".join(cells)) <= set("-: "):
            found[key].append(cells)
    return found


def percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def mean(values: list[float]) -> str:
    return f"{np.mean(values):.0f}"


def spread(values: list[float], digits: int = 0) -> str:
    return f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}"


def with_interval(strata: list[list[float]], digits: int = 0) -> str:
    middle, low, high = stats.stratified_bootstrap(strata)
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


# ---- tables made from rows -------------------------------------------------------------------------------------------

REWARDS = ("right", "left", "up", "down", "centre")
PLANS = ("0", "1", "3", "auto")


def quickstarts(task: str) -> list[Row]:
    rows = [row for row in kept("quickstart") if row["task"] == task]
    assert len({row["seed"] for row in rows}) == len(rows), "a seed counts once"
    return rows


def readme(kind: str) -> tuple[list[Row], Table]:
    """What the command prints under these rows, without the lines of other prompts."""
    rows = quickstarts("maze-large")
    return rows, [line for line in command.summary(rows) if line[0].startswith(kind)]


def readme_goals() -> Table:
    rows, lines = readme("goal")
    header = f"prompt, {rows[0]['pairs']} random start-goal pairs in the large maze"
    return [[header, f"reached, mean of {len(rows)} seeds", "lowest to highest"], *(line[:3] for line in lines)]


def readme_rewards() -> Table:
    rows, lines = readme("reward")
    first = f"prompt, {rows[0]['pairs']} random starts"
    return [[first, "share of the possible gain, mean", "lowest to highest", "R²"], *lines]


def quickstart_runs() -> Table:
    lines = [
        [
            row["task"].removeprefix("maze-"),
            str(row["seed"]),
            *(percent(row["success"][plan]) for plan in PLANS),
            f"{row['rank_correlation']:.3f}",
            *(percent(row["reward_gain"][x]) for x in REWARDS),
        ]
        for row in kept("quickstart")
    ]
    return [["maze", "seed", *(f"plan {plan}" for plan in PLANS), "rank correlation", *REWARDS], *lines]


def second_machine() -> Table:
    """What the command prints under the rows of another processor."""
    rows = kept("quickstart-avx2-machine")
    assert [row["seed"] for row in rows] == [0, 1, 2] and {row["machine"]["vectors"] for row in rows} == {"avx2"}
    return [["prompt", "mean", "lowest to highest", "R²"], *command.summary(rows)]


def own_maps() -> Table:
    lines = [["map", "longest way", "updates", *(f"plan {plan}" for plan in PLANS), "rank correlation"]]
    for row in kept("quickstart-maps"):
        longest = hilp.make_task(str(ROOT / row["task"])).finite().steps.max()
        scores = [*(percent(row["success"][plan]) for plan in PLANS), f"{row['rank_correlation']:.3f}"]
        lines.append([f"`{row['task']}`", str(longest), f"{row['steps']:,}", *scores])
    return lines


def success(file: str, label: str, plan: Any = 0, **where: Any) -> list[float]:
    """100 x success of every seed."""
    return [
        100 * row["score"]
        for row in kept(file)
        if (row["cell"]["label"], row["plan"]) == (label, plan)
        and all(row[key] == value for key, value in where.items())
    ]


def of_temperature_10(row: Any) -> bool:
    """Whether a row is of HILP with weights that tell the data's actions apart more (docs/how-it-works.md)."""
    return row["method"] == "hilp" and row["config"]["temperature"] == 10.0


def data_of(row: Any) -> str:
    return row["data"] + (", temperature 10" if of_temperature_10(row) else "")


def plans_on_the_graph() -> Table:
    rows = kept("goals-graph")
    lines = [["data", "seeds", *(f"plan {plan}" for plan in (0, 1, 2, 3, "midpoints", "graph", "auto"))]]
    for name in dict.fromkeys(map(data_of, rows)):
        own = [[100 * r["score"] for r in rows if (data_of(r), r["plan"]) == (name, p)] for p in cells.GOAL_PLANS]
        lines.append([name, str(len(own[0])), *map(spread_or_mean, own)])
    return lines


def goals() -> Table:
    methods = ("gc-bc", "gc-iql", "gc-cql", "fb", "iql-fdm", "iql-lap", "iql-rand")
    entries: list[tuple[str, str, Any]] = [(name, name, 0) for name in methods]
    entries += [
        ("hilp", "hilp", 0),
        ("hilp, plan 1", "hilp", 1),
        ("hilp, plan 2", "hilp", 2),
        ("hilp, plan 3", "hilp", 3),
    ]
    entries += [("hilp, plan auto", "hilp", "auto")]
    mazes = ("maze-large", "maze-ultra")
    lines = []
    for name, label, plan in entries:
        strata = [success("goals", label, plan, task=maze) for maze in mazes]
        assert [len(own) for own in strata] == [4, 4]
        lines.append([name, *(spread(own) for own in strata), with_interval(strata)])
    return [["method", *mazes, "IQM [95%]"], *lines]


def embedding(file: str, label: str, key: str, **where: Any) -> float:
    rows = [row for row in kept(file) if row["cell"]["label"] == label and row["plan"] == 0]
    return float(np.mean([row["embedding"][key] for row in rows if all(row[k] == v for k, v in where.items())]))


def sweep(file: str, dims: tuple[int, ...], errors: dict[str, Callable[[str], str]]) -> Table:
    labels = [f"hilp dim={dim}" for dim in dims]
    return [
        ["dim", *map(str, dims)],
        ["success", *(mean(success(file, label)) for label in labels)],
        ["with plan auto", *(mean(success(file, label, "auto")) for label in labels)],
        *([name, *map(show, labels)] for name, show in errors.items()),
    ]


def dimension() -> Table:
    file = "goals-dimension"
    return sweep(
        file, (2, 4, 8, 16, 32, 64, 128), {"embedding MSE": lambda label: f"{embedding(file, label, 'mse'):.1f}"}
    )


def dimension_antmaze() -> Table:
    file = "goals-antmaze-dimension"
    return sweep(
        file,
        (2, 8, 32),
        {
            "embedding MSE against V": lambda label: f"{embedding(file, label, 'mse'):.0f}",
            "rank correlation with V": lambda label: f"{embedding(file, label, 'rank_correlation'):.2f}",
        },
    )


def ablation() -> Table:
    entries = {
        "hilp (laptop preset)": "hilp",
        "bounded targets": "hilp bounded",
        "3-step targets": "hilp 3-step",
        "the paper's lr 3e-4 and EMA 0.005": "hilp paper rates",
        "sequential, half of the updates each": "hilp sequential",
        "DDPG+BC (weight 0.3) instead of AWR": "hilp ddpg+bc",
        "gc-iql, AWR": "gc-iql",
        "gc-iql-q, AWR": "gc-iql-q",
        "gc-iql-q, DDPG+BC": "gc-iql-q ddpg+bc",
    }
    lines = []
    for name, label in entries.items():
        line = [name]
        for maze in ("maze-large", "maze-ultra"):
            planned = success("goals-ablation", label, 3, task=maze)
            line.append(mean(success("goals-ablation", label, task=maze)))
            line.append(mean(planned) if planned else "")
            correlation = embedding("goals-ablation", label, "rank_correlation", task=maze) if planned else None
            line.append(f"{correlation:.3f}" if planned else "")
        lines.append(line)
    header = ["", "maze-large", "with plan 3", "correlation", "maze-ultra", "with plan 3", "correlation"]
    return [header, *lines]


ONE_WAY = "oneway-seeds"


def one_way() -> Table:
    """Errors of distances and goals reached, mean and deviation over seeds."""
    lines = []
    for label in ("hilp", "hilp-directed"):
        own = [row for row in kept(ONE_WAY) if row["cell"]["label"] == label and row["plan"] == 0]
        relative, ranks = ([row["embedding"][name] for row in own] for name in ("relative", "rank_correlation"))
        plans = [spread(success(ONE_WAY, label, plan)) for plan in (0, 3, "midpoints", "graph", "auto")]
        lines.append([label, spread(steps_off(label), 2), spread(relative, 2), spread(ranks, 3), *plans])
    header = ["method", "steps off", "relative error", "rank correlation", "plan 0", "plan 3"]
    return [[*header, "midpoints", "graph", "auto"], *lines]


def steps_off(label: str) -> list[float]:
    """The mean error of distances, in steps, of every seed."""
    own = [row for row in kept(ONE_WAY) if row["cell"]["label"] == label and row["plan"] == 0]
    return [row["embedding"]["steps_off"] for row in own]


def test_directed_distances_are_off_by_at_most_half_as_much() -> None:
    assert np.mean(steps_off("hilp-directed")) <= 0.5 * np.mean(steps_off("hilp"))


def antmaze() -> Table:
    task = "antmaze-large-diverse"

    def theirs(label: str) -> str:
        found = paper.goal_conditioned(task, label)
        assert found is not None
        return f"{found[0]:.0f}"

    def ours(label: str, plan: Any = 0) -> str:
        (row,) = [r for r in kept("goals-antmaze") if (r["cell"]["label"], r["plan"]) == (label, plan)]
        low, high = row["interval"]
        return f"{100 * row['score']:.0f} [{100 * low:.0f}, {100 * high:.0f}]"

    plans = ", ".join(f"{success('goals-antmaze', 'hilp', plan)[0]:.0f}" for plan in (1, 2, 3))
    return [
        ["method", "success", "the paper"],
        *([label, ours(label), theirs(label)] for label in ("gc-bc", "gc-iql", "hilp")),
        ["hilp, plan 1, 2, 3", plans, f"{theirs('hilp-plan')} (plan 3)"],
        ["hilp, plan auto", ours("hilp", "auto"), ""],
    ]


def share(row: Row) -> float:
    return float((row["score"] - row["random"]) / (row["best_possible"] - row["random"]))


def zero_shot_maze() -> Table:
    rewards = ("region", "avoid", "corridor")

    def strata(label: str, intercept: bool) -> list[list[float]]:
        rows = [
            r for r in kept("zero-shot-maze") if (r["cell"]["label"], "intercept" in r["spec"]) == (label, intercept)
        ]
        return [[share(row) for row in rows if row["reward"] == reward] for reward in rewards]

    lines = []
    for label in ("gc-td3", "sf-cl", "sf-rand", "sf-idm", "sf-ae", "sf-lap", "sf-fdm", "fb", "sf-hilp"):
        own, fitted = strata(label, False), strata(label, True)
        line = [label, *(spread(scores, 2) for scores in own), with_interval(own, 2), with_interval(fitted, 2)]
        lines.append([cell.replace("-0.00", "0.00") for cell in line])
    return [["method", *rewards, "IQM [95%]", "IQM with an intercept"], *lines]


def antmaze_on_the_graph() -> Table:
    rows = kept("goals-antmaze-graph")
    lines = [["data", *(f"plan {plan}" for plan in cells.GOAL_PLANS)]]
    for name in dict.fromkeys(map(data_of, rows)):
        own = {row["plan"]: row["score"] for row in rows if data_of(row) == name}
        lines.append([name, *(f"{100 * own[plan]:.0f}" for plan in cells.GOAL_PLANS)])
    return lines


def antmaze_seeds() -> Table:
    """Success of several seeds, and the steps that `auto` took where it arrived."""
    rows = [row for row in kept("goals-antmaze-seeds") if row["method"] == "hilp"]
    lines = [["maze", "seeds", *(f"plan {plan}" for plan in cells.GOAL_PLANS), "steps of auto"]]
    for name in dict.fromkeys(row["data"] for row in rows):
        own = {plan: [row for row in rows if (row["data"], row["plan"]) == (name, plan)] for plan in cells.GOAL_PLANS}
        scores = [spread_or_mean([100 * row["score"] for row in found]) for found in own.values()]
        steps = mean([row["mean_length_of_successes"] for row in own["auto"]])
        seeds = ", ".join(str(seed) for seed in sorted(row["train_seed"] for row in own["auto"]))
        lines.append([name.removesuffix("-diverse"), seeds, *scores, steps])
    return lines


def antmaze_steady() -> Table:
    """The same policies and goals, headed for from where an ant is, and from where it was on average."""
    steady = kept("goals-antmaze-smooth")
    policies = {row["policy"] for row in steady}
    plain = [row for row in kept("goals-antmaze-seeds") if row["policy"] in policies and row["plan"] == "graph"]
    assert {row["policy"] for row in plain} == policies and {row["plan"] for row in steady} == {"graph"}
    lines = [["antmaze-ultra, plan graph", "seeds 0, 1, 2", "mean", "steps of successes"]]
    for name, rows in (("as ever", plain), ("`--smooth 20`", steady)):
        own = sorted(rows, key=lambda row: row["train_seed"])
        assert [row["train_seed"] for row in own] == [0, 1, 2]
        scores = [100 * row["score"] for row in own]
        each = ", ".join(f"{score:.0f}" for score in scores)
        lines.append([name, each, spread(scores), mean([row["mean_length_of_successes"] for row in own])])
    return lines


def antmaze_rivals() -> Table:
    """Success of several seeds of each method on the same data, and the paper's on D4RL's."""
    rows, mazes = kept("goals-antmaze-seeds"), ("antmaze-large-diverse", "antmaze-ultra-diverse")
    lines = [["method", "large", "the paper", "ultra", "the paper"]]
    for method, plan in (("gc-bc", 0), ("gc-iql", 0), ("hilp", 0), ("hilp", "midpoints"), ("hilp", "auto")):
        line = [method if plan == 0 else f"{method}, plan {plan}"]
        for maze in mazes:
            own = [row for row in rows if (row["method"], row["plan"], row["data"]) == (method, plan, maze)]
            theirs = paper.goal_conditioned(maze, method if plan == 0 else "hilp-plan")
            assert theirs is not None and len(own) == 3
            there = "{:.0f} ± {:.0f}".format(*theirs) + (" (plan 3)" if plan else "")
            line += [spread([100 * row["score"] for row in own]), "" if plan == "midpoints" else there]
        lines.append(line)
    return lines


def spread_or_mean(values: list[float]) -> str:
    return spread(values) if len(values) > 1 else mean(values)


def rewards_on_the_graph() -> Table:
    rewards = ("region", "avoid", "corridor")
    lines = [["method", "updates", "seeds", *rewards, "IQM [95%]"]]
    rows = [row for row in kept("zero-shot-maze") if row["cell"]["label"] == "hilp-graph"]
    for told, updates in dict.fromkeys((of_temperature_10(row), row["train_steps"]) for row in rows):
        own = [row for row in rows if (of_temperature_10(row), row["train_steps"]) == (told, updates)]
        strata = [[share(row) for row in own if row["reward"] == reward] for reward in rewards]
        name = "hilp-graph" + (", temperature 10" if told else "")
        scores = [*(spread(x, 2) for x in strata), with_interval(strata, 2)]
        lines.append([name, f"{updates:,}", str(len(strata[0])), *scores])
    return lines


def zero_shot_walker() -> Table:
    rewards = ("stand", "walk", "run", "flip")
    rows = kept("zero-shot-walker")
    order = [("sf-hilp", 0), ("sf-hilp", 1), ("fb", 0), ("sf-fdm", 0), ("sf-lap", 0), ("sf-rand", 0), ("sf-rand", 1)]
    lines = []
    for label, seed in [*order, ("gc-td3", 0)]:
        own = {r["reward"]: r["score"] for r in rows if (r["cell"]["label"], r["train_seed"]) == (label, seed)}
        line = [label if seed == 0 else "", str(seed)]
        for reward in rewards:
            theirs = paper.zero_shot("walker", reward, label, "rnd")
            assert theirs is not None
            line.append(f"{own[reward]:.0f}" + (f" / {theirs[0]:.0f}" if seed == 0 else ""))
        lines.append([*line, mean([own[reward] for reward in rewards])])
    first = [row for row in rows if row["train_seed"] == 0]
    random = [float(np.mean([row["random"] for row in first if row["reward"] == reward])) for reward in rewards]
    lines.append(["random actions", "", *(f"{value:.0f}" for value in random), mean(random)])
    return [["method", "seed", *rewards, "mean"], *lines]


def zero_shot_long() -> Table:
    """Returns after many updates, beside those of random actions and of the paper."""
    rows = kept("zero-shot-long")
    lines = [["task", "reward", "sf-hilp", "random actions", "times random", "R²", "the paper"]]
    for task, reward in dict.fromkeys((row["task"], row["reward"]) for row in rows):
        own = [row for row in rows if (row["task"], row["reward"]) == (task, reward)]
        scores, random = [row["score"] for row in own], float(np.mean([row["random"] for row in own]))
        theirs = paper.zero_shot(task, reward, "sf-hilp", "rnd")
        assert theirs is not None and [row["cell"]["label"] for row in own] == ["sf-hilp"]
        lines.append(
            [
                task,
                reward,
                "{:.0f} [{:.0f}, {:.0f}]".format(own[0]["score"], *own[0]["interval"]),
                f"{random:.0f}",
                f"{np.mean(scores) / random:.1f}",
                f"{np.mean([row['r2'] for row in own]):.2f}",
                "{:.0f} ± {:.0f}".format(*theirs),
            ]
        )
    return lines


WALKER_WAYS = {
    "sf-hilp": "a direction",
    "sf-hilp-adapted": "a direction, adapted",
    "sf-hilp-graph": "the graph",
    "sf-hilp-graph-adapted": "the graph, adapted",
}


WALKER_REWARDS = ("stand", "walk", "run", "flip")


def walker_prompts() -> list[tuple[str, str, list[list[Row]]]]:
    """Each way to ask, its name, and its rows by reward."""
    rows = kept("zero-shot-walker-ways")
    return [
        (
            label,
            WALKER_WAYS[label],
            [
                [row for row in rows if (row["cell"]["label"], row["reward"]) == (label, reward)]
                for reward in WALKER_REWARDS
            ],
        )
        for label in dict.fromkeys(row["cell"]["label"] for row in rows)
    ]


def walker_ways() -> Table:
    """Returns by way to ask: over seeds where there are several, else with the interval over episodes."""
    rows, lines = kept("zero-shot-walker-ways"), []
    for label, name, own in walker_prompts():
        assert {row["rule"] for found in own for row in found} == {"graph" if "graph" in label else "skill"}
        shown = [
            spread([row["score"] for row in found])
            if len(found) > 1
            else "{:.0f} [{:.0f}, {:.0f}]".format(found[0]["score"], *found[0]["interval"])
            for found in own
        ]
        lines.append([name, *shown, mean([row["score"] for found in own for row in found])])
    random = [float(np.mean([row["random"] for row in rows if row["reward"] == reward])) for reward in WALKER_REWARDS]
    lines.append(["random actions", *(f"{value:.0f}" for value in random), mean(random)])
    return [["prompt", *WALKER_REWARDS, "mean"], *lines]


def walker_searches() -> Table:
    """What was known before the episodes that count: R², and what a search saw, as it was and at best."""
    lines = []
    for label, name, own in walker_prompts():
        if label.endswith("-adapted"):
            seen = [[(row["search"][0], max(row["search"])) for row in found] for found in own]
            shown = [", ".join(f"{first:.0f} to {best:.0f}" for first, best in found) for found in seen]
            lines.append([f"{name.removesuffix(', adapted')}: the search's first and best episode", *shown])
        else:
            lines.append([f"{name}: R²", *(f"{np.mean([row['r2'] for row in found]):.2f}" for found in own)])
    return [["known beforehand", *WALKER_REWARDS], *lines]


def zero_shot_walker_pixels() -> Table:
    rewards = ("stand", "walk", "run", "flip")
    rows = kept("zero-shot-walker-pixels")
    lines = []
    for label, updates in dict.fromkeys((row["cell"]["label"], row["train_steps"]) for row in rows):
        own = {r["reward"]: r["score"] for r in rows if (r["cell"]["label"], r["train_steps"]) == (label, updates)}
        cells = []
        for reward in rewards:
            there = paper.zero_shot("walker", reward, label, "rnd", pixels=True)
            cells.append(f"{own[reward]:.0f}" + ("" if there is None else f" / {there[0]:.0f}"))
        lines.append([label, f"{updates:,}", *cells, mean([own[reward] for reward in rewards])])
    random = [float(np.mean([row["random"] for row in rows if row["reward"] == reward])) for reward in rewards]
    lines.append(["random actions", "", *(f"{value:.0f}" for value in random), mean(random)])
    return [["method", "updates", *rewards, "mean"], *lines]


# 100 x success of OGBench's published files at 10^6 updates (Park et al. 2025), and HILP's of TD-JEPA's authors.
OGBENCH_PUBLISHED = {
    "pointmaze-large-stitch": {"gc-bc": 7, "gc-iql": 12, "gc-iql-q": 31, "qrl": 84, "crl": 0, "hiql": 13},
    "pointmaze-giant-stitch": {"gc-bc": 0, "gc-iql": 0, "gc-iql-q": 0, "qrl": 50, "crl": 0, "hiql": 0},
    "cube-single-play": {"hilp": 74, "gc-bc": 6, "gc-iql": 53, "gc-iql-q": 68, "qrl": 5, "crl": 19, "hiql": 15},
}
OGBENCH_METHODS = ("hilp", "gc-bc", "gc-iql", "gc-iql-q", "qrl", "crl", "hiql")


def ogbench(file: str, columns: dict[str, str]) -> Table:
    """What has been run of it: mean and standard deviation where there are several seeds, else the interval.

    columns: the head of each data set's column.
    """
    rows = kept(file)

    def run(row: Row) -> tuple[str, bool, int]:
        return row["cell"]["label"], of_temperature_10(row), row["train_steps"]

    def scores(own: list[Row]) -> str:
        if len(own) > 1:
            return f"{spread([100 * row['score'] for row in own])} ({len(own)})"
        return "".join(
            f"{100 * row['score']:.0f} [{100 * low:.0f}, {100 * high:.0f}]"
            for row in own
            for low, high in [row["interval"]]
        )

    lines: Table = []
    for label, told, updates in sorted(set(map(run, rows)), key=lambda r: (OGBENCH_METHODS.index(r[0]), r[2], r[1])):
        own = [row for row in rows if run(row) == (label, told, updates)]
        plans = dict.fromkeys(row["plan"] for row in own)
        for plan in plans:
            earlier = plan == "auto" and "midpoints" not in plans  # what it was called then
            name = f"{label}, plan {'midpoints' if earlier else plan}" if label == "hilp" else label
            line = [name + (", temperature 10" if told else ""), f"{updates:,}"]
            for data in columns:
                line.append(scores([row for row in own if (row["cell"]["data"], row["plan"]) == (data, plan)]))
                line.append(str(OGBENCH_PUBLISHED[data].get(label, "")) if plan == 0 else "")
            lines.append(line)
    return [["method", "updates", *(cell for head in columns.values() for cell in (head, "published"))], *lines]


def ogbench_mazes() -> Table:
    return ogbench(
        "goals-ogbench", {"pointmaze-large-stitch": "large-stitch", "pointmaze-giant-stitch": "giant-stitch"}
    )


def ogbench_arms() -> Table:
    return ogbench("goals-ogbench-arms", {"cube-single-play": "cube-single"})


def ogbench_scripts() -> Table:
    rows = kept("ogbench-scripts")
    lines = [
        [
            row["data"],
            f"{row['transitions']:,}",
            f"{row['targets']:,}",
            f"{row['targets_reached']:,}",
            f"{row['targets_cut_short']:,}",
            percent(row["script_success"]),
        ]
        for row in rows
    ]
    return [["data", "transitions", "targets", "reached", "cut short", "success"], *lines]


def hierarchies() -> Table:
    """Success over seeds, and the steps that successful episodes took; HILP by updates and by which actor was kept."""
    entries: list[tuple[str, str, int, float | None]] = [
        ("flat IQL", "iql", 4000, 2e-3),
        ("flat IQL", "iql", 16000, 2e-3),
        ("a high level over OPAL", "opal", 8000, None),
        ("a high level over HILP", "hilp", 8000, 2e-3),
        ("the same, actor of the last update", "hilp", 8000, 1.0),
        ("the same, actor of the last update", "hilp", 16000, 1.0),
    ]
    lines = []
    for shown, label, updates, rate in entries:
        rows = [
            row
            for row in kept("hierarchy-maze")
            if (row["method"], row["cell"]["updates"], row["config"].get("actor_ema")) == (label, updates, rate)
        ]
        assert [row["cell"]["seed"] for row in rows] == [0, 1, 2, 3]
        each = ", ".join(f"{100 * row['score']:.0f}" for row in rows)
        steps = mean([row["mean_length_of_successes"] for row in rows if row["mean_length_of_successes"] is not None])
        lines.append([shown, f"{updates:,}", spread([100 * row["score"] for row in rows]), each, steps])
    return [["method", "updates", "100 x success", "seeds 0 to 3", "steps of successes"], *lines]


HIERARCHIES = {"iql": "flat IQL", "opal": "a high level over OPAL", "hilp": "a high level over HILP"}


def hierarchies_kitchen() -> Table:
    lines = [["method", "updates (skills, high level)", "subtasks of four", "25 x return [95%]", "the paper"]]
    for row in kept("hierarchy-kitchen"):
        assert row["metric"] == "share of the subtasks" and row["episodes"] == 50
        cell = row["cell"]
        low, high = (100 * bound for bound in row["interval"])
        updates = f"{cell['updates']:,}" + (f", {cell['high_updates']:,}" if "high_updates" in cell else "")
        theirs = paper.hierarchical(cell["data"], cell["label"])
        score = f"{100 * row['score']:.0f} [{low:.0f}, {high:.0f}]"
        beside = "" if theirs is None else f"{theirs[0]:.0f} ± {theirs[1]:.0f}"
        lines.append([HIERARCHIES[row["method"]], updates, f"{4 * row['score']:.2f}", score, beside])
    return lines


def hierarchies_antmaze() -> Table:
    lines = [
        ["maze", "method", "updates (skills; high level)", "100 x success [95%]", "steps of successes", "the paper"]
    ]
    for row in sorted(kept("hierarchy-antmaze"), key=lambda row: row["data"]):
        assert row["metric"] == "success" and row["episodes"] == 50
        cell = row["cell"]
        low, high = (100 * bound for bound in row["interval"])
        updates = f"{cell['updates']:,}" + (f"; {cell['high_updates']:,}" if "high_updates" in cell else "")
        theirs = paper.hierarchical(cell["data"], row["method"])
        steps, score = row["mean_length_of_successes"], f"{100 * row['score']:.0f} [{low:.0f}, {high:.0f}]"
        beside = "" if theirs is None else f"{theirs[0]:.0f} ± {theirs[1]:.0f}"
        name = HIERARCHIES[row["method"]] + (", temperature 10" if of_temperature_10(row) else "")
        maze = cell["data"].removeprefix("antmaze-").removesuffix("-diverse")
        lines.append([maze, name, updates, score, "" if steps is None else f"{steps:.0f}", beside])
    return lines


def speed() -> Table:
    rows = {row["name"]: row for row in (*kept("speed"), *kept("data"))}
    acting = ("act", "act_goal", "act_plan", "act_numpy", "act_onnx", "start")
    order = ("train_step", "sf_train_step", "plan", "graph", *acting, "memory", "import", "help", "convert", "stream")
    order += ("films", "maze_frames", "walker_frames", "cube_frames", "kitchen_frames")
    lines = [
        [name, f"{rows[name]['value']} {rows[name]['unit']}", str(rows[name]["ratio"]), rows[name]["against"]]
        for name in order
    ]
    return [["name", "value", "ratio", "against"], *lines]


def speed_trials() -> Table:
    lines = [[row["of"], row["trial"], f"{row['ms']} ms", f"{row['ratio']:.3f}"] for row in kept("speed-trials")]
    return [["of", "tried", "processor", "ratio"], *lines]


def arm() -> Table:
    lines = [["logged at", "stride", "random", "the operator", "plan 0", "plan auto", "plan 0, held for a stride"]]
    for row in kept("arm"):
        found = [percent(result["reached"]) for result in row["results"].values()]
        assert list(row["results"]) == ["random", "operator", "plan 0", "plan auto", "plan 0, held"]
        lines.append([f"{row['rate']} Hz", str(row["stride"]), *found])
    return lines


def kitchen() -> Table:
    file = "goals-kitchen"
    lines = [["method", "subtasks of four", "25 x return [95%]", "the paper, on D4RL's data"]]
    for row in kept(file):
        assert row["metric"] == "share of the subtasks" and row["episodes"] == 50 and row["task"] == "kitchen-mixed"
        low, high = (100 * bound for bound in row["interval"])
        label, plan = row["cell"]["label"], row["plan"]
        name = label if plan == 0 else f"{label}, plan {plan}"
        theirs = paper.goal_conditioned("kitchen-mixed", "hilp-plan" if (label, plan) == ("hilp", 3) else name)
        score = f"{100 * row['score']:.0f} [{low:.0f}, {high:.0f}]"
        beside = ", temperature 10" if of_temperature_10(row) else ""
        lines.append([name + beside, f"{4 * row['score']:.2f}", score, "" if theirs is None else f"{theirs[0]:.0f}"])
    return lines


def kitchen_scripts() -> Table:
    rows = {(row["script"], row["noise"]): row for row in kept("kitchen-scripts")}
    ways = [(noise, way) for noise in (0.0, 0.1) for way in ("alone", "chained")]
    lines = [["script", *(f"noise {noise:g}, {way}" for noise, way in ways), "steps"]]
    for script in dict.fromkeys(script for script, _ in rows):
        counts = [f"{rows[script, noise][way]['done']} of {rows[script, noise][way]['tries']}" for noise, way in ways]
        lines.append([script, *counts, f"{rows[script, 0.1]['chained']['mean_steps']:.0f}"])
    return lines


RESULTS = "docs/results.md"
GRAPH_PLANS = "Plans on the graph (laptop)"
MAZE_REWARDS = "Zero-shot RL on the maze (laptop)"
PAIRS = "prompt, 400 random start-goal pairs"
MADE: dict[tuple[str, str, str], Callable[[], Table]] = {  # page, heading, beginning of the header
    (
        "README.md",
        "Two commands",
        f"{PAIRS} in the large maze | reached, mean of 3 seeds",
    ): readme_goals,
    ("README.md", "Two commands", "prompt, 400 random starts | share of the possible gain, mean"): readme_rewards,
    (RESULTS, "The quickstart (laptop preset)", "maze | seed"): quickstart_runs,
    (RESULTS, "The quickstart (laptop preset)", "prompt | mean"): second_machine,
    (RESULTS, "Goals on the mazes (laptop)", "method | maze-large"): goals,
    (RESULTS, GRAPH_PLANS, "data | seeds"): plans_on_the_graph,
    (RESULTS, "Maps of one's own (laptop)", "map | longest way"): own_maps,
    (RESULTS, "Latent dimension and embedding error", "dim | 2"): dimension,
    (RESULTS, "Learning faster, and extracting policies", " | maze-large"): ablation,
    (RESULTS, "One-way doors (laptop)", "method | steps off"): one_way,
    (RESULTS, "AntMaze (laptop)", "method | success"): antmaze,
    (RESULTS, "Latent dimension and embedding error on AntMaze", "dim | 2"): dimension_antmaze,
    (RESULTS, "OGBench (laptop)", "method | updates"): ogbench_mazes,
    (RESULTS, "OGBench (laptop)", "data | transitions"): ogbench_scripts,
    (RESULTS, "An arm and a cube (laptop)", "method | updates"): ogbench_arms,
    (RESULTS, "Kitchen (laptop)", "method | subtasks of four"): kitchen,
    (RESULTS, "Kitchen (laptop)", "script | noise 0, alone"): kitchen_scripts,
    (RESULTS, MAZE_REWARDS, "method | region"): zero_shot_maze,
    (RESULTS, "Plans on the graph in AntMaze", "data | plan 0"): antmaze_on_the_graph,
    (RESULTS, "Plans on the graph in AntMaze", "maze | seeds"): antmaze_seeds,
    (RESULTS, "Plans on the graph in AntMaze", "antmaze-ultra, plan graph | seeds 0, 1, 2"): antmaze_steady,
    (RESULTS, "Rivals in AntMaze", "method | large"): antmaze_rivals,
    (RESULTS, "Rewards on the graph (laptop)", "method | updates"): rewards_on_the_graph,
    (RESULTS, "Zero-shot RL on the walker (laptop)", "method | seed"): zero_shot_walker,
    (RESULTS, "Walker and cheetah after 100,000 updates", "task | reward"): zero_shot_long,
    (RESULTS, "Ways to ask the walker (laptop)", "prompt | stand"): walker_ways,
    (RESULTS, "Ways to ask the walker (laptop)", "known beforehand | stand"): walker_searches,
    (RESULTS, "Zero-shot RL on the walker from pixels (laptop)", "method | updates"): zero_shot_walker_pixels,
    (RESULTS, "An arm at four rates (laptop)", "logged at | stride"): arm,
    (RESULTS, "Hierarchies", "method | updates"): hierarchies,
    (RESULTS, "A high level in the kitchen", "method | updates (skills, high level)"): hierarchies_kitchen,
    (RESULTS, "A high level in AntMaze", "maze | method"): hierarchies_antmaze,
    (RESULTS, "Speed", "name | value"): speed,
    (RESULTS, "Speed", "of | tried"): speed_trials,
}
WITHOUT_NUMBERS = {  # tables that show no result
    ("README.md", "Methods, tasks and tables", " | names"),
    (RESULTS, "The quickstart (laptop preset)", "change | our reading"),
}


@pytest.mark.parametrize("place", MADE, ids=lambda place: f"{place[0]}-{place[1]}"[:60])
def test_table_says_what_rows_say(place: tuple[str, str, str]) -> None:
    page, *key = place
    assert tables(page)[key[0], key[1]] == MADE[place]()


@pytest.mark.parametrize("page", ["README.md", RESULTS])
def test_every_table_has_its_rows(page: str) -> None:
    known = {(heading, start) for where, heading, start in {*MADE, *WITHOUT_NUMBERS} if where == page}
    assert set(tables(page)) == known, "a table without rows behind it: add it to MADE"


def test_readme_says_the_rank_correlation_of_the_kept_runs() -> None:
    said = re.search(r"exact number of steps: (\d\.\d+) \((\d\.\d+) to (\d\.\d+)\)", (ROOT / "README.md").read_text())
    assert said is not None
    (line,) = readme("rank")[1]
    assert f"{said[1]} {said[2]} to {said[3]}" == f"{line[1]} {line[2]}"


def test_fewer_vectors_change_nothing_as_the_readme_says() -> None:
    plans, rewards = ("0", "1", "3"), ("right", "left", "up", "down")  # the rest is planned otherwise since
    for row in kept("quickstart-avx2"):
        assert "AVX2" in row["machine"]["settings"]["XLA_FLAGS"]
        (same,) = [other for other in quickstarts(row["task"]) if other["seed"] == row["seed"]]
        assert [row["success"][plan] for plan in plans] == [same["success"][plan] for plan in plans]
        for part in ("reward_gain", "reward_r2"):
            assert [row[part][name] for name in rewards] == [same[part][name] for name in rewards]
        assert row["rank_correlation"] == pytest.approx(same["rank_correlation"], abs=1e-6)
