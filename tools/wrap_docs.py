"""Lines of a readable length in the pages: wraps paragraphs and list items; tables, code and headings stay.

Run: python tools/wrap_docs.py [--check] [PAGE ...]   (without pages: README, CONTRIBUTING, CHANGELOG and docs/)
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
WIDTH = 110
# Not broken inside: code, links and pictures, which some readers of Markdown do not put together again. Nor before a
# number with a marker (tools/docs_tables.py): a line that begins with a comment ends its paragraph.
_WORD = re.compile(r"(?:\S+ (?=<!--=))*(?:<!--=.*?<!--/-->|`[^`]*`|!?\[[^\]]*\]\([^)]*\)|\S)+")
_AS_IT_IS = re.compile(r"\||#|<!--(?!=)|:::|!\[|    ")


def wrapped(text: str, width: int = WIDTH) -> str:
    """A page with every paragraph and list item wrapped."""
    done: list[str] = []
    paragraph: list[str] = []
    first = later = ""  # what the first line and the others of a paragraph begin with
    fenced = False

    def close() -> None:
        line, empty = first, True
        for word in _WORD.findall(" ".join(paragraph)):
            if not empty and len(line) + 1 + len(word) > width:
                done.append(line)
                line, empty = later, True
            line, empty = line + ("" if empty else " ") + word, False
        if paragraph:
            done.append(line)
        paragraph.clear()

    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        item = re.match(r"(\s*)(?:[-*]|\d+\.) +", line)
        if (
            fence
            or fenced
            or not line.strip()
            or (_AS_IT_IS.match(line) and not (paragraph and line.startswith("    ")))
        ):
            close()
            done.append(line)
            fenced ^= fence
        elif item:
            close()
            first, later = item[0], " " * len(item[0])
            paragraph.append(line[len(item[0]) :])
        else:
            if not paragraph:
                first = later = ""
            paragraph.append(line.strip())
    close()
    return "\n".join(done)


def pages() -> list[Path]:
    """The pages of the root and of docs/."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def main(words: list[str]) -> int:
    """Wrap the pages; with --check only name those that would change, and then 1."""
    check, named = "--check" in words, [Path(word) for word in words if word != "--check"]
    found = named or pages()
    changed = [path for path in found if wrapped(path.read_text()) != path.read_text()]
    for path in changed:
        if check:
            print(f"{path}: lines are not wrapped at {WIDTH} letters: make format")
        else:
            path.write_text(wrapped(path.read_text()))
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
