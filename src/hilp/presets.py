"""Presets: (method, size, task) -> config, number of updates and size of the planning bank.

`paper` holds the values of the paper's tables; `laptop` is for two CPU cores and minutes (AntMaze: more).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from hilp.errors import HilpError, nearest
from hilp.learning import methods

SIZES = ("laptop", "paper")


@dataclass(frozen=True)
class Preset:
    """A config and what the training loop needs beside it."""

    config: Any
    steps: int  # gradient updates
    bank: int  # states kept in the artifact for planning (N of Algorithm 2) and for reward prompts


SMALL = (128, 128, 128)
LAPTOP: dict[str, tuple[int, dict[str, Any]]] = {  # module -> updates, config values
    "hilp.learning.methods.hilp": (
        8_000,
        {
            "dim": 8,  # few latent directions are learned sooner than many
            "hidden": SMALL,
            "actor_hidden": SMALL,
            "batch": 256,
            "lr": 1e-3,
            "phi_discount": 0.97,  # resolves distances up to some 50 steps; raise it where yours are longer
            "goal_discount": 0.97,
            "discount": 0.98,
            "phi_target_rate": 0.02,
            "target_rate": 0.02,
            "temperature": 3.0,
            "normalize": True,
        },
    ),
    "hilp.learning.methods.sf": (
        20_000,
        {
            "dim": 32,
            "phi_hidden": (128, 128),
            "entrance": (256, 128),
            "hidden": 256,
            "batch": 256,
            "lr": 3e-4,
            "phi_lr": 1e-3,
            "phi_target_rate": 0.02,
            "normalize": True,
        },
    ),
    "hilp.learning.methods.fb": (
        20_000,
        {
            "dim": 32,
            "backward_hidden": (128, 128),
            "entrance": (256, 128),
            "hidden": 256,
            "batch": 256,
            "lr": 3e-4,
            "normalize": True,
        },
    ),
    "hilp.learning.methods.gctd3": (
        20_000,
        {"entrance": (256, 128), "hidden": 256, "batch": 256, "lr": 3e-4, "normalize": True},
    ),
    "hilp.learning.methods.gcbc": (8_000, {"actor_hidden": SMALL, "batch": 256, "lr": 1e-3, "normalize": True}),
    "hilp.learning.methods.gciql": (
        8_000,
        {
            "hidden": SMALL,
            "actor_hidden": SMALL,
            "batch": 256,
            "lr": 1e-3,
            "discount": 0.97,  # as phi of hilp
            "goal_discount": 0.97,
            "target_rate": 0.02,
            "normalize": True,
        },
    ),
    "hilp.learning.methods.gccql": (
        8_000,
        {
            "hidden": SMALL,
            "actor_hidden": SMALL,
            "batch": 256,
            "lr": 1e-3,
            "actor_lr": 3e-4,
            "discount": 0.97,
            "goal_discount": 0.97,
            "target_rate": 0.02,
            "samples": 4,  # 30 actions a row would be most of the work
            "normalize": True,
        },
    ),
    "hilp.learning.methods.iql": (
        8_000,
        {
            "dim": 32,
            "phi_hidden": (128, 128),
            "hidden": SMALL,
            "actor_hidden": SMALL,
            "batch": 256,
            "lr": 1e-3,
            "discount": 0.98,
            "target_rate": 0.02,
            "normalize": True,
        },
    ),
}
# What the paper's tables set for one environment: (module, task) -> config values, at both sizes.
BY_TASK: dict[tuple[str, str], dict[str, Any]] = {
    ("hilp.learning.methods.sf", "walker"): {"phi_discount": 0.96},
    ("hilp.learning.methods.sf", "quadruped"): {"loss": "q"},
    ("hilp.learning.methods.sf", "jaco"): {"loss": "q"},
    **{
        ("hilp.learning.methods.gciql", f"antmaze-ultra{kind}"): {"expectile": 0.7, "temperature": 1.0}
        for kind in ("", "-diverse", "-play")
    },
}
PAPER_BY_TASK: dict[tuple[str, str], dict[str, Any]] = {  # sizes, so not for `laptop`
    (module, f"antmaze-large{kind}"): {"actor_hidden": (256, 256)}
    for module in ("hilp.learning.methods.gcbc", "hilp.learning.methods.gciql")
    for kind in ("", "-diverse", "-play")
}
# AntMaze at the size of a laptop: distances of hundreds of steps need long horizons and many updates. Chosen on
# antmaze-large-diverse itself (docs/results.md); those of gc-cql, iql-* and fb are untried.
ANT: dict[str, Any] = {
    "hidden": SMALL,  # many updates count for more than large networks
    "actor_hidden": (512, 512),  # a gait is hard to imitate
    "batch": 256,
    "lr": 6e-4,
    "normalize": True,
    "actor_rate": 2e-4,  # one update can lose or find the way round a corner
}
# For methods that keep the last actor.
ANT_WITHOUT_AVERAGE = {name: value for name, value in ANT.items() if name != "actor_rate"}
ANT_DISCOUNT = 0.995  # at the paper's 0.99, 300 and 400 steps are 95 and 98 of at most 100: too alike for few updates
ANT_GOAL_VALUES = {"discount": ANT_DISCOUNT, "goal_discount": ANT_DISCOUNT, "target_rate": 0.02}
LAPTOP_ANTMAZE: dict[str, tuple[int, dict[str, Any]]] = {  # module -> updates, config values
    "hilp.learning.methods.hilp": (
        160_000,
        {
            **ANT,
            "dim": 8,
            "phi_discount": ANT_DISCOUNT,
            "goal_discount": ANT_DISCOUNT,
            "discount": 0.98,
            "temperature": 3.0,  # at 10 the skills press against walls, where the data seldom walks
            "phi_target_rate": 0.02,
            "target_rate": 0.02,
            "bound_targets": True,
            "schedule": "sequential",
            "phi_steps": 60_000,
        },
    ),
    "hilp.learning.methods.gciql": (100_000, {**ANT, **ANT_GOAL_VALUES}),
    "hilp.learning.methods.gcbc": (100_000, {name: value for name, value in ANT.items() if name != "hidden"}),
    "hilp.learning.methods.gccql": (160_000, {**ANT_WITHOUT_AVERAGE, **ANT_GOAL_VALUES, "samples": 4}),
    "hilp.learning.methods.iql": (160_000, {**ANT_WITHOUT_AVERAGE, "phi_hidden": (128, 128), "target_rate": 0.02}),
    "hilp.learning.methods.fb": (160_000, LAPTOP["hilp.learning.methods.fb"][1]),
}
ANTMAZES = (  # the last is any map of the user's own
    *(f"antmaze-{size}{kind}" for size in ("large", "ultra") for kind in ("", "-diverse", "-play")),
    "antmaze",
)
LAPTOP_BY_TASK: dict[tuple[str, str], tuple[int, dict[str, Any]]] = {
    (module, name): values for module, values in LAPTOP_ANTMAZE.items() for name in ANTMAZES
}
PAPER_STEPS, PAPER_BANK, LAPTOP_BANK = 1_000_000, 50_000, 10_000


def preset(method: str, size: str, task: str | None = None) -> Preset:
    """The preset of a method at a size, for data of a task where the paper has values of its own for it."""
    if size not in SIZES:
        raise HilpError(f"unknown preset '{size}': {nearest(size, SIZES)}")
    module = methods.module(method).__name__
    where = (module, re.split("[_:]", task)[0] if task else "")  # without a reward's name, without a map
    own = BY_TASK.get(where, {})
    if size == "paper":
        return Preset(methods.config(method, **own, **PAPER_BY_TASK.get(where, {})), PAPER_STEPS, PAPER_BANK)
    steps, values = LAPTOP_BY_TASK.get(where, LAPTOP[module])
    return Preset(methods.config(method, **{**values, **own}), steps, LAPTOP_BANK)
