"""Tables of goals and plans, made from the kept rows: quickstart, mazes, AntMaze, OGBench, kitchen, arm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hilp
from hilp.bench import cells
from hilp.commands import quickstart as command
from hilp.report import paper
from kept_rows import (
    ROOT,
    Row,
    Table,
    data_of,
    kept,
    mean,
    of_temperature_10,
    percent,
    spread,
    spread_or_mean,
    success,
    with_interval,
)

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


def plans_on_the_graph() -> Table:
    rows = kept("goals-graph")
    lines = [["data", "seeds", *(f"plan {plan}" for plan in (0, 1, 2, 3, "midpoints", "graph", "auto"))]]
    for name in dict.fromkeys(map(data_of, rows)):
        own = [[100 * r["score"] for r in rows if (data_of(r), r["plan"]) == (name, p)] for p in cells.GOAL_PLANS]
        lines.append([name, str(len(own[0])), *map(spread_or_mean, own)])
    return lines


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


def arm() -> Table:
    lines = [["logged at", "stride", "random", "the operator", "plan 0", "plan auto", "plan 0, held for a stride"]]
    for row in kept("arm"):
        found = [percent(result["reached"]) for result in row["results"].values()]
        assert list(row["results"]) == ["random", "operator", "plan 0", "plan auto", "plan 0, held"]
        lines.append([f"{row['rate']} Hz", str(row["stride"]), *found])
    return lines
