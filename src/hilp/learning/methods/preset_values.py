"""Config values that the presets of several methods share."""

from __future__ import annotations

from typing import Any

SMALL = (128, 128, 128)
LAPTOP_TRUNKS: dict[str, Any] = {
    "hidden": SMALL,
    "actor_hidden": SMALL,
    "batch": 256,
    "lr": 1e-3,
    "normalize": True,
}
LAPTOP_SUCCESSORS: dict[str, Any] = {
    "entrance": (256, 128),
    "hidden": 256,
    "batch": 256,
    "lr": 3e-4,
    "normalize": True,
}

ANTMAZE_LARGE = tuple(f"antmaze-large{kind}" for kind in ("", "-diverse", "-play"))
ANTMAZE_ULTRA = tuple(f"antmaze-ultra{kind}" for kind in ("", "-diverse", "-play"))
OGBENCH_ANTS = ("antmaze-medium", "antmaze-large-v0", "antmaze-giant")
ANTMAZES = (*ANTMAZE_LARGE, *ANTMAZE_ULTRA, *OGBENCH_ANTS, "antmaze")  # the last is any map of the user's own
OGBENCH_POINTS = ("pointmaze-medium", "pointmaze-large", "pointmaze-giant")
OGBENCH_ARMS = ("cube-single", "cube-double", "scene", "puzzle-3x3", "puzzle-4x4")
OGBENCH_GIANTS = ("pointmaze-giant", "antmaze-giant", "humanoidmaze-giant")
KITCHENS = ("kitchen-partial", "kitchen-mixed")
KITCHEN_STEPS = 500_000  # of the paper's table

# AntMaze at the size of a laptop: distances of hundreds of steps need long horizons and many updates. Chosen on
# antmaze-large-diverse itself (docs/results.md) for hilp, gc-iql and gc-bc; those of the other methods are untried.
ANT_ACTOR: dict[str, Any] = {
    "actor_hidden": (512, 512),  # a gait is hard to imitate
    "batch": 256,
    "lr": 6e-4,
    "normalize": True,
}
ANT: dict[str, Any] = {**ANT_ACTOR, "hidden": SMALL}  # many updates count for more than large networks
ANT_AVERAGE = {"actor_rate": 2e-4}  # one update can lose or find the way round a corner
ANT_DISCOUNT = 0.995  # at the paper's 0.99, 300 and 400 steps are 95 and 98 of at most 100: too alike for few updates
ANT_GOAL_VALUES = {"discount": ANT_DISCOUNT, "goal_discount": ANT_DISCOUNT, "target_rate": 0.02}
ANT_STEPS, ANT_LONG_STEPS = 100_000, 160_000

# OGBench's own discounts for all its methods; ways in its mazes are hundreds of steps long.
OGBENCH_DISCOUNT, OGBENCH_GIANT_DISCOUNT = 0.99, 0.995
OGBENCH_STEPS = 20_000
