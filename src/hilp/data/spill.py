"""Spill: rows of numbers that are read once, kept in memory while they are few and in a file without a name else."""

from __future__ import annotations

import tempfile
from typing import IO

import numpy as np

from hilp.errors import HilpError

IN_MEMORY = 64 << 20  # bytes


class Spill:
    """An array of float64 rows that grows."""

    def __init__(self, width: int):
        self._width = width
        self._blocks: list[np.ndarray] = []
        self._file: IO[bytes] | None = None
        self._rows = 0

    def append(self, rows: np.ndarray) -> None:
        rows = np.ascontiguousarray(rows, np.float64)
        self._rows += len(rows)
        self._blocks.append(rows)
        if self._file is None and self._rows * self._width * 8 <= IN_MEMORY:
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 (kept open as long as the rows are)
            for block in self._blocks:
                self._file.write(block.data)
        except OSError as error:
            raise HilpError(
                f"no room in {tempfile.gettempdir()} for the numbers of a large file: {error.strerror or error}"
            ) from error
        self._blocks = []

    def rows(self) -> np.ndarray:
        """All of them, [rows, width]."""
        if self._file is None:
            return np.concatenate([np.zeros((0, self._width)), *self._blocks])
        self._file.flush()
        return np.memmap(self._file, np.float64, "r", shape=(self._rows, self._width))
