"""Who imports whom: read from the sources of hilp, held against the order of its rooms, and drawn.

Every import counts, also one inside a function, under TYPE_CHECKING, or by a string such as "hilp.data.load:load" or
f"hilp.commands.{verb}": a way back that is only taken later is still a way back.

Run: python tools/import_graph.py [FOLDER]   (prints what is against the order; draws rooms.svg and modules.svg there)
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent.parent / "src" / "hilp"
LONGEST = 450  # lines of a file

# What each room may import besides itself, in the order that drawings show them. A room is a package or a lone module.
_BASE = ("errors", "spec", "versions", "storage", "trees", "runs", "plugins", "compiler")
_LEARNED = (*_BASE, "data", "learning", "presets", "prompts", "policy", "training")
_KNOWN = (*_LEARNED, "tasks", "collectors")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_BASE, _BASE),
    "data": ("errors", "plugins", "spec", "storage", "trees", "versions"),
    "learning": (*_BASE, "data"),
    "presets": (*_BASE, "data", "learning"),
    "prompts": ("errors", "spec", "trees", "storage", "data"),  # the exported runtime is a copy of this folder
    "policy": (*_BASE, "data", "learning", "presets", "prompts"),
    "training": (*_BASE, "data", "learning", "presets", "prompts", "policy"),
    "export": (*_BASE, "data", "learning", "presets", "prompts", "policy"),
    "tasks": (*_BASE, "data"),
    "collectors": (*_LEARNED, "tasks"),  # a policy of the data so far may collect more
    "testing": (*_LEARNED, "tasks"),  # the conformance suites of methods and tasks, for those of others too
    "evaluation": _KNOWN,
    "report": (*_KNOWN, "evaluation"),
    "serve": (*_KNOWN, "evaluation"),
    "play": (*_KNOWN, "evaluation", "report", "export", "serve"),
    "bench": (*_KNOWN, "evaluation", "report", "export"),
    "commands": (*_KNOWN, "evaluation", "report", "serve", "play", "bench", "export"),
    "cli": (*_KNOWN, "evaluation", "report", "serve", "play", "bench", "export", "commands"),
    "__main__": ("cli",),
    "": (*_KNOWN, "evaluation"),  # hilp/__init__.py, the public names: nothing inside may ask for them there
}


@dataclass(frozen=True)
class Import:
    """One module of hilp asks for another."""

    importer: str  # e.g. "hilp.training.loop"
    imported: str
    line: int
    kind: str  # "top", "lazy" (in a function), "typing" (under TYPE_CHECKING) or "string"


def modules(source: Path = SOURCE) -> dict[str, Path]:
    """The file of every module; a package is its __init__.py."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = (source.name, *path.relative_to(source).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def first_lines(source: Path = SOURCE) -> dict[str, str]:
    """Path under the package -> the first line of a module's docstring, folder by folder; empty files are left out."""
    texts = {path.relative_to(source): path.read_text() for path in modules(source).values()}
    order = sorted(texts, key=lambda path: (path.parent.parts, path.name))
    found = {str(path): ast.get_docstring(ast.parse(texts[path])) or "" for path in order if texts[path].strip()}
    return {name: text.partition("\n")[0] for name, text in found.items()}


def room(module: str) -> str:
    """The package or lone module under hilp that a module belongs to; "" for hilp itself."""
    return [*module.split("."), ""][1]


def imports(source: Path = SOURCE) -> list[Import]:
    """All imports among the modules of a package, each (importer, imported, kind) once."""
    files = modules(source)
    found: dict[tuple[str, str, str], Import] = {}
    for importer, path in files.items():
        package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
        for names, line, kind in _asked(ast.parse(path.read_text(), str(path)), package):
            # "from hilp.data import load" asks for hilp.data.load, if that is a module, and for hilp.data otherwise.
            known = next(([name] for name in names if name in files), [])
            if names[0].endswith("."):  # the beginning of a name that is put together at run time: all that fit
                known = [name for name in files if name.startswith(names[0])]
            for imported in known:
                if imported != importer:
                    found.setdefault((importer, imported, kind), Import(importer, imported, line, kind))
    return sorted(found.values(), key=lambda one: (one.importer, one.imported, one.line))


def _asked(tree: ast.Module, package: str) -> Iterable[tuple[tuple[str, ...], int, str]]:
    """(names that may be meant, the likeliest first; line; kind) of each import in a module."""
    pending: list[tuple[ast.AST, str]] = [(tree, "top")]
    while pending:
        node, kind = pending.pop()
        if isinstance(node, ast.Import):
            yield from (((alias.name,), node.lineno, kind) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield from (((f"{base}.{alias.name}", base), node.lineno, kind) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"\w+(\.\w+)+(:\w+)?", node.value):
                yield (node.value.partition(":")[0],), node.lineno, "string"
        elif isinstance(node, ast.JoinedStr):
            first = str(node.values[0].value) if isinstance(node.values[0], ast.Constant) else ""
            if re.fullmatch(r"(\w+\.)+", first):
                yield (first,), node.lineno, "string"
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            pending += [(child, "typing") for child in node.body] + [(child, kind) for child in node.orelse]
        else:
            within = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            pending += [(child, "lazy" if within else kind) for child in ast.iter_child_nodes(node)]


def against_the_order(found: Iterable[Import], may: Mapping[str, tuple[str, ...]] = MAY_IMPORT) -> list[str]:
    """Imports that a room may not have, and rooms that nobody has given a place, a line each."""
    said = []
    for one in found:
        here, there = room(one.importer), room(one.imported)
        if here not in may:
            said.append(f"{here}: no place in the order of rooms (tools/import_graph.py)")
        elif here != there and there not in may[here]:
            said.append(
                f"{one.importer}:{one.line} imports {one.imported} ({one.kind}): {here or 'hilp'} may not know it"
            )
    return sorted(set(said))


def cycles(found: Iterable[Import]) -> list[list[str]]:
    """Groups of modules that can be reached from each other: with no way back there is none."""
    below: dict[str, set[str]] = {}
    for one in found:
        below.setdefault(one.importer, set()).add(one.imported)
        below.setdefault(one.imported, set())
    reached = {name: _reachable(name, below) for name in below}
    groups = {frozenset({name, *(other for other in reached[name] if name in reached[other])}) for name in below}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _reachable(start: str, below: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    pending = [start]
    while pending:
        new = below[pending.pop()] - seen
        seen |= new
        pending += new
    return seen


def too_long(source: Path = SOURCE, longest: int = LONGEST) -> list[str]:
    """Files with more lines than a reader can keep in mind."""
    lines = {path: len(path.read_text().splitlines()) for path in modules(source).values()}
    return [f"{path.relative_to(source)}: {n} lines, more than {longest}" for path, n in lines.items() if n > longest]


def heights(names: Iterable[str], arrows: Iterable[tuple[str, str]]) -> dict[str, int]:
    """How many floors lie below each name: the longest way down. (Ways round a cycle are cut after all names.)"""
    below: dict[str, set[str]] = {name: set() for name in names}
    for upper, lower in arrows:
        if upper != lower:
            below[upper].add(lower)
    height = dict.fromkeys(below, 0)
    for _ in below:
        new = {name: max((height[lower] + 1 for lower in lowers), default=0) for name, lowers in below.items()}
        if new == height:
            break
        height = new
    return height


# Drawings

_COLOURS = {"top": "#1f4e79", "lazy": "#c55a11", "typing": "#7f7f7f", "string": "#7030a0"}
_KINDS = {"top": "at the top", "lazy": "in a function", "typing": "for types only", "string": "by name"}


def draw_rooms(found: list[Import], target: Path | Any) -> None:
    """Rooms on the floors that MAY_IMPORT gives them; an arrow points to what a room imports.

    Faint arrows are implied by the others. A red one does not point down: it is against the order.
    """
    from matplotlib.patches import FancyArrowPatch

    def box(name: str) -> str:  # the modules that know nothing but each other are one box
        return "base" if name in _BASE else name

    rooms = {room(name) for one in found for name in (one.importer, one.imported)}
    hidden = {"", "__main__"}  # the public names and the way in: they know everything, nothing knows them
    arrows = {
        (box(room(one.importer)), box(room(one.imported)))
        for one in found
        if room(one.importer) != room(one.imported) and not hidden & {room(one.importer), room(one.imported)}
    }
    arrows = {(upper, lower) for upper, lower in arrows if upper != lower}
    names = {name for arrow in arrows for name in arrow}
    allowed = {
        (box(upper), box(lower)) for upper, lowers in MAY_IMPORT.items() for lower in lowers if upper not in hidden
    }
    floor = heights(names | {name for arrow in allowed for name in arrow}, allowed)
    at: dict[str, tuple[float, float]] = {}
    for level in {floor[name] for name in names}:
        here = sorted((name for name in names if floor[name] == level), key=_place)
        # A lone room stands aside, so that arrows past it do not run through it.
        shift = 0.0 if len(here) > 1 or level == 0 else 0.9 * (-1) ** level
        at |= {name: (2.6 * (place - (len(here) - 1) / 2) + shift, 1.1 * level) for place, name in enumerate(here)}
    below = {name: {lower for upper, lower in arrows if upper == name} for name in names}
    figure, axes = _figure(8, 1 + 0.62 * (max(floor.values(), default=0) + 1))
    boxes = {}
    for name, (x, y) in at.items():
        style = {"boxstyle": "round,pad=0.4", "facecolor": "#eaf1f8", "edgecolor": "#1f4e79"}
        label = "  ".join(part for part in _BASE if part in rooms) if name == "base" else name
        boxes[name] = axes.text(x, y, label, ha="center", va="center", fontsize=10, bbox=style, zorder=3)
    xs, ys = zip(*at.values(), strict=True) if at else ((0.0,), (0.0,))
    axes.set(xlim=(min(xs) - 3, max(xs) + 3), ylim=(min(ys) - 0.6, max(ys) + 0.6))
    axes.axis("off")
    figure.draw_without_rendering()  # boxes get their size, and arrows end at them
    for upper, lower in sorted(arrows):
        (x0, y0), (x1, y1) = at[upper], at[lower]
        down = y1 < y0
        implied = any(lower in _reachable(other, below) for other in below[upper] - {lower})
        axes.add_patch(
            FancyArrowPatch(
                (x0, y0),
                (x1, y1),
                connectionstyle=f"arc3,rad={0.0 if y0 - y1 < 1.5 else (0.3 if x0 + x1 >= 0 else -0.3)}",
                arrowstyle="-|>",
                mutation_scale=10,
                patchA=boxes[upper].get_bbox_patch(),
                patchB=boxes[lower].get_bbox_patch(),
                linewidth=0.6 if implied and down else 1.5,
                color="#1f4e79" if down else "#c00000",
                alpha=0.25 if implied and down else 1.0,
            )
        )
    figure.savefig(target, format="svg", metadata={"Date": None})


def _place(name: str) -> tuple[int, str]:
    return (list(MAY_IMPORT).index(name) if name in MAY_IMPORT else len(MAY_IMPORT), name)


def draw_modules(found: list[Import], target: Path | Any) -> None:
    """A matrix: the module of a row imports that of a column. Without a cycle all marks lie left of the diagonal."""
    names = {name for one in found for name in (one.importer, one.imported)} - {"hilp"}
    shown = [one for one in found if {one.importer, one.imported} <= names]
    single = heights(names, {(one.importer, one.imported) for one in shown})
    order = sorted(names, key=lambda name: (_place(room(name)), single[name], name))
    at = {name: place for place, name in enumerate(order)}
    figure, axes = _figure(18, 18)
    start = 0
    for place, name in enumerate(order):  # the squares of rooms
        if place + 1 == len(order) or room(order[place + 1]) != room(name):
            size = place + 1 - start
            axes.add_patch(_square(start, size))
            start = place + 1
    for kind, colour in _COLOURS.items():
        marks = [(at[one.imported], at[one.importer]) for one in shown if one.kind == kind]
        if marks:
            xs, ys = zip(*marks, strict=True)
            axes.scatter(xs, ys, s=20, marker="s", color=colour, label=_KINDS[kind], zorder=3)
    axes.plot([-0.5, len(order) - 0.5], [-0.5, len(order) - 0.5], color="#bbbbbb", linewidth=0.8)
    short = [name.removeprefix("hilp.") for name in order]
    axes.set(xlim=(-0.5, len(order) - 0.5), ylim=(len(order) - 0.5, -0.5), aspect="equal")
    axes.set_xticks(range(len(order)), short, rotation=90, fontsize=7)
    axes.set_yticks(range(len(order)), short, fontsize=7)
    axes.tick_params(length=0)
    axes.grid(color="#eeeeee", linewidth=0.4)
    axes.legend(loc="upper right", frameon=False, title="imported")
    figure.savefig(target, format="svg", metadata={"Date": None})


def _figure(width: float, height: float) -> tuple[Any, Any]:
    """Without pyplot: no window system is asked for, and nothing global is kept."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure, figure.add_subplot()


def _square(start: int, size: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((start - 0.5, start - 0.5), size, size, facecolor="#eaf1f8", edgecolor="#9db8d2", linewidth=0.8)


def main(words: list[str]) -> int:
    """Print what is wrong, and draw if a folder is named; 1 if anything is wrong."""
    found = imports()
    round_trips = [f"cycle: {' <-> '.join(group)}" for group in cycles(found)]
    said = [*against_the_order(found), *round_trips, *too_long()]
    print("\n".join(said) or f"{len(modules())} modules, {len(found)} imports, one direction, no cycle")
    if words:
        folder = Path(words[0])
        folder.mkdir(parents=True, exist_ok=True)
        draw_rooms(found, folder / "rooms.svg")
        draw_modules(found, folder / "modules.svg")
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
