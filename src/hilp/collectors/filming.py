"""Data that policies see as pictures: states are collected first, in a folder beside, and then drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hilp import storage
from hilp.collectors.shards import IDENTITY
from hilp.data import native
from hilp.data.dataset import Dataset

Told = Callable[[int], None]


def film(
    out: Path,
    identity: dict[str, Any],
    states: Callable[[Path, Told | None], Dataset],
    draw: Callable[[Dataset, Told | None], Dataset],
    progress: Told | None,
    overwrite: bool,
) -> Dataset:
    """The film of some states. Those of an interrupted call, which identity tells from others, are only drawn.

    progress: told the transitions that are done; one is half done once it is collected.
    """
    native.require_free(out, overwrite)
    beside, steps = out.with_name(f"{out.name}-states"), int(identity["steps"])
    note = beside / IDENTITY
    if note.is_file() and storage.read_json(note) == identity:
        found = Dataset.open(beside)
    else:
        found = states(beside, progress and (lambda done: progress(done // 2)))
        storage.write_json(note, identity)
    seen = draw(found, progress and (lambda done: progress((steps + min(done, steps)) // 2)))
    return Dataset.open(seen.save(out, overwrite=overwrite))
