"""The runtime as one file: what `hilp_runtime.py` imports of hilp is written into it, with all that this needs.

So the exported file plans, reads files and fits rewards by the very code that hilp does.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

from hilp.export import hilp_runtime


def runtime() -> str:
    """The text of the runtime, which imports nothing but numpy and Python's own modules."""
    source = Path(hilp_runtime.__file__).read_text()
    lines = source.splitlines()
    future, *tops = (node for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom))
    imports, there, pieces = Imports(), set[str](), list[str]()
    for node in tops:
        if ours := _of_hilp(node):
            pieces += ["", "", *included(*ours, there, imports)]
        else:
            imports.add(node, _imports(node))
    text = "\n".join([*lines[: future.end_lineno], *imports.lines(), *pieces, "", "", *lines[tops[-1].end_lineno :]])
    return re.sub("\n{4,}", "\n\n\n", text) + "\n"


class Imports:
    """What the runtime imports from elsewhere than hilp: each name once, on top."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.names: dict[str, set[str]] = {}  # by the module that they are of

    def add(self, node: ast.Import | ast.ImportFrom, wanted: set[str]) -> None:
        """What a statement imports of these names."""
        found = {ast.unparse(alias) for alias in node.names if (alias.asname or alias.name) in wanted}
        if isinstance(node, ast.Import):
            self.modules |= found
        elif found:
            self.names.setdefault(str(node.module), set()).update(found)

    def lines(self) -> list[str]:
        found = [f"import {module}" for module in sorted(self.modules)]
        found += [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(self.names.items())]
        numpy = [line for line in found if line.split()[1].partition(".")[0] == "numpy"]
        return ["", *(line for line in found if line not in numpy), "", *numpy]


def included(module: str, names: list[str], there: set[str], imports: Imports) -> list[str]:
    """The lines that define these names of a module, and all that they need of it and of hilp: what is needed first.

    there: names that are in the runtime already, which these join; imports: what it imports, which grows alike.
    """
    path = importlib.import_module(module).__file__
    assert path is not None
    source = Path(path).read_text()
    lines = source.splitlines()
    body = ast.parse(source).body
    defined = {name: node for node in body for name in _defines(node)}
    wanted: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in wanted | there:
            wanted.add(name)
            pending += _used(defined[name]) if name in defined else ()
    there |= wanted & set(defined)
    found: list[str] = []
    for node in body:
        if ours := _of_hilp(node):
            found += included(ours[0], [name for name in ours[1] if name in wanted], there, imports)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports.add(node, wanted & _imports(node))
    for node in body:
        if wanted & set(_defines(node)):
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(one.lineno for one in decorators)])
            large = isinstance(node, ast.FunctionDef | ast.ClassDef)
            found += [*(["", ""] if large else []), *lines[first - 1 : node.end_lineno], *(["", ""] if large else [])]
    return found


def _used(node: ast.AST) -> set[str]:
    """The names that a piece of code uses, but those that are arguments of its functions."""
    own = (
        {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
        if isinstance(node, ast.FunctionDef)
        else set()
    )
    inner = {name for child in ast.iter_child_nodes(node) for name in _used(child)}
    return (inner | ({node.id} if isinstance(node, ast.Name) else set())) - own


def _of_hilp(node: ast.stmt) -> tuple[str, list[str]] | None:
    """The module of hilp and its names that a statement imports, if it does."""
    if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("hilp."):
        return node.module, [alias.name for alias in node.names]
    return None


def _imports(node: ast.Import | ast.ImportFrom) -> set[str]:
    """The names that a statement imports from elsewhere than hilp."""
    if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("hilp", "__future__"):
        return set()
    return {alias.asname or alias.name for alias in node.names}


def _defines(node: ast.stmt) -> list[str]:
    """The names that a statement of a module defines; not those that it imports."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    flat = [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [one.id for one in flat if isinstance(one, ast.Name)]
