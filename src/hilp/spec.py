"""Spec: what a method has to know of the data to build its networks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spec:
    """The sizes of one row."""

    observation_dim: int  # numbers in an observation, all parts of a named tree together
    action_dim: int
