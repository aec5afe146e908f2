"""Parquet files with pyarrow, on the side of the child process (`subprocess_reader`): damaged ones can end the process.

Each column is decoded batch by batch, going forward.
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
        self._held: dict[str, tuple[int, np.ndarray, Iterator[Any]]] = {}  # the first row held, rows, those ahead

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
            first_row = next(self._batches(name, 1), None)
            width = 0 if first_row is None or first_row.column(0).null_count else len(first_row.column(0)[0])
            return Column((self.rows, width), exact, lambda array: _vectors(array, width, exact, name))
        return None

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Some rows of a column."""
        (_, *shape), dtype, decode = self.columns[name]
        if stop - start > 4 * BATCH:  # a whole column, which is read once
            return self._all(name, decode)[start:stop]
        if name not in self._held or start < self._held[name][0]:
            self._held[name] = 0, np.zeros((0, *shape), dtype), self._batches(name, BATCH)
        first, rows, ahead = self._held[name]
        while first + len(rows) < stop:
            batch = next(ahead, None)
            if batch is None:
                raise ValueError(f"it ends after {first + len(rows)} of {self.rows} rows")
            past = min(max(start - first, 0), len(rows))
            first, rows = first + past, np.concatenate([rows[past:], decode(batch.column(0))])
        self._held[name] = first, rows, ahead
        return rows[start - first : stop - first]

    def _batches(self, name: str, size: int) -> Iterator[Any]:
        return self._open().iter_batches(batch_size=size, columns=[name], use_threads=False)

    def _all(self, name: str, decode: Callable[[Any], np.ndarray]) -> np.ndarray:
        table = self._open().read(columns=[name], use_threads=False)
        parts = [decode(chunk) for chunk in table.column(name).chunks]
        return np.concatenate(parts) if parts else np.zeros(0)


def _columns_with_nulls(metadata: Any) -> set[str]:
    """Columns in which something is missing, or may be."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(number) for group in groups for number in range(metadata.num_columns)]
    known = [(column.path_in_schema, column.statistics) for column in columns]
    return {name for name, about in known if about is None or not about.has_null_count or about.null_count}


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
