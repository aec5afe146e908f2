"""The runtime as one file: what `hilp_runtime.py` imports of hilp is written into it, with all that this needs.

So the exported file plans, reads files and fits rewards by the very code that hilp does.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

from hilp.export import hilp_runtime


def runtime() -> str:
    """The text of the runtime, which imports nothing but numpy and Python's own modules."""
    source = Path(hilp_runtime.__file__).read_text()
    lines = source.splitlines()
    pieces: list[str] = []
    done = 0
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hilp."):
            assert node.module is not None and node.end_lineno is not None
            pieces += [*lines[done : node.lineno - 1], "", ""]
            pieces += included(node.module, [alias.name for alias in node.names])
            done = node.end_lineno
    return "\n".join([*pieces, "", "", *lines[done:]]).replace("\n\n\n\n", "\n\n\n") + "\n"


def included(module: str, names: list[str]) -> list[str]:
    """The lines that define these names of a module, and what they need of it, in the order of the file."""
    path = importlib.import_module(module).__file__
    assert path is not None
    source = Path(path).read_text()
    lines = source.splitlines()
    body = ast.parse(source).body
    defined = {name: node for node in body for name in _defines(node)}
    wanted, pending = set(), list(names)
    while pending:
        name = pending.pop()
        if name not in wanted:
            wanted.add(name)
            used = ast.walk(defined[name]) if name in defined else ()
            pending += [node.id for node in used if isinstance(node, ast.Name)]
    found = [ast.unparse(node) for node in body if wanted & _imports(node)]
    for node in body:
        if wanted & set(_defines(node)):
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(one.lineno for one in decorators)])
            large = isinstance(node, ast.FunctionDef | ast.ClassDef)
            found += [*(["", ""] if large else []), *lines[first - 1 : node.end_lineno], *(["", ""] if large else [])]
    return found


def _imports(node: ast.stmt) -> set[str]:
    """The names that a statement imports from elsewhere than hilp; what it imports of hilp, the runtime does too."""
    if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("hilp", "__future__"):
        return set()
    return (
        {alias.asname or alias.name for alias in node.names} if isinstance(node, ast.Import | ast.ImportFrom) else set()
    )


def _defines(node: ast.stmt) -> list[str]:
    """The names that a statement of a module defines; not those that it imports."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    flat = [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [one.id for one in flat if isinstance(one, ast.Name)]
