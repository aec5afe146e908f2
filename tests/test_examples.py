"""The examples run as they are printed in the README, with fewer updates."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
UPDATES = "20"  # that the examples run, not that they learn


ALONE = [path for path in sorted(EXAMPLES.glob("*.py")) if path.stem != "control_loop"]  # test_docs_code.py serves it


@pytest.mark.parametrize("path", ALONE, ids=lambda path: path.stem)
def test_example_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(path), UPDATES])
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()
