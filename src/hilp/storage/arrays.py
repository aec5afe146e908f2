"""Trees of arrays on disk: safetensors with a checksum, equal arrays in equal bytes. Loading runs no code.

A safetensors file is the length of a header, the header (JSON) and the bytes. Both ways are written here, not left to
the library, whose metadata has another order in every process, so that equal arrays had unequal files.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hilp.errors import HilpError
from hilp.storage.atomic import told, write_bytes

Tree = TypeVar("Tree")
CHECKSUM = "sha256"
HEADER_MOST = 1 << 24  # bytes: more names than any network has
DTYPES = {  # safetensors' names of what numpy has
    "BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
    "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def checksum(arrays: Mapping[str, np.ndarray]) -> str:
    """Hash of names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = _contiguous(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(array.data)
    return digest.hexdigest()


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any] | None = None) -> None:
    """Write arrays and a JSON-able note; the checksum covers both."""
    arrays = {name: _contiguous(array) for name, array in arrays.items()}
    for name, array in arrays.items():
        if array.dtype.str not in NAMES:
            raise HilpError(f"cannot write {path}: array '{name}' is {array.dtype}, which hilp does not store")
    note = json.dumps(dict(metadata or {}))
    header: dict[str, Any] = {"__metadata__": {"note": note, CHECKSUM: _seal(arrays, note)}}
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))  # so that each is aligned
    end = 0
    for name in order:
        array = arrays[name]
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": NAMES[array.dtype.str], "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    text += b" " * (-len(text) % 8)
    write_bytes(path, [len(text).to_bytes(8, "little"), text, *(arrays[name].data for name in order)])


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and note of a file; a truncated or changed file is an error."""
    if not path.is_file():
        raise HilpError(f"{path} does not exist")
    try:
        arrays, notes = _read(path)
    except (OSError, ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        why = "its header is nested too deep" if isinstance(error, RecursionError) else error
        raise HilpError(f"{path} is truncated or not a safetensors file ({why}): restore it from a copy") from error
    notes = notes if isinstance(notes, dict) else {}
    text = notes.get("note", "{}")
    if not isinstance(text, str) or notes.get(CHECKSUM) != _seal(arrays, text):
        raise HilpError(f"{path} was changed after it was written (the checksum is another): restore it from a copy")
    with told(f"{path} has a damaged header", (ValueError, RecursionError), ": restore it from a copy"):
        note = json.loads(text)
    return arrays, note if isinstance(note, dict) else {}


def _read(path: Path) -> tuple[dict[str, np.ndarray], Any]:
    """Arrays and notes; the header must fit the size of the file before any memory is asked for."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise ValueError(f"it has {size} bytes, fewer than its header says")
        if length > HEADER_MOST:
            raise ValueError(f"its header has {length} bytes, at most {HEADER_MOST} are read")
        header = json.loads(file.read(length))
        if not isinstance(header, dict):
            raise ValueError("its header is not an object")
        notes, end = header.pop("__metadata__", {}), 0
        for name, about in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            end = _checked_end(name, about, end)
        if 8 + length + end != size:
            raise ValueError(f"it has {size} bytes, its header says {8 + length + end}")
        content = np.fromfile(file, np.uint8)
    places = {name: content[slice(*about["data_offsets"])] for name, about in header.items()}
    arrays = {name: own.view(DTYPES[header[name]["dtype"]]) for name, own in places.items()}
    return {name: array.reshape(header[name]["shape"]) for name, array in arrays.items()}, notes


def _checked_end(name: str, about: Mapping[str, Any], start: int) -> int:
    """Where an array that starts here ends; raises where its header contradicts itself."""
    dtype, shape, (begin, stop) = about["dtype"], about["shape"], about["data_offsets"]
    if dtype not in DTYPES:
        raise ValueError(f"array '{name}' is of type {dtype!r}, which hilp does not read")
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, stop)):
        raise ValueError(f"array '{name}' has a size that is not a whole number")
    if begin != start or stop - begin != math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize:
        raise ValueError(f"the place of array '{name}' does not fit its shape")
    return int(stop)


def _seal(arrays: Mapping[str, np.ndarray], note: str) -> str:
    return hashlib.sha256(f"{checksum(arrays)} {note}".encode()).hexdigest()


def _contiguous(array: np.ndarray) -> np.ndarray:
    array = np.asarray(array, order="C")  # unlike ascontiguousarray it leaves a scalar a scalar
    return array.astype(array.dtype.newbyteorder("<")) if array.dtype.str[0] == ">" else array


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """Leaves of a tree by their path, e.g. `.phi.hidden[0].weight`."""
    import jax

    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def unflatten(like: Tree, arrays: Mapping[str, np.ndarray], source: Path) -> Tree:
    """The tree shaped as `like` (arrays or shapes) with these leaves; a missing, extra or misshapen one is an error."""
    import jax

    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    wanted = {jax.tree_util.keystr(path): leaf for path, leaf in paths}
    if wanted.keys() != arrays.keys():
        odd = sorted(wanted.keys() ^ arrays.keys())
        raise HilpError(f"{source} does not fit its config: array '{odd[0]}' is missing or unexpected")
    for key, leaf in wanted.items():
        if leaf.shape != arrays[key].shape or leaf.dtype != arrays[key].dtype:
            raise HilpError(f"{source} does not fit its config: array '{key}' is {arrays[key].shape}, not {leaf.shape}")
    return jax.tree_util.tree_unflatten(structure, jax.device_put([arrays[name] for name in wanted]))
