"""Inspect: what to know of a data set before training on it, and the page that says it.

One pass, block by block, whatever the format; a second one for jumps where angles wrap. Errors are what training would
refuse. Warnings are what may hurt: what was found, where, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.data import advice, load
from hilp.data.advice import Warning
from hilp.data.checks import HealthCheck, structural_problems
from hilp.data.columns import row_bytes
from hilp.data.measures import (
    MOST_COLUMNS,
    ColumnHashes,
    ColumnStats,
    EpisodeHashes,
    KeptEpisodes,
    KeptRows,
    Moments,
    StepSizes,
    Wrapped,
    Wraps,
    action_names,
    column_names,
    jumps,
    vector_parts,
    vectors,
)
from hilp.data.source import Block, Kind, Source
from hilp.data.tables import endings
from hilp.data.timescale import Sample, TimeScale
from hilp.data.transforms import ObservationTransform
from hilp.errors import size_text

if TYPE_CHECKING:
    from rich.console import Group

BINS = 12
SHOWN_COLUMNS = 24  # on the page; all of them are in the JSON
SHOWN_EPISODES, SHOWN_ROWS = 24, 400  # in the picture
STILL_EPISODES, STILLS = 4, 12  # whose pictures are shown, and how many of each
FLAGS = ("terminations", "truncations")

Progress = Callable[[str, int, int], None]  # what is being done, how much of it is done, how much there is


@dataclass(frozen=True)
class AuditReport:
    """What `inspect` found."""

    name: str
    format: str
    episodes: int
    transitions: int
    observation_dim: int
    action_dim: int
    trainable: bool
    errors: list[str]
    notes: list[str]
    lengths: dict[str, Any]  # shortest, median, longest; edges and counts of a histogram; in rows
    endings: dict[str, int]
    images: dict[str, str]  # parts of named observations that are no vectors: name -> type, shape and bytes of a row
    extras: dict[str, str]  # name -> type and shape of a row
    disk_bytes: int
    verified: bool | None  # hashes agree; None where the format has none
    warnings: list[Warning] = field(default_factory=list)
    observations: list[ColumnStats] = field(default_factory=list)
    actions: list[ColumnStats] = field(default_factory=list)
    jumps: int = 0  # discontinuities inside episodes
    duplicate_episodes: int = 0
    training_bytes: int = 0
    time_scale: TimeScale | None = None  # None where there are no rows to tell
    paths: list[np.ndarray] = field(repr=False, default_factory=list)  # some episodes, for the picture
    stills: list[tuple[str, np.ndarray]] = field(repr=False, default_factory=list)  # pictures of some, likewise

    @property
    def exit_code(self) -> int:
        """0 when the data can be trained on, else 1."""
        return 0 if self.trainable else 1

    def to_json(self) -> dict[str, Any]:
        """Everything but the picture, for `json.dumps`."""
        return {key: value for key, value in asdict(self).items() if key not in ("paths", "stills")}


def inspect(
    source: Any,
    format: str | None = None,
    *,
    rescale_actions: bool = False,
    verify: bool = True,
    progress: Progress | None = None,
    **options: Any,
) -> AuditReport:
    """Look at whatever `load` takes, with the same options.

    Data that can be read but not trained on is a report with errors; data that cannot be read is a HilpError.
    `verify` compares the files of a native folder with their hashes.
    """
    opened = load.open_source(source, format, **options)
    damages = opened.damages() if verify and opened.damages is not None else None
    report = _outline(opened, damages)
    flat = [kind for kind in (opened.observation, opened.action) if isinstance(kind, Kind)]
    if not opened.episodes or not opened.rows or any(len(kind.shape) != 1 or not kind.shape[0] for kind in flat):
        return report
    return _Audit(opened).report(report, rescale_actions, progress or (lambda *step: None))


def _outline(opened: Source, damages: list[str] | None) -> AuditReport:
    """What is known before any row is read."""
    return AuditReport(
        name=opened.name,
        format=opened.format,
        episodes=opened.episodes,
        transitions=max(0, opened.transitions),
        observation_dim=opened.observation_dim,
        action_dim=int(np.prod(opened.action.shape)),
        trainable=False,
        errors=[*(damages or []), *structural_problems(opened)],
        notes=list(opened.notes),
        lengths=_lengths(opened.lengths),
        endings=dict(opened.endings),
        images=_images(opened),
        extras={n: f"{kind.dtype} {list(kind.shape) or ''}".strip() for n, kind in sorted(opened.extras.items())},
        disk_bytes=opened.disk_bytes,
        verified=None if damages is None else not damages,
    )


class _Audit:
    """Everything that is measured in one pass over a source with rows."""

    def __init__(self, source: Source):
        self.source = source
        self.parts = vector_parts(source.observation)
        width = len(self.parts)
        self.health, self.hashes = HealthCheck(source), EpisodeHashes()
        self.moments, self.acted = Moments(width), Moments(source.action.shape[0])
        self.steps, self.sample = StepSizes(), Sample(source.lengths)
        self.pace, self.paths = KeptRows(self.sample.rows), KeptEpisodes(source, SHOWN_EPISODES, SHOWN_ROWS)
        kinds = {} if isinstance(source.observation, Kind) else source.observation
        pictures = [name for name, kind in kinds.items() if kind.dtype == np.uint8 and len(kind.shape) == 3]
        self.stills = {name: KeptEpisodes(source, STILL_EPISODES, STILLS) for name in pictures}
        # Comparing columns one by one is for numbers, not for flattened images.
        self.columns = ColumnHashes(width) if width <= MOST_COLUMNS else None
        self.wraps = Wraps(source, width) if width <= MOST_COLUMNS else None
        self.whole_numbers = True
        # A reader may say how episodes end; else columns of flags a row before the last do.
        told = not source.endings and all(name in source.extras for name in FLAGS)
        self.flags = {name: KeptRows(source.stops[source.lengths >= 2] - 2) for name in FLAGS if told}

    def add(self, first: int, block: Block) -> None:
        used = self.health.add(first, block)
        self.acted.add(used)
        self.whole_numbers &= bool(np.array_equal(used, np.round(used)))
        self.hashes.add(block, self.source.last_rows(first, len(block.actions)))
        for name, stills in self.stills.items():
            stills.add(first, block.observations[name])
        rows = vectors(block.observations)
        inputs = rows if self.source.transform is None else self.source.transform(rows)
        self.steps.add(inputs)
        self.moments.add(rows)
        for by_row, values in ((self.pace, inputs), (self.paths, rows), (self.columns, rows), (self.wraps, rows)):
            if by_row is not None:
                by_row.add(first, values)
        for name, flags in self.flags.items():
            flags.add(first, block.extras[name])

    def report(self, known: AuditReport, rescale: bool, progress: Progress) -> AuditReport:
        source, names, acts = self.source, column_names(self.source), action_names(self.source)
        for first, block in source.blocks():
            self.add(first, block)
            progress("looking", first + len(block.actions), source.rows)
        width = len(self.parts)
        transform = source.transform or ObservationTransform(width, tuple(range(width)))
        angles = set(transform.columns) - {column for column, _ in transform.angles}
        wrapped = (
            [] if self.wraps is None else [angle for angle in self.wraps.found(self.moments) if angle.column in angles]
        )
        twins = [] if self.columns is None else self.columns.twins(apart_from=self.moments.constant)
        inside = np.ones(source.rows - 1, bool)
        inside[source.stops[:-1] - 1] = False
        jumped = jumps(_sizes_with_angles(source, wrapped, transform) if wrapped else self.steps.sizes, inside)
        copies = self.hashes.copies()
        flags = [kept.result().reshape(-1).astype(bool) for kept in self.flags.values()]
        errors = [*known.errors, *self.health.problems(rescale)]
        warnings = [
            *advice.about_episodes(source, jumped, copies),
            *advice.about_observations(self.moments, twins, names, transform.columns),
            *advice.about_angles(wrapped, names),
            *advice.about_actions(self.acted, acts, self.whole_numbers, rescale),
            *advice.about_memory(source),
        ]
        return replace(
            known,
            trainable=not errors,
            errors=errors,
            warnings=warnings,
            endings=endings(slice(None), *flags) if flags else dict(source.endings),
            observations=self.moments.stats(self.parts, names),
            actions=self.acted.stats(names=acts),
            jumps=len(jumped),
            duplicate_episodes=len(copies),
            training_bytes=advice.training_bytes(source),
            time_scale=self.sample.measured(self.pace.result()),
            paths=[rows.astype(np.float32) for rows in self.paths.by_episode().values()],
            stills=self._stills(),
        )

    def _stills(self) -> list[tuple[str, np.ndarray]]:
        several = len(self.stills) > 1
        return [
            (f"{name}, episode {episode}" if several else f"episode {episode}", rows)
            for name, stills in self.stills.items()
            for episode, rows in stills.by_episode().items()
        ]


def _sizes_with_angles(source: Source, wrapped: list[Wrapped], transform: ObservationTransform) -> np.ndarray:
    """The sizes of steps with these columns as the angles that they are: a wrap is no jump."""
    angles = {**dict(transform.angles), **{angle.column: angle.period for angle in wrapped}}
    transform = replace(transform, angles=tuple(sorted(angles.items())))
    steps = StepSizes()
    for _, block in source.blocks():
        steps.add(transform(vectors(block.observations)))
    return steps.sizes


def _lengths(lengths: np.ndarray) -> dict[str, Any]:
    if not len(lengths):
        return {"shortest": 0, "median": 0.0, "longest": 0, "edges": [], "counts": []}
    low, high = int(lengths.min()), int(lengths.max())
    counts, edges = np.histogram(lengths, max(1, min(BINS, high - low + 1)), (low, high + 1))
    histogram = {"edges": edges.astype(float).tolist(), "counts": counts.tolist()}
    return {"shortest": low, "median": float(np.median(lengths)), "longest": high, **histogram}


def _images(source: Source) -> dict[str, str]:
    kinds = {} if isinstance(source.observation, Kind) else source.observation
    return {
        name: f"{kind.dtype} {list(kind.shape)}, {size_text(row_bytes((1, *kind.shape), kind.dtype))} a row"
        for name, kind in sorted(kinds.items())
        if len(kind.shape) > 1
    }


# ---- the page --------------------------------------------------------------------------------------------------------


def render(report: AuditReport) -> Group:
    """The report for a rich console."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    summary = Table.grid(padding=(0, 2))
    summary.add_column(style="bold")
    summary.add_column(overflow="fold")
    for name, text in _summary(report).items():
        summary.add_row(name, Text(text))
    parts: list[Any] = [Text(report.name, style="bold underline"), summary, Text()]
    parts.append(Text("lengths in rows", style="bold"))
    parts += _histogram(report.lengths["edges"], report.lengths["counts"])
    for title, columns in (("observations", report.observations), ("actions", report.actions)):
        if columns:
            parts += [Text(), _column_table(title, columns, report)]
    parts += [Text(f"{name}: {about}") for name, about in report.images.items()]
    parts.append(Text())
    parts += [Text(f"note: {note}", style="dim") for note in report.notes]
    for warning in report.warnings:
        parts.append(Text.assemble(("warning: ", "yellow bold"), f"{warning.what} ({warning.where})"))
        parts.append(Text(f"         {warning.do}"))
    parts += [Text.assemble(("error: ", "red bold"), error) for error in report.errors]
    verdict = ("can be trained on", "green bold") if report.trainable else ("cannot be trained on", "red bold")
    return Group(*parts, Text(*verdict))


def _summary(report: AuditReport) -> dict[str, str]:
    lengths = report.lengths
    lines = {
        "format": report.format + {None: "", True: ", hashes agree", False: ", HASHES DIFFER"}[report.verified],
        "episodes": f"{report.episodes:,} of {lengths['shortest']:,} to {lengths['longest']:,} rows "
        f"(median {lengths['median']:,.0f})",
        "transitions": f"{report.transitions:,}",
        "observations": f"{report.observation_dim} numbers",
        "actions": f"{report.action_dim} numbers",
        "extras": ", ".join(f"{name} ({about})" for name, about in report.extras.items()) or "none",
        "episodes end": ", ".join(f"{n:,} {how}" for how, n in report.endings.items() if n)
        or "the data does not say how",
        "size": f"{size_text(report.disk_bytes) if report.disk_bytes else 'none'} on disk, "
        f"{size_text(report.training_bytes)} in training",
    }
    if report.time_scale is not None:
        lines["time scale"] = report.time_scale.line.removeprefix("time scale: ")
    return lines


def _histogram(edges: Sequence[float], counts: Sequence[int]) -> list[Any]:
    from rich.text import Text

    most = max(counts, default=0)
    lines = []
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        first, last = int(np.ceil(low)), int(np.ceil(high)) - 1
        label = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        lines.append(Text.assemble(f"{label:>17} ", ("█" * round(30 * count / most), "cyan"), f" {count:,}"))
    return lines


def _column_table(title: str, columns: list[ColumnStats], report: AuditReport) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2))
    for name in ("column", "low", "high", "mean", "deviation", "at limits"):
        table.add_column(name, justify="right")
    for stats in columns[:SHOWN_COLUMNS]:
        numbers = [f"{value:.4g}" for value in (stats.low, stats.high, stats.mean, stats.deviation)]
        constant = " constant" if stats.low == stats.high else ""
        table.add_row(stats.name, *numbers, f"{stats.at_limits:.1%}{constant}")
    total = report.observation_dim if title == "observations" else report.action_dim
    total = len(columns) if report.images else total  # images have a line of their own
    if total > SHOWN_COLUMNS:
        table.caption = f"and {total - SHOWN_COLUMNS} more"
    return table
