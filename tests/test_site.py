"""The site builds without a warning, asks nothing of the network, and its reference has every public name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import hilp
import import_graph

ROOT = Path(__file__).parent.parent
pytest.importorskip("mkdocs", reason="needs the docs extra")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: a warning that is not logged does not count, and the build would pass.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10
    for page in pages:
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text()):
            assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", tag), f"{page.name}: {tag}"


def test_reference_has_every_public_name(site: Path) -> None:
    reference = (site / "api.html").read_text()
    for name in set(hilp.__all__) - {"__version__"}:
        assert f'id="hilp.{name}"' in reference, f"docs/api.md lacks {name}"


def test_every_module_is_listed(site: Path) -> None:
    page = (site / "modules.html").read_text()
    for name in import_graph.first_lines():
        assert Path(name).name in page, f"the list of modules lacks {name}"


def test_import_graph_is_drawn(site: Path) -> None:
    page = (site / "import-graph.html").read_text()
    for name in ("import-graph-rooms.svg", "import-graph-modules.svg"):
        assert name in page
        assert (site / name).stat().st_size > 10_000
