"""The native folder: dataset.json and one .npy file a column.

dataset.json names every file with its size and SHA-256, and carries a checksum of itself, so damage is always found:
sizes when the folder is opened, hashes with `verify=True`. Observations that are a named tree have a file a part.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from hilp import storage, trees
from hilp.data.columns import NUMBERS, fingerprint_of, open_npy, sha256_of
from hilp.data.transforms import Metadata
from hilp.errors import HilpError, path_of, reason

FORMAT = "hilp-dataset"
VERSION = 1
MANIFEST = "dataset.json"
CHECKSUM = "checksum"
OBSERVATIONS = "observations"
CONTENTS = {"name": str, "rows": int, "extras": list, "files": dict, "endings": dict, "notes": list}  # of dataset.json


def is_native(path: str | os.PathLike[str]) -> bool:
    return (Path(path) / MANIFEST).is_file()


def file_name(column: str) -> str:
    """The file of a column; names of extras may hold slashes and anything else."""
    return quote(column, safe=" ") + ".npy"


def columns_of(observations: trees.Tree, actions: Any, extras: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that has a value a row (arrays, or what is known of them), by the names of its columns."""
    named = {f"extra.{name}": extra for name, extra in extras.items()}
    return {**trees.named(observations, OBSERVATIONS), "actions": actions, **named}


def extras_of(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The extra columns among these, by their own names."""
    return {name.removeprefix("extra."): column for name, column in columns.items() if name.startswith("extra.")}


# ---- writing ---------------------------------------------------------------------------------------------------------


def write(
    target: Path, columns: Mapping[str, np.ndarray], lengths: np.ndarray, metadata: Metadata, overwrite: bool
) -> Path:
    """Write the columns of `columns_of` as a folder, which appears whole or not at all."""
    storage.clean_leftovers(path_of(target))
    require_free(target, overwrite)
    with storage.new_folder(target) as temporary:
        for name, column in {**columns, "lengths": lengths}.items():
            np.save(temporary / file_name(name), column, allow_pickle=False)
        seal(temporary, metadata, list(columns))
    return target


def seal(
    folder: Path, metadata: Metadata, columns: Sequence[str], on_block: Callable[[int], None] | None = None
) -> None:
    """Hash what lies in the folder (these columns, and lengths) and write dataset.json, which makes it a data set."""
    opened = {name: open_npy(folder / file_name(name)) for name in (*columns, "lengths")}
    observations = trees.unnamed(opened, OBSERVATIONS)
    parts = sorted(observations) if isinstance(observations, Mapping) else None
    extras = sorted(extras_of(opened))
    names = [*trees.named(observations, OBSERVATIONS), "actions", "lengths", *(f"extra.{e}" for e in extras)]
    paths = [folder / file_name(name) for name in names]
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        **metadata.to_json(),
        **({} if parts is None else {"observation_names": parts}),
        "rows": opened["actions"].shape[0],
        "episodes": opened["lengths"].shape[0],
        "fingerprint": fingerprint_of(
            observations, opened["actions"], opened["lengths"], metadata.transform, metadata.frames
        ),
        "extras": extras,
        "files": {p.name: {"bytes": p.stat().st_size, "sha256": sha256_of(p, on_block)} for p in paths},
    }
    (folder / MANIFEST).write_text(_text({**manifest, CHECKSUM: _checksum(manifest)}))
    for path in (*paths, folder / MANIFEST):
        with open(path, "r+b") as file:
            os.fsync(file.fileno())


def require_free(target: Path, overwrite: bool) -> None:
    """A data set may only replace a data set, and only with overwrite."""
    if not path_of(target).exists():
        return
    if not overwrite:
        raise HilpError(f"{target} already exists: choose another folder or pass overwrite")
    if not is_native(target) and not (target.is_dir() and not any(target.iterdir())):
        raise HilpError(f"{target} exists and is not a hilp data set, so it is not overwritten: choose another folder")


# ---- reading ---------------------------------------------------------------------------------------------------------


def read(folder: Path, in_memory: bool, verify: bool) -> tuple[dict[str, np.ndarray], Metadata]:
    """The columns of a folder (those of `columns_of`, and lengths), memory-mapped unless `in_memory`."""
    storage.restore_aside(folder)
    manifest = read_manifest(folder)
    for damage in damages(folder, manifest, hashes=verify):
        raise HilpError(damage)
    parts = manifest.get("observation_names")
    names = [OBSERVATIONS] if parts is None else [f"{OBSERVATIONS}/{name}" for name in parts]
    names += ["actions", *(f"extra.{name}" for name in manifest["extras"])]
    columns = {name: _column(folder / file_name(name), in_memory) for name in names}
    lengths = np.array(_column(folder / file_name("lengths"), in_memory))
    _require_whole(folder, columns, lengths, manifest["rows"])
    try:
        metadata = Metadata.from_json(manifest)
    except (TypeError, ValueError, KeyError) as error:
        raise HilpError(f"{folder / MANIFEST} is damaged: {reason(error)}: write the data set again") from error
    transform = metadata.transform
    if transform is not None and (parts is not None or transform.width != columns[OBSERVATIONS].shape[1]):
        raise HilpError(f"{folder} is damaged: its transform is not one of its observations: write it again")
    return {**columns, "lengths": lengths.astype(np.int64)}, metadata


def _require_whole(folder: Path, columns: Mapping[str, np.ndarray], lengths: np.ndarray, rows: int) -> None:
    sizes = {name: len(array) for name, array in columns.items()}
    whole = lengths.ndim == 1 and lengths.dtype.kind in "iu" and bool(np.all(lengths >= 1))
    flat = all(columns[name].ndim == 2 for name in (OBSERVATIONS, "actions") if name in columns)
    if not whole or not flat or {*sizes.values(), int(lengths.sum())} != {rows}:
        raise HilpError(
            f"{folder} is damaged: dataset.json says {rows} rows, the arrays have {sizes} and episodes "
            f"of {lengths.sum()} rows: write the data set again"
        )


def _column(file: Path, in_memory: bool) -> np.ndarray:
    stream = open_npy(file)  # numpy trusts a header; this does not
    try:
        array = np.load(file, mmap_mode=None if 0 in stream.shape or in_memory else "r", allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise HilpError(f"{file} cannot be read ({reason(error)}): write the data set again") from error
    if array.dtype.kind not in NUMBERS or array.ndim < 1:
        raise HilpError(f"{file} is damaged: it holds {array.dtype} {array.shape}: write the data set again")
    return array


def read_manifest(folder: Path) -> dict[str, Any]:
    """dataset.json, checked against its own checksum."""
    path = folder / MANIFEST
    try:
        text = path.read_bytes().decode("ascii")
        manifest = json.loads(text)
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise HilpError(f"{path} is not a hilp data set (its format is not '{FORMAT}')")
        if manifest.get("version") != VERSION:
            raise HilpError(f"{folder} has format version {manifest.get('version')}, this hilp reads {VERSION}")
        checksum = manifest.pop(CHECKSUM, None)
        # Comparing the text as well finds flipped bits that JSON does not notice.
        intact = checksum == _checksum(manifest) and text == _text({**manifest, CHECKSUM: checksum})
    except (OSError, ValueError, RecursionError) as error:
        raise HilpError(f"{path} cannot be read: {reason(error)}") from error
    if not intact:
        raise HilpError(
            f"{path} was changed after it was written (its checksum does not match): restore it from a copy"
        )
    _require_contents(path, manifest)
    return manifest


def _require_contents(path: Path, manifest: Mapping[str, Any]) -> None:
    for key, kind in CONTENTS.items():
        if not isinstance(manifest.get(key), kind):
            raise HilpError(f"{path} is incomplete: it has no '{key}': write the data set again")
    parts = manifest.get("observation_names", ["one"])
    if not isinstance(parts, list) or not parts or not all(isinstance(name, str) for name in parts):
        raise HilpError(f"{path} is incomplete: its 'observation_names' are no names: write the data set again")


def damages(
    folder: Path, manifest: Mapping[str, Any], hashes: bool, on_block: Callable[[int], None] | None = None
) -> Iterator[str]:
    """What is wrong with the files of a native folder, a line each; without `hashes` only missing and cut files."""
    for name, noted in manifest["files"].items():
        path = folder / name
        try:
            size = path.stat().st_size
            if not isinstance(noted, dict) or size != noted.get("bytes"):
                yield f"{path} is damaged: it has {size} bytes, not as many as noted: write the data set again"
            elif hashes and sha256_of(path, on_block) != noted.get("sha256"):
                yield f"{path} was changed after it was written (its hash does not match): write the data set again"
        except OSError as error:
            yield f"{path} is missing or unreadable ({error.strerror or error}): write the data set again"


def _text(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=2) + "\n"


def _checksum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
