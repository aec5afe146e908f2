"""Parquet files with pyarrow, on the side of the child process (`subprocess_reader`): damaged ones can end the process.

A file is decoded batch by batch going forward, all columns in use at once.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

BATCH = 1 << 14  # rows that are decoded at a time


class Column(NamedTuple):
    """What a column holds in a row, and how it is decoded."""

    shape: tuple[int, ...]
    dtype: np.dtype
    decode: Callable[[Any], np.ndarray]


class Parquet:
    """One file. Whatever is wrong with it is an exception of any kind."""

    def __init__(self, path: str, ids: str):
        """ids: the column of the episodes, which may hold names."""
        import pyarrow.parquet

        self._open = lambda: pyarrow.parquet.ParquetFile(path)
        file = self._open()
        self.rows, self._schema = int(file.metadata.num_rows), file.schema_arrow
        self._nulls = _columns_with_nulls(file.metadata)
        names = list(self._schema.names)
        if len(set(names)) < len(names):
            raise ValueError("two columns have one name")
        self.columns = {n: column for n in names if (column := self._column(n, n == ids)) is not None}
        self.others = [name for name in names if name not in self.columns]
        self._wanted: dict[str, Callable[[Any], np.ndarray]] = {}
        self._batches: list[tuple[int, dict[str, np.ndarray]]] = []
        self._ahead: Iterator[Any] | None = None
        self._at = 0

    def _column(self, name: str, words: bool) -> Column | None:
        """A column; None where it holds neither numbers nor times, nor names where those are of use."""
        import pyarrow.types as types

        kind = self._schema.field(name).type

        def fits(*names: str) -> bool:
            return any(getattr(types, f"is_{name}")(kind) for name in names)

        if fits("floating", "decimal", "integer", "boolean"):
            whole = fits("integer", "boolean") and name not in self._nulls
            number = np.dtype(np.int64 if whole else np.float32 if fits("float16", "float32") else np.float64)
            return Column((self.rows,), number, lambda array: _numbers(array, number))
        if fits("timestamp", "duration", "date"):
            return Column((self.rows,), np.dtype(np.float64), _seconds)
        if words and fits("string", "large_string", "dictionary"):
            found = self._all(name, lambda array: _words(array, name))
            return Column((self.rows,), found.dtype, lambda array: _words(array, name).astype(found.dtype))
        lists = fits("list", "large_list", "fixed_size_list")
        if lists and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)):
            exact = np.dtype(np.float64 if types.is_float64(kind.value_type) else np.float32)
            width = self._width(name)
            return Column((self.rows, width), exact, lambda array: _vectors(array, width, exact, name))
        return None

    def _width(self, name: str) -> int:
        """How many numbers the first row of a column of lists has."""
        first = next(self._open().iter_batches(batch_size=1, columns=[name], use_threads=False), None)
        return 0 if first is None or first.column(0).null_count else len(first.column(0)[0])

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Some rows of a column; those of the other columns in use are decoded with them."""
        decode = self.columns[name].decode
        if stop - start > 4 * BATCH:  # a whole column, which is read once
            return self._all(name, decode)[start:stop]
        if name not in self._wanted:
            self._wanted[name] = decode
            self._ahead = None
        if self._ahead is None or (self._batches and start < self._batches[0][0]):
            self._batches, self._at, self._ahead = [], 0, self._decoded()
        while self._at < stop:
            self._batches = [(first, rows) for first, rows in self._batches if first + len(rows[name]) > start]
            batch = next(self._ahead, None)
            if batch is None:
                raise ValueError(f"it ends after {self._at} of {self.rows} rows")
            self._batches.append((self._at, batch))
            self._at += len(batch[name])
        parts = [rows[name][max(start - first, 0) : max(stop - first, 0)] for first, rows in self._batches]
        return np.concatenate(parts)

    def close(self) -> None:
        self._ahead = None

    def _decoded(self) -> Iterator[dict[str, np.ndarray]]:
        wanted = dict(self._wanted)
        for batch in self._open().iter_batches(batch_size=BATCH, columns=list(wanted), use_threads=False):
            yield {name: decode(batch.column(name)) for name, decode in wanted.items()}

    def _all(self, name: str, decode: Callable[[Any], np.ndarray]) -> np.ndarray:
        table = self._open().read(columns=[name], use_threads=False)
        parts = [decode(chunk) for chunk in table.column(name).chunks]
        return np.concatenate(parts) if parts else np.zeros(0)


def _columns_with_nulls(metadata: Any) -> set[str]:
    """Columns in which something is missing, or may be."""
    found = set()
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            statistics = column.statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                found.add(column.path_in_schema)
    return found


def _numbers(array: Any, dtype: np.dtype) -> np.ndarray:
    import pyarrow

    if pyarrow.types.is_boolean(array.type):
        array = array.cast(pyarrow.int8())
    elif pyarrow.types.is_decimal(array.type):
        array = array.cast(pyarrow.float64())
    return np.asarray(array.to_numpy(zero_copy_only=False)).astype(dtype, copy=False)


def _seconds(array: Any) -> np.ndarray:
    import pyarrow

    if pyarrow.types.is_date(array.type):
        array = array.cast(pyarrow.timestamp("ms"))
    unit = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[array.type.unit]
    return _numbers(array.cast(pyarrow.int64()), np.dtype(np.float64)) / unit


def _words(array: Any, name: str) -> np.ndarray:
    if array.null_count:
        raise ValueError(f"'{name}' does not say of every row which episode it is of")
    return np.array([str(word) for word in array.to_pylist()] or [""])[: len(array)]


def _vectors(array: Any, width: int, dtype: np.dtype, name: str) -> np.ndarray:
    values = array.flatten()
    if array.null_count or len(values) != len(array) * width:
        raise ValueError(f"the rows of '{name}' are not all of {width} numbers: give vectors of one length")
    return _numbers(values, dtype).reshape(-1, width)
