"""Write LeRobot data sets, version 3.0: rows and pictures in Parquet files, and what is known of them in `meta`.

A row of LeRobot's is an observation with the action taken there, so an episode's last observation, which has no action,
is left out. Rows are written block by block, so that data may be larger than memory.
"""

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hilp import storage, trees
from hilp.data.lerobot_stats import QUANTILES, Noted, Sampled, Stats
from hilp.data.measures import names_of
from hilp.data.source import Kind, Rows, Source
from hilp.data.tables import TIME
from hilp.data.transforms import Parts
from hilp.errors import HilpError, path_of, some

VERSION = "v3.0"
INFO, TASKS = Path("meta") / "info.json", Path("meta") / "tasks.parquet"
STATS = Path("meta") / "stats.json"
EPISODES = "meta/episodes"
CHUNK = "chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
FILES_A_CHUNK = 1000
FILE_MB = 100  # a file that is as large is followed by another
VIDEO_MB = 200  # noted only
NO_TASK = "unlabeled"  # where the data does not say: every row of LeRobot's names its task
EPISODES_AT_ONCE = 100  # whose notes are held before they are written
CHANNELS = (1, 3, 4)  # that PNG has
NEARLY_WHOLE = 0.02  # how far a log's rate may be from a whole number of rows a second
EXTRAS = "keep other columns only, with extras=[...] / --option extras=[...]"
INDICES = ("frame_index", "episode_index", "index", "task_index")
NEXT = {
    "rewards": "next.reward",
    "terminations": "next.done",
    "truncations": "next.truncated",
}  # what LeRobot calls these
RECORDED = "recorded_time"  # LeRobot's own timestamp is frame_index / fps

Progress = Callable[[str, int, int], None]  # what is being done, how much of it is done, how much there is


@dataclass(frozen=True)
class Feature:
    """A column of the files."""

    column: str  # of the source
    kind: Kind  # of a row, as it is written
    names: tuple[str, ...] = ()
    later: bool = False  # recorded in the row of the state that the action led to

    @property
    def is_picture(self) -> bool:
        return len(self.kind.shape) == 3

    @property
    def width(self) -> int:
        """Numbers whose statistics are noted: channels of a picture."""
        return self.kind.shape[-1] if self.is_picture else math.prod(self.kind.shape)

    def to_json(self) -> dict[str, Any]:
        names = ["height", "width", "channels"] if self.is_picture else list(self.names) or None
        kind = "image" if self.is_picture else self.kind.dtype.name
        return {"dtype": kind, "shape": list(self.kind.shape) or [1], "names": names}


def write(source: Source, target: Path, fps: int | None, overwrite: bool, progress: Progress) -> Path:
    """The folder, which appears whole or not at all; one that was killed starts again."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise HilpError(f"writing LeRobot data needs {error.name}: pip install 'hilp[formats]'") from error
    target = storage.with_a_name(path_of(target))
    storage.clean_leftovers(target)
    _require_free(target, overwrite)
    features = features_of(source)
    rate = frames_per_second(source, fps)
    with storage.new_folder(target) as temporary:
        _write(temporary, source, features, rate, progress)
    return target


def _require_free(target: Path, overwrite: bool) -> None:
    if not target.exists():
        return
    if not overwrite:
        raise HilpError(f"{target} already exists: choose another folder, or pass overwrite (--overwrite)")
    if not (target / INFO).is_file() and not (target.is_dir() and not any(target.iterdir())):
        raise HilpError(f"{target} exists and is not LeRobot data, so it is not overwritten: choose another folder")


def frames_per_second(source: Source, asked: int | None) -> int:
    """Rows a second: as asked for, or by the median step of the time column, where that is a whole number."""
    if asked is not None:
        return asked
    if TIME not in source.extras:
        raise HilpError(f"{source.name} has no time column: say how many rows a second there are with --fps 20")
    times = source.read(0, min(source.rows, source.block_rows))[f"extra.{TIME}"].reshape(-1).astype(np.float64)
    steps = np.delete(np.diff(times), source.last_rows(0, len(times) - 1))
    usual = float(np.median(steps)) if len(steps) else math.nan
    rate = 1.0 / usual if usual > 0 else math.nan
    if not rate >= 1.0 - NEARLY_WHOLE or abs(rate - round(rate)) > NEARLY_WHOLE * rate:
        raise HilpError(
            f"{source.name}: its time column steps by {usual:.4g}, and LeRobot takes a whole number of rows a second: "
            "say which with --fps 20"
        )
    return round(rate)


def notes(source: Source, fps: int | None) -> list[str]:
    """What is decided and what is lost on the way, a line each."""
    found = [f"left out the last observation of each of {source.episodes} episodes: it has no action"]
    if single := int((source.lengths == 2).sum()):
        found.append(f"{single} of them are single frames now, which hilp reads with drop_short only")
    if fps is None:
        found.append(f"{frames_per_second(source, None)} rows a second, by the time column")
    if source.frames > 1:
        found.append(f"each picture is written once: read it with frames={source.frames} again")
    flat = [name for name, kind in source.extras.items() if len(kind.shape) > 1]
    if flat:
        found.append(f"rows of {some(flat)} are written flat")
    return found


def features_of(source: Source) -> dict[str, Feature]:
    """The features by their names in LeRobot, with the column that each is made of."""
    observations = trees.named(source.observation, "observations")
    found: dict[str, Feature] = {}
    vectors = [column for column, kind in observations.items() if not _is_picture(kind)]
    for column, kind in observations.items():
        part = _plain(column.removeprefix("observations").removeprefix("/")).removeprefix("observation.")
        if _is_picture(kind):
            if kind.shape[-1] not in CHANNELS:
                channels = f"{kind.shape[-1]} channels, and LeRobot's have {some(CHANNELS)}"
                raise HilpError(f"{source.name}: pictures of '{part}' have {channels}: leave them out")
            name = f"observation.images.{part.removeprefix('images.')}"
        else:
            name = "observation.state" if len(vectors) == 1 else f"observation.{part}"
        names = _names(source.observation_parts, kind) if len(observations) == 1 else ()
        _add(found, source, name, Feature(column, _flat(kind), names))
    _add(found, source, "action", Feature("actions", source.action, _names(source.action_parts, source.action)))
    for extra, kind in source.extras.items():
        # Of ExORL, whose reward stands in the row of the state that it was paid for.
        later = extra == "reward" and "rewards" not in source.extras and math.prod(kind.shape) == 1
        name = NEXT["rewards"] if later else RECORDED if extra == TIME else NEXT.get(extra, _plain(extra))
        one = math.prod(kind.shape) == 1
        flag = name in (NEXT["terminations"], NEXT["truncations"]) and one
        shape = () if one else (math.prod(kind.shape),)
        kept = Kind(shape, np.dtype(bool) if flag else np.dtype(np.float32) if later else kind.dtype)
        _add(found, source, name, Feature(f"extra.{extra}", kept, later=later))
    return found


def _add(found: dict[str, Feature], source: Source, name: str, feature: Feature) -> None:
    if name in found or name in ("timestamp", *INDICES):
        raise HilpError(f"{source.name}: two columns would be called '{name}' in LeRobot: {EXTRAS}")
    found[name] = feature


def _plain(name: str) -> str:
    return name.replace("/", ".")  # LeRobot keeps slashes for itself


def _is_picture(kind: Kind) -> bool:
    return kind.dtype == np.uint8 and len(kind.shape) == 3


def _flat(kind: Kind) -> Kind:
    return kind if _is_picture(kind) else Kind((math.prod(kind.shape),), kind.dtype)


def _names(parts: Parts, kind: Kind) -> tuple[str, ...]:
    return tuple(names_of(parts, math.prod(kind.shape))) if parts else ()


# ---- rows ------------------------------------------------------------------------------------------------------------


def _write(folder: Path, source: Source, features: Mapping[str, Feature], fps: int, progress: Progress) -> None:
    import pyarrow

    schema = _schema(features)
    own = {"timestamp": Feature("", Kind((), np.dtype(np.float32)))}
    own |= {name: Feature("", Kind((), np.dtype(np.int64))) for name in INDICES}
    every = {**features, **own}
    rows, about = _Files(folder / "data", schema), _Files(folder / EPISODES, _episode_schema(every))
    task, total, written = source.task or NO_TASK, Stats(), 0
    pending: list[dict[str, Any]] = []
    with rows, about:
        for episode, low, block in pieces(source):
            frames = int(source.lengths[episode]) - 1
            if low == 0:
                rows.next_if_full()
                stats = {name: Sampled(one.width, frames, one.is_picture) for name, one in every.items()}
            count = len(block["actions"]) - 1
            first = int(source.stops[episode]) - frames - 1 + low  # in the source
            columns = {name: _values(source, block, first, name, feature) for name, feature in features.items()}
            index = np.arange(low, low + count)
            columns["timestamp"] = (index / fps).astype(np.float32)
            numbers = (index, np.full(count, episode), index - low + written, np.zeros(count, np.int64))
            columns |= dict(zip(INDICES, numbers, strict=True))
            for name, values in columns.items():
                stats[name].add(low, values)
            rows.write(pyarrow.table([_array(every[n], v) for n, v in columns.items()], schema=schema))
            written += count
            progress("writing", first + count + 1, source.rows)
            if low + count < frames:
                continue
            noted = {name: one.noted() for name, one in stats.items()}
            total.add(noted)
            number = {"data/chunk_index": rows.chunk, "data/file_index": rows.file}
            span = {"dataset_from_index": written - frames, "dataset_to_index": written}
            pending.append(
                {"episode_index": episode, "tasks": [task], "length": frames, **number, **span, **_named(noted)}
            )
            if len(pending) == EPISODES_AT_ONCE or episode + 1 == source.episodes:
                about.next_if_full()
                place = {"meta/episodes/chunk_index": about.chunk, "meta/episodes/file_index": about.file}
                about.write(pyarrow.Table.from_pylist([{**one, **place} for one in pending], schema=about.schema))
                pending = []
    _write_tasks(folder / TASKS, [task])
    _write_json(folder / STATS, total.noted())
    _write_json(folder / INFO, _info(source, every, fps))


def pieces(source: Source) -> Iterator[tuple[int, int, Rows]]:
    """Rows of each episode with one more behind them: number of the episode, first row in it, rows.

    Short episodes are read several at a time, long ones a block at a time.
    """
    for first, beyond in source.groups():
        begin = int(source.stops[first]) - int(source.lengths[first])
        if beyond == first + 1:
            for low in range(0, int(source.lengths[first]) - 1, source.block_rows):
                last = min(low + source.block_rows, int(source.lengths[first]) - 1)
                yield first, low, source.read(begin + low, begin + last + 1)
            continue
        rows = source.read(begin, int(source.stops[beyond - 1]))
        for episode in range(first, beyond):
            stop = int(source.stops[episode]) - begin
            start = stop - int(source.lengths[episode])
            yield episode, 0, {name: column[start:stop] for name, column in rows.items()}


def _values(source: Source, block: Rows, first: int, name: str, feature: Feature) -> np.ndarray:
    """What is written of a block: its rows but the last, or those after them."""
    values = block[feature.column]
    if feature.column == "actions" and source.action_scaling is not None:
        values = source.action_scaling.raw(values)
    values = values[1:] if feature.later else values[:-1]
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = first + np.flatnonzero(~np.isfinite(values).all(axis=tuple(range(1, values.ndim))))
        extra = feature.column.startswith("extra.")
        mend = EXTRAS if extra else "repair these rows, or split episodes there with --split nan"
        raise HilpError(
            f"{source.name}: NaN or infinite {name} in {source.where(bad)}, which its statistics cannot hold: {mend}"
        )
    return values.reshape(len(values), *feature.kind.shape).astype(feature.kind.dtype, copy=False)


def _array(feature: Feature, values: np.ndarray) -> Any:
    import pyarrow

    if feature.is_picture:
        names = [f"frame-{number:06d}.png" for number in range(len(values))]
        kind = _arrow_type(feature)
        return pyarrow.array([{"bytes": _png(v), "path": n} for v, n in zip(values, names, strict=True)], kind)
    if not feature.kind.shape:
        return pyarrow.array(values)
    flat = pyarrow.array(np.ascontiguousarray(values).reshape(-1))
    return pyarrow.FixedSizeListArray.from_arrays(flat, feature.width)


def _png(picture: np.ndarray) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    gray = picture.shape[-1] == 1
    Image.fromarray(picture[..., 0] if gray else picture).save(stream, "png", compress_level=1)
    return stream.getvalue()


def _arrow_type(feature: Feature) -> Any:
    import pyarrow

    if feature.is_picture:
        return pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    item = pyarrow.from_numpy_dtype(feature.kind.dtype)
    return pyarrow.list_(item, feature.width) if feature.kind.shape else item


def _schema(features: Mapping[str, Feature]) -> Any:
    import pyarrow

    found = [(name, _arrow_type(feature)) for name, feature in features.items()]
    found += [("timestamp", pyarrow.float32()), *((name, pyarrow.int64()) for name in INDICES)]
    return pyarrow.schema(found)


class _Files:
    """Parquet files in chunks; a new one is begun where the last has its size."""

    def __init__(self, folder: Path, schema: Any):
        self.schema = schema
        self._folder, self._number = folder, 0
        self._open: Any = None

    @property
    def chunk(self) -> int:
        return self._number // FILES_A_CHUNK

    @property
    def file(self) -> int:
        return self._number % FILES_A_CHUNK

    def next_if_full(self) -> None:
        if self._open is not None and self._path.stat().st_size >= FILE_MB << 20:
            self._close()
            self._number += 1

    @property
    def _path(self) -> Path:
        return self._folder / CHUNK.format(chunk_index=self.chunk, file_index=self.file)

    def write(self, table: Any) -> None:
        import pyarrow.parquet

        if self._open is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._open = pyarrow.parquet.ParquetWriter(self._path, self.schema, use_dictionary=False)
        self._open.write_table(table)

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None

    def __enter__(self) -> "_Files":
        return self

    def __exit__(self, *_: Any) -> None:
        self._close()


# ---- what is known of them -------------------------------------------------------------------------------------------


def _named(noted: Mapping[str, Noted]) -> dict[str, Any]:
    return {f"stats/{name}/{key}": value.tolist() for name, one in noted.items() for key, value in one.items()}


def _episode_schema(features: Mapping[str, Feature]) -> Any:
    import pyarrow

    whole, number = pyarrow.int64(), pyarrow.float64()
    found = [("episode_index", whole), ("tasks", pyarrow.list_(pyarrow.string())), ("length", whole)]
    places = ("data/chunk_index", "data/file_index", "dataset_from_index", "dataset_to_index")
    found += [(name, whole) for name in places]
    for name, feature in features.items():
        kind = pyarrow.list_(number)
        if feature.is_picture:
            kind = pyarrow.list_(pyarrow.list_(kind))
        keys = ("min", "max", "mean", "std", "count", *QUANTILES)
        found += [(f"stats/{name}/{key}", pyarrow.list_(whole) if key == "count" else kind) for key in keys]
    return pyarrow.schema([*found, ("meta/episodes/chunk_index", whole), ("meta/episodes/file_index", whole)])


def _write_tasks(path: Path, tasks: list[str]) -> None:
    """As pandas writes a table whose index is the task."""
    import pyarrow
    import pyarrow.parquet

    kinds = {"task_index": ("int64", "int64"), "task": ("unicode", "object")}
    columns = [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy_kind, "metadata": None}
        for name, (kind, numpy_kind) in kinds.items()
    ]
    about = {"index_columns": ["task"], "column_indexes": [], "columns": columns, "pandas_version": "2.3.3"}
    table = pyarrow.table({"task_index": np.arange(len(tasks)), "task": tasks})
    pyarrow.parquet.write_table(table.replace_schema_metadata({"pandas": json.dumps(about)}), path)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=4, allow_nan=False, ensure_ascii=False), encoding="utf-8")


def _info(source: Source, features: Mapping[str, Feature], fps: int) -> dict[str, Any]:
    return {
        "codebase_version": VERSION,
        "fps": fps,
        "features": {name: feature.to_json() for name, feature in features.items()},
        "total_episodes": source.episodes,
        "total_frames": source.transitions,
        "total_tasks": 1,
        "chunks_size": FILES_A_CHUNK,
        "data_files_size_in_mb": FILE_MB,
        "video_files_size_in_mb": VIDEO_MB,
        "data_path": f"data/{CHUNK}",
        "video_path": None,
        "robot_type": None,
        "splits": {"train": f"0:{source.episodes}"},
    }
