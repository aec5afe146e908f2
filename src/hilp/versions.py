"""Which software made a number."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

PACKAGES = ("hilp", "jax", "jaxlib", "equinox", "optax", "numpy")


@cache
def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def versions() -> dict[str, str]:
    """Versions of what computes, for results rows and artifacts."""
    return {"python": platform.python_version(), **{package: _version(package) for package in PACKAGES}}
