"""Inspect: a page about a data set that a person can act on. One pass, block by block, whatever the format.

Errors are what training would refuse. Warnings are what may hurt: what was seen, where, and what to do about it.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.data import checks, dataset, load
from hilp.data.checks import some
from hilp.data.jumps import StepSizes, jumps
from hilp.data.sources import Block, Source
from hilp.errors import HilpError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group

MOST_COLUMNS = 512  # that are looked at and reported one by one; images have more
SHOWN_COLUMNS = 24  # in the page; all of them are in the JSON
SHOWN_EPISODES = 24  # in the picture
SHOWN_ROWS = 400  # of an episode in the picture
BINS = 12
SATURATED = 0.5  # share of actions at their smallest or largest value that deserves a warning
NARROW = 0.1  # actions that never leave this part of [-1, 1] deserve one
FEW_TRANSITIONS = 1000
SHORT_EPISODES = 10  # rows
UNEVEN = 1e4  # ratio of the scales of two observation columns
INDEX_BYTES = 12  # a row of the sampler's tables

Progress = Callable[[str, int, int], None]  # what is being done, how much of it is done, how much there is


@dataclass(frozen=True)
class Warning:
    """Something that may hurt."""

    what: str
    where: str
    do: str

    def __str__(self) -> str:
        return f"{self.what} ({self.where}): {self.do}"


@dataclass(frozen=True)
class ColumnStats:
    """One column of observations or actions; over finite values, and over used actions only."""

    column: int
    low: float
    high: float
    mean: float
    deviation: float
    at_limits: float  # share of values equal to the smallest or largest


@dataclass(frozen=True)
class Report:
    """What `inspect` found."""

    name: str
    format: str
    episodes: int
    transitions: int
    observation_dim: int
    action_dim: int
    trainable: bool
    errors: list[str]
    warnings: list[Warning]
    notes: list[str]
    lengths: dict[str, Any]  # shortest, median, longest; edges and counts of a histogram; in rows
    endings: dict[str, int]
    observations: list[ColumnStats]
    actions: list[ColumnStats]
    extras: dict[str, str]  # name -> type and shape of a row
    jumps: int  # discontinuities inside episodes
    duplicate_episodes: int
    disk_bytes: int
    training_bytes: int
    verified: bool | None  # hashes agree; None where the format has none
    paths: list[np.ndarray] = field(repr=False, default_factory=list)  # some episodes, for the picture

    @property
    def exit_code(self) -> int:
        """0 when the data can be trained on, else 1."""
        return 0 if self.trainable else 1

    def to_json(self) -> dict[str, Any]:
        """Everything but the picture, for `json.dumps`."""
        return {key: value for key, value in asdict(self).items() if key != "paths"}

    def render(self) -> Group:
        """The page, for a rich console."""
        return _page(self)

    def picture(self) -> Figure:
        """Some episodes in the plane, and how long episodes are."""
        return _picture(self)


def inspect(
    source: Any,
    format: str | None = None,
    *,
    rescale_actions: bool = False,
    verify: bool = True,
    picture: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Report:
    """Look at whatever `load` takes, with the same options. `picture` is a file to draw to (.png, .svg, .pdf).

    Data that can be read but not trained on is a report with errors; data that cannot be read is a HilpError.
    `verify` compares the files of a native folder with their hashes.
    """
    if picture is not None and Path(picture).suffix not in (".png", ".svg", ".pdf"):
        raise HilpError(f"a picture is a .png, .svg or .pdf file, not {picture}")
    chosen = load.recognise(source, options) if format is None else format
    opened = load.open_source(source, chosen, **options)
    report = _examine(opened, rescale_actions, _damages(source, chosen, verify), progress)
    if picture is not None:
        from hilp.report import figures

        try:
            figures.save(report.picture(), Path(picture))
        except OSError as error:
            raise HilpError(f"cannot write {picture}: {error.strerror or error}") from error
    return report


def _damages(source: Any, format: str | None, verify: bool) -> list[str] | None:
    """What the hashes of a native folder say; None where there are none."""
    if format != "native" or not verify:
        return None
    folder = Path(source)
    return list(dataset.damages(folder, dataset.read_manifest(folder), hashes=True))


# ---- looking ---------------------------------------------------------------------------------------------------------


class Moments:
    """Range, mean, deviation and values at the limits of each column, from blocks."""

    def __init__(self, width: int):
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)
        self.count, self.mean, self.squares = np.zeros(width), np.zeros(width), np.zeros(width)
        self.at_low, self.at_high = np.zeros(width, np.int64), np.zeros(width, np.int64)

    def look(self, rows: np.ndarray) -> None:
        finite = np.isfinite(rows)
        count = finite.sum(axis=0)
        if not count.any():
            return
        whole = bool(finite.all())
        low = (rows if whole else np.where(finite, rows, np.inf)).min(axis=0)
        high = (rows if whole else np.where(finite, rows, -np.inf)).max(axis=0)
        self.at_low = np.where(low < self.low, 0, self.at_low) + np.where(low <= self.low, (rows == low).sum(axis=0), 0)
        self.at_high = np.where(high > self.high, 0, self.at_high) + np.where(
            high >= self.high, (rows == high).sum(axis=0), 0
        )
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        values = rows.astype(np.float64) if whole else np.where(finite, rows, 0.0).astype(np.float64)
        mean = values.sum(axis=0) / np.maximum(count, 1)
        squares = (np.square(values - mean) * finite).sum(axis=0)
        total = self.count + count
        shift = mean - self.mean
        # Chan's rule for joining the moments of two samples
        self.squares += squares + np.square(shift) * self.count * count / np.maximum(total, 1)
        self.mean += shift * count / np.maximum(total, 1)
        self.count = total

    @property
    def deviation(self) -> np.ndarray:
        return np.sqrt(self.squares / np.maximum(self.count, 1))

    @property
    def constant(self) -> np.ndarray:
        """Columns that hold one value."""
        return np.flatnonzero(self.low == self.high)

    @property
    def at_limits(self) -> np.ndarray:
        """Share of values at their column's smallest or largest value."""
        both = self.at_low + np.where(self.low == self.high, 0, self.at_high)
        return np.asarray(both / np.maximum(self.count, 1))

    def stats(self) -> list[ColumnStats]:
        """Of the first MOST_COLUMNS columns that hold any finite value."""
        columns = zip(self.low, self.high, self.mean, self.deviation, self.at_limits, strict=True)
        found = [ColumnStats(i, *(float(v) for v in values)) for i, values in enumerate(columns)]
        return [stats for stats in found if self.count[stats.column]][:MOST_COLUMNS]


class ColumnHashes:
    """Finds columns that are equal in every row, by a random linear hash of their bits."""

    def __init__(self, width: int):
        self.sums = np.zeros(width, np.uint64)

    def look(self, first: int, rows: np.ndarray) -> None:
        weights = np.random.default_rng([17, first]).integers(1, 2**63, len(rows), np.uint64)
        bits = (rows.astype(np.float32) + np.float32(0.0)).view(np.uint32)  # adding zero makes -0 and 0 the same bits
        with np.errstate(over="ignore"):
            self.sums += (bits * weights[:, None]).sum(axis=0, dtype=np.uint64)

    def twins(self, apart_from: np.ndarray) -> list[list[int]]:
        groups: dict[int, list[int]] = defaultdict(list)
        for column in np.setdiff1d(np.arange(len(self.sums)), apart_from):
            groups[int(self.sums[column])].append(int(column))
        return [group for group in groups.values() if len(group) > 1]


class EpisodeHashes:
    """Finds episodes with the same observations and used actions."""

    def __init__(self) -> None:
        self.done: list[bytes] = []
        self._fresh()

    def _fresh(self) -> None:
        self._observations, self._actions = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)

    def look(self, block: Block, last_rows: np.ndarray) -> None:
        observations, actions = np.ascontiguousarray(block.observations), np.ascontiguousarray(block.actions)
        begin = 0
        for last in last_rows.tolist():
            self._observations.update(observations[begin : last + 1].data)
            self._actions.update(actions[begin:last].data)
            self.done.append(self._observations.digest() + self._actions.digest())
            self._fresh()
            begin = last + 1
        self._observations.update(observations[begin:].data)
        self._actions.update(actions[begin:].data)

    def copies(self) -> list[int]:
        """Episodes that equal an earlier one."""
        seen: set[bytes] = set()
        found = []
        for number, digest in enumerate(self.done):
            if digest in seen:
                found.append(number)
            seen.add(digest)
        return found


class Paths:
    """Keeps a few rows of a few episodes, for the picture."""

    def __init__(self, source: Source):
        chosen = np.unique(np.linspace(0, source.episodes - 1, SHOWN_EPISODES).astype(int))
        rows = []
        for episode in chosen:
            begin, length = int(source.stops[episode] - source.lengths[episode]), int(source.lengths[episode])
            rows.append(begin + np.unique(np.linspace(0, length - 1, min(length, SHOWN_ROWS)).astype(int)))
        self._wanted = rows
        self._all = np.concatenate(rows)
        self._found: list[np.ndarray] = []

    def look(self, first: int, observations: np.ndarray) -> None:
        low, high = np.searchsorted(self._all, [first, first + len(observations)])
        self._found.append(np.asarray(observations[self._all[low:high] - first], np.float32))

    def result(self) -> list[np.ndarray]:
        edges = np.cumsum([len(rows) for rows in self._wanted])[:-1]
        return np.split(np.concatenate(self._found), edges)


def _examine(source: Source, rescale: bool, damages: list[str] | None, progress: Progress | None) -> Report:
    structural = checks.structural_problems(source)
    readable = not any(len(kind.shape) != 1 or not kind.shape[0] for kind in (source.observation, source.action))
    if not source.episodes or not source.rows or not readable:
        return _empty(source, [*(damages or []), *structural], None if damages is None else not damages)
    narrow = source.observation.shape[0] <= MOST_COLUMNS
    health, steps, hashes, paths = checks.Health(source), StepSizes(), EpisodeHashes(), Paths(source)
    moments, acted = Moments(source.observation.shape[0]), Moments(source.action.shape[0])
    columns = ColumnHashes(source.observation.shape[0]) if narrow else None
    whole_numbers = True
    flags: dict[str, list[np.ndarray]] = {"terminations": [], "truncations": []}
    for first, block in source.blocks():
        used = health.look(first, block)
        acted.look(used)
        whole_numbers &= bool(np.array_equal(used, np.round(used)))
        moments.look(block.observations)
        steps.look(block.observations)
        paths.look(first, block.observations)
        hashes.look(block, health.last_rows(first, len(block.actions)))
        if columns is not None:
            columns.look(first, block.observations)
        for name, found in flags.items():
            if name in block.extras:
                found.append(block.extras[name].astype(bool))
        if progress:
            progress("looking", first + len(block.actions), source.rows)

    inside = np.ones(source.rows - 1, bool)
    inside[source.stops[:-1] - 1] = False
    jumped = jumps(steps.sizes, inside)
    copies = hashes.copies()
    errors = [*(damages or []), *structural, *health.problems(rescale)]
    twins = [] if columns is None else columns.twins(apart_from=moments.constant)
    warnings = [
        *_warn_episodes(source, jumped, copies),
        *_warn_observations(moments, twins),
        *_warn_actions(acted, whole_numbers, rescale),
        *_warn_memory(source),
    ]
    return Report(
        name=source.name,
        format=source.format,
        episodes=source.episodes,
        transitions=source.transitions,
        observation_dim=source.observation.shape[0],
        action_dim=source.action.shape[0],
        trainable=not errors,
        errors=errors,
        warnings=warnings,
        notes=list(source.notes),
        lengths=_lengths(source.lengths),
        endings=_endings(source, flags),
        observations=moments.stats(),
        actions=acted.stats(),
        extras=_extras(source),
        jumps=len(jumped),
        duplicate_episodes=len(copies),
        disk_bytes=source.disk_bytes,
        training_bytes=_training_bytes(source),
        verified=None if damages is None else not damages,
        paths=paths.result(),
    )


def _empty(source: Source, errors: list[str], verified: bool | None) -> Report:
    return Report(
        name=source.name,
        format=source.format,
        episodes=source.episodes,
        transitions=max(0, source.transitions),
        observation_dim=int(np.prod(source.observation.shape)),
        action_dim=int(np.prod(source.action.shape)),
        trainable=False,
        errors=errors,
        warnings=[],
        notes=list(source.notes),
        lengths=_lengths(source.lengths),
        endings=dict(source.endings),
        observations=[],
        actions=[],
        extras=_extras(source),
        jumps=0,
        duplicate_episodes=0,
        disk_bytes=source.disk_bytes,
        training_bytes=0,
        verified=verified,
    )


def _lengths(lengths: np.ndarray) -> dict[str, Any]:
    if not len(lengths):
        return {"shortest": 0, "median": 0.0, "longest": 0, "edges": [], "counts": []}
    low, high = int(lengths.min()), int(lengths.max())
    bins = max(1, min(BINS, high - low + 1))
    counts, edges = np.histogram(lengths, bins, (low, high + 1))
    return {
        "shortest": low,
        "median": float(np.median(lengths)),
        "longest": high,
        "edges": [float(edge) for edge in edges],
        "counts": [int(count) for count in counts],
    }


def _endings(source: Source, flags: dict[str, list[np.ndarray]]) -> dict[str, int]:
    """How episodes end: as the reader found, or as columns of flags a row before the last say."""
    if source.endings or not all(flags.values()):
        return dict(source.endings)
    ends = source.stops[source.lengths >= 2] - 2
    terminal, timeout = (np.concatenate(found).reshape(-1)[ends] for found in flags.values())
    return {
        "terminal": int(np.sum(terminal & ~timeout)),
        "timeout": int(np.sum(timeout & ~terminal)),
        "both": int(np.sum(terminal & timeout)),
        "cut": int(np.sum(~terminal & ~timeout)),
    }


def _extras(source: Source) -> dict[str, str]:
    return {name: f"{kind.dtype} {list(kind.shape) or ''}".strip() for name, kind in sorted(source.extras.items())}


def _training_bytes(source: Source) -> int:
    """What training keeps on the device: float32 rows and the sampler's tables."""
    return source.rows * (4 * (source.observation.shape[0] + source.action.shape[0]) + INDEX_BYTES)


# ---- warnings --------------------------------------------------------------------------------------------------------


def _warn_episodes(source: Source, jumped: np.ndarray, copies: list[int]) -> list[Warning]:
    found = []
    if len(jumped):
        found.append(
            Warning(
                f"observations jump {len(jumped)} times inside episodes, as at an unmarked reset",
                f"after rows {some(jumped)}",
                "check where episodes end; format='d4rl' with detect_jumps=True cuts there",
            )
        )
    if copies:
        found.append(
            Warning(
                f"{len(copies)} episodes are copies of earlier ones",
                f"episodes {some(copies)}",
                "remove the copies, or know that they count double",
            )
        )
    if source.episodes == 1:
        found.append(
            Warning(
                "there is only one episode",
                f"{source.rows} rows",
                "if it holds several, mark where they end; no episode can be held out for validation",
            )
        )
    median = float(np.median(source.lengths))
    if median < SHORT_EPISODES:
        found.append(
            Warning(
                "episodes are very short, so distances are only seen over a few steps",
                f"half of them have at most {median:.0f} rows",
                "check that the flags mark ends of episodes and not, say, goals reached on the way",
            )
        )
    if source.transitions < FEW_TRANSITIONS:
        found.append(
            Warning(
                "there is very little data",
                f"{source.transitions} transitions",
                "collect more: tens of thousands are the least that a policy learns from",
            )
        )
    return found


def _warn_observations(moments: Moments, twins: list[list[int]]) -> list[Warning]:
    found = []
    if len(moments.constant):
        found.append(
            Warning(
                f"{len(moments.constant)} observation columns never change",
                f"columns {some(moments.constant)}",
                "leave them out to save memory; they do no harm",
            )
        )
    if twins:
        found.append(
            Warning(
                f"{sum(len(group) - 1 for group in twins)} observation columns repeat others",
                "; ".join(" = ".join(str(column) for column in group) for group in twins[:5]),
                "keep one of each",
            )
        )
    scales = moments.deviation[moments.deviation > 0]
    if len(scales) and scales.max() / scales.min() > UNEVEN:
        large, small = int(np.argmax(moments.deviation)), int(np.flatnonzero(moments.deviation == scales.min())[0])
        found.append(
            Warning(
                "observation columns have very different scales",
                f"column {large} deviates by {scales.max():.3g}, column {small} by {scales.min():.3g}",
                "train with normalize=True (--set normalize=true)",
            )
        )
    return found


def _warn_actions(acted: Moments, whole_numbers: bool, rescale: bool) -> list[Warning]:
    found = []
    varied = acted.low < acted.high
    if not varied.all():
        found.append(
            Warning(
                "action columns never change, so nothing can be learnt about them",
                f"columns {some(np.flatnonzero(~varied))}",
                "leave them out, or check what was recorded as the action",
            )
        )
    full = np.flatnonzero(varied & (acted.at_limits > SATURATED))
    if whole_numbers and varied.any():
        found.append(
            Warning(
                "all actions are whole numbers, as numbers of discrete actions are",
                f"{int(acted.low.min())} to {int(acted.high.max())}",
                "hilp needs continuous actions; encode discrete ones as vectors",
            )
        )
    elif len(full):
        found.append(
            Warning(
                "most actions are at their smallest or largest value",
                ", ".join(f"column {c}: {acted.at_limits[c]:.0%}" for c in full[:5]),
                "check that they were not clipped by a wrong scale",
            )
        )
    reach = np.maximum(np.abs(acted.low), np.abs(acted.high))
    if varied.any() and not rescale and reach.max() < NARROW:
        found.append(
            Warning(
                "actions use a small part of [-1, 1]",
                f"none is larger than {reach.max():.3g}",
                "rescale_actions=True / --rescale-actions maps their range to [-1, 1]",
            )
        )
    return found


def _warn_memory(source: Source) -> list[Warning]:
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on this system
        return []
    need = _training_bytes(source)
    if need < memory / 2:
        return []
    return [
        Warning(
            "the data may not fit in memory",
            f"{_size(need)} in training, {_size(memory)} of memory",
            "convert it to a native folder, which is trained on from disk",
        )
    ]


# ---- showing ---------------------------------------------------------------------------------------------------------


def _page(report: Report) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    lengths = report.lengths
    rows = {
        "format": report.format + {None: "", True: ", hashes agree", False: ", HASHES DIFFER"}[report.verified],
        "episodes": f"{report.episodes:,} of {lengths['shortest']:,} to {lengths['longest']:,} rows "
        f"(median {lengths['median']:,.0f})",
        "transitions": f"{report.transitions:,}",
        "observations": f"{report.observation_dim} numbers",
        "actions": f"{report.action_dim} numbers",
        "extras": ", ".join(f"{name} ({about})" for name, about in report.extras.items()) or "none",
        "episodes end": ", ".join(f"{n:,} {how}" for how, n in report.endings.items() if n)
        or "the data does not say how",
        "size": f"{_size(report.disk_bytes) if report.disk_bytes else 'none'} on disk, "
        f"{_size(report.training_bytes)} in training",
    }
    for name, text in rows.items():
        facts.add_row(name, Text(text))
    parts: list[Any] = [Text(report.name, style="bold underline"), facts, Text(), Text("lengths in rows", style="bold")]
    parts += _histogram(lengths["edges"], lengths["counts"])
    for title, columns in (("observations", report.observations), ("actions", report.actions)):
        if columns:
            parts += [Text(), _column_table(title, columns, report)]
    parts.append(Text())
    parts += [Text(f"note: {note}", style="dim") for note in report.notes]
    for warning in report.warnings:
        parts.append(Text.assemble(("warning: ", "yellow bold"), f"{warning.what} ({warning.where})"))
        parts.append(Text(f"         {warning.do}"))
    parts += [Text.assemble(("error: ", "red bold"), error) for error in report.errors]
    verdict = ("can be trained on", "green bold") if report.trainable else ("cannot be trained on", "red bold")
    parts.append(Text(*verdict))
    return Group(*parts)


def _histogram(edges: Sequence[float], counts: Sequence[int]) -> list[Any]:
    from rich.text import Text

    most = max(counts, default=0)
    lines = []
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        first, last = int(np.ceil(low)), int(np.ceil(high)) - 1
        label = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        lines.append(Text.assemble(f"{label:>17} ", ("█" * round(30 * count / most), "cyan"), f" {count:,}"))
    return lines


def _column_table(title: str, columns: list[ColumnStats], report: Report) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2))
    for name in ("column", "low", "high", "mean", "deviation", "at limits"):
        table.add_column(name, justify="right")
    for stats in columns[:SHOWN_COLUMNS]:
        numbers = [f"{value:.4g}" for value in (stats.low, stats.high, stats.mean, stats.deviation)]
        constant = " constant" if stats.low == stats.high else ""
        table.add_row(str(stats.column), *numbers, f"{stats.at_limits:.1%}{constant}")
    total = report.observation_dim if title == "observations" else report.action_dim
    if total > SHOWN_COLUMNS:
        table.caption = f"and {total - SHOWN_COLUMNS} more"
    return table


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def _picture(report: Report) -> Figure:
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from hilp.report import figures

    if not report.paths:
        raise HilpError(f"{report.name} has no episodes to draw")
    flat, labels = _plane(report.paths)
    figure = Figure(figsize=(9.2, 4.4), layout="constrained", facecolor="white")
    plane, lengths = figure.subplots(1, 2, width_ratios=(1.25, 1))
    for number, path in enumerate(flat):
        colour = figures.PALETTE[number % len(figures.PALETTE)]
        plane.add_collection(LineCollection([path], colors=colour, linewidths=0.9, alpha=0.8))
        plane.plot(*path[0], "o", mfc="white", mec=colour, ms=4, mew=1.0)
    plane.autoscale_view()
    plane.set_xlabel(labels[0])
    plane.set_ylabel(labels[1])
    edges, counts = report.lengths["edges"], report.lengths["counts"]
    lengths.bar(edges[:-1], counts, np.diff(edges), align="edge", color=figures.BLUE, edgecolor="white", linewidth=0.6)
    margin = max(2.0, 0.05 * (edges[-1] - edges[0]))
    lengths.set_xlim(edges[0] - margin, edges[-1] + margin)
    lengths.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    lengths.set_xlabel("rows of an episode")
    lengths.set_ylabel("episodes")
    titles = (f"{len(flat)} of {report.episodes:,} episodes, starts marked", f"{report.transitions:,} transitions")
    for axes, title in zip((plane, lengths), titles, strict=True):
        axes.set_title(title, loc="left", fontsize=figures.TITLE_SIZE, fontweight="bold", color=figures.INK)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=figures.SOFT, labelsize=figures.SMALL_SIZE)
        axes.grid(color=figures.LINE, linewidth=0.7)
        axes.set_axisbelow(True)
    return figure


def _plane(paths: list[np.ndarray]) -> tuple[list[np.ndarray], tuple[str, str]]:
    """Each path in two dimensions: the two there are, or the two directions of most variance of scaled columns."""
    rows = np.nan_to_num(np.concatenate(paths).astype(np.float64), posinf=0.0, neginf=0.0)
    edges = np.cumsum([len(path) for path in paths])[:-1]
    if rows.shape[1] <= 2:
        rows = np.hstack([rows, np.zeros((len(rows), 2 - rows.shape[1]))])
        return np.split(rows, edges), ("column 0", "column 1")
    deviation = rows.std(axis=0)
    scaled = (rows - rows.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    axes = np.linalg.eigh(scaled.T @ scaled / len(scaled))[1][:, ::-1][:, :2]
    return np.split(scaled @ axes, edges), ("first principal direction", "second principal direction")
