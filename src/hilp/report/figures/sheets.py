"""Pictures side by side: strips of a film, and sheets of many small ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hilp.report.figures.style import SMALL_SIZE, SOFT, TEXT_SIZE, draw_suptitle, draw_title


def film_strips(strips: Sequence[tuple[np.ndarray, Sequence[str]]], title: str) -> Figure:
    """A line of pictures [n, height, width, 1 or 3] for each strip, with a word under each picture."""
    figure, panels = _grid([pictures for pictures, _ in strips], 1.15, 1.45, title)
    for line, (_, words) in zip(panels, strips, strict=True):
        for ax, word in zip(line, words, strict=False):
            ax.set_xlabel(word, fontsize=SMALL_SIZE, color=SOFT, labelpad=3)
    return figure


def contact_sheet(sheets: Sequence[tuple[str, np.ndarray]], title: str) -> Figure:
    """Pictures [n, height, width, 1 or 3] under the name of what they are of, a line after the other."""
    columns = max(1, min(12, max(len(pictures) for _, pictures in sheets)))
    lines = [(name if at == 0 else "", pictures[at : at + columns])
             for name, pictures in sheets for at in range(0, len(pictures), columns)]  # fmt: skip
    figure, panels = _grid([pictures for _, pictures in lines], 0.85, 0.95, title)
    for axes, (name, _) in zip(panels, lines, strict=True):
        draw_title(axes[0], name, size=TEXT_SIZE, weight="normal")
    return figure


def _grid(lines: Sequence[np.ndarray], width: float, height: float, title: str) -> tuple[Figure, np.ndarray]:
    """A figure with these lines of pictures, and its panels."""
    columns = max(map(len, lines))
    figure = Figure(figsize=(width * columns, height * len(lines) + 0.5), layout="constrained", facecolor="white")
    panels = figure.subplots(len(lines), columns, squeeze=False)
    for axes, pictures in zip(panels, lines, strict=True):
        for ax, picture in zip(axes, pictures, strict=False):
            _show(ax, picture)
        for ax in axes[len(pictures) :]:
            ax.set_visible(False)
    draw_suptitle(figure, title)
    return figure, panels


def _show(ax: Axes, picture: np.ndarray) -> None:
    """Of a stack of frames [height, width, channels] the newest one, in colour where it has three channels."""
    frame = picture[..., -3:] if picture.shape[-1] % 3 == 0 else np.repeat(picture[..., -1:], 3, axis=-1)
    ax.imshow(frame, interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set(color=SOFT, linewidth=0.6)
