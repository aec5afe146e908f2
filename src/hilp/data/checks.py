"""What is wrong with data, in words that help to fix it, and the repairs that users may ask for.

Episodes are split at rows without numbers and at gaps in time. Columns that say nothing are left out, and angles that
wrap are turned into sine and cosine, by an `ObservationTransform` that travels with the policy.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hilp import trees
from hilp.data.columns import NUMBERS
from hilp.data.dataset import Dataset
from hilp.data.measures import MOST_COLUMNS, ColumnHashes, Moments, Wraps, names_of
from hilp.data.source import Kind, Rows, Source, Where, mapped, of_dataset, ranges, rows_text
from hilp.data.tables import TIME
from hilp.data.transforms import ObservationTransform
from hilp.errors import HilpError, counted, is_one_of, nearest, some

ACTION_TOLERANCE = 1e-4  # of [-1, 1], for simulators that return 1.0000001
SPLITS = ("nan", "gap")
DROPS = ("constant", "duplicate")
AUTO, NONE = "auto", "none"
GAP = 1.5  # a gap is longer than so many of nearly all steps
NEARLY_ALL = 0.95

Angles = str | int | Iterable[str | int] | Mapping[str | int, float | None]
AngleChoice = dict[str, float | None] | str | None  # columns, with a period where it is known; or "auto"


class HealthCheck:
    """Looks at blocks of rows and remembers what would make training impossible or meaningless."""

    def __init__(self, source: Source):
        self.source = source
        self.bad_observations: list[np.ndarray] = []  # rows that hold a NaN or an infinity
        self.bad_actions: list[np.ndarray] = []
        self.acted = Moments(source.action.shape[0])  # of actions that are used

    def add(self, first: int, block: Rows) -> np.ndarray:
        """Take in a block; gives the actions in it that are used: their rows have a next one in their episode."""
        rows = len(block["actions"])
        used = np.delete(np.arange(rows), self.source.last_rows(first, rows))
        actions = block["actions"][used]
        self.acted.add(actions)
        self.bad_actions.append(first + used[~np.isfinite(actions).all(axis=1)])
        finite = np.ones(rows, bool)
        for column in trees.named(trees.unnamed(block, "observations"), "").values():
            if column.dtype.kind == "f":  # bytes and whole numbers are always finite
                finite &= np.isfinite(column).all(axis=tuple(range(1, column.ndim)))
        self.bad_observations.append(first + np.flatnonzero(~finite))
        return actions

    def problems(self, rescale: bool = False) -> list[str]:
        """A line about each thing that makes training impossible, after all blocks; `rescale`: actions will be."""
        found = []
        for name, parts in (("observations", self.bad_observations), ("actions", self.bad_actions)):
            rows = np.concatenate([np.zeros(0, np.int64), *parts])
            if len(rows):
                found.append(
                    f"NaN or infinite {name} in {self.source.where(rows)}: remove or repair these rows, or split "
                    "episodes there with split='nan' / --split nan"
                )
        low, high = self.acted.low, self.acted.high
        reach = np.maximum(-low, high)
        if choices := self.source.choices:
            if low[0] < 0 or high[0] >= choices:
                told = f"{choices} discrete actions are whole numbers from 0 to {choices - 1}"
                found.append(f"{told}, not {low[0]:g} to {high[0]:g}")
            return found
        if (reach > 1.0 + ACTION_TOLERANCE).any() and not rescale:
            worst = int(np.argmax(reach))
            found.append(
                f"actions leave [-1, 1] (column {worst} spans {low[worst]:.4g} to {high[worst]:.4g}): scale "
                "them yourself, or let rescale_actions=True / --rescale-actions map each column's range to [-1, 1]"
            )
        return found


def structural_problems(source: Source) -> list[str]:
    """What is wrong with episodes and shapes, before any row is read."""
    if source.rows == 0 or source.episodes == 0:
        return ["there are no episodes"]
    found = []
    if source.choices and (source.action.shape != (1,) or source.action.dtype.kind not in "iu"):
        found.append(
            f"discrete actions are one whole number a row, not {source.action}: build data sets with hilp.load"
        )
    short = np.flatnonzero(source.lengths < 2)
    if len(short):
        found.append(
            f"episodes {some(short, 5)} have fewer than two rows, so no transition: remove them "
            "(an episode of T steps is T + 1 observations)"
        )
    kinds = {**trees.named(source.observation, "observations"), "actions": source.action}
    if len(kinds) == 1:
        found.append("observations have no parts: name at least one array")
    for name, kind in kinds.items():
        tree = name.startswith("observations/")  # whose parts may be images
        if 0 in kind.shape or not kind.shape or (len(kind.shape) > 1 and not tree):
            found.append(f"{name} have rows of shape {kind.shape}: each row must be one or more numbers")
        elif kind.dtype.kind not in NUMBERS:
            found.append(f"{name} are {kind.dtype}: hilp needs plain numbers")
    return found


def examine(source: Source) -> HealthCheck:
    """Go through all rows."""
    health = HealthCheck(source)
    for first, block in source.blocks():
        health.add(first, block)
    return health


def require_trainable(data: Dataset) -> None:
    """Raise one clear line about the first thing that makes training impossible. Data that `load` made was checked."""
    if not data.is_checked:
        examine_dataset(data)


def examine_dataset(data: Dataset, rescale: bool = False, where: Where = rows_text) -> HealthCheck:
    """Go through all rows and raise at the first thing that makes training impossible; `rescale`: actions will be.

    where: says where rows are in what the data was read from.
    """
    columns = {**trees.named(data.observations, "observations"), "actions": data.actions}
    source = replace(of_dataset(data), where=where)
    sizes = {len(column) for column in columns.values()}
    if sizes != {source.rows}:
        raise HilpError(
            f"{data.name}: {data.rows} observations, {len(data.actions)} actions and episodes of {source.rows} rows in "
            "all do not fit together: build data sets with hilp.load"
        )
    for problem in structural_problems(source):
        raise HilpError(f"{data.name}: {problem}")
    health = examine(source)
    for problem in health.problems(rescale):
        raise HilpError(f"{data.name}: {problem}")
    return health


class Repairs:
    """What to do, as the user says it."""

    def __init__(self, split: Any = None, angles: Angles | None = None, drop: Any = None):
        self.split, self.drop = _words("split", split, SPLITS), _words("drop", drop, DROPS)
        self.angles = _angles(angles)

    def apply(self, source: Source) -> Source:
        """The repaired source; its notes say what was done."""
        if self.split:
            source = _split(source, self.split)
        return source if self.angles is None and not self.drop else _transformed(source, self)


def with_angles(data: Dataset) -> Dataset:
    """Data of which networks see columns that wrap as angles, where nothing says yet what they see; notes say which."""
    if isinstance(data.observations, Mapping) or data.transform is not None or data.observations.ndim != 2:
        return data
    if data.observation_dim > MOST_COLUMNS:  # images, flattened
        return data
    found = Repairs(angles=AUTO).apply(of_dataset(data))
    turned = found.transform is not None and found.transform.angles
    return replace(data, transform=found.transform, notes=found.notes) if turned else data


def is_split(value: Any) -> bool:
    """Whether this says where to split, and is not another reader's option of that name."""
    words = _listed(value)
    return bool(words) and all(is_one_of(word, SPLITS) for word in words)


def _listed(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    return list(value) if isinstance(value, list | tuple | set | frozenset) else [value]


def _words(what: str, value: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    words = () if value is None else tuple(_listed(value))
    for word in words:
        if not is_one_of(word, known):
            raise HilpError(f"{what} takes {' and '.join(known)}, not {word!r}: {nearest(str(word), known)}")
    return words


def _angles(value: Angles | None) -> AngleChoice:
    if value is None or (isinstance(value, str) and value in (AUTO, NONE)):
        return {} if value == NONE else value  # said, so nothing is chosen later
    named = dict(value) if isinstance(value, Mapping) else {str(column): None for column in _listed(value)}
    found: dict[str, float | None] = {}
    for column, period in named.items():
        name, equals, text = str(column).partition("=")
        try:
            number = float(text) if equals else None if period is None else float(period)
        except (TypeError, ValueError):
            number = math.nan
        if isinstance(column, bool) or not (number is None or 0.0 < number < math.inf):
            raise HilpError(f"angles takes columns with their period, {{'q1': 360}} or q1=360, not {column!r:.60}")
        found[name.strip()] = number
    return found


def _split(source: Source, at: tuple[str, ...]) -> Source:
    """Episodes cut where a number is missing and where time jumps; pieces of a single row are left out."""
    if "gap" in at:
        _require_time(source)
    last, lost, cut = (np.zeros(source.rows, bool) for _ in range(3))
    last[source.stops - 1] = True
    reasons = []
    if "nan" in at:
        health = examine(source)
        lost[np.concatenate(health.bad_observations)] = True  # rows without a usable observation
        cut[np.concatenate(health.bad_actions)] = True  # rows whose next row is not one step later
        missing = np.flatnonzero(lost | cut)
        if len(missing):
            reasons.append(f"{counted(len(missing), 'row')} with NaN or infinities ({source.where(missing)})")
    if "gap" in at:
        times = np.concatenate([block[f"extra.{TIME}"].reshape(-1) for _, block in source.blocks()])
        gaps, longest, usual = time_gaps(source, times, ~last & ~lost)
        cut[gaps] = True
        if len(gaps):
            reasons.append(
                f"{counted(len(gaps), 'gap')} in time (after {source.where(gaps)}; a step is usually {usual:.4g}, "
                f"in a gap more than {longest:.4g} or negative)"
            )
    if not reasons and source.lengths.min(initial=2) >= 2:
        return source
    found = _pieces(source, lost, last | cut, " and ".join(reasons))
    if "nan" not in at:
        return found
    finite = lambda actions: np.where(np.isfinite(actions), actions, 0).astype(actions.dtype)  # noqa: E731
    return mapped(found, lambda block: {**block, "actions": finite(block["actions"])})


def _require_time(source: Source) -> None:
    if TIME not in source.extras:
        raise HilpError(
            f"{source.name}: splitting at gaps needs a time column: name it with columns={{'time': ...}} "
            "(--columns time=...)"
        )
    if int(np.prod(source.extras[TIME].shape)) != 1:
        raise HilpError(f"{source.name}: rows of the time column are {source.extras[TIME].shape}: give a number a row")


def _pieces(source: Source, lost: np.ndarray, ends: np.ndarray, reasons: str) -> Source:
    """Episodes between rows that are lost and rows that end one."""
    ends = ends | lost
    ends[:-1] |= lost[1:]
    begins = np.flatnonzero(np.concatenate([[True], ends[:-1]]) & ~lost)
    lengths = np.flatnonzero(ends & ~lost) - begins + 1
    whole = lengths >= 2
    notes = [f"split {counted(source.episodes, 'episode')} into {int(whole.sum())} at {reasons}"] if reasons else []
    if not whole.all():
        notes.append(f"left out {counted(int((~whole).sum()), 'piece')} of a single row")
    if not whole.any():
        raise HilpError(f"{source.name}: nothing is left: {'; '.join(notes)}")
    found = ranges(source, begins[whole], lengths[whole])
    return replace(found, endings={}, notes=(*source.notes, "; ".join(notes)))


def time_gaps(source: Source, times: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Rows after which time jumps inside an episode, the longest step that is none, and the usual one."""
    bad = np.flatnonzero(~np.isfinite(times))
    if len(bad):
        raise HilpError(f"{source.name}: the time is NaN or infinite in {source.where(bad)}: repair these rows")
    rows = np.flatnonzero(inside[:-1])
    steps = times[rows + 1] - times[rows]
    forward = steps[steps > 0]
    if not len(forward):
        raise HilpError(f"{source.name}: time never goes on inside an episode: check the time column")
    usual, nearly_all = np.quantile(forward, [0.5, NEARLY_ALL])
    longest = GAP * float(nearly_all)
    return rows[(steps > longest) | (steps < 0)], longest, float(usual)


def _transformed(source: Source, repairs: Repairs) -> Source:
    """The source with a transform that leaves out columns and turns angles, in addition to the one that it has."""
    if not isinstance(source.observation, Kind) or len(source.observation.shape) != 1:
        if not (repairs.angles or repairs.drop):
            return source
        raise HilpError(f"{source.name}: angles and drop are for observations that are one vector, not named parts")
    width = source.observation_dim
    labels = names_of(source.observation_parts, width)
    before = source.view(width)
    moments, hashes, wraps = Moments(width), ColumnHashes(width), Wraps(source, width)
    for first, block in source.blocks():
        rows = block["observations"]
        moments.add(rows)
        hashes.add(first, rows)
        wraps.add(first, np.asarray(rows, np.float32))
    dropped = _dropped(repairs.drop, moments, hashes, before.columns)
    columns = tuple(sorted(set(before.columns).difference(*dropped.values())))
    if not columns:
        raise HilpError(f"{source.name}: every observation column is constant: nothing is left to learn from")
    known = {angle.column: angle.period for angle in wraps.found(moments) if angle.column in columns}
    new = _periods(source.name, repairs.angles, labels, columns, known)
    angles = {column: period for column, period in before.angles if column in columns}
    transform = ObservationTransform(width, columns, tuple(sorted({**angles, **new}.items())))
    notes = [
        f"networks do not see {counted(len(out), f'{why} column')}: {some([labels[column] for column in out])}"
        for why, out in dropped.items()
    ]
    notes += [
        f"networks see the sine and cosine of {labels[column]}, an angle of period {period:.6g}"
        for column, period in new.items()
    ]
    return replace(source, transform=transform, notes=(*source.notes, *notes))


def _dropped(drop: Sequence[str], moments: Moments, hashes: ColumnHashes, seen: Sequence[int]) -> dict[str, list[int]]:
    """The columns to leave out, by why; of equal columns the first stays."""
    found: dict[str, list[int]] = {}
    if "constant" in drop:
        found["constant"] = [int(column) for column in moments.constant if column in seen]
    if "duplicate" in drop:
        twins = hashes.twins({*seen}.difference(moments.constant))
        found["duplicated"] = [column for group in twins for column in group[1:]]
    return {why: out for why, out in found.items() if out}


def _periods(
    name: str, wanted: AngleChoice, labels: list[str], columns: Sequence[int], known: dict[int, float]
) -> dict[int, float]:
    """The period of each column that is to be turned; known: of those that wrap."""
    if wanted is None or isinstance(wanted, str):
        return known if wanted == AUTO else {}
    found: dict[int, float] = {}
    for word, period in wanted.items():
        for column in sorted({*_columns_called(word, labels, name)} & {*columns}):
            if period is None and column not in known:
                raise HilpError(
                    f"{name}: column '{labels[column]}' does not wrap, so its period is not known: give it, "
                    f"angles={{'{labels[column]}': 360}} (--angles {labels[column]}=360)"
                )
            found[column] = known[column] if period is None else period
    return found


def _columns_called(word: str, labels: list[str], name: str) -> list[int]:
    """The columns of a label, of a part that has several, or of a number."""
    named = [n for n, label in enumerate(labels) if label == word or label.startswith(f"{word}[")]
    if named or (word.isdecimal() and int(word) < len(labels)):
        return named or [int(word)]
    raise HilpError(f"{name}: there is no observation column '{word}' to be an angle: {nearest(word, labels)}")
