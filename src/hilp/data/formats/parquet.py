"""Parquet logs: one file, or a folder of files, with a row a step; read by the child process of `subprocess_reader`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hilp.data import subprocess_reader
from hilp.data.formats import arrays
from hilp.data.formats.arrays import Columns
from hilp.data.source import Source
from hilp.data.tables import Table

ENDINGS = (".parquet", ".pq")


def read(
    source: Path, *, columns: Columns | None = None, drop_short: bool = False, extras: Sequence[str] | None = None
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


def open_table(path: Path, ids: str) -> Table:
    """The columns of a file that are numbers, times or vectors; that of the episodes may hold names."""
    columns, others = subprocess_reader.open_columns(path, ids)
    return Table(str(path), "parquet", columns, others)
