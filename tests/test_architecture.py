"""The house keeps its shape: imports one way, no cycle, files that fit in a head, and a map that names them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import import_graph

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def found() -> list[import_graph.Import]:
    return import_graph.imports()


def test_imports_follow_the_order_of_rooms(found: list[import_graph.Import]) -> None:
    assert len(found) > 100, "the sources were not found"
    wrong = import_graph.against_the_order(found)
    assert not wrong, "\n".join(wrong)


def test_no_module_is_on_a_way_to_itself(found: list[import_graph.Import]) -> None:
    round_trips = [" <-> ".join(group) for group in import_graph.cycles(found)]
    assert not round_trips, "\n".join(round_trips)


def test_files_fit_in_a_head() -> None:
    long = import_graph.too_long()
    assert not long, "\n".join(long)


def test_the_map_names_every_folder_and_nothing_that_is_gone() -> None:
    page = (ROOT / "docs" / "develop.md").read_text()
    named = set(re.findall(r"`((?:\w+/)*\w+(?:\.py|/))`", page))
    there = [str(path.relative_to(import_graph.SOURCE)) for path in import_graph.modules().values()]
    missing = {name if "/" not in name else f"{Path(name).parent}/" for name in there} - named
    assert not missing, f"docs/develop.md lacks {' '.join(sorted(missing))}"
    gone = sorted(name for name in named if not any((root / name).exists() for root in (import_graph.SOURCE, ROOT)))
    assert not gone, f"docs/develop.md names what does not exist: {' '.join(gone)}"
    assert len(page.splitlines()) <= 110, "two screens: what a module is for is said in its first line"


def test_every_module_says_what_it_is_for() -> None:
    silent = [name for name, line in import_graph.first_lines().items() if not line]
    assert not silent, f"no docstring in {' '.join(silent)}"


# The checks themselves can fail.


def house(folder: Path, **files: str) -> Path:
    for name, text in {"__init__": "", **files}.items():
        path = folder / "hilp" / f"{name.replace('__', '/') if name != '__init__' else name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "hilp"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("from hilp.report import page", "top"),
        ("import hilp.report.page as page", "top"),
        ("from ..report.page import show", "top"),
        ("def f():\n    from hilp.report.page import show", "lazy"),
        ("class A:\n    def f(self):\n        if 1:\n            import hilp.report.page", "lazy"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from hilp.report import page", "typing"),
        ("import typing\nif typing.TYPE_CHECKING:\n    import hilp.report.page", "typing"),
        ("HOMES = {'show': 'hilp.report.page:show'}", "string"),
        ("def f(name):\n    import_module(f'hilp.report.{name}')", "string"),
    ],
)
def test_every_kind_of_import_is_seen(text: str, kind: str, tmp_path: Path) -> None:
    found = import_graph.imports(house(tmp_path, data__load=text, report__page="def show(): ..."))
    assert [(one.importer, one.imported, one.kind) for one in found] == [("hilp.data.load", "hilp.report.page", kind)]
    (said,) = import_graph.against_the_order(found)
    assert said.startswith("hilp.data.load:")
    assert "data may not know it" in said


def test_what_is_allowed_is_not_told(tmp_path: Path) -> None:
    source = house(tmp_path, data__load="import numpy\nfrom hilp.errors import E", errors="E = 'a.b of c'")
    found = import_graph.imports(source)
    assert [(one.importer, one.imported) for one in found] == [("hilp.data.load", "hilp.errors")]
    assert import_graph.against_the_order(found) == []


def test_inside_code_may_not_ask_the_public_face(tmp_path: Path) -> None:
    found = import_graph.imports(house(tmp_path, data__load="import hilp"))
    assert "imports hilp (top)" in import_graph.against_the_order(found)[0]


def test_a_new_room_needs_a_place(tmp_path: Path) -> None:
    found = import_graph.imports(house(tmp_path, attic__box="import hilp.errors", errors=""))
    assert "attic: no place" in import_graph.against_the_order(found)[0]


def test_cycles_through_functions_and_types_are_found(tmp_path: Path) -> None:
    source = house(
        tmp_path,
        data__a="from hilp.data import b",
        data__b="def f():\n    from hilp.data.c import x",
        data__c="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import hilp.data.a",
        data__d="import hilp.data.a",
    )
    assert import_graph.cycles(import_graph.imports(source)) == [["hilp.data.a", "hilp.data.b", "hilp.data.c"]]


def test_long_files_are_told(tmp_path: Path) -> None:
    source = house(tmp_path, data__a="x = 1\n" * 451, data__b="x = 1\n" * 450)
    assert import_graph.too_long(source) == ["data/a.py: 451 lines, more than 450"]


DRAWN = {"data", "evaluation", "policy"}


def test_drawings_show_rooms_and_modules(found: list[import_graph.Import], tmp_path: Path) -> None:
    """Of some rooms: the site, which has a test of its own, draws them all."""
    few = [one for one in found if {import_graph.room(one.importer), import_graph.room(one.imported)} <= DRAWN]
    import_graph.draw_rooms(few, tmp_path / "rooms.svg")
    import_graph.draw_modules(few, tmp_path / "modules.svg")
    for name in ("rooms.svg", "modules.svg"):
        assert (tmp_path / name).read_text().rstrip().endswith("</svg>")
    assert "evaluation" in (tmp_path / "rooms.svg").read_text()  # matplotlib notes the words of a text in a comment
    assert "policy.artifact" in (tmp_path / "modules.svg").read_text()
