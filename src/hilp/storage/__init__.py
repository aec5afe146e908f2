"""What lies on disk: written whole or not at all, equal content in equal bytes, by one process at a time.

| room | what |
|---|---|
| `arrays` | arrays and trees of them in safetensors files with a checksum |
| `atomic` | text, JSON, bytes and whole folders that take their name in one step; leftovers of the dead |
| `lines` | files of JSON lines that grow |
| `locks` | one writer a folder |
"""

from hilp.storage.arrays import checksum, flatten, read_arrays, unflatten, write_arrays
from hilp.storage.atomic import (
    carry_over,
    clean_leftovers,
    clean_leftovers_in,
    fsync_folder,
    read_json,
    restore_aside,
    swap_folder,
    temporary_beside,
    with_a_name,
    write_bytes,
    write_json,
    write_text,
)
from hilp.storage.locks import LOCK, in_turn, locked

__all__ = [
    "LOCK",
    "carry_over",
    "checksum",
    "clean_leftovers",
    "clean_leftovers_in",
    "flatten",
    "fsync_folder",
    "in_turn",
    "locked",
    "read_arrays",
    "read_json",
    "restore_aside",
    "swap_folder",
    "temporary_beside",
    "unflatten",
    "with_a_name",
    "write_arrays",
    "write_bytes",
    "write_json",
    "write_text",
]
