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
    "preprocess_hidden": (256, 128),
    "hidden": 256,
    "batch": 256,
    "lr": 3e-4,
    "normalize": True,
}

MAZE_PIXELS = tuple(f"maze-{size}-pixels" for size in ("four-rooms", "medium", "large", "ultra", "oneway"))
DMC_PIXELS = tuple(f"{name}-pixels" for name in ("walker", "cheetah", "quadruped", "jaco"))
# Where the robot stands is all that there is to see, so pictures are not shifted.
LAPTOP_PIXELS: dict[str, Any] = {"encoder": "light", "augment": "none", "batch": 128}
LAPTOP_FILMS: dict[str, Any] = {"encoder": "light", "batch": 128}
PAPER_FILMS: dict[str, Any] = {"preprocess_hidden": (512, 512), "batch": 512}
PAPER_FILM_STEPS = 500_000


def _with_kinds(names: tuple[str, ...], *kinds: str) -> tuple[str, ...]:
    """Tasks by their bare name, and by that of their data."""
    return tuple(f"{name}{kind}" for name in names for kind in ("", *kinds))


ANTMAZE_LARGE = tuple(f"antmaze-large{kind}" for kind in ("", "-diverse", "-play"))
ANTMAZE_ULTRA = tuple(f"antmaze-ultra{kind}" for kind in ("", "-diverse", "-play"))
OGBENCH_ANTS = (
    "antmaze-large-v0",  # without a version or a kind of OGBench's data the name is that of the paper's task
    *(f"antmaze-large{kind}" for kind in ("-navigate", "-stitch", "-explore")),
    *_with_kinds(("antmaze-medium", "antmaze-giant", "antmaze-teleport"), "-navigate", "-stitch", "-explore"),
)
ANTMAZES = (*ANTMAZE_LARGE, *ANTMAZE_ULTRA, *OGBENCH_ANTS, "antmaze")  # the last is any map of the user's own
OGBENCH_POINTS = _with_kinds(
    tuple(f"pointmaze-{size}" for size in ("medium", "large", "giant", "teleport")),
    "-navigate",
    "-stitch",
    "-explore",
)
OGBENCH_ARMS = _with_kinds(
    (
        *(f"cube-{count}" for count in ("single", "double", "triple", "quadruple", "octuple")),
        "scene",
        *(f"puzzle-{size}" for size in ("3x3", "4x4", "4x5", "4x6")),
    ),
    "-play",
    "-noisy",
)
VISUAL_ARMS = tuple(f"visual-{name}" for name in OGBENCH_ARMS)
ALL_OGBENCH_ARMS = (*OGBENCH_ARMS, *VISUAL_ARMS)
OGBENCH = (*OGBENCH_POINTS, *OGBENCH_ANTS, *ALL_OGBENCH_ARMS)
OGBENCH_GIANTS = (*(name for name in OGBENCH if "-giant" in name), "humanoidmaze-giant")
OGBENCH_STITCHES = tuple(name for name in OGBENCH if name.endswith("-stitch"))
OGBENCH_EXPLORES = tuple(name for name in OGBENCH if name.endswith("-explore"))
OGBENCH_ANT_EXPLORES = tuple(name for name in OGBENCH_ANTS if name.endswith("-explore"))
OGBENCH_NOISES = tuple(name for name in OGBENCH if name.endswith("-noisy"))
KITCHENS = ("kitchen-partial", "kitchen-mixed", "kitchen-complete", "kitchen")
VISUAL_KITCHENS = tuple(f"visual-{name}" for name in KITCHENS)
ALL_KITCHENS = (*KITCHENS, *VISUAL_KITCHENS)
VISUAL = (*VISUAL_ARMS, *VISUAL_KITCHENS)
KITCHEN_STEPS = 500_000  # of the paper's table
# Of the paper's goal-conditioned table and of OGBench's.
PAPER_PICTURES: dict[str, Any] = {"batch": 256}
PAPER_PICTURE_STEPS = 500_000

# Kitchen at the size of a laptop. Not normalized: what never moves in the data has a standard deviation of nearly
# nothing, and the paper's goals, with zeros for it, would lie thousands of them away.
KITCHEN_ACTOR: dict[str, Any] = {"actor_hidden": (256, 256, 256), "normalize": False}
KITCHEN_AVERAGE = {"actor_ema": 1e-3}
KITCHEN_DISCOUNT = 0.99
KITCHEN_LAPTOP_STEPS = 20_000

# AntMaze at the size of a laptop: distances of hundreds of steps need long horizons and many updates. Chosen on
# antmaze-large-diverse itself (docs/results.md) for hilp, gc-iql and gc-bc; those of the other methods are untried.
ANT_ACTOR: dict[str, Any] = {
    "actor_hidden": (512, 512),  # a gait is hard to imitate
    "batch": 256,
    "lr": 6e-4,
    "normalize": True,
}
ANT: dict[str, Any] = {**ANT_ACTOR, "hidden": SMALL}  # many updates count for more than large networks
ANT_AVERAGE = {"actor_ema": 2e-4}  # one update can lose or find the way round a corner
ANT_DISCOUNT = 0.995  # at the paper's 0.99, 300 and 400 steps are 95 and 98 of at most 100: too alike for few updates
ANT_GOAL_VALUES = {"discount": ANT_DISCOUNT, "goal_discount": ANT_DISCOUNT, "tau": 0.02}
ANT_STEPS, ANT_LONG_STEPS = 100_000, 160_000

# OGBench's own discounts for all its methods; ways in its mazes are hundreds of steps long.
OGBENCH_DISCOUNT, OGBENCH_GIANT_DISCOUNT = 0.99, 0.995
OGBENCH_STEPS = 20_000
OGBENCH_GOALS = {"discount": OGBENCH_DISCOUNT, "goal_discount": OGBENCH_DISCOUNT}
OGBENCH_GIANT_GOALS = {"discount": OGBENCH_GIANT_DISCOUNT, "goal_discount": OGBENCH_GIANT_DISCOUNT}
STITCH_GOALS = {"actor_goal_random": 0.5}  # an episode of these ends before it could show a far goal
EXPLORE_GOALS = {"actor_goal_random": 1.0}  # an episode of these goes nowhere

# Where OGBench's tuned values go beyond OGBench: its point mazes are most like ours, its arms like the kitchen's.
POINTS = (*OGBENCH_POINTS, *(f"maze-{name}" for name in ("four-rooms", "medium", "large", "ultra", "oneway", "custom")))
ARMS = (*ALL_OGBENCH_ARMS, *ALL_KITCHENS)
