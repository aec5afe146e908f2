"""Inspect: what to know of a data set before training on it.

One pass, block by block, whatever the format; a second one for jumps where angles wrap. Errors are what training would
refuse. Warnings are what may hurt: what was found, where, and what to do about it.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from hilp import trees
from hilp.data import load, measures
from hilp.data.chance import Chance, KeptSteps
from hilp.data.checks import HealthCheck, structural_problems, time_gaps
from hilp.data.columns import row_bytes
from hilp.data.discrete import MOST_TOLD
from hilp.data.dynamics import NOTHING, Dynamics, advised
from hilp.data.source import Kind, Rows, Source, gather, physical_memory, training_bytes
from hilp.data.source import of_dataset as as_source
from hilp.data.tables import TIME, endings
from hilp.data.timescale import AUTO, Sample, TimeScale, of_dataset, require_stride, subsample, usual_step
from hilp.data.transforms import ObservationTransform, one_hot
from hilp.errors import HilpError, counted, size_text, some

BINS = 12
SHOWN_EPISODES, SHOWN_ROWS = 24, 400  # in the picture
STILL_EPISODES, STILLS = 4, 12  # whose pictures are shown, and how many of each
FLAGS = ("terminations", "truncations")
SATURATED = 0.5  # share of actions at their smallest or largest value that deserves a warning
NARROW = 0.1  # actions that never leave this part of [-1, 1] deserve one
FEW_TRANSITIONS = 1000
SHORT_EPISODES = 10  # rows
LITTLE, UNEXPLAINED = 0.3, 0.1  # shares of changes, of all columns and of one, that deserve a warning
UNEVEN = 1e4  # ratio of the scales of two observation columns
MOST_NAMED = 5  # columns in a flag that is advised
CUT_AT_JUMPS = ("arrays", "npz", "hdf5", "d4rl")  # what the reader that cuts there takes


@dataclass(frozen=True)
class Warning:
    """Something that may hurt."""

    what: str
    where: str
    do: str

    def __str__(self) -> str:
        return f"{self.what} ({self.where}): {self.do}"


@dataclass(frozen=True)
class AuditReport:
    """What `inspect` found."""

    name: str
    format: str
    episodes: int
    transitions: int
    observation_dim: int
    action_dim: int
    choices: int  # of discrete actions; 0: they are continuous
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
    observations: list[measures.ColumnStats] = field(default_factory=list)
    actions: list[measures.ColumnStats] = field(default_factory=list)
    jumps: int = 0  # discontinuities inside episodes
    duplicate_episodes: int = 0
    training_bytes: int = 0
    time_scale: TimeScale | None = None  # None where there are no rows to tell
    targets: dict[str, str] = field(default_factory=dict)  # action -> observation column that it is a target for
    chance: Chance = field(default_factory=Chance)  # how much it decides
    explained: float | None = None  # share of the changes in a step that state and action explain, a mean over columns
    explained_by_past: dict[int, float] = field(default_factory=dict)  # the same by how many of the last rows are known
    paths: list[np.ndarray] = field(repr=False, default_factory=list)  # some episodes, for the picture
    stills: list[tuple[str, np.ndarray]] = field(repr=False, default_factory=list)  # pictures of some, likewise

    def to_json(self) -> dict[str, Any]:
        """Everything but the picture, for `json.dumps`."""
        return {key: value for key, value in asdict(self).items() if key not in ("paths", "stills")}


def inspect(
    source: Any,
    format: str | None = None,
    *,
    rescale_actions: bool = False,
    verify: bool = True,
    stride: int | str | None = None,
    **options: Any,
) -> AuditReport:
    """Look at whatever `load` takes, with the same options; with a stride, in memory, at the rows that it keeps.

    Data that can be read but not trained on is a report with errors; data that cannot be read is a HilpError.
    `verify` compares the files of a native folder with their hashes.
    """
    opened = load.open_source(source, format, **options)
    if stride is not None:
        opened = _strided(opened, stride)
    if rescale_actions:
        load.require_to_rescale(opened)
    damages = opened.damages() if verify and opened.damages is not None else None
    report = AuditReport(
        name=opened.name,
        format=opened.format,
        episodes=opened.episodes,
        transitions=max(0, opened.transitions),
        observation_dim=opened.observation_dim,
        action_dim=int(np.prod(opened.action.shape)),
        choices=opened.choices,
        trainable=False,
        errors=[*(damages or []), *structural_problems(opened)],
        notes=list(opened.notes),
        lengths=_lengths(opened.lengths),
        endings=dict(opened.endings),
        images=_images(opened),
        extras={name: str(kind) for name, kind in sorted(opened.extras.items())},
        disk_bytes=opened.disk_bytes,
        verified=None if damages is None else not damages,
    )
    flat = [kind for kind in (opened.observation, opened.action) if isinstance(kind, Kind)]
    if not opened.rows or any(len(kind.shape) != 1 or not kind.shape[0] for kind in flat):
        return report
    return _Audit(opened).report(report, rescale_actions)


def _strided(source: Source, stride: int | str) -> Source:
    data, wanted = gather(source), require_stride(stride)
    steps = of_dataset(data).stride if wanted == AUTO else wanted
    return as_source(subsample(data, int(steps or 1)))


def _images(source: Source) -> dict[str, str]:
    parts = {} if isinstance(source.observation, Kind) else source.observation
    return {
        name: f"{kind}, {size_text(row_bytes((1, *kind.shape), kind.dtype))} a row"
        for name, kind in sorted(parts.items())
        if len(kind.shape) > 1
    }


class _Audit:
    """Everything that is measured in one pass over a source with rows."""

    def __init__(self, source: Source):
        self.source = source
        self.labels = measures.column_labels(source)
        width = len(self.labels)
        self.health, self.hashes = HealthCheck(source), measures.EpisodeHashes()
        self.moments, self.steps, self.sample = measures.Moments(width), measures.StepSizes(), Sample(source.lengths)
        self.pace = measures.KeptRows(self.sample.rows)
        self.paths = measures.KeptRows(*measures.spread(source, SHOWN_EPISODES, SHOWN_ROWS))
        kinds = {} if isinstance(source.observation, Kind) else source.observation
        pictures = [name for name, kind in kinds.items() if kind.dtype == np.uint8 and len(kind.shape) == 3]
        self.stills = {name: measures.KeptRows(*measures.spread(source, STILL_EPISODES, STILLS)) for name in pictures}
        # Comparing columns one by one is for numbers, not for flattened images: those count as none.
        self.compared = width if width <= measures.MOST_COLUMNS else 0
        self.columns, self.wraps = measures.ColumnHashes(self.compared), measures.Wraps(source, self.compared)
        self.whole_numbers = True
        self.dynamics = Dynamics(source)
        self.chance = KeptSteps(source, self.compared and width + (source.choices or source.action.shape[0]))
        self.timed = TIME in source.extras and int(np.prod(source.extras[TIME].shape)) == 1
        self.times: list[np.ndarray] = []
        # A reader may say how episodes end; else columns of flags a row before the last do.
        told = not source.endings and all(name in source.extras for name in FLAGS)
        self.flags = {name: measures.KeptRows(source.stops[source.lengths >= 2] - 2) for name in FLAGS if told}

    def add(self, first: int, block: Rows) -> None:
        used = self.health.add(first, block)
        self.whole_numbers &= bool(np.array_equal(used, np.round(used)))
        self.hashes.add(block, self.source.last_rows(first, len(block["actions"])))
        rows = measures.vectors(trees.unnamed(block, "observations"))
        inputs = rows if self.source.transform is None else self.source.transform(rows)
        self.steps.add(inputs)
        self.moments.add(rows)
        self.pace.add(first, inputs)
        self.paths.add(first, rows)
        if self.compared:
            acted = block["actions"]
            acted = one_hot(acted, self.source.choices) if self.source.choices else acted
            self.dynamics.add(first, rows, acted)
            self.chance.add(first, rows, acted)
            self.columns.add(first, rows)
            self.wraps.add(first, rows)
        for name, stills in self.stills.items():
            stills.add(first, block[f"observations/{name}"])
        for name, flags in self.flags.items():
            flags.add(first, block[f"extra.{name}"])
        if self.timed:
            self.times.append(np.array(block[f"extra.{TIME}"].reshape(-1), np.float64))

    def report(self, known: AuditReport, rescale: bool) -> AuditReport:
        source, names = self.source, [name for _, _, name in self.labels]
        acts = measures.names_of(source.action_parts, source.action.shape[0])
        for first, block in source.blocks():
            self.add(first, block)
        transform = source.view(len(names))
        plain = set(transform.columns) - {column for column, _ in transform.angles}
        wrapped = [angle for angle in self.wraps.found(self.moments) if angle.column in plain] if self.compared else []
        twins = self.columns.twins({*transform.columns[: self.compared]}.difference(self.moments.constant))
        inside = np.ones(source.rows - 1, bool)
        inside[source.stops[:-1] - 1] = False
        jumped = measures.jumps(_sizes_with_angles(source, wrapped, transform) if wrapped else self.steps.sizes, inside)
        copies = self.hashes.copies()
        times = np.concatenate(self.times) if self.timed else None
        flags = [kept.result().reshape(-1).astype(bool) for kept in self.flags.values()]
        errors = [*known.errors, *self.health.problems(rescale)]
        periods = {**dict(transform.angles), **{angle.column: angle.period for angle in wrapped}}
        targets, explained, past = self.dynamics.measured(periods.items()) if self.compared else NOTHING
        return replace(
            known,
            trainable=not errors,
            errors=errors,
            warnings=[
                *about_episodes(source, jumped, copies),
                *about_time(source, times, inside),
                *about_observations(self.moments, twins, names, transform.columns),
                *about_angles(wrapped, names),
                *about_dynamics(explained, names),
                *about_past(past),
                *about_actions(self.health.acted, acts, self.whole_numbers, rescale, source.choices),
                *about_memory(source),
            ],
            endings=endings(slice(None), *flags) if flags else dict(source.endings),
            observations=self.moments.stats(self.labels),
            actions=self.health.acted.stats([(n, "", name) for n, name in enumerate(acts)]),
            jumps=len(jumped),
            duplicate_episodes=len(copies),
            training_bytes=training_bytes(source),
            time_scale=self.sample.measured(self.pace.result(), usual_step(times, inside)),
            targets={} if source.choices else {acts[a]: names[column] for a, column in targets.items()},
            chance=self.chance.measured(periods.items()),
            explained=None if np.isnan(explained).all() else float(np.nanmean(explained)),
            explained_by_past=past,
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


def _sizes_with_angles(source: Source, wrapped: list[measures.Wrapped], transform: ObservationTransform) -> np.ndarray:
    """The sizes of steps with these columns as the angles that they are: a wrap is no jump."""
    angles = {**dict(transform.angles), **{angle.column: angle.period for angle in wrapped}}
    transform = replace(transform, angles=tuple(sorted(angles.items())))
    steps = measures.StepSizes()
    for _, block in source.blocks():
        steps.add(transform(measures.vectors(trees.unnamed(block, "observations"))))
    return steps.sizes


def _lengths(lengths: np.ndarray) -> dict[str, Any]:
    if not len(lengths):
        return {"shortest": 0, "median": 0.0, "longest": 0, "edges": [], "counts": []}
    low, high = int(lengths.min()), int(lengths.max())
    counts, edges = np.histogram(lengths, max(1, min(BINS, high - low + 1)), (low, high + 1))
    histogram = {"edges": edges.astype(float).tolist(), "counts": counts.tolist()}
    return {"shortest": low, "median": float(np.median(lengths)), "longest": high, **histogram}


def about_episodes(source: Source, jumped: np.ndarray, copies: list[int]) -> Iterator[Warning]:
    if len(jumped):
        cuts = "; format='d4rl' with detect_jumps=True cuts there" if source.format in CUT_AT_JUMPS else ""
        yield Warning(
            f"observations jump {len(jumped)} times inside episodes, as at an unmarked reset",
            f"after {source.where(jumped)}",
            f"check where episodes end and whether angles wrap{cuts}",
        )
    if copies:
        yield Warning(
            f"{len(copies)} episodes are copies of earlier ones",
            f"episodes {some(copies, 5)}",
            "remove the copies, or know that they count double",
        )
    if source.episodes == 1:
        yield Warning(
            "there is only one episode",
            f"{source.rows} rows",
            "if it holds several, mark where they end; no episode can be held out for validation",
        )
    median = float(np.median(source.lengths))
    if median < SHORT_EPISODES:
        yield Warning(
            "episodes are very short, so distances are only seen over a few steps",
            f"half of them have at most {median:.0f} rows",
            "check that the flags mark ends of episodes and not, say, goals reached on the way",
        )
    if source.transitions < FEW_TRANSITIONS:
        yield Warning(
            "there is very little data",
            f"{source.transitions} transitions",
            "collect more: tens of thousands are the least that a policy learns from",
        )


def about_time(source: Source, times: np.ndarray | None, inside: np.ndarray) -> Iterator[Warning]:
    """inside: steps that are not from one episode to the next."""
    if times is None or not inside.any():
        return
    try:
        gaps, longest, usual = time_gaps(source, times, np.append(inside, False))
    except HilpError as error:  # about the column as a whole
        yield Warning("the time column says nothing about gaps", str(error), "repair it, or leave it out")
        return
    if len(gaps):
        yield Warning(
            f"time has {counted(len(gaps), 'gap')} inside episodes",
            f"after {source.where(gaps)}; a step is usually {usual:.4g}, in a gap more than {longest:.4g} or negative",
            "split='gap' / --split gap ends episodes there",
        )


def about_observations(
    moments: measures.Moments, twins: list[list[int]], names: Sequence[str], visible: Collection[int]
) -> Iterator[Warning]:
    """twins: groups of equal ones among the columns that networks see; visible: these. The others do no harm."""
    constant = [column for column in moments.constant if column in visible]
    if constant:
        yield Warning(
            f"{counted(len(constant), 'observation column')} never change{'s' * (len(constant) == 1)}",
            f"columns {some([names[c] for c in constant], 5)}",
            "drop='constant' / --drop constant keeps them from the networks; they do little harm",
        )
    if twins:
        yield Warning(
            f"{sum(len(group) - 1 for group in twins)} observation columns repeat others",
            "; ".join(" = ".join(names[column] for column in group) for group in twins[:5]),
            "drop='duplicate' / --drop duplicate shows networks one of each",
        )
    deviation = moments.deviation
    varied = np.flatnonzero(deviation > 0)
    if len(varied):
        large, small = varied[np.argmax(deviation[varied])], varied[np.argmin(deviation[varied])]
        if deviation[large] / deviation[small] > UNEVEN:
            yield Warning(
                "observation columns have very different scales",
                f"column {names[large]} deviates by {deviation[large]:.3g}, column {names[small]} by "
                f"{deviation[small]:.3g}",
                "train with normalize=True (--set normalize=true)",
            )


def about_angles(wrapped: Sequence[measures.Wrapped], names: Sequence[str]) -> Iterator[Warning]:
    """Columns that jump by a period, which networks do not see as angles yet."""
    if wrapped:
        jumps = [f"{names[a.column]}: {a.wraps} times by {'2 pi' if a.period < 7 else '360'}" for a in wrapped]
        columns = ",".join(names[angle.column] for angle in wrapped) if len(wrapped) <= MOST_NAMED else "auto"
        yield Warning(
            f"{counted(len(wrapped), 'observation column')} jump{'s' * (len(wrapped) == 1)} by one period, as "
            "angles that wrap do",
            some(jumps),
            f"`hilp pretrain` shows networks their sine and cosine (--angles {columns}); in Python, load with "
            "angles='auto'",
        )


def about_dynamics(explained: np.ndarray, names: Sequence[str]) -> Iterator[Warning]:
    """explained: the share of each column's changes that the state and the action explain; NaN: none."""
    known = np.flatnonzero(~np.isnan(explained))
    if not len(known):
        return
    share, free = float(explained[known].mean()), [column for column in known if explained[column] < UNEXPLAINED]
    if share < LITTLE or free:
        worst = [column for column in known[np.argsort(explained[known])] if share < LITTLE or column in free]
        of = "what changes" if share < LITTLE else f"what changes in {counted(len(free), 'column')}"
        yield Warning(
            f"the state and the action explain little of {of} from row to row",
            f"{share:.0%} in all; " + some([f"{names[column]} {explained[column]:.0%}" for column in worst], 5),
            "look for what moves it and is in no column (an object, speeds, another arm), or for noise: a policy "
            "cannot steer what it does not see",
        )


def about_past(shares: dict[int, float]) -> Iterator[Warning]:
    """shares: of what changes, explained by so many of the last rows and the action."""
    count, told = advised(shares)
    if told:
        yield Warning("a row does not tell the state", told, f"show networks the last {count}: --frames {count}")


def about_actions(
    acted: measures.Moments, names: Sequence[str], whole: bool, rescale: bool, choices: int = 0
) -> Iterator[Warning]:
    varied = acted.low < acted.high
    if not varied.all():
        yield Warning(
            "action columns never change, so nothing can be learnt about them",
            f"columns {some([names[c] for c in np.flatnonzero(~varied)], 5)}",
            "leave them out, or check what was recorded as the action",
        )
    if not varied.any():
        return
    if choices:
        if acted.low[0] > 0 or acted.high[0] < choices - 1:
            yield Warning(
                "the data does not show all of the discrete actions",
                f"{acted.low[0]:g} to {acted.high[0]:g} of 0 to {choices - 1}",
                "a policy will not know what the others do; check that they are numbered from 0 on",
            )
        return
    full = np.flatnonzero(varied & (acted.at_limits > SATURATED))
    if whole and float((acted.high - acted.low).max()) < MOST_TOLD:
        one = len(names) == 1 and acted.low[0] >= 0
        say = "say discrete_actions='auto' / --discrete-actions auto" if one else "number them in one column, from 0 on"
        yield Warning(
            "all actions are whole numbers, as numbers of discrete actions are",
            f"{int(acted.low.min())} to {int(acted.high.max())}",
            f"if they are, {say}",
        )
    elif len(full):
        yield Warning(
            "most actions are at their smallest or largest value",
            ", ".join(f"column {names[c]}: {acted.at_limits[c]:.0%}" for c in full[:5]),
            "check that they were not clipped by a wrong scale",
        )
    reach = float(np.maximum(np.abs(acted.low), np.abs(acted.high)).max())
    if not rescale and reach < NARROW:
        yield Warning(
            "actions use a small part of [-1, 1]",
            f"none is larger than {reach:.3g}",
            "rescale_actions=True / --rescale-actions maps their range to [-1, 1]",
        )


def about_memory(source: Source) -> Iterator[Warning]:
    need, memory = training_bytes(source), physical_memory()
    if need >= memory / 2:
        yield Warning(
            "the data may not fit in memory",
            f"{size_text(need)} in training, {size_text(int(memory))} of memory",
            "convert it to a native folder, which is trained on from disk",
        )
