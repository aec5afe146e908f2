"""Messages of openpi's protocol: msgpack, with arrays as maps of their bytes, type and shape. No pickle.

An array is `{b"__ndarray__": true, b"data", b"dtype", b"shape"}`, a number of numpy's `{b"__npgeneric__": true,
b"data", b"dtype"}`. Arrays that are read share the memory of their message, so they cannot be written to.
"""

import math
from typing import Any

import numpy as np

from hilp.errors import HilpError, reason

MOST_CONTAINERS = 50_000  # lists and maps of a message: a byte each on the wire, a hundred in memory
MOST_NUMBERS = 1_000_000  # in one list: arrays travel as bytes
MOST_AXES = 32  # of an array; their product takes long where there are many
LONGEST_TYPE = 40  # characters that name the type of an array
KINDS = "biufSU"  # of arrays; objects, structures, dates and complex numbers are refused


def packed(message: Any) -> bytes:
    """A message as bytes."""
    import msgpack

    return bytes(msgpack.packb(message, default=_described))


def unpacked(content: bytes) -> Any:
    """What bytes say; a HilpError where they are no message, or one that asks for more memory than it is long."""
    import msgpack

    left = MOST_CONTAINERS

    def counted(container: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise HilpError(f"a message holds at most {MOST_CONTAINERS:,} lists and maps: send arrays of numpy")
        return _array(container) if isinstance(container, dict) else container

    try:
        return msgpack.unpackb(
            content, object_hook=counted, list_hook=counted, max_array_len=MOST_NUMBERS, max_map_len=MOST_CONTAINERS
        )
    except HilpError:
        raise
    except Exception as error:  # msgpack has its own, and those of what it makes
        raise HilpError(f"a message is whole msgpack, and this one is not: {reason(error)}") from error


def _described(value: Any) -> Any:
    if not isinstance(value, np.ndarray | np.generic):
        raise HilpError(f"a message holds arrays, numbers and texts, not a {type(value).__name__}")
    _require_kind(value.dtype)
    kind = {b"dtype": value.dtype.str}
    if isinstance(value, np.ndarray):
        return {b"__ndarray__": True, b"data": value.tobytes(), **kind, b"shape": value.shape}
    return {b"__npgeneric__": True, b"data": value.item(), **kind}


def _array(found: dict[Any, Any]) -> Any:
    """The array or number of numpy's that a map describes; another map as it is."""
    if b"__ndarray__" in found:
        dtype, shape, data = _dtype(found), found.get(b"shape"), found.get(b"data")
        if (
            not isinstance(shape, list | tuple)
            or len(shape) > MOST_AXES
            or any(type(n) is not int or n < 0 for n in shape)
        ):
            raise HilpError(f"the shape of an array is a list of sizes, not {shape!r:.60}")
        if not isinstance(data, bytes) or math.prod(shape) * dtype.itemsize != len(data):
            raise HilpError(f"an array of {dtype} and shape {tuple(shape)!r:.60} has other bytes than it should")
        return np.frombuffer(data, dtype).reshape(shape)
    if b"__npgeneric__" in found:
        return _dtype(found).type(found.get(b"data"))
    return found


def _dtype(found: dict[Any, Any]) -> np.dtype[Any]:
    name = found.get(b"dtype")
    if not isinstance(name, str) or len(name) > LONGEST_TYPE:
        raise HilpError(f"the type of an array is a text such as '<f4', not {name!r:.60}")
    dtype = np.dtype(name)
    _require_kind(dtype)
    return dtype


def _require_kind(dtype: np.dtype[Any]) -> None:
    if dtype.kind not in KINDS:
        raise HilpError(f"an array of {dtype} cannot be sent: send numbers")
