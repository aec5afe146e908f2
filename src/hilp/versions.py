"""Which software made a number, and on what: processors round differently, and training carries that far."""

import os
import platform
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from hilp import compiler

PACKAGES = ("hilp", "jax", "jaxlib", "equinox", "optax", "numpy")
VECTORS = ("avx512f", "avx2", "avx", "sve", "asimd")  # widest first; sums are cut into pieces of this width

LIBRARIES = ("OPENBLAS_CORETYPE", "ONEDNN_MAX_CPU_ISA")  # NumPy's products, and XLA's products of matrices


@cache
def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def versions() -> dict[str, str]:
    """Versions of what computes, for results rows and artifacts."""
    return {"python": platform.python_version(), **{package: _version(package) for package in PACKAGES}}


def machine() -> dict[str, Any]:
    """What of a machine decides how its sums are rounded, as far as it is known."""
    try:
        known = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:  # no Linux
        known = set()
    settings = {"XLA_FLAGS": compiler.flags(), **{name: os.environ.get(name) for name in LIBRARIES}}
    return {
        "architecture": platform.machine(),
        "vectors": next((name for name in VECTORS if name in known), None),
        "cores": os.cpu_count(),
        "settings": {name: value for name, value in settings.items() if value},  # which change how sums are cut
    }
