"""Writes tables and numbers of the pages from the kept rows in benchmarks/: new rows become new pages by one command.

A line `<!-- table: NAME -->` stands above a table of `results.TABLES`; a number in a text or in a table written by hand
is a cell of one of them: `<!--= NAME :: line :: column -->42<!--/-->`.

Run: python tools/docs_tables.py [--check]   (--check only names the pages that say something else)
"""

from __future__ import annotations

import re
import sys
from difflib import get_close_matches
from functools import cache

from results import ROOT, TABLES, Table
from wrap_docs import pages

_TABLE = re.compile(r"^<!-- table: (.+?) -->\n+(?:\|.*\n)*\n*", re.M)
_CELL = re.compile(r"<!--= (.+?) :: (.+?) :: (.+?) -->.*?<!--/-->")
_CODE = re.compile(r"(^```.*?^```$)", re.M | re.S)


@cache
def table(name: str) -> Table:
    """A table by its name."""
    return TABLES[among(name, TABLES, "table")]()


def among(name: str, known: object, what: str) -> str:
    """The name, if it is a known one; else an error that says the nearest."""
    names = [str(one) for one in known]  # type: ignore[attr-defined]
    if name not in names:
        near = get_close_matches(name, names, 3, 0)
        raise SystemExit(f"no {what} '{name}' in tools/results.py; the nearest: {', '.join(near)}")
    return name


def written(found: Table) -> str:
    """A table's lines in Markdown."""
    header, *rows = [f"| {' | '.join(line)} |\n" for line in found]
    return header + "|" + "---|" * len(found[0]) + "\n" + "".join(rows)


def cell(name: str, line: str, column: str) -> str:
    """What a table says in a line, which goes by its first cell, and a column: the first that begins so."""
    header, *rows = table(name)
    by_name = {row[0]: row for row in rows}
    found = [number for number, head in enumerate(header) if head.startswith(column)]
    if not found:
        among(column, header, f"column of '{name}'")
    return by_name[among(line, by_name, f"line of '{name}'")][found[0]]


def filled(text: str) -> str:
    """A page's text with every table and number as the rows have it; blocks of code stay."""
    parts = _CODE.split(text)
    for number in range(0, len(parts), 2):
        made = _TABLE.sub(lambda at: f"<!-- table: {at[1]} -->\n\n{written(table(at[1]))}\n", parts[number])
        parts[number] = _CELL.sub(
            lambda at: f"<!--= {at[1]} :: {at[2]} :: {at[3]} -->{cell(at[1], at[2], at[3])}<!--/-->", made
        )
    return "".join(parts).rstrip("\n") + "\n"


def main(words: list[str]) -> int:
    """Write the pages; with --check only name those that would change, and then 1."""
    check, changed = "--check" in words, False
    for page in pages():
        text = page.read_text()
        try:
            new = filled(text)
        except SystemExit as error:
            raise SystemExit(f"{page.relative_to(ROOT)}: {error}") from None
        if new != text:
            changed = True
            print(f"{page.relative_to(ROOT)}: " + ("differs from the rows: make format" if check else "written"))
            if not check:
                page.write_text(new)
    return int(check and changed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
