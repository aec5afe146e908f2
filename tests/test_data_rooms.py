"""The data room: it knows no task, and no two of its files need each other."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import hilp

ROOT = Path(hilp.__file__).parent
BELOW = {"hilp", "hilp.errors", "hilp.storage", "hilp.trees", "hilp.versions"}  # what data may build on


def imports(file: Path) -> set[str]:
    """Modules of hilp that a file imports anywhere: at the top, inside functions, for types only."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.split(".")[0] == "hilp"}


def test_data_builds_on_lower_rooms_only_and_has_no_circles():
    files = sorted((ROOT / "data").rglob("*.py"))
    names = {".".join(("hilp", *f.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): f for f in files}
    rooms = {name for path in ROOT.rglob("*.py") for name in [".".join(("hilp", *path.relative_to(ROOT).parts))[:-3]]}
    graph = {name: imports(file) & rooms for name, file in names.items()}
    for name, found in graph.items():
        assert found <= BELOW | names.keys(), (name, found - BELOW - names.keys())
    TopologicalSorter(graph).prepare()  # raises where there is a circle


def test_files_are_small_enough_to_be_read():
    for file in (ROOT / "data").rglob("*.py"):
        assert len(file.read_text().splitlines()) <= 450, file
