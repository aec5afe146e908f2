"""Pictures side by side: strips of a film, sheets of many small ones, and what `hilp data inspect` draws of data."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hilp.data.audit import AuditReport
from hilp.errors import HilpError
from hilp.report.figures import style
from hilp.storage import told


def film_strips(strips: Sequence[tuple[np.ndarray, Sequence[str]]], title: str) -> Figure:
    """A line of pictures [n, height, width, 1 or 3] for each strip, with a word under each picture."""
    figure, panels = _grid([pictures for pictures, _ in strips], 1.15, 1.45, title)
    for line, (_, words) in zip(panels, strips, strict=True):
        for ax, word in zip(line, words, strict=False):
            ax.set_xlabel(word, fontsize=style.SMALL_SIZE, color=style.SOFT, labelpad=3)
    return figure


def contact_sheet(sheets: Sequence[tuple[str, np.ndarray]], title: str) -> Figure:
    """Pictures [n, height, width, 1 or 3] under the name of what they are of, a line after the other."""
    columns = max(1, min(12, max(len(pictures) for _, pictures in sheets)))
    lines = [(name if at == 0 else "", pictures[at : at + columns])
             for name, pictures in sheets for at in range(0, len(pictures), columns)]  # fmt: skip
    figure, panels = _grid([pictures for _, pictures in lines], 0.85, 0.95, title)
    for axes, (name, _) in zip(panels, lines, strict=True):
        style.draw_title(axes[0], name, size=style.TEXT_SIZE, weight="normal")
    return figure


def _grid(lines: Sequence[np.ndarray], width: float, height: float, title: str) -> tuple[Figure, np.ndarray]:
    columns = max(map(len, lines))
    figure = style.new_figure(width * columns, height * len(lines) + 0.5)
    panels = figure.subplots(len(lines), columns, squeeze=False)
    for axes, pictures in zip(panels, lines, strict=True):
        for ax, picture in zip(axes, pictures, strict=False):
            # Of a stack of frames [height, width, channels] the newest one, in colour where it has three channels.
            frame = picture[..., -3:] if picture.shape[-1] % 3 == 0 else np.repeat(picture[..., -1:], 3, axis=-1)
            ax.imshow(frame, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set(color=style.SOFT, linewidth=0.6)
        for ax in axes[len(pictures) :]:
            ax.set_visible(False)
    style.draw_suptitle(figure, title)
    return figure, panels


def way(states: np.ndarray, passed: np.ndarray, goal: np.ndarray, names: Sequence[str], title: str) -> Figure:
    """States of the data, and those that a plan means to pass on its way to a goal: two columns, [n, 2] each."""
    figure = style.new_figure(6.4, 5.0)
    ax = figure.subplots()
    ax.plot(*states.T, ".", color=style.SOFT, ms=2, alpha=0.35)
    ax.plot(*passed.T, "o-", color=style.BLUE, ms=3.5, linewidth=1.4)
    ax.plot(*passed[0], "o", mfc="white", mec=style.BLUE, ms=7, mew=1.6)
    ax.plot(*goal, "*", color=style.BLUE, mec="white", mew=0.8, ms=15)
    ax.set(xlabel=names[0], ylabel=names[1])
    style.draw_title(ax, title)
    style.draw_frame(ax, grid="both")
    return figure


def save_data_picture(report: AuditReport, path: Path) -> None:
    """Some episodes in the plane, and how long they are; of images a contact sheet, beside it where there are both."""
    with told(f"cannot write {path}"):
        if report.stills:
            sheet = contact_sheet(report.stills, f"{report.name}: {report.transitions:,} transitions")
            style.save(sheet, path.with_stem(f"{path.stem}-pictures") if report.observations else path)
        if report.observations or not report.stills:
            style.save(_draw_data(report), path)


def _draw_data(report: AuditReport) -> Figure:
    if not report.paths:
        raise HilpError(f"{report.name} has no episodes to draw")
    flat, labels = _plane(report)
    figure = style.new_figure(9.2, 4.4)
    plane, lengths = figure.subplots(1, 2, width_ratios=(1.25, 1))
    for number, path in enumerate(flat):
        colour = style.PALETTE[number % len(style.PALETTE)]
        plane.add_collection(LineCollection([path], colors=colour, linewidths=0.9, alpha=0.8))
        plane.plot(*path[0], "o", mfc="white", mec=colour, ms=4, mew=1.0)
    plane.autoscale_view()
    plane.set(xlabel=labels[0], ylabel=labels[1])
    edges, counts = report.lengths["edges"], report.lengths["counts"]
    lengths.bar(edges[:-1], counts, np.diff(edges), align="edge", color=style.BLUE, edgecolor="white", linewidth=0.6)
    margin = max(2.0, 0.05 * (edges[-1] - edges[0]))
    lengths.set_xlim(edges[0] - margin, edges[-1] + margin)
    lengths.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    lengths.set(xlabel="rows of an episode", ylabel="episodes")
    titles = (f"{len(flat)} of {report.episodes:,} episodes, starts marked", f"{report.transitions:,} transitions")
    for axes, title in zip((plane, lengths), titles, strict=True):
        style.draw_title(axes, title)
        style.draw_frame(axes, grid="both")
    return figure


def _plane(report: AuditReport) -> tuple[list[np.ndarray], tuple[str, str]]:
    """Paths in two dimensions, and what these are called.

    The first two columns that vary, where columns have names of their own, as those of a log; else the two there are,
    or the two directions of most variance of scaled columns.
    """
    paths, columns = report.paths, report.observations
    rows = np.nan_to_num(np.concatenate(paths).astype(np.float64), posinf=0.0, neginf=0.0)
    edges = np.cumsum([len(path) for path in paths])[:-1]
    named = all(not (column.part or column.name.isdigit() or "[" in column.name) for column in columns)
    varying = [column for column in columns if column.deviation > 0][:2]
    if named and len(varying) == 2:
        first, second = varying
        return np.split(rows[:, [first.column, second.column]], edges), (first.name, second.name)
    if rows.shape[1] <= 2:
        rows = np.hstack([rows, np.zeros((len(rows), 2 - rows.shape[1]))])
        return np.split(rows, edges), ("column 0", "column 1")
    deviation = rows.std(axis=0)
    scaled = (rows - rows.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    axes = np.linalg.eigh(scaled.T @ scaled / len(scaled))[1][:, ::-1][:, :2]
    return np.split(scaled @ axes, edges), ("first principal direction", "second principal direction")
