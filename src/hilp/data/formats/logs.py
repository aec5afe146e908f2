"""Logs, a file or a folder of files with a row a step: CSV, Parquet, and LeRobot's folders of Parquet files.

A CSV file is read once, from beginning to end: its numbers are kept in memory while they are few, else in a file
without a name, and nothing else of it is kept. Parquet files are read by the child process of `subprocess_reader`.
LeRobot (versions 2 and 3) has meta/info.json and data/chunk-*/*.parquet, an episode a file or many in one.
"""

import contextlib
import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hilp import storage
from hilp.data import subprocess_reader
from hilp.data.columns import gathered
from hilp.data.formats.arrays import KNOWN, Chosen, Names, expanded, listed, named_for, natural, of_table
from hilp.data.source import Source, chain, with_files
from hilp.data.tables import TIME, Table, many_extras
from hilp.errors import HilpError, counted, reason, require_regular, some

CSV_ENDINGS = (".csv", ".tsv")
PARQUET_ENDINGS = (".parquet", ".pq")
DELIMITERS = (",", ";", "\t", "|")
UTF8 = "utf-8-sig"  # with or without a mark at its beginning
MISSING = frozenset(("", "nan", "na", "n/a", "null", "none", "<na>", "#n/a", "-nan"))
TRUTH = {"true": 1.0, "false": 0.0}
CHUNK = 1 << 14  # rows that are turned into numbers at a time
SHOWN = 40  # characters of a field in a message
HEAD = 1 << 16  # bytes that tell whether a file is a log
INFO = Path("meta") / "info.json"  # of LeRobot
USUAL = {"observations": "observation.state", "actions": "action", "episode_ids": "episode_index", "time": "timestamp"}
VIDEO = "video"
PICTURES = (VIDEO, "image")
VERSIONS = ("v2", "v3")
BOOKKEEPING = ("index", "frame_index", "task_index")


def _of_tables(tables: Sequence[Table], source: Path, columns: Chosen, drop_short: bool, extras: Names) -> Source:
    """One log in several files with the same columns; without a column that tells episodes, a file is one."""
    many: list[str] = []
    columns = expanded(columns, tables[0].columns)
    for what in {"observations", "actions"} & (columns or {}).keys():  # a single one is a vector of one number
        columns = {**(columns or {}), what: listed(columns, what)}
    pictures = [name for name, column in tables[0].columns.items() if len(column.shape) == 4]
    if extras is None and (len(tables) > 1 or pictures):
        extras = [name for name in _shared_extras(tables, columns) if name not in pictures]
        many = many_extras(extras)
        extras = [name for name in extras if not many or name == TIME]
    note = f"nothing names episodes, so {'each file is' if source.is_dir() else 'the file is'} one"
    sources = [of_table(table, columns, False, drop_short, extras, otherwise=note) for table in tables]
    if len(sources) == 1:
        return replace(sources[0], name=str(source))
    files = [table.files[0] for table in tables]
    whole = chain(str(source), [one.lengths for one in sources], sources.__getitem__, [file.name for file in files])
    notes = tuple(dict.fromkeys([*many, *(note for one in sources for note in one.notes)]))
    return with_files(replace(whole, notes=notes), files)


def _shared_extras(tables: Sequence[Table], columns: Chosen) -> list[str]:
    time = named_for(columns, "time")
    taken = {*KNOWN, *(name for what in columns or {} for name in listed(columns, what) if what != "time")}
    shared = set.intersection(*(set(table.columns) for table in tables)) - taken
    return ["time" if name == time else name for name in tables[0].columns if name in shared]


def _log_files(source: Path, endings: Sequence[str]) -> list[Path]:
    """The file, or those of a folder in the order of their names, in which numbers count as such."""
    source = source.absolute()  # rows may be read as they are needed, wherever this process then is
    if not source.is_dir():
        require_regular(source)
        return [source]
    found = [file for file in source.iterdir() if file.suffix.lower() in endings and not file.name.startswith(".")]
    if not found:
        raise HilpError(f"{source} has no files that end in {' or '.join(endings)}")
    for file in found:
        require_regular(file)
    return sorted(found, key=lambda file: natural(file.name))


def read_csv(source: Path, *, columns: Chosen = None, drop_short: bool = False, extras: Names = None) -> Source:
    """A CSV file whose first line names its columns, or a folder of such files, read in the order of their names.

    `columns` says which of them are what: {"observations": ["x", "y"], "actions": ["u"], "episode_ids": "run", "time":
    "t"}. Without `episode_ids` (or `terminals`) a file is one episode. Fields may be quoted; empty ones are NaN. The
    time may be numbers, or dates (ISO 8601), which become seconds. Other columns of numbers become extras.
    """
    ids, time = (named_for(columns, what) for what in ("episode_ids", "time"))
    wanted = {time, *(name for what in columns or {} for name in listed(columns, what))}
    tables = [_CsvFile(file, ids, time, wanted).table() for file in _log_files(source, CSV_ENDINGS)]
    return _of_tables(tables, source, columns, drop_short, extras)


def looks_like_csv(path: Path) -> bool:
    """Whether a file begins with a line of several fields, as a CSV log does."""
    try:
        with open(path, "rb") as stream:
            begin = stream.read(HEAD)
        text = begin.decode(UTF8, errors="strict" if len(begin) < HEAD else "ignore")
    except (OSError, UnicodeDecodeError):
        return False
    first, *rest = text.splitlines() or [""]
    whole = rest or path.suffix.lower() in CSV_ENDINGS
    return bool(whole and first) and first.replace("\t", "").isprintable() and len(_fields(first)[1]) > 1


def _fields(line: str) -> tuple[str, list[str]]:
    """The delimiter that makes most fields of a line, and these."""
    found = []
    for delimiter in DELIMITERS:
        with contextlib.suppress(csv.Error):
            found.append((delimiter, next(csv.reader([line], delimiter=delimiter), [])))
    return max(found, key=lambda pair: len(pair[1]), default=(",", []))


class _CsvFile:
    """One file, read once."""

    def __init__(self, path: Path, ids: str | None, time: str | None, wanted: set[str]):
        self.path, self._ids, self._time, self._wanted = path, ids, time, wanted
        self.names: list[str] = []
        self._odd: dict[str, tuple[int, str]] = {}  # columns that are not numbers, and where they are not
        self._words: dict[str, int] = {}  # names of episodes
        self._written: tuple[str, int] | None = None  # how the first time is written, and in which line
        self._lines: list[np.ndarray] = []  # of the rows

    def table(self) -> Table:
        try:
            with storage.told(f"{self.path} cannot be read"), open(self.path, newline="", encoding=UTF8) as stream:
                delimiter, _ = _fields(stream.readline())
                stream.seek(0)
                reader = csv.reader(stream, delimiter=delimiter, strict=True)
                self._header(next(reader, []))
                numbers = gathered(self._chunks(reader), len(self.names))
        except UnicodeDecodeError as error:
            raise HilpError(f"{self.path} is not written in UTF-8 ({reason(error)}): save it as UTF-8") from error
        except csv.Error as error:
            raise HilpError(f"{self.path}, line {reader.line_num}: {reason(error)}: repair this line") from error
        return self._as_table(numbers)

    def _rows(self, reader: Any) -> Iterator[tuple[int, list[str]]]:
        """The rows that are not empty, with their first lines."""
        before, many = reader.line_num, len(self.names)
        for row in reader:
            at, before = before + 1, reader.line_num
            if row and len(row) != many:
                raise HilpError(f"{self.path}, line {at}: {counted(len(row), 'field')}, but line 1 names {many}")
            if row:
                yield at, row

    def _header(self, names: list[str]) -> None:
        names = [name.strip() for name in names]
        named = [name for name in names if name]
        if not named:
            raise HilpError(f"{self.path} is empty: its first line must name the columns")
        if all(_number(name) is not None for name in named):
            raise HilpError(f"{self.path}, line 1: the columns have no names, only numbers: add a line of names")
        if (most := Counter(named).most_common(1)[0])[1] > 1:
            raise HilpError(f"{self.path}, line 1: two columns are called '{most[0]}': rename one of them")
        # pandas writes its row numbers as a column without a name
        self.names = [name or f"unnamed {number}" for number, name in enumerate(names)]
        self._odd = {name: (1, "") for name in self.names if name not in named}

    def _chunks(self, reader: Any) -> Iterator[np.ndarray]:
        rows = self._rows(reader)
        while chunk := dict(itertools.islice(rows, CHUNK)):
            lines = list(chunk)
            self._lines.append(np.array(lines, np.int64))
            found = np.empty((len(lines), len(self.names)))
            for number, (name, texts) in enumerate(zip(self.names, zip(*chunk.values(), strict=True), strict=True)):
                if name == self._time:
                    self._require_one_way(texts, lines)
                try:
                    found[:, number] = self._codes(texts, lines) if name == self._ids else _plain_numbers(texts)
                except ValueError:
                    found[:, number] = self._one_by_one(name, texts, lines)
            yield found

    def _codes(self, texts: Sequence[str], lines: list[int]) -> list[int]:
        """The names of episodes, numbered."""
        words = [text.strip() for text in texts]
        missing = [line for line, word in zip(lines, words, strict=True) if word.lower() in MISSING]
        if missing:
            raise HilpError(f"{self.path}, line {missing[0]}: '{self._ids}' does not say which episode this row is of")
        if ends := [line for line, word in zip(lines, words, strict=True) if word.endswith("\0")]:  # lost in numpy
            raise HilpError(
                f"{self.path}, line {ends[0]}: the name in '{self._ids}' ends in a null character: rename it"
            )
        return [self._words.setdefault(word, len(self._words)) for word in words]

    def _require_one_way(self, texts: Sequence[str], lines: list[int]) -> None:
        """Numbers and dates, or dates with and without a time zone, are not of one clock."""
        for line, text in zip(lines, texts, strict=True):
            way = _way_of(text)
            self._written = self._written or ((way, line) if way else None)
            if way and self._written and way != self._written[0]:
                first = f"line {self._written[1]} {self._written[0]}"
                raise HilpError(
                    f"{self.path}: column '{self._time}' has {way} in line {line} and in {first}: choose one"
                )

    def _one_by_one(self, name: str, texts: Sequence[str], lines: list[int]) -> np.ndarray:
        """Numbers with missing ones, yes and no, or dates; what is none of these is remembered with its line."""
        found = np.full(len(texts), np.nan)
        for at, text in enumerate(texts):
            value = _number(text, dates=name == self._time)
            if value is None:
                self._odd.setdefault(name, (lines[at], text.strip()))
                break
            found[at] = value
        return found

    def _as_table(self, numbers: np.ndarray) -> Table:
        for name, (line, text) in self._odd.items():
            if name in self._wanted:
                hint = ": write decimal points" if re.fullmatch(r"[-+]?\d+,\d+", text) else ""
                held = f"holds '{text[:SHOWN]}', which is not a number{hint}"
                raise HilpError(f"{self.path}, line {line}: column '{name}' {held}")
        lines = np.concatenate([np.zeros(0, np.int64), *self._lines])
        columns: dict[str, np.ndarray] = {}
        for number, name in enumerate(self.names):
            if name == self._ids:
                words = np.array(list(self._words) or [""])
                columns[name] = words[numbers[:, number].astype(np.int64)]
            elif name not in self._odd:
                columns[name] = numbers[:, number]
        others = [name for name in self._odd if name != self._ids]
        where = lambda rows: f"lines {some(lines[rows], 5)}"  # noqa: E731
        return Table(str(self.path), "csv", columns, others, [self.path], where)


def _plain_numbers(texts: Sequence[str]) -> np.ndarray:
    """Numbers as logs have them; a ValueError where one is something else."""
    if "_" in "".join(texts):  # Python reads 3_9 as 39
        raise ValueError
    return np.array(texts, np.float64)


def _way_of(text: str) -> str | None:
    """How a time is written; None where there is none."""
    if _number(text) is not None:
        return None if text.strip().lower() in MISSING else "numbers"
    with contextlib.suppress(ValueError):
        return f"dates with{'' if datetime.fromisoformat(text.strip()).tzinfo else 'out'} a time zone"
    return None


def _number(text: str, dates: bool = False) -> float | None:
    """A number; of a date its seconds since 1970, without a time zone in UTC, which is the same between rows."""
    word = text.strip()
    if word.lower() in MISSING:
        return np.nan
    with contextlib.suppress(ValueError):
        return TRUTH[word.lower()] if word.lower() in TRUTH else float(word.replace("_", "?"))
    if dates:
        with contextlib.suppress(ValueError):
            when = datetime.fromisoformat(word)
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    return None


def read_parquet(source: Path, *, columns: Chosen = None, drop_short: bool = False, extras: Names = None) -> Source:
    """A Parquet file, or a folder of such files with the same columns, read in the order of their names.

    `columns` says which of them are what, as for CSV; without `episode_ids` (or `terminals`) a file is one episode. A
    column of lists of equal length is a vector a row; one of PNG or JPEG files is read where it is named. Missing
    values are NaN, times are seconds. Other columns of numbers become extras.
    """
    tables = _parquet_tables(_log_files(source, PARQUET_ENDINGS), named_for(columns, "episode_ids"))
    return _of_tables(tables, source, columns, drop_short, extras)


def _parquet_tables(files: Sequence[Path], ids: str) -> list[Table]:
    """The columns of files that are numbers, times or vectors; that of the episodes may hold names."""
    return [Table(str(file), "parquet", *subprocess_reader.open_columns(file, ids), [file]) for file in files]


def read_lerobot(source: Path, *, columns: Chosen = None, drop_short: bool = False, extras: Names = None) -> Source:
    """A LeRobot data set, by its folder: `observation.state` and `action`, with the timestamp as `time`.

    `columns={"observations": ["observation.state", "observation.images.front"]}` chooses other vectors, and images.
    Videos are left out. Other columns of numbers (rewards, flags) become extras.
    """
    info, kinds = _lerobot_features(source)
    files = sorted((source.absolute() / "data").glob("chunk-*/*.parquet"), key=lambda file: natural(str(file)))
    if not files:
        raise HilpError(f"{source} has no data/chunk-*/*.parquet: the data set was not downloaded whole")
    chosen = _lerobot_columns(source, kinds, columns)
    tables = _parquet_tables(files, USUAL["episode_ids"])
    if extras is None:
        pictures = [name for name, kind in kinds.items() if kind in PICTURES]
        taken = set(BOOKKEEPING).union(pictures, *chosen.values())
        extras = [TIME, *(name for name in tables[0].columns if name not in taken)]
        extras = extras[:1] if many_extras(extras) else extras
    for name in (*chosen["observations"], *chosen["actions"]):
        _require_shape(source, name, info["features"][name], tables[0])
    found = _of_tables(tables, source, chosen, drop_short, extras)
    for what, count in {"episodes": found.episodes, "frames": found.rows}.items():
        total = info.get(f"total_{what}")
        if isinstance(total, int) and total != count and not drop_short:
            raise HilpError(f"{source}: {INFO} says {total} {what}, but the files hold {count}: download it again")
    notes = [f"observations are {some(chosen['observations'])}"]
    if pictures := [name for name, kind in kinds.items() if kind in PICTURES and name not in chosen["observations"]]:
        notes.append(f"videos and images are left out: {some(pictures)}")
    notes += [note for note in found.notes if not note.startswith("left out")]
    return replace(found, format="lerobot", notes=tuple(notes))


def is_lerobot(path: Path) -> bool:
    return (path / INFO).is_file() and (path / "data").is_dir()


def _lerobot_features(source: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the data set says of itself, and the type of each of its features."""
    info = storage.read_json(source / INFO)
    info = info if isinstance(info, dict) else {}
    features, version = info.get("features"), str(info.get("codebase_version", ""))
    if not isinstance(features, dict):
        raise HilpError(f"{source / INFO} does not say which features there are: it is no LeRobot data set")
    if not version.startswith(VERSIONS):
        raise HilpError(f"{source} is LeRobot data of version '{version}': hilp reads v2 and v3; convert it first")
    return info, {name: about.get("dtype") if isinstance(about, dict) else None for name, about in features.items()}


def _require_shape(source: Path, name: str, feature: Any, table: Table) -> None:
    """The shape that a feature says it has must be that of its rows, or one of both is another robot's."""
    said = feature.get("shape") if isinstance(feature, dict) else None
    if said is None or name not in table.columns:  # what is missing is told where columns are taken
        return
    rows = table[name].shape[1:]
    whole = isinstance(said, list) and all(type(size) is int and size > 0 for size in said)
    if not whole or np.prod(said, dtype=object) != np.prod(rows, dtype=object):
        raise HilpError(
            f"{source}: {INFO} says that '{name}' has the shape {said!r:.40}, but its rows are of "
            f"{counted(int(np.prod(rows)), 'number')}: repair one of them"
        )


def _lerobot_columns(source: Path, kinds: Mapping[str, Any], columns: Chosen) -> dict[str, list[str]]:
    """What the user chose, and the usual columns for the rest."""
    columns = expanded(columns, [name for name, kind in kinds.items() if kind not in (*PICTURES, "string")])
    chosen = {what: listed(columns, what) or [name] for what, name in USUAL.items()}
    chosen |= {what: listed(columns, what) for what in columns or {} if what not in USUAL}
    for name in (*chosen["observations"], *chosen["actions"]):
        if name not in kinds:
            what = "observations" if name in chosen["observations"] else "actions"
            vectors = [known for known, kind in kinds.items() if kind not in (VIDEO, "string")]
            raise HilpError(f"{source} has no feature '{name}' for {what}: name one of {some(vectors)}")
        if kinds[name] == VIDEO or (kinds[name] in PICTURES and name in chosen["actions"]):
            raise HilpError(f"{source}: '{name}' is a {kinds[name]}, which hilp does not read")
    return chosen
