"""What lies on disk: written whole or not at all, equal content in equal bytes, by one process at a time.

| module | what |
|---|---|
| `arrays` | arrays and trees of them in safetensors files with a checksum |
| `atomic` | text, JSON, bytes and whole folders that take their name in one step; leftovers of dead processes |
| `lines` | files of JSON lines that grow |
| `locks` | one writer for each folder |
"""

from hilp.storage.arrays import checksum as checksum
from hilp.storage.arrays import flatten as flatten
from hilp.storage.arrays import read_arrays as read_arrays
from hilp.storage.arrays import unflatten as unflatten
from hilp.storage.arrays import write_arrays as write_arrays
from hilp.storage.atomic import carry_over as carry_over
from hilp.storage.atomic import clean_leftovers as clean_leftovers
from hilp.storage.atomic import clean_leftovers_in as clean_leftovers_in
from hilp.storage.atomic import fsync_folder as fsync_folder
from hilp.storage.atomic import new_folder as new_folder
from hilp.storage.atomic import read_json as read_json
from hilp.storage.atomic import restore_aside as restore_aside
from hilp.storage.atomic import swap_folder as swap_folder
from hilp.storage.atomic import temporary_beside as temporary_beside
from hilp.storage.atomic import with_a_name as with_a_name
from hilp.storage.atomic import write_bytes as write_bytes
from hilp.storage.atomic import write_json as write_json
from hilp.storage.atomic import write_text as write_text
from hilp.storage.locks import LOCK as LOCK
from hilp.storage.locks import in_turn as in_turn
from hilp.storage.locks import locked as locked
