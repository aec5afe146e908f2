"""The pages say what the kept rows in benchmarks/ say, cell by cell; `python tools/docs_tables.py` writes them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import docs_tables
import results
from wrap_docs import pages, wrapped

MARKED = [page for page in pages() if re.search(r"<!-- table: |<!--= ", page.read_text())]


def test_pages_with_numbers_are_found() -> None:
    assert {results.ROOT / "README.md", results.ROOT / "docs/results/index.md"} <= set(MARKED)


@pytest.mark.parametrize("page", MARKED, ids=lambda page: page.name)
def test_pages_say_what_rows_say(page: Path) -> None:
    text = page.read_text()
    assert docs_tables.filled(text).splitlines() == text.splitlines(), "python tools/docs_tables.py"


def test_every_table_is_shown() -> None:
    text = "".join(page.read_text() for page in MARKED)
    assert set(re.findall(r"<!-- table: (.+?) -->", text)) == set(results.TABLES)


def test_tables_of_results_are_made_from_rows() -> None:
    for page in (results.ROOT / "docs" / "results").glob("*.md"):
        if page.name not in ("index.md", "bodies.md"):
            tables = re.findall(r"(.*)\n\n\|.*\n\|---", page.read_text())
            assert tables and all(above.startswith("<!-- table: ") for above in tables), f"{page.name}: typed by hand"
    overview = (results.ROOT / "docs" / "results" / "index.md").read_text()
    lines = [line for line in overview.splitlines() if line.startswith("| ")][1:]
    assert len(lines) == 12 and all("<!--= " in line and ".md" in line for line in lines)


@pytest.fixture
def one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs_tables, "TABLES", {"a b": lambda: [["x", "y of 3", ""], ["1", "2", "3"]]})
    docs_tables.table.cache_clear()


def test_tables_and_numbers_are_written(one_table: None) -> None:
    fence = "```\n<!-- table: a b -->\n\n| no | table |\n```"
    text = "| kept | |\n\nIt is <!--= a b :: 1 :: y -->9<!--/-->.\n"
    page = f"# One\n\n{fence}\n\n<!-- table: a b -->\n\n| old | 0 |\n\n{text}"
    new = docs_tables.filled(page)
    assert new == page.replace("| old | 0 |", "| x | y of 3 |  |\n|---|---|---|\n| 1 | 2 | 3 |").replace(">9<", ">2<")
    assert docs_tables.filled(new) == new
    assert (
        docs_tables.filled("<!-- table: a b -->\n")
        == "<!-- table: a b -->\n\n| x | y of 3 |  |\n|---|---|---|\n| 1 | 2 | 3 |\n"
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("<!-- table: ab -->\n", "no table 'ab'.*a b"),
        ("<!--= a b :: 4 :: x --><!--/-->", "no line of 'a b' '4'.*: 1"),
        ("<!--= a b :: 1 :: z --><!--/-->", "no column of 'a b' 'z'"),
    ],
)
def test_an_unknown_name_is_told(wrong: str, said: str, one_table: None) -> None:
    with pytest.raises(SystemExit, match=said):
        docs_tables.filled(wrong)


def test_a_number_is_not_broken_by_wrapping() -> None:
    marked = "<!--= a b :: 1 :: y of 3 -->2 ± 3<!--/-->"
    lines = wrapped("word " * 20 + marked + " word" * 20, width=60).split("\n")
    assert any(marked in line for line in lines) and wrapped("\n".join(lines), width=60).split("\n") == lines


def test_a_cell_is_of_one_run_a_seed() -> None:
    row = {"name": "hilp", "plan": 0, "train_seed": 0, "score": 0.5, "interval": [0.4, 0.6]}
    assert results.scores([row]) == "50 [40, 60]"
    assert results.scores([row, {**row, "train_seed": 1, "score": 1.0}]) == "75 ± 25"
    with pytest.raises(AssertionError, match="more than seeds differ: hilp"):
        results.scores([row, row])


def test_directed_distances_are_off_by_at_most_half_as_much() -> None:
    off = {
        method: np.mean(
            [row["embedding"]["steps_off"] for row in results.kept("oneway-seeds") if row["method"] == method]
        )
        for method in ("hilp", "hilp-directed")
    }
    assert off["hilp-directed"] <= 0.5 * off["hilp"]
