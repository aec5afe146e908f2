"""Presets: (method, size) -> config, number of updates and size of the planning bank.

`paper` holds the values of the paper's tables; `laptop` is for two CPU cores and minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hilp import methods
from hilp.errors import HilpError, nearest

SIZES = ("laptop", "paper")


@dataclass(frozen=True)
class Preset:
    """A config and what the training loop needs beside it."""

    config: Any
    steps: int  # gradient updates
    bank: int  # states kept in the artifact for planning (N of Algorithm 2)


def preset(method: str, size: str) -> Preset:
    """The preset of a method at a size."""
    if size not in SIZES:
        raise HilpError(f"unknown preset '{size}': {nearest(size, SIZES)}")
    config = methods.module(method).Config
    if size == "paper":
        return Preset(config(), steps=1_000_000, bank=50_000)
    small = (128, 128, 128)
    return Preset(
        config(
            dim=8,  # few latent directions are learned sooner than many
            hidden=small,
            actor_hidden=small,
            batch=256,
            lr=1e-3,
            phi_discount=0.97,  # resolves distances up to some 50 steps; raise it where yours are longer
            goal_discount=0.97,
            discount=0.98,
            phi_target_rate=0.02,
            target_rate=0.02,
            temperature=3.0,
            normalize=True,
        ),
        steps=8_000,
        bank=10_000,
    )
