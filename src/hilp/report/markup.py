"""One self-contained HTML page (no script, no outside resource), and tables for the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from hilp.errors import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

Row = Sequence[object]


@dataclass(frozen=True)
class Section:
    """One chapter of a page: plain text (a blank line starts a new paragraph), then figures, then tables."""

    title: str
    text: str = ""
    figures: Sequence[tuple["Figure", str]] = ()  # (picture, caption)
    tables: Sequence[tuple[Sequence[str], Sequence[Row], str]] = ()  # (headers, rows, caption)


def page(title: str, intro_html: str, sections: Sequence[Section]) -> str:
    """The whole page. All text is escaped except `intro_html`, which the caller writes as HTML and answers for."""
    contents = "\n".join(f'<li><a href="#section-{i}">{_text(s.title)}</a></li>' for i, s in enumerate(sections, 1))
    nav = f'<nav aria-label="Contents"><h2>Contents</h2><ol>\n{contents}\n</ol></nav>' if sections else ""
    body = "\n".join(_section(section, f"section-{i}") for i, section in enumerate(sections, 1))
    style = resources.files("hilp.report").joinpath("page.css").read_text("utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{_text(title)}</title>
<style>
{style}</style>
</head>
<body>
<header><h1>{_text(title)}</h1>
<div class="intro">{intro_html}</div></header>
<div class="sheet">
{nav}
<main>
{body}
</main>
</div>
</body>
</html>
"""


def rich_table(headers: Sequence[str], rows: Sequence[Row], title: str | None = None) -> "Table":
    """A table for the terminal; cell text is shown as it is, never read as markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=None if title is None else Text(title), box=box.SIMPLE_HEAD, title_justify="left")
    for header, right in zip(headers, _numeric_columns(headers, rows), strict=True):
        table.add_column(Text(header), justify="right" if right else "left")
    for row in rows:
        table.add_row(*(Text(_shown(cell)) for cell in row))
    return table


def _section(section: Section, anchor: str) -> str:
    paragraphs = [" ".join(p.split()) for p in section.text.split("\n\n")]
    parts = [f"<h2>{_text(section.title)}</h2>", *(f"<p>{_text(p)}</p>" for p in paragraphs if p)]
    if section.figures:
        from hilp.report.figures.style import png_data_uri  # matplotlib; tables for the terminal do without

        parts.append('<div class="figures">')
        for fig, caption in section.figures:
            image = f'<img src="{_text(png_data_uri(fig))}" alt="{_text(caption)}">'
            parts.append(f"<figure>{image}<figcaption>{_text(caption)}</figcaption></figure>")
        parts.append("</div>")
    parts += [_table(headers, rows, caption) for headers, rows, caption in section.tables]
    return f'<section id="{anchor}">\n' + "\n".join(parts) + "\n</section>"


def _table(headers: Sequence[str], rows: Sequence[Row], caption: str) -> str:
    classes = [' class="number"' if right else "" for right in _numeric_columns(headers, rows)]

    def cells(tag: str, row: Row) -> str:
        return "".join(f"<{tag}{c}>{_text(_shown(v))}</{tag}>" for v, c in zip(row, classes, strict=True))

    head = f"<thead><tr>{cells('th', headers)}</tr></thead>"
    body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    caption_tag = f"<caption>{_text(caption)}</caption>" if caption else ""
    return f'<div class="table"><table>{caption_tag}{head}<tbody>\n{body}\n</tbody></table></div>'


def _shown(cell: object) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, Real) and not isinstance(cell, Integral):  # numpy's floats too
        value = float(cell)
        return f"{value:.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.4g}"
    return str(cell)


def _text(value: Any) -> str:
    return escape(printable(str(value), keep="\n"), quote=True)


def _numeric_columns(headers: Sequence[str], rows: Sequence[Row]) -> list[bool]:
    """Which columns hold only numbers (or text that starts like one, such as '87 ± 3'), and so align right."""
    if not headers:
        raise ValueError("a table needs at least one column")
    for i, row in enumerate(rows):
        if len(row) != len(headers):
            raise ValueError(f"row {i} has {len(row)} cells, the table has {len(headers)} columns")
    filled = [[_shown(row[c]) for row in rows if row[c] is not None] for c in range(len(headers))]
    return [bool(own) and all(t.lstrip("+-−.")[:1].isdigit() or t == "nan" for t in own) for own in filled]
