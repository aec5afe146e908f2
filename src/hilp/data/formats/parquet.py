"""Parquet logs, a file or a folder of files with a row a step, and LeRobot's folders of them, of versions 2 and 3.

They are read by the child process of `subprocess_reader`. LeRobot has meta/info.json and data/chunk-*/*.parquet, an
episode a file or many in one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hilp import storage
from hilp.data import subprocess_reader
from hilp.data.formats import arrays
from hilp.data.formats.arrays import Columns
from hilp.data.source import Source
from hilp.data.tables import Table
from hilp.errors import HilpError, some

ENDINGS = (".parquet", ".pq")
INFO = Path("meta") / "info.json"
STATE, ACTION, EPISODE, TIME = "observation.state", "action", "episode_index", "timestamp"
PICTURES = ("video", "image")
VERSIONS = ("v2", "v3")
BOOKKEEPING = ("index", "frame_index", "task_index")


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
    return arrays.of_tables([_open_table(file, ids) for file in files], source, columns, drop_short, extras)


def _open_table(path: Path, ids: str) -> Table:
    """The columns of a file that are numbers, times or vectors; that of the episodes may hold names."""
    return Table(str(path), "parquet", *subprocess_reader.open_columns(path, ids), [path])


# ---- LeRobot ---------------------------------------------------------------------------------------------------------


def read_lerobot(
    source: Path, *, columns: Columns | None = None, drop_short: bool = False, extras: Sequence[str] | None = None
) -> Source:
    """A LeRobot data set, by its folder: `observation.state` and `action`, with the timestamp as `time`.

    `columns={"observations": ["observation.state", "observation.environment_state"]}` chooses other vectors. Videos and
    images are left out. Other columns of numbers (rewards, flags) become extras.
    """
    info = _lerobot_info(source)
    files = sorted((source.absolute() / "data").glob("chunk-*/*.parquet"), key=lambda f: arrays.natural(str(f)))
    if not files:
        raise HilpError(f"{source} has no data/chunk-*/*.parquet: the data set was not downloaded whole")
    kinds = {name: about.get("dtype") if isinstance(about, dict) else None for name, about in info["features"].items()}
    chosen = _lerobot_columns(source, kinds, columns)
    tables = [_open_table(file, EPISODE) for file in files]
    if extras is None:
        taken = {*BOOKKEEPING, *(name for names in chosen.values() for name in names)}
        extras = ["time", *(name for name in tables[0].columns if name not in taken)]
    found = arrays.of_tables(tables, source, chosen, drop_short, extras)
    for what, count in {"episodes": found.episodes, "frames": found.rows}.items():
        total = info.get(f"total_{what}")
        if isinstance(total, int) and total != count and not drop_short:
            raise HilpError(f"{source}: {INFO} says {total} {what}, but the files hold {count}: download it again")
    pictures = [name for name, kind in kinds.items() if kind in PICTURES]
    notes = [f"observations are {some(chosen['observations'])}"]
    notes += [f"videos and images are left out: {some(pictures)}"] if pictures else []
    notes += [note for note in found.notes if not note.startswith("left out")]
    return replace(found, format="lerobot", notes=tuple(notes))


def _lerobot_info(source: Path) -> dict[str, Any]:
    info = storage.read_json(source / INFO)
    info = info if isinstance(info, dict) else {}
    version = str(info.get("codebase_version", ""))
    if not isinstance(info.get("features"), dict):
        raise HilpError(f"{source / INFO} does not say which features there are: it is no LeRobot data set")
    if not version.startswith(VERSIONS):
        raise HilpError(f"{source} is LeRobot data of version '{version}': hilp reads v2 and v3; convert it first")
    return info


def is_lerobot(path: Path) -> bool:
    return (path / INFO).is_file() and (path / "data").is_dir()


def _lerobot_columns(source: Path, kinds: Mapping[str, Any], columns: Columns | None) -> dict[str, list[str]]:
    """What the user chose, and the usual names for the rest."""
    usual = {"observations": STATE, "actions": ACTION, "episode_ids": EPISODE, "time": TIME}
    chosen = {what: arrays.listed(columns, what) or [name] for what, name in usual.items()}
    chosen |= {what: arrays.listed(columns, what) for what in columns or {} if what not in usual}
    for what in ("observations", "actions"):
        for name in chosen[what]:
            if name not in kinds:
                vectors = [name for name, kind in kinds.items() if kind not in (*PICTURES, "string")]
                raise HilpError(f"{source} has no feature '{name}' for {what}: name one of {some(vectors)}")
            if kinds[name] in PICTURES:
                raise HilpError(f"{source}: '{name}' is a {kinds[name]}, which hilp does not read")
    return chosen
