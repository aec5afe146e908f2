"""The tables of docs/results and README.md, made from the kept rows in benchmarks/."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hilp
from hilp.commands.quickstart import summary
from hilp.evaluation import stats
from hilp.evaluation.rows import grouped
from hilp.report import paper
from hilp.tasks.maze import chance as mazes_of_chance

ROOT = Path(__file__).parent.parent
Row = dict[str, Any]
Table = list[list[str]]
Name = Callable[[Row], str]


def kept(*names: str) -> list[Row]:
    """The rows of some files."""
    text = "".join((ROOT / "benchmarks" / f"{name}.jsonl").read_text() for name in names)
    return [json.loads(line) for line in text.splitlines()]


def runs(*names: str) -> list[Row]:
    """Rows of evaluations, each with the `name` of its method, and what tells it from others of it in the same table.

    Plans of one and two recursions are left out: the paper's has three.
    """
    rows = [row for row in kept(*names) if row.get("plan") not in (1, 2)]
    trained: dict[tuple[str, str, int], set[int]] = {}
    for row in rows:
        row["name"] = row["cell"]["label"] if "cell" in row else row["method"]
        if row["method"] == "hilp" and row["config"]["temperature"] == 10.0:
            row["name"] += ", temperature 10"
        if row["method"] in ("hilp", "hilp-directed") and not row["config"].get("lived"):
            row["name"] += ", lived 0"
        if smooth := row.get("spec", {}).get("smooth"):
            row["name"] += f", smooth {smooth:g}"
        trained.setdefault((row["name"], row["data"], row["train_seed"]), set()).add(row["train_steps"])
    several = {name for (name, _, _), steps in trained.items() if len(steps) > 1}
    for row in rows:
        row["name"] += f", {row['train_steps']:,} updates" if row["name"] in several else ""
    return rows


# How a row is called.


def label(row: Row) -> str:
    return str(row["name"])


def data(row: Row) -> str:
    return str(row["data"])


def planned(row: Row) -> str:
    """A method with its plan."""
    return label(row) + (f", plan {row['plan']}" if row["plan"] else "")


def plan(row: Row) -> str:
    return f"plan {row['plan']}"


def rewarded(row: Row) -> str:
    return f"{row['task'].partition('-')[0]} {row['reward']}"


# What a cell says.


def spread(values: Sequence[float], digits: int = 0) -> str:
    return f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}"


def scores(rows: Sequence[Row], scale: float = 100) -> str:
    """Mean and standard deviation over seeds; of one seed its score, and the interval over its episodes."""
    assert len({row["train_seed"] for row in rows}) == len(rows), f"more than seeds differ: {planned(rows[0])}"
    if len(rows) > 1:
        return spread([scale * row["score"] for row in rows])
    return "{:.0f} [{:.0f}, {:.0f}]".format(*(scale * x for x in (rows[0]["score"], *rows[0]["interval"])))


def beside(found: paper.Score | None) -> str:
    return f" / {found[0]:.0f} ± {found[1]:.0f}" if found else ""


def paper_goals(row: Row) -> str:
    theirs = {0: row["method"], 3: "hilp-plan"}.get(row["plan"], "")
    return beside(paper.goal_conditioned(data(row), theirs))


def grid(head: str, rows: Iterable[Row], line: Name, column: Name, write: Callable[[list[Row]], str] = scores) -> Table:
    """A line for each group of rows, and in it a cell for each group of another kind."""
    rows = list(rows)
    columns, lines = list(grouped(rows, column)), []
    for name, group in grouped(rows, line).items():
        own = grouped(group, column)
        lines.append([name, *(write(own[one]) if one in own else "" for one in columns)])
    return [[head, *columns], *lines]


def flat(names: Sequence[str], rows: Iterable[Row], show: Callable[[Row], Sequence[object]]) -> Table:
    """A line for each row."""
    return [[*names], *([str(one) for one in show(row)] for row in rows)]


# The tables.


def goals(*files: str, published: Callable[[Row], str] = paper_goals) -> Table:
    """Methods by data sets, with what others published behind a slash."""
    return grid("method", runs(*files), planned, data, lambda rows: scores(rows) + published(rows[0]))


def rewards(*files: str, pixels: bool = False) -> Table:
    """Methods by rewards, or the other way where there are more rewards, with the paper's behind a slash."""

    def write(rows: list[Row]) -> str:
        row = rows[0]
        theirs = paper.zero_shot(row["task"].partition("-")[0], row["reward"], row["cell"]["label"], "rnd", pixels)
        return scores(rows, 1) + beside(theirs)

    rows = runs(*files)
    random = [f"{np.mean([row['random'] for row in own]):.0f}" for own in grouped(rows, rewarded).values()]
    found = [*grid("", rows, label, rewarded, write), ["random actions", *random]]
    return found if len(found) > len(found[0]) - 1 else [list(line) for line in zip(*found, strict=True)]


def quickstart(rows: list[Row]) -> Table:
    """What the command prints under these rows."""
    return [["prompt", f"mean of {len(rows)} seeds", "lowest to highest", "R²"], *summary(rows)]


def vectors(machine: dict[str, Any]) -> str:
    """The instructions of a processor, or those that it was told to do with."""
    told = re.search("max_isa=([A-Z0-9_]+)", machine["settings"].get("XLA_FLAGS", ""))
    return f"{told[1].lower()} by settings" if told else str(machine["vectors"])


def quickstarts() -> Table:
    """The same of each maze and kind of machine, side by side."""
    groups = grouped(
        kept("quickstart", "quickstart-avx2-machine"),
        lambda row: ", ".join(
            [
                row["task"].removeprefix("maze-"),
                *([vectors(row["machine"])] if "machine" in row else []),
                *([] if row["config"].get("lived") else ["lived 0"]),
            ]
        ),
    )
    found = {name: {line[0]: line for line in summary(rows)} for name, rows in groups.items()}
    lines = dict.fromkeys(name for one in found.values() for name in one)
    cells = [[f"{one[name][1]} ({one[name][2]})" if name in one else "" for one in found.values()] for name in lines]
    head = [f"{name} ({len(rows)} seeds)" for name, rows in groups.items()]
    return [["prompt", *head], *([name, *own] for name, own in zip(lines, cells, strict=True))]


def maze_methods() -> Table:
    """Methods in the mazes that data walks to goals in; those of hilp are in the table of data and plans, too."""
    rows = [row for row in runs("goals-graph", "goals") if data(row).endswith("navigate") and row["plan"] != "graph"]
    return grid("method", rows, planned, data)


def zoo() -> Table:
    """Policies of the zoo by prompts: as they are shipped, and, where that differs, as they were trained."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in kept("zoo"):
        place = row["command"].split()[2]
        shipped = place.startswith("zoo:")
        name = f"`zoo:{place.removeprefix('zoo:' if shipped else 'runs/zoo/')}`"
        asked = plan(row) if row["prompt"] == "goal" else f"reward {row['reward']}"
        score = f"{row['score']:.0f}" if row["metric"] == "return" else f"{100 * row['score']:.0f}%"
        found.setdefault((name, asked), ["", ""])[not shipped] = score
    return [["policy", "prompt", "as it comes", "before"], *([*names, *cells] for names, cells in found.items())]


def own_maps() -> Table:
    def show(row: Row) -> Sequence[object]:
        longest = hilp.make_task(str(ROOT / row["task"])).finite().steps.max()
        found = [f"{100 * share:.0f}%" for share in row["success"].values()]
        return Path(row["task"]).stem, longest, f"{row['steps']:,}", *found, f"{row['rank_correlation']:.3f}"

    newest = {row["task"]: row for row in kept("quickstart-maps")}.values()
    plans = [f"plan {name}" for name in next(iter(newest))["success"]]
    return flat(["map", "longest way, steps", "updates", *plans, "rank correlation"], newest, show)


def one_way() -> Table:
    """Errors of distances, and goals reached."""

    def embedding(head: str, key: str, digits: int) -> Table:
        rows = [row for row in runs("oneway-seeds") if row["plan"] == 0]
        return grid(
            head, rows, label, lambda _: head, lambda own: spread([row["embedding"][key] for row in own], digits)
        )

    off, rank = embedding("steps off", "steps_off", 2), embedding("rank correlation", "rank_correlation", 3)
    reached = grid("method", runs("oneway-seeds"), label, plan)
    return [[line[0], one[1], other[1], *line[1:]] for line, one, other in zip(reached, off, rank, strict=True)]


def chance() -> Table:
    """Goals in worlds of chance; of plan auto the steps that it expects, those that it takes, and the exact ones."""

    def show(own: list[Row]) -> Sequence[str]:
        by_plan = grouped(own, lambda row: str(row["plan"]))
        planned = by_plan["auto"]
        expected, taken = zip(*map(forecast, planned), strict=True)
        off = f"{100 * (np.mean(taken) / np.mean(expected) - 1):+.0f}%"
        exact = [one for row in planned if (one := exact_steps(row)) is not None]
        reached = [scores(by_plan[plan]) for plan in ("0", "auto")]
        steps = [f"{np.mean(found):.1f}" if len(found) else "" for found in (expected, taken, exact)]
        return [data(own[0]), label(own[0]), *reached, *steps[:2], off, steps[2]]

    lines = [show(own) for own in grouped(runs("chance"), lambda row: (data(row), label(row))).values()]
    return [["data", "policy", "plan 0", "plan auto", "expected", "taken", "off by", "exact"], *map(list, lines)]


def forecast(row: Row) -> tuple[float, float]:
    """Steps that a plan expected of the episodes that reached their goal, and those that they took, on average."""
    pairs = zip(row["expected_steps"], row["lengths"], row["outcomes"], strict=True)
    known = [(expected, taken) for expected, taken, outcome in pairs if outcome == 1 and expected is not None]
    return float(np.mean([one for one, _ in known])), float(np.mean([one for _, one in known]))


def exact_steps(row: Row) -> float | None:
    """The fewest steps that are expected in a row's episodes, on average, where the task knows them."""
    if row["task"] not in mazes_of_chance.names():
        return None
    world = mazes_of_chance.make(row["task"])
    running = world.episodes(np.random.default_rng(row["evaluation_seed"]), row["episodes"])
    reached = np.array(row["outcomes"]) == 1
    return float(world.expected(running.observations, running.goals)[reached].mean())


def dimension() -> Table:
    rows = runs("goals-dimension")
    errors = [row for row in rows if row["plan"] == 0]
    by_dim: Name = lambda row: label(row).removeprefix("hilp dim=")  # noqa: E731
    mse = grid(
        "",
        errors,
        lambda _: "embedding MSE",
        by_dim,
        lambda own: f"{np.mean([r['embedding']['mse'] for r in own]):.1f}",
    )
    return [*grid("dim", rows, plan, by_dim), mse[1]]


def ablation() -> Table:
    rows = [row for row in runs("goals-ablation") if row["plan"] in (0, 3)]
    return grid("", rows, label, lambda row: f"{row['task']}, {plan(row)}")


# 100 x success of OGBench's published files at 10^6 updates (Park et al. 2025), and HILP's of TD-JEPA's authors.
PUBLISHED = {
    "pointmaze-large-stitch": {"gc-bc": 7, "gc-iql": 12, "gc-iql-q": 31, "qrl": 84, "crl": 0, "hiql": 13},
    "pointmaze-giant-stitch": {"gc-bc": 0, "gc-iql": 0, "gc-iql-q": 0, "qrl": 50, "crl": 0, "hiql": 0},
    "cube-single-play": {"hilp": 74, "gc-bc": 6, "gc-iql": 53, "gc-iql-q": 68, "qrl": 5, "crl": 19, "hiql": 15},
}


def ogbench(file: str) -> Table:
    def published(row: Row) -> str:
        theirs = PUBLISHED[data(row)].get(row["method"])
        return "" if theirs is None or row["plan"] else f" / {theirs}"

    return goals(file, published=published)


def zero_shot_maze() -> Table:
    """Shares of what the best policy earns above random actions; IQM over rewards and seeds."""

    def share(row: Row) -> float:
        return float((row["score"] - row["random"]) / (row["best_possible"] - row["random"]))

    def iqm(rows: Iterable[Row]) -> str:
        strata = [[share(row) for row in own] for own in grouped(list(rows), lambda row: row["reward"]).values()]
        return "{:.2f} [{:.2f}, {:.2f}]".format(*stats.stratified_bootstrap(strata)) if strata else ""

    plain, told = grouped(
        runs("zero-shot-maze"), lambda row: "told" if "intercept" in row["spec"] else "plain"
    ).values()
    head, *lines = grid("method", plain, label, lambda row: row["reward"], lambda own: spread(list(map(share, own)), 2))
    own, with_constant = grouped(plain, label), grouped(told, label)
    lines = [[*one, iqm(own[one[0]]), iqm(with_constant.get(one[0], []))] for one in lines]
    return [[*head, "IQM [95%]", "IQM with an intercept"], *lines]


def hierarchies() -> Table:
    rows = runs("hierarchy-maze", "hierarchy-kitchen", "hierarchy-antmaze")
    theirs = lambda row: beside(paper.hierarchical(data(row), row["method"]))  # noqa: E731
    return grid("method", rows, label, data, lambda own: scores(own) + theirs(own[0]))


def bodies() -> Table:
    """Six velocities and places a few metres away, of an ant on open ground: a line a seed."""
    held = grouped(kept("bodies-ant-rewards"), seeded)
    reached = grouped([row for row in kept("bodies-ant") if row["plan"] in (0, "auto")], seeded)
    lines = []
    for name, rows in held.items():
        episodes = sum(row["episodes"] for row in rows)
        plans = {row["plan"]: f"{sum(row['outcomes']):.0f} of {row['episodes']}" for row in reached.get(name, [])}
        tallies = [f"{sum(row[key] for row in rows)} of {episodes}" for key in ("held", "falls")]
        lines.append([name, *tallies, *(plans.get(one, "") for one in (0, "auto"))])
    return [["policy", "velocities held", "falls", "places reached, plan 0", "places reached, plan auto"], *lines]


def goal_dims() -> Table:
    """The goals of one policy as a task gives them, and by the columns that are its place alone."""

    def show(own: list[Row]) -> list[str]:
        falls, episodes = (sum(row[key] for row in own) for key in ("falls", "episodes"))
        steps = np.mean([row["mean_length_of_successes"] for row in own])
        return [spread([100 * row["score"] for row in own]), f"{steps:.0f}", f"{falls} of {episodes}"]

    name = lambda row: f"{plan(row)}{', --goal-dims x,y' if 'goal_dims' in row['spec'] else ''}"  # noqa: E731
    lines = [[what, *show(own)] for what, own in grouped(kept("goal-dims"), name).items()]
    return [["goals", "100 x success", "steps of successes", "falls"], *sorted(lines)]


def seeded(row: Row) -> str:
    return f"{row['method']}, seed {row['train_seed']}"


def door() -> Table:
    """A hand at a door: methods by success, the mean over seeds and each of them."""
    rows = kept("adroit-door")

    def show(own: list[Row]) -> list[str]:
        each = ", ".join(f"{100 * row['success']:.0f}" for row in own)
        chunk = own[0]["config"].get("chunk", 1)
        minutes = f"{np.mean([row['core_minutes'] for row in own]):.1f}"
        return [own[0]["method"], spread([100 * row["success"] for row in own]), each, str(chunk), minutes]

    lines = [show(own) for own in grouped(rows, lambda row: row["method"]).values()]
    return [["method", "100 x success", "seeds", "actions at once", "core-minutes"], *lines]


def door_trials() -> Table:
    """Settings that were tried on other resets than the table's, and how far each actor listens."""

    def show(own: list[Row]) -> list[str]:
        each = ", ".join(f"{100 * row['success']:.0f}" for row in own)
        return [spread([100 * row["success"] for row in own]), each, spread([row["listening"] for row in own], 2)]

    lines = grouped(kept("adroit-door-trials"), lambda row: f"{row['method']} {' '.join(row['set'])}".strip()).items()
    return [["method", "100 x success", "seeds", "listens"], *([name, *show(own)] for name, own in lines)]


def listening() -> Table:
    """Whether actors listen: the spread of actions over skills against that of the data, the mean over policies."""
    door = [{**row, "data": "Adroit door"} for row in kept("adroit-door-trials") if not row["set"]]
    evaluated = [row for row in kept("listening") if row["plan"] == 0]
    rows = grouped([*evaluated, *door], lambda row: (row["data"], row["method"])).items()
    lines = [[*name, f"{np.mean([row['listening'] for row in own]):.2f}", str(len(own))] for name, own in rows]
    return [["data", "method", "listens", "policies"], *lines]


def gymnasium() -> Table:
    def show(row: Row) -> Sequence[object]:
        prompt = f"goal, plan {row['plan']}" if row["prompt"] == "goal" else f"reward {row['reward']}"
        form = "{:.0%}" if row["metric"] == "success" else "{:.0f}"
        return row["task"], prompt, form.format(row["score"]), form.format(row["random"])

    return flat(["task", "prompt", "score", "random actions"], kept("gym"), show)


def rooms() -> Table:
    """MiniGrid's rooms: goals reached with and without a plan, the mean over seeds and each of them."""

    def show(own: list[Row]) -> list[str]:
        each = ", ".join(f"{100 * row['score']:.0f}" for row in own)
        random = spread([100 * row["random"] for row in own])
        return [own[0]["data"], plan(own[0]), scores(own), each, random]

    lines = [show(own) for own in grouped(kept("discrete"), lambda row: (row["data"], row["plan"])).values()]
    return [["data", "prompt", "100 x success", "seeds", "random actions"], *lines]


def classic_control() -> Table:
    """What environments pay under a reward prompt, the mean over seeds and each of them."""

    def show(own: list[Row]) -> list[str]:
        each = ", ".join(f"{row['score']:.0f}" for row in own)
        minutes = f"{np.mean([row['core_minutes'] for row in own]):.1f}"
        scored = spread([row["score"] for row in own])
        return [own[0]["task"], f"`{own[0]['reward']}`", scored, each, f"{own[0]['random']:.0f}", minutes]

    lines = [show(own) for own in grouped(kept("classic-control"), lambda row: row["task"]).values()]
    return [["task", "prompt", "return", "seeds", "random actions", "core-minutes"], *lines]


def arm() -> Table:
    rows = kept("arm")
    ways = list(rows[0]["results"])
    return flat(
        ["logged at", "stride", *ways],
        rows,
        lambda row: [
            f"{row['rate']} Hz",
            row["stride"],
            *(f"{100 * row['results'][way]['reached']:.0f}%" for way in ways),
        ],
    )


def memory() -> Table:
    """Success by what a policy sees: the mean over seeds and each of them."""

    def show(own: list[Row]) -> list[str]:
        values = [100 * row["score"] for row in own]
        minutes = f"{np.mean([row['core_minutes'] for row in own]):.1f}"
        sight = {"full": "all", "none": "no velocities"}.get(own[0]["sight"], f"{own[0]['frames']} rows of that")
        return [sight, spread(values), ", ".join(f"{value:.0f}" for value in values), minutes]

    lines = [show(own) for own in grouped(kept("memory"), lambda row: (row["lab"], row["sight"])).values()]
    return [["sees", "100 x success", "seeds", "core-minutes"], *lines]


def ogbench_scripts() -> Table:
    keys = ("transitions", "targets", "targets_reached", "targets_cut_short")
    return flat(
        ["data", "transitions", "targets", "reached", "cut short", "success"],
        kept("ogbench-scripts"),
        lambda row: [row["data"], *(f"{row[key]:,}" for key in keys), f"{100 * row['script_success']:.0f}%"],
    )


def explore() -> Table:
    """Cells that data from nothing visited after so many transitions."""

    def explorers(row: Row) -> str:
        config = row["config"]
        return "random actions" if config["rounds"] == 1 else "random skills" if "explorer" in config else "landmarks"

    def line(row: Row) -> str:
        of = f" ({row['cells_of']} cells)" if "cells_of" in row else ""
        return f"{row['task']}{of}, {explorers(row)}"

    told = [
        {**row, "at": f"{at:,} transitions", "cells": cells}
        for row in kept("explore")
        for at, cells in zip(row["transitions_at"], row["cells_at"], strict=True)
        if at in (2_000, 4_000, 6_000, 10_000, 20_000)
    ]

    def visited(rows: list[Row]) -> str:
        return spread([row["cells"] for row in rows]) if len(rows) > 1 else str(rows[0]["cells"])

    return grid("cells visited", told, line, lambda row: row["at"], visited)


def speed() -> Table:
    newest = {row["name"]: row for row in kept("speed", "data")}.values()
    return flat(
        ["name", "value", "ratio", "against"],
        newest,
        lambda row: [row["name"], f"{row['value']} {row['unit']}", row["ratio"], row["against"]],
    )


TABLES: dict[str, Callable[[], Table]] = {
    "quickstart": lambda: quickstart([row for row in kept("quickstart") if row["task"] == "maze-large"]),
    "quickstarts": quickstarts,
    "maze methods": maze_methods,
    "maze data": lambda: grid("data", runs("goals-graph"), lambda row: data(row) + label(row)[4:], plan),
    "plans of others": lambda: grid("method", runs("plans"), label, lambda row: f"{data(row)}, {plan(row)}"),
    "zoo": zoo,
    "own maps": own_maps,
    "one-way doors": one_way,
    "chance": chance,
    "dimension": dimension,
    "ablation": ablation,
    "antmaze": lambda: goals("goals-antmaze-seeds", "goals-antmaze-smooth"),
    "ogbench mazes": lambda: ogbench("goals-ogbench"),
    "ogbench arms": lambda: ogbench("goals-ogbench-arms"),
    "ogbench scripts": ogbench_scripts,
    "kitchen": lambda: goals("goals-kitchen"),
    "zero-shot maze": zero_shot_maze,
    "walker": lambda: rewards("zero-shot-walker"),
    "walker and cheetah": lambda: rewards("zero-shot-long"),
    "walker prompts": lambda: rewards("zero-shot-walker-ways"),
    "walker from pixels": lambda: rewards("zero-shot-walker-pixels", pixels=True),
    "hierarchies": hierarchies,
    "bodies": bodies,
    "goal dims": goal_dims,
    "door": door,
    "door, tried": door_trials,
    "listening": listening,
    "gymnasium": gymnasium,
    "rooms": rooms,
    "classic control": classic_control,
    "arm": arm,
    "memory": memory,
    "explore": explore,
    "speed": speed,
}
