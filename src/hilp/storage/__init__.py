"""What lies on disk: written whole or not at all, equal content in equal bytes, by one process at a time.

| module | what |
|---|---|
| `arrays` | arrays and trees of them in safetensors files with a checksum |
| `atomic` | text, JSON, bytes and whole folders that take their name in one step; leftovers of dead processes |
| `lines` | files of JSON lines that grow, and one writer for each folder |
"""

from hilp.storage.arrays import checksum, flatten, read_arrays, unflatten, write_arrays
from hilp.storage.atomic import (
    carry_over,
    clean_leftovers,
    clean_leftovers_in,
    new_folder,
    read_json,
    restore_aside,
    swap_folder,
    temporary_beside,
    told,
    with_a_name,
    write_bytes,
    write_json,
    write_text,
)
from hilp.storage.lines import LOCK, in_turn, locked
