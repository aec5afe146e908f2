"""The compiler under JAX: known errors of a jaxlib are avoided before it starts. Imports nothing that is slow."""

import os
import sys
import warnings
from importlib.util import find_spec

FLAG = "--xla_cpu_experimental_ynn_fusion_type"
# On CPUs these return wrong rows where matrix-vector products are reduced (jax issue 39103), and crash on arrays of
# rank 7 and 8 (39257). Other versions may not know the flag, and XLA ends the process for a flag that it does not know.
WRONG_REDUCTIONS = ("0.10.2", "0.11.0")
_own: list[str] = []  # what was added to the user's flags


def avoid_wrong_reductions() -> None:
    """Set the flag that avoids them where the installed jaxlib needs it, unless the user has set it."""
    flags = os.environ.get("XLA_FLAGS", "")
    if FLAG in flags or not needed():
        return
    if started():
        warnings.warn(
            f"this jaxlib can compute wrong sums on CPUs, and JAX has started already: import hilp before JAX computes "
            f"anything, or set XLA_FLAGS={FLAG}=-reduce",
            stacklevel=3,
        )
        return
    _own.append(f"{FLAG}=-reduce")
    os.environ["XLA_FLAGS"] = f"{flags} {_own[0]}".strip()
    if "jax" in sys.modules:
        keep_flags_here()


def keep_flags_here() -> None:
    """Have XLA read its flags, and take ours out of the environment: another jaxlib in a child might not know it."""
    if _own and _own[0] in os.environ.get("XLA_FLAGS", ""):
        from jaxlib.xla_client import CompileOptions

        CompileOptions().executable_build_options.debug_options  # noqa: B018  # asking for it is what reads them
        os.environ["XLA_FLAGS"] = os.environ["XLA_FLAGS"].replace(_own[0], "").strip()
        if not os.environ["XLA_FLAGS"]:
            del os.environ["XLA_FLAGS"]


def flags() -> str:
    """The flags that XLA reads or has read."""
    known = os.environ.get("XLA_FLAGS", "")
    return " ".join([known, *(flag for flag in _own if flag not in known)]).strip()


def started() -> bool:
    """Whether JAX has a backend: its flags are read and its threads run."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    initialized = getattr(bridge, "backends_are_initialized", None)
    return bool(initialized()) if initialized is not None else bridge is not None


def needed() -> bool:
    """Whether the installed jaxlib is one of these, by the name of its folder: reading metadata would take longer."""
    spec = find_spec("jaxlib")
    homes = [] if spec is None else [os.path.dirname(path) for path in spec.submodule_search_locations or ()]
    return any(os.path.isdir(f"{home}/jaxlib-{version}.dist-info") for home in homes for version in WRONG_REDUCTIONS)
