"""Inspect: what to know of a data set before training on it. One pass, block by block, whatever the format; a second
one for jumps where angles wrap.

Errors are what training would refuse. Warnings are what may hurt: what was seen, where, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from hilp.data import advice, load
from hilp.data.advice import Seen, Warning
from hilp.data.angles import Wrapped, Wraps
from hilp.data.checks import HealthCheck, structural_problems
from hilp.data.columns import row_bytes
from hilp.data.jumps import StepSizes, jumps
from hilp.data.measures import (
    MOST_COLUMNS,
    ColumnHashes,
    ColumnStats,
    EpisodeHashes,
    Moments,
    Paths,
    Stills,
    action_names,
    column_names,
    vector_parts,
    vectors,
)
from hilp.data.source import Kind, Source
from hilp.data.tables import endings
from hilp.data.timescale import Sample, TimeScale
from hilp.data.transforms import ObservationTransform
from hilp.errors import size_text

BINS = 12

Progress = Callable[[str, int, int], None]  # what is being done, how much of it is done, how much there is


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
    images: dict[str, str]  # parts of named observations that are no vectors: name -> type, shape and bytes of a row
    actions: list[ColumnStats]
    extras: dict[str, str]  # name -> type and shape of a row
    jumps: int  # discontinuities inside episodes
    duplicate_episodes: int
    disk_bytes: int
    training_bytes: int
    verified: bool | None  # hashes agree; None where the format has none
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
) -> Report:
    """Look at whatever `load` takes, with the same options.

    Data that can be read but not trained on is a report with errors; data that cannot be read is a HilpError.
    `verify` compares the files of a native folder with their hashes.
    """
    opened = load.open_source(source, format, **options)
    damages = opened.damages() if verify and opened.damages is not None else None
    return _examine(opened, rescale_actions, damages, progress)


def _examine(source: Source, rescale: bool, damages: list[str] | None, progress: Progress | None) -> Report:
    structural = structural_problems(source)
    flat = [kind for kind in (source.observation, source.action) if isinstance(kind, Kind)]
    readable = not any(len(kind.shape) != 1 or not kind.shape[0] for kind in flat)
    if not source.episodes or not source.rows or not readable:
        return _empty(source, [*(damages or []), *structural], None if damages is None else not damages)
    parts = vector_parts(source.observation)
    names = column_names(source)
    health, steps, hashes, paths = HealthCheck(source), StepSizes(), EpisodeHashes(), Paths(source)
    pace, stills = Sample(source.lengths), Stills(source)
    wraps = Wraps(source, len(parts)) if len(parts) <= MOST_COLUMNS else None
    moments, acted = Moments(len(parts)), Moments(source.action.shape[0])
    columns = ColumnHashes(len(parts)) if len(parts) <= MOST_COLUMNS else None
    whole_numbers = True
    flags: dict[str, list[np.ndarray]] = {"terminations": [], "truncations": []}
    for first, block in source.blocks():
        used = health.add(first, block)
        acted.add(used)
        whole_numbers &= bool(np.array_equal(used, np.round(used)))
        rows = vectors(block.observations)
        moments.add(rows)
        seen_rows = rows if source.transform is None else source.transform(rows)
        steps.add(seen_rows)
        paths.add(first, rows)
        stills.add(first, block)
        pace.add(first, seen_rows)
        hashes.add(block, health.last_rows(first, len(block.actions)))
        if columns is not None:
            columns.add(first, rows)
        if wraps is not None:
            wraps.add(first, rows)
        for name, found in flags.items():
            if name in block.extras:
                found.append(block.extras[name].astype(bool))
        if progress:
            progress("looking", first + len(block.actions), source.rows)

    inside = np.ones(source.rows - 1, bool)
    inside[source.stops[:-1] - 1] = False
    twins = [] if columns is None else columns.twins(apart_from=moments.constant)
    seen = Seen.of(source, len(parts))
    wrapped = [] if wraps is None else [angle for angle in wraps.found() if angle.column in seen.columns - seen.angles]
    jumped = jumps(_sizes_with_angles(source, wrapped, len(parts)) if wrapped else steps.sizes, inside)
    copies = hashes.copies()
    errors = [*(damages or []), *structural, *health.problems(rescale)]
    warnings = [
        *advice.about_episodes(source, jumped, copies),
        *advice.about_observations(moments, twins, names, seen),
        *advice.about_angles(wrapped, names),
        *advice.about_actions(acted, action_names(source), whole_numbers, rescale),
        *advice.about_memory(source),
    ]
    return Report(
        name=source.name,
        format=source.format,
        episodes=source.episodes,
        transitions=source.transitions,
        observation_dim=source.observation_dim,
        action_dim=source.action.shape[0],
        trainable=not errors,
        errors=errors,
        warnings=warnings,
        notes=list(source.notes),
        lengths=_lengths(source.lengths),
        endings=_endings(source, flags),
        observations=moments.stats(parts, names),
        images=_images(source),
        actions=acted.stats(names=action_names(source)),
        extras=_extras(source),
        jumps=len(jumped),
        duplicate_episodes=len(copies),
        disk_bytes=source.disk_bytes,
        training_bytes=advice.training_bytes(source),
        verified=None if damages is None else not damages,
        time_scale=pace.result(),
        paths=paths.result(),
        stills=stills.result(),
    )


def _sizes_with_angles(source: Source, wrapped: list[Wrapped], width: int) -> np.ndarray:
    """The sizes of steps with these columns as the angles that they are: a wrap, told as such, is no jump."""
    transform = source.transform or ObservationTransform(width, tuple(range(width)))
    angles = {**dict(transform.angles), **{angle.column: angle.period for angle in wrapped}}
    transform = replace(transform, angles=tuple(sorted(angles.items())))
    steps = StepSizes()
    for _, block in source.blocks():
        steps.add(transform(vectors(block.observations)))
    return steps.sizes


def _empty(source: Source, errors: list[str], verified: bool | None) -> Report:
    return Report(
        name=source.name,
        format=source.format,
        episodes=source.episodes,
        transitions=max(0, source.transitions),
        observation_dim=source.observation_dim,
        action_dim=int(np.prod(source.action.shape)),
        trainable=False,
        errors=errors,
        warnings=[],
        notes=list(source.notes),
        lengths=_lengths(source.lengths),
        endings=dict(source.endings),
        observations=[],
        images=_images(source),
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
    terminal, timeout = (np.concatenate(found).reshape(-1) for found in flags.values())
    return endings(ends, terminal, timeout)


def _images(source: Source) -> dict[str, str]:
    kinds = {} if isinstance(source.observation, Kind) else source.observation
    return {
        name: f"{kind.dtype} {list(kind.shape)}, {size_text(row_bytes((1, *kind.shape), kind.dtype))} a row"
        for name, kind in sorted(kinds.items())
        if len(kind.shape) > 1
    }


def _extras(source: Source) -> dict[str, str]:
    return {name: f"{kind.dtype} {list(kind.shape) or ''}".strip() for name, kind in sorted(source.extras.items())}
