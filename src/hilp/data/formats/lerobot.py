"""LeRobot's folder, versions 2 and 3: meta/info.json and data/chunk-*/*.parquet, an episode a file or many in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hilp import storage
from hilp.data.formats import arrays, parquet
from hilp.data.formats.arrays import Columns
from hilp.data.source import Source
from hilp.errors import HilpError, some

INFO = Path("meta") / "info.json"
STATE, ACTION, EPISODE, TIME = "observation.state", "action", "episode_index", "timestamp"
PICTURES = ("video", "image")
VERSIONS = ("v2", "v3")
BOOKKEEPING = ("index", "frame_index", "task_index")


def read(
    source: Path, *, columns: Columns | None = None, drop_short: bool = False, extras: Sequence[str] | None = None
) -> Source:
    """A LeRobot data set, by its folder: `observation.state` and `action`, with the timestamp as `time`.

    `columns={"observations": ["observation.state", "observation.environment_state"]}` chooses other vectors. Videos and
    images are left out. Other columns of numbers (rewards, flags) become extras.
    """
    info = _info(source)
    features = info["features"]
    files = sorted((source.absolute() / "data").glob("chunk-*/*.parquet"), key=lambda f: arrays.natural(str(f)))
    if not files:
        raise HilpError(f"{source} has no data/chunk-*/*.parquet: the data set was not downloaded whole")
    chosen = _columns(source, features, columns)
    tables = [parquet.open_table(file, EPISODE) for file in files]
    if extras is None:
        taken = {*BOOKKEEPING, *(name for names in chosen.values() for name in names)}
        extras = ["time", *(name for name in tables[0].columns if name not in taken)]
    found = arrays.of_tables(tables, source, files, chosen, drop_short, extras)
    if not drop_short:
        _require_complete(source, info, {"episodes": found.episodes, "frames": found.rows})
    return replace(found, format="lerobot", notes=_notes(found, features, chosen["observations"]))


def _notes(found: Source, features: Mapping[str, Any], observations: Sequence[str]) -> tuple[str, ...]:
    pictures = [name for name, about in features.items() if _kind(about) in PICTURES]
    notes = [f"observations are {some(observations)}"]
    notes += [f"videos and images are left out: {some(pictures)}"] if pictures else []
    return (*notes, *(note for note in found.notes if not note.startswith("left out")))


def _require_complete(source: Path, info: Mapping[str, Any], have: Mapping[str, int]) -> None:
    for what, count in have.items():
        total = info.get(f"total_{what}")
        if isinstance(total, int) and total != count:
            raise HilpError(f"{source}: {INFO} says {total} {what}, but the files hold {count}: download it again")


def is_folder(path: Path) -> bool:
    return (path / INFO).is_file() and (path / "data").is_dir()


def _kind(about: Any) -> str | None:
    return about.get("dtype") if isinstance(about, dict) else None


def _info(source: Path) -> dict[str, Any]:
    info = storage.read_json(source / INFO)
    features = info.get("features") if isinstance(info, dict) else None
    version = str(info.get("codebase_version", "")) if isinstance(info, dict) else ""
    if not isinstance(features, dict):
        raise HilpError(f"{source / INFO} does not say which features there are: it is no LeRobot data set")
    if not version.startswith(VERSIONS):
        raise HilpError(f"{source} is LeRobot data of version '{version}': hilp reads v2 and v3; convert it first")
    return dict(info)


def _columns(source: Path, features: dict[str, Any], columns: Columns | None) -> dict[str, list[str]]:
    """What the user chose, and the usual names for the rest."""
    usual = {"observations": STATE, "actions": ACTION, "episode_ids": EPISODE, "time": TIME}
    chosen = {what: arrays.listed(columns, what) or [name] for what, name in usual.items()}
    chosen |= {what: arrays.listed(columns, what) for what in columns or {} if what not in usual}
    for what in ("observations", "actions"):
        for name in chosen[what]:
            if name not in features:
                vectors = [n for n, about in features.items() if _kind(about) not in (*PICTURES, "string")]
                raise HilpError(f"{source} has no feature '{name}' for {what}: name one of {some(vectors)}")
            if _kind(features[name]) in PICTURES:
                raise HilpError(f"{source}: '{name}' is a {_kind(features[name])}, which hilp does not read")
    return chosen
