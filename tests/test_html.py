"""The page is one safe file; tables say the same in every format."""

from __future__ import annotations

import io
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure

from hilp.report.figures import png_data_uri
from hilp.report.markup import Section, page, rich_table

FIGURE = Figure(figsize=(0.2, 0.2))
NASTY = "<script>alert('x')</script> & \"quotes\""
VOID = {"meta", "img", "br", "hr"}


class Reader(HTMLParser):
    """Checks that tags nest, and keeps what a test asks about."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.text.setdefault(self.open[-1], []).append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def document() -> str:
    sections = [
        Section("First", "One paragraph.\n\nAnd\nanother.", [(FIGURE, "A picture"), (FIGURE, NASTY)]),
        Section(NASTY, NASTY, tables=[(["method", NASTY], [["hilp", 87.0], [NASTY, None]], NASTY)]),
        Section("Last"),
    ]
    return page(f"Report {NASTY}", "<p>An <em>introduction</em>.</p>", sections)


def test_page_parses_and_holds_every_section(document: str) -> None:
    reader = read(document)
    ids = [attrs["id"] for tag, attrs in reader.tags if tag == "section"]
    links = [attrs["href"] for tag, attrs in reader.tags if tag == "a"]
    assert links == [f"#{name}" for name in ids]
    assert len(ids) == 3
    assert reader.text["h2"] == ["Contents", "First", NASTY, "Last"]
    assert reader.text["h1"] == reader.text["title"] == [f"Report {NASTY}"]
    assert reader.text["p"][-3:] == ["One paragraph.", "And another.", NASTY]
    assert reader.text["em"] == ["introduction"]


def test_figures_and_tables_are_there(document: str) -> None:
    reader = read(document)
    images = [attrs for tag, attrs in reader.tags if tag == "img"]
    assert [image["src"] for image in images] == [png_data_uri(FIGURE)] * 2
    assert [image["alt"] for image in images] == ["A picture", NASTY]
    assert reader.text["figcaption"] == ["A picture", NASTY]
    assert reader.text["th"] == ["method", NASTY]
    assert reader.text["td"] == ["hilp", "87", NASTY, "–"]
    assert reader.text["caption"] == [NASTY]


def test_nothing_runs_and_nothing_is_fetched(document: str) -> None:
    reader = read(document)
    tags = {tag for tag, _ in reader.tags}
    assert not tags & {"script", "iframe", "object", "embed", "link"}
    assert not any(name.startswith("on") for _, attrs in reader.tags for name in attrs)
    for _, attrs in reader.tags:
        for name in ("src", "href", "srcset", "action"):
            assert not (attrs.get(name) or "").startswith(("http", "//", "file"))
    assert "url(" not in document
    assert "@import" not in document
    assert "http://" not in document
    assert "https://" not in document


def test_page_without_sections() -> None:
    assert "<nav" not in page("Empty", "", [])


def test_tables_must_be_rectangular() -> None:
    with pytest.raises(ValueError, match="row 1 has 1 cells"):
        rich_table(["a", "b"], [[1, 2], [3]])
    with pytest.raises(ValueError, match="at least one column"):
        rich_table([], [])


def test_numbers_are_shown_shortly() -> None:
    table = rich_table(["success", "n"], [[87.123456, 100], [None, 2], [np.float32(12345.6), np.int64(3)]])
    assert [[str(cell) for cell in column.cells] for column in table.columns] == [
        ["87.12", "–", "12346"],
        ["100", "2", "3"],
    ]


def test_rich_table_shows_text_as_it_is() -> None:
    from rich.console import Console

    table = rich_table(["name", "value"], [["[red]x[/red]", 1.5], ["y", None]], title="[bold]T")
    assert [column.justify for column in table.columns] == ["left", "right"]
    out = io.StringIO()
    Console(file=out, width=60).print(table)
    for piece in ("[bold]T", "[red]x[/red]", "1.5", "–"):
        assert piece in out.getvalue()
