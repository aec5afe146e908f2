"""Trees of arrays on disk: safetensors with a checksum, written whole or not at all. Loading runs no code."""

from __future__ import annotations

import contextlib
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
        array = _contiguous(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(array.data)
    return digest.hexdigest()


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one step."""
    _replace(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any] | None = None) -> None:
    """Write arrays and a JSON-able note; the checksum covers both."""
    from safetensors.numpy import save

    arrays = {name: _contiguous(array) for name, array in arrays.items()}
    note = json.dumps(dict(metadata or {}))
    _replace(path, save(arrays, {"note": note, CHECKSUM: _seal(arrays, note)}))


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
    text = notes.get("note", "{}")
    if notes.get(CHECKSUM) != _seal(arrays, text):
        raise HilpError(
            f"{path} was changed after it was written (its checksum does not match): restore it from a copy"
        )
    try:
        note = json.loads(text)
    except ValueError as error:
        raise HilpError(f"{path} has a damaged header: restore it from a copy") from error
    return arrays, note if isinstance(note, dict) else {}


def _seal(arrays: Mapping[str, np.ndarray], note: str) -> str:
    return hashlib.sha256(f"{checksum(arrays)} {note}".encode()).hexdigest()


def _contiguous(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, order="C")  # unlike ascontiguousarray it leaves a scalar a scalar


def _replace(path: Path, content: bytes) -> None:
    """Give a file this content in one step; it is flushed to disk before it takes its name."""
    temporary = path.parent / f".{path.name}.writing-{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise HilpError(f"cannot write {path}: {error.strerror or error}") from error


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """Leaves of a tree by their path, e.g. `.phi.hidden[0].weight`."""
    import jax

    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def unflatten(like: Tree, arrays: Mapping[str, np.ndarray], source: Path) -> Tree:
    """The tree shaped as `like` (arrays or shapes) with these leaves; a missing, extra or misshapen one is an error."""
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
