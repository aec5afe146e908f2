"""Warnings about a data set: what was found, where, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hilp import trees
from hilp.data.measures import Moments, Wrapped
from hilp.data.source import Kind, Source
from hilp.errors import counted, size_text, some

SATURATED = 0.5  # share of actions at their smallest or largest value that deserves a warning
NARROW = 0.1  # actions that never leave this part of [-1, 1] deserve one
FEW_TRANSITIONS = 1000
SHORT_EPISODES = 10  # rows
UNEVEN = 1e4  # ratio of the scales of two observation columns
MOST_NAMED = 5  # columns in a flag that is advised
INDEX_BYTES = 12  # a row of the sampler's tables
CUT_AT_JUMPS = ("arrays", "npz", "hdf5", "d4rl")  # what the reader that cuts there takes


@dataclass(frozen=True)
class Warning:
    """Something that may hurt."""

    what: str
    where: str
    do: str

    def __str__(self) -> str:
        return f"{self.what} ({self.where}): {self.do}"


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


def about_observations(
    moments: Moments, twins: list[list[int]], names: Sequence[str], visible: Collection[int]
) -> Iterator[Warning]:
    """visible: columns that networks see; the others do no harm."""
    constant = [column for column in moments.constant if column in visible]
    if constant:
        yield Warning(
            f"{counted(len(constant), 'observation column')} never change{'s' * (len(constant) == 1)}",
            f"columns {some([names[c] for c in constant], 5)}",
            "drop='constant' / --drop constant keeps them from the networks; they do little harm",
        )
    twins = [group for group in (sorted({*group} & {*visible}) for group in twins) if len(group) > 1]
    if twins:
        yield Warning(
            f"{sum(len(group) - 1 for group in twins)} observation columns repeat others",
            "; ".join(" = ".join(names[column] for column in group) for group in twins[:5]),
            "drop='duplicate' / --drop duplicate shows networks one of each",
        )
    yield from _about_scales(moments.deviation, names)


def _about_scales(deviation: np.ndarray, names: Sequence[str]) -> Iterator[Warning]:
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


def about_angles(wrapped: Sequence[Wrapped], names: Sequence[str]) -> Iterator[Warning]:
    """Columns that jump by a period, which networks do not see as angles yet."""
    if wrapped:
        jumps = [f"{names[a.column]}: {a.wraps} times by {'2 pi' if a.period < 7 else '360'}" for a in wrapped]
        columns = ",".join(names[angle.column] for angle in wrapped) if len(wrapped) <= MOST_NAMED else "auto"
        yield Warning(
            f"{counted(len(wrapped), 'observation column')} jump{'s' * (len(wrapped) == 1)} by one period, as "
            "angles that wrap do",
            some(jumps),
            f"angles='auto' / --angles {columns} shows networks their sine and cosine",
        )


def about_actions(acted: Moments, names: Sequence[str], whole_numbers: bool, rescale: bool) -> Iterator[Warning]:
    varied = acted.low < acted.high
    if not varied.all():
        yield Warning(
            "action columns never change, so nothing can be learnt about them",
            f"columns {some([names[c] for c in np.flatnonzero(~varied)], 5)}",
            "leave them out, or check what was recorded as the action",
        )
    if not varied.any():
        return
    full = np.flatnonzero(varied & (acted.at_limits > SATURATED))
    if whole_numbers:
        yield Warning(
            "all actions are whole numbers, as numbers of discrete actions are",
            f"{int(acted.low.min())} to {int(acted.high.max())}",
            "hilp needs continuous actions; encode discrete ones as vectors",
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
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on this system
        return
    need = training_bytes(source)
    if need >= memory / 2:
        yield Warning(
            "the data may not fit in memory",
            f"{size_text(need)} in training, {size_text(memory)} of memory",
            "convert it to a native folder, which is trained on from disk",
        )


def training_bytes(source: Source) -> int:
    """What training keeps on the device: float32 rows (images of a named tree as bytes) and the sampler's tables."""
    plain = isinstance(source.observation, Kind)
    kinds = trees.named(source.observation, "observations").values()
    row = sum((4 if plain else kind.dtype.itemsize) * int(np.prod(kind.shape)) for kind in kinds)
    return source.rows * (row + 4 * source.action.shape[0] + INDEX_BYTES)
