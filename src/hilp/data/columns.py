"""Columns on disk, read a slice of rows at a time: .npy files and the members of an .npz, and .npy files that grow.

Anything with `shape`, `dtype` and row slices is a column; so an array is one.
"""

import hashlib
import math
import os
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Protocol

import numpy as np

from hilp.errors import HilpError, require_regular
from hilp.storage import told

BLOCK_BYTES = 16 << 20  # of a read: large enough for the disk, small enough that no format needs memory
IN_MEMORY = 64 << 20  # bytes of numbers that are gathered before they go to a file
NUMBERS = "fiub"  # dtype kinds that are numbers
DEFLATE_LIMIT = 1100  # deflate cannot shrink further than 1:1032, so a file that claims to is damaged


class Column(Protocol):
    """Rows of one kind, in memory or not."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    def __getitem__(self, rows: slice, /) -> np.ndarray: ...


@dataclass(frozen=True)
class Computed:
    """A column that is made when it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[int, int], np.ndarray]  # rows from, to

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.read(*rows.indices(self.shape[0])[:2])


def fill(array: np.ndarray, stream: IO[bytes]) -> None:
    """Read the bytes of a contiguous array."""
    view = array.reshape(-1).view(np.uint8).data
    done = 0
    while done < len(view):
        count = stream.readinto(view[done : done + BLOCK_BYTES])  # type: ignore[attr-defined]
        if not count:
            raise EOFError("it ends too early")
        done += count


def row_bytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Bytes of one row of an array of this shape."""
    return int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize


def block_rows(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """How many rows of such an array are read at a time."""
    return max(1, BLOCK_BYTES // max(1, row_bytes(shape, dtype)))


class NpyStream:
    """The array in one .npy stream. Rows come in order; going back before the last slice read reopens the stream."""

    _stream: IO[bytes] | None = None

    def __init__(self, name: str, size: int, open_stream: Callable[[], IO[bytes]]):
        self.name, self._size, self._open = name, size, open_stream
        self._at = 0
        self._recent: tuple[int, np.ndarray] = (0, np.empty(0))

    @cached_property
    def _header(self) -> tuple[tuple[int, ...], bool, np.dtype, int]:
        """Shape, order, type and the length of the header itself; read when first asked for."""
        # A damaged header can fail anywhere in zipfile or in numpy's parser.
        with told(f"{self.name} is damaged", Exception), self._open() as stream:
            shape, fortran, dtype = _read_header(stream)
            begin = stream.tell()
        if dtype.hasobject:
            raise HilpError(f"{self.name} holds Python objects, which hilp never loads: store plain numbers")
        if min(shape, default=0) < 0 or begin + math.prod(shape) * dtype.itemsize != self._size:
            raise HilpError(f"{self.name} is damaged: {self._size} bytes do not hold an array {shape} of {dtype}")
        return shape, fortran, dtype, begin

    @property
    def shape(self) -> tuple[int, ...]:
        return self._header[0]

    @property
    def dtype(self) -> np.dtype:
        return self._header[2]

    @property
    def _rows(self) -> int:
        return self.shape[0] if self.shape else 1

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self._rows)
        if stop <= start:
            return np.empty((0, *self.shape[1:]), self.dtype)
        if self._header[1] and len(self.shape) > 1:
            # Columns lie one after another on disk, so any slice of rows needs all of it.
            if len(self._recent[1]) != self._rows:
                flat = self._read(0, self._rows).reshape(-1)
                self._recent = (0, flat.reshape(self.shape, order="F"))
            return self._recent[1][start:stop]
        first, recent = self._recent
        pieces = []
        if first <= start < first + len(recent):
            pieces.append(recent[start - first : stop - first])
            start += len(pieces[0])
        if start < stop:
            pieces.append(self._read(start, stop))
        block = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        self._recent = (stop - len(block), block)
        return block

    def _read(self, start: int, stop: int) -> np.ndarray:
        # zipfile and zlib raise half a dozen kinds of errors for a damaged member.
        with told(f"{self.name} is damaged", Exception, ": restore it from a copy"):
            if self._stream is None or start < self._at:
                self.close()
                self._stream = self._open()
                self._stream.read(self._header[3])
                self._at = 0
            skipped = (start - self._at) * row_bytes(self.shape, self.dtype)
            while skipped > 0:
                got = len(self._stream.read(min(skipped, BLOCK_BYTES)))
                if not got:
                    raise EOFError("it ends too early")
                skipped -= got
            block = np.empty((stop - start, *self.shape[1:]), self.dtype)
            fill(block, self._stream)
            self._at = stop
            # Reading to the end is what makes zipfile compare checksums.
            if stop == self._rows and self._stream.read(1):
                raise ValueError("it is longer than its header says")
        return block

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    __del__ = close


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(stream)
    if version not in readers:
        raise ValueError(f"version {version} of .npy is not for plain arrays")
    return readers[version](stream)


def open_npy(path: Path) -> NpyStream:
    """The array of an .npy file."""
    require_regular(path)
    with told(f"{path} is missing"):
        size = path.stat().st_size
    found = path.absolute()  # read as it is needed, wherever this process then is
    return NpyStream(str(path), size, lambda: open(found, "rb"))


def open_npz(path: Path) -> dict[str, NpyStream]:
    """The arrays of an .npz file by name; one that is not asked for may be damaged."""
    require_regular(path)
    with told(f"{path} cannot be read as .npz", Exception):  # a damaged directory can fail anywhere in zipfile
        archive = zipfile.ZipFile(path)
        expected = _zip_entries(path)
    if len(archive.infolist()) != expected:
        raise HilpError(f"{path} is damaged: its directory lists {len(archive.infolist())} of {expected} arrays")
    columns: dict[str, NpyStream] = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        where = f"array '{name}' of {path}"
        if not member.filename.endswith(".npy"):
            raise HilpError(f"{path} is a zip file but no .npz: it holds '{member.filename}', which is not an array")
        if name in columns:
            raise HilpError(f"{path} is damaged: it holds '{name}' twice")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise HilpError(f"{where} is compressed as no .npz is: write it with np.savez_compressed")
        if member.file_size > DEFLATE_LIMIT * (member.compress_size + 64):
            raise HilpError(f"{where} is damaged: {member.compress_size} bytes cannot hold {member.file_size}")

        def open_member(member: zipfile.ZipInfo = member) -> IO[bytes]:
            return archive.open(member)

        columns[name] = NpyStream(where, member.file_size, open_member)
    return columns


def _zip_entries(path: Path) -> int:
    """How many members a zip file says it has; zipfile itself would not miss those a damaged directory hides."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 22 - (1 << 16)))  # the record at the end and the longest comment after it
        tail = file.read()
    at = tail.rindex(b"PK\x05\x06")
    (entries,) = struct.unpack_from("<H", tail, at + 10)
    return int(entries)


def begin_npy(path: Path, shape: tuple[int, ...], dtype: np.dtype, rows: int) -> None:
    """An .npy file to append rows to, byte for byte what `np.save` of the whole array would write.

    rows: how many of those that were appended before stay; a ValueError where there are not as many.
    """
    with open(path, "r+b" if rows else "wb") as file:
        if not rows:
            header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            return
        _read_header(file)
        end = file.tell() + rows * row_bytes(shape, dtype)
        if file.seek(0, os.SEEK_END) < end:
            raise ValueError(f"{path} is shorter than {rows} rows")
        file.truncate(end)


def flush(paths: Iterable[Path]) -> None:
    """Everything written so far survives a crash of the machine."""
    for path in paths:
        with open(path, "r+b") as file:
            os.fsync(file.fileno())


def sha256_of(path: Path, on_block: Callable[[int], None] | None = None) -> str:
    """Hash of a file, block by block; `on_block` gets the size of each block."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES // 4):
            digest.update(block)
            if on_block:
                on_block(len(block))
    return digest.hexdigest()


def gathered(chunks: Iterable[np.ndarray], width: int) -> np.ndarray:
    """The rows of all chunks, float64 [rows, width]: in memory while they are few, else in a file without a name."""
    file, size = tempfile.SpooledTemporaryFile(IN_MEMORY), 0  # noqa: SIM115 (open as long as the rows are)
    for chunk in chunks:
        with told(f"no space in {tempfile.gettempdir()} for the numbers of a large file"):
            size += file.write(np.ascontiguousarray(chunk, np.float64).data.cast("B"))
    file.seek(0)
    if size <= IN_MEMORY:
        return np.frombuffer(file.read()).reshape(-1, width)
    file.flush()
    return np.memmap(file, np.float64, "r").reshape(-1, width)
