"""Trees of arrays on disk: safetensors with a checksum, written whole or not at all. Loading runs no code."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hilp.errors import HilpError

Tree = TypeVar("Tree")
CHECKSUM = "sha256"


def checksum(arrays: Mapping[str, np.ndarray]) -> str:
    """Hash of names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(array.data)
    return digest.hexdigest()


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one step."""
    temporary = path.with_name(f".{path.name}.writing-{os.getpid()}")
    try:
        temporary.write_text(text)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise HilpError(f"cannot write {path}: {error.strerror or error}") from error


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any] | None = None) -> None:
    """Write arrays and a JSON-able note; the file is flushed to disk before it takes its name."""
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    notes = {"note": json.dumps(dict(metadata or {})), CHECKSUM: checksum(arrays)}
    temporary = path.with_name(f".{path.name}.writing-{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(save(arrays, notes))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise HilpError(f"cannot write {path}: {error.strerror or error}") from error


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and note of a file; a truncated or changed file is an error."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise HilpError(f"{path} does not exist")
    try:
        with safe_open(path, framework="numpy") as file:
            notes = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise HilpError(f"{path} is truncated or not a safetensors file ({error}): restore it from a copy") from error
    if notes.get(CHECKSUM) != checksum(arrays):
        raise HilpError(
            f"{path} was changed after it was written (its checksum does not match): restore it from a copy"
        )
    try:
        note = json.loads(notes.get("note", "{}"))
    except ValueError as error:
        raise HilpError(f"{path} has a damaged header: restore it from a copy") from error
    return arrays, note


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """Leaves of a tree by their path, e.g. `.phi.hidden[0].weight`."""
    import jax

    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def unflatten(like: Tree, arrays: Mapping[str, np.ndarray], source: Path) -> Tree:
    """The tree shaped as `like` (arrays or shapes) with these leaves; any missing, extra or misshapen leaf is an error."""
    import jax
    import jax.numpy as jnp

    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    wanted = {jax.tree_util.keystr(path): leaf for path, leaf in paths}
    if wanted.keys() != arrays.keys():
        odd = sorted(wanted.keys() ^ arrays.keys())
        raise HilpError(f"{source} does not fit its config: array '{odd[0]}' is missing or unexpected")
    for name, leaf in wanted.items():
        if leaf.shape != arrays[name].shape or leaf.dtype != arrays[name].dtype:
            raise HilpError(
                f"{source} does not fit its config: array '{name}' is {arrays[name].shape}, not {leaf.shape}"
            )
    return jax.tree_util.tree_unflatten(structure, [jnp.asarray(arrays[name]) for name in wanted])
