"""Tables of rewards, made from the kept rows: zero-shot RL, and hierarchies over skills."""

from __future__ import annotations

import numpy as np

from hilp.report import paper
from kept_rows import Row, Table, kept, mean, of_temperature_10, share, spread, with_interval


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
