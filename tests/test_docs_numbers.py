"""The tables of the pages say what the kept rows in benchmarks/ say, cell by cell, and so does the text beside them.

`python tools/docs_tables.py` writes the tables.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import docs_tables
from kept_rows import ROOT, kept
from tables_goals import quickstarts, readme, steps_off

PAGES = list(dict.fromkeys(place[0] for place in docs_tables.MADE))


@pytest.mark.parametrize("page", PAGES)
def test_tables_say_what_rows_say(page: str) -> None:
    text = (ROOT / page).read_text()
    assert docs_tables.filled(page, text).splitlines() == text.splitlines(), "python tools/docs_tables.py"


def test_tables_are_found_and_written(monkeypatch: pytest.MonkeyPatch) -> None:
    place, other = ("a.md", "One", "x | y"), ("a.md", "Two", " | z")
    monkeypatch.setattr(docs_tables, "MADE", {place: lambda: [["x", "y", ""], ["1", "2", "3"]]})
    monkeypatch.setattr(docs_tables, "WITHOUT_NUMBERS", {other})
    fence = "```\n# no heading\n| no | table |\n```"
    page = f"# One\n\n{fence}\n\n| x | y |\n|---|---|\n| old | 0 |\n\n## Two\n| | z |\n|---|---|\n| kept | |\n"
    new = docs_tables.filled("a.md", page)
    assert new == page.replace("| x | y |\n|---|---|\n| old | 0 |", "| x | y |  |\n|---|---|---|\n| 1 | 2 | 3 |")
    assert docs_tables.filled("a.md", new) == new
    for wrong in (page + "\n| w | v |\n|---|---|\n", "# One\n", page + "\n# One\n| x | y |\n|---|---|\n"):
        with pytest.raises(SystemExit, match="do not agree"):
            docs_tables.filled("a.md", wrong)


def test_directed_distances_are_off_by_at_most_half_as_much() -> None:
    assert np.mean(steps_off("hilp-directed")) <= 0.5 * np.mean(steps_off("hilp"))


def test_readme_says_the_rank_correlation_of_the_kept_runs() -> None:
    said = re.search(r"exact number of steps: (\d\.\d+) \((\d\.\d+) to (\d\.\d+)\)", (ROOT / "README.md").read_text())
    assert said is not None
    (line,) = readme("rank")[1]
    assert f"{said[1]} {said[2]} to {said[3]}" == f"{line[1]} {line[2]}"


def test_fewer_vectors_change_nothing_as_the_readme_says() -> None:
    plans, rewards = ("0", "1", "3"), ("right", "left", "up", "down")  # the rest is planned otherwise since
    for row in kept("quickstart-avx2"):
        assert "AVX2" in row["machine"]["settings"]["XLA_FLAGS"]
        (same,) = [other for other in quickstarts(row["task"]) if other["seed"] == row["seed"]]
        assert [row["success"][plan] for plan in plans] == [same["success"][plan] for plan in plans]
        for part in ("reward_gain", "reward_r2"):
            assert [row[part][name] for name in rewards] == [same[part][name] for name in rewards]
        assert row["rank_correlation"] == pytest.approx(same["rank_correlation"], abs=1e-6)
