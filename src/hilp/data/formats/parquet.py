"""Parquet logs: one file, or a folder of files, with a row a step; read batch by batch with pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hilp.data.formats import arrays
from hilp.data.formats.arrays import Columns
from hilp.data.mistakes import reason
from hilp.data.source import Source
from hilp.data.tables import Table
from hilp.errors import HilpError

ENDINGS = (".parquet", ".pq")
MAGIC = b"PAR1"
BATCH = 1 << 14  # rows that are decoded at a time


def read(
    source: Path,
    *,
    columns: Columns | None = None,
    flatten: bool = False,
    drop_short: bool = False,
    extras: Sequence[str] | None = None,
) -> Source:
    """A Parquet file, or a folder of such files with the same columns, read in the order of their names.

    `columns` says which of them are what, as for CSV; without `episode_ids` (or `terminals`) a file is one episode. A
    column of lists of equal length is a vector a row. Missing values are NaN, times are seconds. Other columns of
    numbers become extras.
    """
    files = arrays.log_files(source, ENDINGS)
    ids = arrays.named_for(columns, "episode_ids")
    tables = [open_table(file, ids) for file in files]
    return arrays.of_tables(tables, source, files, columns, drop_short, extras)


def is_parquet(path: Path) -> bool:
    """By the first bytes of a file."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def open_table(path: Path, ids: str) -> Table:
    """The columns of a file that are numbers, times or vectors; that of the episodes may hold names."""
    opened = _File(path)
    columns = {name: column for name in opened.names if (column := opened.column(name, name == ids)) is not None}
    others = [name for name in opened.names if name not in columns]
    return Table(str(path), "parquet", columns, others)


class _File:
    """One file, decoded batch by batch going forward; all columns that are asked for at once."""

    def __init__(self, path: Path):
        self.path = path
        try:
            import pyarrow.parquet
        except ImportError as error:
            raise HilpError(f"reading {path} needs pyarrow: pip install 'hilp[formats]'") from error
        self._open = lambda: pyarrow.parquet.ParquetFile(path)
        with self._reading():
            file = self._open()
            self.rows, self._schema = int(file.metadata.num_rows), file.schema_arrow
            self._nulls = _columns_with_nulls(file.metadata)
        self.names = list(dict.fromkeys(self._schema.names))
        if len(self.names) < len(self._schema.names):
            raise HilpError(f"{path}: two columns have one name: rename one of them")
        self._wanted: dict[str, Callable[[Any], np.ndarray]] = {}
        self._batches: list[tuple[int, dict[str, np.ndarray]]] = []
        self._ahead: Iterator[Any] | None = None
        self._at = 0

    def column(self, name: str, words: bool) -> _Column | None:
        """A column; None where it holds neither numbers nor times, nor names where those are of use."""
        import pyarrow.types as types

        kind = self._schema.field(name).type
        exact = np.dtype(np.float64 if name in self._nulls else np.int64)
        if words and (types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind)):
            values = self._all(name, lambda array: _words(array, name, self.path))
            return _Column(self, name, values.shape, values.dtype, lambda array: _words(array, name, self.path))
        if types.is_floating(kind):
            dtype = np.dtype(np.float64 if types.is_float64(kind) else np.float32)
            return _Column(self, name, (self.rows,), dtype, lambda array: _numbers(array, dtype))
        if types.is_integer(kind) or types.is_boolean(kind):
            return _Column(self, name, (self.rows,), exact, lambda array: _numbers(array, exact))
        if types.is_decimal(kind):
            return _Column(self, name, (self.rows,), np.dtype(np.float64), lambda a: _numbers(a, np.dtype(np.float64)))
        if types.is_timestamp(kind) or types.is_duration(kind) or types.is_date(kind):
            return _Column(self, name, (self.rows,), np.dtype(np.float64), _seconds)
        lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        if lists and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)):
            width = self._width(name)
            dtype = np.dtype(np.float64 if types.is_float64(kind.value_type) else np.float32)
            shape = (self.rows, width)
            return _Column(self, name, shape, dtype, lambda array: _vectors(array, width, dtype, name, self.path))
        return None

    def _width(self, name: str) -> int:
        with self._reading():
            first = next(self._open().iter_batches(batch_size=1, columns=[name]), None)
            return 0 if first is None or first.column(0).null_count else len(first.column(0)[0])

    def get(self, column: _Column, start: int, stop: int) -> np.ndarray:
        """Some rows of a column; those of the other columns in use are decoded with them."""
        if column.name not in self._wanted:
            self._wanted[column.name] = column.decode
            self._batches, self._ahead = [], None
        if stop - start > 4 * BATCH:  # a whole column, which is asked for once
            return self._all(column.name, column.decode)[start:stop]
        if self._ahead is None or (self._batches and start < self._batches[0][0]):
            self._batches, self._at = [], 0
            self._ahead = self._decoded()
        while self._at < stop:
            self._batches = [batch for batch in self._batches if batch[0] + BATCH > start]
            with self._reading():
                batch = next(self._ahead, None)
            if batch is None:
                raise HilpError(f"{self.path} is damaged: it ends after {self._at} of {self.rows} rows")
            self._batches.append((self._at, batch))
            self._at += len(next(iter(batch.values())))
        parts = [rows[column.name][max(start - first, 0) : stop - first] for first, rows in self._batches]
        return np.concatenate([part for part in parts if len(part)] or [parts[0]])

    def _decoded(self) -> Iterator[dict[str, np.ndarray]]:
        wanted = dict(self._wanted)
        for batch in self._open().iter_batches(batch_size=BATCH, columns=list(wanted)):
            yield {name: decode(batch.column(name)) for name, decode in wanted.items()}

    def _all(self, name: str, decode: Callable[[Any], np.ndarray]) -> np.ndarray:
        with self._reading():
            table = self._open().read(columns=[name])
            parts = [decode(chunk) for chunk in table.column(name).chunks]
        if not parts:
            return np.zeros(0)
        return np.concatenate(parts)

    def _reading(self) -> _Reading:
        return _Reading(self.path)


class _Reading:
    """Whatever a library says of a damaged file becomes one line."""

    def __init__(self, path: Path):
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, HilpError):
            raise HilpError(f"{self._path} cannot be read: {reason(error)}") from error


class _Column:
    """One column, whose rows are read as they are needed."""

    def __init__(
        self, file: _File, name: str, shape: tuple[int, ...], dtype: np.dtype, decode: Callable[[Any], np.ndarray]
    ):
        self._file, self.name, self.shape, self.dtype, self.decode = file, name, shape, dtype, decode

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        if stop <= start:
            return np.empty((0, *self.shape[1:]), self.dtype)
        return self._file.get(self, start, stop)


def _columns_with_nulls(metadata: Any) -> set[str]:
    """Columns in which something is missing, or may be."""
    found = set()
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            told = column.statistics
            if told is None or not told.has_null_count or told.null_count:
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


def _words(array: Any, name: str, path: Path) -> np.ndarray:
    if array.null_count:
        raise HilpError(f"{path}: '{name}' does not say of every row which episode it is of")
    return np.array([str(word) for word in array.to_pylist()] or [""])[: len(array)]


def _vectors(array: Any, width: int, dtype: np.dtype, name: str, path: Path) -> np.ndarray:
    values = array.flatten()
    if array.null_count or len(values) != len(array) * width:
        raise HilpError(f"{path}: the rows of '{name}' are not all of {width} numbers: give vectors of one length")
    return _numbers(values, dtype).reshape(-1, width)
