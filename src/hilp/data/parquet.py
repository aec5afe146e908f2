"""Parquet files, as the child process of `subprocess_reader` reads them: numbers, times, vectors, names and pictures.

Whatever is wrong with a file is an exception of any kind here, and one line there.
"""

import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from hilp.data.columns import Computed

BATCH = 1 << 14  # rows that are decoded at a time
PICTURES_AT_ONCE = 64 << 20  # bytes of those that are
Decode = Callable[[Any], np.ndarray]


class Parquet:
    """One Parquet file. Whatever is wrong with it is an exception of any kind."""

    def __init__(self, path: str, ids: str):
        """ids: the column of the episodes, which may hold names."""
        import pyarrow.parquet

        self._file = file = pyarrow.parquet.ParquetFile(path)  # opened once: that takes long with thousands of columns
        self.rows, self._schema = int(file.metadata.num_rows), file.schema_arrow
        self._nulls = _columns_with_nulls(file.metadata)
        names = list(self._schema.names)
        if len(set(names)) < len(names):
            raise ValueError("two columns have one name")
        self.columns = {n: column for n in names if (column := self._column(n, n == ids)) is not None}
        self.others = [name for name in names if name not in self.columns]

    def _column(self, name: str, words: bool) -> Computed | None:
        """A column; None where it holds neither numbers nor times, nor names where those are of use."""
        kind = self._schema.field(name).type
        fits = partial(_is_any, kind)
        if fits("floating", "decimal", "integer", "boolean"):
            # Ids are compared, so they stay whole even where they might be missing, which is then an error.
            whole = fits("integer", "boolean") and (words or name not in self._nulls)
            exact = np.uint64 if fits("uint64") else np.int64
            number = np.dtype(exact if whole else np.float32 if fits("float16", "float32") else np.float64)
            return self._decoded(name, number, lambda array: _numbers(array, number, name))
        if fits("timestamp", "duration", "date"):
            return self._decoded(name, np.dtype(np.float64), lambda array: _seconds(array, name))
        if words and fits("string", "large_string", "dictionary"):
            found = self._all(name, lambda array: _words(array, name))
            return self._decoded(name, found.dtype, lambda array: _words(array, name).astype(found.dtype))
        if fits("struct") and kind.get_field_index("bytes") >= 0:  # a file in each row, as Hugging Face has pictures
            first = next(self._batches(name, 1), None)
            shape = None if first is None else _picture_shape(first.column(0))
            if shape is None:
                return None
            at_once = int(np.clip(PICTURES_AT_ONCE // np.prod(shape), 1, BATCH))
            decode = partial(_pictures, shape=shape, name=name)
            return self._decoded(name, np.dtype(np.uint8), decode, *shape, at_once=at_once)
        lists = fits("list", "large_list", "fixed_size_list")
        if lists and _is_any(kind.value_type, "floating", "integer"):
            item = np.dtype(np.float64 if _is_any(kind.value_type, "float64") else np.float32)
            row = next(self._batches(name, 1), None)
            width = 0 if row is None or row.column(0).null_count else len(row.column(0)[0])
            return self._decoded(name, item, lambda array: _vectors(array, width, item, name), width)
        return None

    def _decoded(self, name: str, dtype: np.dtype, decode: Decode, *width: int, at_once: int = BATCH) -> Computed:
        """A column that is decoded batch by batch, going forward."""
        held: tuple[int, np.ndarray, Iterator[Any]] | None = None  # the first row held, those held, those ahead

        def read(start: int, stop: int) -> np.ndarray:
            nonlocal held
            if at_once == BATCH and stop - start > 4 * BATCH:  # a whole column, which is read once
                return self._all(name, decode)[start:stop]
            if held is None or start < held[0]:
                held = 0, np.zeros((0, *width), dtype), self._batches(name, at_once)
            first, rows, ahead = held
            while first + len(rows) < stop:
                batch = next(ahead, None)
                if batch is None:
                    raise ValueError(f"it ends after {first + len(rows)} of {self.rows} rows")
                past = min(max(start - first, 0), len(rows))
                first, rows = first + past, np.concatenate([rows[past:], decode(batch.column(0))])
            held = first, rows, ahead
            return rows[start - first : stop - first]

        return Computed((self.rows, *width), dtype, read)

    def _batches(self, name: str, size: int) -> Iterator[Any]:
        return self._file.iter_batches(batch_size=size, columns=[name], use_threads=False)

    def _all(self, name: str, decode: Decode) -> np.ndarray:
        table = self._file.read(columns=[name], use_threads=False)
        parts = [decode(chunk) for chunk in table.column(name).chunks]
        return np.concatenate(parts) if parts else np.zeros(0)


def _is_any(kind: Any, *names: str) -> bool:
    """Whether pyarrow calls a type by one of these names."""
    import pyarrow

    return any(getattr(pyarrow.types, f"is_{name}")(kind) for name in names)


def _columns_with_nulls(metadata: Any) -> set[str]:
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(number) for group in groups for number in range(metadata.num_columns)]
    known = [(column.path_in_schema, column.statistics) for column in columns]
    return {name for name, about in known if about is None or not about.has_null_count or about.null_count}


def _numbers(array: Any, dtype: np.dtype, name: str) -> np.ndarray:
    import pyarrow

    if dtype.kind in "iu" and array.null_count:
        raise ValueError(f"'{name}' has no number in {array.null_count} rows")
    if _is_any(array.type, "boolean"):
        array = array.cast(pyarrow.int8())
    elif _is_any(array.type, "decimal"):
        array = array.cast(pyarrow.float64())
    return np.asarray(array.to_numpy(zero_copy_only=False)).astype(dtype, copy=False)


def _seconds(array: Any, name: str) -> np.ndarray:
    import pyarrow

    if _is_any(array.type, "date"):
        array = array.cast(pyarrow.timestamp("ms"))
    unit = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[array.type.unit]
    return _numbers(array.cast(pyarrow.int64()), np.dtype(np.float64), name) / unit


def _words(array: Any, name: str) -> np.ndarray:
    if array.null_count:
        raise ValueError(f"'{name}' does not say of every row which episode it is of")
    words = [str(word) for word in array.to_pylist()]
    if any(word.endswith("\0") for word in words):  # which numpy cuts off: two episodes would become one
        raise ValueError(f"names in '{name}' end in a null character: rename these episodes")
    return np.array(words or [""])[: len(array)]


def _vectors(array: Any, width: int, dtype: np.dtype, name: str) -> np.ndarray:
    import pyarrow.compute

    # Each row counts, not their sum: rows of 2, 1 and 3 numbers would move the numbers of one into the next.
    if array.null_count or any(size != width for size in pyarrow.compute.list_value_length(array).unique().to_pylist()):
        raise ValueError(f"the rows of '{name}' are not all of {width} numbers: give vectors of one length")
    return _numbers(array.flatten(), dtype, name).reshape(-1, width)


def _picture(row: Any) -> np.ndarray | None:
    """The picture in a row, [height, width, channels] of bytes; None of what is none, and of deeper colours."""
    from PIL import Image

    content = None if row is None else row.get("bytes")
    if content is None:  # a path to a file elsewhere
        return None
    with Image.open(io.BytesIO(content)) as image:
        found = np.asarray(image.convert("RGB") if image.mode == "P" else image)
    if found.dtype != np.uint8:
        return None
    return found if found.ndim == 3 else found[..., None]


def _picture_shape(array: Any) -> tuple[int, ...] | None:
    try:
        first = _picture(array[0].as_py())
    except (OSError, ValueError, SyntaxError):  # another kind of file
        return None
    return None if first is None else first.shape


def _pictures(array: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    rows = [_picture(row) for row in array.to_pylist()]
    for row in rows:
        if row is None or row.shape != shape:
            have = "no picture" if row is None else f"one of {row.shape}"
            raise ValueError(f"a row of '{name}' has {have}, where the first has one of {shape}")
    return np.stack([row for row in rows if row is not None])
