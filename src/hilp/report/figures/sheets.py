"""Pictures side by side: strips of a film, and sheets of many small ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hilp.report.figures.style import SMALL_SIZE, SOFT, TEXT_SIZE, draw_suptitle, draw_title


def film_strips(strips: Sequence[tuple[np.ndarray, Sequence[str]]], title: str) -> Figure:
    """A line of pictures [n, height, width, 1 or 3] for each strip, with a word under each picture."""
    longest = max(len(pictures) for pictures, _ in strips)
    figure = Figure(figsize=(1.15 * longest, 1.45 * len(strips) + 0.5), layout="constrained", facecolor="white")
    panels = figure.subplots(len(strips), longest, squeeze=False)
    for line, (pictures, words) in zip(panels, strips, strict=True):
        for n, ax in enumerate(line):
            if n < len(pictures):
                _show(ax, pictures[n])
                ax.set_xlabel(words[n], fontsize=SMALL_SIZE, color=SOFT, labelpad=3)
            else:
                ax.set_visible(False)
    draw_suptitle(figure, title)
    return figure


def contact_sheet(sheets: Sequence[tuple[str, np.ndarray]], title: str) -> Figure:
    """Pictures [n, height, width, 1 or 3] under the name of what they are of, a line after the other."""
    columns = max(1, min(12, max(len(pictures) for _, pictures in sheets)))
    lines = [
        (name, pictures[at : at + columns]) for name, pictures in sheets for at in range(0, len(pictures), columns)
    ]
    figure = Figure(figsize=(0.85 * columns, 0.95 * len(lines) + 0.5), layout="constrained", facecolor="white")
    panels = figure.subplots(len(lines), columns, squeeze=False)
    named: set[str] = set()
    for axes, (name, pictures) in zip(panels, lines, strict=True):
        for n, ax in enumerate(axes):
            if n < len(pictures):
                _show(ax, pictures[n])
            else:
                ax.set_visible(False)
        if name not in named:
            draw_title(axes[0], name, size=TEXT_SIZE, weight="normal")
            named.add(name)
    draw_suptitle(figure, title)
    return figure


def last_frame(pictures: np.ndarray) -> np.ndarray:
    """Of stacks of frames [..., channels] the newest one, in colour where there are three channels of it."""
    channels = pictures.shape[-1]
    return pictures[..., -3:] if channels % 3 == 0 else pictures[..., -1:]


def _show(ax: Axes, picture: np.ndarray) -> None:
    frame = last_frame(picture)
    shown = frame if frame.shape[-1] == 3 else np.repeat(frame, 3, axis=-1)
    ax.imshow(shown, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set(color=SOFT, linewidth=0.6)
