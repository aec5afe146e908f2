"""The page of `hilp data inspect`, for a rich console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hilp.data.audit import Report
from hilp.data.measures import ColumnStats
from hilp.errors import size_text

if TYPE_CHECKING:
    from rich.console import Group

SHOWN_COLUMNS = 24  # all of them are in the JSON


def render(report: Report) -> Group:
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
        "size": f"{size_text(report.disk_bytes) if report.disk_bytes else 'none'} on disk, "
        f"{size_text(report.training_bytes)} in training",
    }
    if report.time_scale is not None:
        rows["time scale"] = report.time_scale.line.removeprefix("time scale: ")
    for name, text in rows.items():
        facts.add_row(name, Text(text))
    parts: list[Any] = [Text(report.name, style="bold underline"), facts, Text(), Text("lengths in rows", style="bold")]
    parts += _histogram(lengths["edges"], lengths["counts"])
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
        table.add_row(stats.name, *numbers, f"{stats.at_limits:.1%}{constant}")
    total = report.observation_dim if title == "observations" else report.action_dim
    total = len(columns) if report.images else total  # images have a line of their own
    if total > SHOWN_COLUMNS:
        table.caption = f"and {total - SHOWN_COLUMNS} more"
    return table
