"""The picture of `hilp data inspect`: some episodes in the plane, and how long they are; of images a contact sheet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hilp.data.audit import AuditReport
from hilp.errors import HilpError
from hilp.report import figures
from hilp.report.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(report: AuditReport, path: Path) -> None:
    """Draw to a file; pictures to a contact sheet, in a file of its own where there are numbers, too."""
    try:
        if report.stills:
            sheet = figures.contact_sheet(report.stills, f"{report.name}: {report.transitions:,} transitions")
            figures.save(sheet, path.with_stem(f"{path.stem}-pictures") if report.observations else path)
        if report.observations or not report.stills:
            figures.save(draw(report), path)
    except OSError as error:
        raise HilpError(f"cannot write {path}: {error.strerror or error}") from error


def draw(report: AuditReport) -> Figure:
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

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
    plane.set(xlabel=labels[0], ylabel=labels[1])
    edges, counts = report.lengths["edges"], report.lengths["counts"]
    lengths.bar(edges[:-1], counts, np.diff(edges), align="edge", color=figures.BLUE, edgecolor="white", linewidth=0.6)
    margin = max(2.0, 0.05 * (edges[-1] - edges[0]))
    lengths.set_xlim(edges[0] - margin, edges[-1] + margin)
    lengths.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    lengths.set(xlabel="rows of an episode", ylabel="episodes")
    titles = (f"{len(flat)} of {report.episodes:,} episodes, starts marked", f"{report.transitions:,} transitions")
    for axes, title in zip((plane, lengths), titles, strict=True):
        style.draw_title(axes, title)
        style.draw_frame(axes, grid="both")
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
