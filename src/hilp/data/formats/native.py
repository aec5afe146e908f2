"""hilp's own folder, written by `Dataset.save` and `convert`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hilp import trees
from hilp.data import native
from hilp.data.columns import open_npy
from hilp.data.dataset import Dataset
from hilp.data.source import Block, Source, of_dataset, with_files


def read(source: Path, *, verify: bool = False) -> Source:
    """A folder with a dataset.json. `verify` compares every file with its hash."""
    source = source.absolute()  # files are opened as they are needed, wherever this process then is
    opened = Dataset.open(source, verify=verify)
    manifest = native.read_manifest(source)
    found = of_dataset(opened)
    # Plain reads instead of the memory map, whose pages would count as memory of this process.
    columns = {name: open_npy(source / native.file_name(name)) for name in found.columns}

    def rows(start: int, stop: int) -> Block:
        values = {name: column[start:stop] for name, column in columns.items()}
        extras = {name: values[f"extra.{name}"] for name in opened.extras}
        return Block(trees.unnamed(values, native.OBSERVATIONS), values["actions"], extras)

    found = replace(found, read=rows, damages=lambda: list(native.damages(source, manifest, hashes=True)))
    return with_files(found, [source / name for name in manifest["files"]])
