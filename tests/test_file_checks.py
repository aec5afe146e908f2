"""Our own checks of `make check` can fail, and leave alone what they repaired; files about the project are true."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import check_files
import wrap_docs


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"fine\n", None),
        (b"", None),
        (b"\x89PNG\0 no newline at the end ", None),
        (b"no newline", "without a newline"),
        (b"one too many\n\n", "an empty line"),
        (b"a \nb\n", ":1: blanks"),
        (b"a\r\nb\n", ":1: blanks"),
        (b"\0" * 1_000_001, "1,000,001 bytes"),
    ],
)
def test_awkward_files_are_told(
    content: bytes, said: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(content)
    assert check_files.main([str(tmp_path / "file")]) == int(said is not None)
    assert (said or "") in capsys.readouterr().out


PAGE = """# A heading that is longer than the width of thirty letters

Words that are wrapped, and `code that is not broken` and more
words.

- an item that is long enough to be wrapped twice or so
  and goes on

| a table | that is wider than thirty letters |

    code by indentation, which is as long as it is

```
code in a fence, which is as long as it is
```
"""

WRAPPED = """# A heading that is longer than the width of thirty letters

Words that are wrapped, and
`code that is not broken` and
more words.

- an item that is long enough
  to be wrapped twice or so
  and goes on

| a table | that is wider than thirty letters |

    code by indentation, which is as long as it is

```
code in a fence, which is as long as it is
```
"""


def test_pages_are_wrapped_once() -> None:
    assert wrap_docs.wrapped(PAGE, 30) == WRAPPED
    assert wrap_docs.wrapped(WRAPPED, 30) == WRAPPED


def test_check_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("word " * 40 + "\n")
    assert wrap_docs.main(["--check", str(page)]) == 1
    assert "make format" in capsys.readouterr().out
    assert wrap_docs.main([str(page)]) == 0
    assert wrap_docs.main(["--check", str(page)]) == 0
    assert max(map(len, page.read_text().splitlines())) <= wrap_docs.WIDTH


def test_citation_names_this_licence_and_the_paper() -> None:
    root = Path(__file__).parent.parent
    cited = yaml.safe_load((root / "CITATION.cff").read_text())
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert cited["license"] == project["license"]  # its version: test_release.py
    paper = cited["preferred-citation"]
    assert paper["title"] == "Foundation Policies with Hilbert Representations"
    assert [author["family-names"] for author in paper["authors"]] == ["Park", "Kreiman", "Levine"]
    assert "2402.15567" in paper["url"]


def test_every_requirement_is_pinned() -> None:
    root = Path(__file__).parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = (root / "constraints.txt").read_text().splitlines()
    pinned = {canonical(line.partition("==")[0]) for line in lines if not line.startswith("#")}
    wanted = [*project["dependencies"], *(one for name in extras if name != "cuda" for one in extras[name])]
    names = {canonical(re.split(r"[\[<>=!~ ]", one)[0]) for one in wanted} - {"hilp"}
    assert names <= pinned, f"constraints.txt lacks {names - pinned}"


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
