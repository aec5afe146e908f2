"""Pages of the site that are not files in docs/, made when mkdocs builds it (a hook of mkdocs.yml).

The home page is README.md, with links as seen from docs/; the changes and how to contribute likewise; the notebook with
its stored outputs; the playground of play.md; the list of modules and the drawings of the import graph from the sources
as they are.
"""

from __future__ import annotations

import base64
import io
import json
import lzma
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import import_graph
from hilp.play.page import without_server

ROOT = Path(__file__).parent.parent
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md",
         "SECURITY.md": "security.md"}  # fmt: skip


def on_files(files: Files, *, config: Any) -> Files:
    """Called by mkdocs with the files it has found in docs/."""
    for name, content in generated():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with every page: links out of docs/ lead to the pages made here."""
    for source, page in PAGES.items():
        markdown = markdown.replace(f"](../{source}", f"]({page}")
    return markdown


def generated() -> Iterator[tuple[str, str | bytes]]:
    """(Path in the site, content) of every file that is made."""
    for source, page in PAGES.items():
        yield page, seen_from_docs((ROOT / source).read_text())
    yield "CITATION.cff", (ROOT / "CITATION.cff").read_text()
    for script in sorted((ROOT / "examples").glob("*.py")):
        yield f"examples/{script.name}", script.read_text()
    for notebook in sorted((ROOT / "examples").glob("*.ipynb")):
        yield from notebook_page(notebook)
    yield "modules.md", modules_page()
    note = lzma.decompress((ROOT / "docs" / "playground.json.xz").read_bytes())
    yield "playground.html", without_server(note.decode())
    found = import_graph.imports()
    for name, draw in {"rooms": import_graph.draw_rooms, "modules": import_graph.draw_modules}.items():
        drawing = io.BytesIO()
        draw(found, drawing)
        yield f"import-graph-{name}.svg", drawing.getvalue()


def seen_from_docs(text: str) -> str:
    """A page of the repository's root with links that hold inside the site."""
    text = re.sub(r"\]\(docs/", "](", text)
    text = re.sub(r"\]\((examples/\w+)\.ipynb", r"](\1.md", text)
    for source, page in PAGES.items():
        text = text.replace(f"]({source}", f"]({page}")
    return text


def modules_page() -> str:
    """What each module is for, by its own first line."""
    page, folder = (
        ["# All modules", "The first line of each file. [The map of the code](develop.md) has the packages."],
        None,
    )
    for name, line in import_graph.first_lines().items():
        if (above := str(Path(name).parent)) != folder:
            folder = above
            page.append(f"\n## {'hilp' if above == '.' else above}\n\n| file | what |\n|---|---|")
        text = re.sub(r"([|<])", r"\\\1", line)
        page.append(f"| `{Path(name).name}` | {text} |")
    return "\n".join(page) + "\n"


def notebook_page(path: Path) -> Iterator[tuple[str, str | bytes]]:
    """A notebook as a page: text, code and stored outputs, with its pictures beside it."""
    page = []
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            page.append(source)
            continue
        page.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{path.stem}-{number}.png"
                yield f"examples/{picture}", base64.b64decode("".join(data["image/png"]))
                page.append(f"![What this cell draws]({picture})")
            elif text := "".join(output.get("text", data.get("text/plain", ""))).rstrip():
                page.append(f"```text\n{text}\n```")
    yield f"examples/{path.stem}.md", "\n\n".join(page) + "\n"
