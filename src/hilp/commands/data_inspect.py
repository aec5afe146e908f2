"""`hilp data inspect`: what is in a data set, and what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from hilp.commands import common
from hilp.errors import size_text

if TYPE_CHECKING:
    from rich.console import Group

    from hilp.data.audit import AuditReport
    from hilp.data.measures import ColumnStats

SHOWN_COLUMNS = 24  # on the page; all of them are in the JSON


@dataclass(frozen=True)
class Flags(common.Reading):
    """Say what is in a data set and what is wrong with it. Exit code 1 when it cannot be trained on."""

    data: Annotated[Positional[str], arg(metavar="DATA")]
    """a built-in name, a Minari id, a folder or a file"""
    picture: str | None = None
    """PNG, SVG or PDF file to draw some episodes to"""
    json: bool = False
    """print JSON"""


def run(flags: Flags) -> int:
    from hilp.collectors import named
    from hilp.data import audit
    from hilp.report import figures

    common.require_picture("--picture", flags.picture)
    options = flags.options()
    verify = options.pop("verify", True)
    source = named.open_source(flags.data, flags.format, **options)
    report = audit.inspect(source, rescale_actions=flags.rescale_actions, verify=verify)
    if flags.picture is not None:
        figures.save_data_picture(report, Path(flags.picture))
    if flags.json:
        common.print_json(report.to_json())
    else:
        common.show(render(report))
    return 0 if report.trainable else 1


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
        first, last = math.ceil(low), math.ceil(high) - 1
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
