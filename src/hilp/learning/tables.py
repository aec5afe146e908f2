"""Tables of presets: families of tasks, and the values that several methods share.

The `PRESETS` of a method are a table: "SIZE FAMILY+FAMILY" -> config values, and `steps` for the number of updates.
SIZE is laptop, paper or both; without a family an entry holds for all tasks. An entry with families goes before one
without, one of a size before one of both; two entries with families never set one key to two values.
"""

from typing import Any

Table = dict[str, dict[str, Any]]


def horizon(discount: float) -> dict[str, Any]:
    """One discount for a value and for how far ahead its goals lie."""
    return {"discount": discount, "goal_discount": discount}


def phi_horizon(discount: float | str) -> dict[str, Any]:
    return {"phi_discount": discount, "goal_discount": discount}


def _with_kinds(names: tuple[str, ...], *kinds: str) -> tuple[str, ...]:
    """Tasks by their bare name, and by that of their data."""
    return tuple(f"{name}{kind}" for name in names for kind in ("", *kinds))


OF_MAZES = ("-navigate", "-stitch", "-explore")
MAPS = ("four-rooms", "medium", "large", "ultra", "oneway")
BLOCKS = (
    *(f"cube-{count}" for count in ("single", "double", "triple", "quadruple", "octuple")),
    "scene",
    *(f"puzzle-{size}" for size in ("3x3", "4x4", "4x5", "4x6")),
)
ARM, NOISY_ARM = _with_kinds(BLOCKS, "-play"), tuple(f"{name}-noisy" for name in BLOCKS)
KITCHEN = ("kitchen-partial", "kitchen-mixed", "kitchen-complete", "kitchen")
POINTS = _with_kinds(tuple(f"pointmaze-{size}" for size in ("medium", "large", "giant", "teleport")), *OF_MAZES)
OGBENCH_ANTS = (
    "antmaze-large-v0",  # without a version or a kind of OGBench's data the name is that of the paper's task
    *(f"antmaze-large{kind}" for kind in OF_MAZES),
    *_with_kinds(("antmaze-medium", "antmaze-giant", "antmaze-teleport"), *OF_MAZES),
)
VISUAL_ARM, VISUAL_NOISY_ARM = (tuple(f"visual-{name}" for name in names) for names in (ARM, NOISY_ARM))
VISUAL_KITCHEN = tuple(f"visual-{name}" for name in KITCHEN)
ARMS = (*ARM, *NOISY_ARM, *VISUAL_ARM, *VISUAL_NOISY_ARM)
OGBENCH = (*POINTS, *OGBENCH_ANTS, *ARMS)
STITCH, EXPLORE = (tuple(name for name in OGBENCH if name.endswith(kind)) for kind in ("-stitch", "-explore"))
ANT_LARGE, ANT_ULTRA = (tuple(f"antmaze-{size}{kind}" for kind in ("", "-diverse", "-play")) for size in MAPS[2:4])

FAMILIES: dict[str, tuple[str, ...]] = {
    "maze": tuple(f"maze-{name}" for name in (*MAPS, "large-slip", "large-teleport", "custom")),
    "maze-pixels": tuple(f"maze-{name}-pixels" for name in MAPS),
    "dmc-pixels": tuple(f"{name}-pixels" for name in ("walker", "cheetah", "quadruped", "jaco")),
    "walker": ("walker", "walker-pixels"),
    "quadruped": ("quadruped", "quadruped-pixels"),
    "jaco": ("jaco", "jaco-pixels"),
    "antmaze": (*ANT_LARGE, *ANT_ULTRA, *OGBENCH_ANTS, "antmaze"),  # the last is any map of the user's own
    "antmaze-large": ANT_LARGE,  # the paper's
    "antmaze-ultra": ANT_ULTRA,
    "antmaze-explore": tuple(name for name in OGBENCH_ANTS if name in EXPLORE),
    "pointmaze": POINTS,
    "pointmaze-not-giant": tuple(name for name in POINTS if "-giant" not in name),
    "giant": (*(name for name in OGBENCH if "-giant" in name), "humanoidmaze-giant"),
    "ogbench": OGBENCH,
    "stitch": STITCH,
    "explore": EXPLORE,
    "navigate": tuple(name for name in OGBENCH if name not in (*STITCH, *EXPLORE)),  # episodes that go somewhere
    "arm": ARM,
    "noisy-arm": NOISY_ARM,
    "visual-arm": VISUAL_ARM,
    "visual-noisy-arm": VISUAL_NOISY_ARM,
    "all-arms": ARMS,
    "kitchen": KITCHEN,
    "visual-kitchen": VISUAL_KITCHEN,
    "all-kitchens": (*KITCHEN, *VISUAL_KITCHEN),
    "visual": (*VISUAL_ARM, *VISUAL_NOISY_ARM, *VISUAL_KITCHEN),
}

SMALL = (128, 128, 128)
LAPTOP_ACTOR: dict[str, Any] = {"actor_hidden": SMALL, "batch": 256, "lr": 1e-3, "normalize": True}
LAPTOP_TRUNKS: dict[str, Any] = {"hidden": SMALL, **LAPTOP_ACTOR}
LAPTOP_SUCCESSORS: dict[str, Any] = {
    "preprocess_hidden": (256, 128),
    "hidden": 256,
    "batch": 256,
    "lr": 3e-4,
    "normalize": True,
    "bc_weight": "auto",
    "steps": 20_000,
}

# In the mazes, where the robot stands is all that there is to see, so images are not shifted.
LAPTOP_PIXELS: dict[str, Any] = {"encoder": "light", "augment": "none", "batch": 128}
LAPTOP_FILMS: dict[str, Any] = {"encoder": "light", "batch": 128}
PAPER_FILMS: dict[str, Any] = {"preprocess_hidden": (512, 512), "batch": 512, "steps": 500_000}
PAPER_IMAGES: dict[str, Any] = {"batch": 256}  # of the paper's goal-conditioned table and of OGBench's
GOAL_IMAGES: Table = {"laptop maze-pixels": LAPTOP_PIXELS, "laptop visual": LAPTOP_FILMS}
SUCCESSOR_IMAGES: Table = {
    "laptop maze-pixels": LAPTOP_PIXELS,
    "laptop dmc-pixels+visual": LAPTOP_FILMS,
    "paper dmc-pixels": PAPER_FILMS,
}

# Kitchen at the size of a laptop. Not normalized: what never moves in the data has a standard deviation of nearly
# nothing, and the paper's goals, with zeros for it, would lie thousands of them away.
KITCHEN_LAPTOP: dict[str, Any] = {"actor_hidden": (256, 256, 256), "normalize": False, "steps": 20_000}
KITCHEN_AVERAGE = {"actor_ema": 1e-3}
KITCHEN_ACTOR: dict[str, Any] = {**KITCHEN_LAPTOP, **KITCHEN_AVERAGE}
# In any order: a Gaussian's mean of several ways to go on is none of them (docs/results/kitchen.md).
KITCHEN_FLOW: dict[str, Any] = {**KITCHEN_LAPTOP, "actor": "flow", "actor_ema": 1e-4, "steps": 60_000}
KITCHEN_DISCOUNT = 0.99
KITCHEN_PAPER = {"steps": 500_000}  # of the paper's table

# AntMaze at the size of a laptop: distances of hundreds of steps need long horizons and many updates. Chosen on
# antmaze-large-diverse itself (docs/results/antmaze.md) for hilp, gc-iql and gc-bc; those of other methods are untried.
ANT_ACTOR: dict[str, Any] = {
    "actor_hidden": (512, 512),  # a gait is hard to imitate
    "batch": 256,
    "lr": 6e-4,
    "normalize": True,
    "steps": 100_000,
}
ANT: dict[str, Any] = {**ANT_ACTOR, "hidden": SMALL}  # many updates count for more than large networks
ANT_AVERAGE = {"actor_ema": 2e-4}  # one update can lose or find the way round a corner
ANT_DISCOUNT = 0.995  # at the paper's 0.99, 300 and 400 steps are 95 and 98 of at most 100: too alike for few updates
ANT_GOAL_VALUES = {**horizon(ANT_DISCOUNT), "tau": 0.02}
ANT_LONG = {"steps": 160_000}

# OGBench's own discounts for all its methods; ways in its mazes are hundreds of steps long.
OGBENCH_DISCOUNT, OGBENCH_GIANT_DISCOUNT = 0.99, 0.995
OGBENCH_LAPTOP = {"steps": 20_000}
OGBENCH_ACTOR_GOALS: Table = {
    "both stitch": {"actor_goal_random": 0.5},  # an episode of these ends before it could show a far goal
    "both explore": {"actor_goal_random": 1.0},  # an episode of these goes nowhere
}
# What the rivals of OGBench share. Its tuned values go beyond it: its point mazes are most like ours, its arms like
# the kitchen's.
RIVALS: Table = {
    **OGBENCH_ACTOR_GOALS,
    **GOAL_IMAGES,
    "paper all-kitchens": KITCHEN_PAPER,
    "laptop all-kitchens": KITCHEN_LAPTOP,
    "laptop pointmaze+all-arms": OGBENCH_LAPTOP,
    "paper visual": {**PAPER_IMAGES, "steps": 500_000},
}
