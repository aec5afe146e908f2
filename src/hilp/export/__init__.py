"""Policies that leave Python's large packages behind: folders for robots that have numpy, or an ONNX runtime, alone.

from hilp import FoundationPolicy, export
export.write(FoundationPolicy.load("runs/maze"), "numpy", "robot")
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from hilp import storage
from hilp.errors import HilpError, nearest, path_of
from hilp.policy.policy import FoundationPolicy

TARGETS = ("numpy", "onnx")
OURS = {  # files and folders of exports: only these are replaced
    "hilp_runtime", "policy.safetensors", "prompts", "__pycache__", "policy.json", "bank.safetensors", "act.onnx",
    "encode.onnx", "target.onnx", "goal.onnx",
}  # fmt: skip


def write(
    policy: FoundationPolicy,
    to: str,
    out: str | os.PathLike[str],
    prompts: Sequence[str | os.PathLike[str]] = (),
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a policy for another runtime: a whole folder that was checked against the policy, or nothing.

    prompts: files of prompts that were saved for this policy, to go along (numpy only). Returns what was written.
    """
    from hilp.export import numpy_folder, onnx_folder

    if to not in TARGETS:
        raise HilpError(f"a policy cannot be exported to '{to}': {nearest(to, TARGETS)}")
    if to == "onnx" and prompts:
        raise HilpError("saved prompts go along with --to numpy only: an ONNX graph remembers nothing between steps")
    folder = storage.with_a_name(path_of(out))
    _require_place(folder, overwrite)
    storage.clean_leftovers(folder)
    # Cards round products of float32 to fewer digits unless told otherwise, which would look like a wrong export.
    with storage.new_folder(folder) as temporary, jax.default_matmul_precision("highest"):
        if to == "numpy":
            facts = numpy_folder.write(policy, temporary, [Path(prompt) for prompt in prompts])
        else:
            facts = onnx_folder.write(policy, temporary)
    return {"out": str(folder), "to": to, "method": policy.method, "fingerprint": policy.fingerprint, **facts}


def _require_place(folder: Path, overwrite: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise HilpError(f"cannot write {folder}: it is a file")
    if not folder.exists():
        return
    if Path.cwd().is_relative_to(folder.resolve()):  # swapped, it would be gone under our feet
        raise HilpError(f"cannot replace {folder} from inside it: export from another folder")
    there = {entry.name for entry in folder.iterdir()}
    if there - OURS:
        raise HilpError(f"{folder} holds '{min(there - OURS)}', which is no part of an export: choose another folder")
    if there and not overwrite:
        raise HilpError(f"{folder} holds an export already: choose another folder, or pass --overwrite")
