"""Repair: what users may have done to data that cannot be trained on as it is, or would be trained on badly.

Episodes are split at rows without numbers and at gaps in time. Columns that say nothing are left out, and angles that
wrap are turned into sine and cosine, by an `ObservationTransform` that travels with the policy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hilp.data.checks import finite_rows
from hilp.data.measures import ColumnHashes, Moments, Wrapped, Wraps, column_names
from hilp.data.source import Kind, Source, mapped, ranges
from hilp.data.transforms import ObservationTransform
from hilp.errors import HilpError, counted, nearest, some

SPLITS = ("nan", "gap")
DROPS = ("constant", "duplicate")
AUTO = "auto"
TIME = "time"  # the extra column that says when a row was recorded
GAP = 1.5  # a gap is longer than so many of nearly all steps
NEARLY_ALL = 0.95

Angles = str | int | Iterable[str | int] | Mapping[str | int, float | None]


@dataclass(frozen=True)
class Repairs:
    """What to do, as the user says it; read with `of`."""

    split: tuple[str, ...] = ()
    angles: dict[str, float | None] | str | None = None  # columns, with a period where it is known; or "auto"
    drop: tuple[str, ...] = ()

    @staticmethod
    def of(split: Any = None, angles: Angles | None = None, drop: Any = None) -> Repairs:
        return Repairs(_words("split", split, SPLITS), _angles(angles), _words("drop", drop, DROPS))

    def apply(self, source: Source) -> Source:
        """The repaired source; its notes say what was done."""
        if self.split:
            source = _split(source, self.split)
        return source if self.angles is None and not self.drop else _transformed(source, self)


def is_split(value: Any) -> bool:
    """Whether this says where to split, and is not another reader's option of that name."""
    words = _listed(value)
    return bool(words) and all(word in SPLITS for word in words)


def _listed(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    return list(value) if isinstance(value, list | tuple) else [value]


def _words(what: str, value: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    words = () if value is None else tuple(_listed(value))
    for word in words:
        if word not in known:
            raise HilpError(f"{what} takes {' and '.join(known)}, not {word!r}: {nearest(str(word), known)}")
    return words


def _angles(value: Angles | None) -> dict[str, float | None] | str | None:
    if value is None or value == AUTO:
        return value
    named = dict(value) if isinstance(value, Mapping) else dict.fromkeys(_listed(value))
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


# ---- splitting -------------------------------------------------------------------------------------------------------


def _split(source: Source, at: tuple[str, ...]) -> Source:
    """Episodes cut where a number is missing and where time jumps; pieces of a single row are left out."""
    if "gap" in at:
        _require_time(source)
    times = np.zeros(source.rows) if "gap" in at else None
    lost = np.zeros(source.rows, bool)  # rows without a usable observation
    cut = np.zeros(source.rows, bool)  # rows whose next row is not one step later
    for first, block in source.blocks():
        rows = slice(first, first + len(block.actions))
        if "nan" in at:
            lost[rows] = ~finite_rows(block.observations)
            cut[rows] = ~np.isfinite(block.actions).all(axis=1)
        if times is not None:
            times[rows] = block.extras[TIME].reshape(-1)
    last = np.zeros(source.rows, bool)
    last[source.stops - 1] = True
    cut &= ~last  # the action of a last row is never used
    reasons = []
    if (lost | cut).any():
        missing = np.flatnonzero(lost | cut)
        reasons.append(f"{counted(len(missing), 'row')} with NaN or infinities ({source.where(missing)})")
    if times is not None:
        gaps, longest, usual = _gaps(source, times, ~last & ~lost)
        cut[gaps] = True
        if len(gaps):
            reasons.append(
                f"{counted(len(gaps), 'gap')} in time (after {source.where(gaps)}; a step is usually {usual:.4g}, "
                f"in a gap more than {longest:.4g} or negative)"
            )
    if not reasons and source.lengths.min(initial=2) >= 2:
        return source
    found = replace(_pieces(source, lost, last | cut, " and ".join(reasons)), endings={})
    if "nan" not in at:
        return found
    return mapped(found, lambda b: b._replace(actions=np.where(np.isfinite(b.actions), b.actions, np.float32(0.0))))


def _require_time(source: Source) -> None:
    if TIME not in source.extras:
        raise HilpError(
            f"{source.name}: splitting at gaps needs a time column: name it with columns={{'time': ...}} "
            "(--columns time=...)"
        )
    if int(np.prod(source.extras[TIME].shape)) != 1:
        raise HilpError(
            f"{source.name}: the time column has rows of {source.extras[TIME].shape}: give one number a row"
        )


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
    return ranges(source, begins[whole], lengths[whole], "; ".join(notes))


def _gaps(source: Source, times: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, float, float]:
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


# ---- columns ---------------------------------------------------------------------------------------------------------


def _transformed(source: Source, repairs: Repairs) -> Source:
    """The source with a transform that leaves out columns and turns angles, in addition to the one that it has."""
    if not isinstance(source.observation, Kind) or len(source.observation.shape) != 1:
        raise HilpError(f"{source.name}: angles and drop are for observations that are one vector, not named parts")
    width, labels = source.observation_dim, column_names(source)
    before = source.transform or ObservationTransform(width, tuple(range(width)))
    moments, hashes, wraps = Moments(width), ColumnHashes(width), Wraps(source, width)
    for first, block in source.blocks():
        rows = np.asarray(block.observations)
        moments.add(rows)
        hashes.add(first, rows)
        wraps.add(first, np.asarray(rows, np.float32))
    dropped = _dropped(repairs.drop, moments, hashes, before.columns)
    columns = tuple(sorted(set(before.columns).difference(*dropped.values())))
    if not columns:
        raise HilpError(f"{source.name}: every observation column is constant: nothing is left to learn from")
    angles = {column: period for column, period in before.angles if column in columns}
    new = _new_angles(source, repairs.angles, labels, columns, wraps.found(moments))
    transform = ObservationTransform(width, columns, tuple(sorted({**angles, **new}.items())))
    notes = [
        f"networks do not see {counted(len(out), f'{why} column')}: {some([labels[column] for column in out])}"
        for why, out in dropped.items()
        if out
    ]
    notes += [
        f"networks see the sine and cosine of {labels[column]}, an angle of period {period:.6g}"
        for column, period in new.items()
    ]
    return replace(source, transform=transform, notes=(*source.notes, *notes))


def _dropped(
    drop: Sequence[str], moments: Moments, hashes: ColumnHashes, columns: Sequence[int]
) -> dict[str, list[int]]:
    """Which of the columns are left out, by the reason; of equal ones the first stays."""
    constant = [int(c) for c in moments.constant if c in columns] if "constant" in drop else []
    twins = hashes.twins(apart_from=moments.constant) if "duplicate" in drop else []
    return {"constant": constant, "duplicated": [c for group in twins for c in [c for c in group if c in columns][1:]]}


def _new_angles(
    source: Source,
    wanted: dict[str, float | None] | str | None,
    labels: list[str],
    columns: Sequence[int],
    wrapped: Sequence[Wrapped],
) -> dict[int, float]:
    """The period of each column that the user names, or with "auto" of all that wrap."""
    known = {angle.column: angle.period for angle in wrapped}
    if wanted == AUTO:
        return {column: period for column, period in known.items() if column in columns}
    found: dict[int, float] = {}
    for name, period in wanted.items() if isinstance(wanted, dict) else ():
        for column in _columns_of(source, labels, name):
            if column not in columns:
                continue
            own = known.get(column) if period is None else period
            if own is None:
                raise HilpError(
                    f"{source.name}: column '{labels[column]}' does not wrap, so its period is not known: give it, "
                    f"angles={{'{labels[column]}': 360}} (--angles {labels[column]}=360)"
                )
            found[column] = own
    return found


def _columns_of(source: Source, labels: list[str], name: str) -> list[int]:
    parts = [n for n, label in enumerate(labels) if label == name or label.startswith(f"{name}[")]
    if parts:
        return parts
    if name.isdecimal() and int(name) < len(labels):
        return [int(name)]
    raise HilpError(f"{source.name}: there is no observation column '{name}' to be an angle: {nearest(name, labels)}")
